/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons by definition, in double. */
#include "ops/optest.h"

#include <retrograde/neuron.h>

#include <math.h>

static int64_t count_of(const rg_ref_tensor *t)
{
    int64_t count = 1;
    for (int32_t d = 0; d < t->rank; d++)
        count *= t->dims[d];
    return count;
}

void rg_neuron_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_neuron_desc *d = desc;
    for (int64_t i = 0; i < count_of(x); i++) {
        const double v = x->data[i];
        switch (d->kind) {
        case RG_NEURON_RELU:
            y->data[i] = v > 0 || isnan(v) ? v : d->a == 0 ? 0 : d->a * v;
            break;
        case RG_NEURON_SIGMOID:
            y->data[i] = 1 / (1 + exp(-v));
            break;
        case RG_NEURON_TANH:
            y->data[i] = d->a * tanh(d->b * v);
            break;
        }
    }
}

/* f'(x), from x or, where the descriptor says so, from y = f(x) */
static double slope(const rg_neuron_desc *d, double x, double y)
{
    switch (d->kind) {
    case RG_NEURON_RELU:
        return (d->from_y ? y : x) > 0 ? 1 : d->a;
    case RG_NEURON_SIGMOID: {
        const double s = 1 / (1 + exp(-x));
        return d->from_y ? y * (1 - y) : s * (1 - s);
    }
    case RG_NEURON_TANH: {
        const double t = tanh(d->b * x);
        return d->from_y ? d->b * (d->a - y * y / d->a) : d->a * d->b * (1 - t * t);
    }
    }
    return 0;
}

void rg_neuron_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                            const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    for (int64_t i = 0; i < count_of(dy); i++) {
        const double f = slope(desc, x->data[i], y->data[i]);
        dx->data[i] = f == 0 && ((const rg_neuron_desc *)desc)->kind == RG_NEURON_RELU
                          ? 0 /* where relu is flat nothing comes through, not even infinity */
                          : dy->data[i] * f;
    }
}
