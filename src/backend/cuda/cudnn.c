/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* cuDNN on a device: plans are kept by key. One handle serves all queues of a device, with a lock
 * around every use. */
#include "backend/cuda/cudnn.h"

#if RG_HAVE_CUDNN
#include "backend/cuda/cudnn_plan.h"
#include "backend/cuda/plan_cache.h"

#include <pthread.h>

struct rg_cudnn {
    rg_allocator allocator;
    bool tf32;
    pthread_mutex_t lock; /* of what follows */
    bool tried;
    cudnnHandle_t handle; /* NULL: there is no cuDNN */
    rg_plan_cache plans;
};

static void release_plan(void *context, void *plan)
{
    const struct rg_cudnn *cudnn = context;
    rg_cudnn_plan_release(plan, &cudnn->allocator);
}

/* Waits until no plan is in use; false inside a capture, where nothing can be waited for. */
static bool wait_idle(void *context)
{
    (void)context;
    const bool idle = cudaDeviceSynchronize() == cudaSuccess;
    (void)cudaGetLastError();
    return idle;
}

struct rg_cudnn *rg_cudnn_create(const rg_allocator *allocator, bool tf32)
{
    void *memory;
    if (rg_allocate_zero(allocator, sizeof(struct rg_cudnn), &memory) != RG_OK)
        return NULL;
    struct rg_cudnn *cudnn = memory;
    *cudnn = (struct rg_cudnn){ .allocator = *allocator, .tf32 = tf32 };
    cudnn->plans = (rg_plan_cache){ .allocator = &cudnn->allocator,
                                    .key_bytes = sizeof(rg_cudnn_key),
                                    .release = release_plan,
                                    .wait_idle = wait_idle,
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
        (void)rg_cudnn_call.Destroy(cudnn->handle);
    pthread_mutex_destroy(&cudnn->lock);
    const rg_allocator allocator = cudnn->allocator;
    rg_release(&allocator, cudnn, sizeof *cudnn);
}

/* With the lock: whether there is a cuDNN; the first call opens it. */
static bool is_open(struct rg_cudnn *cudnn)
{
    if (!cudnn->tried) {
        cudnn->tried = true;
        if (!rg_cudnn_load() || rg_cudnn_call.Create(&cudnn->handle) != CUDNN_STATUS_SUCCESS)
            cudnn->handle = NULL;
    }
    return cudnn->handle != NULL;
}

/* With the lock: the plan of a request, made where there is none yet. */
static rg_cudnn_plan *find_plan(struct rg_cudnn *cudnn, const rg_cudnn_request *request)
{
    void *plan = NULL;
    if (!is_open(cudnn) || rg_plan_cache_find(&cudnn->plans, request->key, &plan))
        return plan;
    plan = rg_cudnn_plan_make(request, cudnn->handle, cudnn->tf32, &cudnn->allocator);
    return rg_plan_cache_add(&cudnn->plans, request->key, plan) ? plan : NULL;
}

bool rg_cudnn_prepare(const rg_cuda_target *target, const rg_cudnn_request *request,
                      size_t *workspace)
{
    struct rg_cudnn *cudnn = target->cudnn;
    if (cudnn == NULL)
        return false;
    pthread_mutex_lock(&cudnn->lock);
    const rg_cudnn_plan *plan = find_plan(cudnn, request);
    *workspace = plan != NULL ? plan->workspace : 0;
    (void)cudaGetLastError(); /* so that no later launch is blamed for what cuDNN tried */
    pthread_mutex_unlock(&cudnn->lock);
    return plan != NULL;
}

static bool execute(const struct rg_cudnn *cudnn, const rg_cudnn_plan *plan, const int64_t ids[3],
                    void *const pointers[3], void *workspace)
{
    const rg_cudnn_descriptor pack =
        rg_cudnn_descriptor_make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const bool done =
        rg_cudnn_descriptor_set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3,
                                ids) &&
        rg_cudnn_descriptor_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3,
                                pointers) &&
        rg_cudnn_descriptor_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                &workspace) &&
        rg_cudnn_descriptor_finish(pack) &&
        rg_cudnn_call.BackendExecute(cudnn->handle, plan->execution, pack) == CUDNN_STATUS_SUCCESS;
    rg_cudnn_descriptor_drop(pack);
    return done;
}

bool rg_cudnn_execute(const rg_cuda_target *target, const rg_cudnn_request *request,
                      const int64_t ids[3], void *const pointers[3], void *workspace, size_t bytes)
{
    struct rg_cudnn *cudnn = target->cudnn;
    if (cudnn == NULL)
        return false;
    pthread_mutex_lock(&cudnn->lock);
    const rg_cudnn_plan *plan = find_plan(cudnn, request);
    const bool done =
        plan != NULL && plan->workspace <= bytes &&
        rg_cudnn_call.SetStream(cudnn->handle, target->stream) == CUDNN_STATUS_SUCCESS &&
        execute(cudnn, plan, ids, pointers, workspace);
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
#endif
