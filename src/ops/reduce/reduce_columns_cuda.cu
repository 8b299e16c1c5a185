/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions of columns on a GPU: groups are adjacent. */
#include "ops/reduce/reduce.cuh"

/* A block takes `across` vectors of columns, a power of two up to 32, and a part of their rows:
 * thread t the vector t % across, and every THREADS / across-th row. */
typedef struct columns_plan {
    int across;
    int64_t chunks; /* blocks for the width */
    bool wide;      /* columns are loaded as aligned vectors */
} columns_plan;

/* What a thread knows of its columns. */
template <rg_dtype T> struct column_results {
    real<T> sum[VLEN<T>];
    found<real<T>> best[VLEN<T>];
};

/* Which rows of which columns a thread has. */
typedef struct column_rows {
    int across, down;
    int64_t p, row;     /* part; row of groups */
    int64_t column;     /* the block's first one */
    int64_t left;       /* columns from the thread's first one on */
    int64_t base;       /* the offset of the thread's first one in x */
    int64_t first, end; /* rows of the part; none where no column is left */
} column_rows;

/* Offset `i` of a walk; STRAIGHT: of one dimension at most. */
template <bool STRAIGHT>
static __device__ __forceinline__ int64_t offset_of(const rg_walk &walk, int t, int64_t i)
{
    return STRAIGHT ? straight_offset(walk, t, i) : offset_at(walk, t, i);
}

template <rg_dtype T, bool STRAIGHT>
static __device__ __forceinline__ column_rows column_rows_of(const rg_reduce_args &k,
                                                             const columns_plan &plan, int64_t unit)
{
    const rg_reduce_result &r = k.result;
    column_rows at;
    const int64_t rest = quotient(unit, r.parts);
    at.p = unit - rest * r.parts;
    at.row = quotient(rest, plan.chunks);
    at.across = (int)threadIdx.x & (plan.across - 1);
    at.down = (int)threadIdx.x / plan.across;
    at.column = (rest - at.row * plan.chunks) * plan.across * VLEN<T>;
    const int64_t own = at.column + at.across * VLEN<T>;
    at.left = k.width - own;
    at.base = offset_of<STRAIGHT>(k.outer, 0, at.row) + own * k.across[0];
    at.first = at.p * r.part;
    at.end = at.left > 0 ? at_most(k.length, at.first + r.part) : at.first;
    return at;
}

/* ---- the threads of a block ---- */

/* Adds up what threads with the same columns have; thread t has the sum of column t of the block's.
 * `shared` holds VLEN values of every thread. A thread adds the values of VLEN threads, one after
 * the other, and those of a column are then joined: within warps, and warp by warp. */
template <rg_dtype T>
static __device__ __forceinline__ double join_columns(const real<T> sum[VLEN<T>], int across,
                                                      real<T> *shared, double *joined)
{
    enum { V = VLEN<T> };
    const int columns = across * V, shares = THREADS / columns;
    const int column = (int)threadIdx.x & (columns - 1), share = (int)threadIdx.x / columns;
#pragma unroll
    for (int e = 0; e < V; e++)
        shared[(int)threadIdx.x * V + e] = sum[e];
    __syncthreads();
    double total = 0;
#pragma unroll
    for (int i = 0; i < V; i++)
        total += (double)shared[(share + i * shares) * columns + column];
    for (int m = columns; m < 32; m *= 2)
        total += __shfl_xor_sync(~0u, total, m);
    const int span = columns < 32 ? 32 : columns;
    if (span == THREADS)
        return total;
    joined[threadIdx.x] = total;
    __syncthreads();
    total = joined[column];
    for (int i = span; i < THREADS; i += span)
        total += joined[i + column];
    return total;
}

/* Joins the threads of a block with the same vector; thread t < across has the result. `shared`
 * holds VALUES of every thread. */
template <int VALUES, class FOUND>
static __device__ __forceinline__ void reduce_better_down(FOUND f[VALUES], int across,
                                                          FOUND *shared)
{
    FOUND *const own = shared + threadIdx.x;
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

/* What the threads of a block have found in their columns, joined. */
template <rg_dtype T, rg_reduce_what WHAT>
static __device__ __forceinline__ void join_found(column_results<T> &r, const column_rows &p,
                                                  int across, char *shared)
{
    enum { V = VLEN<T> };
    if constexpr (WHAT == RG_REDUCE_WINNER) {
        winner<real<T>> own[V];
#pragma unroll
        for (int e = 0; e < V; e++)
            own[e] = winner_of(r.best[e], p.down, p.first);
        reduce_better_down<V>(own, across, (winner<real<T>> *)shared);
#pragma unroll
        for (int e = 0; e < V; e++)
            r.best[e] = { own[e].value, p.first + own[e].number };
    } else {
        reduce_better_down<V>(r.best, across, (found<real<T>> *)shared);
    }
}

/* ---- the rows of a thread ---- */

/* One vector of columns in row j; columns that are not there are 0. */
template <rg_dtype T>
static __device__ __forceinline__ void load_columns(const rg_reduce_args &k, int64_t base,
                                                    int64_t j, int64_t left, bool wide,
                                                    real<T> v[VLEN<T>])
{
    const int64_t offset = base + offset_at(k.group, 0, j);
    if (wide) {
        unpack<T>(load_vector(at<T>(k.x, offset)), v);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        v[e] = e < left ? load<T>(k.x, offset + e * k.across[0]) : 0;
}

template <rg_dtype T, rg_reduce_what WHAT>
static __device__ __forceinline__ void scan_columns(const rg_reduce_args &k,
                                                    const columns_plan &plan, const column_rows &p,
                                                    column_results<T> &r)
{
    enum { V = VLEN<T> };
    const real<T> sign = (real<T>)k.result.sign;
#pragma unroll 4
    for (int64_t j = p.first + p.down; j < p.end; j += THREADS / plan.across) {
        real<T> v[V];
        load_columns<T>(k, p.base, j, p.left, plan.wide, v);
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (WHAT == RG_REDUCE_TOTAL)
                r.sum[e] += v[e];
            else
                improve<WHAT>(r.best[e].value, r.best[e].number, v[e] * sign, j);
        }
    }
}

/* The same of aligned vectors that are one distance apart, with many loads at once. */
template <rg_dtype T, rg_reduce_what WHAT>
static __device__ __forceinline__ void scan_vectors_down(const rg_reduce_args &k,
                                                         const columns_plan &plan,
                                                         const column_rows &p, column_results<T> &r)
{
    enum { V = VLEN<T>, LOADS = WHAT == RG_REDUCE_TOTAL ? AHEAD : AHEAD / 2 };
    const real<T> sign = (real<T>)k.result.sign;
    const int64_t start = p.first + p.down, stride = k.group.strides[0][0];
    const int step = THREADS / plan.across, rows = (int)(p.end - start + step - 1) / step;
    const char *from = at<T>(k.x, p.base + start * stride);
    const int64_t distance = step * stride * (int64_t)sizeof(element<T>);
    int number[V] = {};
    for (int row = 0; row < rows; row += LOADS) {
        uint4 held[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            if (row + i < rows)
                held[i] = load_vector(from + i * distance);
        }
        from += LOADS * distance;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            if (row + i >= rows)
                break;
            real<T> v[V];
            unpack<T>(held[i], v);
#pragma unroll
            for (int e = 0; e < V; e++) {
                if (WHAT == RG_REDUCE_TOTAL)
                    r.sum[e] += v[e];
                else
                    improve<WHAT>(r.best[e].value, number[e], v[e] * sign, row + i);
            }
        }
    }
#pragma unroll
    for (int e = 0; e < V && WHAT >= RG_REDUCE_NUMBER; e++) {
        if (rows > 0)
            r.best[e].number = start + (int64_t)number[e] * step;
    }
}

/* ---- kernel ---- */

/* One unit of a block. VECTORS: aligned vectors, and walks of one dimension at most. */
template <rg_dtype T, rg_reduce_what WHAT, bool VECTORS>
static __device__ __forceinline__ void
columns_unit(const rg_reduce_args &k, const columns_plan &plan, int64_t unit, char *shared)
{
    enum { V = VLEN<T> };
    __shared__ double joined[THREADS];
    const column_rows p = column_rows_of<T, VECTORS>(k, plan, unit);
    column_results<T> r;
#pragma unroll
    for (int e = 0; e < V; e++) {
        r.sum[e] = 0;
        r.best[e] = start_at<real<T>>(p.first + p.down, p.end);
    }
    if (VECTORS)
        scan_vectors_down<T, WHAT>(k, plan, p, r);
    else
        scan_columns<T, WHAT>(k, plan, p, r);
    const int64_t y = offset_of<VECTORS>(k.outer, 1, p.row),
                  o = offset_of<VECTORS>(k.outer, 2, p.row);
    if (WHAT == RG_REDUCE_TOTAL) {
        const double total = join_columns<T>(r.sum, plan.across, (real<T> *)shared, joined);
        const int64_t column = p.column + (int)threadIdx.x;
        if ((int)threadIdx.x < plan.across * V && column < k.width)
            keep_found<T>(k, y + column * k.across[1], o + column * k.across[2], p.p, total, 0);
        return;
    }
    join_found<T, WHAT>(r, p, plan.across, shared);
    const int64_t column = p.column + p.across * V;
    for (int e = 0; e < V && e < p.left && p.down == 0; e++)
        keep_found<T>(k, y + (column + e) * k.across[1], o + (column + e) * k.across[2], p.p,
                      (double)r.best[e].value, r.best[e].number);
}

template <rg_dtype T, rg_reduce_what WHAT, bool VECTORS>
static __global__ void __launch_bounds__(THREADS, VECTORS &&WHAT == RG_REDUCE_TOTAL ? 4 : 1)
    columns_kernel(const __grid_constant__ rg_reduce_args k, const columns_plan plan)
{
    extern __shared__ __align__(16) char shared[];
    const int64_t units = k.outer.count * plan.chunks * k.result.parts;
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        columns_unit<T, WHAT, VECTORS>(k, plan, unit, shared);
        __syncthreads(); /* before `shared` is written again */
    }
}

template <rg_dtype T, rg_reduce_what WHAT>
static void columns(const rg_reduce_args &k, const rg_cuda_target *target)
{
    enum { V = VLEN<T> };
    const int64_t most_blocks = 1 << 24;
    const int64_t each = WHAT == RG_REDUCE_TOTAL    ? sizeof(real<T>)
                         : WHAT == RG_REDUCE_WINNER ? sizeof(winner<real<T>>)
                                                    : sizeof(found<real<T>>);
    columns_plan plan = { power_of_two(ceil_div(k.side, V), 1, 32), 0, false };
    plan.chunks = ceil_div(k.width, plan.across * V);
    plan.wide = k.dense && k.width % V == 0 && is_aligned<T>(k.x, &k.outer, 0) &&
                is_aligned<T>(k.x, &k.group, 0);
    const bool vectors = plan.wide && k.group.rank <= 1 && k.outer.rank <= 1;
    const int64_t units = k.outer.count * plan.chunks * k.result.parts;
    launch(vectors ? columns_kernel<T, WHAT, true> : columns_kernel<T, WHAT, false>,
           units < most_blocks ? units : most_blocks, THREADS, THREADS * V * each, target, k, plan);
}

template <rg_dtype T> static void reduce_columns(const void *args, const rg_cuda_target *target)
{
    const rg_reduce_args &k = *(const rg_reduce_args *)args;
    if (k.result.what == RG_REDUCE_TOTAL)
        columns<T, RG_REDUCE_TOTAL>(k, target);
    else if (k.result.what == RG_REDUCE_EXTREME)
        columns<T, RG_REDUCE_EXTREME>(k, target);
    else if (k.result.what == RG_REDUCE_NUMBER)
        columns<T, RG_REDUCE_NUMBER>(k, target);
    else
        columns<T, RG_REDUCE_WINNER>(k, target);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_REDUCE_COLUMNS, reduce_columns),
};
RG_CUDA_TABLE(reduce_columns, kernel_rows);
