/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax on the CPU over rows that are not contiguous, but side by side: element j of one row and
 * of the next are neighbours, as the channels of an image in NCHW memory are.
 *
 * Several rows are taken side by side. Each is summed in the order, and so to the bits, of a row
 * that is contiguous (softmax_cpu.c): every element has its lane among 4 VLEN, which here is a
 * vector of rows, and these vectors are added in the same tree. */
#include "ops/softmax/softmax_rows.h"

/* Rows that are taken side by side; lanes of a row. */
enum { SIDE = 2 * VLEN, LANES = 4 * VLEN };

/* Rows whose first elements are neighbours at in[] and out; bytes from an element to the next. */
typedef struct planes {
    const char *in[2];
    char *out;
    int64_t in_step[2], out_step;
    int64_t length;
    int n; /* rows, SIDE at most */
    bool add, stream;
} planes;

RG_INLINE vpair load_side(const char *data, const int n, const rg_dtype T)
{
    if (n == SIDE)
        return vload_pair(data, 0, T, true);
    const vreal first = vload(data, 0, vlanes_left(n), T);
    return (vpair){ first, n > VLEN ? vload(data, VLEN, n - VLEN, T) : vset(0) };
}

RG_INLINE void store_side(char *data, const int n, vpair value, bool stream, const rg_dtype T)
{
    if (n == SIDE) {
        vstore_pair(data, 0, T, value, true, stream);
        return;
    }
    vstore(data, 0, vlanes_left(n), T, value.a);
    if (n > VLEN)
        vstore(data, VLEN, n - VLEN, T, value.b);
}

/* Asks for the same element of later rows. */
RG_INLINE void fetch_side(const char *data, const rg_dtype T)
{
    enum { AHEAD = 512, LINE = 64 }; /* bytes */
    const uintptr_t from = (uintptr_t)data + AHEAD;
    for (int line = 0; line < 2 * vbytes(T); line += LINE)
        __builtin_prefetch((const void *)(from + (uintptr_t)line), 0, 2);
}

/* ---- the order of a sum ---- */

/* The lane of each element of a piece, as fold_piece (or, of powers, exp_sum) takes them. */
typedef struct lane_order {
    int16_t lane[PIECE];
    int64_t count;
} lane_order;

/* Lanes of pairs of T from element i on, then of what is left. */
RG_OUTLINE void set_lanes(lane_order *order, int64_t count, bool powers, rg_dtype T)
{
    const bool mixed = T == RG_BF16; /* a pair is its even and its odd elements */
    const int64_t whole = count / LANES * LANES;
    const int64_t pairs = powers ? count / SIDE * SIDE : whole;
    order->count = count;
    for (int64_t j = 0; j < count; j++) {
        const int64_t in_pair = j % SIDE, part = j % LANES / SIDE * SIDE;
        if (j < pairs)
            order->lane[j] = (int16_t)(part + (mixed ? in_pair % 2 * VLEN + in_pair / 2 : in_pair));
        else
            order->lane[j] = (int16_t)(powers ? (j - pairs) % VLEN : j - whole);
    }
}

/* The lanes, added up as lanes_sum does. */
RG_INLINE vpair sum_lanes(vpair lanes[LANES])
{
    for (int l = 0; l < VLEN; l++) {
        const vpair *p = &lanes[l];
        lanes[l].a = (p[0].a + p[VLEN].a) + (p[2 * VLEN].a + p[3 * VLEN].a);
        lanes[l].b = (p[0].b + p[VLEN].b) + (p[2 * VLEN].b + p[3 * VLEN].b);
    }
    for (int half = VLEN / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) {
            lanes[l].a += lanes[l + half].a;
            lanes[l].b += lanes[l + half].b;
        }
    return lanes[0];
}

/* Sums of pieces, one after the other in double. */
RG_INLINE void add_piece(double total[SIDE], vpair piece)
{
    real each[SIDE];
    vstore_pair(each, 0, RG_REAL, piece, false, false);
    for (int r = 0; r < SIDE; r++)
        total[r] += (double)each[r];
}

RG_INLINE vpair side_of(const double total[SIDE], const bool inverse)
{
    real each[SIDE];
    for (int r = 0; r < SIDE; r++)
        each[r] = (real)(inverse ? 1 / total[r] : total[r]);
    return vload_pair(each, 0, RG_REAL, false);
}

/* ---- units ---- */

/* What a unit begins with. Forward has one input, which is then both. */
RG_INLINE planes planes_of(const rg_softmax_shape *shape, const void *a, const void *b, void *out,
                           int inputs, int64_t unit, int64_t *width, const rg_dtype T)
{
    const int64_t element = vbytes(T) / VLEN, first = unit % shape->blocks * shape->block;
    int64_t offset[RG_SOFTMAX_TENSORS];
    rg_walk_offsets(&shape->outer, inputs + 1, unit / shape->blocks, offset);
    const int second = inputs - 1;
    planes p = { .in = { at(a, offset[0] + first, T), at(b, offset[second] + first, T) },
                 .out = at_out(out, offset[inputs] + first, T),
                 .in_step = { shape->along[0] * element, shape->along[second] * element },
                 .out_step = shape->along[inputs] * element,
                 .length = shape->length,
                 .add = shape->add };
    const uintptr_t aligned = (uintptr_t)p.out | (uintptr_t)p.out_step;
    p.stream = shape->stream && (aligned & (RG_VECTOR_BYTES - 1)) == 0;
    *width = least(shape->block, shape->width - first);
    return p;
}

/* The next rows, `n` of them. */
RG_INLINE void next_side(planes *p, const rg_dtype T)
{
    p->in[0] += 2 * vbytes(T);
    p->in[1] += 2 * vbytes(T);
    p->out += 2 * vbytes(T);
}

/* ---- forward ---- */

/* Elements of a row whose e^(x - max) are kept. */
enum { KEPT_SIDE = 128 };

RG_INLINE vpair max_of_side(const planes *p, const int n, const rg_dtype T)
{
    vpair max = { vset(-RG_INFINITY), vset(-RG_INFINITY) };
    const char *x = p->in[0];
    for (int64_t j = 0; j < p->length; j++, x += p->in_step[0]) {
        const vpair a = load_side(x, n, T);
        fetch_side(x, T);
        max.a = vmax(max.a, a.a);
        max.b = vmax(max.b, a.b);
    }
    return max;
}

/* Sums of e^(x - max), which are kept, unless `kept` is NULL. */
RG_INLINE void power_sums(const planes *p, const int n, lane_order *order, vpair max, vpair *kept,
                          double total[SIDE], const rg_dtype T)
{
    const char *x = p->in[0];
    for (int64_t j = 0; j < p->length; j += PIECE) {
        vpair lanes[LANES] = { 0 };
        const int64_t count = least(PIECE, p->length - j);
        if (count != order->count)
            set_lanes(order, count, true, T);
        for (int64_t i = 0; i < count; i++, x += p->in_step[0]) {
            vpair *const acc = &lanes[order->lane[i]];
            const vpair a = load_side(x, n, T);
            const vpair e = { exp_for(a.a - max.a, T), exp_for(a.b - max.b, T) };
            acc->a += e.a;
            acc->b += e.b;
            if (kept != NULL)
                kept[j + i] = e;
        }
        add_piece(total, sum_lanes(lanes));
    }
}

RG_INLINE void forward_side(const planes *p, const int n, lane_order *order, const bool log,
                            const rg_dtype T)
{
    double total[SIDE] = { 0 };
    vpair each[KEPT_SIDE], *const kept = log || p->length > KEPT_SIDE ? NULL : each;
    const vpair max = max_of_side(p, n, T);
    power_sums(p, n, order, max, kept, total, T);
    vpair scale = side_of(total, !log);
    if (log)
        scale = (vpair){ vlog(scale.a), vlog(scale.b) };
    const char *x = p->in[0];
    char *y = p->out;
    for (int64_t j = 0; j < p->length; j++, x += p->in_step[0], y += p->out_step) {
        vpair value;
        if (kept != NULL) {
            value = (vpair){ kept[j].a * scale.a, kept[j].b * scale.b };
        } else {
            const vpair a = load_side(x, n, T), t = { a.a - max.a, a.b - max.b };
            value = log ? (vpair){ t.a - scale.a, t.b - scale.b }
                        : (vpair){ exp_for(t.a, T) * scale.a, exp_for(t.b, T) * scale.b };
        }
        store_side(y, n, value, p->stream, T);
    }
}

RG_OUTLINE void forward_some(const planes *p, int n, lane_order *order, bool log, rg_dtype T)
{
    RG_WITH_TYPE(T, U, forward_side(p, n, order, log, U));
}

RG_INLINE void forward_planes(const rg_softmax_args *k, int64_t begin, int64_t end,
                              const rg_dtype T, const bool log)
{
    lane_order order = { .count = 0 };
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t width;
        planes p = planes_of(&k->shape, k->x, k->x, k->y, 1, unit, &width, T);
        for (; width >= SIDE; width -= SIDE, next_side(&p, T))
            forward_side(&p, SIDE, &order, log, T);
        if (width > 0)
            forward_some(&p, (int)width, &order, log, T);
    }
}

RG_INLINE void softmax_forward_planes(const rg_softmax_args *k, int64_t begin, int64_t end,
                                      const rg_dtype T)
{
    forward_planes(k, begin, end, T, false);
}

RG_INLINE void log_softmax_forward_planes(const rg_softmax_args *k, int64_t begin, int64_t end,
                                          const rg_dtype T)
{
    forward_planes(k, begin, end, T, true);
}

/* ---- gradient ---- */

/* Sums of dy y, or of dy where `log`. */
RG_INLINE vpair gradient_sums(const planes *p, const int n, lane_order *order, const bool log,
                              const rg_dtype T)
{
    double total[SIDE] = { 0 };
    const char *dy = p->in[0], *y = p->in[1];
    for (int64_t j = 0; j < p->length; j += PIECE) {
        vpair lanes[LANES] = { 0 };
        const int64_t count = least(PIECE, p->length - j);
        if (count != order->count)
            set_lanes(order, count, false, T);
        for (int64_t i = 0; i < count; i++, dy += p->in_step[0], y += p->in_step[1]) {
            vpair *const acc = &lanes[order->lane[i]];
            const vpair a = load_side(dy, n, T);
            fetch_side(dy, T);
            fetch_side(y, T);
            if (log) {
                acc->a += a.a;
                acc->b += a.b;
            } else {
                const vpair b = load_side(y, n, T);
                acc->a = vfma(a.a, b.a, acc->a);
                acc->b = vfma(a.b, b.b, acc->b);
            }
        }
        const vpair piece = sum_lanes(lanes);
        if (p->length <= PIECE)
            return piece;
        add_piece(total, piece);
    }
    return side_of(total, false);
}

RG_INLINE void gradient_side(const planes *p, const int n, lane_order *order, const bool log,
                             const rg_dtype T)
{
    const vpair sum = gradient_sums(p, n, order, log, T);
    const char *dy = p->in[0], *y = p->in[1];
    char *dx = p->out;
    for (int64_t j = 0; j < p->length; j++) {
        const vpair a = load_side(dy, n, T), b = load_side(y, n, T);
        vpair value;
        if (log)
            value = (vpair){ vfma(-vexp(b.a), sum.a, a.a), vfma(-vexp(b.b), sum.b, a.b) };
        else
            value = (vpair){ b.a * (a.a - sum.a), b.b * (a.b - sum.b) };
        if (p->add) {
            const vpair old = load_side(dx, n, T);
            value.a += old.a;
            value.b += old.b;
        }
        store_side(dx, n, value, p->stream, T);
        dy += p->in_step[0];
        y += p->in_step[1];
        dx += p->out_step;
    }
}

RG_OUTLINE void gradient_some(const planes *p, int n, lane_order *order, bool log, rg_dtype T)
{
    RG_WITH_TYPE(T, U, gradient_side(p, n, order, log, U));
}

RG_INLINE void gradient_planes(const rg_softmax_gradient_args *k, int64_t begin, int64_t end,
                               const rg_dtype T, const bool log)
{
    lane_order order = { .count = 0 };
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t width;
        planes p = planes_of(&k->shape, k->dy, k->y, k->dx, 2, unit, &width, T);
        for (; width >= SIDE; width -= SIDE, next_side(&p, T))
            gradient_side(&p, SIDE, &order, log, T);
        if (width > 0)
            gradient_some(&p, (int)width, &order, log, T);
    }
}

RG_INLINE void softmax_gradient_planes(const rg_softmax_gradient_args *k, int64_t begin,
                                       int64_t end, const rg_dtype T)
{
    gradient_planes(k, begin, end, T, false);
}

RG_INLINE void log_softmax_gradient_planes(const rg_softmax_gradient_args *k, int64_t begin,
                                           int64_t end, const rg_dtype T)
{
    gradient_planes(k, begin, end, T, true);
}

RG_KERNEL(softmax_forward_planes, rg_softmax_args)
RG_KERNEL(log_softmax_forward_planes, rg_softmax_args)
RG_KERNEL(softmax_gradient_planes, rg_softmax_gradient_args)
RG_KERNEL(log_softmax_gradient_planes, rg_softmax_gradient_args)

RG_CPU_TABLE(softmax_planes, RG_SOFTMAX_KERNELS) = {
    [RG_SOFTMAX_FORWARD_PLANES] = RG_ROW(softmax_forward_planes),
    [RG_LOG_SOFTMAX_FORWARD_PLANES] = RG_ROW(log_softmax_forward_planes),
    [RG_SOFTMAX_GRADIENT_PLANES] = RG_ROW(softmax_gradient_planes),
    [RG_LOG_SOFTMAX_GRADIENT_PLANES] = RG_ROW(log_softmax_gradient_planes),
};
