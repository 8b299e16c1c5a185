/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The kernels of the made-up op, one block each. */
#include "backend/cuda/target.h"
#include "tests/cuda_seam.h"

enum { THREADS = 256 };

/* ---- on the GPU ---- */

static __global__ void product_kernel(const seam_product_args k)
{
    for (int64_t i = threadIdx.x; i < k.count; i += THREADS) {
        if (k.a[i] == 666)
            *k.fault = 1;
        k.scratch[i] = k.scale * k.a[i];
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < k.count; i += THREADS)
        k.y[i] = k.scratch[k.count - 1 - i] * k.b[i];
}

static __global__ void keep_kernel(const seam_keep_args k)
{
    for (int64_t i = threadIdx.x; i < k.count; i += THREADS)
        k.kept[i] = k.a[i];
}

static __global__ void gradient_kernel(const seam_gradient_args k)
{
    for (int64_t i = threadIdx.x; i < k.count; i += THREADS) {
        const int64_t reversed = k.count - 1 - i;
        k.out[i] =
            (k.add ? k.out[i] : 0) + k.scale * k.dy[k.reverses ? reversed : i] * k.other[reversed];
    }
}

static __global__ void crash_kernel(float *nowhere)
{
    nowhere[threadIdx.x] = 1;
}

/* ---- on the host ---- */

static void product(const void *args, const rg_cuda_target *target)
{
    product_kernel<<<1, THREADS, 0, target->stream>>>(*(const seam_product_args *)args);
}

static void keep(const void *args, const rg_cuda_target *target)
{
    keep_kernel<<<1, THREADS, 0, target->stream>>>(*(const seam_keep_args *)args);
}

static void gradient(const void *args, const rg_cuda_target *target)
{
    gradient_kernel<<<1, THREADS, 0, target->stream>>>(*(const seam_gradient_args *)args);
}

static void crash(const void *args, const rg_cuda_target *target)
{
    (void)args;
    crash_kernel<<<1, THREADS, 0, target->stream>>>((float *)(uintptr_t)4096);
}

static void bad_launch(const void *args, const rg_cuda_target *target)
{
    keep_kernel<<<1, 1 << 20, 0, target->stream>>>(*(const seam_keep_args *)args);
}

const rg_cuda_row seam_rows[SEAM_NOTHING] = {
    { SEAM_PRODUCT, { product } },       { SEAM_KEEP, { keep } },
    { SEAM_GRADIENT, { gradient } },     { SEAM_CRASH, { crash } },
    { SEAM_BAD_LAUNCH, { bad_launch } },
};
