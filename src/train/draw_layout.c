/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The layout of a drawing. Forward nodes stand on the left, each in the row of its longest path
 * from a source; the gradient of a node stands in the same row on the right, so that it runs
 * upwards. Parameters stand to the left of the first node that reads them, updates to the right of
 * the gradient they use. */
#include "train/draw_layout.h"
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
    MARGIN = 16,
    LEGEND_HEIGHT = 34,
    MOST_PASSES = 8000 /* places where long lines pass; further lines go straight */
};

enum side_name { LEFT, RIGHT, NO_SIDE };

/* What is known of a node on the way. */
typedef struct place {
    enum side_name side; /* NO_SIDE: stands beside `host` */
    int32_t host;
    int32_t row, item;
    int32_t beside;      /* how many small boxes stand at its side */
    double beside_width; /* of the widest */
    int32_t index;       /* of a small box: from the top */
    int32_t waiting;     /* edges not yet followed */
    bool done;
} place;

typedef struct maker {
    const rg_drawing *drawing;
    rg_draw_layout *layout;
    place *places;
    int32_t *queue;
    int32_t rows;
    rg_draw_side sides[2];
    int32_t *first_pass, *pass_count; /* of each edge: items of its side */
    double *row_y;
} maker;

/* ---- memory ---- */

typedef struct layout_block {
    struct layout_block *next;
    size_t size;
} layout_block;

/* Memory that is all zero and lives as long as the layout; NULL, with a sentence, if there is none.
 */
static void *take(rg_draw_layout *layout, int64_t count, size_t element)
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

#define TAKE(layout, count, pointer) \
    ((*(pointer) = take(layout, count, sizeof **(pointer))) != NULL ? RG_OK : RG_OUT_OF_MEMORY)

void rg_draw_layout_clear(rg_draw_layout *layout)
{
    for (layout_block *block = layout->blocks, *next; block != NULL; block = next) {
        next = block->next;
        rg_release(&rg_default_allocator, block, block->size);
    }
    *layout = (rg_draw_layout){ 0 };
}

/* ---- who stands where ---- */

static bool edge_is_whole(const rg_drawing *d, const rg_draw_edge *edge)
{
    return edge->from >= 0 && edge->from < d->node_count && edge->to >= 0 &&
           edge->to < d->node_count && edge->from != edge->to;
}

/* Parameters and updates find the box they stand beside; without one they get a box of their own.
 */
static void choose_hosts(maker *m)
{
    const rg_drawing *d = m->drawing;
    for (int32_t i = 0; i < d->node_count; i++) {
        m->places[i].side = d->nodes[i].kind == RG_DRAW_FORWARD ? LEFT : RIGHT;
        m->places[i].host = -1;
    }
    for (int32_t k = 0; k < d->edge_count; k++) {
        const rg_draw_edge *edge = &d->edges[k];
        if (!edge_is_whole(d, edge))
            continue;
        const rg_draw_node *from = &d->nodes[edge->from], *to = &d->nodes[edge->to];
        place *reader = &m->places[edge->to];
        if (from->parameter && from->kind == RG_DRAW_FORWARD && to->kind == RG_DRAW_FORWARD &&
            !to->parameter && m->places[edge->from].host < 0)
            m->places[edge->from].host = edge->to;
        if (to->kind == RG_DRAW_UPDATE && from->kind == RG_DRAW_GRADIENT && reader->host < 0)
            reader->host = edge->from;
    }
    for (int32_t i = 0; i < d->node_count; i++) {
        if (m->places[i].host < 0)
            continue;
        place *host = &m->places[m->places[i].host];
        m->places[i].side = NO_SIDE;
        m->places[i].index = host->beside++;
    }
}

/* Whether an edge runs between two boxes of this side. */
static bool edge_is_on(const maker *m, const rg_draw_edge *edge, enum side_name side)
{
    return edge_is_whole(m->drawing, edge) && m->places[edge->from].side == side &&
           m->places[edge->to].side == side;
}

/* Rows by longest paths within a side: from 0 upwards. Where a circle leaves nothing that could be
 * next, the first node that waits is. */
static void set_levels(maker *m, enum side_name side)
{
    const rg_drawing *d = m->drawing;
    int32_t left = 0, head = 0, tail = 0, scan = 0;
    for (int32_t i = 0; i < d->node_count; i++) {
        m->places[i].waiting = 0;
        left += m->places[i].side == side;
    }
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (edge_is_on(m, &d->edges[k], side))
            m->places[d->edges[k].to].waiting++;
    }
    for (int32_t i = 0; i < d->node_count; i++) {
        if (m->places[i].side == side && m->places[i].waiting == 0) {
            m->queue[tail++] = i;
            m->places[i].done = true;
        }
    }
    while (head < left) {
        if (head == tail) {
            while (m->places[scan].side != side || m->places[scan].done)
                scan++;
            m->queue[tail++] = scan;
            m->places[scan].done = true;
        }
        const int32_t node = m->queue[head++];
        for (int32_t k = 0; k < d->edge_count; k++) {
            if (d->edges[k].from != node || !edge_is_on(m, &d->edges[k], side))
                continue;
            place *to = &m->places[d->edges[k].to];
            if (to->done)
                continue;
            to->row = to->row > m->places[node].row + 1 ? to->row : m->places[node].row + 1;
            if (--to->waiting == 0) {
                m->queue[tail++] = d->edges[k].to;
                to->done = true;
            }
        }
    }
}

/* A source moves down to just above the first that reads it. */
static void lower_sources(maker *m)
{
    const rg_drawing *d = m->drawing;
    for (int32_t i = 0; i < d->node_count; i++)
        m->queue[i] = INT32_MAX;
    for (int32_t k = 0; k < d->edge_count; k++) {
        const rg_draw_edge *edge = &d->edges[k];
        if (!edge_is_on(m, edge, LEFT))
            continue;
        const int32_t row = m->places[edge->to].row - 1;
        m->queue[edge->from] = m->queue[edge->from] < row ? m->queue[edge->from] : row;
        m->queue[edge->to] = -1; /* reads something: no source */
    }
    for (int32_t i = 0; i < d->node_count; i++) {
        if (m->places[i].side == LEFT && m->queue[i] != INT32_MAX && m->queue[i] > m->places[i].row)
            m->places[i].row = m->queue[i];
    }
}

/* Gradients stand beside what they belong to. One that belongs to nothing (a sum) stands above
 * those it reads; where nothing is known, the rows of the longest path run upwards from the last.
 */
static void mirror_gradients(maker *m, int32_t last)
{
    const rg_drawing *d = m->drawing;
    int32_t lowest = 0;
    for (int32_t i = 0; i < d->node_count; i++) {
        const int32_t of = d->nodes[i].of;
        place *p = &m->places[i];
        if (p->side != RIGHT)
            continue;
        if (of >= 0 && of < d->node_count && m->places[of].side == LEFT)
            p->row = m->places[of].row;
        else
            p->row = last - p->row;
        lowest = lowest < p->row ? lowest : p->row;
    }
    for (int32_t i = 0; i < d->node_count; i++) { /* more gradients than forward rows */
        if (m->places[i].side != NO_SIDE)
            m->places[i].row -= lowest;
    }
}

static void set_rows(maker *m)
{
    const rg_drawing *d = m->drawing;
    int32_t last = 0;
    set_levels(m, LEFT);
    lower_sources(m);
    for (int32_t i = 0; i < d->node_count; i++) {
        if (m->places[i].side == LEFT && m->places[i].row > last)
            last = m->places[i].row;
    }
    set_levels(m, RIGHT);
    mirror_gradients(m, last);
    for (int32_t i = 0; i < d->node_count; i++) {
        if (m->places[i].side != NO_SIDE && m->places[i].row >= m->rows)
            m->rows = m->places[i].row + 1;
    }
}

/* ---- sizes ---- */

static double text_width(const char *text, double per_character, size_t most)
{
    const size_t width = rg_page_width(text, most);
    return per_character * (double)(width < most + 1 ? width : most + 1);
}

static void size_boxes(maker *m)
{
    const rg_drawing *d = m->drawing;
    for (int32_t i = 0; i < d->node_count; i++) {
        rg_draw_box *box = &m->layout->boxes[i];
        const rg_draw_node *node = &d->nodes[i];
        box->small = m->places[i].side == NO_SIDE;
        const double title = text_width(node->label, 7.4, RG_DRAW_LABEL);
        const double more = text_width(node->op, 6.2, RG_DRAW_LABEL) + 14 +
                            text_width(node->text, 6.2, RG_DRAW_TEXT);
        box->height = box->small ? SMALL_HEIGHT : BOX_HEIGHT;
        box->width = box->small ? title * 0.9 + 18 : fmax(fmax(title, more) + 24, 92);
        if (box->small) {
            place *host = &m->places[m->places[i].host];
            host->beside_width = fmax(host->beside_width, box->width);
        }
    }
}

/* ---- the two sides ---- */

static int32_t passes_of(const maker *m, const rg_draw_edge *edge)
{
    for (int side = LEFT; side <= RIGHT; side++) {
        if (edge_is_on(m, edge, (enum side_name)side)) {
            const int32_t rows = abs(m->places[edge->from].row - m->places[edge->to].row);
            return rows > 1 ? rows - 1 : 0;
        }
    }
    return 0;
}

static rg_status take_sides(maker *m)
{
    const rg_drawing *d = m->drawing;
    int32_t passes = 0;
    for (int32_t k = 0; k < d->edge_count; k++) {
        const int32_t count = passes_of(m, &d->edges[k]);
        m->pass_count[k] = passes + count <= MOST_PASSES ? count : 0;
        passes += m->pass_count[k];
    }
    for (int side = LEFT; side <= RIGHT; side++) {
        rg_draw_side *s = &m->sides[side];
        const int32_t most = d->node_count + passes + 1;
        s->rows = m->rows;
        RG_TRY(TAKE(m->layout, most, &s->items));
        RG_TRY(TAKE(m->layout, most, &s->order));
        RG_TRY(TAKE(m->layout, most, &s->place));
        RG_TRY(TAKE(m->layout, most, &s->best));
        RG_TRY(TAKE(m->layout, most, &s->weights));
        RG_TRY(TAKE(m->layout, m->rows + 1, &s->row_start));
        RG_TRY(TAKE(m->layout, m->rows + 1, &s->link_start));
        RG_TRY(TAKE(m->layout, d->edge_count + passes + 1, &s->links));
    }
    return RG_OK;
}

static void add_items(maker *m)
{
    const rg_drawing *d = m->drawing;
    for (int32_t i = 0; i < d->node_count; i++) {
        place *p = &m->places[i];
        if (p->side == NO_SIDE)
            continue;
        rg_draw_side *s = &m->sides[p->side];
        const double half = m->layout->boxes[i].width / 2;
        const double beside = p->beside > 0 ? p->beside_width + BESIDE : 0;
        p->item = s->item_count;
        s->items[s->item_count++] = (rg_draw_item){
            .node = i,
            .row = p->row,
            .weight = d->nodes[i].source || d->nodes[i].parameter ? 0.02 : 1,
            .left = half + (p->side == LEFT ? beside : 0),
            .right = half + (p->side == RIGHT ? beside : 0),
        };
    }
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (m->pass_count[k] == 0)
            continue;
        const place *from = &m->places[d->edges[k].from], *to = &m->places[d->edges[k].to];
        rg_draw_side *s = &m->sides[from->side];
        m->first_pass[k] = s->item_count;
        for (int32_t i = 1; i <= m->pass_count[k]; i++)
            s->items[s->item_count++] =
                (rg_draw_item){ .node = -1,
                                .row = from->row + (to->row > from->row ? i : -i),
                                .weight = 1,
                                .left = 5,
                                .right = 5 };
    }
}

/* Calls for every pair of items in neighbouring rows that edge k joins. */
static void each_link(const maker *m, int32_t k, void (*call)(rg_draw_side *, int32_t, int32_t),
                      rg_draw_side *s)
{
    const rg_draw_edge *edge = &m->drawing->edges[k];
    const place *from = &m->places[edge->from], *to = &m->places[edge->to];
    const int32_t passes = m->pass_count[k];
    if (passes == 0 && abs(from->row - to->row) != 1)
        return;
    for (int32_t i = 0; i <= passes; i++) {
        const int32_t a = i == 0 ? from->item : m->first_pass[k] + i - 1;
        const int32_t b = i == passes ? to->item : m->first_pass[k] + i;
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

static void fill_side(maker *m, enum side_name side)
{
    rg_draw_side *s = &m->sides[side];
    const rg_drawing *d = m->drawing;
    for (int32_t i = 0; i < s->item_count; i++)
        s->row_start[s->items[i].row + 1]++;
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (edge_is_on(m, &d->edges[k], side))
            each_link(m, k, count_link, s);
    }
    for (int32_t row = 0; row < s->rows; row++) {
        s->row_start[row + 1] += s->row_start[row];
        s->link_start[row + 1] += s->link_start[row];
    }
    memcpy(m->queue, s->row_start, (size_t)s->rows * sizeof *m->queue);
    for (int32_t i = 0; i < s->item_count; i++)
        s->order[m->queue[s->items[i].row]++] = i;
    memcpy(m->queue, s->link_start, (size_t)s->rows * sizeof *m->queue);
    int32_t *best = s->best;
    s->best = m->queue;
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (edge_is_on(m, &d->edges[k], side))
            each_link(m, k, add_link, s);
    }
    s->best = best;
}

/* ---- coordinates ---- */

static double row_height(const maker *m, int32_t row)
{
    double height = BOX_HEIGHT;
    for (int32_t i = 0; i < m->drawing->node_count; i++) {
        const place *p = &m->places[i];
        if (p->side != NO_SIDE && p->row == row)
            height = fmax(height, (double)p->beside * SMALL_STEP);
    }
    return height;
}

static void set_boxes(maker *m, double right_side)
{
    const rg_drawing *d = m->drawing;
    double y = MARGIN + LEGEND_HEIGHT;
    for (int32_t row = 0; row < m->rows; row++) {
        const double height = row_height(m, row);
        m->row_y[row] = y + height / 2;
        y += height + ROW_GAP;
    }
    m->layout->height = y - ROW_GAP + MARGIN;
    for (int32_t i = 0; i < d->node_count; i++) {
        const place *p = &m->places[i];
        if (p->side == NO_SIDE)
            continue;
        m->layout->boxes[i].x =
            m->sides[p->side].items[p->item].x + (p->side == LEFT ? MARGIN : right_side);
        m->layout->boxes[i].y = m->row_y[p->row];
    }
    for (int32_t i = 0; i < d->node_count; i++) {
        const place *p = &m->places[i];
        if (p->side != NO_SIDE)
            continue;
        const place *host = &m->places[p->host];
        rg_draw_box *box = &m->layout->boxes[i];
        const rg_draw_box *beside = &m->layout->boxes[p->host];
        const double away = beside->width / 2 + BESIDE + box->width / 2;
        box->x = beside->x + (host->side == LEFT ? -away : away);
        box->y = beside->y + (p->index - (host->beside - 1) / 2.0) * SMALL_STEP;
    }
}

/* ---- lines ---- */

enum border { TOP, BOTTOM, WEST, EAST };

/* One end of a line: ends at the same border of a box share it out. */
typedef struct line_end {
    int32_t node, edge;
    enum border border;
    bool last;  /* the end of the line, not its beginning */
    double key; /* where its other end lies: ends are in this order */
} line_end;

static int compare_ends(const void *a, const void *b)
{
    const line_end *p = a, *q = b;
    if (p->node != q->node)
        return p->node < q->node ? -1 : 1;
    if (p->border != q->border)
        return p->border < q->border ? -1 : 1;
    if (p->key < q->key || p->key > q->key)
        return p->key < q->key ? -1 : 1;
    return p->edge != q->edge ? (p->edge < q->edge ? -1 : 1) : p->last - q->last;
}

/* An update that writes its parameter would cross the whole drawing; its place says as much. */
static bool is_drawn(const maker *m, const rg_draw_edge *edge)
{
    return edge_is_whole(m->drawing, edge) &&
           !(m->drawing->nodes[edge->from].kind == RG_DRAW_UPDATE &&
             m->drawing->nodes[edge->to].kind == RG_DRAW_FORWARD);
}

static rg_status make_route(maker *m, int32_t k, line_end ends[2])
{
    const rg_draw_edge *edge = &m->drawing->edges[k];
    const rg_draw_box *from = &m->layout->boxes[edge->from], *to = &m->layout->boxes[edge->to];
    const place *p = &m->places[edge->from], *q = &m->places[edge->to];
    rg_draw_route *route = &m->layout->routes[k];
    route->level = p->side != q->side || p->side == NO_SIDE || p->row == q->row;
    route->count = m->pass_count[k] + 2;
    RG_TRY(TAKE(m->layout, route->count, &route->points));
    for (int32_t i = 0; i < m->pass_count[k]; i++) {
        const rg_draw_item *item = &m->sides[p->side].items[m->first_pass[k] + i];
        const double shift = p->side == LEFT ? MARGIN : from->x - m->sides[RIGHT].items[p->item].x;
        route->points[i + 1] = (rg_draw_point){ item->x + shift, m->row_y[item->row] };
    }
    const rg_draw_point *inner = route->points + 1;
    const int32_t passes = m->pass_count[k];
    const double next = passes > 0 ? inner[0].x : to->x;
    const double before = passes > 0 ? inner[passes - 1].x : from->x;
    const bool down = to->y > from->y, east = to->x >= from->x;
    if (route->level) {
        ends[0] = (line_end){ edge->from, k, east ? EAST : WEST, false, to->y };
        ends[1] = (line_end){ edge->to, k, east ? WEST : EAST, true, from->y };
    } else {
        ends[0] = (line_end){ edge->from, k, down ? BOTTOM : TOP, false, next };
        ends[1] = (line_end){ edge->to, k, down ? TOP : BOTTOM, true, before };
    }
    return RG_OK;
}

/* The point of end i of n at a border. */
static rg_draw_point point_at(const rg_draw_box *box, enum border border, int32_t i, int32_t n)
{
    const bool upright = border == TOP || border == BOTTOM;
    const double length = (upright ? box->width : box->height) - 12;
    const double step = fmin(upright ? 18 : 9, length / (n > 1 ? n - 1 : 1));
    const double along = (i - (n - 1) / 2.0) * step;
    if (upright)
        return (rg_draw_point){ box->x + along,
                                box->y + (border == TOP ? -box->height : box->height) / 2 };
    return (rg_draw_point){ box->x + (border == WEST ? -box->width : box->width) / 2,
                            box->y + along };
}

static rg_status make_routes(maker *m)
{
    const rg_drawing *d = m->drawing;
    line_end *ends;
    int32_t count = 0;
    RG_TRY(TAKE(m->layout, 2 * (int64_t)d->edge_count + 1, &ends));
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (is_drawn(m, &d->edges[k])) {
            RG_TRY(make_route(m, k, ends + count));
            count += 2;
        }
    }
    qsort(ends, (size_t)count, sizeof *ends, compare_ends);
    for (int32_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && ends[end].node == ends[first].node &&
                          ends[end].border == ends[first].border;)
            end++;
        for (int32_t i = first; i < end; i++) {
            rg_draw_route *route = &m->layout->routes[ends[i].edge];
            route->points[ends[i].last ? route->count - 1 : 0] =
                point_at(&m->layout->boxes[ends[i].node], ends[i].border, i - first, end - first);
        }
    }
    return RG_OK;
}

/* ---- all of it ---- */

static rg_status make(maker *m)
{
    const rg_drawing *d = m->drawing;
    rg_draw_layout *layout = m->layout;
    RG_TRY(TAKE(layout, d->node_count + 1, &layout->boxes));
    RG_TRY(TAKE(layout, d->edge_count + 1, &layout->routes));
    RG_TRY(TAKE(layout, d->node_count + 1, &m->places));
    RG_TRY(TAKE(layout, 2 * (int64_t)d->node_count + 2, &m->queue));
    RG_TRY(TAKE(layout, d->edge_count + 1, &m->first_pass));
    RG_TRY(TAKE(layout, d->edge_count + 1, &m->pass_count));
    choose_hosts(m);
    set_rows(m);
    RG_TRY(TAKE(layout, m->rows + 1, &m->row_y));
    size_boxes(m);
    RG_TRY(take_sides(m));
    add_items(m);
    fill_side(m, LEFT);
    fill_side(m, RIGHT);
    const double left = rg_draw_side_arrange(&m->sides[LEFT]);
    const double right = rg_draw_side_arrange(&m->sides[RIGHT]);
    const double right_side = MARGIN + left + (left > 0 && right > 0 ? GUTTER : 0);
    layout->width = fmax(right_side + right + MARGIN, 440);
    set_boxes(m, right_side);
    return make_routes(m);
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
    maker m = { .drawing = drawing, .layout = layout };
    const rg_status status = make(&m);
    if (status != RG_OK)
        rg_draw_layout_clear(layout);
    return status;
}
