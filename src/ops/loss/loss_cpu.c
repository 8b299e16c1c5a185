/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses on the CPU. Most kernels go piece by piece: elements of any tensor come as arrays of real,
 * where they are or converted, so one copy of each formula serves all storage types. Softmax with
 * class labels, the usual end of a network, goes through memory as softmax itself does.
 *
 * The order of every sum follows from the shape: pieces of 1024 elements, in double parts of 4096
 * or rows, and then these one after the other. */
#include "ops/loss/loss_formulas.h"
#include "ops/softmax/softmax_rows.h"

#include <retrograde/loss.h>

/* ---- elements of a tensor by their number ---- */

RG_INLINE int64_t place_of(const rg_loss_view *v, int64_t i)
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

/* Elements from number i on, at most `count`, that stand `step` apart. */
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

/* Elements number i to i + count - 1: where they are, or put into `room`. */
RG_OUTLINE const real *get_piece(const rg_loss_view *v, const void *data, int64_t i, int64_t count,
                                 real *room, rg_dtype T)
{
    for (int64_t done = 0, run, step; done < count; done += run) {
        run = run_of(v, i + done, count - done, &step);
        const char *from = at(data, place_of(v, i + done), T);
        if (T == RG_REAL && run == count && (step == 1 || count == 1))
            return (const real *)(const void *)from;
        load_run(from, step, run, room + done, T);
    }
    return room;
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
        store_run(at_out(data, place_of(v, i + done), T), step, run, from + done, T, add, stream);
    }
}

/* ---- formulas over arrays ---- */

/* out = formula(k, a, b) */
typedef void rg_loss_map(const void *k, const real *a, const real *b, real *out, int64_t count);

RG_INLINE void map(rg_formula *formula, const void *k, const real *a, const real *b, real *out,
                   int64_t count)
{
    for (int64_t i = 0; i < count; i += VLEN) {
        const int n = vlanes_left(count - i);
        vstore(out, i, n, RG_REAL, formula(k, vload(a, i, n, RG_REAL), vload(b, i, n, RG_REAL)));
    }
}

#define MAP(name)                                                                      \
    RG_OUTLINE void map_##name(const void *k, const real *a, const real *b, real *out, \
                               int64_t count)                                          \
    {                                                                                  \
        map(name, k, a, b, out, count);                                                \
    }

MAP(absolute_loss)
MAP(absolute_slope)
MAP(squared_loss)
MAP(squared_slope)
MAP(sigmoid_loss)
MAP(sigmoid_slope)
MAP(sigmoid_label_slope)
MAP(categorical_loss)
MAP(categorical_slope)
MAP(categorical_label_slope)
MAP(hinge_loss)
MAP(hinge_slope)
MAP(hinge_label_slope)
MAP(huber_loss)
MAP(huber_slope)
MAP(cosine_loss)
MAP(minus_label)
MAP(cosine_label_slope)
MAP(log_loss)
MAP(log_slope)
MAP(log_label_slope)
MAP(kullback_loss)
MAP(kullback_label_slope)

/* The loss, dl/dy and dl/dt; the last is minus the second where there is none. */
static rg_loss_map *const maps[][3] = {
    [RG_LOSS_MEAN_ABSOLUTE] = { map_absolute_loss, map_absolute_slope, NULL },
    [RG_LOSS_MEAN_SQUARED] = { map_squared_loss, map_squared_slope, NULL },
    [RG_LOSS_SIGMOID_CROSS_ENTROPY] = { map_sigmoid_loss, map_sigmoid_slope,
                                        map_sigmoid_label_slope },
    [RG_LOSS_CATEGORICAL_CROSS_ENTROPY] = { map_categorical_loss, map_categorical_slope,
                                            map_categorical_label_slope },
    [RG_LOSS_HINGE] = { map_hinge_loss, map_hinge_slope, map_hinge_label_slope },
    [RG_LOSS_HUBER] = { map_huber_loss, map_huber_slope, NULL },
    [RG_LOSS_COSINE_DISTANCE] = { map_cosine_loss, map_minus_label, map_cosine_label_slope },
    [RG_LOSS_LOG] = { map_log_loss, map_log_slope, map_log_label_slope },
    [RG_LOSS_KULLBACK_LEIBLER] = { map_kullback_loss, map_minus_label, map_kullback_label_slope },
};

/* ---- pieces ---- */

/* A piece of the tensors of a launch; weights and dy are NULL where they are 1. */
typedef struct piece {
    const real *y, *t, *w, *dy;
    int64_t first, count;
    real room[4][PIECE];
} piece;

RG_INLINE void take_piece(const rg_loss_args *k, piece *p, int64_t first, int64_t count, rg_dtype T)
{
    p->first = first;
    p->count = count;
    p->y = get_piece(&k->views[RG_LOSS_Y], k->y, first, count, p->room[0], T);
    p->t = get_piece(&k->views[RG_LOSS_T], k->labels, first, count, p->room[1], T);
    p->w = p->dy = NULL;
    if (k->has_weights)
        p->w = get_piece(&k->views[RG_LOSS_W], k->weights, first, count, p->room[2], T);
    if (k->dy_of_labels)
        p->dy = get_piece(&k->views[RG_LOSS_DY], k->dy, first, count, p->room[3], T);
}

/* out times a factor, weights and dy. */
RG_OUTLINE void weigh(real *out, const real *w, const real *dy, real factor, int64_t count)
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
        scale *= (double)load_one(k->dy, place_of(&k->views[RG_LOSS_DY], group), T);
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

/* ---- element by element ---- */

RG_OUTLINE void elements(const rg_loss_args *k, int64_t begin, int64_t end, rg_dtype T)
{
    piece p;
    real out[PIECE];
    const loss_numbers numbers = numbers_of(&k->numbers);
    const int32_t kind = k->numbers.kind;
    rg_loss_map *const slope = maps[kind][k->is_label_gradient ? 2 : 1];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t group = unit / k->parts, stop = (group + 1) * k->group;
        const int64_t first = group * k->group + unit % k->parts * RG_LOSS_PART;
        const int64_t last = least(first + RG_LOSS_PART, stop);
        const real scale = group_scale(k, group, T);
        double sum = 0;
        for (int64_t i = first; i < last; i += PIECE) {
            take_piece(k, &p, i, least(PIECE, last - i), T);
            if (k->losses != RG_LOSS_NO_LOSS) {
                maps[kind][0](&numbers, p.y, p.t, out, p.count);
                weigh(out, p.w, NULL, (real)k->numbers.weight, p.count);
            }
            if (k->losses == RG_LOSS_SUMS)
                sum += sum_of(out, p.count);
            else if (k->losses == RG_LOSS_OF_LABELS)
                put_piece(&k->views[RG_LOSS_L], k->loss, i, p.count, out, T, false, false);
            if (k->has_gradient) {
                (slope != NULL ? slope : maps[kind][1])(&numbers, p.y, p.t, out, p.count);
                weigh(out, p.w, p.dy, slope != NULL ? scale : -scale, p.count);
                put_gradient(k, &p, out, T);
            }
        }
        if (k->losses == RG_LOSS_SUMS)
            k->partial[unit] = sum;
    }
}

RG_INLINE void loss_by_elements(const rg_loss_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    elements(k, begin, end, T);
}

/* ---- softmax with dense labels ---- */

typedef struct soft_row {
    real max, log_sum;
    real share; /* of e^(x - max) in dl/dy: the sum of weighted labels over that of e^(x - max) */
} soft_row;

RG_FORMULA vreal fold_product(const void *k, vreal acc, vreal a, vreal x) /* a (x - max) */
{
    return vfma(a, x - vset(*(const real *)k), acc);
}

RG_FORMULA vreal soft_loss(const void *k, vreal x, vreal a)
{
    const soft_row *row = k;
    return -a * ((x - vset(row->max)) - vset(row->log_sum));
}

RG_FORMULA vreal soft_slope(const void *k, vreal x, vreal a)
{
    const soft_row *row = k;
    return vexp(x - vset(row->max)) * vset(row->share) - a;
}

RG_FORMULA vreal soft_label_slope(const void *k, vreal x, vreal same)
{
    UNUSED(same);
    const soft_row *row = k;
    return vset(row->log_sum) - (x - vset(row->max));
}

MAP(soft_loss)
MAP(soft_slope)
MAP(soft_label_slope)

RG_FORMULA vreal smooth(const void *k, vreal t, vreal same)
{
    UNUSED(same);
    return t * vset(NUMBERS(k)->keep) + vset(NUMBERS(k)->share);
}

MAP(smooth)

/* Labels of a piece, smoothed, times weights and dy. */
RG_INLINE void weighted_labels(const piece *p, const loss_numbers *numbers, real *out)
{
    map_smooth(numbers, p->t, p->t, out, p->count);
    weigh(out, p->w, p->dy, 1, p->count);
}

/* The loss of a row before it is multiplied by the weight. */
RG_INLINE double soft_sums(const rg_loss_args *k, piece *p, const loss_numbers *numbers,
                           soft_row *row, int64_t first, int64_t last, rg_dtype T)
{
    real a[PIECE];
    double sum = 0, labels = 0, products = 0;
    row->max = -RG_INFINITY;
    for (int64_t i = first; i < last; i += PIECE) {
        const int64_t n = least(PIECE, last - i);
        const real *y = get_piece(&k->views[RG_LOSS_Y], k->y, i, n, p->room[0], T);
        const real max = lanes_max(fold(fold_max, NULL, -RG_INFINITY, y, y, n, RG_REAL));
        row->max = max > row->max ? max : row->max;
    }
    for (int64_t i = first; i < last; i += PIECE) {
        take_piece(k, p, i, least(PIECE, last - i), T);
        weighted_labels(p, numbers, a);
        sum += exp_sum((const char *)p->y, NULL, NULL, p->count, row->max, RG_REAL);
        labels += sum_of(a, p->count);
        products += (double)lanes_sum(fold(fold_product, &row->max, 0, a, p->y, p->count, RG_REAL));
    }
    row->log_sum = vlog(vset((real)sum))[0];
    row->share = (real)(labels / sum);
    return (double)row->log_sum * labels - products;
}

RG_INLINE void soft_piece(const rg_loss_args *k, const piece *p, const loss_numbers *numbers,
                          const soft_row *row, real scale, rg_dtype T)
{
    real a[PIECE], out[PIECE];
    weighted_labels(p, numbers, a);
    if (k->losses == RG_LOSS_OF_LABELS) {
        map_soft_loss(row, p->y, a, out, p->count);
        weigh(out, NULL, NULL, (real)k->numbers.weight, p->count);
        put_piece(&k->views[RG_LOSS_L], k->loss, p->first, p->count, out, T, false, false);
    }
    if (!k->has_gradient)
        return;
    if (k->is_label_gradient) {
        map_soft_label_slope(row, p->y, p->y, out, p->count);
        weigh(out, p->w, p->dy, scale * numbers->keep, p->count);
    } else {
        map_soft_slope(row, p->y, a, out, p->count);
        weigh(out, NULL, NULL, scale, p->count);
    }
    put_gradient(k, p, out, T);
}

RG_OUTLINE void soft_rows(const rg_loss_args *k, int64_t begin, int64_t end, rg_dtype T)
{
    piece p;
    soft_row row;
    const loss_numbers numbers = numbers_of(&k->numbers);
    const int64_t rows = k->group / k->length; /* of a group */
    for (int64_t r = begin; r < end; r++) {
        const int64_t first = r * k->length, last = first + k->length;
        const real scale = group_scale(k, r / rows, T);
        const double loss = soft_sums(k, &p, &numbers, &row, first, last, T);
        if (k->losses == RG_LOSS_SUMS)
            k->partial[r] = loss * k->numbers.weight;
        for (int64_t i = first; i < last && (k->has_gradient || k->losses == RG_LOSS_OF_LABELS);
             i += PIECE) {
            take_piece(k, &p, i, least(PIECE, last - i), T);
            soft_piece(k, &p, &numbers, &row, scale, T);
        }
    }
}

RG_INLINE void loss_by_rows(const rg_loss_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    soft_rows(k, begin, end, T);
}

/* ---- class labels ---- */

RG_INLINE int64_t label_at(const rg_loss_args *k, int64_t row)
{
    const int64_t i = place_of(&k->views[RG_LOSS_T], row);
    return k->wide_labels ? ((const int64_t *)k->labels)[i] : ((const int32_t *)k->labels)[i];
}

/* What becomes of a row: factors of its loss and of derivatives. */
typedef struct class_use {
    int64_t label; /* checked; -1: the row does not count */
    real loss, slope;
} class_use;

RG_OUTLINE class_use use_of(const rg_loss_args *k, int64_t row, rg_dtype T)
{
    class_use u = { .label = label_at(k, row) };
    if (k->has_ignored && u.label == k->ignored)
        return (class_use){ .label = -1 };
    if (u.label < 0 || u.label >= k->length) {
        __atomic_store_n(k->fault, 1, __ATOMIC_RELAXED);
        return (class_use){ .label = -1 };
    }
    real w = 1;
    if (k->has_weights)
        w = load_one(k->weights, place_of(&k->views[RG_LOSS_W], row), T);
    u.loss = (real)k->numbers.weight * w;
    u.slope = group_scale(k, k->group < k->rows ? row / k->group : 0, T) * w;
    if (k->dy_of_labels)
        u.slope *= load_one(k->dy, place_of(&k->views[RG_LOSS_DY], row), T);
    return u;
}

RG_INLINE void put_loss(const rg_loss_args *k, int64_t row, double loss, rg_dtype T)
{
    if (k->losses == RG_LOSS_SUMS)
        k->partial[row] = loss;
    else if (k->losses == RG_LOSS_OF_LABELS)
        store_one(k->loss, place_of(&k->views[RG_LOSS_L], row), T, (real)loss);
}

/* A row of derivatives that are 0. */
RG_OUTLINE void put_zeros(const rg_loss_args *k, int64_t row, rg_dtype T)
{
    const real zeros[PIECE] = { 0 };
    const int64_t first = row * k->length;
    if (!k->has_gradient || k->add)
        return;
    for (int64_t j = 0; j < k->length; j += PIECE)
        put_piece(&k->views[RG_LOSS_D], k->gradient, first + j, least(PIECE, k->length - j), zeros,
                  T, false, k->stream);
}

/* ---- softmax with class labels ---- */

typedef struct class_row {
    real max, scale, offset;
} class_row;

RG_FORMULA vreal kept_slope(const void *k, vreal e, vreal unused)
{
    UNUSED(unused);
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
    UNUSED(unused);
    return acc + (x - vset(*(const real *)k));
}

/* The largest element of a row. */
RG_INLINE real max_of_row(const rg_loss_args *k, const char *x, char *room, const rg_dtype T)
{
    real max = -RG_INFINITY;
    for (int64_t j = 0; j < k->length; j += PIECE) {
        const int64_t count = least(PIECE, k->length - j);
        const char *from = piece_at(&k->shape, 0, x, j, count, room, T);
        const real most = lanes_max(fold(fold_max, NULL, -RG_INFINITY, from, from, count, T));
        max = most > max ? most : max;
    }
    return max;
}

/* Sums over a row: of e^(x - max), and of x - max where labels are smoothed. */
typedef struct class_sums {
    double powers, below;
} class_sums;

RG_INLINE class_sums sums_of_row(const rg_loss_args *k, const char *x, real max, real *kept,
                                 const char *ahead, char *room, const rg_dtype T)
{
    class_sums s = { 0, 0 };
    for (int64_t j = 0; j < k->length; j += PIECE) {
        const int64_t count = least(PIECE, k->length - j);
        const char *from = piece_at(&k->shape, 0, x, j, count, room, T);
        s.powers += exp_sum(from, kept != NULL ? kept + j : NULL,
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
RG_INLINE void slopes_of_row(const rg_loss_args *k, const class_row *row, const char *x, char *dx,
                             const real *kept, char *room, const rg_dtype T)
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
            sweep(kept_slope, row, kept + j, kept + j, to, count, RG_REAL, T, k->add, streams);
        } else {
            const char *from = piece_at(shape, 0, x, j, count, room, T);
            sweep(is_short(T) ? class_slope_short : class_slope, row, from, from, to, count, T, T,
                  k->add, stream);
        }
        if (!dense)
            move_piece(&shape->group, 1, dx, j, count, made, vbytes(T) / VLEN, false);
    }
}

/* The same past the cache, while the largest element of the next row is looked for. */
RG_INLINE real slopes_and_max(const class_row *row, const char *x, char *dx, const real *kept,
                              const next_row *next, int64_t length, const rg_dtype T)
{
    if (kept != NULL)
        return (real)sweep_and_fold(kept_slope, row, kept, kept, dx, RG_REAL, T, true, next,
                                    length);
    return (real)sweep_and_fold(is_short(T) ? class_slope_short : class_slope, row, x, x, dx, T, T,
                                true, next, length);
}

/* Where the rows of y and of the gradient begin. */
typedef struct class_place {
    const char *x;
    char *dx;
} class_place;

RG_INLINE class_place place_of_row(const rg_loss_args *k, int64_t row, const rg_dtype T)
{
    int64_t offset[2];
    rg_walk_offsets(&k->shape.outer, 2, row, offset);
    return (class_place){ at(k->y, offset[0], T),
                          k->has_gradient ? at_out(k->gradient, offset[1], T) : NULL };
}

/* Elements of a row whose e^(x - max) are kept instead of computed twice. */
enum { KEPT_ROW = (128 << 10) / sizeof(real) };

/* Where exp_sum puts element i of a row: pairs of T stand in the order in which they are loaded. */
RG_INLINE int64_t kept_place(int64_t i, int64_t length, const rg_dtype T)
{
    const int64_t pair = 2 * VLEN, first = i / pair * pair, at_pair = i - first;
    if (T != RG_BF16 || first + pair > length)
        return i;
    return first + at_pair % 2 * VLEN + at_pair / 2;
}

RG_INLINE void loss_by_classes(const rg_loss_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_loss_numbers *n = &k->numbers;
    char room[PIECE * sizeof(real)];
    real buffer[KEPT_ROW], *const kept = k->has_gradient && k->length <= KEPT_ROW ? buffer : NULL;
    real max = 0;
    bool known = false; /* the largest element of the row, from the one before */
    class_place p = place_of_row(k, begin, T), after = p;
    for (int64_t row = begin; row < end; row++, p = after) {
        const class_use u = use_of(k, row, T);
        after = place_of_row(k, row + 1 < end ? row + 1 : row, T);
        if (u.label < 0) {
            put_loss(k, row, 0, T);
            put_zeros(k, row, T);
            known = false;
            continue;
        }
        int64_t offset[2];
        rg_walk_offsets(&k->shape.group, 2, u.label, offset);
        const real now = known ? max : max_of_row(k, p.x, room, T);
        const real below = load_one(p.x, offset[0], T) - now;
        const class_sums s =
            sums_of_row(k, p.x, now, kept, k->shape.dense ? after.x : NULL, room, T);
        put_loss(k, row, k->losses != RG_LOSS_NO_LOSS ? class_loss(n, &u, below, &s) : 0, T);
        known = false;
        if (!k->has_gradient)
            continue;
        const class_row c = { now, (real)((double)u.slope * n->total / s.powers),
                              u.slope * (real)n->share };
        real slope = 0; /* at the label, where e^(x - max) is less by a share of the sum */
        if (kept != NULL)
            kept[kept_place(u.label, k->length, T)] -= (real)(s.powers * n->keep / n->total);
        else
            slope = exp_for(vset(below), T)[0] * c.scale - c.offset - u.slope * (real)n->keep;
        if (kept == NULL && k->add)
            slope += load_one(p.dx, offset[1], T);
        known = k->shape.dense && k->stream && row + 1 < end &&
                (T == RG_REAL || kept == NULL || vhead(p.dx, T) == 0);
        const next_row next = { after.x, after.x, fold_max, true };
        if (known)
            max = slopes_and_max(&c, p.x, p.dx, kept, &next, k->length, T);
        else
            slopes_of_row(k, &c, p.x, p.dx, kept, room, T);
        if (kept == NULL)
            store_one(p.dx, offset[1], T, slope);
    }
}

/* ---- one element of a row ---- */

RG_OUTLINE void pick(const rg_loss_args *k, int64_t begin, int64_t end, rg_dtype T)
{
    const bool takes_log = k->numbers.kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY;
    for (int64_t row = begin; row < end; row++) {
        const class_use u = use_of(k, row, T);
        if (u.label < 0) {
            put_loss(k, row, 0, T);
            put_zeros(k, row, T);
            continue;
        }
        const int64_t i = row * k->length + u.label;
        const real y = load_one(k->y, place_of(&k->views[RG_LOSS_Y], i), T);
        put_loss(k, row, -(double)(u.loss * (takes_log ? vlog(vset(y))[0] : y)), T);
        put_zeros(k, row, T);
        if (!k->has_gradient)
            continue;
        const int64_t to = place_of(&k->views[RG_LOSS_D], i);
        const real slope = takes_log ? -u.slope / y : -u.slope;
        store_one(k->gradient, to, T, k->add ? load_one(k->gradient, to, T) + slope : slope);
    }
}

RG_INLINE void loss_pick(const rg_loss_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    pick(k, begin, end, T);
}

/* ---- weights that are not 0 ---- */

RG_OUTLINE void count_weights(const rg_loss_args *k, int64_t begin, int64_t end, rg_dtype T)
{
    real room[PIECE];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t group = unit / k->parts, stop = (group + 1) * k->group;
        const int64_t first = group * k->group + unit % k->parts * RG_LOSS_PART;
        const int64_t last = least(first + RG_LOSS_PART, stop);
        int64_t count = 0;
        for (int64_t i = first; i < last; i += PIECE) {
            const int64_t n = least(PIECE, last - i);
            const real *w = NULL;
            if (k->has_weights)
                w = get_piece(&k->views[RG_LOSS_W], k->weights, i, n, room, T);
            for (int64_t j = 0; j < n; j++)
                count += (w == NULL || w[j] != 0) &&
                         !(k->has_ignored && label_at(k, i + j) == k->ignored);
        }
        k->partial[unit] = k->numbers.weight != 0 ? (double)count : 0;
    }
}

RG_INLINE void loss_count(const rg_loss_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    count_weights(k, begin, end, T);
}

/* ---- sums of parts ---- */

RG_OUTLINE void finish(const rg_loss_finish_args *k, int64_t begin, int64_t end, rg_dtype T)
{
    enum { LANES = 8 }; /* sums that do not wait for each other */
    for (int64_t group = begin; group < end; group++) {
        const double *partial = k->partial + group * k->parts;
        double sums[LANES] = { 0 };
        int64_t i = 0;
        for (; i + LANES <= k->parts; i += LANES) {
            for (int j = 0; j < LANES; j++)
                sums[j] += partial[i + j];
        }
        for (; i < k->parts; i++)
            sums[i % LANES] += partial[i];
        double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                     ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        const int64_t to = place_of(&k->view, group);
        sum = (sum + k->bias) / k->divisor;
        if (k->has_counts)
            sum = k->counts[group] > 0 ? sum / k->counts[group] : 0;
        if (k->makes_counts)
            ((double *)k->loss)[to] = sum;
        else
            store_one(k->loss, to, T, (real)sum);
    }
}

RG_INLINE void loss_finish(const rg_loss_finish_args *k, int64_t begin, int64_t end,
                           const rg_dtype T)
{
    finish(k, begin, end, T);
}

/* ---- the initial gradient ---- */

RG_OUTLINE void ones(const rg_loss_ones_args *k, int64_t begin, int64_t end, rg_dtype T)
{
    real one[PIECE];
    for (int64_t i = 0; i < PIECE; i++)
        one[i] = 1;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset;
        const int64_t count = rg_sweep_piece(&k->sweep, 1, unit, &offset), step = k->sweep.step[0];
        for (int64_t i = 0; i < count; i += PIECE)
            store_run(at_out(k->y, offset + i * step, T), step, least(PIECE, count - i), one, T,
                      false, false);
    }
}

RG_INLINE void loss_ones(const rg_loss_ones_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    ones(k, begin, end, T);
}

/* ---- entry points and table ---- */

RG_KERNEL(loss_by_elements, rg_loss_args)
RG_KERNEL(loss_by_rows, rg_loss_args)
RG_KERNEL(loss_by_classes, rg_loss_args)
RG_KERNEL(loss_pick, rg_loss_args)
RG_KERNEL(loss_count, rg_loss_args)
RG_KERNEL(loss_finish, rg_loss_finish_args)
RG_KERNEL(loss_ones, rg_loss_ones_args)

const rg_cpu_row RG_TABLE(loss)[RG_LOSS_KERNELS] = {
    [RG_LOSS_BY_ELEMENTS] = RG_ROW(loss_by_elements),
    [RG_LOSS_BY_ROWS] = RG_ROW(loss_by_rows),
    [RG_LOSS_BY_CLASSES] = RG_ROW(loss_by_classes),
    [RG_LOSS_PICK] = RG_ROW(loss_pick),
    [RG_LOSS_COUNT] = RG_ROW(loss_count),
    [RG_LOSS_FINISH] = RG_ROW(loss_finish),
    [RG_LOSS_ONES] = RG_ROW(loss_ones),
};
