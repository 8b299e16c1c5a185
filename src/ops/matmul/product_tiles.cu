/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices for any strides. A block of threads has a tile of c; pieces of a and b go
 * through shared memory, where strides and storage types end. Sums follow the rule of
 * core/long_sum.h: runs are added up in double. */
#include "core/long_sum.h"
#include "ops/matmul/product_strategy.cuh"

enum {
    TILE = 64,     /* rows and columns of a tile */
    SLICE = 16,    /* elements of k in shared memory */
    THREADS = 256, /* of 4 x 4 elements of c each */
    EACH = 4,
    LOADS = TILE * SLICE / THREADS,
    PITCH = TILE + 4
};

/* Offsets of rows and columns of the tile, and of elements of k. The mirrored ones: of column n
 * taken as k, and of k taken as column. */
typedef struct product_offsets {
    int64_t row[TILE], column[TILE], mirrored_column[TILE];
    int64_t a[SLICE], b[SLICE], mirrored[SLICE];
} product_offsets;

/* A tile of c: its matrices, and its first row and column. */
struct product_tile {
    const char *a, *b;
    int64_t row, column;
    bool a_along, b_along; /* see is_along */
};

/* Shared memory of a block. */
template <rg_dtype T> struct product_slice {
    product_offsets at;
    real<T> a[SLICE][PITCH], b[SLICE][PITCH];
};

static __device__ __forceinline__ void find_tile(const rg_product_args &k, product_offsets &at,
                                                 int64_t row, int64_t column)
{
    const int i = (int)threadIdx.x;
    if (i < TILE && row + i < k.m.count)
        at.row[i] = walk_offset(k.m, 0, row + i);
    if (i < TILE && column + i < k.n.count) {
        at.column[i] = walk_offset(k.n, 0, column + i);
        if (k.mirrored)
            at.mirrored_column[i] = walk_offset(k.k, 1, column + i);
    }
}

static __device__ __forceinline__ void find_slice(const rg_product_args &k, product_offsets &at,
                                                  int64_t first)
{
    const int i = (int)threadIdx.x;
    if (i >= SLICE || first + i >= k.k.count)
        return;
    at.a[i] = walk_offset(k.k, 0, first + i);
    at.b[i] = walk_offset(k.k, 1, first + i);
    if (k.mirrored)
        at.mirrored[i] = walk_offset(k.n, 0, first + i);
}

/* Which element of a slice a thread loads: neighbours in memory for neighbouring threads. */
static __device__ __forceinline__ void pick(int load, bool along_k, int &kk, int &i)
{
    const int number = (int)threadIdx.x + load * THREADS;
    kk = along_k ? number % SLICE : number / TILE;
    i = along_k ? number / SLICE : number % TILE;
}

/* The slice from element `first` of k on. */
template <rg_dtype T>
static __device__ __forceinline__ void load_slice(const rg_product_args &k, const product_tile &t,
                                                  product_slice<T> &shared, int64_t first)
{
    const int64_t rows = k.m.count - t.row, columns = k.n.count - t.column;
    const int64_t left = k.k.count - first;
    const product_offsets &at = shared.at;
#pragma unroll
    for (int n = 0; n < LOADS; n++) {
        int kk, i;
        pick(n, t.a_along, kk, i);
        shared.a[kk][i] = i < rows && kk < left ? load<T>(t.a, at.row[i] + at.a[kk]) : 0;
        pick(n, t.b_along, kk, i);
        real<T> value = 0;
        if (i < columns && kk < left) {
            value = load<T>(t.b, at.column[i] + at.b[kk]);
            if (k.mirrored)
                value += load<T>(t.b, at.mirrored_column[i] + at.mirrored[kk]);
        }
        shared.b[kk][i] = value;
    }
}

template <rg_dtype T>
static __device__ __forceinline__ void
add_slice(real<T> sum[EACH][EACH], const real<T> as[SLICE][PITCH], const real<T> bs[SLICE][PITCH])
{
    const int y = (int)threadIdx.x / (TILE / EACH), x = (int)threadIdx.x % (TILE / EACH);
#pragma unroll
    for (int kk = 0; kk < SLICE; kk++) {
        real<T> row[EACH], column[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            row[e] = as[kk][y * EACH + e];
            column[e] = bs[kk][x * EACH + e];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int j = 0; j < EACH; j++)
                sum[i][j] = fma(row[i], column[j], sum[i][j]);
        }
    }
}

/* The sums of one tile. */
template <rg_dtype T>
static __device__ __forceinline__ void sum_tile(const rg_product_args &k, const product_tile &t,
                                                product_slice<T> &shared, double total[EACH][EACH])
{
    real<T> sum[EACH][EACH] = {};
    for (int64_t first = 0; first < k.k.count; first += SLICE) {
        __syncthreads(); /* the slice before has been used */
        find_slice(k, shared.at, first);
        __syncthreads();
        load_slice<T>(k, t, shared, first);
        __syncthreads();
        add_slice<T>(sum, shared.a, shared.b);
        if ((first + SLICE) % RG_SUM_RUN != 0 && first + SLICE < k.k.count)
            continue;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                total[i][j] += (double)sum[i][j];
                sum[i][j] = 0;
            }
        }
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    product_tiles(const __grid_constant__ rg_product_args k, int64_t down, int64_t across,
                  int64_t tiles, bool a_along, bool b_along)
{
    __shared__ product_slice<T> shared;
    const int y = (int)threadIdx.x / (TILE / EACH), x = (int)threadIdx.x % (TILE / EACH);
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t column = tile % across * TILE, row = tile / across % down * TILE;
        if (k.symmetric && column + TILE <= row)
            continue; /* the whole block */
        const int64_t image = tile / across / down;
        const product_tile t = { at<T>(k.a, walk_offset(k.batch, 0, image)),
                                 at<T>(k.b, walk_offset(k.batch, 1, image)),
                                 row,
                                 column,
                                 a_along,
                                 b_along };
        const int64_t to = walk_offset(k.batch, 2, image);
        char *c = k.wide ? at<RG_F32>(k.c, to) : at<T>(k.c, to);
        double total[EACH][EACH] = {};
        __syncthreads(); /* the tile before has been used */
        find_tile(k, shared.at, row, column);
        sum_tile<T>(k, t, shared, total);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int j = 0; j < EACH; j++)
                store_result<T>(k, c, row + y * EACH + i, column + x * EACH + j,
                                (real<T>)total[i][j]);
        }
    }
}

/* ---- strategy ---- */

/* Whether elements of k are closer together in tensor t than those of the other index. */
static bool is_along(const rg_walk *k, int t, const rg_walk *other)
{
    const bool k_dense = k->rank > 0 && k->strides[t][k->rank - 1] == 1;
    const bool other_dense = other->rank > 0 && other->strides[0][other->rank - 1] == 1;
    return k_dense && !other_dense;
}

template <rg_dtype T>
static void launch_tiles(const rg_product_args *k, const rg_cuda_target *target)
{
    const int64_t down = ceil_div(k->m.count, TILE), across = ceil_div(k->n.count, TILE);
    const int64_t tiles = k->batch.count * down * across, most = 1 << 20;
    launch(product_tiles<T>, tiles < most ? tiles : most, THREADS, 0, target, *k, down, across,
           tiles, is_along(&k->k, 0, &k->m), is_along(&k->k, 1, &k->n));
}

static bool accepts(rg_cuda_product *call)
{
    (void)call;
    return true;
}

static bool run(const rg_cuda_product *call, scratch_arena *arena)
{
    static void (*const launch_by_dtype[])(const rg_product_args *, const rg_cuda_target *) =
        RG_EVERY_DTYPE(launch_tiles);
    if (arena->enqueue)
        launch_by_dtype[call->dtype](call->args, arena->target);
    return true;
}

extern "C" const rg_product_strategy rg_product_tiles = { "tiles", accepts, run };
