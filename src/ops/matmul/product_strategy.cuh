/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The strategies of products of matrices on a GPU: each is a file that ends with its record.
 * product_cuda.cu decides which one runs. */
#ifndef RG_OPS_MATMUL_PRODUCT_STRATEGY_CUH
#define RG_OPS_MATMUL_PRODUCT_STRATEGY_CUH

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/kernel.cuh"
#include "backend/cuda/packing.cuh"
#include "ops/matmul/product.h"

/* What is to be run, and what accepts() found out for run(). */
struct rg_cuda_product {
    rg_dtype dtype;
    const rg_product_args *args;
    uint32_t unaligned; /* bit i: tensor i of a, b, bias, c is not at 16 bytes */
    const rg_cuda_place *place;
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
    /* Runs it, or counts the scratch that it takes, as arena->run says; false: cuBLASLt refuses,
     * and nothing is written. */
    bool (*run)(const rg_cuda_product *call, packing *arena);
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

/* ---- matrices as they lie in dense tensors: a as (m, k) or, where `a_transposed`, as (k, m), and
 * b as (k, n) or (n, k). What lies in another way goes through scratch, so that views give the bits
 * of dense tensors ---- */

/* The index of a walk as dimensions of a tensor, behind the `rank` that there are. */
static inline int32_t add_dims(const rg_walk *walk, int t, int32_t rank, int64_t dims[],
                               int64_t strides[])
{
    for (int32_t d = 0; d < walk->rank; d++) {
        dims[rank + d] = walk->dims[d];
        strides[rank + d] = walk->strides[t][d];
    }
    return rank + walk->rank;
}

/* The matrix of tensor t of the batch: over the index `outer`, then `inner`. */
static inline packed pack_matrix(packing *arena, size_t element, const void *data, bool aligned,
                                 const rg_walk *batch, int t, const rg_walk *outer, int t_outer,
                                 const rg_walk *inner, int t_inner, bool read)
{
    int64_t dims[3 * RG_MAX_RANK], strides[3 * RG_MAX_RANK];
    int32_t rank = add_dims(batch, t, 0, dims, strides);
    rank = add_dims(outer, t_outer, rank, dims, strides);
    rank = add_dims(inner, t_inner, rank, dims, strides);
    return pack_tensor(arena, data, aligned, rank, dims, strides, (int32_t)element, read);
}

static inline packed pack_a(packing *arena, const rg_cuda_product *call)
{
    const rg_product_args *k = call->args;
    const rg_walk *outer = k->a_transposed ? &k->k : &k->m,
                  *inner = k->a_transposed ? &k->m : &k->k;
    return pack_matrix(arena, rg_dtype_size(call->dtype), k->a, !(call->unaligned & 1), &k->batch,
                       0, outer, 0, inner, 0, true);
}

/* b itself, not the sum of it and its mirror image. */
static inline packed pack_b(packing *arena, const rg_cuda_product *call)
{
    const rg_product_args *k = call->args;
    const size_t element = rg_dtype_size(call->dtype);
    const bool aligned = !(call->unaligned & 2);
    return k->b_transposed
               ? pack_matrix(arena, element, k->b, aligned, &k->batch, 1, &k->n, 0, &k->k, 1, true)
               : pack_matrix(arena, element, k->b, aligned, &k->batch, 1, &k->k, 1, &k->n, 0, true);
}

#endif
