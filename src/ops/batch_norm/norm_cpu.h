/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalization on the CPU: numbers for each column of a unit, and what is done with a vector. */
#ifndef RG_OPS_NORM_CPU_H
#define RG_OPS_NORM_CPU_H

#include "backend/cpu/channel_rows.h"
#include "ops/batch_norm/norm.h"
#include "ops/neuron/neuron_formulas.h"

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

RG_INLINE double beta_of(const void *beta, const rg_norm_parameters *p, int64_t c)
{
    return p->has_beta ? load_any(beta, c * p->beta_step, p->dtype) : 0;
}

/* ---- neurons ---- */

/* Any kind: called, once a vector. */
#define NEURON_CASE(kind, name) \
    case RG_NEURON_##kind:      \
        return neuron_##name

RG_OUTLINE vreal any_neuron(int32_t kind, const neuron_constants *k, vreal z)
{
    switch (kind) {
        NEURON_CASE(LINEAR, linear(k, z, z));
        NEURON_CASE(SIGMOID, sigmoid(k, z, z));
        NEURON_CASE(HARD_SIGMOID, hard_sigmoid(k, z, z));
        NEURON_CASE(TANH, tanh(k, z, z));
        NEURON_CASE(ABSOLUTE, absolute(k, z, z));
        NEURON_CASE(SOFTPLUS, softplus(k, z, z));
        NEURON_CASE(SOFTSIGN, softsign(k, z, z));
        NEURON_CASE(ELU, elu(k, z, z));
        NEURON_CASE(RELUN, relun(k, z, z));
        NEURON_CASE(POWER, power(k, z, z));
        NEURON_CASE(EXPONENTIAL, exponential(k, z, z));
        NEURON_CASE(LOGARITHM, logarithm(k, z, z));
        NEURON_CASE(GELU, gelu(k, z, z));
        NEURON_CASE(GELU_TANH, gelu_tanh(k, z, z));
        NEURON_CASE(SWISH, swish(k, z, z));
    default:
        return z;
    }
}

RG_OUTLINE vreal any_neuron_slope(int32_t kind, const neuron_constants *k, vreal dy, vreal z)
{
    switch (kind) {
        NEURON_CASE(LINEAR, linear_slope(k, dy, z));
        NEURON_CASE(SIGMOID, sigmoid_slope(k, dy, z));
        NEURON_CASE(HARD_SIGMOID, hard_sigmoid_slope(k, dy, z));
        NEURON_CASE(TANH, tanh_slope(k, dy, z));
        NEURON_CASE(ABSOLUTE, absolute_slope(k, dy, z));
        NEURON_CASE(SOFTPLUS, softplus_slope(k, dy, z));
        NEURON_CASE(SOFTSIGN, softsign_slope(k, dy, z));
        NEURON_CASE(ELU, elu_slope(k, dy, z));
        NEURON_CASE(RELUN, relun_slope(k, dy, z));
        NEURON_CASE(POWER, power_slope(k, dy, z));
        NEURON_CASE(EXPONENTIAL, exponential_slope(k, dy, z));
        NEURON_CASE(LOGARITHM, logarithm_slope(k, dy, z));
        NEURON_CASE(GELU, gelu_slope(k, dy, z));
        NEURON_CASE(GELU_TANH, gelu_tanh_slope(k, dy, z));
        NEURON_CASE(SWISH, swish_slope(k, dy, z));
    default:
        return dy;
    }
}

/* ---- statistics ---- */

/* Sums of x - near and of its squares, for each column. */
typedef struct norm_parts {
    real near[CHANNEL_ROOM], sum[CHANNEL_ROOM], squares[CHANNEL_ROOM];
    real all[CHANNEL_ROOM], all_squares[CHANNEL_ROOM]; /* of the pieces before */
} norm_parts;

RG_FORMULA void parts_step(void *context, const channel_run *r, int64_t i, const int n,
                           const rg_dtype T, const bool stream)
{
    (void)stream;
    norm_parts *p = context;
    const int64_t c = r->column + i;
    const vreal t = load_channels(r, 0, i, n, T) - vload_full(p->near, c, RG_REAL);
    const vreal d = vkeep(t, n, 0); /* columns behind the end belong to others */
    vstore_full(p->sum, c, RG_REAL, vload_full(p->sum, c, RG_REAL) + d);
    vstore_full(p->squares, c, RG_REAL, vfma(d, d, vload_full(p->squares, c, RG_REAL)));
}

RG_INLINE real middle_of(real a, real b, real c)
{
    const real low = a < b ? a : b, high = a < b ? b : a, less = high < c ? high : c;
    return low < less ? less : low;
}

/* A number near the mean of each column, so that what is summed is of the size of the deviation:
 * the one in the middle of the first three elements. Equal elements leave nothing to sum. */
RG_INLINE void choose_near(norm_parts *p, const rg_channels *s, const void *x, int64_t begin,
                           int64_t end, int64_t first, int64_t width, const rg_dtype T)
{
    for (int64_t lane = 0; lane < least(s->lanes, end - begin); lane++) {
        int64_t at[3];
        for (int k = 0; k < 3; k++) {
            const int64_t row = begin + lane + k * s->lanes;
            rg_walk_offsets(&s->rows, 1, row < end ? row : begin + lane, &at[k]);
        }
        for (int64_t c = 0; c < width; c++) {
            const int64_t o = (first + c) * s->step[0];
            p->near[lane * width + c] = middle_of(
                load_one(x, at[0] + o, T), load_one(x, at[1] + o, T), load_one(x, at[2] + o, T));
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
        channel_rows(parts_step, p, s, data, 1, false, row, least(end, row + piece), first, width,
                     T, false);
        end_piece(p->all, p->sum, all);
        end_piece(p->all_squares, p->squares, all);
    }
}

/* Rows that belong to a lane. */
RG_INLINE double lane_rows(const rg_channels *s, int64_t rows, int64_t lane)
{
    return (double)((rows + s->lanes - 1 - lane) / s->lanes);
}

/* What sum_parts has found for a column, its mean less `near`. */
RG_INLINE rg_norm_moments column_moments(const norm_parts *p, int64_t column, double rows,
                                         double near)
{
    const double sum = (double)p->all[column], squares = (double)p->all_squares[column];
    const double n = rows > 0 ? rows : 1, around = squares - sum * (sum / n);
    return (rg_norm_moments){ rows, ((double)p->near[column] - near) + sum / n,
                              around < 0 ? 0 : around };
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

/* From the statistics of a channel. */
RG_INLINE void set_column(norm_columns *k, int64_t column, double mean, double rest, double s,
                          double gamma, double beta)
{
    const double scale = gamma * s;
    k->mean[column] = (real)mean;
    k->scale[column] = (real)scale;
    k->shift[column] = (real)(beta - rest * scale);
    k->gamma[column] = (real)gamma;
    k->s[column] = (real)s;
}

/* The other lanes have the same channels. */
RG_INLINE void repeat_lanes(real *values, int64_t width, int64_t lanes)
{
    for (int64_t lane = 1; lane < lanes; lane++)
        memcpy(values + lane * width, values, (size_t)width * sizeof(real));
}

RG_INLINE void repeat_columns(norm_columns *k, int64_t width, int64_t lanes)
{
    if (lanes == 1)
        return;
    repeat_lanes(k->mean, width, lanes);
    repeat_lanes(k->scale, width, lanes);
    repeat_lanes(k->shift, width, lanes);
    repeat_lanes(k->gamma, width, lanes);
    repeat_lanes(k->s, width, lanes);
    for (int f = 0; f < RG_NORM_FACTORS; f++)
        repeat_lanes(k->factor[f], width, lanes);
}

RG_INLINE vreal pre_activation(const norm_columns *k, int64_t c, vreal t)
{
    return vfma(t, vload_full(k->scale, c, RG_REAL), vload_full(k->shift, c, RG_REAL));
}

RG_FORMULA void forward_step(void *context, const channel_run *r, int64_t i, const int n,
                             const rg_dtype T, const bool stream)
{
    const norm_columns *k = context;
    const int64_t c = r->column + i;
    const vreal z =
        pre_activation(k, c, load_channels(r, 0, i, n, T) - vload_full(k->mean, c, RG_REAL));
    vreal y = z;
    if (k->kind == RG_NEURON_RELU)
        y = neuron_relu(&k->neuron, z, z);
    else if (k->kind != RG_NEURON_NONE)
        y = any_neuron(k->kind, &k->neuron, z);
    store_channels(r, i, n, T, false, stream, y);
}

/* g from dy and t. */
RG_INLINE vreal through_neuron(const norm_columns *k, int64_t c, vreal dy, vreal t)
{
    if (k->kind == RG_NEURON_NONE)
        return dy;
    const vreal z = pre_activation(k, c, t);
    return k->kind == RG_NEURON_RELU ? neuron_relu_slope(&k->neuron, dy, z)
                                     : any_neuron_slope(k->kind, &k->neuron, dy, z);
}

RG_FORMULA void sums_step(void *context, const channel_run *r, int64_t i, const int n,
                          const rg_dtype T, const bool stream)
{
    (void)stream;
    norm_columns *k = context;
    const int64_t c = r->column + i;
    const vreal dy = load_channels(r, 0, i, n, T);
    const vreal t = load_channels(r, 1, i, n, T) - vload_full(k->mean, c, RG_REAL);
    const vreal g = vkeep(through_neuron(k, c, dy, t), n, 0);
    vstore_full(k->sum, c, RG_REAL, vload_full(k->sum, c, RG_REAL) + g);
    vstore_full(k->product, c, RG_REAL,
                vfma(g, vkeep(t, n, 0), vload_full(k->product, c, RG_REAL)));
}

RG_FORMULA void gradient_step(void *context, const channel_run *r, int64_t i, const int n,
                              const rg_dtype T, const bool stream)
{
    const norm_columns *k = context;
    const int64_t c = r->column + i;
    const vreal dy = load_channels(r, 0, i, n, T);
    const vreal t = load_channels(r, 1, i, n, T) - vload_full(k->mean, c, RG_REAL);
    const vreal g = through_neuron(k, c, dy, t);
    vreal dx;
    if (k->given) {
        dx = g * vload_full(k->scale, c, RG_REAL);
    } else { /* rounded one by one: a single element leaves 0 */
        const vreal h = g * vload_full(k->gamma, c, RG_REAL) -
                        vload_full(k->factor[RG_NORM_OFFSET], c, RG_REAL);
        const vreal weight = vload_full(k->factor[RG_NORM_WEIGHT], c, RG_REAL);
        dx = vfma(-t, weight, h) * vload_full(k->s, c, RG_REAL);
    }
    if (k->extra)
        dx += vfma(t, vload_full(k->factor[RG_NORM_SLOPE], c, RG_REAL),
                   vload_full(k->factor[RG_NORM_PLUS], c, RG_REAL));
    store_channels(r, i, n, T, k->add, stream, dx);
}

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
        channel_rows(sums_step, k, s, data, 2, false, row, least(end, row + piece), first, width, T,
                     false);
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
