/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Classes of MPS as operators: the names in the descriptions of ops. */
#ifndef RG_OPERATORS_OPERATOR_MPS_H
#define RG_OPERATORS_OPERATOR_MPS_H

#include "operators/operator.h"

int32_t rg_mps_count(void);
rg_mps_name rg_mps_get(int32_t index);
bool rg_mps_find(const char *name, rg_mps_name *found);
void rg_mps_info(rg_mps_name name, rg_operator_info *info);

/* Sets the descriptor and the tensors of an operator. */
rg_status rg_mps_take(rg_operator *op, const rg_attribute attributes[], int32_t count);
rg_status rg_mps_run(const rg_operator *op, rg_commands *commands, rg_tensor *const inputs[],
                     int32_t count, uint64_t wanted, rg_tensor *outputs[]);

/* The inputs that these gradients read, by bits: of operands, no more than what is wanted needs. */
uint32_t rg_gradient_reads(const rg_op *op, const void *desc, uint64_t wanted);
/* Makes those that they do not read, of zeros, in the entries of x that are NULL. */
rg_status rg_gradient_complete(const rg_op *op, const void *desc, rg_tensor *const dy[],
                               uint64_t wanted, rg_tensor *x[]);

#endif
