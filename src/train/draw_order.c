/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One side of a drawing: the order within rows by barycentres, then x by least squares. */
#include "train/draw_work.h"

#include <math.h>
#include <string.h>

enum {
    ORDER_SWEEPS = 12,
    PLACE_SWEEPS = 24,
    GAP = 22,           /* pixels between neighbours in a row */
    COUNTED_LINKS = 600 /* more between two rows are not counted: it takes their square */
};

/* ---- the order within rows ---- */

static void set_positions(rg_draw_side *s)
{
    for (int32_t row = 0; row < s->rows; row++) {
        for (int32_t i = s->row_start[row]; i < s->row_start[row + 1]; i++)
            s->position[s->order[i]] = i - s->row_start[row];
    }
}

static int64_t count_crossings(const rg_draw_side *s)
{
    int64_t crossings = 0;
    for (int32_t row = 0; row < s->rows; row++) {
        const int32_t end = s->link_start[row + 1];
        for (int32_t a = s->link_start[row]; a < end; a++) {
            for (int32_t b = a + 1; b < end && b < a + COUNTED_LINKS; b++) {
                const int32_t top = s->position[s->links[a][0]] - s->position[s->links[b][0]];
                const int32_t low = s->position[s->links[a][1]] - s->position[s->links[b][1]];
                crossings += (top < 0 && low > 0) || (top > 0 && low < 0);
            }
        }
    }
    return crossings;
}

/* The keys of a row: the mean position of the neighbours above (`down`) or below; an item without
 * neighbours keeps its own. */
static void set_keys(rg_draw_side *s, int32_t row, bool down)
{
    for (int32_t i = s->row_start[row]; i < s->row_start[row + 1]; i++) {
        s->items[s->order[i]].key = 0;
        s->items[s->order[i]].x = 0; /* here: how many neighbours */
    }
    const int32_t upper = down ? row - 1 : row;
    for (int32_t k = s->link_start[upper]; k < s->link_start[upper + 1]; k++) {
        rg_draw_item *item = &s->items[s->links[k][down ? 1 : 0]];
        item->key += s->position[s->links[k][down ? 0 : 1]];
        item->x += 1;
    }
    for (int32_t i = s->row_start[row]; i < s->row_start[row + 1]; i++) {
        rg_draw_item *item = &s->items[s->order[i]];
        item->key = item->x > 0 ? item->key / item->x : i - s->row_start[row];
    }
}

/* Insertion sort: rows are short and nearly sorted, and equal keys keep their order. */
static void sort_row(rg_draw_side *s, int32_t row)
{
    int32_t *order = s->order + s->row_start[row];
    const int32_t count = s->row_start[row + 1] - s->row_start[row];
    for (int32_t i = 1; i < count; i++) {
        const int32_t item = order[i];
        int32_t at = i;
        for (; at > 0 && s->items[order[at - 1]].key > s->items[item].key; at--)
            order[at] = order[at - 1];
        order[at] = item;
    }
}

static void sweep_order(rg_draw_side *s, bool down)
{
    for (int32_t i = 1; i < s->rows; i++) {
        const int32_t row = down ? i : s->rows - 1 - i;
        set_keys(s, row, down);
        sort_row(s, row);
        for (int32_t k = s->row_start[row]; k < s->row_start[row + 1]; k++)
            s->position[s->order[k]] = k - s->row_start[row];
    }
}

static void order_rows(rg_draw_side *s)
{
    const size_t bytes = (size_t)s->item_count * sizeof *s->order;
    set_positions(s);
    memcpy(s->best, s->order, bytes);
    int64_t fewest = count_crossings(s);
    for (int i = 0; i < ORDER_SWEEPS && fewest > 0; i++) {
        sweep_order(s, i % 2 == 0);
        const int64_t crossings = count_crossings(s);
        if (crossings < fewest) {
            fewest = crossings;
            memcpy(s->best, s->order, bytes);
        }
    }
    memcpy(s->order, s->best, bytes);
    set_positions(s);
}

/* ---- x ---- */

/* The smallest distance between the centres of two neighbours. */
static double apart(const rg_draw_item *a, const rg_draw_item *b)
{
    const double gap = a->node < 0 && b->node < 0 ? GAP / 2.0 : GAP;
    return a->right + gap + b->left;
}

/* Puts the items of a row as near to their keys as their widths allow: the weighted sum of squared
 * distances is least. Runs of items that touch move as one; a run that would overlap the one
 * before joins it (pool adjacent violators). `run_of` holds, per position, where its run begins. */
static void place_row(rg_draw_side *s, int32_t row, int32_t *run_of)
{
    const int32_t *order = s->order + s->row_start[row];
    const int32_t count = s->row_start[row + 1] - s->row_start[row];
    double offset = 0; /* of an item in a row where all touch; x is wanted relative to it */
    for (int32_t i = 0; i < count; i++) {
        rg_draw_item *item = &s->items[order[i]];
        if (i > 0)
            offset += apart(&s->items[order[i - 1]], item);
        double weight = item->weight, sum = weight * (item->key - offset);
        int32_t begin = i;
        while (begin > 0 && s->items[order[begin - 1]].x >= sum / weight) {
            const int32_t before = run_of[begin - 1];
            for (begin--; begin >= before; begin--) {
                sum += s->items[order[begin]].weight * s->items[order[begin]].x;
                weight += s->items[order[begin]].weight;
            }
            begin = before;
        }
        for (int32_t k = begin; k <= i; k++) {
            run_of[k] = begin;
            s->items[order[k]].x = sum / weight;
        }
    }
    offset = 0;
    for (int32_t i = 0; i < count; i++) {
        if (i > 0)
            offset += apart(&s->items[order[i - 1]], &s->items[order[i]]);
        s->items[order[i]].x += offset;
    }
}

/* Adds what the links below row `upper` want: of the lower items, or of the upper ones. Lines that
 * pass weigh more, so that they are straight. */
static void pull(rg_draw_side *s, int32_t upper, bool lower, double *weights)
{
    for (int32_t k = s->link_start[upper]; k < s->link_start[upper + 1]; k++) {
        const int32_t item = s->links[k][lower ? 1 : 0], other = s->links[k][lower ? 0 : 1];
        const bool passes = s->items[item].node < 0 && s->items[other].node < 0;
        const double weight = passes ? 8 : s->items[other].weight;
        s->items[item].key += weight * s->items[other].x;
        weights[item] += weight;
    }
}

/* The keys of a row become the mean x of the neighbours above, below, or both. */
static void want_x(rg_draw_side *s, int32_t row, bool above, bool below, double *weights)
{
    for (int32_t i = s->row_start[row]; i < s->row_start[row + 1]; i++)
        s->items[s->order[i]].key = weights[s->order[i]] = 0;
    if (above && row > 0)
        pull(s, row - 1, true, weights);
    if (below)
        pull(s, row, false, weights);
    for (int32_t i = s->row_start[row]; i < s->row_start[row + 1]; i++) {
        rg_draw_item *item = &s->items[s->order[i]];
        const double weight = weights[s->order[i]];
        item->key = weight > 0 ? item->key / weight : item->x;
    }
}

static void place_items(rg_draw_side *s, double *weights, int32_t *run_of)
{
    for (int32_t i = 0; i < s->item_count; i++)
        s->items[i].x = s->items[i].key = 0;
    for (int32_t row = 0; row < s->rows; row++)
        place_row(s, row, run_of);
    for (int i = 0; i < PLACE_SWEEPS; i++) {
        const bool last = i >= PLACE_SWEEPS - 4;
        for (int32_t k = 0; k < s->rows; k++) {
            const int32_t row = i % 2 == 0 ? k : s->rows - 1 - k;
            want_x(s, row, last || i % 2 == 0, last || i % 2 == 1, weights);
            place_row(s, row, run_of);
        }
    }
}

double rg_draw_side_arrange(rg_draw_side *side)
{
    if (side->item_count == 0)
        return 0;
    order_rows(side);
    place_items(side, side->weights, side->best);
    double low = INFINITY, high = -INFINITY;
    for (int32_t i = 0; i < side->item_count; i++) {
        low = fmin(low, side->items[i].x - side->items[i].left);
        high = fmax(high, side->items[i].x + side->items[i].right);
    }
    for (int32_t i = 0; i < side->item_count; i++)
        side->items[i].x -= low;
    return high - low;
}
