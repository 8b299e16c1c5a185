/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What contractions with a bias and a fused neuron share, y = neuron(z): when z is kept, and how
 * dz = dy neuron'(z) and db = sum of dz are recorded, by the kernels of the ops that have them. */
#ifndef RG_OPS_FUSED_NEURON_H
#define RG_OPS_FUSED_NEURON_H

#include "ops/neuron/neuron.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/arithmetic.h>
#include <retrograde/reduce.h>

rg_status rg_fused_check(const rg_neuron_desc *neuron, const char *op);

/* A bias is added before the neuron. */
bool rg_fused_take_bias(const rg_neuron_desc *neuron, bool *bias);

/* Whether the gradient needs z, since the slope does not follow from y. */
bool rg_fused_needs_z(const rg_neuron_desc *neuron);

/* The part of an op's `reads` that comes from its neuron. */
uint32_t rg_fused_reads(const rg_neuron_desc *neuron);

/* The only slot of the state: z, where it is needed. */
int32_t rg_fused_slots(const rg_neuron_desc *neuron, const rg_tensor_desc *y,
                       rg_state_slot slots[]);

/* Where forward leaves z: in the state, or nowhere. */
const rg_tensor *rg_fused_z(const rg_call *call, const rg_neuron_desc *neuron);

/* y = neuron(z); both may be one tensor. */
rg_status rg_fused_forward(rg_call *call, const rg_neuron_desc *neuron, const rg_tensor *z,
                           const rg_tensor *y);

/* The gradient: dz, then what `gradients` makes of it. Where the slope does not follow from y, z
 * is that of the state, if a forward pass has filled it, or is made once more by `make_z`, and
 * dz takes its place. */
typedef rg_status rg_fused_record(rg_call *call, const rg_tensor *tensor);
rg_status rg_fused_backward(rg_call *call, const rg_neuron_desc *neuron, rg_fused_record *make_z,
                            rg_fused_record *gradients);

rg_status rg_fused_bias(rg_call *call, const rg_tensor *dz, const rg_tensor *db, bool add);

#endif
