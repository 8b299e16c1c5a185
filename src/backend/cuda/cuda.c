/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The CUDA backend: devices found at run time, memory from a pool, queues as streams. The calling
 * thread's current device is left as it was. */
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_queue.h"

#include <stdio.h>

/* ---- kernels ---- */

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
    const rg_cuda_device *device = context;
    const rg_cuda_row *row = row_of(table, id, dtype);
    const rg_cuda_scratch scratch = row != NULL ? row->scratch[dtype] : NULL;
    if (scratch == NULL)
        return wanted;
    const int before = rg_cuda_enter(device);
    const size_t bytes = scratch(args, unaligned, &device->target);
    rg_cuda_leave(device, before);
    return bytes;
}

/* ---- replays: graphs of CUDA ---- */

/* A copy of the host's memory is made when it is put into a stream, and cannot be replayed. */
static bool can_be_replayed(const rg_backend_submission *submission)
{
    const rg_entry *entry;
    for (size_t at = 0; at < submission->bytes; at += entry->size) {
        entry = (const rg_entry *)(const void *)(submission->entries + at);
        if (entry->function == NULL)
            return false;
    }
    return true;
}

/* Records the entries on a stream that serves nothing else: nothing runs. */
static cudaError_t capture_on(const rg_cuda_device *device, cudaStream_t stream,
                              const rg_backend_submission *submission, cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess)
        return error;
    error = rg_cuda_put_entries(device, stream, submission);
    const cudaError_t end = cudaStreamEndCapture(stream, &graph);
    error = error == cudaSuccess ? end : error;
    if (error == cudaSuccess)
        error = cudaGraphInstantiate(exec, graph, 0);
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    return error;
}

static rg_status cuda_capture(void *context, const rg_backend_submission *submission,
                              void **captured)
{
    const rg_cuda_device *device = context;
    cudaStream_t stream = NULL;
    cudaGraphExec_t exec = NULL;
    RG_CHECK(can_be_replayed(submission), RG_UNSUPPORTED, "cuda: host copies cannot be replayed");
    const int before = rg_cuda_enter(device);
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) {
        error = capture_on(device, stream, submission, &exec);
        (void)cudaStreamDestroy(stream);
    }
    rg_cuda_forget_error();
    rg_cuda_leave(device, before);
    *captured = exec;
    return rg_cuda_pass(error, "capture");
}

static void cuda_let_go(void *context, void *captured)
{
    const rg_cuda_device *device = context;
    const int before = rg_cuda_enter(device);
    (void)cudaGraphExecDestroy(captured);
    rg_cuda_forget_error();
    rg_cuda_leave(device, before);
}

static void replay(const void *args, const rg_cuda_target *target)
{
    const rg_replay_args *k = args;
    if (k->captured == NULL || cudaGraphLaunch(k->captured, target->stream) != cudaSuccess)
        return; /* see CUDA's last error */
    if (k->fault_count > 0)
        (void)cudaMemcpyAsync(k->merged, k->faults, (size_t)k->fault_count * sizeof(uint32_t),
                              cudaMemcpyDeviceToDevice, target->stream);
}

/* ---- the backend ---- */

static int32_t cuda_threads(const void *context)
{
    (void)context;
    return 1;
}

static const char *cuda_isa(const void *context)
{
    return ((const rg_cuda_device *)context)->isa;
}

static void cuda_describe(const void *context, char *text, size_t capacity)
{
    snprintf(text, capacity, "%s", ((const rg_cuda_device *)context)->text);
}

const rg_backend rg_backend_cuda = {
    .name = "cuda",
    .numbered = true,
    .stages = true,
    .count = rg_cuda_count,
    .open = rg_cuda_open,
    .close = rg_cuda_close,
    .threads = cuda_threads,
    .isa = cuda_isa,
    .describe = cuda_describe,
    .allocate = rg_cuda_allocate,
    .release = rg_cuda_release,
    .host_allocate = rg_cuda_host_allocate,
    .host_release = rg_cuda_host_release,
    .check_pointer = rg_cuda_check_pointer,
    .copy = rg_cuda_copy,
    .find = cuda_find,
    .scratch = cuda_scratch,
    .capture = cuda_capture,
    .let_go = cuda_let_go,
    .replay = (void (*)(void))replay,
    .queue_open = rg_cuda_queue_open,
    .queue_wrap = rg_cuda_queue_wrap,
    .queue_close = rg_cuda_queue_close,
    .submit = rg_cuda_submit,
    .wake = rg_cuda_wake,
    .wait = rg_cuda_wait,
};
