/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat on a GPU. */
#include "backend/cuda/divide.cuh"
#include "ops/concat/concat.h"
#include "ops/move/move.cuh"

enum { THREADS = 256, EACH = 4 };

/* ---- all sources in one launch ---- */

/* Rows in chunks of as many bytes, up to 16, as divide all runs and addresses. */
struct join_plan {
    char *whole, *parts[RG_CONCAT_PARTS];
    int32_t start[RG_CONCAT_PARTS + 1]; /* of runs, in chunks */
    int32_t count, all;                 /* parts; chunks of the whole */
    small_divider by;                   /* chunks of a row */
    bool stream;
};

/* A thread has EACH chunks of the whole, and finds the part of each. APART: the whole is read, and
 * parts are written. */
template <class CHUNK, bool APART>
static __global__ void __launch_bounds__(THREADS) join_rows(const __grid_constant__ join_plan k)
{
    const int64_t first = (int64_t)blockIdx.x * (EACH * THREADS) + threadIdx.x;
    CHUNK held[EACH], *target[EACH];
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int64_t i = first + n * THREADS;
        target[n] = NULL;
        if (i >= k.all)
            continue;
        const int32_t row = divide((int32_t)i, k.by);
        const int32_t column = (int32_t)i - row * k.start[k.count];
        int part = 0;
        while (column >= k.start[part + 1])
            part++;
        const int32_t run = k.start[part + 1] - k.start[part];
        CHUNK *const own = (CHUNK *)k.parts[part];
        if (own != NULL)
            target[n] = own + (int64_t)row * run + (column - k.start[part]);
        if (own != NULL)
            held[n] = APART ? ((const CHUNK *)k.whole)[i] : *target[n];
    }
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        if (target[n] == NULL)
            continue;
        CHUNK *const to = APART ? target[n] : (CHUNK *)k.whole + first + n * THREADS;
        if (k.stream && !APART)
            __stcs(to, held[n]);
        else
            *to = held[n];
    }
}

template <class CHUNK, bool APART>
static void launch_join(const join_plan &plan, const rg_cuda_target *target)
{
    launch(join_rows<CHUNK, APART>, ceil_div(plan.all, EACH * THREADS), THREADS, 0, target, plan);
}

/* Tensors with more chunks than a 32-bit index can count are split by rows. */
template <bool APART>
static void join_some(const rg_concat_join_args &k, int64_t first, int64_t rows, int64_t size,
                      const rg_cuda_target *target)
{
    join_plan plan = {};
    const int64_t total = k.start[k.count];
    plan.whole = (char *)k.whole + first * total * size;
    plan.count = k.count;
    plan.stream = k.stream;
    uint64_t bits = 16 | (uint64_t)(uintptr_t)plan.whole;
    for (int32_t i = 0; i < k.count; i++) {
        const int64_t run = k.start[i + 1] - k.start[i];
        if (k.parts[i] != NULL)
            plan.parts[i] = (char *)k.parts[i] + first * run * size;
        bits |= (uint64_t)(run * size) | (uint64_t)(uintptr_t)plan.parts[i];
    }
    const int64_t chunk = (int64_t)(bits & -bits);
    for (int32_t i = 0; i <= k.count; i++)
        plan.start[i] = (int32_t)(k.start[i] * size / chunk);
    plan.all = (int32_t)(rows * total * size / chunk);
    plan.by = small_divider_of(plan.start[k.count]);
    if (chunk == 16)
        launch_join<uint4, APART>(plan, target);
    else if (chunk == 8)
        launch_join<uint2, APART>(plan, target);
    else if (chunk == 4)
        launch_join<unsigned, APART>(plan, target);
    else
        launch_join<unsigned short, APART>(plan, target);
}

template <rg_dtype T, bool APART> static void join(const void *args, const rg_cuda_target *target)
{
    const rg_concat_join_args &k = *(const rg_concat_join_args *)args;
    const int64_t total = k.start[k.count], most = RG_CONCAT_ROW / total;
    for (int64_t first = 0; first < k.rows; first += most)
        join_some<APART>(k, first, k.rows - first < most ? k.rows - first : most,
                         (int64_t)sizeof(element<T>), target);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_CONCAT_MOVE, move_units),
    RG_CUDA_ROW(RG_CONCAT_SCATTER, scatter_units),
    RG_CUDA_ROW(RG_CONCAT_JOIN, join, false),
    RG_CUDA_ROW(RG_CONCAT_PART, join, true),
};
RG_CUDA_TABLE(concat, kernel_rows);
