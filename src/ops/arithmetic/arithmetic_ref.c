/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic by definition, in double. */
#include "ops/optest.h"

#include <retrograde/arithmetic.h>

#include <math.h>

/* The element of x that element i of y is made from. */
static int64_t source(const rg_ref_tensor *x, const rg_ref_tensor *y, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int32_t d = y->rank - 1, e = x->rank - 1; e >= 0; d--, e--) {
        if (x->dims[e] != 1)
            at += i % y->dims[d] * stride;
        i /= y->dims[d];
        stride *= x->dims[e];
    }
    return at;
}

static double free_value(const rg_arithmetic_desc *d, double a, double b)
{
    const double pa = d->primary_scale * a, sb = d->secondary_scale * b;
    switch (d->kind) {
    case RG_ARITHMETIC_ADD:
        return pa + sb + d->bias;
    case RG_ARITHMETIC_SUBTRACT:
        return pa - sb + d->bias;
    case RG_ARITHMETIC_MULTIPLY:
        return pa * sb + d->bias;
    case RG_ARITHMETIC_MAXIMUM:
        return (isnan(pa) || pa > sb ? pa : sb) + d->bias;
    case RG_ARITHMETIC_MINIMUM:
        return (isnan(pa) || pa < sb ? pa : sb) + d->bias;
    case RG_ARITHMETIC_MASK:
        return (b == 0 ? 0 : pa) + d->bias;
    default:
        return pa / sb + d->bias;
    }
}

static bool compare(const rg_arithmetic_desc *d, double a, double b)
{
    const bool equal = a == b || fabs(a - b) <= d->threshold;
    switch (d->comparison) {
    case RG_COMPARE_EQUAL:
        return equal;
    case RG_COMPARE_NOT_EQUAL:
        return !equal;
    case RG_COMPARE_LESS:
        return a < b;
    case RG_COMPARE_LESS_OR_EQUAL:
        return a <= b;
    case RG_COMPARE_GREATER:
        return a > b;
    default:
        return a >= b;
    }
}

/* What each operand of a maximum, minimum or mask has of its gradient. */
static void shares(const rg_arithmetic_desc *d, double a, double b, double *of_a, double *of_b)
{
    const double pa = d->primary_scale * a, sb = d->secondary_scale * b;
    const bool largest = d->kind == RG_ARITHMETIC_MAXIMUM;
    if (d->kind == RG_ARITHMETIC_MASK) {
        *of_a = b != 0;
        *of_b = 0;
        return;
    }
    *of_a = pa == sb ? 0.5 : (largest ? pa < sb : pa > sb) ? 0 : 1;
    *of_b = pa == sb ? 0.5 : (largest ? pa > sb : pa < sb) ? 0 : 1;
}

void rg_arithmetic_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_arithmetic_desc *d = desc;
    for (int64_t i = 0; i < rg_ref_count(y); i++) {
        const double a = x[0].data[source(&x[0], y, i)], b = x[1].data[source(&x[1], y, i)];
        double r = free_value(d, a, b);
        if (r < d->minimum)
            r = d->minimum;
        if (r > d->maximum)
            r = d->maximum;
        y->data[i] = d->kind == RG_ARITHMETIC_COMPARE ? (double)compare(d, a, b) : r;
    }
}

void rg_arithmetic_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                                const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)y;
    const rg_arithmetic_desc *d = desc;
    const double p = d->primary_scale, s = d->secondary_scale;
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 0; dx[i].data != NULL && k < rg_ref_count(&dx[i]); k++)
            dx[i].data[k] = 0;
    }
    for (int64_t i = 0; i < rg_ref_count(dy); i++) {
        const int64_t at_a = source(&x[0], dy, i), at_b = source(&x[1], dy, i);
        const double a = x[0].data[at_a], b = x[1].data[at_b], r = free_value(d, a, b);
        const bool bounded = d->minimum > -(double)INFINITY || d->maximum < (double)INFINITY;
        const double g = !bounded || (r >= d->minimum && r <= d->maximum) ? dy->data[i] : 0;
        double da = p * g, db = s * g;
        if (d->kind == RG_ARITHMETIC_SUBTRACT)
            db = -db;
        if (d->kind == RG_ARITHMETIC_MULTIPLY) {
            da = p * g * s * b;
            db = s * g * p * a;
        } else if (d->kind == RG_ARITHMETIC_DIVIDE) {
            da = p * g / (s * b);
            db = -p * g * a / (s * b * b);
        } else if (d->kind >= RG_ARITHMETIC_MAXIMUM) {
            double of_a, of_b;
            shares(d, a, b, &of_a, &of_b);
            da = of_a > 0 ? of_a * p * g : 0; /* 0 for any dy */
            db = of_b > 0 ? of_b * s * g : 0;
        }
        if (dx[0].data != NULL)
            dx[0].data[at_a] += da;
        if (dx[1].data != NULL)
            dx[1].data[at_b] += db;
    }
}
