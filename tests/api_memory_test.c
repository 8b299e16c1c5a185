/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Out of memory: an allocator that fails at its n-th call, for every n, around the life of
 * everything there is. Each failure has its status and sentence, nothing leaks, and the call that
 * failed can be made again. */
#include "api.h"
#include "api_seam.h"

#include <stdatomic.h>

/* ---- the allocator ---- */

typedef struct meter {
    _Atomic int64_t calls, blocks, bytes;
    int64_t fail_at; /* 0: never */
    bool for_good;   /* whether later calls fail too */
    _Atomic int misuse;
} meter;

typedef struct header {
    size_t size;
    meter *owner;
} header;

enum { HEADER = 256 }; /* before each block, which keeps its alignment */

static void *meter_allocate(void *context, size_t size, size_t alignment)
{
    meter *m = context;
    const int64_t call = ++m->calls;
    if (call == m->fail_at || (m->for_good && m->fail_at > 0 && call > m->fail_at))
        return NULL;
    m->misuse +=
        size == 0 || alignment == 0 || alignment > HEADER || (alignment & (alignment - 1)) != 0;
    char *pointer = NULL;
    if (posix_memalign((void **)&pointer, HEADER, HEADER + size) != 0)
        return NULL;
    *(header *)(void *)pointer = (header){ size, m };
    memset(pointer + HEADER, 0xa5, size); /* nobody may rely on zeros */
    m->blocks++;
    m->bytes += (int64_t)size;
    return pointer + HEADER;
}

static void meter_release(void *context, void *pointer, size_t size)
{
    meter *m = context;
    header *h = (header *)(void *)((char *)pointer - HEADER);
    m->misuse += h->size != size || h->owner != m;
    m->bytes -= (int64_t)size;
    free(h);
    m->blocks--; /* last: the meter may go when there are no more */
}

/* ---- everything there is ---- */

enum { BATCH = 3, HANDLERS = 10, CHAIN = 20, COUNT = 4 * 9 };

typedef struct world {
    rig r;
    rg_kernel *softmax, *copy, *mix;
    rg_tensor *x, *y, *wrapped, *view, *transposed, *flat, *wide;
    rg_tensor *temporary[CHAIN], *of_temporary;
    rg_tensor *batch_y[BATCH], *batch_dx[BATCH], *mixed, *mixed_dx[2];
    rg_state *state, *temporary_state, *mixed_state, *batch_states[BATCH];
    _Atomic int handled, released;
    float out[COUNT], data[COUNT];
} world;

static void handle(void *context, rg_status outcome)
{
    atomic_fetch_add((_Atomic int *)context, outcome == RG_OK ? 1 : 100);
}

static void release(void *context)
{
    atomic_fetch_add((_Atomic int *)context, 1);
}

/* A call that fails for want of memory may be made again; then it must succeed. */
static int retries;
#define STEP(call)                                                              \
    do {                                                                        \
        rg_status status_ = (call);                                             \
        if (status_ == RG_OUT_OF_MEMORY && again) {                             \
            retries++;                                                          \
            status_ = (call);                                                   \
        }                                                                       \
        if (status_ != RG_OK) {                                                 \
            EXPECT(status_ == RG_OUT_OF_MEMORY);                                \
            EXPECT(strstr(rg_error_text(), "out of memory") != NULL && !again); \
            return status_;                                                     \
        }                                                                       \
    } while (0)

static rg_status make_objects(world *w, const rg_allocator *allocator, bool again)
{
    rg_device_options options = rg_device_options_default();
    options.allocator = allocator;
    options.threads = 2;
    rig *r = &w->r;
    STEP(rg_device_create("cpu", &options, &r->device));
    STEP(rg_queue_create(r->device, &r->queue));
    STEP(rg_commands_create(r->queue, &r->commands));
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(4, 9));
    STEP(rg_tensor_create(r->device, &desc, &w->x));
    STEP(rg_tensor_create(r->device, &desc, &w->y));
    for (int i = 0; i < COUNT; i++)
        w->data[i] = (float)(i % 7);
    STEP(rg_tensor_write(w->x, w->data, sizeof w->data, RG_LAYOUT_SAME));
    STEP(rg_tensor_wrap(r->device, &desc, w->data, release, &w->released, &w->wrapped));
    STEP(rg_tensor_slice(w->x, DIMS(1, 0), DIMS(1, 9), NULL, &w->view));
    STEP(rg_tensor_permute(w->x, (const int32_t[]){ 1, 0 }, &w->transposed));
    STEP(rg_tensor_reshape(w->x, 1, DIMS(COUNT), &w->flat));
    STEP(rg_tensor_expand(w->view, 2, DIMS(4, 9), &w->wide));
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    const mix_desc mix = mix_desc_default();
    STEP(rg_softmax_create(r->device, &softmax, &w->softmax));
    STEP(rg_kernel_set_label(w->softmax, "a label"));
    STEP(rg_kernel_set_label(w->softmax, "another label, which is longer"));
    STEP(rg_kernel_copy(w->softmax, NULL, &w->copy));
    STEP(rg_kernel_create(r->device, &mix_op, &mix, &w->mix));
    rg_tensor *const both[] = { w->x, w->wrapped };
    STEP(rg_state_create(w->mix, both, &w->state));
    STEP(rg_state_set_label(w->state, "state"));
    STEP(rg_state_create_temporary(w->mix, r->commands, both, &w->temporary_state));
    return RG_OK;
}

static rg_status record_work(world *w, bool again)
{
    rg_commands *const commands = w->r.commands;
    rg_tensor *const both[] = { w->x, w->wrapped };
    for (int i = 0; i < HANDLERS; i++)
        STEP(rg_commands_on_completion(commands, handle, &w->handled));
    rg_tensor *last = w->wide;
    for (int i = 0; i < CHAIN; i++) { /* longer than the first capacity of every list */
        STEP(rg_kernel_forward_alloc(w->softmax, commands, 1, &last, true, &w->temporary[i], NULL));
        last = w->temporary[i];
    }
    STEP(rg_tensor_slice(last, DIMS(0, 0), DIMS(4, 9), NULL, &w->of_temporary));
    STEP(rg_kernel_forward(w->copy, commands, &w->of_temporary, &w->y, NULL));
    STEP(rg_kernel_forward(w->mix, commands, both, &w->y, w->state));
    STEP(rg_kernel_forward(w->mix, commands, both, &w->y, w->temporary_state));
    STEP(rg_kernel_forward_alloc(w->mix, commands, 1, both, true, &w->mixed, &w->mixed_state));
    STEP(rg_commands_commit_and_continue(commands));
    STEP(rg_kernel_gradient_alloc(w->mix, commands, 1, &w->mixed, both, NULL, &w->mixed_state, 3,
                                  true, w->mixed_dx));
    rg_tensor *const images[BATCH] = { w->x, w->wide, w->x };
    STEP(rg_kernel_forward_alloc(w->softmax, commands, BATCH, images, false, w->batch_y,
                                 w->batch_states));
    STEP(rg_kernel_gradient_alloc(w->softmax, commands, BATCH, images, NULL, w->batch_y,
                                  w->batch_states, 1, false, w->batch_dx));
    STEP(rg_commands_read(commands, w->mixed_dx[0], w->out, sizeof w->out, RG_LAYOUT_SAME));
    STEP(rg_commands_write(commands, w->y, w->out, sizeof w->out, RG_LAYOUT_SAME));
    STEP(rg_commands_on_completion(commands, handle, &w->handled));
    STEP(rg_commands_commit(commands));
    STEP(rg_commands_wait(commands));
    return RG_OK;
}

static void destroy_all(world *w)
{
    rg_tensor *const tensors[] = { w->x,          w->y,           w->wrapped,    w->view,
                                   w->transposed, w->flat,        w->wide,       w->of_temporary,
                                   w->mixed,      w->mixed_dx[0], w->mixed_dx[1] };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        rg_tensor_destroy(tensors[i]);
    for (int i = 0; i < CHAIN; i++)
        rg_tensor_destroy(w->temporary[i]);
    for (int i = 0; i < BATCH; i++) {
        rg_tensor_destroy(w->batch_y[i]);
        rg_tensor_destroy(w->batch_dx[i]);
        rg_state_destroy(w->batch_states[i]);
    }
    rg_state_destroy(w->state);
    rg_state_destroy(w->temporary_state);
    rg_state_destroy(w->mixed_state);
    rg_kernel_destroy(w->softmax);
    rg_kernel_destroy(w->copy);
    rg_kernel_destroy(w->mix);
    rig_close(&w->r);
}

/* Whether it went through to the end. */
static bool run(meter *m, bool again)
{
    const rg_allocator allocator = { meter_allocate, meter_release, m };
    world *w = calloc(1, sizeof *w);
    rg_status status = make_objects(w, &allocator, again);
    const bool wraps = w->wrapped != NULL;
    if (status == RG_OK)
        status = record_work(w, again);
    if (status == RG_OK) {
        EXPECT(w->handled == HANDLERS + 1);
        EXPECT(w->out[1] == 1 * 1 * w->data[1]); /* da = scale dy b, with dy = a b */
        EXPECT(w->out[2] == 2 * 2 * w->data[2]);
        EXPECT(memcmp(rg_tensor_data(w->batch_y[0]), rg_tensor_data(w->batch_y[2]),
                      sizeof w->out) == 0);
    }
    destroy_all(w);
    EXPECT(status != RG_OK || m->blocks == 0); /* at once: it was waited for */
    for (int i = 0; i < 5000 && m->blocks > 0; i++)
        usleep(1000); /* a part that nobody waited for is still under way */
    EXPECT(m->blocks == 0 && m->bytes == 0 && m->misuse == 0);
    EXPECT(w->released == wraps);
    free(w);
    return status == RG_OK;
}

/* ---- heaps of lists that have run ---- */

enum { WIDE = 256 };

static rg_status run_list(rig *r, rg_kernel *softmax, rg_tensor *x, rg_tensor *y)
{
    rg_commands *commands;
    rg_tensor *between = NULL;
    RG_TRY(rg_commands_create(r->queue, &commands));
    rg_status status = rg_kernel_forward_alloc(softmax, commands, 1, &x, true, &between, NULL);
    if (status == RG_OK)
        status = rg_kernel_forward(softmax, commands, &between, &y, NULL);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK)
        status = rg_commands_wait(commands);
    rg_tensor_destroy(between);
    rg_commands_destroy(commands);
    return status;
}

/* The next list takes the memory of the one before. It is given back where there is no other, and
 * then a refusal is still a refusal. */
static void keeps_heaps(void)
{
    meter m = { 0 };
    const rg_allocator allocator = { meter_allocate, meter_release, &m };
    rg_device_options options = rg_device_options_default();
    options.allocator = &allocator;
    rig r = { 0 };
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(WIDE, WIDE));
    const rg_softmax_desc by_rows = rg_softmax_desc_default();
    rg_kernel *softmax;
    rg_tensor *x, *y, *z;
    EXPECT_OK(rg_device_create("cpu", &options, &r.device));
    EXPECT_OK(rg_queue_create(r.device, &r.queue));
    EXPECT_OK(rg_softmax_create(r.device, &by_rows, &softmax));
    EXPECT_OK(rg_tensor_create(r.device, &desc, &x));
    EXPECT_OK(rg_tensor_create(r.device, &desc, &y));
    EXPECT_OK(run_list(&r, softmax, x, y));
    const int64_t calls = m.calls, bytes = m.bytes, heap = WIDE * WIDE * 4;
    EXPECT_OK(run_list(&r, softmax, x, y));
    EXPECT(m.bytes == bytes); /* one heap is kept, not two */
    const int64_t each = m.calls - calls;
    EXPECT_OK(run_list(&r, softmax, x, y));
    EXPECT(m.calls == calls + 2 * each && m.bytes == bytes);
    m.fail_at = m.calls + 3; /* of the tensor, its storage, its memory */
    EXPECT_OK(rg_tensor_create(r.device, &desc, &z));
    EXPECT(m.calls == m.fail_at + 1 && m.bytes < bytes + heap); /* in place of the heap */
    rg_tensor_destroy(z);
    m.fail_at = m.calls + 3;
    EXPECT(rg_tensor_create(r.device, &desc, &z) == RG_OUT_OF_MEMORY);
    EXPECT(m.bytes <= bytes - heap);
    m.fail_at = 0;
    EXPECT_OK(run_list(&r, softmax, x, y));
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_kernel_destroy(softmax);
    rig_close(&r);
    EXPECT(m.blocks == 0 && m.bytes == 0 && m.misuse == 0);
}

int main(void)
{
    keeps_heaps();
    meter all = { 0 };
    EXPECT(run(&all, false));
    EXPECT(all.calls > 100);
    for (int for_good = 0; for_good < 2; for_good++) {
        bool whole = false;
        int64_t n = 1;
        for (; !whole && n <= all.calls + 100; n++) {
            meter m = { .fail_at = n, .for_good = for_good };
            whole = run(&m, false);
        }
        EXPECT(whole && n > 100);
    }
    for (int64_t n = 1; n <= all.calls; n++) {
        meter m = { .fail_at = n };
        EXPECT(run(&m, true));
    }
    EXPECT(retries > 100);
    return rg_test_report();
}
