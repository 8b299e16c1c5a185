/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling as in MPS: placement, edges, states, and calls that must be refused. docs/mps.md names
 * these tests. */
#include "any_device.h"
#include "mps.h"
#include "ops/ops.h"

static rg_kernel *pool_of(rg_device *device, rg_pool_desc desc)
{
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_pool_create(device, &desc, &kernel));
    return kernel;
}

static rg_pool_desc desc_of(rg_pool_kind kind, int32_t window, int32_t stride)
{
    rg_pool_desc desc = rg_pool_desc_default();
    desc.kind = kind;
    desc.window[0] = desc.window[1] = window;
    desc.stride[0] = desc.stride[1] = stride;
    return desc;
}

/* One row of one channel, f64. */
static rg_tensor *row_of(rg_device *device, int64_t count, const double values[])
{
    rg_tensor *tensor = tensor_of(device, RG_F64, 4, DIMS(1, 1, count, 1));
    EXPECT_OK(rg_tensor_write(tensor, values, (size_t)count * 8, RG_LAYOUT_SAME));
    return tensor;
}

#define ROW(device, ...)                                                   \
    row_of(device, (int64_t)(sizeof((const double[]){ __VA_ARGS__ }) / 8), \
           (const double[]){ __VA_ARGS__ })

static bool row_is(const rg_tensor *tensor, const double want[], int64_t count)
{
    bool same = tensor != NULL && count_of(tensor) == count;
    for (int64_t i = 0; i < count && same; i++)
        same = is_near(element_at(tensor, DIMS(0, 0, i, 0)), want[i], 1e-15);
    return same;
}

#define ROW_IS(tensor, ...) \
    row_is(tensor, (const double[]){ __VA_ARGS__ }, sizeof((const double[]){ __VA_ARGS__ }) / 8)

static rg_tensor *forward_of_row(rig *r, rg_pool_desc desc, rg_tensor *x)
{
    rg_kernel *kernel = pool_of(r->device, desc);
    rg_tensor *y = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, NULL));
    EXPECT_OK(rig_run(r));
    rg_kernel_destroy(kernel);
    return y;
}

static rg_tensor *gradient_of_row(rig *r, rg_pool_desc desc, rg_tensor *dy, rg_tensor *x)
{
    rg_kernel *kernel = pool_of(r->device, desc);
    rg_tensor *dx = NULL;
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, &x, NULL, NULL, 1, false, &dx));
    EXPECT_OK(rig_run(r));
    rg_kernel_destroy(kernel);
    return dx;
}

/* ---- classes ---- */

static void test_class_names(void)
{
    static const struct {
        const char *name, *kind;
        bool gradient;
    } classes[] = {
        { "MPSCNNPoolingMax", "kind=max ", false },
        { "MPSCNNPoolingAverage", "kind=average ", false },
        { "MPSCNNPoolingL2Norm", "kind=l2 ", false },
        { "MPSCNNDilatedPoolingMax", "kind=max ", false },
        { "MPSCNNPoolingMaxGradient", "kind=max ", true },
        { "MPSCNNPoolingAverageGradient", "kind=average ", true },
        { "MPSCNNPoolingL2NormGradient", "kind=l2 ", true },
        { "MPSCNNDilatedPoolingMaxGradient", "kind=max ", true },
    };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const rg_op *op = NULL;
        const rg_op_name *name = NULL;
        _Alignas(16) char desc[RG_MAX_DESC], text[512];
        EXPECT_OK(rg_op_find(classes[i].name, &op, &name));
        EXPECT(op == &rg_op_pool && name != NULL && name->gradient == classes[i].gradient);
        memcpy(desc, rg_op_pool.desc.defaults, rg_op_pool.desc.size);
        EXPECT_OK(rg_fields_parse(&rg_op_pool.desc, name->name, desc, name->fields));
        rg_fields_text(&rg_op_pool.desc, desc, text, sizeof text);
        EXPECT(strncmp(text, classes[i].kind, strlen(classes[i].kind)) == 0);
        EXPECT(strstr(text, " stride=1,1 ") != NULL && strstr(text, " edge=zero ") != NULL);
    }
}

/* ---- placement ---- */

/* The first tap of a window stands floor(K / 2) before its centre: with `offset` o the padding is
 * floor(K / 2) - o. A window of 2 with a dilation of 3 has taps at -2 and +1. */
static void test_offset(rig *r)
{
    rg_tensor *x = ROW(r->device, 1, 2, 3, 4, 5, 6);
    rg_pool_desc desc = desc_of(RG_POOL_AVERAGE, 1, 1);
    desc.window[1] = 2;
    desc.dilation[1] = 3;
    desc.padding.left = 2; /* floor(4 / 2) - 0 */
    desc.output[1] = 6;    /* as the destination has */
    rg_tensor *y = forward_of_row(r, desc, x);
    EXPECT(ROW_IS(y, 1, 1.5, 2.5, 3.5, 4.5, 2));
    rg_tensor_destroy(y);
    desc.padding.left = 2 - 3; /* an offset of 3 */
    y = forward_of_row(r, desc, x);
    EXPECT(ROW_IS(y, 3.5, 4.5, 2, 2.5, 3, 0));
    rg_tensor_destroy(y);
    rg_tensor_destroy(x);
}

/* clipRect: a slice of the destination, and the first window of it. */
static void test_clip(rig *r)
{
    rg_pool_desc desc = desc_of(RG_POOL_MAX, 3, 2);
    desc.padding = (rg_padding){ .top = 1, .left = 1, .bottom = 1, .right = 1 };
    rg_kernel *whole = pool_of(r->device, desc);
    desc.padding.top = 1 - 2 * 2; /* from window 2 on */
    desc.padding.left = 1 - 1 * 2;
    desc.output[0] = 2;
    desc.output[1] = 3;
    rg_kernel *part = pool_of(r->device, desc);
    rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(2, 9, 9, 5), 1), *y = NULL, *clip = NULL;
    rg_tensor *to = filled(r->device, RG_F32, 4, DIMS(2, 5, 5, 5), 2), *into = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(whole, r->commands, 1, &x, false, &y, NULL));
    EXPECT_OK(rg_tensor_slice(to, DIMS(0, 2, 1, 0), DIMS(2, 2, 3, 5), NULL, &into));
    EXPECT_OK(rg_kernel_forward(part, r->commands, &x, &into, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_slice(y, DIMS(0, 2, 1, 0), DIMS(2, 2, 3, 5), NULL, &clip));
    EXPECT(same_bits(into, clip));
    rg_tensor *const all[] = { x, y, clip, to, into };
    for (int i = 0; i < 5; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(whole);
    rg_kernel_destroy(part);
}

/* primaryOffset and sourceSize of a gradient: windows 1 and 2 of 4 count. */
static void test_source_size(rig *r)
{
    rg_tensor *x = ROW(r->device, 5, 1, 2, 7, 4, 6, 3, 8), *dy = ROW(r->device, 10, 20, 30, 40);
    rg_tensor *some = NULL;
    EXPECT_OK(rg_tensor_slice(dy, DIMS(0, 0, 1, 0), DIMS(1, 1, 2, 1), NULL, &some));
    rg_pool_desc desc = desc_of(RG_POOL_MAX, 1, 1);
    desc.window[1] = desc.stride[1] = 2;
    rg_tensor *dx = gradient_of_row(r, desc, dy, x);
    EXPECT(ROW_IS(dx, 10, 0, 0, 20, 0, 30, 0, 40));
    rg_tensor_destroy(dx);
    desc.padding.left = -1 * 2;
    desc.output[1] = 2;
    dx = gradient_of_row(r, desc, some, x);
    EXPECT(ROW_IS(dx, 0, 0, 0, 20, 0, 30, 0, 0));
    rg_tensor *const all[] = { x, dy, some, dx };
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(all[i]);
}

/* ---- edges ---- */

static void test_edges(rig *r)
{
    rg_tensor *x = ROW(r->device, -1, -4, -3, -6), *dy = ROW(r->device, 1, 10, 100, 1000);
    rg_pool_desc desc = desc_of(RG_POOL_MAX, 1, 1);
    desc.window[1] = 3;
    desc.padding.left = desc.padding.right = 1;
    rg_tensor *y = forward_of_row(r, desc, x), *dx = gradient_of_row(r, desc, dy, x);
    EXPECT(ROW_IS(y, 0, -1, -3, 0)); /* a virtual 0 beats negative pixels, and nobody gets its dy */
    EXPECT(ROW_IS(dx, 10, 0, 100, 0));
    rg_tensor_destroy(y);
    rg_tensor_destroy(dx);
    desc.edge = RG_POOL_CLAMP;
    y = forward_of_row(r, desc, x);
    dx = gradient_of_row(r, desc, dy, x);
    EXPECT(ROW_IS(y, -1, -1, -3, -3));
    EXPECT(ROW_IS(dx, 11, 0, 1100, 0));
    rg_tensor *const all[] = { x, dy, y, dx };
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(all[i]);
}

/* Average: all taps count, or those inside, or a margin of zeroPadSize with them, or the padding
 * but nothing beyond it (ExcludeEdges, count_include_pad). */
static void test_average_window(rig *r)
{
    rg_tensor *x = ROW(r->device, 12, 24, 36);
    rg_pool_desc desc = desc_of(RG_POOL_AVERAGE, 1, 1);
    desc.window[1] = 4;
    desc.stride[1] = 3;
    desc.padding.left = desc.padding.right = 2;
    desc.ceil_mode = true; /* windows at -2 and 1, the second reaches to 4: whole */
    rg_tensor *y = forward_of_row(r, desc, x);
    EXPECT(ROW_IS(y, 9, 15));
    rg_tensor_destroy(y);
    desc.zero_pad[1] = 1; /* ignored */
    y = forward_of_row(r, desc, x);
    EXPECT(ROW_IS(y, 9, 15));
    rg_tensor_destroy(y);
    desc.edge = RG_POOL_CLAMP;
    y = forward_of_row(r, desc, x);
    EXPECT(ROW_IS(y, 12, 20));
    rg_tensor_destroy(y);
    desc.zero_pad[1] = 0;
    y = forward_of_row(r, desc, x);
    EXPECT(ROW_IS(y, 18, 30));
    rg_tensor_destroy(y);
    desc.count_include_pad = true;
    desc.padding.right = 1; /* the second window reaches one beyond it */
    y = forward_of_row(r, desc, x);
    EXPECT(ROW_IS(y, 9, 20));
    rg_tensor_destroy(y);
    rg_tensor_destroy(x);
}

static void test_l2_of_zeros(rig *r)
{
    rg_tensor *x = ROW(r->device, 0, 0, 3, 4), *dy = ROW(r->device, 7, 10), *dx = NULL;
    rg_pool_desc desc = desc_of(RG_POOL_L2, 1, 1);
    desc.window[1] = desc.stride[1] = 2;
    rg_tensor *y = forward_of_row(r, desc, x);
    EXPECT(ROW_IS(y, 0, 5));
    rg_kernel *kernel = pool_of(r->device, desc);
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, &x, &y, NULL, 1, false, &dx));
    EXPECT_OK(rig_run(r));
    EXPECT(ROW_IS(dx, 0, 0, 6, 8));
    rg_kernel_destroy(kernel);
    rg_tensor *const all[] = { x, dy, y, dx };
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(all[i]);
}

/* ---- states ---- */

/* From the state alone, from x alone, with a temporary state, from both: the same bits. */
static void test_winners(rig *r)
{
    rg_pool_desc desc = desc_of(RG_POOL_MAX, 3, 2);
    desc.padding.policy = RG_PADDING_SAME;
    rg_kernel *kernel = pool_of(r->device, desc);
    rg_tensor *x = filled(r->device, RG_F16, 4, DIMS(2, 9, 8, 11), 1), *y = NULL;
    rg_tensor *dy = filled(r->device, RG_F16, 4, DIMS(2, 5, 4, 11), 2), *dx[4] = { NULL };
    rg_state *state = NULL, *brief = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, &state));
    rg_tensor *winners = NULL;
    EXPECT_OK(rg_state_tensor(state, "winners", &winners));
    EXPECT(rg_state_count(state) == 1 && bytes_of(winners) == 2 * 5 * 4 * 11);
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, NULL, NULL, &state, 1, false, dx));
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, &x, NULL, NULL, 1, false, dx + 1));
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, &x, &y, &state, 1, false, dx + 2));
    EXPECT_OK(rg_state_create_temporary(kernel, r->commands, &x, &brief));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, brief));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, NULL, NULL, &brief, 1, false,
                                       dx + 3));
    EXPECT_OK(rig_run(r));
    for (int i = 1; i < 4; i++)
        EXPECT(same_bits(dx[0], dx[i]));
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(dx[i]);
    rg_state_destroy(state);
    rg_state_destroy(brief);
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_kernel_destroy(kernel);
}

/* Winners belong to the caller once they are made: whatever stands there, a pixel gets dy of the
 * windows that name its tap, and nothing is indexed. */
static void check_any_winner(rig *r, int32_t window, const int32_t values[4])
{
    rg_pool_desc desc = desc_of(RG_POOL_MAX, 1, 1);
    desc.window[1] = window;
    desc.stride[1] = 2;
    rg_kernel *kernel = pool_of(r->device, desc);
    const int64_t width = window + 6;
    rg_tensor *x = filled(r->device, RG_F64, 4, DIMS(1, 1, width, 1), 1), *y = NULL, *dx = NULL;
    rg_tensor *dy = ROW(r->device, 1, 10, 100, 1000), *winners = NULL;
    rg_state *state = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, &state));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_state_tensor(state, "winners", &winners));
    rg_tensor_desc found;
    EXPECT_OK(rg_tensor_get_desc(winners, &found));
    EXPECT(found.dtype == (window > 255 ? RG_I32 : RG_U8) && found.dims[2] == 4);
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)values[i];
    EXPECT_OK(rg_tensor_write(winners, window > 255 ? (const void *)values : bytes,
                              bytes_of(winners), RG_LAYOUT_SAME));
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, NULL, NULL, &state, 1, false, &dx));
    EXPECT_OK(rig_run(r));
    int wrong = 0;
    for (int64_t q = 0; q < width; q++) {
        double want = 0, amount = 1;
        for (int i = 0; i < 4; i++, amount *= 10)
            want += values[i] >= 0 && values[i] < window && 2 * i + values[i] == q ? amount : 0;
        wrong += element_at(dx, DIMS(0, 0, q, 0)) != want;
    }
    EXPECT(wrong == 0);
    rg_tensor *const all[] = { x, y, dx, dy };
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(all[i]);
    rg_state_destroy(state);
    rg_kernel_destroy(kernel);
}

static void test_any_winner(rig *r)
{
    for (int32_t value = 0; value < 256; value++)
        check_any_winner(r, 3, (const int32_t[]){ value, 255 - value, value, 2 });
    check_any_winner(r, 255, (const int32_t[]){ 254, 255, 0, 128 });
    check_any_winner(r, 300, (const int32_t[]){ INT32_MIN, INT32_MAX, 299, -1 });
    check_any_winner(r, 300, (const int32_t[]){ 300, -300, 0, 256 });
}

/* ---- bad calls ---- */

static void refused(rg_device *device, const rg_pool_desc *desc, const char *words)
{
    rg_kernel *kernel = (rg_kernel *)1;
    EXPECT_FAILS(rg_pool_create(device, desc, &kernel), RG_INVALID_ARGUMENT, words);
    EXPECT(kernel == NULL);
}

static void test_bad_descriptors(rig *r)
{
    rg_device *const device = r->device;
    static const int32_t sizes[] = { 0, -1, INT32_MIN };
    for (int i = 0; i < 3; i++) {
        rg_pool_desc desc = rg_pool_desc_default();
        desc.window[i % 2] = sizes[i];
        refused(device, &desc, "pool: window");
        desc = rg_pool_desc_default();
        desc.stride[i % 2] = sizes[i];
        refused(device, &desc, "pool: stride");
        desc = rg_pool_desc_default();
        desc.dilation[i % 2] = sizes[i];
        refused(device, &desc, "pool: dilation");
    }
    rg_pool_desc desc = rg_pool_desc_default();
    desc.window[0] = desc.window[1] = 1 << 16;
    refused(device, &desc, "pool: a window of 65536 by 65536 has more than 2^31 - 1 elements");
    desc = rg_pool_desc_default();
    desc.ceil_mode = true;
    desc.padding.policy = RG_PADDING_SAME;
    refused(device, &desc, "ceil_mode");
    desc = rg_pool_desc_default();
    desc.zero_pad[1] = -1;
    refused(device, &desc, "zero_pad");
    desc = rg_pool_desc_default();
    desc.output[0] = -1;
    refused(device, &desc, "output");
    desc = rg_pool_desc_default();
    const int none = 77;
    memcpy(&desc.padding.policy, &none, sizeof none);
    refused(device, &desc, "policy");
}

/* The shape rule for one shape of x. */
static rg_status shape_status(rg_device *device, rg_pool_desc desc, rg_dtype dtype, int32_t rank,
                              const int64_t dims[])
{
    rg_kernel *kernel = pool_of(device, desc);
    const rg_tensor_desc x = rg_tensor_desc_dense(dtype, rank, dims);
    rg_tensor_desc y;
    const rg_status status = rg_kernel_shapes(kernel, &x, &y);
    rg_kernel_destroy(kernel);
    return status;
}

static void test_bad_shapes(rig *r)
{
    rg_device *const device = r->device;
    const rg_pool_desc desc = desc_of(RG_POOL_MAX, 3, 2);
    EXPECT_FAILS(shape_status(device, desc, RG_F32, 2, DIMS(8, 8)), RG_INVALID_ARGUMENT, "rank 2");
    EXPECT_FAILS(shape_status(device, desc, RG_F32, 5, DIMS(1, 1, 8, 8, 1)), RG_INVALID_ARGUMENT,
                 "rank 5");
    EXPECT_FAILS(shape_status(device, desc, RG_I32, 4, DIMS(1, 8, 8, 1)), RG_INVALID_ARGUMENT,
                 "i32");
    EXPECT_FAILS(shape_status(device, desc, RG_F32, 4, DIMS(1, 2, 8, 1)), RG_INVALID_ARGUMENT,
                 "pool: padding: a window that covers 3 rows does not fit");
    EXPECT_FAILS(shape_status(device, desc, RG_F32, 4, DIMS(1, 8, 0, 1)), RG_INVALID_ARGUMENT,
                 "columns");
    EXPECT_OK(shape_status(device, desc, RG_F32, 4, DIMS(0, 8, 8, 0)));
    rg_pool_desc wide = desc;
    wide.padding.top = wide.padding.left = 1;
    wide.output[0] = wide.output[1] = 3;
    EXPECT_FAILS(shape_status(device, wide, RG_F32, 4, DIMS(1, 0, 8, 1)), RG_INVALID_ARGUMENT,
                 "pool: x has 0 rows");
    wide.output[0] = INT64_C(1) << 40;
    EXPECT_FAILS(shape_status(device, wide, RG_F32, 4, DIMS(1, 8, 8, 1)), RG_UNSUPPORTED, "2^30");
    wide = desc;
    wide.padding.top = wide.padding.bottom = INT32_MAX;
    EXPECT_FAILS(shape_status(device, wide, RG_F32, 4, DIMS(1, 8, 8, 1)), RG_UNSUPPORTED, "2^30");
    wide = desc;
    wide.kind = RG_POOL_AVERAGE;
    wide.window[0] = wide.dilation[0] = INT32_MAX;
    wide.padding.policy = RG_PADDING_SAME;
    EXPECT_FAILS(
        shape_status(device, wide, RG_F32, 4, DIMS(1, 8, 8, 1)), RG_INVALID_ARGUMENT,
        "padding: a window of 2147483647 rows with a dilation of 2147483647 covers more than 2^48");
    wide = desc;
    wide.output[0] = wide.output[1] = (INT64_C(1) << 29) - 2;
    EXPECT_FAILS(shape_status(device, wide, RG_F64, 4, DIMS(1 << 20, 8, 8, 1)), RG_INVALID_ARGUMENT,
                 "overflows");
}

static void test_bad_calls(rig *r)
{
    rg_device *device = r->device;
    rg_kernel *kernel = pool_of(device, desc_of(RG_POOL_MAX, 2, 2));
    rg_kernel *other = pool_of(device, desc_of(RG_POOL_MAX, 2, 3));
    rg_kernel *norm = pool_of(device, desc_of(RG_POOL_L2, 2, 2));
    rg_tensor *x = filled(device, RG_F32, 4, DIMS(2, 6, 6, 3), 1);
    rg_tensor *small = filled(device, RG_F32, 4, DIMS(2, 6, 5, 3), 1);
    rg_tensor *y = filled(device, RG_F32, 4, DIMS(2, 3, 3, 3), 2);
    rg_tensor *dx = filled(device, RG_F32, 4, DIMS(2, 6, 6, 3), 3);
    const rg_status bad = RG_INVALID_ARGUMENT;
    static const int64_t shapes[][4] = { { 1, 3, 3, 3 }, { 3, 3, 3, 3 }, { 2, 3, 3, 2 },
                                         { 2, 3, 3, 4 }, { 2, 4, 3, 3 }, { 2, 3, 2, 3 },
                                         { 2, 0, 3, 3 }, { 0, 3, 3, 3 } };
    for (int i = 0; i < 8; i++) { /* a dy that does not belong to x */
        rg_tensor *dy = tensor_of(device, RG_F32, 4, shapes[i]);
        EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &dx, 0), bad,
                     "pool: dy is");
        EXPECT_FAILS(rg_kernel_gradient(norm, r->commands, &y, &x, &dy, NULL, &dx, 0), bad,
                     "pool: y is");
        rg_tensor_destroy(dy);
    }
    rg_tensor *dy = y, *none = NULL;
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create(kernel, &x, &state));
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, NULL, &dx, 0), bad,
                 "reads x, which is NULL");
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &small, 0), bad,
                 "dx is");
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, state, &dx, 0),
                 RG_INVALID_STATE, "the state is empty: no forward pass has written it");
    EXPECT_FAILS(rg_kernel_gradient(other, r->commands, &dy, &x, NULL, state, &dx, 0), bad, "");
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &small, &y, state), bad, "");
    EXPECT_FAILS(rg_kernel_gradient(norm, r->commands, &dy, &x, &none, NULL, &dx, 0), bad,
                 "reads y");
    EXPECT_FAILS(rg_state_create(kernel, &y, NULL), bad, "NULL");
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &x, 0)); /* allowed */
    EXPECT_OK(rig_run(r));
    rg_state_destroy(state);
    rg_tensor *const all[] = { x, small, y, dx };
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(other);
    rg_kernel_destroy(norm);
}

int main(void)
{
    test_class_names();
    RUN_ON_DEVICES(test_offset, test_clip, test_source_size, test_edges, test_average_window,
                   test_l2_of_zeros, test_winners, test_any_winner, test_bad_descriptors,
                   test_bad_shapes, test_bad_calls);
    return rg_test_report();
}
