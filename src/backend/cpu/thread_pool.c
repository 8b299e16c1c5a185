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

/* The tiles that one thread takes first, and how many of them are taken. */
typedef struct share {
    _Alignas(64) _Atomic int64_t taken;
    int64_t begin, end;
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
    rg_cpu_job job;
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

static void share_tiles(const rg_cpu_job *job, share *shares, int32_t count)
{
    const int64_t tiles = (job->units + job->grain - 1) / job->grain;
    for (int32_t i = 0; i < count; i++) {
        atomic_store_explicit(&shares[i].taken, 0, memory_order_relaxed);
        shares[i].begin = tiles * i / count;
        shares[i].end = tiles * (i + 1) / count;
    }
}

static void run_tile(const rg_cpu_job *job, int64_t tile)
{
    const int64_t begin = tile * job->grain, rest = job->units - begin;
    job->function(job->args, begin, begin + (rest < job->grain ? rest : job->grain));
}

/* First the share of its number, then what others have left. The shares are the same from call to
 * call, and so is the end at which a thread begins unless the job goes backwards, so that it finds
 * in its cache what it has read or written there before. */
static void take_tiles(const rg_cpu_job *job, share *shares, int32_t count, int32_t number)
{
    for (int32_t k = 0; k < count; k++) {
        share *from = &shares[(number + k) % count];
        for (;;) {
            const int64_t taken = atomic_fetch_add_explicit(&from->taken, 1, memory_order_relaxed);
            if (taken >= from->end - from->begin)
                break;
            run_tile(job, job->backwards ? from->end - 1 - taken : from->begin + taken);
        }
    }
    rg_thread_pool_fence(); /* streaming stores become visible before the job counts as done */
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
            take_tiles(&pool->job, pool->shares, pool->threads, me->number);
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

/* A job that the caller's threads share: each task takes the tiles of a share first. */
enum { MOST_SHARES = 64 };
typedef struct caller_job {
    const rg_cpu_job *job;
    int32_t share_count;
    share shares[MOST_SHARES];
} caller_job;

static void caller_task(void *data, int32_t index)
{
    caller_job *work = data;
    const uint64_t old = rg_arithmetic_plain();
    const int32_t outer = thread_index;
    thread_index = index;
    take_tiles(work->job, work->shares, work->share_count, index);
    thread_index = outer;
    rg_arithmetic_restore(old);
}

static void run_on_callers(const rg_thread_pool *pool, const rg_cpu_job *job)
{
    const int64_t tiles = (job->units + job->grain - 1) / job->grain;
    const int32_t tasks = tiles < pool->threads ? (int32_t)tiles : pool->threads;
    caller_job work = { .job = job, .share_count = tasks < MOST_SHARES ? tasks : MOST_SHARES };
    share_tiles(job, work.shares, work.share_count);
    pool->parallel.run(pool->parallel.context, tasks, caller_task, &work);
}

static void run_alone(const rg_cpu_job *job)
{
    share all;
    share_tiles(job, &all, 1);
    take_tiles(job, &all, 1, 0);
}

void rg_thread_pool_run(rg_thread_pool *pool, const rg_cpu_job *job)
{
    const bool several = pool->threads > 1 && job->units > job->grain;
    if (several && pool->parallel.run != NULL) {
        run_on_callers(pool, job);
        return;
    }
    if (!several || pthread_mutex_trylock(&pool->owner) != 0) {
        run_alone(job);
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
    pool->job = *job;
    share_tiles(job, pool->shares, pool->threads);
    pool->generation++;
    wake_threads(pool);
    take_tiles(&pool->job, pool->shares, pool->threads, 0);
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
