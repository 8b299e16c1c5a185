/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization by definition, in double. */
#include "ops/optest.h"

#include <retrograde/lrn.h>

#include <math.h>

/* Whether channel q is in the window of channel k. */
static bool in_window(const rg_lrn_desc *d, int64_t k, int64_t q)
{
    const int64_t larger = d->window / 2, smaller = (d->window - 1) / 2;
    const int64_t before = d->even_after ? smaller : larger;
    const int64_t after = d->even_after ? larger : smaller;
    return q >= k - before && q <= k + after;
}

static double mean_square(const rg_lrn_desc *d, const double *x, int64_t channels, int64_t k)
{
    double sum = 0;
    for (int64_t q = 0; q < channels; q++)
        sum += in_window(d, k, q) ? x[q] * x[q] : 0;
    return d->delta + d->alpha / d->window * sum;
}

static int64_t pixels_of(const rg_ref_tensor *x)
{
    int64_t pixels = 1;
    for (int32_t i = 0; i + 1 < x->rank; i++)
        pixels *= x->dims[i];
    return pixels;
}

void rg_lrn_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_lrn_desc *d = desc;
    const int64_t channels = x->dims[x->rank - 1], pixels = pixels_of(x);
    for (int64_t p = 0; p < pixels; p++) {
        const double *from = x->data + p * channels;
        for (int64_t k = 0; k < channels; k++)
            y->data[p * channels + k] = from[k] * pow(mean_square(d, from, channels, k), -d->beta);
    }
}

void rg_lrn_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                         const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)y;
    const rg_lrn_desc *d = desc;
    const int64_t channels = x->dims[x->rank - 1], pixels = pixels_of(x);
    for (int64_t p = 0; p < pixels; p++) {
        const double *from = x->data + p * channels, *g = dy->data + p * channels;
        double *to = dx->data + p * channels;
        for (int64_t k = 0; k < channels; k++)
            to[k] = g[k] * pow(mean_square(d, from, channels, k), -d->beta);
        for (int64_t r = 0; r < channels; r++) {
            const double share =
                g[r] * from[r] * pow(mean_square(d, from, channels, r), -d->beta - 1);
            for (int64_t k = 0; k < channels; k++)
                if (in_window(d, r, k))
                    to[k] -= 2 * d->alpha * d->beta / d->window * from[k] * share;
        }
    }
}
