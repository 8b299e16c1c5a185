/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization where every image is one row: what forward and gradient share. A unit reads
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
    real pivot, mean, rest, s;
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

RG_INLINE vpair row_gamma(const group_rows *k, channel_pair p, const rg_dtype T)
{
    return p.whole || k->gammas != NULL
               ? vload_pair(k->gammas, p.i, RG_REAL, false)
               : any_parameter(k->gamma, p.i, k->gamma_step, p.n, k->dtype, k->has_gamma, 1, T);
}

RG_INLINE vpair row_beta(const group_rows *k, channel_pair p, const rg_dtype T)
{
    return p.whole || k->betas != NULL
               ? vload_pair(k->betas, p.i, RG_REAL, false)
               : any_parameter(k->beta, p.i, k->beta_step, p.n, k->dtype, k->has_beta, 0, T);
}

RG_INLINE vpair row_load(const group_rows *k, const char *data, int64_t step, channel_pair p,
                         const rg_dtype T)
{
    if (p.whole)
        return vload_pair(data, p.i, T, true);
    return load_some(at(data, k->dense ? p.i : p.i * step, T), step, p.n, T, k->dense, true);
}

RG_INLINE void row_store(const group_rows *k, const group_row *r, channel_pair p, const rg_dtype T,
                         vpair value)
{
    if (p.whole) {
        vstore_sums(r->out, p.i, T, value, p.stream);
        return;
    }
    char *to = at_out(r->out, k->dense ? p.i : p.i * k->out_step, T);
    if (k->add) {
        const vpair old = load_some(to, k->out_step, p.n, T, k->dense, true);
        value.a += old.a;
        value.b += old.b;
    }
    store_some(to, k->out_step, p.n, T, k->dense, true, value);
}

/* Prefetches the pair that the next row has after this one: memory is read while a row is finished.
 * For the gradient in bf16, two rows at a time were slower. */
RG_INLINE void row_ahead(const group_rows *k, const char *data, channel_pair p, const rg_dtype T)
{
    if (!p.whole)
        return;
    const uintptr_t from = (uintptr_t)data + (uintptr_t)((p.i + k->ahead) * (vbytes(T) / VLEN));
    for (int line = 0; line < 2 * vbytes(T); line += 64)
        __builtin_prefetch((const void *)(from + (uintptr_t)line), 0, 2);
}

RG_INLINE vreal row_xh(const group_row *r, vreal x)
{
    return vfma(x - vset(r->mean), vset(r->s), vset(r->shift));
}

/* ---- loops ---- */

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

/* What is done with a pair of a row; q holds sums of the row. A constant wherever it is passed, as
 * in channel_rows_cpu.h, and with it its loop over a range of elements, which is called. */
typedef struct row_range {
    int64_t begin, end;
    bool stream;
} row_range;
typedef void row_step(const group_rows *k, const group_row *r, row_sums *q, channel_pair p,
                      rg_dtype T);
typedef void row_rest(const group_rows *k, const group_row *r, row_sums *q, row_range range,
                      rg_dtype T);

RG_INLINE void row_rest_of(row_step *step, const group_rows *k, const group_row *r, row_sums *q,
                           row_range range, rg_dtype T)
{
    for (int64_t i = range.begin; i < range.end; i += CHANNEL_PAIR) {
        const int n = (int)least(CHANNEL_PAIR, range.end - i);
        step(k, r, q, (channel_pair){ i, n, 1, k->variant, false, false }, T);
    }
}

/* Writes the name_rest of name_step. */
#define ROW_REST(name)                                                                \
    RG_OUTLINE void name##_rest(const group_rows *k, const group_row *r, row_sums *q, \
                                row_range range, rg_dtype T)                          \
    {                                                                                 \
        row_rest_of(name##_step, k, r, q, range, T);                                  \
    }

/* Whole pairs; returns where these end. */
RG_INLINE int64_t row_pairs(row_step *step, const group_rows *k, const group_row *r, row_sums *q,
                            row_range range, const int variant, const rg_dtype T)
{
    const group_rows all = *k; /* which no store can change */
    const group_row own = *r;
    row_sums sums = *q;
    int64_t i = range.begin;
    for (; i + CHANNEL_PAIR <= range.end; i += CHANNEL_PAIR)
        step(&all, &own, &sums, (channel_pair){ i, CHANNEL_PAIR, 1, variant, true, range.stream },
             T);
    *q = sums;
    return i;
}

/* A range of a row; of 2 `variants` each has a loop of its own. */
RG_INLINE void row_elements(row_step *step, row_rest *rest, const int variants, const group_rows *k,
                            const group_row *r, row_sums *q, row_range range, const rg_dtype T)
{
    if (k->fast && (k->variant == NORM_PLAIN || variants == 1))
        range.begin = row_pairs(step, k, r, q, range, NORM_PLAIN, T);
    else if (k->fast)
        range.begin = row_pairs(step, k, r, q, range, NORM_RELU, T);
    if (range.begin < range.end)
        rest(k, r, q, range, T);
}

/* Sums over all elements. */
RG_INLINE row_sums row_total(row_step *step, row_rest *rest, const int variants,
                             const group_rows *k, const group_row *r, const rg_dtype T)
{
    row_sums total = { 0 }, lost = { 0 };
    for (int64_t i = 0; i < k->count; i += ROW_PIECE) {
        row_sums q = { 0 };
        const row_range piece = { i, least(k->count, i + ROW_PIECE), false };
        row_elements(step, rest, variants, k, r, &q, piece, T);
        add_piece(&total, &lost, q, i);
    }
    return total;
}

/* Finishes row r[0] and sums over row r[1], pair by pair: while one waits for its own results the
 * other goes on. For fast rows; returns where whole pairs end. */
RG_INLINE int64_t row_both(row_step *step, row_step *sums, const group_rows *k,
                           const group_row *const r[2], row_sums *q, row_range range,
                           const int variant, const rg_dtype T)
{
    const group_rows all = *k; /* which no store can change */
    const group_row own = *r[0], next = *r[1];
    row_sums both = *q;
    int64_t i = range.begin;
    for (; i + CHANNEL_PAIR <= range.end; i += CHANNEL_PAIR) {
        const channel_pair p = { i, CHANNEL_PAIR, 1, variant, true, range.stream };
        sums(&all, &next, &both, p, T);
        step(&all, &own, NULL, p, T);
    }
    *q = both;
    return i;
}

/* The whole rows; returns the sums. */
RG_INLINE row_sums row_fused(row_step *step, row_rest *rest, row_step *sums, row_rest *sums_rest,
                             const group_rows *k, const group_row *const r[2], const rg_dtype T,
                             bool stream)
{
    row_sums total = { 0 }, lost = { 0 };
    for (int64_t i = 0; i < k->count; i += ROW_PIECE) {
        row_range piece = { i, least(k->count, i + ROW_PIECE), stream };
        row_sums q = { 0 };
        piece.begin = k->variant == NORM_PLAIN
                          ? row_both(step, sums, k, r, &q, piece, NORM_PLAIN, T)
                          : row_both(step, sums, k, r, &q, piece, NORM_RELU, T);
        if (piece.begin < piece.end) {
            sums_rest(k, r[1], &q, piece, T);
            rest(k, r[0], NULL, piece, T);
        }
        add_piece(&total, &lost, q, i);
    }
    return total;
}

/* ---- statistics ---- */

/* Sums of x - pivot, and of its squares. */
RG_INLINE void row_moments_step(const group_rows *k, const group_row *r, row_sums *q,
                                channel_pair p, const rg_dtype T)
{
    const vpair x = row_load(k, r->x, k->x_step, p, T);
    const vreal pivot = vset(r->pivot);
    const vpair d = keep_some((vpair){ x.a - pivot, x.b - pivot }, p.n, T, true);
    add_products(&q->a, &q->b, d, d);
}
ROW_REST(row_moments)

RG_OUTLINE row_sums row_moments_total(const group_rows *k, const group_row *r, rg_dtype T)
{
    RG_WITH_TYPE(T, U, return row_total(row_moments_step, row_moments_rest, 1, k, r, U));
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
    const double sum = end_sum(q->a), rest = sum * k->each, pivot = (double)r->pivot;
    const double around = end_sum(q->b) - sum * rest, mean = (double)(real)(pivot + rest);
    r->mean = (real)mean;
    r->rest = (real)((pivot - mean) + rest);
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
RG_OUTLINE void find_parameters(group_rows *k, row_tables *tables, const void *gamma,
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
