/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Means and variances over sliding windows, without the small difference of two large numbers.
 *
 * A line has three values at each position, one kind after the other: v, a value from which others
 * are counted, and two numbers about it. There are two rules to join lines, both about the v of the
 * line in the centre of the window, or of another one in it, so that what all values of a window
 * have in common is not seen:
 *
 *      join   m, s: a mean less v, and a variance. The mean of means; the mean of variances plus
 *             the variance of means, as Chan, Golub and LeVeque join them.
 *      shift   m, s: a sum of q (z - v) for numbers q and z, and the sum of q. */
#ifndef RG_OPS_WINDOW_NORM_MOMENTS_CPU_H
#define RG_OPS_WINDOW_NORM_MOMENTS_CPU_H

#include "ops/window_norm/box.h"
#include "ops/window_norm/windows_cpu.h"

typedef struct moments {
    vreal v, m, s;
} moments;

/* `size` is how far one kind is from the next. */
RG_INLINE moments load_moments(const real *line, int64_t size, int64_t i)
{
    return (moments){ vload_full(line, i, RG_REAL), vload_full(line, size + i, RG_REAL),
                      vload_full(line, 2 * size + i, RG_REAL) };
}

RG_INLINE void store_moments(real *line, int64_t size, int64_t i, moments e)
{
    vstore_full(line, i, RG_REAL, e.v);
    vstore_full(line, size + i, RG_REAL, e.m);
    vstore_full(line, 2 * size + i, RG_REAL, e.s);
}

/* The lines of a window, in which each kind is `size` after the one before; `plain`: m and s are 0.
 */
typedef struct moment_lines {
    const real *line[RG_SPAN_DIRECT], *centre;
    int64_t size;
    bool plain;
} moment_lines;

RG_INLINE moments moments_at(const moment_lines *l, int64_t k, int64_t i)
{
    if (l->plain)
        return (moments){ vload_full(l->line[k], i, RG_REAL), vset(0), vset(0) };
    return load_moments(l->line[k], l->size, i);
}

/* What a rule does: all lines of a window at once, about the v of the centre; two of them that
 * stand for `na` and `nb` lines, of which sums are made and not means; and the end of such sums of
 * all `width` lines, where v is that of the centre, if two leaves it there. */
typedef moments moments_direct(const moment_lines *l, int64_t i, const int64_t width);
typedef moments moments_two(moments a, moments b, int64_t na, int64_t nb);
typedef moments moments_end(moments e, vreal v, int64_t width);

/* ---- join ---- */

/* How far the mean of line k is from v. */
RG_INLINE vreal far_from(vreal v, moments e)
{
    return (e.v - v) + e.m;
}

RG_FORMULA moments join_direct(const moment_lines *l, int64_t i, const int64_t width)
{
    const vreal each = vset((real)1 / (real)width), v = vload_full(l->centre, i, RG_REAL);
    vreal mean = far_from(v, moments_at(l, 0, i)), square = vset(0);
#pragma GCC unroll 8
    for (int64_t k = 1; k < width; k++)
        mean += far_from(v, moments_at(l, k, i));
    mean *= each;
#pragma GCC unroll 8
    for (int64_t k = 0; k < width; k++) {
        const moments e = moments_at(l, k, i);
        const vreal away = far_from(v, e) - mean;
        square = vfma(away, away, square + e.s);
    }
    return (moments){ v, mean, square * each };
}

/* About the v of a, which stays. */
RG_FORMULA moments join_two(moments a, moments b, int64_t na, int64_t nb)
{
    const real n = (real)(na + nb);
    const vreal gap = (b.v - a.v) + (b.m - a.m);
    return (moments){ a.v, vfma(gap, vset((real)nb / n), a.m),
                      vfma(gap * gap, vset((real)na * ((real)nb / n)), a.s + b.s) };
}

RG_FORMULA moments join_end(moments e, vreal v, int64_t width)
{
    return (moments){ v, (e.v - v) + e.m, e.s * vset((real)1 / (real)width) };
}

/* ---- shift ---- */

RG_FORMULA moments shift_direct(const moment_lines *l, int64_t i, const int64_t width)
{
    const moments first = moments_at(l, 0, i);
    const vreal v = vload_full(l->centre, i, RG_REAL);
    vreal sum = vfma(first.s, first.v - v, first.m), all = first.s;
#pragma GCC unroll 8
    for (int64_t k = 1; k < width; k++) {
        const moments e = moments_at(l, k, i);
        sum += vfma(e.s, e.v - v, e.m);
        all += e.s;
    }
    return (moments){ v, sum, all };
}

/* About the v of what counts for more. Outside of the image, where v is 0, nothing does. */
RG_FORMULA moments shift_two(moments a, moments b, int64_t na, int64_t nb)
{
    (void)na;
    (void)nb;
    const vreal v = vselect(vabs(a.s) < vabs(b.s), b.v, a.v);
    return (moments){ v, vfma(a.s, a.v - v, a.m) + vfma(b.s, b.v - v, b.m), a.s + b.s };
}

RG_FORMULA moments round_end(moments e, vreal v, int64_t width)
{
    (void)v;
    (void)width;
    return e;
}

/* The same about another v. */
RG_INLINE moments shift_about(moments e, vreal v)
{
    return (moments){ v, vfma(e.s, e.v - v, e.m), e.s };
}

/* ---- rings ---- */

RG_INLINE void moments_ring_direct(moments_direct *direct, const window_ring *r, real *sum,
                                   const int64_t width)
{
    moment_lines l = { .size = r->pitch / MOMENT_KINDS };
    for (int64_t k = 0; k < width; k++)
        l.line[k] = r->lines + (r->last + 1 + k) % width * r->pitch;
    l.centre = l.line[r->centre];
    for (int64_t i = 0; i < l.size; i += VLEN)
        store_moments(sum, l.size, i, direct(&l, i, width));
}

/* Each line of a block that is complete is joined with those after it. */
RG_INLINE void moments_ring_suffix(moments_two *two, const window_ring *r)
{
    const int64_t size = r->pitch / MOMENT_KINDS;
    for (int64_t k = r->width - 2; k >= 0; k--) {
        real *const line = r->lines + k * r->pitch;
        for (int64_t i = 0; i < size; i += VLEN)
            store_moments(line, size, i,
                          two(load_moments(line, size, i), load_moments(line + r->pitch, size, i),
                              1, r->width - 1 - k));
    }
}

RG_INLINE void moments_ring_blocks(moments_two *two, moments_end *end, const window_ring *r,
                                   real *sum)
{
    const int64_t size = r->pitch / MOMENT_KINDS, met = r->last + 1;
    const real *line = r->lines + r->last * r->pitch, *suffix = line + r->pitch;
    const real *centre = r->lines + (met + r->centre) % r->width * r->pitch;
    real *prefix = r->lines + r->width * r->pitch;
    for (int64_t i = 0; i < size; i += VLEN) {
        moments e = load_moments(line, size, i);
        if (met > 1)
            e = two(load_moments(prefix, size, i), e, met - 1, 1);
        store_moments(prefix, size, i, e);
        if (sum == NULL)
            continue;
        if (met < r->width)
            e = two(load_moments(suffix, size, i), e, r->width - met, met);
        store_moments(sum, size, i, end(e, vload_full(centre, i, RG_REAL), r->width));
    }
    if (met == r->width)
        moments_ring_suffix(two, r);
}

RG_INLINE void moments_ring(moments_direct *direct, moments_two *two, moments_end *end,
                            const window_ring *r, real *sum)
{
    if (r->width > RG_SPAN_DIRECT)
        moments_ring_blocks(two, end, r, sum);
    else if (sum != NULL && r->width == 5)
        moments_ring_direct(direct, r, sum, 5);
    else if (sum != NULL)
        moments_ring_direct(direct, r, sum, r->width);
}

RG_OUTLINE void ring_join(const window_ring *r, real *sum)
{
    moments_ring(join_direct, join_two, join_end, r, sum);
}

RG_OUTLINE void ring_shift(const window_ring *r, real *sum)
{
    moments_ring(shift_direct, shift_two, round_end, r, sum);
}

#endif
