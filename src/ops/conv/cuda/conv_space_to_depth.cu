/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* dx of images of three 16-bit channels and windows that move by two, by cuDNN, whose engines want
 * 8 channels and more: 2 by 2 pixels become the channels of one, (row, column, channel) and four of
 * zeros, windows have half as many taps, and move by one. Padding becomes part of the image. Taps
 * that a window does not have are zeros, which are no part of a sum: results that are not finite
 * are summed again. Tensors are dense. */
#include "ops/conv/cuda/conv_strategy.cuh"

enum { S2D_IN_CHANNELS = 3, S2D_CHANNELS = 16 }; /* channels */

struct s2d_layout {
    int32_t rows, columns;   /* of the depth-packed image */
    int32_t down, across;    /* taps of a depth-packed window */
    int32_t pixels, weights; /* pixels of all images; taps of all channels; both depth-packed */
};

static s2d_layout layout_of(const rg_conv_shape *s)
{
    s2d_layout f = {};
    f.down = (int32_t)(s->row.window + 1) / 2;
    f.across = (int32_t)(s->column.window + 1) / 2;
    f.rows = (int32_t)s->row.count + f.down - 1;
    f.columns = (int32_t)s->column.count + f.across - 1;
    f.pixels = (int32_t)s->images * f.rows * f.columns;
    f.weights = (int32_t)s->out * f.down * f.across;
    return f;
}

/* A thread has one depth-packed tap of a channel of windows. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    weights_to_depth(const __grid_constant__ rg_conv_shape s, const __grid_constant__ s2d_layout f,
                     const element<T> *from, element<T> *to)
{
    const int32_t n = (int32_t)blockIdx.x * THREADS + (int32_t)threadIdx.x;
    if (n >= f.weights)
        return;
    const int32_t line = n / f.across, o = line / f.down;
    const int32_t p = 2 * (line - o * f.down), q = 2 * (n - line * f.across);
    const int32_t down = (int32_t)s.row.window, across = (int32_t)s.column.window;
    element<T> x[S2D_CHANNELS] = {};
#pragma unroll
    for (int i = 0; i < 4 * S2D_IN_CHANNELS; i++) {
        const int32_t r = p + i / (2 * S2D_IN_CHANNELS), c = q + i / S2D_IN_CHANNELS % 2;
        if (r < down && c < across)
            x[i] = from[((o * down + r) * across + c) * S2D_IN_CHANNELS + i % S2D_IN_CHANNELS];
    }
    uint32_t words[S2D_CHANNELS / 2];
#pragma unroll
    for (int i = 0; i < S2D_CHANNELS / 2; i++)
        words[i] = (uint32_t)x[2 * i] | (uint32_t)x[2 * i + 1] << 16;
    uint4 *const vectors = (uint4 *)(to + (int64_t)n * S2D_CHANNELS);
    vectors[0] = make_uint4(words[0], words[1], words[2], words[3]);
    vectors[1] = make_uint4(words[4], words[5], words[6], words[7]);
}

/* The offset of channel 0 of pixel (row, column) of an image in the depth-packed one; -1: no window
 * covers the pixel. */
static __device__ __forceinline__ int64_t depth_packed_at(const s2d_layout &f, int64_t image,
                                                          int32_t row, int32_t column, int32_t rows,
                                                          int32_t columns)
{
    if (row / 2 >= rows || column / 2 >= columns)
        return -1;
    return ((image * rows + row / 2) * columns + column / 2) * S2D_CHANNELS +
           (row % 2 * 2 + column % 2) * S2D_IN_CHANNELS;
}

/* A thread has one pixel of dx. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    depth_to_image(const __grid_constant__ rg_conv_shape s, const __grid_constant__ s2d_layout f,
                   const element<T> *from, const void *dy, const void *w, void *to, int32_t count,
                   bool add)
{
    const int32_t n = (int32_t)blockIdx.x * THREADS + (int32_t)threadIdx.x;
    if (n >= count)
        return;
    const int32_t rows = (int32_t)s.row.size, columns = (int32_t)s.column.size;
    const int32_t line = n / columns, image = line / rows;
    const int32_t row = line - image * rows, column = n - line * columns;
    const int64_t at = depth_packed_at(f, image, row + (int32_t)s.row.before,
                                       column + (int32_t)s.column.before, f.rows, f.columns);
#pragma unroll
    for (int c = 0; c < S2D_IN_CHANNELS; c++) {
        real<T> x = at >= 0 ? to_real<T>(from[at + c]) : 0;
        if (!isfinite(x))
            x = pixel_sum<T>(s, dy, w, image, row, column, c);
        const int64_t i = (int64_t)n * S2D_IN_CHANNELS + c;
        put<T>(to, i, x, add);
    }
}

/* ---- strategy ---- */

static bool is_packable(const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    const rg_conv_axis *const axes[2] = { &s->row, &s->column };
    bool packable = rg_dtype_size(call->dtype) == 2 && s->groups == 1 && s->in == S2D_IN_CHANNELS;
    double pixels = (double)s->images;
    for (int i = 0; i < 2; i++) {
        const rg_conv_axis *a = axes[i];
        packable &= a->stride == 2 && a->dilation == 1 && a->before >= 0 && a->window > 1;
        pixels *= (double)((a->size > 2 * a->count ? a->size : 2 * a->count) + a->window);
    }
    return packable && pixels < INT32_MAX / S2D_CHANNELS && (double)s->out * 65536 < INT32_MAX &&
           s->row.window < 256 && s->column.window < 256;
}

static bool accepts(rg_conv_call *call)
{
    if (call->direction != RG_CONV_DATA || !is_packable(call))
        return false;
    const s2d_layout f = layout_of(call->shape);
    const int64_t size[2] = { f.rows, f.columns }, window[2] = { f.down, f.across };
    call->conv = rg_conv_cudnn_conv(call);
    call->conv.channels = S2D_CHANNELS;
    for (int d = 0; d < 2; d++) {
        call->conv.size[d] = size[d];
        call->conv.window[d] = window[d];
        call->conv.stride[d] = 1;
        call->conv.before[d] = 0;
    }
    return rg_cudnn_conv_plan(call->target, &call->conv, &call->workspace);
}

template <rg_dtype T> static bool run_as(const rg_conv_call *call, scratch_arena *arena)
{
    const rg_conv_shape *s = call->shape;
    const bool own = has_epilogue(call->args), adds = call->args->add && !own;
    const s2d_layout f = layout_of(s);
    const size_t each = S2D_CHANNELS * sizeof(element<T>);
    const dense_copy dy = dense_from(arena, call, false);
    const dense_copy w = dense_w(arena, call, false);
    dense_copy dx = dense_to(arena, call, own, adds);
    void *const workspace = arena_alloc(arena, call->workspace);
    void *const image = arena_alloc(arena, (size_t)f.pixels * each);
    void *const weights = arena_alloc(arena, (size_t)f.weights * each);
    if (arena->enqueue) {
        const int64_t pixels = s->images * s->row.size * s->column.size;
        launch(weights_to_depth<T>, ceil_div(f.weights, THREADS), THREADS, 0, arena->target, *s, f,
               (const element<T> *)w.data, (element<T> *)weights);
        if (!rg_cudnn_conv_run(arena->target, &call->conv, image, weights, dy.data, workspace,
                               call->workspace))
            return false;
        launch(depth_to_image<T>, ceil_div(pixels, THREADS), THREADS, 0, arena->target, *s, f,
               (const element<T> *)image, dy.data, w.data, dx.data, (int32_t)pixels, adds);
    }
    put_result(arena, call, &dx, own);
    return true;
}

static bool run(const rg_conv_call *call, scratch_arena *arena)
{
    return (call->dtype == RG_F16 ? run_as<RG_F16> : run_as<RG_BF16>)(call, arena);
}

extern "C" const rg_conv_strategy rg_conv_space_to_depth = { "space-to-depth", accepts, run };
