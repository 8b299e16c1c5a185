/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation where every image is one row: what forward and gradient share. A unit reads
 * its rows twice; the second time they are in a cache. */
#ifndef RG_OPS_GROUP_NORM_ROWS_CPU_H
#define RG_OPS_GROUP_NORM_ROWS_CPU_H

#include "ops/group_norm/group_norm.h"
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

/* ---- a group ---- */

RG_INLINE double end_sum(vpair p)
{
    return (double)vsum(p.a + p.b);
}

RG_INLINE real middle_element(const group_rows *k, const group_row *r, const rg_dtype T)
{
    const real a = load_one(r->x, 0, T), b = load_one(r->x, k->count / 2 * k->x_step, T);
    const real c = load_one(r->x, (k->count - 1) * k->x_step, T);
    const real low = a < b ? a : b, high = a > b ? a : b, less = high < c ? high : c;
    return low > less ? low : less;
}

RG_OUTLINE void end_moments(const group_rows *k, group_row *r, const row_sums *q, double epsilon)
{
    const double sum = end_sum(q->a), rest = sum * k->each, near = (double)r->near;
    const double around = end_sum(q->b) - sum * rest, mean = (double)(real)(near + rest);
    r->mean = (real)mean;
    r->rest = (real)((near - mean) + rest);
    r->s = (real)(1 / __builtin_sqrt((around < 0 ? 0 : around * k->each) + epsilon));
}

/* gamma and beta of a group, as they are needed. */
typedef struct row_tables {
    real gamma[ROW_BUFFER + CHANNEL_PAIR], beta[ROW_BUFFER + CHANNEL_PAIR];
    int64_t channel; /* the first one, or -1 */
} row_tables;

/* All that rows have in common. */
RG_INLINE group_rows rows_of(const rg_group_norm_shape *shape, norm_columns *neuron, bool add,
                             row_tables *tables)
{
    const rg_norm_parameters *p = &shape->parameters;
    const int64_t count = shape->channels.channels / shape->groups;
    const bool keeps = count <= ROW_BUFFER;
    set_neuron(neuron, &shape->neuron);
    neuron->add = add;
    tables->channel = -1;
    return (group_rows){ .count = count,
                         .each = 1 / (double)count,
                         .gamma_step = p->gamma_step,
                         .beta_step = p->beta_step,
                         .has_gamma = p->has_gamma,
                         .has_beta = p->has_beta,
                         .dtype = p->dtype,
                         .dense = shape->channels.dense,
                         .add = add,
                         .fast = keeps && shape->channels.dense && variant_of(neuron) != NORM_OTHER,
                         .neuron = neuron,
                         .gammas = keeps ? tables->gamma : NULL,
                         .betas = keeps ? tables->beta : NULL,
                         .variant = variant_of(neuron) };
}

/* Channel c of gamma and beta. */
RG_OUTLINE void place_parameters(group_rows *k, row_tables *tables, const void *gamma,
                                 const void *beta, int64_t c, rg_dtype T)
{
    const int64_t size = (int64_t)rg_dtype_size(k->dtype);
    if (tables->channel == c)
        return;
    tables->channel = c;
    k->gamma = (const char *)gamma + (k->has_gamma ? c * k->gamma_step * size : 0);
    k->beta = (const char *)beta + (k->has_beta ? c * k->beta_step * size : 0);
    for (int64_t i = 0; i < k->count && k->gammas != NULL; i += CHANNEL_PAIR) {
        const int n = (int)least(CHANNEL_PAIR, k->count - i);
        const vpair g = any_parameter(k->gamma, i, k->gamma_step, n, k->dtype, k->has_gamma, 1, T);
        const vpair b = any_parameter(k->beta, i, k->beta_step, n, k->dtype, k->has_beta, 0, T);
        vstore_pair(tables->gamma, i, RG_REAL, g, false, false);
        vstore_pair(tables->beta, i, RG_REAL, b, false, false);
    }
}

RG_INLINE bool row_aligned(const group_row *r)
{
    return ((uintptr_t)r->out & (RG_VECTOR_BYTES - 1)) == 0;
}

RG_INLINE void set_shift(group_row *r)
{
    r->shift = (real)(-(double)r->rest * (double)r->s);
}

/* Whether a row is started while the one before is finished: of 16 bits, where arithmetic takes
 * longer than memory. */
RG_INLINE bool are_fused(const group_rows *k, const rg_dtype T)
{
    return is_short(T) && k->fast;
}

#endif
