/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalisation on the CPU: numbers for each column of a unit, and what is done with a vector. */
#ifndef RG_OPS_NORM_CPU_H
#define RG_OPS_NORM_CPU_H

#include "ops/fused_neuron/any_neuron_cpu.h"
#include "ops/norm/channel_rows_cpu.h"
#include "ops/norm/norm.h"

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

/* A NaN that stays one where it is cut off, see vstore_sums. */
#define RG_NAN ((real)__builtin_nan(""))

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
        vstore_full(to, i, RG_REAL, vselect(value == value, value, vset(RG_NAN))); /* a short one */
    }
}

/* sum += a, products += a b */
RG_INLINE void add_products(vpair *sum, vpair *products, vpair a, vpair b)
{
    sum->a += a.a;
    sum->b += a.b;
    products->a = vfma(a.a, b.a, products->a);
    products->b = vfma(a.b, b.b, products->b);
}

/* ---- statistics ---- */

/* Sums of x - near and of its squares, for each column. */
typedef struct norm_parts {
    real near[CHANNEL_BUFFER], sum[CHANNEL_BUFFER], squares[CHANNEL_BUFFER];
    real all[CHANNEL_BUFFER], all_squares[CHANNEL_BUFFER]; /* of the pieces before */
} norm_parts;

RG_INLINE void parts_step(norm_parts *p, const channel_run *r, const int rows, int64_t i,
                          const int n, const rg_dtype T, const bool whole, bool stream,
                          const int variant)
{
    (void)stream;
    (void)variant;
    const int64_t c = r->column + i;
    const vpair near = vload_pair(p->near, c, RG_REAL, false);
    vpair sum = vload_pair(p->sum, c, RG_REAL, false);
    vpair squares = vload_pair(p->squares, c, RG_REAL, false);
#pragma GCC unroll 2
    for (int j = 0; j < rows; j++) {
        const vpair x = load_channels(&r[j], 0, i, n, T, whole);
        /* columns behind the end belong to others */
        const vpair d = keep_some((vpair){ x.a - near.a, x.b - near.b }, n, T, r[j].any_order);
        add_products(&sum, &squares, d, d);
    }
    vstore_pair(p->sum, c, RG_REAL, sum, false, false);
    vstore_pair(p->squares, c, RG_REAL, squares, false, false);
}
RG_CHANNEL_LOOPS(parts, norm_parts, 1, false, 1)

RG_INLINE vreal middle_of(vreal a, vreal b, vreal c)
{
    return vmax(vmin(a, b), vmin(vmax(a, b), c));
}

/* A number near the mean of each column, so that what is summed is of the size of the deviation:
 * the one in the middle of the first three elements. Equal elements leave nothing to sum. */
RG_OUTLINE void choose_near(norm_parts *p, const rg_channels *s, const void *x, int64_t begin,
                            int64_t end, int64_t first, int64_t width, rg_dtype T)
{
    const void *const data[] = { x };
    for (int64_t chain = 0; chain < least(s->chains, end - begin); chain++) {
        channel_run r[3];
        for (int k = 0; k < 3; k++) {
            const int64_t row = begin + chain + k * s->chains;
            r[k] = run_at(s, data, 1, false, row < end ? row : begin + chain, first, T);
        }
        for (int64_t i = 0; i < width; i += VLEN) {
            const int n = vlanes_left(width - i);
            vreal each[3];
            for (int k = 0; k < 3; k++)
                each[k] =
                    load_groups(at(r[k].in[0], i * s->step[0], T), s->step[0], n, T, s->dense);
            const vreal near = middle_of(each[0], each[1], each[2]);
            vstore(p->near, chain * width + i, n, RG_REAL, near);
        }
    }
}

/* Statistics of the columns over rows begin to end - 1. */
RG_OUTLINE void sum_parts(norm_parts *p, const rg_channels *s, const void *x, int64_t begin,
                          int64_t end, int64_t first, int64_t width, rg_dtype T)
{
    const int64_t all = s->chains * width, piece = CHANNEL_PIECE * s->chains;
    const size_t bytes = (size_t)(all + CHANNEL_PAIR) * sizeof(real);
    const bool any_order = any_order_of(s, width);
    memset(p->near, 0, bytes);
    memset(p->sum, 0, bytes);
    memset(p->squares, 0, bytes);
    memset(p->all, 0, bytes);
    memset(p->all_squares, 0, bytes);
    choose_near(p, s, x, begin, end, first, width, T);
    order_columns(p->near, all, T, any_order, false);
    const void *const data[] = { x };
    for (int64_t row = begin; row < end; row += piece) {
        parts_rows(p, s, data, row, least(end, row + piece), first, width, T, false, 0);
        end_piece(p->all, p->sum, all);
        end_piece(p->all_squares, p->squares, all);
    }
    order_columns(p->near, all, T, any_order, true);
    order_columns(p->all, all, T, any_order, true);
    order_columns(p->all_squares, all, T, any_order, true);
}

/* Rows that belong to a chain. */
RG_INLINE real chain_rows(const rg_channels *s, int64_t rows, int64_t chain)
{
    return (real)((rows + s->chains - 1 - chain) / s->chains);
}

/* The mean less `near` of VLEN channels from i on, over all chains. There may be hundreds of them,
 * so the sum keeps what rounding takes from it. */
RG_INLINE vreal join_means(const norm_parts *p, const rg_channels *s, int64_t rows, int64_t width,
                           int64_t i, vreal near)
{
    vreal total = vset(0), lost = vset(0);
    for (int64_t chain = 0; chain < least(s->chains, rows); chain++) {
        const int64_t c = chain * width + i;
        const vreal term = vfma(vload_full(p->near, c, RG_REAL) - near,
                                vset(chain_rows(s, rows, chain)), vload_full(p->all, c, RG_REAL));
        const vreal next = total + term, back = next - total;
        lost += (total - (next - back)) + (term - back);
        total = next;
    }
    return vselect(lost == lost, total + lost, total) / vset((real)(rows > 0 ? rows : 1));
}

/* What sum_parts has found, all chains together: for VLEN channels from i on, the mean less
 * p->near, and the sum of squares around it. */
RG_INLINE void join_chains(const norm_parts *p, const rg_channels *s, int64_t rows, int64_t width,
                           int64_t i, vreal *mean, vreal *squares)
{
    const vreal near = vload_full(p->near, i, RG_REAL);
    *mean = join_means(p, s, rows, width, i, near);
    *squares = vset(0);
    for (int64_t chain = 0; chain < least(s->chains, rows); chain++) {
        const int64_t c = chain * width + i;
        const vreal n = vset(chain_rows(s, rows, chain));
        const vreal sum = vload_full(p->all, c, RG_REAL), rest = sum / n;
        const vreal around = vfma(-sum, rest, vload_full(p->all_squares, c, RG_REAL));
        const vreal away = ((vload_full(p->near, c, RG_REAL) - near) + rest) - *mean;
        *squares += vselect(around < 0, vset(0), around) + away * away * n;
    }
}

/* ---- sums of the gradient, y, dx ---- */

/* What belongs to each column. */
typedef struct norm_columns {
    real mean[CHANNEL_BUFFER];
    real scale[CHANNEL_BUFFER], shift[CHANNEL_BUFFER];   /* z = t scale + shift */
    real weight[CHANNEL_BUFFER], offset[CHANNEL_BUFFER]; /* dx = t weight + (g scale - offset) */
    real plus[CHANNEL_BUFFER];                           /* added to dx where `extra` */
    real sum[CHANNEL_BUFFER], product[CHANNEL_BUFFER];   /* of g, and of g t */
    real all[CHANNEL_BUFFER], all_products[CHANNEL_BUFFER];
    neuron_constants neuron;
    int32_t kind;
    vint leaks; /* where relu is not flat: 0, its slope, times infinity is NaN */
    bool given, extra, add;
} norm_columns;

RG_INLINE void set_neuron(norm_columns *k, const rg_norm_neuron *neuron)
{
    k->neuron = neuron_constants_of(&neuron->numbers);
    k->kind = neuron->kind;
    k->leaks = (vint){ 0 } - (intr)(k->neuron.a != 0);
    k->given = k->extra = k->add = false;
}

/* scale and shift, from gamma, beta, mean (its rest in `shift`), and s (in `scale`). */
RG_OUTLINE void finish_columns(norm_columns *k, const void *gamma, const void *beta,
                               const rg_norm_parameters *p, int64_t first, int64_t width)
{
    real gammas[CHANNEL_BUFFER], betas[CHANNEL_BUFFER];
    load_parameter(gammas, gamma, p->gamma_step, p->has_gamma, 1, p->dtype, first, width);
    load_parameter(betas, beta, p->beta_step, p->has_beta, 0, p->dtype, first, width);
    for (int64_t i = 0; i < width; i += VLEN) {
        const vreal rest = vload_full(k->shift, i, RG_REAL);
        const vreal scale = vload_full(gammas, i, RG_REAL) * vload_full(k->scale, i, RG_REAL);
        const vreal shift = vfma(-rest, scale, vload_full(betas, i, RG_REAL));
        vstore_full(k->scale, i, RG_REAL, scale);
        vstore_full(k->shift, i, RG_REAL, shift);
    }
}

/* The other chains have the same channels; behind the last one a vector stays whole. */
RG_INLINE void repeat_chains(real *values, int64_t width, int64_t chains)
{
    for (int64_t chain = 1; chain < chains; chain++)
        memcpy(values + chain * width, values, (size_t)width * sizeof(real));
    memset(values + chains * width, 0, CHANNEL_PAIR * sizeof(real));
}

/* Numbers of the channels of a block, for all of its columns. */
RG_INLINE void spread(real *values, const rg_channels *s, int64_t width, rg_dtype T)
{
    repeat_chains(values, width, s->chains);
    order_columns(values, s->chains * width, T, any_order_of(s, width), false);
}

RG_INLINE void spread_columns(norm_columns *k, const rg_channels *s, int64_t width, rg_dtype T)
{
    spread(k->mean, s, width, T);
    spread(k->scale, s, width, T);
    spread(k->shift, s, width, T);
}

RG_INLINE void spread_factors(norm_columns *k, const rg_channels *s, int64_t width, rg_dtype T)
{
    spread(k->weight, s, width, T);
    spread(k->offset, s, width, T);
    spread(k->plus, s, width, T);
}

/* Those of VLEN columns. */
typedef struct norm_numbers {
    vreal mean, scale, shift, weight, offset, plus;
} norm_numbers;

RG_INLINE norm_numbers numbers_at(const norm_columns *k, int64_t c)
{
    return (norm_numbers){ vload_full(k->mean, c, RG_REAL),   vload_full(k->scale, c, RG_REAL),
                           vload_full(k->shift, c, RG_REAL),  vload_full(k->weight, c, RG_REAL),
                           vload_full(k->offset, c, RG_REAL), vload_full(k->plus, c, RG_REAL) };
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

/* relu, flat or not, without a branch. */
RG_INLINE vreal relu_of(const norm_columns *k, vreal z)
{
    return vselect(z <= 0, (vreal)((vint)(z * vset(k->neuron.a)) & k->leaks), z);
}

RG_INLINE vreal relu_slope_of(const norm_columns *k, vreal dy, vreal z)
{
    return vselect(z > 0, dy, (vreal)((vint)(dy * vset(k->neuron.a)) & k->leaks));
}

RG_INLINE vreal y_of(const norm_columns *k, const norm_numbers *m, vreal x, const int variant)
{
    const vreal z = vfma(x - m->mean, m->scale, m->shift);
    return variant == NORM_PLAIN  ? z
           : variant == NORM_RELU ? relu_of(k, z)
                                  : any_neuron(k->kind, &k->neuron, z);
}

RG_INLINE void forward_step(norm_columns *k, const channel_run *r, const int rows, int64_t i,
                            const int n, const rg_dtype T, const bool whole, bool stream,
                            const int variant)
{
    const norm_numbers a = numbers_at(k, r->column + i), b = numbers_at(k, r->column + i + VLEN);
    for (int j = 0; j < rows; j++) {
        const vpair x = load_channels(&r[j], 0, i, n, T, whole);
        const vpair y = { y_of(k, &a, x.a, variant), y_of(k, &b, x.b, variant) };
        store_channels(&r[j], i, n, T, false, whole, stream, y);
    }
}
RG_CHANNEL_LOOPS(forward, norm_columns, 2, true, 2)

/* g from dy and x. */
RG_INLINE vreal through_neuron(const norm_columns *k, const norm_numbers *m, vreal dy, vreal x,
                               const int variant)
{
    if (variant == NORM_PLAIN || k->kind == RG_NEURON_NONE)
        return dy;
    const vreal z = vfma(x - m->mean, m->scale, m->shift);
    return variant == NORM_RELU ? relu_slope_of(k, dy, z)
                                : any_neuron_slope(k->kind, &k->neuron, dy, z);
}

RG_INLINE void sums_step(norm_columns *k, const channel_run *r, const int rows, int64_t i,
                         const int n, const rg_dtype T, const bool whole, bool stream,
                         const int variant)
{
    (void)stream;
    const int64_t c = r->column + i;
    const norm_numbers a = numbers_at(k, c), b = numbers_at(k, c + VLEN);
    vpair sum = vload_pair(k->sum, c, RG_REAL, false);
    vpair product = vload_pair(k->product, c, RG_REAL, false);
#pragma GCC unroll 2
    for (int j = 0; j < rows; j++) {
        const vpair dy = load_channels(&r[j], 0, i, n, T, whole);
        const vpair x = load_channels(&r[j], 1, i, n, T, whole);
        const vpair t = { x.a - a.mean, x.b - b.mean };
        const vpair g = keep_some((vpair){ through_neuron(k, &a, dy.a, x.a, variant),
                                           through_neuron(k, &b, dy.b, x.b, variant) },
                                  n, T, r[j].any_order);
        add_products(&sum, &product, g, keep_some(t, n, T, r[j].any_order));
    }
    vstore_pair(k->sum, c, RG_REAL, sum, false, false);
    vstore_pair(k->product, c, RG_REAL, product, false, false);
}
RG_CHANNEL_LOOPS(sums, norm_columns, 2, false, 2)

RG_INLINE vreal dx_of(const norm_columns *k, const norm_numbers *m, vreal dy, vreal x,
                      const int variant)
{
    const vreal h = through_neuron(k, m, dy, x, variant) * m->scale;
    if (variant == NORM_OTHER && k->given)
        return h;
    /* not fused: one element leaves 0 */
    const vreal dx = vfma(x - m->mean, m->weight, h - m->offset);
    return variant == NORM_OTHER && k->extra ? dx + m->plus : dx;
}

RG_INLINE void gradient_step(norm_columns *k, const channel_run *r, const int rows, int64_t i,
                             const int n, const rg_dtype T, const bool whole, bool stream,
                             const int variant)
{
    const norm_numbers a = numbers_at(k, r->column + i), b = numbers_at(k, r->column + i + VLEN);
    for (int j = 0; j < rows; j++) {
        const vpair dy = load_channels(&r[j], 0, i, n, T, whole);
        const vpair x = load_channels(&r[j], 1, i, n, T, whole);
        const vpair dx = { dx_of(k, &a, dy.a, x.a, variant), dx_of(k, &b, dy.b, x.b, variant) };
        store_channels(&r[j], i, n, T, k->add, whole, stream, dx);
    }
}
RG_CHANNEL_LOOPS(gradient, norm_columns, 3, true, 2)

/* Sums of the columns over rows begin to end - 1. */
RG_OUTLINE void sum_gradient(norm_columns *k, const rg_channels *s, const void *dy, const void *x,
                             int64_t begin, int64_t end, int64_t first, int64_t width, rg_dtype T)
{
    const int64_t all = s->chains * width, piece = CHANNEL_PIECE * s->chains;
    const size_t bytes = (size_t)(all + CHANNEL_PAIR) * sizeof(real);
    const bool any_order = any_order_of(s, width);
    memset(k->sum, 0, bytes);
    memset(k->product, 0, bytes);
    memset(k->all, 0, bytes);
    memset(k->all_products, 0, bytes);
    const void *const data[] = { dy, x };
    for (int64_t row = begin; row < end; row += piece) {
        sums_rows(k, s, data, row, least(end, row + piece), first, width, T, false, variant_of(k));
        end_piece(k->all, k->sum, all);
        end_piece(k->all_products, k->product, all);
    }
    order_columns(k->all, all, T, any_order, true);
    order_columns(k->all_products, all, T, any_order, true);
}

/* The sum of a channel over its chains. */
RG_INLINE double sum_chains(const real *values, int64_t c, int64_t width, int64_t chains)
{
    double sum = (double)values[c];
    for (int64_t chain = 1; chain < chains; chain++)
        sum += (double)values[chain * width + c];
    return sum;
}

#endif
