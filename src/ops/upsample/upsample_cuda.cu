/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample on a GPU. A thread has some channels of a column (a vector of them where it can) and
 * goes down ROWS rows of the result: what it knows of its column serves all of them. What is known
 * of the rows stands in shared memory. */
#include "backend/cuda/kernel.cuh"
#include "ops/upsample/upsample.h"

enum { THREADS = 256, ROWS = 8, TAPS = 4 };

/* Channels that a thread has. */
template <rg_dtype T, bool WIDE> constexpr int LANES = WIDE ? VLEN<T> : 1;

/* How the result is cut into blocks: columns and channels of a row into chunks of THREADS, rows
 * into groups of ROWS. */
typedef struct cut {
    int64_t parts;  /* threads for the channels of a pixel */
    int64_t chunks; /* of a row */
    int64_t groups; /* of an image */
    int64_t blocks; /* in all */
} cut;

/* What a thread has to do. */
typedef struct column_place {
    int64_t image, row, column, channel;
    int rows;
    bool used;
} column_place;

static __device__ __forceinline__ int64_t divide(int64_t a, int64_t b)
{
    return (uint64_t)(a | b) <= UINT32_MAX ? (uint32_t)a / (uint32_t)b : a / b;
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ column_place find_place(const cut &cut, int64_t block,
                                                          int64_t rows, int64_t columns)
{
    column_place p;
    const int64_t rest = divide(block, cut.chunks);
    const int64_t q = (block - rest * cut.chunks) * THREADS + threadIdx.x;
    p.image = divide(rest, cut.groups);
    p.row = (rest - p.image * cut.groups) * ROWS;
    p.rows = (int)(rows - p.row < ROWS ? rows - p.row : ROWS);
    p.column = divide(q, cut.parts);
    p.channel = (q - p.column * cut.parts) * LANES<T, WIDE>;
    p.used = p.column < columns;
    return p;
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void load_lanes(const void *data, int64_t i,
                                                  real<T> x[LANES<T, WIDE>])
{
    if constexpr (WIDE)
        unpack<T>(load_vector(at<T>(data, i)), x);
    else
        x[0] = load<T>(data, i);
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void store_lanes(const rg_upsample_args &k, int64_t i,
                                                   real<T> value[LANES<T, WIDE>])
{
    enum { V = LANES<T, WIDE> };
    if (k.add) {
        real<T> old[V];
        load_lanes<T, WIDE>(k.to, i, old);
#pragma unroll
        for (int e = 0; e < V; e++)
            value[e] += old[e];
    }
    if constexpr (WIDE)
        store_vector(at<T>(k.to, i), pack<T>(value), k.stream);
    else
        store<T>(k.to, i, value[0]);
}

/* ---- forward ---- */

template <int V, class REAL>
static __device__ __forceinline__ void between(const REAL a[V], const REAL b[V], REAL f,
                                               REAL result[V])
{
#pragma unroll
    for (int e = 0; e < V; e++)
        result[e] = fma(f, b[e], (1 - f) * a[e]);
}

/* The place of a column in a row of x: from `left` and, where f is not 0, from `right`. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void load_row(const void *x, int64_t left, int64_t right,
                                                real<T> f, real<T> result[LANES<T, WIDE>])
{
    load_lanes<T, WIDE>(x, left, result);
    if (f > 0) {
        real<T> other[LANES<T, WIDE>];
        load_lanes<T, WIDE>(x, right, other);
        between<LANES<T, WIDE>>(result, other, f, result);
    }
}

/* Two rows of x are kept: the next row of y mostly lies between the same, or the next two. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void
forward_column(const rg_upsample_args &k, const column_place &p, const rg_upsample_tap rows[ROWS])
{
    enum { V = LANES<T, WIDE> };
    const int64_t *const s = k.strides[0], *const t = k.strides[1];
    const rg_upsample_tap x = rg_upsample_tap_of(&k.axes[1], p.column);
    const int64_t from = p.image * s[0] + p.channel * s[3];
    const int64_t left = from + x.first * s[2], right = from + x.second * s[2];
    int64_t to = p.image * t[0] + p.row * t[1] + p.column * t[2] + p.channel * t[3];
    real<T> upper[V], lower[V], value[V];
    int64_t has_upper = -1, has_lower = -1;
    for (int r = 0; r < p.rows; r++, to += t[1]) {
        const rg_upsample_tap y = rows[r];
        if (y.first != has_upper && y.first == has_lower) {
#pragma unroll
            for (int e = 0; e < V; e++)
                upper[e] = lower[e];
        } else if (y.first != has_upper) {
            load_row<T, WIDE>(k.from, left + y.first * s[1], right + y.first * s[1], (real<T>)x.f,
                              upper);
        }
        has_upper = y.first;
#pragma unroll
        for (int e = 0; e < V; e++)
            value[e] = upper[e];
        if ((real<T>)y.f > 0) {
            if (y.second != has_lower)
                load_row<T, WIDE>(k.from, left + y.second * s[1], right + y.second * s[1],
                                  (real<T>)x.f, lower);
            has_lower = y.second;
            between<V>(upper, lower, (real<T>)y.f, value);
        }
        store_lanes<T, WIDE>(k, to, value);
    }
}

template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    forward_columns(const __grid_constant__ rg_upsample_args k, const cut cut)
{
    __shared__ rg_upsample_tap rows[ROWS];
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const column_place p = find_place<T, WIDE>(cut, b, k.axes[0].out, k.axes[1].out);
        __syncthreads();
        if ((int)threadIdx.x < p.rows)
            rows[threadIdx.x] = rg_upsample_tap_of(&k.axes[0], p.row + threadIdx.x);
        __syncthreads();
        if (p.used)
            forward_column<T, WIDE>(k, p, rows);
    }
}

/* ---- gradient: dx gathers, along rows of dy first, then down ---- */

/* Outputs that look at one pixel along an axis, and the weights of the first ones. */
template <rg_dtype T> struct looks {
    int64_t begin, end;
    real<T> weight[TAPS];
};

template <rg_dtype T>
static __device__ __forceinline__ real<T> weigh(const rg_upsample_axis &axis, int64_t pixel,
                                                int64_t o)
{
    const rg_upsample_tap tap = rg_upsample_tap_of(&axis, o);
    return tap.first == pixel ? 1 - (real<T>)tap.f : (real<T>)tap.f;
}

/* Thread r TAPS + t finds weight t of row r. */
template <rg_dtype T>
static __device__ __forceinline__ void find_rows(const rg_upsample_axis &axis,
                                                 const column_place &p, looks<T> rows[ROWS])
{
    const int r = (int)threadIdx.x / TAPS, t = (int)threadIdx.x % TAPS;
    if (r >= p.rows)
        return;
    const int64_t begin = rg_upsample_find(&axis, p.row + r, false);
    const int64_t end = rg_upsample_find(&axis, p.row + r + 1, true);
    rows[r].weight[t] = begin + t < end ? weigh<T>(axis, p.row + r, begin + t) : 0;
    if (t == 0) {
        rows[r].begin = begin;
        rows[r].end = end;
    }
}

/* sum += weight * dy */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void add_lanes(const void *dy, int64_t i, real<T> weight,
                                                 real<T> sum[LANES<T, WIDE>])
{
    real<T> x[LANES<T, WIDE>];
    load_lanes<T, WIDE>(dy, i, x);
#pragma unroll
    for (int e = 0; e < LANES<T, WIDE>; e++)
        sum[e] = fma(weight, x[e], sum[e]);
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void
gradient_column(const rg_upsample_args &k, const column_place &p, const looks<T> rows[ROWS])
{
    enum { V = LANES<T, WIDE> };
    const int64_t *const s = k.strides[0], *const t = k.strides[1];
    const rg_upsample_axis &columns = k.axes[1];
    const int64_t begin = rg_upsample_find(&columns, p.column, false);
    const int64_t end = rg_upsample_find(&columns, p.column + 1, true);
    real<T> weight[TAPS];
#pragma unroll
    for (int j = 0; j < TAPS; j++)
        weight[j] = begin + j < end ? weigh<T>(columns, p.column, begin + j) : 0;
    const int64_t from = p.image * s[0] + begin * s[2] + p.channel * s[3];
    int64_t to = p.image * t[0] + p.row * t[1] + p.column * t[2] + p.channel * t[3];
    for (int r = 0; r < p.rows; r++, to += t[1]) {
        real<T> sum[V] = {};
        for (int64_t o = rows[r].begin; o < rows[r].end; o++) {
            const int64_t start = from + o * s[1], j = o - rows[r].begin;
            real<T> row[V] = {};
#pragma unroll
            for (int q = 0; q < TAPS; q++) {
                if (begin + q < end)
                    add_lanes<T, WIDE>(k.from, start + q * s[2], weight[q], row);
            }
            for (int64_t q = begin + TAPS; q < end; q++)
                add_lanes<T, WIDE>(k.from, start + (q - begin) * s[2],
                                   weigh<T>(columns, p.column, q), row);
            const real<T> down = j < TAPS ? rows[r].weight[j] : weigh<T>(k.axes[0], p.row + r, o);
#pragma unroll
            for (int e = 0; e < V; e++)
                sum[e] = fma(down, row[e], sum[e]);
        }
        store_lanes<T, WIDE>(k, to, sum);
    }
}

template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    gradient_columns(const __grid_constant__ rg_upsample_args k, const cut cut)
{
    __shared__ looks<T> rows[ROWS];
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const column_place p = find_place<T, WIDE>(cut, b, k.axes[0].in, k.axes[1].in);
        __syncthreads();
        find_rows<T>(k.axes[0], p, rows);
        __syncthreads();
        if (p.used)
            gradient_column<T, WIDE>(k, p, rows);
    }
}

/* ---- launches ---- */

/* Whether vectors of channels can be loaded and stored at every pixel. */
template <rg_dtype T> static bool is_wide(const rg_upsample_args *k)
{
    bool wide = k->dense && k->channels % VLEN<T> == 0;
    wide &= ((uintptr_t)k->from | (uintptr_t)k->to) % 16 == 0;
    for (int d = 0; d < 3; d++)
        wide &= (k->strides[0][d] | k->strides[1][d]) % VLEN<T> == 0;
    return wide;
}

template <rg_dtype T>
static void launch_columns(void (*wide)(rg_upsample_args, cut), void (*any)(rg_upsample_args, cut),
                           const rg_upsample_args *k, int64_t rows, int64_t columns,
                           const rg_cuda_place *place)
{
    const int64_t most_blocks = 1 << 30;
    const bool whole = is_wide<T>(k);
    cut cut;
    cut.parts = whole ? k->channels / VLEN<T> : k->channels;
    cut.chunks = ceil_div(columns * cut.parts, THREADS);
    cut.groups = ceil_div(rows, ROWS);
    cut.blocks = k->images * cut.groups * cut.chunks;
    launch(whole ? wide : any, cut.blocks < most_blocks ? cut.blocks : most_blocks, THREADS, 0,
           place, *k, cut);
}

template <rg_dtype T> static void upsample_forward(const void *args, const rg_cuda_place *place)
{
    const rg_upsample_args *k = (const rg_upsample_args *)args;
    launch_columns<T>(forward_columns<T, true>, forward_columns<T, false>, k, k->axes[0].out,
                      k->axes[1].out, place);
}

template <rg_dtype T> static void upsample_gradient(const void *args, const rg_cuda_place *place)
{
    const rg_upsample_args *k = (const rg_upsample_args *)args;
    launch_columns<T>(gradient_columns<T, true>, gradient_columns<T, false>, k, k->axes[0].in,
                      k->axes[1].in, place);
}

/* ---- table, in the order of the kernels' ids ---- */

RG_CUDA_TABLE(upsample, RG_UPSAMPLE_KERNELS) = {
    RG_CUDA_ROW(upsample_forward),  /* RG_UPSAMPLE_FORWARD */
    RG_CUDA_ROW(upsample_gradient), /* RG_UPSAMPLE_GRADIENT */
};
