/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions on a GPU.
 *
 * The order of every sum is fixed by the shape: which thread takes which elements, whether it loads
 * them as vectors or one by one, follows from their numbers. A thread adds few of them, in `real`;
 * threads and parts are joined in double, by a tree. */
#include "backend/cuda/kernel.cuh"
#include "ops/reduce/reduce.h"

enum { THREADS = 256 };

/* ---- results ---- */

/* What is known of some elements of a group: their sum, or the best one and its number. */
template <class REAL> struct found {
    REAL value;
    int64_t number;
};

/* The larger one, a NaN if there is one, and the first among equals. */
template <class REAL>
static __device__ __forceinline__ found<REAL> better(const found<REAL> &a, const found<REAL> &b)
{
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool equal = a.value == b.value || (a_nan && b_nan);
    const bool b_wins = b.value > a.value || (b_nan && !a_nan);
    return b_wins || (equal && b.number < a.number) ? b : a;
}

/* A thread that meets elements in their order begins with the first number, and a later element
 * wins only if it is larger. Numbers are left alone where nobody asks for them. */
template <rg_reduce_what WHAT, class REAL>
static __device__ __forceinline__ void improve(found<REAL> &best, REAL value, int64_t number)
{
    if (!(value <= best.value) && best.value == best.value) {
        best.value = value;
        if (WHAT == RG_REDUCE_NUMBER)
            best.number = number;
    }
}

template <class REAL> static __device__ __forceinline__ found<REAL> start_at(int64_t j, int64_t end)
{
    return { -(REAL)INFINITY, j < end ? j : INT64_MAX };
}

template <rg_dtype T>
static __device__ void store_found(const rg_reduce_result &r, void *y, int64_t at, double value,
                                   int64_t number)
{
    if (r.what == RG_REDUCE_NUMBER)
        ((int64_t *)y)[at] = number;
    else if (r.what == RG_REDUCE_EXTREME)
        store<T>(y, at, (real<T>)(value * r.sign));
    else
        store<T>(y, at, (real<T>)(value * r.weight / r.divisor));
}

/* The result of part p of output o: in y if it is the only one. */
template <rg_dtype T>
static __device__ void keep_found(const rg_reduce_args &k, int64_t y, int64_t o, int64_t p,
                                  double value, int64_t number)
{
    const rg_reduce_result &r = k.result;
    if (r.parts == 1 && !r.apart) {
        store_found<T>(r, k.y, y, value, number);
        return;
    }
    k.partial[p * r.outputs + o] = value;
    if (r.what == RG_REDUCE_NUMBER)
        k.partial[(r.parts + p) * r.outputs + o] = (double)number;
}

static __device__ __forceinline__ int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- rows ---- */

/* A group of `threads`, a power of two up to THREADS, takes a part of a row. */
typedef struct rows_plan {
    int threads;
    bool wide; /* elements are loaded as aligned vectors */
} rows_plan;

/* VLEN elements from number j on, of which `count` are there; the others are `fill`. */
template <rg_dtype T>
static __device__ __forceinline__ void load_row(const rg_reduce_args &k, const char *x, int64_t j,
                                                int64_t count, bool wide, real<T> fill,
                                                real<T> v[VLEN<T>])
{
    if (wide && count >= VLEN<T>) {
        unpack<T>(load_vector(at<T>(x, j)), v);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        v[e] = e < count ? load<T>(x, k.dense ? j + e : walk_offset(k.group, 0, j + e)) : fill;
}

/* Joins what the threads of a group know; `shared` holds one of each warp. */
template <class REAL>
static __device__ __forceinline__ found<REAL> reduce_better(found<REAL> f, int threads,
                                                            found<REAL> *shared)
{
    for (int m = 1; m < 32 && m < threads; m *= 2) {
        const found<REAL> other = { __shfl_xor_sync(~0u, f.value, m),
                                    __shfl_xor_sync(~0u, f.number, m) };
        f = better(f, other);
    }
    if (threads <= 32)
        return f;
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = f;
    __syncthreads();
    for (int warp = 0; warp < threads / 32; warp++)
        f = better(f, shared[warp]);
    return f;
}

template <rg_dtype T, rg_reduce_what WHAT>
static __global__ void __launch_bounds__(THREADS)
    rows_kernel(const __grid_constant__ rg_reduce_args k, const rows_plan plan)
{
    enum { V = VLEN<T>, SUM = WHAT == RG_REDUCE_TOTAL };
    __shared__ double sums[32];
    __shared__ found<real<T>> bests[32];
    const rg_reduce_result &r = k.result;
    const int thread = (int)threadIdx.x % plan.threads;
    const int64_t unit =
        (int64_t)blockIdx.x * (THREADS / plan.threads) + threadIdx.x / plan.threads;
    const bool there = unit < r.outputs * r.parts;
    const int64_t o = there ? unit / r.parts : 0, p = there ? unit % r.parts : 0;
    const int64_t first = p * r.part, end = there ? at_most(k.length, first + r.part) : first;
    const char *x = at<T>(k.x, walk_offset(k.outer, 0, o));
    const real<T> sign = (real<T>)r.sign;
    real<T> sum = 0;
    found<real<T>> best = start_at<real<T>>(first + thread * V, end);
#pragma unroll 4
    for (int64_t j = first + thread * V; j < end; j += plan.threads * V) {
        real<T> v[V];
        load_row<T>(k, x, j, end - j, plan.wide, 0, v);
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (SUM)
                sum += v[e];
            else if (e < end - j)
                improve<WHAT>(best, v[e] * sign, j + e);
        }
    }
    const double total = SUM ? reduce((double)sum, plan.threads, sums, false) : 0;
    if (!SUM)
        best = reduce_better(best, plan.threads, bests);
    if (there && thread == 0)
        keep_found<T>(k, walk_offset(k.outer, 1, o), o, p, SUM ? total : (double)best.value,
                      best.number);
}

template <rg_dtype T> static void reduce_rows(const void *args, const rg_cuda_place *place)
{
    const rg_reduce_args &k = *(const rg_reduce_args *)args;
    const int64_t longest = k.length < k.result.part ? k.length : k.result.part;
    const int64_t vectors = ceil_div(longest, VLEN<T>);
    rows_plan plan = { vectors <= 256 ? power_of_two(vectors, 1, 32) : (int)THREADS, false };
    plan.wide = k.dense && is_aligned<T>(k.x, &k.outer, 0);
    const int64_t blocks = ceil_div(k.result.outputs * k.result.parts, THREADS / plan.threads);
    launch(k.result.what == RG_REDUCE_TOTAL     ? rows_kernel<T, RG_REDUCE_TOTAL>
           : k.result.what == RG_REDUCE_EXTREME ? rows_kernel<T, RG_REDUCE_EXTREME>
                                                : rows_kernel<T, RG_REDUCE_NUMBER>,
           blocks, THREADS, 0, place, k, plan);
}

/* ---- columns ---- */

/* A block takes `across` vectors of columns, a power of two, and a part of their rows: thread t the
 * vector t % across, and every THREADS / across-th row. */
typedef struct columns_plan {
    int across;
    int64_t chunks; /* blocks for the width */
    bool wide;      /* columns are loaded as aligned vectors */
} columns_plan;

/* Joins the threads of a block with the same vector; thread t < across has the result. `shared`
 * holds VALUES of every thread. */
template <int VALUES, class REAL>
static __device__ __forceinline__ void reduce_better_down(found<REAL> f[VALUES], int across,
                                                          found<REAL> *shared)
{
    found<REAL> *const own = shared + threadIdx.x;
#pragma unroll
    for (int e = 0; e < VALUES; e++)
        own[e * THREADS] = f[e];
    const int down = (int)threadIdx.x / across;
    for (int m = 1; m < THREADS / across; m *= 2) {
        __syncthreads();
        if (down % (2 * m) == 0) {
#pragma unroll
            for (int e = 0; e < VALUES; e++)
                own[e * THREADS] = better(own[e * THREADS], own[e * THREADS + m * across]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < VALUES; e++)
        f[e] = own[e * THREADS];
}

/* One vector of columns in row j; columns that are not there are 0. */
template <rg_dtype T, bool STRAIGHT>
static __device__ __forceinline__ void load_columns(const rg_reduce_args &k, int64_t base,
                                                    int64_t j, int64_t left, bool wide,
                                                    real<T> v[VLEN<T>])
{
    const int64_t offset =
        base + (STRAIGHT ? straight_offset(k.group, 0, j) : walk_offset(k.group, 0, j));
    if (wide) {
        unpack<T>(load_vector(at<T>(k.x, offset)), v);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        v[e] = e < left ? load<T>(k.x, offset + e * k.across[0]) : 0;
}

/* One unit of a block. STRAIGHT: the walk within a group has one dimension at most. */
template <rg_dtype T, rg_reduce_what WHAT, bool STRAIGHT>
static __device__ __forceinline__ void
columns_unit(const rg_reduce_args &k, const columns_plan &plan, int64_t unit, char *shared)
{
    enum { V = VLEN<T>, SUM = WHAT == RG_REDUCE_TOTAL };
    const rg_reduce_result &r = k.result;
    const int64_t p = unit % r.parts, rest = unit / r.parts;
    const int64_t chunk = rest % plan.chunks, row = rest / plan.chunks;
    const int across = (int)threadIdx.x % plan.across, down = (int)threadIdx.x / plan.across;
    const int64_t column = (chunk * plan.across + across) * V, left = k.width - column;
    const int64_t first = p * r.part, end = left > 0 ? at_most(k.length, first + r.part) : first;
    const int64_t base = walk_offset(k.outer, 0, row) + column * k.across[0];
    const real<T> sign = (real<T>)r.sign;
    double sum[V];
    real<T> add[V] = {};
    found<real<T>> best[V];
#pragma unroll
    for (int e = 0; e < V; e++)
        best[e] = start_at<real<T>>(first + down, end);
#pragma unroll 4
    for (int64_t j = first + down; j < end; j += THREADS / plan.across) {
        real<T> v[V];
        load_columns<T, STRAIGHT>(k, base, j, left, plan.wide, v);
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (SUM)
                add[e] += v[e];
            else
                improve<WHAT>(best[e], v[e] * sign, j);
        }
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        sum[e] = (double)add[e];
    if (SUM)
        reduce_down<V>(sum, plan.across, (double *)shared, false);
    else
        reduce_better_down<V>(best, plan.across, (found<real<T>> *)shared);
    const int64_t y = walk_offset(k.outer, 1, row), o = walk_offset(k.outer, 2, row);
    for (int e = 0; e < V && e < left && down == 0; e++)
        keep_found<T>(k, y + (column + e) * k.across[1], o + (column + e) * k.across[2], p,
                      SUM ? sum[e] : (double)best[e].value, best[e].number);
}

template <rg_dtype T, rg_reduce_what WHAT, bool STRAIGHT>
static __global__ void __launch_bounds__(THREADS)
    columns_kernel(const __grid_constant__ rg_reduce_args k, const columns_plan plan)
{
    extern __shared__ __align__(16) char shared[];
    const int64_t units = k.outer.count * plan.chunks * k.result.parts;
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        columns_unit<T, WHAT, STRAIGHT>(k, plan, unit, shared);
        __syncthreads(); /* before `shared` is written again */
    }
}

template <rg_dtype T, rg_reduce_what WHAT>
static void columns(const rg_reduce_args &k, const rg_cuda_place *place)
{
    enum { V = VLEN<T> };
    const int64_t most_blocks = 1 << 24;
    const int64_t each = WHAT == RG_REDUCE_TOTAL ? sizeof(double) : sizeof(found<real<T>>);
    columns_plan plan = { power_of_two(ceil_div(k.side, V), 1, 32), 0, false };
    plan.chunks = ceil_div(k.width, plan.across * V);
    plan.wide = k.dense && k.width % V == 0 && is_aligned<T>(k.x, &k.outer, 0) &&
                is_aligned<T>(k.x, &k.group, 0);
    const int64_t units = k.outer.count * plan.chunks * k.result.parts;
    launch(k.group.rank <= 1 ? columns_kernel<T, WHAT, true> : columns_kernel<T, WHAT, false>,
           units < most_blocks ? units : most_blocks, THREADS, THREADS * V * each, place, k, plan);
}

template <rg_dtype T> static void reduce_columns(const void *args, const rg_cuda_place *place)
{
    const rg_reduce_args &k = *(const rg_reduce_args *)args;
    if (k.result.what == RG_REDUCE_TOTAL)
        columns<T, RG_REDUCE_TOTAL>(k, place);
    else if (k.result.what == RG_REDUCE_EXTREME)
        columns<T, RG_REDUCE_EXTREME>(k, place);
    else
        columns<T, RG_REDUCE_NUMBER>(k, place);
}

/* ---- joining parts ---- */

/* `threads` threads, 32 or THREADS, share an output: thread t has parts t, t + threads, … */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    finish_kernel(const __grid_constant__ rg_reduce_finish_args k, int threads)
{
    __shared__ double sums[32];
    __shared__ found<double> bests[32];
    const rg_reduce_result &r = k.result;
    const int64_t o = (int64_t)blockIdx.x * (THREADS / threads) + threadIdx.x / threads;
    const int thread = (int)threadIdx.x % threads;
    const bool sum = r.what == RG_REDUCE_TOTAL, there = o < r.outputs;
    double total = 0;
    found<double> best = start_at<double>(thread, there ? r.parts : 0);
#pragma unroll 4
    for (int64_t p = thread; p < (there ? r.parts : 0); p += threads) {
        const found<double> next = { k.partial[p * r.outputs + o], p };
        if (sum)
            total += next.value;
        else
            best = better(best, next);
    }
    total = reduce(total, threads, sums, false);
    best = reduce_better(best, threads, bests);
    if (!there || thread > 0)
        return;
    const int64_t number = r.what == RG_REDUCE_NUMBER
                               ? (int64_t)k.partial[(r.parts + best.number) * r.outputs + o]
                               : 0;
    store_found<T>(r, k.y, walk_offset(k.outer, 0, o), sum ? total : best.value, number);
}

template <rg_dtype T> static void reduce_finish(const void *args, const rg_cuda_place *place)
{
    const rg_reduce_finish_args &k = *(const rg_reduce_finish_args *)args;
    const int threads = k.result.parts > 128 ? (int)THREADS : 32;
    launch(finish_kernel<T>, ceil_div(k.result.outputs, THREADS / threads), THREADS, 0, place, k,
           threads);
}

/* ---- gradients ---- */

/* The gradient of one element: dy, or dy for the winner alone. Offsets are those of its row. */
template <rg_dtype T, bool AWARD>
static __device__ __forceinline__ real<T> gradient_at(const rg_reduce_gradient_args &k, int64_t dy,
                                                      int64_t o, int64_t number, int64_t j)
{
    const int64_t *step = k.sweep.step;
    if (AWARD && k.winners[o + j * step[2]] != number + j * step[3])
        return 0;
    return load<T>(k.dy, dy + j * step[1]) * (real<T>)k.factor;
}

/* Rows of whole, aligned vectors of dx, `vectors` of them. */
template <rg_dtype T, bool AWARD>
static __global__ void __launch_bounds__(THREADS)
    spread_vectors(const __grid_constant__ rg_reduce_gradient_args k, int64_t vectors)
{
    enum { V = VLEN<T> };
    const rg_walk &outer = k.sweep.outer;
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t row =
        i <= UINT32_MAX && vectors <= UINT32_MAX ? (uint32_t)i / (uint32_t)vectors : i / vectors;
    if (row >= outer.count)
        return;
    const int64_t j = (i - row * vectors) * V, dy = walk_offset(outer, 1, row);
    const int64_t o = AWARD ? walk_offset(outer, 2, row) : 0;
    const int64_t number = AWARD ? walk_offset(outer, 3, row) : 0;
    char *dx = at<T>(k.dx, walk_offset(outer, 0, row) + j);
    real<T> value[V], old[V] = {};
    if (k.add)
        unpack<T>(load_vector(dx), old);
#pragma unroll
    for (int e = 0; e < V; e++) {
        value[e] = gradient_at<T, AWARD>(k, dy, o, number, j + e);
        value[e] = k.add ? old[e] + value[e] : value[e];
    }
    store_vector(dx, pack<T>(value), k.stream);
}

/* Any tensors. */
template <rg_dtype T, bool AWARD>
static __global__ void __launch_bounds__(THREADS)
    spread_elements(const __grid_constant__ rg_reduce_gradient_args k)
{
    const rg_sweep &s = k.sweep;
    const int64_t count = s.outer.count * s.length, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row = count <= INT32_MAX ? (uint32_t)i / (uint32_t)s.length : i / s.length;
        const int64_t j = i - row * s.length, dy = walk_offset(s.outer, 1, row);
        const int64_t o = AWARD ? walk_offset(s.outer, 2, row) : 0;
        const int64_t number = AWARD ? walk_offset(s.outer, 3, row) : 0;
        const int64_t dx = walk_offset(s.outer, 0, row) + j * s.step[0];
        const real<T> value = gradient_at<T, AWARD>(k, dy, o, number, j);
        store<T>(k.dx, dx, k.add ? load<T>(k.dx, dx) + value : value);
    }
}

template <rg_dtype T, bool AWARD>
static void spread(const rg_reduce_gradient_args &k, const rg_cuda_place *place)
{
    const int64_t most_blocks = 1 << 24, length = k.sweep.length;
    const int64_t count = k.sweep.outer.count * length, blocks = ceil_div(count, THREADS);
    const bool wide =
        k.sweep.step[0] == 1 && length % VLEN<T> == 0 && is_aligned<T>(k.dx, &k.sweep.outer, 0);
    if (wide)
        launch(spread_vectors<T, AWARD>, ceil_div(count, THREADS * VLEN<T>), THREADS, 0, place, k,
               length / VLEN<T>);
    else
        launch(spread_elements<T, AWARD>, blocks < most_blocks ? blocks : most_blocks, THREADS, 0,
               place, k);
}

template <rg_dtype T> static void reduce_spread(const void *args, const rg_cuda_place *place)
{
    spread<T, false>(*(const rg_reduce_gradient_args *)args, place);
}

template <rg_dtype T> static void reduce_award(const void *args, const rg_cuda_place *place)
{
    spread<T, true>(*(const rg_reduce_gradient_args *)args, place);
}

/* ---- entry points and table, in the order of the kernels' ids ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_REDUCE_ROWS, reduce_rows),     RG_CUDA_ROW(RG_REDUCE_COLUMNS, reduce_columns),
    RG_CUDA_ROW(RG_REDUCE_FINISH, reduce_finish), RG_CUDA_ROW(RG_REDUCE_SPREAD, reduce_spread),
    RG_CUDA_ROW(RG_REDUCE_AWARD, reduce_award),
};
RG_CUDA_TABLE(reduce, kernel_rows);
