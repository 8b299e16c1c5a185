/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fully connected layers: description, validation, shape rule, state, forward, gradient. */
#include "ops/fused_neuron/fused_neuron.h"
#include "ops/matmul/product_record.h"
#include "ops/neuron/neuron_fields.h"

#include <retrograde/dense.h>

#include <float.h>

/* ---- description ---- */

static const rg_dense_desc defaults = {
    .size = sizeof(rg_dense_desc),
    .bias = true,
    .alpha = 1,
    .neuron = { .size = sizeof(rg_neuron_desc), .kind = RG_NEURON_NONE },
};

rg_dense_desc rg_dense_desc_default(void)
{
    return defaults;
}

static const char *const layouts[] = { "out_in", "in_out", NULL };

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_dense_desc, layout, layouts,
                   "layout of w: outputs in the first or in the last dimension"),
    RG_FIELD(rg_dense_desc, bias, "whether the bias b is an input"),
    RG_FIELD_IN(rg_dense_desc, alpha, -DBL_MAX, DBL_MAX, "factor of the sums"),
    RG_FIELD_STRUCT(rg_dense_desc, neuron, rg_neuron_fields, "activation applied to the result"),
    { .name = NULL },
};

#define IMAGE "sourceImage=x weights=w biasTerms=b destinationImage=y"
#define IMAGE_GRAD                                                                  \
    "sourceGradient=dy sourceImage=x weights=w biasTerms=b destinationGradient=dx " \
    "gradientForWeights=dw gradientForBiases=db"
#define MATRIX "inputMatrix=x weightMatrix=w biasVector=b resultMatrix=y"
#define MATRIX_GRAD                                                                  \
    "gradientMatrix=dy inputMatrix=x weightMatrix=w resultGradientForDataMatrix=dx " \
    "resultGradientForWeightMatrix=dw resultGradientForBiasVector=db"

static const rg_op_name names[] = {
    { "MPSCNNFullyConnected", false, "", IMAGE, 3, 4 },
    { "MPSCNNFullyConnectedGradient", true, "", IMAGE_GRAD, 3, 4 },
    { "MPSCNNFullyConnectedNode", false, "", IMAGE, 3, 4 },
    { "MPSCNNFullyConnectedGradientNode", true, "", IMAGE_GRAD, 3, 4 },
    { "MPSMatrixFullyConnected", false, "layout=in_out", MATRIX, 2, 2 },
    { "MPSMatrixFullyConnectedGradient", true, "layout=in_out", MATRIX_GRAD, 2, 2 },
    { "MPSMatrixMultiplication", false, "layout=in_out bias=false",
      "leftMatrix=x rightMatrix=w resultMatrix=y", 2, 2 },
    { "MPSMatrixVectorMultiplication", false, "bias=false",
      "inputMatrix=w inputVector=x resultVector=y", 1, 1 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    return rg_fused_check(&((const rg_dense_desc *)desc)->neuron, "dense");
}

static int32_t count_inputs(const void *desc)
{
    return ((const rg_dense_desc *)desc)->bias ? 3 : 2;
}

/* How the dimensions of x, w and y are used. */
typedef struct dim_use {
    int32_t rows, inputs; /* how many there are of either in x */
    int32_t w_out, w_in;  /* where those of w begin */
} dim_use;

static dim_use dims_of(const rg_dense_desc *d, int32_t x_rank, int32_t w_rank)
{
    const bool first = d->layout == RG_DENSE_OUT_IN;
    return (dim_use){ .rows = x_rank - (w_rank - 1),
                      .inputs = w_rank - 1,
                      .w_out = first ? 0 : w_rank - 1,
                      .w_in = first ? 1 : 0 };
}

static rg_status check_bias(const rg_tensor_desc x[], int64_t out)
{
    char w[RG_SHAPE_TEXT], b[RG_SHAPE_TEXT];
    RG_CHECK(x[2].rank == 1 && x[2].dims[0] == out, RG_INVALID_ARGUMENT,
             "dense: b is %s but w is %s; b must have one element for each of %lld outputs",
             rg_shape_text(&x[2], b), rg_shape_text(&x[1], w), (long long)out);
    RG_CHECK(x[2].dtype == x[0].dtype, RG_INVALID_ARGUMENT,
             "dense: b is %s but x is %s; all must have the same dtype", rg_shape_text(&x[2], b),
             rg_dtype_name(x[0].dtype));
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_dense_desc *d = desc;
    char have[RG_SHAPE_TEXT], w[RG_SHAPE_TEXT];
    RG_CHECK(rg_dtype_is_data(x[0].dtype), RG_INVALID_ARGUMENT,
             "dense: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x[0].dtype));
    RG_CHECK(x[1].dtype == x[0].dtype, RG_INVALID_ARGUMENT,
             "dense: w is %s but x is %s; all must have the same dtype", rg_shape_text(&x[1], w),
             rg_shape_text(&x[0], have));
    RG_CHECK(x[1].rank >= 2, RG_INVALID_ARGUMENT,
             "dense: w is %s; it must have one dimension of outputs and at least one of inputs",
             rg_shape_text(&x[1], w));
    const dim_use p = dims_of(d, x[0].rank, x[1].rank);
    RG_CHECK(p.rows >= 0, RG_INVALID_ARGUMENT,
             "dense: x is %s but w is %s, which has %d dimensions of inputs",
             rg_shape_text(&x[0], have), rg_shape_text(&x[1], w), p.inputs);
    for (int32_t i = 0; i < p.inputs; i++)
        RG_CHECK(x[0].dims[p.rows + i] == x[1].dims[p.w_in + i], RG_INVALID_ARGUMENT,
                 "dense: x is %s but w is %s; dimension %d of x is %lld, dimension %d of w is %lld",
                 rg_shape_text(&x[0], have), rg_shape_text(&x[1], w), p.rows + i,
                 (long long)x[0].dims[p.rows + i], p.w_in + i, (long long)x[1].dims[p.w_in + i]);
    const int64_t out = x[1].dims[p.w_out];
    if (d->bias)
        RG_TRY(check_bias(x, out));
    int64_t dims[RG_MAX_RANK];
    for (int32_t i = 0; i < x[0].rank; i++)
        dims[i] = i < p.rows ? x[0].dims[i] : i < x[0].rank - 1 ? 1 : out;
    y[0] = rg_tensor_desc_dense(x[0].dtype, x[0].rank, dims);
    return rg_shape_check(y, "dense: y", NULL);
}

static uint32_t reads(const void *desc)
{
    const rg_dense_desc *d = desc;
    const uint32_t b = d->bias && rg_fused_needs_z(&d->neuron) ? RG_READS_X << 2 : 0;
    return RG_READS_X | RG_READS_X << 1 | b | rg_fused_reads(&d->neuron);
}

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    rg_tensor_desc y;
    if (shapes(desc, x, &y) != RG_OK)
        return 0;
    return rg_fused_slots(&((const rg_dense_desc *)desc)->neuron, &y, slots);
}

static bool writes_state(const void *desc, bool is_gradient)
{
    return !is_gradient && rg_fused_needs_z(&((const rg_dense_desc *)desc)->neuron);
}

/* ---- products ---- */

static rg_dims rows_of(const rg_tensor *tensor, dim_use p)
{
    return (rg_dims){ tensor, 0, p.rows };
}

static rg_dims inputs_of(const rg_tensor *x, dim_use p)
{
    return (rg_dims){ x, p.rows, p.inputs };
}

static rg_dims w_inputs_of(const rg_tensor *w, dim_use p)
{
    return (rg_dims){ w, p.w_in, p.inputs };
}

static rg_dims w_outputs_of(const rg_tensor *w, dim_use p)
{
    return (rg_dims){ w, p.w_out, 1 };
}

static rg_dims outputs_of(const rg_tensor *y)
{
    return (rg_dims){ y, y->desc.rank - 1, 1 };
}

static dim_use dims_of_call(const rg_call *call)
{
    return dims_of(call->desc, call->x[0]->desc.rank, call->x[1]->desc.rank);
}

/* All but the walks. */
static rg_product_call product(const rg_call *call, const rg_tensor *a, const rg_tensor *b,
                               const rg_tensor *c, int32_t bit)
{
    return (rg_product_call){ .a = a,
                              .b = b,
                              .c = c,
                              .args = { .batch = { .count = 1 },
                                        .alpha = ((const rg_dense_desc *)call->desc)->alpha,
                                        .add = call->add >> bit & 1 } };
}

/* z, or neuron(z). */
static rg_status record_z(rg_call *call, const rg_tensor *z, const rg_neuron_desc *neuron)
{
    const rg_tensor *x = call->x[0], *w = call->x[1];
    const dim_use p = dims_of_call(call);
    rg_product_call to = product(call, x, w, z, 0);
    to.args.m = rg_dims_walk((rg_dims[]){ rows_of(x, p), rows_of(z, p) }, 2);
    to.args.n = rg_dims_walk((rg_dims[]){ w_outputs_of(w, p), outputs_of(z) }, 2);
    to.args.k = rg_dims_walk((rg_dims[]){ inputs_of(x, p), w_inputs_of(w, p) }, 2);
    to.args.add = false;
    to.bias = call->inputs > 2 ? call->x[2] : NULL;
    to.neuron = neuron;
    to.args.b_transposed = p.w_out < p.w_in;
    return rg_record_product(call, &to);
}

static rg_status record_dx(rg_call *call, const rg_tensor *dz)
{
    const rg_tensor *w = call->x[1], *dx = call->dx[0];
    const dim_use p = dims_of_call(call);
    rg_product_call to = product(call, dz, w, dx, 0);
    to.args.m = rg_dims_walk((rg_dims[]){ rows_of(dz, p), rows_of(dx, p) }, 2);
    to.args.n = rg_dims_walk((rg_dims[]){ w_inputs_of(w, p), inputs_of(dx, p) }, 2);
    to.args.k = rg_dims_walk((rg_dims[]){ outputs_of(dz), w_outputs_of(w, p) }, 2);
    to.args.b_transposed = p.w_out > p.w_in;
    return rg_record_product(call, &to);
}

/* The last dimension of dw is that of columns. */
static rg_status record_dw(rg_call *call, const rg_tensor *dz)
{
    const rg_tensor *x = call->x[0], *dw = call->dx[1];
    const dim_use p = dims_of_call(call);
    const bool first = ((const rg_dense_desc *)call->desc)->layout == RG_DENSE_OUT_IN;
    const rg_dims out[] = { outputs_of(dz), w_outputs_of(dw, p) };
    const rg_dims in[] = { inputs_of(x, p), w_inputs_of(dw, p) };
    const rg_tensor *a = first ? dz : x, *b = first ? x : dz;
    rg_product_call to = product(call, a, b, dw, 1);
    to.args.m = rg_dims_walk(first ? out : in, 2);
    to.args.n = rg_dims_walk(first ? in : out, 2);
    to.args.k = rg_dims_walk((rg_dims[]){ rows_of(a, p), rows_of(b, p) }, 2);
    to.args.a_transposed = true;
    return rg_record_product(call, &to);
}

/* ---- forward, gradient ---- */

static rg_status forward(rg_call *call)
{
    const rg_neuron_desc *neuron = &((const rg_dense_desc *)call->desc)->neuron;
    const rg_tensor *kept = rg_fused_z(call, neuron), *z = kept != NULL ? kept : call->y[0];
    const bool fuses = !rg_fused_needs_z(neuron) && rg_product_fuses(call, call->y[0]->desc.dtype);
    RG_TRY(record_z(call, z, fuses ? neuron : NULL));
    return neuron->kind == RG_NEURON_NONE || fuses ? RG_OK
                                                   : rg_fused_forward(call, neuron, z, call->y[0]);
}

static rg_status record_gradients(rg_call *call, const rg_tensor *dz)
{
    if (call->dx[0] != NULL)
        RG_TRY(record_dx(call, dz));
    if (call->dx[1] != NULL)
        RG_TRY(record_dw(call, dz));
    return call->dx[2] != NULL ? rg_fused_bias(call, dz, call->dx[2], call->add >> 2 & 1) : RG_OK;
}

static rg_status make_z(rg_call *call, const rg_tensor *z)
{
    return record_z(call, z, NULL);
}

static rg_status gradient(rg_call *call)
{
    const rg_dense_desc *d = call->desc;
    return rg_fused_backward(call, &d->neuron, make_z, record_gradients);
}

static bool take_bias(void *desc)
{
    rg_dense_desc *d = desc;
    return rg_fused_take_bias(&d->neuron, &d->bias);
}

RG_OP_DEFINE(dense, .text = "fully connected layers, matrix products",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", "w", "b", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .count_inputs = count_inputs, .check = check, .shapes = shapes, .state = make_slots,
             .writes_state = writes_state, .reads = reads, .wide_gradients = 6, .weights = 2,
             .forward = forward, .gradient = gradient, .fusion = { .take_bias = take_bias },
             .launches = &rg_kernels_matmul, .strategies = rg_product_strategies);

rg_status rg_dense_create(rg_device *device, const rg_dense_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_dense, desc, kernel);
}
