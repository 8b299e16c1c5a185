/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs of ONNX's activations and matrix products that are more than one op. */
#include "core/dtype.h"
#include "core/shape.h"
#include "operators/onnx_converters.h"
#include "operators/run.h"
#include "runtime/objects.h"

#include <retrograde/arithmetic.h>
#include <retrograde/dense.h>
#include <retrograde/neuron.h>

static rg_status combine(rg_run *run, rg_arithmetic_kind kind, double scale, rg_tensor *a,
                         rg_tensor *b, rg_tensor **y)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    rg_tensor *x[] = { a, b };
    desc.kind = kind;
    desc.secondary_scale = scale;
    return rg_run_forward(run, &rg_op_arithmetic, &desc, x, y, NULL);
}

static rg_status activate(rg_run *run, rg_neuron_kind kind, double a, double b, rg_tensor *x,
                          rg_tensor **y)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    desc.kind = kind;
    desc.a = a;
    desc.b = b;
    desc.has_a = desc.has_b = true;
    return rg_run_unary(run, &rg_op_neuron, &desc, x, y);
}

/* ---- activations ---- */

/* Y = X max(0, min(1, X / 6 + 1/2)) */
rg_status rg_run_hard_swish(rg_run *run)
{
    rg_tensor *gate, *y;
    RG_TRY(activate(run, RG_NEURON_HARD_SIGMOID, 1.0 / 6, 0.5, run->in[0], &gate));
    RG_TRY(combine(run, RG_ARITHMETIC_MULTIPLY, 1, run->in[0], gate, &y));
    return rg_run_give(run, 0, y);
}

/* Y = gamma (X > 0 ? X : alpha (e^X - 1)) */
rg_status rg_run_selu(rg_run *run)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    rg_tensor *y;
    desc.kind = RG_NEURON_ELU;
    desc.a = rg_onnx_float(&run->node, "alpha");
    desc.has_a = true;
    RG_TRY(rg_run_unary(run, &rg_op_neuron, &desc, run->in[0], &y));
    RG_TRY(activate(run, RG_NEURON_LINEAR, rg_onnx_float(&run->node, "gamma"), 0, y, &y));
    return rg_run_give(run, 0, y);
}

/* The op's relu with a slope of 0 gives 0 for -infinity, where ONNX has 0 X: NaN, as PRelu has it.
 */
rg_status rg_run_leaky_relu(rg_run *run)
{
    const rg_tensor_desc *x = &run->shapes[0];
    const double slope = rg_onnx_float(&run->node, "alpha");
    const int64_t one = 1, column[] = { rg_shape_count(x), 1 };
    rg_neuron_desc desc = rg_neuron_desc_default();
    rg_tensor *flat, *slopes, *y;
    if (slope != 0 || !rg_dtype_is_data(x->dtype))
        return rg_run_op(run, rg_onnx_neuron);
    desc.kind = RG_NEURON_PRELU;
    RG_TRY(rg_run_numbers(run, x->dtype, 1, &one, &slope, &slopes));
    RG_TRY(rg_run_reshape(run, run->in[0], 2, column, &flat));
    RG_TRY(rg_run_forward(run, &rg_op_neuron, &desc, (rg_tensor *[]){ flat, slopes }, &y, NULL));
    RG_TRY(rg_run_reshape(run, y, x->rank, x->dims, &y));
    return rg_run_give(run, 0, y);
}

/* FastGelu of X + bias. */
rg_status rg_run_biased(rg_run *run)
{
    rg_tensor *y = run->in[0];
    if (run->in[1] != NULL)
        RG_TRY(combine(run, RG_ARITHMETIC_ADD, 1, y, run->in[1], &y));
    RG_TRY(rg_run_unary(run, &rg_op_neuron, run->call.desc, y, &y));
    return rg_run_give(run, 0, y);
}

/* The dimensions of X that slope has numbers for are moved to the end and flattened. */
rg_status rg_run_prelu(rg_run *run)
{
    const rg_tensor_desc *x = &run->shapes[0], *slope = &run->shapes[1];
    const int32_t rank = x->rank, lead = rank - slope->rank;
    int32_t order[RG_MAX_RANK], inverse[RG_MAX_RANK], count = 0;
    int64_t dims[RG_MAX_RANK], columns = 1, rows = 1;
    RG_CHECK(lead >= 0 && rank > 0, RG_INVALID_ARGUMENT, "%s: slope has rank %d, but X has rank %d",
             run->node.type, slope->rank, rank);
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t d = 0; d < rank; d++) {
            const int64_t size = d >= lead ? slope->dims[d - lead] : 1;
            RG_CHECK(size == 1 || size == x->dims[d], RG_INVALID_ARGUMENT,
                     "%s: dimension %d of X is %lld, but slope has %lld there", run->node.type, d,
                     (long long)x->dims[d], (long long)size);
            if ((size != 1) != (pass == 1))
                continue;
            inverse[d] = count;
            dims[count] = x->dims[d];
            order[count++] = d;
            *(pass == 1 ? &columns : &rows) *= x->dims[d];
        }
    }
    rg_tensor *view, *flat, *slopes, *y;
    RG_TRY(rg_run_permute(run, run->in[0], order, &view));
    RG_TRY(rg_run_reshape(run, view, 2, (int64_t[]){ rows, columns }, &flat));
    RG_TRY(rg_run_reshape(run, run->in[1], 1, &columns, &slopes));
    RG_TRY(rg_run_forward(run, &rg_op_neuron, run->call.desc, (rg_tensor *[]){ flat, slopes }, &y,
                          NULL));
    RG_TRY(rg_run_reshape(run, y, rank, dims, &y));
    RG_TRY(rg_run_permute(run, y, inverse, &y));
    return rg_run_give(run, 0, y);
}

/* ---- matrix products ---- */

rg_status rg_run_gemm(rg_run *run)
{
    rg_tensor *y, *x[2];
    rg_onnx_node *node = &run->node;
    const double beta = rg_onnx_float(node, "beta");
    const rg_tensor_desc c = run->shapes[2];
    run->shapes[2].rank = -1; /* C is added on its own */
    RG_TRY(rg_onnx_finish(node, &run->call, rg_onnx_gemm));
    run->shapes[2] = c;
    RG_TRY(rg_run_arrange(run, run->in[0], run->call.inputs[0].layout, &x[0]));
    x[1] = run->in[1];
    RG_TRY(rg_run_forward(run, &rg_op_dense, run->call.desc, x, &y, NULL));
    if (run->in[2] != NULL) {
        RG_CHECK(c.rank <= 2, RG_INVALID_ARGUMENT, "%s: C has rank %d, but Y is a matrix",
                 node->type, c.rank);
        rg_tensor *sum;
        RG_TRY(combine(run, RG_ARITHMETIC_ADD, beta, y, run->in[2], &sum));
        RG_CHECK(rg_shape_same_dims(&sum->desc, &y->desc), RG_INVALID_ARGUMENT,
                 "%s: C cannot be broadcast to the shape of Y", node->type);
        y = beta != 0 ? sum : y; /* ONNX Runtime does not read C then: NaN does not count */
    }
    return rg_run_give(run, 0, y);
}

/* As numpy's matmul: a vector is a row on the left and a column on the right. */
rg_status rg_run_matmul(rg_run *run)
{
    rg_tensor *a = run->in[0], *b = run->in[1], *y;
    const rg_tensor_desc *left = &run->shapes[0], *right = &run->shapes[1];
    RG_CHECK(left->rank > 0 && right->rank > 0, RG_INVALID_ARGUMENT,
             "%s: A and B must have rank 1 or more", run->node.type);
    if (left->rank == 1)
        RG_TRY(rg_run_reshape(run, a, 2, (int64_t[]){ 1, left->dims[0] }, &a));
    if (right->rank == 1)
        RG_TRY(rg_run_reshape(run, b, 2, (int64_t[]){ right->dims[0], 1 }, &b));
    RG_TRY(rg_run_forward(run, &rg_op_matmul, run->call.desc, (rg_tensor *[]){ a, b }, &y, NULL));
    const rg_tensor_desc shape = y->desc;
    int64_t dims[RG_MAX_RANK];
    int32_t rank = 0;
    for (int32_t d = 0; d < shape.rank; d++) {
        const bool dropped =
            (left->rank == 1 && d == shape.rank - 2) || (right->rank == 1 && d == shape.rank - 1);
        if (!dropped)
            dims[rank++] = shape.dims[d];
    }
    if (rank < shape.rank)
        RG_TRY(rg_run_reshape(run, y, rank, dims, &y));
    return rg_run_give(run, 0, y);
}
