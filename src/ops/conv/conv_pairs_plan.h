/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of bf16 in pairs, see backend/cpu/contract_pairs.h: args, and how work is cut.
 *
 * Between image and windows all is as in conv_plan.h, with bits in place of numbers. A pixel has an
 * even number of elements. Taps side by side are one run, or one each where they are some pixels
 * apart; a run is followed by zeros in the panel up to a multiple of RG_PAIR_DEPTH.
 *
 * For weights, pixels are what is summed over. Both sides are copied to rows of equal length, with
 * zeros between them, so that k goes through a whole image without a break:
 *
 *      dw[o][p][q][c]  =  sum over k of  dy[o][k] * x[plane of p, q][k + p' columns + q'][c]
 *
 * dy lies as [channel][k], x as panels of pairs along k: twice, from an even and from an odd pixel
 * on, so that q' may be either (a dy that starts inside a cache line would halve the rate of AMX).
 * With strides, x is cut into planes of pixels that one tap meets; p'
 * and q' are steps within them. */
#ifndef RG_OPS_CONV_PAIRS_PLAN_H
#define RG_OPS_CONV_PAIRS_PLAN_H

#include "backend/cpu/contract_pairs.h"
#include "core/integer.h"
#include "ops/conv/conv_plan.h"

enum { RG_CONV_PAIR_CHANNELS = 64 }; /* of windows in a unit, at most */

static inline int64_t rg_conv_pair_depth(int64_t count)
{
    return rg_round_up(count, RG_PAIR_DEPTH);
}

/* ---- rows ---- */

static inline rg_conv_depth_pieces rg_conv_depth_pieces_of(const rg_conv_window_axis *column,
                                                           int64_t depth)
{
    const int64_t pixel = rg_round_up(depth, 2);
    if (column->step == 1 || column->taps <= 1)
        return (rg_conv_depth_pieces){ pixel, pixel, rg_conv_pair_depth(column->taps * pixel) };
    const int64_t tap = rg_conv_pair_depth(pixel);
    return (rg_conv_depth_pieces){ pixel, tap, column->taps * tap };
}

/* Whether taps side by side are one run, behind which the next pixel is read; else a pixel ends
 * with zeros, so that what a sum is does not depend on its neighbours. */
static inline bool rg_conv_is_joined(const rg_conv_rows_args *k)
{
    return k->column.step == 1 && k->column.taps > 1;
}

/* Where runs are short or results few, most products would be of zeros. */
static inline bool rg_conv_pairs_suit_rows(const rg_conv_rows_args *k)
{
    enum { MIN_RUN = 16, MIN_RESULTS = 8 };
    const int64_t side_by_side = k->column.step == 1 ? k->column.taps : 1;
    return k->row.phases * k->column.phases * k->width >= MIN_RESULTS &&
           side_by_side * k->depth >= MIN_RUN;
}

/* Blocks; rows that are summed together, where a unit wants many: garbage between them is summed,
 * too. */
static inline void rg_conv_cut_pairs(rg_conv_rows_args *k, bool tall)
{
    enum { TOGETHER = 256, SLACK = 64 };
    const int64_t depth = k->depth, element = sizeof(uint16_t);
    k->depth = rg_conv_is_joined(k) ? k->depths.pixel : rg_conv_pair_depth(k->depths.pixel);
    rg_conv_cut_rows(k, element);
    k->depth = depth;
    const int64_t block = k->column.block, wide = rg_conv_span(&k->column, block);
    k->flat = 1;
    if (tall && k->row.stride == 1 && k->column.stride == 1 && k->row.taps * k->column.taps > 0)
        k->flat = block >= TOGETHER ? 1 : rg_ceil_div(TOGETHER - block, wide) + 1;
    k->flat = k->flat < k->row.block ? k->flat : k->row.block;
    k->in_bytes = rg_conv_span(&k->row, k->row.block) * wide * k->pixel * element + SLACK;
    k->in_bytes = rg_round_up(k->in_bytes, 64);
    k->scratch_bytes = k->in_bytes + ((k->flat - 1) * wide + block + 2) * RG_CONV_LANES * 4;
}

/* ---- weights ---- */

/* Both sides as they are summed over; of each group of each image, first all of dy, then all of
 * x. Then a word for each [image][group][panel of x, or lines of dy]: not 0 if a number among them
 * is infinite or NaN. */
typedef struct rg_conv_sides {
    int64_t columns;          /* of a row, with zeros; even */
    int64_t down, across;     /* planes of x */
    int64_t starts;           /* of pairs: 1 where all taps begin with the first pixel, or 2 */
    int64_t count;            /* elements of k of an image, a multiple of RG_PAIR_DEPTH */
    int64_t y_line, x_plane;  /* elements of k in memory */
    int64_t panels, lines;    /* of RG_CONV_LANES channels of x, of dy: in a group */
    int64_t y_group, x_group; /* all elements of a group of an image */
} rg_conv_sides;

/* A unit is a panel of x or some lines of dy. */
typedef struct rg_conv_sides_args {
    const void *x, *dy;
    void *sides;
    rg_conv_shape shape;
    rg_conv_sides at;
    int64_t image, images; /* of a launch: the first, how many */
} rg_conv_sides_args;

/* Parts as of rg_conv_parts_args, but each is of some images of every launch; a unit is some
 * channels of windows by a panel of those of the image. */
typedef struct rg_conv_pair_parts_args {
    const void *x, *dy, *sides;
    void *parts;
    rg_conv_shape shape;
    rg_conv_sides at;
    int64_t image, images, slices;
    int64_t channels, splits; /* of windows in a unit; units of a panel */
    int64_t out_step, tap_step, group_step;
    bool add;                                /* to parts of earlier images */
    bool has_totals, add_totals, ends_block; /* see rg_conv_parts_args; blocks go over launches */
} rg_conv_pair_parts_args;

/* Planes of an axis: the first taps of a window meet different ones. */
static inline int64_t rg_conv_planes(const rg_conv_axis *a)
{
    int64_t planes = 1;
    while (planes < a->window && planes * a->dilation % a->stride != 0)
        planes++;
    return planes;
}

/* How far tap p is from the first pixel in its plane. */
static inline int64_t rg_conv_tap_step(const rg_conv_axis *a, int64_t p)
{
    return p * a->dilation / a->stride;
}

static inline rg_conv_sides rg_conv_sides_of(const rg_conv_shape *s)
{
    const int64_t shift = rg_conv_tap_step(&s->column, s->column.window - 1);
    const int64_t down = rg_conv_tap_step(&s->row, s->row.window - 1);
    rg_conv_sides at = { .columns = rg_ceil_div(s->column.count + shift, 2) * 2,
                         .down = rg_conv_planes(&s->row),
                         .across = rg_conv_planes(&s->column),
                         .starts = shift > 0 ? 2 : 1,
                         .panels = rg_ceil_div(s->in, RG_CONV_LANES),
                         .lines = rg_ceil_div(s->out, RG_CONV_LANES) };
    at.count = rg_conv_pair_depth(s->row.count * at.columns);
    /* An odd number of steps from line to line: lines do not meet in the same sets of a cache. */
    at.y_line = at.count + (at.count % (2 * RG_PAIR_DEPTH) == 0 ? RG_PAIR_DEPTH : 0);
    at.x_plane = at.count + down * at.columns + rg_round_up(shift, 2);
    at.y_group = s->out * at.y_line;
    at.x_group = at.panels * at.down * at.across * at.starts * at.x_plane * RG_CONV_LANES;
    return at;
}

/* Elements of both sides of an image. */
static inline double rg_conv_sides_size(const rg_conv_shape *s, const rg_conv_sides *at)
{
    return (double)s->groups *
           ((double)at->y_group + (double)at->x_group + 2.0 * (double)(at->panels + at->lines));
}

/* Few channels, or few pixels beside the zeros between them, are not worth it. */
static inline bool rg_conv_pairs_suit_weights(const rg_conv_shape *s)
{
    enum { MIN_CHANNELS = 8, MAX_PADDING_FACTOR = 4 };
    const rg_conv_sides at = rg_conv_sides_of(s);
    return s->in >= MIN_CHANNELS && s->out >= MIN_CHANNELS &&
           s->row.count * s->column.count * MAX_PADDING_FACTOR >= at.count &&
           rg_conv_sides_size(s, &at) <= 0x1p26;
}

/* Images of a launch, about: launches are equally long, and take no more than there is room for.
 * With slices, half as many as slices, and many times as many elements as parts, which every launch
 * adds to. Without, so many that dy and a panel of x, which a thread goes through again and again,
 * stay near. */
static inline int64_t rg_conv_pair_images(const rg_conv_pair_parts_args *k, int64_t slices)
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

/* Images of a launch, slices, channels of a unit. */
static inline void rg_conv_cut_pair_weights(rg_conv_pair_parts_args *k)
{
    enum { UNITS = 32, MOST_PARTS = 64 << 20, CHANNELS = RG_CONV_PAIR_CHANNELS, LANES = 16 };
    const rg_conv_shape *s = &k->shape;
    k->at = rg_conv_sides_of(s);
    k->tap_step = rg_round_up(s->in, LANES);
    k->out_step = s->row.window * s->column.window * k->tap_step;
    k->group_step = s->out * k->out_step;
    k->splits = rg_ceil_div(s->out, CHANNELS);
    k->channels = s->out < CHANNELS ? s->out : CHANNELS;
    int64_t slices = rg_ceil_div(UNITS, s->groups * k->splits * k->at.panels);
    k->images = rg_conv_pair_images(k, slices);
    const int64_t whole = s->groups * k->group_step * 4;
    slices = slices * whole <= MOST_PARTS ? slices : rg_ceil_div(MOST_PARTS / 2, whole);
    k->slices = slices < k->images ? slices : k->images;
    k->has_totals = rg_conv_is_long(s, k->slices, k->at.count);
}

#endif
