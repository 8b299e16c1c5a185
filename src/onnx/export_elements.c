/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Elements: activations, arithmetic, softmax, dropout. */
#include "onnx/export.h"

#include "core/shape.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <string.h>

/* ---- pieces ---- */

rg_status rg_form_times(rg_export *e, rg_form *form, double factor)
{
    const char *number;
    if (factor == 1)
        return RG_OK;
    RG_TRY(rg_export_number(e, form->shape[0].dtype, factor, &number));
    return rg_form_binary(e, "Mul", form, number);
}

rg_status rg_form_plus(rg_export *e, rg_form *form, double term)
{
    const char *number;
    if (term == 0)
        return RG_OK;
    RG_TRY(rg_export_number(e, form->shape[0].dtype, term, &number));
    return rg_form_binary(e, "Add", form, number);
}

rg_status rg_form_clip(rg_export *e, rg_form *form, double low, double high)
{
    const char *least = "", *most = "";
    if (isinf(low) && isinf(high))
        return RG_OK;
    if (!isinf(low))
        RG_TRY(rg_export_number(e, form->shape[0].dtype, low, &least));
    if (!isinf(high))
        RG_TRY(rg_export_number(e, form->shape[0].dtype, high, &most));
    RG_TRY(rg_emit(e, "Clip"));
    rg_emit_input(e, form->name);
    rg_emit_input(e, least);
    if (most[0] != 0)
        rg_emit_input(e, most);
    return rg_form_made(e, form);
}

static rg_status leaky(rg_export *e, rg_form *form, double slope)
{
    if (slope == 0)
        return rg_form_unary(e, "Relu", form);
    RG_TRY(rg_emit(e, "LeakyRelu"));
    rg_emit_input(e, form->name);
    rg_emit_float(e, "alpha", slope);
    return rg_form_made(e, form);
}

/* ---- activations ---- */

static rg_status gelu(rg_export *e, rg_form *form, bool by_tanh)
{
    const rg_form x = *form;
    if (e->desc.opset >= 20) {
        RG_TRY(rg_emit(e, "Gelu"));
        rg_emit_input(e, form->name);
        if (by_tanh)
            rg_emit_text(e, "approximate", "tanh");
        return rg_form_made(e, form);
    }
    if (by_tanh) { /* tanh(sqrt(2 / pi) (x + 0.044715 x^3)) */
        RG_TRY(rg_form_binary(e, "Mul", form, x.name));
        RG_TRY(rg_form_times(e, form, 0.044715));
        RG_TRY(rg_form_plus(e, form, 1));
        RG_TRY(rg_form_binary(e, "Mul", form, x.name));
        RG_TRY(rg_form_times(e, form, 0.79788456080286535588));
        RG_TRY(rg_form_unary(e, "Tanh", form));
    } else {
        RG_TRY(rg_form_times(e, form, 0.70710678118654752440));
        RG_TRY(rg_form_unary(e, "Erf", form));
    }
    RG_TRY(rg_form_plus(e, form, 1));
    RG_TRY(rg_form_binary(e, "Mul", form, x.name));
    return rg_form_times(e, form, 0.5);
}

/* Slopes of channels, along the dimension that the file has channels in. */
static rg_status prelu(rg_export *e, const rg_value *slope, rg_form *form)
{
    const int32_t rank = form->shape[0].rank;
    const int64_t channels = e->values[slope->id].shape[0].dims[0];
    int64_t dims[RG_MAX_RANK], count;
    rg_tensor_desc widened[RG_PROBES];
    int32_t order[RG_MAX_RANK];
    double *elements;
    const char *name;
    for (int32_t d = 0; d < rank; d++)
        dims[d] = d == rank - 1 ? channels : 1;
    widened[0] = widened[1] = rg_tensor_desc_dense(form->shape[0].dtype, rank, dims);
    memcpy(order, form->order, sizeof order);
    if (slope->kind == RG_VALUE_PARAMETER) {
        RG_TRY(rg_export_doubles(e, slope, &elements, &count));
        RG_TRY(rg_export_changed(e, slope, elements, &widened[0], order, &name));
    } else {
        rg_form made;
        RG_TRY(rg_export_any(e, slope, &made));
        RG_TRY(rg_form_reshape(e, &made, widened, order));
        name = made.name;
    }
    return rg_form_binary(e, "PRelu", form, name);
}

static rg_status hard_sigmoid(rg_export *e, rg_form *form, double a, double b)
{
    RG_TRY(rg_emit(e, "HardSigmoid"));
    rg_emit_input(e, form->name);
    rg_emit_float(e, "alpha", a);
    rg_emit_float(e, "beta", b);
    return rg_form_made(e, form);
}

static rg_status power(rg_export *e, rg_form *form, double exponent)
{
    const char *number;
    if (exponent == 1)
        return RG_OK;
    if (exponent == 0.5 || exponent == -1)
        return rg_form_unary(e, exponent == 0.5 ? "Sqrt" : "Reciprocal", form);
    RG_TRY(rg_export_number(e, form->shape[0].dtype, exponent, &number));
    return rg_form_binary(e, "Pow", form, number);
}

static rg_status elu(rg_export *e, rg_form *form, double alpha)
{
    RG_TRY(rg_emit(e, "Elu"));
    rg_emit_input(e, form->name);
    rg_emit_float(e, "alpha", alpha);
    return rg_form_made(e, form);
}

static rg_status swish(rg_export *e, rg_form *form, double a)
{
    const rg_form x = *form;
    RG_TRY(rg_form_times(e, form, a));
    RG_TRY(rg_form_unary(e, "Sigmoid", form));
    return rg_form_binary(e, "Mul", form, x.name);
}

/* f(b x) times a */
static rg_status scaled(rg_export *e, const char *type, rg_form *form, double a, double b)
{
    RG_TRY(rg_form_times(e, form, b));
    RG_TRY(rg_form_unary(e, type, form));
    return rg_form_times(e, form, a);
}

/* a x + b, then what comes after it. */
static rg_status linear(rg_export *e, rg_form *form, double a, double b)
{
    RG_TRY(rg_form_times(e, form, a));
    return rg_form_plus(e, form, b);
}

void rg_neuron_numbers(const rg_neuron_desc *d, double n[3])
{
    static const double defaults[][3] = {
        [RG_NEURON_LINEAR] = { 1, 0, 0 },     [RG_NEURON_HARD_SIGMOID] = { 0.2, 0.5, 0 },
        [RG_NEURON_TANH] = { 1, 1, 0 },       [RG_NEURON_SOFTPLUS] = { 1, 1, 0 },
        [RG_NEURON_ELU] = { 1, 0, 0 },        [RG_NEURON_RELUN] = { 1, 6, 0 },
        [RG_NEURON_POWER] = { 1, 0, 1 },      [RG_NEURON_EXPONENTIAL] = { 1, 0, -1 },
        [RG_NEURON_LOGARITHM] = { 1, 0, -1 }, [RG_NEURON_SWISH] = { 1, 0, 0 },
    };
    const double given[] = { d->a, d->b, d->c };
    const bool has[] = { d->has_a, d->has_b, d->has_c };
    for (int i = 0; i < 3; i++)
        n[i] = has[i] ? given[i] : defaults[d->kind][i];
}

rg_status rg_form_neuron(rg_export *e, const rg_neuron_desc *d, const rg_value *slope,
                         rg_form *form)
{
    double n[3];
    rg_neuron_numbers(d, n);
    switch (d->kind) {
    case RG_NEURON_NONE:
        return RG_OK;
    case RG_NEURON_RELU:
        return leaky(e, form, n[0]);
    case RG_NEURON_LINEAR:
        return linear(e, form, n[0], n[1]);
    case RG_NEURON_SIGMOID:
        return rg_form_unary(e, "Sigmoid", form);
    case RG_NEURON_HARD_SIGMOID:
        return hard_sigmoid(e, form, n[0], n[1]);
    case RG_NEURON_TANH:
        return scaled(e, "Tanh", form, n[0], n[1]);
    case RG_NEURON_ABSOLUTE:
        return rg_form_unary(e, "Abs", form);
    case RG_NEURON_SOFTPLUS:
        return scaled(e, "Softplus", form, n[0], n[1]);
    case RG_NEURON_SOFTSIGN:
        return rg_form_unary(e, "Softsign", form);
    case RG_NEURON_ELU:
        return elu(e, form, n[0]);
    case RG_NEURON_PRELU:
        return prelu(e, slope, form);
    case RG_NEURON_RELUN:
        if (n[0] == 0 && n[1] >= 0)
            return rg_form_clip(e, form, 0, n[1]);
        if (n[0] != 1)
            RG_TRY(leaky(e, form, n[0]));
        return rg_form_clip(e, form, -INFINITY, n[1]);
    case RG_NEURON_POWER:
        RG_TRY(linear(e, form, n[0], n[1]));
        return power(e, form, n[2]);
    case RG_NEURON_EXPONENTIAL: {
        const double base = n[2] == -1 ? 1 : log(n[2]);
        RG_TRY(linear(e, form, n[0] * base, n[1] * base));
        return rg_form_unary(e, "Exp", form);
    }
    case RG_NEURON_LOGARITHM:
        RG_TRY(linear(e, form, n[0], n[1]));
        RG_TRY(rg_form_unary(e, "Log", form));
        return rg_form_times(e, form, n[2] == -1 ? 1 : 1 / log(n[2]));
    case RG_NEURON_GELU:
    case RG_NEURON_GELU_TANH:
        return gelu(e, form, d->kind == RG_NEURON_GELU_TANH);
    case RG_NEURON_SWISH:
        return swish(e, form, n[0]);
    }
    return rg_fail(RG_UNSUPPORTED, "kind %d", (int)d->kind);
}

rg_status rg_export_neuron(rg_export *e, const rg_node *node)
{
    const rg_neuron_desc *d = node->desc;
    const bool slopes = d->kind == RG_NEURON_PRELU;
    rg_form form;
    RG_TRY(slopes ? rg_export_any(e, node->in[0], &form) : rg_export_raw(e, node->in[0], &form));
    RG_TRY(rg_form_neuron(e, d, slopes ? node->in[1] : NULL, &form));
    return rg_export_define(e, node, 0, &form);
}

/* ---- arithmetic ---- */

rg_status rg_export_operand(rg_export *e, const rg_value *value, int32_t rank,
                            const int32_t order[], rg_form *form)
{
    const rg_exported *made = &e->values[value->id];
    const int32_t own = made->shape[0].rank;
    rg_tensor_desc widened[RG_PROBES];
    if (own == rank)
        return rg_export_ordered(e, value, order, form);
    RG_TRY(rg_export_plain(e, value, form));
    if (own == 0 || rg_order_same(order, rg_plain_order, rank))
        return RG_OK;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t dims[RG_MAX_RANK];
        for (int32_t d = 0; d < rank; d++)
            dims[d] = d < rank - own ? 1 : made->shape[p].dims[d - (rank - own)];
        widened[p] = rg_tensor_desc_dense(made->shape[p].dtype, rank, dims);
    }
    return rg_form_reshape(e, form, widened, order);
}

/* The order of the result: that of an operand which is computed, if it has all dimensions. */
static void choose_order(const rg_export *e, const rg_node *node, int32_t rank, int32_t order[])
{
    memcpy(order, rg_plain_order, sizeof rg_plain_order);
    for (int32_t i = 1; i >= 0; i--) {
        const rg_exported *in = &e->values[node->in[i]->id];
        if (!in->has_form || in->shape[0].rank != rank)
            continue;
        if (in->form.shape[0].rank == rank)
            memcpy(order, in->form.order, sizeof in->form.order);
        else
            rg_channels_last_order(rank, order);
        if (node->in[i]->kind == RG_VALUE_OUTPUT && i == 0)
            return;
    }
}

static rg_status compare(rg_export *e, const rg_arithmetic_desc *d, rg_form *a, const rg_form *b)
{
    static const char *const types[] = { "Equal",       "Equal",   "Less",
                                         "LessOrEqual", "Greater", "GreaterOrEqual" };
    RG_CHECK(d->threshold == 0, RG_UNSUPPORTED, "a comparison with a threshold");
    RG_TRY(rg_form_binary(e, types[d->comparison], a, b->name));
    if (d->comparison == RG_COMPARE_NOT_EQUAL)
        RG_TRY(rg_form_unary(e, "Not", a));
    RG_TRY(rg_emit(e, "Cast"));
    rg_emit_input(e, a->name);
    rg_emit_int(e, "to", rg_export_type(e, a->shape[0].dtype));
    return rg_form_made(e, a);
}

rg_status rg_form_mask(rg_export *e, rg_form *a, const rg_form *b)
{
    const char *zero;
    rg_form condition = *b;
    RG_TRY(rg_export_number(e, a->shape[0].dtype, 0, &zero));
    RG_TRY(rg_form_binary(e, "Equal", &condition, zero));
    RG_TRY(rg_emit(e, "Where"));
    rg_emit_input(e, condition.name);
    rg_emit_input(e, zero);
    rg_emit_input(e, a->name);
    return rg_form_made(e, a);
}

rg_status rg_form_combine(rg_export *e, const rg_arithmetic_desc *d, rg_form *a, rg_form *b)
{
    static const char *const types[] = {
        [RG_ARITHMETIC_ADD] = "Add",      [RG_ARITHMETIC_SUBTRACT] = "Sub",
        [RG_ARITHMETIC_MULTIPLY] = "Mul", [RG_ARITHMETIC_DIVIDE] = "Div",
        [RG_ARITHMETIC_MAXIMUM] = "Max",  [RG_ARITHMETIC_MINIMUM] = "Min",
    };
    if (d->kind == RG_ARITHMETIC_COMPARE)
        return compare(e, d, a, b);
    RG_TRY(rg_form_times(e, a, d->primary_scale));
    if (d->kind == RG_ARITHMETIC_MASK) {
        RG_TRY(rg_form_mask(e, a, b));
    } else {
        RG_TRY(rg_form_times(e, b, d->secondary_scale));
        RG_TRY(rg_form_binary(e, types[d->kind], a, b->name));
    }
    RG_TRY(rg_form_plus(e, a, d->bias));
    return rg_form_clip(e, a, d->minimum, d->maximum);
}

rg_status rg_export_arithmetic(rg_export *e, const rg_node *node)
{
    const rg_arithmetic_desc *d = node->desc;
    const rg_tensor_desc *y = e->values[node->out[0]->id].shape;
    int32_t order[RG_MAX_RANK];
    rg_form a, b;
    choose_order(e, node, y->rank, order);
    RG_TRY(rg_export_operand(e, node->in[0], y->rank, order, &a));
    RG_TRY(rg_export_operand(e, node->in[1], y->rank, order, &b));
    RG_TRY(rg_form_combine(e, d, &a, &b));
    memcpy(a.shape, y, sizeof a.shape);
    memcpy(a.order, order, sizeof a.order);
    return rg_export_define(e, node, 0, &a);
}

/* ---- softmax, dropout ---- */

/* Over several dimensions, the last ones: as one dimension. */
static rg_status flat_softmax(rg_export *e, const rg_node *node, int32_t axis)
{
    const rg_softmax_desc *d = node->desc;
    const rg_tensor_desc *shape = e->values[node->in[0]->id].shape;
    rg_tensor_desc rows[RG_PROBES];
    rg_form form;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t dims[RG_MAX_RANK] = { 0 };
        for (int32_t k = 0; k < shape[p].rank; k++)
            dims[k < axis ? k : axis] = shape[p].dims[k] * (k > axis ? dims[axis] : 1);
        rows[p] = rg_tensor_desc_dense(shape[p].dtype, axis + 1, dims);
    }
    RG_TRY(rg_export_plain(e, node->in[0], &form));
    RG_TRY(rg_form_reshape(e, &form, rows, rg_plain_order));
    RG_TRY(rg_emit(e, d->kind == RG_SOFTMAX_LOG ? "LogSoftmax" : "Softmax"));
    rg_emit_input(e, form.name);
    rg_emit_int(e, "axis", axis);
    RG_TRY(rg_form_made(e, &form));
    RG_TRY(rg_form_reshape(e, &form, shape, rg_plain_order));
    return rg_export_define(e, node, 0, &form);
}

rg_status rg_export_softmax(rg_export *e, const rg_node *node)
{
    const rg_softmax_desc *d = node->desc;
    const rg_tensor_desc *shape = e->values[node->in[0]->id].shape;
    const int32_t rank = shape[0].rank;
    const int32_t axis = (int32_t)(d->axis < 0 ? d->axis + rank : d->axis);
    rg_form form;
    int32_t longer = 0;
    for (int32_t k = axis; k < rank; k++)
        longer += shape[0].dims[k] != 1 || shape[1].dims[k] != 1;
    if (d->flatten && longer > 1)
        return flat_softmax(e, node, axis);
    RG_TRY(rg_export_raw(e, node->in[0], &form));
    const bool flat = form.shape[0].rank != rank;
    if ((flat && axis != rank - 1) || d->flatten)
        RG_TRY(rg_export_any(e, node->in[0], &form));
    int32_t along = axis; /* of a group over several dimensions the only one that is not 1 */
    for (int32_t k = axis; d->flatten && k < rank; k++)
        along = shape[0].dims[k] != 1 || shape[1].dims[k] != 1 ? k : along;
    RG_TRY(rg_emit(e, d->kind == RG_SOFTMAX_LOG ? "LogSoftmax" : "Softmax"));
    rg_emit_input(e, form.name);
    rg_emit_int(e, "axis", form.shape[0].rank != rank ? 1 : form.order[along]);
    RG_TRY(rg_form_made(e, &form));
    return rg_export_define(e, node, 0, &form);
}

/* As the network is used: nothing is dropped. */
rg_status rg_export_dropout(rg_export *e, const rg_node *node)
{
    rg_form form;
    RG_TRY(rg_export_raw(e, node->in[0], &form));
    return rg_export_define(e, node, 0, &form);
}
