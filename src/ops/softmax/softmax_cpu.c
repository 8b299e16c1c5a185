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

/* Elements between two looks at the next row, which is fetched while this one is finished. */
enum { STEP = 512 };

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

/* Asks for elements that the next row will need, while this one is being computed. */
RG_INLINE void fetch(const char *from, int64_t count, const rg_dtype T)
{
    const int64_t bytes = count * (vbytes(T) / VLEN);
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(from + i, 0, 2);
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
    const int64_t length = shape->length;
    real buffer[KEPT];
    char in[PIECE * sizeof(real)], out[PIECE * sizeof(real)];
    real *const kept = !log && length <= KEPT ? buffer : NULL;
    for (int64_t row = begin; row < end; row++) {
        int64_t offset[2];
        rg_walk_offsets(&shape->outer, 2, row, offset);
        const char *x = at(args->x, offset[0], T);
        char *y = at_out(args->y, offset[1], T);
        const forward_row k = measure_row(shape, x, kept, in, T, log);
        const bool ahead = shape->dense && length >= STEP && row + 1 < end;
        int64_t step = STEP + vhead(y, T);
        for (int64_t j = 0, count; j < length; j += count, step = STEP) {
            count = least(step, length - j);
            if (ahead)
                fetch(at(x, length + j, T), count, T);
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

RG_INLINE void gradient_rows(const rg_softmax_gradient_args *args, int64_t begin, int64_t end,
                             const rg_dtype T, const bool log)
{
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
        const bool ahead = shape->dense && length >= STEP && row + 1 < end;
        int64_t step = STEP + vhead(dx, T);
        for (int64_t j = 0, count; j < length; j += count, step = STEP) {
            count = least(step, length - j);
            const char *a = piece_at(shape, 0, dy, j, count, dy_piece, T);
            const char *b = piece_at(shape, 1, y, j, count, y_piece, T);
            char *to = shape->dense ? at_out(dx, j, T) : out;
            if (ahead) {
                fetch(at(dy, length + j, T), count, T);
                fetch(at(y, length + j, T), count, T);
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

/* A unit is a block of groups that lie side by side. It is read row by row (element j of every
 * group of the block), so that memory is read in long runs; what belongs to each group, such as its
 * sum, stands in an array. For pairs that come in any order these arrays are in that order too. */
typedef struct columns {
    const char *in[2];
    char *out;
    int64_t in_step[2], out_step;     /* bytes from one element of a group to the next */
    int64_t in_across[2], out_across; /* elements from one group to the next */
    int64_t length, width;            /* of a group; groups of the block */
    bool dense, add, stream;
} columns;

/* One vector of groups, of which the first stands at `data`. */
RG_INLINE vreal load_groups(const char *data, int64_t across, const int n, const rg_dtype T,
                            bool dense)
{
    return dense ? vload(data, 0, n, T) : vgather(data, 0, across, n, T);
}

RG_INLINE void store_groups(char *data, int64_t across, const int n, const rg_dtype T, bool dense,
                            vreal a)
{
    if (dense)
        vstore(data, 0, n, T, a);
    else
        vscatter(data, 0, across, n, T, a);
}

/* What is done with one vector of a row: state[] holds up to two numbers of each group. */
typedef vreal rg_group_fold(vreal acc, vreal state, vreal a, vreal b);

/* acc = step(acc, state, a, b) for every group, with the next element of each. */
RG_INLINE void fold_row(rg_group_fold *step, real *acc, const real *state, const columns *c,
                        const char *a, const char *b, const rg_dtype T)
{
    int64_t i = 0;
    for (; c->dense && i + 2 * VLEN <= c->width; i += 2 * VLEN) {
        const vpair x = vload_pair(a, i, T, true), y = vload_pair(b, i, T, true);
        const vpair p =
            vload_pair(acc, i, RG_REAL, false); /* in the order of the pair, until the end */
        const vpair q = vpair_order(vload_pair(state, i, RG_REAL, false), T);
        vstore_pair(acc, i, RG_REAL, (vpair){ step(p.a, q.a, x.a, y.a), step(p.b, q.b, x.b, y.b) },
                    false, false);
    }
    for (; i < c->width; i += VLEN) {
        const int n = vlanes_left(c->width - i);
        const vreal x = load_groups(at(a, i * c->in_across[0], T), c->in_across[0], n, T, c->dense);
        const vreal y = load_groups(at(b, i * c->in_across[1], T), c->in_across[1], n, T, c->dense);
        const vreal p = vload_full(acc, i, RG_REAL), q = vload_full(state, i, RG_REAL);
        vstore_full(acc, i, RG_REAL, step(p, q, x, y));
    }
}

/* Puts what fold_row has left behind into the order of the groups. */
RG_INLINE void end_fold(real *acc, const columns *c, const rg_dtype T)
{
    for (int64_t i = 0; c->dense && i + 2 * VLEN <= c->width; i += 2 * VLEN)
        vstore_pair(acc, i, RG_REAL, velement_order(vload_pair(acc, i, RG_REAL, false), T), false,
                    false);
}

/* All rows of the block, in pieces that are added up. */
RG_INLINE void fold_rows(rg_group_fold *step, real *sum, const real *state, const columns *c,
                         const rg_dtype T)
{
    const char *a = c->in[0], *b = c->in[1];
    real part[RG_SOFTMAX_BLOCK + VLEN]; /* a vector from any group on is whole */
    memset(sum, 0, sizeof part);
    for (int64_t j = 0; j < c->length;) {
        memset(part, 0, sizeof part);
        for (const int64_t end = least(c->length, j + COLUMN_PIECE); j < end; j++) {
            fold_row(step, part, state, c, a, b, T);
            a += c->in_step[0];
            b += c->in_step[1];
        }
        for (int64_t i = 0; i < c->width; i += VLEN)
            vstore_full(sum, i, RG_REAL,
                        vload_full(sum, i, RG_REAL) + vload_full(part, i, RG_REAL));
    }
    end_fold(sum, c, T);
}

typedef vreal rg_group_formula(vreal first, vreal second, vreal a, vreal b);

RG_INLINE void finish_one(rg_group_formula *formula, const real *first, const real *second,
                          const columns *c, const char *a, const char *b, char *out, int64_t i,
                          const int n, const rg_dtype T)
{
    const vreal x = load_groups(at(a, i * c->in_across[0], T), c->in_across[0], n, T, c->dense);
    const vreal y = load_groups(at(b, i * c->in_across[1], T), c->in_across[1], n, T, c->dense);
    char *to = at_out(out, i * c->out_across, T);
    vreal value = formula(vload_full(first, i, RG_REAL), vload_full(second, i, RG_REAL), x, y);
    if (c->add)
        value += load_groups(to, c->out_across, n, T, c->dense);
    store_groups(to, c->out_across, n, T, c->dense, value);
}

RG_INLINE void finish_pair(rg_group_formula *formula, const real *first, const real *second,
                           const char *a, const char *b, char *out, int64_t i, const rg_dtype T,
                           bool add, const bool stream)
{
    const vpair x = vload_pair(a, i, T, true), y = vload_pair(b, i, T, true);
    const vpair p = vpair_order(vload_pair(first, i, RG_REAL, false), T);
    const vpair q = vpair_order(vload_pair(second, i, RG_REAL, false), T);
    vpair value = { formula(p.a, q.a, x.a, y.a), formula(p.b, q.b, x.b, y.b) };
    if (add) {
        const vpair old = vload_pair(out, i, T, true);
        value.a += old.a;
        value.b += old.b;
    }
    vstore_pair(out, i, T, value, true, stream);
}

/* out = formula(first, second, a, b) for every group and every element. */
RG_INLINE void finish_rows(rg_group_formula *formula, const real *first, const real *second,
                           const columns *c, const rg_dtype T)
{
    const char *a = c->in[0], *b = c->in[1];
    char *out = c->out;
    for (int64_t j = 0; j < c->length; j++) {
        int64_t i = 0;
        if (c->stream) { /* a few groups bring `out` to an aligned address */
            const int64_t head = least(vhead(out, T), c->width);
            for (; i < head; i += VLEN)
                finish_one(formula, first, second, c, a, b, out, i, vlanes_left(head - i), T);
            for (i = head; i + 2 * VLEN <= c->width; i += 2 * VLEN)
                finish_pair(formula, first, second, a, b, out, i, T, c->add, true);
        }
        for (; c->dense && i + 2 * VLEN <= c->width; i += 2 * VLEN)
            finish_pair(formula, first, second, a, b, out, i, T, c->add, false);
        for (; i < c->width; i += VLEN)
            finish_one(formula, first, second, c, a, b, out, i, vlanes_left(c->width - i), T);
        a += c->in_step[0];
        b += c->in_step[1];
        out += c->out_step;
    }
}

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

RG_INLINE vreal group_max(vreal acc, vreal unused, vreal x, vreal same)
{
    (void)unused;
    (void)same;
    return vmax(acc, x);
}

RG_INLINE vreal group_exp(vreal acc, vreal max, vreal x, vreal same)
{
    (void)same;
    return acc + vexp(x - max);
}

RG_INLINE vreal group_softmax(vreal max, vreal scale, vreal x, vreal same)
{
    (void)same;
    return vexp(x - max) * scale;
}

RG_INLINE vreal group_log_softmax(vreal max, vreal log_sum, vreal x, vreal same)
{
    (void)same;
    return (x - max) - log_sum;
}

RG_INLINE void forward_columns(const rg_softmax_args *k, int64_t begin, int64_t end,
                               const rg_dtype T, const bool log)
{
    for (int64_t unit = begin; unit < end; unit++) {
        const columns c = columns_of(&k->shape, k->x, k->x, k->y, 1, unit, T);
        real max[RG_SOFTMAX_BLOCK + VLEN], sum[RG_SOFTMAX_BLOCK + VLEN];
        for (int i = 0; i < RG_SOFTMAX_BLOCK + VLEN; i++)
            max[i] = -RG_INFINITY;
        for (int64_t j = 0; j < c.length; j++) {
            const char *x = c.in[0] + j * c.in_step[0];
            fold_row(group_max, max, max, &c, x, x, T);
        }
        end_fold(max, &c, T);
        fold_rows(group_exp, sum, max, &c, T);
        for (int64_t i = 0; i < c.width; i += VLEN) {
            const vreal s = vload_full(sum, i, RG_REAL);
            vstore_full(sum, i, RG_REAL, log ? vlog(s) : 1 / s);
        }
        finish_rows(log ? group_log_softmax : group_softmax, max, sum, &c, T);
    }
}

/* ---- gradient, columns ---- */

RG_INLINE vreal group_dot(vreal acc, vreal unused, vreal dy, vreal y)
{
    (void)unused;
    return vfma(dy, y, acc);
}

RG_INLINE vreal group_sum(vreal acc, vreal unused, vreal dy, vreal y)
{
    (void)unused;
    (void)y;
    return acc + dy;
}

RG_INLINE vreal group_gradient(vreal sum, vreal same, vreal dy, vreal y)
{
    (void)same;
    return y * (dy - sum);
}

RG_INLINE vreal group_log_gradient(vreal sum, vreal same, vreal dy, vreal y)
{
    (void)same;
    return vfma(-vexp(y), sum, dy);
}

RG_INLINE void gradient_columns(const rg_softmax_gradient_args *k, int64_t begin, int64_t end,
                                const rg_dtype T, const bool log)
{
    for (int64_t unit = begin; unit < end; unit++) {
        const columns c = columns_of(&k->shape, k->dy, k->y, k->dx, 2, unit, T);
        real sum[RG_SOFTMAX_BLOCK + VLEN];
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
