/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation on the CPU. A unit reads its part of an image twice; the second time it is in
 * a cache. */
#include "ops/batch_norm/norm_cpu.h"
#include "ops/group_norm/group_norm.h"

/* ---- columns: images of several rows ---- */

/* Rows that are summed up before they are joined in double. */
enum { COLUMN_ROWS = 1024 };

/* A unit: groups of one image. */
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

/* What is known of each group of a unit. */
typedef struct group_numbers {
    double near[RG_CHANNEL_COLUMNS];
    rg_norm_moments moments[RG_CHANNEL_COLUMNS];
    real mean[RG_CHANNEL_COLUMNS], rest[RG_CHANNEL_COLUMNS], s[RG_CHANNEL_COLUMNS];
    double sum[RG_CHANNEL_COLUMNS], product[RG_CHANNEL_COLUMNS]; /* of h, and of h xh */
} group_numbers;

/* Mean and squares of each channel of a block, in double. */
typedef struct channel_moments {
    double near[RG_CHANNEL_COLUMNS], mean[RG_CHANNEL_COLUMNS], squares[RG_CHANNEL_COLUMNS];
} channel_moments;

/* Joins rows `before` and those in p. */
RG_OUTLINE void join_rows(channel_moments *m, const norm_parts *p, const rg_channels *s,
                          int64_t before, int64_t rows, int64_t width)
{
    for (int64_t i = 0; i < width; i += VLEN) {
        real mean[VLEN], squares[VLEN];
        vreal vmean, vsquares;
        join_lanes(p, s, rows, width, i, &vmean, &vsquares);
        vstore_full(mean, 0, RG_REAL, vmean);
        vstore_full(squares, 0, RG_REAL, vsquares);
        for (int64_t c = i; c < least(width, i + VLEN); c++) {
            const double near = (double)p->near[c];
            rg_norm_moments all = { (double)rows, (double)mean[c - i], (double)squares[c - i] };
            if (before == 0) {
                m->near[c] = near;
            } else {
                all.mean += near - m->near[c];
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
    const double near = g->moments[group].n > 0 ? g->near[group] : m->near[c];
    double mean = 0, squares = 0;
    for (int64_t i = c; i < c + count; i++)
        mean += (m->near[i] - near) + m->mean[i];
    mean /= (double)count;
    for (int64_t i = c; i < c + count; i++) {
        const double away = ((m->near[i] - near) + m->mean[i]) - mean;
        squares += m->squares[i] + away * away * (double)rows;
    }
    g->near[group] = near;
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
    const double near = g->near[group], mean = (double)(real)(near + m.mean);
    const double variance = m.n > 0 ? m.squares / m.n : 0;
    g->mean[group] = (real)mean;
    g->rest[group] = (real)((near - mean) + m.mean);
    g->s[group] = (real)(1 / __builtin_sqrt(variance + epsilon));
}

/* Statistics of all groups of the unit; x is tensor `t` of the shape. */
RG_INLINE void unit_statistics(const group_unit *u, const rg_channels *s, const void *x,
                               group_numbers *g, const rg_dtype T)
{
    norm_parts p;
    channel_moments m;
    for (int64_t i = 0; i < u->groups; i++) {
        g->moments[i] = (rg_norm_moments){ 0, 0, 0 };
        g->near[i] = 0;
    }
    for (int64_t from = 0, width; from < u->width; from += width) {
        width = least(RG_CHANNEL_COLUMNS, u->width - from);
        for (int64_t row = 0, rows; row < s->rows.count; row += rows) {
            rows = least(COLUMN_ROWS * s->lanes, s->rows.count - row);
            sum_parts(&p, s, x, row, row + rows, u->first + from, width, T);
            join_rows(&m, &p, s, row, rows, width);
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
                            const void *gamma, const void *beta, int64_t from, int64_t width)
{
    const rg_norm_parameters *p = &u->shape->parameters;
    const int64_t first = u->first + from;
    for (int64_t c = 0, count; c < width; c += count) {
        const int64_t group = (from + c) / u->each;
        count = to_group_end(u, from, c, width);
        for (int64_t i = c; i < c + count; i++) {
            k->mean[i] = g->mean[group];
            k->shift[i] = g->rest[group];
            k->s[i] = g->s[group];
        }
    }
    load_parameter(k->gamma, gamma, p->gamma_step, p->has_gamma, 1, p->dtype, first, width);
    load_parameter(k->scale, beta, p->beta_step, p->has_beta, 0, p->dtype, first, width);
    finish_columns(k, width);
    repeat_columns(k, width, u->s->lanes, false);
}

/* The image of tensor t. */
RG_INLINE const void *image_at(const void *data, const rg_channels *s, int t, int64_t image,
                               const rg_dtype T)
{
    int64_t offsets[RG_WALK_TENSORS];
    rg_walk_offsets(&s->images, t + 1, image, offsets);
    return at(data, offsets[t], T);
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
    memset(&c.neuron, 0, sizeof c - offsetof(norm_columns, neuron));
    c.neuron = neuron_constants_of(&k->shape.neuron.numbers);
    c.kind = k->shape.neuron.kind;
    for (int64_t i = begin; i < end; i++) {
        const group_unit u = unit_of(&k->shape, i);
        const void *const data[] = { image_at(k->x, s, 0, u.image, T),
                                     image_at(k->y, s, 1, u.image, T) };
        unit_statistics(&u, s, data[0], &g, T);
        keep_numbers(&u, &g, k->mean, k->rest, k->s);
        for (int64_t from = 0, width; from < u.width; from += width) {
            width = least(RG_CHANNEL_COLUMNS, u.width - from);
            set_columns(&c, &u, &g, k->gamma, k->beta, from, width);
            VARIANTS(forward_rows, &c, s, data, 0, s->rows.count, u.first + from, width, T,
                     k->shape.stream)
        }
    }
}

/* ---- columns: gradient ---- */

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
                          group_numbers *g, const norm_columns *c, const double *sum,
                          const double *product, int64_t from, int64_t width)
{
    const int64_t to = u->image * u->s->channels + u->first + from;
    for (int64_t i = 0; i < width; i++) {
        const int64_t group = (from + i) / u->each;
        const double gamma = (double)c->gamma[i];
        const double xh = (double)g->s[group] * (product[i] - (double)g->rest[group] * sum[i]);
        g->sum[group] += gamma * sum[i];
        g->product[group] += gamma * xh;
        if (k->wants_sums) {
            ((real *)k->dbetas)[to + i] = (real)sum[i];
            ((real *)k->dgammas)[to + i] = (real)xh;
        }
    }
}

RG_INLINE void unit_sums(const rg_group_norm_gradient_args *k, const group_unit *u,
                         group_numbers *g, norm_columns *c, const void *const data[],
                         const rg_dtype T)
{
    const rg_channels *s = u->s;
    double sum[RG_CHANNEL_COLUMNS], product[RG_CHANNEL_COLUMNS];
    for (int64_t i = 0; i < u->groups; i++)
        g->sum[i] = g->product[i] = 0;
    for (int64_t from = 0, width; from < u->width; from += width) {
        width = least(RG_CHANNEL_COLUMNS, u->width - from);
        set_columns(c, u, g, k->gamma, k->beta, from, width);
        for (int64_t i = 0; i < width; i++)
            sum[i] = product[i] = 0;
        for (int64_t row = 0, rows; row < s->rows.count; row += rows) {
            rows = least(COLUMN_ROWS * s->lanes, s->rows.count - row);
            sum_gradient(c, s, data[0], data[1], row, row + rows, u->first + from, width, T);
            for (int64_t i = 0; i < width; i++) {
                sum[i] += sum_lanes(c->all, i, width, s->lanes);
                product[i] += sum_lanes(c->all_products, i, width, s->lanes);
            }
        }
        join_sums(k, u, g, c, sum, product, from, width);
    }
}

/* What dx is made of, for the channels of a block. */
RG_OUTLINE void set_factors(norm_columns *c, const group_unit *u, const group_numbers *g,
                            int64_t from, int64_t width)
{
    const double m = (double)u->each * (double)u->s->rows.count;
    for (int64_t i = 0, count; i < width; i += count) {
        const int64_t group = (from + i) / u->each;
        count = to_group_end(u, from, i, width);
        const double weight = (double)g->s[group] * (g->product[group] / m);
        const double offset = g->sum[group] / m - (double)g->rest[group] * weight;
        for (int64_t j = i; j < i + count; j++) {
            c->factor[RG_NORM_OFFSET][j] = (real)offset;
            c->factor[RG_NORM_WEIGHT][j] = (real)weight;
        }
    }
    repeat_lanes(c->factor[RG_NORM_OFFSET], width, u->s->lanes);
    repeat_lanes(c->factor[RG_NORM_WEIGHT], width, u->s->lanes);
}

RG_INLINE void columns_gradient(const rg_group_norm_gradient_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const rg_channels x_shape = shape_of_x(s);
    group_numbers g;
    norm_columns c;
    memset(&c.neuron, 0, sizeof c - offsetof(norm_columns, neuron));
    c.neuron = neuron_constants_of(&k->shape.neuron.numbers);
    c.kind = k->shape.neuron.kind;
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
        for (int64_t from = 0, width; from < u.width && k->wants_dx; from += width) {
            width = least(RG_CHANNEL_COLUMNS, u.width - from);
            if (u.width > RG_CHANNEL_COLUMNS)
                set_columns(&c, &u, &g, k->gamma, k->beta, from, width);
            set_factors(&c, &u, &g, from, width);
            VARIANTS(gradient_rows, &c, s, data, 0, s->rows.count, u.first + from, width, T,
                     k->shape.stream)
        }
    }
}

/* ---- rows: every image is one row ---- */

/* A group of one row. */
typedef struct group_row {
    const char *dy, *x, *gamma, *beta;
    char *out;
    int64_t dy_step, x_step, out_step, gamma_step, beta_step;
    int64_t count;
    bool has_gamma, has_beta, dense;
    rg_dtype dtype; /* of gamma and beta */
    real mean, rest, s, offset, weight;
    real *dgamma, *dbeta; /* sums over rows, or NULL */
    neuron_constants neuron;
    int32_t kind;
    bool add;
} group_row;

RG_INLINE vreal row_parameter(const char *data, int64_t i, int64_t step, const int n,
                              rg_dtype dtype, const rg_dtype T, bool has, real otherwise)
{
    if (!has)
        return vset(otherwise);
    if (step != 1)
        return vgather(data, i, step, n, dtype);
    return dtype == RG_REAL ? vload(data, i, n, RG_REAL) : vload(data, i, n, T);
}

RG_INLINE vreal row_gamma(const group_row *r, int64_t i, const int n, const rg_dtype T)
{
    return row_parameter(r->gamma, i, r->gamma_step, n, r->dtype, T, r->has_gamma, 1);
}

RG_INLINE vreal row_beta(const group_row *r, int64_t i, const int n, const rg_dtype T)
{
    return row_parameter(r->beta, i, r->beta_step, n, r->dtype, T, r->has_beta, 0);
}

RG_INLINE vreal row_load(const char *data, int64_t i, int64_t step, const int n, const rg_dtype T,
                         const bool dense)
{
    return load_groups(at(data, dense ? i : i * step, T), step, n, T, dense);
}

/* Sums over a row in 4 vectors, the vector of element i being i / VLEN % 4. */
typedef struct row_sums {
    vreal a[4], b[4];
} row_sums;

RG_INLINE real end_sum(const vreal part[4])
{
    return vsum((part[0] + part[1]) + (part[2] + part[3]));
}

RG_INLINE void moments_step(row_sums *q, int v, const group_row *r, vreal near, int64_t i,
                            const int n, const rg_dtype T, const bool dense)
{
    const vreal d = vkeep(row_load(r->x, i, r->x_step, n, T, dense) - near, n, 0);
    q->a[v] += d;
    q->b[v] = vfma(d, d, q->b[v]);
}

RG_INLINE real middle_element(const group_row *r, const rg_dtype T)
{
    const real a = load_one(r->x, 0, T), b = load_one(r->x, r->count / 2 * r->x_step, T);
    const real c = load_one(r->x, (r->count - 1) * r->x_step, T);
    const real low = a < b ? a : b, high = a > b ? a : b, less = high < c ? high : c;
    return low > less ? low : less;
}

RG_INLINE void row_statistics_of(group_row *r, double epsilon, const rg_dtype T, const bool dense)
{
    const real near = middle_element(r, T);
    row_sums q = { 0 };
    int64_t i = 0;
    for (; i + 4 * VLEN <= r->count; i += 4 * VLEN)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            moments_step(&q, v, r, vset(near), i + v * VLEN, VLEN, T, dense);
    for (int v = 0; i < r->count; i += VLEN, v++)
        moments_step(&q, v, r, vset(near), i, vlanes_left(r->count - i), T, dense);
    const double n = (double)r->count, sum = (double)end_sum(q.a), rest = sum / n;
    const double around = (double)end_sum(q.b) - sum * rest;
    const double mean = (double)(real)((double)near + rest);
    r->mean = (real)mean;
    r->rest = (real)(((double)near - mean) + rest);
    r->s = (real)(1 / __builtin_sqrt((around < 0 ? 0 : around / n) + epsilon));
}

RG_INLINE void row_statistics(group_row *r, double epsilon, const rg_dtype T)
{
    if (r->dense)
        row_statistics_of(r, epsilon, T, true);
    else
        row_statistics_of(r, epsilon, T, false);
}

RG_INLINE void row_store(const group_row *r, int64_t i, const int n, const rg_dtype T,
                         const bool dense, const bool stream, vreal value)
{
    char *to = at_out(r->out, dense ? i : i * r->out_step, T);
    if (r->add)
        value += load_groups(to, r->out_step, n, T, dense);
    if (stream)
        vstream(r->out, i, T, value);
    else
        store_groups(to, r->out_step, n, T, dense, value);
}

RG_INLINE vreal row_z(const group_row *r, int64_t i, const int n, vreal t, vreal gamma,
                      const rg_dtype T)
{
    const vreal scale = gamma * vset(r->s);
    return vfma(t, scale, vfma(vset(-r->rest), scale, row_beta(r, i, n, T)));
}

RG_INLINE void row_forward_step(const group_row *r, int64_t i, const int n, const rg_dtype T,
                                const bool dense, const bool stream, const int variant)
{
    const vreal t = row_load(r->x, i, r->x_step, n, T, dense) - vset(r->mean);
    vreal y = row_z(r, i, n, t, row_gamma(r, i, n, T), T);
    if (variant == NORM_RELU)
        y = neuron_relu(&r->neuron, y, y);
    else if (variant == NORM_OTHER)
        y = any_neuron(r->kind, &r->neuron, y);
    row_store(r, i, n, T, dense, stream, y);
}

RG_INLINE vreal row_g(const group_row *r, int64_t i, const int n, vreal t, vreal gamma,
                      const rg_dtype T, const bool dense, const int variant)
{
    const vreal dy = row_load(r->dy, i, r->dy_step, n, T, dense);
    if (variant == NORM_PLAIN || r->kind == RG_NEURON_NONE)
        return dy;
    const vreal z = row_z(r, i, n, t, gamma, T);
    return variant == NORM_RELU ? neuron_relu_slope(&r->neuron, dy, z)
                                : any_neuron_slope(r->kind, &r->neuron, dy, z);
}

/* Sums of h and of h t. */
RG_INLINE void row_sums_step(row_sums *q, int v, const group_row *r, int64_t i, const int n,
                             const rg_dtype T, const bool dense, const int variant)
{
    const vreal t = row_load(r->x, i, r->x_step, n, T, dense) - vset(r->mean);
    const vreal gamma = row_gamma(r, i, n, T), g = row_g(r, i, n, t, gamma, T, dense, variant);
    const vreal h = vkeep(g * gamma, n, 0);
    q->a[v] += h;
    q->b[v] = vfma(h, vkeep(t, n, 0), q->b[v]);
}

RG_INLINE void row_gradient_step(const group_row *r, int64_t i, const int n, const rg_dtype T,
                                 const bool dense, const bool stream, const int variant)
{
    const vreal t = row_load(r->x, i, r->x_step, n, T, dense) - vset(r->mean);
    const vreal gamma = row_gamma(r, i, n, T), g = row_g(r, i, n, t, gamma, T, dense, variant);
    if (r->out != NULL) /* rounded one by one: a single element leaves 0 */
        row_store(r, i, n, T, dense, stream,
                  vfma(-t, vset(r->weight), g * gamma - vset(r->offset)) * vset(r->s));
    if (r->dgamma == NULL)
        return;
    const vreal xh = (t - vset(r->rest)) * vset(r->s);
    vstore(r->dbeta, i, n, RG_REAL, vload(r->dbeta, i, n, RG_REAL) + g);
    vstore(r->dgamma, i, n, RG_REAL, vfma(g, xh, vload(r->dgamma, i, n, RG_REAL)));
}

/* The result of a row, forward or gradient. */
#define ROW_LOOP(name)                                                                         \
    RG_OUTLINE void name##_part(const group_row *r, int64_t i, int n, rg_dtype T, int variant) \
    {                                                                                          \
        name##_step(r, i, n, T, r->dense, false, variant);                                     \
    }                                                                                          \
    RG_INLINE void name(const group_row *r, const rg_dtype T, bool stream, const int variant)  \
    {                                                                                          \
        const group_row own = *r; /* which no store can change */                              \
        int64_t i = 0;                                                                         \
        if (stream) {                                                                          \
            const int64_t head = least(vhead(r->out, T), r->count);                            \
            for (; i < head; i += VLEN)                                                        \
                name##_part(r, i, vlanes_left(head - i), T, variant);                          \
            for (i = head; i + VLEN <= own.count; i += VLEN)                                   \
                name##_step(&own, i, VLEN, T, true, true, variant);                            \
        }                                                                                      \
        for (; own.dense && i + VLEN <= own.count; i += VLEN)                                  \
            name##_step(&own, i, VLEN, T, true, false, variant);                               \
        for (; i < r->count; i += VLEN)                                                        \
            name##_part(r, i, vlanes_left(r->count - i), T, variant);                          \
    }

ROW_LOOP(row_forward)
ROW_LOOP(row_gradient)

/* offset and weight. */
RG_INLINE void row_factors_of(group_row *r, const rg_dtype T, const bool dense, const int variant)
{
    row_sums q = { 0 };
    int64_t i = 0;
    for (; i + 4 * VLEN <= r->count; i += 4 * VLEN)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            row_sums_step(&q, v, r, i + v * VLEN, VLEN, T, dense, variant);
    for (int v = 0; i < r->count; i += VLEN, v++)
        row_sums_step(&q, v, r, i, vlanes_left(r->count - i), T, dense, variant);
    const double m = (double)r->count, sum = (double)end_sum(q.a), rest = (double)r->rest;
    const double s = (double)r->s, product = s * ((double)end_sum(q.b) - rest * sum);
    const double weight = s * (product / m);
    r->weight = (real)weight;
    r->offset = (real)(sum / m - rest * weight);
}

RG_OUTLINE void strided_row_factors(group_row *r, rg_dtype T)
{
    row_factors_of(r, T, false, NORM_OTHER);
}

RG_INLINE void row_factors(group_row *r, const rg_dtype T, const int variant)
{
    if (r->dense)
        row_factors_of(r, T, true, variant);
    else
        strided_row_factors(r, T);
}

/* All that rows have in common. */
RG_INLINE group_row row_of(const rg_group_norm_shape *shape)
{
    const rg_norm_parameters *p = &shape->parameters;
    return (group_row){ .count = shape->channels.channels / shape->groups,
                        .gamma_step = p->gamma_step,
                        .beta_step = p->beta_step,
                        .has_gamma = p->has_gamma,
                        .has_beta = p->has_beta,
                        .dtype = p->dtype,
                        .dense = shape->channels.dense,
                        .kind = shape->neuron.kind,
                        .neuron = neuron_constants_of(&shape->neuron.numbers) };
}

RG_INLINE int row_variant(const group_row *r)
{
    return r->kind == RG_NEURON_NONE   ? NORM_PLAIN
           : r->kind == RG_NEURON_RELU ? NORM_RELU
                                       : NORM_OTHER;
}

/* Channel c of gamma and beta. */
RG_INLINE void place_parameters(group_row *r, const void *gamma, const void *beta, int64_t c)
{
    const int64_t size = (int64_t)rg_dtype_size(r->dtype);
    r->gamma = (const char *)gamma + (r->has_gamma ? c * r->gamma_step * size : 0);
    r->beta = (const char *)beta + (r->has_beta ? c * r->beta_step * size : 0);
}

RG_INLINE void rows_forward(const rg_group_norm_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    group_row r = row_of(&k->shape);
    r.x_step = s->step[0];
    r.out_step = s->step[1];
    const int64_t last = least(end * k->shape.part, s->images.count);
    for (int64_t image = begin * k->shape.part; image < last; image++) {
        for (int64_t group = 0; group < k->shape.groups; group++) {
            const int64_t c = group * r.count, to = image * k->shape.groups + group;
            r.x = at(image_at(k->x, s, 0, image, T), c * r.x_step, T);
            r.out = (char *)(uintptr_t)at(image_at(k->y, s, 1, image, T), c * r.out_step, T);
            place_parameters(&r, k->gamma, k->beta, c);
            row_statistics(&r, k->shape.epsilon, T);
            ((real *)k->mean)[to] = r.mean;
            ((real *)k->rest)[to] = r.rest;
            ((real *)k->s)[to] = r.s;
            VARIANT_SWITCH(row_variant(&r), row_forward, &r, T, k->shape.stream)
        }
    }
}

RG_INLINE void row_gradients(group_row *r, bool wants_dx, const rg_dtype T, bool stream,
                             const int variant)
{
    if (wants_dx)
        row_factors(r, T, variant);
    row_gradient(r, T, stream, variant);
}

RG_INLINE void rows_gradient(const rg_group_norm_gradient_args *k, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    group_row r = row_of(&k->shape);
    r.dy_step = s->step[0];
    r.x_step = s->step[1];
    r.out_step = s->step[2];
    r.add = k->add;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t last = least((unit + 1) * k->shape.part, s->images.count);
        real *dgamma = (real *)k->dgammas + unit * s->channels;
        real *dbeta = (real *)k->dbetas + unit * s->channels;
        if (k->wants_sums) {
            memset(dgamma, 0, (size_t)s->channels * sizeof(real));
            memset(dbeta, 0, (size_t)s->channels * sizeof(real));
        }
        for (int64_t image = unit * k->shape.part; image < last; image++) {
            for (int64_t group = 0; group < k->shape.groups; group++) {
                const int64_t c = group * r.count, from = image * k->shape.groups + group;
                r.dy = at(image_at(k->dy, s, 0, image, T), c * r.dy_step, T);
                r.x = at(image_at(k->x, s, 1, image, T), c * r.x_step, T);
                r.out = k->wants_dx ? (char *)(uintptr_t)at(image_at(k->dx, s, 2, image, T),
                                                            c * r.out_step, T)
                                    : NULL;
                r.dgamma = k->wants_sums ? dgamma + c : NULL;
                r.dbeta = k->wants_sums ? dbeta + c : NULL;
                place_parameters(&r, k->gamma, k->beta, c);
                r.mean = ((const real *)k->mean)[from];
                r.rest = ((const real *)k->rest)[from];
                r.s = ((const real *)k->s)[from];
                if (!k->has_statistics)
                    row_statistics(&r, k->shape.epsilon, T);
                VARIANT_SWITCH(row_variant(&r), row_gradients, &r, k->wants_dx, T, k->shape.stream)
            }
        }
    }
}

/* ---- gradients of parameters ---- */

RG_INLINE void join(const rg_group_norm_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    (void)T;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * RG_NORM_UNIT, width = least(RG_NORM_UNIT, k->channels - first);
        double sum[RG_NORM_UNIT] = { 0 };
        const real *from = (const real *)k->from + first;
        for (int64_t i = 0; i < k->count; i++, from += k->channels)
            for (int64_t c = 0; c < width; c++)
                sum[c] += (double)from[c];
        for (int64_t c = 0; c < width; c++) {
            const int64_t to = (first + c) * k->step;
            const double old = k->add ? load_any(k->to, to, k->dtype) : 0;
            store_any(k->to, to, k->dtype, k->add ? old + sum[c] : sum[c]);
        }
    }
}

RG_KERNEL(columns_forward, rg_group_norm_args)
RG_KERNEL(rows_forward, rg_group_norm_args)
RG_KERNEL(columns_gradient, rg_group_norm_gradient_args)
RG_KERNEL(rows_gradient, rg_group_norm_gradient_args)
RG_KERNEL(join, rg_group_norm_join_args)

/* ---- table ---- */

const rg_cpu_row RG_TABLE(group_norm)[RG_GROUP_NORM_KERNELS] = {
    [RG_GROUP_NORM_COLUMNS] = RG_ROW(columns_forward),
    [RG_GROUP_NORM_ROWS] = RG_ROW(rows_forward),
    [RG_GROUP_NORM_COLUMNS_GRADIENT] = RG_ROW(columns_gradient),
    [RG_GROUP_NORM_ROWS_GRADIENT] = RG_ROW(rows_gradient),
    [RG_GROUP_NORM_JOIN] = RG_ROW(join),
};
