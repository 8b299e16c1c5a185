/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A pool of helper threads that share the tiles of one kernel at a time with the thread that
 * asks. */
#ifndef RG_CPU_POOL_H
#define RG_CPU_POOL_H

#include "backend/backend.h"

typedef struct rg_pool rg_pool;

/* `threads` includes the asking thread; helpers start with the first work that wants them. */
rg_status rg_pool_create(const rg_allocator *allocator, int32_t threads, rg_pool **pool);
void rg_pool_destroy(rg_pool *pool);
int32_t rg_pool_threads(const rg_pool *pool);

/* Runs function(args, begin, end) over tiles of `grain` units, and returns when all are done.
 * Which thread runs which tile is open; where the tiles begin and end is not. If another thread
 * is using the pool, the caller works alone. */
void rg_pool_run(rg_pool *pool, rg_cpu_function function, const void *args, int64_t units,
                 int64_t grain);

/* Makes stores past the cache visible before what follows, such as the word that work is done. */
RG_INLINE void rg_pool_fence(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}

#endif
