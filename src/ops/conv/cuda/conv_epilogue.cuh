/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What happens to the sums of a convolution on a GPU before they are stored, in all strategies: the
 * epilogue, the join of partial sums, and the policy for non-finite values. Kernels do it to a sum
 * in a register; sums of a library go through kernels of conv_epilogue.cu. */
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

/* ---- results: bias, neuron, conversion ---- */

/* Channel c of a pixel whose channel 0 is element `to` of the result and element `z` of z. */
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
    if (k.add) /* put() would change the machine code of the kernels that inline this */
        value += load<T>(k.to, to + c * step);
    store<T>(k.to, to + c * step, value);
}

/* V neighbouring channels from c on after which at most a bias and ReLU come. */
template <rg_dtype T, int V, class ARGS>
static __device__ __forceinline__ void add_bias_and_relu(const ARGS &k, int64_t c, int64_t b_step,
                                                         real<T> sum[V])
{
#pragma unroll
    for (int e = 0; e < V; e++) {
        if (k.has_b)
            sum[e] += load<T>(k.b, (c + e) * b_step);
        if (k.neuron.kind == RG_NEURON_RELU)
            sum[e] = neuron_relu<T>(neuron_constants_in<T>(k.neuron.numbers), sum[e], sum[e]);
    }
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

template <rg_dtype T>
static __device__ __forceinline__ void put_weight(const rg_conv_weights_args &k, int64_t to,
                                                  real<T> sum)
{
    put_as<T>(k.dw, to, sum, k.add, k.wide);
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

/* ---- in kernels of their own, conv_epilogue.cu: by dtype ---- */

/* Applies the epilogue to dense sums, which may be the result itself. `image_side`: of pixels. */
typedef void conv_finish(const rg_conv_args *k, bool image_side, const void *sums,
                         const rg_cuda_target *target);
extern "C" conv_finish *const rg_conv_finish_sums[RG_CUDA_DTYPES];

/* Stores dense sums in dw. */
typedef void conv_put_weights(const rg_conv_weights_args *k, const void *sums,
                              const rg_cuda_target *target);
extern "C" conv_put_weights *const rg_conv_put_weights[RG_CUDA_DTYPES];

/* dw from `count` dense partial sums, which lie one after the other as real. */
typedef void conv_join_weights(const rg_conv_weights_args *k, const void *partials, int64_t count,
                               const rg_cuda_target *target);
extern "C" conv_join_weights *const rg_conv_join_weights[RG_CUDA_DTYPES];

/* ---- non-finite sums: padding must not contribute, but infinity times 0 is NaN. Tensor cores and
 * libraries multiply by the zeros of padding, so results that are not finite are summed again,
 * product by product, from the taps inside the image. All tensors are dense ---- */

static __device__ __forceinline__ int64_t image_at(const rg_conv_shape &s, int64_t image,
                                                   int64_t row, int64_t column)
{
    return ((image * s.row.size + row) * s.column.size + column) * s.groups * s.in;
}

static __device__ __forceinline__ int64_t window_at(const rg_conv_shape &s, int64_t image,
                                                    int64_t row, int64_t column)
{
    return ((image * s.row.count + row) * s.column.count + column) * s.groups * s.out;
}

static __device__ __forceinline__ int64_t weight_at(const rg_conv_shape &s, int64_t channel,
                                                    int64_t p, int64_t q)
{
    return ((channel * s.row.window + p) * s.column.window + q) * s.in;
}

/* Channel `channel` of window (i, j). */
template <rg_dtype T>
static __device__ real<T> window_sum(const rg_conv_shape &s, const void *x, const void *w,
                                     int64_t image, int64_t i, int64_t j, int64_t channel)
{
    const int64_t group = channel / s.out;
    int64_t p0, p1, q0, q1;
    rg_conv_taps(&s.row, i, &p0, &p1);
    rg_conv_taps(&s.column, j, &q0, &q1);
    real<T> sum = 0;
    for (int64_t p = p0; p < p1; p++) {
        for (int64_t q = q0; q < q1; q++) {
            const int64_t row = i * s.row.stride - s.row.before + p * s.row.dilation;
            const int64_t column = j * s.column.stride - s.column.before + q * s.column.dilation;
            const int64_t from = image_at(s, image, row, column) + group * s.in;
            const int64_t by = weight_at(s, channel, p, q);
            for (int64_t c = 0; c < s.in; c++)
                sum = fma(load<T>(x, from + c), load<T>(w, by + c), sum);
        }
    }
    return sum;
}

/* Channel `channel` of pixel (r, column) of the image. */
template <rg_dtype T>
static __device__ real<T> pixel_sum(const rg_conv_shape &s, const void *y, const void *w,
                                    int64_t image, int64_t r, int64_t column, int64_t channel)
{
    const int64_t group = channel / s.in, c = channel - group * s.in;
    real<T> sum = 0;
    for (int64_t p = 0; p < s.row.window; p++) {
        const int64_t i = rg_conv_window(&s.row, r, p);
        for (int64_t q = 0; i >= 0 && q < s.column.window; q++) {
            const int64_t j = rg_conv_window(&s.column, column, q);
            for (int64_t o = group * s.out; j >= 0 && o < (group + 1) * s.out; o++)
                sum = fma(load<T>(y, window_at(s, image, i, j) + o),
                          load<T>(w, weight_at(s, o, p, q) + c), sum);
        }
    }
    return sum;
}

/* One weight, product by product. */
template <rg_dtype T>
static __device__ __noinline__ real<T> weight_sum(const rg_conv_shape &s, const void *x,
                                                  const void *dy, int64_t at)
{
    const int64_t c = at % s.in, tap = at / s.in, q = tap % s.column.window;
    const int64_t p = tap / s.column.window % s.row.window,
                  o = tap / s.column.window / s.row.window;
    int64_t i0, i1, j0, j1;
    rg_conv_windows(&s.row, p, &i0, &i1);
    rg_conv_windows(&s.column, q, &j0, &j1);
    real<T> sum = 0;
    for (int64_t image = 0; image < s.images; image++) {
        for (int64_t i = i0; i < i1; i++) {
            const int64_t row = i * s.row.stride - s.row.before + p * s.row.dilation;
            for (int64_t j = j0; j < j1; j++) {
                const int64_t column =
                    j * s.column.stride - s.column.before + q * s.column.dilation;
                sum = fma(load<T>(dy, window_at(s, image, i, j) + o),
                          load<T>(x, image_at(s, image, row, column) + o / s.out * s.in + c), sum);
            }
        }
    }
    return sum;
}

/* Whether tensor cores take channels of several groups at once, with weights of 0 between them. */
static inline bool mixes_groups(rg_dtype dtype, const rg_conv_shape *s,
                                const rg_cuda_target *target)
{
    return s->groups > 1 &&
           (dtype == RG_F16 || dtype == RG_BF16 || (dtype == RG_F32 && target->tf32));
}

/* Sums results of a library again where they are not finite and an operand is no part of them.
 * `back`: of the image, from windows. By dtype. */
typedef void conv_resum(const rg_conv_shape *s, bool back, const void *from, const void *w,
                        void *to, const rg_cuda_target *target);
extern "C" conv_resum *const rg_conv_resum[RG_CUDA_DTYPES];
typedef void conv_resum_weights(const rg_conv_shape *s, const void *x, const void *dy, void *dw,
                                const rg_cuda_target *target);
extern "C" conv_resum_weights *const rg_conv_resum_weights[RG_CUDA_DTYPES];

#endif
