/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products over a long k by cuBLASLt, which adds up products in f32 without an end: it makes sums
 * of pieces of k, and a kernel of ours adds them up in double. Included by dense_cuda.cu, whose
 * store_result() it uses. */
#ifndef RG_OPS_DENSE_LONG_CUH
#define RG_OPS_DENSE_LONG_CUH

#include "core/long_sum.h"
#include "ops/dense/dense_library.cuh"

/* Elements of k that one call may add up: random numbers are then within half of the tolerance. */
template <rg_dtype T> constexpr int64_t LONGEST_CALL = sizeof(element<T>) == 2 ? 1 << 20 : 1 << 14;

/* Pieces are as short as the room for their sums allows. */
template <rg_dtype T>
constexpr int64_t SHORTEST_PIECE = sizeof(element<T>) == 2 ? RG_SUM_BLOCK : RG_SUM_RUN;

struct long_product {
    rg_product call; /* of one piece */
    int64_t pieces;  /* whole ones; what is left is one more */
    int64_t most;    /* pieces of a round */
    int64_t size;    /* elements of c */
    size_t workspace;
};

template <rg_dtype T> static bool is_long(const rg_product_args *k)
{
    return k->k.count > LONGEST_CALL<T>;
}

static bool plan_round(const rg_cuda_place *place, long_product *p, int64_t batch, int64_t inner)
{
    size_t workspace = 0;
    rg_product call = p->call;
    call.batch = batch;
    call.inner = inner;
    if (batch > 0 && inner > 0 && !rg_cublaslt_plan(place, &call, &workspace))
        return false;
    p->workspace = p->workspace > workspace ? p->workspace : workspace;
    return true;
}

/* False: it is not done this way. */
template <rg_dtype T>
static bool find_long(const rg_product_args *k, const rg_cuda_place *place, long_product *p)
{
    enum { BYTES = 64 << 20, BATCH = 1 << 14 };
    const int64_t size = k->m.count * k->n.count, bytes = size * (int64_t)sizeof(real<T>);
    int64_t piece = SHORTEST_PIECE<T>;
    if (k->batch.count != 1 || k->mirrored || size == 0)
        return false;
    while (ceil_div(k->k.count, piece) * bytes > BYTES && piece < LONGEST_CALL<T>)
        piece *= 2;
    *p = {};
    p->call.dtype = T;
    p->call.rows = k->m.count;
    p->call.columns = k->n.count;
    p->call.inner = piece;
    p->call.transposed_a = k->a_transposed;
    p->call.transposed_b = k->b_transposed;
    p->call.wide = sizeof(element<T>) == 2;
    p->call.whole = k->k.count;
    p->size = size;
    p->pieces = k->k.count / piece;
    p->most = BYTES / bytes < BATCH ? BYTES / bytes : (int64_t)BATCH;
    p->most = p->most < 1 ? 1 : p->most < p->pieces ? p->most : p->pieces;
    return plan_round(place, p, p->most, piece) &&
           plan_round(place, p, p->pieces % p->most, piece) &&
           plan_round(place, p, 1, k->k.count % piece);
}

/* A block has LONG_JOIN elements of c; threads share the pieces of each. */
enum { LONG_JOIN = 16, LONG_SHARES = 16 };

template <rg_dtype T>
static __global__ void __launch_bounds__(LONG_JOIN *LONG_SHARES)
    join_pieces(const __grid_constant__ rg_product_args k, const real<T> *sums, int64_t count,
                int64_t size, double *totals, bool first, bool last)
{
    __shared__ double shared[LONG_SHARES][LONG_JOIN];
    const int own = (int)threadIdx.x % LONG_JOIN, share = (int)threadIdx.x / LONG_JOIN;
    const int64_t i = (int64_t)blockIdx.x * LONG_JOIN + own;
    double sum = 0;
#pragma unroll 8
    for (int64_t n = share; i < size && n < count; n += LONG_SHARES)
        sum += (double)sums[n * size + i];
    shared[share][own] = sum;
    __syncthreads();
    if (share != 0 || i >= size)
        return;
    for (int n = 1; n < LONG_SHARES; n++)
        sum += shared[n][own];
    sum = first ? sum : totals[i] + sum;
    if (!last) {
        totals[i] = sum;
        return;
    }
    const int64_t to = walk_offset(k.batch, 2, 0), m = i / k.n.count;
    char *const c = k.wide ? ::at<RG_F32>(k.c, to) : ::at<T>(k.c, to);
    store_result<T>(k, c, m, i - m * k.n.count, (real<T>)sum);
}

/* Does it, or finds out what it would take; false: it is not done. c is written last. */
template <rg_dtype T>
static bool by_pieces(const rg_product_args *k, const long_product *p, uint32_t unaligned,
                      packing *arena)
{
    const packed a = pack_a<T>(arena, k, !(unaligned & 1));
    const packed b = pack_b<T>(arena, k, !(unaligned & 2));
    real<T> *const sums =
        (real<T> *)packing_take(arena, (size_t)(p->most * p->size) * sizeof(real<T>));
    double *const totals = (double *)packing_take(arena, (size_t)p->size * sizeof(double));
    void *const space = packing_take(arena, p->workspace);
    const int64_t piece = p->call.inner, whole = p->call.whole;
    for (int64_t done = 0; arena->run && done < whole;) {
        const int64_t left = (whole - done) / piece;
        rg_product call = p->call;
        call.batch = left == 0 ? 1 : left < p->most ? left : p->most;
        call.inner = left == 0 ? whole - done : piece;
        const char *const from_a = at<T>(a.data, call.transposed_a ? done * call.rows : done);
        const char *const from_b = at<T>(b.data, call.transposed_b ? done : done * call.columns);
        if (!rg_cublaslt_run(arena->place, &call, 1, from_a, from_b, NULL, sums, space,
                             p->workspace))
            return false;
        const int64_t begun = done;
        done += call.batch * call.inner;
        launch(join_pieces<T>, ceil_div(p->size, LONG_JOIN), LONG_JOIN * LONG_SHARES, 0,
               arena->place, *k, sums, call.batch, p->size, totals, begun == 0, done == whole);
    }
    return true;
}

/* The bytes of scratch it takes. */
template <rg_dtype T>
static size_t product_scratch(const void *args, uint32_t unaligned, const rg_cuda_place *place)
{
    packing arena = { .place = place };
    const rg_product_args *k = (const rg_product_args *)args;
    product_call call;
    long_product pieces;
    if (is_long<T>(k))
        return find_long<T>(k, place, &pieces) && by_pieces<T>(k, &pieces, unaligned, &arena)
                   ? arena.used
                   : 0;
    const bool found = find_product<T>(k, place, &call);
    return found && by_cublaslt<T>(k, &call, unaligned, &arena) ? arena.used : 0;
}

#endif
