/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* f32 on tensor cores for TF32, without rounding to it: a number is the sum of two TF32 numbers,
 * big and small, and a product is big big + big small + small big; what is left out is below 2^-21
 * of it. Tensor cores round towards zero, so sums go no further than 32 products there and are then
 * added up as f32. Three products on them take less time than one elsewhere.
 *
 * Where a sum is not finite it is taken again, product by product: infinity and NaN come out as
 * arithmetic says.
 *
 * A convolution is a product of matrices: c(m, n) = sum over k of a(m, k) b(n, k). Rows m are
 * pixels of the result, columns n its channels, k goes over taps and, inside, over channels of the
 * source; for dw see conv_tf32x3_parts.cuh. All tensors are dense. */
#ifndef RG_OPS_CONV_TF32X3_CUH
#define RG_OPS_CONV_TF32X3_CUH

#include "ops/conv/conv_epilogue.cuh"
#include "backend/cuda/mma.cuh"
#include "ops/conv/conv_packing.cuh"

enum {
    TILE_M = 128,    /* rows of a tile */
    TILE_K = 32,     /* of k, between two sums as f32 */
    TILE_STAGES = 3, /* tiles on their way */
};

/* Rows or columns of both sides. A result at u has tap p at source u mul + shift(p), see below. */
struct tf32x3_axis {
    int source, result; /* sizes */
    int taps, mul;
    int stride, dilation, before;
};

struct tf32x3_conv {
    const float *from, *w; /* source; weights (columns, taps, channels) */
    tf32x3_axis row, column;
    int images, channels, columns;
    bool back;   /* from windows to the image */
    bool merged; /* columns are (row phase, column phase, channel): see merge_phases */
    bool plain;  /* the result is dense, and the sum is all there is to it */
};

/* ---- numbers ---- */

/* Rounds to the nearest number of 10 bits behind the point; what is left over is exact. The units
 * for conversions are few: this is by integers. */
static __device__ __forceinline__ void split(float x, uint32_t &big, uint32_t &small)
{
    big = (__float_as_uint(x) + 0x1000) & 0xffffe000;
    small = __float_as_uint(x - __uint_as_float(big));
}

/* ---- tensor cores ---- */

/* All blocks of rows with COUNT blocks of columns from j on: sums that do not wait for each other.
 */
template <int ROWS, int COUNT, int COLUMNS>
static __device__ __forceinline__ void multiply_blocks(float (&c)[ROWS][COLUMNS][4], int j,
                                                       const uint32_t a[ROWS][4],
                                                       const uint32_t b[2 * COUNT])
{
#pragma unroll
    for (int h = 0; h < COUNT; h++) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            multiply_tf32(c[i][j + h], a[i], b + 2 * h);
    }
}

/* ---- tiles in shared memory: rows of TILE_K numbers, whose 8 vectors change places by row, so
 * that loads of 8 rows meet no bank twice ---- */

static __device__ __forceinline__ int tile_at(int row, int k)
{
    return row * TILE_K + ((k / 4 ^ (row & 7)) * 4 + k % 4);
}

/* What a warp has of c: ROWS blocks of 16 rows by COLUMNS blocks of 8 columns. */
template <int ROWS, int COLUMNS> struct warp_tile {
    float sum[ROWS][COLUMNS][4];
};

template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void add_part(warp_tile<ROWS, COLUMNS> &c,
                                                const float (&part)[ROWS][COLUMNS][4])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                c.sum[i][j][e] += part[i][j][e];
        }
    }
}

/* As load_matrices, of floats. */
static __device__ __forceinline__ void load_blocks(float x[4], const float *row)
{
    uint32_t words[4] = {};
    load_matrices(words, row);
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = __uint_as_float(words[i]);
}

/* A row of the tile: its result's place on the source, before the shift of a tap. */
struct tile_row {
    uint32_t image; /* where its image begins */
    int row, column;
};

/* ---- host side ---- */

static inline tf32x3_axis axis_of(const rg_conv_axis *a, bool back)
{
    tf32x3_axis axis = {};
    axis.source = (int)(back ? a->count : a->size);
    axis.result = (int)(back ? a->size : a->count);
    axis.taps = (int)a->window;
    axis.mul = back ? 1 : (int)a->stride;
    axis.stride = (int)a->stride;
    axis.dilation = (int)a->dilation;
    axis.before = (int)a->before;
    return axis;
}

/* Of every pass. */
extern "C" bool rg_conv_tf32x3_accepts(rg_conv_call *call);

/* ---- conv_tf32x3_hopper.cu ---- */

/* Whether the device is a Hopper, and this build has code for it. */
extern "C" bool rg_conv_tf32x3_has_hopper(void);

/* Channels are whole vectors. */
extern "C" void rg_conv_tf32x3_hopper(const rg_conv_args *args, const tf32x3_conv *k, int64_t count,
                                      packing *arena);
struct tf32x3_weights;
extern "C" void rg_conv_tf32x3_hopper_weights(const tf32x3_weights *k, int parts,
                                              const rg_cuda_place *place);

#endif
