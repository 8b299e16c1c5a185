/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalisations by what is in windows of rows and columns, see ops/window_norm/box.h. A strip is
 * gone down row by row: a row is loaded with zeros at its ends, summed over columns, and put into a
 * ring of as many rows as a window has; see windows_cpu.h. So memory sees each row once, or from
 * the second cache. */
#ifndef RG_OPS_WINDOW_NORM_BOXES_CPU_H
#define RG_OPS_WINDOW_NORM_BOXES_CPU_H

#include "ops/window_norm/box.h"
#include "ops/window_norm/moments_cpu.h"

/* What an op does with a vector. fill gives the value that is summed; result makes y from x and the
 * sums; middle does so for the gradient: it returns what goes to dx at the same place and gives
 * values to be summed over the mirrored window; finish joins both.
 *
 * An op with one kind of values has the sums in sum[0], and gives to[0]. One with MOMENT_KINDS has
 * x for fill; then sum[1] is the mean less x, sum[2] the variance, and of numbers p and q, given as
 * to[1] and to[2], finish is given the sum of p + q (z - x) as sum[1], where z is the x of q. */
typedef vreal box_fill(vreal x);
typedef vreal box_result(const void *k, vreal x, const vreal sum[]);
typedef vreal box_middle(const void *k, vreal dy, vreal x, const vreal sum[], vreal to[]);
typedef vreal box_finish(const void *k, vreal x, vreal direct, const vreal sum[]);

/* One strip. Tensors: dy, x, the result, at the strip's first channel of its image. */
typedef struct box_strip {
    const rg_box_shape *s;
    const void *k;
    const char *in[2];
    char *out;
    const int64_t *step[RG_BOX_TENSORS];
    int64_t channels;
    bool flat;           /* rows are contiguous in all tensors */
    real *from, *middle; /* padded rows of what is summed: one kind, all kinds */
    real *kept;
    int64_t line, padded; /* reals of a row of one kind */
    real *across;         /* buffer of a ring of pixels, and a sum */
} box_strip;

/* ---- rows, run by run: one pixel, or the whole row where that is contiguous ---- */

typedef struct box_run {
    const char *in[2];
    char *out;
    int64_t begin, count; /* values of the row */
    int64_t step[RG_BOX_TENSORS];
    bool dense, add, stream;
} box_run;

RG_INLINE int64_t runs_of(const box_strip *b)
{
    return b->flat ? 1 : b->s->column.size;
}

RG_INLINE box_run run_of(const box_strip *b, int64_t row, int64_t column, const rg_dtype T)
{
    box_run r = { .begin = column * b->channels,
                  .count = b->flat ? b->s->column.size * b->channels : b->channels,
                  .dense = b->s->dense,
                  .add = b->s->add };
    for (int t = 0; t < 2; t++)
        r.in[t] = at(b->in[t], row * b->step[t][1] + column * b->step[t][2], T);
    r.out = at_out(b->out, row * b->step[2][1] + column * b->step[2][2], T);
    for (int t = 0; t < RG_BOX_TENSORS; t++)
        r.step[t] = b->step[t][3];
    r.stream = b->s->stream && r.dense && r.count % VLEN == 0 &&
               (uintptr_t)r.out % (uintptr_t)vbytes(T) == 0;
    return r;
}

RG_INLINE vreal load_run(const box_run *r, int tensor, int64_t i, const int n, const rg_dtype T)
{
    const char *from = tensor < 2 ? r->in[tensor] : r->out;
    return vload_strided(from, i, r->step[tensor], n, T, r->dense);
}

RG_INLINE void store_run(const box_run *r, int64_t i, const int n, const rg_dtype T, vreal value)
{
    if (r->add)
        value += load_run(r, 2, i, n, T);
    if (r->stream)
        vstream(r->out, i, T, value);
    else
        vstore_strided(r->out, i, r->step[2], n, T, r->dense, value);
}

/* Lanes from n on become 0: what follows a row are zeros. */
RG_INLINE void store_value(real *to, int64_t i, const int n, vreal value)
{
    vstore_full(to, i, RG_REAL, vkeep(value, n, 0));
}

RG_INLINE void load_sums(const box_strip *b, const real *sum, int64_t i, const int kinds,
                         vreal value[])
{
    for (int s = 0; s < kinds; s++)
        value[s] = vload_full(sum + s * b->line, i, RG_REAL);
}

/* ---- sums over columns ---- */

/* By blocks. `from` are rows of `given` kinds, the others are zeros. */
RG_OUTLINE void columns_by_blocks(const box_strip *b, window_rule *rule, const real *from, real *to,
                                  int given, int kinds, int64_t centre)
{
    const rg_span *span = &b->s->column;
    const int64_t pixel = rg_box_lines_of(b->s).pixel;
    window_ring ring = ring_at(b->across, kinds * pixel, span->width, centre);
    real *const sum = b->across + ring_buffer(ring.pitch, span->width);
    const size_t bytes = (size_t)b->channels * sizeof(real);
    for (int64_t t = 0; t < span->size + span->width - 1; t++) {
        const int64_t position = t - (span->width - 1);
        real *const next = ring_next(&ring);
        for (int s = 0; s < kinds && s < given; s++)
            memcpy(next + s * pixel, from + s * b->padded + t * b->channels, bytes);
        for (int s = given; s < kinds; s++)
            memset(next + s * pixel, 0, bytes);
        rule(&ring, position >= 0 ? sum : NULL);
        for (int s = 0; s < kinds && position >= 0; s++)
            memcpy(to + s * b->line + position * b->channels, sum + s * pixel, bytes);
    }
}

RG_INLINE void sum_columns_direct(const box_strip *b, const real *from, real *to,
                                  const int64_t width)
{
    for (int64_t i = 0; i < b->line; i += VLEN)
        vstore_full(to, i, RG_REAL, sum_taps(from + i, b->channels, width));
}

/* `from` is padded, `to` is not. */
RG_OUTLINE void sum_columns(const box_strip *b, const real *from, real *to)
{
    const int64_t width = b->s->column.width;
    if (width > RG_SPAN_DIRECT)
        columns_by_blocks(b, ring_sum, from, to, 1, 1, 0);
    else if (width == 5)
        sum_columns_direct(b, from, to, 5);
    else if (width == 3)
        sum_columns_direct(b, from, to, 3);
    else
        sum_columns_direct(b, from, to, width);
}

RG_INLINE void moments_columns_direct(moments_direct *direct, const box_strip *b, const real *from,
                                      real *to, const bool plain, int64_t centre,
                                      const int64_t width)
{
    moment_lines l = { .size = b->padded, .plain = plain };
    for (int64_t k = 0; k < width; k++)
        l.line[k] = from + k * b->channels;
    l.centre = l.line[centre];
    for (int64_t i = 0; i < b->line; i += VLEN)
        store_moments(to, b->line, i, direct(&l, i, width));
}

/* Means and variances of x. */
RG_OUTLINE void join_columns(const box_strip *b, const real *from, real *to)
{
    const int64_t width = b->s->column.width, centre = b->s->column.before;
    if (width > RG_SPAN_DIRECT)
        columns_by_blocks(b, ring_join, from, to, 1, MOMENT_KINDS, centre);
    else if (width == 5)
        moments_columns_direct(join_direct, b, from, to, true, centre, 5);
    else
        moments_columns_direct(join_direct, b, from, to, true, centre, width);
}

/* Of the mirrored window. */
RG_OUTLINE void shift_columns(const box_strip *b, const real *from, real *to)
{
    const int64_t width = b->s->column.width, centre = b->s->column.after;
    if (width > RG_SPAN_DIRECT) {
        columns_by_blocks(b, ring_shift, from, to, MOMENT_KINDS, MOMENT_KINDS, centre);
        for (int64_t i = 0; i < b->line; i += VLEN)
            store_moments(to, b->line, i,
                          shift_about(load_moments(to, b->line, i),
                                      vload_full(from, i + centre * b->channels, RG_REAL)));
    } else if (width == 5)
        moments_columns_direct(shift_direct, b, from, to, false, centre, 5);
    else
        moments_columns_direct(shift_direct, b, from, to, false, centre, width);
}

/* ---- what is done with a row ---- */

RG_INLINE void fill_row(box_fill *fill, const int kinds, const box_strip *b, int64_t row, real *to,
                        const rg_dtype T)
{
    const int64_t lead = b->s->column.before * b->channels;
    for (int64_t j = 0; j < runs_of(b); j++) {
        const box_run r = run_of(b, row, j, T);
        real *const line = b->from + lead + r.begin;
        int64_t i = 0;
        for (; i + VLEN <= r.count; i += VLEN)
            store_value(line, i, VLEN, fill(load_run(&r, 1, i, VLEN, T)));
        if (i < r.count) {
            const int n = (int)(r.count - i);
            store_value(line, i, n, fill(load_run(&r, 1, i, n, T)));
        }
    }
    if (kinds == 1)
        sum_columns(b, b->from, to);
    else
        join_columns(b, b->from, to);
}

RG_INLINE void result_step(box_result *result, const int kinds, const box_strip *b,
                           const box_run *r, const real *sum, int64_t i, const int n,
                           const rg_dtype T)
{
    vreal value[MOMENT_KINDS];
    load_sums(b, sum, r->begin + i, kinds, value);
    store_run(r, i, n, T, result(b->k, load_run(r, 1, i, n, T), value));
}

RG_INLINE void result_row(box_result *result, const int kinds, const box_strip *b, int64_t row,
                          const real *sum, const rg_dtype T)
{
    for (int64_t j = 0; j < runs_of(b); j++) {
        const box_run r = run_of(b, row, j, T);
        int64_t i = 0;
        for (; i + VLEN <= r.count; i += VLEN)
            result_step(result, kinds, b, &r, sum, i, VLEN, T);
        if (i < r.count)
            result_step(result, kinds, b, &r, sum, i, (int)(r.count - i), T);
    }
}

RG_INLINE real *kept_row(const box_strip *b, int64_t row)
{
    return b->kept + row % (b->s->row.before + 1) * b->line;
}

RG_INLINE void middle_step(box_middle *middle, const int kinds, const box_strip *b,
                           const box_run *r, const real *sum, real *line, real *kept, int64_t i,
                           const int n, const rg_dtype T)
{
    vreal value[MOMENT_KINDS], to[MOMENT_KINDS];
    load_sums(b, sum, r->begin + i, kinds, value);
    const vreal dy = load_run(r, 0, i, n, T), x = load_run(r, 1, i, n, T);
    to[0] = x;
    vstore_full(kept, i, RG_REAL, middle(b->k, dy, x, value, to));
    for (int s = 0; s < kinds; s++)
        store_value(line + s * b->padded, i, n, to[s]);
}

RG_INLINE void middle_row(box_middle *middle, const int kinds, const box_strip *b, int64_t row,
                          const real *sum, real *to, const rg_dtype T)
{
    const int64_t lead = b->s->column.after * b->channels; /* the mirrored window */
    for (int64_t j = 0; j < runs_of(b); j++) {
        const box_run r = run_of(b, row, j, T);
        real *const line = b->middle + lead + r.begin;
        real *const kept = kept_row(b, row) + r.begin;
        int64_t i = 0;
        for (; i + VLEN <= r.count; i += VLEN)
            middle_step(middle, kinds, b, &r, sum, line, kept, i, VLEN, T);
        if (i < r.count)
            middle_step(middle, kinds, b, &r, sum, line, kept, i, (int)(r.count - i), T);
    }
    if (kinds == 1)
        sum_columns(b, b->middle, to);
    else
        shift_columns(b, b->middle, to);
}

RG_INLINE void finish_step(box_finish *finish, const int kinds, const box_strip *b,
                           const box_run *r, const real *sum, const real *kept, int64_t i,
                           const int n, const rg_dtype T)
{
    vreal value[MOMENT_KINDS];
    load_sums(b, sum, r->begin + i, kinds, value);
    const vreal x = load_run(r, 1, i, n, T), direct = vload_full(kept, i, RG_REAL);
    store_run(r, i, n, T, finish(b->k, x, direct, value));
}

RG_INLINE void finish_row(box_finish *finish, const int kinds, const box_strip *b, int64_t row,
                          const real *sum, const rg_dtype T)
{
    for (int64_t j = 0; j < runs_of(b); j++) {
        const box_run r = run_of(b, row, j, T);
        const real *const kept = kept_row(b, row) + r.begin;
        int64_t i = 0;
        for (; i + VLEN <= r.count; i += VLEN)
            finish_step(finish, kinds, b, &r, sum, kept, i, VLEN, T);
        if (i < r.count)
            finish_step(finish, kinds, b, &r, sum, kept, i, (int)(r.count - i), T);
    }
}

/* ---- strips ---- */

/* An op's rows for one storage type: RG_BOX_ROWS makes them from its formulas, and a table of
 * them by dtype. */
typedef struct box_rows {
    chain_fill *fill;
    chain_finish *result;
    chain_middle *middle;
    chain_finish *finish;
} box_rows;

#define RG_BOX_ROWS_OF(op, kinds, suffix, T)                                                   \
    static void op##_fill_row##suffix(const void *b, int64_t row, real *to)                    \
    {                                                                                          \
        fill_row(op##_fill, kinds, b, row, to, T);                                             \
    }                                                                                          \
    static void op##_result_row##suffix(const void *b, int64_t row, const real *sum)           \
    {                                                                                          \
        result_row(op##_result, kinds, b, row, sum, T);                                        \
    }                                                                                          \
    static void op##_middle_row##suffix(const void *b, int64_t row, const real *sum, real *to) \
    {                                                                                          \
        middle_row(op##_middle, kinds, b, row, sum, to, T);                                    \
    }                                                                                          \
    static void op##_finish_row##suffix(const void *b, int64_t row, const real *sum)           \
    {                                                                                          \
        finish_row(op##_finish, kinds, b, row, sum, T);                                        \
    }

#define RG_BOX_ROW(op, suffix)                                                   \
    {                                                                            \
        op##_fill_row##suffix, op##_result_row##suffix, op##_middle_row##suffix, \
            op##_finish_row##suffix                                              \
    }

#if RG_REAL_F64
#define RG_BOX_ROWS(op, kinds)              \
    RG_BOX_ROWS_OF(op, kinds, _f64, RG_F64) \
    static const box_rows op##_rows[] = { [RG_F64] = RG_BOX_ROW(op, _f64) };
#else
#define RG_BOX_ROWS(op, kinds)                                             \
    RG_BOX_ROWS_OF(op, kinds, _f32, RG_F32)                                \
    RG_BOX_ROWS_OF(op, kinds, _f16, RG_F16)                                \
    RG_BOX_ROWS_OF(op, kinds, _bf16, RG_BF16)                              \
    static const box_rows op##_rows[] = { [RG_F32] = RG_BOX_ROW(op, _f32), \
                                          [RG_F16] = RG_BOX_ROW(op, _f16), \
                                          [RG_BF16] = RG_BOX_ROW(op, _bf16) };
#endif

/* Takes the lines of a strip from the unit's scratch; padded rows begin as zeros, since their ends
 * stay so. */
RG_INLINE void place_lines(box_strip *b, window_chain *c, real *buffer, int kinds, bool gradient)
{
    const rg_box_lines l = rg_box_lines_of(b->s);
    const rg_span *span = &b->s->row;
    b->line = l.line;
    b->padded = l.padded;
    b->from = memset(buffer, 0, (size_t)l.padded * sizeof(real));
    buffer += l.padded;
    c->first = ring_at(buffer, kinds * l.line, span->width, span->before);
    buffer += kinds * l.ring;
    c->sum = buffer;
    buffer += kinds * l.line;
    b->across = buffer;
    buffer += kinds * l.across;
    if (!gradient)
        return;
    b->middle = memset(buffer, 0, (size_t)(kinds * l.padded) * sizeof(real));
    buffer += kinds * l.padded;
    c->second = ring_at(buffer, kinds * l.line, span->width, span->after);
    b->kept = buffer + kinds * l.ring;
}

/* Strip number i. in[0] is dy, or x where there is none. */
RG_INLINE box_strip strip_of(const rg_box_shape *s, const void *const in[2], void *out, bool dy,
                             int64_t i, const rg_dtype T, int64_t *band)
{
    const int64_t column = i / s->bands, image = column / s->blocks;
    const int64_t channel = column % s->blocks * s->block;
    box_strip b = { .s = s, .channels = least(s->block, s->channels - channel) };
    *band = i % s->bands;
    b.step[0] = s->step[0];
    b.step[1] = s->step[dy ? 1 : 0];
    b.step[2] = s->step[dy ? 2 : 1];
    b.flat = s->dense && b.channels == s->channels;
    for (int t = 0; t < RG_BOX_TENSORS; t++)
        b.flat &= b.step[t][2] == s->channels;
    for (int t = 0; t < 2; t++)
        b.in[t] = at(in[t], image * b.step[t][0] + channel * b.step[t][3], T);
    b.out = at_out(out, image * b.step[2][0] + channel * b.step[2][3], T);
    return b;
}

/* All strips of units begin to end - 1. */
RG_OUTLINE void box_units(const rg_box_shape *s, const void *k, const void *const in[2], void *out,
                          void *scratch, const box_rows *rows, int kinds, bool gradient,
                          int64_t begin, int64_t end, rg_dtype T)
{
    const int64_t strips = s->images * s->blocks * s->bands;
    for (int64_t u = begin; u < end; u++) {
        real *const buffer = (real *)(void *)((char *)scratch + u * s->scratch_bytes);
        const int64_t first = strips / s->units * u + least(strips % s->units, u);
        const int64_t last = first + strips / s->units + (u < strips % s->units);
        for (int64_t i = first; i < last; i++) {
            int64_t band;
            box_strip b = strip_of(s, in, out, gradient, i, T, &band);
            window_chain c = { .span = s->row,
                               .first_rule = kinds == 1 ? ring_sum : ring_join,
                               .second_rule = kinds == 1 ? ring_sum : ring_shift,
                               .begin = band * s->band,
                               .end = least((band + 1) * s->band, s->row.size) };
            b.k = k;
            place_lines(&b, &c, buffer, kinds, gradient);
            if (gradient)
                chain_gradient(&c, &b, rows->fill, rows->middle, rows->finish);
            else
                chain_forward(&c, &b, rows->fill, rows->result);
        }
    }
}

#endif
