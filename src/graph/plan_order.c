/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The order of the nodes of a plan. */
#include "graph/plan.h"

static const rg_allocator *const allocator = &rg_default_allocator;

typedef struct reading {
    rg_plan_draft *d;
    int32_t amount; /* added to the readers of each value, once for a node */
    int32_t waits;  /* for this node, which makes a value and has no step; else -1 */
    rg_value *seen[3 * RG_MAX_INPUTS];
    int32_t seen_count;
} reading;

static void visit_read(void *context, rg_value *value)
{
    reading *r = context;
    for (int32_t i = 0; i < r->seen_count; i++) {
        if (r->seen[i] == value)
            return;
    }
    r->seen[r->seen_count++] = value;
    r->d->readers[value->id] += r->amount;
    const rg_value *made = value; /* of a constant: what defines its shape */
    while (made->kind == RG_VALUE_CONSTANT)
        made = made->like;
    if (made->node != NULL && r->d->step_of[made->node->id] < 0)
        r->waits = made->node->id;
}

static void count_readers(rg_plan_draft *d, const rg_node *node, int32_t amount)
{
    reading r = { .d = d, .amount = amount, .waits = -1 };
    rg_node_each_read(node, visit_read, &r);
}

/* Who waits for what: lists through `next`, by the node that must have a step, and by the parameter
 * that others must have read. */
typedef struct waiting {
    int32_t *next, *for_node, *for_value;
    uint64_t *heap; /* nodes to look at: a round, and in it the index in the graph */
    size_t heap_count;
} waiting;

static void wait_for(waiting *w, int32_t *list, int32_t node)
{
    w->next[node] = *list;
    *list = node;
}

/* Whether all that the node reads is made, and all other readers of what it replaces are done; if
 * not, it waits for one of them. */
static bool is_ready(rg_plan_draft *d, waiting *w, const rg_node *node)
{
    reading r = { .d = d, .waits = -1 };
    rg_node_each_read(node, visit_read, &r);
    if (node->forward != NULL && d->step_of[node->forward->id] < 0)
        r.waits = node->forward->id;
    if (r.waits >= 0) {
        wait_for(w, &w->for_node[r.waits], node->id);
        return false;
    }
    for (int32_t i = 0; i < node->outputs; i++) {
        const rg_value *takes = node->out[i] != NULL ? d->takes[node->out[i]->id] : NULL;
        int32_t own = 0;
        for (int32_t k = 0; k < r.seen_count; k++)
            own |= r.seen[k] == takes;
        if (takes == NULL || d->readers[takes->id] == own)
            continue;
        wait_for(w, &w->for_value[takes->id], node->id);
        return false;
    }
    return true;
}

static void heap_push(waiting *w, uint64_t key)
{
    size_t at = w->heap_count++;
    for (; at > 0 && w->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = key;
}

static uint64_t heap_pop(waiting *w)
{
    const uint64_t least = w->heap[0], last = w->heap[--w->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->heap_count; at = child) {
        child += child + 1 < w->heap_count && w->heap[child + 1] < w->heap[child];
        if (w->heap[child] >= last)
            break;
        w->heap[at] = w->heap[child];
    }
    w->heap[at] = last;
    return least;
}

/* Re-examines the nodes that waited: in this round if they come after `key`, else in the next. */
static void wake(waiting *w, int32_t *list, uint64_t key)
{
    for (int32_t node = *list, next; node >= 0; node = next) {
        const uint64_t round = key >> 32, behind = (uint64_t)node > (key & UINT32_MAX);
        next = w->next[node];
        heap_push(w, (round + !behind) << 32 | (uint64_t)node);
    }
    *list = -1;
}

typedef struct waking {
    rg_plan_draft *d;
    waiting *w;
    uint64_t key;
} waking;

/* A value has one reader less: the only one left may be the node that overwrites it. */
static void wake_writer(void *context, rg_value *value)
{
    const waking *k = context;
    if (k->d->readers[value->id] <= 1)
        wake(k->w, &k->w->for_value[value->id], k->key);
}

static rg_status order_nodes(rg_plan_draft *d, waiting *w, const rg_node **order, int32_t *count)
{
    const rg_graph *graph = d->graph;
    int32_t all = 0;
    for (size_t v = 0; v < graph->values_count; v++)
        w->for_value[v] = -1;
    for (size_t n = 0; n < graph->nodes_count; n++) {
        d->step_of[n] = w->for_node[n] = -1;
        all += d->runs[n];
        if (!d->runs[n])
            continue;
        count_readers(d, graph->nodes[n], 1);
        heap_push(w, n);
    }
    for (*count = 0; w->heap_count > 0;) {
        const uint64_t key = heap_pop(w);
        const rg_node *node = graph->nodes[key & UINT32_MAX];
        if (!is_ready(d, w, node))
            continue;
        d->step_of[node->id] = *count;
        order[(*count)++] = node;
        count_readers(d, node, -1);
        waking k = { d, w, key };
        rg_node_each_read(node, wake_writer, &k);
        wake(w, &w->for_node[node->id], key);
    }
    size_t stuck = 0;
    while (*count < all && (!d->runs[stuck] || d->step_of[stuck] >= 0))
        stuck++;
    RG_CHECK(
        *count == all, RG_INVALID_ARGUMENT,
        "%s depends on itself: the parameter it assigns is read by a node that needs its result",
        graph->nodes[stuck]->label);
    return RG_OK;
}

rg_status rg_plan_order(rg_plan_draft *d, const rg_node **order, int32_t *count)
{
    const size_t nodes = d->graph->nodes_count, values = d->graph->values_count;
    waiting w = { .heap_count = 0 };
    rg_status status = rg_allocate_array(nodes, sizeof *w.next, &w.next);
    if (status == RG_OK)
        status = rg_allocate_array(nodes, sizeof *w.for_node, &w.for_node);
    if (status == RG_OK)
        status = rg_allocate_array(values, sizeof *w.for_value, &w.for_value);
    if (status == RG_OK)
        status = rg_allocate_array(nodes, sizeof *w.heap, &w.heap);
    if (status == RG_OK)
        status = order_nodes(d, &w, order, count);
    rg_release(allocator, w.next, nodes * sizeof *w.next);
    rg_release(allocator, w.for_node, nodes * sizeof *w.for_node);
    rg_release(allocator, w.for_value, values * sizeof *w.for_value);
    rg_release(allocator, w.heap, nodes * sizeof *w.heap);
    return status;
}
