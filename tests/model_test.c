/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Models by their public header alone: texts, graphs, plans with first values, and what is wrong.
 */
#include "tests/scratch_folder.h"

#include <retrograde/model.h>

enum { LARGE = 1 << 20 };

static rg_device *device;

static rg_model *model_of(const char *name)
{
    rg_model *model = NULL;
    EXPECT_OK(rg_model_open(name, &model));
    return model;
}

static void test_models(void)
{
    int32_t count = 0;
    for (; rg_model_builtin(count) != NULL; count++) {
        rg_model *model = model_of(rg_model_builtin(count));
        EXPECT(strcmp(rg_model_name(model), rg_model_builtin(count)) == 0);
        rg_model *again = NULL;
        EXPECT_OK(rg_model_parse("again", rg_model_text(model), &again));
        EXPECT(strcmp(rg_model_text(again), rg_model_text(model)) == 0);
        rg_model_destroy(again);
        rg_model_destroy(model);
    }
    EXPECT(count >= 4 && rg_model_builtin(-1) == NULL && rg_model_builtin(count + 1) == NULL);
    EXPECT(rg_model_name(NULL)[0] == 0 && rg_model_text(NULL)[0] == 0);
    rg_model_destroy(NULL);
}

static void test_bad_models(void)
{
    rg_model *model = model_of("mlp");
    rg_model *none = model;
    EXPECT_FAILS(rg_model_parse("x", "conv\n", NULL), RG_INVALID_ARGUMENT, "model is NULL");
    EXPECT_FAILS(rg_model_parse(NULL, "conv\n", &none), RG_INVALID_ARGUMENT, "name is NULL");
    EXPECT(none == NULL);
    EXPECT_FAILS(rg_model_parse("x", NULL, &none), RG_INVALID_ARGUMENT, "text is NULL");
    EXPECT_FAILS(rg_model_parse("x", "neuron\nconvv 3\n", &none), RG_MALFORMED, "x:2:1: ");
    EXPECT_FAILS(rg_model_open(NULL, &none), RG_INVALID_ARGUMENT, "name is NULL");
    EXPECT_FAILS(rg_model_open(scratch("none.txt"), &none), RG_IO, "none.txt");
    rg_graph *graph = NULL;
    rg_network_desc desc = rg_network_desc_default();
    EXPECT_FAILS(rg_model_graph(NULL, &desc, &graph), RG_INVALID_ARGUMENT, "model is NULL");
    EXPECT_FAILS(rg_model_graph(model, NULL, &graph), RG_INVALID_ARGUMENT, "desc is NULL");
    EXPECT_FAILS(rg_model_graph(model, &desc, NULL), RG_INVALID_ARGUMENT, "graph is NULL");
    desc.size = 0;
    EXPECT_FAILS(rg_model_graph(model, &desc, &graph), RG_INVALID_ARGUMENT, "size is 0");
    desc = rg_network_desc_default();
    desc.size = sizeof desc + 8;
    EXPECT_FAILS(rg_model_graph(model, &desc, &graph), RG_INVALID_ARGUMENT, "size is");
    desc = rg_network_desc_default();
    desc.height = 0;
    EXPECT_FAILS(rg_model_graph(model, &desc, &graph), RG_INVALID_ARGUMENT,
                 "height must be between 1 and 1048576, not 0");
    desc = rg_network_desc_default();
    desc.dtype = RG_I32;
    EXPECT_FAILS(rg_model_graph(model, &desc, &graph), RG_INVALID_ARGUMENT, "dtype is i32");
    rg_model_destroy(model);
    EXPECT_OK(rg_model_parse("wide", "conv 4 window=40\ndense classes\n", &model));
    desc = rg_network_desc_default();
    EXPECT_FAILS(rg_model_graph(model, &desc, &graph), RG_MALFORMED, "wide:1:1: ");
    rg_plan *plan = NULL;
    EXPECT_FAILS(rg_model_plan(model, &desc, NULL, 1, &plan), RG_INVALID_ARGUMENT,
                 "device is NULL");
    EXPECT_FAILS(rg_model_plan(model, &desc, device, 1, &plan), RG_MALFORMED, "wide:1:1: ");
    EXPECT(graph == NULL && plan == NULL);
    rg_model_destroy(model);
}

/* The sum of squares of a parameter of a plan. */
static double power_of(rg_plan *plan, const char *name)
{
    static float values[LARGE];
    rg_tensor *tensor = NULL;
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_plan_parameter(plan, name, &tensor));
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    size_t count = 1;
    for (int32_t d = 0; d < desc.rank; d++)
        count *= (size_t)desc.dims[d];
    EXPECT(count <= LARGE);
    EXPECT_OK(rg_tensor_read(tensor, values, count * sizeof *values, RG_LAYOUT_SAME));
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

static void test_plans_of_models(void)
{
    const rg_network_desc desc = rg_network_desc_default();
    rg_model *model = model_of("small");
    rg_graph *graph = NULL;
    rg_plan *one = NULL, *same = NULL, *other = NULL;
    EXPECT_OK(rg_model_graph(model, &desc, &graph));
    EXPECT_OK(rg_model_plan(model, &desc, device, 1, &one));
    EXPECT_OK(rg_model_plan(model, &desc, device, 1, &same));
    EXPECT_OK(rg_model_plan(model, &desc, device, 2, &other));
    rg_model_destroy(model);
    EXPECT(power_of(one, "conv1.w") > 0 && power_of(one, "conv1.b") == 0);
    EXPECT(power_of(one, "conv1.w") == power_of(same, "conv1.w"));
    EXPECT(power_of(one, "conv1.w") != power_of(other, "conv1.w"));
    rg_plan_destroy(one);
    rg_plan_destroy(same);
    rg_plan_destroy(other);
    rg_graph_destroy(graph);
}

/* Logits alone need no labels. */
static void test_sources(void)
{
    rg_network_desc desc = rg_network_desc_default();
    rg_model *model = model_of("mlp");
    rg_plan *with = NULL, *without = NULL;
    EXPECT_OK(rg_model_plan(model, &desc, device, 1, &with));
    desc.logits_only = true;
    EXPECT_OK(rg_model_plan(model, &desc, device, 1, &without));
    EXPECT(rg_plan_sources(with) == 2 && rg_plan_sources(without) == 1);
    rg_plan_destroy(with);
    rg_plan_destroy(without);
    rg_model_destroy(model);
}

int main(void)
{
    scratch_begin();
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    test_models();
    test_bad_models();
    test_plans_of_models();
    test_sources();
    rg_device_destroy(device);
    scratch_end();
    return rg_test_report();
}
