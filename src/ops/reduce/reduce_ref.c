/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions by definition, in double. */
#include "ops/optest.h"

#include <retrograde/reduce.h>

#include <math.h>

static bool is_reduced(const rg_reduce_desc *d, int32_t axis, int32_t rank)
{
    bool reduced = d->dims_count == 0;
    for (int32_t i = 0; i < d->dims_count; i++)
        reduced |= d->dims[i] == axis || d->dims[i] == axis - rank;
    return reduced;
}

/* Which output element i of x belongs to, and its number in that group; sizes of both. */
typedef struct member {
    int64_t output, number, outputs, length;
} member;

static member member_of(const rg_reduce_desc *d, const rg_ref_tensor *x, int64_t i)
{
    member p = { 0, 0, 1, 1 };
    for (int32_t axis = x->rank - 1; axis >= 0; axis--) {
        const int64_t index = i % x->dims[axis];
        i /= x->dims[axis];
        if (is_reduced(d, axis, x->rank)) {
            p.number += index * p.length;
            p.length *= x->dims[axis];
        } else {
            p.output += index * p.outputs;
            p.outputs *= x->dims[axis];
        }
    }
    return p;
}

static int64_t length_of(const rg_reduce_desc *d, const rg_ref_tensor *x)
{
    int64_t length = 1;
    for (int32_t axis = 0; axis < x->rank; axis++)
        length *= is_reduced(d, axis, x->rank) ? x->dims[axis] : 1;
    return length;
}

/* Whether a wins over b, which comes earlier. */
static bool wins(const rg_reduce_desc *d, double a, double b)
{
    if (isnan(a) || isnan(b))
        return !isnan(b);
    return d->kind == RG_REDUCE_MIN || d->kind == RG_REDUCE_ARG_MIN ? a < b : a > b;
}

/* The winner of group o, as an index of x. Elements of a group come in the order of their numbers.
 */
static int64_t winner_of(const rg_reduce_desc *d, const rg_ref_tensor *x, int64_t o)
{
    int64_t winner = -1;
    for (int64_t i = 0; i < rg_ref_count(x); i++) {
        if (member_of(d, x, i).output == o && (winner < 0 || wins(d, x->data[i], x->data[winner])))
            winner = i;
    }
    return winner;
}

void rg_reduce_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_reduce_desc *d = desc;
    const int64_t outputs = rg_ref_count(y);
    if (d->kind == RG_REDUCE_SUM || d->kind == RG_REDUCE_MEAN) {
        const double divisor = d->kind == RG_REDUCE_MEAN ? (double)length_of(d, x) : 1;
        for (int64_t o = 0; o < outputs; o++)
            y->data[o] = 0;
        for (int64_t i = 0; i < rg_ref_count(x); i++)
            y->data[member_of(d, x, i).output] += x->data[i];
        for (int64_t o = 0; o < outputs; o++)
            y->data[o] = d->weight * y->data[o] / divisor;
        return;
    }
    for (int64_t o = 0; o < outputs; o++) {
        const int64_t winner = winner_of(d, x, o);
        const bool number = d->kind == RG_REDUCE_ARG_MIN || d->kind == RG_REDUCE_ARG_MAX;
        y->data[o] = number ? (double)member_of(d, x, winner).number : x->data[winner];
    }
}

void rg_reduce_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                            const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)y;
    const rg_reduce_desc *d = desc;
    const double divisor = d->kind == RG_REDUCE_MEAN ? (double)length_of(d, x) : 1;
    const bool is_sum = d->kind == RG_REDUCE_SUM || d->kind == RG_REDUCE_MEAN;
    for (int64_t i = 0; i < rg_ref_count(x); i++)
        dx->data[i] = is_sum ? d->weight * dy->data[member_of(d, x, i).output] / divisor : 0;
    for (int64_t o = 0; o < rg_ref_count(dy) && !is_sum; o++)
        dx->data[winner_of(d, x, o)] = dy->data[o];
}
