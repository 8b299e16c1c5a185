/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalisations by what is in windows of rows and columns, see ops/window_norm/box.h.
 *
 * Where both sides of the window are added directly a block makes a tile of the result, for a
 * vector of channels or one: it loads what the tile needs into shared memory, sums over columns,
 * then over rows; in a gradient it does so twice, so the first time for more than the tile.
 * Otherwise a block has one channel of an image at a time, in scratch. For windows of five rows and
 * columns, and tensors that are aligned, see box_five.cuh. */
#ifndef RG_OPS_WINDOW_NORM_BOXES_CUH
#define RG_OPS_WINDOW_NORM_BOXES_CUH

#include "ops/window_norm/box_five.cuh"

/* ---- tiles ---- */

enum { BOX_THREADS = 256 };

/* Sizes of a tile: of the result; of what is summed for it; and of what is loaded. In a forward
 * pass the first two are the same. */
struct box_tile {
    int rows, columns;
    int middle_rows, middle_columns;
    int from_rows, from_columns;
    int64_t down, across, groups; /* tiles of an image; groups of channels */
    int64_t blocks;
    int values, sums; /* vectors of each kind in shared memory */
};

/* What a block has to do. */
struct box_origin {
    int64_t image, row, column, channel; /* of the first pixel of the tile */
};

static __device__ __forceinline__ box_origin box_origin_of(const box_tile &tile, int64_t block,
                                                           int lanes)
{
    const int64_t group = block % tile.groups, rest = block / tile.groups;
    const int64_t across = rest % tile.across, down = rest / tile.across;
    return { down / tile.down, down % tile.down * tile.rows, across * tile.columns, group * lanes };
}

static __device__ __forceinline__ int64_t pixel_at(const int64_t step[4], const box_origin &p,
                                                   int64_t row, int64_t column)
{
    return p.image * step[0] + row * step[1] + column * step[2] + p.channel * step[3];
}

static __device__ __forceinline__ bool is_inside(const rg_box_shape &s, int64_t row, int64_t column)
{
    return row >= 0 && row < s.row.size && column >= 0 && column < s.column.size;
}

/* ---- tiles: sums ---- */

/* sum[e] of `width` vectors of V that are `step` values apart, as sum_taps. */
template <int V, class REAL>
static __device__ __forceinline__ void sum_vectors(const REAL *from, int step, int width,
                                                   REAL sum[V])
{
    REAL a[V], b[V] = {};
    get_lanes<V>(from, sum);
    if (width > 1) {
        get_lanes<V>(from + step, a);
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] += a[e];
    }
    for (int k = 2; k < width; k += 2) {
        get_lanes<V>(from + k * step, a);
        if (k + 1 < width)
            get_lanes<V>(from + (k + 1) * step, b);
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] += k + 1 < width ? a[e] + b[e] : a[e];
    }
}

/* Of arrays of `size` vectors, from vector i on, `step` vectors apart: sums, or moments about the v
 * of vector `centre` of them. PLAIN: there is v alone. */
template <int KINDS, int V, bool MIRRORED, bool PLAIN, class REAL>
static __device__ __forceinline__ void sum_lanes(const REAL *from, int size, int i, int step,
                                                 int width, int centre, REAL sum[KINDS][V])
{
    if constexpr (KINDS == 1) {
        sum_vectors<V>(from + i * V, step * V, width, sum[0]);
    } else {
#pragma unroll
        for (int e = 0; e < V; e++) {
            const REAL *const own = from + i * V + e;
            auto get = [&](int k) -> moments<REAL> {
                const int64_t at = (int64_t)k * step * V;
                if constexpr (PLAIN)
                    return { own[at], 0, 0 };
                else
                    return get_moments(own, (int64_t)size * V, at);
            };
            const REAL v = own[(int64_t)centre * step * V];
            const moments<REAL> all = MIRRORED ? shift_taps(v, width, centre, get)
                                               : join_taps<PLAIN>(v, width, centre, get);
            sum[0][e] = all.v;
            sum[1][e] = all.m;
            sum[2][e] = all.s;
        }
    }
}

/* Values around the tile into shared memory, 0 outside of the image. */
template <rg_dtype T, class OP, bool WIDE>
static __device__ __forceinline__ void load_tile(const rg_box_shape &s, const box_data &d,
                                                 const box_tile &tile, const box_origin &p,
                                                 int64_t row, int64_t column, real<T> *values)
{
    enum { V = LANES<T, WIDE> };
    for (int i = threadIdx.x; i < tile.from_rows * tile.from_columns; i += BOX_THREADS) {
        const int r = i / tile.from_columns, c = i - r * tile.from_columns;
        real<T> x[V] = {};
        if (is_inside(s, row + r, column + c))
            load_lanes<T, WIDE>(d.x, pixel_at(d.step[1], p, row + r, column + c), x);
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] = OP::fill(x[e]);
        put_lanes<V>(values + i * V, x);
    }
}

/* Sums over columns: `rows` rows of `from` columns become rows of `to` columns. MIRRORED: of the
 * mirrored window, in a gradient. */
template <int KINDS, int V, bool MIRRORED, class REAL>
static __device__ __forceinline__ void sum_tile_columns(const rg_box_shape &s, const box_tile &tile,
                                                        const REAL *values, REAL *sums, int rows,
                                                        int from, int to)
{
    const int centre = (int)(MIRRORED ? s.column.after : s.column.before);
    for (int i = threadIdx.x; i < rows * to; i += BOX_THREADS) {
        const int r = i / to, c = i - r * to;
        REAL sum[KINDS][V];
        sum_lanes<KINDS, V, MIRRORED, !MIRRORED>(values, tile.values, r * from + c, 1,
                                                 (int)s.column.width, centre, sum);
#pragma unroll
        for (int k = 0; k < KINDS; k++)
            put_lanes<V>(sums + (k * tile.sums + i) * V, sum[k]);
    }
}

/* What a block has in memory: values and their sums, and in a gradient the part of dx that needs no
 * further sum. */
template <class REAL> struct box_memory {
    REAL *values, *prefix, *sums, *kept;
};

/* Gradient: sums over rows, and what follows from them: values to be summed again, and what goes to
 * the same element of dx. (row, column) is the first pixel of the region. */
template <rg_dtype T, class OP, bool WIDE>
static __device__ __forceinline__ void
middle_tile(const rg_box_shape &s, const box_data &d, const typename OP::CONSTANTS &constants,
            const box_tile &tile, const box_origin &p, int64_t row, int64_t column,
            const box_memory<real<T>> &m)
{
    enum { V = LANES<T, WIDE>, KINDS = OP::KINDS };
    for (int i = threadIdx.x; i < tile.middle_rows * tile.middle_columns; i += BOX_THREADS) {
        const int r = i / tile.middle_columns, c = i - r * tile.middle_columns;
        const int64_t at_row = row + r, at_column = column + c;
        real<T> x[V], direct[V], sum[KINDS][V], value[KINDS][V] = {};
        const bool inside = is_inside(s, at_row, at_column);
        if (inside) {
            load_lanes<T, WIDE>(d.x, pixel_at(d.step[1], p, at_row, at_column), x);
            load_lanes<T, WIDE>(d.dy, pixel_at(d.step[0], p, at_row, at_column), direct);
            sum_lanes<KINDS, V, false, false>(m.sums, tile.sums, i, tile.middle_columns,
                                              (int)s.row.width, (int)s.row.before, sum);
#pragma unroll
            for (int e = 0; e < V; e++) {
                real<T> own[KINDS], to[KINDS];
#pragma unroll
                for (int k = 0; k < KINDS; k++)
                    own[k] = sum[k][e];
                to[0] = x[e];
                direct[e] = OP::middle(constants, direct[e], x[e], own, to);
#pragma unroll
                for (int k = 0; k < KINDS; k++)
                    value[k][e] = to[k];
            }
        }
#pragma unroll
        for (int k = 0; k < KINDS; k++)
            put_lanes<V>(m.values + (k * tile.values + i) * V, value[k]);
        const int64_t y = at_row - p.row, z = at_column - p.column;
        if (inside && y >= 0 && y < tile.rows && z >= 0 && z < tile.columns)
            put_lanes<V>(m.kept + (y * tile.columns + z) * V, direct);
    }
}

/* Sums over rows, and the results of the tile. */
template <rg_dtype T, class OP, bool WIDE, bool GRADIENT>
static __device__ __forceinline__ void
finish_tile(const rg_box_shape &s, const box_data &d, const typename OP::CONSTANTS &constants,
            const box_tile &tile, const box_origin &p, const real<T> *sums, const real<T> *kept)
{
    enum { V = LANES<T, WIDE>, KINDS = OP::KINDS };
    const int centre = (int)(GRADIENT ? s.row.after : s.row.before);
    for (int i = threadIdx.x; i < tile.rows * tile.columns; i += BOX_THREADS) {
        const int r = i / tile.columns, c = i - r * tile.columns;
        if (!is_inside(s, p.row + r, p.column + c))
            continue;
        real<T> x[V], direct[V] = {}, sum[KINDS][V];
        load_lanes<T, WIDE>(d.x, pixel_at(d.step[1], p, p.row + r, p.column + c), x);
        sum_lanes<KINDS, V, GRADIENT, false>(sums, tile.sums, i, tile.columns, (int)s.row.width,
                                             centre, sum);
        if constexpr (GRADIENT)
            get_lanes<V>(kept + i * V, direct);
#pragma unroll
        for (int e = 0; e < V; e++) {
            real<T> own[KINDS];
#pragma unroll
            for (int k = 0; k < KINDS; k++)
                own[k] = sum[k][e];
            if constexpr (GRADIENT)
                x[e] = OP::finish(constants, x[e], direct[e], own);
            else
                x[e] = OP::result(constants, x[e], own);
        }
        store_lanes<T, WIDE>(d.out, pixel_at(d.step[2], p, p.row + r, p.column + c), x, s.add,
                             s.stream);
    }
}

template <rg_dtype T, class OP, bool WIDE, bool GRADIENT>
static __global__ void __launch_bounds__(BOX_THREADS)
    box_tiles(const __grid_constant__ rg_box_shape s, const __grid_constant__ box_data d,
              const __grid_constant__ typename OP::CONSTANTS constants,
              const __grid_constant__ box_tile tile)
{
    enum { V = LANES<T, WIDE>, KINDS = OP::KINDS };
    extern __shared__ __align__(16) char memory[];
    real<T> *const values = (real<T> *)memory, *const sums = values + KINDS * tile.values * V;
    real<T> *const kept = sums + KINDS * tile.sums * V;
    for (int64_t block = blockIdx.x; block < tile.blocks; block += gridDim.x) {
        const box_origin p = box_origin_of(tile, block, V);
        const int64_t row = GRADIENT ? p.row - s.row.after : p.row; /* of the middle */
        const int64_t column = GRADIENT ? p.column - s.column.after : p.column;
        load_tile<T, OP, WIDE>(s, d, tile, p, row - s.row.before, column - s.column.before, values);
        __syncthreads();
        sum_tile_columns<KINDS, V, false>(s, tile, values, sums, tile.from_rows, tile.from_columns,
                                          tile.middle_columns);
        __syncthreads();
        if constexpr (GRADIENT) {
            middle_tile<T, OP, WIDE>(s, d, constants, tile, p, row, column,
                                     { values, nullptr, sums, kept });
            __syncthreads();
            sum_tile_columns<KINDS, V, true>(s, tile, values, sums, tile.middle_rows,
                                             tile.middle_columns, tile.columns);
            __syncthreads();
        }
        finish_tile<T, OP, WIDE, GRADIENT>(s, d, constants, tile, p, sums, kept);
        __syncthreads(); /* before the next tile takes the memory */
    }
}

/* ---- planes: one channel of an image at a time ---- */

/* Sums over the columns of `values`, whose rows have the zeros around them, into the rows of
 * `sums` after the zeros before the first one; those after the last one follow. MIRRORED: of the
 * mirrored window, in a gradient. */
template <rg_dtype T, int KINDS, bool MIRRORED>
static __device__ __forceinline__ void
sum_plane_columns(const rg_box_shape &s, const box_data &d, const rg_box_plane &plane,
                  const box_origin &p, real<T> *values, real<T> *prefix, real<T> *sums)
{
    const int64_t width = s.column.width, columns = s.column.size, all = s.row.size * plane.across;
    const int64_t each = plane.down * columns, first = MIRRORED ? s.row.after : s.row.before;
    const bool blocks = width > RG_SPAN_DIRECT;
    if (blocks && KINDS == 1)
        sum_blocks(values, prefix, s.row.size, (int64_t)1, plane.across, plane.across, (int64_t)1,
                   width);
    else if (blocks)
        moment_blocks<MIRRORED, real<T>>({ values, prefix, all }, s.row.size, 1, plane.across,
                                         plane.across, 1, width);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < each; i += blockDim.x) {
        const int64_t line = i / columns, column = i - line * columns, row = line - first;
        const bool inside = row >= 0 && row < s.row.size;
        if constexpr (KINDS == 1) {
            sums[i] = inside ? sum_window(values, prefix, row * plane.across, column, (int64_t)1,
                                          width, blocks)
                             : 0;
        } else {
            moments<real<T>> sum = {};
            if (inside)
                sum = moment_window<MIRRORED, real<T>>(
                    { values, prefix, all }, row * plane.across, column, 1, width,
                    (int)(MIRRORED ? s.column.after : s.column.before), blocks,
                    load<T>(d.x, pixel_at(d.step[1], p, row, column)));
            put_moments(sums, each, i, sum);
        }
    }
    __syncthreads();
    if (s.row.width > RG_SPAN_DIRECT) {
        if constexpr (KINDS == 1)
            sum_blocks(sums, prefix, columns, columns, each, plane.down, columns, s.row.width);
        else
            moment_blocks<MIRRORED, real<T>>({ sums, prefix, each }, columns, columns, each,
                                             plane.down, columns, s.row.width);
        __syncthreads();
    }
}

/* The sums over the window of a pixel. */
template <int KINDS, bool MIRRORED, class REAL>
static __device__ __forceinline__ void
sum_plane_rows(const rg_box_shape &s, const rg_box_plane &plane, const REAL *sums,
               const REAL *prefix, int64_t row, int64_t column, REAL x, REAL sum[KINDS])
{
    const bool blocks = s.row.width > RG_SPAN_DIRECT;
    if constexpr (KINDS == 1) {
        sum[0] = sum_window(sums, prefix, column, row, s.column.size, s.row.width, blocks);
    } else {
        const moments<REAL> e = moment_window<MIRRORED, REAL>(
            { sums, prefix, plane.down * s.column.size }, column, row, s.column.size, s.row.width,
            (int)(MIRRORED ? s.row.after : s.row.before), blocks, x);
        sum[0] = e.v;
        sum[1] = e.m;
        sum[2] = e.s;
    }
}

template <rg_dtype T, class OP>
static __device__ __forceinline__ void load_plane(const rg_box_shape &s, const box_data &d,
                                                  const rg_box_plane &plane, const box_origin &p,
                                                  real<T> *values)
{
    const int64_t all = s.row.size * plane.across;
    for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
        const int64_t row = i / plane.across, column = i - row * plane.across - s.column.before;
        real<T> x = 0;
        if (is_inside(s, row, column))
            x = load<T>(d.x, pixel_at(d.step[1], p, row, column));
        values[i] = OP::fill(x);
#pragma unroll
        for (int k = 1; k < OP::KINDS; k++)
            values[k * all + i] = 0;
    }
    __syncthreads();
}

template <rg_dtype T, class OP>
static __device__ __forceinline__ void
middle_plane(const rg_box_shape &s, const box_data &d, const typename OP::CONSTANTS &constants,
             const rg_box_plane &plane, const box_origin &p, const box_memory<real<T>> &m)
{
    enum { KINDS = OP::KINDS };
    const int64_t all = s.row.size * plane.across;
    for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
        const int64_t row = i / plane.across, column = i - row * plane.across - s.column.after;
        real<T> to[KINDS] = {};
        if (is_inside(s, row, column)) {
            real<T> sum[KINDS];
            const real<T> x = load<T>(d.x, pixel_at(d.step[1], p, row, column));
            const real<T> dy = load<T>(d.dy, pixel_at(d.step[0], p, row, column));
            sum_plane_rows<KINDS, false>(s, plane, m.sums, m.prefix, row, column, x, sum);
            to[0] = x;
            m.kept[row * s.column.size + column] = OP::middle(constants, dy, x, sum, to);
        }
#pragma unroll
        for (int k = 0; k < KINDS; k++)
            m.values[k * all + i] = to[k];
    }
    __syncthreads();
}

template <rg_dtype T, class OP, bool GRADIENT>
static __device__ __forceinline__ void
finish_plane(const rg_box_shape &s, const box_data &d, const typename OP::CONSTANTS &constants,
             const rg_box_plane &plane, const box_origin &p, const real<T> *sums,
             const real<T> *prefix, const real<T> *kept)
{
    for (int64_t i = threadIdx.x; i < s.row.size * s.column.size; i += blockDim.x) {
        const int64_t row = i / s.column.size, column = i - row * s.column.size;
        real<T> sum[OP::KINDS];
        const real<T> x = load<T>(d.x, pixel_at(d.step[1], p, row, column));
        sum_plane_rows<OP::KINDS, GRADIENT>(s, plane, sums, prefix, row, column, x, sum);
        real<T> value;
        if constexpr (GRADIENT)
            value = OP::finish(constants, x, kept[i], sum);
        else
            value = OP::result(constants, x, sum);
        store_lanes<T, false>(d.out, pixel_at(d.step[2], p, row, column), &value, s.add, false);
    }
    __syncthreads();
}

template <rg_dtype T, class OP, bool GRADIENT>
static __global__ void __launch_bounds__(BOX_THREADS)
    box_planes(const __grid_constant__ rg_box_shape s, const __grid_constant__ box_data d,
               const __grid_constant__ typename OP::CONSTANTS constants)
{
    enum { KINDS = OP::KINDS };
    const rg_box_plane plane = rg_box_plane_of(&s, KINDS);
    real<T> *const values = (real<T> *)((char *)d.scratch + blockIdx.x * s.scratch_bytes);
    real<T> *const prefix = values + plane.values, *const sums = prefix + plane.prefix;
    real<T> *const kept = sums + plane.sums;
    for (int64_t i = blockIdx.x; i < s.images * s.channels; i += gridDim.x) {
        const box_origin p = { i / s.channels, 0, 0, i % s.channels };
        load_plane<T, OP>(s, d, plane, p, values);
        sum_plane_columns<T, KINDS, false>(s, d, plane, p, values, prefix, sums);
        if constexpr (GRADIENT) {
            middle_plane<T, OP>(s, d, constants, plane, p, { values, prefix, sums, kept });
            sum_plane_columns<T, KINDS, true>(s, d, plane, p, values, prefix, sums);
        }
        finish_plane<T, OP, GRADIENT>(s, d, constants, plane, p, sums, prefix, kept);
    }
}

/* ---- host side ---- */

/* The largest tiles of which a multiprocessor holds several, evenly cut. */
static inline int64_t cut_tiles(const rg_box_shape *s, int kinds, bool gradient, int lanes,
                                int64_t real, int64_t limit, box_tile *tile)
{
    int64_t shared = 0;
    for (int64_t most = 32; most >= 4; most /= 2) {
        tile->down = ceil_div(s->row.size, most);
        tile->across = ceil_div(s->column.size, most);
        tile->rows = (int)ceil_div(s->row.size, tile->down);
        tile->columns = (int)ceil_div(s->column.size, tile->across);
        const int rows = (int)s->row.width - 1, columns = (int)s->column.width - 1;
        tile->middle_rows = tile->rows + (gradient ? rows : 0);
        tile->middle_columns = tile->columns + (gradient ? columns : 0);
        tile->from_rows = tile->middle_rows + rows;
        tile->from_columns = tile->middle_columns + columns;
        tile->values = tile->from_rows * tile->from_columns;
        tile->sums = tile->from_rows * tile->middle_columns;
        const int64_t vectors = kinds * ((int64_t)tile->values + tile->sums) +
                                (gradient ? (int64_t)tile->rows * tile->columns : 0);
        shared = vectors * lanes * real;
        if (shared <= limit)
            break;
    }
    tile->groups = s->channels / lanes;
    tile->blocks = s->images * tile->down * tile->across * tile->groups;
    return shared;
}

template <rg_dtype T, class OP, bool GRADIENT>
static void launch_box(const rg_box_shape *s, const box_data *d,
                       const typename OP::CONSTANTS &constants, const rg_cuda_target *target)
{
    const int64_t most_blocks = 1 << 30, budget = 72 << 10; /* bytes */
    if (rg_box_is_wide(s)) {
        launch(box_planes<T, OP, GRADIENT>, s->units, BOX_THREADS, 0, target, *s, *d, constants);
        return;
    }
    bool wide = s->dense && s->channels % VLEN<T> == 0;
    wide &= ((uintptr_t)d->dy | (uintptr_t)d->x | (uintptr_t)d->out) % 16 == 0;
    for (int t = 0; t < RG_BOX_TENSORS; t++)
        for (int i = 0; i < 3; i++)
            wide &= d->step[t][i] % VLEN<T> == 0;
    if (wide && is_five(&s->row) && is_five(&s->column) &&
        launch_five<T, OP, GRADIENT>(s, d, constants, target))
        return;
    box_tile tile;
    const int64_t limit = budget < target->shared ? budget : target->shared;
    const int64_t shared = cut_tiles(s, OP::KINDS, GRADIENT, wide ? VLEN<T> : 1,
                                     (int64_t)sizeof(real<T>), limit, &tile);
    const int64_t blocks = tile.blocks < most_blocks ? tile.blocks : most_blocks;
    if (wide)
        launch(box_tiles<T, OP, true, GRADIENT>, blocks, BOX_THREADS, shared, target, *s, *d,
               constants, tile);
    else
        launch(box_tiles<T, OP, false, GRADIENT>, blocks, BOX_THREADS, shared, target, *s, *d,
               constants, tile);
}

/* The kernels of an op and their table. CONSTANTS: of rg_box_args `a`, for real<T>. */
#define RG_BOX_CUDA_TABLE(name, OP, CONSTANTS)                            \
    template <rg_dtype T, bool GRADIENT>                                  \
    static void launch_op(const void *args, const rg_cuda_target *target) \
    {                                                                     \
        const rg_box_args *a = (const rg_box_args *)args;                 \
        const box_data d = box_data_of(a);                                \
        launch_box<T, OP<T>, GRADIENT>(&a->shape, &d, CONSTANTS, target); \
    }                                                                     \
    static const rg_cuda_row kernel_rows[] = {                            \
        RG_CUDA_ROW(RG_BOX_FORWARD, launch_op, false),                    \
        RG_CUDA_ROW(RG_BOX_GRADIENT, launch_op, true),                    \
    };                                                                    \
    RG_CUDA_TABLE(name, kernel_rows)

#endif
