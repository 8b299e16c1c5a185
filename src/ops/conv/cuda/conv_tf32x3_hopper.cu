/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The products of conv_tf32x3.cuh by the instructions that Hopper alone has (wgmma), which do twice
 * as many: four warps together have 64 rows, whose numbers are in registers, and all columns of a
 * tile, whose numbers are in shared memory, big and small ones. Tensor cores cut numbers to TF32:
 * big is the number itself, and small is what they cut off.
 *
 * Tiles in shared memory are laid out as tile_at says, from an address that is a multiple of 1024.
 *
 * The build reads the next line: see cmake/cuda.cmake.
 * RG_CUDA_FEATURES 90a */
#include "ops/conv/cuda/conv_tf32x3.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RG_HOPPER 1
#endif

enum { HOPPER_ALIGN_BYTES = 1024 };

/* ---- instructions ---- */

/* Shared memory that was written by threads is seen by wgmma after the next barrier. */
static __device__ __forceinline__ void publish()
{
#if RG_HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* All tiles are here but those of the last LEFT steps, and wgmma sees them. */
template <int LEFT> static __device__ __forceinline__ void await_tiles()
{
    await_steps<LEFT>();
    publish();
    __syncthreads();
}

/* Products may begin: registers are as they should be. */
static __device__ __forceinline__ void begin_products()
{
#if RG_HOPPER
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

static __device__ __forceinline__ void end_products()
{
#if RG_HOPPER
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

static __device__ __forceinline__ void await_products()
{
#if RG_HOPPER
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

/* Rows of a tile from its first one on, numbers k to k + 7 of each: addresses in units of 16 bytes,
 * 1024 bytes from 8 rows to the next, vectors in the order of tile_at. */
static __device__ __forceinline__ uint64_t describe_tile(const float *tile, int k)
{
    const uint64_t first = (shared_address(tile) + (uint32_t)k * 4) >> 4 & 0x3fff;
    return first | UINT64_C(1) << 16 | UINT64_C(1024 / 16) << 32 | UINT64_C(1) << 62;
}

/* Sums of a column and of eight of them, as asm names them. */
#define RG_SUM(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define RG_SUMS(j)                                                                        \
    RG_SUM(j), RG_SUM(j + 1), RG_SUM(j + 2), RG_SUM(j + 3), RG_SUM(j + 4), RG_SUM(j + 5), \
        RG_SUM(j + 6), RG_SUM(j + 7)

/* c = a b for 64 rows, 8 COLUMNS columns, 8 of k; `more`: c += a b. */
template <int COLUMNS>
static __device__ __forceinline__ void multiply_tile(float (&c)[COLUMNS][4], const uint32_t a[4],
                                                     uint64_t b, bool more)
{
#if RG_HOPPER
    if constexpr (COLUMNS == 16) {
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
            "{%64, %65, %66, %67}, %68, p, 1, 1;\n}\n"
            : RG_SUMS(0), RG_SUMS(8)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)more));
    } else {
        static_assert(COLUMNS == 8, "columns");
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "{%32, %33, %34, %35}, %36, p, 1, 1;\n}\n"
            : RG_SUMS(0)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)more));
    }
#else
    (void)c, (void)a, (void)b, (void)more;
#endif
}

#undef RG_SUMS
#undef RG_SUM

/* What is cut off, rounded to TF32. */
static __device__ __forceinline__ uint32_t small_part(float x)
{
    return __float_as_uint(x - __uint_as_float(__float_as_uint(x) & 0xffffe000)) + 0x1000;
}

/* part = rows of a, which are in registers, times the tiles `big` and `small`. */
template <int COLUMNS>
static __device__ __forceinline__ void
begin_tile(float (&part)[COLUMNS][4], const uint32_t big_a[TILE_K / 8][4],
           const uint32_t small_a[TILE_K / 8][4], const float *big, const float *small)
{
    begin_products();
#pragma unroll
    for (int i = 0; i < TILE_K / 8; i++) {
        const uint64_t big_b = describe_tile(big, i * 8), small_b = describe_tile(small, i * 8);
        multiply_tile<COLUMNS>(part, small_a[i], big_b, i > 0);
        multiply_tile<COLUMNS>(part, big_a[i], small_b, true);
        multiply_tile<COLUMNS>(part, big_a[i], big_b, true);
    }
    end_products();
}

template <int COLUMNS>
static __device__ __forceinline__ void end_tile(float (&sum)[COLUMNS][4], float (&part)[COLUMNS][4])
{
    await_products();
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[j][e] += part[j][e];
}

/* Dynamic shared memory from the first address on that tiles can have. */
static __device__ __forceinline__ float *aligned_shared(float *shared)
{
    const uint32_t remainder = shared_address(shared) % HOPPER_ALIGN_BYTES;
    return shared + (remainder == 0 ? 0 : HOPPER_ALIGN_BYTES - remainder) / sizeof(float);
}

/* ---- forward and data: tiles of TILE_M rows by N columns, two groups of four warps ---- */

template <int N> constexpr int HOPPER_STAGES = N == 128 ? 4 : 3;

/* Weights of a step, big and small. */
template <int N>
static __device__ __forceinline__ void load_weights(const tf32x3_conv &k, const float *small,
                                                    const tile_step &s, int first, float *b)
{
    enum { LINES = THREADS / 8 };
    const int vector = (int)threadIdx.x % 8 * 4, line = (int)threadIdx.x / 8;
    const bool inside = s.channel + vector < k.channels;
    const int tap = s.p * k.column.taps + s.q, taps = k.row.taps * k.column.taps;
#pragma unroll
    for (int i = 0; i < N / LINES; i++) {
        const int n = line + i * LINES;
        const bool valid = inside && first + n < k.columns;
        const uint32_t at =
            (uint32_t)((first + n) * taps + tap) * (uint32_t)k.channels + s.channel + vector;
        copy_or_zero<16>(b + tile_at(n, vector), valid ? k.w + at : k.w, valid);
        copy_or_zero<16>(b + N * TILE_K + tile_at(n, vector), valid ? small + at : small, valid);
    }
}

/* Rows of a that a warp has, in registers. */
struct hopper_rows {
    uint32_t big[TILE_K / 8][4], less[TILE_K / 8][4];
};

static __device__ __forceinline__ void take_rows(hopper_rows &r, const float *a, int m)
{
    const int lane = (int)threadIdx.x % WARP_THREADS;
#pragma unroll
    for (int i = 0; i < TILE_K / 8; i++) {
        float x[4];
        load_blocks(x, a + tile_at(m + lane % 16, i * 8 + lane / 16 * 4));
#pragma unroll
        for (int e = 0; e < 4; e++) {
            r.big[i][e] = __float_as_uint(x[e]);
            r.less[i][e] = small_part(x[e]);
        }
    }
}

template <int N>
static __global__ void __launch_bounds__(THREADS, N == 128 ? 1 : 2)
    hopper_tiles(const __grid_constant__ rg_conv_args args, const __grid_constant__ tf32x3_conv k,
                 const float *small)
{
    enum { COLUMNS = N / 8, STAGES = HOPPER_STAGES<N>, A = TILE_M * TILE_K, AHEAD = N == 128 };
    enum { SIZE = A + 2 * N * TILE_K };
    extern __shared__ __align__(16) float shared[];
    __shared__ tile_row lines[TILE_M];
    float *const tiles = aligned_shared(shared);
    const int row_phase = k.back ? (int)blockIdx.z / k.column.stride : 0;
    const int column_phase = k.back ? (int)blockIdx.z % k.column.stride : 0;
    const int rows = phase_count(k.row, k.back, row_phase);
    const int columns = phase_count(k.column, k.back, column_phase);
    const int64_t first_m = (int64_t)blockIdx.x * TILE_M;
    const int first_n = (int)blockIdx.y * N, warp = (int)threadIdx.x / WARP_THREADS;
    if (first_m >= (int64_t)k.images * rows * columns)
        return;
    find_rows(k, first_m, rows, columns, lines);
    tile_step step = { 0, 0, 0, 0, 0 };
    find_tap(k, row_phase, column_phase, step);
    /* where the next tiles go; how many are known to exist; which are used */
    int slot = 0, steps = 0, used = 0;
    const auto load_next = [&]() {
        float *a = tiles + slot * SIZE;
        if (step.p < k.row.taps) {
            load_vectors<0>(k, lines, step, first_n, a, a);
            load_weights<N>(k, small, step, first_n, a + A);
            next_step(k, row_phase, column_phase, step);
            steps++;
        }
        slot = slot == STAGES - 1 ? 0 : slot + 1;
        end_copies();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        load_next();
    warp_tile<1, COLUMNS> c = {};
    hopper_rows r;
    const int m = warp * 16;
    await_tiles<STAGES - 2>();
    take_rows(r, tiles, m);
#pragma unroll 2
    for (int done = 0; done < steps; done++) { /* AHEAD: the next rows are taken during products */
        const float *b = tiles + used * SIZE + A;
        used = used == STAGES - 1 ? 0 : used + 1;
        float part[COLUMNS][4];
        begin_tile<COLUMNS>(part, r.big, r.less, b, b + N * TILE_K);
        if (!AHEAD)
            end_tile<COLUMNS>(c.sum[0], part);
        await_tiles<STAGES - 3>(); /* those before these have been used */
        load_next();
        hopper_rows next;
        take_rows(next, tiles + used * SIZE, m);
        if (AHEAD)
            end_tile<COLUMNS>(c.sum[0], part);
        r = next;
    }
    store_tile<1, COLUMNS>(args, k, c, first_m + m, first_n, row_phase, column_phase);
}

/* ---- weights: as tf32x3_partials; x is transposed for wgmma ---- */

enum { HOPPER_M = 128 };

/* Lines of x, `b`, become rows of the tiles big and small. */
static __device__ __forceinline__ void transpose_lines(const float *b, float *big, float *small)
{
    enum { N = WEIGHTS_N };
    const int n = (int)threadIdx.x % N;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int q = (int)threadIdx.x / N * 4 + i; /* which vector of k */
        float x[4], less[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            x[e] = b[(q * 4 + e) * (N + WEIGHTS_PITCH) + n];
            less[e] = __uint_as_float(small_part(x[e]));
        }
        *(float4 *)(big + tile_at(n, q * 4)) = make_float4(x[0], x[1], x[2], x[3]);
        *(float4 *)(small + tile_at(n, q * 4)) = make_float4(less[0], less[1], less[2], less[3]);
    }
}

/* Rows of a that a warp has, from lines of dy. */
static __device__ __forceinline__ void take_lines(hopper_rows &r, const float *a, int m)
{
    enum { PITCH = HOPPER_M + WEIGHTS_PITCH };
    const int lane = (int)threadIdx.x % WARP_THREADS;
#pragma unroll
    for (int i = 0; i < TILE_K / 8; i++) {
        const float *from = a + (i * 8 + lane % 4) * PITCH + m + lane / 4;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float x = from[e / 2 * 4 * PITCH + e % 2 * 8];
            r.big[i][e] = __float_as_uint(x);
            r.less[i][e] = small_part(x);
        }
    }
}

static __global__ void __launch_bounds__(THREADS, 1)
    hopper_partials(const __grid_constant__ tf32x3_weights k)
{
    enum { M = HOPPER_M, N = WEIGHTS_N, COLUMNS = N / 8, PITCH = M + WEIGHTS_PITCH };
    enum { A = TILE_K * PITCH, SIZE = A + TILE_K * (N + WEIGHTS_PITCH), TRANSPOSED = N * TILE_K };
    extern __shared__ __align__(16) float shared[];
    __shared__ tile_row lines[2][TILE_K];
    float *const transposed_b = aligned_shared(shared), *const stages =
                                                            transposed_b + 4 * TRANSPOSED;
    const int first_n = (int)blockIdx.x * N, first_m = (int)blockIdx.y * M;
    const int begin = (int)blockIdx.z * k.part;
    const int end = k.windows - begin < k.part ? k.windows : begin + k.part;
    const int steps = (end - begin + TILE_K - 1) / TILE_K, warp = (int)threadIdx.x / WARP_THREADS;
    const int m = warp * 16;
    int slot = 0;
    const auto load_step = [&](int step) {
        load_part<M, 16>(k, lines, begin, end, step, first_m, first_n, stages + slot * SIZE);
        slot = slot == TILE_STAGES - 1 ? 0 : slot + 1;
    };
    find_windows(k, begin, 0, lines);
#pragma unroll
    for (int i = 0; i < TILE_STAGES; i++) {
        __syncthreads();
        load_step(i);
    }
    warp_tile<1, COLUMNS> c = {};
    hopper_rows r;
    await_steps<TILE_STAGES - 1>();
    __syncthreads();
    transpose_lines(stages + A, transposed_b, transposed_b + TRANSPOSED);
    take_lines(r, stages, m);
    int used = 0;
    /* While products are made, the next ones are prepared. */
#pragma unroll 2
    for (int step = 0; step < steps; step++) {
        float *const now = transposed_b + step % 2 * 2 * TRANSPOSED;
        float *const then = transposed_b + (step + 1) % 2 * 2 * TRANSPOSED;
        publish();
        __syncthreads(); /* these tiles are ready, and stages before have been used */
        float part[COLUMNS][4];
        begin_tile<COLUMNS>(part, r.big, r.less, now, now + TRANSPOSED);
        load_step(step + TILE_STAGES);
        await_steps<TILE_STAGES - 1>();
        __syncthreads(); /* the next stage is here */
        used = used == TILE_STAGES - 1 ? 0 : used + 1;
        transpose_lines(stages + used * SIZE + A, then, then + TRANSPOSED);
        hopper_rows next;
        take_lines(next, stages + used * SIZE, m);
        end_tile<COLUMNS>(c.sum[0], part);
        r = next;
    }
    store_partials<1, COLUMNS>(k, c, begin, end, first_m + m, first_n);
}

/* ---- host side ---- */

/* What the device's code was built with, known from the size of its shared memory. */
static __global__ void __launch_bounds__(32) hopper_mark(int *to)
{
#if RG_HOPPER
    __shared__ int mark[2];
    mark[threadIdx.x % 2] = to[threadIdx.x];
    __syncwarp();
    to[threadIdx.x] = mark[(threadIdx.x + 1) % 2];
#else
    (void)to;
#endif
}

extern "C" bool rg_conv_tf32x3_has_hopper(void)
{
    cudaFuncAttributes attributes;
    const bool has = cudaFuncGetAttributes(&attributes, (const void *)hopper_mark) == cudaSuccess &&
                     attributes.sharedSizeBytes >= 2 * sizeof(int);
    (void)cudaGetLastError();
    return has;
}

/* What TF32 cuts off numbers. */
static __global__ void __launch_bounds__(THREADS)
    small_parts(const float *from, float *to, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        to[i] = __uint_as_float(small_part(from[i]) & 0xffffe000);
}

template <int N>
static void launch_hopper(const rg_conv_args *args, const tf32x3_conv *k, const float *small,
                          const rg_cuda_target *target)
{
    const int phases = k->back ? k->row.stride * k->column.stride : 1;
    const int64_t rows =
        (int64_t)k->images * phase_count(k->row, k->back, 0) * phase_count(k->column, k->back, 0);
    const dim3 grid((unsigned)ceil_div(rows, TILE_M), (unsigned)ceil_div(k->columns, N),
                    (unsigned)phases);
    const size_t shared =
        HOPPER_STAGES<N> * (TILE_M + 2 * N) * TILE_K * sizeof(float) + HOPPER_ALIGN_BYTES;
    (void)cudaFuncSetAttribute((const void *)hopper_tiles<N>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    hopper_tiles<N><<<grid, THREADS, shared, target->stream>>>(*args, *k, small);
}

/* Of `count` weights, in scratch. */
extern "C" void rg_conv_tf32x3_hopper(const rg_conv_args *args, const tf32x3_conv *k, int64_t count,
                                      scratch_arena *arena)
{
    float *small = (float *)arena_alloc(arena, (size_t)count * sizeof(float));
    if (!arena->enqueue)
        return;
    launch(small_parts, ceil_div(count, THREADS), THREADS, 0, arena->target, k->w, small, count);
    if (k->columns <= 64)
        launch_hopper<64>(args, k, small, arena->target);
    else
        launch_hopper<128>(args, k, small, arena->target);
}

extern "C" void rg_conv_tf32x3_hopper_weights(const tf32x3_weights *k, int parts,
                                              const rg_cuda_target *target)
{
    const dim3 grid((unsigned)ceil_div((int64_t)k->taps * k->in, WEIGHTS_N),
                    (unsigned)ceil_div(k->out, HOPPER_M), (unsigned)parts);
    const size_t tiles = 4 * WEIGHTS_N * TILE_K,
                 stage = TILE_K * (HOPPER_M + WEIGHTS_N + 2 * WEIGHTS_PITCH);
    const size_t shared = (tiles + TILE_STAGES * stage) * sizeof(float) + HOPPER_ALIGN_BYTES;
    (void)cudaFuncSetAttribute((const void *)hopper_partials,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    hopper_partials<<<grid, THREADS, shared, target->stream>>>(*k);
}
