/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution on the CPU where groups have few channels, see conv_stem.h. Once the source is spread
 * out, as real and dense, all loops but the first and the last are the same for all of T. */
#include "backend/cpu/thread_pool.h"
#include "ops/conv/conv_depthwise_cpu.h"
#include "ops/conv/conv_stem.h"

/* ---- spreading out ---- */

/* VLEN lanes from some lane on: the vectors of the source that they take, and which lane takes
 * what of them with each pick. */
typedef struct stem_lanes {
    int64_t base; /* the first channel */
    int vectors, n[RG_CONV_STEM_MOST];
    vint index[RG_CONV_STEM_MOST];
} stem_lanes;

/* Lanes from c on; groups have `wide` of them, and `picks` channels in the source. */
RG_OUTLINE stem_lanes find_lanes(int64_t c, int64_t groups, int64_t wide, int64_t picks)
{
    const int64_t count = least(VLEN, groups * wide - c), first = c / wide;
    const int64_t channels = ((c + count - 1) / wide - first + 1) * picks;
    stem_lanes v = { .base = first * picks, .vectors = (int)((channels + VLEN - 1) / VLEN) };
    for (int k = 0; k < v.vectors; k++)
        v.n[k] = vlanes_left(groups * picks - v.base - k * VLEN);
    for (int64_t i = 0; i < picks; i++) {
        v.index[i] = (vint){ 0 };
        for (int64_t lane = 0; lane < count; lane++)
            v.index[i][lane] = (intr)((c + lane) / wide * picks + i - v.base);
    }
    return v;
}

/* to[pixel][pick] = vectors of lanes, from pixels `pixel` elements apart. */
RG_INLINE void spread_pixels(const stem_lanes *v, const char *from, int64_t pixel, int64_t step,
                             int64_t count, int64_t picks, real *to, const rg_dtype T)
{
    const int64_t next = v->vectors * VLEN * step; /* what the lanes behind these will want */
    const int last = v->vectors - 1;
    for (int64_t j = 0; j < count; j++, to += picks * VLEN) {
        vreal x[RG_CONV_STEM_MOST];
        const char *const at_ = at(from, j * pixel, T);
        __builtin_prefetch(at(at_, next, T), 0, 2);
        if (last == 0 && step == 1 && v->n[0] == VLEN) {
            const vreal one = vload_full(at_, 0, T);
            for (int64_t i = 0; i < picks; i++)
                vstore_full(to, i * VLEN, RG_REAL, vpick(one, v->index[i]));
            continue;
        }
        for (int k = 0; k <= last; k++)
            x[k] = step == 1 ? vload_short(at_, k * VLEN, v->n[k], T)
                             : vgather(at(at_, k * VLEN * step, T), 0, step, v->n[k], T);
        for (int64_t i = 0; i < picks; i++) {
            vreal picked = vpick(x[0], v->index[i]);
            for (int k = 1; k <= last; k++)
                picked = vselect(v->index[i] >= (intr)(k * VLEN), vpick(x[k], v->index[i]), picked);
            vstore_full(to, i * VLEN, RG_REAL, picked);
        }
    }
}

RG_OUTLINE void spread_row(const stem_lanes *v, const void *from, int64_t first,
                           const int64_t step[4], int64_t count, int64_t picks, real *to,
                           rg_dtype T)
{
    first += v->base * step[3];
#if !RG_REAL_F64
    if (T == RG_F16)
        spread_pixels(v, at(from, first, RG_F16), step[2], step[3], count, picks, to, RG_F16);
    else if (T == RG_BF16)
        spread_pixels(v, at(from, first, RG_BF16), step[2], step[3], count, picks, to, RG_BF16);
    else
#endif
        spread_pixels(v, at(from, first, RG_REAL), step[2], step[3], count, picks, to, RG_REAL);
    (void)T;
}

/* Rows of the source that rows begin <= r < end of the result take; none: first = last. */
RG_INLINE void rows_of_source(const rg_conv_axis *a, bool data, int64_t begin, int64_t end,
                              int64_t *first, int64_t *last)
{
    const int64_t reach = (a->window - 1) * a->dilation, all = data ? a->count : a->size;
    *first = data ? floor_div(begin + a->before - reach, a->stride) : begin * a->stride - a->before;
    *last = data ? floor_div(end - 1 + a->before, a->stride) + 1
                 : (end - 1) * a->stride - a->before + reach + 1;
    *first = *first < 0 ? 0 : least(*first, all);
    *last = *last < *first ? *first : least(*last, all);
}

/* Where lane c of so many weights stands; further weights are RG_CONV_STEM_LANES apart. */
RG_INLINE int64_t stem_at(int64_t c, int64_t weights)
{
    return c / RG_CONV_STEM_LANES * weights * RG_CONV_STEM_LANES + c % RG_CONV_STEM_LANES;
}

/* ---- sums ---- */

/* VLEN lanes of some rows. */
typedef struct stem_sums {
    const real *in, *w; /* spread rows from `first` on; weights of the lanes */
    real *sums;         /* vectors: of results, or of weights */
    double *totals;     /* of weights, where a row is longer than a run */
    int64_t first, columns, picks;
    int64_t window; /* taps of a row */
    int64_t stride; /* from result to result, in columns of the source */
} stem_sums;

/* `count` results from number m on of a row, with taps `rows` and `across`. */
RG_INLINE void stem_block(const stem_sums *d, const depthwise_taps *rows,
                          const depthwise_taps *across, int64_t m, const int count)
{
    const int64_t pixel = d->picks * VLEN, step = d->stride * pixel, picks = d->picks;
    vreal sum[DEPTHWISE_BLOCK];
#pragma GCC unroll 8
    for (int n = 0; n < count; n++)
        sum[n] = vset(0);
    for (int32_t p = 0; p < rows->count; p++) {
        const real *const row = d->in + (rows->at[p] - d->first) * d->columns * pixel;
        for (int32_t q = 0; q < across->count; q++) {
            const real *from = row + (m * d->stride + across->at[q]) * pixel;
            const int64_t tap = rows->tap[p] * d->window + across->tap[q];
            const real *w = d->w + tap * picks * RG_CONV_STEM_LANES;
            for (int64_t i = 0; i < picks; i++, from += VLEN, w += RG_CONV_STEM_LANES) {
                const vreal a = vload_full(w, 0, RG_REAL);
#pragma GCC unroll 8
                for (int n = 0; n < count; n++)
                    sum[n] = vfma(vload_full(from, n * step, RG_REAL), a, sum[n]);
            }
        }
    }
#pragma GCC unroll 8
    for (int n = 0; n < count; n++)
        vstore_full(d->sums, n * VLEN, RG_REAL, sum[n]);
}

enum { STEM_BLOCK = DEPTHWISE_BLOCK / 2 };

RG_OUTLINE void stem_results(const stem_sums *d, const depthwise_taps *rows,
                             const depthwise_taps *across, int64_t m, int64_t count)
{
    if (count == DEPTHWISE_BLOCK)
        stem_block(d, rows, across, m, DEPTHWISE_BLOCK);
    else if (count == STEM_BLOCK)
        stem_block(d, rows, across, m, STEM_BLOCK);
    else
        stem_block(d, rows, across, m, 1);
}

/* Bias, neuron and conversion of results m to m + count - 1 of a row, n lanes from c on. */
RG_INLINE void stem_end(const depthwise_row *d, const real *sums, int64_t m, int64_t count,
                        int64_t c, int n, const rg_dtype T)
{
    const rg_conv_depthwise_args *k = d->k;
    const bool plain = k->plain && d->result[3] == 1, relu = k->neuron.kind == RG_NEURON_RELU;
    const vreal bias = plain && k->has_b ? vload_short(k->b, c, n, T) : vset(0);
    for (int64_t i = 0; i < count; i++) {
        const int64_t j = (m + i) * d->step;
        vreal value = vload_full(sums, i * VLEN, RG_REAL);
        if (!plain) {
            depthwise_finish(d, j, c, n, T, value);
            continue;
        }
        value = k->has_b ? value + bias : value;
        value = relu ? neuron_relu(&d->constants, value, value) : value;
        if (n < VLEN)
            vstore_short(d->to, j * d->result[2] + c, n, T, value);
        else if (d->stream)
            vstream(d->to, j * d->result[2] + c, T, value);
        else
            vstore_full(d->to, j * d->result[2] + c, T, value);
    }
}

/* A block of rows of the result of one image, VLEN lanes from c on. */
typedef struct stem_rows {
    int64_t image, begin, end, c;
    depthwise_taps taps[RG_CONV_STEM_ROWS];
} stem_rows;

/* A line of all rows, by some columns at a time, so that what is spread stays near. The last block
 * of columns may overlap the one before, but not where results are added to. */
RG_INLINE void stem_line(const rg_conv_stem_args *k, depthwise_row *d, stem_sums *f,
                         const stem_rows *b, const depthwise_line *l, int64_t phase,
                         const rg_dtype T)
{
    const int64_t *const z = k->depth.z_step;
    depthwise_taps some;
    for (int64_t m = 0, count; m < l->count; m += count) {
        const bool border = m < l->low || m >= l->high; /* with taps of their own */
        const int64_t left = l->high - m, inside = k->depth.add ? left : l->high - l->low;
        count = left > STEM_BLOCK && inside >= DEPTHWISE_BLOCK ? DEPTHWISE_BLOCK
                : inside >= STEM_BLOCK                         ? STEM_BLOCK
                                                               : 1;
        if (border)
            keep_inside(l, f->columns, m, &some);
        count = border ? 1 : count;
        m = border || left >= count ? m : l->high - count;
        for (int64_t r = b->begin; r < b->end; r++) {
            stem_results(f, &b->taps[r - b->begin], border ? &some : &l->taps, m, count);
            d->to =
                at_out(k->to, b->image * d->result[0] + r * d->result[1] + phase * d->result[2], T);
            d->z = at_out(k->z, b->image * z[0] + r * z[1] + phase * z[2], T);
            stem_end(d, f->sums, m, count, b->c, vlanes_left(k->depth.channels - b->c), T);
        }
    }
}

RG_INLINE void stem_image(const rg_conv_stem_args *k, depthwise_row *d, stem_rows *b,
                          const rg_dtype T)
{
    const rg_conv_shape *s = &k->depth.shape;
    const bool data = k->depth.data;
    const int64_t sources = data ? s->column.count : s->column.size;
    const int64_t phases = data ? least(s->column.stride, s->column.size) : 1;
    const int64_t weights = s->row.window * s->column.window * k->picks;
    const stem_lanes v = find_lanes(b->c, s->groups, data ? s->in : s->out, k->picks);
    real *const buffer = (real *)(void *)(k->scratch + rg_thread_pool_index() * k->scratch_bytes);
    real sums[DEPTHWISE_BLOCK * VLEN];
    stem_sums f = { .in = buffer,
                    .w = (const real *)k->w + stem_at(b->c, weights),
                    .sums = sums,
                    .columns = sources,
                    .picks = k->picks,
                    .window = s->column.window };
    int64_t last;
    rows_of_source(&s->row, data, b->begin, b->end, &f.first, &last);
    for (int64_t r = f.first; r < last; r++)
        spread_row(&v, k->from, b->image * d->source[0] + r * d->source[1], d->source, sources,
                   k->picks, buffer + (r - f.first) * sources * k->picks * VLEN, T);
    for (int64_t phase = 0; phase < phases; phase++) {
        depthwise_line l;
        find_line(&s->column, data, phase, &l);
        f.stride = l.stride;
        d->step = l.step;
        stem_line(k, d, &f, b, &l, phase, T);
    }
}

RG_INLINE void few(const rg_conv_stem_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    rg_conv_depthwise_args own = k->depth;
    const rg_conv_shape *s = &own.shape;
    const int64_t rows = own.data ? s->row.size : s->row.count;
    const int64_t splits = k->lanes / RG_CONV_STEM_LANES;
    own.b = k->b;
    own.to = k->to;
    depthwise_row d = { .k = &own,
                        .source = own.data ? s->y : s->x,
                        .result = own.data ? s->x : s->y,
                        .constants = neuron_constants_of(&own.neuron.numbers) };
    d.stream = depthwise_streams(&own, d.result, T);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % splits * RG_CONV_STEM_LANES;
        const int64_t row = unit / splits % k->blocks * k->block, image = unit / splits / k->blocks;
        stem_rows b = { .image = image, .begin = row, .end = least(row + k->block, rows) };
        for (int64_t r = b.begin; r < b.end; r++)
            find_rows(&s->row, own.data, r, &b.taps[r - b.begin]);
        for (b.c = first; b.c < least(first + RG_CONV_STEM_LANES, own.channels); b.c += VLEN)
            stem_image(k, &d, &b, T);
    }
}

/* ---- weights ---- */

RG_INLINE void stem_transpose(const rg_conv_stem_transpose_args *k, int64_t begin, int64_t end,
                              const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t picks = k->data ? s->out : s->in, wide = k->data ? s->in : s->out;
    const int64_t weights = s->row.window * s->column.window * picks;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit / weights * RG_CONV_STEM_LANES;
        const int64_t tap = unit % weights / picks, pick = unit % picks;
        const int64_t w = s->w_first + tap / s->column.window * s->w[2] +
                          tap % s->column.window * s->w[3] + pick * s->w[k->data ? 1 : 4];
        real *const to = (real *)k->transposed + unit * RG_CONV_STEM_LANES;
        for (int64_t i = 0; i < RG_CONV_STEM_LANES; i++) {
            const int64_t c = first + i;
            const int64_t at = w + c / wide * s->w[0] + c % wide * s->w[k->data ? 4 : 1];
            to[i] = c < s->groups * wide ? load_one(k->w, at, T) : 0;
        }
    }
}

/* `count` windows: dw[n] += sum of dy x, where x of weight n stands at at[n], and sum at slot[n].
 */
RG_INLINE void stem_products(const real *x, int64_t step, const real *y, int64_t count, real *sum,
                             const int64_t at[], const int64_t slot[], const int N)
{
    vreal a[DEPTHWISE_BLOCK];
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
        a[n] = vload_full(sum, slot[n], RG_REAL);
    for (int64_t j = 0; j < count; j++, x += step, y += VLEN) {
        const vreal g = vload_full(y, 0, RG_REAL);
#pragma GCC unroll 8
        for (int n = 0; n < N; n++)
            a[n] = vfma(g, vload_full(x, at[n], RG_REAL), a[n]);
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
        vstore_full(sum, slot[n], RG_REAL, a[n]);
}

/* How many weights are summed at a time: of those that are left, as many as the first that fits. */
typedef void stem_run(const real *x, int64_t step, const real *y, int64_t count, real *sum,
                      const int64_t at[], const int64_t slot[]);
#define STEM_STEP(N)                                                                             \
    RG_OUTLINE void stem_products_##N(const real *x, int64_t step, const real *y, int64_t count, \
                                      real *sum, const int64_t at[], const int64_t slot[])       \
    {                                                                                            \
        stem_products(x, step, y, count, sum, at, slot, N);                                      \
    }
STEM_STEP(8)
STEM_STEP(4)
STEM_STEP(3)
STEM_STEP(1)
#undef STEM_STEP
typedef struct stem_step {
    int64_t weights;
    stem_run *run;
} stem_step;
static const stem_step stem_steps[] = {
    { 8, stem_products_8 }, { 4, stem_products_4 }, { 3, stem_products_3 }, { 1, stem_products_1 }
};
_Static_assert(DEPTHWISE_BLOCK == 8, "the first of the table is the most that there is room for");

/* Windows begin <= j < end of a row with row p of their taps `rows`, by some weights at a time; y
 * is dy of the row. */
RG_OUTLINE void stem_weights(const stem_sums *d, const depthwise_taps *rows, int32_t p,
                             const depthwise_taps *across, const real *y, int64_t begin,
                             int64_t end)
{
    const int64_t pixel = d->picks * VLEN, step = d->stride * pixel;
    const real *const x = d->in + (rows->at[p] - d->first) * d->columns * pixel + begin * step;
    const int64_t all = across->count * d->picks;
    for (int64_t e = 0, n; e < all; e += n) {
        int64_t at[DEPTHWISE_BLOCK], slot[DEPTHWISE_BLOCK];
        const stem_step *block = stem_steps;
        while (block->weights > all - e)
            block++;
        n = block->weights;
        for (int64_t i = 0; i < n; i++) {
            const int64_t q = (e + i) / d->picks, pick = (e + i) % d->picks;
            const int64_t tap = rows->tap[p] * d->window + across->tap[q];
            at[i] = across->at[q] * pixel + pick * VLEN;
            slot[i] = (tap * d->picks + pick) * VLEN;
        }
        block->run(x, step, y + begin * VLEN, end - begin, d->sums, at, slot);
    }
}

/* Rows begin <= i < end of windows of one image, of which columns first <= j < last; windows at the
 * border have taps of their own. dy stands in y, x in d->in. */
RG_OUTLINE void stem_windows(const rg_conv_shape *s, const stem_sums *d, const depthwise_line *l,
                             int64_t begin, int64_t end, int64_t first, int64_t last, const real *y)
{
    depthwise_taps some, rows;
    for (int64_t j = first, next; j < last; j = next) {
        const bool inside = j >= l->low && j < l->high;
        next = inside ? least(l->high, last) : j + 1;
        if (!inside)
            keep_inside(l, s->column.size, j, &some);
        for (int64_t i = begin; i < end; i++) {
            find_rows(&s->row, false, i, &rows);
            for (int32_t p = 0; p < rows.count; p++)
                stem_weights(d, &rows, p, inside ? &l->taps : &some,
                             y + (i - begin) * s->column.count * VLEN, j, next);
        }
    }
}

/* The same of VLEN lanes from c on. `room` is behind the sums. */
RG_INLINE void stem_sum_rows(const rg_conv_stem_parts_args *k, stem_sums *d,
                             const depthwise_line *l, int64_t image, int64_t begin, int64_t end,
                             int64_t c, real *buffer, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const stem_lanes v = find_lanes(c, s->groups, s->out, s->in);
    const stem_lanes own = find_lanes(c, s->groups * s->out, 1, 1);
    const int64_t row_size = s->column.size * s->in * VLEN, y_size = s->column.count * VLEN;
    real *const x = buffer + (end - begin) * y_size;
    int64_t last;
    rows_of_source(&s->row, false, begin, end, &d->first, &last);
    d->in = x;
    for (int64_t r = d->first; r < last; r++)
        spread_row(&v, k->x, image * s->x[0] + r * s->x[1], s->x, s->column.size, s->in,
                   x + (r - d->first) * row_size, T);
    for (int64_t i = begin; i < end; i++)
        spread_row(&own, k->dy, image * s->y[0] + i * s->y[1], s->y, s->column.count, 1,
                   buffer + (i - begin) * y_size, T);
    const int64_t across = s->column.count, run = rg_conv_depthwise_run(s);
    const int64_t sums = s->row.window * s->column.window * s->in * VLEN;
    for (int64_t j = 0; j < across; j += run) {
        stem_windows(s, d, l, begin, end, j, least(j + run, across), buffer);
        if (run == across)
            continue;
        add_to_totals(d->totals, d->sums, sums, j == 0);
        memset(d->sums, 0, (size_t)sums * sizeof(real));
    }
    for (int64_t i = 0; run < across && i < sums; i++)
        d->sums[i] = (real)d->totals[i];
}

/* A unit is a part of the rows of windows, and some lanes. */
RG_INLINE void stem_parts(const rg_conv_stem_parts_args *k, int64_t begin, int64_t end,
                          const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t rows = s->images * s->row.count, splits = k->lanes / RG_CONV_STEM_LANES;
    const int64_t sums = s->row.window * s->column.window * s->in;
    real *const sum = (real *)(void *)(k->scratch + rg_thread_pool_index() * k->scratch_bytes);
    stem_sums d = { .sums = sum,
                    .totals = (double *)(void *)(sum + sums * VLEN),
                    .columns = s->column.size,
                    .picks = s->in,
                    .window = s->column.window,
                    .stride = s->column.stride };
    depthwise_line l;
    find_line(&s->column, false, 0, &l);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t part = unit / splits, first = unit % splits * RG_CONV_STEM_LANES;
        const int64_t stop = least(rows, (part + 1) * k->part);
        real *const to = (real *)k->partial + part * sums * k->lanes;
        for (int64_t c = first; c < least(first + RG_CONV_STEM_LANES, s->groups * s->out);
             c += VLEN) {
            memset(sum, 0, (size_t)(sums * VLEN) * sizeof(real));
            for (int64_t row = part * k->part, next; row < stop; row = next) {
                const int64_t image = row / s->row.count, i = row % s->row.count;
                next = least(stop, row + least(k->block, s->row.count - i));
                stem_sum_rows(k, &d, &l, image, i, i + next - row, c,
                              sum + rg_conv_stem_sums(s) * VLEN, T);
            }
            for (int64_t n = 0; n < sums; n++)
                vstore_full(to, stem_at(c, sums) + n * RG_CONV_STEM_LANES, RG_REAL,
                            vload_full(sum, n * VLEN, RG_REAL));
        }
    }
}

/* dw from the sums of all parts, one after the other. */
RG_INLINE void stem_join(const rg_conv_stem_join_args *k, int64_t begin, int64_t end,
                         const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t sums = s->row.window * s->column.window * s->in;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t n = unit % sums, first = unit / sums * RG_CONV_STEM_LANES;
        const int64_t count = least(RG_CONV_STEM_LANES, s->groups * s->out - first);
        const int64_t tap = n / s->in;
        const int64_t w = s->w_first + tap / s->column.window * s->w[2] +
                          tap % s->column.window * s->w[3] + n % s->in * s->w[4];
        double sum[RG_CONV_STEM_LANES] = { 0 };
        for (int64_t part = 0; part < k->parts; part++) {
            const real *const from =
                (const real *)k->partial + part * sums * k->lanes + unit * RG_CONV_STEM_LANES;
            for (int64_t c = 0; c < count; c++)
                sum[c] += (double)from[c];
        }
        for (int64_t c = 0; c < count; c++) {
            const int64_t channel = first + c;
            const int64_t to = w + channel / s->out * s->w[0] + channel % s->out * s->w[1];
            const real value = (real)sum[c];
            store_one(k->dw, to, T, k->add ? load_one(k->dw, to, T) + value : value);
        }
    }
}

RG_KERNEL(few, rg_conv_stem_args)
RG_KERNEL(stem_transpose, rg_conv_stem_transpose_args)
RG_KERNEL(stem_parts, rg_conv_stem_parts_args)
RG_KERNEL(stem_join, rg_conv_stem_join_args)

RG_CPU_TABLE(conv_stem, RG_CONV_KERNELS) = {
    [RG_CONV_STEM_TRANSPOSE] = RG_ROW(stem_transpose),
    [RG_CONV_STEM] = RG_ROW(few),
    [RG_CONV_STEM_PARTS] = RG_ROW(stem_parts),
    [RG_CONV_STEM_JOIN] = RG_ROW(stem_join),
};
