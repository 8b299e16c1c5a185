/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient descent on a GPU. */
#include "ops/optimizer/update.cuh"

template <class REAL>
static __device__ __forceinline__ void sgd_rule(const update_constants<REAL> &k,
                                                update_point<REAL> &x)
{
    REAL by = x.g;
    if (k.moments > 0) {
        x.moment[0] = fma(k.momentum, x.moment[0], k.inner * x.g);
        by = k.nesterov ? fma(k.momentum, x.moment[0], x.g) : x.moment[0];
    }
    x.p = fma(-k.factor, by, x.p);
}

static const rg_cuda_row kernel_rows[] = {
    RG_UPDATE_FLAT_ROW(sgd_rule, 1, 2),
    RG_UPDATE_STRIDED_ROW(sgd_rule),
};
RG_CUDA_TABLE(sgd, kernel_rows);
