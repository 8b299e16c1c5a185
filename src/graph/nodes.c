/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The builders of every op, from ops.def. Names are in parentheses: there are macros, too. */
#include "graph/graph.h"

#include <retrograde/nodes.h>

#define RG_OP(op)                                                                               \
    rg_node *(rg_graph_##op)(rg_graph * graph, const rg_##op##_desc *desc, rg_value *const x[]) \
    {                                                                                           \
        return rg_graph_apply(graph, #op, desc, x, SIZE_MAX);                                   \
    }                                                                                           \
    rg_node *rg_graph_##op##_counted(rg_graph *graph, const rg_##op##_desc *desc,               \
                                     rg_value *const x[], size_t count)                         \
    {                                                                                           \
        return rg_graph_apply(graph, #op, desc, x, count);                                      \
    }                                                                                           \
    rg_node *rg_graph_##op##_gradient(rg_graph *graph, const rg_##op##_desc *desc,              \
                                      rg_value *const dy[], rg_value *const x[],                \
                                      rg_value *const y[], rg_node *state_of)                   \
    {                                                                                           \
        return rg_graph_gradient_node(graph, #op, desc, dy, x, y, state_of, 0);                 \
    }                                                                                           \
    rg_node *rg_graph_##op##_gradient_counted(                                                  \
        rg_graph *graph, const rg_##op##_desc *desc, rg_value *const dy[], size_t dy_count,     \
        rg_value *const x[], size_t x_count, rg_value *const y[], size_t y_count,               \
        rg_node *state_of)                                                                      \
    {                                                                                           \
        return rg_graph_gradient_node_counted(graph, #op, desc, dy, dy_count, x, x_count, y,    \
                                              y_count, state_of, 0);                            \
    }
#include "ops/ops.def"
#undef RG_OP
