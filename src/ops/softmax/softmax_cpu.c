/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax on the CPU. Each kernel goes over a group several times, but memory sees one pass: a row,
 * or a block of columns, stays in the cache in between.
 *
 * The order of every sum is fixed by the shape. A row is summed piece by piece, and the pieces one
 * after the other in double; a row that is not contiguous is gathered piece by piece and summed
 * alike. In columns each group is summed from its first element to its last, in pieces too:
 * rounding errors grow with the length of a piece and with their number, not with the product of
 * both. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/math.h"
#include "ops/softmax/softmax.h"

/* Elements: of a piece of a row, and of a column; of a row whose e^(x - m) are kept instead of
 * computed twice. */
enum { PIECE = 1024, COLUMN_PIECE = 128, KEPT = 4096 };

RG_INLINE const char *at(const void *data, int64_t i, const rg_dtype T)
{
    return (const char *)data + i * (vbytes(T) / VLEN);
}

RG_INLINE char *at_out(void *data, int64_t i, const rg_dtype T)
{
    return (char *)data + i * (vbytes(T) / VLEN);
}

RG_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

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
static void move_piece(const rg_walk *group, int tensor, char *data, int64_t j, int64_t count,
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

/* ---- forward, rows ---- */

typedef struct forward_row {
    real max, scale, log_sum;
} forward_row;

RG_INLINE vreal fold_max(const void *k, vreal acc, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return vmax(acc, x);
}

RG_INLINE vreal fold_exp(const void *k, vreal acc, vreal x, vreal unused)
{
    (void)unused;
    return acc + vexp(x - vset(((const forward_row *)k)->max));
}

RG_INLINE vreal fold_sum(const void *k, vreal acc, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return acc + x;
}

RG_INLINE vreal exp_of(const void *k, vreal x, vreal unused)
{
    (void)unused;
    return vexp(x - vset(((const forward_row *)k)->max));
}

RG_INLINE vreal scaled(const void *k, vreal e, vreal unused)
{
    (void)unused;
    return e * vset(((const forward_row *)k)->scale);
}

RG_INLINE vreal softmax_of(const void *k, vreal x, vreal unused)
{
    return scaled(k, exp_of(k, x, unused), unused);
}

RG_INLINE vreal log_softmax_of(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const forward_row *row = k;
    return (x - vset(row->max)) - vset(row->log_sum);
}

/* The largest element, then the sum of e^(x - m); e^(x - m) into kept[] unless that is NULL. */
RG_INLINE forward_row measure_row(const rg_softmax_shape *shape, const char *x, real *kept,
                                  char *piece, const rg_dtype T, const bool log)
{
    forward_row k = { .max = -RG_INFINITY };
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        const char *from = piece_at(shape, 0, x, j, count, piece, T);
        const real max = lanes_max(fold(fold_max, NULL, -RG_INFINITY, from, from, count, T));
        k.max = max > k.max ? max : k.max;
    }
    double sum = 0;
    for (int64_t j = 0; j < shape->length; j += PIECE) {
        const int64_t count = least(PIECE, shape->length - j);
        const char *from = piece_at(shape, 0, x, j, count, piece, T);
        if (!log && kept != NULL) {
            sweep(exp_of, &k, from, from, kept + j, count, T, RG_REAL, false, false);
            sum += (double)lanes_sum(fold(fold_sum, NULL, 0, kept + j, kept + j, count, RG_REAL));
        } else {
            sum += (double)lanes_sum(fold(fold_exp, &k, 0, from, from, count, T));
        }
    }
    if (log)
        k.log_sum = vlog(vset((real)sum))[0];
    else
        k.scale = (real)(1 / sum);
    return k;
}

RG_INLINE void forward_rows(const rg_softmax_args *args, int64_t begin, int64_t end,
                            const rg_dtype T, const bool log)
{
    const rg_softmax_shape *shape = &args->shape;
    const int64_t length = shape->length, step = shape->dense ? length : PIECE;
    real buffer[KEPT];
    char in[PIECE * sizeof(real)], out[PIECE * sizeof(real)];
    real *const kept = !log && length <= KEPT ? buffer : NULL;
    for (int64_t row = begin; row < end; row++) {
        int64_t offset[2];
        rg_walk_offsets(&shape->outer, 2, row, offset);
        const char *x = at(args->x, offset[0], T);
        char *y = at_out(args->y, offset[1], T);
        const forward_row k = measure_row(shape, x, kept, in, T, log);
        for (int64_t j = 0; j < length; j += step) {
            const int64_t count = least(step, length - j);
            const char *from = kept != NULL ? in : piece_at(shape, 0, x, j, count, in, T);
            char *to = shape->dense ? at_out(y, j, T) : out;
            if (log)
                sweep(log_softmax_of, &k, from, from, to, count, T, T, false, shape->stream);
            else if (kept != NULL)
                sweep(scaled, &k, kept + j, kept + j, to, count, RG_REAL, T, false, shape->stream);
            else
                sweep(softmax_of, &k, from, from, to, count, T, T, false, shape->stream);
            if (!shape->dense)
                move_piece(&shape->group, 1, y, j, count, out, vbytes(T) / VLEN, false);
        }
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

RG_INLINE vreal fold_dot(const void *k, vreal acc, vreal dy, vreal y)
{
    (void)k;
    return vfma(dy, y, acc);
}

/* k: the sum over the group, of dy y for softmax, of dy for log-softmax */
RG_INLINE vreal softmax_gradient_of(const void *k, vreal dy, vreal y)
{
    return y * (dy - vset(*(const real *)k));
}

RG_INLINE vreal log_softmax_gradient_of(const void *k, vreal dy, vreal y)
{
    return vfma(-vexp(y), vset(*(const real *)k), dy);
}

/* Asks for elements that the next row will need, while this one is being computed. */
RG_INLINE void fetch(const char *from, int64_t count, const rg_dtype T)
{
    const int64_t bytes = count * (vbytes(T) / VLEN);
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(from + i, 0, 2);
}

RG_INLINE void gradient_rows(const rg_softmax_gradient_args *args, int64_t begin, int64_t end,
                             const rg_dtype T, const bool log)
{
    enum { STEP = 512 }; /* elements between two looks at the next row */
    const rg_softmax_shape *shape = &args->shape;
    const int64_t length = shape->length;
    char dy_piece[PIECE * sizeof(real)], y_piece[PIECE * sizeof(real)], out[PIECE * sizeof(real)];
    for (int64_t row = begin; row < end; row++) {
        int64_t offset[3];
        rg_walk_offsets(&shape->outer, 3, row, offset);
        const char *dy = at(args->dy, offset[0], T), *y = at(args->y, offset[1], T);
        char *dx = at_out(args->dx, offset[2], T);
        double sum = 0;
        for (int64_t j = 0; j < length; j += PIECE) {
            const int64_t count = least(PIECE, length - j);
            const char *a = piece_at(shape, 0, dy, j, count, dy_piece, T);
            const char *b = log ? a : piece_at(shape, 1, y, j, count, y_piece, T);
            sum += (double)lanes_sum(fold(log ? fold_sum : fold_dot, NULL, 0, a, b, count, T));
        }
        const real s = (real)sum;
        const bool ahead = shape->dense && row + 1 < end;
        int64_t step = STEP + vhead(dx, T);
        for (int64_t j = 0, count; j < length; j += count, step = STEP) {
            count = least(step, length - j);
            const char *a = piece_at(shape, 0, dy, j, count, dy_piece, T);
            const char *b = piece_at(shape, 1, y, j, count, y_piece, T);
            char *to = shape->dense ? at_out(dx, j, T) : out;
            if (ahead) {
                fetch(a + (at(dy, length, T) - dy), count, T);
                fetch(b + (at(y, length, T) - y), count, T);
            }
            if (!shape->dense && shape->add)
                piece_at(shape, 2, dx, j, count, out, T);
            sweep(log ? log_softmax_gradient_of : softmax_gradient_of, &s, a, b, to, count, T, T,
                  shape->add, shape->stream);
            if (!shape->dense)
                move_piece(&shape->group, 2, dx, j, count, out, vbytes(T) / VLEN, false);
        }
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

/* Groups that lie side by side: WIDE vectors of them where there are as many, otherwise one vector
 * of n. */
enum { WIDE = 4 };

typedef struct columns {
    const char *in[2];
    char *out;
    int64_t in_step[2], out_step;     /* bytes from one element of a group to the next */
    int64_t in_across[2], out_across; /* elements from one group to the next */
    int64_t length;
    bool add;
} columns;

RG_INLINE void load_groups(vreal v[], const char *data, int64_t across, const int vectors,
                           const int n, const rg_dtype T)
{
    if (vectors == WIDE) {
        const vpair a = vload_pair(data, 0, T, true), b = vload_pair(data, 2 * VLEN, T, true);
        v[0] = a.a;
        v[1] = a.b;
        v[2] = b.a;
        v[3] = b.b;
    } else {
        v[0] = across == 1 ? vload(data, 0, n, T) : vgather(data, 0, across, n, T);
    }
}

RG_INLINE void store_groups(const vreal v[], char *data, int64_t across, const int vectors,
                            const int n, const rg_dtype T, const bool stream)
{
    if (vectors == WIDE) {
        vstore_pair(data, 0, T, (vpair){ v[0], v[1] }, true, stream);
        vstore_pair(data, 2 * VLEN, T, (vpair){ v[2], v[3] }, true, stream);
    } else if (across == 1) {
        vstore(data, 0, n, T, v[0]);
    } else {
        vscatter(data, 0, across, n, T, v[0]);
    }
}

#define FOR_VECTORS(v) _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)

/* Asks for what comes AHEAD elements later: each element of a group is in another page, where the
 * processor does not look ahead by itself. */
RG_INLINE void fetch_groups(const char *data, int64_t step, const int vectors, const rg_dtype T)
{
    enum { AHEAD = 12 };
    for (int line = 0; vectors == WIDE && line < WIDE * vbytes(T); line += 64)
        __builtin_prefetch(data + AHEAD * step + line, 0, 3);
}

RG_INLINE void forward_groups(const columns *c, const int vectors, const int n, const rg_dtype T,
                              const bool log, const bool stream)
{
    vreal max[WIDE], sum[WIDE], x[WIDE];
    FOR_VECTORS(v)
    {
        max[v] = vset(-RG_INFINITY);
        sum[v] = vset(0);
    }
    const char *from = c->in[0];
    for (int64_t j = 0; j < c->length; j++, from += c->in_step[0]) {
        fetch_groups(from, c->in_step[0], vectors, T);
        load_groups(x, from, c->in_across[0], vectors, n, T);
        FOR_VECTORS(v) max[v] = vmax(max[v], x[v]);
    }
    from = c->in[0];
    for (int64_t j = 0; j < c->length;) {
        vreal part[WIDE];
        FOR_VECTORS(v) part[v] = vset(0);
        for (const int64_t end = least(c->length, j + COLUMN_PIECE); j < end; j++) {
            load_groups(x, from, c->in_across[0], vectors, n, T);
            FOR_VECTORS(v) part[v] += vexp(x[v] - max[v]);
            from += c->in_step[0];
        }
        FOR_VECTORS(v) sum[v] += part[v];
    }
    FOR_VECTORS(v) sum[v] = log ? vlog(sum[v]) : 1 / sum[v];
    from = c->in[0];
    char *to = c->out;
    for (int64_t j = 0; j < c->length; j++, from += c->in_step[0], to += c->out_step) {
        load_groups(x, from, c->in_across[0], vectors, n, T);
        FOR_VECTORS(v)
        x[v] = log ? (x[v] - max[v]) - sum[v] : vexp(x[v] - max[v]) * sum[v];
        store_groups(x, to, c->out_across, vectors, n, T, stream);
    }
}

RG_INLINE void gradient_groups(const columns *c, const int vectors, const int n, const rg_dtype T,
                               const bool log, const bool stream)
{
    vreal sum[WIDE], dy[WIDE], y[WIDE];
    FOR_VECTORS(v) sum[v] = vset(0);
    const char *from_dy = c->in[0], *from_y = c->in[1];
    for (int64_t j = 0; j < c->length;) {
        vreal part[WIDE];
        FOR_VECTORS(v) part[v] = vset(0);
        for (const int64_t end = least(c->length, j + COLUMN_PIECE); j < end; j++) {
            fetch_groups(from_dy, c->in_step[0], vectors, T);
            fetch_groups(from_y, c->in_step[1], vectors, T);
            load_groups(dy, from_dy, c->in_across[0], vectors, n, T);
            if (!log)
                load_groups(y, from_y, c->in_across[1], vectors, n, T);
            FOR_VECTORS(v) part[v] = log ? part[v] + dy[v] : vfma(dy[v], y[v], part[v]);
            from_dy += c->in_step[0];
            from_y += c->in_step[1];
        }
        FOR_VECTORS(v) sum[v] += part[v];
    }
    from_dy = c->in[0];
    from_y = c->in[1];
    char *to = c->out;
    for (int64_t j = 0; j < c->length; j++, to += c->out_step) {
        load_groups(dy, from_dy, c->in_across[0], vectors, n, T);
        load_groups(y, from_y, c->in_across[1], vectors, n, T);
        FOR_VECTORS(v)
        dy[v] = log ? vfma(-vexp(y[v]), sum[v], dy[v]) : y[v] * (dy[v] - sum[v]);
        if (c->add) {
            load_groups(y, to, c->out_across, vectors, n, T);
            FOR_VECTORS(v) dy[v] += y[v];
        }
        store_groups(dy, to, c->out_across, vectors, n, T, stream);
        from_dy += c->in_step[0];
        from_y += c->in_step[1];
    }
}

/* A unit: a block of groups of one index of `outer`. Moves all pointers from group to group. */
RG_INLINE void block_of_groups(columns *c, const rg_softmax_shape *shape, int64_t unit, int inputs,
                               const rg_dtype T, const bool log, const bool gradient)
{
    const int64_t element = vbytes(T) / VLEN, first = unit % shape->blocks * shape->block;
    int64_t offset[3], left = least(shape->block, shape->width - first);
    rg_walk_offsets(&shape->outer, inputs + 1, unit / shape->blocks, offset);
    for (int t = 0; t < inputs; t++) {
        c->in[t] += (offset[t] + first * shape->across[t]) * element;
        c->in_step[t] = shape->along[t] * element;
        c->in_across[t] = shape->across[t];
    }
    c->out += (offset[inputs] + first * shape->across[inputs]) * element;
    c->out_step = shape->along[inputs] * element;
    c->out_across = shape->across[inputs];
    const bool aligned = ((uintptr_t)c->out | (uintptr_t)c->out_step) % RG_VECTOR_BYTES == 0;
    while (left > 0) {
        const bool wide = shape->dense && left >= WIDE * VLEN;
        const int n = vlanes_left(left);
        if (wide && shape->stream && aligned && gradient)
            gradient_groups(c, WIDE, VLEN, T, log, true);
        else if (wide && gradient)
            gradient_groups(c, WIDE, VLEN, T, log, false);
        else if (gradient)
            gradient_groups(c, 1, n, T, log, false);
        else if (wide && shape->stream && aligned)
            forward_groups(c, WIDE, VLEN, T, log, true);
        else if (wide)
            forward_groups(c, WIDE, VLEN, T, log, false);
        else
            forward_groups(c, 1, n, T, log, false);
        const int64_t done = wide ? WIDE * VLEN : n;
        for (int t = 0; t < inputs; t++)
            c->in[t] += done * shape->across[t] * element;
        c->out += done * shape->across[inputs] * element;
        left -= done;
    }
}

RG_INLINE void forward_columns(const rg_softmax_args *k, int64_t begin, int64_t end,
                               const rg_dtype T, const bool log)
{
    for (int64_t unit = begin; unit < end; unit++) {
        columns c = { .in = { k->x }, .out = k->y, .length = k->shape.length };
        block_of_groups(&c, &k->shape, unit, 1, T, log, false);
    }
}

RG_INLINE void gradient_columns(const rg_softmax_gradient_args *k, int64_t begin, int64_t end,
                                const rg_dtype T, const bool log)
{
    for (int64_t unit = begin; unit < end; unit++) {
        columns c = {
            .in = { k->dy, k->y }, .out = k->dx, .length = k->shape.length, .add = k->shape.add
        };
        block_of_groups(&c, &k->shape, unit, 2, T, log, true);
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
