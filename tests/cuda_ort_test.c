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

static ort_value upload(ort_type type, rg_dtype dtype, const double values[])
{
    ort_value v = { .type = type, .rank = 3, .bytes = COUNT * stand_in_size(type) };
    char host[COUNT * 8];
    memcpy(v.dims, dims, sizeof dims);
    EXPECT_OK(rg_convert(host, dtype, values, RG_F64, COUNT));
    v.data = allocate(v.bytes);
    EXPECT_CUDA(cudaMemcpy(v.data, host, v.bytes, cudaMemcpyHostToDevice));
    return v;
}

/* Along the middle dimension, or from it on where `flat`. */
static double expected(const double dy[], const double y[], int64_t at, bool flat, bool is_log)
{
    double sum = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        if (i / (37 * 5) == at / (37 * 5) && (flat || i % 5 == at % 5))
            sum += is_log ? dy[i] : dy[i] * y[i];
    }
    return is_log ? dy[at] - exp(y[at]) * sum : (dy[at] - sum) * y[at];
}

static void check(const char *name, bool flat, bool is_log, int t, cudaStream_t stream)
{
    static const ort_type types[] = { ORT_FLOAT, ORT_DOUBLE, ORT_FLOAT16, ORT_BFLOAT16 };
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };
    static const double tolerance[] = { 1e-5, 1e-13, 2e-3, 2e-2 };
    double dy[COUNT], y[COUNT], got[COUNT];
    char host[COUNT * 8];
    for (int i = 0; i < COUNT; i++) { /* exact in every dtype */
        dy[i] = i % 5 * 0.25 - 0.5;
        y[i] = is_log ? -(7 * i % 11 + 1) / 4.0 : (7 * i % 11 + 1) / 64.0;
    }
    ort_value a = upload(types[t], dtypes[t], dy), b = upload(types[t], dtypes[t], y);
    const struct ort_kernel_info info = { { { "axis", 'i', .ints = { 1 } } }, 1 };
    ort_context c = { .inputs = { &a, &b },
                      .input_count = 2,
                      .output_count = 1,
                      .stream = stream,
                      .allocate = allocate };
    const ort_custom_op *op = stand_in_find("com.microsoft", name, types[t], true);
    EXPECT(op != NULL);
    ort_status *status = op != NULL ? stand_in_run(op, &info, &c) : NULL;
    EXPECT(op != NULL && status == NULL && c.outputs[0].data != NULL);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    if (status == NULL && c.outputs[0].data != NULL) {
        EXPECT_CUDA(cudaMemcpy(host, c.outputs[0].data, a.bytes, cudaMemcpyDeviceToHost));
        EXPECT_OK(rg_convert(got, RG_F64, host, dtypes[t], COUNT));
        for (int64_t i = 0; i < COUNT; i++) {
            const double want = expected(dy, y, i, flat, is_log);
            EXPECT(fabs(got[i] - want) <= tolerance[t] * (1 + fabs(want)));
        }
    }
    stand_in_release(status);
    cudaFree(a.data);
    cudaFree(b.data);
    cudaFree(c.outputs[0].data);
}

int main(void)
{
    if (!has_gpu())
        return skip(rg_error_text());
    cudaStream_t stream = NULL;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT(stand_in_load());
    for (int t = 0; t < 4; t++) {
        check("SoftmaxGrad", true, false, t, stream);
        check("SoftmaxGrad_13", false, false, t, stream);
        check("LogSoftmaxGrad", true, true, t, stream);
        check("LogSoftmaxGrad_13", false, true, t, stream);
    }
    EXPECT_CUDA(cudaStreamDestroy(stream));
    return rg_test_report();
}
