/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation where every image is one row: what is done with a pair of vectors of a group,
 * and the loops over it. */
#ifndef RG_OPS_GROUP_NORM_ROW_LOOPS_H
#define RG_OPS_GROUP_NORM_ROW_LOOPS_H

#include "ops/norm/norm_cpu.h"

/* Elements whose sums are taken before they are added to those of the pieces before. */
enum { ROW_PIECE = 64 * CHANNEL_PAIR };

/* Elements of a group whose gamma and beta are kept as they are needed, in real and in the order of
 * pairs. */
enum { ROW_BUFFER = 8192 };

/* What one group has in all rows. */
typedef struct group_rows {
    const char *gamma, *beta;
    int64_t dy_step, x_step, out_step, gamma_step, beta_step;
    int64_t count;
    int64_t ahead; /* elements to the row that is started when this one is finished */
    double each;   /* 1 / count */
    bool has_gamma, has_beta, dense, add;
    bool fast;                  /* neighbours, and a variant with loops of its own */
    rg_dtype dtype;             /* of gamma and beta */
    real *dgamma, *dbeta;       /* sums over rows, or NULL; whole pairs in the order of pairs */
    const norm_columns *neuron; /* its neuron alone */
    const real *gammas, *betas; /* of ROW_BUFFER elements at most, or NULL */
    int variant;
} group_rows;

/* A group of one row. */
typedef struct group_row {
    const char *dy, *x;
    char *out; /* or NULL */
    real near, mean, rest, s;
    real shift, offset, weight; /* xh = t s + shift; dx = h s - offset + xh weight */
} group_row;

/* Sums over a row. */
typedef struct row_sums {
    vpair a, b;
} row_sums;

/* n numbers of gamma or beta, for elements from i on. */
RG_OUTLINE vpair any_parameter(const char *data, int64_t i, int64_t step, int n, rg_dtype dtype,
                               bool has, real otherwise, rg_dtype T)
{
    if (!has)
        return (vpair){ vset(otherwise), vset(otherwise) };
    const char *from = data + i * step * (int64_t)rg_dtype_size(dtype);
    const vpair p = load_some(from, step, n, dtype, step == 1, false);
    return vpair_order(
        (vpair){ vselect(p.a == p.a, p.a, vset(RG_NAN)), vselect(p.b == p.b, p.b, vset(RG_NAN)) },
        T);
}

RG_INLINE vpair row_gamma(const group_rows *k, int64_t i, const int n, const rg_dtype T,
                          const bool whole)
{
    return whole || k->gammas != NULL
               ? vload_pair(k->gammas, i, RG_REAL, false)
               : any_parameter(k->gamma, i, k->gamma_step, n, k->dtype, k->has_gamma, 1, T);
}

RG_INLINE vpair row_beta(const group_rows *k, int64_t i, const int n, const rg_dtype T,
                         const bool whole)
{
    return whole || k->betas != NULL
               ? vload_pair(k->betas, i, RG_REAL, false)
               : any_parameter(k->beta, i, k->beta_step, n, k->dtype, k->has_beta, 0, T);
}

RG_INLINE vpair row_load(const char *data, int64_t i, int64_t step, const int n, const rg_dtype T,
                         bool dense, const bool whole)
{
    if (whole)
        return vload_pair(data, i, T, true);
    return load_some(at(data, dense ? i : i * step, T), step, n, T, dense, true);
}

RG_INLINE void row_store(const group_rows *k, const group_row *r, int64_t i, const int n,
                         const rg_dtype T, const bool whole, bool stream, vpair value)
{
    if (whole) {
        vstore_sums(r->out, i, T, value, stream);
        return;
    }
    char *to = at_out(r->out, k->dense ? i : i * k->out_step, T);
    if (k->add) {
        const vpair old = load_some(to, k->out_step, n, T, k->dense, true);
        value.a += old.a;
        value.b += old.b;
    }
    store_some(to, k->out_step, n, T, k->dense, true, value);
}

/* Asks for the pair that the next row has behind this one: memory is read while a row is finished.
 * For the gradient in bf16, prefetches 2 to 16 rows ahead made no difference, and two rows at a
 * time were slower. */
RG_INLINE void row_ahead(const group_rows *k, const char *data, int64_t i, const rg_dtype T,
                         const bool whole)
{
    if (!whole)
        return;
    const uintptr_t from = (uintptr_t)data + (uintptr_t)((i + k->ahead) * (vbytes(T) / VLEN));
    for (int line = 0; line < 2 * vbytes(T); line += 64)
        __builtin_prefetch((const void *)(from + (uintptr_t)line), 0, 2);
}

/* Sums of x - near, and of its squares. */
RG_INLINE void row_moments_step(const group_rows *k, const group_row *r, row_sums *q, int64_t i,
                                const int n, const rg_dtype T, const bool whole, bool stream,
                                const int variant)
{
    (void)stream;
    (void)variant;
    const vpair x = row_load(r->x, i, k->x_step, n, T, k->dense, whole);
    const vreal near = vset(r->near);
    const vpair d = keep_some((vpair){ x.a - near, x.b - near }, n, T, true);
    add_products(&q->a, &q->b, d, d);
}

RG_INLINE vreal row_xh(const group_row *r, vreal x)
{
    return vfma(x - vset(r->mean), vset(r->s), vset(r->shift));
}

RG_INLINE vreal row_y(const group_rows *k, const group_row *r, vreal x, vreal gamma, vreal beta,
                      const int variant)
{
    const vreal z = vfma(row_xh(r, x), gamma, beta);
    return variant == NORM_PLAIN  ? z
           : variant == NORM_RELU ? relu_of(k->neuron, z)
                                  : any_neuron(k->neuron->kind, &k->neuron->neuron, z);
}

RG_INLINE void row_forward_step(const group_rows *k, const group_row *r, row_sums *q, int64_t i,
                                const int n, const rg_dtype T, const bool whole, bool stream,
                                const int variant)
{
    (void)q;
    const vpair gamma = row_gamma(k, i, n, T, whole), beta = row_beta(k, i, n, T, whole);
    const vpair x = row_load(r->x, i, k->x_step, n, T, k->dense, whole);
    row_ahead(k, r->x, i, T, whole);
    const vpair y = { row_y(k, r, x.a, gamma.a, beta.a, variant),
                      row_y(k, r, x.b, gamma.b, beta.b, variant) };
    row_store(k, r, i, n, T, whole, stream, y);
}

RG_INLINE vreal row_g(const group_rows *k, vreal dy, vreal xh, vreal gamma, vreal beta,
                      const int variant)
{
    if (variant == NORM_PLAIN)
        return dy;
    const vreal z = vfma(xh, gamma, beta);
    return variant == NORM_RELU ? relu_slope_of(k->neuron, dy, z)
                                : any_neuron_slope(k->neuron->kind, &k->neuron->neuron, dy, z);
}

/* What both passes of the gradient begin with. */
typedef struct row_values {
    vpair x, xh, g;
} row_values;

RG_INLINE row_values row_values_of(const group_rows *k, const group_row *r, int64_t i, const int n,
                                   vpair gamma, vpair beta, const rg_dtype T, const bool whole,
                                   const int variant)
{
    const vpair dy = row_load(r->dy, i, k->dy_step, n, T, k->dense, whole);
    const vpair x = row_load(r->x, i, k->x_step, n, T, k->dense, whole);
    const vpair xh = { row_xh(r, x.a), row_xh(r, x.b) };
    return (row_values){ x,
                         xh,
                         { row_g(k, dy.a, xh.a, gamma.a, beta.a, variant),
                           row_g(k, dy.b, xh.b, gamma.b, beta.b, variant) } };
}

/* Sums of h and of h t. */
RG_INLINE void row_sums_step(const group_rows *k, const group_row *r, row_sums *q, int64_t i,
                             const int n, const rg_dtype T, const bool whole, bool stream,
                             const int variant)
{
    (void)stream;
    const vpair gamma = row_gamma(k, i, n, T, whole);
    const vpair beta = variant == NORM_PLAIN ? gamma : row_beta(k, i, n, T, whole);
    const row_values v = row_values_of(k, r, i, n, gamma, beta, T, whole, variant);
    const vpair h = keep_some((vpair){ v.g.a * gamma.a, v.g.b * gamma.b }, n, T, true);
    const vreal mean = vset(r->mean);
    const vpair t = keep_some((vpair){ v.x.a - mean, v.x.b - mean }, n, T, true);
    add_products(&q->a, &q->b, h, t);
}

/* Sums over rows: whole pairs stand in the order of pairs. */
RG_INLINE vpair load_sums(const real *from, int64_t i, const int n, const rg_dtype T)
{
    const vpair p = load_some((const char *)(from + i), 1, n, RG_REAL, true, false);
    return n == CHANNEL_PAIR ? p : vpair_order(p, T);
}

RG_INLINE void store_sums(real *to, int64_t i, const int n, const rg_dtype T, vpair p)
{
    store_some((char *)(to + i), 1, n, RG_REAL, true, false,
               n == CHANNEL_PAIR ? p : velement_order(p, T));
}

RG_INLINE void row_gradient_step(const group_rows *k, const group_row *r, row_sums *q, int64_t i,
                                 const int n, const rg_dtype T, const bool whole, bool stream,
                                 const int variant)
{
    (void)q;
    const vpair gamma = row_gamma(k, i, n, T, whole);
    const vpair beta = variant == NORM_PLAIN ? gamma : row_beta(k, i, n, T, whole);
    const row_values v = row_values_of(k, r, i, n, gamma, beta, T, whole, variant);
    row_ahead(k, r->dy, i, T, whole);
    row_ahead(k, r->x, i, T, whole);
    if (k->dgamma != NULL) {
        vpair dgamma = load_sums(k->dgamma, i, n, T), dbeta = load_sums(k->dbeta, i, n, T);
        add_products(&dbeta, &dgamma, v.g, v.xh);
        store_sums(k->dgamma, i, n, T, dgamma);
        store_sums(k->dbeta, i, n, T, dbeta);
    }
    if (r->out == NULL)
        return;
    const vreal s = vset(r->s), offset = vset(r->offset), weight = vset(r->weight);
    /* rounded one by one: a single element leaves 0 */
    const vpair dx = { vfma(v.xh.a, weight, v.g.a * gamma.a * s - offset),
                       vfma(v.xh.b, weight, v.g.b * gamma.b * s - offset) };
    row_store(k, r, i, n, T, whole, stream, dx);
}

/* Loops over name_step, as in channel_rows_cpu.h; q holds sums of the row:
 *
 *      name_rest       elements begin to end - 1, called
 *      name_pairs      whole pairs; returns where these end
 *      name_row        elements begin to end - 1
 *      name_total      sums over all elements */
#define ROW_LOOPS(name, variants)                                                                  \
    RG_OUTLINE void name##_rest(const group_rows *k, const group_row *r, row_sums *q,              \
                                int64_t begin, int64_t end, rg_dtype T)                            \
    {                                                                                              \
        for (int64_t i = begin; i < end; i += CHANNEL_PAIR)                                        \
            name##_step(k, r, q, i, (int)least(CHANNEL_PAIR, end - i), T, false, false,            \
                        k->variant);                                                               \
    }                                                                                              \
    RG_INLINE int64_t name##_pairs(const group_rows *k, const group_row *r, row_sums *q,           \
                                   int64_t begin, int64_t end, const rg_dtype T, bool stream,      \
                                   const int variant)                                              \
    {                                                                                              \
        const group_rows all = *k; /* which no store can change */                                 \
        const group_row own = *r;                                                                  \
        row_sums sums = *q;                                                                        \
        int64_t i = begin;                                                                         \
        for (; i + CHANNEL_PAIR <= end; i += CHANNEL_PAIR)                                         \
            name##_step(&all, &own, &sums, i, CHANNEL_PAIR, T, true, stream, variant);             \
        *q = sums;                                                                                 \
        return i;                                                                                  \
    }                                                                                              \
    RG_INLINE void name##_row(const group_rows *k, const group_row *r, row_sums *q, int64_t begin, \
                              int64_t end, const rg_dtype T, bool stream)                          \
    {                                                                                              \
        int64_t i = begin;                                                                         \
        if (k->fast && (k->variant == NORM_PLAIN || (variants) == 1))                              \
            i = name##_pairs(k, r, q, begin, end, T, stream, NORM_PLAIN);                          \
        else if (k->fast)                                                                          \
            i = name##_pairs(k, r, q, begin, end, T, stream, NORM_RELU);                           \
        if (i < end)                                                                               \
            name##_rest(k, r, q, i, end, T);                                                       \
    }                                                                                              \
    RG_INLINE row_sums name##_total(const group_rows *k, const group_row *r, const rg_dtype T)     \
    {                                                                                              \
        row_sums total = { 0 };                                                                    \
        row_sums lost = { 0 };                                                                     \
        for (int64_t i = 0; i < k->count; i += ROW_PIECE) {                                        \
            row_sums q = { 0 };                                                                    \
            name##_row(k, r, &q, i, least(k->count, i + ROW_PIECE), T, false);                     \
            add_piece(&total, &lost, q, i);                                                        \
        }                                                                                          \
        return total;                                                                              \
    }

/* Pieces that are added up plainly; to more of them nothing is lost. */
enum { ROW_PIECES = 32 };

RG_INLINE void add_lost(vreal *total, vreal *lost, vreal q)
{
    const long_sum s = long_sum_add((long_sum){ *total, *lost }, q);
    *total = s.high;
    *lost = s.low;
}

/* total += q, the sums of the piece from element i on. */
RG_INLINE void add_piece(row_sums *total, row_sums *lost, row_sums q, int64_t i)
{
    if (i == 0) {
        *total = q;
    } else if (i < ROW_PIECES * ROW_PIECE) {
        total->a = (vpair){ total->a.a + q.a.a, total->a.b + q.a.b };
        total->b = (vpair){ total->b.a + q.b.a, total->b.b + q.b.b };
    } else {
        add_lost(&total->a.a, &lost->a.a, q.a.a);
        add_lost(&total->a.b, &lost->a.b, q.a.b);
        add_lost(&total->b.a, &lost->b.a, q.b.a);
        add_lost(&total->b.b, &lost->b.b, q.b.b);
    }
}

ROW_LOOPS(row_moments, 1)
ROW_LOOPS(row_forward, 2)
ROW_LOOPS(row_sums, 2)
ROW_LOOPS(row_gradient, 2)

/* The same over name_step of one row and sums_step of another, pair by pair: while one waits for
 * its own results the other goes on. For fast rows.
 *
 *      name_both       whole pairs; returns where these end
 *      name_fused      all of row r; returns the sums of row `next` */
#define ROW_FUSED(name, sums)                                                                     \
    RG_INLINE int64_t name##_both(const group_rows *k, const group_row *r, const group_row *next, \
                                  row_sums *q, int64_t begin, int64_t end, const rg_dtype T,      \
                                  bool stream, const int variant)                                 \
    {                                                                                             \
        const group_rows all = *k; /* which no store can change */                                \
        const group_row own = *r, other = *next;                                                  \
        row_sums both = *q;                                                                       \
        int64_t i = begin;                                                                        \
        for (; i + CHANNEL_PAIR <= end; i += CHANNEL_PAIR) {                                      \
            sums##_step(&all, &other, &both, i, CHANNEL_PAIR, T, true, false, variant);           \
            name##_step(&all, &own, NULL, i, CHANNEL_PAIR, T, true, stream, variant);             \
        }                                                                                         \
        *q = both;                                                                                \
        return i;                                                                                 \
    }                                                                                             \
    RG_INLINE row_sums name##_fused(const group_rows *k, const group_row *r,                      \
                                    const group_row *next, const rg_dtype T, bool stream)         \
    {                                                                                             \
        row_sums total = { 0 };                                                                   \
        row_sums lost = { 0 };                                                                    \
        for (int64_t i = 0; i < k->count; i += ROW_PIECE) {                                       \
            const int64_t end = least(k->count, i + ROW_PIECE);                                   \
            row_sums q = { 0 };                                                                   \
            const int64_t done = k->variant == NORM_PLAIN                                         \
                                     ? name##_both(k, r, next, &q, i, end, T, stream, NORM_PLAIN) \
                                     : name##_both(k, r, next, &q, i, end, T, stream, NORM_RELU); \
            if (done < end) {                                                                     \
                sums##_rest(k, next, &q, done, end, T);                                           \
                name##_rest(k, r, NULL, done, end, T);                                            \
            }                                                                                     \
            add_piece(&total, &lost, q, i);                                                       \
        }                                                                                         \
        return total;                                                                             \
    }

ROW_FUSED(row_forward, row_moments)
ROW_FUSED(row_gradient, row_sums)

#endif
