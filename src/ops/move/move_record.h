/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording moves and scatters, for the ops that copy. */
#ifndef RG_OPS_MOVE_RECORD_H
#define RG_OPS_MOVE_RECORD_H

#include "ops/move/move.h"
#include "runtime/objects.h"

/* Bytes of a whole tensor: what decides whether a result uses streaming stores. */
int64_t rg_move_bytes(const rg_tensor *tensor);

/* `kernel` takes rg_move_args. */
rg_status rg_record_move(rg_call *call, int32_t kernel, const rg_tensor *from, const rg_tensor *to,
                         const rg_move *move);

/* The same for a part of a result, which is so large as a whole. */
rg_status rg_record_move_part(rg_call *call, int32_t kernel, const rg_tensor *from,
                              const rg_tensor *to, const rg_move *move, int64_t result_bytes);

/* `kernel` takes rg_scatter_args. */
rg_status rg_record_scatter(rg_call *call, int32_t kernel, const rg_tensor *from,
                            const rg_tensor *to, const rg_scatter *scatter);

#endif
