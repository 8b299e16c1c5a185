/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling forward on the CPU: small windows that lie in the image. Their taps are listed once and
 * stand at the same distances in every window, so that nothing is worked out in a loop over
 * windows. Channels are taken in pairs of vectors, of bf16 the even and the odd ones; the winners
 * of a pair are put in order when they are stored. */
#ifndef RG_OPS_POOL_INSIDE_CPU_H
#define RG_OPS_POOL_INSIDE_CPU_H

#include "ops/pool/pool_channels_cpu.h"

enum { LISTED_TAPS = 16 };

/* Bytes from the first tap of a window to each, in row-major order. */
typedef struct tap_list {
    int64_t at[LISTED_TAPS];
    int count; /* 0: these windows are not made here */
} tap_list;

RG_INLINE tap_list list_taps(const rg_pool_shape *k, const pooling kind, const rg_dtype T)
{
    const int64_t element = vbytes(T) / VLEN, count = k->row.window * k->column.window;
    const bool known = kind == MAX || kind == MAX_ALONE || kind == AVERAGE;
    tap_list list = { .count = known && k->dense && count <= LISTED_TAPS ? (int)count : 0 };
    for (int t = 0; t < list.count; t++)
        list.at[t] = (t / k->column.window * k->row.dilation * k->x[1] +
                      t % k->column.window * k->column.dilation * k->x[2]) *
                     element;
    return list;
}

/* The first tap of a window, and where its results go. */
typedef struct inside {
    const char *x;
    char *y;          /* or NULL */
    uint8_t *winners; /* or NULL, as `kind` says */
    real scale;       /* average: 1 / N */
} inside;

RG_INLINE inside next_inside(inside w, int64_t x, int64_t y, int64_t winners)
{
    w.x += x;
    if (w.y != NULL)
        w.y += y;
    if (w.winners != NULL)
        w.winners += winners;
    return w;
}

/* `pairs` pairs of vectors from channel c on. */
RG_INLINE void inside_pairs(const inside *w, const tap_list *taps, int64_t c, const int pairs,
                            const rg_dtype T, const pooling kind, const bool stream)
{
    const bool average = kind == AVERAGE;
    const char *x = at(w->x, c, T);
    vpair value[2];
    vint winner[2][2] = { { { 0 } } };
#pragma GCC unroll 2
    for (int b = 0; b < pairs; b++) {
        value[b] = vload_pair(x, b * 2 * VLEN, T, true);
        if (average) /* 0 and not -0 */
            value[b] = (vpair){ vset(0) + value[b].a, vset(0) + value[b].b };
    }
    for (int t = 1; t < taps->count; t++) {
#pragma GCC unroll 2
        for (int b = 0; b < pairs; b++) {
            const vpair tap = vload_pair(x + taps->at[t], b * 2 * VLEN, T, true);
            if (average) {
                value[b].a += tap.a;
                value[b].b += tap.b;
            } else {
                compete(&value[b].a, &winner[b][0], tap.a, t);
                compete(&value[b].b, &winner[b][1], tap.b, t);
            }
        }
    }
#pragma GCC unroll 2
    for (int b = 0; b < pairs; b++) {
        const int64_t to = c + b * 2 * VLEN;
        if (average)
            value[b] = (vpair){ value[b].a * vset(w->scale), value[b].b * vset(w->scale) };
        if (kind != MAX || w->y != NULL)
            vstore_sums(w->y, to, T, value[b], stream);
        if (kind == MAX)
            vstore_pair_bytes(w->winners + to, winner[b][0], winner[b][1], T);
    }
}

/* n channels from c on. */
RG_INLINE void inside_part(const inside *w, const tap_list *taps, int64_t c, int n,
                           const rg_dtype T, const pooling kind)
{
    const bool average = kind == AVERAGE;
    vreal value = vload_partial(w->x, c, n, T);
    vint winner = { 0 };
    if (average)
        value = vset(0) + value;
    for (int t = 1; t < taps->count; t++) {
        const vreal tap = vload_partial(w->x + taps->at[t], c, n, T);
        if (average)
            value += tap;
        else
            compete(&value, &winner, tap, t);
    }
    if (average)
        value *= vset(w->scale);
    if (kind != MAX || w->y != NULL)
        vstore_partial(w->y, c, n, T, value);
    if (kind == MAX)
        vstore_bytes_partial(w->winners + c, n, winner);
}

RG_INLINE void inside_window(const inside *w, const tap_list *taps, int64_t channels,
                             const rg_dtype T, const pooling kind, const bool stream)
{
    int64_t c = 0;
    for (; c + 4 * VLEN <= channels; c += 4 * VLEN)
        inside_pairs(w, taps, c, 2, T, kind, stream);
    for (; c + 2 * VLEN <= channels; c += 2 * VLEN)
        inside_pairs(w, taps, c, 1, T, kind, stream);
    for (; c < channels; c += VLEN)
        inside_part(w, taps, c, vlanes_left(channels - c), T, kind);
}

/* Asks for the pixels that windows some steps ahead are the first to read: a window takes so many
 * instructions that the processor does not come to later loads by itself. The last windows ask for
 * those of the next row. */
RG_INLINE void fetch_ahead(const rg_pool_shape *k, const char *x, int64_t j, const rg_dtype T)
{
    enum { LINE = 64 };
    const int64_t ahead = is_short(T) ? 8192 : 4096; /* bytes of each row */
    const int64_t element = vbytes(T) / VLEN, rows = k->row.window;
    const int64_t step = k->column.stride * k->x[2] * element, bytes = least(step, ahead);
    x += ahead;
    if (j * step + ahead >= k->column.count * step)
        x += k->row.stride * k->x[1] * element - k->column.count * step;
    for (int64_t p = rows - least(k->row.stride, rows); p < rows; p++)
        for (int64_t i = 0; i < bytes; i += LINE)
            __builtin_prefetch(x + p * k->row.dilation * k->x[1] * element + i, 0, 3);
}

/* Windows of a row from `begin` on as long as they lie in the image; `w` is the first of them.
 * Returns where they end. */
RG_INLINE int64_t inside_windows(const rg_pool_shape *k, inside w, const tap_list *taps,
                                 int64_t begin, const rg_dtype T, const pooling kind,
                                 const bool stream)
{
    const rg_pool_axis *a = &k->column;
    const int64_t reach = (a->window - 1) * a->dilation, stride = a->stride;
    const int64_t element = vbytes(T) / VLEN;
    int64_t j = begin, column = j * stride - a->before;
    for (; j < a->count && column + reach < a->size; j++, column += stride) {
        fetch_ahead(k, w.x, j, T);
        if (T == RG_REAL && stream)
            inside_window(&w, taps, k->channels, T, kind, true);
        else
            inside_window(&w, taps, k->channels, T, kind, false);
        w = next_inside(w, stride * k->x[2] * element, k->y[2] * element, k->winners[2]);
    }
    return j;
}

#endif
