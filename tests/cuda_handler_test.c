/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Completion handlers on a GPU, what they may do, and many threads at once. */
#include "cuda_work.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- handlers ---- */

static void test_handlers(rig *r)
{
    notes seen = { 0 };
    mark marks[10];
    work w = work_make(r->device, 7);
    warm_up(&w, r->queue);
    for (int i = 0; i < 10; i++)
        marks[i] = (mark){ &seen, i };
    record(&w, r->commands);
    for (int i = 0; i < 3; i++)
        EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[i]));
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT(seen.calls == 3); /* before wait returns */
    rig_renew(r);
    EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[9])); /* dropped: never called */
    rig_renew(r);
    for (int i = 3; i < 6; i++) { /* three lists, and nobody waits */
        record(&w, r->commands);
        EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[i]));
        EXPECT_OK(rg_commands_commit(r->commands));
        rig_renew(r);
    }
    SECONDS(seen.calls == 6);
    EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[6])); /* a list without work */
    EXPECT_OK(rg_commands_commit(r->commands));
    SECONDS(rg_commands_get_state(r->commands) == RG_COMMANDS_COMPLETED);
    EXPECT(seen.calls == 7);
    for (int i = 0; i < 7; i++)
        EXPECT(seen.order[i] == i && seen.outcome[i] == RG_OK);
    rig_renew(r);
    work_free(&w);
}

/* ---- what a handler may do ---- */

typedef struct inner {
    rig *r;
    rg_commands *own, *next, *other;
    rg_status own_waited, next_waited, other_waited, committed;
    notes seen;
    mark last;
} inner;

static void wait_inside(void *context, rg_status outcome)
{
    inner *in = context;
    (void)outcome;
    in->own_waited = rg_commands_wait(in->own);
    in->committed = rg_commands_create(in->r->queue, &in->next); /* further work is welcome */
    if (in->committed == RG_OK)
        in->committed = rg_commands_on_completion(in->next, note, &in->last);
    if (in->committed == RG_OK)
        in->committed = rg_commands_commit(in->next);
    in->next_waited = rg_commands_wait(in->next); /* waiting for it here is not */
    in->other_waited = rg_commands_wait(in->other);
}

static void test_handler_that_waits(rig *r)
{
    inner in = { .r = r, .own = r->commands };
    in.last = (mark){ &in.seen, 9 };
    rg_queue *queue = NULL;
    EXPECT_OK(rg_queue_create(r->device, &queue));
    work w = work_make(r->device, 8), elsewhere = work_make(r->device, 9);
    warm_up(&elsewhere, queue);
    in.other = commands_of(queue);
    record(&elsewhere, in.other);
    EXPECT_OK(rg_commands_commit(in.other));
    record(&w, r->commands);
    EXPECT_OK(rg_commands_on_completion(r->commands, wait_inside, &in));
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT(in.own_waited == RG_INVALID_STATE && in.next_waited == RG_INVALID_STATE);
    EXPECT_OK(in.committed);
    EXPECT_OK(in.other_waited);
    EXPECT_OK(rg_commands_wait(in.next));
    EXPECT(in.seen.calls == 1 && in.seen.order[0] == 9);
    rg_commands_destroy(in.next);
    rg_commands_destroy(in.other);
    rg_queue_destroy(queue);
    rig_renew(r);
    work_free(&w);
    work_free(&elsewhere);
}

/* Each handler commits the next list. */
enum { LINKS = 64 };
typedef struct chain {
    rig *r;
    const work *w;
    rg_commands *commands[LINKS];
    _Atomic int links;
    _Atomic bool failed;
} chain;

static void add_link(void *context, rg_status outcome)
{
    chain *c = context;
    const int at = c->links;
    if (outcome != RG_OK)
        c->failed = true;
    c->links = at + 1; /* before the commit: the next handler may be quick */
    if (at >= LINKS || outcome != RG_OK)
        return;
    rg_commands **next = &c->commands[at];
    if (rg_commands_create(c->r->queue, next) != RG_OK ||
        rg_kernel_forward(c->w->kernel, *next, &c->w->x, &c->w->y, NULL) != RG_OK ||
        rg_commands_on_completion(*next, add_link, c) != RG_OK ||
        rg_commands_commit(*next) != RG_OK)
        c->failed = true;
}

static void test_chain(rig *r)
{
    work w = work_make(r->device, 10);
    EXPECT_OK(rg_tensor_write(w.x, w.in, SIZE, RG_LAYOUT_SAME));
    chain c = { .r = r, .w = &w };
    add_link(&c, RG_OK);
    SECONDS(c.links == LINKS + 1 || c.failed);
    EXPECT(!c.failed);
    for (int i = 0; i < LINKS; i++)
        rg_commands_destroy(c.commands[i]);
    EXPECT(is_done_well(&w));
    work_free(&w);
}

/* A handler gives back everything there is, while commit may not have returned yet. */
typedef struct everything {
    rig r;
    rg_commands *first, *second;
    work w;
    _Atomic bool done;
} everything;

static void drop_everything(void *context, rg_status outcome)
{
    everything *e = context;
    (void)outcome;
    rg_tensor_destroy(e->w.x);
    rg_tensor_destroy(e->w.y);
    rg_kernel_destroy(e->w.kernel);
    rg_commands_destroy(e->first);
    rg_commands_destroy(e->second);
    rig_close(&e->r);
    e->done = true;
}

static void ignore(void *context, rg_status outcome)
{
    (void)context;
    (void)outcome;
}

static void test_drop_inside(int rounds)
{
    block_count blocks = 0;
    const rg_allocator allocator = counted_allocator(&blocks);
    for (int i = 0; i < rounds; i++) {
        everything e = { .r = rig_open_named("cuda", &allocator) };
        e.w = work_make(e.r.device, 11);
        float *const in = e.w.in, *const out = e.w.out;
        e.second = commands_of(e.r.queue);
        if (i % 2 == 1) { /* the worker is under way already */
            e.first = commands_of(e.r.queue);
            record(&e.w, e.first);
            EXPECT_OK(rg_commands_on_completion(e.first, ignore, NULL));
            EXPECT_OK(rg_commands_commit(e.first));
        }
        record(&e.w, e.second);
        EXPECT_OK(rg_commands_on_completion(e.second, drop_everything, &e));
        EXPECT_OK(rg_commands_commit(e.second));
        SECONDS(e.done);
        SECONDS(blocks == 0);
        EXPECT_CUDA(cudaFreeHost(in));
        EXPECT_CUDA(cudaFreeHost(out));
    }
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 250, SMALL = 5 * 33 };

static _Atomic int wrong_in_threads; /* EXPECT counts without a lock */
#define WRONG_UNLESS(condition) atomic_fetch_add(&wrong_in_threads, !(condition))

typedef struct job {
    rg_device *device;
    rg_queue *queue;
    const rg_kernel *kernel;
    uint64_t seed;
} job;

static void mark_done(void *context, rg_status outcome)
{
    WRONG_UNLESS(outcome == RG_OK);
    *(_Atomic bool *)context = true;
}

static void *hammer(void *context)
{
    const job *j = context;
    for (int i = 0; i < ROUNDS; i++) {
        float in[SMALL], out[SMALL] = { 0 }, again[SMALL] = { 0 };
        _Atomic bool done = false;
        rg_commands *commands = NULL;
        rg_tensor *x = NULL, *y = NULL;
        const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(5, 33));
        draw_floats(in, SMALL, j->seed + (uint64_t)i);
        WRONG_UNLESS(rg_commands_create(j->queue, &commands) == RG_OK);
        WRONG_UNLESS(rg_tensor_create(j->device, &desc, &x) == RG_OK);
        WRONG_UNLESS(rg_commands_write(commands, x, in, sizeof in, RG_LAYOUT_SAME) == RG_OK);
        WRONG_UNLESS(rg_kernel_forward_alloc(j->kernel, commands, 1, &x, true, &y, NULL) == RG_OK);
        WRONG_UNLESS(rg_commands_read(commands, y, out, sizeof out, RG_LAYOUT_SAME) == RG_OK);
        if (i % 3 == 0)
            WRONG_UNLESS(rg_commands_on_completion(commands, mark_done, &done) == RG_OK);
        WRONG_UNLESS(rg_commands_commit(commands) == RG_OK);
        for (int k = 0; k < 10000 && i % 3 == 0 && !done; k++) /* the handler alone tells */
            usleep(100);
        if (i % 3 == 1)
            rg_commands_get_state(commands);
        WRONG_UNLESS(rg_commands_wait(commands) == RG_OK);
        WRONG_UNLESS(done == (i % 3 == 0));
        WRONG_UNLESS(is_softmax(in, out, 5, 33));
        WRONG_UNLESS(rg_tensor_read(x, again, sizeof again, RG_LAYOUT_SAME) == RG_OK);
        WRONG_UNLESS(memcmp(in, again, sizeof in) == 0);
        rg_tensor_destroy(y);
        rg_tensor_destroy(x);
        rg_commands_destroy(commands);
    }
    return NULL;
}

static void test_threads(void *(*body)(void *context), bool one_queue)
{
    rig r = rig_open_cuda();
    rg_kernel *kernel = softmax_of(r.device, RG_SOFTMAX_PLAIN, -1);
    job jobs[THREADS];
    pthread_t threads[THREADS];
    wrong_in_threads = 0;
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){ r.device, r.queue, kernel, ((uint64_t)i << 32) + (uint64_t)i };
        if (!one_queue)
            EXPECT_OK(rg_queue_create(r.device, &jobs[i].queue));
        EXPECT(pthread_create(&threads[i], NULL, body, &jobs[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
        if (!one_queue)
            rg_queue_destroy(jobs[i].queue);
    }
    EXPECT(wrong_in_threads == 0);
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

/* Launches of one kernel that want different amounts of shared memory, thread by thread. */
static void *launch_long(void *context)
{
    const job *j = context;
    const int64_t length = j->seed % 2 == 0 ? 16384 : 32768;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(2, length));
    rg_tensor *x = NULL;
    float *source = calloc((size_t)(2 * length), sizeof(float));
    WRONG_UNLESS(source != NULL && rg_tensor_create(j->device, &desc, &x) == RG_OK);
    WRONG_UNLESS(rg_tensor_write(x, source, (size_t)(2 * length) * sizeof(float), RG_LAYOUT_SAME) ==
                 RG_OK);
    for (int i = 0; i < ROUNDS; i++) {
        rg_commands *commands = NULL;
        WRONG_UNLESS(rg_commands_create(j->queue, &commands) == RG_OK);
        WRONG_UNLESS(rg_kernel_forward(j->kernel, commands, &x, &x, NULL) == RG_OK);
        WRONG_UNLESS(rg_commands_commit(commands) == RG_OK);
        WRONG_UNLESS(rg_commands_wait(commands) == RG_OK);
        rg_commands_destroy(commands);
    }
    rg_tensor_destroy(x);
    free(source);
    return NULL;
}

static void *wait_for(void *context)
{
    WRONG_UNLESS(rg_commands_wait(context) == RG_OK);
    WRONG_UNLESS(rg_commands_get_state(context) == RG_COMMANDS_COMPLETED);
    return NULL;
}

/* Several threads wait for the same commands, and one for those behind them. */
static void test_wait_together(rig *r)
{
    work w = work_make(r->device, 13);
    EXPECT_OK(rg_tensor_write(w.x, w.in, SIZE, RG_LAYOUT_SAME));
    wrong_in_threads = 0;
    for (int round = 0; round < 50; round++) {
        rg_commands *behind = commands_of(r->queue);
        pthread_t threads[THREADS];
        record(&w, r->commands);
        record(&w, behind);
        EXPECT_OK(rg_commands_commit(r->commands));
        EXPECT_OK(rg_commands_commit(behind));
        for (int i = 0; i < THREADS; i++) {
            void *what = i == 0 ? behind : r->commands;
            EXPECT(pthread_create(&threads[i], NULL, wait_for, what) == 0);
        }
        for (int i = 0; i < THREADS; i++)
            EXPECT(pthread_join(threads[i], NULL) == 0);
        rg_commands_destroy(behind);
        rig_renew(r);
    }
    EXPECT(wrong_in_threads == 0);
    EXPECT(is_done_well(&w));
    work_free(&w);
}

int main(void)
{
    if (!has_gpu())
        return skip(rg_error_text());
    rig r = rig_open_cuda();
    test_handlers(&r);
    test_handler_that_waits(&r);
    test_chain(&r);
    test_drop_inside(100);
    test_wait_together(&r);
    rig_close(&r);
    test_threads(hammer, false);
    test_threads(launch_long, false);
    test_threads(hammer, true);
    return rg_test_report();
}
