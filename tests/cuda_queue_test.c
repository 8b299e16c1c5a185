/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Queues on a GPU: streams of the caller, work without a waiting thread, commit and continue. */
#include "cuda_work.h"

/* ---- holding a stream ---- */

/* Blocks a stream until it is opened, with a time limit, so that a failing test does not hang. */
typedef struct gate {
    _Atomic bool open, late;
} gate;

static void pass_gate(void *context)
{
    gate *g = context;
    for (int i = 0; i < 20000 && !g->open; i++)
        usleep(1000);
    if (!g->open)
        g->late = true;
}

static void close_gate(gate *g, cudaStream_t stream)
{
    g->open = g->late = false;
    EXPECT_CUDA(cudaLaunchHostFunc(stream, pass_gate, g));
}

static void open_gate(gate *g)
{
    EXPECT(!g->late); /* else something waited for the stream that should not have */
    g->open = true;
}

/* ---- streams of the caller ---- */

/* Work of the caller, ours, then the caller's again: each needs what the one before it did. */
static void test_wrapped(rig *r, cudaStream_t stream)
{
    gate g;
    rg_queue *queue = NULL;
    EXPECT_OK(rg_queue_wrap(r->device, stream, &queue));
    rg_commands *commands = commands_of(queue);
    work w = work_make(r->device, 4);
    warm_up(&w, queue);
    EXPECT_OK(rg_tensor_write(w.x, zeros, SIZE, RG_LAYOUT_SAME));
    record(&w, commands);
    close_gate(&g, stream);
    EXPECT_CUDA(cudaMemcpyAsync(rg_tensor_data(w.x), w.in, SIZE, cudaMemcpyHostToDevice, stream));
    EXPECT_OK(rg_commands_commit(commands));
    EXPECT_CUDA(cudaMemcpyAsync(w.out, rg_tensor_data(w.y), SIZE, cudaMemcpyDeviceToHost, stream));
    EXPECT(rg_commands_get_state(commands) == RG_COMMANDS_COMMITTED);
    EXPECT(w.out[0] == 0);
    open_gate(&g);
    EXPECT_CUDA(cudaStreamSynchronize(stream)); /* the stream alone is enough */
    EXPECT(is_softmax(w.in, w.out, ROWS, COLUMNS));
    EXPECT_OK(rg_commands_wait(commands));
    rg_commands_destroy(commands);

    commands = commands_of(queue); /* copies of ours, between host memory of any kind */
    float *out = calloc(COUNT, sizeof *out);
    draw_floats(w.in, COUNT, 5);
    EXPECT_OK(rg_commands_write(commands, w.x, w.in, SIZE, RG_LAYOUT_SAME));
    record(&w, commands);
    EXPECT_OK(rg_commands_read(commands, w.y, out, SIZE, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_commit(commands));
    EXPECT_OK(rg_commands_wait(commands));
    EXPECT(is_softmax(w.in, out, ROWS, COLUMNS));
    free(out);
    rg_commands_destroy(commands);
    rg_queue_destroy(queue); /* the stream is still the caller's */
    EXPECT_CUDA(cudaMemcpyAsync(rg_tensor_data(w.x), w.in, SIZE, cudaMemcpyHostToDevice, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    work_free(&w);
}

static void test_streams(rig *r)
{
    cudaStream_t stream = NULL;
    test_wrapped(r, NULL);
    EXPECT_CUDA(cudaStreamCreate(&stream));
    test_wrapped(r, stream);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    test_wrapped(r, stream);
    test_wrapped(r, stream); /* as often as one likes */
    EXPECT_CUDA(cudaStreamDestroy(stream));
    int count = 0;
    EXPECT_CUDA(cudaGetDeviceCount(&count));
    if (count < 2)
        return;
    rg_queue *queue = (rg_queue *)1;
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaStreamCreate(&stream));
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_FAILS(rg_queue_wrap(r->device, stream, &queue), RG_INVALID_ARGUMENT, "cuda:1");
    EXPECT(queue == NULL);
    EXPECT_CUDA(cudaStreamDestroy(stream));
}

/* A blocked queue blocks neither other queues nor calls that ask for a state. */
static void test_side_by_side(rig *r)
{
    gate g;
    cudaStream_t stream = NULL;
    rg_queue *held = NULL;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT_OK(rg_queue_wrap(r->device, stream, &held));
    work first = work_make(r->device, 1), second = work_make(r->device, 2);
    warm_up(&first, held);
    warm_up(&second, r->queue);
    rg_commands *one = commands_of(held), *two = commands_of(r->queue);
    record(&first, one);
    record(&second, two);
    close_gate(&g, stream);
    EXPECT_OK(rg_commands_commit(one));
    EXPECT_OK(rg_commands_commit(two));
    EXPECT_OK(rg_commands_wait(two));
    EXPECT(is_done_well(&second));
    for (int i = 0; i < 100; i++)
        EXPECT(rg_commands_get_state(one) == RG_COMMANDS_COMMITTED);
    EXPECT(strcmp(rg_commands_error_text(one), "") == 0);
    open_gate(&g);
    SECONDS(rg_commands_get_state(one) == RG_COMMANDS_COMPLETED); /* asking is enough */
    EXPECT_OK(rg_commands_wait(one));
    EXPECT(is_done_well(&first));
    rg_commands_destroy(one);
    rg_commands_destroy(two);
    rg_queue_destroy(held);
    work_free(&first);
    work_free(&second);
    EXPECT_CUDA(cudaStreamDestroy(stream));
}

/* ---- work that nobody waits for ---- */

/* Everything is given back while the stream is held. What the work needs stays until it has run. */
static void test_drop_held(int order)
{
    gate g;
    cudaStream_t stream = NULL;
    block_count blocks = 0;
    const rg_allocator allocator = counted_allocator(&blocks);
    _Atomic int released = 0;
    float *memory = NULL, *out = calloc(COUNT, sizeof *out);
    rig r = rig_open_named("cuda", &allocator);
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaMalloc((void **)&memory, SIZE));
    rg_queue *held = NULL;
    EXPECT_OK(rg_queue_wrap(r.device, stream, &held));
    work w = work_make(r.device, 3);
    warm_up(&w, held);
    rg_tensor_destroy(w.y);
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(ROWS, COLUMNS));
    EXPECT_OK(rg_tensor_wrap(r.device, &desc, memory, count_release, &released, &w.y));
    rg_commands *commands = commands_of(held);
    record(&w, commands);
    close_gate(&g, stream);
    EXPECT_OK(rg_commands_commit(commands));
    rg_tensor_destroy(w.x);
    rg_tensor_destroy(w.y);
    w.x = w.y = NULL;
    rig_close(&r);
    if (order == 0) {
        rg_commands_destroy(commands);
        rg_queue_destroy(held);
    } else {
        rg_queue_destroy(held);
        rg_commands_destroy(commands);
    }
    rg_kernel_destroy(w.kernel);
    w.kernel = NULL;
    EXPECT(released == 0 && blocks > 0);
    open_gate(&g);
    SECONDS(released == 1);
    SECONDS(blocks == 0);
    EXPECT_CUDA(cudaMemcpy(out, memory, SIZE, cudaMemcpyDeviceToHost));
    EXPECT(is_softmax(w.in, out, ROWS, COLUMNS));
    work_free(&w);
    free(out);
    EXPECT_CUDA(cudaFree(memory));
    EXPECT_CUDA(cudaStreamDestroy(stream));
}

/* The same at full speed, many times. */
static void test_drop(void)
{
    block_count blocks = 0;
    const rg_allocator allocator = counted_allocator(&blocks);
    for (int i = 0; i < 40; i++) {
        rig r = rig_open_named("cuda", &allocator);
        work w = work_make(r.device, 6);
        for (int k = 0; k < 1 + i % 5; k++)
            record(&w, r.commands);
        EXPECT_OK(rg_commands_commit(r.commands));
        if (i % 3 == 0)
            rg_queue_destroy(r.queue);
        work_free(&w);
        rg_device_destroy(r.device);
        rg_commands_destroy(r.commands);
        if (i % 3 != 0)
            rg_queue_destroy(r.queue);
        SECONDS(blocks == 0);
    }
}

/* ---- commit and continue ---- */

static void test_continue(rig *r)
{
    enum { PARTS = 30 };
    notes seen = { 0 };
    mark marks[10];
    static float out[PARTS][12];
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(3, 4));
    rg_tensor *kept = NULL, *transposed = NULL;
    float in[12];
    draw_floats(in, 12, 12);
    EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &kept));
    EXPECT_OK(rg_tensor_set_read_count(kept, PARTS));
    EXPECT_OK(rg_commands_write(r->commands, kept, in, sizeof in, RG_LAYOUT_SAME));
    for (int i = 0; i < PARTS; i++) {
        if (i < 10) {
            marks[i] = (mark){ &seen, i };
            EXPECT_OK(rg_commands_on_completion(r->commands, note, &marks[i]));
        }
        EXPECT_OK(rg_commands_commit_and_continue(r->commands));
        EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_RECORDING);
        rg_tensor *other = NULL; /* of each part its own, beside the one that stays */
        EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &other));
        EXPECT_OK(rg_commands_write(r->commands, other, zeros, sizeof in, RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_permute(kept, (const int32_t[]){ 1, 0 }, &transposed));
        EXPECT_OK(rg_commands_read(r->commands, transposed, out[i], sizeof out[i], RG_LAYOUT_SAME));
        rg_tensor_destroy(transposed);
        rg_tensor_destroy(other);
    }
    EXPECT(rg_tensor_read_count(kept) == 0);
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT(seen.calls == 10);
    int wrong = 0;
    for (int i = 0; i < 10; i++)
        wrong += seen.order[i] != i || seen.outcome[i] != RG_OK;
    for (int i = 0; i < 12 * PARTS; i++)
        wrong += out[i / 12][i % 12] != in[i % 3 * 4 + i % 12 / 3];
    EXPECT(wrong == 0);
    rg_tensor_destroy(kept);
    rig_renew(r);
}

/* Parts that have run give their memory back, though nobody waits: commit can be tried again until
 * there is room. */
static void test_continue_with_little_memory(rig *r)
{
    enum { PARTS = 30 };
    size_t free_bytes = 0, all = 0;
    EXPECT_CUDA(cudaMemGetInfo(&free_bytes, &all));
    const int64_t large = (int64_t)(free_bytes / 5 / sizeof(float));
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, &large);
    static float in[PARTS], out[PARTS];
    rg_status status = RG_OK;
    for (int i = 0; i < PARTS && status == RG_OK; i++) {
        rg_tensor *t = NULL, *last = NULL;
        in[i] = (float)i;
        EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &t));
        EXPECT_OK(rg_tensor_slice(t, &(int64_t){ large - 1 }, DIMS(1), NULL, &last));
        EXPECT_OK(rg_commands_write(r->commands, last, &in[i], sizeof in[i], RG_LAYOUT_SAME));
        EXPECT_OK(rg_commands_read(r->commands, last, &out[i], sizeof out[i], RG_LAYOUT_SAME));
        rg_tensor_destroy(last);
        rg_tensor_destroy(t);
        status = RG_OUT_OF_MEMORY;
        for (int k = 0; k < 5000 && status == RG_OUT_OF_MEMORY; k++) {
            status = rg_commands_commit_and_continue(r->commands);
            if (status == RG_OUT_OF_MEMORY)
                usleep(1000);
        }
    }
    EXPECT_OK(status);
    if (status != RG_OK)
        rig_renew(r);
    EXPECT_OK(rig_run(r));
    EXPECT(memcmp(in, out, sizeof in) == 0);
}

int main(void)
{
    if (!has_gpu())
        return skip(rg_error_text());
    rig r = rig_open_cuda();
    test_streams(&r);
    test_side_by_side(&r);
    test_drop_held(0);
    test_drop_held(1);
    test_drop();
    test_continue(&r);
    test_continue_with_little_memory(&r);
    rig_close(&r);
    return rg_test_report();
}
