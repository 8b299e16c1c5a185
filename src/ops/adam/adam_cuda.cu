/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Adam on a GPU. */
#include "ops/optimizer/update.cuh"

/* The moments are momentum, velocity and, for AMSGrad, the largest velocity so far. */
template <class REAL>
static __device__ __forceinline__ void adam_rule(const update_constants<REAL> &k,
                                                 update_point<REAL> &x)
{
    const REAL g = x.g;
    const REAL mean = x.moment[0] = fma(k.beta1, x.moment[0], k.rest1 * g);
    REAL square = x.moment[1] = fma(k.beta2, x.moment[1], k.rest2 * g * g);
    if (k.amsgrad)
        square = x.moment[2] = x.moment[2] > square ? x.moment[2] : square;
    const REAL root = fma(sqrt(square), k.spread, k.epsilon);
    x.p = fma(-k.factor, mean / root, x.p * k.keep);
}

static const rg_cuda_row kernel_rows[] = {
    RG_UPDATE_FLAT_ROW(adam_rule, 3, 1),
    RG_UPDATE_STRIDED_ROW(adam_rule),
};
RG_CUDA_TABLE(adam, kernel_rows);
