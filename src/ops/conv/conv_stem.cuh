/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The first layer of a network in 16 bits, y and dw: images of three channels, windows that move by
 * two columns. Libraries want 8 channels and more. Here two neighbouring columns and two zeros are
 * a vector of 8 numbers, a window has half as many of them in a row, and neighbouring windows begin
 * at neighbouring vectors: rows of the image lie in shared memory once, and matrices of windows by
 * taps are read from there at overlapping places. Sums are f32.
 *
 * Zeros, and pixels beyond a window with an odd number of columns, are no part of a sum: what is
 * not finite is summed again, product by product. Tensors are dense. Included by conv_library.cuh.
 */
#ifndef RG_OPS_CONV_STEM_CUH
#define RG_OPS_CONV_STEM_CUH

#include "backend/cuda/packing.cuh"
#include "ops/conv/conv.h"
#include "ops/conv/conv_nonfinite.cuh"
#include "ops/conv/conv_split.cuh"

enum {
    STEM_IN = 3,
    STEM_OUT = 64,      /* channels of windows that a block has */
    STEM_SEGMENT = 128, /* windows of a row that a block has, at most */
    STEM_LANES = 8,     /* numbers of a vector */
    STEM_BLOCK = 16     /* windows that are multiplied at once */
};

/* A strip: some rows of some columns of windows of one image. */
struct stem_grid {
    int32_t columns, rows;     /* windows of a strip; columns are whole blocks */
    int32_t across, down, all; /* strips in a row of them, in an image, of all images */
    int32_t pairs;             /* vectors of a row of a window, an even number */
    int32_t lines, pitch;      /* rows of the image that a strip sees, vectors of each */
    int32_t raw;               /* vectors of them as they lie in memory; 0: too many */
};

/* ---- instructions ---- */

static __device__ __forceinline__ void load_matrices(uint32_t x[4], const void *row)
{
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
#else
    (void)x, (void)row;
#endif
}

/* As load_matrices, each of the four transposed. */
static __device__ __forceinline__ void load_transposed(uint32_t x[4], const void *row)
{
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
#else
    (void)x, (void)row;
#endif
}

/* Up to 16 bytes to shared memory in the background, and zeros behind them. */
static __device__ __forceinline__ void copy_part(void *to, const void *from, int bytes)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes));
#else
    (void)to, (void)from, (void)bytes;
#endif
}

/* c += a b for 16 rows, 8 columns, 16 of k. */
template <rg_dtype T>
static __device__ __forceinline__ void multiply_halves(float c[4], const uint32_t a[4],
                                                       const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    if constexpr (T == RG_BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
            "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    (void)c, (void)a, (void)b;
#endif
}

/* ---- rows of the image ---- */

/* Six numbers from x[i] on, which need not be aligned to words; all of them exist, and so do words
 * up to number `count`. */
static __device__ __forceinline__ uint4 load_six(const uint16_t *x, int64_t i, int64_t count)
{
    const uint32_t *words = (const uint32_t *)(x + (i & ~(int64_t)1));
    const uint32_t a = words[0], b = words[1], c = words[2];
    if ((i & 1) == 0)
        return make_uint4(a, b, c, 0);
    const uint32_t d = i + 6 < count ? words[3] : x[i + 5];
    return make_uint4(__funnelshift_r(a, b, 16), __funnelshift_r(b, c, 16),
                      __funnelshift_r(c, d, 16), 0);
}

/* Columns `column` and the next of a row, whose column 0 is number `row` of x. */
static __device__ __forceinline__ uint4 load_pair(const uint16_t *x, int64_t row, int32_t column,
                                                  int32_t columns, int64_t count)
{
    const int64_t at = row + column * STEM_IN;
    if (column >= 0 && column + 1 < columns)
        return load_six(x, at, count);
    if (column < -1 || column >= columns)
        return make_uint4(0, 0, 0, 0);
    uint32_t e[STEM_IN];
#pragma unroll
    for (int i = 0; i < STEM_IN; i++)
        e[i] = x[at + i + (column < 0 ? STEM_IN : 0)];
    return column < 0 ? make_uint4(0, e[0] << 16, e[1] | e[2] << 16, 0)
                      : make_uint4(e[0] | e[1] << 16, e[2], 0, 0);
}

struct stem_strip {
    int64_t image;
    int32_t row, column; /* its first window */
};

static __device__ __forceinline__ stem_strip strip_at(const stem_grid &g, int32_t n)
{
    const int32_t line = n / g.across, image = line / g.down;
    return { image, (line - image * g.down) * g.rows, (n - line * g.across) * g.columns };
}

/* The rows of the image that a strip sees, one behind the other in memory: numbers `first` to
 * `end` of x. */
struct first_range {
    int64_t first, end;
    int32_t row; /* the first of its lines, which may lie outside */
};

static __device__ __forceinline__ first_range range_of(const rg_conv_shape &s, const stem_grid &g,
                                                       const stem_strip &p)
{
    const int32_t rows = (int32_t)s.row.size;
    const int32_t row = p.row * (int32_t)s.row.stride - (int32_t)s.row.before;
    const int32_t from = row < 0 ? 0 : row < rows ? row : rows;
    const int32_t to = row + g.lines < from ? from : row + g.lines < rows ? row + g.lines : rows;
    const int64_t line = s.column.size * STEM_IN, image = p.image * rows;
    return { (image + from) * line, (image + to) * line, row };
}

/* Begins to copy a strip's rows: from the vector on in which they begin. */
static __device__ __forceinline__ void copy_range(const first_range &r, const uint16_t *x,
                                                  uint4 *raw)
{
    const int64_t first = r.first / STEM_LANES * STEM_LANES;
    for (int64_t i = first + (int64_t)threadIdx.x * STEM_LANES; i < r.end;
         i += (int64_t)blockDim.x * STEM_LANES) {
        const int64_t left = (r.end - i) * (int64_t)sizeof *x;
        copy_part(raw + (i - first) / STEM_LANES, x + i, left < 16 ? (int)left : 16);
    }
}

/* All that a strip sees, from x or from its copy. A warp has a line at a time. */
template <bool RAW>
static __device__ __forceinline__ void load_lines(const rg_conv_shape &s, const stem_grid &g,
                                                  const stem_strip &p, const uint16_t *x,
                                                  const uint4 *raw, uint4 *lines)
{
    const first_range r = range_of(s, g, p);
    const int32_t columns = (int32_t)s.column.size, rows = (int32_t)s.row.size;
    const int64_t count = RAW ? INT64_MAX : s.images * rows * columns * STEM_IN;
    const int64_t image = p.image * rows * columns * STEM_IN;
    const int64_t shift = RAW ? r.first / STEM_LANES * STEM_LANES : 0;
    const int32_t column = 2 * p.column - (int32_t)s.column.before;
    for (int32_t i = (int32_t)threadIdx.x / 32; i < g.lines; i += (int32_t)blockDim.x / 32) {
        const int32_t row = r.row + i;
        const bool there = row >= 0 && row < rows;
        const int64_t at = image + (int64_t)row * columns * STEM_IN - shift;
        for (int32_t v = (int32_t)threadIdx.x % 32; v < g.pitch; v += 32)
            lines[i * g.pitch + v] = !there ? make_uint4(0, 0, 0, 0)
                                     : RAW  ? load_pair((const uint16_t *)raw, (int32_t)at,
                                                        column + 2 * v, columns, count)
                                            : load_pair(x, at, column + 2 * v, columns, count);
    }
}

/* ---- forward: a warp has two blocks of windows and STEM_OUT channels at a time ---- */

/* Columns of the product are channels in this order, so that a thread gets 8 neighbours. */
static __device__ __forceinline__ int32_t first_channel(int32_t n)
{
    return n / 32 * 32 + n % 8 / 2 * 8 + n / 8 % 4 * 2 + n % 2;
}

/* Vectors of a row of a window, an even number. */
static inline __host__ __device__ int32_t stem_pairs(const rg_conv_shape &s)
{
    return (int32_t)(s.column.window + 3) / 4 * 2;
}

/* Numbers of a row of weights in shared memory; no bank is met twice by 8 rows. */
static inline __host__ __device__ int32_t stem_weights_pitch(const rg_conv_shape &s)
{
    return ((int32_t)s.row.window * stem_pairs(s) + 1) * STEM_LANES;
}

static __device__ __forceinline__ void load_taps(const rg_conv_shape &s, const stem_grid &g,
                                                 const uint16_t *w, int32_t first, uint16_t *to)
{
    const int32_t pitch = stem_weights_pitch(s), count = (int32_t)s.row.window * g.pairs;
    const int32_t across = (int32_t)s.column.window;
    for (int32_t i = (int32_t)threadIdx.x; i < STEM_OUT * count; i += (int32_t)blockDim.x) {
        const int32_t n = i / count, vector = i - n * count, p = vector / g.pairs;
        const int32_t o = first + first_channel(n), q = 2 * (vector - p * g.pairs);
        const uint16_t *from =
            w + ((int64_t)(o * (int32_t)s.row.window + p) * across + q) * STEM_IN;
        const int32_t have = o < s.out ? (across - q) * STEM_IN : 0;
        uint32_t e[2 * STEM_IN];
#pragma unroll
        for (int k = 0; k < 2 * STEM_IN; k++)
            e[k] = k < have ? from[k] : 0;
        *(uint4 *)(to + n * pitch + vector * STEM_LANES) =
            make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, 0);
    }
}

/* Eight channels of a window, one by one, with whatever comes behind a sum. One that is not finite
 * has all of them summed up anew, as where they are stored together. */
template <rg_dtype T>
static __device__ __noinline__ void end_stem(const rg_conv_args &k, const void *x, const void *w,
                                             int64_t image, int32_t i, int32_t j, int32_t o,
                                             float4 low, float4 high)
{
    const rg_conv_shape &s = k.shape;
    const float sums[8] = { low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w };
    float none = 0;
    for (int e = 0; e < 8; e++)
        none = fmaf(sums[e], 0, none);
    for (int e = 0; e < 8 && o + e < (int32_t)s.out; e++) {
        const float sum = none == 0 ? sums[e] : window_sum<T>(s, x, w, image, i, j, o + e);
        finish<T>(k, image * s.y[0] + i * s.y[1] + j * s.y[2],
                  image * k.z_step[0] + i * k.z_step[1] + j * k.z_step[2], o + e, s.y[3], sum);
    }
}

/* Eight channels of a window where y lies in vectors and at most bias and ReLU follow; false: not
 * all are finite, and nothing is stored. */
template <rg_dtype T>
static __device__ __forceinline__ bool store_eight(const rg_conv_args &k, int64_t at, int32_t o,
                                                   float sum[8])
{
    float none = 0;
#pragma unroll
    for (int e = 0; e < 8; e++)
        none = fmaf(sum[e], 0, none);
    if (none != 0)
        return false;
#pragma unroll
    for (int e = 0; e < 8; e++) {
        if (k.has_b)
            sum[e] += load<T>(k.b, (o + e) * k.b_step);
        if (k.neuron.kind == RG_NEURON_RELU)
            sum[e] = neuron_relu<T>(neuron_constants_in<T>(k.neuron.numbers), sum[e], sum[e]);
    }
    store_vector(::at<T>(k.to, at + o), pack<T>(sum), k.stream);
    return true;
}

/* Where the windows of a warp stand: of two blocks. */
struct stem_place {
    int64_t image;
    int32_t row[2], column[2], last; /* which of the two there are */
};

/* Results of a lane that store_eight refused, once more: a bit for each eight. */
template <rg_dtype T>
static __device__ __noinline__ void resum_stem(const rg_conv_args &k, const void *x, const void *w,
                                               const stem_place &p, int32_t first, uint32_t refused)
{
    const float none = __uint_as_float(0x7fc00000);
    const float4 four = make_float4(none, none, none, none);
    const int32_t lane = (int32_t)threadIdx.x % 32;
    for (int e = 0; e < 8; e++)
        if (refused >> e & 1)
            end_stem<T>(k, x, w, p.image, p.row[e / 4], p.column[e / 4] + e % 4 / 2 * 8 + lane / 4,
                        first + e % 2 * 32 + lane % 4 * 8, four, four);
}

/* What a warp has. VECTORS: see store_eight. */
template <rg_dtype T, bool VECTORS>
static __device__ __forceinline__ void store_stem(const rg_conv_args &k, const void *x,
                                                  const void *w, const stem_place &p, int32_t first,
                                                  float c[2][8][4])
{
    const rg_conv_shape &s = k.shape;
    const int32_t lane = (int32_t)threadIdx.x % 32;
    uint32_t refused = 0;
#pragma unroll
    for (int n = 0; n < 8; n++) { /* block, upper and lower rows, first and last channels */
        const int32_t i = p.row[n / 4], j = p.column[n / 4] + n % 4 / 2 * 8 + lane / 4;
        const int32_t o = first + n % 2 * 32 + lane % 4 * 8;
        float sum[8];
#pragma unroll
        for (int m = 0; m < 8; m++)
            sum[m] = c[n / 4][n % 2 * 4 + m / 2][n % 4 / 2 * 2 + m % 2];
        if (n / 4 > p.last || i >= (int32_t)s.row.count || j >= (int32_t)s.column.count ||
            o >= (int32_t)s.out)
            continue;
        if constexpr (VECTORS) {
            const int64_t at = p.image * s.y[0] + i * s.y[1] + j * s.y[2];
            refused |= (uint32_t)!store_eight<T>(k, at, o, sum) << n;
        } else {
            end_stem<T>(k, x, w, p.image, i, j, o, make_float4(sum[0], sum[1], sum[2], sum[3]),
                        make_float4(sum[4], sum[5], sum[6], sum[7]));
        }
    }
    if (VECTORS && refused != 0)
        resum_stem<T>(k, x, w, p, first, refused);
}

/* Two blocks of windows, whose vectors begin at `from`, by all channels of `by`, in steps of two
 * vectors; `down` leads from the last of a row of a window to the first of the next. */
template <rg_dtype T>
static __device__ __forceinline__ void multiply_windows(float c[2][8][4], const uint4 *from[2],
                                                        const uint16_t *by, int32_t pitch,
                                                        int32_t steps, int32_t pairs, int32_t down)
{
    int32_t left = pairs;
#pragma unroll 2
    for (int32_t t = 0; t < steps; t++) {
        uint32_t a[2][4];
#pragma unroll
        for (int h = 0; h < 2; h++)
            load_matrices(a[h], from[h]);
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            uint32_t both[4];
            load_matrices(both, by + t * 2 * STEM_LANES + j * 8 * pitch);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                multiply_halves<T>(c[h][j], a[h], both);
                multiply_halves<T>(c[h][j + 1], a[h], both + 2);
            }
        }
        left -= 2;
        const int32_t ahead = left > 0 ? 2 : down;
        left = left > 0 ? left : pairs;
        from[0] += ahead;
        from[1] += ahead;
    }
}

template <rg_dtype T, bool VECTORS>
static __global__ void __launch_bounds__(THREADS, 2)
    stem_tiles(const __grid_constant__ rg_conv_args k, const __grid_constant__ stem_grid g,
               const uint16_t *x, const uint16_t *w)
{
    extern __shared__ __align__(16) uint4 stem_shared[];
    const rg_conv_shape &s = k.shape;
    uint4 *const raw = stem_shared + g.lines * g.pitch;
    uint16_t *const taps = (uint16_t *)(raw + g.raw);
    const int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32;
    const int32_t pitch = stem_weights_pitch(s), first = (int32_t)blockIdx.y * STEM_OUT;
    const int32_t blocks = g.columns / STEM_BLOCK, all = g.rows * blocks;
    const int32_t down = (int32_t)s.row.dilation * g.pitch - g.pairs + 2; /* to the next row */
    const uint16_t *const by =
        taps + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * STEM_LANES;
    if (g.raw > 0)
        copy_range(range_of(s, g, strip_at(g, (int32_t)blockIdx.x)), x, raw);
    load_taps(s, g, w, first, taps);
    for (int32_t n = (int32_t)blockIdx.x; n < g.all; n += (int32_t)gridDim.x) {
        const stem_strip p = strip_at(g, n);
        await_copies();
        __syncthreads();
        if (g.raw > 0)
            load_lines<true>(s, g, p, x, raw, stem_shared);
        else
            load_lines<false>(s, g, p, x, raw, stem_shared);
        __syncthreads();
        if (g.raw > 0 && n + (int32_t)gridDim.x < g.all)
            copy_range(range_of(s, g, strip_at(g, n + (int32_t)gridDim.x)), x, raw);
        for (int32_t b = 2 * warp; b < all; b += (int32_t)blockDim.x / 16) {
            float c[2][8][4] = {};
            const uint4 *from[2];
            stem_place at = { p.image, {}, {}, b + 1 < all };
#pragma unroll
            for (int h = 0; h < 2; h++) { /* past the last block, that one again */
                const int32_t own = b + h < all ? b + h : b, row = own / blocks;
                const int32_t column = (own - row * blocks) * STEM_BLOCK;
                at.row[h] = p.row + row;
                at.column[h] = p.column + column;
                from[h] = stem_shared + row * (int32_t)s.row.stride * g.pitch + column + lane % 16 +
                          lane / 16;
            }
            multiply_windows<T>(c, from, by, pitch, (int32_t)s.row.window * g.pairs / 2, g.pairs,
                                down);
            store_stem<T, VECTORS>(k, x, w, at, first, c);
        }
    }
}

/* ---- host side ---- */

/* Bytes of shared memory that a strip takes, beside `each` for each of its windows. */
static size_t stem_bytes(const stem_grid *g, size_t each)
{
    return ((size_t)g->lines * (size_t)g->pitch + (size_t)g->raw) * sizeof(uint4) +
           (size_t)g->rows * (size_t)g->columns * each;
}

/* Strips of at most `rows` rows that fit into STEM_SHARED bytes beside `fixed` ones, with a copy of
 * what they see if that fits, too; no rows: there are none. */
enum { STEM_SHARED = 98 << 10 }; /* which all devices since 8.0 have */

static stem_grid stem_grid_of(const rg_conv_shape *s, int32_t rows, size_t fixed, size_t each)
{
    stem_grid g = {};
    const int64_t reach = (s->row.window - 1) * s->row.dilation + 1;
    const int64_t line = s->column.size * STEM_IN;
    g.across = (int32_t)ceil_div(s->column.count, STEM_SEGMENT);
    g.columns = (int32_t)ceil_div(ceil_div(s->column.count, g.across), STEM_BLOCK) * STEM_BLOCK;
    g.pairs = stem_pairs(*s);
    g.pitch = g.columns + g.pairs;
    for (int i = 0; i < 2 && g.rows == 0; i++) {
        for (g.rows = rows; g.rows > 0; g.rows /= 2) {
            g.lines = (int32_t)((g.rows - 1) * s->row.stride + reach);
            const int64_t vectors = ceil_div(g.lines * line, STEM_LANES) + 2;
            g.raw = i == 0 && vectors < STEM_SHARED ? (int32_t)vectors : 0;
            if ((i == 1 || g.raw > 0) && stem_bytes(&g, each) + fixed <= STEM_SHARED)
                break;
        }
    }
    g.down = g.rows > 0 ? (int32_t)ceil_div(s->row.count, g.rows) : 0;
    g.all = (int32_t)s->images * g.down * g.across;
    return g;
}

enum { STEM_ROWS = 8 };

static size_t stem_weights_bytes(const rg_conv_shape *s)
{
    return (size_t)STEM_OUT * (size_t)stem_weights_pitch(*s) * sizeof(uint16_t);
}

static stem_grid stem_forward_grid(const rg_conv_shape *s)
{
    return stem_grid_of(s, STEM_ROWS, stem_weights_bytes(s), 0);
}

/* Whether the device has such units, and this build has code for them. */
template <rg_dtype T> static bool has_first(void)
{
    cudaFuncAttributes attributes;
    const bool has =
        cudaFuncGetAttributes(&attributes, (const void *)stem_tiles<T, true>) == cudaSuccess &&
        attributes.ptxVersion >= 80;
    (void)cudaGetLastError();
    return has;
}

template <rg_dtype T>
static void run_stem(const rg_conv_args *k, const void *x, const void *w, const packing *arena)
{
    if constexpr (sizeof(element<T>) == 2) {
        const rg_conv_shape *s = &k->shape;
        const stem_grid g = stem_forward_grid(s);
        const size_t shared = stem_bytes(&g, 0) + stem_weights_bytes(s);
        const bool vectors = !k->has_z && !k->add && k->neuron.kind <= RG_NEURON_RELU &&
                             s->out % STEM_LANES == 0 && s->y_dense &&
                             (s->y[0] | s->y[1] | s->y[2]) % STEM_LANES == 0 &&
                             (uintptr_t)k->to % sizeof(uint4) == 0;
        const int64_t most = 2 * (int64_t)arena->place->multiprocessors;
        const int64_t units = ceil_div(g.rows * (g.columns / STEM_BLOCK), 2); /* shared evenly */
        const int64_t warps = ceil_div(units, ceil_div(units, THREADS / 32));
        const dim3 grid((unsigned)(g.all < most ? g.all : most),
                        (unsigned)ceil_div(s->out, STEM_OUT));
        if (!arena->run)
            return;
        void (*const kernel)(rg_conv_args, stem_grid, const uint16_t *, const uint16_t *) =
            vectors ? stem_tiles<T, true> : stem_tiles<T, false>;
        (void)cudaFuncSetAttribute((const void *)kernel,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        kernel<<<grid, (unsigned)warps * 32, shared, arena->place->stream>>>(
            *k, g, (const uint16_t *)x, (const uint16_t *)w);
    }
}

#endif
