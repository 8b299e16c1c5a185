/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* f32 on the units for TF32, without rounding to it: a number is the sum of two TF32 numbers, big
 * and small, and a product is big big + big small + small big; what is left out is below 2^-21 of
 * it. These units round towards zero, so sums go no further than 32 products there and are then
 * added up as f32. Three products on these units take less time than one elsewhere.
 *
 * Where a sum is not finite it is taken again, product by product: infinity and NaN come out as
 * arithmetic says.
 *
 * A convolution is a product of matrices: c(m, n) = sum over k of a(m, k) b(n, k). Rows m are
 * pixels of the result, columns n its channels, k goes over taps and, inside, over channels of the
 * source. All tensors are dense. Included by conv_library.cuh, behind finish() of conv_cuda.cu. */
#ifndef RG_OPS_CONV_SPLIT_CUH
#define RG_OPS_CONV_SPLIT_CUH

#include "backend/cuda/packing.cuh"
#include "ops/conv/conv.h"

enum {
    SPLIT_M = 128,    /* rows of a tile */
    SPLIT_K = 32,     /* of k, between two sums as f32 */
    SPLIT_STAGES = 3, /* tiles on their way */
};

/* Rows or columns of both sides. A result at u has tap p at source u mul + shift(p), see below. */
struct split_axis {
    int source, result; /* sizes */
    int taps, mul;
    int stride, dilation, before;
};

struct split_conv {
    const float *from, *w; /* source; weights (columns, taps, channels) */
    split_axis row, column;
    int images, channels, columns;
    bool back;   /* from windows to the image */
    bool merged; /* columns are (row phase, column phase, channel): see merge_phases */
    bool plain;  /* the result is dense, and the sum is all there is to it */
};

/* ---- instructions ---- */

static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* BYTES to shared memory in the background; zeros where it is not `valid`. */
template <int BYTES>
static __device__ __forceinline__ void copy_or_zero(void *to, const void *from, bool valid)
{
#if __CUDA_ARCH__ >= 800
    const int size = valid ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                     "l"(from), "r"(size));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                     "l"(from), "r"(size));
#else
    (void)to, (void)from, (void)valid;
#endif
}

static __device__ __forceinline__ void commit_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

/* All but the last `LEFT` commits have arrived. */
template <int LEFT> static __device__ __forceinline__ void await_but()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

/* Four blocks of 8 rows by 16 bytes; each thread gets a word of each. */
static __device__ __forceinline__ void load_blocks(float x[4], const float *row)
{
#if __CUDA_ARCH__ >= 750
    uint32_t r[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = __uint_as_float(r[i]);
#else
    (void)x, (void)row;
#endif
}

/* Rounds to the nearest number of 10 bits behind the point; what is left over is exact. The units
 * for conversions are few: this is by integers. */
static __device__ __forceinline__ void split(float x, uint32_t &big, uint32_t &small)
{
    big = (__float_as_uint(x) + 0x1000) & 0xffffe000;
    small = __float_as_uint(x - __uint_as_float(big));
}

/* c += a b for 16 rows, 8 columns, 8 of k. */
static __device__ __forceinline__ void multiply(float c[4], const uint32_t a[4],
                                                const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    (void)c, (void)a, (void)b;
#endif
}

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
            multiply(c[i][j + h], a[i], b + 2 * h);
    }
}

/* ---- tiles in shared memory: rows of SPLIT_K numbers, whose 8 vectors change places by row, so
 * that loads of 8 rows meet no bank twice ---- */

static __device__ __forceinline__ int tile_at(int row, int k)
{
    return row * SPLIT_K + ((k / 4 ^ (row & 7)) * 4 + k % 4);
}

/* What a warp has of c: ROWS blocks of 16 rows by COLUMNS blocks of 8 columns. */
template <int ROWS, int COLUMNS> struct warp_tile {
    float sum[ROWS][COLUMNS][4];
};

/* sum += the product of tiles from row `m` of a and row `n` of b on. */
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void add_tiles(warp_tile<ROWS, COLUMNS> &c, const float *a,
                                                 const float *b, int m, int n)
{
    const int lane = (int)threadIdx.x % 32;
    float part[ROWS][COLUMNS][4] = {};
#pragma unroll
    for (int k = 0; k < SPLIT_K; k += 8) {
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

/* Where tap p of result u stands on the source, less u mul. Going back, results of one residue
 * `phase` go together, at phase + u stride, and some taps belong to other ones: false. */
static __device__ __forceinline__ bool tap_shift(const split_axis &a, bool back, int phase, int p,
                                                 int &shift)
{
    const int at = back ? phase + a.before - p * a.dilation : p * a.dilation - a.before;
    shift = back ? at / a.stride : at;
    return !back || at % a.stride == 0;
}

/* A step over k: a tap, and the first of its channels. */
struct split_step {
    int p, q, channel;
    int row_shift, column_shift;
};

/* The tap at or behind the step's that this phase has; p = taps where none is left. */
static __device__ __forceinline__ void find_tap(const split_conv &k, int row_phase,
                                                int column_phase, split_step &s)
{
    while (s.p < k.row.taps && !(tap_shift(k.row, k.back, row_phase, s.p, s.row_shift) &&
                                 tap_shift(k.column, k.back, column_phase, s.q, s.column_shift))) {
        s.q++;
        s.p += s.q == k.column.taps;
        s.q = s.q == k.column.taps ? 0 : s.q;
    }
}

static __device__ __forceinline__ void next_step(const split_conv &k, int row_phase,
                                                 int column_phase, split_step &s)
{
    s.channel += SPLIT_K;
    if (s.channel < k.channels)
        return;
    s.channel = 0;
    s.q++;
    s.p += s.q == k.column.taps;
    s.q = s.q == k.column.taps ? 0 : s.q;
    find_tap(k, row_phase, column_phase, s);
}

/* A result among those of its phase. */
struct split_place {
    int image, row, column;
};

/* A row of the tile: its result's place on the source, before the shift of a tap. */
struct split_row {
    uint32_t image; /* where its image begins */
    int row, column;
};

/* Channels are whole vectors: a thread has the same one of some rows of each tile. */
template <int N>
static __device__ __forceinline__ void load_vectors(const split_conv &k, const split_row rows[],
                                                    const split_step &s, int first, float *a,
                                                    float *b)
{
    enum { LINES = THREADS / 8 };
    const int vector = (int)threadIdx.x % 8 * 4, line = (int)threadIdx.x / 8;
    const bool inside = s.channel + vector < k.channels;
#pragma unroll
    for (int i = 0; i < SPLIT_M / LINES; i++) {
        const int m = line + i * LINES;
        const split_row r = rows[m];
        const int row = r.row + s.row_shift, column = r.column + s.column_shift;
        const bool valid = inside && (uint32_t)row < (uint32_t)k.row.source &&
                           (uint32_t)column < (uint32_t)k.column.source;
        const uint32_t at =
            r.image + (uint32_t)(row * k.column.source + column) * (uint32_t)k.channels;
        copy_or_zero<16>(a + tile_at(m, vector), valid ? k.from + at + s.channel + vector : k.from,
                         valid);
    }
    const int tap = s.p * k.column.taps + s.q, taps = k.row.taps * k.column.taps;
#pragma unroll
    for (int i = 0; i < (N + LINES - 1) / LINES; i++) {
        const int n = line + i * LINES;
        const bool valid = inside && first + n < k.columns;
        const uint32_t at = (uint32_t)((first + n) * taps + tap) * (uint32_t)k.channels;
        if (n < N)
            copy_or_zero<16>(b + tile_at(n, vector), valid ? k.w + at + s.channel + vector : k.w,
                             valid);
    }
}

/* Any number of channels: k goes through taps and channels as weights lie, and `channel` is its
 * first. A thread has one of them. */
template <int N>
static __device__ __forceinline__ void load_numbers(const split_conv &k, const split_row rows[],
                                                    const split_step &s, int first, int row_phase,
                                                    int column_phase, float *a, float *b)
{
    enum { LINES = THREADS / SPLIT_K };
    const int taps = k.row.taps * k.column.taps, all = taps * k.channels;
    const int number = (int)threadIdx.x % SPLIT_K, at = s.channel + number;
    const int line = (int)threadIdx.x / SPLIT_K;
    const int tap = at / k.channels, channel = at - tap * k.channels;
    const int p = tap / k.column.taps, q = tap - p * k.column.taps;
    int row_shift, column_shift;
    const bool has = tap_shift(k.row, k.back, row_phase, p, row_shift);
    const bool inside =
        tap_shift(k.column, k.back, column_phase, q, column_shift) && has && at < all;
#pragma unroll
    for (int i = 0; i < SPLIT_M / LINES; i++) {
        const int m = line + i * LINES;
        const split_row r = rows[m];
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

/* The result of row m of all that belong to the phase; false past the last. */
static __device__ __forceinline__ bool place_of(const split_conv &k, int64_t m, int rows,
                                                int columns, split_place &p)
{
    const uint32_t line = (uint32_t)m / (uint32_t)columns;
    p.column = (int)((uint32_t)m - line * (uint32_t)columns);
    p.image = (int)(line / (uint32_t)rows);
    p.row = (int)(line - (uint32_t)p.image * (uint32_t)rows);
    return m < (int64_t)k.images * rows * columns;
}

/* All rows of a tile, for the whole block. */
static __device__ __forceinline__ void find_rows(const split_conv &k, int64_t first_m, int rows,
                                                 int columns, split_row lines[SPLIT_M])
{
    if (threadIdx.x < SPLIT_M) {
        split_place at;
        const bool valid = place_of(k, first_m + threadIdx.x, rows, columns, at);
        const uint32_t image =
            (uint32_t)k.row.source * (uint32_t)k.column.source * (uint32_t)k.channels;
        lines[threadIdx.x] = { valid ? (uint32_t)at.image * image : 0,
                               valid ? at.row * k.row.mul : -(1 << 30),
                               valid ? at.column * k.column.mul : 0 };
    }
    __syncthreads();
}

/* One sum, product by product. */
static __device__ __noinline__ float sum_again(const split_conv &k, const split_place &at,
                                               int row_phase, int column_phase, int n)
{
    float sum = 0;
    for (int p = 0; p < k.row.taps; p++) {
        for (int q = 0; q < k.column.taps; q++) {
            int row, column;
            if (!tap_shift(k.row, k.back, row_phase, p, row) ||
                !tap_shift(k.column, k.back, column_phase, q, column))
                continue;
            row += at.row * k.row.mul;
            column += at.column * k.column.mul;
            if ((uint32_t)row >= (uint32_t)k.row.source ||
                (uint32_t)column >= (uint32_t)k.column.source)
                continue;
            const float *x =
                k.from +
                (((int64_t)at.image * k.row.source + row) * k.column.source + column) * k.channels;
            const float *w =
                k.w +
                ((int64_t)n * k.row.taps * k.column.taps + p * k.column.taps + q) * k.channels;
            for (int c = 0; c < k.channels; c++)
                sum = fma(x[c], w[c], sum);
        }
    }
    return sum;
}

/* Results of a phase along one axis. */
static inline __host__ __device__ int split_count(const split_axis &a, bool back, int phase)
{
    return back ? (a.result - phase + a.stride - 1) / a.stride : a.result;
}

/* Where a result stands: its pixel, and the channel that column n is. */
struct split_target {
    int row, column, channel;
    bool exists;
};

static __device__ __forceinline__ split_target target_of(const rg_conv_shape &s,
                                                         const split_conv &k, const split_place &at,
                                                         int row_phase, int column_phase, int n)
{
    split_target to = { at.row, at.column, n, true };
    if (!k.back && !k.merged)
        return to;
    const int across = (int)s.column.stride, channels = (int)s.in;
    const int phase = k.merged ? n / channels : row_phase * across + column_phase;
    to.channel = k.merged ? n - phase * channels : n;
    to.row = at.row * (int)s.row.stride + phase / across;
    to.column = at.column * across + phase % across;
    to.exists = to.row < s.row.size && to.column < s.column.size;
    return to;
}

/* As sum_again, of a pixel where columns are phases: zeros that fill up their taps are no part of
 * it. */
static __device__ __noinline__ float sum_pixel(const rg_conv_args &args, int64_t image,
                                               const split_target &to)
{
    const rg_conv_shape &s = args.shape;
    const int64_t group = to.channel / s.in, c = to.channel - group * s.in;
    float sum = 0;
    for (int64_t p = 0; p < s.row.window; p++) {
        const int64_t i = rg_conv_window(&s.row, to.row, p);
        for (int64_t q = 0; i >= 0 && q < s.column.window; q++) {
            const int64_t j = rg_conv_window(&s.column, to.column, q);
            const int64_t y = image * s.y[0] + i * s.y[1] + j * s.y[2] + group * s.out * s.y[3];
            const int64_t w = s.w_first + group * s.w[0] + p * s.w[2] + q * s.w[3] + c * s.w[4];
            for (int64_t o = 0; j >= 0 && o < s.out; o++)
                sum = fma(load<RG_F32>(args.from, y + o * s.y[3]),
                          load<RG_F32>(args.w, w + o * s.w[1]), sum);
        }
    }
    return sum;
}

/* Stores what a warp has. */
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void
store_tile(const rg_conv_args &args, const split_conv &k, const warp_tile<ROWS, COLUMNS> &c,
           int64_t first_m, int first_n, int row_phase, int column_phase)
{
    const rg_conv_shape &s = args.shape;
    const bool image_side = k.back || k.merged;
    const int64_t *steps = image_side ? s.x : s.y;
    const int rows = split_count(k.row, k.back, row_phase);
    const int columns = split_count(k.column, k.back, column_phase);
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2 * ROWS; i++) {
        split_place at;
        if (!place_of(k, first_m + 8 * i + lane / 4, rows, columns, at))
            continue;
        float *line = NULL; /* of a dense result that is nothing but the sum */
        if (k.plain) {
            const split_target to = target_of(s, k, at, row_phase, column_phase, 0);
            const int64_t height = image_side ? s.row.size : s.row.count;
            const int64_t width = image_side ? s.column.size : s.column.count;
            line =
                (float *)args.to + ((at.image * height + to.row) * width + to.column) * k.columns;
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const int n = first_n + j * 8 + lane % 4 * 2;
            float sum[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                sum[e] = c.sum[i / 2][j][i % 2 * 2 + e];
                if (!k.merged && !isfinite(sum[e]) && n + e < k.columns)
                    sum[e] = sum_again(k, at, row_phase, column_phase, n + e);
            }
            if (line != NULL) {
                if (n < k.columns)
                    *(float2 *)(line + n) = { sum[0], sum[1] };
                continue;
            }
            for (int e = 0; e < 2 && n + e < k.columns; e++) {
                const split_target to = target_of(s, k, at, row_phase, column_phase, n + e);
                if (to.exists && k.merged && !isfinite(sum[e]))
                    sum[e] = sum_pixel(args, at.image, to);
                if (to.exists)
                    finish<RG_F32>(args,
                                   at.image * steps[0] + to.row * steps[1] + to.column * steps[2],
                                   at.image * args.z_step[0] + to.row * args.z_step[1] +
                                       to.column * args.z_step[2],
                                   to.channel, steps[3], sum[e]);
            }
        }
    }
}

/* A tile of N columns: 8 warps, DOWN of them below each other. Going back, blockIdx.z is the
 * phase. */
template <int N, int DOWN, bool VECTORS>
static __global__ void __launch_bounds__(THREADS)
    split_tiles(const __grid_constant__ rg_conv_args args, const __grid_constant__ split_conv k)
{
    enum { ROWS = SPLIT_M / DOWN / 16, COLUMNS = N * DOWN / 8 / 8 };
    extern __shared__ __align__(16) float shared[];
    __shared__ split_row lines[SPLIT_M];
    const int row_phase = k.back ? (int)blockIdx.z / k.column.stride : 0;
    const int column_phase = k.back ? (int)blockIdx.z % k.column.stride : 0;
    const int rows = split_count(k.row, k.back, row_phase);
    const int columns = split_count(k.column, k.back, column_phase);
    const int64_t first_m = (int64_t)blockIdx.x * SPLIT_M;
    const int first_n = (int)blockIdx.y * N, warp = (int)threadIdx.x / 32;
    const int all = k.row.taps * k.column.taps * k.channels;
    if (first_m >= (int64_t)k.images * rows * columns)
        return;
    find_rows(k, first_m, rows, columns, lines);
    const int size = (SPLIT_M + N) * SPLIT_K;
    split_step step = { 0, 0, 0, 0, 0 };
    if (VECTORS)
        find_tap(k, row_phase, column_phase, step);
    int slot = 0, steps = 0; /* where the next tiles go; how many are known to exist */
    const auto load_next = [&]() {
        float *a = shared + slot * size, *b = a + SPLIT_M * SPLIT_K;
        if (VECTORS && step.p < k.row.taps) {
            load_vectors<N>(k, lines, step, first_n, a, b);
            next_step(k, row_phase, column_phase, step);
            steps++;
        } else if (!VECTORS && step.channel < all) {
            load_numbers<N>(k, lines, step, first_n, row_phase, column_phase, a, b);
            step.channel += SPLIT_K;
            steps++;
        }
        slot = slot == SPLIT_STAGES - 1 ? 0 : slot + 1;
        commit_copies();
    };
#pragma unroll
    for (int i = 0; i < SPLIT_STAGES - 1; i++)
        load_next();
    warp_tile<ROWS, COLUMNS> c = {};
    const int m = warp % DOWN * ROWS * 16, n = warp / DOWN * COLUMNS * 8;
    int used = 0;
    for (int done = 0; done < steps; done++) {
        await_but<SPLIT_STAGES - 2>();
        __syncthreads(); /* these tiles are here, and those before have been used */
        load_next();
        add_tiles<ROWS, COLUMNS>(c, shared + used * size, shared + used * size + SPLIT_M * SPLIT_K,
                                 m, n);
        used = used == SPLIT_STAGES - 1 ? 0 : used + 1;
    }
    store_tile<ROWS, COLUMNS>(args, k, c, first_m + m, first_n + n, row_phase, column_phase);
}

/* ---- weights for going back: (columns, taps, channels) from (channels, taps, columns) ---- */

/* Where phases are merged, tap t of phase a is tap p of w with p dilation = a + before - (t -
 * shift) stride, if there is one; `before` of the conv is that shift. */
static __device__ __forceinline__ int merged_tap(const rg_conv_axis &a, const split_axis &merged,
                                                 int phase, int t)
{
    const int64_t at = phase + a.before - (int64_t)(t - merged.before) * a.stride;
    const int64_t p = at / a.dilation;
    return at >= 0 && at % a.dilation == 0 && p < a.window ? (int)p : -1;
}

static __global__ void __launch_bounds__(THREADS)
    pack_back(const __grid_constant__ rg_conv_shape s, const __grid_constant__ split_conv k,
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

/* ---- host side ---- */

/* Whether the device has such units, and this build has code for them. */
static bool has_split(void)
{
    cudaFuncAttributes attributes;
    const bool has =
        cudaFuncGetAttributes(&attributes, (const void *)split_tiles<64, 4, true>) == cudaSuccess &&
        attributes.ptxVersion >= 80;
    (void)cudaGetLastError();
    return has;
}

/* One group, and all that kernels count fits into 31 bits. */
static bool split_takes(const rg_conv_shape *s)
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

static split_axis split_axis_of(const rg_conv_axis *a, bool back)
{
    split_axis axis = {};
    axis.source = (int)(back ? a->count : a->size);
    axis.result = (int)(back ? a->size : a->count);
    axis.taps = (int)a->window;
    axis.mul = back ? 1 : (int)a->stride;
    axis.stride = (int)a->stride;
    axis.dilation = (int)a->dilation;
    axis.before = (int)a->before;
    return axis;
}

static bool split_merges(const rg_conv_shape *s)
{
    const int64_t phases = s->row.stride * s->column.stride;
    return phases > 1 && phases * s->in <= 32;
}

/* All phases of a few channels go together, as so many channels of fewer results: then windows are
 * loaded once for all of them. A result u of the axis sees windows u + low to u + high. */
static void merge_phases(const rg_conv_axis *a, split_axis *axis)
{
    const int64_t reach = (a->window - 1) * a->dilation, s = a->stride;
    const int64_t first = a->before - reach, last = s - 1 + a->before;
    const int64_t low = first >= 0 ? (first + s - 1) / s : -(-first / s), high = last / s;
    axis->result = (int)((a->size + s - 1) / s);
    axis->taps = (int)(high - low + 1);
    axis->dilation = axis->stride = axis->mul = 1;
    axis->before = (int)-low;
}

static bool is_plain(const rg_conv_args *args, bool back)
{
    const rg_conv_shape *s = &args->shape;
    rg_copy_args to = { .rank = 4 };
    const int64_t dims[4] = { s->images, back ? s->row.size : s->row.count,
                              back ? s->column.size : s->column.count, back ? s->in : s->out };
    for (int d = 0; d < 4; d++) {
        to.dims[d] = dims[d];
        to.strides[d] = back ? s->x[d] : s->y[d];
    }
    return !args->has_b && !args->has_z && !args->add && args->neuron.kind == RG_NEURON_NONE &&
           dims[3] % 2 == 0 && (uintptr_t)args->to % 8 == 0 && rg_copy_is_dense(&to);
}

template <int N, int DOWN>
static void launch_split(const rg_conv_args *args, const split_conv *k, const rg_cuda_place *place)
{
    const bool vectors = k->channels % 4 == 0;
    int64_t rows = 0;
    const int phases = k->back ? k->row.stride * k->column.stride : 1;
    rows =
        (int64_t)k->images * split_count(k->row, k->back, 0) * split_count(k->column, k->back, 0);
    const dim3 grid((unsigned)ceil_div(rows, SPLIT_M), (unsigned)ceil_div(k->columns, N),
                    (unsigned)phases);
    const size_t shared = SPLIT_STAGES * (SPLIT_M + N) * SPLIT_K * sizeof(float);
    void (*const kernel)(rg_conv_args, split_conv) =
        vectors ? split_tiles<N, DOWN, true> : split_tiles<N, DOWN, false>;
    (void)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)shared);
    kernel<<<grid, THREADS, shared, place->stream>>>(*args, *k);
}

/* By conv_split_hopper.cuh, where the device has that: channels are whole vectors. */
static bool has_hopper(void);
static void run_hopper(const rg_conv_args *args, const split_conv *k, int64_t count,
                       packing *arena);

/* From dense `from` and `w`, (out, taps, in); `to` and z lie as the args say. */
static void run_split(const rg_conv_args *args, bool back, const float *from, const float *w,
                      packing *arena)
{
    const rg_conv_shape *s = &args->shape;
    split_conv k = {};
    k.from = from;
    k.w = w;
    k.images = (int)s->images;
    k.channels = (int)(back ? s->out : s->in);
    k.columns = (int)(back ? s->in : s->out);
    k.row = split_axis_of(&s->row, back);
    k.column = split_axis_of(&s->column, back);
    k.back = back;
    if (back && split_merges(s)) {
        const int64_t phases = s->row.stride * s->column.stride;
        k.merged = true;
        k.back = false;
        k.columns = (int)(phases * s->in);
        merge_phases(&s->row, &k.row);
        merge_phases(&s->column, &k.column);
    }
    const int64_t count = (int64_t)k.columns * k.row.taps * k.column.taps * k.channels;
    if (back) {
        float *packed = (float *)packing_take(arena, (size_t)count * sizeof(float));
        if (arena->run)
            launch(pack_back, ceil_div(count, THREADS), THREADS, 0, arena->place, *s, k, w, packed,
                   count);
        k.w = packed;
    }
    k.plain = !k.merged && is_plain(args, back);
    if (k.channels % 4 == 0 && k.columns > 32 && has_hopper()) {
        run_hopper(args, &k, count, arena);
        return;
    }
    if (!arena->run)
        return;
    if (k.columns <= 16)
        launch_split<16, 8>(args, &k, arena->place);
    else if (k.columns <= 32)
        launch_split<32, 8>(args, &k, arena->place);
    else if (k.columns <= 64)
        launch_split<64, 4>(args, &k, arena->place);
    else
        launch_split<128, 4>(args, &k, arena->place);
}

#endif
