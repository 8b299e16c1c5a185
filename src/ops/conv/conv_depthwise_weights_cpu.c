/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of the weights of depthwise convolution on the CPU. */
#include "ops/conv/conv_depthwise_cpu.h"

/* ---- weights ---- */

/* Sums of a part of the rows for some channels: vectors of them stand side by side, the last one
 * so that it ends where the channels do. */
typedef struct depthwise_sums {
    const rg_conv_depthwise_parts_args *k;
    const char *x, *dy; /* of the image, of the row of windows */
    depthwise_taps rows;
    const depthwise_taps *columns;
    fetcher ahead[2];     /* of x, dy */
    int64_t begin, width; /* channels */
    int64_t slot, c;      /* of the vector being summed: where its sums are, its first channel, */
    int n;                /* and how many it has where it is a part of one */
    real sum[RG_CONV_DEPTHWISE_SUMS];
    double total[RG_CONV_DEPTHWISE_SUMS]; /* of runs; only where a row is longer than one */
} depthwise_sums;

/* The sums of a run, all taps of all channels, go to their totals. */
RG_OUTLINE void end_depthwise_run(depthwise_sums *d, bool first)
{
    const int64_t count = d->k->shape.row.window * d->k->shape.column.window * d->width;
    add_to_totals(d->total, d->sum, count, first);
    memset(d->sum, 0, (size_t)count * sizeof(real));
}

/* Windows begin <= j < end for VLEN channels; where `parts`, d->n of them, strided or not. */
RG_INLINE void depthwise_tap(depthwise_sums *d, int32_t p, int32_t q, int64_t begin, int64_t end,
                             const rg_dtype T, const bool parts)
{
    const rg_conv_shape *s = &d->k->shape;
    const int64_t slot = d->slot, c = d->c;
    const int n = d->n;
    const int64_t stride = s->column.stride * s->x[2];
    const char *const x =
        at(d->x, d->rows.at[p] * s->x[1] + d->columns->at[q] * s->x[2] + c * s->x[3], T);
    const char *const y = at(d->dy, c * s->y[3], T);
    real *const sum =
        d->sum + (d->rows.tap[p] * s->column.window + d->columns->tap[q]) * d->width + slot;
    vreal a = vload_full(sum, 0, RG_REAL);
    for (int64_t j = begin; j < end; j++)
        a = parts ? vfma(load_groups(at(y, j * s->y[2], T), s->y[3], n, T, s->y[3] == 1),
                         load_groups(at(x, j * stride, T), s->x[3], n, T, s->x[3] == 1), a)
                  : vfma(vload_full(y, j * s->y[2], T), vload_full(x, j * stride, T), a);
    vstore_full(sum, 0, RG_REAL, a);
}

RG_OUTLINE void depthwise_tap_part(depthwise_sums *d, int32_t p, int32_t q, int64_t begin,
                                   int64_t end, rg_dtype T)
{
    depthwise_tap(d, p, q, begin, end, T, true);
}

/* Three taps that are neighbours, as the windows are. */
RG_INLINE void depthwise_3x3_rows(depthwise_sums *d, int32_t p, int64_t begin, int64_t end,
                                  const rg_dtype T)
{
    const rg_conv_shape *s = &d->k->shape;
    const int64_t column = s->x[2], c = d->c;
    const char *x = at(d->x, d->rows.at[p] * s->x[1] + (begin + d->columns->at[0]) * column + c, T);
    const char *y = at(d->dy, begin * s->y[2] + c, T);
    real *const sum = d->sum + d->rows.tap[p] * DEPTHWISE_3X3 * d->width + d->slot;
    vreal a = vload_full(sum, 0, RG_REAL), b = vload_full(sum, d->width, RG_REAL);
    vreal e = vload_full(sum, 2 * d->width, RG_REAL);
    vreal u = vload_full(x, 0, T), v = vload_full(x, column, T);
    int64_t j = begin;
    for (; j + DEPTHWISE_BLOCK <= end; j += DEPTHWISE_BLOCK) {
        fetch(&d->ahead[0]);
        fetch(&d->ahead[1]);
#pragma GCC unroll 8
        for (int i = 0; i < DEPTHWISE_BLOCK; i++) {
            const vreal g = vload_full(y, i * s->y[2], T), w = vload_full(x, (i + 2) * column, T);
            a = vfma(g, u, a);
            b = vfma(g, v, b);
            e = vfma(g, w, e);
            u = v;
            v = w;
        }
        x = at(x, DEPTHWISE_BLOCK * column, T);
        y = at(y, DEPTHWISE_BLOCK * s->y[2], T);
    }
    for (; j < end; j++) {
        const vreal g = vload_full(y, 0, T), w = vload_full(x, 2 * column, T);
        a = vfma(g, u, a);
        b = vfma(g, v, b);
        e = vfma(g, w, e);
        u = v;
        v = w;
        x = at(x, column, T);
        y = at(y, s->y[2], T);
    }
    vstore_full(sum, 0, RG_REAL, a);
    vstore_full(sum, d->width, RG_REAL, b);
    vstore_full(sum, 2 * d->width, RG_REAL, e);
}

/* Such three of three rows, where there are registers for all: dy is read once, and nine sums wait
 * for each other less than three do. */
RG_INLINE void depthwise_3x3(depthwise_sums *d, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &d->k->shape;
    const int64_t column = s->x[2], c = d->c;
    const char *x[DEPTHWISE_3X3], *y = at(d->dy, begin * s->y[2] + c, T);
    vreal sum[DEPTHWISE_3X3][DEPTHWISE_3X3], u[DEPTHWISE_3X3], v[DEPTHWISE_3X3];
    real *const sums = d->sum + d->slot;
    fetcher ahead[2] = { d->ahead[0], d->ahead[1] };
#pragma GCC unroll 3
    for (int p = 0; p < DEPTHWISE_3X3; p++) {
        x[p] = at(d->x, d->rows.at[p] * s->x[1] + (begin + d->columns->at[0]) * column + c, T);
        u[p] = vload_full(x[p], 0, T);
        v[p] = vload_full(x[p], column, T);
        x[p] = at(x[p], 2 * column, T);
#pragma GCC unroll 3
        for (int q = 0; q < DEPTHWISE_3X3; q++)
            sum[p][q] = vload_full(sums, (p * DEPTHWISE_3X3 + q) * d->width, RG_REAL);
    }
    for (int64_t j = begin; j < end; j++) {
        fetch_vector(&ahead[0], T);
        fetch_vector(&ahead[1], T);
        const vreal g = vload_full(y, 0, T);
        y = at(y, s->y[2], T);
#pragma GCC unroll 3
        for (int p = 0; p < DEPTHWISE_3X3; p++) {
            const vreal w = vload_full(x[p], 0, T);
            x[p] = at(x[p], column, T);
            sum[p][0] = vfma(g, u[p], sum[p][0]);
            sum[p][1] = vfma(g, v[p], sum[p][1]);
            sum[p][2] = vfma(g, w, sum[p][2]);
            u[p] = v[p];
            v[p] = w;
        }
    }
#pragma GCC unroll 9
    for (int t = 0; t < DEPTHWISE_3X3 * DEPTHWISE_3X3; t++)
        vstore_full(sums, t * d->width, RG_REAL, sum[t / DEPTHWISE_3X3][t % DEPTHWISE_3X3]);
    d->ahead[0] = ahead[0];
    d->ahead[1] = ahead[1];
}

/* Windows begin <= j < end, with all taps of d->columns; `is_3x3`: as above. */
RG_INLINE void depthwise_windows(depthwise_sums *d, int64_t begin, int64_t end, bool is_3x3,
                                 bool parts, const rg_dtype T)
{
    if (RG_VECTOR_BYTES == 64 && is_3x3 && d->rows.count == DEPTHWISE_3X3 &&
        d->k->shape.row.window == DEPTHWISE_3X3) {
        depthwise_3x3(d, begin, end, T);
        return;
    }
    for (int32_t p = 0; p < d->rows.count && begin < end; p++) {
        if (is_3x3) {
            depthwise_3x3_rows(d, p, begin, end, T);
            continue;
        }
        for (int32_t q = 0; q < d->columns->count; q++) {
            if (parts)
                depthwise_tap_part(d, p, q, begin, end, T);
            else
                depthwise_tap(d, p, q, begin, end, T, false);
        }
    }
}

/* The first channel of the vector whose sums are at `slot`. */
RG_INLINE int64_t slot_channel(const depthwise_sums *d, int64_t slot)
{
    const int64_t channels = d->k->shape.groups;
    return channels >= VLEN ? least(d->begin + slot, channels - VLEN) : 0;
}

/* Windows begin <= j < end of one row; those at the border have taps of their own. */
RG_INLINE void depthwise_weights_row(depthwise_sums *d, const depthwise_line *l, int64_t begin,
                                     int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &d->k->shape;
    const rg_conv_axis *a = &s->column;
    const bool parts = !s->x_dense || !s->y_dense || s->groups < VLEN;
    const bool is_3x3 = !parts && a->window == DEPTHWISE_3X3 && a->stride == 1 && a->dilation == 1;
    depthwise_taps some;
    d->n = vlanes_left(s->groups);
    for (d->slot = 0; d->slot < d->width; d->slot += VLEN) {
        d->c = slot_channel(d, d->slot);
        for (int64_t j = begin, next; j < end; j = next) {
            const bool inside = j >= l->low && j < l->high;
            next = inside ? least(l->high, end) : j + 1;
            d->columns = &l->taps;
            if (!inside) {
                keep_inside(l, a->size, j, &some);
                d->columns = &some;
            }
            depthwise_windows(d, j, next, is_3x3 && inside, parts, T);
        }
    }
}

/* Only the channels of the unit: the last vector may begin among those of another one. */
RG_OUTLINE void depthwise_end_part(const depthwise_sums *d, int64_t channels, real *to)
{
    const rg_conv_shape *s = &d->k->shape;
    const int64_t taps = s->row.window * s->column.window;
    for (int64_t tap = 0; tap < taps; tap++) {
        for (int64_t slot = 0; slot < d->width; slot += VLEN) {
            const int64_t skip = d->begin + slot - slot_channel(d, slot);
            const int64_t count = least(channels - slot, VLEN);
            memcpy(to + tap * s->groups + d->begin + slot, d->sum + tap * d->width + slot + skip,
                   (size_t)count * sizeof(real));
        }
    }
}

/* A unit is a block of channels of a part of the rows of windows of all images. */
RG_INLINE void depthwise_parts(const rg_conv_depthwise_parts_args *k, int64_t begin, int64_t end,
                               const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t taps = s->row.window * s->column.window, rows = s->images * s->row.count;
    const int64_t across = s->column.count, run = rg_conv_depthwise_run(s);
    depthwise_sums d;
    depthwise_line l;
    depthwise_taps own = { .count = 1 }; /* the row of windows itself */
    d.k = k;
    find_line(&s->column, false, 0, &l);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t part = unit / k->blocks;
        d.begin = unit % k->blocks * k->block;
        const int64_t channels = least(k->block, s->groups - d.begin);
        d.width = (channels + VLEN - 1) / VLEN * VLEN;
        memset(d.sum, 0, (size_t)(taps * d.width) * sizeof(real));
        for (int64_t row = part * k->part; row < least(rows, (part + 1) * k->part); row++) {
            const int64_t image = row / s->row.count, i = row % s->row.count;
            find_rows(&s->row, false, i, &d.rows);
            own.at[0] = i;
            d.x = at(k->x, image * s->x[0], T);
            d.dy = at(k->dy, image * s->y[0] + i * s->y[1], T);
            d.ahead[0] = fetch_row(s, s->x, false, image, &d.rows, k->x, T);
            d.ahead[1] = fetch_row(s, s->y, true, image, &own, k->dy, T);
            for (int64_t j = 0; j < across; j += run) {
                depthwise_weights_row(&d, &l, j, least(j + run, across), T);
                if (run < across)
                    end_depthwise_run(&d, j == 0);
            }
        }
        for (int64_t i = 0; run < across && i < taps * d.width; i++)
            d.sum[i] = (real)d.total[i];
        depthwise_end_part(&d, channels, (real *)k->partial + part * taps * s->groups);
    }
}

/* dw from the sums of all parts, one after the other. A unit is some channels of a tap. */
RG_INLINE void depthwise_join(const rg_conv_depthwise_join_args *k, int64_t begin, int64_t end,
                              const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t blocks = (s->groups + RG_CONV_DEPTHWISE_UNIT - 1) / RG_CONV_DEPTHWISE_UNIT;
    const int64_t taps = s->row.window * s->column.window;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t tap = unit / blocks, first = unit % blocks * RG_CONV_DEPTHWISE_UNIT;
        const int64_t width = least(RG_CONV_DEPTHWISE_UNIT, s->groups - first);
        const int64_t p = tap / s->column.window, q = tap % s->column.window;
        double sum[RG_CONV_DEPTHWISE_UNIT] = { 0 };
        for (int64_t part = 0; part < k->parts; part++) {
            const real *const from =
                (const real *)k->partial + (part * taps + tap) * s->groups + first;
            for (int64_t c = 0; c < width; c++)
                sum[c] += (double)from[c];
        }
        for (int64_t c = 0; c < width; c++) {
            const int64_t to = s->w_first + (first + c) * s->w[0] + p * s->w[2] + q * s->w[3];
            const real value = (real)sum[c];
            store_one(k->dw, to, T, k->add ? load_one(k->dw, to, T) + value : value);
        }
    }
}

RG_KERNEL(depthwise_parts, rg_conv_depthwise_parts_args)
RG_KERNEL(depthwise_join, rg_conv_depthwise_join_args)

RG_CPU_TABLE(conv_depthwise_weights, RG_CONV_KERNELS) = {
    [RG_CONV_DEPTHWISE_PARTS] = RG_ROW(depthwise_parts),
    [RG_CONV_DEPTHWISE_JOIN] = RG_ROW(depthwise_join),
};
