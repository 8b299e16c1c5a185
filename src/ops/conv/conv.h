/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution kernels and their args, for conv and conv_transpose. Valid C and valid CUDA.
 *
 * The image side is where pixels are (x, dx), the window side is where windows are (y, dy). A
 * transposed convolution goes from windows to the image, so all kernels take bias and neuron. */
#ifndef RG_OPS_CONV_H
#define RG_OPS_CONV_H

#include "ops/neuron/neuron.h"

enum {
    RG_CONV_FORWARD, /* from the image to windows */
    RG_CONV_DATA,    /* from windows to the image */
    RG_CONV_WEIGHTS, /* dw from both */
    /* by the contraction engine of a CPU, see conv_plan.h */
    RG_CONV_PACK,  /* weights as panels, for RG_CONV_ROWS */
    RG_CONV_ROWS,  /* either direction between image and windows */
    RG_CONV_PARTS, /* dw in parts, for RG_CONV_JOIN */
    RG_CONV_JOIN,
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
    int64_t w_first;       /* weight (0, 0, 0, 0, 0) stands here */
    int64_t w[5];          /* (group, out, row, column, in) */
    bool x_dense, y_dense; /* channels are neighbours */
} rg_conv_shape;

typedef struct rg_conv_neuron {
    int32_t kind;
    rg_neuron_numbers numbers;
} rg_conv_neuron;

/* RG_CONV_FORWARD and RG_CONV_DATA: to = neuron(z), z = sum + b. Of pointers that are not needed
 * some valid one stands in. */
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
    bool stream; /* `to` goes past the cache */
} rg_conv_args;

/* dw lies as shape.w says. */
typedef struct rg_conv_weights_args {
    const void *x, *dy;
    void *dw;
    void *scratch; /* of a GPU's own */
    rg_conv_shape shape;
    bool add; /* into dw */
} rg_conv_weights_args;

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
