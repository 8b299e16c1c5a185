/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of pooling on the CPU, pixel by pixel: over the windows around it, in row-major
 * order, for each vector anew. */
#ifndef RG_OPS_POOL_PIXELS_CPU_H
#define RG_OPS_POOL_PIXELS_CPU_H

#include "ops/pool/pool_channels_cpu.h"

/* A pixel of dx and the windows around it. */
typedef struct pixel {
    const rg_pool_gradient_args *g;
    int64_t r, q;               /* row, column */
    int64_t i0, i1, j0, j1;     /* windows i0 to i1, j0 to j1 */
    int64_t dy, winners, y, dx; /* the image in dy, winners and y; the pixel in dx */
    int64_t x;                  /* l2: the pixel in x */
    real share;                 /* average: 1 / N of a window that is counted as a whole */
    bool stream;
} pixel;

/* average: 1 / N */
RG_INLINE real share_of(const rg_pool_shape *k, real whole, int64_t counted)
{
    return counted == k->row.window * k->column.window ? whole : 1 / (real)counted;
}

/* `many`: as in sum_block, of windows. */
RG_INLINE void collect_block(const pixel *u, int64_t c, int n, const int blocks, const rg_dtype T,
                             const bool dense, const pooling kind, const bool many)
{
    const rg_pool_gradient_args *g = u->g;
    const rg_pool_shape *k = &g->shape;
    vreal sum[BLOCK], x[BLOCK];
    long_sum total[BLOCK];
    int64_t left = RG_CHAIN_RUN;
    for (int b = 0; b < blocks; b++) {
        sum[b] = vset(0);
        total[b] = long_sum_zero();
        x[b] =
            kind == L2 ? load_channels(g->from, u->x, c + b * VLEN, k->z[3], n, T, dense) : vset(0);
    }
    for (int64_t i = u->i0; i <= u->i1; i++) {
        const int64_t p = rg_pool_tap(&k->row, i, u->r);
        for (int64_t j = u->j0; j <= u->j1; j++) {
            const int64_t q = rg_pool_tap(&k->column, j, u->q);
            if (p < 0 || q < 0)
                continue;
            const int64_t from = u->dy + i * k->y[1] + j * k->y[2];
            const int64_t winners = u->winners + i * k->winners[1] + j * k->winners[2];
            const intr tap = (intr)(p * k->column.window + q);
            const real share =
                kind == AVERAGE
                    ? share_of(k, u->share,
                               rg_pool_counted(&k->row, i) * rg_pool_counted(&k->column, j))
                    : 0;
#pragma GCC unroll 4
            for (int b = 0; b < blocks; b++) {
                const int64_t at_c = c + b * VLEN;
                const vreal dy = load_channels(g->dy, from, at_c, k->y[3], n, T, dense);
                if (kind == AVERAGE) {
                    sum[b] = vfma(dy, vset(share), sum[b]);
                } else if (kind == L2) {
                    const vreal y = load_channels(g->y, u->y + i * k->w[1] + j * k->w[2], at_c,
                                                  k->w[3], n, T, dense);
                    sum[b] += vselect(y == 0, vset(0), dy * (x[b] / y));
                } else {
                    const vint won =
                        load_winners(g->from, winners + at_c, n, kind == MAX_WIDE) == tap;
                    sum[b] += (vreal)(won & (vint)dy);
                }
            }
            if (many && --left == 0)
                left = long_sums_end_run(total, sum, blocks);
        }
    }
    for (int b = 0; b < blocks; b++) {
        const int64_t at_c = c + b * VLEN;
        if (many)
            sum[b] = long_sum_add(total[b], sum[b]).high;
        if (k->add)
            sum[b] += load_channels(g->dx, u->dx, at_c, k->x[3], n, T, dense);
        if (u->stream)
            vstream(at_out(g->dx, u->dx, T), at_c, T, sum[b]);
        else
            store_channels(g->dx, u->dx, at_c, k->x[3], n, T, dense, sum[b]);
    }
}

/* As pool_rest. */
RG_OUTLINE void collect_rest(const pixel *u, int64_t c, rg_dtype T, pooling kind, bool many)
{
    const rg_pool_shape *k = &u->g->shape;
    for (; c < k->channels; c += VLEN)
        collect_block(u, c, vlanes_left(k->channels - c), 1, T, k->dense, kind, many);
}

/* Channels of one pixel, from c on. */
RG_INLINE void collect_pixel(const pixel *u, int64_t c, const rg_dtype T, const pooling kind)
{
    const int64_t channels = u->g->shape.channels, whole = u->g->shape.dense ? channels : 0;
    if ((u->i1 - u->i0 + 1) * (u->j1 - u->j0 + 1) > RG_CHAIN_RUN) {
        collect_rest(u, c, T, kind, true);
        return;
    }
    for (; kind == L2 && c + BLOCK * VLEN <= whole; c += BLOCK * VLEN)
        collect_block(u, c, VLEN, BLOCK, T, true, kind, false);
    for (; kind != MAX_WIDE && c + VLEN <= whole; c += VLEN)
        collect_block(u, c, VLEN, 1, T, true, kind, false);
    if (c < channels)
        collect_rest(u, c, T, kind, false);
}

/* As rg_pool_windows, from those of the pixel before and without a division. */
RG_INLINE void next_windows(const rg_pool_axis *a, int64_t q, int64_t *first, int64_t *last)
{
    const int64_t end = q + a->before, begin = end - (a->window - 1) * a->dilation;
    while (*last + 1 < a->count && (*last + 1) * a->stride <= end)
        ++*last;
    while (*first * a->stride < begin)
        ++*first;
}

/* Pixel 0 of a row of dx, and the windows around the row. */
RG_INLINE pixel row_of(const rg_pool_gradient_args *g, int64_t unit, const rg_dtype T)
{
    const rg_pool_shape *k = &g->shape;
    const int64_t image = unit / k->row.size, r = unit % k->row.size;
    const int64_t row = image * k->x[0] + r * k->x[1];
    pixel u = { .g = g,
                .r = r,
                .dy = image * k->y[0],
                .winners = image * k->winners[0],
                .y = image * k->w[0],
                .dx = row,
                .x = image * k->z[0] + r * k->z[1],
                .share = 1 / (real)(k->row.window * k->column.window),
                .stream = may_stream(k, g->dx, row, k->x[2], T) };
    rg_pool_windows(&k->row, r, &u.i0, &u.i1);
    rg_pool_windows(&k->column, 0, &u.j0, &u.j1);
    return u;
}

/* Channels from `done` on. */
RG_INLINE void collect_pixels(const rg_pool_gradient_args *g, int64_t begin, int64_t end,
                              int64_t done, const rg_dtype T, const pooling kind)
{
    const rg_pool_shape *k = &g->shape;
    for (int64_t unit = begin; unit < end; unit++) {
        pixel u = row_of(g, unit, T);
        for (u.q = 0; u.q < k->column.size; u.q++, u.dx += k->x[2], u.x += k->z[2]) {
            next_windows(&k->column, u.q, &u.j0, &u.j1);
            collect_pixel(&u, done, T, kind);
        }
    }
}

#endif
