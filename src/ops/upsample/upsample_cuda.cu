/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample on a GPU. A thread goes down a column of the result; what is known of the rows stands in
 * shared memory. */
#include "backend/cuda/image.cuh"
#include "ops/upsample/upsample.h"

enum { THREADS = IMAGE_THREADS, ROWS = IMAGE_ROWS, TAPS = 4 };

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
forward_column(const rg_upsample_args &k, const image_place &p, const rg_upsample_tap rows[ROWS])
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
        store_lanes<T, WIDE>(k.to, to, value, k.add, k.stream);
    }
}

template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    forward_columns(const __grid_constant__ rg_upsample_args k, const image_cut cut)
{
    __shared__ rg_upsample_tap rows[ROWS];
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const image_place p = find_place<T, WIDE>(cut, b, k.axes[0].out, k.axes[1].out);
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
static __device__ __forceinline__ void find_rows(const rg_upsample_axis &axis, const image_place &p,
                                                 looks<T> rows[ROWS])
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
gradient_column(const rg_upsample_args &k, const image_place &p, const looks<T> rows[ROWS])
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
        store_lanes<T, WIDE>(k.to, to, sum, k.add, k.stream);
    }
}

template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    gradient_columns(const __grid_constant__ rg_upsample_args k, const image_cut cut)
{
    __shared__ looks<T> rows[ROWS];
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const image_place p = find_place<T, WIDE>(cut, b, k.axes[0].in, k.axes[1].in);
        __syncthreads();
        find_rows<T>(k.axes[0], p, rows);
        __syncthreads();
        if (p.used)
            gradient_column<T, WIDE>(k, p, rows);
    }
}

/* ---- launches ---- */

template <rg_dtype T> static bool is_wide(const rg_upsample_args *k)
{
    return k->dense && k->channels % VLEN<T> == 0 && is_wide_image<T>(k->from, k->to, k->strides);
}

template <rg_dtype T> static void upsample_forward(const void *args, const rg_cuda_place *place)
{
    const rg_upsample_args *k = (const rg_upsample_args *)args;
    const bool wide = is_wide<T>(k);
    launch_image<T>(wide ? forward_columns<T, true> : forward_columns<T, false>, k, wide, k->images,
                    k->axes[0].out, k->axes[1].out, k->channels, place);
}

template <rg_dtype T> static void upsample_gradient(const void *args, const rg_cuda_place *place)
{
    const rg_upsample_args *k = (const rg_upsample_args *)args;
    const bool wide = is_wide<T>(k);
    launch_image<T>(wide ? gradient_columns<T, true> : gradient_columns<T, false>, k, wide,
                    k->images, k->axes[0].in, k->axes[1].in, k->channels, place);
}

/* ---- table, in the order of the kernels' ids ---- */

RG_CUDA_TABLE(upsample, RG_UPSAMPLE_KERNELS) = {
    RG_CUDA_ROW(upsample_forward),  /* RG_UPSAMPLE_FORWARD */
    RG_CUDA_ROW(upsample_gradient), /* RG_UPSAMPLE_GRADIENT */
};
