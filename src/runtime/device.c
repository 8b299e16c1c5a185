/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Devices by name, queues, storage: what keeps what alive. */
#include "backend/cpu/isa.h"
#include "core/private_api.h"
#include "runtime/objects.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_backend *const backends[] = {
    &rg_backend_cpu,
#if RG_HAVE_CUDA
    &rg_backend_cuda,
#endif
};
enum { BACKENDS = sizeof backends / sizeof backends[0] };

static void write_name(const rg_backend *backend, int32_t index, char *name, size_t capacity)
{
    if (backend->numbered)
        snprintf(name, capacity, "%s:%d", backend->name, index);
    else
        snprintf(name, capacity, "%s", backend->name);
}

rg_device_options rg_device_options_default(void)
{
    return (rg_device_options){ .size = sizeof(rg_device_options) };
}

/* "cpu", "cuda" or "cuda:1". */
static rg_status find_backend(const char *name, const rg_backend **backend, int32_t *index)
{
    const char *colon = strchr(name, ':');
    const size_t length = colon != NULL ? (size_t)(colon - name) : strlen(name);
    *index = 0;
    if (colon != NULL) {
        char *end;
        const long number = strtol(colon + 1, &end, 10);
        RG_CHECK(colon[1] >= '0' && colon[1] <= '9' && *end == 0 && number <= 4096,
                 RG_INVALID_ARGUMENT,
                 "unknown device '%s': a number from 0 to 4096 must follow the colon", name);
        *index = (int32_t)number;
    }
    for (int b = 0; b < BACKENDS; b++) {
        if (strlen(backends[b]->name) == length && memcmp(backends[b]->name, name, length) == 0) {
            const char *reason = "";
            const int32_t count = backends[b]->count(&reason);
            RG_CHECK(count > 0, RG_NO_DEVICE, "the device '%s' is not available: %s", name, reason);
            RG_CHECK(*index < count, RG_NO_DEVICE,
                     "the device '%s' is not available: this machine has only %d of its kind", name,
                     count);
            *backend = backends[b];
            return RG_OK;
        }
    }
    RG_CHECK(!(length == 4 && memcmp(name, "cuda", 4) == 0), RG_NO_DEVICE,
             "the device '%s' is not available: this build has no CUDA", name);
    return rg_fail(RG_INVALID_ARGUMENT, "unknown device '%s'; the devices are cpu, cuda and cuda:N",
                   name);
}

/* ---- heaps of submissions that have run ---- */

enum {
    MIN_SPARE_BYTES = 64 << 10, /* smaller ones the C library keeps */
    MAX_SPARE_BYTES = 256 << 20
};

/* Memory that nothing refers to any more. A spare does not keep its device alive. */
static void free_storage(rg_device *device, rg_storage *storage)
{
    if (storage->bytes > 0)
        device->backend->release(device->context, storage->data, storage->bytes);
    rg_release(&device->allocator, storage, sizeof *storage);
}

/* Becomes the latest spare; the others move back by one, and the last is freed. */
static void keep_spare(rg_device *device, rg_storage *storage)
{
    for (int i = 0; i < RG_SPARES && storage != NULL; i++)
        storage = atomic_exchange(&device->spares[i], storage);
    if (storage != NULL)
        free_storage(device, storage);
}

/* One of at least that size, but not much more; or NULL. */
static rg_storage *take_spare(rg_device *device, size_t bytes)
{
    for (int i = 0; i < RG_SPARES; i++) {
        rg_storage *found = atomic_exchange(&device->spares[i], NULL);
        if (found == NULL)
            continue;
        if (found->bytes >= bytes && found->bytes / 4 <= bytes)
            return found;
        rg_storage *other = atomic_exchange(&device->spares[i], found);
        if (other != NULL)
            free_storage(device, other);
    }
    return NULL;
}

/* Whether there were any. */
static bool free_spares(rg_device *device)
{
    bool any = false;
    for (int i = 0; i < RG_SPARES; i++) {
        rg_storage *found = atomic_exchange(&device->spares[i], NULL);
        any |= found != NULL;
        if (found != NULL)
            free_storage(device, found);
    }
    return any;
}

rg_status rg_heap_create(rg_device *device, size_t bytes, rg_storage **storage)
{
    const bool spare =
        device->backend->keeps_heaps && bytes >= MIN_SPARE_BYTES && bytes <= MAX_SPARE_BYTES;
    *storage = spare ? take_spare(device, bytes) : NULL;
    if (*storage != NULL) {
        (*storage)->refs = 1;
        (*storage)->device = rg_device_retain(device);
        return RG_OK;
    }
    RG_TRY(rg_storage_create(device, bytes, storage));
    (*storage)->is_heap = spare;
    return RG_OK;
}

/* ---- devices ---- */

rg_status rg_device_create(const char *name, const rg_device_options *options, rg_device **device)
{
    RG_CHECK_NOT_NULL(device);
    *device = NULL;
    RG_CHECK_NOT_NULL(name);
    rg_device_options all = rg_device_options_default();
    if (options != NULL) {
        RG_CHECK(options->size > sizeof options->size && options->size <= sizeof all,
                 RG_INVALID_ARGUMENT,
                 "rg_device_create: the options have size %u; initialize them with "
                 "rg_device_options_default()",
                 options->size);
        memcpy(&all, options, options->size);
    }
    const rg_backend *backend = NULL;
    int32_t index;
    RG_TRY(find_backend(name, &backend, &index));
    const rg_allocator allocator = all.allocator != NULL ? *all.allocator : rg_object_allocator;
    RG_CHECK(allocator.allocate != NULL && allocator.release != NULL, RG_INVALID_ARGUMENT,
             "rg_device_create: a function of the allocator is NULL");

    void *memory;
    RG_TRY(rg_allocate_zero(&allocator, sizeof(rg_device), &memory));
    rg_device *made = memory;
    *made = (rg_device){ .refs = 1, .backend = backend, .allocator = allocator };
    write_name(backend, index, made->name, sizeof made->name);
    const rg_status status =
        backend->open(index, &all, &made->allocator, &made->choices, &made->context);
    if (status != RG_OK) {
        rg_release(&allocator, made, sizeof *made);
        return status;
    }
    *device = made;
    return RG_OK;
}

RG_PRIVATE_API rg_device *rg_device_retain(rg_device *device)
{
    device->refs++;
    return device;
}

void rg_device_destroy(rg_device *device)
{
    if (device == NULL || --device->refs > 0)
        return;
    free_spares(device);
    device->backend->close(device->context);
    const rg_allocator allocator = device->allocator;
    rg_release(&allocator, device, sizeof *device);
}

rg_status rg_device_list(int32_t index, char *name, size_t capacity)
{
    RG_CHECK_NOT_NULL(name);
    RG_CHECK(index >= 0, RG_INVALID_ARGUMENT,
             "rg_device_list: the index must be at least 0, not %d", index);
    for (int b = 0; b < BACKENDS; b++) {
        const char *reason;
        const int32_t count = backends[b]->count(&reason);
        if (index < count) {
            write_name(backends[b], index, name, capacity);
            return RG_OK;
        }
        index -= count;
    }
    return rg_fail(RG_NO_DEVICE, "this machine has no more devices");
}

const char *rg_device_name(const rg_device *device)
{
    return device != NULL ? device->name : "";
}

int32_t rg_device_threads(const rg_device *device)
{
    return device != NULL ? device->backend->threads(device->context) : 0;
}

const char *rg_device_isa(const rg_device *device)
{
    return device != NULL ? device->backend->isa(device->context) : "";
}

const char *rg_device_isa_list(int32_t index)
{
    return index >= 0 && index <= rg_isa_best() ? rg_isa_name(index) : NULL;
}

/* The names of version 0.1. */
const char *rg_device_rung(const rg_device *device)
{
    return rg_device_isa(device);
}

const char *rg_device_rung_list(int32_t index)
{
    return rg_device_isa_list(index);
}

size_t rg_device_describe(const rg_device *device, char *text, size_t capacity)
{
    char whole[256] = "";
    if (device != NULL)
        device->backend->describe(device->context, whole, sizeof whole);
    if (capacity > 0)
        snprintf(text, capacity, "%s", whole);
    return strlen(whole);
}

/* ---- queues ---- */

/* With `stream` a queue over that, else one of its own. */
static rg_status make_queue(rg_device *device, void *const *stream, rg_queue **queue)
{
    const rg_backend *backend = device->backend;
    void *memory, *inner;
    RG_TRY(rg_allocate_zero(&device->allocator, sizeof(rg_queue), &memory));
    const rg_status status = stream != NULL ? backend->queue_wrap(device->context, *stream, &inner)
                                            : backend->queue_open(device->context, &inner);
    if (status != RG_OK) {
        rg_release(&device->allocator, memory, sizeof(rg_queue));
        return status;
    }
    rg_queue *made = memory;
    *made = (rg_queue){ .refs = 1, .device = rg_device_retain(device), .queue = inner };
    *queue = made;
    return RG_OK;
}

rg_status rg_queue_create(rg_device *device, rg_queue **queue)
{
    RG_CHECK_NOT_NULL(queue);
    *queue = NULL;
    RG_CHECK_NOT_NULL(device);
    return make_queue(device, NULL, queue);
}

rg_status rg_queue_wrap(rg_device *device, void *stream, rg_queue **queue)
{
    RG_CHECK_NOT_NULL(queue);
    *queue = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK(device->backend->queue_wrap != NULL, RG_UNSUPPORTED,
             "rg_queue_wrap: %s has no CUDA streams", device->name);
    return make_queue(device, &stream, queue);
}

rg_queue *rg_queue_retain(rg_queue *queue)
{
    queue->refs++;
    return queue;
}

void rg_queue_destroy(rg_queue *queue)
{
    if (queue == NULL)
        return;
    queue->device->backend->wake(
        queue->queue); /* there may be no thread that waits for what is pending */
    rg_queue_release(queue);
}

void rg_queue_release(rg_queue *queue)
{
    if (--queue->refs > 0)
        return;
    rg_device *device = queue->device;
    device->backend->queue_close(queue->queue);
    rg_spare_release(&device->allocator, atomic_load(&queue->spare));
    rg_release(&device->allocator, queue, sizeof *queue);
    rg_device_destroy(device);
}

/* ---- storage ---- */

rg_status rg_storage_create(rg_device *device, size_t bytes, rg_storage **storage)
{
    void *memory, *data = NULL;
    RG_TRY(rg_allocate_zero(&device->allocator, sizeof(rg_storage), &memory));
    if (bytes > 0) {
        rg_status status = device->backend->allocate(device->context, bytes, &data);
        if (status != RG_OK && free_spares(device))
            status = device->backend->allocate(device->context, bytes, &data);
        if (status != RG_OK) {
            rg_release(&device->allocator, memory, sizeof(rg_storage));
            return status;
        }
    }
    rg_storage *made = memory;
    *made =
        (rg_storage){ .refs = 1, .device = rg_device_retain(device), .data = data, .bytes = bytes };
    *storage = made;
    return RG_OK;
}

rg_storage *rg_storage_retain(rg_storage *storage)
{
    storage->refs++;
    return storage;
}

void rg_storage_release(rg_storage *storage)
{
    if (storage == NULL || --storage->refs > 0)
        return;
    rg_device *device = storage->device;
    if (storage->is_heap) {
        keep_spare(device, storage);
    } else {
        if (storage->release != NULL)
            storage->release(storage->context);
        rg_storage_release(storage->block);
        free_storage(device, storage);
    }
    rg_device_destroy(device);
}

/* ---- host memory ---- */

RG_PRIVATE_API const rg_backend_streams *rg_device_streams(const rg_device *device)
{
#if RG_HAVE_CUDA
    if (device->backend == &rg_backend_cuda)
        return &rg_cuda_streams;
#endif
    (void)device;
    return NULL;
}

RG_PRIVATE_API rg_status rg_host_allocate(rg_device *device, size_t bytes, void **pointer)
{
    *pointer = NULL;
    if (bytes == 0 || device->backend->host_allocate == NULL)
        return rg_allocate(&device->allocator, bytes, pointer);
    return device->backend->host_allocate(device->context, bytes, pointer);
}

RG_PRIVATE_API void rg_host_release(rg_device *device, void *pointer, size_t bytes)
{
    if (device->backend->host_release == NULL)
        rg_release(&device->allocator, pointer, bytes);
    else if (pointer != NULL)
        device->backend->host_release(device->context, pointer);
}

/* ---- labels ---- */

void rg_label_clear(const rg_allocator *allocator, char **label)
{
    if (*label != NULL)
        rg_release(allocator, *label, strlen(*label) + 1);
    *label = NULL;
}

rg_status rg_label_set(const rg_allocator *allocator, char **label, const char *text)
{
    void *copy;
    RG_TRY(rg_allocate(allocator, strlen(text) + 1, &copy));
    memcpy(copy, text, strlen(text) + 1);
    rg_label_clear(allocator, label);
    *label = copy;
    return RG_OK;
}
