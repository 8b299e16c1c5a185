/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slices, concatenation and reshape as in MPS: offsets and channel ranges, groups of four channels,
 * a gradient for each source, batches; and what is refused. docs/mps.md names these tests. */
#include "any_device.h"
#include "mps.h"

enum { N = 3, H = 4, W = 5 };

static rg_kernel *slice_of(rg_device *device, int32_t rank, const int64_t start[],
                           const int64_t length[])
{
    rg_slice_desc desc = rg_slice_desc_default();
    rg_kernel *kernel = NULL;
    desc.start_count = desc.length_count = rank;
    memcpy(desc.start, start, (size_t)rank * sizeof start[0]);
    memcpy(desc.length, length, (size_t)rank * sizeof length[0]);
    EXPECT_OK(rg_slice_create(device, &desc, &kernel));
    return kernel;
}

static rg_kernel *concat_of(rg_device *device, int32_t sources, int64_t axis, int64_t multiple)
{
    rg_concat_desc desc = rg_concat_desc_default();
    rg_kernel *kernel = NULL;
    desc.sources = sources;
    desc.axis = axis;
    desc.multiple = multiple;
    EXPECT_OK(rg_concat_create(device, &desc, &kernel));
    return kernel;
}

static rg_kernel *reshape_of(rg_device *device, int32_t rank, const int64_t dims[])
{
    rg_reshape_desc desc = rg_reshape_desc_default();
    rg_kernel *kernel = NULL;
    desc.dims_count = rank;
    for (int32_t d = 0; d < rank; d++)
        desc.dims[d] = dims[d];
    EXPECT_OK(rg_reshape_create(device, &desc, &kernel));
    return kernel;
}

static bool same_value(const rg_tensor *a, const int64_t at[], const rg_tensor *b,
                       const int64_t other[])
{
    return element_at(a, at) == element_at(b, other);
}

static void destroy_tensors(rg_tensor *const tensors[], int count)
{
    for (int i = 0; i < count; i++)
        rg_tensor_destroy(tensors[i]);
}

/* ---- slice ---- */

/* MPSNNSlice: offset is start of rows and columns, sourceFeatureChannelOffset that of channels,
 * sourceFeatureChannelMaxCount their length. */
static void test_slice(rig *r)
{
    rg_kernel *kernel = slice_of(r->device, 4, DIMS(0, 1, 2, 8), DIMS(-1, 2, -1, 12));
    rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(N, H, W, 24), 1), *y = NULL;
    rg_tensor *dx = filled(r->device, RG_F32, 4, DIMS(N, H, W, 24), 2);
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &y, NULL, NULL, NULL, &dx, 0));
    EXPECT_OK(rig_run(r));
    for (int64_t i = 0; i < (int64_t)N * 2 * 3 * 12; i++) {
        const int64_t n = i / 72, h = i / 36 % 2, w = i / 12 % 3, c = i % 12;
        EXPECT(same_value(y, DIMS(n, h, w, c), x, DIMS(n, h + 1, w + 2, c + 8)));
    }
    for (int64_t i = 0; i < (int64_t)N * H * W * 24; i++) {
        const int64_t n = i / 480, h = i / 120 % 4, w = i / 24 % 5, c = i % 24;
        const bool inside = h >= 1 && h < 3 && w >= 2 && c >= 8 && c < 20;
        EXPECT(element_at(dx, DIMS(n, h, w, c)) ==
               (inside ? element_at(x, DIMS(n, h, w, c)) : 0.0));
    }
    destroy_tensors((rg_tensor *[]){ x, y, dx }, 3);
    rg_kernel_destroy(kernel);
}

/* Added into dx: what lies outside of the slice is left alone. */
static void test_slice_add(rig *r)
{
    rg_kernel *kernel = slice_of(r->device, 2, DIMS(-1, 2), DIMS(1, 3));
    rg_tensor *dy = filled(r->device, RG_F64, 2, DIMS(1, 3), 1);
    rg_tensor *dx = filled(r->device, RG_F64, 2, DIMS(3, 7), 2);
    rg_tensor *old = filled(r->device, RG_F64, 2, DIMS(3, 7), 2);
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, NULL, &dx, 1));
    EXPECT_OK(rig_run(r));
    for (int64_t i = 0; i < 21; i++) {
        const int64_t h = i / 7, w = i % 7;
        const bool inside = h == 2 && w >= 2 && w < 5;
        const double more = inside ? element_at(dy, DIMS(0, w - 2)) : 0;
        EXPECT(element_at(dx, DIMS(h, w)) == element_at(old, DIMS(h, w)) + more);
    }
    destroy_tensors((rg_tensor *[]){ dy, dx, old }, 3);
    rg_kernel_destroy(kernel);
}

/* ---- concatenation ---- */

/* MPSNNConcatenationNode: a source of 23 channels occupies 24, of which the last is 0. The gradient
 * node of one source is one entry of dx; the others are NULL. */
static void test_concatenation(rig *r)
{
    rg_kernel *kernel = concat_of(r->device, 3, -1, 4);
    rg_tensor *x[] = { filled(r->device, RG_F32, 4, DIMS(N, H, W, 23), 1),
                       filled(r->device, RG_F32, 4, DIMS(N, H, W, 8), 2),
                       filled(r->device, RG_F32, 4, DIMS(N, H, W, 2), 3) };
    rg_tensor *y = filled(r->device, RG_F32, 4, DIMS(N, H, W, 36), 4);
    rg_tensor *dx[] = { NULL, tensor_of(r->device, RG_F32, 4, DIMS(N, H, W, 8)), NULL };
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create(kernel, x, &state));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y, state));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &y, NULL, NULL, state, dx, 0));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &y, x, NULL, NULL, dx, 2));
    EXPECT_OK(rig_run(r));
    for (int64_t i = 0; i < (int64_t)N * H * W * 36; i++) {
        const int64_t n = i / 720, h = i / 180 % 4, w = i / 36 % 5, c = i % 36;
        const int s = c < 24 ? 0 : c < 32 ? 1 : 2;
        const int64_t first = s == 0 ? 0 : s == 1 ? 24 : 32, at = c - first;
        const bool gap = (s == 0 && at == 23) || (s == 2 && at >= 2);
        EXPECT(element_at(y, DIMS(n, h, w, c)) ==
               (gap ? 0.0 : element_at(x[s], DIMS(n, h, w, at))));
        EXPECT(s != 1 ||
               element_at(dx[1], DIMS(n, h, w, at)) == 2 * element_at(x[1], DIMS(n, h, w, at)));
    }
    destroy_tensors((rg_tensor *[]){ x[0], x[1], x[2], y, dx[1] }, 5);
    rg_state_destroy(state);
    rg_kernel_destroy(kernel);
}

/* Images of a batch that are neighbours, and may run as one call, and others. */
static void test_concatenation_batch(rig *r)
{
    rg_kernel *kernel = concat_of(r->device, 2, -1, 1);
    rg_tensor *a = filled(r->device, RG_F32, 4, DIMS(N, H, W, 3), 1);
    rg_tensor *b = filled(r->device, RG_F32, 4, DIMS(N, H, W, 5), 2);
    rg_tensor *y = tensor_of(r->device, RG_F32, 4, DIMS(N, H, W, 8));
    rg_tensor *x[2 * N], *results[N];
    for (int64_t n = 0; n < N; n++) {
        const int64_t from = N - 1 - n; /* y is neighbours, x is not */
        EXPECT_OK(rg_tensor_slice(a, DIMS(from, 0, 0, 0), DIMS(1, H, W, 3), NULL, &x[n]));
        EXPECT_OK(rg_tensor_slice(b, DIMS(n, 0, 0, 0), DIMS(1, H, W, 5), NULL, &x[N + n]));
        EXPECT_OK(rg_tensor_slice(y, DIMS(n, 0, 0, 0), DIMS(1, H, W, 8), NULL, &results[n]));
    }
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, N, x, results, NULL));
    EXPECT_OK(rig_run(r));
    for (int64_t i = 0; i < (int64_t)N * H * W * 8; i++) {
        const int64_t n = i / 160, h = i / 40 % 4, w = i / 8 % 5, c = i % 8;
        EXPECT(c < 3 ? same_value(y, DIMS(n, h, w, c), a, DIMS(N - 1 - n, h, w, c))
                     : same_value(y, DIMS(n, h, w, c), b, DIMS(n, h, w, c - 3)));
    }
    destroy_tensors(x, 2 * N);
    destroy_tensors(results, N);
    destroy_tensors((rg_tensor *[]){ a, b, y }, 3);
    rg_kernel_destroy(kernel);
}

/* ---- reshape ---- */

/* MPSNNReshape and its gradient: elements in the order of rows, columns, channels. A batch of
 * neighbours is one call. */
static void test_reshape(rig *r)
{
    rg_kernel *kernel = reshape_of(r->device, 4, DIMS(-1, 2, 30, 2));
    rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(N, H, W, 6), 1);
    rg_tensor *y = tensor_of(r->device, RG_F32, 4, DIMS(N, 2, 30, 2));
    rg_tensor *dx = tensor_of(r->device, RG_F32, 4, DIMS(N, H, W, 6));
    rg_tensor *xs[N], *ys[N], *dxs[N];
    for (int64_t n = 0; n < N; n++) {
        EXPECT_OK(rg_tensor_slice(x, DIMS(n, 0, 0, 0), DIMS(1, H, W, 6), NULL, &xs[n]));
        EXPECT_OK(rg_tensor_slice(y, DIMS(n, 0, 0, 0), DIMS(1, 2, 30, 2), NULL, &ys[n]));
        EXPECT_OK(rg_tensor_slice(dx, DIMS(n, 0, 0, 0), DIMS(1, H, W, 6), NULL, &dxs[n]));
    }
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, N, xs, ys, NULL));
    EXPECT_OK(rg_kernel_gradient_batch(kernel, r->commands, N, ys, xs, NULL, NULL, dxs, 0));
    EXPECT_OK(rig_run(r));
    char *in = elements_of(x), *out = elements_of(y); /* of two shapes */
    EXPECT(memcmp(in, out, bytes_of(x)) == 0);
    EXPECT(same_bits(x, dx));
    free(in);
    free(out);
    destroy_tensors(xs, N);
    destroy_tensors(ys, N);
    destroy_tensors(dxs, N);
    destroy_tensors((rg_tensor *[]){ x, y, dx }, 3);
    rg_kernel_destroy(kernel);
}

/* ---- what is refused ---- */

static void refuse(rg_kernel *kernel, const rg_tensor_desc x[], const char *text)
{
    rg_tensor_desc y = { 0 };
    EXPECT_FAILS(rg_kernel_shapes(kernel, x, &y), RG_INVALID_ARGUMENT, text);
    rg_kernel_destroy(kernel);
}

static void test_bad_slices(rig *r)
{
    rg_device *device = r->device;
    const rg_tensor_desc x = rg_tensor_desc_dense(RG_F32, 2, DIMS(4, 6));
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_I32, 2, DIMS(4, 6));
    refuse(slice_of(device, 2, DIMS(0, 7), DIMS(-1, -1)), &x,
           "slice: start 7 is out of range for dimension 1 of length 6");
    refuse(slice_of(device, 2, DIMS(-5, 0), DIMS(-1, -1)), &x,
           "slice: start -5 is out of range for dimension 0 of length 4");
    refuse(slice_of(device, 2, DIMS(INT64_MIN, 0), DIMS(-1, -1)), &x,
           "out of range for dimension 0");
    refuse(slice_of(device, 2, DIMS(0, INT64_MAX), DIMS(-1, 1)), &x,
           "out of range for dimension 1");
    refuse(slice_of(device, 2, DIMS(0, 4), DIMS(-1, 3)), &x,
           "slice: 3 elements from 4 with step 1 exceed dimension 1 of length 6");
    refuse(slice_of(device, 2, DIMS(0, 6), DIMS(-1, 1)), &x, "exceed dimension 1");
    refuse(slice_of(device, 3, DIMS(0, 0, 0), DIMS(1, 1, 1)), &x, "start has 3 values");
    refuse(slice_of(device, 1, DIMS(0), DIMS(1)), &number, "x is i32");
    rg_slice_desc desc = rg_slice_desc_default();
    rg_kernel *kernel = NULL;
    desc.length_count = desc.step_count = 1;
    desc.length[0] = INT64_C(1) << 40;
    desc.step[0] = INT64_C(1) << 40;
    EXPECT_OK(rg_slice_create(device, &desc, &kernel));
    refuse(kernel, &x,
           "slice: 1099511627776 elements from 0 with step 1099511627776 exceed dimension 0 of "
           "length 4");
    desc.step[0] = 0;
    EXPECT_FAILS(rg_slice_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "step is 0");
    desc.step_count = RG_MAX_RANK + 1;
    EXPECT_FAILS(rg_slice_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "step has 9");
    desc.step_count = -1;
    EXPECT_FAILS(rg_slice_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "step has -1");
}

static void test_bad_concatenations(rig *r)
{
    rg_device *device = r->device;
    rg_tensor_desc x[2] = { rg_tensor_desc_dense(RG_F32, 2, DIMS(4, 6)),
                            rg_tensor_desc_dense(RG_F32, 2, DIMS(5, 6)) };
    refuse(concat_of(device, 2, 1, 1), x, "x0 is f32[4, 6] and x1 is f32[5, 6]");
    refuse(concat_of(device, 2, 2, 1), x, "axis is 2; it must be between -2 and 1");
    refuse(concat_of(device, 2, INT64_MIN, 1), x, "it must be between -2 and 1");
    x[1].dtype = RG_F16;
    refuse(concat_of(device, 2, 0, 1), x, "x1 is f16[5, 6]");
    x[0] = x[1] = rg_tensor_desc_dense(RG_F32, 0, NULL);
    refuse(concat_of(device, 2, -1, 1), x, "no axis");
    rg_concat_desc desc = rg_concat_desc_default();
    rg_kernel *kernel = NULL;
    desc.sources = 9;
    EXPECT_FAILS(rg_concat_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "sources is 9");
    desc.sources = 0;
    EXPECT_FAILS(rg_concat_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "sources is 0");
    desc.sources = 2;
    desc.multiple = 0;
    EXPECT_FAILS(rg_concat_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "multiple is 0");
}

/* Sources that exist, joined to more than can be. */
static void test_overflow(rig *r)
{
    rg_tensor_desc x[8];
    for (int i = 0; i < 8; i++)
        x[i] = rg_tensor_desc_dense(RG_F32, 2, DIMS(INT64_C(1) << 54, 1));
    refuse(concat_of(r->device, 8, 0, 1), x, "overflows");
    refuse(concat_of(r->device, 8, 1, 1 << 20), x, "overflows");
    refuse(reshape_of(r->device, 3, DIMS(INT64_C(1) << 40, INT64_C(1) << 40, 1)), x,
           "which has a different number of elements than");
    refuse(reshape_of(r->device, 3, DIMS(INT64_C(1) << 32, INT64_C(1) << 32, -1)), x,
           "which has a different number of elements than");
}

static void test_bad_reshapes(rig *r)
{
    rg_device *device = r->device;
    const rg_tensor_desc x = rg_tensor_desc_dense(RG_F32, 2, DIMS(4, 6));
    const rg_tensor_desc empty = rg_tensor_desc_dense(RG_F32, 2, DIMS(4, 0));
    refuse(reshape_of(device, 2, DIMS(5, 5)), &x,
           "x is f32[4, 6], which has a different number of elements");
    refuse(reshape_of(device, 2, DIMS(-1, 5)), &x, "which has a different number of elements than");
    refuse(reshape_of(device, 0, NULL), &x, "which has a different number of elements than");
    refuse(reshape_of(device, 2, DIMS(-1, 0)), &empty,
           "reshape: dimension 0 is -1 and another is 0, so it cannot be computed");
    rg_reshape_desc desc = rg_reshape_desc_default();
    rg_kernel *kernel = NULL;
    desc.dims_count = 3;
    desc.dims[1] = 0;
    desc.dims[2] = -1;
    EXPECT_FAILS(rg_reshape_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "-1 2 times");
    desc.dims[0] = -2;
    EXPECT_FAILS(rg_reshape_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "dims is -2");
    desc.dims[0] = 4;
    desc.dims[1] = 6;
    desc.dims[2] = 0;
    desc.zero_keeps = true;
    EXPECT_OK(rg_reshape_create(device, &desc, &kernel));
    refuse(kernel, &x, "reshape: a 0 copies dimension 2, but x has rank 2");
}

int main(void)
{
    RUN_ON_DEVICES(test_slice, test_slice_add, test_concatenation, test_concatenation_batch,
                   test_reshape, test_bad_slices, test_bad_concatenations, test_overflow,
                   test_bad_reshapes);
    return rg_test_report();
}
