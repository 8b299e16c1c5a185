/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Folding: operators on constants that are computed while a model is read, shapes above all. */
#include "onnx/import.h"

#include "core/shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_FOLD_INPUTS = 64 };

/* ---- which nodes are folded ---- */

static rg_status gather_constants(rg_import *m, const rg_proto_node *node, int32_t probe,
                                  const rg_array *x[])
{
    for (size_t i = 0; i < node->input_count; i++) {
        rg_known *known = NULL;
        x[i] = NULL;
        if (!rg_node_has(node, i))
            continue;
        RG_TRY(rg_import_known(m, node, i, &known));
        RG_TRY(rg_known_array(m, known, probe, &x[i]));
    }
    return RG_OK;
}

/* Whether all inputs are constants, and none is meant to have a gradient unless `trained`. *varies:
 * they depend on the batch. */
static rg_status all_constant(rg_import *m, const rg_proto_node *node, bool trained, bool *constant,
                              bool *varies)
{
    *constant = node->input_count > 0 && node->input_count <= MOST_FOLD_INPUTS;
    *varies = false;
    for (size_t i = 0; i < node->input_count && *constant; i++) {
        rg_known *known = NULL;
        if (!rg_node_has(node, i))
            continue;
        RG_TRY(rg_import_known(m, node, i, &known));
        *constant = trained ? rg_known_is_constant(known) || known->array[0] != NULL
                            : rg_known_is_constant(known) && !known->trained && !known->has_flow;
        *varies |= known->array[0] != known->array[1];
    }
    return RG_OK;
}

static bool same_elements(const rg_array *a, const rg_array *b)
{
    if (a->type != b->type || a->rank != b->rank || a->uniform != b->uniform ||
        memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) != 0)
        return false;
    const int64_t count = a->uniform ? 1 : a->count;
    return count == 0 || memcmp(a->data, b->data, (size_t)count * sizeof a->data[0]) == 0;
}

/* Whether the node takes a part of its input. What is computed, such as n / 4, may be equal in both
 * probes although it depends on the batch; the other dimensions of a shape do not. */
static bool takes_part(const rg_proto_node *node)
{
    return strcmp(node->type, "Gather") == 0 || strcmp(node->type, "Slice") == 0;
}

static rg_status fold(rg_import *m, const rg_proto_node *node, const rg_importer *op, bool varies,
                      rg_array *y[RG_PROBES])
{
    const rg_array *x[MOST_FOLD_INPUTS];
    for (int32_t p = 0; p < RG_PROBES; p++) {
        if (p > 0 && !varies) {
            y[p] = y[0];
            break;
        }
        RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *y[p], &y[p]));
        RG_TRY(gather_constants(m, node, p, x));
        RG_TRY(op->fold(m, node, x, y[p]));
    }
    if (varies && takes_part(node) && same_elements(y[0], y[1]))
        y[1] = y[0];
    return RG_OK;
}

rg_status rg_import_fold(rg_import *m, const rg_proto_node *node, const rg_importer *op,
                         bool *folded)
{
    rg_array *y[RG_PROBES];
    bool varies;
    *folded = false;
    if (op->fold == NULL || node->output_count < 1)
        return RG_OK;
    RG_TRY(all_constant(m, node, false, folded, &varies));
    if (!*folded)
        return RG_OK;
    RG_TRY(fold(m, node, op, varies, y));
    return rg_import_define_array(m, node->outputs[0], y[0], y[1]);
}

rg_status rg_import_fold_trained(rg_import *m, const rg_proto_node *node, const rg_importer *op)
{
    rg_array *y[RG_PROBES];
    bool constant = false, varies = false;
    char text[256];
    snprintf(text, sizeof text, "%s", rg_error_text());
    if (op->fold != NULL && rg_names_find(&m->names, node->outputs[0]) == NULL)
        RG_TRY(all_constant(m, node, true, &constant, &varies));
    RG_CHECK(constant, RG_UNSUPPORTED, "%s", text);
    RG_TRY(fold(m, node, op, varies, y));
    return rg_import_define_array(m, node->outputs[0], y[0], y[1]);
}

rg_status rg_import_fold_also(rg_import *m, const rg_proto_node *node, const rg_importer *op)
{
    enum { MOST_ALSO = 64 };
    rg_array *y[RG_PROBES];
    bool constant, varies;
    rg_known *known = rg_names_find(&m->names, node->outputs[0]);
    if (op->fold == NULL || known == NULL || known->kind != RG_KNOWN_FLOW ||
        rg_shape_count(&known->shape[0]) > MOST_ALSO)
        return RG_OK;
    RG_TRY(all_constant(m, node, true, &constant, &varies));
    if (constant && !varies && fold(m, node, op, varies, y) == RG_OK)
        known->array[0] = known->array[1] = y[0];
    return RG_OK;
}

/* ---- element by element ---- */

/* Numbers of 32 bits are rounded after every operation, unless the network computes in f64. */
static double round_to(const rg_import *m, int32_t type, double value)
{
    const bool exact = m->options.has_dtype && m->options.dtype == RG_F64;
    return type == RG_ONNX_FLOAT && !exact ? (double)(float)value : value;
}

static int64_t power(int64_t base, int64_t exponent)
{
    uint64_t result = 1, factor = (uint64_t)base;
    for (; exponent > 0; exponent >>= 1, factor *= factor)
        result *= (exponent & 1) != 0 ? factor : 1;
    return (int64_t)result;
}

/* `truncated`: the remainder of Mod has the sign of a, as in C. */
static rg_status integer_result(const char *type, bool truncated, int64_t a, int64_t b, int64_t *y)
{
    bool wraps = false;
    if (strcmp(type, "Add") == 0)
        wraps = __builtin_add_overflow(a, b, y);
    else if (strcmp(type, "Sub") == 0)
        wraps = __builtin_sub_overflow(a, b, y);
    else if (strcmp(type, "Mul") == 0)
        wraps = __builtin_mul_overflow(a, b, y);
    else if (strcmp(type, "Min") == 0)
        *y = a < b ? a : b;
    else if (strcmp(type, "Max") == 0)
        *y = a > b ? a : b;
    else if (strcmp(type, "Pow") == 0)
        *y = power(a, b);
    else if (strcmp(type, "Equal") == 0)
        *y = a == b;
    else if (strcmp(type, "Less") == 0)
        *y = a < b;
    else if (strcmp(type, "LessOrEqual") == 0)
        *y = a <= b;
    else if (strcmp(type, "GreaterOrEqual") == 0)
        *y = a >= b;
    else if (strcmp(type, "Greater") == 0)
        *y = a > b;
    else if (strcmp(type, "And") == 0)
        *y = a && b;
    else if (strcmp(type, "Or") == 0)
        *y = a || b;
    else {
        RG_CHECK(b != 0 && !(a == INT64_MIN && b == -1), RG_MALFORMED,
                 "an integer is divided by %lld", (long long)b);
        *y = a / b;
        if (strcmp(type, "Mod") == 0)
            *y = a % b + (!truncated && a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    }
    RG_CHECK(!wraps, RG_MALFORMED, "an integer overflows");
    return RG_OK;
}

static rg_status real_result(const char *type, double a, double b, rg_element *y)
{
    if (strcmp(type, "Add") == 0)
        y->f = a + b;
    else if (strcmp(type, "Sub") == 0)
        y->f = a - b;
    else if (strcmp(type, "Mul") == 0)
        y->f = a * b;
    else if (strcmp(type, "Div") == 0)
        y->f = a / b;
    else if (strcmp(type, "Min") == 0)
        y->f = a < b || a != a ? a : b;
    else if (strcmp(type, "Max") == 0)
        y->f = a > b || a != a ? a : b;
    else if (strcmp(type, "Pow") == 0)
        y->f = pow(a, b);
    else if (strcmp(type, "Equal") == 0)
        y->i = a == b;
    else if (strcmp(type, "Less") == 0)
        y->i = a < b;
    else if (strcmp(type, "LessOrEqual") == 0)
        y->i = a <= b;
    else if (strcmp(type, "GreaterOrEqual") == 0)
        y->i = a >= b;
    else if (strcmp(type, "Greater") == 0)
        y->i = a > b;
    else
        return rg_fail(RG_UNSUPPORTED, "%s of floating-point constants is not folded", type);
    return RG_OK;
}

/* The index in a broadcast operand of element i of the result. */
static int64_t broadcast_index(const rg_array *x, const rg_array *y, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int32_t d = y->rank - 1; d >= 0; d--) {
        const int64_t index = i % y->dims[d];
        const int32_t own = d - (y->rank - x->rank);
        i /= y->dims[d];
        if (own < 0)
            continue;
        at += x->dims[own] == 1 ? 0 : index * stride;
        stride *= x->dims[own];
    }
    return at;
}

static rg_status broadcast_dims(const rg_array *a, const rg_array *b, int32_t *rank, int64_t dims[])
{
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int32_t d = 0; d < *rank; d++) {
        const int32_t i = d - (*rank - a->rank), j = d - (*rank - b->rank);
        const int64_t p = i < 0 ? 1 : a->dims[i], q = j < 0 ? 1 : b->dims[j];
        RG_CHECK(p == q || p == 1 || q == 1, RG_MALFORMED,
                 "dimensions of %lld and %lld do not fit together", (long long)p, (long long)q);
        dims[d] = p == 1 ? q : p;
    }
    return RG_OK;
}

rg_status rg_fold_binary(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                         rg_array *y)
{
    int64_t dims[RG_MAX_RANK];
    int32_t rank;
    RG_CHECK(x[0] != NULL && x[1] != NULL, RG_MALFORMED, "an input is not given");
    RG_CHECK(x[0]->type == x[1]->type || strcmp(node->type, "Pow") == 0, RG_MALFORMED,
             "its inputs are of types %s and %s", rg_onnx_type_name(x[0]->type),
             rg_onnx_type_name(x[1]->type));
    const bool integer = rg_type_is_integer(x[0]->type);
    const bool logical = strchr("ELGAO", node->type[0]) != NULL && strcmp(node->type, "Add") != 0;
    RG_CHECK(integer == rg_type_is_integer(x[1]->type), RG_UNSUPPORTED,
             "integers and other numbers are not folded together");
    bool truncated = false;
    RG_TRY(rg_attribute_bool(node, "fmod", &truncated));
    RG_TRY(broadcast_dims(x[0], x[1], &rank, dims));
    RG_TRY(rg_array_create(m, logical ? RG_ONNX_BOOL : x[0]->type, rank, dims, false, y));
    for (int64_t i = 0; i < y->count; i++) {
        const rg_element a = rg_array_at(x[0], broadcast_index(x[0], y, i));
        const rg_element b = rg_array_at(x[1], broadcast_index(x[1], y, i));
        if (integer)
            RG_TRY(integer_result(node->type, truncated, a.i, b.i, &y->data[i].i));
        else
            RG_TRY(real_result(node->type, a.f, b.f, &y->data[i]));
        if (!integer && !logical)
            y->data[i].f = round_to(m, y->type, y->data[i].f);
    }
    return RG_OK;
}

/* Min and Max of any number of constants, one after the other. */
rg_status rg_fold_extreme(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                          rg_array *y)
{
    RG_CHECK(x[0] != NULL, RG_MALFORMED, "input 0 is not given");
    *y = *x[0];
    for (size_t i = 1; i < node->input_count; i++) {
        const rg_array so_far = *y;
        const rg_array *const pair[] = { &so_far, x[i] };
        RG_TRY(rg_fold_binary(m, node, pair, y));
    }
    return RG_OK;
}

static rg_element clip(rg_element e, const rg_element bounds[2], bool integer)
{
    if (integer) {
        e.i = e.i < bounds[0].i ? bounds[0].i : e.i;
        e.i = e.i > bounds[1].i ? bounds[1].i : e.i;
    } else {
        e.f = e.f < bounds[0].f ? bounds[0].f : e.f;
        e.f = e.f > bounds[1].f ? bounds[1].f : e.f;
    }
    return e;
}

/* Clip; its bounds are inputs, or in older operator sets attributes. */
rg_status rg_fold_clip(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                       rg_array *y)
{
    const bool integer = rg_type_is_integer(x[0]->type);
    rg_element bounds[2];
    double low = -INFINITY, high = INFINITY;
    RG_TRY(rg_attribute_float(node, "min", &low));
    RG_TRY(rg_attribute_float(node, "max", &high));
    bounds[0] = integer ? (rg_element){ .i = INT64_MIN } : (rg_element){ .f = low };
    bounds[1] = integer ? (rg_element){ .i = INT64_MAX } : (rg_element){ .f = high };
    for (size_t i = 0; i < 2; i++) {
        if (!rg_node_has(node, i + 1))
            continue;
        RG_CHECK(x[i + 1]->count == 1 && x[i + 1]->type == x[0]->type, RG_MALFORMED,
                 "input %zu is not one number of type %s", i + 1, rg_onnx_type_name(x[0]->type));
        bounds[i] = rg_array_at(x[i + 1], 0);
    }
    RG_TRY(rg_array_create(m, x[0]->type, x[0]->rank, x[0]->dims, x[0]->uniform, y));
    for (int64_t i = 0; i < (y->uniform ? 1 : y->count); i++)
        y->data[i] = clip(rg_array_at(x[0], i), bounds, integer);
    return RG_OK;
}

rg_status rg_fold_where(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                        rg_array *y)
{
    rg_array both;
    (void)node;
    RG_CHECK(x[0] != NULL && x[1] != NULL && x[2] != NULL && x[1]->type == x[2]->type, RG_MALFORMED,
             "its inputs are not of one type");
    RG_TRY(broadcast_dims(x[1], x[2], &both.rank, both.dims));
    RG_TRY(broadcast_dims(x[0], &both, &y->rank, y->dims));
    const rg_array shape = *y;
    RG_TRY(rg_array_create(m, x[1]->type, shape.rank, shape.dims, false, y));
    for (int64_t i = 0; i < y->count; i++) {
        const rg_array *from = rg_array_at(x[0], broadcast_index(x[0], y, i)).i != 0 ? x[1] : x[2];
        y->data[i] = rg_array_at(from, broadcast_index(from, y, i));
    }
    return RG_OK;
}

rg_status rg_fold_expand(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                         rg_array *y)
{
    rg_array shape = { .rank = 0 };
    int64_t dims[RG_MAX_RANK];
    int32_t rank;
    (void)node;
    RG_CHECK(x[1] != NULL && x[1]->count <= RG_MAX_RANK && rg_type_is_integer(x[1]->type),
             RG_MALFORMED, "input 1 is not a shape");
    shape.rank = (int32_t)x[1]->count;
    for (int32_t d = 0; d < shape.rank; d++)
        shape.dims[d] = rg_array_at(x[1], d).i;
    RG_TRY(broadcast_dims(x[0], &shape, &rank, dims));
    RG_TRY(rg_array_create(m, x[0]->type, rank, dims, false, y));
    for (int64_t i = 0; i < y->count; i++)
        y->data[i] = rg_array_at(x[0], broadcast_index(x[0], y, i));
    return RG_OK;
}

rg_status rg_fold_unary(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                        rg_array *y)
{
    const bool integer = rg_type_is_integer(x[0]->type);
    const char *type = node->type;
    RG_TRY(rg_array_create(m, x[0]->type, x[0]->rank, x[0]->dims, false, y));
    for (int64_t i = 0; i < y->count; i++) {
        const rg_element e = rg_array_at(x[0], i);
        if (strcmp(type, "Not") == 0)
            y->data[i].i = e.i == 0;
        else if (strcmp(type, "Neg") == 0 && integer)
            y->data[i].i = (int64_t)(0 - (uint64_t)e.i);
        else if (strcmp(type, "Neg") == 0)
            y->data[i].f = -e.f;
        else if (integer)
            return rg_fail(RG_UNSUPPORTED, "%s of integers is not folded", type);
        else
            y->data[i].f = round_to(m, y->type,
                                    strcmp(type, "Sqrt") == 0    ? sqrt(e.f)
                                    : strcmp(type, "Floor") == 0 ? floor(e.f)
                                                                 : ceil(e.f));
    }
    return RG_OK;
}

rg_status rg_fold_cast(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                       rg_array *y)
{
    int64_t to = RG_ONNX_UNDEFINED;
    RG_TRY(rg_attribute_int(node, "to", &to));
    if (strcmp(node->type, "CastLike") == 0)
        to = x[1] != NULL ? x[1]->type : RG_ONNX_UNDEFINED;
    RG_CHECK(to >= 0 && to <= RG_ONNX_BFLOAT16, RG_UNSUPPORTED, "attribute 'to' is %lld",
             (long long)to);
    const bool from_integer = rg_type_is_integer(x[0]->type);
    const bool integer = rg_type_is_integer((int32_t)to);
    RG_TRY(rg_array_create(m, (int32_t)to, x[0]->rank, x[0]->dims, x[0]->uniform, y));
    for (int64_t i = 0; i < (y->uniform ? 1 : y->count); i++) {
        const rg_element e = rg_array_at(x[0], i);
        if (integer && from_integer)
            y->data[i].i = e.i;
        else if (integer)
            y->data[i].i = e.f != e.f       ? 0
                           : e.f >= 0x1p63  ? INT64_MAX
                           : e.f <= -0x1p63 ? INT64_MIN
                                            : (int64_t)e.f;
        else
            y->data[i].f = round_to(m, (int32_t)to, from_integer ? (double)e.i : e.f);
        if (to == RG_ONNX_BOOL)
            y->data[i].i = from_integer ? e.i != 0 : e.f != 0;
        else if (to == RG_ONNX_INT32)
            y->data[i].i = (int32_t)y->data[i].i;
    }
    return RG_OK;
}
