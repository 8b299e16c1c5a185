/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons of any kind but prelu, one copy for each instruction set and real. */
#include "ops/fused_neuron/any_neuron_cpu.h"

static vreal value_of(int32_t kind, const neuron_constants *k, vreal z)
{
    return neuron_value(kind, k, z, false);
}

static vreal slope_of(int32_t kind, const neuron_constants *k, vreal dy, vreal z)
{
    return neuron_slope(kind, k, dy, z, false);
}

const rg_any_neuron RG_TABLE(any_neuron) = { value_of, slope_of };
