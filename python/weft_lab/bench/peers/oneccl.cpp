/* oneCCL as a peer, on the CPU. Its ranks find each other through MPI, which starts them. */
#include "shim.h"

#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <oneapi/ccl.hpp>

/* Hooks of a tracer, which a program that links the static library must define: none. */
extern "C" {
#define NO_HOOK(name) void *__itt_##name##_ptr__3_0
NO_HOOK(domain_create);
NO_HOOK(event_create);
NO_HOOK(event_end);
NO_HOOK(event_start);
NO_HOOK(metadata_add);
NO_HOOK(string_handle_create);
NO_HOOK(task_begin);
NO_HOOK(task_end);
NO_HOOK(thread_set_name);
}

namespace {

struct Type {
    const char *name;
    ccl::datatype type;
};

const Type types[] = {
    {"float32", ccl::datatype::float32}, {"float64", ccl::datatype::float64}, {"int32", ccl::datatype::int32},
    {"int64", ccl::datatype::int64},     {"int8", ccl::datatype::int8},       {"uint8", ccl::datatype::uint8},
};

int rank, ranks;
ccl::datatype type;
std::shared_ptr<ccl::kvs> store;
std::unique_ptr<ccl::communicator> communicator;

/* An exception must not reach the caller, which is no C++. */
template <typename Call> int caught(Call call)
{
    try {
        call();
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "oneCCL: %s\n", error.what());
        return 1;
    }
}

} // namespace

int weft_bench_start(void)
{
    int level;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return caught([] {
        ccl::init();
        ccl::kvs::address_type address;
        if (rank == 0) {
            store = ccl::create_main_kvs();
            address = store->get_address();
        }
        MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
        if (rank != 0)
            store = ccl::create_kvs(address);
        communicator = std::make_unique<ccl::communicator>(ccl::create_communicator(ranks, rank, store));
    });
}

int weft_bench_rank(void)
{
    return rank;
}

int weft_bench_ranks(void)
{
    return ranks;
}

int weft_bench_version(char *text, size_t length)
{
    return caught([=] {
        const ccl::library_version version = ccl::get_library_version();
        std::snprintf(text, length, "oneCCL %d.%d.%d", version.major, version.minor, version.update);
    });
}

int weft_bench_type(const char *name)
{
    for (const Type &known : types)
        if (std::strcmp(known.name, name) == 0) {
            type = known.type;
            return 0;
        }
    return 1;
}

int weft_bench_all_reduce(const void *from, void *to, size_t count)
{
    return caught([=] { ccl::allreduce(from, to, count, type, ccl::reduction::sum, *communicator).wait(); });
}

int weft_bench_broadcast(const void *from, void *to, size_t count)
{
    if (from != to)
        return 1;
    return caught([=] { ccl::broadcast(to, count, type, 0, *communicator).wait(); });
}

int weft_bench_reduce(const void *from, void *to, size_t count)
{
    return caught([=] { ccl::reduce(from, to, count, type, ccl::reduction::sum, 0, *communicator).wait(); });
}

int weft_bench_all_gather(const void *from, void *to, size_t count)
{
    return caught([=] { ccl::allgather(from, to, count, type, *communicator).wait(); });
}

int weft_bench_reduce_scatter(const void *from, void *to, size_t count)
{
    return caught([=] { ccl::reduce_scatter(from, to, count, type, ccl::reduction::sum, *communicator).wait(); });
}

int weft_bench_all_to_all(const void *from, void *to, size_t count)
{
    return caught([=] { ccl::alltoall(from, to, count, type, *communicator).wait(); });
}

int weft_bench_barrier(const void *, void *, size_t)
{
    return caught([] { ccl::barrier(*communicator).wait(); });
}

int weft_bench_finish(void)
{
    communicator.reset();
    store.reset();
    return MPI_Finalize();
}
