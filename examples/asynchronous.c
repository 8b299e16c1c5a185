/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Two queues and completion handlers: the gradient on the second queue is committed by the handler
 * that hears of the end of the forward pass on the first. The main thread has its hands free. */
#include <retrograde/retrograde.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

enum { ROWS = 300, COLUMNS = 1000, COUNT = ROWS * COLUMNS };

typedef struct pipeline {
    rg_commands *forward, *gradient;
    atomic_int finished;       /* how many parts have run */
    rg_status committed;       /* of the gradient, by the handler of forward */
    rg_status gradient_status; /* of the gradient, as its handler was told */
} pipeline;

static void gradient_done(void *context, rg_status outcome)
{
    pipeline *p = context;
    p->gradient_status = outcome;
    atomic_fetch_add(&p->finished, 1);
}

/* A handler is told the outcome, runs on any thread, and may record and commit further work. */
static void forward_done(void *context, rg_status outcome)
{
    pipeline *p = context;
    p->committed = outcome == RG_OK ? rg_commands_commit(p->gradient) : outcome;
    atomic_fetch_add(&p->finished, 1);
}

/* Records both directions, commits the first, and waits for the end of the second. */
static rg_status run(rg_kernel *kernel, pipeline *p, rg_tensor *x, rg_tensor *y, rg_tensor *dx)
{
    rg_status status = rg_kernel_forward(kernel, p->forward, &x, &y, NULL);
    if (status == RG_OK) /* any dy will do: here it is x */
        status = rg_kernel_gradient(kernel, p->gradient, &x, NULL, &y, NULL, &dx, 0);
    if (status == RG_OK)
        status = rg_commands_on_completion(p->forward, forward_done, p);
    if (status == RG_OK)
        status = rg_commands_on_completion(p->gradient, gradient_done, p);
    if (status == RG_OK)
        status = rg_commands_commit(p->forward);
    /* Here a program does something else. Waiting helps to run what is pending, and handlers are
     * done when it returns: so the gradient is committed once the forward pass is waited for. */
    if (status == RG_OK)
        status = rg_commands_wait(p->forward);
    if (status == RG_OK)
        status = p->committed;
    if (status == RG_OK)
        status = rg_commands_wait(p->gradient);
    return status == RG_OK ? p->gradient_status : status;
}

/* A gradient of softmax adds up to 0 over every row, and is not 0 everywhere. */
static bool is_right(const float *dx)
{
    double worst = 0, largest = 0;
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int i = 0; i < COLUMNS; i++) {
            sum += (double)dx[row * COLUMNS + i];
            largest = fmax(largest, fabs((double)dx[row * COLUMNS + i]));
        }
        worst = fmax(worst, fabs(sum));
    }
    printf("largest element %.3g, largest sum of a row %.3g\n", largest, worst);
    return largest > 1e-4 && worst < 1e-6;
}

int main(void)
{
    static float x[COUNT], y[COUNT], dx[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i % 13) / 4;
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    const rg_tensor_desc shape =
        rg_tensor_desc_dense(RG_F32, 2, (const int64_t[]){ ROWS, COLUMNS });
    float *const memory[] = { x, y, dx };
    rg_device *device = NULL;
    rg_queue *queues[2] = { NULL, NULL };
    rg_kernel *kernel = NULL;
    rg_tensor *tensors[3] = { NULL, NULL, NULL };
    pipeline p = { 0 };

    rg_status status = rg_device_create("cpu", NULL, &device);
    for (int i = 0; i < 2 && status == RG_OK; i++)
        status = rg_queue_create(device, &queues[i]);
    if (status == RG_OK)
        status = rg_commands_create(queues[0], &p.forward);
    if (status == RG_OK)
        status = rg_commands_create(queues[1], &p.gradient);
    if (status == RG_OK)
        status = rg_softmax_create(device, &softmax, &kernel);
    for (int i = 0; i < 3 && status == RG_OK; i++)
        status = rg_tensor_wrap(device, &shape, memory[i], NULL, NULL, &tensors[i]);
    if (status == RG_OK)
        status = run(kernel, &p, tensors[0], tensors[1], tensors[2]);
    if (status != RG_OK)
        fprintf(stderr, "%s: %s\n", rg_status_name(status), rg_error_text());

    for (int i = 0; i < 3; i++)
        rg_tensor_destroy(tensors[i]);
    rg_kernel_destroy(kernel);
    rg_commands_destroy(p.forward);
    rg_commands_destroy(p.gradient);
    for (int i = 0; i < 2; i++)
        rg_queue_destroy(queues[i]);
    rg_device_destroy(device);
    return status == RG_OK && atomic_load(&p.finished) == 2 && is_right(dx) ? 0 : 1;
}
