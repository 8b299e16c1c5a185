/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The args of convolution kernels that a CPU alone has, and how their work is cut, by shape alone.
 *
 * By the contraction engine (strategies panels and pairs), forward and backward data are sums over
 * taps: an output takes the inputs
 *
 *      output * stride + first + t * step      of taps t
 *
 * on each axis. Forward these are the taps of a window. Backward data with stride s, pixels fall
 * into s phases, pixel % s, each of which has its own taps: a launch each, or, where channels are
 * few, all phases as adjacent channels of one output.
 *
 * Pairs of bf16 (see ops/contract/contract_pairs.h) go the same way, with bits in place of numbers.
 * A pixel has an even number of elements, unless channels are few and taps one run. Adjacent taps
 * are one run, or one each where they are some pixels apart; a run is followed by zeros in the
 * panel up to a multiple of RG_PAIR_DEPTH.
 *
 * dw is summed over pixels. For pairs, both x and dy are copied to rows of equal length, with zeros
 * between them, so that k goes through a whole image without a break:
 *
 *      dw[o][p][q][c]  =  sum over k of  dy[o][k] * x[plane of p, q][k + p' columns + q'][c]
 *
 * dy is [channel][k], x is panels of pairs along k: twice, from an even and from an odd pixel on,
 * so that q' may be either (a dy that starts inside a cache line would halve the rate of AMX). With
 * strides, x is cut into planes of pixels that share their taps; p' and q' are steps within them. A
 * unit that takes runs of any length gets a run for each row, without the zeros, and none where a
 * row of taps lies outside of the image.
 */
#ifndef RG_OPS_CONV_CPU_H
#define RG_OPS_CONV_CPU_H

#include "core/long_sum.h"
#include "core/walk.h"
#include "ops/contract/contract_pairs.h"
#include "ops/conv/conv.h"

/* ---- dw from partial sums ---- */

/* Partial sums of dw: `slices` arrays of real, each over a part of the windows. Where a slice is
 * longer than a block of core/long_sum.h, totals in double follow all arrays, in the same order.
 * Steps are in elements; one of them is 1. */
typedef struct rg_conv_partial_sums {
    int64_t slices;
    int64_t slice_step, group_step, out_step, tap_step, in_step;
    bool has_totals;
} rg_conv_partial_sums;

/* dw = the sum of the slices, or of their totals, one after the other, with the digits of a double.
 * A line is contiguous in the partial sums, and dw_step apart in dw; a unit is a piece of one.
 */
enum { RG_CONV_JOIN_WIDTH = 64 }; /* elements of a unit */
typedef struct rg_conv_join_args {
    const void *partials;
    void *dw;
    rg_walk lines; /* tensors: an array of partial sums, dw */
    int64_t width, dw_step, dw_first;
    int64_t slices, slice_step;
    bool has_totals, add;
} rg_conv_join_args;

/* ---- depthwise, and groups of few channels ----
 *
 * A vector holds neighbouring channels of the result, of any groups. A group has `group_in`
 * channels in the source; for each of them a copy of the source is made in which channel c of the
 * result finds the channel that it multiplies:
 *
 *      result[c]  =  sum over taps and i < group_in  of  spread[i][c] * transposed[tap][i][c]
 *
 * This covers convolutions with a channel multiplier, their gradients, and groups of 2 to
 * RG_CONV_GROUPED_CHANNELS channels. A depthwise convolution is the case of one channel, without a
 * copy.
 */

enum {
    RG_CONV_GROUPED_CHANNELS = 8,  /* channels of a group */
    RG_CONV_GROUPED_BLOCK = 16,    /* channels of the result in a unit */
    RG_CONV_GROUPED_ROWS = 8,      /* of a block, at most */
    RG_CONV_PERMUTE_CHANNELS = 64, /* of a unit of dw */
    RG_CONV_VECTOR_BYTES = 64,     /* of a vector, at most */
    RG_CONV_DEPTHWISE_SUMS = 8192, /* weights of a unit of dw, taps times channels, at most */
    RG_CONV_MIN_WINDOWS = 64, /* that each addition to partial sums counts as: a block has at most
                                 RG_SUM_BLOCK / 64 = RG_SUM_RUN additions */
    RG_CONV_ROW_RUN = RG_SUM_RUN + RG_SUM_RUNS /* windows that one accumulator adds up: partial
                                                  sums are joined in double, so that a run may be as
                                                  long as the first two levels of core/long_sum.h */
};

/* Weights as real, (channels / block, taps, group_in, block), channels of the result padded with 0
 * to a multiple of `block`. A unit is the last dimension. */
typedef struct rg_conv_transpose_weights_args {
    const void *w;
    void *transposed;
    rg_conv_shape shape;
    int64_t block;
    bool data; /* backward data */
} rg_conv_transpose_weights_args;

/* Forward and backward data, w transposed. Depthwise: a unit is a row of the result. Grouped: a
 * unit is a block of rows of one image of the result, and RG_CONV_GROUPED_BLOCK channels. */
typedef struct rg_conv_grouped_args {
    rg_conv_args conv;
    int64_t channels; /* of the result */
    bool data;        /* backward data */
    bool plain;       /* no z, nothing to add to, no neuron but relu, b dense */
    /* grouped: */
    int64_t group_in, padded_channels;
    int64_t block, blocks; /* rows of a block; blocks of an image */
    int64_t scratch_bytes; /* of a thread */
    int64_t unit_channels; /* depthwise by pairs of rows: of a unit */
} rg_conv_grouped_args;

/* Partial sums of dw, [slice][tap][pick][channel]. A slice is some rows of windows, counted through
 * all images; a unit is a slice and a block of channels. */
typedef struct rg_conv_grouped_partials_args {
    const void *x, *dy;
    void *partials;
    char *scratch; /* of all threads; grouped alone */
    rg_conv_shape shape;
    rg_conv_partial_sums sums;
    int64_t rows;          /* of a slice */
    int64_t block, blocks; /* channels of a unit; units of a slice */
    int64_t spread_rows;   /* grouped: rows that are spread at a time */
    int64_t scratch_bytes; /* grouped: of a thread */
} rg_conv_grouped_partials_args;

/* Partial sums of dw, [slice][tap][pick][channel], of groups of as many channels on either side.
 * A slice is some blocks of windows, counted through all images: `rows` rows by `columns`
 * columns of an image. A unit is a slice and RG_CONV_PERMUTE_CHANNELS channels. */
typedef struct rg_conv_permute_partials_args {
    const void *x, *dy;
    void *partials;
    char *scratch; /* of all threads */
    rg_conv_shape shape;
    rg_conv_partial_sums sums;
    int64_t rows, columns;             /* of a block */
    int64_t block_rows, block_columns; /* blocks of an image, down and across */
    int64_t blocks;                    /* of a slice */
    int64_t units;                     /* of a slice */
    int64_t scratch_bytes, y_bytes;    /* of a thread: in all, of dy */
} rg_conv_permute_partials_args;

/* Windows of a row that are summed up in one accumulator. A partial sum that is one longer row adds
 * up runs of it in double. */
static inline int64_t rg_conv_row_run(const rg_conv_shape *s)
{
    const int64_t most = RG_CONV_ROW_RUN;
    return s->column.count <= most ? s->column.count : most;
}

/* Vectors of sums of dw, and of their totals in double where a row is longer than a run. */
static inline int64_t rg_conv_grouped_sums(const rg_conv_shape *s)
{
    const int64_t sums = s->row.window * s->column.window * s->in;
    return rg_conv_row_run(s) < s->column.count ? 3 * sums : sums;
}

enum {
    RG_CONV_PANEL = 32,     /* channels of a panel of weights: RG_PANEL of the engine */
    RG_CONV_MAX_RUNS = 256, /* taps of a window, and rows of a block */
    RG_CONV_MAX_STRIDE = 16,
    RG_CONV_TILE_ROWS = 14,    /* pixels of a tile of the engine */
    RG_CONV_VECTOR = 16,       /* elements of the longest vector */
    RG_CONV_PAIR_CHANNELS = 64 /* of windows in a unit of pairs, at most */
};

/* One axis. Of tap t, phase r takes weight w_first + r - t w_step, if it exists. */
typedef struct rg_conv_window_axis {
    int64_t outputs, inputs;
    int64_t stride, first, step, taps;
    int64_t phases;            /* results that an output consists of: */
    int64_t to_first, to_step; /* to_first + output * to_step + phase, */
    int64_t to_size;           /* if it is less than this */
    int64_t w_first, w_step, window;
    int64_t block, blocks; /* outputs of a block, and how many blocks there are */
} rg_conv_window_axis;

/* Elements of k that a pixel, a tap, a row of taps have in a panel of pairs: for bf16 alone. */
typedef struct rg_conv_pair_steps {
    int64_t pixel, tap, row;
} rg_conv_pair_steps;

/* Weights as panels [group][panel][tap][depth][RG_CONV_PANEL], then a word for each [group][panel]
 * [tap]: not 0 if a weight among them is infinite or NaN. A unit is one such tap. */
typedef struct rg_conv_pack_args {
    const void *w;
    void *panels;
    rg_conv_window_axis row, column;
    int64_t depth, width, panel_count, units;
    int64_t w_offset;
    int64_t w_step[5]; /* (group, channel of the result, row, column, channel summed over) */
    rg_conv_pair_steps pair_steps;
} rg_conv_pack_args;

/* Forward and backward data; w of `conv` are panels. A unit is a block of outputs of one image and
 * group. */
typedef struct rg_conv_rows_args {
    rg_conv_args conv;
    rg_conv_window_axis row, column;
    int64_t images, groups;
    int64_t depth, width; /* channels of a group: summed over, and of the result */
    int64_t panel_count;
    int64_t from_step[4], to_step[4]; /* (image, row, column, channel) */
    int64_t from_offset;              /* element (0, 0, 0, 0) */
    int64_t pixel;                    /* from pixel to pixel in scratch */
    int64_t scratch_bytes, in_bytes;  /* bytes of a thread; those of a block of inputs come first */
    bool inside;                      /* no tap of a column lies outside the image */
    bool by_row;                      /* all panels for one row, not all rows for one panel */
    int64_t transposed_pitch;         /* few results of a pixel: adjacent pixels of a row; or 0 */
    rg_conv_pair_steps pair_steps;
    int64_t rows_per_pass; /* of pairs: rows of a block that are summed together */
} rg_conv_rows_args;

/* Partial sums of dw over slices of the images, [slice][group][channel of windows][tap][channel of
 * the image], or, where channels of the image are few, the channel of windows last. A unit is a
 * slice of a group and some of its channels. */
typedef struct rg_conv_partials_args {
    const void *x, *dy;
    void *partials;
    char *scratch; /* of all threads */
    rg_conv_shape shape;
    rg_conv_partial_sums sums;
    int64_t channels, splits;       /* of windows in a unit; units of a group */
    int64_t rows;                   /* of windows in a block */
    int64_t columns;                /* of the image in scratch */
    int64_t scratch_bytes, y_bytes; /* bytes: in all, of dy */
    bool out_last;                  /* partial sums are [weight][channel of windows] */
} rg_conv_partials_args;

/* ---- groups of few channels, stride 1: what the loops for real and for pairs of bf16 read ----
 *
 * A vector holds adjacent channels of the result. The inputs of a block of
 * RG_CONV_GROUPED_BLOCK channels are dense in scratch; each lane picks the channel that it
 * multiplies while the vector is in a register, and all taps of a row use what was picked:
 *
 *      sums[m][lane]  =  sum over rows of taps, picks i, taps q  of
 *                        x[row][m + q][pick i of the lane] * w[row][q][i][lane]
 *
 * A word is a real, or a pair of adjacent channels in bf16. Backward weights use the same picks;
 * their pairs are two adjacent columns:
 *
 *      sums[q][i][lane]  =  sum over windows  of  x[m + q][pick i of the lane] * dy[m][lane]
 */

enum {
    RG_CONV_PERMUTE_PICKS = 16,  /* of a lane, at most */
    RG_CONV_PERMUTE_HEIGHT = 14, /* adjacent results, at most */
};

/* Steps are in words. `first` may lie before x: inputs begin <= j < end of a row exist, counted
 * from there, the others are left out. */
typedef struct rg_conv_permute {
    const void *x, *w;
    void *sums; /* [count][lanes] */
    int64_t first, x_row;
    int64_t w_row, w_tap; /* a pick further: RG_CONV_GROUPED_BLOCK */
    int64_t rows;         /* of taps */
    int64_t begin, end;
    int64_t picks;
    const void *index;                     /* [picks][lanes]: which word a lane picks */
    int64_t offset[RG_CONV_PERMUTE_PICKS]; /* of the vector that a pick is taken from, or, */
    bool picks_one; /* where all lanes pick the same word, of that word: `index` is not read */
} rg_conv_permute;

/* Whether there are loops for windows of `columns` columns. */
static inline bool rg_conv_permute_has(int64_t columns)
{
    return columns == 3 || columns == 5;
}

/* Pairs of bf16 in 16 lanes, `count` results: 14, 7, 4, 2 or 1. */
void rg_bf16_permute(const rg_conv_permute *t, int64_t columns, int64_t count);

/* `rows` rows of words of RG_CONV_GROUPED_BLOCK channels, of x and of dy. Reals: column i of x
 * is tap q of window start + i - q, if it exists. Pairs: a row of x is `columns` pairs that
 * begin with an even column, then as many that begin one further; tap q of pair i is window pair
 * i - q / 2, and zeros lie around those of dy. All numbers are finite. */
typedef struct rg_conv_permute_windows {
    const void *x, *y;
    void *sums; /* [tap][pick][lanes] */
    int64_t rows, x_row, y_row;
    int64_t start, columns, windows;
    const void *index; /* [picks][lanes] */
    int64_t offset;    /* of the vector that the picks are taken from, or, */
    bool picks_one;    /* where all lanes pick the same word, of the first: `index` is not read */
} rg_conv_permute_windows;

/* Picks that are summed together: as many as the registers hold sums of, if there are that many.
 * `many` registers: 32. */
static inline int64_t rg_conv_permute_together(int64_t channels, int64_t columns, bool many)
{
    if (many && columns == 3 && channels >= 16)
        return 8;
    return channels >= 4 && (columns == 3 || many) ? 4 : 2;
}

/* Zero pairs on either side of a row of dy. */
static inline int64_t rg_conv_permute_halo(int64_t columns)
{
    return (columns - 1) / 2;
}

/* 16 lanes. */
void rg_bf16_permute_windows(const rg_conv_permute_windows *t, int64_t columns, int64_t picks);

/* ---- depthwise, in bf16: pairs of rows ----
 *
 * A word is a channel of two rows, one above the other, a vector of words RG_CONV_GROUPED_BLOCK
 * channels. Two rows of results take four rows of inputs, two pairs:
 *
 *      first row   =  sum over taps q  of  (row 0, row 1) * (w0, w1)  +  (row 2, row 3) * (w2, 0)
 *      second row  =  sum over taps q  of  (row 0, row 1) * (0, w0)   +  (row 2, row 3) * (w1, w2)
 *
 * A pair of rows serves the two rows of results above it and those below it. A sum without a NaN
 * has met no infinity or NaN where it multiplied by 0. */

enum {
    RG_CONV_PAIR_WINDOW = 3,          /* taps of a row, and of a column */
    RG_CONV_PAIR_DEPTHWISE_WORDS = 12 /* of a channel: for each q the four pairs above */
};

/* Both rows: `count` columns, of which number j takes columns j - shift to j - shift + 2 of inputs.
 * Of columns low <= j < high all of these are there; others take 0. */
typedef struct rg_conv_pair_depthwise {
    const uint16_t *row[4]; /* RG_CONV_GROUPED_BLOCK channels of column 0 */
    int64_t step[4];        /* from column to column; 0 of a row of zeros */
    const void *w;          /* [RG_CONV_PAIR_DEPTHWISE_WORDS][lanes] */
    float *sums;            /* [2][count][lanes] */
    uint16_t *to[2];        /* or results, where no bias or neuron is to come */
    int64_t to_step;        /* from column to column of them */
    int64_t count, inputs, shift, low, high;
    const char *ahead, *ahead_end; /* memory to fetch meanwhile, which need not exist */
    int64_t pace;                  /* bytes of it for each column */
} rg_conv_pair_depthwise;

/* Sums; whether there is no NaN among them. */
bool rg_bf16_depthwise(const rg_conv_pair_depthwise *t);
/* Results; whether there is no NaN, nor a subnormal sum: else they are to be made from sums. */
bool rg_bf16_depthwise_results(const rg_conv_pair_depthwise *t);

/* ---- weights by pairs ---- */

/* x and dy as they are summed over; of each group of each image, first all of dy, then all of x.
 * Then a word for each [image][group][panel of x, or lines of dy]: not 0 if a number among them is
 * infinite or NaN. */
typedef struct rg_conv_pair_layout {
    int64_t columns;          /* of a row, with zeros; even */
    int64_t row_run;          /* elements of k of a row, a run each; 0: an image is one run */
    int64_t down, across;     /* planes of x */
    int64_t starts;           /* of pairs: 1 where all taps begin with the first pixel, or 2 */
    int64_t count;            /* elements of k of an image, a multiple of RG_PAIR_DEPTH */
    int64_t y_line, x_plane;  /* elements of k in memory */
    int64_t panels, lines;    /* of RG_CONV_PANEL channels of x, of dy: in a group */
    int64_t y_group, x_group; /* all elements of a group of an image */
} rg_conv_pair_layout;

/* A unit of RG_CONV_PAIR_OPERANDS is a panel of x or some lines of dy. Partial sums are as those of
 * rg_conv_partials_args, but a slice is of some images of every launch; a unit is some channels of
 * windows by a panel of those of the image. */
typedef struct rg_conv_pair_partials_args {
    const void *x, *dy;
    void *operands;
    void *partials;
    rg_conv_shape shape;
    rg_conv_pair_layout at;
    rg_conv_partial_sums sums;
    int64_t image, images;    /* of a launch: the first, how many */
    int64_t channels, splits; /* of windows in a unit; units of a panel */
    bool add;                 /* to the sums of earlier launches */
    bool add_totals;          /* to their totals */
    bool ends_block;          /* the launch ends a block of core/long_sum.h */
    char *scratch;         /* of all threads; this and what follows of RG_CONV_PAIR_SLICES alone: */
    int64_t scratch_bytes; /* of a thread */
    int64_t rows;          /* of windows in a block, which has these rows of `images` images */
} rg_conv_pair_partials_args;

/* ---- weights by pairs, of images of few channels ----
 *
 * A row of x becomes words, each of an element and that of the same channel one stride further: two
 * windows see them through the same tap. With pairs of dy in panels,
 *
 *      dw[o][p][t]  =  sum over pairs of windows j  of  word[row p][2 j stride channels + t] *
 * dy[j][o]
 *
 * where t counts the channels of the taps of a row. Partial sums are [slice][group][p][t][o], o
 * padded. A slice is some blocks of rows of windows, counted through all images. */
typedef struct rg_conv_pair_taps_args {
    const void *x, *dy;
    void *partials;
    char *scratch; /* of all threads */
    rg_conv_shape shape;
    rg_conv_partial_sums sums;
    int64_t rows, blocks, slice_blocks;      /* rows of a block; blocks of an image, of a slice */
    int64_t columns;                         /* windows of a row; even */
    int64_t x_row, panels;                   /* words of a row of x; panels of dy */
    int64_t scratch_bytes, x_bytes, y_bytes; /* of a thread: in all, of x, of dy */
} rg_conv_pair_taps_args;

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
