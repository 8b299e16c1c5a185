/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What is recorded for group normalization, and the slots of its state. */
#ifndef RG_OPS_GROUP_NORM_RECORD_H
#define RG_OPS_GROUP_NORM_RECORD_H

#include "ops/group_norm/group_norm.h"
#include "runtime/strategy.h"

/* Slots of the state. */
enum {
    RG_GROUP_NORM_MEAN,
    RG_GROUP_NORM_REST, /* what the rounded mean lacks */
    RG_GROUP_NORM_S,    /* 1 / sigma */
    RG_GROUP_NORM_DGAMMA,
    RG_GROUP_NORM_DBETA
};

static inline int32_t rg_group_norm_axis_of(const rg_group_norm_desc *d, int32_t rank)
{
    return (int32_t)(d->axis < 0 ? d->axis + rank : d->axis);
}

static inline int64_t rg_group_norm_groups_of(const rg_group_norm_desc *d, const rg_tensor_desc *x)
{
    return d->groups == 0 ? x->dims[x->rank - 1] : d->groups;
}

/* What strategies record: forward or gradient of the call. */
typedef struct rg_group_norm_request {
    bool gradient;
} rg_group_norm_request;

/* In the order in which they are asked. */
/* clang-format off */
#define RG_GROUP_NORM_STRATEGIES(STRATEGY) \
    STRATEGY(rg_group_norm_rows) \
    STRATEGY(rg_group_norm_planes) \
    STRATEGY(rg_group_norm_columns)
/* clang-format on */
RG_GROUP_NORM_STRATEGIES(RG_STRATEGY_DECLARE)

/* The shape of a call, not yet cut into units; the launches of one that is. */
rg_group_norm_shape rg_group_norm_shape_of(const rg_call *call, bool gradient);

/* Cuts images into units of whole groups, for kernels of columns. */
void rg_group_norm_cut(rg_group_norm_shape *shape);

rg_status rg_group_norm_record(rg_call *call, const rg_group_norm_shape *shape, bool gradient);

#endif
