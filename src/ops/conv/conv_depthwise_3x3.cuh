/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution on a GPU with windows of 3 by 3, all steps 1, of which there are most. A
 * thread has V neighbouring channels of some neighbouring columns and goes down rows: each pixel is
 * loaded some rows ahead, converted once, and used for all results that see it. Bits do not depend
 * on V, which is 1 where memory does not lie in vectors. */
#ifndef RG_OPS_CONV_DEPTHWISE_3X3_CUH
#define RG_OPS_CONV_DEPTHWISE_3X3_CUH

#include "ops/conv/conv_depthwise.cuh"

/* Columns of a thread: 16-bit channels take half the registers on their way. */
template <rg_dtype T> constexpr int COLUMNS_3X3 = T == RG_F16 || T == RG_BF16 ? 4 : 2;

/* ---- V channels as they lie in memory ---- */

template <rg_dtype T, int V> struct raw_channels {
    typedef uint2 type; /* 4 of 16 bits */
};
template <rg_dtype T> struct raw_channels<T, 1> {
    typedef element<T> type;
};
template <> struct raw_channels<RG_F32, 4> {
    typedef uint4 type;
};
template <> struct raw_channels<RG_F64, 2> {
    typedef uint4 type;
};
template <rg_dtype T, int V> using raw = typename raw_channels<T, V>::type;

template <rg_dtype T, int V>
static __device__ __forceinline__ raw<T, V> load_raw(const element<T> *from, bool inside)
{
    raw<T, V> x = {};
    if (inside)
        x = *(const raw<T, V> *)from;
    return x;
}

template <rg_dtype T, int V>
static __device__ __forceinline__ void unpack_raw(const raw<T, V> &r, real<T> x[V])
{
    if constexpr (V == 1) {
        x[0] = to_real<T>(r);
    } else if constexpr (sizeof(raw<T, V>) == sizeof(uint4)) {
        unpack<T>(r, x);
    } else {
        const uint32_t words[2] = { r.x, r.y };
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] = to_real<T>((uint16_t)(words[e / 2] >> e % 2 * 16));
    }
}

/* A ring buffer of a thread in shared memory: AHEAD rows of COUNT vectors are prefetched. The pitch
 * avoids bank conflicts. Single elements go through registers. */
enum { STAGES_3X3 = 3 };

template <rg_dtype T, int V, int COUNT> struct rows_ahead {
    enum { AHEAD = V > 1 ? STAGES_3X3 - 1 : 1, PITCH = STAGES_3X3 * COUNT | 1 };
    raw<T, V> *own;
    raw<T, V> next[V > 1 ? 1 : COUNT];

    static constexpr size_t bytes(size_t threads)
    {
        return V > 1 ? PITCH * threads * sizeof(raw<T, V>) : 0;
    }

    __device__ __forceinline__ rows_ahead(void *shared)
        : own((raw<T, V> *)shared + threadIdx.x * PITCH)
    {
    }

    /* Number q of a row: BYTES, or 0 where it is not inside, and then nothing is read. */
    enum { BYTES = sizeof(raw<T, V>) };
    __device__ __forceinline__ void load(int stage, int q, const element<T> *from, int bytes)
    {
        if constexpr (V == 1)
            next[q] = load_raw<T, V>(from, bytes != 0);
        else
            copy_async<BYTES, true>(own + stage * COUNT + q, from, bytes);
    }

    __device__ __forceinline__ void end_row()
    {
        if constexpr (V > 1)
            end_copies();
    }

    /* The oldest row is here. */
    __device__ __forceinline__ void await()
    {
        if constexpr (V > 1)
            await_steps<AHEAD - 1>();
    }

    __device__ __forceinline__ void take(int stage, int q, real<T> x[V]) const
    {
        if constexpr (V == 1)
            unpack_raw<T, V>(next[q], x);
        else
            unpack_raw<T, V>(own[stage * COUNT + q], x);
    }

    /* Whatever is on its way is not wanted. */
    __device__ __forceinline__ void drop()
    {
        if constexpr (V > 1)
            await_steps<0>();
    }
};

/* A number that the compiler knows, for loops whose arrays stay in registers. */
template <int N> struct number {
    static constexpr int value = N;
};

/* Sums that are made at once turn in a circle: the oldest is number `phase`. */
static __device__ __forceinline__ constexpr int rotated(int phase, int n)
{
    return (phase + n) % 3;
}

/* ---- host side ---- */

/* Lets a kernel have more shared memory than it can without asking; false where the device has not
 * so much. */
static inline bool allow_shared(const void *kernel, size_t bytes)
{
    const bool allowed = bytes <= 48 << 10 ||
                         cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)bytes) == cudaSuccess;
    (void)cudaGetLastError();
    return allowed;
}

#endif
