/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of max and average pooling where channels are neighbours: the windows around a pixel
 * are listed once, and all pairs of vectors go over the list. */
#ifndef RG_OPS_POOL_LISTS_CPU_H
#define RG_OPS_POOL_LISTS_CPU_H

#include "ops/pool/pool_pixels_cpu.h"

/* One window around a pixel. */
typedef struct source {
    const char *dy;
    const uint8_t *winners;
    real share;  /* average: 1 / N */
    uint8_t tap; /* max: the pixel's own */
} source;

#if !RG_REAL_F64
RG_INLINE void store_halves(char *dx, int64_t c, vhalves a, bool stream)
{
    uint16_t *to = (uint16_t *)(void *)dx + c;
    if (stream)
        vstream(to, 0, RG_F32, (vreal)a);
    else
        memcpy(to, &a, sizeof a);
}

/* What 0 + dy gives, in storage: 0 for -0, and a quiet NaN. */
RG_INLINE vhalves plus_zero(vhalves dy, const rg_dtype T)
{
    const uint16_t infinity = T == RG_F16 ? 0x7c00 : 0x7f80, quiet = T == RG_F16 ? 0x200 : 0x40;
    const vhalves size = dy & 0x7fff;
    return (dy & (vhalves)(size != 0)) | ((vhalves)(size > infinity) & quiet);
}

/* Max in 16 bits with one window: nothing is rounded, so nothing is converted. */
RG_INLINE void pass_pair(const source *s, char *dx, int64_t c, bool stream, const rg_dtype T)
{
    const uint16_t *dy = (const uint16_t *)(const void *)s->dy + c;
    const vhalves won = vload_halves_where(dy, s->winners + c, s->tap);
    store_halves(dx, c, plus_zero(won, T), stream);
}
#endif

/* As vstore_pair. The lower half of a bf16 is 0, also that of a NaN, and a sum of these that is
 * NaN keeps it: what is rounded up is a number. */
RG_INLINE void store_sum(char *dx, int64_t c, const rg_dtype T, vpair sum, bool stream)
{
#if !RG_REAL_F64
    if (T == RG_BF16) {
        const vuint a = (vuint)sum.a, b = (vuint)sum.b;
        const vhalves high = (vhalves)(a >> 16 | (b & 0xffff0000));
        const vhalves low = (vhalves)((a & 0xffff) | b << 16);
        store_halves(dx, c, high - (vhalves)(low > 0x8000 - (high & 1)), stream);
        return;
    }
#endif
    vstore_pair(dx, c, T, sum, true, stream);
}

RG_INLINE void collect_pair(const source list[], const int n, char *dx, int64_t c, bool add,
                            bool stream, const rg_dtype T, const pooling kind)
{
    vpair sum = { vset(0), vset(0) };
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const source *s = &list[i];
        if (kind == AVERAGE) {
            const vpair dy = vload_pair(s->dy, c, T, true);
            sum.a = vfma(dy.a, vset(s->share), sum.a);
            sum.b = vfma(dy.b, vset(s->share), sum.b);
        } else {
            const vpair dy = vload_pair_where(s->dy, c, s->winners + c, s->tap, T);
            sum.a += dy.a;
            sum.b += dy.b;
        }
    }
    if (add) {
        const vpair old = vload_pair(dx, c, T, true);
        sum.a += old.a;
        sum.b += old.b;
    }
    store_sum(dx, c, T, sum, stream);
}

/* Channels 0 to `channels` - 1, whole pairs, of one pixel. */
RG_INLINE void collect_pairs(const source list[], const int n, char *dx, int64_t channels, bool add,
                             bool stream, const rg_dtype T, const pooling kind)
{
#if !RG_REAL_F64
    if (n == 1 && kind == MAX && T != RG_F32 && !add) {
        for (int64_t c = 0; c < channels; c += 2 * VLEN)
            pass_pair(list, dx, c, stream, T);
        return;
    }
#endif
    for (int64_t c = 0; c < channels; c += 2 * VLEN)
        collect_pair(list, n, dx, c, add, stream, T, kind);
}

/* A row of dx, and the windows around it. */
typedef struct row_source {
    const char *dy;
    const uint8_t *winners;
    int64_t tap;     /* (p, 0) */
    int64_t counted; /* average: rows that count */
} row_source;

typedef struct target {
    const rg_pool_shape *k;
    char *dx; /* the row */
    int64_t channels;
    int count;
    bool stream;
    real share; /* average: 1 / N of a window that is counted as a whole */
    row_source rows[RG_POOL_LISTED];
} target;

RG_INLINE source source_of(const target *t, const row_source *row, int64_t j, int64_t q,
                           int64_t counted, const rg_dtype T, const pooling kind)
{
    const rg_pool_shape *k = t->k;
    source s = { .dy = at(row->dy, j * k->y[2], T) };
    if (kind == MAX) {
        s.winners = row->winners + j * k->winners[2];
        s.tap = (uint8_t)(row->tap + q);
    } else {
        s.share = share_of(k, t->share, row->counted * counted);
    }
    return s;
}

/* A pixel with any windows, columns first to last. */
RG_INLINE void collect_many(const target *t, int64_t q, int64_t first, int64_t last,
                            const rg_dtype T, const pooling kind)
{
    const rg_pool_shape *k = t->k;
    source list[RG_POOL_LISTED];
    int n = 0;
    for (int i = 0; i < t->count; i++) {
        for (int64_t j = first; j <= last; j++) {
            const int64_t tap = rg_pool_tap(&k->column, j, q);
            const int64_t counted = kind == AVERAGE ? rg_pool_counted(&k->column, j) : 0;
            if (tap >= 0)
                list[n++] = source_of(t, &t->rows[i], j, tap, counted, T, kind);
        }
    }
    collect_pairs(list, n, at_out(t->dx, q * k->x[2], T), t->channels, k->add, t->stream, T, kind);
}

/* For pixels in at most 2 adjacent windows of a row; prepared for many rows. */
typedef struct column_source {
    int64_t dy, winners; /* bytes from the row's beginning to the first window */
    real share[2];       /* average: of windows whose rows count as a whole */
    uint8_t tap[2], count;
} column_source;

/* Columns that are prepared at once. */
enum { STRETCH = 128 };

RG_OUTLINE void prepare(const rg_pool_shape *k, int64_t begin, int64_t end, column_source list[],
                        rg_dtype T)
{
    const rg_pool_axis *a = &k->column;
    const real whole = 1 / (real)(k->row.window * a->window);
    int64_t first, last;
    rg_pool_windows(a, begin, &first, &last);
    for (int64_t q = begin; q < end; q++) {
        next_windows(a, q, &first, &last);
        column_source *s = &list[q - begin];
        s->dy = first * k->y[2] * (vbytes(T) / VLEN);
        s->winners = first * k->winners[2];
        s->count = last < first ? 0 : (uint8_t)(last - first + 1); /* after the last window: none */
        for (int j = 0; j < s->count; j++) {
            s->tap[j] = (uint8_t)(q + a->before - (first + j) * a->stride);
            s->share[j] = share_of(k, whole, k->row.window * rg_pool_counted(a, first + j));
        }
    }
}

/* A pixel with `rows` by `columns` windows. */
RG_INLINE void collect_small(const target *t, const int rows, const int columns,
                             const column_source *from, char *dx, const rg_dtype T,
                             const pooling kind)
{
    const int64_t y_step = t->k->y[2], winner_step = t->k->winners[2];
    source list[4];
#pragma GCC unroll 2
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < columns; j++) {
            source *s = &list[i * columns + j];
            s->dy = at(t->rows[i].dy + from->dy, j * y_step, T);
            if (kind == MAX) {
                s->winners = t->rows[i].winners + from->winners + j * winner_step;
                s->tap = (uint8_t)(t->rows[i].tap + from->tap[j]);
            } else {
                s->share = from->share[j];
            }
        }
    }
    collect_pairs(list, rows * columns, dx, t->channels, t->k->add, t->stream, T, kind);
}

/* Pixels begin to end - 1 of a row of dx with `rows` windows above each other. */
RG_INLINE void collect_stretch(const target *t, const int rows, const column_source list[],
                               int64_t begin, int64_t end, const rg_dtype T, const pooling kind)
{
    for (int64_t q = begin; q < end; q++, list++) {
        char *dx = at_out(t->dx, q * t->k->x[2], T);
        if (list->count == 1)
            collect_small(t, rows, 1, list, dx, T, kind);
        else if (list->count == 2)
            collect_small(t, rows, 2, list, dx, T, kind);
        else
            collect_small(t, rows, 0, list, dx, T, kind);
    }
}

/* The same with any windows. */
RG_INLINE void collect_any(const target *t, int64_t begin, int64_t end, const rg_dtype T,
                           const pooling kind)
{
    int64_t first, last;
    rg_pool_windows(&t->k->column, begin, &first, &last);
    for (int64_t q = begin; q < end; q++) {
        next_windows(&t->k->column, q, &first, &last);
        collect_many(t, q, first, last, T, kind);
    }
}

/* Lists the windows around row u->r; returns whether all of their rows count. */
RG_OUTLINE bool list_rows(const pixel *u, target *t, rg_dtype T, pooling kind)
{
    const rg_pool_gradient_args *g = u->g;
    const rg_pool_shape *k = &g->shape;
    bool whole = true;
    t->count = 0;
    for (int64_t i = u->i0; i <= u->i1; i++) {
        const int64_t p = rg_pool_tap(&k->row, i, u->r), counted = rg_pool_counted(&k->row, i);
        if (p < 0)
            continue;
        row_source *row = &t->rows[t->count++];
        row->dy = at(g->dy, u->dy + i * k->y[1], T);
        row->tap = p * k->column.window;
        row->counted = counted;
        if (kind == MAX)
            row->winners = (const uint8_t *)g->from + u->winners + i * k->winners[1];
        whole &= counted == k->row.window;
    }
    return whole;
}

/* Whole pairs of channels. */
RG_INLINE void collect_lists(const rg_pool_gradient_args *g, int64_t begin, int64_t end,
                             const rg_dtype T, const pooling kind)
{
    const rg_pool_shape *k = &g->shape;
    const bool simple = k->column.dilation == 1 && rg_pool_most_windows(&k->column) <= 2;
    target t = { .k = k, .channels = k->channels / (2 * VLEN) * (2 * VLEN) };
    column_source list[STRETCH];
    for (int64_t q = 0; q < k->column.size; q += STRETCH) {
        const int64_t stop = least(q + STRETCH, k->column.size);
        if (simple)
            prepare(k, q, stop, list, T);
        for (int64_t unit = begin; unit < end; unit++) {
            const pixel u = row_of(g, unit, T);
            const bool whole = list_rows(&u, &t, T, kind) || kind == MAX;
            t.dx = at_out(g->dx, u.dx, T);
            t.stream = u.stream;
            t.share = u.share;
            if (simple && whole && t.count == 1)
                collect_stretch(&t, 1, list, q, stop, T, kind);
            else if (simple && whole && t.count == 2)
                collect_stretch(&t, 2, list, q, stop, T, kind);
            else
                collect_any(&t, q, stop, T, kind);
        }
    }
}

#endif
