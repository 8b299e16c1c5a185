/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The stepper: batches that are running, for training and inference. */
#include "train/stepper_parts.h"
#include "train/scores.h"

#include "core/dtype.h"
#include "core/memory.h"
#include "core/shape.h"
#include "runtime/objects.h"

#include <math.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- batches ---- */

static rg_status record_number(rg_commands *commands, rg_plan *plan, const char *name,
                               const void *number, size_t bytes)
{
    rg_tensor *tensor;
    if (rg_plan_parameter(plan, name, &tensor) != RG_OK)
        return RG_OK; /* this network has none */
    return rg_commands_write(commands, tensor, number, bytes, RG_LAYOUT_SAME);
}

static rg_status record_dropout_step(const rg_stepper *t, const rg_step_slot *s, rg_plan *plan,
                                     const int64_t *step)
{
    char name[RG_OWN_NAME];
    rg_network_own_name(rg_stepper_network(t), "dropout_step", name);
    return record_number(s->commands, plan, name, step, sizeof *step);
}

/* The number from which dropout draws its masks. */
static rg_status record_dropout(rg_stepper *t, rg_plan *plan, rg_step_slot *s, int32_t index)
{
    rg_step_part *part = &s->parts[index];
    const int64_t parts = t->options.micro_batches;
    part->dropout_step = s->numbers.batch;
    if (t->micro != NULL)
        part->dropout_step = s->numbers.batch * parts + (int64_t)t->rank * s->parts_count + index;
    return record_dropout_step(t, s, plan, &part->dropout_step);
}

rg_status rg_stepper_record_piece(rg_stepper *t, rg_plan *plan, rg_step_slot *s, int32_t index,
                                  const rg_plan_piece *piece)
{
    const rg_step_part *part = &s->parts[index];
    rg_tensor *const sources[] = { part->images, part->labels };
    RG_TRY(record_dropout(t, plan, s, index)); /* in a parameter that all parts share */
    return rg_plan_encode_piece(plan, s->commands, sources, piece);
}

rg_status rg_stepper_record_part(rg_stepper *t, rg_plan *plan, rg_step_slot *s, int32_t index,
                                 const rg_plan_cuts *cuts)
{
    const rg_step_part *part = &s->parts[index];
    RG_TRY(record_dropout(t, plan, s, index));
    rg_tensor *const sources[] = { part->images, part->labels };
    RG_TRY(cuts != NULL ? rg_plan_encode_cut(plan, s->commands, sources, cuts)
                        : rg_plan_encode(plan, s->commands, sources));
    return rg_slot_read(t, s, plan, index);
}

static rg_status record_numbers(rg_stepper *t, rg_plan *plan, rg_step_slot *s)
{
    const rg_step_numbers *n = &s->numbers;
    const bool wide = t->options.network.dtype == RG_F64;
    char name[RG_OWN_NAME];
    for (int32_t i = 0; i <= rg_rates_count(t->options.rates); i++) {
        rg_stepper_rate_name(t, i, name);
        RG_TRY(record_number(s->commands, plan, name,
                             wide ? (const void *)&n->rates64[i] : &n->rates[i],
                             wide ? sizeof n->rates64[i] : sizeof n->rates[i]));
    }
    rg_stepper_step_name(t, name);
    return record_number(s->commands, plan, name, &n->step, sizeof n->step);
}

static void drop_commands(rg_step_slot *s)
{
    rg_commands_destroy(s->commands);
    s->commands = NULL;
}

/* Runs a plan for a whole batch. */
static rg_status start(rg_stepper *t, rg_plan *plan, rg_step_slot *s)
{
    RG_TRY(rg_commands_create(t->queue, &s->commands));
    RG_TRY(record_numbers(t, plan, s));
    RG_TRY(rg_stepper_record_part(t, plan, s, 0, NULL));
    return rg_commands_commit(s->commands);
}

/* Records micro-batches, and what sums their gradients over all ranks. */
static rg_status record_parts(rg_stepper *t, rg_step_slot *s)
{
    if (t->sync != NULL) {
        RG_TRY(rg_sync_run(t, s));
        return rg_stepper_is_joint(t) ? rg_stepper_sum_recorded(t, s) : RG_OK;
    }
    const int32_t last = s->parts_count - rg_stepper_is_joint(t);
    for (int32_t i = 0; i < last; i++) {
        if (s->parts[i].count > 0)
            RG_TRY(rg_stepper_record_part(t, t->micro->gradient, s, i, NULL));
        RG_TRY(rg_micro_begin(t, s->commands, &s->parts[i], i));
        for (size_t k = 0; k < t->micro->bucket_count; k++)
            RG_TRY(rg_micro_add(t, s->commands, &s->parts[i], i, k));
        rg_micro_end(t, i);
    }
    return rg_stepper_is_joint(t) ? rg_stepper_run_last(t, s) : RG_OK;
}

/* Runs micro-batches and sums their gradients, then the optimizer. */
static rg_status start_micro(rg_stepper *t, rg_plan *update, rg_step_slot *s)
{
    RG_TRY(rg_commands_create(t->queue, &s->commands));
    RG_TRY(record_parts(t, s));
    if (rg_stepper_is_joint(t)) {
        drop_commands(s);
        RG_TRY(rg_stepper_reduce(t, s));
        RG_TRY(rg_commands_create(t->queue, &s->commands));
    }
    /* the next batch has its own, but a checkpoint must not tell which micro-batch was the last */
    RG_TRY(record_dropout_step(t, s, t->micro->gradient, &s->numbers.batch));
    RG_TRY(record_numbers(t, update, s));
    RG_TRY(rg_plan_encode(update, s->commands, rg_micro_sums(t->micro)));
    return rg_commands_commit(s->commands);
}

/* Waits for the slot's batch, if there is one. */
static rg_status collect(rg_stepper *t, rg_step_slot *s, rg_outcome *outcome)
{
    *outcome = (rg_outcome){ 0 };
    if (s->commands == NULL)
        return RG_OK;
    const rg_status status = rg_commands_wait(s->commands);
    drop_commands(s);
    RG_TRY(status);
    *outcome = rg_slot_outcome(t, s);
    return RG_OK;
}

static rg_step_share share_of(const rg_stepper *t)
{
    const int64_t batch = t->batches % t->options.accumulate;
    return batch == t->options.accumulate - 1 ? RG_STEP_SHARE_LAST
           : batch == 0                       ? RG_STEP_SHARE_FIRST
                                              : RG_STEP_SHARE_MIDDLE;
}

/* Rates of patterns follow the schedule as the rate of all does. */
static void fill_rates(const rg_stepper *t, double rate, rg_step_numbers *n)
{
    const rg_stepper_options *o = &t->options;
    for (int32_t i = 0; i <= rg_rates_count(o->rates); i++) {
        const double own = i == 0 ? rate : rate * (rg_rates_at(o->rates, i) / o->base_rate);
        n->rates64[i] = own;
        n->rates[i] = (float)own;
    }
}

rg_status rg_stepper_step(rg_stepper *t, const rg_step_data *data, int64_t count, double rate,
                          rg_outcome *outcome)
{
    rg_step_slot *s = &t->slots[t->batches % RG_STEP_SLOTS];
    RG_CHECK(count > 0, RG_INVALID_ARGUMENT, "the batch has no images");
    RG_TRY(collect(t, s, outcome));
    const rg_step_share which = share_of(t);
    RG_TRY(rg_slot_fit(t, s, count, t->micro != NULL));
    RG_TRY(rg_slot_write(t, s, data));
    s->numbers = (rg_step_numbers){ .step = t->steps + 1, .batch = t->batches };
    fill_rates(t, rate, &s->numbers);
    const rg_status status =
        t->micro != NULL ? start_micro(t, t->plans[which], s) : start(t, t->plans[which], s);
    if (status != RG_OK) {
        drop_commands(s);
        if (t->ranks > 1)
            rg_stepper_give_up(t);
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

rg_status rg_stepper_evaluate(rg_stepper *t, const rg_step_data *data, int64_t count,
                              float *answers, rg_outcome *outcome)
{
    rg_step_slot *s = &t->evaluation;
    RG_CHECK(count > 0, RG_INVALID_ARGUMENT, "the batch has no images");
    RG_TRY(rg_slot_fit(t, s, count, false));
    RG_TRY(rg_slot_write(t, s, data));
    const rg_status status = start(t, t->use, s);
    if (status != RG_OK) {
        drop_commands(s);
        return status;
    }
    RG_TRY(collect(t, s, outcome));
    const rg_scored scored = rg_slot_scored(t, s);
    for (int64_t i = 0; answers != NULL && i < count; i++)
        answers += rg_scored_answers(&scored, i, answers);
    return RG_OK;
}

int64_t rg_stepper_use_batch(const rg_stepper *t)
{
    enum { LARGEST_BATCH = 256, LARGEST_BYTES = 64000000 };
    const rg_network_desc *n = &t->options.network;
    int64_t elements = n->height * n->width * n->channels, batch = LARGEST_BATCH;
    for (size_t i = 0; i < t->used.layers_count; i++) {
        const int64_t count = rg_shape_count(&t->used.layers[i].desc);
        elements = count > elements ? count : elements;
    }
    while (batch > 1 && batch * elements > LARGEST_BYTES / (int64_t)rg_dtype_size(n->dtype))
        batch /= 2;
    return batch;
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
    t->rank = options->use_only ? 0 : rg_group_rank(options->group);
    t->ranks = options->use_only ? 1 : rg_group_size(options->group);
    if (options->micro_batches == 0 || options->use_only)
        t->options.micro_batches = 1;
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
        rg_slot_release(t, &t->slots[i]);
    }
    rg_slot_release(t, &t->evaluation);
    for (int i = 0; i < RG_STEP_SHARES; i++)
        rg_plan_destroy(t->plans[i]);
    rg_plan_destroy(t->use);
    rg_nccl_destroy(t->nccl);
    rg_sync_destroy(t);
    rg_micro_destroy(t->micro);
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
    if (t->options.use_only)
        return t->use;
    return t->micro != NULL ? t->micro->gradient : t->plans[RG_STEP_SHARE_LAST];
}

/* Parameters of the optimizer's plan, then those that only the other one has. */
rg_status rg_stepper_parameter(rg_stepper *t, int32_t index, const char **name, rg_tensor **tensor)
{
    rg_plan *first = t->micro != NULL ? t->plans[RG_STEP_SHARE_LAST] : rg_stepper_plan(t);
    const int32_t count = rg_plan_parameters(first);
    *name = NULL;
    if (index < count) {
        *name = rg_plan_parameter_name(first, index);
        return rg_plan_parameter(first, *name, tensor);
    }
    index -= count;
    for (int32_t i = 0; t->micro != NULL && i < rg_plan_parameters(t->micro->gradient); i++) {
        const char *own = rg_plan_parameter_name(t->micro->gradient, i);
        if (rg_plan_parameter(first, own, tensor) != RG_OK && index-- == 0) {
            *name = own;
            return rg_plan_parameter(t->micro->gradient, own, tensor);
        }
    }
    return RG_OK;
}

bool rg_stepper_find(rg_stepper *t, const char *name, rg_tensor **tensor)
{
    return rg_plan_parameter(rg_stepper_plan(t), name, tensor) == RG_OK ||
           (t->micro != NULL &&
            rg_plan_parameter(t->plans[RG_STEP_SHARE_LAST], name, tensor) == RG_OK);
}
