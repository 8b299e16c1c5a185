/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Rows that are normalized, on the CPU: what softmax and the losses that contain one share. */
#ifndef RG_OPS_SOFTMAX_ROWS_H
#define RG_OPS_SOFTMAX_ROWS_H

#include "backend/cpu/kernel.h"
#include "backend/cpu/math.h"
#include "ops/softmax/softmax.h"

/* Elements: of a piece of a row; of a row whose e^(x - m) are kept instead of computed twice. */
enum { PIECE = 1024, KEPT = 4096 };

/* ---- rows that are not contiguous ---- */

static void copy_strided(char *to, int64_t to_step, const char *from, int64_t from_step,
                         int64_t count, int element)
{
    for (int64_t i = 0; i < count; i++, to += to_step, from += from_step) {
        if (element == 2)
            memcpy(to, from, 2);
        else if (element == 4)
            memcpy(to, from, 4);
        else
            memcpy(to, from, 8);
    }
}

/* Copies elements j to j + count - 1 of a group between the tensor and a dense piece. */
RG_OUTLINE void move_piece(const rg_walk *group, int tensor, char *data, int64_t j, int64_t count,
                           char *piece, int element, bool to_piece)
{
    const int32_t last = group->rank - 1;
    for (int64_t done = 0, run; done < count; done += run) {
        int64_t offset[RG_SOFTMAX_TENSORS];
        rg_walk_offsets(group, RG_SOFTMAX_TENSORS, j + done, offset);
        const int64_t step = group->strides[tensor][last] * element;
        char *from = data + offset[tensor] * element, *to = piece + done * element;
        run = least(group->dims[last] - (j + done) % group->dims[last], count - done);
        if (to_piece)
            copy_strided(to, element, from, step, run, element);
        else
            copy_strided(from, step, to, element, run, element);
    }
}

/* Elements j to j + count - 1 of a row: where they are, or gathered into `piece`. */
RG_INLINE const char *piece_at(const rg_softmax_shape *shape, int tensor, const char *row,
                               int64_t j, int64_t count, char *piece, const rg_dtype T)
{
    if (shape->dense)
        return at(row, j, T);
    move_piece(&shape->group, tensor, (char *)(uintptr_t)row, j, count, piece, vbytes(T) / VLEN,
               true);
    return piece;
}

/* ---- steps of a row ---- */

RG_FORMULA vreal fold_max(const void *k, vreal acc, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return vmax(acc, x);
}

RG_FORMULA vreal fold_sum(const void *k, vreal acc, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return acc + x;
}

/* ---- folds over a row ---- */

RG_INLINE double joined(double so_far, double piece, const bool is_max)
{
    return !is_max ? so_far + piece : piece > so_far ? piece : so_far;
}

/* What a piece gives: elements i to count - 1 are still to be folded into `acc`. */
RG_INLINE double piece_end(rg_fold *step, const bool is_max, rg_lanes acc, const char *a,
                           const char *b, int64_t i, int64_t count, const rg_dtype T)
{
    for (; i + 4 * VLEN <= count; i += 4 * VLEN)
        fold_four(step, NULL, &acc, a, b, i, T);
    fold_rest(step, NULL, &acc, a, b, i, count - i, T);
    return (double)(is_max ? lanes_max(acc) : lanes_sum(acc));
}

/* The fold over a piece, for functions that are called. */
typedef double rg_piece_fold(const char *a, const char *b, int64_t count, rg_dtype T);

RG_INLINE double fold_piece(rg_fold *step, const bool is_max, const char *a, const char *b,
                            int64_t count, rg_dtype T)
{
    const rg_lanes none = lanes_of(is_max ? -RG_INFINITY : 0);
    RG_WITH_TYPE(T, U, return piece_end(step, is_max, none, a, b, 0, count, U));
}

RG_OUTLINE double max_of_piece(const char *a, const char *b, int64_t count, rg_dtype T)
{
    return fold_piece(fold_max, true, a, b, count, T);
}

/* ---- rows, one after the other ---- */

/* Finishes one row, out = formula(k, a, b), while the first pass over the next one is made: so
 * memory is read and written all the time. Returns the fold over the next row, a sum of pieces
 * or the largest element. */
typedef struct next_row {
    const char *a, *b;
    rg_fold *step;
    rg_piece_fold *fold;
    bool is_max;
} next_row;

/* The fold over a row alone. */
RG_INLINE double fold_row(const next_row *row, int64_t length, const rg_dtype T)
{
    double value = row->is_max ? -(double)RG_INFINITY : 0;
    for (int64_t j = 0; j < length; j += PIECE)
        value = joined(value,
                       row->fold(at(row->a, j, T), at(row->b, j, T), least(PIECE, length - j), T),
                       row->is_max);
    return value;
}

/* A formula and its loop over a row, which is called. */
typedef void rg_row_sweep(const void *k, const void *a, const void *b, void *out, int64_t count,
                          rg_dtype T, bool add, bool stream);

typedef struct row_finish {
    rg_formula *formula;
    rg_row_sweep *sweep;
    const void *k, *a, *b;
    char *out;
    rg_dtype from; /* of a and b, a constant */
    bool add, stream;
} row_finish;

RG_INLINE double sweep_and_fold(const row_finish f, const next_row *next, int64_t length,
                                const rg_dtype T)
{
    const sweep_data d = { f.a, f.b, f.out, false, f.stream };
    const void *const k = f.k;
    const rg_dtype from = f.from;
    enum { LONG = 16 * VLEN }; /* elements from which aligned stores are worth their beginning */
    const real start = next->is_max ? -RG_INFINITY : 0;
    double value = (double)start;
    int64_t i = 0;
    if (from == T && (d.stream || length >= LONG))
        i = sweep_head(f.formula, k, d, length, T, T);
    for (int64_t j = 0; j < length; j += PIECE) {
        const char *x = at(next->a, j, T), *y = at(next->b, j, T);
        const int64_t count = least(PIECE, length - j);
        rg_lanes acc = lanes_of(start);
        int64_t q = 0;
        for (; q + 4 * VLEN <= count && i + 4 * VLEN <= length; q += 4 * VLEN, i += 4 * VLEN) {
            fold_four(next->step, NULL, &acc, x, y, q, T);
            sweep_pair(f.formula, k, d, i, from, T);
            sweep_pair(f.formula, k, d, i + 2 * VLEN, from, T);
        }
        value = joined(value, piece_end(next->step, next->is_max, acc, x, y, q, count, T),
                       next->is_max);
    }
    for (; i + 2 * VLEN <= length; i += 2 * VLEN)
        sweep_pair(f.formula, k, d, i, from, T);
    for (; i < length; i += VLEN)
        sweep_one(f.formula, k, d, i, vlanes_left(length - i), from, T);
    return value;
}

/* The same, one after the other where old values are added, and the sweep alone for the last
 * row. */
RG_INLINE double finish_row(row_finish f, const next_row *next, bool is_last, int64_t length,
                            const rg_dtype T)
{
    f.stream = f.stream && (f.from == T || vhead(f.out, T) == 0);
    if (!is_last && !f.add)
        return sweep_and_fold(f, next, length, T);
    f.sweep(f.k, f.a, f.b, f.out, length, T, f.add, f.stream);
    return is_last ? 0 : fold_row(next, length, T);
}

/* ---- sums of powers ---- */

RG_INLINE vreal exp_for(vreal x, const rg_dtype T)
{
    return is_short(T) ? vexp_short(x) : vexp(x);
}

/* Asks for 4 VLEN elements of T that will be read soon. */
RG_INLINE void fetch_ahead(const char *data, const rg_dtype T)
{
    enum { LINE = 64 };
    for (int i = 0; i < 4 * vbytes(T); i += LINE)
        __builtin_prefetch(data + i, 0, 2);
}

/* The sum of e^(x - m) over a piece, in four vectors of lanes. They are also put into kept[],
 * unless that is NULL, 2 VLEN at a time in the order in which a pair is loaded. Meanwhile memory
 * may prefetch from `ahead`, unless that is NULL. */
RG_INLINE double exp_sum(const char *x, real *kept, const char *ahead, int64_t count, real max,
                         const rg_dtype T)
{
    vreal acc[4] = { vset(0), vset(0), vset(0), vset(0) };
    int64_t i = 0;
    for (; i + 4 * VLEN <= count; i += 4 * VLEN) {
        if (ahead != NULL)
            fetch_ahead(at(ahead, i, T), T);
        const vpair p = vload_pair(x, i, T, true), q = vload_pair(x, i + 2 * VLEN, T, true);
        const vpair e = { exp_for(p.a - vset(max), T), exp_for(p.b - vset(max), T) };
        const vpair f = { exp_for(q.a - vset(max), T), exp_for(q.b - vset(max), T) };
        acc[0] += e.a;
        acc[1] += e.b;
        acc[2] += f.a;
        acc[3] += f.b;
        if (kept != NULL) {
            vstore_pair(kept, i, RG_REAL, e, false, false);
            vstore_pair(kept, i + 2 * VLEN, RG_REAL, f, false, false);
        }
    }
    if (i + 2 * VLEN <= count) {
        const vpair p = vload_pair(x, i, T, true);
        const vpair e = { exp_for(p.a - vset(max), T), exp_for(p.b - vset(max), T) };
        acc[0] += e.a;
        acc[1] += e.b;
        if (kept != NULL)
            vstore_pair(kept, i, RG_REAL, e, false, false);
        i += 2 * VLEN;
    }
    for (; i < count; i += VLEN) {
        const int n = vlanes_left(count - i);
        const vreal e = exp_for(vload(x, i, n, T) - vset(max), T);
        acc[0] += vkeep(e, n, 0);
        if (kept != NULL)
            vstore(kept, i, n, RG_REAL, e);
    }
    return (double)vsum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

/* The same, called. */
RG_OUTLINE double piece_exp_sum(const char *x, real *kept, const char *ahead, int64_t count,
                                real max, rg_dtype T)
{
    RG_WITH_TYPE(T, U, return exp_sum(x, kept, ahead, count, max, U));
}

#endif
