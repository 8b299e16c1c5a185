/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums over ranks by NCCL, from GPU to GPU. NCCL chooses the order of a sum. It is opened at run
 * time: libnccl.so.2, or the path in the environment variable RG_NCCL. */
#ifndef RG_GROUP_NCCL_H
#define RG_GROUP_NCCL_H

#include <retrograde/device.h>
#include <retrograde/group.h>

typedef struct rg_nccl rg_nccl;

/* Joins the GPUs of all ranks, each of which must have one of its own. Collective; both outlive
 * what is made. RG_UNSUPPORTED without a GPU or without NCCL. */
rg_status rg_nccl_create(rg_group *group, rg_device *device, rg_nccl **nccl);
void rg_nccl_destroy(rg_nccl *nccl); /* NULL allowed */

/* Sums `count` elements of f32 or f64 in memory of the GPU over all ranks, in place, and waits. No
 * other work on them may be running. */
rg_status rg_nccl_sum(rg_nccl *nccl, void *elements, rg_dtype dtype, int64_t count);

#endif
