/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One operator of ONNX on files: attributes, tensors by ONNX's names, the run. */
#include "cli/op_onnx.h"
#include "cli/arguments.h"
#include "cli/op_run.h"
#include "core/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

bool rg_op_onnx_begin(rg_op_onnx *run, const char *called)
{
    *run = (rg_op_onnx){ .entry = rg_onnx_find(called) };
    if (run->entry == NULL)
        return false;
    const void *desc = run->entry->op->desc.defaults;
    run->counts[0] = rg_onnx_tensors(run->entry, desc, run->entry->inputs, run->names[0]);
    run->counts[1] = rg_onnx_tensors(run->entry, desc, run->entry->outputs, run->names[1]);
    return true;
}

/* ---- attributes ---- */

int rg_op_onnx_take(void *context, const char *name, const char *value)
{
    rg_op_onnx *run = context;
    const char *called = run->entry->name;
    if (strcmp(name, "layout") == 0) {
        run->nhwc = value != NULL && strcmp(value, "nhwc") == 0;
        if (run->nhwc || (value != NULL && strcmp(value, "nchw") == 0))
            return 1;
        rg_wrong("--layout must be nchw or nhwc");
        return -1;
    }
    rg_onnx_spec spec;
    const char *at = run->entry->attributes;
    bool found = false;
    while (!found && rg_onnx_next_spec(&at, &spec))
        found = strcmp(spec.name, name) == 0;
    const bool is_int = found && strcmp(spec.type, "int") == 0;
    const bool has_value = value != NULL && !(is_int && strchr(value, '=') != NULL); /* x=FILE */
    if (found && !has_value && !is_int) {
        rg_wrong("--%s needs a value", name);
        return -1;
    }
    if (run->attribute_count == RG_OPERATOR_ATTRIBUTES) {
        rg_wrong("%s: too many attributes are given", called);
        return -1;
    }
    const rg_attribute attribute = { .name = name, .text = has_value ? value : "1" };
    if (rg_onnx_check(run->entry, &attribute, 1) != RG_OK) {
        rg_wrong("%s; see retrograde op %s --help", rg_error_text(), called);
        return -1;
    }
    for (int32_t i = 0; i < run->attribute_count; i++) {
        if (strcmp(run->attributes[i].name, name) == 0) {
            run->attributes[i].text = attribute.text; /* the last one counts */
            return has_value;
        }
    }
    char *kept = run->attribute_names[run->attribute_count];
    snprintf(kept, RG_ONNX_NAME, "%s", name);
    run->attributes[run->attribute_count++] =
        (rg_attribute){ .name = kept, .text = attribute.text };
    return has_value;
}

/* ---- tensors ---- */

/* Names that users of other releases, or of our ops, know a tensor by. */
static const char *const aliases[][2] = {
    { "dX", "X_grad" },
    { "dx", "X_grad" },
    { "dY", "Y_grad" },
    { "dy", "Y_grad" },
    { "X_grad", "dX" },
    { "Y_grad", "dY" },
    { "W_grad", "dW" },
    { "B_grad", "dB" },
    { "dscale", "scale_grad" },
    { "dgamma", "scale_grad" },
    { "dbias", "bias_grad" },
    { "dB", "bias_grad" },
    { "dbeta", "bias_grad" },
    { "saved_mean", "mean" },
    { "saved_inv_std", "variance" },
    { "inv_std", "variance" },
    { "inv_std", "inv_std_dev" },
    { "inv_std_var", "inv_std_dev" },
    { "saved_inv_std_var", "inv_std_dev" },
    { "InvStdDev", "inv_std_dev" },
    { "mean", "input_mean" },
    { "var", "input_var" },
    { "labels", "label" },
    { "label", "labels" },
    { "weights", "weight" },
    { "weight", "weights" },
    { "dX", "d_logits" },
    { "dscores", "d_logits" },
    { "X", "input" },
    { "X", "data" },
    { "Y", "output" },
    { "Y", "concat_result" },
    { "Y", "reduced" },
    { "Y", "reshaped" },
    { "Y", "transposed" },
    { "Y", "C" },
};

/* The X of LogSoftmaxGrad is the result of the forward pass. */
static bool is_result_of_forward(const rg_op_onnx *run, const char *typed, const char *name)
{
    return strncmp(run->entry->name, "LogSoftmaxGrad", 14) == 0 && strcmp(typed, "Y") == 0 &&
           strcmp(name, "X") == 0;
}

static bool is_alias(const rg_op_onnx *run, const char *typed, const char *name)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (strcmp(aliases[i][0], typed) == 0 && strcmp(aliases[i][1], name) == 0)
            return true;
    }
    return strcasecmp(typed, name) == 0 || is_result_of_forward(run, typed, name);
}

/* "x0", "inputs_0", "input0" for the inputs of Concat, the same for the outputs of Split. */
static bool is_numbered(const char *typed, const char *name)
{
    const size_t digits = strcspn(name, "0123456789"), given = strcspn(typed, "0123456789");
    return name[digits] != 0 && typed[given] != 0 && strcmp(name + digits, typed + given) == 0 &&
           (typed[0] == name[0] || typed[0] == 'x' || typed[0] == 'y');
}

/* 0, 1: an input or an output; -1: none. */
static int find_tensor(const rg_op_onnx *run, const char *typed, bool is_result, int32_t *index)
{
    for (int32_t pass = 0; pass < 3; pass++) {
        for (int32_t side = 0; side < 2; side++) {
            const int32_t from = is_result ? 1 - side : side;
            for (*index = 0; *index < run->counts[from]; (*index)++) {
                const char *name = run->names[from][*index].name;
                if (pass == 0   ? strcmp(typed, name) == 0
                    : pass == 1 ? is_alias(run, typed, name) && from == is_result
                                : is_numbered(typed, name) && from == is_result)
                    return from;
            }
        }
    }
    return -1;
}

static int unknown_tensor(const rg_op_onnx *run, const char *typed, bool is_result)
{
    rg_similar similar = rg_similar_begin(typed);
    char all[256] = "", text[RG_SIMILAR_TEXT];
    size_t used = 0;
    for (int32_t i = 0; i < run->counts[is_result]; i++) {
        const char *name = run->names[is_result][i].name;
        rg_similar_try(&similar, name);
        if (used < sizeof all)
            used +=
                (size_t)snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", name);
    }
    return rg_wrong("%s has no %s '%s'%s; there are %s", run->entry->name,
                    is_result ? "result" : "input", typed, rg_similar_text(&similar, text), all);
}

static int take_tensor(rg_op_onnx *run, rg_device *device, const char *text, bool is_result)
{
    char typed[RG_ONNX_NAME];
    const char *equals = text != NULL ? strchr(text, '=') : NULL, *called = run->entry->name;
    const bool absent = equals != NULL && equals[1] == 0 && !is_result;
    if (equals == NULL || equals == text || (equals[1] == 0 && !absent) ||
        equals - text >= RG_ONNX_NAME)
        return rg_wrong("'%s' is not of the form NAME=FILE", text != NULL ? text : "-o");
    snprintf(typed, sizeof typed, "%.*s", (int)(equals - text), text);
    int32_t index;
    const int side = find_tensor(run, typed, is_result, &index);
    if (side < 0)
        return unknown_tensor(run, typed, is_result);
    if (side != is_result)
        return is_result ? rg_wrong("%s: %s is not a result; omit -o", called, typed)
                         : rg_wrong("%s: %s is a result; use -o %s", called, typed, text);
    if (is_result ? run->paths[index] != NULL : run->inputs[index] != NULL)
        return rg_wrong("%s: '%s' is given twice", called, typed);
    if (absent) /* NAME= is an input without a name in ONNX */
        return run->names[0][index].optional
                   ? 0
                   : rg_wrong("%s: the input %s is not optional", called, typed);
    if (!is_result)
        return rg_op_load(device, equals + 1, &run->inputs[index]);
    for (int32_t i = 0; i < RG_ONNX_TENSORS; i++) {
        if (run->paths[i] != NULL && strcmp(run->paths[i], equals + 1) == 0)
            return rg_wrong("'%s' and '%s' would be written to the same file",
                            run->names[1][i].name, typed);
    }
    run->paths[index] = equals + 1;
    return 0;
}

/* Results first, so that a wrong name is found before files are read. */
static int take_tensors(rg_op_onnx *run, rg_device *device, int argc, char **argv)
{
    int status = 0, inputs = 0;
    uint64_t wanted = 0;
    for (int i = 0; i < argc && status == 0; i++) {
        if (strcmp(argv[i], "-o") != 0) {
            argv[inputs++] = argv[i];
            continue;
        }
        status = take_tensor(run, device, i + 1 < argc ? argv[i + 1] : NULL, true);
        i++;
    }
    for (int32_t i = 0; i < RG_ONNX_TENSORS; i++)
        wanted |= (uint64_t)(run->paths[i] != NULL) << i;
    if (status == 0 && wanted == 0)
        return rg_wrong("%s: no result is requested; add -o %s=FILE", run->entry->name,
                        run->names[1][0].name);
    for (int i = 0; i < inputs && status == 0; i++)
        status = take_tensor(run, device, argv[i], false);
    return status;
}

/* ---- running ---- */

static int convert_inputs(rg_op_onnx *run, const char *text)
{
    rg_dtype dtype;
    if (text == NULL)
        return 0;
    if (rg_dtype_parse(text, &dtype) != RG_OK || !rg_dtype_is_data(dtype))
        return rg_wrong("--dtype must be f32, f64, f16 or bf16, not '%s'", text);
    for (int32_t i = 0; i < RG_ONNX_TENSORS; i++) {
        rg_tensor_desc desc;
        if (run->inputs[i] == NULL || run->names[0][i].layout == RG_ONNX_NUMBERS ||
            rg_tensor_get_desc(run->inputs[i], &desc) != RG_OK || !rg_dtype_is_data(desc.dtype))
            continue;
        if (rg_op_convert(&run->inputs[i], dtype) != RG_OK)
            return rg_failed();
    }
    return 0;
}

static rg_status record(rg_op_onnx *run, rg_device *device, rg_queue *queue)
{
    rg_operator *op;
    rg_commands *commands = NULL;
    uint64_t wanted = 0;
    for (int32_t i = 0; i < RG_ONNX_TENSORS; i++)
        wanted |= (uint64_t)(run->paths[i] != NULL) << i;
    RG_TRY(
        rg_operator_create(device, run->entry->name, run->attributes, run->attribute_count, &op));
    rg_operator_set_nhwc(op, run->nhwc);
    rg_status status = rg_commands_create(queue, &commands);
    if (status == RG_OK)
        status = rg_operator_run(op, commands, run->inputs, RG_ONNX_TENSORS, wanted, run->outputs);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK)
        status = rg_commands_wait(commands);
    rg_commands_destroy(commands);
    rg_operator_destroy(op);
    return status;
}

static int save(rg_op_onnx *run)
{
    rg_tensor *tensors[RG_ONNX_TENSORS];
    const char *paths[RG_ONNX_TENSORS];
    int count = 0;
    for (int32_t i = 0; i < RG_ONNX_TENSORS; i++) {
        if (run->paths[i] == NULL)
            continue;
        if (strcmp(run->names[1][i].name, "mask") == 0 &&
            rg_op_convert(&run->outputs[i], RG_U8) != RG_OK)
            return rg_failed();
        tensors[count] = run->outputs[i];
        paths[count++] = run->paths[i];
    }
    return rg_op_save(tensors, paths, count);
}

int rg_op_onnx_run(rg_op_onnx *run, const rg_onnx_options *o, int argc, char **argv)
{
    rg_device_options options = rg_device_options_default();
    rg_device *device = NULL;
    rg_queue *queue = NULL;
    options.isa = o->isa;
    options.threads = (int32_t)(o->threads < 2048 ? o->threads : 2048);
    rg_status made = rg_device_create(o->device, &options, &device);
    if (made == RG_OK)
        made = rg_queue_create(device, &queue);
    int status = rg_usage_status(made) == RG_OK ? 0 : rg_failed();
    if (status == 0)
        status = take_tensors(run, device, argc, argv);
    if (status == 0)
        status = convert_inputs(run, o->dtype);
    if (status == 0 && record(run, device, queue) != RG_OK)
        status = rg_failed();
    if (status == 0)
        status = save(run);
    for (int32_t i = 0; i < RG_ONNX_TENSORS; i++) {
        rg_tensor_destroy(run->inputs[i]);
        rg_tensor_destroy(run->outputs[i]);
    }
    rg_queue_destroy(queue);
    rg_device_destroy(device);
    return status;
}

/* ---- texts ---- */

/* Numbers that may be files are listed apart. */
static void print_tensors(const rg_op_onnx *run, int side, bool all)
{
    for (int32_t i = 0; i < run->counts[side]; i++) {
        const rg_onnx_tensor *t = &run->names[side][i];
        const bool optional = side == 0 ? t->optional : i > 0;
        const bool numbered = t->name[strcspn(t->name, "0123456789")] != 0;
        if (t->layout == RG_ONNX_NUMBERS || (!all && optional && numbered && i > 1))
            continue;
        printf(" %s%s%s=FILE%s", optional ? "[" : "", side == 1 ? "-o " : "", t->name,
               optional ? "]" : "");
    }
}

/* Attributes that an operator does not run without. */
static void print_required(const rg_onnx_operator *entry)
{
    rg_onnx_spec spec;
    for (const char *at = entry->attributes; rg_onnx_next_spec(&at, &spec);) {
        if (spec.shown)
            printf(" --%s %s", spec.name,
                   strcmp(spec.type, "ints") == 0 || strcmp(spec.type, "floats") == 0 ? "N,…"
                                                                                      : "VALUE");
    }
}

static void print_numbers(const rg_op_onnx *run)
{
    bool any = false;
    for (int32_t i = 0; i < run->counts[0]; i++) {
        if (run->names[0][i].layout != RG_ONNX_NUMBERS)
            continue;
        printf("%s %s=FILE", any ? "" : "\nnumbers that may be files instead of attributes:",
               run->names[0][i].name);
        any = true;
    }
    printf("%s", any ? "\n" : "");
}

static bool is_image(const rg_onnx_operator *entry)
{
    return strstr(entry->inputs, "@") != NULL;
}

void rg_op_onnx_help(const rg_op_onnx *run)
{
    const rg_onnx_operator *entry = run->entry;
    printf("usage: retrograde op %s", entry->name);
    print_required(entry);
    print_tensors(run, 0, true);
    print_tensors(run, 1, true);
    printf("\n\n%s of %s, computed by the op %s: %s\n",
           entry->gradient ? "Gradient operator" : "Operator", entry->domain, entry->op->name,
           entry->op->text);
    if (is_image(entry))
        printf("Images are (n, c, h, w) and weights as in ONNX; with --layout nhwc images are "
               "(n, h, w, c) and\nweights as the op has them.\n");
    printf("\nattributes:\n");
    rg_onnx_spec spec;
    for (const char *at = entry->attributes; rg_onnx_next_spec(&at, &spec);)
        printf("  --%-30s %-7s %s%s\n", spec.name, spec.type,
               spec.required        ? "required"
               : spec.value[0] != 0 ? "default "
                                    : "",
               spec.value);
    print_numbers(run);
    printf("\nFiles are NPY files; x='x.npy[0:2,::2,-1]' reads a slice.\n\noptions:\n");
}

void rg_op_onnx_list(const rg_op *op)
{
    for (const rg_onnx_operator *entry = rg_onnx_operators; entry->name != NULL; entry++) {
        rg_op_onnx run;
        if (entry->op != op || !rg_op_onnx_begin(&run, entry->name))
            continue;
        printf("  %-28s %-8s %s:", entry->name, entry->gradient ? "gradient" : "forward",
               entry->domain);
        print_required(entry);
        print_tensors(&run, 0, false);
        print_tensors(&run, 1, false);
        printf("\n");
    }
}
