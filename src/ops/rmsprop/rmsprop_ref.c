/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The definition of RMSProp. */
#include "ops/optimizer/update_ref.h"

#include <retrograde/rmsprop.h>

void rg_rmsprop_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_rmsprop_desc *d = desc;
    const bool has_m = d->momentum != 0;
    const int last = 2 + d->centered + has_m; /* the last moment among the inputs */
    const double rate = x[last + 1].data[0];
    const double scale = d->scaled ? x[last + 2].data[0] : 1;
    for (int64_t i = 0; i < ref_count(&x[0]); i++) {
        double p = x[0].data[i], v = x[2].data[i];
        double a = d->centered ? x[3].data[i] : 0, m = has_m ? x[last].data[i] : 0;
        const double g = ref_gradient(&d->gradient, x[1].data[i], scale, p);
        if (isfinite(scale)) {
            v = d->decay * v + (1 - d->decay) * g * g;
            a = d->decay * a + (1 - d->decay) * g;
            double square = d->centered ? v - a * a : v;
            if (d->centered && square < 0)
                square = 0;
            const double step = g / (sqrt(square) + d->epsilon);
            if (!has_m) {
                p -= rate * step;
            } else if (d->form == RG_UPDATE_MPS) {
                m = d->momentum * m + rate * step;
                p -= m;
            } else {
                m = d->momentum * m + step;
                p -= rate * m;
            }
        }
        y[0].data[i] = p;
        y[1].data[i] = v;
        if (d->centered)
            y[2].data[i] = a;
        if (has_m)
            y[last - 1].data[i] = m;
        if (d->copy != RG_PARAMETER_COPY_NONE)
            y[last].data[i] = p;
    }
}
