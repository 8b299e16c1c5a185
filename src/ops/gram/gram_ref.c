/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gram matrices by definition, in double. */
#include "ops/optest.h"

#include <retrograde/gram.h>

typedef struct sizes {
    int64_t images, pixels, channels;
} sizes;

static sizes sizes_of(const rg_ref_tensor *x)
{
    sizes s = { 1, x->dims[x->rank - 3] * x->dims[x->rank - 2], x->dims[x->rank - 1] };
    for (int32_t d = 0; d < x->rank - 3; d++)
        s.images *= x->dims[d];
    return s;
}

void rg_gram_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const double alpha = ((const rg_gram_desc *)desc)->alpha;
    const sizes s = sizes_of(x);
    double *to = y->data;
    for (int64_t n = 0; n < s.images; n++) {
        const double *image = x->data + n * s.pixels * s.channels;
        for (int64_t f = 0; f < s.channels; f++) {
            for (int64_t c = 0; c < s.channels; c++) {
                long double sum = 0; /* in double, half a million equal numbers miss 1e-12 */
                for (int64_t p = 0; p < s.pixels; p++)
                    sum += image[p * s.channels + f] * image[p * s.channels + c];
                *to++ = alpha * (double)sum;
            }
        }
    }
}

void rg_gram_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                          const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)y;
    const double alpha = ((const rg_gram_desc *)desc)->alpha;
    const sizes s = sizes_of(x);
    for (int64_t n = 0; n < s.images; n++) {
        const double *g = dy->data + n * s.channels * s.channels;
        for (int64_t p = 0; p < s.pixels; p++) {
            const int64_t pixel = (n * s.pixels + p) * s.channels;
            for (int64_t c = 0; c < s.channels; c++) {
                double sum = 0;
                for (int64_t f = 0; f < s.channels; f++)
                    sum += (g[f * s.channels + c] + g[c * s.channels + f]) * x->data[pixel + f];
                dx->data[pixel + c] = alpha * sum;
            }
        }
    }
}
