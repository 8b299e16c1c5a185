/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the tests of queues on a GPU share: a softmax with all it needs, and handlers that keep a
 * record. */
#ifndef RG_TESTS_CUDA_WORK_H
#define RG_TESTS_CUDA_WORK_H

#include "cuda_rig.h"

enum { ROWS = 64, COLUMNS = 257, COUNT = ROWS * COLUMNS };
#define SIZE (COUNT * sizeof(float))

typedef struct work {
    rg_kernel *kernel;
    rg_tensor *x, *y;
    float *in, *out; /* pinned, so that copies of the caller do not wait */
} work;

static inline work work_make(rg_device *device, uint64_t seed)
{
    work w = { .kernel = softmax_of(device, RG_SOFTMAX_PLAIN, -1) };
    w.x = tensor_of(device, RG_F32, 2, DIMS(ROWS, COLUMNS));
    w.y = tensor_of(device, RG_F32, 2, DIMS(ROWS, COLUMNS));
    EXPECT_CUDA(cudaHostAlloc((void **)&w.in, SIZE, cudaHostAllocDefault));
    EXPECT_CUDA(cudaHostAlloc((void **)&w.out, SIZE, cudaHostAllocDefault));
    draw_floats(w.in, COUNT, seed);
    memset(w.out, 0, SIZE);
    return w;
}

static inline void work_free(work *w)
{
    rg_tensor_destroy(w->x);
    rg_tensor_destroy(w->y);
    rg_kernel_destroy(w->kernel);
    EXPECT_CUDA(cudaFreeHost(w->in));
    EXPECT_CUDA(cudaFreeHost(w->out));
}

static inline void record(const work *w, rg_commands *commands)
{
    EXPECT_OK(rg_kernel_forward(w->kernel, commands, &w->x, &w->y, NULL));
}

static const float zeros[COUNT];

/* Runs it once, so that later nothing needs to be loaded while a stream is held; forgets y. */
static inline void warm_up(const work *w, rg_queue *queue)
{
    rg_commands *commands = NULL;
    EXPECT_OK(rg_commands_create(queue, &commands));
    EXPECT_OK(rg_tensor_write(w->x, w->in, SIZE, RG_LAYOUT_SAME));
    record(w, commands);
    EXPECT_OK(rg_commands_commit(commands));
    EXPECT_OK(rg_commands_wait(commands));
    EXPECT_OK(rg_tensor_write(w->y, zeros, SIZE, RG_LAYOUT_SAME));
    rg_commands_destroy(commands);
}

static inline bool is_done_well(const work *w)
{
    EXPECT_OK(rg_tensor_read(w->y, w->out, SIZE, RG_LAYOUT_SAME));
    return is_softmax(w->in, w->out, ROWS, COLUMNS);
}

static inline rg_commands *commands_of(rg_queue *queue)
{
    rg_commands *commands = NULL;
    EXPECT_OK(rg_commands_create(queue, &commands));
    return commands;
}

/* ---- handlers that keep a record ---- */

typedef struct notes {
    _Atomic int calls;
    int order[16];
    rg_status outcome[16];
} notes;

typedef struct mark {
    notes *in;
    int number;
} mark;

static inline void note(void *context, rg_status outcome)
{
    const mark *m = context;
    const int at = m->in->calls;
    m->in->order[at] = m->number;
    m->in->outcome[at] = outcome;
    m->in->calls = at + 1;
}

#endif
