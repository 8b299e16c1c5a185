/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of pooling on the CPU: a pixel and the windows around it. */
#ifndef RG_OPS_POOL_PIXELS_CPU_H
#define RG_OPS_POOL_PIXELS_CPU_H

#include "ops/pool/pool_channels_cpu.h"

/* A pixel of dx and the windows around it. */
typedef struct pixel {
    const rg_pool_gradient_args *g;
    int64_t r, q;               /* row, column */
    int64_t i0, i1, j0, j1;     /* windows i0 to i1, j0 to j1 */
    int64_t dy, winners, y, dx; /* the image in dy, winners and y; the pixel in dx */
    int64_t x;                  /* l2: the pixel in x */
    real share;                 /* average: 1 / N of a window that is counted as a whole */
    bool stream;
} pixel;

/* average: 1 / N */
RG_INLINE real share_of(const rg_pool_shape *k, real whole, int64_t counted)
{
    return counted == k->row.window * k->column.window ? whole : 1 / (real)counted;
}

/* As rg_pool_windows, from those of the pixel before and without a division. */
RG_INLINE void next_windows(const rg_pool_axis *a, int64_t q, int64_t *first, int64_t *last)
{
    const int64_t end = q + a->before, begin = end - (a->window - 1) * a->dilation;
    while (*last + 1 < a->count && (*last + 1) * a->stride <= end)
        ++*last;
    while (*first * a->stride < begin)
        ++*first;
}

/* Pixel 0 of a row of dx, and the windows around the row. */
RG_OUTLINE pixel row_of(const rg_pool_gradient_args *g, int64_t unit, rg_dtype T)
{
    const rg_pool_shape *k = &g->shape;
    const int64_t image = unit / k->row.size, r = unit % k->row.size;
    const int64_t row = image * k->x[0] + r * k->x[1];
    pixel u = { .g = g,
                .r = r,
                .dy = image * k->y[0],
                .winners = image * k->winners[0],
                .y = image * k->w[0],
                .dx = row,
                .x = image * k->z[0] + r * k->z[1],
                .share = 1 / (real)(k->row.window * k->column.window),
                .stream = may_stream(k, g->dx, row, k->x[2], T) };
    rg_pool_windows(&k->row, r, &u.i0, &u.i1);
    rg_pool_windows(&k->column, 0, &u.j0, &u.j1);
    return u;
}

#endif
