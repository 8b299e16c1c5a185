/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the definitions of spatial_norm and local_contrast have in common: images, windows, and the
 * loops over results. */
#ifndef RG_OPS_WINDOW_NORM_BOX_REF_H
#define RG_OPS_WINDOW_NORM_BOX_REF_H

#include "ops/optest.h"

#include <math.h>

typedef struct image {
    int64_t count, h, w, c;
} image;

static inline image image_of(const rg_ref_tensor *x)
{
    const int32_t row = x->rank - 3;
    return (image){ row > 0 ? x->dims[0] : 1, x->dims[row], x->dims[row + 1], x->dims[row + 2] };
}

/* Whether pixel b lies in the window of pixel a, along one axis. */
static inline bool in_window(int64_t a, int64_t b, int64_t window)
{
    return b >= a - window / 2 && b <= a + (window - 1) / 2;
}

/* Pixel (i, j) of one channel; 0 outside of the image. */
static inline double pixel(const double *x, image m, int64_t i, int64_t j)
{
    return i >= 0 && i < m.h && j >= 0 && j < m.w ? x[(i * m.w + j) * m.c] : 0;
}

/* y of pixel (i, j), from one channel x of an image; and what a dy of it does to dx of that
 * channel. */
typedef double box_value(const void *desc, const double *x, image m, int64_t i, int64_t j);
typedef void box_spread(const void *desc, double dy, const double *x, double *dx, image m,
                        int64_t i, int64_t j);

static inline void box_ref_forward(const void *desc, const int32_t offset[2],
                                   const rg_ref_tensor *x, rg_ref_tensor *y, box_value *value)
{
    const image m = image_of(x), o = image_of(y);
    for (int64_t n = 0; n < m.count; n++)
        for (int64_t s = 0; s < o.h; s++)
            for (int64_t t = 0; t < o.w; t++)
                for (int64_t c = 0; c < m.c; c++)
                    y->data[((n * o.h + s) * o.w + t) * o.c + c] = value(
                        desc, x->data + n * m.h * m.w * m.c + c, m, offset[0] + s, offset[1] + t);
}

static inline void box_ref_gradient(const void *desc, const int32_t offset[2],
                                    const rg_ref_tensor *dy, const rg_ref_tensor *x,
                                    rg_ref_tensor *dx, box_spread *spread)
{
    const image m = image_of(x), o = image_of(dy);
    for (int64_t n = 0; n < m.count; n++)
        for (int64_t c = 0; c < m.c; c++) {
            const int64_t plane = n * m.h * m.w * m.c + c;
            for (int64_t s = 0; s < o.h; s++)
                for (int64_t t = 0; t < o.w; t++)
                    spread(desc, dy->data[((n * o.h + s) * o.w + t) * o.c + c], x->data + plane,
                           dx->data + plane, m, offset[0] + s, offset[1] + t);
        }
}

#endif
