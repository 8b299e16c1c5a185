/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Operators along an axis, whatever the order of the dimensions: concatenation, slices, padding,
 * softmax. */
#include "onnx/import.h"

#include "core/shape.h"

#include <retrograde/nodes.h>

#include <string.h>

/* ---- concatenation ---- */

rg_status rg_flow_concat(rg_import *m, const rg_flow x[], int32_t count, int32_t axis, rg_flow *y)
{
    rg_concat_desc desc = rg_concat_desc_default();
    const rg_flow *inputs[RG_MOST_SOURCES];
    for (int32_t i = 0; i < count; i++)
        inputs[i] = &x[i];
    desc.sources = count;
    desc.axis = rg_flow_axis(&x[0], axis);
    return rg_import_apply(m, "concat", &desc, inputs, count, y, 1);
}

/* *like becomes an input with a dimension that depends on the batch. */
static rg_status find_batch(rg_import *m, const rg_proto_node *node, size_t input, rg_flow *like)
{
    rg_known *known = NULL;
    RG_TRY(rg_import_known(m, node, input, &known));
    if (known->has_flow && !rg_shape_same_dims(&known->shape[0], &known->shape[1]))
        *like = known->flow;
    return RG_OK;
}

rg_status rg_convert_concat(rg_import *m, const rg_proto_node *node)
{
    int64_t axis = 0;
    int32_t along, count = 1;
    rg_flow x[RG_MOST_SOURCES], y, like;
    RG_CHECK(rg_attribute_find(node, "axis") != NULL, RG_MALFORMED, "attribute 'axis' is missing");
    RG_TRY(rg_attribute_int(node, "axis", &axis));
    RG_TRY(rg_import_any(m, node, 0, &x[0]));
    RG_TRY(rg_axis("attribute 'axis'", axis, rg_flow_rank(&x[0]), &along));
    like = x[0];
    for (size_t i = 1; i < node->input_count && m->file_batch > 0; i++)
        RG_TRY(find_batch(m, node, i, &like));
    RG_TRY(rg_import_open_concat(m, &like, along, &x[0]));
    for (size_t i = 1; i < node->input_count; i++) {
        if (count ==
            RG_MOST_SOURCES) { /* what there is so far becomes the first of the next ones */
            RG_TRY(rg_flow_concat(m, x, count, along, &y));
            x[0] = y;
            count = 1;
        }
        rg_known *known = NULL;
        RG_TRY(rg_import_known(m, node, i, &known));
        RG_CHECK(known->shape[0].rank == rg_flow_rank(&x[0]), RG_MALFORMED,
                 "input %zu has %d dimensions, but input 0 has %d", i, known->shape[0].rank,
                 rg_flow_rank(&x[0]));
        RG_TRY(rg_import_ordered(m, node, i, x[0].order, &x[count]));
        RG_TRY(rg_import_open_concat(m, &like, along, &x[count++]));
    }
    RG_TRY(rg_flow_concat(m, x, count, along, &y));
    return rg_import_define(m, node, 0, &y);
}

/* ---- slices ---- */

rg_status rg_flow_cut(rg_import *m, const rg_flow *x, int32_t axis, int64_t start, int64_t length,
                      int64_t step, rg_flow *y)
{
    rg_slice_desc desc = rg_slice_desc_default();
    const int32_t d = rg_flow_axis(x, axis);
    desc.start_count = desc.length_count = desc.step_count = d + 1;
    for (int32_t i = 0; i <= d; i++) {
        desc.start[i] = i == d ? start : 0;
        desc.length[i] = i == d ? length : -1;
        desc.step[i] = i == d ? step : 1;
    }
    return rg_import_apply(m, "slice", &desc, &x, 1, y, 1);
}

static int64_t clamped(int64_t value, int64_t length)
{
    value += value < 0 ? length : 0;
    return value < 0 ? 0 : value > length ? length : value;
}

/* Backwards: elements one by one, joined. */
static rg_status flip_axis(rg_import *m, rg_flow *x, int32_t axis, int64_t start, int64_t end,
                           int64_t step)
{
    enum { MOST_FLIPPED = 64 };
    const int32_t d = rg_flow_axis(x, axis);
    const int64_t length = x->shape[0].dims[d];
    rg_array indices;
    int64_t count;
    RG_CHECK(length == x->shape[1].dims[d], RG_UNSUPPORTED,
             "a slice of a dimension that depends on the size of the batch is not covered");
    rg_slice_range(length, step, &start, end, &count);
    RG_CHECK(count >= 1 && count <= MOST_FLIPPED, RG_UNSUPPORTED,
             "a step of %lld for %lld elements is not covered; 1 to %d are", (long long)step,
             (long long)count, MOST_FLIPPED);
    RG_TRY(rg_array_create(m, RG_ONNX_INT64, 1, &count, false, &indices));
    for (int64_t i = 0; i < count; i++)
        indices.data[i].i = start + i * step;
    return rg_flow_pick(m, &indices, axis, length, x);
}

static rg_status cut_axis(rg_import *m, rg_flow *x, int32_t axis, int64_t start, int64_t end,
                          int64_t step)
{
    rg_flow y;
    const int32_t d = rg_flow_axis(x, axis);
    const int64_t length = x->shape[0].dims[d], other = x->shape[1].dims[d];
    RG_CHECK(step != 0 && step != INT64_MIN, RG_MALFORMED, "a step is 0");
    if (step < 0)
        return flip_axis(m, x, axis, start, end, step);
    const int64_t first = clamped(start, length), last = clamped(end, length);
    if (first == 0 && step == 1 && last == length && clamped(end, other) == other)
        return RG_OK;
    RG_CHECK(length == other, RG_UNSUPPORTED,
             "a slice of a dimension that depends on the size of the batch is not covered");
    const int64_t count = last > first ? (last - first - 1) / step + 1 : 0;
    RG_TRY(rg_flow_cut(m, x, axis, first, count, count > 1 ? step : 1, &y));
    *x = y;
    return RG_OK;
}

rg_status rg_convert_slice(rg_import *m, const rg_proto_node *node)
{
    int64_t starts[RG_MAX_RANK], ends[RG_MAX_RANK], axes[RG_MAX_RANK], steps[RG_MAX_RANK];
    int32_t count, end_count, axis_count, step_count;
    rg_flow x;
    RG_TRY(rg_import_list(m, node, "starts", 1, starts, &count));
    RG_TRY(rg_import_list(m, node, "ends", 2, ends, &end_count));
    RG_TRY(rg_import_list(m, node, "axes", 3, axes, &axis_count));
    RG_TRY(rg_import_list(m, node, "steps", 4, steps, &step_count));
    RG_CHECK(count >= 0 && end_count == count && (axis_count < 0 || axis_count == count) &&
                 (step_count < 0 || step_count == count),
             RG_MALFORMED, "starts, ends, axes and steps must have one length");
    RG_TRY(rg_import_any(m, node, 0, &x));
    for (int32_t i = 0; i < count; i++) {
        int32_t axis = 0;
        RG_TRY(rg_axis("an axis", axis_count < 0 ? i : axes[i], rg_flow_rank(&x), &axis));
        RG_TRY(cut_axis(m, &x, axis, starts[i], ends[i], step_count < 0 ? 1 : steps[i]));
    }
    return rg_import_define(m, node, 0, &x);
}

rg_status rg_convert_split(rg_import *m, const rg_proto_node *node)
{
    int64_t axis = 0, parts[64], start = 0;
    int32_t along, count = -1;
    rg_flow x;
    RG_TRY(rg_attribute_int(node, "axis", &axis));
    if (rg_node_has(node, 1))
        RG_TRY(rg_import_ints(m, node, 1, parts, 64, &count));
    else
        RG_TRY(rg_attribute_ints(node, "split", parts, 64, &count));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(rg_axis("attribute 'axis'", axis, rg_flow_rank(&x), &along));
    const int64_t length = x.shape[0].dims[rg_flow_axis(&x, along)];
    const int64_t outputs = (int64_t)node->output_count;
    RG_CHECK(length == x.shape[1].dims[rg_flow_axis(&x, along)], RG_UNSUPPORTED,
             "splitting a dimension that depends on the size of the batch is not covered");
    RG_CHECK(outputs > 0 && outputs <= 64, RG_UNSUPPORTED, "%lld outputs are not covered",
             (long long)outputs);
    for (int64_t i = 0; i < outputs && count < 0; i++) {
        const int64_t part = (length + outputs - 1) / outputs;
        parts[i] = i + 1 < outputs ? part : length - part * (outputs - 1);
    }
    RG_CHECK(count < 0 || count == outputs, RG_MALFORMED, "'split' has %d entries for %lld outputs",
             count, (long long)outputs);
    for (int64_t i = 0; i < outputs; i++) {
        rg_flow y;
        RG_CHECK(parts[i] >= 0 && parts[i] <= length - start, RG_MALFORMED,
                 "the parts do not sum to the length of the axis, %lld", (long long)length);
        RG_TRY(rg_flow_cut(m, &x, along, start, parts[i], 1, &y));
        RG_TRY(rg_import_define(m, node, (size_t)i, &y));
        start += parts[i];
    }
    RG_CHECK(start == length, RG_MALFORMED, "the parts do not sum to the length of the axis, %lld",
             (long long)length);
    return RG_OK;
}

/* ---- padding ---- */

rg_status rg_convert_pad(rg_import *m, const rg_proto_node *node)
{
    rg_onnx_call *call = NULL;
    rg_flow x;
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *call, &call));
    RG_TRY(rg_import_call(m, node, call));
    RG_TRY(rg_import_any(m, node, 0, &x));
    const rg_pad_desc *given = (const rg_pad_desc *)call->desc; /* in the order of the file */
    rg_pad_desc desc = *given;
    const int32_t rank = rg_flow_rank(&x), more = 4 - rank;
    const rg_flow kept = x;
    for (int32_t d = 0; d < rank; d++) {
        desc.before[more + d] = given->before[more + x.order[d]];
        desc.after[more + d] = given->after[more + x.order[d]];
    }
    RG_TRY(rg_flow_widen(m, &x, 4));
    RG_TRY(rg_flow_apply(m, "pad", &desc, &x));
    for (int32_t p = 0; p < RG_PROBES; p++)
        memcpy(dims[p], x.shape[p].dims + more, sizeof(int64_t) * (size_t)rank);
    RG_TRY(rg_flow_reshape(m, &x, rank, dims));
    memcpy(x.order, kept.order, sizeof x.order);
    return rg_import_define(m, node, 0, &x);
}

/* ---- softmax ---- */

rg_status rg_convert_softmax(rg_import *m, const rg_proto_node *node)
{
    rg_softmax_desc desc = rg_softmax_desc_default();
    const bool old = m->model->opset < 13;
    int64_t axis = old ? 1 : -1;
    int32_t along, longer = 0;
    rg_flow x;
    RG_TRY(rg_attribute_int(node, "axis", &axis));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(rg_axis("attribute 'axis'", axis, rg_flow_rank(&x), &along));
    for (int32_t d = along; d < rg_flow_rank(&x) && (d == along || old); d++)
        RG_TRY(rg_import_within_image(m, &x, d));
    for (int32_t d = 0; d < rg_flow_rank(&x); d++)
        longer += x.order[d] > along && x.shape[0].dims[d] > 1;
    desc.kind = node->type[0] == 'L' ? RG_SOFTMAX_LOG : RG_SOFTMAX_PLAIN;
    if (old && longer > 0) { /* over several dimensions, which must be the last ones */
        RG_TRY(rg_import_plain(m, node, 0, &x));
        desc.flatten = true;
    }
    desc.axis = rg_flow_axis(&x, along);
    RG_TRY(rg_flow_apply(m, "softmax", &desc, &x));
    return rg_import_define(m, node, 0, &x);
}
