/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution by the contraction engine of the CPU: args, and how work is cut, by shape alone.
 *
 * Both directions between image and windows are sums over taps: an output takes the inputs
 *
 *      output * stride + first + t * step      of taps t
 *
 * on each axis. Forward these are the taps of a window. From windows to the image with stride s,
 * pixels fall into s phases, pixel % s, each of which meets its own taps: a launch each, or, where
 * channels are few, all phases side by side as channels of one output. */
#ifndef RG_OPS_CONV_PLAN_H
#define RG_OPS_CONV_PLAN_H

#include "ops/conv/conv.h"

enum {
    RG_CONV_PANEL = 32,      /* channels of a panel of weights: RG_PANEL of the engine */
    RG_CONV_MOST_RUNS = 256, /* taps of a window, and rows of a block */
    RG_CONV_MOST_STRIDE = 16
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
    int64_t from_first;                                  /* element (0, 0, 0, 0) */
    int64_t pixel;                                       /* from pixel to pixel in scratch */
    int64_t scratch_bytes, in_bytes; /* bytes of a thread; those of a block of inputs come first */
    bool inside;                     /* no tap of a column lies outside the image */
    bool by_row;                     /* all panels for one row, not all rows for one panel */
    int64_t transposed_pitch; /* few results of a pixel: pixels of a row, side by side; or 0 */
    bool has_b, has_z, add, stream;
    rg_conv_neuron neuron;
    rg_conv_depth_pieces depths;
    int64_t flat; /* of pairs: rows of a block that are summed together */
} rg_conv_rows_args;

/* Sums over a slice of the images, as arrays of [slice][group]; a unit is a slice of a group and
 * some of its channels. An array holds [channel of windows][tap][channel of the image], or, where
 * channels of the image are few, the channel of windows last. Where a slice is longer than a block
 * of core/long_sum.h, totals in double follow behind all arrays, in the same order. */
typedef struct rg_conv_parts_args {
    const void *x, *dy;
    void *parts;
    char *thread_scratch;
    rg_conv_shape shape;
    int64_t slices;                                  /* of images */
    int64_t channels, splits;                        /* of windows in a unit; units of an array */
    int64_t rows;                                    /* of windows in a block */
    int64_t out_step, tap_step, in_step, group_step; /* in parts */
    int64_t columns;                                 /* of the image in scratch */
    int64_t scratch_bytes, y_bytes;                  /* bytes: in all, of dy */
    bool weights_first;                              /* in parts: [weight][channel of windows] */
    bool has_totals;
} rg_conv_parts_args;

/* dw = the sum of parts, or of their totals, slice after slice. A unit is one channel of windows.
 */
typedef struct rg_conv_join_args {
    const void *parts;
    void *dw;
    rg_conv_shape shape;
    int64_t slices, out_step, tap_step, in_step, group_step;
    bool has_totals, add;
} rg_conv_join_args;

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

/* The axis of a forward pass: from the image to windows. */
rg_conv_window_axis rg_conv_forward_axis(const rg_conv_axis *a);
/* From windows to pixels r, r + stride, …: one phase. */
rg_conv_window_axis rg_conv_phase_axis(const rg_conv_axis *a, int64_t r);
/* From windows to all pixels, the phases side by side. The dilation is 1. */
rg_conv_window_axis rg_conv_phases_axis(const rg_conv_axis *a);
/* Windows of a single tap: makes the stride a step from pixel to pixel, so that it is 1. */
void rg_conv_fold_stride(rg_conv_window_axis *r, int64_t *from_first, int64_t *from_step);
/* Windows of one pixel: joins rows, and images, to one long row where they lie so in memory. */
void rg_conv_join_rows(rg_conv_rows_args *k);

/* ---- blocks ---- */

/* Cuts outputs into blocks whose inputs stay in the L2 cache, enough blocks for all threads. */
void rg_conv_cut_rows(rg_conv_rows_args *k, int64_t element);
/* Cuts images into slices, and rows of windows into blocks. */
void rg_conv_cut_weights(rg_conv_parts_args *k, int64_t element);
/* Whether the sum over a slice, with `windows` windows of each of its images, is longer than a
 * block of core/long_sum.h. */
bool rg_conv_is_long(const rg_conv_shape *s, int64_t slices, int64_t windows);
/* Elements of all partial sums, with their totals. */
double rg_conv_parts_size(const rg_conv_shape *s, int64_t slices, int64_t group_step,
                          bool has_totals, int64_t element);

/* ---- what the engine is for ---- */

/* Whether the engine takes this shape: no groups of one channel, scratch of a moderate size. */
bool rg_conv_suits(const rg_conv_shape *s);
/* Whether all phases are one launch: few channels, so that all fit one panel. */
bool rg_conv_joins_phases(const rg_conv_shape *s);

#endif
