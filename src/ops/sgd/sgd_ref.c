/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The definition of gradient descent. */
#include "ops/optimizer/update_ref.h"

#include <retrograde/sgd.h>

void rg_sgd_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_sgd_desc *d = desc;
    const int moments = d->momentum != 0;
    const double rate = x[2 + moments].data[0], mu = d->momentum;
    const double scale = d->scaled ? x[3 + moments].data[0] : 1;
    for (int64_t i = 0; i < ref_count(&x[0]); i++) {
        double p = x[0].data[i], m = moments ? x[2].data[i] : 0;
        const double g = ref_gradient(&d->gradient, x[1].data[i], scale, p);
        if (!isfinite(scale)) {
            /* no step */
        } else if (!moments) {
            p -= rate * g;
        } else if (d->nesterov) {
            m = mu * m + g;
            p -= rate * (g + mu * m);
        } else if (d->form == RG_UPDATE_MPS) {
            m = mu * m + rate * g;
            p -= m;
        } else {
            m = mu * m + g;
            p -= rate * m;
        }
        y[0].data[i] = p;
        if (moments)
            y[1].data[i] = m;
        if (d->copy != RG_PARAMETER_COPY_NONE)
            y[1 + moments].data[i] = p;
    }
}
