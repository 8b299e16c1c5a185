/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dropout on a GPU. A thread has the bits of whole Philox blocks, drawn or read, and selects. */
#include "backend/cuda/divide.cuh"
#include "ops/dropout/dropout.h"

enum { THREADS = 256 };

/* Elements of a thread: whole vectors, adjacent to those of neighbours, within one random block.
 */
template <rg_dtype T> constexpr int EACH = VLEN<T> < 4 ? 4 : VLEN<T>;

/* ---- bits ---- */

/* The keys of all rounds, which are the same for all threads. */
struct round_keys {
    uint32_t key[RG_PHILOX_ROUNDS][2];
};

static round_keys keys_of(uint64_t seed)
{
    round_keys keys;
    for (uint32_t r = 0; r < RG_PHILOX_ROUNDS; r++) {
        keys.key[r][0] = (uint32_t)seed + r * RG_PHILOX_KEY_0;
        keys.key[r][1] = (uint32_t)(seed >> 32) + r * RG_PHILOX_KEY_1;
    }
    return keys;
}

/* Where upper halves do not decide: once in thousands of blocks. */
static __device__ __noinline__ uint32_t draw_exactly(uint64_t seed, uint64_t step, uint64_t block,
                                                     uint32_t limit)
{
    return rg_dropout_bits(seed, step, block, limit);
}

/* As rg_dropout_bits, with two halves of a word compared in place. */
static __device__ __forceinline__ uint32_t draw_block(const rg_dropout_args &k,
                                                      const round_keys &keys, uint64_t block)
{
    const uint64_t step = rg_dropout_step(&k);
    const uint32_t high = k.limit | 0xffff, both = (k.limit >> 16) * 0x10001;
    uint32_t word[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step,
                         (uint32_t)(step >> 32) };
#pragma unroll
    for (int round = 0; round < RG_PHILOX_ROUNDS; round++) {
        const uint64_t p = (uint64_t)RG_PHILOX_MULTIPLY_0 * word[0];
        const uint64_t q = (uint64_t)RG_PHILOX_MULTIPLY_1 * word[2];
        word[0] = (uint32_t)(q >> 32) ^ word[1] ^ keys.key[round][0];
        word[2] = (uint32_t)(p >> 32) ^ word[3] ^ keys.key[round][1];
        word[1] = (uint32_t)q;
        word[3] = (uint32_t)p;
    }
    uint32_t bits = 0, equal = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t apart = word[i] ^ both; /* a half of 0: equal */
        bits |= (uint32_t)(word[i] << 16 <= high) << 2 * i;
        bits |= (uint32_t)(word[i] <= high) << (2 * i + 1);
        equal |= (apart - 0x10001) & ~apart & 0x80008000;
    }
    const bool decided = equal == 0 || (k.limit & 0xffff) == 0xffff;
    return decided ? bits : draw_exactly(k.seed, step, block, k.limit);
}

/* Bits of the mask from `first` on, to the end of its block. */
static __device__ __forceinline__ uint32_t drawn_bits(const rg_dropout_args &k,
                                                      const round_keys &keys, int64_t first)
{
    return draw_block(k, keys, (uint64_t)first / RG_DROPOUT_BLOCK) >> first % RG_DROPOUT_BLOCK;
}

static __device__ __forceinline__ bool drawn_bit(const rg_dropout_args &k, const round_keys &keys,
                                                 int64_t bit)
{
    return drawn_bits(k, keys, bit) & 1;
}

/* Bits from `first` on, to the end of their byte. */
static __device__ __forceinline__ uint32_t read_bits(const rg_dropout_args &k, int64_t first)
{
    return (uint32_t)((const uint8_t *)k.mask)[first / 8] >> first % 8;
}

/* Writes a block's bits, a byte, if `first` is its first one; bits after the last one are 0. */
static __device__ __forceinline__ void write_bits(const rg_dropout_args &k, uint32_t bits,
                                                  int64_t first)
{
    const int64_t left = k.count - first;
    if (left < 8)
        bits &= left > 0 ? (1u << left) - 1 : 0;
    if (left > 0 && first % 8 == 0)
        ((uint8_t *)k.mask)[first / 8] = (uint8_t)bits;
}

/* ---- selecting ---- */

/* EACH elements from an aligned address on. */
template <rg_dtype T>
static __device__ __forceinline__ void select_each(const rg_dropout_args &k, const char *x, char *y,
                                                   uint32_t bits)
{
    enum { V = VLEN<T> };
    const real<T> scale = (real<T>)k.scale;
#pragma unroll
    for (int v = 0; v < EACH<T>; v += V) {
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
    select_flat(const __grid_constant__ rg_dropout_args k, const __grid_constant__ round_keys keys,
                bool wide)
{
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH<T>;
    uint32_t bits = 0;
    if (first < k.count)
        bits = DRAWS ? drawn_bits(k, keys, first) : read_bits(k, first);
    if (DRAWS && k.keeps_mask)
        write_bits(k, bits, first);
    if (wide && first + EACH<T> <= k.count) {
        select_each<T>(k, at<T>(k.x, first), at<T>(k.y, first), bits);
        return;
    }
    for (int64_t i = first; i < k.count && i < first + EACH<T>; i++)
        select_element<T>(k, i, i, bits >> (i - first) & 1);
}

/* The bits of EACH elements of a row: one for each of them, or one for all. */
template <rg_dtype T, bool DRAWS>
static __device__ __forceinline__ uint32_t row_bits(const rg_dropout_args &k,
                                                    const round_keys &keys, int64_t bit, int64_t j)
{
    if (k.sweep.step[2] != 0)
        return DRAWS ? drawn_bits(k, keys, bit + j) : read_bits(k, bit + j);
    const bool kept = DRAWS ? drawn_bit(k, keys, bit) : read_bits(k, bit) & 1;
    return kept ? ~0u : 0;
}

/* Rows of whole, aligned EACHes. A row of the mask begins at a multiple of its length, if not at 0:
 * the bits of EACH elements lie in one block. */
template <rg_dtype T, bool DRAWS>
static __global__ void __launch_bounds__(THREADS)
    select_rows(const __grid_constant__ rg_dropout_args k, const __grid_constant__ round_keys keys,
                uint32_t each)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t row = i <= UINT32_MAX ? (uint32_t)i / each : i / each;
    if (row >= k.sweep.outer.count)
        return;
    const int64_t j = (i - row * each) * EACH<T>;
    const int64_t x = walk_offset(k.sweep.outer, 0, row) + j;
    const int64_t y = walk_offset(k.sweep.outer, 1, row) + j;
    const uint32_t bits = row_bits<T, DRAWS>(k, keys, walk_offset(k.sweep.outer, 2, row), j);
    select_each<T>(k, at<T>(k.x, x), at<T>(k.y, y), bits);
}

/* The same with rows of a quick walk. */
template <rg_dtype T, bool DRAWS>
static __global__ void __launch_bounds__(THREADS)
    select_quickly(const __grid_constant__ rg_dropout_args k,
                   const __grid_constant__ round_keys keys,
                   const __grid_constant__ quick_walk<3> outer, small_divider by, int32_t each)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= k.sweep.outer.count * each)
        return;
    const int32_t row = divide((int32_t)i, by);
    const int64_t j = (int64_t)((int32_t)i - row * each) * EACH<T>;
    const quick_index at_row = find_index(outer, row);
    const uint32_t bits = row_bits<T, DRAWS>(k, keys, quick_offset(outer, 2, at_row), j);
    select_each<T>(k, at<T>(k.x, quick_offset(outer, 0, at_row) + j),
                   at<T>(k.y, quick_offset(outer, 1, at_row) + j), bits);
}

/* Any tensors. */
template <rg_dtype T, bool DRAWS>
static __global__ void __launch_bounds__(THREADS)
    select_elements(const __grid_constant__ rg_dropout_args k,
                    const __grid_constant__ round_keys keys)
{
    const rg_sweep &s = k.sweep;
    const int64_t count = s.outer.count * s.length, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row = count <= INT32_MAX ? (uint32_t)i / (uint32_t)s.length : i / s.length;
        const int64_t j = i - row * s.length;
        const int64_t bit = walk_offset(s.outer, 2, row) + j * s.step[2];
        const bool kept = DRAWS ? drawn_bit(k, keys, bit) : read_bits(k, bit) & 1;
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

template <rg_dtype T, bool DRAWS>
static void select_any(const rg_dropout_args &k, const rg_cuda_target *target)
{
    const rg_walk *outer = &k.sweep.outer;
    const int64_t length = k.sweep.length, count = outer->count * length;
    const bool wide = is_aligned<T>(k.x, outer, 0) && is_aligned<T>(k.y, outer, 1);
    const int64_t each = length / EACH<T>; /* of a row */
    const round_keys keys = keys_of(k.seed);
    const bool rows = k.dense && wide && length % EACH<T> == 0 && each <= INT32_MAX;
    quick_walk<3> quick;
    if (k.dense && outer->count == 1 && length == k.count)
        launch(select_flat<T, DRAWS>, ceil_div(count, THREADS * EACH<T>), THREADS, 0, target, k,
               keys, wide);
    else if (rows && outer->count * each <= INT32_MAX && quick_walk_of(*outer, &quick))
        launch(select_quickly<T, DRAWS>, ceil_div(outer->count * each, THREADS), THREADS, 0, target,
               k, keys, quick, small_divider_of(each), (int32_t)each);
    else if (rows)
        launch(select_rows<T, DRAWS>, ceil_div(outer->count * each, THREADS), THREADS, 0, target, k,
               keys, (uint32_t)each);
    else
        launch(select_elements<T, DRAWS>, at_most(ceil_div(count, THREADS), MOST_BLOCKS), THREADS,
               0, target, k, keys);
}

template <rg_dtype T> static void dropout_forward(const void *args, const rg_cuda_target *target)
{
    select_any<T, true>(*(const rg_dropout_args *)args, target);
}

/* A thread draws a byte. */
static __global__ void __launch_bounds__(THREADS)
    draw_mask(const __grid_constant__ rg_dropout_args k, const __grid_constant__ round_keys keys)
{
    const int64_t bytes = (k.count + 7) / 8, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < bytes; i += step) {
        write_bits(k, drawn_bits(k, keys, 8 * i), 8 * i);
    }
}

template <rg_dtype T> static void dropout_mask(const void *args, const rg_cuda_target *target)
{
    const rg_dropout_args &k = *(const rg_dropout_args *)args;
    const int64_t blocks = ceil_div(ceil_div(k.count, 8), THREADS);
    launch(draw_mask, at_most(blocks, MOST_BLOCKS), THREADS, 0, target, k, keys_of(k.seed));
}

template <rg_dtype T> static void dropout_apply(const void *args, const rg_cuda_target *target)
{
    select_any<T, false>(*(const rg_dropout_args *)args, target);
}

/* ---- entry points and table, in the order of the kernels' ids ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_DROPOUT_FORWARD, dropout_forward),
    RG_CUDA_ROW(RG_DROPOUT_MASK, dropout_mask),
    RG_CUDA_ROW(RG_DROPOUT_APPLY, dropout_apply),
};
RG_CUDA_TABLE(dropout, kernel_rows);
