/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The API on a GPU: devices, wrapped memory, running out of memory, and what does not mix. */
#include "cuda_rig.h"

/* A small softmax, recorded, run and looked at: the device works. */
static void expect_works(rig *r)
{
    enum { ROWS = 7, COLUMNS = 33, COUNT = ROWS * COLUMNS };
    float in[COUNT], out[COUNT] = { 0 };
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = tensor_of(r->device, RG_F32, 2, DIMS(ROWS, COLUMNS)), *y = NULL;
    draw_floats(in, COUNT, 5);
    EXPECT_OK(rg_commands_write(r->commands, x, in, sizeof in, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, true, &y, NULL));
    EXPECT_OK(rg_commands_read(r->commands, y, out, sizeof out, RG_LAYOUT_SAME));
    EXPECT_OK(rig_run(r));
    EXPECT(is_softmax(in, out, ROWS, COLUMNS));
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_kernel_destroy(kernel);
}

/* ---- devices ---- */

static void test_names(void)
{
    rg_device *device = NULL;
    static const char *const names[] = { "cuda", "cuda:0" };
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(rg_device_create(names[i], NULL, &device));
        EXPECT(strcmp(rg_device_name(device), "cuda:0") == 0);
        rg_device_destroy(device);
    }
    char name[32];
    EXPECT_OK(rg_device_list(1, name, sizeof name));
    EXPECT(strcmp(name, "cuda:0") == 0);
    device = (rg_device *)1;
    EXPECT_FAILS(rg_device_create("cuda:99", NULL, &device), RG_NO_DEVICE, "cuda:99");
    EXPECT(device == NULL);
}

static void test_describe(void)
{
    rg_device *device = NULL;
    EXPECT_OK(rg_device_create("cuda", NULL, &device));
    EXPECT(rg_device_threads(device) == 1);
    EXPECT(strncmp(rg_device_isa(device), "sm_", 3) == 0);
    char text[256] = "", small[6] = "xxxxx";
    const size_t length = rg_device_describe(device, text, sizeof text);
    EXPECT(length == strlen(text) && strstr(text, "GiB") != NULL);
    EXPECT(strstr(text, rg_device_isa(device)) != NULL);
    EXPECT(rg_device_describe(device, NULL, 0) == length);
    EXPECT(rg_device_describe(device, small, 5) == length);
    EXPECT(strlen(small) == 4 && memcmp(small, text, 4) == 0);
    rg_device_destroy(device);
}

/* What is the CPU's to choose. */
static void test_options(void)
{
    rg_device *device = (rg_device *)1;
    rg_device_options options = rg_device_options_default();
    options.threads = 1;
    EXPECT_FAILS(rg_device_create("cuda", &options, &device), RG_INVALID_ARGUMENT, "threads");
    EXPECT(device == NULL);
    options = rg_device_options_default();
    options.isa = "base";
    EXPECT_FAILS(rg_device_create("cuda", &options, &device), RG_INVALID_ARGUMENT, "instruction");
    EXPECT(device == NULL);
    setenv("RG_THREADS", "nonsense", 1); /* not looked at */
    setenv("RG_CPU", "nonsense", 1);
    EXPECT_OK(rg_device_create("cuda", NULL, &device));
    rg_device_destroy(device);
    unsetenv("RG_THREADS");
    unsetenv("RG_CPU");
}

/* Whichever device is current on this thread, it stays so, and work goes where it belongs. */
static void test_current_device(void)
{
    int count = 0, now = -1;
    EXPECT_CUDA(cudaGetDeviceCount(&count));
    count = count < 2 ? count : 2;
    for (int current = 0; current < count; current++) {
        for (int used = 0; used < count; used++) {
            char name[16];
            snprintf(name, sizeof name, "cuda:%d", used);
            EXPECT_CUDA(cudaSetDevice(current));
            rig r = rig_open_named(name, NULL);
            EXPECT(cudaGetDevice(&now) == cudaSuccess && now == current);
            expect_works(&r);
            EXPECT(cudaGetDevice(&now) == cudaSuccess && now == current);
            rig_close(&r);
            EXPECT(cudaGetDevice(&now) == cudaSuccess && now == current);
        }
    }
    EXPECT_CUDA(cudaSetDevice(0));
}

/* An error of the caller's own CUDA calls that is still pending is not reported as ours. */
static void test_error_of_the_caller(rig *r)
{
    float values[4] = { 0 };
    rg_tensor *t = filled(r->device, RG_F32, 2, DIMS(2, 2), 1), *view = NULL;
    EXPECT_OK(rg_tensor_permute(t, (const int32_t[]){ 1, 0 }, &view));
    EXPECT(cudaSetDevice(4321) != cudaSuccess);
    EXPECT_OK(rg_tensor_read(view, values, sizeof values, RG_LAYOUT_SAME));
    EXPECT(cudaSetDevice(4321) != cudaSuccess);
    expect_works(r);
    (void)cudaGetLastError();
    rg_tensor_destroy(view);
    rg_tensor_destroy(t);
}

/* ---- wrapped memory ---- */

enum { WRAPPED_ROWS = 31, WRAPPED_COLUMNS = 129, WRAPPED = WRAPPED_ROWS * WRAPPED_COLUMNS };

/* Softmax from one half of `memory`, which the GPU can use, to the other. */
static void test_wrap(rig *r, float *memory)
{
    const rg_tensor_desc desc =
        rg_tensor_desc_dense(RG_F32, 2, DIMS(WRAPPED_ROWS, WRAPPED_COLUMNS));
    _Atomic int released = 0;
    rg_tensor *x = NULL, *y = NULL;
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    static float in[WRAPPED], out[WRAPPED];
    draw_floats(in, WRAPPED, 3);
    EXPECT_CUDA(cudaMemcpy(memory, in, sizeof in, cudaMemcpyDefault));
    memset(out, 0xff, sizeof out);
    EXPECT_CUDA(cudaMemcpy(memory + WRAPPED, out, sizeof out, cudaMemcpyDefault));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, memory, count_release, &released, &x));
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, memory + WRAPPED, count_release, &released, &y));
    EXPECT(rg_tensor_bytes(x) == 0 && rg_tensor_data(y) == memory + WRAPPED);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    EXPECT(released == 0); /* the commands still need both */
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT(released == 2);
    rig_renew(r);
    EXPECT(released == 2);
    EXPECT_CUDA(cudaMemcpy(out, memory + WRAPPED, sizeof out, cudaMemcpyDefault));
    EXPECT(is_softmax(in, out, WRAPPED_ROWS, WRAPPED_COLUMNS));

    released = 0; /* a view keeps the memory, too, and nothing need run */
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, memory, count_release, &released, &x));
    rg_tensor *view = sliced(x, DIMS(1, 0), DIMS(4, 9), NULL);
    rg_tensor_destroy(x);
    EXPECT(released == 0);
    float few[36];
    EXPECT_OK(rg_tensor_read(view, few, sizeof few, RG_LAYOUT_SAME));
    EXPECT(few[10] == in[2 * WRAPPED_COLUMNS + 1]);
    rg_tensor_destroy(view);
    EXPECT(released == 1);
    rg_kernel_destroy(kernel);
}

static void expect_no_wrap(rig *r, void *data, const char *words)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(8));
    rg_tensor *t = (rg_tensor *)1;
    _Atomic int released = 0;
    EXPECT_FAILS(rg_tensor_wrap(r->device, &desc, data, count_release, &released, &t),
                 RG_INVALID_ARGUMENT, words);
    EXPECT(t == NULL && released == 0);
}

static void test_wraps(rig *r)
{
    void *memory = NULL;
    EXPECT_CUDA(cudaMalloc(&memory, 2 * WRAPPED * sizeof(float)));
    test_wrap(r, memory);
    expect_no_wrap(r, (char *)memory + 1, "aligned");
    EXPECT_CUDA(cudaFree(memory));
    EXPECT_CUDA(cudaHostAlloc(&memory, 2 * WRAPPED * sizeof(float), cudaHostAllocDefault));
    test_wrap(r, memory);
    EXPECT_CUDA(cudaFreeHost(memory));
    EXPECT_CUDA(cudaMallocManaged(&memory, 2 * WRAPPED * sizeof(float), cudaMemAttachGlobal));
    test_wrap(r, memory);
    EXPECT_CUDA(cudaFree(memory));

    static float everywhere[8];
    float local[8] = { 0 }, *heap = calloc(8, sizeof *heap);
    expect_no_wrap(r, heap, "data is host memory");
    expect_no_wrap(r, local, "data is host memory");
    expect_no_wrap(r, everywhere, "data is host memory");
    expect_no_wrap(r, NULL, "data is NULL");
    free(heap);
    expect_works(r);
}

/* ---- memory ---- */

/* A million gigabytes. */
static void test_too_much(rig *r)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(INT64_C(1) << 48));
    rg_tensor *t = (rg_tensor *)1;
    EXPECT_FAILS(rg_tensor_create(r->device, &desc, &t), RG_OUT_OF_MEMORY, "out of memory");
    EXPECT(t == NULL);
    expect_works(r);
    EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &t));
    EXPECT_FAILS(rg_commands_commit(r->commands), RG_OUT_OF_MEMORY, "out of memory");
    EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_RECORDING);
    EXPECT_FAILS(rg_commands_commit(r->commands), RG_OUT_OF_MEMORY, "out of memory");
    EXPECT_FAILS(rg_commands_commit_and_continue(r->commands), RG_OUT_OF_MEMORY, "out of memory");
    rg_tensor_destroy(t);
    rig_renew(r);
    expect_works(r);
}

/* All there is, then one piece more; what is given back can be had again, in other sizes. */
static void test_full(rig *r)
{
    enum { MOST = 16 };
    size_t free_bytes = 0, all = 0;
    EXPECT_CUDA(cudaMemGetInfo(&free_bytes, &all));
    const int64_t quarter = (int64_t)(all / 4), half = (int64_t)(free_bytes / 2);
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_U8, 1, &quarter);
    for (int round = 0; round < 3; round++) {
        rg_tensor *tensors[MOST] = { NULL }, *one = NULL;
        int count = 0;
        while (count < MOST && rg_tensor_create(r->device, &desc, &tensors[count]) == RG_OK)
            count++;
        EXPECT(count < MOST && tensors[count] == NULL);
        EXPECT_FAILS(rg_tensor_create(r->device, &desc, &one), RG_OUT_OF_MEMORY, "cannot allocate");
        for (int i = 0; i < count; i++)
            rg_tensor_destroy(tensors[i]);
        one = tensor_of(r->device, RG_U8, 1, &half); /* the pieces do not stand in its way */
        rg_tensor_destroy(one);
        expect_works(r);
    }
}

/* Sizes of all orders come and go; none overlaps another. */
static void test_many(rig *r)
{
    enum { ALIVE = 64, ROUNDS = 3000 };
    rg_tensor *tensors[ALIVE] = { NULL };
    int64_t values[ALIVE] = { 0 }, got = 0;
    uint64_t seed = 1;
    int wrong = 0;
    for (int i = 0; i < ROUNDS + ALIVE; i++) {
        const int at = i % ALIVE;
        if (tensors[at] != NULL) { /* its first and its last element are as they were left */
            const int64_t last = count_of(tensors[at]) - 1;
            for (int64_t k = 0; k < 2; k++) {
                rg_tensor *view = sliced(tensors[at], &(int64_t){ k * last }, DIMS(1), NULL);
                EXPECT_OK(rg_tensor_read(view, &got, sizeof got, RG_LAYOUT_SAME));
                wrong += got != values[at];
                rg_tensor_destroy(view);
            }
            rg_tensor_destroy(tensors[at]);
            tensors[at] = NULL;
        }
        if (i >= ROUNDS)
            continue;
        const int64_t size = draw_from(&seed, 1, INT64_C(1) << draw_from(&seed, 0, 20));
        tensors[at] = tensor_of(r->device, RG_I64, 1, &size);
        values[at] = i;
        for (int64_t k = 0; k < 2; k++) {
            rg_tensor *view = sliced(tensors[at], &(int64_t){ k * (size - 1) }, DIMS(1), NULL);
            EXPECT_OK(rg_tensor_write(view, &values[at], sizeof values[at], RG_LAYOUT_SAME));
            rg_tensor_destroy(view);
        }
    }
    EXPECT(wrong == 0);
}

/* ---- host memory that fails ---- */

typedef struct failing {
    int64_t calls_left; /* the call that brings this to 0 fails; 0: none does */
    block_count blocks;
} failing;

static void *failing_allocate(void *context, size_t size, size_t alignment)
{
    failing *f = context;
    if (f->calls_left > 0 && --f->calls_left == 0)
        return NULL;
    return counted_allocate(&f->blocks, size, alignment);
}

static void failing_release(void *context, void *pointer, size_t size)
{
    counted_release(&((failing *)context)->blocks, pointer, size);
}

/* Everything from opening a device to closing it. */
static rg_status run_all(const rg_allocator *allocator)
{
    rg_device_options options = rg_device_options_default();
    options.allocator = allocator;
    rg_device *device = NULL;
    rg_queue *queue = NULL, *wrapped = NULL;
    rg_commands *commands = NULL;
    rg_tensor *x = NULL, *y = NULL, *transposed = NULL;
    rg_kernel *kernel = NULL;
    float in[12] = { 1, 2, 3 }, out[12];
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(3, 4));
    rg_status status = rg_device_create("cuda", &options, &device);
#define THEN(call)       \
    if (status == RG_OK) \
    status = (call)
    THEN(rg_queue_create(device, &queue));
    THEN(rg_queue_wrap(device, NULL, &wrapped));
    THEN(rg_softmax_create(device, &softmax, &kernel));
    THEN(rg_tensor_create(device, &desc, &x));
    THEN(rg_tensor_permute(x, ORDER(1, 0), &transposed));
    THEN(rg_tensor_write(transposed, in, sizeof in, RG_LAYOUT_SAME));
    for (int i = 0; i < 3; i++) {
        THEN(rg_commands_create(i < 2 ? queue : wrapped, &commands));
        THEN(rg_kernel_forward_alloc(kernel, commands, 1, &x, true, &y, NULL));
        THEN(rg_commands_read(commands, y, out, sizeof out, RG_LAYOUT_SAME));
        THEN(rg_commands_commit(commands));
        THEN(rg_commands_wait(commands));
        rg_tensor_destroy(y);
        rg_commands_destroy(commands);
        y = NULL;
        commands = NULL;
    }
#undef THEN
    rg_tensor_destroy(transposed);
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
    rg_queue_destroy(wrapped);
    rg_queue_destroy(queue);
    rg_device_destroy(device);
    return status;
}

static void test_failing_allocator(void)
{
    failing f = { 0 };
    const rg_allocator allocator = { failing_allocate, failing_release, &f };
    int64_t n = 1;
    bool reached = true;
    for (; n < 1000 && reached; n++) {
        f.calls_left = n;
        const rg_status status = run_all(&allocator);
        reached = f.calls_left == 0;
        EXPECT(status == RG_OK || (reached && status == RG_OUT_OF_MEMORY));
        EXPECT(f.blocks == 0);
    }
    EXPECT(n > 10 && !reached);
}

/* ---- what does not mix ---- */

static void test_other_devices(rig *r)
{
    rig cpu = rig_open(1), again = rig_open_cuda();
    rig *const pairs[][2] = { { r, &cpu }, { &cpu, r }, { r, &again } };
    for (int i = 0; i < 3; i++) {
        rig *own = pairs[i][0], *other = pairs[i][1];
        float values[15] = { 0 };
        rg_tensor *here = filled(own->device, RG_F32, 2, DIMS(3, 5), 1);
        rg_tensor *there = filled(other->device, RG_F32, 2, DIMS(3, 5), 1);
        rg_kernel *kernel = softmax_of(own->device, RG_SOFTMAX_PLAIN, -1);
        EXPECT_FAILS(rg_commands_read(own->commands, there, values, sizeof values, RG_LAYOUT_SAME),
                     RG_INVALID_ARGUMENT, "different devices");
        EXPECT_FAILS(rg_commands_write(own->commands, there, values, sizeof values, RG_LAYOUT_SAME),
                     RG_INVALID_ARGUMENT, "different devices");
        EXPECT_FAILS(rg_kernel_forward(kernel, own->commands, &there, &here, NULL),
                     RG_INVALID_ARGUMENT, "x and the commands are on different devices");
        EXPECT_FAILS(rg_kernel_forward(kernel, own->commands, &here, &there, NULL),
                     RG_INVALID_ARGUMENT, "y and the commands are on different devices");
        EXPECT_FAILS(rg_kernel_forward(kernel, other->commands, &there, &there, NULL),
                     RG_INVALID_ARGUMENT, "the kernel and the commands are on different devices");
        EXPECT_OK(rg_kernel_forward(kernel, own->commands, &here, &here, NULL));
        EXPECT_OK(rig_run(own));
        rg_tensor_destroy(here);
        rg_tensor_destroy(there);
        rg_kernel_destroy(kernel);
    }
    rig_close(&again);
    rig_close(&cpu);
}

/* From the CPU to the GPU and back: equal, and at work everywhere. */
static void test_kernel_copy(rig *r)
{
    rig cpu = rig_open(1);
    rg_kernel *kernels[3] = { softmax_of(cpu.device, RG_SOFTMAX_LOG, 0), NULL, NULL };
    rig *const rigs[] = { &cpu, r, &cpu };
    rg_tensor *y[3] = { NULL };
    EXPECT_OK(rg_kernel_set_label(kernels[0], "attention"));
    EXPECT_OK(rg_kernel_copy(kernels[0], r->device, &kernels[1]));
    EXPECT_OK(rg_kernel_copy(kernels[1], cpu.device, &kernels[2]));
    for (int i = 0; i < 3; i++) {
        EXPECT(rg_kernel_equal(kernels[0], kernels[i]));
        EXPECT(rg_kernel_hash(kernels[0]) == rg_kernel_hash(kernels[i]));
        EXPECT(strcmp(rg_kernel_label(kernels[i]), "attention") == 0);
        EXPECT(rg_kernel_device(kernels[i]) == rigs[i]->device);
        rg_tensor *x = filled(rigs[i]->device, RG_F32, 3, DIMS(9, 4, 6), 8);
        EXPECT_OK(
            rg_kernel_forward_alloc(kernels[i], rigs[i]->commands, 1, &x, false, &y[i], NULL));
        EXPECT_OK(rig_run(rigs[i]));
        EXPECT(are_close(y[i], y[0], 1e-5));
        rg_tensor_destroy(x);
    }
    EXPECT(same_bits(y[0], y[2]));
    for (int i = 0; i < 3; i++) {
        rg_tensor_destroy(y[i]);
        rg_kernel_destroy(kernels[i]);
    }
    rig_close(&cpu);
}

int main(void)
{
    if (!has_gpu())
        return skip(rg_error_text());
    test_names();
    test_describe();
    test_options();
    test_current_device();
    rig r = rig_open_cuda();
    expect_works(&r);
    test_error_of_the_caller(&r);
    test_wraps(&r);
    test_too_much(&r);
    test_full(&r);
    test_many(&r);
    test_failing_allocator();
    test_other_devices(&r);
    test_kernel_copy(&r);
    rig_close(&r);
    return rg_test_report();
}
