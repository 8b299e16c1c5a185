/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* RMSProp on a GPU. */
#include "ops/optimizer/update.cuh"

/* The moments are velocity, then mean if centered, then momentum if there is one. */
template <class REAL>
static __device__ __forceinline__ void rmsprop_rule(const update_constants<REAL> &k,
                                                    update_point<REAL> &x)
{
    const REAL g = x.g;
    REAL square = x.moment[0] = fma(k.beta2, x.moment[0], k.rest2 * g * g);
    if (k.centered) {
        const REAL mean = x.moment[1] = fma(k.beta2, x.moment[1], k.rest2 * g);
        square = square - mean * mean;
        square = 0 > square ? 0 : square; /* NaN stays */
    }
    REAL by = g / (sqrt(square) + k.epsilon);
    if (k.moments > 1 + k.centered) { /* not by momentum, which may be 0 as a float */
        const REAL old = k.centered ? x.moment[2] : x.moment[1];
        by = fma(k.momentum, old, k.inner * by);
        if (k.centered)
            x.moment[2] = by;
        else
            x.moment[1] = by;
    }
    x.p = fma(-k.factor, by, x.p);
}

static const rg_cuda_row kernel_rows[] = {
    RG_UPDATE_FLAT_ROW(rmsprop_rule, 3, 1),
    RG_UPDATE_STRIDED_ROW(rmsprop_rule),
};
RG_CUDA_TABLE(rmsprop, kernel_rows);
