/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization: the definition. */
#include "ops/optest.h"

#include <math.h>
#include <retrograde/group_norm.h>

/* images x rows x groups x each, in the order of x in memory. */
typedef struct sizes {
    int64_t images, rows, groups, each;
} sizes;

static sizes sizes_of(const rg_group_norm_desc *d, const rg_ref_tensor *x)
{
    const int32_t last = x->rank - 1;
    const int64_t axis = d->axis < 0 ? d->axis + x->rank : d->axis;
    const int64_t groups = d->groups == 0 ? x->dims[last] : d->groups;
    sizes s = { 1, 1, groups, x->dims[last] / groups };
    for (int32_t i = 0; i < last; i++)
        *(i < axis ? &s.images : &s.rows) *= x->dims[i];
    return s;
}

/* The offset of element i of a group of an image. */
static int64_t offset_of(sizes s, int64_t image, int64_t group, int64_t i)
{
    return ((image * s.rows + i / s.each) * s.groups + group) * s.each + i % s.each;
}

static void statistics_of(sizes s, const double *x, int64_t image, int64_t group, long double *mean,
                          double *variance)
{
    const int64_t m = s.rows * s.each;
    *mean = 0; /* wider, since it may be far larger than the deviation */
    *variance = 0;
    for (int64_t i = 0; i < m; i++)
        *mean += x[offset_of(s, image, group, i)] / (long double)m;
    long double rest = 0; /* what rounding has left of the mean */
    for (int64_t i = 0; i < m; i++)
        rest += (x[offset_of(s, image, group, i)] - *mean) / (long double)m;
    *mean += isfinite((double)rest) ? rest : 0;
    for (int64_t i = 0; i < m; i++)
        *variance += pow((double)(x[offset_of(s, image, group, i)] - *mean), 2) / (double)m;
}

static double gamma_at(const rg_group_norm_desc *d, const rg_ref_tensor x[], int64_t c)
{
    return d->gamma ? x[1].data[c] : 1;
}

static double beta_at(const rg_group_norm_desc *d, const rg_ref_tensor x[], int64_t c)
{
    return d->beta ? x[d->gamma ? 2 : 1].data[c] : 0;
}

void rg_group_norm_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_group_norm_desc *d = desc;
    const sizes s = sizes_of(d, x);
    for (int64_t image = 0; image < s.images; image++) {
        for (int64_t group = 0; group < s.groups; group++) {
            long double mean;
            double variance;
            statistics_of(s, x->data, image, group, &mean, &variance);
            for (int64_t i = 0; i < s.rows * s.each; i++) {
                const int64_t at = offset_of(s, image, group, i), c = group * s.each + i % s.each;
                double z =
                    gamma_at(d, x, c) * (double)(x->data[at] - mean) / sqrt(variance + d->epsilon) +
                    beta_at(d, x, c);
                const rg_ref_tensor from = { .rank = 0, .data = &z };
                rg_ref_tensor to = { .rank = 0, .data = &y->data[at] };
                rg_neuron_ref_forward(&d->neuron, &from, &to);
            }
        }
    }
}

static double g_of(const rg_group_norm_desc *d, double dy, double z)
{
    double g = 0;
    const rg_ref_tensor from = { .rank = 0, .data = &z }, up = { .rank = 0, .data = &dy };
    rg_ref_tensor to = { .rank = 0, .data = &g };
    rg_neuron_ref_gradient(&d->neuron, &up, &from, NULL, &to);
    return g;
}

static void group_gradient(const rg_group_norm_desc *d, sizes s, const double *dy,
                           const rg_ref_tensor x[], rg_ref_tensor dx[], int64_t image,
                           int64_t group)
{
    long double mean;
    double variance, sum = 0, product = 0;
    statistics_of(s, x->data, image, group, &mean, &variance);
    const double m = (double)(s.rows * s.each), sigma = sqrt(variance + d->epsilon);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < s.rows * s.each; i++) {
            const int64_t at = offset_of(s, image, group, i), c = group * s.each + i % s.each;
            const double xh = (double)(x->data[at] - mean) / sigma, gamma = gamma_at(d, x, c);
            const double g = g_of(d, dy[at], gamma * xh + beta_at(d, x, c));
            if (pass == 1 && dx->data != NULL)
                dx->data[at] = ((gamma * g - sum / m) - xh * product / m) / sigma;
            if (pass == 1)
                continue;
            sum += gamma * g;
            product += gamma * g * xh;
            if (d->gamma && dx[1].data != NULL)
                dx[1].data[c] += g * xh;
            if (d->beta && dx[d->gamma ? 2 : 1].data != NULL)
                dx[d->gamma ? 2 : 1].data[c] += g;
        }
    }
}

void rg_group_norm_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                                const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)y;
    const rg_group_norm_desc *d = desc;
    const sizes s = sizes_of(d, x);
    for (int p = 1; p < 1 + d->gamma + d->beta; p++)
        for (int64_t c = 0; c < s.groups * s.each && dx[p].data != NULL; c++)
            dx[p].data[c] = 0;
    for (int64_t image = 0; image < s.images; image++)
        for (int64_t group = 0; group < s.groups; group++)
            group_gradient(d, s, dy->data, x, dx, image, group);
}
