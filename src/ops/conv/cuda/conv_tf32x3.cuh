/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* f32 on tensor cores for TF32, without rounding to it: a number is the sum of two TF32 numbers,
 * big and small, and a product is big big + big small + small big; what is left out is below 2^-21
 * of it. Tensor cores round towards zero, so sums go no further than 32 products there and are then
 * added up as f32. Three products on them take less time than one elsewhere.
 *
 * Where a sum is not finite it is taken again, product by product: infinity and NaN come out as
 * arithmetic says.
 *
 * A convolution is a product of matrices: c(m, n) = sum over k of a(m, k) b(n, k). Rows m are
 * pixels of the result, columns n its channels, k goes over taps and, inside, over channels of the
 * source; for dw see below. All tensors are dense. */
#ifndef RG_OPS_CONV_TF32X3_CUH
#define RG_OPS_CONV_TF32X3_CUH

#include "backend/cuda/divide.cuh"
#include "backend/cuda/mma.cuh"
#include "ops/conv/cuda/conv_strategy.cuh"

enum {
    TILE_M = 128,    /* rows of a tile */
    TILE_K = 32,     /* of k, between two sums as f32 */
    TILE_STAGES = 3, /* tiles in flight */
};

/* Rows or columns of both sides. A result at u has tap p at source u mul + shift(p), see below. */
struct tf32x3_axis {
    int source, result; /* sizes */
    int taps, mul;
    int stride, dilation, before;
};

struct tf32x3_conv {
    const float *from, *w; /* source; weights (columns, taps, channels) */
    tf32x3_axis row, column;
    int images, channels, columns;
    bool back;   /* from windows to the image */
    bool merged; /* columns are (row phase, column phase, channel): see merge_phases */
    bool plain;  /* the result is dense, and the sum is all there is to it */
};

/* ---- tiles in shared memory: rows of TILE_K numbers, whose 8 vectors change places by row, so
 * that loads of 8 rows have no bank conflicts ---- */

static __device__ __forceinline__ int tile_at(int row, int k)
{
    return row * TILE_K + ((k / 4 ^ (row & 7)) * 4 + k % 4);
}

/* What a warp has of c: ROWS blocks of 16 rows by COLUMNS blocks of 8 columns. */
template <int ROWS, int COLUMNS> struct warp_tile {
    float sum[ROWS][COLUMNS][4];
};

/* As load_matrices, of floats. */
static __device__ __forceinline__ void load_blocks(float x[4], const float *row)
{
    uint32_t words[4] = {};
    load_matrices(words, row);
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = __uint_as_float(words[i]);
}

/* A row of the tile: its result's place on the source, before the shift of a tap. */
struct tile_row {
    uint32_t image; /* where its image begins */
    int row, column;
};

/* ---- phases: going back, results of one residue of the stride go together ---- */

/* Results of a phase along one axis. */
static inline __host__ __device__ int phase_count(const tf32x3_axis &a, bool back, int phase)
{
    return back ? (a.result - phase + a.stride - 1) / a.stride : a.result;
}

/* ---- steps over k ---- */

/* The position of tap p of result u on the source, less u mul. Going back, result u of a phase is
 * at phase + u stride, and some taps belong to other phases: false. */
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

/* The first tap of this phase that is not before the step's; p = taps where none is left. */
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
struct output_index {
    int image, row, column;
};

/* ---- loads ---- */

/* The result of row m of all that belong to the phase; false past the last. */
static __device__ __forceinline__ bool output_index_of(const tf32x3_conv &k, int64_t m, int rows,
                                                       int columns, output_index &p)
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
        output_index at;
        const bool valid = output_index_of(k, first_m + threadIdx.x, rows, columns, at);
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
static __device__ __noinline__ float sum_again(const tf32x3_conv &k, const output_index &at,
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

/* The pixel of a result, and the channel that column n is. */
struct tile_target {
    int row, column, channel;
    bool exists;
};

static __device__ __forceinline__ tile_target target_of(const rg_conv_shape &s,
                                                        const tf32x3_conv &k,
                                                        const output_index &at, int row_phase,
                                                        int column_phase, int n)
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
    const int lane = (int)threadIdx.x % WARP_THREADS;
#pragma unroll
    for (int i = 0; i < 2 * ROWS; i++) {
        output_index at;
        if (!output_index_of(k, first_m + 8 * i + lane / 4, rows, columns, at))
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

/* ---- dw: again a product of matrices. Rows are channels of windows, columns are weights of one of
 * them, and k goes over windows: dw(o, n) = sum over windows of dy(window, o) x(where weight n lies
 * on it). Windows are cut into parts by shape alone; a kernel joins their sums ---- */

enum { WEIGHTS_N = 128, WEIGHTS_PITCH = 8 }; /* columns of a tile; numbers after each line of one */

struct tf32x3_weights {
    const float *x, *dy;
    float *partials; /* (part, out, taps, in) */
    tf32x3_axis row, column;
    int images, in, out, taps;
    int windows, part;          /* in all; of one part, a multiple of TILE_K */
    small_divider across, down; /* by windows of a row, by rows */
};

/* The position of window i on x; one past the last has none. */
static __device__ __forceinline__ tile_row row_of_window(const tf32x3_weights &k, int i)
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
        copy_or_zero<BYTES>(a + (line + i * LINES) * (M + WEIGHTS_PITCH) + number,
                            valid ? k.dy + (uint32_t)window * (uint32_t)k.out + o + number : k.dy,
                            valid);
    }
}

/* Lines of x: WEIGHTS_N weights' numbers of the windows of `rows`; a thread has the same weights.
 */
template <int BYTES>
static __device__ __forceinline__ void load_x(const tf32x3_weights &k, const tile_row rows[],
                                              int left, int n, float *b)
{
    enum { EACH = BYTES / 4, ACROSS = WEIGHTS_N / EACH, LINES = THREADS / ACROSS };
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
        copy_or_zero<BYTES>(b + (line + i * LINES) * (WEIGHTS_N + WEIGHTS_PITCH) + number,
                            valid ? k.x + at + channel : k.x, valid);
    }
}

/* The positions of the windows of a step: steps alternate between two buffers. */
static __device__ __forceinline__ void find_windows(const tf32x3_weights &k, int begin, int step,
                                                    tile_row lines[2][TILE_K])
{
    if (threadIdx.x < TILE_K)
        lines[step % 2][threadIdx.x] =
            row_of_window(k, (int)((uint32_t)(begin + step * TILE_K) + threadIdx.x));
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
        load_x<BYTES>(k, lines[step % 2], end - first, first_n,
                      stage + TILE_K * (M + WEIGHTS_PITCH));
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
        const tile_row r = row_of_window(k, i);
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
static __device__ __forceinline__ void store_partials(const tf32x3_weights &k,
                                                      const warp_tile<ROWS, COLUMNS> &c, int begin,
                                                      int end, int first_o, int first)
{
    const int lane = (int)threadIdx.x % WARP_THREADS, weights = k.taps * k.in;
    float *to = k.partials + (int64_t)blockIdx.z * k.out * weights;
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

/* ---- conv_tf32x3_hopper.cu ---- */

/* Whether the device is a Hopper, and this build has code for it. */
extern "C" bool rg_conv_tf32x3_has_hopper(void);

/* Channels are whole vectors. */
extern "C" void rg_conv_tf32x3_hopper(const rg_conv_args *args, const tf32x3_conv *k, int64_t count,
                                      scratch_arena *arena);
extern "C" void rg_conv_tf32x3_hopper_weights(const tf32x3_weights *k, int parts,
                                              const rg_cuda_target *target);

#endif
