/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The crew: helper threads.
 *
 * A job is open while `turn` is odd. A helper enters by counting itself in and then looking at
 * `turn` again: if the job closed meanwhile it leaves without touching it. The asking thread
 * closes the job when no tile is left, and returns when no helper is inside. */
#include "backend/cpu/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* The tiles that one thread takes first. */
typedef struct share {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} share;

/* What a helper starts with. */
typedef struct helper {
    rg_crew *crew;
    int32_t number; /* the asking thread is 0 */
    pthread_t thread;
} helper;

struct rg_crew {
    rg_allocator allocator;
    int32_t threads, started; /* helpers: threads - 1 wanted, `started` running */
    helper *helpers;
    share *shares; /* one per thread */
    bool spins; /* waiting threads spin before they sleep: not where they would steal a processor */

    pthread_mutex_t owner; /* held by the thread that uses the crew */
    _Alignas(64) _Atomic uint32_t turn;
    _Atomic bool stop;
    rg_cpu_function function;
    const void *args;
    int64_t units, grain;
    _Alignas(64) _Atomic int32_t inside;

    _Atomic int32_t sleepers;
    pthread_mutex_t lock; /* of `wake` */
    pthread_cond_t wake;
};

static _Thread_local int32_t lane; /* 0 in threads that are no helpers */

int32_t rg_crew_lane(void)
{
    return lane;
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* First its own share, then what others have left. The shares are the same from call to call, so
 * that a thread finds in its cache what it has written there before. */
static void take_tiles(rg_crew *crew, int32_t number)
{
    for (int32_t k = 0; k < crew->threads; k++) {
        share *from = &crew->shares[(number + k) % crew->threads];
        for (;;) {
            const int64_t tile = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
            if (tile >= from->end)
                break;
            const int64_t begin = tile * crew->grain, rest = crew->units - begin;
            crew->function(crew->args, begin, begin + (rest < crew->grain ? rest : crew->grain));
        }
    }
#if defined(__x86_64__)
    __builtin_ia32_sfence(); /* stores past the cache become visible before the job counts as done
                              */
#endif
}

/* Returns when `turn` is no longer `seen`, or the crew stops. */
static void await_turn(rg_crew *crew, uint32_t seen)
{
    enum { SPINS = 4000 }; /* some 50 to 100 microseconds: the gap between two kernels of a list */
    for (int i = 0; i < SPINS && crew->spins; i++) {
        if (atomic_load(&crew->turn) != seen || atomic_load(&crew->stop))
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&crew->lock);
    crew->sleepers++;
    while (atomic_load(&crew->turn) == seen && !atomic_load(&crew->stop))
        pthread_cond_wait(&crew->wake, &crew->lock);
    crew->sleepers--;
    pthread_mutex_unlock(&crew->lock);
}

static void *helper_main(void *context)
{
    const helper *me = context;
    rg_crew *crew = me->crew;
    uint32_t seen = 0;
    lane = me->number;
    while (!atomic_load(&crew->stop)) {
        const uint32_t turn = atomic_load(&crew->turn);
        if (turn == seen || turn % 2 == 0) {
            await_turn(crew, turn);
            continue;
        }
        seen = turn;
        crew->inside++;
        if (atomic_load(&crew->turn) == turn)
            take_tiles(crew, me->number);
        crew->inside--;
    }
    return NULL;
}

static void wake_helpers(rg_crew *crew)
{
    if (atomic_load(&crew->sleepers) == 0)
        return;
    pthread_mutex_lock(&crew->lock);
    pthread_cond_broadcast(&crew->wake);
    pthread_mutex_unlock(&crew->lock);
}

void rg_crew_run(rg_crew *crew, rg_cpu_function function, const void *args, int64_t units,
                 int64_t grain)
{
    const bool shared =
        crew->threads > 1 && units > grain && pthread_mutex_trylock(&crew->owner) == 0;
    if (!shared) {
        for (int64_t begin = 0; begin < units; begin += grain)
            function(args, begin, begin + (units - begin < grain ? units - begin : grain));
        rg_crew_fence();
        return;
    }
    while (crew->started < crew->threads - 1) { /* fewer helpers than wished for will do */
        helper *next = &crew->helpers[crew->started];
        *next = (helper){ .crew = crew, .number = crew->started + 1 };
        if (pthread_create(&next->thread, NULL, helper_main, next) != 0)
            break;
        crew->started++;
    }
    crew->function = function;
    crew->args = args;
    crew->units = units;
    crew->grain = grain;
    const int64_t tiles = (units + grain - 1) / grain;
    for (int32_t i = 0; i < crew->threads; i++) {
        atomic_store_explicit(&crew->shares[i].next, tiles * i / crew->threads,
                              memory_order_relaxed);
        crew->shares[i].end = tiles * (i + 1) / crew->threads;
    }
    crew->turn++;
    wake_helpers(crew);
    take_tiles(crew, 0);
    crew->turn++;
    for (int i = 0; atomic_load(&crew->inside) != 0; i++) {
        if (i < 1000 && crew->spins)
            pause_briefly();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&crew->owner);
}

rg_status rg_crew_create(const rg_allocator *allocator, int32_t threads, rg_crew **crew)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_crew), &memory));
    rg_crew *made = memory;
    made->allocator = *allocator;
    made->threads = threads;
    rg_status status =
        rg_allocate(allocator, (size_t)threads * sizeof(helper), (void **)&made->helpers);
    if (status == RG_OK)
        status = rg_allocate(allocator, (size_t)threads * sizeof(share), (void **)&made->shares);
    if (status != RG_OK) {
        rg_release(allocator, made->helpers, (size_t)threads * sizeof(helper));
        rg_release(allocator, memory, sizeof *made);
        return status;
    }
    cpu_set_t allowed;
    made->spins =
        sched_getaffinity(0, sizeof allowed, &allowed) == 0 && threads <= CPU_COUNT(&allowed);
    pthread_mutex_init(&made->owner, NULL);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->wake, NULL);
    *crew = made;
    return RG_OK;
}

void rg_crew_destroy(rg_crew *crew)
{
    atomic_store(&crew->stop, true);
    pthread_mutex_lock(&crew->lock);
    pthread_cond_broadcast(&crew->wake);
    pthread_mutex_unlock(&crew->lock);
    for (int32_t i = 0; i < crew->started; i++)
        pthread_join(crew->helpers[i].thread, NULL);
    pthread_mutex_destroy(&crew->owner);
    pthread_mutex_destroy(&crew->lock);
    pthread_cond_destroy(&crew->wake);
    const rg_allocator allocator = crew->allocator;
    rg_release(&allocator, crew->helpers, (size_t)crew->threads * sizeof(helper));
    rg_release(&allocator, crew->shares, (size_t)crew->threads * sizeof(share));
    rg_release(&allocator, crew, sizeof *crew);
}

int32_t rg_crew_threads(const rg_crew *crew)
{
    return crew->threads;
}
