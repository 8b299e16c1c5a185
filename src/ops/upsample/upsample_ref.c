/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample by definition, in double. */
#include "ops/optest.h"

#include <retrograde/upsample.h>

#include <math.h>

/* Where output `o` of axis `a` looks. */
static double source_of(const rg_upsample_desc *d, int a, int64_t o, int64_t in, int64_t out)
{
    const bool by_size = d->output[a] > 0;
    double u = 0;
    switch (d->grid) {
    case RG_UPSAMPLE_ASYMMETRIC:
        u = by_size ? (double)o * (double)in / (double)out : (double)o / d->scale[a];
        break;
    case RG_UPSAMPLE_HALF_PIXEL:
        u = ((double)o + 0.5);
        u = (by_size ? u * (double)in / (double)out : u / d->scale[a]) - 0.5;
        break;
    case RG_UPSAMPLE_ALIGN_CORNERS:
        u = out > 1 ? (double)o * (double)(in - 1) / (double)(out - 1) : 0;
        break;
    }
    return fmin(fmax(u, 0), (double)(in - 1));
}

/* How much output `o` takes of pixel `i`. */
static double weight(const rg_upsample_desc *d, int a, int64_t o, int64_t i, int64_t in,
                     int64_t out)
{
    const double u = source_of(d, a, o, in, out);
    if (d->kind == RG_UPSAMPLE_BILINEAR)
        return fmax(0, 1 - fabs(u - (double)i));
    const double nearest = d->round == RG_UPSAMPLE_FLOOR          ? floor(u)
                           : d->round == RG_UPSAMPLE_CEIL         ? ceil(u)
                           : d->round == RG_UPSAMPLE_PREFER_FLOOR ? ceil(u - 0.5)
                                                                  : floor(u + 0.5);
    return nearest == (double)i ? 1 : 0;
}

/* to += weights * from, or the transpose of it, for every pair of pixels that touch. */
static void apply(const rg_upsample_desc *d, const rg_ref_tensor *x, const rg_ref_tensor *y,
                  bool transpose)
{
    const int64_t *in = x->dims + x->rank - 3, *out = y->dims + y->rank - 3;
    const int64_t images = x->rank > 3 ? x->dims[0] : 1, channels = in[2];
    double *to = transpose ? x->data : y->data;
    for (int64_t i = 0; i < images * channels * (transpose ? in[0] * in[1] : out[0] * out[1]); i++)
        to[i] = 0;
    for (int64_t oh = 0; oh < out[0]; oh++)
        for (int64_t h = 0; h < in[0]; h++)
            for (int64_t ow = 0; ow < out[1]; ow++)
                for (int64_t w = 0; w < in[1]; w++) {
                    const double p = weight(d, 0, oh, h, in[0], out[0]);
                    const double q = p > 0 ? weight(d, 1, ow, w, in[1], out[1]) : 0;
                    if (!(p * q > 0))
                        continue;
                    for (int64_t n = 0; n < images; n++)
                        for (int64_t c = 0; c < channels; c++) {
                            double *at_x = x->data + ((n * in[0] + h) * in[1] + w) * channels + c;
                            double *at_y =
                                y->data + ((n * out[0] + oh) * out[1] + ow) * channels + c;
                            if (transpose)
                                *at_x += p * q * *at_y;
                            else
                                *at_y += p * q * *at_x;
                        }
                }
}

void rg_upsample_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    apply(desc, x, y, false);
}

void rg_upsample_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                              const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)x;
    (void)y;
    if (dx->data != NULL)
        apply(desc, dx, dy, true);
}
