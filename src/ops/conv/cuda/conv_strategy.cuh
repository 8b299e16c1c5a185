/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The strategies of convolutions on a GPU: each way of running one is a file that ends with its
 * record. conv_cuda.cu decides which one runs. */
#ifndef RG_OPS_CONV_STRATEGY_CUH
#define RG_OPS_CONV_STRATEGY_CUH

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/kernel.cuh"
#include "backend/cuda/dense_copy.cuh"
#include "ops/conv/cuda/conv_cudnn.h"
#include "ops/conv/cuda/conv_epilogue.cuh"

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

/* Whether a tensor (image, row, column, channel) lies dense. */
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

/* ---- tensors as libraries and kernels for dense tensors see them: one that lies in another way
 * goes through scratch, so that views give the bits of dense tensors ---- */

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
