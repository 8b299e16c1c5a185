/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The launches of prelu. */
#ifndef RG_OPS_NEURON_PRELU_H
#define RG_OPS_NEURON_PRELU_H

#include "runtime/op.h"

rg_status rg_prelu_forward(rg_call *call);
rg_status rg_prelu_gradient(rg_call *call);

#endif
