/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* How long each step of a plan takes, one by one. */
#include "core/clock.h"
#include "graph/plan.h"

#include <math.h>

static rg_status time_step(const rg_layout_plan *layout, rg_queue *queue, const rg_stand_ins *range,
                           double *least)
{
    rg_commands *commands;
    RG_TRY(rg_commands_create(queue, &commands));
    rg_status status = rg_commands_repeat(commands, layout->recorded, range);
    const double began = rg_seconds();
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK)
        status = rg_commands_wait(commands);
    *least = fmin(*least, 1e3 * (rg_seconds() - began));
    rg_commands_destroy(commands);
    return status;
}

static rg_status time_steps(const rg_plan *plan, rg_queue *queue, rg_tensor *const sources[],
                            double milliseconds[])
{
    const rg_layout_plan *layout = plan->current;
    const int32_t count = plan->sources_count;
    rg_tensor **const read = plan->buffers.read;
    for (int32_t i = 0; i < count; i++) /* copies are those of the run before */
        read[i] = rg_layout_reads(plan, layout, sources[i], i) ? sources[i] : layout->copies[i];
    rg_stand_ins range = { layout->stand_ins, read, count, 0, 0, true };
    for (int32_t i = 0; i < layout->sequence.steps_count; i++) {
        range.end = layout->ends[i];
        if (range.end > range.begin)
            RG_TRY(time_step(layout, queue, &range, &milliseconds[i]));
        else
            milliseconds[i] = 0; /* a view, or an update that runs as part of a batch */
        range.begin = range.end;
    }
    return RG_OK;
}

rg_status rg_plan_time(rg_plan *plan, rg_queue *queue, rg_tensor *const sources[], int32_t runs,
                       double milliseconds[])
{
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK_NOT_NULL(queue);
    RG_CHECK_NOT_NULL(milliseconds);
    RG_CHECK(runs > 0, RG_INVALID_ARGUMENT,
             "rg_plan_time: the number of runs must be at least 1, not %d", runs);
    rg_commands *commands;
    RG_TRY(rg_commands_create(queue, &commands)); /* a whole run checks the sources and warms up */
    rg_status status = rg_plan_encode(plan, commands, sources);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK)
        status = rg_commands_wait(commands);
    rg_commands_destroy(commands);
    RG_TRY(status);
    for (int32_t i = 0; i < plan->current->sequence.steps_count; i++)
        milliseconds[i] = INFINITY;
    for (int32_t run = 0; run < runs; run++)
        RG_TRY(time_steps(plan, queue, sources, milliseconds));
    return RG_OK;
}
