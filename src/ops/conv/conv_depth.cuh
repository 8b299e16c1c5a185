/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution on a GPU. Included by conv_cuda.cu, whose finish() it uses. A thread has V
 * neighbouring channels, 16 bytes where it can, and goes down a column. Sums follow one order in
 * all kernels: taps in the order of the source. */
#ifndef RG_OPS_CONV_DEPTH_CUH
#define RG_OPS_CONV_DEPTH_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/conv/conv.h"
#include "ops/neuron/any_neuron.cuh"

enum { DEPTH_THREADS = 128, DEPTH_ROWS = 14, DEPTH_MOST_BLOCKS = 1 << 30 };

/* Channels of a thread. */
template <rg_dtype T> constexpr int DEPTH_LANES = T == RG_F64 ? 2 : 4;

/* ---- V neighbouring channels ---- */

template <rg_dtype T, int V>
static __device__ __forceinline__ void load_channels(const void *data, int64_t i, real<T> x[V])
{
    if constexpr (V == 1) {
        x[0] = load<T>(data, i);
    } else if constexpr (V == VLEN<T>) {
        unpack<T>(load_vector(at<T>(data, i)), x);
    } else { /* 4 of 16 bits */
        const uint2 both = *(const uint2 *)at<T>(data, i);
        x[0] = to_real<T>((uint16_t)both.x);
        x[1] = to_real<T>((uint16_t)(both.x >> 16));
        x[2] = to_real<T>((uint16_t)both.y);
        x[3] = to_real<T>((uint16_t)(both.y >> 16));
    }
}

template <rg_dtype T, int V>
static __device__ __forceinline__ void store_channels(void *data, int64_t i, const real<T> x[V],
                                                      bool stream)
{
    if constexpr (V == 1) {
        store<T>(data, i, x[0]);
    } else if constexpr (V == VLEN<T>) {
        store_vector(at<T>(data, i), pack<T>(x), stream);
    } else {
        const uint2 both = make_uint2(pack_two<T>(x[0], x[1]), pack_two<T>(x[2], x[3]));
        if (stream)
            __stcs((uint2 *)at<T>(data, i), both);
        else
            *(uint2 *)at<T>(data, i) = both;
    }
}

/* Whether V channels can be loaded at every pixel of a tensor whose channels are neighbours. */
template <rg_dtype T> static bool depth_aligned(const void *data, const int64_t step[4])
{
    enum { V = DEPTH_LANES<T> };
    return (uintptr_t)data % (V * sizeof(element<T>)) == 0 && step[0] % V == 0 &&
           step[1] % V == 0 && step[2] % V == 0;
}

/* ---- weights as real, (taps, channels) ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(DEPTH_THREADS)
    turn_weights(const __grid_constant__ rg_conv_turn_args k, int64_t count)
{
    const rg_conv_shape &s = k.shape;
    const int64_t step = (int64_t)gridDim.x * DEPTH_THREADS;
    for (int64_t n = (int64_t)blockIdx.x * DEPTH_THREADS + threadIdx.x; n < count; n += step) {
        const int64_t tap = n / s.groups, c = n - tap * s.groups;
        const int64_t p = tap / s.column.window, q = tap - p * s.column.window;
        ((real<T> *)k.turned)[n] = load<T>(k.w, s.w_first + c * s.w[0] + p * s.w[2] + q * s.w[3]);
    }
}

static int64_t depth_blocks(int64_t count)
{
    const int64_t blocks = ceil_div(count, DEPTH_THREADS);
    return blocks < DEPTH_MOST_BLOCKS ? blocks : (int64_t)DEPTH_MOST_BLOCKS;
}

template <rg_dtype T> static void turn(const void *args, const rg_cuda_place *place)
{
    const rg_conv_turn_args *k = (const rg_conv_turn_args *)args;
    const int64_t count = k->shape.row.window * k->shape.column.window * k->shape.groups;
    launch(turn_weights<T>, depth_blocks(count), DEPTH_THREADS, 0, place, *k, count);
}

/* ---- either direction ---- */

template <rg_dtype T, int V>
static __device__ __forceinline__ void finish_channels(const rg_conv_depth_args &k, int64_t to,
                                                       int64_t z, int64_t c, int64_t step,
                                                       real<T> sum[V])
{
    if (!k.plain) {
        for (int e = 0; e < V; e++)
            finish<T>(k, to, z, c + e, step, sum[e]);
        return;
    }
#pragma unroll
    for (int e = 0; e < V; e++) {
        if (k.has_b)
            sum[e] += load<T>(k.b, c + e);
        if (k.neuron.kind == RG_NEURON_RELU)
            sum[e] = neuron_relu<T>(neuron_constants_in<T>(k.neuron.numbers), sum[e], sum[e]);
    }
    if (V > 1)
        store_channels<T, V>(k.to, to + c, sum, k.stream);
    else
        store<T>(k.to, to + c * step, sum[0]);
}

/* Tap number n in the order of the source, and the pixel of the source that it is for result r, or
 * -1. */
static __device__ __forceinline__ int64_t depth_tap(const rg_conv_axis &a, bool data, int64_t r,
                                                    int64_t n, int64_t &at)
{
    const int64_t p = data ? a.window - 1 - n : n;
    at = data ? rg_conv_window(&a, r, p) : r * a.stride - a.before + p * a.dilation;
    at = at < (data ? a.count : a.size) ? at : -1;
    return p;
}

template <rg_dtype T, int V>
static __global__ void __launch_bounds__(DEPTH_THREADS)
    depth_any(const __grid_constant__ rg_conv_depth_args k, int64_t vectors, int64_t count)
{
    const rg_conv_shape &s = k.shape;
    const int64_t *const source = k.data ? s.y : s.x, *const result = k.data ? s.x : s.y;
    const int64_t rows = k.data ? s.row.size : s.row.count;
    const int64_t columns = k.data ? s.column.size : s.column.count;
    const int64_t step = (int64_t)gridDim.x * DEPTH_THREADS;
    for (int64_t n = (int64_t)blockIdx.x * DEPTH_THREADS + threadIdx.x; n < count; n += step) {
        const int64_t pixel = n / vectors, c = (n - pixel * vectors) * V;
        const int64_t line = pixel / columns, column = pixel - line * columns;
        const int64_t image = line / rows, row = line - image * rows;
        real<T> sum[V] = {};
        for (int64_t i = 0; i < s.row.window; i++) {
            int64_t r, t;
            const int64_t p = depth_tap(s.row, k.data, row, i, r);
            for (int64_t j = 0; r >= 0 && j < s.column.window; j++) {
                const int64_t q = depth_tap(s.column, k.data, column, j, t);
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
        finish_channels<T, V>(k, image * result[0] + row * result[1] + column * result[2],
                              image * k.z_step[0] + row * k.z_step[1] + column * k.z_step[2], c,
                              result[3], sum);
    }
}

/* ---- windows of 3 by 3, all steps 1: a thread goes down some rows with three sums ---- */

struct depth_grid {
    int32_t vectors, columns, rows, strips; /* of the result */
    int32_t sources, source_columns;        /* rows and columns of the source */
    int32_t row_offset, column_offset;      /* the first tap of result 0 */
    int32_t blocks;                         /* of a strip */
};

template <rg_dtype T> struct depth_line {
    real<T> x[3][DEPTH_LANES<T>];
};

/* Three neighbours of a row of the source; 0 outside. */
template <rg_dtype T>
static __device__ __forceinline__ depth_line<T>
load_line(const void *from, int64_t image, const int64_t step[4], const depth_grid &g, int32_t row,
          int32_t column, int32_t c)
{
    enum { V = DEPTH_LANES<T> };
    depth_line<T> l = {};
    if (row < 0 || row >= g.sources)
        return l;
#pragma unroll
    for (int q = 0; q < 3; q++)
        if (column + q >= 0 && column + q < g.source_columns)
            load_channels<T, V>(from, image + row * step[1] + (column + q) * step[2] + c, l.x[q]);
    return l;
}

template <rg_dtype T>
static __device__ __forceinline__ void
add_line(const depth_line<T> &l, const real<T> w[3][DEPTH_LANES<T>], real<T> sum[DEPTH_LANES<T>])
{
#pragma unroll
    for (int q = 0; q < 3; q++)
#pragma unroll
        for (int e = 0; e < DEPTH_LANES<T>; e++)
            sum[e] = fma(l.x[q][e], w[q][e], sum[e]);
}

template <rg_dtype T, bool DATA>
static __global__ void __launch_bounds__(DEPTH_THREADS)
    depth_three(const __grid_constant__ rg_conv_depth_args k, const __grid_constant__ depth_grid g)
{
    enum { V = DEPTH_LANES<T> };
    const rg_conv_shape &s = k.shape;
    const int64_t *const source = DATA ? s.y : s.x, *const result = DATA ? s.x : s.y;
    const int32_t strip = blockIdx.x / g.blocks, block = blockIdx.x - strip * g.blocks;
    const int32_t n = block * DEPTH_THREADS + threadIdx.x, j = n / g.vectors;
    const int32_t c = (n - j * g.vectors) * V;
    if (j >= g.columns)
        return;
    const int32_t image = strip / g.strips, first = (strip - image * g.strips) * DEPTH_ROWS;
    const int32_t end = first + DEPTH_ROWS < g.rows ? first + DEPTH_ROWS : g.rows;
    real<T> w[3][3][V];
#pragma unroll
    for (int t = 0; t < 9; t++) {
        const real<T> *from = (const real<T> *)k.w + (DATA ? 8 - t : t) * k.channels + c;
#pragma unroll
        for (int e = 0; e < V; e++)
            w[t / 3][t % 3][e] = from[e];
    }
    const int64_t base = image * source[0], to = image * result[0] + j * result[2];
    const int32_t column = j + g.column_offset;
    real<T> sum[3][V] = {};
    int32_t row = first + g.row_offset;
    depth_line<T> next = load_line<T>(k.from, base, source, g, row, column, c);
#pragma unroll 2
    for (int32_t i = first - 2; i < end;
         i++, row++) { /* the result that is whole behind this row */
        const depth_line<T> l = next;
        next = load_line<T>(k.from, base, source, g, i + 1 < end ? row + 1 : -1, column, c);
        add_line<T>(l, w[2], sum[0]);
        add_line<T>(l, w[1], sum[1]);
        add_line<T>(l, w[0], sum[2]);
        if (i >= first)
            finish_channels<T, V>(k, to + i * result[1],
                                  image * k.z_step[0] + i * k.z_step[1] + j * k.z_step[2], c, 1,
                                  sum[0]);
#pragma unroll
        for (int e = 0; e < V; e++) {
            sum[0][e] = sum[1][e];
            sum[1][e] = sum[2][e];
            sum[2][e] = 0;
        }
    }
}

static bool is_three(const rg_conv_axis *a)
{
    return a->window == 3 && a->stride == 1 && a->dilation == 1;
}

/* False where the kernel above does not serve. */
template <rg_dtype T>
static bool launch_three(const rg_conv_depth_args *k, const rg_cuda_place *place)
{
    enum { V = DEPTH_LANES<T> };
    const rg_conv_shape *s = &k->shape;
    const bool data = k->data;
    if (!is_three(&s->row) || !is_three(&s->column) || s->groups / V * s->column.size >= 1 << 28 ||
        s->groups / V * s->column.count >= 1 << 28)
        return false;
    depth_grid g;
    g.vectors = (int32_t)(s->groups / V);
    g.rows = (int32_t)(data ? s->row.size : s->row.count);
    g.columns = (int32_t)(data ? s->column.size : s->column.count);
    g.sources = (int32_t)(data ? s->row.count : s->row.size);
    g.source_columns = (int32_t)(data ? s->column.count : s->column.size);
    g.row_offset = (int32_t)(data ? s->row.before - 2 : -s->row.before);
    g.column_offset = (int32_t)(data ? s->column.before - 2 : -s->column.before);
    g.strips = (int32_t)ceil_div(g.rows, DEPTH_ROWS);
    g.blocks = (int32_t)ceil_div((int64_t)g.vectors * g.columns, DEPTH_THREADS);
    const int64_t blocks = s->images * g.strips * g.blocks;
    if (blocks > DEPTH_MOST_BLOCKS)
        return false;
    launch(data ? depth_three<T, true> : depth_three<T, false>, blocks, DEPTH_THREADS, 0, place, *k,
           g);
    return true;
}

template <rg_dtype T> static void depth(const void *args, const rg_cuda_place *place)
{
    enum { V = DEPTH_LANES<T> };
    const rg_conv_depth_args *k = (const rg_conv_depth_args *)args;
    const rg_conv_shape *s = &k->shape;
    const bool wide = s->x_dense && s->y_dense && s->groups % V == 0 &&
                      depth_aligned<T>(k->from, k->data ? s->y : s->x) &&
                      depth_aligned<T>(k->to, k->data ? s->x : s->y);
    const int64_t pixels = k->data ? s->row.size * s->column.size : s->row.count * s->column.count;
    const int64_t vectors = s->groups / (wide ? V : 1), count = s->images * pixels * vectors;
    if (wide && launch_three<T>(k, place))
        return;
    launch(wide ? depth_any<T, V> : depth_any<T, 1>, depth_blocks(count), DEPTH_THREADS, 0, place,
           *k, vectors, count);
}

/* ---- dw of parts: a block has some vectors of channels of a part; its threads have every
 * DEPTH_DOWNth row, and their sums are added one after the other ---- */

enum { DEPTH_DOWN = 8, DEPTH_ACROSS = 48 };

/* One tap of one row of windows, behind `sum`. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void sum_tap(const rg_conv_depth_parts_args &k, int64_t x,
                                               int64_t y, int64_t q, real<T> sum[V])
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
            sum[e] = fma(a[e], b[e], sum[e]);
    }
}

/* Three neighbouring taps, all steps 1: column t of x meets windows t + before - q. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void sum_three(const rg_conv_depth_parts_args &k, int64_t x,
                                                 int64_t y, real<T> sum[3][V])
{
    const rg_conv_axis &a = k.shape.column;
    const int64_t column = k.shape.x[2], step = k.shape.y[2];
    real<T> g[3][V] = {}; /* dy of windows j, j - 1, j - 2 */
    const int32_t size = (int32_t)a.size, count = (int32_t)a.count;
    int32_t t = a.before < 0 ? (int32_t)-a.before : 0; /* the first column that window 0 has */
    for (int q = 1; q < 3; q++) { /* windows before the first one that column t brings in */
        const int32_t j = t + (int32_t)a.before - q;
        if (j >= 0 && j < count)
            load_channels<T, V>(k.dy, y + j * step, g[q]);
    }
#pragma unroll 4
    for (; t < size && t + (int32_t)a.before - 2 < count; t++) {
        const int32_t j = t + (int32_t)a.before;
        real<T> b[V];
        load_channels<T, V>(k.x, x + t * column, b);
        if (j < count)
            load_channels<T, V>(k.dy, y + j * step, g[0]);
#pragma unroll
        for (int q = 0; q < 3; q++)
            if (j - q >= 0 && j - q < count) {
#pragma unroll
                for (int e = 0; e < V; e++)
                    sum[q][e] = fma(g[q][e], b[e], sum[q][e]);
            }
#pragma unroll
        for (int e = 0; e < V; e++) {
            g[2][e] = g[1][e];
            g[1][e] = g[0][e];
        }
    }
}

/* Adds what all threads of a column have, in order, and writes it. */
template <rg_dtype T, int V, int TAPS>
static __device__ __forceinline__ void end_taps(const rg_conv_depth_parts_args &k, int64_t part,
                                                int64_t tap, int64_t c, bool inside, int x, int y,
                                                int across, real<T> *room, real<T> sum[TAPS][V])
{
    const int64_t taps = k.shape.row.window * k.shape.column.window;
#pragma unroll
    for (int q = 0; q < TAPS; q++) {
        for (int e = 0; e < V; e++)
            room[(y * across + x) * V + e] = sum[q][e];
        __syncthreads();
        if (y == 0 && inside) {
            real<T> *to = (real<T> *)k.partial + (part * taps + tap + q) * k.shape.groups + c;
            for (int e = 0; e < V; e++) {
                real<T> all = room[x * V + e];
                for (int i = 1; i < DEPTH_DOWN; i++)
                    all += room[(i * across + x) * V + e];
                to[e] = all;
            }
        }
        __syncthreads();
    }
}

template <rg_dtype T, int V, bool THREE>
static __global__ void __launch_bounds__(DEPTH_DOWN *DEPTH_ACROSS)
    depth_sum_parts(const __grid_constant__ rg_conv_depth_parts_args k, int across, int64_t chunks,
                    int64_t vectors, int64_t count)
{
    __shared__ real<T> room[DEPTH_DOWN * DEPTH_ACROSS * V];
    const rg_conv_shape &s = k.shape;
    const int y = (int)threadIdx.x / across, x = (int)threadIdx.x - y * across;
    const int64_t rows = s.images * s.row.count;
    for (int64_t block = blockIdx.x; block < count; block += gridDim.x) {
        const int64_t part = block / chunks, v = (block - part * chunks) * across + x;
        const int64_t c = v * V, end = (part + 1) * k.part < rows ? (part + 1) * k.part : rows;
        const bool inside = v < vectors;
        for (int64_t p = 0; p < s.row.window; p++) {
            for (int64_t q = 0; q < s.column.window; q += THREE ? 3 : 1) {
                real<T> sum[THREE ? 3 : 1][V] = {};
                for (int64_t n = part * k.part + y; inside && n < end; n += DEPTH_DOWN) {
                    const int64_t image = n / s.row.count, i = n - image * s.row.count;
                    const int64_t r = i * s.row.stride - s.row.before + p * s.row.dilation;
                    if (r < 0 || r >= s.row.size)
                        continue;
                    const int64_t from = image * s.x[0] + r * s.x[1] + c * s.x[3];
                    const int64_t dy = image * s.y[0] + i * s.y[1] + c * s.y[3];
                    if constexpr (THREE)
                        sum_three<T, V>(k, from, dy, sum);
                    else
                        sum_tap<T, V>(k, from, dy, q, sum[0]);
                }
                end_taps<T, V, THREE ? 3 : 1>(k, part, p * s.column.window + q, c, inside, x, y,
                                              across, room, sum);
            }
        }
    }
}

template <rg_dtype T> static void depth_parts(const void *args, const rg_cuda_place *place)
{
    enum { V = DEPTH_LANES<T> };
    const rg_conv_depth_parts_args *k = (const rg_conv_depth_parts_args *)args;
    const rg_conv_shape *s = &k->shape;
    const bool wide = s->x_dense && s->y_dense && s->groups % V == 0 &&
                      depth_aligned<T>(k->x, s->x) && depth_aligned<T>(k->dy, s->y);
    const int64_t vectors = s->groups / (wide ? V : 1);
    const int64_t chunks = ceil_div(vectors, DEPTH_ACROSS);
    const int across = (int)ceil_div(vectors, chunks);
    const int64_t count = k->parts * chunks;
    const int64_t blocks = count < DEPTH_MOST_BLOCKS ? count : (int64_t)DEPTH_MOST_BLOCKS;
    const bool three = is_three(&s->column);
    launch(three  ? wide ? depth_sum_parts<T, V, true> : depth_sum_parts<T, 1, true>
            : wide ? depth_sum_parts<T, V, false>
                  : depth_sum_parts<T, 1, false>,
           blocks, across * DEPTH_DOWN, 0, place, *k, across, chunks, vectors, count);
}

/* dw: a block has 32 channels of a tap; its warps share the parts. */
template <rg_dtype T>
static __global__ void __launch_bounds__(256)
    depth_join_parts(const __grid_constant__ rg_conv_depth_join_args k, int64_t chunks)
{
    enum { SHARES = 8 };
    __shared__ double room[SHARES][32];
    const rg_conv_shape &s = k.shape;
    const int64_t tap = blockIdx.x / chunks,
                  c = (blockIdx.x - tap * chunks) * 32 + threadIdx.x % 32;
    const int64_t taps = s.row.window * s.column.window;
    const int share = (int)threadIdx.x / 32;
    double sum = 0;
    if (c < s.groups)
        for (int64_t part = share; part < k.parts; part += SHARES)
            sum += (double)((const real<T> *)k.partial)[(part * taps + tap) * s.groups + c];
    room[share][threadIdx.x % 32] = sum;
    __syncthreads();
    if (share != 0 || c >= s.groups)
        return;
    for (int i = 1; i < SHARES; i++)
        sum += room[i][threadIdx.x];
    const int64_t p = tap / s.column.window, q = tap - p * s.column.window;
    const int64_t to = s.w_first + c * s.w[0] + p * s.w[2] + q * s.w[3];
    const real<T> value = (real<T>)sum;
    store<T>(k.dw, to, k.add ? load<T>(k.dw, to) + value : value);
}

template <rg_dtype T> static void depth_join(const void *args, const rg_cuda_place *place)
{
    const rg_conv_depth_join_args *k = (const rg_conv_depth_join_args *)args;
    const rg_conv_shape *s = &k->shape;
    const int64_t chunks = ceil_div(s->groups, 32);
    launch(depth_join_parts<T>, s->row.window * s->column.window * chunks, 256, 0, place, *k,
           chunks);
}

#endif
