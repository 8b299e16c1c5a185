/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax on the CPU. Each kernel goes over a group several times, but memory sees one pass: a
 * row, or a block of columns, stays in the cache in between.
 *
 * The order of every sum is fixed by the shape. A row is summed piece by piece, and the pieces
 * one after the other in double; a row that is not contiguous is gathered piece by piece and
 * summed alike. In columns each group is summed from its first element to its last, in pieces
 * too: rounding errors grow with the length of a piece and with their number, not with the
 * product of both. */
#include "backend/cpu/columns.h"
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

/* ---- rows, one after the other ---- */

/* Finishes one row, out = formula(k, a, b), while the first pass over the next one is made: so
 * memory is read and written all the time. Returns the fold over the next row, a sum of pieces
 * or the largest element. */
typedef struct next_row {
    const char *a, *b;
    rg_fold *step;
    bool is_max;
} next_row;

RG_INLINE double piece_value(rg_lanes acc, double so_far, const bool is_max)
{
    if (!is_max)
        return so_far + (double)lanes_sum(acc);
    const double max = (double)lanes_max(acc);
    return max > so_far ? max : so_far;
}

/* The fold over a row alone. */
RG_INLINE double fold_row(const next_row *row, int64_t length, const rg_dtype T)
{
    const real start = row->is_max ? -RG_INFINITY : 0;
    double value = (double)start;
    for (int64_t j = 0; j < length; j += PIECE)
        value = piece_value(fold(row->step, NULL, start, at(row->a, j, T), at(row->b, j, T),
                                 least(PIECE, length - j), T),
                            value, row->is_max);
    return value;
}

RG_INLINE double sweep_and_fold(rg_formula *formula, const void *k, const void *a, const void *b,
                                char *out, const rg_dtype from, const rg_dtype T, const bool stream,
                                const next_row *next, int64_t length)
{
    enum { LONG = 16 * VLEN }; /* elements from which aligned stores are worth their beginning */
    const real start = next->is_max ? -RG_INFINITY : 0;
    double value = (double)start;
    int64_t i = 0;
    if (from == T && (stream || length >= LONG))
        i = sweep_head(formula, k, a, b, out, length, T, T, false);
    for (int64_t j = 0; j < length; j += PIECE) {
        const char *x = at(next->a, j, T), *y = at(next->b, j, T);
        const int64_t count = least(PIECE, length - j);
        rg_lanes acc = lanes_of(start);
        int64_t q = 0;
        for (; q + 4 * VLEN <= count && i + 4 * VLEN <= length; q += 4 * VLEN, i += 4 * VLEN) {
            fold_four(next->step, NULL, &acc, x, y, q, T);
            sweep_pair(formula, k, a, b, out, i, from, T, false, stream);
            sweep_pair(formula, k, a, b, out, i + 2 * VLEN, from, T, false, stream);
        }
        for (; q + 4 * VLEN <= count; q += 4 * VLEN)
            fold_four(next->step, NULL, &acc, x, y, q, T);
        fold_rest(next->step, NULL, &acc, x, y, q, count - q, T);
        value = piece_value(acc, value, next->is_max);
    }
    for (; i + 2 * VLEN <= length; i += 2 * VLEN)
        sweep_pair(formula, k, a, b, out, i, from, T, false, stream);
    for (; i < length; i += VLEN)
        sweep_one(formula, k, a, b, out, i, vlanes_left(length - i), from, T, false);
    return value;
}

/* The same, one after the other where old values are added, and the sweep alone for the last
 * row. */
RG_INLINE double finish_row(rg_formula *formula, const void *k, const void *a, const void *b,
                            char *out, const rg_dtype from, const rg_dtype T, bool add, bool stream,
                            const next_row *next, bool is_last, int64_t length)
{
    stream = stream && (from == T || vhead(out, T) == 0);
    if (is_last || add)
        sweep(formula, k, a, b, out, length, from, T, add, stream);
    else if (stream)
        return sweep_and_fold(formula, k, a, b, out, from, T, true, next, length);
    else
        return sweep_and_fold(formula, k, a, b, out, from, T, false, next, length);
    return is_last ? 0 : fold_row(next, length, T);
}

/* ---- forward, rows ---- */

typedef struct forward_row {
    real max, scale, log_sum;
} forward_row;

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

RG_INLINE vreal exp_for(vreal x, const rg_dtype T)
{
    return is_short(T) ? vexp_short(x) : vexp(x);
}

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

/* The sum of e^(x - m) over a piece, in four vectors of lanes. They are also put into kept[],
 * unless that is NULL, 2 VLEN at a time in the order in which a pair is loaded. */
RG_INLINE double exp_sum(const char *x, real *kept, int64_t count, real max, const rg_dtype T)
{
    vreal acc[4] = { vset(0), vset(0), vset(0), vset(0) };
    int64_t i = 0;
    for (; i + 4 * VLEN <= count; i += 4 * VLEN) {
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

RG_INLINE void sum_of_row(forward_row *k, const rg_softmax_shape *shape, const char *x, real *kept,
                          char *piece, const rg_dtype T, const bool log)
{
    double sum = 0;
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        const char *from = piece_at(shape, 0, x, j, count, piece, T);
        sum += exp_sum(from, !log && kept != NULL ? kept + j : NULL, count, k->max, T);
    }
    if (log)
        k->log_sum = vlog(vset((real)sum))[0];
    else
        k->scale = (real)(1 / sum);
}

/* A row that is not contiguous, piece by piece. */
RG_INLINE void forward_scattered(const rg_softmax_shape *shape, const char *x, char *y, real *kept,
                                 const rg_dtype T, const bool log)
{
    char in[PIECE * sizeof(real)];
    forward_row k = { .max = -RG_INFINITY };
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        const char *from = piece_at(shape, 0, x, j, count, in, T);
        const real max = lanes_max(fold(fold_max, NULL, -RG_INFINITY, from, from, count, T));
        k.max = max > k.max ? max : k.max;
    }
    sum_of_row(&k, shape, x, kept, in, T, log);
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        piece_at(shape, 0, x, j, count, in, T);
        if (log)
            sweep(log_softmax_of, &k, in, in, in, count, T, T, false, false);
        else if (kept != NULL)
            sweep(scaled, &k, kept + j, kept + j, in, count, RG_REAL, T, false, false);
        else
            sweep(is_short(T) ? softmax_short_of : softmax_of, &k, in, in, in, count, T, T, false,
                  false);
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
        const double sum = exp_sum(x[r], log ? NULL : kept + r * length, length, k[r].max, T);
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
            sweep(log_softmax_of, &k[r], x[r], x[r], y[r], length, T, T, false, stream);
        else
            sweep(scaled, &k[r], e, e, y[r], length, RG_REAL, T, false, stream);
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
    next_row next = { first, first, fold_max, true };
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
        sum_of_row(&k, shape, x, kept, NULL, T, log);
        double max;
        if (log)
            max = finish_row(log_softmax_of, &k, x, x, y, T, T, false, stream, &next, is_last,
                             length);
        else if (kept != NULL)
            max = finish_row(scaled, &k, kept, kept, y, RG_REAL, T, false, stream, &next, is_last,
                             length);
        else
            max = finish_row(is_short(T) ? softmax_short_of : softmax_of, &k, x, x, y, T, T, false,
                             stream, &next, is_last, length);
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

RG_INLINE rg_formula *gradient_formula(const bool log)
{
    return log ? log_softmax_gradient_of : softmax_gradient_of;
}

/* A row that is not contiguous, piece by piece. */
RG_INLINE void gradient_scattered(const rg_softmax_shape *shape, const char *dy, const char *y,
                                  char *dx, const rg_dtype T, const bool log)
{
    char a[PIECE * sizeof(real)], b[PIECE * sizeof(real)], out[PIECE * sizeof(real)];
    double sum = 0;
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        piece_at(shape, 0, dy, j, count, a, T);
        piece_at(shape, 1, y, j, count, b, T);
        sum += (double)lanes_sum(fold(log ? fold_sum : fold_dot, NULL, 0, a, b, count, T));
    }
    const real s = (real)sum;
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        piece_at(shape, 0, dy, j, count, a, T);
        piece_at(shape, 1, y, j, count, b, T);
        if (shape->add)
            piece_at(shape, 2, dx, j, count, out, T);
        sweep(gradient_formula(log), &s, a, b, out, count, T, T, shape->add, false);
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
                      log ? fold_sum : fold_dot, false };
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
        sum = finish_row(gradient_formula(log), &s, dy, y, dx, T, T, shape->add, shape->stream,
                         &next, is_last, length);
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

/* Where a unit starts and how it goes on. Forward has one input, which then stands for both. */
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

const rg_cpu_row RG_TABLE(softmax)[RG_SOFTMAX_KERNELS] = {
    [RG_SOFTMAX_FORWARD_ROWS] = RG_ROW(softmax_forward_rows),
    [RG_SOFTMAX_FORWARD_COLUMNS] = RG_ROW(softmax_forward_columns),
    [RG_LOG_SOFTMAX_FORWARD_ROWS] = RG_ROW(log_softmax_forward_rows),
    [RG_LOG_SOFTMAX_FORWARD_COLUMNS] = RG_ROW(log_softmax_forward_columns),
    [RG_SOFTMAX_GRADIENT_ROWS] = RG_ROW(softmax_gradient_rows),
    [RG_SOFTMAX_GRADIENT_COLUMNS] = RG_ROW(softmax_gradient_columns),
    [RG_LOG_SOFTMAX_GRADIENT_ROWS] = RG_ROW(log_softmax_gradient_rows),
    [RG_LOG_SOFTMAX_GRADIENT_COLUMNS] = RG_ROW(log_softmax_gradient_columns),
};
