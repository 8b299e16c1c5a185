/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The network: its layers with shapes and parameters, and the drawing of forward and backward. */
#include "train/draw_svg.h"
#include "train/report_parts.h"

/* Rows of the table, and nodes and edges of a drawing within the page, at most. */
enum { MOST_LAYERS = 300, MOST_NODES = 320, MOST_EDGES = 700 };

static int64_t count_parameters(const rg_report *r)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < r->layer_count; i++) {
        if (__builtin_add_overflow(sum, r->layers[i].parameters, &sum))
            return INT64_MAX;
    }
    return sum;
}

static void add_layer(rg_page *page, const rg_report_layer *layer, int64_t most)
{
    rg_page_put(page, "<tr><th scope=\"row\">");
    rg_page_text(page, layer->label, RG_NAME);
    rg_page_put(page, "</th><td>");
    rg_page_text(page, layer->op, RG_NAME);
    rg_page_put(page, "</td><td>");
    rg_page_text(page, layer->fields, RG_TIP);
    rg_page_put(page, "</td><td class=\"n\">");
    rg_page_text(page, layer->output, RG_NAME);
    rg_page_put(page, "</td><td class=\"n\">%s</td>",
                layer->parameters > 0 ? rg_count(layer->parameters).text : "\xe2\x80\x93");
    rg_page_put(page, "<td class=\"bar\" style=\"width:20%%;min-width:80px\">");
    if (layer->parameters > 0 && most > 0)
        rg_page_put(page,
                    "<span class=\"track\"><span class=\"b4\" style=\"width:%s%%\"></span></span>",
                    rg_fixed((double)layer->parameters * 100 / (double)most, 1).text);
    rg_page_put(page, "</td></tr>\n");
}

static void add_layers(rg_page *page, const rg_report *r)
{
    int64_t most = 0;
    for (int64_t i = 0; i < r->layer_count; i++)
        most = most > r->layers[i].parameters ? most : r->layers[i].parameters;
    rg_page_put(page, "<div class=\"scroll\"><table><caption>Layers in execution order</caption>\n"
                      "<thead><tr><th scope=\"col\">Layer</th><th scope=\"col\">Op</th><th "
                      "scope=\"col\">Fields</th><th scope=\"col\" class=\"n\">Output</th><th "
                      "scope=\"col\" class=\"n\">Parameters</th><td></td></tr></thead>\n"
                      "<tbody>\n");
    for (int64_t i = 0; i < r->layer_count && i < MOST_LAYERS; i++)
        add_layer(page, &r->layers[i], most);
    if (r->layer_count > MOST_LAYERS)
        rg_page_put(page, "<tr><td colspan=\"6\">and %s more</td></tr>\n",
                    rg_count(r->layer_count - MOST_LAYERS).text);
    rg_page_put(page,
                "</tbody>\n"
                "<tfoot><tr><th scope=\"row\">Total</th><td></td><td></td><td></td><td "
                "class=\"n\">%s</td><td></td></tr></tfoot></table></div>\n",
                rg_count(count_parameters(r)).text);
}

static rg_status add_drawing(rg_page *page, const rg_drawing *drawing)
{
    if (drawing->node_count > MOST_NODES || drawing->edge_count > MOST_EDGES) {
        rg_page_put(page,
                    "<p class=\"note\">The drawing has %s nodes, too many for this page; "
                    "<code>retrograde graph</code> writes it to a file.</p>\n",
                    rg_count(drawing->node_count).text);
        return page->status;
    }
    rg_page_put(page,
                "<h3>Forward and backward pass</h3>\n"
                "<p class=\"note\">The forward pass runs down on the left, gradients run up on the "
                "right; dashed lines show what a gradient reads from the forward pass.</p>\n"
                "<div class=\"drawing\" role=\"region\" tabindex=\"0\" aria-label=\"Drawing of the "
                "network\">\n");
    RG_TRY(rg_draw_svg_add(page, drawing, false));
    rg_page_put(page, "</div>\n");
    return page->status;
}

rg_status rg_report_network(rg_page *page, const rg_report *r)
{
    if (r->layer_count <= 0 && r->drawing.node_count <= 0)
        return RG_OK;
    rg_section_begin(page, "network", "Network");
    if (r->layer_count > 0)
        add_layers(page, r);
    if (r->drawing.node_count > 0)
        RG_TRY(add_drawing(page, &r->drawing));
    rg_section_end(page);
    return page->status;
}
