/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of group normalization of rows that teams of threads hold, on a GPU. Sums of
 * channels over the rows of a block stay in registers. */
#include "ops/group_norm/group_norm_held.cuh"
#include "ops/group_norm/group_norm_team.cuh"

/* What a thread keeps over all rows of its block: its parameters, and sums of its channels. */
template <rg_dtype T, int SLOTS> struct team_channels {
    real<T> gamma[SLOTS][VLEN<T>], beta[SLOTS][VLEN<T>];
    real<T> dgamma[SLOTS][VLEN<T>], dbeta[SLOTS][VLEN<T>];
    neuron_constants<T> neuron;
};

/* Copies of x and dy of R rows, from `base` on. */
template <int SLOTS> struct team_rows {
    const team_thread<SLOTS> &p;
    const uint4 *x, *dy;
    int64_t base;
};

/* g and t of vector i of row r; 0 where there is none. */
template <rg_dtype T, bool FAST, int NEURON, int SLOTS>
static __device__ __forceinline__ void
team_gradient(const row_call &k, const team_channels<T, SLOTS> &own, const team_rows<SLOTS> &rows,
              const row_numbers<T> &q, int r, int i, real<T> g[VLEN<T>], real<T> t[VLEN<T>])
{
    const int at = (r * SLOTS + i) * ROW_THREADS, left = rows.p.left[i];
    unpack<T>(rows.dy[at], g);
    unpack<T>(rows.x[at], t);
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        t[e] = FAST || e < left ? t[e] - q.mean : 0;
        if constexpr (NEURON != NORM_PLAIN) {
            const real<T> scale = own.gamma[i][e] * q.s;
            const real<T> z = fma(t[e], scale, fma(-q.rest, scale, own.beta[i][e]));
            g[e] = through_neuron<T, NEURON>(k.neuron.kind, own.neuron, g[e], z);
            g[e] = FAST || e < left ? g[e] : 0;
        }
    }
}

/* Offset and weight of the thread's own row, from sums over teams. */
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
static __device__ __forceinline__ void put_sums(const row_call &k, const team_thread<SLOTS> &p,
                                                const team_channels<T, SLOTS> &own,
                                                real<T> *dgammas, real<T> *dbetas)
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
                const real<T> value = half ? own.dbeta[i][e] : own.dgamma[i][e];
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

/* Sums of R rows, of h and of h t, and what the rows add to the sums of channels. */
template <rg_dtype T, bool FAST, int NEURON, int SLOTS, int R>
static __device__ __forceinline__ void team_sums(const row_call &k, const team_rows<SLOTS> &rows,
                                                 const row_numbers<T> &numbers,
                                                 team_channels<T, SLOTS> &own, real<T> sum[2 * R])
{
    const team_thread<SLOTS> &p = rows.p;
#pragma unroll
    for (int r = 0; r < R; r++) {
        const row_numbers<T> q = numbers_of<T, R>(numbers, r);
        if (rows.base + r * p.teams + p.team >= p.last)
            continue;
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            real<T> g[VLEN<T>], t[VLEN<T>];
            if (p.left[i] == 0)
                continue;
            team_gradient<T, FAST, NEURON>(k, own, rows, q, r, i, g, t);
#pragma unroll
            for (int e = 0; e < VLEN<T>; e++) {
                const real<T> h = g[e] * own.gamma[i][e];
                sum[r] += h;
                sum[R + r] = fma(h, t[e], sum[R + r]);
                own.dbeta[i][e] += g[e];
                own.dgamma[i][e] = fma(g[e], (t[e] - q.rest) * q.s, own.dgamma[i][e]);
            }
        }
    }
}

/* dx of R rows; offset and weight are those of the thread's own row. */
template <rg_dtype T, bool FAST, int NEURON, int SLOTS, int R>
static __device__ __forceinline__ void
team_results(const rg_group_norm_gradient_args &a, const row_call &k, const team_rows<SLOTS> &rows,
             const row_numbers<T> &numbers, const team_channels<T, SLOTS> &own, real<T> offset,
             real<T> weight)
{
    const team_thread<SLOTS> &p = rows.p;
    const rg_channels &s = a.shape.channels;
#pragma unroll
    for (int r = 0; r < R; r++) {
        const row_numbers<T> q = numbers_of<T, R>(numbers, r);
        const real<T> shift = __shfl_sync(~0u, offset, r, R);
        const real<T> slope = __shfl_sync(~0u, weight, r, R);
        const int64_t row = rows.base + r * p.teams + p.team;
        if (row >= p.last)
            continue;
        const int64_t to = image_offset<FAST>(s, 2, row);
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            real<T> g[VLEN<T>], t[VLEN<T>];
            if (p.left[i] == 0)
                continue;
            team_gradient<T, FAST, NEURON>(k, own, rows, q, r, i, g, t);
#pragma unroll
            for (int e = 0; e < VLEN<T>; e++) /* rounded one by one: one element leaves 0 */
                g[e] = fma(-t[e], slope, g[e] * own.gamma[i][e] - shift) * q.s;
            store_columns<T, FAST>(a.dx, to + p.c[i] * s.step[2], s.step[2], p.left[i], k.add,
                                   k.stream, g);
        }
    }
}

template <rg_dtype T, bool FAST, int NEURON, int SLOTS>
static __global__ void __launch_bounds__(ROW_THREADS, SLOTS == 1   ? 3
                                                      : SLOTS == 2 ? 2
                                                                   : 1)
    team_rows_gradient(const __grid_constant__ rg_group_norm_gradient_args a,
                       const __grid_constant__ row_call k)
{
    enum { R = TEAM_VECTORS / SLOTS, SHARED = 2 * R * ROW_THREADS / ROW_WARP };
    extern __shared__ uint4 memory[];
    /* of two stages for sums, and of two for statistics */
    real<T> *const shared = (real<T> *)(memory + 2 * 2 * TEAM_STEP);
    const rg_channels &s = a.shape.channels;
    const team_thread<SLOTS> p = find_team<T, SLOTS>(k);
    team_channels<T, SLOTS> own = {};
    own.neuron = neuron_constants_in<T>(k.neuron.numbers);
    team_parameters<T, SLOTS>(k, p, a.gamma, a.beta, own.gamma, own.beta);
    const int mine = (int)threadIdx.x & (R - 1);
    uint4 *const copies = memory + threadIdx.x; /* x, dy of two stages */
    element<T> samples[3];
    row_numbers<T> next;
    auto start = [&](int64_t base, int stage) {
        if (base >= p.last)
            return;
        const int64_t image = team_row(p, base, mine);
        uint4 *const to = copies + stage * 2 * TEAM_STEP;
        start_team<T, FAST, SLOTS, R>(s, 1, a.x, p, base, to);
        start_team<T, FAST, SLOTS, R>(s, 0, a.dy, p, base, to + TEAM_STEP);
        if (k.known)
            next = known_statistics<T>(a, image);
        else
            load_samples<T, FAST>(k, s, 1, a.x, image, samples);
    };
    start(p.first, 0);
    int stage = 0;
    for (int64_t base = p.first; base < p.last; base += R * p.teams, stage ^= 1) {
        const uint4 *const x = copies + stage * 2 * TEAM_STEP;
        const team_rows<SLOTS> rows = { p, x, x + TEAM_STEP, base };
        row_numbers<T> numbers = next;
        real<T> sum[2 * R] = {}, offset, weight;
        await_copies();
        const real<T> pivot = k.known ? 0 : pivot_of<T>(samples);
        start(base + R * p.teams, stage ^ 1);
        if (!k.known)
            team_statistics<T, FAST, SLOTS, R>(k, p, x, pivot, shared + (2 + stage) * SHARED,
                                               numbers);
        team_sums<T, FAST, NEURON, SLOTS, R>(k, rows, numbers, own, sum);
        if (!k.wants_dx)
            continue;
        reduce_team<2 * R>(sum, k.threads_per_row, shared + stage * SHARED);
        team_factors<T, R>(k, sum, numbers, offset, weight);
        team_results<T, FAST, NEURON, SLOTS, R>(a, k, rows, numbers, own, offset, weight);
    }
    if (k.wants_sums)
        put_sums<T, SLOTS>(k, p, own, (real<T> *)a.dgammas + blockIdx.x * k.each,
                           (real<T> *)a.dbetas + blockIdx.x * k.each);
}

template <rg_dtype T>
static bool held_rows_gradient(const rg_group_norm_gradient_args *k, const rg_cuda_target *target)
{
    const void *const data[] = { k->dy, k->x, k->dx };
    row_call call = row_gradient_call_of(k);
    call.threads_per_row = team_threads<T>(&call, 2, target);
    if (call.threads_per_row == 0)
        return false;
    const bool fast = rows_are_fast<T>(&k->shape, data, 3) && k->shape.channels.images.rank <= 1;
    const int64_t slots = ceil_div(call.each, VLEN<T> * call.threads_per_row);
    launch(TEAM_KERNEL(team_rows_gradient, fast, call.neuron.kind, slots),
           ceil_div(call.images, call.part), ROW_THREADS, team_shared(2), target, *k, call);
    return true;
}

rg_group_norm_held_gradient *const rg_group_norm_held_rows_gradient[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(held_rows_gradient);
