/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalisation on a GPU: sums over rows of channels, y and dx.
 *
 * A block takes `across` vectors of VLEN channels of a part; a thread has one of these vectors in
 * every `down`th row, so that neighbours read neighbours, and what belongs to its channels stays in
 * registers. Copies of its next NORM_AHEAD rows are on their way to shared memory. Sums of the
 * threads of a channel are joined by a tree. Tensors that are not aligned go the same way, element
 * by element. */
#ifndef RG_OPS_NORM_CUH
#define RG_OPS_NORM_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/norm/norm.h"
#include "ops/neuron/any_neuron.cuh"

enum { NORM_THREADS = 256, NORM_ACROSS = 64, NORM_AHEAD = 6 };

/* ---- elements of any dtype, for tensors of channels ---- */

static __device__ __forceinline__ double load_any(const void *data, int64_t i, rg_dtype dtype)
{
    return dtype == RG_F64    ? load<RG_F64>(data, i)
           : dtype == RG_F16  ? (double)load<RG_F16>(data, i)
           : dtype == RG_BF16 ? (double)load<RG_BF16>(data, i)
                              : (double)load<RG_F32>(data, i);
}

static __device__ __forceinline__ void store_any(void *data, int64_t i, rg_dtype dtype,
                                                 double value)
{
    if (dtype == RG_F64)
        store<RG_F64>(data, i, value);
    else if (dtype == RG_F16)
        store<RG_F16>(data, i, (float)value);
    else if (dtype == RG_BF16)
        store<RG_BF16>(data, i, (float)value);
    else
        store<RG_F32>(data, i, (float)value);
}

/* A parameter of a tensor of dtype T: it has that dtype, or f32. */
template <rg_dtype T>
static __device__ __forceinline__ real<T> load_own(const void *data, int64_t i, rg_dtype dtype)
{
    return dtype == T ? load<T>(data, i) : (real<T>)load<RG_F32>(data, i);
}

static __device__ __forceinline__ double gamma_of(const void *gamma, const rg_norm_parameters &p,
                                                  int64_t c)
{
    return p.has_gamma ? load_any(gamma, c * p.gamma_step, p.dtype) : 1;
}

static __device__ __forceinline__ double beta_of(const void *beta, const rg_norm_parameters &p,
                                                 int64_t c)
{
    return p.has_beta ? load_any(beta, c * p.beta_step, p.dtype) : 0;
}

/* ---- neurons ---- */

enum { NORM_PLAIN, NORM_RELU, NORM_OTHER };

/* g from dy and z. */
template <rg_dtype T, int NEURON>
static __device__ __forceinline__ real<T> through_neuron(int32_t kind, const neuron_constants<T> &k,
                                                         real<T> dy, real<T> z)
{
    if constexpr (NEURON == NORM_PLAIN)
        return dy;
    else if constexpr (NEURON == NORM_RELU)
        return neuron_relu_slope<T>(k, dy, z);
    else
        return any_neuron_slope<T>(kind, k, dy, z);
}

/* ---- where a thread stands ---- */

typedef struct norm_place {
    int64_t image, part;
    int64_t c;          /* its first channel */
    int64_t begin, end; /* its rows: every `down`th */
    int down, left;     /* channels that it has */
} norm_place;

template <rg_dtype T>
static __device__ __forceinline__ norm_place norm_place_of(const rg_channels &s, int across,
                                                           int64_t chunks, int64_t block)
{
    norm_place w;
    const int64_t all = block / chunks, chunk = block - all * chunks;
    w.image = s.parts == 1 ? all : all / s.parts;
    w.part = all - w.image * s.parts;
    w.c = (chunk * across + (threadIdx.x & (across - 1))) * VLEN<T>;
    const int64_t left = s.channels - w.c;
    w.left = left < 0 ? 0 : left < VLEN<T> ? (int)left : VLEN<T>;
    w.down = NORM_THREADS / across;
    w.begin = w.part * s.part + threadIdx.x / across;
    w.end = w.part * s.part + rg_channels_rows(&s, w.part);
    return w;
}

/* Where the thread's channels of a row stand in tensor t. */
template <bool FAST>
static __device__ __forceinline__ int64_t norm_offset(const rg_channels &s, int t,
                                                      const norm_place &w, int64_t row)
{
    if constexpr (FAST)
        return straight_offset(s.images, t, w.image) + straight_offset(s.rows, t, row) + w.c;
    else
        return walk_offset(s.images, t, w.image) + walk_offset(s.rows, t, row) + w.c * s.step[t];
}

template <rg_dtype T, bool FAST>
static __device__ __forceinline__ void load_columns(const void *data, int64_t offset, int64_t step,
                                                    int left, real<T> x[VLEN<T>])
{
    if constexpr (FAST) {
        unpack<T>(load_vector(at<T>(data, offset)), x);
    } else {
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            x[e] = e < left ? load<T>(data, offset + e * step) : 0;
    }
}

template <rg_dtype T, bool FAST>
static __device__ __forceinline__ void store_columns(void *data, int64_t offset, int64_t step,
                                                     int left, bool add, bool stream,
                                                     real<T> x[VLEN<T>])
{
    if (add) {
        real<T> old[VLEN<T>];
        load_columns<T, FAST>(data, offset, step, left, old);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            x[e] += old[e];
    }
    if constexpr (FAST) {
        store_vector(at<T>(data, offset), pack<T>(x), stream);
    } else {
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            if (e < left)
                store<T>(data, offset + e * step, x[e]);
    }
}

/* The rows of a thread in one or more tensors, of which copies are under way to `memory`; see
 * norm_shared. */
template <rg_dtype T, bool FAST, int TENSORS> struct norm_rows_of {
    const char *from[TENSORS];
    int64_t step[TENSORS]; /* bytes */
    uint4 *own;
    int count;

    /* Starts to copy row r, if there is one, to a place of its own. */
    __device__ __forceinline__ void start(int r, int slot)
    {
        if constexpr (FAST) {
            if (r < count) {
#pragma unroll
                for (int t = 0; t < TENSORS; t++)
                    copy_vector(own + (slot * TENSORS + t) * NORM_THREADS, from[t] + r * step[t]);
            }
            end_copies();
        }
    }
};

/* Of tensors first, first + 1 … of the shape; starts the first copies. */
template <rg_dtype T, bool FAST, int TENSORS>
static __device__ __forceinline__ norm_rows_of<T, FAST, TENSORS>
find_rows(const rg_channels &s, const void *const (&data)[TENSORS], const norm_place &w,
          uint4 *memory)
{
    norm_rows_of<T, FAST, TENSORS> rows;
    const int64_t left = w.end - w.begin;
    rows.count = w.left > 0 && left > 0 ? (int)((uint32_t)(left + w.down - 1) / w.down) : 0;
    rows.own = memory + threadIdx.x;
#pragma unroll
    for (int t = 0; t < TENSORS; t++) {
        rows.from[t] = FAST ? at<T>(data[t], norm_offset<true>(s, t, w, w.begin)) : nullptr;
        rows.step[t] = w.down * s.rows.strides[t][0] * (int64_t)sizeof(element<T>);
    }
#pragma unroll
    for (int r = 0; r < NORM_AHEAD; r++)
        rows.start(r, r);
    return rows;
}

/* Calls step(row, vectors) for each of them. */
template <rg_dtype T, bool FAST, int TENSORS, class STEP>
static __device__ __forceinline__ void
each_row(norm_rows_of<T, FAST, TENSORS> &rows, const rg_channels &s,
         const void *const (&data)[TENSORS], const norm_place &w, STEP step)
{
    int slot = 0;
#pragma unroll 2
    for (int r = 0; r < rows.count; r++) {
        uint4 held[TENSORS];
        await_steps<NORM_AHEAD - 1>();
#pragma unroll
        for (int t = 0; t < TENSORS; t++) {
            if constexpr (FAST) {
                held[t] = rows.own[(slot * TENSORS + t) * NORM_THREADS];
            } else {
                real<T> x[VLEN<T>];
                const int64_t row = w.begin + (int64_t)r * w.down;
                load_columns<T, FAST>(data[t], norm_offset<FAST>(s, t, w, row), s.step[t], w.left,
                                      x);
                held[t] = pack<T>(x);
            }
        }
        step(r, held);
        rows.start(r + NORM_AHEAD, slot);
        slot = slot == NORM_AHEAD - 1 ? 0 : slot + 1;
    }
}

/* Where row r of a thread stands in tensor t, whose first one stands at `base`. */
template <bool FAST>
static __device__ __forceinline__ int64_t row_offset(const rg_channels &s, int t,
                                                     const norm_place &w, int64_t base, int r)
{
    return FAST ? base + r * (w.down * s.rows.strides[t][0])
                : norm_offset<FAST>(s, t, w, w.begin + (int64_t)r * w.down);
}

/* Channels of a row of a table of real numbers; 0 behind the end. */
template <rg_dtype T>
static __device__ __forceinline__ void load_table(const void *table, int64_t row, int64_t channels,
                                                  const norm_place &w, real<T> x[VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = e < w.left ? ((const real<T> *)table)[row * channels + w.c + e] : 0;
}

template <rg_dtype T>
static __device__ __forceinline__ void load_parameter(const void *data, int64_t step, bool has,
                                                      real<T> otherwise, rg_dtype dtype,
                                                      const norm_place &w, real<T> x[VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = has && e < w.left ? load_own<T>(data, (w.c + e) * step, dtype) : otherwise;
}

/* ---- statistics of parts ---- */

template <class REAL> static __device__ __forceinline__ REAL middle_of(REAL a, REAL b, REAL c)
{
    const REAL low = a < b ? a : b, high = a > b ? a : b, less = high < c ? high : c;
    return low > less ? low : less;
}

/* The element in the middle of the first three of each channel. */
template <rg_dtype T, bool FAST>
static __device__ __forceinline__ void choose_near(const rg_channels &s, int t, const void *x,
                                                   const norm_place &w, real<T> near[VLEN<T>])
{
    real<T> a[3][VLEN<T>];
    const int64_t first = w.part * s.part;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        const int64_t row = first + k < w.end ? first + k : first;
        load_columns<T, FAST>(x, norm_offset<FAST>(s, t, w, row), s.step[t], w.left, a[k]);
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        near[e] = middle_of(a[0][e], a[1][e], a[2][e]);
}

/* Sums of a vector less `near`, and of its squares. */
template <rg_dtype T>
static __device__ __forceinline__ void add_moments(const uint4 &held, const real<T> near[VLEN<T>],
                                                   real<T> sum[2 * VLEN<T>])
{
    real<T> d[VLEN<T>];
    unpack<T>(held, d);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        d[e] -= near[e];
        sum[e] += d[e];
        sum[VLEN<T> + e] = fma(d[e], d[e], sum[VLEN<T> + e]);
    }
}

/* partial: (images, parts, RG_NORM_PARTIAL, channels) */
template <rg_dtype T, bool FAST>
static __global__ void __launch_bounds__(NORM_THREADS, 3)
    norm_parts(const void *x, void *partial, const __grid_constant__ rg_channels s, int across,
               int64_t chunks, int64_t first)
{
    extern __shared__ uint4 memory[];
    const norm_place w = norm_place_of<T>(s, across, chunks, first * chunks + blockIdx.x);
    const void *const data[] = { x };
    auto own = find_rows<T, FAST>(s, data, w, memory);
    real<T> near[VLEN<T>] = {}, sum[2 * VLEN<T>] = {};
    if (w.left > 0)
        choose_near<T, FAST>(s, 0, x, w, near);
    each_row(own, s, data, w, [&](int, const uint4 *held) { add_moments<T>(held[0], near, sum); });
    __syncthreads(); /* `memory` is free again */
    reduce_down<2 * VLEN<T>>(sum, across, (real<T> *)memory, false);
    if (threadIdx.x >= across)
        return;
    const real<T> rows = (real<T>)rg_channels_rows(&s, w.part);
    real<T> *to =
        (real<T> *)partial + (w.image * s.parts + w.part) * RG_NORM_PARTIAL * s.channels + w.c;
    for (int e = 0; e < w.left; e++) {
        const real<T> rest = sum[e] / rows, around = fma(-sum[e], rest, sum[VLEN<T> + e]);
        to[RG_NORM_NEAR * s.channels + e] = near[e];
        to[RG_NORM_REST * s.channels + e] = rest;
        to[RG_NORM_SQUARES * s.channels + e] = around < 0 ? 0 : around;
    }
}

/* ---- y ---- */

/* What belongs to the channels of a thread. */
template <rg_dtype T> struct norm_columns {
    real<T> mean[VLEN<T>], scale[VLEN<T>], shift[VLEN<T>], gamma[VLEN<T>], s[VLEN<T>];
};

/* moments: (images, RG_NORM_MOMENTS, channels) */
template <rg_dtype T>
static __device__ __forceinline__ void
set_columns(norm_columns<T> &k, const rg_channels &s, const void *moments, const void *gamma,
            const void *beta, const rg_norm_parameters &p, const norm_place &w)
{
    const int64_t first = w.image * RG_NORM_MOMENTS;
    real<T> rest[VLEN<T>], shift[VLEN<T>];
    load_table<T>(moments, first + RG_NORM_MEAN, s.channels, w, k.mean);
    load_table<T>(moments, first + RG_NORM_MEAN_REST, s.channels, w, rest);
    load_table<T>(moments, first + RG_NORM_S, s.channels, w, k.s);
    load_parameter<T>(gamma, p.gamma_step, p.has_gamma, 1, p.dtype, w, k.gamma);
    load_parameter<T>(beta, p.beta_step, p.has_beta, 0, p.dtype, w, shift);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        k.scale[e] = k.gamma[e] * k.s[e];
        k.shift[e] = fma(-rest[e], k.scale[e], shift[e]);
    }
}

/* All that the kernels for y and dx need besides tensors. */
typedef struct norm_call {
    rg_norm_parameters parameters;
    rg_norm_neuron neuron;
    int64_t chunks, first, count; /* parts of all images: the first, and how many */
    int across;
    bool given, extra, add, stream;
} norm_call;

/* y of a vector, in its place. */
template <rg_dtype T, int NEURON>
static __device__ __forceinline__ void make_y(const norm_columns<T> &c, int32_t kind,
                                              const neuron_constants<T> &neuron, real<T> v[VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        v[e] = fma(v[e] - c.mean[e], c.scale[e], c.shift[e]);
        if constexpr (NEURON == NORM_RELU)
            v[e] = neuron_relu<T>(neuron, v[e], v[e]);
        else if constexpr (NEURON == NORM_OTHER)
            v[e] = any_neuron<T>(kind, neuron, v[e]);
    }
}

template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(NORM_THREADS, 3)
    norm_forward(const void *x, const void *gamma, const void *beta, const void *moments, void *y,
                 const __grid_constant__ rg_channels s, const __grid_constant__ norm_call k)
{
    extern __shared__ uint4 memory[];
    /* what was read last is nearest */
    const int64_t block = (k.first + k.count) * k.chunks - 1 - blockIdx.x;
    const norm_place w = norm_place_of<T>(s, k.across, k.chunks, block);
    if (w.left == 0)
        return;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const void *const data[] = { x };
    auto rows = find_rows<T, FAST>(s, data, w, memory);
    norm_columns<T> c;
    set_columns<T>(c, s, moments, gamma, beta, k.parameters, w);
    const int64_t to = FAST ? norm_offset<FAST>(s, 1, w, w.begin) : 0;
    each_row(rows, s, data, w, [&](int r, const uint4 *held) {
        real<T> v[VLEN<T>];
        unpack<T>(held[0], v);
        make_y<T, NEURON>(c, k.neuron.kind, neuron, v);
        store_columns<T, FAST>(y, row_offset<FAST>(s, 1, w, to, r), s.step[1], w.left, false,
                               k.stream, v);
    });
}

/* ---- sums of the gradient, dx ---- */

/* g and t of a vector from dy and x. */
template <rg_dtype T, int NEURON>
static __device__ __forceinline__ void
take_gradient(const uint4 &dy, const uint4 &x, const norm_columns<T> &c, int32_t kind,
              const neuron_constants<T> &neuron, real<T> g[VLEN<T>], real<T> t[VLEN<T>])
{
    unpack<T>(dy, g);
    unpack<T>(x, t);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        t[e] -= c.mean[e];
        g[e] = through_neuron<T, NEURON>(kind, neuron, g[e], fma(t[e], c.scale[e], c.shift[e]));
    }
}

/* Sums of g, and of g t. */
template <rg_dtype T>
static __device__ __forceinline__ void
add_gradient(const real<T> g[VLEN<T>], const real<T> t[VLEN<T>], real<T> sum[2 * VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        sum[e] += g[e];
        sum[VLEN<T> + e] = fma(g[e], t[e], sum[VLEN<T> + e]);
    }
}

/* partial: (images, parts, 2, channels) */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(NORM_THREADS, 3)
    norm_sums(const void *dy, const void *x, const void *gamma, const void *beta,
              const void *moments, void *partial, const __grid_constant__ rg_channels s,
              const __grid_constant__ norm_call k)
{
    extern __shared__ uint4 memory[];
    const norm_place w = norm_place_of<T>(s, k.across, k.chunks, k.first * k.chunks + blockIdx.x);
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const void *const data[] = { dy, x };
    auto rows = find_rows<T, FAST>(s, data, w, memory);
    norm_columns<T> c;
    real<T> sum[2 * VLEN<T>] = {};
    if (w.left > 0)
        set_columns<T>(c, s, moments, gamma, beta, k.parameters, w);
    each_row(rows, s, data, w, [&](int, const uint4 *held) {
        real<T> g[VLEN<T>], t[VLEN<T>];
        take_gradient<T, NEURON>(held[0], held[1], c, k.neuron.kind, neuron, g, t);
        add_gradient<T>(g, t, sum);
    });
    __syncthreads(); /* `memory` is free again */
    reduce_down<2 * VLEN<T>>(sum, k.across, (real<T> *)memory, false);
    if (threadIdx.x >= k.across)
        return;
    real<T> *to = (real<T> *)partial + (w.image * s.parts + w.part) * 2 * s.channels + w.c;
    for (int e = 0; e < w.left; e++) {
        to[e] = sum[e];
        to[s.channels + e] = sum[VLEN<T> + e];
    }
}

/* dx of a vector in the place of g; rounded one by one, so that a single element leaves 0. */
template <rg_dtype T>
static __device__ __forceinline__ void
make_dx(const norm_columns<T> &c, const real<T> offset[VLEN<T>], const real<T> weight[VLEN<T>],
        bool given, real<T> g[VLEN<T>], const real<T> t[VLEN<T>])
{
    if (given) {
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            g[e] *= c.gamma[e] * c.s[e];
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        g[e] = fma(-t[e], weight[e], g[e] * c.gamma[e] - offset[e]) * c.s[e];
}

/* What the gradients of statistics that were returned add to dx. */
template <rg_dtype T>
static __device__ __forceinline__ void add_extra(const void *factors, int64_t first,
                                                 int64_t channels, const norm_place &w,
                                                 real<T> g[VLEN<T>], const real<T> t[VLEN<T>])
{
    real<T> slope[VLEN<T>], plus[VLEN<T>];
    load_table<T>(factors, first + RG_NORM_SLOPE, channels, w, slope);
    load_table<T>(factors, first + RG_NORM_PLUS, channels, w, plus);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        g[e] += fma(t[e], slope[e], plus[e]);
}

/* factors: (images, RG_NORM_FACTORS, channels) */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(NORM_THREADS, VLEN<T> == 8 ? 2 : 3)
    norm_gradient(const void *dy, const void *x, const void *gamma, const void *beta,
                  const void *moments, const void *factors, void *dx,
                  const __grid_constant__ rg_channels s, const __grid_constant__ norm_call k)
{
    extern __shared__ uint4 memory[];
    const int64_t block = (k.first + k.count) * k.chunks - 1 - blockIdx.x;
    const norm_place w = norm_place_of<T>(s, k.across, k.chunks, block);
    if (w.left == 0)
        return;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const int64_t first = w.image * RG_NORM_FACTORS;
    const void *const data[] = { dy, x };
    auto rows = find_rows<T, FAST>(s, data, w, memory);
    norm_columns<T> c;
    real<T> offset[VLEN<T>] = {}, weight[VLEN<T>] = {};
    set_columns<T>(c, s, moments, gamma, beta, k.parameters, w);
    if (!k.given) {
        load_table<T>(factors, first + RG_NORM_OFFSET, s.channels, w, offset);
        load_table<T>(factors, first + RG_NORM_WEIGHT, s.channels, w, weight);
    }
    const int64_t to = FAST ? norm_offset<FAST>(s, 2, w, w.begin) : 0;
    each_row(rows, s, data, w, [&](int r, const uint4 *held) {
        real<T> g[VLEN<T>], t[VLEN<T>];
        take_gradient<T, NEURON>(held[0], held[1], c, k.neuron.kind, neuron, g, t);
        make_dx<T>(c, offset, weight, k.given, g, t);
        if (k.extra)
            add_extra<T>(factors, first, s.channels, w, g, t);
        store_columns<T, FAST>(dx, row_offset<FAST>(s, 2, w, to, r), s.step[2], w.left, k.add,
                               k.stream, g);
    });
}

/* ---- launches ---- */

/* Shared memory of a kernel that reads so many tensors: for copies, then for a reduction. */
template <rg_dtype T> static int64_t norm_shared(int tensors)
{
    const int64_t reduction = NORM_THREADS * 2 * VLEN<T> * (int64_t)sizeof(real<T>);
    const int64_t copies = (int64_t)tensors * NORM_AHEAD * NORM_THREADS * 16;
    return copies > reduction ? copies : reduction;
}

template <rg_dtype T> static int norm_across(const rg_channels *s)
{
    return power_of_two(ceil_div(s->channels, VLEN<T>), 1, NORM_ACROSS);
}

/* Whether all rows can be taken vector by vector. */
template <rg_dtype T>
static bool norm_is_fast(const rg_channels *s, const void *const data[], int tensors)
{
    bool fast = s->dense && s->rows.rank <= 1 && s->images.rank <= 1 && s->channels % VLEN<T> == 0;
    for (int t = 0; t < tensors; t++)
        fast &= is_aligned<T>(data[t], &s->rows, t) && is_aligned<T>(data[t], &s->images, t);
    return fast;
}

/* The args of the kernels above for parts first to first + count - 1 of all images. */
template <rg_dtype T>
static norm_call norm_call_of(const rg_channels *s, const rg_norm_parameters *parameters,
                              const rg_norm_neuron *neuron, int64_t first, int64_t count)
{
    norm_call k = {};
    k.parameters = *parameters;
    k.neuron = *neuron;
    k.across = norm_across<T>(s);
    k.chunks = ceil_div(s->channels, k.across * VLEN<T>);
    k.first = first;
    k.count = count;
    return k;
}

template <rg_dtype T>
static void launch_parts(const void *x, void *partial, const rg_channels *s, int64_t first,
                         int64_t count, const rg_cuda_place *place)
{
    const int across = norm_across<T>(s);
    const int64_t chunks = ceil_div(s->channels, across * VLEN<T>);
    const void *const data[] = { x };
    launch(norm_is_fast<T>(s, data, 1) ? norm_parts<T, true> : norm_parts<T, false>, count * chunks,
           NORM_THREADS, norm_shared<T>(1), place, x, partial, *s, across, chunks, first);
}

/* The kernel for a neuron; what is not aligned looks at each element what is to be done. */
#define NORM_KERNEL(name, fast, kind)                        \
    (!(fast)                    ? name<T, false, NORM_OTHER> \
     : (kind) == RG_NEURON_NONE ? name<T, true, NORM_PLAIN>  \
     : (kind) == RG_NEURON_RELU ? name<T, true, NORM_RELU>   \
                                : name<T, true, NORM_OTHER>)

#endif
