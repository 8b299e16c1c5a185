/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sources of parameters as in MPS, and their updates.
 * docs/mps.md names these tests; numbers are those of the behaviour checks there. */
#include "any_device.h"
#include "graph_f64.h"

#include <math.h>

typedef struct layer_data {
    double weights[4];
    int loads, purges, updates, *order, id;
    bool passes;         /* an update that does nothing */
    rg_kernel *sgd;      /* on the device */
    rg_tensor *rate;     /* likewise */
    double gradient[4];  /* seen on the host */
    _Atomic bool inside; /* an update on the host is going on */
} layer_data;

static rg_status load_layer(void *context, const void **elements)
{
    layer_data *d = context;
    EXPECT(d->loads == d->purges);
    d->loads++;
    *elements = d->weights;
    return RG_OK;
}

static void purge_layer(void *context)
{
    ((layer_data *)context)->purges++;
}

static rg_status refuse_load(void *context, const void **elements)
{
    (void)context;
    (void)elements;
    return RG_IO;
}

static rg_status update_on_device(void *context, rg_commands *commands, rg_tensor *gradient,
                                  rg_tensor *weights)
{
    layer_data *d = context;
    d->updates++;
    d->order[d->order[8]++ % 8] = d->id;
    if (d->passes)
        return RG_OK;
    return rg_kernel_forward(d->sgd, commands, (rg_tensor *[]){ weights, gradient, d->rate },
                             &weights, NULL);
}

static bool update_on_host(void *context, const void *gradient, const void *elements)
{
    layer_data *d = context;
    d->inside = true;
    usleep(20000); /* a second encode has to wait */
    d->updates++;
    memcpy(d->gradient, gradient, sizeof d->gradient);
    EXPECT(memcmp(d->weights, elements, sizeof d->weights) == 0);
    for (int i = 0; i < 4 && !d->passes; i++)
        d->weights[i] -= 0.5 * d->gradient[i];
    d->inside = false;
    return !d->passes;
}

static rg_data_source source_of(layer_data *d, rg_update_style style)
{
    rg_data_source source = rg_data_source_default();
    source.context = d;
    source.desc = rg_tensor_desc_dense(RG_F64, 2, DIMS(2, 2));
    source.load = load_layer;
    source.purge = purge_layer;
    source.style = style;
    source.update_on_device = update_on_device;
    source.update_on_host = update_on_host;
    return source;
}

/* x w1' w2' summed, with data sources for both. */
static rg_graph *two_layers(layer_data data[], rg_update_style style)
{
    rg_graph *graph = graph_new();
    const rg_data_source a = source_of(&data[0], style), b = source_of(&data[1], style);
    rg_value *x = rg_graph_source(graph, "x"), *w1 = rg_graph_parameter_from(graph, "w1", &a);
    rg_value *w2 = rg_graph_parameter_from(graph, "w2", &b);
    rg_value *loss = f64_total(graph, f64_dense(graph, f64_dense(graph, x, w1), w2));
    EXPECT_OK(rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL));
    EXPECT((rg_value_gradient(w1) == NULL) == (style == RG_UPDATE_NONE));
    EXPECT(rg_value_gradient(x) != NULL); /* gradients flow past frozen parameters */
    return graph;
}

static void layers_new(layer_data data[], int order[])
{
    for (int k = 0; k < 2; k++) {
        data[k] = (layer_data){ .order = order, .id = k + 1 };
        for (int i = 0; i < 4; i++)
            data[k].weights[i] = k + i * 0.25;
    }
}

static void read_weights(rg_plan *plan, const char *name, double weights[4])
{
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_plan_parameter(plan, name, &tensor));
    EXPECT_OK(rg_tensor_read(tensor, weights, 4 * sizeof weights[0], RG_LAYOUT_SAME));
}

/* 11, 13: without results weights still change, the last layer's first; an update that records
 * nothing leaves them; what changes is seen by the next run. */
static void test_device_update(rig *r)
{
    int order[9] = { 0 };
    layer_data data[2];
    layers_new(data, order);
    const rg_sgd_desc sgd = rg_sgd_desc_default();
    const double step = 0.5;
    rg_tensor *rate = tensor_of(r->device, RG_F64, 0, NULL);
    EXPECT_OK(rg_tensor_write(rate, &step, sizeof step, RG_LAYOUT_SAME));
    for (int k = 0; k < 2; k++) {
        data[k].rate = rate;
        EXPECT_OK(rg_sgd_create(r->device, &sgd, &data[k].sgd));
    }
    rg_graph *graph = two_layers(data, RG_UPDATE_DEVICE);
    rg_plan *plan = f64_plan(r->device, graph);
    EXPECT(data[0].loads == 1 && data[0].purges == 1 && data[1].loads == 1);
    rg_tensor *x = tensor_of(r->device, RG_F64, 2, DIMS(1, 2)), *none = NULL;
    EXPECT_OK(rg_tensor_write(x, (double[]){ 1, 2 }, 16, RG_LAYOUT_SAME));
    EXPECT_FAILS(rg_plan_result(plan, "y", &none), RG_INVALID_STATE, "prepared");
    double w1[4], w2[4], w[4];
    read_weights(plan, "w1", w1);
    read_weights(plan, "w2", w2);
    data[0].passes = true;
    f64_run(r, plan, &x);
    EXPECT_FAILS(rg_plan_result(plan, "y", &none), RG_INVALID_ARGUMENT, "no result");
    EXPECT(order[8] == 2 && order[0] == 2 && order[1] == 1);
    read_weights(plan, "w1", w);
    EXPECT(memcmp(w, w1, sizeof w) == 0);
    read_weights(plan, "w2", w);
    for (int i = 0; i < 4; i++) { /* d loss / d w2(o, j) = h(j) = sum over i of x(i) w1(j, i) */
        const int j = i % 2;
        EXPECT(fabs(w[i] - (w2[i] - step * (w1[2 * j] + 2 * w1[2 * j + 1]))) < 1e-14);
    }
    data[0].passes = false; /* both change: dw1 by the w2 that the run has, not by the new one */
    memcpy(w2, w, sizeof w2);
    f64_run(r, plan, &x);
    read_weights(plan, "w1", w);
    for (int i = 0; i < 4; i++) { /* d loss / d w1(j, i) = x(i) sum over o of w2(o, j) */
        const int j = i / 2;
        EXPECT(fabs(w[i] - (w1[i] - step * (i % 2 + 1) * (w2[j] + w2[2 + j]))) < 1e-14);
    }
    EXPECT(data[0].loads == 1 && data[0].updates == 2);
    EXPECT_OK(rg_plan_reload(plan, "w1"));
    read_weights(plan, "w1", w);
    EXPECT(data[0].loads == 2 && data[1].loads == 1 && memcmp(w, w1, sizeof w) == 0);
    EXPECT_OK(rg_plan_reload(plan, NULL));
    EXPECT(data[0].loads == 3 && data[0].purges == 3 && data[1].loads == 2);
    EXPECT_FAILS(rg_plan_reload(plan, "w3"), RG_INVALID_ARGUMENT, "w3");
    for (int k = 0; k < 2; k++)
        rg_kernel_destroy(data[k].sgd);
    rg_tensor_destroy(rate);
    rg_tensor_destroy(x);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* 14: updates after completion; a run on other commands waits for them, one that cannot come to an
 * end is refused. */
static void test_host_update(rig *r)
{
    int order[9] = { 0 };
    layer_data data[2];
    layers_new(data, order);
    rg_graph *graph = two_layers(data, RG_UPDATE_HOST);
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *x = tensor_of(r->device, RG_F64, 2, DIMS(1, 2));
    EXPECT_OK(rg_tensor_write(x, (double[]){ 1, 2 }, 16, RG_LAYOUT_SAME));
    double w[4];
    EXPECT_OK(rg_plan_encode(plan, r->commands, &x));
    EXPECT(data[0].updates == 0);
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &x), RG_INVALID_STATE, "not committed");
    rg_commands *other = NULL;
    EXPECT_OK(rg_commands_create(r->queue, &other));
    EXPECT_FAILS(rg_plan_encode(plan, other, &x), RG_INVALID_STATE, "not committed");
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_OK(rg_plan_encode(plan, other, &x)); /* waits */
    EXPECT(!data[0].inside && data[0].updates == 1 && data[1].updates == 1);
    EXPECT(data[0].loads == 2 && data[0].purges == 2);
    EXPECT(data[1].gradient[0] == 0.5 && data[1].gradient[1] == 2); /* h = (0.5, 2) */
    read_weights(plan, "w2", w);
    EXPECT(memcmp(w, data[1].weights, sizeof w) == 0 && w[0] == 0.75);
    rg_commands_destroy(other); /* dropped: nothing to wait for, and nothing is updated */
    EXPECT_OK(rg_commands_wait(r->commands));
    rig_renew(r);
    data[0].passes = data[1].passes = true;
    f64_run(r, plan, &x);
    EXPECT(data[0].updates == 2 && data[0].loads == 2); /* before the wait was over */
    EXPECT_OK(rg_plan_encode(plan, r->commands, &x));
    rg_plan_destroy(plan); /* the commands keep what they need */
    rg_graph_destroy(graph);
    EXPECT_OK(rig_run(r));
    EXPECT(data[0].updates == 3);
    rg_tensor_destroy(x);
}

/* gamma and beta of batch normalization, updated on the device or on the host: dgamma is the sum of
 * dy times the normalized x, dbeta that of dy, for a loss of half of y squared. */
static void check_norm_update(rig *r, rg_update_style style)
{
    static const double pixels[3][4] = { { 1, 2, 0, 5 }, { 4, 2, 1, 3 }, { 1, 5, 2, 1 } };
    int order[9] = { 0 };
    layer_data data[2];
    layers_new(data, order);
    const rg_sgd_desc sgd = rg_sgd_desc_default();
    rg_batch_norm_desc norm = rg_batch_norm_desc_default();
    const double step = 0.5, epsilon = 0.25;
    norm.epsilon = epsilon;
    rg_graph *graph = graph_new();
    rg_value *in[3] = { rg_graph_source(graph, "x") };
    rg_tensor *x = tensor_of(r->device, RG_F64, 2, DIMS(3, 4));
    rg_tensor *rate = tensor_of(r->device, RG_F64, 0, NULL);
    EXPECT_OK(rg_tensor_write(x, pixels, sizeof pixels, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(rate, &step, sizeof step, RG_LAYOUT_SAME));
    for (int k = 0; k < 2; k++) {
        rg_data_source source = source_of(&data[k], style);
        source.desc = rg_tensor_desc_dense(RG_F64, 1, DIMS(4));
        data[k].rate = rate;
        EXPECT_OK(rg_sgd_create(r->device, &sgd, &data[k].sgd));
        in[1 + k] = rg_graph_parameter_from(graph, k == 0 ? "gamma" : "beta", &source);
    }
    rg_value *y = rg_node_output(rg_graph_batch_norm(graph, &norm, in), 0);
    EXPECT_OK(rg_graph_gradients(graph, &y, &y, 1, NULL, NULL)); /* dy = y */
    rg_plan *plan = f64_plan(r->device, graph);
    f64_run(r, plan, &x);
    double gamma[4], beta[4];
    read_weights(plan, "gamma", gamma);
    read_weights(plan, "beta", beta);
    for (int c = 0; c < 4; c++) {
        double mean = 0, variance = 0, dgamma = 0, dbeta = 0;
        for (int n = 0; n < 3; n++)
            mean += pixels[n][c] / 3;
        for (int n = 0; n < 3; n++)
            variance += (pixels[n][c] - mean) * (pixels[n][c] - mean) / 3;
        for (int n = 0; n < 3; n++) {
            const double z = (pixels[n][c] - mean) / sqrt(variance + epsilon);
            const double dy = c * 0.25 * z + 1 + c * 0.25; /* gamma 0, 1/4, …, beta 1, 5/4, … */
            dgamma += dy * z;
            dbeta += dy;
        }
        EXPECT(fabs(gamma[c] - (c * 0.25 - step * dgamma)) < 1e-13);
        EXPECT(fabs(beta[c] - (1 + c * 0.25 - step * dbeta)) < 1e-13);
    }
    EXPECT(data[0].updates == 1 && data[1].updates == 1);
    for (int k = 0; k < 2; k++)
        rg_kernel_destroy(data[k].sgd);
    rg_tensor_destroy(rate);
    rg_tensor_destroy(x);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

static void test_norm_update(rig *r)
{
    check_norm_update(r, RG_UPDATE_DEVICE);
    check_norm_update(r, RG_UPDATE_HOST);
}

/* Frozen, and sources that cannot be loaded. */
static void test_no_update(rig *r)
{
    int order[9] = { 0 };
    layer_data data[2];
    layers_new(data, order);
    rg_graph *graph = two_layers(data, RG_UPDATE_NONE);
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(rg_graph_find_value(graph, "x")), "dx"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *x = filled(r->device, RG_F64, 2, DIMS(1, 2), 1);
    f64_run(r, plan, &x);
    EXPECT(data[0].updates == 0 && data[1].updates == 0 && data[0].loads == 1);
    rg_data_source source = source_of(&data[0], RG_UPDATE_NONE);
    source.load = refuse_load;
    rg_value *w = rg_graph_parameter_from(graph, "broken", &source), *both[] = { w, w };
    const rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    EXPECT_OK(
        rg_graph_result(graph, rg_node_output(rg_graph_arithmetic(graph, &desc, both), 0), "sum"));
    rg_plan *refused = NULL;
    EXPECT_FAILS(rg_plan_create(r->device, graph, NULL, &refused), RG_IO, "broken");
    EXPECT(refused == NULL && data[0].loads == data[0].purges);
    rg_tensor_destroy(x);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    RUN_ON_DEVICES(test_device_update, test_host_update, test_norm_update, test_no_update);
    return rg_test_report();
}
