/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Plans of cuDNN: an op's operation becomes a graph of its own, heuristics name engines, and the
 * first that keeps our rules becomes the plan. In builds with cuDNN's headers. */
#include "backend/cuda/cudnn_plan.h"
#include "core/memory.h"

/* ---- descriptors of a plan ---- */

rg_cudnn_descriptor rg_cudnn_plan_add(rg_cudnn_plan *plan, cudnnBackendDescriptorType_t type)
{
    rg_cudnn_descriptor made =
        plan->count < RG_CUDNN_MAX_DESCRIPTORS ? rg_cudnn_descriptor_make(type) : NULL;
    if (made != NULL)
        plan->descriptors[plan->count++] = made;
    return made;
}

bool rg_cudnn_set_numbers(rg_cudnn_descriptor it, cudnnBackendAttributeName_t name, int64_t count,
                          const int64_t *values)
{
    return rg_cudnn_descriptor_set(it, name, CUDNN_TYPE_INT64, count, values);
}

bool rg_cudnn_set_descriptor(rg_cudnn_descriptor it, cudnnBackendAttributeName_t name,
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

/* ---- the graph of one operation ---- */

static cudnnDataType_t type_of(rg_dtype dtype)
{
    static const cudnnDataType_t types[] = { [RG_F32] = CUDNN_DATA_FLOAT,
                                             [RG_F64] = CUDNN_DATA_DOUBLE,
                                             [RG_F16] = CUDNN_DATA_HALF,
                                             [RG_BF16] = CUDNN_DATA_BFLOAT16 };
    return types[dtype];
}

/* cuDNN names dimensions n, c, h, w in this order, and strides give their order in memory. */
rg_cudnn_descriptor rg_cudnn_plan_add_image(rg_cudnn_plan *plan, rg_dtype dtype, int64_t id,
                                            int64_t images, int64_t channels, const int64_t size[2])
{
    const rg_cudnn_descriptor tensor = rg_cudnn_plan_add(plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnnDataType_t type = type_of(dtype);
    const int64_t dims[4] = { images, channels, size[0], size[1] };
    const int64_t strides[4] = { size[0] * size[1] * channels, 1, size[1] * channels, channels };
    const int64_t alignment = RG_CUDNN_ALIGN_BYTES;
    const bool made =
        rg_cudnn_descriptor_set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                                &type) &&
        rg_cudnn_set_numbers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims) &&
        rg_cudnn_set_numbers(tensor, CUDNN_ATTR_TENSOR_STRIDES, 4, strides) &&
        rg_cudnn_set_numbers(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id) &&
        rg_cudnn_set_numbers(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment) &&
        rg_cudnn_descriptor_finish(tensor);
    return made ? tensor : NULL;
}

static rg_cudnn_descriptor add_graph(rg_cudnn_plan *plan, const rg_cudnn_request *request,
                                     cudnnHandle_t handle)
{
    const rg_cudnn_descriptor operation = request->add_operation(plan, request->key);
    const rg_cudnn_descriptor graph =
        operation != NULL ? rg_cudnn_plan_add(plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) : NULL;
    const bool made = rg_cudnn_descriptor_set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                              CUDNN_TYPE_HANDLE, 1, &handle) &&
                      rg_cudnn_set_descriptor(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation) &&
                      rg_cudnn_descriptor_finish(graph);
    return made ? graph : NULL;
}

/* ---- engines ---- */

/* Whether notes of numerics allow an engine. */
static bool notes_allow(const cudnnBackendNumericalNote_t notes[], int64_t count, rg_dtype dtype,
                        bool tf32)
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
            if (dtype == RG_F32 && !tf32)
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

static bool engine_fits(rg_cudnn_descriptor config, rg_dtype dtype, bool tf32)
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
                      notes_allow(notes, count, dtype, tf32) && !compiles(engine);
    rg_cudnn_descriptor_drop(engine);
    return fits;
}

/* Makes the plan of an engine; false where it will not do. */
static bool make_execution(rg_cudnn_plan *plan, const rg_cudnn_request *request,
                           cudnnHandle_t handle, rg_cudnn_descriptor config)
{
    int64_t workspace = 0, count = 0;
    const rg_cudnn_descriptor it =
        rg_cudnn_descriptor_make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (rg_cudnn_descriptor_set(it, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                &handle) &&
        rg_cudnn_set_descriptor(it, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config) &&
        rg_cudnn_descriptor_finish(it) &&
        rg_cudnn_call.BackendGetAttribute(it, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &count,
                                          &workspace) == CUDNN_STATUS_SUCCESS &&
        workspace >= 0 && (size_t)workspace <= request->max_workspace) {
        plan->execution = it;
        plan->workspace = (size_t)workspace;
        return true;
    }
    rg_cudnn_descriptor_drop(it);
    return false;
}

/* Asks one of the heuristics, and takes the first engine that will do; it joins the plan. */
static bool choose_engine(rg_cudnn_plan *plan, const rg_cudnn_request *request,
                          cudnnHandle_t handle, bool tf32, rg_cudnn_descriptor graph,
                          cudnnBackendHeurMode_t mode)
{
    enum { MOST = 64 };
    rg_cudnn_descriptor configs[MOST] = { 0 };
    int64_t count = 0;
    const rg_cudnn_descriptor heuristics =
        rg_cudnn_descriptor_make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    bool whole =
        rg_cudnn_set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph) &&
        rg_cudnn_descriptor_set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                                &mode) &&
        rg_cudnn_descriptor_finish(heuristics);
    for (int i = 0; i < MOST && whole; i++)
        whole = (configs[i] = rg_cudnn_descriptor_make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) != NULL;
    whole = whole && rg_cudnn_call.BackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count,
                                                       configs) == CUDNN_STATUS_SUCCESS;
    bool chosen = false;
    for (int i = 0; i < MOST && i < count && whole && !chosen; i++) {
        chosen = plan->count < RG_CUDNN_MAX_DESCRIPTORS &&
                 engine_fits(configs[i], request->dtype, tf32) &&
                 make_execution(plan, request, handle, configs[i]);
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

rg_cudnn_plan *rg_cudnn_plan_make(const rg_cudnn_request *request, cudnnHandle_t handle, bool tf32,
                                  const rg_allocator *allocator)
{
    void *memory;
    if (rg_allocate_zero(allocator, sizeof(rg_cudnn_plan), &memory) != RG_OK)
        return NULL;
    rg_cudnn_plan *plan = memory;
    const rg_cudnn_descriptor graph = add_graph(plan, request, handle);
    for (int32_t i = 0; graph != NULL && i < request->mode_count; i++) {
        if (choose_engine(plan, request, handle, tf32, graph, request->modes[i]))
            return plan;
    }
    rg_cudnn_plan_release(plan, allocator);
    return NULL;
}
