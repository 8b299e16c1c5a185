/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation where every image is one row: dx, and the sums over rows. */
#include "ops/group_norm/group_norm_rows_cpu.h"

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

ROW_LOOPS(row_sums, 2)
ROW_LOOPS(row_gradient, 2)
ROW_FUSED(row_gradient, row_sums)

RG_INLINE void row_statistics(const group_rows *k, group_row *r, double epsilon, const rg_dtype T)
{
    r->near = middle_element(k, r, T);
    const row_sums q = row_moments_total(k, r, T);
    end_moments(k, r, &q, epsilon);
}

RG_OUTLINE void end_factors(const group_rows *k, group_row *r, const row_sums *q)
{
    const double sum = end_sum(q->a), s = (double)r->s;
    const double product = s * (end_sum(q->b) - (double)r->rest * sum);
    r->offset = (real)(s * (sum * k->each));
    r->weight = (real)(-s * (product * k->each));
}

/* Where group `group` of an image stands, and what is known of it. */
RG_INLINE void place_gradient(const rg_group_norm_gradient_args *k, const group_rows *all,
                              group_row *r, int64_t image, int64_t group, const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const int64_t c = group * all->count, from = image * k->shape.groups + group;
    r->dy = at(image_at(k->dy, s, 0, image, T), c * all->dy_step, T);
    r->x = at(image_at(k->x, s, 1, image, T), c * all->x_step, T);
    r->out = NULL;
    if (k->wants_dx)
        r->out = (char *)(uintptr_t)at(image_at(k->dx, s, 2, image, T), c * all->out_step, T);
    r->mean = ((const real *)k->mean)[from];
    r->rest = ((const real *)k->rest)[from];
    r->s = ((const real *)k->s)[from];
    r->offset = r->weight = 0;
    if (!k->has_statistics)
        row_statistics(all, r, k->shape.epsilon, T);
    set_shift(r);
}

/* Rows first to last - 1 of one group, perhaps none. */
RG_INLINE void fused_gradient(const rg_group_norm_gradient_args *k, group_rows *all,
                              row_tables *tables, int64_t first, int64_t last, const rg_dtype T)
{
    group_row r[2] = { 0 };
    all->ahead = 2 * all->count;
    place_parameters(all, tables, k->gamma, k->beta, 0, T);
    for (int64_t i = first - 1; first < last && i < last; i++) { /* the first is only started */
        const group_row *const now = &r[i & 1];
        group_row *const next = &r[~i & 1];
        if (i + 1 < last)
            place_gradient(k, all, next, i + 1, 0, T);
        else
            *next = *now; /* whose sums are taken in vain */
        const row_sums q =
            i >= first ? row_gradient_fused(all, now, next, T, k->shape.stream && row_aligned(now))
                       : row_sums_total(all, next, T);
        end_factors(all, next, &q);
    }
}

/* Images first to last - 1, whose sums are added to dgamma and dbeta, or NULL. */
RG_INLINE void images_gradient(const rg_group_norm_gradient_args *k, group_rows *all,
                               row_tables *tables, int64_t first, int64_t last, real *dgamma,
                               real *dbeta, const rg_dtype T)
{
    const int64_t groups = k->shape.groups;
    all->dgamma = dgamma;
    all->dbeta = dbeta;
    if (are_fused(all, T) && groups == 1 && k->wants_dx) { /* one gamma */
        fused_gradient(k, all, tables, first, last, T);
        return;
    }
    all->ahead = all->count;
    for (int64_t i = first * groups; i < last * groups; i++) {
        const int64_t c = i % groups * all->count;
        group_row r;
        row_sums unused = { 0 };
        place_gradient(k, all, &r, i / groups, i % groups, T);
        place_parameters(all, tables, k->gamma, k->beta, c, T);
        if (k->wants_dx) {
            const row_sums q = row_sums_total(all, &r, T);
            end_factors(all, &r, &q);
        }
        all->dgamma = dgamma != NULL ? dgamma + c : NULL;
        all->dbeta = dbeta != NULL ? dbeta + c : NULL;
        row_gradient_row(all, &r, &unused, 0, all->count, T, k->shape.stream && row_aligned(&r));
    }
}

/* total += sum, sum = 0; at the end sum = total. */
RG_OUTLINE void end_images(double *total, real *sum, int64_t count, bool is_last)
{
    for (int64_t c = 0; c < count; c++) {
        total[c] += (double)sum[c];
        sum[c] = is_last ? (real)total[c] : 0;
    }
}

/* The images of a unit. Where sums over them are wanted and these are many, runs of them are joined
 * in double; units of wide rows have one run. */
RG_INLINE void unit_gradient(const rg_group_norm_gradient_args *k, group_rows *all,
                             row_tables *tables, int64_t unit, real *dgamma, real *dbeta,
                             const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const int64_t last = least((unit + 1) * k->shape.part, s->images.count);
    const bool joins = dgamma != NULL && k->shape.part > RG_GROUP_NORM_RUN;
    double total[2][RG_GROUP_NORM_WIDE];
    if (joins)
        memset(total, 0, sizeof total);
    for (int64_t i = unit * k->shape.part, end; i < last; i = end) {
        end = joins ? least(last, i + RG_GROUP_NORM_RUN) : last;
        images_gradient(k, all, tables, i, end, dgamma, dbeta, T);
        if (joins) {
            end_images(total[0], dgamma, s->channels, end == last);
            end_images(total[1], dbeta, s->channels, end == last);
        }
    }
}

/* Sums over rows, in the order of the channels. */
RG_OUTLINE void order_sums(real *sums, int64_t groups, int64_t count, rg_dtype T)
{
    for (int64_t group = 0; group < groups && T == RG_BF16; group++, sums += count)
        for (int64_t i = 0; i + CHANNEL_PAIR <= count; i += CHANNEL_PAIR)
            vstore_pair(sums, i, RG_REAL,
                        velement_order(vload_pair(sums, i, RG_REAL, false), RG_BF16), false, false);
}

RG_INLINE void rows_gradient(const rg_group_norm_gradient_args *k, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    norm_columns neuron;
    row_tables tables;
    group_rows all = rows_of(&k->shape, &neuron, k->add, &tables);
    all.dy_step = s->step[0];
    all.x_step = s->step[1];
    all.out_step = s->step[2];
    for (int64_t unit = begin; unit < end; unit++) {
        real *dgamma = (real *)k->dgammas + unit * s->channels;
        real *dbeta = (real *)k->dbetas + unit * s->channels;
        if (k->wants_sums) {
            memset(dgamma, 0, (size_t)s->channels * sizeof(real));
            memset(dbeta, 0, (size_t)s->channels * sizeof(real));
        }
        unit_gradient(k, &all, &tables, unit, k->wants_sums ? dgamma : NULL,
                      k->wants_sums ? dbeta : NULL, T);
        if (k->wants_sums) {
            order_sums(dgamma, k->shape.groups, all.count, T);
            order_sums(dbeta, k->shape.groups, all.count, T);
        }
    }
}

RG_KERNEL(rows_gradient, rg_group_norm_gradient_args)

RG_CPU_TABLE(group_norm_rows_gradient, RG_GROUP_NORM_KERNELS) = {
    [RG_GROUP_NORM_ROWS_GRADIENT] = RG_ROW(rows_gradient),
};
