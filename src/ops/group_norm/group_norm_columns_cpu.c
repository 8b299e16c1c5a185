/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization of images of several rows: a unit is groups of one image, whose channels are
 * columns. It reads its part of an image twice; the second time it is in a cache. */
#include "ops/group_norm/group_norm.h"
#include "ops/norm/norm_cpu.h"

/* ---- units, statistics, forward ---- */

/* Rows that are summed up before they are joined in double. */
enum { COLUMN_ROWS = 1024 };

/* The second pass of the gradient begins with the last rows, which are nearest, and goes back by so
 * many; planes have them all at once. */
enum { COLUMN_BACK = 32 };

/* Where the rows before `row` begin; they belong to all chains. */
static inline int64_t rows_back(const rg_channels *s, int64_t row)
{
    const int64_t back = COLUMN_BACK * s->chains;
    return s->planes ? 0 : (row - 1) / back * back;
}

/* A unit: groups of one image. Units of fewer channels, so that both passes stay in the
 * second-level cache, were slower on Zen 4 (0.44 to 0.53 of the limit instead of 0.71), and so was
 * a prefetch of the next image during the second pass (0.61). */
typedef struct group_unit {
    const rg_group_norm_shape *shape;
    const rg_channels *s;
    int64_t image, first, width; /* channels */
    int64_t group, each;         /* the first group, channels of a group */
    int64_t groups;
} group_unit;

static inline group_unit unit_of(const rg_group_norm_shape *shape, int64_t unit)
{
    const rg_channels *s = &shape->channels;
    group_unit u = { .shape = shape, .s = s, .image = unit / s->blocks };
    u.first = unit % s->blocks * s->block;
    u.width = least(s->block, s->channels - u.first);
    u.each = s->channels / shape->groups;
    u.group = u.first / u.each;
    u.groups = u.width / u.each;
    return u;
}

/* Channels `from` on of a unit: as many as a block may have, and no rows. */
RG_INLINE channel_block block_of(const group_unit *u, int64_t from, rg_dtype T)
{
    return (channel_block){ .s = u->s,
                            .first = u->first + from,
                            .width = least(RG_CHANNEL_COLUMNS, u->width - from),
                            .dtype = T,
                            .stream = u->shape->stream };
}

/* The next COLUMN_ROWS rows of all chains; false if there are no more. */
RG_INLINE bool next_rows(channel_block *b)
{
    b->begin = b->end;
    b->end = least(b->s->rows.count, b->begin + COLUMN_ROWS * b->s->chains);
    return b->begin < b->end;
}

/* What is known of each group of a unit. */
typedef struct group_numbers {
    double pivot[RG_CHANNEL_COLUMNS];
    rg_norm_moments moments[RG_CHANNEL_COLUMNS];
    real mean[RG_CHANNEL_COLUMNS], rest[RG_CHANNEL_COLUMNS], s[RG_CHANNEL_COLUMNS];
    double sum[RG_CHANNEL_COLUMNS], product[RG_CHANNEL_COLUMNS]; /* of h s, and of h s xh */
} group_numbers;

/* Mean and squares of each channel of a block, in double. */
typedef struct channel_moments {
    double pivot[RG_CHANNEL_COLUMNS], mean[RG_CHANNEL_COLUMNS], squares[RG_CHANNEL_COLUMNS];
} channel_moments;

/* Joins the rows before the block and those in p. */
RG_OUTLINE void join_rows(channel_moments *m, const norm_parts *p, const channel_block *b)
{
    const int64_t before = b->begin, rows = b->end - before, width = b->width;
    for (int64_t i = 0; i < width; i += VLEN) {
        real mean[VLEN], squares[VLEN];
        vreal vmean, vsquares;
        join_chains(p, b, i, &vmean, &vsquares);
        vstore_full(mean, 0, RG_REAL, vmean);
        vstore_full(squares, 0, RG_REAL, vsquares);
        for (int64_t c = i; c < least(width, i + VLEN); c++) {
            const double pivot = (double)p->pivot[c];
            rg_norm_moments all = { (double)rows, (double)mean[c - i], (double)squares[c - i] };
            if (before == 0) {
                m->pivot[c] = pivot;
            } else {
                all.mean += pivot - m->pivot[c];
                all = rg_norm_join((rg_norm_moments){ (double)before, m->mean[c], m->squares[c] },
                                   all);
            }
            m->mean[c] = all.mean;
            m->squares[c] = all.squares;
        }
    }
}

/* Joins channels from c on, `count` of one group, which all have as many rows. */
RG_INLINE void join_channels(group_numbers *g, int64_t group, const channel_moments *m, int64_t c,
                             int64_t count, int64_t rows)
{
    const double pivot = g->moments[group].n > 0 ? g->pivot[group] : m->pivot[c];
    double mean = 0, squares = 0;
    for (int64_t i = c; i < c + count; i++)
        mean += (m->pivot[i] - pivot) + m->mean[i];
    mean /= (double)count;
    for (int64_t i = c; i < c + count; i++) {
        const double away = ((m->pivot[i] - pivot) + m->mean[i]) - mean;
        squares += m->squares[i] + away * away * (double)rows;
    }
    g->pivot[group] = pivot;
    g->moments[group] = rg_norm_join(
        g->moments[group], (rg_norm_moments){ (double)count * (double)rows, mean, squares });
}

/* Channels c on of a block that begins at channel `from` of the unit, up to the end of a group. */
RG_INLINE int64_t to_group_end(const group_unit *u, int64_t from, int64_t c, int64_t width)
{
    return least(width, ((from + c) / u->each + 1) * u->each - from) - c;
}

RG_INLINE void finish_group(group_numbers *g, int64_t group, double epsilon)
{
    const rg_norm_moments m = g->moments[group];
    const double pivot = g->pivot[group], mean = (double)(real)(pivot + m.mean);
    const double variance = m.n > 0 ? m.squares / m.n : 0;
    g->mean[group] = (real)mean;
    g->rest[group] = (real)((pivot - mean) + m.mean);
    g->s[group] = (real)(1 / __builtin_sqrt(variance + epsilon));
}

/* Statistics of all groups of the unit; x is tensor `t` of the shape. */
RG_OUTLINE void unit_statistics(const group_unit *u, const rg_channels *s, const void *x,
                                group_numbers *g, rg_dtype T)
{
    norm_parts p;
    channel_moments m;
    for (int64_t i = 0; i < u->groups; i++) {
        g->moments[i] = (rg_norm_moments){ 0, 0, 0 };
        g->pivot[i] = 0;
    }
    for (int64_t from = 0, width; from < u->width; from += width) {
        channel_block b = block_of(u, from, T);
        width = b.width;
        for (b.s = s; next_rows(&b);) {
            norm_loops(s)->sum_parts(&p, &b, x);
            join_rows(&m, &p, &b);
        }
        for (int64_t c = 0, count; c < width && s->rows.count > 0; c += count) {
            count = to_group_end(u, from, c, width);
            join_channels(g, (from + c) / u->each, &m, c, count, s->rows.count);
        }
    }
    for (int64_t i = 0; i < u->groups; i++)
        finish_group(g, i, u->shape->epsilon);
}

/* Numbers of the channels of a block. */
RG_OUTLINE void set_columns(norm_columns *k, const group_unit *u, const group_numbers *g,
                            const void *gamma, const void *beta, const channel_block *b)
{
    const int64_t from = b->first - u->first;
    for (int64_t c = 0, count; c < b->width; c += count) {
        const int64_t group = (from + c) / u->each;
        count = to_group_end(u, from, c, b->width);
        for (int64_t i = c; i < c + count; i++) {
            k->mean[i] = g->mean[group];
            k->shift[i] = g->rest[group];
            k->scale[i] = g->s[group];
        }
    }
    finish_columns(k, gamma, beta, &u->shape->parameters, b);
}

/* Statistics to the state, or from it. */
RG_INLINE void keep_numbers(const group_unit *u, const group_numbers *g, void *mean, void *rest,
                            void *s)
{
    const int64_t to = u->image * u->shape->groups + u->group;
    const size_t bytes = (size_t)u->groups * sizeof(real);
    memcpy((real *)mean + to, g->mean, bytes);
    memcpy((real *)rest + to, g->rest, bytes);
    memcpy((real *)s + to, g->s, bytes);
}

RG_INLINE void known_numbers(const group_unit *u, group_numbers *g, const void *mean,
                             const void *rest, const void *s)
{
    const int64_t from = u->image * u->shape->groups + u->group;
    const size_t bytes = (size_t)u->groups * sizeof(real);
    memcpy(g->mean, (const real *)mean + from, bytes);
    memcpy(g->rest, (const real *)rest + from, bytes);
    memcpy(g->s, (const real *)s + from, bytes);
}

RG_INLINE void columns_forward(const rg_group_norm_args *k, int64_t begin, int64_t end,
                               const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    group_numbers g;
    norm_columns c;
    set_neuron(&c, &k->shape.neuron);
    for (int64_t i = begin; i < end; i++) {
        const group_unit u = unit_of(&k->shape, i);
        const void *const data[] = { image_at(k->x, s, 0, u.image, T),
                                     image_at(k->y, s, 1, u.image, T) };
        unit_statistics(&u, s, data[0], &g, T);
        keep_numbers(&u, &g, k->mean, k->rest, k->s);
        for (int64_t from = 0; from < u.width; from += RG_CHANNEL_COLUMNS) {
            channel_block b = block_of(&u, from, T);
            b.end = s->rows.count;
            set_columns(&c, &u, &g, k->gamma, k->beta, &b);
            norm_loops(s)->forward(&c, &b, data);
        }
    }
}

/* ---- gradient ---- */

/* A shape whose first tensor is x. */
RG_INLINE rg_channels shape_of_x(const rg_channels *s)
{
    rg_channels own = *s;
    own.step[0] = s->step[1];
    memcpy(own.rows.strides[0], s->rows.strides[1], sizeof own.rows.strides[0]);
    return own;
}

/* Sums of a block of channels: dbeta and dgamma of this image, and what they add to the groups. */
RG_OUTLINE void join_sums(const rg_group_norm_gradient_args *k, const group_unit *u,
                          group_numbers *g, const double *sum, const double *product, int64_t from,
                          int64_t width)
{
    const int64_t to = u->image * u->s->channels + u->first + from;
    for (int64_t i = 0; i < width; i++) {
        const int64_t group = (from + i) / u->each;
        const double gamma = gamma_of(k->gamma, &k->shape.parameters, u->first + from + i);
        const double s = (double)g->s[group], scale = (double)(real)(gamma * s);
        const double xh = s * (product[i] - (double)g->rest[group] * sum[i]);
        g->sum[group] += scale * sum[i]; /* scale as it is in set_columns */
        g->product[group] += scale * xh;
        if (k->wants_sums) {
            ((real *)k->dbetas)[to + i] = (real)sum[i];
            ((real *)k->dgammas)[to + i] = (real)xh;
        }
    }
}

RG_OUTLINE void unit_sums(const rg_group_norm_gradient_args *k, const group_unit *u,
                          group_numbers *g, norm_columns *c, const void *const data[], rg_dtype T)
{
    const rg_channels *s = u->s;
    double sum[RG_CHANNEL_COLUMNS], product[RG_CHANNEL_COLUMNS];
    for (int64_t i = 0; i < u->groups; i++)
        g->sum[i] = g->product[i] = 0;
    for (int64_t from = 0, width; from < u->width; from += width) {
        channel_block b = block_of(u, from, T);
        width = b.width;
        set_columns(c, u, g, k->gamma, k->beta, &b);
        for (int64_t i = 0; i < width; i++)
            sum[i] = product[i] = 0;
        while (next_rows(&b)) {
            norm_loops(s)->sum_gradient(c, &b, data);
            for (int64_t i = 0; i < width; i++) {
                sum[i] += sum_chains(c->all, i, width, s->chains);
                product[i] += sum_chains(c->all_products, i, width, s->chains);
            }
        }
        join_sums(k, u, g, sum, product, from, width);
    }
}

/* What dx is made of, for the channels of a block. */
RG_OUTLINE void set_factors(norm_columns *c, const group_unit *u, const group_numbers *g,
                            const channel_block *b)
{
    const int64_t from = b->first - u->first;
    const double m = (double)u->each * (double)u->s->rows.count;
    for (int64_t i = 0, count; i < b->width; i += count) {
        const int64_t group = (from + i) / u->each;
        count = to_group_end(u, from, i, b->width);
        const double weight = -(double)g->s[group] * (g->product[group] / m);
        const double offset = g->sum[group] / m + (double)g->rest[group] * weight;
        const real all = (real)offset;
        for (int64_t j = i; j < i + count; j++) {
            c->offset[j] = all;
            c->weight[j] = (real)weight;
        }
    }
    spread(c->weight, b);
    spread(c->offset, b);
}

RG_INLINE void columns_gradient(const rg_group_norm_gradient_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const rg_channels x_shape = shape_of_x(s);
    group_numbers g;
    norm_columns c;
    set_neuron(&c, &k->shape.neuron);
    for (int64_t i = begin; i < end; i++) {
        const group_unit u = unit_of(&k->shape, i);
        const void *const data[] = { image_at(k->dy, s, 0, u.image, T),
                                     image_at(k->x, s, 1, u.image, T),
                                     image_at(k->dx, s, 2, u.image, T) };
        if (k->has_statistics)
            known_numbers(&u, &g, k->mean, k->rest, k->s);
        else
            unit_statistics(&u, &x_shape, data[1], &g, T);
        c.add = false;
        unit_sums(k, &u, &g, &c, data, T);
        c.add = k->add;
        for (int64_t from = 0; from < u.width && k->wants_dx; from += RG_CHANNEL_COLUMNS) {
            channel_block b = block_of(&u, from, T);
            if (u.width > RG_CHANNEL_COLUMNS)
                set_columns(&c, &u, &g, k->gamma, k->beta, &b);
            set_factors(&c, &u, &g, &b);
            for (b.begin = s->rows.count; b.begin > 0;) {
                b.end = b.begin;
                b.begin = rows_back(s, b.end);
                norm_loops(s)->gradient(&c, &b, data);
            }
        }
    }
}

RG_KERNEL(columns_forward, rg_group_norm_args)
RG_KERNEL(columns_gradient, rg_group_norm_gradient_args)

RG_CPU_TABLE(group_norm_columns, RG_GROUP_NORM_KERNELS) = {
    [RG_GROUP_NORM_COLUMNS] = RG_ROW(columns_forward),
    [RG_GROUP_NORM_COLUMNS_GRADIENT] = RG_ROW(columns_gradient),
};
