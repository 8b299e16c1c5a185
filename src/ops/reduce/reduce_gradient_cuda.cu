/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of reductions on a GPU. */
#include "backend/cuda/divide.cuh"
#include "ops/reduce/reduce.cuh"

/* ---- elements by their numbers ---- */

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
        const int64_t row = quotient(i, s.length);
        const int64_t j = i - row * s.length, dy = walk_offset(s.outer, 1, row);
        const int64_t o = AWARD ? walk_offset(s.outer, 2, row) : 0;
        const int64_t number = AWARD ? walk_offset(s.outer, 3, row) : 0;
        const int64_t dx = walk_offset(s.outer, 0, row) + j * s.step[0];
        const real<T> value = gradient_at<T, AWARD>(k, dy, o, number, j);
        store<T>(k.dx, dx, k.add ? load<T>(k.dx, dx) + value : value);
    }
}

/* ---- sums: a dense dx ---- */

/* Consecutive vectors of dx, and the offsets of their dy. */
typedef struct spread_plan {
    int32_t total, vectors;  /* vectors of dx, of a row */
    small_divider by_row;    /* vectors of a row */
    small_divider by_inner;  /* rows for an index of the outer dimension */
    int32_t inner;           /* the same */
    int64_t outer_step, row; /* of dy, from one index and from one row to the next */
} spread_plan;

/* Vectors of a thread. */
enum { SPREAD = 4 };

/* SAME: dy is one number for all of a row, else a vector for each. */
template <rg_dtype T, bool SAME>
static __global__ void __launch_bounds__(THREADS)
    spread_dense(const __grid_constant__ rg_reduce_gradient_args k, const spread_plan plan)
{
    enum { V = VLEN<T> };
    const int64_t first = (int64_t)blockIdx.x * (SPREAD * THREADS) + threadIdx.x;
    const real<T> factor = (real<T>)k.factor;
    uint4 held[SPREAD], old[SPREAD];
    element<T> single[SPREAD];
#pragma unroll
    for (int i = 0; i < SPREAD; i++) {
        if (first + i * THREADS >= plan.total)
            break;
        const int32_t v = (int32_t)first + i * THREADS, row = divide(v, plan.by_row);
        const int32_t index = divide(row, plan.by_inner);
        const int64_t dy = index * plan.outer_step + (row - index * plan.inner) * plan.row;
        if (SAME)
            single[i] = ((const element<T> *)k.dy)[dy];
        else
            held[i] = load_vector(at<T>(k.dy, dy + (int64_t)(v - row * plan.vectors) * V));
        if (k.add)
            old[i] = load_vector((const char *)k.dx + 16 * (int64_t)v);
    }
#pragma unroll
    for (int i = 0; i < SPREAD; i++) {
        real<T> value[V], before[V];
        if (first + i * THREADS >= plan.total)
            break;
        unpack<T>(held[i], value);
        unpack<T>(old[i], before);
#pragma unroll
        for (int e = 0; e < V; e++) {
            value[e] = (SAME ? to_real<T>(single[i]) : value[e]) * factor;
            value[e] = k.add ? before[e] + value[e] : value[e];
        }
        store_vector((char *)k.dx + 16 * (first + i * THREADS), pack<T>(value), k.stream);
    }
}

/* Whether dx is dense and dy is read in vectors or once for a row; then the plan is filled in. */
template <rg_dtype T> static bool plan_spread(const rg_reduce_gradient_args &k, spread_plan *plan)
{
    const rg_sweep &s = k.sweep;
    const rg_walk &outer = s.outer;
    const int64_t total = outer.count * s.length / VLEN<T>;
    bool fits = s.step[0] == 1 && s.length % VLEN<T> == 0 && (uintptr_t)k.dx % 16 == 0;
    fits &= outer.rank <= 2 && total <= INT32_MAX - SPREAD * THREADS;
    fits &= s.step[1] == 0 || (s.step[1] == 1 && is_aligned<T>(k.dy, &outer, 1));
    int64_t next = s.length;
    for (int32_t d = outer.rank - 1; d >= 0 && fits; d--) {
        fits &= outer.strides[0][d] == next;
        next *= outer.dims[d];
    }
    if (!fits)
        return false;
    *plan = {};
    plan->total = (int32_t)total;
    plan->vectors = (int32_t)(s.length / VLEN<T>);
    plan->inner = outer.rank == 0 ? 1 : (int32_t)outer.dims[outer.rank - 1];
    plan->by_row = small_divider_of(plan->vectors);
    plan->by_inner = small_divider_of(plan->inner);
    plan->row = outer.rank == 0 ? 0 : outer.strides[1][outer.rank - 1];
    plan->outer_step = outer.rank < 2 ? 0 : outer.strides[1][0];
    return true;
}

template <rg_dtype T, bool AWARD>
static void spread(const rg_reduce_gradient_args &k, const rg_cuda_target *target)
{
    const int64_t most_blocks = 1 << 24, length = k.sweep.length;
    const int64_t count = k.sweep.outer.count * length, blocks = ceil_div(count, THREADS);
    const bool wide =
        k.sweep.step[0] == 1 && length % VLEN<T> == 0 && is_aligned<T>(k.dx, &k.sweep.outer, 0);
    spread_plan plan;
    if (!AWARD && plan_spread<T>(k, &plan))
        launch(k.sweep.step[1] == 0 ? spread_dense<T, true> : spread_dense<T, false>,
               ceil_div(plan.total, SPREAD * THREADS), THREADS, 0, target, k, plan);
    else if (wide)
        launch(spread_vectors<T, AWARD>, ceil_div(count, THREADS * VLEN<T>), THREADS, 0, target, k,
               length / VLEN<T>);
    else
        launch(spread_elements<T, AWARD>, blocks < most_blocks ? blocks : most_blocks, THREADS, 0,
               target, k);
}

template <rg_dtype T> static void reduce_spread(const void *args, const rg_cuda_target *target)
{
    spread<T, false>(*(const rg_reduce_gradient_args *)args, target);
}

template <rg_dtype T> static void reduce_award(const void *args, const rg_cuda_target *target)
{
    spread<T, true>(*(const rg_reduce_gradient_args *)args, target);
}

/* ---- extremes of rows: found and awarded in one launch ---- */

/* A thread's share of a row of dx: dy for element `winner`, 0 for the others. */
template <rg_dtype T>
static __device__ __forceinline__ void award_vectors(const rg_reduce_award_args &k, char *dx,
                                                     int vectors, int thread, int threads,
                                                     int winner, real<T> dy)
{
    enum { V = VLEN<T> };
#pragma unroll 4
    for (int v = thread; v < vectors; v += threads) {
        real<T> value[V] = {}, old[V];
        if ((unsigned)(winner - v * V) < V) {
#pragma unroll
            for (int e = 0; e < V; e++)
                value[e] = winner - v * V == e ? dy : 0;
        }
        if (k.add) {
            unpack<T>(load_vector(dx + 16 * (int64_t)v), old);
#pragma unroll
            for (int e = 0; e < V; e++)
                value[e] += old[e];
        }
        store_vector(dx + 16 * (int64_t)v, pack<T>(value), k.stream);
    }
}

/* `threads` threads to a row; WIDE: of whole, aligned vectors. All of x is read before dx, which
 * may take its place, is written. */
template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(THREADS, 4)
    award_rows(const __grid_constant__ rg_reduce_award_args k, const int threads)
{
    enum { V = VLEN<T> };
    __shared__ found<real<T>> bests[32];
    const int64_t row = (int64_t)blockIdx.x * (THREADS / threads) + (int)threadIdx.x / threads;
    const int thread = (int)threadIdx.x % threads;
    const bool there = row < k.outer.count;
    const int length = there ? (int)k.length : 0;
    const int64_t o = there ? row : 0;
    const char *const x = at<T>(k.x, offset_at(k.outer, 0, o));
    char *const dx = at<T>(k.dx, offset_at(k.outer, 1, o));
    const real<T> dy = load<T>(k.dy, offset_at(k.outer, 2, o)), sign = (real<T>)k.sign;
    found<real<T>> best = start_at<real<T>>(thread * (WIDE ? V : 1), length);
    if (WIDE) {
        const scanned<real<T>> own =
            scan_vectors<T, RG_REDUCE_NUMBER>(x, length / V, thread, threads, sign);
        best.value = own.best;
        if (thread * V < length)
            best.number = own.number;
    } else {
        for (int j = thread; j < length; j += threads)
            improve<RG_REDUCE_NUMBER>(best.value, best.number, load<T>(x, j * k.step[0]) * sign,
                                      (int64_t)j);
    }
    const int winner = (int)reduce_better(best, threads, bests).number;
    if (WIDE)
        award_vectors<T>(k, dx, length / V, thread, threads, winner, dy);
    for (int j = WIDE ? length : thread; j < length; j += threads)
        put<T>(dx, j * k.step[1], j == winner ? dy : 0, k.add);
}

template <rg_dtype T> static void reduce_award_rows(const void *args, const rg_cuda_target *target)
{
    const rg_reduce_award_args &k = *(const rg_reduce_award_args *)args;
    const bool wide = k.step[0] == 1 && k.step[1] == 1 && k.length % VLEN<T> == 0 &&
                      is_aligned<T>(k.x, &k.outer, 0) && is_aligned<T>(k.dx, &k.outer, 1);
    const int64_t slots = wide ? k.length / VLEN<T> : ceil_div(k.length, 4);
    const int threads = slots <= 256 ? power_of_two(slots, 1, 32) : (int)THREADS;
    launch(wide ? award_rows<T, true> : award_rows<T, false>,
           ceil_div(k.outer.count, THREADS / threads), THREADS, 0, target, k, threads);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_REDUCE_SPREAD, reduce_spread),
    RG_CUDA_ROW(RG_REDUCE_AWARD, reduce_award),
    RG_CUDA_ROW(RG_REDUCE_AWARD_ROWS, reduce_award_rows),
};
RG_CUDA_TABLE(reduce_gradient, kernel_rows);
