/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The limit on a GPU: copies from the inputs to the outputs. Half of all bytes are copied, so that
 * as many are read and written together as the row must move. */
#include "backend/cuda/target.h"
#include "bench_limit.h" /* beside this file, as for the CPU */

enum { MOST_PIECES = 16, THREADS = 256, BLOCKS = 4 /* of a multiprocessor */, UNROLL = 8 };

typedef struct piece {
    const char *from;
    char *to;
    int64_t bytes;
} piece;

typedef struct pieces {
    piece at[MOST_PIECES];
    int32_t count;
} pieces;

static int64_t sum_of(const int64_t *bytes, int32_t count)
{
    int64_t sum = 0;
    for (int32_t t = 0; t < count; t++)
        sum += bytes[t];
    return sum;
}

/* A position in arrays that follow one another; the first follows the last. */
typedef struct cursor {
    char *const *data;
    const int64_t *bytes;
    int32_t count, array;
    int64_t at;
} cursor;

static int64_t rest_of(cursor *c)
{
    while (c->at == c->bytes[c->array]) {
        c->array = (c->array + 1) % c->count;
        c->at = 0;
    }
    return c->bytes[c->array] - c->at;
}

/* Cuts the copy where an array begins; false where that makes too many pieces. Neither all inputs
 * nor all outputs are empty. */
static bool cut(const rg_limit_args *k, pieces *p)
{
    cursor from = { k->data, k->bytes, k->inputs, 0, 0 };
    cursor to = { k->data + k->inputs, k->bytes + k->inputs, k->outputs, 0, 0 };
    int64_t left = sum_of(k->bytes, k->inputs + k->outputs) / 2;
    for (p->count = 0; left > 0; p->count++) {
        if (p->count == MOST_PIECES)
            return false;
        int64_t bytes = rest_of(&from);
        bytes = rest_of(&to) < bytes ? rest_of(&to) : bytes;
        bytes = left < bytes ? left : bytes;
        p->at[p->count] =
            piece{ from.data[from.array] + from.at, to.data[to.array] + to.at, bytes };
        from.at += bytes;
        to.at += bytes;
        left -= bytes;
    }
    return true;
}

/* ---- kernels ---- */

static __device__ void copy_vectors(const uint4 *from, uint4 *to, int64_t count)
{
    const int64_t tile = UNROLL * THREADS;
    int64_t i = blockIdx.x * tile + threadIdx.x;
    for (; i < count; i += gridDim.x * tile) {
        uint4 a[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (i + u * THREADS < count)
                a[u] = __ldcs(from + i + u * THREADS);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (i + u * THREADS < count)
                __stcs(to + i + u * THREADS, a[u]);
        }
    }
}

static __global__ void __launch_bounds__(THREADS, BLOCKS) copy(const pieces p)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int32_t n = 0; n < p.count; n++) {
        const piece c = p.at[n];
        const bool aligned = (((uintptr_t)c.from | (uintptr_t)c.to) & 15) == 0;
        const int64_t vectors = aligned ? c.bytes / 16 : 0;
        copy_vectors((const uint4 *)c.from, (uint4 *)c.to, vectors);
        int64_t i = 16 * vectors + (int64_t)blockIdx.x * THREADS + threadIdx.x;
        for (; i < c.bytes; i += step)
            c.to[i] = c.from[i];
    }
}

/* Where sizes are too different for a copy: each input is read once, then each output written. */
static __global__ void __launch_bounds__(THREADS, BLOCKS) read_and_write(const rg_limit_args k)
{
    const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t step = (int64_t)gridDim.x * THREADS;
    unsigned sum = 0;
    for (int32_t t = 0; t < k.inputs; t++) {
        for (int64_t i = first; i < k.bytes[t] / 16; i += step) {
            const uint4 a = __ldcs((const uint4 *)k.data[t] + i);
            sum += a.x + a.y + a.z + a.w;
        }
        for (int64_t i = k.bytes[t] / 16 * 16 + first; i < k.bytes[t]; i += step)
            sum += (unsigned char)k.data[t][i];
    }
    for (int32_t t = k.inputs; t < k.inputs + k.outputs; t++) {
        for (int64_t i = first; i < k.bytes[t] / 16; i += step)
            __stcs((uint4 *)k.data[t] + i, make_uint4(sum, sum, sum, sum));
        for (int64_t i = k.bytes[t] / 16 * 16 + first; i < k.bytes[t]; i += step)
            k.data[t][i] = (char)sum;
    }
}

/* ---- launches ---- */

/* Enough blocks for these bytes, but no more than run at once. */
static unsigned grid_for(int64_t bytes, const rg_cuda_target *target)
{
    const int64_t tile = UNROLL * THREADS * 16, most = (int64_t)target->multiprocessors * BLOCKS;
    const int64_t blocks = (bytes + tile - 1) / tile;
    return (unsigned)(blocks < most ? blocks : most);
}

static void move(const rg_limit_args *k, const rg_cuda_target *target, bool bypass)
{
    pieces p;
    const int64_t in = sum_of(k->bytes, k->inputs);
    const int64_t out = sum_of(k->bytes + k->inputs, k->outputs);
    if (in == 0) { /* to touch the outputs */
        for (int32_t t = k->inputs; t < k->inputs + k->outputs; t++)
            (void)cudaMemsetAsync(k->data[t], 0, (size_t)k->bytes[t], target->stream);
    } else if (out == 0 || !cut(k, &p)) {
        read_and_write<<<grid_for(in + out, target), THREADS, 0, target->stream>>>(*k);
    } else if (bypass) {
        copy<<<grid_for((in + out) / 2, target), THREADS, 0, target->stream>>>(p);
    } else {
        for (int32_t n = 0; n < p.count; n++)
            (void)cudaMemcpyAsync(p.at[n].to, p.at[n].from, (size_t)p.at[n].bytes,
                                  cudaMemcpyDeviceToDevice, target->stream);
    }
}

static void move_ordinary(const void *args, const rg_cuda_target *target)
{
    move((const rg_limit_args *)args, target, false);
}

static void move_bypass(const void *args, const rg_cuda_target *target)
{
    move((const rg_limit_args *)args, target, true);
}

/* By RG_LIMIT_ id; bytes are moved as f32, which comes first. There is no peak. */
static const rg_cuda_row rows[] = { { RG_LIMIT_ORDINARY, { move_ordinary } },
                                    { RG_LIMIT_BYPASS, { move_bypass } } };
extern "C" const rg_cuda_table rg_cuda_limit;
extern "C" const rg_cuda_table rg_cuda_limit = { rows, sizeof(rows) / sizeof(rows[0]) };
static_assert(RG_F32 == 0, "the order of functions in a row");
