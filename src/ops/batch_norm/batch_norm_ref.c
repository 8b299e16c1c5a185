/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization: the definition. */
#include "ops/optest.h"

#include <math.h>
#include <retrograde/batch_norm.h>

/* The index of each tensor among the inputs; -1: there is none. */
typedef struct input_indices {
    int gamma, beta, mean, variance;
} input_indices;

static input_indices inputs_of(const rg_batch_norm_desc *d)
{
    input_indices p = { -1, -1, -1, -1 };
    int next = 1;
    if (d->gamma)
        p.gamma = next++;
    if (d->beta)
        p.beta = next++;
    if (d->statistics == RG_BATCH_NORM_RUNNING || d->statistics == RG_BATCH_NORM_GIVEN) {
        p.mean = next++;
        p.variance = next++;
    }
    return p;
}

/* Mean and variance of the elements of channel c. */
static void statistics_of(const rg_ref_tensor *x, int64_t c, long double *mean, double *variance)
{
    const int64_t channels = x->dims[x->rank - 1], m = rg_ref_count(x) / channels;
    *mean = 0; /* wider, since it may be far larger than the deviation */
    *variance = 0;
    for (int64_t i = 0; i < m; i++)
        *mean += x->data[i * channels + c] / (long double)m;
    long double rest = 0; /* what rounding has left of the mean */
    for (int64_t i = 0; i < m; i++)
        rest += (x->data[i * channels + c] - *mean) / (long double)m;
    *mean += isfinite((double)rest) ? rest : 0;
    for (int64_t i = 0; i < m; i++)
        *variance += pow((double)(x->data[i * channels + c] - *mean), 2) / (double)m;
}

static double factor_of(const rg_batch_norm_desc *d, double m)
{
    return d->unbiased && m > 1 ? m / (m - 1) : 1;
}

static double apply_neuron(const rg_batch_norm_desc *d, double z)
{
    double value = 0;
    const rg_ref_tensor x = { .rank = 0, .data = &z };
    rg_ref_tensor y = { .rank = 0, .data = &value };
    rg_neuron_ref_forward(&d->neuron, &x, &y);
    return value;
}

static double back_through_neuron(const rg_batch_norm_desc *d, double dy, double z)
{
    double value = 0;
    const rg_ref_tensor x = { .rank = 0, .data = &z }, g = { .rank = 0, .data = &dy };
    rg_ref_tensor dx = { .rank = 0, .data = &value };
    rg_neuron_ref_gradient(&d->neuron, &g, &x, NULL, &dx);
    return value;
}

void rg_batch_norm_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_batch_norm_desc *d = desc;
    const input_indices p = inputs_of(d);
    const int64_t channels = x->dims[x->rank - 1], m = rg_ref_count(x) / channels;
    for (int64_t c = 0; c < channels; c++) {
        long double mean;
        double variance;
        statistics_of(x, c, &mean, &variance);
        if (d->statistics == RG_BATCH_NORM_GIVEN) {
            mean = x[p.mean].data[c];
            variance = x[p.variance].data[c];
        } else if (d->statistics == RG_BATCH_NORM_RETURNED) {
            y[1].data[c] = (double)mean;
            y[2].data[c] = variance;
        } else if (d->statistics == RG_BATCH_NORM_RUNNING) {
            const double k = m > 0 ? d->momentum : 1, f = factor_of(d, (double)m);
            y[1].data[c] = k * x[p.mean].data[c] + (1 - k) * (double)mean;
            y[2].data[c] = k * x[p.variance].data[c] + (1 - k) * f * variance;
        }
        const double gamma = d->gamma ? x[p.gamma].data[c] : 1;
        const double beta = d->beta ? x[p.beta].data[c] : 0;
        for (int64_t i = c; i < m * channels; i += channels)
            y->data[i] = apply_neuron(
                d, gamma * (double)(x->data[i] - mean) / sqrt(variance + d->epsilon) + beta);
    }
}

static void put(rg_ref_tensor dx[], int index, int64_t c, double value)
{
    if (index >= 0 && dx[index].data != NULL)
        dx[index].data[c] = value;
}

static void channel_gradient(const rg_batch_norm_desc *d, const rg_ref_tensor dy[],
                             const rg_ref_tensor x[], rg_ref_tensor dx[], int64_t c)
{
    const input_indices p = inputs_of(d);
    const int64_t channels = x->dims[x->rank - 1], count = rg_ref_count(x);
    const double m = (double)(count / channels);
    const bool given = d->statistics == RG_BATCH_NORM_GIVEN;
    long double mean;
    double variance, dgamma = 0, dbeta = 0;
    statistics_of(x, c, &mean, &variance);
    mean = given ? x[p.mean].data[c] : mean;
    variance = given ? x[p.variance].data[c] : variance;
    const double gamma = d->gamma ? x[p.gamma].data[c] : 1;
    const double beta = d->beta ? x[p.beta].data[c] : 0;
    const double sigma = sqrt(variance + d->epsilon);
    for (int64_t i = c; i < count; i += channels) {
        const double xh = (double)(x->data[i] - mean) / sigma;
        const double g = back_through_neuron(d, dy->data[i], gamma * xh + beta);
        dbeta += g;
        dgamma += g * xh;
    }
    const bool out = d->statistics == RG_BATCH_NORM_RETURNED || p.mean >= 0;
    const double k = d->statistics == RG_BATCH_NORM_RUNNING ? d->momentum : 0;
    const double dm = out && !given ? dy[1].data[c] : 0, dv = out && !given ? dy[2].data[c] : 0;
    const double f = d->statistics == RG_BATCH_NORM_RUNNING ? factor_of(d, m) : 1;
    for (int64_t i = c; i < count && dx->data != NULL; i += channels) {
        const double t = (double)(x->data[i] - mean), xh = t / sigma;
        const double g = back_through_neuron(d, dy->data[i], gamma * xh + beta);
        dx->data[i] = given ? gamma / sigma * g
                            : gamma / sigma * ((g - dbeta / m) - xh * dgamma / m) +
                                  (1 - k) * (dm + 2 * f * dv * t) / m;
    }
    put(dx, p.gamma, c, dgamma);
    put(dx, p.beta, c, dbeta);
    put(dx, p.mean, c, given ? -gamma / sigma * dbeta : m > 0 ? k * dm : dm);
    put(dx, p.variance, c, given ? -gamma * dgamma / (2 * sigma * sigma) : m > 0 ? k * dv : dv);
}

void rg_batch_norm_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                                const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)y;
    for (int64_t c = 0; c < x->dims[x->rank - 1]; c++)
        channel_gradient(desc, dy, x, dx, c);
}
