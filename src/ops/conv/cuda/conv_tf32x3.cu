/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolutions in f32 on tensor cores for TF32: see conv_tf32x3.cuh. */
#include "ops/conv/cuda/conv_tf32x3.cuh"

/* ---- numbers ---- */

/* Rounds to 10 bits of mantissa; the remainder is exact. By integer arithmetic, because
 * conversion instructions have a low throughput. */
static __device__ __forceinline__ void split(float x, uint32_t &big, uint32_t &small)
{
    big = (__float_as_uint(x) + 0x1000) & 0xffffe000;
    small = __float_as_uint(x - __uint_as_float(big));
}

/* ---- tensor cores ---- */

/* All blocks of rows with COUNT blocks of columns from j on: sums that do not wait for each other.
 */
template <int ROWS, int COUNT, int COLUMNS>
static __device__ __forceinline__ void multiply_blocks(float (&c)[ROWS][COLUMNS][4], int j,
                                                       const uint32_t a[ROWS][4],
                                                       const uint32_t b[2 * COUNT])
{
#pragma unroll
    for (int h = 0; h < COUNT; h++) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            multiply_tf32(c[i][j + h], a[i], b + 2 * h);
    }
}

template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void add_part(warp_tile<ROWS, COLUMNS> &c,
                                                const float (&part)[ROWS][COLUMNS][4])
{
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

/* ---- forward and data ---- */

/* Any number of channels: k goes through taps and channels in the order of weights, and
 * `channel` is its first. A thread has one of them. */
template <int N>
static __device__ __forceinline__ void load_numbers(const tf32x3_conv &k, const tile_row rows[],
                                                    const tile_step &s, int first, int row_phase,
                                                    int column_phase, float *a, float *b)
{
    enum { LINES = THREADS / TILE_K };
    const int taps = k.row.taps * k.column.taps, all = taps * k.channels;
    const int number = (int)threadIdx.x % TILE_K, at = s.channel + number;
    const int line = (int)threadIdx.x / TILE_K;
    const int tap = at / k.channels, channel = at - tap * k.channels;
    const int p = tap / k.column.taps, q = tap - p * k.column.taps;
    int row_shift, column_shift;
    const bool has = tap_shift(k.row, k.back, row_phase, p, row_shift);
    const bool inside =
        tap_shift(k.column, k.back, column_phase, q, column_shift) && has && at < all;
#pragma unroll
    for (int i = 0; i < TILE_M / LINES; i++) {
        const int m = line + i * LINES;
        const tile_row r = rows[m];
        const int row = r.row + row_shift, column = r.column + column_shift;
        const bool valid = inside && (uint32_t)row < (uint32_t)k.row.source &&
                           (uint32_t)column < (uint32_t)k.column.source;
        const uint32_t to =
            r.image + (uint32_t)(row * k.column.source + column) * (uint32_t)k.channels;
        copy_or_zero<4>(a + tile_at(m, number), valid ? k.from + to + channel : k.from, valid);
    }
#pragma unroll
    for (int i = 0; i < N / LINES; i++) {
        const int n = line + i * LINES;
        const bool valid = at < all && first + n < k.columns;
        copy_or_zero<4>(b + tile_at(n, number),
                        valid ? k.w + (uint32_t)(first + n) * (uint32_t)all + at : k.w, valid);
    }
}

/* sum += the product of tiles from row `m` of a and row `n` of b on. */
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void add_tiles(warp_tile<ROWS, COLUMNS> &c, const float *a,
                                                 const float *b, int m, int n)
{
    const int lane = (int)threadIdx.x % WARP_THREADS;
    float part[ROWS][COLUMNS][4] = {};
#pragma unroll
    for (int k = 0; k < TILE_K; k += 8) {
        uint32_t big_a[ROWS][4], small_a[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float x[4]; /* rows 0-7 and 8-15 of the first 4 of k, then of the next */
            load_blocks(x, a + tile_at(m + 16 * i + lane % 16, k + lane / 16 * 4));
#pragma unroll
            for (int e = 0; e < 4; e++)
                split(x[e], big_a[i][e], small_a[i][e]);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 2) {
            float x[4]; /* columns 0-7: first 4 of k, next 4; then columns 8-15 */
            load_blocks(x, b + tile_at(n + 8 * j + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 4));
            uint32_t big_b[4], small_b[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                split(x[e], big_b[e], small_b[e]);
            multiply_blocks<ROWS, 2>(part, j, small_a, big_b);
            multiply_blocks<ROWS, 2>(part, j, big_a, small_b);
            multiply_blocks<ROWS, 2>(part, j, big_a, big_b);
        }
    }
    add_part(c, part);
}

/* A tile of N columns: 8 warps, DOWN of them below each other. Going back, blockIdx.z is the
 * phase. */
template <int N, int DOWN, bool VECTORS>
static __global__ void __launch_bounds__(THREADS)
    tf32x3_tiles(const __grid_constant__ rg_conv_args args, const __grid_constant__ tf32x3_conv k)
{
    enum { ROWS = TILE_M / DOWN / 16, COLUMNS = N * DOWN / 8 / 8 };
    extern __shared__ __align__(16) float shared[];
    __shared__ tile_row lines[TILE_M];
    const int row_phase = k.back ? (int)blockIdx.z / k.column.stride : 0;
    const int column_phase = k.back ? (int)blockIdx.z % k.column.stride : 0;
    const int rows = phase_count(k.row, k.back, row_phase);
    const int columns = phase_count(k.column, k.back, column_phase);
    const int64_t first_m = (int64_t)blockIdx.x * TILE_M;
    const int first_n = (int)blockIdx.y * N, warp = (int)threadIdx.x / WARP_THREADS;
    const int all = k.row.taps * k.column.taps * k.channels;
    if (first_m >= (int64_t)k.images * rows * columns)
        return;
    find_rows(k, first_m, rows, columns, lines);
    const int size = (TILE_M + N) * TILE_K;
    tile_step step = { 0, 0, 0, 0, 0 };
    if (VECTORS)
        find_tap(k, row_phase, column_phase, step);
    int slot = 0, steps = 0; /* where the next tiles go; how many are known to exist */
    const auto load_next = [&]() {
        float *a = shared + slot * size, *b = a + TILE_M * TILE_K;
        if (VECTORS && step.p < k.row.taps) {
            load_vectors<N>(k, lines, step, first_n, a, b);
            next_step(k, row_phase, column_phase, step);
            steps++;
        } else if (!VECTORS && step.channel < all) {
            load_numbers<N>(k, lines, step, first_n, row_phase, column_phase, a, b);
            step.channel += TILE_K;
            steps++;
        }
        slot = slot == TILE_STAGES - 1 ? 0 : slot + 1;
        end_copies();
    };
#pragma unroll
    for (int i = 0; i < TILE_STAGES - 1; i++)
        load_next();
    warp_tile<ROWS, COLUMNS> c = {};
    const int m = warp % DOWN * ROWS * 16, n = warp / DOWN * COLUMNS * 8;
    int used = 0;
    for (int done = 0; done < steps; done++) {
        await_steps<TILE_STAGES - 2>();
        __syncthreads(); /* these tiles are here, and those before have been used */
        load_next();
        add_tiles<ROWS, COLUMNS>(c, shared + used * size, shared + used * size + TILE_M * TILE_K, m,
                                 n);
        used = used == TILE_STAGES - 1 ? 0 : used + 1;
    }
    store_tile<ROWS, COLUMNS>(args, k, c, first_m + m, first_n + n, row_phase, column_phase);
}

/* ---- weights for going back: (columns, taps, channels) from (channels, taps, columns) ---- */

/* Where phases are merged, tap t of phase a is tap p of w with p dilation = a + before - (t -
 * shift) stride, if there is one; `before` of the conv is that shift. */
static __device__ __forceinline__ int merged_tap(const rg_conv_axis &a, const tf32x3_axis &merged,
                                                 int phase, int t)
{
    const int64_t at = phase + a.before - (int64_t)(t - merged.before) * a.stride;
    const int64_t p = at / a.dilation;
    return at >= 0 && at % a.dilation == 0 && p < a.window ? (int)p : -1;
}

static __global__ void __launch_bounds__(THREADS)
    pack_back(const __grid_constant__ rg_conv_shape s, const __grid_constant__ tf32x3_conv k,
              const float *w, float *to, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int64_t o = i % k.channels, taps = i / k.channels;
    int q = (int)(taps % k.column.taps), p = (int)(taps / k.column.taps % k.row.taps);
    int64_t c = taps / k.column.taps / k.row.taps;
    if (k.merged) {
        const int phase = (int)(c / s.in);
        c -= phase * s.in;
        p = merged_tap(s.row, k.row, phase / (int)s.column.stride, p);
        q = merged_tap(s.column, k.column, phase % (int)s.column.stride, q);
    }
    to[i] = p >= 0 && q >= 0 ? w[((o * s.row.window + p) * s.column.window + q) * s.in + c] : 0;
}

/* ---- dw ---- */

/* As add_tiles, for tiles whose lines are k: a and b begin with the warp's rows and columns. */
template <int M, int ROWS, int COLUMNS>
static __device__ __forceinline__ void add_lines(warp_tile<ROWS, COLUMNS> &c, const float *a,
                                                 const float *b)
{
    const int at = (int)threadIdx.x % 4, number = (int)threadIdx.x % WARP_THREADS / 4;
    float part[ROWS][COLUMNS][4] = {};
#pragma unroll
    for (int k = 0; k < TILE_K; k += 8) {
        const float *from_a = a + (k + at) * (M + WEIGHTS_PITCH) + number;
        const float *from_b = b + (k + at) * (WEIGHTS_N + WEIGHTS_PITCH) + number;
        uint32_t big_a[ROWS][4], small_a[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                split(from_a[e / 2 * 4 * (M + WEIGHTS_PITCH) + 16 * i + e % 2 * 8], big_a[i][e],
                      small_a[i][e]);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 2) {
            uint32_t big_b[4], small_b[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                split(from_b[e % 2 * 4 * (WEIGHTS_N + WEIGHTS_PITCH) + 8 * (j + e / 2)], big_b[e],
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
    tf32x3_partials(const __grid_constant__ tf32x3_weights k)
{
    enum { DOWN = M / 32, COLUMNS = WEIGHTS_N * DOWN / 8 / 8, ROWS = 2, BYTES = VECTORS ? 16 : 4 };
    enum { A = TILE_K * (M + WEIGHTS_PITCH), SIZE = A + TILE_K * (WEIGHTS_N + WEIGHTS_PITCH) };
    extern __shared__ __align__(16) float shared[];
    __shared__ tile_row lines[2][TILE_K];
    const int first_n = (int)blockIdx.x * WEIGHTS_N, first_m = (int)blockIdx.y * M;
    const int begin = (int)blockIdx.z * k.part;
    const int end = k.windows - begin < k.part ? k.windows : begin + k.part;
    const int steps = (end - begin + TILE_K - 1) / TILE_K, warp = (int)threadIdx.x / WARP_THREADS;
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
    store_partials<ROWS, COLUMNS>(k, c, begin, end, first_m + m, first_n + n);
}

/* ---- host side ---- */

static inline tf32x3_axis axis_of(const rg_conv_axis *a, bool back)
{
    tf32x3_axis axis = {};
    axis.source = (int)(back ? a->count : a->size);
    axis.result = (int)(back ? a->size : a->count);
    axis.taps = (int)a->window;
    axis.mul = back ? 1 : (int)a->stride;
    axis.stride = (int)a->stride;
    axis.dilation = (int)a->dilation;
    axis.before = (int)a->before;
    return axis;
}

extern "C" bool rg_conv_tf32x3_merges(const rg_conv_shape *s)
{
    const int64_t phases = s->row.stride * s->column.stride;
    return phases > 1 && phases * s->in <= 32;
}

/* All phases of a few channels go together, as channels of fewer results: then windows are
 * loaded once for all of them. A result u of the axis sees windows u + low to u + high. */
static void merge_phases(const rg_conv_axis *a, tf32x3_axis *axis)
{
    const int64_t last_tap = (a->window - 1) * a->dilation, s = a->stride;
    const int64_t first = a->before - last_tap, last = s - 1 + a->before;
    const int64_t low = first >= 0 ? (first + s - 1) / s : -(-first / s), high = last / s;
    axis->result = (int)((a->size + s - 1) / s);
    axis->taps = (int)(high - low + 1);
    axis->dilation = axis->stride = axis->mul = 1;
    axis->before = (int)-low;
}

static bool is_plain(const rg_conv_args *args, bool back)
{
    const rg_conv_shape *s = &args->shape;
    const int64_t dims[4] = { s->images, back ? s->row.size : s->row.count,
                              back ? s->column.size : s->column.count, back ? s->in : s->out };
    return !has_epilogue(args) && !args->add && dims[3] % 2 == 0 && (uintptr_t)args->to % 8 == 0 &&
           conv_is_dense(dims, back ? s->x : s->y);
}

template <int N, int DOWN>
static void launch_tiles(const rg_conv_args *args, const tf32x3_conv *k,
                         const rg_cuda_target *target)
{
    const bool vectors = k->channels % 4 == 0;
    const int phases = k->back ? k->row.stride * k->column.stride : 1;
    const int64_t rows =
        (int64_t)k->images * phase_count(k->row, k->back, 0) * phase_count(k->column, k->back, 0);
    const dim3 grid((unsigned)ceil_div(rows, TILE_M), (unsigned)ceil_div(k->columns, N),
                    (unsigned)phases);
    const size_t shared = TILE_STAGES * (TILE_M + N) * TILE_K * sizeof(float);
    void (*const kernel)(rg_conv_args, tf32x3_conv) =
        vectors ? tf32x3_tiles<N, DOWN, true> : tf32x3_tiles<N, DOWN, false>;
    (void)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)shared);
    kernel<<<grid, THREADS, shared, target->stream>>>(*args, *k);
}

/* From dense `from` and `w`, (out, taps, in); `to` and z have the strides of the args. */
static void run_dense(const rg_conv_args *args, bool back, const float *from, const float *w,
                      scratch_arena *arena)
{
    const rg_conv_shape *s = &args->shape;
    tf32x3_conv k = {};
    k.from = from;
    k.w = w;
    k.images = (int)s->images;
    k.channels = (int)(back ? s->out : s->in);
    k.columns = (int)(back ? s->in : s->out);
    k.row = axis_of(&s->row, back);
    k.column = axis_of(&s->column, back);
    k.back = back;
    if (back && rg_conv_tf32x3_merges(s)) {
        const int64_t phases = s->row.stride * s->column.stride;
        k.merged = true;
        k.back = false;
        k.columns = (int)(phases * s->in);
        merge_phases(&s->row, &k.row);
        merge_phases(&s->column, &k.column);
    }
    const int64_t count = (int64_t)k.columns * k.row.taps * k.column.taps * k.channels;
    if (back) {
        float *dense_copy = (float *)arena_alloc(arena, (size_t)count * sizeof(float));
        if (arena->enqueue)
            launch(pack_back, ceil_div(count, THREADS), THREADS, 0, arena->target, *s, k, w,
                   dense_copy, count);
        k.w = dense_copy;
    }
    k.plain = !k.merged && is_plain(args, back);
    if (k.channels % 4 == 0 && k.columns > 32 && rg_conv_tf32x3_has_hopper()) {
        rg_conv_tf32x3_hopper(args, &k, count, arena);
        return;
    }
    if (!arena->enqueue)
        return;
    if (k.columns <= 16)
        launch_tiles<16, 8>(args, &k, arena->target);
    else if (k.columns <= 32)
        launch_tiles<32, 8>(args, &k, arena->target);
    else if (k.columns <= 64)
        launch_tiles<64, 4>(args, &k, arena->target);
    else
        launch_tiles<128, 4>(args, &k, arena->target);
}

template <int M, bool VECTORS>
static void launch_partials(const tf32x3_weights *k, int parts, const rg_cuda_target *target)
{
    const dim3 grid((unsigned)ceil_div((int64_t)k->taps * k->in, WEIGHTS_N),
                    (unsigned)ceil_div(k->out, M), (unsigned)parts);
    const size_t shared =
        TILE_STAGES * TILE_K * (M + WEIGHTS_N + 2 * WEIGHTS_PITCH) * sizeof(float);
    (void)cudaFuncSetAttribute((const void *)tf32x3_partials<M, VECTORS>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    tf32x3_partials<M, VECTORS><<<grid, THREADS, shared, target->stream>>>(*k);
}

/* From dense x and dy; dw has the strides of the args. */
static void run_weights_dense(const rg_conv_weights_args *args, const float *x, const float *dy,
                              scratch_arena *arena)
{
    enum { WANTED_BLOCKS = 528, HOPPER_BLOCKS = 264, MIN_K = 8 * TILE_K, MAX_K = 1024 * TILE_K };
    const rg_conv_shape *s = &args->shape;
    const int64_t windows = s->images * s->row.count * s->column.count;
    const int64_t size = s->out * s->row.window * s->column.window * s->in;
    const int m = s->out <= 64 ? 64 : 128;
    const int64_t tiles = ceil_div(size / s->out, WEIGHTS_N) * ceil_div(s->out, m);
    const bool vectors = s->in % 4 == 0 && s->out % 4 == 0;
    const bool hopper = vectors && m == 128 && rg_conv_tf32x3_has_hopper();
    int64_t parts = hopper ? HOPPER_BLOCKS / tiles : ceil_div(WANTED_BLOCKS, tiles);
    parts = parts > ceil_div(windows, MAX_K) ? parts : ceil_div(windows, MAX_K);
    parts = parts > 0 ? parts : 1;
    parts = parts < ceil_div(windows, MIN_K) ? parts : ceil_div(windows, MIN_K);
    const int64_t part = ceil_div(ceil_div(windows, parts), TILE_K) * TILE_K;
    parts = ceil_div(windows, part);
    float *sums = (float *)arena_alloc(arena, (size_t)(parts * size) * sizeof(float));
    if (!arena->enqueue)
        return;
    tf32x3_weights k = {};
    k.x = x;
    k.dy = dy;
    k.partials = sums;
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
        rg_conv_tf32x3_hopper_weights(&k, (int)parts, arena->target);
    else if (m == 64)
        (vectors ? launch_partials<64, true> : launch_partials<64, false>)(&k, (int)parts,
                                                                           arena->target);
    else
        (vectors ? launch_partials<128, true> : launch_partials<128, false>)(&k, (int)parts,
                                                                             arena->target);
    rg_conv_join_weights[RG_F32](args, sums, parts, arena->target);
}

/* ---- strategies ---- */

/* Whether the device has tensor cores for TF32, and this build has code for them. */
static bool has_kernel(void)
{
    cudaFuncAttributes attributes;
    const bool has = cudaFuncGetAttributes(&attributes, (const void *)tf32x3_tiles<64, 4, true>) ==
                         cudaSuccess &&
                     attributes.ptxVersion >= 80;
    (void)cudaGetLastError();
    return has;
}

/* One group, and all that kernels count fits into 31 bits. */
static bool suits(const rg_conv_shape *s)
{
    const double x = (double)s->images * (double)s->row.size * (double)s->column.size;
    const double y = (double)s->images * (double)s->row.count * (double)s->column.count;
    const double w = (double)s->row.window * (double)s->column.window;
    const double phases = (double)s->row.stride * (double)s->column.stride;
    return s->groups == 1 && x > 0 && y > 0 && x * (double)s->in < INT32_MAX &&
           y * (double)s->out < INT32_MAX &&
           4 * w * phases * (double)(s->in * s->out) < INT32_MAX && phases < 65536 &&
           s->in < 65536 * 16 && s->out < 65536 * 16;
}

static bool accepts(rg_conv_call *call)
{
    return call->dtype == RG_F32 && suits(call->shape) && has_kernel();
}

static bool run(const rg_conv_call *call, scratch_arena *arena)
{
    const dense_copy from = dense_from(arena, call, false);
    const dense_copy w = dense_w(arena, call, false);
    run_dense(call->args, call->direction == RG_CONV_DATA, (const float *)from.data,
              (const float *)w.data, arena);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_tf32x3 = { "tf32x3", accepts, run };

static bool run_weights(const rg_conv_call *call, scratch_arena *arena)
{
    const dense_copy x = dense_x(arena, call, false);
    const dense_copy dy = dense_dy(arena, call, false);
    run_weights_dense(call->weights_args, (const float *)x.data, (const float *)dy.data, arena);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_tf32x3_weights = { "tf32x3", accepts, run_weights };
