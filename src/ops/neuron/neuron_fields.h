/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The fields of an rg_neuron_desc, for the group "neuron" of every op that fuses one. */
#ifndef RG_OPS_NEURON_FIELDS_H
#define RG_OPS_NEURON_FIELDS_H

#include "runtime/field.h"

extern const rg_field rg_neuron_fields[];

#endif
