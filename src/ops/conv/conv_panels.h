/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution by the contraction engine of the CPU: args, and how work is cut, by shape alone.
 *
 * Forward and backward data are sums over taps: an output takes the inputs
 *
 *      output * stride + first + t * step      of taps t
 *
 * on each axis. Forward these are the taps of a window. Backward data with stride s, pixels fall
 * into s phases, pixel % s, each of which has its own taps: a launch each, or, where channels are
 * few, all phases as adjacent channels of one output.
 *
 * Pairs of bf16 (see ops/contract/contract_pairs.h) go the same way, with bits in place of numbers.
 * A pixel has an even number of elements. Adjacent taps are one run, or one each where they are
 * some pixels apart; a run is followed by zeros in the panel up to a multiple of RG_PAIR_DEPTH.
 *
 * For weights, pixels are what is summed over. For pairs both sides are copied to rows of equal
 * length, with zeros between them, so that k goes through a whole image without a break:
 *
 *      dw[o][p][q][c]  =  sum over k of  dy[o][k] * x[plane of p, q][k + p' columns + q'][c]
 *
 * dy is [channel][k], x is panels of pairs along k: twice, from an even and from an odd pixel on,
 * so that q' may be either (a dy that starts inside a cache line would halve the rate of AMX). With
 * strides, x is cut into planes of pixels that share their taps; p' and q' are steps within them.
 */
#ifndef RG_OPS_CONV_PANELS_H
#define RG_OPS_CONV_PANELS_H

#include "ops/contract/contract_pairs.h"
#include "ops/conv/conv.h"

enum {
    RG_CONV_PANEL = 32,      /* channels of a panel of weights: RG_PANEL of the engine */
    RG_CONV_MOST_RUNS = 256, /* taps of a window, and rows of a block */
    RG_CONV_MOST_STRIDE = 16,
    RG_CONV_TILE_ROWS = 14,    /* pixels of a tile of the engine */
    RG_CONV_VECTOR = 16,       /* elements of the longest vector */
    RG_CONV_PAIR_CHANNELS = 64 /* of windows in a unit of pairs, at most */
};

/* One axis. Of tap t, phase r takes weight w_first + r - t w_step, if there is such a one. */
typedef struct rg_conv_window_axis {
    int64_t outputs, inputs;
    int64_t stride, first, step, taps;
    int64_t phases;            /* results that an output stands for: */
    int64_t to_first, to_step; /* to_first + output * to_step + phase, */
    int64_t to_size;           /* if it is less than this */
    int64_t w_first, w_step, window;
    int64_t block, blocks; /* outputs of a block, and how many blocks there are */
} rg_conv_window_axis;

/* Elements of k that a pixel, a tap, a row of taps have in a panel of pairs: for bf16 alone. */
typedef struct rg_conv_depth_pieces {
    int64_t pixel, tap, row;
} rg_conv_depth_pieces;

/* Weights as panels [group][panel][tap][depth][RG_CONV_PANEL], then a word for each [group][panel]
 * [tap]: not 0 if a weight among them is infinite or NaN. A unit is one such tap. */
typedef struct rg_conv_pack_args {
    const void *w;
    void *panels;
    rg_conv_window_axis row, column;
    int64_t depth, width, panel_count, units;
    int64_t w_offset;
    int64_t w_step[5]; /* (group, channel of the result, row, column, channel summed over) */
    rg_conv_depth_pieces depths;
} rg_conv_pack_args;

/* A unit is a block of outputs of one image and group. */
typedef struct rg_conv_rows_args {
    const void *from, *panels, *b;
    void *to, *z;
    char *thread_scratch; /* scratch of all threads */
    rg_conv_window_axis row, column;
    int64_t images, groups;
    int64_t depth, width; /* channels of a group: summed over, and of the result */
    int64_t panel_count;
    int64_t from_step[4], to_step[4], z_step[4], b_step; /* (image, row, column, channel) */
    int64_t from_offset;                                 /* element (0, 0, 0, 0) */
    int64_t pixel;                                       /* from pixel to pixel in scratch */
    int64_t scratch_bytes, in_bytes; /* bytes of a thread; those of a block of inputs come first */
    bool inside;                     /* no tap of a column lies outside the image */
    bool by_row;                     /* all panels for one row, not all rows for one panel */
    int64_t transposed_pitch;        /* few results of a pixel: adjacent pixels of a row; or 0 */
    bool has_b, has_z, add, stream;
    rg_conv_neuron neuron;
    rg_conv_depth_pieces depths;
    int64_t flat; /* of pairs: rows of a block that are summed together */
} rg_conv_rows_args;

/* Sums over a slice of the images, as arrays of [slice][group]; a unit is a slice of a group and
 * some of its channels. An array holds [channel of windows][tap][channel of the image], or, where
 * channels of the image are few, the channel of windows last. Where a slice is longer than a block
 * of core/long_sum.h, totals in double follow behind all arrays, in the same order. */
typedef struct rg_conv_partials_args {
    const void *x, *dy;
    void *partials;
    char *thread_scratch;
    rg_conv_shape shape;
    int64_t slices;                                  /* of images */
    int64_t channels, splits;                        /* of windows in a unit; units of an array */
    int64_t rows;                                    /* of windows in a block */
    int64_t out_step, tap_step, in_step, group_step; /* in partials */
    int64_t columns;                                 /* of the image in scratch */
    int64_t scratch_bytes, y_bytes;                  /* bytes: in all, of dy */
    bool weights_first;                              /* partials are [weight][channel of windows] */
    bool has_totals;
} rg_conv_partials_args;

/* dw = the sum of partials, or of their totals, slice after slice. A unit is one channel of
 * windows. */
typedef struct rg_conv_join_args {
    const void *partials;
    void *dw;
    rg_conv_shape shape;
    int64_t slices, out_step, tap_step, in_step, group_step;
    bool has_totals, add;
} rg_conv_join_args;

/* ---- weights by pairs ---- */

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

/* Partial sums as of rg_conv_partials_args, but each is of some images of every launch; a unit is
 * some channels of windows by a panel of those of the image. */
typedef struct rg_conv_pair_partials_args {
    const void *x, *dy, *sides;
    void *partials;
    rg_conv_shape shape;
    rg_conv_sides at;
    int64_t image, images, slices;
    int64_t channels, splits; /* of windows in a unit; units of a panel */
    int64_t out_step, tap_step, group_step;
    bool add; /* to those of earlier images */
    bool has_totals, add_totals,
        ends_block; /* see rg_conv_partials_args; blocks go over launches */
} rg_conv_pair_partials_args;

/* How far tap p is from the first pixel in its plane. */
static inline int64_t rg_conv_tap_step(const rg_conv_axis *a, int64_t p)
{
    return p * a->dilation / a->stride;
}

/* ---- axes ---- */

/* How many inputs lie under the taps of `outputs` neighbouring outputs. */
static inline int64_t rg_conv_span(const rg_conv_window_axis *r, int64_t outputs)
{
    return r->taps == 0 ? 0 : (outputs - 1) * r->stride + (r->taps - 1) * r->step + 1;
}

/* Whether no tap lies outside the inputs. */
static inline bool rg_conv_is_inside(const rg_conv_window_axis *r)
{
    return r->taps == 0 || (r->first >= 0 && r->first + rg_conv_span(r, r->outputs) <= r->inputs);
}

/* Of pairs: whether adjacent taps are one run, after which the next pixel is read; else a pixel
 * ends with zeros, so that what a sum is does not depend on its neighbours. */
static inline bool rg_conv_is_joined(const rg_conv_rows_args *k)
{
    return k->column.step == 1 && k->column.taps > 1;
}

#endif
