/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation on the CPU. A unit reads its part of an image twice; the second time it is in
 * a cache. */
#include "ops/norm_cpu.h"
#include "ops/group_norm/group_norm.h"

/* ---- columns: images of several rows ---- */

/* Rows that are summed up before they are joined in double. */
enum { COLUMN_ROWS = 1024 };

/* The second pass of the gradient begins with the last rows, which are nearest, and goes back by so
 * many. */
enum { COLUMN_BACK = 32 };

/* Where the rows before `row` begin; they belong to all lanes. */
static inline int64_t rows_back(const rg_channels *s, int64_t row)
{
    const int64_t back = COLUMN_BACK * s->lanes;
    return (row - 1) / back * back;
}

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
    double sum[RG_CHANNEL_COLUMNS], product[RG_CHANNEL_COLUMNS]; /* of h s, and of h s xh */
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
                            const void *gamma, const void *beta, int64_t from, int64_t width,
                            rg_dtype T)
{
    const rg_norm_parameters *p = &u->shape->parameters;
    const int64_t first = u->first + from;
    for (int64_t c = 0, count; c < width; c += count) {
        const int64_t group = (from + c) / u->each;
        count = to_group_end(u, from, c, width);
        for (int64_t i = c; i < c + count; i++) {
            k->mean[i] = g->mean[group];
            k->shift[i] = g->rest[group];
            k->scale[i] = g->s[group];
        }
    }
    finish_columns(k, gamma, beta, p, first, width);
    spread_columns(k, u->s, width, T);
}

/* The image of tensor t. */
RG_OUTLINE const void *image_at(const void *data, const rg_channels *s, int t, int64_t image,
                                rg_dtype T)
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
    set_neuron(&c, &k->shape.neuron);
    for (int64_t i = begin; i < end; i++) {
        const group_unit u = unit_of(&k->shape, i);
        const void *const data[] = { image_at(k->x, s, 0, u.image, T),
                                     image_at(k->y, s, 1, u.image, T) };
        unit_statistics(&u, s, data[0], &g, T);
        keep_numbers(&u, &g, k->mean, k->rest, k->s);
        for (int64_t from = 0, width; from < u.width; from += width) {
            width = least(RG_CHANNEL_COLUMNS, u.width - from);
            set_columns(&c, &u, &g, k->gamma, k->beta, from, width, T);
            forward_rows(&c, s, data, 0, s->rows.count, u.first + from, width, T, k->shape.stream,
                         variant_of(&c));
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
        set_columns(c, u, g, k->gamma, k->beta, from, width, T);
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
        join_sums(k, u, g, sum, product, from, width);
    }
}

/* What dx is made of, for the channels of a block. */
RG_OUTLINE void set_factors(norm_columns *c, const group_unit *u, const group_numbers *g,
                            int64_t from, int64_t width, rg_dtype T)
{
    const double m = (double)u->each * (double)u->s->rows.count;
    for (int64_t i = 0, count; i < width; i += count) {
        const int64_t group = (from + i) / u->each;
        count = to_group_end(u, from, i, width);
        const double weight = -(double)g->s[group] * (g->product[group] / m);
        const double offset = g->sum[group] / m + (double)g->rest[group] * weight;
        const real all = (real)offset;
        for (int64_t j = i; j < i + count; j++) {
            c->offset[j] = all;
            c->weight[j] = (real)weight;
        }
    }
    spread_factors(c, u->s, width, T);
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
        for (int64_t from = 0, width; from < u.width && k->wants_dx; from += width) {
            width = least(RG_CHANNEL_COLUMNS, u.width - from);
            if (u.width > RG_CHANNEL_COLUMNS)
                set_columns(&c, &u, &g, k->gamma, k->beta, from, width, T);
            set_factors(&c, &u, &g, from, width, T);
            for (int64_t row = s->rows.count, to; row > 0;) {
                to = row;
                row = rows_back(s, row);
                gradient_rows(&c, s, data, row, to, u.first + from, width, T, k->shape.stream,
                              variant_of(&c));
            }
        }
    }
}

/* ---- rows: every image is one row ---- */

/* Elements whose sums are taken before they are added to those of the pieces before. */
enum { ROW_PIECE = 64 * CHANNEL_PAIR };

/* Images that are taken at once, and elements of a group whose gamma and beta are kept as they are
 * needed, in real and in the order of pairs. */
enum { ROWS = 1, ROW_ROOM = 8192 };

/* Of 16 bits, rows of so many elements at most are started while the one before is finished: there
 * the time goes by until sums and roots are known. Others would only take each other's place in the
 * nearest cache. */
enum { ROW_AHEAD = 512 };

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
    const real *gammas, *betas; /* of ROW_ROOM elements at most, or NULL */
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

RG_INLINE vpair row_gamma(const group_rows *k, int64_t i, const int n, const rg_dtype T)
{
    return k->gammas != NULL
               ? vload_pair(k->gammas, i, RG_REAL, false)
               : any_parameter(k->gamma, i, k->gamma_step, n, k->dtype, k->has_gamma, 1, T);
}

RG_INLINE vpair row_beta(const group_rows *k, int64_t i, const int n, const rg_dtype T)
{
    return k->betas != NULL
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
 */
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
RG_INLINE void row_moments_step(const group_rows *k, const group_row *r, row_sums *q,
                                const int rows, int64_t i, const int n, const rg_dtype T,
                                const bool whole, bool stream, const int variant)
{
    (void)stream;
    (void)variant;
#pragma GCC unroll 4
    for (int j = 0; j < rows; j++) {
        const vpair x = row_load(r[j].x, i, k->x_step, n, T, k->dense, whole);
        const vreal near = vset(r[j].near);
        const vpair d = keep_some((vpair){ x.a - near, x.b - near }, n, T, true);
        q[j].a.a += d.a;
        q[j].a.b += d.b;
        q[j].b.a = vfma(d.a, d.a, q[j].b.a);
        q[j].b.b = vfma(d.b, d.b, q[j].b.b);
    }
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

RG_INLINE void row_forward_step(const group_rows *k, const group_row *r, row_sums *q,
                                const int rows, int64_t i, const int n, const rg_dtype T,
                                const bool whole, bool stream, const int variant)
{
    (void)q;
    const vpair gamma = row_gamma(k, i, n, T), beta = row_beta(k, i, n, T);
#pragma GCC unroll 4
    for (int j = 0; j < rows; j++) {
        const vpair x = row_load(r[j].x, i, k->x_step, n, T, k->dense, whole);
        row_ahead(k, r[j].x, i, T, whole);
        const vpair y = { row_y(k, &r[j], x.a, gamma.a, beta.a, variant),
                          row_y(k, &r[j], x.b, gamma.b, beta.b, variant) };
        row_store(k, &r[j], i, n, T, whole, stream, y);
    }
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
RG_INLINE void row_sums_step(const group_rows *k, const group_row *r, row_sums *q, const int rows,
                             int64_t i, const int n, const rg_dtype T, const bool whole,
                             bool stream, const int variant)
{
    (void)stream;
    const vpair gamma = row_gamma(k, i, n, T);
    const vpair beta = variant == NORM_PLAIN ? gamma : row_beta(k, i, n, T);
#pragma GCC unroll 4
    for (int j = 0; j < rows; j++) {
        const row_values v = row_values_of(k, &r[j], i, n, gamma, beta, T, whole, variant);
        const vpair h = keep_some((vpair){ v.g.a * gamma.a, v.g.b * gamma.b }, n, T, true);
        const vreal mean = vset(r[j].mean);
        const vpair t = keep_some((vpair){ v.x.a - mean, v.x.b - mean }, n, T, true);
        q[j].a.a += h.a;
        q[j].a.b += h.b;
        q[j].b.a = vfma(h.a, t.a, q[j].b.a);
        q[j].b.b = vfma(h.b, t.b, q[j].b.b);
    }
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

RG_INLINE void row_gradient_step(const group_rows *k, const group_row *r, row_sums *q,
                                 const int rows, int64_t i, const int n, const rg_dtype T,
                                 const bool whole, bool stream, const int variant)
{
    (void)q;
    const vpair gamma = row_gamma(k, i, n, T), none = { vset(0), vset(0) };
    const vpair beta = variant == NORM_PLAIN ? gamma : row_beta(k, i, n, T);
    const bool sums = k->dgamma != NULL;
    vpair dgamma = sums ? load_sums(k->dgamma, i, n, T) : none;
    vpair dbeta = sums ? load_sums(k->dbeta, i, n, T) : none;
#pragma GCC unroll 4
    for (int j = 0; j < rows; j++) {
        const row_values v = row_values_of(k, &r[j], i, n, gamma, beta, T, whole, variant);
        row_ahead(k, r[j].dy, i, T, whole);
        row_ahead(k, r[j].x, i, T, whole);
        const vreal s = vset(r[j].s);
        const vreal offset = vset(r[j].offset), weight = vset(r[j].weight);
        dbeta.a += v.g.a;
        dbeta.b += v.g.b;
        dgamma.a = vfma(v.g.a, v.xh.a, dgamma.a);
        dgamma.b = vfma(v.g.b, v.xh.b, dgamma.b);
        if (r[j].out == NULL)
            continue;
        /* rounded one by one: a single element leaves 0 */
        const vpair dx = { vfma(v.xh.a, weight, v.g.a * gamma.a * s - offset),
                           vfma(v.xh.b, weight, v.g.b * gamma.b * s - offset) };
        row_store(k, &r[j], i, n, T, whole, stream, dx);
    }
    if (sums) {
        store_sums(k->dgamma, i, n, T, dgamma);
        store_sums(k->dbeta, i, n, T, dbeta);
    }
}

/* Loops over name_step, as in channel_rows.h; q holds sums of each row:
 *
 *      name_rest       elements begin to end - 1 of one row, called
 *      name_pairs      whole pairs of `rows` rows; returns where these end
 *      name_rows       `rows` rows, `together` at a time where there are as many
 *      name_total      sums of `rows` rows, over all elements */
#define ROW_LOOPS(name, together, variants)                                                    \
    RG_OUTLINE void name##_rest(const group_rows *k, const group_row *r, row_sums *q,          \
                                int64_t begin, int64_t end, rg_dtype T)                        \
    {                                                                                          \
        for (int64_t i = begin; i < end; i += CHANNEL_PAIR)                                    \
            name##_step(k, r, q, 1, i, (int)least(CHANNEL_PAIR, end - i), T, false, false,     \
                        k->variant);                                                           \
    }                                                                                          \
    RG_INLINE int64_t name##_pairs(const group_rows *k, const group_row *r, row_sums *q,       \
                                   int64_t begin, int64_t end, const rg_dtype T, bool stream,  \
                                   const int variant)                                          \
    {                                                                                          \
        const group_rows all = *k; /* which no store can change */                             \
        group_row own[together];                                                               \
        row_sums sums[together];                                                               \
        memcpy(own, r, sizeof own);                                                            \
        memcpy(sums, q, sizeof sums);                                                          \
        int64_t i = begin;                                                                     \
        for (; i + CHANNEL_PAIR <= end; i += CHANNEL_PAIR)                                     \
            name##_step(&all, own, sums, together, i, CHANNEL_PAIR, T, true, stream, variant); \
        memcpy(q, sums, sizeof sums);                                                          \
        return i;                                                                              \
    }                                                                                          \
    RG_INLINE void name##_rows(const group_rows *k, const group_row *r, row_sums *q, int rows, \
                               int64_t begin, int64_t end, const rg_dtype T, bool stream)      \
    {                                                                                          \
        for (int j = 0, taken; j < rows; j += taken) {                                         \
            const bool fast = k->fast && rows - j >= (together);                               \
            int64_t i = begin;                                                                 \
            taken = fast ? (together) : 1;                                                     \
            if (fast && (k->variant == NORM_PLAIN || (variants) == 1))                         \
                i = name##_pairs(k, r + j, q + j, begin, end, T, stream, NORM_PLAIN);          \
            else if (fast)                                                                     \
                i = name##_pairs(k, r + j, q + j, begin, end, T, stream, NORM_RELU);           \
            for (int l = j; l < j + taken && i < end; l++)                                     \
                name##_rest(k, &r[l], &q[l], i, end, T);                                       \
        }                                                                                      \
    }                                                                                          \
    RG_INLINE void name##_total(const group_rows *k, const group_row *r, row_sums *total,      \
                                int rows, const rg_dtype T)                                    \
    {                                                                                          \
        memset(total, 0, ROWS * sizeof *total);                                                \
        for (int64_t i = 0; i < k->count; i += ROW_PIECE) {                                    \
            row_sums q[ROWS] = { 0 };                                                          \
            name##_rows(k, r, q, rows, i, least(k->count, i + ROW_PIECE), T, false);           \
            if (k->count <= ROW_PIECE)                                                         \
                memcpy(total, q, sizeof q);                                                    \
            else                                                                               \
                add_sums(total, q);                                                            \
        }                                                                                      \
    }

RG_OUTLINE void add_sums(row_sums total[ROWS], const row_sums q[ROWS])
{
    for (int j = 0; j < ROWS; j++) {
        total[j].a.a += q[j].a.a;
        total[j].a.b += q[j].a.b;
        total[j].b.a += q[j].b.a;
        total[j].b.b += q[j].b.b;
    }
}

ROW_LOOPS(row_moments, 1, 1)
ROW_LOOPS(row_forward, 1, 2)
ROW_LOOPS(row_sums, 1, 2)
ROW_LOOPS(row_gradient, ROWS, 2)

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

RG_OUTLINE void end_moments(const group_rows *k, group_row *r, const row_sums *q, int rows,
                            double epsilon)
{
    for (int j = 0; j < rows; j++) {
        const double sum = end_sum(q[j].a), rest = sum * k->each, near = (double)r[j].near;
        const double around = end_sum(q[j].b) - sum * rest, mean = (double)(real)(near + rest);
        r[j].mean = (real)mean;
        r[j].rest = (real)((near - mean) + rest);
        r[j].s = (real)(1 / __builtin_sqrt((around < 0 ? 0 : around * k->each) + epsilon));
    }
}

RG_INLINE void row_statistics(const group_rows *k, group_row *r, int rows, double epsilon,
                              const rg_dtype T)
{
    row_sums q[ROWS];
    for (int j = 0; j < rows; j++)
        r[j].near = middle_element(k, &r[j], T);
    row_moments_total(k, r, q, rows, T);
    end_moments(k, r, q, rows, epsilon);
}

RG_OUTLINE void end_factors(const group_rows *k, group_row *r, const row_sums *q, int rows)
{
    for (int j = 0; j < rows; j++) {
        const double sum = end_sum(q[j].a), s = (double)r[j].s;
        const double product = s * (end_sum(q[j].b) - (double)r[j].rest * sum);
        r[j].offset = (real)(s * (sum * k->each));
        r[j].weight = (real)(-s * (product * k->each));
    }
}

/* gamma and beta of a group, as they are needed. */
typedef struct row_tables {
    real gamma[ROW_ROOM + CHANNEL_PAIR], beta[ROW_ROOM + CHANNEL_PAIR];
    int64_t channel; /* the first one, or -1 */
} row_tables;

/* All that rows have in common. */
RG_INLINE group_rows rows_of(const rg_group_norm_shape *shape, norm_columns *neuron, bool add,
                             row_tables *tables)
{
    const rg_norm_parameters *p = &shape->parameters;
    const int64_t count = shape->channels.channels / shape->groups;
    const bool keeps = count <= ROW_ROOM;
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

RG_INLINE bool rows_aligned(const group_row *r, int rows)
{
    uintptr_t bits = 0;
    for (int j = 0; j < rows; j++)
        bits |= (uintptr_t)r[j].out;
    return (bits & (RG_VECTOR_BYTES - 1)) == 0;
}

RG_INLINE void set_shifts(group_row *r, int rows)
{
    for (int j = 0; j < rows; j++) {
        r[j].shift = (real)(-(double)r[j].rest * (double)r[j].s);
    }
}

/* Where group `group` of an image stands, and its statistics, which are kept. */
RG_INLINE void start_forward(const rg_group_norm_args *k, const group_rows *all, group_row *r,
                             int64_t image, int64_t group, const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const int64_t c = group * all->count, to = image * k->shape.groups + group;
    r->x = at(image_at(k->x, s, 0, image, T), c * all->x_step, T);
    r->out = (char *)(uintptr_t)at(image_at(k->y, s, 1, image, T), c * all->out_step, T);
    row_statistics(all, r, 1, k->shape.epsilon, T);
    ((real *)k->mean)[to] = r->mean;
    ((real *)k->rest)[to] = r->rest;
    ((real *)k->s)[to] = r->s;
    set_shifts(r, 1);
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
    const bool ahead = is_short(T) && all.count <= ROW_AHEAD;
    all.ahead = ahead ? 2 * all.count : all.count;
    const int64_t first = begin * k->shape.part * groups;
    const int64_t last = least(end * k->shape.part, s->images.count) * groups;
    group_row r[2];
    for (int64_t i = first, next = first; i < last; i++) {
        for (; next < last && next <= i + ahead; next++)
            start_forward(k, &all, &r[next & 1], next / groups, next % groups, T);
        const group_row *const now = &r[i & 1];
        place_parameters(&all, &tables, k->gamma, k->beta, i % groups * all.count, T);
        row_sums unused[ROWS] = { 0 };
        row_forward_rows(&all, now, unused, 1, 0, all.count, T,
                         k->shape.stream && rows_aligned(now, 1));
    }
}

/* Where `rows` images from `image` on stand, and what is known of them. */
RG_INLINE void place_rows(const rg_group_norm_gradient_args *k, const group_rows *all, group_row *r,
                          int64_t rows, int64_t image, int64_t group, const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const int64_t c = group * all->count;
    for (int64_t j = 0; j < rows; j++) {
        const int64_t from = (image + j) * k->shape.groups + group;
        r[j].dy = at(image_at(k->dy, s, 0, image + j, T), c * all->dy_step, T);
        r[j].x = at(image_at(k->x, s, 1, image + j, T), c * all->x_step, T);
        r[j].out = NULL;
        if (k->wants_dx)
            r[j].out =
                (char *)(uintptr_t)at(image_at(k->dx, s, 2, image + j, T), c * all->out_step, T);
        r[j].mean = ((const real *)k->mean)[from];
        r[j].rest = ((const real *)k->rest)[from];
        r[j].s = ((const real *)k->s)[from];
        r[j].offset = r[j].weight = 0;
    }
}

/* What is known of a group before its dx is made. */
RG_INLINE void start_gradient(const rg_group_norm_gradient_args *k, group_rows *all,
                              row_tables *tables, group_row *r, int64_t image, int64_t group,
                              const rg_dtype T)
{
    row_sums q[ROWS] = { 0 };
    place_rows(k, all, r, 1, image, group, T);
    place_parameters(all, tables, k->gamma, k->beta, group * all->count, T);
    if (!k->has_statistics)
        row_statistics(all, r, 1, k->shape.epsilon, T);
    set_shifts(r, 1);
    if (k->wants_dx) {
        row_sums_total(all, r, q, 1, T);
        end_factors(all, r, q, 1);
    }
}

/* Rows of a unit, whose sums go to dgamma and dbeta, or NULL. */
RG_INLINE void unit_gradient(const rg_group_norm_gradient_args *k, group_rows *all,
                             row_tables *tables, int64_t unit, real *dgamma, real *dbeta,
                             const rg_dtype T)
{
    const int64_t groups = k->shape.groups, first = unit * k->shape.part * groups;
    const int64_t last = least((unit + 1) * k->shape.part, k->shape.channels.images.count) * groups;
    const bool ahead = is_short(T) && all->count <= ROW_AHEAD && groups == 1; /* one gamma */
    all->ahead = ahead ? 2 * all->count : all->count;
    group_row r[2];
    for (int64_t i = first, next = first; i < last; i++) {
        for (; next < last && next <= i + ahead; next++)
            start_gradient(k, all, tables, &r[next & 1], next / groups, next % groups, T);
        const group_row *const now = &r[i & 1];
        const int64_t c = i % groups * all->count;
        row_sums unused[ROWS] = { 0 };
        all->dgamma = dgamma != NULL ? dgamma + c : NULL;
        all->dbeta = dbeta != NULL ? dbeta + c : NULL;
        row_gradient_rows(all, now, unused, 1, 0, all->count, T,
                          k->shape.stream && rows_aligned(now, 1));
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

/* ---- gradients of parameters ---- */

RG_INLINE void join(const rg_group_norm_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    (void)T;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * RG_NORM_UNIT, width = least(RG_NORM_UNIT, k->channels - first);
        double sum[RG_NORM_UNIT] = { 0 };
        for (int64_t i = 0; i < k->count; i++) {
            const real *from = (const real *)k->from + i * k->channels + first;
            for (int64_t c = 0; c < width; c++)
                sum[c] += (double)from[c];
        }
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
