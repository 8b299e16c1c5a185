/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling forward on the CPU: over the taps of a window, in row-major order; each result is written
 * once. A unit is a row of the result; the rows of x that belong to it stay in the cache from one
 * unit to the next. Pixels are taken one by one, their channels in blocks of 4 vectors, then vector
 * by vector: windows and taps are the same for all of them. */
#include "ops/pool/pool_inside_cpu.h"

/* ---- one window ---- */

/* What a row of y, and then a window, is made from. */
typedef struct window {
    const rg_pool_shape *k;
    const void *x;
    int64_t p0, p1, q0, q1; /* taps that lie in the image */
    int64_t first;          /* where tap (0, 0) is, or would be */
    int64_t zero_after;     /* max: see rg_pool_zero_after */
    int64_t y, winners;     /* where the results go */
    real scale;             /* average: 1 / N */
    bool stream;            /* y, of reals, uses streaming stores */
} window;

typedef struct results {
    void *y, *winners;
} results;

/* A block of y from channel c on, in the order of pairs. */
RG_INLINE void store_block(const window *w, void *y, int64_t c, const vreal value[],
                           const rg_dtype T, const bool stream)
{
    for (int b = 0; b < BLOCK; b += 2)
        vstore_pair(at_out(y, w->y, T), c + b * VLEN, T, (vpair){ value[b], value[b + 1] }, true,
                    stream);
}

/* n channels of y from c on. */
RG_INLINE void store_result(const window *w, void *y, int64_t c, int n, const rg_dtype T,
                            const bool dense, vreal value)
{
    if (T == RG_REAL && dense && n == VLEN && w->stream)
        vstream(at_out(y, w->y, T), c, T, value);
    else
        store_channels(y, w->y, c, w->k->y[3], n, T, dense, value);
}

RG_INLINE void max_block(const window *w, results to, int64_t c, int n, const int blocks,
                         const rg_dtype T, const bool dense, const pooling kind)
{
    const rg_pool_shape *k = w->k;
    const bool wide = kind == MAX_WIDE, alone = kind == MAX_ALONE;
    const int pairs = alone ? blocks : 1; /* winners want the order of elements */
    const intr nobody = wide ? RG_POOL_VIRTUAL_WIDE : RG_POOL_VIRTUAL;
    const int64_t columns = k->column.window;
    vreal best[BLOCK];
    vint winner[BLOCK];
    const bool zero_first = w->zero_after == 0;
    for (int b = 0; b < blocks; b++) {
        best[b] = vset(zero_first ? 0 : -RG_INFINITY);
        winner[b] = (vint){ 0 } + (zero_first ? nobody : (intr)(w->p0 * columns + w->q0));
    }
    for (int64_t p = w->p0; p < w->p1; p++) {
        int64_t offset =
            w->first + p * k->row.dilation * k->x[1] + w->q0 * k->column.dilation * k->x[2];
        for (int64_t q = w->q0; q < w->q1; q++, offset += k->column.dilation * k->x[2]) {
#pragma GCC unroll 4
            for (int b = 0; b < blocks; b++)
                compete(&best[b], &winner[b],
                        pairs > 1
                            ? load_block(at(w->x, offset, T), c, b, k->x[3], n, pairs, T, dense)
                            : load_channels(w->x, offset, c + b * VLEN, k->x[3], n, T, dense),
                        (intr)(p * columns + q));
        }
        if (p + 1 - w->p0 == w->zero_after) {
            for (int b = 0; b < blocks; b++)
                compete(&best[b], &winner[b], vset(0), nobody);
        }
    }
    if (pairs > 1 && T == RG_REAL && w->stream)
        store_block(w, to.y, c, best, T, true);
    else if (pairs > 1)
        store_block(w, to.y, c, best, T, false);
    for (int b = 0; b < blocks && pairs == 1; b++) {
        if (to.y != NULL)
            store_result(w, to.y, c + b * VLEN, n, T, dense, best[b]);
        if (to.winners != NULL)
            store_winners(to.winners, w->winners + c + b * VLEN, n, wide, winner[b]);
    }
}

RG_INLINE void sum_block(const window *w, results to, int64_t c, int n, const int blocks,
                         const rg_dtype T, const bool dense, const pooling kind)
{
    const rg_pool_shape *k = w->k;
    const bool squares = kind == L2 || kind == L2_LONG;
    const bool many = kind == AVERAGE_LONG || kind == L2_LONG;
    vreal sum[BLOCK];
    long_sum total[BLOCK];
    int64_t left = RG_CHAIN_RUN;
    for (int b = 0; b < blocks; b++) {
        sum[b] = vset(0);
        total[b] = long_sum_zero();
    }
    for (int64_t p = w->p0; p < w->p1; p++) {
        int64_t offset =
            w->first + p * k->row.dilation * k->x[1] + w->q0 * k->column.dilation * k->x[2];
        for (int64_t q = w->q0; q < w->q1; q++, offset += k->column.dilation * k->x[2]) {
#pragma GCC unroll 4
            for (int b = 0; b < blocks; b++) {
                const vreal x = load_block(at(w->x, offset, T), c, b, k->x[3], n, blocks, T, dense);
                sum[b] = squares ? vfma(x, x, sum[b]) : sum[b] + x;
            }
            if (many && --left == 0)
                left = long_sums_end_run(total, sum, blocks);
        }
    }
    for (int b = 0; b < blocks && many; b++)
        sum[b] = long_sum_add(total[b], sum[b]).high;
    if (blocks > 1) {
        for (int b = 0; b < blocks; b++)
            sum[b] = squares ? vsqrt(sum[b]) : sum[b] * vset(w->scale);
        if (T == RG_REAL && w->stream)
            store_block(w, to.y, c, sum, T, true);
        else
            store_block(w, to.y, c, sum, T, false);
        return;
    }
    for (int b = 0; b < blocks; b++)
        store_result(w, to.y, c + b * VLEN, n, T, dense,
                     squares ? vsqrt(sum[b]) : sum[b] * vset(w->scale));
}

RG_INLINE void pool_block(const window *w, results to, int64_t c, int n, const int blocks,
                          const rg_dtype T, const bool dense, const pooling kind)
{
    if (kind == MAX || kind == MAX_WIDE || kind == MAX_ALONE)
        max_block(w, to, c, n, blocks, T, dense, kind);
    else
        sum_block(w, to, c, n, blocks, T, dense, kind);
}

/* The last channels, and all where channels are no neighbours or winners are wide: rare, so one
 * copy for everything, called. */
RG_OUTLINE void pool_rest(const window *w, results to, int64_t c, rg_dtype T, pooling kind)
{
    for (; c < w->k->channels; c += VLEN)
        pool_block(w, to, c, vlanes_left(w->k->channels - c), 1, T, w->k->dense, kind);
}

/* All channels of one window. */
RG_INLINE void pool_window_of(const window *w, results to, const rg_dtype T, const pooling kind)
{
    const int64_t channels = w->k->channels, whole = w->k->dense ? channels : 0;
    int64_t c = 0;
    for (; kind != MAX_WIDE && c + BLOCK * VLEN <= whole; c += BLOCK * VLEN)
        pool_block(w, to, c, VLEN, BLOCK, T, true, kind);
    for (; kind != MAX_WIDE && c + VLEN <= whole; c += VLEN)
        pool_block(w, to, c, VLEN, 1, T, true, kind);
    if (c < channels)
        pool_rest(w, to, c, T, kind);
}

RG_INLINE void pool_window(const window *w, results to, const rg_dtype T, const pooling kind)
{
    const bool many = (w->p1 - w->p0) * (w->q1 - w->q0) > RG_CHAIN_RUN;
    if ((kind == AVERAGE || kind == L2) && many)
        pool_window_of(w, to, T, kind == L2 ? L2_LONG : AVERAGE_LONG);
    else
        pool_window_of(w, to, T, kind);
}

/* ---- rows ---- */

RG_INLINE inside inside_of(const window *w, results to, const rg_dtype T)
{
    return (inside){ at(w->x, w->first, T), to.y != NULL ? at_out(to.y, w->y, T) : NULL,
                     to.winners != NULL ? (uint8_t *)to.winners + w->winners : NULL, w->scale };
}

RG_INLINE void pool_row(const rg_pool_shape *k, const tap_list *taps, const void *x, results to,
                        int64_t unit, const rg_dtype T, const pooling kind)
{
    const int64_t image = unit / k->row.count, i = unit % k->row.count;
    window w = { .k = k, .x = x };
    rg_pool_taps(&k->row, i, &w.p0, &w.p1);
    const int64_t rows = kind == AVERAGE ? rg_pool_counted(&k->row, i) : 0;
    const int64_t row = image * k->x[0] + (i * k->row.stride - k->row.before) * k->x[1];
    w.stream = to.y != NULL && may_stream(k, to.y, image * k->y[0] + i * k->y[1], k->y[2], T);
    for (int64_t j = 0; j < k->column.count; j++) {
        rg_pool_taps(&k->column, j, &w.q0, &w.q1);
        w.first = row + (j * k->column.stride - k->column.before) * k->x[2];
        w.y = image * k->y[0] + i * k->y[1] + j * k->y[2];
        w.winners = image * k->winners[0] + i * k->winners[1] + j * k->winners[2];
        if (kind == AVERAGE) {
            const int64_t counted = rows * rg_pool_counted(&k->column, j);
            w.scale = counted > 0 ? 1 / (real)counted : 0;
        } else {
            w.zero_after = rg_pool_zero_after(k, w.p0, w.p1, w.q0, w.q1);
        }
        if (taps->count > 0 && w.p1 - w.p0 == k->row.window && w.q1 - w.q0 == k->column.window)
            j = inside_windows(k, inside_of(&w, to, T), taps, j, T, kind, w.stream) - 1;
        else
            pool_window(&w, to, T, kind);
    }
}

RG_INLINE void pool_units(const rg_pool_shape *k, const void *x, results to, int64_t begin,
                          int64_t end, const rg_dtype T, const pooling kind)
{
    const tap_list taps = list_taps(k, kind, T);
    for (int64_t unit = begin; unit < end; unit++)
        pool_row(k, &taps, x, to, unit, T, kind);
}

/* ---- forward ---- */

RG_INLINE void max_forward(const rg_pool_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    pool_units(&k->shape, k->x, (results){ k->y, NULL }, begin, end, T, MAX_ALONE);
}

RG_INLINE void max_winners(const rg_pool_winners_args *k, int64_t begin, int64_t end,
                           const rg_dtype T)
{
    const results to = { k->y, k->winners };
    if (k->shape.wide)
        pool_units(&k->shape, k->x, to, begin, end, T, MAX_WIDE);
    else
        pool_units(&k->shape, k->x, to, begin, end, T, MAX);
}

RG_INLINE void average_forward(const rg_pool_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    pool_units(&k->shape, k->x, (results){ k->y, NULL }, begin, end, T, AVERAGE);
}

RG_INLINE void l2_forward(const rg_pool_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    pool_units(&k->shape, k->x, (results){ k->y, NULL }, begin, end, T, L2);
}

RG_KERNEL(max_forward, rg_pool_args)
RG_KERNEL(max_winners, rg_pool_winners_args)
RG_KERNEL(average_forward, rg_pool_args)
RG_KERNEL(l2_forward, rg_pool_args)

RG_CPU_TABLE(pool_forward, RG_POOL_KERNELS) = {
    [RG_POOL_MAX_FORWARD] = RG_ROW(max_forward),
    [RG_POOL_MAX_WINNERS] = RG_ROW(max_winners),
    [RG_POOL_AVERAGE_FORWARD] = RG_ROW(average_forward),
    [RG_POOL_L2_FORWARD] = RG_ROW(l2_forward),
};
