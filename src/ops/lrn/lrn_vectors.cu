/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization on a GPU where channels are whole vectors and windows narrow: a
 * thread has a vector of channels. The threads of a pixel exchange values in shared memory; where
 * the window has five channels and 64 or 96 vectors are whole pixels, by shuffles. */
#include "ops/lrn/lrn_vectors.cuh"
#include "ops/window_norm/power_formulas.h"
#include "ops/window_norm/windows.cuh"

enum { THREADS = 256, HALO = 4 }; /* zeros on either side of a pixel: enough for narrow windows */

/* ---- whole vectors ---- */

struct pixel_cut {
    int vectors;    /* of a pixel */
    int pixels;     /* of a block */
    uint32_t magic; /* t / vectors is t magic / 2^16, for t < 256 */
};

/* sum[e] over the window of own value e, which begins `before` values before it. */
template <rg_dtype T>
static __device__ __forceinline__ void sum_own(const real<T> *line, int before, int width,
                                               real<T> sum[VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        sum[e] = sum_taps(line + e - before, 1, width);
}

template <rg_dtype T>
static __device__ __forceinline__ void put_own(real<T> *line, const real<T> own[VLEN<T>])
{
    enum { STEP = 16 / (int)sizeof(real<T>) };
#pragma unroll
    for (int e = 0; e < VLEN<T>; e += STEP)
        *(uint4 *)(line + e) = pack < T == RG_F64 ? RG_F64 : RG_F32 > (own + e);
}

/* Zeros on either side of the pixels of a block, and the position of a thread's own values. */
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

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    forward_vectors(const __grid_constant__ rg_lrn_args a, const power_constants<T> k,
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
        unpack<T>(load_vector(at<T>(a.x, offset_at(s.outer, 0, pixel) + v * V)), x);
#pragma unroll
        for (int e = 0; e < V; e++)
            square[e] = x[e] * x[e];
        put_own<T>(line, square);
    }
    __syncthreads();
    if (!used)
        return;
    sum_own<T>(line, (int)s.span.before, (int)s.span.width, sum);
#pragma unroll
    for (int e = 0; e < V; e++)
        x[e] = power_forward(&k, x[e], sum[e], k.quarters, IS_SHORT<T>);
    store_vector(at<T>(a.y, offset_at(s.outer, 1, pixel) + v * V), pack<T>(x), s.stream);
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    gradient_vectors(const __grid_constant__ rg_lrn_gradient_args a, const power_constants<T> k,
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
        const uint4 from = load_vector(at<T>(a.x, offset_at(s.outer, 1, pixel) + v * V));
        unpack<T>(load_vector(at<T>(a.dy, offset_at(s.outer, 0, pixel) + v * V)), dy);
        unpack<T>(from, x);
#pragma unroll
        for (int e = 0; e < V; e++)
            own[e] = x[e] * x[e];
        put_own<T>(line, own);
    }
    __syncthreads();
    if (used) {
        sum_own<T>(line, (int)s.span.before, (int)s.span.width, sum);
#pragma unroll
        for (int e = 0; e < V; e++)
            dy[e] = power_middle(&k, dy[e], x[e], sum[e], &own[e], k.quarters, IS_SHORT<T>);
    }
    __syncthreads(); /* all squares are read */
    if (used)
        put_own<T>(line, own);
    __syncthreads();
    if (!used)
        return;
    sum_own<T>(line, (int)s.span.after, (int)s.span.width, sum);
    char *const to = at<T>(a.dx, offset_at(s.outer, 2, pixel) + v * V);
    real<T> old[V] = {};
    if (s.add)
        unpack<T>(load_vector(to), old);
#pragma unroll
    for (int e = 0; e < V; e++) {
        x[e] = power_gradient(&k, x[e], dy[e], sum[e]);
        x[e] = s.add ? old[e] + x[e] : x[e];
    }
    store_vector(to, pack<T>(x), s.stream);
}

/* ---- five channels ---- */

/* A warp has 32 K vectors, which are whole pixels: thread t has vectors t, t + 32, … of them.
 * Neighbours get what they need by shuffles; thread 31 is before thread 0 of the next 32. */
template <int K> struct five_slice {
    int pixel[K]; /* or -1 */
    int channel[K];
    bool first[K], last[K]; /* vectors of their pixels */
};

template <rg_dtype T, int K>
static __device__ __forceinline__ five_slice<K> find_five(const pixel_cut &cut, int64_t pixels)
{
    five_slice<K> p;
    const int thread = (int)threadIdx.x % 32;
    const int64_t warp = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < K; i++) {
        const int j = i * 32 + thread, pixel = (int)(j * cut.magic >> 16);
        const int vector = j - pixel * cut.vectors;
        const int64_t all = warp * cut.pixels + pixel;
        p.pixel[i] = all < pixels ? (int)all : -1;
        p.channel[i] = vector * VLEN<T>;
        p.first[i] = vector == 0;
        p.last[i] = vector == cut.vectors - 1;
    }
    return p;
}

/* `own` of the thread before (step 31) or after (step 1). At either end of the warp it is
 * `other`, which belongs to the 32 vectors before or after. */
template <class REAL> static __device__ __forceinline__ REAL pass_on(REAL own, REAL other, int step)
{
    const int thread = (int)threadIdx.x % 32;
    return __shfl_sync(~0u, thread == (step == 1 ? 0 : 31) ? other : own, thread + step & 31);
}

/* What neighbours need of K vectors: the first two and the last two values of each. */
template <int K, class REAL> struct five_ends {
    REAL low[K][2], high[K][2];
};

template <int K, int V, class REAL>
static __device__ __forceinline__ void set_ends(five_ends<K, REAL> &ends, int i, const REAL z[V])
{
#pragma unroll
    for (int e = 0; e < 2; e++) {
        ends.low[i][e] = z[e];
        ends.high[i][e] = z[V - 2 + e];
    }
}

/* Sums of the windows of vector i, in the order of sum_taps. */
template <int K, int V, class REAL>
static __device__ __forceinline__ void sum_five(const five_slice<K> &p,
                                                const five_ends<K, REAL> &ends, int i,
                                                const REAL z[V], REAL sum[V])
{
    REAL around[V + 4];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const REAL before = pass_on(ends.high[i][e], ends.high[i > 0 ? i - 1 : 0][e], 31);
        const REAL behind = pass_on(ends.low[i][e], ends.low[i < K - 1 ? i + 1 : i][e], 1);
        around[e] = p.first[i] ? 0 : before;
        around[V + 2 + e] = p.last[i] ? 0 : behind;
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        around[2 + e] = z[e];
#pragma unroll
    for (int e = 0; e < V; e++)
        sum[e] = (around[e] + around[e + 1]) + (around[e + 2] + around[e + 3]) + around[e + 4];
}

/* x of a vector, and its squares. */
template <rg_dtype T>
static __device__ __forceinline__ void take_squares(uint4 &held, real<T> x[VLEN<T>],
                                                    real<T> square[VLEN<T>])
{
    if constexpr (IS_SHORT<T>) /* the compiler is to take them out again, not to keep them all */
        asm volatile("" : "+r"(held.x), "+r"(held.y), "+r"(held.z), "+r"(held.w));
    unpack<T>(held, x);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        square[e] = x[e] * x[e];
}

template <rg_dtype T, int K>
static __device__ __forceinline__ void square_ends(uint4 held[K], five_ends<K, real<T>> &ends)
{
#pragma unroll
    for (int i = 0; i < K; i++) {
        real<T> x[VLEN<T>], square[VLEN<T>];
        take_squares<T>(held[i], x, square);
        set_ends<K, VLEN<T>>(ends, i, square);
    }
}

template <rg_dtype T, int K>
static __device__ __forceinline__ void load_five(const rg_walk &outer, int t, const void *data,
                                                 const five_slice<K> &p, uint4 held[K])
{
#pragma unroll
    for (int i = 0; i < K; i++)
        held[i] =
            p.pixel[i] < 0
                ? make_uint4(0, 0, 0, 0)
                : load_vector(at<T>(data, straight_offset(outer, t, p.pixel[i]) + p.channel[i]));
}

template <rg_dtype T, int K>
static __global__ void __launch_bounds__(THREADS)
    forward_five(const __grid_constant__ rg_lrn_args a, const power_constants<T> k,
                 const pixel_cut cut)
{
    enum { V = VLEN<T> };
    const rg_lrn_shape &s = a.shape;
    const five_slice<K> p = find_five<T, K>(cut, s.outer.count);
    uint4 held[K];
    five_ends<K, real<T>> ends;
    load_five<T, K>(s.outer, 0, a.x, p, held);
    square_ends<T, K>(held, ends);
#pragma unroll
    for (int i = 0; i < K; i++) {
        real<T> x[V], square[V], sum[V];
        take_squares<T>(held[i], x, square);
        sum_five<K, V>(p, ends, i, square, sum);
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] = power_forward(&k, x[e], sum[e], 3, IS_SHORT<T> | POWER_NORMAL);
        if (p.pixel[i] >= 0)
            store_vector(at<T>(a.y, straight_offset(s.outer, 1, p.pixel[i]) + p.channel[i]),
                         pack<T>(x), s.stream);
    }
}

template <rg_dtype T, int K>
static __global__ void __launch_bounds__(THREADS, 3)
    gradient_five(const __grid_constant__ rg_lrn_gradient_args a, const power_constants<T> k,
                  const pixel_cut cut)
{
    enum { V = VLEN<T> };
    const rg_lrn_shape &s = a.shape;
    const five_slice<K> p = find_five<T, K>(cut, s.outer.count);
    uint4 xs[K], dys[K];
    real<T> direct[K][V], share[K][V];
    five_ends<K, real<T>> squares, shares;
    load_five<T, K>(s.outer, 1, a.x, p, xs);
    load_five<T, K>(s.outer, 0, a.dy, p, dys);
    square_ends<T, K>(xs, squares);
    auto finish = [&](int i) {
        real<T> x[V], sum[V], old[V] = {};
        sum_five<K, V>(p, shares, i, share[i], sum);
        if (p.pixel[i] < 0)
            return;
        char *const to = at<T>(a.dx, straight_offset(s.outer, 2, p.pixel[i]) + p.channel[i]);
        unpack<T>(xs[i], x);
        if (s.add)
            unpack<T>(load_vector(to), old);
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = power_gradient(&k, x[e], direct[i][e], sum[e]);
            x[e] = s.add ? old[e] + x[e] : x[e];
        }
        store_vector(to, pack<T>(x), s.stream);
    };
#pragma unroll
    for (int i = 0; i < K; i++) { /* what a vector gets from its neighbours is there one later */
        real<T> x[V], square[V], dy[V], sum[V];
        take_squares<T>(xs[i], x, square);
        sum_five<K, V>(p, squares, i, square, sum);
        unpack<T>(dys[i], dy);
#pragma unroll
        for (int e = 0; e < V; e++)
            direct[i][e] =
                power_middle(&k, dy[e], x[e], sum[e], &share[i][e], 3, IS_SHORT<T> | POWER_NORMAL);
        set_ends<K, V>(shares, i, share[i]);
        if (i > 0)
            finish(i - 1);
    }
    finish(K - 1);
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
    /* threads after the last pixel have a line too, which is not used */
    *shared = (cut.pixels + 1) * (s->span.size + 2 * HALO) * (int64_t)sizeof(real<T>);
    return cut;
}

/* Vectors of a thread, 2 or 3, where a warp has whole pixels and windows have five channels; else
 * 0. What is raised to a power is then delta or more, and no subnormal number. */
static int five_vectors(const rg_lrn_shape *s, pixel_cut *cut)
{
    const rg_power_numbers *n = &s->numbers;
    const bool common_case = s->span.before == 2 && s->span.after == 2 && n->quarters == 3 &&
                             n->scale >= 0 && n->delta >= 0x1p-100;
    const int each = 64 % cut->vectors == 0 ? 2 : 96 % cut->vectors == 0 ? 3 : 0;
    if (!common_case || each == 0 || s->outer.rank > 1)
        return 0;
    cut->pixels = 32 * each / cut->vectors;
    return each;
}

/* Blocks of five_vectors. */
static int64_t five_blocks(const rg_lrn_shape *s, const pixel_cut *cut)
{
    return ceil_div(s->outer.count, (int64_t)cut->pixels * (THREADS / 32));
}

/* `five` has the kernels of five channels by vectors of a thread, 2 and 3. False: not by vectors.
 */
template <rg_dtype T, class ARGS, class FIVE, class VECTORS>
static bool launch_vectors(const ARGS &a, const void *const data[], int tensors,
                           FIVE *const five[2], VECTORS *vectors, const rg_cuda_target *target)
{
    const rg_lrn_shape *s = &a.shape;
    if (!is_wide<T>(s, data, tensors))
        return false;
    const power_constants<T> k = power_constants_of<real<T>>(&s->numbers);
    int64_t shared;
    pixel_cut cut = cut_of<T>(s, &shared);
    const int each = five_vectors(s, &cut);
    if (each > 0)
        launch(five[each - 2], five_blocks(s, &cut), THREADS, 0, target, a, k, cut);
    else
        launch(vectors, ceil_div(s->outer.count, cut.pixels), THREADS, shared, target, a, k, cut);
    return true;
}

template <rg_dtype T> static bool launch_forward(const rg_lrn_args *a, const rg_cuda_target *target)
{
    const void *const data[] = { a->x, a->y };
    decltype(&forward_five<T, 2>) const five[] = { forward_five<T, 2>, forward_five<T, 3> };
    return launch_vectors<T>(*a, data, 2, five, forward_vectors<T>, target);
}

template <rg_dtype T>
static bool launch_gradient(const rg_lrn_gradient_args *a, const rg_cuda_target *target)
{
    const void *const data[] = { a->dy, a->x, a->dx };
    decltype(&gradient_five<T, 2>) const five[] = { gradient_five<T, 2>, gradient_five<T, 3> };
    return launch_vectors<T>(*a, data, 3, five, gradient_vectors<T>, target);
}

rg_lrn_forward_vectors_function *const rg_lrn_forward_vectors[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(launch_forward);
rg_lrn_gradient_vectors_function *const rg_lrn_gradient_vectors[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(launch_gradient);
