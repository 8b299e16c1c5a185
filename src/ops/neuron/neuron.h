/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neuron kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_NEURON_H
#define RG_OPS_NEURON_H

#include "core/sweep.h"

#include <retrograde/neuron.h>

/* What has a formula of x: all kinds but none, which is relu (forward) or linear (gradient) with a
 * = 1, and prelu, whose slopes differ from channel to channel. X(KIND, name, how); on the CPU a
 * formula is INLINED, or has a BRIEF form for results of 16 bits, too, or is CALLED: long ones of
 * kinds that are rare cost a few cycles a vector more, since compilers inline only so much in one
 * file. */
#define RG_NEURON_FORMULAS(X)              \
    X(RELU, relu, INLINED)                 \
    X(LINEAR, linear, INLINED)             \
    X(SIGMOID, sigmoid, BRIEF)             \
    X(HARD_SIGMOID, hard_sigmoid, INLINED) \
    X(TANH, tanh, BRIEF)                   \
    X(ABSOLUTE, absolute, INLINED)         \
    X(SOFTPLUS, softplus, CALLED)          \
    X(SOFTSIGN, softsign, INLINED)         \
    X(ELU, elu, BRIEF)                     \
    X(RELUN, relun, INLINED)               \
    X(POWER, power, CALLED)                \
    X(EXPONENTIAL, exponential, CALLED)    \
    X(LOGARITHM, logarithm, CALLED)        \
    X(GELU, gelu, BRIEF)                   \
    X(GELU_TANH, gelu_tanh, CALLED)        \
    X(SWISH, swish, CALLED)

/* What has a formula of y for the slope; relu, linear and relun take theirs of x. */
#define RG_NEURON_Y_FORMULAS(X)    \
    X(SIGMOID, sigmoid, INLINED)   \
    X(TANH, tanh, INLINED)         \
    X(SOFTPLUS, softplus, CALLED)  \
    X(SOFTSIGN, softsign, INLINED) \
    X(ELU, elu, INLINED)           \
    X(EXPONENTIAL, exponential, INLINED)

/* A kernel's id is one of these plus the kind; what sums up the gradient of prelu's slopes comes
 * last. */
enum { RG_NEURON_KINDS = RG_NEURON_SWISH + 1 };
enum {
    RG_NEURON_FORWARD = 0,
    RG_NEURON_GRADIENT = RG_NEURON_KINDS,       /* from x */
    RG_NEURON_GRADIENT_Y = 2 * RG_NEURON_KINDS, /* from y, where that determines the slope */
    RG_NEURON_PRELU_JOIN = 3 * RG_NEURON_KINDS,
    RG_NEURON_KERNELS
};

/* How a power is taken: by as many products as the whole number says, up to this one; or by
 * exp(c log u), where whole exponents also take negative u. */
enum { RG_POWER_MOST = 32, RG_POWER_ODD, RG_POWER_EVEN, RG_POWER_BROKEN };

/* What a formula reads, as far as its kind does. */
typedef struct rg_neuron_numbers {
    double a, b;      /* of exponential: times ln c */
    double c;         /* power: the exponent (gradient: less 1); logarithm: 1 / ln c;
                         softplus from y: -1 / a */
    double factor;    /* of the slope */
    double low, high; /* hard_sigmoid: where it is not flat */
    int32_t power;    /* RG_POWER_, or the whole number that c is, from -RG_POWER_MOST on */
} rg_neuron_numbers;

#ifdef __cplusplus
extern "C" {
#endif
rg_neuron_numbers rg_neuron_numbers_of(const rg_neuron_desc *desc, rg_dtype dtype, bool gradient);
/* Whether the slope follows from y, so that a gradient may read y in place of x. */
bool rg_neuron_tells_slope(const rg_neuron_desc *desc);
#ifdef __cplusplus
}
#endif

typedef struct rg_neuron_args {
    const void *x;
    void *y;
    rg_sweep sweep; /* tensors x, y */
    rg_neuron_numbers numbers;
    bool stream; /* y is written by streaming stores */
} rg_neuron_args;

typedef struct rg_neuron_gradient_args {
    const void *dy, *from; /* from: x or y */
    void *dx;
    rg_sweep sweep; /* tensors dy, from, dx */
    rg_neuron_numbers numbers;
    bool add;    /* into dx */
    bool stream; /* dx is written by streaming stores */
} rg_neuron_gradient_args;

/* prelu: a unit is a block of channels of a part of the rows. Where there are few channels,
 * several rows are taken at once, and their channels are adjacent; row r of a part adds to sums
 * number r % rows_at_once. All of this follows from the shape. */
enum { RG_PRELU_TENSORS = 3 };
typedef struct rg_prelu_shape {
    rg_walk rows;                   /* all dimensions but the last */
    int64_t step[RG_PRELU_TENSORS]; /* between channels */
    int64_t slope_step;
    int64_t channels, block, blocks; /* in all, of a unit, units of a part */
    int64_t part, parts;             /* rows of a part, parts */
    int64_t rows_at_once;
    bool dense;  /* every step is 1 */
    bool joined; /* and every row follows the one before */
    bool stream; /* the result is written by streaming stores */
} rg_prelu_shape;

typedef struct rg_prelu_args {
    const void *x, *slope;
    void *y;
    rg_prelu_shape shape; /* tensors x, y */
} rg_prelu_args;

typedef struct rg_prelu_gradient_args {
    const void *dy, *x, *slope;
    void *dx;             /* x where it is not wanted */
    void *sums;           /* real, (parts, channels); dy where they are not wanted */
    rg_prelu_shape shape; /* tensors dy, x, dx */
    bool wants_dx, wants_sums;
    bool add; /* into dx */
} rg_prelu_gradient_args;

typedef struct rg_prelu_join_args {
    const void *sums; /* real, (parts, channels) */
    void *dslope;
    int64_t parts, channels, step;
    bool add; /* into dslope */
} rg_prelu_join_args;

enum { RG_PRELU_JOIN_UNIT = 64 }; /* channels */

#endif
