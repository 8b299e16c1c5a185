/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The stepper: batches that are running, for training and inference. */
#include "train/stepper_parts.h"
#include "train/scores.h"

#include "core/memory.h"
#include "runtime/objects.h"

#include <math.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- batches ---- */

static size_t image_bytes(const rg_stepper *t)
{
    const rg_network_desc *n = &t->options.network;
    return (size_t)(n->height * n->width * n->channels) * rg_dtype_size(n->dtype);
}

static size_t results_bytes(const rg_stepper *t, int64_t images)
{
    const rg_network_desc *n = &t->options.network;
    return RG_STEP_LOSS_BYTES + (size_t)(images * rg_network_outputs(n)) * rg_dtype_size(n->dtype);
}

static size_t label_bytes(const rg_stepper *t, int64_t images)
{
    return (size_t)(images * rg_network_targets(&t->options.network)) *
           rg_dtype_size(t->used.label_desc.dtype);
}

static void slot_release(rg_stepper *t, rg_step_slot *s)
{
    rg_commands_destroy(s->commands);
    rg_tensor_destroy(s->images);
    rg_tensor_destroy(s->labels);
    rg_release(allocator, s->answers, label_bytes(t, s->capacity));
    rg_host_release(t->device, s->results, results_bytes(t, s->capacity));
    *s = (rg_step_slot){ 0 };
}

static rg_status slot_fit(rg_stepper *t, rg_step_slot *s, int64_t count)
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

static rg_status record_result(rg_stepper *t, rg_plan *plan, rg_step_slot *s)
{
    const rg_network_desc *n = &t->options.network;
    const size_t element = rg_dtype_size(n->dtype);
    rg_tensor *logits, *loss;
    RG_TRY(rg_plan_result(plan, "logits", &logits));
    RG_TRY(rg_plan_result(plan, "loss", &loss));
    RG_TRY(rg_commands_read(s->commands, logits, s->results + RG_STEP_LOSS_BYTES,
                            (size_t)(s->count * rg_network_outputs(n)) * element, RG_LAYOUT_SAME));
    return rg_commands_read(s->commands, loss, s->results, element, RG_LAYOUT_SAME);
}

static rg_status start(rg_stepper *t, rg_plan *plan, rg_step_slot *s, const void *images,
                       const void *labels, int64_t count, rg_step_numbers n)
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

static rg_scored scored_of(const rg_stepper *t, const rg_step_slot *s)
{
    return (rg_scored){ .network = &t->options.network,
                        .outputs = s->results + RG_STEP_LOSS_BYTES,
                        .targets = s->answers,
                        .overlaps = s == &t->evaluation ? t->overlaps : NULL };
}

/* The mean over the batch. The device rounds it to the dtype of the network; for 16 bits it is
 * computed again from the logits, in double. */
static double batch_loss(const rg_stepper *t, const rg_step_slot *s)
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
static rg_status collect(rg_stepper *t, rg_step_slot *s, rg_outcome *outcome)
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

static rg_step_share share_of(const rg_stepper *t)
{
    const int64_t place = t->batches % t->options.accumulate;
    return place == t->options.accumulate - 1 ? RG_STEP_SHARE_LAST
           : place == 0                       ? RG_STEP_SHARE_FIRST
                                              : RG_STEP_SHARE_MIDDLE;
}

rg_status rg_stepper_step(rg_stepper *t, const void *images, const void *labels, int64_t count,
                          double rate, rg_outcome *outcome)
{
    rg_step_slot *s = &t->slots[t->batches % RG_STEP_SLOTS];
    RG_TRY(collect(t, s, outcome));
    const rg_step_share which = share_of(t);
    const rg_step_numbers n = {
        .rate64 = rate, .rate = (float)rate, .step = t->steps + 1, .dropout_step = t->batches
    };
    const rg_status status = start(t, t->plans[which], s, images, labels, count, n);
    if (status != RG_OK) {
        rg_commands_destroy(s->commands);
        s->commands = NULL;
        return status;
    }
    t->batches++;
    t->steps += which == RG_STEP_SHARE_LAST;
    return RG_OK;
}

const rg_step_slot *rg_stepper_last_slot(const rg_stepper *t)
{
    return &t->slots[(t->batches + RG_STEP_SLOTS - 1) % RG_STEP_SLOTS];
}

rg_status rg_stepper_finish(rg_stepper *t, rg_outcome *outcome)
{
    *outcome = (rg_outcome){ 0 };
    for (int64_t i = 0; i < RG_STEP_SLOTS && outcome->images == 0; i++) /* the earliest first */
        RG_TRY(collect(t, &t->slots[(t->batches + i) % RG_STEP_SLOTS], outcome));
    return RG_OK;
}

rg_status rg_stepper_evaluate(rg_stepper *t, const void *images, const void *labels, int64_t count,
                              float *answers, rg_outcome *outcome)
{
    rg_step_slot *s = &t->evaluation;
    rg_status status = start(t, t->use, s, images, labels, count, (rg_step_numbers){ 0 });
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
        status = rg_stepper_make_plans(t, model);
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
    for (int i = 0; i < RG_STEP_SLOTS; i++) {
        rg_outcome outcome;
        (void)collect(t, &t->slots[i], &outcome);
        slot_release(t, &t->slots[i]);
    }
    slot_release(t, &t->evaluation);
    for (int i = 0; i < RG_STEP_SHARES; i++)
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
    return t->options.use_only ? t->use : t->plans[RG_STEP_SHARE_LAST];
}
