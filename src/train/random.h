/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random numbers by counter: number i of a stream follows from its key alone, so that any of them
 * can be computed at any time, in any order, on any thread. */
#ifndef RG_TRAIN_RANDOM_H
#define RG_TRAIN_RANDOM_H

#include "core/status.h"

/* The finish of SplitMix64: each bit of the result depends on all bits of `x`. */
RG_INLINE uint64_t rg_random_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The key of a stream: a key of something larger (a seed, say) and the number of the part. */
RG_INLINE uint64_t rg_random_key(uint64_t of, uint64_t part)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    return rg_random_mix(rg_random_mix(of + golden) + (part + 1) * golden);
}

RG_INLINE uint64_t rg_random(uint64_t key, uint64_t i)
{
    return rg_random_mix(key + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* 0 to bound - 1, for a bound of at least 1: the upper half of a product of 128 bits. */
RG_INLINE int64_t rg_random_below(uint64_t key, uint64_t i, int64_t bound)
{
    return (int64_t)(uint64_t)((unsigned __int128)rg_random(key, i) * (uint64_t)bound >> 64);
}

/* In [0, 1), a multiple of 2^-53. */
RG_INLINE double rg_random_unit(uint64_t key, uint64_t i)
{
    return (double)(rg_random(key, i) >> 11) * 0x1p-53;
}

/* The numbers 0 to count - 1 in random order, by Fisher and Yates. */
RG_INLINE void rg_random_order(uint64_t key, int64_t *order, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = rg_random_below(key, (uint64_t)i, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

#endif
