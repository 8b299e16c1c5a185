/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons on the CPU: the loops around neuron_formulas.h, and prelu, whose slopes differ from
 * channel to channel. */
#include "backend/cpu/columns.h"
#include "ops/neuron/neuron_formulas.h"

/* ---- formulas that are called ---- */

/* Long ones of kinds that are met less often are called, for a few cycles a vector: compilers
 * inline only so much in one file, and the others are to have it. */
#define CALLED(name)                                                \
    RG_OUTLINE vreal called_##name(const void *k, vreal a, vreal b) \
    {                                                               \
        return neuron_##name(k, a, b);                              \
    }

CALLED(softplus)
CALLED(softplus_slope)
CALLED(softplus_slope_y)
CALLED(power)
CALLED(power_slope)
CALLED(exponential)
CALLED(exponential_slope)
CALLED(logarithm)
CALLED(logarithm_slope)
CALLED(gelu_tanh)
CALLED(gelu_tanh_slope)
CALLED(swish)
CALLED(swish_slope)

/* ---- forward: y from x ---- */

RG_OUTLINE void forward(rg_sweep_pairs *pairs, const rg_neuron_args *k, int64_t begin, int64_t end,
                        rg_dtype T)
{
    const neuron_constants c = neuron_constants_of(&k->numbers);
    const void *const data[] = { k->x, k->y };
    sweep_units(pairs, &c, &k->sweep, data, 2, begin, end, T, false, k->stream);
}

/* One formula is for results of 16 bits, the other for those of more. Constants are copied: what is
 * stored could be theirs otherwise, as far as a compiler knows. */
#define FORWARD(kind, formula, formula_short)                                           \
    static void kind##_pairs(const void *k, const char *x, const char *unused, char *y, \
                             int64_t count, rg_dtype T, bool add, bool stream)          \
    {                                                                                   \
        (void)unused;                                                                   \
        (void)add;                                                                      \
        const neuron_constants c = *(const neuron_constants *)k;                        \
        sweep_pairs(formula, formula_short, &c, x, x, y, count, T, false, stream);      \
    }                                                                                   \
    RG_INLINE void kind##_forward(const rg_neuron_args *k, int64_t begin, int64_t end,  \
                                  const rg_dtype T)                                     \
    {                                                                                   \
        forward(kind##_pairs, k, begin, end, T);                                        \
    }                                                                                   \
    RG_KERNEL(kind##_forward, rg_neuron_args)

FORWARD(relu, neuron_relu, neuron_relu)
FORWARD(linear, neuron_linear, neuron_linear)
FORWARD(sigmoid, neuron_sigmoid, neuron_sigmoid_short)
FORWARD(hard_sigmoid, neuron_hard_sigmoid, neuron_hard_sigmoid)
FORWARD(tanh, neuron_tanh, neuron_tanh_short)
FORWARD(absolute, neuron_absolute, neuron_absolute)
FORWARD(softplus, called_softplus, called_softplus)
FORWARD(softsign, neuron_softsign, neuron_softsign)
FORWARD(elu, neuron_elu, neuron_elu_short)
FORWARD(relun, neuron_relun, neuron_relun)
FORWARD(power, called_power, called_power)
FORWARD(exponential, called_exponential, called_exponential)
FORWARD(logarithm, called_logarithm, called_logarithm)
FORWARD(gelu, neuron_gelu, neuron_gelu_short)
FORWARD(gelu_tanh, called_gelu_tanh, called_gelu_tanh)
FORWARD(swish, called_swish, called_swish)

/* ---- gradient: dx from dy and x, or from dy and y ---- */

RG_OUTLINE void gradient(rg_sweep_pairs *pairs, const rg_neuron_gradient_args *k, int64_t begin,
                         int64_t end, rg_dtype T)
{
    const neuron_constants c = neuron_constants_of(&k->numbers);
    const void *const data[] = { k->dy, k->from, k->dx };
    sweep_units(pairs, &c, &k->sweep, data, 3, begin, end, T, k->add, k->stream);
}

#define GRADIENT(kind, suffix, formula, formula_short)                                        \
    static void kind##_slope##suffix##_pairs(const void *k, const char *dy, const char *from, \
                                             char *dx, int64_t count, rg_dtype T, bool add,   \
                                             bool stream)                                     \
    {                                                                                         \
        const neuron_constants c = *(const neuron_constants *)k;                              \
        sweep_pairs(formula, formula_short, &c, dy, from, dx, count, T, add, stream);         \
    }                                                                                         \
    RG_INLINE void kind##_gradient##suffix(const rg_neuron_gradient_args *k, int64_t begin,   \
                                           int64_t end, const rg_dtype T)                     \
    {                                                                                         \
        gradient(kind##_slope##suffix##_pairs, k, begin, end, T);                             \
    }                                                                                         \
    RG_KERNEL(kind##_gradient##suffix, rg_neuron_gradient_args)

GRADIENT(relu, , neuron_relu_slope, neuron_relu_slope)
GRADIENT(linear, , neuron_linear_slope, neuron_linear_slope)
GRADIENT(sigmoid, , neuron_sigmoid_slope, neuron_sigmoid_slope_short)
GRADIENT(hard_sigmoid, , neuron_hard_sigmoid_slope, neuron_hard_sigmoid_slope)
GRADIENT(tanh, , neuron_tanh_slope, neuron_tanh_slope_short)
GRADIENT(absolute, , neuron_absolute_slope, neuron_absolute_slope)
GRADIENT(softplus, , called_softplus_slope, called_softplus_slope)
GRADIENT(softsign, , neuron_softsign_slope, neuron_softsign_slope)
GRADIENT(elu, , neuron_elu_slope, neuron_elu_slope_short)
GRADIENT(relun, , neuron_relun_slope, neuron_relun_slope)
GRADIENT(power, , called_power_slope, called_power_slope)
GRADIENT(exponential, , called_exponential_slope, called_exponential_slope)
GRADIENT(logarithm, , called_logarithm_slope, called_logarithm_slope)
GRADIENT(gelu, , neuron_gelu_slope, neuron_gelu_slope_short)
GRADIENT(gelu_tanh, , called_gelu_tanh_slope, called_gelu_tanh_slope)
GRADIENT(swish, , called_swish_slope, called_swish_slope)
GRADIENT(sigmoid, _y, neuron_sigmoid_slope_y, neuron_sigmoid_slope_y)
GRADIENT(tanh, _y, neuron_tanh_slope_y, neuron_tanh_slope_y)
GRADIENT(softplus, _y, called_softplus_slope_y, called_softplus_slope_y)
GRADIENT(softsign, _y, neuron_softsign_slope_y, neuron_softsign_slope_y)
GRADIENT(elu, _y, neuron_elu_slope_y, neuron_elu_slope_y)
GRADIENT(exponential, _y, neuron_exponential_slope_y, neuron_exponential_slope_y)

/* ---- prelu ---- */

/* Rows that are summed up before they are added to what rows before them gave. */
enum { PRELU_PIECE = 32 };

/* One row, or several that follow each other: where its tensors are, and what belongs to each
 * channel. */
typedef struct prelu_run {
    const char *in[2];
    char *out;
    int64_t in_step[2], out_step; /* between channels */
    const real *slope;
    real *sum;
    bool dense, add, stream, wants_out, wants_sum;
} prelu_run;

RG_INLINE vreal load_channels(const prelu_run *r, int t, int64_t i, const int n, const rg_dtype T)
{
    return load_groups(at(r->in[t], i * r->in_step[t], T), r->in_step[t], n, T, r->dense);
}

RG_INLINE void prelu_forward_step(const prelu_run *r, int64_t i, const int n, const rg_dtype T,
                                  const bool stream)
{
    const vreal y = neuron_prelu(load_channels(r, 0, i, n, T), vload_full(r->slope, i, RG_REAL));
    if (stream)
        vstream(r->out, i, T, y);
    else
        store_groups(at_out(r->out, i * r->out_step, T), r->out_step, n, T, r->dense, y);
}

/* Lanes behind n are 0 and add nothing. */
RG_INLINE void prelu_gradient_step(const prelu_run *r, int64_t i, const int n, const rg_dtype T,
                                   const bool stream)
{
    const vreal dy = load_channels(r, 0, i, n, T), x = load_channels(r, 1, i, n, T);
    if (r->wants_out) {
        vreal dx = neuron_prelu_slope(dy, x, vload_full(r->slope, i, RG_REAL));
        char *to = at_out(r->out, i * r->out_step, T);
        if (r->add)
            dx += load_groups(to, r->out_step, n, T, r->dense);
        if (stream)
            vstream(r->out, i, T, dx);
        else
            store_groups(to, r->out_step, n, T, r->dense, dx);
    }
    if (r->wants_sum)
        vstore_full(r->sum, i, RG_REAL, vload_full(r->sum, i, RG_REAL) + neuron_prelu_share(dy, x));
}

RG_INLINE void prelu_step(const prelu_run *r, int64_t i, const int n, const rg_dtype T,
                          const bool stream, const bool gradient)
{
    if (gradient)
        prelu_gradient_step(r, i, n, T, stream);
    else
        prelu_forward_step(r, i, n, T, stream);
}

RG_INLINE void prelu_steps(const prelu_run *r, int64_t count, const rg_dtype T, const bool gradient)
{
    int64_t i = 0;
    if (r->stream) {
        const int64_t head = least(vhead(r->out, T), count);
        for (; i < head; i += VLEN)
            prelu_step(r, i, vlanes_left(head - i), T, false, gradient);
        for (i = head; i + VLEN <= count; i += VLEN)
            prelu_step(r, i, VLEN, T, true, gradient);
    }
    for (; i + VLEN <= count; i += VLEN)
        prelu_step(r, i, VLEN, T, false, gradient);
    if (i < count)
        prelu_step(r, i, (int)(count - i), T, false, gradient);
}

/* The slopes of the block's channels, once for every lane. */
RG_OUTLINE void prelu_slopes(const rg_prelu_shape *s, const void *slope, int64_t first,
                             int64_t width, rg_dtype T, real *to)
{
    for (int64_t lane = 0; lane < s->lanes; lane++)
        for (int64_t c = 0; c < width; c++)
            to[lane * width + c] = load_one(slope, (first + c) * s->slope_step, T);
}

/* total += sum, sum = 0 */
RG_OUTLINE void prelu_end_piece(real *total, real *sum, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        total[i] += sum[i];
        sum[i] = 0;
    }
}

/* All rows of a part, `lanes` at a time; what is left of each lane's sums is in `total`. */
RG_INLINE void prelu_rows(const rg_prelu_shape *s, prelu_run r, const void *const data[],
                          int64_t part, int64_t first, int64_t width, real *total, const rg_dtype T,
                          const bool gradient)
{
    const int tensors = gradient ? 3 : 2;
    const real *slope = r.slope;
    real *sum = r.sum;
    const int64_t end = least(s->rows.count, (part + 1) * s->part);
    int64_t groups = 0;
    for (int64_t row = part * s->part, rows; row < end; row += rows) {
        const int64_t all = least(s->lanes, end - row), taken = s->joined ? all : 1;
        rows = all;
        for (int64_t lane = 0; lane < all; lane += taken) {
            int64_t offset[RG_WALK_TENSORS];
            rg_walk_offsets(&s->rows, tensors, row + lane, offset);
            for (int t = 0; t < tensors - 1; t++)
                r.in[t] = at(data[t], offset[t] + first * s->step[t], T);
            const int last = tensors - 1;
            r.out = at_out((void *)(uintptr_t)data[last], offset[last] + first * s->step[last], T);
            r.slope = slope + lane * width;
            r.sum = gradient ? sum + lane * width : NULL;
            prelu_steps(&r, taken * width, T, gradient);
        }
        if (r.wants_sum && (++groups % PRELU_PIECE == 0 || row + rows >= end))
            prelu_end_piece(total, sum, s->lanes * width);
    }
}

/* Lanes are joined one after the other. */
RG_OUTLINE void prelu_end_part(const rg_prelu_shape *s, const real *total, int64_t width, real *to)
{
    for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        for (int64_t lane = 0; lane < s->lanes; lane++)
            sum += (double)total[lane * width + c];
        to[c] = (real)sum;
    }
}

RG_INLINE void prelu_forward(const rg_prelu_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_prelu_shape *s = &k->shape;
    real slope[RG_BLOCK_GROUPS + VLEN]; /* a vector from any channel on is whole */
    memset(slope, 0, sizeof slope);
    prelu_run r = { .in_step = { s->step[0] },
                    .out_step = s->step[1],
                    .slope = slope,
                    .dense = s->dense,
                    .stream = s->stream };
    const void *const data[] = { k->x, k->y };
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % s->blocks * s->block;
        const int64_t width = least(s->block, s->channels - first);
        prelu_slopes(s, k->slope, first, width, T, slope);
        prelu_rows(s, r, data, unit / s->blocks, first, width, NULL, T, false);
    }
}

RG_INLINE void prelu_gradient(const rg_prelu_gradient_args *k, int64_t begin, int64_t end,
                              const rg_dtype T)
{
    const rg_prelu_shape *s = &k->shape;
    real slope[RG_BLOCK_GROUPS + VLEN], sum[RG_BLOCK_GROUPS + VLEN], total[RG_BLOCK_GROUPS];
    memset(slope, 0, sizeof slope);
    memset(sum, 0, sizeof sum);
    prelu_run r = { .in_step = { s->step[0], s->step[1] },
                    .out_step = s->step[2],
                    .slope = slope,
                    .sum = sum,
                    .dense = s->dense,
                    .add = k->add,
                    .stream = s->stream,
                    .wants_out = k->wants_dx,
                    .wants_sum = k->wants_sums };
    const void *const data[] = { k->dy, k->x, k->dx };
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t part = unit / s->blocks, first = unit % s->blocks * s->block;
        const int64_t width = least(s->block, s->channels - first);
        memset(total, 0, sizeof total);
        prelu_slopes(s, k->slope, first, width, T, slope);
        prelu_rows(s, r, data, part, first, width, total, T, true);
        if (k->wants_sums)
            prelu_end_part(s, total, width, (real *)k->sums + part * s->channels + first);
    }
}

/* dslope from the sums of all parts, one part after the other. */
RG_INLINE void prelu_join(const rg_prelu_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * RG_PRELU_JOIN_UNIT;
        const int64_t width = least(RG_PRELU_JOIN_UNIT, k->channels - first);
        double sum[RG_PRELU_JOIN_UNIT];
        sum_of_pieces(sum, (const real *)k->sums + first, k->channels, k->parts, width);
        for (int64_t c = 0; c < width; c++) {
            const int64_t to = (first + c) * k->step;
            const real value = (real)sum[c];
            store_one(k->dslope, to, T, k->add ? load_one(k->dslope, to, T) + value : value);
        }
    }
}

RG_KERNEL(prelu_forward, rg_prelu_args)
RG_KERNEL(prelu_gradient, rg_prelu_gradient_args)
RG_KERNEL(prelu_join, rg_prelu_join_args)

/* ---- table ---- */

RG_CPU_TABLE(neuron, RG_NEURON_KERNELS) = {
    [RG_NEURON_FORWARD + RG_NEURON_NONE] = RG_ROW(relu_forward), /* a = 1 */
    [RG_NEURON_FORWARD + RG_NEURON_RELU] = RG_ROW(relu_forward),
    [RG_NEURON_FORWARD + RG_NEURON_LINEAR] = RG_ROW(linear_forward),
    [RG_NEURON_FORWARD + RG_NEURON_SIGMOID] = RG_ROW(sigmoid_forward),
    [RG_NEURON_FORWARD + RG_NEURON_HARD_SIGMOID] = RG_ROW(hard_sigmoid_forward),
    [RG_NEURON_FORWARD + RG_NEURON_TANH] = RG_ROW(tanh_forward),
    [RG_NEURON_FORWARD + RG_NEURON_ABSOLUTE] = RG_ROW(absolute_forward),
    [RG_NEURON_FORWARD + RG_NEURON_SOFTPLUS] = RG_ROW(softplus_forward),
    [RG_NEURON_FORWARD + RG_NEURON_SOFTSIGN] = RG_ROW(softsign_forward),
    [RG_NEURON_FORWARD + RG_NEURON_ELU] = RG_ROW(elu_forward),
    [RG_NEURON_FORWARD + RG_NEURON_PRELU] = RG_ROW(prelu_forward),
    [RG_NEURON_FORWARD + RG_NEURON_RELUN] = RG_ROW(relun_forward),
    [RG_NEURON_FORWARD + RG_NEURON_POWER] = RG_ROW(power_forward),
    [RG_NEURON_FORWARD + RG_NEURON_EXPONENTIAL] = RG_ROW(exponential_forward),
    [RG_NEURON_FORWARD + RG_NEURON_LOGARITHM] = RG_ROW(logarithm_forward),
    [RG_NEURON_FORWARD + RG_NEURON_GELU] = RG_ROW(gelu_forward),
    [RG_NEURON_FORWARD + RG_NEURON_GELU_TANH] = RG_ROW(gelu_tanh_forward),
    [RG_NEURON_FORWARD + RG_NEURON_SWISH] = RG_ROW(swish_forward),

    [RG_NEURON_GRADIENT + RG_NEURON_NONE] = RG_ROW(linear_gradient), /* a = 1 */
    [RG_NEURON_GRADIENT + RG_NEURON_RELU] = RG_ROW(relu_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_LINEAR] = RG_ROW(linear_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_SIGMOID] = RG_ROW(sigmoid_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_HARD_SIGMOID] = RG_ROW(hard_sigmoid_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_TANH] = RG_ROW(tanh_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_ABSOLUTE] = RG_ROW(absolute_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_SOFTPLUS] = RG_ROW(softplus_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_SOFTSIGN] = RG_ROW(softsign_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_ELU] = RG_ROW(elu_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_PRELU] = RG_ROW(prelu_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_RELUN] = RG_ROW(relun_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_POWER] = RG_ROW(power_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_EXPONENTIAL] = RG_ROW(exponential_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_LOGARITHM] = RG_ROW(logarithm_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_GELU] = RG_ROW(gelu_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_GELU_TANH] = RG_ROW(gelu_tanh_gradient),
    [RG_NEURON_GRADIENT + RG_NEURON_SWISH] = RG_ROW(swish_gradient),

    [RG_NEURON_GRADIENT_Y + RG_NEURON_NONE] = RG_ROW(linear_gradient),
    [RG_NEURON_GRADIENT_Y + RG_NEURON_RELU] = RG_ROW(relu_gradient),
    [RG_NEURON_GRADIENT_Y + RG_NEURON_LINEAR] = RG_ROW(linear_gradient),
    [RG_NEURON_GRADIENT_Y + RG_NEURON_SIGMOID] = RG_ROW(sigmoid_gradient_y),
    [RG_NEURON_GRADIENT_Y + RG_NEURON_TANH] = RG_ROW(tanh_gradient_y),
    [RG_NEURON_GRADIENT_Y + RG_NEURON_SOFTPLUS] = RG_ROW(softplus_gradient_y),
    [RG_NEURON_GRADIENT_Y + RG_NEURON_SOFTSIGN] = RG_ROW(softsign_gradient_y),
    [RG_NEURON_GRADIENT_Y + RG_NEURON_ELU] = RG_ROW(elu_gradient_y),
    [RG_NEURON_GRADIENT_Y + RG_NEURON_RELUN] = RG_ROW(relun_gradient),
    [RG_NEURON_GRADIENT_Y + RG_NEURON_EXPONENTIAL] = RG_ROW(exponential_gradient_y),
    [RG_NEURON_PRELU_JOIN] = RG_ROW(prelu_join),
};
