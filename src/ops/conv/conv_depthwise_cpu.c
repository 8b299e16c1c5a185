/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution on the CPU, as near to the speed of memory as it gets: vectors of channels,
 * some neighbouring results at once, whose sums stay in registers. Groups of few channels are
 * spread out first. Both stand in one file because both end with any neuron, which is large. */
#include "ops/conv/conv_depthwise_cpu.h"

/* ---- sums ---- */

/* `count` results from number m on, VLEN channels from c on. With `is_3x3`, their taps are three
 * neighbours in the source, and so are the results. */
RG_INLINE void depthwise_block(const depthwise_row *d, int64_t m, const int count,
                               const bool is_3x3, int64_t c, const rg_dtype T)
{
    const rg_conv_depthwise_args *k = d->k;
    const int64_t column = d->source[2], stride = is_3x3 ? column : d->stride * column;
    const int64_t channels = k->channels, first = m * d->stride * column + c;
    const int32_t rows = d->rows.count, across = is_3x3 ? DEPTHWISE_3X3 : d->columns->count;
    vreal sum[DEPTHWISE_BLOCK];
#pragma GCC unroll 8
    for (int n = 0; n < count; n++)
        sum[n] = vset(0);
    for (int32_t p = 0; p < rows; p++) {
        const char *const row = at(d->from, d->rows.at[p] * d->source[1] + first, T);
        const real *const w =
            (const real *)k->w + d->rows.tap[p] * k->shape.column.window * channels + c;
        if (is_3x3) {
            const char *const from = at(row, d->columns->at[0] * column, T);
            const vreal a = vload_full(w, d->columns->tap[0] * channels, RG_REAL);
            const vreal b = vload_full(w, d->columns->tap[1] * channels, RG_REAL);
            const vreal e = vload_full(w, d->columns->tap[2] * channels, RG_REAL);
            vreal x = vload_full(from, 0, T), y = vload_full(from, column, T);
#pragma GCC unroll 8
            for (int n = 0; n < count; n++) {
                const vreal z = vload_full(from, (n + 2) * column, T);
                sum[n] = vfma(z, e, vfma(y, b, vfma(x, a, sum[n])));
                x = y;
                y = z;
            }
            continue;
        }
        for (int32_t q = 0; q < across; q++) {
            const char *const from = at(row, d->columns->at[q] * column, T);
            const vreal a = vload_full(w, d->columns->tap[q] * channels, RG_REAL);
#pragma GCC unroll 8
            for (int n = 0; n < count; n++)
                sum[n] = vfma(vload_full(from, n * stride, T), a, sum[n]);
        }
    }
#pragma GCC unroll 8
    for (int n = 0; n < count; n++) {
        const int64_t j = (m + n) * d->step;
        if (!k->plain) {
            depthwise_finish(d, j, c, VLEN, T, sum[n]);
            continue;
        }
        vreal value = k->has_b ? sum[n] + vload_full(k->b, c, T) : sum[n];
        if (k->neuron.kind == RG_NEURON_RELU)
            value = neuron_relu(&d->constants, value, value);
        if (d->stream && c % VLEN == 0)
            vstream(d->to, j * d->result[2] + c, T, value);
        else
            vstore_full(d->to, j * d->result[2] + c, T, value);
    }
}

/* One result, n channels, anywhere. */
RG_OUTLINE void depthwise_part(const depthwise_row *d, int64_t m, int64_t c, int n, rg_dtype T)
{
    const rg_conv_depthwise_args *k = d->k;
    vreal sum = vset(0);
    for (int32_t p = 0; p < d->rows.count; p++) {
        for (int32_t q = 0; q < d->columns->count; q++) {
            const int64_t from = d->rows.at[p] * d->source[1] +
                                 (m * d->stride + d->columns->at[q]) * d->source[2] +
                                 c * d->source[3];
            const int64_t tap = d->rows.tap[p] * k->shape.column.window + d->columns->tap[q];
            sum = vfma(load_groups(at(d->from, from, T), d->source[3], n, T, d->source[3] == 1),
                       vload((const real *)k->w + tap * k->channels + c, 0, n, RG_REAL), sum);
        }
    }
    depthwise_finish(d, m * d->step, c, n, T, sum);
}

/* All results of a line for VLEN channels from c on; where `parts`, n of them, strided or not. */
RG_INLINE void depthwise_results(depthwise_row *d, const depthwise_line *l, int64_t sources,
                                 int64_t c, int n, bool parts, const rg_dtype T)
{
    const int64_t *const at = l->taps.at;
    const bool is_3x3 = l->stride == 1 && l->taps.count == DEPTHWISE_3X3 && at[1] == at[0] + 1 &&
                        at[2] == at[0] + 2;
    depthwise_taps some;
    const bool again =
        !d->k->add && l->high - l->low >= DEPTHWISE_BLOCK; /* the last block overlaps */
    for (int64_t m = 0, count; m < l->count; m += count) {
        if (again && !parts && m > l->high - DEPTHWISE_BLOCK && m < l->high)
            m = l->high - DEPTHWISE_BLOCK;
        const int64_t left = m < l->low || parts ? 0 : l->high - m;
        count = left >= DEPTHWISE_BLOCK ? DEPTHWISE_BLOCK : 1;
        d->columns = &l->taps;
        if (m < l->low || m >= l->high) { /* at the border results have taps of their own */
            keep_inside(l, sources, m, &some);
            d->columns = &some;
        }
        if (parts) {
            depthwise_part(d, m, c, n, T);
        } else if (count == 1) {
            depthwise_block(d, m, 1, false, c, T);
        } else if (is_3x3) {
            fetch(&d->ahead);
            depthwise_block(d, m, DEPTHWISE_BLOCK, true, c, T);
        } else {
            fetch(&d->ahead);
            depthwise_block(d, m, DEPTHWISE_BLOCK, false, c, T);
        }
    }
}

/* All channels. What is left behind whole vectors is done with the last whole vector, unless that
 * would add to it twice. */
RG_INLINE void depthwise_channels(depthwise_row *d, const depthwise_line *l, int64_t sources,
                                  const rg_dtype T)
{
    const int64_t channels = d->k->channels;
    const bool whole = d->dense && channels >= VLEN;
    for (int64_t c = 0; c < channels; c += VLEN) {
        const bool last = c + VLEN > channels, parts = !whole || (last && d->k->add);
        depthwise_results(d, l, sources, parts ? c : least(c, channels - VLEN),
                          vlanes_left(channels - c), parts, T);
    }
}

/* A unit is a row of the result. */
RG_INLINE void depthwise(const rg_conv_depthwise_args *k, int64_t begin, int64_t end,
                         const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t rows = k->data ? s->row.size : s->row.count;
    const int64_t sources = k->data ? s->column.count : s->column.size;
    const int64_t phases = k->data ? least(s->column.stride, s->column.size) : 1;
    depthwise_row d = { .k = k,
                        .source = k->data ? s->y : s->x,
                        .result = k->data ? s->x : s->y,
                        .dense = s->x_dense && s->y_dense };
    d.constants = neuron_constants_of(&k->neuron.numbers);
    d.stream = depthwise_streams(k, d.result, T);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / rows, row = unit % rows;
        find_rows(&s->row, k->data, row, &d.rows);
        d.from = at(k->from, image * d.source[0], T);
        d.ahead = fetch_row(s, d.source, k->data, image, &d.rows, k->from, T);
        char *const to = at_out(k->to, image * d.result[0] + row * d.result[1], T);
        char *const z = at_out(k->z, image * k->z_step[0] + row * k->z_step[1], T);
        for (int64_t f = 0; f < phases; f++) {
            depthwise_line l;
            find_line(&s->column, k->data, f, &l);
            d.stride = l.stride;
            d.step = l.step;
            d.to = at_out(to, f * d.result[2], T);
            d.z = at_out(z, f * k->z_step[2], T);
            depthwise_channels(&d, &l, sources, T);
        }
    }
}

/* ---- weights ---- */

/* Weights as real, (taps, channels). A unit is a tap. */
RG_INLINE void transpose(const rg_conv_transpose_weights_args *k, int64_t begin, int64_t end,
                         const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    for (int64_t tap = begin; tap < end; tap++) {
        const int64_t p = tap / s->column.window, q = tap % s->column.window;
        const char *const from = at(k->w, s->w_first + p * s->w[2] + q * s->w[3], T);
        real *const to = (real *)k->transposed + tap * s->groups;
        for (int64_t c = 0; c < s->groups; c++)
            to[c] = load_one(from, c * s->w[0], T);
    }
}

/* ---- groups of few channels: the source is spread first, the rest is similar ---- */

/* `count` results from number m on of a row, with taps `rows` and `across`. */
RG_INLINE void grouped_block(const grouped_sums *d, const depthwise_taps *rows,
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
            const real *w = d->w + tap * picks * RG_CONV_GROUPED_BLOCK;
            for (int64_t i = 0; i < picks; i++, from += VLEN, w += RG_CONV_GROUPED_BLOCK) {
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

enum { GROUPED_BLOCK = DEPTHWISE_BLOCK / 2 };

RG_OUTLINE void grouped_results(const grouped_sums *d, const depthwise_taps *rows,
                                const depthwise_taps *across, int64_t m, int64_t count)
{
    if (count == DEPTHWISE_BLOCK)
        grouped_block(d, rows, across, m, DEPTHWISE_BLOCK);
    else if (count == GROUPED_BLOCK)
        grouped_block(d, rows, across, m, GROUPED_BLOCK);
    else
        grouped_block(d, rows, across, m, 1);
}

/* Bias, neuron and conversion of results m to m + count - 1 of a row, n lanes from c on. */
RG_INLINE void grouped_end(const depthwise_row *d, const real *sums, int64_t m, int64_t count,
                           int64_t c, int n, const rg_dtype T)
{
    const rg_conv_depthwise_args *k = d->k;
    const bool plain = k->plain && d->result[3] == 1, relu = k->neuron.kind == RG_NEURON_RELU;
    const vreal bias = plain && k->has_b ? vload_partial(k->b, c, n, T) : vset(0);
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
            vstore_partial(d->to, j * d->result[2] + c, n, T, value);
        else if (d->stream)
            vstream(d->to, j * d->result[2] + c, T, value);
        else
            vstore_full(d->to, j * d->result[2] + c, T, value);
    }
}

/* A block of rows of the result of one image, VLEN lanes from c on. */
typedef struct grouped_rows {
    int64_t image, begin, end, c;
    depthwise_taps taps[RG_CONV_GROUPED_ROWS];
} grouped_rows;

/* A line of all rows, by some columns at a time, so that what is spread stays in the cache. The
 * last block of columns may overlap the one before, but not where results are added to. */
RG_INLINE void grouped_line(const rg_conv_grouped_args *k, depthwise_row *d, grouped_sums *f,
                            const grouped_rows *b, const depthwise_line *l, int64_t phase,
                            const rg_dtype T)
{
    const int64_t *const z = k->depthwise.z_step;
    depthwise_taps some;
    for (int64_t m = 0, count; m < l->count; m += count) {
        const bool border = m < l->low || m >= l->high; /* with taps of their own */
        const int64_t left = l->high - m, inside = k->depthwise.add ? left : l->high - l->low;
        count = left > GROUPED_BLOCK && inside >= DEPTHWISE_BLOCK ? DEPTHWISE_BLOCK
                : inside >= GROUPED_BLOCK                         ? GROUPED_BLOCK
                                                                  : 1;
        if (border)
            keep_inside(l, f->columns, m, &some);
        count = border ? 1 : count;
        m = border || left >= count ? m : l->high - count;
        for (int64_t r = b->begin; r < b->end; r++) {
            grouped_results(f, &b->taps[r - b->begin], border ? &some : &l->taps, m, count);
            d->to =
                at_out(k->to, b->image * d->result[0] + r * d->result[1] + phase * d->result[2], T);
            d->z = at_out(k->z, b->image * z[0] + r * z[1] + phase * z[2], T);
            grouped_end(d, f->sums, m, count, b->c, vlanes_left(k->depthwise.channels - b->c), T);
        }
    }
}

RG_INLINE void grouped_image(const rg_conv_grouped_args *k, depthwise_row *d, grouped_rows *b,
                             const rg_dtype T)
{
    const rg_conv_shape *s = &k->depthwise.shape;
    const bool data = k->depthwise.data;
    const int64_t sources = data ? s->column.count : s->column.size;
    const int64_t phases = data ? least(s->column.stride, s->column.size) : 1;
    const int64_t weights = s->row.window * s->column.window * k->picks;
    const grouped_lanes v = find_lanes(b->c, s->groups, data ? s->in : s->out, k->picks);
    real *const buffer = (real *)(void *)(k->scratch + rg_thread_pool_index() * k->scratch_bytes);
    real sums[DEPTHWISE_BLOCK * VLEN];
    grouped_sums f = { .in = buffer,
                       .w = (const real *)k->w + grouped_at(b->c, weights),
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
        grouped_line(k, d, &f, b, &l, phase, T);
    }
}

RG_INLINE void grouped(const rg_conv_grouped_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    rg_conv_depthwise_args own = k->depthwise;
    const rg_conv_shape *s = &own.shape;
    const int64_t rows = own.data ? s->row.size : s->row.count;
    const int64_t splits = k->padded_channels / RG_CONV_GROUPED_BLOCK;
    own.b = k->b;
    own.to = k->to;
    depthwise_row d = { .k = &own,
                        .source = own.data ? s->y : s->x,
                        .result = own.data ? s->x : s->y,
                        .constants = neuron_constants_of(&own.neuron.numbers) };
    d.stream = depthwise_streams(&own, d.result, T);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % splits * RG_CONV_GROUPED_BLOCK;
        const int64_t row = unit / splits % k->blocks * k->block, image = unit / splits / k->blocks;
        grouped_rows b = { .image = image, .begin = row, .end = least(row + k->block, rows) };
        for (int64_t r = b.begin; r < b.end; r++)
            find_rows(&s->row, own.data, r, &b.taps[r - b.begin]);
        for (b.c = first; b.c < least(first + RG_CONV_GROUPED_BLOCK, own.channels); b.c += VLEN)
            grouped_image(k, &d, &b, T);
    }
}

RG_KERNEL(depthwise, rg_conv_depthwise_args)
RG_KERNEL(transpose, rg_conv_transpose_weights_args)
RG_KERNEL(grouped, rg_conv_grouped_args)

RG_CPU_TABLE(conv_depthwise, RG_CONV_KERNELS) = {
    [RG_CONV_TRANSPOSE_WEIGHTS] = RG_ROW(transpose),
    [RG_CONV_DEPTHWISE] = RG_ROW(depthwise),
    [RG_CONV_GROUPED] = RG_ROW(grouped),
};
