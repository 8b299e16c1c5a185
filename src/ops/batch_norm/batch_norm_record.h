/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization: the tensors of a call, and a function for each launch. */
#ifndef RG_OPS_BATCH_NORM_RECORD_H
#define RG_OPS_BATCH_NORM_RECORD_H

#include "ops/batch_norm/batch_norm.h"
#include "ops/norm/norm_record.h"
#include "runtime/strategy.h"

/* ---- inputs and the state ---- */

/* Whether mean and variance are inputs, or outputs. */
bool rg_batch_norm_takes_statistics(const rg_batch_norm_desc *d);

bool rg_batch_norm_gives_statistics(const rg_batch_norm_desc *d);

/* The numbers of the inputs; 0 where there is none. */
typedef struct rg_batch_norm_inputs {
    int32_t gamma, beta, mean, variance, inputs;
} rg_batch_norm_inputs;

rg_batch_norm_inputs rg_batch_norm_inputs_of(const rg_batch_norm_desc *d);

enum { MEAN, VARIANCE, S, DGAMMA, DBETA, MOMENTS, SUMS, SLOTS };

/* Progress of the state: 1 + elements per channel in the statistics; whether a y was computed
 * from them; 1 + elements in the gradient sums; bits of the dx computed from these. 0 means
 * nothing yet; an empty batch is 1. */
enum { COUNTED, NORMALIZED, SUMMED, FINISHED };

/* What strategies record: forward or gradient of the call. They set the other two. */
typedef struct rg_batch_norm_request {
    bool gradient;
    bool chained; /* short rows are taken several at a time */
    bool planes;  /* memory is planes of one channel each */
} rg_batch_norm_request;

/* The tensors of one call. `any` replaces those that do not exist. */
typedef struct rg_batch_norm_tensors {
    const rg_tensor *x, *gamma, *beta, *mean, *variance, *any;
    const rg_tensor *moments, *sums;
    rg_norm_parameters parameters;
    rg_batch_norm_inputs at;
    bool chained; /* several rows are taken at a time */
    bool planes;  /* memory is planes of channels */
} rg_batch_norm_tensors;

rg_batch_norm_tensors rg_batch_norm_tensors_of(const rg_call *call,
                                               const rg_batch_norm_request *request);

/* The shape of x: how it is cut into units. */
rg_channels rg_batch_norm_shape_of(const rg_batch_norm_tensors *t);

int64_t rg_batch_norm_channels_of(const rg_tensor *x);

int64_t rg_batch_norm_rows_of(const rg_tensor *x);

const rg_tensor *rg_batch_norm_slot(const rg_call *call, int32_t index, const rg_tensor *otherwise);

/* ---- strategies ---- */

/* In the order in which they are asked; the last one takes all calls. */
/* clang-format off */
#define RG_BATCH_NORM_STRATEGIES(STRATEGY) \
    STRATEGY(rg_batch_norm_planes) \
    STRATEGY(rg_batch_norm_chains) \
    STRATEGY(rg_batch_norm_rows)
/* clang-format on */
RG_BATCH_NORM_STRATEGIES(RG_STRATEGY_DECLARE)

/* All launches of a call. */
rg_status rg_batch_norm_record(rg_call *call, const rg_batch_norm_request *request);

/* ---- launches, in the order of the kernels ---- */

rg_status rg_batch_norm_record_parts(rg_call *call, const rg_batch_norm_tensors *t,
                                     const rg_tensor *partial);

/* `returns`: whether outputs mean and variance are written, too. */
rg_status rg_batch_norm_record_merge(rg_call *call, const rg_batch_norm_tensors *t,
                                     const rg_tensor *partial, int64_t before, bool returns);

rg_status rg_batch_norm_record_forward(rg_call *call, const rg_batch_norm_tensors *t);

rg_status rg_batch_norm_record_sums(rg_call *call, const rg_batch_norm_tensors *t,
                                    const rg_tensor *partial);

/* From `partial`, or where that is NULL from what is in t->sums. `count`: elements of a channel;
 * `before`: whether t->sums is added to. */
rg_status rg_batch_norm_record_join(rg_call *call, const rg_batch_norm_tensors *t,
                                    const rg_tensor *partial, const rg_tensor *factors,
                                    int64_t count, bool before);

rg_status rg_batch_norm_record_gradient(rg_call *call, const rg_batch_norm_tensors *t,
                                        const rg_tensor *factors);

#endif
