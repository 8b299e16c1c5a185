/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization on the CPU. Windows of 5 channels have kernels of their own
 * (lrn_five_cpu.h), and so have those wider than RG_SPAN_DIRECT (lrn_wide_cpu.h). Others: squares
 * of a group of pixels are written with zeros around each pixel, and summed by loads at shifted
 * addresses; a group at a time, so that what is loaded has left the store buffer. */
#include "ops/lrn/lrn_five_cpu.h"
#include "ops/lrn/lrn_wide_cpu.h"

/* A narrow window: what is the same for all pixels of a group. */
typedef struct narrow {
    lrn_job j;
    int64_t lead, inner, pitch; /* reals; see lrn.h */
    real *buffer;
} narrow;

/* A pixel with its lines. */
typedef struct narrow_pixel {
    lrn_pixel own;
    real *squares, *shares; /* with zeros around */
    real *direct;
} narrow_pixel;

RG_INLINE narrow narrow_of(const lrn_job *j, int64_t unit)
{
    const rg_lrn_shape *s = j->s;
    narrow k = { .j = *j,
                 .lead = rg_lrn_lead(&s->span),
                 .inner = rg_lrn_round(s->span.size),
                 .buffer = (real *)(void *)((char *)j->scratch + unit * s->scratch_bytes) };
    k.pitch = k.inner + 2 * k.lead;
    return k;
}

/* Pixel p of the group that begins with pixel `first`. */
RG_INLINE narrow_pixel load_pixel(const narrow *k, const int inputs, int64_t first, int64_t p,
                                  const rg_dtype T)
{
    const int64_t all = k->j.s->group * k->pitch;
    real *const squares = k->buffer + p * k->pitch + k->lead;
    return (narrow_pixel){ pixel_of(&k->j, inputs, first + p, T), squares, squares + all,
                           k->buffer + 2 * all + p * k->inner };
}

/* What is done with n channels of a pixel, from i on. */
typedef void narrow_step(const narrow *k, const narrow_pixel *p, int64_t i, const int n,
                         const rg_dtype T);

/* Zeros follow the last channel. */
RG_INLINE void square_step(const narrow *k, const narrow_pixel *p, int64_t i, const int n,
                           const rg_dtype T)
{
    const vreal v = vload_strided(p->own.x, i, p->own.x_step, n, T, k->j.s->dense);
    vstore_full(p->squares, i, RG_REAL, v * v);
}

RG_INLINE void forward_step(const narrow *k, const narrow_pixel *p, int64_t i, const int n,
                            const rg_dtype T)
{
    const rg_lrn_shape *s = k->j.s;
    const vreal sum = sum_taps(p->squares + i - s->span.before, 1, s->span.width);
    const vreal v = vload_strided(p->own.x, i, p->own.x_step, n, T, s->dense);
    store_channels(&p->own.to, i, n, T,
                   power_forward(&k->j.c, v, sum, k->j.c.quarters, is_short(T)));
}

RG_INLINE void middle_step(const narrow *k, const narrow_pixel *p, int64_t i, const int n,
                           const rg_dtype T)
{
    const rg_lrn_shape *s = k->j.s;
    const vreal sum = sum_taps(p->squares + i - s->span.before, 1, s->span.width);
    const vreal g = vload_strided(p->own.dy, i, p->own.dy_step, n, T, s->dense);
    const vreal v = vload_strided(p->own.x, i, p->own.x_step, n, T, s->dense);
    vreal share;
    vstore_full(p->direct, i, RG_REAL,
                power_middle(&k->j.c, g, v, sum, &share, k->j.c.quarters, is_short(T)));
    vstore_full(p->shares, i, RG_REAL, vkeep(share, n, 0));
}

RG_INLINE void finish_step(const narrow *k, const narrow_pixel *p, int64_t i, const int n,
                           const rg_dtype T)
{
    const rg_lrn_shape *s = k->j.s; /* the mirrored window: */
    const vreal sum = sum_taps(p->shares + i - s->span.after, 1, s->span.width);
    const vreal v = vload_strided(p->own.x, i, p->own.x_step, n, T, s->dense);
    const vreal direct = vload_full(p->direct, i, RG_REAL);
    store_channels(&p->own.to, i, n, T, power_gradient(&k->j.c, v, direct, sum));
}

/* One step with all channels of all pixels of a group. */
RG_INLINE void narrow_pixels(narrow_step *step, const narrow *k, const int inputs, int64_t first,
                             int64_t pixels, const rg_dtype T)
{
    const int64_t channels = k->j.s->span.size;
    for (int64_t j = 0; j < pixels; j++) {
        const narrow_pixel p = load_pixel(k, inputs, first, j, T);
        int64_t i = 0;
        for (; i + VLEN <= channels; i += VLEN)
            step(k, &p, i, VLEN, T);
        if (i < channels)
            step(k, &p, i, (int)(channels - i), T);
    }
}

RG_INLINE void narrow_group(const narrow *k, const int inputs, int64_t first, int64_t pixels,
                            const rg_dtype T)
{
    narrow_pixels(square_step, k, inputs, first, pixels, T);
    if (inputs == 1) {
        narrow_pixels(forward_step, k, inputs, first, pixels, T);
        return;
    }
    narrow_pixels(middle_step, k, inputs, first, pixels, T);
    narrow_pixels(finish_step, k, inputs, first, pixels, T);
}

/* ---- units ---- */

/* The first group of unit u. */
RG_INLINE int64_t group_border(const rg_lrn_shape *s, int64_t u)
{
    const int64_t groups = (s->outer.count + s->group - 1) / s->group;
    return groups / s->units * u + least(groups % s->units, u);
}

/* `inputs`: 1 in a forward pass, 2 in a gradient. */
RG_INLINE void lrn_units(const lrn_job *j, const int inputs, int64_t begin, int64_t end,
                         const rg_dtype T)
{
    const rg_lrn_shape *s = j->s;
    for (int64_t u = begin; u < end; u++) {
        const int64_t from = group_border(s, u), to = group_border(s, u + 1);
        if (is_five(s)) {
            const int64_t last = least(to * s->group, s->outer.count);
            if (inputs == 1)
                forward_fives(j, from * s->group, last, T);
            else
                gradient_fives(j, from * s->group, last, T);
            continue;
        }
        const narrow k = narrow_of(j, u);
        wide w = { .j = *j, .T = T };
        memset(k.buffer, 0, (size_t)s->scratch_bytes); /* zeros around the pixels, which stay */
        for (int64_t g = from; g < to; g++) {
            const int64_t first = g * s->group, pixels = least(s->group, s->outer.count - first);
            if (s->span.width > RG_SPAN_DIRECT)
                wide_group(&w, inputs, k.buffer, first, (int)pixels);
            else
                narrow_group(&k, inputs, first, pixels, T);
        }
    }
}

RG_INLINE void lrn_forward(const rg_lrn_args *a, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    const lrn_job j = { power_constants_of(&s->numbers), s, a->x, a->x, a->y, a->scratch };
    lrn_units(&j, 1, begin, end, T);
}

RG_INLINE void lrn_gradient(const rg_lrn_gradient_args *a, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    const lrn_job j = { power_constants_of(&s->numbers), s, a->dy, a->x, a->dx, a->scratch };
    lrn_units(&j, 2, begin, end, T);
}

/* ---- entry points and table ---- */

RG_KERNEL(lrn_forward, rg_lrn_args)
RG_KERNEL(lrn_gradient, rg_lrn_gradient_args)

RG_CPU_TABLE(lrn, RG_LRN_KERNELS) = {
    [RG_LRN_FORWARD] = RG_ROW(lrn_forward),
    [RG_LRN_GRADIENT] = RG_ROW(lrn_gradient),
};
