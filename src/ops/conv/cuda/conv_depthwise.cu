/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution on a GPU: a thread has V neighbouring channels of a pixel. */
#include "backend/cuda/long_sum.cuh"
#include "core/integer.h"
#include "ops/conv/cuda/conv_depthwise.cuh"

enum { DEPTHWISE_THREADS = 128 };

/* ---- weights as real, (taps, channels) ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(DEPTHWISE_THREADS)
    transpose_weights_kernel(const __grid_constant__ depthwise_transpose_args k, int64_t count)
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

template <rg_dtype T>
static void transpose(const depthwise_transpose_args *k, const rg_cuda_target *target)
{
    const int64_t count = k->shape.row.window * k->shape.column.window * k->shape.groups;
    launch(transpose_weights_kernel<T>, blocks_of(count, DEPTHWISE_THREADS), DEPTHWISE_THREADS, 0,
           target, *k, count);
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
    depthwise_any(const __grid_constant__ depthwise_args k, int64_t vectors, int64_t count)
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

template <rg_dtype T> static void depthwise(const depthwise_args *k, const rg_cuda_target *target)
{
    enum { V = DEPTHWISE_CHANNELS<T> };
    const rg_conv_shape *s = &k->shape;
    const bool wide = depthwise_wide<T>(k);
    const int64_t pixels = k->data ? s->row.size * s->column.size : s->row.count * s->column.count;
    const int64_t vectors = s->groups / (wide ? V : 1), count = s->images * pixels * vectors;
    launch(wide ? depthwise_any<T, V> : depthwise_any<T, 1>, blocks_of(count, DEPTHWISE_THREADS),
           DEPTHWISE_THREADS, 0, target, *k, vectors, count);
}

/* ---- dw of parts: a block has some vectors of channels of a part; its threads have every
 * DEPTHWISE_DOWNth row, and their sums are added one after the other ---- */

enum { DEPTHWISE_DOWN = 8, DEPTHWISE_ACROSS = 48 };

/* Adds one tap of one row of windows to `sum`. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void sum_tap(const depthwise_parts_args &k, int64_t x, int64_t y,
                                               int64_t q, long_chain<real<T>, V> &sum)
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

/* The position of a thread in its block, and its channels. */
struct depthwise_thread {
    int x, y, across; /* `across` threads have each row */
    int64_t part, c;  /* of which channels c to c + V - 1, if `inside` */
    bool inside;
};

/* Adds what all threads of a column have, in order, and writes it. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void end_tap(const depthwise_parts_args &k,
                                               const depthwise_thread &own, int64_t tap,
                                               real<T> *shared, const long_chain<real<T>, V> &sum)
{
    const int64_t taps = k.shape.row.window * k.shape.column.window;
    for (int e = 0; e < V; e++)
        shared[(own.y * own.across + own.x) * V + e] = sum.value(e);
    __syncthreads();
    if (own.y == 0 && own.inside) {
        real<T> *to = (real<T> *)k.partial + (own.part * taps + tap) * k.shape.groups + own.c;
        for (int e = 0; e < V; e++) {
            real<T> all = shared[own.x * V + e];
            for (int i = 1; i < DEPTHWISE_DOWN; i++)
                all += shared[(i * own.across + own.x) * V + e];
            to[e] = all;
        }
    }
    __syncthreads();
}

template <rg_dtype T, int V>
static __global__ void __launch_bounds__(DEPTHWISE_DOWN *DEPTHWISE_ACROSS)
    depthwise_partials(const __grid_constant__ depthwise_parts_args k, int across, int64_t chunks,
                       int64_t vectors, int64_t count)
{
    __shared__ real<T> shared[DEPTHWISE_DOWN * DEPTHWISE_ACROSS * V];
    const rg_conv_shape &s = k.shape;
    const int y = (int)threadIdx.x / across, x = (int)threadIdx.x - y * across;
    const int64_t rows = s.images * s.row.count;
    for (int64_t block = blockIdx.x; block < count; block += gridDim.x) {
        const int64_t part = block / chunks, v = (block - part * chunks) * across + x;
        const int64_t c = v * V, end = (part + 1) * k.part < rows ? (part + 1) * k.part : rows;
        const depthwise_thread own = { x, y, across, part, c, v < vectors };
        for (int64_t tap = 0; tap < s.row.window * s.column.window; tap++) {
            const int64_t p = tap / s.column.window, q = tap - p * s.column.window;
            long_chain<real<T>, V> sum;
            for (int64_t n = part * k.part + y; own.inside && n < end; n += DEPTHWISE_DOWN) {
                const int64_t image = n / s.row.count, i = n - image * s.row.count;
                const int64_t r = i * s.row.stride - s.row.before + p * s.row.dilation;
                if (r < 0 || r >= s.row.size)
                    continue;
                sum_tap<T, V>(k, image * s.x[0] + r * s.x[1] + c * s.x[3],
                              image * s.y[0] + i * s.y[1] + c * s.y[3], q, sum);
            }
            end_tap<T, V>(k, own, tap, shared, sum);
        }
    }
}

template <rg_dtype T>
static void sum_partials(const depthwise_parts_args *k, const rg_cuda_target *target)
{
    enum { V = DEPTHWISE_CHANNELS<T> };
    const rg_conv_shape *s = &k->shape;
    const bool wide = depthwise_wide<T>(s, k->x, k->dy);
    if (depthwise_has_3x3_partials(s)) {
        rg_conv_depthwise_3x3_partials[T](k, wide, target);
        return;
    }
    const int64_t vectors = s->groups / (wide ? V : 1);
    const int64_t chunks = ceil_div(vectors, DEPTHWISE_ACROSS);
    const int across = (int)ceil_div(vectors, chunks);
    const int64_t count = k->parts * chunks;
    launch(wide ? depthwise_partials<T, V> : depthwise_partials<T, 1>, blocks_of(count, 1),
           across * DEPTHWISE_DOWN, 0, target, *k, across, chunks, vectors, count);
}

/* dw: a block has JOIN_CHANNELS channels of a tap. */
enum { JOIN_CHANNELS = SPLIT_K_THREADS / SPLIT_K_SHARES };

template <rg_dtype T>
static __global__ void __launch_bounds__(SPLIT_K_THREADS)
    depthwise_join(const __grid_constant__ rg_conv_weights_args k, const void *partial,
                   int64_t parts, int64_t chunks)
{
    const rg_conv_shape &s = k.shape;
    const int64_t tap = blockIdx.x / chunks, taps = s.row.window * s.column.window;
    const int64_t c =
        (blockIdx.x - tap * chunks) * JOIN_CHANNELS + (int)threadIdx.x % JOIN_CHANNELS;
    wait_for_previous_launch();
    const double sum = split_k_sum<SPLIT_K_SHARES>((const real<T> *)partial + tap * s.groups + c,
                                                   taps * s.groups, c < s.groups ? parts : 0);
    if (threadIdx.x >= JOIN_CHANNELS || c >= s.groups)
        return;
    const int64_t p = tap / s.column.window, q = tap - p * s.column.window;
    put_weight<T>(k, s.w_first + c * s.w[0] + p * s.w[2] + q * s.w[3], (real<T>)sum);
}

/* ---- strategies ---- */

static bool accepts(rg_conv_call *call)
{
    return rg_conv_is_depthwise(call->shape);
}

static depthwise_args depthwise_of(const rg_conv_call *call)
{
    const rg_conv_args *k = call->args;
    depthwise_args own = {};
    own.from = k->from;
    own.w = k->w;
    own.b = k->b;
    own.to = k->to;
    own.z = k->z;
    own.shape = k->shape;
    own.channels = k->shape.groups;
    own.b_step = k->has_b ? k->b_step : 1;
    for (int d = 0; d < 4; d++)
        own.z_step[d] = k->z_step[d];
    own.neuron = k->neuron;
    own.data = call->direction == RG_CONV_DATA;
    own.has_b = k->has_b;
    own.has_z = k->has_z;
    own.add = k->add;
    own.stream = k->stream;
    own.plain = !k->has_z && !k->add && k->neuron.kind <= RG_NEURON_RELU && own.b_step == 1;
    return own;
}

template <rg_dtype T> static bool run_as(const rg_conv_call *call, scratch_arena *arena)
{
    const rg_conv_shape *s = call->shape;
    depthwise_args k = depthwise_of(call);
    if (depthwise_is_3x3(s)) {
        if (arena->enqueue)
            rg_conv_depthwise_3x3[T](&k, arena->target);
        return true;
    }
    const int64_t weights = s->row.window * s->column.window * s->groups;
    void *const transposed = arena_alloc(arena, (size_t)weights * sizeof(real<T>));
    if (arena->enqueue) {
        const depthwise_transpose_args w = { k.w, transposed, *s };
        transpose<T>(&w, arena->target);
        k.w = transposed;
        depthwise<T>(&k, arena->target);
    }
    return true;
}

/* Rows of windows of a part: at most about 1024 windows, which several threads share, and less
 * where parts would be few. */
static int64_t rows_of_part(const rg_conv_shape *s)
{
    enum { MAX_WINDOWS = 1024, MIN_WINDOWS = 392, WANTED_PARTS = 512 };
    const int64_t across = s->column.count > 0 ? s->column.count : 1;
    const int64_t windows = s->images * s->row.count * across / WANTED_PARTS;
    return ceil_div(rg_clamp(windows, MIN_WINDOWS, MAX_WINDOWS), across);
}

template <rg_dtype T> static bool run_weights_as(const rg_conv_call *call, scratch_arena *arena)
{
    const rg_conv_weights_args *k = call->weights_args;
    const rg_conv_shape *s = call->shape;
    const int64_t taps = s->row.window * s->column.window, part = rows_of_part(s);
    depthwise_parts_args args = {};
    args.x = k->x;
    args.dy = k->dy;
    args.shape = *s;
    args.part = part;
    args.parts = ceil_div(s->images * s->row.count, part);
    args.partial = arena_alloc(arena, (size_t)(args.parts * taps * s->groups) * sizeof(real<T>));
    if (!arena->enqueue)
        return true;
    const int64_t chunks = ceil_div(s->groups, JOIN_CHANNELS);
    if (args.parts > 0)
        sum_partials<T>(&args, arena->target);
    launch_dependent(depthwise_join<T>, dim3((unsigned)(taps * chunks)), SPLIT_K_THREADS,
                     arena->target, *k, (const void *)args.partial, args.parts, chunks);
    return true;
}

typedef bool runner(const rg_conv_call *call, scratch_arena *arena);

static bool run(const rg_conv_call *call, scratch_arena *arena)
{
    static runner *const by_dtype[] = RG_EVERY_DTYPE(run_as);
    return by_dtype[call->dtype](call, arena);
}

static bool run_weights(const rg_conv_call *call, scratch_arena *arena)
{
    static runner *const by_dtype[] = RG_EVERY_DTYPE(run_weights_as);
    return by_dtype[call->dtype](call, arena);
}

extern "C" const rg_conv_strategy rg_conv_depthwise = { "depthwise", accepts, run };
extern "C" const rg_conv_strategy rg_conv_depthwise_weights = { "depthwise", accepts, run_weights };
