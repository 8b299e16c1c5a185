/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Element-wise operators: arithmetic with broadcasting over any order of dimensions, bounds, and
 * activations that are more than one op. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <string.h>

/* ---- two operands in one order ---- */

/* The order of a tensor of fewer dimensions that fits to `order`. */
static void fitting_order(const int32_t order[], int32_t rank, int32_t own, int32_t fitting[])
{
    int32_t count = 0;
    for (int32_t d = 0; d < rank; d++) {
        if (order[d] >= rank - own)
            fitting[count++] = order[d] - (rank - own);
    }
}

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
    rg_known *other = NULL;
    int32_t order[RG_MAX_RANK];
    RG_TRY(choose_leader(m, node, a, b, &leader));
    rg_flow *first = leader == a ? x : y, *second = leader == a ? y : x;
    const size_t follower = leader == a ? b : a;
    RG_TRY(rg_import_any(m, node, leader, first));
    RG_TRY(rg_import_known(m, node, follower, &other));
    const int32_t own = other->shape[0].rank, mine = rg_flow_rank(first);
    const int32_t rank = own > mine ? own : mine;
    RG_TRY(rg_flow_widen(m, first, rank));
    fitting_order(first->order, rank, own, order);
    if (other->has_flow || !rg_known_is_constant(other))
        RG_TRY(rg_import_any(m, node, follower, second));
    else
        RG_TRY(rg_import_ordered(m, node, follower, order, second));
    RG_TRY(rg_flow_widen(m, second, rank));
    return rg_flow_reorder(m, second, first->order);
}

/* ---- arithmetic ---- */

static rg_arithmetic_kind kind_of(const rg_proto_node *node)
{
    return node->type[0] == 'S'   ? RG_ARITHMETIC_SUBTRACT
           : node->type[0] == 'M' ? RG_ARITHMETIC_MULTIPLY
           : node->type[0] == 'D' ? RG_ARITHMETIC_DIVIDE
                                  : RG_ARITHMETIC_ADD;
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
    if (number->shape[0].rank > tensor->shape[0].rank || number->type != tensor->type ||
        (kind == RG_ARITHMETIC_DIVIDE && (at == 0 || !exact)))
        return RG_OK;
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
    RG_TRY(by_number(m, node, kind, &done));
    if (done)
        return RG_OK;
    RG_TRY(align(m, node, 0, 1, &x, &y));
    RG_TRY(rg_flow_arithmetic(m, kind, &x, &y, &result));
    return rg_import_define(m, node, 0, &result);
}

/* Sum and Mean of any number of inputs. */
rg_status rg_convert_sum(rg_import *m, const rg_proto_node *node)
{
    rg_flow sum, x;
    RG_TRY(rg_import_any(m, node, 0, &sum));
    for (size_t i = 1; i < node->input_count; i++) {
        rg_flow next;
        RG_TRY(rg_import_any(m, node, i, &x));
        const int32_t a = rg_flow_rank(&sum), b = rg_flow_rank(&x), rank = a > b ? a : b;
        RG_TRY(rg_flow_widen(m, &sum, rank));
        RG_TRY(rg_flow_widen(m, &x, rank));
        RG_TRY(rg_flow_reorder(m, &x, sum.order));
        RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_ADD, &sum, &x, &next));
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
    double exponent;
    rg_known *number = NULL, *tensor = NULL;
    rg_flow x;
    RG_CHECK(rg_import_scalar(m, node, 1, &exponent), RG_UNSUPPORTED,
             "an exponent that is not one constant number is not covered");
    RG_TRY(rg_import_known(m, node, 0, &tensor));
    RG_TRY(rg_import_known(m, node, 1, &number));
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
    int32_t count;
    RG_TRY(rg_attribute_float(node, name, bound));
    if (!rg_node_has(node, input))
        return RG_OK;
    RG_TRY(rg_import_floats(m, node, input, bound, 1, &count));
    RG_CHECK(count == 1, RG_MALFORMED, "input '%s' is empty", name);
    return RG_OK;
}

rg_status rg_convert_clip(rg_import *m, const rg_proto_node *node)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    rg_flow x, zero, y;
    RG_TRY(read_bound(m, node, "min", 1, &desc.minimum));
    RG_TRY(read_bound(m, node, "max", 2, &desc.maximum));
    RG_CHECK(desc.minimum <= desc.maximum, RG_UNSUPPORTED, "min is above max, or one is NaN");
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
    double alpha = (double)1.67326319217681884765625f, gamma = (double)1.05070102214813232421875f;
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
