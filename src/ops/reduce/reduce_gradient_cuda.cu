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
    if (AWARD)
        return k.winners[o + j * step[2]] == number + j * step[3] ? load<T>(k.dy, dy + j * step[1])
                                                                  : 0;
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

/* ---- extremes: winners that are known ---- */

/* Adds dy to element `winner` of a vector of dx, and 0 to the others. */
template <rg_dtype T>
static __device__ __forceinline__ void award_vector(char *dx, uint64_t winner, element<T> dy,
                                                    const uint4 &old, bool stream)
{
    enum { V = VLEN<T> };
    real<T> value[V];
    unpack<T>(old, value);
#pragma unroll
    for (int e = 0; e < V; e++)
        value[e] += winner == e ? to_real<T>(dy) : 0;
    store_vector(dx, pack<T>(value), stream);
}

/* Rows of dx with one winner each, of whole, aligned vectors. */
typedef struct row_plan {
    int32_t total, vectors; /* vectors of dx, of a row */
    small_divider by_row;   /* vectors of a row */
    quick_walk<4> rows;     /* tensors dx, dy, numbers of outputs, numbers within groups */
} row_plan;

/* Where dx is not added to: zeros, which wait for nothing, and then the winners among them. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    award_to_rows(const __grid_constant__ rg_reduce_gradient_args k,
                  const __grid_constant__ row_plan plan)
{
    enum { V = VLEN<T> };
    const int32_t first = (int32_t)blockIdx.x * (SPREAD * THREADS);
    const int32_t end =
        plan.total - first < SPREAD * THREADS ? plan.total : first + SPREAD * THREADS;
#pragma unroll SPREAD
    for (int32_t v = first + (int32_t)threadIdx.x; v < end; v += THREADS) {
        const int32_t row = divide(v, plan.by_row);
        const int64_t at_row = quick_offset(plan.rows, 0, find_index(plan.rows, row));
        store_vector(at<T>(k.dx, at_row + (int64_t)(v - row * plan.vectors) * V), uint4{},
                     k.stream);
    }
    __syncthreads();
    const int32_t last_row = divide(end - 1, plan.by_row);
    for (int32_t row = divide(first, plan.by_row) + (int32_t)threadIdx.x; row <= last_row;
         row += THREADS) {
        const quick_index index = find_index(plan.rows, row);
        const uint64_t j = (uint64_t)k.winners[quick_offset(plan.rows, 2, index)] -
                           (uint64_t)quick_offset(plan.rows, 3, index);
        if (j >= (uint64_t)plan.vectors * V)
            continue; /* of another part of the group, or no number of it */
        const int64_t v = (int64_t)row * plan.vectors + (int64_t)(j / V);
        if (v >= first && v < end)
            store<T>(k.dx, quick_offset(plan.rows, 0, index) + (int64_t)j,
                     load<T>(k.dy, quick_offset(plan.rows, 1, index)));
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    add_to_rows(const __grid_constant__ rg_reduce_gradient_args k,
                const __grid_constant__ row_plan plan)
{
    enum { V = VLEN<T> };
    const int64_t first = (int64_t)blockIdx.x * (SPREAD * THREADS) + threadIdx.x;
    char *dx[SPREAD];
    uint64_t winner[SPREAD];
    element<T> dy[SPREAD];
    uint4 old[SPREAD];
#pragma unroll
    for (int i = 0; i < SPREAD; i++) {
        if (first + i * THREADS >= plan.total)
            break;
        const int32_t v = (int32_t)first + i * THREADS, row = divide(v, plan.by_row);
        const quick_index index = find_index(plan.rows, row);
        const int64_t j = (int64_t)(v - row * plan.vectors) * V;
        dx[i] = at<T>(k.dx, quick_offset(plan.rows, 0, index) + j);
        dy[i] = ((const element<T> *)k.dy)[quick_offset(plan.rows, 1, index)];
        winner[i] = (uint64_t)k.winners[quick_offset(plan.rows, 2, index)] -
                    (uint64_t)(quick_offset(plan.rows, 3, index) + j);
        old[i] = load_vector(dx[i]);
    }
#pragma unroll
    for (int i = 0; i < SPREAD; i++) {
        if (first + i * THREADS >= plan.total)
            break;
        award_vector<T>(dx[i], winner[i], dy[i], old[i], k.stream);
    }
}

/* Whether each row of the sweep lies within one group, and is whole vectors. */
template <rg_dtype T> static bool plan_rows(const rg_reduce_gradient_args &k, row_plan *plan)
{
    const rg_sweep &s = k.sweep;
    const int64_t vectors = s.length / VLEN<T>;
    const bool fits = s.step[0] == 1 && s.step[2] == 0 && s.step[3] == 1 &&
                      s.length % VLEN<T> == 0 && is_aligned<T>(k.dx, &s.outer, 0) &&
                      vectors * s.outer.count <= INT32_MAX - SPREAD * THREADS;
    if (!fits || !quick_walk_of(s.outer, &plan->rows))
        return false;
    plan->total = (int32_t)(vectors * s.outer.count);
    plan->vectors = (int32_t)vectors;
    plan->by_row = small_divider_of(vectors);
    return true;
}

/* Adjacent groups: rows of dx that have the same winners and dy. A thread has one vector of columns
 * and every `side`-th of SPREAD_ROWS * side rows. */
enum { SPREAD_ROWS = 8 };

typedef struct column_plan {
    int32_t total; /* threads */
    int32_t vectors, rows,
        side;       /* vectors of a row; rows of a group; those that are side by side */
    int32_t chunks; /* of rows */
    small_divider by_slab, by_vectors, by_chunks;
    int64_t step;        /* of dx, from row to row */
    quick_walk<3> outer; /* over rows of groups: tensors dx, dy, numbers of outputs */
} column_plan;

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    award_to_columns(const __grid_constant__ rg_reduce_gradient_args k,
                     const __grid_constant__ column_plan plan)
{
    enum { V = VLEN<T> };
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= plan.total)
        return;
    const int32_t slab = divide((int32_t)i, plan.by_slab);
    const int32_t place = (int32_t)i - slab * plan.side * plan.vectors;
    const int32_t down = divide(place, plan.by_vectors), outer = divide(slab, plan.by_chunks);
    const int32_t row = (slab - outer * plan.chunks) * SPREAD_ROWS * plan.side + down;
    const int64_t column = (int64_t)(place - down * plan.vectors) * V;
    const quick_index index = find_index(plan.outer, outer);
    const int64_t *const winners = k.winners + quick_offset(plan.outer, 2, index) + column;
    char *dx = at<T>(k.dx, quick_offset(plan.outer, 0, index) + column + row * plan.step);
    real<T> dy[V];
    unsigned turn[V]; /* from the first row of this thread to the winner */
    unpack<T>(load_vector(at<T>(k.dy, quick_offset(plan.outer, 1, index) + column)), dy);
#pragma unroll
    for (int e = 0; e < V; e += 2) {
        const longlong2 two = *(const longlong2 *)(winners + e);
        const uint64_t from[] = { (uint64_t)two.x - (uint64_t)row,
                                  (uint64_t)two.y - (uint64_t)row };
        for (int p = 0; p < 2; p++)
            turn[e + p] =
                from[p] < (uint64_t)(SPREAD_ROWS * plan.side) ? (unsigned)from[p] : UINT_MAX;
    }
#pragma unroll
    for (int r = 0; r < SPREAD_ROWS;
         r++, dx += plan.side * plan.step * (int64_t)sizeof(element<T>)) {
        real<T> value[V], old[V];
        if (row + r * plan.side >= plan.rows)
            break;
        if (k.add)
            unpack<T>(load_vector(dx), old);
#pragma unroll
        for (int e = 0; e < V; e++) {
            value[e] = turn[e] == (unsigned)(r * plan.side) ? dy[e] : 0;
            value[e] = k.add ? old[e] + value[e] : value[e];
        }
        store_vector(dx, pack<T>(value), k.stream);
    }
}

/* Whether the rows of the sweep are adjacent groups, element for element, of whole vectors. */
template <rg_dtype T> static bool plan_columns(const rg_reduce_gradient_args &k, column_plan *plan)
{
    const rg_sweep &s = k.sweep;
    rg_walk outer = s.outer;
    int64_t step[4];
    if (outer.rank == 0 || outer.count == 0 || s.length % VLEN<T> != 0)
        return false;
    const int64_t vectors = s.length / VLEN<T>;
    bool fits = s.step[0] == 1 && s.step[1] == 1 && s.step[2] == 1 && s.step[3] == 0;
    fits &= is_aligned<T>(k.dx, &outer, 0) && is_aligned<T>(k.dy, &outer, 1);
    const int32_t last = --outer.rank;
    const int64_t rows = outer.dims[last];
    for (int t = 0; t < 4; t++)
        step[t] = outer.strides[t][last];
    outer.count /= rows;
    for (int32_t d = 0; d < last; d++)
        fits &= outer.strides[3][d] == 0 && outer.strides[2][d] % 2 == 0;
    fits &= (uintptr_t)k.winners % 16 == 0; /* read by twos */
    fits &= step[1] == 0 && step[2] == 0 && step[3] == 1;
    const int64_t side = at_most(rows, ceil_div(THREADS, vectors));
    const int64_t chunks = ceil_div(rows, SPREAD_ROWS * side), slab = side * vectors;
    fits &= rows <= INT32_MAX / 2 && vectors <= INT32_MAX / SPREAD_ROWS / THREADS;
    if (!fits || outer.count * chunks > INT32_MAX / slab - THREADS ||
        !quick_walk_of(outer, &plan->outer))
        return false;
    plan->total = (int32_t)(outer.count * chunks * slab);
    plan->vectors = (int32_t)vectors;
    plan->rows = (int32_t)rows;
    plan->side = (int32_t)side;
    plan->chunks = (int32_t)chunks;
    plan->by_slab = small_divider_of(slab);
    plan->by_vectors = small_divider_of(vectors);
    plan->by_chunks = small_divider_of(chunks);
    plan->step = step[0];
    return true;
}

template <rg_dtype T> static void reduce_award(const void *args, const rg_cuda_target *target)
{
    const rg_reduce_gradient_args &k = *(const rg_reduce_gradient_args *)args;
    row_plan rows;
    column_plan columns;
    if (plan_rows<T>(k, &rows))
        launch(k.add ? add_to_rows<T> : award_to_rows<T>, ceil_div(rows.total, SPREAD * THREADS),
               THREADS, 0, target, k, rows);
    else if (plan_columns<T>(k, &columns))
        launch(award_to_columns<T>, ceil_div(columns.total, THREADS), THREADS, 0, target, k,
               columns);
    else
        spread<T, true>(k, target);
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
