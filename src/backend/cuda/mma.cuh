/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Instructions of tensor cores. */
#ifndef RG_BACKEND_CUDA_MMA_CUH
#define RG_BACKEND_CUDA_MMA_CUH

#include "backend/cuda/kernel.cuh"

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

/* As load_matrices, each of the four transposed. */
static __device__ __forceinline__ void load_transposed(uint32_t x[4], const void *row)
{
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
#else
    (void)x, (void)row;
#endif
}

/* c += a b for 16 rows, 8 columns, 16 of k. */
template <rg_dtype T>
static __device__ __forceinline__ void multiply_halves(float c[4], const uint32_t a[4],
                                                       const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    if constexpr (T == RG_BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    (void)c, (void)a, (void)b;
#endif
}

/* c += a b for 16 rows, 8 columns, 8 of k. */
static __device__ __forceinline__ void multiply_tf32(float c[4], const uint32_t a[4],
                                                     const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    (void)c, (void)a, (void)b;
#endif
}

#endif
