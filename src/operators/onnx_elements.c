/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Converters of ONNX's activations, softmax, matrix products, losses and dropout. */
#include "operators/onnx_converters.h"

#include <retrograde/dense.h>
#include <retrograde/dropout.h>
#include <retrograde/loss.h>
#include <retrograde/neuron.h>
#include <retrograde/softmax.h>

/* Before opset 13 a group spans all dimensions from the axis on, which is 1 by default. */
rg_status rg_onnx_softmax(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_softmax_desc *d = (rg_softmax_desc *)call->desc;
    const int64_t opset =
        rg_onnx_given(node, "opset") ? rg_onnx_int(node, "opset") : (int64_t)node->opset;
    d->axis = rg_onnx_int(node, "axis");
    if (!call->gradient && opset > 0 && opset < 13) {
        d->flatten = true;
        if (!rg_onnx_given(node, "axis"))
            d->axis = 1;
    }
    int64_t dimension;
    const int32_t rank = rg_onnx_rank(node, 0);
    if (rank >= 0)
        RG_TRY(rg_onnx_axis(node, "axis", d->axis, rank, &dimension));
    return RG_OK;
}

/* alpha and beta are a and b. */
rg_status rg_onnx_neuron(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_neuron_desc *d = (rg_neuron_desc *)call->desc;
    rg_onnx_spec spec;
    for (const char *at = node->entry->attributes; rg_onnx_next_spec(&at, &spec);) {
        if (strcmp(spec.name, "alpha") == 0) {
            d->a = rg_onnx_float(node, "alpha");
            d->has_a = true;
        } else if (strcmp(spec.name, "beta") == 0) {
            d->b = rg_onnx_float(node, "beta");
            d->has_b = true;
        }
    }
    return RG_OK;
}

/* FastGelu: X, and perhaps a bias. */
rg_status rg_onnx_biased(const rg_onnx_node *node, rg_onnx_call *call)
{
    (void)call;
    RG_CHECK(!rg_onnx_has(node, 1), RG_UNSUPPORTED, "%s: with a bias it needs more than one op",
             node->type);
    return RG_OK;
}

rg_status rg_onnx_gelu(const rg_onnx_node *node, rg_onnx_call *call)
{
    static const char *const forms[] = { "none", "tanh", NULL };
    rg_neuron_desc *d = (rg_neuron_desc *)call->desc;
    int32_t form;
    RG_TRY(rg_onnx_word(node, "approximate", forms, &form));
    d->kind = form == 0 ? RG_NEURON_GELU : RG_NEURON_GELU_TANH;
    return RG_OK;
}

/* slope is broadcast to X; one slope for each channel of (n, c, d…), or for the last dimension. */
rg_status rg_onnx_prelu(const rg_onnx_node *node, rg_onnx_call *call)
{
    RG_CHECK(rg_onnx_has(node, 0) && rg_onnx_has(node, 1), RG_INVALID_ARGUMENT,
             "%s: the shapes of X and slope must be known", node->type);
    const rg_tensor_desc *x = &node->inputs[0], *slope = &node->inputs[1];
    const int32_t lead = x->rank - slope->rank;
    int32_t dimension = -1, others = 0;
    for (int32_t d = 0; d < slope->rank; d++) {
        if (slope->dims[d] == 1)
            continue;
        dimension = lead + d;
        others++;
    }
    const bool last = dimension == x->rank - 1 || node->nhwc;
    RG_CHECK(others == 1 && (last || dimension == 1), RG_UNSUPPORTED,
             "%s: with a slope that is not one number per channel it needs more than one op",
             node->type);
    call->inputs[0].layout = call->outputs[0].layout = last ? RG_ONNX_SAME : RG_ONNX_LAST;
    call->inputs[1].layout = RG_ONNX_FLAT;
    return RG_OK;
}

/* Y = alpha A' B' + beta C */
rg_status rg_onnx_gemm(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_dense_desc *d = (rg_dense_desc *)call->desc;
    const bool transposed = rg_onnx_int(node, "transB") != 0;
    for (int32_t i = 0; i < 2; i++)
        RG_CHECK(!rg_onnx_has(node, i) || node->inputs[i].rank == 2, RG_INVALID_ARGUMENT,
                 "%s: %s has rank %d, but must be a matrix", node->type, i == 0 ? "A" : "B",
                 node->inputs[i].rank);
    d->layout = transposed ? RG_DENSE_OUT_IN : RG_DENSE_IN_OUT;
    d->alpha = rg_onnx_float(node, "alpha");
    d->bias = rg_onnx_has(node, 2);
    if (rg_onnx_int(node, "transA") != 0)
        call->inputs[0].layout = RG_ONNX_TRANSPOSED;
    if (!d->bias)
        return RG_OK;
    const rg_tensor_desc *c = &node->inputs[2];
    const int64_t columns = rg_onnx_has(node, 1) ? node->inputs[1].dims[!transposed] : -1;
    const bool is_bias = (c->rank == 1 && c->dims[0] == columns) ||
                         (c->rank == 2 && c->dims[0] == 1 && c->dims[1] == columns);
    RG_CHECK(
        is_bias && rg_onnx_float(node, "beta") == 1, RG_UNSUPPORTED,
        "%s: with a beta other than 1, or a C that is not one number per column, it is not one "
        "op",
        node->type);
    call->inputs[2].layout = RG_ONNX_FLAT;
    return RG_OK;
}

rg_status rg_onnx_matmul(const rg_onnx_node *node, rg_onnx_call *call)
{
    (void)call;
    RG_CHECK(rg_onnx_rank(node, 0) >= 2 && rg_onnx_rank(node, 1) >= 2, RG_UNSUPPORTED,
             "%s: with a vector it needs more than one op", node->type);
    return RG_OK;
}

/* Without class weights. A mean is over the labels that are not ignored. */
rg_status rg_onnx_loss(const rg_onnx_node *node, rg_onnx_call *call)
{
    static const char *const reductions[] = { "none", "sum", "mean", NULL };
    rg_loss_desc *d = (rg_loss_desc *)call->desc;
    int32_t reduction;
    RG_TRY(rg_onnx_word(node, "reduction", reductions, &reduction));
    d->reduction = (rg_loss_reduction)reduction;
    d->has_ignored = rg_onnx_given(node, "ignore_index");
    d->ignored = rg_onnx_int(node, "ignore_index");
    if (d->has_ignored && d->reduction == RG_LOSS_MEAN)
        d->reduction = RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS;
    const int32_t rank = rg_onnx_rank(node, 0);
    RG_CHECK(rank < 0 || rank >= 2, RG_INVALID_ARGUMENT,
             "%s: %s has rank %d, but must be (n, c) or (n, c, d…)", node->type,
             call->inputs[0].name, rank);
    RG_CHECK(!rg_onnx_has(node, 2) && !(node->outputs & 2), RG_UNSUPPORTED,
             "%s: with class weights or log_prob it needs more than one op", node->type);
    return RG_OK;
}

rg_status rg_onnx_dropout(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_dropout_desc *d = (rg_dropout_desc *)call->desc;
    const double ratio = rg_onnx_float(node, "ratio");
    RG_CHECK(ratio >= 0 && ratio < 1, RG_INVALID_ARGUMENT,
             "%s: ratio must be at least 0 and less than 1, not %g", node->type, ratio);
    d->keep = 1 - ratio;
    d->seed = rg_onnx_int(node, "seed");
    if (!call->gradient && rg_onnx_int(node, "training_mode") == 0)
        d->keep = 1;
    RG_CHECK(!(node->outputs & 2), RG_UNSUPPORTED, "%s: with a mask it needs more than one op",
             node->type);
    return RG_OK;
}

rg_status rg_onnx_several(const rg_onnx_node *node, rg_onnx_call *call)
{
    (void)call;
    return rg_fail(RG_UNSUPPORTED, "%s needs more than one op", node->type);
}
