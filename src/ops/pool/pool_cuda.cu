/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling on a GPU. A thread makes one vector of channels of one pixel of the result, 16 bytes, or
 * one element where tensors are not aligned for that. A block stays within a row, so that all that
 * concerns rows is the same for its threads. */
#include "backend/cuda/long_sum.cuh"
#include "ops/pool/pool_square.cuh"

/* ---- division by numbers that are known before the launch ---- */

struct divider {
    int64_t by;
    small_divider small;
    bool fast; /* numbers and divisor are below 2^31 */
};

/* Of numbers up to `most`. */
static divider divider_of(int64_t by, int64_t most)
{
    divider d = { by, {}, by <= INT32_MAX && most <= INT32_MAX };
    if (d.fast)
        d.small = small_divider_of(by);
    return d;
}

static __device__ __forceinline__ int64_t divide(int64_t n, const divider &d)
{
    return d.fast ? divide((int32_t)n, d.small) : n / d.by;
}

/* ---- which thread does what ---- */

struct grid {
    int64_t blocks;        /* in all; a launch may have fewer, which then take several */
    int64_t pieces;        /* blocks of a row */
    int64_t rows;          /* of an image */
    int64_t row_vectors;   /* vectors of a row */
    int64_t pixel_vectors; /* vectors of a pixel */
    divider by_pieces, by_rows, by_pixel;
    divider by_row_stride, by_column_stride;
};

struct pixel_index {
    int64_t image, row, column, channel;
};

/* False for threads after the end of the row. */
template <int V>
static __device__ __forceinline__ bool find_pixel(const grid &g, int64_t block, pixel_index &at)
{
    const int64_t line = divide(block, g.by_pieces);
    const int64_t v = (block - line * g.pieces) * blockDim.x + threadIdx.x;
    at.image = divide(line, g.by_rows);
    at.row = line - at.image * g.rows;
    at.column = divide(v, g.by_pixel);
    at.channel = (v - at.column * g.pixel_vectors) * V;
    return v < g.row_vectors;
}

static grid grid_of(const rg_pool_shape *k, int64_t rows, int64_t columns, int vector, int *threads)
{
    grid g;
    g.rows = rows;
    g.pixel_vectors = k->channels / vector;
    g.row_vectors = columns * g.pixel_vectors;
    *threads = power_of_two(g.row_vectors, 32, THREADS);
    g.pieces = ceil_div(g.row_vectors, *threads);
    g.blocks = k->images * rows * g.pieces;
    g.by_pieces = divider_of(g.pieces, g.blocks);
    g.by_rows = divider_of(rows, k->images * rows);
    g.by_pixel = divider_of(g.pixel_vectors, g.pieces * *threads);
    g.by_row_stride = divider_of(k->row.stride, INT32_MAX);
    g.by_column_stride = divider_of(k->column.stride, INT32_MAX);
    return g;
}

/* Whether vectors can be loaded at every pixel. */
template <rg_dtype T> static bool pixels_aligned(const void *data, const int64_t steps[4])
{
    bool aligned = (uintptr_t)data % 16 == 0;
    for (int d = 0; d < 3; d++)
        aligned &= steps[d] % VLEN<T> == 0;
    return aligned;
}

/* ---- forward ---- */

template <rg_dtype T, int V>
static __device__ __forceinline__ void max_window(const forward_args &k, const pixel_index &to,
                                                  int64_t first, const int64_t p[2],
                                                  const int64_t q[2])
{
    const rg_pool_shape &s = k.shape;
    const int32_t columns = (int32_t)s.column.window;
    const int32_t nobody = s.wide ? RG_POOL_VIRTUAL_WIDE : RG_POOL_VIRTUAL;
    const int64_t zero_after = rg_pool_zero_after(&s, p[0], p[1], q[0], q[1]);
    const int64_t down = s.row.dilation * s.x[1], right = s.column.dilation * s.x[2];
    real<T> best[V], x[V];
    int32_t winner[V];
#pragma unroll
    for (int e = 0; e < V; e++) {
        best[e] = zero_after == 0 ? (real<T>)0 : -(real<T>)INFINITY;
        winner[e] = zero_after == 0 ? nobody : (int32_t)p[0] * columns + (int32_t)q[0];
    }
    for (int64_t i = p[0]; i < p[1]; i++) {
        int64_t at = first + i * down + q[0] * right;
        for (int64_t j = q[0]; j < q[1]; j++, at += right) {
            load_channels<T, V>(k.x, at, x);
#pragma unroll
            for (int e = 0; e < V; e++)
                compete(best[e], winner[e], x[e], (int32_t)i * columns + (int32_t)j);
        }
        if (i + 1 - p[0] == zero_after) {
#pragma unroll
            for (int e = 0; e < V; e++)
                compete(best[e], winner[e], (real<T>)0, nobody);
        }
    }
    if (k.y != NULL)
        store_channels<T, V>(
            k.y, to.image * s.y[0] + to.row * s.y[1] + to.column * s.y[2] + to.channel * s.y[3],
            best, false);
    if (k.winners != NULL)
        store_winners<V>(k.winners,
                         to.image * s.winners[0] + to.row * s.winners[1] +
                             to.column * s.winners[2] + to.channel,
                         s.wide, winner);
}

/* MANY: there are more taps than a plain chain of additions may have. */
template <rg_dtype T, int V, pooling KIND, bool MANY>
static __device__ __forceinline__ void sum_window(const forward_args &k, const pixel_index &to,
                                                  int64_t first, const int64_t p[2],
                                                  const int64_t q[2])
{
    const rg_pool_shape &s = k.shape;
    const int64_t down = s.row.dilation * s.x[1], right = s.column.dilation * s.x[2];
    long_chain<real<T>, V> chain;
    real<T> sum[V], x[V];
    for (int64_t i = p[0]; i < p[1]; i++) {
        int64_t at = first + i * down + q[0] * right;
        for (int64_t j = q[0]; j < q[1]; j++, at += right) {
            load_channels<T, V>(k.x, at, x);
#pragma unroll
            for (int e = 0; e < V; e++)
                chain.run[e] = KIND == L2 ? fma(x[e], x[e], chain.run[e]) : chain.run[e] + x[e];
            if constexpr (MANY)
                chain.count();
        }
    }
    chain.template end<MANY>(sum);
    real<T> scale = 0;
    if (KIND == AVERAGE) {
        const int64_t counted =
            rg_pool_counted(&s.row, to.row) * rg_pool_counted(&s.column, to.column);
        scale = counted > 0 ? 1 / (real<T>)counted : 0;
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        sum[e] = KIND == L2 ? sqrt(sum[e]) : sum[e] * scale;
    store_channels<T, V>(
        k.y, to.image * s.y[0] + to.row * s.y[1] + to.column * s.y[2] + to.channel * s.y[3], sum,
        false);
}

template <rg_dtype T, int V, pooling KIND, bool MANY>
static __global__ void __launch_bounds__(THREADS)
    pool_windows(const __grid_constant__ forward_args k, const __grid_constant__ grid g)
{
    const rg_pool_shape &s = k.shape;
    for (int64_t block = blockIdx.x; block < g.blocks; block += gridDim.x) {
        pixel_index to;
        if (!find_pixel<V>(g, block, to))
            continue;
        int64_t p[2], q[2];
        rg_pool_taps(&s.row, to.row, &p[0], &p[1]);
        rg_pool_taps(&s.column, to.column, &q[0], &q[1]);
        const int64_t first = to.image * s.x[0] + (to.row * s.row.stride - s.row.before) * s.x[1] +
                              (to.column * s.column.stride - s.column.before) * s.x[2] +
                              to.channel * s.x[3];
        if constexpr (KIND == MAX)
            max_window<T, V>(k, to, first, p, q);
        else
            sum_window<T, V, KIND, MANY>(k, to, first, p, q);
    }
}

template <rg_dtype T, pooling KIND>
static void launch_forward(const forward_args &k, const rg_cuda_target *target)
{
    const rg_pool_shape *s = &k.shape;
    bool wide = s->dense && s->channels % VLEN<T> == 0 && pixels_aligned<T>(k.x, s->x);
    wide &= k.y == NULL || pixels_aligned<T>(k.y, s->y);
    wide &= (uintptr_t)k.winners % 8 == 0;
    if (wide && !rg_choices_forces(target->choices, "windows") &&
        rg_pool_square[KIND][T](k, target)) {
        rg_choices_note(target->choices, "square");
        return;
    }
    rg_choices_note(target->choices, "windows");
    int threads;
    const grid g = grid_of(s, s->row.count, s->column.count, wide ? VLEN<T> : 1, &threads);
    const int64_t blocks = g.blocks < INT32_MAX ? g.blocks : INT32_MAX;
    const bool many = KIND != MAX && s->row.window * s->column.window > RG_CHAIN_RUN;
    launch(wide   ? many ? pool_windows<T, VLEN<T>, KIND, KIND != MAX>
                         : pool_windows<T, VLEN<T>, KIND, false>
             : many ? pool_windows<T, 1, KIND, KIND != MAX>
                  : pool_windows<T, 1, KIND, false>,
           blocks, threads, 0, target, k, g);
}

template <rg_dtype T> static void max_forward(const void *args, const rg_cuda_target *target)
{
    const rg_pool_args *k = (const rg_pool_args *)args;
    launch_forward<T, MAX>(forward_args{ k->x, k->y, NULL, k->shape }, target);
}

template <rg_dtype T> static void max_winners(const void *args, const rg_cuda_target *target)
{
    const rg_pool_winners_args *k = (const rg_pool_winners_args *)args;
    launch_forward<T, MAX>(forward_args{ k->x, k->y, k->winners, k->shape }, target);
}

template <rg_dtype T> static void average_forward(const void *args, const rg_cuda_target *target)
{
    const rg_pool_args *k = (const rg_pool_args *)args;
    launch_forward<T, AVERAGE>(forward_args{ k->x, k->y, NULL, k->shape }, target);
}

template <rg_dtype T> static void l2_forward(const void *args, const rg_cuda_target *target)
{
    const rg_pool_args *k = (const rg_pool_args *)args;
    launch_forward<T, L2>(forward_args{ k->x, k->y, NULL, k->shape }, target);
}

/* ---- gradient ---- */

/* As rg_pool_windows, with the stride's divider; windows are counted in 31 bits. */
static __device__ __forceinline__ void find_windows(const rg_pool_axis &a, const divider &by_stride,
                                                    int32_t r, int32_t &first, int32_t &last)
{
    const int32_t end = r + (int32_t)a.before;
    const int32_t begin = end - (int32_t)((a.window - 1) * a.dilation);
    last = end < 0 ? -1 : (int32_t)divide(end, by_stride);
    last = last < (int32_t)a.count ? last : (int32_t)a.count - 1;
    first = begin <= 0 ? 0 : (int32_t)divide(begin - 1, by_stride) + 1;
}

/* As rg_pool_tap. */
static __device__ __forceinline__ int32_t find_tap(const rg_pool_axis &a, int32_t i, int32_t r)
{
    const int32_t distance = r + (int32_t)a.before - i * (int32_t)a.stride;
    const int32_t dilation = (int32_t)a.dilation;
    if (dilation == 1)
        return distance;
    return distance % dilation == 0 ? distance / dilation : -1;
}

template <rg_dtype T, int V, pooling KIND>
static __device__ __forceinline__ void collect_window(const rg_pool_gradient_args &k, int64_t dy_at,
                                                      int64_t from_at, int32_t tap, real<T> share,
                                                      const real<T> x[V], real<T> sum[V])
{
    real<T> dy[V];
    load_channels<T, V>(k.dy, dy_at, dy);
    if constexpr (KIND == MAX) {
        int32_t winner[V];
        load_winners<V>(k.from, from_at, k.shape.wide, winner);
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] += winner[e] == tap ? dy[e] : 0;
    } else if constexpr (KIND == AVERAGE) {
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] += dy[e] * share;
    } else {
        real<T> y[V];
        load_channels<T, V>(k.y, from_at, y);
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] += y[e] == 0 ? 0 : dy[e] * (x[e] / y[e]);
    }
}

/* All windows around one pixel, in row-major order. MANY: as in sum_window, of windows. */
template <rg_dtype T, int V, pooling KIND, bool MANY>
static __device__ __forceinline__ void collect_pixel(const rg_pool_gradient_args &k, const grid &g,
                                                     const pixel_index &u, const real<T> x[V],
                                                     real<T> sum[V])
{
    const rg_pool_shape &s = k.shape;
    long_chain<real<T>, V> chain;
    const int64_t all = s.row.window * s.column.window;
    const real<T> whole = KIND == AVERAGE ? 1 / (real<T>)all : 0;
    const int64_t from_down = KIND == L2 ? s.w[1] : s.winners[1];
    const int64_t from_right = KIND == L2 ? s.w[2] : s.winners[2];
    const int64_t from_image =
        KIND == L2 ? u.image * s.w[0] + u.channel * s.w[3] : u.image * s.winners[0] + u.channel;
    int32_t i0, i1, j0, j1;
    find_windows(s.row, g.by_row_stride, (int32_t)u.row, i0, i1);
    find_windows(s.column, g.by_column_stride, (int32_t)u.column, j0, j1);
    for (int32_t i = i0; i <= i1; i++) {
        const int32_t p = find_tap(s.row, i, (int32_t)u.row);
        if (p < 0)
            continue;
        const int64_t rows = KIND == AVERAGE ? rg_pool_counted(&s.row, i) : 0;
        int64_t dy_at = u.image * s.y[0] + i * s.y[1] + j0 * s.y[2] + u.channel * s.y[3];
        int64_t from_at = from_image + i * from_down + j0 * from_right;
        for (int32_t j = j0; j <= j1; j++, dy_at += s.y[2], from_at += from_right) {
            const int32_t q = find_tap(s.column, j, (int32_t)u.column);
            if (q < 0)
                continue;
            real<T> share = whole;
            if (KIND == AVERAGE && !s.zero) {
                const int64_t counted = rows * rg_pool_counted(&s.column, j);
                share = counted == all ? whole : 1 / (real<T>)counted;
            }
            const int32_t tap = KIND == MAX ? p * (int32_t)s.column.window + q : 0;
            collect_window<T, V, KIND>(k, dy_at, from_at, tap, share, x, chain.run);
            if constexpr (MANY)
                chain.count();
        }
    }
    chain.template end<MANY>(sum);
}

template <rg_dtype T, int V, pooling KIND, bool MANY>
static __global__ void __launch_bounds__(THREADS)
    collect_pixels(const __grid_constant__ rg_pool_gradient_args k, const __grid_constant__ grid g)
{
    const rg_pool_shape &s = k.shape;
    for (int64_t block = blockIdx.x; block < g.blocks; block += gridDim.x) {
        pixel_index u;
        if (!find_pixel<V>(g, block, u))
            continue;
        real<T> x[V] = {}, sum[V];
        if constexpr (KIND == L2)
            load_channels<T, V>(
                k.from, u.image * s.z[0] + u.row * s.z[1] + u.column * s.z[2] + u.channel * s.z[3],
                x);
        collect_pixel<T, V, KIND, MANY>(k, g, u, x, sum);
        const int64_t to =
            u.image * s.x[0] + u.row * s.x[1] + u.column * s.x[2] + u.channel * s.x[3];
        if (s.add) {
            real<T> old[V];
            load_channels<T, V>(k.dx, to, old);
#pragma unroll
            for (int e = 0; e < V; e++)
                sum[e] += old[e];
        }
        store_channels<T, V>(k.dx, to, sum, s.stream);
    }
}

template <rg_dtype T, pooling KIND>
static void launch_gradient(const void *args, const rg_cuda_target *target)
{
    const rg_pool_gradient_args *k = (const rg_pool_gradient_args *)args;
    const rg_pool_shape *s = &k->shape;
    bool wide = s->dense && s->channels % VLEN<T> == 0 && pixels_aligned<T>(k->dy, s->y) &&
                pixels_aligned<T>(k->dx, s->x);
    if (KIND == MAX)
        wide &= (uintptr_t)k->from % 8 == 0;
    if (KIND == L2)
        wide &= pixels_aligned<T>(k->from, s->z) && pixels_aligned<T>(k->y, s->w);
    if constexpr (KIND != L2) {
        if (wide && !rg_choices_forces(target->choices, "pixels") &&
            rg_pool_cells[KIND][T](k, target)) {
            rg_choices_note(target->choices, "cells");
            return;
        }
    }
    rg_choices_note(target->choices, "pixels");
    int threads;
    const grid g = grid_of(s, s->row.size, s->column.size, wide ? VLEN<T> : 1, &threads);
    const int64_t blocks = g.blocks < INT32_MAX ? g.blocks : INT32_MAX;
    const bool many =
        rg_pool_most_windows(&s->row) * rg_pool_most_windows(&s->column) > RG_CHAIN_RUN;
    launch(wide   ? many ? collect_pixels<T, VLEN<T>, KIND, true>
                         : collect_pixels<T, VLEN<T>, KIND, false>
             : many ? collect_pixels<T, 1, KIND, true>
                  : collect_pixels<T, 1, KIND, false>,
           blocks, threads, 0, target, *k, g);
}

/* ---- indices: an element per thread, the same for all dtypes ---- */

static __global__ void __launch_bounds__(THREADS)
    index_winners(const __grid_constant__ rg_pool_indices_args k, const __grid_constant__ grid g)
{
    const rg_pool_shape &s = k.shape;
    for (int64_t block = blockIdx.x; block < g.blocks; block += gridDim.x) {
        pixel_index w;
        if (!find_pixel<1>(g, block, w))
            continue;
        int32_t winner[1];
        load_winners<1>(k.winners,
                        w.image * s.winners[0] + w.row * s.winners[1] + w.column * s.winners[2] +
                            w.channel,
                        s.wide, winner);
        const int64_t index = rg_pool_index(&s, w.row, w.column, winner[0], k.by_columns);
        const int64_t first = (w.image * s.channels + w.channel) * s.row.size * s.column.size;
        k.indices[w.image * s.y[0] + w.row * s.y[1] + w.column * s.y[2] + w.channel * s.y[3]] =
            index < 0 ? -1 : first + index;
    }
}

static __global__ void __launch_bounds__(THREADS)
    check_indices(const __grid_constant__ rg_pool_taps_args k, const __grid_constant__ grid g)
{
    const rg_pool_shape &s = k.shape;
    for (int64_t block = blockIdx.x; block < g.blocks; block += gridDim.x) {
        pixel_index w;
        if (!find_pixel<1>(g, block, w))
            continue;
        const int64_t index =
            k.indices[w.image * s.y[0] + w.row * s.y[1] + w.column * s.y[2] + w.channel * s.y[3]];
        const int64_t first = (w.image * s.channels + w.channel) * s.row.size * s.column.size;
        int32_t winner[1];
        if (!rg_pool_index_winner(&s, w.row, w.column, index, first, k.by_columns, &winner[0]))
            *k.fault = 1;
        store_winners<1>(k.winners,
                         w.image * s.winners[0] + w.row * s.winners[1] + w.column * s.winners[2] +
                             w.channel,
                         s.wide, winner);
    }
}

template <rg_dtype T> static void max_indices(const void *args, const rg_cuda_target *target)
{
    const rg_pool_indices_args *k = (const rg_pool_indices_args *)args;
    int threads;
    const grid g = grid_of(&k->shape, k->shape.row.count, k->shape.column.count, 1, &threads);
    const int64_t blocks = g.blocks < INT32_MAX ? g.blocks : INT32_MAX;
    launch(index_winners, blocks, threads, 0, target, *k, g);
}

template <rg_dtype T> static void max_taps(const void *args, const rg_cuda_target *target)
{
    const rg_pool_taps_args *k = (const rg_pool_taps_args *)args;
    int threads;
    const grid g = grid_of(&k->shape, k->shape.row.count, k->shape.column.count, 1, &threads);
    const int64_t blocks = g.blocks < INT32_MAX ? g.blocks : INT32_MAX;
    launch(check_indices, blocks, threads, 0, target, *k, g);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_POOL_MAX_FORWARD, max_forward),
    RG_CUDA_ROW(RG_POOL_MAX_WINNERS, max_winners),
    RG_CUDA_ROW(RG_POOL_AVERAGE_FORWARD, average_forward),
    RG_CUDA_ROW(RG_POOL_L2_FORWARD, l2_forward),
    RG_CUDA_ROW(RG_POOL_MAX_GRADIENT, launch_gradient, MAX),
    RG_CUDA_ROW(RG_POOL_AVERAGE_GRADIENT, launch_gradient, AVERAGE),
    RG_CUDA_ROW(RG_POOL_L2_GRADIENT, launch_gradient, L2),
    RG_CUDA_ROW(RG_POOL_MAX_INDICES, max_indices),
    RG_CUDA_ROW(RG_POOL_MAX_TAPS, max_taps),
};
/* Of forward, then of the gradient: the first where the launch accepts. */
static const char *strategy_name(int32_t i)
{
    static const char *const strategies[] = { "square", "windows", "cells", "pixels" };
    return i < 4 ? strategies[i] : NULL;
}
RG_CUDA_TABLE(pool, kernel_rows, strategy_name);
