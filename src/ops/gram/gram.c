/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gram matrices: description, shape rule, forward, gradient. */
#include "ops/matmul/product_record.h"

#include <retrograde/gram.h>

#include <float.h>

/* ---- description ---- */

static const rg_gram_desc defaults = { .size = sizeof(rg_gram_desc), .alpha = 1 };

rg_gram_desc rg_gram_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_IN(rg_gram_desc, alpha, -DBL_MAX, DBL_MAX, "factor of the sums"),
    { .name = NULL },
};

#define IMAGE      "sourceImage=x destinationImage=y"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"

static const rg_op_name names[] = {
    { "MPSNNGramMatrixCalculation", false, "", IMAGE, 3, 4 },
    { "MPSNNGramMatrixCalculationGradient", true, "", IMAGE_GRAD, 3, 4 },
    { "MPSNNGramMatrixCalculationNode", false, "", IMAGE, 3, 4 },
    { "MPSNNGramMatrixCalculationGradientNode", true, "", IMAGE_GRAD, 3, 4 },
    { .name = NULL },
};

/* ---- shape rule ---- */

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    (void)desc;
    char text[RG_SHAPE_TEXT];
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "gram: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_CHECK(x->rank >= 3, RG_INVALID_ARGUMENT,
             "gram: x is %s; it must have at least rows, columns and channels",
             rg_shape_text(x, text));
    int64_t dims[RG_MAX_RANK];
    const int32_t images = x->rank - 3;
    for (int32_t d = 0; d < images; d++)
        dims[d] = x->dims[d];
    dims[images] = dims[images + 1] = x->dims[x->rank - 1];
    y[0] = rg_tensor_desc_dense(x->dtype, images + 2, dims);
    return rg_shape_check(y, "gram: y", NULL);
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return RG_READS_X;
}

/* ---- forward, gradient ---- */

static rg_dims images_of(const rg_tensor *tensor, int32_t others)
{
    return (rg_dims){ tensor, 0, tensor->desc.rank - others };
}

static rg_dims pixels_of(const rg_tensor *x)
{
    return (rg_dims){ x, x->desc.rank - 3, 2 };
}

/* Dimension `last` from the end: channels of an image, or those of a matrix. */
static rg_dims channels_of(const rg_tensor *tensor, int32_t last)
{
    return (rg_dims){ tensor, tensor->desc.rank - 1 - last, 1 };
}

static rg_status forward(rg_call *call)
{
    const rg_tensor *x = call->x[0], *y = call->y[0];
    const rg_dims images = images_of(x, 3);
    rg_product_call product = {
        .a = x,
        .b = x,
        .c = y,
        .args = { .batch = rg_dims_walk((rg_dims[]){ images, images, images_of(y, 2) }, 3),
                  .m = rg_dims_walk((rg_dims[]){ channels_of(x, 0), channels_of(y, 1) }, 2),
                  .n = rg_dims_walk((rg_dims[]){ channels_of(x, 0), channels_of(y, 0) }, 2),
                  .k = rg_dims_walk((rg_dims[]){ pixels_of(x), pixels_of(x) }, 2),
                  .alpha = ((const rg_gram_desc *)call->desc)->alpha,
                  .a_transposed = true,
                  .symmetric = true },
    };
    return rg_record_product(call, &product);
}

static rg_status gradient(rg_call *call)
{
    const rg_tensor *dy = call->dy[0], *x = call->x[0], *dx = call->dx[0];
    const rg_dims images[] = { images_of(x, 3), images_of(dy, 2), images_of(dx, 3) };
    rg_product_call product = {
        .a = x,
        .b = dy,
        .c = dx,
        .args = { .batch = rg_dims_walk(images, 3),
                  .m = rg_dims_walk((rg_dims[]){ pixels_of(x), pixels_of(dx) }, 2),
                  .n = rg_dims_walk((rg_dims[]){ channels_of(dy, 0), channels_of(dx, 0) }, 2),
                  .k = rg_dims_walk((rg_dims[]){ channels_of(x, 0), channels_of(dy, 1) }, 2),
                  .alpha = ((const rg_gram_desc *)call->desc)->alpha,
                  .mirrored = true,
                  .add = call->add & 1 },
    };
    return rg_record_product(call, &product);
}

RG_OP_DEFINE(gram, .text = "Gram matrix: products of all pairs of channels, summed over an image",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names, .shapes = shapes,
             .reads = reads, .forward = forward, .gradient = gradient,
             .launches = &rg_kernels_matmul, .strategies = rg_product_strategies);

rg_status rg_gram_create(rg_device *device, const rg_gram_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_gram, desc, kernel);
}
