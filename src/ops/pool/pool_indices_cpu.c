/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Indices of the winners of max pooling on the CPU, made and read: one element after the other, for
 * all dtypes. */
#include "backend/cpu/kernel.h"
#include "ops/pool/pool.h"

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

RG_KERNEL(max_indices, rg_pool_indices_args)
RG_KERNEL(max_taps, rg_pool_taps_args)

RG_CPU_TABLE(pool_indices, RG_POOL_KERNELS) = {
    [RG_POOL_MAX_INDICES] = RG_ROW(max_indices),
    [RG_POOL_MAX_TAPS] = RG_ROW(max_taps),
};
