/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Storage reuse: each claim gets the lowest offset that is free during its time. The order of
 * claims is changed as long as the storage shrinks. */
#include "graph/plan.h"

#include <stdlib.h>

/* ---- the largest sum ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + RG_ALIGNMENT - 1) / RG_ALIGNMENT * RG_ALIGNMENT;
}

rg_status rg_claims_bound(const rg_claim claims[], int32_t count, int32_t steps, size_t *size,
                          int32_t *at)
{
    size_t *change = NULL, sum = 0; /* what is added, modulo 2^64, from a step to the next */
    const size_t capacity = (size_t)steps + 2;
    *size = 0;
    *at = 0;
    RG_TRY(rg_allocate_array(capacity, sizeof *change, &change));
    for (int32_t i = 0; i < count; i++) {
        const int32_t first = claims[i].first > 0 ? claims[i].first : 0;
        const int32_t last = claims[i].last < steps ? claims[i].last : steps;
        change[first] += rounded(claims[i].bytes);
        change[last + 1] -= rounded(claims[i].bytes);
    }
    for (int32_t s = 0; s <= steps; s++) {
        sum += change[s];
        if (sum > *size) {
            *size = sum;
            *at = s;
        }
    }
    rg_release(&rg_default_allocator, change, capacity * sizeof *change);
    return RG_OK;
}

/* ---- offsets ---- */

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
static size_t lowest(const rg_claim *claim, rg_claim *const placed[], int32_t count)
{
    size_t at = 0;
    for (int32_t i = 0; i < count; i++) {
        if (!meet(claim, placed[i]))
            continue;
        if (at + claim->bytes <= placed[i]->offset)
            break;
        const size_t end = placed[i]->offset + placed[i]->bytes;
        at = end > at ? end : at;
    }
    return at;
}

/* Places all claims in the order `order`; returns the size, and the claim that reaches it. */
static size_t place_all(rg_claim *const order[], rg_claim *placed[], int32_t count, int32_t *top)
{
    size_t size = 0;
    *top = 0;
    for (int32_t i = 0; i < count; i++) {
        order[i]->offset = lowest(order[i], placed, i);
        const size_t end = order[i]->offset + order[i]->bytes;
        if (end > size) {
            size = end;
            *top = i;
        }
        int32_t at = i; /* keeps `placed` in order */
        for (; at > 0 && by_offset(&placed[at - 1], &order[i]) > 0; at--)
            placed[at] = placed[at - 1];
        placed[at] = order[i];
    }
    return size;
}

/* Tries large claims first; then, until the lower bound is reached, puts the claim at the top
 * before all others. Keeps the best order. */
static size_t search(rg_claim *order[], rg_claim *placed[], int32_t count, size_t bound)
{
    enum { TRIES = 40 };
    size_t best = SIZE_MAX;
    for (int32_t i = 0; i < TRIES && best > bound; i++) {
        int32_t top;
        const size_t size = place_all(order, placed, count, &top);
        if (size < best) {
            best = size;
            for (int32_t k = 0; k < count; k++)
                placed[k]->best = placed[k]->offset;
        }
        rg_claim *const claim = order[top];
        memmove(order + 1, order, (size_t)top * sizeof order[0]);
        order[0] = claim;
    }
    for (int32_t k = 0; k < count; k++)
        order[k]->offset = order[k]->best;
    return count > 0 ? best : 0;
}

/* Each claim after the one before, the large ones first. */
static size_t place_apart(rg_claim *const order[], int32_t count)
{
    size_t size = 0;
    for (int32_t i = 0; i < count; i++) {
        order[i]->offset = order[i]->bytes > 0 ? size : 0;
        size += order[i]->bytes;
    }
    return size;
}

static rg_status place(rg_claim claims[], int32_t count, int32_t steps, bool reuse, size_t *size)
{
    enum { MAX_CLAIMS_SEARCHED = 4096 }; /* a search takes time with the square of the claims */
    rg_claim **order = NULL;
    size_t bound = 0;
    int32_t at;
    if (reuse && count > MAX_CLAIMS_SEARCHED)
        return rg_claims_sweep(claims, count, size);
    RG_TRY(rg_allocate_array(2 * (size_t)count, sizeof *order, &order));
    for (int32_t i = 0; i < count; i++)
        order[i] = &claims[i];
    qsort(order, (size_t)count, sizeof order[0], by_size);
    const rg_status status = rg_claims_bound(claims, count, steps, &bound, &at);
    if (status == RG_OK)
        *size = reuse ? search(order, order + count, count, bound) : place_apart(order, count);
    rg_release(&rg_default_allocator, order, 2 * (size_t)count * sizeof *order);
    return status;
}

rg_status rg_claims_place(rg_claim claims[], int32_t count, bool reuse, size_t *size)
{
    int32_t steps = 0;
    *size = 0;
    for (int32_t i = 0; i < count; i++) {
        claims[i].bytes = rounded(claims[i].bytes);
        steps = claims[i].last > steps ? claims[i].last : steps;
    }
    return count > 0 ? place(claims, count, steps, reuse, size) : RG_OK;
}
