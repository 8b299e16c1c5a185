/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* cuDNN, version 9, opened at run time, on the tensors of the row: the library, and timing. */
#include "cli/peer_api.h"

#if RG_HAVE_CUDNN
#include "cli/peer_cudnn.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>

/* ---- the library ---- */

rg_cudnn_functions rg_cudnn; /* filled by open_peer, as what follows */
static cudnnHandle_t handle;
static cudaStream_t stream;
static cudaEvent_t before, after;

static rg_status load(void)
{
    const char *named = getenv("RG_CUDNN");
    const char *path = named != NULL && named[0] != 0 ? named : "libcudnn.so.9";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed */
    RG_CHECK(library != NULL, RG_UNSUPPORTED,
             "cudnn: cannot load %s; set RG_CUDNN to the path of the library", path);
#define F(name) RG_TRY(rg_peer_symbol("cudnn", library, "cudnn" #name, &rg_cudnn.name))
    RG_CUDNN_PEER_FUNCTIONS(F);
#undef F
    return RG_OK;
}

static void close_peer(void)
{
    if (handle != NULL)
        (void)rg_cudnn.Destroy(handle);
    if (before != NULL)
        (void)cudaEventDestroy(before);
    if (after != NULL)
        (void)cudaEventDestroy(after);
    if (stream != NULL)
        (void)cudaStreamDestroy(stream);
    handle = NULL;
    before = after = NULL;
    stream = NULL;
}

static rg_status start(const rg_device *device)
{
    const char *colon = strchr(rg_device_name(device), ':'); /* "cuda:0" */
    const int index = colon != NULL ? atoi(colon + 1) : 0;
    RG_CHECK(cudaSetDevice(index) == cudaSuccess &&
                 cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                 cudaEventCreate(&before) == cudaSuccess && cudaEventCreate(&after) == cudaSuccess,
             RG_UNSUPPORTED, "cudnn: cannot create a stream on %s: %s", rg_device_name(device),
             cudaGetErrorString(cudaGetLastError()));
    cudnnStatus_t status = rg_cudnn.Create(&handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = rg_cudnn.SetStream(handle, stream);
    RG_CHECK(status == CUDNN_STATUS_SUCCESS, RG_UNSUPPORTED, "cudnn: cannot be initialized: %s",
             rg_cudnn.GetErrorString(status));
    return RG_OK;
}

static rg_status open_peer(const rg_device *device)
{
    RG_CHECK(rg_bench_on_gpu(device), RG_UNSUPPORTED, "cudnn runs only on a GPU");
    RG_TRY(load());
    const rg_status status = start(device);
    if (status != RG_OK)
        close_peer();
    return status;
}

rg_status rg_cudnn_check(const rg_cudnn_job *j, cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return RG_OK;
    (void)cudaGetLastError(); /* so that no later launch is blamed for it */
    return rg_fail(RG_UNSUPPORTED, "cudnn: %s %s in %s: %s", j->row->test->op->name,
                   j->row->c->name, rg_dtype_name(j->row->dtype), rg_cudnn.GetErrorString(status));
}

/* ---- timing ---- */

static cudnnStatus_t run_calls(const rg_cudnn_job *j, int32_t calls)
{
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    for (int32_t i = 0; i < calls && status == CUDNN_STATUS_SUCCESS; i++)
        status = j->run(j);
    return status;
}

/* `calls` calls, launched as one. */
static rg_status keep_calls(const rg_cudnn_job *j, int32_t calls, cudaGraphExec_t *kept)
{
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    const cudnnStatus_t status =
        error == cudaSuccess ? run_calls(j, calls) : CUDNN_STATUS_EXECUTION_FAILED;
    if (error == cudaSuccess)
        error = cudaStreamEndCapture(stream, &graph);
    if (error == cudaSuccess && status == CUDNN_STATUS_SUCCESS)
        error = cudaGraphInstantiate(kept, graph, 0);
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    RG_TRY(rg_cudnn_check(j, status));
    RG_CHECK(error == cudaSuccess, RG_UNSUPPORTED,
             "cudnn: %s %s cannot be captured in a CUDA graph: %s", j->row->test->op->name,
             j->row->c->name, cudaGetErrorString(error));
    return RG_OK;
}

/* The time of one call in milliseconds; `kept`: a graph, launched RG_BENCH_REPLAYS times for all of
 * them, or NULL. */
static rg_status time_round(const rg_cudnn_job *j, int32_t calls, cudaGraphExec_t kept, double *ms)
{
    float elapsed = 0;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudaError_t error = cudaEventRecord(before, stream);
    if (kept == NULL)
        status = run_calls(j, calls);
    for (int i = 0; kept != NULL && i < RG_BENCH_REPLAYS && error == cudaSuccess; i++)
        error = cudaGraphLaunch(kept, stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(after, stream);
    if (error == cudaSuccess)
        error = cudaEventSynchronize(after);
    RG_TRY(rg_cudnn_check(j, status));
    if (error == cudaSuccess)
        error = cudaEventElapsedTime(&elapsed, before, after);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    RG_CHECK(error == cudaSuccess, RG_KERNEL_FAULT, "cudnn: a call failed: %s",
             cudaGetErrorString(error));
    *ms = (double)elapsed / calls;
    return RG_OK;
}

typedef struct rounds {
    const rg_cudnn_job *job;
    int32_t calls;
    cudaGraphExec_t kept; /* NULL: calls one by one */
} rounds;

static rg_status time_long_round(const void *of, double *ms)
{
    const rounds *t = of;
    return time_round(t->job, t->calls, t->kept, ms);
}

/* As many calls in a round as ours; the first rounds find out how many. */
static rg_status time_job(const rg_cudnn_job *j, double seconds, double *ms)
{
    enum { TRIAL = 8 };
    cudaGraphExec_t kept = NULL;
    RG_TRY(time_round(j, 1, NULL, ms));
    RG_TRY(time_round(j, TRIAL, NULL, ms));
    int32_t calls = rg_bench_calls_of(*ms, seconds);
    if (j->row->replay) {
        const int32_t part = (calls + RG_BENCH_REPLAYS - 1) / RG_BENCH_REPLAYS;
        RG_TRY(keep_calls(j, part, &kept));
        calls = part * RG_BENCH_REPLAYS;
    }
    const rounds t = { j, calls, kept };
    const rg_status status = rg_bench_time_rounds(time_long_round, &t, seconds, ms);
    if (kept != NULL)
        (void)cudaGraphExecDestroy(kept);
    return status;
}

static void release(rg_cudnn_job *j)
{
    if (j->activation != NULL)
        (void)rg_cudnn.DestroyActivationDescriptor(j->activation);
    if (j->pooling != NULL)
        (void)rg_cudnn.DestroyPoolingDescriptor(j->pooling);
    if (j->dropout != NULL)
        (void)rg_cudnn.DestroyDropoutDescriptor(j->dropout);
    if (j->lrn != NULL)
        (void)rg_cudnn.DestroyLRNDescriptor(j->lrn);
    if (j->channels != NULL)
        (void)rg_cudnn.DestroyTensorDescriptor(j->channels);
    if (j->result != NULL)
        (void)rg_cudnn.DestroyTensorDescriptor(j->result);
    if (j->tensor != NULL)
        (void)rg_cudnn.DestroyTensorDescriptor(j->tensor);
    (void)cudaStreamSynchronize(stream); /* before memory that it uses is given back */
    rg_cudnn_destroy(j->dnn);
    rg_cublaslt_destroy(j->blas);
    for (int i = 0; i < RG_CUDNN_SPARES; i++)
        rg_tensor_destroy(j->spare[i]);
}

static rg_status time_row(const rg_bench_row *row, double seconds, rg_peer_time *time)
{
    rg_cudnn_job j = { .row = row,
                       .handle = handle,
                       .stream = stream,
                       .dnn = rg_cudnn_create(&rg_default_allocator, row->tf32),
                       .blas = rg_cublaslt_create(&rg_default_allocator, row->tf32) };
    rg_status status = rg_peer_cudnn_prepare(&j);
    if (status == RG_OK)
        status = time_job(&j, seconds, &time->ms);
    release(&j);
    return status;
}
#endif

const rg_peer rg_peer_cudnn = {
    .name = "cudnn",
    .text = "cuDNN 9 and cuBLASLt, on a GPU",
#if RG_HAVE_CUDNN
    .open = open_peer,
    .time = time_row,
    .close = close_peer,
#else
    .missing = "the cuDNN 9 header",
#endif
};
