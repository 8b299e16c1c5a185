/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation where every image is one row: statistics of a group, y, dx, and the sums over
 * rows. A unit reads its rows twice; the second time they are in a cache. */
#include "ops/group_norm/group_norm.h"
#include "ops/group_norm/group_norm_row_loops.h"

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

/* Where group `group` of an image stands. */
RG_INLINE void place_forward(const rg_group_norm_args *k, const group_rows *all, group_row *r,
                             int64_t image, int64_t group, const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const int64_t c = group * all->count;
    r->x = at(image_at(k->x, s, 0, image, T), c * all->x_step, T);
    r->out = (char *)(uintptr_t)at(image_at(k->y, s, 1, image, T), c * all->out_step, T);
    r->near = middle_element(all, r, T);
}

/* Its statistics, which are kept; `to` is its number. */
RG_INLINE void end_statistics(const rg_group_norm_args *k, const group_rows *all, group_row *r,
                              const row_sums *q, int64_t to)
{
    end_moments(all, r, q, k->shape.epsilon);
    ((real *)k->mean)[to] = r->mean;
    ((real *)k->rest)[to] = r->rest;
    ((real *)k->s)[to] = r->s;
    set_shift(r);
}

/* Groups first to last - 1, perhaps none. */
RG_INLINE void fused_forward(const rg_group_norm_args *k, group_rows *all, row_tables *tables,
                             int64_t first, int64_t last, const rg_dtype T)
{
    const int64_t groups = k->shape.groups;
    group_row r[2] = { 0 };
    all->ahead = 2 * all->count;
    for (int64_t i = first - 1; first < last && i < last; i++) { /* the first is only started */
        const group_row *const now = &r[i & 1];
        group_row *const next = &r[~i & 1];
        if (i + 1 < last)
            place_forward(k, all, next, (i + 1) / groups, (i + 1) % groups, T);
        else
            *next = *now; /* whose sums are taken in vain */
        row_sums q;
        if (i >= first) {
            place_parameters(all, tables, k->gamma, k->beta, i % groups * all->count, T);
            q = row_forward_fused(all, now, next, T, k->shape.stream && row_aligned(now));
        } else {
            q = row_moments_total(all, next, T);
        }
        if (i + 1 < last)
            end_statistics(k, all, next, &q, i + 1);
    }
}

RG_INLINE void rows_forward(const rg_group_norm_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const int64_t groups = k->shape.groups;
    norm_columns neuron;
    row_tables tables;
    group_rows all = rows_of(&k->shape, &neuron, false, &tables);
    all.x_step = s->step[0];
    all.out_step = s->step[1];
    all.ahead = all.count;
    const int64_t first = begin * k->shape.part * groups;
    const int64_t last = least(end * k->shape.part, s->images.count) * groups;
    if (are_fused(&all, T)) {
        fused_forward(k, &all, &tables, first, last, T);
        return;
    }
    for (int64_t i = first; i < last; i++) {
        group_row r;
        row_sums unused = { 0 };
        place_forward(k, &all, &r, i / groups, i % groups, T);
        const row_sums q = row_moments_total(&all, &r, T);
        end_statistics(k, &all, &r, &q, i);
        place_parameters(&all, &tables, k->gamma, k->beta, i % groups * all.count, T);
        row_forward_row(&all, &r, &unused, 0, all.count, T, k->shape.stream && row_aligned(&r));
    }
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

RG_KERNEL(rows_forward, rg_group_norm_args)
RG_KERNEL(rows_gradient, rg_group_norm_gradient_args)

RG_CPU_TABLE(group_norm_rows, RG_GROUP_NORM_KERNELS) = {
    [RG_GROUP_NORM_ROWS] = RG_ROW(rows_forward),
    [RG_GROUP_NORM_ROWS_GRADIENT] = RG_ROW(rows_gradient),
};
