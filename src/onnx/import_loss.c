/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses of class labels. Class weights multiply log-probabilities; a mean divides by the sum of
 * the weights of the labels, which is the loss of weights in the place of log-probabilities. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

#include <string.h>

static rg_status log_softmax(rg_import *m, rg_flow *x)
{
    rg_softmax_desc desc = rg_softmax_desc_default();
    desc.kind = RG_SOFTMAX_LOG;
    desc.axis = rg_flow_rank(x) - 1;
    return rg_flow_apply(m, "softmax", &desc, x);
}

/* The loss of -x at the labels. */
static rg_status pick_labels(rg_import *m, const rg_loss_desc *desc, const rg_flow *x,
                             const rg_flow *labels, rg_flow *y)
{
    const rg_flow *inputs[] = { x, labels };
    RG_TRY(rg_import_apply(m, "loss", desc, inputs, 2, y, 1));
    rg_flow_plain_order(y);
    return RG_OK;
}

/* With class weights. */
static rg_status weighted(rg_import *m, const rg_proto_node *node, const rg_loss_desc *given,
                          const rg_flow *x, const rg_flow *labels, rg_flow *y)
{
    rg_loss_desc desc = *given;
    rg_flow weights, scores = *x, zeros, total;
    const bool mean = given->reduction != RG_LOSS_NONE && given->reduction != RG_LOSS_SUM;
    RG_TRY(rg_import_plain(m, node, 2, &weights));
    RG_CHECK(rg_flow_rank(&weights) == 1 && weights.shape[0].dims[0] == rg_flow_last(x),
             RG_MALFORMED, "input 2 does not have one weight per class");
    if (mean)
        desc.reduction = RG_LOSS_SUM;
    const rg_flow plain = scores;
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_MULTIPLY, &plain, &weights, &scores));
    RG_TRY(pick_labels(m, &desc, &scores, labels, y));
    if (!mean)
        return RG_OK;
    RG_TRY(rg_flow_zeros(m, x, &zeros));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_SUBTRACT, &zeros, &weights, &zeros));
    RG_TRY(pick_labels(m, &desc, &zeros, labels, &total));
    return rg_flow_arithmetic(m, RG_ARITHMETIC_DIVIDE, y, &total, y);
}

/* SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss: the table has those without class weights
 * and log-probabilities as an output. */
rg_status rg_convert_loss(rg_import *m, const rg_proto_node *node)
{
    const bool softmax = node->type[0] == 'S';
    const bool wants_log = node->output_count > 1 && node->outputs[1][0] != 0;
    rg_onnx_call *call = NULL;
    rg_flow x, labels, y;
    if (!rg_node_has(node, 2) && !wants_log)
        return rg_convert_table(m, node);
    rg_proto_node plain = *node;
    plain.type = "NegativeLogLikelihoodLoss";
    plain.input_count = 2;
    plain.output_count = 1;
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *call, &call));
    RG_TRY(rg_import_call(m, &plain, call));
    const rg_loss_desc *desc = (const rg_loss_desc *)call->desc;
    RG_TRY(rg_import_channels_last(m, node, 0, &x));
    RG_TRY(rg_import_plain(m, node, 1, &labels));
    if (softmax)
        RG_TRY(log_softmax(m, &x));
    RG_TRY(rg_node_has(node, 2) ? weighted(m, node, desc, &x, &labels, &y)
                                : pick_labels(m, desc, &x, &labels, &y));
    if (wants_log)
        RG_TRY(rg_import_define(m, node, 1, &x));
    return rg_import_define(m, node, 0, &y);
}
