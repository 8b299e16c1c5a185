/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The CUDA backend: devices found at run time, memory from a pool, queues as streams.
 *
 * Submitting a list puts all its work into the stream and an event behind it. Whoever waits for
 * the list waits for the event, and then finishes it. The calling thread's current device is left
 * as it was. */
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/place.h"
#include "backend/cuda/strided_copy.h"
#include "backend/fifo.h"

#include <pthread.h>
#include <stdio.h>

typedef struct cuda_device {
    _Atomic int32_t refs; /* the opening, and every queue */
    rg_allocator allocator;
    int32_t index;
    rg_cuda_place place; /* without a stream */
    char isa[16], text[160];
    cudaMemPool_t pool;
    cudaStream_t memory; /* orders allocations; nothing else is put there */
    cudaStream_t copies; /* of the host's own */
    pthread_mutex_t copying;
} cuda_device;

typedef struct cuda_queue {
    cuda_device *device;
    cudaStream_t stream;
    bool owned; /* the stream is not the caller's */
    rg_fifo *fifo;
    pthread_mutex_t lock; /* of what follows, and of the order of submitted lists */
    cudaEvent_t *events;  /* that no list uses */
    size_t events_capacity, events_count;
} cuda_queue;

/* ---- errors ---- */

static rg_status status_of(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return RG_OK;
    case cudaErrorMemoryAllocation:
        return RG_OUT_OF_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
        return RG_NO_DEVICE;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorNotSupported:
    case cudaErrorCallRequiresNewerDriver:
        return RG_UNSUPPORTED;
    default:
        return RG_KERNEL_FAULT;
    }
}

/* Passes an error of CUDA on as a status and a sentence. */
static rg_status pass(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return RG_OK;
    (void)cudaGetLastError(); /* so that a later launch is not blamed for it */
    return rg_fail(status_of(error), "cuda: %s: %s", what, cudaGetErrorString(error));
}
#define TRY_CUDA(call, what) RG_TRY(pass(call, what))

/* Launches tell of a failure through CUDA's last error, where one that the caller has left unread
 * must not stand. */
static void forget_error(void)
{
    (void)cudaGetLastError();
}

/* ---- devices ---- */

static int32_t cuda_count(const char **reason)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver)
        *reason = "this machine has no NVIDIA driver, or the driver is too old";
    else
        *reason = error != cudaSuccess ? cudaGetErrorString(error) : "this machine has no GPU";
    return error == cudaSuccess ? count : 0;
}

/* Makes the device the thread's current one; leave() with what is returned. */
static int enter(const cuda_device *device)
{
    int before = -1;
    if (cudaGetDevice(&before) != cudaSuccess)
        before = -1;
    if (before != device->index)
        (void)cudaSetDevice(device->index);
    return before;
}

static void leave(const cuda_device *device, int before)
{
    if (before >= 0 && before != device->index)
        (void)cudaSetDevice(before);
}

/* Bytes of a block's shared memory that are left to what kernels declare for themselves. */
enum { STATIC_SHARED = 1024 };

static rg_status read_properties(cuda_device *device)
{
    struct cudaDeviceProp properties;
    int driver = 0, pools = 0;
    TRY_CUDA(cudaGetDeviceProperties(&properties, device->index), "properties of the device");
    TRY_CUDA(cudaDriverGetVersion(&driver), "version of the driver");
    TRY_CUDA(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device->index),
             "memory pools");
    RG_CHECK(pools, RG_UNSUPPORTED, "cuda: %s does not support memory pools", properties.name);
    device->place.multiprocessors = properties.multiProcessorCount;
    device->place.shared = (int32_t)properties.sharedMemPerBlockOptin - STATIC_SHARED;
    snprintf(device->isa, sizeof device->isa, "sm_%d%d", properties.major, properties.minor);
    snprintf(device->text, sizeof device->text,
             "%.80s, %.1f GiB, %d multiprocessors, %s, driver for CUDA %d.%d", properties.name,
             (double)properties.totalGlobalMem / (1 << 30), properties.multiProcessorCount,
             device->isa, driver / 1000, driver % 1000 / 10);
    return RG_OK;
}

static rg_status set_up(cuda_device *device)
{
    TRY_CUDA(cudaSetDevice(device->index), "the device");
    RG_TRY(read_properties(device));
    RG_CHECK(rg_cuda_has_kernels(), RG_UNSUPPORTED,
             "cuda: this build has no kernels for %s; it was built for other GPUs", device->isa);
    const struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = { .type = cudaMemLocationTypeDevice, .id = device->index },
    };
    TRY_CUDA(cudaMemPoolCreate(&device->pool, &properties), "a memory pool");
    uint64_t keep = UINT64_MAX; /* what is released serves the next allocation */
    TRY_CUDA(cudaMemPoolSetAttribute(device->pool, cudaMemPoolAttrReleaseThreshold, &keep),
             "the memory pool");
    TRY_CUDA(cudaStreamCreateWithFlags(&device->memory, cudaStreamNonBlocking), "a stream");
    TRY_CUDA(cudaStreamCreateWithFlags(&device->copies, cudaStreamNonBlocking), "a stream");
    return RG_OK;
}

static void cuda_close(void *context)
{
    cuda_device *device = context;
    if (--device->refs > 0)
        return;
    const int before = enter(device);
    rg_cudnn_destroy(device->place.cudnn);
    rg_cublaslt_destroy(device->place.cublaslt);
    if (device->copies != NULL)
        (void)cudaStreamDestroy(device->copies);
    if (device->memory != NULL) {
        (void)cudaStreamSynchronize(device->memory);
        (void)cudaStreamDestroy(device->memory);
    }
    if (device->pool != NULL)
        (void)cudaMemPoolDestroy(device->pool);
    (void)cudaGetLastError();
    leave(device, before);
    pthread_mutex_destroy(&device->copying);
    const rg_allocator allocator = device->allocator;
    rg_release(&allocator, device, sizeof *device);
}

static rg_status cuda_open(int32_t index, const rg_device_options *options,
                           const rg_allocator *allocator, void **context)
{
    RG_CHECK(options->threads == 0, RG_INVALID_ARGUMENT,
             "rg_device_create: the option threads applies to the CPU only, not to a GPU");
    RG_CHECK(options->isa == NULL, RG_INVALID_ARGUMENT,
             "rg_device_create: an instruction set can be chosen for the CPU only, not for a GPU");
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(cuda_device), &memory));
    cuda_device *device = memory;
    *device = (cuda_device){ .refs = 1, .allocator = *allocator, .index = index };
    device->place.tf32 = options->tf32;
    device->place.cudnn = rg_cudnn_create(&device->allocator, options->tf32);
    device->place.cublaslt = rg_cublaslt_create(&device->allocator, options->tf32);
    pthread_mutex_init(&device->copying, NULL);
    const int before = enter(device);
    const rg_status status = set_up(device);
    leave(device, before);
    if (status != RG_OK) {
        cuda_close(device);
        return status;
    }
    *context = device;
    return RG_OK;
}

static int32_t cuda_threads(const void *context)
{
    (void)context;
    return 1;
}

static const char *cuda_isa(const void *context)
{
    return ((const cuda_device *)context)->isa;
}

static void cuda_describe(const void *context, char *text, size_t capacity)
{
    snprintf(text, capacity, "%s", ((const cuda_device *)context)->text);
}

/* The row with such a kernel, or NULL. */
static const rg_cuda_row *row_of(const rg_kernel_table *table, int32_t id, rg_dtype dtype)
{
    const rg_cuda_table *const *tables = table->cuda;
    for (; tables != NULL && *tables != NULL; tables++) {
        for (int32_t i = 0; i < (*tables)->count; i++) {
            const rg_cuda_row *row = &(*tables)->rows[i];
            if (row->id == id && row->function[dtype] != NULL)
                return row;
        }
    }
    return NULL;
}

static void (*cuda_find(void *context, const rg_kernel_table *table, int32_t id,
                        rg_dtype dtype))(void)
{
    (void)context;
    const rg_cuda_row *row = rg_dtype_is_data(dtype) ? row_of(table, id, dtype) : NULL;
    return row != NULL ? (void (*)(void))row->function[dtype] : NULL;
}

static size_t cuda_scratch(void *context, const rg_kernel_table *table, int32_t id, rg_dtype dtype,
                           const void *args, uint32_t unaligned, size_t wanted)
{
    const cuda_device *device = context;
    const rg_cuda_row *row = row_of(table, id, dtype);
    const rg_cuda_scratch scratch = row != NULL ? row->scratch[dtype] : NULL;
    if (scratch == NULL)
        return wanted;
    const int before = enter(device);
    const size_t bytes = scratch(args, unaligned, &device->place);
    leave(device, before);
    return bytes;
}

/* ---- memory ---- */

/* In the order of the stream `memory`, which runs nothing: so the memory can be used at once, on
 * any stream. */
static cudaError_t take(const cuda_device *device, size_t size, void **pointer)
{
    cudaError_t error = cudaMallocFromPoolAsync(pointer, size, device->pool, device->memory);
    if (error != cudaSuccess)
        return error;
    error = cudaStreamSynchronize(device->memory);
    if (error != cudaSuccess)
        (void)cudaFreeAsync(*pointer, device->memory);
    return error;
}

static rg_status cuda_allocate(void *context, size_t size, void **pointer)
{
    const cuda_device *device = context;
    const int before = enter(device);
    cudaError_t error = take(device, size, pointer);
    if (error == cudaErrorMemoryAllocation) { /* what the pool keeps may lie in the way */
        (void)cudaGetLastError();
        (void)cudaMemPoolTrimTo(device->pool, 0);
        error = take(device, size, pointer);
    }
    leave(device, before);
    if (error != cudaErrorMemoryAllocation)
        return pass(error, "allocation");
    (void)cudaGetLastError();
    return rg_fail(RG_OUT_OF_MEMORY, "out of memory: cuda:%d cannot allocate %zu bytes",
                   device->index, size);
}

/* Nothing that uses the memory is running any more. */
static void cuda_release(void *context, void *pointer, size_t size)
{
    (void)size;
    const cuda_device *device = context;
    const int before = enter(device);
    if (cudaFreeAsync(pointer, device->memory) != cudaSuccess)
        (void)cudaGetLastError(); /* only after a fault that ended the device */
    leave(device, before);
}

static rg_status cuda_host_allocate(void *context, size_t size, void **pointer)
{
    const cuda_device *device = context;
    const int before = enter(device);
    const cudaError_t error = cudaHostAlloc(pointer, size, cudaHostAllocPortable);
    leave(device, before);
    return pass(error, "allocation of host memory");
}

static void cuda_host_release(void *context, void *pointer)
{
    const cuda_device *device = context;
    const int before = enter(device);
    (void)cudaFreeHost(pointer);
    forget_error();
    leave(device, before);
}

static rg_status cuda_check_pointer(void *context, const void *pointer)
{
    const cuda_device *device = context;
    struct cudaPointerAttributes attributes;
    TRY_CUDA(cudaPointerGetAttributes(&attributes, pointer), "kind of the memory");
    RG_CHECK(attributes.type != cudaMemoryTypeUnregistered, RG_INVALID_ARGUMENT,
             "rg_tensor_wrap: data is host memory that cuda:%d cannot access", device->index);
    RG_CHECK(attributes.type != cudaMemoryTypeDevice || attributes.device == device->index,
             RG_INVALID_ARGUMENT, "rg_tensor_wrap: data is memory of cuda:%d, not of cuda:%d",
             attributes.device, device->index);
    return RG_OK;
}

/* ---- copies ---- */

static size_t copy_bytes(const rg_copy_args *args)
{
    size_t bytes = (size_t)args->element;
    for (int32_t d = 0; d < args->rank; d++)
        bytes *= (size_t)args->dims[d];
    return bytes;
}

/* Puts a copy into the stream. Memory of the host that is not pinned is read or written before
 * this returns, in the order of the stream. */
static cudaError_t put_copy(const rg_copy_args *args, cudaStream_t stream)
{
    const bool staged = args->staging != NULL;
    void *dense = staged ? args->staging : args->device;
    const bool beyond = args->host != dense;
    const size_t bytes = copy_bytes(args);
    cudaError_t error = cudaSuccess;
    if (staged && args->to_host)
        rg_cuda_strided_copy(args, stream);
    if (args->to_host && beyond)
        error = cudaMemcpyAsync(args->host, dense, bytes, cudaMemcpyDefault, stream);
    else if (beyond)
        error = cudaMemcpyAsync(dense, args->host, bytes, cudaMemcpyDefault, stream);
    if (staged && !args->to_host && error == cudaSuccess)
        rg_cuda_strided_copy(args, stream);
    return error == cudaSuccess ? cudaPeekAtLastError() : error;
}

static rg_status copy_now(cuda_device *device, rg_copy_args *args)
{
    const size_t bytes = copy_bytes(args);
    if (!rg_copy_is_dense(args))
        RG_TRY(cuda_allocate(device, bytes, &args->staging));
    pthread_mutex_lock(&device->copying); /* the stream is shared */
    forget_error();
    cudaError_t error = put_copy(args, device->copies);
    const cudaError_t end = cudaStreamSynchronize(device->copies); /* whatever was put there */
    error = error == cudaSuccess ? end : error;
    pthread_mutex_unlock(&device->copying);
    if (args->staging != NULL)
        cuda_release(device, args->staging, bytes);
    return pass(error, "copy");
}

static rg_status cuda_copy(void *context, const rg_copy_args *args)
{
    cuda_device *device = context;
    rg_copy_args own = *args;
    if (copy_bytes(args) == 0)
        return RG_OK;
    const int before = enter(device);
    const rg_status status = copy_now(device, &own);
    leave(device, before);
    return status;
}

/* ---- queues ---- */

static void fail_list(rg_list *list, rg_status outcome, const char *text)
{
    if (list->outcome != RG_OK) /* the first failure counts */
        return;
    list->outcome = outcome;
    snprintf(list->text, sizeof list->text, "%s", text);
    list->fault_text = list->text;
}

static void note(rg_list *list, cudaError_t error)
{
    char text[160];
    if (error == cudaSuccess)
        return;
    (void)cudaGetLastError();
    snprintf(text, sizeof text, "the GPU failed: %s", cudaGetErrorString(error));
    fail_list(list, status_of(error), text);
}

/* Reads the fault words after the list has run; the first entry that faulted counts. */
static void read_faults(cuda_queue *queue, rg_list *list)
{
    uint32_t words[64]; /* those of number 64 * block and on */
    int32_t block = -1;
    const rg_entry *entry;
    for (size_t at = 0; at < list->bytes && list->outcome == RG_OK; at += entry->size) {
        entry = (const rg_entry *)(const void *)(list->entries + at);
        const int32_t word = entry->fault % 64;
        if (entry->fault_text == NULL)
            continue;
        if (entry->fault / 64 != block) {
            block = entry->fault / 64;
            const int32_t left = list->fault_count - 64 * block;
            const rg_copy_args args = { .device = (void *)(list->faults + 64 * block),
                                        .host = words,
                                        .dims = { left < 64 ? left : 64 },
                                        .strides = { 1 },
                                        .rank = 1,
                                        .element = sizeof words[0],
                                        .to_host = true };
            if (cuda_copy(queue->device, &args) != RG_OK)
                fail_list(list, RG_KERNEL_FAULT, rg_error_text());
        }
        if (list->outcome == RG_OK && words[word] != 0) {
            list->outcome = RG_KERNEL_FAULT;
            list->fault_text = entry->fault_text;
        }
    }
}

/* With the lock: an event that no list uses; NULL if there is none to be had. */
static cudaEvent_t take_event(cuda_queue *queue)
{
    cudaEvent_t event = NULL;
    if (queue->events_count > 0)
        event = queue->events[--queue->events_count];
    else if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess)
        event = NULL;
    return event;
}

static void give_event(cuda_queue *queue, cudaEvent_t event)
{
    if (rg_grow(&queue->device->allocator, (void **)&queue->events, &queue->events_capacity,
                queue->events_count, sizeof queue->events[0]) == RG_OK)
        queue->events[queue->events_count++] = event;
    else
        (void)cudaEventDestroy(event);
}

/* Waits for the end of a list. */
static void end_list(void *owner, rg_list *list)
{
    cuda_queue *queue = owner;
    cudaEvent_t event = list->token;
    const int before = enter(queue->device);
    note(list, event != NULL ? cudaEventSynchronize(event) : cudaStreamSynchronize(queue->stream));
    if (list->fault_count > 0)
        read_faults(queue, list);
    if (event != NULL) {
        pthread_mutex_lock(&queue->lock);
        give_event(queue, event);
        pthread_mutex_unlock(&queue->lock);
    }
    leave(queue->device, before);
}

static void free_queue(void *owner)
{
    cuda_queue *queue = owner;
    cuda_device *device = queue->device;
    const int before = enter(device);
    while (queue->events_count > 0)
        (void)cudaEventDestroy(queue->events[--queue->events_count]);
    if (queue->owned && queue->stream != NULL)
        (void)cudaStreamDestroy(queue->stream);
    (void)cudaGetLastError();
    leave(device, before);
    pthread_mutex_destroy(&queue->lock);
    rg_release(&device->allocator, queue->events, queue->events_capacity * sizeof(cudaEvent_t));
    rg_release(&device->allocator, queue, sizeof *queue);
    cuda_close(device);
}

static rg_status make_queue(cuda_device *device, cudaStream_t stream, bool owned, void **queue)
{
    void *memory;
    RG_TRY(rg_allocate_zero(&device->allocator, sizeof(cuda_queue), &memory));
    cuda_queue *made = memory;
    *made = (cuda_queue){ .device = device, .stream = stream, .owned = owned };
    pthread_mutex_init(&made->lock, NULL);
    device->refs++;
    rg_status status = RG_OK;
    if (owned) {
        const int before = enter(device);
        status = pass(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking), "a stream");
        leave(device, before);
    }
    const rg_fifo_owner owner = { .run = end_list, .closed = free_queue, .owner = made };
    if (status == RG_OK)
        status = rg_fifo_create(&device->allocator, &owner, &made->fifo);
    if (status != RG_OK) {
        free_queue(made);
        return status;
    }
    *queue = made;
    return RG_OK;
}

static rg_status cuda_queue_open(void *context, void **queue)
{
    return make_queue(context, NULL, true, queue);
}

static rg_status cuda_queue_wrap(void *context, void *stream, void **queue)
{
    cuda_device *device = context;
    int owner = device->index;
    RG_CHECK(stream != cudaStreamPerThread, RG_INVALID_ARGUMENT,
             "rg_queue_wrap: the per-thread default stream is not supported: its work has no "
             "single order");
    if (stream != NULL && stream != cudaStreamLegacy) /* the default stream is that of any device */
        TRY_CUDA(cudaStreamGetDevice(stream, &owner), "the stream");
    RG_CHECK(owner == device->index, RG_INVALID_ARGUMENT,
             "rg_queue_wrap: the stream belongs to cuda:%d, not to cuda:%d", owner, device->index);
    return make_queue(device, stream, false, queue);
}

static void cuda_queue_close(void *context)
{
    rg_fifo_close(((cuda_queue *)context)->fifo);
}

static cudaError_t put_entry(const rg_entry *entry, const rg_cuda_place *place)
{
    const void *args = entry + 1;
    if (entry->function == NULL)
        return put_copy(args, place->stream);
    ((rg_cuda_function)entry->function)(args, place);
    return cudaPeekAtLastError();
}

/* Puts the entries into a stream, up to the first that fails. */
static cudaError_t put_entries(const cuda_device *device, cudaStream_t stream, const rg_list *list)
{
    rg_cuda_place place = device->place;
    place.stream = stream;
    cudaError_t error = cudaSuccess;
    forget_error();
    if (list->fault_count > list->merged)
        error = cudaMemsetAsync((void *)list->faults, 0,
                                (size_t)list->fault_count * sizeof(uint32_t), stream);
    const rg_entry *entry;
    for (size_t at = 0; at < list->bytes && error == cudaSuccess; at += entry->size) {
        entry = (const rg_entry *)(const void *)(list->entries + at);
        place.scratch = entry->scratch;
        error = put_entry(entry, &place);
    }
    return error;
}

/* Puts the entries into the stream, then an event. */
static void put_list(cuda_queue *queue, rg_list *list)
{
    note(list, put_entries(queue->device, queue->stream, list));
    cudaEvent_t event = take_event(queue);
    if (event != NULL && cudaEventRecord(event, queue->stream) != cudaSuccess) {
        give_event(queue, event);
        event = NULL;
    }
    list->token = event; /* without one, its end is that of the stream */
    forget_error();
}

static void cuda_submit(void *context, rg_list *list)
{
    cuda_queue *queue = context;
    pthread_mutex_lock(&queue->lock);
    const int before = enter(queue->device);
    put_list(queue, list);
    leave(queue->device, before);
    const bool watched = list->watched;
    const bool behind = rg_fifo_submit(queue->fifo, list, false); /* now the list may be gone */
    pthread_mutex_unlock(&queue->lock);
    if (watched || behind) /* not with the lock, which the end of a list takes */
        rg_fifo_wake(queue->fifo);
}

static void cuda_wake(void *context)
{
    rg_fifo_wake(((cuda_queue *)context)->fifo);
}

static rg_status cuda_wait(void *context, rg_list *list, bool (*is_done)(rg_list *list))
{
    return rg_fifo_wait(((cuda_queue *)context)->fifo, list, is_done);
}

/* ---- replays: graphs of CUDA ---- */

/* A copy of the host's memory is made when it is put into a stream, and cannot be kept. */
static bool can_be_kept(const rg_list *list)
{
    const rg_entry *entry;
    for (size_t at = 0; at < list->bytes; at += entry->size) {
        entry = (const rg_entry *)(const void *)(list->entries + at);
        if (entry->function == NULL)
            return false;
    }
    return true;
}

/* Lets a stream of its own record the entries: nothing runs. */
static cudaError_t capture_on(const cuda_device *device, cudaStream_t stream, const rg_list *list,
                              cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess)
        return error;
    error = put_entries(device, stream, list);
    const cudaError_t end = cudaStreamEndCapture(stream, &graph);
    error = error == cudaSuccess ? end : error;
    if (error == cudaSuccess)
        error = cudaGraphInstantiate(exec, graph, 0);
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    return error;
}

static rg_status cuda_capture(void *context, const rg_list *list, void **captured)
{
    const cuda_device *device = context;
    cudaStream_t stream = NULL;
    cudaGraphExec_t exec = NULL;
    RG_CHECK(can_be_kept(list), RG_UNSUPPORTED, "cuda: host copies cannot be replayed");
    const int before = enter(device);
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) {
        error = capture_on(device, stream, list, &exec);
        (void)cudaStreamDestroy(stream);
    }
    forget_error();
    leave(device, before);
    *captured = exec;
    return pass(error, "capture");
}

static void cuda_let_go(void *context, void *captured)
{
    const cuda_device *device = context;
    const int before = enter(device);
    (void)cudaGraphExecDestroy(captured);
    forget_error();
    leave(device, before);
}

static void replay(const void *args, const rg_cuda_place *place)
{
    const rg_replay_args *k = args;
    if (k->captured == NULL || cudaGraphLaunch(k->captured, place->stream) != cudaSuccess)
        return; /* CUDA's last error tells */
    if (k->fault_count > 0)
        (void)cudaMemcpyAsync(k->merged, k->faults, (size_t)k->fault_count * sizeof(uint32_t),
                              cudaMemcpyDeviceToDevice, place->stream);
}

const rg_backend rg_backend_cuda = {
    .name = "cuda",
    .numbered = true,
    .stages = true,
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .threads = cuda_threads,
    .isa = cuda_isa,
    .describe = cuda_describe,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .host_allocate = cuda_host_allocate,
    .host_release = cuda_host_release,
    .check_pointer = cuda_check_pointer,
    .copy = cuda_copy,
    .find = cuda_find,
    .scratch = cuda_scratch,
    .capture = cuda_capture,
    .let_go = cuda_let_go,
    .replay = (void (*)(void))replay,
    .queue_open = cuda_queue_open,
    .queue_wrap = cuda_queue_wrap,
    .queue_close = cuda_queue_close,
    .submit = cuda_submit,
    .wake = cuda_wake,
    .wait = cuda_wait,
};
