/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution on a GPU. A thread has V neighbouring channels and goes down a column. Sums
 * follow one order in all kernels: taps in the order of the source. */
#include "backend/cuda/long_sum.cuh"
#include "ops/conv/conv_depthwise.cuh"

enum { DEPTHWISE_THREADS = 128 };

/* ---- weights as real, (taps, channels) ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(DEPTHWISE_THREADS)
    transpose_weights_kernel(const __grid_constant__ rg_conv_transpose_weights_args k,
                             int64_t count)
{
    const rg_conv_shape &s = k.shape;
    const int64_t step = (int64_t)gridDim.x * DEPTHWISE_THREADS;
    for (int64_t n = (int64_t)blockIdx.x * DEPTHWISE_THREADS + threadIdx.x; n < count; n += step) {
        const int64_t tap = n / s.groups, c = n - tap * s.groups;
        const int64_t p = tap / s.column.window, q = tap - p * s.column.window;
        ((real<T> *)k.transposed)[n] =
            load<T>(k.w, s.w_first + c * s.w[0] + p * s.w[2] + q * s.w[3]);
    }
}

template <rg_dtype T> static void transpose(const void *args, const rg_cuda_place *place)
{
    const rg_conv_transpose_weights_args *k = (const rg_conv_transpose_weights_args *)args;
    const int64_t count = k->shape.row.window * k->shape.column.window * k->shape.groups;
    launch(transpose_weights_kernel<T>, blocks_of(count, DEPTHWISE_THREADS), DEPTHWISE_THREADS, 0,
           place, *k, count);
}

/* ---- either direction ---- */

/* Tap number n in the order of the source, and the pixel of the source that it is for result r, or
 * -1. */
static __device__ __forceinline__ int64_t depthwise_tap(const rg_conv_axis &a, bool data, int64_t r,
                                                        int64_t n, int64_t &at)
{
    const int64_t p = data ? a.window - 1 - n : n;
    at = data ? rg_conv_window(&a, r, p) : r * a.stride - a.before + p * a.dilation;
    at = at < (data ? a.count : a.size) ? at : -1;
    return p;
}

template <rg_dtype T, int V>
static __global__ void __launch_bounds__(DEPTHWISE_THREADS)
    depthwise_any(const __grid_constant__ rg_conv_depthwise_args k, int64_t vectors, int64_t count)
{
    const rg_conv_shape &s = k.shape;
    const int64_t *const source = k.data ? s.y : s.x, *const result = k.data ? s.x : s.y;
    const int64_t rows = k.data ? s.row.size : s.row.count;
    const int64_t columns = k.data ? s.column.size : s.column.count;
    const int64_t step = (int64_t)gridDim.x * DEPTHWISE_THREADS;
    for (int64_t n = (int64_t)blockIdx.x * DEPTHWISE_THREADS + threadIdx.x; n < count; n += step) {
        const int64_t pixel = n / vectors, c = (n - pixel * vectors) * V;
        const int64_t line = pixel / columns, column = pixel - line * columns;
        const int64_t image = line / rows, row = line - image * rows;
        real<T> sum[V] = {};
        for (int64_t i = 0; i < s.row.window; i++) {
            int64_t r, t;
            const int64_t p = depthwise_tap(s.row, k.data, row, i, r);
            for (int64_t j = 0; r >= 0 && j < s.column.window; j++) {
                const int64_t q = depthwise_tap(s.column, k.data, column, j, t);
                if (t < 0)
                    continue;
                real<T> x[V];
                load_channels<T, V>(
                    k.from, image * source[0] + r * source[1] + t * source[2] + c * source[3], x);
                const real<T> *w =
                    (const real<T> *)k.w + (p * s.column.window + q) * k.channels + c;
#pragma unroll
                for (int e = 0; e < V; e++)
                    sum[e] = fma(x[e], w[e], sum[e]);
            }
        }
        finish_channels<T, V>(k, k.plain, image * result[0] + row * result[1] + column * result[2],
                              image * k.z_step[0] + row * k.z_step[1] + column * k.z_step[2], c,
                              result[3], sum);
    }
}

template <rg_dtype T> static void depthwise(const void *args, const rg_cuda_place *place)
{
    enum { V = DEPTHWISE_LANES<T> };
    const rg_conv_depthwise_args *k = (const rg_conv_depthwise_args *)args;
    const rg_conv_shape *s = &k->shape;
    const bool wide = depthwise_wide<T>(k);
    const int64_t pixels = k->data ? s->row.size * s->column.size : s->row.count * s->column.count;
    const int64_t vectors = s->groups / (wide ? V : 1), count = s->images * pixels * vectors;
    launch(wide ? depthwise_any<T, V> : depthwise_any<T, 1>, blocks_of(count, DEPTHWISE_THREADS),
           DEPTHWISE_THREADS, 0, place, *k, vectors, count);
}

/* ---- dw of parts: a block has some vectors of channels of a part; its threads have every
 * DEPTHWISE_DOWNth row, and their sums are added one after the other ---- */

enum { DEPTHWISE_DOWN = 8, DEPTHWISE_ACROSS = 48 };

/* One tap of one row of windows, behind `sum`. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void sum_tap(const rg_conv_depthwise_parts_args &k, int64_t x,
                                               int64_t y, int64_t q, long_chain<real<T>, V> &sum)
{
    const rg_conv_shape &s = k.shape;
    int64_t begin, end;
    rg_conv_windows(&s.column, q, &begin, &end);
    const int64_t step = s.column.stride * s.x[2];
    x += (q * s.column.dilation - s.column.before) * s.x[2];
    for (int64_t j = begin; j < end; j++) {
        real<T> a[V], b[V];
        load_channels<T, V>(k.dy, y + j * s.y[2], a);
        load_channels<T, V>(k.x, x + j * step, b);
#pragma unroll
        for (int e = 0; e < V; e++)
            sum.run[e] = fma(a[e], b[e], sum.run[e]);
        sum.count();
    }
}

/* Adds what all threads of a column have, in order, and writes it. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void
end_tap(const rg_conv_depthwise_parts_args &k, int64_t part, int64_t tap, int64_t c, bool inside,
        int x, int y, int across, real<T> *shared, const long_chain<real<T>, V> &sum)
{
    const int64_t taps = k.shape.row.window * k.shape.column.window;
    for (int e = 0; e < V; e++)
        shared[(y * across + x) * V + e] = sum.value(e);
    __syncthreads();
    if (y == 0 && inside) {
        real<T> *to = (real<T> *)k.partial + (part * taps + tap) * k.shape.groups + c;
        for (int e = 0; e < V; e++) {
            real<T> all = shared[x * V + e];
            for (int i = 1; i < DEPTHWISE_DOWN; i++)
                all += shared[(i * across + x) * V + e];
            to[e] = all;
        }
    }
    __syncthreads();
}

template <rg_dtype T, int V>
static __global__ void __launch_bounds__(DEPTHWISE_DOWN *DEPTHWISE_ACROSS)
    depthwise_sum_parts(const __grid_constant__ rg_conv_depthwise_parts_args k, int across,
                        int64_t chunks, int64_t vectors, int64_t count)
{
    __shared__ real<T> shared[DEPTHWISE_DOWN * DEPTHWISE_ACROSS * V];
    const rg_conv_shape &s = k.shape;
    const int y = (int)threadIdx.x / across, x = (int)threadIdx.x - y * across;
    const int64_t rows = s.images * s.row.count;
    for (int64_t block = blockIdx.x; block < count; block += gridDim.x) {
        const int64_t part = block / chunks, v = (block - part * chunks) * across + x;
        const int64_t c = v * V, end = (part + 1) * k.part < rows ? (part + 1) * k.part : rows;
        const bool inside = v < vectors;
        for (int64_t p = 0; p < s.row.window; p++) {
            for (int64_t q = 0; q < s.column.window; q++) {
                long_chain<real<T>, V> sum;
                for (int64_t n = part * k.part + y; inside && n < end; n += DEPTHWISE_DOWN) {
                    const int64_t image = n / s.row.count, i = n - image * s.row.count;
                    const int64_t r = i * s.row.stride - s.row.before + p * s.row.dilation;
                    if (r < 0 || r >= s.row.size)
                        continue;
                    sum_tap<T, V>(k, image * s.x[0] + r * s.x[1] + c * s.x[3],
                                  image * s.y[0] + i * s.y[1] + c * s.y[3], q, sum);
                }
                end_tap<T, V>(k, part, p * s.column.window + q, c, inside, x, y, across, shared,
                              sum);
            }
        }
    }
}

template <rg_dtype T> static void depthwise_parts(const void *args, const rg_cuda_place *place)
{
    enum { V = DEPTHWISE_LANES<T> };
    const rg_conv_depthwise_parts_args *k = (const rg_conv_depthwise_parts_args *)args;
    const rg_conv_shape *s = &k->shape;
    const bool wide = depthwise_wide<T>(s, k->x, k->dy);
    if (rg_conv_depthwise_3x3_accepts(k)) {
        rg_conv_depthwise_3x3_parts(T, k, wide, place);
        return;
    }
    const int64_t vectors = s->groups / (wide ? V : 1);
    const int64_t chunks = ceil_div(vectors, DEPTHWISE_ACROSS);
    const int across = (int)ceil_div(vectors, chunks);
    const int64_t count = k->parts * chunks;
    launch(wide ? depthwise_sum_parts<T, V> : depthwise_sum_parts<T, 1>, blocks_of(count, 1),
           across * DEPTHWISE_DOWN, 0, place, *k, across, chunks, vectors, count);
}

/* dw: a block has some channels of a tap; SHARES threads share the parts of each. */
enum { JOIN_CHANNELS = 16, JOIN_SHARES = 16, JOIN_AHEAD = 32 };

template <rg_dtype T>
static __global__ void __launch_bounds__(JOIN_CHANNELS *JOIN_SHARES)
    depthwise_join_parts(const __grid_constant__ rg_conv_depthwise_join_args k, int64_t chunks)
{
    __shared__ double shared[JOIN_SHARES][JOIN_CHANNELS];
    const rg_conv_shape &s = k.shape;
    const int x = (int)threadIdx.x % JOIN_CHANNELS, share = (int)threadIdx.x / JOIN_CHANNELS;
    const int64_t tap = blockIdx.x / chunks, c = (blockIdx.x - tap * chunks) * JOIN_CHANNELS + x;
    const int64_t taps = s.row.window * s.column.window;
    const real<T> *from = (const real<T> *)k.partial + tap * s.groups + c;
    double sum = 0;
    wait_for_previous_launch();
    for (int64_t first = share; c < s.groups && first < k.parts;
         first += JOIN_SHARES * JOIN_AHEAD) {
        real<T> part[JOIN_AHEAD]; /* all on their way at once */
#pragma unroll
        for (int i = 0; i < JOIN_AHEAD; i++) {
            const int64_t n = first + i * JOIN_SHARES;
            part[i] = n < k.parts ? from[n * taps * s.groups] : 0;
        }
#pragma unroll
        for (int i = 0; i < JOIN_AHEAD; i++)
            sum += (double)part[i];
    }
    shared[share][x] = sum;
    __syncthreads();
    if (share != 0 || c >= s.groups)
        return;
    for (int i = 1; i < JOIN_SHARES; i++)
        sum += shared[i][x];
    const int64_t p = tap / s.column.window, q = tap - p * s.column.window;
    const int64_t to = s.w_first + c * s.w[0] + p * s.w[2] + q * s.w[3];
    put_weight_as<T>(k, to, (real<T>)sum);
}

template <rg_dtype T> static void depthwise_join(const void *args, const rg_cuda_place *place)
{
    const rg_conv_depthwise_join_args *k = (const rg_conv_depthwise_join_args *)args;
    const rg_conv_shape *s = &k->shape;
    const int64_t chunks = ceil_div(s->groups, JOIN_CHANNELS);
    launch_dependent(depthwise_join_parts<T>,
                     dim3((unsigned)(s->row.window * s->column.window * chunks)),
                     JOIN_CHANNELS * JOIN_SHARES, place, *k, chunks);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_CONV_TRANSPOSE_WEIGHTS, transpose),
    RG_CUDA_ROW(RG_CONV_DEPTHWISE, depthwise),
    RG_CUDA_ROW(RG_CONV_DEPTHWISE_PARTS, depthwise_parts),
    RG_CUDA_ROW(RG_CONV_DEPTHWISE_JOIN, depthwise_join),
};
RG_CUDA_TABLE(conv_depthwise, kernel_rows);
