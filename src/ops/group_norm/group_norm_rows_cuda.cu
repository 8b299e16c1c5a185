/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation of rows on a GPU: group_norm_held_rows.cu where it suits. Other rows are read
 * as often as they are needed. */
#include "backend/cuda/long_sum.cuh"
#include "ops/group_norm/group_norm_held.cuh"
#include "ops/group_norm/group_norm_rows.cuh"

template <rg_dtype T> static __device__ __forceinline__ int row_left(const row_call &k, int64_t c)
{
    return k.each - c < VLEN<T> ? (int)(k.each - c) : VLEN<T>;
}

/* Statistics of a group whose first element stands at `at`. */
template <rg_dtype T, bool FAST>
static __device__ row_numbers<T> row_statistics(const row_call &k, const void *x, int64_t at,
                                                int64_t step, int thread, real<T> *shared)
{
    const real<T> near = middle_of(load<T>(x, at), load<T>(x, at + k.each / 2 * step),
                                   load<T>(x, at + (k.each - 1) * step));
    long_chain<real<T>, 2> chain; /* of vectors */
    for (int64_t c = (int64_t)thread * VLEN<T>; c < k.each;
         c += (int64_t)k.threads_per_row * VLEN<T>, chain.count()) {
        real<T> d[VLEN<T>];
        const int left = row_left<T>(k, c);
        load_columns<T, FAST>(x, at + c * step, step, left, d);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) {
            d[e] = e < left ? d[e] - near : 0;
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
    const double mean = (double)(real<T>)((double)near + rest);
    return { (real<T>)mean, (real<T>)(((double)near - mean) + rest),
             (real<T>)(1 / sqrt((around < 0 ? 0 : around / n) + k.epsilon)) };
}

/* scale and shift of z = t scale + shift, and gamma. */
template <rg_dtype T>
static __device__ __forceinline__ void row_columns(const row_call &k, const void *gamma,
                                                   const void *beta, const row_numbers<T> &q,
                                                   int64_t c, int left, real<T> scale[VLEN<T>],
                                                   real<T> shift[VLEN<T>], real<T> own[VLEN<T>])
{
    const rg_norm_parameters &p = k.parameters;
    load_parameter<T>(gamma, p.gamma_step, p.has_gamma, 1, p.dtype, c, left, own);
    load_parameter<T>(beta, p.beta_step, p.has_beta, 0, p.dtype, c, left, shift);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        scale[e] = own[e] * q.s;
        shift[e] = fma(-q.rest, scale[e], shift[e]);
    }
}

/* ---- forward ---- */

/* Threads behind the last image read that one, and write nothing. */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_rows(const void *x, const void *gamma, const void *beta, void *mean, void *rest, void *s,
              void *y, const __grid_constant__ rg_channels shape,
              const __grid_constant__ row_call k)
{
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
        const row_numbers<T> q = row_statistics<T, FAST>(k, x, at, shape.step[0], thread, shared);
        if (inside && thread == 0)
            put_statistics<T>(mean, rest, s, image * k.groups + group, q);
        for (int64_t c = (int64_t)thread * VLEN<T>; inside && c < k.each;
             c += (int64_t)k.threads_per_row * VLEN<T>) {
            real<T> v[VLEN<T>], scale[VLEN<T>], shift[VLEN<T>], own[VLEN<T>];
            const int left = row_left<T>(k, c);
            load_columns<T, FAST>(x, at + c * shape.step[0], shape.step[0], left, v);
            row_columns<T>(k, gamma, beta, q, first + c, left, scale, shift, own);
#pragma unroll
            for (int e = 0; e < VLEN<T>; e++) {
                v[e] = fma(v[e] - q.mean, scale[e], shift[e]);
                if constexpr (NEURON == NORM_OTHER)
                    v[e] = any_neuron<T>(k.neuron.kind, neuron, v[e]);
            }
            store_columns<T, FAST>(y, to + (first + c) * shape.step[1], shape.step[1], left, false,
                                   k.stream, v);
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

template <rg_dtype T> static void rows_forward(const void *args, const rg_cuda_place *place)
{
    const rg_group_norm_args *k = (const rg_group_norm_args *)args;
    const void *const data[] = { k->x, k->y };
    if (rg_group_norm_held_rows[T](k, place))
        return;
    row_call call = row_call_of(&k->shape);
    call.threads_per_row = row_threads<T>(call.each);
    launch(ROW_KERNEL(norm_rows, rows_are_fast<T>(&k->shape, data, 2), call.neuron.kind),
           ceil_div(call.images, ROW_THREADS / call.threads_per_row), ROW_THREADS, 0, place, k->x,
           k->gamma, k->beta, k->mean, k->rest, k->s, k->y, k->shape.channels, call);
}

/* ---- gradient ---- */

/* g of a vector of a row from dy, and t from x. */
template <rg_dtype T, bool FAST, int NEURON>
static __device__ __forceinline__ void
row_gradients(const row_call &k, const rg_channels &shape, const void *dy, const void *x,
              int64_t dy_at, int64_t x_at, const neuron_constants<T> &neuron,
              const row_numbers<T> &q, int64_t c, int left, const real<T> scale[VLEN<T>],
              const real<T> shift[VLEN<T>], real<T> g[VLEN<T>], real<T> t[VLEN<T>])
{
    load_columns<T, FAST>(dy, dy_at + c * shape.step[0], shape.step[0], left, g);
    load_columns<T, FAST>(x, x_at + c * shape.step[1], shape.step[1], left, t);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        t[e] = e < left ? t[e] - q.mean : 0;
        g[e] =
            through_neuron<T, NEURON>(k.neuron.kind, neuron, g[e], fma(t[e], scale[e], shift[e]));
        g[e] = e < left ? g[e] : 0;
    }
}

/* A block has `part` images, of which ROW_THREADS / threads_per_row at a time. Sums of every
 * channel stand in rows of `sums`, one for each image of these, and are joined in the end. */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_rows_gradient(const __grid_constant__ rg_group_norm_gradient_args a,
                       const __grid_constant__ row_call k)
{
    extern __shared__ uint4 memory[];
    __shared__ real<T> shared[2 * ROW_WARP];
    const rg_channels &shape = a.shape.channels;
    const int thread = (int)threadIdx.x % k.threads_per_row;
    const int at_once = ROW_THREADS / k.threads_per_row;
    const int64_t channels = shape.channels, unit = blockIdx.x;
    real<T> *const sums =
        k.sums_in_shared ? (real<T> *)memory : (real<T> *)a.dgammas + unit * channels;
    real<T> *const dgamma =
        sums + (k.sums_in_shared ? threadIdx.x / k.threads_per_row * 2 * channels : 0);
    real<T> *const dbeta =
        k.sums_in_shared ? dgamma + channels : (real<T> *)a.dbetas + unit * channels;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    for (int64_t c = thread; k.wants_sums && c < channels; c += k.threads_per_row)
        dgamma[c] = dbeta[c] = 0;
    __syncthreads();
    const int64_t last = (unit + 1) * k.part < k.images ? (unit + 1) * k.part : k.images;
    for (int64_t base = unit * k.part; base < last; base += at_once) {
        const int64_t row = base + threadIdx.x / k.threads_per_row;
        const bool inside = row < last;
        const int64_t image = inside ? row : last - 1;
        const int64_t dy_from = walk_offset(shape.images, 0, image);
        const int64_t x_from = walk_offset(shape.images, 1, image);
        const int64_t to = walk_offset(shape.images, 2, image);
        for (int64_t group = 0; group < k.groups; group++) {
            const int64_t first = group * k.each, of = image * k.groups + group;
            const int64_t dy_at = dy_from + first * shape.step[0];
            const int64_t x_at = x_from + first * shape.step[1];
            row_numbers<T> q;
            if (k.known)
                q = known_statistics<T>(a, of);
            else
                q = row_statistics<T, FAST>(k, a.x, x_at, shape.step[1], thread, shared);
            real<T> g[VLEN<T>], t[VLEN<T>], scale[VLEN<T>], shift[VLEN<T>], own[VLEN<T>];
            long_chain<real<T>, 2> chain; /* of vectors */
            for (int64_t c = (int64_t)thread * VLEN<T>; k.wants_dx && c < k.each;
                 c += (int64_t)k.threads_per_row * VLEN<T>, chain.count()) {
                const int left = row_left<T>(k, c);
                row_columns<T>(k, a.gamma, a.beta, q, first + c, left, scale, shift, own);
                row_gradients<T, FAST, NEURON>(k, shape, a.dy, a.x, dy_at, x_at, neuron, q, c, left,
                                               scale, shift, g, t);
#pragma unroll
                for (int e = 0; e < VLEN<T>; e++) {
                    const real<T> h = g[e] * own[e];
                    chain.run[0] += h;
                    chain.run[1] = fma(h, t[e], chain.run[1]);
                }
            }
            real<T> all[2];
            chain.end(all);
            const real<T> sum = reduce(all[0], k.threads_per_row, shared, false);
            const real<T> product = reduce(all[1], k.threads_per_row, shared + ROW_WARP, false);
            __syncthreads(); /* before `shared` is written again */
            const double m = (double)k.each, s = q.s, rest = q.rest;
            const double wide = s * (s * ((double)product - rest * (double)sum) / m);
            const real<T> weight = (real<T>)wide, offset = (real<T>)((double)sum / m - rest * wide);
            for (int64_t c = (int64_t)thread * VLEN<T>; inside && c < k.each;
                 c += (int64_t)k.threads_per_row * VLEN<T>) {
                const int left = row_left<T>(k, c);
                row_columns<T>(k, a.gamma, a.beta, q, first + c, left, scale, shift, own);
                row_gradients<T, FAST, NEURON>(k, shape, a.dy, a.x, dy_at, x_at, neuron, q, c, left,
                                               scale, shift, g, t);
                for (int e = 0; k.wants_sums && e < left; e++) {
                    dbeta[first + c + e] += g[e];
                    dgamma[first + c + e] = fma(g[e], (t[e] - q.rest) * q.s, dgamma[first + c + e]);
                }
                if (!k.wants_dx)
                    continue;
#pragma unroll
                for (int e = 0; e < VLEN<T>; e++) /* rounded one by one: one element leaves 0 */
                    g[e] = fma(-t[e], weight, g[e] * own[e] - offset) * q.s;
                store_columns<T, FAST>(a.dx, to + (first + c) * shape.step[2], shape.step[2], left,
                                       k.add, k.stream, g);
            }
        }
    }
    if (!k.wants_sums || !k.sums_in_shared)
        return; /* the whole block */
    __syncthreads();
    for (int64_t c = threadIdx.x; c < channels; c += ROW_THREADS) {
        double gamma_sum = 0, beta_sum = 0;
        for (int r = 0; r < at_once; r++) {
            gamma_sum += (double)sums[r * 2 * channels + c];
            beta_sum += (double)sums[(r * 2 + 1) * channels + c];
        }
        ((real<T> *)a.dgammas)[unit * channels + c] = (real<T>)gamma_sum;
        ((real<T> *)a.dbetas)[unit * channels + c] = (real<T>)beta_sum;
    }
}

/* Sums stand in shared memory if they fit; then, and only then, several rows can be taken at once.
 * By shape alone. */
template <rg_dtype T> static void rows_gradient(const void *args, const rg_cuda_place *place)
{
    const rg_group_norm_gradient_args *k = (const rg_group_norm_gradient_args *)args;
    const void *const data[] = { k->dy, k->x, k->dx };
    const int64_t most_shared = 96 << 10;
    const int64_t bytes = 2 * k->shape.channels.channels * (int64_t)sizeof(real<T>);
    if (rg_group_norm_held_rows_gradient[T](k, place))
        return;
    row_call call = row_gradient_call_of(k);
    call.threads_per_row = row_threads<T>(call.each);
    if (bytes * (ROW_THREADS / call.threads_per_row) > most_shared)
        call.threads_per_row = ROW_THREADS;
    const int64_t shared = bytes * (ROW_THREADS / call.threads_per_row);
    call.sums_in_shared = shared <= most_shared;
    launch(ROW_KERNEL(norm_rows_gradient, rows_are_fast<T>(&k->shape, data, 3), call.neuron.kind),
           ceil_div(call.images, call.part), ROW_THREADS,
           call.sums_in_shared && call.wants_sums ? shared : 0, place, *k, call);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_GROUP_NORM_ROWS, rows_forward),
    RG_CUDA_ROW(RG_GROUP_NORM_ROWS_GRADIENT, rows_gradient),
};
RG_CUDA_TABLE(group_norm_rows, kernel_rows);
