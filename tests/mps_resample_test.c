/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsampling and padding as in MPS, and what both refuse. docs/mps.md names these tests. */
#include "any_device.h"
#include "mps.h"

static rg_kernel *upsample_of(rg_device *device, const rg_upsample_desc *desc)
{
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_upsample_create(device, desc, &kernel));
    return kernel;
}

static rg_kernel *pad_of(rg_device *device, const rg_pad_desc *desc)
{
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_pad_create(device, desc, &kernel));
    return kernel;
}

/* A tensor of f32 with these values. */
static rg_tensor *numbers(rg_device *device, int32_t rank, const int64_t dims[], const float from[])
{
    rg_tensor *tensor = tensor_of(device, RG_F32, rank, dims);
    EXPECT_OK(rg_tensor_write(tensor, from, bytes_of(tensor), RG_LAYOUT_SAME));
    return tensor;
}

static void expect_numbers(const rg_tensor *tensor, const float want[])
{
    char *elements = elements_of(tensor);
    const float *got = (const float *)(const void *)elements;
    for (int64_t i = 0; i < count_of(tensor); i++)
        EXPECT(is_near((double)got[i], (double)want[i], 1e-6));
    free(elements);
}

/* Runs a kernel of one input both ways: x to y, dy to dx. */
static void run_both(rig *r, rg_kernel *kernel, rg_tensor *x, rg_tensor *y, rg_tensor *dy,
                     rg_tensor *dx)
{
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, NULL, &dx, 0));
    EXPECT_OK(rig_run(r));
}

/* ---- MPSCNNUpsamplingNearest, MPSCNNUpsamplingBilinear and their gradients ---- */

/* integerScaleFactorX, integerScaleFactorY: destination = source * scale, and the gradient is the
 * sum over each block, not its mean. */
static void test_upsampling_nearest(rig *r)
{
    rg_upsample_desc desc = rg_upsample_desc_default();
    desc.scale[0] = 1;
    desc.scale[1] = 3;
    rg_kernel *kernel = upsample_of(r->device, &desc);
    rg_tensor *x = numbers(r->device, 3, DIMS(1, 2, 1), (const float[]){ 5, 7 });
    rg_tensor *dy = numbers(r->device, 3, DIMS(1, 6, 1), (const float[]){ 1, 2, 3, 4, 5, 6 });
    rg_tensor *y = tensor_of(r->device, RG_F32, 3, DIMS(1, 6, 1));
    rg_tensor *dx = tensor_of(r->device, RG_F32, 3, DIMS(1, 2, 1));
    run_both(r, kernel, x, y, dy, dx);
    expect_numbers(y, (const float[]){ 5, 5, 5, 7, 7, 7 });
    expect_numbers(dx, (const float[]){ 6, 15 });
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(dx);
    rg_kernel_destroy(kernel);
}

/* alignCorners NO is x / s, YES puts corner on corner; the gradient follows the same grid. */
static void test_upsampling_bilinear(rig *r)
{
    static const float plain[] = { 0, 1.5F, 3, 3 }, corners[] = { 0, 1, 2, 3 };
    static const float plain_dx[] = { 0.5F + 1, 1 + 2.5F + 2 };
    static const float corners_dx[] = { 0.5F + 4.0F / 3 + 2.5F / 3, 2.0F / 3 + 5.0F / 3 + 2 };
    for (int align = 0; align < 2; align++) {
        rg_upsample_desc desc = rg_upsample_desc_default();
        desc.kind = RG_UPSAMPLE_BILINEAR;
        desc.grid = align ? RG_UPSAMPLE_ALIGN_CORNERS : RG_UPSAMPLE_ASYMMETRIC;
        desc.scale[0] = 1;
        rg_kernel *kernel = upsample_of(r->device, &desc);
        rg_tensor *x = numbers(r->device, 4, DIMS(1, 1, 2, 1), (const float[]){ 0, 3 });
        rg_tensor *dy =
            numbers(r->device, 4, DIMS(1, 1, 4, 1), (const float[]){ 0.5F, 2, 2.5F, 2 });
        rg_tensor *y = tensor_of(r->device, RG_F32, 4, DIMS(1, 1, 4, 1));
        rg_tensor *dx = tensor_of(r->device, RG_F32, 4, DIMS(1, 1, 2, 1));
        run_both(r, kernel, x, y, dy, dx);
        expect_numbers(y, align ? corners : plain);
        expect_numbers(dx, align ? corners_dx : plain_dx);
        rg_tensor_destroy(x);
        rg_tensor_destroy(y);
        rg_tensor_destroy(dy);
        rg_tensor_destroy(dx);
        rg_kernel_destroy(kernel);
    }
}

static void refuse_upsample(rig *r)
{
    rg_kernel *kernel = NULL;
    static const double scales[] = { 0, -1, 1e300, __builtin_nan(""), __builtin_inf() };
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        rg_upsample_desc desc = rg_upsample_desc_default();
        desc.scale[1] = scales[i];
        EXPECT_FAILS(rg_upsample_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "scale");
    }
    rg_upsample_desc desc = rg_upsample_desc_default();
    desc.output[0] = -1;
    EXPECT_FAILS(rg_upsample_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "output");
    desc.output[0] = 5;
    kernel = upsample_of(r->device, &desc);
    rg_tensor_desc y;
    const rg_tensor_desc none = rg_tensor_desc_dense(RG_F32, 4, DIMS(1, 0, 3, 2));
    EXPECT_FAILS(rg_kernel_shapes(kernel, &none, &y), RG_INVALID_ARGUMENT,
                 "upsample: output has 5 rows, but x has none");
    const rg_tensor_desc flat = rg_tensor_desc_dense(RG_F32, 2, DIMS(3, 2));
    EXPECT_FAILS(rg_kernel_shapes(kernel, &flat, &y), RG_INVALID_ARGUMENT, "rank 2");
    const rg_tensor_desc labels = rg_tensor_desc_dense(RG_I32, 3, DIMS(3, 2, 1));
    EXPECT_FAILS(rg_kernel_shapes(kernel, &labels, &y), RG_INVALID_ARGUMENT, "i32");
    rg_kernel_destroy(kernel);
    desc = rg_upsample_desc_default();
    desc.scale[0] = 1e9;
    kernel = upsample_of(r->device, &desc);
    const rg_tensor_desc tall = rg_tensor_desc_dense(RG_F32, 3, DIMS(3, 2, 1));
    EXPECT_FAILS(rg_kernel_shapes(kernel, &tall, &y), RG_INVALID_ARGUMENT,
                 "upsample: 3 rows with a scale of 1e+09 give more than 2147483647");
    rg_kernel_destroy(kernel);
    desc.scale[0] = 0.25;
    kernel = upsample_of(r->device, &desc);
    EXPECT_FAILS(rg_kernel_shapes(kernel, &tall, &y), RG_INVALID_ARGUMENT,
                 "upsample: 3 rows with a scale of 0.25 give an empty output");
    rg_kernel_destroy(kernel);
}

/* ---- MPSNNPad, MPSNNPadGradient ---- */

/* The documented examples: mirror with 4 before and 1 after 3 pixels, more than there are to
 * mirror; clamp, 2 before and 3 after, back. */
static void test_pad_examples(rig *r)
{
    rg_pad_desc desc = rg_pad_desc_default();
    desc.mode = RG_PAD_MIRROR;
    desc.repeat = true;
    desc.before[2] = 4;
    desc.after[2] = 1;
    rg_kernel *mirror = pad_of(r->device, &desc);
    desc.mode = RG_PAD_CLAMP;
    desc.before[2] = 2;
    desc.after[2] = 3;
    rg_kernel *clamp = pad_of(r->device, &desc);
    rg_tensor *x = numbers(r->device, 3, DIMS(1, 3, 1), (const float[]){ 10, 11, 12 });
    rg_tensor *dy = numbers(r->device, 3, DIMS(1, 8, 1), (const float[]){ 0, 1, 2, 3, 4, 5, 6, 7 });
    rg_tensor *y = tensor_of(r->device, RG_F32, 3, DIMS(1, 8, 1));
    rg_tensor *dx = tensor_of(r->device, RG_F32, 3, DIMS(1, 3, 1));
    run_both(r, mirror, x, y, dy, dx);
    expect_numbers(y, (const float[]){ 10, 11, 12, 11, 10, 11, 12, 11 });
    expect_numbers(dx, (const float[]){ 0 + 4, 1 + 3 + 5 + 7, 2 + 6 });
    run_both(r, clamp, x, y, dy, dx);
    expect_numbers(y, (const float[]){ 10, 10, 10, 11, 12, 12, 12, 12 });
    expect_numbers(dx, (const float[]){ 0 + 1 + 2, 3, 4 + 5 + 6 + 7 });
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(dx);
    rg_kernel_destroy(mirror);
    rg_kernel_destroy(clamp);
}

/* fillValueArray: number i belongs to channel i of the destination. Its gradient, which MPS does
 * not have, is what no pixel of x received. */
static void test_pad_fill_array(rig *r)
{
    rg_pad_desc desc = rg_pad_desc_default();
    desc.mode = RG_PAD_CONSTANT;
    desc.fill = true;
    desc.before[2] = 1;
    desc.after[3] = 1;
    rg_kernel *kernel = pad_of(r->device, &desc);
    rg_tensor *x = numbers(r->device, 3, DIMS(1, 1, 1), (const float[]){ 5 });
    rg_tensor *fill = numbers(r->device, 1, DIMS(2), (const float[]){ 8, 9 });
    rg_tensor *dy = numbers(r->device, 3, DIMS(1, 2, 2), (const float[]){ 1, 2, 4, 8 });
    rg_tensor *y = tensor_of(r->device, RG_F32, 3, DIMS(1, 2, 2));
    rg_tensor *dx = tensor_of(r->device, RG_F32, 3, DIMS(1, 1, 1));
    rg_tensor *dfill = tensor_of(r->device, RG_F32, 1, DIMS(2));
    rg_tensor *const in[] = { x, fill }, *const out[] = { dx, dfill };
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, in, &y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, in, NULL, NULL, out, 0));
    EXPECT_OK(rig_run(r));
    expect_numbers(y, (const float[]){ 8, 9, 5, 9 });
    expect_numbers(dx, (const float[]){ 4 });
    expect_numbers(dfill, (const float[]){ 1, 2 + 8 });
    rg_tensor_destroy(x);
    rg_tensor_destroy(fill);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(dx);
    rg_tensor_destroy(dfill);
    rg_kernel_destroy(kernel);
}

static void refuse_shapes(rig *r, const rg_pad_desc *desc, const rg_tensor_desc *x,
                          const char *words)
{
    rg_kernel *kernel = pad_of(r->device, desc);
    rg_tensor_desc y;
    EXPECT_FAILS(rg_kernel_shapes(kernel, x, &y), RG_INVALID_ARGUMENT, words);
    rg_kernel_destroy(kernel);
}

static void refuse_pad(rig *r)
{
    rg_kernel *kernel = NULL;
    rg_pad_desc desc = rg_pad_desc_default();
    const rg_tensor_desc image = rg_tensor_desc_dense(RG_F32, 4, DIMS(2, 3, 4, 5));
    const rg_tensor_desc single = rg_tensor_desc_dense(RG_F32, 3, DIMS(3, 4, 5));
    const rg_tensor_desc none = rg_tensor_desc_dense(RG_F32, 4, DIMS(2, 0, 4, 5));
    desc.fill = true;
    EXPECT_FAILS(rg_pad_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "fill");
    desc = rg_pad_desc_default();
    desc.before[1] = INT64_MAX;
    EXPECT_FAILS(rg_pad_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "before");
    desc.before[1] = INT64_MIN;
    EXPECT_FAILS(rg_pad_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "before");
    desc.before[1] = -4;
    refuse_shapes(r, &desc, &image, "pad: 3 rows with -4 before and 0 after give -1");
    desc.before[1] = 3;
    desc.mode = RG_PAD_MIRROR;
    refuse_shapes(
        r, &desc, &image,
        "pad: 3 and 0 rows cannot be added around 3; mirror without repeat can add at most 2");
    desc.before[1] = 0;
    desc.after[2] = 5;
    desc.mode = RG_PAD_MIRROR_EDGE;
    refuse_shapes(r, &desc, &image,
                  "pad: 0 and 5 columns cannot be added around 4; mirror_edge without repeat can "
                  "add at most 4");
    desc = rg_pad_desc_default();
    desc.mode = RG_PAD_CLAMP;
    desc.after[1] = 1;
    refuse_shapes(r, &desc, &none, "pad: x has no rows for mode clamp to repeat");
    desc = rg_pad_desc_default();
    desc.after[0] = 1;
    refuse_shapes(r, &desc, &single, "rank 3");
    desc = rg_pad_desc_default();
    desc.mode = RG_PAD_CONSTANT;
    desc.fill = true;
    desc.after[3] = 1;
    const rg_tensor_desc two[] = { image, rg_tensor_desc_dense(RG_F32, 1, DIMS(5)) };
    refuse_shapes(r, &desc, two,
                  "pad: fill is f32[5], but must be f32[6]: one element per channel of y");
}

int main(void)
{
    RUN_ON_DEVICES(test_upsampling_nearest, test_upsampling_bilinear, refuse_upsample,
                   test_pad_examples, test_pad_fill_array, refuse_pad);
    return rg_test_report();
}
