/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization on a GPU. */
#include "ops/batch_norm/batch_norm.h"
#include "ops/norm/norm.cuh"

/* ---- statistics ---- */

template <rg_dtype T> static void parts(const void *args, const rg_cuda_target *target)
{
    const rg_batch_norm_parts_args *k = (const rg_batch_norm_parts_args *)args;
    rg_norm_parts[T](k->x, k->partial, &k->shape, 0, k->shape.parts, target);
}

/* A block has a few channels, and many threads for each, which share the parts; a tree joins what
 * they find. */
enum { CHANNELS = 4, SHARES = 128, SHARE_SHARED = CHANNELS * SHARES / 32 * CHANNELS };

static __device__ __forceinline__ double blend(double old, double now, double momentum)
{
    return old * momentum + now * (1 - momentum);
}

/* Outputs new_mean and new_variance. */
static __device__ void return_statistics(const rg_batch_norm_merge_args &k, int64_t c, double mean,
                                         double variance, double n)
{
    if (k.statistics == RG_BATCH_NORM_RUNNING) {
        const double old_mean = load_any(k.mean_in, c * k.mean_in_step, k.dtype);
        const double old = load_any(k.variance_in, c * k.variance_in_step, k.dtype);
        const double whole = k.unbiased && n > 1 ? variance * (n / (n - 1)) : variance;
        mean = n > 0 ? blend(old_mean, mean, k.momentum) : old_mean;
        variance = n > 0 ? blend(old, whole, k.momentum) : old;
    } else if (k.statistics != RG_BATCH_NORM_RETURNED) {
        return;
    }
    store_any(k.mean_out, c * k.mean_out_step, k.dtype, mean);
    store_any(k.variance_out, c * k.variance_out_step, k.dtype, variance);
}

/* Everything that follows from the statistics of a channel; its mean is pivot + rest. */
template <rg_dtype T>
static __device__ void end_merge(const rg_batch_norm_merge_args &k, int64_t c, double pivot,
                                 double rest, double variance, double n)
{
    const double mean = (double)(real<T>)(pivot + rest);
    rest = (pivot - mean) + rest;
    const double s = 1 / sqrt(variance + k.epsilon);
    real<T> *m = (real<T> *)k.moments + c;
    m[RG_NORM_MEAN * k.channels] = (real<T>)mean;
    m[RG_NORM_MEAN_REST * k.channels] = (real<T>)rest;
    m[RG_NORM_VARIANCE * k.channels] = (real<T>)variance;
    m[RG_NORM_S * k.channels] = (real<T>)s;
    if (k.has_state) {
        ((real<T> *)k.mean)[c] = (real<T>)(mean + rest);
        ((real<T> *)k.variance)[c] = (real<T>)variance;
        ((real<T> *)k.s)[c] = (real<T>)s;
    }
    return_statistics(k, c, mean + rest, variance, n);
}

/* Elements of a part, and their mean less `pivot`. */
template <rg_dtype T>
static __device__ __forceinline__ double part_mean(const rg_batch_norm_merge_args &k,
                                                   const real<T> *from, int64_t part, double pivot,
                                                   double &n)
{
    const real<T> *p = from + part * RG_NORM_PARTIAL * k.channels;
    const int64_t left = k.rows - part * k.part;
    n = (double)(left < k.part ? left : k.part);
    return ((double)p[RG_NORM_PIVOT * k.channels] - pivot) + (double)p[RG_NORM_REST * k.channels];
}

/* The mean first, then squares around it: nothing is divided on the way. */
template <rg_dtype T>
static __global__ void __launch_bounds__(CHANNELS *SHARES)
    merge_channels(const __grid_constant__ rg_batch_norm_merge_args k)
{
    __shared__ double shared[SHARE_SHARED];
    const int share = (int)threadIdx.x / CHANNELS;
    const int64_t c = (int64_t)blockIdx.x * CHANNELS + threadIdx.x % CHANNELS;
    const bool inside = c < k.channels, counts = inside && share == 0 && k.before > 0;
    const real<T> *m = (const real<T> *)k.moments + c;
    const real<T> *from = (const real<T> *)k.partial + c;
    const int64_t parts = inside ? k.parts : 0;
    const double before = (double)k.before, all = (double)k.rows * (parts > 0) + before;
    double pivot = parts > 0 ? (double)from[0] : 0, n;
    if (inside && k.before > 0)
        pivot = m[RG_NORM_MEAN * k.channels];
    const double old = counts ? (double)m[RG_NORM_MEAN_REST * k.channels] : 0;
    double mean[1] = { counts ? old * before : 0 }, squares[1] = { 0 };
#pragma unroll 8
    for (int64_t part = share; part < parts; part += SHARES) {
        const double own = part_mean<T>(k, from, part, pivot, n);
        mean[0] += own * n;
    }
    reduce_down<1>(mean, CHANNELS, shared, false);
    __syncthreads(); /* before `shared` is written again */
    mean[0] = all > 0 ? mean[0] / all : 0;
    if (counts)
        squares[0] = (double)m[RG_NORM_VARIANCE * k.channels] * before +
                     (old - mean[0]) * (old - mean[0]) * before;
#pragma unroll 8
    for (int64_t part = share; part < parts; part += SHARES) {
        const double away = part_mean<T>(k, from, part, pivot, n) - mean[0];
        squares[0] +=
            (double)from[(part * RG_NORM_PARTIAL + RG_NORM_SQUARES) * k.channels] + away * away * n;
    }
    reduce_down<1>(squares, CHANNELS, shared, false);
    if (!inside || share != 0)
        return;
    if (k.statistics == RG_BATCH_NORM_GIVEN)
        end_merge<T>(k, c, 0, load_any(k.mean_in, c * k.mean_in_step, k.dtype),
                     load_any(k.variance_in, c * k.variance_in_step, k.dtype), 0);
    else
        end_merge<T>(k, c, pivot, mean[0], all > 0 ? squares[0] / all : 0, all);
}

template <rg_dtype T> static void merge(const void *args, const rg_cuda_target *target)
{
    const rg_batch_norm_merge_args *k = (const rg_batch_norm_merge_args *)args;
    launch(merge_channels<T>, ceil_div(k->channels, CHANNELS), CHANNELS * SHARES, 0, target, *k);
}

/* ---- y ---- */

/* The shape in smaller parts, where there are too few to keep the GPU busy: nothing is summed over
 * them. */
template <rg_dtype T>
static rg_channels in_small_parts(const rg_channels *shape, const rg_cuda_target *target)
{
    enum { ROWS = 2, BLOCKS = 3 }; /* of a thread, of a multiprocessor */
    rg_channels s = *shape;
    const int64_t across = norm_across<T>(&s), down = NORM_THREADS / across;
    const int64_t chunks = ceil_div(s.channels, across * VLEN<T>);
    const int64_t parts = ceil_div((int64_t)BLOCKS * target->multiprocessors, chunks);
    const int64_t rows = ceil_div(ceil_div(s.rows.count, parts), down) * down;
    const int64_t part = rows < ROWS * down ? ROWS * down : rows;
    if (part < s.part) {
        s.part = part;
        s.parts = ceil_div(s.rows.count, part);
    }
    return s;
}

template <rg_dtype T> static void forward(const void *args, const rg_cuda_target *target)
{
    const rg_batch_norm_args *k = (const rg_batch_norm_args *)args;
    const rg_channels small = in_small_parts<T>(&k->shape, target), *s = &small;
    norm_call call = norm_call_of<T>(s, &k->parameters, &k->neuron, 0, s->parts);
    call.stream = k->stream;
    rg_norm_forward[T](k->x, k->gamma, k->beta, k->moments, k->y, s, &call, target);
}

/* ---- gradient ---- */

template <rg_dtype T> static void sums(const void *args, const rg_cuda_target *target)
{
    const rg_batch_norm_sums_args *k = (const rg_batch_norm_sums_args *)args;
    const rg_channels *s = &k->shape;
    const norm_call call = norm_call_of<T>(s, &k->parameters, &k->neuron, 0, s->parts);
    rg_norm_sums[T]({ k->dy, k->x, k->gamma, k->beta, k->moments }, k->partial, s, &call, target);
}

static __device__ void put_result(void *to, const rg_batch_norm_result &result, rg_dtype dtype,
                                  int64_t c, double value)
{
    if (!result.wanted)
        return;
    const double old = result.add ? load_any(to, c * result.step, dtype) : 0;
    store_any(to, c * result.step, dtype, result.add ? old + value : value);
}

/* Factors of dx, and the gradients of statistics. */
template <rg_dtype T>
static __device__ void join_factors(const rg_batch_norm_join_args &k, int64_t c, double gamma,
                                    double dbeta, double dgamma)
{
    const rg_dtype dtype = k.parameters.dtype;
    const real<T> *m = (const real<T> *)k.moments + c;
    const double rest = m[RG_NORM_MEAN_REST * k.channels], s = m[RG_NORM_S * k.channels];
    const double dm = k.has_dmean_out ? load_any(k.dmean_out, c * k.dmean_out_step, dtype) : 0;
    const double dv =
        k.has_dvariance_out ? load_any(k.dvariance_out, c * k.dvariance_out_step, dtype) : 0;
    const bool running = k.statistics == RG_BATCH_NORM_RUNNING;
    if (k.statistics == RG_BATCH_NORM_GIVEN) {
        put_result(k.dmean, k.mean_result, dtype, c, -gamma * s * dbeta);
        put_result(k.dvariance, k.variance_result, dtype, c, -0.5 * gamma * s * s * dgamma);
        return;
    }
    if (running) {
        const double kept = k.count > 0 ? k.momentum : 1;
        put_result(k.dmean, k.mean_result, dtype, c, kept * dm);
        put_result(k.dvariance, k.variance_result, dtype, c, kept * dv);
    }
    const double each = k.count > 0 ? 1 / k.count : 0, share = running ? 1 - k.momentum : 1;
    const bool unbiased = running && k.unbiased && k.count > 1;
    const double weight = s * (gamma * (dgamma * each));
    const double slope = 2 * share * dv / (unbiased ? k.count - 1 : k.count);
    real<T> *f = (real<T> *)k.factors + c;
    f[RG_NORM_OFFSET * k.channels] = (real<T>)(gamma * (dbeta * each) - rest * weight);
    f[RG_NORM_WEIGHT * k.channels] = (real<T>)weight;
    f[RG_NORM_SLOPE * k.channels] = (real<T>)slope;
    f[RG_NORM_PLUS * k.channels] = (real<T>)(share * dm * each - slope * rest);
}

template <rg_dtype T>
static __device__ void join_one(const rg_batch_norm_join_args &k, int64_t c, double sum,
                                double product)
{
    const real<T> *m = (const real<T> *)k.moments + c;
    product -= (double)m[RG_NORM_MEAN_REST * k.channels] * sum;
    const double xh = (double)m[RG_NORM_S * k.channels] * product;
    const double dbeta = k.before != 0 ? k.sums[c] + sum : sum;
    const double dgamma = k.before != 0 ? k.sums[k.channels + c] + xh : xh;
    k.sums[c] = dbeta;
    k.sums[k.channels + c] = dgamma;
    if (k.has_state) {
        ((real<T> *)k.state_dbeta)[c] = (real<T>)dbeta;
        ((real<T> *)k.state_dgamma)[c] = (real<T>)dgamma;
    }
    put_result(k.dgamma, k.gamma_result, k.parameters.dtype, c, dgamma);
    put_result(k.dbeta, k.beta_result, k.parameters.dtype, c, dbeta);
    join_factors<T>(k, c, gamma_of(k.gamma, k.parameters, c), dbeta, dgamma);
}

template <rg_dtype T>
static __global__ void __launch_bounds__(CHANNELS *SHARES)
    join_channels(const __grid_constant__ rg_batch_norm_join_args k)
{
    __shared__ double shared[2 * SHARE_SHARED];
    const int share = (int)threadIdx.x / CHANNELS;
    const int64_t c = (int64_t)blockIdx.x * CHANNELS + threadIdx.x % CHANNELS;
    const bool inside = c < k.channels;
    const int64_t parts = inside ? k.parts : 0;
    double sum[2] = { 0, 0 };
#pragma unroll 8
    for (int64_t part = share; part < parts; part += SHARES) {
        const real<T> *from = (const real<T> *)k.partial + part * 2 * k.channels + c;
        sum[0] += (double)from[0];
        sum[1] += (double)from[k.channels];
    }
    reduce_down<2>(sum, CHANNELS, shared, false);
    if (inside && share == 0)
        join_one<T>(k, c, sum[0], sum[1]);
}

template <rg_dtype T> static void join(const void *args, const rg_cuda_target *target)
{
    const rg_batch_norm_join_args *k = (const rg_batch_norm_join_args *)args;
    launch(join_channels<T>, ceil_div(k->channels, CHANNELS), CHANNELS * SHARES, 0, target, *k);
}

template <rg_dtype T> static void gradient(const void *args, const rg_cuda_target *target)
{
    const rg_batch_norm_gradient_args *k = (const rg_batch_norm_gradient_args *)args;
    const rg_channels small = in_small_parts<T>(&k->shape, target), *s = &small;
    norm_call call = norm_call_of<T>(s, &k->parameters, &k->neuron, 0, s->parts);
    call.given = k->given;
    call.extra = k->extra;
    call.add = k->add;
    call.stream = k->stream;
    rg_norm_gradient[T]({ k->dy, k->x, k->gamma, k->beta, k->moments }, k->factors, k->dx, s, &call,
                        target);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_BATCH_NORM_PARTS, parts),     RG_CUDA_ROW(RG_BATCH_NORM_MERGE, merge),
    RG_CUDA_ROW(RG_BATCH_NORM_FORWARD, forward), RG_CUDA_ROW(RG_BATCH_NORM_SUMS, sums),
    RG_CUDA_ROW(RG_BATCH_NORM_JOIN, join),       RG_CUDA_ROW(RG_BATCH_NORM_GRADIENT, gradient),
};
RG_CUDA_TABLE(batch_norm, kernel_rows);
