/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat on the CPU. Short rows are joined, or parted, in the cache, so that memory sees every
 * result once and in whole lines. */
#include "ops/concat/concat.h"
#include "ops/move/moves_cpu.h"
#include "ops/move/segments_cpu.h"

enum { MADE_BYTES = 1 << 14, LINE_BYTES = 64 };

/* The run of a part in every row, in bytes. */
typedef struct run {
    int64_t start, bytes;
} run;

RG_INLINE run run_of(const rg_concat_join_args *k, int32_t part, int64_t element)
{
    return (run){ k->start[part] * element, (k->start[part + 1] - k->start[part]) * element };
}

/* Whether every run is whole lines, as far as lengths tell. */
RG_INLINE bool has_lines(const rg_concat_join_args *k, int64_t element)
{
    int64_t all = 0;
    for (int32_t i = 0; i <= k->count; i++)
        all |= k->start[i] * element;
    return all % LINE_BYTES == 0;
}

/* Rows that are made at once. */
RG_INLINE int64_t rows_of(const rg_concat_join_args *k, int64_t element)
{
    const int64_t bytes = k->start[k->count] * element;
    return bytes > 0 && bytes <= MADE_BYTES ? MADE_BYTES / bytes : 1;
}

RG_OUTLINE void join_rows(const rg_concat_join_args *k, int64_t begin, int64_t end, int64_t element)
{
    char made[MADE_BYTES];
    const int64_t total = k->start[k->count] * element, most = rows_of(k, element);
    const bool direct = !k->stream || has_lines(k, element) || total > MADE_BYTES;
    for (int64_t row = begin, rows; row < end; row += rows) {
        rows = least(most, end - row);
        char *const to = (char *)k->whole + row * total;
        for (int32_t i = 0; i < k->count; i++) {
            const run r = run_of(k, i, element);
            move_rows_of_bytes((direct ? to : made) + r.start, total,
                               (const char *)k->parts[i] + row * r.bytes, r.bytes, rows, r.bytes,
                               direct && k->stream);
        }
        if (!direct)
            move_bytes(to, made, rows * total, false, true);
    }
}

RG_OUTLINE void part_rows(const rg_concat_join_args *k, int64_t begin, int64_t end, int64_t element)
{
    char made[MADE_BYTES];
    const int64_t total = k->start[k->count] * element, most = rows_of(k, element);
    const bool direct = !k->stream || has_lines(k, element) || total > MADE_BYTES;
    for (int64_t row = begin, rows; row < end; row += rows) {
        rows = least(most, end - row);
        const char *const from = (const char *)k->whole + row * total;
        for (int32_t i = 0; i < k->count; i++) {
            const run r = run_of(k, i, element);
            if (k->parts[i] == NULL)
                continue;
            char *const to = (char *)k->parts[i] + row * r.bytes;
            move_rows_of_bytes(direct ? to : made, r.bytes, from + r.start, total, rows, r.bytes,
                               direct && k->stream);
            if (!direct)
                move_bytes(to, made, rows * r.bytes, false, true);
        }
    }
}

RG_INLINE void join(const rg_concat_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    join_rows(k, begin, end, vbytes(T) / VLEN);
}

RG_INLINE void part(const rg_concat_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    part_rows(k, begin, end, vbytes(T) / VLEN);
}

RG_KERNEL(move_units, rg_move_args)
RG_KERNEL(scatter_units, rg_scatter_args)
RG_KERNEL(join, rg_concat_join_args)
RG_KERNEL(part, rg_concat_join_args)

RG_CPU_TABLE(concat, RG_CONCAT_KERNELS) = {
    [RG_CONCAT_MOVE] = RG_ROW(move_units),
    [RG_CONCAT_SCATTER] = RG_ROW(scatter_units),
    [RG_CONCAT_JOIN] = RG_ROW(join),
    [RG_CONCAT_PART] = RG_ROW(part),
};
