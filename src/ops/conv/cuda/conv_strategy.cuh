/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The strategies of convolutions on a GPU: each way of running one is a file that ends with its
 * record. conv_cuda.cu decides which one runs.
 *
 * What they share: the epilogue of a sum, the join of partial sums, the policy for non-finite
 * values, and dense tensors. Kernels apply the epilogue to a sum in a register; sums of a library
 * go through kernels of conv_epilogue.cu. */
#ifndef RG_OPS_CONV_STRATEGY_CUH
#define RG_OPS_CONV_STRATEGY_CUH

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/kernel.cuh"
#include "backend/cuda/dense_copy.cuh"
#include "ops/conv/conv.h"
#include "ops/fused_neuron/any_neuron.cuh"

enum { THREADS = 256 }; /* of a block */

/* Blocks for `count` threads whose loops take a grid's length at a time. */
static inline int64_t blocks_of(int64_t count, int64_t threads)
{
    enum { MAX_BLOCKS = 1 << 30 };
    const int64_t blocks = ceil_div(count, threads);
    return blocks < MAX_BLOCKS ? blocks : (int64_t)MAX_BLOCKS;
}

/* ---- results: bias, neuron, conversion ---- */

/* Channel c of a pixel whose channel 0 is element `to` of the result and element `z` of z. */
template <rg_dtype T, class ARGS>
static __device__ __forceinline__ void finish(const ARGS &k, int64_t to, int64_t z, int64_t c,
                                              int64_t step, real<T> value)
{
    if (k.has_b)
        value += load<T>(k.b, c * k.b_step);
    if (k.has_z)
        store<T>(k.z, z + c * k.z_step[3], value);
    if (k.neuron.kind != RG_NEURON_NONE)
        value = any_neuron<T>(k.neuron.kind, neuron_constants_in<T>(k.neuron.numbers), value);
    if (k.add) /* put() would change the machine code of the kernels that inline this */
        value += load<T>(k.to, to + c * step);
    store<T>(k.to, to + c * step, value);
}

/* V neighbouring channels from c on after which at most a bias and ReLU come. */
template <rg_dtype T, int V, class ARGS>
static __device__ __forceinline__ void add_bias_and_relu(const ARGS &k, int64_t c, int64_t b_step,
                                                         real<T> sum[V])
{
#pragma unroll
    for (int e = 0; e < V; e++) {
        if (k.has_b)
            sum[e] += load<T>(k.b, (c + e) * b_step);
        if (k.neuron.kind == RG_NEURON_RELU)
            sum[e] = neuron_relu<T>(neuron_constants_in<T>(k.neuron.numbers), sum[e], sum[e]);
    }
}

struct pixel {
    int64_t image, row, column, channel;
};

/* Pixels are numbered along channels, columns, rows, images. */
static __device__ __forceinline__ pixel pixel_at(int64_t i, int64_t rows, int64_t columns,
                                                 int64_t channels)
{
    pixel p;
    p.channel = i % channels;
    i /= channels;
    p.column = i % columns;
    i /= columns;
    p.row = i % rows;
    p.image = i / rows;
    return p;
}

/* ---- weights ---- */

template <rg_dtype T>
static __device__ __forceinline__ void put_weight(const rg_conv_weights_args &k, int64_t to,
                                                  real<T> sum)
{
    put_as<T>(k.dw, to, sum, k.add, k.wide);
}

/* Weight number `at` of dense ones. */
template <rg_dtype T>
static __device__ __forceinline__ void put_dense_weight(const rg_conv_weights_args &k, int64_t at,
                                                        real<T> sum)
{
    const rg_conv_shape &s = k.shape;
    const int64_t tap = at / s.in, c = at - tap * s.in, line = tap / s.column.window;
    const int64_t channel = line / s.row.window, g = channel / s.out;
    put_weight<T>(k,
                  s.w_first + g * s.w[0] + (channel - g * s.out) * s.w[1] +
                      (line - channel * s.row.window) * s.w[2] +
                      (tap - line * s.column.window) * s.w[3] + c * s.w[4],
                  sum);
}

/* ---- in kernels of their own, conv_epilogue.cu: by dtype ---- */

/* Applies the epilogue to dense sums, which may be the result itself. `image_side`: of pixels. */
typedef void conv_finish(const rg_conv_args *k, bool image_side, const void *sums,
                         const rg_cuda_target *target);
extern "C" conv_finish *const rg_conv_finish_sums[RG_CUDA_DTYPES];

/* Stores dense sums in dw. */
typedef void conv_put_weights(const rg_conv_weights_args *k, const void *sums,
                              const rg_cuda_target *target);
extern "C" conv_put_weights *const rg_conv_put_weights[RG_CUDA_DTYPES];

/* dw from `count` dense partial sums, which are consecutive, as real. */
typedef void conv_join_weights(const rg_conv_weights_args *k, const void *partials, int64_t count,
                               const rg_cuda_target *target);
extern "C" conv_join_weights *const rg_conv_join_weights[RG_CUDA_DTYPES];

/* ---- non-finite sums: padding must not contribute, but infinity times 0 is NaN. Tensor cores and
 * libraries multiply by the zeros of padding, so results that are not finite are summed again,
 * product by product, from the taps inside the image. All tensors are dense ---- */

static __device__ __forceinline__ int64_t image_at(const rg_conv_shape &s, int64_t image,
                                                   int64_t row, int64_t column)
{
    return ((image * s.row.size + row) * s.column.size + column) * s.groups * s.in;
}

static __device__ __forceinline__ int64_t window_at(const rg_conv_shape &s, int64_t image,
                                                    int64_t row, int64_t column)
{
    return ((image * s.row.count + row) * s.column.count + column) * s.groups * s.out;
}

static __device__ __forceinline__ int64_t weight_at(const rg_conv_shape &s, int64_t channel,
                                                    int64_t p, int64_t q)
{
    return ((channel * s.row.window + p) * s.column.window + q) * s.in;
}

/* Channel `channel` of window (i, j). */
template <rg_dtype T>
static __device__ real<T> window_sum(const rg_conv_shape &s, const void *x, const void *w,
                                     int64_t image, int64_t i, int64_t j, int64_t channel)
{
    const int64_t group = channel / s.out;
    int64_t p0, p1, q0, q1;
    rg_conv_taps(&s.row, i, &p0, &p1);
    rg_conv_taps(&s.column, j, &q0, &q1);
    real<T> sum = 0;
    for (int64_t p = p0; p < p1; p++) {
        for (int64_t q = q0; q < q1; q++) {
            const int64_t row = i * s.row.stride - s.row.before + p * s.row.dilation;
            const int64_t column = j * s.column.stride - s.column.before + q * s.column.dilation;
            const int64_t from = image_at(s, image, row, column) + group * s.in;
            const int64_t by = weight_at(s, channel, p, q);
            for (int64_t c = 0; c < s.in; c++)
                sum = fma(load<T>(x, from + c), load<T>(w, by + c), sum);
        }
    }
    return sum;
}

/* Channel `channel` of pixel (r, column) of the image. */
template <rg_dtype T>
static __device__ real<T> pixel_sum(const rg_conv_shape &s, const void *y, const void *w,
                                    int64_t image, int64_t r, int64_t column, int64_t channel)
{
    const int64_t group = channel / s.in, c = channel - group * s.in;
    real<T> sum = 0;
    for (int64_t p = 0; p < s.row.window; p++) {
        const int64_t i = rg_conv_window(&s.row, r, p);
        for (int64_t q = 0; i >= 0 && q < s.column.window; q++) {
            const int64_t j = rg_conv_window(&s.column, column, q);
            for (int64_t o = group * s.out; j >= 0 && o < (group + 1) * s.out; o++)
                sum = fma(load<T>(y, window_at(s, image, i, j) + o),
                          load<T>(w, weight_at(s, o, p, q) + c), sum);
        }
    }
    return sum;
}

/* One weight, product by product. */
template <rg_dtype T>
static __device__ __noinline__ real<T> weight_sum(const rg_conv_shape &s, const void *x,
                                                  const void *dy, int64_t at)
{
    const int64_t c = at % s.in, tap = at / s.in, q = tap % s.column.window;
    const int64_t p = tap / s.column.window % s.row.window,
                  o = tap / s.column.window / s.row.window;
    int64_t i0, i1, j0, j1;
    rg_conv_windows(&s.row, p, &i0, &i1);
    rg_conv_windows(&s.column, q, &j0, &j1);
    real<T> sum = 0;
    for (int64_t image = 0; image < s.images; image++) {
        for (int64_t i = i0; i < i1; i++) {
            const int64_t row = i * s.row.stride - s.row.before + p * s.row.dilation;
            for (int64_t j = j0; j < j1; j++) {
                const int64_t column =
                    j * s.column.stride - s.column.before + q * s.column.dilation;
                sum = fma(load<T>(dy, window_at(s, image, i, j) + o),
                          load<T>(x, image_at(s, image, row, column) + o / s.out * s.in + c), sum);
            }
        }
    }
    return sum;
}

/* Whether tensor cores take channels of several groups at once, with weights of 0 between them. */
static inline bool mixes_groups(rg_dtype dtype, const rg_conv_shape *s,
                                const rg_cuda_target *target)
{
    return s->groups > 1 &&
           (dtype == RG_F16 || dtype == RG_BF16 || (dtype == RG_F32 && target->tf32));
}

/* Sums results of a library again where they are not finite and an operand is no part of them.
 * `back`: of the image, from windows. By dtype. */
typedef void conv_resum(const rg_conv_shape *s, bool back, const void *from, const void *w,
                        void *to, const rg_cuda_target *target);
extern "C" conv_resum *const rg_conv_resum[RG_CUDA_DTYPES];
typedef void conv_resum_weights(const rg_conv_shape *s, const void *x, const void *dy, void *dw,
                                const rg_cuda_target *target);
extern "C" conv_resum_weights *const rg_conv_resum_weights[RG_CUDA_DTYPES];

/* ---- strategies ---- */

/* What is to be run, and what accepts() found out for run(). */
struct rg_conv_call {
    rg_dtype dtype;
    int32_t direction; /* RG_CONV_FORWARD, RG_CONV_DATA or RG_CONV_WEIGHTS */
    const rg_conv_shape *shape;
    const rg_conv_args *args;                 /* of forward and data */
    const rg_conv_weights_args *weights_args; /* of weights */
    uint32_t unaligned; /* bit i: tensor i of from, w, b, to or of x, dy, dw is not at 16 bytes */
    bool bias;          /* a bias is added to each sum, and nothing else is done to it */
    bool add;           /* each sum is added to an old value, and nothing else is done to it */
    const rg_cuda_target *target;
    /* of a library: */
    rg_cudnn_conv conv;
    rg_product product;
    size_t workspace; /* bytes */
};

struct rg_conv_strategy {
    const char *name;
    bool (*accepts)(rg_conv_call *call);
    /* Runs it, or counts the scratch that it takes, as arena->enqueue says; false: a library
     * refuses, and nothing is written. */
    bool (*run)(const rg_conv_call *call, scratch_arena *arena);
};

extern "C" const rg_conv_strategy rg_conv_cublaslt, rg_conv_cublaslt_weights;
extern "C" const rg_conv_strategy rg_conv_cudnn, rg_conv_cudnn_weights;
extern "C" const rg_conv_strategy rg_conv_depthwise, rg_conv_depthwise_weights;
extern "C" const rg_conv_strategy rg_conv_space_to_depth;
extern "C" const rg_conv_strategy rg_conv_stem, rg_conv_stem_weights;
extern "C" const rg_conv_strategy rg_conv_tf32x3, rg_conv_tf32x3_weights;
extern "C" const rg_conv_strategy rg_conv_generic;

/* The convolution as cuDNN sees it. */
extern "C" rg_cudnn_conv rg_conv_cudnn_conv(const rg_conv_call *call);

/* Whether conv_tf32x3.cu makes dx of a few channels from few windows: see merge_phases there. */
extern "C" bool rg_conv_tf32x3_merges(const rg_conv_shape *s);

/* ---- shapes ---- */

static inline int64_t conv_weight_count(const rg_conv_shape *s)
{
    return s->groups * s->out * s->row.window * s->column.window * s->in;
}

static inline bool conv_is_pixel(const rg_conv_axis *a)
{
    return a->window == 1 && a->stride == 1 && a->before == 0 && a->count == a->size;
}

/* Whether a tensor (image, row, column, channel) is dense. */
static inline bool conv_is_dense(const int64_t dims[4], const int64_t steps[4])
{
    rg_copy_args tensor = { .rank = 4 };
    for (int d = 0; d < 4; d++) {
        tensor.dims[d] = dims[d];
        tensor.strides[d] = steps[d];
    }
    return rg_copy_is_dense(&tensor);
}

/* Whether it is a product of matrices, whose rows are pixels. */
static inline bool conv_is_product(const rg_conv_shape *s)
{
    return s->groups == 1 && conv_is_pixel(&s->row) && conv_is_pixel(&s->column);
}

/* ---- tensors as libraries and kernels for dense tensors see them: one with other strides goes
 * through scratch, so that views give the bits of dense tensors ---- */

static inline dense_copy dense_image(scratch_arena *arena, const rg_conv_call *call,
                                     const void *data, bool aligned, bool read)
{
    const rg_conv_shape *s = call->shape;
    const int64_t dims[4] = { s->images, s->row.size, s->column.size, s->groups * s->in };
    return dense_tensor(arena, data, aligned, 4, dims, s->x, (int32_t)rg_dtype_size(call->dtype),
                        read);
}

static inline dense_copy dense_windows(scratch_arena *arena, const rg_conv_call *call,
                                       const void *data, bool aligned, bool read)
{
    const rg_conv_shape *s = call->shape;
    const int64_t dims[4] = { s->images, s->row.count, s->column.count, s->groups * s->out };
    return dense_tensor(arena, data, aligned, 4, dims, s->y, (int32_t)rg_dtype_size(call->dtype),
                        read);
}

/* (group, out, row, column, in), from the offset of the first of them. */
static inline dense_copy dense_weights(scratch_arena *arena, const rg_conv_call *call,
                                       const void *data, bool aligned, bool read)
{
    const rg_conv_shape *s = call->shape;
    const int32_t element = (int32_t)rg_dtype_size(call->dtype);
    const int64_t dims[5] = { s->groups, s->out, s->row.window, s->column.window, s->in };
    const int64_t first = s->w_first * element;
    return dense_tensor(arena, (const char *)data + first, aligned && first % 16 == 0, 5, dims,
                        s->w, element, read);
}

/* ---- of forward and data ---- */

/* `aside`: in scratch even where the tensor is dense. */
static inline dense_copy dense_from(scratch_arena *arena, const rg_conv_call *call, bool aside)
{
    const bool aligned = !(call->unaligned & 1) && !aside;
    return (call->direction == RG_CONV_FORWARD ? dense_image : dense_windows)(
        arena, call, call->args->from, aligned, true);
}

static inline dense_copy dense_w(scratch_arena *arena, const rg_conv_call *call, bool aside)
{
    return dense_weights(arena, call, call->args->w, !(call->unaligned & 2) && !aside, true);
}

/* Whether something is done to sums before they are stored, but for adding them to old values. */
static inline bool has_epilogue(const rg_conv_args *k)
{
    return k->has_b || k->has_z || k->neuron.kind != RG_NEURON_NONE;
}

/* Where a library puts its sums. `own`: a kernel of ours applies the epilogue to them, and they
 * are kept in scratch if it adds old values; `adds`: the library does that. */
static inline dense_copy dense_to(scratch_arena *arena, const rg_conv_call *call, bool own,
                                  bool adds)
{
    const rg_conv_args *k = call->args;
    const bool aligned = !(call->unaligned & 8) && !(own && k->add);
    return (call->direction == RG_CONV_FORWARD ? dense_windows : dense_image)(arena, call, k->to,
                                                                              aligned, adds);
}

static inline void put_result(const scratch_arena *arena, const rg_conv_call *call, dense_copy *to,
                              bool own)
{
    if (!own)
        copy_dense(arena, to, true);
    else if (arena->enqueue)
        rg_conv_finish_sums[call->dtype](call->args, call->direction == RG_CONV_DATA, to->data,
                                         arena->target);
}

/* ---- of weights ---- */

static inline dense_copy dense_x(scratch_arena *arena, const rg_conv_call *call, bool aside)
{
    return dense_image(arena, call, call->weights_args->x, !(call->unaligned & 1) && !aside, true);
}

static inline dense_copy dense_dy(scratch_arena *arena, const rg_conv_call *call, bool aside)
{
    return dense_windows(arena, call, call->weights_args->dy, !(call->unaligned & 2) && !aside,
                         true);
}

/* Where a library puts dw. `aside`: dense sums, which a kernel of ours stores. */
static inline dense_copy dense_dw(scratch_arena *arena, const rg_conv_call *call, bool aside)
{
    const int64_t count = conv_weight_count(call->shape);
    const rg_conv_weights_args *k = call->weights_args;
    if (!aside)
        return dense_weights(arena, call, k->dw, !(call->unaligned & 4), k->add);
    dense_copy dw = {};
    dw.data = arena_alloc(arena, (size_t)count * rg_dtype_size(call->dtype));
    return dw;
}

static inline void put_dw(const scratch_arena *arena, const rg_conv_call *call, dense_copy *dw,
                          bool aside)
{
    if (arena->enqueue && aside)
        rg_conv_put_weights[call->dtype](call->weights_args, dw->data, arena->target);
    copy_dense(arena, dw, true);
}

#endif
