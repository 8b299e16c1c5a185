/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Operators that repeat elements: Expand and Tile, by a sum with zeros that are broadcast. Zeros of
 * the size of the batch are a comparison of an input with itself. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

#include <string.h>

/* ---- zeros ---- */

/* No number is above itself, and no NaN. */
rg_status rg_flow_zeros(rg_import *m, const rg_flow *x, rg_flow *zeros)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    const rg_flow *inputs[] = { x, x };
    desc.kind = RG_ARITHMETIC_COMPARE;
    desc.comparison = RG_COMPARE_GREATER;
    RG_TRY(rg_import_apply(m, "arithmetic", &desc, inputs, 2, zeros, 1));
    return rg_value_stop_gradient(zeros->value);
}

/* The first input of floating-point numbers with an open batch. */
static const rg_known *batch_input(const rg_import *m)
{
    for (size_t i = 0; i < m->model->input_count; i++) {
        const rg_known *known = rg_names_find(&m->names, m->model->inputs[i].name);
        if (known != NULL && !rg_type_is_integer(known->type) && known->shape[0].rank > 0 &&
            known->shape[0].dims[0] != known->shape[1].dims[0])
            return known;
    }
    return NULL;
}

/* Zeros of shape (n). */
static rg_status make_batch_zeros(rg_import *m)
{
    rg_slice_desc desc = rg_slice_desc_default();
    const rg_known *known = batch_input(m);
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    rg_flow x;
    if (m->batch_zeros.value != NULL)
        return RG_OK;
    RG_CHECK(known != NULL, RG_UNSUPPORTED,
             "it expands to the size of the batch, which no input gives");
    const char *name = known->name;
    const rg_proto_node node = { .inputs = &name, .input_count = 1 };
    RG_TRY(rg_import_any(m, &node, 0, &x));
    const int32_t rank = rg_flow_rank(&x);
    desc.start_count = desc.length_count = desc.step_count = rank;
    for (int32_t d = 0; d < rank; d++) {
        RG_CHECK(x.shape[0].dims[d] > 0, RG_UNSUPPORTED, "input '%.80s' has no elements",
                 known->name);
        desc.length[d] = x.order[d] == 0 ? -1 : 1;
        desc.step[d] = 1;
    }
    RG_TRY(rg_flow_apply(m, "slice", &desc, &x));
    for (int32_t p = 0; p < RG_PROBES; p++)
        dims[p][0] = known->shape[p].dims[0];
    RG_TRY(rg_flow_reshape(m, &x, 1, dims));
    return rg_flow_zeros(m, &x, &m->batch_zeros);
}

/* Adds zeros of the given lengths, in the order of the graph, which are constants. */
static rg_status add_zeros(rg_import *m, rg_flow *flow, const int64_t lengths[])
{
    rg_array *array = NULL;
    rg_flow zeros;
    int32_t plain[RG_MAX_RANK];
    const int32_t rank = rg_flow_rank(flow);
    for (int32_t d = 0; d < rank; d++)
        plain[d] = d;
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *array, &array));
    RG_TRY(rg_array_create(m, rg_onnx_type_of(flow->shape[0].dtype), rank, lengths, true, array));
    array->data[0].f = 0;
    RG_TRY(rg_import_constant(m, array, plain, &zeros));
    memcpy(zeros.order, flow->order, sizeof zeros.order);
    return rg_flow_arithmetic(m, RG_ARITHMETIC_ADD, flow, &zeros, flow);
}

static rg_status add_batch_zeros(rg_import *m, rg_flow *flow, int32_t at)
{
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    RG_TRY(make_batch_zeros(m));
    rg_flow zeros = m->batch_zeros;
    for (int32_t d = 0; d < rg_flow_rank(flow); d++) {
        for (int32_t p = 0; p < RG_PROBES; p++)
            dims[p][d] = d == at ? zeros.shape[p].dims[0] : 1;
    }
    RG_TRY(rg_flow_reshape(m, &zeros, rg_flow_rank(flow), dims));
    memcpy(zeros.order, flow->order, sizeof zeros.order);
    return rg_flow_arithmetic(m, RG_ARITHMETIC_ADD, flow, &zeros, flow);
}

/* ---- Expand ---- */

rg_status rg_flow_expand(rg_import *m, rg_flow *flow, int32_t rank,
                         int64_t dims[RG_PROBES][RG_MAX_RANK])
{
    const int32_t own = rg_flow_rank(flow), all = own > rank ? own : rank;
    int64_t lengths[RG_MAX_RANK];
    bool any = false;
    RG_TRY(rg_flow_widen(m, flow, all));
    for (int32_t d = 0; d < all; d++) {
        const int32_t axis = flow->order[d] - (all - rank);
        const int64_t a = flow->shape[0].dims[d], b = flow->shape[1].dims[d];
        const int64_t to = axis < 0 ? 1 : dims[0][axis], other = axis < 0 ? 1 : dims[1][axis];
        lengths[d] = 1;
        if ((to == 1 && other == 1) || (to == a && other == b))
            continue;
        RG_CHECK(a == 1 && b == 1 && to >= 0, RG_MALFORMED,
                 "dimension %d of length %lld does not become %lld", flow->order[d], (long long)a,
                 (long long)to);
        if (to == other) {
            lengths[d] = to;
            any = true;
            continue;
        }
        RG_TRY(make_batch_zeros(m));
        RG_CHECK(to == m->batch_zeros.shape[0].dims[0] && other == m->batch_zeros.shape[1].dims[0],
                 RG_UNSUPPORTED, "dimension %d becomes a multiple of the batch", flow->order[d]);
        RG_TRY(add_batch_zeros(m, flow, d));
    }
    return any ? add_zeros(m, flow, lengths) : RG_OK;
}

rg_status rg_convert_expand(rg_import *m, const rg_proto_node *node)
{
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    int32_t rank = 0;
    rg_flow x;
    RG_TRY(rg_import_shape(m, node, 1, dims, &rank));
    RG_TRY(rg_import_any(m, node, 0, &x));
    rg_import_open_expand(m, &x, rank, dims);
    RG_TRY(rg_flow_expand(m, &x, rank, dims));
    return rg_import_define(m, node, 0, &x);
}

/* ---- Tile ---- */

/* One axis: a dimension of 1 in front of it, which is repeated, and both are joined. */
static rg_status repeat(rg_import *m, rg_flow *x, int32_t axis, const int64_t times[RG_PROBES])
{
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    const int32_t rank = rg_flow_rank(x), at = rg_flow_axis(x, axis);
    RG_CHECK(rank < RG_MAX_RANK, RG_UNSUPPORTED, "a tensor of %d dimensions is not covered", rank);
    int32_t order[RG_MAX_RANK];
    memcpy(order, x->order, sizeof order);
    for (int32_t p = 0; p < RG_PROBES; p++) {
        for (int32_t d = 0; d <= rank; d++)
            dims[p][d] = d == at ? 1 : x->shape[p].dims[d - (d > at)];
    }
    RG_TRY(rg_flow_reshape(m, x, rank + 1, dims));
    for (int32_t p = 0; p < RG_PROBES; p++)
        dims[p][at] = times[p];
    RG_TRY(rg_flow_expand(m, x, rank + 1, dims));
    for (int32_t p = 0; p < RG_PROBES; p++) {
        for (int32_t d = 0; d < rank; d++)
            dims[p][d] = d == at ? dims[p][at] * dims[p][at + 1] : dims[p][d + (d > at)];
    }
    RG_TRY(rg_flow_reshape(m, x, rank, dims));
    memcpy(x->order, order, sizeof order);
    return RG_OK;
}

rg_status rg_convert_tile(rg_import *m, const rg_proto_node *node)
{
    int64_t repeats[RG_PROBES][RG_MAX_RANK];
    int32_t count = 0;
    rg_flow x;
    RG_TRY(rg_import_shape(m, node, 1, repeats, &count));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_CHECK(count == rg_flow_rank(&x), RG_MALFORMED, "'repeats' has %d entries for %d dimensions",
             count, rg_flow_rank(&x));
    for (int32_t d = 0; d < count; d++) {
        const int64_t times[RG_PROBES] = { repeats[0][d], repeats[1][d] };
        for (int32_t p = 0; p < RG_PROBES; p++)
            RG_CHECK(times[p] >= 0 && times[p] <= INT32_MAX, RG_MALFORMED,
                     "entry %d of 'repeats' is %lld", d, (long long)times[p]);
        if (times[0] != 1 || times[1] != 1)
            RG_TRY(repeat(m, &x, d, times));
    }
    return rg_import_define(m, node, 0, &x);
}
