/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The epilogue of a product on a GPU: scale, bias, conversion. */
#ifndef RG_OPS_MATMUL_PRODUCT_EPILOGUE_CUH
#define RG_OPS_MATMUL_PRODUCT_EPILOGUE_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/matmul/product.h"

/* Adds to c where that is asked for; C is how it is stored. */
template <rg_dtype C>
static __device__ __forceinline__ void put_result(const rg_product_args &k, void *c, int64_t to,
                                                  real<C> value)
{
    store<C>(c, to, k.add ? value + load<C>(c, to) : value);
}

template <rg_dtype T>
static __device__ __forceinline__ void store_result(const rg_product_args &k, void *c, int64_t m,
                                                    int64_t n, real<T> sum)
{
    if (m >= k.m.count || n >= k.n.count || (k.symmetric && n < m))
        return;
    const int64_t to = walk_offset(k.m, 1, m) + walk_offset(k.n, 1, n);
    const real<T> bias = k.has_bias ? load<T>(k.bias, (k.bias_rows ? m : n) * k.bias_step) : 0;
    const real<T> value = fma(sum, (real<T>)k.alpha, bias);
    if (k.wide)
        put_result<T == RG_F64 ? RG_F64 : RG_F32>(k, c, to, value);
    else
        put_result<T>(k, c, to, value);
    if (k.symmetric)
        store<T>(c, walk_offset(k.m, 1, n) + walk_offset(k.n, 1, m), value);
}

#endif
