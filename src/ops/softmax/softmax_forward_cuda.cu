/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax, forward, on a GPU. Memory sees one pass where a group fits into registers and shared
 * memory. softmax_slots.cuh says in which order sums are made. */
#include "ops/softmax/softmax_slots.cuh"

/* ---- formulas ---- */

/* y from x, the largest x, and 1 / sum or log(sum) of e^(x - max). */
template <rg_dtype T, bool LOG>
static __device__ __forceinline__ real<T> forward_of(real<T> max, real<T> scale, real<T> x)
{
    return LOG ? (x - max) - scale : exp_of<T>(x - max) * scale;
}

template <rg_dtype T, bool LOG> static __device__ __forceinline__ real<T> scale_of(real<T> sum)
{
    return LOG ? log(sum) : 1 / sum;
}

/* Whether e^(x - max) takes the place of x: where an element holds it without rounding. */
template <rg_dtype T, bool LOG>
constexpr bool KEEPS_POWERS = !LOG && sizeof(element<T>) == sizeof(real<T>);

/* ---- forward ---- */

/* Short rows: `inner` threads of a warp hold a vector each of ROWS rows. */
template <rg_dtype T, bool LOG, int ROWS>
static __global__ void __launch_bounds__(256)
    forward_short(const __grid_constant__ rg_softmax_args k, const softmax_plan plan)
{
    enum { V = VLEN<T> };
    const short_rows p = find_short<T, ROWS>(k.shape, plan);
    uint4 held[ROWS][1];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        load_short<T, 1>(k.shape, 0, k.x, p, r, held[r]);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        real<T> x[V], max = -INFINITY, sum = 0;
        unpack<T>(held[r][0], x);
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = p.thread < p.vectors ? x[e] : -INFINITY;
            max = join(max, x[e], true);
        }
        max = reduce(max, p.inner, (real<T> *)NULL, true);
#pragma unroll
        for (int e = 0; e < V; e++) {
            const real<T> power = exp_of<T>(x[e] - max);
            sum += power;
            x[e] = LOG ? x[e] - max : power;
        }
        const real<T> scale = scale_of<T, LOG>(reduce(sum, p.inner, (real<T> *)NULL, false));
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] = LOG ? x[e] - scale : x[e] * scale;
        store_short<T>(k.shape, 1, k.y, p, r, 0, x);
    }
}

/* Rows of odd length, without gaps between them: a tile of them lies in shared memory. */
template <rg_dtype T, bool LOG, int INNER>
static __global__ void __launch_bounds__(INNER > 0 ? 256 : 1024)
    forward_tiles(const __grid_constant__ rg_softmax_args k, const softmax_plan plan)
{
    extern __shared__ uint4 shared[];
    __shared__ real<T> partial[2][32];
    const row_tile p = find_tile<INNER>(k.shape, plan);
    element<T> *const tile = load_tile<T>(at<T>(k.x, p.start), p, (char *)shared);
    await_copies();
    __syncthreads();
    for (int r = 0; r < plan.passes; r++) {
        const int row = p.first + r * p.step;
        const int end = row < p.rows ? (int)k.shape.length : 0;
        element<T> *const x = tile + row * (int)k.shape.length;
        real<T> max = -INFINITY, sum = 0;
        each_element<ELEMENTS>(p.thread, end, p.inner,
                               [&](int j) { max = join(max, to_real<T>(x[j]), true); });
        max = reduce(max, p.inner, partial[0], true);
        each_element<ELEMENTS>(p.thread, end, p.inner, [&](int j) {
            const real<T> power = exp_of<T>(to_real<T>(x[j]) - max);
            sum += power;
            if (KEEPS_POWERS<T, LOG>)
                x[j] = from_real<T>(power);
        });
        const real<T> scale = scale_of<T, LOG>(reduce(sum, p.inner, partial[1], false));
        each_element<ELEMENTS>(p.thread, end, p.inner, [&](int j) {
            x[j] = from_real<T>(KEEPS_POWERS<T, LOG>
                                    ? to_real<T>(x[j]) * scale
                                    : forward_of<T, LOG>(max, scale, to_real<T>(x[j])));
        });
    }
    __syncthreads();
    store_tile<T>(at<T>(k.y, p.start), p, tile, k.shape.stream);
}

/* Blocks of 512 threads with columns that a multiprocessor should hold at once. */
#if __CUDA_ARCH__ >= 800
enum { COLUMN_BLOCKS = 3 };
#else
enum { COLUMN_BLOCKS = 2 };
#endif

/* Any groups. With HOLD every thread keeps its slots in shared memory, else they are read again
 * and again. */
template <rg_dtype T, bool LOG, bool ROWS, bool HOLD>
static __global__ void __launch_bounds__(HOLD && !ROWS ? 512 : 1024,
                                         HOLD && !ROWS && T != RG_F64 ? COLUMN_BLOCKS : 1)
    forward_groups(const __grid_constant__ rg_softmax_args k, const softmax_plan plan)
{
    enum { V = VLEN<T>, SUMS = ROWS ? 1 : V, KEEPS = HOLD && KEEPS_POWERS<T, LOG> };
    extern __shared__ uint4 shared[];
    uint4 *const held = shared + threadIdx.x;
    real<T> *const partial = (real<T> *)(shared + (HOLD ? SLOTS * blockDim.x : 0));
    const group_slots p = find_group<T, ROWS, HOLD>(k.shape, plan, 2);
    real<T> x[V], max[SUMS], sum[SUMS] = {};
    double total[SUMS];
#pragma unroll
    for (int e = 0; e < SUMS; e++) {
        max[e] = -INFINITY;
        total[e] = -0.0;
    }
    if (HOLD) {
        hold_slots<T, ROWS>(k.shape, 0, k.x, p, held);
        await_copies();
    }
    each_slot<HOLD>(p, [&](int q, int64_t slot) {
        take_slot<T, ROWS, HOLD>(k.shape, 0, k.x, p, slot, plan.wide, held[q * blockDim.x], x);
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (HOLD || !ROWS || e < p.elements)
                max[ROWS ? 0 : e] = join(max[ROWS ? 0 : e], x[e], true);
        }
    });
    reduce_group<T, ROWS>(max, plan, partial, true);
    each_slot<HOLD>(p, [&](int q, int64_t slot) {
        take_slot<T, ROWS, HOLD>(k.shape, 0, k.x, p, slot, plan.wide, held[q * blockDim.x], x);
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = exp_of<T>(x[e] - max[ROWS ? 0 : e]);
            if (HOLD || !ROWS || e < p.elements)
                sum[ROWS ? 0 : e] += x[e];
        }
        if (KEEPS)
            held[q * blockDim.x] = pack<T>(x);
        if (!HOLD && (q + 1) % plan.chunk == 0)
            end_chunk<SUMS>(total, sum);
    });
    if (!HOLD)
        end_chunks<SUMS>(total, sum);
    if (!ROWS)
        __syncthreads(); /* before `partial` serves again */
    reduce_group<T, ROWS>(sum, plan, partial + (ROWS ? 32 : 0), false);
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        sum[e] = scale_of<T, LOG>(sum[e]);
    each_slot<HOLD>(p, [&](int q, int64_t slot) {
        take_slot<T, ROWS, HOLD>(k.shape, 0, k.x, p, slot, plan.wide, held[q * blockDim.x], x);
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] = KEEPS ? x[e] * sum[ROWS ? 0 : e]
                         : forward_of<T, LOG>(max[ROWS ? 0 : e], sum[ROWS ? 0 : e], x[e]);
        store_slot<T, ROWS>(k.shape, 1, k.y, p, slot, HOLD || plan.wide, x);
    });
}

/* ---- launches ---- */

template <rg_dtype T, bool LOG>
static void forward_rows(const void *args, const rg_cuda_target *target)
{
    const rg_softmax_args k = *(const rg_softmax_args *)args;
    const void *const data[] = { k.x, k.y };
    softmax_plan p = plan_rows<T>(&k.shape, data, 2, FORWARD_SHORT);
    const int64_t held = ROW_SUMS + (int64_t)p.threads * HELD_SLOTS;
    const int64_t vectors = k.shape.length / VLEN<T>;
    const int64_t tile = plan_tiles<T>(&k.shape, 2, &p);
    if (p.hold && vectors <= 32 && p.blocks >= MIN_BLOCKS_PER_SM * target->multiprocessors)
        launch(forward_short<T, LOG, SHORT>, ceil_div(p.blocks, SHORT), p.threads, 0, target, k, p);
    else if (p.hold && vectors <= FORWARD_SHORT)
        launch(forward_short<T, LOG, 1>, p.blocks, p.threads, 0, target, k, p);
    else if (p.hold && held <= target->shared)
        launch(forward_groups<T, LOG, true, true>, p.blocks, p.threads, held, target, k, p);
    else if (tile > 0 && tile <= target->shared)
        launch(p.inner == 32 ? forward_tiles<T, LOG, 32> : forward_tiles<T, LOG, 0>, p.blocks,
               p.threads, tile, target, k, p);
    else
        launch(forward_groups<T, LOG, true, false>, p.blocks, p.threads, ROW_SUMS, target, k, p);
}

template <rg_dtype T, bool LOG>
static void forward_columns(const void *args, const rg_cuda_target *target)
{
    const rg_softmax_args k = *(const rg_softmax_args *)args;
    const void *const data[] = { k.x, k.y };
    const softmax_plan p = plan_columns<T>(&k.shape, data, 2);
    const int64_t sums = (int64_t)p.threads * VLEN<T> * (int64_t)sizeof(real<T>);
    const int64_t held = sums + (int64_t)p.threads * HELD_SLOTS;
    if (p.hold && p.threads <= 512 && held <= target->shared)
        launch(forward_groups<T, LOG, false, true>, p.blocks, p.threads, held, target, k, p);
    else
        launch(forward_groups<T, LOG, false, false>, p.blocks, p.threads, sums, target, k, p);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_SOFTMAX_FORWARD_ROWS, forward_rows, false),
    RG_CUDA_ROW(RG_SOFTMAX_FORWARD_COLUMNS, forward_columns, false),
    RG_CUDA_ROW(RG_LOG_SOFTMAX_FORWARD_ROWS, forward_rows, true),
    RG_CUDA_ROW(RG_LOG_SOFTMAX_FORWARD_COLUMNS, forward_columns, true),
};
RG_CUDA_TABLE(softmax_forward, kernel_rows);
