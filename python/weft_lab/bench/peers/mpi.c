/* MPI as a peer: its collectives, or with RING baidu's ring over point-to-point messages. */
#include "shim.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static MPI_Datatype type;
static int type_bytes;

int weft_bench_start(void)
{
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return 0;
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
    char whole[MPI_MAX_LIBRARY_VERSION_STRING];
    int whole_length;
    if (MPI_Get_library_version(whole, &whole_length) != MPI_SUCCESS)
        return 1;
    /* Some go on about how they were built. */
    whole[strcspn(whole, ",\n")] = '\0';
    snprintf(text, length, "%s", whole);
    return 0;
}

int weft_bench_type(const char *name)
{
    static const struct {
        const char *name;
        MPI_Datatype type;
    } *found, types[] = {
        {"float32", MPI_FLOAT},   {"float64", MPI_DOUBLE}, {"int32", MPI_INT32_T},
        {"int64", MPI_INT64_T},   {"int8", MPI_INT8_T},    {"uint8", MPI_UINT8_T},
    };
    size_t number = sizeof types / sizeof types[0];
    for (found = types; found < types + number; found++)
        if (strcmp(found->name, name) == 0) {
            type = found->type;
            return MPI_Type_size(type, &type_bytes);
        }
    return 1;
}

#ifdef RING

/* The neighbours' blocks are received here: made at first use, larger ones replace it. */
static char *receive;
static size_t receive_bytes;

static char *block(void *buffer, size_t count, int index, int *elements)
{
    size_t each = count / ranks, more = count % ranks;
    size_t place = (index % ranks + ranks) % ranks;
    size_t first = place * each + (place < more ? place : more);
    *elements = (int)(each + (place < more));
    return (char *)buffer + first * type_bytes;
}

/* As baidu's ring does: the message in as many blocks as there are ranks, P - 1 steps that add,
 * P - 1 that spread, one whole block at a time, nothing overlapped. */
int weft_bench_all_reduce(const void *from, void *to, size_t count)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    size_t needed = (count / ranks + 1) * type_bytes;
    if (from != to)
        memcpy(to, from, count * type_bytes);
    if (needed > receive_bytes) {
        free(receive);
        receive = malloc(needed);
        receive_bytes = receive ? needed : 0;
        if (!receive)
            return 1;
    }
    for (int step = 0; step < ranks - 1; step++) {
        int sent, received;
        MPI_Request request;
        char *out = block(to, count, rank - step, &sent);
        char *into = block(to, count, rank - step - 1, &received);
        MPI_Irecv(receive, received, type, left, 0, MPI_COMM_WORLD, &request);
        MPI_Send(out, sent, type, right, 0, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Reduce_local(receive, into, received, type, MPI_SUM);
    }
    for (int step = 0; step < ranks - 1; step++) {
        int sent, received;
        char *out = block(to, count, rank + 1 - step, &sent);
        char *into = block(to, count, rank - step, &received);
        MPI_Sendrecv(out, sent, type, right, 0, into, received, type, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return 0;
}

#else

int weft_bench_all_reduce(const void *from, void *to, size_t count)
{
    return MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, (int)count, type, MPI_SUM, MPI_COMM_WORLD);
}

int weft_bench_broadcast(const void *from, void *to, size_t count)
{
    if (from != to)
        memcpy(to, from, count * type_bytes);
    return MPI_Bcast(to, (int)count, type, 0, MPI_COMM_WORLD);
}

int weft_bench_all_gather(const void *from, void *to, size_t count)
{
    return MPI_Allgather(from, (int)count, type, to, (int)count, type, MPI_COMM_WORLD);
}

int weft_bench_reduce_scatter(const void *from, void *to, size_t count)
{
    return MPI_Reduce_scatter_block(from, to, (int)count, type, MPI_SUM, MPI_COMM_WORLD);
}

int weft_bench_reduce(const void *from, void *to, size_t count)
{
    const void *brought = from == to && rank == 0 ? MPI_IN_PLACE : from;
    return MPI_Reduce(brought, rank == 0 ? to : NULL, (int)count, type, MPI_SUM, 0, MPI_COMM_WORLD);
}

int weft_bench_all_to_all(const void *from, void *to, size_t count)
{
    return MPI_Alltoall(from, (int)count, type, to, (int)count, type, MPI_COMM_WORLD);
}

int weft_bench_gather(const void *from, void *to, size_t count)
{
    return MPI_Gather(from, (int)count, type, to, (int)count, type, 0, MPI_COMM_WORLD);
}

int weft_bench_scatter(const void *from, void *to, size_t count)
{
    return MPI_Scatter(from, (int)count, type, to, (int)count, type, 0, MPI_COMM_WORLD);
}

int weft_bench_barrier(const void *from, void *to, size_t count)
{
    (void)from, (void)to, (void)count;
    return MPI_Barrier(MPI_COMM_WORLD);
}

int weft_bench_ping_pong(const void *from, void *to, size_t count)
{
    int partner = rank ^ 1, code = 0;
    if (partner >= ranks)
        return 0;
    if (rank < partner)
        code = MPI_Send(from, (int)count, type, partner, 0, MPI_COMM_WORLD);
    if (code == 0)
        code = MPI_Recv(to, (int)count, type, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (code == 0 && rank > partner)
        code = MPI_Send(from, (int)count, type, partner, 0, MPI_COMM_WORLD);
    return code;
}

#endif

int weft_bench_finish(void)
{
    return MPI_Finalize();
}
