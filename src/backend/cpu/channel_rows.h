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

/* What is done with elements i to i + n - 1 of a run, whose columns begin at r->column + i.
 * `stream`: a whole vector, and its result goes past the cache. */
typedef void channel_step(void *context, const channel_run *r, int64_t i, const int n,
                          const rg_dtype T, const bool stream);

RG_INLINE vreal load_channels(const channel_run *r, int t, int64_t i, const int n, const rg_dtype T)
{
    return load_groups(at(r->in[t], i * r->in_step[t], T), r->in_step[t], n, T, r->dense);
}

RG_INLINE void store_channels(const channel_run *r, int64_t i, const int n, const rg_dtype T,
                              bool add, const bool stream, vreal value)
{
    char *to = at_out(r->out, i * r->out_step, T);
    if (add)
        value += load_groups(to, r->out_step, n, T, r->dense);
    if (stream)
        vstream(r->out, i, T, value);
    else
        store_groups(to, r->out_step, n, T, r->dense, value);
}

/* total += sum, sum = 0 */
RG_INLINE void end_piece(real *total, real *sum, int64_t count)
{
    for (int64_t i = 0; i < count; i += VLEN) {
        vstore_full(total, i, RG_REAL, vload_full(total, i, RG_REAL) + vload_full(sum, i, RG_REAL));
        vstore_full(sum, i, RG_REAL, vset(0));
    }
}

RG_INLINE void channel_elements(channel_step *step, void *context, const channel_run *r,
                                int64_t count, const rg_dtype T, bool stream)
{
    int64_t i = 0;
    if (stream) {
        const int64_t head = least(vhead(r->out, T), count);
        for (; i < head; i += VLEN)
            step(context, r, i, vlanes_left(head - i), T, false);
        for (i = head; i + VLEN <= count; i += VLEN)
            step(context, r, i, VLEN, T, true);
    }
    for (; i + VLEN <= count; i += VLEN)
        step(context, r, i, VLEN, T, false);
    if (i < count)
        step(context, r, i, (int)(count - i), T, false);
}

/* Rows begin to end - 1, of which `begin` belongs to lane 0, in a block of `width` channels from
 * `first` on. data[] holds what is read, and as the last one, where it `writes`, what is written.
 */
RG_INLINE void channel_rows(channel_step *step, void *context, const rg_channels *s,
                            const void *const data[], const int tensors, const bool writes,
                            int64_t begin, int64_t end, int64_t first, int64_t width,
                            const rg_dtype T, bool stream)
{
    const int reads = writes ? tensors - 1 : tensors, last = tensors - 1;
    channel_run r = { .out_step = writes ? s->step[last] : 0, .dense = s->dense };
    for (int t = 0; t < reads; t++)
        r.in_step[t] = s->step[t];
    for (int64_t row = begin, all; row < end; row += all) {
        all = least(s->lanes, end - row);
        const int64_t taken = s->joined && s->blocks == 1 ? all : 1;
        for (int64_t lane = 0; lane < all; lane += taken) {
            int64_t offset[RG_WALK_TENSORS];
            rg_walk_offsets(&s->rows, tensors, row + lane, offset);
            for (int t = 0; t < reads; t++)
                r.in[t] = at(data[t], offset[t] + first * s->step[t], T);
            if (writes)
                r.out =
                    at_out((void *)(uintptr_t)data[last], offset[last] + first * s->step[last], T);
            r.column = lane * width;
            channel_elements(step, context, &r, taken * width, T, stream);
        }
    }
}

#endif
