/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs of other models as models of ours: a line for each node. */
#ifndef RG_TRAIN_MODEL_CONVERT_H
#define RG_TRAIN_MODEL_CONVERT_H

#include "train/model.h"

/* A parameter of the new model, and what it was called before. */
typedef struct rg_converted_name {
    char *now;
    const char *before; /* belongs to the graph */
} rg_converted_name;

typedef struct rg_converted {
    char *text;
    size_t length, capacity;
    rg_converted_name *names;
    size_t name_count, name_capacity;
} rg_converted;
void rg_converted_release(rg_converted *converted);

/* The text of a graph that has the source "images" and one result. RG_UNSUPPORTED, with all nodes
 * concerned, for what no line can say. */
rg_status rg_graph_to_text(const rg_graph *graph, int64_t classes, rg_converted *converted);

#endif
