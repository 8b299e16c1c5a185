/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Queues of the CUDA backend. A submission puts all its work into the stream, followed by an
 * event. A thread that waits for the submission waits for the event, and then finishes the
 * submission. */
#include "backend/cuda/cuda_queue.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/fifo.h"

#include <stdio.h>

typedef struct cuda_queue {
    rg_cuda_device *device;
    cudaStream_t stream;
    bool owned; /* the stream is not the caller's */
    rg_fifo *fifo;
    pthread_mutex_t lock; /* of what follows, and of the order of submitted submissions */
    cudaEvent_t *events;  /* that no submission uses */
    size_t events_capacity, events_count;
} cuda_queue;

/* ---- the end of a submission ---- */

static void fail_submission(rg_backend_submission *submission, rg_status outcome, const char *text)
{
    if (submission->outcome != RG_OK) /* the first failure counts */
        return;
    submission->outcome = outcome;
    snprintf(submission->text, sizeof submission->text, "%s", text);
    submission->fault_text = submission->text;
}

static void note(rg_backend_submission *submission, cudaError_t error)
{
    char text[160];
    if (error == cudaSuccess)
        return;
    rg_cuda_forget_error();
    snprintf(text, sizeof text, "the GPU failed: %s", cudaGetErrorString(error));
    fail_submission(submission, rg_cuda_status(error), text);
}

/* Reads the fault words after the submission has run; the first entry that faulted counts. */
static void read_faults(cuda_queue *queue, rg_backend_submission *submission)
{
    uint32_t words[64]; /* those of number 64 * block and on */
    int32_t block = -1;
    const rg_entry *entry;
    for (size_t at = 0; at < submission->bytes && submission->outcome == RG_OK; at += entry->size) {
        entry = (const rg_entry *)(const void *)(submission->entries + at);
        const int32_t word = entry->fault % 64;
        if (entry->fault_text == NULL)
            continue;
        if (entry->fault / 64 != block) {
            block = entry->fault / 64;
            const int32_t left = submission->fault_count - 64 * block;
            const rg_copy_args args = { .device = (void *)(submission->faults + 64 * block),
                                        .host = words,
                                        .dims = { left < 64 ? left : 64 },
                                        .strides = { 1 },
                                        .rank = 1,
                                        .element = sizeof words[0],
                                        .to_host = true };
            if (rg_cuda_copy(queue->device, &args) != RG_OK)
                fail_submission(submission, RG_KERNEL_FAULT, rg_error_text());
        }
        if (submission->outcome == RG_OK && words[word] != 0) {
            submission->outcome = RG_KERNEL_FAULT;
            submission->fault_text = entry->fault_text;
        }
    }
}

/* With the lock: an event that no submission uses; NULL if none can be made. */
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

/* Waits for the end of a submission. */
static void end_submission(void *owner, rg_backend_submission *submission)
{
    cuda_queue *queue = owner;
    cudaEvent_t event = submission->token;
    const int before = rg_cuda_enter(queue->device);
    note(submission,
         event != NULL ? cudaEventSynchronize(event) : cudaStreamSynchronize(queue->stream));
    if (submission->fault_count > 0)
        read_faults(queue, submission);
    if (event != NULL) {
        pthread_mutex_lock(&queue->lock);
        give_event(queue, event);
        pthread_mutex_unlock(&queue->lock);
    }
    rg_cuda_leave(queue->device, before);
}

/* ---- queues ---- */

static void free_queue(void *owner)
{
    cuda_queue *queue = owner;
    rg_cuda_device *device = queue->device;
    const int before = rg_cuda_enter(device);
    while (queue->events_count > 0)
        (void)cudaEventDestroy(queue->events[--queue->events_count]);
    if (queue->owned && queue->stream != NULL)
        (void)cudaStreamDestroy(queue->stream);
    rg_cuda_forget_error();
    rg_cuda_leave(device, before);
    pthread_mutex_destroy(&queue->lock);
    rg_release(&device->allocator, queue->events, queue->events_capacity * sizeof(cudaEvent_t));
    rg_release(&device->allocator, queue, sizeof *queue);
    rg_cuda_close(device);
}

static rg_status make_queue(rg_cuda_device *device, cudaStream_t stream, bool owned, void **queue)
{
    void *memory;
    RG_TRY(rg_allocate_zero(&device->allocator, sizeof(cuda_queue), &memory));
    cuda_queue *made = memory;
    *made = (cuda_queue){ .device = device, .stream = stream, .owned = owned };
    pthread_mutex_init(&made->lock, NULL);
    device->refs++;
    rg_status status = RG_OK;
    if (owned) {
        const int before = rg_cuda_enter(device);
        status = rg_cuda_pass(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking),
                              "a stream");
        rg_cuda_leave(device, before);
    }
    const rg_fifo_owner owner = { .run = end_submission, .closed = free_queue, .owner = made };
    if (status == RG_OK)
        status = rg_fifo_create(&device->allocator, &owner, &made->fifo);
    if (status != RG_OK) {
        free_queue(made);
        return status;
    }
    *queue = made;
    return RG_OK;
}

rg_status rg_cuda_queue_open(void *context, void **queue)
{
    return make_queue(context, NULL, true, queue);
}

rg_status rg_cuda_queue_wrap(void *context, void *stream, void **queue)
{
    rg_cuda_device *device = context;
    int owner = device->index;
    RG_CHECK(stream != cudaStreamPerThread, RG_INVALID_ARGUMENT,
             "rg_queue_wrap: the per-thread default stream is not supported: its work has no "
             "single order");
    if (stream != NULL && stream != cudaStreamLegacy) /* the default stream is that of any device */
        RG_TRY_CUDA(cudaStreamGetDevice(stream, &owner), "the stream");
    RG_CHECK(owner == device->index, RG_INVALID_ARGUMENT,
             "rg_queue_wrap: the stream belongs to cuda:%d, not to cuda:%d", owner, device->index);
    return make_queue(device, stream, false, queue);
}

void rg_cuda_queue_close(void *context)
{
    rg_fifo_close(((cuda_queue *)context)->fifo);
}

/* ---- submission ---- */

static cudaError_t put_entry(const rg_entry *entry, const rg_cuda_target *target)
{
    const void *args = entry + 1;
    if (entry->function == NULL)
        return rg_cuda_put_copy(args, target->stream);
    ((rg_cuda_function)entry->function)(args, target);
    return cudaPeekAtLastError();
}

cudaError_t rg_cuda_put_entries(const rg_cuda_device *device, cudaStream_t stream,
                                const rg_backend_submission *submission)
{
    rg_cuda_target target = device->target;
    target.stream = stream;
    cudaError_t error = cudaSuccess;
    rg_cuda_forget_error();
    if (submission->fault_count > submission->merged_fault_count)
        error = cudaMemsetAsync((void *)submission->faults, 0,
                                (size_t)submission->fault_count * sizeof(uint32_t), stream);
    const rg_entry *entry;
    for (size_t at = 0; at < submission->bytes && error == cudaSuccess; at += entry->size) {
        entry = (const rg_entry *)(const void *)(submission->entries + at);
        target.scratch = entry->scratch;
        error = put_entry(entry, &target);
    }
    return error;
}

/* Puts the entries into the stream, then an event. */
static void put_submission(cuda_queue *queue, rg_backend_submission *submission)
{
    note(submission, rg_cuda_put_entries(queue->device, queue->stream, submission));
    cudaEvent_t event = take_event(queue);
    if (event != NULL && cudaEventRecord(event, queue->stream) != cudaSuccess) {
        give_event(queue, event);
        event = NULL;
    }
    submission->token = event; /* without one, the submission ends when the stream does */
    rg_cuda_forget_error();
}

void rg_cuda_submit(void *context, rg_backend_submission *submission)
{
    cuda_queue *queue = context;
    pthread_mutex_lock(&queue->lock);
    const int before = rg_cuda_enter(queue->device);
    put_submission(queue, submission);
    rg_cuda_leave(queue->device, before);
    const bool watched = submission->has_handler;
    const bool behind =
        rg_fifo_submit(queue->fifo, submission, false); /* it may have been freed by now */
    pthread_mutex_unlock(&queue->lock);
    if (watched || behind) /* without the lock: ending a submission takes it */
        rg_fifo_wake(queue->fifo);
}

void rg_cuda_wake(void *context)
{
    rg_fifo_wake(((cuda_queue *)context)->fifo);
}

rg_status rg_cuda_wait(void *context, rg_backend_submission *submission,
                       bool (*is_done)(rg_backend_submission *submission))
{
    return rg_fifo_wait(((cuda_queue *)context)->fifo, submission, is_done);
}
