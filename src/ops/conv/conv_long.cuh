/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Long sums by libraries. How they add up many products is theirs: dw of many windows is made of
 * some images at a time, and a kernel of ours adds up these sums in double; what is too long even
 * so is left to kernels for any shape. Included by conv_library.cuh. */
#ifndef RG_OPS_CONV_LONG_CUH
#define RG_OPS_CONV_LONG_CUH

#include "ops/conv/conv.h"

/* Windows that one call adds up. cuDNN's kernels for groups keep one long chain of f32. */
enum { LIBRARY_WINDOWS = 1 << 21, LIBRARY_GROUP_WINDOWS = 1 << 14 };

/* Images of a call; 0: not even one. */
template <rg_dtype T>
static int64_t library_images(const rg_conv_shape *s, const rg_cuda_place *place)
{
    const int64_t each = s->row.count * s->column.count;
    const bool chain = T == RG_F32 && s->groups > 1 && !place->tf32;
    const int64_t limit = chain ? LIBRARY_GROUP_WINDOWS : LIBRARY_WINDOWS;
    const int64_t most = each > 0 ? limit / each : s->images;
    return most < 1            ? 0
           : most >= s->images ? s->images
                               : ceil_div(s->images, ceil_div(s->images, most));
}

/* Some images of a call, whose dw is dense and of the type that is computed in. */
template <rg_dtype T>
static rg_conv_weights_args some_images(const rg_conv_weights_args *k, int64_t first, int64_t count,
                                        void *sums)
{
    rg_conv_weights_args some = *k;
    rg_conv_shape *const s = &some.shape;
    const int64_t weights = s->row.window * s->column.window * s->in;
    const int64_t steps[5] = { s->out * weights, weights, s->column.window * s->in, s->in, 1 };
    for (int d = 0; d < 5; d++)
        s->w[d] = steps[d];
    s->w_first = 0;
    s->images = count;
    some.x = at<T>(k->x, first * s->x[0]);
    some.dy = at<T>(k->dy, first * s->y[0]);
    some.dw = sums;
    some.add = false;
    some.wide = sizeof(element<T>) == 2;
    return some;
}

/* dw from the sums of all calls, a thread each. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    join_images(const __grid_constant__ rg_conv_weights_args k, const real<T> *sums, int64_t calls,
                int64_t count)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double sum = 0;
    for (int64_t i = 0; at < count && i < calls; i++)
        sum += (double)sums[i * count + at];
    if (at < count)
        end_weight<T>(k, at, (real<T>)sum);
}

/* Does it, or finds out what it would take; false: it is not done. dw is written last. */
template <rg_dtype T>
static bool weights_by_images(const rg_conv_weights_args *k, uint32_t unaligned, packing *arena)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t count = s->groups * s->out * s->row.window * s->column.window * s->in;
    const int64_t each = library_images<T>(s, arena->place),
                  calls = each > 0 ? ceil_div(s->images, each) : 0;
    real<T> *const sums = (real<T> *)packing_take(arena, (size_t)(calls * count) * sizeof(real<T>));
    const size_t behind = arena->used;
    for (int64_t i = 0; i < calls; i++) {
        const int64_t first = i * each, left = s->images - first;
        const rg_conv_weights_args some = some_images<T>(k, first, left < each ? left : each,
                                                         arena->run ? sums + i * count : NULL);
        const uint32_t odd = (first * s->x[0] * (int64_t)sizeof(element<T>) % 16 != 0) |
                             (first * s->y[0] * (int64_t)sizeof(element<T>) % 16 != 0) << 1 |
                             (i * count * (int64_t)sizeof(real<T>) % 16 != 0) << 2;
        packing own = *arena;
        own.used = behind;
        conv_call call;
        if (!find_weights<T>(&some, arena->place, &call) ||
            !weights_by_library<T>(&some, &call, (unaligned & 3) | odd, &own))
            return false;
        arena->used = arena->used > own.used ? arena->used : own.used;
    }
    if (arena->run)
        launch(join_images<T>, ceil_div(count, THREADS), THREADS, 0, arena->place, *k, sums, calls,
               count);
    return calls > 0;
}

#endif
