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

/* Vector b of a block from channel c on. Where there are several they come in pairs, in the order
 * of vload_pair. */
RG_INLINE vreal load_block(const void *data, int64_t offset, int64_t c, int b, int64_t step, int n,
                           const int blocks, const rg_dtype T, const bool dense)
{
    if (blocks == 1)
        return load_channels(data, offset, c, step, n, T, dense);
    const vpair pair = vload_pair(at(data, offset, T), c + b / 2 * 2 * VLEN, T, true);
    return b % 2 == 0 ? pair.a : pair.b;
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

typedef int32_t vword __attribute__((vector_size(4 * VLEN)));

RG_INLINE vint load_winners(const void *winners, int64_t i, int n, const bool wide)
{
    if (n == VLEN && !wide)
        return vload_bytes((const uint8_t *)winners + i);
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
        vstore_bytes((uint8_t *)winners + i, lanes);
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
                         const rg_dtype T, const bool dense, const bool wide, const bool alone)
{
    const rg_pool_shape *k = w->k;
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
                        pairs > 1 ? load_block(w->x, offset, c, b, k->x[3], n, pairs, T, dense)
                                  : load_channels(w->x, offset, c + b * VLEN, k->x[3], n, T, dense),
                        (intr)(p * columns + q));
        }
        if (p + 1 - w->p0 == w->zero_after) {
            for (int b = 0; b < blocks; b++)
                compete(&best[b], &winner[b], vset(0), nobody);
        }
    }
    for (int b = 0; b < blocks && pairs > 1; b += 2)
        vstore_pair(at_out(to.y, w->y, T), c + b * VLEN, T, (vpair){ best[b], best[b + 1] }, true,
                    false);
    for (int b = 0; b < blocks && pairs == 1; b++) {
        if (to.y != NULL)
            store_channels(to.y, w->y, c + b * VLEN, k->y[3], n, T, dense, best[b]);
        if (to.winners != NULL)
            store_winners(to.winners, w->winners + c + b * VLEN, n, wide, winner[b]);
    }
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
                const vreal x = load_block(w->x, offset, c, b, k->x[3], n, blocks, T, dense);
                sum[b] = squares ? vfma(x, x, sum[b]) : sum[b] + x;
            }
        }
    }
    if (blocks > 1) {
        for (int b = 0; b < blocks; b++)
            sum[b] = squares ? vsqrt(sum[b]) : sum[b] * vset(w->scale);
        for (int b = 0; b < blocks; b += 2)
            vstore_pair(at_out(to.y, w->y, T), c + b * VLEN, T, (vpair){ sum[b], sum[b + 1] }, true,
                        false);
        return;
    }
    for (int b = 0; b < blocks; b++)
        store_channels(to.y, w->y, c + b * VLEN, k->y[3], n, T, dense,
                       squares ? vsqrt(sum[b]) : sum[b] * vset(w->scale));
}

typedef enum pooling { MAX, MAX_WIDE, MAX_ALONE, AVERAGE, L2 } pooling; /* alone: no winners */

RG_INLINE void pool_block(const window *w, results to, int64_t c, int n, const int blocks,
                          const rg_dtype T, const bool dense, const pooling kind)
{
    if (kind == MAX || kind == MAX_WIDE || kind == MAX_ALONE)
        max_block(w, to, c, n, blocks, T, dense, kind == MAX_WIDE, kind == MAX_ALONE);
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

/* ---- forward: max of small windows, few channels ---- */

/* Taps of a window, and vectors of a pixel, for which this is made. */
enum { QUICK_TAPS = 16, QUICK_VECTORS = 2 };

RG_INLINE bool is_quick(const rg_pool_shape *k)
{
    return k->dense && !k->wide && k->channels <= QUICK_VECTORS * VLEN &&
           k->row.window * k->column.window <= QUICK_TAPS;
}

/* Where the taps of a window stand, from the first one on. */
typedef struct tap_list {
    int64_t at[QUICK_TAPS];
    int count;
} tap_list;

RG_INLINE tap_list list_taps(const rg_pool_shape *k)
{
    tap_list list = { .count = (int)(k->row.window * k->column.window) };
    for (int t = 0; t < list.count; t++)
        list.at[t] = t / k->column.window * k->row.dilation * k->x[1] +
                     t % k->column.window * k->column.dilation * k->x[2];
    return list;
}

/* A window that lies in the image. */
RG_INLINE void quick_window(const window *w, const tap_list *taps, results to, const rg_dtype T,
                            const bool alone)
{
    for (int64_t c = 0; c < w->k->channels; c += VLEN) {
        const int n = vlanes_left(w->k->channels - c);
        const char *x = at(w->x, w->first + c, T);
        vreal best = vload_few(x, 0, n, T);
        vint winner = { 0 };
        for (int t = 1; t < taps->count; t++)
            compete(&best, &winner, vload_few(x, taps->at[t], n, T), t);
        if (alone || to.y != NULL)
            vstore_few(at_out(to.y, w->y, T), c, n, T, best);
        if (!alone)
            vstore_bytes_few((uint8_t *)to.winners + w->winners + c, n, winner);
    }
}

/* Windows from `begin` on that lie in the image; `w` is that of the first one. Returns where they
 * end. */
RG_INLINE int64_t quick_windows(window w, const tap_list *taps, results to, int64_t begin,
                                const rg_dtype T, const bool alone)
{
    const rg_pool_axis *a = &w.k->column;
    const int64_t reach = (a->window - 1) * a->dilation, stride = a->stride;
    int64_t j = begin, pixel = j * stride - a->before;
    for (; j < a->count && pixel + reach < a->size; j++, pixel += stride) {
        quick_window(&w, taps, to, T, alone);
        w.first += stride * w.k->x[2];
        w.y += w.k->y[2];
        w.winners += w.k->winners[2];
    }
    return j;
}

RG_INLINE void pool_row(const rg_pool_shape *k, const tap_list *taps, const void *x, results to,
                        int64_t unit, const rg_dtype T, const pooling kind)
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
        if ((kind == MAX || kind == MAX_ALONE) && taps->count > 0 && w.p1 - w.p0 == k->row.window &&
            w.q1 - w.q0 == k->column.window)
            j = quick_windows(w, taps, to, j, T, kind == MAX_ALONE) - 1;
        else
            pool_window(&w, to, T, kind);
    }
}

RG_INLINE void pool_units(const rg_pool_shape *k, const void *x, results to, int64_t begin,
                          int64_t end, const rg_dtype T, const pooling kind)
{
    tap_list taps = { .count = 0 };
    if ((kind == MAX || kind == MAX_ALONE) && is_quick(k))
        taps = list_taps(k);
    for (int64_t unit = begin; unit < end; unit++)
        pool_row(k, &taps, x, to, unit, T, kind);
}

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

/* average: 1 / N */
RG_INLINE real share_of(const rg_pool_shape *k, real whole, int64_t counted)
{
    return counted == k->row.window * k->column.window ? whole : 1 / (real)counted;
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
            const real share =
                kind == AVERAGE
                    ? share_of(k, u->share,
                               rg_pool_counted(&k->row, i) * rg_pool_counted(&k->column, j))
                    : 0;
#pragma GCC unroll 4
            for (int b = 0; b < blocks; b++) {
                const int64_t at_c = c + b * VLEN;
                const vreal dy = load_channels(g->dy, from, at_c, k->y[3], n, T, dense);
                if (kind == AVERAGE) {
                    sum[b] = vfma(dy, vset(share), sum[b]);
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

/* Channels of one pixel, from c on. */
RG_INLINE void collect_pixel(const pixel *u, int64_t c, const rg_dtype T, const pooling kind)
{
    const int64_t channels = u->g->shape.channels, whole = u->g->shape.dense ? channels : 0;
    for (; kind == L2 && c + BLOCK * VLEN <= whole; c += BLOCK * VLEN)
        collect_block(u, c, VLEN, BLOCK, T, true, kind);
    for (; kind != MAX_WIDE && c + VLEN <= whole; c += VLEN)
        collect_block(u, c, VLEN, 1, T, true, kind);
    if (c < channels)
        collect_rest(u, c, T, kind);
}

/* Max and average where channels are neighbours: the windows around a pixel are listed once, and
 * all pairs of vectors go over the list. */
typedef struct source {
    const char *dy;
    const uint8_t *winners;
    real share;  /* average: 1 / N */
    uint8_t tap; /* max: the pixel's own */
} source;

/* The most windows of a list; where there are more, each vector looks for them by itself. */
enum { SOURCES = 64 };

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
    row_source rows[SOURCES];
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
    source list[SOURCES];
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

/* As rg_pool_windows, from those of the pixel before and without a division. */
RG_INLINE void next_windows(const rg_pool_axis *a, int64_t q, int64_t *first, int64_t *last)
{
    const int64_t end = q + a->before, begin = end - (a->window - 1) * a->dilation;
    while (*last + 1 < a->count && (*last + 1) * a->stride <= end)
        ++*last;
    while (*first * a->stride < begin)
        ++*first;
}

/* The most windows that contain a pixel, in one direction. */
RG_INLINE int64_t most_windows(const rg_pool_axis *a)
{
    return least((a->window - 1) * a->dilation / a->stride + 1, a->count);
}

/* Whether all windows around any pixel fit into a list. */
RG_INLINE bool fit_lists(const rg_pool_shape *k)
{
    return k->dense && k->channels >= 2 * VLEN && most_windows(&k->row) <= SOURCES &&
           most_windows(&k->column) <= SOURCES / most_windows(&k->row);
}

/* Where a pixel of any row finds at most 2 windows side by side, prepared for many rows. */
typedef struct column_source {
    int64_t dy, winners; /* bytes from the row's beginning to the first window */
    real share[2];       /* average: of windows whose rows count as a whole */
    uint8_t tap[2], count;
} column_source;

/* Columns that are prepared at once. */
enum { STRETCH = 128 };

RG_INLINE void prepare(const rg_pool_shape *k, int64_t begin, int64_t end, column_source list[],
                       const rg_dtype T)
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
        s->count = (uint8_t)(last - first + 1);
        for (int j = 0; j < s->count; j++) {
            s->tap[j] = (uint8_t)(q + a->before - (first + j) * a->stride);
            s->share[j] = share_of(k, whole, k->row.window * rg_pool_counted(a, first + j));
        }
    }
}

/* A pixel with `rows` by `columns` windows. */
RG_INLINE void collect_few(const target *t, const int rows, const int columns,
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
            collect_few(t, rows, 1, list, dx, T, kind);
        else if (list->count == 2)
            collect_few(t, rows, 2, list, dx, T, kind);
        else
            collect_few(t, rows, 0, list, dx, T, kind);
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

/* Pixel 0 of a row of dx, and the windows around the row. */
RG_INLINE pixel row_of(const rg_pool_gradient_args *g, int64_t unit, const rg_dtype T)
{
    const rg_pool_shape *k = &g->shape;
    const int64_t image = unit / k->row.size, r = unit % k->row.size;
    const int64_t row = image * k->x[0] + r * k->x[1];
    pixel u = { .g = g,
                .r = r,
                .dy = image * k->y[0],
                .winners = image * k->winners[0],
                .y = image * k->w[0],
                .dx = row,
                .x = image * k->z[0] + r * k->z[1],
                .share = 1 / (real)(k->row.window * k->column.window),
                .stream = may_stream(k, g->dx, row, k->x[2], T) };
    rg_pool_windows(&k->row, r, &u.i0, &u.i1);
    rg_pool_windows(&k->column, 0, &u.j0, &u.j1);
    return u;
}

/* Lists the windows around row u->r; returns whether all of their rows count. */
RG_INLINE bool list_rows(const pixel *u, target *t, const rg_dtype T, const pooling kind)
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
    const bool few = k->column.dilation == 1 && most_windows(&k->column) <= 2;
    target t = { .k = k, .channels = k->channels / (2 * VLEN) * (2 * VLEN) };
    column_source list[STRETCH];
    for (int64_t q = 0; q < k->column.size; q += STRETCH) {
        const int64_t stop = least(q + STRETCH, k->column.size);
        if (few)
            prepare(k, q, stop, list, T);
        for (int64_t unit = begin; unit < end; unit++) {
            const pixel u = row_of(g, unit, T);
            const bool whole = list_rows(&u, &t, T, kind) || kind == MAX;
            t.dx = at_out(g->dx, u.dx, T);
            t.stream = u.stream;
            t.share = u.share;
            if (few && whole && t.count == 1)
                collect_stretch(&t, 1, list, q, stop, T, kind);
            else if (few && whole && t.count == 2)
                collect_stretch(&t, 2, list, q, stop, T, kind);
            else
                collect_any(&t, q, stop, T, kind);
        }
    }
}

/* Channels from `done` on. */
RG_INLINE void collect_pixels(const rg_pool_gradient_args *g, int64_t begin, int64_t end,
                              int64_t done, const rg_dtype T, const pooling kind)
{
    const rg_pool_shape *k = &g->shape;
    for (int64_t unit = begin; unit < end; unit++) {
        pixel u = row_of(g, unit, T);
        for (u.q = 0; u.q < k->column.size; u.q++, u.dx += k->x[2], u.x += k->z[2]) {
            next_windows(&k->column, u.q, &u.j0, &u.j1);
            collect_pixel(&u, done, T, kind);
        }
    }
}

/* ---- gradient: windows apart from each other, few channels ---- */

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
        value += vload_few(dx, s->c, s->n, T);
    if (u->stream)
        vstream(dx, s->c, T, value);
    else
        vstore_few(dx, s->c, s->n, T, value);
}

/* The pixels of window j, from `begin` to `end`. */
RG_INLINE void put_window(const strip *s, int64_t j, int64_t begin, int64_t end, const rg_dtype T,
                          const pooling kind)
{
    const pixel *u = s->u;
    const rg_pool_shape *k = &u->g->shape;
    const vreal dy =
        vload_few(at(u->g->dy, u->dy + s->i * k->y[1] + j * k->y[2], T), s->c, s->n, T);
    if (kind == AVERAGE) {
        const real share = share_of(k, u->share, s->rows * rg_pool_counted(&k->column, j));
        for (int64_t q = begin; q < end; q++)
            put_pixel(s, q, T, vfma(dy, vset(share), vset(0)));
        return;
    }
    const int64_t winners = u->winners + s->i * k->winners[1] + j * k->winners[2] + s->c;
    const vint won = vload_bytes_few((const uint8_t *)u->g->from + winners, s->n);
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

RG_INLINE void collect_units(const rg_pool_gradient_args *g, int64_t begin, int64_t end,
                             const rg_dtype T, const pooling kind)
{
    const bool lists = (kind == MAX || kind == AVERAGE) && fit_lists(&g->shape);
    const int64_t done = lists ? g->shape.channels / (2 * VLEN) * (2 * VLEN) : 0;
    if (lists)
        collect_lists(g, begin, end, T, kind);
    if (done < g->shape.channels && (kind == MAX || kind == AVERAGE) && are_apart(&g->shape))
        collect_apart(g, begin, end, done, T, kind);
    else if (done < g->shape.channels)
        collect_pixels(g, begin, end, done, T, kind);
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

/* ---- indices: one element after the other, for all dtypes ---- */

RG_INLINE int32_t winner_at(const void *winners, int64_t i, bool wide)
{
    return wide ? ((const int32_t *)winners)[i] : ((const uint8_t *)winners)[i];
}

RG_OUTLINE void index_row(const rg_pool_indices_args *k, int64_t unit)
{
    const rg_pool_shape *s = &k->shape;
    const int64_t image = unit / s->row.count, i = unit % s->row.count;
    const int64_t plane = s->row.size * s->column.size;
    for (int64_t j = 0; j < s->column.count; j++) {
        const int64_t from = image * s->winners[0] + i * s->winners[1] + j * s->winners[2];
        const int64_t to = image * s->y[0] + i * s->y[1] + j * s->y[2];
        for (int64_t c = 0; c < s->channels; c++) {
            const int32_t winner = winner_at(k->winners, from + c, s->wide);
            const int64_t index = rg_pool_index(s, i, j, winner, k->by_columns);
            k->indices[to + c * s->y[3]] =
                index < 0 ? -1 : (image * s->channels + c) * plane + index;
        }
    }
}

RG_OUTLINE void check_row(const rg_pool_taps_args *k, int64_t unit)
{
    const rg_pool_shape *s = &k->shape;
    const int64_t image = unit / s->row.count, i = unit % s->row.count;
    const int64_t plane = s->row.size * s->column.size;
    for (int64_t j = 0; j < s->column.count; j++) {
        const int64_t from = image * s->y[0] + i * s->y[1] + j * s->y[2];
        const int64_t to = image * s->winners[0] + i * s->winners[1] + j * s->winners[2];
        for (int64_t c = 0; c < s->channels; c++) {
            int32_t winner;
            if (!rg_pool_index_winner(s, i, j, k->indices[from + c * s->y[3]],
                                      (image * s->channels + c) * plane, k->by_columns, &winner))
                __atomic_store_n(k->fault, 1, __ATOMIC_RELAXED);
            if (s->wide)
                ((int32_t *)k->winners)[to + c] = winner;
            else
                ((uint8_t *)k->winners)[to + c] = (uint8_t)winner;
        }
    }
}

RG_INLINE void max_indices(const rg_pool_indices_args *k, int64_t begin, int64_t end,
                           const rg_dtype T)
{
    (void)T;
    for (int64_t unit = begin; unit < end; unit++)
        index_row(k, unit);
}

RG_INLINE void max_taps(const rg_pool_taps_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    (void)T;
    for (int64_t unit = begin; unit < end; unit++)
        check_row(k, unit);
}

/* ---- entry points and table ---- */

RG_KERNEL(max_forward, rg_pool_args)
RG_KERNEL(max_winners, rg_pool_winners_args)
RG_KERNEL(average_forward, rg_pool_args)
RG_KERNEL(l2_forward, rg_pool_args)
RG_KERNEL(max_gradient, rg_pool_gradient_args)
RG_KERNEL(average_gradient, rg_pool_gradient_args)
RG_KERNEL(l2_gradient, rg_pool_gradient_args)
RG_KERNEL(max_indices, rg_pool_indices_args)
RG_KERNEL(max_taps, rg_pool_taps_args)

const rg_cpu_row RG_TABLE(pool)[RG_POOL_KERNELS] = {
    [RG_POOL_MAX_FORWARD] = RG_ROW(max_forward),
    [RG_POOL_MAX_WINNERS] = RG_ROW(max_winners),
    [RG_POOL_AVERAGE_FORWARD] = RG_ROW(average_forward),
    [RG_POOL_L2_FORWARD] = RG_ROW(l2_forward),
    [RG_POOL_MAX_GRADIENT] = RG_ROW(max_gradient),
    [RG_POOL_AVERAGE_GRADIENT] = RG_ROW(average_gradient),
    [RG_POOL_L2_GRADIENT] = RG_ROW(l2_gradient),
    [RG_POOL_MAX_INDICES] = RG_ROW(max_indices),
    [RG_POOL_MAX_TAPS] = RG_ROW(max_taps),
};
