/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The layout of a drawing. Forward nodes stand on the left, each in the row of its longest path
 * from a source; the gradient of a node stands in the same row on the right, so that it runs
 * upwards. Parameters stand to the left of the first node that reads them, updates to the right of
 * the gradient they use. */
#include "train/draw_work.h"
#include "core/memory.h"
#include "train/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BOX_HEIGHT = 44,
    SMALL_HEIGHT = 22,
    SMALL_STEP = 26, /* from one small box to the next below it */
    ROW_GAP = 40,    /* with the shapes beside the lines */
    BESIDE = 22,     /* between a box and the small boxes beside it */
    GUTTER = 96,     /* between the two sides */
    LEGEND_HEIGHT = 34,
    MOST_PASSES = 8000 /* places where long lines pass; further lines go straight */
};

/* ---- memory ---- */

typedef struct layout_block {
    struct layout_block *next;
    size_t size;
} layout_block;

void *rg_draw_take(rg_draw_layout *layout, int64_t count, size_t element)
{
    size_t bytes;
    void *block;
    if (!rg_multiply((size_t)count, element, &bytes) || bytes > SIZE_MAX - RG_ALIGNMENT) {
        rg_fail(RG_OUT_OF_MEMORY, "the drawing has too many nodes to fit in memory");
        return NULL;
    }
    if (rg_allocate_zero(&rg_default_allocator, bytes + RG_ALIGNMENT, &block) != RG_OK)
        return NULL;
    *(layout_block *)block = (layout_block){ layout->blocks, bytes + RG_ALIGNMENT };
    layout->blocks = block;
    return (char *)block + RG_ALIGNMENT;
}

void rg_draw_layout_clear(rg_draw_layout *layout)
{
    for (layout_block *block = layout->blocks, *next; block != NULL; block = next) {
        next = block->next;
        rg_release(&rg_default_allocator, block, block->size);
    }
    *layout = (rg_draw_layout){ 0 };
}

/* ---- sizes ---- */

static double text_width(const char *text, double per_character, size_t most)
{
    const size_t width = rg_page_width(text, most);
    return per_character * (double)(width < most + 1 ? width : most + 1);
}

static void size_boxes(rg_draw_work *work)
{
    const rg_drawing *d = work->drawing;
    for (int32_t i = 0; i < d->node_count; i++) {
        rg_draw_box *box = &work->layout->boxes[i];
        const rg_draw_node *node = &d->nodes[i];
        box->small = work->positions[i].side == RG_DRAW_NO_SIDE;
        const double title = text_width(node->label, 7.4, RG_DRAW_LABEL);
        const double more = text_width(node->op, 6.2, RG_DRAW_LABEL) + 14 +
                            text_width(node->text, 6.2, RG_DRAW_TEXT);
        box->height = box->small ? SMALL_HEIGHT : BOX_HEIGHT;
        box->width = box->small ? title * 0.9 + 18 : fmax(fmax(title, more) + 24, 92);
        if (box->small) {
            rg_draw_position *host = &work->positions[work->positions[i].host];
            host->beside_width = fmax(host->beside_width, box->width);
        }
    }
}

/* ---- the two sides ---- */

static int32_t passes_of(const rg_draw_work *work, const rg_draw_edge *edge)
{
    for (int side = RG_DRAW_LEFT; side <= RG_DRAW_RIGHT; side++) {
        if (rg_draw_edge_is_on(work, edge, (rg_draw_side_name)side)) {
            const int32_t rows =
                abs(work->positions[edge->from].row - work->positions[edge->to].row);
            return rows > 1 ? rows - 1 : 0;
        }
    }
    return 0;
}

static rg_status take_sides(rg_draw_work *work)
{
    const rg_drawing *d = work->drawing;
    int32_t passes = 0;
    for (int32_t k = 0; k < d->edge_count; k++) {
        const int32_t count = passes_of(work, &d->edges[k]);
        work->pass_count[k] = passes + count <= MOST_PASSES ? count : 0;
        passes += work->pass_count[k];
    }
    for (int side = RG_DRAW_LEFT; side <= RG_DRAW_RIGHT; side++) {
        rg_draw_side *s = &work->sides[side];
        const int32_t most = d->node_count + passes + 1;
        s->rows = work->rows;
        RG_TRY(RG_DRAW_TAKE(work->layout, most, &s->items));
        RG_TRY(RG_DRAW_TAKE(work->layout, most, &s->order));
        RG_TRY(RG_DRAW_TAKE(work->layout, most, &s->position));
        RG_TRY(RG_DRAW_TAKE(work->layout, most, &s->best));
        RG_TRY(RG_DRAW_TAKE(work->layout, most, &s->weights));
        RG_TRY(RG_DRAW_TAKE(work->layout, work->rows + 1, &s->row_start));
        RG_TRY(RG_DRAW_TAKE(work->layout, work->rows + 1, &s->link_start));
        RG_TRY(RG_DRAW_TAKE(work->layout, d->edge_count + passes + 1, &s->links));
    }
    return RG_OK;
}

static void add_items(rg_draw_work *work)
{
    const rg_drawing *d = work->drawing;
    for (int32_t i = 0; i < d->node_count; i++) {
        rg_draw_position *p = &work->positions[i];
        if (p->side == RG_DRAW_NO_SIDE)
            continue;
        rg_draw_side *s = &work->sides[p->side];
        const double half = work->layout->boxes[i].width / 2;
        const double beside = p->beside > 0 ? p->beside_width + BESIDE : 0;
        p->item = s->item_count;
        s->items[s->item_count++] = (rg_draw_item){
            .node = i,
            .row = p->row,
            .weight = d->nodes[i].source || d->nodes[i].parameter ? 0.02 : 1,
            .left = half + (p->side == RG_DRAW_LEFT ? beside : 0),
            .right = half + (p->side == RG_DRAW_RIGHT ? beside : 0),
        };
    }
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (work->pass_count[k] == 0)
            continue;
        const rg_draw_position *from = &work->positions[d->edges[k].from],
                               *to = &work->positions[d->edges[k].to];
        rg_draw_side *s = &work->sides[from->side];
        work->first_pass[k] = s->item_count;
        for (int32_t i = 1; i <= work->pass_count[k]; i++)
            s->items[s->item_count++] =
                (rg_draw_item){ .node = -1,
                                .row = from->row + (to->row > from->row ? i : -i),
                                .weight = 1,
                                .left = 5,
                                .right = 5 };
    }
}

/* Calls for every pair of items in neighbouring rows that edge k joins. */
static void each_link(const rg_draw_work *work, int32_t k,
                      void (*call)(rg_draw_side *, int32_t, int32_t), rg_draw_side *s)
{
    const rg_draw_edge *edge = &work->drawing->edges[k];
    const rg_draw_position *from = &work->positions[edge->from], *to = &work->positions[edge->to];
    const int32_t passes = work->pass_count[k];
    if (passes == 0 && abs(from->row - to->row) != 1)
        return;
    for (int32_t i = 0; i <= passes; i++) {
        const int32_t a = i == 0 ? from->item : work->first_pass[k] + i - 1;
        const int32_t b = i == passes ? to->item : work->first_pass[k] + i;
        if (from->row < to->row)
            call(s, a, b);
        else
            call(s, b, a);
    }
}

static void count_link(rg_draw_side *s, int32_t upper, int32_t lower)
{
    (void)lower;
    s->link_start[s->items[upper].row + 1]++;
}

static void add_link(rg_draw_side *s, int32_t upper, int32_t lower)
{
    const int32_t at = s->best[s->items[upper].row]++; /* here: the next free link of the row */
    s->links[at][0] = upper;
    s->links[at][1] = lower;
}

static void fill_side(rg_draw_work *work, rg_draw_side_name side)
{
    rg_draw_side *s = &work->sides[side];
    const rg_drawing *d = work->drawing;
    for (int32_t i = 0; i < s->item_count; i++)
        s->row_start[s->items[i].row + 1]++;
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (rg_draw_edge_is_on(work, &d->edges[k], side))
            each_link(work, k, count_link, s);
    }
    for (int32_t row = 0; row < s->rows; row++) {
        s->row_start[row + 1] += s->row_start[row];
        s->link_start[row + 1] += s->link_start[row];
    }
    memcpy(work->queue, s->row_start, (size_t)s->rows * sizeof *work->queue);
    for (int32_t i = 0; i < s->item_count; i++)
        s->order[work->queue[s->items[i].row]++] = i;
    memcpy(work->queue, s->link_start, (size_t)s->rows * sizeof *work->queue);
    int32_t *best = s->best;
    s->best = work->queue;
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (rg_draw_edge_is_on(work, &d->edges[k], side))
            each_link(work, k, add_link, s);
    }
    s->best = best;
}

/* ---- coordinates ---- */

static double row_height(const rg_draw_work *work, int32_t row)
{
    double height = BOX_HEIGHT;
    for (int32_t i = 0; i < work->drawing->node_count; i++) {
        const rg_draw_position *p = &work->positions[i];
        if (p->side != RG_DRAW_NO_SIDE && p->row == row)
            height = fmax(height, (double)p->beside * SMALL_STEP);
    }
    return height;
}

static void set_boxes(rg_draw_work *work, double right_side)
{
    const rg_drawing *d = work->drawing;
    double y = RG_DRAW_MARGIN + LEGEND_HEIGHT;
    for (int32_t row = 0; row < work->rows; row++) {
        const double height = row_height(work, row);
        work->row_y[row] = y + height / 2;
        y += height + ROW_GAP;
    }
    work->layout->height = y - ROW_GAP + RG_DRAW_MARGIN;
    for (int32_t i = 0; i < d->node_count; i++) {
        const rg_draw_position *p = &work->positions[i];
        if (p->side == RG_DRAW_NO_SIDE)
            continue;
        work->layout->boxes[i].x = work->sides[p->side].items[p->item].x +
                                   (p->side == RG_DRAW_LEFT ? RG_DRAW_MARGIN : right_side);
        work->layout->boxes[i].y = work->row_y[p->row];
    }
    for (int32_t i = 0; i < d->node_count; i++) {
        const rg_draw_position *p = &work->positions[i];
        if (p->side != RG_DRAW_NO_SIDE)
            continue;
        const rg_draw_position *host = &work->positions[p->host];
        rg_draw_box *box = &work->layout->boxes[i];
        const rg_draw_box *beside = &work->layout->boxes[p->host];
        const double away = beside->width / 2 + BESIDE + box->width / 2;
        box->x = beside->x + (host->side == RG_DRAW_LEFT ? -away : away);
        box->y = beside->y + (p->index - (host->beside - 1) / 2.0) * SMALL_STEP;
    }
}

/* ---- entry point ---- */

static rg_status make(rg_draw_work *work)
{
    const rg_drawing *d = work->drawing;
    rg_draw_layout *layout = work->layout;
    RG_TRY(RG_DRAW_TAKE(layout, d->node_count + 1, &layout->boxes));
    RG_TRY(RG_DRAW_TAKE(layout, d->edge_count + 1, &layout->routes));
    RG_TRY(RG_DRAW_TAKE(layout, d->node_count + 1, &work->positions));
    RG_TRY(RG_DRAW_TAKE(layout, 2 * (int64_t)d->node_count + 2, &work->queue));
    RG_TRY(RG_DRAW_TAKE(layout, d->edge_count + 1, &work->first_pass));
    RG_TRY(RG_DRAW_TAKE(layout, d->edge_count + 1, &work->pass_count));
    rg_draw_choose_hosts(work);
    rg_draw_set_rows(work);
    RG_TRY(RG_DRAW_TAKE(layout, work->rows + 1, &work->row_y));
    size_boxes(work);
    RG_TRY(take_sides(work));
    add_items(work);
    fill_side(work, RG_DRAW_LEFT);
    fill_side(work, RG_DRAW_RIGHT);
    const double left = rg_draw_side_arrange(&work->sides[RG_DRAW_LEFT]);
    const double right = rg_draw_side_arrange(&work->sides[RG_DRAW_RIGHT]);
    const double right_side = RG_DRAW_MARGIN + left + (left > 0 && right > 0 ? GUTTER : 0);
    layout->width = fmax(right_side + right + RG_DRAW_MARGIN, 440);
    set_boxes(work, right_side);
    return rg_draw_make_routes(work);
}

rg_status rg_draw_layout_make(const rg_drawing *drawing, rg_draw_layout *layout)
{
    *layout = (rg_draw_layout){ 0 };
    RG_CHECK(drawing->node_count >= 0 && drawing->edge_count >= 0, RG_INVALID_ARGUMENT,
             "invalid drawing: %d nodes and %d edges", drawing->node_count, drawing->edge_count);
    RG_CHECK(drawing->node_count <= RG_DRAW_NODES && drawing->edge_count <= RG_DRAW_EDGES,
             RG_UNSUPPORTED,
             "a drawing of %d nodes and %d edges is too large for SVG, which is limited to %d and "
             "%d; use DOT instead",
             drawing->node_count, drawing->edge_count, RG_DRAW_NODES, RG_DRAW_EDGES);
    rg_draw_work work = { .drawing = drawing, .layout = layout };
    const rg_status status = make(&work);
    if (status != RG_OK)
        rg_draw_layout_clear(layout);
    return status;
}
