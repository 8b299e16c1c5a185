/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling on the CPU. A unit is a row of the result; the rows of the other side that belong to it
 * stay in the cache from one unit to the next. Pixels are taken one by one, their channels in
 * blocks of 4 vectors, then vector by vector: windows and taps are the same for all of them.
 *
 * Forward goes over the taps of a window, the gradient over the windows around a pixel, both in
 * row-major order; each result is written once. */
#include "backend/cpu/kernel.h"
#include "ops/pool/pool.h"

/* Vectors of a block. */
enum { BLOCK = 4 };

/* Channels c to c + n - 1 (n = VLEN in a block) of the pixel that stands `offset` elements behind
 * `data`. `dense`: channels are neighbours; `step` apart otherwise. */
RG_INLINE vreal load_channels(const void *data, int64_t offset, int64_t c, int64_t step, int n,
                              const rg_dtype T, const bool dense)
{
    const char *pixel = at(data, offset, T);
    return dense ? vload(pixel, c, n, T) : vgather(pixel, c, step, n, T);
}

RG_INLINE void store_channels(void *data, int64_t offset, int64_t c, int64_t step, int n,
                              const rg_dtype T, const bool dense, vreal value)
{
    char *pixel = at_out(data, offset, T);
    if (dense)
        vstore(pixel, c, n, T, value);
    else
        vscatter(pixel, c, step, n, T, value);
}

/* Whether whole vectors can be written past the cache in every pixel of a row. */
RG_INLINE bool may_stream(const rg_pool_shape *k, const void *data, int64_t offset,
                          int64_t column_step, const rg_dtype T)
{
    const int64_t element = vbytes(T) / VLEN;
    return k->stream && k->dense && k->channels % VLEN == 0 &&
           (uintptr_t)at(data, offset, T) % RG_VECTOR_BYTES == 0 &&
           column_step * element % RG_VECTOR_BYTES == 0;
}

/* ---- winners: tap numbers in bytes, or in 32 bits ---- */

typedef uint8_t vbyte __attribute__((vector_size(VLEN)));
typedef int32_t vword __attribute__((vector_size(4 * VLEN)));

RG_INLINE vint load_winners(const void *winners, int64_t i, int n, const bool wide)
{
    if (n == VLEN && !wide) {
        vbyte bytes;
        memcpy(&bytes, (const uint8_t *)winners + i, sizeof bytes);
        return __builtin_convertvector(bytes, vint);
    }
    if (n == VLEN) {
        vword words;
        memcpy(&words, (const int32_t *)winners + i, sizeof words);
        return __builtin_convertvector(words, vint);
    }
    vint lanes = { 0 };
    for (int e = 0; e < n; e++)
        lanes[e] = wide ? ((const int32_t *)winners)[i + e] : ((const uint8_t *)winners)[i + e];
    return lanes;
}

RG_INLINE void store_winners(void *winners, int64_t i, int n, const bool wide, vint lanes)
{
    if (n == VLEN && !wide) {
        const vbyte bytes = __builtin_convertvector(lanes, vbyte);
        memcpy((uint8_t *)winners + i, &bytes, sizeof bytes);
        return;
    }
    for (int e = 0; e < n; e++) {
        if (wide)
            ((int32_t *)winners)[i + e] = (int32_t)lanes[e];
        else
            ((uint8_t *)winners)[i + e] = (uint8_t)lanes[e];
    }
}

/* ---- forward ---- */

/* What a row of y, and then a window, is made from. */
typedef struct window {
    const rg_pool_shape *k;
    const void *x;
    int64_t p0, p1, q0, q1; /* taps that lie in the image */
    int64_t first;          /* where tap (0, 0) is, or would be */
    int64_t zero_after;     /* max: see rg_pool_zero_after */
    int64_t y, winners;     /* where the results go */
    real scale;             /* average: 1 / N */
} window;

typedef struct results {
    void *y, *winners;
} results;

/* The first value that is larger, or the first NaN, wins. */
RG_INLINE void compete(vreal *best, vint *winner, vreal x, intr tap)
{
    const vint wins = ~(x <= *best) & (*best == *best);
    *best = vselect(wins, x, *best);
    *winner = (vint)vselect(wins, (vreal)((vint){ 0 } + tap), (vreal)*winner);
}

RG_INLINE void max_block(const window *w, results to, int64_t c, int n, const int blocks,
                         const rg_dtype T, const bool dense, const bool wide)
{
    const rg_pool_shape *k = w->k;
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
                        load_channels(w->x, offset, c + b * VLEN, k->x[3], n, T, dense),
                        (intr)(p * columns + q));
        }
        if (p + 1 - w->p0 == w->zero_after) {
            for (int b = 0; b < blocks; b++)
                compete(&best[b], &winner[b], vset(0), nobody);
        }
    }
    for (int b = 0; b < blocks; b++) {
        if (to.y != NULL)
            store_channels(to.y, w->y, c + b * VLEN, k->y[3], n, T, dense, best[b]);
        if (to.winners != NULL)
            store_winners(to.winners, w->winners + c + b * VLEN, n, wide, winner[b]);
    }
}

RG_INLINE vreal root(vreal a)
{
    for (int e = 0; e < VLEN; e++)
        a[e] = sizeof(real) == 4 ? (real)__builtin_sqrtf((float)a[e]) : (real)__builtin_sqrt(a[e]);
    return a;
}

RG_INLINE void sum_block(const window *w, results to, int64_t c, int n, const int blocks,
                         const rg_dtype T, const bool dense, const bool squares)
{
    const rg_pool_shape *k = w->k;
    vreal sum[BLOCK];
    for (int b = 0; b < blocks; b++)
        sum[b] = vset(0);
    for (int64_t p = w->p0; p < w->p1; p++) {
        int64_t offset =
            w->first + p * k->row.dilation * k->x[1] + w->q0 * k->column.dilation * k->x[2];
        for (int64_t q = w->q0; q < w->q1; q++, offset += k->column.dilation * k->x[2]) {
#pragma GCC unroll 4
            for (int b = 0; b < blocks; b++) {
                const vreal x = load_channels(w->x, offset, c + b * VLEN, k->x[3], n, T, dense);
                sum[b] = squares ? vfma(x, x, sum[b]) : sum[b] + x;
            }
        }
    }
    for (int b = 0; b < blocks; b++)
        store_channels(to.y, w->y, c + b * VLEN, k->y[3], n, T, dense,
                       squares ? root(sum[b]) : sum[b] * vset(w->scale));
}

typedef enum pooling { MAX, MAX_WIDE, AVERAGE, L2 } pooling;

RG_INLINE void pool_block(const window *w, results to, int64_t c, int n, const int blocks,
                          const rg_dtype T, const bool dense, const pooling kind)
{
    if (kind == MAX || kind == MAX_WIDE)
        max_block(w, to, c, n, blocks, T, dense, kind == MAX_WIDE);
    else
        sum_block(w, to, c, n, blocks, T, dense, kind == L2);
}

/* The last channels, and all where channels are no neighbours or winners are wide: rare, so one
 * copy for everything, called. */
RG_OUTLINE void pool_rest(const window *w, results to, int64_t c, rg_dtype T, pooling kind)
{
    for (; c < w->k->channels; c += VLEN)
        pool_block(w, to, c, vlanes_left(w->k->channels - c), 1, T, w->k->dense, kind);
}

/* All channels of one window. */
RG_INLINE void pool_window(const window *w, results to, const rg_dtype T, const pooling kind)
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

RG_INLINE void pool_row(const rg_pool_shape *k, const void *x, results to, int64_t unit,
                        const rg_dtype T, const pooling kind)
{
    const int64_t image = unit / k->row.count, i = unit % k->row.count;
    window w = { .k = k, .x = x };
    rg_pool_taps(&k->row, i, &w.p0, &w.p1);
    const int64_t rows = kind == AVERAGE ? rg_pool_counted(&k->row, i) : 0;
    const int64_t row = image * k->x[0] + (i * k->row.stride - k->row.before) * k->x[1];
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
        pool_window(&w, to, T, kind);
    }
}

RG_INLINE void pool_units(const rg_pool_shape *k, const void *x, results to, int64_t begin,
                          int64_t end, const rg_dtype T, const pooling kind)
{
    for (int64_t unit = begin; unit < end; unit++)
        pool_row(k, x, to, unit, T, kind);
}

RG_INLINE void max_forward(const rg_pool_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    pool_units(&k->shape, k->x, (results){ k->y, NULL }, begin, end, T, MAX);
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

/* ---- gradient ---- */

/* A pixel of dx and the windows around it. */
typedef struct pixel {
    const rg_pool_gradient_args *g;
    int64_t r, q;               /* row, column */
    int64_t i0, i1, j0, j1;     /* windows i0 to i1, j0 to j1 */
    int64_t dy, winners, y, dx; /* the image in dy, winners and y; the pixel in dx */
    int64_t x;                  /* l2: the pixel in x */
    real share;                 /* average: 1 / N of a window that is counted as a whole */
    bool stream;
} pixel;

/* average: 1 / N of window (i, j) */
RG_INLINE real share_of(const pixel *u, int64_t i, int64_t j)
{
    const rg_pool_shape *k = &u->g->shape;
    const int64_t counted = rg_pool_counted(&k->row, i) * rg_pool_counted(&k->column, j);
    return counted == k->row.window * k->column.window ? u->share : 1 / (real)counted;
}

RG_INLINE void collect_block(const pixel *u, int64_t c, int n, const int blocks, const rg_dtype T,
                             const bool dense, const pooling kind)
{
    const rg_pool_gradient_args *g = u->g;
    const rg_pool_shape *k = &g->shape;
    vreal sum[BLOCK], x[BLOCK];
    for (int b = 0; b < blocks; b++) {
        sum[b] = vset(0);
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
            const real share = kind == AVERAGE ? share_of(u, i, j) : 0;
#pragma GCC unroll 4
            for (int b = 0; b < blocks; b++) {
                const int64_t at_c = c + b * VLEN;
                const vreal dy = load_channels(g->dy, from, at_c, k->y[3], n, T, dense);
                if (kind == AVERAGE) {
                    sum[b] += dy * vset(share);
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
        }
    }
    for (int b = 0; b < blocks; b++) {
        const int64_t at_c = c + b * VLEN;
        if (k->add)
            sum[b] += load_channels(g->dx, u->dx, at_c, k->x[3], n, T, dense);
        if (u->stream)
            vstream(at_out(g->dx, u->dx, T), at_c, T, sum[b]);
        else
            store_channels(g->dx, u->dx, at_c, k->x[3], n, T, dense, sum[b]);
    }
}

/* As pool_rest. */
RG_OUTLINE void collect_rest(const pixel *u, int64_t c, rg_dtype T, pooling kind)
{
    const rg_pool_shape *k = &u->g->shape;
    for (; c < k->channels; c += VLEN)
        collect_block(u, c, vlanes_left(k->channels - c), 1, T, k->dense, kind);
}

/* All channels of one pixel. */
RG_INLINE void collect_pixel(const pixel *u, const rg_dtype T, const pooling kind)
{
    const int64_t channels = u->g->shape.channels, whole = u->g->shape.dense ? channels : 0;
    int64_t c = 0;
    for (; kind != MAX_WIDE && c + BLOCK * VLEN <= whole; c += BLOCK * VLEN)
        collect_block(u, c, VLEN, BLOCK, T, true, kind);
    for (; kind != MAX_WIDE && c + VLEN <= whole; c += VLEN)
        collect_block(u, c, VLEN, 1, T, true, kind);
    if (c < channels)
        collect_rest(u, c, T, kind);
}

/* As rg_pool_windows, from those of the pixel before and without a division. */
RG_INLINE void next_windows(const rg_pool_axis *a, int64_t q, int64_t *first, int64_t *last)
{
    const int64_t end = q + a->before, begin = end - (a->window - 1) * a->dilation;
    while (*last + 1 < a->count && (*last + 1) * a->stride <= end)
        ++*last;
    while (*first * a->stride < begin)
        ++*first;
}

RG_INLINE void collect_row(const rg_pool_gradient_args *g, int64_t unit, const rg_dtype T,
                           const pooling kind)
{
    const rg_pool_shape *k = &g->shape;
    const int64_t image = unit / k->row.size, r = unit % k->row.size;
    const int64_t row = image * k->x[0] + r * k->x[1];
    pixel u = { .g = g,
                .r = r,
                .dy = image * k->y[0],
                .winners = image * k->winners[0],
                .y = image * k->w[0],
                .share = 1 / (real)(k->row.window * k->column.window),
                .stream = may_stream(k, g->dx, row, k->x[2], T) };
    rg_pool_windows(&k->row, r, &u.i0, &u.i1);
    rg_pool_windows(&k->column, 0, &u.j0, &u.j1);
    for (int64_t q = 0; q < k->column.size; q++) {
        u.q = q;
        u.dx = row + q * k->x[2];
        u.x = image * k->z[0] + r * k->z[1] + q * k->z[2];
        next_windows(&k->column, q, &u.j0, &u.j1);
        collect_pixel(&u, T, kind);
    }
}

RG_INLINE void collect_units(const rg_pool_gradient_args *g, int64_t begin, int64_t end,
                             const rg_dtype T, const pooling kind)
{
    for (int64_t unit = begin; unit < end; unit++)
        collect_row(g, unit, T, kind);
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

/* ---- entry points and table ---- */

RG_KERNEL(max_forward, rg_pool_args)
RG_KERNEL(max_winners, rg_pool_winners_args)
RG_KERNEL(average_forward, rg_pool_args)
RG_KERNEL(l2_forward, rg_pool_args)
RG_KERNEL(max_gradient, rg_pool_gradient_args)
RG_KERNEL(average_gradient, rg_pool_gradient_args)
RG_KERNEL(l2_gradient, rg_pool_gradient_args)

const rg_cpu_row RG_TABLE(pool)[RG_POOL_KERNELS] = {
    [RG_POOL_MAX_FORWARD] = RG_ROW(max_forward),
    [RG_POOL_MAX_WINNERS] = RG_ROW(max_winners),
    [RG_POOL_AVERAGE_FORWARD] = RG_ROW(average_forward),
    [RG_POOL_L2_FORWARD] = RG_ROW(l2_forward),
    [RG_POOL_MAX_GRADIENT] = RG_ROW(max_gradient),
    [RG_POOL_AVERAGE_GRADIENT] = RG_ROW(average_gradient),
    [RG_POOL_L2_GRADIENT] = RG_ROW(l2_gradient),
};
