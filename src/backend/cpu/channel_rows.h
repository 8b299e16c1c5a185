/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loops over rows of channels (core/channels.h), with numbers for each column.
 *
 * Columns are taken in pairs of vectors (simd.h), and rows four at a time, so that the numbers of
 * a pair of columns are loaded once for four rows. A sum goes over the rows one after the other,
 * whoever takes them. */
#ifndef RG_CPU_CHANNEL_ROWS_H
#define RG_CPU_CHANNEL_ROWS_H

#include "backend/cpu/columns.h"
#include "core/channels.h"

enum { CHANNEL_PAIR = 2 * VLEN, CHANNEL_ROWS = 4 };

/* Numbers of the columns of a unit: a pair of vectors from any column on is whole. */
enum { CHANNEL_ROOM = RG_CHANNEL_COLUMNS + CHANNEL_PAIR };

/* Groups of `lanes` rows that are summed up before they are added to what came before. */
enum { CHANNEL_PIECE = 32 };

/* ---- numbers of columns ---- */

/* Whether they stand in the order of pairs of T (vpair_order): where every run of elements begins
 * with a whole pair of columns. Otherwise in the order of the columns. */
RG_INLINE bool any_order_of(const rg_channels *s, int64_t width)
{
    return s->dense &&
           (s->lanes == 1 || (s->joined && s->blocks == 1) || width % CHANNEL_PAIR == 0);
}

/* From the order of the columns to that of pairs, or `back`. */
RG_OUTLINE void order_columns(real *values, int64_t count, rg_dtype T, bool any_order, bool back)
{
    if (!any_order || T != RG_BF16)
        return;
    for (int64_t i = 0; i < count; i += CHANNEL_PAIR) {
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

/* Where a row stands: data[] holds what is read, and as the last one, where it `writes`, what is
 * written. */
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

/* n elements of a pair, from `data` on; 0 behind them. */
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

/* Elements i to i + n - 1 of tensor t of a run. `whole`: a pair of neighbours. */
RG_INLINE vpair load_channels(const channel_run *r, int t, int64_t i, const int n, const rg_dtype T,
                              const bool whole)
{
    if (whole)
        return vload_pair(r->in[t], i, T, true);
    return load_some(at(r->in[t], r->dense ? i : i * r->in_step[t], T), r->in_step[t], n, T,
                     r->dense, r->any_order);
}

RG_INLINE void store_channels(const channel_run *r, int64_t i, const int n, const rg_dtype T,
                              bool add, const bool whole, bool stream, vpair value)
{
    if (whole) {
        vstore_pair(r->out, i, T, value, true, stream);
        return;
    }
    char *to = at_out(r->out, r->dense ? i : i * r->out_step, T);
    if (add) {
        const vpair old = load_some(to, r->out_step, n, T, r->dense, r->any_order);
        value.a += old.a;
        value.b += old.b;
    }
    store_some(to, r->out_step, n, T, r->dense, r->any_order, value);
}

/* ---- loops ---- */

RG_INLINE bool runs_aligned(const channel_run r[CHANNEL_ROWS])
{
    uintptr_t bits = 0;
    for (int j = 0; j < CHANNEL_ROWS; j++)
        bits |= (uintptr_t)r[j].out;
    return (bits & (RG_VECTOR_BYTES - 1)) == 0;
}

/* Loops over name_step(context, r, rows, i, n, T, whole, stream, variant), an inline function that
 * treats elements i to i + n - 1 of `rows` runs, whose columns begin at r->column + i. `whole`:
 * n is CHANNEL_PAIR, elements are neighbours, and the order is any. `stream`: the result goes past
 * the cache.
 *
 * Variants below `variants`, at most 2, have loops of their own for whole pairs of four rows; all
 * else is called:
 *
 *      name_run        one run of `count` elements, from element i on
 *      name_pairs      whole pairs of four runs; returns how many elements of each these are
 *      name_rows       rows begin to end - 1, of which `begin` belongs to lane 0, in a block of
 *                      `width` channels from `first` on */
#define RG_CHANNEL_LOOPS(name, context_type, tensors, writes, variants)                           \
    RG_OUTLINE void name##_run(context_type *context, const channel_run *r, int64_t i,            \
                               int64_t count, rg_dtype T, int variant)                            \
    {                                                                                             \
        for (; i < count; i += CHANNEL_PAIR)                                                      \
            name##_step(context, r, 1, i, (int)least(CHANNEL_PAIR, count - i), T, false, false,   \
                        variant);                                                                 \
    }                                                                                             \
    RG_INLINE int64_t name##_pairs(context_type *context, const channel_run r[CHANNEL_ROWS],      \
                                   int64_t count, const rg_dtype T, bool stream,                  \
                                   const int variant)                                             \
    {                                                                                             \
        const channel_run own[] = { r[0], r[1], r[2], r[3] }; /* which no store can change */     \
        int64_t i = 0;                                                                            \
        for (; i + CHANNEL_PAIR <= count; i += CHANNEL_PAIR)                                      \
            name##_step(context, own, CHANNEL_ROWS, i, CHANNEL_PAIR, T, true, stream, variant);   \
        return i;                                                                                 \
    }                                                                                             \
    RG_INLINE void name##_rows(                                                                   \
        context_type *context, const rg_channels *s, const void *const data[], int64_t begin,     \
        int64_t end, int64_t first, int64_t width, const rg_dtype T, bool stream, int variant)    \
    {                                                                                             \
        const bool any_order = any_order_of(s, width);                                            \
        const bool together = s->joined && s->blocks == 1;                                        \
        for (int64_t row = begin, rows; row < end; row += rows * s->lanes) {                      \
            rows = any_order && end - row >= CHANNEL_ROWS * s->lanes ? CHANNEL_ROWS : 1;          \
            const int64_t all = least(s->lanes, end - row), taken = together ? all : 1;           \
            for (int64_t lane = 0; lane < all; lane += taken) {                                   \
                const int64_t count = taken * width;                                              \
                int64_t done = 0;                                                                 \
                channel_run r[CHANNEL_ROWS];                                                      \
                for (int64_t j = 0; j < rows; j++) {                                              \
                    r[j] = run_at(s, data, tensors, writes, row + j * s->lanes + lane, first, T); \
                    r[j].column = lane * width;                                                   \
                    r[j].any_order = any_order;                                                   \
                }                                                                                 \
                const bool past = (writes) && stream && rows > 1 && runs_aligned(r);              \
                if (rows > 1 && variant == 0)                                                     \
                    done = name##_pairs(context, r, count, T, past, 0);                           \
                else if (rows > 1 && variant == 1 && (variants) == 2)                             \
                    done = name##_pairs(context, r, count, T, past, 1);                           \
                for (int64_t j = 0; j < rows && done < count; j++)                                \
                    name##_run(context, &r[j], done, count, T, variant);                          \
            }                                                                                     \
        }                                                                                         \
    }

#endif
