/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The thread pool: helper threads.
 *
 * A job is open while `generation` is odd. A helper enters by counting itself in and then looking
 * at `generation` again: if the job closed meanwhile it leaves without touching it. The asking
 * thread closes the job when no tile is left, and returns when no helper is inside. */
#include "backend/cpu/thread_pool.h"

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
    rg_thread_pool *thread_pool;
    int32_t number; /* the asking thread is 0 */
    pthread_t thread;
} helper;

struct rg_thread_pool {
    rg_allocator allocator;
    int32_t threads, started; /* helpers: threads - 1 wanted, `started` running */
    helper *helpers;
    share *shares; /* one per thread */
    bool spins; /* waiting threads spin before they sleep: not where they would steal a processor */

    pthread_mutex_t owner; /* held by the thread that uses the thread pool */
    _Alignas(64) _Atomic uint32_t generation;
    _Atomic bool stop;
    rg_cpu_function function;
    const void *args;
    int64_t units, grain;
    _Alignas(64) _Atomic int32_t inside;

    _Atomic int32_t sleepers;
    pthread_mutex_t lock; /* of `wake` */
    pthread_cond_t wake;
};

static _Thread_local int32_t thread_index; /* 0 in threads that are no helpers */

int32_t rg_thread_pool_index(void)
{
    return thread_index;
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
static void take_tiles(rg_thread_pool *thread_pool, int32_t number)
{
    for (int32_t k = 0; k < thread_pool->threads; k++) {
        share *from = &thread_pool->shares[(number + k) % thread_pool->threads];
        for (;;) {
            const int64_t tile = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
            if (tile >= from->end)
                break;
            const int64_t begin = tile * thread_pool->grain, rest = thread_pool->units - begin;
            thread_pool->function(thread_pool->args, begin,
                                  begin + (rest < thread_pool->grain ? rest : thread_pool->grain));
        }
    }
#if defined(__x86_64__)
    __builtin_ia32_sfence(); /* stores past the cache become visible before the job counts as done
                              */
#endif
}

/* Returns when `generation` is no longer `seen`, or the thread pool stops. */
static void await_generation(rg_thread_pool *thread_pool, uint32_t seen)
{
    enum { SPINS = 4000 }; /* some 50 to 100 microseconds: the gap between two kernels of a list */
    for (int i = 0; i < SPINS && thread_pool->spins; i++) {
        if (atomic_load(&thread_pool->generation) != seen || atomic_load(&thread_pool->stop))
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&thread_pool->lock);
    thread_pool->sleepers++;
    while (atomic_load(&thread_pool->generation) == seen && !atomic_load(&thread_pool->stop))
        pthread_cond_wait(&thread_pool->wake, &thread_pool->lock);
    thread_pool->sleepers--;
    pthread_mutex_unlock(&thread_pool->lock);
}

static void *helper_main(void *context)
{
    const helper *me = context;
    rg_thread_pool *thread_pool = me->thread_pool;
    uint32_t seen = 0;
    thread_index = me->number;
    while (!atomic_load(&thread_pool->stop)) {
        const uint32_t generation = atomic_load(&thread_pool->generation);
        if (generation == seen || generation % 2 == 0) {
            await_generation(thread_pool, generation);
            continue;
        }
        seen = generation;
        thread_pool->inside++;
        if (atomic_load(&thread_pool->generation) == generation)
            take_tiles(thread_pool, me->number);
        thread_pool->inside--;
    }
    return NULL;
}

static void wake_helpers(rg_thread_pool *thread_pool)
{
    if (atomic_load(&thread_pool->sleepers) == 0)
        return;
    pthread_mutex_lock(&thread_pool->lock);
    pthread_cond_broadcast(&thread_pool->wake);
    pthread_mutex_unlock(&thread_pool->lock);
}

void rg_thread_pool_run(rg_thread_pool *thread_pool, rg_cpu_function function, const void *args,
                        int64_t units, int64_t grain)
{
    const bool shared = thread_pool->threads > 1 && units > grain &&
                        pthread_mutex_trylock(&thread_pool->owner) == 0;
    if (!shared) {
        for (int64_t begin = 0; begin < units; begin += grain)
            function(args, begin, begin + (units - begin < grain ? units - begin : grain));
        rg_thread_pool_fence();
        return;
    }
    while (thread_pool->started <
           thread_pool->threads - 1) { /* fewer helpers than wished for will do */
        helper *next = &thread_pool->helpers[thread_pool->started];
        *next = (helper){ .thread_pool = thread_pool, .number = thread_pool->started + 1 };
        if (pthread_create(&next->thread, NULL, helper_main, next) != 0)
            break;
        thread_pool->started++;
    }
    thread_pool->function = function;
    thread_pool->args = args;
    thread_pool->units = units;
    thread_pool->grain = grain;
    const int64_t tiles = (units + grain - 1) / grain;
    for (int32_t i = 0; i < thread_pool->threads; i++) {
        atomic_store_explicit(&thread_pool->shares[i].next, tiles * i / thread_pool->threads,
                              memory_order_relaxed);
        thread_pool->shares[i].end = tiles * (i + 1) / thread_pool->threads;
    }
    thread_pool->generation++;
    wake_helpers(thread_pool);
    take_tiles(thread_pool, 0);
    thread_pool->generation++;
    for (int i = 0; atomic_load(&thread_pool->inside) != 0; i++) {
        if (i < 1000 && thread_pool->spins)
            pause_briefly();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&thread_pool->owner);
}

rg_status rg_thread_pool_create(const rg_allocator *allocator, int32_t threads,
                                rg_thread_pool **thread_pool)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_thread_pool), &memory));
    rg_thread_pool *made = memory;
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
    *thread_pool = made;
    return RG_OK;
}

void rg_thread_pool_destroy(rg_thread_pool *thread_pool)
{
    atomic_store(&thread_pool->stop, true);
    pthread_mutex_lock(&thread_pool->lock);
    pthread_cond_broadcast(&thread_pool->wake);
    pthread_mutex_unlock(&thread_pool->lock);
    for (int32_t i = 0; i < thread_pool->started; i++)
        pthread_join(thread_pool->helpers[i].thread, NULL);
    pthread_mutex_destroy(&thread_pool->owner);
    pthread_mutex_destroy(&thread_pool->lock);
    pthread_cond_destroy(&thread_pool->wake);
    const rg_allocator allocator = thread_pool->allocator;
    rg_release(&allocator, thread_pool->helpers, (size_t)thread_pool->threads * sizeof(helper));
    rg_release(&allocator, thread_pool->shares, (size_t)thread_pool->threads * sizeof(share));
    rg_release(&allocator, thread_pool, sizeof *thread_pool);
}

int32_t rg_thread_pool_threads(const rg_thread_pool *thread_pool)
{
    return thread_pool->threads;
}
