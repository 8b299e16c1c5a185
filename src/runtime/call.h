/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One forward or gradient call of one image: checked and recorded. */
#ifndef RG_RUNTIME_CALL_H
#define RG_RUNTIME_CALL_H

#include "runtime/objects.h"

/* Fills in what does not depend on tensors; `who` is the public function. */
rg_status rg_call_begin(const rg_kernel *kernel, rg_commands *commands, const char *who,
                        rg_call *call);

/* Checks the tensors of a forward call. */
rg_status rg_call_check(rg_call *call);

/* Check the tensors of the call, then record. On failure the caller rewinds the commands. Read
 * counts are the caller's too. */
rg_status rg_call_forward(rg_call *call);
rg_status rg_call_gradient(rg_call *call);

#endif
