/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice by definition, in double. */
#include "ops/optest.h"

#include <retrograde/slice.h>

/* The element of x that element i of y is. */
static int64_t source_of(const rg_slice_desc *desc, const rg_ref_tensor *x, const rg_ref_tensor *y,
                         int64_t i)
{
    int64_t source = 0, times = 1;
    for (int32_t d = x->rank - 1; d >= 0; d--) {
        int64_t start = d < desc->start_count ? desc->start[d] : 0;
        const int64_t step = d < desc->step_count ? desc->step[d] : 1;
        if (start < 0)
            start += x->dims[d];
        source += (start + i % y->dims[d] * step) * times;
        i /= y->dims[d];
        times *= x->dims[d];
    }
    return source;
}

void rg_slice_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    for (int64_t i = 0; i < rg_ref_count(y); i++)
        y->data[i] = x->data[source_of(desc, x, y, i)];
}

void rg_slice_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                           const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    for (int64_t i = 0; i < rg_ref_count(x); i++)
        dx->data[i] = 0;
    for (int64_t i = 0; i < rg_ref_count(dy); i++)
        dx->data[source_of(desc, x, y, i)] = dy->data[i];
}
