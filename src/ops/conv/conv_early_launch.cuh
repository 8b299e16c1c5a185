/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Launches whose blocks begin while the launch before still runs. */
#ifndef RG_OPS_CONV_EARLY_LAUNCH_CUH
#define RG_OPS_CONV_EARLY_LAUNCH_CUH

#include "backend/cuda/kernel.cuh"

/* Waits for the launch before, where this one began early: see launch_early. */
static __device__ __forceinline__ void await_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* As launch; where this build and the device know it, blocks begin while the launch before still
 * runs, until they call await_launch(). */
template <class... PARAMETERS, class... ARGUMENTS>
static void launch_early(void (*kernel)(PARAMETERS...), dim3 blocks, int64_t threads,
                         const rg_cuda_place *place, ARGUMENTS... arguments)
{
    cudaFuncAttributes attributes;
    const bool early = cudaFuncGetAttributes(&attributes, (const void *)kernel) == cudaSuccess &&
                       attributes.ptxVersion >= 90;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3((unsigned)threads);
    config.stream = place->stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    void *pointers[] = { (void *)&arguments... };
    (void)cudaLaunchKernelExC(&config, (const void *)kernel, pointers);
}

#endif
