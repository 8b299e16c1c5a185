/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalization on a GPU: sums over rows of channels, y and dx.
 *
 * A block takes `across` vectors of VLEN channels of a part; a thread has one of these vectors in
 * every `down`th row, so that neighbouring threads read neighbouring vectors, and what belongs to
 * its channels stays in registers. Tensors that are not aligned are read in the same order, element
 * by element. norm.cu has the kernels; group normalization has more of the kind. */
#ifndef RG_OPS_NORM_CUH
#define RG_OPS_NORM_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/norm/norm.h"
#include "ops/fused_neuron/any_neuron.cuh"

enum { NORM_THREADS = 256, NORM_ACROSS = 64 };

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

/* ---- the channels and rows of a thread ---- */

typedef struct norm_work {
    int64_t image, part;
    int64_t c;          /* its first channel */
    int64_t begin, end; /* its rows: every `down`th */
    int down, left;     /* channels that it has */
} norm_work;

template <rg_dtype T>
static __device__ __forceinline__ norm_work norm_work_of(const rg_channels &s, int across,
                                                         int64_t chunks, int64_t block)
{
    norm_work w;
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

/* The offset of the thread's channels of a row in tensor t. */
template <bool FAST>
static __device__ __forceinline__ int64_t norm_offset(const rg_channels &s, int t,
                                                      const norm_work &w, int64_t row)
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

/* A parameter of the `left` channels from c on. */
template <rg_dtype T>
static __device__ __forceinline__ void load_parameter(const void *data, int64_t step, bool has,
                                                      real<T> otherwise, rg_dtype dtype, int64_t c,
                                                      int left, real<T> x[VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = has && e < left ? load_own<T>(data, (c + e) * step, dtype) : otherwise;
}

/* ---- statistics ---- */

template <class REAL> static __device__ __forceinline__ REAL middle_of(REAL a, REAL b, REAL c)
{
    const REAL low = a < b ? a : b, high = a > b ? a : b, less = high < c ? high : c;
    return low > less ? low : less;
}

/* The element in the middle of the first three of each channel. */
template <rg_dtype T, bool FAST>
static __device__ __forceinline__ void choose_pivots(const rg_channels &s, int t, const void *x,
                                                     const norm_work &w, real<T> pivot[VLEN<T>])
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
        pivot[e] = middle_of(a[0][e], a[1][e], a[2][e]);
}

/* Sums of a vector less `pivot`, and of its squares. */
template <rg_dtype T>
static __device__ __forceinline__ void add_moments(const uint4 &held, const real<T> pivot[VLEN<T>],
                                                   real<T> sum[2 * VLEN<T>])
{
    real<T> d[VLEN<T>];
    unpack<T>(held, d);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        d[e] -= pivot[e];
        sum[e] += d[e];
        sum[VLEN<T> + e] = fma(d[e], d[e], sum[VLEN<T> + e]);
    }
}

/* ---- y ---- */

/* What belongs to the channels of a thread. */
template <rg_dtype T> struct norm_columns {
    real<T> mean[VLEN<T>], scale[VLEN<T>], shift[VLEN<T>], gamma[VLEN<T>], s[VLEN<T>];
};

/* y of a vector of x, in place. */
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

/* ---- gradient ---- */

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

/* ---- host side ---- */

/* All that the kernels for y and dx need besides tensors. */
typedef struct norm_call {
    rg_norm_parameters parameters;
    rg_norm_neuron neuron;
    int64_t chunks, first, count; /* parts of all images: the first, and how many */
    int across;
    bool given, extra, add, stream;
} norm_call;

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

/* The args for parts first to first + count - 1 of all images. */
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

/* The kernel for a neuron; where tensors are not aligned, one kernel serves all kinds. */
#define NORM_KERNEL(name, fast, kind)                        \
    (!(fast)                    ? name<T, false, NORM_OTHER> \
     : (kind) == RG_NEURON_NONE ? name<T, true, NORM_PLAIN>  \
     : (kind) == RG_NEURON_RELU ? name<T, true, NORM_RELU>   \
                                : name<T, true, NORM_OTHER>)

/* What the kernels of the gradient read. */
struct norm_inputs {
    const void *dy, *x, *gamma, *beta, *moments;
};

/* Launches of the kernels in norm.cu, by dtype. */
typedef void rg_norm_parts_function(const void *x, void *partial, const rg_channels *s,
                                    int64_t first, int64_t count, const rg_cuda_target *target);
typedef void rg_norm_forward_function(const void *x, const void *gamma, const void *beta,
                                      const void *moments, void *y, const rg_channels *s,
                                      const norm_call *k, const rg_cuda_target *target);
typedef void rg_norm_sums_function(const norm_inputs &in, void *partial, const rg_channels *s,
                                   const norm_call *k, const rg_cuda_target *target);
typedef void rg_norm_gradient_function(const norm_inputs &in, const void *factors, void *dx,
                                       const rg_channels *s, const norm_call *k,
                                       const rg_cuda_target *target);
extern "C" {
extern rg_norm_parts_function *const rg_norm_parts[RG_CUDA_DTYPES];
extern rg_norm_forward_function *const rg_norm_forward[RG_CUDA_DTYPES];
extern rg_norm_sums_function *const rg_norm_sums[RG_CUDA_DTYPES];
extern rg_norm_gradient_function *const rg_norm_gradient[RG_CUDA_DTYPES];
}

#endif
