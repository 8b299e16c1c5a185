/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Kernels: made from an op and its descriptor, described, compared, copied. */
#include "runtime/objects.h"

#include "core/private_api.h"

#include <assert.h>
#include <stdio.h>

static int32_t count_names(const char *const names[])
{
    int32_t count = 0;
    while (names[count] != NULL)
        count++;
    return count;
}

RG_PRIVATE_API int32_t rg_op_inputs(const rg_op *op, const void *desc)
{
    return op->count_inputs != NULL ? op->count_inputs(desc) : count_names(op->inputs);
}

int32_t rg_op_outputs(const rg_op *op, const void *desc)
{
    return op->count_outputs != NULL ? op->count_outputs(desc) : count_names(op->outputs);
}

int32_t rg_op_gradients(const rg_op *op, const void *desc)
{
    return op->count_gradients != NULL ? op->count_gradients(desc) : rg_op_outputs(op, desc);
}

bool rg_op_differentiates(const rg_op *op, const void *desc, int32_t input)
{
    return op->no_gradient == NULL || !(op->no_gradient(desc) >> input & 1);
}

RG_PRIVATE_API const char *const *rg_op_input_names(const rg_op *op, const void *desc)
{
    return op->input_names != NULL ? op->input_names(desc) : op->inputs;
}

RG_PRIVATE_API const char *const *rg_op_output_names(const rg_op *op, const void *desc)
{
    return op->output_names != NULL ? op->output_names(desc) : op->outputs;
}

uint32_t rg_op_reads(const rg_op *op, const void *desc, bool has_state)
{
    const uint32_t reads = op->reads(desc);
    return reads & RG_READS_OR_STATE && has_state ? RG_READS_STATE : reads;
}

bool rg_op_fills_state(const rg_op *op, const void *desc)
{
    return op->fills_state != NULL && op->fills_state(desc);
}

bool rg_kernel_modifies_state(const rg_kernel *kernel, bool gradient)
{
    if (kernel == NULL)
        return false;
    const rg_op *op = kernel->op;
    bool writes = op->writes_state != NULL ? op->writes_state(kernel->desc, gradient)
                                           : op->state != NULL && !gradient;
    for (int32_t i = 1; i < rg_op_inputs(op, kernel->desc) && gradient; i++)
        writes |= op->gradient != NULL && rg_op_differentiates(op, kernel->desc, i);
    return writes;
}

rg_status rg_kernel_create(rg_device *device, const rg_op *op, const void *desc, rg_kernel **kernel)
{
    RG_CHECK(kernel != NULL, RG_INVALID_ARGUMENT, "%s: kernel is NULL", op->name);
    *kernel = NULL;
    RG_CHECK(device != NULL, RG_INVALID_ARGUMENT, "%s: device is NULL", op->name);
    RG_CHECK(desc != NULL, RG_INVALID_ARGUMENT, "%s: desc is NULL", op->name);
    assert(op->desc.size <= RG_MAX_DESC);
    _Alignas(16) char checked[RG_MAX_DESC];
    RG_TRY(rg_fields_copy(&op->desc, op->name, desc, checked));
    if (op->check != NULL)
        RG_TRY(op->check(checked));
    void *memory, *copy;
    RG_TRY(rg_allocate_zero(&device->allocator, sizeof(rg_kernel), &memory));
    const rg_status status = rg_allocate(&device->allocator, op->desc.size, &copy);
    if (status != RG_OK) {
        rg_release(&device->allocator, memory, sizeof(rg_kernel));
        return status;
    }
    memcpy(copy, checked, op->desc.size);
    rg_kernel *made = memory;
    *made = (rg_kernel){ .device = rg_device_retain(device), .op = op, .desc = copy };
    *kernel = made;
    return RG_OK;
}

void rg_kernel_destroy(rg_kernel *kernel)
{
    if (kernel == NULL)
        return;
    rg_device *device = kernel->device;
    rg_label_clear(&device->allocator, &kernel->label);
    rg_release(&device->allocator, kernel->desc, kernel->op->desc.size);
    rg_release(&device->allocator, kernel, sizeof *kernel);
    rg_device_destroy(device);
}

rg_status rg_kernel_copy(const rg_kernel *kernel, rg_device *device, rg_kernel **copy)
{
    RG_CHECK_NOT_NULL(copy);
    *copy = NULL;
    RG_CHECK_NOT_NULL(kernel);
    rg_kernel *made;
    RG_TRY(rg_kernel_create(device != NULL ? device : kernel->device, kernel->op, kernel->desc,
                            &made));
    const rg_status status = rg_kernel_set_label(made, rg_kernel_label(kernel));
    if (status != RG_OK) {
        rg_kernel_destroy(made);
        return status;
    }
    *copy = made;
    return RG_OK;
}

int32_t rg_kernel_inputs(const rg_kernel *kernel)
{
    return kernel != NULL ? rg_op_inputs(kernel->op, kernel->desc) : 0;
}

int32_t rg_kernel_outputs(const rg_kernel *kernel)
{
    return kernel != NULL ? rg_op_outputs(kernel->op, kernel->desc) : 0;
}

const char *rg_kernel_op(const rg_kernel *kernel)
{
    return kernel != NULL ? kernel->op->name : "";
}

rg_device *rg_kernel_device(const rg_kernel *kernel)
{
    return kernel != NULL ? kernel->device : NULL;
}

rg_status rg_kernel_shapes(const rg_kernel *kernel, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    RG_CHECK_NOT_NULL(kernel);
    RG_CHECK_NOT_NULL(x);
    RG_CHECK_NOT_NULL(y);
    rg_tensor_desc given[RG_MAX_INPUTS], found[RG_MAX_OUTPUTS];
    for (int32_t i = 0; i < rg_kernel_inputs(kernel); i++) {
        RG_TRY(rg_shape_check(&x[i], kernel->op->name, NULL));
        given[i] = x[i];
        rg_shape_normalize(&given[i]);
    }
    RG_TRY(kernel->op->shapes(kernel->desc, given, found));
    memcpy(y, found, (size_t)rg_kernel_outputs(kernel) * sizeof y[0]);
    return RG_OK;
}

size_t rg_kernel_describe(const rg_kernel *kernel, char *text, size_t capacity)
{
    capacity = text != NULL ? capacity : 0;
    if (capacity > 0)
        text[0] = 0;
    if (kernel == NULL)
        return 0;
    const size_t name = (size_t)snprintf(text, capacity, "%s ", kernel->op->name);
    const size_t used = name < capacity ? name : capacity;
    const size_t fields = rg_fields_text(&kernel->op->desc, kernel->desc,
                                         used < capacity ? text + used : NULL, capacity - used);
    if (fields == 0 && name <= capacity && name > 0)
        text[name - 1] = 0; /* no fields: no space after the name */
    return fields > 0 ? name + fields : name - 1;
}

bool rg_kernel_equal(const rg_kernel *a, const rg_kernel *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return a->op == b->op && rg_fields_equal(&a->op->desc, a->desc, b->desc);
}

/* FNV-1a */
static void hash_text(uint64_t *hash, const char *text)
{
    for (; *text != 0; text++)
        *hash = (*hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
}

static void hash_field(void *hash, const char *name, const rg_field *field, const char *value)
{
    (void)field;
    hash_text(hash, name);
    hash_text(hash, value);
}

uint64_t rg_kernel_hash(const rg_kernel *kernel)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    if (kernel != NULL) {
        hash_text(&hash, kernel->op->name);
        rg_fields_each(&kernel->op->desc, kernel->desc, hash_field, &hash);
    }
    return hash;
}

rg_status rg_kernel_set_label(rg_kernel *kernel, const char *label)
{
    RG_CHECK_NOT_NULL(kernel);
    RG_CHECK_NOT_NULL(label);
    return rg_label_set(&kernel->device->allocator, &kernel->label, label);
}

const char *rg_kernel_label(const rg_kernel *kernel)
{
    return kernel != NULL && kernel->label != NULL ? kernel->label : "";
}
