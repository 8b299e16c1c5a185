/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat by definition, in double. */
#include "ops/optest.h"

#include <retrograde/concat.h>

/* y taken as (before, length, after), the axis in the middle. */
typedef struct frame {
    int64_t before, length, after, axis;
} frame;

static frame frame_of(const rg_concat_desc *desc, const rg_ref_tensor *y)
{
    frame f = { .before = 1, .after = 1 };
    f.axis = desc->axis < 0 ? desc->axis + y->rank : desc->axis;
    f.length = y->dims[f.axis];
    for (int32_t d = 0; d < y->rank; d++) {
        if (d < f.axis)
            f.before *= y->dims[d];
        else if (d > f.axis)
            f.after *= y->dims[d];
    }
    return f;
}

void rg_concat_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_concat_desc *d = desc;
    const frame f = frame_of(d, y);
    for (int64_t i = 0; i < f.before * f.length * f.after; i++)
        y->data[i] = 0;
    int64_t start = 0;
    for (int32_t s = 0; s < d->sources; s++) {
        const int64_t length = x[s].dims[f.axis];
        for (int64_t b = 0; b < f.before; b++)
            for (int64_t j = 0; j < length; j++)
                for (int64_t a = 0; a < f.after; a++)
                    y->data[(b * f.length + start + j) * f.after + a] =
                        x[s].data[(b * length + j) * f.after + a];
        start += (length + d->multiple - 1) / d->multiple * d->multiple;
    }
}

void rg_concat_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                            const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    const rg_concat_desc *d = desc;
    const frame f = frame_of(d, y);
    int64_t start = 0;
    for (int32_t s = 0; s < d->sources; s++) {
        const int64_t length = x[s].dims[f.axis];
        for (int64_t b = 0; b < f.before && dx[s].data != NULL; b++)
            for (int64_t j = 0; j < length; j++)
                for (int64_t a = 0; a < f.after; a++)
                    dx[s].data[(b * length + j) * f.after + a] =
                        dy->data[(b * f.length + start + j) * f.after + a];
        start += (length + d->multiple - 1) / d->multiple * d->multiple;
    }
}
