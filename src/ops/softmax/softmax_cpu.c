/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax on the CPU. Each kernel goes over a group several times, but memory sees one pass: a row,
 * or a block of columns, stays in the cache in between.
 *
 * The order of every sum is fixed by the shape. In a row, element j belongs to lane j mod 4 VLEN; a
 * row that is not contiguous is gathered piece by piece and summed in the same lanes. In columns
 * each group is summed from its first element to its last. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/math.h"
#include "ops/softmax/softmax.h"

enum { UNROLL = 4, PIECE = 1024 }; /* a piece is a multiple of UNROLL * VLEN */

RG_INLINE const void *at(const void *data, int64_t i, const rg_dtype T)
{
    return (const char *)data + i * (vbytes(T) / VLEN);
}

RG_INLINE void *at_out(void *data, int64_t i, const rg_dtype T)
{
    return (char *)data + i * (vbytes(T) / VLEN);
}

/* ---- pieces of a row that are not contiguous ---- */

/* Calls for runs of neighbours: elements j to j + run - 1 of the group stand at offset + 0, step, 2
 * step, … */
RG_INLINE int64_t run_of(const rg_walk *group, int tensor, int64_t j, int64_t *offset,
                         int64_t *step)
{
    const int32_t last = group->rank - 1;
    int64_t offsets[RG_SOFTMAX_TENSORS];
    rg_walk_offsets(group, RG_SOFTMAX_TENSORS, j, offsets);
    *offset = offsets[tensor];
    *step = group->strides[tensor][last];
    return group->dims[last] - (last > 0 ? j % group->dims[last] : j);
}

static void gather(const rg_walk *group, int tensor, const void *from, int64_t j, int64_t count,
                   real *to, rg_dtype T)
{
    int64_t offset, step;
    for (int64_t done = 0, run; done < count; done += run) {
        run = run_of(group, tensor, j + done, &offset, &step);
        run = run < count - done ? run : count - done;
        for (int64_t i = 0; i < run; i++)
            to[done + i] = load_one(from, offset + i * step, T);
    }
}

static void scatter(const rg_walk *group, int tensor, const real *from, int64_t j, int64_t count,
                    void *to, rg_dtype T, bool add)
{
    int64_t offset, step;
    for (int64_t done = 0, run; done < count; done += run) {
        run = run_of(group, tensor, j + done, &offset, &step);
        run = run < count - done ? run : count - done;
        for (int64_t i = 0; i < run; i++) {
            const int64_t k = offset + i * step;
            store_one(to, k, T, add ? from[done + i] + load_one(to, k, T) : from[done + i]);
        }
    }
}

/* ---- sums over a row ---- */

typedef struct lanes {
    vreal part[UNROLL];
} lanes;

RG_INLINE lanes lanes_of(real value)
{
    return (lanes){ { vset(value), vset(value), vset(value), vset(value) } };
}

RG_INLINE real lanes_sum(const lanes *a)
{
    return vsum((a->part[0] + a->part[1]) + (a->part[2] + a->part[3]));
}

RG_INLINE real lanes_max(const lanes *a)
{
    return vmax_lane(vmax(vmax(a->part[0], a->part[1]), vmax(a->part[2], a->part[3])));
}

/* part[q mod UNROLL] = step(part, vector q of the row): UNROLL vectors at a time, then what is
 * left. */
#define FOR_LANES(acc, count, step, ...)                                                    \
    do {                                                                                    \
        int64_t i_ = 0;                                                                     \
        for (; i_ + UNROLL * VLEN <= (count); i_ += UNROLL * VLEN) {                        \
            step((acc)->part[0], i_, VLEN, __VA_ARGS__);                                    \
            step((acc)->part[1], i_ + VLEN, VLEN, __VA_ARGS__);                             \
            step((acc)->part[2], i_ + 2 * VLEN, VLEN, __VA_ARGS__);                         \
            step((acc)->part[3], i_ + 3 * VLEN, VLEN, __VA_ARGS__);                         \
        }                                                                                   \
        const int64_t rest_ = (count)-i_;                                                   \
        if (rest_ > 0)                                                                      \
            step((acc)->part[0], i_, lanes_left(rest_), __VA_ARGS__);                       \
        if (rest_ > VLEN)                                                                   \
            step((acc)->part[1], i_ + VLEN, lanes_left(rest_ - VLEN), __VA_ARGS__);         \
        if (rest_ > 2 * VLEN)                                                               \
            step((acc)->part[2], i_ + 2 * VLEN, lanes_left(rest_ - 2 * VLEN), __VA_ARGS__); \
        if (rest_ > 3 * VLEN)                                                               \
            step((acc)->part[3], i_ + 3 * VLEN, lanes_left(rest_ - 3 * VLEN), __VA_ARGS__); \
    } while (0)

RG_INLINE int lanes_left(int64_t rest)
{
    return rest < VLEN ? (int)rest : VLEN;
}

#define MAX_STEP(a, i, n, x, T)       a = vmax(a, vkeep(vload(x, i, n, T), n, -RG_INFINITY))
#define EXP_STEP(a, i, n, x, m, e, T) a += exp_step(x, i, n, m, e, T)
#define DOT_STEP(a, i, n, dy, y, T)   a = vfma(vload(dy, i, n, T), vload(y, i, n, T), a)
#define SUM_STEP(a, i, n, dy, T)      a += vload(dy, i, n, T)

/* e^(x - m), which is kept in e[] where there is room for the row */
RG_INLINE vreal exp_step(const void *x, int64_t i, const int n, real m, real *e, const rg_dtype T)
{
    const vreal value = vkeep(vexp(vload(x, i, n, T) - vset(m)), n, 0);
    if (e != NULL)
        vstore_full(e, i, RG_REAL, value);
    return value;
}

/* ---- forward, rows ---- */

typedef struct forward_row {
    const void *x;
    const real *e; /* e^(x - m), or NULL */
    void *y;
    real max, scale, log_sum;
} forward_row;

RG_INLINE void softmax_step(const forward_row *k, int64_t i, const int n, const rg_dtype T)
{
    const vreal e =
        k->e != NULL ? vload(k->e, i, n, RG_REAL) : vexp(vload(k->x, i, n, T) - vset(k->max));
    vstore(k->y, i, n, T, e * vset(k->scale));
}

RG_INLINE void log_step(const forward_row *k, int64_t i, const int n, const rg_dtype T)
{
    vstore(k->y, i, n, T, (vload(k->x, i, n, T) - vset(k->max)) - vset(k->log_sum));
}

static void finish_sum(forward_row *k, real sum)
{
    k->scale = 1 / sum;
    k->log_sum = vlog(vset(sum))[0];
}

RG_INLINE void forward_dense_row(const void *x, void *y, int64_t length, const rg_dtype T,
                                 const bool log, bool stream)
{
    enum { KEPT = 4096 }; /* elements of e^(x - m) on the stack; longer rows compute them twice */
    real kept[KEPT + VLEN];
    forward_row k = { .x = x, .y = y };
    lanes acc = lanes_of(-RG_INFINITY);
    FOR_LANES(&acc, length, MAX_STEP, x, T);
    k.max = lanes_max(&acc);
    acc = lanes_of(0);
    real *const e = length <= KEPT && !log ? kept : NULL;
    FOR_LANES(&acc, length, EXP_STEP, x, k.max, e, T);
    finish_sum(&k, lanes_sum(&acc));
    k.e = e;
    if (log)
        RG_SWEEP(log_step, &k, length, y, T, stream);
    else
        RG_SWEEP(softmax_step, &k, length, y, T, stream);
}

static void forward_scattered_row(const rg_walk *group, const void *x, void *y, int64_t length,
                                  rg_dtype T, bool log)
{
    real piece[PIECE];
    forward_row k = { .x = piece, .y = piece };
    lanes acc = lanes_of(-RG_INFINITY);
    for (int64_t j = 0; j < length; j += PIECE) {
        const int64_t count = length - j < PIECE ? length - j : PIECE;
        gather(group, 0, x, j, count, piece, T);
        FOR_LANES(&acc, count, MAX_STEP, piece, RG_REAL);
    }
    k.max = lanes_max(&acc);
    acc = lanes_of(0);
    for (int64_t j = 0; j < length; j += PIECE) {
        const int64_t count = length - j < PIECE ? length - j : PIECE;
        gather(group, 0, x, j, count, piece, T);
        FOR_LANES(&acc, count, EXP_STEP, piece, k.max, NULL, RG_REAL);
    }
    finish_sum(&k, lanes_sum(&acc));
    for (int64_t j = 0; j < length; j += PIECE) {
        const int64_t count = length - j < PIECE ? length - j : PIECE;
        gather(group, 0, x, j, count, piece, T);
        if (log)
            RG_SWEEP(log_step, &k, count, piece, RG_REAL, false);
        else
            RG_SWEEP(softmax_step, &k, count, piece, RG_REAL, false);
        scatter(group, 1, piece, j, count, y, T, false);
    }
}

RG_INLINE void forward_rows(const rg_softmax_args *k, int64_t begin, int64_t end, const rg_dtype T,
                            const bool log)
{
    const rg_softmax_shape *shape = &k->shape;
    for (int64_t row = begin; row < end; row++) {
        int64_t offset[2];
        rg_walk_offsets(&shape->outer, 2, row, offset);
        const void *x = at(k->x, offset[0], T);
        void *y = at_out(k->y, offset[1], T);
        if (!shape->dense)
            forward_scattered_row(&shape->group, x, y, shape->length, T, log);
        else
            forward_dense_row(x, y, shape->length, T, log, shape->stream);
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

/* ---- columns: one vector of groups side by side ---- */

/* Element j of n groups, from group i on. */
RG_INLINE vreal load_groups(const void *data, int64_t i, int64_t across, const int n,
                            const rg_dtype T, const bool dense)
{
    return dense ? vload(data, i, n, T) : vgather(data, i, across, n, T);
}

RG_INLINE void store_groups(void *data, int64_t i, int64_t across, const int n, const rg_dtype T,
                            const bool dense, vreal a)
{
    if (dense)
        vstore(data, i, n, T, a);
    else
        vscatter(data, i, across, n, T, a);
}

/* A unit of columns: where it starts in each tensor, and how many groups it has. */
typedef struct columns {
    const char *in[2];
    char *out;
    int64_t count;
    const rg_softmax_shape *shape;
} columns;

RG_INLINE int64_t columns_of(const rg_softmax_shape *shape, int tensors, int64_t unit,
                             int64_t offset[])
{
    const int64_t first = unit % shape->blocks * shape->block;
    rg_walk_offsets(&shape->outer, tensors, unit / shape->blocks, offset);
    for (int t = 0; t < tensors; t++)
        offset[t] += first * shape->across[t];
    return shape->width - first < shape->block ? shape->width - first : shape->block;
}

/* ---- forward, columns ---- */

/* Groups i to i + vectors * VLEN - 1 (or n of the last vector). */
RG_INLINE void forward_groups(const columns *c, int64_t i, const int vectors, const int n,
                              const rg_dtype T, const bool log, const bool dense)
{
    const rg_softmax_shape *s = c->shape;
    const int64_t element = vbytes(T) / VLEN;
    vreal max[UNROLL], sum[UNROLL];
    for (int v = 0; v < vectors; v++) {
        max[v] = vset(-RG_INFINITY);
        sum[v] = vset(0);
    }
    const char *x = c->in[0];
    for (int64_t j = 0; j < s->length; j++, x += s->along[0] * element) {
        __builtin_prefetch(x + (i + 8 * s->along[0]) * element);
        for (int v = 0; v < vectors; v++)
            max[v] = vmax(max[v], load_groups(x, i + v * VLEN, s->across[0], n, T, dense));
    }
    x = c->in[0];
    for (int64_t j = 0; j < s->length; j++, x += s->along[0] * element)
        for (int v = 0; v < vectors; v++)
            sum[v] += vexp(load_groups(x, i + v * VLEN, s->across[0], n, T, dense) - max[v]);
    for (int v = 0; v < vectors; v++)
        sum[v] = log ? vlog(sum[v]) : 1 / sum[v];
    x = c->in[0];
    char *y = c->out;
    for (int64_t j = 0; j < s->length;
         j++, x += s->along[0] * element, y += s->along[1] * element) {
        for (int v = 0; v < vectors; v++) {
            const vreal z = load_groups(x, i + v * VLEN, s->across[0], n, T, dense) - max[v];
            store_groups(y, i + v * VLEN, s->across[1], n, T, dense,
                         log ? z - sum[v] : vexp(z) * sum[v]);
        }
    }
}

/* Whether every row of the result can be stored past the cache in full vectors. */
RG_INLINE bool may_stream(const void *out, int64_t along, int64_t length, const rg_dtype T)
{
    const int64_t element = vbytes(T) / VLEN;
    return ((uintptr_t)out & (uintptr_t)(vbytes(T) - 1)) == 0 &&
           (length == 1 || along * element % vbytes(T) == 0);
}

static void forward_scattered_columns(const columns *c, rg_dtype T, bool log)
{
    for (int64_t i = 0; i < c->count; i += VLEN) {
        if (log)
            forward_groups(c, i, 1, lanes_left(c->count - i), T, true, false);
        else
            forward_groups(c, i, 1, lanes_left(c->count - i), T, false, false);
    }
}

RG_INLINE void forward_dense_columns(const columns *c, const rg_dtype T, const bool log,
                                     bool stream)
{
    int64_t i = 0;
    for (; stream && i + UNROLL * VLEN <= c->count; i += UNROLL * VLEN)
        forward_groups(c, i, UNROLL, VSTREAM, T, log, true);
    for (; i + UNROLL * VLEN <= c->count; i += UNROLL * VLEN)
        forward_groups(c, i, UNROLL, VLEN, T, log, true);
    for (; i < c->count; i += VLEN)
        forward_groups(c, i, 1, lanes_left(c->count - i), T, log, true);
}

RG_INLINE void forward_columns(const rg_softmax_args *k, int64_t begin, int64_t end,
                               const rg_dtype T, const bool log)
{
    const rg_softmax_shape *shape = &k->shape;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset[2];
        const int64_t count = columns_of(shape, 2, unit, offset);
        const columns c = { .in = { at(k->x, offset[0], T) },
                            .out = at_out(k->y, offset[1], T),
                            .count = count,
                            .shape = shape };
        const bool stream = shape->stream && may_stream(c.out, shape->along[1], shape->length, T);
        if (shape->dense)
            forward_dense_columns(&c, T, log, stream);
        else
            forward_scattered_columns(&c, T, log);
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

/* ---- gradient ---- */

/* softmax: y (dy - s), s = sum dy y;  log-softmax: dy - e^y s, s = sum dy */
RG_INLINE vreal gradient_of(vreal dy, vreal y, vreal s, const bool log)
{
    return log ? vfma(-vexp(y), s, dy) : y * (dy - s);
}

/* ---- gradient, rows ---- */

typedef struct gradient_row {
    const void *dy, *y;
    void *dx;
    real s;
    bool add;
    int64_t next; /* elements from this row to the next, which is fetched meanwhile; 0: none */
} gradient_row;

RG_INLINE void gradient_step(const gradient_row *k, int64_t i, const int n, const rg_dtype T,
                             const bool log)
{
    if (k->next != 0) {
        __builtin_prefetch(at(k->dy, i + k->next, T), 0, 2);
        __builtin_prefetch(at(k->y, i + k->next, T), 0, 2);
    }
    vreal dx = gradient_of(vload(k->dy, i, n, T), vload(k->y, i, n, T), vset(k->s), log);
    if (k->add)
        dx += vload(k->dx, i, n, T);
    vstore(k->dx, i, n, T, dx);
}

RG_INLINE void softmax_gradient_step(const gradient_row *k, int64_t i, const int n,
                                     const rg_dtype T)
{
    gradient_step(k, i, n, T, false);
}

RG_INLINE void log_gradient_step(const gradient_row *k, int64_t i, const int n, const rg_dtype T)
{
    gradient_step(k, i, n, T, true);
}

RG_INLINE void gradient_dense_row(gradient_row *k, int64_t length, const rg_dtype T, const bool log,
                                  bool stream)
{
    lanes acc = lanes_of(0);
    if (log) {
        FOR_LANES(&acc, length, SUM_STEP, k->dy, T);
        k->s = lanes_sum(&acc);
        RG_SWEEP(log_gradient_step, k, length, k->dx, T, stream);
    } else {
        FOR_LANES(&acc, length, DOT_STEP, k->dy, k->y, T);
        k->s = lanes_sum(&acc);
        RG_SWEEP(softmax_gradient_step, k, length, k->dx, T, stream);
    }
}

static void gradient_scattered_row(const rg_walk *group, const gradient_row *row, int64_t length,
                                   rg_dtype T, bool log, bool add)
{
    real dy[PIECE], y[PIECE];
    lanes acc = lanes_of(0);
    for (int64_t j = 0; j < length; j += PIECE) {
        const int64_t count = length - j < PIECE ? length - j : PIECE;
        gather(group, 0, row->dy, j, count, dy, T);
        gather(group, 1, row->y, j, count, y, T);
        if (log)
            FOR_LANES(&acc, count, SUM_STEP, dy, RG_REAL);
        else
            FOR_LANES(&acc, count, DOT_STEP, dy, y, RG_REAL);
    }
    const gradient_row k = { .dy = dy, .y = y, .dx = dy, .s = lanes_sum(&acc) };
    for (int64_t j = 0; j < length; j += PIECE) {
        const int64_t count = length - j < PIECE ? length - j : PIECE;
        gather(group, 0, row->dy, j, count, dy, T);
        gather(group, 1, row->y, j, count, y, T);
        if (log)
            RG_SWEEP(log_gradient_step, &k, count, dy, RG_REAL, false);
        else
            RG_SWEEP(softmax_gradient_step, &k, count, dy, RG_REAL, false);
        scatter(group, 2, dy, j, count, row->dx, T, add);
    }
}

RG_INLINE void gradient_rows(const rg_softmax_gradient_args *k, int64_t begin, int64_t end,
                             const rg_dtype T, const bool log)
{
    enum { LONG = 16 << 10 }; /* bytes of a row from which the next one is worth fetching ahead */
    const rg_softmax_shape *shape = &k->shape;
    const int64_t length = shape->length;
    const bool fetch = length * (vbytes(T) / VLEN) >= LONG;
    for (int64_t i = begin; i < end; i++) {
        int64_t offset[3];
        rg_walk_offsets(&shape->outer, 3, i, offset);
        gradient_row row = { .dy = at(k->dy, offset[0], T),
                             .y = at(k->y, offset[1], T),
                             .dx = at_out(k->dx, offset[2], T),
                             .add = shape->add,
                             .next = fetch && i + 1 < end ? length : 0 };
        if (shape->dense)
            gradient_dense_row(&row, length, T, log, shape->stream && !shape->add);
        else
            gradient_scattered_row(&shape->group, &row, length, T, log, shape->add);
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

/* ---- gradient, columns ---- */

RG_INLINE void gradient_groups(const columns *c, int64_t i, const int vectors, const int n,
                               const rg_dtype T, const bool log, const bool dense)
{
    enum { AHEAD = 16 }; /* rows to fetch ahead: every row is in another page */
    const rg_softmax_shape *s = c->shape;
    const int64_t element = vbytes(T) / VLEN;
    const int64_t dy_step = s->along[0] * element, y_step = s->along[1] * element;
    vreal sum[UNROLL];
    for (int v = 0; v < vectors; v++)
        sum[v] = vset(0);
    const char *dy = c->in[0], *y = c->in[1];
    for (int64_t j = 0; j < s->length; j++, dy += dy_step, y += y_step) {
        for (int line = 0; dense && line < vectors * vbytes(T); line += 64) {
            __builtin_prefetch(dy + i * element + AHEAD * dy_step + line);
            __builtin_prefetch(y + i * element + AHEAD * y_step + line);
        }
        for (int v = 0; v < vectors; v++) {
            const vreal a = load_groups(dy, i + v * VLEN, s->across[0], n, T, dense);
            if (log)
                sum[v] += a;
            else
                sum[v] = vfma(a, load_groups(y, i + v * VLEN, s->across[1], n, T, dense), sum[v]);
        }
    }
    dy = c->in[0];
    y = c->in[1];
    char *dx = c->out;
    for (int64_t j = 0; j < s->length;
         j++, dy += dy_step, y += y_step, dx += s->along[2] * element) {
        for (int v = 0; v < vectors; v++) {
            const int64_t at_v = i + v * VLEN;
            vreal value = gradient_of(load_groups(dy, at_v, s->across[0], n, T, dense),
                                      load_groups(y, at_v, s->across[1], n, T, dense), sum[v], log);
            if (s->add)
                value += load_groups(dx, at_v, s->across[2], n, T, dense);
            store_groups(dx, at_v, s->across[2], n, T, dense, value);
        }
    }
}

static void gradient_scattered_columns(const columns *c, rg_dtype T, bool log)
{
    for (int64_t i = 0; i < c->count; i += VLEN) {
        if (log)
            gradient_groups(c, i, 1, lanes_left(c->count - i), T, true, false);
        else
            gradient_groups(c, i, 1, lanes_left(c->count - i), T, false, false);
    }
}

RG_INLINE void gradient_dense_columns(const columns *c, const rg_dtype T, const bool log,
                                      bool stream)
{
    int64_t i = 0;
    for (; stream && i + UNROLL * VLEN <= c->count; i += UNROLL * VLEN)
        gradient_groups(c, i, UNROLL, VSTREAM, T, log, true);
    for (; i + UNROLL * VLEN <= c->count; i += UNROLL * VLEN)
        gradient_groups(c, i, UNROLL, VLEN, T, log, true);
    for (; i < c->count; i += VLEN)
        gradient_groups(c, i, 1, lanes_left(c->count - i), T, log, true);
}

RG_INLINE void gradient_columns(const rg_softmax_gradient_args *k, int64_t begin, int64_t end,
                                const rg_dtype T, const bool log)
{
    const rg_softmax_shape *shape = &k->shape;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset[3];
        const int64_t count = columns_of(shape, 3, unit, offset);
        const columns c = { .in = { at(k->dy, offset[0], T), at(k->y, offset[1], T) },
                            .out = at_out(k->dx, offset[2], T),
                            .count = count,
                            .shape = shape };
        const bool stream =
            shape->stream && !shape->add && may_stream(c.out, shape->along[2], shape->length, T);
        if (shape->dense)
            gradient_dense_columns(&c, T, log, stream);
        else
            gradient_scattered_columns(&c, T, log);
    }
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
