/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons on a GPU. */
#include "backend/cuda/sweep.cuh"
#include "ops/neuron/neuron_formulas.h"

/* ---- forward: y from x ---- */

template <rg_dtype T, int KIND>
static __device__ __forceinline__ real<T> value_of(const neuron_constants<T> &k, real<T> x, real<T>)
{
    return neuron_value(KIND, &k, x, IS_SHORT<T>);
}

template <rg_dtype T, int KIND> static void forward(const void *args, const rg_cuda_target *target)
{
    const rg_neuron_args *k = (const rg_neuron_args *)args;
    const neuron_constants<T> c = neuron_constants_of<real<T>>(&k->numbers);
    const void *const data[] = { k->x, k->y };
    launch_sweep<T, neuron_constants<T>, value_of<T, KIND>, 2>(c, &k->sweep, data, false, k->stream,
                                                               target);
}

/* ---- gradient: dx from dy and x, or from dy and y ---- */

template <rg_dtype T, int KIND>
static __device__ __forceinline__ real<T> slope_of(const neuron_constants<T> &k, real<T> dy,
                                                   real<T> x)
{
    return neuron_slope(KIND, &k, dy, x, IS_SHORT<T>);
}

template <rg_dtype T, int KIND>
static __device__ __forceinline__ real<T> slope_y_of(const neuron_constants<T> &k, real<T> dy,
                                                     real<T> y)
{
    return neuron_slope_y(KIND, &k, dy, y, IS_SHORT<T>);
}

template <rg_dtype T, formula_of<T, neuron_constants<T>> FORMULA>
static void launch_gradient(const void *args, const rg_cuda_target *target)
{
    const rg_neuron_gradient_args *k = (const rg_neuron_gradient_args *)args;
    const neuron_constants<T> c = neuron_constants_of<real<T>>(&k->numbers);
    const void *const data[] = { k->dy, k->from, k->dx };
    launch_sweep<T, neuron_constants<T>, FORMULA, 3>(c, &k->sweep, data, k->add, k->stream, target);
}

template <rg_dtype T, int KIND> static void gradient(const void *args, const rg_cuda_target *target)
{
    launch_gradient<T, slope_of<T, KIND>>(args, target);
}

template <rg_dtype T, int KIND>
static void gradient_y(const void *args, const rg_cuda_target *target)
{
    launch_gradient<T, slope_y_of<T, KIND>>(args, target);
}

/* ---- prelu ---- */

enum { PRELU_THREADS = 256, PRELU_PIECE = 64 };

/* Contiguous, aligned tensors whose channels are whole vectors: a vector a thread. */
template <rg_dtype T>
static __global__ void __launch_bounds__(PRELU_THREADS)
    prelu_vectors(const char *x, const char *slope, char *y, int64_t count, int64_t channels,
                  bool stream)
{
    enum { V = VLEN<T> };
    const int64_t v = (int64_t)blockIdx.x * PRELU_THREADS + threadIdx.x;
    if (v >= count / V)
        return;
    const int64_t c =
        count <= UINT32_MAX ? (uint32_t)(v * V) % (uint32_t)channels : v * V % channels;
    real<T> in[V], s[V];
    unpack<T>(load_vector(x + 16 * v), in);
    unpack<T>(load_vector(at<T>(slope, c)), s);
#pragma unroll
    for (int e = 0; e < V; e++)
        in[e] = neuron_prelu(in[e], s[e]);
    store_vector(y + 16 * v, pack<T>(in), stream);
}

/* Any tensors. */
template <rg_dtype T>
static __global__ void __launch_bounds__(PRELU_THREADS)
    prelu_elements(const __grid_constant__ rg_prelu_args k)
{
    const rg_prelu_shape &s = k.shape;
    const int64_t count = s.rows.count * s.channels, step = (int64_t)gridDim.x * PRELU_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * PRELU_THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row = i / s.channels, c = i - row * s.channels;
        const real<T> x = load<T>(k.x, walk_offset(s.rows, 0, row) + c * s.step[0]);
        const real<T> slope = load<T>(k.slope, c * s.slope_step);
        store<T>(k.y, walk_offset(s.rows, 1, row) + c * s.step[1], neuron_prelu(x, slope));
    }
}

template <rg_dtype T> static void prelu_forward(const void *args, const rg_cuda_target *target)
{
    const int64_t most_blocks = 1 << 24;
    const rg_prelu_args *k = (const rg_prelu_args *)args;
    const rg_prelu_shape *s = &k->shape;
    const int64_t count = s->rows.count * s->channels;
    const uintptr_t addresses = (uintptr_t)k->x | (uintptr_t)k->slope | (uintptr_t)k->y;
    if (s->joined && s->slope_step == 1 && s->channels % VLEN<T> == 0 && addresses % 16 == 0) {
        launch(prelu_vectors<T>, ceil_div(count, PRELU_THREADS * VLEN<T>), PRELU_THREADS, 0, target,
               (const char *)k->x, (const char *)k->slope, (char *)k->y, count, s->channels,
               s->stream);
        return;
    }
    const int64_t blocks = ceil_div(count, PRELU_THREADS);
    launch(prelu_elements<T>, blocks < most_blocks ? blocks : most_blocks, PRELU_THREADS, 0, target,
           *k);
}

/* V channels of a row from `i` on, of which `left` are there; the others are 0. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void load_channels(const void *data, int64_t i, int64_t step,
                                                     int64_t left, real<T> x[VLEN<T>])
{
    if constexpr (WIDE) {
        unpack<T>(load_vector(at<T>(data, i)), x);
    } else {
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            x[e] = e < left ? load<T>(data, i + e * step) : 0;
    }
}

/* The offset of a row in tensor t. WIDE: rows are evenly spaced. */
template <bool WIDE>
static __device__ __forceinline__ int64_t row_offset(const rg_walk &rows, int t, int64_t row)
{
    return WIDE ? straight_offset(rows, t, row) : walk_offset(rows, t, row);
}

template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void
prelu_store(const rg_prelu_gradient_args &k, int64_t row, int64_t c, const real<T> dy[VLEN<T>],
            const real<T> x[VLEN<T>], const real<T> slope[VLEN<T>])
{
    enum { V = VLEN<T> };
    const rg_prelu_shape &s = k.shape;
    const int64_t to = row_offset<WIDE>(s.rows, 2, row) + c * s.step[2], left = s.channels - c;
    real<T> dx[V], old[V] = {};
    if (k.add)
        load_channels<T, WIDE>(k.dx, to, s.step[2], left, old);
#pragma unroll
    for (int e = 0; e < V; e++) {
        dx[e] = neuron_prelu_slope(dy[e], x[e], slope[e]);
        dx[e] = k.add ? old[e] + dx[e] : dx[e];
    }
    if constexpr (WIDE) {
        store_vector(at<T>(k.dx, to), pack<T>(dx), s.stream);
    } else {
        for (int e = 0; e < V && e < left; e++)
            store<T>(k.dx, to + e * s.step[2], dx[e]);
    }
}

/* A block takes `across` vectors of channels of a part; thread (row, vector) goes over every
 * `down`th row, so that neighbours read neighbouring vectors. Sums of a thread are made in pieces,
 * then a tree joins those of a channel: an order that follows from the shape. WIDE: channels are
 * loaded as aligned vectors. */
template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(PRELU_THREADS)
    prelu_part(const __grid_constant__ rg_prelu_gradient_args k, int across, int64_t chunks)
{
    enum { V = VLEN<T> };
    __shared__ real<T> partial[PRELU_THREADS * V];
    const rg_prelu_shape &s = k.shape;
    const int64_t part = blockIdx.x / chunks, chunk = blockIdx.x - part * chunks;
    const int64_t c = (chunk * across + (threadIdx.x & (across - 1))) * V, left = s.channels - c;
    const int64_t begin = part * s.part + threadIdx.x / across;
    const int64_t end = (part + 1) * s.part < s.rows.count ? (part + 1) * s.part : s.rows.count;
    const int down = PRELU_THREADS / across;
    real<T> slope[V], sum[V] = {}, piece[V] = {};
    load_channels<T, false>(k.slope, c * s.slope_step, s.slope_step, left, slope);
    int filled = 0;
#pragma unroll 4
    for (int64_t row = begin; row < end && left > 0; row += down) {
        real<T> dy[V], x[V];
        load_channels<T, WIDE>(k.dy, row_offset<WIDE>(s.rows, 0, row) + c * s.step[0], s.step[0],
                               left, dy);
        load_channels<T, WIDE>(k.x, row_offset<WIDE>(s.rows, 1, row) + c * s.step[1], s.step[1],
                               left, x);
        if (k.wants_dx)
            prelu_store<T, WIDE>(k, row, c, dy, x, slope);
#pragma unroll
        for (int e = 0; e < V; e++)
            piece[e] += neuron_prelu_share(dy[e], x[e]);
        if (++filled % PRELU_PIECE == 0) {
#pragma unroll
            for (int e = 0; e < V; e++) {
                sum[e] += piece[e];
                piece[e] = 0;
            }
        }
    }
    if (!k.wants_sums)
        return; /* the whole block */
#pragma unroll
    for (int e = 0; e < V; e++)
        sum[e] += piece[e];
    reduce_down<V>(sum, across, partial, false);
    for (int e = 0; e < V && e < left && (int)threadIdx.x < across; e++)
        ((real<T> *)k.sums)[part * s.channels + c + e] = sum[e];
}

template <rg_dtype T> static void prelu_gradient(const void *args, const rg_cuda_target *target)
{
    const rg_prelu_gradient_args *k = (const rg_prelu_gradient_args *)args;
    const rg_prelu_shape *s = &k->shape;
    const int64_t vectors = ceil_div(s->channels, VLEN<T>);
    const int across = power_of_two(vectors, 1, PRELU_THREADS);
    const int64_t chunks = ceil_div(vectors, across);
    const bool wide = s->dense && s->rows.rank <= 1 && s->channels % VLEN<T> == 0 &&
                      is_aligned<T>(k->dy, &s->rows, 0) && is_aligned<T>(k->x, &s->rows, 1) &&
                      (!k->wants_dx || is_aligned<T>(k->dx, &s->rows, 2));
    launch(wide ? prelu_part<T, true> : prelu_part<T, false>, s->parts * chunks, PRELU_THREADS, 0,
           target, *k, across, chunks);
}

/* A warp has a channel: a thread adds up every 32nd part, then sums of threads form a tree. */
template <rg_dtype T>
static __global__ void __launch_bounds__(PRELU_THREADS)
    prelu_join_channels(const __grid_constant__ rg_prelu_join_args k)
{
    const int thread = (int)threadIdx.x % 32;
    const int64_t c = (int64_t)blockIdx.x * (PRELU_THREADS / 32) + threadIdx.x / 32;
    if (c >= k.channels)
        return; /* the whole warp */
    real<T> sum = 0;
    for (int64_t part = thread; part < k.parts; part += 32)
        sum += ((const real<T> *)k.sums)[part * k.channels + c];
    sum = reduce(sum, 32, (real<T> *)nullptr, false);
    if (thread == 0) {
        const int64_t to = c * k.step;
        store<T>(k.dslope, to, k.add ? load<T>(k.dslope, to) + sum : sum);
    }
}

template <rg_dtype T> static void prelu_join(const void *args, const rg_cuda_target *target)
{
    const rg_prelu_join_args *k = (const rg_prelu_join_args *)args;
    launch(prelu_join_channels<T>, ceil_div(k->channels, PRELU_THREADS / 32), PRELU_THREADS, 0,
           target, *k);
}

/* ---- table ---- */

#define ROW(name, first, KIND, as)   RG_CUDA_ROW(first + RG_NEURON_##KIND, name, RG_NEURON_##as),
#define FORWARD_ROW(KIND, kind, how) ROW(forward, RG_NEURON_FORWARD, KIND, KIND)
#define ROW_X(KIND, kind, how)       ROW(gradient, RG_NEURON_GRADIENT, KIND, KIND)
#define ROW_Y(KIND, kind, how)       ROW(gradient_y, RG_NEURON_GRADIENT_Y, KIND, KIND)

static const rg_cuda_row kernel_rows[] = {
    ROW(forward, RG_NEURON_FORWARD, NONE, RELU) RG_NEURON_FORMULAS(FORWARD_ROW)
        ROW(gradient, RG_NEURON_GRADIENT, NONE, LINEAR) RG_NEURON_FORMULAS(ROW_X)
            ROW(gradient, RG_NEURON_GRADIENT_Y, NONE, LINEAR)
                ROW(gradient, RG_NEURON_GRADIENT_Y, RELU, RELU) ROW(gradient, RG_NEURON_GRADIENT_Y,
                                                                    LINEAR, LINEAR)
                    ROW(gradient, RG_NEURON_GRADIENT_Y, RELUN, RELUN) RG_NEURON_Y_FORMULAS(ROW_Y)
                        RG_CUDA_ROW(RG_NEURON_FORWARD + RG_NEURON_PRELU, prelu_forward),
    RG_CUDA_ROW(RG_NEURON_GRADIENT + RG_NEURON_PRELU, prelu_gradient),
    RG_CUDA_ROW(RG_NEURON_PRELU_JOIN, prelu_join),
};
RG_CUDA_TABLE(neuron, kernel_rows);
