/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* dw of parts of the windows where these have 3 by 3 taps: see conv_depthwise_3x3.cuh. SHARES_3X3
 * threads share the columns of a part, COLUMNS_3X3 at a time. */
#include "ops/conv/conv_depthwise_3x3.cuh"

enum { SHARES_3X3 = 7, ACROSS_3X3 = 36 };

template <rg_dtype T, int V> struct sums_3x3 {
    real<T> w[9][V];
    real<T> dy[3][COLUMNS_3X3<T>][V]; /* rows of dy that meet a row of x, turning */
};

/* A row of x with the rows of dy that it meets: of tap row r, `rows` has bit r. Columns that are
 * not there are zeros. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void meet_row(sums_3x3<T, V> &s, int phase, int rows,
                                                const real<T> x[COLUMNS_3X3<T> + 2][V])
{
#pragma unroll
    for (int r = 0; r < 3; r++) {
        if (!(rows >> r & 1))
            continue;
#pragma unroll
        for (int j = 0; j < COLUMNS_3X3<T>; j++)
#pragma unroll
            for (int q = 0; q < 3; q++)
#pragma unroll
                for (int e = 0; e < V; e++)
                    s.w[r * 3 + q][e] =
                        fma(s.dy[rotated(phase, 2 - r)][j][e], x[j + q][e], s.w[r * 3 + q][e]);
    }
}

/* A row of x, and the row of dy whose first tap it is. */
template <rg_dtype T, int V> using rows_3x3 = rows_ahead<T, V, COLUMNS_3X3<T> + 2 + COLUMNS_3X3<T>>;

/* Columns of x from `left` on that there are, and behind them those of dy from j on. */
template <rg_dtype T>
static __device__ __forceinline__ int columns_of_both(const rg_conv_shape &s, int32_t left,
                                                      int32_t j)
{
    enum { WIDE = COLUMNS_3X3<T> + 2 };
    int inside = 0;
#pragma unroll
    for (int q = 0; q < WIDE; q++)
        inside |= (left + q >= 0 && left + q < (int32_t)s.column.size) << q;
#pragma unroll
    for (int n = 0; n < COLUMNS_3X3<T>; n++)
        inside |= (j + n < (int32_t)s.column.count) << (WIDE + n);
    return inside;
}

/* Windows first <= i < end of an image, columns from j on. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void
sum_strip(const rg_conv_depthwise_parts_args &k, rows_3x3<T, V> &ahead, sums_3x3<T, V> &s,
          int32_t image, int32_t first, int32_t end, int32_t j, int32_t c)
{
    enum { C = COLUMNS_3X3<T>, WIDE = C + 2, AHEAD = rows_3x3<T, V>::AHEAD };
    const rg_conv_shape &shape = k.shape;
    const int32_t size = (int32_t)shape.row.size, before = (int32_t)shape.row.before;
    const int32_t left = j - (int32_t)shape.column.before;
    const int inside = columns_of_both<T>(shape, left, j);
    const element<T> *x = (const element<T> *)k.x + image * shape.x[0] +
                          (first - before) * shape.x[1] + left * shape.x[2] + c * shape.x[3];
    const element<T> *dy = (const element<T> *)k.dy + image * shape.y[0] + first * shape.y[1] +
                           j * shape.y[2] + c * shape.y[3];
    /* row i of dy and the row of x of its first tap */
    const auto load_rows = [&](int stage, int32_t i) {
        const bool row = i - before >= 0 && i - before < size && i < end + 2;
        const int there = (row ? inside : 0) & ((1 << WIDE) - 1);
        const int given = i < end ? inside : 0;
        const element<T> *from = x;
#pragma unroll
        for (int q = 0; q < WIDE; q++, from += shape.x[2])
            ahead.load(stage, q, from, there >> q & 1 ? ahead.BYTES : 0);
        from = dy;
#pragma unroll
        for (int q = WIDE; q < WIDE + C; q++, from += shape.y[2])
            ahead.load(stage, q, from, given >> q & 1 ? ahead.BYTES : 0);
        ahead.end_row();
        x += shape.x[1];
        dy += shape.y[1];
    };
    const auto take_rows = [&](auto phase, int32_t i) {
        real<T> here[WIDE][V];
        ahead.await();
#pragma unroll
        for (int q = 0; q < WIDE; q++)
            ahead.take(decltype(phase)::value, q, here[q]);
#pragma unroll
        for (int n = 0; n < C; n++)
            ahead.take(decltype(phase)::value, WIDE + n,
                       s.dy[rotated(decltype(phase)::value, 2)][n]);
        load_rows(rotated(decltype(phase)::value, AHEAD), i + AHEAD);
        if (i - before < 0 || i - before >= size)
            return;
        const int rows = (i < end) | (i - 1 >= first && i - 1 < end) << 1 | (i - 2 >= first) << 2;
        meet_row<T, V>(s, decltype(phase)::value, rows, here);
    };
#pragma unroll
    for (int n = 0; n < AHEAD; n++)
        load_rows(n, first + n);
    for (int32_t i = first; i < end + 2; i += 3) {
        take_rows(number<0>(), i);
        if (i + 1 < end + 2)
            take_rows(number<1>(), i + 1);
        if (i + 2 < end + 2)
            take_rows(number<2>(), i + 2);
    }
    ahead.drop();
}

/* What a thread has of one weight once more, product by product in the same order: a column that is
 * not there is no part of a sum, but 0 times an infinity is NaN. */
template <rg_dtype T>
static __device__ __noinline__ real<T> sum_part(const rg_conv_depthwise_parts_args &k,
                                                int64_t begin, int64_t end, int32_t lane, int tap,
                                                int64_t c)
{
    enum { C = COLUMNS_3X3<T> };
    const rg_conv_shape &s = k.shape;
    const int32_t columns = (int32_t)s.column.count;
    real<T> sum = 0;
    for (int32_t first = lane * C; first < columns; first += SHARES_3X3 * C) {
        for (int64_t n = begin; n < end; n++) {
            const int64_t image = n / s.row.count, i = n - image * s.row.count;
            const int64_t r = i - s.row.before + tap / 3;
            for (int32_t j = first; j < first + C && j < columns; j++) {
                const int64_t t = j - s.column.before + tap % 3;
                if (r >= 0 && r < s.row.size && t >= 0 && t < s.column.size)
                    sum = fma(load<T>(k.dy, image * s.y[0] + i * s.y[1] + j * s.y[2] + c * s.y[3]),
                              load<T>(k.x, image * s.x[0] + r * s.x[1] + t * s.x[2] + c * s.x[3]),
                              sum);
            }
        }
    }
    return sum;
}

/* Letting the sum over all of these begin before the last one has ended cost 3 us per call on an
 * H200 (144 channels at 56, batch 128, f16). */
template <rg_dtype T, int V>
static __global__ void __launch_bounds__(SHARES_3X3 *ACROSS_3X3, 2)
    depthwise_3x3_parts(const __grid_constant__ rg_conv_depthwise_parts_args k, int across,
                        int chunks, int vectors)
{
    enum { C = COLUMNS_3X3<T> };
    extern __shared__ __align__(16) char shared_3x3[]; /* for rows, and at the end for sums */
    real<T> *const shared = (real<T> *)shared_3x3;
    const rg_conv_shape &shape = k.shape;
    rows_3x3<T, V> ahead(shared_3x3);
    const int lane = (int)threadIdx.x / across, x = (int)threadIdx.x - lane * across;
    const int part = (int)blockIdx.x / chunks, v = ((int)blockIdx.x - part * chunks) * across + x;
    const int32_t rows = (int32_t)(shape.images * shape.row.count);
    const int32_t begin = part * (int32_t)k.part;
    const int32_t end = rows - begin > (int32_t)k.part ? begin + (int32_t)k.part : rows;
    const int32_t count = (int32_t)shape.row.count, columns = (int32_t)shape.column.count;
    sums_3x3<T, V> s = {};
    for (int32_t j = lane * C; v < vectors && j < columns; j += SHARES_3X3 * C) {
        for (int32_t n = begin; n < end;) {
            const int32_t image = n / count, first = n - image * count;
            const int32_t last = end - n < count - first ? first + end - n : count;
            sum_strip<T, V>(k, ahead, s, image, first, last, j, v * V);
            n += last - first;
        }
    }
    const int threads = SHARES_3X3 * across;
    __syncthreads();
    bool fine = true;
#pragma unroll
    for (int t = 0; t < 9; t++)
#pragma unroll
        for (int e = 0; e < V; e++) {
            shared[(t * V + e) * threads + threadIdx.x] = s.w[t][e];
            fine &= (bool)isfinite(s.w[t][e]);
        }
    for (int n = 0; !fine && n < 9 * V; n++)
        if (!isfinite(shared[n * threads + threadIdx.x]))
            shared[n * threads + threadIdx.x] =
                sum_part<T>(k, begin, end, lane, n / V, v * V + n % V);
    __syncthreads();
    for (int n = (int)threadIdx.x; n < 9 * V * across; n += threads) {
        const int tap = n / (V * across), channel = n - tap * V * across;
        const int64_t c = ((int)blockIdx.x - part * chunks) * across * V + channel;
        const real<T> *from = shared + (tap * V + channel % V) * threads + channel / V;
        real<T> sum = from[0];
        for (int i = 1; i < SHARES_3X3; i++)
            sum += from[i * across];
        if (c < shape.groups)
            ((real<T> *)k.partial)[((int64_t)part * 9 + tap) * shape.groups + c] = sum;
    }
}

template <rg_dtype T>
static void launch_parts(const rg_conv_depthwise_parts_args *k, bool wide,
                         const rg_cuda_place *place)
{
    enum { V = DEPTHWISE_LANES<T> };
    const int64_t vectors = k->shape.groups / (wide ? V : 1);
    const int64_t chunks = ceil_div(vectors, ACROSS_3X3);
    const int across = (int)ceil_div(vectors, chunks);
    const size_t threads = (size_t)across * SHARES_3X3;
    const size_t sums = 9 * threads * (wide ? V : 1) * sizeof(real<T>);
    const size_t rows = wide ? rows_3x3<T, V>::bytes(threads) : 0;
    const size_t shared = rows > sums ? rows : sums;
    void (*const kernel)(rg_conv_depthwise_parts_args, int, int, int) =
        wide ? depthwise_3x3_parts<T, V> : depthwise_3x3_parts<T, 1>;
    if (wide && !allow_shared((const void *)kernel, shared))
        launch_parts<T>(k, false, place); /* whose bits are the same */
    else
        launch(kernel, k->parts * chunks, (int64_t)threads, shared, place, *k, across, (int)chunks,
               (int)vectors);
}

extern "C" bool rg_conv_depthwise_3x3_accepts(const rg_conv_depthwise_parts_args *k)
{
    return rg_conv_is_3x3(&k->shape) && k->shape.column.count <= SHARES_3X3 * RG_SUM_RUN;
}

extern "C" void rg_conv_depthwise_3x3_parts(rg_dtype dtype, const rg_conv_depthwise_parts_args *k,
                                            bool wide, const rg_cuda_place *place)
{
    static void (*const by_dtype[])(const rg_conv_depthwise_parts_args *, bool,
                                    const rg_cuda_place *) = CONV_BY_DTYPE(launch_parts);
    by_dtype[dtype](k, wide, place);
}
