/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses by definition, in double. */
#include "ops/optest.h"

#include <retrograde/loss.h>

#include <math.h>
#include <stdlib.h>

static int64_t length_of(const rg_ref_tensor *y)
{
    return y->rank > 0 ? y->dims[y->rank - 1] : 1;
}

/* The label of prediction i as dense labels have it; *weight becomes the weight of its loss. */
static double label_of(const rg_loss_desc *d, const rg_ref_tensor x[], int64_t i, double *weight)
{
    const int64_t length = length_of(x), row = length > 0 ? i / length : 0;
    const bool classes = d->labels == RG_LOSS_CLASS_LABELS;
    double t = x[1].data[classes ? row : i];
    *weight = d->weight * (d->weights ? x[2].data[classes ? row : i] : 1);
    if (classes) {
        if (d->has_ignored && t == (double)d->ignored)
            *weight = NAN; /* does not count at all */
        t = t == (double)(i % length);
    }
    if (d->label_smoothing > 0 && d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY)
        t = t * (1 - d->label_smoothing) +
            d->label_smoothing / (double)(d->classes > 0 ? d->classes : length);
    else if (d->label_smoothing > 0)
        t = t * (1 - d->label_smoothing) + d->label_smoothing / 2;
    return t;
}

/* y itself, or its log-softmax. */
static double *values_of(const rg_loss_desc *d, const rg_ref_tensor *y)
{
    const int64_t count = rg_ref_count(y), length = length_of(y);
    double *values = malloc((size_t)(count + 1) * sizeof(double));
    for (int64_t first = 0; values != NULL && first < count; first += length) {
        const double *row = y->data + first;
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < length; j++)
            max = row[j] > max ? row[j] : max;
        for (int64_t j = 0; j < length; j++)
            sum += exp(row[j] - max);
        for (int64_t j = 0; j < length; j++)
            values[first + j] =
                d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY ? (row[j] - max) - log(sum) : row[j];
    }
    return values;
}

static double loss_of(const rg_loss_desc *d, double y, double t)
{
    switch (d->kind) {
    case RG_LOSS_MEAN_ABSOLUTE:
        return fabs(y - t);
    case RG_LOSS_MEAN_SQUARED:
        return (y - t) * (y - t);
    case RG_LOSS_SOFTMAX_CROSS_ENTROPY: /* y is its log-softmax here */
        return -t * y;
    case RG_LOSS_SIGMOID_CROSS_ENTROPY:
        return (y > 0 ? y : 0) - y * t + log1p(exp(-fabs(y)));
    case RG_LOSS_CATEGORICAL_CROSS_ENTROPY:
        return -t * log(y);
    case RG_LOSS_HINGE:
        return 1 - (2 * t - 1) * y < 0 ? 0 : 1 - (2 * t - 1) * y;
    case RG_LOSS_HUBER:
        return fabs(y - t) <= d->delta ? (y - t) * (y - t) / 2
                                       : d->delta * (fabs(y - t) - d->delta / 2);
    case RG_LOSS_COSINE_DISTANCE:
        return -y * t;
    case RG_LOSS_LOG:
        return -t * log(y + d->epsilon) - (1 - t) * log(1 - y + d->epsilon);
    case RG_LOSS_KULLBACK_LEIBLER:
        return (t == 0 ? 0 : t * log(t)) - t * y;
    default:
        return 1;
    }
}

/* dl/dy for all but softmax. */
static double slope_of(const rg_loss_desc *d, double y, double t)
{
    const double e = y - t;
    switch (d->kind) {
    case RG_LOSS_MEAN_ABSOLUTE:
        return e > 0 ? 1 : e < 0 ? -1 : e;
    case RG_LOSS_MEAN_SQUARED:
        return 2 * e;
    case RG_LOSS_SIGMOID_CROSS_ENTROPY:
        return 1 / (1 + exp(-y)) - t;
    case RG_LOSS_CATEGORICAL_CROSS_ENTROPY:
        return -t / y;
    case RG_LOSS_HINGE:
        return 1 - (2 * t - 1) * y > 0 ? 1 - 2 * t : 0;
    case RG_LOSS_HUBER:
        return e > d->delta ? d->delta : e < -d->delta ? -d->delta : e;
    case RG_LOSS_LOG:
        return (1 - t) / (1 - y + d->epsilon) - t / (y + d->epsilon);
    default: /* cosine distance, Kullback-Leibler */
        return -t;
    }
}

/* dl/dt; y is its log-softmax for softmax. */
static double label_slope_of(const rg_loss_desc *d, double y, double t)
{
    switch (d->kind) {
    case RG_LOSS_SOFTMAX_CROSS_ENTROPY:
    case RG_LOSS_SIGMOID_CROSS_ENTROPY:
        return -y * (1 - d->label_smoothing);
    case RG_LOSS_CATEGORICAL_CROSS_ENTROPY:
        return -log(y);
    case RG_LOSS_HINGE:
        return 1 - (2 * t - 1) * y > 0 ? -2 * y : 0;
    case RG_LOSS_COSINE_DISTANCE:
        return -y;
    case RG_LOSS_LOG:
        return log(1 - y + d->epsilon) - log(y + d->epsilon);
    case RG_LOSS_KULLBACK_LEIBLER:
        return log(t) + 1 - y;
    default:
        return -slope_of(d, y, t);
    }
}

/* Predictions that go into one number: an image, or all; without a reduction each its own. */
static int64_t groups_of(const rg_loss_desc *d, const rg_ref_tensor *y)
{
    const bool rows = d->labels == RG_LOSS_CLASS_LABELS || d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    return d->across_batch || y->rank <= rows ? 1 : y->dims[0];
}

/* What the sums of groups are divided by. */
static double *divisors_of(const rg_loss_desc *d, const rg_ref_tensor x[])
{
    const bool classes = d->labels == RG_LOSS_CLASS_LABELS;
    const bool by_rows = classes || d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    const int64_t groups = groups_of(d, x),
                  labels = rg_ref_count(&x[1]) / (groups > 0 ? groups : 1);
    double *divisors = malloc((size_t)(groups + 1) * sizeof(double));
    int64_t rows = 1;
    for (int32_t i = 0; i < x->rank - 1; i++)
        rows *= x->dims[i];
    for (int64_t g = 0; divisors != NULL && g < groups; g++) {
        divisors[g] = 1;
        if (d->reduction == RG_LOSS_MEAN)
            divisors[g] = (double)((by_rows ? rows : rg_ref_count(x)) / groups);
        if (d->reduction != RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS)
            continue;
        divisors[g] = 0;
        for (int64_t i = g * labels; i < (g + 1) * labels; i++) {
            const double w = d->weight * (d->weights ? x[2].data[i] : 1);
            divisors[g] += w != 0 && !(d->has_ignored && x[1].data[i] == (double)d->ignored);
        }
    }
    return divisors;
}

/* 0 / 0 is 0 where no weight is there to divide by. */
static double divided(const rg_loss_desc *d, double sum, double divisor)
{
    return d->reduction == RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS && divisor == 0 ? 0 : sum / divisor;
}

/* Whether prediction i counts, and with what label and weight. */
static bool counts(const rg_loss_desc *d, const rg_ref_tensor x[], int64_t i, double *t,
                   double *weight)
{
    *t = label_of(d, x, i, weight);
    return d->labels == RG_LOSS_DENSE_LABELS || (!isnan(*weight) && *t != 0);
}

static void sum_losses(const rg_loss_desc *d, const rg_ref_tensor x[], rg_ref_tensor *loss)
{
    const bool classes = d->labels == RG_LOSS_CLASS_LABELS, none = d->reduction == RG_LOSS_NONE;
    const int64_t count = rg_ref_count(x), losses = rg_ref_count(loss), length = length_of(x);
    const int64_t groups = groups_of(d, x), group = groups > 0 ? count / groups : 0;
    const int64_t images = x->rank <= classes ? 1 : x->dims[0];
    double *values = values_of(d, x), *divisors = divisors_of(d, x), t, weight;
    for (int64_t i = 0; i < losses; i++)
        loss->data[i] =
            d->kind == RG_LOSS_COSINE_DISTANCE ? d->weight * (double)(images / groups) : 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t to = none ? (classes ? i / length : i) : i / group;
        if (counts(d, x, i, &t, &weight))
            loss->data[to] += weight * loss_of(d, values[i], t);
    }
    for (int64_t i = 0; i < losses && !none; i++)
        loss->data[i] = divided(d, loss->data[i], divisors[i]);
    free(values);
    free(divisors);
}

void rg_loss_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_loss_desc *d = desc;
    const int64_t losses = rg_ref_count(&y[0]);
    if (d->kind == RG_LOSS_INITIAL_GRADIENT) {
        for (int64_t i = 0; i < losses; i++)
            y->data[i] = 1;
        return;
    }
    sum_losses(d, x, &y[0]);
    if (d->gradient_output) {
        rg_ref_tensor ones = y[0], dx[3] = { y[1] };
        ones.data = malloc((size_t)(losses + 1) * sizeof(double));
        for (int64_t i = 0; ones.data != NULL && i < losses; i++)
            ones.data[i] = 1;
        rg_loss_ref_gradient(desc, &ones, x, y, dx);
        free(ones.data);
    }
}

void rg_loss_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                          const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)y;
    const rg_loss_desc *d = desc;
    const bool classes = d->labels == RG_LOSS_CLASS_LABELS, none = d->reduction == RG_LOSS_NONE;
    const bool softmax = d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    const int64_t count = rg_ref_count(x), length = length_of(x), groups = groups_of(d, x);
    double *values = values_of(d, x), *divisors = divisors_of(d, x);
    double *factors = calloc((size_t)count + 1, sizeof(double)), t, weight;
    for (int64_t i = 0; i < count; i++) { /* dy, weight and 1 / divisor */
        const int64_t g = none ? 0 : i / (count / groups);
        const double dl = dy->data[none ? (classes ? i / length : i) : g];
        dx[0].data[i] = 0;
        if (!counts(d, x, i, &t, &weight))
            continue;
        factors[i] =
            d->undivided_gradient || none ? weight * dl : divided(d, weight * dl, divisors[g]);
        if (!softmax)
            dx[0].data[i] = factors[i] * slope_of(d, values[i], t);
        if (dx[1].data != NULL)
            dx[1].data[i] = factors[i] * label_slope_of(d, values[i], t);
    }
    for (int64_t first = 0; first < count && softmax; first += length) {
        double sum = 0;
        bool any = false;
        for (int64_t i = first; i < first + length; i++) {
            const bool is = counts(d, x, i, &t, &weight);
            sum += is ? factors[i] * t : 0;
            any |= is;
        }
        for (int64_t i = first; i < first + length && any; i++) {
            const bool is = counts(d, x, i, &t, &weight);
            dx[0].data[i] = exp(values[i]) * sum - (is ? factors[i] * t : 0);
        }
    }
    free(values);
    free(divisors);
    free(factors);
}
