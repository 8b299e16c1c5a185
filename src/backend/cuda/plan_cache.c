/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A bounded cache of plans. A look-up compares all hashes: a thousand of them cost less than
 * what a library does for one call. */
#include "backend/cuda/plan_cache.h"

#include <string.h>

static uint64_t hash_of(const void *key, size_t bytes)
{
    const unsigned char *at = key;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

bool rg_plan_cache_find(rg_plan_cache *cache, const void *key, void **plan)
{
    const uint64_t hash = hash_of(key, cache->key_bytes);
    for (size_t i = 0; i < cache->count; i++) {
        rg_plan_entry *entry = &cache->entries[i];
        if (entry->hash == hash && memcmp(entry->key, key, cache->key_bytes) == 0) {
            entry->used = ++cache->clock;
            *plan = entry->plan;
            return true;
        }
    }
    return false;
}

static void release_entry(rg_plan_cache *cache, const rg_plan_entry *entry)
{
    if (entry->plan != NULL)
        cache->release(cache->context, entry->plan);
    rg_release(cache->allocator, entry->key, cache->key_bytes);
}

static void drop_oldest(rg_plan_cache *cache)
{
    size_t oldest = 0;
    for (size_t i = 1; i < cache->count; i++)
        oldest = cache->entries[i].used < cache->entries[oldest].used ? i : oldest;
    release_entry(cache, &cache->entries[oldest]);
    cache->entries[oldest] = cache->entries[--cache->count];
}

bool rg_plan_cache_add(rg_plan_cache *cache, const void *key, void *plan)
{
    void *copy = NULL;
    if (cache->count >= RG_MAX_PLANS && cache->wait_idle(cache->context))
        drop_oldest(cache);
    if (rg_grow(cache->allocator, (void **)&cache->entries, &cache->capacity, cache->count,
                sizeof cache->entries[0]) != RG_OK ||
        rg_allocate(cache->allocator, cache->key_bytes, &copy) != RG_OK) {
        if (plan != NULL)
            cache->release(cache->context, plan);
        return false;
    }
    memcpy(copy, key, cache->key_bytes);
    cache->entries[cache->count++] = (rg_plan_entry){
        .hash = hash_of(key, cache->key_bytes), .used = ++cache->clock, .key = copy, .plan = plan
    };
    return true;
}

void rg_plan_cache_clear(rg_plan_cache *cache)
{
    for (size_t i = 0; i < cache->count; i++)
        release_entry(cache, &cache->entries[i]);
    rg_release(cache->allocator, cache->entries, cache->capacity * sizeof cache->entries[0]);
    cache->entries = NULL;
    cache->capacity = cache->count = 0;
}
