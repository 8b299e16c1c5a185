/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a library prepares for one shape, kept for the next call of that shape. The cache is
 * bounded; its user holds a lock around every call. */
#ifndef RG_BACKEND_CUDA_PLAN_CACHE_H
#define RG_BACKEND_CUDA_PLAN_CACHE_H

#include "core/memory.h"

typedef struct rg_plan_entry {
    uint64_t hash, used; /* `used` grows with every look-up */
    char *key;
    void *plan;
} rg_plan_entry;

typedef struct rg_plan_cache {
    const rg_allocator *allocator;
    size_t key_bytes;
    void (*release)(void *context, void *plan);
    /* Whether plans may be released now: work that uses them may be running. */
    bool (*wait_idle)(void *context);
    void *context;
    rg_plan_entry *entries;
    size_t capacity, count;
    uint64_t clock;
} rg_plan_cache;

/* How many plans a cache holds; beyond it the one that was used longest ago goes. */
enum { RG_MAX_PLANS = 1024 };

/* Finds the plan of a key, which has no padding bytes; false: there is none. */
bool rg_plan_cache_find(rg_plan_cache *cache, const void *key, void **plan);

/* Keeps a plan, which may be NULL: NULL says that there is none. Without memory it is
 * released, and the answer is false. */
bool rg_plan_cache_add(rg_plan_cache *cache, const void *key, void *plan);

/* Releases all of them. */
void rg_plan_cache_clear(rg_plan_cache *cache);

#endif
