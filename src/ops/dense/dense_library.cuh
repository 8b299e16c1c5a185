/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products by cuBLASLt. It sees dense matrices, as they lie in dense tensors: a as (m, k) or, where
 * `a_transposed`, as (k, m), and b as (k, n) or (n, k). What lies in another way goes through
 * scratch, so that views give the bits of dense tensors. */
#ifndef RG_OPS_DENSE_LIBRARY_CUH
#define RG_OPS_DENSE_LIBRARY_CUH

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/packing.cuh"
#include "ops/matmul/product.h"

/* In 16 bits the sum of two numbers may be infinite: their mean is not, and alpha makes up for it.
 */
template <rg_dtype T> constexpr bool MIRROR_HALVES = T == RG_F16 || T == RG_BF16;

/* b(k, n) + b(n, k), or half of it, dense. A block has a square of it: the other square goes
 * through shared memory, so that neighbouring threads load neighbours from both. k and n have one
 * dimension. */
enum { MIRROR = 32, MIRROR_LINES = 8 };

template <rg_dtype T>
static __global__ void __launch_bounds__(MIRROR *MIRROR_LINES)
    mirrored_sum(const __grid_constant__ rg_product_args k, void *to, uint32_t across)
{
    __shared__ real<T> other[MIRROR][MIRROR + 1];
    const int64_t side = k.n.count;
    const uint32_t image = blockIdx.x / (across * across);
    const uint32_t square = blockIdx.x - image * across * across;
    const int64_t row = (int64_t)(square / across) * MIRROR;
    const int64_t column = (int64_t)(square % across) * MIRROR;
    const int64_t first = walk_offset(k.batch, 1, image);
    const int x = (int)threadIdx.x % MIRROR, y = (int)threadIdx.x / MIRROR;
    for (int i = y; i < MIRROR; i += MIRROR_LINES) {
        if (column + i < side && row + x < side)
            other[i][x] = load<T>(k.b, first + straight_offset(k.k, 1, column + i) +
                                           straight_offset(k.n, 0, row + x));
    }
    __syncthreads();
    for (int i = y; i < MIRROR; i += MIRROR_LINES) {
        if (row + i < side && column + x < side) {
            const real<T> here = load<T>(k.b, first + straight_offset(k.k, 1, row + i) +
                                                  straight_offset(k.n, 0, column + x));
            const real<T> sum = MIRROR_HALVES<T> ? (real<T>)0.5 * here + (real<T>)0.5 * other[x][i]
                                                 : here + other[x][i];
            store<T>(to, (image * side + row + i) * side + column + x, sum);
        }
    }
}

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
template <rg_dtype T>
static packed pack_matrix(packing *arena, const void *data, bool aligned, const rg_walk *batch,
                          int t, const rg_walk *outer, int t_outer, const rg_walk *inner,
                          int t_inner, bool read)
{
    int64_t dims[3 * RG_MAX_RANK], strides[3 * RG_MAX_RANK];
    int32_t rank = add_dims(batch, t, 0, dims, strides);
    rank = add_dims(outer, t_outer, rank, dims, strides);
    rank = add_dims(inner, t_inner, rank, dims, strides);
    return pack_tensor(arena, data, aligned, rank, dims, strides, (int32_t)sizeof(element<T>),
                       read);
}

template <rg_dtype T> static packed pack_a(packing *arena, const rg_product_args *k, bool aligned)
{
    const rg_walk *outer = k->a_transposed ? &k->k : &k->m,
                  *inner = k->a_transposed ? &k->m : &k->k;
    return pack_matrix<T>(arena, k->a, aligned, &k->batch, 0, outer, 0, inner, 0, true);
}

template <rg_dtype T> static packed pack_b(packing *arena, const rg_product_args *k, bool aligned)
{
    if (!k->mirrored)
        return k->b_transposed
                   ? pack_matrix<T>(arena, k->b, aligned, &k->batch, 1, &k->n, 0, &k->k, 1, true)
                   : pack_matrix<T>(arena, k->b, aligned, &k->batch, 1, &k->k, 1, &k->n, 0, true);
    const int64_t count = k->batch.count * k->k.count * k->n.count;
    packed sum = {};
    sum.data = packing_take(arena, (size_t)count * sizeof(element<T>));
    if (arena->run) {
        const int64_t across = ceil_div(k->n.count, MIRROR);
        launch(mirrored_sum<T>, k->batch.count * across * across, MIRROR * MIRROR_LINES, 0,
               arena->place, *k, sum.data, (uint32_t)across);
    }
    return sum;
}

/* Rows of the bias where c is to be, for what adds to them. */
template <rg_dtype T>
static void spread_bias(const packing *arena, const rg_product_args *k, void *c)
{
    rg_copy_args copy = {};
    copy.device = (void *)k->bias;
    copy.staging = c;
    copy.rank = 2;
    copy.dims[0] = k->m.count;
    copy.dims[1] = k->n.count;
    copy.strides[1] = k->bias_step;
    copy.element = (int32_t)sizeof(element<T>);
    copy.to_host = true;
    if (arena->run)
        rg_cuda_strided_copy(&copy, arena->place->stream);
}

/* What cuBLASLt computes. */
struct product_call {
    rg_product product;
    bool spread; /* the bias comes before the product, which adds to it */
    size_t workspace;
};

/* False: it does not. */
template <rg_dtype T>
static bool find_product(const rg_product_args *k, const rg_cuda_place *place, product_call *call)
{
    rg_product product = { .dtype = T,
                           .batch = k->batch.count,
                           .rows = k->m.count,
                           .columns = k->n.count,
                           .inner = k->k.count,
                           .transposed_a = k->a_transposed,
                           .transposed_b = k->b_transposed && !k->mirrored,
                           .bias = k->has_bias,
                           .add = k->add,
                           .wide = k->wide };
    const int64_t squares = ceil_div(k->n.count, MIRROR) * ceil_div(k->n.count, MIRROR);
    *call = {};
    if (k->mirrored && (k->batch.count * squares > INT32_MAX || k->k.rank > 1 || k->n.rank > 1))
        return false; /* more blocks than a grid has, or more dimensions than a square */
    if (!rg_cublaslt_plan(place, &product, &call->workspace)) {
        call->spread = k->has_bias && k->batch.count == 1;
        product.bias = false;
        product.add = true;
        if (!call->spread || !rg_cublaslt_plan(place, &product, &call->workspace))
            return false;
    }
    call->product = product;
    return true;
}

/* Does it, or finds out what it would take; false: it is not done, and nothing is. */
template <rg_dtype T>
static bool by_cublaslt(const rg_product_args *k, const product_call *call, uint32_t unaligned,
                        packing *arena)
{
    const bool has_bias = call->product.bias;
    const packed a = pack_a<T>(arena, k, !(unaligned & 1));
    const packed b = pack_b<T>(arena, k, !(unaligned & 2));
    const int64_t columns = k->n.count;
    const packed bias = pack_tensor(arena, k->bias, !(unaligned & 4), has_bias ? 1 : 0, &columns,
                                    &k->bias_step, (int32_t)sizeof(element<T>), has_bias);
    packed c = k->wide ? pack_matrix<RG_F32>(arena, k->c, !(unaligned & 8), &k->batch, 2, &k->m, 1,
                                             &k->n, 1, k->add)
                       : pack_matrix<T>(arena, k->c, !(unaligned & 8), &k->batch, 2, &k->m, 1,
                                        &k->n, 1, k->add);
    if (call->spread)
        spread_bias<T>(arena, k, c.data);
    void *const space = packing_take(arena, call->workspace);
    const double alpha = k->mirrored && MIRROR_HALVES<T> ? 2 * k->alpha : k->alpha;
    if (arena->run && !rg_cublaslt_run(arena->place, &call->product, alpha, a.data, b.data,
                                       bias.data, c.data, space, call->workspace))
        return false;
    packed_copy(arena, &c, true);
    return true;
}

#endif
