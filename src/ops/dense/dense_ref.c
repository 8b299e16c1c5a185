/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fully connected layers by definition, in double. */
#include "ops/optest.h"

#include <retrograde/dense.h>

/* Sizes, and the steps of w. */
typedef struct sizes {
    int64_t rows, in, out, step_out, step_in;
} sizes;

static sizes sizes_of(const rg_dense_desc *d, const rg_ref_tensor x[])
{
    sizes s = { 1, 1, 1, 1, 1 };
    const bool first = d->layout == RG_DENSE_OUT_IN;
    const int32_t inputs = x[1].rank - 1;
    s.out = x[1].dims[first ? 0 : inputs];
    for (int32_t i = 0; i < inputs; i++)
        s.in *= x[1].dims[first ? i + 1 : i];
    for (int32_t i = 0; i < x[0].rank - inputs; i++)
        s.rows *= x[0].dims[i];
    s.step_out = first ? s.in : 1;
    s.step_in = first ? 1 : s.out;
    return s;
}

static double z_of(const rg_dense_desc *d, const rg_ref_tensor x[], sizes s, int64_t i, int64_t o)
{
    long double sum = 0; /* in double, half a million equal numbers miss 1e-12 */
    for (int64_t k = 0; k < s.in; k++)
        sum += x[0].data[i * s.in + k] * x[1].data[o * s.step_out + k * s.step_in];
    return d->alpha * (double)sum + (d->bias ? x[2].data[o] : 0);
}

/* The neuron by its own definition. */
static rg_ref_tensor one(double *value)
{
    return (rg_ref_tensor){ .rank = 1, .dims = { 1 }, .data = value };
}

static double neuron(const rg_dense_desc *d, double z)
{
    double value = 0;
    const rg_ref_tensor x = one(&z);
    rg_ref_tensor y = one(&value);
    rg_neuron_ref_forward(&d->neuron, &x, &y);
    return value;
}

/* Where the slope follows from y, it is that of y as it is stored. */
static double slope(const rg_dense_desc *d, double dy, double z, double y)
{
    double value = 0;
    const rg_ref_tensor x = one(&z), stored = one(&y), g = one(&dy);
    rg_ref_tensor dx = one(&value);
    rg_neuron_desc by = d->neuron;
    by.from_y = rg_op_dense.reads(d) & RG_READS_Y;
    rg_neuron_ref_gradient(&by, &g, &x, &stored, &dx);
    return value;
}

void rg_dense_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const sizes s = sizes_of(desc, x);
    for (int64_t i = 0; i < s.rows; i++) {
        for (int64_t o = 0; o < s.out; o++)
            y->data[i * s.out + o] = neuron(desc, z_of(desc, x, s, i, o));
    }
}

void rg_dense_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                           const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    const rg_dense_desc *d = desc;
    const sizes s = sizes_of(d, x);
    const int64_t sums[] = { s.rows * s.in, s.in * s.out, s.out };
    for (int t = 0; t < (d->bias ? 3 : 2); t++) {
        for (int64_t i = 0; dx[t].data != NULL && i < sums[t]; i++)
            dx[t].data[i] = 0;
    }
    for (int64_t i = 0; i < s.rows; i++) {
        for (int64_t o = 0; o < s.out; o++) {
            const double g =
                slope(d, dy->data[i * s.out + o], z_of(d, x, s, i, o), y->data[i * s.out + o]);
            for (int64_t k = 0; k < s.in; k++) {
                const int64_t w = o * s.step_out + k * s.step_in;
                if (dx[0].data != NULL)
                    dx[0].data[i * s.in + k] += d->alpha * (g * x[1].data[w]);
                if (dx[1].data != NULL)
                    dx[1].data[w] += d->alpha * (g * x[0].data[i * s.in + k]);
            }
            if (d->bias && dx[2].data != NULL)
                dx[2].data[o] += g;
        }
    }
}
