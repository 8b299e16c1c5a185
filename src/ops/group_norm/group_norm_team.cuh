/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Rows that teams of threads hold in shared memory: where a row is one group, and not too long. A
 * block has `part` rows, several at a time, and copies of the next ones are under way. */
#ifndef RG_OPS_GROUP_NORM_TEAM_CUH
#define RG_OPS_GROUP_NORM_TEAM_CUH

#include "ops/group_norm/group_norm_rows.cuh"

enum {
    TEAM_VECTORS = 4, /* of a tensor, that a thread has in each step */
    TEAM_STEP = TEAM_VECTORS * ROW_THREADS
};

/* The thread of a team, which has SLOTS vectors of each of R rows at a time. */
template <int SLOTS> struct team_thread {
    int thread, team, teams;
    int c[SLOTS], left[SLOTS]; /* first channel, and channels, of each vector */
    int64_t first, last;       /* rows of the block */
};

template <rg_dtype T, int SLOTS>
static __device__ __forceinline__ team_thread<SLOTS> find_team(const row_call &k)
{
    team_thread<SLOTS> p;
    p.thread = (int)threadIdx.x & (k.threads_per_row - 1);
    p.team = (int)threadIdx.x / k.threads_per_row;
    p.teams = ROW_THREADS / k.threads_per_row;
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        p.c[i] = (p.thread + i * k.threads_per_row) * VLEN<T>;
        const int left = (int)k.each - p.c[i];
        p.left[i] = left < 0 ? 0 : left < VLEN<T> ? left : VLEN<T>;
    }
    p.first = blockIdx.x * k.part;
    p.last = p.first + k.part < k.images ? p.first + k.part : k.images;
    return p;
}

/* The offset of a row of tensor t. */
template <bool FAST>
static __device__ __forceinline__ int64_t image_offset(const rg_channels &s, int t, int64_t image)
{
    return FAST ? straight_offset(s.images, t, image) : walk_offset(s.images, t, image);
}

/* The row of a team that is number r of those from `base` on, or the last one of the block. */
template <int SLOTS>
static __device__ __forceinline__ int64_t team_row(const team_thread<SLOTS> &p, int64_t base, int r)
{
    const int64_t row = base + r * p.teams + p.team;
    return row < p.last ? row : p.last - 1;
}

/* Starts to copy the thread's vectors of R rows of tensor t to `own`: vector i of row r becomes
 * own[(r * SLOTS + i) * ROW_THREADS]. */
template <rg_dtype T, bool FAST, int SLOTS, int R>
static __device__ __forceinline__ void start_team(const rg_channels &s, int t, const void *data,
                                                  const team_thread<SLOTS> &p, int64_t base,
                                                  uint4 *own)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int64_t from = image_offset<FAST>(s, t, team_row(p, base, r));
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            uint4 *const to = own + (r * SLOTS + i) * ROW_THREADS;
            if (p.left[i] == 0)
                continue;
            if constexpr (FAST) {
                copy_vector(to, at<T>(data, from + p.c[i]));
            } else {
                real<T> x[VLEN<T>];
                load_columns<T, FAST>(data, from + p.c[i] * s.step[t], s.step[t], p.left[i], x);
                *to = pack<T>(x);
            }
        }
    }
}

/* The first three elements of a row of x: their median is the shift of the variance. */
template <rg_dtype T, bool FAST>
static __device__ __forceinline__ void load_samples(const row_call &k, const rg_channels &s, int t,
                                                    const void *x, int64_t image,
                                                    element<T> samples[3])
{
    const int64_t from = image_offset<FAST>(s, t, image);
    const int last = (int)k.each - 1;
#pragma unroll
    for (int i = 0; i < 3; i++)
        samples[i] = ((const element<T> *)x)[from + (last < i ? last : i) * s.step[t]];
}

template <rg_dtype T>
static __device__ __forceinline__ real<T> pivot_of(const element<T> samples[3])
{
    return middle_of(to_real<T>(samples[0]), to_real<T>(samples[1]), to_real<T>(samples[2]));
}

/* Sums over a team, of N values each. `shared` holds N values of every warp, and is not that of the
 * call before, which may still be read. */
template <int N, class REAL>
static __device__ __forceinline__ void reduce_team(REAL value[N], int threads, REAL *shared)
{
    enum { WARPS = ROW_THREADS / ROW_WARP };
    for (int m = 1; m < ROW_WARP && m < threads; m *= 2) {
#pragma unroll
        for (int i = 0; i < N; i++)
            value[i] += __shfl_xor_sync(~0u, value[i], m);
    }
    if (threads <= ROW_WARP)
        return;
    const int warp = (int)threadIdx.x / ROW_WARP, warps = threads / ROW_WARP;
    if (threadIdx.x % ROW_WARP == 0) {
#pragma unroll
        for (int i = 0; i < N; i++)
            shared[i * WARPS + warp] = value[i];
    }
    __syncthreads();
    const REAL *const own = shared + warp / warps * warps;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const REAL *const p = own + i * WARPS;
        value[i] = warps == 2   ? p[0] + p[1]
                   : warps == 4 ? (p[0] + p[1]) + (p[2] + p[3])
                                : ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
    }
}

static __device__ __forceinline__ float in_register(float x)
{
    asm volatile("" : "+f"(x));
    return x;
}

static __device__ __forceinline__ double in_register(double x)
{
    asm volatile("" : "+d"(x));
    return x;
}

/* The value of the row that the thread owns, of R values that must not become an array in memory.
 */
template <int R, class REAL> static __device__ __forceinline__ REAL own_of(const REAL value[R])
{
    REAL own = value[0];
#pragma unroll
    for (int r = 1; r < R; r++) {
        const REAL other = in_register(value[r]);
        own = (int)(threadIdx.x & (R - 1)) == r ? other : in_register(own);
    }
    return own;
}

/* Statistics of R rows. One thread of R owns a row: it has what belongs to the row, as `pivot` and
 * what follows from its sums, and the others ask for it. */
template <rg_dtype T, bool FAST, int SLOTS, int R>
static __device__ __forceinline__ void
team_statistics(const row_call &k, const team_thread<SLOTS> &p, const uint4 *held, real<T> pivot,
                real<T> *shared, row_numbers<T> &own)
{
    real<T> sum[2 * R] = {};
#pragma unroll
    for (int r = 0; r < R; r++) {
        const real<T> about = __shfl_sync(~0u, pivot, r, R);
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            real<T> d[VLEN<T>];
            if (p.left[i] == 0)
                continue;
            unpack<T>(held[(r * SLOTS + i) * ROW_THREADS], d);
#pragma unroll
            for (int e = 0; e < VLEN<T>; e++) {
                d[e] = FAST || e < p.left[i] ? d[e] - about : 0;
                sum[r] += d[e];
                sum[R + r] = fma(d[e], d[e], sum[R + r]);
            }
        }
    }
    reduce_team<2 * R>(sum, k.threads_per_row, shared);
    const double all = (double)own_of<R>(sum), about = (double)pivot;
    const double rest = all * k.inverse;
    const double around = fma(-all, rest, (double)own_of<R>(sum + R));
    const double mean = (double)(real<T>)(about + rest);
    own = { (real<T>)mean, (real<T>)((about - mean) + rest),
            (real<T>)rsqrt((around < 0 ? 0 : around * k.inverse) + k.epsilon) };
}

/* Numbers of row r, which another thread may have. */
template <rg_dtype T, int R>
static __device__ __forceinline__ row_numbers<T> numbers_of(const row_numbers<T> &own, int r)
{
    return { __shfl_sync(~0u, own.mean, r, R), __shfl_sync(~0u, own.rest, r, R),
             __shfl_sync(~0u, own.s, r, R) };
}

template <rg_dtype T, int SLOTS>
static __device__ __forceinline__ void
team_parameters(const row_call &k, const team_thread<SLOTS> &p, const void *gamma, const void *beta,
                real<T> own[SLOTS][VLEN<T>], real<T> shift[SLOTS][VLEN<T>])
{
    const rg_norm_parameters &q = k.parameters;
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        load_parameter<T>(gamma, q.gamma_step, q.has_gamma, 1, q.dtype, p.c[i], p.left[i], own[i]);
        load_parameter<T>(beta, q.beta_step, q.has_beta, 0, q.dtype, p.c[i], p.left[i], shift[i]);
    }
}

/* ---- host side ---- */

/* Bytes of shared memory where `tensors` tensors are read: for copies, and for reductions. In
 * the end the sums of teams overwrite the copies. */
static inline int64_t team_shared(int tensors)
{
    const int64_t values = 4 * 2 * TEAM_VECTORS * (ROW_THREADS / ROW_WARP);
    return (int64_t)2 * tensors * TEAM_STEP * 16 + values * (int64_t)sizeof(double);
}

/* Threads of a row; 0 where it is not held. */
template <rg_dtype T>
static int team_threads(const row_call *k, int tensors, const rg_cuda_target *target)
{
    const int64_t vectors = ceil_div(k->each, VLEN<T>), most = ROW_THREADS * TEAM_VECTORS;
    const bool held = k->groups == 1 && vectors <= most && team_shared(tensors) <= target->shared;
    return held ? power_of_two(vectors, TEAM_VECTORS, ROW_THREADS) : 0;
}

/* The kernel for a neuron and at least as many vectors as a thread has. */
#define TEAM_KERNEL(name, fast, kind, slots)                    \
    (!(fast)                    ? name<T, false, NORM_OTHER, 4> \
     : (kind) != RG_NEURON_NONE ? name<T, true, NORM_OTHER, 4>  \
     : (slots) == 1             ? name<T, true, NORM_PLAIN, 1>  \
     : (slots) == 2             ? name<T, true, NORM_PLAIN, 2>  \
                                : name<T, true, NORM_PLAIN, 4>)

#endif
