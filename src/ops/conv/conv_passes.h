/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Forward and gradient of conv and of conv_transpose: the same three passes, of which the transpose
 * takes the first two the other way round. */
#ifndef RG_OPS_CONV_PASSES_H
#define RG_OPS_CONV_PASSES_H

#include "ops/conv/conv_record.h"

/* What the passes need of a descriptor. */
typedef struct rg_conv_passes {
    /* The geometry, from the shapes of x (or dx), y (or dy) and w (or dw). */
    rg_conv_shape (*shape)(const void *desc, const rg_tensor_desc *x, const rg_tensor_desc *y,
                           const rg_tensor_desc *w);
    const rg_neuron_desc *neuron;
    bool bias, is_transpose;
} rg_conv_passes;

/* RG_READS_ bits of the gradient. */
uint32_t rg_conv_reads(const rg_neuron_desc *neuron, bool bias);

/* y, or with `neuron` NULL what the neuron is applied to. */
rg_status rg_conv_record_forward(rg_call *call, const rg_conv_passes *p, const rg_tensor *y,
                                 const rg_tensor *z, const rg_neuron_desc *neuron);

/* dx, dw and db from g, the gradient of what the neuron is applied to. */
rg_status rg_conv_record_gradients(rg_call *call, const rg_conv_passes *p, const rg_tensor *g);

#endif
