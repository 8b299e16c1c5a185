/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Networks: the graph of a model, with parameter shapes that follow from the images. */
#include "train/layer_rules.h"
#include "train/model_onnx.h"
#include "train/network_norm.h"
#include "train/patterns.h"
#include "train/scores.h"

#include "core/memory.h"
#include "core/shape.h"
#include "ops/ops.h"
#include "train/random.h"

#include <retrograde/neuron.h>
#include <retrograde/nodes.h>
#include <retrograde/softmax.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

typedef struct builder {
    const rg_model *model;
    const rg_network_desc *options;
    rg_network *network;
    const rg_layer *layer; /* being built */
    const rg_layer_rule *rule;
    rg_tensor_desc x[RG_MAX_INPUTS];
    rg_value *in[RG_MAX_INPUTS];
    int64_t trained; /* parameters of the layer */
    bool is_split;   /* see rg_network_create_split() */
    _Alignas(16) char desc[RG_MAX_DESC];
} builder;

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* ---- parameters ---- */

/* Parameters of a norm stay in f32 beside 16-bit images. */
static rg_dtype dtype_of(const builder *b, const char *input)
{
    const rg_dtype dtype = b->options->dtype;
    const bool norm =
        is(input, "gamma") || is(input, "beta") || is(input, "mean") || is(input, "variance");
    return norm && rg_dtype_size(dtype) == 2 ? RG_F32 : dtype;
}

static int64_t outputs_of(const builder *b)
{
    return b->layer->outputs == RG_MODEL_CLASSES ? b->options->classes : b->layer->outputs;
}

static rg_status add_parameter(builder *b, const char *input, rg_value **value)
{
    rg_network *network = b->network;
    const rg_tensor_desc *x = &b->x[0];
    const int64_t last = x->rank > 0 ? x->dims[x->rank - 1] : 0;
    const int64_t outputs = outputs_of(b), length = is(input, "b") ? outputs : last;
    rg_tensor_desc desc = rg_tensor_desc_dense(dtype_of(b, input), 1, &length);
    rg_network_parameter made = { .trained = !is(input, "mean") && !is(input, "variance") };
    if (is(input, "w")) {
        int64_t fan_in = 1;
        RG_CHECK(b->rule->weights != NULL, RG_UNSUPPORTED,
                 "the shape of the weights of %s is unknown", b->layer->op->name);
        RG_TRY(b->rule->weights(b->layer, x, outputs, &desc, &fan_in));
        /* so that the variance stays through a layer with relu; the last one has none */
        const bool classifies = b->layer->outputs == RG_MODEL_CLASSES;
        made.start = RG_START_NORMAL;
        made.deviation = sqrt((classifies ? 1.0 : 2.0) / (double)(fan_in > 0 ? fan_in : 1));
    } else if (is(input, "gamma") || is(input, "variance")) {
        made.start = RG_START_ONE;
    } else if (is(input, "slope")) {
        made.start = RG_START_SLOPE;
    }
    char name[256];
    snprintf(name, sizeof name, "%s.%s", b->layer->label, input);
    *value = made.value = rg_graph_parameter(network->graph, name, &desc);
    RG_TRY(rg_graph_status(network->graph));
    rg_layer_weight_order(b->layer, input, desc.rank, made.order);
    made.head = b->layer == &b->model->layers[b->model->layers_count - 1];
    if (rg_patterns_match(b->options->freeze, name)) {
        made.trained = false;
        RG_TRY(rg_value_stop_gradient(made.value));
    }
    RG_TRY(rg_grow(allocator, (void **)&network->parameters, &network->parameters_capacity,
                   network->parameters_count, sizeof network->parameters[0]));
    network->parameters[network->parameters_count++] = made;
    b->x[0] = *x;
    b->trained += made.trained ? rg_shape_count(&desc) : 0;
    return RG_OK;
}

/* ---- layers ---- */

static bool is_parameter(const builder *b, const char *input)
{
    static const char *const names[] = { "w", "gamma", "beta", "mean", "variance", "slope" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is(input, names[i]))
            return true;
    }
    return is(input, "b") && b->rule->weights != NULL;
}

static rg_status dropout_step(builder *b, rg_value **value)
{
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_I64, 0, NULL);
    rg_network *network = b->network;
    if (network->dropout_step == NULL)
        network->dropout_step = rg_graph_parameter(network->graph, "dropout_step", &number);
    *value = network->dropout_step;
    return rg_graph_status(network->graph);
}

/* Inputs in the order of the op: layers above, then parameters. */
static rg_status gather_inputs(builder *b, size_t index)
{
    const rg_layer *layer = b->layer;
    const char *const *names = rg_op_input_names(layer->op, b->desc);
    const int32_t inputs = rg_op_inputs(layer->op, b->desc);
    const int32_t from_count = layer->from_count > 0 ? layer->from_count : 1;
    int32_t taken = 0;
    b->trained = 0;
    for (int32_t i = 0; i < inputs; i++) {
        if (is_parameter(b, names[i])) {
            RG_TRY(add_parameter(b, names[i], &b->in[i]));
        } else if (is(names[i], "step")) {
            RG_TRY(dropout_step(b, &b->in[i]));
        } else {
            RG_CHECK(taken < from_count, RG_MALFORMED,
                     "%s also needs the input %s; add it after 'from'", layer->op->name, names[i]);
            const int32_t from = layer->from_count > 0 ? layer->from[taken] : (int32_t)index - 1;
            taken++;
            b->in[i] = from < 0 ? b->network->images : b->network->layers[from].value;
            b->x[i] = b->network->layers[from].desc; /* entry -1: the images */
            continue;
        }
        b->x[i] = b->in[i]->desc;
    }
    RG_CHECK(taken == from_count, RG_MALFORMED, "%s needs %d inputs, not %d", layer->op->name,
             taken, from_count);
    return RG_OK;
}

/* Running statistics are kept from batch to batch. */
static rg_status assign_statistics(builder *b, rg_node *node)
{
    const char *const *inputs = rg_op_input_names(b->layer->op, b->desc);
    const char *const *outputs = rg_op_output_names(b->layer->op, b->desc);
    for (int32_t j = 1; j < node->outputs; j++) {
        for (int32_t i = 0; i < node->inputs; i++) {
            if (strncmp(outputs[j], "new_", 4) == 0 && is(outputs[j] + 4, inputs[i]))
                RG_TRY(rg_graph_assign(b->network->graph, b->in[i], node->out[j]));
        }
    }
    return RG_OK;
}

/* Whether the layer takes its statistics from the batch, and these come from elsewhere. */
static bool is_split(const builder *b)
{
    const rg_batch_norm_desc *d = (const rg_batch_norm_desc *)(const void *)b->desc;
    return b->is_split && is(b->layer->op->name, "batch_norm") &&
           d->statistics == RG_BATCH_NORM_RUNNING;
}

static rg_status apply_layer(builder *b, rg_network_layer *made)
{
    const rg_batch_norm_desc *d = (const rg_batch_norm_desc *)(const void *)b->desc;
    const rg_tensor_desc *x = &b->x[0];
    if (is_split(b))
        return rg_network_split_norm(b->network, d, b->in, rg_shape_count(x) / x->dims[x->rank - 1],
                                     b->layer->label, &made->node);
    made->node =
        rg_graph_apply(b->network->graph, b->layer->op->name, b->desc, b->in, RG_MAX_INPUTS);
    RG_TRY(rg_graph_status(b->network->graph));
    return assign_statistics(b, made->node);
}

static rg_status build_layer(builder *b, size_t index)
{
    rg_network_layer *made = &b->network->layers[index];
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    b->layer = &b->model->layers[index];
    b->rule = rg_layer_rule_of(b->layer->op);
    memcpy(b->desc, b->layer->desc, sizeof b->desc);
    if (b->rule->adjust != NULL)
        b->rule->adjust(b->desc, b->options, b->layer, index);
    if (b->rule->left_out && !b->options->training) {
        const int32_t from = b->layer->from_count > 0 ? b->layer->from[0] : (int32_t)index - 1;
        *made = b->network->layers[from];
        made->node = NULL;
        made->parameters = 0;
        return RG_OK;
    }
    RG_TRY(gather_inputs(b, index));
    RG_TRY(b->layer->op->shapes(b->desc, b->x, y));
    RG_TRY(apply_layer(b, made));
    RG_TRY(rg_node_set_label(made->node, b->layer->label));
    made->value = rg_node_output(made->node, 0);
    made->desc = y[0];
    made->parameters = b->trained;
    return RG_OK;
}

/* ---- the end ---- */

/* A softmax or sigmoid before a loss that begins with one trains badly and gives wrong
 * probabilities. */
static rg_status check_last_layer(const builder *b)
{
    const rg_layer *last = &b->model->layers[b->model->layers_count - 1];
    const rg_loss_kind loss = rg_network_loss(b->options);
    const rg_softmax_desc *softmax = (const rg_softmax_desc *)(const void *)last->desc;
    const rg_neuron_desc *neuron = (const rg_neuron_desc *)(const void *)last->desc;
    const bool sigmoids = loss == RG_LOSS_SIGMOID_CROSS_ENTROPY;
    const bool shares = is(last->op->name, "softmax") && softmax->kind == RG_SOFTMAX_PLAIN &&
                        (sigmoids || loss == RG_LOSS_SOFTMAX_CROSS_ENTROPY);
    const bool sigmoid =
        sigmoids && is(last->op->name, "neuron") && neuron->kind == RG_NEURON_SIGMOID;
    RG_CHECK(
        !b->options->training || (!shares && !sigmoid), RG_MALFORMED,
        "%s:%d:%d: the network ends with %s, but the loss applies %s itself; remove this layer",
        b->model->name, last->line, last->column, shares ? "softmax" : "sigmoid",
        sigmoids ? "sigmoid" : "softmax");
    return RG_OK;
}

/* The last layer has a row of classes for each label, or a number for each target. */
static rg_status check_outputs(const rg_network *network, const char *name,
                               const rg_network_desc *o, const rg_tensor_desc *y)
{
    const bool rows = o->target == RG_TARGET_CLASS || o->target == RG_TARGET_MASK;
    char shape[RG_SHAPE_TEXT];
    RG_CHECK(
        o->target != RG_TARGET_CLASS ||
            (y->rank > 1 && y->dims[y->rank - 1] == o->classes && rg_shape_count(y) == o->classes),
        RG_MALFORMED,
        "%s: the output of the last layer is %s for one image; it must have one element for "
        "each of the %d classes%s",
        name, rg_shape_text(y, shape), o->classes,
        network->model != NULL ? "; --head auto, or head of rg_trainer_desc, replaces it" : "");
    RG_CHECK(rg_shape_count(y) == rg_network_outputs(o) && y->rank > 1 &&
                 (!rows || y->dims[y->rank - 1] == o->classes),
             RG_MALFORMED,
             "%s: the output of the last layer is %s for one image; it must have %lld elements%s",
             name, rg_shape_text(y, shape), (long long)rg_network_outputs(o),
             rows ? ", the classes of every pixel last" : ", one for each target");
    RG_CHECK(o->target != RG_TARGET_MASK || y->rank != 4 || o->outputs != o->height * o->width ||
                 y->dims[1] == o->height,
             RG_MALFORMED,
             "%s: the output of the last layer is %s for one image; it must have the %lld rows of "
             "the mask",
             name, rg_shape_text(y, shape), (long long)o->height);
    return RG_OK;
}

rg_status rg_network_add_results(rg_network *network, const rg_network_desc *options,
                                 const char *name, rg_value *logits, const rg_tensor_desc *desc)
{
    const bool rows = options->target == RG_TARGET_CLASS || options->target == RG_TARGET_MASK;
    RG_TRY(check_outputs(network, name, options, desc));
    rg_loss_desc loss = rg_loss_desc_default();
    loss.labels = rows ? RG_LOSS_CLASS_LABELS : RG_LOSS_DENSE_LABELS;
    loss.kind = rg_network_loss(options);
    loss.has_ignored = options->target == RG_TARGET_MASK; /* such pixels add 0, and count */
    loss.ignored = loss.has_ignored ? RG_DATASET_IGNORED : 0;
    network->logits = logits;
    network->label_desc =
        rg_tensor_desc_dense(rows ? RG_I32 : options->dtype, desc->rank - rows, desc->dims);
    RG_TRY(rg_graph_result(network->graph, network->logits, "logits"));
    if (options->logits_only)
        return RG_OK;
    rg_value *const x[] = { network->logits, network->labels };
    rg_node *node = rg_graph_loss(network->graph, &loss, x);
    network->loss = rg_node_output(node, 0);
    RG_TRY(rg_graph_status(network->graph));
    RG_TRY(rg_node_set_label(node, "loss"));
    return rg_graph_result(network->graph, network->loss, "loss");
}

static rg_status build(builder *b)
{
    const rg_network_desc *o = b->options;
    rg_network *network = b->network;
    const size_t count = b->model->layers_count;
    void *layers;
    RG_TRY(rg_allocate_zero(allocator, (count + 1) * sizeof *network->layers, &layers));
    network->layers = (rg_network_layer *)layers + 1; /* the images stand before the first */
    network->layers_count = count;
    RG_TRY(rg_graph_create(&network->graph));
    network->images = rg_graph_source(network->graph, "images");
    if (!o->logits_only)
        network->labels = rg_graph_source(network->graph, "labels");
    RG_TRY(rg_graph_status(network->graph));
    const int64_t dims[] = { 1, o->height, o->width, o->channels };
    network->layers[-1].desc = rg_tensor_desc_dense(o->dtype, 4, dims);
    network->layers[-1].value = network->images;
    for (size_t i = 0; i < b->model->layers_count; i++) {
        const rg_status status = build_layer(b, i);
        if (status != RG_OK) {
            rg_error_prefix("%s:%d:%d: ", b->model->name, b->layer->line, b->layer->column);
            return status == RG_INVALID_ARGUMENT ? RG_MALFORMED : status;
        }
    }
    const rg_network_layer *last = &network->layers[network->layers_count - 1];
    if (!o->logits_only)
        RG_TRY(check_last_layer(b));
    return rg_network_add_results(network, o, b->model->name, last->value, &last->desc);
}

static rg_status create(const rg_model *model, const rg_network_desc *options, bool is_split,
                        rg_network *network)
{
    *network = (rg_network){ .layers_count = 0 };
    builder b = { .model = model, .options = options, .network = network, .is_split = is_split };
    const rg_status status =
        model->onnx != NULL ? rg_network_build_onnx(model, options, network) : build(&b);
    if (status != RG_OK)
        rg_network_destroy(network);
    return status;
}

rg_status rg_network_create(const rg_model *model, const rg_network_desc *options,
                            rg_network *network)
{
    return create(model, options, false, network);
}

rg_status rg_network_create_split(const rg_model *model, const rg_network_desc *options,
                                  rg_network *network)
{
    *network = (rg_network){ .layers_count = 0 };
    RG_CHECK(model->onnx == NULL, RG_UNSUPPORTED,
             "%s: batch normalization cannot be synchronised in ONNX models", model->name);
    return create(model, options, true, network);
}

void rg_network_destroy(rg_network *network)
{
    rg_release(allocator, network->norms, network->norms_capacity * sizeof *network->norms);
    rg_graph_destroy(network->graph);
    rg_release(allocator, network->parameters,
               network->parameters_capacity * sizeof *network->parameters);
    if (network->layers != NULL)
        rg_release(allocator, network->layers - 1,
                   (network->layers_count + 1) * sizeof *network->layers);
    *network = (rg_network){ 0 };
}

/* ---- first values ---- */

/* A number of the normal distribution: the sum of twelve uniform ones, less its mean, has variance
 * 1, and the same bits on every machine. */
static double normal(uint64_t key, uint64_t index)
{
    double sum = -6;
    for (uint64_t i = 0; i < 12; i++)
        sum += rg_random_unit(key ^ rg_random(index * 12 + i, 0), 0);
    return sum;
}

static double first_value(const rg_network_parameter *p, uint64_t key, uint64_t index)
{
    switch (p->start) {
    case RG_START_ZERO:
        return 0;
    case RG_START_ONE:
        return 1;
    case RG_START_SLOPE:
        return 0.25;
    case RG_START_NORMAL:
        return p->deviation * normal(key, index);
    }
    return 0;
}

static rg_status start_parameter(const rg_network_parameter *p, rg_plan *plan, uint64_t seed)
{
    uint64_t key = rg_random(seed, 0);
    for (const char *c = p->value->name; *c != 0; c++)
        key = rg_random(key ^ (uint64_t)(unsigned char)*c, 0);
    const int64_t count = rg_shape_count(&p->value->desc);
    const size_t bytes = (size_t)count * sizeof(double);
    void *data;
    RG_TRY(rg_allocate(allocator, bytes, &data));
    rg_tensor *tensors[2] = { NULL };
    char master[300];
    snprintf(master, sizeof master, "%s.master", p->value->name);
    rg_status status = rg_plan_parameter(plan, p->value->name, &tensors[0]);
    if (status == RG_OK)
        (void)rg_plan_parameter(plan, master, &tensors[1]); /* there may be none */
    for (int k = 0; k < 2 && status == RG_OK; k++) {
        if (tensors[k] == NULL)
            continue;
        rg_tensor_desc desc;
        status = rg_tensor_get_desc(tensors[k], &desc);
        for (int64_t i = 0; i < count; i++)
            rg_element_set(data, desc.dtype, i, first_value(p, key, (uint64_t)i));
        if (status == RG_OK)
            status = rg_tensor_write(tensors[k], data, (size_t)count * rg_dtype_size(desc.dtype),
                                     RG_LAYOUT_SAME);
    }
    rg_release(allocator, data, bytes);
    return status;
}

rg_status rg_network_start(const rg_network *network, rg_plan *plan, uint64_t seed)
{
    if (network->model != NULL)
        RG_TRY(rg_network_start_onnx(network, plan));
    for (size_t i = 0; i < network->parameters_count; i++) {
        if (!network->parameters[i].stored)
            RG_TRY(start_parameter(&network->parameters[i], plan, seed));
    }
    return RG_OK;
}

/* ---- models as graphs and plans ---- */

rg_status rg_model_graph(const rg_model *model, const rg_network_desc *desc, rg_graph **graph)
{
    rg_network_desc checked;
    rg_network network;
    RG_CHECK_NOT_NULL(graph);
    *graph = NULL;
    RG_CHECK_NOT_NULL(model);
    RG_TRY(rg_network_desc_copy(__func__, desc, &checked));
    RG_TRY(rg_network_create(model, &checked, &network));
    *graph = network.graph;
    network.graph = NULL;
    rg_network_destroy(&network);
    return RG_OK;
}

rg_status rg_model_plan(const rg_model *model, const rg_network_desc *desc, rg_device *device,
                        uint64_t seed, rg_plan **plan)
{
    const rg_plan_options options = rg_plan_options_default();
    rg_network_desc checked;
    rg_network network;
    rg_plan *made = NULL;
    RG_CHECK_NOT_NULL(plan);
    *plan = NULL;
    RG_CHECK_NOT_NULL(model);
    RG_CHECK_NOT_NULL(device);
    RG_CHECK(model->onnx == NULL || model->file != NULL, RG_INVALID_ARGUMENT,
             "%s: the model has no weights; open its file", model->name);
    RG_TRY(rg_network_desc_copy(__func__, desc, &checked));
    RG_TRY(rg_network_create(model, &checked, &network));
    rg_status status = rg_plan_create(device, network.graph, &options, &made);
    if (status == RG_OK)
        status = rg_network_start(&network, made, seed);
    rg_network_destroy(&network);
    if (status != RG_OK)
        rg_plan_destroy(made);
    else
        *plan = made;
    return status;
}
