/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Memory that repeats its beginning. */
#include "tests/cuda_window.h"

enum { BLOCKS = 4096, THREADS = 256 };

static __device__ int64_t first_index(void)
{
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

static __global__ void repeat(uint16_t *data, int64_t window, int64_t count)
{
    for (int64_t i = window + first_index(); i < count; i += (int64_t)BLOCKS * THREADS)
        data[i] = data[i % window];
}

static __global__ void compare(const uint16_t *data, int64_t window, int64_t count,
                               unsigned long long *differences)
{
    unsigned long long mine = 0;
    for (int64_t i = window + first_index(); i < count; i += (int64_t)BLOCKS * THREADS)
        mine += data[i] != data[i % window];
    if (mine > 0)
        atomicAdd(differences, mine);
}

extern "C" cudaError_t window_repeat(uint16_t *data, int64_t window, int64_t count)
{
    repeat<<<BLOCKS, THREADS>>>(data, window, count);
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

extern "C" cudaError_t window_differences(const uint16_t *data, int64_t window, int64_t count,
                                          unsigned long long *differences)
{
    unsigned long long *found = NULL;
    cudaError_t error = cudaMalloc((void **)&found, sizeof *found);
    if (error == cudaSuccess)
        error = cudaMemset(found, 0, sizeof *found);
    if (error == cudaSuccess) {
        compare<<<BLOCKS, THREADS>>>(data, window, count, found);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess)
        error = cudaMemcpy(differences, found, sizeof *found, cudaMemcpyDeviceToHost);
    (void)cudaFree(found);
    return error;
}
