/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Encoding: the layout for the sources that are given, and a run of it. */
#include "graph/plan.h"

#include "core/shape.h"

#include <inttypes.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* How the recorded commands see a source: dense, if need be in a copy, where they are replayed. */
static rg_tensor_desc source_desc(const rg_plan *plan, const rg_tensor_desc *d)
{
    rg_tensor_desc desc = *d;
    rg_shape_normalize(&desc);
    return rg_plan_may_replay(plan) ? rg_tensor_desc_dense(d->dtype, d->rank, d->dims) : desc;
}

/* ---- inputs ---- */

rg_status rg_plan_reserve_inputs(rg_plan *plan, int64_t count)
{
    rg_input_buffers *b = &plan->buffers;
    RG_CHECK(count <= INT32_MAX, RG_UNSUPPORTED, "a run reads more than 2147483647 tensors");
    const size_t old = b->capacity, wanted = (size_t)count;
    if (wanted <= old)
        return RG_OK;
    rg_input_buffers larger = *b;
    larger.tensors = NULL;
    larger.descs = NULL;
    larger.alignments = NULL;
    larger.read = NULL;
    larger.capacity = wanted;
    rg_status status = rg_allocate_array(wanted, sizeof *b->tensors, &larger.tensors);
    if (status == RG_OK)
        status = rg_allocate_array(wanted, sizeof *b->descs, &larger.descs);
    if (status == RG_OK)
        status = rg_allocate_array(wanted, sizeof *b->alignments, &larger.alignments);
    if (status == RG_OK)
        status = rg_allocate_array(wanted, sizeof *b->read, &larger.read);
    if (status == RG_OK && old > 0) {
        memcpy(larger.tensors, b->tensors, old * sizeof *b->tensors);
        memcpy(larger.descs, b->descs, old * sizeof *b->descs);
        memcpy(larger.alignments, b->alignments, old * sizeof *b->alignments);
    }
    const rg_input_buffers dropped = status == RG_OK ? *b : larger;
    rg_release(allocator, dropped.tensors, dropped.capacity * sizeof *b->tensors);
    rg_release(allocator, dropped.descs, dropped.capacity * sizeof *b->descs);
    rg_release(allocator, dropped.alignments, dropped.capacity * sizeof *b->alignments);
    rg_release(allocator, dropped.read, dropped.capacity * sizeof *b->read);
    if (status == RG_OK)
        *b = larger;
    return status;
}

rg_status rg_plan_prepare_given(rg_plan *plan, const rg_tensor_desc sources[],
                                const rg_given_states *given, const char *who)
{
    rg_input_buffers *const b = &plan->buffers;
    RG_CHECK(sources != NULL || plan->sources_count == 0, RG_INVALID_ARGUMENT,
             "%s: sources is NULL", who);
    for (int32_t i = 0; i < plan->sources_count; i++) {
        RG_TRY(rg_shape_check(&sources[i], rg_plan_source_name(plan, i), NULL));
        b->descs[i] = source_desc(plan, &sources[i]);
        b->alignments[i] = 0;
    }
    RG_TRY(rg_plan_take_given(plan, NULL, given, who));
    return rg_plan_layout(plan, &plan->current);
}

rg_status rg_plan_check_input(const rg_plan *plan, const rg_commands *commands, const char *who,
                              const char *kind, const char *name, const rg_tensor *tensor)
{
    RG_TRY(rg_tensor_usable(tensor, commands, who, kind, name));
    for (const rg_layout_plan *l = plan->layouts; l != NULL; l = l->next)
        RG_CHECK(tensor->storage != l->storage, RG_INVALID_ARGUMENT,
                 "%s: the %s'%s' is a result of the same plan; copy it first", who, kind, name);
    for (int32_t v = 0; v < plan->slots_count; v++) {
        const int32_t p = plan->slots[v].parameter;
        RG_CHECK(
            p < 0 || plan->slots[v].made < 0 || tensor->storage != plan->parameters[p]->storage,
            RG_INVALID_ARGUMENT, "%s: the %s'%s' is the parameter '%s', which the run overwrites",
            who, kind, name, plan->slots[p].name);
    }
    return RG_OK;
}

static rg_status find_layout(rg_plan *plan, const rg_commands *commands, rg_tensor *const sources[],
                             const rg_given_states *given, const char *who)
{
    rg_input_buffers *const b = &plan->buffers;
    RG_CHECK(sources != NULL || plan->sources_count == 0, RG_INVALID_ARGUMENT,
             "%s: sources is NULL", who);
    const bool copies = rg_plan_may_replay(plan);
    for (int32_t i = 0; i < plan->sources_count; i++) {
        const char *name = rg_plan_source_name(plan, i);
        RG_CHECK(sources[i] != NULL, RG_INVALID_ARGUMENT, "%s: the source '%s' is NULL", who, name);
        RG_TRY(rg_plan_check_input(plan, commands, who, "source ", name, sources[i]));
        b->tensors[i] = sources[i];
        b->descs[i] = source_desc(plan, &sources[i]->desc);
        b->alignments[i] = copies ? 0 : rg_source_alignment(plan, sources[i]);
    }
    RG_TRY(rg_plan_take_given(plan, commands, given, who));
    return rg_plan_layout(plan, &plan->current);
}

/* Temporaries must have a read left for every step that reads them. */
static rg_status check_counts(const rg_plan *plan, rg_tensor *const sources[], const char *who)
{
    for (int32_t i = 0; i < plan->sources_count; i++) {
        uint64_t reads = 0; /* by all sources that are this tensor */
        if (sources[i]->commands == 0)
            continue;
        for (int32_t k = 0; k < plan->sources_count; k++)
            reads += sources[k] == sources[i] ? rg_plan_source_reads(plan, k) : 0;
        RG_CHECK(sources[i]->read_count >= reads, RG_INVALID_STATE,
                 "%s: the source '%s' is a temporary with a read count of %" PRIu64
                 ", and is read %" PRIu64 " times",
                 who, rg_plan_source_name(plan, i), sources[i]->read_count, reads);
    }
    return RG_OK;
}

/* Records that the next run has the next number, which is kept with the commands until they have
 * run. */
static rg_status record_run(rg_plan *plan, rg_commands *commands)
{
    if (plan->run_slot < 0)
        return RG_OK;
    rg_storage *keeper;
    int64_t *number = malloc(sizeof *number);
    RG_CHECK(number != NULL, RG_OUT_OF_MEMORY, "out of memory: the number of a run");
    *number = plan->runs;
    rg_status status = rg_storage_create(plan->device, 0, &keeper);
    if (status != RG_OK) {
        free(number);
        return status;
    }
    keeper->context = number;
    keeper->release = free;
    status = rg_submission_keep(commands->submission, keeper);
    rg_storage_release(keeper);
    if (status == RG_OK)
        status = rg_commands_write(commands, plan->parameters[plan->run_slot], number,
                                   sizeof *number, RG_LAYOUT_SAME);
    return status;
}

/* ---- public forms ---- */

rg_status rg_plan_encode_given(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[],
                               const rg_given_states *given, const char *who)
{
    RG_TRY(rg_commands_recording(commands, who));
    RG_CHECK(commands->queue->device == plan->device, RG_INVALID_ARGUMENT,
             "%s: the commands and the plan are on different devices (%s, %s)", who,
             commands->queue->device->name, plan->device->name);
    RG_TRY(rg_plan_wait_updates(plan));
    RG_TRY(find_layout(plan, commands, sources, given, who));
    RG_TRY(check_counts(plan, sources, who));
    RG_TRY(rg_plan_check_given_counts(plan, given, who));
    const rg_mark mark = rg_commands_mark(commands);
    rg_status status = record_run(plan, commands);
    if (status == RG_OK)
        status = rg_layout_encode(plan, plan->current, commands);
    if (status != RG_OK) {
        rg_commands_rewind(commands, mark);
        return status;
    }
    plan->runs++;
    for (int32_t i = 0; i < plan->sources_count; i++) {
        if (sources[i]->commands != 0)
            rg_tensor_add_read_count(&sources[i], 1, -(int64_t)rg_plan_source_reads(plan, i));
    }
    rg_plan_count_given(plan, given);
    return rg_plan_encode_updates(plan, commands);
}

/* For a plan that is given no states. */
static rg_status check_no_states(const rg_plan *plan, const char *who)
{
    RG_CHECK(plan != NULL, RG_INVALID_ARGUMENT, "%s: plan is NULL", who);
    RG_CHECK(plan->given_count == 0, RG_INVALID_ARGUMENT,
             "%s: the plan is given %d state%s, the first '%s': call %s_with_states", who,
             plan->given_count, plan->given_count == 1 ? "" : "s",
             rg_plan_source_state_name(plan, 0), who);
    return RG_OK;
}

static rg_status check_images(int64_t images, const char *who)
{
    RG_CHECK(images > 0 && images <= INT32_MAX, RG_INVALID_ARGUMENT,
             "%s: count must be between 1 and 2147483647, not %" PRId64, who, images);
    return RG_OK;
}

/* The lengths of both arrays, for `images` images. */
static rg_status check_lengths(const rg_plan *plan, int64_t images, int64_t sources, int64_t states,
                               const char *who)
{
    RG_CHECK(plan != NULL, RG_INVALID_ARGUMENT, "%s: plan is NULL", who);
    RG_TRY(check_images(images, who));
    RG_CHECK(sources == plan->sources_count * images, RG_INVALID_ARGUMENT,
             "%s: the plan needs %" PRId64 " sources, but %" PRId64 " were given", who,
             plan->sources_count * images, sources);
    RG_CHECK(states == plan->given_count * images, RG_INVALID_ARGUMENT,
             "%s: the plan needs %" PRId64 " states, but %" PRId64 " were given", who,
             plan->given_count * images, states);
    return RG_OK;
}

rg_status rg_plan_prepare(rg_plan *plan, const rg_tensor_desc sources[])
{
    RG_TRY(check_no_states(plan, __func__));
    return rg_plan_prepare_given(plan, sources, &(rg_given_states){ .images = 1 }, __func__);
}

rg_status rg_plan_prepare_with_states(rg_plan *plan, const rg_tensor_desc sources[],
                                      int64_t sources_count, rg_state *const states[],
                                      int64_t states_count)
{
    RG_TRY(check_lengths(plan, 1, sources_count, states_count, __func__));
    const rg_given_states given = { .states = states, .images = 1 };
    return rg_plan_prepare_given(plan, sources, &given, __func__);
}

rg_status rg_plan_encode(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[])
{
    RG_TRY(check_no_states(plan, __func__));
    return rg_plan_encode_given(plan, commands, sources, &(rg_given_states){ .images = 1 },
                                __func__);
}

rg_status rg_plan_encode_with_states(rg_plan *plan, rg_commands *commands,
                                     rg_tensor *const sources[], int64_t sources_count,
                                     rg_state *const states[], int64_t states_count)
{
    RG_TRY(check_lengths(plan, 1, sources_count, states_count, __func__));
    const rg_given_states given = { .states = states, .images = 1 };
    return rg_plan_encode_given(plan, commands, sources, &given, __func__);
}

rg_status rg_plan_encode_batch(rg_plan *plan, rg_commands *commands, int64_t count,
                               rg_tensor *const sources[])
{
    RG_TRY(check_no_states(plan, __func__));
    RG_TRY(check_images(count, __func__));
    return rg_plan_encode_images(plan, commands, count, sources, NULL, __func__);
}

rg_status rg_plan_encode_batch_with_states(rg_plan *plan, rg_commands *commands, int64_t count,
                                           rg_tensor *const sources[], int64_t sources_count,
                                           rg_state *const states[], int64_t states_count)
{
    RG_TRY(check_lengths(plan, count, sources_count, states_count, __func__));
    return rg_plan_encode_images(plan, commands, count, sources, states, __func__);
}
