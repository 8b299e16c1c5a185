/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses of single elements, with dense labels, on a GPU. */
#include "ops/loss/loss.cuh"

/* ---- formulas: losses, and their derivatives by y and by t ---- */

template <rg_dtype T> struct loss_numbers {
    real<T> keep, share, epsilon, delta;
};

template <rg_dtype T>
static __device__ __forceinline__ loss_numbers<T> numbers_of(const rg_loss_numbers &n)
{
    return { (real<T>)n.keep, (real<T>)n.share, (real<T>)n.epsilon, (real<T>)n.delta };
}

template <rg_dtype T, int KIND>
static __device__ __forceinline__ real<T> loss_of(const loss_numbers<T> &k, real<T> y, real<T> t)
{
    const real<T> e = y - t, half = (real<T>)0.5;
    if constexpr (KIND == RG_LOSS_MEAN_ABSOLUTE)
        return fabs(e);
    if constexpr (KIND == RG_LOSS_MEAN_SQUARED)
        return e * e;
    if constexpr (KIND == RG_LOSS_SIGMOID_CROSS_ENTROPY)
        return (y > 0 ? y : 0) - y * (t * k.keep + k.share) + log1p(exp(-fabs(y)));
    if constexpr (KIND == RG_LOSS_CATEGORICAL_CROSS_ENTROPY)
        return -t * log(y);
    if constexpr (KIND == RG_LOSS_HINGE) {
        const real<T> margin = 1 - (2 * t - 1) * y;
        return margin < 0 ? 0 : margin;
    }
    if constexpr (KIND == RG_LOSS_HUBER)
        return fabs(e) <= k.delta ? half * e * e : k.delta * (fabs(e) - half * k.delta);
    if constexpr (KIND == RG_LOSS_COSINE_DISTANCE)
        return -y * t;
    if constexpr (KIND == RG_LOSS_LOG)
        return -t * log(y + k.epsilon) - (1 - t) * log((1 - y) + k.epsilon);
    return (t == 0 ? 0 : t * log(t)) - t * y; /* Kullback-Leibler */
}

template <rg_dtype T, int KIND>
static __device__ __forceinline__ real<T> slope_of(const loss_numbers<T> &k, real<T> y, real<T> t)
{
    const real<T> e = y - t;
    if constexpr (KIND == RG_LOSS_MEAN_ABSOLUTE)
        return e > 0 ? 1 : e < 0 ? -1 : e;
    if constexpr (KIND == RG_LOSS_MEAN_SQUARED)
        return 2 * e;
    if constexpr (KIND == RG_LOSS_SIGMOID_CROSS_ENTROPY) {
        const real<T> z = exp(-fabs(y));
        return (y < 0 ? z : 1) / (1 + z) - (t * k.keep + k.share);
    }
    if constexpr (KIND == RG_LOSS_CATEGORICAL_CROSS_ENTROPY)
        return -t / y;
    if constexpr (KIND == RG_LOSS_HINGE)
        return 1 - (2 * t - 1) * y > 0 ? 1 - 2 * t : 0;
    if constexpr (KIND == RG_LOSS_HUBER)
        return e > k.delta ? k.delta : e < -k.delta ? -k.delta : e;
    if constexpr (KIND == RG_LOSS_LOG)
        return (1 - t) / ((1 - y) + k.epsilon) - t / (y + k.epsilon);
    return -t; /* cosine distance, Kullback-Leibler */
}

template <rg_dtype T, int KIND>
static __device__ __forceinline__ real<T> label_slope_of(const loss_numbers<T> &k, real<T> y,
                                                         real<T> t)
{
    if constexpr (KIND == RG_LOSS_SIGMOID_CROSS_ENTROPY)
        return -y * k.keep;
    if constexpr (KIND == RG_LOSS_CATEGORICAL_CROSS_ENTROPY)
        return -log(y);
    if constexpr (KIND == RG_LOSS_HINGE)
        return 1 - (2 * t - 1) * y > 0 ? -2 * y : 0;
    if constexpr (KIND == RG_LOSS_COSINE_DISTANCE)
        return -y;
    if constexpr (KIND == RG_LOSS_LOG)
        return log((1 - y) + k.epsilon) - log(y + k.epsilon);
    if constexpr (KIND == RG_LOSS_KULLBACK_LEIBLER)
        return log(t) + 1 - y;
    return -slope_of<T, KIND>(k, y, t);
}

/* What is computed of a vector of elements. */
enum { RG_LOSS_VALUE, RG_LOSS_SLOPE, RG_LOSS_LABEL_SLOPE };

template <rg_dtype T, int WHAT, int KIND>
static __device__ __forceinline__ void map_kind(const loss_numbers<T> &k, const real<T> y[],
                                                const real<T> t[], real<T> out[])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        out[e] = WHAT == RG_LOSS_VALUE   ? loss_of<T, KIND>(k, y[e], t[e])
                 : WHAT == RG_LOSS_SLOPE ? slope_of<T, KIND>(k, y[e], t[e])
                                         : label_slope_of<T, KIND>(k, y[e], t[e]);
}

/* The kind is the same for all threads. */
template <rg_dtype T, int WHAT>
static __device__ __forceinline__ void map_elements(int kind, const loss_numbers<T> &k,
                                                    const real<T> y[], const real<T> t[],
                                                    real<T> out[])
{
    if (kind == RG_LOSS_MEAN_ABSOLUTE)
        map_kind<T, WHAT, RG_LOSS_MEAN_ABSOLUTE>(k, y, t, out);
    else if (kind == RG_LOSS_MEAN_SQUARED)
        map_kind<T, WHAT, RG_LOSS_MEAN_SQUARED>(k, y, t, out);
    else if (kind == RG_LOSS_SIGMOID_CROSS_ENTROPY)
        map_kind<T, WHAT, RG_LOSS_SIGMOID_CROSS_ENTROPY>(k, y, t, out);
    else if (kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY)
        map_kind<T, WHAT, RG_LOSS_CATEGORICAL_CROSS_ENTROPY>(k, y, t, out);
    else if (kind == RG_LOSS_HINGE)
        map_kind<T, WHAT, RG_LOSS_HINGE>(k, y, t, out);
    else if (kind == RG_LOSS_HUBER)
        map_kind<T, WHAT, RG_LOSS_HUBER>(k, y, t, out);
    else if (kind == RG_LOSS_COSINE_DISTANCE)
        map_kind<T, WHAT, RG_LOSS_COSINE_DISTANCE>(k, y, t, out);
    else if (kind == RG_LOSS_LOG)
        map_kind<T, WHAT, RG_LOSS_LOG>(k, y, t, out);
    else
        map_kind<T, WHAT, RG_LOSS_KULLBACK_LEIBLER>(k, y, t, out);
}

/* ---- vectors of elements ---- */

/* Elements number i to i + n - 1 as a vector; `wide`: they can be loaded as one. */
template <rg_dtype T>
static __device__ __forceinline__ void fetch(const rg_loss_view &v, const void *data, int64_t i,
                                             int n, bool wide, real<T> x[VLEN<T>])
{
    if (wide && n >= VLEN<T>) {
        unpack<T>(load_vector(at<T>(data, i)), x);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = e < n ? load<T>(data, view_offset(v, i + e)) : 0;
}

template <rg_dtype T>
static __device__ __forceinline__ void deposit(const rg_loss_view &v, void *data, int64_t i, int n,
                                               bool wide, bool stream, const real<T> x[VLEN<T>])
{
    if (wide && n >= VLEN<T>) {
        store_vector(at<T>(data, i), pack<T>(x), stream);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        if (e < n)
            store<T>(data, view_offset(v, i + e), x[e]);
    }
}

/* ---- kernel ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS)
    by_elements(const __grid_constant__ rg_loss_args k, const bool wide)
{
    enum { V = VLEN<T>, VECTORS = RG_LOSS_PART / (LOSS_THREADS * V) };
    __shared__ double partial[32];
    const part_place p = find_part(k);
    const loss_numbers<T> numbers = numbers_of<T>(k.numbers);
    const real<T> scale = group_scale<T>(k, p.group), weight = (real<T>)k.numbers.weight;
    real<T> y[VECTORS][V], t[VECTORS][V], sum = 0;
#pragma unroll
    for (int q = 0; q < VECTORS; q++) {
        const int j = ((int)threadIdx.x + q * LOSS_THREADS) * V;
        fetch<T>(k.views[RG_LOSS_Y], k.y, p.first + j, p.count - j, wide, y[q]);
        fetch<T>(k.views[RG_LOSS_T], k.labels, p.first + j, p.count - j, wide, t[q]);
    }
#pragma unroll
    for (int q = 0; q < VECTORS; q++) {
        const int j = ((int)threadIdx.x + q * LOSS_THREADS) * V, n = p.count - j;
        const int64_t i = p.first + j;
        real<T> out[V], w[V], more[V];
        if (n <= 0)
            break;
        if (k.has_weights)
            fetch<T>(k.views[RG_LOSS_W], k.weights, i, n, wide, w);
        if (k.losses != RG_LOSS_NO_LOSS) {
            map_elements<T, RG_LOSS_VALUE>(k.numbers.kind, numbers, y[q], t[q], out);
#pragma unroll
            for (int e = 0; e < V; e++) {
                out[e] = k.has_weights ? out[e] * weight * w[e] : out[e] * weight;
                sum += e < n ? out[e] : 0;
            }
            if (k.losses == RG_LOSS_OF_LABELS)
                deposit<T>(k.views[RG_LOSS_L], k.loss, i, n, wide, false, out);
        }
        if (!k.has_gradient)
            continue;
        if (k.is_label_gradient)
            map_elements<T, RG_LOSS_LABEL_SLOPE>(k.numbers.kind, numbers, y[q], t[q], out);
        else
            map_elements<T, RG_LOSS_SLOPE>(k.numbers.kind, numbers, y[q], t[q], out);
#pragma unroll
        for (int e = 0; e < V; e++)
            out[e] = k.has_weights ? out[e] * scale * w[e] : out[e] * scale;
        if (k.dy_of_labels) {
            fetch<T>(k.views[RG_LOSS_DY], k.dy, i, n, wide, more);
#pragma unroll
            for (int e = 0; e < V; e++)
                out[e] *= more[e];
        }
        if (k.add) {
            fetch<T>(k.views[RG_LOSS_D], k.gradient, i, n, wide, more);
#pragma unroll
            for (int e = 0; e < V; e++)
                out[e] += more[e];
        }
        deposit<T>(k.views[RG_LOSS_D], k.gradient, i, n, wide, k.stream, out);
    }
    if (k.losses != RG_LOSS_SUMS)
        return;
    const double total = reduce((double)sum, LOSS_THREADS, partial, false);
    if (threadIdx.x == 0)
        k.partial[blockIdx.x] = total;
}

/* Whether a tensor is contiguous and every part of it begins at 16 bytes. */
template <rg_dtype T> static bool is_plain(const rg_loss_args *k, int view, const void *data)
{
    const rg_loss_view *v = &k->views[view];
    return (v->rank == 0 || (v->rank == 1 && v->strides[0] == 1)) && (uintptr_t)data % 16 == 0;
}

template <rg_dtype T> static void loss_by_elements(const void *args, const rg_cuda_place *place)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    bool wide = k.groups == 1 || k.group % VLEN<T> == 0;
    wide &= is_plain<T>(&k, RG_LOSS_Y, k.y) && is_plain<T>(&k, RG_LOSS_T, k.labels);
    wide &= !k.has_weights || is_plain<T>(&k, RG_LOSS_W, k.weights);
    wide &= !k.dy_of_labels || is_plain<T>(&k, RG_LOSS_DY, k.dy);
    wide &= k.losses != RG_LOSS_OF_LABELS || is_plain<T>(&k, RG_LOSS_L, k.loss);
    wide &= !k.has_gradient || is_plain<T>(&k, RG_LOSS_D, k.gradient);
    launch(by_elements<T>, k.groups * k.parts, LOSS_THREADS, 0, place, k, wide);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_LOSS_BY_ELEMENTS, loss_by_elements),
};
RG_CUDA_TABLE(loss_elements, kernel_rows);
