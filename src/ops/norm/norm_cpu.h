/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalisation on the CPU: numbers for each column of a unit, and what is done with a vector. */
#ifndef RG_OPS_NORM_CPU_H
#define RG_OPS_NORM_CPU_H

#include "ops/fused_neuron/any_neuron_cpu.h"
#include "ops/norm/channel_rows_cpu.h"
#include "ops/norm/norm.h"

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
    return p->has_gamma ? rg_element_get(gamma, p->dtype, c * p->gamma_step) : 1;
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

/* Sums of x - pivot and of its squares, for each column. */
typedef struct norm_parts {
    real pivot[CHANNEL_BUFFER], sum[CHANNEL_BUFFER], squares[CHANNEL_BUFFER];
    real all[CHANNEL_BUFFER], all_squares[CHANNEL_BUFFER]; /* of the pieces before */
} norm_parts;

/* Rows that belong to a chain. */
RG_INLINE real chain_rows(const rg_channels *s, int64_t rows, int64_t chain)
{
    return (real)((rows + s->chains - 1 - chain) / s->chains);
}

/* The mean less `pivot` of VLEN channels from i on, over all chains. There may be hundreds of them,
 * so the sum keeps what rounding takes from it. */
RG_INLINE vreal join_means(const norm_parts *p, const channel_block *b, int64_t i, vreal pivot)
{
    const rg_channels *s = b->s;
    const int64_t rows = b->end - b->begin;
    vreal total = vset(0), lost = vset(0);
    for (int64_t chain = 0; chain < least(s->chains, rows); chain++) {
        const int64_t c = chain * b->width + i;
        const vreal term = vfma(vload_full(p->pivot, c, RG_REAL) - pivot,
                                vset(chain_rows(s, rows, chain)), vload_full(p->all, c, RG_REAL));
        const vreal next = total + term, back = next - total;
        lost += (total - (next - back)) + (term - back);
        total = next;
    }
    return vselect(lost == lost, total + lost, total) / vset((real)(rows > 0 ? rows : 1));
}

/* What sum_parts has found, all chains together: for VLEN channels from i on, the mean less
 * p->pivot, and the sum of squares around it. */
RG_INLINE void join_chains(const norm_parts *p, const channel_block *b, int64_t i, vreal *mean,
                           vreal *squares)
{
    const rg_channels *s = b->s;
    const int64_t rows = b->end - b->begin;
    const vreal pivot = vload_full(p->pivot, i, RG_REAL);
    *mean = join_means(p, b, i, pivot);
    *squares = vset(0);
    for (int64_t chain = 0; chain < least(s->chains, rows); chain++) {
        const int64_t c = chain * b->width + i;
        const vreal n = vset(chain_rows(s, rows, chain));
        const vreal sum = vload_full(p->all, c, RG_REAL), rest = sum / n;
        const vreal around = vfma(-sum, rest, vload_full(p->all_squares, c, RG_REAL));
        const vreal away = ((vload_full(p->pivot, c, RG_REAL) - pivot) + rest) - *mean;
        *squares += vselect(around < 0, vset(0), around) + away * away * n;
    }
}

RG_INLINE vreal middle_of(vreal a, vreal b, vreal c)
{
    return vmax(vmin(a, b), vmin(vmax(a, b), c));
}

/* The shift of the shifted-data variance, for VLEN columns from i on: the median of the first three
 * elements of each. Equal elements leave nothing to sum. */
RG_INLINE void choose_pivots(norm_parts *p, const channel_block *b, const void *x, int64_t i)
{
    const rg_channels *s = b->s;
    const rg_dtype T = b->dtype;
    const void *const data[] = { x };
    const int n = vlanes_left(b->width - i);
    for (int64_t chain = 0; chain < least(s->chains, b->end - b->begin); chain++) {
        vreal each[3];
        for (int k = 0; k < 3; k++) {
            const int64_t first = b->begin + chain, row = first + k * s->chains;
            const channel_run r =
                run_at(s, data, 1, false, row < b->end ? row : first, b->first + i, T);
            each[k] = load_groups(r.in[0], s->step[0], n, T, s->dense);
        }
        vstore(p->pivot, chain * b->width + i, n, RG_REAL, middle_of(each[0], each[1], each[2]));
    }
}

/* Sums of all columns begin at 0, without a pivot. */
RG_INLINE void start_parts(norm_parts *p, const channel_block *b)
{
    const size_t bytes = (size_t)(b->s->chains * b->width + CHANNEL_PAIR) * sizeof(real);
    memset(p->pivot, 0, bytes);
    memset(p->sum, 0, bytes);
    memset(p->squares, 0, bytes);
    memset(p->all, 0, bytes);
    memset(p->all_squares, 0, bytes);
}

/* ---- numbers of columns ---- */

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

/* Numbers of the channels of a block, for all of its columns: the other chains have the same
 * channels, and after the last one a vector stays whole. */
RG_OUTLINE void spread(real *values, const channel_block *b)
{
    const int64_t width = b->width, chains = b->s->chains;
    for (int64_t chain = 1; chain < chains; chain++)
        memcpy(values + chain * width, values, (size_t)width * sizeof(real));
    memset(values + chains * width, 0, CHANNEL_PAIR * sizeof(real));
    order_columns(values, b, false);
}

/* scale and shift, from gamma, beta, mean (its rest in `shift`), and s (in `scale`). */
RG_OUTLINE void finish_columns(norm_columns *k, const void *gamma, const void *beta,
                               const rg_norm_parameters *p, const channel_block *b)
{
    real gammas[CHANNEL_BUFFER], betas[CHANNEL_BUFFER];
    load_parameter(gammas, gamma, p->gamma_step, p->has_gamma, 1, p->dtype, b->first, b->width);
    load_parameter(betas, beta, p->beta_step, p->has_beta, 0, p->dtype, b->first, b->width);
    for (int64_t i = 0; i < b->width; i += VLEN) {
        const vreal rest = vload_full(k->shift, i, RG_REAL);
        const vreal scale = vload_full(gammas, i, RG_REAL) * vload_full(k->scale, i, RG_REAL);
        const vreal shift = vfma(-rest, scale, vload_full(betas, i, RG_REAL));
        vstore_full(k->scale, i, RG_REAL, scale);
        vstore_full(k->shift, i, RG_REAL, shift);
    }
    spread(k->mean, b);
    spread(k->scale, b);
    spread(k->shift, b);
}

/* The common cases have loops of their own; in the others each vector tests what is to be done. */
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

/* z through the neuron, and dy times its slope at z. */
RG_INLINE vreal norm_neuron(const norm_columns *k, vreal z, const int variant)
{
    return variant == NORM_PLAIN  ? z
           : variant == NORM_RELU ? relu_of(k, z)
                                  : any_neuron(k->kind, &k->neuron, z);
}

RG_INLINE vreal norm_neuron_slope(const norm_columns *k, vreal dy, vreal z, const int variant)
{
    return variant == NORM_RELU ? relu_slope_of(k, dy, z)
                                : any_neuron_slope(k->kind, &k->neuron, dy, z);
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

RG_INLINE vreal y_of(const norm_columns *k, const norm_numbers *m, vreal x, const int variant)
{
    return norm_neuron(k, vfma(x - m->mean, m->scale, m->shift), variant);
}

/* g from dy and x. */
RG_INLINE vreal through_neuron(const norm_columns *k, const norm_numbers *m, vreal dy, vreal x,
                               const int variant)
{
    if (variant == NORM_PLAIN || k->kind == RG_NEURON_NONE)
        return dy;
    return norm_neuron_slope(k, dy, vfma(x - m->mean, m->scale, m->shift), variant);
}

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

/* Sums of all columns begin at 0. */
RG_INLINE void start_sums(norm_columns *k, const channel_block *b)
{
    const size_t bytes = (size_t)(b->s->chains * b->width + CHANNEL_PAIR) * sizeof(real);
    memset(k->sum, 0, bytes);
    memset(k->product, 0, bytes);
    memset(k->all, 0, bytes);
    memset(k->all_products, 0, bytes);
}

/* The sum of a channel over its chains. */
RG_INLINE double sum_chains(const real *values, int64_t c, int64_t width, int64_t chains)
{
    double sum = (double)values[c];
    for (int64_t chain = 1; chain < chains; chain++)
        sum += (double)values[chain * width + c];
    return sum;
}

/* ---- loops ---- */

/* norm_rows_cpu.c, and norm_planes_cpu.c where neighbours are along the rows: statistics of the
 * columns of x; y from { x, y }; sums of the gradient from { dy, x }; dx from { dy, x, dx }. Over
 * the rows of a block, in the same order. */
typedef struct rg_norm_loops {
    void (*sum_parts)(norm_parts *p, const channel_block *b, const void *x);
    void (*forward)(norm_columns *k, const channel_block *b, const void *const data[]);
    void (*sum_gradient)(norm_columns *k, const channel_block *b, const void *const data[]);
    void (*gradient)(norm_columns *k, const channel_block *b, const void *const data[]);
} rg_norm_loops;
extern const rg_norm_loops RG_TABLE(norm_rows), RG_TABLE(norm_planes);

RG_INLINE const rg_norm_loops *norm_loops(const rg_channels *s)
{
    return s->planes ? &RG_TABLE(norm_planes) : &RG_TABLE(norm_rows);
}

#endif
