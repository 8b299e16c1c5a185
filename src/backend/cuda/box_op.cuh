/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What kernels over windows of rows and columns share, see core/box.h: what an op gives them, the
 * tensors, the number that sums are about, and vectors of channels in shared memory. */
#ifndef RG_BACKEND_CUDA_BOX_OP_CUH
#define RG_BACKEND_CUDA_BOX_OP_CUH

#include "backend/cuda/image.cuh"
#include "core/box.h"

/* What an op gives, as OP: KINDS of values that are summed, CONSTANTS, and
 *
 *      fill(x, to)                      the values that are summed
 *      result(k, x, spot, sum)          y
 *      middle(k, dy, x, spot, sum, to)  what goes to dx at the same place; values that are summed
 *      finish(k, x, direct, sum)        dx
 *
 * where x is x - r if there are two kinds. */

/* Where sums are about r: r, and the shares of a window that are inside and outside of the
 * image. */
template <rg_dtype T> struct box_spot {
    real<T> r, inside, outside;
};

/* Tensors of a launch, in the order dy, x, result; dy is x in a forward pass. */
struct box_data {
    const void *dy, *x;
    void *out, *scratch;
    int64_t step[RG_BOX_TENSORS][4];
};

static inline box_data box_data_of(const rg_box_args *a, const rg_box_shape *s)
{
    box_data d = { a->x, a->x, a->y, a->scratch, {} };
    const int from[RG_BOX_TENSORS] = { 0, 0, 1 };
    for (int t = 0; t < RG_BOX_TENSORS; t++)
        for (int i = 0; i < 4; i++)
            d.step[t][i] = s->step[from[t]][i];
    return d;
}

static inline box_data box_data_of(const rg_box_gradient_args *a, const rg_box_shape *s)
{
    box_data d = { a->dy, a->x, a->dx, a->scratch, {} };
    for (int t = 0; t < RG_BOX_TENSORS; t++)
        for (int i = 0; i < 4; i++)
            d.step[t][i] = s->step[t][i];
    return d;
}

/* ---- the number that sums are about ---- */

/* r of V channels, or 0 where sums are of other kinds: load(row, column, x) gives those of a
 * pixel. */
template <rg_dtype T, class OP, int V, class LOAD>
static __device__ __forceinline__ void middle_about(const rg_box_shape &s, real<T> r[V], LOAD load)
{
    real<T> q[3][V] = {};
    if constexpr (OP::KINDS == RG_BOX_MOMENTS) {
        auto sample = [&](int k, real<T> value[V]) { /* pixel k, where it will do */
                                                     real<T> x[V];
                                                     load(rg_box_sample(s.row.size, k),
                                                          rg_box_sample(s.column.size, k), x);
#pragma unroll
                                                     for (int e = 0; e < V; e++)
                                                         value[e] =
                                                             fabs(x[e]) <= (real<T>)RG_BOX_LARGE
                                                                 ? x[e]
                                                                 : value[e];
        };
        for (int k = 2; k >= 0; k--)
            sample(k, q[0]);
#pragma unroll
        for (int k = 1; k < 3; k++) {
#pragma unroll
            for (int e = 0; e < V; e++)
                q[k][e] = q[0][e];
            sample(k, q[k]);
        }
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        r[e] = fmax(fmin(q[1][e], q[2][e]), fmin(fmax(q[1][e], q[2][e]), q[0][e]));
}

/* Columns of a window that are inside, and the share of those that are not. */
template <rg_dtype T> struct box_edge {
    real<T> met, missed;
};

template <rg_dtype T, class OP>
static __device__ __forceinline__ box_edge<T> edge_of(const rg_box_shape &s, int64_t column)
{
    if constexpr (OP::KINDS != RG_BOX_MOMENTS)
        return {};
    const int64_t met = rg_box_met(&s.column, column);
    return { (real<T>)met, (real<T>)(s.window[1] - met) * (real<T>)s.each[0] };
}

/* outside is (columns outside) / columns + (columns inside) (rows outside) / pixels: nothing is
 * subtracted but whole numbers, so it is 0 where all of the window is inside. */
template <rg_dtype T, class OP>
static __device__ __forceinline__ box_spot<T> spot_at(const rg_box_shape &s,
                                                      const box_edge<T> &edge, int64_t row)
{
    if constexpr (OP::KINDS != RG_BOX_MOMENTS)
        return {};
    const int64_t rows = rg_box_met(&s.row, row);
    const real<T> each = (real<T>)s.each[1];
    return { 0, edge.met * ((real<T>)rows * each),
             fma(edge.met, (real<T>)(s.window[0] - rows) * each, edge.missed) };
}

template <rg_dtype T, class OP>
static __device__ __forceinline__ box_spot<T> spot_of(const rg_box_shape &s, int64_t row,
                                                      int64_t column)
{
    return spot_at<T, OP>(s, edge_of<T, OP>(s, column), row);
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

template <class OP, int V, class REAL>
static __device__ __forceinline__ void subtract_about(REAL *x, const REAL *about)
{
    if constexpr (OP::KINDS == RG_BOX_MOMENTS) {
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] -= about[e];
    }
}

#endif
