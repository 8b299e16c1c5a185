/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors: making them, host access, read counts of temporaries. */
#include "runtime/objects.h"

rg_status rg_tensor_make(rg_device *device, const rg_tensor_desc *desc, rg_tensor **tensor)
{
    void *memory;
    RG_TRY(rg_allocate_zero(&device->allocator, sizeof(rg_tensor), &memory));
    rg_tensor *made = memory;
    *made = (rg_tensor){ .refs = 1, .device = rg_device_retain(device), .desc = *desc };
    rg_shape_normalize(&made->desc);
    *tensor = made;
    return RG_OK;
}

rg_status rg_tensor_create(rg_device *device, const rg_tensor_desc *desc, rg_tensor **tensor)
{
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(desc);
    size_t bytes;
    RG_TRY(rg_shape_check(desc, "rg_tensor_create", &bytes));
    rg_tensor *made;
    RG_TRY(rg_tensor_make(device, desc, &made));
    const rg_status status = rg_storage_create(device, bytes, &made->storage);
    if (status != RG_OK) {
        rg_tensor_destroy(made);
        return status;
    }
    *tensor = made;
    return RG_OK;
}

rg_status rg_tensor_wrap(rg_device *device, const rg_tensor_desc *desc, void *data,
                         void (*release)(void *context), void *context, rg_tensor **tensor)
{
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(desc);
    size_t bytes;
    RG_TRY(rg_shape_check(desc, "rg_tensor_wrap", &bytes));
    RG_CHECK(data != NULL || bytes == 0, RG_INVALID_ARGUMENT, "rg_tensor_wrap: data is NULL");
    RG_CHECK((uintptr_t)data % rg_dtype_size(desc->dtype) == 0, RG_INVALID_ARGUMENT,
             "rg_tensor_wrap: data is not aligned to the size of %s elements",
             rg_dtype_name(desc->dtype));
    if (bytes > 0 && device->backend->check_pointer != NULL)
        RG_TRY(device->backend->check_pointer(device->context, data));
    rg_tensor *made;
    RG_TRY(rg_tensor_make(device, desc, &made));
    const rg_status status = rg_storage_create(device, 0, &made->storage);
    if (status != RG_OK) {
        rg_tensor_destroy(made);
        return status;
    }
    made->storage->data = data;
    made->storage->release = release;
    made->storage->context = context;
    *tensor = made;
    return RG_OK;
}

rg_status rg_tensor_create_temporary(rg_commands *commands, const rg_tensor_desc *desc,
                                     rg_tensor **tensor)
{
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_TRY(rg_commands_recording(commands, "rg_tensor_create_temporary"));
    RG_CHECK_NOT_NULL(desc);
    size_t bytes;
    RG_TRY(rg_shape_check(desc, "rg_tensor_create_temporary", &bytes));
    rg_submission *submission = commands->submission;
    rg_device *device = commands->queue->device;
    rg_tensor *made;
    RG_TRY(rg_tensor_make(device, desc, &made));
    rg_status status = rg_storage_create(device, 0, &made->storage);
    if (status == RG_OK)
        status = rg_grow(&device->allocator, (void **)&submission->temporaries,
                         &submission->temporaries_capacity, submission->temporaries_count,
                         sizeof submission->temporaries[0]);
    if (status == RG_OK)
        status = rg_heap_take(submission, bytes, &made->storage->offset);
    if (status != RG_OK) {
        rg_tensor_destroy(made);
        return status;
    }
    submission->temporaries[submission->temporaries_count++] = rg_storage_retain(made->storage);
    made->storage->submission = submission;
    made->commands = commands->id;
    made->read_count = 1;
    *tensor = made;
    return RG_OK;
}

/* The range of a temporary whose last read is recorded serves later ones. */
static void give_range(rg_tensor *tensor)
{
    rg_storage *storage = tensor->storage;
    if (storage != NULL && storage->submission != NULL && tensor->parent == NULL) {
        rg_heap_give(storage->submission, storage->offset);
        storage->submission = NULL;
    }
}

void rg_tensor_destroy(rg_tensor *tensor)
{
    if (tensor == NULL || --tensor->refs > 0)
        return;
    if (tensor->commands != 0 && tensor->read_count > 0) {
        tensor->read_count = 0;
        give_range(tensor);
    }
    rg_tensor_destroy(tensor->parent);
    rg_storage_release(tensor->storage);
    rg_device *device = tensor->device;
    rg_label_clear(&device->allocator, &tensor->label);
    rg_release(&device->allocator, tensor, sizeof *tensor);
    rg_device_destroy(device);
}

/* ---- asking ---- */

rg_status rg_tensor_get_desc(const rg_tensor *tensor, rg_tensor_desc *desc)
{
    RG_CHECK_NOT_NULL(tensor);
    RG_CHECK_NOT_NULL(desc);
    *desc = tensor->desc;
    return RG_OK;
}

rg_status rg_tensor_set_label(rg_tensor *tensor, const char *label)
{
    RG_CHECK_NOT_NULL(tensor);
    RG_CHECK_NOT_NULL(label);
    return rg_label_set(&tensor->device->allocator, &tensor->label, label);
}

const char *rg_tensor_label(const rg_tensor *tensor)
{
    return tensor != NULL && tensor->label != NULL ? tensor->label : "";
}

rg_device *rg_tensor_device(const rg_tensor *tensor)
{
    return tensor != NULL ? tensor->device : NULL;
}

void *rg_tensor_data(const rg_tensor *tensor)
{
    if (tensor == NULL || tensor->commands != 0 || tensor->storage->data == NULL)
        return NULL;
    return tensor->storage->data + tensor->offset;
}

size_t rg_tensor_bytes(const rg_tensor *tensor)
{
    return tensor != NULL && !tensor->is_view ? tensor->storage->bytes : 0;
}

/* ---- host access ---- */

rg_status rg_tensor_copy_args(const rg_tensor *tensor, void *host, size_t bytes, rg_layout layout,
                              bool to_host, const char *who, rg_copy_args *args)
{
    RG_CHECK(tensor != NULL, RG_INVALID_ARGUMENT, "%s: tensor is NULL", who);
    const rg_tensor_desc *desc = &tensor->desc;
    const int32_t rank = desc->rank;
    const size_t element = rg_dtype_size(desc->dtype);
    const size_t needed = (size_t)rg_shape_count(desc) * element;
    RG_CHECK(bytes == needed, RG_INVALID_ARGUMENT,
             "%s: the tensor has %zu bytes, but the size given is %zu", who, needed, bytes);
    RG_CHECK(host != NULL || needed == 0, RG_INVALID_ARGUMENT, "%s: data is NULL", who);
    RG_CHECK(layout == RG_LAYOUT_SAME || layout == RG_LAYOUT_NCHW, RG_INVALID_ARGUMENT,
             "%s: unknown layout %d", who, (int)layout);
    RG_CHECK(layout == RG_LAYOUT_SAME || rank == 3 || rank == 4, RG_INVALID_ARGUMENT,
             "%s: the layout (n, c, h, w) requires a tensor of rank 3 or 4, not %d", who, rank);
    RG_CHECK(to_host || !rg_shape_overlaps_itself(desc), RG_INVALID_ARGUMENT,
             "%s: the tensor is expanded or overlaps itself and cannot be written", who);
    *args = (rg_copy_args){
        .host = host, .rank = rank, .element = (int32_t)element, .to_host = to_host
    };
    for (int32_t d = 0; d < rank; d++) {
        int32_t from = d; /* dimension d of the host is this one of the tensor */
        if (layout == RG_LAYOUT_NCHW && d == rank - 3)
            from = rank - 1;
        else if (layout == RG_LAYOUT_NCHW && d > rank - 3)
            from = d - 1;
        args->dims[d] = desc->dims[from];
        args->strides[d] = desc->strides[from];
    }
    return RG_OK;
}

static rg_status copy_now(const rg_tensor *tensor, void *host, size_t bytes, rg_layout layout,
                          bool to_host, const char *who)
{
    rg_copy_args args;
    RG_TRY(rg_tensor_copy_args(tensor, host, bytes, layout, to_host, who, &args));
    RG_CHECK(tensor->commands == 0, RG_INVALID_ARGUMENT,
             "%s: the tensor is a temporary; record the copy in its commands instead", who);
    args.device = rg_tensor_data(tensor);
    return tensor->device->backend->copy(tensor->device->context, &args);
}

rg_status rg_tensor_read(const rg_tensor *tensor, void *data, size_t bytes, rg_layout layout)
{
    return copy_now(tensor, data, bytes, layout, true, "rg_tensor_read");
}

rg_status rg_tensor_write(rg_tensor *tensor, const void *data, size_t bytes, rg_layout layout)
{
    return copy_now(tensor, (void *)(uintptr_t)data, bytes, layout, false, "rg_tensor_write");
}

/* ---- temporaries ---- */

bool rg_tensor_is_temporary(const rg_tensor *tensor)
{
    return tensor != NULL && tensor->commands != 0;
}

uint64_t rg_tensor_read_count(const rg_tensor *tensor)
{
    return tensor != NULL ? tensor->read_count : 0;
}

/* A view that is used up takes one read from its parent. */
static void set_count(rg_tensor *tensor, uint64_t count)
{
    tensor->read_count = count;
    if (count > 0)
        return;
    give_range(tensor);
    if (tensor->parent != NULL && tensor->parent->read_count > 0)
        set_count(tensor->parent, tensor->parent->read_count - 1);
}

rg_status rg_tensor_set_read_count(rg_tensor *tensor, uint64_t count)
{
    RG_CHECK_NOT_NULL(tensor);
    RG_CHECK(tensor->commands != 0, RG_INVALID_ARGUMENT,
             "rg_tensor_set_read_count: the tensor is not a temporary");
    RG_CHECK(tensor->read_count > 0, RG_INVALID_STATE,
             "rg_tensor_set_read_count: the temporary is already released: its read count is 0");
    set_count(tensor, count);
    return RG_OK;
}

uint64_t rg_count_plus(uint64_t count, int64_t amount)
{
    const uint64_t sum = count + (uint64_t)amount;
    if (amount < 0)
        return sum > count ? 0 : sum;
    return sum < count ? UINT64_MAX : sum;
}

size_t rg_tensor_add_read_count(rg_tensor *const tensors[], size_t count, int64_t amount)
{
    size_t distinct = 0;
    for (size_t i = 0; tensors != NULL && i < count; i++) {
        bool first = tensors[i] != NULL;
        for (size_t k = 0; k < i && first; k++)
            first = tensors[k] != tensors[i];
        if (!first)
            continue;
        distinct++;
        if (tensors[i]->commands != 0 && tensors[i]->read_count > 0)
            set_count(tensors[i], rg_count_plus(tensors[i]->read_count, amount));
    }
    return distinct;
}

rg_status rg_tensor_usable(const rg_tensor *tensor, const rg_commands *commands, const char *who,
                           const char *prefix, const char *name)
{
    RG_CHECK(tensor != NULL, RG_INVALID_ARGUMENT, "%s: %s%s is NULL", who, prefix, name);
    RG_CHECK(tensor->device == commands->queue->device, RG_INVALID_ARGUMENT,
             "%s: %s%s and the commands are on different devices (%s, %s)", who, prefix, name,
             tensor->device->name, commands->queue->device->name);
    if (tensor->commands == 0)
        return RG_OK;
    RG_CHECK(tensor->commands == commands->id, RG_INVALID_ARGUMENT,
             "%s: %s%s is a temporary that belongs to other commands", who, prefix, name);
    for (const rg_tensor *t = tensor; t != NULL; t = t->parent)
        RG_CHECK(t->read_count > 0, RG_INVALID_STATE,
                 "%s: %s%s is a temporary that is already released: its read count is 0", who,
                 prefix, name);
    return RG_OK;
}

void rg_tensor_count_read(rg_tensor *tensor, uint64_t serial)
{
    if (tensor == NULL || tensor->commands == 0 || tensor->seen == serial)
        return;
    tensor->seen = serial;
    if (tensor->read_count > 0)
        set_count(tensor, tensor->read_count - 1);
}
