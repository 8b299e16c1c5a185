/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* cuBLASLt: matrices described by shape, an algorithm chosen by its heuristics and kept. It stores
 * matrices by columns, so our rows are its columns: c is computed as its transpose, b' a'. One
 * handle serves all queues of a device, with a lock around every use. */
#include "backend/cuda/cublaslt.h"

#if RG_HAVE_CUBLASLT
#include "backend/cuda/plan_cache.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

#define FUNCTIONS(F)                 \
    F(Create);                       \
    F(Destroy);                      \
    F(MatmulDescCreate);             \
    F(MatmulDescDestroy);            \
    F(MatmulDescSetAttribute);       \
    F(MatrixLayoutCreate);           \
    F(MatrixLayoutDestroy);          \
    F(MatrixLayoutSetAttribute);     \
    F(MatmulPreferenceCreate);       \
    F(MatmulPreferenceDestroy);      \
    F(MatmulPreferenceSetAttribute); \
    F(MatmulAlgoGetHeuristic);       \
    F(Matmul)

static struct {
#define F(name) __typeof__(cublasLt##name) *name
    FUNCTIONS(F);
#undef F
} lt; /* filled once */
static bool loaded;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

#define TEXT_OF(number) #number
#define NAME_OF(number) "libcublasLt.so." TEXT_OF(number)

/* The library is never closed: others in the process may use it, too. */
static void load(void)
{
    const char *named = getenv("RG_CUBLASLT");
    void *library = dlopen(named != NULL && named[0] != 0 ? named : NAME_OF(CUBLAS_VER_MAJOR),
                           RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    void *found;
    loaded = true;
#define F(name)                                       \
    found = dlsym(library, "cublasLt" #name);         \
    memcpy((void *)&lt.name, &found, sizeof lt.name); \
    loaded = loaded && found != NULL
    FUNCTIONS(F);
#undef F
}

struct rg_cublaslt {
    rg_allocator allocator;
    bool tf32;
    pthread_mutex_t lock; /* of what follows */
    bool tried;
    cublasLtHandle_t handle; /* NULL: there is no cuBLASLt */
    rg_plan_cache plans;
};

/* ---- plans ---- */

typedef struct product_plan {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c; /* of our matrices, seen as columns */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
} product_plan;

static void release_plan(void *context, void *plan)
{
    struct rg_cublaslt *cublaslt = context;
    product_plan *own = plan;
    if (own->product != NULL)
        (void)lt.MatmulDescDestroy(own->product);
    if (own->a != NULL)
        (void)lt.MatrixLayoutDestroy(own->a);
    if (own->b != NULL)
        (void)lt.MatrixLayoutDestroy(own->b);
    if (own->c != NULL)
        (void)lt.MatrixLayoutDestroy(own->c);
    rg_release(&cublaslt->allocator, own, sizeof *own);
}

static cudaDataType_t type_of(int64_t dtype)
{
    static const cudaDataType_t types[] = {
        [RG_F32] = CUDA_R_32F, [RG_F64] = CUDA_R_64F, [RG_F16] = CUDA_R_16F, [RG_BF16] = CUDA_R_16BF
    };
    return types[dtype];
}

static bool describe_product(product_plan *plan, const rg_product *product, bool tf32)
{
    const bool in_double = product->dtype == RG_F64;
    const cublasComputeType_t compute = in_double ? CUBLAS_COMPUTE_64F
                                        : product->dtype == RG_F32 && tf32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    const int32_t first = product->transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t second = product->transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t end = product->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    return lt.MatmulDescCreate(&plan->product, compute, in_double ? CUDA_R_64F : CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           lt.MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                     sizeof first) == CUBLAS_STATUS_SUCCESS &&
           lt.MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                     sizeof second) == CUBLAS_STATUS_SUCCESS &&
           lt.MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &end,
                                     sizeof end) == CUBLAS_STATUS_SUCCESS;
}

/* A matrix of ours, whose rows, `step` elements apart, are columns there. */
static bool describe_matrix(cublasLtMatrixLayout_t *matrix, const rg_product *product,
                            int64_t dtype, int64_t rows, int64_t columns, int64_t step)
{
    const int32_t batch = (int32_t)product->batch;
    const int64_t distance = step > columns ? columns : rows * columns;
    return lt.MatrixLayoutCreate(matrix, type_of(dtype), (uint64_t)columns, (uint64_t)rows, step) ==
               CUBLAS_STATUS_SUCCESS &&
           lt.MatrixLayoutSetAttribute(*matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                       sizeof batch) == CUBLAS_STATUS_SUCCESS &&
           lt.MatrixLayoutSetAttribute(*matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                       &distance, sizeof distance) == CUBLAS_STATUS_SUCCESS;
}

static bool describe_matrices(product_plan *plan, const rg_product *p)
{
    const int64_t step = p->whole > 0 ? p->whole : p->inner;
    return (p->transposed_a ? describe_matrix(&plan->a, p, p->dtype, p->inner, p->rows, p->rows)
                            : describe_matrix(&plan->a, p, p->dtype, p->rows, p->inner, step)) &&
           (p->transposed_b
                ? describe_matrix(&plan->b, p, p->dtype, p->columns, p->inner, step)
                : describe_matrix(&plan->b, p, p->dtype, p->inner, p->columns, p->columns)) &&
           describe_matrix(&plan->c, p, p->wide ? RG_F32 : p->dtype, p->rows, p->columns,
                           p->columns);
}

static bool prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
                   const void *value, size_t bytes)
{
    return lt.MatmulPreferenceSetAttribute(preference, name, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

/* The first algorithm of the heuristics; its workspace fits the limit given to the heuristics. */
static bool choose_algorithm(product_plan *plan, cublasLtHandle_t handle)
{
    static const size_t most = (size_t)32 << 20;
    static const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    static const uint32_t alignment = RG_CUBLASLT_ALIGN_BYTES;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    if (lt.MatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
        return false;
    bool chosen =
        prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most) &&
        prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
               sizeof reductions) &&
        prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment,
               sizeof alignment) &&
        prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment,
               sizeof alignment) &&
        prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment,
               sizeof alignment) &&
        prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment,
               sizeof alignment) &&
        lt.MatmulAlgoGetHeuristic(handle, plan->product, plan->b, plan->a, plan->c, plan->c,
                                  preference, 1, &found, &count) == CUBLAS_STATUS_SUCCESS &&
        count == 1 && found.state == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= most;
    (void)lt.MatmulPreferenceDestroy(preference);
    if (chosen) {
        plan->algorithm = found.algo;
        plan->workspace = found.workspaceSize;
    }
    return chosen;
}

/* A plan for the product; NULL where cuBLASLt has none. */
static product_plan *make_plan(struct rg_cublaslt *cublaslt, const rg_product *product)
{
    void *memory;
    const rg_product *p = product;
    const bool countable = p->batch > 0 && p->rows > 0 && p->columns > 0 && p->inner > 0 &&
                           p->batch <= INT_MAX && p->rows <= INT_MAX && p->columns <= INT_MAX &&
                           p->inner <= INT_MAX;
    if (!countable ||
        rg_allocate_zero(&cublaslt->allocator, sizeof(product_plan), &memory) != RG_OK)
        return NULL;
    product_plan *plan = memory;
    if (describe_product(plan, product, cublaslt->tf32) && describe_matrices(plan, product) &&
        choose_algorithm(plan, cublaslt->handle))
        return plan;
    release_plan(cublaslt, plan);
    return NULL;
}

/* ---- the library on a device ---- */

/* Plans can always be released: only calls read them, not what is in a stream. */
static bool wait_idle(void *context)
{
    (void)context;
    return true;
}

struct rg_cublaslt *rg_cublaslt_create(const rg_allocator *allocator, bool tf32)
{
    void *memory;
    if (rg_allocate_zero(allocator, sizeof(struct rg_cublaslt), &memory) != RG_OK)
        return NULL;
    struct rg_cublaslt *cublaslt = memory;
    *cublaslt = (struct rg_cublaslt){ .allocator = *allocator, .tf32 = tf32 };
    cublaslt->plans = (rg_plan_cache){ .allocator = &cublaslt->allocator,
                                       .key_bytes = sizeof(rg_product),
                                       .release = release_plan,
                                       .wait_idle = wait_idle,
                                       .context = cublaslt };
    pthread_mutex_init(&cublaslt->lock, NULL);
    return cublaslt;
}

void rg_cublaslt_destroy(struct rg_cublaslt *cublaslt)
{
    if (cublaslt == NULL)
        return;
    rg_plan_cache_clear(&cublaslt->plans);
    if (cublaslt->handle != NULL)
        (void)lt.Destroy(cublaslt->handle);
    pthread_mutex_destroy(&cublaslt->lock);
    const rg_allocator allocator = cublaslt->allocator;
    rg_release(&allocator, cublaslt, sizeof *cublaslt);
}

/* With the lock: whether there is a cuBLASLt; the first call opens it. */
static bool is_open(struct rg_cublaslt *cublaslt)
{
    if (!cublaslt->tried) {
        cublaslt->tried = true;
        pthread_once(&load_once, load);
        if (!loaded || lt.Create(&cublaslt->handle) != CUBLAS_STATUS_SUCCESS)
            cublaslt->handle = NULL;
    }
    return cublaslt->handle != NULL;
}

/* With the lock: the plan of a product, made where there is none yet. */
static product_plan *find_plan(struct rg_cublaslt *cublaslt, const rg_product *product)
{
    void *plan = NULL;
    if (!is_open(cublaslt) || rg_plan_cache_find(&cublaslt->plans, product, &plan))
        return plan;
    plan = make_plan(cublaslt, product);
    return rg_plan_cache_add(&cublaslt->plans, product, plan) ? plan : NULL;
}

bool rg_cublaslt_plan(const rg_cuda_target *target, const rg_product *product, size_t *workspace)
{
    struct rg_cublaslt *cublaslt = target->cublaslt;
    if (cublaslt == NULL)
        return false;
    pthread_mutex_lock(&cublaslt->lock);
    const product_plan *plan = find_plan(cublaslt, product);
    *workspace = plan != NULL ? plan->workspace : 0;
    (void)cudaGetLastError(); /* so that no later launch is blamed for what cuBLASLt tried */
    pthread_mutex_unlock(&cublaslt->lock);
    return plan != NULL;
}

static bool set_bias(const product_plan *plan, const rg_product *product, const void *bias)
{
    return !product->bias ||
           lt.MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                     sizeof bias) == CUBLAS_STATUS_SUCCESS;
}

bool rg_cublaslt_run(const rg_cuda_target *target, const rg_product *product, double alpha,
                     const rg_product_operands *operands, void *workspace, size_t bytes)
{
    struct rg_cublaslt *cublaslt = target->cublaslt;
    const double beta = product->add ? 1 : 0;
    const float single_alpha = (float)alpha, single_beta = (float)beta;
    const bool in_double = product->dtype == RG_F64;
    if (cublaslt == NULL)
        return false;
    pthread_mutex_lock(&cublaslt->lock);
    const product_plan *plan = find_plan(cublaslt, product);
    const bool done =
        plan != NULL && plan->workspace <= bytes && set_bias(plan, product, operands->bias) &&
        lt.Matmul(cublaslt->handle, plan->product, in_double ? (const void *)&alpha : &single_alpha,
                  operands->b, plan->b, operands->a, plan->a,
                  in_double ? (const void *)&beta : &single_beta, operands->c, plan->c, operands->c,
                  plan->c, &plan->algorithm, workspace, plan->workspace,
                  target->stream) == CUBLAS_STATUS_SUCCESS;
    pthread_mutex_unlock(&cublaslt->lock);
    return done;
}
#else
struct rg_cublaslt *rg_cublaslt_create(const rg_allocator *allocator, bool tf32)
{
    (void)allocator, (void)tf32;
    return NULL;
}

void rg_cublaslt_destroy(struct rg_cublaslt *cublaslt)
{
    (void)cublaslt;
}

bool rg_cublaslt_plan(const rg_cuda_target *target, const rg_product *product, size_t *workspace)
{
    (void)target, (void)product, (void)workspace;
    return false;
}

bool rg_cublaslt_run(const rg_cuda_target *target, const rg_product *product, double alpha,
                     const rg_product_operands *operands, void *workspace, size_t bytes)
{
    (void)target, (void)product, (void)alpha, (void)operands, (void)workspace, (void)bytes;
    return false;
}
#endif
