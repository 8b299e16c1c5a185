/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax with dense labels on a GPU. */
#include "ops/loss/loss.cuh"

/* A label, smoothed, times its weight and dy. */
template <rg_dtype T>
static __device__ __forceinline__ real<T> weighted_label(const rg_loss_args &k, int64_t i)
{
    real<T> t = load<T>(k.labels, view_offset(k.views[RG_LOSS_T], i));
    t = t * (real<T>)k.numbers.keep + (real<T>)k.numbers.share;
    if (k.has_weights)
        t *= load<T>(k.weights, view_offset(k.views[RG_LOSS_W], i));
    if (k.dy_of_labels)
        t *= load<T>(k.dy, view_offset(k.views[RG_LOSS_DY], i));
    return t;
}

/* What a row has become: the largest element, log of the sum of e^(x - max), and in dl/dy the share
 * of e^(x - max). */
template <rg_dtype T> struct soft_row {
    real<T> max, log_sum, share;
};

template <rg_dtype T>
static __device__ __forceinline__ void soft_element(const rg_loss_args &k, const soft_row<T> &row,
                                                    real<T> scale, int64_t i)
{
    const real<T> x = load<T>(k.y, view_offset(k.views[RG_LOSS_Y], i)) - row.max;
    const real<T> a = weighted_label<T>(k, i);
    if (k.losses == RG_LOSS_OF_LABELS)
        store<T>(k.loss, view_offset(k.views[RG_LOSS_L], i),
                 -a * (x - row.log_sum) * (real<T>)k.numbers.weight);
    if (!k.has_gradient)
        return;
    real<T> d;
    if (k.is_label_gradient) {
        d = (row.log_sum - x) * (scale * (real<T>)k.numbers.keep);
        if (k.has_weights)
            d *= load<T>(k.weights, view_offset(k.views[RG_LOSS_W], i));
        if (k.dy_of_labels)
            d *= load<T>(k.dy, view_offset(k.views[RG_LOSS_DY], i));
    } else {
        d = (exp_of<T>(x) * row.share - a) * scale;
    }
    const int64_t to = view_offset(k.views[RG_LOSS_D], i);
    store<T>(k.gradient, to, k.add ? load<T>(k.gradient, to) + d : d);
}

/* `inner` threads to a row. */
template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS)
    by_rows(const __grid_constant__ rg_loss_args k, const int inner)
{
    __shared__ double partial[4][32];
    const int thread = (int)threadIdx.x % inner;
    const int64_t row = (int64_t)blockIdx.x * (LOSS_THREADS / inner) + (int)threadIdx.x / inner;
    const int64_t first = row * k.length, length = row < k.rows ? k.length : 0;
    double max = -INFINITY, sum = 0, labels = 0, products = 0;
    for (int64_t j = thread; j < length; j += inner)
        max = join(max, (double)load<T>(k.y, view_offset(k.views[RG_LOSS_Y], first + j)), true);
    max = reduce(max, inner, partial[0], true);
    soft_row<T> r;
    r.max = (real<T>)max;
    for (int64_t j = thread; j < length; j += inner) {
        const real<T> x = load<T>(k.y, view_offset(k.views[RG_LOSS_Y], first + j)) - r.max;
        const real<T> a = weighted_label<T>(k, first + j);
        sum += exp_of<T>(x);
        labels += a;
        products += a * x;
    }
    sum = reduce(sum, inner, partial[1], false);
    labels = reduce(labels, inner, partial[2], false);
    products = reduce(products, inner, partial[3], false);
    r.log_sum = log((real<T>)sum);
    r.share = (real<T>)(labels / sum);
    if (row >= k.rows)
        return;
    if (thread == 0 && k.losses == RG_LOSS_SUMS)
        k.partial[row] = (r.log_sum * labels - products) * k.numbers.weight;
    if (!k.has_gradient && k.losses != RG_LOSS_OF_LABELS)
        return;
    const real<T> scale = group_scale<T>(k, divide(row, k.group / k.length));
    for (int64_t j = thread; j < length; j += inner)
        soft_element<T>(k, r, scale, first + j);
}

template <rg_dtype T> static void loss_by_rows(const void *args, const rg_cuda_place *place)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    const int inner = k.length <= 1024 ? 32 : LOSS_THREADS;
    launch(by_rows<T>, ceil_div(k.rows, LOSS_THREADS / inner), LOSS_THREADS, 0, place, k, inner);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_LOSS_BY_ROWS, loss_by_rows),
};
RG_CUDA_TABLE(loss_rows, kernel_rows);
