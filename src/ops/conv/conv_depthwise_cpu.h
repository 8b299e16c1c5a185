/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution on the CPU, and groups of few channels: which taps make a result, what is
 * fetched ahead, the end of sums, and how a group's source becomes dense reals. */
#ifndef RG_OPS_CONV_DEPTHWISE_CPU_H
#define RG_OPS_CONV_DEPTHWISE_CPU_H

#include "backend/cpu/columns.h"
#include "backend/cpu/long_sum_cpu.h"
#include "backend/cpu/thread_pool.h"
#include "ops/conv/conv.h"
#include "ops/fused_neuron/any_neuron_cpu.h"

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

/* Whether whole vectors of the result stand where streaming stores can go: they must be lines,
 * because the other half of a line comes a row of pixels later. */
RG_INLINE bool depthwise_streams(const rg_conv_depthwise_args *k, const int64_t step[4],
                                 const rg_dtype T)
{
    const int64_t bytes = vbytes(T) / VLEN, all = (step[0] | step[1] | step[2]) * bytes;
    return vbytes(T) == FETCH_LINE && k->stream && k->plain &&
           ((int64_t)(uintptr_t)k->to | all) % vbytes(T) == 0;
}

/* ---- groups of few channels: the source is spread first, as dense reals; from there on only the
 * last loop depends on T ---- */

/* VLEN lanes from some lane on: the vectors of the source that they take, and which lane takes
 * what of them with each pick. */
typedef struct grouped_lanes {
    int64_t base; /* the first channel */
    int vectors, n[RG_CONV_GROUPED_MOST];
    vint index[RG_CONV_GROUPED_MOST];
} grouped_lanes;

/* Lanes from c on; groups have `wide` of them, and `picks` channels in the source. */
RG_OUTLINE grouped_lanes find_lanes(int64_t c, int64_t groups, int64_t wide, int64_t picks)
{
    const int64_t count = least(VLEN, groups * wide - c), first = c / wide;
    const int64_t channels = ((c + count - 1) / wide - first + 1) * picks;
    grouped_lanes v = { .base = first * picks, .vectors = (int)((channels + VLEN - 1) / VLEN) };
    for (int k = 0; k < v.vectors; k++)
        v.n[k] = vlanes_left(groups * picks - v.base - k * VLEN);
    for (int64_t i = 0; i < picks; i++) {
        v.index[i] = (vint){ 0 };
        for (int64_t lane = 0; lane < count; lane++)
            v.index[i][lane] = (intr)((c + lane) / wide * picks + i - v.base);
    }
    return v;
}

/* to[pixel][pick] = vectors of lanes, from pixels `pixel` elements apart. */
RG_INLINE void spread_pixels(const grouped_lanes *v, const char *from, int64_t pixel, int64_t step,
                             int64_t count, int64_t picks, real *to, const rg_dtype T)
{
    const int64_t next = v->vectors * VLEN * step; /* what the next lanes will want */
    const int last = v->vectors - 1;
    for (int64_t j = 0; j < count; j++, to += picks * VLEN) {
        vreal x[RG_CONV_GROUPED_MOST];
        const char *const at_ = at(from, j * pixel, T);
        __builtin_prefetch(at(at_, next, T), 0, 2);
        if (last == 0 && step == 1 && v->n[0] == VLEN) {
            const vreal one = vload_full(at_, 0, T);
            for (int64_t i = 0; i < picks; i++)
                vstore_full(to, i * VLEN, RG_REAL, vpick(one, v->index[i]));
            continue;
        }
        for (int k = 0; k <= last; k++)
            x[k] = step == 1 ? vload_partial(at_, k * VLEN, v->n[k], T)
                             : vgather(at(at_, k * VLEN * step, T), 0, step, v->n[k], T);
        for (int64_t i = 0; i < picks; i++) {
            vreal picked = vpick(x[0], v->index[i]);
            for (int k = 1; k <= last; k++)
                picked = vselect(v->index[i] >= (intr)(k * VLEN), vpick(x[k], v->index[i]), picked);
            vstore_full(to, i * VLEN, RG_REAL, picked);
        }
    }
}

RG_OUTLINE void spread_row(const grouped_lanes *v, const void *from, int64_t first,
                           const int64_t step[4], int64_t count, int64_t picks, real *to,
                           rg_dtype T)
{
    first += v->base * step[3];
#if !RG_REAL_F64
    if (T == RG_F16)
        spread_pixels(v, at(from, first, RG_F16), step[2], step[3], count, picks, to, RG_F16);
    else if (T == RG_BF16)
        spread_pixels(v, at(from, first, RG_BF16), step[2], step[3], count, picks, to, RG_BF16);
    else
#endif
        spread_pixels(v, at(from, first, RG_REAL), step[2], step[3], count, picks, to, RG_REAL);
    (void)T;
}

/* Rows of the source that rows begin <= r < end of the result take; none: first = last. */
RG_INLINE void rows_of_source(const rg_conv_axis *a, bool data, int64_t begin, int64_t end,
                              int64_t *first, int64_t *last)
{
    const int64_t reach = (a->window - 1) * a->dilation, all = data ? a->count : a->size;
    *first = data ? floor_div(begin + a->before - reach, a->stride) : begin * a->stride - a->before;
    *last = data ? floor_div(end - 1 + a->before, a->stride) + 1
                 : (end - 1) * a->stride - a->before + reach + 1;
    *first = *first < 0 ? 0 : least(*first, all);
    *last = *last < *first ? *first : least(*last, all);
}

/* Where lane c of so many weights stands; further weights are RG_CONV_GROUPED_BLOCK apart. */
RG_INLINE int64_t grouped_at(int64_t c, int64_t weights)
{
    return c / RG_CONV_GROUPED_BLOCK * weights * RG_CONV_GROUPED_BLOCK + c % RG_CONV_GROUPED_BLOCK;
}

/* VLEN lanes of some rows. */
typedef struct grouped_sums {
    const real *in, *w; /* spread rows from `first` on; weights of the lanes */
    real *sums;         /* vectors: of results, or of weights */
    double *totals;     /* of weights, where a row is longer than a run */
    int64_t first, columns, picks;
    int64_t window; /* taps of a row */
    int64_t stride; /* from result to result, in columns of the source */
} grouped_sums;

#endif
