/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the kernels of sgd, rmsprop and adam are given. Valid C and valid CUDA. */
#ifndef RG_OPS_OPTIMIZER_UPDATE_H
#define RG_OPS_OPTIMIZER_UPDATE_H

#include "core/walk.h"

/* The kernels of each of the three. */
enum {
    RG_UPDATE_FLAT,    /* up to RG_UPDATE_ROWS parameters, elements contiguous in all tensors */
    RG_UPDATE_STRIDED, /* one parameter, any strides */
    RG_UPDATE_KERNELS
};

/* Parameters of a launch: as many as leave the args smaller than 4 KB, which a launch on any GPU
 * can have. */
enum { RG_UPDATE_ROWS = 32, RG_UPDATE_MOMENTS = 3 };

/* Elements of a unit. */
enum { RG_UPDATE_PIECE = 16384 };

/* The tensors of one parameter; NULL where there is none. */
typedef struct rg_update_tensors {
    const void *parameter, *gradient, *moment[RG_UPDATE_MOMENTS];
    void *new_parameter, *new_moment[RG_UPDATE_MOMENTS], *copy;
} rg_update_tensors;
enum { RG_UPDATE_INPUTS = 5, RG_UPDATE_TENSORS = sizeof(rg_update_tensors) / sizeof(void *) };

/* Tensors of rank 0; step and scale may be NULL. */
typedef struct rg_update_values {
    const void *rate;
    const int64_t *step;
    const void *scale;
} rg_update_values;
enum { RG_UPDATE_VALUES = sizeof(rg_update_values) / sizeof(void *) };

/* Numbers of the descriptor; what an optimizer does not know is 0. */
typedef struct rg_update_numbers {
    double clip_minimum, clip_maximum, rescale, l1, l2;
    double momentum, epsilon;
    double beta1, beta2; /* rmsprop: beta2 is its decay */
    double decay;        /* of the parameter, decoupled */
    int32_t moments;
    int32_t copy; /* rg_parameter_copy */
    bool mps;     /* the form */
    bool nesterov, centered, amsgrad;
    bool wide_rate, wide_scale; /* f64, not f32 */
    bool stream; /* results are written by streaming stores, if they are not in place */
} rg_update_numbers;

typedef struct rg_update_flat_args {
    rg_update_values values;
    rg_update_tensors row[RG_UPDATE_ROWS];
    int64_t count[RG_UPDATE_ROWS];     /* elements */
    int64_t first[RG_UPDATE_ROWS + 1]; /* units before those of a row; then all */
    int32_t rows;
    rg_update_numbers numbers;
} rg_update_flat_args;

typedef struct rg_update_strided_args {
    rg_update_values values;
    rg_update_tensors tensors;
    rg_walk read, written; /* rows: all dimensions but the last */
    int64_t length;        /* elements of a row */
    int64_t step[RG_UPDATE_TENSORS];
    int64_t pieces; /* units of a row */
    bool dense;     /* every step is 1 */
    rg_update_numbers numbers;
} rg_update_strided_args;

/* ---- what a launch makes of all this, once ---- */

typedef struct rg_update_scalars {
    double rate, scale;
    double factor; /* adam: of the quotient; sgd and rmsprop: of what is subtracted */
    double spread; /* adam: of the root */
    double inner;  /* sgd and rmsprop: of what is added to the momentum */
    double keep;   /* of the parameter, before all else */
    bool skip;
} rg_update_scalars;

/* beta^t by squaring, which a GPU does to the same bits. */
static inline RG_HOST_DEVICE double rg_update_power(double beta, int64_t t)
{
    double power = 1;
    for (; t > 0; t >>= 1, beta *= beta)
        power *= t & 1 ? beta : 1;
    return power;
}

static inline RG_HOST_DEVICE double rg_update_root(double a)
{
#ifdef __CUDA_ARCH__
    return sqrt(a);
#else
    return __builtin_sqrt(a);
#endif
}

static inline RG_HOST_DEVICE double rg_update_value(const void *data, bool wide)
{
    return wide ? *(const double *)data : (double)*(const float *)data;
}

static inline RG_HOST_DEVICE rg_update_scalars rg_update_scalars_of(const rg_update_values *v,
                                                                    const rg_update_numbers *n)
{
    rg_update_scalars s;
    s.rate = rg_update_value(v->rate, n->wide_rate);
    s.scale = v->scale != NULL ? rg_update_value(v->scale, n->wide_scale) : 1;
    s.skip = !(s.scale - s.scale == 0); /* infinite or NaN */
    s.keep = 1 - s.rate * n->decay;
    s.spread = 1;
    if (v->step != NULL) {          /* adam */
        const int64_t t = *v->step; /* with 0 or less both are 1 */
        const double first = 1 - (t > 0 ? rg_update_power(n->beta1, t) : 0);
        const double root = rg_update_root(1 - (t > 0 ? rg_update_power(n->beta2, t) : 0));
        s.inner = 0;
        s.factor = n->mps ? s.rate * root / first : s.rate / first;
        s.spread = n->mps ? 1 : 1 / root;
        return s;
    }
    const bool inside = n->mps && !n->nesterov && n->momentum != 0;
    s.inner = inside ? s.rate : 1;
    s.factor = inside ? 1 : s.rate;
    return s;
}

#endif
