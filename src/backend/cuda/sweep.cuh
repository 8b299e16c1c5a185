/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sweeps on a GPU: out = formula(constants, a, b), element by element. */
#ifndef RG_BACKEND_CUDA_SWEEP_CUH
#define RG_BACKEND_CUDA_SWEEP_CUH

#include "backend/cuda/kernel.cuh"

/* What a formula is: the result from an element of a and of b. */
template <rg_dtype T, class CONSTANTS>
using formula_of = real<T> (*)(const CONSTANTS &k, real<T> a, real<T> b);

enum { SWEEP_THREADS = 256 };

/* Contiguous, aligned tensors; `b` may be a once more. A thread takes one vector: with more of
 * them, reads and writes of memory mix less well (ReLU of 256M floats on an H200: 503 us with one,
 * 530 with four). */
template <rg_dtype T, class CONSTANTS, formula_of<T, CONSTANTS> FORMULA, bool TWO>
static __global__ void __launch_bounds__(SWEEP_THREADS)
    sweep_vectors(const CONSTANTS k, const char *a, const char *b, char *out, int64_t count,
                  bool add, bool stream)
{
    enum { V = VLEN<T> };
    const int64_t vectors = count / V, v = (int64_t)blockIdx.x * SWEEP_THREADS + threadIdx.x;
    if (v < vectors) {
        real<T> x[V], y[V], old[V] = {};
        unpack<T>(load_vector(a + 16 * v), x);
        if (TWO)
            unpack<T>(load_vector(b + 16 * v), y);
        if (add)
            unpack<T>(load_vector(out + 16 * v), old);
#pragma unroll
        for (int e = 0; e < V; e++) {
            const real<T> value = FORMULA(k, x[e], TWO ? y[e] : x[e]);
            x[e] = add ? old[e] + value : value;
        }
        store_vector(out + 16 * v, pack<T>(x), stream);
    }
    const int64_t tail = vectors * V + v; /* what is left is less than a vector */
    if (tail < count) {
        const real<T> value = FORMULA(k, load<T>(a, tail), load<T>(b, tail));
        store<T>(out, tail, add ? load<T>(out, tail) + value : value);
    }
}

/* How results are stored. */
struct sweep_store {
    bool add, stream;
};

/* Aligned rows of `vectors` vectors each. */
template <rg_dtype T, class CONSTANTS, formula_of<T, CONSTANTS> FORMULA>
static __global__ void __launch_bounds__(SWEEP_THREADS)
    sweep_rows(const CONSTANTS k, const __grid_constant__ rg_sweep sweep, const void *a,
               const void *b, void *out, int last, int64_t vectors, const sweep_store store)
{
    enum { V = VLEN<T> };
    const int64_t all = sweep.outer.count * vectors;
    const int64_t v = (int64_t)blockIdx.x * SWEEP_THREADS + threadIdx.x;
    if (v >= all)
        return;
    const int64_t row = all <= INT32_MAX ? (uint32_t)v / (uint32_t)vectors : v / vectors;
    const int64_t j = (v - row * vectors) * V;
    char *const to = at<T>(out, walk_offset(sweep.outer, last, row) + j);
    real<T> x[V], y[V], old[V] = {};
    unpack<T>(load_vector(at<T>(a, walk_offset(sweep.outer, 0, row) + j)), x);
    unpack<T>(load_vector(at<T>(b, walk_offset(sweep.outer, last - 1, row) + j)), y);
    if (store.add)
        unpack<T>(load_vector(to), old);
#pragma unroll
    for (int e = 0; e < V; e++) {
        const real<T> value = FORMULA(k, x[e], y[e]);
        x[e] = store.add ? old[e] + value : value;
    }
    store_vector(to, pack<T>(x), store.stream);
}

/* Any tensors. */
template <rg_dtype T, class CONSTANTS, formula_of<T, CONSTANTS> FORMULA>
static __global__ void __launch_bounds__(SWEEP_THREADS)
    sweep_elements(const CONSTANTS k, const __grid_constant__ rg_sweep sweep, const void *a,
                   const void *b, void *out, int last, bool add)
{
    const int64_t count = sweep.outer.count * sweep.length;
    const int64_t step = (int64_t)gridDim.x * SWEEP_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * SWEEP_THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row =
            count <= INT32_MAX ? (uint32_t)i / (uint32_t)sweep.length : i / sweep.length;
        const int64_t j = i - row * sweep.length;
        const int64_t from_a = walk_offset(sweep.outer, 0, row) + j * sweep.step[0];
        const int64_t from_b = walk_offset(sweep.outer, last - 1, row) + j * sweep.step[last - 1];
        const int64_t to = walk_offset(sweep.outer, last, row) + j * sweep.step[last];
        const real<T> value = FORMULA(k, load<T>(a, from_a), load<T>(b, from_b));
        store<T>(out, to, add ? load<T>(out, to) + value : value);
    }
}

/* Launches a sweep over `tensors` tensors, the last of which is the result. */
template <rg_dtype T, class CONSTANTS, formula_of<T, CONSTANTS> FORMULA, int TENSORS>
static void launch_sweep(const CONSTANTS &k, const rg_sweep *sweep, const void *const data[TENSORS],
                         bool add, bool stream, const rg_cuda_target *target)
{
    const int64_t most_blocks = 1 << 24;
    const int64_t count = sweep->outer.count * sweep->length;
    bool wide = sweep->dense;
    for (int t = 0; t < TENSORS; t++)
        wide &= is_aligned<T>(data[t], &sweep->outer, t);
    const void *a = data[0], *b = data[TENSORS - 2];
    void *out = (void *)data[TENSORS - 1];
    const int64_t vectors = ceil_div(ceil_div(count, VLEN<T>), SWEEP_THREADS);
    const int64_t elements = ceil_div(count, SWEEP_THREADS);
    if (wide && sweep->outer.count == 1)
        launch(sweep_vectors<T, CONSTANTS, FORMULA, (TENSORS > 2)>, vectors, SWEEP_THREADS, 0,
               target, k, (const char *)a, (const char *)b, (char *)out, count, add, stream);
    else if (wide && sweep->length % VLEN<T> == 0)
        launch(sweep_rows<T, CONSTANTS, FORMULA>, vectors, SWEEP_THREADS, 0, target, k, *sweep, a,
               b, out, TENSORS - 1, sweep->length / VLEN<T>, sweep_store{ add, stream });
    else
        launch(sweep_elements<T, CONSTANTS, FORMULA>,
               elements < most_blocks ? elements : most_blocks, SWEEP_THREADS, 0, target, k, *sweep,
               a, b, out, TENSORS - 1, add);
}

#endif
