/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums of squares on the CPU. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/long_sum_cpu.h"
#include "ops/grad_norm/grad_norm.h"

RG_FORMULA vreal square(const void *k, vreal sum, vreal a, vreal b)
{
    (void)k;
    return vfma(a, b, sum);
}

/* `count` neighbours, at most RG_GRAD_NORM_PIECE, in runs of which each adds 128 times to a lane.
 */
RG_INLINE double sum_piece(const char *from, int64_t count, const rg_dtype T)
{
    enum { RUN = 128 * 4 * VLEN };
    double sum = 0;
    for (int64_t i = 0; i < count; i += RUN) {
        const char *run = at(from, i, T);
        sum += (double)lanes_sum(fold(square, NULL, 0, run, run, least(RUN, count - i), T));
    }
    return sum;
}

RG_INLINE void grad_norm_flat(const rg_grad_norm_flat_args *k, int64_t begin, int64_t end,
                              const rg_dtype T)
{
    int r = 0;
    for (int64_t unit = begin; unit < end; unit++) {
        while (unit >= k->first[r + 1])
            r++;
        const int64_t done = (unit - k->first[r]) * RG_GRAD_NORM_PIECE;
        const char *from = at(k->gradient[r], done, T);
        const int64_t count = least(RG_GRAD_NORM_PIECE, k->count[r] - done);
        k->partial[unit] = sum_piece(from, count, T);
    }
}

/* ---- any strides: elements are gathered first ---- */

/* Elements i to i + count - 1 of the tensor. */
RG_OUTLINE void gather_elements(const rg_grad_norm_strided_args *k, int64_t i, int64_t count,
                                size_t size, char *to)
{
    while (count > 0) {
        const int64_t row = i / k->length, column = i - row * k->length;
        const int64_t run = least(count, k->length - column);
        int64_t offset;
        rg_walk_offsets(&k->walk, 1, row, &offset);
        const char *from = (const char *)k->gradient + (offset + column * k->step) * (int64_t)size;
        for (int64_t j = 0; j < run; j++)
            memcpy(to + j * (int64_t)size, from + j * k->step * (int64_t)size, size);
        to += run * (int64_t)size;
        i += run;
        count -= run;
    }
}

RG_INLINE void grad_norm_strided(const rg_grad_norm_strided_args *k, int64_t begin, int64_t end,
                                 const rg_dtype T)
{
    real buffer[RG_GRAD_NORM_PIECE]; /* of T */
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t done = unit * RG_GRAD_NORM_PIECE;
        const int64_t count = least(RG_GRAD_NORM_PIECE, k->count - done);
        gather_elements(k, done, count, (size_t)(vbytes(T) / VLEN), (char *)buffer);
        k->partial[unit] = sum_piece((const char *)buffer, count, T);
    }
}

RG_INLINE void grad_norm_total(const rg_grad_norm_total_args *k, int64_t begin, int64_t end,
                               const rg_dtype T)
{
    (void)T;
    for (int64_t r = begin; r < end; r++) {
        piece_sum sum = { 0 };
        for (int64_t i = k->first[r]; i < k->first[r + 1]; i++)
            piece_sum_add(&sum, k->partial[i]);
        *(real *)k->squares[r] = (real)(piece_sum_end(&sum) * k->factor);
    }
}

/* ---- entry points and table ---- */

RG_KERNEL(grad_norm_flat, rg_grad_norm_flat_args)
RG_KERNEL(grad_norm_strided, rg_grad_norm_strided_args)
RG_KERNEL(grad_norm_total, rg_grad_norm_total_args)

RG_CPU_TABLE(grad_norm, RG_GRAD_NORM_KERNELS) = {
    [RG_GRAD_NORM_FLAT] = RG_ROW(grad_norm_flat),
    [RG_GRAD_NORM_STRIDED] = RG_ROW(grad_norm_strided),
    [RG_GRAD_NORM_TOTAL] = RG_ROW(grad_norm_total),
};
