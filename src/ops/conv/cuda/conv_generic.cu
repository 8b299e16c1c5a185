/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolutions of any shape and any strides, for what no other strategy accepts. */
#include "backend/cuda/long_sum.cuh"
#include "ops/conv/cuda/conv_strategy.cuh"

/* ---- forward and data: a thread has one channel of one pixel of the result ---- */

/* Adds to `sum` over the channels of x at tap (p, q) of window (i, j). */
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
    forward_generic(const __grid_constant__ rg_conv_args k, int64_t count)
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

template <rg_dtype T> static void forward(const rg_conv_call *call, const rg_cuda_target *target)
{
    const rg_conv_shape *s = call->shape;
    const int64_t count = s->images * s->row.count * s->column.count * s->groups * s->out;
    launch(forward_generic<T>, blocks_of(count, THREADS), THREADS, 0, target, *call->args, count);
}

/* Adds to `sum` what one window passes to the pixel. */
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
    data_generic(const __grid_constant__ rg_conv_args k, int64_t count)
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

template <rg_dtype T> static void data(const rg_conv_call *call, const rg_cuda_target *target)
{
    const rg_conv_shape *s = call->shape;
    const int64_t count = s->images * s->row.size * s->column.size * s->groups * s->in;
    launch(data_generic<T>, blocks_of(count, THREADS), THREADS, 0, target, *call->args, count);
}

/* ---- weights of any shape: a block has some input channels of one tap of one output channel; its
 * threads share the rows of windows, in lines of ACROSS channels ---- */

enum { ACROSS = 16, SEGMENT = 4096 }; /* columns of a row that a thread has at a time */

/* Adds to `sum` over a row of windows. */
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
    weights_generic(const __grid_constant__ rg_conv_weights_args k, int64_t chunks, int64_t count)
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
            put_weight<T>(k, to, (real<T>)sum[0]);
        }
        __syncthreads();
    }
}

template <rg_dtype T> static void weights(const rg_conv_call *call, const rg_cuda_target *target)
{
    const rg_conv_shape *s = call->shape;
    const int64_t chunks = ceil_div(s->in, ACROSS);
    const int64_t count = s->groups * s->out * s->row.window * s->column.window * chunks;
    launch(weights_generic<T>, blocks_of(count, 1), THREADS, 0, target, *call->weights_args, chunks,
           count);
}

/* ---- strategy ---- */

static bool accepts(rg_conv_call *call)
{
    (void)call;
    return true;
}

static bool run(const rg_conv_call *call, scratch_arena *arena)
{
    static void (*const runs[][4])(const rg_conv_call *, const rg_cuda_target *) = {
        RG_EVERY_DTYPE(forward), RG_EVERY_DTYPE(data), RG_EVERY_DTYPE(weights)
    };
    if (arena->enqueue)
        runs[call->direction][call->dtype](call, arena->target);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_generic = { "generic", accepts, run };
