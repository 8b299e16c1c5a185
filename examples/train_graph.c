/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Training with a graph: the network is described, the backward pass and the updates are derived,
 * and a plan runs it. The same network as train_kernels.c, with the same losses. */
#include "bars.h"

typedef struct trainer {
    rg_device *device;
    rg_queue *queue;
    rg_graph *graph;
    rg_plan *plan;
    rg_tensor *sources[2]; /* images, labels */
} trainer;

/* [network] */
static rg_value *describe(rg_graph *g, rg_value *p[PARAMETERS])
{
    rg_conv_desc conv = rg_conv_desc_default();
    conv.padding.policy = RG_PADDING_SAME;
    const rg_neuron_desc relu = rg_neuron_desc_default();
    const rg_pool_desc pool = rg_pool_desc_default(); /* max, 2x2 */
    const rg_dense_desc dense = rg_dense_desc_default();
    rg_loss_desc loss = rg_loss_desc_default(); /* softmax cross-entropy, mean */
    loss.labels = RG_LOSS_CLASS_LABELS;
    rg_value *images = rg_graph_source(g, "images"), *labels = rg_graph_source(g, "labels");
    rg_value_stop_gradient(images);
    for (int i = 0; i < PARAMETERS; i++) {
        const rg_tensor_desc desc = parameter_desc(i);
        p[i] = rg_graph_parameter(g, parameter_names[i], &desc);
    }
    rg_node *n = rg_graph_conv(g, &conv, (rg_value *[]){ images, p[W1], p[B1] });
    n = rg_graph_neuron(g, &relu, (rg_value *[]){ rg_node_output(n, 0) });
    n = rg_graph_pool(g, &pool, (rg_value *[]){ rg_node_output(n, 0) });
    n = rg_graph_dense(g, &dense, (rg_value *[]){ rg_node_output(n, 0), p[W2], p[B2] });
    n = rg_graph_loss(g, &loss, (rg_value *[]){ rg_node_output(n, 0), labels });
    return rg_node_output(n, 0);
}
/* [end] */

/* [training] */
static rg_status make_plan(trainer *t)
{
    rg_value *p[PARAMETERS];
    rg_sgd_desc sgd = rg_sgd_desc_default();
    sgd.momentum = 0.9;
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_F32, 0, NULL);
    rg_value *loss = describe(t->graph, p);
    TRY(rg_graph_gradients(t->graph, &loss, NULL, 1, NULL, NULL));
    rg_value *rate = rg_graph_parameter(t->graph, "rate", &number);
    for (int i = 0; i < PARAMETERS; i++)
        rg_graph_update(t->graph, "sgd", &sgd, p[i], rg_value_gradient(p[i]), rate, NULL, NULL);
    TRY(rg_graph_result(t->graph, loss, "loss"));
    return rg_plan_create(t->device, t->graph, NULL, &t->plan); /* tells the first mistake */
}
/* [end] */

static rg_status write_parameter(trainer *t, const char *name, const float values[], size_t count)
{
    rg_tensor *tensor;
    TRY(rg_plan_parameter(t->plan, name, &tensor));
    return rg_tensor_write(tensor, values, count * sizeof(float), RG_LAYOUT_SAME);
}

static rg_status write_data(trainer *t)
{
    static float images[IMAGES][SIDE][SIDE];
    int32_t labels[IMAGES];
    const float rate = 0.05f;
    const rg_tensor_desc descs[2] = {
        rg_tensor_desc_dense(RG_F32, 4, (const int64_t[]){ IMAGES, SIDE, SIDE, 1 }),
        rg_tensor_desc_dense(RG_I32, 3, (const int64_t[]){ IMAGES, 1, 1 })
    };
    draw_bars(images, labels);
    for (int i = 0; i < 2; i++)
        TRY(rg_tensor_create(t->device, &descs[i], &t->sources[i]));
    TRY(rg_tensor_write(t->sources[0], images, sizeof images, RG_LAYOUT_SAME));
    TRY(rg_tensor_write(t->sources[1], labels, sizeof labels, RG_LAYOUT_SAME));
    for (int i = 0; i < PARAMETERS; i++) { /* moments start with zeros by themselves */
        float values[MOST];
        const size_t count = first_weights(i, values);
        TRY(write_parameter(t, parameter_names[i], values, count));
    }
    return write_parameter(t, "rate", &rate, 1);
}

/* [step] */
static rg_status step(trainer *t, rg_commands *c, float *loss)
{
    rg_tensor *result;
    TRY(rg_plan_encode(t->plan, c, t->sources)); /* forward, backward, updates */
    TRY(rg_commands_commit(c));
    TRY(rg_commands_wait(c));
    TRY(rg_plan_result(t->plan, "loss", &result));
    return rg_tensor_read(result, loss, sizeof *loss, RG_LAYOUT_SAME);
}
/* [end] */

static rg_status train(trainer *t, float losses[STEPS])
{
    TRY(rg_device_create("cpu", NULL, &t->device));
    TRY(rg_queue_create(t->device, &t->queue));
    TRY(rg_graph_create(&t->graph));
    TRY(make_plan(t));
    TRY(write_data(t));
    return take_steps(t, t->queue, step, losses);
}

int main(void)
{
    trainer t = { .device = NULL };
    float losses[STEPS] = { 0 };
    const rg_status status = train(&t, losses);
    const int result = report(status, losses);
    for (int i = 0; i < 2; i++)
        rg_tensor_destroy(t.sources[i]);
    rg_plan_destroy(t.plan);
    rg_graph_destroy(t.graph);
    rg_queue_destroy(t.queue);
    rg_device_destroy(t.device);
    return result;
}
