/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* cuDNN's graph API: a convolution becomes a graph of one operation, its heuristics name engines,
 * the first that keeps our rules becomes a plan, and plans are kept by shape. One handle serves all
 * queues of a device, with a lock around every use. */
#include "backend/cuda/cudnn.h"

#if RG_HAVE_CUDNN
#include "backend/cuda/plan_cache.h"

#include <cudnn.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

#define FUNCTIONS(F)             \
    F(Create);                   \
    F(Destroy);                  \
    F(SetStream);                \
    F(BackendCreateDescriptor);  \
    F(BackendDestroyDescriptor); \
    F(BackendSetAttribute);      \
    F(BackendGetAttribute);      \
    F(BackendFinalize);          \
    F(BackendExecute)

static struct {
#define F(name) __typeof__(cudnn##name) *name
    FUNCTIONS(F);
#undef F
} dnn; /* filled once */
static bool loaded;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

/* The library stays for good: others in the process may use it, too. */
static void load(void)
{
    const char *named = getenv("RG_CUDNN");
    void *library =
        dlopen(named != NULL && named[0] != 0 ? named : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    void *found;
    loaded = true;
#define F(name)                                         \
    found = dlsym(library, "cudnn" #name);              \
    memcpy((void *)&dnn.name, &found, sizeof dnn.name); \
    loaded = loaded && found != NULL
    FUNCTIONS(F);
#undef F
}

struct rg_cudnn {
    rg_allocator allocator;
    bool tf32;
    pthread_mutex_t lock; /* of what follows */
    bool tried;
    cudnnHandle_t handle; /* NULL: cuDNN is not to be had */
    rg_plan_cache plans;
};

/* ---- plans ---- */

typedef cudnnBackendDescriptor_t part;

/* Whatever a plan is made of, in the order it was made. */
enum { MOST_PARTS = 12 };
typedef struct conv_plan {
    part parts[MOST_PARTS];
    int32_t count;
    part execution;
    size_t workspace;
} conv_plan;

static void drop_part(part it)
{
    if (it != NULL)
        (void)dnn.BackendDestroyDescriptor(it);
}

static part make_part(cudnnBackendDescriptorType_t type)
{
    part made = NULL;
    return dnn.BackendCreateDescriptor(type, &made) == CUDNN_STATUS_SUCCESS ? made : NULL;
}

/* A part that the plan keeps; NULL where there is none to be had. */
static part add_part(conv_plan *plan, cudnnBackendDescriptorType_t type)
{
    part made = plan->count < MOST_PARTS ? make_part(type) : NULL;
    if (made != NULL)
        plan->parts[plan->count++] = made;
    return made;
}

static bool set(part it, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *values)
{
    return it != NULL &&
           dnn.BackendSetAttribute(it, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

static bool set_numbers(part it, cudnnBackendAttributeName_t name, int64_t count,
                        const int64_t *values)
{
    return set(it, name, CUDNN_TYPE_INT64, count, values);
}

static bool set_part(part it, cudnnBackendAttributeName_t name, part value)
{
    return value != NULL && set(it, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static bool finish(part it)
{
    return dnn.BackendFinalize(it) == CUDNN_STATUS_SUCCESS;
}

static void release_plan(void *context, void *plan)
{
    struct rg_cudnn *cudnn = context;
    conv_plan *own = plan;
    drop_part(own->execution);
    while (own->count > 0)
        drop_part(own->parts[--own->count]);
    rg_release(&cudnn->allocator, own, sizeof *own);
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
enum { ID_X = 1, ID_W, ID_Y };
static part add_tensor(conv_plan *plan, const rg_cudnn_conv *conv, int64_t id, int64_t images,
                       int64_t channels, const int64_t size[2])
{
    const part tensor = add_part(plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnnDataType_t type = type_of(conv->dtype);
    const int64_t dims[4] = { images, channels, size[0], size[1] };
    const int64_t strides[4] = { size[0] * size[1] * channels, 1, size[1] * channels, channels };
    const int64_t alignment = RG_CUDNN_ALIGNMENT;
    const bool made = set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) &&
                      set_numbers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims) &&
                      set_numbers(tensor, CUDNN_ATTR_TENSOR_STRIDES, 4, strides) &&
                      set_numbers(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id) &&
                      set_numbers(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment) &&
                      finish(tensor);
    return made ? tensor : NULL;
}

/* The padding behind that gives so many windows, alike on either side where that will do: few
 * engines take another. False where there is none. */
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

/* Whether some side is padded more than the other. */
static bool is_lopsided(const rg_cudnn_conv *conv)
{
    int64_t after[2];
    return padding_after(conv, 0, &after[0]) && padding_after(conv, 1, &after[1]) &&
           (after[0] != conv->before[0] || after[1] != conv->before[1]);
}

static part add_geometry(conv_plan *plan, const rg_cudnn_conv *conv)
{
    const cudnnDataType_t compute = conv->dtype == RG_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t dims = 2;
    int64_t after[2];
    if (!padding_after(conv, 0, &after[0]) || !padding_after(conv, 1, &after[1]))
        return NULL;
    const part it = add_part(plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const bool made =
        set(it, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute) &&
        set(it, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
        set_numbers(it, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &dims) &&
        set_numbers(it, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, conv->before) &&
        set_numbers(it, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, after) &&
        set_numbers(it, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, conv->stride) &&
        set_numbers(it, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, conv->dilation) && finish(it);
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

static bool set_factor(part it, cudnnBackendAttributeName_t name, const rg_cudnn_conv *conv,
                       double factor)
{
    const float single = (float)factor;
    return conv->dtype == RG_F64 ? set(it, name, CUDNN_TYPE_DOUBLE, 1, &factor)
                                 : set(it, name, CUDNN_TYPE_FLOAT, 1, &single);
}

/* How many channels of x a filter sees follows from the two tensors; so do groups. */
static part add_operation(conv_plan *plan, const rg_cudnn_conv *conv)
{
    const operation_names *names = &operations[conv->direction];
    const part x = add_tensor(plan, conv, ID_X, conv->images, conv->channels, conv->size);
    const part w =
        add_tensor(plan, conv, ID_W, conv->outputs, conv->channels / conv->groups, conv->window);
    const part y = add_tensor(plan, conv, ID_Y, conv->images, conv->outputs, conv->result);
    const part geometry = add_geometry(plan, conv);
    const part it = add_part(plan, names->type);
    const bool made = set_part(it, names->geometry, geometry) && set_part(it, names->x, x) &&
                      set_part(it, names->w, w) && set_part(it, names->y, y) &&
                      set_factor(it, names->alpha, conv, 1) &&
                      set_factor(it, names->beta, conv, 0) && finish(it);
    return made ? it : NULL;
}

static part add_graph(conv_plan *plan, const rg_cudnn_conv *conv, cudnnHandle_t handle)
{
    const part operation = add_operation(plan, conv);
    const part graph =
        operation != NULL ? add_part(plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) : NULL;
    const bool made = set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) &&
                      set_part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation) && finish(graph);
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
static bool compiles(part engine)
{
    cudnnBackendBehaviorNote_t notes[32];
    int64_t count = 0;
    if (dnn.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                32, &count, notes) != CUDNN_STATUS_SUCCESS)
        return true;
    for (int64_t i = 0; i < count; i++) {
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return true;
    }
    return false;
}

static bool engine_fits(part config, const rg_cudnn_conv *conv, bool tf32)
{
    cudnnBackendNumericalNote_t notes[32];
    int64_t count = 0, found = 0;
    part engine = make_part(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    const bool fits =
        engine != NULL &&
        dnn.BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                1, &found, &engine) == CUDNN_STATUS_SUCCESS &&
        dnn.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                32, &count, notes) == CUDNN_STATUS_SUCCESS &&
        notes_allow(notes, count, conv, tf32) && !compiles(engine);
    drop_part(engine);
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
static bool make_execution(conv_plan *plan, const rg_cudnn_conv *conv, cudnnHandle_t handle,
                           part config)
{
    int64_t workspace = 0, count = 0;
    const part it = make_part(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (set(it, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) &&
        set_part(it, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config) && finish(it) &&
        dnn.BackendGetAttribute(it, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                &count, &workspace) == CUDNN_STATUS_SUCCESS &&
        workspace >= 0 && (size_t)workspace <= most_workspace(conv)) {
        plan->execution = it;
        plan->workspace = (size_t)workspace;
        return true;
    }
    drop_part(it);
    return false;
}

/* Asks one of the heuristics, and takes the first engine that will do; it joins the plan. */
static bool choose_engine(conv_plan *plan, const rg_cudnn_conv *conv, const struct rg_cudnn *cudnn,
                          part graph, cudnnBackendHeurMode_t mode)
{
    enum { MOST = 64 };
    part configs[MOST] = { 0 };
    int64_t count = 0;
    const part heuristics = make_part(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    bool whole = set_part(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph) &&
                 set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) &&
                 finish(heuristics);
    for (int i = 0; i < MOST && whole; i++)
        whole = (configs[i] = make_part(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) != NULL;
    whole = whole && dnn.BackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count,
                                             configs) == CUDNN_STATUS_SUCCESS;
    bool chosen = false;
    for (int i = 0; i < MOST && i < count && whole && !chosen; i++) {
        chosen = plan->count < MOST_PARTS && engine_fits(configs[i], conv, cudnn->tf32) &&
                 make_execution(plan, conv, cudnn->handle, configs[i]);
        if (chosen) {
            plan->parts[plan->count++] = configs[i];
            configs[i] = NULL;
        }
    }
    for (int i = 0; i < MOST; i++)
        drop_part(configs[i]);
    drop_part(heuristics);
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
static bool choose(conv_plan *plan, const rg_cudnn_conv *conv, const struct rg_cudnn *cudnn,
                   part graph)
{
    const bool in_double = conv->dtype == RG_F64, even = !is_lopsided(conv);
    if (in_double && even && choose_engine(plan, conv, cudnn, graph, CUDNN_HEUR_MODE_FALLBACK))
        return true;
    if (!(in_double && !even) && choose_engine(plan, conv, cudnn, graph, CUDNN_HEUR_MODE_A))
        return true;
    return !in_double && even && choose_engine(plan, conv, cudnn, graph, CUDNN_HEUR_MODE_FALLBACK);
}

/* A plan for the convolution; NULL where cuDNN has none. */
static conv_plan *make_plan(struct rg_cudnn *cudnn, const rg_cudnn_conv *conv)
{
    void *memory;
    if (!countable(conv) ||
        rg_allocate_zero(&cudnn->allocator, sizeof(conv_plan), &memory) != RG_OK)
        return NULL;
    conv_plan *plan = memory;
    const part graph = add_graph(plan, conv, cudnn->handle);
    if (graph != NULL && choose(plan, conv, cudnn, graph))
        return plan;
    release_plan(cudnn, plan);
    return NULL;
}

/* ---- the library on a device ---- */

/* Waits until no plan is in use; false inside a capture, where nothing can be waited for. */
static bool settle(void *context)
{
    (void)context;
    const bool settled = cudaDeviceSynchronize() == cudaSuccess;
    (void)cudaGetLastError();
    return settled;
}

struct rg_cudnn *rg_cudnn_create(const rg_allocator *allocator, bool tf32)
{
    void *memory;
    if (rg_allocate_zero(allocator, sizeof(struct rg_cudnn), &memory) != RG_OK)
        return NULL;
    struct rg_cudnn *cudnn = memory;
    *cudnn = (struct rg_cudnn){ .allocator = *allocator, .tf32 = tf32 };
    cudnn->plans = (rg_plan_cache){ .allocator = &cudnn->allocator,
                                    .key_bytes = sizeof(rg_cudnn_conv),
                                    .release = release_plan,
                                    .settle = settle,
                                    .context = cudnn };
    pthread_mutex_init(&cudnn->lock, NULL);
    return cudnn;
}

void rg_cudnn_destroy(struct rg_cudnn *cudnn)
{
    if (cudnn == NULL)
        return;
    rg_plan_cache_clear(&cudnn->plans);
    if (cudnn->handle != NULL)
        (void)dnn.Destroy(cudnn->handle);
    pthread_mutex_destroy(&cudnn->lock);
    const rg_allocator allocator = cudnn->allocator;
    rg_release(&allocator, cudnn, sizeof *cudnn);
}

/* With the lock: whether there is a cuDNN; the first call opens it. */
static bool is_open(struct rg_cudnn *cudnn)
{
    if (!cudnn->tried) {
        cudnn->tried = true;
        pthread_once(&load_once, load);
        if (!loaded || dnn.Create(&cudnn->handle) != CUDNN_STATUS_SUCCESS)
            cudnn->handle = NULL;
    }
    return cudnn->handle != NULL;
}

/* With the lock: the plan of a convolution, made where there is none yet. */
static conv_plan *find_plan(struct rg_cudnn *cudnn, const rg_cudnn_conv *conv)
{
    void *plan = NULL;
    if (!is_open(cudnn) || rg_plan_cache_find(&cudnn->plans, conv, &plan))
        return plan;
    plan = make_plan(cudnn, conv);
    return rg_plan_cache_add(&cudnn->plans, conv, plan) ? plan : NULL;
}

bool rg_cudnn_conv_plan(const rg_cuda_place *place, const rg_cudnn_conv *conv, size_t *workspace)
{
    struct rg_cudnn *cudnn = place->cudnn;
    if (cudnn == NULL)
        return false;
    pthread_mutex_lock(&cudnn->lock);
    const conv_plan *plan = find_plan(cudnn, conv);
    *workspace = plan != NULL ? plan->workspace : 0;
    (void)cudaGetLastError(); /* so that no later launch is blamed for what cuDNN tried */
    pthread_mutex_unlock(&cudnn->lock);
    return plan != NULL;
}

static bool execute(const struct rg_cudnn *cudnn, const conv_plan *plan, void *const pointers[3],
                    void *workspace)
{
    static const int64_t ids[3] = { ID_X, ID_W, ID_Y };
    const part pack = make_part(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const bool done =
        set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids) &&
        set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers) &&
        set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace) &&
        finish(pack) &&
        dnn.BackendExecute(cudnn->handle, plan->execution, pack) == CUDNN_STATUS_SUCCESS;
    drop_part(pack);
    return done;
}

bool rg_cudnn_conv_run(const rg_cuda_place *place, const rg_cudnn_conv *conv, void *x, void *w,
                       void *y, void *workspace, size_t bytes)
{
    struct rg_cudnn *cudnn = place->cudnn;
    void *const pointers[3] = { x, w, y };
    if (cudnn == NULL)
        return false;
    pthread_mutex_lock(&cudnn->lock);
    const conv_plan *plan = find_plan(cudnn, conv);
    const bool done = plan != NULL && plan->workspace <= bytes &&
                      dnn.SetStream(cudnn->handle, place->stream) == CUDNN_STATUS_SUCCESS &&
                      execute(cudnn, plan, pointers, workspace);
    pthread_mutex_unlock(&cudnn->lock);
    return done;
}
#else
struct rg_cudnn *rg_cudnn_create(const rg_allocator *allocator, bool tf32)
{
    (void)allocator, (void)tf32;
    return NULL;
}

void rg_cudnn_destroy(struct rg_cudnn *cudnn)
{
    (void)cudnn;
}

bool rg_cudnn_conv_plan(const rg_cuda_place *place, const rg_cudnn_conv *conv, size_t *workspace)
{
    (void)place, (void)conv, (void)workspace;
    return false;
}

bool rg_cudnn_conv_run(const rg_cuda_place *place, const rg_cudnn_conv *conv, void *x, void *w,
                       void *y, void *workspace, size_t bytes)
{
    (void)place, (void)conv, (void)x, (void)w, (void)y, (void)workspace, (void)bytes;
    return false;
}
#endif
