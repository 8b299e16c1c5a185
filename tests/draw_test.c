/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Drawings: boxes that do not overlap, lines that reach them, circles, nonsense, SVG and DOT. */
#include "tests/markup.h"
#include "tests/report_sample.h"
#include "train/draw_layout.h"

#include <math.h>

/* ---- layouts ---- */

static bool overlap(const rg_draw_box *a, const rg_draw_box *b)
{
    return fabs(a->x - b->x) < (a->width + b->width) / 2 - 0.01 &&
           fabs(a->y - b->y) < (a->height + b->height) / 2 - 0.01;
}

static bool lies_on_border(const rg_draw_box *box, rg_draw_point p)
{
    const double x = fabs(p.x - box->x), y = fabs(p.y - box->y);
    return x < box->width / 2 + 0.01 && y < box->height / 2 + 0.01 &&
           (x > box->width / 2 - 0.01 || y > box->height / 2 - 0.01);
}

/* What holds for every layout. */
static void check_layout(const rg_drawing *d)
{
    rg_draw_layout layout;
    int overlaps = 0, outside = 0, loose = 0;
    EXPECT_OK(rg_draw_layout_make(d, &layout));
    for (int32_t i = 0; i < d->node_count; i++) {
        const rg_draw_box *box = &layout.boxes[i];
        outside += !(box->x - box->width / 2 >= 0 && box->x + box->width / 2 <= layout.width &&
                     box->y - box->height / 2 >= 0 && box->y + box->height / 2 <= layout.height);
        for (int32_t k = 0; k < i; k++)
            overlaps += overlap(box, &layout.boxes[k]);
    }
    for (int32_t k = 0; k < d->edge_count; k++) {
        const rg_draw_route *route = &layout.routes[k];
        if (route->count == 0)
            continue;
        loose += !lies_on_border(&layout.boxes[d->edges[k].from], route->points[0]) ||
                 !lies_on_border(&layout.boxes[d->edges[k].to], route->points[route->count - 1]);
    }
    EXPECT(overlaps == 0 && outside == 0 && loose == 0);
    rg_draw_layout_clear(&layout);
}

/* Nodes of which each reads some before it, with gradients, parameters and updates. */
static void make_random(rg_draw_node *nodes, rg_draw_edge *edges, rg_drawing *d, int32_t forward,
                        uint64_t *seed)
{
    *d = (rg_drawing){ "random", nodes, 0, edges, 0 };
    for (int32_t i = 0; i < forward; i++) {
        nodes[d->node_count++] = (rg_draw_node){ .label = "node", .op = "op", .of = -1 };
        const int reads = (int)(scratch_random(seed) % 3);
        for (int k = 0; k < reads && i > 0; k++) {
            const int32_t back = 1 + (int32_t)(scratch_random(seed) % (i < 9 ? (uint64_t)i : 9));
            edges[d->edge_count++] = (rg_draw_edge){ i - back, i, "8×8", RG_DRAW_DATA };
        }
    }
    const int32_t links = d->edge_count;
    for (int32_t i = 0; i < forward; i++) {
        const bool known = scratch_random(seed) % 8 != 0;
        nodes[d->node_count++] = (rg_draw_node){
            .label = "gradient", .op = "op gradient", .kind = RG_DRAW_GRADIENT, .of = known ? i : -1
        };
        edges[d->edge_count++] = (rg_draw_edge){ i, forward + i, NULL, RG_DRAW_STATE };
    }
    for (int32_t k = 0; k < links; k++)
        edges[d->edge_count++] = (rg_draw_edge){ forward + edges[k].to, forward + edges[k].from,
                                                 "8×8", RG_DRAW_DERIVATIVE };
    for (int32_t i = 0; i < forward; i += 3) {
        const int32_t w = d->node_count, update = w + 1;
        nodes[w] = (rg_draw_node){ .label = "w", .parameter = true, .of = -1 };
        nodes[update] = (rg_draw_node){ .label = "sgd", .kind = RG_DRAW_UPDATE, .of = -1 };
        d->node_count += 2;
        edges[d->edge_count++] = (rg_draw_edge){ w, i, NULL, RG_DRAW_DATA };
        edges[d->edge_count++] = (rg_draw_edge){ forward + i, update, NULL, RG_DRAW_DERIVATIVE };
        edges[d->edge_count++] = (rg_draw_edge){ update, w, NULL, RG_DRAW_STATE };
    }
}

static void test_random(void)
{
    rg_draw_node *nodes = calloc(2000, sizeof *nodes);
    rg_draw_edge *edges = calloc(10000, sizeof *edges);
    rg_drawing d;
    uint64_t seed = 7;
    for (int32_t forward = 1; forward < 130; forward += forward < 12 ? 1 : 23) {
        make_random(nodes, edges, &d, forward, &seed);
        check_layout(&d);
    }
    make_random(nodes, edges, &d, 700, &seed);
    check_layout(&d);
    for (int32_t k = 0; k < 3000; k++) /* any lines at all, many of them circles or nowhere */
        edges[k] = (rg_draw_edge){ (int32_t)(scratch_random(&seed) % 310) - 5,
                                   (int32_t)(scratch_random(&seed) % 310) - 5, "x",
                                   (rg_draw_edge_kind)(scratch_random(&seed) % 3) };
    for (int32_t i = 0; i < 300; i++)
        nodes[i] = (rg_draw_node){ .label = "n",
                                   .kind = (rg_draw_kind)(scratch_random(&seed) % 3),
                                   .parameter = scratch_random(&seed) % 4 == 0,
                                   .of = (int32_t)(scratch_random(&seed) % 310) - 5 };
    d = (rg_drawing){ NULL, nodes, 300, edges, 3000 };
    check_layout(&d);
    free(nodes);
    free(edges);
}

/* A straight network is drawn straight, its gradient beside it. */
static void test_chain(void)
{
    rg_draw_node nodes[12];
    rg_draw_edge edges[16];
    rg_drawing d = { "chain", nodes, 12, edges, 0 };
    rg_draw_layout layout;
    for (int32_t i = 0; i < 6; i++) {
        nodes[i] = (rg_draw_node){ .label = i % 2 == 0 ? "a" : "a longer label", .of = -1 };
        nodes[6 + i] = (rg_draw_node){ .label = "d", .kind = RG_DRAW_GRADIENT, .of = i };
        if (i > 0)
            edges[d.edge_count++] = (rg_draw_edge){ i - 1, i, "1", RG_DRAW_DATA };
        if (i > 0)
            edges[d.edge_count++] = (rg_draw_edge){ 6 + i, 5 + i, "1", RG_DRAW_DERIVATIVE };
    }
    check_layout(&d);
    EXPECT_OK(rg_draw_layout_make(&d, &layout));
    for (int32_t i = 1; i < 6; i++) {
        EXPECT(fabs(layout.boxes[i].x - layout.boxes[0].x) < 0.5);
        EXPECT(layout.boxes[i].y > layout.boxes[i - 1].y);
        EXPECT(layout.boxes[6 + i].y == layout.boxes[i].y);
        EXPECT(layout.boxes[6 + i].x > layout.boxes[i].x);
    }
    rg_draw_layout_clear(&layout);
    for (int32_t i = 6; i < 12; i++) /* the same where nobody says what belongs to what */
        nodes[i].of = -1;
    EXPECT_OK(rg_draw_layout_make(&d, &layout));
    for (int32_t i = 0; i < 6; i++)
        EXPECT(layout.boxes[6 + i].y == layout.boxes[i].y);
    rg_draw_layout_clear(&layout);
}

/* ---- files ---- */

static void test_svg(const sample *s)
{
    size_t size;
    const rg_drawing *d = &s->report.drawing;
    check_layout(d);
    EXPECT_OK(rg_draw_svg(d, scratch("net.svg")));
    char *text = markup_take("net.svg", &size);
    EXPECT(markup_check(text, NULL) && strlen(text) == size && size < 100000);
    EXPECT(strstr(text, "xmlns=\"http://www.w3.org/2000/svg\"") != NULL);
    EXPECT(markup_count(text, "rx=\"7\"") + markup_count(text, "rx=\"11\"") == d->node_count);
    EXPECT(strstr(text, ">64×14×14×32</text>") && strstr(text, "prefers-color-scheme"));
    EXPECT(strstr(text, "NaN") == NULL && strstr(text, "inf") == NULL);
    free(text);

    const rg_drawing none = { 0 };
    EXPECT_OK(rg_draw_svg(&none, scratch("net.svg")));
    text = markup_take("net.svg", &size);
    EXPECT(markup_check(text, NULL));
    free(text);
    const rg_drawing large = { NULL, NULL, RG_DRAW_NODES + 1, NULL, 0 };
    EXPECT_FAILS(rg_draw_svg(&large, scratch("net.svg")), RG_UNSUPPORTED, "2001 nodes");
    const rg_drawing negative = { NULL, NULL, -1, NULL, 0 };
    EXPECT_FAILS(rg_draw_svg(&negative, scratch("net.svg")), RG_INVALID_ARGUMENT, "-1 nodes");
    EXPECT_FAILS(rg_draw_svg(d, "/nonexistent/net.svg"), RG_IO, "nonexistent");
}

/* Quotes close, braces balance outside of them; returns how many statements there are. */
static int dot_statements(const char *text)
{
    int depth = 0, statements = 0;
    bool quoted = false;
    for (; *text != 0; text++) {
        if (quoted && *text == '\\' && text[1] != 0)
            text++;
        else if (*text == '"')
            quoted = !quoted;
        else if (!quoted && (*text == '{' || *text == '}'))
            depth += *text == '{' ? 1 : -1;
        else if (!quoted && *text == ';')
            statements++;
    }
    return depth == 0 && !quoted ? statements : -1;
}

static void test_dot(const sample *s)
{
    size_t size;
    const rg_drawing *d = &s->report.drawing;
    EXPECT_OK(rg_draw_dot(d, scratch("net.dot")));
    char *text = markup_take("net.dot", &size);
    const int statements = dot_statements(text);
    EXPECT(strncmp(text, "digraph \"LeNet", 14) == 0 &&
           markup_count(text, " -> ") == d->edge_count);
    EXPECT(statements > d->node_count + d->edge_count);
    free(text);

    const rg_draw_node nodes[2] = {
        { .label = "\"];}\\\" evil \\", .op = "\n\\n\x02", .text = "\xff<b>", .of = -1 },
        { .label = NULL, .of = -1 },
    };
    const rg_draw_edge edges[3] = { { 0, 1, "\\", RG_DRAW_DATA },
                                    { 0, 2, "nowhere", RG_DRAW_DATA },
                                    { -1, 0, "nowhere", RG_DRAW_DATA } };
    const rg_drawing hostile = { "a\"{", nodes, 2, edges, 3 };
    EXPECT_OK(rg_draw_dot(&hostile, scratch("net.dot")));
    text = markup_take("net.dot", &size);
    EXPECT(dot_statements(text) == statements - d->node_count - d->edge_count + 3);
    EXPECT(strstr(text, "nowhere") == NULL);
    free(text);
}

int main(void)
{
    sample *s = sample_make();
    if (s == NULL)
        return 1;
    scratch_begin();
    test_chain();
    test_random();
    test_svg(s);
    test_dot(s);
    scratch_end();
    free(s);
    return rg_test_report();
}
