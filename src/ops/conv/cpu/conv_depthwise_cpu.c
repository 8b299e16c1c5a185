/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution on the CPU, which memory limits: vectors of channels, some neighbouring
 * results at once, whose sums stay in registers. */
#include "ops/conv/cpu/conv_depthwise_cpu.h"

/* ---- forward and backward data ---- */

/* Results m to m + count - 1 from their sums. */
RG_INLINE void store_results(const depthwise_row *d, int64_t m, const int count, int64_t c,
                             const vreal sum[], const rg_dtype T)
{
    const rg_conv_grouped_args *k = d->k;
    if (!k->plain) {
#pragma GCC unroll 8
        for (int n = 0; n < count; n++)
            finish_in_row(d, (m + n) * d->step, c, VLEN, T, sum[n]);
        return;
    }
    /* what the loop needs is in registers: stores could change all else */
    const bool has_b = k->conv.has_b, relu = k->conv.neuron.kind == RG_NEURON_RELU;
    const bool stream = d->stream && c % VLEN == 0;
    const vreal b = has_b ? vload_full(k->conv.b, c, T) : vset(0);
    const int64_t step = d->step * d->result[2];
    char *const to = at_out(k->conv.to, d->to + m * step + c, T);
#pragma GCC unroll 8
    for (int n = 0; n < count; n++) {
        vreal value = has_b ? sum[n] + b : sum[n];
        if (relu)
            value = neuron_relu(&d->epilogue.neuron, value, value);
        if (stream)
            vstream(to, n * step, T, value);
        else
            vstore_full(to, n * step, T, value);
    }
}

/* `count` results from number m on, VLEN channels from c on. With `is_3x3`, their taps are three
 * neighbours in the source, and so are the results. */
RG_INLINE void depthwise_block(const depthwise_row *d, int64_t m, const int count,
                               const bool is_3x3, int64_t c, const rg_dtype T)
{
    const rg_conv_grouped_args *k = d->k;
    const int64_t column = d->source[2], stride = is_3x3 ? column : d->stride * column;
    const int64_t channels = k->channels, first = m * d->stride * column + c;
    const int32_t rows = d->rows.count, across = is_3x3 ? DEPTHWISE_3X3 : d->columns->count;
    vreal sum[DEPTHWISE_BLOCK];
#pragma GCC unroll 8
    for (int n = 0; n < count; n++)
        sum[n] = vset(0);
    for (int32_t p = 0; p < rows; p++) {
        const char *const row = at(d->from, d->rows.at[p] * d->source[1] + first, T);
        const real *const w =
            (const real *)k->conv.w + d->rows.tap[p] * k->conv.shape.column.window * channels + c;
        if (is_3x3) {
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
    store_results(d, m, count, c, sum, T);
}

/* One result, n channels, anywhere. */
RG_OUTLINE void depthwise_part(const depthwise_row *d, int64_t m, int64_t c, int n, rg_dtype T)
{
    const rg_conv_grouped_args *k = d->k;
    vreal sum = vset(0);
    for (int32_t p = 0; p < d->rows.count; p++) {
        for (int32_t q = 0; q < d->columns->count; q++) {
            const int64_t from = d->rows.at[p] * d->source[1] +
                                 (m * d->stride + d->columns->at[q]) * d->source[2] +
                                 c * d->source[3];
            const int64_t tap = d->rows.tap[p] * k->conv.shape.column.window + d->columns->tap[q];
            sum = vfma(load_groups(at(d->from, from, T), d->source[3], n, T, d->source[3] == 1),
                       vload((const real *)k->conv.w + tap * k->channels + c, 0, n, RG_REAL), sum);
        }
    }
    finish_in_row(d, m * d->step, c, n, T, sum);
}

/* All channels of `count` results from number m on, which are DEPTHWISE_BLOCK or 1. What is left
 * after whole vectors is done with the last whole vector, unless that would add to it twice. */
RG_INLINE void depthwise_channels(depthwise_row *d, int64_t m, int64_t count, bool is_3x3,
                                  const rg_dtype T)
{
    const int64_t channels = d->k->channels;
    const bool whole = d->dense && channels >= VLEN;
    for (int64_t c = 0; c < channels; c += VLEN) {
        const bool last = c + VLEN > channels, part = !whole || (last && d->k->conv.add);
        const int64_t first = least(c, channels - VLEN);
        for (int64_t i = 0; i < count && part; i++)
            depthwise_part(d, m + i, c, vlanes_left(channels - c), T);
        if (part)
            continue;
        if (count == 1) {
            depthwise_block(d, m, 1, false, first, T);
        } else if (is_3x3) {
            prefetch(&d->ahead);
            depthwise_block(d, m, DEPTHWISE_BLOCK, true, first, T);
        } else {
            prefetch(&d->ahead);
            depthwise_block(d, m, DEPTHWISE_BLOCK, false, first, T);
        }
    }
}

/* All results of a line, a block of them at a time, so that what they read stays in the cache. */
RG_INLINE void depthwise_results(depthwise_row *d, const depthwise_line *l, int64_t sources,
                                 const rg_dtype T)
{
    const int64_t *const at = l->taps.at;
    const bool is_3x3 = l->stride == 1 && l->taps.count == DEPTHWISE_3X3 && at[1] == at[0] + 1 &&
                        at[2] == at[0] + 2;
    depthwise_taps some;
    const bool again =
        !d->k->conv.add && l->high - l->low >= DEPTHWISE_BLOCK; /* the last block overlaps */
    for (int64_t m = 0, count; m < l->count; m += count) {
        if (again && m > l->high - DEPTHWISE_BLOCK && m < l->high)
            m = l->high - DEPTHWISE_BLOCK;
        count = m >= l->low && l->high - m >= DEPTHWISE_BLOCK ? DEPTHWISE_BLOCK : 1;
        d->columns = &l->taps;
        if (m < l->low || m >= l->high) { /* at the border results have taps of their own */
            keep_inside(l, sources, m, &some);
            d->columns = &some;
        }
        depthwise_channels(d, m, count, is_3x3, T);
    }
}

/* A unit is a row of the result. */
RG_INLINE void depthwise(const rg_conv_grouped_args *k, int64_t begin, int64_t end,
                         const rg_dtype T)
{
    const rg_conv_shape *s = &k->conv.shape;
    const int64_t rows = k->data ? s->row.size : s->row.count;
    const int64_t sources = k->data ? s->column.count : s->column.size;
    const int64_t phases = k->data ? least(s->column.stride, s->column.size) : 1;
    depthwise_row d = depthwise_row_of(k, T);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / rows, row = unit % rows;
        find_rows(&s->row, k->data, row, &d.rows);
        d.from = at(k->conv.from, image * d.source[0], T);
        d.ahead = prefetch_row(s, d.source, k->data, image, &d.rows, k->conv.from, T);
        for (int64_t f = 0; f < phases; f++) {
            depthwise_line l;
            find_line(&s->column, k->data, f, &l);
            d.stride = l.stride;
            d.step = l.step;
            d.to = pixel_offset(d.result, image, row, f);
            d.z = pixel_offset(k->conv.z_step, image, row, f);
            depthwise_results(&d, &l, sources, T);
        }
    }
}

/* ---- backward weights ---- */

/* Sums of a slice of the rows for some channels: vectors of them are adjacent, and the last one
 * ends with the last channel. */
typedef struct depthwise_sums {
    const rg_conv_grouped_partials_args *k;
    const char *x, *dy; /* of the image, of the row of windows */
    depthwise_taps rows;
    const depthwise_taps *columns;
    prefetcher ahead[2];  /* of x, dy */
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

/* A row of three adjacent taps of adjacent windows. */
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
        prefetch(&d->ahead[0]);
        prefetch(&d->ahead[1]);
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

/* The same for three rows of taps at once, where there are registers for all: dy is read once, and
 * nine independent sums hide the latency that three do not. */
RG_INLINE void depthwise_3x3(depthwise_sums *d, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &d->k->shape;
    const int64_t column = s->x[2], c = d->c;
    const char *x[DEPTHWISE_3X3], *y = at(d->dy, begin * s->y[2] + c, T);
    vreal sum[DEPTHWISE_3X3][DEPTHWISE_3X3], u[DEPTHWISE_3X3], v[DEPTHWISE_3X3];
    real *const sums = d->sum + d->slot;
    prefetcher ahead[2] = { d->ahead[0], d->ahead[1] };
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
        prefetch_vector(&ahead[0], T);
        prefetch_vector(&ahead[1], T);
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
RG_OUTLINE void depthwise_store_partials(const depthwise_sums *d, int64_t channels, real *to)
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

RG_INLINE void depthwise_partials(const rg_conv_grouped_partials_args *k, int64_t begin,
                                  int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t taps = s->row.window * s->column.window, rows = s->images * s->row.count;
    const int64_t across = s->column.count, run = rg_conv_row_run(s);
    depthwise_sums d;
    depthwise_line l;
    depthwise_taps own = { .count = 1 }; /* the row of windows itself */
    d.k = k;
    find_line(&s->column, false, 0, &l);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t slice = unit / k->blocks;
        d.begin = unit % k->blocks * k->block;
        const int64_t channels = least(k->block, s->groups - d.begin);
        d.width = (channels + VLEN - 1) / VLEN * VLEN;
        memset(d.sum, 0, (size_t)(taps * d.width) * sizeof(real));
        for (int64_t row = slice * k->rows; row < least(rows, (slice + 1) * k->rows); row++) {
            const int64_t image = row / s->row.count, i = row % s->row.count;
            find_rows(&s->row, false, i, &d.rows);
            own.at[0] = i;
            d.x = at(k->x, image * s->x[0], T);
            d.dy = at(k->dy, image * s->y[0] + i * s->y[1], T);
            d.ahead[0] = prefetch_row(s, s->x, false, image, &d.rows, k->x, T);
            d.ahead[1] = prefetch_row(s, s->y, true, image, &own, k->dy, T);
            for (int64_t j = 0; j < across; j += run) {
                depthwise_weights_row(&d, &l, j, least(j + run, across), T);
                if (run < across)
                    end_depthwise_run(&d, j == 0);
            }
        }
        for (int64_t i = 0; run < across && i < taps * d.width; i++)
            d.sum[i] = (real)d.total[i];
        depthwise_store_partials(&d, channels, (real *)k->partials + slice * k->sums.slice_step);
    }
}

RG_KERNEL(depthwise, rg_conv_grouped_args)
RG_KERNEL(depthwise_partials, rg_conv_grouped_partials_args)

RG_CPU_TABLE(conv_depthwise, RG_CONV_KERNELS) = {
    [RG_CONV_DEPTHWISE] = RG_ROW(depthwise),
    [RG_CONV_DEPTHWISE_PARTIALS] = RG_ROW(depthwise_partials),
};
