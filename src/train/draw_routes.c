/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The lines of a drawing: through the gaps of the rows, with ends spread over the borders of boxes.
 */
#include "train/draw_work.h"

#include <math.h>
#include <stdlib.h>

enum border { TOP, BOTTOM, WEST, EAST };

/* One end of a line. Ends at the same border of a box are spread over it. */
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

/* A line from an update to its parameter would cross the whole drawing; it is left out. */
static bool is_drawn(const rg_draw_work *work, const rg_draw_edge *edge)
{
    return rg_draw_edge_is_valid(work->drawing, edge) &&
           !(work->drawing->nodes[edge->from].kind == RG_DRAW_UPDATE &&
             work->drawing->nodes[edge->to].kind == RG_DRAW_FORWARD);
}

static rg_status make_route(rg_draw_work *work, int32_t k, line_end ends[2])
{
    const rg_draw_edge *edge = &work->drawing->edges[k];
    const rg_draw_box *from = &work->layout->boxes[edge->from],
                      *to = &work->layout->boxes[edge->to];
    const rg_draw_position *p = &work->positions[edge->from], *q = &work->positions[edge->to];
    rg_draw_route *route = &work->layout->routes[k];
    route->level = p->side != q->side || p->side == RG_DRAW_NO_SIDE || p->row == q->row;
    route->count = work->pass_count[k] + 2;
    RG_TRY(RG_DRAW_TAKE(work->layout, route->count, &route->points));
    for (int32_t i = 0; i < work->pass_count[k]; i++) {
        const rg_draw_item *item = &work->sides[p->side].items[work->first_pass[k] + i];
        const double shift = p->side == RG_DRAW_LEFT
                                 ? RG_DRAW_MARGIN
                                 : from->x - work->sides[RG_DRAW_RIGHT].items[p->item].x;
        route->points[i + 1] = (rg_draw_point){ item->x + shift, work->row_y[item->row] };
    }
    const rg_draw_point *inner = route->points + 1;
    const int32_t passes = work->pass_count[k];
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

rg_status rg_draw_make_routes(rg_draw_work *work)
{
    const rg_drawing *d = work->drawing;
    line_end *ends;
    int32_t count = 0;
    RG_TRY(RG_DRAW_TAKE(work->layout, 2 * (int64_t)d->edge_count + 1, &ends));
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (is_drawn(work, &d->edges[k])) {
            RG_TRY(make_route(work, k, ends + count));
            count += 2;
        }
    }
    qsort(ends, (size_t)count, sizeof *ends, compare_ends);
    for (int32_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && ends[end].node == ends[first].node &&
                          ends[end].border == ends[first].border;)
            end++;
        for (int32_t i = first; i < end; i++) {
            rg_draw_route *route = &work->layout->routes[ends[i].edge];
            route->points[ends[i].last ? route->count - 1 : 0] = point_at(
                &work->layout->boxes[ends[i].node], ends[i].border, i - first, end - first);
        }
    }
    return RG_OK;
}
