/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Windows of rows and columns around every pixel, channel by channel, for normalizations by what
 * is in them. Part of kernel args, so valid C and valid CUDA.
 *
 * A sum over a window is a sum of sums: over the columns of each row, then over rows, each as
 * ops/window_norm/span.h says.
 *
 * A variance is joined from the variances of parts, whose means are counted from a pixel of the
 * window, see moments_cpu.h and moments.cuh. There pixels outside of the image are zeros like
 * others; a window that reaches beyond them, too, has further zeros. */
#ifndef RG_OPS_WINDOW_NORM_BOX_H
#define RG_OPS_WINDOW_NORM_BOX_H

#include "core/integer.h"
#include "core/walk.h" /* RG_HOST_DEVICE */
#include "ops/window_norm/power.h"
#include "ops/window_norm/span.h"

#include <retrograde/tensor.h>

enum { RG_BOX_TENSORS = 3 };
enum { MOMENT_KINDS = 3 }; /* arrays of an element of moments_cpu.h and moments.cuh */

/* A strip is some channels of a band of rows of one image. A unit does some strips, one after the
 * other, with scratch of its own. Bands are less than an image only where no sum goes by blocks. */
typedef struct rg_box_shape {
    rg_span row, column;
    int64_t images, channels;
    int64_t step[RG_BOX_TENSORS][4]; /* image, row, column, channel */
    int64_t block, blocks;           /* channels of a strip; adjacent strips */
    int64_t band, bands;             /* rows of a strip; strips one below the other */
    int64_t units, scratch_bytes;    /* bytes of scratch for each unit */
    bool dense;                      /* channels are neighbours in all tensors */
    bool add, stream;                /* into the result; by streaming stores */
} rg_box_shape;

enum { RG_BOX_FORWARD, RG_BOX_GRADIENT, RG_BOX_KERNELS };

/* What the formulas read; spatial_norm reads `norm` alone. */
typedef struct rg_box_numbers {
    rg_power_numbers norm; /* local_contrast: scale is alpha */
    double mean;           /* 1 / N */
    double inside;         /* fraction of the window's pixels that the shape has; others are 0 */
    double outside;        /* 1 - inside */
    double p0, pm, ps;
} rg_box_numbers;

typedef struct rg_box_args {
    const void *dy, *x; /* dy is x in a forward pass */
    void *out, *scratch;
    rg_box_shape shape; /* tensors dy, x, out */
    rg_box_numbers numbers;
} rg_box_args;

/* How the scratch of a unit is laid out on the CPU, in reals. Lines begin at multiples of 16 and
 * are a vector longer than needed. */
typedef struct rg_box_lines {
    int64_t line;   /* a row of a strip */
    int64_t padded; /* a row with the zeros at its ends */
    int64_t pixel;  /* a pixel of a strip */
    int64_t ring;   /* rows of a window, and two more */
    int64_t across; /* pixels of a window, and three more; 0 where columns are added directly */
    int64_t kept;   /* gradient: rows from a position to the end of its window */
} rg_box_lines;

static inline rg_box_lines rg_box_lines_of(const rg_box_shape *s)
{
    const int64_t unit = 16, values = s->column.size * s->block;
    rg_box_lines l;
    l.line = rg_round_up(values, unit) + unit;
    l.padded = l.line + rg_round_up((s->column.width - 1) * s->block, unit) + unit;
    l.pixel = rg_round_up(s->block, unit);
    l.ring = (s->row.width + 2) * l.line;
    l.across = s->column.width > RG_SPAN_DIRECT ? (s->column.width + 3) * l.pixel : 0;
    l.kept = (s->row.before + 1) * l.line;
    return l;
}

/* All of it, where `kinds` kinds of lines are summed, which come from one. */
static inline int64_t rg_box_reals(const rg_box_lines *l, int kinds, bool gradient)
{
    const int64_t forward = l->padded + kinds * (l->ring + l->line + l->across);
    return gradient ? forward + kinds * (l->padded + l->ring) + l->kept : forward;
}

/* On a GPU, where a sum goes by blocks: one channel of an image with zeros around its rows, prefix
 * sums, sums of rows with zeros around columns, and what goes to the same element of dx; reals. */
typedef struct rg_box_plane {
    int64_t across, down; /* positions of a row, and of a column */
    int64_t values, prefix, sums, kept;
} rg_box_plane;

static inline RG_HOST_DEVICE rg_box_plane rg_box_plane_of(const rg_box_shape *s, int kinds)
{
    rg_box_plane p;
    p.across = s->column.size + s->column.width - 1;
    p.down = s->row.size + s->row.width - 1;
    p.values = kinds * s->row.size * p.across;
    p.sums = kinds * p.down * s->column.size;
    p.prefix = p.values > p.sums ? p.values : p.sums;
    p.kept = s->row.size * s->column.size;
    return p;
}

static inline bool rg_box_is_wide(const rg_box_shape *s)
{
    return s->row.width > RG_SPAN_DIRECT || s->column.width > RG_SPAN_DIRECT;
}

#endif
