/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax with class labels on the CPU, as most classifiers end: it goes through memory as
 * softmax itself does. */
#include "ops/loss/loss_short_cpu.h"

typedef struct class_row {
    real max, scale, offset;
} class_row;

RG_FORMULA vreal kept_slope(const void *k, vreal e, vreal unused)
{
    (void)unused;
    const class_row *row = k;
    return e * vset(row->scale) - vset(row->offset);
}

RG_FORMULA vreal class_slope(const void *k, vreal x, vreal unused)
{
    return kept_slope(k, vexp(x - vset(((const class_row *)k)->max)), unused);
}

RG_FORMULA vreal class_slope_short(const void *k, vreal x, vreal unused)
{
    return kept_slope(k, vexp_short(x - vset(((const class_row *)k)->max)), unused);
}

RG_FORMULA vreal fold_below(const void *k, vreal acc, vreal x, vreal unused)
{
    (void)unused;
    return acc + (x - vset(*(const real *)k));
}

#define ROW_SWEEP(name, formula, formula_short, kept)                                              \
    RG_OUTLINE void name(const void *k, const void *a, const void *b, void *out, int64_t count,    \
                         rg_dtype T, bool add, bool stream)                                        \
    {                                                                                              \
        const class_row c = *(const class_row *)k;                                                 \
        sweep_any(formula, formula_short, kept, &c, (sweep_data){ a, b, out, add, stream }, count, \
                  T);                                                                              \
    }

ROW_SWEEP(sweep_kept_slope, kept_slope, kept_slope, true)
ROW_SWEEP(sweep_class_slope, class_slope, class_slope_short, false)

/* The largest element of a row. */
RG_OUTLINE real max_of_row(const rg_loss_args *k, const char *x, char *piece_buffer, rg_dtype T)
{
    real max = -RG_INFINITY;
    for (int64_t j = 0; j < k->length; j += PIECE) {
        const int64_t count = least(PIECE, k->length - j);
        const char *from = piece_at(&k->shape, 0, x, j, count, piece_buffer, T);
        const real most = (real)max_of_piece(from, from, count, T);
        max = most > max ? most : max;
    }
    return max;
}

/* Sums over a row: of e^(x - max), and of x - max where labels are smoothed. */
typedef struct class_sums {
    double powers, below;
} class_sums;

RG_INLINE class_sums sums_of_row(const rg_loss_args *k, const char *x, real max, real *kept,
                                 const char *ahead, char *piece_buffer, const rg_dtype T)
{
    class_sums s = { 0, 0 };
    for (int64_t j = 0; j < k->length; j += PIECE) {
        const int64_t count = least(PIECE, k->length - j);
        const char *from = piece_at(&k->shape, 0, x, j, count, piece_buffer, T);
        s.powers += piece_exp_sum(from, kept != NULL ? kept + j : NULL,
                                  ahead != NULL ? at(ahead, j, T) : NULL, count, max, T);
        if (k->numbers.share != 0)
            s.below += (double)lanes_sum(fold(fold_below, &max, 0, from, from, count, T));
    }
    return s;
}

/* The loss of a row; `below` is x - max at its label. */
RG_OUTLINE double class_loss(const rg_loss_numbers *n, const class_use *u, real below,
                             const class_sums *s)
{
    double loss = n->total * (double)vlog(vset((real)s->powers))[0] - n->keep * (double)below;
    if (n->share != 0)
        loss -= n->share * s->below;
    return (double)u->loss * loss;
}

/* Derivatives of a row, one after the other. */
RG_OUTLINE void slopes_of_row(const rg_loss_args *k, const class_row *row, const char *x, char *dx,
                              const real *kept, char *piece_buffer, rg_dtype T)
{
    char made[PIECE * sizeof(real)];
    const rg_softmax_shape *shape = &k->shape;
    const bool dense = shape->dense, stream = dense && k->stream;
    for (int64_t j = 0; j < k->length; j += PIECE) {
        const int64_t count = least(PIECE, k->length - j);
        char *to = dense ? at_out(dx, j, T) : made;
        if (k->add && !dense)
            piece_at(shape, 1, dx, j, count, made, T);
        if (kept != NULL) {
            const bool streams = stream && (T == RG_REAL || vhead(to, T) == 0);
            sweep_kept_slope(row, kept + j, kept + j, to, count, T, k->add, streams);
        } else {
            const char *from = piece_at(shape, 0, x, j, count, piece_buffer, T);
            sweep_class_slope(row, from, from, to, count, T, k->add, stream);
        }
        if (!dense)
            move_piece(&shape->group, 1, dx, j, count, made, vbytes(T) / VLEN, false);
    }
}

/* The same by streaming stores, while the largest element of the next row is looked for. */
RG_INLINE real slopes_and_max(const class_row *row, const char *x, char *dx, const real *kept,
                              const next_row *next, int64_t length, const rg_dtype T)
{
    const class_row c = *row;
    const row_finish f = { kept_slope, sweep_kept_slope, &c, kept, kept, dx, RG_REAL, false, true };
    const row_finish g = { is_short(T) ? class_slope_short : class_slope,
                           sweep_class_slope,
                           &c,
                           x,
                           x,
                           dx,
                           T,
                           false,
                           true };
    return (real)(kept != NULL ? sweep_and_fold(f, next, length, T)
                               : sweep_and_fold(g, next, length, T));
}

/* Where the rows of y and of the gradient begin. */
typedef struct class_rows {
    const char *x;
    char *dx;
} class_rows;

RG_INLINE class_rows class_rows_of(const rg_loss_args *k, int64_t row, const rg_dtype T)
{
    int64_t offset[2];
    rg_walk_offsets(&k->shape.outer, 2, row, offset);
    return (class_rows){ at(k->y, offset[0], T),
                         k->has_gradient ? at_out(k->gradient, offset[1], T) : NULL };
}

/* Elements of a row whose e^(x - max) are kept instead of computed twice. */
enum { KEPT_ROW = (128 << 10) / sizeof(real) };

/* Where exp_sum puts element i of a row: pairs of T are in the order in which they are loaded. */
RG_INLINE int64_t kept_index(int64_t i, int64_t length, const rg_dtype T)
{
    const int64_t pair = 2 * VLEN, first = i / pair * pair, at_pair = i - first;
    if (T != RG_BF16 || first + pair > length)
        return i;
    return first + at_pair % 2 * VLEN + at_pair / 2;
}

RG_INLINE void loss_by_classes(const rg_loss_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    for (; begin < end && has_short_rows(k); begin += VLEN)
        loss_of_short_rows(k, begin, least(begin + VLEN, end), T);
    if (begin >= end)
        return;
    const rg_loss_numbers *n = &k->numbers;
    char piece_buffer[PIECE * sizeof(real)];
    real buffer[KEPT_ROW], *const kept = k->has_gradient && k->length <= KEPT_ROW ? buffer : NULL;
    real max = 0;
    bool known = false; /* the largest element of the row, from the one before */
    class_rows p = class_rows_of(k, begin, T), after = p;
    for (int64_t row = begin; row < end; row++, p = after) {
        const class_use u = use_of(k, row, T);
        after = class_rows_of(k, row + 1 < end ? row + 1 : row, T);
        if (u.label < 0) {
            put_loss(k, row, 0, T);
            put_zeros(k, row, T);
            known = false;
            continue;
        }
        int64_t offset[2];
        rg_walk_offsets(&k->shape.group, 2, u.label, offset);
        const real now = known ? max : max_of_row(k, p.x, piece_buffer, T);
        const real below = load_one(p.x, offset[0], T) - now;
        const class_sums s =
            sums_of_row(k, p.x, now, kept, k->shape.dense ? after.x : NULL, piece_buffer, T);
        put_loss(k, row, k->losses != RG_LOSS_NO_LOSS ? class_loss(n, &u, below, &s) : 0, T);
        known = false;
        if (!k->has_gradient)
            continue;
        const class_row c = { now, (real)((double)u.slope * n->total / s.powers),
                              u.slope * (real)n->share };
        real slope = 0; /* at the label, where e^(x - max) is less by a share of the sum */
        if (kept != NULL)
            kept[kept_index(u.label, k->length, T)] -= (real)(s.powers * n->keep / n->total);
        else
            slope = exp_for(vset(below), T)[0] * c.scale - c.offset - u.slope * (real)n->keep;
        if (kept == NULL && k->add)
            slope += load_one(p.dx, offset[1], T);
        known = k->shape.dense && k->stream && row + 1 < end &&
                (T == RG_REAL || kept == NULL || vhead(p.dx, T) == 0);
        const next_row next = { after.x, after.x, fold_max, max_of_piece, true };
        if (known)
            max = slopes_and_max(&c, p.x, p.dx, kept, &next, k->length, T);
        else
            slopes_of_row(k, &c, p.x, p.dx, kept, piece_buffer, T);
        if (kept == NULL)
            store_one(p.dx, offset[1], T, slope);
    }
}

RG_KERNEL(loss_by_classes, rg_loss_args)

RG_CPU_TABLE(loss_classes, RG_LOSS_KERNELS) = {
    [RG_LOSS_BY_CLASSES] = RG_ROW(loss_by_classes),
};
