/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses of single elements, with dense labels, on a GPU. */
#include "ops/loss/loss.cuh"
#include "ops/loss/loss_formulas.h"

/* ---- formulas on vectors ---- */

/* What is computed of a vector of elements. */
enum { RG_LOSS_VALUE, RG_LOSS_SLOPE, RG_LOSS_LABEL_SLOPE };

#define LABEL_OWN(name)   loss_##name##_label_slope
#define LABEL_MINUS(name) -loss_##name##_slope
#define FORMULA(KIND, name, label)                                     \
    if constexpr (KIND_OF == RG_LOSS_##KIND)                           \
        return WHAT == RG_LOSS_VALUE   ? loss_##name##_value(&k, y, t) \
               : WHAT == RG_LOSS_SLOPE ? loss_##name##_slope(&k, y, t) \
                                       : LABEL_##label(name)(&k, y, t);

template <rg_dtype T, int WHAT, int KIND_OF>
static __device__ __forceinline__ real<T> formula_of(const loss_numbers<T> &k, real<T> y, real<T> t)
{
    RG_LOSS_FORMULAS(FORMULA)
}

template <rg_dtype T, int WHAT, int KIND>
static __device__ __forceinline__ void map_kind(const loss_numbers<T> &k, const real<T> y[],
                                                const real<T> t[], real<T> out[])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        out[e] = formula_of<T, WHAT, KIND>(k, y[e], t[e]);
}

/* The kind is the same for all threads. */
template <rg_dtype T, int WHAT>
static __device__ __forceinline__ void map_elements(int kind, const loss_numbers<T> &k,
                                                    const real<T> y[], const real<T> t[],
                                                    real<T> out[])
{
#define MAP_KIND(KIND, name, label) \
    if (kind == RG_LOSS_##KIND)     \
        return map_kind<T, WHAT, RG_LOSS_##KIND>(k, y, t, out);
    RG_LOSS_FORMULAS(MAP_KIND)
}

/* ---- vectors of elements ---- */

/* Elements number i to i + n - 1; `wide`: they can be loaded as a vector. */
typedef struct element_span {
    int64_t i;
    int n;
    bool wide;
} element_span;

template <rg_dtype T>
static __device__ __forceinline__ void fetch(const rg_loss_view &v, const void *data,
                                             const element_span &s, real<T> x[VLEN<T>])
{
    if (s.wide && s.n >= VLEN<T>) {
        unpack<T>(load_vector(at<T>(data, s.i)), x);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = e < s.n ? load<T>(data, view_offset(v, s.i + e)) : 0;
}

template <rg_dtype T>
static __device__ __forceinline__ void deposit(const rg_loss_view &v, void *data,
                                               const element_span &s, bool stream,
                                               const real<T> x[VLEN<T>])
{
    if (s.wide && s.n >= VLEN<T>) {
        store_vector(at<T>(data, s.i), pack<T>(x), stream);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        if (e < s.n)
            store<T>(data, view_offset(v, s.i + e), x[e]);
    }
}

/* ---- kernel ---- */

/* The sum, and with it the losses of a vector of elements. */
template <rg_dtype T>
static __device__ __forceinline__ real<T>
add_losses(const rg_loss_args &k, const loss_numbers<T> &numbers, const element_span &s,
           const real<T> y[], const real<T> t[], const real<T> w[], real<T> sum)
{
    const real<T> weight = (real<T>)k.numbers.weight;
    real<T> out[VLEN<T>];
    map_elements<T, RG_LOSS_VALUE>(k.numbers.kind, numbers, y, t, out);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        out[e] = k.has_weights ? out[e] * weight * w[e] : out[e] * weight;
        sum += e < s.n ? out[e] : 0;
    }
    if (k.losses == RG_LOSS_OF_LABELS)
        deposit<T>(k.views[RG_LOSS_L], k.loss, s, false, out);
    return sum;
}

template <rg_dtype T>
static __device__ __forceinline__ void
store_slopes(const rg_loss_args &k, const loss_numbers<T> &numbers, const element_span &s,
             const real<T> y[], const real<T> t[], const real<T> w[], real<T> scale)
{
    real<T> out[VLEN<T>], more[VLEN<T>];
    if (k.is_label_gradient)
        map_elements<T, RG_LOSS_LABEL_SLOPE>(k.numbers.kind, numbers, y, t, out);
    else
        map_elements<T, RG_LOSS_SLOPE>(k.numbers.kind, numbers, y, t, out);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        out[e] = k.has_weights ? out[e] * scale * w[e] : out[e] * scale;
    if (k.dy_of_labels) {
        fetch<T>(k.views[RG_LOSS_DY], k.dy, s, more);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            out[e] *= more[e];
    }
    if (k.add) {
        fetch<T>(k.views[RG_LOSS_D], k.gradient, s, more);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            out[e] += more[e];
    }
    deposit<T>(k.views[RG_LOSS_D], k.gradient, s, k.stream, out);
}

template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS)
    by_elements(const __grid_constant__ rg_loss_args k, const bool wide)
{
    enum { V = VLEN<T>, VECTORS = RG_LOSS_PART / (LOSS_THREADS * V) };
    __shared__ double partial[32];
    const loss_part p = find_part(k);
    const loss_numbers<T> numbers = numbers_of<real<T>>(&k.numbers);
    const real<T> scale = group_scale<T>(k, p.group);
    real<T> y[VECTORS][V], t[VECTORS][V], sum = 0;
#pragma unroll
    for (int q = 0; q < VECTORS; q++) {
        const int j = ((int)threadIdx.x + q * LOSS_THREADS) * V;
        const element_span s = { p.first + j, p.count - j, wide };
        fetch<T>(k.views[RG_LOSS_Y], k.y, s, y[q]);
        fetch<T>(k.views[RG_LOSS_T], k.labels, s, t[q]);
    }
#pragma unroll
    for (int q = 0; q < VECTORS; q++) {
        const int j = ((int)threadIdx.x + q * LOSS_THREADS) * V;
        const element_span s = { p.first + j, p.count - j, wide };
        real<T> w[V];
        if (s.n <= 0)
            break;
        if (k.has_weights)
            fetch<T>(k.views[RG_LOSS_W], k.weights, s, w);
        if (k.losses != RG_LOSS_NO_LOSS)
            sum = add_losses<T>(k, numbers, s, y[q], t[q], w, sum);
        if (k.has_gradient)
            store_slopes<T>(k, numbers, s, y[q], t[q], w, scale);
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

template <rg_dtype T> static void loss_by_elements(const void *args, const rg_cuda_target *target)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    bool wide = k.groups == 1 || k.group % VLEN<T> == 0;
    wide &= is_plain<T>(&k, RG_LOSS_Y, k.y) && is_plain<T>(&k, RG_LOSS_T, k.labels);
    wide &= !k.has_weights || is_plain<T>(&k, RG_LOSS_W, k.weights);
    wide &= !k.dy_of_labels || is_plain<T>(&k, RG_LOSS_DY, k.dy);
    wide &= k.losses != RG_LOSS_OF_LABELS || is_plain<T>(&k, RG_LOSS_L, k.loss);
    wide &= !k.has_gradient || is_plain<T>(&k, RG_LOSS_D, k.gradient);
    launch(by_elements<T>, k.groups * k.parts, LOSS_THREADS, 0, target, k, wide);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_LOSS_BY_ELEMENTS, loss_by_elements),
};
RG_CUDA_TABLE(loss_elements, kernel_rows);
