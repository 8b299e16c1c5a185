/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the kernels of group normalization of rows share: every image is one row. */
#ifndef RG_OPS_GROUP_NORM_ROWS_CUH
#define RG_OPS_GROUP_NORM_ROWS_CUH

#include "ops/norm/norm.cuh"
#include "ops/group_norm/group_norm.h"

enum { ROW_THREADS = 256, ROW_WARP = 32 };

/* A thread has every `threads_per_row`th vector of a group of its row. */
typedef struct row_call {
    int64_t groups, each, images, part;
    double epsilon, inverse; /* inverse: 1 / each */
    rg_norm_parameters parameters;
    rg_norm_neuron neuron;
    int threads_per_row;
    bool stream, known, wants_dx, wants_sums, add;
    bool sums_in_shared; /* those of channels */
} row_call;

/* Numbers of a row that all its threads have. */
template <rg_dtype T> struct row_numbers {
    real<T> mean, rest, s;
};

template <rg_dtype T>
static __device__ __forceinline__ void put_statistics(void *mean, void *rest, void *s, int64_t i,
                                                      const row_numbers<T> &q)
{
    ((real<T> *)mean)[i] = q.mean;
    ((real<T> *)rest)[i] = q.rest;
    ((real<T> *)s)[i] = q.s;
}

/* Statistics that the state holds. */
template <rg_dtype T>
static __device__ __forceinline__ row_numbers<T>
known_statistics(const rg_group_norm_gradient_args &a, int64_t i)
{
    return { ((const real<T> *)a.mean)[i], ((const real<T> *)a.rest)[i],
             ((const real<T> *)a.s)[i] };
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

static inline row_call row_call_of(const rg_group_norm_shape *shape)
{
    row_call k = {};
    k.groups = shape->groups;
    k.each = shape->channels.channels / shape->groups;
    k.images = shape->channels.images.count;
    k.part = shape->part;
    k.epsilon = shape->epsilon;
    k.inverse = 1 / (double)k.each;
    k.parameters = shape->parameters;
    k.neuron = shape->neuron;
    k.stream = shape->stream;
    return k;
}

static inline row_call row_gradient_call_of(const rg_group_norm_gradient_args *args)
{
    row_call k = row_call_of(&args->shape);
    k.known = args->has_statistics;
    k.wants_dx = args->wants_dx;
    k.wants_sums = args->wants_sums;
    k.add = args->add;
    return k;
}

#endif
