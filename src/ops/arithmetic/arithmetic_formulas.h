/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The formulas of arithmetic, for CPU and GPU: see backend/formula.h. The kind K is a constant. */
#ifndef RG_OPS_ARITHMETIC_FORMULAS_H
#define RG_OPS_ARITHMETIC_FORMULAS_H

#include "backend/formula.h"
#include "ops/arithmetic/arithmetic.h"

#include <retrograde/arithmetic.h>

typedef enum kind { ADD, ADD_BOUNDED, MULTIPLY, DIVIDE, COMPARE, MAXIMUM } kind;

/* The numbers, cast once. */
RG_FORMULA_STRUCT(constants)
{
    real p, s, bias, low, high, threshold, sign;
    int comparison;
    bool bounded, mask;
};

RG_FORMULA_CAST RG_OF(constants) constants_of(const rg_arithmetic_numbers *n)
{
    const RG_OF(constants) k = { (real)n->primary, (real)n->secondary, (real)n->bias,
                                 (real)n->minimum, (real)n->maximum,   (real)n->threshold,
                                 (real)n->sign,    (int)n->comparison, n->bounded,
                                 n->mask };
    return k;
}

/* y before the bounds */
RG_FORMULA_INLINE vreal free_value(const kind K, const RG_OF(constants) * k, vreal a, vreal b)
{
    if (K == MULTIPLY)
        return vset(k->p) * a * (vset(k->s) * b) + vset(k->bias);
    if (K == DIVIDE)
        return vset(k->p) * a / (vset(k->s) * b) + vset(k->bias);
    if (K == MAXIMUM) {
        const vreal pa = vset(k->p) * a, sb = vset(k->s) * b;
        if (k->mask)
            return vselect(b == 0, vset(0), pa) + vset(k->bias);
        return vset(k->sign) * vselect((pa > sb) | (pa != pa), pa, sb) + vset(k->bias);
    }
    return vfma(vset(k->p), a, vset(k->s) * b) + vset(k->bias);
}

/* 1 where a comparison is true, else 0 */
RG_FORMULA_INLINE vreal compared(const RG_OF(constants) * k, vreal a, vreal b)
{
    switch (k->comparison) {
    case RG_COMPARE_LESS:
        return vselect(a < b, vset(1), vset(0));
    case RG_COMPARE_LESS_OR_EQUAL:
        return vselect(a <= b, vset(1), vset(0));
    case RG_COMPARE_GREATER:
        return vselect(a > b, vset(1), vset(0));
    case RG_COMPARE_GREATER_OR_EQUAL:
        return vselect(a >= b, vset(1), vset(0));
    default:
        break;
    }
    const real equal = (real)(k->comparison == RG_COMPARE_EQUAL);
    return vselect((a == b) | (vabs(a - b) <= vset(k->threshold)), vset(equal), vset(1 - equal));
}

/* y, from what it is before the bounds; NaN stays. */
RG_FORMULA_INLINE vreal bounded_value(const RG_OF(constants) * k, vreal r)
{
    return vmin(vset(k->high), vmax(vset(k->low), r));
}

/* The gradient of a, or of b if `second`. */
RG_FORMULA_INLINE vreal slope_of(const kind K, bool second, const RG_OF(constants) * k, vreal dy,
                                 vreal a, vreal b)
{
    if (K == MULTIPLY)
        return second ? vset(k->s) * dy * (vset(k->p) * a) : vset(k->p) * dy * (vset(k->s) * b);
    if (K == DIVIDE) {
        const vreal da = vset(k->p) * dy / (vset(k->s) * b);
        return second ? -da * (a / b) : da;
    }
    if (K == MAXIMUM) {
        const vreal pa = vset(k->p) * a, sb = vset(k->s) * b;
        const vreal all = vset(k->sign * (second ? k->s : k->p)) * dy;
        if (k->mask)
            return second ? vset(0) : vselect(b == 0, vset(0), all);
        const vreal some = vselect(pa == sb, vset((real)0.5) * all, all);
        return vselect(second ? pa > sb : pa < sb, vset(0), some);
    }
    return vset(second ? k->s : k->p) * dy;
}

/* dy, or 0 where a bound holds y. */
RG_FORMULA_INLINE vreal passed(const kind K, const RG_OF(constants) * k, vreal dy, vreal a, vreal b)
{
    if (K == ADD || !k->bounded)
        return dy;
    const vreal r = free_value(K, k, a, b);
    return vselect((r >= vset(k->low)) & (r <= vset(k->high)), dy, vset(0));
}

#endif
