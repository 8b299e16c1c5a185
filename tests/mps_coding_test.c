/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Coding as in MPS: a kernel goes through JSON, onto a device that the reader chooses, and computes
 * the same there; so does a plan through a file. On any device. docs/mps.md names these tests. */
#include "any_device.h"
#include "graph_f64.h"
#include "mps.h"
#include "scratch_folder.h"

#include <retrograde/files.h>

/* encodeWithCoder: and initWithCoder:device: keep op, descriptor and label, never the device. */
static void test_coding(rig *r)
{
    rig other;
    EXPECT(rig_open_on(rg_device_name(r->device), true, &other));
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_LOG, 1), *decoded = NULL;
    EXPECT_OK(rg_kernel_set_label(kernel, "head"));
    char text[256];
    const size_t length = rg_kernel_to_json(kernel, text, sizeof text);
    EXPECT(length == strlen(text) && strstr(text, "cpu") == NULL);
    EXPECT_OK(rg_kernel_from_json(other.device, text, length, &decoded));
    EXPECT(rg_kernel_device(decoded) == other.device);
    EXPECT(rg_kernel_equal(kernel, decoded) && rg_kernel_hash(kernel) == rg_kernel_hash(decoded));
    EXPECT(strcmp(rg_kernel_label(decoded), "head") == 0);

    rg_tensor *x[2] = { filled(r->device, RG_F32, 3, DIMS(3, 7, 5), 1),
                        filled(other.device, RG_F32, 3, DIMS(3, 7, 5), 1) };
    rg_tensor *y[2] = { NULL, NULL }; /* equal results from equal inputs */
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x[0], false, &y[0], NULL));
    EXPECT_OK(rg_kernel_forward_alloc(decoded, other.commands, 1, &x[1], false, &y[1], NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rig_run(&other));
    EXPECT(same_bits(y[0], y[1]));
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(y[i]);
    }
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(decoded);
    rig_close(&other);
}

/* Secure coding: what is not a kernel becomes an error, never an object of another class. */
static void test_secure_coding(rig *r)
{
    static const char *const texts[] = { "", "{}", "[1, 2]",
                                         "{\"retrograde\": 1, \"op\": \"exec\"}",
                                         "{\"retrograde\": 1, \"op\": \"softmax\", \"desc\": 7}" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        rg_kernel *kernel = (rg_kernel *)1;
        EXPECT(rg_kernel_from_json(r->device, texts[i], strlen(texts[i]), &kernel) == RG_MALFORMED);
        EXPECT(kernel == NULL && strstr(rg_error_text(), "line 1") != NULL);
    }
}

/* encodeWithCoder: and initWithCoder:device: of a graph: nodes and parameters. */
static void test_plan_coding(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *w = f64_parameter(graph, "w", 2, DIMS(3, 3));
    rg_value *y = f64_neuron(graph, RG_NEURON_TANH, f64_dense(graph, x, w));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    rg_plan *plan = f64_plan(r->device, graph), *decoded = NULL;
    rg_tensor *parameter = NULL, *in = filled(r->device, RG_F64, 2, DIMS(2, 3), 1);
    double out[2][6];
    EXPECT_OK(rg_plan_parameter(plan, "w", &parameter));
    fill(parameter, 2);
    scratch_begin();
    EXPECT_OK(rg_plan_save(plan, scratch("plan")));
    EXPECT_OK(rg_plan_load(r->device, scratch("plan"), NULL, &decoded));
    fill(parameter, 3); /* of the first alone */
    EXPECT_OK(rg_plan_load_parameters(plan, scratch("plan")));
    f64_run(r, plan, &in);
    f64_run(r, decoded, &in);
    f64_read(plan, "y", out[0]);
    f64_read(decoded, "y", out[1]);
    EXPECT(memcmp(out[0], out[1], sizeof out[0]) == 0 && out[0][0] != 0);
    scratch_remove("plan");
    scratch_end();
    rg_tensor_destroy(in);
    rg_plan_destroy(decoded);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    RUN_ON_DEVICES(test_coding, test_secure_coding, test_plan_coding);
    return rg_test_report();
}
