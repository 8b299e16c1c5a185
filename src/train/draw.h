/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A network as a drawing: what computes what, forward and backward, as SVG and as DOT. */
#ifndef RG_TRAIN_DRAW_H
#define RG_TRAIN_DRAW_H

#include "core/status.h"

typedef enum rg_draw_kind { RG_DRAW_FORWARD, RG_DRAW_GRADIENT, RG_DRAW_UPDATE } rg_draw_kind;

/* All text is the caller's, may be NULL, and may hold anything. */
typedef struct rg_draw_node {
    const char *label; /* "conv1" */
    const char *op;    /* "conv" */
    const char *text;  /* a few words more: "5×5, stride 1" */
    rg_draw_kind kind;
    bool source;    /* comes from outside: images, labels */
    bool parameter; /* is trained, or kept between steps */
    int32_t of;     /* a gradient: the node it belongs to; -1 where there is none */
} rg_draw_node;

typedef enum rg_draw_edge_kind {
    RG_DRAW_DATA,
    RG_DRAW_DERIVATIVE,
    RG_DRAW_STATE
} rg_draw_edge_kind;

typedef struct rg_draw_edge {
    int32_t from, to; /* nodes; an edge to a node that is not there is left out */
    const char *text; /* the shape: "64×24×24×20" */
    rg_draw_edge_kind kind;
} rg_draw_edge;

typedef struct rg_drawing {
    const char *title;
    const rg_draw_node *nodes;
    int32_t node_count;
    const rg_draw_edge *edges;
    int32_t edge_count;
} rg_drawing;

/* The most nodes and edges of an SVG; RG_UNSUPPORTED beyond. DOT has no limit. */
enum { RG_DRAW_NODES = 2000, RG_DRAW_EDGES = 10000 };

/* Writes a file: forward from top to bottom on the left, gradients upwards on the right. */
rg_status rg_draw_svg(const rg_drawing *drawing, const char *path);

/* Writes a file for Graphviz. */
rg_status rg_draw_dot(const rg_drawing *drawing, const char *path);

#endif
