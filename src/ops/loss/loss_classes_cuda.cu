/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses with class labels on a GPU. Softmax reads memory as the softmax op does: once, where a row
 * fits into shared memory. */
#include "ops/loss/loss.cuh"
#include "ops/softmax/softmax_slots.cuh"

/* In the fault word; the bits below it count the blocks that have stored their sum. */
static const uint32_t FAULT = 1u << 31;

/* ---- class labels ---- */

/* What becomes of a row: factors of its loss and of derivatives. */
template <rg_dtype T> struct class_use {
    int64_t label; /* checked; -1: the row does not count */
    real<T> loss, slope;
};

template <rg_dtype T>
static __device__ __forceinline__ class_use<T> use_of(const rg_loss_args &k, int64_t row)
{
    class_use<T> u = { -1, 0, 0 };
    if (row >= k.rows)
        return u;
    const int64_t label = label_at(k, row);
    if (k.has_ignored && label == k.ignored)
        return u;
    if (label < 0 || label >= k.length) {
        atomicOr(k.fault, FAULT);
        return u;
    }
    real<T> w = 1;
    if (k.has_weights)
        w = load<T>(k.weights, view_offset(k.views[RG_LOSS_W], row));
    u.label = label;
    u.loss = (real<T>)k.numbers.weight * w;
    u.slope = group_scale<T>(k, k.group < k.rows ? divide(row, k.group) : 0) * w;
    if (k.dy_of_labels)
        u.slope *= load<T>(k.dy, view_offset(k.views[RG_LOSS_DY], row));
    return u;
}

template <rg_dtype T>
static __device__ __forceinline__ void put_loss(const rg_loss_args &k, int64_t row, double loss)
{
    if (k.losses == RG_LOSS_SUMS)
        k.partial[row] = loss;
    else if (k.losses == RG_LOSS_OF_LABELS)
        store<T>(k.loss, view_offset(k.views[RG_LOSS_L], row), (real<T>)loss);
}

/* ---- softmax with class labels ---- */

/* Bytes of shared memory for three sums. */
enum { CLASS_SUMS = 96 * sizeof(double) };

/* A row that does not count: derivatives are 0. */
template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ void put_zeros(const rg_loss_args &k, const group_slots &p,
                                                 bool wide)
{
    const real<T> zeros[VLEN<T>] = {};
    for (int64_t slot = p.first; slot < p.slots && k.has_gradient && !k.add; slot += p.step)
        store_slot<T, true>(k.shape, 1, k.gradient, p, slot, HOLD || wide, zeros);
}

/* What the threads of a row know about it. */
template <rg_dtype T> struct class_row {
    real<T> max, sum, below; /* sums of e^(x - max) and, where labels are smoothed, of x - max */
};

template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ class_row<T>
sum_row(const rg_loss_args &k, const softmax_plan &plan, const group_slots &p, uint4 *held,
        real<T> *partial)
{
    enum { V = VLEN<T>, KEEPS = HOLD && sizeof(element<T>) == sizeof(real<T>) };
    const bool smooth = k.numbers.share != 0;
    real<T> x[V], max = -INFINITY, sum[1] = { 0 }, below[1] = { 0 };
    double totals[2][1] = { { -0.0 }, { -0.0 } };
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        if (slot >= p.slots)
            break;
        take_slot<T, true, HOLD>(k.shape, 0, k.y, p, slot, plan.wide, held[q * blockDim.x], x);
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (HOLD || e < p.elements)
                max = join(max, x[e], true);
        }
    }
    max = reduce(max, plan.inner, partial, true);
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        if (slot >= p.slots)
            break;
        take_slot<T, true, HOLD>(k.shape, 0, k.y, p, slot, plan.wide, held[q * blockDim.x], x);
        if (smooth) {
#pragma unroll
            for (int e = 0; e < V; e++)
                below[0] += HOLD || e < p.elements ? x[e] - max : 0;
        }
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = exp_of<T>(x[e] - max);
            if (HOLD || e < p.elements)
                sum[0] += x[e];
        }
        if (KEEPS)
            held[q * blockDim.x] = pack<T>(x);
        if (!HOLD && (q + 1) % plan.chunk == 0) {
            end_chunk<1>(totals[0], sum);
            end_chunk<1>(totals[1], below);
        }
    }
    if (!HOLD) {
        end_chunks<1>(totals[0], sum);
        end_chunks<1>(totals[1], below);
    }
    class_row<T> r = { max, reduce(sum[0], plan.inner, partial + 32, false), 0 };
    if (smooth)
        r.below = reduce(below[0], plan.inner, partial + 64, false);
    return r;
}

/* Derivatives of a row: at the label e^(x - max) is less by a share of the sum. */
template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ void put_slopes(const rg_loss_args &k, const softmax_plan &plan,
                                                  const group_slots &p, uint4 *held,
                                                  const class_use<T> &u, const class_row<T> &r)
{
    enum { V = VLEN<T>, KEEPS = HOLD && sizeof(element<T>) == sizeof(real<T>) };
    const real<T> total = (real<T>)k.numbers.total,
                  less = r.sum * ((real<T>)k.numbers.keep / total);
    const real<T> scale = u.slope * total / r.sum, offset = u.slope * (real<T>)k.numbers.share;
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        real<T> x[V], old[V] = {};
        if (slot >= p.slots)
            break;
        take_slot<T, true, HOLD>(k.shape, 0, k.y, p, slot, plan.wide, held[q * blockDim.x], x);
        if (k.add)
            load_slot<T, true>(k.shape, 1, k.gradient, p, slot, HOLD || plan.wide, old);
        const int from = HOLD ? (int)u.label - (int)slot * V
                              : (int)max((int64_t)-1, min((int64_t)V, u.label - slot * p.elements));
#pragma unroll
        for (int e = 0; e < V; e++) {
            real<T> power = KEEPS ? x[e] : exp_of<T>(x[e] - r.max);
            power = from == e ? power - less : power;
            x[e] = fma(power, scale, -offset);
            x[e] = k.add ? old[e] + x[e] : x[e];
        }
        store_slot<T, true>(k.shape, 1, k.gradient, p, slot, HOLD || plan.wide, x);
    }
}

/* The loss of a row; 0 where it does not count. */
template <rg_dtype T>
static __device__ __forceinline__ double loss_of(const rg_loss_args &k, const class_use<T> &u,
                                                 const class_row<T> &r, real<T> at_label)
{
    if (u.label < 0)
        return 0;
    double loss = k.numbers.total * log(r.sum) - k.numbers.keep * (at_label - r.max);
    if (k.numbers.share != 0)
        loss -= k.numbers.share * r.below;
    return loss * u.loss;
}

/* Whether the last block ends the sum of all losses. */
static __device__ __forceinline__ bool ends_sum(const rg_loss_args &k)
{
    return k.losses == RG_LOSS_SUMS && k.groups == 1 && k.length <= RG_LOSS_SHORT;
}

/* Leaves the sum of a block's losses; returns whether it is the last one to do so. */
static __device__ __forceinline__ bool leave_sum(const rg_loss_args &k, double loss,
                                                 double *partial)
{
    const double sum = reduce(loss, (int)blockDim.x, partial, false);
    if (threadIdx.x != 0)
        return false;
    k.partial[blockIdx.x] = sum;
    __threadfence();
    return (atomicAdd(k.fault, 1) & ~FAULT) == gridDim.x - 1;
}

/* The sum of all blocks, by the last one; the word is again what it was, or a fault. */
template <rg_dtype T>
static __device__ __forceinline__ void end_sum(const rg_loss_args &k, double *partial)
{
    double sum = 0;
#pragma unroll 16
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x)
        sum += __ldcg(&k.partial[i]);
    sum = reduce(sum, (int)blockDim.x, partial, false) / k.divisor;
    if (threadIdx.x != 0)
        return;
    if (k.divides_by_counts)
        sum = k.counts[0] > 0 ? sum / k.counts[0] : 0;
    store<T>(k.loss, 0, (real<T>)sum);
    atomicSub(k.fault, gridDim.x);
}

/* With HOLD every thread keeps its slots in shared memory, else they are read again and again. Of
 * short rows the last block adds up the sums of all, which saves a launch; where a block has one
 * row, to wait for that would cost more. */
template <rg_dtype T, bool HOLD>
static __global__ void __launch_bounds__(1024)
    by_classes(const __grid_constant__ rg_loss_args k, const softmax_plan plan)
{
    extern __shared__ uint4 shared[];
    __shared__ double partial[2][32];
    __shared__ bool is_last;
    uint4 *const held = shared + threadIdx.x;
    real<T> *const sums = (real<T> *)(shared + (HOLD ? SLOTS * blockDim.x : 0));
    const group_slots p = find_group<T, true, HOLD>(k.shape, plan, k.has_gradient ? 2 : 1);
    const int64_t row =
        (int64_t)blockIdx.x * ((int)blockDim.x >> plan.shift) + ((int)threadIdx.x >> plan.shift);
    if (HOLD)
        hold_slots<T, true>(k.shape, 0, k.y, p, held);
    const class_use<T> u = use_of<T>(k, row);
    real<T> at_label = 0;
    if (u.label >= 0)
        at_label = load<T>(k.y, p.base[0] + slot_offset<true>(k.shape, 0, u.label, 1, 0));
    if (HOLD)
        await_copies();
    const class_row<T> r = sum_row<T, HOLD>(k, plan, p, held, sums);
    const double loss = p.first == 0 ? loss_of<T>(k, u, r, at_label) : 0;
    const bool ends = ends_sum(k);
    bool last = false;
    if (ends)
        last = leave_sum(k, loss, partial[0]);
    else if (p.first == 0 && row < k.rows)
        put_loss<T>(k, row, loss);
    if (k.has_gradient && u.label >= 0)
        put_slopes<T, HOLD>(k, plan, p, held, u, r);
    else
        put_zeros<T, HOLD>(k, p, plan.wide);
    if (!ends)
        return;
    if (threadIdx.x == 0)
        is_last = last;
    __syncthreads();
    if (is_last)
        end_sum<T>(k, partial[1]);
}

/* ---- tiles: rows of odd length, without gaps between them ---- */

/* What a thread leaves in place of its elements of a row: derivatives. `x` holds e^(x - max) where
 * an element can. */
template <rg_dtype T>
static __device__ __forceinline__ void tile_slopes(const rg_loss_args &k, const row_tile &p,
                                                   element<T> *x, int end, const class_use<T> &u,
                                                   const class_row<T> &r)
{
    enum { KEEPS = sizeof(element<T>) == sizeof(real<T>) };
    const real<T> total = (real<T>)k.numbers.total,
                  less = r.sum * ((real<T>)k.numbers.keep / total);
    const real<T> scale = u.slope * total / r.sum, offset = u.slope * (real<T>)k.numbers.share;
    const int label = (int)u.label;
    each_element<ELEMENTS>(p.thread, end, p.inner, [&](int j) {
        const real<T> held = to_real<T>(x[j]);
        real<T> power = KEEPS ? held : exp_of<T>(held - r.max);
        power = label == j ? power - less : power;
        x[j] = from_real<T>(label >= 0 ? fma(power, scale, -offset) : 0);
    });
}

/* The same sums as sum_row makes of elements, of a row in shared memory. */
template <rg_dtype T>
static __device__ __forceinline__ class_row<T> sum_tile(const rg_loss_args &k, const row_tile &p,
                                                        element<T> *x, int end)
{
    enum { KEEPS = sizeof(element<T>) == sizeof(real<T>) };
    const bool smooth = k.numbers.share != 0;
    real<T> *const none = NULL; /* the threads of a row are in one warp */
    real<T> max = -INFINITY, sum = 0, below = 0;
    each_element<ELEMENTS>(p.thread, end, p.inner,
                           [&](int j) { max = join(max, to_real<T>(x[j]), true); });
    max = reduce(max, p.inner, none, true);
    each_element<ELEMENTS>(p.thread, end, p.inner, [&](int j) {
        const real<T> under = to_real<T>(x[j]) - max, power = exp_of<T>(under);
        sum += power;
        if (smooth)
            below += under;
        if (KEEPS)
            x[j] = from_real<T>(power);
    });
    class_row<T> r = { max, reduce(sum, p.inner, none, false), 0 };
    if (smooth)
        r.below = reduce(below, p.inner, none, false);
    return r;
}

/* A block's rows, as one range of memory in shared memory; derivatives take their place. The sums
 * are those of by_classes. */
template <rg_dtype T>
static __global__ void __launch_bounds__(256)
    by_tiles(const __grid_constant__ rg_loss_args k, const softmax_plan plan)
{
    extern __shared__ uint4 shared[];
    __shared__ double partial[2][32];
    __shared__ bool is_last;
    const row_tile p = find_tile<0>(k.shape, plan);
    const int64_t row = (int64_t)blockIdx.x * p.step + p.first;
    const int end = p.first < p.rows ? (int)k.length : 0;
    element<T> *const tile = load_tile<T>(at<T>(k.y, p.start), p, (char *)shared);
    element<T> *const x = tile + p.first * (int)k.length;
    const class_use<T> u = use_of<T>(k, row);
    await_copies();
    __syncthreads();
    const real<T> at_label = u.label >= 0 ? to_real<T>(x[u.label]) : 0;
    __syncwarp(); /* before powers take the place of x */
    const class_row<T> r = sum_tile<T>(k, p, x, end);
    const double loss = p.thread == 0 ? loss_of<T>(k, u, r, at_label) : 0;
    const bool ends = ends_sum(k);
    bool last = false;
    if (ends)
        last = leave_sum(k, loss, partial[0]);
    else if (p.thread == 0 && row < k.rows)
        put_loss<T>(k, row, loss);
    if (k.has_gradient) {
        tile_slopes<T>(k, p, x, end, u, r);
        __syncthreads();
        store_tile<T>(at<T>(k.gradient, p.start), p, tile, k.stream);
    }
    if (!ends)
        return;
    if (threadIdx.x == 0)
        is_last = last;
    __syncthreads();
    if (is_last)
        end_sum<T>(k, partial[1]);
}

/* ---- launch ---- */

/* Bytes of the tiles of short rows, one pass each; 0: they do not serve. */
template <rg_dtype T>
static int64_t tile_of(const rg_loss_args &k, const rg_cuda_target *target,
                       const softmax_plan &plan)
{
    softmax_plan p = plan;
    const int rows = p.threads / p.inner;
    if (k.add || p.inner > 32 || plan_tiles<T>(&k.shape, 2, &p) == 0)
        return 0;
    const int64_t bytes = tile_bytes<T>(k.length * rows);
    return bytes <= target->shared ? bytes : 0;
}

template <rg_dtype T> static void loss_by_classes(const void *args, const rg_cuda_target *target)
{
    rg_loss_args k = *(const rg_loss_args *)args;
    const void *const data[] = { k.y, k.has_gradient ? k.gradient : k.y };
    const softmax_plan p = plan_rows<T>(&k.shape, data, 2, FORWARD_SHORT);
    const int64_t tile = tile_of<T>(k, target, p);
    const int64_t held = CLASS_SUMS + (int64_t)p.threads * HELD_SLOTS;
    k.shape.stream = k.stream;
    if (tile > 0)
        launch(by_tiles<T>, p.blocks, p.threads, tile, target, k, p);
    else if (p.hold && held <= target->shared)
        launch(by_classes<T, true>, p.blocks, p.threads, held, target, k, p);
    else
        launch(by_classes<T, false>, p.blocks, p.threads, CLASS_SUMS, target, k, p);
}

/* ---- one element of a row ---- */

/* A warp to a row. */
template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS) pick(const __grid_constant__ rg_loss_args k)
{
    const int thread = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * (LOSS_THREADS / 32) + (int)threadIdx.x / 32;
    if (row >= k.rows)
        return;
    const class_use<T> u = use_of<T>(k, row);
    const bool takes_log = k.numbers.kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY;
    const int64_t first = row * k.length;
    real<T> y = 1;
    if (u.label >= 0)
        y = load<T>(k.y, view_offset(k.views[RG_LOSS_Y], first + u.label));
    __syncwarp(); /* the gradient may take the place of y */
    if (thread == 0)
        put_loss<T>(k, row, u.label >= 0 ? -(u.loss * (takes_log ? log(y) : y)) : 0);
    if (!k.has_gradient)
        return;
    const real<T> slope = takes_log ? -u.slope / y : -u.slope;
    for (int64_t j = thread; j < k.length; j += 32) {
        const int64_t to = view_offset(k.views[RG_LOSS_D], first + j);
        if (!k.add)
            store<T>(k.gradient, to, j == u.label ? slope : 0);
        else if (j == u.label)
            store<T>(k.gradient, to, load<T>(k.gradient, to) + slope);
    }
}

template <rg_dtype T> static void loss_pick(const void *args, const rg_cuda_target *target)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    launch(pick<T>, ceil_div(k.rows, LOSS_THREADS / 32), LOSS_THREADS, 0, target, k);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_LOSS_BY_CLASSES, loss_by_classes),
    RG_CUDA_ROW(RG_LOSS_PICK, loss_pick),
};
RG_CUDA_TABLE(loss_classes, kernel_rows);
