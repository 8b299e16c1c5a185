/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of softmax on a GPU. Memory sees one pass where a group fits into registers and
 * shared memory. softmax_slots.cuh says in which order sums are made. */
#include "ops/softmax/softmax_slots.cuh"

/* ---- formulas ---- */

/* What the gradient adds up, and dx from the sum. */
template <rg_dtype T, bool LOG>
static __device__ __forceinline__ real<T> gradient_step(real<T> acc, real<T> dy, real<T> y)
{
    return LOG ? acc + dy : fma(dy, y, acc);
}

template <rg_dtype T, bool LOG>
static __device__ __forceinline__ real<T> gradient_of(real<T> sum, real<T> dy, real<T> y)
{
    return LOG ? fma(-exp_of<T>(y), sum, dy) : y * (dy - sum);
}

/* ---- kernels ---- */

/* Adds what two vectors of dy and y give. */
template <rg_dtype T, bool LOG>
static __device__ __forceinline__ real<T> add_up(real<T> acc, const real<T> dy[VLEN<T>],
                                                 const real<T> y[VLEN<T>], int count)
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        if (e < count)
            acc = gradient_step<T, LOG>(acc, dy[e], y[e]);
    }
    return acc;
}

/* Short rows: `inner` threads of a warp hold a row in registers, or ROWS rows. */
template <rg_dtype T, bool LOG, int ROWS>
static __global__ void __launch_bounds__(256)
    gradient_short(const __grid_constant__ rg_softmax_gradient_args k, const softmax_plan plan)
{
    enum { V = VLEN<T>, HELD = SHORT / ROWS };
    const short_rows p = find_short<T, ROWS>(k.shape, plan);
    uint4 dys[ROWS][HELD], ys[ROWS][HELD];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        load_short<T, HELD>(k.shape, 0, k.dy, p, r, dys[r]);
        load_short<T, HELD>(k.shape, 1, k.y, p, r, ys[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        real<T> dy[V], y[V], sum = 0;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            unpack<T>(dys[r][i], dy);
            unpack<T>(ys[r][i], y);
            if (p.thread + i * p.inner < p.vectors)
                sum = add_up<T, LOG>(sum, dy, y, V);
        }
        sum = reduce(sum, p.inner, (real<T> *)NULL, false);
        uint4 olds[HELD] = {};
        if (k.shape.add)
            load_short<T, HELD>(k.shape, 2, k.dx, p, r, olds);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            real<T> old[V];
            unpack<T>(olds[i], old);
            unpack<T>(dys[r][i], dy);
            unpack<T>(ys[r][i], y);
#pragma unroll
            for (int e = 0; e < V; e++) {
                const real<T> dx = gradient_of<T, LOG>(sum, dy[e], y[e]);
                dy[e] = k.shape.add ? old[e] + dx : dx;
            }
            store_short<T>(k.shape, 2, k.dx, p, r, i, dy);
        }
    }
}

/* Rows of odd length of 4-byte elements: a warp holds one in registers, element by element. */
template <rg_dtype T, bool LOG>
static __global__ void __launch_bounds__(256, 4)
    gradient_elements(const __grid_constant__ rg_softmax_gradient_args k, const softmax_plan plan)
{
    const int thread = (int)threadIdx.x % 32, length = (int)k.shape.length;
    const int64_t row = (int64_t)blockIdx.x * 8 + (int)threadIdx.x / 32;
    if (row >= k.shape.outer.count)
        return;
    const char *dys = at<T>(k.dy, straight_offset(k.shape.outer, 0, row));
    const char *ys = at<T>(k.y, straight_offset(k.shape.outer, 1, row));
    char *to = at<T>(k.dx, straight_offset(k.shape.outer, 2, row));
    real<T> dy[WARP_ELEMENTS], y[WARP_ELEMENTS], sum = 0;
#pragma unroll
    for (int i = 0; i < WARP_ELEMENTS; i++) {
        if (i % 4 == 0 && i * 32 >= length) /* for all of the warp */
            break;
        if (thread + i * 32 < length) {
            dy[i] = load<T>(dys, thread + i * 32);
            y[i] = load<T>(ys, thread + i * 32);
        }
    }
#pragma unroll
    for (int i = 0; i < WARP_ELEMENTS; i++) {
        if (thread + i * 32 < length)
            sum = gradient_step<T, LOG>(sum, dy[i], y[i]);
    }
    sum = reduce(sum, 32, (real<T> *)NULL, false);
#pragma unroll
    for (int i = 0; i < WARP_ELEMENTS; i++) {
        if (i % 4 == 0 && i * 32 >= length)
            break;
        if (thread + i * 32 < length) {
            const real<T> dx = gradient_of<T, LOG>(sum, dy[i], y[i]);
            store<T>(to, thread + i * 32, k.shape.add ? load<T>(to, thread + i * 32) + dx : dx);
        }
    }
}

/* Rows of odd length, without gaps between them: a tile of them lies in shared memory, of y alone
 * where shared memory is too small for both; then dy is read twice. */
template <rg_dtype T, bool LOG, bool BOTH, int INNER>
static __global__ void __launch_bounds__(INNER > 0 ? 256 : 1024)
    gradient_tiles(const __grid_constant__ rg_softmax_gradient_args k, const softmax_plan plan)
{
    extern __shared__ uint4 shared[];
    __shared__ real<T> partial[32];
    enum { N = BOTH ? ELEMENTS : 2 * ELEMENTS }; /* loads from memory want to be many */
    const row_tile p = find_tile<INNER>(k.shape, plan);
    const int length = (int)k.shape.length;
    char *const second = (char *)shared + tile_bytes<T>(k.shape.length * p.step * plan.passes);
    const element<T> *dys = (const element<T> *)at<T>(k.dy, p.start);
    if (BOTH)
        dys = load_tile<T>(dys, p, second);
    element<T> *const tile = load_tile<T>(at<T>(k.y, p.start), p, (char *)shared);
    const element<T> *olds = (const element<T> *)at<T>(k.dx, p.start);
    await_copies();
    __syncthreads();
    for (int r = 0; r < plan.passes; r++) {
        const int row = p.first + r * p.step, end = row < p.rows ? length : 0;
        const element<T> *const dy = dys + row * length, *const old = olds + row * length;
        element<T> *const y = tile + row * length;
        real<T> sum = 0;
        each_element<N>(p.thread, end, p.inner, [&](int j) {
            sum = gradient_step<T, LOG>(sum, to_real<T>(dy[j]), to_real<T>(y[j]));
        });
        sum = reduce(sum, p.inner, partial, false);
        each_element<N>(p.thread, end, p.inner, [&](int j) {
            const real<T> dx = gradient_of<T, LOG>(sum, to_real<T>(dy[j]), to_real<T>(y[j]));
            y[j] = from_real<T>(k.shape.add ? to_real<T>(old[j]) + dx : dx);
        });
    }
    __syncthreads();
    store_tile<T>(at<T>(k.dx, p.start), p, tile, k.shape.stream);
}

/* All slots of the thread, which are aligned vectors. */
template <rg_dtype T, bool ROWS>
static __device__ __forceinline__ void load_slots(const rg_softmax_shape &shape, int t,
                                                  const void *data, const group_slots &p,
                                                  uint4 *slots)
{
    const char *group = at<T>(data, p.base[t]);
#pragma unroll
    for (int q = 0; q < SLOTS; q++) {
        const int slot = p.first + q * p.step;
        if (slot < (int)p.slots)
            slots[q] = load_vector(at<T>(group, ROWS ? slot * VLEN<T> : slot * shape.along[t]));
    }
}

/* Any groups. With HOLD every thread keeps its slots, y in registers and dy in shared memory; else
 * they are read twice, the second time from the end, of which the cache may still have some. */
template <rg_dtype T, bool LOG, bool ROWS, bool HOLD>
static __global__ void __launch_bounds__(1024)
    gradient_groups(const __grid_constant__ rg_softmax_gradient_args k, const softmax_plan plan)
{
    enum { V = VLEN<T>, SUMS = ROWS ? 1 : V };
    extern __shared__ uint4 shared[];
    uint4 *const held = shared + threadIdx.x, ys[HOLD ? SLOTS : 1];
    real<T> *const partial = (real<T> *)(shared + (HOLD ? SLOTS * blockDim.x : 0));
    const group_slots p = find_group<T, ROWS, HOLD>(k.shape, plan, 3);
    const int64_t mine = p.slots > p.first ? (p.slots - 1 - p.first) / p.step : -1; /* the last */
    real<T> dy[V], y[V], sum[SUMS];
    double total[SUMS];
#pragma unroll
    for (int e = 0; e < SUMS; e++) {
        sum[e] = 0;
        total[e] = -0.0;
    }
    if (HOLD) {
        hold_slots<T, ROWS>(k.shape, 0, k.dy, p, held);
        load_slots<T, ROWS>(k.shape, 1, k.y, p, ys);
        await_copies();
    }
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        if (slot >= p.slots)
            break;
        take_slot<T, ROWS, HOLD>(k.shape, 0, k.dy, p, slot, plan.wide, held[q * blockDim.x], dy);
        take_slot<T, ROWS, HOLD>(k.shape, 1, k.y, p, slot, plan.wide, ys[HOLD ? q : 0], y);
        if (ROWS)
            sum[0] = add_up<T, LOG>(sum[0], dy, y, HOLD ? V : p.elements);
#pragma unroll
        for (int e = 0; e < V && !ROWS; e++)
            sum[e] = gradient_step<T, LOG>(sum[e], dy[e], y[e]);
        if (!HOLD && (q + 1) % plan.chunk == 0)
            end_chunk<SUMS>(total, sum);
    }
    if (!HOLD)
        end_chunks<SUMS>(total, sum);
    reduce_group<T, ROWS>(sum, plan, partial, false);
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (HOLD ? q : mine - q) * p.step;
        real<T> old[V] = {};
        if (HOLD ? slot >= p.slots : q > mine)
            break;
        take_slot<T, ROWS, HOLD>(k.shape, 0, k.dy, p, slot, plan.wide, held[q * blockDim.x], dy);
        take_slot<T, ROWS, HOLD>(k.shape, 1, k.y, p, slot, plan.wide, ys[HOLD ? q : 0], y);
        if (k.shape.add)
            load_slot<T, ROWS>(k.shape, 2, k.dx, p, slot, HOLD || plan.wide, old);
#pragma unroll
        for (int e = 0; e < V; e++) {
            const real<T> dx = gradient_of<T, LOG>(sum[ROWS ? 0 : e], dy[e], y[e]);
            dy[e] = k.shape.add ? old[e] + dx : dx;
        }
        store_slot<T, ROWS>(k.shape, 2, k.dx, p, slot, HOLD || plan.wide, dy);
    }
}

/* ---- launches ---- */

/* Whether a warp holds a row of odd length in registers: for 4-byte elements, whose loads move
 * enough at once. */
template <rg_dtype T> static bool are_elements(const rg_softmax_shape *shape, const softmax_plan *p)
{
    return T == RG_F32 && p->elements == 1 && p->inner == 32 && shape->dense &&
           shape->outer.rank <= 1 && shape->length <= WARP_ELEMENTS * 32;
}

template <rg_dtype T, bool LOG>
static void gradient_rows(const void *args, const rg_cuda_target *target)
{
    const rg_softmax_gradient_args k = *(const rg_softmax_gradient_args *)args;
    const void *const data[] = { k.dy, k.y, k.dx };
    softmax_plan p = plan_rows<T>(&k.shape, data, 3, GRADIENT_SHORT<T>);
    const int64_t held = ROW_SUMS + (int64_t)p.threads * HELD_SLOTS;
    const int64_t vectors = k.shape.length / VLEN<T>;
    const bool elements = are_elements<T>(&k.shape, &p);
    const int64_t tile = elements ? 0 : plan_tiles<T>(&k.shape, 3, &p);
    if (p.hold && vectors <= 32 && p.blocks >= MIN_BLOCKS_PER_SM * target->multiprocessors)
        launch(gradient_short<T, LOG, SHORT>, ceil_div(p.blocks, SHORT), p.threads, 0, target, k,
               p);
    else if (p.hold && vectors <= GRADIENT_SHORT<T>)
        launch(gradient_short<T, LOG, 1>, p.blocks, p.threads, 0, target, k, p);
    else if (p.hold && held <= target->shared)
        launch(gradient_groups<T, LOG, true, true>, p.blocks, p.threads, held, target, k, p);
    else if (elements)
        launch(gradient_elements<RG_F32, LOG>, p.blocks, p.threads, 0, target, k, p);
    else if (tile > 0 && 2 * tile <= target->shared)
        launch(p.inner == 32 ? gradient_tiles<T, LOG, true, 32> : gradient_tiles<T, LOG, true, 0>,
               p.blocks, p.threads, 2 * tile, target, k, p);
    else if (tile > 0 && tile <= target->shared)
        launch(gradient_tiles<T, LOG, false, 0>, p.blocks, p.threads, tile, target, k, p);
    else
        launch(gradient_groups<T, LOG, true, false>, p.blocks, p.threads, ROW_SUMS, target, k, p);
}

template <rg_dtype T, bool LOG>
static void gradient_columns(const void *args, const rg_cuda_target *target)
{
    const rg_softmax_gradient_args k = *(const rg_softmax_gradient_args *)args;
    const void *const data[] = { k.dy, k.y, k.dx };
    const softmax_plan p = plan_columns<T>(&k.shape, data, 3);
    const int64_t sums = (int64_t)p.threads * VLEN<T> * (int64_t)sizeof(real<T>);
    const int64_t held = sums + (int64_t)p.threads * HELD_SLOTS;
    if (p.hold && held <= target->shared)
        launch(gradient_groups<T, LOG, false, true>, p.blocks, p.threads, held, target, k, p);
    else
        launch(gradient_groups<T, LOG, false, false>, p.blocks, p.threads, sums, target, k, p);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_SOFTMAX_GRADIENT_ROWS, gradient_rows, false),
    RG_CUDA_ROW(RG_SOFTMAX_GRADIENT_COLUMNS, gradient_columns, false),
    RG_CUDA_ROW(RG_LOG_SOFTMAX_GRADIENT_ROWS, gradient_rows, true),
    RG_CUDA_ROW(RG_LOG_SOFTMAX_GRADIENT_COLUMNS, gradient_columns, true),
};
RG_CUDA_TABLE(softmax_gradient, kernel_rows);
