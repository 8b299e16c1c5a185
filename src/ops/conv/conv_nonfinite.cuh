/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Padding is no part of a sum: an infinite weight that lies beyond the border adds nothing. Tensor
 * cores multiply it by 0, which is NaN, and libraries do so too. Sums that are not finite are taken
 * again, product by product, from the taps that lie inside. All tensors are dense. */
#ifndef RG_OPS_CONV_NONFINITE_CUH
#define RG_OPS_CONV_NONFINITE_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/conv/conv.h"

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
static inline bool mixes_groups(rg_dtype dtype, const rg_conv_shape *s, const rg_cuda_place *place)
{
    return s->groups > 1 &&
           (dtype == RG_F16 || dtype == RG_BF16 || (dtype == RG_F32 && place->tf32));
}

/* Sums results of a library again where they are not finite and an operand is no part of them.
 * `back`: of the image, from windows. */
extern "C" void rg_conv_resum(rg_dtype dtype, const rg_conv_shape *s, bool back, const void *from,
                              const void *w, void *to, const rg_cuda_place *place);
extern "C" void rg_conv_resum_weights(rg_dtype dtype, const rg_conv_shape *s, const void *x,
                                      const void *dy, void *dw, const rg_cuda_place *place);

#endif
