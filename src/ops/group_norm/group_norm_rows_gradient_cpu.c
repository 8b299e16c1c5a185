/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization where every image is one row: dx, and the sums over rows. */
#include "ops/group_norm/group_norm_rows_cpu.h"

/* What both passes of the gradient begin with. */
typedef struct row_values {
    vpair gamma, x, xh, g;
} row_values;

RG_INLINE row_values row_values_of(const group_rows *k, const group_row *r, channel_pair p,
                                   const rg_dtype T)
{
    row_values v = { .gamma = row_gamma(k, p, T) };
    const vpair beta = p.variant == NORM_PLAIN ? v.gamma : row_beta(k, p, T);
    v.g = row_load(k, r->dy, k->dy_step, p, T);
    v.x = row_load(k, r->x, k->x_step, p, T);
    v.xh = (vpair){ row_xh(r, v.x.a), row_xh(r, v.x.b) };
    if (p.variant != NORM_PLAIN) {
        const vpair z = { vfma(v.xh.a, v.gamma.a, beta.a), vfma(v.xh.b, v.gamma.b, beta.b) };
        v.g = (vpair){ norm_neuron_slope(k->neuron, v.g.a, z.a, p.variant),
                       norm_neuron_slope(k->neuron, v.g.b, z.b, p.variant) };
    }
    return v;
}

/* Sums of h and of h t. */
RG_INLINE void row_sums_step(const group_rows *k, const group_row *r, row_sums *q, channel_pair p,
                             const rg_dtype T)
{
    const row_values v = row_values_of(k, r, p, T);
    const vpair h = { v.g.a * v.gamma.a, v.g.b * v.gamma.b };
    const vpair t = { v.x.a - vset(r->mean), v.x.b - vset(r->mean) };
    add_products(&q->a, &q->b, keep_some(h, p.n, T, true), keep_some(t, p.n, T, true));
}
ROW_REST(row_sums)

/* Sums over rows: whole pairs are in the order of pairs. */
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

RG_INLINE void row_gradient_step(const group_rows *k, const group_row *r, row_sums *q,
                                 channel_pair p, const rg_dtype T)
{
    (void)q;
    const row_values v = row_values_of(k, r, p, T);
    row_ahead(k, r->dy, p, T);
    row_ahead(k, r->x, p, T);
    if (k->dgamma != NULL) {
        vpair dgamma = load_sums(k->dgamma, p.i, p.n, T), dbeta = load_sums(k->dbeta, p.i, p.n, T);
        add_products(&dbeta, &dgamma, v.g, v.xh);
        store_sums(k->dgamma, p.i, p.n, T, dgamma);
        store_sums(k->dbeta, p.i, p.n, T, dbeta);
    }
    if (r->out == NULL)
        return;
    const vreal s = vset(r->s), offset = vset(r->offset), weight = vset(r->weight);
    /* rounded one by one: a single element leaves 0 */
    const vpair dx = { vfma(v.xh.a, weight, v.g.a * v.gamma.a * s - offset),
                       vfma(v.xh.b, weight, v.g.b * v.gamma.b * s - offset) };
    row_store(k, r, p, T, dx);
}
ROW_REST(row_gradient)

RG_OUTLINE row_sums row_sums_total(const group_rows *k, const group_row *r, rg_dtype T)
{
    RG_WITH_TYPE(T, U, return row_total(row_sums_step, row_sums_rest, 2, k, r, U));
}

RG_INLINE void row_statistics(const group_rows *k, group_row *r, double epsilon, rg_dtype T)
{
    r->pivot = middle_element(k, r, T);
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

/* The addresses of group `group` of an image, and its statistics. */
RG_OUTLINE void place_gradient(const rg_group_norm_gradient_args *k, const group_rows *all,
                               group_row *r, int64_t image, int64_t group, rg_dtype T)
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
    const int64_t far = is_short(T) ? 4096 : 0; /* rows of few bytes are soon read */
    group_row r[2] = { 0 };
    all->ahead = 2 * all->count > far ? 2 * all->count : far;
    find_parameters(all, tables, k->gamma, k->beta, 0, T);
    for (int64_t i = first - 1; first < last && i < last;
         i++) { /* prologue: no row to finish yet */
        const group_row *const now = &r[i & 1];
        group_row *const next = &r[~i & 1];
        if (i + 1 < last)
            place_gradient(k, all, next, i + 1, 0, T);
        else
            *next = *now; /* no next row: the sums are discarded */
        const row_sums q =
            i >= first ? row_fused(row_gradient_step, row_gradient_rest, row_sums_step,
                                   row_sums_rest, all, (const group_row *const[]){ now, next }, T,
                                   k->shape.stream && row_aligned(now))
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
        find_parameters(all, tables, k->gamma, k->beta, c, T);
        if (k->wants_dx) {
            const row_sums q = row_sums_total(all, &r, T);
            end_factors(all, &r, &q);
        }
        all->dgamma = dgamma != NULL ? dgamma + c : NULL;
        all->dbeta = dbeta != NULL ? dbeta + c : NULL;
        const row_range range = { 0, all->count, k->shape.stream && row_aligned(&r) };
        row_elements(row_gradient_step, row_gradient_rest, 2, all, &r, &unused, range, T);
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
