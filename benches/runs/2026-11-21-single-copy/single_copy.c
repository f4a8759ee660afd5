/* What a single-copy read of another process's memory (process_vm_readv) carries, beside a copy out of shared memory.
 *
 * cc -O2 -o single_copy single_copy.c && ./single_copy
 *
 * "cold" reads 64 MiB once; "hot" reads the same 256 KiB again and again. Chunks go to memory that is in a cache, as tiles do. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 64 << 20, HOT = 256 << 10 };

static pid_t peer;
static char *theirs, *shared, *into;

static void by_kernel(size_t offset, size_t chunk) {
    struct iovec local = {into, chunk}, remote = {theirs + offset, chunk};
    if (process_vm_readv(peer, &local, 1, &remote, 1, 0) != (ssize_t)chunk) {
        perror("process_vm_readv");
        exit(1);
    }
}

static void by_thread(size_t offset, size_t chunk) { memcpy(into, shared + offset, chunk); }

static double gigabytes_per_s(void (*copy)(size_t, size_t), size_t chunk, size_t window) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (size_t offset = 0; offset < BYTES; offset += chunk) copy(offset % window, chunk);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return BYTES / ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec));
}

int main(void) {
    volatile int *written = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    theirs = malloc(BYTES);
    into = malloc(1 << 20);
    memset(theirs, 1, BYTES);
    memset(into, 0, 1 << 20);
    peer = fork();
    if (peer == 0) {
        memset(theirs, 2, BYTES);
        memset(shared, 2, BYTES);
        *written = 1;
        for (;;) pause();
    }
    while (!*written) usleep(100);
    printf("chunk, KiB | kernel, cold | thread, cold | kernel, hot | thread, hot   (GB/s)\n");
    for (size_t chunk = 4096; chunk <= 256 << 10; chunk *= 4) {
        gigabytes_per_s(by_thread, chunk, BYTES);
        printf("%10zu | %12.1f | %12.1f | %11.1f | %11.1f\n", chunk >> 10, gigabytes_per_s(by_kernel, chunk, BYTES),
               gigabytes_per_s(by_thread, chunk, BYTES), gigabytes_per_s(by_kernel, chunk, HOT),
               gigabytes_per_s(by_thread, chunk, HOT));
    }
    kill(peer, 9);
    return waitpid(peer, NULL, 0) != peer;
}
