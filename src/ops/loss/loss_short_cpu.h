/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax with class labels on the CPU, rows of less than four vectors: VLEN rows at a time, so
 * that what is across the lanes of a row is done for all of them at once, and they share a
 * logarithm. Every sum has the order of exp_sum. */
#ifndef RG_OPS_LOSS_SHORT_CPU_H
#define RG_OPS_LOSS_SHORT_CPU_H

#include "ops/loss/loss_labels_cpu.h"

enum { SHORT_ROW = 4 * VLEN };

RG_INLINE bool has_short_rows(const rg_loss_args *k)
{
    return k->shape.dense && k->length < SHORT_ROW && k->numbers.share == 0 && !k->add;
}

/* Lane r becomes the sum, or the largest lane, of vector r. */
RG_OUTLINE vreal join_lanes(const real *vectors, bool is_max)
{
    vreal lanes[VLEN];
#pragma GCC unroll 16
    for (int i = 0; i < VLEN; i++)
        lanes[i] = vload_full(vectors, i * VLEN, RG_REAL);
    vtranspose(lanes);
#pragma GCC unroll 4
    for (int step = VLEN / 2; step > 0; step /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < step; i++)
            lanes[i] = is_max ? vmax(lanes[i], lanes[i + step]) : lanes[i] + lanes[i + step];
    }
    return lanes[0];
}

typedef struct short_rows {
    int count;
    const char *x[VLEN];
    char *dx[VLEN];
    real max[VLEN], sum[VLEN], log[VLEN];
    real parts[VLEN * VLEN];       /* a vector of each row */
    real powers[VLEN * SHORT_ROW]; /* e^(x - max), a pair in the order in which it is loaded */
} short_rows;

RG_INLINE vreal max_part(const char *x, int64_t length, const rg_dtype T)
{
    vreal max = vset(-RG_INFINITY);
    for (int64_t i = 0; i < length; i += VLEN) {
        const int n = vlanes_left(length - i);
        max = vmax(max, vkeep(vload_partial(x, i, n, T), n, -RG_INFINITY));
    }
    return max;
}

/* The powers of a row, and their sum before lanes are joined. */
RG_INLINE vreal power_part(const char *x, real *powers, int64_t length, real max, const rg_dtype T)
{
    vreal sum = vset(0), second = vset(0);
    int64_t i = 0;
    if (2 * VLEN <= length) {
        const vpair p = vload_pair(x, 0, T, true);
        const vpair e = { exp_for(p.a - vset(max), T), exp_for(p.b - vset(max), T) };
        vstore_pair(powers, 0, RG_REAL, e, false, false);
        sum = e.a;
        second = e.b;
        i = 2 * VLEN;
    }
    for (; i < length; i += VLEN) {
        const int n = vlanes_left(length - i);
        const vreal e = exp_for(vload_partial(x, i, n, T) - vset(max), T);
        vstore_full(powers, i, RG_REAL, e);
        sum += vkeep(e, n, 0);
    }
    return sum + second;
}

RG_INLINE void sum_short_rows(const rg_loss_args *k, short_rows *s, const rg_dtype T)
{
    if (s->count < VLEN)
        memset(s->parts, 0, sizeof s->parts);
    for (int r = 0; r < s->count; r++) {
        __builtin_prefetch(at(s->x[r], 2 * VLEN * k->length, T)); /* where rows are neighbours */
        vstore_full(s->parts, r * VLEN, RG_REAL, max_part(s->x[r], k->length, T));
    }
    vstore_full(s->max, 0, RG_REAL, join_lanes(s->parts, true));
    for (int r = 0; r < s->count; r++)
        vstore_full(s->parts, r * VLEN, RG_REAL,
                    power_part(s->x[r], s->powers + r * SHORT_ROW, k->length, s->max[r], T));
    const vreal sums = join_lanes(s->parts, false);
    vstore_full(s->sum, 0, RG_REAL, sums);
    if (k->losses != RG_LOSS_NO_LOSS)
        vstore_full(s->log, 0, RG_REAL, vlog(sums));
}

/* Derivatives of a row: powers times `scale` minus `offset`; that at `label`, which is less by
 * `share`, is number `index` of the powers. */
typedef struct short_slopes {
    real scale, offset, share;
    int64_t index;
} short_slopes;

RG_INLINE vreal short_slope(const short_slopes *s, const real *powers, int64_t i)
{
    const vreal e = vload_full(powers, i, RG_REAL);
    const vint is_label = vlanes() == (vint){ 0 } + (intr)(s->index - i);
    return vselect(is_label, e - vset(s->share), e) * vset(s->scale) - vset(s->offset);
}

RG_INLINE void put_short_slopes(const short_slopes *s, const real *powers, char *dx, int64_t length,
                                const rg_dtype T)
{
    int64_t i = 0;
    if (2 * VLEN <= length) {
        const vpair d = { short_slope(s, powers, 0), short_slope(s, powers, VLEN) };
        vstore_pair(dx, 0, T, d, true, false);
        i = 2 * VLEN;
    }
    for (; i < length; i += VLEN)
        vstore_partial(dx, i, vlanes_left(length - i), T, short_slope(s, powers, i));
}

/* The index of the power of element i. */
RG_INLINE int64_t power_index(int64_t i, int64_t length, const rg_dtype T)
{
    if (T != RG_BF16 || 2 * VLEN > length || i >= 2 * VLEN)
        return i;
    return i % 2 * VLEN + i / 2;
}

RG_INLINE void end_short_row(const rg_loss_args *k, short_rows *s, int r, int64_t row,
                             const rg_dtype T)
{
    const rg_loss_numbers *n = &k->numbers;
    const class_use u = use_of(k, row, T);
    if (u.label < 0) {
        put_loss(k, row, 0, T);
        put_zeros(k, row, T);
        return;
    }
    const double sum = (double)s->sum[r];
    const real below = load_one(s->x[r], u.label, T) - s->max[r];
    if (k->losses != RG_LOSS_NO_LOSS)
        put_loss(k, row, (double)u.loss * (n->total * (double)s->log[r] - n->keep * (double)below),
                 T);
    if (!k->has_gradient)
        return;
    const short_slopes slopes = { (real)((double)u.slope * n->total / sum),
                                  u.slope * (real)n->share, (real)(sum * n->keep / n->total),
                                  power_index(u.label, k->length, T) };
    put_short_slopes(&slopes, s->powers + r * SHORT_ROW, s->dx[r], k->length, T);
}

/* Rows `begin` to `end` - 1, at most VLEN. */
RG_INLINE void loss_of_short_rows(const rg_loss_args *k, int64_t begin, int64_t end,
                                  const rg_dtype T)
{
    short_rows s;
    s.count = (int)(end - begin);
    for (int r = 0; r < s.count; r++) {
        int64_t offset[2];
        rg_walk_offsets(&k->shape.outer, 2, begin + r, offset);
        s.x[r] = at(k->y, offset[0], T);
        s.dx[r] = k->has_gradient ? at_out(k->gradient, offset[1], T) : NULL;
    }
    sum_short_rows(k, &s, T);
    for (int r = 0; r < s.count; r++)
        end_short_row(k, &s, r, begin + r, T);
}

#endif
