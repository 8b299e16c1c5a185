/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The kernel of grad_scale, its args and its arithmetic. Valid C and valid CUDA. */
#ifndef RG_OPS_GRAD_SCALE_H
#define RG_OPS_GRAD_SCALE_H

#include "core/walk.h"

enum { RG_GRAD_SCALE_FORWARD, RG_GRAD_SCALE_KERNELS };

/* One unit does it all. Tensors that there are not are NULL. */
typedef struct rg_grad_scale_args {
    const void *squares, *scale;
    const int64_t *good, *step;
    void *factor, *norm, *new_scale;
    int64_t *new_good, *new_step;
    rg_walk walk; /* over squares */
    double max_norm, epsilon, growth, backoff;
    int64_t interval;
} rg_grad_scale_args;

typedef struct rg_grad_scale_values {
    double factor, norm, scale;
    int64_t good, step;
} rg_grad_scale_values;

static inline RG_HOST_DEVICE double rg_grad_scale_root(double a)
{
#ifdef __CUDA_ARCH__
    return sqrt(a);
#else
    return __builtin_sqrt(a);
#endif
}

/* `largest` is the largest number that a scale can be. */
static inline RG_HOST_DEVICE rg_grad_scale_values rg_grad_scale_of(const rg_grad_scale_args *k,
                                                                   double total, double scale,
                                                                   double largest)
{
    const bool fine = total - total == 0;
    const int64_t good = k->good != NULL ? *k->good : 0;
    const bool grows = fine && good >= k->interval - 1;
    const double next = scale * (!fine ? k->backoff : grows ? k->growth : 1);
    rg_grad_scale_values v;
    v.norm = rg_grad_scale_root(total) / scale;
    const double share = k->max_norm / (v.norm + k->epsilon);
    v.factor = fine ? (share < 1 ? share : 1) / scale : total - total; /* NaN */
    v.scale = next > 0 && next <= largest && 1 / next <= largest ? next : scale;
    v.good = fine && !grows ? (int64_t)((uint64_t)good + 1) : 0;
    v.step = k->step != NULL ? (int64_t)((uint64_t)*k->step + fine) : 0;
    return v;
}

#endif
