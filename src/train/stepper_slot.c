/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slots of a stepper: the memory of a batch that is running, and its outcome. */
#include "train/scores.h"
#include "train/stepper_parts.h"

#include "core/memory.h"
#include "runtime/objects.h"

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- memory ---- */

static size_t image_bytes(const rg_stepper *t)
{
    const rg_network_desc *n = &t->options.network;
    return (size_t)(n->height * n->width * n->channels) * rg_dtype_size(n->dtype);
}

static size_t label_bytes(const rg_stepper *t, int64_t images)
{
    return (size_t)(images * rg_network_targets(&t->options.network)) *
           rg_dtype_size(t->used.label_desc.dtype);
}

/* Of what outcomes are computed from: i32 or f32 (see rg_scored). */
static size_t answer_bytes(const rg_stepper *t, int64_t images)
{
    return (size_t)(images * rg_network_targets(&t->options.network)) * sizeof(float);
}

static size_t output_bytes(const rg_stepper *t, int64_t images)
{
    const rg_network_desc *n = &t->options.network;
    return (size_t)(images * rg_network_outputs(n)) * rg_dtype_size(n->dtype);
}

/* Where the logits of image `first` go. */
static char *outputs_at(const rg_stepper *t, const rg_step_slot *s, int64_t first)
{
    return s->results + s->parts_count * RG_STEP_LOSS_BYTES + output_bytes(t, first);
}

static size_t results_bytes(const rg_stepper *t, const rg_step_slot *s)
{
    return (size_t)s->parts_count * RG_STEP_LOSS_BYTES + output_bytes(t, s->count);
}

void rg_slot_release(rg_stepper *t, rg_step_slot *s)
{
    rg_commands_destroy(s->commands);
    for (int32_t i = 0; i < s->parts_count && s->parts != NULL; i++) {
        rg_tensor_destroy(s->parts[i].images);
        rg_tensor_destroy(s->parts[i].labels);
    }
    rg_release(allocator, s->parts, (size_t)s->parts_count * sizeof *s->parts);
    rg_release(allocator, s->outcomes, (size_t)t->options.micro_batches * sizeof *s->outcomes);
    rg_release(allocator, s->answers, answer_bytes(t, s->count));
    rg_host_release(t->device, s->results, results_bytes(t, s));
    *s = (rg_step_slot){ 0 };
}

static rg_status make_part(rg_stepper *t, rg_step_part *part)
{
    const rg_network_desc *n = &t->options.network;
    const int64_t dims[] = { part->count, n->height, n->width, n->channels };
    int64_t label_dims[RG_MAX_RANK];
    memcpy(label_dims, t->used.label_desc.dims, sizeof label_dims);
    label_dims[0] = part->count;
    const rg_tensor_desc images = rg_tensor_desc_dense(n->dtype, 4, dims);
    const rg_tensor_desc labels =
        rg_tensor_desc_dense(t->used.label_desc.dtype, t->used.label_desc.rank, label_dims);
    if (part->count == 0)
        return RG_OK;
    RG_TRY(rg_tensor_create(t->device, &images, &part->images));
    return rg_tensor_create(t->device, &labels, &part->labels);
}

/* Images of the whole batch, of which this rank has some, for all parts or for one. */
rg_status rg_slot_fit(rg_stepper *t, rg_step_slot *s, int64_t whole, bool is_cut)
{
    const int32_t count = is_cut ? t->options.micro_batches / t->ranks : 1;
    const int64_t first_part = is_cut ? (int64_t)count * t->rank : 0;
    void *memory;
    if (s->whole == whole && s->results != NULL)
        return RG_OK;
    rg_slot_release(t, s);
    RG_TRY(rg_allocate_array((size_t)count, sizeof *s->parts, &s->parts));
    s->parts_count = count;
    if (is_cut)
        RG_TRY(
            rg_allocate_array((size_t)t->options.micro_batches, sizeof *s->outcomes, &s->outcomes));
    for (int32_t i = 0; i < count; i++) {
        rg_step_part *part = &s->parts[i];
        rg_step_range range = { 0, whole };
        if (is_cut)
            range = rg_stepper_range(t, whole, first_part + i);
        *part = (rg_step_part){ .first = s->count, .count = range.end - range.first };
        part->weight64 = (double)part->count / (double)whole;
        part->weight = (float)part->weight64;
        s->count += part->count;
        RG_TRY(make_part(t, part));
    }
    RG_TRY(rg_allocate(allocator, answer_bytes(t, s->count), &memory));
    s->answers = memory;
    RG_TRY(rg_host_allocate(t->device, results_bytes(t, s), &memory));
    s->results = memory;
    s->whole = whole;
    return RG_OK;
}

rg_status rg_slot_write(rg_stepper *t, rg_step_slot *s, const rg_step_data *data)
{
    const char *images = data->images, *labels = data->labels;
    const bool classes = t->used.label_desc.dtype == RG_I32;
    for (int32_t i = 0; i < s->parts_count; i++) {
        const rg_step_part *part = &s->parts[i];
        const size_t first = (size_t)part->first, count = (size_t)part->count;
        if (count == 0)
            continue;
        RG_TRY(rg_tensor_write(part->images, images + first * image_bytes(t),
                               count * image_bytes(t), RG_LAYOUT_SAME));
        RG_TRY(rg_tensor_write(part->labels, labels + label_bytes(t, part->first),
                               label_bytes(t, part->count), RG_LAYOUT_SAME));
    }
    if (s->count > 0)
        memcpy(s->answers, classes ? data->labels : data->exact, answer_bytes(t, s->count));
    s->gathered = false;
    return RG_OK;
}

rg_status rg_slot_read(rg_stepper *t, rg_step_slot *s, rg_plan *plan, int32_t index)
{
    const rg_step_part *part = &s->parts[index];
    rg_tensor *logits, *loss;
    RG_TRY(rg_plan_result(plan, "logits", &logits));
    RG_TRY(rg_plan_result(plan, "loss", &loss));
    RG_TRY(rg_commands_read(s->commands, logits, outputs_at(t, s, part->first),
                            output_bytes(t, part->count), RG_LAYOUT_SAME));
    return rg_commands_read(s->commands, loss, s->results + index * RG_STEP_LOSS_BYTES,
                            rg_dtype_size(t->options.network.dtype), RG_LAYOUT_SAME);
}

/* ---- the outcome ---- */

rg_scored rg_slot_scored(const rg_stepper *t, const rg_step_slot *s)
{
    return (rg_scored){ .network = &t->options.network,
                        .outputs = outputs_at(t, s, 0),
                        .targets = s->answers,
                        .overlaps = s == &t->evaluation ? t->overlaps : NULL };
}

/* The mean over a part. The device rounds it to the dtype of the network; for 16 bits it is
 * computed again from the logits, in double. */
static double part_loss(const rg_stepper *t, const rg_step_slot *s, int32_t index)
{
    const rg_dtype dtype = t->options.network.dtype;
    const rg_step_part *part = &s->parts[index];
    double sum = 0;
    if (rg_dtype_size(dtype) > 2)
        return rg_element_get(s->results + index * RG_STEP_LOSS_BYTES, dtype, 0);
    const rg_scored scored = rg_slot_scored(t, s);
    for (int64_t i = 0; i < part->count; i++)
        sum += rg_scored_loss(&scored, part->first + i);
    return sum / (double)part->count;
}

static rg_outcome part_outcome(const rg_stepper *t, const rg_step_slot *s, int32_t index)
{
    const rg_step_part *part = &s->parts[index];
    rg_outcome outcome = { .images = part->count };
    if (part->count == 0)
        return outcome;
    outcome.loss = part_loss(t, s, index);
    const rg_scored scored = rg_slot_scored(t, s);
    const bool classes = t->options.network.target == RG_TARGET_CLASS;
    for (int64_t i = part->first; i < part->first + part->count; i++) {
        const double score = rg_scored_score(&scored, i);
        outcome.score += score;
        outcome.weight += rg_scored_weight(&scored, i);
        outcome.right += classes && score > 0;
        outcome.top5 += classes && s == &t->evaluation && rg_scored_in_top5(&scored, i);
    }
    return outcome;
}

void rg_slot_outcomes(const rg_stepper *t, const rg_step_slot *s, rg_outcome *own)
{
    for (int32_t i = 0; i < s->parts_count; i++)
        own[i] = part_outcome(t, s, i);
}

/* Sums over micro-batches, in their order. */
static rg_outcome sum_outcomes(const rg_outcome *parts, int32_t count)
{
    rg_outcome sum = { 0 };
    for (int32_t i = 0; i < count; i++) {
        sum.images += parts[i].images;
        sum.right += parts[i].right;
        sum.score += parts[i].score;
        sum.weight += parts[i].weight;
        sum.loss += parts[i].loss * (double)parts[i].images;
    }
    sum.loss /= (double)sum.images;
    return sum;
}

rg_outcome rg_slot_outcome(const rg_stepper *t, rg_step_slot *s)
{
    if (s->outcomes == NULL)
        return part_outcome(t, s, 0);
    if (!s->gathered) /* this rank has all parts */
        rg_slot_outcomes(t, s, s->outcomes);
    return sum_outcomes(s->outcomes, t->options.micro_batches);
}
