/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Spatial normalisation by definition, in double. */
#include "ops/optest.h"

#include <retrograde/spatial_norm.h>

#include <math.h>

typedef struct image {
    int64_t count, h, w, c;
} image;

static image image_of(const rg_ref_tensor *x)
{
    const int32_t row = x->rank - 3;
    return (image){ row > 0 ? x->dims[0] : 1, x->dims[row], x->dims[row + 1], x->dims[row + 2] };
}

/* Whether pixel b lies in the window of pixel a, along one axis. */
static bool in_window(int64_t a, int64_t b, int64_t window)
{
    return b >= a - window / 2 && b <= a + (window - 1) / 2;
}

static double divisor(const rg_spatial_norm_desc *d, const double *x, image m, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t r = 0; r < m.h; r++)
        for (int64_t q = 0; q < m.w; q++)
            if (in_window(i, r, d->window[0]) && in_window(j, q, d->window[1]))
                sum += x[(r * m.w + q) * m.c] * x[(r * m.w + q) * m.c];
    return d->delta + d->alpha / ((double)d->window[0] * d->window[1]) * sum;
}

/* Pixel (i, j) of one channel; 0 outside of the image. */
static double pixel(const double *x, image m, int64_t i, int64_t j)
{
    return i >= 0 && i < m.h && j >= 0 && j < m.w ? x[(i * m.w + j) * m.c] : 0;
}

void rg_spatial_norm_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_spatial_norm_desc *d = desc;
    const image m = image_of(x), o = image_of(y);
    for (int64_t n = 0; n < m.count; n++)
        for (int64_t s = 0; s < o.h; s++)
            for (int64_t t = 0; t < o.w; t++)
                for (int64_t c = 0; c < m.c; c++) {
                    const double *plane = x->data + n * m.h * m.w * m.c + c;
                    const int64_t i = d->offset[0] + s, j = d->offset[1] + t;
                    y->data[((n * o.h + s) * o.w + t) * o.c + c] =
                        pixel(plane, m, i, j) * pow(divisor(d, plane, m, i, j), -d->beta);
                }
}

/* What a dy of pixel (i, j) does to dx of one channel of an image. */
static void spread(const rg_spatial_norm_desc *d, double dy, const double *x, double *dx, image m,
                   int64_t i, int64_t j)
{
    const double t = divisor(d, x, m, i, j), own = pixel(x, m, i, j);
    const double factor = 2 * d->alpha * d->beta / ((double)d->window[0] * d->window[1]);
    if (i >= 0 && i < m.h && j >= 0 && j < m.w)
        dx[(i * m.w + j) * m.c] += dy * pow(t, -d->beta);
    for (int64_t r = 0; r < m.h; r++)
        for (int64_t q = 0; q < m.w; q++)
            if (in_window(i, r, d->window[0]) && in_window(j, q, d->window[1]))
                dx[(r * m.w + q) * m.c] -=
                    factor * x[(r * m.w + q) * m.c] * dy * own * pow(t, -d->beta - 1);
}

void rg_spatial_norm_ref_gradient(const void *desc, const rg_ref_tensor dy[],
                                  const rg_ref_tensor x[], const rg_ref_tensor y[],
                                  rg_ref_tensor dx[])
{
    (void)y;
    const rg_spatial_norm_desc *d = desc;
    const image m = image_of(x), o = image_of(dy);
    for (int64_t n = 0; n < m.count; n++)
        for (int64_t c = 0; c < m.c; c++) {
            const int64_t plane = n * m.h * m.w * m.c + c;
            for (int64_t s = 0; s < o.h; s++)
                for (int64_t t = 0; t < o.w; t++)
                    spread(d, dy->data[((n * o.h + s) * o.w + t) * o.c + c], x->data + plane,
                           dx->data + plane, m, d->offset[0] + s, d->offset[1] + t);
        }
}
