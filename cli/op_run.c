/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One run of one op: names of tensors, and the order of forward pass and gradient. */
#include "cli/op_run.h"
#include "cli/arguments.h"
#include "core/shape.h"
#include "operators/operator_mps.h"

#include <stdio.h>

int rg_op_run_begin(rg_op_run *run, const char *called)
{
    *run = (rg_op_run){ .called = called };
    if (rg_op_find(called, &run->op, &run->name) != RG_OK) {
        rg_operator_unknown(called);
        const char *text = rg_error_text();
        const bool asks = text[0] != 0 && text[strlen(text) - 1] == '?';
        return rg_wrong("%s%s", text, asks ? "" : "; see retrograde op --list");
    }
    memcpy(run->desc, run->op->desc.defaults, run->op->desc.size);
    if (run->name == NULL)
        return 0;
    run->gradient = run->name->gradient;
    if (rg_fields_parse(&run->op->desc, called, run->desc, run->name->fields) != RG_OK)
        return rg_failed();
    rg_op_name_follow(run->op, run->name, 0, run->desc);
    return 0;
}

static void destroy_all(rg_tensor *const tensors[], int count)
{
    for (int i = 0; i < count; i++)
        rg_tensor_destroy(tensors[i]);
}

void rg_op_run_end(rg_op_run *run)
{
    destroy_all(run->x, RG_MAX_INPUTS);
    destroy_all(run->y, RG_MAX_OUTPUTS);
    destroy_all(run->dy, RG_MAX_OUTPUTS);
    destroy_all(run->dx, RG_MAX_INPUTS);
    rg_state_destroy(run->state);
    rg_kernel_destroy(run->kernel);
    rg_commands_destroy(run->commands);
    rg_queue_destroy(run->queue);
    rg_device_destroy(run->device);
}

/* ---- names ---- */

/* The op's own name for a tensor that MPS or ONNX call `typed`: from "dY=dy Y=y dX=dx". */
static void own_name(const char *tensors, const char *typed, char *own, size_t capacity)
{
    snprintf(own, capacity, "%s", typed);
    const size_t length = strlen(typed);
    for (const char *at = tensors; *at != 0; at += strspn(at, " ")) {
        const size_t size = strcspn(at, " ");
        if (size > length && at[length] == '=' && memcmp(at, typed, length) == 0) {
            snprintf(own, capacity, "%.*s", (int)(size - length - 1), at + length + 1);
            return;
        }
        at += size;
    }
}

const char *rg_op_run_shown(const rg_op_run *run, const char *prefix, const char *name,
                            char shown[RG_SHOWN_NAME])
{
    const int length = snprintf(shown, RG_SHOWN_NAME, "%s%s", prefix, name);
    const char *at = rg_op_name_tensors(run->op, run->name, run->desc);
    while (*at != 0) {
        const int typed = (int)strcspn(at, "="), size = (int)strcspn(at, " ");
        if (size - typed - 1 == length && memcmp(at + typed + 1, shown, (size_t)length) == 0) {
            snprintf(shown, RG_SHOWN_NAME, "%.*s", typed, at);
            break;
        }
        at += size;
        at += strspn(at, " ");
    }
    return shown;
}

static bool find_name(const char *const names[], int32_t count, const char *name, int32_t *index)
{
    for (*index = 0; *index < count; (*index)++) {
        if (strcmp(names[*index], name) == 0)
            return true;
    }
    return false;
}

static bool find_operand(const rg_op_run *run, const char *own, rg_operand *operand)
{
    const rg_op *op = run->op;
    const bool is_gradient = own[0] == 'd' && run->gradient;
    if (find_name(rg_op_input_names(op, run->desc), run->inputs, own, &operand->index))
        operand->role = RG_ROLE_X;
    else if (find_name(rg_op_output_names(op, run->desc), run->outputs, own, &operand->index))
        operand->role = RG_ROLE_Y;
    else if (is_gradient &&
             find_name(rg_op_output_names(op, run->desc), run->gradients, own + 1, &operand->index))
        operand->role = RG_ROLE_DY;
    else if (is_gradient &&
             find_name(rg_op_input_names(op, run->desc), run->inputs, own + 1, &operand->index))
        operand->role = RG_ROLE_DX;
    else
        return false;
    return true;
}

int rg_op_run_operand(const rg_op_run *run, const char *text, bool is_result, rg_operand *operand)
{
    enum { NAME = 64 };
    char typed[NAME], own[NAME];
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == 0 || equals - text >= NAME)
        return rg_wrong("'%s' is not of the form NAME=FILE", text);
    snprintf(typed, sizeof typed, "%.*s", (int)(equals - text), text);
    own_name(rg_op_name_tensors(run->op, run->name, run->desc), typed, own, sizeof own);
    *operand = (rg_operand){ .name = text, .path = equals + 1 };
    if (is_result && strncmp(own, "state.", 6) == 0) {
        operand->role = RG_ROLE_STATE;
        operand->name = text + 6;
        return 0;
    }
    if (!find_operand(run, own, operand))
        return rg_wrong("%s has no tensor '%s'; see retrograde op %s --help", run->called, typed,
                        run->called);
    const rg_role role = operand->role;
    const bool written = role == RG_ROLE_DX || (role == RG_ROLE_Y && !run->gradient);
    if (!is_result && written)
        return rg_wrong("%s: %s is a result; use -o %s", run->called, typed, text);
    if (is_result && !written && role != RG_ROLE_Y)
        return rg_wrong("%s: %s is not a result; omit -o", run->called, typed);
    return 0;
}

/* ---- running ---- */

static int check_given(const rg_op_run *run, const char *prefix, const char *const names[],
                       rg_tensor *const tensors[], int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        char shown[RG_SHOWN_NAME];
        const bool optional = prefix[0] == 'd' && run->op->optional_dy >> i & 1;
        if (tensors[i] == NULL && !optional)
            return rg_wrong("%s: %s is missing; add it as NAME=FILE", run->called,
                            rg_op_run_shown(run, prefix, names[i], shown));
    }
    return 0;
}

/* MPS's matrices and images have a fixed number of dimensions. */
static int check_rank(const rg_op_run *run)
{
    const rg_op_name *name = run->name;
    if (name == NULL || name->rank_high == 0 || (run->gradient && run->dy[0] == NULL))
        return 0;
    rg_tensor_desc first;
    if (rg_tensor_get_desc(run->gradient ? run->dy[0] : run->x[0], &first) != RG_OK)
        return rg_failed();
    if (first.rank >= name->rank_low && first.rank <= name->rank_high)
        return 0;
    char shown[RG_SHOWN_NAME];
    rg_op_run_shown(run, run->gradient ? "d" : "",
                    run->gradient ? rg_op_output_names(run->op, run->desc)[0]
                                  : rg_op_input_names(run->op, run->desc)[0],
                    shown);
    rg_fail(RG_INVALID_ARGUMENT, "%s: %s has rank %d, but must have rank %d or %d", run->called,
            shown, first.rank, name->rank_low, name->rank_high);
    return rg_failed();
}

static bool wants(const rg_op_run *run, rg_role role, int32_t index)
{
    for (int i = 0; i < run->result_count; i++) {
        if (run->results[i].role == role && run->results[i].index == index)
            return true;
    }
    return false;
}

/* Whether a gradient must run the forward pass: for an output or a state that it reads or that is
 * to be written. */
static bool needs_forward(const rg_op_run *run, const char **reason)
{
    const uint32_t reads = run->op->reads(run->desc);
    for (int32_t i = 0; i < run->outputs; i++) {
        *reason = rg_op_output_names(run->op, run->desc)[i];
        const bool read = reads & (uint32_t)RG_READS_Y << i;
        if (run->y[i] == NULL && (read || wants(run, RG_ROLE_Y, i)))
            return true;
    }
    *reason = "the state";
    return reads & RG_READS_STATE || wants(run, RG_ROLE_STATE, 0);
}

static int check_forward_given(const rg_op_run *run, const char *reason)
{
    char needed[RG_SHOWN_NAME];
    for (int32_t i = 0; i < run->inputs; i++) {
        if (run->x[i] == NULL)
            return rg_wrong("%s: the gradient needs %s; add it, or add %s to compute it",
                            run->called, rg_op_run_shown(run, "", reason, needed),
                            rg_op_input_names(run->op, run->desc)[i]);
    }
    return 0;
}

static rg_status record_forward(rg_op_run *run)
{
    rg_tensor *made[RG_MAX_OUTPUTS] = { NULL };
    RG_TRY(
        rg_kernel_forward_alloc(run->kernel, run->commands, 1, run->x, false, made, &run->state));
    for (int32_t i = 0; i < run->outputs; i++) {
        if (run->y[i] == NULL)
            run->y[i] = made[i];
        else
            rg_tensor_destroy(made[i]); /* given: the gradient reads that one */
    }
    return RG_OK;
}

static uint64_t wanted_of(const rg_op_run *run)
{
    uint64_t wanted = 0;
    for (int32_t i = 0; i < run->inputs; i++)
        wanted |= (uint64_t)wants(run, RG_ROLE_DX, i) << i;
    return wanted;
}

/* Operands that the gradients read: which ones depends on what is wanted. */
static int check_operands(const rg_op_run *run)
{
    const uint32_t reads = rg_gradient_reads(run->op, run->desc, wanted_of(run));
    for (int32_t i = 0; i < run->inputs && run->op == &rg_op_arithmetic; i++) {
        char shown[RG_SHOWN_NAME];
        if (reads >> i & 1 && run->x[i] == NULL)
            return rg_wrong(
                "%s: the gradient reads %s; add it as NAME=FILE", run->called,
                rg_op_run_shown(run, "", rg_op_input_names(run->op, run->desc)[i], shown));
    }
    return 0;
}

static rg_status record(rg_op_run *run, bool forward)
{
    RG_TRY(rg_commands_create(run->queue, &run->commands));
    if (forward)
        RG_TRY(record_forward(run));
    if (run->gradient)
        RG_TRY(rg_kernel_gradient_alloc(run->kernel, run->commands, 1, run->dy, run->x, run->y,
                                        run->state != NULL ? &run->state : NULL, wanted_of(run),
                                        false, run->dx));
    RG_TRY(rg_commands_commit(run->commands));
    return rg_commands_wait(run->commands);
}

int rg_op_run_run(rg_op_run *run)
{
    const rg_op *op = run->op;
    const char *reason = "";
    bool forward = !run->gradient;
    int status =
        run->gradient
            ? check_given(run, "d", rg_op_output_names(op, run->desc), run->dy, run->gradients)
            : check_given(run, "", rg_op_input_names(op, run->desc), run->x, run->inputs);
    if (status == 0)
        status = check_rank(run);
    if (status == 0 && run->gradient && needs_forward(run, &reason)) {
        forward = true;
        status = check_forward_given(run, reason);
    }
    if (status == 0 && run->gradient && !forward)
        status = check_operands(run);
    if (status == 0 && run->gradient && !forward &&
        rg_gradient_complete(op, run->desc, run->dy, wanted_of(run), run->x) != RG_OK)
        status = rg_failed();
    if (status != 0)
        return status;
    return record(run, forward) == RG_OK ? 0 : rg_failed();
}
