/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of a CPU where groups have few channels: args, and how work is cut, by shape alone.
 *
 * Channels of the result, of all groups, are lanes side by side. For each of the `picks` channels
 * that a group has in the source, a copy of the source is spread out so that a lane finds there
 * the channel that it takes:
 *
 *      result[lane]  =  sum over taps and i < picks  of  spread[i][lane] * transposed[tap][i][lane]
 *
 * So it is with a depthwise convolution (one pick, no copy needed), one with a multiplier, their
 * gradients, and groups of 2 to RG_CONV_GROUPED_MOST channels. */
#ifndef RG_OPS_CONV_GROUPED_H
#define RG_OPS_CONV_GROUPED_H

#include "core/integer.h"
#include "ops/conv/conv.h"

enum {
    RG_CONV_GROUPED_MOST = 8,   /* channels of a group */
    RG_CONV_GROUPED_LANES = 16, /* of a unit */
    RG_CONV_GROUPED_ROWS = 8,   /* of a block, at most */
    RG_CONV_GROUPED_BYTES = 64  /* of a vector, at most */
};

/* Weights as real, (lanes / RG_CONV_GROUPED_LANES, taps, picks, RG_CONV_GROUPED_LANES), lanes
 * padded with 0 to a multiple. A unit is the last dimension. */
typedef struct rg_conv_grouped_transpose_args {
    const void *w;
    void *transposed;
    rg_conv_shape shape;
    bool data; /* from windows to the image */
} rg_conv_grouped_transpose_args;

/* A unit is a block of rows of the result of one image, and some lanes. */
typedef struct rg_conv_grouped_args {
    const void *from, *w, *b; /* w: transposed */
    void *to, *z;
    char *scratch;                /* of all threads */
    rg_conv_depthwise_args depth; /* all but pointers; `channels` are lanes of the result */
    int64_t picks, lanes;         /* lanes: padded */
    int64_t block, blocks;        /* rows of a block; blocks of an image */
    int64_t scratch_bytes;        /* bytes of a thread */
} rg_conv_grouped_args;

/* A part is some rows of windows of all images, counted through; a unit a part and some lanes. */
typedef struct rg_conv_grouped_parts_args {
    const void *x, *dy;
    void *partial; /* real, for each part as transposed weights lie */
    char *scratch;
    rg_conv_shape shape;
    int64_t part, parts; /* rows of a part; parts */
    int64_t lanes;       /* padded */
    int64_t block;       /* rows that are spread at a time */
    int64_t scratch_bytes;
} rg_conv_grouped_parts_args;

/* A unit is RG_CONV_GROUPED_LANES lanes of a pick of a tap. */
typedef struct rg_conv_grouped_join_args {
    const void *partial;
    void *dw;
    rg_conv_shape shape;
    int64_t parts, lanes;
    bool add; /* into dw */
} rg_conv_grouped_join_args;

/* ---- how work is cut ---- */

static inline int64_t rg_conv_grouped_padded(int64_t lanes)
{
    return rg_round_up(lanes, RG_CONV_GROUPED_LANES);
}

/* Rows of the source that so many rows of the result reach over. */
static inline int64_t rg_conv_grouped_span(const rg_conv_axis *a, bool data, int64_t rows)
{
    const int64_t reach = (a->window - 1) * a->dilation, all = data ? a->count : a->size;
    const int64_t span =
        data ? (rows - 1 + reach) / a->stride + 2 : (rows - 1) * a->stride + reach + 1;
    return span < all ? span : all;
}

/* Bytes of a thread: the source spread out. */
static inline double rg_conv_grouped_scratch(const rg_conv_shape *s, bool data, int64_t rows)
{
    const double sources = (double)(data ? s->column.count : s->column.size);
    const double picks = (double)(data ? s->out : s->in);
    return RG_CONV_GROUPED_BYTES * (double)rg_conv_grouped_span(&s->row, data, rows) * sources *
           picks;
}

/* Vectors of sums of dw, and of their totals in double where a row is longer than a run. */
static inline int64_t rg_conv_grouped_sums(const rg_conv_shape *s)
{
    const int64_t sums = s->row.window * s->column.window * s->in;
    return rg_conv_depthwise_run(s) < s->column.count ? 3 * sums : sums;
}

/* Bytes of a thread that makes dw: both sides, and sums. */
static inline double rg_conv_grouped_parts_scratch(const rg_conv_shape *s, int64_t rows)
{
    return rg_conv_grouped_scratch(s, false, rows) +
           RG_CONV_GROUPED_BYTES *
               ((double)rows * (double)s->column.count + (double)rg_conv_grouped_sums(s));
}

/* Rows of a block: so many that its scratch stays in the second cache. */
static inline int64_t rg_conv_grouped_block(const rg_conv_shape *s, bool data, bool weights)
{
    enum { MAX_ROWS = RG_CONV_GROUPED_ROWS, L2_BYTES = 192 << 10 };
    const int64_t all = data ? s->row.size : s->row.count;
    int64_t rows = all < MAX_ROWS ? (all < 1 ? 1 : all) : MAX_ROWS;
    while (rows > 1 && (weights ? rg_conv_grouped_parts_scratch(s, rows)
                                : rg_conv_grouped_scratch(s, data, rows)) > L2_BYTES)
        rows--;
    return rows;
}

/* Whether groups have few channels, not one, one row has room in all directions, and results are
 * sums of two runs at most, of which one accumulator makes one. */
static inline bool rg_conv_is_grouped(const rg_conv_shape *s)
{
    const double most = 0x1p22;
    const int64_t taps = s->row.window * s->column.window;
    return s->groups > 1 && s->in * s->out > 1 && s->in <= RG_CONV_GROUPED_MOST &&
           s->out <= RG_CONV_GROUPED_MOST && (s->in == 1 || s->out == 1 || s->in == s->out) &&
           taps <= RG_CONV_DEPTHWISE_TAPS &&
           taps * (s->in > s->out ? s->in : s->out) <= 2 * RG_SUM_RUN &&
           rg_conv_grouped_parts_scratch(s, 1) <= most &&
           rg_conv_grouped_scratch(s, true, 1) <= most;
}

#endif
