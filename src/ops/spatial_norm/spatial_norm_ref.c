/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Spatial normalization by definition, in double. */
#include "ops/window_norm/box_ref.h"

#include <retrograde/spatial_norm.h>

static double divisor(const rg_spatial_norm_desc *d, const double *x, image m, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t r = 0; r < m.h; r++)
        for (int64_t q = 0; q < m.w; q++)
            if (in_window(i, r, d->window[0]) && in_window(j, q, d->window[1]))
                sum += x[(r * m.w + q) * m.c] * x[(r * m.w + q) * m.c];
    return d->delta + d->alpha / ((double)d->window[0] * d->window[1]) * sum;
}

static double value(const void *desc, const double *x, image m, int64_t i, int64_t j)
{
    const rg_spatial_norm_desc *d = desc;
    return pixel(x, m, i, j) * pow(divisor(d, x, m, i, j), -d->beta);
}

void rg_spatial_norm_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    box_ref_forward(desc, ((const rg_spatial_norm_desc *)desc)->offset, x, y, value);
}

/* What a dy of pixel (i, j) does to dx of one channel of an image. */
static void spread(const void *desc, double dy, const double *x, double *dx, image m, int64_t i,
                   int64_t j)
{
    const rg_spatial_norm_desc *d = desc;
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
    box_ref_gradient(desc, ((const rg_spatial_norm_desc *)desc)->offset, dy, x, dx, spread);
}
