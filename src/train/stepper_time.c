/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The time of each step of a stepper's plan. */
#include "train/stepper_parts.h"

#include "core/memory.h"
#include "core/shape.h"
#include "runtime/objects.h"

static const rg_allocator *const allocator = &rg_default_allocator;

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

rg_status rg_stepper_prepare_time(rg_stepper *t, int32_t *steps)
{
    rg_plan *plan = rg_stepper_plan(t);
    const rg_step_slot *s = rg_stepper_last_slot(t);
    RG_CHECK(s->parts != NULL && s->parts->images != NULL, RG_INVALID_STATE,
             "no batch has been trained yet");
    RG_TRY(rg_plan_prepare(plan,
                           (rg_tensor_desc[]){ s->parts->images->desc, s->parts->labels->desc }));
    *steps = rg_plan_steps(plan);
    return RG_OK;
}

rg_status rg_stepper_time(rg_stepper *t, double milliseconds[])
{
    enum { RUNS = 5 };
    rg_plan *plan = rg_stepper_plan(t);
    const rg_step_slot *s = rg_stepper_last_slot(t);
    size_t bytes;
    void *kept;
    RG_TRY(parameter_bytes(plan, &bytes));
    RG_TRY(rg_allocate(allocator, bytes, &kept));
    rg_status status = copy_parameters(plan, kept, false);
    if (status == RG_OK) {
        status = rg_plan_time(plan, t->queue, (rg_tensor *[]){ s->parts->images, s->parts->labels },
                              RUNS, milliseconds);
        const rg_status restored = copy_parameters(plan, kept, true);
        status = status == RG_OK ? restored : status;
    }
    rg_release(allocator, kept, bytes);
    return status;
}
