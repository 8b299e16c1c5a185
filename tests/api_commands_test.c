/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Commands on one thread: order, states, handlers, continuing, dropping work in flight. */
#include "api.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- handlers that keep a record ---- */

typedef struct record {
    _Atomic int calls;
    int order[16];
    rg_status outcome[16];
} record;

typedef struct mark {
    record *in;
    int number;
} mark;

static void note(void *context, rg_status outcome)
{
    const mark *m = context;
    const int at = m->in->calls;
    m->in->order[at] = m->number;
    m->in->outcome[at] = outcome;
    m->in->calls = at + 1;
}

/* ---- order ---- */

/* Each step reads what the one before wrote; a wrong order would show. */
static void test_order(rig *r)
{
    float first[4] = { 1, 2, 3, 4 }, got[3][4];
    const float second[4] = { 5, 6, 7, 8 };
    rg_tensor *t = tensor_of(r->device, RG_F32, 1, DIMS(4));
    EXPECT_OK(rg_commands_write(r->commands, t, first, sizeof first, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_read(r->commands, t, got[0], sizeof got[0], RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_commit(r->commands));
    rg_commands *later = NULL;
    EXPECT_OK(rg_commands_create(r->queue, &later));
    EXPECT_OK(rg_commands_write(later, t, second, sizeof second, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_read(later, t, got[1], sizeof got[1], RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_commit(later));
    EXPECT_OK(rg_commands_wait(later)); /* and so the earlier ones have run */
    EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_COMPLETED);
    EXPECT(memcmp(got[0], first, sizeof first) == 0 && memcmp(got[1], second, sizeof second) == 0);
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT_OK(rg_commands_wait(r->commands)); /* as often as one likes */
    rg_commands_destroy(later);
    rig_renew(r);

    rg_tensor *image = tensor_of(r->device, RG_U8, 3, DIMS(2, 1, 3)); /* (h, w, c) */
    const unsigned char planes[6] = { 1, 2, 3, 4, 5, 6 };             /* (c, h, w) */
    unsigned char back[6] = { 0 }, same[6] = { 0 };
    EXPECT_OK(rg_commands_write(r->commands, image, planes, 6, RG_LAYOUT_NCHW));
    EXPECT_OK(rg_commands_read(r->commands, image, back, 6, RG_LAYOUT_NCHW));
    EXPECT_OK(rg_commands_read(r->commands, image, same, 6, RG_LAYOUT_SAME));
    EXPECT(back[0] == 0); /* recording does no work */
    EXPECT_OK(rig_run(r));
    EXPECT(memcmp(back, planes, 6) == 0);
    EXPECT(memcmp(same, (const unsigned char[]){ 1, 3, 5, 2, 4, 6 }, 6) == 0);
    rg_tensor_destroy(t);
    rg_tensor_destroy(image);
}

static void test_states(rig *r)
{
    EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_RECORDING);
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_INVALID_STATE, "commit them first");
    EXPECT(strcmp(rg_commands_error_text(r->commands), "") == 0);
    EXPECT_OK(rg_commands_commit(r->commands)); /* nothing in it: allowed */
    EXPECT_FAILS(rg_commands_commit(r->commands), RG_INVALID_STATE,
                 "the commands are already committed");
    EXPECT_FAILS(rg_commands_commit_and_continue(r->commands), RG_INVALID_STATE, "committed");
    float value = 0;
    rg_tensor *t = filled(r->device, RG_F32, 1, DIMS(1), 1), *made = (rg_tensor *)1;
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, 0);
    EXPECT_FAILS(rg_commands_read(r->commands, t, &value, 4, RG_LAYOUT_SAME), RG_INVALID_STATE,
                 "the commands are already committed");
    EXPECT_FAILS(rg_commands_write(r->commands, t, &value, 4, RG_LAYOUT_SAME), RG_INVALID_STATE,
                 "the commands are already committed");
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &t, &t, NULL), RG_INVALID_STATE,
                 "the commands are already committed");
    EXPECT_FAILS(rg_commands_on_completion(r->commands, note, NULL), RG_INVALID_STATE, "committed");
    EXPECT_FAILS(rg_commands_set_results_hint(r->commands, RG_RESULTS_READ_SOON), RG_INVALID_STATE,
                 "committed");
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(1));
    EXPECT_FAILS(rg_tensor_create_temporary(r->commands, &desc, &made), RG_INVALID_STATE,
                 "committed");
    EXPECT(made == NULL);
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_COMPLETED);
    EXPECT(strcmp(rg_commands_error_text(r->commands), "") == 0);
    rig_renew(r);
    rg_tensor_destroy(t);
    rg_kernel_destroy(kernel);
}

static void test_bad_calls(rig *r)
{
    float value = 0;
    rg_tensor *t = filled(r->device, RG_F32, 1, DIMS(1), 1);
    EXPECT_FAILS(rg_commands_commit(NULL), RG_INVALID_ARGUMENT, "commands is NULL");
    EXPECT_FAILS(rg_commands_commit_and_continue(NULL), RG_INVALID_ARGUMENT, "commands is NULL");
    EXPECT_FAILS(rg_commands_wait(NULL), RG_INVALID_ARGUMENT, "commands is NULL");
    EXPECT_FAILS(rg_commands_on_completion(NULL, note, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_commands_on_completion(r->commands, NULL, NULL), RG_INVALID_ARGUMENT,
                 "handler");
    EXPECT_FAILS(rg_commands_read(NULL, t, &value, 4, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_commands_read(r->commands, NULL, &value, 4, RG_LAYOUT_SAME),
                 RG_INVALID_ARGUMENT, "tensor is NULL");
    EXPECT_FAILS(rg_commands_read(r->commands, t, NULL, 4, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "data is NULL");
    EXPECT_FAILS(rg_commands_read(r->commands, t, &value, 3, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "4 bytes");
    EXPECT_FAILS(rg_commands_read(r->commands, t, &value, 4, RG_LAYOUT_NCHW), RG_INVALID_ARGUMENT,
                 "rank 3 or 4");
    EXPECT_FAILS(rg_commands_write(r->commands, t, NULL, 4, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "data is NULL");
    EXPECT_FAILS(rg_commands_set_results_hint(r->commands, (rg_results_hint)3), RG_INVALID_ARGUMENT,
                 "hint 3");
    EXPECT_FAILS(rg_commands_set_results_hint(NULL, RG_RESULTS_BY_SIZE), RG_INVALID_ARGUMENT,
                 "NULL");
    EXPECT(rg_commands_get_state(NULL) == RG_COMMANDS_RECORDING);
    EXPECT(strcmp(rg_commands_error_text(NULL), "") == 0);
    rg_commands_destroy(NULL);
    rig other = rig_open(1);
    EXPECT_FAILS(rg_commands_read(other.commands, t, &value, 4, RG_LAYOUT_SAME),
                 RG_INVALID_ARGUMENT, "different devices");
    rig_close(&other);
    value = 7;
    EXPECT_OK(rig_run(r)); /* none of it was recorded */
    EXPECT(value == 7);
    rg_tensor_destroy(t);
}

/* ---- handlers ---- */

static void test_handlers(rig *r)
{
    record seen = { 0 };
    mark marks[5];
    for (int i = 0; i < 5; i++) {
        marks[i] = (mark){ &seen, i };
        EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[i]));
    }
    EXPECT(seen.calls == 0);
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT(seen.calls == 5);
    for (int i = 0; i < 5; i++)
        EXPECT(seen.order[i] == i && seen.outcome[i] == RG_OK);
    rig_renew(r);
    EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[0])); /* dropped: never called */
    rig_renew(r);

    EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[3]));
    EXPECT_OK(rg_commands_commit(r->commands)); /* nobody waits */
    SECONDS(seen.calls == 6);
    SECONDS(rg_commands_get_state(r->commands) == RG_COMMANDS_COMPLETED);
    rig_renew(r);
    EXPECT_OK(rg_commands_commit(r->commands)); /* no handler, nobody waits: asking is enough */
    SECONDS(rg_commands_get_state(r->commands) == RG_COMMANDS_COMPLETED);
    rig_renew(r);
}

typedef struct inner {
    rig *r;
    rg_commands *own, *next;
    rg_status waited, own_waited, committed;
    char sentence[128];
    record *seen;
    mark last;
} inner;

static void wait_inside(void *context, rg_status outcome)
{
    inner *in = context;
    (void)outcome;
    in->own_waited = rg_commands_wait(in->own);
    snprintf(in->sentence, sizeof in->sentence, "%s", rg_error_text());
    in->committed = rg_commands_create(in->r->queue, &in->next); /* further work is welcome */
    if (in->committed == RG_OK)
        in->committed = rg_commands_on_completion(in->next, note, &in->last);
    if (in->committed == RG_OK)
        in->committed = rg_commands_commit(in->next);
    in->waited = rg_commands_wait(in->next); /* waiting for it here is not */
}

static void test_handler_that_waits(rig *r)
{
    record seen = { 0 };
    inner in = { .r = r, .own = r->commands, .seen = &seen, .last = { &seen, 9 } };
    EXPECT_OK(rg_commands_on_completion(r->commands, wait_inside, &in));
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT(in.own_waited == RG_INVALID_STATE && in.waited == RG_INVALID_STATE);
    EXPECT(strstr(in.sentence, "own queue") != NULL);
    EXPECT_OK(in.committed);
    EXPECT_OK(rg_commands_wait(in.next));
    EXPECT(seen.calls == 1 && seen.order[0] == 9);
    rg_commands_destroy(in.next);
    rig_renew(r);
}

/* A handler may wait for another queue, and may give back its own commands. */
typedef struct elsewhere {
    rg_commands *other;
    rg_commands *own;
    rg_status waited;
    _Atomic bool done;
} elsewhere;

static void wait_elsewhere(void *context, rg_status outcome)
{
    elsewhere *e = context;
    (void)outcome;
    e->waited = rg_commands_wait(e->other);
    rg_commands_destroy(e->own);
    e->done = true;
}

static void test_handler_of_another_queue(rig *r)
{
    rg_queue *queue = NULL;
    elsewhere e = { .own = r->commands };
    EXPECT_OK(rg_queue_create(r->device, &queue));
    EXPECT_OK(rg_commands_create(queue, &e.other));
    EXPECT_OK(rg_commands_commit(e.other));
    EXPECT_OK(rg_commands_on_completion(r->commands, wait_elsewhere, &e));
    EXPECT_OK(rg_commands_commit(r->commands));
    SECONDS(e.done);
    EXPECT_OK(e.waited);
    rg_commands_destroy(e.other);
    rg_queue_destroy(queue);
    r->commands = NULL;
    rig_renew(r);
}

/* ---- commit and continue ---- */

static void test_continue(rig *r)
{
    record seen = { 0 };
    mark marks[2] = { { &seen, 1 }, { &seen, 2 } };
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(3));
    rg_tensor *kept = NULL;
    const float in[3] = { 1, 2, 3 };
    float out[3] = { 0 }, again[3] = { 0 };
    EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &kept));
    EXPECT_OK(rg_tensor_set_read_count(kept, 2));
    EXPECT_OK(rg_commands_write(r->commands, kept, in, sizeof in, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[0]));
    EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_RECORDING);
    SECONDS(seen.calls == 1); /* the earlier part is done, its handler fired */
    EXPECT(seen.order[0] == 1);
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_INVALID_STATE, "commit");
    EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[1]));
    EXPECT(rg_tensor_read_count(kept) == 2);
    EXPECT_OK(rg_commands_read(r->commands, kept, out, sizeof out, RG_LAYOUT_SAME));
    for (int i = 0; i < 50; i++) { /* others are made and used up meanwhile */
        rg_tensor *other = NULL;
        EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &other));
        static const float zero[3];
        EXPECT_OK(rg_commands_write(r->commands, other, zero, sizeof in, RG_LAYOUT_SAME));
        rg_tensor_destroy(other);
        EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    }
    EXPECT_OK(rg_commands_read(r->commands, kept, again, sizeof again, RG_LAYOUT_SAME));
    EXPECT(rg_tensor_read_count(kept) == 0);
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT(seen.calls == 2 && seen.order[1] == 2);
    EXPECT(memcmp(in, out, sizeof in) == 0 && memcmp(in, again, sizeof in) == 0);
    rg_tensor_destroy(kept);
    rig_renew(r);
}

/* ---- dropping ---- */

static void count_up(void *context)
{
    atomic_fetch_add((_Atomic int *)context, 1);
}

/* Everything is given back while the work is still to be done. It runs all the same. */
static void test_drop_all(int32_t threads)
{
    enum { COUNT = 256 * 1000 };
    float *data = calloc(2 * COUNT, sizeof *data);
    _Atomic int released = 0;
    for (int i = 0; i < 20; i++) {
        rig r = rig_open(threads);
        const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(256, 1000));
        rg_tensor *x = NULL, *y = NULL;
        released = 0;
        memset(data + COUNT, 0, COUNT * sizeof *data);
        EXPECT_OK(rg_tensor_wrap(r.device, &desc, data, count_up, &released, &x));
        EXPECT_OK(rg_tensor_wrap(r.device, &desc, data + COUNT, count_up, &released, &y));
        rg_kernel *kernel = softmax_of(r.device, RG_SOFTMAX_PLAIN, i % 2 ? -1 : 0);
        const int launches = i % 3 == 0 ? 1 : 5;
        for (int k = 0; k < launches; k++)
            EXPECT_OK(rg_kernel_forward(kernel, r.commands, &x, &y, NULL));
        EXPECT_OK(rg_commands_commit(r.commands));
        rg_kernel_destroy(kernel);
        rg_tensor_destroy(x);
        rg_tensor_destroy(y);
        rg_device_destroy(r.device);
        if (i % 4 < 2) {
            rg_queue_destroy(r.queue);
            rg_commands_destroy(r.commands);
        } else {
            rg_commands_destroy(r.commands);
            rg_queue_destroy(r.queue);
        }
        SECONDS(released == 2);
        EXPECT(data[COUNT] > 0 && data[2 * COUNT - 1] > 0);
    }
    free(data);
}

/* A handler gives back everything there is, while commit may not have returned yet. */
typedef struct everything {
    rig r;
    rg_commands *commands[3];
    _Atomic bool done;
} everything;

static void drop_everything(void *context, rg_status outcome)
{
    everything *e = context;
    (void)outcome;
    for (int i = 0; i < 3; i++)
        rg_commands_destroy(e->commands[i]);
    rig_close(&e->r);
    e->done = true;
}

static void ignore(void *context, rg_status outcome)
{
    (void)context;
    (void)outcome;
}

static void test_drop_inside(void)
{
    for (int round = 0; round < 100; round++) {
        everything e = { .r = rig_open(1) };
        for (int i = 0; i < 3; i++) {
            EXPECT_OK(rg_commands_create(e.r.queue, &e.commands[i]));
            EXPECT_OK(
                rg_commands_on_completion(e.commands[i], i < 2 ? ignore : drop_everything, &e));
        }
        for (int i = 0; i < 3; i++) /* the worker is under way when the last is committed */
            EXPECT_OK(rg_commands_commit(e.commands[i]));
        SECONDS(e.done);
    }
}

/* The hint changes no bits. */
static void test_hints(rig *r)
{
    rg_tensor *x = filled(r->device, RG_F32, 2, DIMS(64, 999), 3), *y[3];
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_LOG, -1);
    for (int i = 0; i < 3; i++) {
        y[i] = tensor_of(r->device, RG_F32, 2, DIMS(64, 999));
        EXPECT_OK(rg_commands_set_results_hint(r->commands, (rg_results_hint)i));
        EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y[i], NULL));
    }
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(y[0], y[1]) && same_bits(y[0], y[2]));
    for (int i = 0; i < 3; i++)
        rg_tensor_destroy(y[i]);
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    rig r = rig_open(2);
    test_order(&r);
    test_states(&r);
    test_bad_calls(&r);
    test_handlers(&r);
    test_handler_that_waits(&r);
    test_handler_of_another_queue(&r);
    test_continue(&r);
    test_hints(&r);
    rig_close(&r);
    test_drop_all(1);
    test_drop_all(3);
    test_drop_inside();
    return rg_test_report();
}
