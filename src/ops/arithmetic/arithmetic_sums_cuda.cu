/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of operands that were repeated, on a GPU. Sums over what an operand was repeated for
 * are made in pieces, together with the gradient of the other operand, so that dy is read once.
 *
 * The order of every sum is fixed by the shape: the rows of a piece, or its vectors of elements, go
 * to the threads that share it one after the other, and the sums of the threads form a tree.
 * Kernels for aligned tensors and for all others follow the same order. */
#include "backend/cuda/long_sum.cuh"
#include "ops/arithmetic/arithmetic.cuh"

/* ---- sums: vectors of the inner dimensions ---- */

/* Vectors that a thread loads before it goes on. */
enum { AHEAD = 2 };

/* Neighbours of the inner dimensions, and the offsets of the tensors outside of them. */
template <rg_dtype T> struct run {
    int64_t offset[RG_SUMS_TENSORS];
    int64_t first;
    int lanes; /* 0: none */
    real<T> dy[VLEN<T>], a[VLEN<T>], b[VLEN<T>];
};

/* WIDE: the inner dimensions are straight, and vectors aligned. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void take_run(const rg_walk &inner, int t, const void *data,
                                                const run<T> &r, real<T> x[VLEN<T>])
{
    if constexpr (WIDE) {
        const int64_t step = inner.strides[t][0];
        take<T, VLEN<T>>(data, r.offset[t] + r.first * step, step, r.lanes, x);
    } else {
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            x[e] = e < r.lanes ? load<T>(data, r.offset[t] + offset_at(inner, t, r.first + e)) : 0;
    }
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void put_run(const rg_arithmetic_sums_args &k, const run<T> &r,
                                               real<T> y[VLEN<T>])
{
    if constexpr (WIDE) {
        const int64_t step = k.inner.strides[3][0];
        put<T, VLEN<T>>(k.other, r.offset[3] + r.first * step, step, r.lanes, k.add, k.stream, y);
    } else {
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) {
            const int64_t to = r.offset[3] + offset_at(k.inner, 3, r.first + e);
            if (e < r.lanes)
                store<T>(k.other, to, k.add ? y[e] + load<T>(k.other, to) : y[e]);
        }
    }
}

/* Loads the elements at index `row` of `around` and `outer_offset`. */
template <rg_dtype T, kind K, bool WIDE>
static __device__ __forceinline__ void open_run(const rg_arithmetic_sums_args &k,
                                                const int64_t outer_offset[RG_SUMS_TENSORS],
                                                int64_t row, int64_t first, int lanes, run<T> &r)
{
    r.first = first;
    r.lanes = lanes;
    if (lanes <= 0)
        return;
#pragma unroll
    for (int t = 0; t < RG_SUMS_TENSORS; t++)
        r.offset[t] = outer_offset[t] + offset_at(k.around, t, row);
    take_run<T, WIDE>(k.inner, 0, k.dy, r, r.dy);
    if (K != ADD) {
        take_run<T, WIDE>(k.inner, 1, k.a, r, r.a);
        take_run<T, WIDE>(k.inner, 2, k.b, r, r.b);
    }
}

/* What is added up, in the place of dy; the gradient of the other operand goes where it belongs. */
template <rg_dtype T, kind K, bool WIDE>
static __device__ __forceinline__ void close_run(const rg_arithmetic_sums_args &k,
                                                 const constants<T> &c, run<T> &r)
{
    real<T> other[VLEN<T>];
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        const real<T> a = K == ADD ? 0 : r.a[e], b = K == ADD ? 0 : r.b[e];
        const real<T> dy = passed(K, &c, r.dy[e], a, b);
        other[e] = slope_of(K, !k.second, &c, dy, a, b);
        r.dy[e] = slope_of(K, k.second, &c, dy, a, b);
    }
    if (k.wants_other)
        put_run<T, WIDE>(k, r, other);
}

template <rg_dtype T> static bool is_wide_sum(const rg_arithmetic_sums_args *k)
{
    const void *const data[] = { k->dy, k->a, k->b, k->other };
    bool wide = k->straight && k->inner.strides[3][0] == 1;
    for (int t = 0; t < RG_SUMS_TENSORS; t++) {
        const int64_t step = k->inner.strides[t][0];
        wide &= is_wide<T>(data[t], step, &k->outer, t) && is_wide<T>(data[t], step, &k->around, t);
    }
    return wide;
}

/* ---- sums, columns ---- */

/* A thread has a vector of columns, of one piece; `inner` threads are adjacent, and the other
 * threads of the block share the rows of the pieces. */
template <rg_dtype T, kind K, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    sum_columns(const __grid_constant__ rg_arithmetic_sums_args k, const constants<T> c, int shift,
                int64_t vectors)
{
    enum { V = VLEN<T> };
    __shared__ real<T> partial[THREADS * V];
    const int inner = 1 << shift, down = THREADS >> shift, y = (int)threadIdx.x >> shift;
    const int64_t id = (int64_t)blockIdx.x * inner + ((int)threadIdx.x & (inner - 1));
    const int64_t unit = id / vectors, first = (id - unit * vectors) * V, width = k.inner.count;
    const int64_t o = unit / k.pieces, p = unit - o * k.pieces;
    const int lanes = o < k.outer.count ? (int)min((int64_t)V, width - first) : 0;
    const int64_t begin = p * k.piece;
    const int64_t end = lanes > 0 ? min(begin + k.piece, k.around.count) : begin;
    int64_t from[RG_SUMS_TENSORS];
    real<T> sum[V] = {};
#pragma unroll
    for (int t = 0; t < RG_SUMS_TENSORS; t++)
        from[t] = lanes > 0 ? offset_at(k.outer, t, o) : 0;
#pragma unroll 1
    for (int64_t row = begin + y; row < end; row += AHEAD * down) {
        run<T> r[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            open_run<T, K, WIDE>(k, from, row + u * down, first, row + u * down < end ? lanes : 0,
                                 r[u]);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (r[u].lanes <= 0)
                continue;
            close_run<T, K, WIDE>(k, c, r[u]);
#pragma unroll
            for (int e = 0; e < V; e++)
                sum[e] += r[u].dy[e];
        }
    }
    reduce_down<V>(sum, inner, partial, false);
    if (y > 0 || lanes <= 0)
        return;
    real<T> *const to = (real<T> *)k.part + p * k.sums + o * width + first;
#pragma unroll
    for (int e = 0; e < V; e++) {
        if (e < lanes)
            to[e] = sum[e];
    }
}

template <rg_dtype T, kind K> static void columns(const void *args, const rg_cuda_target *target)
{
    enum { ROWS = 32 }; /* of a thread */
    const rg_arithmetic_sums_args k = *(const rg_arithmetic_sums_args *)args;
    const constants<T> c = constants_of<real<T>>(&k.numbers);
    const int64_t vectors = ceil_div(k.inner.count, VLEN<T>);
    const int64_t rows = k.around.count < k.piece ? k.around.count : k.piece;
    const int down = power_of_two(ceil_div(rows, ROWS), 1, 32), inner = THREADS / down;
    const int64_t blocks = ceil_div(k.outer.count * k.pieces * vectors, inner);
    const int shift = __builtin_ctz((unsigned)inner);
    if (is_wide_sum<T>(&k))
        launch(sum_columns<T, K, true>, blocks, THREADS, 0, target, k, c, shift, vectors);
    else
        launch(sum_columns<T, K, false>, blocks, THREADS, 0, target, k, c, shift, vectors);
}

/* ---- sums, rows ---- */

/* `inner` threads share a piece: part of a warp, or the whole block. */
template <rg_dtype T, kind K, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    sum_rows(const __grid_constant__ rg_arithmetic_sums_args k, const constants<T> c, int shift)
{
    enum { V = VLEN<T> };
    __shared__ real<T> partial[32];
    const int inner = 1 << shift, x = (int)threadIdx.x & (inner - 1);
    const int64_t unit = (int64_t)blockIdx.x * (THREADS >> shift) + ((int)threadIdx.x >> shift);
    const int64_t o = unit / k.pieces, p = unit - o * k.pieces, row = p / k.cuts * k.rows;
    const int64_t first = p % k.cuts * k.piece, last = min(first + k.piece, k.inner.count);
    const int64_t end = o < k.sums ? min(row + k.rows, k.around.count) : row;
    int64_t from[RG_SUMS_TENSORS];
    long_chain<real<T>, 1> chain; /* of what is read at once */
    real<T> sum;
#pragma unroll
    for (int t = 0; t < RG_SUMS_TENSORS; t++)
        from[t] = o < k.sums ? offset_at(k.outer, t, o) : 0;
#pragma unroll 1
    for (int64_t j = row; j < end; j++) {
#pragma unroll 1
        for (int64_t i = first + x * V; i < last; i += AHEAD * inner * V, chain.count()) {
            run<T> r[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const int64_t at = i + u * inner * V;
                const int64_t left = max((int64_t)0, min((int64_t)V, last - at));
                open_run<T, K, WIDE>(k, from, j, at, (int)left, r[u]);
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                if (r[u].lanes <= 0)
                    continue;
                close_run<T, K, WIDE>(k, c, r[u]);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    if (e < r[u].lanes)
                        chain.run[0] += r[u].dy[e];
                }
            }
        }
    }
    chain.end(&sum);
    sum = reduce(sum, inner, partial, false);
    if (x == 0 && o < k.sums)
        ((real<T> *)k.part)[p * k.sums + o] = sum;
}

template <rg_dtype T, kind K> static void rows(const void *args, const rg_cuda_target *target)
{
    const rg_arithmetic_sums_args k = *(const rg_arithmetic_sums_args *)args;
    const constants<T> c = constants_of<real<T>>(&k.numbers);
    const int64_t length = k.inner.count < k.piece ? k.inner.count : k.piece;
    const int64_t vectors = ceil_div(length, VLEN<T>);
    const int inner = vectors > THREADS ? (int)THREADS : power_of_two(vectors, 1, 32);
    const int shift = __builtin_ctz((unsigned)inner);
    const int64_t blocks = ceil_div(k.sums * k.pieces, THREADS / inner);
    if (is_wide_sum<T>(&k))
        launch(sum_rows<T, K, true>, blocks, THREADS, 0, target, k, c, shift);
    else
        launch(sum_rows<T, K, false>, blocks, THREADS, 0, target, k, c, shift);
}

/* ---- sums of pieces ---- */

/* A block has `inner` sums; its other threads share the pieces. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    join_pieces(const __grid_constant__ rg_sum_pieces_args k, int shift)
{
    __shared__ double partial[THREADS];
    const int inner = 1 << shift, down = THREADS >> shift;
    const int64_t s = (int64_t)blockIdx.x * inner + ((int)threadIdx.x & (inner - 1));
    const int y = (int)threadIdx.x >> shift;
    double sum[1] = { 0 };
    if (s < k.kept.count) {
#pragma unroll 4
        for (int64_t p = y; p < k.pieces; p += down)
            sum[0] += ((const real<T> *)k.part)[p * k.kept.count + s];
    }
    reduce_down<1>(sum, inner, partial, false);
    if (y > 0 || s >= k.kept.count)
        return;
    const int64_t to = offset_at(k.kept, 0, s);
    const real<T> value = (real<T>)sum[0];
    store<T>(k.dx, to, k.add ? load<T>(k.dx, to) + value : value);
}

template <rg_dtype T> static void sum_pieces(const void *args, const rg_cuda_target *target)
{
    const rg_sum_pieces_args k = *(const rg_sum_pieces_args *)args;
    const int down = power_of_two(ceil_div(k.pieces, 4), 1, THREADS), inner = THREADS / down;
    launch(join_pieces<T>, ceil_div(k.kept.count, inner), THREADS, 0, target, k,
           __builtin_ctz((unsigned)inner));
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_ADD_COLUMNS, columns, ADD),
    RG_CUDA_ROW(RG_ADD_BOUNDED_COLUMNS, columns, ADD_BOUNDED),
    RG_CUDA_ROW(RG_MULTIPLY_COLUMNS, columns, MULTIPLY),
    RG_CUDA_ROW(RG_DIVIDE_COLUMNS, columns, DIVIDE),
    RG_CUDA_ROW(RG_MAXIMUM_COLUMNS, columns, MAXIMUM),
    RG_CUDA_ROW(RG_ADD_ROWS, rows, ADD),
    RG_CUDA_ROW(RG_ADD_BOUNDED_ROWS, rows, ADD_BOUNDED),
    RG_CUDA_ROW(RG_MULTIPLY_ROWS, rows, MULTIPLY),
    RG_CUDA_ROW(RG_DIVIDE_ROWS, rows, DIVIDE),
    RG_CUDA_ROW(RG_MAXIMUM_ROWS, rows, MAXIMUM),
    RG_CUDA_ROW(RG_SUM_PIECES, sum_pieces),
};
RG_CUDA_TABLE(arithmetic_sums, kernel_rows);
