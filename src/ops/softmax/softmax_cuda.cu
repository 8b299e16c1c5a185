/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax on a GPU. Memory sees one pass where a group fits into registers and shared memory.
 *
 * The order of every sum is fixed by the shape. A group is cut into slots: in rows a vector each,
 * or an element each where the length is not whole vectors; in columns a row of a vector of groups
 * each. Thread t of n that share a group adds up slots t, t + n, … one after the other, in chunks
 * whose sums are added in double; then the sums of the threads form a tree. Every kernel that can
 * serve a shape, whatever the strides, follows the same order. */
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

/* ---- forward ---- */

/* Short rows: `inner` threads of a warp hold a vector each of ROWS rows. */
template <rg_dtype T, bool LOG, int ROWS>
static __global__ void __launch_bounds__(256)
    forward_short(const __grid_constant__ rg_softmax_args k, const softmax_plan plan)
{
    enum { V = VLEN<T> };
    const short_place p = find_short<T, ROWS>(k.shape, plan);
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
            x[e] = p.lane < p.vectors ? x[e] : -INFINITY;
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
    const tile_place p = find_tile<INNER>(k.shape, plan);
    element<T> *const tile = load_tile<T>(at<T>(k.x, p.start), p, (char *)shared);
    await_copies();
    __syncthreads();
    for (int r = 0; r < plan.passes; r++) {
        const int row = p.first + r * p.step;
        const int end = row < p.rows ? (int)k.shape.length : 0;
        element<T> *const x = tile + row * (int)k.shape.length;
        real<T> max = -INFINITY, sum = 0;
        each_element<ELEMENTS>(p.lane, end, p.inner,
                               [&](int j) { max = join(max, to_real<T>(x[j]), true); });
        max = reduce(max, p.inner, partial[0], true);
        each_element<ELEMENTS>(p.lane, end, p.inner, [&](int j) {
            const real<T> power = exp_of<T>(to_real<T>(x[j]) - max);
            sum += power;
            if (KEEPS_POWERS<T, LOG>)
                x[j] = from_real<T>(power);
        });
        const real<T> scale = scale_of<T, LOG>(reduce(sum, p.inner, partial[1], false));
        each_element<ELEMENTS>(p.lane, end, p.inner, [&](int j) {
            x[j] = from_real<T>(KEEPS_POWERS<T, LOG>
                                    ? to_real<T>(x[j]) * scale
                                    : forward_of<T, LOG>(max, scale, to_real<T>(x[j])));
        });
    }
    __syncthreads();
    store_tile<T>(at<T>(k.y, p.start), p, tile, k.shape.stream);
}

/* Blocks of 512 threads with columns that a multiprocessor should have room for. */
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
    const group_place p = find_group<T, ROWS, HOLD>(k.shape, plan, 2);
    real<T> x[V], max[SUMS], sum[SUMS];
    double total[SUMS];
#pragma unroll
    for (int e = 0; e < SUMS; e++) {
        max[e] = -INFINITY;
        sum[e] = 0;
        total[e] = -0.0;
    }
    if (HOLD) {
        hold_slots<T, ROWS>(k.shape, 0, k.x, p, held);
        await_copies();
    }
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        if (slot >= p.slots)
            break;
        take_slot<T, ROWS, HOLD>(k.shape, 0, k.x, p, slot, plan.wide, held[q * blockDim.x], x);
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (HOLD || !ROWS || e < p.lanes)
                max[ROWS ? 0 : e] = join(max[ROWS ? 0 : e], x[e], true);
        }
    }
    reduce_group<T, ROWS>(max, plan, partial, true);
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        if (slot >= p.slots)
            break;
        take_slot<T, ROWS, HOLD>(k.shape, 0, k.x, p, slot, plan.wide, held[q * blockDim.x], x);
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = exp_of<T>(x[e] - max[ROWS ? 0 : e]);
            if (HOLD || !ROWS || e < p.lanes)
                sum[ROWS ? 0 : e] += x[e];
        }
        if (KEEPS)
            held[q * blockDim.x] = pack<T>(x);
        if (!HOLD && (q + 1) % plan.chunk == 0)
            end_chunk<SUMS>(total, sum);
    }
    if (!HOLD)
        end_chunks<SUMS>(total, sum);
    if (!ROWS)
        __syncthreads(); /* before `partial` serves again */
    reduce_group<T, ROWS>(sum, plan, partial + (ROWS ? 32 : 0), false);
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        sum[e] = scale_of<T, LOG>(sum[e]);
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        if (slot >= p.slots)
            break;
        take_slot<T, ROWS, HOLD>(k.shape, 0, k.x, p, slot, plan.wide, held[q * blockDim.x], x);
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] = KEEPS ? x[e] * sum[ROWS ? 0 : e]
                         : forward_of<T, LOG>(max[ROWS ? 0 : e], sum[ROWS ? 0 : e], x[e]);
        store_slot<T, ROWS>(k.shape, 1, k.y, p, slot, HOLD || plan.wide, x);
    }
}

/* ---- gradient ---- */

/* Adds what two vectors of dy and y give. */
template <rg_dtype T, bool LOG>
static __device__ __forceinline__ real<T> add_up(real<T> acc, const real<T> dy[VLEN<T>],
                                                 const real<T> y[VLEN<T>], int lanes)
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        if (e < lanes)
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
    const short_place p = find_short<T, ROWS>(k.shape, plan);
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
            if (p.lane + i * p.inner < p.vectors)
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
    const int lane = (int)threadIdx.x % 32, length = (int)k.shape.length;
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
        if (lane + i * 32 < length) {
            dy[i] = load<T>(dys, lane + i * 32);
            y[i] = load<T>(ys, lane + i * 32);
        }
    }
#pragma unroll
    for (int i = 0; i < WARP_ELEMENTS; i++) {
        if (lane + i * 32 < length)
            sum = gradient_step<T, LOG>(sum, dy[i], y[i]);
    }
    sum = reduce(sum, 32, (real<T> *)NULL, false);
#pragma unroll
    for (int i = 0; i < WARP_ELEMENTS; i++) {
        if (i % 4 == 0 && i * 32 >= length)
            break;
        if (lane + i * 32 < length) {
            const real<T> dx = gradient_of<T, LOG>(sum, dy[i], y[i]);
            store<T>(to, lane + i * 32, k.shape.add ? load<T>(to, lane + i * 32) + dx : dx);
        }
    }
}

/* Rows of odd length, without gaps between them: a tile of them lies in shared memory, of y alone
 * where there is no room for both; then dy is read twice. */
template <rg_dtype T, bool LOG, bool BOTH, int INNER>
static __global__ void __launch_bounds__(INNER > 0 ? 256 : 1024)
    gradient_tiles(const __grid_constant__ rg_softmax_gradient_args k, const softmax_plan plan)
{
    extern __shared__ uint4 shared[];
    __shared__ real<T> partial[32];
    enum { N = BOTH ? ELEMENTS : 2 * ELEMENTS }; /* loads from memory want to be many */
    const tile_place p = find_tile<INNER>(k.shape, plan);
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
        each_element<N>(p.lane, end, p.inner, [&](int j) {
            sum = gradient_step<T, LOG>(sum, to_real<T>(dy[j]), to_real<T>(y[j]));
        });
        sum = reduce(sum, p.inner, partial, false);
        each_element<N>(p.lane, end, p.inner, [&](int j) {
            const real<T> dx = gradient_of<T, LOG>(sum, to_real<T>(dy[j]), to_real<T>(y[j]));
            y[j] = from_real<T>(k.shape.add ? to_real<T>(old[j]) + dx : dx);
        });
    }
    __syncthreads();
    store_tile<T>(at<T>(k.dx, p.start), p, tile, k.shape.stream);
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
    const group_place p = find_group<T, ROWS, HOLD>(k.shape, plan, 3);
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
        const char *group = at<T>(k.y, p.base[1]);
#pragma unroll
        for (int q = 0; q < SLOTS; q++) {
            const int slot = p.first + q * p.step;
            if (slot < (int)p.slots)
                ys[q] = load_vector(at<T>(group, ROWS ? slot * V : slot * k.shape.along[1]));
        }
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
            sum[0] = add_up<T, LOG>(sum[0], dy, y, HOLD ? V : p.lanes);
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

/* ---- plans ---- */

/* `inner` vectors of columns to a block, of 64 bytes of memory at least. */
template <rg_dtype T>
static softmax_plan plan_columns(const rg_softmax_shape *shape, const void *const data[],
                                 int tensors)
{
    const int down = power_of_two(ceil_div(shape->length, SLOTS), 1, 256);
    softmax_plan p = {};
    p.lanes = VLEN<T>;
    p.chunk = SLOTS;
    p.inner = down < 128 ? 512 / down : 4;
    p.shift = __builtin_ctz((unsigned)p.inner);
    p.threads = p.inner * down;
    p.blocks = ceil_div(shape->outer.count * ceil_div(shape->width, VLEN<T>), p.inner);
    p.wide = is_wide<T>(shape, data, tensors, false);
    p.hold = p.wide && shape->outer.rank <= 1 && shape->length <= SLOTS * down;
    return p;
}

/* Where rows of odd length follow each other without a gap in all tensors: the bytes of a tile of
 * them, else 0. */
template <rg_dtype T>
static int64_t plan_tiles(const rg_softmax_shape *shape, int tensors, softmax_plan *p)
{
    if (p->lanes != 1 || !shape->dense || shape->outer.rank > 1 ||
        shape->length > ELEMENT_CHUNK * p->inner) /* tiles know no chunks */
        return 0;
    for (int t = 0; t < tensors; t++) {
        if (shape->outer.rank == 1 && shape->outer.strides[t][0] != shape->length)
            return 0;
    }
    const int rows = p->threads / p->inner; /* of a pass */
    const int64_t pass = shape->length * rows * (int64_t)sizeof(element<T>);
    p->passes = p->inner > 32 || pass > TILE ? 1 : (int)(TILE / pass);
    p->blocks = ceil_div(shape->outer.count, rows * p->passes);
    return tile_bytes<T>(shape->length * rows * p->passes);
}

/* Whether a warp holds a row of odd length in registers: for 4-byte elements, whose loads move
 * enough at once. */
template <rg_dtype T> static bool are_elements(const rg_softmax_shape *shape, const softmax_plan *p)
{
    return T == RG_F32 && p->lanes == 1 && p->inner == 32 && shape->dense &&
           shape->outer.rank <= 1 && shape->length <= WARP_ELEMENTS * 32;
}

/* ---- launches ---- */

/* Bytes of shared memory: for sums, and for slots that are held. */
enum { ROW_SUMS = 64 * sizeof(double), HELD_SLOTS = SLOTS * 16 };

/* To a multiprocessor: with as many a thread takes several short rows. */
enum { MANY_BLOCKS = 16 };

template <rg_dtype T, bool LOG>
static void forward_rows(const void *args, const rg_cuda_place *place)
{
    const rg_softmax_args k = *(const rg_softmax_args *)args;
    const void *const data[] = { k.x, k.y };
    softmax_plan p = plan_rows<T>(&k.shape, data, 2, FORWARD_SHORT);
    const int64_t held = ROW_SUMS + (int64_t)p.threads * HELD_SLOTS;
    const int64_t vectors = k.shape.length / VLEN<T>;
    const int64_t tile = plan_tiles<T>(&k.shape, 2, &p);
    if (p.hold && vectors <= 32 && p.blocks >= MANY_BLOCKS * place->multiprocessors)
        launch(forward_short<T, LOG, SHORT>, ceil_div(p.blocks, SHORT), p.threads, 0, place, k, p);
    else if (p.hold && vectors <= FORWARD_SHORT)
        launch(forward_short<T, LOG, 1>, p.blocks, p.threads, 0, place, k, p);
    else if (p.hold && held <= place->shared)
        launch(forward_groups<T, LOG, true, true>, p.blocks, p.threads, held, place, k, p);
    else if (tile > 0 && tile <= place->shared)
        launch(p.inner == 32 ? forward_tiles<T, LOG, 32> : forward_tiles<T, LOG, 0>, p.blocks,
               p.threads, tile, place, k, p);
    else
        launch(forward_groups<T, LOG, true, false>, p.blocks, p.threads, ROW_SUMS, place, k, p);
}

template <rg_dtype T, bool LOG>
static void forward_columns(const void *args, const rg_cuda_place *place)
{
    const rg_softmax_args k = *(const rg_softmax_args *)args;
    const void *const data[] = { k.x, k.y };
    const softmax_plan p = plan_columns<T>(&k.shape, data, 2);
    const int64_t sums = (int64_t)p.threads * VLEN<T> * (int64_t)sizeof(real<T>);
    const int64_t held = sums + (int64_t)p.threads * HELD_SLOTS;
    if (p.hold && p.threads <= 512 && held <= place->shared)
        launch(forward_groups<T, LOG, false, true>, p.blocks, p.threads, held, place, k, p);
    else
        launch(forward_groups<T, LOG, false, false>, p.blocks, p.threads, sums, place, k, p);
}

template <rg_dtype T, bool LOG>
static void gradient_rows(const void *args, const rg_cuda_place *place)
{
    const rg_softmax_gradient_args k = *(const rg_softmax_gradient_args *)args;
    const void *const data[] = { k.dy, k.y, k.dx };
    softmax_plan p = plan_rows<T>(&k.shape, data, 3, GRADIENT_SHORT<T>);
    const int64_t held = ROW_SUMS + (int64_t)p.threads * HELD_SLOTS;
    const int64_t vectors = k.shape.length / VLEN<T>;
    const bool elements = are_elements<T>(&k.shape, &p);
    const int64_t tile = elements ? 0 : plan_tiles<T>(&k.shape, 3, &p);
    if (p.hold && vectors <= 32 && p.blocks >= MANY_BLOCKS * place->multiprocessors)
        launch(gradient_short<T, LOG, SHORT>, ceil_div(p.blocks, SHORT), p.threads, 0, place, k, p);
    else if (p.hold && vectors <= GRADIENT_SHORT<T>)
        launch(gradient_short<T, LOG, 1>, p.blocks, p.threads, 0, place, k, p);
    else if (p.hold && held <= place->shared)
        launch(gradient_groups<T, LOG, true, true>, p.blocks, p.threads, held, place, k, p);
    else if (elements)
        launch(gradient_elements<RG_F32, LOG>, p.blocks, p.threads, 0, place, k, p);
    else if (tile > 0 && 2 * tile <= place->shared)
        launch(p.inner == 32 ? gradient_tiles<T, LOG, true, 32> : gradient_tiles<T, LOG, true, 0>,
               p.blocks, p.threads, 2 * tile, place, k, p);
    else if (tile > 0 && tile <= place->shared)
        launch(gradient_tiles<T, LOG, false, 0>, p.blocks, p.threads, tile, place, k, p);
    else
        launch(gradient_groups<T, LOG, true, false>, p.blocks, p.threads, ROW_SUMS, place, k, p);
}

template <rg_dtype T, bool LOG>
static void gradient_columns(const void *args, const rg_cuda_place *place)
{
    const rg_softmax_gradient_args k = *(const rg_softmax_gradient_args *)args;
    const void *const data[] = { k.dy, k.y, k.dx };
    const softmax_plan p = plan_columns<T>(&k.shape, data, 3);
    const int64_t sums = (int64_t)p.threads * VLEN<T> * (int64_t)sizeof(real<T>);
    const int64_t held = sums + (int64_t)p.threads * HELD_SLOTS;
    if (p.hold && held <= place->shared)
        launch(gradient_groups<T, LOG, false, true>, p.blocks, p.threads, held, place, k, p);
    else
        launch(gradient_groups<T, LOG, false, false>, p.blocks, p.threads, sums, place, k, p);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_SOFTMAX_FORWARD_ROWS, forward_rows, false),
    RG_CUDA_ROW(RG_SOFTMAX_FORWARD_COLUMNS, forward_columns, false),
    RG_CUDA_ROW(RG_LOG_SOFTMAX_FORWARD_ROWS, forward_rows, true),
    RG_CUDA_ROW(RG_LOG_SOFTMAX_FORWARD_COLUMNS, forward_columns, true),
    RG_CUDA_ROW(RG_SOFTMAX_GRADIENT_ROWS, gradient_rows, false),
    RG_CUDA_ROW(RG_SOFTMAX_GRADIENT_COLUMNS, gradient_columns, false),
    RG_CUDA_ROW(RG_LOG_SOFTMAX_GRADIENT_ROWS, gradient_rows, true),
    RG_CUDA_ROW(RG_LOG_SOFTMAX_GRADIENT_COLUMNS, gradient_columns, true),
};
RG_CUDA_TABLE(softmax, kernel_rows);
