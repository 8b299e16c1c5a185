/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of a CPU where groups have few channels: args.
 *
 * A vector holds neighbouring channels of the result, of any groups. A group has `picks` channels
 * in the source; for each of them a copy of the source is made in which channel c of the result
 * finds the channel that it multiplies:
 *
 *      result[c]  =  sum over taps and i < picks  of  spread[i][c] * transposed[tap][i][c]
 *
 * This covers convolutions with a channel multiplier, their gradients, and groups of 2 to
 * RG_CONV_GROUPED_MOST channels. A depthwise convolution is the case of one pick, without a copy.
 */
#ifndef RG_OPS_CONV_GROUPED_H
#define RG_OPS_CONV_GROUPED_H

#include "ops/conv/conv.h"

enum {
    RG_CONV_GROUPED_MOST = 8,   /* channels of a group */
    RG_CONV_GROUPED_BLOCK = 16, /* channels of the result in a unit */
    RG_CONV_GROUPED_ROWS = 8,   /* of a block, at most */
    RG_CONV_GROUPED_BYTES = 64  /* of a vector, at most */
};

/* Weights as real, (channels / RG_CONV_GROUPED_BLOCK, taps, picks, RG_CONV_GROUPED_BLOCK), channels
 * of the result padded with 0 to a multiple. A unit is the last dimension. */
typedef struct rg_conv_grouped_transpose_args {
    const void *w;
    void *transposed;
    rg_conv_shape shape;
    bool data; /* from windows to the image */
} rg_conv_grouped_transpose_args;

/* A unit is a block of rows of one image of the result, and RG_CONV_GROUPED_BLOCK channels. */
typedef struct rg_conv_grouped_args {
    const void *from, *w, *b; /* w: transposed */
    void *to, *z;
    char *scratch;                    /* of all threads */
    rg_conv_depthwise_args depthwise; /* all but pointers; `channels`: of the result */
    int64_t picks, padded_channels;
    int64_t block, blocks; /* rows of a block; blocks of an image */
    int64_t scratch_bytes; /* bytes of a thread */
} rg_conv_grouped_args;

/* A part is some rows of windows, counted through all images; a unit is a part and a block of
 * channels. */
typedef struct rg_conv_grouped_parts_args {
    const void *x, *dy;
    void *partial; /* real, for each part as transposed weights lie */
    char *scratch;
    rg_conv_shape shape;
    int64_t part, parts; /* rows of a part; parts */
    int64_t padded_channels;
    int64_t block; /* rows that are spread at a time */
    int64_t scratch_bytes;
} rg_conv_grouped_parts_args;

/* A unit is RG_CONV_GROUPED_BLOCK channels of a pick of a tap. */
typedef struct rg_conv_grouped_join_args {
    const void *partial;
    void *dw;
    rg_conv_shape shape;
    int64_t parts, padded_channels;
    bool add; /* into dw */
} rg_conv_grouped_join_args;

/* Vectors of sums of dw, and of their totals in double where a row is longer than a run. */
static inline int64_t rg_conv_grouped_sums(const rg_conv_shape *s)
{
    const int64_t sums = s->row.window * s->column.window * s->in;
    return rg_conv_depthwise_run(s) < s->column.count ? 3 * sums : sums;
}

#endif
