/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalisation on a GPU. Where channels are whole vectors and windows narrow, a
 * thread has one vector of channels; those of a pixel meet in shared memory. Otherwise a block has
 * one pixel at a time. */
#include "backend/cuda/windows.cuh"
#include "ops/lrn/lrn_formulas.cuh"

enum { THREADS = 256, HALO = 4 }; /* zeros on either side of a pixel; a narrow window fits in */

/* ---- whole vectors ---- */

struct pixel_cut {
    int vectors;    /* of a pixel */
    int pixels;     /* of a block */
    uint32_t magic; /* t / vectors is t magic / 2^16, for t < 256 */
};

/* The values around a thread's own: HALO before them, V, HALO behind them. */
template <rg_dtype T>
static __device__ __forceinline__ void load_around(const real<T> *line, const real<T> own[VLEN<T>],
                                                   real<T> z[VLEN<T> + 2 * HALO])
{
    enum { V = VLEN<T>, STEP = 16 / (int)sizeof(real<T>) };
#pragma unroll
    for (int i = 0; i < HALO; i += STEP) {
        const uint4 before = *(const uint4 *)(line - HALO + i);
        const uint4 after = *(const uint4 *)(line + V + i);
        unpack<T == RG_F64 ? RG_F64 : RG_F32>(before, z + i);
        unpack<T == RG_F64 ? RG_F64 : RG_F32>(after, z + HALO + V + i);
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        z[HALO + e] = own[e];
}

/* sum[e] over the window of own value e, which begins `before` values in front of it. A window of
 * FIVE has two on either side; others are read where they lie. */
template <rg_dtype T, bool FIVE>
static __device__ __forceinline__ void sum_own(const real<T> *line, const real<T> own[VLEN<T>],
                                               int before, int width, real<T> sum[VLEN<T>])
{
    enum { V = VLEN<T> };
    if constexpr (FIVE) {
        real<T> z[V + 2 * HALO];
        load_around<T>(line, own, z);
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] = (z[e + 2] + z[e + 3]) + (z[e + 4] + z[e + 5]) + z[e + 6];
    } else {
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] = sum_taps(line + e - before, 1, width);
    }
}

template <rg_dtype T>
static __device__ __forceinline__ void put_own(real<T> *line, const real<T> own[VLEN<T>])
{
    enum { STEP = 16 / (int)sizeof(real<T>) };
#pragma unroll
    for (int e = 0; e < VLEN<T>; e += STEP)
        *(uint4 *)(line + e) = pack < T == RG_F64 ? RG_F64 : RG_F32 > (own + e);
}

/* Where a pixel stands in tensor `t`; dense tensors need no division. */
static __device__ __forceinline__ int64_t pixel_offset(const rg_walk &outer, int t, int64_t pixel)
{
    return outer.rank <= 1 ? straight_offset(outer, t, pixel) : walk_offset(outer, t, pixel);
}

/* Zeros on either side of the pixels of a block, and where a thread's own values stand. */
template <rg_dtype T>
static __device__ __forceinline__ real<T> *own_line(real<T> *shared, const pixel_cut &cut, int p,
                                                    int v)
{
    const int pitch = cut.vectors * VLEN<T> + 2 * HALO;
    for (int i = threadIdx.x; i < cut.pixels * 2 * HALO; i += THREADS) {
        const int j = i % (2 * HALO);
        shared[i / (2 * HALO) * pitch + (j < HALO ? j : pitch - 2 * HALO + j)] = 0;
    }
    return shared + p * pitch + HALO + v * VLEN<T>;
}

template <rg_dtype T, bool FIVE>
static __global__ void __launch_bounds__(THREADS)
    forward_vectors(const __grid_constant__ rg_lrn_args a, const norm_constants<T> k,
                    const pixel_cut cut)
{
    enum { V = VLEN<T> };
    extern __shared__ __align__(16) char memory[];
    const rg_lrn_shape &s = a.shape;
    const int p = (int)(threadIdx.x * cut.magic >> 16), v = (int)threadIdx.x - p * cut.vectors;
    const int64_t pixel = (int64_t)blockIdx.x * cut.pixels + p;
    const bool used = p < cut.pixels && pixel < s.outer.count;
    real<T> *const line = own_line<T>((real<T> *)memory, cut, p, v);
    real<T> x[V], square[V], sum[V];
    if (used) {
        unpack<T>(load_vector(at<T>(a.x, pixel_offset(s.outer, 0, pixel) + v * V)), x);
#pragma unroll
        for (int e = 0; e < V; e++)
            square[e] = x[e] * x[e];
        put_own<T>(line, square);
    }
    __syncthreads();
    if (!used)
        return;
    sum_own<T, FIVE>(line, square, (int)s.span.before, (int)s.span.width, sum);
#pragma unroll
    for (int e = 0; e < V; e++)
        x[e] = norm_forward<T>(k, x[e], sum[e], FIVE ? 3 : k.quarters);
    store_vector(at<T>(a.y, pixel_offset(s.outer, 1, pixel) + v * V), pack<T>(x), s.stream);
}

template <rg_dtype T, bool FIVE>
static __global__ void __launch_bounds__(THREADS)
    gradient_vectors(const __grid_constant__ rg_lrn_gradient_args a, const norm_constants<T> k,
                     const pixel_cut cut)
{
    enum { V = VLEN<T> };
    extern __shared__ __align__(16) char memory[];
    const rg_lrn_shape &s = a.shape;
    const int p = (int)(threadIdx.x * cut.magic >> 16), v = (int)threadIdx.x - p * cut.vectors;
    const int64_t pixel = (int64_t)blockIdx.x * cut.pixels + p;
    const bool used = p < cut.pixels && pixel < s.outer.count;
    real<T> *const line = own_line<T>((real<T> *)memory, cut, p, v);
    real<T> dy[V] = {}, x[V], own[V], sum[V];
    if (used) {
        const uint4 from = load_vector(at<T>(a.x, pixel_offset(s.outer, 1, pixel) + v * V));
        unpack<T>(load_vector(at<T>(a.dy, pixel_offset(s.outer, 0, pixel) + v * V)), dy);
        unpack<T>(from, x);
#pragma unroll
        for (int e = 0; e < V; e++)
            own[e] = x[e] * x[e];
        put_own<T>(line, own);
    }
    __syncthreads();
    if (used) {
        sum_own<T, FIVE>(line, own, (int)s.span.before, (int)s.span.width, sum);
#pragma unroll
        for (int e = 0; e < V; e++)
            dy[e] = norm_middle<T>(k, dy[e], x[e], sum[e], own[e], FIVE ? 3 : k.quarters);
    }
    __syncthreads(); /* all squares are read */
    if (used)
        put_own<T>(line, own);
    __syncthreads();
    if (!used)
        return;
    sum_own<T, FIVE>(line, own, (int)s.span.after, (int)s.span.width, sum);
    char *const to = at<T>(a.dx, pixel_offset(s.outer, 2, pixel) + v * V);
    real<T> old[V] = {};
    if (s.add)
        unpack<T>(load_vector(to), old);
#pragma unroll
    for (int e = 0; e < V; e++) {
        x[e] = norm_gradient<T>(k, x[e], dy[e], sum[e]);
        x[e] = s.add ? old[e] + x[e] : x[e];
    }
    store_vector(to, pack<T>(x), s.stream);
}

/* ---- any channels and windows: a block has a pixel ---- */

/* Where a block works, in shared memory or in scratch: places with the zeros around channels. */
template <rg_dtype T> struct pixel_room {
    real<T> *values, *prefix, *shares, *direct;
};

template <rg_dtype T>
static __device__ __forceinline__ pixel_room<T> room_of(const rg_lrn_shape &s, void *shared,
                                                        void *scratch, bool in_shared)
{
    const int64_t places = s.span.size + s.span.width - 1;
    real<T> *const room =
        (real<T> *)(in_shared ? (char *)shared : (char *)scratch + blockIdx.x * s.room);
    return { room, room + places, room + 2 * places, room + 3 * places };
}

/* Squares of all channels, and zeros around; then block sums where the window is wide. */
template <rg_dtype T>
static __device__ __forceinline__ void square_places(const rg_lrn_shape &s, const void *x,
                                                     int64_t at, int64_t step,
                                                     const pixel_room<T> &r)
{
    const int64_t places = s.span.size + s.span.width - 1;
    for (int64_t t = threadIdx.x; t < places; t += blockDim.x) {
        const int64_t c = t - s.span.before;
        const real<T> value = c >= 0 && c < s.span.size ? load<T>(x, at + c * step) : 0;
        r.values[t] = value * value;
    }
    __syncthreads();
    if (s.span.width > RG_SPAN_DIRECT) {
        sum_blocks(r.values, r.prefix, 1, 1, 0, places, 1, s.span.width);
        __syncthreads();
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    forward_pixels(const __grid_constant__ rg_lrn_args a, const norm_constants<T> k, bool in_shared)
{
    extern __shared__ __align__(16) char memory[];
    const rg_lrn_shape &s = a.shape;
    const pixel_room<T> r = room_of<T>(s, memory, a.scratch, in_shared);
    const bool blocks = s.span.width > RG_SPAN_DIRECT;
    for (int64_t p = blockIdx.x; p < s.outer.count; p += gridDim.x) {
        const int64_t from = walk_offset(s.outer, 0, p), to = walk_offset(s.outer, 1, p);
        square_places<T>(s, a.x, from, s.step[0], r);
        for (int64_t c = threadIdx.x; c < s.span.size; c += blockDim.x) {
            const real<T> sum = sum_window(r.values, r.prefix, 0, c, 1, s.span.width, blocks);
            const real<T> x = load<T>(a.x, from + c * s.step[0]);
            store<T>(a.y, to + c * s.step[1], norm_forward<T>(k, x, sum, k.quarters));
        }
        __syncthreads();
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    gradient_pixels(const __grid_constant__ rg_lrn_gradient_args a, const norm_constants<T> k,
                    bool in_shared)
{
    extern __shared__ __align__(16) char memory[];
    const rg_lrn_shape &s = a.shape;
    const pixel_room<T> r = room_of<T>(s, memory, a.scratch, in_shared);
    const int64_t places = s.span.size + s.span.width - 1;
    const bool blocks = s.span.width > RG_SPAN_DIRECT;
    for (int64_t p = blockIdx.x; p < s.outer.count; p += gridDim.x) {
        const int64_t dy_at = walk_offset(s.outer, 0, p), x_at = walk_offset(s.outer, 1, p);
        const int64_t dx_at = walk_offset(s.outer, 2, p);
        square_places<T>(s, a.x, x_at, s.step[1], r);
        for (int64_t t = threadIdx.x; t < places; t += blockDim.x) {
            const int64_t c = t - s.span.after; /* the mirrored window */
            real<T> share = 0;
            if (c >= 0 && c < s.span.size) {
                const real<T> sum = sum_window(r.values, r.prefix, 0, c, 1, s.span.width, blocks);
                const real<T> dy = load<T>(a.dy, dy_at + c * s.step[0]);
                const real<T> x = load<T>(a.x, x_at + c * s.step[1]);
                r.direct[c] = norm_middle<T>(k, dy, x, sum, share, k.quarters);
            }
            r.shares[t] = share;
        }
        __syncthreads();
        if (blocks) {
            sum_blocks(r.shares, r.prefix, 1, 1, 0, places, 1, s.span.width);
            __syncthreads();
        }
        for (int64_t c = threadIdx.x; c < s.span.size; c += blockDim.x) {
            const real<T> sum = sum_window(r.shares, r.prefix, 0, c, 1, s.span.width, blocks);
            const real<T> x = load<T>(a.x, x_at + c * s.step[1]);
            const int64_t to = dx_at + c * s.step[2];
            const real<T> value = norm_gradient<T>(k, x, r.direct[c], sum);
            store<T>(a.dx, to, s.add ? load<T>(a.dx, to) + value : value);
        }
        __syncthreads();
    }
}

/* ---- host side ---- */

/* Whether a block can have whole pixels in vectors of every tensor. */
template <rg_dtype T>
static bool is_wide(const rg_lrn_shape *s, const void *const data[], int tensors)
{
    bool wide = s->dense && s->span.size % VLEN<T> == 0 && s->span.size / VLEN<T> <= THREADS &&
                s->span.width <= RG_SPAN_DIRECT;
    for (int t = 0; t < tensors; t++)
        wide &= is_aligned<T>(data[t], &s->outer, t);
    return wide && s->outer.count < INT64_C(1) << 31;
}

template <rg_dtype T> static pixel_cut cut_of(const rg_lrn_shape *s, int64_t *shared)
{
    pixel_cut cut;
    cut.vectors = (int)(s->span.size / VLEN<T>);
    cut.pixels = THREADS / cut.vectors;
    cut.magic = (uint32_t)(65536 + cut.vectors - 1) / (uint32_t)cut.vectors;
    /* threads behind the last pixel have a line too, which nobody uses */
    *shared = (cut.pixels + 1) * (s->span.size + 2 * HALO) * (int64_t)sizeof(real<T>);
    return cut;
}

/* Blocks of the general kernels, and the shared memory of each: 0 where they work in scratch. */
template <rg_dtype T> static int64_t general_blocks(const rg_lrn_shape *s, int64_t *shared)
{
    const int64_t most_blocks = 1 << 20;
    *shared = rg_lrn_places(&s->span) * (int64_t)sizeof(real<T>);
    if (*shared > RG_LRN_SHARED) {
        *shared = 0;
        return s->units;
    }
    return s->outer.count < most_blocks ? s->outer.count : most_blocks;
}

static bool is_usual(const rg_lrn_shape *s)
{
    return s->span.before == 2 && s->span.after == 2 && s->numbers.quarters == 3;
}

template <rg_dtype T> static void lrn_forward(const void *args, const rg_cuda_place *place)
{
    const rg_lrn_args *a = (const rg_lrn_args *)args;
    const rg_lrn_shape *s = &a->shape;
    const norm_constants<T> k = norm_constants_of<T>(&s->numbers);
    const void *const data[] = { a->x, a->y };
    int64_t shared;
    if (is_wide<T>(s, data, 2)) {
        const pixel_cut cut = cut_of<T>(s, &shared);
        launch(is_usual(s) ? forward_vectors<T, true> : forward_vectors<T, false>,
               ceil_div(s->outer.count, cut.pixels), THREADS, shared, place, *a, k, cut);
        return;
    }
    const int64_t blocks = general_blocks<T>(s, &shared);
    launch(forward_pixels<T>, blocks, power_of_two(s->span.size, 32, THREADS), shared, place, *a, k,
           shared > 0);
}

template <rg_dtype T> static void lrn_gradient(const void *args, const rg_cuda_place *place)
{
    const rg_lrn_gradient_args *a = (const rg_lrn_gradient_args *)args;
    const rg_lrn_shape *s = &a->shape;
    const norm_constants<T> k = norm_constants_of<T>(&s->numbers);
    const void *const data[] = { a->dy, a->x, a->dx };
    int64_t shared;
    if (is_wide<T>(s, data, 3)) {
        const pixel_cut cut = cut_of<T>(s, &shared);
        launch(is_usual(s) ? gradient_vectors<T, true> : gradient_vectors<T, false>,
               ceil_div(s->outer.count, cut.pixels), THREADS, shared, place, *a, k, cut);
        return;
    }
    const int64_t blocks = general_blocks<T>(s, &shared);
    launch(gradient_pixels<T>, blocks, power_of_two(s->span.size, 32, THREADS), shared, place, *a,
           k, shared > 0);
}

/* ---- table, in the order of the kernels' ids ---- */

RG_CUDA_TABLE(lrn, RG_LRN_KERNELS) = {
    RG_CUDA_ROW(lrn_forward),  /* RG_LRN_FORWARD */
    RG_CUDA_ROW(lrn_gradient), /* RG_LRN_GRADIENT */
};
