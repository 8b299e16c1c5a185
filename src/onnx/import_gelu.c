/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gelu that is written with Erf, in whatever order its factors are multiplied:
 *
 *      x (1 + erf(x / sqrt 2)) / 2
 *
 * A product with a number is remembered as a multiple of a value. The Erf of a multiple of 1 / sqrt
 * 2 is no value but a sum, offset + factor erf(x / sqrt 2), which numbers change and a product with
 * a multiple of x ends. */
#include "onnx/import.h"

#include "core/shape.h"

#include <retrograde/nodes.h>

#include <math.h>

/* Whether a is b, rounded to a type of the file. */
static bool is_close(double a, double b, int32_t type)
{
    const double unit = type == RG_ONNX_BFLOAT16  ? 0x1p-8
                        : type == RG_ONNX_FLOAT16 ? 0x1p-11
                                                  : 1e-5;
    return fabs(a - b) <= unit * fabs(b);
}

/* Whether an input is a constant of one element, and which. */
static bool is_number(rg_import *m, const rg_known *known, double *number)
{
    const rg_array *a = NULL;
    if (!rg_known_is_constant(known) || rg_type_is_integer(known->type) ||
        rg_shape_count(&known->shape[0]) != 1 || known->array[0] != known->array[1] ||
        rg_known_array(m, known, 0, &a) != RG_OK)
        return false;
    *number = rg_array_at(a, 0).f;
    return isfinite(*number);
}

static rg_status make_part(rg_import *m, rg_part values, const rg_part **part)
{
    rg_part *made = NULL;
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *made, &made));
    *made = values;
    *part = made;
    return RG_OK;
}

/* The output is a sum with an Erf, of the type and shape of `like`. */
static rg_status define_erf(rg_import *m, const rg_proto_node *node, const rg_known *like,
                            const rg_part *of, double offset, double factor)
{
    rg_known *known = NULL;
    RG_TRY(rg_import_add(m, node->outputs[0], &known));
    known->kind = RG_KNOWN_ERF;
    known->type = like->type;
    for (int32_t p = 0; p < RG_PROBES; p++)
        known->shape[p] = like->shape[p];
    return make_part(m, (rg_part){ of->x, offset, factor, of->type, false }, &known->part);
}

rg_status rg_convert_erf(rg_import *m, const rg_proto_node *node)
{
    rg_known *known = NULL;
    RG_TRY(rg_import_known(m, node, 0, &known));
    RG_CHECK(known->part != NULL && is_close(known->part->factor, sqrt(0.5), known->part->type),
             RG_UNSUPPORTED, "%s", RG_ERF_TEXT);
    return define_erf(m, node, known, known->part, 0, 1);
}

/* A sum with an Erf and a number: `first` if the number is the second operand. */
static rg_status with_number(rg_import *m, const rg_proto_node *node, rg_arithmetic_kind kind,
                             const rg_known *erf, bool first, double c)
{
    double offset = erf->part->offset, factor = erf->part->factor;
    RG_CHECK(kind != RG_ARITHMETIC_DIVIDE || (first && c != 0), RG_UNSUPPORTED, "%s", RG_ERF_TEXT);
    if (kind == RG_ARITHMETIC_ADD) {
        offset += c;
    } else if (kind == RG_ARITHMETIC_SUBTRACT) {
        offset = first ? offset - c : c - offset;
        factor = first ? factor : -factor;
    } else {
        offset = kind == RG_ARITHMETIC_DIVIDE ? offset / c : offset * c;
        factor = kind == RG_ARITHMETIC_DIVIDE ? factor / c : factor * c;
    }
    return define_erf(m, node, erf, erf->part, offset, factor);
}

/* x times a sum with the Erf of x: a multiple of Gelu. */
static rg_status with_itself(rg_import *m, const rg_proto_node *node, const rg_known *erf,
                             rg_known *other)
{
    const rg_part *part = erf->part;
    const bool itself = other->has_flow && other->flow.value == part->x.value;
    const bool multiple = other->part != NULL && other->part->x.value == part->x.value;
    rg_flow y = part->x;
    RG_CHECK((itself || multiple) && is_close(part->offset, part->factor, part->type),
             RG_UNSUPPORTED, "%s", RG_ERF_TEXT);
    const double scale = 2 * part->factor * (itself ? 1 : other->part->factor);
    RG_TRY(rg_flow_neuron(m, &y, RG_NEURON_GELU, NULL, 0));
    if (is_close(scale, 1, RG_ONNX_FLOAT))
        return rg_import_define(m, node, 0, &y);
    const rg_flow gelu = y;
    RG_TRY(rg_flow_neuron(m, &y, RG_NEURON_LINEAR, (const double[]){ scale, 0 }, 2));
    RG_TRY(rg_import_define(m, node, 0, &y));
    rg_known *known = rg_names_find(&m->names, node->outputs[0]);
    return known != NULL ? make_part(m, (rg_part){ gelu, 0, scale, part->type, true }, &known->part)
                         : RG_OK;
}

rg_status rg_gelu_binary(rg_import *m, const rg_proto_node *node, rg_arithmetic_kind kind,
                         bool *done)
{
    rg_known *x[2] = { rg_names_find(&m->names, node->inputs[0]),
                       rg_names_find(&m->names, node->inputs[1]) };
    double c;
    *done = false;
    for (int i = 0; i < 2; i++) {
        if (x[i] == NULL || x[1 - i] == NULL)
            return RG_OK; /* which others report */
    }
    for (int i = 0; i < 2 && !*done; i++) {
        const rg_known *erf = x[i];
        if (erf->kind != RG_KNOWN_ERF)
            continue;
        *done = true;
        if (is_number(m, x[1 - i], &c))
            return with_number(m, node, kind, erf, i == 0, c);
        RG_CHECK(kind == RG_ARITHMETIC_MULTIPLY, RG_UNSUPPORTED, "%s", RG_ERF_TEXT);
        return with_itself(m, node, erf, x[1 - i]);
    }
    /* the half of twice a Gelu */
    for (int i = 0; i < 2 && kind == RG_ARITHMETIC_MULTIPLY; i++) {
        if (x[i]->part != NULL && x[i]->part->gelu && is_number(m, x[1 - i], &c) &&
            c * x[i]->part->factor == 1 && x[1 - i]->shape[0].rank <= x[i]->shape[0].rank) {
            *done = true;
            return rg_import_define(m, node, 0, &x[i]->part->x);
        }
    }
    return RG_OK;
}

rg_status rg_gelu_note(rg_import *m, const rg_proto_node *node, rg_arithmetic_kind kind)
{
    const bool quotient = kind == RG_ARITHMETIC_DIVIDE;
    rg_known *y = rg_names_find(&m->names, node->outputs[0]);
    if (y == NULL || y->kind != RG_KNOWN_FLOW || (kind != RG_ARITHMETIC_MULTIPLY && !quotient))
        return RG_OK;
    for (int i = 0; i < (quotient ? 1 : 2); i++) {
        const rg_known *x = rg_names_find(&m->names, node->inputs[i]);
        const rg_known *number = rg_names_find(&m->names, node->inputs[1 - i]);
        double c;
        if (x == NULL || number == NULL || !x->has_flow || !is_number(m, number, &c) || c == 0 ||
            number->shape[0].rank > x->shape[0].rank)
            continue;
        const double factor = (quotient ? 1 / c : c) * (x->part != NULL ? x->part->factor : 1);
        return make_part(
            m, (rg_part){ x->part != NULL ? x->part->x : x->flow, 0, factor, number->type, false },
            &y->part);
    }
    return RG_OK;
}
