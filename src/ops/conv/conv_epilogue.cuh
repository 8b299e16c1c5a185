/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The epilogue of a convolution on a GPU: what happens to a sum before it is stored. Kernels apply
 * it to a sum in a register, or sums of a library go through a kernel of conv_epilogue.cu. */
#ifndef RG_OPS_CONV_EPILOGUE_CUH
#define RG_OPS_CONV_EPILOGUE_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/conv/conv.h"
#include "ops/fused_neuron/any_neuron.cuh"

enum { THREADS = 256 }; /* of a block */

/* Blocks for `count` threads whose loops take a grid's length at a time. */
static inline int64_t blocks_of(int64_t count, int64_t threads)
{
    enum { MAX_BLOCKS = 1 << 30 };
    const int64_t blocks = ceil_div(count, threads);
    return blocks < MAX_BLOCKS ? blocks : (int64_t)MAX_BLOCKS;
}

/* An array of function `f` for every dtype. */
#define CONV_BY_DTYPE(f)                            \
    {                                               \
        f<RG_F32>, f<RG_F64>, f<RG_F16>, f<RG_BF16> \
    }

/* ---- results: bias, neuron, conversion ---- */

/* Channel c of a pixel whose channel 0 stands at `to` in the result, at `z` in z. */
template <rg_dtype T, class ARGS>
static __device__ __forceinline__ void finish(const ARGS &k, int64_t to, int64_t z, int64_t c,
                                              int64_t step, real<T> value)
{
    if (k.has_b)
        value += load<T>(k.b, c * k.b_step);
    if (k.has_z)
        store<T>(k.z, z + c * k.z_step[3], value);
    if (k.neuron.kind != RG_NEURON_NONE)
        value = any_neuron<T>(k.neuron.kind, neuron_constants_in<T>(k.neuron.numbers), value);
    if (k.add)
        value += load<T>(k.to, to + c * step);
    store<T>(k.to, to + c * step, value);
}

struct pixel {
    int64_t image, row, column, channel;
};

/* Pixels are numbered along channels, columns, rows, images. */
static __device__ __forceinline__ pixel pixel_at(int64_t i, int64_t rows, int64_t columns,
                                                 int64_t channels)
{
    pixel p;
    p.channel = i % channels;
    i /= channels;
    p.column = i % columns;
    i /= columns;
    p.row = i % rows;
    p.image = i / rows;
    return p;
}

/* ---- weights ---- */

/* D is how dw is stored. */
template <rg_dtype D, class ARGS>
static __device__ __forceinline__ void put_weight_as(const ARGS &k, int64_t to, real<D> sum)
{
    store<D>(k.dw, to, k.add ? load<D>(k.dw, to) + sum : sum);
}

template <rg_dtype T>
static __device__ __forceinline__ void put_weight(const rg_conv_weights_args &k, int64_t to,
                                                  real<T> sum)
{
    if (k.wide)
        put_weight_as<T == RG_F64 ? RG_F64 : RG_F32>(k, to, sum);
    else
        put_weight_as<T>(k, to, sum);
}

/* Weight number `at` of dense ones. */
template <rg_dtype T>
static __device__ __forceinline__ void put_dense_weight(const rg_conv_weights_args &k, int64_t at,
                                                        real<T> sum)
{
    const rg_conv_shape &s = k.shape;
    const int64_t tap = at / s.in, c = at - tap * s.in, line = tap / s.column.window;
    const int64_t channel = line / s.row.window, g = channel / s.out;
    put_weight<T>(k,
                  s.w_first + g * s.w[0] + (channel - g * s.out) * s.w[1] +
                      (line - channel * s.row.window) * s.w[2] +
                      (tap - line * s.column.window) * s.w[3] + c * s.w[4],
                  sum);
}

/* ---- in a kernel of its own, conv_epilogue.cu ---- */

/* Applies the epilogue to dense sums, which may be the result itself. `image_side`: of pixels. */
extern "C" void rg_conv_finish_sums(rg_dtype dtype, const rg_conv_args *k, bool image_side,
                                    const void *sums, const rg_cuda_place *place);

/* Stores dense sums in dw. */
extern "C" void rg_conv_put_weights(rg_dtype dtype, const rg_conv_weights_args *k, const void *sums,
                                    const rg_cuda_place *place);

#endif
