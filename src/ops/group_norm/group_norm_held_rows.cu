/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization of rows that teams of threads hold, on a GPU. */
#include "ops/group_norm/group_norm_held.cuh"
#include "ops/group_norm/group_norm_team.cuh"

template <rg_dtype T, bool FAST, int NEURON, int SLOTS>
static __global__ void __launch_bounds__(ROW_THREADS, SLOTS == 4 ? 2 : 3)
    team_rows(const __grid_constant__ rg_group_norm_args a, const __grid_constant__ row_call k)
{
    enum { V = VLEN<T>, R = TEAM_VECTORS / SLOTS, SHARED = 2 * R * ROW_THREADS / ROW_WARP };
    extern __shared__ uint4 memory[];
    real<T> *const shared = (real<T> *)(memory + 2 * TEAM_STEP); /* of two stages */
    const rg_channels &s = a.shape.channels;
    const neuron_constants<T> neuron = neuron_constants_in<T>(k.neuron.numbers);
    const team_thread<SLOTS> p = find_team<T, SLOTS>(k);
    real<T> gamma[SLOTS][V], beta[SLOTS][V];
    team_parameters<T, SLOTS>(k, p, a.gamma, a.beta, gamma, beta);
    const int mine = (int)threadIdx.x & (R - 1);
    uint4 *const copies = memory + threadIdx.x; /* of two stages */
    element<T> samples[3];
    auto start = [&](int64_t base, int stage) {
        if (base >= p.last)
            return;
        start_team<T, FAST, SLOTS, R>(s, 0, a.x, p, base, copies + stage * TEAM_STEP);
        load_samples<T, FAST>(k, s, 0, a.x, team_row(p, base, mine), samples);
    };
    start(p.first, 0);
    int stage = 0;
    for (int64_t base = p.first; base < p.last; base += R * p.teams, stage ^= 1) {
        const uint4 *const held = copies + stage * TEAM_STEP;
        row_numbers<T> own;
        await_copies();
        const real<T> pivot = pivot_of<T>(samples);
        start(base + R * p.teams, stage ^ 1);
        team_statistics<T, FAST, SLOTS, R>(k, p, held, pivot, shared + stage * SHARED, own);
        const int64_t own_row = base + mine * p.teams + p.team;
        if (p.thread < R && own_row < p.last)
            put_statistics<T>(a.mean, a.rest, a.s, own_row, own);
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

template <rg_dtype T>
static bool held_rows(const rg_group_norm_args *k, const rg_cuda_target *target)
{
    const void *const data[] = { k->x, k->y };
    row_call call = row_call_of(&k->shape);
    call.threads_per_row = team_threads<T>(&call, 1, target);
    if (call.threads_per_row == 0)
        return false;
    const bool fast = rows_are_fast<T>(&k->shape, data, 2) && k->shape.channels.images.rank <= 1;
    const int64_t slots = ceil_div(call.each, VLEN<T> * call.threads_per_row);
    launch(TEAM_KERNEL(team_rows, fast, call.neuron.kind, slots), ceil_div(call.images, call.part),
           ROW_THREADS, team_shared(1), target, *k, call);
    return true;
}

rg_group_norm_held *const rg_group_norm_held_rows[RG_CUDA_DTYPES] = RG_EVERY_DTYPE(held_rows);
