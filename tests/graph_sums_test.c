/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums of gradients in 16 bits: a gradient that is added to another one where it is made is not
 * rounded before. Which ones are depends neither on the memory of sources nor on options that leave
 * the bits as they are. On any device. */
#include "any_device.h"
#include "graph_f64.h"

enum { ROWS = 5, COLUMNS = 7, CHANNELS = 9, ELEMENTS = 2 * ROWS * COLUMNS * CHANNELS };

/* y = lrn(t) + t with t = tanh(x): dy is the gradient of t's second reader as it is. */
static rg_graph *make_graph(void)
{
    rg_graph *graph = graph_new();
    rg_lrn_desc lrn = rg_lrn_desc_default();
    lrn.beta = 0.75;
    rg_value *x = rg_graph_source(graph, "x"), *dy = rg_graph_source(graph, "dy");
    rg_value *t = f64_neuron(graph, RG_NEURON_TANH, x);
    rg_value *y = f64_sum(graph, rg_node_output(rg_graph_lrn(graph, &lrn, &t), 0), t);
    EXPECT_OK(rg_graph_gradients(graph, &y, &dy, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    return graph;
}

/* A source, dense or with a gap after each pixel. */
static rg_tensor *make_source(rg_device *device, rg_dtype dtype, bool dense, uint64_t seed)
{
    const int64_t whole[] = { 2, ROWS, COLUMNS, CHANNELS + (dense ? 0 : 3) };
    rg_tensor *tensor = tensor_of(device, dtype, 4, whole), *view = NULL;
    EXPECT_OK(
        rg_tensor_slice(tensor, DIMS(0, 0, 0, 0), DIMS(2, ROWS, COLUMNS, CHANNELS), NULL, &view));
    fill(view, seed);
    rg_tensor_destroy(tensor);
    return view;
}

static void run_plan(rig *r, const rg_graph *graph, rg_dtype dtype, bool dense, bool shares,
                     uint16_t dx[ELEMENTS])
{
    rg_plan_options options = rg_plan_options_default();
    options.share_views = shares;
    rg_plan *plan = NULL;
    rg_tensor *sources[] = { make_source(r->device, dtype, dense, 1),
                             make_source(r->device, dtype, dense, 2) };
    EXPECT_OK(rg_plan_create(r->device, graph, &options, &plan));
    EXPECT_OK(rg_plan_encode(plan, r->commands, sources));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(f64_result(plan, "dx"), dx, ELEMENTS * sizeof *dx, RG_LAYOUT_SAME));
    rg_plan_destroy(plan);
    rg_tensor_destroy(sources[0]);
    rg_tensor_destroy(sources[1]);
}

static void test_bits(rig *r)
{
    static const rg_dtype dtypes[] = { RG_F16, RG_BF16 };
    rg_graph *graph = make_graph();
    for (int i = 0; i < 2; i++) {
        uint16_t plain[ELEMENTS], other[ELEMENTS];
        run_plan(r, graph, dtypes[i], true, true, plain);
        for (int way = 0; way < 4; way++) { /* the last one is that of `plain` */
            run_plan(r, graph, dtypes[i], way & 1, way & 2, other);
            EXPECT(memcmp(plain, other, sizeof plain) == 0);
        }
    }
    rg_graph_destroy(graph);
}

int main(void)
{
    RUN_ON_DEVICES(test_bits);
    return rg_test_report();
}
