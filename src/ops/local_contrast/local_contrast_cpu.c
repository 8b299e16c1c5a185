/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalisation on the CPU: what is summed, and what is done with the sums.
 *
 * All is about r, see core/box.h: u = x - r is summed, within the image. With m = 1/N sum of u, s =
 * 1/N sum of u^2, and shares f and g of the window inside and outside of the image
 *
 *      M - r = m - g r
 *      V     = s - m^2 + g r (2 m + f r)
 *
 * With a = ps dy T^-beta and q = 2 alpha beta / N a (x - p0 M) / T the gradient is
 *
 *      dx = a + sum of (q (M - r) - p0 / N a) - u sum of q
 *
 * so two sums over the mirrored window do. */
#include "backend/cpu/boxes.h"
#include "ops/local_contrast/local_contrast.h"
#include "ops/lrn/lrn_formulas.h"

/* rg_contrast_numbers, cast once. */
typedef struct contrast_constants {
    norm_constants norm;
    real mean, p0, rest, pm, ps, share; /* rest: 1 - p0; share: p0 / N */
} contrast_constants;

RG_INLINE contrast_constants contrast_constants_of(const rg_contrast_numbers *n)
{
    return (contrast_constants){ norm_constants_of(&n->norm), (real)n->mean, (real)n->p0,
                                 (real)(1 - n->p0),           (real)n->pm,   (real)n->ps,
                                 (real)(n->p0 * n->mean) };
}

RG_FORMULA void contrast_fill(vreal x, vreal to[2])
{
    to[0] = x;
    to[1] = x * x;
}

/* T, and M - r; NaN stays. */
RG_INLINE vreal contrast_divisor(const contrast_constants *c, box_spot spot, const vreal sum[2],
                                 vreal *mean)
{
    const vreal m = sum[0] * vset(c->mean), beyond = spot.outside * spot.r;
    const vreal within = vfma(-m, m, sum[1] * vset(c->mean));
    const vreal variance = vfma(beyond, vfma(spot.inside, spot.r, m + m), within);
    *mean = m - beyond;
    return vfma(vset(c->norm.scale), vmax(vset(0), variance), vset(c->norm.delta));
}

/* x - p0 M. */
RG_INLINE vreal contrast_rest(const contrast_constants *c, vreal x, box_spot spot, vreal mean)
{
    return vfma(vset(c->rest), spot.r, vfma(vset(-c->p0), mean, x));
}

RG_FORMULA vreal contrast_result(const void *k, vreal x, box_spot spot, const vreal sum[2])
{
    const contrast_constants *c = k;
    vreal mean, inverse;
    const vreal t = contrast_divisor(c, spot, sum, &mean);
    const vreal power = norm_power(t, &c->norm, c->norm.quarters, false, &inverse);
    return vfma(vset(c->ps), contrast_rest(c, x, spot, mean) * power, vset(c->pm));
}

RG_FORMULA vreal contrast_middle(const void *k, vreal dy, vreal x, box_spot spot,
                                 const vreal sum[2], vreal to[2])
{
    const contrast_constants *c = k;
    vreal mean, inverse;
    const vreal t = contrast_divisor(c, spot, sum, &mean);
    const vreal power = norm_power(t, &c->norm, c->norm.quarters, false, &inverse);
    const vreal a = vset(c->ps) * dy * power;
    const vreal q = vset(c->norm.factor) * a * (contrast_rest(c, x, spot, mean) * inverse);
    to[0] = vfma(q, mean, -(vset(c->share) * a));
    to[1] = q;
    return a;
}

RG_FORMULA vreal contrast_finish(const void *k, vreal x, vreal direct, const vreal sum[2])
{
    (void)k;
    return direct + vfma(-x, sum[1], sum[0]);
}

RG_BOX_ROWS(contrast, 2)

RG_INLINE void local_contrast_forward(const rg_local_contrast_args *a, int64_t begin, int64_t end,
                                      const rg_dtype T)
{
    const contrast_constants k = contrast_constants_of(&a->numbers);
    const void *const in[2] = { a->x, a->x };
    box_units(&a->shape, &k, in, a->y, a->scratch, &contrast_rows[T], 2, false, begin, end, T);
}

RG_INLINE void local_contrast_gradient(const rg_local_contrast_gradient_args *a, int64_t begin,
                                       int64_t end, const rg_dtype T)
{
    const contrast_constants k = contrast_constants_of(&a->numbers);
    const void *const in[2] = { a->dy, a->x };
    box_units(&a->shape, &k, in, a->dx, a->scratch, &contrast_rows[T], 2, true, begin, end, T);
}

/* ---- entry points and table ---- */

RG_KERNEL(local_contrast_forward, rg_local_contrast_args)
RG_KERNEL(local_contrast_gradient, rg_local_contrast_gradient_args)

const rg_cpu_row RG_TABLE(local_contrast)[RG_LOCAL_CONTRAST_KERNELS] = {
    [RG_LOCAL_CONTRAST_FORWARD] = RG_ROW(local_contrast_forward),
    [RG_LOCAL_CONTRAST_GRADIENT] = RG_ROW(local_contrast_gradient),
};
