/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gathering a strided tensor into dense memory, and back. A thread takes an element at a time, in
 * the order of the dense side. */
#include "backend/cuda/strided_copy.h"

template <class ELEMENT> static __global__ void strided_copy(const rg_copy_args k, int64_t count)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int64_t rest = i, offset = 0;
        for (int32_t d = k.rank - 1; d >= 0; d--) {
            offset += rest % k.dims[d] * k.strides[d];
            rest /= k.dims[d];
        }
        ELEMENT *strided = (ELEMENT *)k.device + offset, *dense = (ELEMENT *)k.staging + i;
        if (k.to_host)
            *dense = *strided;
        else
            *strided = *dense;
    }
}

extern "C" void rg_cuda_strided_copy(const rg_copy_args *args, cudaStream_t stream)
{
    const int64_t THREADS = 256, MOST_BLOCKS = 1 << 16;
    int64_t count = 1;
    for (int32_t d = 0; d < args->rank; d++)
        count *= args->dims[d];
    const int64_t blocks = (count + THREADS - 1) / THREADS;
    const unsigned grid = (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
    if (args->element == 1)
        strided_copy<uint8_t><<<grid, (unsigned)THREADS, 0, stream>>>(*args, count);
    else if (args->element == 2)
        strided_copy<uint16_t><<<grid, (unsigned)THREADS, 0, stream>>>(*args, count);
    else if (args->element == 4)
        strided_copy<uint32_t><<<grid, (unsigned)THREADS, 0, stream>>>(*args, count);
    else
        strided_copy<uint64_t><<<grid, (unsigned)THREADS, 0, stream>>>(*args, count);
}

extern "C" bool rg_cuda_has_kernels(void)
{
    cudaFuncAttributes attributes;
    const bool has =
        cudaFuncGetAttributes(&attributes, (const void *)strided_copy<uint8_t>) == cudaSuccess;
    (void)cudaGetLastError();
    return has;
}
