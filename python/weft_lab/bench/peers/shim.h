/* What `weft bench` calls in another library. Every function returns 0 if it went well.
 *
 * The collectives take: from where, to where, and how many elements of the type that was set last,
 * as one rank brings them, or takes them if that is less; for all-to-all, as they go to one rank.
 * Sum, root 0. In place where both addresses are the same. Every shim has those that the table of
 * peers says.
 */
#ifndef WEFT_BENCH_SHIM_H
#define WEFT_BENCH_SHIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All ranks meet. */
int weft_bench_start(void);
int weft_bench_rank(void);
int weft_bench_ranks(void);
/* What the library calls itself. */
int weft_bench_version(char *text, size_t length);
/* The element type of the next calls, as NumPy names it; not 0 if the library does not have it. */
int weft_bench_type(const char *name);
int weft_bench_all_reduce(const void *from, void *to, size_t count);
int weft_bench_broadcast(const void *from, void *to, size_t count);
int weft_bench_all_gather(const void *from, void *to, size_t count);
int weft_bench_reduce_scatter(const void *from, void *to, size_t count);
int weft_bench_reduce(const void *from, void *to, size_t count);
int weft_bench_all_to_all(const void *from, void *to, size_t count);
int weft_bench_gather(const void *from, void *to, size_t count);
int weft_bench_scatter(const void *from, void *to, size_t count);
int weft_bench_barrier(const void *from, void *to, size_t count);
/* Rank r and rank r ^ 1, if there is one: a message from the lower, then one back. */
int weft_bench_ping_pong(const void *from, void *to, size_t count);
/* All ranks part. */
int weft_bench_finish(void);

#ifdef __cplusplus
}
#endif

#endif
