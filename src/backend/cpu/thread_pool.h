/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A thread pool: threads that share the tiles of one kernel at a time with the thread that
 * asks. */
#ifndef RG_CPU_THREAD_POOL_H
#define RG_CPU_THREAD_POOL_H

#include "backend/backend.h"

typedef struct rg_thread_pool rg_thread_pool;

/* `threads` includes the calling thread; the others start with the first work that uses them, or
 * are the caller's, if `parallel` is not NULL: it is copied. */
rg_status rg_thread_pool_create(const rg_allocator *allocator, int32_t threads,
                                const rg_parallel *parallel, rg_thread_pool **pool);
void rg_thread_pool_destroy(rg_thread_pool *pool);
int32_t rg_thread_pool_threads(const rg_thread_pool *pool);

/* function(args, begin, end) over tiles of `grain` units. `backwards`: a thread begins with the
 * last tile of its share, which it took last in the job before. */
typedef struct rg_cpu_job {
    rg_cpu_function function;
    const void *args;
    int64_t units, grain;
    bool backwards;
} rg_cpu_job;

/* Runs a job, and returns when all tiles are done. Which thread runs which tile is open; where the
 * tiles begin and end is not. If another thread is using the thread pool, the caller works alone.
 */
void rg_thread_pool_run(rg_thread_pool *pool, const rg_cpu_job *job);

/* Which of the threads of its thread pool runs the caller: 0 for one that asks, so results differ
 * among threads that work on one job. Scratch of a launch per thread is found by it. */
int32_t rg_thread_pool_index(void);

/* Makes streaming stores visible before what follows, such as the word that work is done. */
RG_INLINE void rg_thread_pool_fence(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}

#endif
