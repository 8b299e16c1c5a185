/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of groups of few channels on the CPU, see conv_cpu.h: the source is spread first, as
 * dense reals; from there on only the last loop depends on T. */
#include "backend/cpu/thread_pool.h"
#include "ops/conv/cpu/conv_depthwise_cpu.h"

/* ---- weights as real ---- */

RG_INLINE void transpose(const rg_conv_transpose_weights_args *k, int64_t begin, int64_t end,
                         const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t group_in = k->data ? s->out : s->in, wide = k->data ? s->in : s->out;
    const int64_t weights = s->row.window * s->column.window * group_in;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit / weights * k->block;
        const int64_t tap = unit % weights / group_in, pick = unit % group_in;
        const int64_t w = s->w_first + tap / s->column.window * s->w[2] +
                          tap % s->column.window * s->w[3] + pick * s->w[k->data ? 1 : 4];
        real *const to = (real *)k->transposed + unit * k->block;
        for (int64_t i = 0; i < k->block; i++) {
            const int64_t c = first + i;
            const int64_t at = w + c / wide * s->w[0] + c % wide * s->w[k->data ? 4 : 1];
            to[i] = c < s->groups * wide ? load_one(k->w, at, T) : 0;
        }
    }
}

/* ---- the source, spread ---- */

/* VLEN lanes from some lane on: the vectors of the source that they take, and which lane takes
 * what of them with each pick. */
typedef struct grouped_lanes {
    int64_t base; /* the first channel */
    int vectors, n[RG_CONV_GROUPED_CHANNELS];
    vint index[RG_CONV_GROUPED_CHANNELS];
} grouped_lanes;

/* Lanes from c on; groups have `wide` of them, and `group_in` channels in the source. */
RG_OUTLINE grouped_lanes find_lanes(int64_t c, int64_t groups, int64_t wide, int64_t group_in)
{
    const int64_t count = least(VLEN, groups * wide - c), first = c / wide;
    const int64_t channels = ((c + count - 1) / wide - first + 1) * group_in;
    grouped_lanes v = { .base = first * group_in, .vectors = (int)((channels + VLEN - 1) / VLEN) };
    for (int k = 0; k < v.vectors; k++)
        v.n[k] = vlanes_left(groups * group_in - v.base - k * VLEN);
    for (int64_t i = 0; i < group_in; i++) {
        v.index[i] = (vint){ 0 };
        for (int64_t lane = 0; lane < count; lane++)
            v.index[i][lane] = (intr)((c + lane) / wide * group_in + i - v.base);
    }
    return v;
}

/* to[pixel][pick] = vectors of lanes, from pixels `pixel` elements apart. */
RG_INLINE void spread_pixels(const grouped_lanes *v, const char *from, int64_t pixel, int64_t step,
                             int64_t count, int64_t group_in, real *to, const rg_dtype T)
{
    const int64_t next = v->vectors * VLEN * step; /* what the next lanes will want */
    const int last = v->vectors - 1;
    for (int64_t j = 0; j < count; j++, to += group_in * VLEN) {
        vreal x[RG_CONV_GROUPED_CHANNELS];
        const char *const at_ = at(from, j * pixel, T);
        __builtin_prefetch(at(at_, next, T), 0, 2);
        if (last == 0 && step == 1 && v->n[0] == VLEN) {
            const vreal one = vload_full(at_, 0, T);
            for (int64_t i = 0; i < group_in; i++)
                vstore_full(to, i * VLEN, RG_REAL, vpick(one, v->index[i]));
            continue;
        }
        for (int k = 0; k <= last; k++)
            x[k] = step == 1 ? vload_partial(at_, k * VLEN, v->n[k], T)
                             : vgather(at(at_, k * VLEN * step, T), 0, step, v->n[k], T);
        for (int64_t i = 0; i < group_in; i++) {
            vreal picked = vpick(x[0], v->index[i]);
            for (int k = 1; k <= last; k++)
                picked = vselect(v->index[i] >= (intr)(k * VLEN), vpick(x[k], v->index[i]), picked);
            vstore_full(to, i * VLEN, RG_REAL, picked);
        }
    }
}

RG_OUTLINE void spread_row(const grouped_lanes *v, const void *from, int64_t first,
                           const int64_t step[4], int64_t count, int64_t group_in, real *to,
                           rg_dtype T)
{
    first += v->base * step[3];
    RG_WITH_TYPE(T, U,
                 spread_pixels(v, at(from, first, U), step[2], step[3], count, group_in, to, U));
}

/* Rows of the source that rows begin <= r < end of the result take; none: first = last. */
RG_INLINE void rows_of_source(const rg_conv_axis *a, bool data, int64_t begin, int64_t end,
                              int64_t *first, int64_t *last)
{
    const int64_t extent = (a->window - 1) * a->dilation, all = data ? a->count : a->size;
    *first =
        data ? floor_div(begin + a->before - extent, a->stride) : begin * a->stride - a->before;
    *last = data ? floor_div(end - 1 + a->before, a->stride) + 1
                 : (end - 1) * a->stride - a->before + extent + 1;
    *first = *first < 0 ? 0 : least(*first, all);
    *last = *last < *first ? *first : least(*last, all);
}

/* The offset of lane c of these weights; further weights are RG_CONV_GROUPED_BLOCK apart. */
RG_INLINE int64_t grouped_at(int64_t c, int64_t weights)
{
    return c / RG_CONV_GROUPED_BLOCK * weights * RG_CONV_GROUPED_BLOCK + c % RG_CONV_GROUPED_BLOCK;
}

/* VLEN lanes of some rows. */
typedef struct grouped_sums {
    const real *in, *w; /* spread rows from `first` on; weights of the lanes */
    real *sums;         /* vectors: of results, or of weights */
    double *totals;     /* of weights, where a row is longer than a run */
    int64_t first, columns, group_in;
    int64_t window; /* taps of a row */
    int64_t stride; /* from result to result, in columns of the source */
} grouped_sums;

/* ---- forward and backward data ---- */

/* `count` results from number m on of a row, with taps `rows` and `across`. */
RG_INLINE void grouped_block(const grouped_sums *d, const depthwise_taps *rows,
                             const depthwise_taps *across, int64_t m, const int count)
{
    const int64_t pixel = d->group_in * VLEN, step = d->stride * pixel, group_in = d->group_in;
    vreal sum[DEPTHWISE_BLOCK];
#pragma GCC unroll 8
    for (int n = 0; n < count; n++)
        sum[n] = vset(0);
    for (int32_t p = 0; p < rows->count; p++) {
        const real *const row = d->in + (rows->at[p] - d->first) * d->columns * pixel;
        for (int32_t q = 0; q < across->count; q++) {
            const real *from = row + (m * d->stride + across->at[q]) * pixel;
            const int64_t tap = rows->tap[p] * d->window + across->tap[q];
            const real *w = d->w + tap * group_in * RG_CONV_GROUPED_BLOCK;
            for (int64_t i = 0; i < group_in; i++, from += VLEN, w += RG_CONV_GROUPED_BLOCK) {
                const vreal a = vload_full(w, 0, RG_REAL);
#pragma GCC unroll 8
                for (int n = 0; n < count; n++)
                    sum[n] = vfma(vload_full(from, n * step, RG_REAL), a, sum[n]);
            }
        }
    }
#pragma GCC unroll 8
    for (int n = 0; n < count; n++)
        vstore_full(d->sums, n * VLEN, RG_REAL, sum[n]);
}

enum { GROUPED_BLOCK = DEPTHWISE_BLOCK / 2 };

RG_OUTLINE void grouped_results(const grouped_sums *d, const depthwise_taps *rows,
                                const depthwise_taps *across, int64_t m, int64_t count)
{
    if (count == DEPTHWISE_BLOCK)
        grouped_block(d, rows, across, m, DEPTHWISE_BLOCK);
    else if (count == GROUPED_BLOCK)
        grouped_block(d, rows, across, m, GROUPED_BLOCK);
    else
        grouped_block(d, rows, across, m, 1);
}

/* A block of rows of the result of one image, VLEN lanes from c on. */
typedef struct grouped_rows {
    int64_t image, begin, end, c;
    depthwise_taps taps[RG_CONV_GROUPED_ROWS];
} grouped_rows;

/* A line of all rows, by some columns at a time, so that what is spread stays in the cache. The
 * last block of columns may overlap the one before, but not where results are added to. */
RG_INLINE void grouped_line(const rg_conv_grouped_args *k, depthwise_row *d, grouped_sums *f,
                            const grouped_rows *b, const depthwise_line *l, int64_t phase,
                            const rg_dtype T)
{
    depthwise_taps some;
    for (int64_t m = 0, count; m < l->count; m += count) {
        const bool border = m < l->low || m >= l->high; /* with taps of their own */
        const int64_t left = l->high - m, inside = k->conv.add ? left : l->high - l->low;
        count = left > GROUPED_BLOCK && inside >= DEPTHWISE_BLOCK ? DEPTHWISE_BLOCK
                : inside >= GROUPED_BLOCK                         ? GROUPED_BLOCK
                                                                  : 1;
        if (border)
            keep_inside(l, f->columns, m, &some);
        count = border ? 1 : count;
        m = border || left >= count ? m : l->high - count;
        for (int64_t r = b->begin; r < b->end; r++) {
            grouped_results(f, &b->taps[r - b->begin], border ? &some : &l->taps, m, count);
            d->to = pixel_offset(d->result, b->image, r, phase);
            d->z = pixel_offset(k->conv.z_step, b->image, r, phase);
            grouped_end(d, f->sums, m, count, b->c, vlanes_left(k->channels - b->c), T);
        }
    }
}

RG_INLINE void grouped_image(const rg_conv_grouped_args *k, depthwise_row *d, grouped_rows *b,
                             const rg_dtype T)
{
    const rg_conv_shape *s = &k->conv.shape;
    const bool data = k->data;
    const int64_t sources = data ? s->column.count : s->column.size;
    const int64_t phases = data ? least(s->column.stride, s->column.size) : 1;
    const int64_t weights = s->row.window * s->column.window * k->group_in;
    const grouped_lanes v = find_lanes(b->c, s->groups, data ? s->in : s->out, k->group_in);
    real *const buffer =
        (real *)(void *)((char *)k->conv.scratch + rg_thread_pool_index() * k->scratch_bytes);
    real sums[DEPTHWISE_BLOCK * VLEN];
    grouped_sums f = { .in = buffer,
                       .w = (const real *)k->conv.w + grouped_at(b->c, weights),
                       .sums = sums,
                       .columns = sources,
                       .group_in = k->group_in,
                       .window = s->column.window };
    int64_t last;
    rows_of_source(&s->row, data, b->begin, b->end, &f.first, &last);
    for (int64_t r = f.first; r < last; r++)
        spread_row(&v, k->conv.from, b->image * d->source[0] + r * d->source[1], d->source, sources,
                   k->group_in, buffer + (r - f.first) * sources * k->group_in * VLEN, T);
    for (int64_t phase = 0; phase < phases; phase++) {
        depthwise_line l;
        find_line(&s->column, data, phase, &l);
        f.stride = l.stride;
        d->step = l.step;
        grouped_line(k, d, &f, b, &l, phase, T);
    }
}

RG_INLINE void grouped(const rg_conv_grouped_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &k->conv.shape;
    const int64_t rows = k->data ? s->row.size : s->row.count;
    const int64_t splits = k->padded_channels / RG_CONV_GROUPED_BLOCK;
    depthwise_row d = depthwise_row_of(k, T);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % splits * RG_CONV_GROUPED_BLOCK;
        const int64_t row = unit / splits % k->blocks * k->block, image = unit / splits / k->blocks;
        grouped_rows b = { .image = image, .begin = row, .end = least(row + k->block, rows) };
        for (int64_t r = b.begin; r < b.end; r++)
            find_rows(&s->row, k->data, r, &b.taps[r - b.begin]);
        for (b.c = first; b.c < least(first + RG_CONV_GROUPED_BLOCK, k->channels); b.c += VLEN)
            grouped_image(k, &d, &b, T);
    }
}

/* ---- backward weights ---- */

/* `count` windows: dw[n] += sum of dy x, where x of weight n is at at[n], and its sum at slot[n].
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
    const int64_t pixel = d->group_in * VLEN, step = d->stride * pixel;
    const real *const x = d->in + (rows->at[p] - d->first) * d->columns * pixel + begin * step;
    const int64_t all = across->count * d->group_in;
    for (int64_t e = 0, n; e < all; e += n) {
        int64_t at[DEPTHWISE_BLOCK], slot[DEPTHWISE_BLOCK];
        const grouped_step *block = grouped_steps;
        while (block->weights > all - e)
            block++;
        n = block->weights;
        for (int64_t i = 0; i < n; i++) {
            const int64_t q = (e + i) / d->group_in, pick = (e + i) % d->group_in;
            const int64_t tap = rows->tap[p] * d->window + across->tap[q];
            at[i] = across->at[q] * pixel + pick * VLEN;
            slot[i] = (tap * d->group_in + pick) * VLEN;
        }
        block->run(x, step, y + begin * VLEN, end - begin, d->sums, at, slot);
    }
}

/* Rows begin <= i < end of windows of one image, of which columns first <= j < last; windows at the
 * border have taps of their own. dy is in y, x in d->in. */
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
    const int64_t across = s->column.count, run = rg_conv_row_run(s);
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

/* A unit is a slice, and some lanes. */
RG_INLINE void grouped_partials(const rg_conv_grouped_partials_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t rows = s->images * s->row.count, step = k->sums.in_step;
    const int64_t sums = s->row.window * s->column.window * s->in;
    real *const sum = (real *)(void *)(k->scratch + rg_thread_pool_index() * k->scratch_bytes);
    grouped_sums d = { .sums = sum,
                       .totals = (double *)(void *)(sum + sums * VLEN),
                       .columns = s->column.size,
                       .group_in = s->in,
                       .window = s->column.window,
                       .stride = s->column.stride };
    depthwise_line l;
    find_line(&s->column, false, 0, &l);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t slice = unit / k->blocks, first = unit % k->blocks * k->block;
        const int64_t stop = least(rows, (slice + 1) * k->rows);
        real *const to = (real *)k->partials + slice * k->sums.slice_step;
        for (int64_t c = first; c < least(first + k->block, s->groups * s->out); c += VLEN) {
            memset(sum, 0, (size_t)(sums * VLEN) * sizeof(real));
            for (int64_t row = slice * k->rows, next; row < stop; row = next) {
                next = least(stop, row + least(k->spread_rows, s->row.count - row % s->row.count));
                grouped_sum_rows(k, &d, &l, row, next - row, c,
                                 sum + rg_conv_grouped_sums(s) * VLEN, T);
            }
            for (int64_t n = 0; n < sums; n++)
                vstore_full(to, n * step + c, RG_REAL, vload_full(sum, n * VLEN, RG_REAL));
        }
    }
}

RG_KERNEL(transpose, rg_conv_transpose_weights_args)
RG_KERNEL(grouped, rg_conv_grouped_args)
RG_KERNEL(grouped_partials, rg_conv_grouped_partials_args)

RG_CPU_TABLE(conv_grouped, RG_CONV_KERNELS) = {
    [RG_CONV_TRANSPOSE_WEIGHTS] = RG_ROW(transpose),
    [RG_CONV_GROUPED] = RG_ROW(grouped),
    [RG_CONV_GROUPED_PARTIALS] = RG_ROW(grouped_partials),
};
