/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Comparisons of values, logic, and Where. A condition is 1 or 0 in the dtype of the values, has
 * the type bool of the file, and no gradient. */
#include "onnx/import.h"

#include "core/dtype.h"

#include <retrograde/nodes.h>

#include <string.h>

/* ---- conditions ---- */

static rg_status define_condition(rg_import *m, const rg_proto_node *node, const rg_flow *flow)
{
    RG_TRY(rg_value_stop_gradient(flow->value));
    RG_TRY(rg_import_define(m, node, 0, flow));
    rg_known *known = rg_names_find(&m->names, node->outputs[0]);
    if (known != NULL)
        known->type = RG_ONNX_BOOL;
    return RG_OK;
}

static rg_status compare(rg_import *m, rg_compare comparison, const rg_flow *a, const rg_flow *b,
                         rg_flow *y)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    const rg_flow *inputs[] = { a, b };
    const rg_flow *longer = rg_flow_rank(a) >= rg_flow_rank(b) ? a : b;
    int32_t order[RG_MAX_RANK];
    memcpy(order, longer->order, sizeof order);
    desc.kind = RG_ARITHMETIC_COMPARE;
    desc.comparison = comparison;
    RG_TRY(rg_import_apply(m, "arithmetic", &desc, inputs, 2, y, 1));
    memcpy(y->order, order, sizeof order);
    return RG_OK;
}

/* Two inputs that both have one rank and order. */
static rg_status take_both(rg_import *m, const rg_proto_node *node, rg_flow x[2])
{
    rg_known *first = NULL;
    RG_TRY(rg_import_known(m, node, 0, &first));
    const size_t leader = rg_known_is_constant(first) ? 1 : 0;
    RG_TRY(rg_import_any(m, node, leader, &x[leader]));
    return rg_import_beside(m, node, 1 - leader, &x[leader], &x[1 - leader]);
}

rg_status rg_convert_compare(rg_import *m, const rg_proto_node *node)
{
    static const struct {
        const char *type;
        rg_compare comparison;
    } kinds[] = { { "Equal", RG_COMPARE_EQUAL },
                  { "Less", RG_COMPARE_LESS },
                  { "LessOrEqual", RG_COMPARE_LESS_OR_EQUAL },
                  { "Greater", RG_COMPARE_GREATER },
                  { "GreaterOrEqual", RG_COMPARE_GREATER_OR_EQUAL } };
    rg_flow x[2], y;
    size_t i = 0;
    while (i < 4 && strcmp(kinds[i].type, node->type) != 0)
        i++;
    RG_TRY(take_both(m, node, x));
    RG_TRY(compare(m, kinds[i].comparison, &x[0], &x[1], &y));
    return define_condition(m, node, &y);
}

/* And is a product, Or a maximum. */
rg_status rg_convert_logic(rg_import *m, const rg_proto_node *node)
{
    rg_flow x[2], y;
    if (strcmp(node->type, "Not") == 0) {
        RG_TRY(rg_import_any(m, node, 0, &y));
        RG_TRY(rg_flow_neuron(m, &y, RG_NEURON_LINEAR, (const double[]){ -1, 1 }, 2));
        return define_condition(m, node, &y);
    }
    RG_TRY(take_both(m, node, x));
    RG_TRY(rg_flow_arithmetic(m,
                              node->type[0] == 'A' ? RG_ARITHMETIC_MULTIPLY : RG_ARITHMETIC_MAXIMUM,
                              &x[0], &x[1], &y));
    return define_condition(m, node, &y);
}

/* (x > 0) - (x < 0), with no gradient. */
rg_status rg_convert_sign(rg_import *m, const rg_proto_node *node)
{
    rg_flow x, zero, above, below, y;
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(rg_import_number(m, x.shape[0].dtype, 0, &zero));
    RG_TRY(compare(m, RG_COMPARE_GREATER, &x, &zero, &above));
    RG_TRY(compare(m, RG_COMPARE_LESS, &x, &zero, &below));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_SUBTRACT, &above, &below, &y));
    RG_TRY(rg_value_stop_gradient(y.value));
    return rg_import_define(m, node, 0, &y);
}

/* ---- Where ---- */

/* A constant condition beside x: 1 where it holds and 0 elsewhere, or the other way round. */
static rg_status constant_mask(rg_import *m, const rg_array *condition, bool opposite, rg_flow *x,
                               rg_flow *mask)
{
    rg_array *array = NULL;
    int32_t order[RG_MAX_RANK];
    const int32_t own = condition->rank, mine = rg_flow_rank(x);
    const int32_t rank = own > mine ? own : mine;
    RG_TRY(rg_flow_widen(m, x, rank));
    rg_fitting_order(x->order, rank, own, order);
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *array, &array));
    RG_TRY(
        rg_array_create(m, rg_onnx_type_of(x->shape[0].dtype), own, condition->dims, false, array));
    for (int64_t i = 0; i < array->count; i++)
        array->data[i].f = (rg_array_at(condition, i).i != 0) != opposite;
    RG_TRY(rg_import_constant(m, array, order, mask));
    return rg_flow_align(m, x, mask);
}

static rg_status computed_mask(rg_import *m, const rg_flow *condition, bool opposite, rg_flow *x,
                               rg_flow *mask)
{
    *mask = *condition;
    if (opposite) {
        RG_TRY(rg_flow_neuron(m, mask, RG_NEURON_LINEAR, (const double[]){ -1, 1 }, 2));
        RG_TRY(rg_value_stop_gradient(mask->value));
    }
    return rg_flow_align(m, x, mask);
}

/* The sum of both, each masked where the other one is chosen. */
rg_status rg_convert_where(rg_import *m, const rg_proto_node *node)
{
    rg_known *known = NULL, *a = NULL;
    const rg_array *array = NULL;
    rg_flow x[2], condition, mask, y;
    RG_TRY(rg_import_known(m, node, 0, &known));
    RG_TRY(rg_import_known(m, node, 1, &a));
    const bool constant = rg_known_is_constant(known) && known->array[0] == known->array[1];
    RG_CHECK(constant || known->has_flow, RG_UNSUPPORTED,
             "a condition that is an input, or depends on the size of the batch, is not covered");
    if (constant)
        RG_TRY(rg_known_array(m, known, 0, &array));
    else
        RG_TRY(rg_import_any(m, node, 0, &condition));
    const size_t first = rg_known_is_constant(a) ? 2 : 1;
    RG_TRY(rg_import_any(m, node, first, &x[first - 1]));
    RG_TRY(rg_import_beside(m, node, 3 - first, &x[first - 1], &x[2 - first]));
    for (int i = 0; i < 2; i++) {
        RG_TRY(constant ? constant_mask(m, array, i == 1, &x[i], &mask)
                        : computed_mask(m, &condition, i == 1, &x[i], &mask));
        RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_MASK, &x[i], &mask, &x[i]));
    }
    RG_TRY(rg_flow_align(m, &x[0], &x[1]));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_ADD, &x[0], &x[1], &y));
    return rg_import_define(m, node, 0, &y);
}

/* ---- ScatterND ---- */

/* A constant of the shape of x, `all` but for what is scattered: updates, or 0 in place of them. */
static rg_status scattered(rg_import *m, const rg_proto_node *node, const rg_flow *x, double all,
                           const rg_array *indices, const rg_array *updates, rg_flow *y)
{
    rg_array from, nothing = *updates, *made = NULL;
    const rg_array *inputs[3] = { &from, indices, all == 0 ? updates : &nothing };
    int64_t dims[RG_MAX_RANK];
    rg_flow_dims(x, 0, dims);
    RG_TRY(rg_array_create(m, updates->type, rg_flow_rank(x), dims, true, &from));
    from.data[0].f = all;
    RG_TRY(rg_array_create(m, updates->type, updates->rank, updates->dims, true, &nothing));
    nothing.data[0].f = 0;
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *made, &made));
    RG_TRY(rg_fold_scatter(m, node, inputs, made));
    return rg_import_constant(m, made, x->order, y);
}

/* By constants: x where nothing is scattered, and what is scattered elsewhere. */
rg_status rg_convert_scatter(rg_import *m, const rg_proto_node *node)
{
    rg_known *known[3];
    const rg_array *indices = NULL, *updates = NULL;
    rg_flow x, kept, put;
    for (size_t i = 0; i < 3; i++) {
        RG_TRY(rg_import_known(m, node, i, &known[i]));
        RG_CHECK(i == 0 ||
                     (rg_known_is_constant(known[i]) && known[i]->array[0] == known[i]->array[1]),
                 RG_UNSUPPORTED, "indices and updates that are no constants are not covered");
    }
    RG_CHECK(!rg_type_is_integer(known[2]->type) &&
                 memcmp(known[0]->shape[0].dims, known[0]->shape[1].dims,
                        sizeof(int64_t) * (size_t)known[0]->shape[0].rank) == 0,
             RG_UNSUPPORTED,
             "values of another type, or of the size of the batch, are not covered");
    RG_TRY(rg_known_array(m, known[1], 0, &indices));
    RG_TRY(rg_known_array(m, known[2], 0, &updates));
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(scattered(m, node, &x, 1, indices, updates, &kept));
    RG_TRY(scattered(m, node, &x, 0, indices, updates, &put));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_MASK, &x, &kept, &x));
    RG_TRY(rg_flow_arithmetic(m, RG_ARITHMETIC_ADD, &x, &put, &x));
    return rg_import_define(m, node, 0, &x);
}
