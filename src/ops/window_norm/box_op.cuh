/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What kernels over windows of rows and columns share, see ops/window_norm/box.h: what an op gives
 * them, the tensors, and vectors of channels in shared memory. */
#ifndef RG_OPS_WINDOW_NORM_BOX_OP_CUH
#define RG_OPS_WINDOW_NORM_BOX_OP_CUH

#include "backend/cuda/image.cuh"
#include "ops/window_norm/moments.cuh"
#include "ops/window_norm/box.h"

/* What an op gives, as OP: KINDS of values that are summed, 1 or MOMENT_KINDS, CONSTANTS, and
 *
 *      fill(x)                    the value that is summed
 *      result(k, x, sum)          y
 *      middle(k, dy, x, sum, to)  what goes to the same element of dx; values that are summed
 *      finish(k, x, direct, sum)  dx
 *
 * with the sums and values that boxes_cpu.h names. to[0] is x before middle is called. */

/* Tensors of a launch, in the order dy, x, result; dy is x in a forward pass. */
struct box_data {
    const void *dy, *x;
    void *out, *scratch;
    int64_t step[RG_BOX_TENSORS][4];
};

static inline box_data box_data_of(const rg_box_args *a)
{
    box_data d = { a->dy, a->x, a->out, a->scratch, {} };
    for (int t = 0; t < RG_BOX_TENSORS; t++)
        for (int i = 0; i < 4; i++)
            d.step[t][i] = a->shape.step[t][i];
    return d;
}

/* ---- channels ---- */

/* V values of shared memory, 16 bytes at a time where there are as many. */
template <int V, class REAL>
static __device__ __forceinline__ void put_lanes(REAL *to, const REAL value[V])
{
    constexpr int STEP = 16 / (int)sizeof(REAL);
    constexpr rg_dtype T = sizeof(REAL) == 8 ? RG_F64 : RG_F32;
    if constexpr (V % STEP == 0) {
#pragma unroll
        for (int e = 0; e < V; e += STEP)
            *(uint4 *)(to + e) = pack<T>((const real<T> *)value + e);
    } else {
        to[0] = value[0];
    }
}

template <int V, class REAL>
static __device__ __forceinline__ void get_lanes(const REAL *from, REAL value[V])
{
    constexpr int STEP = 16 / (int)sizeof(REAL);
    constexpr rg_dtype T = sizeof(REAL) == 8 ? RG_F64 : RG_F32;
    if constexpr (V % STEP == 0) {
#pragma unroll
        for (int e = 0; e < V; e += STEP)
            unpack<T>(*(const uint4 *)(from + e), (real<T> *)value + e);
    } else {
        value[0] = from[0];
    }
}

#endif
