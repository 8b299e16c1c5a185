/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions along any dimensions, and norms by a power: each is a function of the elements, an op
 * that reduces, and a function of the result. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <string.h>

/* A product of up to this many elements is a chain of multiplications. */
enum { MOST_FACTORS = 256 };

typedef enum function { NONE, ABSOLUTE, SQUARE, ROOT, LOGARITHM } function;

typedef struct reduction {
    const char *type;
    rg_reduce_kind kind;
    function before, after;
} reduction;

static const reduction reductions[] = {
    { "ReduceSum", RG_REDUCE_SUM, NONE, NONE },
    { "ReduceMean", RG_REDUCE_MEAN, NONE, NONE },
    { "ReduceMin", RG_REDUCE_MIN, NONE, NONE },
    { "ReduceMax", RG_REDUCE_MAX, NONE, NONE },
    { "ReduceL1", RG_REDUCE_SUM, ABSOLUTE, NONE },
    { "ReduceL2", RG_REDUCE_SUM, SQUARE, ROOT },
    { "ReduceSumSquare", RG_REDUCE_SUM, SQUARE, NONE },
    { "ReduceLogSum", RG_REDUCE_SUM, NONE, LOGARITHM },
    { "ArgMin", RG_REDUCE_ARG_MIN, NONE, NONE },
    { "ArgMax", RG_REDUCE_ARG_MAX, NONE, NONE },
};

static const reduction *reduction_of(const char *type)
{
    size_t i = 0;
    while (i + 1 < sizeof reductions / sizeof reductions[0] &&
           strcmp(reductions[i].type, type) != 0)
        i++;
    return &reductions[i];
}

/* The root of sums of squares. Its gradient where all of them are 0 is 0, as in PyTorch: that of
 * relu is 0, and the root of the smallest normal number (of f16, the smallest one) has a finite
 * one. Sums that are not as small do not change by it. */
static rg_status apply_root(rg_import *m, rg_flow *x)
{
    const rg_dtype dtype = x->shape[0].dtype;
    const double least = dtype == RG_F64 ? 0x1p-1022 : dtype == RG_F16 ? 0x1p-24 : 0x1p-126;
    RG_TRY(rg_flow_neuron(m, x, RG_NEURON_RELU, NULL, 0));
    return rg_flow_neuron(m, x, RG_NEURON_POWER, (const double[]){ 1, least, 0.5 }, 3);
}

static rg_status apply_function(rg_import *m, function f, rg_flow *x)
{
    switch (f) {
    case ABSOLUTE:
        return rg_flow_neuron(m, x, RG_NEURON_ABSOLUTE, NULL, 0);
    case SQUARE:
        return rg_flow_neuron(m, x, RG_NEURON_POWER, (const double[]){ 1, 0, 2 }, 3);
    case ROOT:
        return apply_root(m, x);
    case LOGARITHM:
        return rg_flow_neuron(m, x, RG_NEURON_LOGARITHM, NULL, 0);
    default:
        return RG_OK;
    }
}

/* ---- which dimensions ---- */

static rg_status read_axes(rg_import *m, const rg_proto_node *node, int64_t axes[], int32_t *count)
{
    if (node->type[0] == 'R')
        return rg_import_list(m, node, "axes", 1, axes, count);
    bool last = false;
    axes[0] = 0;
    *count = 1;
    RG_TRY(rg_attribute_bool(node, "select_last_index", &last));
    RG_CHECK(!last, RG_UNSUPPORTED, "select_last_index = 1 is not covered");
    return rg_attribute_int(node, "axis", &axes[0]);
}

/* Marks the dimensions of the file that are reduced: all of them without axes, or none. */
static rg_status mark_axes(rg_import *m, const rg_proto_node *node, int32_t rank, bool reduced[])
{
    int64_t axes[RG_MAX_RANK];
    int32_t count;
    bool noop = false;
    RG_TRY(rg_attribute_bool(node, "noop_with_empty_axes", &noop));
    RG_TRY(read_axes(m, node, axes, &count));
    for (int32_t d = 0; d < rank; d++)
        reduced[d] = count <= 0 && !noop;
    for (int32_t i = 0; i < count; i++) {
        int32_t axis = 0;
        RG_TRY(rg_axis("an axis", axes[i], rank, &axis));
        reduced[axis] = true;
    }
    return RG_OK;
}

static bool any_of(const bool reduced[], int32_t rank)
{
    bool any = false;
    for (int32_t d = 0; d < rank; d++)
        any |= reduced[d];
    return any;
}

/* ---- the reductions ---- */

static rg_status reduce(rg_import *m, rg_flow *x, rg_reduce_kind kind, const bool reduced[],
                        bool keep)
{
    rg_reduce_desc desc = rg_reduce_desc_default();
    int32_t order[RG_MAX_RANK] = { 0 };
    desc.kind = kind;
    desc.keep_dims = keep;
    rg_flow_order_without(x, reduced, order);
    for (int32_t d = 0; d < rg_flow_rank(x); d++) {
        if (reduced[d]) {
            RG_TRY(rg_import_within_image(m, x, d));
            desc.dims[desc.dims_count++] = rg_flow_axis(x, d);
        }
        RG_CHECK(x->shape[0].dims[d] > 0 || kind < RG_REDUCE_MIN, RG_UNSUPPORTED,
                 "the result of no elements is not covered");
    }
    if (desc.dims_count == 0)
        return RG_OK;
    RG_TRY(rg_flow_apply(m, "reduce", &desc, x));
    if (!keep)
        memcpy(x->order, order, sizeof order);
    return RG_OK;
}

/* A node of ours makes the output. */
static rg_status finish(rg_import *m, const rg_proto_node *node, rg_flow *x)
{
    if (rg_value_get_kind(x->value) != RG_VALUE_OUTPUT)
        RG_TRY(rg_flow_neuron(m, x, RG_NEURON_NONE, NULL, 0));
    return rg_import_define(m, node, 0, x);
}

rg_status rg_convert_reduce(rg_import *m, const rg_proto_node *node)
{
    const reduction *r = reduction_of(node->type);
    bool reduced[RG_MAX_RANK] = { false }, keep = true;
    rg_flow x;
    RG_TRY(rg_attribute_bool(node, "keepdims", &keep));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(mark_axes(m, node, rg_flow_rank(&x), reduced));
    RG_CHECK(rg_flow_rank(&x) > 0 || node->type[0] == 'R', RG_UNSUPPORTED,
             "it has no dimension to look along");
    RG_TRY(apply_function(m, r->before, &x));
    RG_TRY(reduce(m, &x, r->kind, reduced, keep));
    if (node->type[0] == 'A') /* positions have none */
        RG_TRY(rg_value_stop_gradient(x.value));
    RG_TRY(apply_function(m, r->after, &x));
    return finish(m, node, &x);
}

/* max + log sum e^(x - max); the maximum counts as a constant, as its gradients cancel. */
rg_status rg_convert_log_sum_exp(rg_import *m, const rg_proto_node *node)
{
    bool reduced[RG_MAX_RANK] = { false }, keep = true;
    rg_flow x, most, y;
    RG_TRY(rg_attribute_bool(node, "keepdims", &keep));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(mark_axes(m, node, rg_flow_rank(&x), reduced));
    if (!any_of(reduced, rg_flow_rank(&x))) /* log e^x */
        return finish(m, node, &x);
    most = x;
    RG_TRY(reduce(m, &most, RG_REDUCE_MAX, reduced, true));
    RG_TRY(rg_value_stop_gradient(most.value));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_SUBTRACT, &x, &most, &y));
    RG_TRY(rg_flow_neuron(m, &y, RG_NEURON_EXPONENTIAL, NULL, 0));
    RG_TRY(reduce(m, &y, RG_REDUCE_SUM, reduced, true));
    RG_TRY(rg_flow_neuron(m, &y, RG_NEURON_LOGARITHM, NULL, 0));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_ADD, &y, &most, &y));
    if (!keep)
        RG_TRY(rg_flow_drop(m, &y, reduced));
    return finish(m, node, &y);
}

/* The product along one axis after the other, element by element. */
rg_status rg_convert_product(rg_import *m, const rg_proto_node *node)
{
    bool reduced[RG_MAX_RANK] = { false }, keep = true;
    int64_t dims[RG_MAX_RANK], other[RG_MAX_RANK];
    rg_flow x;
    RG_TRY(rg_attribute_bool(node, "keepdims", &keep));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(mark_axes(m, node, rg_flow_rank(&x), reduced));
    rg_flow_dims(&x, 0, dims);
    rg_flow_dims(&x, 1, other);
    for (int32_t d = 0; d < rg_flow_rank(&x); d++) {
        rg_flow product, factor;
        if (!reduced[d])
            continue;
        RG_CHECK(dims[d] == other[d] && dims[d] >= 1 && dims[d] <= MOST_FACTORS, RG_UNSUPPORTED,
                 "a product of %lld elements along dimension %d is not covered; 1 to %d are",
                 (long long)dims[d], d, MOST_FACTORS);
        RG_TRY(rg_flow_cut(m, &x, d, 0, 1, 1, &product));
        for (int64_t i = 1; i < dims[d]; i++) {
            RG_TRY(rg_flow_cut(m, &x, d, i, 1, 1, &factor));
            RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_MULTIPLY, &product, &factor, &product));
        }
        x = product;
    }
    if (!keep)
        RG_TRY(rg_flow_drop(m, &x, reduced));
    return finish(m, node, &x);
}

/* ---- pooling by a norm ---- */

static rg_status read_p(const rg_proto_node *node, double *p)
{
    int64_t given = 2;
    RG_TRY(rg_attribute_int(node, "p", &given));
    RG_CHECK(given >= 1 && given <= 64, RG_UNSUPPORTED, "attribute 'p' is %lld", (long long)given);
    *p = (double)given;
    return RG_OK;
}

static rg_status take_power(rg_import *m, double p, rg_flow *x)
{
    if (p != 2)
        RG_TRY(rg_flow_neuron(m, x, RG_NEURON_ABSOLUTE, NULL, 0));
    return p == 1 ? RG_OK : rg_flow_neuron(m, x, RG_NEURON_POWER, (const double[]){ 1, 0, p }, 3);
}

rg_status rg_convert_global_lp_pool(rg_import *m, const rg_proto_node *node)
{
    bool reduced[RG_MAX_RANK] = { false };
    double p = 2;
    rg_flow x;
    RG_TRY(read_p(node, &p));
    RG_TRY(rg_import_any(m, node, 0, &x));
    for (int32_t d = 2; d < rg_flow_rank(&x); d++)
        reduced[d] = true;
    RG_TRY(take_power(m, p, &x));
    RG_TRY(reduce(m, &x, RG_REDUCE_SUM, reduced, true));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_POWER, (const double[]){ 1, 0, 1 / p }, 3));
    return finish(m, node, &x);
}

/* The attributes of a node but for p, for an AveragePool. */
static rg_status without_p(rg_import *m, const rg_proto_node *node, rg_proto_node *average)
{
    rg_proto_attribute *attributes = NULL;
    RG_TRY(rg_arena_take(&m->network->arena, node->attribute_count + 1, sizeof *attributes,
                         &attributes));
    *average = *node;
    average->type = "AveragePool";
    average->attributes = attributes;
    average->attribute_count = 0;
    for (size_t i = 0; i < node->attribute_count; i++) {
        if (strcmp(node->attributes[i].name, "p") != 0)
            attributes[average->attribute_count++] = node->attributes[i];
    }
    return RG_OK;
}

/* p = 2 is one op. Otherwise means of |x|^p, with 0 in the padding, times the elements of a window:
 * an AveragePool between values with names of the importer. */
rg_status rg_convert_lp_pool(rg_import *m, const rg_proto_node *node)
{
    rg_onnx_call *call = NULL;
    rg_proto_node average;
    const char *input, *output;
    double p = 2;
    rg_flow x;
    RG_TRY(read_p(node, &p));
    if (p == 2)
        return rg_convert_table(m, node);
    RG_TRY(without_p(m, node, &average));
    RG_TRY(rg_import_name(m, &input));
    RG_TRY(rg_import_name(m, &output));
    average.inputs = &input;
    average.input_count = 1;
    average.outputs = &output;
    average.output_count = 1; /* whatever the file names beside it */
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(take_power(m, p, &x));
    RG_TRY(rg_import_define(m, &(rg_proto_node){ .outputs = &input, .output_count = 1 }, 0, &x));
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *call, &call));
    RG_TRY(rg_import_call(m, &average, call));
    rg_pool_desc *desc = (rg_pool_desc *)call->desc;
    desc->edge = RG_POOL_ZERO;
    const double count = (double)desc->window[0] * desc->window[1];
    RG_TRY(rg_import_run_call(m, &average, call));
    RG_TRY(rg_import_any(m, &(rg_proto_node){ .inputs = &output, .input_count = 1 }, 0, &x));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_POWER, (const double[]){ count, 0, 1 / p }, 3));
    return rg_import_define(m, node, 0, &x);
}
