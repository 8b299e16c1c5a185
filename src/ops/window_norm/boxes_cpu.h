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
 * sums; middle does so for the gradient: it returns what goes to the same element of dx and gives
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
    int64_t channels;
    bool flat;           /* rows are contiguous in all tensors */
    real *from, *middle; /* padded rows of what is summed: one kind, all kinds */
    real *kept;
    int64_t line, padded; /* reals of a row of one kind */
    real *across;         /* buffer of a ring of pixels, and a sum */
} box_strip;

/* ---- rows, segment by segment: one pixel, or the whole row where that is contiguous ---- */

typedef struct box_segment {
    const char *in[2];
    char *out;
    const real *sum; /* over the windows, kind after kind */
    real *line;      /* what is summed over windows */
    real *kept;      /* gradient: what goes to the same element of dx */
    int64_t count;
    int64_t step[RG_BOX_TENSORS];
    bool dense, add, stream;
} box_segment;

RG_INLINE real *kept_row(const box_strip *b, int64_t row)
{
    return b->kept + row % (b->s->row.before + 1) * b->line;
}

/* `sum` is NULL where the row is the first of two that are summed. */
RG_INLINE box_segment segment_of(const box_strip *b, int64_t row, const real *sum, int64_t column,
                                 const rg_dtype T)
{
    const rg_span *span = &b->s->column;
    const int64_t begin = column * b->channels;
    real *const line = sum == NULL ? b->from + span->before * b->channels
                                   : b->middle + span->after * b->channels; /* mirrored window */
    box_segment g = { .sum = (sum == NULL ? b->from : sum) + begin,
                      .line = line + begin,
                      .kept = kept_row(b, row) + begin,
                      .count = b->flat ? span->size * b->channels : b->channels,
                      .dense = b->s->dense,
                      .add = b->s->add };
    const int64_t(*step)[4] = b->s->step;
    for (int t = 0; t < 2; t++)
        g.in[t] = at(b->in[t], row * step[t][1] + column * step[t][2], T);
    g.out = at_out(b->out, row * step[2][1] + column * step[2][2], T);
    for (int t = 0; t < RG_BOX_TENSORS; t++)
        g.step[t] = step[t][3];
    g.stream = b->s->stream && g.dense && g.count % VLEN == 0 &&
               (uintptr_t)g.out % (uintptr_t)vbytes(T) == 0;
    return g;
}

RG_INLINE vreal load_segment(const box_segment *g, int tensor, int64_t i, const int n,
                             const rg_dtype T, const bool dense)
{
    const char *from = tensor < 2 ? g->in[tensor] : g->out;
    return vload_strided(from, i, g->step[tensor], n, T, dense);
}

RG_INLINE void store_segment(const box_segment *g, int64_t i, const int n, const rg_dtype T,
                             const bool dense, vreal value)
{
    if (g->add)
        value += load_segment(g, 2, i, n, T, dense);
    if (g->stream)
        vstream(g->out, i, T, value);
    else
        vstore_strided(g->out, i, g->step[2], n, T, dense, value);
}

/* Lanes from n on become 0: what follows a row are zeros. */
RG_INLINE void store_value(real *to, int64_t i, const int n, vreal value)
{
    vstore_full(to, i, RG_REAL, vkeep(value, n, 0));
}

RG_INLINE void load_sums(const box_strip *b, const box_segment *g, int64_t i, const int kinds,
                         vreal value[])
{
    for (int s = 0; s < kinds; s++)
        value[s] = vload_full(g->sum + s * b->line, i, RG_REAL);
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

/* ---- what is done with n values of a row, from i on ---- */

RG_INLINE void fill_step(box_fill *fill, const int kinds, const box_strip *b, const box_segment *g,
                         int64_t i, const int n, const rg_dtype T, const bool dense)
{
    (void)kinds, (void)b;
    store_value(g->line, i, n, fill(load_segment(g, 1, i, n, T, dense)));
}

RG_INLINE void result_step(box_result *result, const int kinds, const box_strip *b,
                           const box_segment *g, int64_t i, const int n, const rg_dtype T,
                           const bool dense)
{
    vreal value[MOMENT_KINDS];
    load_sums(b, g, i, kinds, value);
    store_segment(g, i, n, T, dense, result(b->k, load_segment(g, 1, i, n, T, dense), value));
}

RG_INLINE void middle_step(box_middle *middle, const int kinds, const box_strip *b,
                           const box_segment *g, int64_t i, const int n, const rg_dtype T,
                           const bool dense)
{
    vreal value[MOMENT_KINDS], to[MOMENT_KINDS];
    load_sums(b, g, i, kinds, value);
    const vreal dy = load_segment(g, 0, i, n, T, dense), x = load_segment(g, 1, i, n, T, dense);
    to[0] = x;
    vstore_full(g->kept, i, RG_REAL, middle(b->k, dy, x, value, to));
    for (int s = 0; s < kinds; s++)
        store_value(g->line + s * b->padded, i, n, to[s]);
}

RG_INLINE void finish_step(box_finish *finish, const int kinds, const box_strip *b,
                           const box_segment *g, int64_t i, const int n, const rg_dtype T,
                           const bool dense)
{
    vreal value[MOMENT_KINDS];
    load_sums(b, g, i, kinds, value);
    const vreal x = load_segment(g, 1, i, n, T, dense), direct = vload_full(g->kept, i, RG_REAL);
    store_segment(g, i, n, T, dense, finish(b->k, x, direct, value));
}

/* ---- rows ---- */

/* One of these steps with an op's formula, and its loop over what is left of a segment from i on,
 * or all of it where values are not contiguous: rare, so called, with a copy of the segment, which
 * itself stays in registers. */
typedef void box_step(const box_strip *b, const box_segment *g, int64_t i, const int n,
                      const rg_dtype T, const bool dense);
typedef void box_rest(const box_strip *b, box_segment g, int64_t i, rg_dtype T);

/* All values of a row; then, where these are summed over windows, the sums over columns go to
 * `to`. */
RG_INLINE void box_row(box_step *step, box_rest *rest, const int kinds, const box_strip *b,
                       int64_t row, const real *sum, real *to, const rg_dtype T)
{
    for (int64_t j = 0; j < (b->flat ? 1 : b->s->column.size); j++) {
        const box_segment g = segment_of(b, row, sum, j, T);
        int64_t i = 0;
        for (; g.dense && i + VLEN <= g.count; i += VLEN)
            step(b, &g, i, VLEN, T, true);
        if (i < g.count)
            rest(b, g, i, T);
    }
    if (to == NULL)
        return;
    if (kinds == 1)
        sum_columns(b, sum == NULL ? b->from : b->middle, to);
    else if (sum == NULL)
        join_columns(b, b->from, to);
    else
        shift_columns(b, b->middle, to);
}

/* An op's rows for one storage type, and how windows are summed over rows. */
typedef struct box_rows {
    chain_step *fill, *result, *middle, *finish;
    window_rule *first_rule, *second_rule;
} box_rows;

/* Writes the rows of one step, op_step, for a storage type; and for all of them. */
#define RG_BOX_ROW(op, kinds, part, suffix, T)                                                   \
    static void op##_##part##_row##suffix(const void *b, int64_t row, const real *sum, real *to) \
    {                                                                                            \
        box_row(op##_##part##_step, op##_##part##_rest, kinds, b, row, sum, to, T);              \
    }
#define RG_BOX_STEP(op, kinds, part)                                                             \
    RG_INLINE void op##_##part##_step(const box_strip *b, const box_segment *g, int64_t i,       \
                                      const int n, const rg_dtype T, const bool dense)           \
    {                                                                                            \
        part##_step(op##_##part, kinds, b, g, i, n, T, dense);                                   \
    }                                                                                            \
    RG_OUTLINE void op##_##part##_rest(const box_strip *b, box_segment g, int64_t i, rg_dtype T) \
    {                                                                                            \
        for (; i < g.count; i += VLEN)                                                           \
            op##_##part##_step(b, &g, i, vlanes_left(g.count - i), T, g.dense);                  \
    }                                                                                            \
    RG_BOX_TYPES(op, kinds, part)
#define RG_BOX_ROWS(op, kinds, suffix)                                           \
    {                                                                            \
        op##_fill_row##suffix, op##_result_row##suffix, op##_middle_row##suffix, \
            op##_finish_row##suffix, (kinds) == 1 ? ring_sum : ring_join,        \
            (kinds) == 1 ? ring_sum : ring_shift                                 \
    }

#if RG_REAL_F64
#define RG_BOX_TYPES(op, kinds, part) RG_BOX_ROW(op, kinds, part, _f64, RG_F64)
#define RG_BOX_ROWS_OF(op, kinds)               \
    {                                           \
        [RG_F64] = RG_BOX_ROWS(op, kinds, _f64) \
    }
#else
#define RG_BOX_TYPES(op, kinds, part)         \
    RG_BOX_ROW(op, kinds, part, _f32, RG_F32) \
    RG_BOX_ROW(op, kinds, part, _f16, RG_F16) \
    RG_BOX_ROW(op, kinds, part, _bf16, RG_BF16)
#define RG_BOX_ROWS_OF(op, kinds)                                                         \
    {                                                                                     \
        [RG_F32] = RG_BOX_ROWS(op, kinds, _f32), [RG_F16] = RG_BOX_ROWS(op, kinds, _f16), \
        [RG_BF16] = RG_BOX_ROWS(op, kinds, _bf16)                                         \
    }
#endif

/* ---- strips ---- */

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
    b->middle = b->kept = b->from; /* not used in a forward pass */
    if (!gradient)
        return;
    b->middle = memset(buffer, 0, (size_t)(kinds * l.padded) * sizeof(real));
    buffer += kinds * l.padded;
    c->second = ring_at(buffer, kinds * l.line, span->width, span->after);
    b->kept = buffer + kinds * l.ring;
}

/* Strip number i. */
RG_INLINE box_strip strip_of(const rg_box_args *a, int64_t i, const rg_dtype T)
{
    const rg_box_shape *s = &a->shape;
    const int64_t column = i / s->bands, image = column / s->blocks;
    const int64_t channel = column % s->blocks * s->block;
    box_strip b = { .s = s, .channels = least(s->block, s->channels - channel) };
    b.flat = s->dense && b.channels == s->channels;
    for (int t = 0; t < RG_BOX_TENSORS; t++)
        b.flat &= s->step[t][2] == s->channels;
    b.in[0] = at(a->dy, image * s->step[0][0] + channel * s->step[0][3], T);
    b.in[1] = at(a->x, image * s->step[1][0] + channel * s->step[1][3], T);
    b.out = at_out(a->out, image * s->step[2][0] + channel * s->step[2][3], T);
    return b;
}

/* All strips of units begin to end - 1; k: the constants of the formulas. */
RG_OUTLINE void box_units(const rg_box_args *a, const void *k, const box_rows *rows, int kinds,
                          bool gradient, int64_t begin, int64_t end, rg_dtype T)
{
    const rg_box_shape *s = &a->shape;
    const int64_t strips = s->images * s->blocks * s->bands;
    for (int64_t u = begin; u < end; u++) {
        real *const buffer = (real *)(void *)((char *)a->scratch + u * s->scratch_bytes);
        const int64_t first = strips / s->units * u + least(strips % s->units, u);
        const int64_t last = first + strips / s->units + (u < strips % s->units);
        for (int64_t i = first; i < last; i++) {
            const int64_t band = i % s->bands;
            box_strip b = strip_of(a, i, T);
            window_chain c = { .span = s->row,
                               .first_rule = rows->first_rule,
                               .second_rule = rows->second_rule,
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

/* The kernels of an op, from its formulas op_fill, op_result, op_middle and op_finish; `constants`
 * is the type that they read, cast from member `numbers` of the args. */
#define RG_BOX_KERNEL(op, kinds, constants, numbers, name, gradient)                               \
    RG_INLINE void op##_##name(const rg_box_args *a, int64_t begin, int64_t end, const rg_dtype T) \
    {                                                                                              \
        const constants k = constants##_of(&a->numbers);                                           \
        box_units(a, &k, &op##_rows[T], kinds, gradient, begin, end, T);                           \
    }                                                                                              \
    RG_KERNEL(op##_##name, rg_box_args)
#define RG_BOX_KERNELS_OF(op, kinds, constants, numbers)           \
    RG_BOX_STEP(op, kinds, fill)                                   \
    RG_BOX_STEP(op, kinds, result)                                 \
    RG_BOX_STEP(op, kinds, middle)                                 \
    RG_BOX_STEP(op, kinds, finish)                                 \
    static const box_rows op##_rows[] = RG_BOX_ROWS_OF(op, kinds); \
    RG_BOX_KERNEL(op, kinds, constants, numbers, forward, false)   \
    RG_BOX_KERNEL(op, kinds, constants, numbers, gradient, true)
#define RG_BOX_TABLE(op)                                                                   \
    {                                                                                      \
        [RG_BOX_FORWARD] = RG_ROW(op##_forward), [RG_BOX_GRADIENT] = RG_ROW(op##_gradient) \
    }

#endif
