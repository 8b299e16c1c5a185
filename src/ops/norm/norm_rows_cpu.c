/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The loops over rows of normalization, compiled once for batch and group normalization: sums of
 * statistics, sums of the gradient, y and dx. */
#include "ops/norm/norm_cpu.h"

/* The loops of a step: name_rest, and name_rows over a block. */
#define CHANNEL_LOOPS(name, ...)                                                                  \
    RG_OUTLINE void name##_rest(void *context, const channel_run *r, int64_t i, int64_t count,    \
                                rg_dtype T, int variant)                                          \
    {                                                                                             \
        channel_rest_of(name##_step, context, r, i, count, T, variant);                           \
    }                                                                                             \
    RG_OUTLINE void name##_rows(void *context, const channel_block *b, const void *const data[],  \
                                int variant)                                                      \
    {                                                                                             \
        const channel_loop loop = { __VA_ARGS__ };                                                \
        RG_WITH_TYPE(b->dtype, U,                                                                 \
                     channel_rows(name##_step, name##_rest, loop, context, b, data, variant, U)); \
    }

/* ---- statistics ---- */

RG_INLINE void parts_step(void *context, const channel_run *r, channel_pair p, const rg_dtype T)
{
    norm_parts *parts = context;
    const int64_t c = r->column + p.i;
    const vpair pivot = vload_pair(parts->pivot, c, RG_REAL, false);
    vpair sum = vload_pair(parts->sum, c, RG_REAL, false);
    vpair squares = vload_pair(parts->squares, c, RG_REAL, false);
#pragma GCC unroll 2
    for (int j = 0; j < p.rows; j++) {
        const vpair x = load_channels(&r[j], 0, p, T);
        /* columns after the end belong to others */
        const vpair d = keep_some((vpair){ x.a - pivot.a, x.b - pivot.b }, p.n, T, r[j].any_order);
        add_products(&sum, &squares, d, d);
    }
    vstore_pair(parts->sum, c, RG_REAL, sum, false, false);
    vstore_pair(parts->squares, c, RG_REAL, squares, false, false);
}
CHANNEL_LOOPS(parts, .tensors = 1, .variants = 1)

/* Rows of a block in pieces of CHANNEL_PIECE: next_piece(&rest, &piece) until there is none. */
RG_INLINE bool next_piece(channel_block *rest, channel_block *piece)
{
    if (rest->begin >= rest->end)
        return false;
    *piece = *rest;
    piece->end = least(rest->end, rest->begin + CHANNEL_PIECE * rest->s->chains);
    rest->begin = piece->end;
    return true;
}

RG_INLINE vreal middle_of(vreal a, vreal b, vreal c)
{
    return vmax(vmin(a, b), vmin(vmax(a, b), c));
}

/* The shift of the shifted-data variance: the median of the first three elements of each column.
 * Equal elements leave nothing to sum. */
static void choose_pivots(norm_parts *p, const channel_block *b, const void *x)
{
    const rg_channels *s = b->s;
    const rg_dtype T = b->dtype;
    const void *const data[] = { x };
    for (int64_t chain = 0; chain < least(s->chains, b->end - b->begin); chain++) {
        channel_run r[3];
        for (int k = 0; k < 3; k++) {
            const int64_t first = b->begin + chain, row = first + k * s->chains;
            r[k] = run_at(s, data, 1, false, row < b->end ? row : first, b->first, T);
        }
        for (int64_t i = 0; i < b->width; i += VLEN) {
            const int n = vlanes_left(b->width - i);
            vreal each[3];
            for (int k = 0; k < 3; k++)
                each[k] =
                    load_groups(at(r[k].in[0], i * s->step[0], T), s->step[0], n, T, s->dense);
            vstore(p->pivot, chain * b->width + i, n, RG_REAL,
                   middle_of(each[0], each[1], each[2]));
        }
    }
}

static void sum_parts(norm_parts *p, const channel_block *b, const void *x)
{
    const int64_t all = b->s->chains * b->width;
    const size_t bytes = (size_t)(all + CHANNEL_PAIR) * sizeof(real);
    memset(p->pivot, 0, bytes);
    memset(p->sum, 0, bytes);
    memset(p->squares, 0, bytes);
    memset(p->all, 0, bytes);
    memset(p->all_squares, 0, bytes);
    choose_pivots(p, b, x);
    order_columns(p->pivot, b, false);
    const void *const data[] = { x };
    channel_block rest = *b, piece;
    while (next_piece(&rest, &piece)) {
        parts_rows(p, &piece, data, 0);
        end_piece(p->all, p->sum, all);
        end_piece(p->all_squares, p->squares, all);
    }
    order_columns(p->pivot, b, true);
    order_columns(p->all, b, true);
    order_columns(p->all_squares, b, true);
}

/* ---- y ---- */

/* Those of VLEN columns. */
typedef struct norm_numbers {
    vreal mean, scale, shift, weight, offset, plus;
} norm_numbers;

RG_INLINE norm_numbers numbers_at(const norm_columns *k, int64_t c)
{
    return (norm_numbers){ vload_full(k->mean, c, RG_REAL),   vload_full(k->scale, c, RG_REAL),
                           vload_full(k->shift, c, RG_REAL),  vload_full(k->weight, c, RG_REAL),
                           vload_full(k->offset, c, RG_REAL), vload_full(k->plus, c, RG_REAL) };
}

RG_INLINE vreal y_of(const norm_columns *k, const norm_numbers *m, vreal x, const int variant)
{
    return norm_neuron(k, vfma(x - m->mean, m->scale, m->shift), variant);
}

RG_INLINE void forward_step(void *context, const channel_run *r, channel_pair p, const rg_dtype T)
{
    const norm_columns *k = context;
    const norm_numbers a = numbers_at(k, r->column + p.i);
    const norm_numbers b = numbers_at(k, r->column + p.i + VLEN);
    for (int j = 0; j < p.rows; j++) {
        const vpair x = load_channels(&r[j], 0, p, T);
        const vpair y = { y_of(k, &a, x.a, p.variant), y_of(k, &b, x.b, p.variant) };
        store_channels(&r[j], p, T, false, y);
    }
}
CHANNEL_LOOPS(forward, .tensors = 2, .variants = 2, .writes = true)

static void forward(norm_columns *k, const channel_block *b, const void *const data[])
{
    forward_rows(k, b, data, variant_of(k));
}

/* ---- gradient ---- */

/* g from dy and x. */
RG_INLINE vreal through_neuron(const norm_columns *k, const norm_numbers *m, vreal dy, vreal x,
                               const int variant)
{
    if (variant == NORM_PLAIN || k->kind == RG_NEURON_NONE)
        return dy;
    return norm_neuron_slope(k, dy, vfma(x - m->mean, m->scale, m->shift), variant);
}

RG_INLINE void sums_step(void *context, const channel_run *r, channel_pair p, const rg_dtype T)
{
    norm_columns *k = context;
    const int64_t c = r->column + p.i;
    const norm_numbers a = numbers_at(k, c), b = numbers_at(k, c + VLEN);
    vpair sum = vload_pair(k->sum, c, RG_REAL, false);
    vpair product = vload_pair(k->product, c, RG_REAL, false);
#pragma GCC unroll 2
    for (int j = 0; j < p.rows; j++) {
        const vpair dy = load_channels(&r[j], 0, p, T);
        const vpair x = load_channels(&r[j], 1, p, T);
        const vpair t = { x.a - a.mean, x.b - b.mean };
        const vpair g = keep_some((vpair){ through_neuron(k, &a, dy.a, x.a, p.variant),
                                           through_neuron(k, &b, dy.b, x.b, p.variant) },
                                  p.n, T, r[j].any_order);
        add_products(&sum, &product, g, keep_some(t, p.n, T, r[j].any_order));
    }
    vstore_pair(k->sum, c, RG_REAL, sum, false, false);
    vstore_pair(k->product, c, RG_REAL, product, false, false);
}
CHANNEL_LOOPS(sums, .tensors = 2, .variants = 2)

static void sum_gradient(norm_columns *k, const channel_block *b, const void *const data[])
{
    const int64_t all = b->s->chains * b->width;
    const size_t bytes = (size_t)(all + CHANNEL_PAIR) * sizeof(real);
    memset(k->sum, 0, bytes);
    memset(k->product, 0, bytes);
    memset(k->all, 0, bytes);
    memset(k->all_products, 0, bytes);
    channel_block rest = *b, piece;
    while (next_piece(&rest, &piece)) {
        sums_rows(k, &piece, data, variant_of(k));
        end_piece(k->all, k->sum, all);
        end_piece(k->all_products, k->product, all);
    }
    order_columns(k->all, b, true);
    order_columns(k->all_products, b, true);
}

RG_INLINE vreal dx_of(const norm_columns *k, const norm_numbers *m, vreal dy, vreal x,
                      const int variant)
{
    const vreal h = through_neuron(k, m, dy, x, variant) * m->scale;
    if (variant == NORM_OTHER && k->given)
        return h;
    /* not fused: one element leaves 0 */
    const vreal dx = vfma(x - m->mean, m->weight, h - m->offset);
    return variant == NORM_OTHER && k->extra ? dx + m->plus : dx;
}

RG_INLINE void gradient_step(void *context, const channel_run *r, channel_pair p, const rg_dtype T)
{
    const norm_columns *k = context;
    const norm_numbers a = numbers_at(k, r->column + p.i);
    const norm_numbers b = numbers_at(k, r->column + p.i + VLEN);
    for (int j = 0; j < p.rows; j++) {
        const vpair dy = load_channels(&r[j], 0, p, T);
        const vpair x = load_channels(&r[j], 1, p, T);
        const vpair dx = { dx_of(k, &a, dy.a, x.a, p.variant), dx_of(k, &b, dy.b, x.b, p.variant) };
        store_channels(&r[j], p, T, k->add, dx);
    }
}
CHANNEL_LOOPS(gradient, .tensors = 3, .variants = 2, .writes = true)

static void gradient(norm_columns *k, const channel_block *b, const void *const data[])
{
    gradient_rows(k, b, data, variant_of(k));
}

const rg_norm_rows RG_TABLE(norm_rows) = { sum_parts, forward, sum_gradient, gradient };
