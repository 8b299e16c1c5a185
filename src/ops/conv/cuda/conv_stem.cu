/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* y and dw of the stem: see conv_stem.cuh. For dw, strips of windows are cut into parts by shape
 * alone, and a kernel joins their sums. */
#include "backend/cuda/long_sum.cuh"
#include "ops/conv/cuda/conv_stem.cuh"

/* ---- forward: a warp has two blocks of windows and STEM_OUT channels at a time ---- */

/* Columns of the product are channels in this order, so that a thread gets 8 neighbours. */
static __device__ __forceinline__ int32_t stem_channel(int32_t n)
{
    return n / 32 * 32 + n % 8 / 2 * 8 + n / 8 % 4 * 2 + n % 2;
}

/* Numbers of a row of weights in shared memory; 8 rows have no bank conflicts. */
static inline __host__ __device__ int32_t stem_weights_pitch(const rg_conv_shape &s)
{
    return ((int32_t)s.row.window * stem_pairs(s) + 1) * STEM_VLEN;
}

static __device__ __forceinline__ void load_taps(const rg_conv_shape &s, const stem_grid &g,
                                                 const uint16_t *w, int32_t first, uint16_t *to)
{
    const int32_t pitch = stem_weights_pitch(s), count = (int32_t)s.row.window * g.pairs;
    const int32_t across = (int32_t)s.column.window;
    for (int32_t i = (int32_t)threadIdx.x; i < STEM_OUT * count; i += (int32_t)blockDim.x) {
        const int32_t n = i / count, vector = i - n * count, p = vector / g.pairs;
        const int32_t o = first + stem_channel(n), q = 2 * (vector - p * g.pairs);
        const uint16_t *from =
            w + ((int64_t)(o * (int32_t)s.row.window + p) * across + q) * STEM_IN;
        const int32_t have = o < s.out ? (across - q) * STEM_IN : 0;
        uint32_t e[2 * STEM_IN];
#pragma unroll
        for (int k = 0; k < 2 * STEM_IN; k++)
            e[k] = k < have ? from[k] : 0;
        *(uint4 *)(to + n * pitch + vector * STEM_VLEN) =
            make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, 0);
    }
}

struct stem_window {
    int64_t image;
    int32_t row, column, channel; /* the first of eight */
};

/* Eight channels of a window, one by one, with the epilogue. One that is not finite has all of
 * them summed again, as where they are stored together. */
template <rg_dtype T>
static __device__ __noinline__ void end_stem(const rg_conv_args &k, const void *x, const void *w,
                                             stem_window p, float4 low, float4 high)
{
    const rg_conv_shape &s = k.shape;
    const float sums[8] = { low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w };
    float none = 0;
    for (int e = 0; e < 8; e++)
        none = fmaf(sums[e], 0, none);
    for (int e = 0; e < 8 && p.channel + e < (int32_t)s.out; e++) {
        const float sum =
            none == 0 ? sums[e] : window_sum<T>(s, x, w, p.image, p.row, p.column, p.channel + e);
        finish<T>(k, p.image * s.y[0] + p.row * s.y[1] + p.column * s.y[2],
                  p.image * k.z_step[0] + p.row * k.z_step[1] + p.column * k.z_step[2],
                  p.channel + e, s.y[3], sum);
    }
}

/* Eight channels of a window where y consists of vectors and at most bias and ReLU follow;
 * false: not all are finite, and nothing is stored. */
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
    add_bias_and_relu<T, 8>(k, o, k.b_step, sum);
    store_vector(::at<T>(k.to, at + o), pack<T>(sum), k.stream);
    return true;
}

/* The windows of a warp: of two blocks. */
struct stem_windows {
    int64_t image;
    int32_t row[2], column[2], last; /* which of the two there are */
};

/* Results of a lane that store_eight refused, once more: a bit for each eight. */
template <rg_dtype T>
static __device__ __noinline__ void resum_stem(const rg_conv_args &k, const void *x, const void *w,
                                               const stem_windows &p, int32_t first,
                                               uint32_t refused)
{
    const float none = __uint_as_float(0x7fc00000);
    const float4 four = make_float4(none, none, none, none);
    const int32_t lane = (int32_t)threadIdx.x % WARP_THREADS;
    for (int e = 0; e < 8; e++)
        if (refused >> e & 1)
            end_stem<T>(k, x, w,
                        { p.image, p.row[e / 4], p.column[e / 4] + e % 4 / 2 * 8 + lane / 4,
                          first + e % 2 * 32 + lane % 4 * 8 },
                        four, four);
}

/* What a warp has. VECTORS: see store_eight. */
template <rg_dtype T, bool VECTORS>
static __device__ __forceinline__ void store_stem(const rg_conv_args &k, const void *x,
                                                  const void *w, const stem_windows &p,
                                                  int32_t first, float c[2][8][4])
{
    const rg_conv_shape &s = k.shape;
    const int32_t lane = (int32_t)threadIdx.x % WARP_THREADS;
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
            end_stem<T>(k, x, w, { p.image, i, j, o }, make_float4(sum[0], sum[1], sum[2], sum[3]),
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
            load_matrices(both, by + t * 2 * STEM_VLEN + j * 8 * pitch);
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
    const int32_t lane = (int32_t)threadIdx.x % WARP_THREADS,
                  warp = (int32_t)threadIdx.x / WARP_THREADS;
    const int32_t pitch = stem_weights_pitch(s), first = (int32_t)blockIdx.y * STEM_OUT;
    const int32_t blocks = g.columns / STEM_BLOCK, all = g.rows * blocks;
    const int32_t down = (int32_t)s.row.dilation * g.pitch - g.pairs + 2; /* to the next row */
    const uint16_t *const by = taps + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * STEM_VLEN;
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
            stem_windows at = { p.image, {}, {}, b + 1 < all };
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

/* ---- weights: a block has STEM_OUT channels, some vectors of taps and some strips; a warp has
 * STEM_TAPS vectors ---- */

enum { STEM_THREADS = 128, STEM_TAPS = 7, STEM_MAX_TAPS = STEM_THREADS / WARP_THREADS * STEM_TAPS };
enum { STEM_DY_PITCH = STEM_OUT + STEM_VLEN }; /* numbers of a line of dy in shared memory */

struct stem_partials_args {
    const uint16_t *x, *dy;
    float *partials; /* (part, out, vectors, STEM_VLEN) */
    int32_t each;    /* strips of a part */
    bool vectors;    /* dy consists of vectors */
};

/* Lines of STEM_OUT channels; windows that are not there are zeros. */
static __device__ __forceinline__ void load_windows(const rg_conv_shape &s, const stem_grid &g,
                                                    const stem_partials_args &k,
                                                    const stem_strip &p, int32_t first,
                                                    uint16_t *to)
{
    enum { VECTORS = STEM_OUT / STEM_VLEN };
    const int32_t count = g.rows * g.columns, out = (int32_t)s.out;
    for (int32_t n = (int32_t)threadIdx.x; n < count * VECTORS; n += STEM_THREADS) {
        const int32_t window = n / VECTORS, o = first + n % VECTORS * STEM_VLEN;
        const int32_t line = window / g.columns, i = p.row + line;
        const int32_t j = p.column + window - line * g.columns;
        const bool there = i < (int32_t)s.row.count && j < (int32_t)s.column.count && o < out;
        uint16_t *const at = to + window * STEM_DY_PITCH + n % VECTORS * STEM_VLEN;
        const uint16_t *const from =
            k.dy + ((p.image * s.row.count + i) * s.column.count + j) * out + o;
        if (k.vectors) {
            copy_or_zero<16>(at, there ? from : k.dy, there);
            continue;
        }
        for (int e = 0; e < STEM_VLEN; e++)
            at[e] = there && o + e < out ? from[e] : (uint16_t)0;
    }
}

/* The positions of the taps of a lane on the lines of a window, from tap `own` of the warp on. */
static __device__ __forceinline__ void find_taps(const rg_conv_shape &s, const stem_grid &g,
                                                 int32_t own, int32_t vector[STEM_TAPS / 2 + 1])
{
    const int32_t lane = (int32_t)threadIdx.x % WARP_THREADS,
                  taps = (int32_t)s.row.window * g.pairs;
#pragma unroll
    for (int i = 0; i < (STEM_TAPS + 1) / 2; i++) {
        const int32_t tap = own + 2 * i + lane / 16, some = tap < taps ? tap : 0;
        const int32_t p = some / g.pairs;
        vector[i] = p * (int32_t)s.row.dilation * g.pitch + some - p * g.pairs + lane / 8 % 2 * 8 +
                    lane % 8;
    }
}

/* Stores what a warp has of a part. */
static __device__ __forceinline__ void store_sums(const rg_conv_shape &s, float *partials,
                                                  int32_t first, int32_t own, int32_t taps,
                                                  const float c[STEM_OUT / 16][STEM_TAPS][4])
{
    const int32_t lane = (int32_t)threadIdx.x % WARP_THREADS;
    float *const sums = partials + (int64_t)blockIdx.x * s.out * taps * STEM_VLEN;
#pragma unroll
    for (int m = 0; m < 2 * (STEM_OUT / 16); m++) {
        const int32_t o = first + m * 8 + lane / 4;
#pragma unroll
        for (int i = 0; i < STEM_TAPS; i++)
            if (o < (int32_t)s.out && own + i < taps)
                *(float2 *)(sums + ((int64_t)o * taps + own + i) * STEM_VLEN +
                            lane % 4 * 2) = { c[m / 2][i][m % 2 * 2], c[m / 2][i][m % 2 * 2 + 1] };
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(STEM_THREADS, 3)
    stem_partials(const __grid_constant__ rg_conv_shape s, const __grid_constant__ stem_grid g,
                  const __grid_constant__ stem_partials_args k)
{
    extern __shared__ __align__(16) uint4 stem_shared[];
    uint4 *const raw = stem_shared + g.lines * g.pitch;
    uint16_t *const dy = (uint16_t *)(raw + g.raw);
    const int32_t lane = (int32_t)threadIdx.x % WARP_THREADS,
                  warp = (int32_t)threadIdx.x / WARP_THREADS;
    const int32_t first = (int32_t)blockIdx.y * STEM_OUT, taps = (int32_t)s.row.window * g.pairs;
    const int32_t own = (int32_t)blockIdx.z * STEM_MAX_TAPS + warp * STEM_TAPS;
    const int32_t blocks = g.columns / STEM_BLOCK;
    const int32_t from = (int32_t)blockIdx.x * k.each;
    const int32_t to = g.all - from < k.each ? g.all : from + k.each;
    int32_t vector[STEM_TAPS / 2 + 1];
    find_taps(s, g, own, vector);
    const uint16_t *const own_dy =
        dy + (lane / 16 * 8 + lane % 8) * STEM_DY_PITCH + lane / 8 % 2 * STEM_VLEN;
    float c[STEM_OUT / 16][STEM_TAPS][4] = {};
    if (g.raw > 0)
        copy_range(range_of(s, g, strip_at(g, from)), k.x, raw);
    for (int32_t n = from; n < to; n++) {
        const stem_strip p = strip_at(g, n);
        await_copies();
        __syncthreads();
        load_windows(s, g, k, p, first, dy);
        if (g.raw > 0)
            load_lines<true>(s, g, p, k.x, raw, stem_shared);
        else
            load_lines<false>(s, g, p, k.x, raw, stem_shared);
        await_copies();
        __syncthreads();
        if (g.raw > 0 && n + 1 < to)
            copy_range(range_of(s, g, strip_at(g, n + 1)), k.x, raw);
        for (int32_t b = 0; b < g.rows * blocks && own < taps; b++) {
            const int32_t row = b / blocks, column = (b - row * blocks) * STEM_BLOCK;
            const uint4 *const line = stem_shared + row * (int32_t)s.row.stride * g.pitch + column;
            uint32_t a[STEM_OUT / 16][4];
#pragma unroll
            for (int m = 0; m < STEM_OUT / 16; m++)
                load_transposed(a[m], own_dy + (row * g.columns + column) * STEM_DY_PITCH + m * 16);
#pragma unroll
            for (int i = 0; i < STEM_TAPS; i += 2) {
                uint32_t both[4];
                load_transposed(both, line + vector[i / 2]);
#pragma unroll
                for (int m = 0; m < STEM_OUT / 16; m++) {
                    multiply_halves<T>(c[m][i], a[m], both);
                    if (i + 1 < STEM_TAPS)
                        multiply_halves<T>(c[m][i + 1], a[m], both + 2);
                }
            }
        }
    }
    store_sums(s, k.partials, first, own, taps, c);
}

/* dw; a weight that is not finite is summed again. */
enum { STEM_JOIN = SPLIT_K_THREADS / SPLIT_K_SHARES }; /* weights of a block */

template <rg_dtype T>
static __global__ void __launch_bounds__(SPLIT_K_THREADS)
    stem_join(const __grid_constant__ rg_conv_weights_args k, const float *partials, const void *x,
              const void *dy, int32_t pairs, int32_t count)
{
    const rg_conv_shape &s = k.shape;
    const int32_t down = (int32_t)s.row.window, across = (int32_t)s.column.window;
    const int32_t size = (int32_t)s.out * down * pairs * STEM_VLEN;
    const int32_t i = (int32_t)blockIdx.x * STEM_JOIN + (int32_t)threadIdx.x % STEM_JOIN;
    wait_for_previous_launch();
    float sum = (float)split_k_sum<SPLIT_K_SHARES>(partials + i, size, i < size ? count : 0);
    const int32_t vector = i / STEM_VLEN, e = i % STEM_VLEN, line = vector / pairs;
    const int32_t q = 2 * (vector - line * pairs) + e / STEM_IN, c = e % STEM_IN;
    if (threadIdx.x >= STEM_JOIN || i >= size || e >= 2 * STEM_IN || q >= across)
        return;
    const int32_t o = line / down, p = line - o * down;
    if (!isfinite(sum))
        sum = weight_sum<T>(s, x, dy, ((int64_t)line * across + q) * STEM_IN + c);
    put_weight<T>(k, s.w_first + o * s.w[1] + p * s.w[2] + q * s.w[3] + c * s.w[4], sum);
}

/* ---- strategies ---- */

enum { STEM_ROWS = 8 };

static size_t stem_weights_bytes(const rg_conv_shape *s)
{
    return (size_t)STEM_OUT * (size_t)stem_weights_pitch(*s) * sizeof(uint16_t);
}

static stem_grid stem_forward_grid(const rg_conv_shape *s)
{
    return stem_grid_of(s, STEM_ROWS, stem_weights_bytes(s), 0);
}

template <rg_dtype T> static bool has_kernel(void)
{
    cudaFuncAttributes attributes;
    const bool has =
        cudaFuncGetAttributes(&attributes, (const void *)stem_tiles<T, true>) == cudaSuccess &&
        attributes.ptxVersion >= 80;
    (void)cudaGetLastError();
    return has;
}

/* Whether the device has tensor cores for the dtype, and this build has code for them. */
static bool has_stem(rg_dtype dtype)
{
    return (dtype == RG_F16 ? has_kernel<RG_F16> : has_kernel<RG_BF16>)();
}

static bool accepts(rg_conv_call *call)
{
    return call->direction == RG_CONV_FORWARD && stem_suits(call) &&
           stem_forward_grid(call->shape).rows > 0 && has_stem(call->dtype);
}

template <rg_dtype T>
static void launch_stem(const rg_conv_args *k, const void *x, const void *w,
                        const rg_cuda_target *target)
{
    const rg_conv_shape *s = &k->shape;
    const stem_grid g = stem_forward_grid(s);
    const size_t shared = stem_bytes(&g, 0) + stem_weights_bytes(s);
    const bool vectors = !k->has_z && !k->add && k->neuron.kind <= RG_NEURON_RELU &&
                         s->out % STEM_VLEN == 0 && s->y_dense &&
                         (s->y[0] | s->y[1] | s->y[2]) % STEM_VLEN == 0 &&
                         (uintptr_t)k->to % sizeof(uint4) == 0;
    const int64_t most = 2 * (int64_t)target->multiprocessors;
    const int64_t units = ceil_div(g.rows * (g.columns / STEM_BLOCK), 2); /* shared evenly */
    const int64_t warps = ceil_div(units, ceil_div(units, THREADS / WARP_THREADS));
    const dim3 grid((unsigned)(g.all < most ? g.all : most), (unsigned)ceil_div(s->out, STEM_OUT));
    void (*const kernel)(rg_conv_args, stem_grid, const uint16_t *, const uint16_t *) =
        vectors ? stem_tiles<T, true> : stem_tiles<T, false>;
    (void)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)shared);
    kernel<<<grid, (unsigned)warps * WARP_THREADS, shared, target->stream>>>(
        *k, g, (const uint16_t *)x, (const uint16_t *)w);
}

static bool run(const rg_conv_call *call, scratch_arena *arena)
{
    const dense_copy x = dense_from(arena, call, false);
    const dense_copy w = dense_w(arena, call, false);
    if (arena->enqueue)
        (call->dtype == RG_F16 ? launch_stem<RG_F16> : launch_stem<RG_BF16>)(call->args, x.data,
                                                                             w.data, arena->target);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_stem = { "stem", accepts, run };

enum { STEM_PARTIAL_ROWS = 2, STEM_DY_BYTES = STEM_DY_PITCH * sizeof(uint16_t) };

static stem_grid stem_weights_grid(const rg_conv_shape *s)
{
    return stem_grid_of(s, STEM_PARTIAL_ROWS, 0, STEM_DY_BYTES);
}

static bool accepts_weights(rg_conv_call *call)
{
    return stem_suits(call) && stem_weights_grid(call->shape).rows > 0 && has_stem(call->dtype);
}

template <rg_dtype T>
static void run_weights_as(const rg_conv_weights_args *k, const void *x, const void *dy,
                           scratch_arena *arena)
{
    enum { PARTS = 396 }; /* at most */
    const rg_conv_shape *s = &k->shape;
    const stem_grid g = stem_weights_grid(s);
    const int64_t each = ceil_div(g.all, PARTS), parts = ceil_div(g.all, each);
    const int64_t taps = s->row.window * g.pairs, size = s->out * taps * STEM_VLEN;
    const stem_partials_args args = { (const uint16_t *)x, (const uint16_t *)dy,
                                      (float *)arena_alloc(arena,
                                                           (size_t)(parts * size) * sizeof(float)),
                                      (int32_t)each, s->out % STEM_VLEN == 0 };
    if (!arena->enqueue)
        return;
    const size_t shared = stem_bytes(&g, STEM_DY_BYTES);
    const dim3 grid((unsigned)parts, (unsigned)ceil_div(s->out, STEM_OUT),
                    (unsigned)ceil_div(taps, STEM_MAX_TAPS));
    (void)cudaFuncSetAttribute((const void *)stem_partials<T>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    stem_partials<T><<<grid, STEM_THREADS, shared, arena->target->stream>>>(*s, g, args);
    launch_dependent(stem_join<T>, dim3((unsigned)ceil_div(size, STEM_JOIN)), SPLIT_K_THREADS,
                     arena->target, *k, (const float *)args.partials, x, dy, g.pairs,
                     (int32_t)parts);
}

static bool run_weights(const rg_conv_call *call, scratch_arena *arena)
{
    const dense_copy x = dense_x(arena, call, false);
    const dense_copy dy = dense_dy(arena, call, false);
    (call->dtype == RG_F16 ? run_weights_as<RG_F16>
                           : run_weights_as<RG_BF16>)(call->weights_args, x.data, dy.data, arena);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_stem_weights = { "stem", accepts_weights, run_weights };
