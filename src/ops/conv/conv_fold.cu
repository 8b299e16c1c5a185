/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* dx of images of three 16-bit channels and windows that move by two, by cuDNN, whose engines want
 * 8 channels and more: 2 by 2 pixels become the channels of one, (row, column, channel) and four of
 * zeros, windows have half as many taps, and move by one. Padding becomes part of the image. Taps
 * that a window does not have are zeros, which are no part of a sum: results that are not finite
 * are summed again. Tensors are dense. */
#include "ops/conv/conv_strategy.cuh"

enum { FOLD_IN = 3, FOLDED = 16 }; /* channels */

struct fold {
    int32_t rows, columns;   /* of the folded image */
    int32_t down, across;    /* taps of a folded window */
    int32_t pixels, weights; /* pixels of all images; taps of all channels; both folded */
};

static fold fold_of(const rg_conv_shape *s)
{
    fold f = {};
    f.down = (int32_t)(s->row.window + 1) / 2;
    f.across = (int32_t)(s->column.window + 1) / 2;
    f.rows = (int32_t)s->row.count + f.down - 1;
    f.columns = (int32_t)s->column.count + f.across - 1;
    f.pixels = (int32_t)s->images * f.rows * f.columns;
    f.weights = (int32_t)s->out * f.down * f.across;
    return f;
}

/* A thread has one folded tap of a channel of windows. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    fold_weights(const __grid_constant__ rg_conv_shape s, const __grid_constant__ fold f,
                 const element<T> *from, element<T> *to)
{
    const int32_t n = (int32_t)blockIdx.x * THREADS + (int32_t)threadIdx.x;
    if (n >= f.weights)
        return;
    const int32_t line = n / f.across, o = line / f.down;
    const int32_t p = 2 * (line - o * f.down), q = 2 * (n - line * f.across);
    const int32_t down = (int32_t)s.row.window, across = (int32_t)s.column.window;
    element<T> x[FOLDED] = {};
#pragma unroll
    for (int i = 0; i < 4 * FOLD_IN; i++) {
        const int32_t r = p + i / (2 * FOLD_IN), c = q + i / FOLD_IN % 2;
        if (r < down && c < across)
            x[i] = from[((o * down + r) * across + c) * FOLD_IN + i % FOLD_IN];
    }
    uint32_t words[FOLDED / 2];
#pragma unroll
    for (int i = 0; i < FOLDED / 2; i++)
        words[i] = (uint32_t)x[2 * i] | (uint32_t)x[2 * i + 1] << 16;
    uint4 *const vectors = (uint4 *)(to + (int64_t)n * FOLDED);
    vectors[0] = make_uint4(words[0], words[1], words[2], words[3]);
    vectors[1] = make_uint4(words[4], words[5], words[6], words[7]);
}

/* Where channel 0 of pixel (row, column) of some image stands in its folded one; -1: no window
 * meets it. */
static __device__ __forceinline__ int64_t folded_at(const fold &f, int64_t image, int32_t row,
                                                    int32_t column, int32_t rows, int32_t columns)
{
    if (row / 2 >= rows || column / 2 >= columns)
        return -1;
    return ((image * rows + row / 2) * columns + column / 2) * FOLDED +
           (row % 2 * 2 + column % 2) * FOLD_IN;
}

/* A thread has one pixel of dx. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    unfold_image(const __grid_constant__ rg_conv_shape s, const __grid_constant__ fold f,
                 const element<T> *from, const void *dy, const void *w, void *to, int32_t count,
                 bool add)
{
    const int32_t n = (int32_t)blockIdx.x * THREADS + (int32_t)threadIdx.x;
    if (n >= count)
        return;
    const int32_t rows = (int32_t)s.row.size, columns = (int32_t)s.column.size;
    const int32_t line = n / columns, image = line / rows;
    const int32_t row = line - image * rows, column = n - line * columns;
    const int64_t at = folded_at(f, image, row + (int32_t)s.row.before,
                                 column + (int32_t)s.column.before, f.rows, f.columns);
#pragma unroll
    for (int c = 0; c < FOLD_IN; c++) {
        real<T> x = at >= 0 ? to_real<T>(from[at + c]) : 0;
        if (!isfinite(x))
            x = pixel_sum<T>(s, dy, w, image, row, column, c);
        const int64_t i = (int64_t)n * FOLD_IN + c;
        put<T>(to, i, x, add);
    }
}

/* ---- strategy ---- */

static bool is_foldable(const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    const rg_conv_axis *const axes[2] = { &s->row, &s->column };
    bool foldable = rg_dtype_size(call->dtype) == 2 && s->groups == 1 && s->in == FOLD_IN;
    double pixels = (double)s->images;
    for (int i = 0; i < 2; i++) {
        const rg_conv_axis *a = axes[i];
        foldable &= a->stride == 2 && a->dilation == 1 && a->before >= 0 && a->window > 1;
        pixels *= (double)((a->size > 2 * a->count ? a->size : 2 * a->count) + a->window);
    }
    return foldable && pixels < INT32_MAX / FOLDED && (double)s->out * 65536 < INT32_MAX &&
           s->row.window < 256 && s->column.window < 256;
}

static bool accepts(rg_conv_call *call)
{
    if (call->direction != RG_CONV_DATA || !is_foldable(call))
        return false;
    const fold f = fold_of(call->shape);
    const int64_t size[2] = { f.rows, f.columns }, window[2] = { f.down, f.across };
    call->conv = rg_conv_cudnn_conv(call);
    call->conv.channels = FOLDED;
    for (int d = 0; d < 2; d++) {
        call->conv.size[d] = size[d];
        call->conv.window[d] = window[d];
        call->conv.stride[d] = 1;
        call->conv.before[d] = 0;
    }
    return rg_cudnn_conv_plan(call->place, &call->conv, &call->workspace);
}

template <rg_dtype T> static bool run_as(const rg_conv_call *call, packing *arena)
{
    const rg_conv_shape *s = call->shape;
    const bool own = has_epilogue(call->args), adds = call->args->add && !own;
    const fold f = fold_of(s);
    const size_t each = FOLDED * sizeof(element<T>);
    const packed dy = pack_from(arena, call, false);
    const packed w = pack_w(arena, call, false);
    packed dx = pack_to(arena, call, own, adds);
    void *const workspace = packing_take(arena, call->workspace);
    void *const image = packing_take(arena, (size_t)f.pixels * each);
    void *const weights = packing_take(arena, (size_t)f.weights * each);
    if (arena->run) {
        const int64_t pixels = s->images * s->row.size * s->column.size;
        launch(fold_weights<T>, ceil_div(f.weights, THREADS), THREADS, 0, arena->place, *s, f,
               (const element<T> *)w.data, (element<T> *)weights);
        if (!rg_cudnn_conv_run(arena->place, &call->conv, image, weights, dy.data, workspace,
                               call->workspace))
            return false;
        launch(unfold_image<T>, ceil_div(pixels, THREADS), THREADS, 0, arena->place, *s, f,
               (const element<T> *)image, dy.data, w.data, dx.data, (int32_t)pixels, adds);
    }
    put_result(arena, call, &dx, own);
    return true;
}

static bool run(const rg_conv_call *call, packing *arena)
{
    return (call->dtype == RG_F16 ? run_as<RG_F16> : run_as<RG_BF16>)(call, arena);
}

extern "C" const rg_conv_strategy rg_conv_fold = { "cudnn, folded", accepts, run };
