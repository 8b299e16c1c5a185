/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A bound on the memory of threads that decode. */
#include "train/decode_budget.h"

#include <string.h>

#define MOST_BYTES (UINT64_C(96) << 20)

void rg_decode_budget_begin(rg_decode_budget *budget)
{
    pthread_mutex_init(&budget->lock, NULL);
    pthread_cond_init(&budget->given, NULL);
    memset(budget->used, 0, sizeof budget->used);
}

void rg_decode_budget_end(rg_decode_budget *budget)
{
    pthread_mutex_destroy(&budget->lock);
    pthread_cond_destroy(&budget->given);
}

void rg_decode_budget_take(rg_decode_budget *budget, rg_decode_memory kind, uint64_t bytes)
{
    if (budget == NULL)
        return;
    uint64_t *const used = &budget->used[kind];
    pthread_mutex_lock(&budget->lock);
    while (*used > 0 && (bytes > MOST_BYTES || *used > MOST_BYTES - bytes))
        pthread_cond_wait(&budget->given, &budget->lock);
    *used += bytes;
    pthread_mutex_unlock(&budget->lock);
}

void rg_decode_budget_give(rg_decode_budget *budget, rg_decode_memory kind, uint64_t bytes)
{
    if (budget == NULL)
        return;
    pthread_mutex_lock(&budget->lock);
    budget->used[kind] -= bytes;
    pthread_cond_broadcast(&budget->given);
    pthread_mutex_unlock(&budget->lock);
}
