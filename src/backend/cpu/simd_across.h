/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Vectors across lanes: neighbours, rows that become columns, sums in a fixed order. */
#ifndef RG_CPU_SIMD_ACROSS_H
#define RG_CPU_SIMD_ACROSS_H

#include "backend/cpu/simd_lanes.h"

#if RG_VLEN == 16
#define RG_XOR(k)                                                                                 \
    0 ^ k, 1 ^ k, 2 ^ k, 3 ^ k, 4 ^ k, 5 ^ k, 6 ^ k, 7 ^ k, 8 ^ k, 9 ^ k, 10 ^ k, 11 ^ k, 12 ^ k, \
        13 ^ k, 14 ^ k, 15 ^ k
#elif RG_VLEN == 8
#define RG_XOR(k) 0 ^ k, 1 ^ k, 2 ^ k, 3 ^ k, 4 ^ k, 5 ^ k, 6 ^ k, 7 ^ k
#elif RG_VLEN == 4
#define RG_XOR(k) 0 ^ k, 1 ^ k, 2 ^ k, 3 ^ k
#else
#define RG_XOR(k) 0 ^ k, 1 ^ k
#endif

/* Every second lane of two vectors, from the first (k = 0) or the second on; and lanes of two
 * vectors in turn. */
#if RG_VLEN == 16
#define RG_EVEN(k)                                                                                 \
    k, k + 2, k + 4, k + 6, k + 8, k + 10, k + 12, k + 14, k + 16, k + 18, k + 20, k + 22, k + 24, \
        k + 26, k + 28, k + 30
#define RG_ZIP(k)                                                                                \
    k, k + 16, k + 1, k + 17, k + 2, k + 18, k + 3, k + 19, k + 4, k + 20, k + 5, k + 21, k + 6, \
        k + 22, k + 7, k + 23
#elif RG_VLEN == 8
#define RG_EVEN(k) k, k + 2, k + 4, k + 6, k + 8, k + 10, k + 12, k + 14
#define RG_ZIP(k)  k, k + 8, k + 1, k + 9, k + 2, k + 10, k + 3, k + 11
#elif RG_VLEN == 4
#define RG_EVEN(k) k, k + 2, k + 4, k + 6
#define RG_ZIP(k)  k, k + 4, k + 1, k + 5
#else
#define RG_EVEN(k) k, k + 2
#define RG_ZIP(k)  k, k + 2
#endif

/* VLEN lanes of two consecutive vectors, from lane k on. */
#if RG_VLEN == 16
#define RG_FROM(k)                                                                            \
    k, k + 1, k + 2, k + 3, k + 4, k + 5, k + 6, k + 7, k + 8, k + 9, k + 10, k + 11, k + 12, \
        k + 13, k + 14, k + 15
#elif RG_VLEN == 8
#define RG_FROM(k) k, k + 1, k + 2, k + 3, k + 4, k + 5, k + 6, k + 7
#elif RG_VLEN == 4
#define RG_FROM(k) k, k + 1, k + 2, k + 3
#else
#define RG_FROM(k) k, k + 1
#endif

/* The same of vectors a and b, for a constant k. */
#if defined(__AVX512F__) && RG_REAL_F64 /* gcc permutes, by indices that take registers */
#define RG_LANES_FROM(a, b, k) ((vreal)_mm512_alignr_epi64((__m512i)(b), (__m512i)(a), k))
#elif defined(__AVX512F__)
#define RG_LANES_FROM(a, b, k) ((vreal)_mm512_alignr_epi32((__m512i)(b), (__m512i)(a), k))
#else
#define RG_LANES_FROM(a, b, k) __builtin_shufflevector(a, b, RG_FROM(k))
#endif

/* One and two lanes further than a, and one and two before b, where b follows a. */
RG_INLINE vreal vahead_one(vreal a, vreal b)
{
    return RG_LANES_FROM(a, b, 1);
}

RG_INLINE vreal vahead_two(vreal a, vreal b)
{
    return RG_LANES_FROM(a, b, 2);
}

RG_INLINE vreal vbehind_one(vreal a, vreal b)
{
    return RG_LANES_FROM(a, b, RG_VLEN - 1);
}

RG_INLINE vreal vbehind_two(vreal a, vreal b)
{
    return RG_LANES_FROM(a, b, RG_VLEN - 2);
}

/* Lane l of the result is lane index[l] % VLEN of a. */
RG_INLINE vreal vpick(vreal a, vint index)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_permutexvar_pd((__m512i)index, (__m512d)a);
#elif defined(__AVX512F__)
    return (vreal)_mm512_permutexvar_ps((__m512i)index, (__m512)a);
#elif defined(__AVX2__) && !RG_REAL_F64
    return (vreal)_mm256_permutevar8x32_ps((__m256)a, (__m256i)index);
#else
    vreal picked;
    for (int lane = 0; lane < VLEN; lane++)
        picked[lane] = a[index[lane] % VLEN];
    return picked;
#endif
}

/* vtranspose: rows of a square become its columns. */
#if RG_VLEN == 16 && RG_VECTOR_BYTES == 64
/* Of every four lanes, two of a and two of b alternately; or neighbours of a and b; or quarters. */
#define RG_UNPACK(a, b, k)                                                                      \
    __builtin_shufflevector(a, b, (k), (k) + 16, (k) + 1, (k) + 17, (k) + 4, (k) + 20, (k) + 5, \
                            (k) + 21, (k) + 8, (k) + 24, (k) + 9, (k) + 25, (k) + 12, (k) + 28, \
                            (k) + 13, (k) + 29)
#define RG_UNPACK_TWO(a, b, k)                                                                  \
    __builtin_shufflevector(a, b, (k), (k) + 1, (k) + 16, (k) + 17, (k) + 4, (k) + 5, (k) + 20, \
                            (k) + 21, (k) + 8, (k) + 9, (k) + 24, (k) + 25, (k) + 12, (k) + 13, \
                            (k) + 28, (k) + 29)
#define RG_QUARTERS(a, b, i, j)                                                                   \
    __builtin_shufflevector(a, b, 4 * (i), 4 * (i) + 1, 4 * (i) + 2, 4 * (i) + 3, 4 * (j),        \
                            4 * (j) + 1, 4 * (j) + 2, 4 * (j) + 3, 4 * (i) + 16, 4 * (i) + 17,    \
                            4 * (i) + 18, 4 * (i) + 19, 4 * (j) + 16, 4 * (j) + 17, 4 * (j) + 18, \
                            4 * (j) + 19)

/* First squares of four lanes, which take shuffles within 16 bytes, then whole quarters. */
RG_INLINE void vtranspose(vreal rows[VLEN])
{
    vreal two[VLEN], four[VLEN];
#pragma GCC unroll 8
    for (int i = 0; i < VLEN; i += 2) {
        two[i] = RG_UNPACK(rows[i], rows[i + 1], 0);
        two[i + 1] = RG_UNPACK(rows[i], rows[i + 1], 2);
    }
#pragma GCC unroll 4
    for (int i = 0; i < VLEN; i += 4) {
        four[i] = RG_UNPACK_TWO(two[i], two[i + 2], 0);
        four[i + 1] = RG_UNPACK_TWO(two[i], two[i + 2], 2);
        four[i + 2] = RG_UNPACK_TWO(two[i + 1], two[i + 3], 0);
        four[i + 3] = RG_UNPACK_TWO(two[i + 1], two[i + 3], 2);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const vreal low = RG_QUARTERS(four[i], four[i + 4], 0, 1);
        const vreal high = RG_QUARTERS(four[i], four[i + 4], 2, 3);
        const vreal next_low = RG_QUARTERS(four[i + 8], four[i + 12], 0, 1);
        const vreal next_high = RG_QUARTERS(four[i + 8], four[i + 12], 2, 3);
        rows[i] = RG_QUARTERS(low, next_low, 0, 2);
        rows[i + 4] = RG_QUARTERS(low, next_low, 1, 3);
        rows[i + 8] = RG_QUARTERS(high, next_high, 0, 2);
        rows[i + 12] = RG_QUARTERS(high, next_high, 1, 3);
    }
}
#else
RG_INLINE void vtranspose(vreal rows[VLEN])
{
#pragma GCC unroll 4
    for (int step = 1; step < VLEN; step *= 2) {
        vreal next[VLEN];
#pragma GCC unroll 8
        for (int i = 0; i < VLEN / 2; i++) {
            next[2 * i] = __builtin_shufflevector(rows[i], rows[i + VLEN / 2], RG_ZIP(0));
            next[2 * i + 1] =
                __builtin_shufflevector(rows[i], rows[i + VLEN / 2], RG_ZIP(RG_VLEN / 2));
        }
#pragma GCC unroll 16
        for (int i = 0; i < VLEN; i++)
            rows[i] = next[i];
    }
}
#endif

RG_INLINE real vsum(vreal a)
{
#if RG_VLEN > 8
    a += __builtin_shufflevector(a, a, RG_XOR(8));
#endif
#if RG_VLEN > 4
    a += __builtin_shufflevector(a, a, RG_XOR(4));
#endif
#if RG_VLEN > 2
    a += __builtin_shufflevector(a, a, RG_XOR(2));
#endif
    a += __builtin_shufflevector(a, a, RG_XOR(1));
    return a[0];
}

RG_INLINE real vmax_lane(vreal a)
{
#if RG_VLEN > 8
    a = vmax(a, __builtin_shufflevector(a, a, RG_XOR(8)));
#endif
#if RG_VLEN > 4
    a = vmax(a, __builtin_shufflevector(a, a, RG_XOR(4)));
#endif
#if RG_VLEN > 2
    a = vmax(a, __builtin_shufflevector(a, a, RG_XOR(2)));
#endif
    a = vmax(a, __builtin_shufflevector(a, a, RG_XOR(1)));
    return a[0];
}

#endif
