/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution kernels and their args, for conv and conv_transpose. Valid C and valid CUDA.
 *
 * The image side is x and dx, the window side is y and dy. A transposed convolution runs backward
 * data as its forward pass, so all kernels take bias and neuron. */
#ifndef RG_OPS_CONV_H
#define RG_OPS_CONV_H

#include "ops/neuron/neuron.h"

enum {
    RG_CONV_FORWARD,
    RG_CONV_DATA,    /* backward data: dx */
    RG_CONV_WEIGHTS, /* backward weights: dw */
    /* a CPU's own, see cpu/conv_cpu.h */
    RG_CONV_TRANSPOSE_WEIGHTS,      /* weights as real, channels adjacent */
    RG_CONV_DEPTHWISE,              /* forward or backward data */
    RG_CONV_PAIR_DEPTHWISE_WEIGHTS, /* the same for bf16 by pairs of rows */
    RG_CONV_PAIR_DEPTHWISE,
    RG_CONV_DEPTHWISE_PARTIALS,
    RG_CONV_GROUPED, /* forward or backward data, of groups of few channels */
    RG_CONV_GROUPED_PARTIALS,
    RG_CONV_PERMUTE, /* forward or backward data, of groups of few channels with stride 1 */
    RG_CONV_PAIR_TRANSPOSE_WEIGHTS, /* the same for bf16 in pairs */
    RG_CONV_PAIR_PERMUTE,
    RG_CONV_PERMUTE_PARTIALS,
    RG_CONV_PAIR_PERMUTE_PARTIALS,
    RG_CONV_PACK, /* weights as panels, for RG_CONV_ROWS */
    RG_CONV_ROWS, /* forward or backward data, by the contraction engine */
    RG_CONV_PARTIALS,
    RG_CONV_PAIR_PACK, /* the same for bf16 in pairs, where a processor multiplies them */
    RG_CONV_PAIR_ROWS,
    RG_CONV_PAIR_OPERANDS, /* x and dy as RG_CONV_PAIR_PARTIALS reads them */
    RG_CONV_PAIR_PARTIALS,
    RG_CONV_PAIR_SLICES, /* both in one, where a slice's sums stay in the cache */
    RG_CONV_PAIR_TAPS,   /* and where images have few channels */
    RG_CONV_JOIN,        /* dw from the partial sums of any strategy */
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

/* Forward and backward data: to = neuron(z), z = sum + b. The args of all kernels for these begin
 * with this struct. Unused pointers hold any valid address. */
typedef struct rg_conv_args {
    const void *from, *w, *b;
    void *to, *z;
    void *scratch; /* of all threads of a CPU, or of a GPU */
    rg_conv_shape shape;
    int64_t b_step;
    int64_t z_step[4]; /* (image, row, column, channel) */
    bool z_dense;      /* channels are neighbours */
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

enum { RG_CONV_DEPTHWISE_TAPS = 128 }; /* at most, of a window */

static inline RG_HOST_DEVICE bool rg_conv_is_depthwise(const rg_conv_shape *s)
{
    return s->in == 1 && s->out == 1 && s->groups > 1 &&
           s->row.window * s->column.window <= RG_CONV_DEPTHWISE_TAPS;
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

/* ---- by cuDNN: see backend/cuda/cudnn_plan.h ---- */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_cuda_target rg_cuda_target; /* backend/cuda/target.h */

/* One convolution. Tensors are dense: x (n, h, w, channels), y (n, oh, ow, outputs), weights
 * (outputs, kh, kw, channels / groups). All members are alike, so that it has no padding bytes. */
typedef struct rg_cudnn_conv {
    int64_t direction; /* RG_CONV_FORWARD, RG_CONV_DATA or RG_CONV_WEIGHTS */
    int64_t dtype;     /* rg_dtype, f32, f64, f16 or bf16 */
    int64_t images, channels, outputs, groups;
    int64_t size[2], result[2]; /* rows and columns of x and of y */
    int64_t window[2], stride[2], dilation[2], before[2];
} rg_cudnn_conv;

/* Whether cuDNN does it, and with how many bytes of workspace. Call it when work is recorded. */
bool rg_cudnn_conv_plan(const rg_cuda_target *target, const rg_cudnn_conv *conv, size_t *workspace);

/* Puts it into the target's stream. All pointers are aligned to 16 bytes; `bytes` are those of
 * the workspace. False where cuDNN refuses or needs more of them, and nothing is in the stream. */
bool rg_cudnn_conv_run(const rg_cuda_target *target, const rg_cudnn_conv *conv, void *x, void *w,
                       void *y, void *workspace, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
