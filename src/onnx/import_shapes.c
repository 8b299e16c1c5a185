/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Operators on shapes: names for the same value, reshapes, and transposes, which change the order
 * of a flow and cost nothing. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

#include <string.h>

rg_status rg_convert_identity(rg_import *m, const rg_proto_node *node)
{
    rg_known *known = NULL;
    RG_TRY(rg_import_known(m, node, 0, &known));
    return rg_import_define_same(m, node, 0, known);
}

/* CastLike of a constant to the type of a value. */
static rg_status cast_constant(rg_import *m, const rg_proto_node *node, const rg_known *known,
                               int32_t to)
{
    const rg_array like = { .type = to };
    const rg_array *x[2] = { NULL, &like };
    rg_array *y[RG_PROBES];
    for (int32_t p = 0; p < RG_PROBES; p++) {
        RG_TRY(rg_known_array(m, known, p, &x[0]));
        RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *y[p], &y[p]));
        RG_TRY(rg_fold_cast(m, node, x, y[p]));
    }
    return rg_import_define_array(m, node->outputs[0], y[0],
                                  known->array[0] == known->array[1] ? y[0] : y[1]);
}

static bool is_float(int64_t type)
{
    return type > 0 && type <= RG_ONNX_BFLOAT16 && !rg_type_is_integer((int32_t)type);
}

/* Integers that every type of floating-point numbers of 32 bits holds. */
static bool is_number(int32_t type)
{
    return type == RG_ONNX_UINT8 || type == RG_ONNX_INT8 || type == RG_ONNX_INT32 ||
           type == RG_ONNX_INT64;
}

/* An input of integers that the network reads as floating-point numbers: pixels, as a rule. */
static void become_float(rg_known *known, int32_t to)
{
    known->is_bytes = known->type == RG_ONNX_UINT8;
    known->type = to;
    for (int32_t p = 0; p < RG_PROBES; p++)
        rg_onnx_type_dtype(to, &known->shape[p].dtype);
}

rg_status rg_convert_cast(rg_import *m, const rg_proto_node *node)
{
    int64_t to = RG_ONNX_UNDEFINED;
    rg_known *known = NULL;
    RG_TRY(rg_attribute_int(node, "to", &to));
    if (strcmp(node->type, "CastLike") == 0) {
        RG_TRY(rg_import_known(m, node, 1, &known));
        to = known->type;
    }
    RG_TRY(rg_import_known(m, node, 0, &known));
    if (to != known->type && rg_known_is_constant(known) && !known->trained && !known->has_flow)
        return cast_constant(m, node, known, (int32_t)to);
    if (known->type == RG_ONNX_BOOL && known->has_flow && to > 0 && to <= RG_ONNX_BFLOAT16 &&
        (to == rg_onnx_type_of(known->flow.shape[0].dtype) ||
         (m->options.has_dtype && !rg_type_is_integer((int32_t)to))))
        return rg_import_define(m, node, 0, &known->flow); /* 1 or 0 as it is */
    const bool floats = !rg_type_is_integer(known->type) && is_float(to);
    const bool one = floats && m->options.has_dtype;
    const bool integers = known->has_flow && rg_type_is_integer(known->type) &&
                          known->type != RG_ONNX_BOOL &&
                          (to == RG_ONNX_INT32 || to == RG_ONNX_INT64);
    if (floats && !one && to != known->type) { /* which the import tries once more in one dtype */
        const bool wide = to == RG_ONNX_DOUBLE || known->type == RG_ONNX_DOUBLE;
        m->mixed = wide || m->mixed == RG_ONNX_DOUBLE ? RG_ONNX_DOUBLE : RG_ONNX_FLOAT;
    }
    if (known->kind == RG_KNOWN_SOURCE && !known->has_flow && is_number(known->type) &&
        is_float(to))
        become_float(known, (int32_t)to);
    RG_CHECK(to == known->type || one || integers, RG_UNSUPPORTED,
             "a conversion from %s to %s is not covered", rg_onnx_type_name(known->type),
             rg_onnx_type_name(to >= 0 && to < 64 ? (int32_t)to : -1));
    return rg_import_define_same(m, node, 0, known);
}

/* ---- constants ---- */

static rg_status list_constant(rg_import *m, const rg_proto_attribute *a, rg_array *array)
{
    const bool integer = a->type == RG_PROTO_INT || a->type == RG_PROTO_INTS;
    const bool list = a->type == RG_PROTO_INTS || a->type == RG_PROTO_FLOATS;
    const int64_t count = list ? (int64_t)a->count : 1;
    RG_CHECK(integer || a->type == RG_PROTO_FLOAT || a->type == RG_PROTO_FLOATS, RG_UNSUPPORTED,
             "attribute '%.80s' is not covered", a->name);
    RG_TRY(rg_array_create(m, integer ? RG_ONNX_INT64 : RG_ONNX_FLOAT, list ? 1 : 0, &count, false,
                           array));
    for (int64_t i = 0; i < count; i++) {
        if (integer)
            array->data[i].i = list ? a->ints[i] : a->i;
        else
            array->data[i].f = (double)(list ? a->floats[i] : a->f);
    }
    return RG_OK;
}

/* Weights may be constants: those of more than one element are trained. */
rg_status rg_convert_constant(rg_import *m, const rg_proto_node *node)
{
    RG_CHECK(node->attribute_count == 1 && node->output_count == 1, RG_MALFORMED,
             "it must have one attribute and one output");
    const rg_proto_attribute *a = &node->attributes[0];
    if (a->type == RG_PROTO_TENSOR) {
        rg_known *known = NULL;
        rg_dtype dtype = RG_I64;
        RG_TRY(rg_import_add(m, node->outputs[0], &known));
        rg_onnx_type_dtype(a->tensor->type, &dtype);
        known->kind = RG_KNOWN_TENSOR;
        known->tensor = a->tensor;
        known->type = a->tensor->type;
        known->trained =
            !rg_type_is_integer(known->type) && a->tensor->count > 1 && !a->tensor->constant;
        known->shape[0] = known->shape[1] =
            rg_tensor_desc_dense(dtype, a->tensor->rank, a->tensor->dims);
        return RG_OK;
    }
    rg_array *array = NULL;
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *array, &array));
    RG_TRY(list_constant(m, a, array));
    return rg_import_define_array(m, node->outputs[0], array, array);
}

/* Shape and Size: constants that may depend on the batch. */
rg_status rg_convert_shape(rg_import *m, const rg_proto_node *node)
{
    rg_known *known = NULL;
    rg_array *arrays[RG_PROBES];
    int64_t start = 0, end = RG_MAX_RANK;
    RG_TRY(rg_import_known(m, node, 0, &known));
    const int64_t rank = known->shape[0].rank;
    RG_TRY(rg_attribute_int(node, "start", &start));
    RG_TRY(rg_attribute_int(node, "end", &end));
    start = start < -rank ? 0 : start < 0 ? start + rank : start > rank ? rank : start;
    end = end < -rank ? 0 : end < 0 ? end + rank : end > rank ? rank : end;
    const int64_t count = end > start ? end - start : 0;
    const bool size = strcmp(node->type, "Size") == 0;
    bool same = true;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *arrays[p], &arrays[p]));
        RG_TRY(rg_array_create(m, RG_ONNX_INT64, size ? 0 : 1, &count, false, arrays[p]));
        if (size)
            arrays[p]->data[0].i = 1;
        for (int64_t d = 0; d < (size ? rank : count); d++) {
            if (size)
                arrays[p]->data[0].i *= known->shape[p].dims[d];
            else
                arrays[p]->data[d].i = known->shape[p].dims[start + d];
            same &= known->shape[0].dims[size ? d : start + d] ==
                    known->shape[1].dims[size ? d : start + d];
        }
    }
    return rg_import_define_array(m, node->outputs[0], arrays[0], arrays[same ? 0 : 1]);
}

/* ---- reshapes ---- */

/* Defines input 0 with these dimensions, in the order of the file. */
static rg_status define_reshaped(rg_import *m, const rg_proto_node *node, int32_t rank,
                                 int64_t dims[RG_PROBES][RG_MAX_RANK])
{
    rg_flow x;
    RG_TRY(rg_import_plain(m, node, 0, &x));
    RG_TRY(rg_flow_reshape(m, &x, rank, dims));
    return rg_import_define(m, node, 0, &x);
}

rg_status rg_resolve_shape(const rg_tensor_desc *x, bool allow_zero, int64_t shape[], int32_t rank)
{
    int64_t count = 1, known = 1;
    int32_t open = -1;
    for (int32_t d = 0; d < x->rank; d++)
        count *= x->dims[d];
    for (int32_t d = 0; d < rank; d++) {
        if (shape[d] == 0 && !allow_zero) {
            RG_CHECK(d < x->rank, RG_MALFORMED,
                     "entry %d of shape is 0, but there is no such "
                     "dimension",
                     d);
            shape[d] = x->dims[d];
        }
        RG_CHECK(shape[d] >= -1 && (shape[d] != -1 || open < 0), RG_MALFORMED,
                 "entry %d of shape is %lld", d, (long long)shape[d]);
        if (shape[d] == -1)
            open = d;
        else
            RG_CHECK(!__builtin_mul_overflow(known, shape[d], &known), RG_MALFORMED,
                     "the elements of shape overflow");
    }
    if (open >= 0) {
        RG_CHECK(known > 0 && count % known == 0, RG_MALFORMED,
                 "%lld elements cannot be divided by %lld", (long long)count, (long long)known);
        shape[open] = count / known;
        known *= shape[open];
    }
    RG_CHECK(known == count, RG_MALFORMED, "%lld elements do not become %lld", (long long)count,
             (long long)known);
    return RG_OK;
}

rg_status rg_convert_reshape(rg_import *m, const rg_proto_node *node)
{
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    int32_t rank = -1;
    bool allow_zero = false, opened = false;
    rg_known *known = NULL, *shape = NULL;
    RG_TRY(rg_attribute_bool(node, "allowzero", &allow_zero));
    RG_TRY(rg_import_known(m, node, 0, &known));
    RG_TRY(rg_import_known(m, node, 1, &shape));
    RG_TRY(rg_import_shape(m, node, 1, dims, &rank));
    if (shape->array[0] == shape->array[1])
        RG_TRY(rg_import_open_reshape(m, known, allow_zero, dims[0], rank, dims, &opened));
    for (int32_t p = 0; p < RG_PROBES && !opened; p++)
        RG_TRY(rg_resolve_shape(&known->shape[p], allow_zero, dims[p], rank));
    return define_reshaped(m, node, rank, dims);
}

rg_status rg_convert_flatten(rg_import *m, const rg_proto_node *node)
{
    int64_t dims[RG_PROBES][RG_MAX_RANK], axis = 1;
    rg_known *known = NULL;
    RG_TRY(rg_attribute_int(node, "axis", &axis));
    RG_TRY(rg_import_known(m, node, 0, &known));
    const int32_t rank = known->shape[0].rank;
    RG_CHECK(axis >= -rank && axis <= rank, RG_MALFORMED, "attribute 'axis' is %lld",
             (long long)axis);
    axis += axis < 0 ? rank : 0;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        dims[p][0] = dims[p][1] = 1;
        for (int32_t d = 0; d < rank; d++)
            dims[p][d >= axis] *= known->shape[p].dims[d];
    }
    return define_reshaped(m, node, 2, dims);
}

/* Defines the value without some of its dimensions, or with new ones of length 1, in the order that
 * it has. map[d] is the old dimension of new dimension d of the file, or -1. */
static rg_status define_mapped(rg_import *m, const rg_proto_node *node, int32_t rank,
                               const int32_t map[])
{
    rg_flow x;
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    int32_t order[RG_MAX_RANK], at = 0;
    RG_TRY(rg_import_any(m, node, 0, &x));
    for (int32_t d = 0; d < rank; d++) {
        if (map[d] < 0)
            order[at++] = d; /* new ones stand in front */
    }
    for (int32_t i = 0; i < rg_flow_rank(&x); i++) {
        for (int32_t d = 0; d < rank; d++) {
            if (map[d] == x.order[i])
                order[at++] = d;
        }
    }
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t file[RG_MAX_RANK];
        rg_flow_dims(&x, p, file);
        for (int32_t d = 0; d < rank; d++)
            dims[p][d] = map[order[d]] < 0 ? 1 : file[map[order[d]]];
    }
    RG_TRY(rg_flow_reshape(m, &x, rank, dims));
    memcpy(x.order, order, sizeof(int32_t) * (size_t)rank);
    return rg_import_define(m, node, 0, &x);
}

rg_status rg_convert_squeeze(rg_import *m, const rg_proto_node *node)
{
    int64_t axes[RG_MAX_RANK];
    int32_t count, map[RG_MAX_RANK], rank = 0;
    bool drop[RG_MAX_RANK];
    rg_known *known = NULL;
    RG_TRY(rg_import_list(m, node, "axes", 1, axes, &count));
    RG_TRY(rg_import_known(m, node, 0, &known));
    const rg_tensor_desc *x = &known->shape[0];
    for (int32_t d = 0; d < x->rank; d++)
        drop[d] = count < 0 && x->dims[d] == 1;
    for (int32_t i = 0; i < count; i++) {
        int32_t axis = 0;
        RG_TRY(rg_axis("an entry of 'axes'", axes[i], x->rank, &axis));
        RG_CHECK(x->dims[axis] == 1, RG_MALFORMED, "dimension %d has a length of %lld, not 1", axis,
                 (long long)x->dims[axis]);
        drop[axis] = true;
    }
    for (int32_t d = 0; d < x->rank; d++) {
        if (!drop[d])
            map[rank++] = d;
    }
    return define_mapped(m, node, rank, map);
}

rg_status rg_convert_unsqueeze(rg_import *m, const rg_proto_node *node)
{
    int64_t axes[RG_MAX_RANK];
    int32_t count, map[RG_MAX_RANK] = { 0 }, next = 0;
    rg_known *known = NULL;
    RG_TRY(rg_import_list(m, node, "axes", 1, axes, &count));
    RG_TRY(rg_import_known(m, node, 0, &known));
    const int32_t rank = known->shape[0].rank + count;
    RG_CHECK(count > 0, RG_MALFORMED, "'axes' is not given");
    RG_CHECK(rank <= RG_MAX_RANK, RG_UNSUPPORTED, "the result has %d dimensions", rank);
    for (int32_t i = 0; i < count; i++) {
        int32_t axis = 0;
        RG_TRY(rg_axis("an entry of 'axes'", axes[i], rank, &axis));
        RG_CHECK(map[axis] == 0, RG_MALFORMED, "'axes' has %d twice", axis);
        map[axis] = -1;
    }
    for (int32_t d = 0; d < rank; d++)
        map[d] = map[d] < 0 ? -1 : next++;
    return define_mapped(m, node, rank, map);
}

rg_status rg_convert_transpose(rg_import *m, const rg_proto_node *node)
{
    int64_t perm[RG_MAX_RANK];
    rg_flow x;
    uint32_t seen = 0;
    RG_TRY(rg_import_any(m, node, 0, &x));
    const int32_t rank = rg_flow_rank(&x);
    int32_t count = rank, inverse[RG_MAX_RANK] = { 0 };
    for (int32_t d = 0; d < rank; d++)
        perm[d] = rank - 1 - d;
    RG_TRY(rg_attribute_ints(node, "perm", perm, RG_MAX_RANK, &count));
    for (int32_t d = 0; d < rank; d++) {
        RG_CHECK(count == rank && perm[d] >= 0 && perm[d] < rank && (seen >> perm[d] & 1) == 0,
                 RG_MALFORMED, "attribute 'perm' is not an order of %d dimensions", rank);
        seen |= 1U << perm[d];
        inverse[perm[d]] = d;
    }
    for (int32_t d = 0; d < rank; d++)
        x.order[d] = inverse[x.order[d]];
    return rg_import_define(m, node, 0, &x);
}
