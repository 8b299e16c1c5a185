/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* dw by conv_tf32x3.cuh: what goes into tiles of shared memory, and where sums go.
 *
 * Again a product of matrices. Rows are channels of windows, columns are weights of one of them,
 * and k goes over windows: dw(o, n) = sum over windows of dy(window, o) x(where weight n lies on
 * it). Windows are cut into parts by shape alone; a kernel of its own adds up their sums, in order.
 */
#ifndef RG_OPS_CONV_TF32X3_PARTS_CUH
#define RG_OPS_CONV_TF32X3_PARTS_CUH

#include "backend/cuda/divide.cuh"
#include "ops/conv/conv_tf32x3.cuh"

enum { PARTS_N = 128, PARTS_PITCH = 8 }; /* columns of a tile; numbers behind each line of one */

struct tf32x3_weights {
    const float *x, *dy;
    float *parts; /* (part, out, taps, in) */
    tf32x3_axis row, column;
    int images, in, out, taps;
    int windows, part;          /* in all; of one part, a multiple of TILE_K */
    small_divider across, down; /* by windows of a row, by rows */
};

/* Where window i of all stands on x; one past the last is nowhere. */
static __device__ __forceinline__ tile_row place_of_window(const tf32x3_weights &k, int i)
{
    const int line = divide(i, k.across), image = divide(line, k.down);
    const int row = line - image * k.row.result, column = i - line * k.column.result;
    const uint32_t size = (uint32_t)k.row.source * (uint32_t)k.column.source * (uint32_t)k.in;
    return { (uint32_t)image * size, row * k.row.stride - k.row.before,
             column * k.column.stride - k.column.before };
}

/* Lines of dy: `M` channels of TILE_K windows from `first` on. */
template <int M, int BYTES>
static __device__ __forceinline__ void load_dy(const tf32x3_weights &k, int first, int end, int o,
                                               float *a)
{
    enum { EACH = BYTES / 4, ACROSS = M / EACH, LINES = THREADS / ACROSS };
    const int number = (int)threadIdx.x % ACROSS * EACH, line = (int)threadIdx.x / ACROSS;
#pragma unroll
    for (int i = 0; i < TILE_K / LINES; i++) {
        const int window = first + line + i * LINES;
        const bool valid = window < end && o + number < k.out;
        copy_or_zero<BYTES>(a + (line + i * LINES) * (M + PARTS_PITCH) + number,
                            valid ? k.dy + (uint32_t)window * (uint32_t)k.out + o + number : k.dy,
                            valid);
    }
}

/* Lines of x: PARTS_N weights' numbers of the windows of `rows`; a thread has the same weights. */
template <int BYTES>
static __device__ __forceinline__ void load_x(const tf32x3_weights &k, const tile_row rows[],
                                              int left, int n, float *b)
{
    enum { EACH = BYTES / 4, ACROSS = PARTS_N / EACH, LINES = THREADS / ACROSS };
    const int number = (int)threadIdx.x % ACROSS * EACH, line = (int)threadIdx.x / ACROSS;
    const int tap = (n + number) / k.in, channel = n + number - tap * k.in;
    const int p = tap / k.column.taps, q = tap - p * k.column.taps;
#pragma unroll
    for (int i = 0; i < TILE_K / LINES; i++) {
        const tile_row r = rows[line + i * LINES];
        const int row = r.row + p * k.row.dilation, column = r.column + q * k.column.dilation;
        const bool valid = line + i * LINES < left && tap < k.taps &&
                           (uint32_t)row < (uint32_t)k.row.source &&
                           (uint32_t)column < (uint32_t)k.column.source;
        const uint32_t at = r.image + (uint32_t)(row * k.column.source + column) * (uint32_t)k.in;
        copy_or_zero<BYTES>(b + (line + i * LINES) * (PARTS_N + PARTS_PITCH) + number,
                            valid ? k.x + at + channel : k.x, valid);
    }
}

/* Where the windows of a step stand: steps use two buffers by turns. */
static __device__ __forceinline__ void find_windows(const tf32x3_weights &k, int begin, int step,
                                                    tile_row lines[2][TILE_K])
{
    if (threadIdx.x < TILE_K)
        lines[step % 2][threadIdx.x] =
            place_of_window(k, (int)((uint32_t)(begin + step * TILE_K) + threadIdx.x));
}

/* Begins to load a step of a part, if there is one, and finds the windows of the next. */
template <int M, int BYTES>
static __device__ __forceinline__ void load_part(const tf32x3_weights &k, tile_row lines[2][TILE_K],
                                                 int begin, int end, int step, int first_m,
                                                 int first_n, float *stage)
{
    const int first = begin + step * TILE_K;
    if (first < end) {
        load_dy<M, BYTES>(k, first, end, first_m, stage);
        load_x<BYTES>(k, lines[step % 2], end - first, first_n, stage + TILE_K * (M + PARTS_PITCH));
    }
    find_windows(k, begin, step + 1, lines);
    end_copies();
}

/* One sum of a part, product by product. */
static __device__ __noinline__ float sum_part_again(const tf32x3_weights &k, int first, int end,
                                                    int o, int n)
{
    const int tap = n / k.in, channel = n - tap * k.in;
    const int p = tap / k.column.taps, q = tap - p * k.column.taps;
    float sum = 0;
    for (int i = first; i < end; i++) {
        const tile_row r = place_of_window(k, i);
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
static __device__ __forceinline__ void store_parts(const tf32x3_weights &k,
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

#endif
