/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pad by definition, in double. */
#include "ops/optest.h"

#include <retrograde/pad.h>

/* Walks over an axis, step by step, from input 0 to where output o is; -1: outside. */
static int64_t source(rg_pad_mode mode, int64_t o, int64_t before, int64_t in)
{
    int64_t index = o - before, i = 0, direction = 1;
    if (index >= 0 && index < in)
        return index;
    if (mode == RG_PAD_ZERO || mode == RG_PAD_CONSTANT)
        return -1;
    if (mode == RG_PAD_CLAMP || in == 1)
        return index < 0 ? 0 : in - 1;
    const bool back = index < 0;
    const bool twice = mode == RG_PAD_MIRROR_EDGE; /* an edge is visited twice */
    int64_t steps = back ? -index : index;
    if (back && twice)
        steps--; /* 0 is beside itself */
    for (; steps > 0; steps--) {
        const int64_t next = i + direction;
        if (next >= 0 && next < in) {
            i = next;
        } else {
            direction = -direction;
            i = twice ? i : i + direction;
        }
    }
    return i;
}

typedef struct walk {
    int64_t in[4], out[4];
    const rg_pad_desc *desc;
} walk;

static walk walk_of(const rg_pad_desc *desc, const rg_ref_tensor *x, const rg_ref_tensor *y)
{
    walk w = { .in = { 1 }, .out = { 1 }, .desc = desc };
    for (int32_t d = 0; d < x->rank; d++) {
        w.in[4 - x->rank + d] = x->dims[d];
        w.out[4 - x->rank + d] = y->dims[d];
    }
    return w;
}

/* The flat index in x of flat index `at` in y; -1: outside. */
static int64_t find(const walk *w, int64_t at)
{
    int64_t o[4], from = 0;
    for (int a = 3; a >= 0; a--) {
        o[a] = at % w->out[a];
        at /= w->out[a];
    }
    for (int a = 0; a < 4; a++) {
        const int64_t i = source(w->desc->mode, o[a], w->desc->before[a], w->in[a]);
        if (i < 0)
            return -1;
        from = from * w->in[a] + i;
    }
    return from;
}

void rg_pad_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_pad_desc *d = desc;
    const walk w = walk_of(d, x, y);
    const int64_t count = w.out[0] * w.out[1] * w.out[2] * w.out[3];
    for (int64_t at = 0; at < count; at++) {
        const int64_t from = find(&w, at);
        const double constant = d->mode != RG_PAD_CONSTANT ? 0
                                : d->fill                  ? x[1].data[at % w.out[3]]
                                                           : d->value;
        y->data[at] = from < 0 ? constant : x->data[from];
    }
}

void rg_pad_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                         const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)x;
    (void)y;
    const rg_pad_desc *d = desc;
    const walk w = walk_of(d, dx, dy);
    const int64_t count = w.out[0] * w.out[1] * w.out[2] * w.out[3];
    for (int64_t i = 0; dx[0].data != NULL && i < w.in[0] * w.in[1] * w.in[2] * w.in[3]; i++)
        dx[0].data[i] = 0;
    for (int64_t c = 0; d->fill && dx[1].data != NULL && c < w.out[3]; c++)
        dx[1].data[c] = 0;
    for (int64_t at = 0; at < count; at++) {
        const int64_t from = find(&w, at);
        if (from >= 0 && dx[0].data != NULL)
            dx[0].data[from] += dy->data[at];
        else if (from < 0 && d->fill && dx[1].data != NULL)
            dx[1].data[at % w.out[3]] += dy->data[at];
    }
}
