/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products over a long k by cuBLASLt, which adds up products in f32 without an end: it makes sums
 * of pieces of k, and a kernel of ours adds them up in double. */
#include "core/long_sum.h"
#include "ops/matmul/product_epilogue.cuh"
#include "ops/matmul/product_strategy.cuh"

/* ---- pieces: as short as the scratch for their sums allows ---- */

static bool plan_round(rg_cuda_product *call, int64_t batch, int64_t inner)
{
    size_t workspace = 0;
    rg_product product = call->product;
    product.batch = batch;
    product.inner = inner;
    if (batch > 0 && inner > 0 && !rg_cublaslt_plan(call->place, &product, &workspace))
        return false;
    call->workspace = call->workspace > workspace ? call->workspace : workspace;
    return true;
}

static bool accepts(rg_cuda_product *call)
{
    enum { BYTES = 64 << 20, BATCH = 1 << 14 };
    const rg_product_args *k = call->args;
    const bool half = rg_dtype_size(call->dtype) == 2;
    const int64_t size = k->m.count * k->n.count;
    const int64_t bytes = size * (int64_t)(call->dtype == RG_F64 ? sizeof(double) : sizeof(float));
    int64_t piece = half ? RG_SUM_BLOCK : RG_SUM_RUN;
    if (!product_is_long(call) || k->batch.count != 1 || k->mirrored || size == 0)
        return false;
    while (ceil_div(k->k.count, piece) * bytes > BYTES && piece < product_longest_call(call->dtype))
        piece *= 2;
    call->product = {};
    call->product.dtype = call->dtype;
    call->product.rows = k->m.count;
    call->product.columns = k->n.count;
    call->product.inner = piece;
    call->product.transposed_a = k->a_transposed;
    call->product.transposed_b = k->b_transposed;
    call->product.wide = half;
    call->product.whole = k->k.count;
    call->workspace = 0;
    call->pieces = k->k.count / piece;
    call->most = BYTES / bytes < BATCH ? BYTES / bytes : (int64_t)BATCH;
    call->most = call->most < 1 ? 1 : call->most < call->pieces ? call->most : call->pieces;
    return plan_round(call, call->most, piece) &&
           plan_round(call, call->pieces % call->most, piece) &&
           plan_round(call, 1, k->k.count % piece);
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

/* c is written last. */
template <rg_dtype T> static bool run_as(const rg_cuda_product *call, packing *arena)
{
    const rg_product_args *k = call->args;
    const int64_t size = k->m.count * k->n.count;
    const packed a = pack_a(arena, call);
    const packed b = pack_b(arena, call);
    real<T> *const sums =
        (real<T> *)packing_take(arena, (size_t)(call->most * size) * sizeof(real<T>));
    double *const totals = (double *)packing_take(arena, (size_t)size * sizeof(double));
    void *const space = packing_take(arena, call->workspace);
    const int64_t piece = call->product.inner, whole = call->product.whole;
    for (int64_t done = 0; arena->run && done < whole;) {
        const int64_t left = (whole - done) / piece;
        rg_product product = call->product;
        product.batch = left == 0 ? 1 : left < call->most ? left : call->most;
        product.inner = left == 0 ? whole - done : piece;
        const char *const from_a = at<T>(a.data, product.transposed_a ? done * product.rows : done);
        const char *const from_b =
            at<T>(b.data, product.transposed_b ? done : done * product.columns);
        if (!rg_cublaslt_run(arena->place, &product, 1, from_a, from_b, NULL, sums, space,
                             call->workspace))
            return false;
        const int64_t begun = done;
        done += product.batch * product.inner;
        launch(join_pieces<T>, ceil_div(size, LONG_JOIN), LONG_JOIN * LONG_SHARES, 0, arena->place,
               *k, sums, product.batch, size, totals, begun == 0, done == whole);
    }
    return true;
}

static bool run(const rg_cuda_product *call, packing *arena)
{
    static bool (*const run_by_dtype[])(const rg_cuda_product *,
                                        packing *) = { run_as<RG_F32>, run_as<RG_F64>,
                                                       run_as<RG_F16>, run_as<RG_BF16> };
    return run_by_dtype[call->dtype](call, arena);
}

extern "C" const rg_product_strategy rg_product_long = { "cublaslt, long", accepts, run };
