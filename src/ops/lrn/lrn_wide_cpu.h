/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization over wide windows on the CPU: the lanes of a line are pixels, and
 * channels follow one another as positions, see windows_cpu.h. */
#ifndef RG_OPS_LRN_WIDE_CPU_H
#define RG_OPS_LRN_WIDE_CPU_H

#include "ops/lrn/lrn_five_cpu.h"
#include "ops/window_norm/windows_cpu.h"

typedef struct wide {
    lrn_job j;
    int64_t offset[RG_LRN_TENSORS][RG_LRN_LANES]; /* of the pixels, in dy, x and the result */
    int64_t step[RG_LRN_TENSORS];
    int pixels;
    real *direct; /* span.before + 1 lines */
    rg_dtype T;
} wide;

/* Channel `channel` of pixels i and following, 0 where there are none. */
RG_INLINE vreal load_lanes(const wide *k, const void *data, int tensor, int64_t channel, int i)
{
    real lanes[VLEN] = { 0 };
    for (int e = 0; e < VLEN && i + e < k->pixels; e++)
        lanes[e] = load_one(data, k->offset[tensor][i + e] + channel * k->step[tensor], k->T);
    return vload_full(lanes, 0, RG_REAL);
}

RG_INLINE void store_lanes(const wide *k, int64_t channel, int i, vreal value)
{
    if (k->j.s->add)
        value += load_lanes(k, k->j.out, 2, channel, i);
    real lanes[VLEN];
    vstore_full(lanes, 0, RG_REAL, value);
    for (int e = 0; e < VLEN && i + e < k->pixels; e++)
        store_one(k->j.out, k->offset[2][i + e] + channel * k->step[2], k->T, lanes[e]);
}

RG_OUTLINE void wide_fill(const void *job, int64_t channel, const real *sum, real *to)
{
    (void)sum;
    const wide *k = job;
    for (int i = 0; i < RG_LRN_LANES; i += VLEN) {
        const vreal x = load_lanes(k, k->j.x, 1, channel, i);
        vstore_full(to, i, RG_REAL, x * x);
    }
}

RG_OUTLINE void wide_forward(const void *job, int64_t channel, const real *sum, real *to)
{
    (void)to;
    const wide *k = job;
    for (int i = 0; i < RG_LRN_LANES; i += VLEN) {
        const vreal x = load_lanes(k, k->j.x, 1, channel, i);
        const vreal s = vload_full(sum, i, RG_REAL);
        store_lanes(k, channel, i, power_forward(&k->j.c, x, s, k->j.c.quarters, is_short(k->T)));
    }
}

RG_INLINE real *wide_direct(const wide *k, int64_t channel)
{
    return k->direct + channel % (k->j.s->span.before + 1) * RG_LRN_LANES;
}

RG_OUTLINE void wide_middle(const void *job, int64_t channel, const real *sum, real *to)
{
    const wide *k = job;
    for (int i = 0; i < RG_LRN_LANES; i += VLEN) {
        const vreal dy = load_lanes(k, k->j.dy, 0, channel, i);
        const vreal x = load_lanes(k, k->j.x, 1, channel, i);
        const vreal s = vload_full(sum, i, RG_REAL);
        vreal share;
        const vreal direct =
            power_middle(&k->j.c, dy, x, s, &share, k->j.c.quarters, is_short(k->T));
        vstore_full(wide_direct(k, channel), i, RG_REAL, direct);
        vstore_full(to, i, RG_REAL, share);
    }
}

RG_OUTLINE void wide_gradient(const void *job, int64_t channel, const real *sum, real *to)
{
    (void)to;
    const wide *k = job;
    for (int i = 0; i < RG_LRN_LANES; i += VLEN) {
        const vreal x = load_lanes(k, k->j.x, 1, channel, i);
        const vreal direct = vload_full(wide_direct(k, channel), i, RG_REAL);
        const vreal s = vload_full(sum, i, RG_REAL);
        store_lanes(k, channel, i, power_gradient(&k->j.c, x, direct, s));
    }
}

/* One group. `inputs` tensors are read: x, or dy and x. */
RG_OUTLINE void wide_group(wide *k, int inputs, real *buffer, int64_t first, int pixels)
{
    const rg_span *span = &k->j.s->span;
    k->pixels = pixels;
    for (int p = 0; p < pixels; p++) {
        int64_t offset[RG_LRN_TENSORS];
        rg_walk_offsets(&k->j.s->outer, inputs + 1, first + p, offset);
        for (int t = 0; t <= inputs; t++)
            k->offset[t + 2 - inputs][p] = offset[t];
    }
    for (int t = 0; t <= inputs; t++)
        k->step[t + 2 - inputs] = k->j.s->step[t];
    const int64_t ring = ring_buffer(RG_LRN_LANES, span->width);
    window_chain c = { .span = *span,
                       .end = span->size,
                       .first = ring_at(buffer, RG_LRN_LANES, span->width, span->before),
                       .first_rule = ring_sum,
                       .second_rule = ring_sum,
                       .sum = buffer + ring };
    if (inputs == 1) {
        chain_forward(&c, k, wide_fill, wide_forward);
        return;
    }
    c.second = ring_at(buffer + ring + RG_LRN_LANES, RG_LRN_LANES, span->width, span->after);
    k->direct = buffer + 2 * ring + RG_LRN_LANES;
    chain_gradient(&c, k, wide_fill, wide_middle, wide_gradient);
}

#endif
