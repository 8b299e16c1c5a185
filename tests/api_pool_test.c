/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling: indices as in ONNX, and inputs of gradients that broke other systems. */
#include "any_device.h"

#include <limits.h>

static rg_pool_desc desc_of(rg_pool_kind kind, int32_t window, int32_t stride)
{
    rg_pool_desc desc = rg_pool_desc_default();
    desc.kind = kind;
    desc.edge = RG_POOL_CLAMP;
    desc.window[0] = desc.window[1] = window;
    desc.stride[0] = desc.stride[1] = stride;
    return desc;
}

static rg_kernel *pool_of(rg_device *device, rg_pool_desc desc)
{
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_pool_create(device, &desc, &kernel));
    return kernel;
}

static rg_kernel *indexed_pool(rg_device *device, int32_t window, int32_t stride)
{
    rg_pool_desc desc = desc_of(RG_POOL_MAX, window, stride);
    desc.indices = true;
    return pool_of(device, desc);
}

static void destroy_all(rg_tensor *const tensors[], int count)
{
    for (int i = 0; i < count; i++)
        rg_tensor_destroy(tensors[i]);
}

#define DESTROY(...)                                 \
    destroy_all((rg_tensor *const[]){ __VA_ARGS__ }, \
                (int)(sizeof((rg_tensor *const[]){ __VA_ARGS__ }) / sizeof(rg_tensor *)))

/* ---- indices ---- */

static rg_tensor *indices_of(rg_device *device, int32_t rank, const int64_t dims[],
                             const int64_t values[])
{
    rg_tensor *tensor = tensor_of(device, RG_I64, rank, dims);
    EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    return tensor;
}

static bool indices_are(const rg_tensor *tensor, const int64_t want[])
{
    char *data = elements_of(tensor);
    const bool same = memcmp(data, want, bytes_of(tensor)) == 0;
    free(data);
    return same;
}

/* Two images of 2 by 4 pixels and 2 channels: positions in (n, c, h, w), and in (n, c, w, h). */
static void test_order(rig *r)
{
    static const float largest_at[2][2][2] = { { { 0, 3 }, { 5, 6 } }, { { 4, 2 }, { 1, 7 } } };
    float values[2 * 8 * 2] = { 0 };
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 2; c++)
            for (int j = 0; j < 2; j++)
                values[(n * 8 + (int)largest_at[n][c][j]) * 2 + c] = 1;
    rg_tensor *x = tensor_of(r->device, RG_F32, 4, DIMS(2, 2, 4, 2));
    EXPECT_OK(rg_tensor_write(x, values, sizeof values, RG_LAYOUT_SAME));
    /* (n, j, c) */
    static const int64_t by_rows[] = { 0, 8 + 5, 3, 8 + 6, 16 + 4, 24 + 1, 16 + 2, 24 + 7 };
    static const int64_t by_columns[] = { 0, 8 + 3, 6, 8 + 5, 16 + 1, 24 + 2, 16 + 4, 24 + 7 };
    for (int32_t order = 0; order < 2; order++) {
        rg_pool_desc desc = desc_of(RG_POOL_MAX, 2, 2);
        desc.indices = true;
        desc.storage_order = order;
        rg_kernel *kernel = pool_of(r->device, desc);
        EXPECT(rg_kernel_outputs(kernel) == 2);
        rg_tensor *y[2], *dx = tensor_of(r->device, RG_F32, 4, DIMS(2, 2, 4, 2));
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, y, NULL));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, y, NULL, y, NULL, &dx, 0));
        EXPECT_OK(rig_run(r));
        EXPECT(indices_are(y[1], order == 0 ? by_rows : by_columns));
        EXPECT(same_bits(dx, x)); /* each maximum is 1, and so is its dy */
        DESTROY(y[0], y[1], dx);
        rg_kernel_destroy(kernel);
    }
    rg_tensor_destroy(x);
}

/* ONNX Runtime's test: 4 by 4 pixels, dy 1 to 4. */
static rg_status gradient_of_indices(rig *r, rg_kernel *kernel, const int64_t indices[4],
                                     rg_tensor *dx)
{
    static const float ones[4] = { 1, 2, 3, 4 };
    rg_tensor *dy = tensor_of(r->device, RG_F32, 4, DIMS(1, 2, 2, 1));
    EXPECT_OK(rg_tensor_write(dy, ones, sizeof ones, RG_LAYOUT_SAME));
    rg_tensor *y[2] = { NULL, indices_of(r->device, 4, DIMS(1, 2, 2, 1), indices) };
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, y, NULL, &dx, 0));
    const rg_status status = rig_run(r);
    DESTROY(dy, y[1]);
    return status;
}

static void test_given_indices(rig *r)
{
    rg_kernel *kernel = indexed_pool(r->device, 2, 2);
    rg_tensor *dx = filled(r->device, RG_F32, 4, DIMS(1, 4, 4, 1), 1);
    EXPECT_OK(gradient_of_indices(r, kernel, (const int64_t[]){ 0, 2, 8, 10 }, dx));
    float want[16] = { [0] = 1, [2] = 2, [8] = 3, [10] = 4 };
    char *data = elements_of(dx);
    EXPECT(memcmp(data, want, sizeof want) == 0);
    free(data);
    static const int64_t bad[] = { 16,        1000,      -1,        -2, INT64_MIN,
                                   INT64_MAX, 1u << 31u, 1ll << 32, 5,  1 };
    rg_tensor *before = filled(r->device, RG_F32, 4, DIMS(1, 4, 4, 1), 2);
    fill(dx, 2);
    for (int i = 0; i < 10; i++) { /* 5 and 1 are pixels, but of other windows */
        const int64_t indices[] = { 0, 2, 8, bad[i] };
        EXPECT_FAILS(gradient_of_indices(r, kernel, indices, dx), RG_KERNEL_FAULT,
                     "pool: an element of indices is out of range");
        if (is_cpu(r)) /* what follows is skipped there; a GPU has queued it by then: undefined */
            EXPECT(same_bits(dx, before));
    }
    DESTROY(dx, before);
    rg_kernel_destroy(kernel);
}

/* With edge zero a virtual 0 can win, and its index is -1; elsewhere it cannot. */
static void test_nobody(rig *r)
{
    rg_pool_desc desc = desc_of(RG_POOL_MAX, 2, 2);
    desc.indices = true;
    desc.edge = RG_POOL_ZERO;
    desc.padding.top = desc.padding.left = 1;
    desc.padding.bottom = desc.padding.right = -1;
    rg_kernel *kernel = pool_of(r->device, desc);
    rg_tensor *dx = filled(r->device, RG_F32, 4, DIMS(1, 4, 4, 1), 1);
    EXPECT_OK(gradient_of_indices(r, kernel, (const int64_t[]){ -1, -1, -1, 10 }, dx));
    EXPECT_FAILS(gradient_of_indices(r, kernel, (const int64_t[]){ -1, -1, -1, -1 }, dx),
                 RG_KERNEL_FAULT, "pool: an element of indices");
    rg_tensor_destroy(dx);
    rg_kernel_destroy(kernel);
}

/* An index that is right for another image, or for another channel. */
static void test_other_planes(rig *r)
{
    rg_kernel *kernel = indexed_pool(r->device, 2, 2);
    rg_tensor *dy = filled(r->device, RG_BF16, 4, DIMS(2, 1, 1, 2), 1);
    rg_tensor *dx = tensor_of(r->device, RG_BF16, 4, DIMS(2, 2, 2, 2));
    static const int64_t good[4] = { 0, 4 + 1, 8 + 2, 12 + 3 };
    for (int wrong = -1; wrong < 4; wrong++) {
        int64_t values[4];
        memcpy(values, good, sizeof values);
        if (wrong >= 0)
            values[wrong] = good[(wrong + 1) % 4];
        rg_tensor *y[2] = { NULL, indices_of(r->device, 4, DIMS(2, 1, 1, 2), values) };
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, y, NULL, &dx, 0));
        EXPECT(rig_run(r) == (wrong < 0 ? RG_OK : RG_KERNEL_FAULT));
        rg_tensor_destroy(y[1]);
    }
    DESTROY(dy, dx);
    rg_kernel_destroy(kernel);
}

/* Images of a batch count for themselves, also where they are neighbours in memory. */
static void test_batch(rig *r)
{
    rg_kernel *kernel = indexed_pool(r->device, 2, 2);
    rg_tensor *whole = filled(r->device, RG_F32, 4, DIMS(2, 4, 4, 3), 5);
    rg_tensor *x[2], *y[4], *dx[2];
    for (int n = 0; n < 2; n++)
        EXPECT_OK(rg_tensor_slice(whole, DIMS(n, 0, 0, 0), DIMS(1, 4, 4, 3), NULL, &x[n]));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 2, x, false, y, NULL));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 2, y, x, y, NULL, 1, false, dx));
    EXPECT_OK(rig_run(r));
    for (int n = 0; n < 2; n++) {
        rg_tensor *alone[2], *dx_alone = NULL;
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x[n], false, alone, NULL));
        EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, alone, &x[n], alone, NULL, 1,
                                           false, &dx_alone));
        EXPECT_OK(rig_run(r));
        EXPECT(same_bits(y[n], alone[0]) && same_bits(y[2 + n], alone[1]));
        EXPECT(same_bits(dx[n], dx_alone));
        DESTROY(alone[0], alone[1], dx_alone);
    }
    DESTROY(whole, x[0], x[1], y[0], y[1], y[2], y[3], dx[0], dx[1]);
    rg_kernel_destroy(kernel);
}

/* ---- inputs that broke others ---- */

/* Indices that do not belong to dy: fewer elements, no images, another rank or dtype. */
static void test_bad_index_tensors(rig *r)
{
    static const int64_t shapes[][4] = { { 2, 3, 3, 2 }, { 1, 3, 3, 3 }, { 0, 3, 3, 3 },
                                         { 2, 3, 2, 3 }, { 2, 1, 3, 3 }, { 2, 4, 3, 1 } };
    rg_kernel *kernel = indexed_pool(r->device, 2, 2);
    rg_tensor *dy = filled(r->device, RG_F32, 4, DIMS(2, 3, 3, 3), 1);
    rg_tensor *dx = filled(r->device, RG_F32, 4, DIMS(2, 6, 6, 3), 2);
    rg_tensor *y[2] = { NULL, NULL };
    for (int i = 0; i < 6; i++) {
        y[1] = tensor_of(r->device, RG_I64, 4, shapes[i]);
        EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, NULL, y, NULL, &dx, 0),
                     RG_INVALID_ARGUMENT, "pool: indices is");
        rg_tensor_destroy(y[1]);
    }
    y[1] = tensor_of(r->device, RG_I64, 5, DIMS(1, 2, 3, 3, 3));
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, NULL, y, NULL, &dx, 0),
                 RG_INVALID_ARGUMENT, "pool: indices is");
    rg_tensor_destroy(y[1]);
    y[1] = tensor_of(r->device, RG_I32, 4, DIMS(2, 3, 3, 3));
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, NULL, y, NULL, &dx, 0),
                 RG_INVALID_ARGUMENT, "pool: indices is");
    rg_tensor_destroy(y[1]);
    y[1] = NULL;
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, NULL, y, NULL, &dx, 0),
                 RG_INVALID_ARGUMENT, "reads indices, which is NULL");
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, NULL, &dx, 0),
                 RG_INVALID_ARGUMENT, "reads indices, which is NULL");
    DESTROY(dy, dx);
    rg_kernel_destroy(kernel);
}

static void test_bad_descriptors(rig *r)
{
    rg_device *const device = r->device;
    rg_pool_desc desc = desc_of(RG_POOL_AVERAGE, 2, 2);
    desc.indices = true;
    rg_kernel *kernel = (rg_kernel *)1;
    EXPECT_FAILS(rg_pool_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "pool: indices");
    EXPECT(kernel == NULL);
    static const int32_t orders[] = { 2, -1, INT32_MAX };
    for (int i = 0; i < 3; i++) {
        desc = desc_of(RG_POOL_MAX, 2, 2);
        desc.storage_order = orders[i];
        EXPECT_FAILS(rg_pool_create(device, &desc, &kernel), RG_INVALID_ARGUMENT,
                     "pool: storage_order");
        EXPECT(kernel == NULL);
    }
}

/* A descriptor that was refused, and then used anyway. */
static void test_refused_then_used(rig *r)
{
    rg_pool_desc desc = desc_of(RG_POOL_MAX, 0, 0);
    rg_kernel *kernel = NULL;
    EXPECT_FAILS(rg_pool_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "pool: window");
    rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(1, 4, 4, 1), 1);
    rg_tensor *dy = filled(r->device, RG_F32, 4, DIMS(1, 2, 2, 1), 2);
    rg_tensor *y[2] = { dy, NULL };
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &x, y, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &x, 0),
                 RG_INVALID_ARGUMENT, "NULL");
    rg_state *state = NULL;
    EXPECT_FAILS(rg_state_create(kernel, &x, &state), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_OK(rig_run(r)); /* nothing was recorded */
    DESTROY(x, dy);
}

typedef struct call_shapes {
    int32_t x_rank, dy_rank;
    int64_t x[5], dy[5];
} call_shapes;

/* The gradient of one kind on tensors of these shapes; y is as dy. */
static rg_status gradient_status(rig *r, rg_pool_kind kind, const call_shapes *s)
{
    rg_kernel *kernel = pool_of(r->device, desc_of(kind, 2, 2));
    rg_tensor *x = tensor_of(r->device, RG_F32, s->x_rank, s->x);
    rg_tensor *dx = tensor_of(r->device, RG_F32, s->x_rank, s->x);
    rg_tensor *dy = tensor_of(r->device, RG_F32, s->dy_rank, s->dy);
    rg_tensor *y = tensor_of(r->device, RG_F32, s->dy_rank, s->dy);
    const rg_status status = rg_kernel_gradient(kernel, r->commands, &dy, &x, &y, NULL, &dx, 0);
    EXPECT_OK(rig_run(r));
    DESTROY(x, dx, dy, y);
    rg_kernel_destroy(kernel);
    return status;
}

/* x, y and dy that do not go together: empty, of another rank, batch or number of channels. */
static void test_shapes_that_disagree(rig *r)
{
    static const call_shapes bad[] = {
        { 4, 4, { 2, 6, 6, 3 }, { 1, 3, 3, 3 } }, /* batch */
        { 4, 4, { 2, 6, 6, 3 }, { 2, 3, 3, 5 } }, /* channels */
        { 4, 3, { 1, 6, 6, 3 }, { 3, 3, 3 } },    /* rank */
        { 3, 4, { 6, 6, 3 }, { 1, 3, 3, 3 } },    /* rank */
        { 4, 4, { 2, 6, 6, 3 }, { 2, 3, 0, 3 } }, /* an empty dy */
        { 4, 4, { 2, 6, 6, 3 }, { 0, 0, 0, 0 } }, /* an empty dy */
        { 4, 4, { 2, 6, 0, 3 }, { 2, 3, 3, 3 } }, /* an empty x */
        { 4, 4, { 0, 6, 6, 3 }, { 2, 3, 3, 3 } }, /* no images but in dy */
        { 4, 4, { 1, 0, 0, 0 }, { 1, 0, 0, 0 } }, /* nothing at all */
        { 4, 4, { 2, 1, 6, 3 }, { 2, 0, 3, 3 } }, /* smaller than a window */
        { 5, 5, { 1, 2, 6, 6, 3 }, { 1, 2, 3, 3, 3 } },
        { 2, 2, { 6, 6 }, { 3, 3 } },
        { 0, 0, { 0 }, { 0 } },
    };
    for (int kind = RG_POOL_MAX; kind <= RG_POOL_L2; kind++)
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
            EXPECT_FAILS(gradient_status(r, (rg_pool_kind)kind, &bad[i]), RG_INVALID_ARGUMENT,
                         "pool: ");
    static const call_shapes empty[] = { { 4, 4, { 0, 6, 6, 3 }, { 0, 3, 3, 3 } },
                                         { 4, 4, { 2, 6, 6, 0 }, { 2, 3, 3, 0 } },
                                         { 3, 3, { 6, 6, 0 }, { 3, 3, 0 } } };
    for (int kind = RG_POOL_MAX; kind <= RG_POOL_L2; kind++)
        for (size_t i = 0; i < 3; i++)
            EXPECT_OK(gradient_status(r, (rg_pool_kind)kind, &empty[i]));
}

/* Winners of another shape: a state that was made for another image. */
static void test_foreign_winners(rig *r)
{
    rg_kernel *kernel = pool_of(r->device, desc_of(RG_POOL_MAX, 2, 2));
    rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(2, 6, 6, 3), 1);
    rg_tensor *small = filled(r->device, RG_F32, 4, DIMS(1, 4, 6, 3), 2), *y = NULL;
    rg_tensor *dy = filled(r->device, RG_F32, 4, DIMS(2, 3, 3, 3), 3);
    rg_state *state = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &small, false, &y, &state));
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, state, &x, 0),
                 RG_INVALID_ARGUMENT,
                 "the state was created for x of shape f32[1, 4, 6, 3], not f32[2, 6, 6, 3]");
    EXPECT_OK(rig_run(r));
    rg_state_destroy(state);
    DESTROY(x, small, y, dy);
    rg_kernel_destroy(kernel);
}

/* A tensor of rank 9 is refused before any op sees it. */
static void test_rank_nine(rig *r)
{
    rg_tensor_desc desc = { .dtype = RG_F32, .rank = 9 };
    for (int i = 0; i < RG_MAX_RANK; i++)
        desc.dims[i] = desc.strides[i] = 1;
    rg_tensor *tensor = NULL;
    EXPECT_FAILS(rg_tensor_create(r->device, &desc, &tensor), RG_INVALID_ARGUMENT, "rank");
    EXPECT(tensor == NULL);
    rg_kernel *kernel = pool_of(r->device, desc_of(RG_POOL_MAX, 2, 2));
    rg_tensor_desc y[2];
    EXPECT_FAILS(rg_kernel_shapes(kernel, &desc, y), RG_INVALID_ARGUMENT, "");
    rg_kernel_destroy(kernel);
}

int main(void)
{
    RUN_ON_DEVICES(test_order, test_given_indices, test_nobody, test_other_planes, test_batch,
                   test_bad_index_tensors, test_bad_descriptors, test_refused_then_used,
                   test_shapes_that_disagree, test_foreign_winners, test_rank_nine);
    return rg_test_report();
}
