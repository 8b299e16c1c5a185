/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons of any kind but prelu, one copy for each instruction set and real. */
#include "ops/fused_neuron/any_neuron_cpu.h"

#include <assert.h>

/* A kernel is not created with such a neuron. The compiler names a kind that has no case below. */
RG_INLINE vreal no_such_neuron(void)
{
    assert(false);
    return vset((real)__builtin_nan(""));
}

#define NEURON_CASE(kind, name) \
    case RG_NEURON_##kind:      \
        return neuron_##name

static vreal value_of(int32_t kind, const neuron_constants *k, vreal z)
{
    switch ((rg_neuron_kind)kind) {
        NEURON_CASE(RELU, relu(k, z, z));
        NEURON_CASE(LINEAR, linear(k, z, z));
        NEURON_CASE(SIGMOID, sigmoid(k, z, z));
        NEURON_CASE(HARD_SIGMOID, hard_sigmoid(k, z, z));
        NEURON_CASE(TANH, tanh(k, z, z));
        NEURON_CASE(ABSOLUTE, absolute(k, z, z));
        NEURON_CASE(SOFTPLUS, softplus(k, z, z));
        NEURON_CASE(SOFTSIGN, softsign(k, z, z));
        NEURON_CASE(ELU, elu(k, z, z));
        NEURON_CASE(RELUN, relun(k, z, z));
        NEURON_CASE(POWER, power(k, z, z));
        NEURON_CASE(EXPONENTIAL, exponential(k, z, z));
        NEURON_CASE(LOGARITHM, logarithm(k, z, z));
        NEURON_CASE(GELU, gelu(k, z, z));
        NEURON_CASE(GELU_TANH, gelu_tanh(k, z, z));
        NEURON_CASE(SWISH, swish(k, z, z));
    case RG_NEURON_NONE:
        return z;
    case RG_NEURON_PRELU:
        break;
    }
    return no_such_neuron();
}

static vreal slope_of(int32_t kind, const neuron_constants *k, vreal dy, vreal z)
{
    switch ((rg_neuron_kind)kind) {
        NEURON_CASE(RELU, relu_slope(k, dy, z));
        NEURON_CASE(LINEAR, linear_slope(k, dy, z));
        NEURON_CASE(SIGMOID, sigmoid_slope(k, dy, z));
        NEURON_CASE(HARD_SIGMOID, hard_sigmoid_slope(k, dy, z));
        NEURON_CASE(TANH, tanh_slope(k, dy, z));
        NEURON_CASE(ABSOLUTE, absolute_slope(k, dy, z));
        NEURON_CASE(SOFTPLUS, softplus_slope(k, dy, z));
        NEURON_CASE(SOFTSIGN, softsign_slope(k, dy, z));
        NEURON_CASE(ELU, elu_slope(k, dy, z));
        NEURON_CASE(RELUN, relun_slope(k, dy, z));
        NEURON_CASE(POWER, power_slope(k, dy, z));
        NEURON_CASE(EXPONENTIAL, exponential_slope(k, dy, z));
        NEURON_CASE(LOGARITHM, logarithm_slope(k, dy, z));
        NEURON_CASE(GELU, gelu_slope(k, dy, z));
        NEURON_CASE(GELU_TANH, gelu_tanh_slope(k, dy, z));
        NEURON_CASE(SWISH, swish_slope(k, dy, z));
    case RG_NEURON_NONE:
        return dy;
    case RG_NEURON_PRELU:
        break;
    }
    return no_such_neuron();
}

const rg_any_neuron RG_TABLE(any_neuron) = { value_of, slope_of };
