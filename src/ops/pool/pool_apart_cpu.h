/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of max and average pooling where windows are apart from each other, for few
 * channels: each pixel has one source at most. */
#ifndef RG_OPS_POOL_APART_CPU_H
#define RG_OPS_POOL_APART_CPU_H

#include "ops/pool/pool_pixels_cpu.h"

/* Whether each pixel belongs to one window at most. */
RG_INLINE bool are_apart(const rg_pool_shape *k)
{
    return k->dense && k->row.dilation == 1 && k->column.dilation == 1 &&
           k->row.window <= k->row.stride && k->column.window <= k->column.stride;
}

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
        value += vload_short(dx, s->c, s->n, T);
    if (u->stream && vbytes(T) == 64) /* a line: its other half would come a row later */
        vstream(dx, s->c, T, value);
    else
        vstore_short(dx, s->c, s->n, T, value);
}

/* The pixels of window j, from `begin` to `end`. */
RG_INLINE void put_window(const strip *s, int64_t j, int64_t begin, int64_t end, const rg_dtype T,
                          const pooling kind)
{
    const pixel *u = s->u;
    const rg_pool_shape *k = &u->g->shape;
    const vreal dy =
        vload_short(at(u->g->dy, u->dy + s->i * k->y[1] + j * k->y[2], T), s->c, s->n, T);
    if (kind == AVERAGE) {
        const real share = share_of(k, u->share, s->rows * rg_pool_counted(&k->column, j));
        for (int64_t q = begin; q < end; q++)
            put_pixel(s, q, T, vfma(dy, vset(share), vset(0)));
        return;
    }
    const int64_t winners = u->winners + s->i * k->winners[1] + j * k->winners[2] + s->c;
    const vint won = vload_bytes_short((const uint8_t *)u->g->from + winners, s->n);
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

#endif
