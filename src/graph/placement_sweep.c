/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Offsets for very many claims: one walk along the steps, each claim in the lowest gap at its time.
 *
 * Gaps form a treap, a search tree by offset whose random priorities keep it flat; each node knows
 * the largest gap below it, so the lowest one that is large enough is found on the way down. */
#include "graph/plan.h"

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* Free bytes from `offset` on, up to the next claim. Nodes are numbers; 0 stands for none. */
typedef struct gap {
    size_t offset, bytes;
    size_t most; /* bytes of the largest gap in this subtree */
    uint32_t priority, left, right;
} gap;

typedef struct gaps {
    gap *nodes;
    uint32_t root, unused; /* unused nodes: a list through `left` */
} gaps;

/* ---- the treap ---- */

static void refresh(gap *nodes, uint32_t n)
{
    const size_t left = nodes[nodes[n].left].most, right = nodes[nodes[n].right].most;
    nodes[n].most = nodes[n].bytes > left ? nodes[n].bytes : left;
    nodes[n].most = right > nodes[n].most ? right : nodes[n].most;
}

/* All of `a` lies below all of `b`. */
static uint32_t merge(gap *nodes, uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0)
        return a != 0 ? a : b;
    if (nodes[a].priority > nodes[b].priority) {
        nodes[a].right = merge(nodes, nodes[a].right, b);
        refresh(nodes, a);
        return a;
    }
    nodes[b].left = merge(nodes, a, nodes[b].left);
    refresh(nodes, b);
    return b;
}

/* Gaps below `offset`, and the others. */
static void split(gap *nodes, uint32_t n, size_t offset, uint32_t *below, uint32_t *above)
{
    if (n == 0) {
        *below = *above = 0;
        return;
    }
    if (nodes[n].offset < offset) {
        split(nodes, nodes[n].right, offset, &nodes[n].right, above);
        *below = n;
    } else {
        split(nodes, nodes[n].left, offset, below, &nodes[n].left);
        *above = n;
    }
    refresh(nodes, n);
}

static uint32_t new_node(gaps *g, size_t offset, size_t bytes)
{
    const uint32_t n = g->unused;
    g->unused = g->nodes[n].left;
    g->nodes[n].offset = offset;
    g->nodes[n].bytes = g->nodes[n].most = bytes;
    g->nodes[n].left = g->nodes[n].right = 0;
    return n;
}

static void free_node(gaps *g, uint32_t n)
{
    g->nodes[n] = (gap){ .priority = g->nodes[n].priority, .left = g->unused };
    g->unused = n;
}

/* Takes `bytes` from the front of the lowest gap below node `n` that has them; returns the node in
 * its place. */
static uint32_t take(gaps *g, uint32_t n, size_t bytes, size_t *offset)
{
    gap *node = &g->nodes[n];
    if (g->nodes[node->left].most >= bytes) {
        node->left = take(g, node->left, bytes, offset);
    } else if (node->bytes >= bytes) {
        *offset = node->offset;
        node->offset += bytes;
        node->bytes -= bytes;
        if (node->bytes == 0) {
            const uint32_t rest = merge(g->nodes, node->left, node->right);
            free_node(g, n);
            return rest;
        }
    } else {
        node->right = take(g, node->right, bytes, offset);
    }
    refresh(g->nodes, n);
    return n;
}

/* Gives bytes back, which become one with the gaps at both ends. */
static void give(gaps *g, size_t offset, size_t bytes)
{
    gap *nodes = g->nodes;
    uint32_t below, above, last = 0, next = 0;
    split(nodes, g->root, offset, &below, &above);
    for (uint32_t n = below; n != 0; n = nodes[n].right)
        last = n;
    for (uint32_t n = above; n != 0; n = nodes[n].left)
        next = n;
    if (last != 0 && nodes[last].offset + nodes[last].bytes == offset) {
        uint32_t rest;
        offset = nodes[last].offset;
        bytes += nodes[last].bytes;
        split(nodes, below, offset, &below, &rest);
        free_node(g, rest);
    }
    if (next != 0 && nodes[next].offset == offset + bytes) {
        uint32_t rest;
        bytes += nodes[next].bytes;
        split(nodes, above, nodes[next].offset + 1, &rest, &above);
        free_node(g, rest);
    }
    g->root = merge(nodes, merge(nodes, below, new_node(g, offset, bytes)), above);
}

static void reset(gaps *g, uint32_t count)
{
    uint32_t random = 1;
    g->unused = 0;
    for (uint32_t n = count; n > 0; n--) {
        random = random * 1664525u + 1013904223u;
        g->nodes[n] = (gap){ .priority = random, .left = g->unused };
        g->unused = n;
    }
    g->root = new_node(g, 0, SIZE_MAX / 2);
}

/* ---- the walk ---- */

static int by_first(const void *a, const void *b)
{
    const rg_claim *x = *(const rg_claim *const *)a, *y = *(const rg_claim *const *)b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : 1; /* the same order everywhere */
}

static int by_last(const void *a, const void *b)
{
    const rg_claim *x = *(const rg_claim *const *)a, *y = *(const rg_claim *const *)b;
    return x->last != y->last ? (x->last < y->last ? -1 : 1) : (x < y ? -1 : 1);
}

/* `order` and `ends` hold all claims. */
static size_t walk(rg_claim **order, rg_claim **ends, int32_t count, gaps *g)
{
    size_t size = 0;
    int32_t ended = 0;
    reset(g, (uint32_t)count + 2);
    qsort(order, (size_t)count, sizeof order[0], by_first);
    qsort(ends, (size_t)count, sizeof ends[0], by_last);
    for (int32_t i = 0; i < count; i++) {
        for (; ends[ended]->last < order[i]->first; ended++) {
            if (ends[ended]->bytes > 0)
                give(g, ends[ended]->offset, ends[ended]->bytes);
        }
        order[i]->offset = 0;
        if (order[i]->bytes > 0)
            g->root = take(g, g->root, order[i]->bytes, &order[i]->offset);
        const size_t end = order[i]->offset + order[i]->bytes;
        size = end > size ? end : size;
    }
    return size;
}

/* Time backwards. */
static void mirror(rg_claim claims[], int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const int32_t first = claims[i].first;
        claims[i].first = -claims[i].last;
        claims[i].last = -first;
    }
}

rg_status rg_claims_sweep(rg_claim claims[], int32_t count, size_t *size)
{
    rg_claim **order = NULL;
    gaps g = { .nodes = NULL };
    const size_t all = (size_t)count;
    rg_status status = rg_allocate_array(2 * all, sizeof *order, &order);
    if (status == RG_OK)
        status = rg_allocate_array(all + 3, sizeof *g.nodes, &g.nodes);
    if (status == RG_OK) {
        for (int32_t i = 0; i < count; i++)
            order[i] = order[count + i] = &claims[i];
        *size = walk(order, order + count, count, &g);
        for (int32_t i = 0; i < count; i++)
            claims[i].best = claims[i].offset;
        mirror(claims, count);
        const size_t backwards = walk(order, order + count, count, &g);
        mirror(claims, count);
        for (int32_t i = 0; i < count && *size <= backwards; i++)
            claims[i].offset = claims[i].best;
        *size = backwards < *size ? backwards : *size;
    }
    rg_release(allocator, order, 2 * all * sizeof *order);
    rg_release(allocator, g.nodes, (all + 3) * sizeof *g.nodes);
    return status;
}
