/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which lanes pick which channels, and how these get into scratch, for conv_cpu.h. */
#ifndef RG_OPS_CONV_PERMUTE_CPU_H
#define RG_OPS_CONV_PERMUTE_CPU_H

#include "ops/conv/cpu/conv_cpu.h"
#include "backend/cpu/kernel.h"

/* Where an instruction picks any lanes; f64 has `grouped`. */
#if defined(__AVX2__) && !RG_REAL_F64
#define RG_HAS_PERMUTE 1
#else
#define RG_HAS_PERMUTE 0
#endif

#if RG_HAS_PERMUTE

enum { LANES = RG_CONV_GROUPED_BLOCK };

/* One axis with stride 1: result r takes inputs r - shift + t of taps t, in the order of inputs. */
typedef struct permute_axis {
    int64_t shift, inputs, results, window;
} permute_axis;

RG_INLINE permute_axis permute_axis_of(const rg_conv_axis *a, bool data)
{
    return (permute_axis){ .shift = data ? a->window - 1 - a->before : a->before,
                           .inputs = data ? a->count : a->size,
                           .results = data ? a->size : a->count,
                           .window = a->window };
}

/* Whether all lanes of a vector pick the same word: groups are as wide as it, or wider. */
RG_INLINE bool picks_one(int64_t wide)
{
    return wide >= VLEN;
}

/* Pick i of VLEN lanes from `lane` on of a block whose groups have `wide` channels and `each`
 * words; both are powers of two. Returns the offset of the vector that it is taken from, or, where
 * all lanes pick the same word, of that word, without an index. */
RG_INLINE int64_t find_pick(vint *index, int64_t lane, int64_t i, int64_t wide, int64_t each)
{
    const int shift = __builtin_ctzll((uint64_t)wide), word_shift = __builtin_ctzll((uint64_t)each);
    const int64_t word = (lane >> shift << word_shift) + i;
    if (picks_one(wide))
        return word;
    for (int64_t k = 0; k < VLEN; k++)
        (*index)[k] = (intr)((((lane + k) >> shift << word_shift) + i) % VLEN);
    return word / VLEN * VLEN;
}

/* `count` pixels of LANES channels, dense: as real, or with `pairs` their bits. */
RG_INLINE void permute_load(const char *from, const int64_t step[4], int64_t count, void *to,
                            const bool pairs, const rg_dtype T)
{
    for (int64_t j = 0; j < count; j++) {
        const char *const pixel = at(from, j * step[2], T);
        uint16_t *const bits = (uint16_t *)to + j * LANES;
        __builtin_prefetch(at(pixel, LANES, T), 0, 2); /* what the next lanes will want */
        if (pairs && step[3] == 1)
            memcpy(bits, pixel, LANES * sizeof *bits);
        for (int64_t c = 0; pairs && step[3] != 1 && c < LANES; c++)
            bits[c] = ((const uint16_t *)(const void *)pixel)[c * step[3]];
        for (int64_t c = 0; !pairs && c < LANES; c += VLEN)
            vstore_full(to, j * LANES + c, RG_REAL,
                        step[3] == 1 ? vload_full(pixel, c, T)
                                     : vgather(at(pixel, c * step[3], T), 0, step[3], VLEN, T));
    }
}

#endif
#endif
