/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Instructions around tensor cores that several kernels of convolutions use. */
#ifndef RG_OPS_CONV_MMA_CUH
#define RG_OPS_CONV_MMA_CUH

#include "backend/cuda/kernel.cuh"

static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* The first `size` of BYTES to shared memory in the background, and zeros behind them; see
 * end_copies(). */
template <int BYTES>
static __device__ __forceinline__ void copy_some(void *to, const void *from, int size)
{
#if __CUDA_ARCH__ >= 800
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                     "l"(from), "r"(size));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                     "l"(from), "r"(size));
#else
    (void)to, (void)from, (void)size;
#endif
}

/* BYTES, or zeros where they are not `valid`. */
template <int BYTES>
static __device__ __forceinline__ void copy_or_zero(void *to, const void *from, bool valid)
{
    copy_some<BYTES>(to, from, valid ? BYTES : 0);
}

/* Four blocks of 8 rows by 16 bytes; each thread gets a word of each. */
static __device__ __forceinline__ void load_matrices(uint32_t x[4], const void *row)
{
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
#else
    (void)x, (void)row;
#endif
}

#endif
