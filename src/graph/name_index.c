/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* An index of names: a table with open addressing. */
#include "graph/name_index.h"

#include "core/private_api.h"

#include <string.h>

struct rg_names_entry {
    const char *name; /* NULL: never taken; `gone`: taken once */
    void *thing;
};

static const rg_allocator *const allocator = &rg_default_allocator;
static const char gone[] = "";

/* FNV-1a */
static size_t hash_of(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != 0; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return (size_t)(hash ^ hash >> 32);
}

static struct rg_names_entry *look_up(const rg_names *names, const char *name)
{
    for (size_t at = hash_of(name); names->capacity > 0; at++) {
        struct rg_names_entry *entry = &names->entries[at & (names->capacity - 1)];
        if (entry->name == NULL)
            return NULL;
        if (entry->name != gone && strcmp(entry->name, name) == 0)
            return entry;
    }
    return NULL;
}

RG_PRIVATE_API void *rg_names_find(const rg_names *names, const char *name)
{
    const struct rg_names_entry *entry = look_up(names, name);
    return entry != NULL ? entry->thing : NULL;
}

static void put(rg_names *names, const char *name, void *thing)
{
    size_t at = hash_of(name);
    while (names->entries[at & (names->capacity - 1)].name != NULL)
        at++;
    names->entries[at & (names->capacity - 1)] = (struct rg_names_entry){ name, thing };
    names->used++;
}

/* A table of twice the size, without what is gone. */
static rg_status grow(rg_names *names)
{
    rg_names larger = { .capacity = names->capacity > 0 ? 2 * names->capacity : 16 };
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, larger.capacity * sizeof *larger.entries, &memory));
    larger.entries = memory;
    for (size_t i = 0; i < names->capacity; i++) {
        if (names->entries[i].name != NULL && names->entries[i].name != gone)
            put(&larger, names->entries[i].name, names->entries[i].thing);
    }
    rg_names_clear(names);
    *names = larger;
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_names_add(rg_names *names, const char *name, void *thing)
{
    if (names->used + 1 > names->capacity / 2)
        RG_TRY(grow(names));
    put(names, name, thing);
    return RG_OK;
}

RG_PRIVATE_API void rg_names_remove(rg_names *names, const char *name)
{
    struct rg_names_entry *entry = look_up(names, name);
    if (entry != NULL)
        entry->name = gone;
}

RG_PRIVATE_API void rg_names_clear(rg_names *names)
{
    rg_release(allocator, names->entries, names->capacity * sizeof *names->entries);
    *names = (rg_names){ 0 };
}
