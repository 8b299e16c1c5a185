/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization of columns on a GPU in one pass: a block has some whole groups of an image,
 * and holds all their rows in shared memory between the sums and what is made of them.
 *
 * The block has `across` vectors of channels; a thread has one of these in every `down`th row, and
 * reads nothing of what other threads hold. The order of sums follows from the shape. */
#include "ops/group_norm/group_norm_held.cuh"
#include "ops/norm/norm.cuh"

enum { HELD_THREADS = 256, HELD_WARP = 32 };

/* How an image is cut. */
typedef struct held_plan {
    int across, slots; /* vectors of a block; rows of a thread */
    int channels;      /* of a block */
    int each;          /* channels of a group */
    int64_t chunks;    /* blocks of an image */
    int64_t shared;    /* bytes */
} held_plan;

/* Tables of a block, a number for each of its channels. Statistics and gradients share two. */
enum {
    HELD_MEAN,
    HELD_REST,
    HELD_S,
    HELD_PIVOT,
    HELD_OFFSET = HELD_PIVOT,
    HELD_SUM_G = HELD_PIVOT,
    HELD_PART_REST,
    HELD_WEIGHT = HELD_PART_REST,
    HELD_SUM_GT = HELD_PART_REST,
    HELD_SQUARES,
    HELD_TABLES
};

/* Shared memory: slots of `tensors` tensors, tables, values of a reduction. */
template <rg_dtype T> struct held_shared {
    uint4 *own; /* slot q of the first tensor is own[q * HELD_THREADS] */
    real<T> *tables, *partial;
};

template <rg_dtype T>
static __device__ __forceinline__ held_shared<T> held_shared_of(uint4 *memory,
                                                                const held_plan &plan, int tensors)
{
    real<T> *const tables = (real<T> *)(memory + tensors * plan.slots * HELD_THREADS);
    return { memory + threadIdx.x, tables, tables + HELD_TABLES * plan.channels };
}

/* Starts to copy the thread's rows of tensor t. */
template <rg_dtype T, bool FAST>
static __device__ __forceinline__ void hold_rows(const rg_channels &s, int t, const void *data,
                                                 const norm_work &w, uint4 *own)
{
    if (w.left == 0)
        return;
    if constexpr (FAST) {
        const char *from = at<T>(data, norm_offset<FAST>(s, t, w, w.begin));
        const int64_t step = w.down * s.rows.strides[t][0] * (int64_t)sizeof(element<T>);
        const int rows = (int)w.end;
#pragma unroll 4
        for (int row = (int)w.begin; row < rows; row += w.down, own += HELD_THREADS, from += step)
            copy_vector(own, from);
    } else {
        for (int64_t row = w.begin; row < w.end; row += w.down, own += HELD_THREADS) {
            real<T> x[VLEN<T>];
            load_columns<T, FAST>(data, norm_offset<FAST>(s, t, w, row), s.step[t], w.left, x);
            *own = pack<T>(x);
        }
    }
}

/* The thread's numbers of a table. */
template <rg_dtype T>
static __device__ __forceinline__ void get_table(const real<T> *tables, int which,
                                                 const held_plan &plan, real<T> x[VLEN<T>])
{
    constexpr rg_dtype R = T == RG_F64 ? RG_F64 : RG_F32;
    const int c = ((int)threadIdx.x & (plan.across - 1)) * VLEN<T>;
#pragma unroll
    for (int e = 0; e < VLEN<T>; e += VLEN<R>)
        unpack<R>(*(const uint4 *)(tables + which * plan.channels + c + e), x + e);
}

template <rg_dtype T>
static __device__ __forceinline__ void put_table(real<T> *tables, int which, const held_plan &plan,
                                                 const real<T> x[VLEN<T>])
{
    constexpr rg_dtype R = T == RG_F64 ? RG_F64 : RG_F32;
    const int c = ((int)threadIdx.x & (plan.across - 1)) * VLEN<T>;
#pragma unroll
    for (int e = 0; e < VLEN<T>; e += VLEN<R>)
        *(uint4 *)(tables + which * plan.channels + c + e) = pack<R>(x + e);
}

/* Calls step(first, group) for the groups of the block, with the first channel of a group and its
 * number within the image. A warp has one group at a time. */
template <class STEP>
static __device__ __forceinline__ void each_group(const held_plan &plan, int64_t first_channel,
                                                  int64_t channels, STEP step)
{
    const int64_t left = channels - first_channel;
    const int count = left < plan.channels ? (int)left : plan.channels;
    for (int first = (int)threadIdx.x / HELD_WARP * plan.each; first < count;
         first += HELD_THREADS / HELD_WARP * plan.each)
        step(first, (first_channel + first) / plan.each);
}

/* ---- statistics ---- */

/* Statistics of a state: real, (images, groups). */
struct held_state {
    void *mean, *rest, *s;
};

/* Mean, its rest and s of the block's groups into tables and into the state. */
template <rg_dtype T>
static __device__ __forceinline__ void
merge_held(const rg_group_norm_shape &shape, const held_plan &plan, int64_t image,
           int64_t first_channel, real<T> *tables, const held_state &state)
{
    const int thread = (int)threadIdx.x % HELD_WARP, n = plan.channels;
    const double rows = (double)shape.channels.rows.count, all = rows * plan.each;
    each_group(plan, first_channel, shape.channels.channels, [&](int first, int64_t group) {
        const double pivot = (double)tables[HELD_PIVOT * n + first];
        double sum = 0, squares = 0;
        for (int c = first + thread; c < first + plan.each; c += HELD_WARP)
            sum += ((double)tables[HELD_PIVOT * n + c] - pivot) +
                   (double)tables[HELD_PART_REST * n + c];
        const double away = reduce(sum, HELD_WARP, (double *)nullptr, false) / plan.each;
        for (int c = first + thread; c < first + plan.each; c += HELD_WARP) {
            const double d = (((double)tables[HELD_PIVOT * n + c] - pivot) +
                              (double)tables[HELD_PART_REST * n + c]) -
                             away;
            squares += (double)tables[HELD_SQUARES * n + c] + d * d * rows;
        }
        squares = reduce(squares, HELD_WARP, (double *)nullptr, false);
        const double whole = (double)(real<T>)(pivot + away);
        const real<T> low = (real<T>)((pivot - whole) + away);
        const real<T> scale = (real<T>)(1 / sqrt(squares / all + shape.epsilon));
        for (int c = first + thread; c < first + plan.each; c += HELD_WARP) {
            tables[HELD_MEAN * n + c] = (real<T>)whole;
            tables[HELD_REST * n + c] = low;
            tables[HELD_S * n + c] = scale;
        }
        if (thread == 0) {
            ((real<T> *)state.mean)[image * shape.groups + group] = (real<T>)whole;
            ((real<T> *)state.rest)[image * shape.groups + group] = low;
            ((real<T> *)state.s)[image * shape.groups + group] = scale;
        }
    });
}

/* Statistics of what is held in `own`, whose pivots are in `pivot`. */
template <rg_dtype T>
static __device__ __forceinline__ void
held_statistics(const rg_group_norm_shape &shape, const held_plan &plan, const norm_work &w,
                const uint4 *own, const real<T> pivot[VLEN<T>], const held_shared<T> &shared,
                const held_state &state)
{
    real<T> sum[2 * VLEN<T>] = {};
    const int rows = w.left > 0 ? (int)w.end : 0;
#pragma unroll 4
    for (int row = (int)w.begin; row < rows; row += w.down, own += HELD_THREADS)
        add_moments<T>(*own, pivot, sum);
    reduce_down<2 * VLEN<T>>(sum, plan.across, shared.partial, false);
    if ((int)threadIdx.x < plan.across) {
        const real<T> count = (real<T>)shape.channels.rows.count;
        put_table<T>(shared.tables, HELD_PIVOT, plan, pivot);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) {
            const real<T> part = sum[e] / count, around = fma(-sum[e], part, sum[VLEN<T> + e]);
            sum[e] = part;
            sum[VLEN<T> + e] = around < 0 ? 0 : around;
        }
        put_table<T>(shared.tables, HELD_PART_REST, plan, sum);
        put_table<T>(shared.tables, HELD_SQUARES, plan, sum + VLEN<T>);
    }
    __syncthreads();
    merge_held<T>(shape, plan, w.image, w.c - (threadIdx.x & (plan.across - 1)) * VLEN<T>,
                  shared.tables, state);
    __syncthreads();
}

/* Statistics that are known. */
template <rg_dtype T>
static __device__ __forceinline__ void
take_statistics(const rg_group_norm_shape &shape, const held_plan &plan, const norm_work &w,
                real<T> *tables, const void *mean, const void *rest, const void *s)
{
    const int64_t first = w.c - (threadIdx.x & (plan.across - 1)) * VLEN<T>;
    for (int c = (int)threadIdx.x; c < plan.channels; c += HELD_THREADS) {
        const int64_t group = (first + c) / plan.each, i = w.image * shape.groups + group;
        const bool inside = first + c < shape.channels.channels;
        tables[HELD_MEAN * plan.channels + c] = inside ? ((const real<T> *)mean)[i] : 0;
        tables[HELD_REST * plan.channels + c] = inside ? ((const real<T> *)rest)[i] : 0;
        tables[HELD_S * plan.channels + c] = inside ? ((const real<T> *)s)[i] : 0;
    }
    __syncthreads();
}

/* Columns of a thread from tables; scale holds gamma, and shift beta. */
template <rg_dtype T>
static __device__ __forceinline__ void held_columns(const real<T> *tables, const held_plan &plan,
                                                    norm_columns<T> &c)
{
    real<T> rest[VLEN<T>];
    get_table<T>(tables, HELD_MEAN, plan, c.mean);
    get_table<T>(tables, HELD_REST, plan, rest);
    get_table<T>(tables, HELD_S, plan, c.s);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        c.scale[e] = c.gamma[e] * c.s[e];
        c.shift[e] = fma(-rest[e], c.scale[e], c.shift[e]);
    }
}

template <rg_dtype T>
static __device__ __forceinline__ void held_parameters(const rg_norm_parameters &p,
                                                       const void *gamma, const void *beta,
                                                       const norm_work &w, norm_columns<T> &c)
{
    load_parameter<T>(gamma, p.gamma_step, p.has_gamma, 1, p.dtype, w.c, w.left, c.gamma);
    load_parameter<T>(beta, p.beta_step, p.has_beta, 0, p.dtype, w.c, w.left, c.shift);
}

/* ---- forward ---- */

template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(HELD_THREADS, 3)
    held_forward(const __grid_constant__ rg_group_norm_args a,
                 const __grid_constant__ held_plan plan)
{
    extern __shared__ uint4 memory[];
    const rg_channels &s = a.shape.channels;
    const norm_work w = norm_work_of<T>(s, plan.across, plan.chunks, blockIdx.x);
    const held_shared<T> shared = held_shared_of<T>(memory, plan, 1);
    const neuron_constants<T> neuron = neuron_constants_in<T>(a.shape.neuron.numbers);
    norm_columns<T> c;
    real<T> pivot[VLEN<T>] = {};
    hold_rows<T, FAST>(s, 0, a.x, w, shared.own);
    if (w.left > 0)
        choose_pivots<T, FAST>(s, 0, a.x, w, pivot);
    held_parameters<T>(a.shape.parameters, a.gamma, a.beta, w, c);
    await_copies();
    held_statistics<T>(a.shape, plan, w, shared.own, pivot, shared, { a.mean, a.rest, a.s });
    held_columns<T>(shared.tables, plan, c);
    const int rows = w.left > 0 ? (int)w.end : 0;
    const uint4 *own = shared.own;
    char *to = FAST ? at<T>(a.y, norm_offset<FAST>(s, 1, w, w.begin)) : nullptr;
    const int64_t step = w.down * s.rows.strides[1][0] * (int64_t)sizeof(element<T>);
#pragma unroll 2
    for (int row = (int)w.begin; row < rows; row += w.down, own += HELD_THREADS, to += step) {
        real<T> v[VLEN<T>];
        unpack<T>(*own, v);
        make_y<T, NEURON>(c, a.shape.neuron.kind, neuron, v);
        if (FAST)
            store_vector(to, pack<T>(v), a.shape.stream);
        else
            store_columns<T, FAST>(a.y, norm_offset<FAST>(s, 1, w, row), s.step[1], w.left, false,
                                   false, v);
    }
}

/* The statistics alone, with the bits of held_forward: for a gradient that holds no rows itself. */
template <rg_dtype T, bool FAST>
static __global__ void __launch_bounds__(HELD_THREADS, 3)
    held_moments(const __grid_constant__ rg_group_norm_args a,
                 const __grid_constant__ held_plan plan)
{
    extern __shared__ uint4 memory[];
    const rg_channels &s = a.shape.channels;
    const norm_work w = norm_work_of<T>(s, plan.across, plan.chunks, blockIdx.x);
    const held_shared<T> shared = held_shared_of<T>(memory, plan, 1);
    real<T> pivot[VLEN<T>] = {};
    hold_rows<T, FAST>(s, 0, a.x, w, shared.own);
    if (w.left > 0)
        choose_pivots<T, FAST>(s, 0, a.x, w, pivot);
    await_copies();
    held_statistics<T>(a.shape, plan, w, shared.own, pivot, shared, { a.mean, a.rest, a.s });
}

/* ---- gradient ---- */

/* Gradients of parameters of the image, and what dx is made of, from sums of channels. */
template <rg_dtype T>
static __device__ __forceinline__ void join_held(const rg_group_norm_gradient_args &a,
                                                 const held_plan &plan, int64_t image,
                                                 int64_t first_channel, real<T> *tables)
{
    const int thread = (int)threadIdx.x % HELD_WARP, n = plan.channels;
    const int64_t channels = a.shape.channels.channels, at = image * channels + first_channel;
    const double m = (double)plan.each * (double)a.shape.channels.rows.count;
    each_group(plan, first_channel, channels, [&](int first, int64_t) {
        const double rest = tables[HELD_REST * n + first], s = tables[HELD_S * n + first];
        double all = 0, products = 0;
        for (int c = first + thread; c < first + plan.each; c += HELD_WARP) {
            const double sum = tables[HELD_SUM_G * n + c], product = tables[HELD_SUM_GT * n + c];
            const double xh = s * (product - rest * sum),
                         gamma = gamma_of(a.gamma, a.shape.parameters, first_channel + c);
            all += gamma * sum;
            products += gamma * xh;
            if (a.wants_sums) {
                ((real<T> *)a.dbetas)[at + c] = (real<T>)sum;
                ((real<T> *)a.dgammas)[at + c] = (real<T>)xh;
            }
        }
        all = reduce(all, HELD_WARP, (double *)nullptr, false);
        products = reduce(products, HELD_WARP, (double *)nullptr, false);
        const double weight = s * (products / m), offset = all / m - rest * weight;
        for (int c = first + thread; c < first + plan.each; c += HELD_WARP) {
            tables[HELD_OFFSET * n + c] = (real<T>)offset;
            tables[HELD_WEIGHT * n + c] = (real<T>)weight;
        }
    });
}

/* Sums of what is held; then dbetas and dgammas of the image, and tables of what dx is made of. */
template <rg_dtype T, int NEURON>
static __device__ __forceinline__ void
held_sums(const rg_group_norm_gradient_args &a, const held_plan &plan, const norm_work &w,
          const norm_columns<T> &c, const neuron_constants<T> &neuron, const held_shared<T> &shared)
{
    real<T> sum[2 * VLEN<T>] = {};
    const int rows = w.left > 0 ? (int)w.end : 0, second = plan.slots * HELD_THREADS;
    const uint4 *own = shared.own;
#pragma unroll 2
    for (int row = (int)w.begin; row < rows; row += w.down, own += HELD_THREADS) {
        real<T> g[VLEN<T>], t[VLEN<T>];
        take_gradient<T, NEURON>(own[0], own[second], c, a.shape.neuron.kind, neuron, g, t);
        add_gradient<T>(g, t, sum);
    }
    reduce_down<2 * VLEN<T>>(sum, plan.across, shared.partial, false);
    if ((int)threadIdx.x < plan.across) {
        put_table<T>(shared.tables, HELD_SUM_G, plan, sum);
        put_table<T>(shared.tables, HELD_SUM_GT, plan, sum + VLEN<T>);
    }
    __syncthreads();
    join_held<T>(a, plan, w.image, w.c - (threadIdx.x & (plan.across - 1)) * VLEN<T>,
                 shared.tables);
    __syncthreads();
}

template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(HELD_THREADS, 2)
    held_gradient(const __grid_constant__ rg_group_norm_gradient_args a,
                  const __grid_constant__ held_plan plan)
{
    extern __shared__ uint4 memory[];
    const rg_channels &s = a.shape.channels;
    const norm_work w = norm_work_of<T>(s, plan.across, plan.chunks, blockIdx.x);
    const held_shared<T> shared = held_shared_of<T>(memory, plan, 2);
    const neuron_constants<T> neuron = neuron_constants_in<T>(a.shape.neuron.numbers);
    const int second = plan.slots * HELD_THREADS;
    norm_columns<T> c;
    real<T> pivot[VLEN<T>] = {}, offset[VLEN<T>], weight[VLEN<T>];
    hold_rows<T, FAST>(s, 1, a.x, w, shared.own + second);
    hold_rows<T, FAST>(s, 0, a.dy, w, shared.own);
    held_parameters<T>(a.shape.parameters, a.gamma, a.beta, w, c);
    if (!a.has_statistics && w.left > 0)
        choose_pivots<T, FAST>(s, 1, a.x, w, pivot);
    if (a.has_statistics)
        take_statistics<T>(a.shape, plan, w, shared.tables, a.mean, a.rest, a.s);
    await_copies();
    if (!a.has_statistics)
        held_statistics<T>(a.shape, plan, w, shared.own + second, pivot, shared,
                           { a.mean, a.rest, a.s });
    held_columns<T>(shared.tables, plan, c);
    held_sums<T, NEURON>(a, plan, w, c, neuron, shared);
    if (!a.wants_dx)
        return;
    get_table<T>(shared.tables, HELD_OFFSET, plan, offset);
    get_table<T>(shared.tables, HELD_WEIGHT, plan, weight);
    const int rows = w.left > 0 ? (int)w.end : 0;
    const uint4 *own = shared.own;
    int64_t to = FAST ? norm_offset<FAST>(s, 2, w, w.begin) : 0;
    const int64_t step = w.down * s.rows.strides[2][0];
#pragma unroll 2
    for (int row = (int)w.begin; row < rows; row += w.down, own += HELD_THREADS, to += step) {
        real<T> g[VLEN<T>], t[VLEN<T>];
        take_gradient<T, NEURON>(own[0], own[second], c, a.shape.neuron.kind, neuron, g, t);
        make_dx<T>(c, offset, weight, false, g, t);
        store_columns<T, FAST>(a.dx, FAST ? to : norm_offset<FAST>(s, 2, w, row), s.step[2], w.left,
                               a.add, a.shape.stream, g);
    }
}

/* ---- host side ---- */

/* Whether blocks can hold whole groups of `tensors` tensors. They take 64 bytes of a row, or as
 * many as whole groups need. */
template <rg_dtype T>
static bool held_plan_of(const rg_group_norm_shape *shape, int tensors,
                         const rg_cuda_target *target, held_plan *plan)
{
    const int64_t most = 112 << 10; /* bytes: two blocks of a multiprocessor */
    const rg_channels *s = &shape->channels;
    const int64_t each = s->channels / shape->groups, vectors = ceil_div(s->channels, VLEN<T>);
    int across = power_of_two(vectors, 1, 4);
    while (across < vectors && across * VLEN<T> % each != 0 && across < NORM_ACROSS)
        across *= 2;
    if (across < vectors && across * VLEN<T> % each != 0)
        return false;
    const int64_t slots = ceil_div(s->rows.count, HELD_THREADS / across);
    plan->across = across;
    plan->slots = (int)slots;
    plan->channels = across * VLEN<T>;
    plan->each = (int)each;
    plan->chunks = ceil_div(vectors, across);
    if (s->rows.count == 0 || slots * HELD_THREADS * 16 * tensors > most)
        return false;
    const int span = across < 32 ? 32 : across;
    plan->shared = slots * HELD_THREADS * 16 * tensors +
                   (HELD_TABLES * plan->channels +
                    (int64_t)(HELD_THREADS / span) * across * 2 * VLEN<T>)*(int64_t)sizeof(real<T>);
    return plan->shared <= target->shared;
}

/* An image as one part. */
static void join_parts(rg_channels *s)
{
    s->part = s->rows.count;
    s->parts = 1;
}

template <rg_dtype T>
static bool launch_forward(const rg_group_norm_args *k, const rg_cuda_target *target)
{
    const rg_channels *s = &k->shape.channels;
    const void *const data[] = { k->x, k->y };
    held_plan plan;
    if (!held_plan_of<T>(&k->shape, 1, target, &plan))
        return false;
    rg_group_norm_args own = *k;
    join_parts(&own.shape.channels);
    launch(NORM_KERNEL(held_forward, norm_is_fast<T>(s, data, 2), k->shape.neuron.kind),
           s->images.count * plan.chunks, HELD_THREADS, plan.shared, target, own, plan);
    return true;
}

template <rg_dtype T>
static bool launch_gradient(const rg_group_norm_gradient_args *k, const rg_cuda_target *target)
{
    const rg_channels *s = &k->shape.channels;
    const void *const data[] = { k->dy, k->x, k->dx };
    held_plan plan;
    if (!held_plan_of<T>(&k->shape, 2, target, &plan))
        return false;
    rg_group_norm_gradient_args own = *k;
    join_parts(&own.shape.channels);
    launch(NORM_KERNEL(held_gradient, norm_is_fast<T>(s, data, 3), k->shape.neuron.kind),
           s->images.count * plan.chunks, HELD_THREADS, plan.shared, target, own, plan);
    return true;
}

template <rg_dtype T>
static bool launch_moments(const rg_group_norm_gradient_args *k, const rg_channels *x_shape,
                           const rg_cuda_target *target)
{
    held_plan plan;
    if (!held_plan_of<T>(&k->shape, 1, target, &plan))
        return false;
    rg_group_norm_args own = {};
    own.x = k->x;
    own.mean = k->mean;
    own.rest = k->rest;
    own.s = k->s;
    own.shape = k->shape;
    own.shape.channels = *x_shape;
    join_parts(&own.shape.channels);
    const void *const data[] = { k->x };
    launch(norm_is_fast<T>(x_shape, data, 1) ? held_moments<T, true> : held_moments<T, false>,
           x_shape->images.count * plan.chunks, HELD_THREADS, plan.shared, target, own, plan);
    return true;
}

rg_group_norm_held *const rg_group_norm_held_columns[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(launch_forward);
rg_group_norm_held_gradient *const rg_group_norm_held_columns_gradient[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(launch_gradient);
rg_group_norm_held_statistics *const rg_group_norm_held_moments[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(launch_moments);
