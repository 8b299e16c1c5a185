/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Neurons: activation functions, element by element.
 *
 *      relu     y = x > 0 ? x : a x        dx = dy (x > 0 ? 1 : a), 0 where the slope is 0
 *      sigmoid  y = 1 / (1 + e^-x)         dx = dy y (1 - y)
 *      tanh     y = a tanh(b x)            dx = dy b (a - y^2 / a)
 *
 *  x, y, dy and dx have one shape and one dtype of f32, f64, f16, bf16. y may be x; dx may be
 *  dy, or what the gradient reads. At x = 0 the slope of relu is a. */
#ifndef RETROGRADE_NEURON_H
#define RETROGRADE_NEURON_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_neuron_kind { RG_NEURON_RELU, RG_NEURON_SIGMOID, RG_NEURON_TANH } rg_neuron_kind;

/** Which function. Start from rg_neuron_desc_default(), then change what matters. */
typedef struct rg_neuron_desc {
    uint32_t size;       /**< of this struct; set by rg_neuron_desc_default() */
    rg_neuron_kind kind; /**< default RG_NEURON_RELU */
    double a;            /**< relu: slope below 0 (default 0); tanh: factor, not 0 (usually 1) */
    double b;            /**< tanh: factor of x (default 1) */
    /** Whether the gradient reads y instead of x, so that x need not be kept (default false).
     *  Not where y does not tell the slope: relu with a below 0, tanh with a = 0. */
    bool from_y;
} rg_neuron_desc;
RG_API rg_neuron_desc rg_neuron_desc_default(void);

/** Creates a neuron kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (any shape)  ->  y (the same)
 *
 *  The gradient reads x, or y if `from_y`. Its state holds no tensors. */
RG_API rg_status rg_neuron_create(rg_device *device, const rg_neuron_desc *desc,
                                  rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
