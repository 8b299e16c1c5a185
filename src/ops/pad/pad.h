/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pad kernels, their args, and the map from outputs to inputs and back. Valid C and valid CUDA. */
#ifndef RG_OPS_PAD_H
#define RG_OPS_PAD_H

#include "core/walk.h"

enum { RG_PAD_FORWARD, RG_PAD_GRADIENT, RG_PAD_GRADIENT_FILL, RG_PAD_KERNELS };

/* What is outside, by axis: all that fill is one. */
enum { RG_EDGE_FILL, RG_EDGE_CLAMP, RG_EDGE_MIRROR, RG_EDGE_MIRROR_EDGE };

typedef struct rg_pad_axis {
    int64_t in, out, before;
    int32_t edge;
    /* Forward: outputs that are inside. Gradient: inputs that have one copy, i + before, and no
     * other. */
    int64_t begin, end;
} rg_pad_axis;

typedef struct rg_pad_args {
    const void *from; /* x, or dy */
    void *to;         /* y, dx, or dfill */
    const void *fill; /* or NULL */
    rg_pad_axis axes[4];
    int64_t strides[2][4]; /* of `from` and `to`: n, h, w, c */
    int64_t fill_stride;
    double value;
    bool run;    /* pixels from axes[2].begin to end are neighbours in both, channels whole */
    bool dense;  /* channels are neighbours in all tensors */
    bool add;    /* into the gradient */
    bool stream; /* the result is written by streaming stores */
} rg_pad_args;

/* The input that output o is a copy of; -1: none. */
static inline RG_HOST_DEVICE int64_t rg_pad_source(const rg_pad_axis *a, int64_t o)
{
    int64_t i = o - a->before;
    if (i >= 0 && i < a->in)
        return i;
    if (a->edge == RG_EDGE_FILL)
        return -1;
    if (a->edge == RG_EDGE_CLAMP)
        return i < 0 ? 0 : a->in - 1;
    const int64_t period = a->edge == RG_EDGE_MIRROR ? 2 * (a->in - 1) : 2 * a->in;
    i %= period;
    i = i < 0 ? i + period : i;
    if (i < a->in)
        return i;
    return a->edge == RG_EDGE_MIRROR ? period - i : period - 1 - i;
}

/* The copies of an input, in the order of the outputs: two lists of outputs, `step` apart. */
typedef struct rg_pad_copies {
    int64_t a, b, step, end;
} rg_pad_copies;

static inline RG_HOST_DEVICE rg_pad_copies rg_pad_copies_of(const rg_pad_axis *a, int64_t i)
{
    const int64_t plain = i + a->before;
    rg_pad_copies c;
    c.a = plain;
    c.b = a->out;
    c.step = a->out;
    c.end = a->out;
    if (i >= a->begin && i < a->end)
        return c;
    if (a->edge == RG_EDGE_FILL) {
        c.a = plain >= 0 ? plain : a->out;
    } else if (a->edge == RG_EDGE_CLAMP) {
        const int64_t last = i == a->in - 1 ? a->out - 1 : plain;
        c.a = i == 0 || plain < 0 ? 0 : plain;
        c.step = 1;
        c.end = last + 1 < a->out ? last + 1 : a->out;
    } else {
        const bool whole = a->edge == RG_EDGE_MIRROR_EDGE;
        c.step = whole ? 2 * a->in : 2 * (a->in - 1);
        c.a = plain % c.step;
        c.b = (a->before - i - (whole ? 1 : 0)) % c.step;
        c.a += c.a < 0 ? c.step : 0;
        c.b += c.b < 0 ? c.step : 0;
    }
    return c;
}

/* Whether an input may have more than `most` copies, along all axes together. */
static inline RG_HOST_DEVICE bool rg_pad_has_more(const rg_pad_axis axes[4], int64_t most)
{
    int64_t copies = 1;
    for (int d = 0; d < 4 && copies <= most; d++) {
        const rg_pad_axis *a = &axes[d];
        const int64_t single = a->begin < a->end ? a->end - a->begin : 0;
        if (a->edge != RG_EDGE_FILL && a->out > single)
            copies *= a->out - single;
    }
    return copies > most;
}

/* The next copy; false: there is none. */
static inline RG_HOST_DEVICE bool rg_pad_next(rg_pad_copies *c, int64_t *o)
{
    *o = c->a < c->b ? c->a : c->b;
    if (*o >= c->end)
        return false;
    c->a += c->a == *o ? c->step : 0;
    c->b += c->b == *o ? c->step : 0;
    return true;
}

#endif
