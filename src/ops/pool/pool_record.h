/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What is recorded for pooling. */
#ifndef RG_OPS_POOL_RECORD_H
#define RG_OPS_POOL_RECORD_H

#include "ops/ops.h"
#include "ops/padding/padding_fields.h"
#include "ops/pool/pool.h"
#include "runtime/strategy.h"

#include <retrograde/pool.h>

/* The dimension of rows in (n, h, w, c) or (h, w, c). */
int32_t rg_pool_row_dim(const rg_tensor_desc *x);
rg_status rg_pool_place(const rg_pool_desc *d, const rg_tensor_desc *x, rg_placement *placement);
rg_tensor_desc rg_pool_winners_desc(const rg_pool_desc *d, const rg_tensor_desc *y);

/* What strategies of the gradient record. */
typedef struct rg_pool_request {
    rg_pool_gradient_args args;
    const rg_tensor *winners; /* max */
} rg_pool_request;
extern const rg_strategy *const *const rg_pool_strategies[];

rg_status rg_pool_forward(rg_call *call);
rg_status rg_pool_gradient(rg_call *call);

#endif
