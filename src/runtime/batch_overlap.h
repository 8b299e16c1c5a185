/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Whether the images of a batch overlap in memory. */
#ifndef RG_RUNTIME_BATCH_OVERLAP_H
#define RG_RUNTIME_BATCH_OVERLAP_H

#include "runtime/objects.h"

/* A tensor that one image of a batch reads or writes. */
typedef struct rg_access {
    const rg_tensor *tensor;
    int64_t image;
    bool written;
} rg_access;

/* Refuses a batch in which an image writes what another one reads or writes. With
 * `summed`, several images may write one tensor object: its gradients are summed. Sorts `accesses`.
 */
rg_status rg_accesses_check_overlap(rg_access accesses[], size_t count, bool summed,
                                    const char *who);

#endif
