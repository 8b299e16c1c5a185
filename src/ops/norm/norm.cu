/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Kernels of normalization on a GPU: statistics of parts, y, sums of the gradient, dx. Copies of a
 * thread's next NORM_AHEAD rows are being copied to shared memory; sums of the threads of a channel
 * are joined by a tree. */
#include "ops/norm/norm.cuh"

enum { NORM_AHEAD = 6 };

/* ---- rows, read ahead ---- */

/* The rows of a thread in one or more tensors, which are copied to `memory`; see norm_shared. */
template <rg_dtype T, bool FAST, int TENSORS> struct norm_rows_of {
    const char *from[TENSORS];
    int64_t step[TENSORS]; /* bytes */
    uint4 *own;
    int count;

    /* Starts to copy row r, if there is one, to `slot`. */
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
find_rows(const rg_channels &s, const void *const (&data)[TENSORS], const norm_work &w,
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
         const void *const (&data)[TENSORS], const norm_work &w, STEP step)
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

/* The offset of row r of a thread in tensor t, whose first one is at `base`. */
template <bool FAST>
static __device__ __forceinline__ int64_t row_offset(const rg_channels &s, int t,
                                                     const norm_work &w, int64_t base, int r)
{
    return FAST ? base + r * (w.down * s.rows.strides[t][0])
                : norm_offset<FAST>(s, t, w, w.begin + (int64_t)r * w.down);
}

/* Channels of a row of a table of real numbers; 0 after the end. */
template <rg_dtype T>
static __device__ __forceinline__ void load_table(const void *table, int64_t row, int64_t channels,
                                                  const norm_work &w, real<T> x[VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = e < w.left ? ((const real<T> *)table)[row * channels + w.c + e] : 0;
}

/* ---- statistics of parts ---- */

/* partial: (images, parts, RG_NORM_PARTIAL, channels) */
template <rg_dtype T, bool FAST>
static __global__ void __launch_bounds__(NORM_THREADS, 3)
    norm_parts(const void *x, void *partial, const __grid_constant__ rg_channels s, int across,
               int64_t chunks, int64_t first)
{
    extern __shared__ uint4 memory[];
    const norm_work w = norm_work_of<T>(s, across, chunks, first * chunks + blockIdx.x);
    const void *const data[] = { x };
    auto own = find_rows<T, FAST>(s, data, w, memory);
    real<T> pivot[VLEN<T>] = {}, sum[2 * VLEN<T>] = {};
    if (w.left > 0)
        choose_pivots<T, FAST>(s, 0, x, w, pivot);
    each_row(own, s, data, w, [&](int, const uint4 *held) { add_moments<T>(held[0], pivot, sum); });
    __syncthreads(); /* before `memory` is written again */
    reduce_down<2 * VLEN<T>>(sum, across, (real<T> *)memory, false);
    if (threadIdx.x >= across)
        return;
    const real<T> rows = (real<T>)rg_channels_rows(&s, w.part);
    real<T> *to =
        (real<T> *)partial + (w.image * s.parts + w.part) * RG_NORM_PARTIAL * s.channels + w.c;
    for (int e = 0; e < w.left; e++) {
        const real<T> rest = sum[e] / rows, around = fma(-sum[e], rest, sum[VLEN<T> + e]);
        to[RG_NORM_PIVOT * s.channels + e] = pivot[e];
        to[RG_NORM_REST * s.channels + e] = rest;
        to[RG_NORM_SQUARES * s.channels + e] = around < 0 ? 0 : around;
    }
}

/* ---- y ---- */

/* moments: (images, RG_NORM_MOMENTS, channels) */
template <rg_dtype T>
static __device__ __forceinline__ void
set_columns(norm_columns<T> &k, const rg_channels &s, const void *moments, const void *gamma,
            const void *beta, const rg_norm_parameters &p, const norm_work &w)
{
    const int64_t first = w.image * RG_NORM_MOMENTS;
    real<T> rest[VLEN<T>], shift[VLEN<T>];
    load_table<T>(moments, first + RG_NORM_MEAN, s.channels, w, k.mean);
    load_table<T>(moments, first + RG_NORM_MEAN_REST, s.channels, w, rest);
    load_table<T>(moments, first + RG_NORM_S, s.channels, w, k.s);
    load_parameter<T>(gamma, p.gamma_step, p.has_gamma, 1, p.dtype, w.c, w.left, k.gamma);
    load_parameter<T>(beta, p.beta_step, p.has_beta, 0, p.dtype, w.c, w.left, shift);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        k.scale[e] = k.gamma[e] * k.s[e];
        k.shift[e] = fma(-rest[e], k.scale[e], shift[e]);
    }
}

template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(NORM_THREADS, 3)
    norm_forward(const void *x, const void *gamma, const void *beta, const void *moments, void *y,
                 const __grid_constant__ rg_channels s, const __grid_constant__ norm_call k)
{
    extern __shared__ uint4 memory[];
    /* from the end, of which the cache may still have some */
    const int64_t block = (k.first + k.count) * k.chunks - 1 - blockIdx.x;
    const norm_work w = norm_work_of<T>(s, k.across, k.chunks, block);
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

/* partial: (images, parts, 2, channels) */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(NORM_THREADS, 3)
    norm_sums(const void *dy, const void *x, const void *gamma, const void *beta,
              const void *moments, void *partial, const __grid_constant__ rg_channels s,
              const __grid_constant__ norm_call k)
{
    extern __shared__ uint4 memory[];
    const norm_work w = norm_work_of<T>(s, k.across, k.chunks, k.first * k.chunks + blockIdx.x);
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
    __syncthreads(); /* before `memory` is written again */
    reduce_down<2 * VLEN<T>>(sum, k.across, (real<T> *)memory, false);
    if (threadIdx.x >= k.across)
        return;
    real<T> *to = (real<T> *)partial + (w.image * s.parts + w.part) * 2 * s.channels + w.c;
    for (int e = 0; e < w.left; e++) {
        to[e] = sum[e];
        to[s.channels + e] = sum[VLEN<T> + e];
    }
}

/* What the gradients of statistics that were returned add to dx. */
template <rg_dtype T>
static __device__ __forceinline__ void add_extra(const void *factors, int64_t first,
                                                 int64_t channels, const norm_work &w,
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
    norm_gradient(const __grid_constant__ norm_inputs in, const void *factors, void *dx,
                  const __grid_constant__ rg_channels s, const __grid_constant__ norm_call k)
{
    extern __shared__ uint4 memory[];
    const int64_t block = (k.first + k.count) * k.chunks - 1 - blockIdx.x;
    const norm_work w = norm_work_of<T>(s, k.across, k.chunks, block);
    if (w.left == 0)
        return;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const int64_t first = w.image * RG_NORM_FACTORS;
    const void *const data[] = { in.dy, in.x };
    auto rows = find_rows<T, FAST>(s, data, w, memory);
    norm_columns<T> c;
    real<T> offset[VLEN<T>] = {}, weight[VLEN<T>] = {};
    set_columns<T>(c, s, in.moments, in.gamma, in.beta, k.parameters, w);
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

/* Shared memory of a kernel that reads `tensors` tensors: for copies, then for a reduction. */
template <rg_dtype T> static int64_t norm_shared(int tensors)
{
    const int64_t reduction = NORM_THREADS * 2 * VLEN<T> * (int64_t)sizeof(real<T>);
    const int64_t copies = (int64_t)tensors * NORM_AHEAD * NORM_THREADS * 16;
    return copies > reduction ? copies : reduction;
}

template <rg_dtype T>
static void launch_parts(const void *x, void *partial, const rg_channels *s, int64_t first,
                         int64_t count, const rg_cuda_target *target)
{
    const int across = norm_across<T>(s);
    const int64_t chunks = ceil_div(s->channels, across * VLEN<T>);
    const void *const data[] = { x };
    launch(norm_is_fast<T>(s, data, 1) ? norm_parts<T, true> : norm_parts<T, false>, count * chunks,
           NORM_THREADS, norm_shared<T>(1), target, x, partial, *s, across, chunks, first);
}

template <rg_dtype T>
static void launch_forward(const void *x, const void *gamma, const void *beta, const void *moments,
                           void *y, const rg_channels *s, const norm_call *k,
                           const rg_cuda_target *target)
{
    const void *const data[] = { x, y };
    launch(NORM_KERNEL(norm_forward, norm_is_fast<T>(s, data, 2), k->neuron.kind),
           k->count * k->chunks, NORM_THREADS, norm_shared<T>(1), target, x, gamma, beta, moments,
           y, *s, *k);
}

template <rg_dtype T>
static void launch_sums(const norm_inputs &in, void *partial, const rg_channels *s,
                        const norm_call *k, const rg_cuda_target *target)
{
    const void *const data[] = { in.dy, in.x };
    launch(NORM_KERNEL(norm_sums, norm_is_fast<T>(s, data, 2), k->neuron.kind),
           k->count * k->chunks, NORM_THREADS, norm_shared<T>(2), target, in.dy, in.x, in.gamma,
           in.beta, in.moments, partial, *s, *k);
}

template <rg_dtype T>
static void launch_gradient(const norm_inputs &in, const void *factors, void *dx,
                            const rg_channels *s, const norm_call *k, const rg_cuda_target *target)
{
    const void *const data[] = { in.dy, in.x, dx };
    launch(NORM_KERNEL(norm_gradient, norm_is_fast<T>(s, data, 3), k->neuron.kind),
           k->count * k->chunks, NORM_THREADS, norm_shared<T>(2), target, in, factors, dx, *s, *k);
}

rg_norm_parts_function *const rg_norm_parts[RG_CUDA_DTYPES] = RG_EVERY_DTYPE(launch_parts);
rg_norm_forward_function *const rg_norm_forward[RG_CUDA_DTYPES] = RG_EVERY_DTYPE(launch_forward);
rg_norm_sums_function *const rg_norm_sums[RG_CUDA_DTYPES] = RG_EVERY_DTYPE(launch_sums);
rg_norm_gradient_function *const rg_norm_gradient[RG_CUDA_DTYPES] = RG_EVERY_DTYPE(launch_gradient);
