/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The definition of Adam. */
#include "ops/optimizer/update_ref.h"

#include <retrograde/adam.h>

void rg_adam_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_adam_desc *d = desc;
    const int rest = 4 + d->amsgrad; /* the rate among the inputs */
    const double rate = x[rest].data[0], t = x[rest + 1].data[0];
    const double scale = d->scaled ? x[rest + 2].data[0] : 1;
    const double c1 = t > 0 ? 1 - pow(d->beta1, t) : 1, c2 = t > 0 ? 1 - pow(d->beta2, t) : 1;
    for (int64_t i = 0; i < ref_count(&x[0]); i++) {
        double p = x[0].data[i], m = x[2].data[i], v = x[3].data[i];
        double largest = d->amsgrad ? x[4].data[i] : 0;
        const double g = ref_gradient(&d->gradient, x[1].data[i], scale, p);
        if (isfinite(scale)) {
            p *= 1 - rate * d->decay;
            m = d->beta1 * m + (1 - d->beta1) * g;
            v = d->beta2 * v + (1 - d->beta2) * g * g;
            largest = largest > v ? largest : v;
            const double u = d->amsgrad ? largest : v;
            if (d->form == RG_UPDATE_MPS)
                p -= rate * sqrt(c2) / c1 * m / (sqrt(u) + d->epsilon);
            else
                p -= rate / c1 * m / (sqrt(u) / sqrt(c2) + d->epsilon);
        }
        y[0].data[i] = p;
        y[1].data[i] = m;
        y[2].data[i] = v;
        if (d->amsgrad)
            y[3].data[i] = largest;
        if (d->copy != RG_PARAMETER_COPY_NONE)
            y[3 + d->amsgrad].data[i] = p;
    }
}
