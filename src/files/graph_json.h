/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What writing and reading of graphs share. */
#ifndef RG_FILES_GRAPH_JSON_H
#define RG_FILES_GRAPH_JSON_H

#include "files/json.h"
#include "graph/graph.h"

/* Longer texts are no graphs. */
enum { RG_GRAPH_TEXT_LIMIT = 64 << 20 };

/* A text that is being read as a graph. */
typedef struct rg_graph_reader {
    const rg_json *json;
    rg_graph *graph;
} rg_graph_reader;

/* A name in quotes, cut to what a sentence can hold. */
typedef struct rg_quoted {
    char text[96];
} rg_quoted;
rg_quoted rg_graph_quote(const char *text);

/* What a builder refuses is a fault of the text, unless memory was short. */
rg_status rg_graph_refuse(const rg_graph_reader *r, const rg_json_value *at, rg_status status);

/* Refuses an object with other keys than these, NULL at the end. */
rg_status rg_graph_check_keys(const rg_graph_reader *r, const rg_json_value *object,
                              const char *what, const char *const keys[]);
rg_status rg_graph_read_string(const rg_graph_reader *r, const rg_json_value *object,
                               const char *key, const char **text);
rg_status rg_graph_read_int(const rg_graph_reader *r, const rg_json_value *v, int64_t *number);
/* The entries of a list; none where it is left out. */
rg_status rg_graph_read_list(const rg_graph_reader *r, const rg_json_value *object, const char *key,
                             const rg_json_value **first);
rg_status rg_graph_read_node_name(const rg_graph_reader *r, const rg_json_value *v, rg_node **node);
rg_status rg_graph_read_value(const rg_graph_reader *r, const rg_json_value *v, rg_value **value);
/* Up to RG_MAX_INPUTS values; null is NULL. */
rg_status rg_graph_read_values(const rg_graph_reader *r, const rg_json_value *list, const char *key,
                               rg_value *values[], int32_t *count);

#endif
