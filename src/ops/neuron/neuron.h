/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neuron kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_NEURON_H
#define RG_OPS_NEURON_H

#include "core/sweep.h"

enum {
    RG_RELU_FORWARD,
    RG_SIGMOID_FORWARD,
    RG_TANH_FORWARD,
    RG_RELU_GRADIENT, /* from x or from y: the sign is the same */
    RG_SIGMOID_GRADIENT,
    RG_TANH_GRADIENT,
    RG_SIGMOID_GRADIENT_Y,
    RG_TANH_GRADIENT_Y,
    RG_NEURON_KERNELS
};

typedef struct rg_neuron_args {
    const void *x;
    void *y;
    rg_sweep sweep; /* tensors x, y */
    double a, b;
    bool stream; /* y goes past the cache */
} rg_neuron_args;

typedef struct rg_neuron_gradient_args {
    const void *dy, *from; /* from: x or y */
    void *dx;
    rg_sweep sweep; /* tensors dy, from, dx */
    double a, b;
    bool add;    /* into dx */
    bool stream; /* dx goes past the cache */
} rg_neuron_gradient_args;

#endif
