/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Segments on the CPU: elements that are contiguous, or equally far apart, in both of the tensors
 * that they are copied between. */
#ifndef RG_OPS_MOVE_SEGMENTS_CPU_H
#define RG_OPS_MOVE_SEGMENTS_CPU_H

#include "backend/cpu/kernel.h"

/* ---- contiguous segments, as bytes ---- */

RG_INLINE vreal load_bytes(const char *from)
{
    vreal bytes;
    memcpy(&bytes, from, sizeof bytes);
    return bytes;
}

/* Less than a vector. Elements have 2 bytes at least. */
RG_INLINE void move_tail(char *to, const char *from, int64_t bytes, const bool zero)
{
    const uint64_t nothing = 0;
    int64_t i = 0;
    for (; i + 8 <= bytes; i += 8)
        memcpy(to + i, zero ? (const char *)&nothing : from + i, 8);
    for (; i < bytes; i += 2)
        memcpy(to + i, zero ? (const char *)&nothing : from + i, 2);
}

/* `bytes` from `from`, or zeros. Short segments use streaming stores only for whole cache lines: a
 * line that is written half in this way and half in the other is slow. */
RG_INLINE void move_bytes(char *to, const char *from, int64_t bytes, const bool zero, bool stream)
{
    enum { VECTOR_BYTES = RG_VECTOR_BYTES, LINE_BYTES = 64, MIN_STREAM_BYTES = 1024 };
    const bool whole_lines = (uintptr_t)to % LINE_BYTES == 0 && bytes % LINE_BYTES == 0;
    int64_t i = 0;
    if (stream && (whole_lines || bytes >= MIN_STREAM_BYTES)) {
        i = (int64_t)(-(uintptr_t)to & (VECTOR_BYTES - 1));
        move_tail(to, from, i, zero);
        for (; i + VECTOR_BYTES <= bytes; i += VECTOR_BYTES)
            vstream(to + i, 0, RG_REAL, zero ? vset(0) : load_bytes(from + i));
    }
    for (; i + VECTOR_BYTES <= bytes; i += VECTOR_BYTES) {
        const vreal value = zero ? vset(0) : load_bytes(from + i);
        memcpy(to + i, &value, sizeof value);
    }
    move_tail(to + i, zero ? NULL : from + i, bytes - i, zero);
}

/* Between `part` and twice as many bytes, by two copies that may overlap. */
#define RG_MOVE_ENDS(to, from, bytes, part)               \
    do {                                                  \
        char ends[2][part];                               \
        memcpy(ends[0], from, part);                      \
        memcpy(ends[1], (from) + (bytes) - (part), part); \
        memcpy(to, ends[0], part);                        \
        memcpy((to) + (bytes) - (part), ends[1], part);   \
    } while (0)

/* A row of `bytes`, at least a vector: the last vector overlaps the one before. */
RG_INLINE void move_row(char *to, const char *from, int64_t bytes)
{
    enum { VECTOR_BYTES = RG_VECTOR_BYTES };
    const vreal last = load_bytes(from + bytes - VECTOR_BYTES);
    for (int64_t i = 0; i + VECTOR_BYTES < bytes; i += VECTOR_BYTES) {
        const vreal value = load_bytes(from + i);
        memcpy(to + i, &value, sizeof value);
    }
    memcpy(to + bytes - VECTOR_BYTES, &last, sizeof last);
}

/* `rows` contiguous rows of `bytes` each, some bytes apart. Which copy suits them is found out once
 * for all. */
RG_INLINE void move_rows_of_bytes(char *to, int64_t to_step, const char *from, int64_t from_step,
                                  int64_t rows, int64_t bytes, bool stream)
{
    enum { VECTOR_BYTES = RG_VECTOR_BYTES, LINE_BYTES = 64 };
    const bool lines =
        (uintptr_t)to % LINE_BYTES == 0 && to_step % LINE_BYTES == 0 && bytes % LINE_BYTES == 0;
    int64_t row = 0;
    for (; stream && lines && row < rows; row++, to += to_step, from += from_step)
        for (int64_t i = 0; i < bytes; i += VECTOR_BYTES)
            vstream(to + i, 0, RG_REAL, load_bytes(from + i));
    for (; bytes >= VECTOR_BYTES && row < rows; row++, to += to_step, from += from_step)
        move_row(to, from, bytes);
    for (; bytes >= 32 && row < rows; row++, to += to_step, from += from_step)
        RG_MOVE_ENDS(to, from, bytes, 32);
    for (; bytes >= 16 && row < rows; row++, to += to_step, from += from_step)
        RG_MOVE_ENDS(to, from, bytes, 16);
    for (; bytes >= 8 && row < rows; row++, to += to_step, from += from_step)
        RG_MOVE_ENDS(to, from, bytes, 8);
    for (; row < rows; row++, to += to_step, from += from_step)
        move_tail(to, from, bytes, false);
}

/* ---- segments of elements ---- */

RG_FORMULA vreal keep(const void *k, vreal a, vreal unused)
{
    (void)k;
    (void)unused;
    return a;
}

/* `count` elements, some elements apart. */
RG_INLINE void move_segment(char *to, int64_t to_step, const char *from, int64_t from_step,
                            int64_t count, const rg_dtype T, bool add, bool stream)
{
    const int64_t element = vbytes(T) / VLEN;
    const bool dense = (to_step == 1 && from_step == 1) || count == 1;
    if (dense && add) {
        sweep(keep, NULL, (sweep_data){ from, from, to, .add = true }, count, T, T);
    } else if (dense) {
        move_bytes(to, from, count * element, false, stream);
    } else if (add) {
        for (int64_t i = 0; i < count; i++)
            store_one(to, i * to_step, T,
                      load_one(from, i * from_step, T) + load_one(to, i * to_step, T));
    } else {
        for (int64_t i = 0; i < count; i++)
            memcpy(at_out(to, i * to_step, T), at(from, i * from_step, T), (size_t)element);
    }
}

RG_INLINE void zero_segment(char *to, int64_t step, int64_t count, const rg_dtype T, bool stream)
{
    const int64_t element = vbytes(T) / VLEN;
    if (step == 1 || count == 1) {
        move_bytes(to, NULL, count * element, true, stream);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        memset(at_out(to, i * step, T), 0, (size_t)element);
}

#endif
