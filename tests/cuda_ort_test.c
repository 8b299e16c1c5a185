/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The softmax gradients for ONNX Runtime on a GPU: a stand-in for the runtime creates and computes
 * nodes with a stream of its own and memory of the device. */
#include "cuda_rig.h"
#include "ort_stand_in.h"

#include <math.h>

enum { COUNT = 2 * 37 * 5 };
static const int64_t dims[] = { 2, 37, 5 };

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    EXPECT_CUDA(cudaMalloc(&memory, bytes > 0 ? bytes : 1));
    return memory;
}

/* The copy is put into the stream: nothing waits for it. */
static ort_value upload(ort_type type, const void *host, cudaStream_t stream)
{
    ort_value v = { .type = type, .rank = 3, .bytes = COUNT * stand_in_size(type) };
    memcpy(v.dims, dims, sizeof dims);
    v.data = allocate(v.bytes);
    EXPECT_CUDA(cudaMemsetAsync(v.data, 0, v.bytes, stream));
    EXPECT_CUDA(cudaMemcpyAsync(v.data, host, v.bytes, cudaMemcpyHostToDevice, stream));
    return v;
}

/* Work of some milliseconds, so that what is put into the stream behind it is not there at once. */
static void delay(cudaStream_t stream)
{
    const size_t bytes = (size_t)64 << 20;
    void *memory = NULL;
    EXPECT_CUDA(cudaMallocAsync(&memory, bytes, stream));
    for (int i = 0; i < 200; i++)
        EXPECT_CUDA(cudaMemsetAsync(memory, i, bytes, stream));
    EXPECT_CUDA(cudaFreeAsync(memory, stream));
}

typedef struct gradient {
    const char *name;
    char kind; /* p, l: softmax, its logarithm; r, s, t: ReLU, sigmoid, tanh */
    bool flat; /* from the middle dimension on, not along it alone */
} gradient;

static double expected(const gradient *rule, const double dy[], const double y[], int64_t at)
{
    double sum = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        if (i / (37 * 5) == at / (37 * 5) && (rule->flat || i % 5 == at % 5))
            sum += rule->kind == 'l' ? dy[i] : dy[i] * y[i];
    }
    switch (rule->kind) {
    case 'l':
        return dy[at] - exp(y[at]) * sum;
    case 'p':
        return (dy[at] - sum) * y[at];
    case 'r':
        return y[at] > 0 ? dy[at] : 0;
    case 's':
        return dy[at] * y[at] * (1 - y[at]);
    default:
        return dy[at] * (1 - y[at] * y[at]);
    }
}

static const ort_type types[] = { ORT_FLOAT, ORT_DOUBLE, ORT_FLOAT16, ORT_BFLOAT16 };
static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };

/* The inputs are copied, the result is computed and copied back in the order of the stream. */
static void check(const gradient *rule, int t, cudaStream_t stream)
{
    static const double tolerance[] = { 1e-5, 1e-13, 2e-3, 2e-2 };
    double dy[COUNT], y[COUNT], got[COUNT];
    char *host; /* dy, y, the result; pinned, so that copies wait for nothing */
    const size_t part = COUNT * 8;
    EXPECT_CUDA(cudaMallocHost((void **)&host, 3 * part));
    for (int i = 0; i < COUNT; i++) { /* exact in every dtype */
        dy[i] = i % 5 * 0.25 - 0.5;
        y[i] = rule->kind == 'l' ? -(7 * i % 11 + 1) / 4.0 : (7 * i % 11 + 1) / 64.0;
        y[i] = rule->kind == 'r' && i % 3 == 0 ? -y[i] : y[i];
    }
    EXPECT_OK(rg_convert(host, dtypes[t], dy, RG_F64, COUNT));
    EXPECT_OK(rg_convert(host + part, dtypes[t], y, RG_F64, COUNT));
    delay(stream);
    ort_value a = upload(types[t], host, stream), b = upload(types[t], host + part, stream);
    const struct ort_kernel_info info = { { { "axis", 'i', .ints = { 1 } } }, 1 };
    ort_context c = { .inputs = { &a, &b },
                      .input_count = 2,
                      .output_count = 1,
                      .stream = stream,
                      .allocate = allocate };
    const ort_custom_op *op = stand_in_find("com.microsoft", rule->name, types[t], true);
    EXPECT(op != NULL);
    ort_status *status = op != NULL ? stand_in_run(op, &info, &c) : NULL;
    EXPECT(op != NULL && status == NULL && c.outputs[0].data != NULL);
    if (status == NULL && c.outputs[0].data != NULL) {
        EXPECT_CUDA(cudaMemcpyAsync(host + 2 * part, c.outputs[0].data, a.bytes,
                                    cudaMemcpyDeviceToHost, stream));
        EXPECT_CUDA(cudaStreamSynchronize(stream));
        EXPECT_OK(rg_convert(got, RG_F64, host + 2 * part, dtypes[t], COUNT));
        for (int64_t i = 0; i < COUNT; i++) {
            const double want = expected(rule, dy, y, i);
            EXPECT(fabs(got[i] - want) <= tolerance[t] * (1 + fabs(want)));
        }
    }
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    stand_in_release(status);
    cudaFree(a.data);
    cudaFree(b.data);
    cudaFree(c.outputs[0].data);
    cudaFreeHost(host);
}

/* Empty tensors have no memory; shapes that disagree, and an axis that is none, are refused with a
 * sentence. */
static void check_shapes(cudaStream_t stream)
{
    ort_value a = { .type = ORT_FLOAT, .rank = 2, .dims = { 0, 4 } }, b = a;
    ort_context c = { .inputs = { &a, &b },
                      .input_count = 2,
                      .output_count = 1,
                      .stream = stream,
                      .allocate = allocate };
    struct ort_kernel_info info = { { { "axis", 'i', .ints = { 1 } } }, 1 };
    const ort_custom_op *op = stand_in_find("com.microsoft", "SoftmaxGrad_13", ORT_FLOAT, true);
    EXPECT(op != NULL);
    if (op == NULL)
        return;
    ort_status *status = stand_in_run(op, &info, &c);
    EXPECT(status == NULL);
    stand_in_release(status);
    cudaFree(c.outputs[0].data);
    void *memory = allocate(64);
    a = (ort_value){ ORT_FLOAT, 2, { 2, 4 }, memory, 32 };
    b = (ort_value){ ORT_FLOAT, 2, { 2, 3 }, memory, 24 };
    for (int i = 0; i < 2; i++) {
        c.outputs[0] = (ort_value){ .data = NULL };
        status = stand_in_run(op, &info, &c);
        EXPECT(status != NULL && status->code == ORT_INVALID_ARGUMENT && status->text[0] != 0);
        stand_in_release(status);
        cudaFree(c.outputs[0].data);
        b = a;
        info.attributes[0].ints[0] = 2;
    }
    cudaFree(memory);
}

int main(void)
{
    static const gradient rules[] = {
        { "SoftmaxGrad", 'p', true },    { "SoftmaxGrad_13", 'p', false },
        { "LogSoftmaxGrad", 'l', true }, { "LogSoftmaxGrad_13", 'l', false },
        { "ReluGrad", 'r', false },      { "SigmoidGrad", 's', false },
        { "TanhGrad", 't', false }
    };
    cudaStream_t streams[2] = { NULL };
    if (!has_gpu())
        return skip(rg_error_text());
    for (int i = 0; i < 2; i++)
        EXPECT_CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    EXPECT(stand_in_load());
    for (int t = 0; t < 4; t++) {
        for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
            check(&rules[i], t, streams[i & 1]);
    }
    check_shapes(streams[0]);
    for (int i = 0; i < 2; i++)
        EXPECT_CUDA(cudaStreamDestroy(streams[i]));
    return rg_test_report();
}
