/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Forward and data by conv_tf32x3.cuh: what goes into tiles of shared memory, and where sums go. */
#ifndef RG_OPS_CONV_TF32X3_TILES_CUH
#define RG_OPS_CONV_TF32X3_TILES_CUH

#include "ops/conv/conv_tf32x3.cuh"

/* ---- phases: going back, results of one residue of the stride go together ---- */

/* Results of a phase along one axis. */
static inline __host__ __device__ int phase_count(const tf32x3_axis &a, bool back, int phase)
{
    return back ? (a.result - phase + a.stride - 1) / a.stride : a.result;
}

/* ---- steps over k ---- */

/* Where tap p of result u stands on the source, less u mul. Going back, result u of a phase is at
 * phase + u stride, and some taps belong to other phases: false. */
static __device__ __forceinline__ bool tap_shift(const tf32x3_axis &a, bool back, int phase, int p,
                                                 int &shift)
{
    const int at = back ? phase + a.before - p * a.dilation : p * a.dilation - a.before;
    shift = back ? at / a.stride : at;
    return !back || at % a.stride == 0;
}

/* A step over k: a tap, and the first of its channels. */
struct tile_step {
    int p, q, channel;
    int row_shift, column_shift;
};

/* The tap at or behind the step's that this phase has; p = taps where none is left. */
static __device__ __forceinline__ void find_tap(const tf32x3_conv &k, int row_phase,
                                                int column_phase, tile_step &s)
{
    while (s.p < k.row.taps && !(tap_shift(k.row, k.back, row_phase, s.p, s.row_shift) &&
                                 tap_shift(k.column, k.back, column_phase, s.q, s.column_shift))) {
        s.q++;
        s.p += s.q == k.column.taps;
        s.q = s.q == k.column.taps ? 0 : s.q;
    }
}

static __device__ __forceinline__ void next_step(const tf32x3_conv &k, int row_phase,
                                                 int column_phase, tile_step &s)
{
    s.channel += TILE_K;
    if (s.channel < k.channels)
        return;
    s.channel = 0;
    s.q++;
    s.p += s.q == k.column.taps;
    s.q = s.q == k.column.taps ? 0 : s.q;
    find_tap(k, row_phase, column_phase, s);
}

/* A result among those of its phase. */
struct tile_place {
    int image, row, column;
};

/* ---- loads ---- */

/* The result of row m of all that belong to the phase; false past the last. */
static __device__ __forceinline__ bool place_of(const tf32x3_conv &k, int64_t m, int rows,
                                                int columns, tile_place &p)
{
    const uint32_t line = (uint32_t)m / (uint32_t)columns;
    p.column = (int)((uint32_t)m - line * (uint32_t)columns);
    p.image = (int)(line / (uint32_t)rows);
    p.row = (int)(line - (uint32_t)p.image * (uint32_t)rows);
    return m < (int64_t)k.images * rows * columns;
}

/* All rows of a tile, for the whole block. */
static __device__ __forceinline__ void find_rows(const tf32x3_conv &k, int64_t first_m, int rows,
                                                 int columns, tile_row lines[TILE_M])
{
    if (threadIdx.x < TILE_M) {
        tile_place at;
        const bool valid = place_of(k, first_m + threadIdx.x, rows, columns, at);
        const uint32_t image =
            (uint32_t)k.row.source * (uint32_t)k.column.source * (uint32_t)k.channels;
        lines[threadIdx.x] = { valid ? (uint32_t)at.image * image : 0,
                               valid ? at.row * k.row.mul : -(1 << 30),
                               valid ? at.column * k.column.mul : 0 };
    }
    __syncthreads();
}

/* Channels are whole vectors: a thread has the same one of some rows of each tile. */
template <int N>
static __device__ __forceinline__ void load_vectors(const tf32x3_conv &k, const tile_row rows[],
                                                    const tile_step &s, int first, float *a,
                                                    float *b)
{
    enum { LINES = THREADS / 8 };
    const int vector = (int)threadIdx.x % 8 * 4, line = (int)threadIdx.x / 8;
    const bool inside = s.channel + vector < k.channels;
#pragma unroll
    for (int i = 0; i < TILE_M / LINES; i++) {
        const int m = line + i * LINES;
        const tile_row r = rows[m];
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

/* ---- results ---- */

/* One sum, product by product. */
static __device__ __noinline__ float sum_again(const tf32x3_conv &k, const tile_place &at,
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

/* Where a result stands: its pixel, and the channel that column n is. */
struct tile_target {
    int row, column, channel;
    bool exists;
};

static __device__ __forceinline__ tile_target target_of(const rg_conv_shape &s,
                                                        const tf32x3_conv &k, const tile_place &at,
                                                        int row_phase, int column_phase, int n)
{
    tile_target to = { at.row, at.column, n, true };
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
                                               const tile_target &to)
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
store_tile(const rg_conv_args &args, const tf32x3_conv &k, const warp_tile<ROWS, COLUMNS> &c,
           int64_t first_m, int first_n, int row_phase, int column_phase)
{
    const rg_conv_shape &s = args.shape;
    const bool image_side = k.back || k.merged;
    const int64_t *steps = image_side ? s.x : s.y;
    const int rows = phase_count(k.row, k.back, row_phase);
    const int columns = phase_count(k.column, k.back, column_phase);
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2 * ROWS; i++) {
        tile_place at;
        if (!place_of(k, first_m + 8 * i + lane / 4, rows, columns, at))
            continue;
        float *line = NULL; /* of a dense result that is nothing but the sum */
        if (k.plain) {
            const tile_target to = target_of(s, k, at, row_phase, column_phase, 0);
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
                const tile_target to = target_of(s, k, at, row_phase, column_phase, n + e);
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

#endif
