/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution kernels and their args, for conv and conv_transpose. Valid C and valid CUDA.
 *
 * The image side is x and dx, the window side is y and dy. A transposed convolution runs backward
 * data as its forward pass, so all kernels take bias and neuron. */
#ifndef RG_OPS_CONV_H
#define RG_OPS_CONV_H

#include "core/long_sum.h"
#include "ops/neuron/neuron.h"

enum {
    RG_CONV_FORWARD,
    RG_CONV_DATA,    /* backward data: dx */
    RG_CONV_WEIGHTS, /* backward weights: dw */
    /* depthwise; a CPU's own */
    RG_CONV_TRANSPOSE_WEIGHTS, /* weights as real, channels adjacent */
    RG_CONV_DEPTHWISE,         /* forward or backward data */
    RG_CONV_DEPTHWISE_PARTS,   /* partial sums of dw */
    RG_CONV_DEPTHWISE_JOIN,    /* dw */
    /* by the contraction engine of a CPU, see conv_panels.h */
    RG_CONV_PACK,     /* weights as panels, for RG_CONV_ROWS */
    RG_CONV_ROWS,     /* forward or backward data */
    RG_CONV_PARTIALS, /* partial sums of dw, for RG_CONV_JOIN */
    RG_CONV_JOIN,
    /* where groups have few channels; a CPU's own */
    RG_CONV_GROUPED_TRANSPOSE,
    RG_CONV_GROUPED, /* forward or backward data */
    RG_CONV_GROUPED_PARTIALS,
    RG_CONV_GROUPED_JOIN,
    /* the engine for bf16 in pairs, where a processor multiplies them */
    RG_CONV_PAIR_PACK,
    RG_CONV_PAIR_ROWS,
    RG_CONV_PAIR_SIDES,    /* both sides, for RG_CONV_PAIR_PARTIALS */
    RG_CONV_PAIR_PARTIALS, /* partial sums of dw, for RG_CONV_JOIN */
    RG_CONV_KERNELS
};

/* Rows or columns. Positions of all taps fit into 31 bits. */
typedef struct rg_conv_axis {
    int64_t size;                     /* pixels of the image */
    int64_t count;                    /* windows */
    int64_t window, stride, dilation; /* taps, steps */
    int64_t before; /* tap p of window i is pixel i stride - before + p dilation */
} rg_conv_axis;

/* Steps are in elements. Channels of a side are numbered through all groups. */
typedef struct rg_conv_shape {
    rg_conv_axis row, column;
    int64_t images, groups;
    int64_t in, out;       /* channels of a group: of the image, of windows */
    int64_t x[4], y[4];    /* (image, row, column, channel) of the image side, the window side */
    int64_t w_first;       /* the offset of weight (0, 0, 0, 0, 0) */
    int64_t w[5];          /* (group, out, row, column, in) */
    bool x_dense, y_dense; /* channels are neighbours */
} rg_conv_shape;

typedef struct rg_conv_neuron {
    int32_t kind;
    rg_neuron_numbers numbers;
} rg_conv_neuron;

/* RG_CONV_FORWARD and RG_CONV_DATA: to = neuron(z), z = sum + b. Unused
 * pointers hold any valid address. */
typedef struct rg_conv_args {
    const void *from, *w, *b;
    void *to, *z;
    void *scratch; /* of a GPU's own */
    rg_conv_shape shape;
    int64_t b_step;
    int64_t z_step[4]; /* (image, row, column, channel) */
    bool z_dense;
    bool has_b, has_z;
    rg_conv_neuron neuron;
    bool add;    /* into `to` */
    bool stream; /* `to` uses streaming stores */
} rg_conv_args;

/* dw has the layout of shape.w. */
typedef struct rg_conv_weights_args {
    const void *x, *dy;
    void *dw;
    void *scratch; /* of a GPU's own */
    rg_conv_shape shape;
    bool add;  /* into dw */
    bool wide; /* dw is f32 beside f16 or bf16 */
} rg_conv_weights_args;

/* ---- depthwise: one channel of either side in a group ---- */

enum {
    RG_CONV_DEPTHWISE_TAPS = 128,  /* at most, of a window */
    RG_CONV_DEPTHWISE_SUMS = 8192, /* weights of a unit: taps times channels */
    RG_CONV_DEPTHWISE_UNIT = 64    /* channels */
};

static inline RG_HOST_DEVICE bool rg_conv_is_depthwise(const rg_conv_shape *s)
{
    return s->in == 1 && s->out == 1 && s->groups > 1 &&
           s->row.window * s->column.window <= RG_CONV_DEPTHWISE_TAPS;
}

typedef struct rg_conv_transpose_weights_args {
    const void *w;
    void *transposed; /* real, (taps, channels) */
    rg_conv_shape shape;
} rg_conv_transpose_weights_args;

/* As rg_conv_args. */
typedef struct rg_conv_depthwise_args {
    const void *from, *w; /* w: transposed, (taps, channels) */
    const void *b;
    void *to, *z;
    rg_conv_shape shape;
    int64_t channels;
    int64_t b_step;
    int64_t z_step[4];
    rg_conv_neuron neuron;
    bool data; /* backward data */
    bool has_b, has_z, add, stream;
    bool plain; /* no z, nothing to add to, no neuron but relu, b dense */
} rg_conv_depthwise_args;

/* Parts are added up in double, so that a part may be as long as the first two levels of
 * core/long_sum.h together. */
enum { RG_CONV_DEPTHWISE_MOST = RG_SUM_RUN + RG_SUM_RUNS };

/* Windows of a row that are summed up in one accumulator. A part that is one longer row adds up
 * runs of it in double. */
static inline RG_HOST_DEVICE int64_t rg_conv_depthwise_run(const rg_conv_shape *s)
{
    return s->column.count <= RG_CONV_DEPTHWISE_MOST ? s->column.count
                                                     : (int64_t)RG_CONV_DEPTHWISE_MOST;
}

/* A part is some rows of windows of all images, counted through. */
typedef struct rg_conv_depthwise_parts_args {
    const void *x, *dy;
    void *partial; /* real, (parts, taps, channels) */
    rg_conv_shape shape;
    int64_t part, parts;   /* rows of a part; parts */
    int64_t block, blocks; /* channels of a unit; units of a part */
} rg_conv_depthwise_parts_args;

typedef struct rg_conv_depthwise_join_args {
    const void *partial;
    void *dw;
    rg_conv_shape shape;
    int64_t parts;
    bool add; /* into dw */
} rg_conv_depthwise_join_args;

/* ---- groups of few channels, on a CPU ----
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
    bool data; /* backward data */
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

/* A partial sum is of some rows of windows, counted through all images; a unit is one of them and a
 * block of channels. */
typedef struct rg_conv_grouped_partials_args {
    const void *x, *dy;
    void *partial; /* real, each in the layout of transposed weights */
    char *scratch;
    rg_conv_shape shape;
    int64_t rows, partials; /* rows of a partial sum; partial sums */
    int64_t padded_channels;
    int64_t block; /* rows that are spread at a time */
    int64_t scratch_bytes;
} rg_conv_grouped_partials_args;

/* A unit is RG_CONV_GROUPED_BLOCK channels of a pick of a tap. */
typedef struct rg_conv_grouped_join_args {
    const void *partial;
    void *dw;
    rg_conv_shape shape;
    int64_t partials, padded_channels;
    bool add; /* into dw */
} rg_conv_grouped_join_args;

/* Vectors of sums of dw, and of their totals in double where a row is longer than a run. */
static inline int64_t rg_conv_grouped_sums(const rg_conv_shape *s)
{
    const int64_t sums = s->row.window * s->column.window * s->in;
    return rg_conv_depthwise_run(s) < s->column.count ? 3 * sums : sums;
}

/* ---- geometry ---- */

/* Taps begin <= p < end of window i lie in the image; none: begin = end. */
static inline RG_HOST_DEVICE void rg_conv_taps(const rg_conv_axis *a, int64_t i, int64_t *begin,
                                               int64_t *end)
{
    const int64_t start = i * a->stride - a->before, left = a->size - start, d = a->dilation;
    *begin = start >= 0 ? 0 : (d - 1 - start) / d;
    *end = left <= 0 ? 0 : (left + d - 1) / d;
    *end = *end < a->window ? *end : a->window;
    *begin = *begin < *end ? *begin : *end;
}

/* The window whose tap p is pixel r, or -1. */
static inline RG_HOST_DEVICE int64_t rg_conv_window(const rg_conv_axis *a, int64_t r, int64_t p)
{
    const int64_t distance = r + a->before - p * a->dilation;
    if (distance < 0 || distance % a->stride != 0)
        return -1;
    return distance / a->stride < a->count ? distance / a->stride : -1;
}

/* Windows begin <= i < end have tap p in the image; none: begin = end. */
static inline RG_HOST_DEVICE void rg_conv_windows(const rg_conv_axis *a, int64_t p, int64_t *begin,
                                                  int64_t *end)
{
    const int64_t start = p * a->dilation - a->before, left = a->size - start, s = a->stride;
    *begin = start >= 0 ? 0 : (s - 1 - start) / s;
    *end = left <= 0 ? 0 : (left + s - 1) / s;
    *end = *end < a->count ? *end : a->count;
    *begin = *begin < *end ? *begin : *end;
}

#endif
