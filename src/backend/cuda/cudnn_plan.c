/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Plans of cuDNN: a convolution becomes a graph of one operation, heuristics name engines, and the
 * first that keeps our rules becomes the plan. In builds with cuDNN's headers. */
#include "backend/cuda/cudnn_plan.h"
#include "core/memory.h"

#include <limits.h>

/* ---- descriptors of a plan ---- */

/* A descriptor that the plan keeps; NULL where it cannot be made. */
static rg_cudnn_descriptor add_descriptor(rg_cudnn_plan *plan, cudnnBackendDescriptorType_t type)
{
    rg_cudnn_descriptor made =
        plan->count < RG_CUDNN_MOST_DESCRIPTORS ? rg_cudnn_descriptor_make(type) : NULL;
    if (made != NULL)
        plan->descriptors[plan->count++] = made;
    return made;
}

static bool set_numbers(rg_cudnn_descriptor it, cudnnBackendAttributeName_t name, int64_t count,
                        const int64_t *values)
{
    return rg_cudnn_descriptor_set(it, name, CUDNN_TYPE_INT64, count, values);
}

static bool set_descriptor(rg_cudnn_descriptor it, cudnnBackendAttributeName_t name,
                           rg_cudnn_descriptor value)
{
    return value != NULL &&
           rg_cudnn_descriptor_set(it, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void rg_cudnn_plan_release(rg_cudnn_plan *plan, const rg_allocator *allocator)
{
    rg_cudnn_descriptor_drop(plan->execution);
    while (plan->count > 0)
        rg_cudnn_descriptor_drop(plan->descriptors[--plan->count]);
    rg_release(allocator, plan, sizeof *plan);
}

/* ---- the graph of one convolution ---- */

static cudnnDataType_t type_of(int64_t dtype)
{
    static const cudnnDataType_t types[] = { [RG_F32] = CUDNN_DATA_FLOAT,
                                             [RG_F64] = CUDNN_DATA_DOUBLE,
                                             [RG_F16] = CUDNN_DATA_HALF,
                                             [RG_BF16] = CUDNN_DATA_BFLOAT16 };
    return types[dtype];
}

/* cuDNN names dimensions n, c, h, w in this order, and strides say how they lie. */
static rg_cudnn_descriptor add_tensor(rg_cudnn_plan *plan, const rg_cudnn_conv *conv, int64_t id,
                                      int64_t images, int64_t channels, const int64_t size[2])
{
    const rg_cudnn_descriptor tensor = add_descriptor(plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnnDataType_t type = type_of(conv->dtype);
    const int64_t dims[4] = { images, channels, size[0], size[1] };
    const int64_t strides[4] = { size[0] * size[1] * channels, 1, size[1] * channels, channels };
    const int64_t alignment = RG_CUDNN_ALIGNMENT;
    const bool made = rg_cudnn_descriptor_set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE,
                                              CUDNN_TYPE_DATA_TYPE, 1, &type) &&
                      set_numbers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims) &&
                      set_numbers(tensor, CUDNN_ATTR_TENSOR_STRIDES, 4, strides) &&
                      set_numbers(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id) &&
                      set_numbers(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment) &&
                      rg_cudnn_descriptor_finish(tensor);
    return made ? tensor : NULL;
}

/* The padding behind the image that gives so many windows: the same as before it where that will
 * do, since few engines take another. False where there is none. */
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
    const rg_cudnn_descriptor it = add_descriptor(plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const bool made = rg_cudnn_descriptor_set(it, CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                                              CUDNN_TYPE_DATA_TYPE, 1, &compute) &&
                      rg_cudnn_descriptor_set(it, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                                              CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
                      set_numbers(it, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &dims) &&
                      set_numbers(it, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, conv->before) &&
                      set_numbers(it, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, after) &&
                      set_numbers(it, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, conv->stride) &&
                      set_numbers(it, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, conv->dilation) &&
                      rg_cudnn_descriptor_finish(it);
    return made ? it : NULL;
}

/* The operation, by direction: its descriptor and the names of its attributes. */
typedef struct operation_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t geometry, x, w, y, alpha, beta;
} operation_names;
static const operation_names operations[] = {
    [RG_CUDNN_FORWARD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
    [RG_CUDNN_DATA] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
    [RG_CUDNN_WEIGHTS] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
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
static rg_cudnn_descriptor add_operation(rg_cudnn_plan *plan, const rg_cudnn_conv *conv)
{
    const operation_names *names = &operations[conv->direction];
    const rg_cudnn_descriptor x =
        add_tensor(plan, conv, RG_CUDNN_ID_X, conv->images, conv->channels, conv->size);
    const rg_cudnn_descriptor w = add_tensor(plan, conv, RG_CUDNN_ID_W, conv->outputs,
                                             conv->channels / conv->groups, conv->window);
    const rg_cudnn_descriptor y =
        add_tensor(plan, conv, RG_CUDNN_ID_Y, conv->images, conv->outputs, conv->result);
    const rg_cudnn_descriptor geometry = add_geometry(plan, conv);
    const rg_cudnn_descriptor it = add_descriptor(plan, names->type);
    const bool made = set_descriptor(it, names->geometry, geometry) &&
                      set_descriptor(it, names->x, x) && set_descriptor(it, names->w, w) &&
                      set_descriptor(it, names->y, y) && set_factor(it, names->alpha, conv, 1) &&
                      set_factor(it, names->beta, conv, 0) && rg_cudnn_descriptor_finish(it);
    return made ? it : NULL;
}

static rg_cudnn_descriptor add_graph(rg_cudnn_plan *plan, const rg_cudnn_conv *conv,
                                     cudnnHandle_t handle)
{
    const rg_cudnn_descriptor operation = add_operation(plan, conv);
    const rg_cudnn_descriptor graph =
        operation != NULL ? add_descriptor(plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) : NULL;
    const bool made = rg_cudnn_descriptor_set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                              CUDNN_TYPE_HANDLE, 1, &handle) &&
                      set_descriptor(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation) &&
                      rg_cudnn_descriptor_finish(graph);
    return made ? graph : NULL;
}

/* ---- engines ---- */

/* Whether notes of numerics allow an engine. */
static bool notes_allow(const cudnnBackendNumericalNote_t notes[], int64_t count,
                        const rg_cudnn_conv *conv, bool tf32)
{
    for (int64_t i = 0; i < count; i++) {
        switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
            return false;
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            if (conv->dtype == RG_F32 && !tf32)
                return false;
            break;
        default:
            break;
        }
    }
    return true;
}

/* Engines that compile a kernel for the shape take half a second and NVIDIA's compiler. */
static bool compiles(rg_cudnn_descriptor engine)
{
    cudnnBackendBehaviorNote_t notes[32];
    int64_t count = 0;
    if (rg_cudnn_call.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                          CUDNN_TYPE_BEHAVIOR_NOTE, 32, &count,
                                          notes) != CUDNN_STATUS_SUCCESS)
        return true;
    for (int64_t i = 0; i < count; i++) {
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return true;
    }
    return false;
}

static bool engine_fits(rg_cudnn_descriptor config, const rg_cudnn_conv *conv, bool tf32)
{
    cudnnBackendNumericalNote_t notes[32];
    int64_t count = 0, found = 0;
    rg_cudnn_descriptor engine = rg_cudnn_descriptor_make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    const bool fits = engine != NULL &&
                      rg_cudnn_call.BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found,
                                                        &engine) == CUDNN_STATUS_SUCCESS &&
                      rg_cudnn_call.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                        CUDNN_TYPE_NUMERICAL_NOTE, 32, &count,
                                                        notes) == CUDNN_STATUS_SUCCESS &&
                      notes_allow(notes, count, conv, tf32) && !compiles(engine);
    rg_cudnn_descriptor_drop(engine);
    return fits;
}

/* More workspace than this is not taken: a plan that needs less follows, if a slower one. */
static size_t most_workspace(const rg_cudnn_conv *conv)
{
    const size_t x = (size_t)(conv->images * conv->size[0] * conv->size[1] * conv->channels);
    const size_t y = (size_t)(conv->images * conv->result[0] * conv->result[1] * conv->outputs);
    const size_t bytes = 8 * (x + y), least = (size_t)256 << 20;
    return bytes > least ? bytes : least;
}

/* Makes the plan of an engine; false where it will not do. */
static bool make_execution(rg_cudnn_plan *plan, const rg_cudnn_conv *conv, cudnnHandle_t handle,
                           rg_cudnn_descriptor config)
{
    int64_t workspace = 0, count = 0;
    const rg_cudnn_descriptor it =
        rg_cudnn_descriptor_make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (rg_cudnn_descriptor_set(it, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                &handle) &&
        set_descriptor(it, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config) &&
        rg_cudnn_descriptor_finish(it) &&
        rg_cudnn_call.BackendGetAttribute(it, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &count,
                                          &workspace) == CUDNN_STATUS_SUCCESS &&
        workspace >= 0 && (size_t)workspace <= most_workspace(conv)) {
        plan->execution = it;
        plan->workspace = (size_t)workspace;
        return true;
    }
    rg_cudnn_descriptor_drop(it);
    return false;
}

/* Asks one of the heuristics, and takes the first engine that will do; it joins the plan. */
static bool choose_engine(rg_cudnn_plan *plan, const rg_cudnn_conv *conv, cudnnHandle_t handle,
                          bool tf32, rg_cudnn_descriptor graph, cudnnBackendHeurMode_t mode)
{
    enum { MOST = 64 };
    rg_cudnn_descriptor configs[MOST] = { 0 };
    int64_t count = 0;
    const rg_cudnn_descriptor heuristics =
        rg_cudnn_descriptor_make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    bool whole = set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph) &&
                 rg_cudnn_descriptor_set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE,
                                         CUDNN_TYPE_HEUR_MODE, 1, &mode) &&
                 rg_cudnn_descriptor_finish(heuristics);
    for (int i = 0; i < MOST && whole; i++)
        whole = (configs[i] = rg_cudnn_descriptor_make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) != NULL;
    whole = whole && rg_cudnn_call.BackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count,
                                                       configs) == CUDNN_STATUS_SUCCESS;
    bool chosen = false;
    for (int i = 0; i < MOST && i < count && whole && !chosen; i++) {
        chosen = plan->count < RG_CUDNN_MOST_DESCRIPTORS && engine_fits(configs[i], conv, tf32) &&
                 make_execution(plan, conv, handle, configs[i]);
        if (chosen) {
            plan->descriptors[plan->count++] = configs[i];
            configs[i] = NULL;
        }
    }
    for (int i = 0; i < MOST; i++)
        rg_cudnn_descriptor_drop(configs[i]);
    rg_cudnn_descriptor_drop(heuristics);
    return chosen;
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

/* The heuristics by name, and then what is said to work always. For f64 the latter comes first, and
 * is faster; but it passes over a padding that is not the same on either side. */
static bool choose(rg_cudnn_plan *plan, const rg_cudnn_conv *conv, cudnnHandle_t handle, bool tf32,
                   rg_cudnn_descriptor graph)
{
    const bool in_double = conv->dtype == RG_F64, even = !is_uneven(conv);
    if (in_double && even &&
        choose_engine(plan, conv, handle, tf32, graph, CUDNN_HEUR_MODE_FALLBACK))
        return true;
    if (!(in_double && !even) && choose_engine(plan, conv, handle, tf32, graph, CUDNN_HEUR_MODE_A))
        return true;
    return !in_double && even &&
           choose_engine(plan, conv, handle, tf32, graph, CUDNN_HEUR_MODE_FALLBACK);
}

rg_cudnn_plan *rg_cudnn_plan_make(const rg_cudnn_conv *conv, cudnnHandle_t handle, bool tf32,
                                  const rg_allocator *allocator)
{
    void *memory;
    if (!countable(conv) || rg_allocate_zero(allocator, sizeof(rg_cudnn_plan), &memory) != RG_OK)
        return NULL;
    rg_cudnn_plan *plan = memory;
    const rg_cudnn_descriptor graph = add_graph(plan, conv, handle);
    if (graph != NULL && choose(plan, conv, handle, tf32, graph))
        return plan;
    rg_cudnn_plan_release(plan, allocator);
    return NULL;
}
