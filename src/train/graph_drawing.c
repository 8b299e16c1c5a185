/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A graph as a drawing. */
#include "train/graph_drawing.h"

#include "core/memory.h"

#include <retrograde/model.h>

static const rg_allocator *const allocator = &rg_default_allocator;

typedef struct sketch {
    rg_graph_drawing *to;
    const rg_graph *graph;
    int32_t *of_value; /* by value: the node of the drawing that makes it, or -1 */
    int32_t *of_node;  /* by node of the graph */
} sketch;

static int32_t add_node(sketch *s, rg_draw_node node)
{
    const int32_t index = s->to->drawing.node_count++;
    s->to->nodes[index] = node;
    return index;
}

static void add_edge(sketch *s, const rg_value *from, int32_t to, rg_draw_edge_kind kind)
{
    if (from == NULL || s->of_value[from->id] < 0)
        return;
    s->to->edges[s->to->drawing.edge_count++] =
        (rg_draw_edge){ .from = s->of_value[from->id], .to = to, .kind = kind };
}

static void draw_node(sketch *s, const rg_node *node)
{
    const bool update = node->op->updates;
    const rg_draw_kind kind = node->gradient ? RG_DRAW_GRADIENT
                              : update       ? RG_DRAW_UPDATE
                                             : RG_DRAW_FORWARD;
    const int32_t of = node->forward != NULL ? s->of_node[node->forward->id] : -1;
    /* a sum that the reverse pass has added stands among the gradients */
    bool sums = !node->gradient && !update && node->inputs > 0;
    for (int32_t i = 0; i < node->inputs && sums; i++)
        sums = node->in[i]->node != NULL && node->in[i]->node->gradient;
    const int32_t index = add_node(s, (rg_draw_node){ .label = node->label,
                                                      .op = node->op->name,
                                                      .text = update ? node->in[0]->name : NULL,
                                                      .kind = sums ? RG_DRAW_GRADIENT : kind,
                                                      .of = of });
    s->of_node[node->id] = index;
    for (int32_t i = 0; i < node->outputs; i++) {
        if (node->out[i] != NULL)
            s->of_value[node->out[i]->id] = index;
    }
    for (int32_t i = 0; i < node->inputs; i++)
        add_edge(s, node->in[i], index,
                 node->gradient || update || sums ? RG_DRAW_DERIVATIVE : RG_DRAW_DATA);
    if (of >= 0)
        s->to->edges[s->to->drawing.edge_count++] =
            (rg_draw_edge){ .from = of, .to = index, .kind = RG_DRAW_STATE };
}

static void draw(sketch *s)
{
    for (size_t i = 0; i < s->graph->values_count; i++) {
        const rg_value *value = s->graph->values[i];
        s->of_value[i] =
            value->kind == RG_VALUE_SOURCE
                ? add_node(s,
                           (rg_draw_node){
                               .label = value->name, .op = "source", .source = true, .of = -1 })
                : -1;
    }
    for (size_t i = 0; i < s->graph->nodes_count; i++)
        draw_node(s, s->graph->nodes[i]);
}

static rg_status allocate_arrays(const rg_graph *graph, sketch *s)
{
    void *memory[4];
    rg_graph_drawing *to = s->to;
    to->node_capacity = graph->values_count + graph->nodes_count;
    to->edge_capacity = graph->nodes_count * (RG_MAX_INPUTS + 1);
    RG_TRY(rg_allocate_zero(allocator, to->node_capacity * sizeof *to->nodes, &memory[0]));
    to->nodes = memory[0];
    RG_TRY(rg_allocate_zero(allocator, to->edge_capacity * sizeof *to->edges, &memory[1]));
    to->edges = memory[1];
    RG_TRY(rg_allocate_zero(allocator, graph->values_count * sizeof *s->of_value, &memory[2]));
    s->of_value = memory[2];
    RG_TRY(rg_allocate_zero(allocator, graph->nodes_count * sizeof *s->of_node, &memory[3]));
    s->of_node = memory[3];
    return RG_OK;
}

rg_status rg_graph_drawing_create(const rg_graph *graph, const char *title,
                                  rg_graph_drawing *drawing)
{
    *drawing = (rg_graph_drawing){ .drawing.title = title };
    sketch s = { .to = drawing, .graph = graph };
    const rg_status status = allocate_arrays(graph, &s);
    if (status == RG_OK)
        draw(&s);
    drawing->drawing.nodes = drawing->nodes;
    drawing->drawing.edges = drawing->edges;
    rg_release(allocator, s.of_value, graph->values_count * sizeof *s.of_value);
    rg_release(allocator, s.of_node, graph->nodes_count * sizeof *s.of_node);
    if (status != RG_OK)
        rg_graph_drawing_release(drawing);
    return status;
}

void rg_graph_drawing_release(rg_graph_drawing *drawing)
{
    rg_release(allocator, drawing->nodes, drawing->node_capacity * sizeof *drawing->nodes);
    rg_release(allocator, drawing->edges, drawing->edge_capacity * sizeof *drawing->edges);
    *drawing = (rg_graph_drawing){ 0 };
}

rg_status rg_graph_draw(const rg_graph *graph, const char *title, const char *path)
{
    rg_graph_drawing drawing;
    RG_CHECK_NOT_NULL(graph);
    RG_CHECK_NOT_NULL(path);
    RG_TRY(rg_graph_status(graph));
    RG_TRY(rg_graph_drawing_create(graph, title, &drawing));
    const size_t length = strlen(path);
    const bool dot = length > 4 && strcmp(path + length - 4, ".dot") == 0;
    const rg_status status =
        dot ? rg_draw_dot(&drawing.drawing, path) : rg_draw_svg(&drawing.drawing, path);
    rg_graph_drawing_release(&drawing);
    return status;
}
