/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic and reductions as in MPS, both ways, and what they refuse. */
#include "any_device.h"
#include "mps.h"

/* A tensor of f32 with these values. */
static rg_tensor *numbers(rg_device *device, int32_t rank, const int64_t dims[], const float from[])
{
    rg_tensor *tensor = tensor_of(device, RG_F32, rank, dims);
    EXPECT_OK(rg_tensor_write(tensor, from, bytes_of(tensor), RG_LAYOUT_SAME));
    return tensor;
}

static bool is_equal(const rg_tensor *tensor, const float want[])
{
    char *got = elements_of(tensor);
    const bool equal = memcmp(got, want, bytes_of(tensor)) == 0;
    free(got);
    return equal;
}

/* MPSCNNMultiply: y = clamp(primaryScale a * secondaryScale b + bias), with b for all rows; the
 * gradient of b is the sum over them, without what the bound holds back. */
static void test_multiply(rig *r)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    desc.kind = RG_ARITHMETIC_MULTIPLY;
    desc.primary_scale = 2;
    desc.bias = 1;
    desc.maximum = 20;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_arithmetic_create(r->device, &desc, &kernel));
    rg_tensor *ab[2] = { numbers(r->device, 2, DIMS(2, 2), (const float[]){ 1, 2, 3, 4 }),
                         numbers(r->device, 1, DIMS(2), (const float[]){ 2, 3 }) };
    rg_tensor *y = tensor_of(r->device, RG_F32, 2, DIMS(2, 2));
    rg_tensor *dy = numbers(r->device, 2, DIMS(2, 2), (const float[]){ 1, 10, 100, 1000 });
    rg_tensor *dab[2] = { tensor_of(r->device, RG_F32, 2, DIMS(2, 2)),
                          tensor_of(r->device, RG_F32, 1, DIMS(2)) };
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, ab, &y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, ab, NULL, NULL, dab, 0));
    EXPECT_OK(rig_run(r));
    EXPECT(is_equal(y, (const float[]){ 5, 13, 13, 20 }));
    EXPECT(is_equal(dab[0], (const float[]){ 4, 60, 400, 0 }));
    EXPECT(is_equal(dab[1], (const float[]){ 602, 40 }));
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(ab[i]);
        rg_tensor_destroy(dab[i]);
    }
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_kernel_destroy(kernel);
}

/* MPSNNReductionSpatialMeanNode: the mean of each channel; its gradient shares dy out. */
static void test_spatial_mean(rig *r)
{
    rg_reduce_desc desc = rg_reduce_desc_default();
    desc.kind = RG_REDUCE_MEAN;
    desc.dims_count = 2;
    desc.dims[0] = -3;
    desc.dims[1] = -2;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_reduce_create(r->device, &desc, &kernel));
    rg_tensor *x =
        numbers(r->device, 4, DIMS(1, 2, 2, 2), (const float[]){ 1, 10, 2, 20, 3, 30, 6, 60 });
    rg_tensor *y = tensor_of(r->device, RG_F32, 4, DIMS(1, 1, 1, 2));
    rg_tensor *dy = numbers(r->device, 4, DIMS(1, 1, 1, 2), (const float[]){ 4, 8 });
    rg_tensor *dx = tensor_of(r->device, RG_F32, 4, DIMS(1, 2, 2, 2));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, NULL, &dx, 0));
    EXPECT_OK(rig_run(r));
    EXPECT(is_equal(y, (const float[]){ 3, 30 }));
    EXPECT(is_equal(dx, (const float[]){ 1, 2, 1, 2, 1, 2, 1, 2 }));
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(dx);
    rg_kernel_destroy(kernel);
}

static void test_refused(rig *r)
{
    rg_arithmetic_desc arithmetic = rg_arithmetic_desc_default();
    rg_reduce_desc reduce = rg_reduce_desc_default();
    rg_kernel *kernel = NULL;
    arithmetic.minimum = 2;
    arithmetic.maximum = 1;
    EXPECT(rg_arithmetic_create(r->device, &arithmetic, &kernel) == RG_INVALID_ARGUMENT);
    EXPECT(kernel == NULL);
    reduce.dims_count = RG_MAX_RANK + 1;
    EXPECT(rg_reduce_create(r->device, &reduce, &kernel) == RG_INVALID_ARGUMENT);
    EXPECT(kernel == NULL);
}

int main(void)
{
    RUN_ON_DEVICES(test_multiply, test_spatial_mean, test_refused);
    return rg_test_report();
}
