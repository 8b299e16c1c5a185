/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of weights for bf16 in pairs, see conv_panels.h. */
#include "backend/cpu/long_sum_cpu.h"
#include "backend/cpu/thread_pool.h"
#include "ops/contract/contract.h"
#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/cpu/conv_pair_operands_cpu.h"

#if RG_USES_PAIRS

/* ---- x and dy as pairs ---- */

RG_OUTLINE void operands_unit(const rg_conv_pair_partials_args *k, int64_t unit)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    const int64_t pieces = at->panels + at->lines, piece = unit % pieces;
    const int64_t which = unit / pieces, group = which % s->groups; /* of all images */
    const int64_t image = k->image + which / s->groups, all = k->images * s->groups;
    uint16_t *const y = (uint16_t *)k->operands, *const x = y + all * at->y_group;
    float *const flags = (float *)k->operands + all * (at->y_group + at->x_group) / 2;
    const uint16_t *const x_image = (const uint16_t *)k->x + image * s->x[0];
    const uint16_t *const y_image = (const uint16_t *)k->dy + image * s->y[0];
    pair_rows rows = { .count = s->row.count };
    if (piece < at->panels) {
        const int64_t first = piece * RG_PANEL;
        rows.x = x_image + (group * s->in + first) * s->x[3];
        flags[unit] =
            put_pair_panels(k, x + which * at->x_group + piece * (at->x_group / at->panels), &rows,
                            least(RG_PANEL, s->in - first));
        return;
    }
    const int64_t first = (piece - at->panels) * RG_PANEL;
    rows.y = y_image + (group * s->out + first) * s->y[3];
    flags[unit] = put_pair_lines(k, y + which * at->y_group + first * at->y_line, &rows,
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
    int64_t count;          /* elements of k since a block began */
    int64_t slice;          /* of RG_CONV_PAIR_SLICES, with all operands of a block: */
    uint16_t *operands;     /* dy of its images, then x */
    rg_pair_ahead ahead[2]; /* x and dy of the next block */
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
            const bool x_is_fetched = u->ahead[0].next >= u->ahead[0].end;
            const rg_pair_tile tile = {
                .a = u->y,
                .b = u->x + ((plane * at->starts + start) * at->x_plane + first) * RG_PANEL,
                .c = u->sums + (p * s->column.window + q) * k->sums.tap_step,
                .runs = run,
                .run_count = count,
                .a_step = at->y_line,
                .c_step = k->sums.out_step,
                .add = u->add,
                .ahead = &u->ahead[x_is_fetched]
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

/* All taps of rows of windows of an image in which a number is infinite or NaN. */
RG_OUTLINE void add_pair_image(const rg_conv_pair_partials_args *k, pair_unit *u, int64_t image,
                               int64_t first, int64_t end)
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
        for (int64_t i = first > i0 ? first : i0; i < least(i1, end); i++) {
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

/* Operands of the next image, which come from the third level of the cache. */
RG_INLINE void fetch_image(const rg_conv_pair_partials_args *k, pair_unit *u, int64_t image)
{
    const rg_conv_pair_layout *at = &k->at;
    const uint16_t *const x = u->x + image * k->shape.groups * at->x_group;
    const uint16_t *const y = u->y + image * k->shape.groups * at->y_group;
    u->ahead[0] = (rg_pair_ahead){ (const char *)x, (const char *)(x + at->x_group / at->panels) };
    u->ahead[1] = (rg_pair_ahead){ (const char *)y, (const char *)(y + u->channels * at->y_line) };
}

/* Images of the launch from `begin` to `end` - 1, some at a time. */
RG_OUTLINE void sum_pair_images(const rg_conv_pair_partials_args *k, pair_unit *u, int64_t begin,
                                int64_t end)
{
    const rg_conv_pair_layout *at = &k->at;
    pair_runs runs = { .count = 0, .sum = 0 };
    for (int64_t image = begin; image < end; image++) {
        if (image + 1 < end)
            fetch_image(k, u, image + 1);
        if (has_nonfinite(k, u, image))
            add_pair_image(k, u, k->image + image, 0, k->shape.row.count);
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

/* ---- the same by slices: operands of a block in scratch, read while they are in the cache ---- */

/* Part `part` of the sums of a group: a panel of x, some channels of windows. */
RG_INLINE void choose_part(const rg_conv_pair_partials_args *k, pair_unit *u, int64_t part)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    const int64_t slice_sums = u->slice * k->sums.slice_step + u->group * k->sums.group_step;
    u->panel = part / k->splits;
    u->channel = part % k->splits * k->channels;
    u->channels = least(k->channels, s->out - u->channel);
    u->width = least(RG_PANEL, s->in - u->panel * RG_PANEL);
    u->y = u->operands + u->channel * at->y_line;
    u->x = u->operands + k->images * at->y_group + u->panel * (at->x_group / at->panels);
    u->sums =
        (real *)k->partials + slice_sums + u->channel * k->sums.out_step + u->panel * RG_PANEL;
}

/* Ends a block of core/long_sum.h in all parts. */
RG_OUTLINE void end_long_block(const rg_conv_pair_partials_args *k, pair_unit *u)
{
    const bool add_totals = u->add_totals;
    for (int64_t part = 0; part < k->at.panels * k->splits; part++) {
        choose_part(k, u, part);
        u->add_totals = add_totals;
        end_pair_block(k, u);
    }
}

/* Additions of so many elements of k. */
RG_INLINE void count_elements(const rg_conv_pair_partials_args *k, pair_unit *u, int64_t count)
{
    u->count += count > RG_CONV_MIN_WINDOWS ? count : RG_CONV_MIN_WINDOWS;
    if (k->sums.has_totals && u->count >= RG_SUM_BLOCK)
        end_long_block(k, u);
}

/* Runs of a block, all parts. */
RG_OUTLINE void add_block_runs(const rg_conv_pair_partials_args *k, pair_unit *u, pair_runs *runs)
{
    const bool add = u->add;
    for (int64_t part = 0; part < k->at.panels * k->splits; part++) {
        choose_part(k, u, part);
        u->add = add;
        add_pair_runs(k, u, runs);
    }
    count_elements(k, u, runs->sum);
    runs->count = runs->sum = 0;
}

/* A block, in which a number is infinite or NaN. */
RG_OUTLINE void add_block_pixels(const rg_conv_pair_partials_args *k, pair_unit *u, int64_t image,
                                 int64_t images, int64_t row, int64_t rows)
{
    const bool add = u->add;
    for (int64_t part = 0; part < k->at.panels * k->splits; part++) {
        choose_part(k, u, part);
        u->add = add;
        for (int64_t i = image; i < image + images; i++)
            add_pair_image(k, u, i, row, row + rows);
    }
    count_elements(k, u, images * k->at.count);
}

/* What follows a block of an image in memory, as much as it has. */
RG_INLINE void look_ahead(const rg_conv_pair_partials_args *k, pair_unit *u, const pair_rows *rows)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t begin = rows->first * s->row.stride - s->row.before,
                  end = rows->first + rows->count;
    const int64_t size = rows->count * s->row.stride;
    const char *const x = (const char *)(rows->x + (begin + size + s->row.window) * s->x[1]);
    const char *const y = (const char *)(rows->y + end * s->y[1]);
    const int64_t x_bytes = size * s->x[1] * (int64_t)sizeof(uint16_t);
    const int64_t y_bytes = rows->count * s->y[1] * (int64_t)sizeof(uint16_t);
    u->ahead[0] = (rg_pair_ahead){ x, x + (s->groups == 1 && s->x[3] == 1 ? x_bytes : 0) };
    u->ahead[1] = (rg_pair_ahead){ y, y + (s->groups == 1 && s->y[3] == 1 ? y_bytes : 0) };
}

/* Rows of windows of some images: their operands, then all sums. */
RG_OUTLINE void sum_block(const rg_conv_pair_partials_args *k, pair_unit *u, int64_t image,
                          int64_t images, int64_t row)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    const int64_t rows = least(k->rows, s->row.count - row), most = rg_pair_unit_best()->run;
    bool nonfinite = false;
    for (int64_t i = 0; i < images; i++) {
        const pair_rows from = {
            (const uint16_t *)k->x + (image + i) * s->x[0] + u->group * s->in * s->x[3],
            (const uint16_t *)k->dy + (image + i) * s->y[0] + u->group * s->out * s->y[3], row, rows
        };
        nonfinite |= put_pair_lines(k, u->operands + i * at->y_group, &from, s->out);
        nonfinite |= put_pair_panels(k, u->operands + k->images * at->y_group + i * at->x_group,
                                     &from, s->in);
        look_ahead(k, u, &from);
    }
    if (nonfinite) {
        add_block_pixels(k, u, image, images, row, rows);
        return;
    }
    pair_runs runs = { .count = 0, .sum = 0 };
    const int64_t row_run = at->row_run > 0 ? at->row_run : at->columns;
    for (int64_t i = 0; i < images * rows; i++) {
        const int64_t a = i / rows * at->y_group, b = i / rows * at->x_group;
        const int64_t end = i % rows * at->columns + row_run;
        for (int64_t first = end - row_run; first < end; first += most) {
            const int64_t part = least(most, end - first);
            if (runs.sum + part > most)
                add_block_runs(k, u, &runs);
            runs.row[runs.count] = (int32_t)(row + i % rows);
            runs.run[runs.count++] = (rg_k_run){ a + first, b + first * RG_PANEL, part };
            runs.sum += part;
        }
    }
    add_block_runs(k, u, &runs);
}

RG_OUTLINE void pair_slices_unit(const rg_conv_pair_partials_args *k, int64_t unit)
{
    const rg_conv_shape *s = &k->shape;
    pair_unit u = { .group = unit % s->groups, .slice = unit / s->groups };
    u.operands = (uint16_t *)(void *)(k->scratch + rg_thread_pool_index() * k->scratch_bytes);
    const int64_t begin = s->images * u.slice / k->sums.slices;
    const int64_t end = s->images * (u.slice + 1) / k->sums.slices;
    for (int64_t image = begin; image < end; image += k->images) {
        for (int64_t row = 0; row < s->row.count; row += k->rows) {
            sum_block(k, &u, image, least(k->images, end - image), row);
        }
    }
    if (k->sums.has_totals)
        end_long_block(k, &u);
}

RG_INLINE void pair_slices(const rg_conv_pair_partials_args *k, int64_t begin, int64_t end,
                           const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        pair_slices_unit(k, unit);
    (void)T;
}

RG_PAIR_KERNEL(pair_operands, rg_conv_pair_partials_args)
RG_PAIR_KERNEL(pair_partials, rg_conv_pair_partials_args)
RG_PAIR_KERNEL(pair_slices, rg_conv_pair_partials_args)

#endif

RG_CPU_TABLE(conv_pair_weights, RG_CONV_KERNELS) = {
#if RG_USES_PAIRS
    [RG_CONV_PAIR_OPERANDS] = RG_PAIR_ROW(pair_operands),
    [RG_CONV_PAIR_PARTIALS] = RG_PAIR_ROW(pair_partials),
    [RG_CONV_PAIR_SLICES] = RG_PAIR_ROW(pair_slices),
#endif
};
