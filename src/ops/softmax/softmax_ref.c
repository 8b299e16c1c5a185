/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax by definition, in double. */
#include "ops/optest.h"

#include <retrograde/softmax.h>

#include <math.h>

/* Element j of group (o, i) is at (o * length + j) * inner + i. */
typedef struct groups {
    int64_t outer, length, inner;
} groups;

static groups groups_of(const rg_softmax_desc *desc, const rg_ref_tensor *x)
{
    const int64_t axis = desc->axis < 0 ? desc->axis + x->rank : desc->axis;
    groups g = { 1, 1, 1 };
    for (int64_t d = 0; d < x->rank; d++) {
        if (d < axis)
            g.outer *= x->dims[d];
        else if (d == axis || desc->flatten)
            g.length *= x->dims[d];
        else
            g.inner *= x->dims[d];
    }
    return g;
}

void rg_softmax_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const bool log_kind = ((const rg_softmax_desc *)desc)->kind == RG_SOFTMAX_LOG;
    const groups g = groups_of(desc, x);
    for (int64_t o = 0; o < g.outer; o++) {
        for (int64_t i = 0; i < g.inner; i++) {
            const double *from = x->data + o * g.length * g.inner + i;
            double *to = y->data + o * g.length * g.inner + i;
            double max = -INFINITY, sum = 0;
            for (int64_t j = 0; j < g.length; j++)
                max = from[j * g.inner] > max ? from[j * g.inner] : max;
            for (int64_t j = 0; j < g.length; j++)
                sum += exp(from[j * g.inner] - max);
            for (int64_t j = 0; j < g.length; j++) {
                const double z = from[j * g.inner] - max;
                to[j * g.inner] = log_kind ? z - log(sum) : exp(z) / sum;
            }
        }
    }
}

void rg_softmax_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                             const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)x;
    const bool log_kind = ((const rg_softmax_desc *)desc)->kind == RG_SOFTMAX_LOG;
    const groups g = groups_of(desc, y);
    for (int64_t o = 0; o < g.outer; o++) {
        for (int64_t i = 0; i < g.inner; i++) {
            const int64_t at = o * g.length * g.inner + i;
            double s = 0;
            for (int64_t j = 0; j < g.length; j++) {
                const int64_t k = at + j * g.inner;
                s += log_kind ? dy->data[k] : dy->data[k] * y->data[k];
            }
            for (int64_t j = 0; j < g.length; j++) {
                const int64_t k = at + j * g.inner;
                dx->data[k] =
                    log_kind ? dy->data[k] - exp(y->data[k]) * s : y->data[k] * (dy->data[k] - s);
            }
        }
    }
}
