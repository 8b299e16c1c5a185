/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* dw of many windows. A library may add up many products inexactly, so it makes dw of some images
 * at a time, and a kernel of ours adds up these sums in double. Images that are too large even one
 * by one are left to kernels for any shape. */
#include "ops/conv/conv_epilogue.cuh"
#include "ops/conv/conv_strategy.cuh"

/* Windows that one call adds up. cuDNN's kernels for groups keep one long chain of f32. */
enum { LIBRARY_WINDOWS = 1 << 21, LIBRARY_GROUP_WINDOWS = 1 << 14 };

/* Images of a call; 0: not even one. */
extern "C" int64_t rg_conv_images_per_call(const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    const int64_t each = s->row.count * s->column.count;
    if (rg_conv_is_depthwise(s))
        return s->images; /* by a kernel of ours, which adds up any number */
    const bool chain = call->dtype == RG_F32 && s->groups > 1 && !call->place->tf32;
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
        put_dense_weight<T>(k, at, (real<T>)sum);
}

/* dw is written last. */
template <rg_dtype T>
static bool run(const rg_conv_call *call, packing *arena, rg_conv_weights_run run_call)
{
    const rg_conv_weights_args *k = call->weights_args;
    const rg_conv_shape *s = call->shape;
    const int64_t count = s->groups * s->out * s->row.window * s->column.window * s->in;
    const int64_t each = rg_conv_images_per_call(call),
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
        if (!run_call(T, &some, (call->unaligned & 3) | odd, &own))
            return false;
        arena->used = arena->used > own.used ? arena->used : own.used;
    }
    if (arena->run)
        launch(join_images<T>, ceil_div(count, THREADS), THREADS, 0, arena->place, *k, sums, calls,
               count);
    return calls > 0;
}

extern "C" bool rg_conv_run_by_images(const rg_conv_call *call, packing *arena,
                                      rg_conv_weights_run run_call)
{
    static bool (*const by_dtype[])(const rg_conv_call *, packing *, rg_conv_weights_run) =
        CONV_BY_DTYPE(run);
    return by_dtype[call->dtype](call, arena, run_call);
}
