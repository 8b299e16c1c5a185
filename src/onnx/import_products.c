/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Matrix products: Gemm and MatMul. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

#include <string.h>

/* A matrix, and whether the graph has it with its dimensions swapped. */
static rg_status take_matrix(rg_import *m, const rg_proto_node *node, size_t input, rg_flow *flow,
                             bool *swapped)
{
    RG_TRY(rg_import_any(m, node, input, flow));
    RG_CHECK(rg_flow_rank(flow) == 2, RG_MALFORMED, "'%.80s' has %d dimensions; a matrix has 2",
             node->inputs[input], rg_flow_rank(flow));
    *swapped = flow->order[0] == 1;
    return RG_OK;
}

/* C as one number per column: (columns), or (1, columns). */
static rg_status take_bias(rg_import *m, const rg_proto_node *node, int64_t columns, rg_flow *bias,
                           bool *is_bias)
{
    rg_known *known = NULL;
    RG_TRY(rg_import_known(m, node, 2, &known));
    const rg_tensor_desc *c = &known->shape[0];
    *is_bias =
        (c->rank == 1 && c->dims[0] == columns) ||
        (c->rank == 2 && c->dims[0] == 1 && c->dims[1] == columns && known->shape[1].dims[0] == 1);
    if (!*is_bias)
        return RG_OK;
    int64_t dims[RG_PROBES][RG_MAX_RANK] = { { columns }, { columns } };
    RG_TRY(rg_import_plain(m, node, 2, bias));
    return rg_flow_reshape(m, bias, 1, dims);
}

/* y + beta C */
static rg_status add_c(rg_import *m, const rg_proto_node *node, double beta, rg_flow *y)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    rg_flow c, sum;
    desc.secondary_scale = beta;
    RG_TRY(rg_import_plain(m, node, 2, &c));
    RG_TRY(rg_flow_widen(m, &c, 2));
    const rg_flow *x[] = { y, &c };
    RG_TRY(rg_import_apply(m, "arithmetic", &desc, x, 2, &sum, 1));
    *y = sum;
    return RG_OK;
}

rg_status rg_convert_gemm(rg_import *m, const rg_proto_node *node)
{
    rg_dense_desc desc = rg_dense_desc_default();
    double beta = 1;
    bool transpose_a = false, transpose_b = false, swapped = false, has_c = rg_node_has(node, 2);
    rg_flow a, b, c, y;
    RG_TRY(rg_attribute_float(node, "alpha", &desc.alpha));
    RG_TRY(rg_attribute_float(node, "beta", &beta));
    RG_TRY(rg_attribute_bool(node, "transA", &transpose_a));
    RG_TRY(rg_attribute_bool(node, "transB", &transpose_b));
    RG_TRY(take_matrix(m, node, 0, &a, &swapped));
    RG_TRY(rg_flow_reorder(m, &a,
                           transpose_a ? (const int32_t[]){ 1, 0 } : (const int32_t[]){ 0, 1 }));
    RG_TRY(take_matrix(m, node, 1, &b, &swapped));
    desc.layout = transpose_b != swapped ? RG_DENSE_OUT_IN : RG_DENSE_IN_OUT;
    desc.bias = false;
    if (has_c && beta == 1)
        RG_TRY(take_bias(m, node, b.shape[0].dims[desc.layout == RG_DENSE_OUT_IN ? 0 : 1], &c,
                         &desc.bias));
    const rg_flow *x[] = { &a, &b, &c };
    RG_TRY(rg_import_apply(m, "dense", &desc, x, desc.bias ? 3 : 2, &y, 1));
    rg_flow_plain_order(&y);
    if (has_c && !desc.bias && beta != 0)
        RG_TRY(add_c(m, node, beta, &y));
    return rg_import_define(m, node, 0, &y);
}

/* Whether the last two dimensions are swapped and all others in their places. */
static bool swaps_last(const rg_flow *flow)
{
    const int32_t rank = rg_flow_rank(flow);
    for (int32_t d = 0; d < rank - 2; d++) {
        if (flow->order[d] != d)
            return false;
    }
    return rank >= 2 && flow->order[rank - 1] == rank - 2;
}

static rg_status take_stack(rg_import *m, const rg_proto_node *node, size_t input, rg_flow *flow,
                            bool *swapped)
{
    RG_TRY(rg_import_any(m, node, input, flow));
    *swapped = swaps_last(flow);
    if (!*swapped)
        RG_TRY(rg_import_plain(m, node, input, flow));
    return RG_OK;
}

/* A vector as the first factor is a row, as the second a column; the dimension of 1 is left out in
 * the end. */
static rg_status with_vector(rg_import *m, const rg_proto_node *node)
{
    rg_matmul_desc desc = rg_matmul_desc_default();
    rg_flow x[2], y;
    const rg_flow *inputs[] = { &x[0], &x[1] };
    bool dropped[RG_MAX_RANK] = { false }, vector[2];
    for (size_t i = 0; i < 2; i++) {
        int64_t dims[RG_PROBES][RG_MAX_RANK];
        RG_TRY(rg_import_plain(m, node, i, &x[i]));
        vector[i] = rg_flow_rank(&x[i]) == 1;
        RG_CHECK(rg_flow_rank(&x[i]) > 0, RG_MALFORMED, "input %zu is a number", i);
        for (int32_t p = 0; p < RG_PROBES; p++) {
            dims[p][i] = 1; /* (1, k) and (k, 1) */
            dims[p][1 - i] = x[i].shape[p].dims[0];
        }
        if (vector[i])
            RG_TRY(rg_flow_reshape(m, &x[i], 2, dims));
    }
    RG_TRY(rg_import_apply(m, "matmul", &desc, inputs, 2, &y, 1));
    rg_flow_plain_order(&y);
    dropped[rg_flow_rank(&y) - 2] = vector[0];
    dropped[rg_flow_rank(&y) - 1] = vector[1];
    RG_TRY(rg_flow_drop(m, &y, dropped));
    return rg_import_define(m, node, 0, &y);
}

rg_status rg_convert_matmul(rg_import *m, const rg_proto_node *node)
{
    rg_known *a = NULL, *b = NULL;
    rg_flow x, w, y;
    const rg_flow *inputs[] = { &x, &w };
    bool swapped = false;
    RG_TRY(rg_import_known(m, node, 0, &a));
    RG_TRY(rg_import_known(m, node, 1, &b));
    if (a->shape[0].rank < 2 || b->shape[0].rank < 2)
        return with_vector(m, node);
    if (b->shape[0].rank == 2) {
        rg_dense_desc desc = rg_dense_desc_default();
        RG_TRY(rg_import_plain(m, node, 0, &x));
        RG_TRY(take_matrix(m, node, 1, &w, &swapped));
        desc.layout = swapped ? RG_DENSE_OUT_IN : RG_DENSE_IN_OUT;
        desc.bias = false;
        RG_TRY(rg_import_apply(m, "dense", &desc, inputs, 2, &y, 1));
    } else {
        rg_matmul_desc desc = rg_matmul_desc_default();
        RG_TRY(take_stack(m, node, 0, &x, &desc.transpose_a));
        RG_TRY(take_stack(m, node, 1, &w, &desc.transpose_b));
        RG_TRY(rg_import_apply(m, "matmul", &desc, inputs, 2, &y, 1));
    }
    rg_flow_plain_order(&y);
    return rg_import_define(m, node, 0, &y);
}
