/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pad on a GPU. A thread goes down a column of the result. */
#include "backend/cuda/image.cuh"
#include "backend/cuda/long_sum.cuh"
#include "ops/pad/pad.h"

#include <type_traits>

/* The offset of an element in `from` (t = 0) or `to` (t = 1). */
static __device__ __forceinline__ int64_t offset_of(const rg_pad_args &k, int t, int64_t n,
                                                    int64_t h, int64_t w, int64_t c)
{
    const int64_t *const s = k.strides[t];
    return n * s[0] + h * s[1] + w * s[2] + c * s[3];
}

/* ---- forward ---- */

/* What fills the channels of a thread. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void load_fill(const rg_pad_args &k, int64_t channel,
                                                 real<T> value[LANES<T, WIDE>])
{
    if (k.fill != NULL) {
        load_lanes<T, WIDE>(k.fill, channel * k.fill_stride, value);
        return;
    }
#pragma unroll
    for (int e = 0; e < LANES<T, WIDE>; e++)
        value[e] = (real<T>)k.value;
}

template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(IMAGE_THREADS)
    forward_columns(const __grid_constant__ rg_pad_args k, const image_cut cut)
{
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const image_index p = image_index_of<T, WIDE>(cut, b, k.axes[1].out, k.axes[2].out);
        if (!p.used)
            continue;
        const int64_t n = rg_pad_source(&k.axes[0], p.image);
        const int64_t w = rg_pad_source(&k.axes[2], p.column);
        const int64_t c = rg_pad_source(&k.axes[3], p.channel); /* with WIDE: of all lanes */
        for (int r = 0; r < p.rows; r++) {
            const int64_t h = rg_pad_source(&k.axes[1], p.row + r);
            real<T> value[LANES<T, WIDE>];
            if (n >= 0 && h >= 0 && w >= 0 && c >= 0)
                load_lanes<T, WIDE>(k.from, offset_of(k, 0, n, h, w, c), value);
            else
                load_fill<T, WIDE>(k, p.channel, value);
            store_lanes<T, WIDE>(k.to, offset_of(k, 1, p.image, p.row + r, p.column, p.channel),
                                 value, false, k.stream);
        }
    }
}

/* ---- gradient: dx gathers; sums of a row of dy first, then of rows ---- */

/* The copies of an element, or of a vector that has at most one along the channels. Sums start with
 * -0, which leaves what is added as it is; without any copy they are 0. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void gather(const rg_pad_args &k, const image_index &p,
                                              int64_t row, real<T> sum[LANES<T, WIDE>])
{
    enum { V = LANES<T, WIDE> };
    int64_t n, h, w, c;
    bool any = false;
#pragma unroll
    for (int e = 0; e < V; e++)
        sum[e] = (real<T>)-0.0;
    for (rg_pad_copies images = rg_pad_copies_of(&k.axes[0], p.image); rg_pad_next(&images, &n);) {
        for (rg_pad_copies rows = rg_pad_copies_of(&k.axes[1], row); rg_pad_next(&rows, &h);) {
            real<T> part[V], dy[V];
#pragma unroll
            for (int e = 0; e < V; e++)
                part[e] = (real<T>)-0.0;
            rg_pad_copies columns = rg_pad_copies_of(&k.axes[2], p.column);
            while (rg_pad_next(&columns, &w)) {
                rg_pad_copies channels = rg_pad_copies_of(&k.axes[3], p.channel);
                for (; rg_pad_next(&channels, &c); any = true) {
                    load_lanes<T, WIDE>(k.from, offset_of(k, 0, n, h, w, c), dy);
#pragma unroll
                    for (int e = 0; e < V; e++)
                        part[e] += dy[e];
                }
            }
#pragma unroll
            for (int e = 0; e < V; e++)
                sum[e] += part[e];
        }
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        sum[e] = any ? sum[e] : 0;
}

/* The same where there are so many that plain chains of additions would lose digits. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void gather_many(const rg_pad_args &k, const image_index &p,
                                                   int64_t row, real<T> sum[LANES<T, WIDE>])
{
    enum { V = LANES<T, WIDE> };
    int64_t n, h, w, c;
    long_chain<real<T>, V> all;
    for (rg_pad_copies images = rg_pad_copies_of(&k.axes[0], p.image); rg_pad_next(&images, &n);) {
        for (rg_pad_copies rows = rg_pad_copies_of(&k.axes[1], row); rg_pad_next(&rows, &h);
             all.count()) {
            real<T> dy[V];
            long_chain<real<T>, V> part;
            rg_pad_copies columns = rg_pad_copies_of(&k.axes[2], p.column);
            while (rg_pad_next(&columns, &w)) {
                rg_pad_copies channels = rg_pad_copies_of(&k.axes[3], p.channel);
                for (; rg_pad_next(&channels, &c); part.count()) {
                    load_lanes<T, WIDE>(k.from, offset_of(k, 0, n, h, w, c), dy);
#pragma unroll
                    for (int e = 0; e < V; e++)
                        part.run[e] += dy[e];
                }
            }
            part.end(dy);
#pragma unroll
            for (int e = 0; e < V; e++)
                all.run[e] += dy[e];
        }
    }
    all.end(sum);
}

/* Whether index i has no copy but i + before. */
static __device__ __forceinline__ bool is_single(const rg_pad_axis &axis, int64_t i)
{
    return i >= axis.begin && i < axis.end;
}

/* Row `row` of the image among those of the thread. */
static __device__ __forceinline__ int row_within(int64_t row, const image_index &p)
{
    const int64_t r = row - p.row;
    return r < 0 ? 0 : r > p.rows ? p.rows : (int)r;
}

/* Rows `first` to `end` of the thread's, which have one copy each: several in flight at once. */
template <rg_dtype T, bool WIDE>
static __device__ __forceinline__ void copy_rows(const rg_pad_args &k, const image_index &p,
                                                 int first, int end)
{
    enum { ROWS = 8 };
    typedef std::conditional_t<WIDE, uint4, element<T>> lanes;
    const char *from =
        at<T>(k.from, offset_of(k, 0, p.image + k.axes[0].before, p.row + first + k.axes[1].before,
                                p.column + k.axes[2].before, p.channel + k.axes[3].before));
    char *to = at<T>(k.to, offset_of(k, 1, p.image, p.row + first, p.column, p.channel));
    const int64_t from_step = k.strides[0][1], to_step = k.strides[1][1];
    for (int r = first; r < end; r += ROWS) {
        lanes held[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (r + i < end)
                held[i] = *(const lanes *)at<T>(from, i * from_step);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            real<T> x[LANES<T, WIDE>];
            if (r + i >= end)
                break;
            if constexpr (WIDE)
                unpack<T>(held[i], x);
            else
                x[0] = to_real<T>(held[i]);
            store_lanes<T, WIDE>(to, i * to_step, x, k.add, k.stream);
        }
        from = at<T>(from, ROWS * from_step);
        to = at<T>(to, ROWS * to_step);
    }
}

/* Whether elements of this column of the result have one copy wherever the row has. */
static __device__ __forceinline__ bool is_single_column(const rg_pad_args &k, const image_index &p)
{
    return is_single(k.axes[0], p.image) && is_single(k.axes[2], p.column) &&
           is_single(k.axes[3], p.channel);
}

/* Elements with one copy. A kernel of its own, because sums need many registers. */
template <rg_dtype T, bool WIDE>
static __global__ void __launch_bounds__(IMAGE_THREADS)
    single_columns(const __grid_constant__ rg_pad_args k, const image_cut cut)
{
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const image_index p = image_index_of<T, WIDE>(cut, b, k.axes[1].in, k.axes[2].in);
        if (p.used && is_single_column(k, p))
            copy_rows<T, WIDE>(k, p, row_within(k.axes[1].begin, p), row_within(k.axes[1].end, p));
    }
}

/* All others. MANY: some elements have more copies than a plain chain may add; a kernel of its own,
 * because one that decides for each element needs the registers of both. */
template <rg_dtype T, bool WIDE, bool MANY>
static __global__ void __launch_bounds__(IMAGE_THREADS)
    gradient_columns(const __grid_constant__ rg_pad_args k, const image_cut cut)
{
    for (int64_t b = blockIdx.x; b < cut.blocks; b += gridDim.x) {
        const image_index p = image_index_of<T, WIDE>(cut, b, k.axes[1].in, k.axes[2].in);
        if (!p.used)
            continue;
        const bool single = is_single_column(k, p);
        for (int r = 0; r < p.rows; r++) {
            const int64_t row = p.row + r;
            real<T> sum[LANES<T, WIDE>];
            if (single && is_single(k.axes[1], row))
                continue;
            if constexpr (MANY)
                gather_many<T, WIDE>(k, p, row, sum);
            else
                gather<T, WIDE>(k, p, row, sum);
            store_lanes<T, WIDE>(k.to, offset_of(k, 1, p.image, row, p.column, p.channel), sum,
                                 k.add, k.stream);
        }
    }
}

/* ---- gradient of fill: a block has 32 channels, thread row t of 32 every 32nd row of dy ---- */

enum { FILL_CHANNELS = 32, FILL_THREADS = 1024 };

template <rg_dtype T>
static __device__ __forceinline__ real<T> sum_pixels(const rg_pad_args &k, int64_t row,
                                                     int64_t begin, int64_t end)
{
    long_chain<real<T>, 1> chain;
    for (int64_t w = begin; w < end; w++, chain.count())
        chain.run[0] += load<T>(k.from, row + w * k.strides[0][2]);
    real<T> sum;
    chain.end(&sum);
    return sum;
}

template <rg_dtype T>
static __global__ void __launch_bounds__(FILL_THREADS)
    fill_channels(const __grid_constant__ rg_pad_args k)
{
    __shared__ real<T> partial[FILL_THREADS];
    enum { STEP = FILL_THREADS / FILL_CHANNELS };
    const rg_pad_axis &columns = k.axes[2];
    const int64_t blocks = (k.axes[3].out + FILL_CHANNELS - 1) / FILL_CHANNELS;
    for (int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        const int64_t c = b * FILL_CHANNELS + threadIdx.x % FILL_CHANNELS;
        real<T> sum[1];
        long_chain<real<T>, 1> all;
        const int64_t rows = c < k.axes[3].out ? k.axes[0].out * k.axes[1].out : 0;
        for (int64_t i = threadIdx.x / FILL_CHANNELS; i < rows; i += STEP, all.count()) {
            const int64_t n = i / k.axes[1].out, h = i % k.axes[1].out;
            const int64_t row = offset_of(k, 0, n, h, 0, c);
            real<T> part = sum_pixels<T>(k, row, 0, columns.begin);
            part += sum_pixels<T>(k, row, columns.end, columns.out);
            if (rg_pad_source(&k.axes[0], n) < 0 || rg_pad_source(&k.axes[1], h) < 0 ||
                rg_pad_source(&k.axes[3], c) < 0)
                part += sum_pixels<T>(k, row, columns.begin, columns.end);
            all.run[0] += part;
        }
        all.end(sum);
        reduce_down<1>(sum, FILL_CHANNELS, partial, false);
        if (threadIdx.x < FILL_CHANNELS && c < k.axes[3].out) {
            const int64_t to = c * k.strides[1][3];
            store<T>(k.to, to, k.add ? load<T>(k.to, to) + sum[0] : sum[0]);
        }
        __syncthreads();
    }
}

/* ---- launches ---- */

/* Whether a vector of channels is inside or outside as a whole, and aligned. */
template <rg_dtype T> static bool is_wide(const rg_pad_args *k)
{
    const rg_pad_axis *c = &k->axes[3];
    const bool whole = c->edge == RG_EDGE_FILL || (c->before == 0 && c->in == c->out);
    return k->dense && whole && (c->in | c->out | c->before) % VLEN<T> == 0 &&
           (uintptr_t)k->fill % 16 == 0 && is_wide_image<T>(k->from, k->to, k->strides);
}

template <rg_dtype T> static void pad_forward(const void *args, const rg_cuda_target *target)
{
    const rg_pad_args *k = (const rg_pad_args *)args;
    const bool wide = is_wide<T>(k);
    launch_image<T>(wide ? forward_columns<T, true> : forward_columns<T, false>, k, wide,
                    k->axes[0].out, k->axes[1].out, k->axes[2].out, k->axes[3].out, target);
}

template <rg_dtype T> static void pad_gradient(const void *args, const rg_cuda_target *target)
{
    const rg_pad_args *k = (const rg_pad_args *)args;
    const bool wide = is_wide<T>(k);
    const auto columns =
        wide ? gradient_columns<T, true, false> : gradient_columns<T, false, false>;
    const auto many = wide ? gradient_columns<T, true, true> : gradient_columns<T, false, true>;
    bool any = true, all = true; /* have one copy */
    for (int d = 0; d < 4; d++) {
        any &= k->axes[d].begin < k->axes[d].end;
        all &= k->axes[d].begin <= 0 && k->axes[d].end >= k->axes[d].in;
    }
    if (any)
        launch_image<T>(wide ? single_columns<T, true> : single_columns<T, false>, k, wide,
                        k->axes[0].in, k->axes[1].in, k->axes[2].in, k->axes[3].in, target);
    if (!all)
        launch_image<T>(rg_pad_has_more(k->axes, RG_CHAIN_RUN) ? many : columns, k, wide,
                        k->axes[0].in, k->axes[1].in, k->axes[2].in, k->axes[3].in, target);
}

template <rg_dtype T> static void pad_gradient_fill(const void *args, const rg_cuda_target *target)
{
    const rg_pad_args *k = (const rg_pad_args *)args;
    const int64_t most_blocks = 1 << 30, blocks = ceil_div(k->axes[3].out, FILL_CHANNELS);
    launch(fill_channels<T>, blocks < most_blocks ? blocks : most_blocks, FILL_THREADS, 0, target,
           *k);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_PAD_FORWARD, pad_forward),
    RG_CUDA_ROW(RG_PAD_GRADIENT, pad_gradient),
    RG_CUDA_ROW(RG_PAD_GRADIENT_FILL, pad_gradient_fill),
};
RG_CUDA_TABLE(pad, kernel_rows);
