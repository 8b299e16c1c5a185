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

static void sum_parts(norm_parts *p, const channel_block *b, const void *x)
{
    const int64_t all = b->s->chains * b->width;
    start_parts(p, b);
    for (int64_t i = 0; i < b->width; i += VLEN)
        choose_pivots(p, b, x, i);
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
    start_sums(k, b);
    channel_block rest = *b, piece;
    while (next_piece(&rest, &piece)) {
        sums_rows(k, &piece, data, variant_of(k));
        end_piece(k->all, k->sum, all);
        end_piece(k->all_products, k->product, all);
    }
    order_columns(k->all, b, true);
    order_columns(k->all_products, b, true);
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

const rg_norm_loops RG_TABLE(norm_rows) = { sum_parts, forward, sum_gradient, gradient };
