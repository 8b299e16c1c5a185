/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient for weights in f32, on the units for TF32: see conv_split.cuh, which says how.
 *
 * Again a product of matrices. Rows are channels of windows, columns are weights of one of them,
 * and k goes over windows: dw(o, n) = sum over windows of dy(window, o) x(where weight n lies on
 * it). Windows are cut into parts by shape alone; a kernel of its own adds up their sums, in order.
 */
#ifndef RG_OPS_CONV_SPLIT_WEIGHTS_CUH
#define RG_OPS_CONV_SPLIT_WEIGHTS_CUH

#include "ops/conv/conv_split.cuh"

enum { PARTS_N = 128, PARTS_PITCH = 8 }; /* columns of a tile; numbers behind each line of one */

/* Division of numbers below 2^31, by multiplication. */
struct fast_divisor {
    uint32_t divisor, factor, shift;
};

static inline fast_divisor fast_divisor_of(int divisor)
{
    uint32_t shift = 0;
    while ((UINT64_C(1) << shift) < (uint64_t)divisor)
        shift++;
    const uint64_t rest = (UINT64_C(1) << shift) - (uint64_t)divisor;
    return { (uint32_t)divisor, (uint32_t)((rest << 32) / (uint64_t)divisor) + 1, shift };
}

static __device__ __forceinline__ uint32_t divide(uint32_t x, const fast_divisor &d)
{
    return (__umulhi(x, d.factor) + x) >> d.shift;
}

struct split_weights {
    const float *x, *dy;
    float *parts; /* (part, out, taps, in) */
    split_axis row, column;
    int images, in, out, taps;
    int windows, part; /* in all; of one part, a multiple of SPLIT_K */
    fast_divisor across, down;
};

/* Where window i of all stands on x; one past the last is nowhere. */
static __device__ __forceinline__ split_row place_of_window(const split_weights &k, uint32_t i)
{
    const uint32_t line = divide(i, k.across), image = divide(line, k.down);
    const int row = (int)(line - image * k.down.divisor);
    const int column = (int)(i - line * k.across.divisor);
    const uint32_t size = (uint32_t)k.row.source * (uint32_t)k.column.source * (uint32_t)k.in;
    return { image * size, row * k.row.stride - k.row.before,
             column * k.column.stride - k.column.before };
}

/* Lines of dy: `M` channels of SPLIT_K windows from `first` on. */
template <int M, int BYTES>
static __device__ __forceinline__ void load_dy(const split_weights &k, int first, int end, int o,
                                               float *a)
{
    enum { EACH = BYTES / 4, ACROSS = M / EACH, LINES = THREADS / ACROSS };
    const int number = (int)threadIdx.x % ACROSS * EACH, line = (int)threadIdx.x / ACROSS;
#pragma unroll
    for (int i = 0; i < SPLIT_K / LINES; i++) {
        const int window = first + line + i * LINES;
        const bool valid = window < end && o + number < k.out;
        copy_or_zero<BYTES>(a + (line + i * LINES) * (M + PARTS_PITCH) + number,
                            valid ? k.dy + (uint32_t)window * (uint32_t)k.out + o + number : k.dy,
                            valid);
    }
}

/* Lines of x: PARTS_N weights' numbers of the windows of `rows`; a thread has the same weights. */
template <int BYTES>
static __device__ __forceinline__ void load_x(const split_weights &k, const split_row rows[],
                                              int left, int n, float *b)
{
    enum { EACH = BYTES / 4, ACROSS = PARTS_N / EACH, LINES = THREADS / ACROSS };
    const int number = (int)threadIdx.x % ACROSS * EACH, line = (int)threadIdx.x / ACROSS;
    const int tap = (n + number) / k.in, channel = n + number - tap * k.in;
    const int p = tap / k.column.taps, q = tap - p * k.column.taps;
#pragma unroll
    for (int i = 0; i < SPLIT_K / LINES; i++) {
        const split_row r = rows[line + i * LINES];
        const int row = r.row + p * k.row.dilation, column = r.column + q * k.column.dilation;
        const bool valid = line + i * LINES < left && tap < k.taps &&
                           (uint32_t)row < (uint32_t)k.row.source &&
                           (uint32_t)column < (uint32_t)k.column.source;
        const uint32_t at = r.image + (uint32_t)(row * k.column.source + column) * (uint32_t)k.in;
        copy_or_zero<BYTES>(b + (line + i * LINES) * (PARTS_N + PARTS_PITCH) + number,
                            valid ? k.x + at + channel : k.x, valid);
    }
}

/* Where the windows of a step stand: every second step has the same room. */
static __device__ __forceinline__ void find_windows(const split_weights &k, int begin, int step,
                                                    split_row lines[2][SPLIT_K])
{
    if (threadIdx.x < SPLIT_K)
        lines[step % 2][threadIdx.x] =
            place_of_window(k, (uint32_t)(begin + step * SPLIT_K) + threadIdx.x);
}

/* Begins to load a step of a part, if there is one, and finds the windows of the next. */
template <int M, int BYTES>
static __device__ __forceinline__ void load_part(const split_weights &k,
                                                 split_row lines[2][SPLIT_K], int begin, int end,
                                                 int step, int first_m, int first_n, float *stage)
{
    const int first = begin + step * SPLIT_K;
    if (first < end) {
        load_dy<M, BYTES>(k, first, end, first_m, stage);
        load_x<BYTES>(k, lines[step % 2], end - first, first_n,
                      stage + SPLIT_K * (M + PARTS_PITCH));
    }
    find_windows(k, begin, step + 1, lines);
    commit_copies();
}

/* As add_tiles, for tiles whose lines are k: a and b begin with the warp's rows and columns. */
template <int M, int ROWS, int COLUMNS>
static __device__ __forceinline__ void add_lines(warp_tile<ROWS, COLUMNS> &c, const float *a,
                                                 const float *b)
{
    const int at = (int)threadIdx.x % 4, number = (int)threadIdx.x % 32 / 4;
    float part[ROWS][COLUMNS][4] = {};
#pragma unroll
    for (int k = 0; k < SPLIT_K; k += 8) {
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
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                c.sum[i][j][e] += part[i][j][e];
        }
    }
}

/* One sum of a part, product by product. */
static __device__ __noinline__ float sum_part_again(const split_weights &k, int first, int end,
                                                    int o, int n)
{
    const int tap = n / k.in, channel = n - tap * k.in;
    const int p = tap / k.column.taps, q = tap - p * k.column.taps;
    float sum = 0;
    for (int i = first; i < end; i++) {
        const split_row r = place_of_window(k, (uint32_t)i);
        const int row = r.row + p * k.row.dilation, column = r.column + q * k.column.dilation;
        if ((uint32_t)row < (uint32_t)k.row.source && (uint32_t)column < (uint32_t)k.column.source)
            sum =
                fma(k.dy[(int64_t)i * k.out + o],
                    k.x[r.image + ((int64_t)row * k.column.source + column) * k.in + channel], sum);
    }
    return sum;
}

/* Stores what a warp has of a part: rows from `first_o` on, columns from `first` on. */
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void store_parts(const split_weights &k,
                                                   const warp_tile<ROWS, COLUMNS> &c, int begin,
                                                   int end, int first_o, int first)
{
    const int lane = (int)threadIdx.x % 32, weights = k.taps * k.in;
    float *to = k.parts + (int64_t)blockIdx.z * k.out * weights;
#pragma unroll
    for (int i = 0; i < 2 * ROWS; i++) {
        const int o = first_o + 8 * i + lane / 4;
#pragma unroll
        for (int j = 0; j < 2 * COLUMNS; j++) {
            const int at = first + j / 2 * 8 + lane % 4 * 2 + j % 2;
            if (o >= k.out || at >= weights)
                continue;
            float sum = c.sum[i / 2][j / 2][i % 2 * 2 + j % 2];
            if (!isfinite(sum))
                sum = sum_part_again(k, begin, end, o, at);
            to[(int64_t)o * weights + at] = sum;
        }
    }
}

/* M rows of a tile. VECTORS: channels of both sides are whole vectors. */
template <int M, bool VECTORS>
static __global__ void __launch_bounds__(THREADS)
    split_parts(const __grid_constant__ split_weights k)
{
    enum { DOWN = M / 32, COLUMNS = PARTS_N * DOWN / 8 / 8, ROWS = 2, BYTES = VECTORS ? 16 : 4 };
    enum { A = SPLIT_K * (M + PARTS_PITCH), SIZE = A + SPLIT_K * (PARTS_N + PARTS_PITCH) };
    extern __shared__ __align__(16) float shared[];
    __shared__ split_row lines[2][SPLIT_K];
    const int first_n = (int)blockIdx.x * PARTS_N, first_m = (int)blockIdx.y * M;
    const int begin = (int)blockIdx.z * k.part;
    const int end = k.windows - begin < k.part ? k.windows : begin + k.part;
    const int steps = (end - begin + SPLIT_K - 1) / SPLIT_K, warp = (int)threadIdx.x / 32;
    int slot = 0;
    const auto load_step = [&](int step) {
        load_part<M, BYTES>(k, lines, begin, end, step, first_m, first_n, shared + slot * SIZE);
        slot = slot == SPLIT_STAGES - 1 ? 0 : slot + 1;
    };
    find_windows(k, begin, 0, lines);
#pragma unroll
    for (int i = 0; i < SPLIT_STAGES - 1; i++) {
        __syncthreads();
        load_step(i);
    }
    warp_tile<ROWS, COLUMNS> c = {};
    const int m = warp % DOWN * 32, n = warp / DOWN * COLUMNS * 8;
    int used = 0;
    for (int step = 0; step < steps; step++) {
        await_but<SPLIT_STAGES - 2>();
        __syncthreads(); /* these tiles are here, and those before have been used */
        load_step(step + SPLIT_STAGES - 1);
        add_lines<M, ROWS, COLUMNS>(c, shared + used * SIZE + m, shared + used * SIZE + A + n);
        used = used == SPLIT_STAGES - 1 ? 0 : used + 1;
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
static void launch_parts(const split_weights *k, int parts, const rg_cuda_place *place)
{
    const dim3 grid((unsigned)ceil_div((int64_t)k->taps * k->in, PARTS_N),
                    (unsigned)ceil_div(k->out, M), (unsigned)parts);
    const size_t shared = SPLIT_STAGES * SPLIT_K * (M + PARTS_N + 2 * PARTS_PITCH) * sizeof(float);
    (void)cudaFuncSetAttribute((const void *)split_parts<M, VECTORS>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    split_parts<M, VECTORS><<<grid, THREADS, shared, place->stream>>>(*k);
}

static void launch_hopper_parts(const split_weights *k, int parts, const rg_cuda_place *place);

/* From dense x and dy; dw lies as the args say. */
static void run_split_weights(const rg_conv_weights_args *args, const float *x, const float *dy,
                              packing *arena)
{
    enum { BLOCKS_WANTED = 528, FEWER = 264, LEAST = 8 * SPLIT_K, MOST = 1024 * SPLIT_K };
    const rg_conv_shape *s = &args->shape;
    const int64_t windows = s->images * s->row.count * s->column.count;
    const int64_t size = s->out * s->row.window * s->column.window * s->in;
    const int m = s->out <= 64 ? 64 : 128;
    const int64_t tiles = ceil_div(size / s->out, PARTS_N) * ceil_div(s->out, m);
    const bool vectors = s->in % 4 == 0 && s->out % 4 == 0;
    const bool hopper = vectors && m == 128 && has_hopper();
    int64_t parts = hopper ? FEWER / tiles : ceil_div(BLOCKS_WANTED, tiles);
    parts = parts > ceil_div(windows, MOST) ? parts : ceil_div(windows, MOST);
    parts = parts > 0 ? parts : 1;
    parts = parts < ceil_div(windows, LEAST) ? parts : ceil_div(windows, LEAST);
    const int64_t part = ceil_div(ceil_div(windows, parts), SPLIT_K) * SPLIT_K;
    parts = ceil_div(windows, part);
    float *sums = (float *)packing_take(arena, (size_t)(parts * size) * sizeof(float));
    if (!arena->run)
        return;
    split_weights k = {};
    k.x = x;
    k.dy = dy;
    k.parts = sums;
    k.row = split_axis_of(&s->row, false);
    k.column = split_axis_of(&s->column, false);
    k.images = (int)s->images;
    k.in = (int)s->in;
    k.out = (int)s->out;
    k.taps = (int)(s->row.window * s->column.window);
    k.windows = (int)windows;
    k.part = (int)part;
    k.across = fast_divisor_of((int)s->column.count);
    k.down = fast_divisor_of((int)s->row.count);
    if (hopper)
        launch_hopper_parts(&k, (int)parts, arena->place);
    else if (m == 64)
        (vectors ? launch_parts<64, true> : launch_parts<64, false>)(&k, (int)parts, arena->place);
    else
        (vectors ? launch_parts<128, true> : launch_parts<128, false>)(&k, (int)parts,
                                                                       arena->place);
    launch(add_parts, ceil_div(size, THREADS), THREADS, 0, arena->place, *args, sums, (int)parts,
           size);
}

#endif
