/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons on the CPU: the loops around neuron_formulas.h, and prelu, whose slopes differ from
 * channel to channel. */
#include "backend/cpu/columns.h"
#include "ops/neuron/neuron_formulas.h"

/* ---- formulas as the loops call them ---- */

#define VALUE(head, kind, suffix, brief)                                  \
    head vreal kind##_value##suffix(const void *k, vreal x, vreal unused) \
    {                                                                     \
        (void)unused;                                                     \
        return neuron_##kind##_value(k, x, brief);                        \
    }
#define SLOPE(head, name, suffix, brief)                         \
    head vreal name##suffix(const void *k, vreal dy, vreal from) \
    {                                                            \
        return neuron_##name(k, dy, from, brief);                \
    }

#define DEFINE_INLINED(define, name) define(RG_FORMULA, name, , false)
#define DEFINE_CALLED(define, name)  define(RG_OUTLINE, name, , false)
#define DEFINE_BRIEF(define, name) \
    define(RG_FORMULA, name, , false) define(RG_FORMULA, name, _short, true)
#define SHORT_INLINED(name) name
#define SHORT_CALLED(name)  name
#define SHORT_BRIEF(name)   name##_short

/* The loop over a formula, and the kernel that gives it to `run`. Constants are copied: what is
 * stored could be theirs otherwise, as far as a compiler knows. */
#define KERNEL(name, how, args, run, second, adds)                                            \
    static void name##_pairs(const void *k, const sweep_data *d, int64_t count, rg_dtype T)   \
    {                                                                                         \
        const neuron_constants c = *(const neuron_constants *)k;                              \
        const sweep_data all = { d->a, d->second, d->out, adds, d->stream };                  \
        sweep_pairs(name, SHORT_##how(name), &c, all, count, T);                              \
    }                                                                                         \
    RG_INLINE void name##_kernel(const args *k, int64_t begin, int64_t end, const rg_dtype T) \
    {                                                                                         \
        run(name##_pairs, k, begin, end, T);                                                  \
    }                                                                                         \
    RG_KERNEL(name##_kernel, args)

/* ---- forward: y from x ---- */

RG_OUTLINE void forward(rg_sweep_pairs *pairs, const rg_neuron_args *k, int64_t begin, int64_t end,
                        rg_dtype T)
{
    const neuron_constants c = neuron_constants_of(&k->numbers);
    const sweep_data data = { .a = k->x, .out = k->y, .stream = k->stream };
    sweep_units(pairs, &c, &k->sweep, 2, &data, begin, end, T);
}

#define FORWARD(KIND, kind, how) \
    DEFINE_##how(VALUE, kind) KERNEL(kind##_value, how, rg_neuron_args, forward, a, false)
RG_NEURON_FORMULAS(FORWARD)

/* ---- gradient: dx from dy and x, or from dy and y ---- */

RG_OUTLINE void gradient(rg_sweep_pairs *pairs, const rg_neuron_gradient_args *k, int64_t begin,
                         int64_t end, rg_dtype T)
{
    const neuron_constants c = neuron_constants_of(&k->numbers);
    const sweep_data data = { k->dy, k->from, k->dx, k->add, k->stream };
    sweep_units(pairs, &c, &k->sweep, 3, &data, begin, end, T);
}

#define GRADIENT(KIND, kind, how)     \
    DEFINE_##how(SLOPE, kind##_slope) \
        KERNEL(kind##_slope, how, rg_neuron_gradient_args, gradient, b, d->add)
RG_NEURON_FORMULAS(GRADIENT)

#define GRADIENT_Y(KIND, kind, how)     \
    DEFINE_##how(SLOPE, kind##_slope_y) \
        KERNEL(kind##_slope_y, how, rg_neuron_gradient_args, gradient, b, d->add)
RG_NEURON_Y_FORMULAS(GRADIENT_Y)

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
    real *sum, *total;
    bool dense, add, stream, wants_out, wants_sum;
    bool any_order; /* slopes and sums are in the order of pairs (vpair_order), all of them whole */
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

/* Lanes after n are 0 and add nothing. */
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

/* Those of 2 VLEN neighbours, in the order in which pairs of T are loaded. */
RG_INLINE vpair prelu_numbers(const real *values, int64_t i, const rg_dtype T, const bool any_order)
{
    const vpair p = vload_pair(values, i, RG_REAL, false);
    return any_order ? p : vpair_order(p, T);
}

/* 2 VLEN neighbours, for storage types whose pairs load faster than vectors. */
RG_INLINE void prelu_pair(const prelu_run *r, int64_t i, const rg_dtype T, const bool stream,
                          const bool gradient, const bool any_order)
{
    const vpair a = vload_pair(r->in[0], i, T, true);
    const vpair slope = prelu_numbers(r->slope, i, T, any_order);
    if (!gradient) {
        vstore_sums(r->out, i, T, (vpair){ neuron_prelu(a.a, slope.a), neuron_prelu(a.b, slope.b) },
                    stream);
        return;
    }
    const vpair x = vload_pair(r->in[1], i, T, true);
    if (r->wants_out) {
        vpair dx = { neuron_prelu_slope(a.a, x.a, slope.a), neuron_prelu_slope(a.b, x.b, slope.b) };
        if (r->add) {
            const vpair old = vload_pair(r->out, i, T, true);
            dx = (vpair){ dx.a + old.a, dx.b + old.b };
        }
        vstore_sums(r->out, i, T, dx, stream);
    }
    if (r->wants_sum) {
        const vpair share = { neuron_prelu_share(a.a, x.a), neuron_prelu_share(a.b, x.b) };
        const vpair each = any_order ? share : velement_order(share, T);
        const vpair sum = vload_pair(r->sum, i, RG_REAL, false);
        vstore_pair(r->sum, i, RG_REAL, (vpair){ sum.a + each.a, sum.b + each.b }, false, false);
    }
}

/* Whole pairs, from any of them on. */
RG_INLINE void prelu_pairs(const prelu_run *r, int64_t count, const rg_dtype T, const bool gradient)
{
    for (int64_t i = 0; r->stream && i < count; i += 2 * VLEN)
        prelu_pair(r, i, T, true, gradient, true);
    for (int64_t i = 0; !r->stream && i < count; i += 2 * VLEN)
        prelu_pair(r, i, T, false, gradient, true);
}

RG_INLINE void prelu_steps(const prelu_run *r, int64_t count, const rg_dtype T, const bool gradient)
{
    int64_t i = 0;
    if (T == RG_BF16 && r->any_order) {
        prelu_pairs(r, count, T, gradient);
        return;
    }
    if (r->stream) {
        const int64_t head = least(vhead(r->out, T), count);
        for (; i < head; i += VLEN)
            prelu_step(r, i, vlanes_left(head - i), T, false, gradient);
        i = head;
        for (; T == RG_BF16 && i + 2 * VLEN <= count; i += 2 * VLEN)
            prelu_pair(r, i, T, true, gradient, false);
        for (; i + VLEN <= count; i += VLEN)
            prelu_step(r, i, VLEN, T, true, gradient);
    }
    for (; T == RG_BF16 && r->dense && i + 2 * VLEN <= count; i += 2 * VLEN)
        prelu_pair(r, i, T, false, gradient, false);
    for (; i + VLEN <= count; i += VLEN)
        prelu_step(r, i, VLEN, T, false, gradient);
    if (i < count)
        prelu_step(r, i, (int)(count - i), T, false, gradient);
}

/* Whether all runs of a block of `width` channels are whole pairs, and aligned where they are
 * streamed. `result`: the number of `out` among the tensors. */
RG_INLINE bool prelu_any_order(const rg_prelu_shape *s, const void *out, int64_t width, int result,
                               const rg_dtype T)
{
    bool aligned = (uintptr_t)out % RG_VECTOR_BYTES == 0;
    for (int32_t d = 0; d < s->rows.rank; d++)
        aligned &= s->rows.strides[result][d] % (2 * VLEN) == 0;
    return T == RG_BF16 && s->dense && width % (2 * VLEN) == 0 && (aligned || !s->stream);
}

/* Of so many columns, from the order of elements to that of pairs, or `back`. */
RG_OUTLINE void prelu_order(real *values, int64_t count, bool back)
{
    for (int64_t i = 0; i < count; i += 2 * VLEN) {
        const vpair p = vload_pair(values, i, RG_REAL, false);
        vstore_pair(values, i, RG_REAL, back ? velement_order(p, RG_BF16) : vpair_order(p, RG_BF16),
                    false, false);
    }
}

/* The slopes of the block's channels, once for every lane. */
RG_OUTLINE void prelu_slopes(const rg_prelu_shape *s, const void *slope, int64_t first,
                             int64_t width, rg_dtype T, real *to)
{
    for (int64_t c = 0; c < width; c++)
        to[c] = load_one(slope, (first + c) * s->slope_step, T);
    for (int64_t done = 1, more; done < s->rows_at_once; done += more) { /* as many again */
        more = least(done, s->rows_at_once - done);
        memcpy(to + done * width, to, (size_t)(more * width) * sizeof *to);
    }
}

/* total += sum, sum = 0, for whole vectors */
RG_OUTLINE void prelu_end_piece(real *total, real *sum, int64_t count)
{
    for (int64_t i = 0; i < count; i += VLEN) {
        const vreal all = vload_full(total, i, RG_REAL) + vload_full(sum, i, RG_REAL);
        vstore_full(total, i, RG_REAL, all);
        vstore_full(sum, i, RG_REAL, vset(0));
    }
}

/* All rows of a part, `rows_at_once` at a time; what is left of each lane's sums is in r.total. */
RG_INLINE void prelu_rows(const rg_prelu_shape *s, prelu_run r, const void *const data[],
                          int64_t part, int64_t first, int64_t width, const rg_dtype T,
                          const bool gradient)
{
    const int tensors = gradient ? 3 : 2;
    const real *slope = r.slope;
    real *sum = r.sum;
    const int64_t end = least(s->rows.count, (part + 1) * s->part);
    int64_t groups = 0;
    for (int64_t row = part * s->part, rows; row < end; row += rows) {
        const int64_t all = least(s->rows_at_once, end - row), taken = s->joined ? all : 1;
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
            prelu_end_piece(r.total, sum, s->rows_at_once * width);
    }
}

/* Lanes are joined one after the other. */
RG_OUTLINE void prelu_end_part(const rg_prelu_shape *s, const real *total, int64_t width, real *to)
{
    typedef double vdouble __attribute__((vector_size(8 * VLEN)));
    int64_t c = 0;
    for (; c + VLEN <= width; c += VLEN) {
        vdouble sum = { 0 };
        for (int64_t lane = 0; lane < s->rows_at_once; lane++)
            sum += __builtin_convertvector(vload_full(total, lane * width + c, RG_REAL), vdouble);
        vstore_full(to, c, RG_REAL, __builtin_convertvector(sum, vreal));
    }
    for (; c < width; c++) {
        double sum = 0;
        for (int64_t lane = 0; lane < s->rows_at_once; lane++)
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
        r.any_order = prelu_any_order(s, k->y, width, 1, T);
        if (r.any_order)
            prelu_order(slope, s->rows_at_once * width, false);
        prelu_rows(s, r, data, unit / s->blocks, first, width, T, false);
    }
}

RG_INLINE void prelu_gradient(const rg_prelu_gradient_args *k, int64_t begin, int64_t end,
                              const rg_dtype T)
{
    const rg_prelu_shape *s = &k->shape;
    real slope[RG_BLOCK_GROUPS + VLEN], sum[RG_BLOCK_GROUPS + VLEN], total[RG_BLOCK_GROUPS + VLEN];
    memset(slope, 0, sizeof slope);
    memset(sum, 0, sizeof sum);
    prelu_run r = { .in_step = { s->step[0], s->step[1] },
                    .out_step = s->step[2],
                    .slope = slope,
                    .sum = sum,
                    .total = total,
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
        r.any_order = prelu_any_order(s, k->dx, width, 2, T);
        if (r.any_order)
            prelu_order(slope, s->rows_at_once * width, false);
        prelu_rows(s, r, data, part, first, width, T, true);
        if (r.any_order)
            prelu_order(total, s->rows_at_once * width, true);
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

#define ROW(first, KIND, name)       [first + RG_NEURON_##KIND] = RG_ROW(name##_kernel),
#define FORWARD_ROW(KIND, kind, how) ROW(RG_NEURON_FORWARD, KIND, kind##_value)
#define ROW_X(KIND, kind, how)       ROW(RG_NEURON_GRADIENT, KIND, kind##_slope)
#define ROW_Y(KIND, kind, how)       ROW(RG_NEURON_GRADIENT_Y, KIND, kind##_slope_y)

RG_CPU_TABLE(neuron, RG_NEURON_KERNELS) = {
    ROW(RG_NEURON_FORWARD, NONE, relu_value) RG_NEURON_FORMULAS(FORWARD_ROW)
        ROW(RG_NEURON_GRADIENT, NONE, linear_slope) RG_NEURON_FORMULAS(ROW_X)
            ROW(RG_NEURON_GRADIENT_Y, NONE, linear_slope)
                ROW(RG_NEURON_GRADIENT_Y, RELU, relu_slope)
                    ROW(RG_NEURON_GRADIENT_Y, LINEAR, linear_slope)
                        ROW(RG_NEURON_GRADIENT_Y, RELUN, relun_slope) RG_NEURON_Y_FORMULAS(
                            ROW_Y)[RG_NEURON_FORWARD + RG_NEURON_PRELU] = RG_ROW(prelu_forward),
    [RG_NEURON_GRADIENT + RG_NEURON_PRELU] = RG_ROW(prelu_gradient),
    [RG_NEURON_PRELU_JOIN] = RG_ROW(prelu_join),
};
