/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A crew of helper threads that share the tiles of one kernel at a time with the thread that
 * asks. */
#ifndef RG_CPU_CREW_H
#define RG_CPU_CREW_H

#include "backend/backend.h"

typedef struct rg_crew rg_crew;

/* `threads` includes the asking thread; helpers start with the first work that wants them. */
rg_status rg_crew_create(const rg_allocator *allocator, int32_t threads, rg_crew **crew);
void rg_crew_destroy(rg_crew *crew);
int32_t rg_crew_threads(const rg_crew *crew);

/* Runs function(args, begin, end) over tiles of `grain` units, and returns when all are done.
 * Which thread runs which tile is open; where the tiles begin and end is not. If another thread
 * is using the crew, the caller works alone. */
void rg_crew_run(rg_crew *crew, rg_cpu_function function, const void *args, int64_t units,
                 int64_t grain);

/* Which of the threads of its crew runs the caller: 0 for one that asks, so results differ among
 * threads that work on one job. Scratch of a launch per thread is found by it. */
int32_t rg_crew_lane(void);

/* Makes stores past the cache visible before what follows, such as the word that work is done. */
RG_INLINE void rg_crew_fence(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}

#endif
