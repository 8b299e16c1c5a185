/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions of rows on a GPU, and the joining of parts. */
#include "ops/reduce/reduce.cuh"

/* ---- rows ---- */

/* A group of `threads`, a power of two up to THREADS, takes a part of a row. */
typedef struct rows_plan {
    int threads;
    bool wide; /* elements are loaded as aligned vectors */
} rows_plan;

/* The part of a row that a group of threads adds up. */
typedef struct row_part {
    int thread;         /* of the group */
    bool there;         /* false: past the last part */
    int64_t o, p;       /* part p of output o */
    int64_t first, end; /* its elements; none where it is not there */
} row_part;

static __device__ __forceinline__ row_part find_part(const rg_reduce_args &k, int threads)
{
    const rg_reduce_result &r = k.result;
    const int64_t unit = (int64_t)blockIdx.x * (THREADS / threads) + (int)threadIdx.x / threads;
    row_part part = { (int)threadIdx.x % threads, unit < r.outputs * r.parts, 0, 0, 0, 0 };
    if (!part.there)
        return part;
    part.o = r.parts == 1 ? unit : quotient(unit, r.parts);
    part.p = unit - part.o * r.parts;
    part.first = part.p * r.part;
    part.end = at_most(k.length, part.first + r.part);
    return part;
}

/* The best of what the threads of a group have found in their part. */
template <rg_reduce_what WHAT, class REAL>
static __device__ __forceinline__ found<REAL> join_found(const found<REAL> &best,
                                                         const row_part &part, int threads)
{
    __shared__ found<REAL> bests[32];
    __shared__ winner<REAL> winners[32];
    if (WHAT != RG_REDUCE_WINNER)
        return reduce_better(best, threads, bests);
    const winner<REAL> w =
        reduce_better(winner_of(best, part.thread, part.first), threads, winners);
    return { w.value, part.first + w.number };
}

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

/* Any rows. */
template <rg_dtype T, rg_reduce_what WHAT>
static __global__ void __launch_bounds__(THREADS)
    rows_kernel(const __grid_constant__ rg_reduce_args k, const rows_plan plan)
{
    enum { V = VLEN<T>, SUM = WHAT == RG_REDUCE_TOTAL };
    __shared__ double sums[32];
    const row_part part = find_part(k, plan.threads);
    const char *x = at<T>(k.x, walk_offset(k.outer, 0, part.o));
    const real<T> sign = (real<T>)k.result.sign;
    real<T> sum = 0;
    found<real<T>> best = start_at<real<T>>(part.first + part.thread * V, part.end);
#pragma unroll 4
    for (int64_t j = part.first + part.thread * V; j < part.end; j += plan.threads * V) {
        real<T> v[V];
        load_row<T>(k, x, j, part.end - j, plan.wide, 0, v);
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (SUM)
                sum += v[e];
            else if (e < part.end - j)
                improve<WHAT>(best.value, best.number, v[e] * sign, j + e);
        }
    }
    const double total = SUM ? reduce((double)sum, plan.threads, sums, false) : 0;
    if (!SUM)
        best = join_found<WHAT>(best, part, plan.threads);
    if (part.there && part.thread == 0)
        keep_found<T>(k, walk_offset(k.outer, 1, part.o), part.o, part.p,
                      SUM ? total : (double)best.value, best.number);
}

/* Rows of whole, aligned vectors, one distance apart: the same sums, with many loads at once. */
template <rg_dtype T, rg_reduce_what WHAT>
static __global__ void __launch_bounds__(THREADS, 4)
    vector_rows_kernel(const __grid_constant__ rg_reduce_args k, const rows_plan plan)
{
    enum { V = VLEN<T>, SUM = WHAT == RG_REDUCE_TOTAL };
    __shared__ double sums[32];
    const row_part part = find_part(k, plan.threads);
    const int vectors = (int)(part.end - part.first) / V;
    const char *const x = at<T>(k.x, straight_offset(k.outer, 0, part.o) + part.first);
    const scanned<real<T>> own =
        scan_vectors<T, WHAT>(x, vectors, part.thread, plan.threads, (real<T>)k.result.sign);
    const double total = SUM ? reduce((double)own.sum, plan.threads, sums, false) : 0;
    found<real<T>> best = start_at<real<T>>(part.thread, vectors);
    if (!SUM) {
        best.value = own.best;
        if (part.thread < vectors)
            best.number = part.first + own.number;
        best = join_found<WHAT>(best, part, plan.threads);
    }
    if (part.there && part.thread == 0)
        keep_found<T>(k, straight_offset(k.outer, 1, part.o), part.o, part.p,
                      SUM ? total : (double)best.value, best.number);
}

template <rg_dtype T, rg_reduce_what WHAT>
static void rows(const rg_reduce_args &k, const rg_cuda_target *target)
{
    const int64_t longest = k.length < k.result.part ? k.length : k.result.part;
    const int64_t vectors = ceil_div(longest, VLEN<T>);
    rows_plan plan = { vectors <= 256 ? power_of_two(vectors, 1, 32) : (int)THREADS, false };
    plan.wide = k.dense && is_aligned<T>(k.x, &k.outer, 0);
    const int64_t blocks = ceil_div(k.result.outputs * k.result.parts, THREADS / plan.threads);
    const bool whole = plan.wide && k.length % VLEN<T> == 0 && k.outer.rank <= 1;
    launch(whole ? vector_rows_kernel<T, WHAT> : rows_kernel<T, WHAT>, blocks, THREADS, 0, target,
           k, plan);
}

template <rg_dtype T> static void reduce_rows(const void *args, const rg_cuda_target *target)
{
    const rg_reduce_args &k = *(const rg_reduce_args *)args;
    if (k.result.what == RG_REDUCE_TOTAL)
        rows<T, RG_REDUCE_TOTAL>(k, target);
    else if (k.result.what == RG_REDUCE_EXTREME)
        rows<T, RG_REDUCE_EXTREME>(k, target);
    else if (k.result.what == RG_REDUCE_NUMBER)
        rows<T, RG_REDUCE_NUMBER>(k, target);
    else
        rows<T, RG_REDUCE_WINNER>(k, target);
}

/* ---- joining parts ---- */

/* What a thread knows of parts first, first + step, … of an output. */
static __device__ __forceinline__ void join_parts(const rg_reduce_finish_args &k, int64_t o,
                                                  int64_t first, int64_t parts, int step,
                                                  double *total, found<double> *best)
{
    *best = start_at<double>(first, parts);
    for (; first < parts; first += AHEAD * step) {
        double held[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t p = first + i * step;
            held[i] = p < parts ? k.partial[p * k.result.outputs + o] : 0;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const found<double> next = { held[i], first + i * step };
            if (next.number >= parts)
                break;
            if (k.result.what == RG_REDUCE_TOTAL)
                *total += next.value;
            else
                *best = better(*best, next);
        }
    }
}

template <rg_dtype T>
static __device__ __forceinline__ void store_joined(const rg_reduce_finish_args &k, int64_t o,
                                                    double total, const found<double> &best)
{
    const rg_reduce_result &r = k.result;
    const int64_t number = r.what >= RG_REDUCE_NUMBER
                               ? (int64_t)k.partial[(r.parts + best.number) * r.outputs + o]
                               : 0;
    if (r.what == RG_REDUCE_WINNER)
        k.winners[o] = number;
    store_found<T>(r, k.y, offset_at(k.outer, 0, o), r.what == RG_REDUCE_TOTAL ? total : best.value,
                   number);
}

/* Few outputs: `threads` threads, 32 or all of the block, share one: thread t has parts t,
 * t + threads, … */
template <rg_dtype T>
static __global__ void __launch_bounds__(1024)
    finish_kernel(const __grid_constant__ rg_reduce_finish_args k, int threads)
{
    __shared__ double sums[32];
    __shared__ found<double> bests[32];
    const int64_t o =
        (int64_t)blockIdx.x * ((int)blockDim.x / threads) + (int)threadIdx.x / threads;
    const int thread = (int)threadIdx.x % threads;
    const bool there = o < k.result.outputs;
    double total = 0;
    found<double> best;
    join_parts(k, o, thread, there ? k.result.parts : 0, threads, &total, &best);
    if (k.result.what == RG_REDUCE_TOTAL)
        total = reduce(total, threads, sums, false);
    else
        best = reduce_better(best, threads, bests);
    if (there && thread == 0)
        store_joined<T>(k, o, total, best);
}

/* Many outputs: the warps of a block share 32 neighbours, whose parts are adjacent. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    finish_many_kernel(const __grid_constant__ rg_reduce_finish_args k)
{
    enum { WARPS = THREADS / 32 };
    __shared__ found<double> shared[WARPS][32];
    const int thread = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t o = (int64_t)blockIdx.x * 32 + thread;
    const bool there = o < k.result.outputs, sum = k.result.what == RG_REDUCE_TOTAL;
    double total = 0;
    found<double> best;
    join_parts(k, o, warp, there ? k.result.parts : 0, WARPS, &total, &best);
    shared[warp][thread] = sum ? found<double>{ total, 0 } : best;
    __syncthreads();
    if (!there || warp > 0)
        return;
    for (int i = 1; i < WARPS; i++) {
        if (sum)
            total += shared[i][thread].value;
        else
            best = better(best, shared[i][thread]);
    }
    store_joined<T>(k, o, total, best);
}

template <rg_dtype T> static void reduce_finish(const void *args, const rg_cuda_target *target)
{
    enum { MIN_BLOCK_OUTPUTS = 1024 };
    const rg_reduce_finish_args &k = *(const rg_reduce_finish_args *)args;
    const int64_t parts = k.result.parts, outputs = k.result.outputs;
    if (outputs >= MIN_BLOCK_OUTPUTS) {
        launch(finish_many_kernel<T>, ceil_div(outputs, 32), THREADS, 0, target, k);
        return;
    }
    const int threads = parts <= 128 ? 32 : parts <= 2048 ? (int)THREADS : 1024;
    const int block = threads == 32 ? (int)THREADS : threads;
    launch(finish_kernel<T>, ceil_div(outputs, block / threads), block, 0, target, k, threads);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_REDUCE_ROWS, reduce_rows),
    RG_CUDA_ROW(RG_REDUCE_FINISH, reduce_finish),
};
RG_CUDA_TABLE(reduce, kernel_rows);
