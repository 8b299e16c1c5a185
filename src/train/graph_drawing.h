/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A graph as a drawing: its sources and nodes, and what flows between them. */
#ifndef RG_TRAIN_GRAPH_DRAWING_H
#define RG_TRAIN_GRAPH_DRAWING_H

#include "graph/graph.h"
#include "train/draw.h"

typedef struct rg_graph_drawing {
    rg_drawing drawing; /* whose texts are the graph's and those below */
    rg_draw_node *nodes;
    rg_draw_edge *edges;
    size_t node_capacity, edge_capacity;
} rg_graph_drawing;

/* Sources, forward nodes, gradient nodes and updates; parameters are left out. */
rg_status rg_graph_drawing_create(const rg_graph *graph, const char *title,
                                  rg_graph_drawing *drawing);
void rg_graph_drawing_release(rg_graph_drawing *drawing);

#endif
