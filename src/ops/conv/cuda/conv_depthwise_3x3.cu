/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution with windows of 3 by 3, all steps 1, of which there are most. A thread
 * has V neighbouring channels of some neighbouring columns and goes down rows: each pixel is
 * loaded some rows ahead, converted once, and used for all results that see it. Bits do not
 * depend on V, which is 1 where memory does not consist of vectors. */
#include "ops/conv/cuda/conv_depthwise.cuh"

/* ---- forward and data ---- */

enum { THREADS_3X3 = 128, MOST_ROWS_3X3 = 28, LEAST_ROWS_3X3 = 7 };

struct grid_3x3 {
    int32_t vectors, columns, rows;    /* of the result */
    int32_t strips, span;              /* of the result: strips, rows of one */
    int32_t sources, source_columns;   /* rows and columns of the source */
    int32_t row_offset, column_offset; /* the first tap of result 0 */
    int32_t blocks;                    /* of a strip */
};

/* A result at the border that is not finite, recomputed without the taps that lie outside. */
template <rg_dtype T>
static __device__ __noinline__ real<T> sum_3x3(const depthwise_args &k, const grid_3x3 &g,
                                               bool data, int64_t image, int32_t row,
                                               int32_t column, int32_t c)
{
    const rg_conv_shape &s = k.shape;
    const int64_t *const step = data ? s.y : s.x;
    real<T> sum = 0;
    for (int t = 0; t < 9; t++) {
        const int32_t r = row + g.row_offset + t / 3, q = column + g.column_offset + t % 3;
        const int tap = data ? 8 - t : t;
        if (r < 0 || r >= g.sources || q < 0 || q >= g.source_columns)
            continue;
        const int64_t w = s.w_first + c * s.w[0] + tap / 3 * s.w[2] + tap % 3 * s.w[3];
        sum = fma(load<T>(k.from, image * step[0] + r * step[1] + q * step[2] + c * step[3]),
                  load<T>(k.w, w), sum);
    }
    return sum;
}

/* Weights of all channels of a block, of which neighbouring threads have neighbouring ones: through
 * shared memory, so that they are loaded in the order of memory. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void load_3x3(const depthwise_args &k, bool data, int32_t vectors,
                                                int32_t first, real<T> shared[9][THREADS_3X3 * V],
                                                real<T> w[9][V])
{
    const rg_conv_shape &s = k.shape;
    const int32_t own = vectors < THREADS_3X3 ? vectors : THREADS_3X3;
    for (int32_t n = (int32_t)threadIdx.x; n < own * V * 9; n += THREADS_3X3) {
        const int32_t slot = n / 9, t = n - slot * 9, tap = data ? 8 - t : t;
        const int64_t c = (int64_t)((first + slot / V) % vectors) * V + slot % V;
        shared[t][slot] =
            load<T>(k.w, s.w_first + c * s.w[0] + tap / 3 * s.w[2] + tap % 3 * s.w[3]);
    }
    __syncthreads();
    const int32_t slot = (int32_t)threadIdx.x % own * V;
#pragma unroll
    for (int t = 0; t < 9; t++)
#pragma unroll
        for (int e = 0; e < V; e++)
            w[t][e] = shared[t][slot + e];
}

/* A row of the source: it is the last one of the oldest sums, and the first one of the newest. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void add_row(int phase, const real<T> x[COLUMNS_3X3<T> + 2][V],
                                               const real<T> w[9][V],
                                               real<T> sum[3][COLUMNS_3X3<T>][V])
{
#pragma unroll
    for (int j = 0; j < COLUMNS_3X3<T>; j++)
#pragma unroll
        for (int q = 0; q < 3; q++)
#pragma unroll
            for (int r = 0; r < 3; r++)
#pragma unroll
                for (int e = 0; e < V; e++) {
                    real<T> &to = sum[rotated(phase, r)][j][e];
                    to = r == 2 && q == 0 ? x[j][e] * w[0][e] /* the newest begin here */
                                          : fma(x[j + q][e], w[(2 - r) * 3 + q][e], to);
                }
}

/* The position of a thread, and which of its columns of the source exist. */
template <rg_dtype T> struct index_3x3 {
    const element<T> *from; /* the row that is loaded next, at the first of its columns */
    int64_t image;
    int32_t row, column, c, inside;
};

/* Thread n, of column group `group`, at row `first`. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void
image_index_of(index_3x3<T> &p, const depthwise_args &k, const grid_3x3 &g, const int64_t *step,
               int32_t n, int32_t group, int32_t image, int32_t first)
{
    enum { C = COLUMNS_3X3<T>, WIDE = C + 2 };
    p.image = image;
    p.column = group * C;
    p.c = (n - group * g.vectors) * V;
    const int32_t left = p.column + g.column_offset;
#pragma unroll
    for (int q = 0; q < WIDE; q++)
        p.inside |= (left + q >= 0 && left + q < g.source_columns) << q;
    p.row = first + g.row_offset;
    p.from = (const element<T> *)k.from + image * step[0] + p.row * step[1] + left * step[2] +
             p.c * step[3];
}

/* Result (i, j), with the epilogue. */
template <rg_dtype T, int V, bool DATA>
static __device__ __forceinline__ void end_3x3(const depthwise_args &k, bool plain,
                                               const index_3x3<T> &p, int32_t i, int32_t j,
                                               real<T> sum[V])
{
    const int64_t *const step = DATA ? k.shape.x : k.shape.y;
    finish_channels<T, V>(k, plain, p.image * step[0] + i * step[1] + j * step[2],
                          p.image * k.z_step[0] + i * k.z_step[1] + j * k.z_step[2], p.c,
                          V > 1 ? 1 : step[3], sum);
}

static __device__ __forceinline__ bool meets_border(const grid_3x3 &g, int32_t i)
{
    return i + g.row_offset < 0 || i + g.row_offset + 3 > g.sources;
}

/* Recomputes the results of a thread at the border, where one of them was not finite. */
template <rg_dtype T, int V, bool DATA>
static __device__ __noinline__ void resum_3x3(const depthwise_args &k, const grid_3x3 &g,
                                              const index_3x3<T> &p, int32_t first, int32_t end)
{
    enum { C = COLUMNS_3X3<T>, WHOLE = (1 << (C + 2)) - 1 };
    for (int32_t i = first; i < end; i++) {
        for (int32_t j = p.column; j < p.column + C && j < g.columns; j++) {
            if (p.inside == WHOLE && !meets_border(g, i))
                continue;
            real<T> sum[V];
            for (int e = 0; e < V; e++)
                sum[e] = sum_3x3<T>(k, g, DATA, p.image, i, j, p.c + e);
            end_3x3<T, V, DATA>(k, true, p, i, j, sum);
        }
    }
}

/* PLAIN: see the args; else results are recomputed one by one, since what was added to is gone.
 * `bad`: a result at the border is not finite. */
template <rg_dtype T, int V, bool DATA, bool PLAIN>
static __device__ __forceinline__ void store_3x3(const depthwise_args &k, const grid_3x3 &g,
                                                 const index_3x3<T> &p, int32_t i,
                                                 real<T> sum[COLUMNS_3X3<T>][V], bool &bad)
{
    enum { C = COLUMNS_3X3<T>, WHOLE = (1 << (C + 2)) - 1 };
    const int64_t *const step = DATA ? k.shape.x : k.shape.y;
    if (p.inside != WHOLE || meets_border(g, i)) {
#pragma unroll
        for (int n = 0; n < C; n++)
#pragma unroll
            for (int e = 0; e < V; e++) {
                const bool again = p.column + n < g.columns && !isfinite(sum[n][e]);
                if (PLAIN)
                    bad |= again;
                else if (again)
                    sum[n][e] = sum_3x3<T>(k, g, DATA, p.image, i, p.column + n, p.c + e);
            }
    }
    if (PLAIN && !k.has_b && k.neuron.kind == RG_NEURON_NONE) {
        element<T> *to =
            (element<T> *)k.to + p.image * step[0] + i * step[1] + p.column * step[2] + p.c;
#pragma unroll
        for (int n = 0; n < C; n++)
            if (p.column + n < g.columns)
                store_channels<T, V>(to, n * step[2], sum[n], k.stream);
        return;
    }
#pragma unroll
    for (int n = 0; n < C; n++)
        if (p.column + n < g.columns)
            end_3x3<T, V, DATA>(k, PLAIN, p, i, p.column + n, sum[n]);
}

/* Bytes of the weights of a block in shared memory. */
template <rg_dtype T, int V>
constexpr size_t WEIGHT_BYTES_3X3 = 9 * THREADS_3X3 *V * sizeof(real<T>);

template <rg_dtype T, int V, bool DATA, bool PLAIN>
static __global__ void __launch_bounds__(THREADS_3X3, 4)
    depthwise_3x3_rows(const __grid_constant__ depthwise_args k, const __grid_constant__ grid_3x3 g)
{
    enum { C = COLUMNS_3X3<T>, WIDE = C + 2 };
    typedef rows_ahead<T, V, WIDE> rows;
    extern __shared__ __align__(16) char shared_3x3[];
    real<T>(*const shared)[THREADS_3X3 * V] = (real<T>(*)[THREADS_3X3 * V]) shared_3x3;
    const int64_t *const step = DATA ? k.shape.y : k.shape.x;
    const int32_t strip = blockIdx.x / g.blocks, block = blockIdx.x - strip * g.blocks;
    const int32_t n = block * THREADS_3X3 + threadIdx.x, group = n / g.vectors;
    const int32_t image = strip / g.strips, first = (strip - image * g.strips) * g.span;
    const int32_t end = first + g.span < g.rows ? first + g.span : g.rows;
    index_3x3<T> p = {};
    image_index_of<T, V>(p, k, g, step, n, group, image, first);
    rows ahead(shared_3x3 + WEIGHT_BYTES_3X3<T, V>);
    const auto load_row = [&](int stage, bool wanted) {
        const bool there = wanted && p.row >= 0 && p.row < g.sources && p.column < g.columns;
        const element<T> *from = p.from;
#pragma unroll
        for (int q = 0; q < WIDE; q++, from += step[2])
            ahead.load(stage, q, from, there && (p.inside >> q & 1) ? rows::BYTES : 0);
        ahead.end_row();
        p.from += step[1];
        p.row++;
    };
#pragma unroll
    for (int n = 0; n < rows::AHEAD; n++)
        load_row(n, first - 2 + n < end);
    real<T> w[9][V], sum[3][C][V] = {};
    load_3x3<T, V>(k, DATA, g.vectors, block * THREADS_3X3 % g.vectors, shared, w);
    bool bad = false;
    const auto take_row = [&](auto phase, int32_t i) {
        real<T> x[WIDE][V];
        ahead.await();
#pragma unroll
        for (int q = 0; q < WIDE; q++)
            ahead.take(decltype(phase)::value, q, x[q]);
        load_row(rotated(decltype(phase)::value, rows::AHEAD), i + rows::AHEAD < end);
        add_row<T, V>(decltype(phase)::value, x, w, sum);
        if (i >= first)
            store_3x3<T, V, DATA, PLAIN>(k, g, p, i, sum[rotated(decltype(phase)::value, 0)], bad);
    };
    /* i: the result whose last row it is */
    for (int32_t i = first - 2; i < end && p.column < g.columns; i += 3) {
        take_row(number<0>(), i);
        if (i + 1 < end)
            take_row(number<1>(), i + 1);
        if (i + 2 < end)
            take_row(number<2>(), i + 2);
    }
    ahead.drop();
    if (bad) {
        const index_3x3<T> target = p; /* so that p itself stays in registers */
        resum_3x3<T, V, DATA>(k, g, target, first, end);
    }
}

template <rg_dtype T, bool DATA>
static void (*kernel_3x3(bool wide, bool plain))(depthwise_args, grid_3x3)
{
    enum { V = DEPTHWISE_CHANNELS<T> };
    return !wide   ? depthwise_3x3_rows<T, 1, DATA, false>
           : plain ? depthwise_3x3_rows<T, V, DATA, true>
                   : depthwise_3x3_rows<T, V, DATA, false>;
}

template <rg_dtype T> static void launch_3x3(const depthwise_args *k, const rg_cuda_target *target)
{
    enum { V = DEPTHWISE_CHANNELS<T>, C = COLUMNS_3X3<T> };
    const rg_conv_shape *s = &k->shape;
    const bool data = k->data, wide = depthwise_wide<T>(k);
    grid_3x3 g;
    g.vectors = (int32_t)(s->groups / (wide ? V : 1));
    g.rows = (int32_t)(data ? s->row.size : s->row.count);
    g.columns = (int32_t)(data ? s->column.size : s->column.count);
    g.sources = (int32_t)(data ? s->row.count : s->row.size);
    g.source_columns = (int32_t)(data ? s->column.count : s->column.size);
    g.row_offset = (int32_t)(data ? s->row.before - 2 : -s->row.before);
    g.column_offset = (int32_t)(data ? s->column.before - 2 : -s->column.before);
    g.blocks = (int32_t)ceil_div(g.vectors * ceil_div(g.columns, C), THREADS_3X3);
    const int64_t wanted = 7 * (int64_t)target->multiprocessors; /* blocks, if rows are enough */
    g.span = MOST_ROWS_3X3;
    while (g.span > LEAST_ROWS_3X3 && s->images * ceil_div(g.rows, g.span) * g.blocks < wanted)
        g.span /= 2;
    g.strips = (int32_t)ceil_div(g.rows, g.span);
    const size_t shared = wide
                              ? WEIGHT_BYTES_3X3<T, V> + rows_ahead<T, V, C + 2>::bytes(THREADS_3X3)
                              : WEIGHT_BYTES_3X3<T, 1>;
    void (*const kernel)(depthwise_args, grid_3x3) =
        (data ? kernel_3x3<T, true> : kernel_3x3<T, false>)(wide, k->plain);
    (void)allow_shared((const void *)kernel, shared);
    launch(kernel, s->images * g.strips * g.blocks, THREADS_3X3, shared, target, *k, g);
}

extern "C" depthwise_3x3_launch *const rg_conv_depthwise_3x3[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(launch_3x3);

/* ---- partial sums of dw: SHARES_3X3 threads share columns, COLUMNS_3X3 at a time ---- */

template <rg_dtype T, int V> struct sums_3x3 {
    real<T> w[9][V];
    real<T> dy[3][COLUMNS_3X3<T>]
              [V]; /* the rows of dy that a row of x is multiplied by, as a ring */
};

/* A row of x times the rows of dy that see it: of tap row r, `rows` has bit r. Columns that are
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

/* Columns of x from `left` on that there are, then those of dy from j on. */
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

/* Rows of windows first <= i < end of an image, columns from j on, channels from c on. */
struct strip_3x3 {
    int32_t image, first, end, j, c;
};

template <rg_dtype T, int V>
static __device__ __forceinline__ void sum_strip(const depthwise_parts_args &k,
                                                 rows_3x3<T, V> &ahead, sums_3x3<T, V> &s,
                                                 const strip_3x3 &strip)
{
    enum { C = COLUMNS_3X3<T>, WIDE = C + 2, AHEAD = rows_3x3<T, V>::AHEAD };
    const rg_conv_shape &shape = k.shape;
    const int32_t first = strip.first, end = strip.end, j = strip.j;
    const int32_t size = (int32_t)shape.row.size, before = (int32_t)shape.row.before;
    const int32_t left = j - (int32_t)shape.column.before;
    const int inside = columns_of_both<T>(shape, left, j);
    const element<T> *x = (const element<T> *)k.x + strip.image * shape.x[0] +
                          (first - before) * shape.x[1] + left * shape.x[2] + strip.c * shape.x[3];
    const element<T> *dy = (const element<T> *)k.dy + strip.image * shape.y[0] +
                           first * shape.y[1] + j * shape.y[2] + strip.c * shape.y[3];
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
static __device__ __noinline__ real<T> sum_partial(const depthwise_parts_args &k, int64_t begin,
                                                   int64_t end, int32_t share, int tap, int64_t c)
{
    enum { C = COLUMNS_3X3<T> };
    const rg_conv_shape &s = k.shape;
    const int32_t columns = (int32_t)s.column.count;
    real<T> sum = 0;
    for (int32_t first = share * C; first < columns; first += SHARES_3X3 * C) {
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
    depthwise_3x3_partials(const __grid_constant__ depthwise_parts_args k, int across, int chunks,
                           int vectors)
{
    enum { C = COLUMNS_3X3<T> };
    extern __shared__ __align__(16) char shared_3x3[]; /* for rows, and at the end for sums */
    real<T> *const shared = (real<T> *)shared_3x3;
    const rg_conv_shape &shape = k.shape;
    rows_3x3<T, V> ahead(shared_3x3);
    const int share = (int)threadIdx.x / across, x = (int)threadIdx.x - share * across;
    const int part = (int)blockIdx.x / chunks, v = ((int)blockIdx.x - part * chunks) * across + x;
    const int32_t rows = (int32_t)(shape.images * shape.row.count);
    const int32_t begin = part * (int32_t)k.part;
    const int32_t end = rows - begin > (int32_t)k.part ? begin + (int32_t)k.part : rows;
    const int32_t count = (int32_t)shape.row.count, columns = (int32_t)shape.column.count;
    sums_3x3<T, V> s = {};
    for (int32_t j = share * C; v < vectors && j < columns; j += SHARES_3X3 * C) {
        for (int32_t n = begin; n < end;) {
            const int32_t image = n / count, first = n - image * count;
            const int32_t last = end - n < count - first ? first + end - n : count;
            sum_strip<T, V>(k, ahead, s, { image, first, last, j, v * V });
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
                sum_partial<T>(k, begin, end, share, n / V, v * V + n % V);
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
static void launch_partials(const depthwise_parts_args *k, bool wide, const rg_cuda_target *target)
{
    enum { V = DEPTHWISE_CHANNELS<T> };
    const int64_t vectors = k->shape.groups / (wide ? V : 1);
    const int64_t chunks = ceil_div(vectors, ACROSS_3X3);
    const int across = (int)ceil_div(vectors, chunks);
    const size_t threads = (size_t)across * SHARES_3X3;
    const size_t sums = 9 * threads * (wide ? V : 1) * sizeof(real<T>);
    const size_t rows = wide ? rows_3x3<T, V>::bytes(threads) : 0;
    const size_t shared = rows > sums ? rows : sums;
    void (*const kernel)(depthwise_parts_args, int, int, int) =
        wide ? depthwise_3x3_partials<T, V> : depthwise_3x3_partials<T, 1>;
    if (wide && !allow_shared((const void *)kernel, shared))
        launch_partials<T>(k, false, target); /* whose bits are the same */
    else
        launch(kernel, k->parts * chunks, (int64_t)threads, shared, target, *k, across, (int)chunks,
               (int)vectors);
}

extern "C" depthwise_3x3_sums *const rg_conv_depthwise_3x3_partials[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(launch_partials);
