/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalisations by what is in windows of rows and columns, see core/box.h. A strip is gone down
 * row by row: a row is loaded with zeros at its ends, summed over columns, and put into a ring of
 * as many rows as a window has; see windows.h. So memory sees each row once, or from the second
 * cache. */
#ifndef RG_CPU_BOXES_H
#define RG_CPU_BOXES_H

#include "backend/cpu/windows.h"
#include "core/box.h"

/* Where sums are about r: r, and the shares of a window that are inside and outside of the image.
 * Such an op is given x - r for x. */
typedef struct box_spot {
    vreal r, inside, outside;
} box_spot;

/* What an op does with a vector. fill gives the values that are summed; forward makes a result
 * from x and the sums; middle does so for the gradient: it returns what goes to dx at the same
 * place and gives values to be summed over the mirrored window; finish joins both. */
typedef void box_fill(vreal x, vreal to[2]);
typedef vreal box_forward(const void *k, vreal x, box_spot spot, const vreal sum[2]);
typedef vreal box_middle(const void *k, vreal dy, vreal x, box_spot spot, const vreal sum[2],
                         vreal to[2]);
typedef vreal box_finish(const void *k, vreal x, vreal direct, const vreal sum[2]);

/* One strip. Tensors: dy, x, the result, at the strip's first channel of its image. */
typedef struct box_strip {
    const rg_box_shape *s;
    const void *k;
    const char *in[2];
    char *out;
    const int64_t *step[RG_BOX_TENSORS];
    int64_t channels;
    bool flat;                 /* rows are contiguous in all tensors */
    real *from[2], *middle[2]; /* padded rows of what is summed */
    real *kept;
    int64_t line;
    window_ring across;
    real *across_sum;
    real *about, *met; /* r of each value of a row; columns of its window that are in the image */
} box_strip;

/* ---- rows, run by run: one pixel, or the whole row where that is contiguous ---- */

typedef struct box_run {
    const char *in[2];
    char *out;
    int64_t begin, count; /* values of the row */
    real inside, outside; /* spot_of: what columns in the image count for */
    int64_t step[RG_BOX_TENSORS];
    bool dense, add, stream;
} box_run;

RG_INLINE int64_t runs_of(const box_strip *b)
{
    return b->flat ? 1 : b->s->column.size;
}

RG_INLINE box_run run_of(const box_strip *b, int64_t row, int64_t column, const rg_dtype T)
{
    const int64_t rows = rg_box_met(&b->s->row, row);
    box_run r = { .begin = column * b->channels,
                  .count = b->flat ? b->s->column.size * b->channels : b->channels,
                  .dense = b->s->dense,
                  .add = b->s->add,
                  .inside = (real)((double)rows * b->s->each[1]),
                  .outside = (real)((double)(b->s->window[0] - rows) * b->s->each[1]) };
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
    return r->dense ? vload(from, i, n, T) : vgather(from, i, r->step[tensor], n, T);
}

/* x, or x - r. */
RG_INLINE vreal load_x(const box_strip *b, const box_run *r, int64_t i, const int n,
                       const int kinds, const rg_dtype T)
{
    const vreal x = load_run(r, 1, i, n, T);
    return kinds == RG_BOX_MOMENTS ? x - vload_full(b->about, r->begin + i, RG_REAL) : x;
}

/* outside is (columns outside) / columns + (columns inside) (rows outside) / pixels: nothing is
 * subtracted but whole numbers, so it is 0 where all of the window is inside. */
RG_INLINE box_spot spot_of(const box_strip *b, const box_run *r, int64_t i, const int kinds)
{
    if (kinds != RG_BOX_MOMENTS)
        return (box_spot){ vset(0), vset(0), vset(0) };
    const vreal met = vload_full(b->met, r->begin + i, RG_REAL);
    const vreal missed = vset((real)b->s->window[1]) - met;
    return (box_spot){ vload_full(b->about, r->begin + i, RG_REAL), met * vset(r->inside),
                       vfma(missed, vset((real)b->s->each[0]), met * vset(r->outside)) };
}

RG_INLINE void store_run(const box_run *r, int64_t i, const int n, const rg_dtype T, vreal value)
{
    if (r->add)
        value += load_run(r, 2, i, n, T);
    if (r->stream)
        vstream(r->out, i, T, value);
    else if (r->dense)
        vstore(r->out, i, n, T, value);
    else
        vscatter(r->out, i, r->step[2], n, T, value);
}

/* Lanes from n on become 0: what follows a row are zeros. */
RG_INLINE void store_values(real *const to[2], int64_t i, const int n, const int kinds,
                            const vreal value[2])
{
    for (int s = 0; s < kinds; s++)
        vstore_full(to[s], i, RG_REAL, vkeep(value[s], n, 0));
}

RG_INLINE void load_sums(real *const sum[2], int64_t i, const int kinds, vreal value[2])
{
    for (int s = 0; s < kinds; s++)
        value[s] = vload_full(sum[s], i, RG_REAL);
}

/* ---- sums over columns ---- */

RG_OUTLINE void sum_columns_blocks(const box_strip *b, const real *from, real *to)
{
    const rg_span *span = &b->s->column;
    window_ring ring = b->across;
    const size_t bytes = (size_t)b->channels * sizeof(real);
    for (int64_t t = 0; t < span->size + span->width - 1; t++) {
        const int64_t position = t - (span->width - 1);
        memcpy(ring_next(&ring), from + t * b->channels, bytes);
        ring_sum(&ring, position >= 0 ? b->across_sum : NULL);
        if (position >= 0)
            memcpy(to + position * b->channels, b->across_sum, bytes);
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
        sum_columns_blocks(b, from, to);
    else if (width == 5)
        sum_columns_direct(b, from, to, 5);
    else if (width == 3)
        sum_columns_direct(b, from, to, 3);
    else
        sum_columns_direct(b, from, to, width);
}

/* ---- what is done with a row ---- */

RG_INLINE void fill_row(box_fill *fill, const int kinds, const box_strip *b, int64_t row,
                        real *const to[2], const rg_dtype T)
{
    const int64_t lead = b->s->column.before * b->channels;
    for (int64_t j = 0; j < runs_of(b); j++) {
        const box_run r = run_of(b, row, j, T);
        real *const line[2] = { b->from[0] + lead + r.begin, b->from[kinds - 1] + lead + r.begin };
        vreal value[2];
        int64_t i = 0;
        for (; i + VLEN <= r.count; i += VLEN) {
            fill(load_x(b, &r, i, VLEN, kinds, T), value);
            store_values(line, i, VLEN, kinds, value);
        }
        if (i < r.count) {
            const int n = (int)(r.count - i);
            fill(load_x(b, &r, i, n, kinds, T), value);
            store_values(line, i, n, kinds, value);
        }
    }
    for (int s = 0; s < kinds; s++)
        sum_columns(b, b->from[s], to[s]);
}

RG_INLINE void forward_step(box_forward *forward, const int kinds, const box_strip *b,
                            const box_run *r, real *const sum[2], int64_t i, const int n,
                            const rg_dtype T)
{
    vreal value[2];
    load_sums(sum, r->begin + i, kinds, value);
    const vreal x = load_x(b, r, i, n, kinds, T);
    store_run(r, i, n, T, forward(b->k, x, spot_of(b, r, i, kinds), value));
}

RG_INLINE void forward_row(box_forward *forward, const int kinds, const box_strip *b, int64_t row,
                           real *const sum[2], const rg_dtype T)
{
    for (int64_t j = 0; j < runs_of(b); j++) {
        const box_run r = run_of(b, row, j, T);
        int64_t i = 0;
        for (; i + VLEN <= r.count; i += VLEN)
            forward_step(forward, kinds, b, &r, sum, i, VLEN, T);
        if (i < r.count)
            forward_step(forward, kinds, b, &r, sum, i, (int)(r.count - i), T);
    }
}

RG_INLINE real *kept_row(const box_strip *b, int64_t row)
{
    return b->kept + row % (b->s->row.before + 1) * b->line;
}

RG_INLINE void middle_step(box_middle *middle, const int kinds, const box_strip *b,
                           const box_run *r, real *const sum[2], real *const line[2], real *kept,
                           int64_t i, const int n, const rg_dtype T)
{
    vreal value[2], to[2];
    load_sums(sum, r->begin + i, kinds, value);
    const vreal dy = load_run(r, 0, i, n, T), x = load_x(b, r, i, n, kinds, T);
    vstore_full(kept, i, RG_REAL, middle(b->k, dy, x, spot_of(b, r, i, kinds), value, to));
    store_values(line, i, n, kinds, to);
}

RG_INLINE void middle_row(box_middle *middle, const int kinds, const box_strip *b, int64_t row,
                          real *const sum[2], real *const to[2], const rg_dtype T)
{
    const int64_t lead = b->s->column.after * b->channels; /* the mirrored window */
    for (int64_t j = 0; j < runs_of(b); j++) {
        const box_run r = run_of(b, row, j, T);
        real *const line[2] = { b->middle[0] + lead + r.begin,
                                b->middle[kinds - 1] + lead + r.begin };
        real *const kept = kept_row(b, row) + r.begin;
        int64_t i = 0;
        for (; i + VLEN <= r.count; i += VLEN)
            middle_step(middle, kinds, b, &r, sum, line, kept, i, VLEN, T);
        if (i < r.count)
            middle_step(middle, kinds, b, &r, sum, line, kept, i, (int)(r.count - i), T);
    }
    for (int s = 0; s < kinds; s++)
        sum_columns(b, b->middle[s], to[s]);
}

RG_INLINE void finish_step(box_finish *finish, const int kinds, const box_strip *b,
                           const box_run *r, real *const sum[2], const real *kept, int64_t i,
                           const int n, const rg_dtype T)
{
    vreal value[2];
    load_sums(sum, r->begin + i, kinds, value);
    const vreal x = load_x(b, r, i, n, kinds, T), direct = vload_full(kept, i, RG_REAL);
    store_run(r, i, n, T, finish(b->k, x, direct, value));
}

RG_INLINE void finish_row(box_finish *finish, const int kinds, const box_strip *b, int64_t row,
                          real *const sum[2], const rg_dtype T)
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

/* ---- the number that sums are about ---- */

/* Pixel k, or `other` where it will not do. */
RG_INLINE vreal sample_about(const box_strip *b, int k, vreal other, int64_t i, const int n,
                             const rg_dtype T)
{
    const int64_t row = rg_box_sample(b->s->row.size, k);
    const int64_t column = rg_box_sample(b->s->column.size, k);
    const void *from = at(b->in[1], row * b->step[1][1] + column * b->step[1][2], T);
    const vreal x = b->s->dense ? vload(from, i, n, T) : vgather(from, i, b->step[1][3], n, T);
    return vselect(vabs(x) <= vset((real)RG_BOX_LARGE), x, other);
}

RG_INLINE void choose_about(const box_strip *b, int64_t i, const int n, const rg_dtype T)
{
    vreal any = vset(0);
    for (int k = 2; k >= 0; k--)
        any = sample_about(b, k, any, i, n, T);
    const vreal p = sample_about(b, 1, any, i, n, T), q = sample_about(b, 2, any, i, n, T);
    const vreal high = vmin(vmax(p, q), any); /* any is pixel 0, if that will do */
    vstore(b->about, i, n, RG_REAL, vmax(vmin(p, q), high));
}

RG_INLINE void fill_about(const int kinds, const box_strip *b, const rg_dtype T)
{
    if (kinds != RG_BOX_MOMENTS)
        return;
    int64_t i = 0;
    for (; i + VLEN <= b->channels; i += VLEN)
        choose_about(b, i, VLEN, T);
    if (i < b->channels)
        choose_about(b, i, (int)(b->channels - i), T);
    for (int64_t j = 0; j < b->s->column.size; j++) {
        const real met = (real)rg_box_met(&b->s->column, j);
        for (int64_t c = 0; c < b->channels; c++) {
            b->about[j * b->channels + c] = b->about[c];
            b->met[j * b->channels + c] = met;
        }
    }
}

/* ---- strips ---- */

/* An op's rows for one storage type: RG_BOX_ROWS makes them from its formulas, and a table of
 * them by dtype. */
typedef struct box_rows {
    void (*about)(const box_strip *b);
    chain_fill *fill;
    chain_finish *forward;
    chain_middle *middle;
    chain_finish *finish;
} box_rows;

#define RG_BOX_ROWS_OF(op, kinds, suffix, T)                                             \
    static void op##_about##suffix(const box_strip *b)                                   \
    {                                                                                    \
        fill_about(kinds, b, T);                                                         \
    }                                                                                    \
    static void op##_fill_row##suffix(const void *b, int64_t row, real *const to[2])     \
    {                                                                                    \
        fill_row(op##_fill, kinds, b, row, to, T);                                       \
    }                                                                                    \
    static void op##_forward_row##suffix(const void *b, int64_t row, real *const sum[2]) \
    {                                                                                    \
        forward_row(op##_result, kinds, b, row, sum, T);                                 \
    }                                                                                    \
    static void op##_middle_row##suffix(const void *b, int64_t row, real *const sum[2],  \
                                        real *const to[2])                               \
    {                                                                                    \
        middle_row(op##_middle, kinds, b, row, sum, to, T);                              \
    }                                                                                    \
    static void op##_finish_row##suffix(const void *b, int64_t row, real *const sum[2])  \
    {                                                                                    \
        finish_row(op##_finish, kinds, b, row, sum, T);                                  \
    }

#define RG_BOX_ROW(op, suffix)                                               \
    {                                                                        \
        op##_about##suffix, op##_fill_row##suffix, op##_forward_row##suffix, \
            op##_middle_row##suffix, op##_finish_row##suffix                 \
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
RG_INLINE void place_lines(box_strip *b, window_chain *c, real *room, const int kinds,
                           bool gradient)
{
    const rg_box_lines l = rg_box_lines_of(b->s);
    const int64_t width = b->s->row.width;
    b->line = l.line;
    for (int s = 0; s < kinds; s++) {
        b->from[s] = memset(room, 0, (size_t)l.padded * sizeof(real));
        c->first[s] = ring_at(room + l.padded, l.line, width);
        c->sum[s] = room + l.padded + l.ring;
        room += l.padded + l.ring + l.line;
    }
    b->across = ring_at(room, l.pixel, b->s->column.width);
    b->across_sum = room + (b->s->column.width + 1) * l.pixel;
    room += l.across;
    if (kinds == RG_BOX_MOMENTS) {
        b->about = memset(room, 0, (size_t)(2 * l.line) * sizeof(real));
        b->met = b->about + l.line;
        room += 2 * l.line;
    }
    for (int s = 0; s < kinds && gradient; s++) {
        b->middle[s] = memset(room, 0, (size_t)l.padded * sizeof(real));
        c->second[s] = ring_at(room + l.padded, l.line, width);
        room += l.padded + l.ring;
    }
    b->kept = room;
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
        real *const room = (real *)(void *)((char *)scratch + u * s->room);
        const int64_t first = strips / s->units * u + least(strips % s->units, u);
        const int64_t last = first + strips / s->units + (u < strips % s->units);
        for (int64_t i = first; i < last; i++) {
            int64_t band;
            box_strip b = strip_of(s, in, out, gradient, i, T, &band);
            window_chain c = { .span = s->row,
                               .kinds = kinds,
                               .begin = band * s->band,
                               .end = least((band + 1) * s->band, s->row.size) };
            b.k = k;
            place_lines(&b, &c, room, kinds, gradient);
            rows->about(&b);
            if (gradient)
                chain_gradient(&c, &b, rows->fill, rows->middle, rows->finish);
            else
                chain_forward(&c, &b, rows->fill, rows->forward);
        }
    }
}

#endif
