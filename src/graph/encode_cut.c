/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs that are interrupted while they are recorded, so that what some steps have made can be used
 * while later ones run. */
#include "graph/plan.h"

#include "core/private_api.h"

rg_status rg_layout_encode_cut(const rg_plan *plan, const rg_layout_plan *layout,
                               rg_commands *commands, const rg_stand_ins *stand_ins)
{
    const rg_plan_cuts *cuts = plan->cuts;
    const int32_t steps = layout->sequence.steps_count;
    rg_stand_ins range = *stand_ins;
    for (int32_t i = 0; i <= cuts->count; i++) {
        const int32_t step = i < cuts->count ? cuts->steps[i] : steps - 1;
        range.end = layout->ends[step];
        if (range.end > range.begin)
            RG_TRY(rg_commands_repeat(commands, layout->recorded, &range));
        range.begin = range.end;
        if (i < cuts->count)
            cuts->reached(cuts->context, i, commands);
    }
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_plan_encode_cut(rg_plan *plan, rg_commands *commands,
                                            rg_tensor *const sources[], const rg_plan_cuts *cuts)
{
    plan->cuts = cuts;
    const rg_status status = rg_plan_encode(plan, commands, sources);
    plan->cuts = NULL;
    for (int32_t i = 0; i < cuts->count && status == RG_OK && plan->current->replay != NULL; i++)
        cuts->reached(cuts->context, i, commands);
    return status;
}

rg_status rg_layout_encode_piece(const rg_plan *plan, const rg_layout_plan *layout,
                                 rg_commands *commands, const rg_stand_ins *stand_ins)
{
    const rg_plan_piece *p = plan->piece;
    const int32_t last = p->last >= 0 ? p->last : layout->sequence.steps_count - 1;
    rg_stand_ins range = *stand_ins;
    range.begin = p->after >= 0 ? layout->ends[p->after] : 0;
    range.end = layout->ends[last];
    return range.end > range.begin ? rg_commands_repeat(commands, layout->recorded, &range) : RG_OK;
}

RG_PRIVATE_API rg_status rg_plan_encode_piece(rg_plan *plan, rg_commands *commands,
                                              rg_tensor *const sources[],
                                              const rg_plan_piece *piece)
{
    plan->piece = piece;
    const rg_status status = rg_plan_encode(plan, commands, sources);
    plan->piece = NULL;
    return status;
}

RG_PRIVATE_API rg_status rg_plan_result_step(const rg_plan *plan, const char *name, int32_t *step)
{
    const rg_value *value = rg_names_find(&plan->graph->results_by_name, name);
    RG_CHECK(value != NULL, RG_INVALID_ARGUMENT, "the plan has no result '%s'", name);
    *step = plan->current->sequence.slots[value->id].made;
    return RG_OK;
}
