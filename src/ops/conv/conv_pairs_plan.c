/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of bf16 in pairs: how work is cut, and which shapes it is for. */
#include "ops/conv/conv_pairs_plan.h"
#include "core/integer.h"

/* ---- rows ---- */

static int64_t pair_depth(int64_t count)
{
    return rg_round_up(count, RG_PAIR_DEPTH);
}

rg_conv_depth_pieces rg_conv_depth_pieces_of(const rg_conv_window_axis *column, int64_t depth)
{
    const int64_t pixel = rg_round_up(depth, 2);
    if (column->step == 1 || column->taps <= 1)
        return (rg_conv_depth_pieces){ pixel, pixel, pair_depth(column->taps * pixel) };
    const int64_t tap = pair_depth(pixel);
    return (rg_conv_depth_pieces){ pixel, tap, column->taps * tap };
}

bool rg_conv_pairs_suit_rows(const rg_conv_rows_args *k)
{
    enum { MIN_RUN = 16, MIN_RESULTS = 8 };
    const int64_t side_by_side = k->column.step == 1 ? k->column.taps : 1;
    return k->row.phases * k->column.phases * k->width >= MIN_RESULTS &&
           side_by_side * k->depth >= MIN_RUN;
}

void rg_conv_cut_pairs(rg_conv_rows_args *k, bool tall)
{
    enum { TOGETHER = 256, SLACK = 64 };
    const int64_t depth = k->depth, element = sizeof(uint16_t);
    k->depth = rg_conv_is_joined(k) ? k->depths.pixel : pair_depth(k->depths.pixel);
    rg_conv_cut_rows(k, element);
    k->depth = depth;
    const int64_t block = k->column.block, wide = rg_conv_span(&k->column, block);
    k->flat = 1;
    if (tall && k->row.stride == 1 && k->column.stride == 1 && k->row.taps * k->column.taps > 0)
        k->flat = block >= TOGETHER ? 1 : rg_ceil_div(TOGETHER - block, wide) + 1;
    k->flat = k->flat < k->row.block ? k->flat : k->row.block;
    k->in_bytes = rg_conv_span(&k->row, k->row.block) * wide * k->pixel * element + SLACK;
    k->in_bytes = rg_round_up(k->in_bytes, 64);
    k->scratch_bytes = k->in_bytes + ((k->flat - 1) * wide + block + 2) * RG_CONV_PANEL * 4;
}

/* ---- weights ---- */

/* Planes of an axis: as many as there are different (tap * dilation) % stride. */
static int64_t planes_of(const rg_conv_axis *a)
{
    int64_t planes = 1;
    while (planes < a->window && planes * a->dilation % a->stride != 0)
        planes++;
    return planes;
}

static rg_conv_sides sides_of(const rg_conv_shape *s)
{
    const int64_t shift = rg_conv_tap_step(&s->column, s->column.window - 1);
    const int64_t down = rg_conv_tap_step(&s->row, s->row.window - 1);
    rg_conv_sides at = { .columns = rg_ceil_div(s->column.count + shift, 2) * 2,
                         .down = planes_of(&s->row),
                         .across = planes_of(&s->column),
                         .starts = shift > 0 ? 2 : 1,
                         .panels = rg_ceil_div(s->in, RG_CONV_PANEL),
                         .lines = rg_ceil_div(s->out, RG_CONV_PANEL) };
    at.count = pair_depth(s->row.count * at.columns);
    /* An odd number of steps from line to line: lines then fall into different sets of the cache.
     */
    at.y_line = at.count + (at.count % (2 * RG_PAIR_DEPTH) == 0 ? RG_PAIR_DEPTH : 0);
    at.x_plane = at.count + down * at.columns + rg_round_up(shift, 2);
    at.y_group = s->out * at.y_line;
    at.x_group = at.panels * at.down * at.across * at.starts * at.x_plane * RG_CONV_PANEL;
    return at;
}

double rg_conv_sides_size(const rg_conv_shape *s, const rg_conv_sides *at)
{
    return (double)s->groups *
           ((double)at->y_group + (double)at->x_group + 2.0 * (double)(at->panels + at->lines));
}

bool rg_conv_pairs_suit_weights(const rg_conv_shape *s)
{
    enum { MIN_CHANNELS = 8, MAX_PADDING_FACTOR = 4 };
    const rg_conv_sides at = sides_of(s);
    return s->in >= MIN_CHANNELS && s->out >= MIN_CHANNELS &&
           s->row.count * s->column.count * MAX_PADDING_FACTOR >= at.count &&
           rg_conv_sides_size(s, &at) <= 0x1p26;
}

/* About how many images a launch takes: launches are equally long, and take at most MAX_ELEMENTS.
 * With slices, at least half as many images as slices, and ELEMENTS_PER_SUM elements for each sum,
 * because every launch adds to the sums. Without slices, so many that dy and a panel of x, which a
 * thread reads again and again, stay in the L2 cache. */
static int64_t images_per_launch(const rg_conv_pair_parts_args *k, int64_t slices)
{
    enum {
        L2_ELEMENTS = 3 << 18,
        MAX_ELEMENTS = 16 << 20,
        ELEMENTS_PER_SUM = 12,
        MIN_PIXELS = 1024
    }; /* elements */
    const rg_conv_shape *s = &k->shape;
    const int64_t most_images = MAX_ELEMENTS / (int64_t)rg_conv_sides_size(s, &k->at);
    int64_t most;
    if (slices == 1) {
        const int64_t together = rg_ceil_div(MIN_PIXELS, k->at.count);
        most = L2_ELEMENTS / (k->at.y_group + k->at.x_group / k->at.panels);
        most = most > together ? most : together;
    } else {
        const double parts = (double)(slices * s->groups) * (double)k->group_step;
        const double wanted = ELEMENTS_PER_SUM * parts / rg_conv_sides_size(s, &k->at);
        most = wanted < (double)most_images ? (int64_t)wanted : most_images;
        most = most > slices / 2 ? most : slices / 2;
    }
    most = most < most_images ? most : most_images;
    return rg_ceil_div(s->images, rg_ceil_div(s->images, most < 1 ? 1 : most));
}

void rg_conv_cut_pair_weights(rg_conv_pair_parts_args *k)
{
    enum { UNITS = 32, MOST_PARTS = 64 << 20, CHANNELS = RG_CONV_PAIR_CHANNELS, VECTOR = 16 };
    const rg_conv_shape *s = &k->shape;
    k->at = sides_of(s);
    k->tap_step = rg_round_up(s->in, VECTOR);
    k->out_step = s->row.window * s->column.window * k->tap_step;
    k->group_step = s->out * k->out_step;
    k->splits = rg_ceil_div(s->out, CHANNELS);
    k->channels = s->out < CHANNELS ? s->out : CHANNELS;
    int64_t slices = rg_ceil_div(UNITS, s->groups * k->splits * k->at.panels);
    k->images = images_per_launch(k, slices);
    const int64_t whole = s->groups * k->group_step * 4;
    slices = slices * whole <= MOST_PARTS ? slices : rg_ceil_div(MOST_PARTS / 2, whole);
    k->slices = slices < k->images ? slices : k->images;
    k->has_totals = rg_conv_is_long(s, k->slices, k->at.count);
}
