/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization on a GPU: lrn_vectors.cu where it suits. Otherwise a block has one
 * pixel at a time, of any channels and windows. */
#include "ops/lrn/lrn_vectors.cuh"
#include "ops/window_norm/power_formulas.h"
#include "ops/window_norm/windows.cuh"

enum { THREADS = 256 };

/* The lines of values of a block, in shared memory or in scratch. A padded line has the zeros
 * around the channels. */
template <rg_dtype T> struct pixel_lines {
    real<T> *values, *prefix, *shares, *direct;
};

template <rg_dtype T>
static __device__ __forceinline__ pixel_lines<T> lines_of(const rg_lrn_shape &s, void *shared,
                                                          void *scratch, bool in_shared)
{
    const int64_t padded = s.span.size + s.span.width - 1;
    real<T> *const lines =
        (real<T> *)(in_shared ? (char *)shared : (char *)scratch + blockIdx.x * s.scratch_bytes);
    return { lines, lines + padded, lines + 2 * padded, lines + 3 * padded };
}

/* Squares of all channels, and zeros around; then block sums where the window is wide. */
template <rg_dtype T>
static __device__ __forceinline__ void square_line(const rg_lrn_shape &s, const void *x, int64_t at,
                                                   int64_t step, const pixel_lines<T> &r)
{
    const int64_t padded = s.span.size + s.span.width - 1;
    for (int64_t t = threadIdx.x; t < padded; t += blockDim.x) {
        const int64_t c = t - s.span.before;
        const real<T> value = c >= 0 && c < s.span.size ? load<T>(x, at + c * step) : 0;
        r.values[t] = value * value;
    }
    __syncthreads();
    if (s.span.width > RG_SPAN_DIRECT) {
        sum_blocks(r.values, r.prefix, 1, 1, 0, padded, 1, s.span.width);
        __syncthreads();
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    forward_pixels(const __grid_constant__ rg_lrn_args a, const power_constants<T> k,
                   bool in_shared)
{
    extern __shared__ __align__(16) char memory[];
    const rg_lrn_shape &s = a.shape;
    const pixel_lines<T> r = lines_of<T>(s, memory, a.scratch, in_shared);
    const bool blocks = s.span.width > RG_SPAN_DIRECT;
    for (int64_t p = blockIdx.x; p < s.outer.count; p += gridDim.x) {
        const int64_t from = walk_offset(s.outer, 0, p), to = walk_offset(s.outer, 1, p);
        square_line<T>(s, a.x, from, s.step[0], r);
        for (int64_t c = threadIdx.x; c < s.span.size; c += blockDim.x) {
            const real<T> sum = sum_window(r.values, r.prefix, 0, c, 1, s.span.width, blocks);
            const real<T> x = load<T>(a.x, from + c * s.step[0]);
            store<T>(a.y, to + c * s.step[1], power_forward(&k, x, sum, k.quarters, IS_SHORT<T>));
        }
        __syncthreads();
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    gradient_pixels(const __grid_constant__ rg_lrn_gradient_args a, const power_constants<T> k,
                    bool in_shared)
{
    extern __shared__ __align__(16) char memory[];
    const rg_lrn_shape &s = a.shape;
    const pixel_lines<T> r = lines_of<T>(s, memory, a.scratch, in_shared);
    const int64_t padded = s.span.size + s.span.width - 1;
    const bool blocks = s.span.width > RG_SPAN_DIRECT;
    for (int64_t p = blockIdx.x; p < s.outer.count; p += gridDim.x) {
        const int64_t dy_at = walk_offset(s.outer, 0, p), x_at = walk_offset(s.outer, 1, p);
        const int64_t dx_at = walk_offset(s.outer, 2, p);
        square_line<T>(s, a.x, x_at, s.step[1], r);
        for (int64_t t = threadIdx.x; t < padded; t += blockDim.x) {
            const int64_t c = t - s.span.after; /* the mirrored window */
            real<T> share = 0;
            if (c >= 0 && c < s.span.size) {
                const real<T> sum = sum_window(r.values, r.prefix, 0, c, 1, s.span.width, blocks);
                const real<T> dy = load<T>(a.dy, dy_at + c * s.step[0]);
                const real<T> x = load<T>(a.x, x_at + c * s.step[1]);
                r.direct[c] = power_middle(&k, dy, x, sum, &share, k.quarters, IS_SHORT<T>);
            }
            r.shares[t] = share;
        }
        __syncthreads();
        if (blocks) {
            sum_blocks(r.shares, r.prefix, 1, 1, 0, padded, 1, s.span.width);
            __syncthreads();
        }
        for (int64_t c = threadIdx.x; c < s.span.size; c += blockDim.x) {
            const real<T> sum = sum_window(r.shares, r.prefix, 0, c, 1, s.span.width, blocks);
            const real<T> x = load<T>(a.x, x_at + c * s.step[1]);
            const int64_t to = dx_at + c * s.step[2];
            const real<T> value = power_gradient(&k, x, r.direct[c], sum);
            store<T>(a.dx, to, s.add ? load<T>(a.dx, to) + value : value);
        }
        __syncthreads();
    }
}

/* ---- host side ---- */

/* Blocks of the general kernels, and the shared memory of each: 0 where they work in scratch. */
template <rg_dtype T> static int64_t general_blocks(const rg_lrn_shape *s, int64_t *shared)
{
    const int64_t most_blocks = 1 << 20;
    *shared = rg_lrn_shared_values(&s->span) * (int64_t)sizeof(real<T>);
    if (*shared > RG_LRN_SHARED_BYTES) {
        *shared = 0;
        return s->units;
    }
    return s->outer.count < most_blocks ? s->outer.count : most_blocks;
}

template <rg_dtype T> static void lrn_forward(const void *args, const rg_cuda_target *target)
{
    const rg_lrn_args *a = (const rg_lrn_args *)args;
    const rg_lrn_shape *s = &a->shape;
    if (rg_lrn_forward_vectors[T](a, target))
        return;
    int64_t shared;
    const power_constants<T> k = power_constants_of<real<T>>(&s->numbers);
    const int64_t blocks = general_blocks<T>(s, &shared);
    launch(forward_pixels<T>, blocks, power_of_two(s->span.size, 32, THREADS), shared, target, *a,
           k, shared > 0);
}

template <rg_dtype T> static void lrn_gradient(const void *args, const rg_cuda_target *target)
{
    const rg_lrn_gradient_args *a = (const rg_lrn_gradient_args *)args;
    const rg_lrn_shape *s = &a->shape;
    if (rg_lrn_gradient_vectors[T](a, target))
        return;
    int64_t shared;
    const power_constants<T> k = power_constants_of<real<T>>(&s->numbers);
    const int64_t blocks = general_blocks<T>(s, &shared);
    launch(gradient_pixels<T>, blocks, power_of_two(s->span.size, 32, THREADS), shared, target, *a,
           k, shared > 0);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_LRN_FORWARD, lrn_forward),
    RG_CUDA_ROW(RG_LRN_GRADIENT, lrn_gradient),
};
RG_CUDA_TABLE(lrn, kernel_rows);
