/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation of rows: every image is one row.
 *
 * Where a row is one group, and not too long, a team of threads has it in shared memory: memory
 * sees one pass. A block has `part` rows, several at a time, and the next ones are on their way;
 * sums of channels over its rows stay in registers. Other rows are read as often as they are
 * needed. */
#ifndef RG_OPS_GROUP_NORM_ROWS_CUH
#define RG_OPS_GROUP_NORM_ROWS_CUH

#include "backend/cuda/long_sum.cuh"
#include "ops/norm/norm.cuh"
#include "ops/group_norm/group_norm.h"

enum { ROW_THREADS = 256, ROW_WARP = 32 };

/* A thread has every `lanes`th vector of a group of a row; `lanes` threads share a row. */
typedef struct row_call {
    int64_t groups, each, images, part;
    double epsilon, inverse; /* inverse: 1 / each */
    rg_norm_parameters parameters;
    rg_norm_neuron neuron;
    int lanes;
    bool stream, known, wants_dx, wants_sums, add, shared;
} row_call;

/* Numbers of a row that all its threads have. */
template <rg_dtype T> struct row_numbers {
    real<T> mean, rest, s;
};

template <rg_dtype T> static __device__ __forceinline__ int row_left(const row_call &k, int64_t c)
{
    return k.each - c < VLEN<T> ? (int)(k.each - c) : VLEN<T>;
}

/* Statistics of a group whose first element stands at `at`. */
template <rg_dtype T, bool FAST>
static __device__ row_numbers<T> row_statistics(const row_call &k, const void *x, int64_t at,
                                                int64_t step, int lane, real<T> *shared)
{
    const real<T> near = middle_of(load<T>(x, at), load<T>(x, at + k.each / 2 * step),
                                   load<T>(x, at + (k.each - 1) * step));
    long_chain<real<T>, 2> chain; /* of vectors */
    for (int64_t c = (int64_t)lane * VLEN<T>; c < k.each;
         c += (int64_t)k.lanes * VLEN<T>, chain.count()) {
        real<T> d[VLEN<T>];
        const int left = row_left<T>(k, c);
        load_columns<T, FAST>(x, at + c * step, step, left, d);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) {
            d[e] = e < left ? d[e] - near : 0;
            chain.run[0] += d[e];
            chain.run[1] = fma(d[e], d[e], chain.run[1]);
        }
    }
    real<T> all[2];
    chain.end(all);
    const real<T> sum = reduce(all[0], k.lanes, shared, false);
    const real<T> squares = reduce(all[1], k.lanes, shared + ROW_WARP, false);
    __syncthreads(); /* `shared` is free again */
    const double n = (double)k.each, rest = (double)sum / n;
    const double around = (double)squares - (double)sum * rest;
    const double mean = (double)(real<T>)((double)near + rest);
    return { (real<T>)mean, (real<T>)(((double)near - mean) + rest),
             (real<T>)(1 / sqrt((around < 0 ? 0 : around / n) + k.epsilon)) };
}

template <rg_dtype T>
static __device__ __forceinline__ void row_parameter(const void *data, int64_t step, bool has,
                                                     real<T> otherwise, rg_dtype dtype, int64_t c,
                                                     int left, real<T> x[VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = has && e < left ? load_own<T>(data, (c + e) * step, dtype) : otherwise;
}

/* scale and shift of z = t scale + shift, and gamma. */
template <rg_dtype T>
static __device__ __forceinline__ void row_columns(const row_call &k, const void *gamma,
                                                   const void *beta, const row_numbers<T> &q,
                                                   int64_t c, int left, real<T> scale[VLEN<T>],
                                                   real<T> shift[VLEN<T>], real<T> own[VLEN<T>])
{
    const rg_norm_parameters &p = k.parameters;
    row_parameter<T>(gamma, p.gamma_step, p.has_gamma, 1, p.dtype, c, left, own);
    row_parameter<T>(beta, p.beta_step, p.has_beta, 0, p.dtype, c, left, shift);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        scale[e] = own[e] * q.s;
        shift[e] = fma(-q.rest, scale[e], shift[e]);
    }
}

/* Whole rows of threads: those behind the last image take that one, and write nothing. */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_rows(const void *x, const void *gamma, const void *beta, void *mean, void *rest, void *s,
              void *y, const __grid_constant__ rg_channels shape,
              const __grid_constant__ row_call k)
{
    __shared__ real<T> shared[2 * ROW_WARP];
    const int lane = (int)threadIdx.x % k.lanes;
    const int64_t row = (int64_t)blockIdx.x * (ROW_THREADS / k.lanes) + threadIdx.x / k.lanes;
    const bool inside = row < k.images;
    const int64_t image = inside ? row : k.images - 1;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const int64_t from = walk_offset(shape.images, 0, image);
    const int64_t to = walk_offset(shape.images, 1, image);
    for (int64_t group = 0; group < k.groups; group++) {
        const int64_t first = group * k.each, at = from + first * shape.step[0];
        const row_numbers<T> q = row_statistics<T, FAST>(k, x, at, shape.step[0], lane, shared);
        if (inside && lane == 0) {
            ((real<T> *)mean)[image * k.groups + group] = q.mean;
            ((real<T> *)rest)[image * k.groups + group] = q.rest;
            ((real<T> *)s)[image * k.groups + group] = q.s;
        }
        for (int64_t c = (int64_t)lane * VLEN<T>; inside && c < k.each;
             c += (int64_t)k.lanes * VLEN<T>) {
            real<T> v[VLEN<T>], scale[VLEN<T>], shift[VLEN<T>], own[VLEN<T>];
            const int left = row_left<T>(k, c);
            load_columns<T, FAST>(x, at + c * shape.step[0], shape.step[0], left, v);
            row_columns<T>(k, gamma, beta, q, first + c, left, scale, shift, own);
#pragma unroll
            for (int e = 0; e < VLEN<T>; e++) {
                v[e] = fma(v[e] - q.mean, scale[e], shift[e]);
                if constexpr (NEURON == NORM_OTHER)
                    v[e] = any_neuron<T>(k.neuron.kind, neuron, v[e]);
            }
            store_columns<T, FAST>(y, to + (first + c) * shape.step[1], shape.step[1], left, false,
                                   k.stream, v);
        }
    }
}

/* Threads of a row: a warp, or a block where rows are long. */
template <rg_dtype T> static int row_lanes(int64_t each)
{
    return each <= 8 * ROW_WARP * VLEN<T> ? ROW_WARP : ROW_THREADS;
}

template <rg_dtype T>
static bool rows_are_fast(const rg_group_norm_shape *shape, const void *const data[], int tensors)
{
    const rg_channels *s = &shape->channels;
    bool fast = s->dense && s->channels / shape->groups % VLEN<T> == 0;
    for (int t = 0; t < tensors; t++)
        fast &= is_aligned<T>(data[t], &s->images, t);
    return fast;
}

static row_call row_call_of(const rg_group_norm_shape *shape)
{
    row_call k = {};
    k.groups = shape->groups;
    k.each = shape->channels.channels / shape->groups;
    k.images = shape->channels.images.count;
    k.part = shape->part;
    k.epsilon = shape->epsilon;
    k.inverse = 1 / (double)k.each;
    k.parameters = shape->parameters;
    k.neuron = shape->neuron;
    k.stream = shape->stream;
    return k;
}

/* ---- rows that are held ---- */

enum {
    TEAM_VECTORS = 4, /* of a tensor, that a thread has in each step */
    TEAM_STEP = TEAM_VECTORS * ROW_THREADS
};

/* Where a team stands: `lanes` threads with SLOTS vectors each, for R rows at a time. */
template <int SLOTS> struct team_place {
    int lane, team, teams;
    int c[SLOTS], left[SLOTS]; /* first channel, and channels, of each vector */
    int64_t first, last;       /* rows of the block */
};

template <rg_dtype T, int SLOTS>
static __device__ __forceinline__ team_place<SLOTS> find_team(const row_call &k)
{
    team_place<SLOTS> p;
    p.lane = (int)threadIdx.x & (k.lanes - 1);
    p.team = (int)threadIdx.x / k.lanes;
    p.teams = ROW_THREADS / k.lanes;
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        p.c[i] = (p.lane + i * k.lanes) * VLEN<T>;
        const int left = (int)k.each - p.c[i];
        p.left[i] = left < 0 ? 0 : left < VLEN<T> ? left : VLEN<T>;
    }
    p.first = blockIdx.x * k.part;
    p.last = p.first + k.part < k.images ? p.first + k.part : k.images;
    return p;
}

/* Where a row of tensor t stands. */
template <bool FAST>
static __device__ __forceinline__ int64_t image_offset(const rg_channels &s, int t, int64_t image)
{
    return FAST ? straight_offset(s.images, t, image) : walk_offset(s.images, t, image);
}

/* The row of a team that is number r of those from `base` on, or the last one of the block. */
template <int SLOTS>
static __device__ __forceinline__ int64_t team_row(const team_place<SLOTS> &p, int64_t base, int r)
{
    const int64_t row = base + r * p.teams + p.team;
    return row < p.last ? row : p.last - 1;
}

/* Starts to copy the thread's vectors of R rows of tensor t to `own`: vector i of row r becomes
 * own[(r * SLOTS + i) * ROW_THREADS]. */
template <rg_dtype T, bool FAST, int SLOTS, int R>
static __device__ __forceinline__ void start_team(const rg_channels &s, int t, const void *data,
                                                  const team_place<SLOTS> &p, int64_t base,
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

/* The first three elements of a row of x, of which the middle one is near the mean. */
template <rg_dtype T, bool FAST>
static __device__ __forceinline__ void load_near(const row_call &k, const rg_channels &s, int t,
                                                 const void *x, int64_t image, element<T> three[3])
{
    const int64_t from = image_offset<FAST>(s, t, image);
    const int last = (int)k.each - 1;
#pragma unroll
    for (int i = 0; i < 3; i++)
        three[i] = ((const element<T> *)x)[from + (last < i ? last : i) * s.step[t]];
}

template <rg_dtype T> static __device__ __forceinline__ real<T> near_of(const element<T> three[3])
{
    return middle_of(to_real<T>(three[0]), to_real<T>(three[1]), to_real<T>(three[2]));
}

/* Sums over a team, of N values each. `shared` has space for N values of every warp; the one of the
 * call before may still be read. */
template <int N, class REAL>
static __device__ __forceinline__ void reduce_team(REAL value[N], int lanes, REAL *shared)
{
    enum { WARPS = ROW_THREADS / ROW_WARP };
    for (int m = 1; m < ROW_WARP && m < lanes; m *= 2) {
#pragma unroll
        for (int i = 0; i < N; i++)
            value[i] += __shfl_xor_sync(~0u, value[i], m);
    }
    if (lanes <= ROW_WARP)
        return;
    const int warp = (int)threadIdx.x / ROW_WARP, warps = lanes / ROW_WARP;
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

/* The thread's turn among R values, which are not to become an array in memory. */
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

/* Statistics of R rows. What belongs to a row, as `near` and what follows from its sums, is with
 * one thread of R, whose turn it is; the others ask for it. */
template <rg_dtype T, bool FAST, int SLOTS, int R>
static __device__ __forceinline__ void
team_statistics(const row_call &k, const team_place<SLOTS> &p, const uint4 *held, real<T> near,
                real<T> *shared, row_numbers<T> &own)
{
    real<T> sum[2 * R] = {};
#pragma unroll
    for (int r = 0; r < R; r++) {
        const real<T> about = __shfl_sync(~0u, near, r, R);
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
    reduce_team<2 * R>(sum, k.lanes, shared);
    const double all = (double)own_of<R>(sum), about = (double)near;
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
team_parameters(const row_call &k, const team_place<SLOTS> &p, const void *gamma, const void *beta,
                real<T> own[SLOTS][VLEN<T>], real<T> shift[SLOTS][VLEN<T>])
{
    const rg_norm_parameters &q = k.parameters;
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        row_parameter<T>(gamma, q.gamma_step, q.has_gamma, 1, q.dtype, p.c[i], p.left[i], own[i]);
        row_parameter<T>(beta, q.beta_step, q.has_beta, 0, q.dtype, p.c[i], p.left[i], shift[i]);
    }
}

template <rg_dtype T>
static __device__ __forceinline__ void put_statistics(void *mean, void *rest, void *s, int64_t i,
                                                      const row_numbers<T> &q)
{
    ((real<T> *)mean)[i] = q.mean;
    ((real<T> *)rest)[i] = q.rest;
    ((real<T> *)s)[i] = q.s;
}

template <rg_dtype T, bool FAST, int NEURON, int SLOTS>
static __global__ void __launch_bounds__(ROW_THREADS, SLOTS == 4 ? 2 : 3)
    team_rows(const __grid_constant__ rg_group_norm_args a, const __grid_constant__ row_call k)
{
    enum { V = VLEN<T>, R = TEAM_VECTORS / SLOTS, SHARED = 2 * R * ROW_THREADS / ROW_WARP };
    extern __shared__ uint4 memory[];
    real<T> *const shared = (real<T> *)(memory + 2 * TEAM_STEP); /* for two that take turns */
    const rg_channels &s = a.shape.channels;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const team_place<SLOTS> p = find_team<T, SLOTS>(k);
    real<T> gamma[SLOTS][V], beta[SLOTS][V];
    team_parameters<T, SLOTS>(k, p, a.gamma, a.beta, gamma, beta);
    const int mine = (int)threadIdx.x & (R - 1);
    uint4 *const copies = memory + threadIdx.x; /* those of two steps, which take turns */
    element<T> three[3];
    auto start = [&](int64_t base, int turn) {
        if (base >= p.last)
            return;
        start_team<T, FAST, SLOTS, R>(s, 0, a.x, p, base, copies + turn * TEAM_STEP);
        load_near<T, FAST>(k, s, 0, a.x, team_row(p, base, mine), three);
    };
    start(p.first, 0);
    int turn = 0;
    for (int64_t base = p.first; base < p.last; base += R * p.teams, turn ^= 1) {
        const uint4 *const held = copies + turn * TEAM_STEP;
        row_numbers<T> own;
        await_copies();
        const real<T> near = near_of<T>(three);
        start(base + R * p.teams, turn ^ 1);
        team_statistics<T, FAST, SLOTS, R>(k, p, held, near, shared + turn * SHARED, own);
        const int64_t turns = base + mine * p.teams + p.team;
        if (p.lane < R && turns < p.last)
            put_statistics<T>(a.mean, a.rest, a.s, turns, own);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const row_numbers<T> q = numbers_of<T, R>(own, r);
            const int64_t row = base + r * p.teams + p.team;
            if (row >= p.last)
                continue;
            const int64_t to = image_offset<FAST>(s, 1, row);
#pragma unroll
            for (int i = 0; i < SLOTS; i++) {
                real<T> v[V];
                if (p.left[i] == 0)
                    continue;
                unpack<T>(held[(r * SLOTS + i) * ROW_THREADS], v);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    const real<T> scale = gamma[i][e] * q.s;
                    v[e] = fma(v[e] - q.mean, scale, fma(-q.rest, scale, beta[i][e]));
                    if constexpr (NEURON == NORM_OTHER)
                        v[e] = any_neuron<T>(k.neuron.kind, neuron, v[e]);
                }
                store_columns<T, FAST>(a.y, to + p.c[i] * s.step[1], s.step[1], p.left[i], false,
                                       k.stream, v);
            }
        }
    }
}

/* ---- rows that are held: gradient ---- */

/* g and t of a vector; 0 where there is none. */
template <rg_dtype T, bool FAST, int NEURON>
static __device__ __forceinline__ void
team_gradient(const row_call &k, const neuron_constants<T> &neuron, const uint4 &dy, const uint4 &x,
              const row_numbers<T> &q, int left, const real<T> gamma[VLEN<T>],
              const real<T> beta[VLEN<T>], real<T> g[VLEN<T>], real<T> t[VLEN<T>])
{
    unpack<T>(dy, g);
    unpack<T>(x, t);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        t[e] = FAST || e < left ? t[e] - q.mean : 0;
        if constexpr (NEURON != NORM_PLAIN) {
            const real<T> scale = gamma[e] * q.s, shift = fma(-q.rest, scale, beta[e]);
            g[e] = through_neuron<T, NEURON>(k.neuron.kind, neuron, g[e], fma(t[e], scale, shift));
            g[e] = FAST || e < left ? g[e] : 0;
        }
    }
}

/* Offset and weight of the row whose turn it is, from sums over teams. */
template <rg_dtype T, int R>
static __device__ __forceinline__ void team_factors(const row_call &k, const real<T> sum[2 * R],
                                                    const row_numbers<T> &own, real<T> &offset,
                                                    real<T> &weight)
{
    const double all = (double)own_of<R>(sum), products = (double)own_of<R>(sum + R);
    const double s = (double)own.s, rest = (double)own.rest;
    const double wide = s * (s * (products - rest * all) * k.inverse);
    weight = (real<T>)wide;
    offset = (real<T>)(all * k.inverse - rest * wide);
}

/* Sums of channels over the rows of a block: teams are joined one after the other. */
template <rg_dtype T, int SLOTS>
static __device__ __forceinline__ void
put_sums(const row_call &k, const team_place<SLOTS> &p, const real<T> dgamma[SLOTS][VLEN<T>],
         const real<T> dbeta[SLOTS][VLEN<T>], real<T> *dgammas, real<T> *dbetas)
{
    extern __shared__ uint4 memory[];
    real<T> *const sums = (real<T> *)memory;
    const int channels = (int)k.each;
    __syncthreads(); /* all copies are read */
    for (int half = 0; half < 2; half++) {
        real<T> *const to = half ? dbetas : dgammas;
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
#pragma unroll
            for (int e = 0; e < VLEN<T>; e++) {
                const real<T> value = half ? dbeta[i][e] : dgamma[i][e];
                if (e >= p.left[i])
                    continue;
                if (p.teams == 1)
                    to[p.c[i] + e] = value;
                else
                    sums[p.team * channels + p.c[i] + e] = value;
            }
        }
        if (p.teams == 1)
            continue;
        __syncthreads();
        for (int c = (int)threadIdx.x; c < channels; c += ROW_THREADS) {
            double sum = 0;
            for (int r = 0; r < p.teams; r++)
                sum += (double)sums[r * channels + c];
            to[c] = (real<T>)sum;
        }
        __syncthreads();
    }
}

template <rg_dtype T, bool FAST, int NEURON, int SLOTS>
static __global__ void __launch_bounds__(ROW_THREADS, SLOTS == 1   ? 3
                                                      : SLOTS == 2 ? 2
                                                                   : 1)
    team_rows_gradient(const __grid_constant__ rg_group_norm_gradient_args a,
                       const __grid_constant__ row_call k)
{
    enum { V = VLEN<T>, R = TEAM_VECTORS / SLOTS, SHARED = 2 * R * ROW_THREADS / ROW_WARP };
    extern __shared__ uint4 memory[];
    /* for sums and for statistics, two that take turns */
    real<T> *const shared = (real<T> *)(memory + 2 * 2 * TEAM_STEP);
    const rg_channels &s = a.shape.channels;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const team_place<SLOTS> p = find_team<T, SLOTS>(k);
    real<T> gamma[SLOTS][V], beta[SLOTS][V], dgamma[SLOTS][V] = {}, dbeta[SLOTS][V] = {};
    team_parameters<T, SLOTS>(k, p, a.gamma, a.beta, gamma, beta);
    const int mine = (int)threadIdx.x & (R - 1);
    uint4 *const copies = memory + threadIdx.x; /* x, dy of two steps, which take turns */
    element<T> three[3];
    row_numbers<T> next;
    auto start = [&](int64_t base, int turn) {
        if (base >= p.last)
            return;
        const int64_t image = team_row(p, base, mine);
        uint4 *const to = copies + turn * 2 * TEAM_STEP;
        start_team<T, FAST, SLOTS, R>(s, 1, a.x, p, base, to);
        start_team<T, FAST, SLOTS, R>(s, 0, a.dy, p, base, to + TEAM_STEP);
        if (k.known)
            next = { ((const real<T> *)a.mean)[image], ((const real<T> *)a.rest)[image],
                     ((const real<T> *)a.s)[image] };
        else
            load_near<T, FAST>(k, s, 1, a.x, image, three);
    };
    start(p.first, 0);
    int turn = 0;
    for (int64_t base = p.first; base < p.last; base += R * p.teams, turn ^= 1) {
        const uint4 *const xs = copies + turn * 2 * TEAM_STEP, *const dys = xs + TEAM_STEP;
        row_numbers<T> own = next;
        real<T> sum[2 * R] = {}, offset, weight;
        await_copies();
        const real<T> near = k.known ? 0 : near_of<T>(three);
        start(base + R * p.teams, turn ^ 1);
        if (!k.known)
            team_statistics<T, FAST, SLOTS, R>(k, p, xs, near, shared + (2 + turn) * SHARED, own);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const row_numbers<T> q = numbers_of<T, R>(own, r);
            if (base + r * p.teams + p.team >= p.last)
                continue;
#pragma unroll
            for (int i = 0; i < SLOTS; i++) {
                real<T> g[V], t[V];
                const int at = (r * SLOTS + i) * ROW_THREADS;
                if (p.left[i] == 0)
                    continue;
                team_gradient<T, FAST, NEURON>(k, neuron, dys[at], xs[at], q, p.left[i], gamma[i],
                                               beta[i], g, t);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    const real<T> h = g[e] * gamma[i][e];
                    sum[r] += h;
                    sum[R + r] = fma(h, t[e], sum[R + r]);
                    dbeta[i][e] += g[e];
                    dgamma[i][e] = fma(g[e], (t[e] - q.rest) * q.s, dgamma[i][e]);
                }
            }
        }
        if (!k.wants_dx)
            continue;
        reduce_team<2 * R>(sum, k.lanes, shared + turn * SHARED);
        team_factors<T, R>(k, sum, own, offset, weight);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const row_numbers<T> q = numbers_of<T, R>(own, r);
            const real<T> shift = __shfl_sync(~0u, offset, r, R);
            const real<T> slope = __shfl_sync(~0u, weight, r, R);
            const int64_t row = base + r * p.teams + p.team;
            if (row >= p.last)
                continue;
            const int64_t to = image_offset<FAST>(s, 2, row);
#pragma unroll
            for (int i = 0; i < SLOTS; i++) {
                real<T> g[V], t[V];
                const int at = (r * SLOTS + i) * ROW_THREADS;
                if (p.left[i] == 0)
                    continue;
                team_gradient<T, FAST, NEURON>(k, neuron, dys[at], xs[at], q, p.left[i], gamma[i],
                                               beta[i], g, t);
#pragma unroll
                for (int e = 0; e < V; e++) /* rounded one by one: one element leaves 0 */
                    g[e] = fma(-t[e], slope, g[e] * gamma[i][e] - shift) * q.s;
                store_columns<T, FAST>(a.dx, to + p.c[i] * s.step[2], s.step[2], p.left[i], k.add,
                                       k.stream, g);
            }
        }
    }
    if (k.wants_sums)
        put_sums<T, SLOTS>(k, p, dgamma, dbeta, (real<T> *)a.dgammas + blockIdx.x * k.each,
                           (real<T> *)a.dbetas + blockIdx.x * k.each);
}

/* Bytes of shared memory where so many tensors are read: for copies, and for reductions. What teams
 * have summed takes the place of copies in the end. */
static inline int64_t team_shared(int tensors)
{
    const int64_t values = 4 * 2 * TEAM_VECTORS * (ROW_THREADS / ROW_WARP);
    return (int64_t)2 * tensors * TEAM_STEP * 16 + values * (int64_t)sizeof(double);
}

/* Threads of a row; 0 where it is not held: by shape alone, on any GPU with enough shared memory.
 */
template <rg_dtype T>
static int team_lanes(const row_call *k, int tensors, const rg_cuda_place *place)
{
    const int64_t vectors = ceil_div(k->each, VLEN<T>), most = ROW_THREADS * TEAM_VECTORS;
    const bool held = k->groups == 1 && vectors <= most && team_shared(tensors) <= place->shared;
    return held ? power_of_two(vectors, TEAM_VECTORS, ROW_THREADS) : 0;
}

/* Kernels for a neuron and as many vectors as a thread has; those with more will do. */
#define TEAM_KERNEL(name, fast, kind, slots)                    \
    (!(fast)                    ? name<T, false, NORM_OTHER, 4> \
     : (kind) != RG_NEURON_NONE ? name<T, true, NORM_OTHER, 4>  \
     : (slots) == 1             ? name<T, true, NORM_PLAIN, 1>  \
     : (slots) == 2             ? name<T, true, NORM_PLAIN, 2>  \
                                : name<T, true, NORM_PLAIN, 4>)

/* The same for other rows. */
#define ROW_KERNEL(name, fast, kind)                         \
    (!(fast)                    ? name<T, false, NORM_OTHER> \
     : (kind) == RG_NEURON_NONE ? name<T, true, NORM_PLAIN>  \
                                : name<T, true, NORM_OTHER>)

/* ---- other rows: gradient ---- */

/* g of a vector of a row from dy, and t from x. */
template <rg_dtype T, bool FAST, int NEURON>
static __device__ __forceinline__ void
row_gradients(const row_call &k, const rg_channels &shape, const void *dy, const void *x,
              int64_t dy_at, int64_t x_at, const neuron_constants<T> &neuron,
              const row_numbers<T> &q, int64_t c, int left, const real<T> scale[VLEN<T>],
              const real<T> shift[VLEN<T>], real<T> g[VLEN<T>], real<T> t[VLEN<T>])
{
    load_columns<T, FAST>(dy, dy_at + c * shape.step[0], shape.step[0], left, g);
    load_columns<T, FAST>(x, x_at + c * shape.step[1], shape.step[1], left, t);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        t[e] = e < left ? t[e] - q.mean : 0;
        g[e] =
            through_neuron<T, NEURON>(k.neuron.kind, neuron, g[e], fma(t[e], scale[e], shift[e]));
        g[e] = e < left ? g[e] : 0;
    }
}

/* A block has `part` images, of which ROW_THREADS / lanes at a time. Sums of every channel stand in
 * rows of `sums`, one for each image of these, and are joined in the end. */
template <rg_dtype T, bool FAST, int NEURON>
static __global__ void __launch_bounds__(ROW_THREADS)
    norm_rows_gradient(const __grid_constant__ rg_group_norm_gradient_args a,
                       const __grid_constant__ row_call k)
{
    extern __shared__ uint4 memory[];
    __shared__ real<T> shared[2 * ROW_WARP];
    const rg_channels &shape = a.shape.channels;
    const int lane = (int)threadIdx.x % k.lanes, at_once = ROW_THREADS / k.lanes;
    const int64_t channels = shape.channels, unit = blockIdx.x;
    real<T> *const sums = k.shared ? (real<T> *)memory : (real<T> *)a.dgammas + unit * channels;
    real<T> *const dgamma = sums + (k.shared ? threadIdx.x / k.lanes * 2 * channels : 0);
    real<T> *const dbeta = k.shared ? dgamma + channels : (real<T> *)a.dbetas + unit * channels;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    for (int64_t c = lane; k.wants_sums && c < channels; c += k.lanes)
        dgamma[c] = dbeta[c] = 0;
    __syncthreads();
    const int64_t last = (unit + 1) * k.part < k.images ? (unit + 1) * k.part : k.images;
    for (int64_t base = unit * k.part; base < last; base += at_once) {
        const int64_t row = base + threadIdx.x / k.lanes;
        const bool inside = row < last;
        const int64_t image = inside ? row : last - 1;
        const int64_t dy_from = walk_offset(shape.images, 0, image);
        const int64_t x_from = walk_offset(shape.images, 1, image);
        const int64_t to = walk_offset(shape.images, 2, image);
        for (int64_t group = 0; group < k.groups; group++) {
            const int64_t first = group * k.each, of = image * k.groups + group;
            const int64_t dy_at = dy_from + first * shape.step[0];
            const int64_t x_at = x_from + first * shape.step[1];
            row_numbers<T> q;
            if (k.known)
                q = { ((const real<T> *)a.mean)[of], ((const real<T> *)a.rest)[of],
                      ((const real<T> *)a.s)[of] };
            else
                q = row_statistics<T, FAST>(k, a.x, x_at, shape.step[1], lane, shared);
            real<T> g[VLEN<T>], t[VLEN<T>], scale[VLEN<T>], shift[VLEN<T>], own[VLEN<T>];
            long_chain<real<T>, 2> chain; /* of vectors */
            for (int64_t c = (int64_t)lane * VLEN<T>; k.wants_dx && c < k.each;
                 c += (int64_t)k.lanes * VLEN<T>, chain.count()) {
                const int left = row_left<T>(k, c);
                row_columns<T>(k, a.gamma, a.beta, q, first + c, left, scale, shift, own);
                row_gradients<T, FAST, NEURON>(k, shape, a.dy, a.x, dy_at, x_at, neuron, q, c, left,
                                               scale, shift, g, t);
#pragma unroll
                for (int e = 0; e < VLEN<T>; e++) {
                    const real<T> h = g[e] * own[e];
                    chain.run[0] += h;
                    chain.run[1] = fma(h, t[e], chain.run[1]);
                }
            }
            real<T> all[2];
            chain.end(all);
            const real<T> sum = reduce(all[0], k.lanes, shared, false);
            const real<T> product = reduce(all[1], k.lanes, shared + ROW_WARP, false);
            __syncthreads(); /* `shared` is free again */
            const double m = (double)k.each, s = q.s, rest = q.rest;
            const double wide = s * (s * ((double)product - rest * (double)sum) / m);
            const real<T> weight = (real<T>)wide, offset = (real<T>)((double)sum / m - rest * wide);
            for (int64_t c = (int64_t)lane * VLEN<T>; inside && c < k.each;
                 c += (int64_t)k.lanes * VLEN<T>) {
                const int left = row_left<T>(k, c);
                row_columns<T>(k, a.gamma, a.beta, q, first + c, left, scale, shift, own);
                row_gradients<T, FAST, NEURON>(k, shape, a.dy, a.x, dy_at, x_at, neuron, q, c, left,
                                               scale, shift, g, t);
                for (int e = 0; k.wants_sums && e < left; e++) {
                    dbeta[first + c + e] += g[e];
                    dgamma[first + c + e] = fma(g[e], (t[e] - q.rest) * q.s, dgamma[first + c + e]);
                }
                if (!k.wants_dx)
                    continue;
#pragma unroll
                for (int e = 0; e < VLEN<T>; e++) /* rounded one by one: one element leaves 0 */
                    g[e] = fma(-t[e], weight, g[e] * own[e] - offset) * q.s;
                store_columns<T, FAST>(a.dx, to + (first + c) * shape.step[2], shape.step[2], left,
                                       k.add, k.stream, g);
            }
        }
    }
    if (!k.wants_sums || !k.shared)
        return; /* the whole block */
    __syncthreads();
    for (int64_t c = threadIdx.x; c < channels; c += ROW_THREADS) {
        double gamma_sum = 0, beta_sum = 0;
        for (int r = 0; r < at_once; r++) {
            gamma_sum += (double)sums[r * 2 * channels + c];
            beta_sum += (double)sums[(r * 2 + 1) * channels + c];
        }
        ((real<T> *)a.dgammas)[unit * channels + c] = (real<T>)gamma_sum;
        ((real<T> *)a.dbetas)[unit * channels + c] = (real<T>)beta_sum;
    }
}

#endif
