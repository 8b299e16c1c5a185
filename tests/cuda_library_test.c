/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Libraries on a GPU: the cache of their plans, contractions beside those of the CPU, captured
 * work, several queues at once, TF32. The same program runs a second time where no library is
 * found, and our own kernels do it all. */
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/plan_cache.h"
#include "cuda_rig.h"
#include "ops/conv/conv.h"

#include <pthread.h>

/* ---- the cache; needs no GPU ---- */

typedef struct cache_watch {
    int released;
    bool settled;
} cache_watch;

static void count_plan(void *context, void *plan)
{
    ((cache_watch *)context)->released++;
    free(plan);
}

static bool may_release(void *context)
{
    return ((cache_watch *)context)->settled;
}

static void test_cache(void)
{
    cache_watch watch = { .settled = true };
    rg_plan_cache cache = { .allocator = &rg_default_allocator,
                            .key_bytes = sizeof(int64_t),
                            .release = count_plan,
                            .wait_idle = may_release,
                            .context = &watch };
    void *found = &cache;
    int64_t key = 7;
    EXPECT(!rg_plan_cache_find(&cache, &key, &found));
    EXPECT(rg_plan_cache_add(&cache, &key, NULL)); /* that there is none */
    EXPECT(rg_plan_cache_find(&cache, &key, &found) && found == NULL);
    for (key = 1000; key < 1000 + RG_MAX_PLANS - 1; key++)
        EXPECT(rg_plan_cache_add(&cache, &key, malloc(1)));
    EXPECT(cache.count == RG_MAX_PLANS && watch.released == 0);
    key = 1000; /* used just now, so that 7 is the one to go, and then 1001 */
    EXPECT(rg_plan_cache_find(&cache, &key, &found) && found != NULL);
    for (key = 1; key <= 2; key++)
        EXPECT(rg_plan_cache_add(&cache, &key, malloc(1)));
    EXPECT(cache.count == RG_MAX_PLANS && watch.released == 1);
    key = 7;
    EXPECT(!rg_plan_cache_find(&cache, &key, &found));
    key = 1001;
    EXPECT(!rg_plan_cache_find(&cache, &key, &found));
    key = 1000;
    EXPECT(rg_plan_cache_find(&cache, &key, &found));
    watch.settled = false; /* nothing may go now: it grows */
    key = 3;
    EXPECT(rg_plan_cache_add(&cache, &key, malloc(1)));
    EXPECT(cache.count == RG_MAX_PLANS + 1 && watch.released == 1);
    rg_plan_cache_clear(&cache);
    EXPECT(cache.count == 0 && watch.released == RG_MAX_PLANS + 2);
}

/* ---- a convolution and its gradients on any device ---- */

enum { IMAGES = 3, ROWS = 13, COLUMNS = 11, IN = 24, OUT = 40 };

typedef struct layer {
    rg_kernel *kernel;
    rg_tensor *x[3], *y, *dy, *dx[3];
} layer;

static layer layer_make(rg_device *device, rg_dtype dtype)
{
    layer l = { 0 };
    rg_conv_desc desc = rg_conv_desc_default();
    desc.padding.top = desc.padding.left = desc.padding.bottom = desc.padding.right = 1;
    desc.neuron.kind = RG_NEURON_RELU;
    EXPECT_OK(rg_conv_create(device, &desc, &l.kernel));
    l.x[0] = filled(device, dtype, 4, DIMS(IMAGES, ROWS, COLUMNS, IN), 1);
    l.x[1] = filled(device, dtype, 4, DIMS(OUT, 3, 3, IN), 2);
    l.x[2] = filled(device, dtype, 1, DIMS(OUT), 3);
    l.y = filled(device, dtype, 4, DIMS(IMAGES, ROWS, COLUMNS, OUT), 4);
    l.dy = filled(device, dtype, 4, DIMS(IMAGES, ROWS, COLUMNS, OUT), 5);
    l.dx[0] = filled(device, dtype, 4, DIMS(IMAGES, ROWS, COLUMNS, IN), 6);
    l.dx[1] = filled(device, dtype, 4, DIMS(OUT, 3, 3, IN), 7);
    l.dx[2] = filled(device, dtype, 1, DIMS(OUT), 8);
    return l;
}

static void layer_free(layer *l)
{
    for (int i = 0; i < 3; i++) {
        rg_tensor_destroy(l->x[i]);
        rg_tensor_destroy(l->dx[i]);
    }
    rg_tensor_destroy(l->y);
    rg_tensor_destroy(l->dy);
    rg_kernel_destroy(l->kernel);
}

static void layer_run(layer *l, rg_queue *queue)
{
    rg_commands *commands = NULL;
    EXPECT_OK(rg_commands_create(queue, &commands));
    EXPECT_OK(rg_kernel_forward(l->kernel, commands, l->x, &l->y, NULL));
    EXPECT_OK(rg_kernel_gradient(l->kernel, commands, &l->dy, l->x, &l->y, NULL, l->dx, 0));
    EXPECT_OK(rg_commands_commit(commands));
    EXPECT_OK(rg_commands_wait(commands));
    rg_commands_destroy(commands);
}

static void expect_close(const layer *got, const layer *want, double tolerance)
{
    EXPECT(are_close(got->y, want->y, tolerance));
    for (int i = 0; i < 3; i++)
        EXPECT(are_close(got->dx[i], want->dx[i], tolerance));
}

static void expect_same(const layer *a, const layer *b)
{
    EXPECT(same_bits(a->y, b->y));
    for (int i = 0; i < 3; i++)
        EXPECT(same_bits(a->dx[i], b->dx[i]));
}

/* Every dtype beside the CPU, twice, with the same bits. */
static void test_dtypes(rig *gpu, rig *cpu)
{
    static const struct {
        rg_dtype dtype;
        double tolerance;
    } rows[] = { { RG_F32, 1e-5 }, { RG_F64, 1e-12 }, { RG_F16, 4e-3 }, { RG_BF16, 2e-2 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        layer here = layer_make(gpu->device, rows[i].dtype);
        layer again = layer_make(gpu->device, rows[i].dtype);
        layer there = layer_make(cpu->device, rows[i].dtype);
        layer_run(&there, cpu->queue);
        layer_run(&here, gpu->queue);
        layer_run(&again, gpu->queue);
        expect_close(&here, &there, rows[i].tolerance);
        expect_same(&here, &again);
        layer_free(&here);
        layer_free(&again);
        layer_free(&there);
    }
}

/* ---- TF32 ---- */

static void test_tf32(rig *cpu)
{
    rg_device_options options = rg_device_options_default();
    EXPECT(!options.tf32);
    options.tf32 = true;
    rg_device *device = NULL;
    rg_queue *queue = NULL;
    EXPECT_OK(rg_device_create("cuda", &options, &device));
    EXPECT_OK(rg_queue_create(device, &queue));
    layer here = layer_make(device, RG_F32), there = layer_make(cpu->device, RG_F32);
    layer_run(&here, queue);
    layer_run(&there, cpu->queue);
    expect_close(&here, &there, 5e-3);
    layer_free(&here);
    layer_free(&there);
    rg_queue_destroy(queue);
    rg_device_destroy(device);
}

/* ---- several queues at once ---- */

enum { WORKERS = 4, TURNS = 20 };

static void *work_on(void *context)
{
    rig *r = context;
    rg_queue *queue = NULL;
    EXPECT_OK(rg_queue_create(r->device, &queue));
    for (int i = 0; i < TURNS; i++) {
        layer l = layer_make(r->device, i % 2 ? RG_F16 : RG_F32);
        layer_run(&l, queue);
        layer_free(&l);
    }
    layer *result = malloc(sizeof *result);
    *result = layer_make(r->device, RG_BF16);
    layer_run(result, queue);
    rg_queue_destroy(queue);
    return result;
}

static void test_threads(rig *gpu)
{
    pthread_t threads[WORKERS];
    layer *results[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work_on, gpu) == 0);
    for (int i = 0; i < WORKERS; i++)
        EXPECT(pthread_join(threads[i], (void **)&results[i]) == 0);
    for (int i = 1; i < WORKERS; i++)
        expect_same(results[i], results[0]);
    for (int i = 0; i < WORKERS; i++) {
        layer_free(results[i]);
        free(results[i]);
    }
}

/* ---- captured work: plans are made before, and nothing is allocated inside ---- */

typedef struct captured {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
} captured;

static void capture_begin(captured *c)
{
    EXPECT_CUDA(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeGlobal));
}

/* Ends the capture and replays it. */
static void capture_replay(captured *c, int times)
{
    EXPECT_CUDA(cudaStreamEndCapture(c->stream, &c->graph));
    EXPECT_CUDA(cudaGraphInstantiate(&c->exec, c->graph, 0));
    for (int i = 0; i < times; i++)
        EXPECT_CUDA(cudaGraphLaunch(c->exec, c->stream));
    EXPECT_CUDA(cudaStreamSynchronize(c->stream));
    EXPECT_CUDA(cudaGraphExecDestroy(c->exec));
    EXPECT_CUDA(cudaGraphDestroy(c->graph));
}

static void test_captured_conv(rig *gpu, cudaStream_t stream)
{
    captured c = { .stream = stream };
    rg_cuda_target target = { .stream = stream,
                              .cudnn = rg_cudnn_create(&rg_default_allocator, false) };
    rg_cudnn_conv conv = { .direction = RG_CONV_FORWARD,
                           .dtype = RG_BF16,
                           .images = IMAGES,
                           .channels = IN,
                           .outputs = OUT,
                           .groups = 1,
                           .size = { ROWS, COLUMNS },
                           .result = { ROWS, COLUMNS },
                           .window = { 3, 3 },
                           .stride = { 1, 1 },
                           .dilation = { 1, 1 },
                           .before = { 1, 1 } };
    size_t bytes = 0;
    if (rg_cudnn_conv_plan(&target, &conv, &bytes)) {
        layer l = layer_make(gpu->device, RG_BF16), m = layer_make(gpu->device, RG_BF16);
        rg_tensor *space = filled(gpu->device, RG_U8, 1, DIMS((int64_t)bytes + 1), 9);
        void *const x = rg_tensor_data(l.x[0]), *const w = rg_tensor_data(l.x[1]);
        EXPECT(rg_cudnn_conv_run(&target, &conv, x, w, rg_tensor_data(m.y), rg_tensor_data(space),
                                 bytes));
        EXPECT_CUDA(cudaStreamSynchronize(stream));
        EXPECT(!same_bits(l.y, m.y));
        capture_begin(&c);
        EXPECT(rg_cudnn_conv_run(&target, &conv, x, w, rg_tensor_data(l.y), rg_tensor_data(space),
                                 bytes));
        capture_replay(&c, 2);
        EXPECT(same_bits(l.y, m.y));
        EXPECT(bytes == 0 || !rg_cudnn_conv_run(&target, &conv, x, w, rg_tensor_data(l.y),
                                                rg_tensor_data(space), bytes - 1));
        rg_tensor_destroy(space);
        layer_free(&l);
        layer_free(&m);
    } else {
        printf("cuDNN is not there: its part is left out\n");
    }
    rg_cudnn_destroy(target.cudnn);
}

static void test_captured_product(rig *gpu, cudaStream_t stream)
{
    captured c = { .stream = stream };
    rg_cuda_target target = { .stream = stream,
                              .cublaslt = rg_cublaslt_create(&rg_default_allocator, false) };
    const rg_product product = {
        .dtype = RG_F32, .batch = 2, .rows = 33, .columns = 40, .inner = 57, .transposed_b = 1
    };
    size_t bytes = 0;
    if (rg_cublaslt_plan(&target, &product, &bytes)) {
        rg_tensor *a = filled(gpu->device, RG_F32, 3, DIMS(2, 33, 57), 1);
        rg_tensor *b = filled(gpu->device, RG_F32, 3, DIMS(2, 40, 57), 2);
        rg_tensor *once = filled(gpu->device, RG_F32, 3, DIMS(2, 33, 40), 3);
        rg_tensor *again = filled(gpu->device, RG_F32, 3, DIMS(2, 33, 40), 4);
        rg_tensor *space = filled(gpu->device, RG_U8, 1, DIMS((int64_t)bytes + 1), 5);
        rg_product_operands operands = { .a = rg_tensor_data(a),
                                         .b = rg_tensor_data(b),
                                         .c = rg_tensor_data(once) };
        EXPECT(rg_cublaslt_run(&target, &product, 0.5, &operands, rg_tensor_data(space), bytes));
        EXPECT_CUDA(cudaStreamSynchronize(stream));
        capture_begin(&c);
        operands.c = rg_tensor_data(again);
        EXPECT(rg_cublaslt_run(&target, &product, 0.5, &operands, rg_tensor_data(space), bytes));
        capture_replay(&c, 2);
        EXPECT(same_bits(once, again));
        rg_tensor *const all[] = { a, b, once, again, space };
        for (int i = 0; i < 5; i++)
            rg_tensor_destroy(all[i]);
    } else {
        printf("cuBLASLt is not there: its part is left out\n");
    }
    rg_cublaslt_destroy(target.cublaslt);
}

/* ---- what they refuse ---- */

static void test_refusals(cudaStream_t stream)
{
    size_t bytes = 1;
    rg_cuda_target target = { .stream = stream };
    const rg_cudnn_conv nothing = { .groups = 1, .stride = { 1, 1 }, .dilation = { 1, 1 } };
    const rg_product empty = { .batch = 1, .rows = 0, .columns = 5, .inner = 5 };
    EXPECT(!rg_cudnn_conv_plan(&target, &nothing, &bytes)); /* none in this place */
    EXPECT(!rg_cublaslt_plan(&target, &empty, &bytes));
    target.cudnn = rg_cudnn_create(&rg_default_allocator, false);
    target.cublaslt = rg_cublaslt_create(&rg_default_allocator, false);
    EXPECT(!rg_cudnn_conv_plan(&target, &nothing, &bytes)); /* nothing to do */
    EXPECT(!rg_cudnn_conv_plan(&target, &nothing, &bytes)); /* and still not */
    EXPECT(!rg_cudnn_conv_run(&target, &nothing, NULL, NULL, NULL, NULL, 0));
    EXPECT(!rg_cublaslt_plan(&target, &empty, &bytes));
    EXPECT(!rg_cublaslt_run(&target, &empty, 1, &(rg_product_operands){ 0 }, NULL, 0));
    EXPECT_CUDA(cudaGetLastError());
    rg_cudnn_destroy(target.cudnn);
    rg_cublaslt_destroy(target.cublaslt);
    rg_cudnn_destroy(NULL);
    rg_cublaslt_destroy(NULL);
}

int main(void)
{
    test_cache();
    if (rg_failed > 0)
        return rg_test_report();
    if (!has_gpu())
        return skip(rg_error_text());
    rig gpu = rig_open_cuda(), cpu = rig_open(1);
    cudaStream_t stream = NULL;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    test_dtypes(&gpu, &cpu);
    test_tf32(&cpu);
    test_threads(&gpu);
    test_captured_conv(&gpu, stream);
    test_captured_product(&gpu, stream);
    test_refusals(stream);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    rig_close(&gpu);
    rig_close(&cpu);
    return rg_test_report();
}
