/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Calls of kernels without memory: whichever allocation fails, the call is refused with a status,
 * and nothing is lost. The tensors are views of NCHW memory, so that kernels make copies on the
 * way, which they have to give back. */
#include "api.h"
#include "failing_allocator.h"

#include <retrograde/conv.h>
#include <retrograde/pool.h>
#include <retrograde/softmax.h>

enum { INPUTS = 3 };

/* A call of a kernel with everything that it needs; what could not be made is NULL. */
typedef struct trial {
    rg_device *device;
    rg_queue *queue;
    rg_commands *commands;
    rg_kernel *kernel;
    rg_state *state;
    rg_tensor *x[INPUTS], *dx[INPUTS], *y, *dy;
    int32_t inputs;
} trial;

/* (n, h, w, c) as a view of memory whose order is n, c, h, w. */
static rg_status make_view(rg_device *device, const int64_t dims[4], rg_tensor **view)
{
    rg_tensor *planes = NULL;
    const rg_tensor_desc desc =
        rg_tensor_desc_dense(RG_F32, 4, DIMS(dims[0], dims[3], dims[1], dims[2]));
    rg_status status = rg_tensor_create(device, &desc, &planes);
    if (status == RG_OK)
        status = rg_tensor_permute(planes, (const int32_t[]){ 0, 2, 3, 1 }, view);
    rg_tensor_destroy(planes);
    return status;
}

static void zero(rg_tensor *tensor)
{
    rg_tensor_desc desc;
    if (tensor != NULL && rg_tensor_get_desc(tensor, &desc) == RG_OK)
        memset(rg_tensor_data(tensor), 0, bytes_of(tensor));
}

/* Tensors for the kernel, whose inputs have these shapes: forward, then a gradient that is added.
 */
static rg_status run_trial(trial *t, const int64_t x[][4])
{
    rg_tensor_desc inputs[INPUTS], result;
    rg_status status = RG_OK;
    t->inputs = rg_kernel_inputs(t->kernel);
    for (int32_t i = 0; i < t->inputs && status == RG_OK; i++) {
        status = make_view(t->device, x[i], &t->x[i]);
        if (status == RG_OK)
            status = make_view(t->device, x[i], &t->dx[i]);
        if (status == RG_OK)
            status = rg_tensor_get_desc(t->x[i], &inputs[i]);
        zero(t->x[i]);
        zero(t->dx[i]);
    }
    if (status == RG_OK)
        status = rg_kernel_shapes(t->kernel, inputs, &result);
    if (status == RG_OK)
        status = make_view(t->device, result.dims, &t->y);
    if (status == RG_OK)
        status = make_view(t->device, result.dims, &t->dy);
    zero(t->dy);
    if (status == RG_OK)
        status = rg_queue_create(t->device, &t->queue);
    if (status == RG_OK)
        status = rg_commands_create(t->queue, &t->commands);
    if (status == RG_OK)
        status = rg_state_create(t->kernel, t->x, &t->state);
    if (status == RG_OK)
        status = rg_kernel_forward(t->kernel, t->commands, t->x, &t->y, t->state);
    if (status == RG_OK)
        status =
            rg_kernel_gradient(t->kernel, t->commands, &t->dy, t->x, &t->y, t->state, t->dx, 1);
    if (status == RG_OK)
        status = rg_commands_commit(t->commands);
    return status == RG_OK ? rg_commands_wait(t->commands) : status;
}

static rg_status end_trial(trial *t, rg_status status)
{
    rg_commands_destroy(t->commands);
    rg_state_destroy(t->state);
    for (int32_t i = 0; i < INPUTS; i++) {
        rg_tensor_destroy(t->x[i]);
        rg_tensor_destroy(t->dx[i]);
    }
    rg_tensor_destroy(t->y);
    rg_tensor_destroy(t->dy);
    rg_queue_destroy(t->queue);
    rg_kernel_destroy(t->kernel);
    return status;
}

/* More than the caches of a thread, so that some images are taken at a time. */
static const int64_t images[][4] = { { 3, 64, 64, 48 } };

static rg_status pool_images(rg_device *device)
{
    trial t = { .device = device };
    const rg_pool_desc desc = rg_pool_desc_default();
    const rg_status status = rg_pool_create(device, &desc, &t.kernel);
    return end_trial(&t, status == RG_OK ? run_trial(&t, images) : status);
}

static rg_status softmax_images(rg_device *device)
{
    trial t = { .device = device };
    rg_softmax_desc desc = rg_softmax_desc_default();
    desc.axis = 3;
    const rg_status status = rg_softmax_create(device, &desc, &t.kernel);
    return end_trial(&t, status == RG_OK ? run_trial(&t, images) : status);
}

static rg_status convolve(rg_device *device, rg_conv_desc desc, const int64_t x[][4])
{
    trial t = { .device = device };
    desc.bias = false;
    const rg_status status = rg_conv_create(device, &desc, &t.kernel);
    return end_trial(&t, status == RG_OK ? run_trial(&t, x) : status);
}

/* Patches that are folded: image and weights are copied. */
static rg_status conv_patches(rg_device *device)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.stride[0] = desc.stride[1] = 16;
    return convolve(device, desc, (const int64_t[][4]){ { 2, 32, 32, 3 }, { 40, 16, 16, 3 } });
}

/* Groups of 4 channels, whose weights are transposed. */
static rg_status conv_groups(rg_device *device)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.groups = 8;
    return convolve(device, desc, (const int64_t[][4]){ { 2, 9, 9, 32 }, { 32, 3, 3, 4 } });
}

/* Every allocation fails once, each on a device of its own, which keeps memory for later calls. */
static void fail_everywhere(rg_status (*run)(rg_device *device))
{
    bool reached = true;
    for (int64_t n = 1; n < 1000 && reached; n++) {
        failing f = { 0 };
        rg_device *device = failing_device(&f);
        f.calls_left = n;
        const rg_status status = run(device);
        reached = f.calls_left == 0;
        f.calls_left = 0;
        if (reached)
            EXPECT_FAILS(status, RG_OUT_OF_MEMORY, "out of memory");
        else
            EXPECT(status == RG_OK && n > 20);
        rg_device_destroy(device);
        EXPECT(f.blocks == 0 && f.bytes == 0);
    }
    EXPECT(!reached);
}

int main(void)
{
    fail_everywhere(pool_images);
    fail_everywhere(softmax_images);
    fail_everywhere(conv_patches);
    fail_everywhere(conv_groups);
    return rg_test_report();
}
