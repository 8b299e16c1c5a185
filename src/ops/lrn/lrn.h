/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization: kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_LRN_H
#define RG_OPS_LRN_H

#include "core/integer.h"
#include "core/walk.h"
#include "ops/window_norm/power.h"
#include "ops/window_norm/span.h"

enum { RG_LRN_FORWARD, RG_LRN_GRADIENT, RG_LRN_KERNELS };

enum { RG_LRN_TENSORS = 3 };

/* Pixels are all dimensions but the last. A unit does some of them, group by group, with scratch
 * of its own. */
typedef struct rg_lrn_shape {
    rg_walk outer;                /* over pixels */
    rg_span span;                 /* over channels */
    int64_t step[RG_LRN_TENSORS]; /* from one channel to the next */
    int64_t group;                /* pixels that are taken at once */
    int64_t units, scratch_bytes; /* bytes of scratch for each unit */
    bool dense;                   /* every step is 1 */
    bool add, stream;             /* into the result; by streaming stores */
    rg_power_numbers numbers;
} rg_lrn_shape;

typedef struct rg_lrn_args {
    const void *x;
    void *y, *scratch;
    rg_lrn_shape shape; /* tensors x, y */
} rg_lrn_args;

typedef struct rg_lrn_gradient_args {
    const void *dy, *x;
    void *dx, *scratch;
    rg_lrn_shape shape; /* tensors dy, x, dx */
} rg_lrn_gradient_args;

/* How the scratch of a unit is laid out, in numbers of reals. A narrow window: a line for each
 * pixel of the group, `lead` zeros on either side of its channels (gradient: two of them), and
 * lines of `inner` without zeros. A wide one: rings of lines, of which each has one channel of all
 * pixels of the group. */
enum { RG_LRN_UNIT = 16, RG_LRN_LANES = 16 };

static inline int64_t rg_lrn_round(int64_t count)
{
    return rg_round_up(count, RG_LRN_UNIT);
}

/* On a GPU, for a pixel: positions of its squares, of their prefix sums and of what the gradient
 * sums, and its channels. In shared memory, unless that is more than every GPU has. */
enum { RG_LRN_SHARED_BYTES = 48 << 10 };

static inline int64_t rg_lrn_shared_values(const rg_span *span)
{
    return 3 * (span->size + span->width - 1) + span->size;
}

static inline int64_t rg_lrn_lead(const rg_span *span)
{
    return rg_lrn_round(span->before > span->after ? span->before : span->after);
}

#endif
