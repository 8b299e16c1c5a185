/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax on the CPU. Each kernel goes over a group several times, but memory sees one pass: a
 * row, or a block of columns, stays in the cache in between.
 *
 * The order of every sum is fixed by the shape. A row is summed piece by piece, and the pieces
 * one after the other in double; a row that is not contiguous is gathered piece by piece and
 * summed alike. In columns each group is summed from its first element to its last, in pieces
 * too: rounding errors grow with the length of a piece and with their number, not with the
 * product of both.
 *
 * Rows or columns follow from the shape, and short rows are chosen here, not by a list of
 * strategies: in files of their own the loops took 1.2 to 2.4 times as long (65536x64, f32),
 * because the fold of the next row then no longer runs while the current one is finished. */
#include "backend/cpu/columns.h"
#include "ops/softmax/softmax_rows.h"

/* ---- forward, rows ---- */

typedef struct forward_row {
    real max, scale, log_sum;
} forward_row;

RG_FORMULA vreal scaled(const void *k, vreal e, vreal unused)
{
    (void)unused;
    return e * vset(((const forward_row *)k)->scale);
}

RG_FORMULA vreal softmax_of(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const forward_row *row = k;
    return vexp(x - vset(row->max)) * vset(row->scale);
}

RG_FORMULA vreal softmax_short_of(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const forward_row *row = k;
    return vexp_short(x - vset(row->max)) * vset(row->scale);
}

RG_FORMULA vreal log_softmax_of(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const forward_row *row = k;
    return (x - vset(row->max)) - vset(row->log_sum);
}

#define ROW_SWEEP(name, type, formula, formula_short, kept)                                        \
    RG_OUTLINE void name(const void *k, const void *a, const void *b, void *out, int64_t count,    \
                         rg_dtype T, bool add, bool stream)                                        \
    {                                                                                              \
        const type c =                                                                             \
            *(const type *)k; /* what is stored could be k, as far as a compiler knows */          \
        sweep_any(formula, formula_short, kept, &c, (sweep_data){ a, b, out, add, stream }, count, \
                  T);                                                                              \
    }

ROW_SWEEP(sweep_scaled, forward_row, scaled, scaled, true)
ROW_SWEEP(sweep_softmax, forward_row, softmax_of, softmax_short_of, false)
ROW_SWEEP(sweep_log_softmax, forward_row, log_softmax_of, log_softmax_of, false)

RG_INLINE void end_sum(forward_row *k, double sum, const bool log)
{
    if (log)
        k->log_sum = vlog(vset((real)sum))[0];
    else
        k->scale = (real)(1 / sum);
}

RG_INLINE void sum_of_row(forward_row *k, const char *x, real *kept, int64_t length,
                          const rg_dtype T, const bool log)
{
    double sum = 0;
    for (int64_t j = 0; j < length; j += PIECE)
        sum += piece_exp_sum(at(x, j, T), !log && kept != NULL ? kept + j : NULL, NULL,
                             least(PIECE, length - j), k->max, T);
    end_sum(k, sum, log);
}

/* A row that is not contiguous, piece by piece. */
RG_OUTLINE void forward_scattered(const rg_softmax_shape *shape, const char *x, char *y, real *kept,
                                  rg_dtype T, bool log)
{
    char in[PIECE * sizeof(real)];
    forward_row k = { .max = -RG_INFINITY };
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        const char *from = piece_at(shape, 0, x, j, count, in, T);
        const real max = (real)max_of_piece(from, from, count, T);
        k.max = max > k.max ? max : k.max;
    }
    double sum = 0;
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        const char *from = piece_at(shape, 0, x, j, count, in, T);
        sum += piece_exp_sum(from, kept != NULL ? kept + j : NULL, NULL, count, k.max, T);
    }
    end_sum(&k, sum, log);
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        piece_at(shape, 0, x, j, count, in, T);
        if (log)
            sweep_log_softmax(&k, in, in, in, count, T, false, false);
        else if (kept != NULL)
            sweep_scaled(&k, kept + j, kept + j, in, count, T, false, false);
        else
            sweep_softmax(&k, in, in, in, count, T, false, false);
        move_piece(&shape->group, 1, y, j, count, in, vbytes(T) / VLEN, false);
    }
}

/* Short rows, VLEN at a time: they do not wait for each other, and share one logarithm. */
RG_INLINE void forward_short(const rg_softmax_args *args, int64_t begin, int64_t end,
                             const rg_dtype T, const bool log)
{
    const rg_softmax_shape *shape = &args->shape;
    const int64_t length = shape->length;
    const int rows = vlanes_left(end - begin);
    const char *x[VLEN];
    char *y[VLEN];
    forward_row k[VLEN];
    real kept[KEPT], sums[VLEN] = { 0 };
    for (int r = 0; r < rows; r++) {
        int64_t offset[2];
        rg_walk_offsets(&shape->outer, 2, begin + r, offset);
        x[r] = at(args->x, offset[0], T);
        y[r] = at_out(args->y, offset[1], T);
        k[r].max = lanes_max(fold(fold_max, NULL, -RG_INFINITY, x[r], x[r], length, T));
        const double sum = exp_sum(x[r], log ? NULL : kept + r * length, NULL, length, k[r].max, T);
        k[r].scale = (real)(1 / sum);
        sums[r] = (real)sum;
    }
    const vreal logs = log ? vlog(vload_full(sums, 0, RG_REAL)) : vset(0);
    vstore_full(sums, 0, RG_REAL, logs);
    for (int r = 0; r < rows; r++) {
        k[r].log_sum = sums[r];
        const real *e = kept + r * length;
        const bool stream = shape->stream && (log || T == RG_REAL || vhead(y[r], T) == 0);
        if (log)
            sweep(log_softmax_of, &k[r], (sweep_data){ x[r], x[r], y[r], false, stream }, length, T,
                  T);
        else
            sweep(scaled, &k[r], (sweep_data){ e, e, y[r], false, stream }, length, RG_REAL, T);
    }
}

RG_INLINE void forward_rows(const rg_softmax_args *args, int64_t begin, int64_t end,
                            const rg_dtype T, const bool log)
{
    const rg_softmax_shape *shape = &args->shape;
    const int64_t length = shape->length;
    const bool stream = shape->stream;
    if (shape->dense && length <= least(PIECE, KEPT / VLEN)) {
        for (int64_t row = begin; row < end; row += VLEN)
            forward_short(args, row, end, T, log);
        return;
    }
    real buffer[KEPT], *const kept = !log && length <= KEPT ? buffer : NULL;
    int64_t offset[2];
    rg_walk_offsets(&shape->outer, 2, begin, offset);
    const char *first = at(args->x, offset[0], T);
    next_row next = { first, first, fold_max, max_of_piece, true };
    char *y_next = at_out(args->y, offset[1], T);
    forward_row k = { .max = shape->dense ? (real)fold_row(&next, length, T) : 0 };
    for (int64_t row = begin; row < end; row++) {
        const char *x = next.a;
        char *y = y_next;
        const bool is_last = row + 1 == end;
        rg_walk_offsets(&shape->outer, 2, is_last ? row : row + 1, offset);
        next.a = next.b = at(args->x, offset[0], T);
        y_next = at_out(args->y, offset[1], T);
        if (!shape->dense) {
            forward_scattered(shape, x, y, kept, T, log);
            continue;
        }
        sum_of_row(&k, x, kept, length, T, log);
        const forward_row c = k;
        row_finish f = { log_softmax_of, sweep_log_softmax, &c, x, x, y, T, false, stream };
        double max;
        if (log) {
            max = finish_row(f, &next, is_last, length, T);
        } else if (kept != NULL) {
            f = (row_finish){ scaled, sweep_scaled, &c, kept, kept, y, RG_REAL, false, stream };
            max = finish_row(f, &next, is_last, length, T);
        } else {
            f.formula = is_short(T) ? softmax_short_of : softmax_of;
            f.sweep = sweep_softmax;
            max = finish_row(f, &next, is_last, length, T);
        }
        k.max = (real)max;
    }
}

RG_INLINE void softmax_forward_rows(const rg_softmax_args *k, int64_t begin, int64_t end,
                                    const rg_dtype T)
{
    forward_rows(k, begin, end, T, false);
}

RG_INLINE void log_softmax_forward_rows(const rg_softmax_args *k, int64_t begin, int64_t end,
                                        const rg_dtype T)
{
    forward_rows(k, begin, end, T, true);
}

/* ---- gradient, rows ---- */

RG_FORMULA vreal fold_dot(const void *k, vreal acc, vreal dy, vreal y)
{
    (void)k;
    return vfma(dy, y, acc);
}

/* k: the sum over the group, of dy y for softmax, of dy for log-softmax */
RG_FORMULA vreal softmax_gradient_of(const void *k, vreal dy, vreal y)
{
    return y * (dy - vset(*(const real *)k));
}

RG_FORMULA vreal log_softmax_gradient_of(const void *k, vreal dy, vreal y)
{
    return vfma(-vexp(y), vset(*(const real *)k), dy);
}

ROW_SWEEP(sweep_gradient, real, softmax_gradient_of, softmax_gradient_of, false)
ROW_SWEEP(sweep_log_gradient, real, log_softmax_gradient_of, log_softmax_gradient_of, false)

RG_OUTLINE double dot_of_piece(const char *a, const char *b, int64_t count, rg_dtype T)
{
    return fold_piece(fold_dot, false, a, b, count, T);
}

RG_OUTLINE double sum_of_piece(const char *a, const char *b, int64_t count, rg_dtype T)
{
    return fold_piece(fold_sum, false, a, b, count, T);
}

/* A row that is not contiguous, piece by piece. */
RG_OUTLINE void gradient_scattered(const rg_softmax_shape *shape, const char *dy, const char *y,
                                   char *dx, rg_dtype T, bool log)
{
    char a[PIECE * sizeof(real)], b[PIECE * sizeof(real)], out[PIECE * sizeof(real)];
    double sum = 0;
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        piece_at(shape, 0, dy, j, count, a, T);
        piece_at(shape, 1, y, j, count, b, T);
        sum += (log ? sum_of_piece : dot_of_piece)(a, b, count, T);
    }
    const real s = (real)sum;
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        piece_at(shape, 0, dy, j, count, a, T);
        piece_at(shape, 1, y, j, count, b, T);
        if (shape->add)
            piece_at(shape, 2, dx, j, count, out, T);
        (log ? sweep_log_gradient : sweep_gradient)(&s, a, b, out, count, T, shape->add, false);
        move_piece(&shape->group, 2, dx, j, count, out, vbytes(T) / VLEN, false);
    }
}

RG_INLINE void gradient_rows(const rg_softmax_gradient_args *args, int64_t begin, int64_t end,
                             const rg_dtype T, const bool log)
{
    const rg_softmax_shape *shape = &args->shape;
    const int64_t length = shape->length;
    int64_t offset[3];
    rg_walk_offsets(&shape->outer, 3, begin, offset);
    next_row next = { at(args->dy, offset[0], T), at(args->y, offset[1], T),
                      log ? fold_sum : fold_dot, log ? sum_of_piece : dot_of_piece, false };
    char *dx_next = at_out(args->dx, offset[2], T);
    double sum = shape->dense ? fold_row(&next, length, T) : 0;
    for (int64_t row = begin; row < end; row++) {
        const char *dy = next.a, *y = next.b;
        char *dx = dx_next;
        const bool is_last = row + 1 == end;
        rg_walk_offsets(&shape->outer, 3, is_last ? row : row + 1, offset);
        next.a = at(args->dy, offset[0], T);
        next.b = at(args->y, offset[1], T);
        dx_next = at_out(args->dx, offset[2], T);
        if (!shape->dense) {
            gradient_scattered(shape, dy, y, dx, T, log);
            continue;
        }
        const real s = (real)sum;
        const row_finish f = { log ? log_softmax_gradient_of : softmax_gradient_of,
                               log ? sweep_log_gradient : sweep_gradient,
                               &s,
                               dy,
                               y,
                               dx,
                               T,
                               shape->add,
                               shape->stream };
        sum = finish_row(f, &next, is_last, length, T);
    }
}

RG_INLINE void softmax_gradient_rows(const rg_softmax_gradient_args *k, int64_t begin, int64_t end,
                                     const rg_dtype T)
{
    gradient_rows(k, begin, end, T, false);
}

RG_INLINE void log_softmax_gradient_rows(const rg_softmax_gradient_args *k, int64_t begin,
                                         int64_t end, const rg_dtype T)
{
    gradient_rows(k, begin, end, T, true);
}

/* ---- columns ---- */

/* Where a unit starts and how it goes on. Forward has one input, which is then both. */
RG_INLINE columns columns_of(const rg_softmax_shape *shape, const void *a, const void *b, void *out,
                             int inputs, int64_t unit, const rg_dtype T)
{
    const int64_t element = vbytes(T) / VLEN, first = unit % shape->blocks * shape->block;
    int64_t offset[3];
    rg_walk_offsets(&shape->outer, inputs + 1, unit / shape->blocks, offset);
    const int second = inputs - 1;
    return (columns){
        .in = { at(a, offset[0] + first * shape->across[0], T),
                at(b, offset[second] + first * shape->across[second], T) },
        .out = at_out(out, offset[inputs] + first * shape->across[inputs], T),
        .in_step = { shape->along[0] * element, shape->along[second] * element },
        .out_step = shape->along[inputs] * element,
        .in_across = { shape->across[0], shape->across[second] },
        .out_across = shape->across[inputs],
        .length = shape->length,
        .width = least(shape->block, shape->width - first),
        .dense = shape->dense,
        .add = shape->add,
        .stream = shape->stream && shape->dense,
    };
}

/* ---- forward, columns ---- */

RG_FORMULA vreal group_max(vreal acc, vreal unused, vreal x, vreal same)
{
    (void)unused;
    (void)same;
    return vmax(acc, x);
}

RG_FORMULA vreal group_exp(vreal acc, vreal max, vreal x, vreal same)
{
    (void)same;
    return acc + vexp(x - max);
}

RG_FORMULA vreal group_exp_short(vreal acc, vreal max, vreal x, vreal same)
{
    (void)same;
    return acc + vexp_short(x - max);
}

RG_FORMULA vreal group_softmax_short(vreal max, vreal scale, vreal x, vreal same)
{
    (void)same;
    return vexp_short(x - max) * scale;
}

RG_FORMULA vreal group_softmax(vreal max, vreal scale, vreal x, vreal same)
{
    (void)same;
    return vexp(x - max) * scale;
}

RG_FORMULA vreal group_log_softmax(vreal max, vreal log_sum, vreal x, vreal same)
{
    (void)same;
    return (x - max) - log_sum;
}

RG_INLINE void forward_columns(const rg_softmax_args *k, int64_t begin, int64_t end,
                               const rg_dtype T, const bool log)
{
    for (int64_t unit = begin; unit < end; unit++) {
        const columns c = columns_of(&k->shape, k->x, k->x, k->y, 1, unit, T);
        real max[RG_BLOCK_GROUPS + VLEN], sum[RG_BLOCK_GROUPS + VLEN];
        for (int i = 0; i < RG_BLOCK_GROUPS + VLEN; i++)
            max[i] = -RG_INFINITY;
        for (int64_t j = 0; j < c.length; j++) {
            const char *x = c.in[0] + j * c.in_step[0];
            fold_groups(group_max, max, max, &c, x, x, T);
        }
        end_fold(max, &c, T);
        fold_rows(is_short(T) ? group_exp_short : group_exp, sum, max, &c, T);
        for (int64_t i = 0; i < c.width; i += VLEN) {
            const vreal s = vload_full(sum, i, RG_REAL);
            vstore_full(sum, i, RG_REAL, log ? vlog(s) : 1 / s);
        }
        if (log)
            finish_rows(group_log_softmax, max, sum, &c, T);
        else
            finish_rows(is_short(T) ? group_softmax_short : group_softmax, max, sum, &c, T);
    }
}

/* ---- gradient, columns ---- */

RG_FORMULA vreal group_dot(vreal acc, vreal unused, vreal dy, vreal y)
{
    (void)unused;
    return vfma(dy, y, acc);
}

RG_FORMULA vreal group_sum(vreal acc, vreal unused, vreal dy, vreal y)
{
    (void)unused;
    (void)y;
    return acc + dy;
}

RG_FORMULA vreal group_gradient(vreal sum, vreal same, vreal dy, vreal y)
{
    (void)same;
    return y * (dy - sum);
}

RG_FORMULA vreal group_log_gradient(vreal sum, vreal same, vreal dy, vreal y)
{
    (void)same;
    return vfma(-vexp(y), sum, dy);
}

RG_INLINE void gradient_columns(const rg_softmax_gradient_args *k, int64_t begin, int64_t end,
                                const rg_dtype T, const bool log)
{
    for (int64_t unit = begin; unit < end; unit++) {
        const columns c = columns_of(&k->shape, k->dy, k->y, k->dx, 2, unit, T);
        real sum[RG_BLOCK_GROUPS + VLEN];
        fold_rows(log ? group_sum : group_dot, sum, sum, &c, T);
        finish_rows(log ? group_log_gradient : group_gradient, sum, sum, &c, T);
    }
}

RG_INLINE void softmax_forward_columns(const rg_softmax_args *k, int64_t begin, int64_t end,
                                       const rg_dtype T)
{
    forward_columns(k, begin, end, T, false);
}

RG_INLINE void log_softmax_forward_columns(const rg_softmax_args *k, int64_t begin, int64_t end,
                                           const rg_dtype T)
{
    forward_columns(k, begin, end, T, true);
}

RG_INLINE void softmax_gradient_columns(const rg_softmax_gradient_args *k, int64_t begin,
                                        int64_t end, const rg_dtype T)
{
    gradient_columns(k, begin, end, T, false);
}

RG_INLINE void log_softmax_gradient_columns(const rg_softmax_gradient_args *k, int64_t begin,
                                            int64_t end, const rg_dtype T)
{
    gradient_columns(k, begin, end, T, true);
}

/* ---- entry points and table ---- */

RG_KERNEL(softmax_forward_rows, rg_softmax_args)
RG_KERNEL(softmax_forward_columns, rg_softmax_args)
RG_KERNEL(log_softmax_forward_rows, rg_softmax_args)
RG_KERNEL(log_softmax_forward_columns, rg_softmax_args)
RG_KERNEL(softmax_gradient_rows, rg_softmax_gradient_args)
RG_KERNEL(softmax_gradient_columns, rg_softmax_gradient_args)
RG_KERNEL(log_softmax_gradient_rows, rg_softmax_gradient_args)
RG_KERNEL(log_softmax_gradient_columns, rg_softmax_gradient_args)

RG_CPU_TABLE(softmax, RG_SOFTMAX_KERNELS) = {
    [RG_SOFTMAX_FORWARD_ROWS] = RG_ROW(softmax_forward_rows),
    [RG_SOFTMAX_FORWARD_COLUMNS] = RG_ROW(softmax_forward_columns),
    [RG_LOG_SOFTMAX_FORWARD_ROWS] = RG_ROW(log_softmax_forward_rows),
    [RG_LOG_SOFTMAX_FORWARD_COLUMNS] = RG_ROW(log_softmax_forward_columns),
    [RG_SOFTMAX_GRADIENT_ROWS] = RG_ROW(softmax_gradient_rows),
    [RG_SOFTMAX_GRADIENT_COLUMNS] = RG_ROW(softmax_gradient_columns),
    [RG_LOG_SOFTMAX_GRADIENT_ROWS] = RG_ROW(log_softmax_gradient_rows),
    [RG_LOG_SOFTMAX_GRADIENT_COLUMNS] = RG_ROW(log_softmax_gradient_columns),
};
