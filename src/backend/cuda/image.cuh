/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Images on a GPU, for kernels that move pixels: a thread computes some channels (a vector of them
 * where it can) of one column of the result, in IMAGE_ROWS rows, so that what it finds out about
 * its column serves all of these. */
#ifndef RG_BACKEND_CUDA_IMAGE_CUH
#define RG_BACKEND_CUDA_IMAGE_CUH

#include "backend/cuda/kernel.cuh"

enum { IMAGE_THREADS = 128, IMAGE_ROWS = 16 };

/* Channels that a thread has. */
template <rg_dtype T, bool WIDE> constexpr int LANES = WIDE ? VLEN<T> : 1;

/* How the result is cut into blocks: columns and channels of a row into chunks of IMAGE_THREADS,
 * rows into groups of IMAGE_ROWS. */
typedef struct image_cut {
    int64_t parts;  /* threads for the channels of a pixel */
    int64_t chunks; /* of a row */
    int64_t groups; /* of an image */
    int64_t blocks; /* in all */
} image_cut;

/* What a thread has to do. */
typedef struct image_index {
    int64_t image, row, column, channel;
    int rows;
    bool used;
} image_index;

static __device__ __forceinline__ int64_t divide(int64_t a, int64_t b)
{
    return (uint64_t)(a | b) <= UINT32_MAX ? (uint32_t)a / (uint32_t)b : a / b;
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ image_index image_index_of(const image_cut &cut, int64_t block,
                                                             int64_t rows, int64_t columns)
{
    image_index p;
    const int64_t rest = divide(block, cut.chunks);
    const int64_t q = (block - rest * cut.chunks) * IMAGE_THREADS + threadIdx.x;
    p.image = divide(rest, cut.groups);
    p.row = (rest - p.image * cut.groups) * IMAGE_ROWS;
    p.rows = (int)(rows - p.row < IMAGE_ROWS ? rows - p.row : IMAGE_ROWS);
    p.column = divide(q, cut.parts);
    p.channel = (q - p.column * cut.parts) * LANES<T, WIDE>;
    p.used = p.column < columns;
    return p;
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void load_lanes(const void *data, int64_t i,
                                                  real<T> x[LANES<T, WIDE>])
{
    if constexpr (WIDE)
        unpack<T>(load_vector(at<T>(data, i)), x);
    else
        x[0] = load<T>(data, i);
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void
store_lanes(void *data, int64_t i, real<T> value[LANES<T, WIDE>], bool add, bool stream)
{
    if (add) {
        real<T> old[LANES<T, WIDE>];
        load_lanes<T, WIDE>(data, i, old);
#pragma unroll
        for (int e = 0; e < LANES<T, WIDE>; e++)
            value[e] += old[e];
    }
    if constexpr (WIDE)
        store_vector(at<T>(data, i), pack<T>(value), stream);
    else
        store<T>(data, i, value[0]);
}

/* ---- host side ---- */

/* Whether vectors of channels can be loaded and stored at every pixel of two tensors whose
 * channels are neighbours; strides are those of n, h, w. */
template <rg_dtype T>
static bool is_wide_image(const void *from, const void *to, const int64_t strides[2][4])
{
    bool wide = ((uintptr_t)from | (uintptr_t)to) % 16 == 0;
    for (int d = 0; d < 3; d++)
        wide &= (strides[0][d] | strides[1][d]) % VLEN<T> == 0;
    return wide;
}

/* Launches a kernel over a result with these images, rows, columns and channels. */
template <rg_dtype T, class ARGS>
static void launch_image(void (*kernel)(ARGS, image_cut), const ARGS *k, bool wide, int64_t images,
                         int64_t rows, int64_t columns, int64_t channels,
                         const rg_cuda_target *target)
{
    const int64_t most_blocks = 1 << 30;
    image_cut cut;
    cut.parts = wide ? channels / VLEN<T> : channels;
    cut.chunks = ceil_div(columns * cut.parts, IMAGE_THREADS);
    cut.groups = ceil_div(rows, IMAGE_ROWS);
    cut.blocks = images * cut.groups * cut.chunks;
    launch(kernel, cut.blocks < most_blocks ? cut.blocks : most_blocks, IMAGE_THREADS, 0, target,
           *k, cut);
}

#endif
