/* An RDMA library that takes memory of other devices (dma-buf), for adapters that do not, such as
   Soft-RoCE: preloaded, it answers every lookup of `ibv_reg_dmabuf_mr`. The file must be one that
   can be mapped, as those of the emulated CUDA driver are: the adapter registers a mapping of this
   library, under the address that the caller names. So the adapter really reads by the file, not
   the process's memory at that address. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void *Lookup(void *library, const char *name);
typedef void *Register(void *domain, void *start, size_t bytes, uint64_t known_as, int access);

static Lookup *next_dlsym(void) { return (Lookup *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"); }

static Register *register_as;

/* Mappings live as long as the process: who ends a registration does not name them. */
static void *register_file(void *domain, uint64_t offset, size_t bytes, uint64_t known_as, int file, int access) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), before = offset % page;
    if (register_as == NULL || known_as % page != before) {
        errno = EINVAL;
        return NULL;
    }
    int both = PROT_READ | PROT_WRITE; /* adapters of old kernels pin no shared pages that are only read */
    char *mapped = mmap(NULL, bytes + before, both, MAP_SHARED, file, (off_t)(offset - before));
    if (mapped == MAP_FAILED) return NULL;
    return register_as(domain, mapped + before, bytes, known_as, access);
}

void *dlsym(void *library, const char *name) {
    Lookup *next = next_dlsym();
    if (strcmp(name, "ibv_reg_dmabuf_mr") != 0) return next(library, name);
    register_as = (Register *)next(library, "ibv_reg_mr_iova");
    return (void *)register_file;
}
