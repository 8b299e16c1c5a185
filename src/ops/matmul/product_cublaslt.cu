/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products by cuBLASLt, and those over a long k by pieces. */
#include "backend/cuda/long_sum.cuh"
#include "ops/matmul/product_strategy.cuh"

/* ---- b + its mirror image ---- */

/* In 16 bits the sum of two numbers may be infinite: their mean is not, and alpha makes up for it.
 */
template <rg_dtype T> constexpr bool MIRROR_HALVES = T == RG_F16 || T == RG_BF16;

/* b(k, n) + b(n, k), or half of it, dense. A block has a square of it: the other square goes
 * through shared memory, so that neighbouring threads load neighbours from both. k and n have one
 * dimension. */
enum { MIRROR = 32, MIRROR_LINES = 8 };

template <rg_dtype T>
static __global__ void __launch_bounds__(MIRROR *MIRROR_LINES)
    mirrored_sum(const __grid_constant__ rg_product_args k, void *to, uint32_t across)
{
    __shared__ real<T> other[MIRROR][MIRROR + 1];
    const int64_t side = k.n.count;
    const uint32_t image = blockIdx.x / (across * across);
    const uint32_t square = blockIdx.x - image * across * across;
    const int64_t row = (int64_t)(square / across) * MIRROR;
    const int64_t column = (int64_t)(square % across) * MIRROR;
    const int64_t first = walk_offset(k.batch, 1, image);
    const int x = (int)threadIdx.x % MIRROR, y = (int)threadIdx.x / MIRROR;
    for (int i = y; i < MIRROR; i += MIRROR_LINES) {
        if (column + i < side && row + x < side)
            other[i][x] = load<T>(k.b, first + straight_offset(k.k, 1, column + i) +
                                           straight_offset(k.n, 0, row + x));
    }
    __syncthreads();
    for (int i = y; i < MIRROR; i += MIRROR_LINES) {
        if (row + i < side && column + x < side) {
            const real<T> here = load<T>(k.b, first + straight_offset(k.k, 1, row + i) +
                                                  straight_offset(k.n, 0, column + x));
            const real<T> sum = MIRROR_HALVES<T> ? (real<T>)0.5 * here + (real<T>)0.5 * other[x][i]
                                                 : here + other[x][i];
            store<T>(to, (image * side + row + i) * side + column + x, sum);
        }
    }
}

/* The same of matrices whose rows are aligned vectors. A block has two squares that mirror each
 * other, or one of the diagonal, so that b is read once. */
template <rg_dtype T> constexpr int PAIR_SIDE = T == RG_F64 ? 32 : 64;
enum { PAIR_THREADS = 256 };

/* Squares `number` of those on and right of the diagonal. */
static __device__ __forceinline__ void find_pair(int number, int across, int *row, int *column)
{
    *row = 0;
    for (; number >= across - *row; ++*row)
        number -= across - *row;
    *column = *row + number;
}

template <rg_dtype T>
static __global__ void __launch_bounds__(PAIR_THREADS)
    mirrored_pairs(const __grid_constant__ rg_product_args k, char *to, int across, int pairs)
{
    enum { V = VLEN<T>, SIDE = PAIR_SIDE<T>, VECTORS = SIDE / V, LINES = PAIR_THREADS / VECTORS };
    __shared__ real<T> squares[2][SIDE][SIDE + 1];
    uint4 held[2][SIDE / LINES];
    int target[2];
    const int side = (int)k.n.count, image = (int)blockIdx.x / pairs;
    find_pair((int)blockIdx.x - image * pairs, across, &target[0], &target[1]);
    const int x = (int)threadIdx.x % VECTORS * V, y = (int)threadIdx.x / VECTORS;
    const char *const from = at<T>(k.b, offset_at(k.batch, 1, image));
#pragma unroll
    for (int s = 0; s < 2; s++) {
        const int row = target[s] * SIDE + y, column = target[1 - s] * SIDE + x;
#pragma unroll
        for (int i = 0; i < SIDE / LINES; i++) {
            held[s][i] = make_uint4(0, 0, 0, 0);
            if (row + i * LINES < side && column < side)
                held[s][i] =
                    load_vector(at<T>(from, straight_offset(k.k, 1, row + i * LINES) + column));
        }
    }
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
        for (int i = 0; i < SIDE / LINES; i++)
            unpack<T>(held[s][i], &squares[s][y + i * LINES][x]);
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < 2; s++) {
        const int row = target[s] * SIDE + y, column = target[1 - s] * SIDE + x;
        if (s == 1 && target[0] == target[1])
            break;
#pragma unroll
        for (int i = 0; i < SIDE / LINES; i++) {
            const int line = y + i * LINES;
            real<T> sum[V];
            if (row + i * LINES >= side || column >= side)
                continue;
            unpack<T>(held[s][i], sum);
#pragma unroll
            for (int e = 0; e < V; e++) {
                const real<T> other = squares[1 - s][x + e][line];
                sum[e] = MIRROR_HALVES<T> ? (real<T>)0.5 * sum[e] + (real<T>)0.5 * other
                                          : sum[e] + other;
            }
            store_vector(at<T>(to, ((int64_t)image * side + row + i * LINES) * side + column),
                         pack<T>(sum), false);
        }
    }
}

/* Whether the rows of b are aligned vectors. */
template <rg_dtype T> static bool has_vector_rows(const rg_product_args *k)
{
    return (k->n.rank == 0 || k->n.strides[0][0] == 1) && k->n.count % VLEN<T> == 0 &&
           (k->k.rank == 0 || k->k.strides[1][0] % VLEN<T> == 0) &&
           is_aligned<T>(k->b, &k->batch, 1) && k->n.count <= INT32_MAX / 2;
}

template <rg_dtype T>
static void launch_mirrored(const rg_product_args *k, void *to, const rg_cuda_target *target)
{
    const int64_t across = ceil_div(k->n.count, MIRROR);
    if (has_vector_rows<T>(k)) {
        const int64_t squares = ceil_div(k->n.count, PAIR_SIDE<T>);
        const int64_t pairs = squares * (squares + 1) / 2;
        launch(mirrored_pairs<T>, k->batch.count * pairs, PAIR_THREADS, 0, target, *k, (char *)to,
               (int)squares, (int)pairs);
        return;
    }
    launch(mirrored_sum<T>, k->batch.count * across * across, MIRROR * MIRROR_LINES, 0, target, *k,
           to, (uint32_t)across);
}

static dense_copy dense_mirrored(scratch_arena *arena, const rg_cuda_product *call)
{
    static void (*const launch_by_dtype[])(
        const rg_product_args *, void *, const rg_cuda_target *) = RG_EVERY_DTYPE(launch_mirrored);
    const rg_product_args *k = call->args;
    const int64_t count = k->batch.count * k->k.count * k->n.count;
    dense_copy sum = {};
    sum.data = arena_alloc(arena, (size_t)count * rg_dtype_size(call->dtype));
    if (arena->enqueue)
        launch_by_dtype[call->dtype](k, sum.data, arena->target);
    return sum;
}

/* ---- strategy ---- */

/* Rows of the bias where c is to be, for what adds to them. */
static void spread_bias(const scratch_arena *arena, const rg_cuda_product *call, void *c)
{
    const rg_product_args *k = call->args;
    rg_copy_args copy = {};
    copy.device = (void *)k->bias;
    copy.staging = c;
    copy.rank = 2;
    copy.dims[0] = k->m.count;
    copy.dims[1] = k->n.count;
    copy.strides[1] = k->bias_step;
    copy.element = (int32_t)rg_dtype_size(call->dtype);
    copy.to_host = true;
    if (arena->enqueue)
        rg_cuda_strided_copy(&copy, arena->target->stream);
}

/* With a factor of 0 cuBLASLt does not read a and b, whose infinities and NaNs would be lost. */
static bool is_zero(double alpha, rg_dtype dtype)
{
    return dtype == RG_F64 ? alpha == 0 : (float)alpha == 0;
}

static bool accepts(rg_cuda_product *call)
{
    const rg_product_args *k = call->args;
    rg_product product = { .dtype = call->dtype,
                           .batch = k->batch.count,
                           .rows = k->m.count,
                           .columns = k->n.count,
                           .inner = k->k.count,
                           .transposed_a = k->a_transposed,
                           .transposed_b = k->b_transposed && !k->mirrored,
                           .bias = k->has_bias,
                           .add = k->add,
                           .wide = k->wide };
    const int64_t squares = ceil_div(k->n.count, MIRROR) * ceil_div(k->n.count, MIRROR);
    call->spread = false;
    if (product_is_long(call) || is_zero(k->alpha, call->dtype))
        return false;
    if (k->mirrored && (k->batch.count * squares > INT32_MAX || k->k.rank > 1 || k->n.rank > 1))
        return false; /* more blocks than a grid has, or more dimensions than a square */
    if (!rg_cublaslt_plan(call->target, &product, &call->workspace)) {
        call->spread = k->has_bias && k->batch.count == 1;
        product.bias = false;
        product.add = true;
        if (!call->spread || !rg_cublaslt_plan(call->target, &product, &call->workspace))
            return false;
    }
    call->product = product;
    return true;
}

static bool run(const rg_cuda_product *call, scratch_arena *arena)
{
    const rg_product_args *k = call->args;
    const size_t element = rg_dtype_size(call->dtype);
    const bool has_bias = call->product.bias;
    const dense_copy a = dense_a(arena, call);
    const dense_copy b = k->mirrored ? dense_mirrored(arena, call) : dense_b(arena, call);
    const int64_t columns = k->n.count;
    const dense_copy bias = dense_tensor(arena, k->bias, !(call->unaligned & 4), has_bias ? 1 : 0,
                                         &columns, &k->bias_step, (int32_t)element, has_bias);
    dense_copy c =
        dense_matrix(arena, k->wide ? sizeof(float) : element, k->c, !(call->unaligned & 8),
                     { { &k->batch, 2 }, { &k->m, 1 }, { &k->n, 1 } }, k->add);
    if (call->spread)
        spread_bias(arena, call, c.data);
    void *const space = arena_alloc(arena, call->workspace);
    const double alpha = k->mirrored && element == 2 ? 2 * k->alpha : k->alpha;
    const rg_product_operands operands = { a.data, b.data, bias.data, c.data };
    if (arena->enqueue &&
        !rg_cublaslt_run(arena->target, &call->product, alpha, &operands, space, call->workspace))
        return false;
    copy_dense(arena, &c, true);
    return true;
}

extern "C" const rg_product_strategy rg_product_cublaslt = { "cublaslt", accepts, run };

/* ---- a long k: cuBLASLt adds up products in f32 without an end, so it makes sums of pieces of k,
 * as short as the scratch for them allows, and a kernel of ours joins them ---- */

static bool plan_round(rg_cuda_product *call, int64_t batch, int64_t inner)
{
    size_t workspace = 0;
    rg_product product = call->product;
    product.batch = batch;
    product.inner = inner;
    if (batch > 0 && inner > 0 && !rg_cublaslt_plan(call->target, &product, &workspace))
        return false;
    call->workspace = call->workspace > workspace ? call->workspace : workspace;
    return true;
}

static bool accepts_long(rg_cuda_product *call)
{
    enum { BYTES = 64 << 20, BATCH = 1 << 14 };
    const rg_product_args *k = call->args;
    const bool half = rg_dtype_size(call->dtype) == 2;
    const int64_t size = k->m.count * k->n.count;
    const int64_t bytes = size * (int64_t)(call->dtype == RG_F64 ? sizeof(double) : sizeof(float));
    int64_t piece = half ? RG_SUM_BLOCK : RG_SUM_RUN;
    if (!product_is_long(call) || k->batch.count != 1 || k->mirrored || size == 0)
        return false;
    while (ceil_div(k->k.count, piece) * bytes > BYTES && piece < product_longest_call(call->dtype))
        piece *= 2;
    call->product = {};
    call->product.dtype = call->dtype;
    call->product.rows = k->m.count;
    call->product.columns = k->n.count;
    call->product.inner = piece;
    call->product.transposed_a = k->a_transposed;
    call->product.transposed_b = k->b_transposed;
    call->product.wide = half;
    call->product.whole = k->k.count;
    call->workspace = 0;
    call->pieces = k->k.count / piece;
    call->most = BYTES / bytes < BATCH ? BYTES / bytes : (int64_t)BATCH;
    call->most = call->most < 1 ? 1 : call->most < call->pieces ? call->most : call->pieces;
    return plan_round(call, call->most, piece) &&
           plan_round(call, call->pieces % call->most, piece) &&
           plan_round(call, 1, k->k.count % piece);
}

enum { LONG_JOIN = SPLIT_K_THREADS / SPLIT_K_SHARES }; /* elements of c of a block */

template <rg_dtype T>
static __global__ void __launch_bounds__(SPLIT_K_THREADS)
    join_pieces(const __grid_constant__ rg_product_args k, const real<T> *sums, int64_t count,
                int64_t size, double *totals, bool first, bool last)
{
    const int64_t i = (int64_t)blockIdx.x * LONG_JOIN + threadIdx.x % LONG_JOIN;
    double sum = split_k_sum<SPLIT_K_SHARES>(sums + i, size, i < size ? count : (int64_t)0);
    if (threadIdx.x >= LONG_JOIN || i >= size)
        return;
    sum = first ? sum : totals[i] + sum;
    if (!last) {
        totals[i] = sum;
        return;
    }
    const int64_t to = walk_offset(k.batch, 2, 0), m = i / k.n.count;
    char *const c = k.wide ? ::at<RG_F32>(k.c, to) : ::at<T>(k.c, to);
    store_result<T>(k, c, m, i - m * k.n.count, (real<T>)sum);
}

/* c is written last. */
template <rg_dtype T> static bool run_long_as(const rg_cuda_product *call, scratch_arena *arena)
{
    const rg_product_args *k = call->args;
    const int64_t size = k->m.count * k->n.count;
    const dense_copy a = dense_a(arena, call);
    const dense_copy b = dense_b(arena, call);
    real<T> *const sums =
        (real<T> *)arena_alloc(arena, (size_t)(call->most * size) * sizeof(real<T>));
    double *const totals = (double *)arena_alloc(arena, (size_t)size * sizeof(double));
    void *const space = arena_alloc(arena, call->workspace);
    const int64_t piece = call->product.inner, whole = call->product.whole;
    for (int64_t done = 0; arena->enqueue && done < whole;) {
        const int64_t left = (whole - done) / piece;
        rg_product product = call->product;
        product.batch = left == 0 ? 1 : left < call->most ? left : call->most;
        product.inner = left == 0 ? whole - done : piece;
        const char *const from_a = at<T>(a.data, product.transposed_a ? done * product.rows : done);
        const char *const from_b =
            at<T>(b.data, product.transposed_b ? done : done * product.columns);
        const rg_product_operands operands = { from_a, from_b, NULL, sums };
        if (!rg_cublaslt_run(arena->target, &product, 1, &operands, space, call->workspace))
            return false;
        const int64_t begun = done;
        done += product.batch * product.inner;
        launch(join_pieces<T>, ceil_div(size, LONG_JOIN), SPLIT_K_THREADS, 0, arena->target, *k,
               sums, product.batch, size, totals, begun == 0, done == whole);
    }
    return true;
}

static bool run_long(const rg_cuda_product *call, scratch_arena *arena)
{
    static bool (*const run_by_dtype[])(const rg_cuda_product *, scratch_arena *) =
        RG_EVERY_DTYPE(run_long_as);
    return run_by_dtype[call->dtype](call, arena);
}

extern "C" const rg_product_strategy rg_product_long = { "cublaslt-long", accepts_long, run_long };
