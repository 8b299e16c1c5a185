/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample on the CPU: pixels and their channels. A unit is a row of the result. What the grid says
 * of columns and rows is worked out once for many pixels; then each pixel runs over its channels.
 */
#ifndef RG_OPS_UPSAMPLE_CPU_H
#define RG_OPS_UPSAMPLE_CPU_H

#include "backend/cpu/kernel.h"
#include "ops/upsample/upsample.h"

/* Bytes from one index of dimension d to the next, of `from` (t = 0) or `to` (t = 1). */
RG_INLINE int64_t step_of(const rg_upsample_args *k, int t, int d, const rg_dtype T)
{
    return k->strides[t][d] * (vbytes(T) / VLEN);
}

/* n channels of a pixel from i on, neighbours or not. */
RG_INLINE vreal load_channels(const rg_upsample_args *k, const char *pixel, int64_t i, const int n,
                              const rg_dtype T)
{
    return vload_strided(pixel, i, k->strides[0][3], n, T, k->dense);
}

RG_INLINE void store_channels(const rg_upsample_args *k, char *pixel, int64_t i, const int n,
                              const rg_dtype T, vreal value)
{
    const int64_t step = k->strides[1][3];
    if (k->add)
        value += vload_strided(pixel, i, step, n, T, k->dense);
    vstore_strided(pixel, i, step, n, T, k->dense, value);
}

/* Whether results go past the cache: every pixel must start at an aligned address. */
RG_INLINE bool is_streamed(const rg_upsample_args *k, const rg_dtype T)
{
    uintptr_t all = (uintptr_t)k->to;
    for (int d = 0; d < 3; d++)
        all |= (uintptr_t)step_of(k, 1, d, T);
    return k->stream && k->dense && all % RG_VECTOR_BYTES == 0;
}

#endif
