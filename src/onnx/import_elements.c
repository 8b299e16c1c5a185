/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Element-wise operators: arithmetic with broadcasting over any order of dimensions, bounds, and
 * activations that are more than one op. */
#include "onnx/import.h"

#include "core/shape.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <string.h>

/* ---- two operands in one order ---- */

static bool is_plain(const rg_flow *flow)
{
    for (int32_t d = 0; d < rg_flow_rank(flow); d++) {
        if (flow->order[d] != d)
            return false;
    }
    return true;
}

/* Which of two inputs decides the order: one that is no constant, of the higher rank, with an
 * order of its own. */
static rg_status choose_leader(rg_import *m, const rg_proto_node *node, size_t a, size_t b,
                               size_t *leader)
{
    rg_known *x = NULL, *y = NULL;
    RG_TRY(rg_import_known(m, node, a, &x));
    RG_TRY(rg_import_known(m, node, b, &y));
    *leader = a;
    if (rg_known_is_constant(x) != rg_known_is_constant(y))
        *leader = rg_known_is_constant(x) ? b : a;
    else if (x->shape[0].rank != y->shape[0].rank)
        *leader = x->shape[0].rank < y->shape[0].rank ? b : a;
    else if (x->has_flow && y->has_flow && is_plain(&x->flow) && !is_plain(&y->flow))
        *leader = b;
    return RG_OK;
}

/* Inputs a and b with the same rank and order. */
static rg_status align(rg_import *m, const rg_proto_node *node, size_t a, size_t b, rg_flow *x,
                       rg_flow *y)
{
    size_t leader;
    RG_TRY(choose_leader(m, node, a, b, &leader));
    rg_flow *first = leader == a ? x : y, *second = leader == a ? y : x;
    RG_TRY(rg_import_any(m, node, leader, first));
    return rg_import_beside(m, node, leader == a ? b : a, first, second);
}

/* ---- arithmetic ---- */

static rg_arithmetic_kind kind_of(const rg_proto_node *node)
{
    return node->type[0] == 'S'   ? RG_ARITHMETIC_SUBTRACT
           : node->type[0] == 'M' ? RG_ARITHMETIC_MULTIPLY
           : node->type[0] == 'D' ? RG_ARITHMETIC_DIVIDE
                                  : RG_ARITHMETIC_ADD;
}

/* A quotient with a number that a product would round otherwise. */
static rg_status divide_number(rg_import *m, const rg_proto_node *node, size_t at, double c)
{
    rg_flow x, number, y;
    RG_TRY(rg_import_any(m, node, 1 - at, &x));
    RG_TRY(rg_import_number(m, x.shape[0].dtype, c, &number));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_DIVIDE, at == 0 ? &number : &x,
                              at == 0 ? &x : &number, &y));
    return rg_import_define(m, node, 0, &y);
}

/* A constant number beside a tensor: a x + b. *done is false where it is not one. */
static rg_status by_number(rg_import *m, const rg_proto_node *node, rg_arithmetic_kind kind,
                           bool *done)
{
    double c;
    rg_flow x;
    rg_known *number = NULL, *tensor = NULL;
    *done = false;
    const size_t at = rg_import_scalar(m, node, 1, &c)   ? 1
                      : rg_import_scalar(m, node, 0, &c) ? 0
                                                         : 2;
    if (at == 2 || !isfinite(c))
        return RG_OK;
    RG_TRY(rg_import_known(m, node, at, &number));
    RG_TRY(rg_import_known(m, node, 1 - at, &tensor));
    int exponent;
    const bool exact = frexp(c, &exponent) == 0.5 || frexp(c, &exponent) == -0.5;
    if (number->shape[0].rank > tensor->shape[0].rank ||
        (number->type != tensor->type && !m->options.has_dtype))
        return RG_OK;
    if (kind == RG_ARITHMETIC_DIVIDE && (at == 0 || !exact)) {
        *done = true;
        return divide_number(m, node, at, c);
    }
    const double factor = kind == RG_ARITHMETIC_MULTIPLY              ? c
                          : kind == RG_ARITHMETIC_DIVIDE              ? 1 / c
                          : kind == RG_ARITHMETIC_SUBTRACT && at == 0 ? -1
                                                                      : 1;
    const double bias = kind == RG_ARITHMETIC_ADD        ? c
                        : kind == RG_ARITHMETIC_SUBTRACT ? (at == 0 ? c : -c)
                                                         : 0;
    *done = true;
    RG_TRY(rg_import_any(m, node, 1 - at, &x));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_LINEAR, (const double[]){ factor, bias }, 2));
    return rg_import_define(m, node, 0, &x);
}

rg_status rg_convert_binary(rg_import *m, const rg_proto_node *node)
{
    const rg_arithmetic_kind kind = kind_of(node);
    rg_flow x, y, result;
    bool done;
    RG_TRY(rg_gelu_binary(m, node, kind, &done));
    if (done)
        return RG_OK;
    RG_TRY(by_number(m, node, kind, &done));
    if (!done) {
        RG_TRY(align(m, node, 0, 1, &x, &y));
        RG_TRY(rg_flow_arithmetic(m, kind, &x, &y, &result));
        RG_TRY(rg_import_define(m, node, 0, &result));
    }
    return rg_gelu_note(m, node, kind);
}

/* Sum, Mean, Max and Min of any number of inputs, from the one that decides the order. */
rg_status rg_convert_sum(rg_import *m, const rg_proto_node *node)
{
    rg_flow sum, x;
    const rg_arithmetic_kind kind = strcmp(node->type, "Max") == 0   ? RG_ARITHMETIC_MAXIMUM
                                    : strcmp(node->type, "Min") == 0 ? RG_ARITHMETIC_MINIMUM
                                                                     : RG_ARITHMETIC_ADD;
    size_t leader = 0;
    for (size_t i = 1; i < node->input_count; i++)
        RG_TRY(choose_leader(m, node, leader, i, &leader));
    RG_TRY(rg_import_any(m, node, leader, &sum));
    for (size_t i = 0; i < node->input_count; i++) {
        rg_flow next;
        if (i == leader)
            continue;
        RG_TRY(rg_import_beside(m, node, i, &sum, &x));
        RG_TRY(rg_flow_arithmetic(m, kind, &sum, &x, &next));
        sum = next;
    }
    const double share = 1 / (double)node->input_count;
    if (strcmp(node->type, "Mean") == 0 && node->input_count > 1)
        RG_TRY(rg_flow_neuron(m, &sum, RG_NEURON_LINEAR, (const double[]){ share, 0 }, 2));
    else if (node->input_count == 1)
        RG_TRY(rg_flow_neuron(m, &sum, RG_NEURON_NONE, NULL, 0));
    return rg_import_define(m, node, 0, &sum);
}

rg_status rg_convert_pow(rg_import *m, const rg_proto_node *node)
{
    rg_known *number = NULL, *tensor = NULL;
    const rg_array *array = NULL;
    rg_flow x;
    RG_TRY(rg_import_known(m, node, 0, &tensor));
    RG_TRY(rg_import_known(m, node, 1, &number));
    RG_CHECK(rg_known_is_constant(number) && rg_shape_count(&number->shape[0]) == 1 &&
                 number->array[0] == number->array[1],
             RG_UNSUPPORTED, "an exponent that is not one constant number is not covered");
    RG_TRY(rg_known_array(m, number, 0, &array));
    const bool integer = rg_type_is_integer(number->type);
    const double exponent = integer ? (double)rg_array_at(array, 0).i : rg_array_at(array, 0).f;
    RG_CHECK(number->shape[0].rank <= tensor->shape[0].rank && isfinite(exponent), RG_UNSUPPORTED,
             "this exponent is not covered");
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_POWER, (const double[]){ 1, 0, exponent }, 3));
    return rg_import_define(m, node, 0, &x);
}

/* ---- activations ---- */

rg_status rg_convert_unary(rg_import *m, const rg_proto_node *node)
{
    rg_flow x;
    RG_TRY(rg_import_any(m, node, 0, &x));
    if (strcmp(node->type, "Neg") == 0)
        RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_LINEAR, (const double[]){ -1, 0 }, 2));
    else if (strcmp(node->type, "Sqrt") == 0)
        RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_POWER, (const double[]){ 1, 0, 0.5 }, 3));
    else
        RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_POWER, (const double[]){ 1, 0, -1 }, 3));
    return rg_import_define(m, node, 0, &x);
}

/* A bound by attribute or by input. */
static rg_status read_bound(rg_import *m, const rg_proto_node *node, const char *name, size_t input,
                            double *bound)
{
    rg_known *known = NULL;
    int32_t count;
    RG_TRY(rg_attribute_float(node, name, bound));
    if (!rg_node_has(node, input))
        return RG_OK;
    RG_TRY(rg_import_known(m, node, input, &known));
    RG_TRY(rg_import_floats(m, node, input, bound, 1, &count));
    const bool is_f32 = known->type == RG_ONNX_FLOAT;
    RG_CHECK(count == 1, RG_MALFORMED, "input '%s' is empty", name);
    *bound = is_f32 ? rg_meant_number((float)*bound) : *bound;
    return RG_OK;
}

rg_status rg_convert_clip(rg_import *m, const rg_proto_node *node)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    rg_flow x, zero, y;
    rg_known *known = NULL;
    RG_TRY(rg_import_known(m, node, 0, &known));
    RG_CHECK(!rg_type_is_integer(known->type), RG_UNSUPPORTED, "values of type %s are not covered",
             rg_onnx_type_name(known->type));
    RG_TRY(read_bound(m, node, "min", 1, &desc.minimum));
    RG_TRY(read_bound(m, node, "max", 2, &desc.maximum));
    if (desc.minimum > desc.maximum) /* all elements are max then */
        desc.minimum = desc.maximum;
    RG_CHECK(desc.minimum <= desc.maximum, RG_UNSUPPORTED, "a bound is NaN");
    RG_TRY(rg_import_any(m, node, 0, &x));
    if (desc.minimum == 0 && desc.maximum > 0 && isfinite(desc.maximum)) {
        RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_RELUN, (const double[]){ 0, desc.maximum }, 2));
        return rg_import_define(m, node, 0, &x);
    }
    desc.kind = RG_ARITHMETIC_SUBTRACT;
    RG_TRY(rg_import_number(m, x.shape[0].dtype, 0, &zero));
    const rg_flow *inputs[] = { &x, &zero };
    RG_TRY(rg_import_apply(m, "arithmetic", &desc, inputs, 2, &y, 1));
    return rg_import_define(m, node, 0, &y);
}

/* x times a function of x. */
static rg_status times_itself(rg_import *m, const rg_proto_node *node, const rg_flow *x,
                              const rg_flow *f)
{
    rg_flow y;
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_MULTIPLY, x, f, &y));
    return rg_import_define(m, node, 0, &y);
}

rg_status rg_convert_hard_swish(rg_import *m, const rg_proto_node *node)
{
    rg_flow x, f;
    RG_TRY(rg_import_any(m, node, 0, &x));
    f = x;
    RG_TRY(rg_flow_neuron(m, &f, RG_NEURON_HARD_SIGMOID, (const double[]){ 1.0 / 6, 0.5 }, 2));
    return times_itself(m, node, &x, &f);
}

rg_status rg_convert_mish(rg_import *m, const rg_proto_node *node)
{
    rg_flow x, f;
    RG_TRY(rg_import_any(m, node, 0, &x));
    f = x;
    RG_TRY(rg_flow_neuron(m, &f, RG_NEURON_SOFTPLUS, NULL, 0));
    RG_TRY(rg_flow_neuron(m, &f, RG_NEURON_TANH, NULL, 0));
    return times_itself(m, node, &x, &f);
}

rg_status rg_convert_swish(rg_import *m, const rg_proto_node *node)
{
    rg_flow x;
    double alpha = 1;
    RG_TRY(rg_attribute_float(node, "alpha", &alpha));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_SWISH, &alpha, 1));
    return rg_import_define(m, node, 0, &x);
}

rg_status rg_convert_selu(rg_import *m, const rg_proto_node *node)
{
    rg_flow x;
    double alpha = rg_meant_number(1.67326319217681884765625f);
    double gamma = rg_meant_number(1.05070102214813232421875f);
    RG_TRY(rg_attribute_float(node, "alpha", &alpha));
    RG_TRY(rg_attribute_float(node, "gamma", &gamma));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_ELU, &alpha, 1));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_LINEAR, (const double[]){ gamma, 0 }, 2));
    return rg_import_define(m, node, 0, &x);
}

/* max(x, 0) + alpha (e^(x / alpha) - 1) where x < 0 */
rg_status rg_convert_celu(rg_import *m, const rg_proto_node *node)
{
    rg_flow x;
    double alpha = 1;
    RG_TRY(rg_attribute_float(node, "alpha", &alpha));
    RG_CHECK(alpha > 0 && isfinite(alpha), RG_UNSUPPORTED, "attribute 'alpha' is %g", alpha);
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_LINEAR, (const double[]){ 1 / alpha, 0 }, 2));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_ELU, (const double[]){ 1 }, 1));
    RG_TRY(rg_flow_neuron(m, &x, RG_NEURON_LINEAR, (const double[]){ alpha, 0 }, 2));
    return rg_import_define(m, node, 0, &x);
}

/* x where it is above alpha, else 0. */
rg_status rg_convert_threshold(rg_import *m, const rg_proto_node *node)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    rg_flow x, number, f;
    double alpha = 1;
    RG_TRY(rg_attribute_float(node, "alpha", &alpha));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(rg_import_number(m, x.shape[0].dtype, alpha, &number));
    const rg_flow *inputs[] = { &x, &number };
    desc.kind = RG_ARITHMETIC_COMPARE;
    desc.comparison = RG_COMPARE_GREATER;
    RG_TRY(rg_import_apply(m, "arithmetic", &desc, inputs, 2, &f, 1));
    RG_TRY(rg_value_stop_gradient(f.value));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_MASK, &x, &f, &x));
    return rg_import_define(m, node, 0, &x);
}

/* One slope per channel is one op; any other is max(x, 0) + slope (x - max(x, 0)). */
rg_status rg_convert_prelu(rg_import *m, const rg_proto_node *node)
{
    rg_flow x, slope, positive, rest, y;
    rg_known *known = NULL, *tensor = NULL;
    RG_TRY(rg_import_known(m, node, 0, &tensor));
    RG_TRY(rg_import_known(m, node, 1, &known));
    const int32_t rank = tensor->shape[0].rank, lead = rank - known->shape[0].rank;
    int32_t long_dim = -1, count = 0;
    for (int32_t d = 0; d < known->shape[0].rank; d++) {
        if (known->shape[0].dims[d] != 1) {
            long_dim = lead + d;
            count++;
        }
    }
    if (lead >= 0 && count == 1 && (long_dim == 1 || (long_dim == rank - 1 && rank < 3)))
        return rg_convert_table(m, node);
    RG_CHECK(lead >= 0, RG_MALFORMED, "slope has more dimensions than x");
    RG_TRY(align(m, node, 0, 1, &x, &slope));
    positive = x;
    RG_TRY(rg_flow_neuron(m, &positive, RG_NEURON_RELU, NULL, 0));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_SUBTRACT, &x, &positive, &rest));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_MULTIPLY, &rest, &slope, &rest));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_ADD, &positive, &rest, &y));
    return rg_import_define(m, node, 0, &y);
}
