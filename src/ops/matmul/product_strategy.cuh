/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The strategies of products of matrices on a GPU: each is a file that ends with its record.
 * product_cuda.cu decides which one runs. */
#ifndef RG_OPS_MATMUL_PRODUCT_STRATEGY_CUH
#define RG_OPS_MATMUL_PRODUCT_STRATEGY_CUH

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/kernel.cuh"
#include "backend/cuda/dense_copy.cuh"
#include "ops/matmul/product.h"

/* What is to be run, and what accepts() found out for run(). */
struct rg_cuda_product {
    rg_dtype dtype;
    const rg_product_args *args;
    uint32_t unaligned; /* bit i: tensor i of a, b, bias, c is not at 16 bytes */
    const rg_cuda_target *target;
    /* of cuBLASLt: */
    rg_product product; /* of one piece, where k is long */
    size_t workspace;   /* bytes */
    bool spread;        /* the bias comes before the product, which adds to it */
    int64_t pieces;     /* of k, whole ones; what is left is one more */
    int64_t most;       /* pieces of a round */
};

struct rg_product_strategy {
    const char *name;
    bool (*accepts)(rg_cuda_product *call);
    /* Runs it, or counts the scratch that it takes, as arena->enqueue says; false: cuBLASLt
     * refuses, and nothing is written. */
    bool (*run)(const rg_cuda_product *call, scratch_arena *arena);
};

extern "C" const rg_product_strategy rg_product_long, rg_product_cublaslt, rg_product_tiles;

/* Elements of k that one call of a library may add up: random numbers are then within half of the
 * tolerance. */
static inline int64_t product_longest_call(rg_dtype dtype)
{
    return rg_dtype_size(dtype) == 2 ? 1 << 20 : 1 << 14;
}

static inline bool product_is_long(const rg_cuda_product *call)
{
    return call->args->k.count > product_longest_call(call->dtype);
}

/* ---- the epilogue: scale, bias, conversion ---- */

template <rg_dtype T>
static __device__ __forceinline__ void store_result(const rg_product_args &k, void *c, int64_t m,
                                                    int64_t n, real<T> sum)
{
    if (m >= k.m.count || n >= k.n.count || (k.symmetric && n < m))
        return;
    const int64_t to = walk_offset(k.m, 1, m) + walk_offset(k.n, 1, n);
    const real<T> bias = k.has_bias ? load<T>(k.bias, (k.bias_rows ? m : n) * k.bias_step) : 0;
    const real<T> value = fma(sum, (real<T>)k.alpha, bias);
    put_as<T>(c, to, value, k.add, k.wide);
    if (k.symmetric)
        store<T>(c, walk_offset(k.m, 1, n) + walk_offset(k.n, 1, m), value);
}

/* ---- matrices as they lie in dense tensors: a as (m, k) or, where `a_transposed`, as (k, m),
 * and b as (k, n) or (n, k). One with other strides goes through scratch, so that views give the
 * bits of dense tensors ---- */

/* An index of a product, and the tensor of its walk that is meant. */
struct product_index {
    const rg_walk *walk;
    int t;
};

/* The matrix of a tensor of `element` bytes, over the indices batch, outer and inner. */
static inline dense_copy dense_matrix(scratch_arena *arena, size_t element, const void *data,
                                      bool aligned, const product_index (&indices)[3], bool read)
{
    int64_t dims[3 * RG_MAX_RANK], strides[3 * RG_MAX_RANK];
    int32_t rank = 0;
    for (int i = 0; i < 3; i++) {
        const rg_walk *walk = indices[i].walk;
        for (int32_t d = 0; d < walk->rank; d++, rank++) {
            dims[rank] = walk->dims[d];
            strides[rank] = walk->strides[indices[i].t][d];
        }
    }
    return dense_tensor(arena, data, aligned, rank, dims, strides, (int32_t)element, read);
}

static inline dense_copy dense_a(scratch_arena *arena, const rg_cuda_product *call)
{
    const rg_product_args *k = call->args;
    const product_index m = { &k->m, 0 }, inner = { &k->k, 0 };
    return dense_matrix(
        arena, rg_dtype_size(call->dtype), k->a, !(call->unaligned & 1),
        { { &k->batch, 0 }, k->a_transposed ? inner : m, k->a_transposed ? m : inner }, true);
}

/* b itself, not the sum of it and its mirror image. */
static inline dense_copy dense_b(scratch_arena *arena, const rg_cuda_product *call)
{
    const rg_product_args *k = call->args;
    const product_index n = { &k->n, 0 }, inner = { &k->k, 1 };
    return dense_matrix(
        arena, rg_dtype_size(call->dtype), k->b, !(call->unaligned & 2),
        { { &k->batch, 1 }, k->b_transposed ? n : inner, k->b_transposed ? inner : n }, true);
}

#endif
