/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolutions by cuDNN. Kernels of ours sum results again that padding made NaN, and apply the
 * epilogue. */
#include "ops/conv/cuda/conv_strategy.cuh"
#if RG_HAVE_CUDNN
#include "backend/cuda/cudnn_plan.h"
#endif

#include <limits.h>

/* ---- a convolution as an operation of cuDNN ---- */

#if RG_HAVE_CUDNN
static_assert(sizeof(rg_cudnn_conv) == sizeof(rg_cudnn_key), "a convolution is its key");

/* Tensors by number, when a plan is executed. */
enum { ID_X = 1, ID_W, ID_Y };

/* The padding after the image that gives this number of windows: the same as before it where
 * that will do, since few engines take another. False where there is none. */
static bool padding_after(const rg_cudnn_conv *conv, int d, int64_t *after)
{
    const int64_t extent = (conv->window[d] - 1) * conv->dilation[d] + 1;
    const int64_t before = conv->before[d], size = conv->size[d], stride = conv->stride[d];
    const int64_t least = (conv->result[d] - 1) * stride + extent - size - before;
    if (before < 0)
        return false;
    *after = before;
    if (size + 2 * before >= extent && (size + 2 * before - extent) / stride + 1 == conv->result[d])
        return true;
    *after = least > 0 ? least : 0;
    return (size + before + *after - extent) / stride + 1 == conv->result[d];
}

/* Whether some dimension is padded more on one side than on the other. */
static bool is_uneven(const rg_cudnn_conv *conv)
{
    int64_t after[2];
    return padding_after(conv, 0, &after[0]) && padding_after(conv, 1, &after[1]) &&
           (after[0] != conv->before[0] || after[1] != conv->before[1]);
}

static rg_cudnn_descriptor add_geometry(rg_cudnn_plan *plan, const rg_cudnn_conv *conv)
{
    const cudnnDataType_t compute = conv->dtype == RG_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t dims = 2;
    int64_t after[2];
    if (!padding_after(conv, 0, &after[0]) || !padding_after(conv, 1, &after[1]))
        return NULL;
    const rg_cudnn_descriptor it = rg_cudnn_plan_add(plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const bool made =
        rg_cudnn_descriptor_set(it, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                                &compute) &&
        rg_cudnn_descriptor_set(it, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                                1, &mode) &&
        rg_cudnn_set_numbers(it, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &dims) &&
        rg_cudnn_set_numbers(it, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, conv->before) &&
        rg_cudnn_set_numbers(it, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, after) &&
        rg_cudnn_set_numbers(it, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, conv->stride) &&
        rg_cudnn_set_numbers(it, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, conv->dilation) &&
        rg_cudnn_descriptor_finish(it);
    return made ? it : NULL;
}

/* The operation, by direction: its descriptor and the names of its attributes. */
typedef struct operation_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t geometry, x, w, y, alpha, beta;
} operation_names;
static const operation_names operations[] = {
    /* forward, data, weights */
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA },
};

static bool set_factor(rg_cudnn_descriptor it, cudnnBackendAttributeName_t name,
                       const rg_cudnn_conv *conv, double factor)
{
    const float single = (float)factor;
    return conv->dtype == RG_F64 ? rg_cudnn_descriptor_set(it, name, CUDNN_TYPE_DOUBLE, 1, &factor)
                                 : rg_cudnn_descriptor_set(it, name, CUDNN_TYPE_FLOAT, 1, &single);
}

/* How many channels of x a filter sees follows from the two tensors; so do groups. */
static rg_cudnn_descriptor add_operation(rg_cudnn_plan *plan, const rg_cudnn_key *key)
{
    const rg_cudnn_conv *conv = (const rg_cudnn_conv *)key;
    const rg_dtype dtype = (rg_dtype)conv->dtype;
    const operation_names *names = &operations[conv->direction];
    const rg_cudnn_descriptor x =
        rg_cudnn_plan_add_image(plan, dtype, ID_X, conv->images, conv->channels, conv->size);
    const rg_cudnn_descriptor w = rg_cudnn_plan_add_image(
        plan, dtype, ID_W, conv->outputs, conv->channels / conv->groups, conv->window);
    const rg_cudnn_descriptor y =
        rg_cudnn_plan_add_image(plan, dtype, ID_Y, conv->images, conv->outputs, conv->result);
    const rg_cudnn_descriptor geometry = add_geometry(plan, conv);
    const rg_cudnn_descriptor it = rg_cudnn_plan_add(plan, names->type);
    const bool made =
        rg_cudnn_set_descriptor(it, names->geometry, geometry) &&
        rg_cudnn_set_descriptor(it, names->x, x) && rg_cudnn_set_descriptor(it, names->w, w) &&
        rg_cudnn_set_descriptor(it, names->y, y) && set_factor(it, names->alpha, conv, 1) &&
        set_factor(it, names->beta, conv, 0) && rg_cudnn_descriptor_finish(it);
    return made ? it : NULL;
}

static size_t max_workspace(const rg_cudnn_conv *conv)
{
    const size_t x = (size_t)(conv->images * conv->size[0] * conv->size[1] * conv->channels);
    const size_t y = (size_t)(conv->images * conv->result[0] * conv->result[1] * conv->outputs);
    const size_t bytes = 8 * (x + y), least = (size_t)256 << 20;
    return bytes > least ? bytes : least;
}

/* Engines count elements in 32 bits. */
static bool countable(const rg_cudnn_conv *conv)
{
    const double x = (double)conv->images * (double)conv->size[0] * (double)conv->size[1] *
                     (double)conv->channels;
    const double y = (double)conv->images * (double)conv->result[0] * (double)conv->result[1] *
                     (double)conv->outputs;
    const double w = (double)conv->outputs * (double)conv->window[0] * (double)conv->window[1] *
                     (double)(conv->channels / conv->groups);
    return x > 0 && y > 0 && w > 0 && x <= INT_MAX && y <= INT_MAX && w <= INT_MAX;
}

/* Heuristics name engines, and then there is what is said to work always. For f64 the latter comes
 * first, and is faster; but it ignores a padding that is not the same on either side. */
static rg_cudnn_request request_of(const rg_cudnn_conv *conv)
{
    const bool in_double = conv->dtype == RG_F64, even = !is_uneven(conv);
    rg_cudnn_request request = {};
    request.key = (const rg_cudnn_key *)conv;
    request.add_operation = add_operation;
    request.dtype = (rg_dtype)conv->dtype;
    request.max_workspace = max_workspace(conv);
    if (in_double && even)
        request.modes[request.mode_count++] = CUDNN_HEUR_MODE_FALLBACK;
    if (!in_double || even)
        request.modes[request.mode_count++] = CUDNN_HEUR_MODE_A;
    if (!in_double && even)
        request.modes[request.mode_count++] = CUDNN_HEUR_MODE_FALLBACK;
    return request;
}

/* Engines for gradients of groups may ignore a padding that is not the same on either side. */
static bool ignores_padding(const rg_cudnn_conv *conv)
{
    return conv->groups > 1 && conv->direction != RG_CONV_FORWARD && is_uneven(conv);
}

extern "C" bool rg_cudnn_conv_plan(const rg_cuda_target *target, const rg_cudnn_conv *conv,
                                   size_t *workspace)
{
    if (!countable(conv) || ignores_padding(conv))
        return false;
    const rg_cudnn_request request = request_of(conv);
    return rg_cudnn_prepare(target, &request, workspace);
}

extern "C" bool rg_cudnn_conv_run(const rg_cuda_target *target, const rg_cudnn_conv *conv, void *x,
                                  void *w, void *y, void *workspace, size_t bytes)
{
    static const int64_t ids[3] = { ID_X, ID_W, ID_Y };
    void *const pointers[3] = { x, w, y };
    if (!countable(conv))
        return false;
    const rg_cudnn_request request = request_of(conv);
    return rg_cudnn_execute(target, &request, ids, pointers, workspace, bytes);
}
#else
extern "C" bool rg_cudnn_conv_plan(const rg_cuda_target *target, const rg_cudnn_conv *conv,
                                   size_t *workspace)
{
    (void)target, (void)conv, (void)workspace;
    return false;
}

extern "C" bool rg_cudnn_conv_run(const rg_cuda_target *target, const rg_cudnn_conv *conv, void *x,
                                  void *w, void *y, void *workspace, size_t bytes)
{
    (void)target, (void)conv, (void)x, (void)w, (void)y, (void)workspace, (void)bytes;
    return false;
}
#endif

/* ---- strategy ---- */

extern "C" rg_cudnn_conv rg_conv_cudnn_conv(const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    rg_cudnn_conv conv = {};
    conv.direction = call->direction;
    conv.dtype = call->dtype;
    conv.images = s->images;
    conv.channels = s->groups * s->in;
    conv.outputs = s->groups * s->out;
    conv.groups = s->groups;
    const rg_conv_axis *const axes[2] = { &s->row, &s->column };
    for (int d = 0; d < 2; d++) {
        conv.size[d] = axes[d]->size;
        conv.result[d] = axes[d]->count;
        conv.window[d] = axes[d]->window;
        conv.stride[d] = axes[d]->stride;
        conv.dilation[d] = axes[d]->dilation;
        conv.before[d] = axes[d]->before;
    }
    return conv;
}

static bool accepts(rg_conv_call *call)
{
    call->conv = rg_conv_cudnn_conv(call);
    return rg_cudnn_conv_plan(call->target, &call->conv, &call->workspace);
}

/* ---- groups ---- */

enum { BLOCK = 64 }; /* channels that cuDNN reads at once */

/* Where groups are mixed and do not fill the last block of channels, cuDNN reads beyond the last
 * group: tensors then go through scratch, followed by more scratch. */
static bool reads_beyond(const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    return mixes_groups(call->dtype, s, call->target) &&
           (s->groups * s->in % BLOCK != 0 || s->groups * s->out % BLOCK != 0);
}

/* As many weights, and more than as many channels, as a block has. */
static void dense_beyond(scratch_arena *arena, const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    const int64_t channels = s->in > s->out ? s->in : s->out;
    arena_alloc(arena, (size_t)(BLOCK * channels * s->row.window * s->column.window) *
                           rg_dtype_size(call->dtype));
}

/* ---- strategies ---- */

static bool run(const rg_conv_call *call, scratch_arena *arena)
{
    const rg_conv_args *k = call->args;
    const bool forward = call->direction == RG_CONV_FORWARD;
    const bool own = has_epilogue(k) || k->add, beyond = reads_beyond(call);
    const dense_copy from = dense_from(arena, call, beyond);
    const dense_copy w = dense_w(arena, call, beyond);
    if (beyond)
        dense_beyond(arena, call);
    dense_copy to = dense_to(arena, call, own, false);
    void *const workspace = arena_alloc(arena, call->workspace);
    void *const x = forward ? from.data : to.data, *const y = forward ? to.data : from.data;
    if (arena->enqueue &&
        !rg_cudnn_conv_run(arena->target, &call->conv, x, w.data, y, workspace, call->workspace))
        return false;
    if (arena->enqueue)
        rg_conv_resum[call->dtype](call->shape, !forward, from.data, w.data, to.data,
                                   arena->target);
    put_result(arena, call, &to, own);
    return true;
}

/* cuDNN writes the dtype of x, and does not add. */
static bool run_weights(const rg_conv_call *call, scratch_arena *arena)
{
    const rg_conv_weights_args *k = call->weights_args;
    const bool aside = k->wide || k->add, beyond = reads_beyond(call);
    const dense_copy x = dense_x(arena, call, beyond);
    const dense_copy dy = dense_dy(arena, call, beyond);
    if (beyond)
        dense_beyond(arena, call);
    dense_copy dw = dense_dw(arena, call, aside);
    void *const workspace = arena_alloc(arena, call->workspace);
    if (arena->enqueue && !rg_cudnn_conv_run(arena->target, &call->conv, x.data, dw.data, dy.data,
                                             workspace, call->workspace))
        return false;
    if (arena->enqueue)
        rg_conv_resum_weights[call->dtype](call->shape, x.data, dy.data, dw.data, arena->target);
    put_dw(arena, call, &dw, aside);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_cudnn = { "cudnn", accepts, run };
extern "C" const rg_conv_strategy rg_conv_cudnn_weights = { "cudnn", accepts, run_weights };
