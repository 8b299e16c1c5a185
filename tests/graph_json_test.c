/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs as JSON: there and back, and texts that are no graphs. */
#include "api.h"
#include "scratch_folder.h"

#include <retrograde/files.h>
#include <retrograde/safetensors.h>

#include <math.h>

/* A network with all that a graph can hold: a source that is read twice, a sum, constants, states,
 * optimizers, stop marks, a gradient by hand. */
static rg_graph *make_graph(void)
{
    rg_graph *graph = NULL;
    EXPECT_OK(rg_graph_create(&graph));
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 2, DIMS(3, 3));
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_F64, 0, NULL);
    rg_dropout_desc dropout = rg_dropout_desc_default();
    rg_neuron_desc neuron = rg_neuron_desc_default();
    const rg_arithmetic_desc plus = rg_arithmetic_desc_default();
    rg_reduce_desc reduce = rg_reduce_desc_default();
    reduce.keep_dims = false;
    neuron.kind = RG_NEURON_TANH;
    dropout.keep = 0.75;
    rg_dense_desc fc = rg_dense_desc_default();
    fc.bias = false;
    rg_value *x = rg_graph_source(graph, "x \"quoted\" \xc3\xa4"),
             *w = rg_graph_parameter(graph, "w", &shape);
    rg_value *rate = rg_graph_parameter(graph, "rate", &number);
    rg_node *layer = rg_graph_dense(graph, &fc, (rg_value *[]){ x, w });
    rg_value *h = rg_node_output(layer, 0);
    EXPECT_OK(rg_node_set_label(layer, "first\nlayer"));
    rg_node *drop = rg_graph_dropout(graph, &dropout, &h);
    rg_value *a = rg_node_output(drop, 0);
    rg_value *b = rg_node_output(rg_graph_neuron(graph, &neuron, &a), 0);
    rg_value *half = rg_graph_constant(graph, rg_graph_constant(graph, a, 2), 0.5);
    rg_value *c = rg_node_output(rg_graph_arithmetic(graph, &plus, (rg_value *[]){ b, half }), 0);
    rg_value *d = rg_node_output(rg_graph_arithmetic(graph, &plus, (rg_value *[]){ c, a }), 0);
    rg_value *loss = rg_node_output(rg_graph_reduce(graph, &reduce, &d), 0);
    EXPECT_OK(rg_value_stop_gradient(half));
    EXPECT_OK(rg_graph_result(graph, loss, "loss"));
    EXPECT_OK(rg_graph_state_result(graph, drop, "mask"));
    EXPECT_OK(rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    rg_value *dy = rg_graph_constant(graph, b, 3);
    rg_node *hand = rg_graph_neuron_gradient(graph, &neuron, &dy, &a, NULL, NULL);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(hand, 0), "by hand"));
    rg_sgd_desc sgd = rg_sgd_desc_default();
    sgd.momentum = 0.5;
    EXPECT(rg_graph_update(graph, "sgd", &sgd, w, rg_value_gradient(w), rate, NULL, NULL) != NULL);
    EXPECT_OK(rg_graph_status(graph));
    return graph;
}

static char *text_of(const rg_graph *graph)
{
    const size_t length = rg_graph_to_json(graph, NULL, 0);
    char *text = calloc(1, length + 1);
    EXPECT(rg_graph_to_json(graph, text, length + 1) == length && strlen(text) == length);
    return text;
}

static void run_plan(rig *r, const rg_graph *graph, double results[])
{
    static const char *const names[] = { "loss", "dx", "by hand" };
    rg_plan *plan = NULL;
    rg_tensor *tensor = NULL, *x = filled(r->device, RG_F64, 2, DIMS(2, 3), 4);
    EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
    EXPECT_OK(rg_plan_parameter(plan, "w", &tensor));
    fill(tensor, 5);
    EXPECT_OK(rg_plan_parameter(plan, "rate", &tensor));
    const double rate = 0.25;
    EXPECT_OK(rg_tensor_write(tensor, &rate, sizeof rate, RG_LAYOUT_SAME));
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(rg_plan_encode(plan, r->commands, &x));
        EXPECT_OK(rig_run(r));
    }
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(rg_plan_result(plan, names[i], &tensor));
        EXPECT_OK(rg_tensor_read(tensor, results + at, bytes_of(tensor), RG_LAYOUT_SAME));
        at += count_of(tensor);
    }
    EXPECT_OK(rg_plan_parameter(plan, "w", &tensor));
    EXPECT_OK(rg_tensor_read(tensor, results + at, bytes_of(tensor), RG_LAYOUT_SAME));
    rg_tensor_destroy(x);
    rg_plan_destroy(plan);
}

static void test_round_trip(rig *r)
{
    rg_graph *graph = make_graph(), *back = NULL, *again = NULL;
    char *text = text_of(graph);
    EXPECT_OK(rg_graph_from_json(text, strlen(text), &back));
    EXPECT(rg_graph_equal(graph, back));
    EXPECT(rg_graph_find_node(back, "first\nlayer") != NULL);
    const rg_value *w = rg_graph_find_value(back, "w");
    EXPECT(rg_value_gradient(w) != NULL && rg_graph_assigned(back, w) != NULL);
    char *twice = text_of(back);
    EXPECT(strcmp(text, twice) == 0);
    double before[64] = { 0 }, after[64] = { 0 };
    run_plan(r, graph, before);
    run_plan(r, back, after);
    EXPECT(memcmp(before, after, sizeof before) == 0);
    scratch_begin();
    EXPECT_OK(rg_graph_save(graph, scratch("graph.json")));
    EXPECT_OK(rg_graph_load(scratch("graph.json"), &again));
    EXPECT(rg_graph_equal(graph, again));
    rg_graph_destroy(again);
    unlink(scratch("graph.json"));
    scratch_end();
    EXPECT_FAILS(rg_graph_load("/nonexistent/graph", &again), RG_IO, "/nonexistent/graph");
    EXPECT(again == NULL);
    free(text);
    free(twice);
    rg_graph_destroy(back);
    rg_graph_destroy(graph);
}

/* A plan in a file: the same results after as before; files that do not hold it are refused. */
static void test_plan_files(rig *r)
{
    rg_graph *graph = make_graph();
    rg_plan *plan = NULL, *back = NULL;
    rg_tensor *tensor = NULL, *other = NULL, *x = filled(r->device, RG_F64, 2, DIMS(2, 3), 4);
    EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
    EXPECT_OK(rg_plan_parameter(plan, "w", &tensor));
    fill(tensor, 5);
    EXPECT_OK(rg_plan_parameter(plan, "w.momentum", &tensor));
    fill(tensor, 6);
    scratch_begin();
    EXPECT_OK(rg_plan_save(plan, scratch("plan")));
    EXPECT_OK(rg_plan_load(r->device, scratch("plan"), NULL, &back));
    rg_plan *const plans[] = { plan, back };
    for (int i = 0; i < 2 && back != NULL; i++) {
        EXPECT_OK(rg_plan_encode(plans[i], r->commands, &x));
        EXPECT_OK(rig_run(r));
    }
    static const char *const names[] = { "loss", "dx", "by hand" };
    for (int i = 0; i < 3 && back != NULL; i++) {
        EXPECT_OK(rg_plan_result(plan, names[i], &tensor));
        EXPECT_OK(rg_plan_result(back, names[i], &other));
        EXPECT(same_bits(tensor, other));
    }
    EXPECT_OK(rg_plan_parameter(back, "w", &other));
    fill(other, 7);
    EXPECT_OK(rg_plan_load_parameters(back, scratch("plan")));
    EXPECT_OK(rg_plan_parameter(plan, "w", &tensor));
    fill(tensor, 5);
    EXPECT(same_bits(tensor, other));
    rg_plan_destroy(back);
    const rg_safetensors_entry w = { .name = "w", .tensor = x };
    const rg_safetensors_text text = { "retrograde.graph", "{\"retrograde\": 1}" };
    EXPECT_OK(rg_safetensors_write(scratch("plan"), &w, 1, NULL, 0));
    EXPECT_FAILS(rg_plan_load(r->device, scratch("plan"), NULL, &back), RG_MALFORMED,
                 "the file has no metadata entry 'retrograde.graph'");
    EXPECT_FAILS(rg_plan_load_parameters(plan, scratch("plan")), RG_MALFORMED,
                 "'w' is f64[2, 3], not f64[3, 3]");
    EXPECT_OK(rg_safetensors_write(scratch("plan"), &w, 1, &text, 1));
    EXPECT_FAILS(rg_plan_load(r->device, scratch("plan"), NULL, &back), RG_INVALID_ARGUMENT,
                 "nothing to run");
    const rg_safetensors_text huge = {
        "retrograde.graph",
        "{\"retrograde\": 1, \"parameters\": [{\"name\": \"v\", \"dtype\": \"f32\", "
        "\"dims\": [1099511627776]}], \"results\": [{\"name\": \"v\", \"value\": \"v\"}]}"
    };
    EXPECT_OK(rg_safetensors_write(scratch("plan"), &w, 1, &huge, 1));
    EXPECT_FAILS(rg_plan_load(r->device, scratch("plan"), NULL, &back), RG_MALFORMED,
                 "the parameter 'v' does not exist");
    EXPECT(back == NULL);
    EXPECT_FAILS(rg_plan_load(r->device, "/nonexistent/plan", NULL, &back), RG_IO, "/nonexistent");
    EXPECT_FAILS(rg_plan_load(NULL, "x", NULL, &back), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_save(NULL, "x"), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_load_parameters(NULL, "x"), RG_INVALID_ARGUMENT, "NULL");
    unlink(scratch("plan"));
    scratch_end();
    rg_tensor_destroy(x);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* Every text that is cut short is refused, and so is nearly every text with a byte changed: what is
 * still a graph may be written again. */
static void test_damaged(void)
{
    rg_graph *graph = make_graph(), *back = NULL;
    char *text = text_of(graph);
    const size_t length = strlen(text);
    for (size_t cut = 0; cut < length; cut++) {
        EXPECT(rg_graph_from_json(text, cut, &back) == RG_MALFORMED);
        EXPECT(back == NULL);
    }
    uint64_t seed = 1;
    int refused = 0;
    for (int i = 0; i < 3000; i++) {
        const size_t at = (size_t)draw_from(&seed, 0, (int64_t)length - 1);
        const char kept = text[at];
        text[at] = "\"[]{},:0129xy"[draw(&seed) % 13];
        const rg_status status = rg_graph_from_json(text, length, &back);
        EXPECT(status == RG_OK || status == RG_MALFORMED);
        refused += status != RG_OK;
        if (status == RG_OK)
            free(text_of(back));
        rg_graph_destroy(back);
        text[at] = kept;
    }
    EXPECT(refused > 1500);
    free(text);
    rg_graph_destroy(graph);
}

#define HEAD       "{\"retrograde\": 1, \"sources\": [\"x\"], "
#define TANH       "{\"op\": \"neuron\", \"label\": \"a\", \"x\": [\"x\"]}"
#define NODES(...) HEAD "\"nodes\": [" __VA_ARGS__ "]}"

static const struct {
    const char *text, *words;
} refused[] = {
    { "", "line 1" },
    { "[]", "line 1, column 1: a graph must be an object" },
    { "{}", "\"retrograde\": 1" },
    { "{\"retrograde\": 2}", "\"retrograde\": 1" },
    { "{\"retrograde\": 1, \"other\": 1}", "no \"other\"" },
    { "{\"retrograde\": 1, \"sources\": [\"x\", \"x\"]}", "two values with the name 'x'" },
    { "{\"retrograde\": 1, \"sources\": [\"\"]}", "needs a name" },
    { "{\"retrograde\": 1, \"sources\": \"x\"}", "\"sources\" must be an array" },
    { "{\"retrograde\": 1, \"sources\": [1]}", "a source must be a string, its name" },
    { HEAD "\"parameters\": [{\"name\": \"x\", \"dtype\": \"f32\", \"dims\": []}]}", "'x'" },
    { HEAD "\"parameters\": [{\"name\": \"w\", \"dtype\": \"f31\", \"dims\": []}]}", "f31" },
    { HEAD "\"parameters\": [{\"name\": \"w\", \"dtype\": \"f32\", \"dims\": [-1]}]}", "w" },
    { HEAD "\"parameters\": [{\"name\": \"w\", \"dtype\": \"f32\", \"dims\": [1.5]}]}", "whole" },
    { HEAD "\"parameters\": [{\"name\": \"w\", \"dtype\": \"f32\", "
           "\"dims\": [4611686018427387904, 4]}]}",
      "w" },
    { HEAD "\"parameters\": [{\"name\": \"w\", \"dtype\": \"f32\", "
           "\"dims\": [99999999999999999999]}]}",
      "whole number" },
    { HEAD "\"parameters\": [{\"name\": \"w\", \"dtype\": \"f32\", "
           "\"dims\": [1,1,1,1,1,1,1,1,1]}]}",
      "at most 8" },
    { NODES("1"), "a node must be an object" },
    { NODES("{\"op\": \"none\", \"x\": [\"x\"]}"), "unknown op \"none\"" },
    { NODES("{\"op\": \"MPSCNNNeuron\", \"x\": [\"x\"]}"), "unknown op" },
    { NODES("{\"op\": \"neuron\"}"), "\"x\"" },
    { NODES("{\"op\": \"neuron\", \"x\": []}"),
      "line 1, column 47: neuron_0 needs 1 value (x), but 0 were given" },
    { NODES("{\"op\": \"neuron\", \"x\": [\"x\", \"x\"]}"),
      "line 1, column 47: neuron_0 needs 1 value (x), but 2 were given" },
    { NODES("{\"op\": \"neuron\", \"x\": [null]}"), "x is NULL" },
    { NODES("{\"op\": \"neuron\", \"x\": [\"y\"]}"), "unknown source or parameter \"y\"" },
    { NODES("{\"op\": \"neuron\", \"x\": [[\"a\", 0]], \"label\": \"a\"}"), "called \"a\"" },
    { NODES("{\"op\": \"neuron\", \"x\": [[\"b\", 0]], \"label\": \"a\"},"
            "{\"op\": \"neuron\", \"x\": [[\"a\", 0]], \"label\": \"b\"}"),
      "no earlier node is called \"b\"" },
    { NODES(TANH "," TANH), "rg_node_set_label: another node of the graph has the label 'a'" },
    { NODES(TANH ",{\"op\": \"neuron\", \"x\": [[\"a\", 1]]}"), "no output 1" },
    { NODES(TANH ",{\"op\": \"neuron\", \"x\": [[\"a\", -1]]}"), "no output -1" },
    { NODES(TANH ",{\"op\": \"neuron\", \"x\": [[\"a\"]]}"), "[\"label\", number]" },
    { NODES("{\"op\": \"neuron\", \"x\": [\"x\"], \"desc\": {\"kind\": \"?\"}}"), "kind" },
    { NODES("{\"op\": \"dropout\", \"x\": [\"x\"], \"desc\": {\"keep\": 2}}"), "keep" },
    { NODES("{\"op\": \"neuron\", \"x\": [\"x\"], \"more\": 1}"), "no \"more\"" },
    { NODES("{\"op\": \"neuron\", \"x\": [{\"constant\": 1}]}"), "like" },
    { NODES("{\"op\": \"neuron\", \"x\": [{\"constant\": \"x\", \"like\": \"x\"}]}"), "number" },
    { NODES(TANH ",{\"op\": \"neuron\", \"gradient_of\": \"b\"}"), "called \"b\"" },
    { NODES(TANH ",{\"op\": \"softmax\", \"gradient_of\": \"a\"}"),
      "line 1, column 123: \"a\" is not a forward node of the op softmax" },
    { NODES(TANH ",{\"op\": \"neuron\", \"gradient_of\": \"a\"}"), "\"dy\"" },
    { NODES(TANH ",{\"op\": \"neuron\", \"gradient_of\": \"a\", \"dy\": []}"),
      "\"dy\" has 0 values; it must have 1" },
    { NODES(TANH ",{\"op\": \"neuron\", \"gradient_of\": \"a\", \"dy\": [\"x\"]}"), "wanted" },
    { NODES(TANH ",{\"op\": \"neuron\", \"gradient_of\": \"a\", \"dy\": [\"x\"], "
                 "\"wanted\": [1]}"),
      "1 inputs" },
    { NODES(TANH ",{\"op\": \"neuron\", \"gradient_of\": \"a\", \"dy\": [\"x\"], "
                 "\"wanted\": [64]}"),
      "the input 64 does not exist" },
    { NODES("{\"op\": \"sgd\", \"gradient_of\": null, \"dy\": [\"x\"], \"x\": [\"x\", \"x\", "
            "\"x\"], \"y\": [null], \"wanted\": [0]}"),
      "no gradient" },
    { HEAD "\"results\": [{\"name\": \"r\", \"value\": \"y\"}]}", "\"y\"" },
    { HEAD "\"results\": [{\"name\": \"r\"}]}", "\"value\"" },
    { HEAD "\"results\": [{\"name\": \"r\", \"value\": \"x\"}, {\"name\": \"r\", \"value\": "
           "\"x\"}]}",
      "two results" },
    { HEAD "\"states\": [{\"name\": \"s\", \"node\": \"n\"}]}", "\"n\"" },
    { HEAD "\"assignments\": [[\"x\", \"x\"]]}",
      "rg_graph_assign: only a parameter can be assigned to" },
    { HEAD "\"assignments\": [[\"x\"]]}", "two values" },
    { HEAD "\"stops\": [0]}", "expected a value" },
};

static void test_refused(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        rg_graph *graph = NULL;
        EXPECT_FAILS(rg_graph_from_json(refused[i].text, strlen(refused[i].text), &graph),
                     RG_MALFORMED, refused[i].words);
        EXPECT(strstr(rg_error_text(), "column") != NULL && graph == NULL);
        if (strstr(rg_error_text(), refused[i].words) == NULL)
            printf("case %zu: %s\n", i, refused[i].text);
    }
    rg_graph *graph = NULL;
    EXPECT_FAILS(rg_graph_from_json(NULL, 0, &graph), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_graph_from_json("", 0, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(
        rg_graph_from_json("", (size_t)1 << 40, &graph), RG_MALFORMED,
        "rg_graph_from_json: the text has 1099511627776 bytes; at most 67108864 are supported");
    EXPECT_FAILS(rg_graph_save(NULL, "x"), RG_INVALID_ARGUMENT, "NULL");
    EXPECT(rg_graph_to_json(NULL, NULL, 0) == 0);
}

/* Constants of constants, as deep as a text may be, and deeper. */
static void test_nesting(void)
{
    for (int depth = 40; depth <= 4000; depth *= 10) {
        char *text = calloc(1, 64 + (size_t)depth * 32);
        strcpy(text, NODES("{\"op\": \"neuron\", \"x\": ["));
        text[strlen(text) - 2] = 0;
        for (int i = 0; i < depth; i++)
            strcat(text, "{\"constant\": 1, \"like\": ");
        strcat(text, "\"x\"");
        for (int i = 0; i < depth; i++)
            strcat(text, "}");
        strcat(text, "]}]}");
        rg_graph *graph = NULL;
        const rg_status status = rg_graph_from_json(text, strlen(text), &graph);
        EXPECT(status == (depth == 40 ? RG_OK : RG_MALFORMED));
        rg_graph_destroy(graph);
        free(text);
    }
}

/* Many nodes take as long as they are many, not as their square. */
static void test_many(void)
{
    enum { MANY = 20000 };
    char *text = calloc(1, 64 + MANY * 64), *at = text;
    at += sprintf(at, "%s", HEAD "\"nodes\": [");
    for (int i = 0; i < MANY; i++) {
        at +=
            sprintf(at, "%s{\"op\": \"neuron\", \"label\": \"n%d\", \"x\": [", i > 0 ? "," : "", i);
        at += i > 0 ? sprintf(at, "[\"n%d\", 0]]}", i - 1) : sprintf(at, "\"x\"]}");
    }
    sprintf(at, "]}");
    rg_graph *graph = NULL;
    EXPECT_OK(rg_graph_from_json(text, strlen(text), &graph));
    EXPECT(rg_graph_nodes(graph) == MANY);
    rg_graph_destroy(graph);
    free(text);
}

int main(void)
{
    rig r = rig_open(1);
    test_round_trip(&r);
    test_plan_files(&r);
    test_damaged();
    test_refused();
    test_nesting();
    test_many();
    rig_close(&r);
    return rg_test_report();
}
