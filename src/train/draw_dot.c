/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A drawing as DOT, the language of Graphviz. */
#include "train/draw.h"
#include "train/page.h"

/* Characters of a text at most. */
enum { MOST = 200 };

static void add_string(rg_page *page, const char *text)
{
    rg_page_put(page, "\"");
    rg_page_dot_text(page, text, MOST);
    rg_page_put(page, "\"");
}

static const char *fill_of(const rg_draw_node *node)
{
    if (node->parameter)
        return "#f1ebfa";
    if (node->source)
        return "#eef0f3";
    return node->kind == RG_DRAW_GRADIENT ? "#fdeee0"
           : node->kind == RG_DRAW_UPDATE ? "#e7f4ea"
                                          : "#e6effc";
}

static void add_node(rg_page *page, int32_t i, const rg_draw_node *node)
{
    rg_page_put(page, "    n%d [label=\"", i);
    rg_page_dot_text(page, node->label, MOST);
    if (node->op != NULL && node->op[0] != 0) {
        rg_page_put(page, "\\n");
        rg_page_dot_text(page, node->op, MOST);
    }
    if (node->text != NULL && node->text[0] != 0) {
        rg_page_put(page, "\\n");
        rg_page_dot_text(page, node->text, MOST);
    }
    rg_page_put(page, "\" fillcolor=\"%s\"%s];\n", fill_of(node),
                node->parameter || node->source ? " shape=ellipse" : "");
}

static void add_cluster(rg_page *page, const rg_drawing *d, rg_draw_kind kind, const char *name)
{
    rg_page_put(page, "  subgraph cluster_%s {\n    label=\"%s\"; color=\"#c8ccd2\";\n", name,
                name);
    for (int32_t i = 0; i < d->node_count; i++) {
        if (d->nodes[i].kind == kind)
            add_node(page, i, &d->nodes[i]);
    }
    rg_page_put(page, "  }\n");
}

static void add_edge(rg_page *page, const rg_drawing *d, const rg_draw_edge *edge)
{
    if (edge->from < 0 || edge->from >= d->node_count || edge->to < 0 || edge->to >= d->node_count)
        return;
    const bool back =
        d->nodes[edge->from].kind > d->nodes[edge->to].kind; /* to an earlier cluster */
    rg_page_put(page, "  n%d -> n%d [label=", edge->from, edge->to);
    add_string(page, edge->text);
    rg_page_put(page, "%s%s];\n",
                edge->kind == RG_DRAW_DERIVATIVE ? " color=\"#c07a35\""
                : edge->kind == RG_DRAW_STATE    ? " style=dashed color=\"#9aa1ab\""
                                                 : "",
                back ? " constraint=false" : "");
}

rg_status rg_draw_dot(const rg_drawing *drawing, const char *path)
{
    RG_CHECK_NOT_NULL(drawing);
    RG_CHECK_NOT_NULL(path);
    rg_page page = { 0 };
    rg_page_put(&page, "digraph ");
    add_string(&page, drawing->title != NULL ? drawing->title : "network");
    rg_page_put(&page, " {\n  rankdir=TB; fontname=\"sans-serif\";\n"
                       "  node [shape=box style=\"rounded,filled\" fontname=\"sans-serif\" "
                       "fontsize=11 color=\"#68707c\"];\n"
                       "  edge [fontname=\"sans-serif\" fontsize=9 color=\"#5f7da8\"];\n");
    add_cluster(&page, drawing, RG_DRAW_FORWARD, "forward");
    add_cluster(&page, drawing, RG_DRAW_GRADIENT, "gradient");
    add_cluster(&page, drawing, RG_DRAW_UPDATE, "update");
    for (int32_t k = 0; k < drawing->edge_count; k++)
        add_edge(&page, drawing, &drawing->edges[k]);
    rg_page_put(&page, "}\n");
    return rg_page_save(&page, path);
}
