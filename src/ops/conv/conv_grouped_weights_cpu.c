/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Weights of groups of few channels on the CPU, see conv.h: put in the order of lanes, and
 * their gradients. */
#include "ops/conv/conv_depthwise_cpu.h"

RG_INLINE void grouped_transpose(const rg_conv_grouped_transpose_args *k, int64_t begin,
                                 int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t picks = k->data ? s->out : s->in, wide = k->data ? s->in : s->out;
    const int64_t weights = s->row.window * s->column.window * picks;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit / weights * RG_CONV_GROUPED_BLOCK;
        const int64_t tap = unit % weights / picks, pick = unit % picks;
        const int64_t w = s->w_first + tap / s->column.window * s->w[2] +
                          tap % s->column.window * s->w[3] + pick * s->w[k->data ? 1 : 4];
        real *const to = (real *)k->transposed + unit * RG_CONV_GROUPED_BLOCK;
        for (int64_t i = 0; i < RG_CONV_GROUPED_BLOCK; i++) {
            const int64_t c = first + i;
            const int64_t at = w + c / wide * s->w[0] + c % wide * s->w[k->data ? 4 : 1];
            to[i] = c < s->groups * wide ? load_one(k->w, at, T) : 0;
        }
    }
}

/* `count` windows: dw[n] += sum of dy x, where x of weight n stands at at[n], and sum at slot[n].
 */
RG_INLINE void grouped_products(const real *x, int64_t step, const real *y, int64_t count,
                                real *sum, const int64_t at[], const int64_t slot[], const int N)
{
    vreal a[DEPTHWISE_BLOCK];
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
        a[n] = vload_full(sum, slot[n], RG_REAL);
    for (int64_t j = 0; j < count; j++, x += step, y += VLEN) {
        const vreal g = vload_full(y, 0, RG_REAL);
#pragma GCC unroll 8
        for (int n = 0; n < N; n++)
            a[n] = vfma(g, vload_full(x, at[n], RG_REAL), a[n]);
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
        vstore_full(sum, slot[n], RG_REAL, a[n]);
}

/* How many weights are summed at a time: of those that are left, as many as the first that fits. */
typedef void grouped_run(const real *x, int64_t step, const real *y, int64_t count, real *sum,
                         const int64_t at[], const int64_t slot[]);
#define GROUPED_STEP(N)                                                                \
    RG_OUTLINE void grouped_products_##N(const real *x, int64_t step, const real *y,   \
                                         int64_t count, real *sum, const int64_t at[], \
                                         const int64_t slot[])                         \
    {                                                                                  \
        grouped_products(x, step, y, count, sum, at, slot, N);                         \
    }
GROUPED_STEP(8)
GROUPED_STEP(4)
GROUPED_STEP(3)
GROUPED_STEP(1)
#undef GROUPED_STEP
typedef struct grouped_step {
    int64_t weights;
    grouped_run *run;
} grouped_step;
static const grouped_step grouped_steps[] = { { 8, grouped_products_8 },
                                              { 4, grouped_products_4 },
                                              { 3, grouped_products_3 },
                                              { 1, grouped_products_1 } };
_Static_assert(DEPTHWISE_BLOCK == 8, "the table begins with the largest block");

/* Windows begin <= j < end of a row with row p of their taps `rows`, by some weights at a time; y
 * is dy of the row. */
RG_OUTLINE void grouped_weights(const grouped_sums *d, const depthwise_taps *rows, int32_t p,
                                const depthwise_taps *across, const real *y, int64_t begin,
                                int64_t end)
{
    const int64_t pixel = d->picks * VLEN, step = d->stride * pixel;
    const real *const x = d->in + (rows->at[p] - d->first) * d->columns * pixel + begin * step;
    const int64_t all = across->count * d->picks;
    for (int64_t e = 0, n; e < all; e += n) {
        int64_t at[DEPTHWISE_BLOCK], slot[DEPTHWISE_BLOCK];
        const grouped_step *block = grouped_steps;
        while (block->weights > all - e)
            block++;
        n = block->weights;
        for (int64_t i = 0; i < n; i++) {
            const int64_t q = (e + i) / d->picks, pick = (e + i) % d->picks;
            const int64_t tap = rows->tap[p] * d->window + across->tap[q];
            at[i] = across->at[q] * pixel + pick * VLEN;
            slot[i] = (tap * d->picks + pick) * VLEN;
        }
        block->run(x, step, y + begin * VLEN, end - begin, d->sums, at, slot);
    }
}

/* Rows begin <= i < end of windows of one image, of which columns first <= j < last; windows at the
 * border have taps of their own. dy stands in y, x in d->in. */
RG_OUTLINE void grouped_windows(const rg_conv_shape *s, const grouped_sums *d,
                                const depthwise_line *l, int64_t begin, int64_t end, int64_t first,
                                int64_t last, const real *y)
{
    depthwise_taps some, rows;
    for (int64_t j = first, next; j < last; j = next) {
        const bool inside = j >= l->low && j < l->high;
        next = inside ? least(l->high, last) : j + 1;
        if (!inside)
            keep_inside(l, s->column.size, j, &some);
        for (int64_t i = begin; i < end; i++) {
            find_rows(&s->row, false, i, &rows);
            for (int32_t p = 0; p < rows.count; p++)
                grouped_weights(d, &rows, p, inside ? &l->taps : &some,
                                y + (i - begin) * s->column.count * VLEN, j, next);
        }
    }
}

/* The same of VLEN lanes from c on, of rows of windows counted through all images. `buffer` follows
 * the sums. */
RG_INLINE void grouped_sum_rows(const rg_conv_grouped_partials_args *k, grouped_sums *d,
                                const depthwise_line *l, int64_t row, int64_t rows, int64_t c,
                                real *buffer, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t image = row / s->row.count, begin = row % s->row.count, end = begin + rows;
    const grouped_lanes v = find_lanes(c, s->groups, s->out, s->in);
    const grouped_lanes own = find_lanes(c, s->groups * s->out, 1, 1);
    const int64_t row_size = s->column.size * s->in * VLEN, y_size = s->column.count * VLEN;
    real *const x = buffer + (end - begin) * y_size;
    int64_t last;
    rows_of_source(&s->row, false, begin, end, &d->first, &last);
    d->in = x;
    for (int64_t r = d->first; r < last; r++)
        spread_row(&v, k->x, image * s->x[0] + r * s->x[1], s->x, s->column.size, s->in,
                   x + (r - d->first) * row_size, T);
    for (int64_t i = begin; i < end; i++)
        spread_row(&own, k->dy, image * s->y[0] + i * s->y[1], s->y, s->column.count, 1,
                   buffer + (i - begin) * y_size, T);
    const int64_t across = s->column.count, run = rg_conv_depthwise_run(s);
    const int64_t sums = s->row.window * s->column.window * s->in * VLEN;
    for (int64_t j = 0; j < across; j += run) {
        grouped_windows(s, d, l, begin, end, j, least(j + run, across), buffer);
        if (run == across)
            continue;
        add_to_totals(d->totals, d->sums, sums, j == 0);
        memset(d->sums, 0, (size_t)sums * sizeof(real));
    }
    for (int64_t i = 0; run < across && i < sums; i++)
        d->sums[i] = (real)d->totals[i];
}

/* A unit is a partial sum, and some lanes. */
RG_INLINE void grouped_partials(const rg_conv_grouped_partials_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t rows = s->images * s->row.count,
                  splits = k->padded_channels / RG_CONV_GROUPED_BLOCK;
    const int64_t sums = s->row.window * s->column.window * s->in;
    real *const sum = (real *)(void *)(k->scratch + rg_thread_pool_index() * k->scratch_bytes);
    grouped_sums d = { .sums = sum,
                       .totals = (double *)(void *)(sum + sums * VLEN),
                       .columns = s->column.size,
                       .picks = s->in,
                       .window = s->column.window,
                       .stride = s->column.stride };
    depthwise_line l;
    find_line(&s->column, false, 0, &l);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t partial = unit / splits, first = unit % splits * RG_CONV_GROUPED_BLOCK;
        const int64_t stop = least(rows, (partial + 1) * k->rows);
        real *const to = (real *)k->partial + partial * sums * k->padded_channels;
        for (int64_t c = first; c < least(first + RG_CONV_GROUPED_BLOCK, s->groups * s->out);
             c += VLEN) {
            memset(sum, 0, (size_t)(sums * VLEN) * sizeof(real));
            for (int64_t row = partial * k->rows, next; row < stop; row = next) {
                next = least(stop, row + least(k->block, s->row.count - row % s->row.count));
                grouped_sum_rows(k, &d, &l, row, next - row, c,
                                 sum + rg_conv_grouped_sums(s) * VLEN, T);
            }
            for (int64_t n = 0; n < sums; n++)
                vstore_full(to, grouped_at(c, sums) + n * RG_CONV_GROUPED_BLOCK, RG_REAL,
                            vload_full(sum, n * VLEN, RG_REAL));
        }
    }
}

/* dw: all partial sums, one after the other. */
RG_INLINE void grouped_join(const rg_conv_grouped_join_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t sums = s->row.window * s->column.window * s->in;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t n = unit % sums, first = unit / sums * RG_CONV_GROUPED_BLOCK;
        const int64_t count = least(RG_CONV_GROUPED_BLOCK, s->groups * s->out - first);
        const int64_t tap = n / s->in;
        const int64_t w = s->w_first + tap / s->column.window * s->w[2] +
                          tap % s->column.window * s->w[3] + n % s->in * s->w[4];
        double sum[RG_CONV_GROUPED_BLOCK] = { 0 };
        for (int64_t i = 0; i < k->partials; i++) {
            const real *const from = (const real *)k->partial + i * sums * k->padded_channels +
                                     unit * RG_CONV_GROUPED_BLOCK;
            for (int64_t c = 0; c < count; c++)
                sum[c] += (double)from[c];
        }
        for (int64_t c = 0; c < count; c++) {
            const int64_t channel = first + c;
            const int64_t to = w + channel / s->out * s->w[0] + channel % s->out * s->w[1];
            const real value = (real)sum[c];
            store_one(k->dw, to, T, k->add ? load_one(k->dw, to, T) + value : value);
        }
    }
}

RG_KERNEL(grouped_transpose, rg_conv_grouped_transpose_args)
RG_KERNEL(grouped_partials, rg_conv_grouped_partials_args)
RG_KERNEL(grouped_join, rg_conv_grouped_join_args)

RG_CPU_TABLE(conv_grouped_weights, RG_CONV_KERNELS) = {
    [RG_CONV_GROUPED_TRANSPOSE] = RG_ROW(grouped_transpose),
    [RG_CONV_GROUPED_PARTIALS] = RG_ROW(grouped_partials),
    [RG_CONV_GROUPED_JOIN] = RG_ROW(grouped_join),
};
