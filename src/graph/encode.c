/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Encoding: the layout for the sources that are given, and a run of it. */
#include "graph/plan.h"

#include "core/shape.h"

#include <inttypes.h>
#include <stdlib.h>

/* How the recorded commands see a source: dense, if need be in a copy, where they are replayed. */
static rg_tensor_desc source_desc(const rg_plan *plan, const rg_tensor_desc *d)
{
    rg_tensor_desc desc = *d;
    rg_shape_normalize(&desc);
    return rg_plan_may_replay(plan) ? rg_tensor_desc_dense(d->dtype, d->rank, d->dims) : desc;
}

rg_status rg_plan_prepare(rg_plan *plan, const rg_tensor_desc sources[])
{
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK(sources != NULL || plan->sources_count == 0, RG_INVALID_ARGUMENT,
             "rg_plan_prepare: sources is NULL");
    rg_tensor_desc *const descs = plan->buffers.descs;
    for (int32_t i = 0; i < plan->sources_count; i++) {
        RG_TRY(rg_shape_check(&sources[i], rg_plan_source_name(plan, i), NULL));
        descs[i] = source_desc(plan, &sources[i]);
    }
    return rg_plan_layout(plan, descs, NULL, &plan->current);
}

/* A source must not lie in memory that the run writes. */
static rg_status check_source(const rg_plan *plan, const rg_commands *commands, int32_t index,
                              const rg_tensor *source)
{
    const char *name = rg_plan_source_name(plan, index);
    RG_CHECK(source != NULL, RG_INVALID_ARGUMENT, "rg_plan_encode: the source '%s' is NULL", name);
    RG_TRY(rg_tensor_usable(source, commands, "rg_plan_encode", "source ", name));
    for (const rg_layout_plan *l = plan->layouts; l != NULL; l = l->next)
        RG_CHECK(source->storage != l->storage, RG_INVALID_ARGUMENT,
                 "rg_plan_encode: the source '%s' is a result of the same plan; copy it first",
                 name);
    for (int32_t v = 0; v < plan->slots_count; v++) {
        const int32_t p = plan->slots[v].parameter;
        RG_CHECK(p < 0 || plan->slots[v].made < 0 ||
                     source->storage != plan->parameters[p]->storage,
                 RG_INVALID_ARGUMENT,
                 "rg_plan_encode: the source '%s' is the parameter '%s', which the run overwrites",
                 name, plan->slots[p].name);
    }
    return RG_OK;
}

static rg_status find_layout(rg_plan *plan, const rg_commands *commands, rg_tensor *const sources[])
{
    const int32_t count = plan->sources_count;
    rg_tensor_desc *const descs = plan->buffers.descs;
    size_t *const alignments = plan->buffers.alignments;
    RG_CHECK(sources != NULL || count == 0, RG_INVALID_ARGUMENT, "rg_plan_encode: sources is NULL");
    const bool copies = rg_plan_may_replay(plan);
    for (int32_t i = 0; i < count; i++) {
        RG_TRY(check_source(plan, commands, i, sources[i]));
        descs[i] = source_desc(plan, &sources[i]->desc);
        alignments[i] = copies ? 0 : rg_source_alignment(plan, sources[i]);
    }
    return rg_plan_layout(plan, descs, alignments, &plan->current);
}

/* Temporaries must have a read left for every step that reads them. */
static rg_status check_counts(const rg_plan *plan, rg_tensor *const sources[])
{
    for (int32_t i = 0; i < plan->sources_count; i++) {
        uint64_t reads = 0; /* by all sources that are this tensor */
        if (sources[i]->commands == 0)
            continue;
        for (int32_t k = 0; k < plan->sources_count; k++)
            reads += sources[k] == sources[i] ? rg_plan_source_reads(plan, k) : 0;
        RG_CHECK(sources[i]->read_count >= reads, RG_INVALID_STATE,
                 "rg_plan_encode: the source '%s' is a temporary with a read count of %" PRIu64
                 ", and is read %" PRIu64 " times",
                 rg_plan_source_name(plan, i), sources[i]->read_count, reads);
    }
    return RG_OK;
}

/* The number is kept with the commands until they have run. */
rg_status rg_plan_record_run(rg_plan *plan, rg_commands *commands)
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

rg_status rg_plan_encode(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[])
{
    RG_CHECK_NOT_NULL(plan);
    RG_TRY(rg_commands_recording(commands, __func__));
    RG_CHECK(commands->queue->device == plan->device, RG_INVALID_ARGUMENT,
             "rg_plan_encode: the commands and the plan are on different devices (%s, %s)",
             commands->queue->device->name, plan->device->name);
    RG_TRY(rg_plan_wait_updates(plan));
    RG_TRY(find_layout(plan, commands, sources));
    RG_TRY(check_counts(plan, sources));
    const rg_mark mark = rg_commands_mark(commands);
    rg_status status = rg_plan_record_run(plan, commands);
    if (status == RG_OK)
        status = rg_layout_encode(plan, plan->current, commands, sources);
    if (status != RG_OK) {
        rg_commands_rewind(commands, mark);
        return status;
    }
    plan->runs++;
    for (int32_t i = 0; i < plan->sources_count; i++) {
        if (sources[i]->commands != 0)
            rg_tensor_add_read_count(&sources[i], 1, -(int64_t)rg_plan_source_reads(plan, i));
    }
    return rg_plan_encode_updates(plan, commands);
}
