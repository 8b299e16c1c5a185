/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What `retrograde op --help` and `--list` say about an op, all from its description. */
#include "cli/op_onnx.h"
#include "cli/op_run.h"

#include <stdio.h>

static void print_tensor(const rg_op_run *run, const char *before, const char *prefix,
                         const char *name)
{
    char shown[RG_SHOWN_NAME];
    printf(" %s%s=FILE", before, rg_op_run_shown(run, prefix, name, shown));
}

static void print_forward_tensors(const rg_op_run *run)
{
    for (int32_t i = 0; i < run->inputs; i++)
        print_tensor(run, "", "", rg_op_input_names(run->op, run->desc)[i]);
    for (int32_t i = 0; i < run->outputs; i++)
        print_tensor(run, "-o ", "", rg_op_output_names(run->op, run->desc)[i]);
}

/* Whether the gradient cannot do without input i: it reads it, or nothing else gives its shape. */
static bool needs_input(const rg_op_run *run, int32_t i)
{
    const rg_op *op = run->op;
    const uint32_t reads = op->reads(run->desc);
    if (reads & ((uint32_t)RG_READS_X << i | RG_READS_STATE))
        return true;
    const char *name = rg_op_input_names(op, run->desc)[i];
    const bool follows = i >= 2 ? strcmp(name, "b") == 0 || strcmp(name, "beta") == 0
                                : run->inputs == 1 && reads & RG_READS_Y;
    return !follows;
}

static void print_gradient_tensors(const rg_op_run *run)
{
    const rg_op *op = run->op;
    const uint32_t reads = op->reads(run->desc);
    for (int32_t i = 0; i < run->gradients; i++) {
        if (!(op->optional_dy >> i & 1))
            print_tensor(run, "", "d", rg_op_output_names(op, run->desc)[i]);
    }
    for (int32_t i = 0; i < run->inputs; i++) {
        if (needs_input(run, i))
            print_tensor(run, "", "", rg_op_input_names(op, run->desc)[i]);
    }
    for (int32_t i = 0; i < run->outputs; i++) {
        if (reads & (uint32_t)RG_READS_Y << i)
            print_tensor(run, "", "", rg_op_output_names(op, run->desc)[i]);
    }
    for (int32_t i = 0; i < run->inputs; i++) {
        if (rg_op_differentiates(op, run->desc, i))
            print_tensor(run, "-o ", "d", rg_op_input_names(op, run->desc)[i]);
    }
}

static void print_usage(const rg_op_run *run)
{
    const bool both = run->name == NULL;
    if (both || !run->name->gradient) {
        printf("usage: retrograde op %s [--FIELD VALUE]...", run->called);
        print_forward_tensors(run);
        printf("\n");
    }
    if (run->op->gradient != NULL && (both || run->name->gradient)) {
        printf("%s retrograde op %s%s [--FIELD VALUE]...", both ? "      " : "usage:", run->called,
               both ? " --gradient" : "");
        print_gradient_tensors(run);
        printf("\n");
    }
    printf("\n%s\n", run->op->text);
}

/* "N", "N,N", "plain|log", … */
static void print_type(const rg_field *field, char *text, size_t capacity)
{
    static const char *const types[] = {
        [RG_FIELD_BOOL] = "true|false", [RG_FIELD_I32] = "N", [RG_FIELD_I64] = "N",
        [RG_FIELD_F64] = "NUMBER",      [RG_FIELD_ENUM] = "", [RG_FIELD_GROUP] = "",
    };
    size_t used = (size_t)snprintf(text, capacity, "%s", types[field->type]);
    for (int i = 0; field->type == RG_FIELD_ENUM && field->names[i] != NULL && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i > 0 ? "|" : "",
                                 field->names[i]);
    if (field->length > 0 && used < capacity)
        snprintf(text + used, capacity - used, ",… (%s%d)", field->count != 0 ? "at most " : "",
                 field->length);
}

static void print_field(void *context, const char *name, const rg_field *field, const char *value)
{
    (void)context;
    char type[256], left[512];
    print_type(field, type, sizeof type);
    snprintf(left, sizeof left, "--%s %s", name, type);
    printf("  %-26s %s", left, field->text);
    if (field->low != 0 || field->high != 0)
        printf("; %.17g to %.17g", field->low, field->high);
    printf(" (default %s)\n", value);
}

/* The classes of MPS: direction, fields, and the tensors as they are typed. */
static void print_names(const rg_op *op)
{
    for (const rg_op_name *name = op->names; name != NULL && name->name != NULL; name++) {
        rg_op_run run;
        if (rg_op_run_begin(&run, name->name) != 0)
            continue;
        run.inputs = rg_op_inputs(op, run.desc);
        run.outputs = rg_op_outputs(op, run.desc);
        run.gradients = rg_op_gradients(op, run.desc);
        printf("  %-28s %-8s %s:", name->name, name->gradient ? "gradient" : "forward", "MPS");
        if (name->gradient)
            print_gradient_tensors(&run);
        else
            print_forward_tensors(&run);
        printf("\n");
    }
}

void rg_op_run_help(const rg_op_run *run)
{
    print_usage(run);
    printf("\nfields:\n");
    rg_fields_each(&run->op->desc, run->desc, print_field, NULL);
    if (run->name != NULL) {
        const char *follows = run->name->follows;
        printf("\nthis name: %s of %s, with %s; %s\n",
               run->name->gradient ? "the gradient" : "the forward pass", run->op->name,
               run->name->fields[0] != 0 ? run->name->fields : "the default fields",
               rg_op_name_tensors(run->op, run->name, run->desc));
        if (follows != NULL)
            printf("fields that have the numbers of another where they are not given: %s\n",
                   follows);
    } else {
        printf("\nnames in MPS and ONNX (direction, domain, tensors):\n");
        print_names(run->op);
        rg_op_onnx_list(run->op);
    }
    printf("\n"
           "Files are NPY files. x='x.npy[0:2,::2,-1]' reads a slice: START:STOP:STEP or one index "
           "for\n"
           "each dimension; a dimension with a single index is kept with length 1. A gradient that "
           "needs\n"
           "outputs or a state that are not given computes them from the inputs of the forward "
           "pass.\n"
           "-o state.NAME=FILE writes a tensor of the state.\n\n"
           "options:\n");
}

void rg_op_list(void)
{
    for (int i = 0; rg_ops[i] != NULL; i++) {
        printf("%s: %s\n", rg_ops[i]->name, rg_ops[i]->text);
        print_names(rg_ops[i]);
        rg_op_onnx_list(rg_ops[i]);
    }
}
