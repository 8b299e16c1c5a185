/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of group normalisation of rows that teams of threads hold, on a GPU. Sums of
 * channels over the rows of a block stay in registers. */
#include "ops/group_norm/group_norm_held.cuh"
#include "ops/group_norm/group_norm_team.cuh"

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
    /* of two stages for sums, and of two for statistics */
    real<T> *const shared = (real<T> *)(memory + 2 * 2 * TEAM_STEP);
    const rg_channels &s = a.shape.channels;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const team_place<SLOTS> p = find_team<T, SLOTS>(k);
    real<T> gamma[SLOTS][V], beta[SLOTS][V], dgamma[SLOTS][V] = {}, dbeta[SLOTS][V] = {};
    team_parameters<T, SLOTS>(k, p, a.gamma, a.beta, gamma, beta);
    const int mine = (int)threadIdx.x & (R - 1);
    uint4 *const copies = memory + threadIdx.x; /* x, dy of two stages */
    element<T> three[3];
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
            load_near<T, FAST>(k, s, 1, a.x, image, three);
    };
    start(p.first, 0);
    int stage = 0;
    for (int64_t base = p.first; base < p.last; base += R * p.teams, stage ^= 1) {
        const uint4 *const xs = copies + stage * 2 * TEAM_STEP, *const dys = xs + TEAM_STEP;
        row_numbers<T> own = next;
        real<T> sum[2 * R] = {}, offset, weight;
        await_copies();
        const real<T> near = k.known ? 0 : near_of<T>(three);
        start(base + R * p.teams, stage ^ 1);
        if (!k.known)
            team_statistics<T, FAST, SLOTS, R>(k, p, xs, near, shared + (2 + stage) * SHARED, own);
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
        reduce_team<2 * R>(sum, k.threads_per_row, shared + stage * SHARED);
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

template <rg_dtype T>
static bool held_rows_gradient(const rg_group_norm_gradient_args *k, const rg_cuda_place *place)
{
    const void *const data[] = { k->dy, k->x, k->dx };
    row_call call = row_gradient_call_of(k);
    call.threads_per_row = team_threads<T>(&call, 2, place);
    if (call.threads_per_row == 0)
        return false;
    const bool fast = rows_are_fast<T>(&k->shape, data, 3) && k->shape.channels.images.rank <= 1;
    const int64_t slots = ceil_div(call.each, VLEN<T> * call.threads_per_row);
    launch(TEAM_KERNEL(team_rows_gradient, fast, call.neuron.kind, slots),
           ceil_div(call.images, call.part), ROW_THREADS, team_shared(2), place, *k, call);
    return true;
}

rg_group_norm_held_gradient *const rg_group_norm_held_rows_gradient[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(held_rows_gradient);
