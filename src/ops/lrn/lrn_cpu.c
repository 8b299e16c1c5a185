/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalisation on the CPU. Windows of 5 channels have kernels of their own
 * (lrn_five_cpu.h), and so have those wider than RG_SPAN_DIRECT (lrn_wide_cpu.h). Others: squares
 * of a group of pixels are written with zeros around each pixel, and summed by loads at shifted
 * addresses; a group at a time, so that what is loaded has left the store buffer. */
#include "ops/lrn/lrn_five_cpu.h"
#include "ops/lrn/lrn_wide_cpu.h"

/* What is the same for all pixels. */
typedef struct narrow {
    power_constants c;
    int64_t lead, inner, pitch; /* reals; see lrn.h */
    int64_t channels, before, after;
    bool dense;
} narrow;

RG_INLINE narrow narrow_of(const rg_lrn_shape *s)
{
    narrow k = { .c = power_constants_of(&s->numbers),
                 .lead = rg_lrn_lead(&s->span),
                 .inner = rg_lrn_round(s->span.size),
                 .channels = s->span.size,
                 .before = s->span.before,
                 .after = s->span.after,
                 .dense = s->dense };
    k.pitch = k.inner + 2 * k.lead;
    return k;
}

RG_INLINE void square_pixel(const narrow *k, const char *x, int64_t step, real *to,
                            const rg_dtype T)
{
    int64_t i = 0;
    for (; k->dense && i + VLEN <= k->channels; i += VLEN) {
        const vreal v = vload_full(x, i, T);
        vstore_full(to, i, RG_REAL, v * v);
    }
    for (; i < k->channels; i += VLEN) { /* behind the last channel come zeros */
        const vreal v = vload_strided(x, i, step, vlanes_left(k->channels - i), T, k->dense);
        vstore_full(to, i, RG_REAL, v * v);
    }
}

/* ---- forward, narrow windows ---- */

RG_INLINE void forward_step(const narrow *k, const char *x, int64_t step, const real *squares,
                            const output *to, int64_t i, const int n, const rg_dtype T,
                            const int64_t width, const int32_t quarters)
{
    const vreal sum = sum_taps(squares + i - k->before, 1, width);
    const vreal v = vload_strided(x, i, step, n, T, k->dense);
    store_channels(to, i, n, T, power_forward(&k->c, v, sum, quarters, is_short(T)));
}

RG_INLINE void forward_pixel(const narrow *k, const char *x, int64_t step, const real *squares,
                             const output *to, const rg_dtype T, const int64_t width,
                             const int32_t quarters)
{
    int64_t i = 0;
    for (; i + VLEN <= k->channels; i += VLEN)
        forward_step(k, x, step, squares, to, i, VLEN, T, width, quarters);
    if (i < k->channels)
        forward_step(k, x, step, squares, to, i, (int)(k->channels - i), T, width, quarters);
}

RG_INLINE void forward_group(const rg_lrn_args *a, const narrow *k, real *buffer, int64_t first,
                             int64_t pixels, const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    int64_t offset[2];
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 2, first + p, offset);
        square_pixel(k, at(a->x, offset[0], T), s->step[0], buffer + p * k->pitch + k->lead, T);
    }
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 2, first + p, offset);
        const char *x = at(a->x, offset[0], T);
        const output to = output_at(s, at_out(a->y, offset[1], T), 1, T);
        const real *squares = buffer + p * k->pitch + k->lead;
        forward_pixel(k, x, s->step[0], squares, &to, T, s->span.width, k->c.quarters);
    }
}

/* ---- gradient, narrow windows ---- */

/* The lines of a group; those of a pixel stand at the same place in each. */
typedef struct gradient_lines {
    real *squares, *shares; /* with zeros around */
    real *direct;
} gradient_lines;

RG_INLINE void middle_step(const narrow *k, const char *dy, const char *x, const int64_t step[],
                           const gradient_lines *l, int64_t i, const int n, const rg_dtype T,
                           const int64_t width, const int32_t quarters)
{
    const vreal sum = sum_taps(l->squares + i - k->before, 1, width);
    const vreal g = vload_strided(dy, i, step[0], n, T, k->dense);
    const vreal v = vload_strided(x, i, step[1], n, T, k->dense);
    vreal share;
    vstore_full(l->direct, i, RG_REAL,
                power_middle(&k->c, g, v, sum, &share, quarters, is_short(T)));
    vstore_full(l->shares, i, RG_REAL, vkeep(share, n, 0));
}

RG_INLINE void middle_pixel(const narrow *k, const char *dy, const char *x, const int64_t step[],
                            const gradient_lines *l, const rg_dtype T, const int64_t width,
                            const int32_t quarters)
{
    int64_t i = 0;
    for (; i + VLEN <= k->channels; i += VLEN)
        middle_step(k, dy, x, step, l, i, VLEN, T, width, quarters);
    if (i < k->channels)
        middle_step(k, dy, x, step, l, i, (int)(k->channels - i), T, width, quarters);
}

RG_INLINE void finish_step(const narrow *k, const char *x, int64_t step, const gradient_lines *l,
                           const output *to, int64_t i, const int n, const rg_dtype T,
                           const int64_t width)
{
    const vreal sum = sum_taps(l->shares + i - k->after, 1, width); /* the mirrored window */
    const vreal v = vload_strided(x, i, step, n, T, k->dense);
    const vreal direct = vload_full(l->direct, i, RG_REAL);
    store_channels(to, i, n, T, power_gradient(&k->c, v, direct, sum));
}

RG_INLINE void finish_pixel(const narrow *k, const char *x, int64_t step, const gradient_lines *l,
                            const output *to, const rg_dtype T, const int64_t width)
{
    int64_t i = 0;
    for (; i + VLEN <= k->channels; i += VLEN)
        finish_step(k, x, step, l, to, i, VLEN, T, width);
    if (i < k->channels)
        finish_step(k, x, step, l, to, i, (int)(k->channels - i), T, width);
}

RG_INLINE gradient_lines lines_of(const narrow *k, real *buffer, int64_t group, int64_t p)
{
    real *const shares = buffer + group * k->pitch;
    return (gradient_lines){ buffer + p * k->pitch + k->lead, shares + p * k->pitch + k->lead,
                             shares + group * k->pitch + p * k->inner };
}

RG_INLINE void gradient_group(const rg_lrn_gradient_args *a, const narrow *k, real *buffer,
                              int64_t first, int64_t pixels, const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    int64_t offset[RG_LRN_TENSORS];
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 3, first + p, offset);
        const gradient_lines l = lines_of(k, buffer, s->group, p);
        square_pixel(k, at(a->x, offset[1], T), s->step[1], l.squares, T);
    }
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 3, first + p, offset);
        const gradient_lines l = lines_of(k, buffer, s->group, p);
        const char *dy = at(a->dy, offset[0], T), *x = at(a->x, offset[1], T);
        middle_pixel(k, dy, x, s->step, &l, T, s->span.width, k->c.quarters);
    }
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 3, first + p, offset);
        const gradient_lines l = lines_of(k, buffer, s->group, p);
        const char *x = at(a->x, offset[1], T);
        const output to = output_at(s, at_out(a->dx, offset[2], T), 2, T);
        finish_pixel(k, x, s->step[1], &l, &to, T, s->span.width);
    }
}

/* ---- units ---- */

/* The first group of unit u. */
RG_INLINE int64_t group_border(const rg_lrn_shape *s, int64_t u)
{
    const int64_t groups = (s->outer.count + s->group - 1) / s->group;
    return groups / s->units * u + least(groups % s->units, u);
}

RG_INLINE void lrn_forward(const rg_lrn_args *a, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    const narrow k = narrow_of(s);
    wide w = { .c = k.c, .s = s, .x = a->x, .out = a->y, .T = T };
    for (int64_t u = begin; u < end; u++) {
        if (is_five(s)) {
            forward_fives(a, group_border(s, u) * s->group,
                          least(group_border(s, u + 1) * s->group, s->outer.count), T);
            continue;
        }
        real *const buffer = (real *)(void *)((char *)a->scratch + u * s->scratch_bytes);
        memset(buffer, 0, (size_t)s->scratch_bytes); /* zeros around the pixels, which stay */
        for (int64_t g = group_border(s, u); g < group_border(s, u + 1); g++) {
            const int64_t first = g * s->group, pixels = least(s->group, s->outer.count - first);
            if (s->span.width > RG_SPAN_DIRECT)
                wide_group(&w, 1, buffer, first, (int)pixels);
            else
                forward_group(a, &k, buffer, first, pixels, T);
        }
    }
}

RG_INLINE void lrn_gradient(const rg_lrn_gradient_args *a, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    const narrow k = narrow_of(s);
    wide w = { .c = k.c, .s = s, .dy = a->dy, .x = a->x, .out = a->dx, .T = T };
    for (int64_t u = begin; u < end; u++) {
        if (is_five(s)) {
            gradient_fives(a, group_border(s, u) * s->group,
                           least(group_border(s, u + 1) * s->group, s->outer.count), T);
            continue;
        }
        real *const buffer = (real *)(void *)((char *)a->scratch + u * s->scratch_bytes);
        memset(buffer, 0, (size_t)s->scratch_bytes);
        for (int64_t g = group_border(s, u); g < group_border(s, u + 1); g++) {
            const int64_t first = g * s->group, pixels = least(s->group, s->outer.count - first);
            if (s->span.width > RG_SPAN_DIRECT)
                wide_group(&w, 2, buffer, first, (int)pixels);
            else
                gradient_group(a, &k, buffer, first, pixels, T);
        }
    }
}

/* ---- entry points and table ---- */

RG_KERNEL(lrn_forward, rg_lrn_args)
RG_KERNEL(lrn_gradient, rg_lrn_gradient_args)

RG_CPU_TABLE(lrn, RG_LRN_KERNELS) = {
    [RG_LRN_FORWARD] = RG_ROW(lrn_forward),
    [RG_LRN_GRADIENT] = RG_ROW(lrn_gradient),
};
