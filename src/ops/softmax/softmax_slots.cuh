/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the softmax kernels on a GPU share: how groups are cut into slots, which of them a thread
 * has, and how they are loaded and stored.
 *
 * The order of every sum is fixed by the shape. A group is cut into slots: in rows a vector each,
 * or an element each where the length is not whole vectors; in columns a row of a vector of groups
 * each. Thread t of n that share a group adds up slots t, t + n, … one after the other, in chunks
 * whose sums are added in double; then the sums of the threads form a tree. Every kernel that can
 * serve a shape, whatever the strides, follows the same order. */
#ifndef RG_OPS_SOFTMAX_SLOTS_CUH
#define RG_OPS_SOFTMAX_SLOTS_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/softmax/softmax.h"

/* Slots that a thread holds; they are also a chunk. */
enum { SLOTS = 8 };

/* Vectors per tensor and thread for short rows: all of one row, or one of each of SHORT rows. */
enum { SHORT = 4 };

/* A row of at most this many vectors is short. In the gradient of f16 more would take too many
 * registers, in the forward pass it gains nothing. */
enum { FORWARD_SHORT = 32 };
template <rg_dtype T> constexpr int GRADIENT_SHORT = T == RG_F16 ? 32 : SHORT * 32;

/* If slots are single elements: elements per chunk, and elements per loop iteration. */
enum { ELEMENT_CHUNK = 64, ELEMENTS = 8 };

/* Such elements of a row that a thread of a warp holds. */
enum { WARP_ELEMENTS = 16 };

/* Bytes of a tile of such rows: enough loads under way, and still several blocks at once. */
enum { TILE_BYTES = 20 << 10 };

/* ---- groups and their slots ---- */

/* How groups are shared out, by length alone; what follows from strides is `wide` and `hold`. */
typedef struct softmax_plan {
    int inner;    /* adjacent threads: those of a row; or those of different columns */
    int shift;    /* inner = 1 << shift */
    int threads;  /* of a block */
    int passes;   /* over a tile: the rows of odd length that a thread takes */
    int elements; /* elements of a slot */
    int chunk;    /* slots */
    int64_t blocks;
    bool wide; /* slots are aligned vectors in all tensors */
    bool hold; /* and the threads can hold all of them */
} softmax_plan;

/* The group of a thread, or its vector of groups. */
typedef struct group_slots {
    int64_t slots;   /* 0 outside of the tensor */
    int first, step; /* of the thread's slots */
    int elements;    /* elements of a slot that are there */
    int64_t base[RG_SOFTMAX_TENSORS];
} group_slots;

template <rg_dtype T, bool ROWS, bool HOLD>
static __device__ __forceinline__ group_slots find_group(const rg_softmax_shape &shape,
                                                         const softmax_plan &plan, int tensors)
{
    group_slots p;
    const int side = (int)threadIdx.x & (plan.inner - 1), rest = (int)threadIdx.x >> plan.shift;
    const int outer = (int)blockDim.x >> plan.shift;
    int64_t index, column = 0;
    if (ROWS) {
        p.first = side;
        p.step = plan.inner;
        p.elements = plan.elements;
        p.slots = shape.length / plan.elements;
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
        p.elements = (int)min((int64_t)VLEN<T>, shape.width - column);
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

/* Calls step(q, slot) for the slots of the thread, at most SLOTS of them where they are held. */
template <bool HOLD, class STEP>
static __device__ __forceinline__ void each_slot(const group_slots &p, STEP step)
{
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        if (slot >= p.slots)
            break;
        step(q, slot);
    }
}

/* The offset of element e of a slot, from the first of its group. */
template <bool ROWS>
static __device__ __forceinline__ int64_t slot_offset(const rg_softmax_shape &shape, int t,
                                                      int64_t slot, int elements, int e)
{
    if (!ROWS)
        return slot * shape.along[t] + e * shape.across[t];
    return shape.dense ? slot * elements + e : walk_offset(shape.group, t, slot * elements + e);
}

template <rg_dtype T, bool ROWS>
static __device__ __forceinline__ void load_slot(const rg_softmax_shape &shape, int t,
                                                 const void *data, const group_slots &p,
                                                 int64_t slot, bool wide, real<T> x[VLEN<T>])
{
    const char *group = at<T>(data, p.base[t]);
    if (wide) {
        unpack<T>(load_vector(at<T>(group, ROWS ? slot * VLEN<T> : slot * shape.along[t])), x);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] =
            e < p.elements ? load<T>(group, slot_offset<ROWS>(shape, t, slot, p.elements, e)) : 0;
}

template <rg_dtype T, bool ROWS>
static __device__ __forceinline__ void store_slot(const rg_softmax_shape &shape, int t, void *data,
                                                  const group_slots &p, int64_t slot, bool wide,
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
        if (e < p.elements)
            store<T>(group, slot_offset<ROWS>(shape, t, slot, p.elements, e), x[e]);
    }
}

/* A slot that is held, or read. */
template <rg_dtype T, bool ROWS, bool HOLD>
static __device__ __forceinline__ void
take_slot(const rg_softmax_shape &shape, int t, const void *data, const group_slots &p,
          int64_t slot, bool wide, const uint4 &held, real<T> x[VLEN<T>])
{
    if (HOLD)
        unpack<T>(held, x);
    else
        load_slot<T, ROWS>(shape, t, data, p, slot, wide, x);
}

/* Begins to copy all slots of the thread, which are aligned vectors, to `held`, which has one of
 * every thread next to each other. */
template <rg_dtype T, bool ROWS>
static __device__ __forceinline__ void hold_slots(const rg_softmax_shape &shape, int t,
                                                  const void *data, const group_slots &p,
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

/* Ends a chunk of a sum; and the last one, which may be shorter. */
template <int SUMS, class REAL>
static __device__ __forceinline__ void end_chunk(double total[SUMS], REAL sum[SUMS])
{
#pragma unroll
    for (int e = 0; e < SUMS; e++) {
        total[e] += sum[e];
        sum[e] = -0.0; /* 0 that changes no sum, not even -0 */
    }
}

template <int SUMS, class REAL>
static __device__ __forceinline__ void end_chunks(const double total[SUMS], REAL sum[SUMS])
{
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        sum[e] = (REAL)(total[e] + sum[e]);
}

/* Over all threads of a group: in rows of one value, in columns of one for each group. */
template <rg_dtype T, bool ROWS>
static __device__ __forceinline__ void reduce_group(real<T> value[], const softmax_plan &plan,
                                                    real<T> *partial, const bool max)
{
    if (ROWS)
        value[0] = reduce(value[0], plan.inner, partial, max);
    else
        reduce_down<VLEN<T>>(value, plan.inner, partial, max);
}

/* ---- short rows ---- */

typedef struct short_rows {
    int inner, thread, vectors; /* threads of a row, which of them this is; vectors of a row */
    int64_t first;              /* row of the thread */
    int step;                   /* to its next row */
} short_rows;

template <rg_dtype T, int ROWS>
static __device__ __forceinline__ short_rows find_short(const rg_softmax_shape &shape,
                                                        const softmax_plan &plan)
{
    short_rows p;
    p.inner = plan.inner;
    p.thread = (int)threadIdx.x & (plan.inner - 1);
    p.vectors = (int)shape.length / VLEN<T>;
    p.step = (int)blockDim.x >> plan.shift;
    p.first = (int64_t)blockIdx.x * (p.step * ROWS) + ((int)threadIdx.x >> plan.shift);
    return p;
}

template <rg_dtype T, int HELD>
static __device__ __forceinline__ void load_short(const rg_softmax_shape &shape, int t,
                                                  const void *data, const short_rows &p, int r,
                                                  uint4 held[HELD])
{
    const int64_t row = p.first + r * p.step;
    const char *from = at<T>(data, straight_offset(shape.outer, t, row) + p.thread * VLEN<T>);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        held[i] = make_uint4(0, 0, 0, 0);
        if (row < shape.outer.count && p.thread + i * p.inner < p.vectors)
            held[i] = load_vector(at<T>(from, i * p.inner * VLEN<T>));
    }
}

template <rg_dtype T>
static __device__ __forceinline__ void store_short(const rg_softmax_shape &shape, int t, void *data,
                                                   const short_rows &p, int r, int i,
                                                   const real<T> x[VLEN<T>])
{
    const int64_t row = p.first + r * p.step;
    const int v = p.thread + i * p.inner;
    if (row < shape.outer.count && v < p.vectors)
        store_vector(at<T>(data, straight_offset(shape.outer, t, row) + v * VLEN<T>), pack<T>(x),
                     shape.stream);
}

/* ---- tiles: rows of odd length, as one range of memory in shared memory ---- */

/* The rows of a tile, which a block shares. */
typedef struct row_tile {
    int64_t start;     /* in memory, in elements */
    int rows, count;   /* of this tile: rows, elements */
    int inner, thread; /* threads of a row, and which of them this is */
    int first, step;   /* of the thread's rows in the tile */
} row_tile;

/* INNER: threads of a row; 0 where only the plan knows. */
template <int INNER>
static __device__ __forceinline__ row_tile find_tile(const rg_softmax_shape &shape,
                                                     const softmax_plan &plan)
{
    row_tile p;
    p.inner = INNER > 0 ? INNER : plan.inner;
    p.thread = (int)threadIdx.x & (p.inner - 1);
    p.first = (int)threadIdx.x >> plan.shift;
    p.step = (int)blockDim.x >> plan.shift;
    const int64_t first = (int64_t)blockIdx.x * (p.step * plan.passes);
    p.rows = (int)min((int64_t)p.step * plan.passes, shape.outer.count - first);
    p.start = first * shape.length;
    p.count = p.rows * (int)shape.length;
    return p;
}

/* A range of memory: elements before the first 16-byte border, whole vectors, the rest. */
typedef struct range {
    int head, vectors;
    int edge; /* element of the head or the rest that the thread has; -1: none */
} range;

template <rg_dtype T>
static __device__ __forceinline__ range range_of(const void *start, const row_tile &p)
{
    range r;
    const int phase = (int)((uintptr_t)start % 16) / (int)sizeof(element<T>);
    r.head = min(p.count, (VLEN<T> - phase) % VLEN<T>);
    r.vectors = (p.count - r.head) / VLEN<T>;
    const int j =
        (int)threadIdx.x < r.head ? (int)threadIdx.x : (int)threadIdx.x + r.vectors * VLEN<T>;
    r.edge = j < p.count ? j : -1; /* head and rest together are less than two vectors */
    return r;
}

/* Brings a range into shared memory, as far from 16-byte borders as it is in memory; complete
 * after await_copies() and a barrier. */
template <rg_dtype T>
static __device__ __forceinline__ element<T> *load_tile(const void *data, const row_tile &p,
                                                        char *shared)
{
    const element<T> *from = (const element<T> *)data;
    element<T> *tile = (element<T> *)(shared + (uintptr_t)from % 16);
    const range r = range_of<T>(from, p);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < r.vectors; i += (int)blockDim.x)
        copy_vector(tile + r.head + i * VLEN<T>, from + r.head + i * VLEN<T>);
    if (r.edge >= 0)
        tile[r.edge] = from[r.edge];
    return tile;
}

template <rg_dtype T>
static __device__ __forceinline__ void store_tile(void *data, const row_tile &p,
                                                  const element<T> *tile, bool stream)
{
    element<T> *to = (element<T> *)data;
    const range r = range_of<T>(to, p);
    if ((uintptr_t)to % 16 != (uintptr_t)tile % 16) {
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < p.count; i += (int)blockDim.x)
            to[i] = tile[i];
        return;
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < r.vectors; i += (int)blockDim.x)
        store_vector(to + r.head + i * VLEN<T>, *(const uint4 *)(tile + r.head + i * VLEN<T>),
                     stream);
    if (r.edge >= 0)
        to[r.edge] = tile[r.edge];
}

/* Calls body(j) for j = begin, begin + step, … below end; N at a time, so that loads overlap. */
template <int N, class BODY>
static __device__ __forceinline__ void each_element(int begin, int end, int step, BODY body)
{
    int j = begin;
#pragma unroll 1
    for (; j + (N - 1) * step < end; j += N * step) {
#pragma unroll
        for (int u = 0; u < N; u++)
            body(j + u * step);
    }
#pragma unroll 1
    for (; j < end; j += step)
        body(j);
}

/* Bytes of shared memory that a tile takes, wherever it begins. */
template <rg_dtype T> static __host__ __device__ __forceinline__ int64_t tile_bytes(int64_t count)
{
    return (count * (int64_t)sizeof(element<T>) + 15) / 16 * 16 + 16;
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
static softmax_plan plan_rows(const rg_softmax_shape *shape, const void *const data[], int tensors,
                              int most_short)
{
    const int64_t length = shape->length, vectors = length / VLEN<T>;
    softmax_plan p = {};
    p.elements = length % VLEN<T> == 0 ? VLEN<T> : 1;
    p.chunk = p.elements == 1 ? (int)ELEMENT_CHUNK : (int)SLOTS;
    if (p.elements == 1 && length <= 1024)
        p.inner = length <= 32 ? 1 : length <= 128 ? 8 : 32;
    else if (p.elements == 1)
        p.inner = length <= 8192 ? 256 : 1024;
    else
        p.inner = vectors <= 32           ? power_of_two(vectors, 1, 32)
                  : vectors <= most_short ? power_of_two(ceil_div(vectors, SHORT), 16, 32)
                                          : power_of_two(ceil_div(vectors, SLOTS), 8, 1024);
    p.shift = __builtin_ctz((unsigned)p.inner);
    p.threads = p.inner > 32 ? p.inner : 256;
    p.passes = 1;
    p.blocks = ceil_div(shape->outer.count, p.threads / p.inner);
    p.wide = p.elements > 1 && is_wide<T>(shape, data, tensors, true);
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
    p.elements = VLEN<T>;
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
    if (p->elements != 1 || !shape->dense || shape->outer.rank > 1 ||
        shape->length > ELEMENT_CHUNK * p->inner) /* tiles know no chunks */
        return 0;
    for (int t = 0; t < tensors; t++) {
        if (shape->outer.rank == 1 && shape->outer.strides[t][0] != shape->length)
            return 0;
    }
    const int rows = p->threads / p->inner; /* of a pass */
    const int64_t pass = shape->length * rows * (int64_t)sizeof(element<T>);
    p->passes = p->inner > 32 || pass > TILE_BYTES ? 1 : (int)(TILE_BYTES / pass);
    p->blocks = ceil_div(shape->outer.count, rows * p->passes);
    return tile_bytes<T>(shape->length * rows * p->passes);
}

/* ---- shared memory and grids ---- */

/* Bytes of shared memory: of a block for sums over rows, and of a thread for slots that are held.
 */
enum { ROW_SUMS = 64 * sizeof(double), HELD_SLOTS = SLOTS * 16 };

/* Blocks per multiprocessor from which a thread processes several short rows. */
enum { MIN_BLOCKS_PER_SM = 16 };

#endif
