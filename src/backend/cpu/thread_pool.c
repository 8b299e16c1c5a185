/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The thread pool: threads that share the tiles of a kernel.
 *
 * A job is open while `generation` is odd. A pool thread enters by counting itself in and then
 * looking at `generation` again: if the job closed meanwhile it leaves without touching it. The
 * calling thread closes the job when no tile is left, and returns when no pool thread is inside. */
#include "backend/cpu/thread_pool.h"
#include "backend/cpu/arithmetic_mode.h"

#include "core/thread.h"

#include <sched.h>
#include <stdatomic.h>

/* The tiles that one thread takes first. */
typedef struct share {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} share;

/* What a pool thread starts with. */
typedef struct pool_thread {
    rg_thread_pool *pool;
    int32_t number; /* the calling thread is 0 */
    pthread_t thread;
} pool_thread;

struct rg_thread_pool {
    rg_allocator allocator;
    rg_parallel parallel;     /* run: NULL where the pool has threads of its own */
    int32_t threads, started; /* threads - 1 are wanted, `started` running */
    pool_thread *list;
    share *shares; /* one per thread */
    bool spins;    /* waiting threads spin before they sleep; off when there are more threads than
                      processors */

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

static _Thread_local int32_t thread_index; /* 0 in threads that are not of a pool */

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
static void take_tiles(rg_thread_pool *pool, int32_t number)
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
    /* Streaming stores become visible before the job counts as done. */
    __builtin_ia32_sfence();
#endif
}

/* Returns when `generation` is no longer `seen`, or the thread pool stops. */
static void await_generation(rg_thread_pool *pool, uint32_t seen)
{
    enum {
        SPINS = 4000
    }; /* some 50 to 100 microseconds: the gap between two kernels of a submission */
    for (int i = 0; i < SPINS && pool->spins; i++) {
        if (atomic_load(&pool->generation) != seen || atomic_load(&pool->stop))
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->lock);
    pool->sleepers++;
    while (atomic_load(&pool->generation) == seen && !atomic_load(&pool->stop))
        pthread_cond_wait(&pool->wake, &pool->lock);
    pool->sleepers--;
    pthread_mutex_unlock(&pool->lock);
}

static void *thread_main(void *context)
{
    const pool_thread *me = context;
    rg_thread_pool *pool = me->pool;
    uint32_t seen = 0;
    thread_index = me->number;
    while (!atomic_load(&pool->stop)) {
        const uint32_t generation = atomic_load(&pool->generation);
        if (generation == seen || generation % 2 == 0) {
            await_generation(pool, generation);
            continue;
        }
        seen = generation;
        pool->inside++;
        if (atomic_load(&pool->generation) == generation)
            take_tiles(pool, me->number);
        pool->inside--;
    }
    return NULL;
}

static void wake_threads(rg_thread_pool *pool)
{
    if (atomic_load(&pool->sleepers) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

/* ---- threads of the caller ---- */

/* A job that the caller's threads share. Each task takes the tiles of a share, the same ones from
 * call to call, then what others have left. */
enum { MOST_SHARES = 64 };
typedef struct caller_job {
    rg_cpu_function function;
    const void *args;
    int64_t units, grain;
    int32_t share_count;
    share shares[MOST_SHARES];
} caller_job;

static void caller_task(void *data, int32_t index)
{
    caller_job *job = data;
    const uint64_t old = rg_arithmetic_plain();
    const int32_t outer = thread_index;
    thread_index = index;
    for (int32_t k = 0; k < job->share_count; k++) {
        share *from = &job->shares[(index + k) % job->share_count];
        for (;;) {
            const int64_t tile = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
            if (tile >= from->end)
                break;
            const int64_t begin = tile * job->grain, rest = job->units - begin;
            job->function(job->args, begin, begin + (rest < job->grain ? rest : job->grain));
        }
    }
    rg_thread_pool_fence();
    thread_index = outer;
    rg_arithmetic_restore(old);
}

static void run_on_callers(const rg_thread_pool *pool, rg_cpu_function function, const void *args,
                           int64_t units, int64_t grain)
{
    const int64_t tiles = (units + grain - 1) / grain;
    const int32_t tasks = tiles < pool->threads ? (int32_t)tiles : pool->threads;
    caller_job job;
    job.function = function;
    job.args = args;
    job.units = units;
    job.grain = grain;
    job.share_count = tasks < MOST_SHARES ? tasks : MOST_SHARES;
    for (int32_t i = 0; i < job.share_count; i++) {
        atomic_init(&job.shares[i].next, tiles * i / job.share_count);
        job.shares[i].end = tiles * (i + 1) / job.share_count;
    }
    pool->parallel.run(pool->parallel.context, tasks, caller_task, &job);
}

void rg_thread_pool_run(rg_thread_pool *pool, rg_cpu_function function, const void *args,
                        int64_t units, int64_t grain)
{
    if (pool->parallel.run != NULL && pool->threads > 1 && units > grain) {
        run_on_callers(pool, function, args, units, grain);
        return;
    }
    const bool shared =
        pool->threads > 1 && units > grain && pthread_mutex_trylock(&pool->owner) == 0;
    if (!shared) {
        for (int64_t begin = 0; begin < units; begin += grain)
            function(args, begin, begin + (units - begin < grain ? units - begin : grain));
        rg_thread_pool_fence();
        return;
    }
    /* Fewer threads than wanted suffice. */
    while (pool->started < pool->threads - 1) {
        pool_thread *next = &pool->list[pool->started];
        *next = (pool_thread){ .pool = pool, .number = pool->started + 1 };
        if (!rg_thread_start(&next->thread, thread_main, next))
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
    pool->generation++;
    wake_threads(pool);
    take_tiles(pool, 0);
    pool->generation++;
    for (int i = 0; atomic_load(&pool->inside) != 0; i++) {
        if (i < 1000 && pool->spins)
            pause_briefly();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&pool->owner);
}

rg_status rg_thread_pool_create(const rg_allocator *allocator, int32_t threads,
                                const rg_parallel *parallel, rg_thread_pool **pool)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_thread_pool), &memory));
    rg_thread_pool *made = memory;
    made->allocator = *allocator;
    made->threads = threads;
    if (parallel != NULL)
        made->parallel = *parallel;
    rg_status status =
        rg_allocate(allocator, (size_t)threads * sizeof(pool_thread), (void **)&made->list);
    if (status == RG_OK)
        status = rg_allocate(allocator, (size_t)threads * sizeof(share), (void **)&made->shares);
    if (status != RG_OK) {
        rg_release(allocator, made->list, (size_t)threads * sizeof(pool_thread));
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

void rg_thread_pool_destroy(rg_thread_pool *pool)
{
    atomic_store(&pool->stop, true);
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int32_t i = 0; i < pool->started; i++)
        pthread_join(pool->list[i].thread, NULL);
    pthread_mutex_destroy(&pool->owner);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->wake);
    const rg_allocator allocator = pool->allocator;
    rg_release(&allocator, pool->list, (size_t)pool->threads * sizeof(pool_thread));
    rg_release(&allocator, pool->shares, (size_t)pool->threads * sizeof(share));
    rg_release(&allocator, pool, sizeof *pool);
}

int32_t rg_thread_pool_threads(const rg_thread_pool *pool)
{
    return pool->threads;
}
