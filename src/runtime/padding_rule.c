/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Padding policies of the caller's own. */
#include "runtime/objects.h"

/* Numbers that a descriptor can hold. */
static rg_status check_placement(const rg_op *op, const rg_placement *placement)
{
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "rows" : "columns";
        RG_CHECK(placement->output[i] >= 1 && placement->output[i] <= INT64_C(1) << 48,
                 RG_INVALID_ARGUMENT, "%s: a padding rule asks for %lld %s of the result", op->name,
                 (long long)placement->output[i], name);
        RG_CHECK(placement->before[i] >= INT32_MIN && placement->before[i] <= INT32_MAX,
                 RG_INVALID_ARGUMENT, "%s: a padding rule puts %lld %s before the image", op->name,
                 (long long)placement->before[i], name);
    }
    return RG_OK;
}

/* The rule is the caller's code, so the descriptor that it returns is validated again. */
static rg_status obey(const rg_op *op, void *desc, const rg_window *window, rg_placement *placement,
                      rg_padding_rule *rule, void *context)
{
    _Alignas(16) char changed[RG_MAX_DESC];
    const int32_t inputs = rg_op_inputs(op, desc), outputs = rg_op_outputs(op, desc);
    memcpy(changed, desc, op->desc.size);
    const rg_status status = rule(context, op->name, changed, window, placement);
    if (status != RG_OK)
        return rg_fail(status, "%s: its padding rule failed: %s", op->name, rg_status_name(status));
    RG_TRY(rg_fields_copy(&op->desc, op->name, changed, desc));
    RG_CHECK(rg_op_inputs(op, desc) == inputs && rg_op_outputs(op, desc) == outputs,
             RG_INVALID_ARGUMENT,
             "%s: a padding rule must not change the number of inputs or outputs", op->name);
    return check_placement(op, placement);
}

rg_status rg_op_place(const rg_op *op, void *desc, const rg_tensor_desc x[], rg_padding_rule *rule,
                      void *context)
{
    rg_window window;
    rg_placement at;
    RG_CHECK(op->windows != NULL, RG_UNSUPPORTED, "%s has no windows that a padding rule places",
             op->name);
    RG_TRY(op->windows->place(desc, x, &window, &at));
    if (rule != NULL)
        RG_TRY(obey(op, desc, &window, &at, rule, context));
    rg_padding padding = { .policy = RG_PADDING_EXPLICIT,
                           .top = (int32_t)at.before[0],
                           .left = (int32_t)at.before[1] };
    op->windows->set(desc, &padding, at.output);
    RG_TRY(op->windows->place(desc, x, &window, &at)); /* how far the last windows reach */
    padding.bottom = (int32_t)at.after[0];
    padding.right = (int32_t)at.after[1];
    op->windows->set(desc, &padding, at.output);
    return op->check != NULL ? op->check(desc) : RG_OK;
}

rg_status rg_kernel_place(const rg_kernel *kernel, const rg_tensor_desc x[], int32_t count,
                          rg_padding_rule *rule, void *context, rg_kernel **placed)
{
    _Alignas(16) char desc[RG_MAX_DESC];
    RG_CHECK_NOT_NULL(placed);
    *placed = NULL;
    RG_CHECK_NOT_NULL(kernel);
    RG_CHECK_NOT_NULL(x);
    const rg_op *op = kernel->op;
    RG_CHECK(count == rg_op_inputs(op, kernel->desc), RG_INVALID_ARGUMENT,
             "rg_kernel_place: %s has %d inputs, but %d shapes were given", op->name,
             rg_op_inputs(op, kernel->desc), count);
    for (int32_t i = 0; i < count; i++)
        RG_TRY(rg_shape_check(&x[i], rg_op_input_names(op, kernel->desc)[i], NULL));
    memcpy(desc, kernel->desc, op->desc.size);
    RG_TRY(rg_op_place(op, desc, x, rule, context));
    return rg_kernel_create(kernel->device, op, desc, placed);
}
