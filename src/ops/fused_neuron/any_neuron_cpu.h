/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons of any kind but prelu for CPU kernels that fuse one: called, once a vector. */
#ifndef RG_OPS_FUSED_NEURON_ANY_NEURON_CPU_H
#define RG_OPS_FUSED_NEURON_ANY_NEURON_CPU_H

#include "ops/neuron/neuron_formulas.h"

/* any_neuron_cpu.c: the formulas are large, and are compiled once for all ops. */
typedef struct rg_any_neuron {
    vreal (*value)(int32_t kind, const neuron_constants *k, vreal z);
    vreal (*slope)(int32_t kind, const neuron_constants *k, vreal dy, vreal z);
} rg_any_neuron;
extern const rg_any_neuron RG_TABLE(any_neuron);

RG_INLINE vreal any_neuron(int32_t kind, const neuron_constants *k, vreal z)
{
    return RG_TABLE(any_neuron).value(kind, k, z);
}

RG_INLINE vreal any_neuron_slope(int32_t kind, const neuron_constants *k, vreal dy, vreal z)
{
    return RG_TABLE(any_neuron).slope(kind, k, dy, z);
}

/* The most common kind, inlined. */
RG_INLINE vreal neuron_relu(const neuron_constants *k, vreal z, vreal unused)
{
    (void)unused;
    return neuron_relu_value(k, z, false);
}

#endif
