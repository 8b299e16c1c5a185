/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Kernels for tensors as ONNX Runtime has them, (n, c, d…) and dense, so that nothing is copied:
 * what they read. A unit is done by one thread from its first to its last element, so the bits of
 * results do not depend on the number of threads. */
#ifndef RG_ORT_NATIVE_H
#define RG_ORT_NATIVE_H

#include "backend/backend.h"

enum {
    RG_ORT_DROPOUT,
    RG_ORT_BATCH_NORM,
    RG_ORT_CHANNEL_SUMS,
    RG_ORT_LAYER_NORM,
    RG_ORT_LAYER_NORM_COLUMNS,
    RG_ORT_MAX_POOL,
    RG_ORT_AVERAGE_POOL,
    RG_ORT_LOSS,
    RG_ORT_SLICE,
    RG_ORT_GATHER,
    RG_ORT_SGD,
    RG_ORT_ADAMW,
    RG_ORT_ADD,
    RG_ORT_SMALL_CONV,
    RG_ORT_VOLUME_COLUMNS,
    RG_ORT_VOLUME_SUMS,
    RG_ORT_KERNELS
};

/* dx = mask ? scale dy : 0. A unit is RG_ORT_BLOCK elements. */
enum { RG_ORT_BLOCK = 4096 };
typedef struct rg_ort_dropout_args {
    const void *dy;
    const uint8_t *mask;
    void *dx;
    int64_t count;
    double scale;
} rg_ort_dropout_args;

/* x, dy, dx: (n, c, pixels). A unit is a channel. Results may be NULL. Of these the sums of dy over
 * all but its channels read dy alone, and write dbias. */
typedef struct rg_ort_batch_norm_args {
    const void *dy, *x, *scale, *mean, *inverse; /* inverse: 1 / deviation */
    void *dx, *dscale, *dbias;
    int64_t images, channels, pixels;
    bool wide_scale, wide; /* scale, dscale and dbias, and the statistics, are not of the dtype of x
                              but of that of its kernel: f32 beside 16 bits */
} rg_ort_batch_norm_args;

/* x, dy, dx: (rows, columns). A unit is a row, or RG_ORT_COLUMNS columns of the sums over rows. */
enum { RG_ORT_COLUMNS = 64 };
typedef struct rg_ort_layer_norm_args {
    const void *dy, *x, *scale, *mean, *inverse;
    void *dx, *dscale, *dbias;
    int64_t rows, columns;
    bool wide; /* statistics are of the dtype of the kernel: f32 beside 16 bits */
} rg_ort_layer_norm_args;

/* A unit is a plane: an image, or a volume, of one channel. Indices count over the whole tensor dx.
 * Of images, and of what has one dimension alone, the first of three have size 1. */
typedef struct rg_ort_pool_args {
    const void *dy;
    const int64_t *indices;
    void *dx;
    uint32_t *fault; /* an index outside of its plane */
    int64_t in[3], out[3];
    int64_t window[3], stride[3], before[3];
    bool count_include_pad;
} rg_ort_pool_args;
enum { RG_ORT_POOL_ROW = 2048 }; /* pixels of a row of dx, at most, of averages */

/* d = dy w (e^log_prob - [class = label]): (n, classes, positions). A unit is RG_ORT_POSITIONS
 * positions of an image. */
enum { RG_ORT_POSITIONS = 256 };
typedef struct rg_ort_loss_args {
    const void *dy, *log_prob, *weight; /* weight: of classes, or NULL */
    const int64_t *label;
    void *d;
    uint32_t *fault; /* a label that is no class */
    int64_t classes, positions, ignored, blocks;
    double scale;           /* on top of dy */
    bool has_ignored, each; /* each: a number of dy for each position */
} rg_ort_loss_args;

/* dx is 0 but for rows and columns start + step i, which are those of dy, or, in dimensions of
 * `down`, those of dy from the last on. A unit is a row: all dimensions but the last. */
typedef struct rg_ort_slice_args {
    const void *dy;
    void *dx;
    int32_t rank;
    uint32_t down;
    int64_t dims[RG_MAX_RANK], start[RG_MAX_RANK], step[RG_MAX_RANK], length[RG_MAX_RANK];
} rg_ort_slice_args;

/* dx (outer, rows, inner) is 0 but for sums of the rows of dy (outer, indices, inner). A unit is
 * RG_ORT_COLUMNS elements of the inner dimension of all rows. */
typedef struct rg_ort_gather_args {
    const void *dy, *indices;
    void *dx;
    uint32_t *fault; /* an index outside of the rows */
    int64_t rows, inner, count, blocks;
} rg_ort_gather_args;

/* dY (images, outputs, out), X (images, channels, in), W (outputs, channels / groups, window). One
 * unit. Results may be NULL. */
typedef struct rg_ort_conv_args {
    const void *dy, *x, *w;
    void *dx, *dw, *db;
    int64_t images, channels, outputs, groups;
    int64_t in[2], out[2], window[2], stride[2], dilation[2], before[2];
} rg_ort_conv_args;

/* A volume (channels, in) and its windows as the columns of a matrix (channels, window, out), whose
 * rows are `pitch` elements apart, zeros where they are outside: from the first to the second, or
 * the sums of the second into the first. A unit is a channel. */
typedef struct rg_ort_volume_args {
    const void *from;
    void *to;
    int64_t in[3], out[3], window[3], stride[3], dilation[3], before[3];
    int64_t pitch;
} rg_ort_volume_args;

/* Optimizers, and sums in place, over elements. A unit is RG_ORT_BLOCK elements. */
typedef struct rg_ort_update_args {
    const void *gradient;
    const void *weight, *first, *second;       /* moments, of AdamW */
    void *new_weight, *new_first, *new_second; /* of AdamW: NULL for what is not wanted */
    int64_t count;
    double rate, alpha, beta, epsilon, decay;
    double bias_1, bias_2; /* 1 - alpha^step, 1 - beta^step; 1 where they are not corrected */
    bool torch;            /* how AdamW applies its bias correction and decay */
} rg_ort_update_args;

extern const rg_kernel_table rg_kernels_ort;

#endif
