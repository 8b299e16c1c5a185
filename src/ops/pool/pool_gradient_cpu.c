/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of pooling on the CPU: over the windows around a pixel, in row-major order; each
 * result is written once. A unit is a row of dx. Where channels are neighbours, windows are listed
 * once for all of them (pool_lists_cpu.h). */
#include "ops/pool/pool_lists_cpu.h"

/* ---- pixel by pixel, one vector after the other ---- */

/* `many`: more windows than a plain chain of additions may have. */
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

/* ---- windows of max and average that are apart from each other, few channels: a pixel has one
 * source at most ---- */

/* n channels, from c on, of a row of dx and of the windows that lie in it. */
typedef struct strip {
    const pixel *u; /* pixel 0 */
    int64_t c, i;   /* the row of windows; -1: none */
    int64_t tap;    /* max: of the first column in it */
    int64_t rows;   /* average: counted */
    int n;
} strip;

RG_INLINE void put_pixel(const strip *s, int64_t q, const rg_dtype T, vreal value)
{
    const pixel *u = s->u;
    char *const dx = at_out(u->g->dx, u->dx + q * u->g->shape.x[2], T);
    value += vset(0);
    if (u->g->shape.add)
        value += vload_partial(dx, s->c, s->n, T);
    if (u->stream && vbytes(T) == 64) /* a line: its other half would come a row later */
        vstream(dx, s->c, T, value);
    else
        vstore_partial(dx, s->c, s->n, T, value);
}

/* The pixels of window j, from `begin` to `end`. */
RG_INLINE void put_window(const strip *s, int64_t j, int64_t begin, int64_t end, const rg_dtype T,
                          const pooling kind)
{
    const pixel *u = s->u;
    const rg_pool_shape *k = &u->g->shape;
    const vreal dy =
        vload_partial(at(u->g->dy, u->dy + s->i * k->y[1] + j * k->y[2], T), s->c, s->n, T);
    if (kind == AVERAGE) {
        const real share = share_of(k, u->share, s->rows * rg_pool_counted(&k->column, j));
        for (int64_t q = begin; q < end; q++)
            put_pixel(s, q, T, vfma(dy, vset(share), vset(0)));
        return;
    }
    const int64_t winners = u->winners + s->i * k->winners[1] + j * k->winners[2] + s->c;
    const vint won = vload_bytes_partial((const uint8_t *)u->g->from + winners, s->n);
    intr tap = (intr)(s->tap + begin + k->column.before - j * k->column.stride);
    for (int64_t q = begin; q < end; q++, tap++)
        put_pixel(s, q, T, (vreal)((won == tap) & (vint)dy));
}

RG_INLINE void put_strip(const strip *s, const rg_dtype T, const pooling kind)
{
    const rg_pool_axis *a = &s->u->g->shape.column;
    int64_t q = 0, start = -a->before;
    for (int64_t j = 0; s->i >= 0 && j < a->count; j++, start += a->stride) {
        for (; q < least(start, a->size); q++)
            put_pixel(s, q, T, vset(0));
        const int64_t end = least(start + a->window, a->size);
        if (q < end)
            put_window(s, j, q, end, T, kind);
        q = q < end ? end : q;
    }
    for (; q < a->size; q++)
        put_pixel(s, q, T, vset(0));
}

/* Channels from `done` on. */
RG_INLINE void collect_apart(const rg_pool_gradient_args *g, int64_t begin, int64_t end,
                             int64_t done, const rg_dtype T, const pooling kind)
{
    const rg_pool_shape *k = &g->shape;
    for (int64_t unit = begin; unit < end; unit++) {
        const pixel u = row_of(g, unit, T);
        strip s = { .u = &u, .i = u.i1 < u.i0 ? -1 : u.i0 };
        if (s.i >= 0) {
            s.tap = rg_pool_tap(&k->row, s.i, u.r) * k->column.window;
            s.rows = rg_pool_counted(&k->row, s.i);
        }
        for (s.c = done; s.c < k->channels; s.c += VLEN) {
            s.n = vlanes_left(k->channels - s.c);
            put_strip(&s, T, kind);
        }
    }
}

/* ---- gradient ---- */

/* By lists, channels that make no whole pair are taken in strips where windows are apart. */
RG_INLINE void collect_units(const rg_pool_gradient_args *g, int64_t begin, int64_t end,
                             const rg_dtype T, const pooling kind)
{
    const rg_pool_shape *k = &g->shape;
    const bool plain = kind == MAX || kind == AVERAGE, lists = plain && g->by_lists;
    const int64_t done = lists ? k->channels / (2 * VLEN) * (2 * VLEN) : 0;
    if (plain && done > 0)
        collect_lists(g, begin, end, T, kind);
    if (done == k->channels)
        return;
    if (lists && rg_pool_are_apart(k))
        collect_apart(g, begin, end, done, T, kind);
    else
        collect_pixels(g, begin, end, done, T, kind);
}

RG_INLINE void max_gradient(const rg_pool_gradient_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    if (k->shape.wide)
        collect_units(k, begin, end, T, MAX_WIDE);
    else
        collect_units(k, begin, end, T, MAX);
}

RG_INLINE void average_gradient(const rg_pool_gradient_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    collect_units(k, begin, end, T, AVERAGE);
}

RG_INLINE void l2_gradient(const rg_pool_gradient_args *k, int64_t begin, int64_t end,
                           const rg_dtype T)
{
    collect_units(k, begin, end, T, L2);
}

RG_KERNEL(max_gradient, rg_pool_gradient_args)
RG_KERNEL(average_gradient, rg_pool_gradient_args)
RG_KERNEL(l2_gradient, rg_pool_gradient_args)

RG_CPU_TABLE(pool_gradient, RG_POOL_KERNELS) = {
    [RG_POOL_MAX_GRADIENT] = RG_ROW(max_gradient),
    [RG_POOL_AVERAGE_GRADIENT] = RG_ROW(average_gradient),
    [RG_POOL_L2_GRADIENT] = RG_ROW(l2_gradient),
};
