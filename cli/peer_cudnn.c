/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* cuDNN, version 9, opened at run time, on the tensors of the row. Which of its functions stands
 * for which op is written here, keyed by the op's name. */
#include "cli/peer_api.h"

#if RG_HAVE_CUDNN
#include "core/shape.h"

#include <retrograde/neuron.h>
#include <retrograde/softmax.h>

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the library ---- */

#define FUNCTIONS(F)                \
    F(Create);                      \
    F(Destroy);                     \
    F(SetStream);                   \
    F(GetErrorString);              \
    F(CreateTensorDescriptor);      \
    F(DestroyTensorDescriptor);     \
    F(SetTensor4dDescriptor);       \
    F(CreateActivationDescriptor);  \
    F(DestroyActivationDescriptor); \
    F(SetActivationDescriptor);     \
    F(SoftmaxForward);              \
    F(SoftmaxBackward);             \
    F(ActivationForward);           \
    F(ActivationBackward)

static struct {
#define F(name) __typeof__(cudnn##name) *name
    FUNCTIONS(F);
#undef F
} cudnn; /* filled by open_peer, as what follows */
static cudnnHandle_t handle;
static cudaStream_t stream;
static cudaEvent_t before, after;

static rg_status find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    RG_CHECK(found != NULL, RG_UNSUPPORTED, "cudnn: libcudnn.so.9 has no %s", name);
    memcpy(function, &found, sizeof found);
    return RG_OK;
}

static rg_status load(void)
{
    const char *named = getenv("RG_CUDNN");
    const char *path = named != NULL && named[0] != 0 ? named : "libcudnn.so.9";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays for good */
    RG_CHECK(library != NULL, RG_UNSUPPORTED,
             "cudnn is not installed: there is no %s; RG_CUDNN may name it", path);
#define F(name) RG_TRY(find(library, "cudnn" #name, &cudnn.name))
    FUNCTIONS(F);
#undef F
    return RG_OK;
}

static void close_peer(void)
{
    if (handle != NULL)
        (void)cudnn.Destroy(handle);
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
             RG_UNSUPPORTED, "cudnn: no stream on %s: %s", rg_device_name(device),
             cudaGetErrorString(cudaGetLastError()));
    cudnnStatus_t status = cudnn.Create(&handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn.SetStream(handle, stream);
    RG_CHECK(status == CUDNN_STATUS_SUCCESS, RG_UNSUPPORTED, "cudnn does not start: %s",
             cudnn.GetErrorString(status));
    return RG_OK;
}

static rg_status open_peer(const rg_device *device)
{
    RG_CHECK(rg_bench_on_gpu(device), RG_UNSUPPORTED, "cudnn runs on a GPU, not on the CPU");
    RG_TRY(load());
    const rg_status status = start(device);
    if (status != RG_OK)
        close_peer();
    return status;
}

/* ---- from ops to functions ---- */

typedef struct job job;
struct job {
    cudnnStatus_t (*run)(const job *j);
    const rg_bench_row *row;
    cudnnTensorDescriptor_t tensor;         /* all tensors of a row are alike */
    cudnnActivationDescriptor_t activation; /* of neurons */
    cudnnSoftmaxAlgorithm_t algorithm;
    cudnnSoftmaxMode_t mode;
    const void *one, *zero; /* results are not scaled, and not added */
};

static rg_status check(cudnnStatus_t status, const rg_bench_row *row)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return RG_OK;
    (void)cudaGetLastError(); /* so that no later launch is blamed for it */
    return rg_fail(RG_UNSUPPORTED, "cudnn: %s %s in %s: %s", row->test->op->name, row->c->name,
                   rg_dtype_name(row->dtype), cudnn.GetErrorString(status));
}

static rg_status describe(job *j, const int64_t dims[4])
{
    static const cudnnDataType_t types[] = { [RG_F32] = CUDNN_DATA_FLOAT,
                                             [RG_F64] = CUDNN_DATA_DOUBLE,
                                             [RG_F16] = CUDNN_DATA_HALF,
                                             [RG_BF16] = CUDNN_DATA_BFLOAT16 };
    static const float one = 1, zero = 0;
    static const double double_one = 1, double_zero = 0;
    const bool in_double = j->row->dtype == RG_F64;
    j->one = in_double ? (const void *)&double_one : &one;
    j->zero = in_double ? (const void *)&double_zero : &zero;
    RG_CHECK(rg_shape_count(&j->row->x_desc[0]) <= INT_MAX, RG_UNSUPPORTED,
             "cudnn: %s has more elements than it counts", j->row->c->name);
    RG_TRY(check(cudnn.CreateTensorDescriptor(&j->tensor), j->row));
    return check(cudnn.SetTensor4dDescriptor(j->tensor, CUDNN_TENSOR_NCHW, types[j->row->dtype],
                                             (int)dims[0], (int)dims[1], (int)dims[2],
                                             (int)dims[3]),
                 j->row);
}

static cudnnStatus_t run_softmax(const job *j)
{
    const rg_bench_row *r = j->row;
    if (r->gradient)
        return cudnn.SoftmaxBackward(handle, j->algorithm, j->mode, j->one, j->tensor,
                                     rg_tensor_data(r->y[0]), j->tensor, rg_tensor_data(r->dy[0]),
                                     j->zero, j->tensor, rg_tensor_data(r->dx[0]));
    return cudnn.SoftmaxForward(handle, j->algorithm, j->mode, j->one, j->tensor,
                                rg_tensor_data(r->x[0]), j->zero, j->tensor,
                                rg_tensor_data(r->y[0]));
}

/* Rows as (rows, length, 1, 1), each an image of its own; other axes as channels of images. */
static rg_status prepare_softmax(job *j)
{
    const rg_softmax_desc *d = (const void *)j->row->desc;
    const rg_tensor_desc *x = &j->row->x_desc[0];
    const int64_t axis = d->axis < 0 ? d->axis + x->rank : d->axis;
    int64_t dims[4] = { 1, 1, 1, 1 };
    for (int32_t i = 0; i < x->rank; i++) {
        const int to = i < axis ? 0 : i == axis || d->flatten ? 1 : i == axis + 1 ? 2 : 3;
        dims[to] *= x->dims[i];
    }
    j->algorithm = d->kind == RG_SOFTMAX_LOG ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE;
    j->mode = dims[2] * dims[3] == 1 ? CUDNN_SOFTMAX_MODE_INSTANCE : CUDNN_SOFTMAX_MODE_CHANNEL;
    j->run = run_softmax;
    return describe(j, dims);
}

/* Its gradient takes x and y. The row has the one that matters, which stands for both. */
static cudnnStatus_t run_neuron(const job *j)
{
    const rg_bench_row *r = j->row;
    if (!r->gradient)
        return cudnn.ActivationForward(handle, j->activation, j->one, j->tensor,
                                       rg_tensor_data(r->x[0]), j->zero, j->tensor,
                                       rg_tensor_data(r->y[0]));
    const void *read = rg_tensor_data(r->y[0] != NULL ? r->y[0] : r->x[0]);
    return cudnn.ActivationBackward(handle, j->activation, j->one, j->tensor, read, j->tensor,
                                    rg_tensor_data(r->dy[0]), j->tensor, read, j->zero, j->tensor,
                                    rg_tensor_data(r->dx[0]));
}

static rg_status prepare_neuron(job *j)
{
    static const cudnnActivationMode_t modes[] = { [RG_NEURON_RELU] = CUDNN_ACTIVATION_RELU,
                                                   [RG_NEURON_SIGMOID] = CUDNN_ACTIVATION_SIGMOID,
                                                   [RG_NEURON_TANH] = CUDNN_ACTIVATION_TANH };
    const rg_neuron_desc *d = (const void *)j->row->desc;
    RG_CHECK(d->kind == RG_NEURON_RELU || d->kind == RG_NEURON_SIGMOID || d->kind == RG_NEURON_TANH,
             RG_UNSUPPORTED, "cudnn is asked for relu, sigmoid and tanh alone");
    RG_CHECK(!d->has_a && !d->has_b, RG_UNSUPPORTED, "cudnn's activations have no factors");
    RG_CHECK(!j->row->gradient || d->kind == RG_NEURON_RELU || d->from_y, RG_UNSUPPORTED,
             "cudnn's gradients of sigmoid and tanh read y, not x");
    const int64_t count = rg_shape_count(&j->row->x_desc[0]);
    const int64_t columns = count % 1024 == 0 ? 1024 : 1;
    const int64_t dims[4] = { 1, 1, count / columns, columns };
    j->run = run_neuron;
    RG_TRY(describe(j, dims));
    RG_TRY(check(cudnn.CreateActivationDescriptor(&j->activation), j->row));
    return check(
        cudnn.SetActivationDescriptor(j->activation, modes[d->kind], CUDNN_PROPAGATE_NAN, 0),
        j->row);
}

static const struct {
    const char *op;
    rg_status (*prepare)(job *j);
} functions[] = {
    { "softmax", prepare_softmax },
    { "neuron", prepare_neuron },
};

static rg_status prepare(job *j)
{
    const char *op = j->row->test->op->name;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(functions[i].op, op) == 0)
            return functions[i].prepare(j);
    }
    return rg_fail(RG_UNSUPPORTED, "cudnn stands for no op '%s' here", op);
}

/* ---- timing ---- */

/* The time of one call in milliseconds. */
static rg_status take_turn(const job *j, int32_t calls, double *ms)
{
    float elapsed = 0;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudaError_t error = cudaEventRecord(before, stream);
    for (int32_t i = 0; i < calls && status == CUDNN_STATUS_SUCCESS; i++)
        status = j->run(j);
    if (error == cudaSuccess)
        error = cudaEventRecord(after, stream);
    if (error == cudaSuccess)
        error = cudaEventSynchronize(after);
    RG_TRY(check(status, j->row));
    if (error == cudaSuccess)
        error = cudaEventElapsedTime(&elapsed, before, after);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    RG_CHECK(error == cudaSuccess, RG_KERNEL_FAULT, "cudnn fails while running: %s",
             cudaGetErrorString(error));
    *ms = (double)elapsed / calls;
    return RG_OK;
}

/* As many calls in a turn as ours; the first turns find out how many, and warm up. */
static rg_status time_job(const job *j, double seconds, double *ms)
{
    enum { LEAST = 7, MOST = 4096, TRIAL = 8 };
    static double times[MOST];
    RG_TRY(take_turn(j, 1, ms));
    RG_TRY(take_turn(j, TRIAL, ms));
    const int32_t calls = rg_bench_calls_of(*ms);
    RG_TRY(take_turn(j, calls, ms));
    const double start = rg_bench_seconds();
    int32_t count = 0;
    while (count < LEAST || (count < MOST && rg_bench_seconds() - start < seconds))
        RG_TRY(take_turn(j, calls, &times[count++]));
    *ms = rg_bench_quantile(times, count, 0.5);
    return RG_OK;
}

static rg_status time_row(const rg_bench_row *row, double seconds, double *ms)
{
    job j = { .row = row };
    rg_status status = prepare(&j);
    if (status == RG_OK)
        status = time_job(&j, seconds, ms);
    if (j.activation != NULL)
        (void)cudnn.DestroyActivationDescriptor(j.activation);
    if (j.tensor != NULL)
        (void)cudnn.DestroyTensorDescriptor(j.tensor);
    return status;
}
#else
static rg_status open_peer(const rg_device *device)
{
    (void)device;
    return rg_fail(RG_UNSUPPORTED,
                   "cudnn is not in this build: it was made without the header of cuDNN 9");
}

static rg_status time_row(const rg_bench_row *row, double seconds, double *ms)
{
    (void)row, (void)seconds, (void)ms;
    return rg_fail(RG_UNSUPPORTED, "cudnn is not in this build");
}

static void close_peer(void)
{
}
#endif

const rg_peer rg_peer_cudnn = { "cudnn", open_peer, time_row, close_peer };
