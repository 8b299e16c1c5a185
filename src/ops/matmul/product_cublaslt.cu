/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products by cuBLASLt. */
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

template <rg_dtype T>
static void launch_mirrored(const rg_product_args *k, void *to, const rg_cuda_place *place)
{
    const int64_t across = ceil_div(k->n.count, MIRROR);
    launch(mirrored_sum<T>, k->batch.count * across * across, MIRROR * MIRROR_LINES, 0, place, *k,
           to, (uint32_t)across);
}

static packed pack_mirrored(packing *arena, const rg_cuda_product *call)
{
    static void (*const launch_by_dtype[])(
        const rg_product_args *, void *,
        const rg_cuda_place *) = { launch_mirrored<RG_F32>, launch_mirrored<RG_F64>,
                                   launch_mirrored<RG_F16>, launch_mirrored<RG_BF16> };
    const rg_product_args *k = call->args;
    const int64_t count = k->batch.count * k->k.count * k->n.count;
    packed sum = {};
    sum.data = packing_take(arena, (size_t)count * rg_dtype_size(call->dtype));
    if (arena->run)
        launch_by_dtype[call->dtype](k, sum.data, arena->place);
    return sum;
}

/* ---- strategy ---- */

/* Rows of the bias where c is to be, for what adds to them. */
static void spread_bias(const packing *arena, const rg_cuda_product *call, void *c)
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
    if (arena->run)
        rg_cuda_strided_copy(&copy, arena->place->stream);
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
    if (!rg_cublaslt_plan(call->place, &product, &call->workspace)) {
        call->spread = k->has_bias && k->batch.count == 1;
        product.bias = false;
        product.add = true;
        if (!call->spread || !rg_cublaslt_plan(call->place, &product, &call->workspace))
            return false;
    }
    call->product = product;
    return true;
}

static bool run(const rg_cuda_product *call, packing *arena)
{
    const rg_product_args *k = call->args;
    const size_t element = rg_dtype_size(call->dtype);
    const bool has_bias = call->product.bias;
    const packed a = pack_a(arena, call);
    const packed b = k->mirrored ? pack_mirrored(arena, call) : pack_b(arena, call);
    const int64_t columns = k->n.count;
    const packed bias = pack_tensor(arena, k->bias, !(call->unaligned & 4), has_bias ? 1 : 0,
                                    &columns, &k->bias_step, (int32_t)element, has_bias);
    packed c = pack_matrix(arena, k->wide ? sizeof(float) : element, k->c, !(call->unaligned & 8),
                           &k->batch, 2, &k->m, 1, &k->n, 1, k->add);
    if (call->spread)
        spread_bias(arena, call, c.data);
    void *const space = packing_take(arena, call->workspace);
    const double alpha = k->mirrored && element == 2 ? 2 * k->alpha : k->alpha;
    if (arena->run && !rg_cublaslt_run(arena->place, &call->product, alpha, a.data, b.data,
                                       bias.data, c.data, space, call->workspace))
        return false;
    packed_copy(arena, &c, true);
    return true;
}

extern "C" const rg_product_strategy rg_product_cublaslt = { "cublaslt", accepts, run };
