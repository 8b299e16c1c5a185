/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalisation on the CPU: numbers for each column of a unit, and what is done with a vector. */
#ifndef RG_OPS_NORM_CPU_H
#define RG_OPS_NORM_CPU_H

#include "backend/cpu/channel_rows.h"
#include "ops/batch_norm/norm.h"
#include "ops/neuron/any_neuron.h"

/* Some element of any dtype, for tensors of channels. */
RG_OUTLINE double load_any(const void *data, int64_t i, rg_dtype dtype)
{
    switch (dtype) {
    case RG_F64:
        return ((const double *)data)[i];
    case RG_F16:
        return (double)rg_float_of_f16(((const uint16_t *)data)[i]);
    case RG_BF16:
        return (double)rg_float_of_bf16(((const uint16_t *)data)[i]);
    default:
        return (double)((const float *)data)[i];
    }
}

RG_OUTLINE void store_any(void *data, int64_t i, rg_dtype dtype, double value)
{
    if (dtype == RG_F64)
        ((double *)data)[i] = value;
    else if (dtype == RG_F16)
        ((uint16_t *)data)[i] = rg_f16_of_float((float)value);
    else if (dtype == RG_BF16)
        ((uint16_t *)data)[i] = rg_bf16_of_float((float)value);
    else
        ((float *)data)[i] = (float)value;
}

RG_INLINE double gamma_of(const void *gamma, const rg_norm_parameters *p, int64_t c)
{
    return p->has_gamma ? load_any(gamma, c * p->gamma_step, p->dtype) : 1;
}

/* Channels first to first + width - 1 of gamma or beta; what follows up to a whole vector is 0. */
RG_OUTLINE void load_parameter(real *to, const void *data, int64_t step, bool has, real otherwise,
                               rg_dtype dtype, int64_t first, int64_t width)
{
    for (int64_t i = 0; i < width; i += VLEN) {
        const int n = vlanes_left(width - i);
        vreal value = vkeep(vset(otherwise), n, 0);
        if (has)
            value = step == 1 ? vload(data, first + i, n, dtype)
                              : vgather(data, first + i, step, n, dtype);
        vstore_full(to, i, RG_REAL, value);
    }
}

/* ---- statistics ---- */

/* Sums of x - near and of its squares, for each column. */
typedef struct norm_parts {
    real near[CHANNEL_ROOM], sum[CHANNEL_ROOM], squares[CHANNEL_ROOM];
    real all[CHANNEL_ROOM], all_squares[CHANNEL_ROOM]; /* of the pieces before */
} norm_parts;

RG_INLINE void parts_step(norm_parts *p, const channel_run *r, int64_t i, const int n,
                          const rg_dtype T, const bool dense, const bool stream, const int variant)
{
    (void)stream;
    (void)variant;
    const int64_t c = r->column + i;
    const vreal t = load_channels(r, 0, i, n, T, dense) - vload_full(p->near, c, RG_REAL);
    const vreal d = vkeep(t, n, 0); /* columns behind the end belong to others */
    vstore_full(p->sum, c, RG_REAL, vload_full(p->sum, c, RG_REAL) + d);
    vstore_full(p->squares, c, RG_REAL, vfma(d, d, vload_full(p->squares, c, RG_REAL)));
}
RG_CHANNEL_LOOPS(parts, norm_parts, 1, false)

RG_INLINE vreal middle_of(vreal a, vreal b, vreal c)
{
    return vmax(vmin(a, b), vmin(vmax(a, b), c));
}

/* A number near the mean of each column, so that what is summed is of the size of the deviation:
 * the one in the middle of the first three elements. Equal elements leave nothing to sum. */
RG_INLINE void choose_near(norm_parts *p, const rg_channels *s, const void *x, int64_t begin,
                           int64_t end, int64_t first, int64_t width, const rg_dtype T)
{
    const void *const data[] = { x };
    for (int64_t lane = 0; lane < least(s->lanes, end - begin); lane++) {
        channel_run r[3];
        for (int k = 0; k < 3; k++) {
            const int64_t row = begin + lane + k * s->lanes;
            r[k] = run_at(s, data, 1, false, row < end ? row : begin + lane, first, T);
        }
        for (int64_t i = 0; i < width; i += VLEN) {
            const int n = vlanes_left(width - i);
            const vreal near = middle_of(load_channels(&r[0], 0, i, n, T, s->dense),
                                         load_channels(&r[1], 0, i, n, T, s->dense),
                                         load_channels(&r[2], 0, i, n, T, s->dense));
            vstore(p->near, lane * width + i, n, RG_REAL, near);
        }
    }
}

/* Statistics of the columns over rows begin to end - 1. */
RG_INLINE void sum_parts(norm_parts *p, const rg_channels *s, const void *x, int64_t begin,
                         int64_t end, int64_t first, int64_t width, const rg_dtype T)
{
    const int64_t all = s->lanes * width, piece = CHANNEL_PIECE * s->lanes;
    const size_t bytes = (size_t)(all + VLEN) * sizeof(real);
    memset(p->near, 0, bytes);
    memset(p->sum, 0, bytes);
    memset(p->squares, 0, bytes);
    memset(p->all, 0, bytes);
    memset(p->all_squares, 0, bytes);
    choose_near(p, s, x, begin, end, first, width, T);
    const void *const data[] = { x };
    for (int64_t row = begin; row < end; row += piece) {
        parts_rows(p, s, data, row, least(end, row + piece), first, width, T, false, 0);
        end_piece(p->all, p->sum, all);
        end_piece(p->all_squares, p->squares, all);
    }
}

/* Rows that belong to a lane. */
RG_INLINE real lane_rows(const rg_channels *s, int64_t rows, int64_t lane)
{
    return (real)((rows + s->lanes - 1 - lane) / s->lanes);
}

/* The mean less `near` of VLEN channels from i on, over all lanes. There may be hundreds of them,
 * so the sum keeps what rounding takes from it. */
RG_INLINE vreal join_means(const norm_parts *p, const rg_channels *s, int64_t rows, int64_t width,
                           int64_t i, vreal near)
{
    vreal total = vset(0), lost = vset(0);
    for (int64_t lane = 0; lane < least(s->lanes, rows); lane++) {
        const int64_t c = lane * width + i;
        const vreal term = vfma(vload_full(p->near, c, RG_REAL) - near,
                                vset(lane_rows(s, rows, lane)), vload_full(p->all, c, RG_REAL));
        const vreal next = total + term, back = next - total;
        lost += (total - (next - back)) + (term - back);
        total = next;
    }
    return vselect(lost == lost, total + lost, total) / vset((real)(rows > 0 ? rows : 1));
}

/* What sum_parts has found, all lanes together: for VLEN channels from i on, the mean less p->near,
 * and the sum of squares around it. */
RG_INLINE void join_lanes(const norm_parts *p, const rg_channels *s, int64_t rows, int64_t width,
                          int64_t i, vreal *mean, vreal *squares)
{
    const vreal near = vload_full(p->near, i, RG_REAL);
    *mean = join_means(p, s, rows, width, i, near);
    *squares = vset(0);
    for (int64_t lane = 0; lane < least(s->lanes, rows); lane++) {
        const int64_t c = lane * width + i;
        const vreal n = vset(lane_rows(s, rows, lane));
        const vreal sum = vload_full(p->all, c, RG_REAL), rest = sum / n;
        const vreal around = vfma(-sum, rest, vload_full(p->all_squares, c, RG_REAL));
        const vreal away = ((vload_full(p->near, c, RG_REAL) - near) + rest) - *mean;
        *squares += vselect(around < 0, vset(0), around) + away * away * n;
    }
}

/* ---- sums of the gradient, y, dx ---- */

/* What belongs to each column. */
typedef struct norm_columns {
    real mean[CHANNEL_ROOM], scale[CHANNEL_ROOM], shift[CHANNEL_ROOM]; /* z = t scale + shift */
    real gamma[CHANNEL_ROOM], s[CHANNEL_ROOM], factor[RG_NORM_FACTORS][CHANNEL_ROOM]; /* of dx */
    real sum[CHANNEL_ROOM], product[CHANNEL_ROOM]; /* of g, and of g t */
    real all[CHANNEL_ROOM], all_products[CHANNEL_ROOM];
    neuron_constants neuron;
    int32_t kind;
    bool given, extra, add;
} norm_columns;

/* z = t scale + shift, from mean (its rest in `shift`), s, gamma, and beta (in `scale`). */
RG_INLINE void finish_columns(norm_columns *k, int64_t width)
{
    for (int64_t i = 0; i < width; i += VLEN) {
        const vreal beta = vload_full(k->scale, i, RG_REAL),
                    rest = vload_full(k->shift, i, RG_REAL);
        const vreal scale = vload_full(k->gamma, i, RG_REAL) * vload_full(k->s, i, RG_REAL);
        vstore_full(k->scale, i, RG_REAL, scale);
        vstore_full(k->shift, i, RG_REAL, vfma(-rest, scale, beta));
    }
}

/* The other lanes have the same channels; behind the last one a vector stays whole. */
RG_INLINE void repeat_lanes(real *values, int64_t width, int64_t lanes)
{
    for (int64_t lane = 1; lane < lanes; lane++)
        memcpy(values + lane * width, values, (size_t)width * sizeof(real));
    vstore_full(values, lanes * width, RG_REAL, vset(0));
}

RG_INLINE void repeat_columns(norm_columns *k, int64_t width, int64_t lanes, bool factors)
{
    repeat_lanes(k->mean, width, lanes);
    repeat_lanes(k->scale, width, lanes);
    repeat_lanes(k->shift, width, lanes);
    repeat_lanes(k->gamma, width, lanes);
    repeat_lanes(k->s, width, lanes);
    for (int f = 0; f < RG_NORM_FACTORS && factors; f++)
        repeat_lanes(k->factor[f], width, lanes);
}

RG_INLINE vreal pre_activation(const norm_columns *k, int64_t c, vreal t)
{
    return vfma(t, vload_full(k->scale, c, RG_REAL), vload_full(k->shift, c, RG_REAL));
}

/* Loops of their own for what is met most; the others look at each vector what is to be done. */
enum { NORM_PLAIN, NORM_RELU, NORM_OTHER };

RG_INLINE int variant_of(const norm_columns *k)
{
    if (k->given || k->extra || k->add)
        return NORM_OTHER;
    return k->kind == RG_NEURON_NONE   ? NORM_PLAIN
           : k->kind == RG_NEURON_RELU ? NORM_RELU
                                       : NORM_OTHER;
}

/* The loop of a variant, and of the one that k asks for. */
#define VARIANT_SWITCH(variant, loop, ...) \
    switch (variant) {                     \
    case NORM_PLAIN:                       \
        loop(__VA_ARGS__, NORM_PLAIN);     \
        break;                             \
    case NORM_RELU:                        \
        loop(__VA_ARGS__, NORM_RELU);      \
        break;                             \
    default:                               \
        loop(__VA_ARGS__, NORM_OTHER);     \
    }
#define VARIANTS(rows, k, ...) VARIANT_SWITCH(variant_of(k), rows, k, __VA_ARGS__)

RG_INLINE void forward_step(norm_columns *k, const channel_run *r, int64_t i, const int n,
                            const rg_dtype T, const bool dense, const bool stream,
                            const int variant)
{
    const int64_t c = r->column + i;
    const vreal t = load_channels(r, 0, i, n, T, dense) - vload_full(k->mean, c, RG_REAL);
    vreal y = pre_activation(k, c, t);
    if (variant == NORM_RELU)
        y = neuron_relu(&k->neuron, y, y);
    else if (variant == NORM_OTHER)
        y = any_neuron(k->kind, &k->neuron, y);
    store_channels(r, i, n, T, false, dense, stream, y);
}
RG_CHANNEL_LOOPS(forward, norm_columns, 2, true)

/* g from dy and t. */
RG_INLINE vreal through_neuron(const norm_columns *k, int64_t c, vreal dy, vreal t,
                               const int variant)
{
    if (variant == NORM_PLAIN || k->kind == RG_NEURON_NONE)
        return dy;
    const vreal z = pre_activation(k, c, t);
    return variant == NORM_RELU ? neuron_relu_slope(&k->neuron, dy, z)
                                : any_neuron_slope(k->kind, &k->neuron, dy, z);
}

RG_INLINE void sums_step(norm_columns *k, const channel_run *r, int64_t i, const int n,
                         const rg_dtype T, const bool dense, const bool stream, const int variant)
{
    (void)stream;
    const int64_t c = r->column + i;
    const vreal dy = load_channels(r, 0, i, n, T, dense);
    const vreal t = load_channels(r, 1, i, n, T, dense) - vload_full(k->mean, c, RG_REAL);
    const vreal g = vkeep(through_neuron(k, c, dy, t, variant), n, 0);
    vstore_full(k->sum, c, RG_REAL, vload_full(k->sum, c, RG_REAL) + g);
    vstore_full(k->product, c, RG_REAL,
                vfma(g, vkeep(t, n, 0), vload_full(k->product, c, RG_REAL)));
}
RG_CHANNEL_LOOPS(sums, norm_columns, 2, false)

RG_INLINE void gradient_step(norm_columns *k, const channel_run *r, int64_t i, const int n,
                             const rg_dtype T, const bool dense, const bool stream,
                             const int variant)
{
    const bool other = variant == NORM_OTHER;
    const int64_t c = r->column + i;
    const vreal dy = load_channels(r, 0, i, n, T, dense);
    const vreal t = load_channels(r, 1, i, n, T, dense) - vload_full(k->mean, c, RG_REAL);
    const vreal g = through_neuron(k, c, dy, t, variant);
    vreal dx;
    if (other && k->given) {
        dx = g * vload_full(k->scale, c, RG_REAL);
    } else { /* rounded one by one: a single element leaves 0 */
        const vreal h = g * vload_full(k->gamma, c, RG_REAL) -
                        vload_full(k->factor[RG_NORM_OFFSET], c, RG_REAL);
        const vreal weight = vload_full(k->factor[RG_NORM_WEIGHT], c, RG_REAL);
        dx = vfma(-t, weight, h) * vload_full(k->s, c, RG_REAL);
    }
    if (other && k->extra)
        dx += vfma(t, vload_full(k->factor[RG_NORM_SLOPE], c, RG_REAL),
                   vload_full(k->factor[RG_NORM_PLUS], c, RG_REAL));
    store_channels(r, i, n, T, other && k->add, dense, stream, dx);
}
RG_CHANNEL_LOOPS(gradient, norm_columns, 3, true)

/* Sums of the columns over rows begin to end - 1. */
RG_INLINE void sum_gradient(norm_columns *k, const rg_channels *s, const void *dy, const void *x,
                            int64_t begin, int64_t end, int64_t first, int64_t width,
                            const rg_dtype T)
{
    const int64_t all = s->lanes * width, piece = CHANNEL_PIECE * s->lanes;
    const size_t bytes = (size_t)(all + VLEN) * sizeof(real);
    memset(k->sum, 0, bytes);
    memset(k->product, 0, bytes);
    memset(k->all, 0, bytes);
    memset(k->all_products, 0, bytes);
    const void *const data[] = { dy, x };
    for (int64_t row = begin; row < end; row += piece) {
        VARIANTS(sums_rows, k, s, data, row, least(end, row + piece), first, width, T, false)
        end_piece(k->all, k->sum, all);
        end_piece(k->all_products, k->product, all);
    }
}

/* The sum of a channel over its lanes. */
RG_INLINE double sum_lanes(const real *values, int64_t c, int64_t width, int64_t lanes)
{
    double sum = (double)values[c];
    for (int64_t lane = 1; lane < lanes; lane++)
        sum += (double)values[lane * width + c];
    return sum;
}

#endif
