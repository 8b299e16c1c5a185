/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalisation by windows across channels and over pixels as in MPS, on three elements 1, 2, 3
 * whose results were worked out by hand; dy is 1 for the one in the middle. Windows are even, so
 * that it matters to which side they lean. docs/mps.md names these tests. */
#include "any_device.h"
#include "mps.h"
#include "ops/ops.h"

/* Expects y and dx of x = 1, 2, 3; destroys the kernel. */
static void expect_results(rig *r, rg_kernel *kernel, const int64_t dims[4], const double y[3],
                           const double dx[3])
{
    static const double x_values[] = { 1, 2, 3 }, dy_values[] = { 0, 1, 0 };
    rg_tensor *x = tensor_of(r->device, RG_F64, 4, dims),
              *out = tensor_of(r->device, RG_F64, 4, dims);
    rg_tensor *dy = tensor_of(r->device, RG_F64, 4, dims),
              *to = tensor_of(r->device, RG_F64, 4, dims);
    EXPECT_OK(rg_tensor_write(x, x_values, sizeof x_values, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(dy, dy_values, sizeof dy_values, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &out, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &to, 0));
    EXPECT_OK(rig_run(r));
    double got_y[3] = { 0 }, got_dx[3] = { 0 };
    EXPECT_OK(rg_tensor_read(out, got_y, sizeof got_y, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(to, got_dx, sizeof got_dx, RG_LAYOUT_SAME));
    for (int i = 0; i < 3; i++)
        EXPECT(is_near(got_y[i], y[i], 1e-14) && is_near(got_dx[i], dx[i], 1e-14));
    rg_tensor_destroy(x);
    rg_tensor_destroy(out);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(to);
    rg_kernel_destroy(kernel);
}

/* L = 1 + (sum of squares) / 2 */
static const double y_before[] = { 1 / 1.5, 2 / 3.5, 3 / 7.5 };
static const double dx_before[] = { -2 / 12.25, 1 / 3.5 - 4 / 12.25, 0 };
static const double y_after[] = { 1 / 3.5, 2 / 7.5, 3 / 5.5 };
static const double dx_after[] = { 0, 1 / 7.5 - 4 / 56.25, -6 / 56.25 };

static void test_cross_channel(rig *r)
{
    rg_lrn_desc desc = rg_lrn_desc_default();
    EXPECT(desc.window == 5 && desc.alpha == 1 && desc.beta == 5 && desc.delta == 1);
    desc.window = 2;
    desc.beta = 1;
    for (int after = 0; after < 2; after++) {
        rg_kernel *kernel = NULL;
        desc.even_after = after == 1;
        EXPECT_OK(rg_lrn_create(r->device, &desc, &kernel));
        expect_results(r, kernel, DIMS(1, 1, 1, 3), after ? y_after : y_before,
                       after ? dx_after : dx_before);
    }
    rg_kernel *kernel = NULL;
    desc.window = 0;
    EXPECT_FAILS(rg_lrn_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "lrn: window is 0");
    EXPECT(kernel == NULL);
}

static void test_spatial(rig *r)
{
    rg_spatial_norm_desc desc = rg_spatial_norm_desc_default();
    EXPECT(desc.window[0] == 5 && desc.window[1] == 5);
    EXPECT(desc.alpha == 1 && desc.beta == 5 && desc.delta == 1);
    desc.beta = 1;
    for (int rows = 0; rows < 2; rows++) {
        rg_kernel *kernel = NULL;
        desc.window[0] = rows ? 2 : 1;
        desc.window[1] = rows ? 1 : 2;
        EXPECT_OK(rg_spatial_norm_create(r->device, &desc, &kernel));
        expect_results(r, kernel, rows ? DIMS(1, 3, 1, 1) : DIMS(1, 1, 3, 1), y_before, dx_before);
    }
    rg_kernel *kernel = NULL;
    desc.window[1] = -1;
    EXPECT_FAILS(rg_spatial_norm_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT,
                 "spatial_norm: window is -1");
}

/* M = 0.5, 1.5, 2.5; V = 0.25 everywhere. */
static void test_local_contrast(rig *r)
{
    rg_local_contrast_desc desc = rg_local_contrast_desc_default();
    EXPECT(desc.alpha == 0 && desc.beta == 0.5 && desc.delta == 1.0 / 1024);
    EXPECT(desc.p0 == 1 && desc.pm == 0 && desc.ps == 1);
    desc.window[0] = 1;
    desc.window[1] = 2;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_local_contrast_create(r->device, &desc, &kernel));
    expect_results(r, kernel, DIMS(1, 1, 3, 1), (const double[]){ 16, 16, 16 },
                   (const double[]){ -16, 16, 0 });
    desc.alpha = desc.beta = desc.delta = desc.pm = 1; /* T = 1.25 */
    desc.ps = 2;
    EXPECT_OK(rg_local_contrast_create(r->device, &desc, &kernel));
    expect_results(r, kernel, DIMS(1, 1, 3, 1), (const double[]){ 1.8, 1.8, 1.8 },
                   (const double[]){ -0.48, 0.48, 0 });
    desc.delta = -1;
    EXPECT_FAILS(rg_local_contrast_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT,
                 "local_contrast: delta is -1");
}

/* offset and clipRect: y is one pixel, whose window sees its neighbour before the clip. Expects y
 * and dx of x = 1, 2, 3 in a row; destroys the kernel. */
static void expect_clip(rig *r, rg_kernel *kernel, double y, const double dx[3])
{
    static const double x_values[] = { 1, 2, 3 }, one = 1;
    rg_tensor *x = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 3, 1)),
              *dy = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 1, 1)), *out = NULL, *to = NULL;
    EXPECT_OK(rg_tensor_write(x, x_values, sizeof x_values, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(dy, &one, sizeof one, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &out, NULL));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, &x, NULL, NULL, 1, false, &to));
    EXPECT_OK(rig_run(r));
    double got_y = 0, got_dx[3] = { 0 };
    EXPECT_OK(rg_tensor_read(out, &got_y, sizeof got_y, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(to, got_dx, sizeof got_dx, RG_LAYOUT_SAME));
    EXPECT(is_near(got_y, y, 1e-14));
    for (int i = 0; i < 3; i++)
        EXPECT(is_near(got_dx[i], dx[i], 1e-14));
    rg_tensor_destroy(x);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(out);
    rg_tensor_destroy(to);
    rg_kernel_destroy(kernel);
}

static void test_offset(rig *r)
{
    rg_spatial_norm_desc spatial = rg_spatial_norm_desc_default();
    rg_local_contrast_desc contrast = rg_local_contrast_desc_default();
    rg_kernel *kernel = NULL;
    spatial.window[0] = contrast.window[0] = 1;
    spatial.window[1] = contrast.window[1] = 2;
    spatial.output[0] = contrast.output[0] = spatial.output[1] = contrast.output[1] = 1;
    spatial.offset[1] = contrast.offset[1] = 1;
    spatial.beta = 1;
    EXPECT_OK(rg_spatial_norm_create(r->device, &spatial, &kernel));
    expect_clip(r, kernel, 2 / 3.5, dx_before); /* of a view alone: 2 / 3 */
    contrast.alpha = 1;
    contrast.beta = 1;
    contrast.delta = 0.75; /* M = 1.5, V = 0.25, T = 1: y = x - M */
    EXPECT_OK(rg_local_contrast_create(r->device, &contrast, &kernel));
    expect_clip(r, kernel, 0.5, (double[]){ -0.5 + 0.25, 1 - 0.5 - 0.25, 0 });
    contrast.offset[1] = 3; /* beyond the image: x = 0, M = 1.5, V = 2.25, T = 3 */
    EXPECT_OK(rg_local_contrast_create(r->device, &contrast, &kernel));
    expect_clip(r, kernel, -0.5, (double[]){ 0, 0, -0.5 / 3 + 1.5 * 1.5 / 9 });
}

/* dx of a clip is, exactly, the gradient of the same kernel without a clip on the region R that
 * the windows of the clip see, with a dy of 0 around the clip: what is not finite beside the clip
 * meets these zeros. Pixels outside of R have dx 0, whatever they hold. */
static void expect_region(rig *r, rg_kernel *clipped, rg_kernel *plain, double beside, double far)
{
    enum { SIZE = 7, FIRST = 1, REGION = 4 }; /* the clip is 2 to 3; windows of 3 reach 1 to 4 */
    double x[SIZE] = { far, 1, 2, 3, beside, 1, far }, dy[2] = { 1, -2 }, dx[SIZE];
    double around[REGION] = { 0, 1, -2, 0 }, want[REGION];
    rg_tensor *image = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, SIZE, 1));
    rg_tensor *part = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, REGION, 1));
    rg_tensor *up = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 2, 1));
    rg_tensor *wide = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, REGION, 1));
    rg_tensor *got = NULL, *same = NULL;
    EXPECT_OK(rg_tensor_write(image, x, sizeof x, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(part, x + FIRST, REGION * sizeof x[0], RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(up, dy, sizeof dy, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(wide, around, sizeof around, RG_LAYOUT_SAME));
    EXPECT_OK(
        rg_kernel_gradient_alloc(clipped, r->commands, 1, &up, &image, NULL, NULL, 1, false, &got));
    EXPECT_OK(
        rg_kernel_gradient_alloc(plain, r->commands, 1, &wide, &part, NULL, NULL, 1, false, &same));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(got, dx, sizeof dx, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(same, want, sizeof want, RG_LAYOUT_SAME));
    for (int i = 0; i < REGION; i++)
        EXPECT((isnan(dx[FIRST + i]) && isnan(want[i])) || dx[FIRST + i] == want[i]);
    EXPECT(dx[0] == 0 && dx[5] == 0 && dx[6] == 0);
    EXPECT(isfinite(beside) ? isfinite(dx[2]) && isfinite(dx[4]) : isnan(dx[4]));
    rg_tensor *const all[] = { image, part, up, wide, got, same };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
}

static void test_beside_a_clip(rig *r)
{
    static const double values[] = { 4, INFINITY, -INFINITY, NAN };
    for (int norm = 0; norm < 2; norm++) {
        rg_spatial_norm_desc spatial = rg_spatial_norm_desc_default();
        rg_local_contrast_desc contrast = rg_local_contrast_desc_default();
        rg_kernel *kernels[2] = { NULL, NULL };
        spatial.window[0] = contrast.window[0] = 1;
        spatial.window[1] = contrast.window[1] = 3;
        for (int clips = 0; clips < 2; clips++) {
            spatial.offset[1] = contrast.offset[1] = clips ? 2 : 0;
            spatial.output[0] = contrast.output[0] = clips ? 1 : 0;
            spatial.output[1] = contrast.output[1] = clips ? 2 : 0;
            EXPECT_OK(norm == 0 ? rg_spatial_norm_create(r->device, &spatial, &kernels[clips])
                                : rg_local_contrast_create(r->device, &contrast, &kernels[clips]));
        }
        for (int beside = 0; beside < 4; beside++) {
            for (int far = 0; far < 4; far++)
                expect_region(r, kernels[1], kernels[0], values[beside], values[far]);
        }
        rg_kernel_destroy(kernels[0]);
        rg_kernel_destroy(kernels[1]);
    }
}

int main(void)
{
    RUN_ON_DEVICES(test_cross_channel, test_spatial, test_local_contrast, test_offset,
                   test_beside_a_clip);
    return rg_test_report();
}
