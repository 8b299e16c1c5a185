/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution on the CPU, and groups of few channels: which taps make a result, and what
 * is prefetched. */
#ifndef RG_OPS_CONV_DEPTHWISE_CPU_H
#define RG_OPS_CONV_DEPTHWISE_CPU_H

#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/cpu/conv_cpu.h"
#include "ops/conv/cpu/conv_epilogue_cpu.h"

/* Adjacent results, and taps of a row, for which there are loops of their own. */
enum { DEPTHWISE_BLOCK = 8, DEPTHWISE_3X3 = 3 };

/* ---- which taps make a result ---- */

/* Tap `tap` of some result is pixel `at` of the source, or on columns `at` from where the result
 * lies in the source. In the order of the source. */
typedef struct depthwise_taps {
    int32_t count;
    int32_t tap[RG_CONV_DEPTHWISE_TAPS];
    int64_t at[RG_CONV_DEPTHWISE_TAPS];
} depthwise_taps;

/* Rows, by pixels of the source: those of result r that are inside. */
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

/* Columns of results first, first + step, …, of which number m lies at m * stride in the source.
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

/* Those taps of result m that lie in the source, relative to its position. */
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

/* ---- prefetching ---- */

/* A row that will be read next. It is asked for in the order of memory, a little with every block
 * of results: the hardware does not foresee the order in which vectors of channels are read. */
typedef struct prefetcher {
    const char *at, *end;
    int64_t pace; /* bytes at a time */
} prefetcher;

enum { LINE_BYTES = 64 };

RG_INLINE void prefetch(prefetcher *f)
{
    const char *const stop = f->at + f->pace < f->end ? f->at + f->pace : f->end;
    for (; f->at < stop; f->at += LINE_BYTES)
        __builtin_prefetch(f->at, 0, 2);
}

/* As much as one vector of a result takes. */
RG_INLINE void prefetch_vector(prefetcher *f, const rg_dtype T)
{
    if (f->at < f->end) {
        __builtin_prefetch(f->at, 0, 2);
        f->at += vbytes(T);
    }
}

/* The row after those in `rows`, if pixels are dense; `data`: of windows. */
RG_OUTLINE prefetcher prefetch_row(const rg_conv_shape *s, const int64_t step[4], bool data,
                                   int64_t image, const depthwise_taps *rows, const void *from,
                                   rg_dtype T)
{
    const int64_t all = data ? s->row.count : s->row.size, channels = s->groups;
    const int64_t across = data ? s->column.count : s->column.size;
    const int64_t next = image * all + (rows->count > 0 ? rows->at[rows->count - 1] + 1 : 0);
    if (step[2] != channels || step[1] != across * channels || next >= s->images * all ||
        (s->images > 1 && step[0] != all * step[1]))
        return (prefetcher){ from, from, 0 }; /* nothing */
    const char *const first = at(from, next * step[1], T);
    const int64_t bytes = step[1] * (vbytes(T) / VLEN);
    const int64_t blocks = (channels + VLEN - 1) / VLEN * (s->column.count / DEPTHWISE_BLOCK + 1);
    return (prefetcher){ first, first + bytes, (bytes / blocks / LINE_BYTES + 2) * LINE_BYTES };
}

/* ---- results ---- */

/* A row of results. */
typedef struct depthwise_row {
    const rg_conv_grouped_args *k;
    const char *from; /* of the image */
    prefetcher ahead;
    int64_t to, z;                  /* of the row */
    const int64_t *source, *result; /* steps (image, row, column, channel) */
    int64_t stride, step; /* from result to result: columns of the source, of the result */
    depthwise_taps rows;
    const depthwise_taps *columns;
    conv_epilogue epilogue;
    bool dense, stream;
} depthwise_row;

/* n channels from c on of the result in column j of a row. */
RG_INLINE void finish_in_row(const depthwise_row *d, int64_t j, int64_t c, int n, const rg_dtype T,
                             vreal value)
{
    finish_channels(&d->epilogue, d->to + j * d->result[2], d->z + j * d->k->conv.z_step[2],
                    d->result[3], c, n, T, value);
}

/* Whether streaming stores can write whole vectors of the result: they must be cache lines, because
 * the other half of a line would follow a row of pixels later. */
RG_INLINE bool depthwise_streams(const rg_conv_grouped_args *k, const int64_t step[4],
                                 const rg_dtype T)
{
    const int64_t bytes = vbytes(T) / VLEN, all = (step[0] | step[1] | step[2]) * bytes;
    return vbytes(T) == LINE_BYTES && k->conv.stream && k->plain &&
           ((int64_t)(uintptr_t)k->conv.to | all) % vbytes(T) == 0;
}

/* Rows, columns and steps of the source and the result of either direction. */
RG_INLINE depthwise_row depthwise_row_of(const rg_conv_grouped_args *k, const rg_dtype T)
{
    const rg_conv_shape *s = &k->conv.shape;
    depthwise_row d = { .k = k,
                        .source = k->data ? s->y : s->x,
                        .result = k->data ? s->x : s->y,
                        .dense = s->x_dense && s->y_dense,
                        .epilogue = epilogue_of(&k->conv) };
    d.stream = depthwise_streams(k, d.result, T);
    return d;
}

/* Bias, neuron and conversion of results m to m + count - 1 of a row, n lanes from c on. */
RG_INLINE void grouped_end(const depthwise_row *d, const real *sums, int64_t m, int64_t count,
                           int64_t c, int n, const rg_dtype T)
{
    const rg_conv_args *k = &d->k->conv;
    const bool plain = d->k->plain && d->result[3] == 1, relu = k->neuron.kind == RG_NEURON_RELU;
    const vreal bias = plain && k->has_b ? vload_partial(k->b, c, n, T) : vset(0);
    for (int64_t i = 0; i < count; i++) {
        const int64_t j = (m + i) * d->step, to = d->to + j * d->result[2] + c;
        vreal value = vload_full(sums, i * VLEN, RG_REAL);
        if (!plain) {
            finish_in_row(d, j, c, n, T, value);
            continue;
        }
        value = k->has_b ? value + bias : value;
        value = relu ? neuron_relu(&d->epilogue.neuron, value, value) : value;
        if (n < VLEN)
            vstore_partial(k->to, to, n, T, value);
        else if (d->stream)
            vstream(k->to, to, T, value);
        else
            vstore_full(k->to, to, T, value);
    }
}

/* The same for bf16 by a conversion of the processor's own, `step` apart; false: nothing is done.
 */
RG_INLINE bool end_bf16(const depthwise_row *d, const real *sums, int64_t count, int64_t c, int n,
                        uint16_t *to, int64_t step)
{
#if RG_USES_PAIRS
    const rg_conv_args *k = &d->k->conv;
    const bool relu = k->neuron.kind == RG_NEURON_RELU;
    real bias[VLEN];
    if (!d->k->plain || d->result[3] != 1 || (relu && d->epilogue.neuron.a != 0))
        return false;
    if (k->has_b)
        vstore_full(bias, 0, RG_REAL, vload_partial(k->b, c, n, RG_BF16));
    const rg_bf16_results results = { .sums = sums,
                                      .bias = k->has_b ? bias : NULL,
                                      .to = to,
                                      .sums_step = VLEN,
                                      .to_step = step,
                                      .rows = count,
                                      .columns = n,
                                      .relu = relu };
    return rg_bf16_end(&results);
#else
    (void)d, (void)sums, (void)count, (void)c, (void)n, (void)to, (void)step;
    return false;
#endif
}

#endif
