/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient nodes of activations and arithmetic as operators: those of com.microsoft where there is
 * one, else plain ones of ONNX; and the table of all. */
#include "onnx/export.h"

#include "core/shape.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <string.h>

/* ---- pieces ---- */

bool rg_export_has_gradient(const rg_export *e, const rg_node *node)
{
    for (size_t n = (size_t)node->id + 1; n < e->graph->nodes_count; n++) {
        if (e->live[n] && e->graph->nodes[n]->gradient && e->graph->nodes[n]->forward == node)
            return true;
    }
    return false;
}

rg_status rg_export_define_gradient(rg_export *e, const rg_node *node, int32_t input,
                                    const rg_form *form)
{
    return node->out[input] != NULL ? rg_export_define(e, node, input, form) : RG_OK;
}

rg_status rg_form_runtime(rg_export *e, const char *type, rg_form *dy, const char *other)
{
    RG_TRY(rg_emit_runtime(e, type));
    rg_emit_input(e, dy->name);
    rg_emit_input(e, other);
    return rg_form_made(e, dy);
}

/* condition ? a : b, into `form` */
static rg_status where(rg_export *e, rg_form *form, const char *condition, const char *a,
                       const char *b)
{
    RG_TRY(rg_emit(e, "Where"));
    rg_emit_input(e, condition);
    rg_emit_input(e, a);
    rg_emit_input(e, b);
    return rg_form_made(e, form);
}

/* x compared with a number. */
static rg_status compared(rg_export *e, const char *type, const rg_form *x, double number,
                          rg_form *condition)
{
    const char *name;
    *condition = *x;
    RG_TRY(rg_export_number(e, x->shape[0].dtype, number, &name));
    return rg_form_binary(e, type, condition, name);
}

/* dy where the condition holds, else 0. */
static rg_status keep_where(rg_export *e, rg_form *dy, const char *condition)
{
    const char *zero;
    RG_TRY(rg_export_number(e, dy->shape[0].dtype, 0, &zero));
    return where(e, dy, condition, dy->name, zero);
}

rg_status rg_form_sum(rg_export *e, rg_form *form, const bool dims[], bool keep)
{
    int64_t axes[RG_MAX_RANK];
    int32_t count = 0, order[RG_MAX_RANK], left = 0;
    const char *numbers;
    const int32_t rank = form->shape[0].rank;
    for (int32_t d = 0; d < rank; d++) {
        if (dims[d]) {
            axes[count++] = form->order[d];
            continue;
        }
        order[left] = form->order[d];
        for (int32_t k = 0; k < rank; k++)
            order[left] -= dims[k] && form->order[k] < form->order[d];
        left++;
    }
    if (count == 0)
        return RG_OK;
    RG_TRY(rg_export_ints(e, axes, count, ".axes", &numbers));
    RG_TRY(rg_emit(e, "ReduceSum"));
    rg_emit_input(e, form->name);
    rg_emit_input(e, numbers);
    rg_emit_int(e, "keepdims", keep);
    RG_TRY(rg_form_made(e, form));
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t lengths[RG_MAX_RANK];
        int32_t made = 0;
        for (int32_t d = 0; d < rank; d++) {
            if (!dims[d] || keep)
                lengths[made++] = dims[d] ? 1 : form->shape[p].dims[d];
        }
        form->shape[p] = rg_tensor_desc_dense(form->shape[p].dtype, made, lengths);
    }
    if (!keep)
        memcpy(form->order, order, sizeof order[0] * (size_t)left);
    return RG_OK;
}

/* ---- activations ---- */

typedef struct activation {
    const rg_neuron_desc *desc;
    double a, b, c;
    const rg_form *x, *y;
} activation;

static rg_status bounded_gradient(rg_export *e, const activation *n, rg_form *dy)
{
    rg_form condition, other = *dy;
    if (n->desc->kind == RG_NEURON_HARD_SIGMOID) {
        rg_form u = *n->x, above;
        RG_TRY(rg_form_times(e, &u, n->a));
        RG_TRY(rg_form_plus(e, &u, n->b));
        RG_TRY(compared(e, "GreaterOrEqual", &u, 0, &condition));
        RG_TRY(compared(e, "LessOrEqual", &u, 1, &above));
        RG_TRY(rg_form_binary(e, "And", &condition, above.name));
        RG_TRY(keep_where(e, dy, condition.name));
        return rg_form_times(e, dy, n->a);
    }
    if (n->a != 1) { /* relun: the slope below 0 */
        RG_TRY(compared(e, "Greater", n->x, 0, &condition));
        RG_TRY(rg_form_times(e, &other, n->a));
        RG_TRY(where(e, dy, condition.name, dy->name, other.name));
    }
    RG_TRY(compared(e, "Less", n->y, n->b, &condition));
    return keep_where(e, dy, condition.name);
}

/* dy times a slope that is computed from x or y. */
static rg_status smooth_gradient(rg_export *e, const activation *n, rg_form *dy)
{
    rg_form slope = *n->x;
    const double base = n->c == -1 ? 1 : log(n->c);
    switch (n->desc->kind) {
    case RG_NEURON_TANH: /* b (a - y^2 / a) */
        slope = *n->y;
        RG_TRY(rg_form_binary(e, "Mul", &slope, n->y->name));
        RG_TRY(rg_form_times(e, &slope, -n->b / n->a));
        RG_TRY(rg_form_plus(e, &slope, n->a * n->b));
        break;
    case RG_NEURON_ABSOLUTE:
        RG_TRY(rg_form_unary(e, "Sign", &slope));
        break;
    case RG_NEURON_SOFTPLUS:
        RG_TRY(rg_form_times(e, &slope, n->b));
        RG_TRY(rg_form_unary(e, "Sigmoid", &slope));
        RG_TRY(rg_form_times(e, &slope, n->a * n->b));
        break;
    case RG_NEURON_SOFTSIGN: { /* 1 / (1 + |x|)^2 */
        RG_TRY(rg_form_unary(e, "Abs", &slope));
        RG_TRY(rg_form_plus(e, &slope, 1));
        const rg_form once = slope;
        RG_TRY(rg_form_binary(e, "Mul", &slope, once.name));
        RG_TRY(rg_form_unary(e, "Reciprocal", &slope));
        break;
    }
    case RG_NEURON_POWER: {
        const char *exponent;
        RG_TRY(rg_form_times(e, &slope, n->a));
        RG_TRY(rg_form_plus(e, &slope, n->b));
        RG_TRY(rg_export_number(e, slope.shape[0].dtype, n->c - 1, &exponent));
        RG_TRY(rg_form_binary(e, "Pow", &slope, exponent));
        RG_TRY(rg_form_times(e, &slope, n->a * n->c));
        break;
    }
    case RG_NEURON_EXPONENTIAL:
        slope = *n->y;
        RG_TRY(rg_form_times(e, &slope, n->a * base));
        break;
    default: /* logarithm */
        RG_TRY(rg_form_times(e, &slope, n->a));
        RG_TRY(rg_form_plus(e, &slope, n->b));
        RG_TRY(rg_form_unary(e, "Reciprocal", &slope));
        RG_TRY(rg_form_times(e, &slope, n->a / base));
        break;
    }
    return rg_form_binary(e, "Mul", dy, slope.name);
}

/* x > 0 ? dy : a e^x dy, where a e^x is y + a */
static rg_status elu_gradient(rg_export *e, const activation *n, rg_form *dy)
{
    rg_form condition, below = *n->y;
    RG_TRY(rg_form_plus(e, &below, n->a));
    RG_TRY(rg_form_binary(e, "Mul", &below, dy->name));
    RG_TRY(compared(e, "Greater", n->x, 0, &condition));
    return where(e, dy, condition.name, dy->name, below.name);
}

static rg_status leaky_gradient(rg_export *e, const activation *n, rg_form *dy)
{
    rg_form condition, below = *dy;
    if (n->a == 0)
        return rg_form_runtime(e, "ReluGrad", dy, n->x->name);
    if (n->a > 0) {
        RG_TRY(rg_form_runtime(e, "LeakyReluGrad", dy, n->y->name));
        rg_emit_float(e, "alpha", n->a);
        return RG_OK;
    }
    RG_TRY(rg_form_times(e, &below, n->a));
    RG_TRY(compared(e, "Greater", n->x, 0, &condition));
    return where(e, dy, condition.name, dy->name, below.name);
}

rg_status rg_form_neuron_gradient(rg_export *e, const rg_neuron_desc *d, const rg_form *x,
                                  const rg_form *y, rg_form *dy)
{
    double numbers[3];
    rg_neuron_numbers(d, numbers);
    const activation n = { d, numbers[0], numbers[1], numbers[2], x, y };
    switch (d->kind) {
    case RG_NEURON_NONE:
        return RG_OK;
    case RG_NEURON_RELU:
        return leaky_gradient(e, &n, dy);
    case RG_NEURON_LINEAR:
        return rg_form_times(e, dy, n.a);
    case RG_NEURON_SIGMOID:
        return rg_form_runtime(e, "SigmoidGrad", dy, y->name);
    case RG_NEURON_TANH:
        return n.a == 1 && n.b == 1 ? rg_form_runtime(e, "TanhGrad", dy, y->name)
                                    : smooth_gradient(e, &n, dy);
    case RG_NEURON_GELU:
        return rg_form_runtime(e, "GeluGrad", dy, x->name);
    case RG_NEURON_GELU_TANH:
        return rg_form_runtime(e, "FastGeluGrad", dy, x->name);
    case RG_NEURON_SWISH:
        RG_TRY(rg_form_runtime(e, "QuickGeluGrad", dy, x->name));
        rg_emit_float(e, "alpha", n.a);
        return RG_OK;
    case RG_NEURON_ELU:
        return elu_gradient(e, &n, dy);
    case RG_NEURON_RELUN:
    case RG_NEURON_HARD_SIGMOID:
        return bounded_gradient(e, &n, dy);
    case RG_NEURON_PRELU:
        return rg_fail(RG_UNSUPPORTED, "prelu");
    default:
        return smooth_gradient(e, &n, dy);
    }
}

/* dx = x > 0 ? dy : slope dy,  dslope = sum of x > 0 ? 0 : dy x */
static rg_status prelu_gradient(rg_export *e, const rg_node *node, const rg_form *x, rg_form *dy)
{
    const int32_t rank = x->shape[0].rank;
    const int64_t channels = x->shape[0].dims[rank - 1];
    rg_form condition, slope, below = *dy, product = *dy;
    bool dims[RG_MAX_RANK] = { false };
    const char *zero;
    int64_t widened[RG_MAX_RANK];
    rg_tensor_desc shape[RG_PROBES];
    for (int32_t d = 0; d < rank; d++) {
        widened[d] = d == rank - 1 ? channels : 1;
        dims[d] = d < rank - 1;
    }
    shape[0] = shape[1] = rg_tensor_desc_dense(x->shape[0].dtype, rank, widened);
    RG_TRY(compared(e, "Greater", x, 0, &condition));
    RG_TRY(rg_export_plain(e, node->x[1], &slope));
    RG_TRY(rg_form_reshape(e, &slope, shape, x->order));
    RG_TRY(rg_form_binary(e, "Mul", &below, slope.name));
    RG_TRY(rg_form_binary(e, "Mul", &product, x->name));
    RG_TRY(where(e, dy, condition.name, dy->name, below.name));
    RG_TRY(rg_export_define_gradient(e, node, 0, dy));
    if (node->out[1] == NULL)
        return RG_OK;
    RG_TRY(rg_export_number(e, x->shape[0].dtype, 0, &zero));
    RG_TRY(where(e, &product, condition.name, zero, product.name));
    RG_TRY(rg_form_sum(e, &product, dims, false));
    return rg_export_define_gradient(e, node, 1, &product);
}

rg_status rg_export_forward_result(rg_export *e, const rg_node *node, const int32_t order[],
                                   rg_form *y)
{
    const rg_value *value = node->y[0] != NULL      ? node->y[0]
                            : node->forward != NULL ? node->forward->out[0]
                                                    : NULL;
    RG_CHECK(value != NULL && e->values[value->id].has_form, RG_UNSUPPORTED,
             "the result of the forward pass is not there");
    return rg_export_ordered(e, value, order, y);
}

static rg_status neuron_gradient(rg_export *e, const rg_node *node)
{
    const rg_neuron_desc *d = node->desc;
    rg_form x, y, dy;
    RG_TRY(rg_export_any(e, node->x[0], &x));
    RG_TRY(rg_export_ordered(e, node->in[0], x.order, &dy));
    if (d->kind == RG_NEURON_PRELU)
        return prelu_gradient(e, node, &x, &dy);
    RG_TRY(rg_export_forward_result(e, node, x.order, &y));
    RG_TRY(rg_form_neuron_gradient(e, d, &x, &y, &dy));
    return rg_export_define_gradient(e, node, 0, &dy);
}

/* ---- arithmetic ---- */

/* Sums over what an operand was repeated for, in the operand's own shape. */
static rg_status unbroadcast(rg_export *e, const rg_value *operand, rg_form *form)
{
    const rg_tensor_desc *shape = e->values[operand->id].shape;
    const int32_t rank = form->shape[0].rank, own = shape[0].rank;
    bool front[RG_MAX_RANK] = { false }, ones[RG_MAX_RANK] = { false };
    for (int32_t d = 0; d < rank; d++) {
        const int32_t k = d - (rank - own);
        front[d] = k < 0;
        if (k >= 0)
            ones[k] = shape[0].dims[k] == 1 &&
                      (form->shape[0].dims[d] != 1 || form->shape[1].dims[d] != 1);
    }
    RG_TRY(rg_form_sum(e, form, front, false));
    return rg_form_sum(e, form, ones, true);
}

/* dy where the bounds hold nothing. */
static rg_status pass_bounds(rg_export *e, const rg_arithmetic_desc *d, const rg_form x[2],
                             rg_form *dy)
{
    rg_arithmetic_desc free = *d;
    rg_form r = x[0], b = x[1], condition;
    free.minimum = -(double)INFINITY;
    free.maximum = (double)INFINITY;
    RG_TRY(rg_form_combine(e, &free, &r, &b));
    if (isfinite(d->minimum)) {
        RG_TRY(compared(e, "GreaterOrEqual", &r, d->minimum, &condition));
        RG_TRY(keep_where(e, dy, condition.name));
    }
    if (isfinite(d->maximum)) {
        RG_TRY(compared(e, "LessOrEqual", &r, d->maximum, &condition));
        RG_TRY(keep_where(e, dy, condition.name));
    }
    return RG_OK;
}

/* dy where operand i is the larger, or the smaller one, and half of it where both are equal. */
static rg_status extreme_gradient(rg_export *e, const rg_arithmetic_desc *d, int32_t i,
                                  const rg_form x[2], rg_form *dy)
{
    rg_form a = x[0], b = x[1], half = *dy;
    const char *zero;
    RG_TRY(rg_form_times(e, &a, d->primary_scale));
    RG_TRY(rg_form_times(e, &b, d->secondary_scale));
    rg_form equal = a, other = a;
    RG_TRY(rg_form_times(e, &half, 0.5));
    RG_TRY(rg_form_binary(e, "Equal", &equal, b.name));
    RG_TRY(where(e, dy, equal.name, half.name, dy->name));
    RG_TRY(rg_form_binary(e, (d->kind == RG_ARITHMETIC_MAXIMUM) == (i == 0) ? "Less" : "Greater",
                          &other, b.name));
    RG_TRY(rg_export_number(e, dy->shape[0].dtype, 0, &zero));
    return where(e, dy, other.name, zero, dy->name);
}

static rg_status operand_gradient(rg_export *e, const rg_node *node, int32_t i, const rg_form *dy,
                                  const rg_form x[2])
{
    const rg_arithmetic_desc *d = node->desc;
    const double p = d->primary_scale, s = d->secondary_scale;
    rg_form form = *dy;
    if (node->out[i] == NULL)
        return RG_OK;
    if (d->kind == RG_ARITHMETIC_MASK && i == 1) { /* none: 0 */
        RG_TRY(rg_export_any(e, node->x[1], &form));
        RG_TRY(rg_form_times(e, &form, 0));
        return rg_export_define_gradient(e, node, i, &form);
    }
    if (d->kind == RG_ARITHMETIC_MULTIPLY) {
        RG_TRY(rg_form_binary(e, "Mul", &form, x[1 - i].name));
        RG_TRY(rg_form_times(e, &form, p * s));
    } else if (d->kind == RG_ARITHMETIC_DIVIDE) {
        RG_TRY(rg_form_binary(e, "Div", &form, x[1].name));
        if (i == 1) { /* -p a dy / (s b^2) */
            RG_TRY(rg_form_binary(e, "Div", &form, x[1].name));
            RG_TRY(rg_form_binary(e, "Mul", &form, x[0].name));
        }
        RG_TRY(rg_form_times(e, &form, i == 0 ? p / s : -p / s));
    } else {
        const double sign = d->kind == RG_ARITHMETIC_SUBTRACT && i == 1 ? -1 : 1;
        RG_TRY(rg_form_times(e, &form, i == 0 ? p : sign * s));
    }
    if (d->kind == RG_ARITHMETIC_MAXIMUM || d->kind == RG_ARITHMETIC_MINIMUM)
        RG_TRY(extreme_gradient(e, d, i, x, &form));
    if (d->kind == RG_ARITHMETIC_MASK)
        RG_TRY(rg_form_mask(e, &form, &x[1]));
    RG_TRY(unbroadcast(e, node->x[i], &form));
    return rg_export_define_gradient(e, node, i, &form);
}

static rg_status arithmetic_gradient(rg_export *e, const rg_node *node)
{
    const rg_arithmetic_desc *d = node->desc;
    const bool bounded = isfinite(d->minimum) || isfinite(d->maximum);
    const bool sum = d->kind == RG_ARITHMETIC_ADD || d->kind == RG_ARITHMETIC_SUBTRACT;
    const int32_t rank = e->values[node->in[0]->id].shape[0].rank;
    rg_form dy, x[2];
    RG_CHECK(d->kind != RG_ARITHMETIC_COMPARE, RG_UNSUPPORTED, "comparisons have no gradient");
    RG_TRY(rg_export_any(e, node->in[0], &dy));
    for (int i = 0; i < 2; i++) {
        if (!sum || bounded)
            RG_TRY(rg_export_operand(e, node->x[i], rank, dy.order, &x[i]));
    }
    if (bounded)
        RG_TRY(pass_bounds(e, d, x, &dy));
    for (int i = 0; i < 2; i++)
        RG_TRY(operand_gradient(e, node, i, &dy, x));
    return RG_OK;
}

/* ---- the table ---- */

rg_exporter *rg_gradient_exporter_find(const char *op)
{
    static const struct entry {
        const char *op;
        rg_exporter *exporter;
    } entries[] = {
        { "conv", rg_export_conv_gradient },
        { "conv_transpose", rg_export_conv_transpose_gradient },
        { "pad", rg_export_pad_gradient },
        { "lrn", rg_export_lrn_gradient },
        { "upsample", rg_export_upsample_gradient },
        { "pool", rg_export_pool_gradient },
        { "dense", rg_export_dense_gradient },
        { "matmul", rg_export_matmul_gradient },
        { "batch_norm", rg_export_batch_norm_gradient },
        { "group_norm", rg_export_layer_norm_gradient },
        { "neuron", neuron_gradient },
        { "arithmetic", arithmetic_gradient },
        { "softmax", rg_export_softmax_gradient },
        { "dropout", rg_export_dropout_gradient },
        { "reshape", rg_export_reshape_gradient },
        { "transpose", rg_export_transpose_gradient },
        { "concat", rg_export_concat_gradient },
        { "slice", rg_export_slice_gradient },
        { "reduce", rg_export_reduce_gradient },
        { "loss", rg_export_loss_gradient },
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].op, op) == 0)
            return entries[i].exporter;
    }
    return NULL;
}
