/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Moves and scatters on a GPU: copies of strided tensors. A thread takes a chunk: as many
 * elements, up to 16 bytes, as are contiguous and aligned in both tensors wherever a chunk
 * begins. Walks are taken in chunks too, so that there is one kernel for each size of a chunk,
 * and an index is divided once for all of its elements. */
#include "ops/move/move.cuh"
#include "backend/cuda/divide.cuh"

enum { MOVE_THREADS = 256 };

/* ---- offsets ---- */

/* The offset of index i of a walk over one tensor. Tensors of an image, cut along one dimension,
 * come down to a rank of 2. */
static __device__ __forceinline__ int64_t path_offset(const rg_walk &walk, int64_t i)
{
    if (walk.rank <= 1)
        return i * walk.strides[0][0];
    if (walk.rank > 2 || walk.count > INT32_MAX)
        return walk_offset(walk, 0, i);
    const uint32_t dim = (uint32_t)walk.dims[1], row = (uint32_t)i / dim;
    return row * walk.strides[0][0] + ((uint32_t)i - row * dim) * walk.strides[0][1];
}

/* What divides by the dims of a scatter. */
struct scatter_dividers {
    small_divider by[RG_MAX_RANK];
    bool dense; /* index i is at i in `to` */
};

/* The offset of index i of a scatter in `to`, and, where the slice holds it, in `from`; returns
 * whether it does. QUICK: of fewer than 2^31. */
template <class INDEX, bool QUICK>
static __device__ __forceinline__ bool scatter_offsets(const rg_scatter &k,
                                                       const scatter_dividers &dividers, INDEX i,
                                                       int64_t *from, int64_t *to)
{
    bool inside = true;
    *from = 0;
    *to = dividers.dense ? (int64_t)i : 0;
    for (int32_t d = k.rank - 1; d >= 0; d--) {
        INDEX next = 0;
        if (d > 0)
            next = QUICK ? (INDEX)divide((int32_t)i, dividers.by[d]) : i / (INDEX)k.dims[d];
        const INDEX index = i - next * (INDEX)k.dims[d], start = (INDEX)k.start[d];
        const INDEX distance = index - start, step = (INDEX)k.step[d];
        const INDEX taken = step == 1 ? distance : distance / step;
        if (!dividers.dense)
            *to += (int64_t)index * k.to[d];
        inside = inside && index >= start && taken < (INDEX)k.length[d] && taken * step == distance;
        if (inside)
            *from += (int64_t)taken * k.from[d];
        i = next;
    }
    return inside;
}

template <class CHUNK>
static __device__ __forceinline__ void put(CHUNK *to, const CHUNK &chunk, bool stream)
{
    if (stream)
        __stcs(to, chunk);
    else
        *to = chunk;
}

/* ---- kernels ---- */

template <class CHUNK>
static __global__ void __launch_bounds__(MOVE_THREADS)
    move_chunks(const __grid_constant__ rg_move k, const CHUNK *from, CHUNK *to)
{
    const int64_t step = (int64_t)gridDim.x * MOVE_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * MOVE_THREADS + threadIdx.x; i < k.to.count; i += step)
        put(to + path_offset(k.to, i), from[path_offset(k.from, i)], k.stream);
}

/* The same of quick walks, EACH chunks to a thread. */
template <class CHUNK, int EACH>
static __global__ void __launch_bounds__(MOVE_THREADS)
    move_quickly(const __grid_constant__ quick_walk<1> from_walk,
                 const __grid_constant__ quick_walk<1> to_walk, int32_t count, bool stream,
                 const CHUNK *from, CHUNK *to)
{
    const int64_t first = (int64_t)blockIdx.x * (EACH * MOVE_THREADS) + threadIdx.x;
    CHUNK held[EACH];
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int64_t i = first + n * MOVE_THREADS;
        if (i < count)
            held[n] = from[quick_offset(from_walk, 0, find_index(from_walk, (int32_t)i))];
    }
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int64_t i = first + n * MOVE_THREADS;
        if (i < count)
            put(to + quick_offset(to_walk, 0, find_index(to_walk, (int32_t)i)), held[n], stream);
    }
}

/* Adds vectors, or single elements. */
template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(MOVE_THREADS)
    move_added(const __grid_constant__ rg_move k, const void *from, void *to)
{
    enum { V = VLEN<T> };
    const int64_t step = (int64_t)gridDim.x * MOVE_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * MOVE_THREADS + threadIdx.x; i < k.to.count; i += step) {
        const int64_t read = path_offset(k.from, i), written = path_offset(k.to, i);
        if constexpr (WIDE) {
            char *const vector = (char *)to + 16 * written;
            real<T> x[V], old[V];
            unpack<T>(load_vector((const char *)from + 16 * read), x);
            unpack<T>(load_vector(vector), old);
#pragma unroll
            for (int e = 0; e < V; e++)
                x[e] += old[e];
            store_vector(vector, pack<T>(x), false);
        } else {
            store<T>(to, written, load<T>(from, read) + load<T>(to, written));
        }
    }
}

template <class CHUNK, class INDEX, bool QUICK>
static __global__ void __launch_bounds__(MOVE_THREADS)
    scatter_chunks(const __grid_constant__ rg_scatter k,
                   const __grid_constant__ scatter_dividers dividers, const CHUNK *from, CHUNK *to)
{
    const int64_t step = (int64_t)gridDim.x * MOVE_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * MOVE_THREADS + threadIdx.x; i < k.count; i += step) {
        int64_t read, written;
        CHUNK chunk = {};
        if (scatter_offsets<INDEX, QUICK>(k, dividers, (INDEX)i, &read, &written))
            chunk = from[read];
        put(to + written, chunk, k.stream);
    }
}

/* ---- host side: chunks ---- */

static unsigned move_blocks(int64_t count)
{
    const int64_t most_blocks = 1 << 24, blocks = ceil_div(count, MOVE_THREADS);
    return (unsigned)(blocks < most_blocks ? blocks : most_blocks);
}

/* Whether chunks of this many elements are contiguous and aligned on the walk. */
static bool has_chunks(const rg_walk *walk, const void *first, int64_t chunk, size_t size)
{
    const int32_t last = walk->rank - 1;
    bool has = (uintptr_t)first % ((size_t)chunk * size) == 0 && walk->strides[0][last] == 1 &&
               walk->dims[last] % chunk == 0;
    for (int32_t d = 0; d < last; d++)
        has &= walk->strides[0][d] % chunk == 0;
    return has;
}

/* The walk in chunks. */
static void take_chunks(rg_walk *walk, int64_t chunk)
{
    walk->dims[walk->rank - 1] /= chunk;
    walk->count /= chunk;
    for (int32_t d = 0; d < walk->rank - 1; d++)
        walk->strides[0][d] /= chunk;
}

static bool scatter_has_chunks(const rg_scatter *s, const void *from, const void *to, int64_t chunk,
                               size_t size)
{
    const int32_t last = s->rank - 1;
    const size_t bytes = (size_t)chunk * size;
    bool has = (uintptr_t)from % bytes == 0 && (uintptr_t)to % bytes == 0 && s->from[last] == 1 &&
               s->to[last] == 1 && s->step[last] == 1 && s->dims[last] % chunk == 0 &&
               s->start[last] % chunk == 0 && s->length[last] % chunk == 0;
    for (int32_t d = 0; d < last; d++)
        has &= s->from[d] % chunk == 0 && s->to[d] % chunk == 0;
    return has;
}

static void scatter_take_chunks(rg_scatter *s, int64_t chunk)
{
    const int32_t last = s->rank - 1;
    s->count /= chunk;
    s->dims[last] /= chunk;
    s->start[last] /= chunk;
    s->length[last] /= chunk;
    for (int32_t d = 0; d < last; d++) {
        s->from[d] /= chunk;
        s->to[d] /= chunk;
    }
}

/* ---- host side: launches ---- */

template <class CHUNK>
static void launch_chunks(const rg_move &k, const void *from, void *to,
                          const rg_cuda_target *target)
{
    enum { EACH = sizeof(CHUNK) == 16 ? 2 : 4 };
    quick_walk<1> from_walk, to_walk;
    if (quick_walk_of(k.from, &from_walk) && quick_walk_of(k.to, &to_walk))
        launch(move_quickly<CHUNK, EACH>, ceil_div(k.to.count, EACH * MOVE_THREADS), MOVE_THREADS,
               0, target, from_walk, to_walk, (int32_t)k.to.count, k.stream, (const CHUNK *)from,
               (CHUNK *)to);
    else
        launch(move_chunks<CHUNK>, move_blocks(k.to.count), MOVE_THREADS, 0, target, k,
               (const CHUNK *)from, (CHUNK *)to);
}

/* Bytes from which on the driver's copy of neighbours is the faster one. */
enum { LARGE_COPY = 4 << 20 };

/* Whether all elements are neighbours, in their order. */
static bool is_dense_walk(const rg_walk *walk)
{
    return walk->rank == 1 && walk->strides[0][0] == 1;
}

static scatter_dividers dividers_of(const rg_scatter &k)
{
    scatter_dividers dividers = {};
    int64_t next = 1;
    dividers.dense = true;
    for (int32_t d = k.rank - 1; d >= 0; d--) {
        dividers.dense &= k.to[d] == next || k.dims[d] == 1;
        next *= k.dims[d];
        if (k.dims[d] <= INT32_MAX)
            dividers.by[d] = small_divider_of(k.dims[d]);
    }
    return dividers;
}

/* Indices of 32 bits where that is enough: then all dims, starts and lengths are too. */
template <class CHUNK>
static void launch_scatter(const rg_scatter &k, const void *from, void *to,
                           const rg_cuda_target *target)
{
    const scatter_dividers dividers = dividers_of(k);
    if (k.count <= INT32_MAX)
        launch(scatter_chunks<CHUNK, uint32_t, true>, move_blocks(k.count), MOVE_THREADS, 0, target,
               k, dividers, (const CHUNK *)from, (CHUNK *)to);
    else
        launch(scatter_chunks<CHUNK, uint64_t, false>, move_blocks(k.count), MOVE_THREADS, 0,
               target, k, dividers, (const CHUNK *)from, (CHUNK *)to);
}

template <rg_dtype T> static void choose_move(const void *args, const rg_cuda_target *target)
{
    const rg_move_args *a = (const rg_move_args *)args;
    const size_t size = sizeof(element<T>);
    const char *from = at<T>(a->from, a->move.from_offset);
    char *to = at<T>(a->to, a->move.to_offset);
    rg_move k = a->move;
    int64_t chunk = VLEN<T>;
    const size_t bytes = (size_t)k.to.count * size;
    if (!k.add && from != to && bytes >= LARGE_COPY && is_dense_walk(&k.from) &&
        is_dense_walk(&k.to)) {
        (void)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, target->stream);
        return;
    }
    while (chunk > 1 &&
           !(has_chunks(&k.from, from, chunk, size) && has_chunks(&k.to, to, chunk, size)))
        chunk = k.add ? 1 : chunk / 2;
    take_chunks(&k.from, chunk);
    take_chunks(&k.to, chunk);
    if (k.add && chunk > 1)
        launch(move_added<T, true>, move_blocks(k.to.count), MOVE_THREADS, 0, target, k,
               (const void *)from, (void *)to);
    else if (k.add)
        launch(move_added<T, false>, move_blocks(k.to.count), MOVE_THREADS, 0, target, k,
               (const void *)from, (void *)to);
    else if ((size_t)chunk * size == 16)
        launch_chunks<uint4>(k, from, to, target);
    else if ((size_t)chunk * size == 8)
        launch_chunks<uint2>(k, from, to, target);
    else if ((size_t)chunk * size == 4)
        launch_chunks<unsigned>(k, from, to, target);
    else
        launch_chunks<unsigned short>(k, from, to, target);
}

template <rg_dtype T> static void choose_scatter(const void *args, const rg_cuda_target *target)
{
    const rg_scatter_args *a = (const rg_scatter_args *)args;
    const size_t size = sizeof(element<T>);
    const char *from = (const char *)a->from;
    char *to = at<T>(a->to, a->scatter.to_offset);
    rg_scatter k = a->scatter;
    int64_t chunk = VLEN<T>;
    while (chunk > 1 && !scatter_has_chunks(&k, from, to, chunk, size))
        chunk /= 2;
    scatter_take_chunks(&k, chunk);
    if ((size_t)chunk * size == 16)
        launch_scatter<uint4>(k, from, to, target);
    else if ((size_t)chunk * size == 8)
        launch_scatter<uint2>(k, from, to, target);
    else if ((size_t)chunk * size == 4)
        launch_scatter<unsigned>(k, from, to, target);
    else
        launch_scatter<unsigned short>(k, from, to, target);
}

const rg_cuda_function rg_cuda_move[RG_CUDA_DTYPES] = RG_EVERY_DTYPE(choose_move);
const rg_cuda_function rg_cuda_scatter[RG_CUDA_DTYPES] = RG_EVERY_DTYPE(choose_scatter);
