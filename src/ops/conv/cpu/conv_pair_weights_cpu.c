/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of weights for bf16 in pairs, see conv_panels.h. */
#include "backend/cpu/long_sum_cpu.h"
#include "backend/cpu/thread_pool.h"
#include "ops/contract/contract.h"
#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/cpu/conv_cpu.h"

#if RG_USES_PAIRS

/* ---- x and dy as pairs ---- */

static const uint16_t no_pixel[2 * RG_PANEL] = { 0 };

enum { PIXELS_AHEAD = 16 }; /* that are fetched */

/* Two pixels of `width` channels as pairs, neighbours where they are `dense`; further channels are
 * 0.
 */
RG_INLINE void put_pair(uint16_t *to, const uint16_t *low, const uint16_t *high, int64_t low_step,
                        int64_t high_step, int64_t width, bool dense)
{
    if (width % VLEN == 0 && dense) {
        for (int v = 0; v < RG_PANEL; v += VLEN)
            vstore_full(to, v, RG_REAL, v < width ? pair_words(low, high, v) : vset(0));
        return;
    }
    for (int64_t c = 0; c < RG_PANEL; c++) {
        to[2 * c] = c < width ? low[c * low_step] : 0;
        to[2 * c + 1] = c < width ? high[c * high_step] : 0;
    }
}

/* Where the pixels of a plane are, row by row: `no_pixel` beyond the image. */
typedef struct plane_walk {
    const uint16_t *x;
    int64_t first;       /* column of the image where rows of the plane begin */
    int64_t row, column; /* of the image, of the next pixel */
    int64_t from;        /* x on, where there is such a row and column */
    int64_t left;        /* pixels of the row of the plane */
} plane_walk;

RG_INLINE void begin_row(const rg_conv_pair_partials_args *k, plane_walk *at, int64_t row)
{
    at->row = row;
    at->column = at->first;
    at->from = row * k->shape.x[1] + at->first * k->shape.x[2];
    at->left = k->at.columns;
}

RG_INLINE const uint16_t *next_pixel(const rg_conv_pair_partials_args *k, plane_walk *at)
{
    const rg_conv_shape *s = &k->shape;
    const bool there =
        at->row >= 0 && at->row < s->row.size && at->column >= 0 && at->column < s->column.size;
    const uint16_t *const pixel = there ? at->x + at->from : no_pixel;
    if (there) /* channels of a panel are as far apart as pixels: not foreseen by the hardware */
        __builtin_prefetch(pixel + PIXELS_AHEAD * s->column.stride * s->x[2]);
    at->column += s->column.stride;
    at->from += s->column.stride * s->x[2];
    if (--at->left == 0)
        begin_row(k, at, at->row + s->row.stride);
    return pixel;
}

/* A plane in pairs, from its first pixel on, and, where asked for, from its second one on. */
RG_OUTLINE void put_pair_plane(const rg_conv_pair_partials_args *k, uint16_t *to, plane_walk at,
                               int64_t width)
{
    const int64_t step = k->shape.x[3], end = k->at.x_plane;
    uint16_t *const second = to + end * RG_PANEL;
    const uint16_t *low = next_pixel(k, &at);
    for (int64_t i = 0; i < end; i++) {
        const uint16_t *const high = i + 1 < end ? next_pixel(k, &at) : no_pixel;
        if (i % 2 == 0 || k->at.starts == 2)
            put_pair((i % 2 == 0 ? to : second) + i / 2 * 2 * RG_PANEL, low, high,
                     low != no_pixel ? step : 0, high != no_pixel ? step : 0, width, step == 1);
        low = high;
    }
}

/* All planes of a panel of x. */
RG_OUTLINE bool put_pair_panel(const rg_conv_pair_partials_args *k, uint16_t *to, const uint16_t *x,
                               int64_t width)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    const int64_t size = at->x_plane * RG_PANEL;
    bool nonfinite = false;
    for (int64_t plane = 0; plane < at->down * at->across; plane++) {
        const int64_t row = plane / at->across * s->row.dilation % s->row.stride - s->row.before;
        const int64_t column =
            plane % at->across * s->column.dilation % s->column.stride - s->column.before;
        plane_walk walk = { .x = x, .first = column };
        begin_row(k, &walk, row);
        put_pair_plane(k, to, walk, width);
        nonfinite |= has_nonfinite_bits(to, size);
        to += at->starts * size;
    }
    return nonfinite;
}

/* RG_PAIR_DEPTH pixels of `width` channels, transposed. */
RG_INLINE void transpose_pixels(uint16_t *to, int64_t to_step, const uint16_t *const from[],
                                const int64_t step[], int64_t width, bool dense)
{
    int64_t c = 0;
    for (; dense && c + VLEN <= width; c += VLEN) {
        vreal words[VLEN];
#pragma GCC unroll 16
        for (int i = 0; i < VLEN; i++)
            words[i] = pair_words(from[2 * i], from[2 * i + 1], c);
        vtranspose(words);
#pragma GCC unroll 16
        for (int i = 0; i < VLEN; i++)
            memcpy(to + (c + i) * to_step, &words[i], sizeof words[i]);
    }
    for (; c < width; c++)
        for (int i = 0; i < RG_PAIR_DEPTH; i++)
            to[c * to_step + i] = from[i][c * step[i]];
}

/* Lines of dy. */
RG_OUTLINE bool put_pair_lines(const rg_conv_pair_partials_args *k, uint16_t *to,
                               const uint16_t *dy, int64_t width)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    int64_t i = 0, j = 0;
    for (int64_t first = 0; first < at->y_line; first += RG_PAIR_DEPTH) {
        const uint16_t *from[RG_PAIR_DEPTH];
        int64_t step[RG_PAIR_DEPTH];
        for (int e = 0; e < RG_PAIR_DEPTH; e++) {
            const bool there = i < s->row.count && j < s->column.count;
            from[e] = there ? dy + i * s->y[1] + j * s->y[2] : no_pixel;
            step[e] = there ? s->y[3] : 0;
            if (there)
                __builtin_prefetch(from[e] + RG_PAIR_DEPTH * s->y[2]);
            if (++j == at->columns) {
                j = 0;
                i++;
            }
        }
        transpose_pixels(to + first, at->y_line, from, step, width, s->y[3] == 1);
    }
    return has_nonfinite_bits(to, width * at->y_line);
}

RG_OUTLINE void operands_unit(const rg_conv_pair_partials_args *k, int64_t unit)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    const int64_t pieces = at->panels + at->lines, piece = unit % pieces;
    const int64_t which = unit / pieces, group = which % s->groups; /* of all images */
    const int64_t image = k->image + which / s->groups, all = k->images * s->groups;
    uint16_t *const y = (uint16_t *)k->operands, *const x = y + all * at->y_group;
    float *const flags = (float *)k->operands + all * (at->y_group + at->x_group) / 2;
    if (piece < at->panels) {
        const int64_t first = piece * RG_PANEL;
        flags[unit] = put_pair_panel(
            k, x + which * at->x_group + piece * (at->x_group / at->panels),
            (const uint16_t *)k->x + image * s->x[0] + (group * s->in + first) * s->x[3],
            least(RG_PANEL, s->in - first));
        return;
    }
    const int64_t first = (piece - at->panels) * RG_PANEL;
    flags[unit] = put_pair_lines(k, y + which * at->y_group + first * at->y_line,
                                 (const uint16_t *)k->dy + image * s->y[0] +
                                     (group * s->out + first) * s->y[3],
                                 least(RG_PANEL, s->out - first));
}

RG_INLINE void pair_operands(const rg_conv_pair_partials_args *k, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        operands_unit(k, unit);
    (void)T;
}

/* ---- partial sums ---- */

/* Channels of windows by a panel of those of the image. */
typedef struct pair_unit {
    int64_t group, channel, channels, panel, width;
    const uint16_t *y, *x; /* of the first image */
    real *sums;            /* of the first tap and channel */
    bool add;              /* to the old values */
    bool add_totals;
    int64_t count; /* elements of k since a block began */
} pair_unit;

enum { RUN_CHUNK = 2048, MOST_RUNS = RUN_CHUNK / 2 };

/* Pieces of images, or of their rows. */
typedef struct pair_runs {
    rg_k_run run[MOST_RUNS];
    int32_t row[MOST_RUNS]; /* of windows, or -1: more than one */
    int64_t count, sum;     /* sum: of elements of k */
} pair_runs;

/* Those in which tap row p lies in the image. */
RG_INLINE int64_t runs_of_row(const rg_conv_shape *s, const pair_runs *runs, int64_t p,
                              rg_k_run to[MOST_RUNS])
{
    int64_t begin, end, n = 0;
    rg_conv_windows(&s->row, p, &begin, &end);
    for (int64_t i = 0; i < runs->count; i++) {
        const int64_t row = runs->row[i];
        to[n] = runs->run[i];
        n += row < 0 || (row >= begin && row < end);
    }
    return n;
}

/* All taps, over some runs. */
RG_OUTLINE void add_pair_runs(const rg_conv_pair_partials_args *k, pair_unit *u,
                              const pair_runs *runs)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    rg_k_run run[MOST_RUNS];
    for (int64_t p = 0; p < s->row.window; p++) {
        const int64_t count = runs_of_row(s, runs, p, run);
        for (int64_t q = 0; q < s->column.window; q++) {
            const int64_t shift = rg_conv_tap_step(&s->column, q), start = shift % 2;
            const int64_t plane = p % at->down * at->across + q % at->across;
            const int64_t first = rg_conv_tap_step(&s->row, p) * at->columns + shift - start;
            const rg_pair_tile tile = {
                .a = u->y,
                .b = u->x + ((plane * at->starts + start) * at->x_plane + first) * RG_PANEL,
                .c = u->sums + (p * s->column.window + q) * k->sums.tap_step,
                .runs = run,
                .run_count = count,
                .a_step = at->y_line,
                .c_step = k->sums.out_step,
                .add = u->add
            };
            rg_pair_unit_best()->rows(&tile, u->channels, u->width);
        }
    }
    u->add = true;
}

/* A run of products of windows begin <= j < end, pixel by pixel. */
RG_OUTLINE void add_pair_pixels(const rg_conv_pair_partials_args *k, const pair_unit *u, int64_t y,
                                int64_t x, int64_t begin, int64_t end, real *sums)
{
    const rg_conv_shape *s = &k->shape;
    real left[RG_CONV_PAIR_CHANNELS], right[RG_PANEL] = { 0 };
    real run[RG_CONV_PAIR_CHANNELS * RG_PANEL] = { 0 };
    for (int64_t j = begin; j < end; j++) {
        contract_load(left, 1, k->dy, y + j * s->y[2], s->y[3], u->channels, RG_BF16);
        contract_load(right, 1, k->x, x + j * s->column.stride * s->x[2], s->x[3], u->width,
                      RG_BF16);
        for (int64_t o = 0; o < u->channels; o++)
            for (int64_t c = 0; c < u->width; c++)
                run[o * RG_PANEL + c] += left[o] * right[c];
    }
    for (int64_t o = 0; o < u->channels; o++)
        for (int64_t c = 0; c < u->width; c++)
            sums[o * k->sums.out_step + c] += run[o * RG_PANEL + c];
}

/* All taps of an image in which a number is infinite or NaN. */
RG_OUTLINE void add_pair_image(const rg_conv_pair_partials_args *k, pair_unit *u, int64_t image)
{
    const rg_conv_shape *s = &k->shape;
    if (!u->add)
        add_pair_runs(k, u, &(const pair_runs){ .count = 0 });
    const int64_t y = image * s->y[0] + (u->group * s->out + u->channel) * s->y[3];
    const int64_t x = image * s->x[0] + (u->group * s->in + u->panel * RG_PANEL) * s->x[3];
    for (int64_t tap = 0; tap < s->row.window * s->column.window; tap++) {
        const int64_t p = tap / s->column.window, q = tap % s->column.window;
        int64_t i0, i1, j0, j1;
        rg_conv_windows(&s->row, p, &i0, &i1);
        rg_conv_windows(&s->column, q, &j0, &j1);
        for (int64_t i = i0; i < i1; i++) {
            const int64_t row = i * s->row.stride - s->row.before + p * s->row.dilation;
            const int64_t column = q * s->column.dilation - s->column.before;
            for (int64_t j = j0; j < j1; j += RG_SUM_RUN)
                add_pair_pixels(k, u, y + i * s->y[1], x + row * s->x[1] + column * s->x[2], j,
                                least(j + RG_SUM_RUN, j1), u->sums + tap * k->sums.tap_step);
        }
    }
}

/* Whether the unit reads an infinity or NaN of an image of the launch. */
RG_INLINE bool has_nonfinite(const rg_conv_pair_partials_args *k, const pair_unit *u, int64_t image)
{
    const rg_conv_pair_layout *at = &k->at;
    const int64_t all = k->images * k->shape.groups, pieces = at->panels + at->lines;
    const float *flags = (const float *)k->operands + all * (at->y_group + at->x_group) / 2 +
                         (image * k->shape.groups + u->group) * pieces;
    bool nonfinite = flags[u->panel] != 0;
    for (int64_t c = u->channel; c < u->channel + u->channels; c += RG_PANEL)
        nonfinite |= flags[at->panels + c / RG_PANEL] != 0;
    return nonfinite;
}

/* The sums of a unit, which end a block, go to its totals. */
RG_OUTLINE void end_pair_block(const rg_conv_pair_partials_args *k, pair_unit *u)
{
    const rg_conv_shape *s = &k->shape;
    double *const totals = totals_of(k->partials, u->sums, k->sums.slices * k->sums.slice_step);
    for (int64_t o = 0; o < u->channels; o++) {
        for (int64_t tap = 0; tap < s->row.window * s->column.window; tap++) {
            const int64_t at = o * k->sums.out_step + tap * k->sums.tap_step;
            add_to_totals(totals + at, u->sums + at, u->width, !u->add_totals);
            memset(u->sums + at, 0, (size_t)u->width * sizeof(real));
        }
    }
    u->add_totals = true;
    u->count = 0;
}

/* Runs of the launch, and the end of a block where it is long. */
RG_INLINE void end_pair_runs(const rg_conv_pair_partials_args *k, pair_unit *u, pair_runs *runs)
{
    add_pair_runs(k, u, runs);
    u->count += runs->sum;
    runs->count = runs->sum = 0;
    if (k->sums.has_totals && u->count >= RG_SUM_BLOCK)
        end_pair_block(k, u);
}

/* `count` elements of k of an image from `first` on, cut into runs. */
RG_INLINE void take_pair_run(const rg_conv_pair_partials_args *k, pair_unit *u, pair_runs *runs,
                             int64_t image, int64_t row, int64_t first, int64_t count)
{
    const int64_t most = least(RUN_CHUNK, rg_pair_unit_best()->run), groups = k->shape.groups;
    const int64_t a = image * groups * k->at.y_group, b = image * groups * k->at.x_group;
    for (const int64_t end = first + count; first < end; first += most) {
        const int64_t part = least(most, end - first);
        if (runs->sum + part > most)
            end_pair_runs(k, u, runs);
        runs->row[runs->count] = (int32_t)row;
        runs->run[runs->count++] = (rg_k_run){ a + first, b + first * RG_PANEL, part };
        runs->sum += part;
    }
}

/* Images of the launch from `begin` to `end` - 1, some at a time. */
RG_OUTLINE void sum_pair_images(const rg_conv_pair_partials_args *k, pair_unit *u, int64_t begin,
                                int64_t end)
{
    const rg_conv_pair_layout *at = &k->at;
    pair_runs runs = { .count = 0, .sum = 0 };
    for (int64_t image = begin; image < end; image++) {
        if (has_nonfinite(k, u, image))
            add_pair_image(k, u, k->image + image);
        else if (at->row_run == 0)
            take_pair_run(k, u, &runs, image, -1, 0, at->count);
        else
            for (int64_t i = 0; i < k->shape.row.count; i++)
                take_pair_run(k, u, &runs, image, i, i * at->columns, at->row_run);
    }
    if (runs.count > 0 || !u->add)
        end_pair_runs(k, u, &runs);
    if (k->ends_block)
        end_pair_block(k, u);
}

RG_OUTLINE void pair_partials_unit(const rg_conv_pair_partials_args *k, int64_t unit)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    const int64_t slice = unit / k->splits / at->panels / s->groups;
    pair_unit u = { .group = unit / k->splits / at->panels % s->groups,
                    .panel = unit / k->splits % at->panels,
                    .channel = unit % k->splits * k->channels,
                    .add = k->add,
                    .add_totals = k->add_totals };
    u.channels = least(k->channels, s->out - u.channel);
    u.width = least(RG_PANEL, s->in - u.panel * RG_PANEL);
    u.y = (const uint16_t *)k->operands;
    u.x = u.y + k->images * s->groups * at->y_group + u.group * at->x_group +
          u.panel * (at->x_group / at->panels);
    u.y += u.group * at->y_group + u.channel * at->y_line;
    u.sums = (real *)k->partials + slice * k->sums.slice_step + u.group * k->sums.group_step +
             u.channel * k->sums.out_step + u.panel * RG_PANEL;
    const int64_t images = least(k->images, s->images - k->image);
    sum_pair_images(k, &u, images * slice / k->sums.slices, images * (slice + 1) / k->sums.slices);
}

RG_INLINE void pair_partials(const rg_conv_pair_partials_args *k, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        pair_partials_unit(k, unit);
    (void)T;
}

RG_PAIR_KERNEL(pair_operands, rg_conv_pair_partials_args)
RG_PAIR_KERNEL(pair_partials, rg_conv_pair_partials_args)

#endif

RG_CPU_TABLE(conv_pair_weights, RG_CONV_KERNELS) = {
#if RG_USES_PAIRS
    [RG_CONV_PAIR_OPERANDS] = RG_PAIR_ROW(pair_operands),
    [RG_CONV_PAIR_PARTIALS] = RG_PAIR_ROW(pair_partials),
#endif
};
