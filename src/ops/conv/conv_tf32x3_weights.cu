/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* dw in f32 on tensor cores for TF32: see conv_tf32x3_parts.cuh. */
#include "ops/conv/conv_tf32x3_parts.cuh"

/* As add_tiles, for tiles whose lines are k: a and b begin with the warp's rows and columns. */
template <int M, int ROWS, int COLUMNS>
static __device__ __forceinline__ void add_lines(warp_tile<ROWS, COLUMNS> &c, const float *a,
                                                 const float *b)
{
    const int at = (int)threadIdx.x % 4, number = (int)threadIdx.x % 32 / 4;
    float part[ROWS][COLUMNS][4] = {};
#pragma unroll
    for (int k = 0; k < TILE_K; k += 8) {
        const float *from_a = a + (k + at) * (M + PARTS_PITCH) + number;
        const float *from_b = b + (k + at) * (PARTS_N + PARTS_PITCH) + number;
        uint32_t big_a[ROWS][4], small_a[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                split(from_a[e / 2 * 4 * (M + PARTS_PITCH) + 16 * i + e % 2 * 8], big_a[i][e],
                      small_a[i][e]);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 2) {
            uint32_t big_b[4], small_b[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                split(from_b[e % 2 * 4 * (PARTS_N + PARTS_PITCH) + 8 * (j + e / 2)], big_b[e],
                      small_b[e]);
            multiply_blocks<ROWS, 2>(part, j, small_a, big_b);
            multiply_blocks<ROWS, 2>(part, j, big_a, small_b);
            multiply_blocks<ROWS, 2>(part, j, big_a, big_b);
        }
    }
    add_part(c, part);
}

/* M rows of a tile. VECTORS: channels of both sides are whole vectors. */
template <int M, bool VECTORS>
static __global__ void __launch_bounds__(THREADS)
    tf32x3_parts(const __grid_constant__ tf32x3_weights k)
{
    enum { DOWN = M / 32, COLUMNS = PARTS_N * DOWN / 8 / 8, ROWS = 2, BYTES = VECTORS ? 16 : 4 };
    enum { A = TILE_K * (M + PARTS_PITCH), SIZE = A + TILE_K * (PARTS_N + PARTS_PITCH) };
    extern __shared__ __align__(16) float shared[];
    __shared__ tile_row lines[2][TILE_K];
    const int first_n = (int)blockIdx.x * PARTS_N, first_m = (int)blockIdx.y * M;
    const int begin = (int)blockIdx.z * k.part;
    const int end = k.windows - begin < k.part ? k.windows : begin + k.part;
    const int steps = (end - begin + TILE_K - 1) / TILE_K, warp = (int)threadIdx.x / 32;
    int slot = 0;
    const auto load_step = [&](int step) {
        load_part<M, BYTES>(k, lines, begin, end, step, first_m, first_n, shared + slot * SIZE);
        slot = slot == TILE_STAGES - 1 ? 0 : slot + 1;
    };
    find_windows(k, begin, 0, lines);
#pragma unroll
    for (int i = 0; i < TILE_STAGES - 1; i++) {
        __syncthreads();
        load_step(i);
    }
    warp_tile<ROWS, COLUMNS> c = {};
    const int m = warp % DOWN * 32, n = warp / DOWN * COLUMNS * 8;
    int used = 0;
    for (int step = 0; step < steps; step++) {
        await_steps<TILE_STAGES - 2>();
        __syncthreads(); /* these tiles are here, and those before have been used */
        load_step(step + TILE_STAGES - 1);
        add_lines<M, ROWS, COLUMNS>(c, shared + used * SIZE + m, shared + used * SIZE + A + n);
        used = used == TILE_STAGES - 1 ? 0 : used + 1;
    }
    store_parts<ROWS, COLUMNS>(k, c, begin, end, first_m + m, first_n + n);
}

/* dw from its parts. */
static __global__ void __launch_bounds__(THREADS)
    add_parts(const __grid_constant__ rg_conv_weights_args k, const float *parts, int count,
              int64_t size)
{
    const rg_conv_shape &s = k.shape;
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= size)
        return;
    double all = (double)parts[i];
    for (int part = 1; part < count; part++)
        all += (double)parts[part * size + i];
    const float sum = (float)all;
    const int64_t c = i % s.in, tap = i / s.in, q = tap % s.column.window;
    const int64_t p = tap / s.column.window % s.row.window,
                  o = tap / s.column.window / s.row.window;
    const int64_t to = s.w_first + o * s.w[1] + p * s.w[2] + q * s.w[3] + c * s.w[4];
    float *dw = (float *)k.dw + to;
    *dw = k.add ? *dw + sum : sum;
}

/* ---- host side ---- */

template <int M, bool VECTORS>
static void launch_parts(const tf32x3_weights *k, int parts, const rg_cuda_place *place)
{
    const dim3 grid((unsigned)ceil_div((int64_t)k->taps * k->in, PARTS_N),
                    (unsigned)ceil_div(k->out, M), (unsigned)parts);
    const size_t shared = TILE_STAGES * TILE_K * (M + PARTS_N + 2 * PARTS_PITCH) * sizeof(float);
    (void)cudaFuncSetAttribute((const void *)tf32x3_parts<M, VECTORS>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    tf32x3_parts<M, VECTORS><<<grid, THREADS, shared, place->stream>>>(*k);
}

/* From dense x and dy; dw lies as the args say. */
static void run_dense(const rg_conv_weights_args *args, const float *x, const float *dy,
                      packing *arena)
{
    enum { BLOCKS_WANTED = 528, FEWER = 264, LEAST = 8 * TILE_K, MOST = 1024 * TILE_K };
    const rg_conv_shape *s = &args->shape;
    const int64_t windows = s->images * s->row.count * s->column.count;
    const int64_t size = s->out * s->row.window * s->column.window * s->in;
    const int m = s->out <= 64 ? 64 : 128;
    const int64_t tiles = ceil_div(size / s->out, PARTS_N) * ceil_div(s->out, m);
    const bool vectors = s->in % 4 == 0 && s->out % 4 == 0;
    const bool hopper = vectors && m == 128 && rg_conv_tf32x3_has_hopper();
    int64_t parts = hopper ? FEWER / tiles : ceil_div(BLOCKS_WANTED, tiles);
    parts = parts > ceil_div(windows, MOST) ? parts : ceil_div(windows, MOST);
    parts = parts > 0 ? parts : 1;
    parts = parts < ceil_div(windows, LEAST) ? parts : ceil_div(windows, LEAST);
    const int64_t part = ceil_div(ceil_div(windows, parts), TILE_K) * TILE_K;
    parts = ceil_div(windows, part);
    float *sums = (float *)packing_take(arena, (size_t)(parts * size) * sizeof(float));
    if (!arena->run)
        return;
    tf32x3_weights k = {};
    k.x = x;
    k.dy = dy;
    k.parts = sums;
    k.row = axis_of(&s->row, false);
    k.column = axis_of(&s->column, false);
    k.images = (int)s->images;
    k.in = (int)s->in;
    k.out = (int)s->out;
    k.taps = (int)(s->row.window * s->column.window);
    k.windows = (int)windows;
    k.part = (int)part;
    k.across = small_divider_of(s->column.count);
    k.down = small_divider_of(s->row.count);
    if (hopper)
        rg_conv_tf32x3_hopper_weights(&k, (int)parts, arena->place);
    else if (m == 64)
        (vectors ? launch_parts<64, true> : launch_parts<64, false>)(&k, (int)parts, arena->place);
    else
        (vectors ? launch_parts<128, true> : launch_parts<128, false>)(&k, (int)parts,
                                                                       arena->place);
    launch(add_parts, ceil_div(size, THREADS), THREADS, 0, arena->place, *args, sums, (int)parts,
           size);
}

static bool run(const rg_conv_call *call, packing *arena)
{
    const packed x = pack_x(arena, call, false);
    const packed dy = pack_dy(arena, call, false);
    run_dense(call->weights_args, (const float *)x.data, (const float *)dy.data, arena);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_tf32x3_weights = { "tf32x3", rg_conv_tf32x3_accepts,
                                                             run };
