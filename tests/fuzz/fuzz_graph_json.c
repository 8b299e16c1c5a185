/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* JSON of graphs: 24 bytes that choose the sources of a run, then the text. A graph that is read
 * is written and read again, drawn, planned and run. */
#include "fuzz.h"

#include "train/graph_drawing.h"

#include <retrograde/files.h>

enum { CHOICES = 24 };

static void draw(const rg_graph *graph)
{
    rg_graph_drawing drawing;
    if (!FUZZ_TRY(rg_graph_drawing_create(graph, "fuzz", &drawing)))
        return;
    (void)FUZZ_TRY(rg_draw_svg(&drawing.drawing, fuzz_path("graph.svg")));
    (void)FUZZ_TRY(rg_draw_dot(&drawing.drawing, fuzz_path("graph.dot")));
    rg_graph_drawing_release(&drawing);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    size_t taken;
    uint8_t *choices = fuzz_take(&input, CHOICES, &taken);
    fuzz_input sources = { choices, taken };
    rg_graph *graph;
    if (FUZZ_TRY(rg_graph_from_json((const char *)input.data, input.size, &graph))) {
        fuzz_graph_round_trip(graph);
        if (taken > 0 && (choices[0] & 3) == 0)
            draw(graph);
        fuzz_run_graph(graph, &sources);
    } else {
        FUZZ_CHECK(graph == NULL);
    }
    rg_graph_destroy(graph);
    free(choices);
    return 0;
}
