/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation on a GPU. */
#include "ops/batch_norm/norm.cuh"
#include "ops/group_norm/group_norm.h"

enum { THREADS = 256, WARP = 32 };

/* ---- columns: images of several rows ---- */

/* As many images at a time as the second-level cache keeps until they are read again. */
static int64_t images_at_once(const rg_channels *s, int64_t bytes)
{
    const int64_t room = 32 << 20, each = s->rows.count * s->channels * bytes;
    const int64_t images = each > 0 ? room / each : s->images.count;
    return images < 1 ? 1 : images < s->images.count ? images : s->images.count;
}

/* What the kernels over groups read and write; see group_norm.h. */
typedef struct group_tables {
    const void *partial;
    const void *gamma;
    void *mean, *rest, *s, *moments, *factors, *dgammas, *dbetas;
    int64_t first, count; /* groups of all images: the first, and how many */
    int64_t channels, groups, each, rows, part, parts;
    double epsilon;
    rg_norm_parameters parameters;
    bool known, wants_sums;
} group_tables;

static __device__ rg_norm_moments join_warp(rg_norm_moments own)
{
    for (int m = 1; m < WARP; m *= 2) {
        const rg_norm_moments other = { __shfl_down_sync(~0u, own.n, m),
                                        __shfl_down_sync(~0u, own.mean, m),
                                        __shfl_down_sync(~0u, own.squares, m) };
        own = rg_norm_join(own, other);
    }
    return own; /* of lane 0 */
}

/* Mean, its rest and s of a group by the lanes of a warp, which share channels and parts. */
template <rg_dtype T>
static __device__ void merge_group(const group_tables &k, int64_t image, int64_t group, int lane)
{
    const real<T> *from = (const real<T> *)k.partial +
                          image * k.parts * RG_NORM_PARTIAL * k.channels + group * k.each;
    const double near = k.parts > 0 ? (double)from[0] : 0;
    rg_norm_moments all = { 0, 0, 0 };
    for (int64_t i = lane; i < k.parts * k.each; i += WARP) {
        const int64_t part = i / k.each, left = k.rows - part * k.part;
        const real<T> *p = from + part * RG_NORM_PARTIAL * k.channels + i % k.each;
        const rg_norm_moments next = { (double)(left < k.part ? left : k.part),
                                       ((double)p[RG_NORM_NEAR * k.channels] - near) +
                                           (double)p[RG_NORM_REST * k.channels],
                                       (double)p[RG_NORM_SQUARES * k.channels] };
        all = rg_norm_join(all, next);
    }
    all = join_warp(all);
    if (lane != 0)
        return;
    const double mean = (double)(real<T>)(near + all.mean);
    const int64_t to = image * k.groups + group;
    ((real<T> *)k.mean)[to] = (real<T>)mean;
    ((real<T> *)k.rest)[to] = (real<T>)((near - mean) + all.mean);
    ((real<T> *)k.s)[to] = (real<T>)(1 / sqrt((all.n > 0 ? all.squares / all.n : 0) + k.epsilon));
}

/* A warp has a group of an image. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    merge_groups(const __grid_constant__ group_tables k)
{
    const int lane = (int)threadIdx.x % WARP;
    const int64_t own = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (own >= k.count)
        return; /* the whole warp */
    const int64_t image = (k.first + own) / k.groups, group = (k.first + own) % k.groups;
    if (!k.known)
        merge_group<T>(k, image, group, lane);
    __syncwarp();
    const int64_t at = image * k.groups + group;
    const real<T> mean = ((const real<T> *)k.mean)[at], rest = ((const real<T> *)k.rest)[at];
    const real<T> s = ((const real<T> *)k.s)[at];
    real<T> *to = (real<T> *)k.moments + image * RG_NORM_MOMENTS * k.channels + group * k.each;
    for (int64_t c = lane; c < k.each; c += WARP) {
        to[RG_NORM_MEAN * k.channels + c] = mean;
        to[RG_NORM_MEAN_REST * k.channels + c] = rest;
        to[RG_NORM_S * k.channels + c] = s;
    }
}

/* dbeta and dgamma of the channels of a group, and what dx is made of. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    join_groups(const __grid_constant__ group_tables k)
{
    const int lane = (int)threadIdx.x % WARP;
    const int64_t own = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (own >= k.count)
        return; /* the whole warp */
    const int64_t image = (k.first + own) / k.groups, group = (k.first + own) % k.groups;
    const int64_t at = image * k.groups + group, first = group * k.each;
    const double rest = ((const real<T> *)k.rest)[at], s = ((const real<T> *)k.s)[at];
    const real<T> *from = (const real<T> *)k.partial + image * k.parts * 2 * k.channels + first;
    double all = 0, products = 0;
    for (int64_t c = lane; c < k.each; c += WARP) {
        double sum = 0, product = 0;
        for (int64_t part = 0; part < k.parts; part++) {
            sum += (double)from[part * 2 * k.channels + c];
            product += (double)from[(part * 2 + 1) * k.channels + c];
        }
        const double xh = s * (product - rest * sum),
                     gamma = gamma_of(k.gamma, k.parameters, first + c);
        all += gamma * sum;
        products += gamma * xh;
        if (k.wants_sums) {
            ((real<T> *)k.dbetas)[image * k.channels + first + c] = (real<T>)sum;
            ((real<T> *)k.dgammas)[image * k.channels + first + c] = (real<T>)xh;
        }
    }
    all = reduce(all, WARP, (double *)nullptr, false);
    products = reduce(products, WARP, (double *)nullptr, false);
    const double m = (double)k.each * (double)k.rows, weight = s * (products / m);
    const double offset = all / m - rest * weight;
    real<T> *to = (real<T> *)k.factors + image * RG_NORM_FACTORS * k.channels + first;
    for (int64_t c = lane; c < k.each; c += WARP) {
        to[RG_NORM_OFFSET * k.channels + c] = (real<T>)offset;
        to[RG_NORM_WEIGHT * k.channels + c] = (real<T>)weight;
    }
}

static group_tables tables_of(const rg_group_norm_shape *shape)
{
    const rg_channels *s = &shape->channels;
    group_tables k = {};
    k.channels = s->channels;
    k.groups = shape->groups;
    k.each = s->channels / shape->groups;
    k.rows = s->rows.count;
    k.part = s->part;
    k.parts = s->parts;
    k.epsilon = shape->epsilon;
    k.parameters = shape->parameters;
    return k;
}

/* Images first to first + count - 1. */
static void launch_groups(void (*kernel)(group_tables), group_tables *k, int64_t first,
                          int64_t count, const rg_cuda_place *place)
{
    k->first = first * k->groups;
    k->count = count * k->groups;
    launch(kernel, ceil_div(k->count, THREADS / WARP), THREADS, 0, place, *k);
}

template <rg_dtype T> static void columns_forward(const void *args, const rg_cuda_place *place)
{
    const rg_group_norm_args *k = (const rg_group_norm_args *)args;
    const rg_channels *s = &k->shape.channels;
    const void *const data[] = { k->x, k->y };
    const bool fast = norm_is_fast<T>(s, data, 2);
    const int64_t images = images_at_once(s, sizeof(element<T>));
    group_tables tables = tables_of(&k->shape);
    tables.partial = k->partial;
    tables.mean = k->mean;
    tables.rest = k->rest;
    tables.s = k->s;
    tables.moments = k->moments;
    for (int64_t i = 0; i < s->images.count; i += images) {
        const int64_t left = s->images.count - i, count = left < images ? left : images;
        if (s->parts > 0)
            launch_parts<T>(k->x, k->partial, s, i * s->parts, count * s->parts, place);
        launch_groups(merge_groups<T>, &tables, i, count, place);
        norm_call call = norm_call_of<T>(s, &k->shape.parameters, &k->shape.neuron, i * s->parts,
                                         count * s->parts);
        call.stream = k->shape.stream;
        if (s->parts > 0)
            launch(NORM_KERNEL(norm_forward, fast, k->shape.neuron.kind), call.count * call.chunks,
                   NORM_THREADS, 0, place, k->x, k->gamma, k->beta, (const void *)k->moments, k->y,
                   *s, call);
    }
}

/* ---- rows: every image is one row ---- */

/* A thread has every `lanes`th vector of a group of a row; `lanes` threads share a row. */
typedef struct row_call {
    int64_t groups, each, images, part;
    double epsilon;
    rg_norm_parameters parameters;
    rg_norm_neuron neuron;
    int lanes;
    bool stream, known, wants_dx, wants_sums, add, shared;
} row_call;

/* Numbers of a row that all its threads have. */
template <rg_dtype T> struct row_numbers {
    real<T> mean, rest, s;
};

template <rg_dtype T> static __device__ __forceinline__ int row_left(const row_call &k, int64_t c)
{
    return k.each - c < VLEN<T> ? (int)(k.each - c) : VLEN<T>;
}

/* Statistics of a group whose first element stands at `at`. */
template <rg_dtype T, bool FAST>
static __device__ row_numbers<T> row_statistics(const row_call &k, const void *x, int64_t at,
                                                int64_t step, int lane, real<T> *room)
{
    const real<T> near = middle_of(load<T>(x, at), load<T>(x, at + k.each / 2 * step),
                                   load<T>(x, at + (k.each - 1) * step));
    real<T> sum = 0, squares = 0;
    for (int64_t c = (int64_t)lane * VLEN<T>; c < k.each; c += (int64_t)k.lanes * VLEN<T>) {
        real<T> d[VLEN<T>];
        const int left = row_left<T>(k, c);
        load_columns<T, FAST>(x, at + c * step, step, left, d);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) {
            d[e] = e < left ? d[e] - near : 0;
            sum += d[e];
            squares = fma(d[e], d[e], squares);
        }
    }
    sum = reduce(sum, k.lanes, room, false);
    squares = reduce(squares, k.lanes, room + WARP, false);
    __syncthreads(); /* `room` is free again */
    const double n = (double)k.each, rest = (double)sum / n;
    const double around = (double)squares - (double)sum * rest;
    const double mean = (double)(real<T>)((double)near + rest);
    return { (real<T>)mean, (real<T>)(((double)near - mean) + rest),
             (real<T>)(1 / sqrt((around < 0 ? 0 : around / n) + k.epsilon)) };
}

template <rg_dtype T>
static __device__ __forceinline__ void row_parameter(const void *data, int64_t step, bool has,
                                                     real<T> otherwise, rg_dtype dtype, int64_t c,
                                                     int left, real<T> x[VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = has && e < left ? (real<T>)load_any(data, (c + e) * step, dtype) : otherwise;
}

/* scale and shift of z = t scale + shift, and gamma. */
template <rg_dtype T>
static __device__ __forceinline__ void row_columns(const row_call &k, const void *gamma,
                                                   const void *beta, const row_numbers<T> &q,
                                                   int64_t c, int left, real<T> scale[VLEN<T>],
                                                   real<T> shift[VLEN<T>], real<T> own[VLEN<T>])
{
    const rg_norm_parameters &p = k.parameters;
    row_parameter<T>(gamma, p.gamma_step, p.has_gamma, 1, p.dtype, c, left, own);
    row_parameter<T>(beta, p.beta_step, p.has_beta, 0, p.dtype, c, left, shift);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        scale[e] = own[e] * q.s;
        shift[e] = fma(-q.rest, scale[e], shift[e]);
    }
}

/* Whole rows of threads: those behind the last image take that one, and write nothing. */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(THREADS)
    norm_rows(const void *x, const void *gamma, const void *beta, void *mean, void *rest, void *s,
              void *y, const __grid_constant__ rg_channels shape,
              const __grid_constant__ row_call k)
{
    __shared__ real<T> room[2 * WARP];
    const int lane = (int)threadIdx.x % k.lanes;
    const int64_t row = (int64_t)blockIdx.x * (THREADS / k.lanes) + threadIdx.x / k.lanes;
    const bool inside = row < k.images;
    const int64_t image = inside ? row : k.images - 1;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const int64_t from = walk_offset(shape.images, 0, image);
    const int64_t to = walk_offset(shape.images, 1, image);
    for (int64_t group = 0; group < k.groups; group++) {
        const int64_t first = group * k.each, at = from + first * shape.step[0];
        const row_numbers<T> q = row_statistics<T, FAST>(k, x, at, shape.step[0], lane, room);
        if (inside && lane == 0) {
            ((real<T> *)mean)[image * k.groups + group] = q.mean;
            ((real<T> *)rest)[image * k.groups + group] = q.rest;
            ((real<T> *)s)[image * k.groups + group] = q.s;
        }
        for (int64_t c = (int64_t)lane * VLEN<T>; inside && c < k.each;
             c += (int64_t)k.lanes * VLEN<T>) {
            real<T> v[VLEN<T>], scale[VLEN<T>], shift[VLEN<T>], own[VLEN<T>];
            const int left = row_left<T>(k, c);
            load_columns<T, FAST>(x, at + c * shape.step[0], shape.step[0], left, v);
            row_columns<T>(k, gamma, beta, q, first + c, left, scale, shift, own);
#pragma unroll
            for (int e = 0; e < VLEN<T>; e++) {
                v[e] = fma(v[e] - q.mean, scale[e], shift[e]);
                if constexpr (NEURON == NORM_RELU)
                    v[e] = neuron_relu<T>(neuron, v[e], v[e]);
                else if constexpr (NEURON == NORM_OTHER)
                    v[e] = any_neuron<T>(k.neuron.kind, neuron, v[e]);
            }
            store_columns<T, FAST>(y, to + (first + c) * shape.step[1], shape.step[1], left, false,
                                   k.stream, v);
        }
    }
}

/* Threads of a row: a warp, or a block where rows are long. */
template <rg_dtype T> static int row_lanes(int64_t each)
{
    return each <= 8 * WARP * VLEN<T> ? WARP : THREADS;
}

template <rg_dtype T>
static bool rows_are_fast(const rg_group_norm_shape *shape, const void *const data[], int tensors)
{
    const rg_channels *s = &shape->channels;
    bool fast = s->dense && s->channels / shape->groups % VLEN<T> == 0;
    for (int t = 0; t < tensors; t++)
        fast &= is_aligned<T>(data[t], &s->images, t);
    return fast;
}

static row_call row_call_of(const rg_group_norm_shape *shape)
{
    row_call k = {};
    k.groups = shape->groups;
    k.each = shape->channels.channels / shape->groups;
    k.images = shape->channels.images.count;
    k.part = shape->part;
    k.epsilon = shape->epsilon;
    k.parameters = shape->parameters;
    k.neuron = shape->neuron;
    k.stream = shape->stream;
    return k;
}

template <rg_dtype T> static void rows_forward(const void *args, const rg_cuda_place *place)
{
    const rg_group_norm_args *k = (const rg_group_norm_args *)args;
    const void *const data[] = { k->x, k->y };
    row_call call = row_call_of(&k->shape);
    call.lanes = row_lanes<T>(call.each);
    launch(NORM_KERNEL(norm_rows, rows_are_fast<T>(&k->shape, data, 2), call.neuron.kind),
           ceil_div(call.images, THREADS / call.lanes), THREADS, 0, place, k->x, k->gamma, k->beta,
           k->mean, k->rest, k->s, k->y, k->shape.channels, call);
}

/* ---- columns: gradient ---- */

/* A shape whose first tensor is x. */
static rg_channels shape_of_x(const rg_channels *s)
{
    rg_channels own = *s;
    own.step[0] = s->step[1];
    for (int d = 0; d < RG_MAX_RANK; d++) {
        own.rows.strides[0][d] = s->rows.strides[1][d];
        own.images.strides[0][d] = s->images.strides[1][d];
    }
    return own;
}

template <rg_dtype T> static void columns_gradient(const void *args, const rg_cuda_place *place)
{
    const rg_group_norm_gradient_args *k = (const rg_group_norm_gradient_args *)args;
    const rg_channels *s = &k->shape.channels;
    const rg_channels x_shape = shape_of_x(s);
    const void *const data[] = { k->dy, k->x, k->dx };
    const bool reads_fast = norm_is_fast<T>(s, data, 2), fast = norm_is_fast<T>(s, data, 3);
    const int64_t images = images_at_once(s, 2 * sizeof(element<T>));
    group_tables tables = tables_of(&k->shape);
    tables.partial = k->partial;
    tables.gamma = k->gamma;
    tables.mean = k->mean;
    tables.rest = k->rest;
    tables.s = k->s;
    tables.moments = k->moments;
    tables.factors = k->factors;
    tables.dgammas = k->dgammas;
    tables.dbetas = k->dbetas;
    tables.known = k->has_statistics;
    tables.wants_sums = k->wants_sums;
    for (int64_t i = 0; i < s->images.count; i += images) {
        const int64_t left = s->images.count - i, count = left < images ? left : images;
        norm_call call = norm_call_of<T>(s, &k->shape.parameters, &k->shape.neuron, i * s->parts,
                                         count * s->parts);
        if (!k->has_statistics && s->parts > 0)
            launch_parts<T>(k->x, k->partial, &x_shape, call.first, call.count, place);
        launch_groups(merge_groups<T>, &tables, i, count, place);
        if (s->parts > 0)
            launch(NORM_KERNEL(norm_sums, reads_fast, call.neuron.kind), call.count * call.chunks,
                   NORM_THREADS, 0, place, k->dy, k->x, k->gamma, k->beta, (const void *)k->moments,
                   k->partial, *s, call);
        launch_groups(join_groups<T>, &tables, i, count, place);
        call.add = k->add;
        call.stream = k->shape.stream;
        if (s->parts > 0 && k->wants_dx)
            launch(NORM_KERNEL(norm_gradient, fast, call.neuron.kind), call.count * call.chunks,
                   NORM_THREADS, 0, place, k->dy, k->x, k->gamma, k->beta, (const void *)k->moments,
                   (const void *)k->factors, k->dx, *s, call);
    }
}

/* ---- rows: gradient ---- */

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

/* A block has `part` images, of which THREADS / lanes at a time. Sums of every channel stand in
 * rows of `sums`, one for each image of these, and are joined in the end. */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(THREADS)
    norm_rows_gradient(const __grid_constant__ rg_group_norm_gradient_args a,
                       const __grid_constant__ row_call k)
{
    extern __shared__ double dynamic[];
    __shared__ real<T> room[2 * WARP];
    const rg_channels &shape = a.shape.channels;
    const int lane = (int)threadIdx.x % k.lanes, at_once = THREADS / k.lanes;
    const int64_t channels = shape.channels, unit = blockIdx.x;
    real<T> *const sums = k.shared ? (real<T> *)dynamic : (real<T> *)a.dgammas + unit * channels;
    real<T> *const dgamma = sums + (k.shared ? threadIdx.x / k.lanes * 2 * channels : 0);
    real<T> *const dbeta = k.shared ? dgamma + channels : (real<T> *)a.dbetas + unit * channels;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    for (int64_t c = lane; k.wants_sums && c < channels; c += k.lanes)
        dgamma[c] = dbeta[c] = 0;
    __syncthreads();
    const int64_t last = (unit + 1) * k.part < k.images ? (unit + 1) * k.part : k.images;
    for (int64_t base = unit * k.part; base < last; base += at_once) {
        const int64_t row = base + threadIdx.x / k.lanes;
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
                q = { ((const real<T> *)a.mean)[of], ((const real<T> *)a.rest)[of],
                      ((const real<T> *)a.s)[of] };
            else
                q = row_statistics<T, FAST>(k, a.x, x_at, shape.step[1], lane, room);
            real<T> g[VLEN<T>], t[VLEN<T>], scale[VLEN<T>], shift[VLEN<T>], own[VLEN<T>];
            real<T> sum = 0, product = 0;
            for (int64_t c = (int64_t)lane * VLEN<T>; k.wants_dx && c < k.each;
                 c += (int64_t)k.lanes * VLEN<T>) {
                const int left = row_left<T>(k, c);
                row_columns<T>(k, a.gamma, a.beta, q, first + c, left, scale, shift, own);
                row_gradients<T, FAST, NEURON>(k, shape, a.dy, a.x, dy_at, x_at, neuron, q, c, left,
                                               scale, shift, g, t);
#pragma unroll
                for (int e = 0; e < VLEN<T>; e++) {
                    const real<T> h = g[e] * own[e];
                    sum += h;
                    product = fma(h, t[e], product);
                }
            }
            sum = reduce(sum, k.lanes, room, false);
            product = reduce(product, k.lanes, room + WARP, false);
            __syncthreads(); /* `room` is free again */
            const double m = (double)k.each, s = q.s, rest = q.rest;
            const double wide = s * (s * ((double)product - rest * (double)sum) / m);
            const real<T> weight = (real<T>)wide, offset = (real<T>)((double)sum / m - rest * wide);
            for (int64_t c = (int64_t)lane * VLEN<T>; inside && c < k.each;
                 c += (int64_t)k.lanes * VLEN<T>) {
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
    if (!k.wants_sums || !k.shared)
        return; /* the whole block */
    __syncthreads();
    for (int64_t c = threadIdx.x; c < channels; c += THREADS) {
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
    const int64_t most_shared = 96 << 10;
    const rg_group_norm_gradient_args *k = (const rg_group_norm_gradient_args *)args;
    const void *const data[] = { k->dy, k->x, k->dx };
    row_call call = row_call_of(&k->shape);
    const int64_t bytes = 2 * k->shape.channels.channels * (int64_t)sizeof(real<T>);
    call.lanes = row_lanes<T>(call.each);
    if (bytes * (THREADS / call.lanes) > most_shared)
        call.lanes = THREADS;
    call.shared = bytes * (THREADS / call.lanes) <= most_shared;
    call.known = k->has_statistics;
    call.wants_dx = k->wants_dx;
    call.wants_sums = k->wants_sums;
    call.add = k->add;
    launch(NORM_KERNEL(norm_rows_gradient, rows_are_fast<T>(&k->shape, data, 3), call.neuron.kind),
           ceil_div(call.images, call.part), THREADS,
           call.shared && call.wants_sums ? bytes * (THREADS / call.lanes) : 0, place, *k, call);
}

/* ---- gradients of parameters ---- */

enum { CHANNELS = 8 };

/* A block has a few channels, and 32 threads for each, which share the sums. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    join_images(const __grid_constant__ rg_group_norm_join_args k)
{
    __shared__ double room[THREADS];
    const int64_t c = (int64_t)blockIdx.x * CHANNELS + threadIdx.x % CHANNELS;
    const bool inside = c < k.channels;
    double sum[1] = { 0 };
    for (int64_t i = threadIdx.x / CHANNELS; inside && i < k.count; i += THREADS / CHANNELS)
        sum[0] += (double)((const real<T> *)k.from)[i * k.channels + c];
    reduce_down<1>(sum, CHANNELS, room, false);
    if (!inside || threadIdx.x >= CHANNELS)
        return;
    const double old = k.add ? load_any(k.to, c * k.step, k.dtype) : 0;
    store_any(k.to, c * k.step, k.dtype, k.add ? old + sum[0] : sum[0]);
}

template <rg_dtype T> static void join(const void *args, const rg_cuda_place *place)
{
    const rg_group_norm_join_args *k = (const rg_group_norm_join_args *)args;
    launch(join_images<T>, ceil_div(k->channels, CHANNELS), THREADS, 0, place, *k);
}

/* ---- table, in the order of the kernels' ids ---- */

RG_CUDA_TABLE(group_norm, RG_GROUP_NORM_KERNELS) = {
    RG_CUDA_ROW(columns_forward), RG_CUDA_ROW(rows_forward), RG_CUDA_ROW(columns_gradient),
    RG_CUDA_ROW(rows_gradient),   RG_CUDA_ROW(join),
};
