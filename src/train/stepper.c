/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The stepper: plans for training and inference, and batches that are running. */
#include "train/stepper.h"
#include "train/scores.h"

#include "core/memory.h"
#include "core/shape.h"
#include "runtime/objects.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <stdio.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* Numbers that change from batch to batch. */
typedef struct numbers {
    double rate64;
    float rate;
    int64_t step, dropout_step;
} numbers;

/* A batch that is running, with the memory that the device reads and writes. */
typedef struct slot {
    rg_commands *commands; /* NULL: none */
    rg_tensor *images, *labels;
    int64_t capacity; /* in images */
    int64_t count;
    numbers numbers;
    char *answers; /* the labels */
    char *results; /* the loss, then the logits; reached without waiting */
} slot;

enum { LOSS_BYTES = 16 }; /* of the results */

/* With accumulation a step is made of several batches: the first one starts the sums, others add to
 * them, the last one changes the parameters. */
typedef enum share { SHARE_FIRST, SHARE_MIDDLE, SHARE_LAST, SHARES } share;
enum { SLOTS = 2 };

struct rg_stepper {
    rg_stepper_options options;
    rg_device *device;
    rg_queue *queue;
    rg_network network; /* of `last`, which is all there is without accumulation */
    rg_plan *plans[SHARES];
    rg_network used; /* as it is used */
    rg_plan *use;
    slot slots[SLOTS];
    slot evaluation;
    int64_t *overlaps; /* of masks, counted by evaluations: (3, classes) */
    int64_t batches;   /* begun */
    int64_t steps;     /* taken */
};

/* ---- graphs ---- */

static rg_parameter_copy copy_of(rg_dtype dtype)
{
    return dtype == RG_F16    ? RG_PARAMETER_COPY_F16
           : dtype == RG_BF16 ? RG_PARAMETER_COPY_BF16
                              : RG_PARAMETER_COPY_NONE;
}

typedef struct rate_and_step {
    rg_value *rate, *step;
} rate_and_step;

static rg_node *add_update(const rg_stepper *t, const rg_network *network,
                           const rg_network_parameter *p, rg_value *gradient, rate_and_step n)
{
    const rg_stepper_options *o = &t->options;
    const rg_parameter_copy copy = copy_of(p->value->desc.dtype);
    const bool decays = p->start == RG_START_NORMAL && o->decay > 0; /* weights alone */
    rg_gradient_rules rules = { .clip_minimum = -INFINITY,
                                .clip_maximum = INFINITY,
                                .rescale = 1.0 / o->accumulate };
    if (decays && o->optimizer != RG_OPTIMIZER_ADAM) {
        rules.regularization = RG_REGULARIZATION_L2;
        rules.regularization_scale = o->decay;
    }
    rg_graph *graph = network->graph;
    if (o->optimizer == RG_OPTIMIZER_SGD) {
        rg_sgd_desc d = rg_sgd_desc_default();
        d.form = RG_UPDATE_TORCH;
        d.momentum = o->momentum;
        d.gradient = rules;
        d.copy = copy;
        return rg_graph_update(graph, "sgd", &d, p->value, gradient, n.rate, NULL, NULL);
    }
    if (o->optimizer == RG_OPTIMIZER_RMSPROP) {
        rg_rmsprop_desc d = rg_rmsprop_desc_default();
        d.form = RG_UPDATE_TORCH;
        d.gradient = rules;
        d.copy = copy;
        return rg_graph_update(graph, "rmsprop", &d, p->value, gradient, n.rate, NULL, NULL);
    }
    rg_adam_desc d = rg_adam_desc_default();
    d.form = RG_UPDATE_TORCH;
    d.decay = decays ? o->decay : 0;
    d.gradient = rules;
    d.copy = copy;
    return rg_graph_update(graph, "adam", &d, p->value, gradient, n.rate, n.step, NULL);
}

/* The sum of gradients over the batches of a step. */
static rg_value *add_sum(const rg_network *network, const rg_network_parameter *p, share which,
                         rg_value *gradient)
{
    char name[300];
    snprintf(name, sizeof name, "%s.sum", p->value->name);
    rg_value *sum = rg_graph_parameter(network->graph, name, &p->value->desc);
    const rg_arithmetic_desc add = rg_arithmetic_desc_default();
    rg_neuron_desc copy = rg_neuron_desc_default();
    copy.kind = RG_NEURON_NONE;
    rg_node *node = which == SHARE_FIRST ? rg_graph_neuron(network->graph, &copy, &gradient)
                                         : rg_graph_arithmetic(network->graph, &add,
                                                               (rg_value *[]){ sum, gradient });
    if (which != SHARE_LAST)
        (void)rg_graph_assign(network->graph, sum, rg_node_output(node, 0));
    return rg_node_output(node, 0);
}

static rg_status make_training(rg_stepper *t, const rg_model *model, share which,
                               rg_network *network)
{
    rg_network_desc options = t->options.network;
    options.training = true;
    RG_TRY(rg_network_create(model, &options, network));
    const rg_dtype real = options.dtype == RG_F64 ? RG_F64 : RG_F32;
    const rg_tensor_desc rate = rg_tensor_desc_dense(real, 0, NULL);
    const rg_tensor_desc step = rg_tensor_desc_dense(RG_I64, 0, NULL);
    rate_and_step n = { NULL, NULL };
    if (which == SHARE_LAST)
        n.rate = rg_graph_parameter(network->graph, "rate", &rate);
    if (which == SHARE_LAST && t->options.optimizer == RG_OPTIMIZER_ADAM)
        n.step = rg_graph_parameter(network->graph, "step", &step);
    RG_TRY(rg_value_stop_gradient(network->images));
    RG_TRY(rg_graph_gradients(network->graph, &network->loss, NULL, 1, NULL, NULL));
    for (size_t i = 0; i < network->parameters_count; i++) {
        const rg_network_parameter *p = &network->parameters[i];
        rg_value *gradient = rg_value_gradient(p->value);
        if (!p->trained || gradient == NULL)
            continue;
        if (t->options.accumulate > 1)
            gradient = add_sum(network, p, which, gradient);
        if (which == SHARE_LAST)
            (void)add_update(t, network, p, gradient, n);
    }
    return rg_graph_status(network->graph);
}

static rg_status make_plans(rg_stepper *t, const rg_model *model)
{
    rg_plan_options options = rg_plan_options_default();
    if (!t->options.use_only) {
        RG_TRY(make_training(t, model, SHARE_LAST, &t->network));
        RG_TRY(rg_plan_create(t->device, t->network.graph, &options, &t->plans[SHARE_LAST]));
        RG_TRY(rg_network_start(&t->network, t->plans[SHARE_LAST], t->options.seed));
    }
    options.share = t->plans[SHARE_LAST];
    for (int which = SHARE_FIRST; which < SHARE_LAST && t->options.accumulate > 1; which++) {
        rg_network network = { 0 };
        rg_status status = make_training(t, model, (share)which, &network);
        if (status == RG_OK)
            status = rg_plan_create(t->device, network.graph, &options, &t->plans[which]);
        rg_network_destroy(&network);
        RG_TRY(status);
    }
    rg_network_desc used = t->options.network;
    used.training = false;
    RG_TRY(rg_network_create(model, &used, &t->used));
    return rg_plan_create(t->device, t->used.graph, &options, &t->use);
}

/* ---- batches ---- */

static size_t image_bytes(const rg_stepper *t)
{
    const rg_network_desc *n = &t->options.network;
    return (size_t)(n->height * n->width * n->channels) * rg_dtype_size(n->dtype);
}

static size_t results_bytes(const rg_stepper *t, int64_t images)
{
    const rg_network_desc *n = &t->options.network;
    return LOSS_BYTES + (size_t)(images * rg_network_outputs(n)) * rg_dtype_size(n->dtype);
}

static size_t label_bytes(const rg_stepper *t, int64_t images)
{
    return (size_t)(images * rg_network_targets(&t->options.network)) *
           rg_dtype_size(t->used.label_desc.dtype);
}

static void slot_release(rg_stepper *t, slot *s)
{
    rg_commands_destroy(s->commands);
    rg_tensor_destroy(s->images);
    rg_tensor_destroy(s->labels);
    rg_release(allocator, s->answers, label_bytes(t, s->capacity));
    rg_host_release(t->device, s->results, results_bytes(t, s->capacity));
    *s = (slot){ 0 };
}

static rg_status slot_fit(rg_stepper *t, slot *s, int64_t count)
{
    const rg_network_desc *n = &t->options.network;
    const int64_t dims[] = { count, n->height, n->width, n->channels };
    int64_t label_dims[RG_MAX_RANK];
    memcpy(label_dims, t->used.label_desc.dims, sizeof label_dims);
    label_dims[0] = count;
    const rg_tensor_desc images = rg_tensor_desc_dense(n->dtype, 4, dims);
    const rg_tensor_desc labels =
        rg_tensor_desc_dense(t->used.label_desc.dtype, t->used.label_desc.rank, label_dims);
    void *memory;
    if (s->count == count && s->images != NULL)
        return RG_OK;
    slot_release(t, s);
    s->capacity = s->count = count;
    RG_TRY(rg_tensor_create(t->device, &images, &s->images));
    RG_TRY(rg_tensor_create(t->device, &labels, &s->labels));
    RG_TRY(rg_allocate(allocator, label_bytes(t, count), &memory));
    s->answers = memory;
    RG_TRY(rg_host_allocate(t->device, results_bytes(t, count), &memory));
    s->results = memory;
    return RG_OK;
}

static rg_status record_number(rg_commands *commands, rg_plan *plan, const char *name,
                               const void *number, size_t bytes)
{
    rg_tensor *tensor;
    if (rg_plan_parameter(plan, name, &tensor) != RG_OK)
        return RG_OK; /* this network has none */
    return rg_commands_write(commands, tensor, number, bytes, RG_LAYOUT_SAME);
}

static rg_status record_result(rg_stepper *t, rg_plan *plan, slot *s)
{
    const rg_network_desc *n = &t->options.network;
    const size_t element = rg_dtype_size(n->dtype);
    rg_tensor *logits, *loss;
    RG_TRY(rg_plan_result(plan, "logits", &logits));
    RG_TRY(rg_plan_result(plan, "loss", &loss));
    RG_TRY(rg_commands_read(s->commands, logits, s->results + LOSS_BYTES,
                            (size_t)(s->count * rg_network_outputs(n)) * element, RG_LAYOUT_SAME));
    return rg_commands_read(s->commands, loss, s->results, element, RG_LAYOUT_SAME);
}

static rg_status start(rg_stepper *t, rg_plan *plan, slot *s, const void *images,
                       const void *labels, int64_t count, numbers n)
{
    RG_CHECK(count > 0, RG_INVALID_ARGUMENT, "the batch has no images");
    RG_TRY(slot_fit(t, s, count));
    s->numbers = n;
    RG_TRY(rg_tensor_write(s->images, images, (size_t)count * image_bytes(t), RG_LAYOUT_SAME));
    RG_TRY(rg_tensor_write(s->labels, labels, label_bytes(t, count), RG_LAYOUT_SAME));
    memcpy(s->answers, labels, label_bytes(t, count));
    RG_TRY(rg_commands_create(t->queue, &s->commands));
    const bool wide = t->options.network.dtype == RG_F64;
    RG_TRY(record_number(s->commands, plan, "rate",
                         wide ? (const void *)&s->numbers.rate64 : &s->numbers.rate,
                         wide ? sizeof n.rate64 : sizeof n.rate));
    RG_TRY(record_number(s->commands, plan, "step", &s->numbers.step, sizeof n.step));
    RG_TRY(record_number(s->commands, plan, "dropout_step", &s->numbers.dropout_step,
                         sizeof n.dropout_step));
    RG_TRY(rg_plan_encode(plan, s->commands, (rg_tensor *[]){ s->images, s->labels }));
    RG_TRY(record_result(t, plan, s));
    return rg_commands_commit(s->commands);
}

static rg_scored scored_of(const rg_stepper *t, const slot *s)
{
    return (rg_scored){ .network = &t->options.network,
                        .outputs = s->results + LOSS_BYTES,
                        .targets = s->answers,
                        .overlaps = s == &t->evaluation ? t->overlaps : NULL };
}

/* The mean over the batch. The device rounds it to the dtype of the network; for 16 bits it is
 * computed again from the logits, in double. */
static double batch_loss(const rg_stepper *t, const slot *s)
{
    const rg_dtype dtype = t->options.network.dtype;
    double sum = 0;
    if (rg_dtype_size(dtype) > 2)
        return rg_element_get(s->results, dtype, 0);
    const rg_scored scored = scored_of(t, s);
    for (int64_t i = 0; i < s->count; i++)
        sum += rg_scored_loss(&scored, i);
    return sum / (double)s->count;
}

/* Waits for the slot's batch, if there is one. */
static rg_status collect(rg_stepper *t, slot *s, rg_outcome *outcome)
{
    *outcome = (rg_outcome){ 0 };
    if (s->commands == NULL)
        return RG_OK;
    const rg_status status = rg_commands_wait(s->commands);
    rg_commands_destroy(s->commands);
    s->commands = NULL;
    RG_TRY(status);
    outcome->images = s->count;
    outcome->loss = batch_loss(t, s);
    const rg_scored scored = scored_of(t, s);
    const bool classes = t->options.network.target == RG_TARGET_CLASS;
    for (int64_t i = 0; i < s->count; i++) {
        const double score = rg_scored_score(&scored, i);
        outcome->score += score;
        outcome->right += classes && score > 0;
        outcome->top5 += classes && s == &t->evaluation && rg_scored_in_top5(&scored, i);
    }
    return RG_OK;
}

static share share_of(const rg_stepper *t)
{
    const int64_t place = t->batches % t->options.accumulate;
    return place == t->options.accumulate - 1 ? SHARE_LAST
           : place == 0                       ? SHARE_FIRST
                                              : SHARE_MIDDLE;
}

rg_status rg_stepper_step(rg_stepper *t, const void *images, const void *labels, int64_t count,
                          double rate, rg_outcome *outcome)
{
    slot *s = &t->slots[t->batches % SLOTS];
    RG_TRY(collect(t, s, outcome));
    const share which = share_of(t);
    const numbers n = {
        .rate64 = rate, .rate = (float)rate, .step = t->steps + 1, .dropout_step = t->batches
    };
    const rg_status status = start(t, t->plans[which], s, images, labels, count, n);
    if (status != RG_OK) {
        rg_commands_destroy(s->commands);
        s->commands = NULL;
        return status;
    }
    t->batches++;
    t->steps += which == SHARE_LAST;
    return RG_OK;
}

rg_status rg_stepper_finish(rg_stepper *t, rg_outcome *outcome)
{
    *outcome = (rg_outcome){ 0 };
    for (int64_t i = 0; i < SLOTS && outcome->images == 0; i++) /* the earliest first */
        RG_TRY(collect(t, &t->slots[(t->batches + i) % SLOTS], outcome));
    return RG_OK;
}

rg_status rg_stepper_evaluate(rg_stepper *t, const void *images, const void *labels, int64_t count,
                              float *answers, rg_outcome *outcome)
{
    slot *s = &t->evaluation;
    rg_status status = start(t, t->use, s, images, labels, count, (numbers){ 0 });
    if (status != RG_OK) {
        rg_commands_destroy(s->commands);
        s->commands = NULL;
        return status;
    }
    RG_TRY(collect(t, s, outcome));
    const rg_scored scored = scored_of(t, s);
    for (int64_t i = 0; answers != NULL && i < count; i++)
        answers += rg_scored_answers(&scored, i, answers);
    return RG_OK;
}

/* ---- the stepper ---- */

rg_status rg_stepper_create(rg_device *device, const rg_model *model,
                            const rg_stepper_options *options, rg_stepper **stepper)
{
    void *memory;
    *stepper = NULL;
    RG_CHECK(options->accumulate >= 1, RG_INVALID_ARGUMENT,
             "a training step needs at least one batch");
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_stepper), &memory));
    rg_stepper *t = memory;
    t->options = *options;
    rg_status counted = RG_OK;
    if (options->network.target == RG_TARGET_MASK)
        counted = rg_allocate_array(3 * (size_t)options->network.classes, sizeof *t->overlaps,
                                    &t->overlaps);
    t->device = rg_device_retain(device);
    rg_status status = counted;
    if (status == RG_OK)
        status = rg_queue_create(device, &t->queue);
    if (status == RG_OK)
        status = make_plans(t, model);
    if (status != RG_OK) {
        rg_stepper_destroy(t);
        return status;
    }
    *stepper = t;
    return RG_OK;
}

void rg_stepper_destroy(rg_stepper *t)
{
    if (t == NULL)
        return;
    for (int i = 0; i < SLOTS; i++) {
        rg_outcome outcome;
        (void)collect(t, &t->slots[i], &outcome);
        slot_release(t, &t->slots[i]);
    }
    slot_release(t, &t->evaluation);
    for (int i = 0; i < SHARES; i++)
        rg_plan_destroy(t->plans[i]);
    rg_plan_destroy(t->use);
    rg_network_destroy(&t->network);
    rg_network_destroy(&t->used);
    rg_queue_destroy(t->queue);
    rg_release(allocator, t->overlaps,
               3 * (size_t)t->options.network.classes * sizeof *t->overlaps);
    rg_device_destroy(t->device);
    rg_release(allocator, t, sizeof *t);
}

/* The values of all parameters of a plan, into one block or from it. */
static rg_status copy_parameters(rg_plan *plan, char *block, bool back)
{
    for (int32_t i = 0; i < rg_plan_parameters(plan); i++) {
        rg_tensor *tensor;
        RG_TRY(rg_plan_parameter(plan, rg_plan_parameter_name(plan, i), &tensor));
        const size_t bytes =
            (size_t)rg_shape_count(&tensor->desc) * rg_dtype_size(tensor->desc.dtype);
        RG_TRY(back ? rg_tensor_write(tensor, block, bytes, RG_LAYOUT_SAME)
                    : rg_tensor_read(tensor, block, bytes, RG_LAYOUT_SAME));
        block += bytes;
    }
    return RG_OK;
}

static rg_status parameter_bytes(rg_plan *plan, size_t *bytes)
{
    *bytes = 0;
    for (int32_t i = 0; i < rg_plan_parameters(plan); i++) {
        rg_tensor *tensor;
        RG_TRY(rg_plan_parameter(plan, rg_plan_parameter_name(plan, i), &tensor));
        *bytes += (size_t)rg_shape_count(&tensor->desc) * rg_dtype_size(tensor->desc.dtype);
    }
    return RG_OK;
}

static const slot *last_slot(const rg_stepper *t)
{
    return &t->slots[(t->batches + SLOTS - 1) % SLOTS];
}

rg_status rg_stepper_prepare_time(rg_stepper *t, int32_t *steps)
{
    rg_plan *plan = t->plans[SHARE_LAST];
    const slot *s = last_slot(t);
    RG_CHECK(s->images != NULL, RG_INVALID_STATE, "no batch has been trained yet");
    RG_TRY(rg_plan_prepare(plan, (rg_tensor_desc[]){ s->images->desc, s->labels->desc }));
    *steps = rg_plan_steps(plan);
    return RG_OK;
}

rg_status rg_stepper_time(rg_stepper *t, double milliseconds[])
{
    enum { RUNS = 5 };
    rg_plan *plan = t->plans[SHARE_LAST];
    const slot *s = last_slot(t);
    size_t bytes;
    void *kept;
    RG_TRY(parameter_bytes(plan, &bytes));
    RG_TRY(rg_allocate(allocator, bytes, &kept));
    rg_status status = copy_parameters(plan, kept, false);
    if (status == RG_OK) {
        status = rg_plan_time(plan, t->queue, (rg_tensor *[]){ s->images, s->labels }, RUNS,
                              milliseconds);
        const rg_status restored = copy_parameters(plan, kept, true);
        status = status == RG_OK ? restored : status;
    }
    rg_release(allocator, kept, bytes);
    return status;
}

double rg_stepper_take_iou(rg_stepper *t)
{
    const int32_t classes = t->options.network.classes;
    double sum = 0, seen = 0;
    if (t->overlaps == NULL)
        return NAN;
    for (int32_t k = 0; k < classes; k++) {
        const int64_t both = t->overlaps[k];
        const int64_t either = t->overlaps[classes + k] + t->overlaps[2 * classes + k] - both;
        sum += either > 0 ? (double)both / (double)either : 0;
        seen += either > 0;
    }
    memset(t->overlaps, 0, 3 * (size_t)classes * sizeof *t->overlaps);
    return seen > 0 ? sum / seen : NAN;
}

int64_t rg_stepper_steps(const rg_stepper *t)
{
    return t->steps;
}

int64_t rg_stepper_batches(const rg_stepper *t)
{
    return t->batches;
}

void rg_stepper_seek(rg_stepper *t, int64_t steps, int64_t batches)
{
    t->steps = steps;
    t->batches = batches;
}

const rg_network *rg_stepper_network(const rg_stepper *t)
{
    return t->options.use_only ? &t->used : &t->network;
}

rg_plan *rg_stepper_plan(rg_stepper *t)
{
    return t->options.use_only ? t->use : t->plans[SHARE_LAST];
}
