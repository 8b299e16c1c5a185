/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization of columns on a GPU, of images of several rows: group_norm_held_columns.cu
 * where it suits. Otherwise statistics of parts are merged to those of groups, and memory sees as
 * many images at once as the cache keeps until they are read again. */
#include "ops/group_norm/group_norm_held.cuh"
#include "ops/norm/norm.cuh"

enum { THREADS = 256, WARP = 32 };

/* ---- groups ---- */

/* As many images at a time as the second-level cache keeps until they are read again. */
static int64_t images_at_once(const rg_channels *s, int64_t bytes)
{
    const int64_t budget = 32 << 20, each = s->rows.count * s->channels * bytes;
    const int64_t images = each > 0 ? budget / each : s->images.count;
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
    return own; /* of thread 0 */
}

/* Mean, its rest and s of a group by a warp, whose threads share channels and parts. */
template <rg_dtype T>
static __device__ void merge_group(const group_tables &k, int64_t image, int64_t group, int thread)
{
    const real<T> *from = (const real<T> *)k.partial +
                          image * k.parts * RG_NORM_PARTIAL * k.channels + group * k.each;
    const double pivot = k.parts > 0 ? (double)from[0] : 0;
    rg_norm_moments all = { 0, 0, 0 };
    for (int64_t i = thread; i < k.parts * k.each; i += WARP) {
        const int64_t part = i / k.each, left = k.rows - part * k.part;
        const real<T> *p = from + part * RG_NORM_PARTIAL * k.channels + i % k.each;
        const rg_norm_moments next = { (double)(left < k.part ? left : k.part),
                                       ((double)p[RG_NORM_PIVOT * k.channels] - pivot) +
                                           (double)p[RG_NORM_REST * k.channels],
                                       (double)p[RG_NORM_SQUARES * k.channels] };
        all = rg_norm_join(all, next);
    }
    all = join_warp(all);
    if (thread != 0)
        return;
    const double mean = (double)(real<T>)(pivot + all.mean);
    const int64_t to = image * k.groups + group;
    ((real<T> *)k.mean)[to] = (real<T>)mean;
    ((real<T> *)k.rest)[to] = (real<T>)((pivot - mean) + all.mean);
    ((real<T> *)k.s)[to] = (real<T>)(1 / sqrt((all.n > 0 ? all.squares / all.n : 0) + k.epsilon));
}

/* A warp has a group of an image. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    merge_groups(const __grid_constant__ group_tables k)
{
    const int thread = (int)threadIdx.x % WARP;
    const int64_t own = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (own >= k.count)
        return; /* the whole warp */
    const int64_t image = (k.first + own) / k.groups, group = (k.first + own) % k.groups;
    if (!k.known)
        merge_group<T>(k, image, group, thread);
    __syncwarp();
    const int64_t at = image * k.groups + group;
    const real<T> mean = ((const real<T> *)k.mean)[at], rest = ((const real<T> *)k.rest)[at];
    const real<T> s = ((const real<T> *)k.s)[at];
    real<T> *to = (real<T> *)k.moments + image * RG_NORM_MOMENTS * k.channels + group * k.each;
    for (int64_t c = thread; c < k.each; c += WARP) {
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
    const int thread = (int)threadIdx.x % WARP;
    const int64_t own = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (own >= k.count)
        return; /* the whole warp */
    const int64_t image = (k.first + own) / k.groups, group = (k.first + own) % k.groups;
    const int64_t at = image * k.groups + group, first = group * k.each;
    const double rest = ((const real<T> *)k.rest)[at], s = ((const real<T> *)k.s)[at];
    const real<T> *from = (const real<T> *)k.partial + image * k.parts * 2 * k.channels + first;
    double all = 0, products = 0;
    for (int64_t c = thread; c < k.each; c += WARP) {
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
    for (int64_t c = thread; c < k.each; c += WARP) {
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
                          int64_t count, const rg_cuda_target *target)
{
    k->first = first * k->groups;
    k->count = count * k->groups;
    launch(kernel, ceil_div(k->count, THREADS / WARP), THREADS, 0, target, *k);
}

/* ---- forward ---- */

template <rg_dtype T> static void columns_forward(const void *args, const rg_cuda_target *target)
{
    const rg_group_norm_args *k = (const rg_group_norm_args *)args;
    const rg_channels *s = &k->shape.channels;
    if (launch_held(rg_group_norm_held_columns[T], k, target))
        return;
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
            rg_norm_parts[T](k->x, k->partial, s, i * s->parts, count * s->parts, target);
        launch_groups(merge_groups<T>, &tables, i, count, target);
        norm_call call = norm_call_of<T>(s, &k->shape.parameters, &k->shape.neuron, i * s->parts,
                                         count * s->parts);
        call.stream = k->shape.stream;
        if (s->parts > 0)
            rg_norm_forward[T](k->x, k->gamma, k->beta, k->moments, k->y, s, &call, target);
    }
}

/* ---- gradient ---- */

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

template <rg_dtype T> static void columns_gradient(const void *args, const rg_cuda_target *target)
{
    const rg_group_norm_gradient_args *k = (const rg_group_norm_gradient_args *)args;
    const rg_channels *s = &k->shape.channels;
    const rg_channels x_shape = shape_of_x(s);
    if (launch_held(rg_group_norm_held_columns_gradient[T], k, target))
        return;
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
    tables.known = k->has_statistics || (!rg_choices_forces(target->choices, "passes") &&
                                         rg_group_norm_held_moments[T](k, &x_shape, target));
    tables.wants_sums = k->wants_sums;
    const norm_inputs in = { k->dy, k->x, k->gamma, k->beta, k->moments };
    for (int64_t i = 0; i < s->images.count; i += images) {
        const int64_t left = s->images.count - i, count = left < images ? left : images;
        norm_call call = norm_call_of<T>(s, &k->shape.parameters, &k->shape.neuron, i * s->parts,
                                         count * s->parts);
        if (!tables.known && s->parts > 0)
            rg_norm_parts[T](k->x, k->partial, &x_shape, call.first, call.count, target);
        launch_groups(merge_groups<T>, &tables, i, count, target);
        if (s->parts > 0)
            rg_norm_sums[T](in, k->partial, s, &call, target);
        launch_groups(join_groups<T>, &tables, i, count, target);
        call.add = k->add;
        call.stream = k->shape.stream;
        if (s->parts > 0 && k->wants_dx)
            rg_norm_gradient[T](in, k->factors, k->dx, s, &call, target);
    }
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_GROUP_NORM_COLUMNS, columns_forward),
    RG_CUDA_ROW(RG_GROUP_NORM_COLUMNS_GRADIENT, columns_gradient),
};
RG_CUDA_TABLE(group_norm_columns, kernel_rows, held_strategy);
