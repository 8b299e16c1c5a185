/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling with square windows on a GPU: windows of 2 or 3 forward, strides of 1 or 2 backward,
 * whole vectors of channels, offsets of 31 bits within an image. All loads of a thread are under
 * way before it computes, and only borders ask what lies in the image: 2 to 5 times as fast as the
 * kernels of pool_cuda.cu, which serve all else and give the same bits. */
#include "ops/pool/pool_square.cuh"

/* ---- what a thread has to know, in 32 bits ---- */

struct square_axis {
    int32_t size, count, window, stride, dilation, before;
    int32_t x, y, winners; /* elements from a row, or column, to the next */
    int32_t first;         /* gradient: the number of the first cell */
};

struct square_grid {
    square_axis row, column;
    int64_t x, y, winners; /* elements from an image to the next */
    int32_t rows;          /* of the result: windows, or cells */
    int32_t pieces;        /* blocks of a row */
    int32_t row_vectors;   /* threads that a row needs */
    int32_t pixel_vectors; /* vectors of a pixel */
    small_divider by_pieces, by_rows, by_pixel;
};

struct square_index {
    int32_t image, i, j, channel;
};

/* False for threads after the end of the row. */
template <int V>
static __device__ __forceinline__ bool find_square(const square_grid &g, square_index &at)
{
    const int32_t block = (int32_t)blockIdx.x, line = divide(block, g.by_pieces);
    const int32_t v = (block - line * g.pieces) * (int32_t)blockDim.x + (int32_t)threadIdx.x;
    at.image = divide(line, g.by_rows);
    at.i = line - at.image * g.rows;
    at.j = divide(v, g.by_pixel);
    at.channel = (v - at.j * g.pixel_vectors) * V;
    return v < g.row_vectors;
}

/* ---- forward ---- */

/* The taps of a window that lie in the image: rows p0 <= p < p1, columns q0 <= q < q1. */
struct square_taps {
    int32_t p0, p1, q0, q1;
};

template <int SIDE>
static __device__ __forceinline__ void find_taps(const square_axis &a, int32_t start, int32_t &from,
                                                 int32_t &to)
{
    from = 0;
    to = SIDE;
#pragma unroll
    for (int t = 0; t < SIDE; t++) {
        from += start + t * a.dilation < 0;
        to -= start + t * a.dilation >= a.size;
    }
}

template <int SIDE> struct square_window {
    uint4 x[SIDE * SIDE];
    square_taps taps;
};

template <bool INSIDE>
static __device__ __forceinline__ bool has_tap(const square_taps &t, int p, int q)
{
    return INSIDE || (p >= t.p0 && p < t.p1 && q >= t.q0 && q < t.q1);
}

/* The maximum and its number; see max_window. */
template <rg_dtype T, int SIDE, bool INSIDE>
static __device__ __forceinline__ void square_max(const rg_pool_shape &s,
                                                  const square_window<SIDE> &w,
                                                  real<T> best[VLEN<T>], int32_t winner[VLEN<T>])
{
    enum { V = VLEN<T> };
    const square_taps &t = w.taps;
    const int32_t zero_after =
        INSIDE ? -1 : (int32_t)rg_pool_zero_after(&s, t.p0, t.p1, t.q0, t.q1);
    const int32_t first = INSIDE ? 0 : t.p0 * SIDE + t.q0;
#pragma unroll
    for (int e = 0; e < V; e++) {
        best[e] = zero_after == 0 ? (real<T>)0 : -(real<T>)INFINITY;
        winner[e] = zero_after == 0 ? RG_POOL_VIRTUAL : first;
    }
#pragma unroll
    for (int p = 0; p < SIDE; p++) {
#pragma unroll
        for (int q = 0; q < SIDE; q++) {
            if (!has_tap<INSIDE>(t, p, q))
                continue;
            real<T> x[V];
            unpack<T>(w.x[p * SIDE + q], x);
#pragma unroll
            for (int e = 0; e < V; e++)
                compete(best[e], winner[e], x[e], p * SIDE + q);
        }
        if (!INSIDE && p >= t.p0 && p < t.p1 && p + 1 - t.p0 == zero_after) {
#pragma unroll
            for (int e = 0; e < V; e++)
                compete(best[e], winner[e], (real<T>)0, RG_POOL_VIRTUAL);
        }
    }
}

template <rg_dtype T, pooling KIND, int SIDE, bool INSIDE>
static __device__ __forceinline__ void square_sum(const rg_pool_shape &s,
                                                  const square_window<SIDE> &w,
                                                  const square_index &to, real<T> sum[VLEN<T>])
{
    enum { V = VLEN<T> };
#pragma unroll
    for (int e = 0; e < V; e++)
        sum[e] = 0;
#pragma unroll
    for (int t = 0; t < SIDE * SIDE; t++) {
        if (!has_tap<INSIDE>(w.taps, t / SIDE, t % SIDE))
            continue;
        real<T> x[V];
        unpack<T>(w.x[t], x);
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] = KIND == L2 ? fma(x[e], x[e], sum[e]) : sum[e] + x[e];
    }
    real<T> scale = 1 / (real<T>)(SIDE * SIDE);
    if (KIND == AVERAGE && !INSIDE) {
        const int64_t counted = rg_pool_counted(&s.row, to.i) * rg_pool_counted(&s.column, to.j);
        scale = counted > 0 ? 1 / (real<T>)counted : 0;
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        sum[e] = KIND == L2 ? sqrt(sum[e]) : sum[e] * scale;
}

template <rg_dtype T, pooling KIND, int SIDE, bool INSIDE>
static __device__ __forceinline__ void square_pool(const forward_args &k, const square_grid &g,
                                                   const square_index &to, int32_t row,
                                                   int32_t column)
{
    enum { V = VLEN<T> };
    const char *const x = at<T>(k.x, to.image * g.x);
    const int64_t first = (int64_t)row * g.row.x + (int64_t)column * g.column.x + to.channel;
    const int32_t down = g.row.dilation * g.row.x, right = g.column.dilation * g.column.x;
    square_window<SIDE> w;
    find_taps<SIDE>(g.row, row, w.taps.p0, w.taps.p1);
    find_taps<SIDE>(g.column, column, w.taps.q0, w.taps.q1);
#pragma unroll
    for (int t = 0; t < SIDE * SIDE; t++) {
        if (has_tap<INSIDE>(w.taps, t / SIDE, t % SIDE))
            w.x[t] = load_vector(at<T>(x, first + t / SIDE * down + t % SIDE * right));
    }
    const int32_t y = to.i * g.row.y + to.j * g.column.y + to.channel;
    real<T> value[V];
    if constexpr (KIND == MAX) {
        int32_t winner[V];
        square_max<T, SIDE, INSIDE>(k.shape, w, value, winner);
        if (k.winners != NULL)
            store_winners<V>((uint8_t *)k.winners + to.image * g.winners,
                             to.i * g.row.winners + to.j * g.column.winners + to.channel, false,
                             winner);
        if (k.y == NULL)
            return;
    } else {
        square_sum<T, KIND, SIDE, INSIDE>(k.shape, w, to, value);
    }
    store_vector(at<T>(at<T>(k.y, to.image * g.y), y), pack<T>(value), false);
}

template <rg_dtype T, pooling KIND, int SIDE>
static __global__ void __launch_bounds__(THREADS, 4)
    square_windows(const __grid_constant__ forward_args k, const __grid_constant__ square_grid g)
{
    square_index to;
    if (!find_square<VLEN<T>>(g, to))
        return;
    const int32_t row = to.i * g.row.stride - g.row.before;
    const int32_t column = to.j * g.column.stride - g.column.before;
    const bool inside = row >= 0 && row + (SIDE - 1) * g.row.dilation < g.row.size && column >= 0 &&
                        column + (SIDE - 1) * g.column.dilation < g.column.size;
    if (inside)
        square_pool<T, KIND, SIDE, true>(k, g, to, row, column);
    else
        square_pool<T, KIND, SIDE, false>(k, g, to, row, column);
}

/* ---- gradient ----
 *
 * A cell is S by S pixels, S being the stride: the same K by K windows lie around all of them. A
 * thread loads these windows once and writes the pixels of the cell. A window that does not
 * contain a pixel adds nothing to it; the others come in row-major order. */

template <rg_dtype T> struct cell_window {
    uint4 dy;
    winner_words<VLEN<T>> winners; /* max */
    bool there;
};

template <rg_dtype T, pooling KIND, int K, bool INSIDE>
static __device__ __forceinline__ void load_cell(const rg_pool_gradient_args &k,
                                                 const square_grid &g, const square_index &u,
                                                 int32_t i, int32_t j, cell_window<T> w[K * K])
{
    const char *const dy = at<T>(k.dy, u.image * g.y);
#pragma unroll
    for (int t = 0; t < K * K; t++) {
        const int32_t row = i - (K - 1) + t / K, column = j - (K - 1) + t % K;
        w[t].there =
            INSIDE || (row >= 0 && row < g.row.count && column >= 0 && column < g.column.count);
        if (!w[t].there)
            continue;
        w[t].dy = load_vector(at<T>(dy, row * g.row.y + column * g.column.y + u.channel));
        if (KIND == MAX)
            w[t].winners = load_words<VLEN<T>>(k.from, u.image * g.winners + row * g.row.winners +
                                                           column * g.column.winners + u.channel);
    }
}

/* average: 1 / N of window (i, j) */
template <rg_dtype T>
static __device__ __forceinline__ real<T> share_of(const rg_pool_shape &s, int32_t i, int32_t j)
{
    return 1 / (real<T>)(rg_pool_counted(&s.row, i) * rg_pool_counted(&s.column, j));
}

template <rg_dtype T, pooling KIND, int S, int K, bool INSIDE>
static __device__ __forceinline__ void
sum_cell(const rg_pool_gradient_args &k, const square_grid &g, int32_t i, int32_t j,
         const cell_window<T> w[K * K], real<T> sum[S * S][VLEN<T>])
{
    enum { V = VLEN<T> };
    const real<T> whole = 1 / (real<T>)(g.row.window * g.column.window);
#pragma unroll
    for (int t = 0; t < K * K; t++) {
        const int behind = K - 1 - t / K, left = K - 1 - t % K; /* windows before the last one */
        if (!w[t].there)
            continue;
        real<T> dy[V];
        unpack<T>(w[t].dy, dy);
        if (KIND == AVERAGE) {
            const real<T> share = INSIDE ? whole : share_of<T>(k.shape, i - behind, j - left);
#pragma unroll
            for (int e = 0; e < V; e++)
                dy[e] *= share;
        }
#pragma unroll
        for (int n = 0; n < S * S; n++) {
            const int32_t p = n / S + behind * S, q = n % S + left * S;
            if (p >= g.row.window || q >= g.column.window)
                continue;
            const int32_t tap = p * g.column.window + q;
#pragma unroll
            for (int e = 0; e < V; e++) {
                if (KIND == AVERAGE)
                    sum[n][e] += dy[e];
                else
                    sum[n][e] += winner_of<V>(w[t].winners, e) == tap ? dy[e] : 0;
            }
        }
    }
}

template <rg_dtype T, pooling KIND, int S, int K, bool INSIDE>
static __device__ __forceinline__ void collect_cell(const rg_pool_gradient_args &k,
                                                    const square_grid &g, const square_index &u,
                                                    int32_t i, int32_t j)
{
    enum { V = VLEN<T> };
    cell_window<T> w[K * K];
    real<T> sum[S * S][V] = {};
    load_cell<T, KIND, K, INSIDE>(k, g, u, i, j, w);
    sum_cell<T, KIND, S, K, INSIDE>(k, g, i, j, w, sum);
    char *const dx = at<T>(k.dx, u.image * g.x);
#pragma unroll
    for (int n = 0; n < S * S; n++) {
        const int32_t row = i * S - g.row.before + n / S, column = j * S - g.column.before + n % S;
        if (!INSIDE && (row < 0 || row >= g.row.size || column < 0 || column >= g.column.size))
            continue;
        char *const to = at<T>(dx, row * g.row.x + column * g.column.x + u.channel);
        if (k.shape.add) {
            real<T> old[V];
            unpack<T>(load_vector(to), old);
#pragma unroll
            for (int e = 0; e < V; e++)
                sum[n][e] += old[e];
        }
        store_vector(to, pack<T>(sum[n]), k.shape.stream);
    }
}

/* Whether the windows around cell i, and its pixels, are all there. */
template <int S, int K>
static __device__ __forceinline__ bool is_inside(const square_axis &a, int32_t i)
{
    const int32_t pixel = i * S - a.before;
    return i >= K - 1 && i < a.count && pixel >= 0 && pixel + S <= a.size;
}

template <rg_dtype T, pooling KIND, int S, int K>
static __global__ void __launch_bounds__(THREADS, 4)
    collect_cells(const __grid_constant__ rg_pool_gradient_args k,
                  const __grid_constant__ square_grid g)
{
    square_index u;
    if (!find_square<VLEN<T>>(g, u))
        return;
    const int32_t i = g.row.first + u.i, j = g.column.first + u.j;
    bool inside = is_inside<S, K>(g.row, i) && is_inside<S, K>(g.column, j);
    if (KIND == AVERAGE && inside) /* whole windows alone: they all count the same taps */
        inside = i * S - g.row.before + g.row.window <= g.row.size &&
                 j * S - g.column.before + g.column.window <= g.column.size &&
                 (i - K + 1) * S >= g.row.before && (j - K + 1) * S >= g.column.before;
    if (inside)
        collect_cell<T, KIND, S, K, true>(k, g, u, i, j);
    else
        collect_cell<T, KIND, S, K, false>(k, g, u, i, j);
}

/* ---- launches ---- */

static square_axis square_axis_of(const rg_pool_axis *a, int64_t x, int64_t y, int64_t winners)
{
    return { (int32_t)a->size,     (int32_t)a->count,
             (int32_t)a->window,   (int32_t)a->stride,
             (int32_t)a->dilation, (int32_t)a->before,
             (int32_t)x,           (int32_t)y,
             (int32_t)winners,     0 };
}

/* Whether all offsets within an image, and to the taps around it, have 31 bits. */
static bool is_small(const rg_pool_shape *s)
{
    const int64_t most = INT32_MAX;
    const rg_pool_axis *r = &s->row, *c = &s->column;
    const int64_t rows = r->size + 2 * r->window * r->dilation + 2 * llabs(r->before) + r->stride;
    const int64_t columns =
        c->size + 2 * c->window * c->dilation + 2 * llabs(c->before) + c->stride;
    if (rows > 1 << 24 || columns > 1 << 24 || r->count > 1 << 24 || c->count > 1 << 24 ||
        s->images > 1 << 24 || s->channels > 1 << 24)
        return false;
    const int64_t steps[][2] = { { s->x[1], s->x[2] },
                                 { s->y[1], s->y[2] },
                                 { s->winners[1], s->winners[2] } };
    bool small = true;
    for (int t = 0; t < 3; t++) {
        const int64_t down = llabs(steps[t][0]), right = llabs(steps[t][1]);
        small &= down <= most && right <= most &&
                 (rows + r->count) * down + (columns + c->count) * right + s->channels <= most;
    }
    return small;
}

/* The grid over `rows` by `columns` windows or cells; false if there are too many blocks. */
template <int V>
static bool square_grid_of(const rg_pool_shape *s, int64_t rows, int64_t columns, square_grid &g,
                           int64_t &blocks, int &threads)
{
    const int64_t pixel = s->channels / V;
    g.row = square_axis_of(&s->row, s->x[1], s->y[1], s->winners[1]);
    g.column = square_axis_of(&s->column, s->x[2], s->y[2], s->winners[2]);
    g.x = s->x[0];
    g.y = s->y[0];
    g.winners = s->winners[0];
    threads = power_of_two(columns * pixel, 32, THREADS);
    const int64_t pieces = ceil_div(columns * pixel, threads);
    blocks = s->images * rows * pieces;
    if (blocks > INT32_MAX || pieces * threads > INT32_MAX)
        return false;
    g.rows = (int32_t)rows;
    g.pieces = (int32_t)pieces;
    g.row_vectors = (int32_t)(columns * pixel);
    g.pixel_vectors = (int32_t)pixel;
    g.by_pieces = small_divider_of(pieces);
    g.by_rows = small_divider_of(rows);
    g.by_pixel = small_divider_of(pixel);
    return true;
}

template <rg_dtype T, pooling KIND>
static bool launch_square(const forward_args &k, const rg_cuda_target *target)
{
    const rg_pool_shape *s = &k.shape;
    const int64_t side = s->row.window;
    square_grid g;
    int64_t blocks;
    int threads;
    if (s->column.window != side || side < 2 || side > 3 || !is_small(s) ||
        !square_grid_of<VLEN<T>>(s, s->row.count, s->column.count, g, blocks, threads))
        return false;
    launch(side == 2 ? square_windows<T, KIND, 2> : square_windows<T, KIND, 3>, blocks, threads, 0,
           target, k, g);
    return true;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/* The number of the first cell, which is that of the last window over it; and of all. */
static int32_t cells_of(const rg_pool_axis *a, int64_t *count)
{
    const int64_t first = floor_div(a->before, a->stride);
    *count = floor_div(a->size - 1 + a->before, a->stride) - first + 1;
    return (int32_t)first;
}

template <rg_dtype T, pooling KIND>
static bool launch_cells(const rg_pool_gradient_args *k, const rg_cuda_target *target)
{
    const rg_pool_shape *s = &k->shape;
    const int64_t stride = s->row.stride;
    const int64_t window = s->row.window > s->column.window ? s->row.window : s->column.window;
    const int64_t around = ceil_div(window, stride);
    if (s->column.stride != stride || s->row.dilation > 1 || s->column.dilation > 1 ||
        !is_small(s) || stride > 2 || around > (stride == 1 ? 3 : 2))
        return false;
    int64_t rows, columns, blocks;
    int threads;
    square_grid g;
    const int32_t row = cells_of(&s->row, &rows), column = cells_of(&s->column, &columns);
    if (!square_grid_of<VLEN<T>>(s, rows, columns, g, blocks, threads))
        return false;
    g.row.first = row;
    g.column.first = column;
    launch(stride == 1 && around < 3 ? collect_cells<T, KIND, 1, 2>
           : stride == 1             ? collect_cells<T, KIND, 1, 3>
           : around == 1             ? collect_cells<T, KIND, 2, 1>
                                     : collect_cells<T, KIND, 2, 2>,
           blocks, threads, 0, target, *k, g);
    return true;
}

rg_pool_square_function *const rg_pool_square[L2 + 1][RG_CUDA_DTYPES] = {
    RG_EVERY_DTYPE(launch_square, MAX), RG_EVERY_DTYPE(launch_square, AVERAGE),
    RG_EVERY_DTYPE(launch_square, L2)
};
rg_pool_cells_function *const rg_pool_cells[AVERAGE + 1][RG_CUDA_DTYPES] = {
    RG_EVERY_DTYPE(launch_cells, MAX), RG_EVERY_DTYPE(launch_cells, AVERAGE)
};
