/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the pooling kernels for a GPU share. */
#ifndef RG_OPS_POOL_PARTS_CUH
#define RG_OPS_POOL_PARTS_CUH

#include "backend/cuda/divide.cuh"
#include "backend/cuda/kernel.cuh"
#include "ops/pool/pool.h"

enum { THREADS = 256 };
enum pooling { MAX, AVERAGE, L2 };

struct forward_args {
    const void *x;
    void *y, *winners; /* either may be NULL */
    rg_pool_shape shape;
};

/* The first value that is larger, or the first NaN, wins. */
template <class REAL>
static __device__ __forceinline__ void compete(REAL &best, int32_t &winner, REAL x, int32_t tap)
{
    if (!(x <= best) && best == best) {
        best = x;
        winner = tap;
    }
}

/* ---- V neighbouring channels: a vector, or one element ---- */

template <rg_dtype T, int V>
static __device__ __forceinline__ void load_channels(const void *data, int64_t i, real<T> x[V])
{
    if constexpr (V == 1)
        x[0] = load<T>(data, i);
    else
        unpack<T>(load_vector(at<T>(data, i)), x);
}

template <rg_dtype T, int V>
static __device__ __forceinline__ void store_channels(void *data, int64_t i, const real<T> x[V],
                                                      bool stream)
{
    if constexpr (V == 1)
        store<T>(data, i, x[0]);
    else
        store_vector(at<T>(data, i), pack<T>(x), stream);
}

/* Winners of V channels as they are stored: bytes come in one load. */
template <int V> struct winner_words {
    uint32_t word[V > 4 ? 2 : 1];
};

template <int V>
static __device__ __forceinline__ winner_words<V> load_words(const void *winners, int64_t i)
{
    const uint8_t *from = (const uint8_t *)winners + i;
    winner_words<V> w;
    if constexpr (V == 8) {
        const uint2 both = *(const uint2 *)from;
        w.word[0] = both.x;
        w.word[1] = both.y;
    } else if constexpr (V == 4) {
        w.word[0] = *(const uint32_t *)from;
    } else if constexpr (V == 2) {
        w.word[0] = *(const uint16_t *)from;
    } else {
        w.word[0] = *from;
    }
    return w;
}

template <int V>
static __device__ __forceinline__ int32_t winner_of(const winner_words<V> &w, int e)
{
    return (int32_t)(w.word[e / 4] >> e % 4 * 8 & 0xff);
}

template <int V>
static __device__ __forceinline__ void load_winners(const void *winners, int64_t i, bool wide,
                                                    int32_t tap[V])
{
    if (wide) {
#pragma unroll
        for (int e = 0; e < V; e++)
            tap[e] = ((const int32_t *)winners)[i + e];
        return;
    }
    const winner_words<V> words = load_words<V>(winners, i);
#pragma unroll
    for (int e = 0; e < V; e++)
        tap[e] = winner_of<V>(words, e);
}

template <int V>
static __device__ __forceinline__ void store_winners(void *winners, int64_t i, bool wide,
                                                     const int32_t tap[V])
{
    if (wide) {
#pragma unroll
        for (int e = 0; e < V; e++)
            ((int32_t *)winners)[i + e] = tap[e];
        return;
    }
    uint8_t *to = (uint8_t *)winners + i;
    uint32_t words[2] = { 0, 0 };
#pragma unroll
    for (int e = 0; e < V; e++)
        words[e / 4] |= (uint32_t)tap[e] << e % 4 * 8;
    if constexpr (V == 8)
        *(uint2 *)to = make_uint2(words[0], words[1]);
    else if constexpr (V == 4)
        *(uint32_t *)to = words[0];
    else if constexpr (V == 2)
        *(uint16_t *)to = (uint16_t)words[0];
    else
        *to = (uint8_t)words[0];
}

#endif
