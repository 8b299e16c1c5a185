/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Flows: nodes of ours with shapes for both probes, and dimensions in other orders. */
#include "onnx/import.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <retrograde/nodes.h>

#include <string.h>

int32_t rg_flow_rank(const rg_flow *flow)
{
    return flow->shape[0].rank;
}

void rg_flow_dims(const rg_flow *flow, int32_t probe, int64_t dims[])
{
    for (int32_t d = 0; d < rg_flow_rank(flow); d++)
        dims[flow->order[d]] = flow->shape[probe].dims[d];
}

int32_t rg_flow_axis(const rg_flow *flow, int32_t axis)
{
    for (int32_t d = 0; d < rg_flow_rank(flow); d++) {
        if (flow->order[d] == axis)
            return d;
    }
    return 0;
}

void rg_flow_plain_order(rg_flow *flow)
{
    for (int32_t d = 0; d < RG_MAX_RANK; d++)
        flow->order[d] = d;
}

void rg_channels_last_order(int32_t rank, int32_t order[])
{
    for (int32_t d = 0; d < rank; d++)
        order[d] = d == 0 || rank < 3 ? d : d == rank - 1 ? 1 : d + 1;
}

int64_t rg_flow_last(const rg_flow *flow)
{
    const rg_tensor_desc *shape = &flow->shape[0];
    return shape->rank > 0 ? shape->dims[shape->rank - 1] : 1;
}

/* ---- nodes ---- */

rg_status rg_import_apply(rg_import *m, const char *op, const void *desc, const rg_flow *const x[],
                          int32_t count, rg_flow y[], int32_t outputs)
{
    const rg_flow first = *x[0]; /* y may be x */
    rg_value *values[RG_MAX_INPUTS] = { NULL };
    rg_tensor_desc shapes[RG_MAX_INPUTS], made[RG_MAX_OUTPUTS];
    RG_CHECK(rg_dtype_is_data(first.shape[0].dtype), RG_UNSUPPORTED,
             "values of type %s are not covered",
             rg_onnx_type_name(rg_onnx_type_of(first.shape[0].dtype)));
    for (int32_t i = 0; i < count; i++)
        values[i] = x[i]->value;
    rg_node *node = rg_graph_apply(m->graph, op, desc, values, (size_t)count);
    RG_TRY(rg_graph_status(m->graph));
    for (int32_t probe = 0; probe < RG_PROBES; probe++) {
        for (int32_t i = 0; i < count; i++)
            shapes[i] = x[i]->shape[probe];
        RG_TRY(node->op->shapes(node->desc, shapes, made));
        for (int32_t j = 0; j < node->outputs && j < outputs; j++) {
            y[j].shape[probe] = made[j];
            RG_TRY(rg_shape_check(&made[j], op, NULL));
        }
    }
    for (int32_t j = 0; j < node->outputs && j < outputs; j++) {
        y[j].value = node->out[j];
        rg_flow_plain_order(&y[j]);
        if (rg_flow_rank(&y[j]) == rg_flow_rank(&first))
            memcpy(y[j].order, first.order, sizeof first.order);
    }
    return RG_OK;
}

rg_status rg_flow_apply(rg_import *m, const char *op, const void *desc, rg_flow *flow)
{
    const rg_flow x = *flow;
    const rg_flow *input = &x;
    return rg_import_apply(m, op, desc, &input, 1, flow, 1);
}

/* ---- shapes ---- */

/* Whether dimension d of `to` is that of `from` in every probe. */
static bool keeps(const rg_flow *from, int64_t dims[RG_PROBES][RG_MAX_RANK], int32_t d)
{
    for (int32_t p = 0; p < RG_PROBES; p++) {
        if (d >= rg_flow_rank(from) || from->shape[p].dims[d] != dims[p][d])
            return false;
    }
    return true;
}

/* Dimensions that depend on the batch: one may be -1, others are those of the source at the same
 * index. */
static rg_status fill_reshape(const rg_flow *flow, int32_t rank,
                              int64_t dims[RG_PROBES][RG_MAX_RANK], rg_reshape_desc *desc)
{
    bool open = false;
    desc->dims_count = rank;
    for (int32_t d = 0; d < rank; d++) {
        desc->dims[d] = dims[0][d];
        if (dims[0][d] == dims[1][d])
            continue;
        if (keeps(flow, dims, d)) {
            desc->dims[d] = 0;
            desc->zero_keeps = true;
            continue;
        }
        RG_CHECK(!open, RG_UNSUPPORTED,
                 "two dimensions of the result depend on the size of the batch");
        open = true;
        desc->dims[d] = -1;
    }
    for (int32_t d = 0; d < rank && desc->zero_keeps; d++)
        RG_CHECK(dims[0][d] != 0 && dims[1][d] != 0, RG_UNSUPPORTED,
                 "an empty tensor depends on the size of the batch");
    return RG_OK;
}

rg_status rg_flow_reshape(rg_import *m, rg_flow *flow, int32_t rank,
                          int64_t dims[RG_PROBES][RG_MAX_RANK])
{
    bool same = rank == rg_flow_rank(flow);
    for (int32_t d = 0; d < rank && same; d++)
        same = keeps(flow, dims, d);
    if (!same) {
        rg_reshape_desc desc = rg_reshape_desc_default();
        RG_TRY(fill_reshape(flow, rank, dims, &desc));
        RG_TRY(rg_flow_apply(m, "reshape", &desc, flow));
    }
    rg_flow_plain_order(flow);
    return RG_OK;
}

rg_status rg_flow_widen(rg_import *m, rg_flow *flow, int32_t rank)
{
    const int32_t old = rg_flow_rank(flow), more = rank - old;
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    int32_t order[RG_MAX_RANK];
    if (more <= 0)
        return RG_OK;
    for (int32_t d = 0; d < rank; d++) {
        order[d] = d < more ? d : flow->order[d - more] + more;
        for (int32_t p = 0; p < RG_PROBES; p++)
            dims[p][d] = d < more ? 1 : flow->shape[p].dims[d - more];
    }
    RG_TRY(rg_flow_reshape(m, flow, rank, dims));
    memcpy(flow->order, order, sizeof(int32_t) * (size_t)rank);
    return RG_OK;
}

void rg_flow_order_without(const rg_flow *x, const bool dropped[], int32_t order[])
{
    int32_t count = 0, before[RG_MAX_RANK], seen = 0;
    for (int32_t d = 0; d < rg_flow_rank(x); d++) {
        before[d] = seen;
        seen += !dropped[d];
    }
    for (int32_t d = 0; d < rg_flow_rank(x); d++) {
        if (!dropped[x->order[d]])
            order[count++] = before[x->order[d]];
    }
}

rg_status rg_flow_drop(rg_import *m, rg_flow *flow, const bool dropped[])
{
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    int32_t order[RG_MAX_RANK], rank = 0;
    rg_flow_order_without(flow, dropped, order);
    for (int32_t d = 0; d < rg_flow_rank(flow); d++) {
        if (dropped[flow->order[d]])
            continue;
        for (int32_t p = 0; p < RG_PROBES; p++)
            dims[p][rank] = flow->shape[p].dims[d];
        rank++;
    }
    RG_TRY(rg_flow_reshape(m, flow, rank, dims));
    memcpy(flow->order, order, sizeof(int32_t) * (size_t)rank);
    return RG_OK;
}

/* The dimensions longer than 1 in an order; returns how many. */
static int32_t long_dims(const rg_flow *flow, const int32_t order[], int32_t kept[])
{
    int64_t a[RG_MAX_RANK], b[RG_MAX_RANK];
    int32_t count = 0;
    rg_flow_dims(flow, 0, a);
    rg_flow_dims(flow, 1, b);
    for (int32_t d = 0; d < rg_flow_rank(flow); d++) {
        if (a[order[d]] != 1 || b[order[d]] != 1)
            kept[count++] = order[d];
    }
    return count;
}

/* Changes the order by a reshape where only dimensions of 1 move, else by a transpose. */
rg_status rg_flow_reorder(rg_import *m, rg_flow *flow, const int32_t order[])
{
    const int32_t rank = rg_flow_rank(flow);
    int32_t now[RG_MAX_RANK], then[RG_MAX_RANK];
    if (memcmp(flow->order, order, sizeof(int32_t) * (size_t)rank) == 0)
        return RG_OK;
    const int32_t count = long_dims(flow, flow->order, now);
    long_dims(flow, order, then);
    if (memcmp(now, then, sizeof(int32_t) * (size_t)count) == 0) {
        int64_t file[RG_PROBES][RG_MAX_RANK], dims[RG_PROBES][RG_MAX_RANK];
        for (int32_t p = 0; p < RG_PROBES; p++) {
            rg_flow_dims(flow, p, file[p]);
            for (int32_t d = 0; d < rank; d++)
                dims[p][d] = file[p][order[d]];
        }
        RG_TRY(rg_flow_reshape(m, flow, rank, dims));
    } else {
        rg_transpose_desc desc = rg_transpose_desc_default();
        desc.order_count = rank;
        for (int32_t d = 0; d < rank; d++)
            desc.order[d] = rg_flow_axis(flow, order[d]);
        RG_TRY(rg_flow_apply(m, "transpose", &desc, flow));
    }
    memcpy(flow->order, order, sizeof(int32_t) * (size_t)rank);
    return RG_OK;
}

/* ---- two flows ---- */

void rg_fitting_order(const int32_t order[], int32_t rank, int32_t own, int32_t fitting[])
{
    int32_t count = 0;
    for (int32_t d = 0; d < rank; d++) {
        if (order[d] >= rank - own)
            fitting[count++] = order[d] - (rank - own);
    }
}

rg_status rg_flow_align(rg_import *m, rg_flow *first, rg_flow *second)
{
    const int32_t own = rg_flow_rank(second), mine = rg_flow_rank(first);
    const int32_t rank = own > mine ? own : mine;
    RG_TRY(rg_flow_widen(m, first, rank));
    RG_TRY(rg_flow_widen(m, second, rank));
    return rg_flow_reorder(m, second, first->order);
}

rg_status rg_import_beside(rg_import *m, const rg_proto_node *node, size_t input, rg_flow *first,
                           rg_flow *second)
{
    rg_known *other = NULL;
    int32_t order[RG_MAX_RANK];
    RG_TRY(rg_import_known(m, node, input, &other));
    const int32_t own = other->shape[0].rank, mine = rg_flow_rank(first);
    const int32_t rank = own > mine ? own : mine;
    RG_TRY(rg_flow_widen(m, first, rank));
    rg_fitting_order(first->order, rank, own, order);
    if (other->has_flow || !rg_known_is_constant(other))
        RG_TRY(rg_import_any(m, node, input, second));
    else
        RG_TRY(rg_import_ordered(m, node, input, order, second));
    return rg_flow_align(m, first, second);
}

/* ---- ops that several operators use ---- */

rg_status rg_flow_neuron(rg_import *m, rg_flow *flow, rg_neuron_kind kind, const double numbers[],
                         int32_t count)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    desc.kind = kind;
    desc.has_a = count > 0;
    desc.has_b = count > 1;
    desc.has_c = count > 2;
    desc.a = count > 0 ? numbers[0] : 0;
    desc.b = count > 1 ? numbers[1] : 0;
    desc.c = count > 2 ? numbers[2] : 0;
    return rg_flow_apply(m, "neuron", &desc, flow);
}

rg_status rg_flow_arithmetic(rg_import *m, rg_arithmetic_kind kind, const rg_flow *a,
                             const rg_flow *b, rg_flow *y)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    const rg_flow *x[] = { a, b };
    const int32_t *order = rg_flow_rank(a) >= rg_flow_rank(b) ? a->order : b->order;
    int32_t kept[RG_MAX_RANK];
    memcpy(kept, order, sizeof kept);
    desc.kind = kind;
    RG_TRY(rg_import_apply(m, "arithmetic", &desc, x, 2, y, 1));
    memcpy(y->order, kept, sizeof kept);
    return RG_OK;
}
