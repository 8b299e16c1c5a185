/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses on the CPU. Most kernels go piece by piece: elements of any tensor come as arrays of real,
 * where they are or converted, so one copy of each formula serves all storage types. Softmax with
 * class labels is in loss_classes_cpu.c.
 *
 * The order of every sum follows from the shape: pieces of 1024 elements, in double parts of 4096
 * or rows, and then these one after the other. */
#include "ops/loss/loss_labels_cpu.h"

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
    RG_FORMULA vreal formula_##name(const void *k, vreal a, vreal b)                   \
    {                                                                                  \
        return loss_##name(k, a, b);                                                   \
    }                                                                                  \
    RG_OUTLINE void map_##name(const void *k, const real *a, const real *b, real *out, \
                               int64_t count)                                          \
    {                                                                                  \
        map(formula_##name, k, a, b, out, count);                                      \
    }

#define MAP_OWN(name) MAP(name##_label_slope)
#define MAP_MINUS(name)
#define MAP_KIND(KIND, name, label) MAP(name##_value) MAP(name##_slope) MAP_##label(name)
RG_LOSS_FORMULAS(MAP_KIND)

/* The loss, dl/dy and dl/dt; the last is minus the second where there is none. */
#define LABEL_OWN(name)   map_##name##_label_slope
#define LABEL_MINUS(name) NULL
#define MAPS(KIND, name, label) \
    [RG_LOSS_##KIND] = { map_##name##_value, map_##name##_slope, LABEL_##label(name) },
static rg_loss_map *const maps[][3] = { RG_LOSS_FORMULAS(MAPS) };

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
                apply_weights(out, p.w, NULL, (real)k->numbers.weight, p.count);
            }
            if (k->losses == RG_LOSS_SUMS)
                sum += sum_of(out, p.count);
            else if (k->losses == RG_LOSS_OF_LABELS)
                put_piece(&k->views[RG_LOSS_L], k->loss, i, p.count, out, T, false, false);
            if (k->has_gradient) {
                (slope != NULL ? slope : maps[kind][1])(&numbers, p.y, p.t, out, p.count);
                apply_weights(out, p.w, p.dy, slope != NULL ? scale : -scale, p.count);
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

RG_INLINE vreal loss_soft_loss(const void *k, vreal x, vreal a)
{
    const soft_row *row = k;
    return -a * ((x - vset(row->max)) - vset(row->log_sum));
}

RG_INLINE vreal loss_soft_slope(const void *k, vreal x, vreal a)
{
    const soft_row *row = k;
    return vexp(x - vset(row->max)) * vset(row->share) - a;
}

RG_INLINE vreal loss_soft_label_slope(const void *k, vreal x, vreal same)
{
    (void)same;
    const soft_row *row = k;
    return vset(row->log_sum) - (x - vset(row->max));
}

MAP(soft_loss)
MAP(soft_slope)
MAP(soft_label_slope)

RG_INLINE vreal loss_smooth(const void *k, vreal t, vreal same)
{
    (void)same;
    const loss_numbers *n = k;
    return t * vset(n->keep) + vset(n->share);
}

MAP(smooth)

/* Labels of a piece, smoothed, times weights and dy. */
RG_INLINE void weighted_labels(const piece *p, const loss_numbers *numbers, real *out)
{
    map_smooth(numbers, p->t, p->t, out, p->count);
    apply_weights(out, p->w, p->dy, 1, p->count);
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
        const real *y = get_piece(&k->views[RG_LOSS_Y], k->y, i, n, p->piece_buffer[0], T);
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
        apply_weights(out, NULL, NULL, (real)k->numbers.weight, p->count);
        put_piece(&k->views[RG_LOSS_L], k->loss, p->first, p->count, out, T, false, false);
    }
    if (!k->has_gradient)
        return;
    if (k->is_label_gradient) {
        map_soft_label_slope(row, p->y, p->y, out, p->count);
        apply_weights(out, p->w, p->dy, scale * numbers->keep, p->count);
    } else {
        map_soft_slope(row, p->y, a, out, p->count);
        apply_weights(out, NULL, NULL, scale, p->count);
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
        const real y = load_one(k->y, view_offset(&k->views[RG_LOSS_Y], i), T);
        put_loss(k, row, -(double)(u.loss * (takes_log ? vlog(vset(y))[0] : y)), T);
        put_zeros(k, row, T);
        if (!k->has_gradient)
            continue;
        const int64_t to = view_offset(&k->views[RG_LOSS_D], i);
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
    real piece_buffer[PIECE];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t group = unit / k->parts, stop = (group + 1) * k->group;
        const int64_t first = group * k->group + unit % k->parts * RG_LOSS_PART;
        const int64_t last = least(first + RG_LOSS_PART, stop);
        int64_t count = 0;
        for (int64_t i = first; i < last; i += PIECE) {
            const int64_t n = least(PIECE, last - i);
            const real *w = NULL;
            if (k->has_weights)
                w = get_piece(&k->views[RG_LOSS_W], k->weights, i, n, piece_buffer, T);
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
        const int64_t to = view_offset(&k->view, group);
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
RG_KERNEL(loss_pick, rg_loss_args)
RG_KERNEL(loss_count, rg_loss_args)
RG_KERNEL(loss_finish, rg_loss_finish_args)
RG_KERNEL(loss_ones, rg_loss_ones_args)

RG_CPU_TABLE(loss, RG_LOSS_KERNELS) = {
    [RG_LOSS_BY_ELEMENTS] = RG_ROW(loss_by_elements),
    [RG_LOSS_BY_ROWS] = RG_ROW(loss_by_rows),
    [RG_LOSS_PICK] = RG_ROW(loss_pick),
    [RG_LOSS_COUNT] = RG_ROW(loss_count),
    [RG_LOSS_FINISH] = RG_ROW(loss_finish),
    [RG_LOSS_ONES] = RG_ROW(loss_ones),
};
