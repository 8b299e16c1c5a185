/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Lists by value and by step, so that a pass over a long sequence finds neighbours without a walk
 * over all steps. */
#ifndef RG_GRAPH_LINKS_H
#define RG_GRAPH_LINKS_H

#include "graph/plan.h"

typedef struct rg_link {
    int32_t step, next; /* next: an entry of the pool, or -1 */
} rg_link;

/* Steps that read a value, by the value whose storage it has, and gradients by their forward step.
 * A list may hold a step twice, and steps that are gone or have changed since: walks drop the
 * latter. A new list runs from the last step to the first. */
typedef struct rg_links {
    const rg_sequence *sequence;
    rg_link *pool;
    size_t capacity, count;
    int32_t *readers;   /* by value: the first entry, or -1 */
    int32_t *gradients; /* by step */
    size_t readers_capacity, gradients_capacity;
} rg_links;

rg_status rg_links_create(const rg_sequence *sequence, rg_links *links);
void rg_links_destroy(rg_links *links);

/* Adds a step at the front of the list of a value, of all that it reads, or of its forward step. */
rg_status rg_links_add_reader(rg_links *links, int32_t value, int32_t step);
rg_status rg_links_add_reads(rg_links *links, int32_t step);
rg_status rg_links_add_gradient(rg_links *links, int32_t step);

/* A walk: *at is -1 before the first call, and belongs to the walk. Returns a step, -1 at the end.
 * Steps that are added meanwhile are not met. */
int32_t rg_links_reader(rg_links *links, int32_t value, int32_t *at);
int32_t rg_links_gradient(rg_links *links, int32_t forward, int32_t *at);

#endif
