/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of groups of 2, 4, 8 or 16 channels with stride 1 on the CPU, forward and backward
 * data, see conv_cpu.h. */
#include "ops/conv/cpu/conv_cpu.h"
#include "backend/cpu/thread_pool.h"
#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/cpu/conv_depthwise_cpu.h"
#include "ops/conv/cpu/conv_permute_cpu.h"

#if RG_HAS_PERMUTE

enum {
    PERMUTE_WIDE = 5,
    PERMUTE_TALL = RG_VECTOR_BYTES == 64 ? RG_CONV_PERMUTE_HEIGHT : RG_CONV_PERMUTE_HEIGHT / 2
};

/* ---- sums ---- */

/* N results by windows of Q columns. With `one`, all lanes pick the same word, which a load
 * broadcasts: permutations would take the ports of multiplications. */
RG_INLINE void permute_tile(const rg_conv_permute *t, const int N, const int Q, const bool one)
{
    vreal sum[PERMUTE_TALL];
#pragma GCC unroll 14
    for (int m = 0; m < N; m++)
        sum[m] = vset(0);
    for (int64_t p = 0; p < t->rows; p++) {
        const real *w = (const real *)t->w + p * t->w_row;
        for (int64_t i = 0; i < t->picks; i++, w += LANES) {
            const real *const x = (const real *)t->x + t->first + p * t->x_row + t->offset[i];
            vreal a[PERMUTE_WIDE];
            vint index;
            memcpy(&index, (const vint *)t->index + i, sizeof index);
#pragma GCC unroll 5
            for (int q = 0; q < Q; q++)
                a[q] = vload_full(w, q * t->w_tap, RG_REAL);
#pragma GCC unroll 18
            for (int j = 0; j < N + Q - 1; j++) {
                if ((j < Q - 1 && j < t->begin) || (j >= N && j >= t->end))
                    continue;
                const vreal v =
                    one ? vset(x[j * LANES]) : vpick(vload_full(x, j * LANES, RG_REAL), index);
#pragma GCC unroll 5
                for (int q = 0; q < Q; q++)
                    if (j - q >= 0 && j - q < N)
                        sum[j - q] = vfma(v, a[q], sum[j - q]);
            }
        }
    }
#pragma GCC unroll 14
    for (int m = 0; m < N; m++)
        vstore_full(t->sums, m * VLEN, RG_REAL, sum[m]);
}

RG_INLINE void permute_results(const rg_conv_permute *t, int64_t count, const int Q, const bool one)
{
    if (count == PERMUTE_TALL)
        permute_tile(t, PERMUTE_TALL, Q, one);
    else if (count == 7)
        permute_tile(t, 7, Q, one);
    else if (count == 4)
        permute_tile(t, 4, Q, one);
    else if (count == 2)
        permute_tile(t, 2, Q, one);
    else
        permute_tile(t, 1, Q, one);
}

RG_OUTLINE void permute_results_3(const rg_conv_permute *t, int64_t count)
{
    if (t->picks_one)
        permute_results(t, count, 3, true);
    else
        permute_results(t, count, 3, false);
}

RG_OUTLINE void permute_results_5(const rg_conv_permute *t, int64_t count)
{
    if (t->picks_one)
        permute_results(t, count, 5, true);
    else
        permute_results(t, count, 5, false);
}

/* ---- rows ---- */

/* All picks of VLEN lanes from `lane` on. */
RG_OUTLINE void find_picks(rg_conv_permute *t, vint index[], int64_t lane, int64_t wide, bool pairs)
{
    t->picks = pairs ? wide / 2 : wide;
    t->index = index;
    t->picks_one = picks_one(wide);
    for (int64_t i = 0; i < t->picks; i++)
        t->offset[i] = find_pick(&index[i], lane, i, wide, t->picks);
}

/* Row r of a block of rows, VLEN lanes from c on. */
RG_INLINE void permute_row(const rg_conv_grouped_args *k, depthwise_row *d, rg_conv_permute *t,
                           int64_t r, int64_t first, int64_t c, const bool pairs, const rg_dtype T)
{
    const permute_axis row = permute_axis_of(&k->conv.shape.row, k->data);
    const permute_axis column = permute_axis_of(&k->conv.shape.column, k->data);
    const int64_t Q = column.window, start = r - row.shift, pixel = pairs ? LANES / 2 : LANES;
    const int64_t p0 = start < 0 ? least(-start, row.window) : 0;
    const int64_t p1 = least(row.window, row.inputs - start);
    const int64_t weights = row.window * Q * t->picks;
    const int64_t tap = k->data ? weights - t->picks : 0, sign = k->data ? -1 : 1;
    t->w_tap = sign * t->picks * LANES;
    t->w_row = Q * t->w_tap;
    t->w = (const real *)k->conv.w + c / LANES * LANES * weights + tap * LANES + c % LANES +
           p0 * t->w_row;
    t->rows = p1 > p0 ? p1 - p0 : 0;
    t->x_row = column.inputs * pixel;
    for (int64_t m = 0, count; m < column.results; m += count) {
        const int64_t left = column.results - m;
        count = left >= PERMUTE_TALL ? PERMUTE_TALL
                : left >= 7          ? 7
                : left >= 4          ? 4
                : left >= 2          ? 2
                                     : 1;
        t->first = ((start + p0 - first) * column.inputs + m - column.shift) * pixel;
        t->begin = column.shift - m;
        t->end = column.inputs + column.shift - m;
        if (pairs)
            rg_bf16_permute(t, Q, count);
        else if (Q == 3)
            permute_results_3(t, count);
        else
            permute_results_5(t, count);
        uint16_t *const to = (uint16_t *)k->conv.to + d->to + m * d->result[2] + c;
        if (!pairs || !end_bf16(d, t->sums, count, c, VLEN, to, d->result[2]))
            grouped_end(d, t->sums, m, count, c, VLEN, T);
    }
}

/* A unit, as that of `grouped`: rows of one image, and LANES channels. */
RG_INLINE void permute_unit(const rg_conv_grouped_args *k, depthwise_row *d,
                            rg_conv_permute picks[], int64_t unit, const bool pairs,
                            const rg_dtype T)
{
    const permute_axis row = permute_axis_of(&k->conv.shape.row, k->data);
    const rg_conv_shape *s = &k->conv.shape;
    const int64_t splits = k->padded_channels / LANES, c = unit % splits * LANES;
    const int64_t begin = unit / splits % k->blocks * k->block, image = unit / splits / k->blocks;
    const int64_t end = least(begin + k->block, row.results);
    const int64_t across = k->data ? s->column.count : s->column.size;
    int64_t first = begin - row.shift, last = end - row.shift + row.window - 1;
    first = first < 0 ? 0 : first;
    last = least(last, row.inputs);
    char *const x = (char *)k->conv.scratch + rg_thread_pool_index() * k->scratch_bytes;
    const int64_t bytes = across * LANES * (int64_t)(pairs ? sizeof(uint16_t) : sizeof(real));
    for (int64_t r = first; r < last; r++)
        permute_load(at(k->conv.from, pixel_offset(d->source, image, r, 0) + c * d->source[3], T),
                     d->source, across, x + (r - first) * bytes, pairs, T);
    for (int64_t lane = 0; lane < LANES; lane += VLEN) {
        rg_conv_permute *const t = &picks[lane / VLEN];
        t->x = x;
        for (int64_t r = begin; r < end; r++) {
            d->to = pixel_offset(d->result, image, r, 0);
            d->z = pixel_offset(k->conv.z_step, image, r, 0);
            permute_row(k, d, t, r, first, c + lane, pairs, T);
        }
    }
}

RG_INLINE void permute_units(const rg_conv_grouped_args *k, int64_t begin, int64_t end,
                             const bool pairs, const rg_dtype T)
{
    depthwise_row d = depthwise_row_of(k, T);
    rg_conv_permute picks[LANES / VLEN];
    vint index[LANES / VLEN][RG_CONV_PERMUTE_PICKS];
    real sums[PERMUTE_TALL * VLEN];
    d.step = 1;
    for (int64_t i = 0; i < LANES / VLEN; i++) {
        find_picks(&picks[i], index[i], i * VLEN, k->conv.shape.in, pairs);
        picks[i].sums = sums;
    }
    for (int64_t unit = begin; unit < end; unit++)
        permute_unit(k, &d, picks, unit, pairs, T);
}

RG_INLINE void permute(const rg_conv_grouped_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    permute_units(k, begin, end, false, T);
}

RG_KERNEL(permute, rg_conv_grouped_args)

#if RG_USES_PAIRS

/* Weights as `transpose` makes them, by pairs of channels that are summed over. */
RG_INLINE void pair_transpose(const rg_conv_transpose_weights_args *k, int64_t begin, int64_t end,
                              const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t wide = s->in, picks = wide / 2, step = s->w[k->data ? 1 : 4];
    const int64_t weights = s->row.window * s->column.window * picks;
    const uint16_t *const w = k->w;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t tap = unit % weights / picks, pick = unit % picks;
        const int64_t from = s->w_first + tap / s->column.window * s->w[2] +
                             tap % s->column.window * s->w[3] + 2 * pick * step;
        uint16_t *const to = (uint16_t *)k->transposed + unit * 2 * LANES;
        for (int64_t i = 0; i < LANES; i++) {
            const int64_t c = unit / weights * LANES + i;
            const int64_t first = from + c / wide * s->w[0] + c % wide * s->w[k->data ? 4 : 1];
            to[2 * i] = w[first];
            to[2 * i + 1] = w[first + step];
        }
    }
    (void)T;
}

RG_INLINE void pair_permute(const rg_conv_grouped_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    permute_units(k, begin, end, true, T);
}

RG_PAIR_KERNEL(pair_transpose, rg_conv_transpose_weights_args)
RG_PAIR_KERNEL(pair_permute, rg_conv_grouped_args)

#endif
#endif

RG_CPU_TABLE(conv_permute, RG_CONV_KERNELS) = {
#if RG_HAS_PERMUTE
    [RG_CONV_PERMUTE] = RG_ROW(permute),
#if RG_USES_PAIRS
    [RG_CONV_PAIR_TRANSPOSE_WEIGHTS] = RG_PAIR_ROW(pair_transpose),
    [RG_CONV_PAIR_PERMUTE] = RG_PAIR_ROW(pair_permute),
#endif
#endif
};
