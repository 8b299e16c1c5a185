/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arrays of a plan; storage reuse: large claims first, each at the lowest place that is free at its
 * time. */
#include "graph/plan.h"

#include <stdlib.h>

rg_status rg_room(size_t count, size_t element, void *pointer)
{
    void *memory = NULL;
    RG_TRY(rg_allocate_zero(&rg_default_allocator, count * element, &memory));
    memcpy(pointer, &memory, sizeof memory);
    return RG_OK;
}

static int by_size(const void *a, const void *b)
{
    const rg_claim *x = *(const rg_claim *const *)a, *y = *(const rg_claim *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : 1; /* the same order everywhere */
}

static int by_offset(const void *a, const void *b)
{
    const rg_claim *x = *(const rg_claim *const *)a, *y = *(const rg_claim *const *)b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : (x < y ? -1 : 1);
}

static bool meet(const rg_claim *a, const rg_claim *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest gap between the claims `placed`, in the order of offsets, that meet `claim`. */
static size_t lowest(const rg_claim *claim, rg_claim *const placed[], int32_t count, bool reuse)
{
    size_t at = 0;
    for (int32_t i = 0; i < count; i++) {
        if (reuse && !meet(claim, placed[i]))
            continue;
        if (at + claim->bytes <= placed[i]->offset)
            break;
        const size_t end = placed[i]->offset + placed[i]->bytes;
        at = end > at ? end : at;
    }
    return at;
}

rg_status rg_claims_place(rg_claim claims[], int32_t count, bool reuse, size_t *size)
{
    void *memory;
    *size = 0;
    if (count == 0)
        return RG_OK;
    RG_TRY(
        rg_allocate_zero(&rg_default_allocator, 2 * (size_t)count * sizeof(rg_claim *), &memory));
    rg_claim **order = memory, **placed = order + count;
    for (int32_t i = 0; i < count; i++) {
        claims[i].bytes = (claims[i].bytes + RG_ALIGNMENT - 1) / RG_ALIGNMENT * RG_ALIGNMENT;
        order[i] = &claims[i];
    }
    qsort(order, (size_t)count, sizeof order[0], by_size);
    for (int32_t i = 0; i < count; i++) {
        order[i]->offset = lowest(order[i], placed, i, reuse);
        const size_t end = order[i]->offset + order[i]->bytes;
        *size = end > *size ? end : *size;
        int32_t at = i; /* keeps `placed` in order */
        for (; at > 0 && by_offset(&placed[at - 1], &order[i]) > 0; at--)
            placed[at] = placed[at - 1];
        placed[at] = order[i];
    }
    rg_release(&rg_default_allocator, memory, 2 * (size_t)count * sizeof(rg_claim *));
    return RG_OK;
}
