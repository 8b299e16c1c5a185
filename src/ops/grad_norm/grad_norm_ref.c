/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The definition of the sum of squares. */
#include "ops/optest.h"

#include <retrograde/grad_norm.h>

void rg_grad_norm_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_grad_norm_desc *d = desc;
    const int64_t count = rg_ref_count(x);
    long double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (long double)x->data[i] * (long double)x->data[i];
    y->data[0] = (double)sum * d->factor;
}
