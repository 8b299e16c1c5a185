/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The definition of the factor of a step. */
#include "ops/optest.h"

#include <retrograde/grad_scale.h>

#include <float.h>
#include <math.h>

void rg_grad_scale_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_grad_scale_desc *d = desc;
    const bool dynamic = d->scaling == RG_LOSS_SCALING_DYNAMIC;
    const double scale = d->scaling != RG_LOSS_SCALING_NONE ? x[1].data[0] : 1;
    const int64_t count = rg_ref_count(x);
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += x->data[i];
    const bool overflowed = !isfinite(total);
    const double norm = sqrt(total) / scale;
    y[0].data[0] = overflowed ? (double)NAN : fmin(1, d->max_norm / (norm + d->epsilon)) / scale;
    y[1].data[0] = norm;
    if (dynamic) {
        double next = scale, good = x[2].data[0] + 1;
        if (overflowed) {
            next *= d->backoff;
            good = 0;
        } else if (good >= (double)d->interval) {
            next *= d->growth;
            good = 0;
        }
        y[2].data[0] = 1 / next > (double)FLT_MAX || next > (double)FLT_MAX ? scale : next;
        y[3].data[0] = good;
    }
    if (d->stepped) {
        const int at = 1 + (d->scaling != RG_LOSS_SCALING_NONE) + dynamic;
        y[2 + 2 * dynamic].data[0] = x[at].data[0] + (overflowed ? 0 : 1);
    }
}
