/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* An index of names, so that a large graph finds its values and nodes at once. */
#ifndef RG_GRAPH_NAMES_H
#define RG_GRAPH_NAMES_H

#include "core/memory.h"

/* Things by their names, which stay where they are; zeroed: empty. */
typedef struct rg_names {
    struct rg_names_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t used;     /* entries that are, or were, taken */
} rg_names;

/* The thing of this name; NULL if there is none. */
void *rg_names_find(const rg_names *names, const char *name);
/* Adds a name that is not there yet. It must live as long as the entry. */
rg_status rg_names_add(rg_names *names, const char *name, void *thing);
void rg_names_remove(rg_names *names, const char *name);
void rg_names_clear(rg_names *names);

#endif
