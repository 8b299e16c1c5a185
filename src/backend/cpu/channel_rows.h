/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loops over rows of channels (core/channels.h), with numbers for each column. */
#ifndef RG_CPU_CHANNEL_ROWS_H
#define RG_CPU_CHANNEL_ROWS_H

#include "backend/cpu/columns.h"
#include "core/channels.h"

/* Numbers of the columns of a unit: a vector from any column on is whole. */
enum { CHANNEL_ROOM = RG_CHANNEL_COLUMNS + VLEN };

/* Groups of `lanes` rows that are summed up before they are added to what came before. */
enum { CHANNEL_PIECE = 32 };

/* One row of a block, or several that follow each other. */
typedef struct channel_run {
    const char *in[2];
    char *out;
    int64_t in_step[2], out_step; /* between channels */
    int64_t column;               /* of the first element */
    bool dense;
} channel_run;

RG_INLINE vreal load_channels(const channel_run *r, int t, int64_t i, const int n, const rg_dtype T,
                              const bool dense)
{
    return load_groups(at(r->in[t], i * (dense ? 1 : r->in_step[t]), T), r->in_step[t], n, T,
                       dense);
}

RG_INLINE void store_channels(const channel_run *r, int64_t i, const int n, const rg_dtype T,
                              bool add, const bool dense, const bool stream, vreal value)
{
    char *to = at_out(r->out, i * (dense ? 1 : r->out_step), T);
    if (add)
        value += load_groups(to, r->out_step, n, T, dense);
    if (stream)
        vstream(r->out, i, T, value);
    else
        store_groups(to, r->out_step, n, T, dense, value);
}

/* total += sum, sum = 0 */
RG_INLINE void end_piece(real *total, real *sum, int64_t count)
{
    for (int64_t i = 0; i < count; i += VLEN) {
        vstore_full(total, i, RG_REAL, vload_full(total, i, RG_REAL) + vload_full(sum, i, RG_REAL));
        vstore_full(sum, i, RG_REAL, vset(0));
    }
}

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

/* Loops over name_step(context, r, i, n, T, dense, stream, variant), an inline function that treats
 * elements i to i + n - 1 of a run, whose columns begin at r->column + i. `stream`: a whole vector,
 * whose result goes past the cache. Variants are loops of their own: `variant` is a constant where
 * whole vectors of neighbours are treated. The others are called:
 *
 *      name_part       one vector of any kind
 *      name_elements   a run of `count` elements
 *      name_rows       rows begin to end - 1, of which `begin` belongs to lane 0, in a block of
 *                      `width` channels from `first` on */
#define RG_CHANNEL_LOOPS(name, context_type, tensors, writes)                                  \
    RG_OUTLINE void name##_part(context_type *context, const channel_run *r, int64_t i, int n, \
                                rg_dtype T, int variant)                                       \
    {                                                                                          \
        name##_step(context, r, i, n, T, r->dense, false, variant);                            \
    }                                                                                          \
    RG_INLINE void name##_elements(context_type *context, const channel_run *r, int64_t count, \
                                   const rg_dtype T, bool stream, const int variant)           \
    {                                                                                          \
        const channel_run own = *r; /* which no store can change */                            \
        int64_t i = 0;                                                                         \
        if (stream) {                                                                          \
            const int64_t head = least(vhead(r->out, T), count);                               \
            for (; i < head; i += VLEN)                                                        \
                name##_part(context, r, i, vlanes_left(head - i), T, variant);                 \
            for (i = head; i + VLEN <= count; i += VLEN)                                       \
                name##_step(context, &own, i, VLEN, T, true, true, variant);                   \
        }                                                                                      \
        for (; own.dense && i + VLEN <= count; i += VLEN)                                      \
            name##_step(context, &own, i, VLEN, T, true, false, variant);                      \
        for (; i < count; i += VLEN)                                                           \
            name##_part(context, r, i, vlanes_left(count - i), T, variant);                    \
    }                                                                                          \
    RG_INLINE void name##_rows(context_type *context, const rg_channels *s,                    \
                               const void *const data[], int64_t begin, int64_t end,           \
                               int64_t first, int64_t width, const rg_dtype T, bool stream,    \
                               const int variant)                                              \
    {                                                                                          \
        for (int64_t row = begin, all; row < end; row += all) {                                \
            all = least(s->lanes, end - row);                                                  \
            const int64_t taken = s->joined && s->blocks == 1 ? all : 1;                       \
            for (int64_t lane = 0; lane < all; lane += taken) {                                \
                channel_run r = run_at(s, data, tensors, writes, row + lane, first, T);        \
                r.column = lane * width;                                                       \
                name##_elements(context, &r, taken *width, T, stream, variant);                \
            }                                                                                  \
        }                                                                                      \
    }

#endif
