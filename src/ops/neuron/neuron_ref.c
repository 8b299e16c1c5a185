/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons by definition, in double. */
#include "ops/optest.h"

#include <retrograde/neuron.h>

#include <math.h>

/* A number of the descriptor, or what it usually is. */
static double a_of(const rg_neuron_desc *d)
{
    if (d->has_a)
        return d->a;
    return d->kind == RG_NEURON_RELU ? 0 : d->kind == RG_NEURON_HARD_SIGMOID ? 0.2 : 1;
}

static double b_of(const rg_neuron_desc *d)
{
    if (d->has_b)
        return d->b;
    switch (d->kind) {
    case RG_NEURON_HARD_SIGMOID:
        return 0.5;
    case RG_NEURON_TANH:
    case RG_NEURON_SOFTPLUS:
        return 1;
    case RG_NEURON_RELUN:
        return 6;
    default:
        return 0;
    }
}

/* The exponent, or the natural logarithm of the base. */
static double c_of(const rg_neuron_desc *d)
{
    return d->has_c ? d->c : 1;
}

static double log_base(const rg_neuron_desc *d)
{
    return !d->has_c || d->c == -1 ? 1 : log(d->c);
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static double relu(double x, double a)
{
    return x > 0 || isnan(x) ? x : a == 0 ? 0 : a * x;
}

/* As pow, but no number for -infinity either where c is broken. */
static double power(double u, double c)
{
    return u < 0 && c != floor(c) ? (double)NAN : pow(u, c);
}

static double function(const rg_neuron_desc *d, double x, double slope)
{
    const double a = a_of(d), b = b_of(d), pi = 3.14159265358979323846;
    switch (d->kind) {
    case RG_NEURON_NONE:
        return x;
    case RG_NEURON_RELU:
        return relu(x, a);
    case RG_NEURON_LINEAR:
        return a * x + b;
    case RG_NEURON_SIGMOID:
        return logistic(x);
    case RG_NEURON_HARD_SIGMOID:
        return isnan(a * x + b) ? NAN : fmin(1, fmax(0, a * x + b)); /* also 0 times infinity */
    case RG_NEURON_TANH:
        return a * tanh(b * x);
    case RG_NEURON_ABSOLUTE:
        return fabs(x);
    case RG_NEURON_SOFTPLUS:
        return a * (b * x > 700 ? b * x : log1p(exp(b * x)));
    case RG_NEURON_SOFTSIGN:
        return x / (1 + fabs(x));
    case RG_NEURON_ELU:
        return x > 0 ? x : a * expm1(x);
    case RG_NEURON_PRELU:
        return x > 0 ? x : slope * x;
    case RG_NEURON_RELUN:
        return isnan(x) ? x : fmin(relu(x, a), b);
    case RG_NEURON_POWER:
        return power(a * x + b, c_of(d));
    case RG_NEURON_EXPONENTIAL:
        return exp(log_base(d) * (a * x + b));
    case RG_NEURON_LOGARITHM:
        return log(a * x + b) / log_base(d);
    case RG_NEURON_GELU:
        return 0.5 * x * erfc(-x / sqrt(2));
    case RG_NEURON_GELU_TANH:
        return x * logistic(2 * sqrt(2 / pi) * (x + 0.044715 * x * x * x));
    case RG_NEURON_SWISH:
        return x * logistic(a * x);
    }
    return 0;
}

/* f'(x) */
static double slope_of_x(const rg_neuron_desc *d, double x, double slope)
{
    const double a = a_of(d), b = b_of(d), pi = 3.14159265358979323846;
    switch (d->kind) {
    case RG_NEURON_NONE:
        return 1;
    case RG_NEURON_RELU:
        return x > 0 ? 1 : a;
    case RG_NEURON_LINEAR:
        return a;
    case RG_NEURON_SIGMOID:
        return logistic(x) * logistic(-x);
    case RG_NEURON_HARD_SIGMOID:
        return a * x + b >= 0 && a * x + b <= 1 ? a : 0;
    case RG_NEURON_TANH:
        return a * b / (cosh(b * x) * cosh(b * x));
    case RG_NEURON_ABSOLUTE:
        return x > 0 ? 1 : x < 0 ? -1 : 0;
    case RG_NEURON_SOFTPLUS:
        return a * b * logistic(b * x);
    case RG_NEURON_SOFTSIGN:
        return 1 / ((1 + fabs(x)) * (1 + fabs(x)));
    case RG_NEURON_ELU:
        return x > 0 ? 1 : a * exp(x);
    case RG_NEURON_PRELU:
        return x > 0 ? 1 : slope;
    case RG_NEURON_RELUN:
        return relu(x, a) >= b ? 0 : x > 0 ? 1 : a;
    case RG_NEURON_POWER:
        return a * c_of(d) == 0 ? 0 : a * c_of(d) * power(a * x + b, c_of(d) - 1);
    case RG_NEURON_EXPONENTIAL:
        return a * log_base(d) * exp(log_base(d) * (a * x + b));
    case RG_NEURON_LOGARITHM:
        return a / (log_base(d) * (a * x + b));
    case RG_NEURON_GELU:
        return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * pi);
    case RG_NEURON_GELU_TANH: {
        const double u = 2 * sqrt(2 / pi) * (x + 0.044715 * x * x * x);
        return logistic(u) +
               2 * x * logistic(u) * logistic(-u) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    }
    case RG_NEURON_SWISH:
        return logistic(a * x) * (1 + a * x * logistic(-a * x));
    }
    return 0;
}

/* The same from y = f(x). */
static double slope_of_y(const rg_neuron_desc *d, double y)
{
    const double a = a_of(d), b = b_of(d);
    switch (d->kind) {
    case RG_NEURON_NONE:
        return 1;
    case RG_NEURON_LINEAR:
        return a;
    case RG_NEURON_RELU:
        return y > 0 ? 1 : a;
    case RG_NEURON_SIGMOID:
        return y * (1 - y);
    case RG_NEURON_TANH:
        return b * (a - y * y / a);
    case RG_NEURON_SOFTPLUS:
        return a * b * -expm1(-y / a);
    case RG_NEURON_SOFTSIGN:
        return (1 - fabs(y)) * (1 - fabs(y));
    case RG_NEURON_ELU:
        return y > 0 ? 1 : y + a;
    case RG_NEURON_RELUN:
        return y >= b ? 0 : y > 0 ? 1 : a;
    case RG_NEURON_EXPONENTIAL:
        return a * log_base(d) * y;
    default:
        return 0;
    }
}

void rg_neuron_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_neuron_desc *d = desc;
    const bool prelu = d->kind == RG_NEURON_PRELU;
    for (int64_t i = 0; i < rg_ref_count(x); i++)
        y->data[i] = function(d, x->data[i], prelu ? x[1].data[i % x[1].dims[0]] : 0);
}

/* Where some functions are flat nothing comes through, not even infinity. */
static bool is_flat(rg_neuron_kind kind, double slope)
{
    return slope == 0 && (kind == RG_NEURON_RELU || kind == RG_NEURON_RELUN ||
                          kind == RG_NEURON_HARD_SIGMOID || kind == RG_NEURON_ABSOLUTE);
}

void rg_neuron_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                            const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    const rg_neuron_desc *d = desc;
    const bool prelu = d->kind == RG_NEURON_PRELU;
    for (int64_t c = 0; prelu && c < x[1].dims[0]; c++)
        dx[1].data[c] = 0;
    for (int64_t i = 0; i < rg_ref_count(dy); i++) {
        const int64_t c = prelu ? i % x[1].dims[0] : 0;
        const double f = d->from_y ? slope_of_y(d, y->data[i])
                                   : slope_of_x(d, x->data[i], prelu ? x[1].data[c] : 0);
        dx->data[i] = is_flat(d->kind, f) ? 0 : dy->data[i] * f;
        if (prelu && !(x->data[i] > 0))
            dx[1].data[c] += dy->data[i] * x->data[i];
    }
}
