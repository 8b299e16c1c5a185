/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The rows of a drawing: forward nodes by their longest path from a source, gradients beside them.
 */
#include "train/draw_work.h"

bool rg_draw_edge_is_valid(const rg_drawing *d, const rg_draw_edge *edge)
{
    return edge->from >= 0 && edge->from < d->node_count && edge->to >= 0 &&
           edge->to < d->node_count && edge->from != edge->to;
}

void rg_draw_choose_hosts(rg_draw_work *work)
{
    const rg_drawing *d = work->drawing;
    for (int32_t i = 0; i < d->node_count; i++) {
        work->positions[i].side =
            d->nodes[i].kind == RG_DRAW_FORWARD ? RG_DRAW_LEFT : RG_DRAW_RIGHT;
        work->positions[i].host = -1;
    }
    for (int32_t k = 0; k < d->edge_count; k++) {
        const rg_draw_edge *edge = &d->edges[k];
        if (!rg_draw_edge_is_valid(d, edge))
            continue;
        const rg_draw_node *from = &d->nodes[edge->from], *to = &d->nodes[edge->to];
        rg_draw_position *reader = &work->positions[edge->to];
        if (from->parameter && from->kind == RG_DRAW_FORWARD && to->kind == RG_DRAW_FORWARD &&
            !to->parameter && work->positions[edge->from].host < 0)
            work->positions[edge->from].host = edge->to;
        if (to->kind == RG_DRAW_UPDATE && from->kind == RG_DRAW_GRADIENT && reader->host < 0)
            reader->host = edge->from;
    }
    for (int32_t i = 0; i < d->node_count; i++) {
        if (work->positions[i].host < 0)
            continue;
        rg_draw_position *host = &work->positions[work->positions[i].host];
        work->positions[i].side = RG_DRAW_NO_SIDE;
        work->positions[i].index = host->beside++;
    }
}

bool rg_draw_edge_is_on(const rg_draw_work *work, const rg_draw_edge *edge, rg_draw_side_name side)
{
    return rg_draw_edge_is_valid(work->drawing, edge) && work->positions[edge->from].side == side &&
           work->positions[edge->to].side == side;
}

/* Rows by longest paths within a side, from 0. If only cycles are left, the first node that waits
 * is taken next. */
static void set_levels(rg_draw_work *work, rg_draw_side_name side)
{
    const rg_drawing *d = work->drawing;
    int32_t left = 0, head = 0, tail = 0, scan = 0;
    for (int32_t i = 0; i < d->node_count; i++) {
        work->positions[i].waiting = 0;
        left += work->positions[i].side == side;
    }
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (rg_draw_edge_is_on(work, &d->edges[k], side))
            work->positions[d->edges[k].to].waiting++;
    }
    for (int32_t i = 0; i < d->node_count; i++) {
        if (work->positions[i].side == side && work->positions[i].waiting == 0) {
            work->queue[tail++] = i;
            work->positions[i].done = true;
        }
    }
    while (head < left) {
        if (head == tail) {
            while (work->positions[scan].side != side || work->positions[scan].done)
                scan++;
            work->queue[tail++] = scan;
            work->positions[scan].done = true;
        }
        const int32_t node = work->queue[head++];
        for (int32_t k = 0; k < d->edge_count; k++) {
            if (d->edges[k].from != node || !rg_draw_edge_is_on(work, &d->edges[k], side))
                continue;
            rg_draw_position *to = &work->positions[d->edges[k].to];
            if (to->done)
                continue;
            to->row =
                to->row > work->positions[node].row + 1 ? to->row : work->positions[node].row + 1;
            if (--to->waiting == 0) {
                work->queue[tail++] = d->edges[k].to;
                to->done = true;
            }
        }
    }
}

/* A source moves down to just above the first that reads it. */
static void lower_sources(rg_draw_work *work)
{
    const rg_drawing *d = work->drawing;
    for (int32_t i = 0; i < d->node_count; i++)
        work->queue[i] = INT32_MAX;
    for (int32_t k = 0; k < d->edge_count; k++) {
        const rg_draw_edge *edge = &d->edges[k];
        if (!rg_draw_edge_is_on(work, edge, RG_DRAW_LEFT))
            continue;
        const int32_t row = work->positions[edge->to].row - 1;
        work->queue[edge->from] = work->queue[edge->from] < row ? work->queue[edge->from] : row;
        work->queue[edge->to] = -1; /* reads something: no source */
    }
    for (int32_t i = 0; i < d->node_count; i++) {
        if (work->positions[i].side == RG_DRAW_LEFT && work->queue[i] != INT32_MAX &&
            work->queue[i] > work->positions[i].row)
            work->positions[i].row = work->queue[i];
    }
}

/* Gradients stand beside what they belong to. One that belongs to nothing (a sum) stands above
 * those it reads; where nothing is known, the rows of the longest path run upwards from the last.
 */
static void mirror_gradients(rg_draw_work *work, int32_t last)
{
    const rg_drawing *d = work->drawing;
    int32_t lowest = 0;
    for (int32_t i = 0; i < d->node_count; i++) {
        const int32_t of = d->nodes[i].of;
        rg_draw_position *p = &work->positions[i];
        if (p->side != RG_DRAW_RIGHT)
            continue;
        if (of >= 0 && of < d->node_count && work->positions[of].side == RG_DRAW_LEFT)
            p->row = work->positions[of].row;
        else
            p->row = last - p->row;
        lowest = lowest < p->row ? lowest : p->row;
    }
    for (int32_t i = 0; i < d->node_count; i++) { /* more gradients than forward rows */
        if (work->positions[i].side != RG_DRAW_NO_SIDE)
            work->positions[i].row -= lowest;
    }
}

void rg_draw_set_rows(rg_draw_work *work)
{
    const rg_drawing *d = work->drawing;
    int32_t last = 0;
    set_levels(work, RG_DRAW_LEFT);
    lower_sources(work);
    for (int32_t i = 0; i < d->node_count; i++) {
        if (work->positions[i].side == RG_DRAW_LEFT && work->positions[i].row > last)
            last = work->positions[i].row;
    }
    set_levels(work, RG_DRAW_RIGHT);
    mirror_gradients(work, last);
    for (int32_t i = 0; i < d->node_count; i++) {
        if (work->positions[i].side != RG_DRAW_NO_SIDE && work->positions[i].row >= work->rows)
            work->rows = work->positions[i].row + 1;
    }
}
