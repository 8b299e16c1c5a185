/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization of rows on a GPU: group_norm_held_rows.cu where it suits. Other rows are read
 * as often as they are needed. */
#include "backend/cuda/long_sum.cuh"
#include "ops/group_norm/group_norm_held.cuh"
#include "ops/group_norm/group_norm_rows.cuh"

template <rg_dtype T> static __device__ __forceinline__ int row_left(const row_call &k, int64_t c)
{
    return k.each - c < VLEN<T> ? (int)(k.each - c) : VLEN<T>;
}

/* Statistics of a group whose first element is at `at`. */
template <rg_dtype T, bool FAST>
static __device__ row_numbers<T> row_statistics(const row_call &k, const void *x, int64_t at,
                                                int64_t step, int thread, real<T> *shared)
{
    const real<T> pivot = middle_of(load<T>(x, at), load<T>(x, at + k.each / 2 * step),
                                    load<T>(x, at + (k.each - 1) * step));
    long_chain<real<T>, 2> chain; /* of vectors */
    for (int64_t c = (int64_t)thread * VLEN<T>; c < k.each;
         c += (int64_t)k.threads_per_row * VLEN<T>, chain.count()) {
        real<T> d[VLEN<T>];
        const int left = row_left<T>(k, c);
        load_columns<T, FAST>(x, at + c * step, step, left, d);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) {
            d[e] = e < left ? d[e] - pivot : 0;
            chain.run[0] += d[e];
            chain.run[1] = fma(d[e], d[e], chain.run[1]);
        }
    }
    real<T> all[2];
    chain.end(all);
    const real<T> sum = reduce(all[0], k.threads_per_row, shared, false);
    const real<T> squares = reduce(all[1], k.threads_per_row, shared + ROW_WARP, false);
    __syncthreads(); /* before `shared` is written again */
    const double n = (double)k.each, rest = (double)sum / n;
    const double around = (double)squares - (double)sum * rest;
    const double mean = (double)(real<T>)((double)pivot + rest);
    return { (real<T>)mean, (real<T>)(((double)pivot - mean) + rest),
             (real<T>)(1 / sqrt((around < 0 ? 0 : around / n) + k.epsilon)) };
}

/* A vector of a group: x or t, dy or g, its `left` channels; scale and shift of z = t scale +
 * shift, and gamma. */
template <rg_dtype T> struct row_vector {
    real<T> t[VLEN<T>], g[VLEN<T>], scale[VLEN<T>], shift[VLEN<T>], gamma[VLEN<T>];
    int left;
};

template <rg_dtype T>
static __device__ __forceinline__ void row_columns(const row_call &k, const void *gamma,
                                                   const void *beta, const row_numbers<T> &q,
                                                   int64_t c, row_vector<T> &v)
{
    const rg_norm_parameters &p = k.parameters;
    load_parameter<T>(gamma, p.gamma_step, p.has_gamma, 1, p.dtype, c, v.left, v.gamma);
    load_parameter<T>(beta, p.beta_step, p.has_beta, 0, p.dtype, c, v.left, v.shift);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        v.scale[e] = v.gamma[e] * q.s;
        v.shift[e] = fma(-q.rest, v.scale[e], v.shift[e]);
    }
}

/* ---- forward ---- */

/* Threads after the last image read that one, and write nothing. */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_rows(const __grid_constant__ rg_group_norm_args a, const __grid_constant__ row_call k)
{
    const rg_channels &shape = a.shape.channels;
    __shared__ real<T> shared[2 * ROW_WARP];
    const int thread = (int)threadIdx.x % k.threads_per_row;
    const int64_t row =
        (int64_t)blockIdx.x * (ROW_THREADS / k.threads_per_row) + threadIdx.x / k.threads_per_row;
    const bool inside = row < k.images;
    const int64_t image = inside ? row : k.images - 1;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const int64_t from = walk_offset(shape.images, 0, image);
    const int64_t to = walk_offset(shape.images, 1, image);
    for (int64_t group = 0; group < k.groups; group++) {
        const int64_t first = group * k.each, at = from + first * shape.step[0];
        const row_numbers<T> q = row_statistics<T, FAST>(k, a.x, at, shape.step[0], thread, shared);
        if (inside && thread == 0)
            put_statistics<T>(a.mean, a.rest, a.s, image * k.groups + group, q);
        for (int64_t c = (int64_t)thread * VLEN<T>; inside && c < k.each;
             c += (int64_t)k.threads_per_row * VLEN<T>) {
            row_vector<T> v;
            v.left = row_left<T>(k, c);
            load_columns<T, FAST>(a.x, at + c * shape.step[0], shape.step[0], v.left, v.t);
            row_columns<T>(k, a.gamma, a.beta, q, first + c, v);
#pragma unroll
            for (int e = 0; e < VLEN<T>; e++) {
                v.t[e] = fma(v.t[e] - q.mean, v.scale[e], v.shift[e]);
                if constexpr (NEURON == NORM_OTHER)
                    v.t[e] = any_neuron<T>(k.neuron.kind, neuron, v.t[e]);
            }
            store_columns<T, FAST>(a.y, to + (first + c) * shape.step[1], shape.step[1], v.left,
                                   false, k.stream, v.t);
        }
    }
}

/* Threads of a row: a warp, or a block where rows are long. */
template <rg_dtype T> static int row_threads(int64_t each)
{
    return each <= 8 * ROW_WARP * VLEN<T> ? ROW_WARP : ROW_THREADS;
}

/* The kernel for a neuron. */
#define ROW_KERNEL(name, fast, kind)                         \
    (!(fast)                    ? name<T, false, NORM_OTHER> \
     : (kind) == RG_NEURON_NONE ? name<T, true, NORM_PLAIN>  \
                                : name<T, true, NORM_OTHER>)

template <rg_dtype T> static void rows_forward(const void *args, const rg_cuda_target *target)
{
    const rg_group_norm_args *k = (const rg_group_norm_args *)args;
    const void *const data[] = { k->x, k->y };
    if (launch_held(rg_group_norm_held_rows[T], k, target))
        return;
    row_call call = row_call_of(&k->shape);
    call.threads_per_row = row_threads<T>(call.each);
    launch(ROW_KERNEL(norm_rows, rows_are_fast<T>(&k->shape, data, 2), call.neuron.kind),
           ceil_div(call.images, ROW_THREADS / call.threads_per_row), ROW_THREADS, 0, target, *k,
           call);
}

/* ---- gradient ---- */

/* A group of a row at work: where it begins in dy, x and dx, its first channel, its numbers. */
template <rg_dtype T> struct row_group {
    int64_t dy, x, dx, first;
    row_numbers<T> q;
    neuron_constants<T> neuron;
    int thread;
};

/* g from dy, and t from x, of the vector at channel c of a group. */
template <rg_dtype T, bool FAST, int NEURON>
static __device__ __forceinline__ row_vector<T> row_gradients(const rg_group_norm_gradient_args &a,
                                                              const row_call &k,
                                                              const row_group<T> &r, int64_t c)
{
    const rg_channels &s = a.shape.channels;
    row_vector<T> v;
    v.left = row_left<T>(k, c);
    row_columns<T>(k, a.gamma, a.beta, r.q, r.first + c, v);
    load_columns<T, FAST>(a.dy, r.dy + c * s.step[0], s.step[0], v.left, v.g);
    load_columns<T, FAST>(a.x, r.x + c * s.step[1], s.step[1], v.left, v.t);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        v.t[e] = e < v.left ? v.t[e] - r.q.mean : 0;
        v.g[e] = through_neuron<T, NEURON>(k.neuron.kind, r.neuron, v.g[e],
                                           fma(v.t[e], v.scale[e], v.shift[e]));
        v.g[e] = e < v.left ? v.g[e] : 0;
    }
    return v;
}

/* Offset and weight of dx, from sums over the group. */
template <rg_dtype T, bool FAST, int NEURON>
static __device__ __forceinline__ void
row_factors(const rg_group_norm_gradient_args &a, const row_call &k, const row_group<T> &r,
            real<T> *shared, real<T> &offset, real<T> &weight)
{
    long_chain<real<T>, 2> chain; /* of vectors */
    for (int64_t c = (int64_t)r.thread * VLEN<T>; k.wants_dx && c < k.each;
         c += (int64_t)k.threads_per_row * VLEN<T>, chain.count()) {
        const row_vector<T> v = row_gradients<T, FAST, NEURON>(a, k, r, c);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) {
            const real<T> h = v.g[e] * v.gamma[e];
            chain.run[0] += h;
            chain.run[1] = fma(h, v.t[e], chain.run[1]);
        }
    }
    real<T> all[2];
    chain.end(all);
    const real<T> sum = reduce(all[0], k.threads_per_row, shared, false);
    const real<T> product = reduce(all[1], k.threads_per_row, shared + ROW_WARP, false);
    __syncthreads(); /* before `shared` is written again */
    const double m = (double)k.each, s = r.q.s, rest = r.q.rest;
    const double wide = s * (s * ((double)product - rest * (double)sum) / m);
    weight = (real<T>)wide;
    offset = (real<T>)((double)sum / m - rest * wide);
}

/* dx of the group, and what it adds to the sums of its channels. */
template <rg_dtype T, bool FAST, int NEURON>
static __device__ __forceinline__ void
row_results(const rg_group_norm_gradient_args &a, const row_call &k, const row_group<T> &r,
            real<T> offset, real<T> weight, real<T> *dgamma, real<T> *dbeta)
{
    const int64_t step = a.shape.channels.step[2];
    for (int64_t c = (int64_t)r.thread * VLEN<T>; c < k.each;
         c += (int64_t)k.threads_per_row * VLEN<T>) {
        row_vector<T> v = row_gradients<T, FAST, NEURON>(a, k, r, c);
        for (int e = 0; k.wants_sums && e < v.left; e++) {
            const int64_t i = r.first + c + e;
            dbeta[i] += v.g[e];
            dgamma[i] = fma(v.g[e], (v.t[e] - r.q.rest) * r.q.s, dgamma[i]);
        }
        if (!k.wants_dx)
            continue;
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) /* rounded one by one: one element leaves 0 */
            v.g[e] = fma(-v.t[e], weight, v.g[e] * v.gamma[e] - offset) * r.q.s;
        store_columns<T, FAST>(a.dx, r.dx + (r.first + c) * step, step, v.left, k.add, k.stream,
                               v.g);
    }
}

/* Joins the sums of channels in `rows` rows. */
template <rg_dtype T>
static __device__ __forceinline__ void join_row_sums(const rg_group_norm_gradient_args &a,
                                                     const real<T> *sums, int rows)
{
    const int64_t channels = a.shape.channels.channels, unit = blockIdx.x;
    for (int64_t c = threadIdx.x; c < channels; c += ROW_THREADS) {
        double gamma_sum = 0, beta_sum = 0;
        for (int r = 0; r < rows; r++) {
            gamma_sum += (double)sums[r * 2 * channels + c];
            beta_sum += (double)sums[(r * 2 + 1) * channels + c];
        }
        ((real<T> *)a.dgammas)[unit * channels + c] = (real<T>)gamma_sum;
        ((real<T> *)a.dbetas)[unit * channels + c] = (real<T>)beta_sum;
    }
}

/* A block has `part` images, of which ROW_THREADS / threads_per_row at a time. Sums of every
 * channel are in rows of `sums`, one for each image of these, and are joined in the end. */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_rows_gradient(const __grid_constant__ rg_group_norm_gradient_args a,
                       const __grid_constant__ row_call k)
{
    extern __shared__ uint4 memory[];
    __shared__ real<T> shared[2 * ROW_WARP];
    const rg_channels &shape = a.shape.channels;
    row_group<T> r;
    r.thread = (int)threadIdx.x % k.threads_per_row;
    r.neuron = neuron_constants_in<T>(k.neuron.numbers);
    const int at_once = ROW_THREADS / k.threads_per_row;
    const int64_t channels = shape.channels, unit = blockIdx.x;
    real<T> *const sums =
        k.sums_in_shared ? (real<T> *)memory : (real<T> *)a.dgammas + unit * channels;
    real<T> *const dgamma =
        sums + (k.sums_in_shared ? threadIdx.x / k.threads_per_row * 2 * channels : 0);
    real<T> *const dbeta =
        k.sums_in_shared ? dgamma + channels : (real<T> *)a.dbetas + unit * channels;
    for (int64_t c = r.thread; k.wants_sums && c < channels; c += k.threads_per_row)
        dgamma[c] = dbeta[c] = 0;
    __syncthreads();
    const int64_t last = (unit + 1) * k.part < k.images ? (unit + 1) * k.part : k.images;
    for (int64_t base = unit * k.part; base < last; base += at_once) {
        const int64_t row = base + threadIdx.x / k.threads_per_row;
        const int64_t image = row < last ? row : last - 1;
        const int64_t dy = walk_offset(shape.images, 0, image);
        const int64_t x = walk_offset(shape.images, 1, image);
        r.dx = walk_offset(shape.images, 2, image);
        for (int64_t group = 0; group < k.groups; group++) {
            real<T> offset, weight;
            r.first = group * k.each;
            r.dy = dy + r.first * shape.step[0];
            r.x = x + r.first * shape.step[1];
            if (k.known)
                r.q = known_statistics<T>(a, image * k.groups + group);
            else
                r.q = row_statistics<T, FAST>(k, a.x, r.x, shape.step[1], r.thread, shared);
            row_factors<T, FAST, NEURON>(a, k, r, shared, offset, weight);
            if (row < last)
                row_results<T, FAST, NEURON>(a, k, r, offset, weight, dgamma, dbeta);
        }
    }
    if (!k.wants_sums || !k.sums_in_shared)
        return; /* the whole block */
    __syncthreads();
    join_row_sums<T>(a, sums, at_once);
}

/* Sums are in shared memory if they fit; then, and only then, several rows can be taken at once.
 * By shape alone. */
template <rg_dtype T> static void rows_gradient(const void *args, const rg_cuda_target *target)
{
    const rg_group_norm_gradient_args *k = (const rg_group_norm_gradient_args *)args;
    const void *const data[] = { k->dy, k->x, k->dx };
    const int64_t most_shared = 96 << 10; /* bytes */
    const int64_t bytes = 2 * k->shape.channels.channels * (int64_t)sizeof(real<T>);
    if (launch_held(rg_group_norm_held_rows_gradient[T], k, target))
        return;
    row_call call = row_gradient_call_of(k);
    call.threads_per_row = row_threads<T>(call.each);
    if (bytes * (ROW_THREADS / call.threads_per_row) > most_shared)
        call.threads_per_row = ROW_THREADS;
    const int64_t shared = bytes * (ROW_THREADS / call.threads_per_row);
    call.sums_in_shared = shared <= most_shared;
    launch(ROW_KERNEL(norm_rows_gradient, rows_are_fast<T>(&k->shape, data, 3), call.neuron.kind),
           ceil_div(call.images, call.part), ROW_THREADS,
           call.sums_in_shared && call.wants_sums ? shared : 0, target, *k, call);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_GROUP_NORM_ROWS, rows_forward),
    RG_CUDA_ROW(RG_GROUP_NORM_ROWS_GRADIENT, rows_gradient),
};
RG_CUDA_TABLE(group_norm_rows, kernel_rows, held_strategy);
