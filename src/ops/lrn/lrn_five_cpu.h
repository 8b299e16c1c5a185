/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization over windows of 5 channels, two on either side, on the CPU:
 * neighbours come by shuffles, and a pixel is gone through once. */
#ifndef RG_OPS_LRN_FIVE_CPU_H
#define RG_OPS_LRN_FIVE_CPU_H

#include "backend/cpu/kernel.h"
#include "ops/lrn/lrn.h"
#include "ops/window_norm/power_formulas.h"

/* ---- pixels ---- */

/* What is the same for all pixels. */
typedef struct lrn_job {
    power_constants c;
    const rg_lrn_shape *s;
    const void *dy, *x; /* dy is x in a forward pass */
    void *out, *scratch;
} lrn_job;

/* Where a result goes. */
typedef struct output {
    char *pixel;
    int64_t step;
    bool dense, add, stream;
} output;

typedef struct lrn_pixel {
    const char *dy, *x;
    int64_t dy_step, x_step;
    output to;
} lrn_pixel;

/* Pixel number p. `inputs`: 1, which is x, or 2, dy and x. */
RG_INLINE lrn_pixel pixel_of(const lrn_job *j, const int inputs, int64_t p, const rg_dtype T)
{
    const rg_lrn_shape *s = j->s;
    int64_t offset[RG_LRN_TENSORS];
    rg_walk_offsets(&s->outer, inputs + 1, p, offset);
    char *const out = at_out(j->out, offset[inputs], T);
    const bool aligned = s->span.size % VLEN == 0 && (uintptr_t)out % (uintptr_t)vbytes(T) == 0;
    return (
        lrn_pixel){ at(j->dy, offset[0], T),
                    at(j->x, offset[inputs - 1], T),
                    s->step[0],
                    s->step[inputs - 1],
                    { out, s->step[inputs], s->dense, s->add, s->stream && s->dense && aligned } };
}

RG_INLINE void store_channels(const output *to, int64_t i, const int n, const rg_dtype T,
                              vreal value)
{
    if (to->add)
        value += vload_strided(to->pixel, i, to->step, n, T, to->dense);
    if (to->stream)
        vstream(to->pixel, i, T, value);
    else
        vstore_strided(to->pixel, i, to->step, n, T, to->dense, value);
}

/* ---- windows of 5: two channels on either side ---- */

RG_INLINE bool is_five(const rg_lrn_shape *s)
{
    return s->span.before == 2 && s->span.after == 2 && s->dense;
}

/* The sums of the windows around the values `own`, which are between those seen before and
 * `next`. Of the former `pairs` is kept: every value plus the one that follows it. */
RG_INLINE vreal sum_five(vreal *pairs, vreal own, vreal next)
{
    const vreal before = *pairs;
    *pairs = own + vahead_one(own, next);
    return (vbehind_two(before, *pairs) + *pairs) + vahead_two(own, next);
}

/* Before the first value there are zeros. */
RG_INLINE vreal first_pairs(vreal own)
{
    const vreal zero = vset(0);
    return zero + vahead_one(zero, own);
}

/* Whether a pixel has whole vectors that are only stored: such have loops of their own. */
RG_INLINE bool is_whole(const rg_lrn_shape *s)
{
    return !s->add && s->span.size % VLEN == 0;
}

/* Channels i and following, 0 where there are none. */
RG_INLINE vreal load_five(const char *pixel, int64_t i, int64_t channels, const rg_dtype T,
                          const bool whole)
{
    if (i + VLEN <= channels)
        return vload_full(pixel, i, T);
    return !whole && i < channels ? vload(pixel, i, (int)(channels - i), T) : vset(0);
}

RG_INLINE void store_five(const output *to, int64_t i, int64_t channels, const rg_dtype T,
                          const bool whole, vreal value)
{
    if (whole && to->stream)
        vstream(to->pixel, i, T, value);
    else if (whole)
        vstore_full(to->pixel, i, T, value);
    else
        store_channels(to, i, vlanes_left(channels - i), T, value);
}

RG_INLINE void forward_five(const power_constants *k, const lrn_pixel *p, int64_t channels,
                            const rg_dtype T, const int32_t quarters, const bool whole)
{
    vreal own = load_five(p->x, 0, channels, T, whole), pairs = first_pairs(own * own);
    for (int64_t i = 0; i < channels; i += VLEN) {
        const vreal next = load_five(p->x, i + VLEN, channels, T, whole);
        const vreal sum = sum_five(&pairs, own * own, next * next);
        store_five(&p->to, i, channels, T, whole,
                   power_forward(k, own, sum, quarters, is_short(T)));
        own = next;
    }
}

/* The vectors that a gradient has in hand. */
typedef struct five {
    vreal x, direct, share;
} five;

RG_INLINE void finish_five(const power_constants *k, const output *to, int64_t i, int64_t channels,
                           const rg_dtype T, const bool whole, const five *own, vreal sum)
{
    store_five(to, i, channels, T, whole, power_gradient(k, own->x, own->direct, sum));
}

/* A vector is finished when the shares of the one that follows are known. */
RG_INLINE void gradient_five(const power_constants *k, const lrn_pixel *p, int64_t channels,
                             const rg_dtype T, const int32_t quarters, const bool whole)
{
    vreal own = load_five(p->x, 0, channels, T, whole), pairs = first_pairs(own * own);
    vreal share_pairs = own;
    five last = { own, own, own };
    for (int64_t i = 0; i < channels; i += VLEN) {
        const vreal next = load_five(p->x, i + VLEN, channels, T, whole);
        const vreal sum = sum_five(&pairs, own * own, next * next);
        five now = { .x = own };
        now.direct = power_middle(k, load_five(p->dy, i, channels, T, whole), own, sum, &now.share,
                                  quarters, is_short(T));
        if (!whole && i + VLEN > channels)
            now.share = vkeep(now.share, (int)(channels - i), 0);
        if (i == 0)
            share_pairs = first_pairs(now.share);
        else
            finish_five(k, &p->to, i - VLEN, channels, T, whole, &last,
                        sum_five(&share_pairs, last.share, now.share));
        last = now;
        own = next;
    }
    const int64_t end = (channels - 1) / VLEN * VLEN;
    finish_five(k, &p->to, end, channels, T, whole, &last,
                sum_five(&share_pairs, last.share, vset(0)));
}

/* ---- windows of 5 in bf16: even and odd channels apart, as they are loaded ---- */

/* Sums as sum_five makes them. `before`: for the previous vectors, each even value plus the odd
 * value after it, and each odd value plus the even value after it. */
RG_INLINE vpair sum_five_pairs(vpair *before, vpair own, vpair next)
{
    const vpair ahead = { vahead_one(own.a, next.a), vahead_one(own.b, next.b) };
    const vpair pairs = { own.a + own.b, own.b + ahead.a };
    const vpair sum = { (vbehind_one(before->a, pairs.a) + pairs.a) + ahead.a,
                        (vbehind_one(before->b, pairs.b) + pairs.b) + ahead.b };
    *before = pairs;
    return sum;
}

RG_INLINE vpair first_five_pairs(vpair own)
{
    const vreal zero = vset(0);
    return (vpair){ zero, zero + vahead_one(zero, own.a) };
}

RG_INLINE vpair square_pair(vpair p)
{
    return (vpair){ p.a * p.a, p.b * p.b };
}

/* Channels i to i + 2 VLEN - 1, or zeros after the last. */
RG_INLINE vpair load_five_pair(const char *pixel, int64_t i, int64_t channels, const rg_dtype T)
{
    return i < channels ? vload_pair(pixel, i, T, true) : (vpair){ vset(0), vset(0) };
}

RG_INLINE void forward_five_pairs(const power_constants *k, const lrn_pixel *p, int64_t channels,
                                  const rg_dtype T, const int32_t quarters)
{
    vpair own = load_five_pair(p->x, 0, channels, T), before = first_five_pairs(square_pair(own));
    for (int64_t i = 0; i < channels; i += 2 * VLEN) {
        const vpair next = load_five_pair(p->x, i + 2 * VLEN, channels, T);
        const vpair sum = sum_five_pairs(&before, square_pair(own), square_pair(next));
        const vpair y = { power_forward(k, own.a, sum.a, quarters, true),
                          power_forward(k, own.b, sum.b, quarters, true) };
        vstore_pair(p->to.pixel, i, T, y, true, p->to.stream);
        own = next;
    }
}

/* What a gradient has in hand, as struct five. */
typedef struct five_pair {
    vpair x, direct, share;
} five_pair;

RG_INLINE void finish_five_pair(const power_constants *k, const output *to, int64_t i,
                                const rg_dtype T, const five_pair *own, vpair sum)
{
    const vpair dx = { power_gradient(k, own->x.a, own->direct.a, sum.a),
                       power_gradient(k, own->x.b, own->direct.b, sum.b) };
    vstore_pair(to->pixel, i, T, dx, true, to->stream);
}

RG_INLINE void gradient_five_pairs(const power_constants *k, const lrn_pixel *p, int64_t channels,
                                   const rg_dtype T, const int32_t quarters)
{
    vpair own = load_five_pair(p->x, 0, channels, T), before = first_five_pairs(square_pair(own));
    vpair share_before = own;
    five_pair last = { own, own, own };
    for (int64_t i = 0; i < channels; i += 2 * VLEN) {
        const vpair next = load_five_pair(p->x, i + 2 * VLEN, channels, T);
        const vpair sum = sum_five_pairs(&before, square_pair(own), square_pair(next));
        const vpair g = vload_pair(p->dy, i, T, true);
        five_pair now = { .x = own };
        now.direct.a = power_middle(k, g.a, own.a, sum.a, &now.share.a, quarters, true);
        now.direct.b = power_middle(k, g.b, own.b, sum.b, &now.share.b, quarters, true);
        if (i == 0)
            share_before = first_five_pairs(now.share);
        else
            finish_five_pair(k, &p->to, i - 2 * VLEN, T, &last,
                             sum_five_pairs(&share_before, last.share, now.share));
        last = now;
        own = next;
    }
    const vpair none = { vset(0), vset(0) };
    finish_five_pair(k, &p->to, channels - 2 * VLEN, T, &last,
                     sum_five_pairs(&share_before, last.share, none));
}

RG_INLINE bool in_pairs(const lrn_job *j, const rg_dtype T)
{
    return T == RG_BF16 && (j->c.quarters == 2 || j->c.quarters == 3) && !j->s->add &&
           j->s->span.size % (2 * VLEN) == 0;
}

/* Pixels begin to end - 1. */
RG_INLINE void forward_fives(const lrn_job *j, int64_t begin, int64_t end, const rg_dtype T)
{
    const power_constants k = j->c;
    const int64_t channels = j->s->span.size;
    for (int64_t i = begin; i < end; i++) {
        lrn_pixel p = pixel_of(j, 1, i, T);
        if (in_pairs(j, T)) {
            p.to.stream = p.to.stream && (uintptr_t)p.to.pixel % RG_VECTOR_BYTES == 0;
            if (k.quarters == 2)
                forward_five_pairs(&k, &p, channels, T, 2);
            else
                forward_five_pairs(&k, &p, channels, T, 3);
        } else if (k.quarters == 3 && is_whole(j->s)) {
            forward_five(&k, &p, channels, T, 3, true);
        } else {
            forward_five(&k, &p, channels, T, k.quarters, false);
        }
    }
}

RG_INLINE void gradient_fives(const lrn_job *j, int64_t begin, int64_t end, const rg_dtype T)
{
    const power_constants k = j->c;
    const int64_t channels = j->s->span.size;
    for (int64_t i = begin; i < end; i++) {
        lrn_pixel p = pixel_of(j, 2, i, T);
        if (in_pairs(j, T)) {
            p.to.stream = p.to.stream && (uintptr_t)p.to.pixel % RG_VECTOR_BYTES == 0;
            if (k.quarters == 2)
                gradient_five_pairs(&k, &p, channels, T, 2);
            else
                gradient_five_pairs(&k, &p, channels, T, 3);
        } else if (k.quarters == 3 && is_whole(j->s)) {
            gradient_five(&k, &p, channels, T, 3, true);
        } else {
            gradient_five(&k, &p, channels, T, k.quarters, false);
        }
    }
}

#endif
