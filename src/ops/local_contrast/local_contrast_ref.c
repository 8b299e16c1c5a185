/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalisation by definition, in double; means in long double, since a kernel that
 * loses nothing to what pixels have in common is more exact than sums of double. */
#include "ops/optest.h"

#include <retrograde/local_contrast.h>

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

static double count_of(const rg_local_contrast_desc *d)
{
    return (double)d->window[0] * d->window[1];
}

/* The mean over a window. */
static long double mean(const rg_local_contrast_desc *d, const double *x, image m, int64_t i,
                        int64_t j)
{
    long double sum = 0;
    for (int64_t r = 0; r < m.h; r++)
        for (int64_t q = 0; q < m.w; q++)
            if (in_window(i, r, d->window[0]) && in_window(j, q, d->window[1]))
                sum += x[(r * m.w + q) * m.c];
    return sum / count_of(d);
}

static double divisor(const rg_local_contrast_desc *d, const double *x, image m, int64_t i,
                      int64_t j)
{
    const long double middle = mean(d, x, m, i, j);
    long double sum = 0, outside = count_of(d);
    for (int64_t r = 0; r < m.h; r++)
        for (int64_t q = 0; q < m.w; q++)
            if (in_window(i, r, d->window[0]) && in_window(j, q, d->window[1])) {
                const long double rest = x[(r * m.w + q) * m.c] - middle;
                sum += rest * rest;
                outside -= 1;
            }
    return d->delta + d->alpha * (double)((sum + outside * middle * middle) / count_of(d));
}

/* Pixel (i, j) of one channel; 0 outside of the image. */
static double pixel(const double *x, image m, int64_t i, int64_t j)
{
    return i >= 0 && i < m.h && j >= 0 && j < m.w ? x[(i * m.w + j) * m.c] : 0;
}

void rg_local_contrast_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_local_contrast_desc *d = desc;
    const image m = image_of(x), o = image_of(y);
    for (int64_t n = 0; n < m.count; n++)
        for (int64_t s = 0; s < o.h; s++)
            for (int64_t t = 0; t < o.w; t++)
                for (int64_t c = 0; c < m.c; c++) {
                    const double *from = x->data + n * m.h * m.w * m.c + c;
                    const int64_t i = d->offset[0] + s, j = d->offset[1] + t;
                    const double rest =
                        (double)(pixel(from, m, i, j) - d->p0 * mean(d, from, m, i, j));
                    y->data[((n * o.h + s) * o.w + t) * o.c + c] =
                        d->pm + d->ps * rest * pow(divisor(d, from, m, i, j), -d->beta);
                }
}

/* What a dy of pixel (i, j) does to dx of one channel of an image. */
static void spread(const rg_local_contrast_desc *d, double dy, const double *x, double *dx, image m,
                   int64_t i, int64_t j)
{
    const long double middle = mean(d, x, m, i, j);
    const double t = divisor(d, x, m, i, j);
    const double rest = (double)(pixel(x, m, i, j) - d->p0 * middle);
    const double a = d->ps * dy * pow(t, -d->beta), count = count_of(d);
    if (i >= 0 && i < m.h && j >= 0 && j < m.w)
        dx[(i * m.w + j) * m.c] += a;
    for (int64_t r = 0; r < m.h; r++)
        for (int64_t q = 0; q < m.w; q++)
            if (in_window(i, r, d->window[0]) && in_window(j, q, d->window[1]))
                dx[(r * m.w + q) * m.c] -=
                    a * (d->p0 / count + 2 * d->alpha * d->beta / count *
                                             (double)(x[(r * m.w + q) * m.c] - middle) * rest / t);
}

void rg_local_contrast_ref_gradient(const void *desc, const rg_ref_tensor dy[],
                                    const rg_ref_tensor x[], const rg_ref_tensor y[],
                                    rg_ref_tensor dx[])
{
    (void)y;
    const rg_local_contrast_desc *d = desc;
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
