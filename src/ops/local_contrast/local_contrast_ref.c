/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalization by definition, in double; means in long double, since a kernel that
 * loses nothing to what pixels have in common is more exact than sums of double. */
#include "ops/window_norm/box_ref.h"

#include <retrograde/local_contrast.h>

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

static double value(const void *desc, const double *x, image m, int64_t i, int64_t j)
{
    const rg_local_contrast_desc *d = desc;
    const double rest = (double)(pixel(x, m, i, j) - d->p0 * mean(d, x, m, i, j));
    return d->pm + d->ps * rest * pow(divisor(d, x, m, i, j), -d->beta);
}

void rg_local_contrast_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    box_ref_forward(desc, ((const rg_local_contrast_desc *)desc)->offset, x, y, value);
}

/* What a dy of pixel (i, j) does to dx of one channel of an image. */
static void spread(const void *desc, double dy, const double *x, double *dx, image m, int64_t i,
                   int64_t j)
{
    const rg_local_contrast_desc *d = desc;
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
    box_ref_gradient(desc, ((const rg_local_contrast_desc *)desc)->offset, dy, x, dx, spread);
}
