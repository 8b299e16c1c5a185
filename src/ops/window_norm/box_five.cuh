/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Windows of five rows and columns: a thread has a few channels of one column and goes down a band
 * of rows, so that memory sees every pixel once.
 *
 * Rows to come are copied to shared memory ahead of time, where a thread finds its own again.
 * In every step the threads of a block put their values of a row into one line and add up
 * windows of five columns; sums of the last five rows stay in registers, and make those of
 * windows. The gradient does this twice: the second line of values, made of the sums of the
 * first, follows three rows after. Sums have the order of sum_taps, moments that of join_taps
 * and shift_taps; the v of a row is its x, which stays in shared memory long enough. */
#ifndef RG_OPS_WINDOW_NORM_BOX_FIVE_CUH
#define RG_OPS_WINDOW_NORM_BOX_FIVE_CUH

#include "ops/window_norm/box_op.cuh"

enum { FIVE = 5, FIVE_THREADS = 256, FIVE_DY_ROWS = 4 /* rows of a ring */ };

/* Rows of x in a ring: with moments a window's rows are looked at again. */
template <class OP> constexpr int FIVE_ROWS = OP::KINDS == 1 ? 8 : 16;

/* Kinds of sums that are kept for a row: v is x. */
template <class OP> constexpr int FIVE_KEPT = OP::KINDS == 1 ? 1 : OP::KINDS - 1;

/* Channels of a thread, and how they are stored: 16 bytes, or 8 of 16-bit elements. */
template <rg_dtype T> constexpr int FIVE_LANES = T == RG_F64 ? 2 : 4;
template <rg_dtype T> constexpr int FIVE_BYTES = FIVE_LANES<T> *(int)sizeof(element<T>);

/* How images are cut into blocks. Halos on either side of a tile are there where a row has several
 * tiles. */
struct five_cut {
    int across, columns, halo;    /* threads for a pixel; columns of a tile, with halos */
    int rows;                     /* of a band */
    int64_t groups, tiles, bands; /* of channels; of a row; of an image */
    int64_t blocks;
};

/* What a thread has to do. */
struct five_column {
    int64_t image, channel;
    int column, first, last; /* column; rows of the band */
    int at;                  /* the position of its values in a line */
    bool lined, used, writes;
};

static __device__ __forceinline__ five_column find_five(const rg_box_shape &s, const five_cut &cut,
                                                        int lanes)
{
    five_column p;
    const int64_t block = blockIdx.x, rest = divide(block, cut.groups);
    const int64_t more = divide(rest, cut.tiles), tile = rest - more * cut.tiles;
    p.image = divide(more, cut.bands);
    p.first = (int)(more - p.image * cut.bands) * cut.rows;
    p.last = p.first + cut.rows < (int)s.row.size ? p.first + cut.rows : (int)s.row.size;
    const int v = (int)threadIdx.x & (cut.across - 1), j = (int)threadIdx.x / cut.across;
    p.channel = ((block - rest * cut.groups) * cut.across + v) * lanes;
    p.column = (int)tile * (cut.columns - 2 * cut.halo) - cut.halo + j;
    p.at = (j + 2) * cut.across + v;
    p.lined = j < cut.columns;
    p.used = p.lined && p.column >= 0 && p.column < (int)s.column.size && p.channel < s.channels;
    p.writes = p.used && j >= cut.halo && j < cut.columns - cut.halo;
    return p;
}

/* ---- channels of a thread ---- */

template <rg_dtype T>
static __device__ __forceinline__ void take_lanes(const void *from, real<T> x[FIVE_LANES<T>])
{
    if constexpr (FIVE_BYTES<T> == 16) {
        unpack<T>(*(const uint4 *)from, x);
    } else {
        const uint2 half = *(const uint2 *)from;
        const uint32_t words[2] = { half.x, half.y };
#pragma unroll
        for (int e = 0; e < FIVE_LANES<T>; e++)
            x[e] = to_real<T>((uint16_t)(words[e / 2] >> e % 2 * 16));
    }
}

template <rg_dtype T>
static __device__ __forceinline__ void give_lanes(void *to, real<T> x[FIVE_LANES<T>], bool add,
                                                  bool stream)
{
    if (add) {
        real<T> old[FIVE_LANES<T>];
        take_lanes<T>(to, old);
#pragma unroll
        for (int e = 0; e < FIVE_LANES<T>; e++)
            x[e] += old[e];
    }
    if constexpr (FIVE_BYTES<T> == 16) {
        store_vector(to, pack<T>(x), stream);
    } else {
        const uint2 half = make_uint2(pack_two<T>(x[0], x[1]), pack_two<T>(x[2], x[3]));
        if (stream)
            __stcs((uint2 *)to, half);
        else
            *(uint2 *)to = half;
    }
}

/* Copies to shared memory in the background. */
template <int BYTES>
static __device__ __forceinline__ void copy_lanes(void *shared, const void *from)
{
#if __CUDA_ARCH__ >= 800
    if constexpr (BYTES == 16)
        copy_vector(shared, from);
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
                     :
                     : "r"((uint32_t)__cvta_generic_to_shared(shared)),
                       "l"(__cvta_generic_to_global(from))
                     : "memory");
#else
    if constexpr (BYTES == 16)
        *(uint4 *)shared = *(const uint4 *)from;
    else
        *(uint2 *)shared = *(const uint2 *)from;
#endif
}

/* ---- sums ---- */

template <int V, class REAL>
static __device__ __forceinline__ void add_five(const REAL a[V], const REAL b[V], const REAL c[V],
                                                const REAL d[V], const REAL e[V], REAL sum[V])
{
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] = (a[i] + b[i]) + (c[i] + d[i]) + e[i];
}

/* Of five columns of a line around the thread's own value. */
template <int V, class REAL>
static __device__ __forceinline__ void sum_line(const REAL *own, int across, const REAL value[V],
                                                REAL sum[V])
{
    REAL a[V], b[V], d[V], e[V];
    get_lanes<V>(own - 2 * across * V, a);
    get_lanes<V>(own - across * V, b);
    get_lanes<V>(own + across * V, d);
    get_lanes<V>(own + 2 * across * V, e);
    add_five<V>(a, b, value, d, e, sum);
}

/* Moments of five elements: for e of V channels, get(k, e) gives element k. */
template <int V, bool MIRRORED, bool PLAIN, class REAL, class GET>
static __device__ __forceinline__ void moments_five(const REAL v[V], REAL sum[2][V], GET get)
{
#pragma unroll
    for (int e = 0; e < V; e++) {
        auto own = [&](int k) { return get(k, e); };
        const moments<REAL> all =
            MIRRORED ? shift_taps(v[e], FIVE, 2, own) : join_taps<PLAIN>(v[e], FIVE, 2, own);
        sum[0][e] = all.m;
        sum[1][e] = all.s;
    }
}

/* ---- the kernel ---- */

/* Lines of values in shared memory: two of each kind, used alternately. */
template <int V, int KINDS, class REAL>
static __device__ __forceinline__ void put_line(REAL *line, int size, const five_column &p,
                                                const REAL value[KINDS][V])
{
#pragma unroll
    for (int k = 0; k < KINDS; k++) {
        if (p.lined)
            put_lanes<V>(line + (k * size + p.at) * V, value[k]);
    }
}

/* Over five columns: of values of one kind, or of three. */
template <int V, int KINDS, bool MIRRORED, int GIVEN, class REAL>
static __device__ __forceinline__ void sum_lines(const REAL *line, int size, int across,
                                                 const five_column &p, const REAL value[GIVEN][V],
                                                 REAL sum[KINDS == 1 ? 1 : 2][V])
{
    if (!p.lined)
        return;
    const REAL *const own = line + p.at * V;
    if constexpr (KINDS == 1) {
        sum_line<V>(own, across, value[0], sum[0]);
    } else {
        REAL all[FIVE][GIVEN][V];
#pragma unroll
        for (int k = 0; k < FIVE; k++)
#pragma unroll
            for (int g = 0; g < GIVEN; g++)
                get_lanes<V>(own + (g * size + (k - 2) * across) * V, all[k][g]);
        moments_five<V, MIRRORED, GIVEN == 1>(value[0], sum, [&](int k, int e) -> moments<REAL> {
            if constexpr (GIVEN == 1)
                return { all[k][0][e], 0, 0 };
            else
                return { all[k][0][e], all[k][1][e], all[k][2][e] };
        });
    }
}

/* Over the last five rows, the newest of which is row i of the ring; x(k, value) gives x of row k
 * of them. */
template <int V, int KINDS, bool MIRRORED, class REAL, class X>
static __device__ __forceinline__ void sum_ring(const REAL ring[FIVE][KINDS == 1 ? 1 : 2][V],
                                                const int i, REAL sum[KINDS][V], X x)
{
    if constexpr (KINDS == 1) {
        add_five<V>(ring[(i + 1) % FIVE][0], ring[(i + 2) % FIVE][0], ring[(i + 3) % FIVE][0],
                    ring[(i + 4) % FIVE][0], ring[i][0], sum[0]);
    } else {
        REAL v[FIVE][V];
#pragma unroll
        for (int k = 0; k < FIVE; k++)
            x(k, v[k]);
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[0][e] = v[2][e];
        moments_five<V, MIRRORED, false>(v[2], sum + 1, [&](int k, int e) -> moments<REAL> {
            return { v[k][e], ring[(i + 1 + k) % FIVE][0][e], ring[(i + 1 + k) % FIVE][1][e] };
        });
    }
}

/* ---- rows of a thread ---- */

/* Rows ahead of the one that is summed, whose copies are under way; those of dy are two after it.
 */
template <bool GRADIENT> constexpr int FIVE_AHEAD = GRADIENT ? 2 : 5;

/* Memory that a thread reads and writes: its own part of the rings of x and dy, the lines of the
 * block, its column of each tensor. */
template <rg_dtype T, class OP, bool GRADIENT> struct five_rows {
    five_column p;
    int height, threads;
    int size, lines; /* of a line: vectors of V channels; reals of the lines of a step */
    char *xs, *dys, *out;
    real<T> *line;
    const char *x, *dy;
    int64_t x_step, dy_step, out_step; /* bytes from row to row */
};

template <rg_dtype T, class OP, bool GRADIENT>
static __device__ __forceinline__ five_rows<T, OP, GRADIENT>
find_rows(const rg_box_shape &s, const box_data &d, const five_cut &cut, char *memory)
{
    enum { V = FIVE_LANES<T>, BYTES = FIVE_BYTES<T>, ROWS = FIVE_ROWS<OP> };
    five_rows<T, OP, GRADIENT> r;
    r.p = find_five(s, cut, V);
    r.height = (int)s.row.size;
    r.threads = (int)blockDim.x;
    r.size = (cut.columns + 4) * cut.across;
    r.lines = (GRADIENT ? 1 + OP::KINDS : 1) * r.size * V;
    r.xs = memory + threadIdx.x * BYTES;
    r.dys = r.xs + ROWS * r.threads * BYTES;
    r.line = (real<T> *)(memory + (ROWS + (GRADIENT ? FIVE_DY_ROWS : 0)) * r.threads * BYTES);
    const five_column &p = r.p;
    r.x = at<T>(d.x, p.image * d.step[1][0] + p.column * d.step[1][2] + p.channel * d.step[1][3]);
    r.dy = at<T>(d.dy, p.image * d.step[0][0] + p.column * d.step[0][2] + p.channel * d.step[0][3]);
    r.out =
        at<T>(d.out, p.image * d.step[2][0] + p.column * d.step[2][2] + p.channel * d.step[2][3]);
    r.x_step = d.step[1][1] * (int64_t)sizeof(element<T>);
    r.dy_step = d.step[0][1] * (int64_t)sizeof(element<T>);
    r.out_step = d.step[2][1] * (int64_t)sizeof(element<T>);
    return r;
}

/* Starts the copies for the step that sums `row` + FIVE_AHEAD. */
template <rg_dtype T, class OP, bool GRADIENT>
static __device__ __forceinline__ void copy_rows(const five_rows<T, OP, GRADIENT> &r, int row)
{
    enum { BYTES = FIVE_BYTES<T>, ROWS = FIVE_ROWS<OP> };
    const int x_row = row + FIVE_AHEAD<GRADIENT>, dy_row = row + 1;
    if (r.p.used && x_row >= 0 && x_row < r.height && x_row < r.p.last + 4)
        copy_lanes<BYTES>(r.xs + (x_row & (ROWS - 1)) * r.threads * BYTES, r.x + x_row * r.x_step);
    if (GRADIENT && r.p.used && dy_row >= 0 && dy_row < r.height && dy_row < r.p.last + 2)
        copy_lanes<BYTES>(r.dys + (dy_row & (FIVE_DY_ROWS - 1)) * r.threads * BYTES,
                          r.dy + dy_row * r.dy_step);
    end_copies();
}

/* x of a row: 0 outside of the image. */
template <rg_dtype T, class OP, bool GRADIENT>
static __device__ __forceinline__ void take_row(const five_rows<T, OP, GRADIENT> &r, int row,
                                                real<T> x[FIVE_LANES<T>])
{
    if (r.p.used && row >= 0 && row < r.height) {
        take_lanes<T>(r.xs + (row & (FIVE_ROWS<OP> - 1)) * r.threads * FIVE_BYTES<T>, x);
    } else {
#pragma unroll
        for (int e = 0; e < FIVE_LANES<T>; e++)
            x[e] = 0;
    }
}

/* Gradient: what goes to dx of row `middle` without further sums, and values that are summed. */
template <rg_dtype T, class OP>
static __device__ __forceinline__ void
middle_row(const five_rows<T, OP, true> &r, const typename OP::CONSTANTS &constants, int middle,
           const real<T> sum[OP::KINDS][FIVE_LANES<T>], real<T> direct[FIVE_LANES<T>],
           real<T> share[OP::KINDS][FIVE_LANES<T>])
{
    enum { V = FIVE_LANES<T>, KINDS = OP::KINDS };
    const bool inside = r.p.used && middle >= 0 && middle < r.height;
    real<T> x[V], dy[V] = {};
    take_row(r, middle, x);
    if (inside)
        take_lanes<T>(r.dys + (middle & (FIVE_DY_ROWS - 1)) * r.threads * FIVE_BYTES<T>, dy);
#pragma unroll
    for (int e = 0; e < V; e++) {
        real<T> own[KINDS], to[KINDS];
#pragma unroll
        for (int k = 0; k < KINDS; k++)
            own[k] = sum[k][e];
        to[0] = x[e];
        direct[e] = OP::middle(constants, dy[e], x[e], own, to);
#pragma unroll
        for (int k = 0; k < KINDS; k++)
            share[k][e] = inside ? to[k] : 0;
    }
}

/* The results of a row. */
template <rg_dtype T, class OP, bool GRADIENT>
static __device__ __forceinline__ void
finish_row(const five_rows<T, OP, GRADIENT> &r, const rg_box_shape &s,
           const typename OP::CONSTANTS &constants, int row,
           const real<T> sum[OP::KINDS][FIVE_LANES<T>], const real<T> direct[FIVE_LANES<T>])
{
    enum { V = FIVE_LANES<T>, KINDS = OP::KINDS };
    real<T> x[V];
    take_row(r, row, x);
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
    give_lanes<T>(r.out + row * r.out_step, x, s.add, s.stream);
}

template <rg_dtype T, class OP, bool GRADIENT>
static __global__ void __launch_bounds__(FIVE_THREADS, 2)
    box_five(const __grid_constant__ rg_box_shape s, const __grid_constant__ box_data d,
             const __grid_constant__ typename OP::CONSTANTS constants,
             const __grid_constant__ five_cut cut)
{
    enum { V = FIVE_LANES<T>, KINDS = OP::KINDS, KEPT = FIVE_KEPT<OP> };
    extern __shared__ __align__(16) char memory[];
    const auto r = find_rows<T, OP, GRADIENT>(s, d, cut, memory);
    const five_column &p = r.p;
    for (int i = (int)threadIdx.x; i < 2 * r.lines; i += r.threads)
        r.line[i] = 0;
    const int first = p.first - (GRADIENT ? 4 : 2), last = p.last + (GRADIENT ? FIVE : 2);
    real<T> sums[FIVE][KEPT][V] = {}, shares[FIVE][KEPT][V] = {}, direct[FIVE][V];
    real<T> share[KINDS][V] = {};
    for (int row = first - FIVE_AHEAD<GRADIENT>; row < first; row++)
        copy_rows(r, row);
    __syncthreads();
    for (int base = first; base < last; base += FIVE) {
#pragma unroll
        for (int i = 0; i < FIVE; i++) {
            const int row = base + i, middle = row - 2, end = row - FIVE;
            if (row >= last)
                break; /* the whole block */
            real<T> x[V], value[1][V], sum[KINDS][V];
            real<T> *const now = r.line + (row & 1) * r.lines;
            copy_rows(r, row);
            await_steps<FIVE_AHEAD<GRADIENT>>();
            take_row(r, row, x);
#pragma unroll
            for (int e = 0; e < V; e++)
                value[0][e] = OP::fill(x[e]);
            put_line<V, 1>(now, r.size, p, value);
            if constexpr (GRADIENT)
                put_line<V, KINDS>(now + r.size * V, r.size, p, share);
            __syncthreads();
            sum_lines<V, KINDS, false, 1>(now, r.size, cut.across, p, value, sums[i]);
            sum_ring<V, KINDS, false>(sums, i, sum,
                                      [&](int k, real<T> *v) { take_row(r, row - 4 + k, v); });
            if constexpr (GRADIENT) {
                sum_lines<V, KINDS, true, KINDS>(now + r.size * V, r.size, cut.across, p, share,
                                                 shares[i]);
                middle_row<T, OP>(r, constants, middle, sum, direct[(i + 3) % FIVE], share);
                if (p.writes && end >= p.first && end < p.last) {
                    sum_ring<V, KINDS, true>(
                        shares, i, sum, [&](int k, real<T> *v) { take_row(r, row - 7 + k, v); });
                    finish_row(r, s, constants, end, sum, direct[i]);
                }
            } else if (p.writes && middle >= p.first && middle < p.last) {
                finish_row(r, s, constants, middle, sum, direct[i]);
            }
        }
    }
}

/* ---- host side ---- */

static inline bool is_five(const rg_span *span)
{
    return span->before == 2 && span->after == 2;
}

/* Tiles of whole rows where these are short; bands of rows where there are few images. */
static inline five_cut cut_five(const rg_box_shape *s, bool gradient, int lanes,
                                const rg_cuda_target *target)
{
    five_cut cut;
    const int64_t pixel = ceil_div(s->channels, lanes);
    cut.across = 16;
    while (cut.across > 4 && (s->column.size * cut.across > FIVE_THREADS || cut.across > pixel))
        cut.across /= 2;
    const int64_t most = FIVE_THREADS / cut.across;
    cut.halo = s->column.size <= most ? 0 : gradient ? 4 : 2;
    cut.columns = (int)(s->column.size < most ? s->column.size : most);
    cut.groups = ceil_div(pixel, cut.across);
    cut.tiles = ceil_div(s->column.size, cut.columns - 2 * cut.halo);
    const int64_t strips = s->images * cut.groups * cut.tiles;
    const int64_t wanted = ceil_div(8 * (int64_t)target->multiprocessors, strips);
    const int64_t least = ceil_div(s->row.size, 24); /* rows: shorter bands would read much twice */
    cut.bands = wanted < least ? wanted : least;
    cut.rows = (int)ceil_div(s->row.size, cut.bands);
    cut.bands = ceil_div(s->row.size, cut.rows);
    cut.blocks = strips * cut.bands;
    return cut;
}

/* false: there is not enough shared memory. */
template <rg_dtype T, class OP, bool GRADIENT>
static bool launch_five(const rg_box_shape *s, const box_data *d,
                        const typename OP::CONSTANTS &constants, const rg_cuda_target *target)
{
    const five_cut cut = cut_five(s, GRADIENT, FIVE_LANES<T>, target);
    const int threads = (cut.columns * cut.across + 31) / 32 * 32;
    const int64_t rows = FIVE_ROWS<OP> + (GRADIENT ? FIVE_DY_ROWS : 0);
    const int64_t lines = 2 * (GRADIENT ? 1 + OP::KINDS : 1);
    const int64_t line = (int64_t)(cut.columns + 4) * cut.across * FIVE_LANES<T> * sizeof(real<T>);
    const int64_t shared = rows * threads * FIVE_BYTES<T> + lines * line;
    if (shared > target->shared)
        return false;
    launch(box_five<T, OP, GRADIENT>, cut.blocks, threads, shared, target, *s, *d, constants, cut);
    return true;
}

#endif
