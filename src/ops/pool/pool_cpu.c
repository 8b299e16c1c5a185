/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling on the CPU. A unit is a row of the result; the rows of the other side that belong to it
 * stay in the cache from one unit to the next. Pixels are taken one by one, their channels in
 * blocks of 4 vectors, then vector by vector: windows and taps are the same for all of them.
 *
 * Forward goes over the taps of a window, the gradient over the windows around a pixel, both in
 * row-major order; each result is written once. */
#include "ops/pool/pool_apart_cpu.h"
#include "ops/pool/pool_forward_cpu.h"
#include "ops/pool/pool_lists_cpu.h"

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

/* ---- gradient ---- */

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

RG_CPU_TABLE(pool, RG_POOL_KERNELS) = {
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
