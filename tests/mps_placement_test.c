/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* primaryOffset, secondaryOffset, kernelOffset, sourceSize and clipRect of gradient kernels of MPS,
 * expressed by paddings, output sizes and views, and compared with MPS's definition along a row. On
 * any device. docs/mps.md names these tests. */
#include "any_device.h"
#include "mps.h"

enum { MOST = 16 };

static rg_tensor *row_of(rig *r, const double values[], int64_t count)
{
    rg_tensor *tensor = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, count, 1));
    EXPECT_OK(rg_tensor_write(tensor, values, (size_t)count * 8, RG_LAYOUT_SAME));
    return tensor;
}

/* ---- convolution: 3 or 4 taps, stride 2, gradient of 5 pixels ---- */

typedef struct conv_case {
    int taps, primary, kernel, clip; /* primaryOffset, kernelOffset, pixels of clipRect */
} conv_case;

static const double gradient[5] = { 1, 10, 100, 1000, 10000 }, weights[4] = { 2, 3, 5, 7 };

/* dX(u): zeros between the pixels of the gradient, weights rotated. */
static double conv_dx(const conv_case *c, int u)
{
    double sum = 0;
    for (int p = 0; p < c->taps; p++) {
        const int v = u + c->primary * 2 + c->kernel - c->taps / 2 + p;
        if (v >= 0 && v <= 8 && v % 2 == 0)
            sum += gradient[v / 2] * weights[c->taps - 1 - p];
    }
    return sum;
}

static void test_conv_offsets(rig *r)
{
    static const conv_case cases[] = {
        { 3, 0, 0, 9 },  { 3, 0, -1, 9 },  { 3, 0, 1, 9 }, { 3, 1, 0, 6 },  { 3, 1, -3, 4 },
        { 3, -1, 1, 9 }, { 3, 0, -4, 13 }, { 4, 0, 0, 9 }, { 4, 0, 1, 10 }, { 4, 2, -1, 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const conv_case *c = &cases[i];
        rg_conv_desc desc = rg_conv_desc_default();
        const double zeros[MOST] = { 0 };
        double got[MOST], total = 0;
        rg_kernel *kernel = NULL;
        desc.bias = false;
        desc.stride[1] = 2;
        desc.output[0] = 1;
        desc.output[1] = 5;
        desc.padding.left = (c->taps - 1) / 2 + c->primary * 2 + c->kernel;
        EXPECT_OK(rg_conv_create(r->device, &desc, &kernel));
        rg_tensor *dy = row_of(r, gradient, 5), *w = row_of(r, weights, c->taps);
        rg_tensor *x[2] = { row_of(r, zeros, c->clip), w }, *whole = row_of(r, zeros, MOST);
        rg_tensor *dx[2] = { NULL, NULL }; /* clipRect: a slice of a larger destination */
        EXPECT_OK(rg_tensor_slice(whole, DIMS(0, 0, 2, 0), DIMS(1, 1, c->clip, 1), NULL, &dx[0]));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, x, NULL, NULL, dx, 0));
        EXPECT_OK(rig_run(r));
        EXPECT_OK(rg_tensor_read(whole, got, sizeof got, RG_LAYOUT_SAME));
        for (int u = 0; u < MOST; u++) {
            const bool inside = u >= 2 && u < 2 + c->clip;
            EXPECT(got[u] == (inside ? conv_dx(c, u - 2) : 0));
            total += got[u];
        }
        EXPECT(total > 0);
        rg_tensor_destroy(dy);
        rg_tensor_destroy(w);
        rg_tensor_destroy(x[0]);
        rg_tensor_destroy(whole);
        rg_tensor_destroy(dx[0]);
        rg_kernel_destroy(kernel);
    }
}

/* dW[p] = sum over x of g(x) in(s x + S + p), S the secondaryOffset, 0 outside of the image. */
static void test_conv_secondary_offset(rig *r)
{
    static const double image[8] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    for (int offset = -3; offset <= 3; offset++) {
        rg_conv_desc desc = rg_conv_desc_default();
        rg_kernel *kernel = NULL;
        double got[3];
        desc.bias = false;
        desc.stride[1] = 2;
        desc.output[0] = 1;
        desc.output[1] = 5;
        desc.padding.left = -offset;
        EXPECT_OK(rg_conv_create(r->device, &desc, &kernel));
        rg_tensor *dy = row_of(r, gradient, 5), *x[2] = { row_of(r, image, 8), NULL };
        x[1] = row_of(r, weights, 3);
        rg_tensor *dx[2] = { NULL, tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 3, 1)) };
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, x, NULL, NULL, dx, 0));
        EXPECT_OK(rig_run(r));
        EXPECT_OK(rg_tensor_read(dx[1], got, sizeof got, RG_LAYOUT_SAME));
        for (int p = 0; p < 3; p++) {
            double sum = 0;
            for (int i = 0; i < 5; i++) {
                const int at = 2 * i + offset + p;
                sum += at >= 0 && at < 8 ? gradient[i] * image[at] : 0;
            }
            EXPECT(got[p] == sum);
        }
        rg_tensor_destroy(dy);
        rg_tensor_destroy(x[0]);
        rg_tensor_destroy(x[1]);
        rg_tensor_destroy(dx[1]);
        rg_kernel_destroy(kernel);
    }
}

/* ---- pooling: windows of 3, stride 2 ---- */

typedef struct pool_case {
    int primary, size, secondary, clip; /* primaryOffset, sourceSize, secondaryOffset, clipRect */
} pool_case;

/* d out / d in of window t, whose first tap is secondary + 2 t - 1, at pixel u of 8: of the
 * average, or of the maximum among the pixels of the image. */
static double pool_slope(const pool_case *c, const double image[8], int t, int u, bool average)
{
    const int first = c->secondary + 2 * t - 1;
    int best = -1;
    for (int p = first; p < first + 3; p++) {
        if (p >= 0 && p < 8 && (best < 0 || image[p] > image[best]))
            best = p;
    }
    if (average)
        return u >= first && u < first + 3 ? 1.0 / 3 : 0;
    return u == best;
}

static void check_pool(rig *r, const pool_case *c, bool average)
{
    static const double image[8] = { 3, 1, 4, 1.5, 5, 9, 2, 6 };
    const int64_t count = c->primary + c->size < 5 ? c->size : 5 - c->primary;
    const int first = c->secondary > 1 ? c->secondary - 1 : 0; /* of the clip, in the source */
    rg_pool_desc desc = rg_pool_desc_default();
    rg_kernel *kernel = NULL;
    desc.kind = average ? RG_POOL_AVERAGE : RG_POOL_MAX;
    desc.edge = average ? RG_POOL_ZERO : RG_POOL_CLAMP;
    desc.window[0] = desc.stride[0] = 1;
    desc.window[1] = 3;
    desc.padding.left = 1 - c->secondary;
    desc.output[0] = 1;
    desc.output[1] = count;
    EXPECT_OK(rg_pool_create(r->device, &desc, &kernel));
    rg_tensor *all = row_of(r, gradient, 5), *x = row_of(r, image, 8), *dy = NULL, *part = NULL;
    rg_tensor *dx = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 8, 1));
    EXPECT_OK(rg_tensor_slice(all, DIMS(0, 0, c->primary, 0), DIMS(1, 1, count, 1), NULL, &dy));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &dx, 0));
    EXPECT_OK(rg_tensor_slice(dx, DIMS(0, 0, first, 0), DIMS(1, 1, c->clip, 1), NULL, &part));
    EXPECT_OK(rig_run(r));
    double got[8] = { 0 }, total = 0;
    EXPECT_OK(rg_tensor_read(part, got, (size_t)c->clip * 8, RG_LAYOUT_SAME));
    for (int u = 0; u < c->clip; u++) {
        double sum = 0;
        for (int t = 0; t < count; t++)
            sum += gradient[c->primary + t] * pool_slope(c, image, t, first + u, average);
        EXPECT(is_near(got[u], sum, 1e-9));
        total += got[u];
    }
    EXPECT(total > 0);
    rg_tensor *const made[] = { all, x, dy, part, dx };
    for (int i = 0; i < 5; i++)
        rg_tensor_destroy(made[i]);
    rg_kernel_destroy(kernel);
}

static void test_pool_placement(rig *r)
{
    static const pool_case cases[] = {
        { 0, 4, 0, 8 }, { 1, 2, 0, 8 },    { 1, 2, 1, 5 },  { 2, 100, 2, 6 },
        { 0, 5, 3, 3 }, { 3, 1000, 0, 4 }, { 0, 5, -1, 8 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_pool(r, &cases[i], false);
        check_pool(r, &cases[i], true);
    }
}

int main(void)
{
    RUN_ON_DEVICES(test_conv_offsets, test_conv_secondary_offset, test_pool_placement);
    return rg_test_report();
}
