/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A drawing as SVG. Colours come from rules with plain values, which every viewer understands. */
#include "train/draw_svg.h"
#include "train/draw_layout.h"

#include <math.h>
#include <string.h>

/* Characters of a text that a tooltip shows. */
enum { TIP = 300 };

/* ---- colours ---- */

static const struct palette_row {
    const char *name;     /* the class */
    const char *light[3]; /* fill, border, text */
    const char *dark[3];
} palette[] = {
    { "source", { "#eef0f3", "#8b95a3", "#30363f" }, { "#2a2f37", "#7d8794", "#dfe3e8" } },
    { "forward", { "#e6effc", "#4c82d3", "#16355f" }, { "#1b2d49", "#5e93e0", "#d7e6fb" } },
    { "gradient", { "#fdeee0", "#d98a3d", "#5e3608" }, { "#43301a", "#dd9750", "#fbe7d2" } },
    { "update", { "#e7f4ea", "#4f9d69", "#17452a" }, { "#1c3826", "#5fb47d", "#d6f2df" } },
    { "parameter", { "#f1ebfa", "#9576c9", "#3c2566" }, { "#332749", "#a58ad6", "#eae1f9" } },
};
enum { PALETTE = sizeof palette / sizeof palette[0] };

static void add_scheme(rg_page *page, bool dark)
{
    for (int i = 0; i < PALETTE; i++) {
        const char *const *c = dark ? palette[i].dark : palette[i].light;
        rg_page_put(page, ".net .%s rect{fill:%s;stroke:%s}.net .%s text{fill:%s}\n",
                    palette[i].name, c[0], c[1], palette[i].name, c[2]);
    }
    const char *data = dark ? "#8fa9cf" : "#5f7da8", *derivative = dark ? "#d39a63" : "#c07a35";
    const char *state = dark ? "#626a75" : "#b4bac3", *muted = dark ? "#9aa3ae" : "#68707c";
    rg_page_put(page,
                ".net path{stroke:%s}.net .d{stroke:%s}.net .s{stroke:%s}\n"
                ".net marker path{fill:%s}.net marker .d{fill:%s}.net marker .s{fill:%s}\n"
                ".net .shape,.net .legend{fill:%s}.net .shape{stroke:%s}\n",
                data, derivative, state, data, derivative, state, muted,
                dark ? "#1b1e24" : "#ffffff");
}

void rg_draw_style(rg_page *page)
{
    rg_page_put(
        page, ".net{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica "
              "Neue\",Arial,sans-serif}\n"
              ".net text{text-anchor:middle;dominant-baseline:central}\n"
              ".net .name{font-weight:600;font-size:12.5px}.net .more{font-size:11px;opacity:.8}\n"
              ".net .pill{font-size:11px}.net rect{stroke-width:1.2}\n"
              ".net path{fill:none;stroke-width:1.4}.net .s{stroke-dasharray:3 3}\n"
              ".net marker path{stroke:none}\n"
              ".net .shape{font-size:10px;text-anchor:start;stroke-width:4px;"
              "stroke-linejoin:round;paint-order:stroke}\n"
              ".net .legend{font-size:11px;text-anchor:start}\n");
    add_scheme(page, false);
    rg_page_put(page, "@media(prefers-color-scheme:dark){\n");
    add_scheme(page, true);
    rg_page_put(page, "}\n");
}

static const char *class_of(const rg_draw_node *node)
{
    if (node->parameter)
        return "parameter";
    if (node->source)
        return "source";
    return node->kind == RG_DRAW_GRADIENT ? "gradient"
           : node->kind == RG_DRAW_UPDATE ? "update"
                                          : "forward";
}

/* ---- boxes ---- */

static void add_text(rg_page *page, const char *class_name, double x, double y, const char *text,
                     size_t most)
{
    rg_page_put(page, "<text class=\"%s\" x=\"%s\" y=\"%s\">", class_name, rg_fixed(x, 1).text,
                rg_fixed(y, 1).text);
    rg_page_text(page, text, most);
    rg_page_put(page, "</text>");
}

static bool has(const char *text)
{
    return text != NULL && text[0] != 0;
}

static void add_box(rg_page *page, const rg_draw_node *node, const rg_draw_box *box)
{
    rg_page_put(page, "<g class=\"%s\"><title>", class_of(node));
    rg_page_text(page, node->label, TIP);
    if (has(node->op)) {
        rg_page_put(page, ": ");
        rg_page_text(page, node->op, TIP);
    }
    if (has(node->text)) {
        rg_page_put(page, ", ");
        rg_page_text(page, node->text, TIP);
    }
    rg_page_put(page, "</title><rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"%d\"/>",
                rg_fixed(box->x - box->width / 2, 1).text,
                rg_fixed(box->y - box->height / 2, 1).text, rg_fixed(box->width, 1).text,
                rg_fixed(box->height, 1).text, box->small ? 11 : 7);
    const bool two_lines = !box->small && (has(node->op) || has(node->text));
    add_text(page, box->small ? "pill" : "name", box->x, box->y - (two_lines ? 8 : 0), node->label,
             RG_DRAW_LABEL);
    if (two_lines) {
        rg_page_put(page, "<text class=\"more\" x=\"%s\" y=\"%s\">", rg_fixed(box->x, 1).text,
                    rg_fixed(box->y + 10, 1).text);
        rg_page_text(page, node->op, RG_DRAW_LABEL);
        if (has(node->op) && has(node->text))
            rg_page_put(page, " \xc2\xb7 ");
        rg_page_text(page, node->text, RG_DRAW_TEXT);
        rg_page_put(page, "</text>");
    }
    rg_page_put(page, "</g>\n");
}

/* ---- lines ---- */

static const char *line_class(const rg_draw_edge *edge)
{
    return edge->kind == RG_DRAW_DERIVATIVE ? "d" : edge->kind == RG_DRAW_STATE ? "s" : "x";
}

/* Curves that leave and arrive upright, or level. */
static void add_line(rg_page *page, const rg_draw_edge *edge, const rg_draw_route *route)
{
    const char *kind = line_class(edge);
    rg_page_put(page, "<path class=\"%s\" marker-end=\"url(#end-%s)\" d=\"M%s %s", kind, kind,
                rg_fixed(route->points[0].x, 1).text, rg_fixed(route->points[0].y, 1).text);
    for (int32_t i = 1; i < route->count; i++) {
        const rg_draw_point a = route->points[i - 1], b = route->points[i];
        const double bend = route->level ? (b.x - a.x) / 2 : (b.y - a.y) / 2;
        rg_page_put(page, "C%s %s %s %s %s %s", rg_fixed(a.x + (route->level ? bend : 0), 1).text,
                    rg_fixed(a.y + (route->level ? 0 : bend), 1).text,
                    rg_fixed(b.x - (route->level ? bend : 0), 1).text,
                    rg_fixed(b.y - (route->level ? 0 : bend), 1).text, rg_fixed(b.x, 1).text,
                    rg_fixed(b.y, 1).text);
    }
    rg_page_put(page, "\">");
    if (has(edge->text)) {
        rg_page_put(page, "<title>");
        rg_page_text(page, edge->text, TIP);
        rg_page_put(page, "</title>");
    }
    rg_page_put(page, "</path>\n");
}

/* The shape stands beside the beginning of a line; once where several lines carry the same. */
static bool wants_shape(const rg_drawing *d, const rg_draw_layout *layout, int32_t k)
{
    const rg_draw_edge *edge = &d->edges[k];
    const rg_draw_route *route = &layout->routes[k];
    if (!has(edge->text) || route->count == 0 || route->level)
        return false;
    for (int32_t i = k - 1; i >= 0 && i > k - 64; i--) {
        if (d->edges[i].from == edge->from && has(d->edges[i].text) &&
            layout->routes[i].count > 0 && !layout->routes[i].level &&
            strcmp(d->edges[i].text, edge->text) == 0)
            return false;
    }
    return true;
}

/* Half-way along a straight line, which is free of what stands beside the boxes. */
static void add_shape(rg_page *page, const rg_draw_edge *edge, const rg_draw_route *route)
{
    const rg_draw_point a = route->points[0], b = route->points[1];
    const bool straight = route->count == 2 && fabs(a.x - b.x) < 60;
    const double x = straight ? (a.x + b.x) / 2 : a.x;
    const double y = straight ? (a.y + b.y) / 2 - 2 : a.y + (b.y > a.y ? 13 : -13);
    add_text(page, "shape", x + 7, y, edge->text, RG_DRAW_SHAPE);
}

/* ---- the whole ---- */

static void add_markers(rg_page *page)
{
    rg_page_put(page, "<defs>");
    for (const char *kind = "xds"; *kind != 0; kind++)
        rg_page_put(page,
                    "<marker id=\"end-%c\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" "
                    "markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">"
                    "<path class=\"%c\" d=\"M0 0.6L8 4L0 7.4z\"/></marker>",
                    *kind, *kind);
    rg_page_put(page, "</defs>\n");
}

/* Which kinds of boxes there are, with their colours. */
static void add_legend(rg_page *page, const rg_drawing *d)
{
    static const char *const words[PALETTE] = { "source", "forward", "gradient", "update",
                                                "parameter" };
    double x = 16;
    for (int i = 0; i < PALETTE; i++) {
        bool found = false;
        for (int32_t k = 0; k < d->node_count && !found; k++)
            found = strcmp(class_of(&d->nodes[k]), palette[i].name) == 0;
        if (!found)
            continue;
        rg_page_put(page,
                    "<g class=\"%s\"><rect x=\"%s\" y=\"12\" width=\"14\" height=\"14\" "
                    "rx=\"4\"/></g><text class=\"legend\" x=\"%s\" y=\"19.5\">%s</text>\n",
                    palette[i].name, rg_fixed(x, 1).text, rg_fixed(x + 20, 1).text, words[i]);
        x += 36 + 6.4 * (double)strlen(words[i]);
    }
}

static void add_svg(rg_page *page, const rg_drawing *d, const rg_draw_layout *layout, bool alone)
{
    const int width = (int)ceil(layout->width), height = (int)ceil(layout->height);
    rg_page_put(page,
                "<svg class=\"net\"%s role=\"img\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                "height=\"%d\" aria-label=\"",
                alone ? " xmlns=\"http://www.w3.org/2000/svg\"" : "", width, height, width, height);
    rg_page_text(page, has(d->title) ? d->title : "network", TIP);
    rg_page_put(page, ": %d nodes\">\n", d->node_count);
    if (alone) {
        rg_page_put(page, "<style>\n.net .back{fill:#fff;stroke:none}\n"
                          "@media(prefers-color-scheme:dark){.net .back{fill:#1b1e24}}\n");
        rg_draw_style(page);
        rg_page_put(page, "</style>\n<rect class=\"back\" width=\"%d\" height=\"%d\"/>\n", width,
                    height);
    }
    add_markers(page);
    add_legend(page, d);
    for (int pass = 0; pass < 2; pass++) { /* what is faint goes below */
        for (int32_t k = 0; k < d->edge_count; k++) {
            if (layout->routes[k].count > 0 && (d->edges[k].kind == RG_DRAW_STATE) == (pass == 0))
                add_line(page, &d->edges[k], &layout->routes[k]);
        }
    }
    for (int32_t i = 0; i < d->node_count; i++)
        add_box(page, &d->nodes[i], &layout->boxes[i]);
    for (int32_t k = 0; k < d->edge_count; k++) {
        if (wants_shape(d, layout, k))
            add_shape(page, &d->edges[k], &layout->routes[k]);
    }
    rg_page_put(page, "</svg>\n");
}

rg_status rg_draw_svg_add(rg_page *page, const rg_drawing *drawing, bool alone)
{
    rg_draw_layout layout;
    RG_TRY(rg_draw_layout_make(drawing, &layout));
    add_svg(page, drawing, &layout, alone);
    rg_draw_layout_clear(&layout);
    return page->status;
}

rg_status rg_draw_svg(const rg_drawing *drawing, const char *path)
{
    RG_CHECK_NOT_NULL(drawing);
    RG_CHECK_NOT_NULL(path);
    rg_page page = { 0 };
    rg_page_put(&page, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    const rg_status status = rg_draw_svg_add(&page, drawing, true);
    if (status != RG_OK) {
        rg_page_clear(&page);
        return status;
    }
    return rg_page_save(&page, path);
}
