/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic on a GPU, element by element. */
#include "ops/arithmetic/arithmetic.cuh"

/* ---- element by element ---- */

/* What a thread does: N neighbours of a row. */
typedef struct spot {
    int64_t row, column;
    int lanes; /* of N; 0 outside of the tensor */
} spot;

template <int N> static __device__ __forceinline__ spot find_spot(const rg_sweep &s)
{
    spot p = { 0, 0, 0 };
    const int64_t steps = (s.length + N - 1) / N, all = s.outer.count * steps;
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= all)
        return p;
    if (s.outer.count > 1)
        p.row = all <= INT32_MAX ? (uint32_t)i / (uint32_t)steps : i / steps;
    p.column = (i - p.row * steps) * N;
    p.lanes = (int)min((int64_t)N, s.length - p.column);
    return p;
}

static __device__ __forceinline__ int64_t spot_offset(const rg_sweep &s, int t, const spot &p)
{
    return offset_at(s.outer, t, p.row) + p.column * s.step[t];
}

template <rg_dtype T>
static bool is_wide_sweep(const rg_sweep *s, const void *const data[], int tensors, int results)
{
    bool wide = true;
    for (int t = 0; t < tensors; t++)
        wide &= is_wide<T>(data[t], s->step[t], &s->outer, t);
    for (int t = tensors - results; t < tensors; t++)
        wide &= s->step[t] == 1;
    return wide;
}

static int64_t sweep_blocks(const rg_sweep *s, int lanes)
{
    return ceil_div(s->outer.count * ceil_div(s->length, lanes), THREADS);
}

/* Whether all tensors are contiguous, with the same number of elements. */
static bool is_flat(const rg_sweep *s, int tensors)
{
    bool flat = s->outer.count == 1;
    for (int t = 0; t < tensors; t++)
        flat &= s->step[t] == 1;
    return flat;
}

/* Elements of vector `v`; 0 after the last one. */
template <rg_dtype T> static __device__ __forceinline__ int flat_lanes(int64_t count, int64_t v)
{
    return (int)max((int64_t)0, min((int64_t)VLEN<T>, count - v * VLEN<T>));
}

/* ---- forward ---- */

/* N results, in the place of a. */
template <rg_dtype T, kind K, int N>
static __device__ __forceinline__ void map_values(const constants<T> &k, real<T> a[N],
                                                  const real<T> b[N])
{
#pragma unroll
    for (int e = 0; e < N; e++)
        a[e] = K == COMPARE ? compared(&k, a[e], b[e]) : free_value(K, &k, a[e], b[e]);
    if (!k.bounded)
        return;
#pragma unroll
    for (int e = 0; e < N && K != COMPARE; e++)
        a[e] = bounded_value(&k, a[e]);
}

template <rg_dtype T, kind K, int N>
static __global__ void __launch_bounds__(THREADS)
    forward_spots(const __grid_constant__ rg_arithmetic_args k, const constants<T> c)
{
    const spot p = find_spot<N>(k.sweep);
    if (p.lanes == 0)
        return;
    real<T> a[N], b[N];
    take<T, N>(k.a, spot_offset(k.sweep, 0, p), k.sweep.step[0], p.lanes, a);
    take<T, N>(k.b, spot_offset(k.sweep, 1, p), k.sweep.step[1], p.lanes, b);
    map_values<T, K, N>(c, a, b);
    put<T, N>(k.y, spot_offset(k.sweep, 2, p), k.sweep.step[2], p.lanes, false, k.stream, a);
}

/* Contiguous, aligned tensors. A thread takes one vector: with two or four, reads and writes of
 * memory mix less well. */
template <rg_dtype T, kind K>
static __global__ void __launch_bounds__(THREADS)
    forward_flat(const constants<T> c, const void *a, const void *b, void *y, int64_t count,
                 bool stream)
{
    enum { V = VLEN<T> };
    const int64_t v = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int lanes = flat_lanes<T>(count, v);
    real<T> x[V], z[V];
    if (lanes == 0)
        return;
    take<T, V>(a, v * V, 1, lanes, x);
    take<T, V>(b, v * V, 1, lanes, z);
    map_values<T, K, V>(c, x, z);
    put<T, V>(y, v * V, 1, lanes, false, stream, x);
}

template <rg_dtype T, kind K> static void forward(const void *args, const rg_cuda_target *target)
{
    const rg_arithmetic_args k = *(const rg_arithmetic_args *)args;
    const constants<T> c = constants_of<real<T>>(&k.numbers);
    const void *const data[] = { k.a, k.b, k.y };
    const bool wide = is_wide_sweep<T>(&k.sweep, data, 3, 1);
    if (wide && is_flat(&k.sweep, 3))
        launch(forward_flat<T, K>, sweep_blocks(&k.sweep, VLEN<T>), THREADS, 0, target, c, k.a, k.b,
               k.y, k.sweep.length, k.stream);
    else if (wide)
        launch(forward_spots<T, K, VLEN<T>>, sweep_blocks(&k.sweep, VLEN<T>), THREADS, 0, target, k,
               c);
    else
        launch(forward_spots<T, K, 1>, sweep_blocks(&k.sweep, 1), THREADS, 0, target, k, c);
}

/* ---- gradient, element by element ---- */

/* dy of N elements, or 0 where a bound holds y. */
template <rg_dtype T, kind K, int N>
static __device__ __forceinline__ void pass(const constants<T> &c, real<T> dy[N],
                                            const real<T> a[N], const real<T> b[N])
{
    if (!c.bounded)
        return;
#pragma unroll
    for (int e = 0; e < N && K != ADD; e++)
        dy[e] = passed(K, &c, dy[e], a[e], b[e]);
}

template <rg_dtype T, kind K, int N>
static __global__ void __launch_bounds__(THREADS)
    gradient_spots(const __grid_constant__ rg_arithmetic_gradient_args k, const constants<T> c)
{
    const spot p = find_spot<N>(k.sweep);
    if (p.lanes == 0)
        return;
    real<T> dy[N], a[N] = {}, b[N] = {}, dx[N];
    take<T, N>(k.dy, spot_offset(k.sweep, 0, p), k.sweep.step[0], p.lanes, dy);
    if (K != ADD) {
        take<T, N>(k.a, spot_offset(k.sweep, 1, p), k.sweep.step[1], p.lanes, a);
        take<T, N>(k.b, spot_offset(k.sweep, 2, p), k.sweep.step[2], p.lanes, b);
    }
    pass<T, K, N>(c, dy, a, b);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!k.wants[i])
            continue;
#pragma unroll
        for (int e = 0; e < N; e++)
            dx[e] = slope_of(K, i == 1, &c, dy[e], a[e], b[e]);
        put<T, N>(k.dx[i], spot_offset(k.sweep, 3 + i, p), k.sweep.step[3 + i], p.lanes, k.add[i],
                  k.stream, dx);
    }
}

/* Contiguous, aligned tensors. */
struct flat_gradients {
    const void *dy, *a, *b;
    void *dx[2];
    int64_t count;
    bool wants[2], add[2], stream;
};

template <rg_dtype T, kind K>
static __global__ void __launch_bounds__(THREADS)
    gradient_flat(const __grid_constant__ flat_gradients k, const constants<T> c)
{
    enum { V = VLEN<T> };
    const int64_t v = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int lanes = flat_lanes<T>(k.count, v);
    real<T> dy[V], a[V] = {}, b[V] = {}, dx[V];
    if (lanes == 0)
        return;
    take<T, V>(k.dy, v * V, 1, lanes, dy);
    if (K != ADD) {
        take<T, V>(k.a, v * V, 1, lanes, a);
        take<T, V>(k.b, v * V, 1, lanes, b);
    }
    pass<T, K, V>(c, dy, a, b);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        if (!k.wants[n])
            continue;
#pragma unroll
        for (int e = 0; e < V; e++)
            dx[e] = slope_of(K, n == 1, &c, dy[e], a[e], b[e]);
        put<T, V>(k.dx[n], v * V, 1, lanes, k.add[n], k.stream, dx);
    }
}

template <rg_dtype T, kind K> static void gradient(const void *args, const rg_cuda_target *target)
{
    const rg_arithmetic_gradient_args k = *(const rg_arithmetic_gradient_args *)args;
    const constants<T> c = constants_of<real<T>>(&k.numbers);
    const void *const data[] = { k.dy, k.a, k.b, k.dx[0], k.dx[1] };
    const bool wide = is_wide_sweep<T>(&k.sweep, data, 5, 2);
    const flat_gradients flat = { k.dy,
                                  k.a,
                                  k.b,
                                  { k.dx[0], k.dx[1] },
                                  k.sweep.length,
                                  { k.wants[0], k.wants[1] },
                                  { k.add[0], k.add[1] },
                                  k.stream };
    if (wide && is_flat(&k.sweep, 5))
        launch(gradient_flat<T, K>, sweep_blocks(&k.sweep, VLEN<T>), THREADS, 0, target, flat, c);
    else if (wide)
        launch(gradient_spots<T, K, VLEN<T>>, sweep_blocks(&k.sweep, VLEN<T>), THREADS, 0, target,
               k, c);
    else
        launch(gradient_spots<T, K, 1>, sweep_blocks(&k.sweep, 1), THREADS, 0, target, k, c);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_ADD_FORWARD, forward, ADD),
    RG_CUDA_ROW(RG_MULTIPLY_FORWARD, forward, MULTIPLY),
    RG_CUDA_ROW(RG_DIVIDE_FORWARD, forward, DIVIDE),
    RG_CUDA_ROW(RG_COMPARE_FORWARD, forward, COMPARE),
    RG_CUDA_ROW(RG_MAXIMUM_FORWARD, forward, MAXIMUM),
    RG_CUDA_ROW(RG_ADD_GRADIENT, gradient, ADD),
    RG_CUDA_ROW(RG_ADD_BOUNDED_GRADIENT, gradient, ADD_BOUNDED),
    RG_CUDA_ROW(RG_MULTIPLY_GRADIENT, gradient, MULTIPLY),
    RG_CUDA_ROW(RG_DIVIDE_GRADIENT, gradient, DIVIDE),
    RG_CUDA_ROW(RG_MAXIMUM_GRADIENT, gradient, MAXIMUM),
};
RG_CUDA_TABLE(arithmetic, kernel_rows);
