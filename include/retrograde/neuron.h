/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Neurons: activation functions, element by element. dx = dy f'(x).
 *
 *      kind          y = f(x)                        f'(x)                            a, b, c
 *      none          x                               1
 *      relu          x > 0 ? x : a x                 x > 0 ? 1 : a                    0
 *      linear        a x + b                         a                                1, 0
 *      sigmoid       1 / (1 + e^-x)                  y (1 - y)
 *      hard_sigmoid  a x + b, held in [0, 1]         0 <= a x + b <= 1 ? a : 0        0.2, 0.5
 *      tanh          a tanh(b x)                     a b (1 - tanh(b x)^2)            1, 1
 *      absolute      |x|                             the sign of x, 0 at 0
 *      softplus      a ln(1 + e^(b x))               a b / (1 + e^(-b x))             1, 1
 *      softsign      x / (1 + |x|)                   1 / (1 + |x|)^2
 *      elu           x > 0 ? x : a (e^x - 1)         x > 0 ? 1 : a e^x                1
 *      prelu         x > 0 ? x : slope x             x > 0 ? 1 : slope
 *      relun         min(x > 0 ? x : a x, b)         0 where that is b, else as relu  1, 6
 *      power         (a x + b)^c                     a c (a x + b)^(c - 1)            1, 0, 1
 *      exponential   c^(a x + b)                     a ln(c) y                        1, 0, -1
 *      logarithm     log_c(a x + b)                  a / (ln(c) (a x + b))            1, 0, -1
 *      gelu          x P(x)                          P(x) + x e^(-x^2 / 2) / sqrt(2 pi)
 *      gelu_tanh     x / (1 + e^-u(x))               the derivative of that
 *      swish         x / (1 + e^(-a x))              s (1 + a x (1 - s))              1
 *
 *      P(x) = (1 + erf(x / sqrt 2)) / 2,   u(x) = 2 sqrt(2 / pi) (x + 0.044715 x^3),
 *      s = 1 / (1 + e^(-a x));   c = -1 stands for e.
 *
 *  The last column has the default values, used where a, b, c are not given. At x = 0 the
 *  slope of relu, prelu and relun is that of the negative side. Where a slope of relu or relun is
 *  0, or a of hard_sigmoid or a c of power, dx is 0 for any dy.
 *
 *  x, y, dy and dx have one shape and one dtype of f32, f64, f16, bf16. y may be x; dx may be
 *  dy, or what the gradient reads. */
#ifndef RETROGRADE_NEURON_H
#define RETROGRADE_NEURON_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The first sixteen are those of MPSCNNNeuronType, with the same numbers. */
typedef enum rg_neuron_kind {
    RG_NEURON_NONE,
    RG_NEURON_RELU,
    RG_NEURON_LINEAR,
    RG_NEURON_SIGMOID,
    RG_NEURON_HARD_SIGMOID,
    RG_NEURON_TANH,
    RG_NEURON_ABSOLUTE,
    RG_NEURON_SOFTPLUS,
    RG_NEURON_SOFTSIGN,
    RG_NEURON_ELU,
    RG_NEURON_PRELU,
    RG_NEURON_RELUN,
    RG_NEURON_POWER,
    RG_NEURON_EXPONENTIAL,
    RG_NEURON_LOGARITHM,
    RG_NEURON_GELU,
    RG_NEURON_GELU_TANH, /**< gelu by tanh, an approximation */
    RG_NEURON_SWISH      /**< with a = 1.702 also known as quick gelu */
} rg_neuron_kind;

/** Which function. Initialize with rg_neuron_desc_default(): a kind
 *  alone, or a kind and those of a, b, c that differ from the defaults. */
typedef struct rg_neuron_desc {
    uint32_t size;       /**< of this struct; set by rg_neuron_desc_default() */
    rg_neuron_kind kind; /**< default RG_NEURON_RELU */
    /** Numbers of the function; see above for which kind reads which. Finite. exponential and
     *  logarithm: c above 0 or -1, and not 1 for logarithm. */
    double a, b, c;
    /** Whether a, b, c are given (default false: the default of the kind). One that is not 0 and
     *  not said to be given is refused. */
    bool has_a, has_b, has_c;
    /** Whether the gradient reads y instead of x, so that x need not be kept (default false).
     *  Only if the slope follows from y: none, linear, sigmoid, softsign, exponential; relu and elu
     *  with a of 0 or more; relun with such an a and b above 0; tanh and softplus with a other
     *  than 0. */
    bool from_y;
} rg_neuron_desc;
RG_API rg_neuron_desc rg_neuron_desc_default(void);

/** Creates a neuron kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (any shape)  ->  y (the same)
 *      x (…, channels), slope (channels)  ->  y (…, channels)      prelu
 *
 *  The gradient reads x, or y if `from_y`; none and linear read neither; prelu reads x and
 *  slope, and sums the gradient of slope over all dimensions but the last:
 *
 *      dslope = sum of x > 0 ? 0 : dy x
 *
 *  Its state contains no tensors. */
RG_API rg_status rg_neuron_create(rg_device *device, const rg_neuron_desc *desc,
                                  rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
