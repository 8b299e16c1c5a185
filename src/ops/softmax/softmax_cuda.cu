/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax on a GPU. Memory sees one pass where a group fits into registers and shared memory.
 *
 * The order of every sum is fixed by the shape. A group is cut into slots: in rows a vector each,
 * or an element each where the length is not whole vectors; in columns a row of a vector of groups
 * each. Thread t of n that share a group adds up slots t, t + n, … one after the other, in chunks
 * whose sums are added in double; then the sums of the threads form a tree. Every kernel that can
 * serve a shape, whatever the strides, follows the same order. */
#include "backend/cuda/kernel.cuh"
#include "ops/softmax/softmax.h"

/* Slots that a thread holds; they are also a chunk. */
enum { SLOTS = 8 };

/* Of many short rows a thread takes several, so that enough loads are under way. */
enum { SHORT_ROWS = 4 };

/* Where slots are elements: those of a chunk, and those that a loop takes at once. */
enum { ELEMENT_CHUNK = 64, ELEMENTS = 4 };

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

/* ---- groups and their slots ---- */

/* How groups are shared out, by length alone; what follows from strides is `wide` and `hold`. */
typedef struct softmax_plan {
    int inner;   /* threads side by side: those of a row; or those of different columns */
    int threads; /* of a block */
    int lanes;   /* elements of a slot */
    int chunk;   /* slots */
    int64_t blocks;
    bool wide; /* slots are aligned vectors in all tensors */
    bool hold; /* and the threads have room for all of them */
} softmax_plan;

/* The group of a thread, or its vector of groups. */
typedef struct group_place {
    int64_t slots;   /* 0 outside of the tensor */
    int first, step; /* of the thread's slots */
    int lanes;       /* elements of a slot that are there */
    int64_t base[RG_SOFTMAX_TENSORS];
} group_place;

template <rg_dtype T, bool ROWS, bool HOLD>
static __device__ __forceinline__ group_place find_group(const rg_softmax_shape &shape,
                                                         const softmax_plan &plan, int tensors)
{
    group_place p;
    const int side = (int)threadIdx.x & (plan.inner - 1), rest = (int)threadIdx.x / plan.inner;
    const int outer = (int)blockDim.x / plan.inner;
    int64_t index, column = 0;
    if (ROWS) {
        p.first = side;
        p.step = plan.inner;
        p.lanes = plan.lanes;
        p.slots = shape.length / plan.lanes;
        index = (int64_t)blockIdx.x * outer + rest;
    } else {
        const int64_t vectors = (shape.width + VLEN<T> - 1) / VLEN<T>;
        const int64_t id = (int64_t)blockIdx.x * plan.inner + side;
        const bool narrow = shape.outer.count * vectors <= INT32_MAX - 1024;
        p.first = rest;
        p.step = outer;
        p.slots = shape.length;
        index = narrow ? (uint32_t)id / (uint32_t)vectors : id / vectors;
        column = (id - index * vectors) * VLEN<T>;
        p.lanes = (int)min((int64_t)VLEN<T>, shape.width - column);
    }
    if (index >= shape.outer.count)
        index = p.slots = column = 0;
#pragma unroll
    for (int t = 0; t < RG_SOFTMAX_TENSORS; t++) {
        if (t < tensors)
            p.base[t] = column * shape.across[t] + (HOLD ? straight_offset(shape.outer, t, index)
                                                         : walk_offset(shape.outer, t, index));
    }
    return p;
}

/* Where element e of a slot stands, from the first of its group. */
template <bool ROWS>
static __device__ __forceinline__ int64_t slot_offset(const rg_softmax_shape &shape, int t,
                                                      int64_t slot, int lanes, int e)
{
    if (!ROWS)
        return slot * shape.along[t] + e * shape.across[t];
    return shape.dense ? slot * lanes + e : walk_offset(shape.group, t, slot * lanes + e);
}

template <rg_dtype T, bool ROWS>
static __device__ __forceinline__ void load_slot(const rg_softmax_shape &shape, int t,
                                                 const void *data, const group_place &p,
                                                 int64_t slot, bool wide, real<T> x[VLEN<T>])
{
    const char *group = at<T>(data, p.base[t]);
    if (wide) {
        unpack<T>(load_vector(at<T>(group, ROWS ? slot * VLEN<T> : slot * shape.along[t])), x);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = e < p.lanes ? load<T>(group, slot_offset<ROWS>(shape, t, slot, p.lanes, e)) : 0;
}

template <rg_dtype T, bool ROWS>
static __device__ __forceinline__ void store_slot(const rg_softmax_shape &shape, int t, void *data,
                                                  const group_place &p, int64_t slot, bool wide,
                                                  const real<T> x[VLEN<T>])
{
    char *group = at<T>(data, p.base[t]);
    if (wide) {
        store_vector(at<T>(group, ROWS ? slot * VLEN<T> : slot * shape.along[t]), pack<T>(x),
                     shape.stream);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        if (e < p.lanes)
            store<T>(group, slot_offset<ROWS>(shape, t, slot, p.lanes, e), x[e]);
    }
}

/* Begins to copy all slots of the thread, which are aligned vectors, to `held`, which has one of
 * every thread side by side. */
template <rg_dtype T, bool ROWS>
static __device__ __forceinline__ void hold_slots(const rg_softmax_shape &shape, int t,
                                                  const void *data, const group_place &p,
                                                  uint4 *held)
{
    const char *group = at<T>(data, p.base[t]);
#pragma unroll
    for (int q = 0; q < SLOTS; q++) {
        const int slot = p.first + q * p.step;
        if (slot < (int)p.slots)
            copy_vector(&held[q * blockDim.x],
                        at<T>(group, ROWS ? slot * VLEN<T> : slot * shape.along[t]));
    }
}

/* A chunk of a sum ends; and the last one, with what is left over. */
template <int SUMS, class REAL>
static __device__ __forceinline__ void end_chunk(double total[SUMS], REAL sum[SUMS])
{
#pragma unroll
    for (int e = 0; e < SUMS; e++) {
        total[e] += sum[e];
        sum[e] = 0;
    }
}

template <int SUMS, class REAL>
static __device__ __forceinline__ void end_chunks(const double total[SUMS], REAL sum[SUMS])
{
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        sum[e] = (REAL)(total[e] + sum[e]);
}

/* Over all threads of a group: in rows of one value, in columns of one for each lane. */
template <rg_dtype T, bool ROWS>
static __device__ __forceinline__ void reduce_group(real<T> value[], const softmax_plan &plan,
                                                    real<T> *partial, const bool max)
{
    if (ROWS)
        value[0] = reduce(value[0], plan.inner, partial, max);
    else
        reduce_down<VLEN<T>>(value, plan.inner, partial, max);
}

/* ---- tiles: rows of odd length, as one range of memory in shared memory ---- */

/* A range of memory: elements before the first 16-byte border, whole vectors, the rest. */
typedef struct range {
    int head, vectors, count;
} range;

template <rg_dtype T> static __device__ __forceinline__ range range_of(const void *start, int count)
{
    range r;
    const int phase = (int)((uintptr_t)start % 16) / (int)sizeof(element<T>);
    r.head = min(count, (VLEN<T> - phase) % VLEN<T>);
    r.vectors = (count - r.head) / VLEN<T>;
    r.count = count;
    return r;
}

/* Brings a range into shared memory, as far from 16-byte borders as it is in memory; complete
 * after await_copies() and a barrier. */
template <rg_dtype T>
static __device__ __forceinline__ element<T> *load_tile(const void *data, int count, char *room)
{
    const element<T> *from = (const element<T> *)data;
    element<T> *tile = (element<T> *)(room + (uintptr_t)from % 16);
    const range r = range_of<T>(from, count);
    for (int i = (int)threadIdx.x; i < r.vectors; i += (int)blockDim.x)
        copy_vector(tile + r.head + i * VLEN<T>, from + r.head + i * VLEN<T>);
    for (int i = (int)threadIdx.x; i < count - r.vectors * VLEN<T>; i += (int)blockDim.x) {
        const int j = i < r.head ? i : i + r.vectors * VLEN<T>;
        tile[j] = from[j];
    }
    return tile;
}

template <rg_dtype T>
static __device__ __forceinline__ void store_tile(void *data, int count, const element<T> *tile,
                                                  bool stream)
{
    element<T> *to = (element<T> *)data;
    range r = range_of<T>(to, count);
    if ((uintptr_t)to % 16 != (uintptr_t)tile % 16) /* one by one */
        r.vectors = 0;
    for (int i = (int)threadIdx.x; i < r.vectors; i += (int)blockDim.x)
        store_vector(to + r.head + i * VLEN<T>, *(const uint4 *)(tile + r.head + i * VLEN<T>),
                     stream);
    for (int i = (int)threadIdx.x; i < count - r.vectors * VLEN<T>; i += (int)blockDim.x) {
        const int j = i < r.head ? i : i + r.vectors * VLEN<T>;
        to[j] = tile[j];
    }
}

/* The rows of a tile, and the one of the thread. */
typedef struct tile_place {
    int64_t start;   /* of the tile in memory, in elements */
    int rows, count; /* that a tile can have; elements of this one */
    int lane, row,
        length; /* of the row: its thread, its start in the tile, 0 where there is none */
} tile_place;

static __device__ __forceinline__ tile_place find_tile(const rg_softmax_shape &shape,
                                                       const softmax_plan &plan)
{
    tile_place p;
    p.rows = (int)blockDim.x / plan.inner;
    const int64_t first = (int64_t)blockIdx.x * p.rows;
    const int here = (int)min((int64_t)p.rows, shape.outer.count - first);
    const int length = (int)shape.length, row = (int)threadIdx.x / plan.inner;
    p.start = first * length;
    p.count = here * length;
    p.lane = (int)threadIdx.x & (plan.inner - 1);
    p.row = row * length;
    p.length = row < here ? length : 0;
    return p;
}

/* Bytes of shared memory that a tile takes, wherever it begins. */
template <rg_dtype T> static __host__ __device__ __forceinline__ int64_t tile_bytes(int64_t count)
{
    return (count * (int64_t)sizeof(element<T>) + 15) / 16 * 16 + 16;
}

/* ---- forward ---- */

/* Short rows: `inner` threads of a warp hold a vector each, for several rows. */
template <rg_dtype T, bool LOG>
static __global__ void __launch_bounds__(256)
    forward_short(const __grid_constant__ rg_softmax_args k, const softmax_plan plan)
{
    enum { V = VLEN<T> };
    const int lane = (int)threadIdx.x & (plan.inner - 1), rows = 256 / plan.inner;
    const int64_t first = (int64_t)blockIdx.x * (rows * SHORT_ROWS) + (int)threadIdx.x / plan.inner;
    const bool inside = lane * V < k.shape.length;
    uint4 vectors[SHORT_ROWS];
#pragma unroll
    for (int r = 0; r < SHORT_ROWS; r++) {
        const int64_t row = first + r * rows;
        vectors[r] = make_uint4(0, 0, 0, 0);
        if (inside && row < k.shape.outer.count)
            vectors[r] = load_vector(at<T>(k.x, straight_offset(k.shape.outer, 0, row) + lane * V));
    }
#pragma unroll
    for (int r = 0; r < SHORT_ROWS; r++) {
        const int64_t row = first + r * rows;
        real<T> x[V], max = -INFINITY, sum = 0;
        unpack<T>(vectors[r], x);
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = inside ? x[e] : -INFINITY;
            max = join(max, x[e], true);
        }
        max = reduce(max, plan.inner, (real<T> *)NULL, true);
#pragma unroll
        for (int e = 0; e < V; e++) {
            const real<T> power = exp_of<T>(x[e] - max);
            sum += power;
            x[e] = LOG ? x[e] - max : power;
        }
        const real<T> scale = scale_of<T, LOG>(reduce(sum, plan.inner, (real<T> *)NULL, false));
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] = LOG ? x[e] - scale : x[e] * scale;
        if (inside && row < k.shape.outer.count)
            store_vector(at<T>(k.y, straight_offset(k.shape.outer, 1, row) + lane * V), pack<T>(x),
                         k.shape.stream);
    }
}

/* Rows of odd length, without gaps between them: a tile of them lies in shared memory. */
template <rg_dtype T, bool LOG>
static __global__ void __launch_bounds__(1024)
    forward_tiles(const __grid_constant__ rg_softmax_args k, const softmax_plan plan)
{
    extern __shared__ uint4 room[];
    __shared__ real<T> partial[2][32];
    const tile_place p = find_tile(k.shape, plan);
    element<T> *const tile = load_tile<T>(at<T>(k.x, p.start), p.count, (char *)room);
    await_copies();
    __syncthreads();
    element<T> *const x = tile + p.row;
    real<T> max = -INFINITY, sum = 0;
#pragma unroll ELEMENTS
    for (int j = p.lane; j < p.length; j += plan.inner)
        max = join(max, to_real<T>(x[j]), true);
    max = reduce(max, plan.inner, partial[0], true);
#pragma unroll ELEMENTS
    for (int j = p.lane; j < p.length; j += plan.inner) {
        const real<T> power = exp_of<T>(to_real<T>(x[j]) - max);
        sum += power;
        if (KEEPS_POWERS<T, LOG>)
            x[j] = from_real<T>(power);
    }
    const real<T> scale = scale_of<T, LOG>(reduce(sum, plan.inner, partial[1], false));
#pragma unroll ELEMENTS
    for (int j = p.lane; j < p.length; j += plan.inner) {
        const real<T> value = to_real<T>(x[j]);
        x[j] = from_real<T>(KEEPS_POWERS<T, LOG> ? value * scale
                                                 : forward_of<T, LOG>(max, scale, value));
    }
    __syncthreads();
    store_tile<T>(at<T>(k.y, p.start), p.count, tile, k.shape.stream);
}

/* Any groups. With HOLD every thread keeps its slots in shared memory, else they are read again
 * and again. */
template <rg_dtype T, bool LOG, bool ROWS, bool HOLD>
static __global__ void __launch_bounds__(1024)
    forward_groups(const __grid_constant__ rg_softmax_args k, const softmax_plan plan)
{
    enum { V = VLEN<T>, SUMS = ROWS ? 1 : V, KEEPS = HOLD && KEEPS_POWERS<T, LOG> };
    extern __shared__ uint4 room[];
    uint4 *const held = room + threadIdx.x;
    real<T> *const partial = (real<T> *)(room + (HOLD ? SLOTS * blockDim.x : 0));
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
        if (HOLD)
            unpack<T>(held[q * blockDim.x], x);
        else
            load_slot<T, ROWS>(k.shape, 0, k.x, p, slot, plan.wide, x);
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
        if (HOLD)
            unpack<T>(held[q * blockDim.x], x);
        else
            load_slot<T, ROWS>(k.shape, 0, k.x, p, slot, plan.wide, x);
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
        if (HOLD)
            unpack<T>(held[q * blockDim.x], x);
        else
            load_slot<T, ROWS>(k.shape, 0, k.x, p, slot, plan.wide, x);
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

/* Short rows: `inner` threads of a warp hold a vector each of dy and y, for several rows. */
template <rg_dtype T, bool LOG>
static __global__ void __launch_bounds__(256)
    gradient_short(const __grid_constant__ rg_softmax_gradient_args k, const softmax_plan plan)
{
    enum { V = VLEN<T> };
    const int lane = (int)threadIdx.x & (plan.inner - 1), rows = 256 / plan.inner;
    const int64_t first = (int64_t)blockIdx.x * (rows * SHORT_ROWS) + (int)threadIdx.x / plan.inner;
    const bool inside = lane * V < k.shape.length;
    uint4 dys[SHORT_ROWS], ys[SHORT_ROWS];
#pragma unroll
    for (int r = 0; r < SHORT_ROWS; r++) {
        const int64_t row = first + r * rows;
        dys[r] = ys[r] = make_uint4(0, 0, 0, 0);
        if (inside && row < k.shape.outer.count) {
            dys[r] = load_vector(at<T>(k.dy, straight_offset(k.shape.outer, 0, row) + lane * V));
            ys[r] = load_vector(at<T>(k.y, straight_offset(k.shape.outer, 1, row) + lane * V));
        }
    }
#pragma unroll
    for (int r = 0; r < SHORT_ROWS; r++) {
        const int64_t row = first + r * rows;
        real<T> dy[V], y[V], old[V] = {};
        unpack<T>(dys[r], dy);
        unpack<T>(ys[r], y);
        const real<T> own = inside ? add_up<T, LOG>(0, dy, y, V) : 0;
        const real<T> sum = reduce(own, plan.inner, (real<T> *)NULL, false);
        char *const to = at<T>(k.dx, straight_offset(k.shape.outer, 2, row) + lane * V);
        if (!inside || row >= k.shape.outer.count)
            continue;
        if (k.shape.add)
            unpack<T>(load_vector(to), old);
#pragma unroll
        for (int e = 0; e < V; e++) {
            const real<T> dx = gradient_of<T, LOG>(sum, dy[e], y[e]);
            dy[e] = k.shape.add ? old[e] + dx : dx;
        }
        store_vector(to, pack<T>(dy), k.shape.stream);
    }
}

/* Rows of odd length, without gaps between them: a tile of them lies in shared memory, of y alone
 * where there is no room for both; then dy is read twice. */
template <rg_dtype T, bool LOG, bool BOTH>
static __global__ void __launch_bounds__(1024)
    gradient_tiles(const __grid_constant__ rg_softmax_gradient_args k, const softmax_plan plan)
{
    extern __shared__ uint4 room[];
    __shared__ real<T> partial[32];
    const tile_place p = find_tile(k.shape, plan);
    const element<T> *dy = (const element<T> *)at<T>(k.dy, p.start);
    if (BOTH)
        dy = load_tile<T>(dy, p.count, (char *)room + tile_bytes<T>(k.shape.length * p.rows));
    element<T> *const tile = load_tile<T>(at<T>(k.y, p.start), p.count, (char *)room);
    await_copies();
    __syncthreads();
    element<T> *const y = tile + p.row;
    dy += p.row;
    real<T> sum = 0;
#pragma unroll ELEMENTS
    for (int j = p.lane; j < p.length; j += plan.inner)
        sum = gradient_step<T, LOG>(sum, to_real<T>(dy[j]), to_real<T>(y[j]));
    sum = reduce(sum, plan.inner, partial, false);
#pragma unroll ELEMENTS
    for (int j = p.lane; j < p.length; j += plan.inner) {
        real<T> dx = gradient_of<T, LOG>(sum, to_real<T>(dy[j]), to_real<T>(y[j]));
        if (k.shape.add)
            dx = load<T>(k.dx, p.start + p.row + j) + dx;
        y[j] = from_real<T>(dx);
    }
    __syncthreads();
    store_tile<T>(at<T>(k.dx, p.start), p.count, tile, k.shape.stream);
}

/* Any groups. With HOLD every thread keeps its slots, y in registers and dy in shared memory; else
 * they are read twice, the second time from the end, of which the cache may still have some. */
template <rg_dtype T, bool LOG, bool ROWS, bool HOLD>
static __global__ void __launch_bounds__(1024)
    gradient_groups(const __grid_constant__ rg_softmax_gradient_args k, const softmax_plan plan)
{
    enum { V = VLEN<T>, SUMS = ROWS ? 1 : V };
    extern __shared__ uint4 room[];
    uint4 *const held = room + threadIdx.x, ys[HOLD ? SLOTS : 1];
    real<T> *const partial = (real<T> *)(room + (HOLD ? SLOTS * blockDim.x : 0));
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
        if (HOLD) {
            unpack<T>(held[q * blockDim.x], dy);
            unpack<T>(ys[HOLD ? q : 0], y);
        } else {
            load_slot<T, ROWS>(k.shape, 0, k.dy, p, slot, plan.wide, dy);
            load_slot<T, ROWS>(k.shape, 1, k.y, p, slot, plan.wide, y);
        }
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
        if (HOLD) {
            unpack<T>(held[q * blockDim.x], dy);
            unpack<T>(ys[HOLD ? q : 0], y);
        } else {
            load_slot<T, ROWS>(k.shape, 0, k.dy, p, slot, plan.wide, dy);
            load_slot<T, ROWS>(k.shape, 1, k.y, p, slot, plan.wide, y);
        }
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

/* Whether slots are aligned vectors, and groups follow each other at one distance. */
template <rg_dtype T>
static bool is_wide(const rg_softmax_shape *shape, const void *const data[], int tensors, bool rows)
{
    bool wide = shape->dense && (rows || shape->width % VLEN<T> == 0);
    for (int t = 0; t < tensors; t++) {
        wide &= is_aligned<T>(data[t], &shape->outer, t);
        wide &= rows || shape->along[t] % VLEN<T> == 0;
    }
    return wide;
}

template <rg_dtype T>
static softmax_plan plan_rows(const rg_softmax_shape *shape, const void *const data[], int tensors)
{
    const int64_t length = shape->length, vectors = length / VLEN<T>;
    softmax_plan p = {};
    p.lanes = length % VLEN<T> == 0 ? VLEN<T> : 1;
    p.chunk = p.lanes == 1 ? (int)ELEMENT_CHUNK : (int)SLOTS;
    if (p.lanes == 1 && length <= 1024)
        p.inner = length <= 32 ? 1 : length <= 128 ? 8 : 32;
    else if (p.lanes == 1)
        p.inner = length <= 8192 ? 256 : 1024;
    else
        p.inner = vectors <= 32 ? power_of_two(vectors, 1, 32)
                                : power_of_two(ceil_div(vectors, SLOTS), 8, 1024);
    p.threads = p.inner > 32 ? p.inner : 256;
    p.blocks = ceil_div(shape->outer.count, p.threads / p.inner);
    p.wide = p.lanes > 1 && is_wide<T>(shape, data, tensors, true);
    p.hold = p.wide && shape->outer.rank <= 1 && vectors <= SLOTS * p.inner;
    return p;
}

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
    p.threads = p.inner * down;
    p.blocks = ceil_div(shape->outer.count * ceil_div(shape->width, VLEN<T>), p.inner);
    p.wide = is_wide<T>(shape, data, tensors, false);
    p.hold = p.wide && shape->outer.rank <= 1 && shape->length <= SLOTS * down;
    return p;
}

/* Whether rows of odd length follow each other without a gap in all tensors. */
static bool are_flat(const rg_softmax_shape *shape, const softmax_plan *plan, int tensors)
{
    bool flat = plan->lanes == 1 && shape->dense && shape->outer.rank <= 1;
    for (int t = 0; t < tensors; t++)
        flat &= shape->outer.rank == 0 || shape->outer.strides[t][0] == shape->length;
    return flat;
}

/* ---- launches ---- */

/* Bytes of shared memory: for sums, and for slots that are held. */
enum { ROW_SUMS = 64 * sizeof(double), HELD_SLOTS = SLOTS * 16 };

template <rg_dtype T, bool LOG>
static void forward_rows(const void *args, const rg_cuda_place *place)
{
    const rg_softmax_args k = *(const rg_softmax_args *)args;
    const void *const data[] = { k.x, k.y };
    const softmax_plan p = plan_rows<T>(&k.shape, data, 2);
    const int64_t held = ROW_SUMS + (int64_t)p.threads * HELD_SLOTS;
    const int64_t tile = tile_bytes<T>(k.shape.length * (p.threads / p.inner));
    if (p.hold && k.shape.length <= 32 * VLEN<T>)
        launch(forward_short<T, LOG>, ceil_div(p.blocks, SHORT_ROWS), p.threads, 0, place, k, p);
    else if (p.hold && held <= place->shared)
        launch(forward_groups<T, LOG, true, true>, p.blocks, p.threads, held, place, k, p);
    else if (are_flat(&k.shape, &p, 2) && tile <= place->shared - ROW_SUMS)
        launch(forward_tiles<T, LOG>, p.blocks, p.threads, tile, place, k, p);
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
    if (p.hold && held <= place->shared)
        launch(forward_groups<T, LOG, false, true>, p.blocks, p.threads, held, place, k, p);
    else
        launch(forward_groups<T, LOG, false, false>, p.blocks, p.threads, sums, place, k, p);
}

template <rg_dtype T, bool LOG>
static void gradient_rows(const void *args, const rg_cuda_place *place)
{
    const rg_softmax_gradient_args k = *(const rg_softmax_gradient_args *)args;
    const void *const data[] = { k.dy, k.y, k.dx };
    const softmax_plan p = plan_rows<T>(&k.shape, data, 3);
    const int64_t held = ROW_SUMS + (int64_t)p.threads * HELD_SLOTS;
    const int64_t tile = tile_bytes<T>(k.shape.length * (p.threads / p.inner));
    const bool flat = are_flat(&k.shape, &p, 3);
    if (p.hold && k.shape.length <= 32 * VLEN<T>)
        launch(gradient_short<T, LOG>, ceil_div(p.blocks, SHORT_ROWS), p.threads, 0, place, k, p);
    else if (p.hold && held <= place->shared)
        launch(gradient_groups<T, LOG, true, true>, p.blocks, p.threads, held, place, k, p);
    else if (flat && 2 * tile <= place->shared - ROW_SUMS)
        launch(gradient_tiles<T, LOG, true>, p.blocks, p.threads, 2 * tile, place, k, p);
    else if (flat && tile <= place->shared - ROW_SUMS)
        launch(gradient_tiles<T, LOG, false>, p.blocks, p.threads, tile, place, k, p);
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

/* ---- entry points and table, in the order of the kernels' ids ---- */

template <rg_dtype T> static void softmax_forward_rows(const void *args, const rg_cuda_place *place)
{
    forward_rows<T, false>(args, place);
}

template <rg_dtype T>
static void softmax_forward_columns(const void *args, const rg_cuda_place *place)
{
    forward_columns<T, false>(args, place);
}

template <rg_dtype T>
static void log_softmax_forward_rows(const void *args, const rg_cuda_place *place)
{
    forward_rows<T, true>(args, place);
}

template <rg_dtype T>
static void log_softmax_forward_columns(const void *args, const rg_cuda_place *place)
{
    forward_columns<T, true>(args, place);
}

template <rg_dtype T>
static void softmax_gradient_rows(const void *args, const rg_cuda_place *place)
{
    gradient_rows<T, false>(args, place);
}

template <rg_dtype T>
static void softmax_gradient_columns(const void *args, const rg_cuda_place *place)
{
    gradient_columns<T, false>(args, place);
}

template <rg_dtype T>
static void log_softmax_gradient_rows(const void *args, const rg_cuda_place *place)
{
    gradient_rows<T, true>(args, place);
}

template <rg_dtype T>
static void log_softmax_gradient_columns(const void *args, const rg_cuda_place *place)
{
    gradient_columns<T, true>(args, place);
}

RG_CUDA_TABLE(softmax, RG_SOFTMAX_KERNELS) = {
    RG_CUDA_ROW(softmax_forward_rows),         /* RG_SOFTMAX_FORWARD_ROWS */
    RG_CUDA_ROW(softmax_forward_columns),      /* RG_SOFTMAX_FORWARD_COLUMNS */
    RG_CUDA_ROW(log_softmax_forward_rows),     /* RG_LOG_SOFTMAX_FORWARD_ROWS */
    RG_CUDA_ROW(log_softmax_forward_columns),  /* RG_LOG_SOFTMAX_FORWARD_COLUMNS */
    RG_CUDA_ROW(softmax_gradient_rows),        /* RG_SOFTMAX_GRADIENT_ROWS */
    RG_CUDA_ROW(softmax_gradient_columns),     /* RG_SOFTMAX_GRADIENT_COLUMNS */
    RG_CUDA_ROW(log_softmax_gradient_rows),    /* RG_LOG_SOFTMAX_GRADIENT_ROWS */
    RG_CUDA_ROW(log_softmax_gradient_columns), /* RG_LOG_SOFTMAX_GRADIENT_COLUMNS */
};
