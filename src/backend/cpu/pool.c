/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The thread pool.
 *
 * A job is open while `turn` is odd. A helper enters by counting itself in and then looking at
 * `turn` again: if the job closed meanwhile it leaves without touching it. The asking thread
 * closes the job when no tile is left, and returns when no helper is inside. */
#include "backend/cpu/pool.h"

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
    rg_pool *pool;
    int32_t number; /* the asking thread is 0 */
    pthread_t thread;
} helper;

struct rg_pool {
    rg_allocator allocator;
    int32_t threads, started; /* helpers: threads - 1 wanted, `started` running */
    helper *helpers;
    share *shares; /* one per thread */
    bool spins; /* waiting threads spin before they sleep: not where they would steal a processor */

    pthread_mutex_t owner; /* held by the thread that uses the pool */
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
static void take_tiles(rg_pool *pool, int32_t number)
{
    for (int32_t k = 0; k < pool->threads; k++) {
        share *from = &pool->shares[(number + k) % pool->threads];
        for (;;) {
            const int64_t tile = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
            if (tile >= from->end)
                break;
            const int64_t begin = tile * pool->grain, rest = pool->units - begin;
            pool->function(pool->args, begin, begin + (rest < pool->grain ? rest : pool->grain));
        }
    }
#if defined(__x86_64__)
    __builtin_ia32_sfence(); /* stores past the cache become visible before the job counts as done
                              */
#endif
}

/* Returns when `turn` is no longer `seen`, or the pool stops. */
static void await_turn(rg_pool *pool, uint32_t seen)
{
    enum { SPINS = 4000 }; /* some 50 to 100 microseconds: the gap between two kernels of a list */
    for (int i = 0; i < SPINS && pool->spins; i++) {
        if (atomic_load(&pool->turn) != seen || atomic_load(&pool->stop))
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->lock);
    pool->sleepers++;
    while (atomic_load(&pool->turn) == seen && !atomic_load(&pool->stop))
        pthread_cond_wait(&pool->wake, &pool->lock);
    pool->sleepers--;
    pthread_mutex_unlock(&pool->lock);
}

static void *helper_main(void *context)
{
    const helper *me = context;
    rg_pool *pool = me->pool;
    uint32_t seen = 0;
    while (!atomic_load(&pool->stop)) {
        const uint32_t turn = atomic_load(&pool->turn);
        if (turn == seen || turn % 2 == 0) {
            await_turn(pool, turn);
            continue;
        }
        seen = turn;
        pool->inside++;
        if (atomic_load(&pool->turn) == turn)
            take_tiles(pool, me->number);
        pool->inside--;
    }
    return NULL;
}

static void wake_helpers(rg_pool *pool)
{
    if (atomic_load(&pool->sleepers) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void rg_pool_run(rg_pool *pool, rg_cpu_function function, const void *args, int64_t units,
                 int64_t grain)
{
    const bool shared =
        pool->threads > 1 && units > grain && pthread_mutex_trylock(&pool->owner) == 0;
    if (!shared) {
        for (int64_t begin = 0; begin < units; begin += grain)
            function(args, begin, begin + (units - begin < grain ? units - begin : grain));
        rg_pool_fence();
        return;
    }
    while (pool->started < pool->threads - 1) { /* fewer helpers than wished for will do */
        helper *next = &pool->helpers[pool->started];
        *next = (helper){ .pool = pool, .number = pool->started + 1 };
        if (pthread_create(&next->thread, NULL, helper_main, next) != 0)
            break;
        pool->started++;
    }
    pool->function = function;
    pool->args = args;
    pool->units = units;
    pool->grain = grain;
    const int64_t tiles = (units + grain - 1) / grain;
    for (int32_t i = 0; i < pool->threads; i++) {
        atomic_store_explicit(&pool->shares[i].next, tiles * i / pool->threads,
                              memory_order_relaxed);
        pool->shares[i].end = tiles * (i + 1) / pool->threads;
    }
    pool->turn++;
    wake_helpers(pool);
    take_tiles(pool, 0);
    pool->turn++;
    for (int i = 0; atomic_load(&pool->inside) != 0; i++) {
        if (i < 1000 && pool->spins)
            pause_briefly();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&pool->owner);
}

rg_status rg_pool_create(const rg_allocator *allocator, int32_t threads, rg_pool **pool)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_pool), &memory));
    rg_pool *made = memory;
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
    *pool = made;
    return RG_OK;
}

void rg_pool_destroy(rg_pool *pool)
{
    atomic_store(&pool->stop, true);
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int32_t i = 0; i < pool->started; i++)
        pthread_join(pool->helpers[i].thread, NULL);
    pthread_mutex_destroy(&pool->owner);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->wake);
    const rg_allocator allocator = pool->allocator;
    rg_release(&allocator, pool->helpers, (size_t)pool->threads * sizeof(helper));
    rg_release(&allocator, pool->shares, (size_t)pool->threads * sizeof(share));
    rg_release(&allocator, pool, sizeof *pool);
}

int32_t rg_pool_threads(const rg_pool *pool)
{
    return pool->threads;
}
