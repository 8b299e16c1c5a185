/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums over sliding windows, see ops/window_norm/span.h. There is a line of values at each
 * position, and lines are added value by value, or joined by another rule, see moments_cpu.h. */
#ifndef RG_OPS_WINDOW_NORM_WINDOWS_CPU_H
#define RG_OPS_WINDOW_NORM_WINDOWS_CPU_H

#include "backend/cpu/kernel.h"
#include "backend/cpu/long_sum_cpu.h"
#include "ops/window_norm/span.h"

/* The sum of `width` vectors that are `step` apart. */
RG_INLINE vreal sum_taps(const real *from, int64_t step, const int64_t width)
{
    vreal sum = vload_full(from, 0, RG_REAL);
    if (width > 1)
        sum += vload_full(from, step, RG_REAL);
    int64_t k = 2;
    for (; k + 1 < width; k += 2)
        sum += vload_full(from, k * step, RG_REAL) + vload_full(from, (k + 1) * step, RG_REAL);
    return k < width ? sum + vload_full(from, k * step, RG_REAL) : sum;
}

/* ---- a ring: the latest lines, and the sum of the window that ends with the last one ---- */

/* Two lines more than there are positions in a window: the prefix sum of the current block, and
 * what rounding took from it where windows are wide. Lines of the block before it have become
 * suffix sums, each of which is needed until the line that takes its place comes. */
typedef struct window_ring {
    real *lines;
    int64_t pitch, width, last;
    int64_t centre; /* the line of a window that its position has, counted from the oldest */
} window_ring;

/* Makes the sum of a window, or what else a rule makes of its lines. To be called once for each
 * line; a sum of NULL is not wanted. */
typedef void window_rule(const window_ring *r, real *sum);

RG_INLINE int64_t ring_buffer(int64_t pitch, int64_t width)
{
    return pitch * (width + 2);
}

RG_INLINE window_ring ring_at(real *buffer, int64_t pitch, int64_t width, int64_t centre)
{
    return (window_ring){ buffer, pitch, width, width - 1, centre };
}

/* Where the next line is to be written. */
RG_INLINE real *ring_next(window_ring *r)
{
    r->last = r->last + 1 < r->width ? r->last + 1 : 0;
    return r->lines + r->last * r->pitch;
}

/* Adds line by line from the oldest one on. */
RG_INLINE void ring_sum_direct(const window_ring *r, real *sum, const int64_t width)
{
    const real *line[RG_SPAN_DIRECT];
    for (int64_t k = 0; k < width; k++)
        line[k] = r->lines + (r->last + 1 + k) % width * r->pitch;
    for (int64_t i = 0; i < r->pitch; i += VLEN) {
        vreal s = vload_full(line[0], i, RG_REAL);
        if (width > 1)
            s += vload_full(line[1], i, RG_REAL);
        int64_t k = 2;
        for (; k + 1 < width; k += 2)
            s += vload_full(line[k], i, RG_REAL) + vload_full(line[k + 1], i, RG_REAL);
        vstore_full(sum, i, RG_REAL, k < width ? s + vload_full(line[k], i, RG_REAL) : s);
    }
}

/* The next of the running sums over a block, sum + x; `lost` is what rounding took from it, or
 * NULL. */
RG_INLINE vreal ring_run_on(vreal sum, vreal x, real *lost, int64_t i)
{
    if (lost == NULL)
        return sum + x;
    const long_sum s = long_sum_add((long_sum){ sum, vload_full(lost, i, RG_REAL) }, x);
    vstore_full(lost, i, RG_REAL, s.low);
    return s.high;
}

/* Scratch for what rounding takes from running sums, made 0; NULL where windows are not that wide.
 */
RG_INLINE real *ring_lost(const window_ring *r, bool starts)
{
    real *lost = r->lines + (r->width + 1) * r->pitch;
    if (r->width <= RG_SPAN_RUN)
        return NULL;
    if (starts)
        memset(lost, 0, (size_t)r->pitch * sizeof(real));
    return lost;
}

/* The suffix sums of a block that is complete. */
RG_INLINE void ring_suffix(const window_ring *r)
{
    real *const lost = ring_lost(r, true);
    for (int64_t k = r->width - 2; k >= 0; k--) {
        real *line = r->lines + k * r->pitch;
        for (int64_t i = 0; i < r->pitch; i += VLEN)
            vstore_full(line, i, RG_REAL,
                        ring_run_on(vload_full(line, r->pitch + i, RG_REAL),
                                    vload_full(line, i, RG_REAL), lost, i));
    }
}

RG_INLINE void ring_sum_blocks(const window_ring *r, real *sum)
{
    const real *line = r->lines + r->last * r->pitch, *suffix = line + r->pitch;
    real *prefix = r->lines + r->width * r->pitch;
    const bool starts = r->last == 0, ends = r->last == r->width - 1;
    real *const lost = ring_lost(r, starts);
    for (int64_t i = 0; i < r->pitch; i += VLEN) {
        vreal s = vload_full(line, i, RG_REAL);
        if (!starts)
            s = ring_run_on(vload_full(prefix, i, RG_REAL), s, lost, i);
        vstore_full(prefix, i, RG_REAL, s);
        if (sum != NULL)
            vstore_full(sum, i, RG_REAL, ends ? s : vload_full(suffix, i, RG_REAL) + s);
    }
    if (ends)
        ring_suffix(r);
}

RG_OUTLINE void ring_sum(const window_ring *r, real *sum)
{
    if (r->width > RG_SPAN_DIRECT)
        ring_sum_blocks(r, sum);
    else if (sum != NULL && r->width == 5)
        ring_sum_direct(r, sum, 5);
    else if (sum != NULL && r->width == 3)
        ring_sum_direct(r, sum, 3);
    else if (sum != NULL)
        ring_sum_direct(r, sum, r->width);
}

RG_INLINE void ring_add_zeros(window_ring *r, window_rule *rule, real *sum)
{
    memset(ring_next(r), 0, (size_t)r->pitch * sizeof(real));
    rule(r, sum);
}

/* ---- a chain: what a normalization by windows does, line after line ---- */

/* What is done at a position: fill gives its line, finish takes the sum over its window. In a
 * gradient middle takes that sum and gives a second line, and finish takes the sum of those over
 * the mirrored window. `sum` is NULL in fill, `to` in finish. */
typedef void chain_step(const void *job, int64_t position, const real *sum, real *to);

typedef struct window_chain {
    rg_span span;
    int64_t begin, end; /* positions of the results; begin is 0 where windows are wide */
    window_ring first, second;
    window_rule *first_rule, *second_rule;
    real *sum;
} window_chain;

/* Place `t` comes into the ring; the sum is made where `wanted`. */
RG_INLINE void push_line(window_chain *c, const void *job, chain_step *fill, int64_t t, bool wanted)
{
    const int64_t position = t - c->span.before;
    real *const sum = wanted ? c->sum : NULL;
    if (position < 0 || position >= c->span.size) {
        ring_add_zeros(&c->first, c->first_rule, sum);
        return;
    }
    fill(job, position, NULL, ring_next(&c->first));
    c->first_rule(&c->first, sum);
}

RG_INLINE void chain_forward(window_chain *c, const void *job, chain_step *fill, chain_step *finish)
{
    const int64_t extent = c->span.width - 1;
    for (int64_t t = c->begin; t < c->end + extent; t++) {
        push_line(c, job, fill, t, t - extent >= c->begin);
        if (t - extent >= c->begin)
            finish(job, t - extent, c->sum, NULL);
    }
}

RG_INLINE void chain_gradient(window_chain *c, const void *job, chain_step *fill,
                              chain_step *middle, chain_step *finish)
{
    const int64_t extent = c->span.width - 1, after = c->span.after;
    int64_t from = c->begin > after ? c->begin - after : 0; /* the first position that is needed */
    for (int64_t t = c->begin; t < c->end + extent; t++) {
        const int64_t position = t - after, i = t - extent;
        real *const sum = i >= c->begin ? c->sum : NULL;
        if (position < 0 || position >= c->span.size) {
            ring_add_zeros(&c->second, c->second_rule, sum);
        } else {
            for (; from <= position + extent; from++)
                push_line(c, job, fill, from, from == position + extent);
            middle(job, position, c->sum, ring_next(&c->second));
            c->second_rule(&c->second, sum);
        }
        if (sum != NULL)
            finish(job, i, sum, NULL);
    }
}

#endif
