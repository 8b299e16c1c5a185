/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution on a GPU. The build reads the next line: see cmake/cuda.cmake, conv_split_hopper.cuh.
 * RG_CUDA_FEATURES 90a */
#include "backend/cuda/kernel.cuh"
#include "backend/cuda/long_sum.cuh"
#include "ops/conv/conv.h"
#include "ops/neuron/any_neuron.cuh"

enum { THREADS = 256, BLOCKS = 1 << 30 };

/* ---- the end of a sum: bias, neuron, conversion ---- */

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

/* D is how dw is stored. */
template <rg_dtype D>
static __device__ __forceinline__ void put_weight(const rg_conv_weights_args &k, int64_t to,
                                                  real<D> sum)
{
    store<D>(k.dw, to, k.add ? load<D>(k.dw, to) + sum : sum);
}

/* ---- any shape: a thread has one channel of one pixel of the result ---- */

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

/* The sum over channels of x at tap (p, q) of window (i, j), behind `sum`. */
template <rg_dtype T>
static __device__ __forceinline__ void dot(const rg_conv_shape &s, const void *x, int64_t x_at,
                                           const void *w, int64_t w_at, long_chain<real<T>, 1> &sum)
{
    for (int64_t c = 0; c < s.in; c++) {
        sum.run[0] = fma(load<T>(x, x_at + c * s.x[3]), load<T>(w, w_at + c * s.w[4]), sum.run[0]);
        sum.count();
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    forward_any(const __grid_constant__ rg_conv_args k, int64_t count)
{
    const rg_conv_shape &s = k.shape;
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < count; n += step) {
        const pixel y = pixel_at(n, s.row.count, s.column.count, s.groups * s.out);
        const int64_t g = y.channel / s.out, o = y.channel - g * s.out;
        int64_t p0, p1, q0, q1;
        rg_conv_taps(&s.row, y.row, &p0, &p1);
        rg_conv_taps(&s.column, y.column, &q0, &q1);
        long_chain<real<T>, 1> sum;
        for (int64_t p = p0; p < p1; p++) {
            for (int64_t q = q0; q < q1; q++) {
                const int64_t r = y.row * s.row.stride - s.row.before + p * s.row.dilation;
                const int64_t c =
                    y.column * s.column.stride - s.column.before + q * s.column.dilation;
                dot<T>(s, k.from, y.image * s.x[0] + r * s.x[1] + c * s.x[2] + g * s.in * s.x[3],
                       k.w, s.w_first + g * s.w[0] + o * s.w[1] + p * s.w[2] + q * s.w[3], sum);
            }
        }
        finish<T>(k, y.image * s.y[0] + y.row * s.y[1] + y.column * s.y[2],
                  y.image * k.z_step[0] + y.row * k.z_step[1] + y.column * k.z_step[2], y.channel,
                  s.y[3], sum.value(0));
    }
}

static int64_t blocks_of(int64_t count)
{
    const int64_t blocks = ceil_div(count, THREADS);
    return blocks < BLOCKS ? blocks : (int64_t)BLOCKS;
}

#include "ops/conv/conv_library.cuh"

template <rg_dtype T> static void forward(const void *args, const rg_cuda_place *place)
{
    const rg_conv_args *k = (const rg_conv_args *)args;
    if (run_by_library<T>(k, RG_CUDNN_FORWARD, place))
        return;
    const rg_conv_shape *s = &k->shape;
    const int64_t count = s->images * s->row.count * s->column.count * s->groups * s->out;
    launch(forward_any<T>, blocks_of(count), THREADS, 0, place, *k, count);
}

/* What one window passes to the pixel, behind `sum`. */
template <rg_dtype T>
static __device__ __forceinline__ void spread(const rg_conv_shape &s, const void *y, int64_t y_at,
                                              const void *w, int64_t w_at,
                                              long_chain<real<T>, 1> &sum)
{
    for (int64_t o = 0; o < s.out; o++) {
        sum.run[0] = fma(load<T>(y, y_at + o * s.y[3]), load<T>(w, w_at + o * s.w[1]), sum.run[0]);
        sum.count();
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    data_any(const __grid_constant__ rg_conv_args k, int64_t count)
{
    const rg_conv_shape &s = k.shape;
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < count; n += step) {
        const pixel x = pixel_at(n, s.row.size, s.column.size, s.groups * s.in);
        const int64_t g = x.channel / s.in, c = x.channel - g * s.in;
        const int64_t y = x.image * s.y[0] + g * s.out * s.y[3];
        const int64_t w = s.w_first + g * s.w[0] + c * s.w[4];
        long_chain<real<T>, 1> sum;
        for (int64_t p = 0; p < s.row.window; p++) {
            const int64_t i = rg_conv_window(&s.row, x.row, p);
            for (int64_t q = 0; i >= 0 && q < s.column.window; q++) {
                const int64_t j = rg_conv_window(&s.column, x.column, q);
                if (j >= 0)
                    spread<T>(s, k.from, y + i * s.y[1] + j * s.y[2], k.w,
                              w + p * s.w[2] + q * s.w[3], sum);
            }
        }
        finish<T>(k, x.image * s.x[0] + x.row * s.x[1] + x.column * s.x[2],
                  x.image * k.z_step[0] + x.row * k.z_step[1] + x.column * k.z_step[2], x.channel,
                  s.x[3], sum.value(0));
    }
}

template <rg_dtype T> static void data(const void *args, const rg_cuda_place *place)
{
    const rg_conv_args *k = (const rg_conv_args *)args;
    if (run_by_library<T>(k, RG_CUDNN_DATA, place))
        return;
    const rg_conv_shape *s = &k->shape;
    const int64_t count = s->images * s->row.size * s->column.size * s->groups * s->in;
    launch(data_any<T>, blocks_of(count), THREADS, 0, place, *k, count);
}

/* ---- weights of any shape: a block has some input channels of one tap of one output channel; its
 * threads share the rows of windows, in lines of ACROSS channels ---- */

enum { ACROSS = 16, SEGMENT = 4096 }; /* columns of a row that a thread has at a time */

/* The sum over a row of windows, behind `sum`. */
template <rg_dtype T>
static __device__ __forceinline__ void
correlate(const rg_conv_shape &s, const void *x, int64_t x_at, const void *y, int64_t y_at,
          int64_t j0, int64_t j1, long_chain<real<T>, 1> &sum)
{
    const int64_t step = s.column.stride * s.x[2];
    for (int64_t j = j0; j < j1; j++) {
        sum.run[0] = fma(load<T>(y, y_at + j * s.y[2]), load<T>(x, x_at + j * step), sum.run[0]);
        sum.count();
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    weights_any(const __grid_constant__ rg_conv_weights_args k, int64_t chunks, int64_t count)
{
    __shared__ double shared[THREADS];
    const rg_conv_shape &s = k.shape;
    const int64_t taps = s.row.window * s.column.window;
    for (int64_t n = blockIdx.x; n < count; n += gridDim.x) {
        const int64_t c = n % chunks * ACROSS + threadIdx.x % ACROSS, unit = n / chunks;
        const int64_t channel = unit / taps, tap = unit - channel * taps;
        const int64_t p = tap / s.column.window, q = tap - p * s.column.window;
        const int64_t g = channel / s.out, o = channel - g * s.out;
        int64_t i0, i1, j0, j1;
        rg_conv_windows(&s.row, p, &i0, &i1);
        rg_conv_windows(&s.column, q, &j0, &j1);
        const int64_t rows = i1 - i0, segments = (j1 - j0 + SEGMENT - 1) / SEGMENT;
        const int64_t all = rows * s.images * segments;
        long_chain<real<T>, 1> own;
        for (int64_t m = threadIdx.x / ACROSS; c < s.in && m < all; m += THREADS / ACROSS) {
            const int64_t line = m / segments, image = line / rows, i = i0 + line - image * rows;
            const int64_t begin = j0 + (m - line * segments) * SEGMENT;
            const int64_t end = j1 - begin < SEGMENT ? j1 : begin + SEGMENT;
            const int64_t r = i * s.row.stride - s.row.before + p * s.row.dilation;
            const int64_t first = q * s.column.dilation - s.column.before;
            correlate<T>(s, k.x,
                         image * s.x[0] + r * s.x[1] + first * s.x[2] + (g * s.in + c) * s.x[3],
                         k.dy, image * s.y[0] + i * s.y[1] + channel * s.y[3], begin, end, own);
        }
        double sum[1] = { own.in_double(0) };
        reduce_down<1>(sum, ACROSS, shared, false);
        if (threadIdx.x < ACROSS && c < s.in) {
            const int64_t to =
                s.w_first + g * s.w[0] + o * s.w[1] + p * s.w[2] + q * s.w[3] + c * s.w[4];
            if (k.wide)
                put_weight<T == RG_F64 ? RG_F64 : RG_F32>(k, to, (real<T>)sum[0]);
            else
                put_weight<T>(k, to, (real<T>)sum[0]);
        }
        __syncthreads();
    }
}

template <rg_dtype T> static void weights(const void *args, const rg_cuda_place *place)
{
    const rg_conv_weights_args *k = (const rg_conv_weights_args *)args;
    if (run_weights_by_library<T>(k, place))
        return;
    const rg_conv_shape *s = &k->shape;
    const int64_t chunks = ceil_div(s->in, ACROSS);
    const int64_t count = s->groups * s->out * s->row.window * s->column.window * chunks;
    launch(weights_any<T>, count < BLOCKS ? count : (int64_t)BLOCKS, THREADS, 0, place, *k, chunks,
           count);
}

#include "ops/conv/conv_depthwise.cuh"

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW_SCRATCH(RG_CONV_FORWARD, forward, forward_scratch),
    RG_CUDA_ROW_SCRATCH(RG_CONV_DATA, data, data_scratch),
    RG_CUDA_ROW_SCRATCH(RG_CONV_WEIGHTS, weights, weights_scratch),
    RG_CUDA_ROW(RG_CONV_TRANSPOSE_WEIGHTS, transpose),
    RG_CUDA_ROW(RG_CONV_DEPTHWISE, depthwise),
    RG_CUDA_ROW(RG_CONV_DEPTHWISE_PARTS, depthwise_parts),
    RG_CUDA_ROW(RG_CONV_DEPTHWISE_JOIN, depthwise_join),
    RG_CUDA_ROW(RG_CONV_DEPTHWISE_3X3, depthwise_3x3),
};
RG_CUDA_TABLE(conv, kernel_rows);
