/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs and plans as in MPS: the backward pass, exports, data sources and their updates, copies.
 * docs/mps.md names these tests; numbers are those of the behaviour checks there. */
#include "api.h"

#include <math.h>

/* ---- graphs of f64 ---- */

static rg_graph *graph_new(void)
{
    rg_graph *graph = NULL;
    EXPECT_OK(rg_graph_create(&graph));
    return graph;
}

static rg_value *neuron(rg_graph *graph, rg_neuron_kind kind, rg_value *x)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    desc.kind = kind;
    return rg_node_output(rg_graph_neuron(graph, &desc, &x), 0);
}

static rg_value *sum_of(rg_graph *graph, rg_value *a, rg_value *b)
{
    const rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    return rg_node_output(rg_graph_arithmetic(graph, &desc, (rg_value *[]){ a, b }), 0);
}

static rg_value *total_of(rg_graph *graph, rg_value *x)
{
    rg_reduce_desc desc = rg_reduce_desc_default();
    desc.keep_dims = false;
    return rg_node_output(rg_graph_reduce(graph, &desc, &x), 0);
}

static rg_value *parameter(rg_graph *graph, const char *name, int32_t rank, const int64_t dims[])
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, rank, dims);
    return rg_graph_parameter(graph, name, &desc);
}

static rg_value *dense(rg_graph *graph, rg_value *x, rg_value *w)
{
    rg_dense_desc desc = rg_dense_desc_default();
    desc.bias = false;
    return rg_node_output(rg_graph_dense(graph, &desc, (rg_value *[]){ x, w }), 0);
}

static rg_plan *plan_of(rg_device *device, const rg_graph *graph)
{
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(device, graph, NULL, &plan));
    return plan;
}

static rg_tensor *result_of(rg_plan *plan, const char *name)
{
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_plan_result(plan, name, &tensor));
    return tensor;
}

static void read_result(rg_plan *plan, const char *name, double to[])
{
    rg_tensor *tensor = result_of(plan, name);
    EXPECT_OK(rg_tensor_read(tensor, to, bytes_of(tensor), RG_LAYOUT_SAME));
}

static void run(rig *r, rg_plan *plan, rg_tensor *const sources[])
{
    EXPECT_OK(rg_plan_encode(plan, r->commands, sources));
    EXPECT_OK(rig_run(r));
}

/* ---- the backward pass ---- */

typedef struct pairs {
    int pairs, sums;
    const rg_value *summed, *stop_at;
    rg_node *forward[16];
} pairs;

static void note_pair(void *context, rg_node *gradient, rg_node *forward, rg_value *source,
                      rg_value *dy)
{
    pairs *p = context;
    EXPECT(gradient != NULL && source != NULL && dy != NULL);
    if (forward == NULL) {
        EXPECT(!rg_node_is_gradient(gradient) && rg_node_input(gradient, 0) == dy);
        p->summed = source;
        p->sums++;
        return;
    }
    EXPECT(rg_node_is_gradient(gradient) && rg_node_forward(gradient) == forward);
    EXPECT(rg_node_input(gradient, 0) == dy);
    p->forward[p->pairs++ % 16] = forward;
    if (source == p->stop_at)
        EXPECT_OK(rg_value_stop_gradient(source));
}

/* 9: one value, two readers, an addition: the pass adds one node, without a forward node. */
static void test_diamond(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *h = neuron(graph, RG_NEURON_TANH, x);
    rg_value *y =
        sum_of(graph, neuron(graph, RG_NEURON_SIGMOID, h), neuron(graph, RG_NEURON_EXPONENTIAL, h));
    rg_value *loss = total_of(graph, y);
    pairs p = { 0 };
    const int32_t before = rg_graph_nodes(graph);
    EXPECT_OK(rg_graph_gradients(graph, &loss, NULL, 1, note_pair, &p));
    EXPECT(p.sums == 1 && p.summed == h);
    EXPECT(p.pairs == 6); /* the addition has two sources */
    EXPECT(rg_graph_nodes(graph) == before + 6);
    rg_node *terminus = NULL;
    EXPECT(rg_graph_termini(graph, &terminus, 1) == 1);
    EXPECT(terminus == rg_value_node(rg_value_gradient(x)));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    rg_plan *plan = plan_of(r->device, graph);
    rg_tensor *source = filled(r->device, RG_F64, 1, DIMS(5), 3);
    double in[5], out[5];
    EXPECT_OK(rg_tensor_read(source, in, sizeof in, RG_LAYOUT_SAME));
    run(r, plan, &source);
    read_result(plan, "dx", out);
    for (int i = 0; i < 5; i++) {
        const double t = tanh(in[i]), s = 1 / (1 + exp(-t));
        EXPECT(fabs(out[i] - (s * (1 - s) + exp(t)) * (1 - t * t)) < 1e-12);
    }
    rg_tensor_destroy(source);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* 10: nothing behind the mark; the node that makes the gradient of the marked value is the end. */
static void test_stop(void)
{
    for (int by_handler = 0; by_handler < 2; by_handler++) {
        rg_graph *graph = graph_new();
        rg_value *x = rg_graph_source(graph, "x"), *a = neuron(graph, RG_NEURON_TANH, x);
        rg_value *b = neuron(graph, RG_NEURON_SIGMOID, a), *c = neuron(graph, RG_NEURON_TANH, b);
        pairs p = { .stop_at = by_handler ? b : NULL };
        if (!by_handler)
            EXPECT_OK(rg_value_stop_gradient(b));
        EXPECT_OK(rg_graph_gradients(graph, &c, NULL, 1, note_pair, &p));
        EXPECT(p.pairs == 1 && p.forward[0] == rg_value_node(c));
        EXPECT(rg_value_gradient(b) != NULL);
        EXPECT(rg_value_gradient(a) == NULL && rg_value_gradient(x) == NULL);
        rg_node *termini[2] = { NULL };
        EXPECT(rg_graph_termini(graph, termini, 2) == 1);
        EXPECT(termini[0] == rg_value_node(rg_value_gradient(b)));
        rg_graph_destroy(graph);
    }
}

/* Several losses, a parameter that is used twice, a branch that does not reach a loss, a frozen
 * parameter, handles. */
static void test_losses(rig *r)
{
    rg_graph *graph = graph_new();
    int mark = 0;
    rg_value *x = rg_graph_source(graph, "x"), *w = parameter(graph, "w", 1, DIMS(4));
    rg_value *frozen = parameter(graph, "frozen", 1, DIMS(4));
    EXPECT_OK(rg_value_stop_gradient(frozen));
    EXPECT_OK(rg_value_set_handle(w, &mark));
    rg_value *a = sum_of(graph, sum_of(graph, x, w), sum_of(graph, w, frozen)); /* 2 w */
    rg_value *unread = neuron(graph, RG_NEURON_TANH, a);
    rg_value *const losses[] = { total_of(graph, a),
                                 total_of(graph, neuron(graph, RG_NEURON_SOFTPLUS, x)) };
    EXPECT_OK(rg_graph_gradients(graph, losses, NULL, 2, NULL, NULL));
    EXPECT(rg_value_gradient(unread) == NULL && rg_value_gradient(frozen) == NULL);
    EXPECT(rg_value_handle(rg_value_gradient(w)) == &mark);
    EXPECT(rg_value_handle(rg_value_gradient(x)) == NULL);
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(w), "dw"));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    rg_plan *plan = plan_of(r->device, graph);
    rg_tensor *source = filled(r->device, RG_F64, 1, DIMS(4), 5);
    double in[4], dw[4], dx[4];
    EXPECT_OK(rg_tensor_read(source, in, sizeof in, RG_LAYOUT_SAME));
    run(r, plan, &source);
    read_result(plan, "dw", dw);
    read_result(plan, "dx", dx);
    for (int i = 0; i < 4; i++) {
        EXPECT(dw[i] == 2);
        EXPECT(fabs(dx[i] - (1 + 1 / (1 + exp(-in[i])))) < 1e-12);
    }
    rg_tensor_destroy(source);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* ---- windows ---- */

/* 5, 6: a policy is resolved for each size, the kernel stays as it was; the gradient gets the size
 * of its source back, where n = 5 and n = 6 both make 3. */
static void test_source_size(rig *r)
{
    rg_graph *graph = graph_new();
    rg_pool_desc desc = rg_pool_desc_default(), after;
    desc.padding.policy = RG_PADDING_SAME;
    rg_value *x = rg_graph_source(graph, "x");
    rg_node *node = rg_graph_pool(graph, &desc, &x);
    rg_value *y = rg_node_output(node, 0);
    EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    rg_plan *plan = plan_of(r->device, graph);
    for (int64_t n = 5; n < 7; n++) {
        rg_tensor *source = filled(r->device, RG_F64, 4, DIMS(1, n, n, 2), 7);
        rg_tensor_desc shape;
        run(r, plan, &source);
        EXPECT(count_of(result_of(plan, "dx")) == 2 * n * n);
        EXPECT_OK(rg_plan_shape(plan, rg_node_label(node), 0, &shape));
        EXPECT(shape.rank == 4 && shape.dims[1] == 3 && shape.dims[2] == 3);
        rg_tensor_destroy(source);
    }
    EXPECT_OK(rg_node_desc(node, &after));
    EXPECT(memcmp(&desc.padding, &after.padding, sizeof desc.padding) == 0);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

typedef struct convolution {
    rg_padding_policy policy;
    int32_t stride, dilation;
} convolution;

static double loss_at(rig *r, rg_plan *plan, rg_tensor *x)
{
    double loss = NAN;
    run(r, plan, &x);
    read_result(plan, "loss", &loss);
    return loss;
}

/* Compares d loss / d tensor with finite differences. */
static void check_gradient(rig *r, rg_plan *plan, rg_tensor *x, rg_tensor *tensor, const char *name)
{
    const double h = 1e-5;
    double values[256], gradient[256];
    loss_at(r, plan, x);
    read_result(plan, name, gradient);
    EXPECT_OK(rg_tensor_read(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    for (int64_t i = 0; i < count_of(tensor); i += 3) {
        const double at = values[i];
        double loss[2];
        for (int side = 0; side < 2; side++) {
            values[i] = side ? at - h : at + h;
            EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
            loss[side] = loss_at(r, plan, x);
        }
        values[i] = at;
        EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
        EXPECT(fabs((loss[0] - loss[1]) / (2 * h) - gradient[i]) < 1e-6 * (1 + fabs(gradient[i])));
    }
}

/* 7: dx, dw and db of a batch of 3, through every policy; dw is the sum over the images. */
static void test_policies(rig *r)
{
    static const convolution cases[] = { { RG_PADDING_VALID, 1, 1 },
                                         { RG_PADDING_SAME, 2, 1 },
                                         { RG_PADDING_FULL, 1, 2 },
                                         { RG_PADDING_SAME, 3, 2 },
                                         { RG_PADDING_VALID, 2, 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rg_graph *graph = graph_new();
        rg_conv_desc desc = rg_conv_desc_default();
        desc.padding.policy = cases[i].policy;
        desc.stride[0] = desc.stride[1] = cases[i].stride;
        desc.dilation[0] = desc.dilation[1] = cases[i].dilation;
        rg_value *x = rg_graph_source(graph, "x"), *w = parameter(graph, "w", 4, DIMS(2, 2, 3, 2));
        rg_value *b = parameter(graph, "b", 1, DIMS(2));
        rg_value *y = rg_node_output(rg_graph_conv(graph, &desc, (rg_value *[]){ x, w, b }), 0);
        rg_value *loss = total_of(graph, neuron(graph, RG_NEURON_TANH, y));
        EXPECT_OK(rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL));
        EXPECT_OK(rg_graph_result(graph, loss, "loss"));
        EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
        EXPECT_OK(rg_graph_result(graph, rg_value_gradient(w), "dw"));
        EXPECT_OK(rg_graph_result(graph, rg_value_gradient(b), "db"));
        rg_plan *plan = plan_of(r->device, graph);
        rg_tensor *source = filled(r->device, RG_F64, 4, DIMS(3, 5, 6, 2), 11), *tensor = NULL;
        EXPECT_OK(rg_plan_parameter(plan, "w", &tensor));
        fill(tensor, 12);
        check_gradient(r, plan, source, tensor, "dw");
        check_gradient(r, plan, source, source, "dx");
        EXPECT_OK(rg_plan_parameter(plan, "b", &tensor));
        check_gradient(r, plan, source, tensor, "db");
        rg_tensor_destroy(source);
        rg_plan_destroy(plan);
        rg_graph_destroy(graph);
    }
}

/* ---- results, states, sources ---- */

/* 12: results stay under their names beside the main one; the state of a node can be read. */
static void test_export(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    rg_dropout_desc desc = rg_dropout_desc_default();
    rg_node *dropout = rg_graph_dropout(graph, &desc, &x);
    rg_value *h = rg_node_output(dropout, 0), *y = neuron(graph, RG_NEURON_TANH, h);
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, h, "h"));
    EXPECT_OK(rg_graph_state_result(graph, dropout, "mask of h"));
    EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    const char *name = NULL;
    EXPECT(rg_graph_results(graph) == 3 && rg_graph_result_at(graph, 1, &name) == h);
    EXPECT(name != NULL && strcmp(name, "h") == 0);
    rg_plan_options options = rg_plan_options_default();
    options.poison = true;
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r->device, graph, &options, &plan));
    rg_graph_destroy(graph);
    rg_tensor *source = filled(r->device, RG_F64, 1, DIMS(20), 5), *mask = NULL;
    rg_state *state = NULL;
    EXPECT_FAILS(rg_plan_state(plan, "mask of h", &state), RG_INVALID_STATE, "prepared");
    double in[20], kept[20], out[20], dx[20];
    uint8_t bits[3];
    EXPECT_OK(rg_tensor_read(source, in, sizeof in, RG_LAYOUT_SAME));
    run(r, plan, &source);
    read_result(plan, "h", kept);
    read_result(plan, "y", out);
    read_result(plan, "dx", dx);
    EXPECT_OK(rg_plan_state(plan, "mask of h", &state));
    EXPECT_FAILS(rg_plan_state(plan, "other", &state), RG_INVALID_ARGUMENT, "other");
    EXPECT_OK(rg_plan_state(plan, "mask of h", &state));
    EXPECT(rg_state_count(state) == 1 && strcmp(rg_state_name(state, 0), "mask") == 0);
    EXPECT_OK(rg_state_tensor(state, "mask", &mask));
    EXPECT_OK(rg_tensor_read(mask, bits, sizeof bits, RG_LAYOUT_SAME));
    int count = 0;
    for (int i = 0; i < 20; i++) { /* 16: one mask both ways, scale 1 / keep */
        const double m = bits[i / 8] >> i % 8 & 1, t = tanh(2 * m * in[i]);
        EXPECT(kept[i] == 2 * m * in[i] && fabs(out[i] - t) < 1e-12);
        EXPECT(fabs(dx[i] - 2 * m * (1 - t * t)) < 1e-12);
        count += (int)m;
    }
    EXPECT(count > 3 && count < 17);
    rg_tensor_destroy(source);
    rg_plan_destroy(plan);
}

/* A node whose state is asked for stays what it is: it becomes no part of another. */
static void test_whole_nodes(rig *r)
{
    for (int asked = 0; asked < 3; asked++) { /* for that of which node */
        rg_graph *graph = graph_new();
        rg_neuron_desc swish = rg_neuron_desc_default();
        swish.kind = RG_NEURON_SWISH;
        rg_value *x = rg_graph_source(graph, "x"), *w = parameter(graph, "w", 2, DIMS(3, 3));
        rg_value *h = dense(graph, x, w);
        rg_node *node = rg_graph_neuron(graph, &swish, &h);
        rg_value *y = rg_node_output(node, 0);
        rg_node *const nodes[] = { NULL, rg_value_node(h), node };
        EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
        EXPECT_OK(rg_graph_result(graph, y, "y"));
        EXPECT_OK(rg_graph_result(graph, rg_value_gradient(w), "dw"));
        if (asked > 0)
            EXPECT_OK(rg_graph_state_result(graph, nodes[asked], "state"));
        rg_plan *plan = plan_of(r->device, graph);
        rg_tensor *source = filled(r->device, RG_F64, 2, DIMS(2, 3), 1);
        run(r, plan, &source);
        rg_state *state = NULL;
        EXPECT(rg_plan_steps(plan) == (asked > 0 ? 4 : 2)); /* forward and gradient */
        if (asked > 0) {
            char text[512];
            EXPECT_OK(rg_plan_state(plan, "state", &state));
            rg_state_describe(state, text, sizeof text);
            EXPECT(strstr(text, asked == 1 ? "state of dense" : "state of neuron") != NULL);
        }
        rg_tensor_destroy(source);
        rg_plan_destroy(plan);
        rg_graph_destroy(graph);
    }
}

/* 15: a batch normalisation reads x once each way, and tells it. */
static void test_batch_norm(rig *r)
{
    for (int training = 0; training < 2; training++) {
        rg_graph *graph = graph_new();
        rg_batch_norm_desc desc = rg_batch_norm_desc_default();
        desc.gamma = desc.beta = false;
        rg_value *x = rg_graph_source(graph, "x");
        rg_value *y = rg_node_output(rg_graph_batch_norm(graph, &desc, &x), 0);
        EXPECT_OK(rg_graph_result(graph, y, "y"));
        if (training) {
            EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
            EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
        }
        rg_plan *plan = plan_of(r->device, graph);
        const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 2, DIMS(8, 3));
        EXPECT_OK(rg_plan_prepare(plan, &shape));
        EXPECT(rg_plan_source_reads(plan, 0) == (training ? 2 : 1));
        EXPECT(rg_plan_source_reads(plan, 1) == 0);
        bool state = false;
        rg_memory_info info;
        for (int32_t i = 0; i < rg_plan_memory_count(plan); i++) {
            EXPECT_OK(rg_plan_memory(plan, i, &info));
            state |= info.state != NULL && strcmp(info.state, "mean") == 0;
            EXPECT(info.offset + info.bytes <= rg_plan_bytes(plan));
        }
        EXPECT(state == training); /* kept for the gradient alone */
        rg_plan_destroy(plan);
        rg_graph_destroy(graph);
    }
}

/* 1: a temporary as a source needs as many reads as the plan tells, and gives up so many. 18: it
 * outlives a commit. */
static void test_temporary_source(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    rg_value *y =
        sum_of(graph, neuron(graph, RG_NEURON_TANH, x), neuron(graph, RG_NEURON_SIGMOID, x));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    rg_plan *plan = plan_of(r->device, graph);
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 1, DIMS(6));
    double zeros[6] = { 0 }, out[6];
    rg_tensor *temporary = NULL;
    EXPECT_OK(rg_plan_prepare(plan, &shape));
    EXPECT(rg_plan_source_reads(plan, 0) == 2);
    EXPECT_OK(rg_tensor_create_temporary(r->commands, &shape, &temporary));
    EXPECT_OK(rg_commands_write(r->commands, temporary, zeros, sizeof zeros, RG_LAYOUT_SAME));
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &temporary), RG_INVALID_STATE, "read 2 times");
    EXPECT(rg_tensor_read_count(temporary) == 1);
    EXPECT_OK(rg_tensor_set_read_count(temporary, 5));
    EXPECT_OK(rg_plan_encode(plan, r->commands, &temporary));
    EXPECT(rg_tensor_read_count(temporary) == 3);
    EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    EXPECT_OK(rg_tensor_set_read_count(temporary, 2));
    EXPECT_OK(rg_plan_encode(plan, r->commands, &temporary));
    EXPECT(rg_tensor_read_count(temporary) == 0);
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &temporary), RG_INVALID_STATE,
                 "already released");
    EXPECT_OK(rig_run(r));
    read_result(plan, "y", out);
    for (int i = 0; i < 6; i++)
        EXPECT(out[i] == 0.5);
    rg_tensor_destroy(temporary);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* ---- data sources ---- */

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
    rg_value *loss = total_of(graph, dense(graph, dense(graph, x, w1), w2));
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
    rg_plan *plan = plan_of(r->device, graph);
    EXPECT(data[0].loads == 1 && data[0].purges == 1 && data[1].loads == 1);
    rg_tensor *x = tensor_of(r->device, RG_F64, 2, DIMS(1, 2)), *none = NULL;
    EXPECT_OK(rg_tensor_write(x, (double[]){ 1, 2 }, 16, RG_LAYOUT_SAME));
    EXPECT_FAILS(rg_plan_result(plan, "y", &none), RG_INVALID_STATE, "prepared");
    double w1[4], w2[4], w[4];
    read_weights(plan, "w1", w1);
    read_weights(plan, "w2", w2);
    data[0].passes = true;
    run(r, plan, &x);
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
    run(r, plan, &x);
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
    rg_plan *plan = plan_of(r->device, graph);
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
    run(r, plan, &x);
    EXPECT(data[0].updates == 2 && data[0].loads == 2); /* before the wait was over */
    EXPECT_OK(rg_plan_encode(plan, r->commands, &x));
    rg_plan_destroy(plan); /* the commands keep what they need */
    rg_graph_destroy(graph);
    EXPECT_OK(rig_run(r));
    EXPECT(data[0].updates == 3);
    rg_tensor_destroy(x);
}

/* Frozen, and sources that cannot be loaded. */
static void test_no_update(rig *r)
{
    int order[9] = { 0 };
    layer_data data[2];
    layers_new(data, order);
    rg_graph *graph = two_layers(data, RG_UPDATE_NONE);
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(rg_graph_find_value(graph, "x")), "dx"));
    rg_plan *plan = plan_of(r->device, graph);
    rg_tensor *x = filled(r->device, RG_F64, 2, DIMS(1, 2), 1);
    run(r, plan, &x);
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

/* ---- running ---- */

typedef struct ending {
    _Atomic int calls;
    rg_status outcome;
} ending;

static void note_end(void *context, rg_status outcome)
{
    ending *e = context;
    e->outcome = outcome;
    e->calls++;
}

/* executeAsyncWithSourceImages:completionHandler: */
static void test_async(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    EXPECT_OK(rg_graph_result(graph, neuron(graph, RG_NEURON_TANH, x), "y"));
    rg_plan *plan = plan_of(r->device, graph);
    rg_tensor *source = filled(r->device, RG_F64, 1, DIMS(3), 1);
    double in[3], out[3];
    ending e = { 0 };
    EXPECT_OK(rg_tensor_read(source, in, sizeof in, RG_LAYOUT_SAME));
    EXPECT_FAILS(rg_plan_run_async(plan, NULL, note_end, &e), RG_INVALID_ARGUMENT, "sources");
    EXPECT(e.calls == 0);
    EXPECT_OK(rg_plan_run_async(plan, &source, note_end, &e));
    rg_tensor_destroy(source);
    SECONDS(e.calls == 1);
    EXPECT(e.outcome == RG_OK);
    read_result(plan, "y", out);
    for (int i = 0; i < 3; i++)
        EXPECT(fabs(out[i] - tanh(in[i])) < 1e-12);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* encodeBatchToCommandBuffer: images of their own are one batch, with its statistics. */
static void test_batch(rig *r)
{
    enum { COUNT = 3 };
    rg_graph *graph = graph_new();
    rg_batch_norm_desc norm = rg_batch_norm_desc_default();
    norm.gamma = norm.beta = false;
    rg_loss_desc loss = rg_loss_desc_default();
    loss.labels = RG_LOSS_CLASS_LABELS;
    loss.reduction = RG_LOSS_NONE;
    rg_value *x = rg_graph_source(graph, "x"), *labels = rg_graph_source(graph, "labels");
    rg_value *y = rg_node_output(rg_graph_batch_norm(graph, &norm, &x), 0);
    rg_value *l = rg_node_output(rg_graph_loss(graph, &loss, (rg_value *[]){ y, labels }), 0);
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, l, "loss"));
    rg_plan *plan = plan_of(r->device, graph);
    rg_tensor *images[2 * COUNT], *whole[2];
    whole[0] = tensor_of(r->device, RG_F64, 2, DIMS(2 * COUNT, 4));
    whole[1] = tensor_of(r->device, RG_I32, 1, DIMS(2 * COUNT));
    double all[8 * COUNT];
    int32_t classes[2 * COUNT];
    for (int n = 0; n < COUNT; n++) {
        images[n] = filled(r->device, RG_F64, 2, DIMS(2, 4), 20 + (uint64_t)n);
        images[COUNT + n] = tensor_of(r->device, RG_I32, 1, DIMS(2));
        classes[2 * n] = n;
        classes[2 * n + 1] = 3 - n;
        EXPECT_OK(rg_tensor_read(images[n], all + 8 * n, 64, RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_write(images[COUNT + n], classes + 2 * n, 8, RG_LAYOUT_SAME));
    }
    EXPECT_OK(rg_tensor_write(whole[0], all, sizeof all, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(whole[1], classes, sizeof classes, RG_LAYOUT_SAME));
    double apart[2][8 * COUNT], together[2][8 * COUNT];
    EXPECT_OK(rg_plan_encode_batch(plan, r->commands, COUNT, images));
    EXPECT_OK(rig_run(r));
    read_result(plan, "y", apart[0]);
    read_result(plan, "loss", apart[1]);
    const size_t losses = bytes_of(result_of(plan, "loss"));
    run(r, plan, whole);
    read_result(plan, "y", together[0]);
    read_result(plan, "loss", together[1]);
    EXPECT(memcmp(apart[0], together[0], sizeof apart[0]) == 0);
    EXPECT(losses == bytes_of(result_of(plan, "loss")));
    EXPECT(memcmp(apart[1], together[1], losses) == 0);
    rg_tensor *odd = filled(r->device, RG_F64, 2, DIMS(3, 4), 9), *kept = images[1];
    images[1] = odd;
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, COUNT, images), RG_INVALID_ARGUMENT,
                 "f64[3, 4] for image 1");
    images[1] = NULL;
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, COUNT, images), RG_INVALID_ARGUMENT,
                 "image 1 is NULL");
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, 0, images), RG_INVALID_ARGUMENT,
                 "count must be between 1 and 2147483647, not 0");
    rg_tensor *const bytes[2] = { tensor_of(r->device, RG_U8, 2, DIMS(2, 4)),
                                  tensor_of(r->device, RG_U8, 2, DIMS(2, 4)) };
    EXPECT_FAILS(rg_plan_encode_batch(
                     plan, r->commands, 2,
                     (rg_tensor *[]){ bytes[0], bytes[1], images[COUNT], images[COUNT + 1] }),
                 RG_UNSUPPORTED, "the source 'x' is u8, which no op reads");
    images[1] = kept;
    EXPECT_OK(rig_run(r)); /* nothing of them was recorded */
    rg_tensor_destroy(odd);
    rg_tensor_destroy(bytes[0]);
    rg_tensor_destroy(bytes[1]);
    for (int i = 0; i < 2 * COUNT; i++)
        rg_tensor_destroy(images[i]);
    rg_tensor_destroy(whole[0]);
    rg_tensor_destroy(whole[1]);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* 17: copies of a graph and of a plan, also onto another device. */
static void test_copy(rig *r)
{
    rg_graph *graph = graph_new(), *copy = NULL;
    rg_value *x = rg_graph_source(graph, "x"), *w = parameter(graph, "w", 2, DIMS(2, 2));
    rg_value *y = dense(graph, x, w), *loss = total_of(graph, y);
    EXPECT_OK(rg_node_set_label(rg_value_node(y), "layer"));
    EXPECT_OK(rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(w), "dw"));
    EXPECT_OK(rg_graph_copy(graph, &copy));
    EXPECT(rg_graph_equal(graph, copy) && rg_graph_equal(copy, graph));
    EXPECT(rg_graph_find_node(copy, "layer") != rg_value_node(y));
    EXPECT(rg_node_equal(rg_graph_find_node(copy, "layer"), rg_value_node(y)));
    EXPECT(rg_value_gradient(rg_graph_find_value(copy, "w")) != NULL);
    EXPECT_OK(rg_value_stop_gradient(rg_node_output(rg_graph_find_node(copy, "layer"), 0)));
    EXPECT(!rg_graph_equal(graph, copy));
    rig other = rig_open(2);
    rg_plan *plan = plan_of(r->device, graph), *plans[2] = { NULL };
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_plan_parameter(plan, "w", &tensor));
    fill(tensor, 4);
    EXPECT_OK(rg_plan_copy(plan, NULL, &plans[0]));
    EXPECT_OK(rg_plan_copy(plan, other.device, &plans[1]));
    rg_graph_destroy(graph);
    rg_graph_destroy(copy);
    rg_tensor *here = filled(r->device, RG_F64, 2, DIMS(3, 2), 8);
    rg_tensor *there = filled(other.device, RG_F64, 2, DIMS(3, 2), 8);
    run(r, plan, &here);
    run(r, plans[0], &here);
    run(&other, plans[1], &there);
    for (int i = 0; i < 2; i++) {
        EXPECT(same_bits(result_of(plan, "y"), result_of(plans[i], "y")));
        EXPECT(same_bits(result_of(plan, "dw"), result_of(plans[i], "dw")));
        rg_plan_destroy(plans[i]);
    }
    rg_plan_destroy(plan);
    rg_tensor_destroy(here);
    rg_tensor_destroy(there);
    rig_close(&other);
}

/* ---- looking around ---- */

static void test_steps(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *h = neuron(graph, RG_NEURON_TANH, x);
    rg_value *y = neuron(graph, RG_NEURON_SIGMOID, h);
    EXPECT_OK(rg_node_set_label(rg_value_node(h), "first"));
    EXPECT_FAILS(rg_node_set_label(rg_value_node(y), "first"), RG_INVALID_ARGUMENT, "first");
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT(rg_graph_values(graph) == 3 && rg_graph_value_at(graph, 1) == h);
    EXPECT(rg_graph_value_at(graph, 3) == NULL && rg_graph_node_at(graph, -1) == NULL);
    EXPECT(rg_value_get_kind(h) == RG_VALUE_OUTPUT && rg_value_index(h) == 0);
    char text[1024];
    const size_t length = rg_graph_describe(graph, text, sizeof text);
    EXPECT(length == strlen(text) && length == rg_graph_describe(graph, NULL, 0));
    EXPECT(strstr(text, "source x\n") != NULL && strstr(text, "first: neuron kind=tanh") != NULL);
    EXPECT(strstr(text, "(first)\nresult y = neuron_1\n") != NULL);
    rg_plan_options options = rg_plan_options_default();
    options.in_place = false;
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r->device, graph, &options, &plan));
    rg_graph_destroy(graph);
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 2, DIMS(3, 5));
    rg_tensor_desc found;
    rg_step_info step;
    EXPECT_FAILS(rg_plan_shape(plan, "first", 0, &found), RG_INVALID_STATE, "prepared");
    EXPECT_OK(rg_plan_prepare(plan, &shape));
    EXPECT_OK(rg_plan_shape(plan, "first", 0, &found));
    EXPECT(memcmp(&found, &shape, sizeof shape) == 0);
    EXPECT_FAILS(rg_plan_shape(plan, "second", 0, &found), RG_INVALID_ARGUMENT, "second");
    EXPECT_FAILS(rg_plan_shape(plan, "first", 1, &found), RG_INVALID_ARGUMENT, "output 1");
    EXPECT_OK(rg_plan_step_info(plan, 0, &step));
    EXPECT(strcmp(step.label, "first") == 0 && strcmp(step.op, "neuron") == 0);
    EXPECT(!step.gradient && step.forward == -1);
    EXPECT_FAILS(rg_plan_step_info(plan, rg_plan_steps(plan), &step), RG_INVALID_ARGUMENT, "step");
    rg_memory_info info[2];
    EXPECT(rg_plan_memory_count(plan) == 2);
    for (int i = 0; i < 2; i++)
        EXPECT_OK(rg_plan_memory(plan, i, &info[i]));
    EXPECT(info[0].first == 0 && info[0].last == 1 && info[0].bytes == 120);
    EXPECT(info[1].first == 1 && info[1].last == rg_plan_steps(plan));
    EXPECT(info[0].offset + 120 <= info[1].offset || info[1].offset + 120 <= info[0].offset);
    EXPECT(strcmp(info[0].label, "first") == 0 && info[0].state == NULL);
    EXPECT_FAILS(rg_plan_memory(plan, 2, &info[0]), RG_INVALID_ARGUMENT,
                 "rg_plan_memory: entry 2 is out of range; there are 2");
    rg_plan_destroy(plan);
}

int main(void)
{
    rig r = rig_open(1);
    test_diamond(&r);
    test_stop();
    test_losses(&r);
    test_source_size(&r);
    test_policies(&r);
    test_export(&r);
    test_whole_nodes(&r);
    test_batch_norm(&r);
    test_temporary_source(&r);
    test_device_update(&r);
    test_host_update(&r);
    test_no_update(&r);
    test_async(&r);
    test_batch(&r);
    test_copy(&r);
    test_steps(&r);
    rig_close(&r);
    return rg_test_report();
}
