/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dropout on a GPU. A thread has the bits of whole Philox blocks, drawn or read, and selects. */
#include "backend/cuda/kernel.cuh"
#include "ops/dropout/dropout.h"

enum { THREADS = 256 };

/* Elements of a thread: whole vectors, and the one block that decides on them. */
enum { EACH = RG_DROPOUT_BLOCK };

/* ---- bits ---- */

/* The bits of the 8 elements of the mask that `first` is one of. */
static __device__ __forceinline__ uint32_t drawn_bits(const rg_dropout_args &k, uint64_t step,
                                                      int64_t first)
{
    return rg_dropout_bits(k.seed, step, (uint64_t)first / RG_DROPOUT_BLOCK, k.limit);
}

static __device__ __forceinline__ bool drawn_bit(const rg_dropout_args &k, uint64_t step,
                                                 int64_t bit)
{
    return drawn_bits(k, step, bit) >> bit % RG_DROPOUT_BLOCK & 1;
}

static __device__ __forceinline__ uint32_t read_byte(const rg_dropout_args &k, int64_t byte)
{
    return ((const uint8_t *)k.mask)[byte];
}

/* Bits from `first` on: COUNT, at most 8, of which none is behind the last one of the mask. */
template <int COUNT>
static __device__ __forceinline__ uint32_t read_bits(const rg_dropout_args &k, int64_t first)
{
    const int shift = (int)(first % 8);
    uint32_t bits = read_byte(k, first / 8);
    if (shift + COUNT > 8)
        bits |= read_byte(k, first / 8 + 1) << 8;
    return bits >> shift;
}

/* Writes the bits of EACH elements, a byte; bits behind the last one are 0. */
static __device__ __forceinline__ void write_bits(const rg_dropout_args &k, uint32_t bits,
                                                  int64_t first)
{
    const int64_t left = k.count - first;
    if (left < 8)
        bits &= left > 0 ? (1u << left) - 1 : 0;
    if (left > 0)
        ((uint8_t *)k.mask)[first / 8] = (uint8_t)bits;
}

/* ---- selecting ---- */

/* EACH elements from an aligned place on. */
template <rg_dtype T>
static __device__ __forceinline__ void select_each(const rg_dropout_args &k, const char *x, char *y,
                                                   uint32_t bits)
{
    enum { V = VLEN<T> };
    const real<T> scale = (real<T>)k.scale;
#pragma unroll
    for (int v = 0; v < EACH; v += V) {
        real<T> value[V], old[V] = {};
        unpack<T>(load_vector(at<T>(x, v)), value);
        if (k.add)
            unpack<T>(load_vector(at<T>(y, v)), old);
#pragma unroll
        for (int e = 0; e < V; e++) {
            const real<T> kept = bits >> (v + e) & 1 ? value[e] * scale : 0;
            value[e] = k.add ? old[e] + kept : kept;
        }
        store_vector(at<T>(y, v), pack<T>(value), k.stream);
    }
}

template <rg_dtype T>
static __device__ __forceinline__ void select_element(const rg_dropout_args &k, int64_t x,
                                                      int64_t y, bool kept)
{
    const real<T> value = kept ? load<T>(k.x, x) * (real<T>)k.scale : 0;
    store<T>(k.y, y, k.add ? load<T>(k.y, y) + value : value);
}

/* Contiguous tensors, nothing is broadcast; `wide`: they are aligned. */
template <rg_dtype T, bool DRAWS>
static __global__ void __launch_bounds__(THREADS)
    select_flat(const __grid_constant__ rg_dropout_args k, bool wide)
{
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    uint32_t bits = 0;
    if (first < k.count)
        bits = DRAWS ? drawn_bits(k, rg_dropout_step(&k), first) : read_bits<EACH>(k, first);
    if (DRAWS && k.keeps_mask)
        write_bits(k, bits, first);
    if (wide && first + EACH <= k.count) {
        select_each<T>(k, at<T>(k.x, first), at<T>(k.y, first), bits);
        return;
    }
    for (int64_t i = first; i < k.count && i < first + EACH; i++)
        select_element<T>(k, i, i, bits >> (i - first) & 1);
}

/* The bits of EACH elements of a row: one for each of them, or one for all. */
template <bool DRAWS>
static __device__ __forceinline__ uint32_t row_bits(const rg_dropout_args &k, int64_t bit,
                                                    int64_t j)
{
    if (k.sweep.step[2] != 0)
        return DRAWS ? drawn_bits(k, rg_dropout_step(&k), bit + j) : read_bits<EACH>(k, bit + j);
    const bool kept = DRAWS ? drawn_bit(k, rg_dropout_step(&k), bit) : read_bits<1>(k, bit) & 1;
    return kept ? ~0u : 0;
}

/* Rows of whole, aligned EACHes. */
template <rg_dtype T, bool DRAWS>
static __global__ void __launch_bounds__(THREADS)
    select_rows(const __grid_constant__ rg_dropout_args k, uint32_t each)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t row = i <= UINT32_MAX ? (uint32_t)i / each : i / each;
    if (row >= k.sweep.outer.count)
        return;
    const int64_t j = (i - row * each) * EACH;
    const int64_t x = walk_offset(k.sweep.outer, 0, row) + j;
    const int64_t y = walk_offset(k.sweep.outer, 1, row) + j;
    const uint32_t bits = row_bits<DRAWS>(k, walk_offset(k.sweep.outer, 2, row), j);
    select_each<T>(k, at<T>(k.x, x), at<T>(k.y, y), bits);
}

/* Any tensors. */
template <rg_dtype T, bool DRAWS>
static __global__ void __launch_bounds__(THREADS)
    select_elements(const __grid_constant__ rg_dropout_args k)
{
    const rg_sweep &s = k.sweep;
    const int64_t count = s.outer.count * s.length, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row = count <= INT32_MAX ? (uint32_t)i / (uint32_t)s.length : i / s.length;
        const int64_t j = i - row * s.length;
        const int64_t bit = walk_offset(s.outer, 2, row) + j * s.step[2];
        const bool kept = DRAWS ? drawn_bit(k, rg_dropout_step(&k), bit) : read_bits<1>(k, bit) & 1;
        select_element<T>(k, walk_offset(s.outer, 0, row) + j * s.step[0],
                          walk_offset(s.outer, 1, row) + j * s.step[1], kept);
    }
}

/* ---- launches ---- */

enum { MOST_BLOCKS = 1 << 24 };

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Whether rows begin with whole blocks of random numbers, or need but one bit each. */
static bool draws_blocks(const rg_sweep *sweep)
{
    bool whole = true;
    for (int32_t d = 0; d < sweep->outer.rank; d++)
        whole &= sweep->outer.strides[2][d] % RG_DROPOUT_BLOCK == 0;
    return whole || sweep->step[2] == 0;
}

template <rg_dtype T, bool DRAWS>
static void select_any(const rg_dropout_args &k, const rg_cuda_place *place)
{
    const rg_walk *outer = &k.sweep.outer;
    const int64_t length = k.sweep.length, count = outer->count * length;
    const bool wide = is_aligned<T>(k.x, outer, 0) && is_aligned<T>(k.y, outer, 1);
    const int64_t each = length / EACH; /* of a row */
    if (k.dense && outer->count == 1 && length == k.count)
        launch(select_flat<T, DRAWS>, ceil_div(count, THREADS * EACH), THREADS, 0, place, k, wide);
    else if (k.dense && wide && length % EACH == 0 && each <= INT32_MAX &&
             (!DRAWS || draws_blocks(&k.sweep)))
        launch(select_rows<T, DRAWS>, ceil_div(outer->count * each, THREADS), THREADS, 0, place, k,
               (uint32_t)each);
    else
        launch(select_elements<T, DRAWS>, at_most(ceil_div(count, THREADS), MOST_BLOCKS), THREADS,
               0, place, k);
}

template <rg_dtype T> static void dropout_forward(const void *args, const rg_cuda_place *place)
{
    select_any<T, true>(*(const rg_dropout_args *)args, place);
}

/* A thread draws a byte. */
static __global__ void __launch_bounds__(THREADS)
    draw_mask(const __grid_constant__ rg_dropout_args k)
{
    const int64_t bytes = (k.count + 7) / 8, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < bytes; i += step) {
        const uint32_t bits = drawn_bits(k, rg_dropout_step(&k), 8 * i);
        const int64_t left = k.count - 8 * i;
        ((uint8_t *)k.mask)[i] = (uint8_t)(left < 8 ? bits & ((1u << left) - 1) : bits);
    }
}

template <rg_dtype T> static void dropout_mask(const void *args, const rg_cuda_place *place)
{
    const rg_dropout_args &k = *(const rg_dropout_args *)args;
    const int64_t blocks = ceil_div(ceil_div(k.count, 8), THREADS);
    launch(draw_mask, at_most(blocks, MOST_BLOCKS), THREADS, 0, place, k);
}

template <rg_dtype T> static void dropout_apply(const void *args, const rg_cuda_place *place)
{
    select_any<T, false>(*(const rg_dropout_args *)args, place);
}

/* ---- entry points and table, in the order of the kernels' ids ---- */

RG_CUDA_TABLE(dropout, RG_DROPOUT_KERNELS) = {
    RG_CUDA_ROW(dropout_forward), /* RG_DROPOUT_FORWARD */
    RG_CUDA_ROW(dropout_mask),    /* RG_DROPOUT_MASK */
    RG_CUDA_ROW(dropout_apply),   /* RG_DROPOUT_APPLY */
};
