/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses on the CPU piece by piece: elements of any tensor as arrays of real. */
#ifndef RG_OPS_LOSS_PIECES_CPU_H
#define RG_OPS_LOSS_PIECES_CPU_H

#include "ops/loss/loss_formulas.h"
#include "ops/softmax/softmax_rows.h"

#include <retrograde/loss.h>

/* ---- elements of a tensor by their number ---- */

RG_INLINE int64_t view_offset(const rg_loss_view *v, int64_t i)
{
    if (v->rank <= 1)
        return i * v->strides[0];
    int64_t offset = 0;
    for (int32_t d = v->rank - 1; d > 0; d--) {
        offset += i % v->dims[d] * v->strides[d];
        i /= v->dims[d];
    }
    return offset + i * v->strides[0];
}

/* Elements from number i on, at most `count`, that are `step` apart. */
RG_INLINE int64_t run_of(const rg_loss_view *v, int64_t i, int64_t count, int64_t *step)
{
    const int32_t last = v->rank - 1;
    *step = v->rank > 0 ? v->strides[last] : 1;
    return v->rank <= 1 ? count : least(v->dims[last] - i % v->dims[last], count);
}

RG_INLINE void load_run(const char *from, int64_t step, int64_t count, real *to, rg_dtype T)
{
    int64_t i = 0;
    for (; step == 1 && i + VLEN <= count; i += VLEN)
        vstore_full(to, i, RG_REAL, vload_full(from, i, T));
    for (; i < count; i++)
        to[i] = load_one(from, i * step, T);
}

/* Elements number i to i + count - 1: where they are, or put into `piece_buffer`. */
RG_OUTLINE const real *get_piece(const rg_loss_view *v, const void *data, int64_t i, int64_t count,
                                 real *piece_buffer, rg_dtype T)
{
    for (int64_t done = 0, run, step; done < count; done += run) {
        run = run_of(v, i + done, count - done, &step);
        const char *from = at(data, view_offset(v, i + done), T);
        if (T == RG_REAL && run == count && (step == 1 || count == 1))
            return (const real *)(const void *)from;
        load_run(from, step, run, piece_buffer + done, T);
    }
    return piece_buffer;
}

RG_INLINE void store_run(char *to, int64_t step, int64_t count, const real *from, rg_dtype T,
                         bool add, bool stream)
{
    int64_t i = 0;
    if (step == 1) {
        const int64_t head = stream ? least(vhead(to, T), count) : 0;
        for (; i < head; i++)
            store_one(to, i, T, from[i]);
        for (; i + VLEN <= count; i += VLEN) {
            vreal value = vload_full(from, i, RG_REAL);
            if (add)
                value += vload_full(to, i, T);
            if (stream)
                vstream(to, i, T, value);
            else
                vstore_full(to, i, T, value);
        }
    }
    for (; i < count; i++)
        store_one(to, i * step, T, add ? from[i] + load_one(to, i * step, T) : from[i]);
}

RG_OUTLINE void put_piece(const rg_loss_view *v, void *data, int64_t i, int64_t count,
                          const real *from, rg_dtype T, bool add, bool stream)
{
    for (int64_t done = 0, run, step; done < count; done += run) {
        run = run_of(v, i + done, count - done, &step);
        store_run(at_out(data, view_offset(v, i + done), T), step, run, from + done, T, add,
                  stream);
    }
}

/* ---- pieces ---- */

/* A piece of the tensors of a launch; weights and dy are NULL where they are 1. */
typedef struct piece {
    const real *y, *t, *w, *dy;
    int64_t first, count;
    real piece_buffer[4][PIECE];
} piece;

RG_INLINE void take_piece(const rg_loss_args *k, piece *p, int64_t first, int64_t count, rg_dtype T)
{
    p->first = first;
    p->count = count;
    p->y = get_piece(&k->views[RG_LOSS_Y], k->y, first, count, p->piece_buffer[0], T);
    p->t = get_piece(&k->views[RG_LOSS_T], k->labels, first, count, p->piece_buffer[1], T);
    p->w = p->dy = NULL;
    if (k->has_weights)
        p->w = get_piece(&k->views[RG_LOSS_W], k->weights, first, count, p->piece_buffer[2], T);
    if (k->dy_of_labels)
        p->dy = get_piece(&k->views[RG_LOSS_DY], k->dy, first, count, p->piece_buffer[3], T);
}

/* out times a factor, weights and dy. */
RG_OUTLINE void apply_weights(real *out, const real *w, const real *dy, real factor, int64_t count)
{
    for (int64_t i = 0; i < count; i += VLEN) {
        const int n = vlanes_left(count - i);
        vreal value = vload(out, i, n, RG_REAL) * vset(factor);
        if (w != NULL)
            value *= vload(w, i, n, RG_REAL);
        if (dy != NULL)
            value *= vload(dy, i, n, RG_REAL);
        vstore(out, i, n, RG_REAL, value);
    }
}

/* What derivatives in a group are multiplied by. */
RG_INLINE real group_scale(const rg_loss_args *k, int64_t group, rg_dtype T)
{
    double scale = k->numbers.scale;
    if (k->has_dy && !k->dy_of_labels)
        scale *= (double)load_one(k->dy, view_offset(&k->views[RG_LOSS_DY], group), T);
    if (k->has_counts)
        scale = k->counts[group] > 0 ? scale / k->counts[group] : 0;
    return (real)scale;
}

RG_INLINE double sum_of(const real *values, int64_t count)
{
    return (double)lanes_sum(fold(fold_sum, NULL, 0, values, values, count, RG_REAL));
}

RG_INLINE void put_gradient(const rg_loss_args *k, const piece *p, const real *out, rg_dtype T)
{
    put_piece(&k->views[RG_LOSS_D], k->gradient, p->first, p->count, out, T, k->add, k->stream);
}

#endif
