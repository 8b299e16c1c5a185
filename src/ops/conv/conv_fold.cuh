/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* dx of images of three 16-bit channels and windows that move by two, for a library, whose engines
 * want 8 channels and more: 2 by 2 pixels become the channels of one, (row, column, channel) and
 * four of zeros, windows have half as many taps, and move by one. Padding becomes part of the
 * image. Taps that a window does not have are zeros, which are no part of a sum: results that are
 * not finite are summed again. Tensors are dense. Included by conv_library.cuh. */
#ifndef RG_OPS_CONV_FOLD_CUH
#define RG_OPS_CONV_FOLD_CUH

#include "backend/cuda/packing.cuh"
#include "ops/conv/conv.h"
#include "ops/conv/conv_nonfinite.cuh"

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

template <rg_dtype T> static bool fold_takes(const rg_conv_shape *s)
{
    const rg_conv_axis *const axes[2] = { &s->row, &s->column };
    bool takes = sizeof(element<T>) == 2 && s->groups == 1 && s->in == FOLD_IN;
    double pixels = (double)s->images;
    for (int i = 0; i < 2; i++) {
        const rg_conv_axis *a = axes[i];
        takes &= a->stride == 2 && a->dilation == 1 && a->before >= 0 && a->window > 1;
        pixels *= (double)((a->size > 2 * a->count ? a->size : 2 * a->count) + a->window);
    }
    return takes && pixels < INT32_MAX / FOLDED && (double)s->out * 65536 < INT32_MAX &&
           s->row.window < 256 && s->column.window < 256;
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
        store<T>(to, i, add ? load<T>(to, i) + x : x);
    }
}

/* ---- host side ---- */

/* Folded tensors in scratch. */
struct folded {
    void *image, *weights;
};

template <rg_dtype T>
static folded fold_tensors(packing *arena, const rg_conv_shape *s, const void *w)
{
    const fold f = fold_of(s);
    const size_t each = FOLDED * sizeof(element<T>);
    folded t = {};
    t.image = packing_take(arena, (size_t)f.pixels * each);
    t.weights = packing_take(arena, (size_t)f.weights * each);
    if constexpr (sizeof(element<T>) == 2)
        if (arena->run)
            launch(fold_weights<T>, ceil_div(f.weights, THREADS), THREADS, 0, arena->place, *s, f,
                   (const element<T> *)w, (element<T> *)t.weights);
    return t;
}

template <rg_dtype T>
static void unfold(const packing *arena, const rg_conv_shape *s, const folded *t, const void *dy,
                   const void *w, void *to, bool add)
{
    const int64_t pixels = s->images * s->row.size * s->column.size;
    if constexpr (sizeof(element<T>) == 2)
        if (arena->run)
            launch(unfold_image<T>, ceil_div(pixels, THREADS), THREADS, 0, arena->place, *s,
                   fold_of(s), (const element<T> *)t->image, dy, w, to, (int32_t)pixels, add);
}

/* The convolution that a library sees. */
static void fold_conv(const rg_conv_shape *s, rg_cudnn_conv *conv)
{
    const fold f = fold_of(s);
    const int64_t size[2] = { f.rows, f.columns }, window[2] = { f.down, f.across };
    conv->channels = FOLDED;
    for (int d = 0; d < 2; d++) {
        conv->size[d] = size[d];
        conv->window[d] = window[d];
        conv->stride[d] = 1;
        conv->before[d] = 0;
    }
}

#endif
