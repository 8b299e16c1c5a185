/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The public operators: look-up of names, attributes that are kept, runs of ONNX's operators. */
#include "operators/operator.h"
#include "core/memory.h"
#include "core/private_api.h"
#include "operators/operator_mps.h"
#include "operators/run.h"
#include "runtime/objects.h"

#include <retrograde/operator.h>

#include <math.h>
#include <stdio.h>

/* ---- names ---- */

static int32_t onnx_count(void)
{
    int32_t count = 0;
    while (rg_onnx_operators[count].name != NULL)
        count++;
    return count;
}

int32_t rg_operator_count(void)
{
    return onnx_count() + rg_mps_count();
}

static void onnx_info(const rg_onnx_operator *entry, rg_operator_info *info)
{
    rg_onnx_tensor tensors[RG_ONNX_TENSORS];
    *info = (rg_operator_info){ .name = entry->name,
                                .domain = entry->domain,
                                .op = entry->op->name,
                                .gradient = entry->gradient };
    info->inputs = rg_onnx_tensors(entry, entry->op->desc.defaults, entry->inputs, tensors);
    info->outputs = rg_onnx_tensors(entry, entry->op->desc.defaults, entry->outputs, tensors);
}

rg_status rg_operator_get(int32_t index, rg_operator_info *info)
{
    RG_CHECK_NOT_NULL(info);
    *info = (rg_operator_info){ .name = NULL };
    RG_CHECK(index >= 0 && index < rg_operator_count(), RG_INVALID_ARGUMENT,
             "rg_operator_get: index %d is out of range: there are %d operators", index,
             rg_operator_count());
    const int32_t count = onnx_count();
    if (index < count)
        onnx_info(&rg_onnx_operators[index], info);
    else
        rg_mps_info(rg_mps_get(index - count), info);
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_operator_unknown(const char *name)
{
    rg_similar similar = rg_similar_begin(name);
    for (int32_t i = 0; rg_onnx_operators[i].name != NULL; i++)
        rg_similar_try(&similar, rg_onnx_operators[i].name);
    for (int32_t i = 0; i < rg_mps_count(); i++)
        rg_similar_try(&similar, rg_mps_get(i).name->name);
    for (int32_t i = 0; rg_ops[i] != NULL; i++)
        rg_similar_try(&similar, rg_ops[i]->name);
    char text[RG_SIMILAR_TEXT];
    return rg_fail(RG_INVALID_ARGUMENT, "there is no op or operator '%s'%s", name,
                   rg_similar_text(&similar, text));
}

rg_status rg_operator_find(const char *name, rg_operator_info *info)
{
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(info);
    *info = (rg_operator_info){ .name = NULL };
    const rg_onnx_operator *entry = rg_onnx_find(name);
    rg_mps_name mps;
    if (entry != NULL)
        onnx_info(entry, info);
    else if (rg_mps_find(name, &mps))
        rg_mps_info(mps, info);
    else
        return rg_operator_unknown(name);
    return RG_OK;
}

/* ---- objects ---- */

static rg_status copy_attribute(rg_operator *made, const rg_attribute *from, rg_attribute *to)
{
    const rg_allocator *allocator = &made->device->allocator;
    const size_t name = strlen(from->name) + 1,
                 text = from->text != NULL ? strlen(from->text) + 1 : 0;
    const size_t numbers = from->text == NULL && from->count > 0 ? (size_t)from->count * 8 : 0;
    void *memory;
    RG_TRY(rg_allocate(allocator, numbers + name + text, &memory));
    made->blocks[made->attribute_count] = memory;
    made->sizes[made->attribute_count++] = numbers + name + text;
    char *at = memory;
    *to = (rg_attribute){ .name = at + numbers, .count = from->count };
    memcpy(at + numbers, from->name, name);
    if (from->text != NULL)
        to->text = memcpy(at + numbers + name, from->text, text);
    else if (from->ints != NULL)
        to->ints = memcpy(at, from->ints, numbers);
    else if (from->floats != NULL)
        to->floats = memcpy(at, from->floats, numbers);
    return RG_OK;
}

static rg_status take_attributes(rg_operator *made, const rg_attribute attributes[], int32_t count)
{
    RG_CHECK(count >= 0 && count <= RG_OPERATOR_ATTRIBUTES, RG_INVALID_ARGUMENT,
             "%s: %d attributes are given, but at most %d are supported", made->name, count,
             RG_OPERATOR_ATTRIBUTES);
    for (int32_t i = 0; i < count; i++) {
        RG_CHECK(attributes[i].name != NULL, RG_INVALID_ARGUMENT, "%s: attribute %d has no name",
                 made->name, i);
        for (int32_t k = 0; k < i; k++)
            RG_CHECK(strcmp(attributes[i].name, attributes[k].name) != 0, RG_INVALID_ARGUMENT,
                     "%s: attribute %s is given twice", made->name, attributes[i].name);
    }
    if (made->onnx != NULL)
        RG_TRY(rg_onnx_check(made->onnx, attributes, count));
    else
        RG_TRY(rg_mps_take(made, attributes, count));
    for (int32_t i = 0; i < count; i++)
        RG_TRY(copy_attribute(made, &attributes[i], &made->attributes[i]));
    return RG_OK;
}

rg_status rg_operator_create(rg_device *device, const char *name, const rg_attribute attributes[],
                             int32_t count, rg_operator **made)
{
    RG_CHECK_NOT_NULL(made);
    *made = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(name);
    RG_CHECK(attributes != NULL || count == 0, RG_INVALID_ARGUMENT,
             "rg_operator_create: attributes is NULL");
    const rg_onnx_operator *onnx = rg_onnx_find(name);
    rg_mps_name mps = { .name = NULL };
    if (onnx == NULL && !rg_mps_find(name, &mps))
        return rg_operator_unknown(name);
    void *memory;
    RG_TRY(rg_allocate_zero(&device->allocator, sizeof **made, &memory));
    rg_operator *op = memory;
    *op = (rg_operator){ .device = device,
                         .name = onnx != NULL ? onnx->name : mps.name->name,
                         .onnx = onnx,
                         .mps = mps };
    rg_device_retain(device);
    rg_status status = take_attributes(op, attributes, count);
    if (status == RG_OK && onnx != NULL) {
        const void *desc = onnx->op->desc.defaults;
        op->input_count = rg_onnx_tensors(onnx, desc, onnx->inputs, op->inputs);
        op->output_count = rg_onnx_tensors(onnx, desc, onnx->outputs, op->outputs);
    }
    if (status != RG_OK) {
        rg_operator_destroy(op);
        return status;
    }
    *made = op;
    return RG_OK;
}

void rg_operator_destroy(rg_operator *op)
{
    if (op == NULL)
        return;
    rg_device *device = op->device;
    for (int32_t i = 0; i < op->attribute_count; i++)
        rg_release(&device->allocator, op->blocks[i], op->sizes[i]);
    rg_release(&device->allocator, op, sizeof *op);
    rg_device_destroy(device);
}

const char *rg_operator_input(const rg_operator *op, int32_t index)
{
    return op != NULL && index >= 0 && index < op->input_count ? op->inputs[index].name : NULL;
}

const char *rg_operator_output(const rg_operator *op, int32_t index)
{
    return op != NULL && index >= 0 && index < op->output_count ? op->outputs[index].name : NULL;
}

RG_PRIVATE_API void rg_operator_set_nhwc(rg_operator *op, bool nhwc)
{
    op->nhwc = nhwc;
}

/* ---- runs ---- */

enum { MOST_NUMBERS = 6 };

/* Inputs that are numbers become attributes, beside those of the operator. */
typedef struct numbers {
    rg_attribute attributes[RG_OPERATOR_ATTRIBUTES + MOST_NUMBERS];
    int64_t ints[MOST_NUMBERS][RG_ONNX_VALUES];
    double floats[MOST_NUMBERS][RG_ONNX_VALUES];
} numbers;

static rg_status read_numbers(rg_run *run, const rg_operator *op, int32_t input, int32_t slot,
                              numbers *n)
{
    const char *name = op->inputs[input].name;
    double *values;
    int64_t count;
    for (int32_t i = 0; i < op->attribute_count; i++)
        RG_CHECK(strcmp(op->attributes[i].name, name) != 0, RG_INVALID_ARGUMENT,
                 "%s: %s is given as a tensor and as an attribute", op->name, name);
    RG_TRY(rg_run_read(run, run->in[input], &values, &count));
    const bool fits = count <= RG_ONNX_VALUES;
    for (int64_t i = 0; i < count && fits; i++) {
        n->floats[slot][i] = values[i];
        const double held = isnan(values[i])      ? 0
                            : values[i] > 0x1p62  ? 0x1p62
                            : values[i] < -0x1p62 ? -0x1p62
                                                  : values[i];
        n->ints[slot][i] = (int64_t)held;
    }
    rg_run_release(run, values, count);
    RG_CHECK(fits, RG_UNSUPPORTED, "%s: %s has %lld numbers; at most %d are supported", op->name,
             name, (long long)count, RG_ONNX_VALUES);
    const rg_dtype dtype = run->shapes[input].dtype;
    const bool integers = dtype == RG_I32 || dtype == RG_I64 || dtype == RG_U8;
    rg_attribute *a = &n->attributes[run->node.attribute_count];
    *a = (rg_attribute){ .name = name, .count = (int32_t)count };
    if (integers)
        a->ints = n->ints[slot];
    else
        a->floats = n->floats[slot];
    run->in[input] = NULL;
    run->shapes[input].rank = -1;
    if (count == 0 &&
        strcmp(name, "shape") != 0) /* an empty roi, scales or sizes is an absent one */
        return RG_OK;
    run->node.attribute_count++;
    return RG_OK;
}

static rg_status take_inputs(rg_run *run, const rg_operator *op, rg_tensor *const inputs[],
                             int32_t count, numbers *n)
{
    int32_t slots = 0;
    for (int32_t i = 0; i < RG_ONNX_TENSORS; i++) {
        run->in[i] = i < count ? inputs[i] : NULL;
        run->shapes[i] = (rg_tensor_desc){ .rank = -1 };
        if (run->in[i] == NULL) {
            RG_CHECK(i >= op->input_count || op->inputs[i].optional, RG_INVALID_ARGUMENT,
                     "%s: the input %s is missing", op->name, op->inputs[i].name);
            continue;
        }
        RG_CHECK(i < op->input_count, RG_INVALID_ARGUMENT, "%s has at most %d inputs", op->name,
                 op->input_count);
        run->shapes[i] = run->in[i]->desc;
        if (op->inputs[i].layout == RG_ONNX_NUMBERS)
            RG_TRY(read_numbers(run, op, i, slots++, n));
    }
    return RG_OK;
}

static rg_status run_onnx(const rg_operator *op, rg_run *run, rg_tensor *const inputs[],
                          int32_t count)
{
    numbers n;
    memcpy(n.attributes, op->attributes, sizeof op->attributes);
    run->node = (rg_onnx_node){ .type = op->name,
                                .attributes = n.attributes,
                                .attribute_count = op->attribute_count,
                                .inputs = run->shapes,
                                .input_count = op->input_count,
                                .outputs = (uint32_t)run->wanted,
                                .nhwc = op->nhwc,
                                .entry = op->onnx };
    rg_status status = take_inputs(run, op, inputs, count, &n);
    if (status == RG_OK)
        status = rg_onnx_begin(&run->node, &run->call);
    if (status == RG_OK)
        status = op->onnx->run != NULL ? op->onnx->run(run) : rg_run_op(run, op->onnx->convert);
    rg_run_end(run);
    return status;
}

rg_status rg_run_into(const rg_operator *op, rg_commands *commands, rg_tensor *const inputs[],
                      int32_t count, uint64_t wanted, const rg_run_results *results)
{
    rg_run run = {
        .device = op->device, .commands = commands, .results = results, .wanted = wanted
    };
    return run_onnx(op, &run, inputs, count);
}

rg_status rg_operator_run(rg_operator *op, rg_commands *commands, rg_tensor *const inputs[],
                          int32_t count, uint64_t wanted, rg_tensor *outputs[])
{
    RG_CHECK_NOT_NULL(op);
    RG_CHECK_NOT_NULL(commands);
    RG_CHECK_NOT_NULL(outputs);
    RG_CHECK(inputs != NULL || count == 0, RG_INVALID_ARGUMENT, "rg_operator_run: inputs is NULL");
    for (int32_t i = 0; i < op->output_count; i++)
        outputs[i] = NULL;
    for (int32_t i = op->input_count; i < count; i++)
        RG_CHECK(inputs[i] == NULL, RG_INVALID_ARGUMENT, "%s has at most %d inputs", op->name,
                 op->input_count);
    RG_CHECK(wanted != 0 && wanted >> op->output_count == 0, RG_INVALID_ARGUMENT,
             "%s: at least one of %d results must be requested, and no other", op->name,
             op->output_count);
    rg_run run = { .device = op->device, .commands = commands, .out = outputs, .wanted = wanted };
    const rg_status status = op->onnx != NULL
                                 ? run_onnx(op, &run, inputs, count)
                                 : rg_mps_run(op, commands, inputs, count, wanted, outputs);
    for (int32_t i = 0; i < op->output_count && status != RG_OK; i++) {
        rg_tensor_destroy(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}
