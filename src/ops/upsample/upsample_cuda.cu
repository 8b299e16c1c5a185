/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample on a GPU. A thread computes one column of the result, row by row. What concerns rows,
 * and in the gradient columns too, is computed once per block, into shared memory. */
#include "backend/cuda/image.cuh"
#include "backend/cuda/long_sum.cuh"
#include "ops/upsample/upsample.h"

enum { THREADS = IMAGE_THREADS, ROWS = IMAGE_ROWS, LINES = 64 };

/* The one or two elements that an output reads along an axis; `first` is relative to some row or
 * column. */
template <rg_dtype T> struct tap {
    int32_t first;
    bool two;
    real<T> f, rest; /* weights of the second and of the first */
};

template <rg_dtype T>
static __device__ __forceinline__ tap<T> find_tap(const rg_upsample_axis &axis, int64_t o,
                                                  int64_t from)
{
    const rg_upsample_tap exact = rg_upsample_tap_of(&axis, o);
    const real<T> f = (real<T>)exact.f;
    return { (int32_t)(exact.first - from), exact.second > exact.first, f, 1 - f };
}

/* Some channels as they are stored. */
template <rg_dtype T, bool WIDE> struct stored {
    uint4 vector;
};
template <rg_dtype T> struct stored<T, false> {
    element<T> one;
};

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ stored<T, WIDE> fetch(const char *from)
{
    if constexpr (WIDE)
        return { load_vector(from) };
    else
        return { *(const element<T> *)from };
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void open(const stored<T, WIDE> &from, real<T> x[LANES<T, WIDE>])
{
    if constexpr (WIDE)
        unpack<T>(from.vector, x);
    else
        x[0] = to_real<T>(from.one);
}

/* ---- forward ---- */

/* Interpolates in a row of x between two columns. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void load_row(const char *left, int64_t right, const tap<T> &x,
                                                real<T> result[LANES<T, WIDE>])
{
    enum { V = LANES<T, WIDE> };
    open<T, WIDE>(fetch<T, WIDE>(left), result);
    if (x.two) {
        real<T> other[V];
        open<T, WIDE>(fetch<T, WIDE>(left + right), other);
#pragma unroll
        for (int e = 0; e < V; e++)
            result[e] = fma(x.f, other[e], x.rest * result[e]);
    }
}

/* Two rows of x are kept: the next row of y mostly lies between the same, or the next two. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void
forward_column(const rg_upsample_args &k, const image_index &p, int64_t from_row,
               int64_t from_column, const tap<T> &x, const tap<T> rows[ROWS])
{
    enum { V = LANES<T, WIDE> };
    const int64_t *const s = k.strides[0], *const t = k.strides[1];
    const char *const from = at<T>(k.from, p.image * s[0] + from_row * s[1] +
                                               (from_column + x.first) * s[2] + p.channel * s[3]);
    const int64_t down = s[1] * (int64_t)sizeof(element<T>);
    const int64_t right = s[2] * (int64_t)sizeof(element<T>);
    int64_t to = p.image * t[0] + p.row * t[1] + p.column * t[2] + p.channel * t[3];
    real<T> upper[V], lower[V], value[V];
    int32_t has_upper = -1, has_lower = -1;
    for (int r = 0; r < p.rows; r++, to += t[1]) {
        const tap<T> y = rows[r];
        if (y.first != has_upper && y.first == has_lower) {
#pragma unroll
            for (int e = 0; e < V; e++)
                upper[e] = lower[e];
        } else if (y.first != has_upper) {
            load_row<T, WIDE>(from + y.first * down, right, x, upper);
        }
        has_upper = y.first;
#pragma unroll
        for (int e = 0; e < V; e++)
            value[e] = upper[e];
        if (y.two) {
            if (y.first + 1 != has_lower)
                load_row<T, WIDE>(from + (y.first + 1) * down, right, x, lower);
            has_lower = y.first + 1;
#pragma unroll
            for (int e = 0; e < V; e++)
                value[e] = fma(y.f, lower[e], y.rest * upper[e]);
        }
        store_lanes<T, WIDE>(k.to, to, value, k.add, k.stream);
    }
}

template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    forward_columns(const __grid_constant__ rg_upsample_args k, const image_cut cut)
{
    __shared__ tap<T> rows[ROWS], columns[THREADS];
    __shared__ int64_t ends[2], from[2]; /* columns of the first thread and of the last */
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const image_index p = image_index_of<T, WIDE>(cut, b, k.axes[0].out, k.axes[1].out);
        __syncthreads();
        if (threadIdx.x == 0 || threadIdx.x == THREADS - 1)
            ends[threadIdx.x > 0] = p.column < k.axes[1].out ? p.column : k.axes[1].out - 1;
        if (threadIdx.x == 0) {
            from[0] = rg_upsample_tap_of(&k.axes[0], p.row).first;
            from[1] = rg_upsample_tap_of(&k.axes[1], p.column).first;
        }
        __syncthreads();
        const int64_t first = ends[0];
        if ((int)threadIdx.x < p.rows)
            rows[threadIdx.x] = find_tap<T>(k.axes[0], p.row + threadIdx.x, from[0]);
        for (int64_t c = threadIdx.x; c <= ends[1] - first; c += THREADS)
            columns[c] = find_tap<T>(k.axes[1], first + c, from[1]);
        __syncthreads();
        if (p.used)
            forward_column<T, WIDE>(k, p, from[0], from[1], columns[p.column - first], rows);
    }
}

/* ---- gradient: dx gathers, along rows of dy first, then down ----
 *
 * A thread goes down the rows of dy. Each looks at one row of dx or two neighbours, and never at
 * one above those of the row before: two sums are enough.
 *
 * Bilinear is bound by latency: over 110 registers per thread. Slower on an H200: more loads ahead,
 * a forced register limit, columns first with an exchange through shared memory, a thread per pixel
 * with all of its 9 or 16 loads at once. */

enum { MOST_TAPS = 4, LOADS = 8 };

/* Outputs that look at one column of dx, and the weights of the first ones. */
template <rg_dtype T> struct looks {
    int64_t begin, count;
    real<T> weight[MOST_TAPS];
};

template <rg_dtype T>
static __device__ __forceinline__ real<T> tap_weight(const rg_upsample_axis &axis, int64_t pixel,
                                                     int64_t o)
{
    const rg_upsample_tap exact = rg_upsample_tap_of(&axis, o);
    return exact.first == pixel ? 1 - (real<T>)exact.f : (real<T>)exact.f;
}

/* Columns `first` to `last`. */
template <rg_dtype T>
static __device__ __forceinline__ void find_columns(const rg_upsample_axis &axis, int64_t first,
                                                    int64_t last, looks<T> columns[THREADS])
{
    for (int i = threadIdx.x; i < (last - first + 1) * MOST_TAPS; i += THREADS) {
        const int c = i / MOST_TAPS, t = i % MOST_TAPS;
        const int64_t begin = rg_upsample_find(&axis, first + c, false);
        const int64_t end = rg_upsample_find(&axis, first + c + 1, true);
        columns[c].weight[t] = begin + t < end ? tap_weight<T>(axis, first + c, begin + t) : 0;
        if (t == 0) {
            columns[c].begin = begin;
            columns[c].count = end - begin;
        }
    }
}

/* What a thread has summed up: row `row` of dx and the one below, where row 0 is its first one. */
template <rg_dtype T, bool WIDE> struct march {
    int32_t row;
    char *to; /* where it goes */
    real<T> upper[LANES<T, WIDE>], lower[LANES<T, WIDE>];
};

/* Writes the rows above `row`, which are complete; those above the first belong to others. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void march_to(const rg_upsample_args &k, int32_t row,
                                                march<T, WIDE> &m)
{
    for (; m.row < row; m.row++) {
        if (m.row >= 0)
            store_lanes<T, WIDE>(m.to, 0, m.upper, k.add, k.stream);
        m.to += k.strides[1][1] * (int64_t)sizeof(element<T>);
#pragma unroll
        for (int e = 0; e < LANES<T, WIDE>; e++) {
            m.upper[e] = m.lower[e];
            m.lower[e] = 0;
        }
    }
}

/* Adds the outputs of a row of dy that read the column, from number TAPS on: rare. */
template <rg_dtype T, bool WIDE, int TAPS>
static __device__ __forceinline__ void sum_rest(const rg_upsample_args &k, const char *line,
                                                int64_t column, const looks<T> &c,
                                                real<T> sum[LANES<T, WIDE>])
{
#pragma unroll 1
    for (int64_t q = TAPS; q < c.count; q++) {
        const real<T> weight = tap_weight<T>(k.axes[1], column, c.begin + q);
        real<T> x[LANES<T, WIDE>];
        load_lanes<T, WIDE>(line, q * k.strides[0][2], x);
#pragma unroll
        for (int e = 0; e < LANES<T, WIDE>; e++)
            sum[e] = fma(weight, x[e], sum[e]);
    }
}

/* `count` rows of dy, whose taps are in `taps`: as many at once as make LOADS loads. */
template <rg_dtype T, bool WIDE, int TAPS>
static __device__ __forceinline__ void gradient_lines(const rg_upsample_args &k, const looks<T> &c,
                                                      int64_t column, const char *line, int count,
                                                      const tap<T> taps[LINES], march<T, WIDE> &m)
{
    enum { V = LANES<T, WIDE>, AHEAD = LOADS / TAPS };
    const int64_t down = k.strides[0][1] * (int64_t)sizeof(element<T>);
    const int64_t right = k.strides[0][2] * (int64_t)sizeof(element<T>);
    const int across = c.count < TAPS ? (int)c.count : (int)TAPS;
    for (int i = 0; i < count; i += AHEAD, line += AHEAD * down) {
        stored<T, WIDE> from[AHEAD][TAPS];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
#pragma unroll
            for (int q = 0; q < TAPS; q++) {
                if (i + a < count && q < across)
                    from[a][q] = fetch<T, WIDE>(line + a * down + q * right);
            }
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (i + a >= count)
                break;
            real<T> sum[V] = {}, x[V];
#pragma unroll
            for (int q = 0; q < TAPS; q++) {
                if (q < across) {
                    open<T, WIDE>(from[a][q], x);
#pragma unroll
                    for (int e = 0; e < V; e++)
                        sum[e] = fma(c.weight[q], x[e], sum[e]);
                }
            }
            if (c.count > TAPS)
                sum_rest<T, WIDE, TAPS>(k, line + a * down, column, c, sum);
            const tap<T> y = taps[i + a];
            march_to<T, WIDE>(k, y.first, m);
#pragma unroll
            for (int e = 0; e < V; e++) {
                m.upper[e] = fma(y.rest, sum[e], m.upper[e]);
                m.lower[e] = y.two ? fma(y.f, sum[e], m.lower[e]) : m.lower[e];
            }
        }
    }
}

template <rg_dtype T, bool WIDE, int TAPS>
static __global__ void __launch_bounds__(THREADS)
    gradient_columns(const __grid_constant__ rg_upsample_args k, const image_cut cut)
{
    __shared__ looks<T> columns[THREADS];
    __shared__ tap<T> taps[LINES];
    __shared__ int64_t ends[2];  /* columns of the first thread and of the last */
    __shared__ int64_t lines[2]; /* rows of dy that look at the rows of the block */
    const int64_t *const s = k.strides[0], *const t = k.strides[1];
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const image_index p = image_index_of<T, WIDE>(cut, b, k.axes[0].in, k.axes[1].in);
        __syncthreads();
        if (threadIdx.x == 0 || threadIdx.x == THREADS - 1)
            ends[threadIdx.x > 0] = p.column < k.axes[1].in ? p.column : k.axes[1].in - 1;
        if (threadIdx.x == 32)
            lines[0] = rg_upsample_find(&k.axes[0], p.row, false);
        if (threadIdx.x == 64)
            lines[1] = rg_upsample_find(&k.axes[0], p.row + p.rows, true);
        __syncthreads();
        const int64_t first = ends[0];
        find_columns<T>(k.axes[1], first, ends[1], columns);
        const looks<T> &c = columns[p.used ? p.column - first : 0];
        march<T, WIDE> m = { -1, NULL, {}, {} };
        m.to =
            at<T>(k.to, p.image * t[0] + (p.row - 1) * t[1] + p.column * t[2] + p.channel * t[3]);
        for (int64_t o = lines[0]; o < lines[1]; o += LINES) {
            const int count = (int)(lines[1] - o < LINES ? lines[1] - o : LINES);
            __syncthreads();
            for (int i = threadIdx.x; i < count; i += THREADS)
                taps[i] = find_tap<T>(k.axes[0], o + i, p.row);
            __syncthreads();
            if (p.used)
                gradient_lines<T, WIDE, TAPS>(
                    k, c, p.column,
                    at<T>(k.from, p.image * s[0] + o * s[1] + c.begin * s[2] + p.channel * s[3]),
                    count, taps, m);
        }
        if (p.used)
            march_to<T, WIDE>(k, p.rows, m);
    }
}

/* ---- gradient where many outputs look at a pixel: sums are cut into runs ---- */

template <rg_dtype T>
static __device__ __forceinline__ real<T> sum_line(const rg_upsample_args &k, int64_t line,
                                                   int64_t column, int64_t begin, int64_t end)
{
    long_chain<real<T>, 1> chain;
    for (int64_t o = begin; o < end; o++, chain.count())
        chain.run[0] = fma(tap_weight<T>(k.axes[1], column, o),
                           load<T>(k.from, line + o * k.strides[0][2]), chain.run[0]);
    real<T> sum;
    chain.end(&sum);
    return sum;
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    gradient_many(const __grid_constant__ rg_upsample_args k, const image_cut cut)
{
    const int64_t *const s = k.strides[0], *const t = k.strides[1];
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const image_index p = image_index_of<T, false>(cut, b, k.axes[0].in, k.axes[1].in);
        if (!p.used)
            continue;
        const int64_t begin = rg_upsample_find(&k.axes[1], p.column, false);
        const int64_t end = rg_upsample_find(&k.axes[1], p.column + 1, true);
        for (int64_t row = p.row; row < p.row + p.rows; row++) {
            const int64_t last = rg_upsample_find(&k.axes[0], row + 1, true);
            long_chain<real<T>, 1> chain;
            for (int64_t o = rg_upsample_find(&k.axes[0], row, false); o < last; o++, chain.count())
                chain.run[0] = fma(tap_weight<T>(k.axes[0], row, o),
                                   sum_line<T>(k, p.image * s[0] + o * s[1] + p.channel * s[3],
                                               p.column, begin, end),
                                   chain.run[0]);
            real<T> sum[1];
            chain.end(sum);
            store_lanes<T, false>(k.to,
                                  p.image * t[0] + row * t[1] + p.column * t[2] + p.channel * t[3],
                                  sum, k.add, k.stream);
        }
    }
}

/* The most outputs that look at one pixel, or a little more. */
static int64_t most_looks(const rg_upsample_axis *a)
{
    const double most = a->in > 1 && a->num > 0 ? 2 * a->den / a->num + 2 : (double)a->out;
    return most < (double)a->out ? (int64_t)most : a->out;
}

/* ---- launches ---- */

template <rg_dtype T> static bool is_wide(const rg_upsample_args *k)
{
    return k->dense && k->channels % VLEN<T> == 0 && is_wide_image<T>(k->from, k->to, k->strides);
}

template <rg_dtype T> static void upsample_forward(const void *args, const rg_cuda_target *target)
{
    const rg_upsample_args *k = (const rg_upsample_args *)args;
    const bool wide = is_wide<T>(k);
    launch_image<T>(wide ? forward_columns<T, true> : forward_columns<T, false>, k, wide, k->images,
                    k->axes[0].out, k->axes[1].out, k->channels, target);
}

template <rg_dtype T> static void upsample_gradient(const void *args, const rg_cuda_target *target)
{
    const rg_upsample_args *k = (const rg_upsample_args *)args;
    if (most_looks(&k->axes[0]) > RG_CHAIN_RUN || most_looks(&k->axes[1]) > RG_CHAIN_RUN) {
        launch_image<T>(gradient_many<T>, k, false, k->images, k->axes[0].in, k->axes[1].in,
                        k->channels, target);
        return;
    }
    const bool wide = is_wide<T>(k);
    const bool two = k->axes[1].tap != RG_TAP_LINEAR && k->axes[1].out <= 2 * k->axes[1].in;
    launch_image<T>(two    ? wide ? gradient_columns<T, true, 2> : gradient_columns<T, false, 2>
                       : wide ? gradient_columns<T, true, MOST_TAPS>
                           : gradient_columns<T, false, MOST_TAPS>,
                    k, wide, k->images, k->axes[0].in, k->axes[1].in, k->channels, target);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_UPSAMPLE_FORWARD, upsample_forward),
    RG_CUDA_ROW(RG_UPSAMPLE_GRADIENT, upsample_gradient),
};
RG_CUDA_TABLE(upsample, kernel_rows);
