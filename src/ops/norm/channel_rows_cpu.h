/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loops over rows of channels (ops/norm/channels.h), with numbers for each column.
 *
 * Columns are taken in pairs of vectors (simd.h). Loops that write go row by row. Those that
 * only sum take several rows at once, pair by pair, so that sums stay in registers, and ask for
 * the rows after them meanwhile. A sum goes over the rows one after the other in any case. */
#ifndef RG_OPS_NORM_CHANNEL_ROWS_CPU_H
#define RG_OPS_NORM_CHANNEL_ROWS_CPU_H

#include "backend/cpu/columns.h"
#include "ops/norm/channels.h"

enum { CHANNEL_PAIR = 2 * VLEN };

/* Numbers of the columns of a unit: a pair of vectors from any column on is whole. */
enum { CHANNEL_BUFFER = RG_CHANNEL_COLUMNS + CHANNEL_PAIR };

/* Groups of `chains` rows that are summed up before they are added to what came before. */
enum { CHANNEL_PIECE = 32 };

/* Rows that are read together, and bytes of one tensor that these take at most. */
enum { CHANNEL_ROWS = 16, CHANNEL_BYTES = 8192 };

/* Rows `begin` to `end` - 1, of which `begin` belongs to chain 0, of a block of `width` channels
 * from `first` on; `stream`: results use streaming stores. */
typedef struct channel_block {
    const rg_channels *s;
    int64_t begin, end;
    int64_t first, width;
    rg_dtype dtype;
    bool stream;
} channel_block;

/* ---- numbers of columns ---- */

/* Whether they are in the order of pairs of T (vpair_order): where every run of elements begins
 * with a whole pair of columns. Otherwise in the order of the columns. */
RG_INLINE bool any_order_of(const rg_channels *s, int64_t width)
{
    return s->dense &&
           (s->chains == 1 || (s->joined && s->blocks == 1) || width % CHANNEL_PAIR == 0);
}

/* From the order of the columns to that of pairs, or `back`. */
RG_OUTLINE void order_columns(real *values, const channel_block *b, bool back)
{
    if (b->dtype != RG_BF16 || !any_order_of(b->s, b->width))
        return;
    for (int64_t i = 0; i < b->s->chains * b->width; i += CHANNEL_PAIR) {
        const vpair p = vload_pair(values, i, RG_REAL, false);
        vstore_pair(values, i, RG_REAL, back ? velement_order(p, RG_BF16) : vpair_order(p, RG_BF16),
                    false, false);
    }
}

/* total += sum, sum = 0, for whole pairs of columns */
RG_INLINE void end_piece(real *total, real *sum, int64_t count)
{
    for (int64_t i = 0; i < count; i += CHANNEL_PAIR) {
        for (int64_t c = i; c < i + CHANNEL_PAIR; c += VLEN) {
            const vreal all = vload_full(total, c, RG_REAL) + vload_full(sum, c, RG_REAL);
            vstore_full(total, c, RG_REAL, all);
            vstore_full(sum, c, RG_REAL, vset(0));
        }
    }
}

/* ---- elements ---- */

/* One row of a block, or several that follow each other. */
typedef struct channel_run {
    const char *in[2];
    char *out;
    int64_t in_step[2], out_step; /* between channels */
    int64_t column;               /* of the first element */
    bool dense, any_order;
} channel_run;

/* The image of tensor t. */
RG_OUTLINE const void *any_image_at(const void *data, const rg_channels *s, int t, int64_t image,
                                    rg_dtype T)
{
    int64_t offsets[RG_WALK_TENSORS];
    rg_walk_offsets(&s->images, t + 1, image, offsets);
    return at(data, offsets[t], T);
}

RG_INLINE const void *image_at(const void *data, const rg_channels *s, int t, int64_t image,
                               const rg_dtype T)
{
    return s->images.rank == 1 ? at(data, image * s->images.strides[t][0], T)
                               : any_image_at(data, s, t, image, T);
}

/* The position of a row: data[] holds what is read, and as the last one, where it `writes`, what
 * is written. */
RG_INLINE channel_run run_at(const rg_channels *s, const void *const data[], const int tensors,
                             const bool writes, int64_t row, int64_t first, const rg_dtype T)
{
    const int last = tensors - 1;
    channel_run r = { .dense = s->dense };
    int64_t offset[RG_WALK_TENSORS];
    rg_walk_offsets(&s->rows, tensors, row, offset);
    for (int t = 0; t < (writes ? last : tensors); t++) {
        r.in[t] = at(data[t], offset[t] + first * s->step[t], T);
        r.in_step[t] = s->step[t];
    }
    if (writes) {
        r.out = at_out((void *)(uintptr_t)data[last], offset[last] + first * s->step[last], T);
        r.out_step = s->step[last];
    }
    return r;
}

/* n elements of a pair, from `data` on; 0 after them. */
RG_INLINE vpair load_some(const char *data, int64_t step, const int n, const rg_dtype T, bool dense,
                          bool any_order)
{
    if (dense && n == CHANNEL_PAIR)
        return vload_pair(data, 0, T, any_order);
    const int first = n < VLEN ? n : VLEN;
    vpair p = { load_groups(data, step, first, T, dense), vset(0) };
    if (n > VLEN)
        p.b = load_groups(at(data, dense ? VLEN : VLEN * step, T), step, n - VLEN, T, dense);
    return any_order ? vpair_order(p, T) : p;
}

RG_INLINE void store_some(char *data, int64_t step, const int n, const rg_dtype T, bool dense,
                          bool any_order, vpair value)
{
    if (dense && n == CHANNEL_PAIR) {
        vstore_pair(data, 0, T, value, any_order, false);
        return;
    }
    const int first = n < VLEN ? n : VLEN;
    const vpair p = any_order ? velement_order(value, T) : value;
    store_groups(data, step, first, T, dense, p.a);
    if (n > VLEN)
        store_groups(at_out(data, dense ? VLEN : VLEN * step, T), step, n - VLEN, T, dense, p.b);
}

/* p, and 0 where a pair of n elements has none. */
RG_INLINE vpair keep_some(vpair p, const int n, const rg_dtype T, bool any_order)
{
    if (n == CHANNEL_PAIR)
        return p;
    const bool mixed = any_order && T == RG_BF16;
    const vint first = mixed ? vlanes() * 2 : vlanes(), second = first + (mixed ? 1 : VLEN);
    return (vpair){ vselect(first < (intr)n, p.a, vset(0)),
                    vselect(second < (intr)n, p.b, vset(0)) };
}

/* ---- loops ---- */

RG_INLINE int64_t rows_together(int64_t width, const rg_dtype T)
{
    const int64_t rows = CHANNEL_BYTES / (width * (vbytes(T) / VLEN));
    return rows < 1 ? 1 : least(rows, CHANNEL_ROWS);
}

RG_INLINE bool run_aligned(const channel_run *r)
{
    return ((uintptr_t)r->out & (RG_VECTOR_BYTES - 1)) == 0;
}

/* Prefetches the elements that the same columns have after `rows` rows, or, where rows follow
 * each other, as many neighbours: memory is read in long runs while the rows are read in
 * columns. */
RG_INLINE void fetch_ahead(const channel_run *r, int rows, const int tensors, int64_t i,
                           int64_t count, const rg_dtype T)
{
    const int bytes = 2 * vbytes(T);
    for (int t = 0; t < tensors; t++) {
        const int64_t row = r[1].in[t] - r[0].in[t], far = rows * row;
        const bool joined = row == count * (vbytes(T) / VLEN);
        const uintptr_t from = (uintptr_t)r[0].in[t] + (uintptr_t)far;
        const int64_t begin = i * (vbytes(T) / VLEN) * (joined ? rows : 1);
        const int64_t step = joined ? bytes : row;
        for (int j = 0; j < rows; j++)
            for (int line = 0; line < bytes; line += 64)
                __builtin_prefetch((const void *)(from + (uintptr_t)(begin + j * step + line)), 0,
                                   2);
    }
}

/* Elements i to i + n - 1 of `rows` runs, whose columns begin at r->column + i. `whole`: n is
 * CHANNEL_PAIR, elements are neighbours, and the order is any. */
typedef struct channel_pair {
    int64_t i;
    int n, rows, variant;
    bool whole, stream;
} channel_pair;

/* The elements of a pair in tensor t of a run. */
RG_INLINE vpair load_channels(const channel_run *r, int t, channel_pair p, const rg_dtype T)
{
    if (p.whole)
        return vload_pair(r->in[t], p.i, T, true);
    return load_some(at(r->in[t], r->dense ? p.i : p.i * r->in_step[t], T), r->in_step[t], p.n, T,
                     r->dense, r->any_order);
}

RG_INLINE void store_channels(const channel_run *r, channel_pair p, const rg_dtype T, bool add,
                              vpair value)
{
    if (p.whole) {
        vstore_sums(r->out, p.i, T, value, p.stream);
        return;
    }
    char *to = at_out(r->out, r->dense ? p.i : p.i * r->out_step, T);
    if (add) {
        const vpair old = load_some(to, r->out_step, p.n, T, r->dense, r->any_order);
        value.a += old.a;
        value.b += old.b;
    }
    store_some(to, r->out_step, p.n, T, r->dense, r->any_order, value);
}

/* What is done with a pair: an inline function, and a constant wherever it is passed. */
typedef void channel_step(void *context, const channel_run *r, channel_pair p, rg_dtype T);

/* One run of `count` elements, from element i on: rare, so called, for any type and variant. */
typedef void channel_rest(void *context, const channel_run *r, int64_t i, int64_t count, rg_dtype T,
                          int variant);

/* Tensors that a step touches, and whether it writes the last one. Variants below `variants`, at
 * most 2, have loops of their own for whole pairs. */
typedef struct channel_loop {
    int tensors, variants;
    bool writes;
} channel_loop;

RG_INLINE void channel_rest_of(channel_step *step, void *context, const channel_run *r, int64_t i,
                               int64_t count, rg_dtype T, int variant)
{
    for (; i < count; i += CHANNEL_PAIR)
        step(context, r,
             (channel_pair){ i, (int)least(CHANNEL_PAIR, count - i), 1, variant, false, false }, T);
}

/* Whole pairs of runs; returns how many elements of each these are. */
RG_INLINE int64_t channel_pairs(channel_step *step, const channel_loop loop, void *context,
                                const channel_run *r, int64_t count, channel_pair p,
                                const rg_dtype T)
{
    const channel_run own = *r; /* which no store can change */
    for (; p.i + CHANNEL_PAIR <= count; p.i += CHANNEL_PAIR) {
        if (!loop.writes && p.rows > 1)
            fetch_ahead(r, p.rows, loop.tensors, p.i, count, T);
        step(context, loop.writes ? &own : r, p, T);
    }
    return p.i;
}

/* `rows` runs of `count` elements each. */
RG_INLINE void channel_runs(channel_step *step, channel_rest *rest, const channel_loop loop,
                            void *context, const channel_run *r, int64_t count, channel_pair p,
                            const rg_dtype T)
{
    const int rows = p.rows, variant = p.variant;
    int64_t done = 0;
    p.rows = loop.writes ? 1 : rows;
    if (r->any_order && variant == 0)
        done = channel_pairs(step, loop, context, r, count,
                             (channel_pair){ 0, CHANNEL_PAIR, p.rows, 0, true, p.stream }, T);
    else if (r->any_order && variant == 1 && loop.variants == 2)
        done = channel_pairs(step, loop, context, r, count,
                             (channel_pair){ 0, CHANNEL_PAIR, p.rows, 1, true, p.stream }, T);
    for (int j = 0; j < rows && done < count; j++)
        rest(context, &r[j], done, count, T, variant);
}

/* All rows of a block; data[] holds what is read, and as the last one what is written. */
RG_INLINE void channel_rows(channel_step *step, channel_rest *rest, const channel_loop loop,
                            void *context, const channel_block *b, const void *const data[],
                            int variant, const rg_dtype T)
{
    const rg_channels *s = b->s;
    const bool any_order = any_order_of(s, b->width), together = s->joined && s->blocks == 1;
    const int64_t width = together ? s->chains * b->width : b->width;
    const int64_t most = loop.writes || (s->chains > 1 && !together) ? 1 : rows_together(width, T);
    for (int64_t row = b->begin, rows; row < b->end; row += rows * s->chains) {
        const int64_t all = least(s->chains, b->end - row), taken = together ? all : 1;
        const int64_t whole = most > 1 ? least(most, (b->end - row) / s->chains) : 1;
        rows = whole > 0 ? whole : 1;
        for (int64_t chain = 0; chain < all; chain += taken) {
            channel_run r[CHANNEL_ROWS];
            for (int64_t j = 0; j < (loop.writes ? 1 : rows); j++) {
                const int64_t at_row = row + j * s->chains + chain;
                r[j] = run_at(s, data, loop.tensors, loop.writes, at_row, b->first, T);
                r[j].column = chain * b->width;
                r[j].any_order = any_order;
            }
            const bool stream = loop.writes && b->stream && run_aligned(r);
            channel_runs(step, rest, loop, context, r, taken * b->width,
                         (channel_pair){ .rows = (int)rows, .variant = variant, .stream = stream },
                         T);
        }
    }
}

#endif
