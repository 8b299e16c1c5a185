/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization on the CPU. */
#include "ops/batch_norm/batch_norm.h"
#include "ops/norm/norm_cpu.h"

/* The rows and channels of a unit. Units that follow each other have the same rows, or, of planes,
 * the same channels: so memory is read in long runs. Launches that sum and those that write results
 * go the same way, so that a thread takes about the same memory in both. */
RG_INLINE channel_block block_of(const rg_channels *s, int64_t unit, bool stream, rg_dtype T)
{
    const int64_t part = s->planes ? unit % s->parts : unit / s->blocks;
    const int64_t first = (s->planes ? unit / s->parts : unit % s->blocks) * s->block;
    const int64_t row = part * s->part, width = least(s->block, s->channels - first);
    return (channel_block){ s, row, row + rg_channels_rows(s, part), first, width, T, stream };
}

/* What a block's part has in an array of so many rows of channels for each part. */
RG_INLINE real *part_of(void *partial, const channel_block *b, int rows)
{
    const rg_channels *s = b->s;
    return (real *)partial + b->begin / s->part * rows * s->channels + b->first;
}

/* ---- statistics ---- */

RG_OUTLINE void end_part(const norm_parts *p, const channel_block *b, real *to)
{
    const rg_channels *s = b->s;
    for (int64_t c = 0; c < b->width; c += VLEN) {
        const int n = vlanes_left(b->width - c);
        vreal mean, squares;
        join_chains(p, b, c, &mean, &squares);
        vstore(to, RG_NORM_PIVOT * s->channels + c, n, RG_REAL, vload_full(p->pivot, c, RG_REAL));
        vstore(to, RG_NORM_REST * s->channels + c, n, RG_REAL, mean);
        vstore(to, RG_NORM_SQUARES * s->channels + c, n, RG_REAL, squares);
    }
}

RG_INLINE void parts(const rg_batch_norm_parts_args *k, int64_t begin, int64_t end,
                     const rg_dtype T)
{
    const rg_channels *s = &k->shape;
    norm_parts p;
    for (int64_t unit = begin; unit < end; unit++) {
        const channel_block b = block_of(s, unit, false, T);
        norm_loops(s)->sum_parts(&p, &b, k->x);
        end_part(&p, &b, part_of(k->partial, &b, RG_NORM_PARTIAL));
    }
}

/* Statistics of the channels of a unit, each less `pivot`. */
typedef struct unit_moments {
    double pivot[RG_NORM_UNIT], mean[RG_NORM_UNIT], squares[RG_NORM_UNIT], n;
} unit_moments;

/* The parts one after the other, after what the state has counted before. */
RG_OUTLINE void merge_parts(const rg_batch_norm_merge_args *k, int64_t first, int64_t width,
                            unit_moments *u)
{
    const real *from = (const real *)k->partial + first;
    const real *m = (const real *)k->moments + first;
    u->n = (double)k->before;
    for (int64_t c = 0; c < width; c++) {
        u->pivot[c] = k->before > 0  ? (double)m[RG_NORM_MEAN * k->channels + c]
                      : k->parts > 0 ? (double)from[c]
                                     : 0;
        u->mean[c] = k->before > 0 ? (double)m[RG_NORM_MEAN_REST * k->channels + c] : 0;
        u->squares[c] = k->before > 0 ? (double)m[RG_NORM_VARIANCE * k->channels + c] * u->n : 0;
    }
    for (int64_t part = 0; part < k->parts; part++, from += RG_NORM_PARTIAL * k->channels) {
        const real *rest = from + k->channels, *squares = rest + k->channels;
        const double rows = (double)least(k->part, k->rows - part * k->part);
        for (int64_t c = 0; c < width; c++) {
            const double mean = ((double)from[c] - u->pivot[c]) + (double)rest[c];
            const rg_norm_moments all =
                rg_norm_join((rg_norm_moments){ u->n, u->mean[c], u->squares[c] },
                             (rg_norm_moments){ rows, mean, (double)squares[c] });
            u->mean[c] = all.mean;
            u->squares[c] = all.squares;
        }
        u->n += rows;
    }
}

RG_INLINE double blend(double old, double new, double momentum)
{
    return old * momentum + new *(1 - momentum);
}

/* Outputs mean and variance. */
RG_INLINE void return_statistics(const rg_batch_norm_merge_args *k, int64_t c, double mean,
                                 double variance, double n)
{
    if (k->statistics == RG_BATCH_NORM_RUNNING) {
        const double old_mean = rg_element_get(k->mean_in, k->dtype, c * k->mean_in_step);
        const double old = rg_element_get(k->variance_in, k->dtype, c * k->variance_in_step);
        const double whole = k->unbiased && n > 1 ? variance * (n / (n - 1)) : variance;
        mean = n > 0 ? blend(old_mean, mean, k->momentum) : old_mean;
        variance = n > 0 ? blend(old, whole, k->momentum) : old;
    } else if (k->statistics != RG_BATCH_NORM_RETURNED) {
        return;
    }
    store_any(k->mean_out, c * k->mean_out_step, k->dtype, mean);
    store_any(k->variance_out, c * k->variance_out_step, k->dtype, variance);
}

/* Everything that follows from the statistics of a channel; its mean is pivot + rest. */
RG_INLINE void end_merge(const rg_batch_norm_merge_args *k, int64_t c, double pivot, double rest,
                         double variance, double n)
{
    const double mean = (double)(real)(pivot + rest);
    rest = (pivot - mean) + rest;
    const double s = 1 / __builtin_sqrt(variance + k->epsilon);
    real *m = (real *)k->moments + c;
    m[RG_NORM_MEAN * k->channels] = (real)mean;
    m[RG_NORM_MEAN_REST * k->channels] = (real)rest;
    m[RG_NORM_VARIANCE * k->channels] = (real)variance;
    m[RG_NORM_S * k->channels] = (real)s;
    if (k->has_state) {
        ((real *)k->mean)[c] = (real)(mean + rest);
        ((real *)k->variance)[c] = (real)variance;
        ((real *)k->s)[c] = (real)s;
    }
    return_statistics(k, c, mean + rest, variance, n);
}

RG_INLINE void merge(const rg_batch_norm_merge_args *k, int64_t begin, int64_t end,
                     const rg_dtype T)
{
    (void)T;
    unit_moments u;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * RG_NORM_UNIT, width = least(RG_NORM_UNIT, k->channels - first);
        if (k->statistics != RG_BATCH_NORM_GIVEN)
            merge_parts(k, first, width, &u);
        for (int64_t c = 0; c < width; c++) {
            if (k->statistics != RG_BATCH_NORM_GIVEN)
                end_merge(k, first + c, u.pivot[c], u.mean[c], u.n > 0 ? u.squares[c] / u.n : 0,
                          u.n);
            else
                end_merge(
                    k, first + c, 0,
                    rg_element_get(k->mean_in, k->dtype, (first + c) * k->mean_in_step),
                    rg_element_get(k->variance_in, k->dtype, (first + c) * k->variance_in_step), 0);
        }
    }
}

/* ---- y ---- */

/* Numbers of the block's channels; factors: of dx, or NULL. */
RG_OUTLINE void set_columns(norm_columns *k, const channel_block *b, const void *moments,
                            const void *gamma, const void *beta, const rg_norm_parameters *p,
                            const void *factors)
{
    const int64_t channels = b->s->channels;
    const size_t bytes = (size_t)b->width * sizeof(real);
    const real *m = (const real *)moments + b->first, *f = factors;
    memcpy(k->mean, m + RG_NORM_MEAN * channels, bytes);
    memcpy(k->shift, m + RG_NORM_MEAN_REST * channels, bytes);
    memcpy(k->scale, m + RG_NORM_S * channels, bytes);
    finish_columns(k, gamma, beta, p, b);
    if (f != NULL) {
        memcpy(k->weight, f + RG_NORM_WEIGHT * channels + b->first, bytes);
        memcpy(k->offset, f + RG_NORM_OFFSET * channels + b->first, bytes);
        memcpy(k->plus, f + RG_NORM_PLUS * channels + b->first, bytes);
        spread(k->weight, b);
        spread(k->offset, b);
        spread(k->plus, b);
    }
}

RG_INLINE void forward(const rg_batch_norm_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_channels *s = &k->shape;
    norm_columns c;
    set_neuron(&c, &k->neuron);
    const void *const data[] = { k->x, k->y };
    for (int64_t unit = end - 1; unit >= begin; unit--) { /* the launch goes backwards */
        const channel_block b = block_of(s, unit, k->stream, T);
        set_columns(&c, &b, k->moments, k->gamma, k->beta, &k->parameters, NULL);
        norm_loops(s)->forward(&c, &b, data);
    }
}

/* ---- gradient ---- */

RG_OUTLINE void end_sums(const norm_columns *k, const rg_channels *s, int64_t width, real *to)
{
    for (int64_t c = 0; c < width; c++) {
        to[c] = (real)sum_chains(k->all, c, width, s->chains);
        to[s->channels + c] = (real)sum_chains(k->all_products, c, width, s->chains);
    }
}

RG_INLINE void sums(const rg_batch_norm_sums_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_channels *s = &k->shape;
    norm_columns c;
    set_neuron(&c, &k->neuron);
    const void *const data[] = { k->dy, k->x };
    for (int64_t unit = begin; unit < end; unit++) {
        const channel_block b = block_of(s, unit, false, T);
        set_columns(&c, &b, k->moments, k->gamma, k->beta, &k->parameters, NULL);
        norm_loops(s)->sum_gradient(&c, &b, data);
        end_sums(&c, s, b.width, part_of(k->partial, &b, 2));
    }
}

RG_INLINE void put_result(void *to, const rg_batch_norm_result *result, rg_dtype dtype, int64_t c,
                          double value)
{
    if (!result->wanted)
        return;
    const double old = result->add ? rg_element_get(to, dtype, c * result->step) : 0;
    store_any(to, c * result->step, dtype, result->add ? old + value : value);
}

/* Factors of dx (norm_columns says which), and the gradients of statistics. */
RG_INLINE void join_factors(const rg_batch_norm_join_args *k, int64_t c, double gamma, double dbeta,
                            double dgamma)
{
    const real *m = (const real *)k->moments + c;
    const double rest = (double)m[RG_NORM_MEAN_REST * k->channels];
    const double s = (double)m[RG_NORM_S * k->channels];
    const double dm = k->has_dmean_out
                          ? rg_element_get(k->dmean_out, k->parameters.dtype, c * k->dmean_out_step)
                          : 0;
    const double dv = k->has_dvariance_out ? rg_element_get(k->dvariance_out, k->parameters.dtype,
                                                            c * k->dvariance_out_step)
                                           : 0;
    const bool running = k->statistics == RG_BATCH_NORM_RUNNING;
    if (k->statistics == RG_BATCH_NORM_GIVEN) {
        put_result(k->dmean, &k->mean_result, k->parameters.dtype, c, -gamma * s * dbeta);
        put_result(k->dvariance, &k->variance_result, k->parameters.dtype, c,
                   -0.5 * gamma * s * s * dgamma);
        return;
    }
    if (running) {
        const double kept = k->count > 0 ? k->momentum : 1;
        put_result(k->dmean, &k->mean_result, k->parameters.dtype, c, kept * dm);
        put_result(k->dvariance, &k->variance_result, k->parameters.dtype, c, kept * dv);
    }
    const double each = k->count > 0 ? 1 / k->count : 0, share = running ? 1 - k->momentum : 1;
    const bool unbiased = running && k->unbiased && k->count > 1;
    const double slope = 2 * share * dv / (unbiased ? k->count - 1 : k->count);
    const double scale = (double)(real)(gamma * s); /* as it is in set_columns */
    const double weight = slope - s * (scale * (dgamma * each));
    real *f = (real *)k->factors + c;
    f[RG_NORM_WEIGHT * k->channels] = (real)weight;
    f[RG_NORM_OFFSET * k->channels] = (real)(scale * (dbeta * each) + rest * weight);
    f[RG_NORM_PLUS * k->channels] = (real)(share * dm * each);
}

/* Sums over the parts, one after the other, for the channels of a unit. */
RG_OUTLINE void join_parts(const rg_batch_norm_join_args *k, int64_t first, int64_t width,
                           double *sum, double *product)
{
    const real *from = (const real *)k->partial + first;
    sum_of_pieces(sum, from, 2 * k->channels, k->parts, width);
    sum_of_pieces(product, from + k->channels, 2 * k->channels, k->parts, width);
}

RG_INLINE void join_one(const rg_batch_norm_join_args *k, int64_t c, double sum, double product)
{
    const real *m = (const real *)k->moments + c;
    product -= (double)m[RG_NORM_MEAN_REST * k->channels] * sum;
    const double before = k->before;
    const double dbeta = before != 0 ? k->sums[c] + sum : sum;
    const double xh = (double)m[RG_NORM_S * k->channels] * product;
    const double dgamma = before != 0 ? k->sums[k->channels + c] + xh : xh;
    k->sums[c] = dbeta;
    k->sums[k->channels + c] = dgamma;
    if (k->has_state) {
        ((real *)k->state_dbeta)[c] = (real)dbeta;
        ((real *)k->state_dgamma)[c] = (real)dgamma;
    }
    put_result(k->dgamma, &k->gamma_result, k->parameters.dtype, c, dgamma);
    put_result(k->dbeta, &k->beta_result, k->parameters.dtype, c, dbeta);
    join_factors(k, c, gamma_of(k->gamma, &k->parameters, c), dbeta, dgamma);
}

RG_INLINE void join(const rg_batch_norm_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    (void)T;
    double sum[RG_NORM_UNIT], product[RG_NORM_UNIT];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * RG_NORM_UNIT, width = least(RG_NORM_UNIT, k->channels - first);
        join_parts(k, first, width, sum, product);
        for (int64_t c = 0; c < width; c++)
            join_one(k, first + c, sum[c], product[c]);
    }
}

RG_INLINE void gradient(const rg_batch_norm_gradient_args *k, int64_t begin, int64_t end,
                        const rg_dtype T)
{
    const rg_channels *s = &k->shape;
    norm_columns c;
    set_neuron(&c, &k->neuron);
    c.given = k->given;
    c.extra = k->extra;
    c.add = k->add;
    const void *const data[] = { k->dy, k->x, k->dx };
    for (int64_t unit = end - 1; unit >= begin; unit--) { /* as forward */
        const channel_block b = block_of(s, unit, k->stream, T);
        set_columns(&c, &b, k->moments, k->gamma, k->beta, &k->parameters,
                    k->given ? NULL : k->factors);
        norm_loops(s)->gradient(&c, &b, data);
    }
}

RG_KERNEL(parts, rg_batch_norm_parts_args)
RG_KERNEL(merge, rg_batch_norm_merge_args)
RG_KERNEL(forward, rg_batch_norm_args)
RG_KERNEL(sums, rg_batch_norm_sums_args)
RG_KERNEL(join, rg_batch_norm_join_args)
RG_KERNEL(gradient, rg_batch_norm_gradient_args)

/* ---- table ---- */

RG_CPU_TABLE(batch_norm, RG_BATCH_NORM_KERNELS) = {
    [RG_BATCH_NORM_PARTS] = RG_ROW(parts),     [RG_BATCH_NORM_MERGE] = RG_ROW(merge),
    [RG_BATCH_NORM_FORWARD] = RG_ROW(forward), [RG_BATCH_NORM_SUMS] = RG_ROW(sums),
    [RG_BATCH_NORM_JOIN] = RG_ROW(join),       [RG_BATCH_NORM_GRADIENT] = RG_ROW(gradient),
};
