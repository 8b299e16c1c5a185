/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A bound on the memory of several threads that decode images: large photographs wait for each
 * other. */
#ifndef RG_TRAIN_DECODE_BUDGET_H
#define RG_TRAIN_DECODE_BUDGET_H

#include "core/thread.h"

/* A thread takes memory for the bytes of a file first, then for its pixels. */
typedef enum rg_decode_memory {
    RG_DECODE_FILES,
    RG_DECODE_PIXELS,
    RG_DECODE_KINDS
} rg_decode_memory;

typedef struct rg_decode_budget {
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t given;
    uint64_t used[RG_DECODE_KINDS]; /* bytes for images that are being decoded */
} rg_decode_budget;

void rg_decode_budget_begin(rg_decode_budget *budget);
void rg_decode_budget_end(rg_decode_budget *budget);

/* Waits until there are this many bytes, or until nobody else uses any of the kind. NULL: there is
 * no bound. */
void rg_decode_budget_take(rg_decode_budget *budget, rg_decode_memory kind, uint64_t bytes);
void rg_decode_budget_give(rg_decode_budget *budget, rg_decode_memory kind, uint64_t bytes);

#endif
