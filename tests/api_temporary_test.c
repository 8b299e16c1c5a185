/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Temporaries: the rule of read counts, views of temporaries, reuse of their storage. */
#include "any_device.h"

static rg_tensor *temporary_of(rg_commands *commands, int32_t rank, const int64_t dims[])
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, rank, dims);
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_tensor_create_temporary(commands, &desc, &tensor));
    return tensor;
}

/* ---- counts ---- */

/* Written three times, read once: 1 -> 0 at the read; a second read is refused. */
static void test_one_read(rig *r)
{
    rg_tensor *t = temporary_of(r->commands, 1, DIMS(4));
    float data[4] = { 1, 2, 3, 4 }, out[4] = { 0 }, unread[4] = { 9, 9, 9, 9 };
    EXPECT(rg_tensor_is_temporary(t) && rg_tensor_read_count(t) == 1);
    EXPECT(rg_tensor_data(t) == NULL && rg_tensor_bytes(t) == 0);
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(rg_commands_write(r->commands, t, data, sizeof data, RG_LAYOUT_SAME));
        EXPECT(rg_tensor_read_count(t) == 1);
    }
    EXPECT_OK(rg_commands_read(r->commands, t, out, sizeof out, RG_LAYOUT_SAME));
    EXPECT(rg_tensor_read_count(t) == 0);
    EXPECT_FAILS(rg_commands_read(r->commands, t, unread, sizeof unread, RG_LAYOUT_SAME),
                 RG_INVALID_STATE, "already released");
    EXPECT_FAILS(rg_commands_write(r->commands, t, data, sizeof data, RG_LAYOUT_SAME),
                 RG_INVALID_STATE, "already released");
    EXPECT_FAILS(rg_tensor_set_read_count(t, 1), RG_INVALID_STATE, "already released");
    rg_tensor *view = (rg_tensor *)1;
    EXPECT_FAILS(rg_tensor_reshape(t, 2, DIMS(2, 2), &view), RG_INVALID_STATE, "already released");
    EXPECT(view == NULL);
    EXPECT(rg_tensor_add_read_count(&t, 1, 5) == 1 && rg_tensor_read_count(t) == 0);
    EXPECT_OK(rig_run(r));
    EXPECT(memcmp(out, data, sizeof out) == 0 && unread[0] == 9);
    rg_tensor_destroy(t);
}

/* A batch [A, A, B]: two distinct ones, each counted once. */
static void test_batch_counts(rig *r)
{
    rg_tensor *a = temporary_of(r->commands, 1, DIMS(4)),
              *b = temporary_of(r->commands, 1, DIMS(4));
    rg_tensor *persistent = tensor_of(r->device, RG_F32, 1, DIMS(4));
    rg_tensor *const batch[] = { a, a, b };
    EXPECT(rg_tensor_add_read_count(batch, 3, 2) == 2);
    EXPECT(rg_tensor_read_count(a) == 3 && rg_tensor_read_count(b) == 3);
    EXPECT(rg_tensor_add_read_count(batch, 3, -1) == 2);
    EXPECT(rg_tensor_read_count(a) == 2 && rg_tensor_read_count(b) == 2);
    rg_tensor *const mixed[] = { persistent, a, NULL, persistent };
    EXPECT(rg_tensor_add_read_count(mixed, 4, 7) == 2);
    EXPECT(rg_tensor_read_count(a) == 9 && rg_tensor_read_count(persistent) == 0);
    EXPECT_FAILS(rg_tensor_set_read_count(persistent, 2), RG_INVALID_ARGUMENT, "not a temporary");
    EXPECT_FAILS(rg_tensor_set_read_count(NULL, 2), RG_INVALID_ARGUMENT, "NULL");
    EXPECT(rg_tensor_add_read_count(NULL, 0, 1) == 0);
    EXPECT_OK(rg_tensor_set_read_count(a, UINT64_MAX));
    EXPECT(rg_tensor_add_read_count(&a, 1, INT64_MAX) == 1);
    EXPECT(rg_tensor_read_count(a) == UINT64_MAX); /* held at the largest number */
    EXPECT(rg_tensor_add_read_count(&b, 1, INT64_MIN) == 1);
    EXPECT(rg_tensor_read_count(b) == 0); /* below 0 counts as 0 */
    EXPECT(rg_tensor_add_read_count(&a, 1, INT64_MIN) == 1);
    EXPECT(rg_tensor_read_count(a) == UINT64_MAX / 2);
    EXPECT_OK(rg_tensor_set_read_count(a, 0));
    EXPECT(rg_tensor_read_count(a) == 0);
    rg_tensor_destroy(a);
    rg_tensor_destroy(b);
    rg_tensor_destroy(persistent);
    rig_renew(r);
}

/* A view counts for itself; its parent falls by one when the view reaches 0. */
static void test_views(rig *r)
{
    rg_tensor *parent = temporary_of(r->commands, 2, DIMS(4, 4)), *view = NULL, *deep = NULL;
    float data[16], out[4] = { 0 }, column[4] = { 0 };
    for (int i = 0; i < 16; i++)
        data[i] = (float)i;
    EXPECT_OK(rg_commands_write(r->commands, parent, data, sizeof data, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_slice(parent, DIMS(1, 0), DIMS(1, 4), NULL, &view));
    EXPECT(rg_tensor_is_temporary(view) && rg_tensor_read_count(view) == 1);
    EXPECT(rg_tensor_data(view) == NULL);
    EXPECT_OK(rg_tensor_set_read_count(parent, 2));
    EXPECT_OK(rg_tensor_set_read_count(view, 2));
    EXPECT_OK(rg_commands_read(r->commands, view, out, sizeof out, RG_LAYOUT_SAME));
    EXPECT(rg_tensor_read_count(view) == 1 && rg_tensor_read_count(parent) == 2);
    EXPECT_OK(rg_commands_read(r->commands, view, out, sizeof out, RG_LAYOUT_SAME));
    EXPECT(rg_tensor_read_count(view) == 0 && rg_tensor_read_count(parent) == 1);
    EXPECT_FAILS(rg_commands_read(r->commands, view, out, sizeof out, RG_LAYOUT_SAME),
                 RG_INVALID_STATE, "already released");
    rg_tensor_destroy(view);
    EXPECT_OK(rg_tensor_permute(parent, (const int32_t[]){ 1, 0 }, &view));
    EXPECT_OK(rg_tensor_slice(view, DIMS(2, 0), DIMS(1, 4), NULL, &deep));
    rg_tensor_destroy(parent); /* the views keep it */
    EXPECT_OK(rg_commands_read(r->commands, deep, column, sizeof column, RG_LAYOUT_SAME));
    EXPECT(rg_tensor_read_count(deep) == 0 && rg_tensor_read_count(view) == 0);
    EXPECT_OK(rig_run(r));
    EXPECT(out[0] == 4 && out[3] == 7 && column[0] == 2 && column[3] == 14);
    rg_tensor_destroy(deep);
    rg_tensor_destroy(view);

    parent = temporary_of(r->commands, 2, DIMS(4, 4)); /* used up: so are its views */
    EXPECT_OK(rg_tensor_slice(parent, DIMS(1, 0), DIMS(1, 4), NULL, &view));
    EXPECT_OK(rg_commands_read(r->commands, parent, data, sizeof data, RG_LAYOUT_SAME));
    EXPECT(rg_tensor_read_count(parent) == 0 && rg_tensor_read_count(view) == 1);
    EXPECT_FAILS(rg_commands_read(r->commands, view, out, sizeof out, RG_LAYOUT_SAME),
                 RG_INVALID_STATE, "already released");
    EXPECT_FAILS(rg_commands_write(r->commands, view, out, sizeof out, RG_LAYOUT_SAME),
                 RG_INVALID_STATE, "already released");
    rg_tensor_destroy(view);
    rg_tensor_destroy(parent);
    rig_renew(r);
}

/* However often a call is given the same temporary, it is one read; a write is none. */
static void test_kernel_counts(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = filled(r->device, RG_F32, 2, DIMS(3, 5), 1);
    rg_tensor *y = temporary_of(r->commands, 2, DIMS(3, 5)),
              *z = temporary_of(r->commands, 2, DIMS(3, 5));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
    EXPECT(rg_tensor_read_count(y) == 1);
    EXPECT_OK(rg_tensor_set_read_count(y, 3));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &y, NULL, &y, NULL, &z, 0)); /* dy is y */
    EXPECT(rg_tensor_read_count(y) == 2 && rg_tensor_read_count(z) == 1);
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &x, &y, &y, NULL, &y, 0)); /* x, y and dx */
    EXPECT(rg_tensor_read_count(y) == 1);
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &x, NULL, &x, NULL, &y, 1)); /* adds into */
    EXPECT(rg_tensor_read_count(y) == 1);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &y, &z, NULL));
    EXPECT(rg_tensor_read_count(y) == 0 && rg_tensor_read_count(z) == 1);
    EXPECT_OK(rig_run(r));
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(z);
    rg_kernel_destroy(kernel);
}

/* ---- what is refused changes nothing ---- */

static void test_refused(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = temporary_of(r->commands, 2, DIMS(3, 5));
    rg_tensor *wrong = tensor_of(r->device, RG_F32, 2, DIMS(3, 4)), *made = (rg_tensor *)1;
    float data[15], out[15] = { 0 };
    for (int i = 0; i < 15; i++)
        data[i] = (float)i;
    EXPECT_OK(rg_commands_write(r->commands, x, data, sizeof data, RG_LAYOUT_SAME));
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &x, &wrong, NULL), RG_INVALID_ARGUMENT,
                 "y is");
    rg_tensor *const two_x[] = { x, NULL }, *const two_y[] = { x, wrong };
    EXPECT_FAILS(rg_kernel_forward_batch(kernel, r->commands, 2, two_x, two_y, NULL),
                 RG_INVALID_ARGUMENT, "image 1");
    EXPECT_FAILS(rg_commands_read(r->commands, x, data, 3, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "60 bytes");
    EXPECT_FAILS(rg_tensor_read(x, out, sizeof out, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "record the copy");
    EXPECT_FAILS(rg_tensor_write(x, out, sizeof out, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "record the copy");
    EXPECT_FAILS(
        rg_kernel_gradient_alloc(kernel, r->commands, 1, &wrong, NULL, &x, NULL, 1, true, &made),
        RG_INVALID_ARGUMENT, "dy is");
    EXPECT(made == NULL);
    EXPECT(rg_tensor_read_count(x) == 1);
    EXPECT_OK(rg_commands_read(r->commands, x, out, sizeof out, RG_LAYOUT_SAME));
    EXPECT_OK(rig_run(r));
    EXPECT(memcmp(out, data, sizeof out) == 0);
    rg_tensor_destroy(x);
    rg_tensor_destroy(wrong);
    rg_kernel_destroy(kernel);

    rg_tensor *bad = (rg_tensor *)1;
    const rg_tensor_desc negative = rg_tensor_desc_dense(RG_F32, 1, DIMS(-1));
    EXPECT_FAILS(rg_tensor_create_temporary(r->commands, &negative, &bad), RG_INVALID_ARGUMENT,
                 "-1");
    EXPECT(bad == NULL);
    EXPECT_FAILS(rg_tensor_create_temporary(r->commands, NULL, &bad), RG_INVALID_ARGUMENT, "desc");
    EXPECT_FAILS(rg_tensor_create_temporary(NULL, &negative, &bad), RG_INVALID_ARGUMENT,
                 "commands");
    EXPECT_FAILS(rg_tensor_create_temporary(r->commands, &negative, NULL), RG_INVALID_ARGUMENT,
                 "tensor is NULL");
}

/* Also of commands that are gone, whose memory new ones may have. */
static void test_other_commands(rig *r)
{
    float data[4] = { 0 };
    rg_commands *other = NULL;
    EXPECT_OK(rg_commands_create(r->queue, &other));
    rg_tensor *t = temporary_of(other, 1, DIMS(4));
    EXPECT_FAILS(rg_commands_write(r->commands, t, data, sizeof data, RG_LAYOUT_SAME),
                 RG_INVALID_ARGUMENT, "other commands");
    EXPECT(rg_tensor_read_count(t) == 1);
    for (int i = 0; i < 10; i++) {
        rg_commands_destroy(other);
        EXPECT_OK(rg_commands_create(r->queue, &other));
        EXPECT_FAILS(rg_commands_write(other, t, data, sizeof data, RG_LAYOUT_SAME),
                     RG_INVALID_ARGUMENT, "other commands");
        EXPECT_FAILS(rg_commands_read(other, t, data, sizeof data, RG_LAYOUT_SAME),
                     RG_INVALID_ARGUMENT, "other commands");
    }
    EXPECT_OK(rg_commands_commit(other));
    EXPECT_OK(rg_commands_wait(other));
    rg_commands_destroy(other);
    EXPECT_OK(rg_tensor_set_read_count(t, 0)); /* harmless */
    rg_tensor_destroy(t);
}

/* ---- storage serves again ---- */

enum { CHAIN = 200, WIDTH = 64 };

/* A chain with several temporaries alive at a time, of changing sizes, against tensors of their
 * own. What is freed is overwritten by the next ones. */
static void run_chain(rig *r, bool temporary, uint64_t seed, rg_tensor *result)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_LOG, -1);
    rg_tensor *alive[4] = { NULL };
    int64_t rows[4];
    for (int i = 0; i < 4; i++) {
        rows[i] = 1 + i;
        rg_tensor *x = filled(r->device, RG_F32, 2, DIMS(rows[i], WIDTH), seed + (uint64_t)i);
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, temporary, &alive[i], NULL));
        rg_tensor_destroy(x);
    }
    uint64_t order = 77;
    for (int i = 0; i < CHAIN; i++) {
        const int from = (int)draw_from(&order, 0, 3), to = (int)draw_from(&order, 0, 3);
        rg_tensor *next = NULL, *wide = NULL;
        if (temporary)
            EXPECT_OK(rg_tensor_set_read_count(alive[from], 2));
        if (i % 5 == 0 && from != to) { /* a result of another size, from the first row */
            rg_tensor *row = NULL;
            rows[to] = draw_from(&order, 1, 9);
            EXPECT_OK(rg_tensor_slice(alive[from], DIMS(0, 0), DIMS(1, WIDTH), NULL, &row));
            EXPECT_OK(rg_tensor_expand(row, 2, DIMS(rows[to], WIDTH), &wide));
            rg_tensor_destroy(row);
            EXPECT_OK(
                rg_kernel_forward_alloc(kernel, r->commands, 1, &wide, temporary, &next, NULL));
        } else {
            rows[to] = rows[from];
            EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &alive[from], NULL,
                                               &alive[from], NULL, 1, temporary, &next));
        }
        rg_tensor_destroy(wide);
        rg_tensor_destroy(alive[to]);
        alive[to] = next;
    }
    for (int i = 0; i < 4; i++) {
        rg_tensor *row = NULL, *part = NULL;
        if (temporary && i > 0)
            rg_tensor_add_read_count(&alive[i], 1, 1);
        EXPECT_OK(rg_tensor_slice(alive[i], DIMS(0, 0), DIMS(1, WIDTH), NULL, &row));
        EXPECT_OK(rg_tensor_slice(result, DIMS(i, 0), DIMS(1, WIDTH), NULL, &part));
        EXPECT_OK(rg_kernel_forward(kernel, r->commands, &row, &part, NULL));
        rg_tensor_destroy(row);
        rg_tensor_destroy(part);
        rg_tensor_destroy(alive[i]);
    }
    EXPECT_OK(rig_run(r));
    rg_kernel_destroy(kernel);
}

static void test_reuse(rig *r)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        rg_tensor *plain = tensor_of(r->device, RG_F32, 2, DIMS(4, WIDTH));
        rg_tensor *reused = tensor_of(r->device, RG_F32, 2, DIMS(4, WIDTH));
        run_chain(r, false, seed, plain);
        run_chain(r, true, seed, reused);
        EXPECT(same_bits(plain, reused));
        rg_tensor_destroy(plain);
        rg_tensor_destroy(reused);
    }
}

/* ---- no room ---- */

static void *small_allocate(void *context, size_t size, size_t alignment)
{
    const size_t *most = context;
    void *pointer = NULL;
    return size <= *most && posix_memalign(&pointer, alignment, size) == 0 ? pointer : NULL;
}

static void small_release(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)size;
    free(pointer);
}

/* Peak of the heap, not the sum, decides; out of memory at commit leaves the commands as they were.
 */
static void test_out_of_memory(void)
{
    size_t most = 1 << 20;
    const rg_allocator allocator = { small_allocate, small_release, &most };
    rg_device_options options = rg_device_options_default();
    options.allocator = &allocator;
    rig r = { 0 };
    EXPECT_OK(rg_device_create("cpu", &options, &r.device));
    EXPECT_OK(rg_queue_create(r.device, &r.queue));
    EXPECT_OK(rg_commands_create(r.queue, &r.commands));
    const float data[4] = { 1, 2, 3, 4 };
    float out[4] = { 0 };
    for (int i = 0; i < 100; i++) { /* each of 400 kB, one after the other */
        rg_tensor *t = temporary_of(r.commands, 1, DIMS(100000));
        EXPECT_OK(rg_tensor_set_read_count(t, 0));
        rg_tensor_destroy(t);
    }
    rg_tensor *small = temporary_of(r.commands, 1, DIMS(4));
    EXPECT_OK(rg_commands_write(r.commands, small, data, sizeof data, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_read(r.commands, small, out, sizeof out, RG_LAYOUT_SAME));
    most = 300000;
    for (int i = 0; i < 3; i++) {
        EXPECT_FAILS(rg_commands_commit(r.commands), RG_OUT_OF_MEMORY, "out of memory");
        EXPECT_FAILS(rg_commands_commit_and_continue(r.commands), RG_OUT_OF_MEMORY, "memory");
        EXPECT(rg_commands_get_state(r.commands) == RG_COMMANDS_RECORDING);
    }
    EXPECT(out[0] == 0);
    most = 1 << 20;
    EXPECT_OK(rig_run(&r));
    EXPECT(memcmp(out, data, sizeof out) == 0);
    rg_tensor_destroy(small);

    /* A refused call does not raise what commit asks for. */
    rg_kernel *kernel = softmax_of(r.device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = tensor_of(r.device, RG_F32, 1, DIMS(200000)), *y[2] = { x, x };
    rg_tensor *const images[] = { x, NULL };
    EXPECT_FAILS(rg_kernel_forward_alloc(kernel, r.commands, 2, images, true, y, NULL),
                 RG_INVALID_ARGUMENT, "x is NULL");
    EXPECT(y[0] == NULL && y[1] == NULL);
    most = 300000;
    EXPECT_OK(rig_run(&r));
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

int main(void)
{
    test_out_of_memory();
    RUN_ON_DEVICES(test_one_read, test_batch_counts, test_views, test_kernel_counts, test_refused,
                   test_other_commands, test_reuse);
    return rg_test_report();
}
