/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalisation on the CPU: what is done with means and variances, see
 * moments_cpu.h.
 *
 * Of the pixels of a window a share f is met in the image and the zeros around it, the rest g are
 * zeros further out. With d, the mean of the former less x, and their variance v
 *
 *      M - x = f d - g x
 *      V     = f (v + g (x + d)^2)
 *
 * With a = ps dy T^-beta and q = 2 alpha beta / N a (x - p0 M) / T the gradient at pixel i is
 *
 *      dx = a + sum over the mirrored window of (q (M - x) - p0 / N a + q (x - x of i)) */
#include "ops/local_contrast/local_contrast.h"
#include "ops/window_norm/boxes_cpu.h"
#include "ops/window_norm/power_cpu.h"

/* rg_contrast_numbers, cast once. */
typedef struct contrast_constants {
    power_constants norm;
    real inside, outside, p0, rest, pm, ps, share; /* rest: 1 - p0; share: p0 / N */
} contrast_constants;

RG_INLINE contrast_constants contrast_constants_of(const rg_contrast_numbers *n)
{
    return (contrast_constants){ power_constants_of(&n->norm),
                                 (real)n->inside,
                                 (real)n->outside,
                                 (real)n->p0,
                                 (real)(1 - n->p0),
                                 (real)n->pm,
                                 (real)n->ps,
                                 (real)(n->p0 * n->mean) };
}

RG_FORMULA vreal contrast_fill(vreal x)
{
    return x;
}

/* T, and M - x. */
RG_INLINE vreal contrast_divisor(const contrast_constants *c, vreal x, const vreal sum[],
                                 vreal *mean)
{
    const vreal inside = vset(c->inside), outside = vset(c->outside), all = x + sum[1];
    const vreal variance = inside * vfma(outside * all, all, sum[2]);
    *mean = vfma(inside, sum[1], -(outside * x));
    return vfma(vset(c->norm.scale), variance, vset(c->norm.delta));
}

/* x - p0 M. */
RG_INLINE vreal contrast_rest(const contrast_constants *c, vreal x, vreal mean)
{
    return vfma(vset(-c->p0), mean, vset(c->rest) * x);
}

RG_FORMULA vreal contrast_result(const void *k, vreal x, const vreal sum[])
{
    const contrast_constants *c = k;
    vreal mean, inverse;
    const vreal t = contrast_divisor(c, x, sum, &mean);
    const vreal power = power_of(t, &c->norm, c->norm.quarters, false, &inverse);
    return vfma(vset(c->ps), contrast_rest(c, x, mean) * power, vset(c->pm));
}

RG_FORMULA vreal contrast_middle(const void *k, vreal dy, vreal x, const vreal sum[], vreal to[])
{
    const contrast_constants *c = k;
    vreal mean, inverse;
    const vreal t = contrast_divisor(c, x, sum, &mean);
    const vreal power = power_of(t, &c->norm, c->norm.quarters, false, &inverse);
    const vreal a = vset(c->ps) * dy * power;
    const vreal q = vset(c->norm.factor) * a * (contrast_rest(c, x, mean) * inverse);
    to[1] = vfma(q, mean, -(vset(c->share) * a));
    to[2] = q;
    return a;
}

RG_FORMULA vreal contrast_finish(const void *k, vreal x, vreal direct, const vreal sum[])
{
    (void)k;
    return direct + vfma(sum[2], sum[0] - x, sum[1]);
}

RG_BOX_ROWS(contrast, MOMENT_KINDS)

RG_INLINE void local_contrast_forward(const rg_local_contrast_args *a, int64_t begin, int64_t end,
                                      const rg_dtype T)
{
    const contrast_constants k = contrast_constants_of(&a->numbers);
    const void *const in[2] = { a->x, a->x };
    box_units(&a->shape, &k, in, a->y, a->scratch, &contrast_rows[T], MOMENT_KINDS, false, begin,
              end, T);
}

RG_INLINE void local_contrast_gradient(const rg_local_contrast_gradient_args *a, int64_t begin,
                                       int64_t end, const rg_dtype T)
{
    const contrast_constants k = contrast_constants_of(&a->numbers);
    const void *const in[2] = { a->dy, a->x };
    box_units(&a->shape, &k, in, a->dx, a->scratch, &contrast_rows[T], MOMENT_KINDS, true, begin,
              end, T);
}

/* ---- entry points and table ---- */

RG_KERNEL(local_contrast_forward, rg_local_contrast_args)
RG_KERNEL(local_contrast_gradient, rg_local_contrast_gradient_args)

RG_CPU_TABLE(local_contrast, RG_LOCAL_CONTRAST_KERNELS) = {
    [RG_LOCAL_CONTRAST_FORWARD] = RG_ROW(local_contrast_forward),
    [RG_LOCAL_CONTRAST_GRADIENT] = RG_ROW(local_contrast_gradient),
};
