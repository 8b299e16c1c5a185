/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution on the CPU, as near to the speed of memory as it gets: vectors of channels,
 * some neighbouring results at once, whose sums stay in registers. */
#ifndef RG_OPS_CONV_DEPTHWISE_CPU_H
#define RG_OPS_CONV_DEPTHWISE_CPU_H

#include "backend/cpu/columns.h"
#include "backend/cpu/long_sum_cpu.h"
#include "ops/conv/conv.h"
#include "ops/neuron/any_neuron.h"

/* Results side by side, and taps of a row for which there are loops of their own. */
enum { DEPTHWISE_BLOCK = 8, DEPTHWISE_3X3 = 3 };

/* ---- which taps make a result ---- */

/* Tap `tap` of some result is pixel `at` of the source, or on columns `at` from where the result
 * stands in the source. In the order of the source. */
typedef struct depthwise_taps {
    int32_t count;
    int32_t tap[RG_CONV_DEPTHWISE_TAPS];
    int64_t at[RG_CONV_DEPTHWISE_TAPS];
} depthwise_taps;

/* Rows, by pixels of the source: those of result r that are there. */
RG_OUTLINE void find_rows(const rg_conv_axis *a, bool data, int64_t r, depthwise_taps *t)
{
    t->count = 0;
    for (int64_t k = 0; k < a->window; k++) {
        const int64_t p = data ? a->window - 1 - k : k;
        const int64_t row =
            data ? rg_conv_window(a, r, p) : r * a->stride - a->before + p * a->dilation;
        if (row < 0 || row >= (data ? a->count : a->size))
            continue;
        t->tap[t->count] = (int32_t)p;
        t->at[t->count++] = row;
    }
}

/* Columns of results first, first + step, …, of which number m stands at m * stride in the source.
 * Results low <= m < high have all of their taps. */
typedef struct depthwise_line {
    int64_t first, step, stride, count, low, high;
    depthwise_taps taps;
} depthwise_line;

RG_INLINE int64_t floor_div(int64_t a, int64_t b) /* b > 0 */
{
    return a / b - (a % b < 0);
}

/* Phase f: forward there is one; from windows to the image results f, f + stride, … */
RG_OUTLINE void find_line(const rg_conv_axis *a, bool data, int64_t f, depthwise_line *l)
{
    const int64_t results = data ? a->size : a->count, sources = data ? a->count : a->size;
    l->first = f;
    l->step = data ? a->stride : 1;
    l->stride = data ? 1 : a->stride;
    l->count = results > f ? (results - f + l->step - 1) / l->step : 0;
    l->low = 0;
    l->high = l->count;
    l->taps.count = 0;
    for (int64_t k = 0; k < a->window; k++) {
        const int64_t q = data ? a->window - 1 - k : k;
        const int64_t distance =
            data ? f + a->before - q * a->dilation : q * a->dilation - a->before;
        if (data && distance % a->stride != 0)
            continue;
        const int64_t at = data ? distance / a->stride : distance;
        l->taps.tap[l->taps.count] = (int32_t)q;
        l->taps.at[l->taps.count++] = at;
        const int64_t low = floor_div(-at + l->stride - 1, l->stride);
        const int64_t high = floor_div(sources - 1 - at, l->stride) + 1;
        l->low = low > l->low ? low : l->low;
        l->high = least(high, l->high);
    }
    l->low = least(l->low, l->count);
    l->high = l->high > l->low ? l->high : l->low;
}

/* The taps of result m alone, from where it stands on. */
RG_OUTLINE void keep_inside(const depthwise_line *l, int64_t sources, int64_t m, depthwise_taps *t)
{
    t->count = 0;
    for (int32_t i = 0; i < l->taps.count; i++) {
        const int64_t at = m * l->stride + l->taps.at[i];
        if (at < 0 || at >= sources)
            continue;
        t->tap[t->count] = l->taps.tap[i];
        t->at[t->count++] = l->taps.at[i];
    }
}

/* ---- what comes next ---- */

/* A row that will be read next. It is asked for in the order of memory, a little with every block
 * of results: vectors of channels are read in an order that no machine foresees. */
typedef struct fetcher {
    const char *at, *end;
    int64_t pace; /* bytes at a time */
} fetcher;

enum { FETCH_LINE = 64 };

RG_INLINE void fetch(fetcher *f)
{
    const char *const stop = f->at + f->pace < f->end ? f->at + f->pace : f->end;
    for (; f->at < stop; f->at += FETCH_LINE)
        __builtin_prefetch(f->at, 0, 2);
}

/* As much as one vector of a result takes. */
RG_INLINE void fetch_vector(fetcher *f, const rg_dtype T)
{
    if (f->at < f->end) {
        __builtin_prefetch(f->at, 0, 2);
        f->at += vbytes(T);
    }
}

/* The row behind those in `rows`, if pixels are dense; `data`: of windows. */
RG_OUTLINE fetcher fetch_row(const rg_conv_shape *s, const int64_t step[4], bool data,
                             int64_t image, const depthwise_taps *rows, const void *from,
                             rg_dtype T)
{
    const int64_t all = data ? s->row.count : s->row.size, channels = s->groups;
    const int64_t across = data ? s->column.count : s->column.size;
    const int64_t next = image * all + (rows->count > 0 ? rows->at[rows->count - 1] + 1 : 0);
    if (step[2] != channels || step[1] != across * channels || next >= s->images * all ||
        (s->images > 1 && step[0] != all * step[1]))
        return (fetcher){ from, from, 0 }; /* nothing */
    const char *const first = at(from, next * step[1], T);
    const int64_t bytes = step[1] * (vbytes(T) / VLEN);
    const int64_t blocks = (channels + VLEN - 1) / VLEN * (s->column.count / DEPTHWISE_BLOCK + 1);
    return (fetcher){ first, first + bytes, (bytes / blocks / FETCH_LINE + 2) * FETCH_LINE };
}

/* ---- sums ---- */

/* A row of results. */
typedef struct depthwise_row {
    const rg_conv_depthwise_args *k;
    const char *from; /* of the image */
    fetcher ahead;
    char *to, *z;                   /* of the row */
    const int64_t *source, *result; /* steps (image, row, column, channel) */
    int64_t stride, step; /* from result to result: columns of the source, of the result */
    depthwise_taps rows;
    const depthwise_taps *columns;
    neuron_constants constants;
    bool dense, stream;
} depthwise_row;

/* Bias, neuron and what else there is to do with n channels from c on of the result in column j. */
RG_OUTLINE void depthwise_finish(const depthwise_row *d, int64_t j, int64_t c, int n, rg_dtype T,
                                 vreal value)
{
    const rg_conv_depthwise_args *k = d->k;
    const int64_t step = d->result[3];
    char *const out = at_out(d->to, j * d->result[2] + c * step, T);
    if (k->has_b)
        value += load_groups(at(k->b, c * k->b_step, T), k->b_step, n, T, k->b_step == 1);
    if (k->has_z)
        store_groups(at_out(d->z, j * k->z_step[2] + c * k->z_step[3], T), k->z_step[3], n, T,
                     k->z_step[3] == 1, value);
    value = any_neuron(k->neuron.kind, &d->constants, value);
    if (k->add)
        value += load_groups(out, step, n, T, step == 1);
    store_groups(out, step, n, T, step == 1, value);
}

/* `count` results from number m on, VLEN channels from c on. With `three`, their taps are three
 * neighbours in the source, and so are the results. */
RG_INLINE void depthwise_block(const depthwise_row *d, int64_t m, const int count, const bool three,
                               int64_t c, const rg_dtype T)
{
    const rg_conv_depthwise_args *k = d->k;
    const int64_t column = d->source[2], stride = three ? column : d->stride * column;
    const int64_t channels = k->channels, first = m * d->stride * column + c;
    const int32_t rows = d->rows.count, across = three ? DEPTHWISE_3X3 : d->columns->count;
    vreal sum[DEPTHWISE_BLOCK];
#pragma GCC unroll 8
    for (int n = 0; n < count; n++)
        sum[n] = vset(0);
    for (int32_t p = 0; p < rows; p++) {
        const char *const row = at(d->from, d->rows.at[p] * d->source[1] + first, T);
        const real *const w =
            (const real *)k->w + d->rows.tap[p] * k->shape.column.window * channels + c;
        if (three) {
            const char *const from = at(row, d->columns->at[0] * column, T);
            const vreal a = vload_full(w, d->columns->tap[0] * channels, RG_REAL);
            const vreal b = vload_full(w, d->columns->tap[1] * channels, RG_REAL);
            const vreal e = vload_full(w, d->columns->tap[2] * channels, RG_REAL);
            vreal x = vload_full(from, 0, T), y = vload_full(from, column, T);
#pragma GCC unroll 8
            for (int n = 0; n < count; n++) {
                const vreal z = vload_full(from, (n + 2) * column, T);
                sum[n] = vfma(z, e, vfma(y, b, vfma(x, a, sum[n])));
                x = y;
                y = z;
            }
            continue;
        }
        for (int32_t q = 0; q < across; q++) {
            const char *const from = at(row, d->columns->at[q] * column, T);
            const vreal a = vload_full(w, d->columns->tap[q] * channels, RG_REAL);
#pragma GCC unroll 8
            for (int n = 0; n < count; n++)
                sum[n] = vfma(vload_full(from, n * stride, T), a, sum[n]);
        }
    }
#pragma GCC unroll 8
    for (int n = 0; n < count; n++) {
        const int64_t j = (m + n) * d->step;
        if (!k->plain) {
            depthwise_finish(d, j, c, VLEN, T, sum[n]);
            continue;
        }
        vreal value = k->has_b ? sum[n] + vload_full(k->b, c, T) : sum[n];
        if (k->neuron.kind == RG_NEURON_RELU)
            value = neuron_relu(&d->constants, value, value);
        if (d->stream && c % VLEN == 0)
            vstream(d->to, j * d->result[2] + c, T, value);
        else
            vstore_full(d->to, j * d->result[2] + c, T, value);
    }
}

/* One result, n channels, anywhere. */
RG_OUTLINE void depthwise_part(const depthwise_row *d, int64_t m, int64_t c, int n, rg_dtype T)
{
    const rg_conv_depthwise_args *k = d->k;
    vreal sum = vset(0);
    for (int32_t p = 0; p < d->rows.count; p++) {
        for (int32_t q = 0; q < d->columns->count; q++) {
            const int64_t from = d->rows.at[p] * d->source[1] +
                                 (m * d->stride + d->columns->at[q]) * d->source[2] +
                                 c * d->source[3];
            const int64_t tap = d->rows.tap[p] * k->shape.column.window + d->columns->tap[q];
            sum = vfma(load_groups(at(d->from, from, T), d->source[3], n, T, d->source[3] == 1),
                       vload((const real *)k->w + tap * k->channels + c, 0, n, RG_REAL), sum);
        }
    }
    depthwise_finish(d, m * d->step, c, n, T, sum);
}

/* All results of a line for VLEN channels from c on; where `parts`, n of them, strided or not. */
RG_INLINE void depthwise_results(depthwise_row *d, const depthwise_line *l, int64_t sources,
                                 int64_t c, int n, bool parts, const rg_dtype T)
{
    const int64_t *const at = l->taps.at;
    const bool three = l->stride == 1 && l->taps.count == DEPTHWISE_3X3 && at[1] == at[0] + 1 &&
                       at[2] == at[0] + 2;
    depthwise_taps some;
    const bool again =
        !d->k->add && l->high - l->low >= DEPTHWISE_BLOCK; /* the last block overlaps */
    for (int64_t m = 0, count; m < l->count; m += count) {
        if (again && !parts && m > l->high - DEPTHWISE_BLOCK && m < l->high)
            m = l->high - DEPTHWISE_BLOCK;
        const int64_t left = m < l->low || parts ? 0 : l->high - m;
        count = left >= DEPTHWISE_BLOCK ? DEPTHWISE_BLOCK : 1;
        d->columns = &l->taps;
        if (m < l->low || m >= l->high) { /* at the border results have taps of their own */
            keep_inside(l, sources, m, &some);
            d->columns = &some;
        }
        if (parts) {
            depthwise_part(d, m, c, n, T);
        } else if (count == 1) {
            depthwise_block(d, m, 1, false, c, T);
        } else if (three) {
            fetch(&d->ahead);
            depthwise_block(d, m, DEPTHWISE_BLOCK, true, c, T);
        } else {
            fetch(&d->ahead);
            depthwise_block(d, m, DEPTHWISE_BLOCK, false, c, T);
        }
    }
}

/* All channels. What is left behind whole vectors is done with the last whole vector, unless that
 * would add to it twice. */
RG_INLINE void depthwise_channels(depthwise_row *d, const depthwise_line *l, int64_t sources,
                                  const rg_dtype T)
{
    const int64_t channels = d->k->channels;
    const bool whole = d->dense && channels >= VLEN;
    for (int64_t c = 0; c < channels; c += VLEN) {
        const bool last = c + VLEN > channels, parts = !whole || (last && d->k->add);
        depthwise_results(d, l, sources, parts ? c : least(c, channels - VLEN),
                          vlanes_left(channels - c), parts, T);
    }
}

/* Whether whole vectors of the result stand where they can go past the cache: they must be lines,
 * because the other half of a line comes a row of pixels later. */
RG_INLINE bool depthwise_streams(const rg_conv_depthwise_args *k, const int64_t step[4],
                                 const rg_dtype T)
{
    const int64_t bytes = vbytes(T) / VLEN, all = (step[0] | step[1] | step[2]) * bytes;
    return vbytes(T) == FETCH_LINE && k->stream && k->plain &&
           ((int64_t)(uintptr_t)k->to | all) % vbytes(T) == 0;
}

/* A unit is a row of the result. */
RG_INLINE void depth(const rg_conv_depthwise_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t rows = k->data ? s->row.size : s->row.count;
    const int64_t sources = k->data ? s->column.count : s->column.size;
    const int64_t phases = k->data ? least(s->column.stride, s->column.size) : 1;
    depthwise_row d = { .k = k,
                        .source = k->data ? s->y : s->x,
                        .result = k->data ? s->x : s->y,
                        .dense = s->x_dense && s->y_dense };
    d.constants = neuron_constants_of(&k->neuron.numbers);
    d.stream = depthwise_streams(k, d.result, T);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / rows, row = unit % rows;
        find_rows(&s->row, k->data, row, &d.rows);
        d.from = at(k->from, image * d.source[0], T);
        d.ahead = fetch_row(s, d.source, k->data, image, &d.rows, k->from, T);
        char *const to = at_out(k->to, image * d.result[0] + row * d.result[1], T);
        char *const z = at_out(k->z, image * k->z_step[0] + row * k->z_step[1], T);
        for (int64_t f = 0; f < phases; f++) {
            depthwise_line l;
            find_line(&s->column, k->data, f, &l);
            d.stride = l.stride;
            d.step = l.step;
            d.to = at_out(to, f * d.result[2], T);
            d.z = at_out(z, f * k->z_step[2], T);
            depthwise_channels(&d, &l, sources, T);
        }
    }
}
RG_KERNEL(depth, rg_conv_depthwise_args)

/* ---- weights ---- */

/* Weights as real, (taps, channels). A unit is a tap. */
RG_INLINE void transpose(const rg_conv_transpose_weights_args *k, int64_t begin, int64_t end,
                         const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    for (int64_t tap = begin; tap < end; tap++) {
        const int64_t p = tap / s->column.window, q = tap % s->column.window;
        const char *const from = at(k->w, s->w_first + p * s->w[2] + q * s->w[3], T);
        real *const to = (real *)k->transposed + tap * s->groups;
        for (int64_t c = 0; c < s->groups; c++)
            to[c] = load_one(from, c * s->w[0], T);
    }
}
RG_KERNEL(transpose, rg_conv_transpose_weights_args)

/* Sums of a part of the rows for some channels: vectors of them stand side by side, the last one
 * so that it ends where the channels do. */
typedef struct depthwise_sums {
    const rg_conv_depthwise_parts_args *k;
    const char *x, *dy; /* of the image, of the row of windows */
    depthwise_taps rows;
    const depthwise_taps *columns;
    fetcher ahead[2];     /* of x, dy */
    int64_t begin, width; /* channels */
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

/* Windows begin <= j < end for VLEN channels from c on, whose sums stand at `slot`; where `parts`,
 * n of them, strided or not. */
RG_INLINE void depthwise_tap(depthwise_sums *d, int32_t p, int32_t q, int64_t begin, int64_t end,
                             int64_t slot, int64_t c, int n, const rg_dtype T, const bool parts)
{
    const rg_conv_shape *s = &d->k->shape;
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
                                   int64_t end, int64_t slot, int64_t c, int n, rg_dtype T)
{
    depthwise_tap(d, p, q, begin, end, slot, c, n, T, true);
}

/* Three taps that are neighbours, as the windows are. */
RG_INLINE void depthwise_3x3_rows(depthwise_sums *d, int32_t p, int64_t begin, int64_t end,
                                  int64_t slot, int64_t c, const rg_dtype T)
{
    const rg_conv_shape *s = &d->k->shape;
    const int64_t column = s->x[2];
    const char *x = at(d->x, d->rows.at[p] * s->x[1] + (begin + d->columns->at[0]) * column + c, T);
    const char *y = at(d->dy, begin * s->y[2] + c, T);
    real *const sum = d->sum + d->rows.tap[p] * DEPTHWISE_3X3 * d->width + slot;
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
RG_INLINE void depthwise_3x3(depthwise_sums *d, int64_t begin, int64_t end, int64_t slot, int64_t c,
                             const rg_dtype T)
{
    const rg_conv_shape *s = &d->k->shape;
    const int64_t column = s->x[2];
    const char *x[DEPTHWISE_3X3], *y = at(d->dy, begin * s->y[2] + c, T);
    vreal sum[DEPTHWISE_3X3][DEPTHWISE_3X3], u[DEPTHWISE_3X3], v[DEPTHWISE_3X3];
    real *const sums = d->sum + slot;
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

/* Windows begin <= j < end, with all taps of d->columns; `three`: as above. */
RG_INLINE void depthwise_windows(depthwise_sums *d, int64_t begin, int64_t end, bool three,
                                 int64_t slot, int64_t c, int n, bool parts, const rg_dtype T)
{
    if (RG_VECTOR_BYTES == 64 && three && d->rows.count == DEPTHWISE_3X3 &&
        d->k->shape.row.window == DEPTHWISE_3X3) {
        depthwise_3x3(d, begin, end, slot, c, T);
        return;
    }
    for (int32_t p = 0; p < d->rows.count && begin < end; p++) {
        if (three) {
            depthwise_3x3_rows(d, p, begin, end, slot, c, T);
            continue;
        }
        for (int32_t q = 0; q < d->columns->count; q++) {
            if (parts)
                depthwise_tap_part(d, p, q, begin, end, slot, c, n, T);
            else
                depthwise_tap(d, p, q, begin, end, slot, c, VLEN, T, false);
        }
    }
}

/* The first channel of the vector whose sums stand at `slot`. */
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
    const bool three = !parts && a->window == DEPTHWISE_3X3 && a->stride == 1 && a->dilation == 1;
    depthwise_taps some;
    for (int64_t slot = 0; slot < d->width; slot += VLEN) {
        const int64_t c = slot_channel(d, slot);
        for (int64_t j = begin, next; j < end; j = next) {
            const bool inside = j >= l->low && j < l->high;
            next = inside ? least(l->high, end) : j + 1;
            d->columns = &l->taps;
            if (!inside) {
                keep_inside(l, a->size, j, &some);
                d->columns = &some;
            }
            depthwise_windows(d, j, next, three && inside, slot, c, vlanes_left(s->groups), parts,
                              T);
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
RG_KERNEL(depthwise_parts, rg_conv_depthwise_parts_args)

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
RG_KERNEL(depthwise_join, rg_conv_depthwise_join_args)

#endif
