/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* dw of the stem: see conv_stem.cuh, which says how rows of the image lie in shared memory. Strips
 * of windows are cut into parts by shape alone; a kernel of its own adds up their sums, in a fixed
 * order. */
#include "ops/conv/conv_stem.cuh"

/* ---- weights: a block has STEM_OUT channels, some vectors of taps and some strips; a warp has
 * STEM_TAPS vectors ---- */

enum { STEM_THREADS = 128, STEM_TAPS = 7, STEM_MOST_TAPS = STEM_THREADS / 32 * STEM_TAPS };
enum { STEM_DY_PITCH = STEM_OUT + STEM_LANES }; /* numbers of a line of dy in shared memory */

struct stem_parts_args {
    const uint16_t *x, *dy;
    float *parts; /* (part, out, vectors, STEM_LANES) */
    int32_t each; /* strips of a part */
    bool vectors; /* dy lies in vectors */
};

/* Lines of STEM_OUT channels; windows that are not there are zeros. */
static __device__ __forceinline__ void load_windows(const rg_conv_shape &s, const stem_grid &g,
                                                    const stem_parts_args &k, const stem_strip &p,
                                                    int32_t first, uint16_t *to)
{
    enum { VECTORS = STEM_OUT / STEM_LANES };
    const int32_t count = g.rows * g.columns, out = (int32_t)s.out;
    for (int32_t n = (int32_t)threadIdx.x; n < count * VECTORS; n += STEM_THREADS) {
        const int32_t window = n / VECTORS, o = first + n % VECTORS * STEM_LANES;
        const int32_t line = window / g.columns, i = p.row + line;
        const int32_t j = p.column + window - line * g.columns;
        const bool there = i < (int32_t)s.row.count && j < (int32_t)s.column.count && o < out;
        uint16_t *const at = to + window * STEM_DY_PITCH + n % VECTORS * STEM_LANES;
        const uint16_t *const from =
            k.dy + ((p.image * s.row.count + i) * s.column.count + j) * out + o;
        if (k.vectors) {
            copy_or_zero<16>(at, there ? from : k.dy, there);
            continue;
        }
        for (int e = 0; e < STEM_LANES; e++)
            at[e] = there && o + e < out ? from[e] : (uint16_t)0;
    }
}

/* Where the taps of a lane stand on the lines of a window, from tap `own` of the warp on. */
static __device__ __forceinline__ void find_taps(const rg_conv_shape &s, const stem_grid &g,
                                                 int32_t own, int32_t vector[STEM_TAPS / 2 + 1])
{
    const int32_t lane = (int32_t)threadIdx.x % 32, taps = (int32_t)s.row.window * g.pairs;
#pragma unroll
    for (int i = 0; i < (STEM_TAPS + 1) / 2; i++) {
        const int32_t tap = own + 2 * i + lane / 16, some = tap < taps ? tap : 0;
        const int32_t p = some / g.pairs;
        vector[i] = p * (int32_t)s.row.dilation * g.pitch + some - p * g.pairs + lane / 8 % 2 * 8 +
                    lane % 8;
    }
}

/* Stores what a warp has of a part. */
static __device__ __forceinline__ void store_sums(const rg_conv_shape &s, float *parts,
                                                  int32_t first, int32_t own, int32_t taps,
                                                  const float c[STEM_OUT / 16][STEM_TAPS][4])
{
    const int32_t lane = (int32_t)threadIdx.x % 32;
    float *const sums = parts + (int64_t)blockIdx.x * s.out * taps * STEM_LANES;
#pragma unroll
    for (int m = 0; m < 2 * (STEM_OUT / 16); m++) {
        const int32_t o = first + m * 8 + lane / 4;
#pragma unroll
        for (int i = 0; i < STEM_TAPS; i++)
            if (o < (int32_t)s.out && own + i < taps)
                *(float2 *)(sums + ((int64_t)o * taps + own + i) * STEM_LANES +
                            lane % 4 * 2) = { c[m / 2][i][m % 2 * 2], c[m / 2][i][m % 2 * 2 + 1] };
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(STEM_THREADS, 3)
    stem_parts(const __grid_constant__ rg_conv_shape s, const __grid_constant__ stem_grid g,
               const __grid_constant__ stem_parts_args k)
{
    extern __shared__ __align__(16) uint4 stem_shared[];
    uint4 *const raw = stem_shared + g.lines * g.pitch;
    uint16_t *const dy = (uint16_t *)(raw + g.raw);
    const int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32;
    const int32_t first = (int32_t)blockIdx.y * STEM_OUT, taps = (int32_t)s.row.window * g.pairs;
    const int32_t own = (int32_t)blockIdx.z * STEM_MOST_TAPS + warp * STEM_TAPS;
    const int32_t blocks = g.columns / STEM_BLOCK;
    const int32_t from = (int32_t)blockIdx.x * k.each;
    const int32_t to = g.all - from < k.each ? g.all : from + k.each;
    int32_t vector[STEM_TAPS / 2 + 1];
    find_taps(s, g, own, vector);
    const uint16_t *const own_dy =
        dy + (lane / 16 * 8 + lane % 8) * STEM_DY_PITCH + lane / 8 % 2 * STEM_LANES;
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
    store_sums(s, k.parts, first, own, taps, c);
}

/* A block has STEM_JOIN weights; threads share the parts of each. */
enum { STEM_JOIN = 16 };

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    stem_join(const __grid_constant__ rg_conv_weights_args k, const float *parts, const void *x,
              const void *dy, int32_t pairs, int32_t count)
{
    enum { SHARES = THREADS / STEM_JOIN };
    __shared__ float shared[SHARES][STEM_JOIN];
    const rg_conv_shape &s = k.shape;
    const int32_t down = (int32_t)s.row.window, across = (int32_t)s.column.window;
    const int32_t size = (int32_t)s.out * down * pairs * STEM_LANES;
    const int32_t own = (int32_t)threadIdx.x % STEM_JOIN, share = (int32_t)threadIdx.x / STEM_JOIN;
    const int32_t i = (int32_t)blockIdx.x * STEM_JOIN + own;
    float sum = 0;
    wait_for_previous_launch();
#pragma unroll 8
    for (int32_t n = share; i < size && n < count; n += SHARES)
        sum += parts[(int64_t)n * size + i];
    shared[share][own] = sum;
    __syncthreads();
    const int32_t vector = i / STEM_LANES, e = i % STEM_LANES, line = vector / pairs;
    const int32_t q = 2 * (vector - line * pairs) + e / STEM_IN, c = e % STEM_IN;
    if (share != 0 || i >= size || e >= 2 * STEM_IN || q >= across)
        return;
#pragma unroll
    for (int n = 1; n < SHARES; n++)
        sum += shared[n][own];
    const int32_t o = line / down, p = line - o * down;
    if (!isfinite(sum))
        sum = weight_sum<T>(s, x, dy, ((int64_t)line * across + q) * STEM_IN + c);
    const int64_t to = s.w_first + o * s.w[1] + p * s.w[2] + q * s.w[3] + c * s.w[4];
    put_weight<T>(k, to, sum);
}

/* ---- strategy ---- */

enum { STEM_PARTS_ROWS = 2, STEM_DY_BYTES = STEM_DY_PITCH * sizeof(uint16_t) };

static stem_grid stem_weights_grid(const rg_conv_shape *s)
{
    return stem_grid_of(s, STEM_PARTS_ROWS, 0, STEM_DY_BYTES);
}

static bool accepts(rg_conv_call *call)
{
    return stem_suits(call) && stem_weights_grid(call->shape).rows > 0 &&
           rg_conv_has_stem(call->dtype);
}

template <rg_dtype T>
static void run_as(const rg_conv_weights_args *k, const void *x, const void *dy, packing *arena)
{
    enum { PARTS = 396 }; /* at most */
    const rg_conv_shape *s = &k->shape;
    const stem_grid g = stem_weights_grid(s);
    const int64_t each = ceil_div(g.all, PARTS), parts = ceil_div(g.all, each);
    const int64_t taps = s->row.window * g.pairs, size = s->out * taps * STEM_LANES;
    const stem_parts_args args = { (const uint16_t *)x, (const uint16_t *)dy,
                                   (float *)packing_take(arena,
                                                         (size_t)(parts * size) * sizeof(float)),
                                   (int32_t)each, s->out % STEM_LANES == 0 };
    if (!arena->run)
        return;
    const size_t shared = stem_bytes(&g, STEM_DY_BYTES);
    const dim3 grid((unsigned)parts, (unsigned)ceil_div(s->out, STEM_OUT),
                    (unsigned)ceil_div(taps, STEM_MOST_TAPS));
    (void)cudaFuncSetAttribute((const void *)stem_parts<T>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    stem_parts<T><<<grid, STEM_THREADS, shared, arena->place->stream>>>(*s, g, args);
    launch_dependent(stem_join<T>, dim3((unsigned)ceil_div(size, STEM_JOIN)), THREADS, arena->place,
                     *k, (const float *)args.parts, x, dy, g.pairs, (int32_t)parts);
}

static bool run(const rg_conv_call *call, packing *arena)
{
    const packed x = pack_x(arena, call, false);
    const packed dy = pack_dy(arena, call, false);
    (call->dtype == RG_F16 ? run_as<RG_F16> : run_as<RG_BF16>)(call->weights_args, x.data, dy.data,
                                                               arena);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_stem_weights = { "stem", accepts, run };
