/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Choosing a strategy, and listing those of an op. */
#include "runtime/strategy.h"
#include "runtime/objects.h"

#include <string.h>

rg_choices *rg_device_choices(rg_device *device)
{
    return &device->choices;
}

static bool is_preferred(const rg_strategy *strategy, const rg_call *call, const void *request)
{
    return strategy->accepts(call, request) &&
           (strategy->prefers == NULL || strategy->prefers(call, request));
}

static const rg_strategy *choose(const rg_call *call, const rg_strategy *const list[],
                                 const void *request)
{
    const rg_choices *choices = &call->commands->queue->device->choices;
    for (int i = 0; list[i] != NULL; i++) {
        if (rg_choices_forces(choices, list[i]->name) && list[i]->accepts(call, request))
            return list[i];
    }
    while (!is_preferred(*list, call, request))
        list++;
    return *list;
}

rg_status rg_strategy_run(rg_call *call, const rg_strategy *const list[], const void *request)
{
    const rg_strategy *chosen = choose(call, list, request);
    rg_choices_note(&call->commands->queue->device->choices, chosen->name);
    return chosen->record(call, request);
}

/* ---- names ---- */

static int32_t add_name(const char *names[], int32_t count, const char *name)
{
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return count;
    }
    if (count < RG_MAX_STRATEGIES)
        names[count++] = name;
    return count;
}

/* Those that kernels for a GPU choose from at launch. */
static int32_t add_launched(const char *names[], int32_t count, const rg_kernel_table *kernels)
{
    if (kernels == NULL || kernels->cuda == NULL)
        return count;
    for (const rg_cuda_table *const *table = kernels->cuda; *table != NULL; table++) {
        const char *name;
        for (int32_t i = 0; (*table)->strategy != NULL && (name = (*table)->strategy(i)) != NULL;
             i++)
            count = add_name(names, count, name);
    }
    return count;
}

int32_t rg_strategy_names(const rg_op *op, const char *names[RG_MAX_STRATEGIES])
{
    int32_t count = 0;
    for (int k = 0; op->strategies != NULL && op->strategies[k] != NULL; k++) {
        for (int i = 0; op->strategies[k][i] != NULL; i++)
            count = add_name(names, count, op->strategies[k][i]->name);
    }
    count = add_launched(names, count, op->kernels);
    return add_launched(names, count, op->launches);
}
