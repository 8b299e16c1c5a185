/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Partial sums of dw on the contraction engine, over some images each. */
#include "backend/cpu/long_sum_cpu.h"
#include "backend/cpu/thread_pool.h"
#include "ops/contract/contract.h"
#include "ops/conv/cpu/conv_cpu.h"

_Static_assert((int)RG_CONV_MAX_RUNS <= (int)RG_MAX_RUNS, "runs of a tile");

/* ---- weights ---- */

/* Rows of windows and of the image that overlap, as real. Row i of windows is at (i - y_first)
 * y_row, and so on. */
typedef struct conv_overlap {
    const real *x, *y;
    int64_t x_first, x_row, x_pixel, y_first, y_row, y_pixel;
    int64_t begin, end;   /* rows of windows */
    const char *ahead[2]; /* what follows in the image, and after these windows */
    int64_t ahead_bytes[2];
} conv_overlap;

/* One operand of an image and group. Of each row, `pixels` from `left` on are wanted, some of which
 * may be beyond its columns. */
typedef struct conv_operand {
    const void *from;
    const int64_t *step;
    int64_t first; /* of row 0 */
    int64_t left, pixels, columns, channels;
} conv_operand;

/* Rows begin <= r < end of a operand into scratch. */
RG_OUTLINE void copy_rows(real *to, const conv_operand *operand, int64_t begin, int64_t end,
                          rg_dtype T)
{
    const int64_t *const step = operand->step, pixels = operand->pixels,
                         channels = operand->channels;
    const int64_t left = operand->left, zeros = least(left < 0 ? -left : 0, pixels);
    int64_t inside = least(operand->columns - left, pixels) - zeros;
    inside = inside < 0 ? 0 : inside;
    for (int64_t r = begin; r < end; r++, to += pixels * channels) {
        const int64_t row = operand->first + r * step[1] + (left + zeros) * step[2];
        real *const start = to + zeros * channels, *const after = start + inside * channels;
        memset(to, 0, (size_t)(zeros * channels) * sizeof(real));
        memset(after, 0, (size_t)((pixels - zeros - inside) * channels) * sizeof(real));
        if (step[3] == 1 && step[2] == channels) {
            contract_load(start, 1, operand->from, row, 1, inside * channels, T);
            continue;
        }
        for (int64_t j = 0; j < inside; j++)
            contract_load(start + j * channels, 1, operand->from, row + j * step[2], step[3],
                          channels, T);
    }
}

RG_OUTLINE void load_operands(const rg_conv_partials_args *k, conv_overlap *m, int64_t image,
                              int64_t group, int64_t channel, int64_t channels, char *scratch,
                              rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const bool x_stays =
        T == RG_REAL && s->x[3] == 1 && s->in % RG_COLUMN_STEP == 0 && !k->out_last;
    const bool y_stays =
        T == RG_REAL && s->y[3] == 1 && (!k->out_last || contract_width(channels) == channels);
    const int64_t x = image * s->x[0] + group * s->in * s->x[3];
    const int64_t y = image * s->y[0] + (group * s->out + channel) * s->y[3];
    const int64_t next = (m->end - m->begin) * (vbytes(T) / VLEN);
    m->ahead[0] = at(k->x, x + (m->end * s->row.stride - s->row.before) * s->x[1], T);
    m->ahead[1] = at(k->dy, y + m->end * s->y[1], T);
    m->ahead_bytes[0] = s->x[2] == s->in ? next * s->row.stride * s->x[1] : 0;
    m->ahead_bytes[1] = s->y[2] == channels ? next * s->y[1] : 0;
    m->x = (const real *)k->x + x;
    m->x_first = 0;
    m->x_row = s->x[1];
    m->x_pixel = s->x[2];
    m->y = (const real *)k->dy + y;
    m->y_first = 0;
    m->y_row = s->y[1];
    m->y_pixel = s->y[2];
    if (!y_stays) {
        real *const to = (real *)(void *)scratch;
        const int64_t count = s->column.count;
        copy_rows(to, &(conv_operand){ k->dy, s->y, y, 0, count, count, channels }, m->begin,
                  m->end, T);
        m->y = to;
        m->y_first = m->begin;
        m->y_pixel = channels;
        m->y_row = s->column.count * channels;
    }
    if (!x_stays) {
        real *const to = (real *)(void *)(scratch + k->y_bytes);
        const int64_t before = s->row.before, extent = (s->row.window - 1) * s->row.dilation;
        const int64_t first = m->begin * s->row.stride - before;
        m->x_first = first < 0 ? 0 : least(first, s->row.size);
        const int64_t end = least((m->end - 1) * s->row.stride - before + extent + 1, s->row.size);
        const int64_t left = k->out_last ? -s->column.before : 0;
        copy_rows(to, &(conv_operand){ k->x, s->x, x, left, k->columns, s->column.size, s->in },
                  m->x_first, end, T);
        m->x = to;
        m->x_pixel = s->in;
        m->x_row = k->columns * s->in;
    }
}

/* Tap (p, q) of all weights of a unit, from the pixels of its windows. */
RG_OUTLINE void add_tap(const rg_conv_partials_args *k, const conv_overlap *m, int64_t p, int64_t q,
                        int64_t channels, real *sums)
{
    const rg_conv_shape *s = &k->shape;
    rg_k_run runs[RG_CONV_MAX_RUNS];
    int64_t i0, i1, j0, j1, n = 0;
    rg_conv_windows(&s->row, p, &i0, &i1);
    rg_conv_windows(&s->column, q, &j0, &j1);
    i0 = i0 > m->begin ? i0 : m->begin;
    i1 = least(i1, m->end);
    const int64_t taps = s->row.window * s->column.window, tap = p * s->column.window + q;
    const int64_t parts = (taps + 1) / 2, part = tap % parts, which = tap / parts;
    const int64_t bytes = m->ahead_bytes[which];
    const int64_t column = j0 * s->column.stride - s->column.before + q * s->column.dilation;
    for (int64_t i = i0; i < i1 && j0 < j1; i++) {
        const int64_t row = i * s->row.stride - s->row.before + p * s->row.dilation;
        runs[n++] = (rg_k_run){ (i - m->y_first) * m->y_row + j0 * m->y_pixel,
                                (row - m->x_first) * m->x_row + column * m->x_pixel, j1 - j0 };
    }
    const rg_tile tile = { .a = m->y,
                           .b = m->x,
                           .c = sums + tap * k->sums.tap_step,
                           .runs = runs,
                           .run_count = n,
                           .a_step = m->y_pixel,
                           .b_step = s->column.stride * m->x_pixel,
                           .c_step = k->sums.out_step,
                           .add = true,
                           .ahead = m->ahead[which] + bytes * part / parts,
                           .ahead_end = m->ahead[which] + bytes * (part + 1) / parts };
    if (n > 0)
        RG_CONTRACT.columns(&tile, channels, s->in);
}

/* ---- weights, where channels of the image are few ---- */

/* Row p of taps: weights of consecutive pixels are rows of the result, channels of
 * windows its columns. */
RG_OUTLINE void add_out_last(const rg_conv_partials_args *k, const conv_overlap *m, int64_t p,
                             real *sums)
{
    const rg_conv_shape *s = &k->shape;
    rg_k_run runs[RG_CONV_MAX_RUNS];
    int64_t i0, i1, n = 0;
    rg_conv_windows(&s->row, p, &i0, &i1);
    i0 = i0 > m->begin ? i0 : m->begin;
    for (int64_t i = i0; i < least(i1, m->end); i++) {
        const int64_t row = i * s->row.stride - s->row.before + p * s->row.dilation;
        runs[n++] = (rg_k_run){ (row - m->x_first) * m->x_row, (i - m->y_first) * m->y_row,
                                s->column.count };
    }
    const bool joined = s->column.dilation == 1;
    for (int64_t q = 0; n > 0 && q < (joined ? 1 : s->column.window); q++) {
        const char *ahead = m->ahead[1] + m->ahead_bytes[1] * p / s->row.window;
        const rg_tile tile = { .a = m->x + q * s->column.dilation * s->in,
                               .b = m->y,
                               .c = sums + (p * s->column.window + q) * k->sums.tap_step,
                               .runs = runs,
                               .run_count = n,
                               .a_step = s->column.stride * s->in,
                               .b_step = m->y_pixel,
                               .c_step = k->sums.in_step,
                               .add = true,
                               .ahead = ahead,
                               .ahead_end = ahead + m->ahead_bytes[1] / s->row.window };
        RG_CONTRACT.columns(&tile, (joined ? s->column.window : 1) * s->in, s->out);
    }
}

/* One weight, where 0 beyond the image times dy is not 0. */
RG_OUTLINE real sum_one(const rg_conv_shape *s, const conv_overlap *m, int64_t p, int64_t q,
                        int64_t c, int64_t o)
{
    int64_t i0, i1, j0, j1;
    double sum = 0;
    rg_conv_windows(&s->row, p, &i0, &i1);
    rg_conv_windows(&s->column, q, &j0, &j1);
    for (int64_t i = i0 > m->begin ? i0 : m->begin; i < least(i1, m->end); i++) {
        const int64_t row = i * s->row.stride - s->row.before + p * s->row.dilation;
        const real *x = m->x + (row - m->x_first) * m->x_row + q * s->column.dilation * m->x_pixel;
        const real *y = m->y + (i - m->y_first) * m->y_row;
        for (int64_t j = j0; j < j1; j++)
            sum += (double)y[j * m->y_pixel + o] * (double)x[j * s->column.stride * m->x_pixel + c];
    }
    return (real)sum;
}

RG_OUTLINE void add_one_by_one(const rg_conv_partials_args *k, const conv_overlap *m, real *sums)
{
    const rg_conv_shape *s = &k->shape;
    for (int64_t tap = 0; tap < s->row.window * s->column.window; tap++) {
        const int64_t p = tap / s->column.window, q = tap % s->column.window;
        for (int64_t c = 0; c < s->in; c++)
            for (int64_t o = 0; o < s->out; o++)
                sums[tap * k->sums.tap_step + c * k->sums.in_step + o] += sum_one(s, m, p, q, c, o);
    }
}

RG_OUTLINE void add_narrow(const rg_conv_partials_args *k, const conv_overlap *m, real *sums)
{
    const rg_conv_shape *s = &k->shape;
    bool nonfinite = false;
    for (int64_t i = m->begin; i < m->end; i++) {
        const real *row = m->y + (i - m->y_first) * m->y_row;
        if (m->y_pixel == s->out)
            nonfinite |= has_nonfinite_reals(row, s->column.count * s->out);
        for (int64_t j = 0; j < s->column.count && m->y_pixel != s->out; j++)
            nonfinite |= has_nonfinite_reals(row + j * m->y_pixel, s->out);
    }
    for (int64_t p = 0; p < s->row.window && !nonfinite; p++)
        add_out_last(k, m, p, sums);
    if (nonfinite)
        add_one_by_one(k, m, sums);
}

/* ---- weights: units ---- */

/* Rows of windows of a unit, into its sums. */
RG_INLINE void add_overlap(const rg_conv_partials_args *k, const conv_overlap *m, int64_t channels,
                           real *sums)
{
    const rg_conv_shape *s = &k->shape;
    if (k->out_last) {
        add_narrow(k, m, sums);
        return;
    }
    for (int64_t p = 0; p < s->row.window; p++)
        for (int64_t q = 0; q < s->column.window; q++)
            add_tap(k, m, p, q, channels, sums);
}

RG_OUTLINE void partials_unit(const rg_conv_partials_args *k, int64_t unit, rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t split = unit % k->splits, group = unit / k->splits % s->groups;
    const int64_t slice = unit / k->splits / s->groups, channel = split * k->channels;
    const int64_t channels = least(k->channels, s->out - channel);
    const int64_t size = k->out_last ? k->sums.group_step : channels * k->sums.out_step;
    real *const sums = (real *)k->partials + slice * k->sums.slice_step +
                       group * k->sums.group_step + channel * k->sums.out_step;
    double *const totals = totals_of(k->partials, sums, k->sums.slices * k->sums.slice_step);
    char *const scratch = k->scratch + rg_thread_pool_index() * k->scratch_bytes;
    int64_t windows = 0; /* of the block */
    bool first = true;
    memset(sums, 0, (size_t)size * sizeof(real));
    for (int64_t image = s->images * slice / k->sums.slices;
         image < s->images * (slice + 1) / k->sums.slices; image++) {
        for (int64_t i = 0; i < s->row.count; i += k->rows) {
            conv_overlap m = { .begin = i, .end = least(i + k->rows, s->row.count) };
            load_operands(k, &m, image, group, channel, channels, scratch, T);
            add_overlap(k, &m, channels, sums);
            const int64_t added = (m.end - m.begin) * s->column.count;
            windows += added < RG_CONV_MIN_WINDOWS ? RG_CONV_MIN_WINDOWS : added;
            if (!k->sums.has_totals || windows < RG_SUM_BLOCK)
                continue;
            add_to_totals(totals, sums, size, first);
            memset(sums, 0, (size_t)size * sizeof(real));
            first = false;
            windows = 0;
        }
    }
    if (k->sums.has_totals)
        add_to_totals(totals, sums, size, first);
}

RG_INLINE void sum_partials(const rg_conv_partials_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        partials_unit(k, unit, T);
}

RG_KERNEL(sum_partials, rg_conv_partials_args)

RG_CPU_TABLE(conv_weights, RG_CONV_KERNELS) = {
    [RG_CONV_PARTIALS] = RG_ROW(sum_partials),
};
