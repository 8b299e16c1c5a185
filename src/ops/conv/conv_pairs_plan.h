/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of bf16 in pairs, see ops/contract/contract_pairs.h: args, and how work is cut.
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

#include "ops/contract/contract_pairs.h"
#include "ops/conv/conv_plan.h"

enum { RG_CONV_PAIR_CHANNELS = 64 }; /* of windows in a unit, at most */

/* ---- rows ---- */

/* Whether taps side by side are one run, behind which the next pixel is read; else a pixel ends
 * with zeros, so that what a sum is does not depend on its neighbours. */
static inline bool rg_conv_is_joined(const rg_conv_rows_args *k)
{
    return k->column.step == 1 && k->column.taps > 1;
}

rg_conv_depth_pieces rg_conv_depth_pieces_of(const rg_conv_window_axis *column, int64_t depth);
/* Where runs are short or results few, most products would be of zeros. */
bool rg_conv_pairs_suit_rows(const rg_conv_rows_args *k);
/* Blocks; rows that are summed together, where a unit wants many: garbage between them is summed,
 * too. */
void rg_conv_cut_pairs(rg_conv_rows_args *k, bool tall);

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
    int64_t panels, lines;    /* of RG_CONV_PANEL channels of x, of dy: in a group */
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

/* How far tap p is from the first pixel in its plane. */
static inline int64_t rg_conv_tap_step(const rg_conv_axis *a, int64_t p)
{
    return p * a->dilation / a->stride;
}

/* Elements of both sides of an image. */
double rg_conv_sides_size(const rg_conv_shape *s, const rg_conv_sides *at);
/* Few channels, or few pixels beside the zeros between them, are not worth it. */
bool rg_conv_pairs_suit_weights(const rg_conv_shape *s);
/* Images of a launch, slices, channels of a unit. */
void rg_conv_cut_pair_weights(rg_conv_pair_parts_args *k);

#endif
