/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A softmax and its gradient, against numbers worked out by hand. */
#include <retrograde/retrograde.h>

#include <math.h>
#include <stdio.h>

/* One row: e^x is 1, 2, 1, so y is 1/4, 1/2, 1/4. With dy = (1, 0, 0) the sum of dy y is 1/4, and
 * dx = y (dy - 1/4) is 3/16, -1/8, -1/16: its elements add up to 0, as they must. */
static const double wanted_y[3] = { 0.25, 0.5, 0.25 };
static const double wanted_dx[3] = { 0.1875, -0.125, -0.0625 };

typedef struct example {
    rg_device *device;
    rg_queue *queue;
    rg_commands *commands;
    rg_kernel *kernel;
    rg_tensor *x, *y, *dy, *dx;
} example;

static rg_status make(example *e)
{
    const rg_softmax_desc softmax = rg_softmax_desc_default(); /* over the last axis */
    const rg_tensor_desc row = rg_tensor_desc_dense(RG_F64, 2, (const int64_t[]){ 1, 3 });
    rg_status status = rg_device_create("cpu", NULL, &e->device);
    if (status == RG_OK)
        status = rg_queue_create(e->device, &e->queue);
    if (status == RG_OK)
        status = rg_commands_create(e->queue, &e->commands);
    if (status == RG_OK)
        status = rg_softmax_create(e->device, &softmax, &e->kernel);
    rg_tensor **const tensors[] = { &e->x, &e->y, &e->dy, &e->dx };
    for (int i = 0; i < 4 && status == RG_OK; i++)
        status = rg_tensor_create(e->device, &row, tensors[i]);
    return status;
}

/* Everything is recorded first: copies in, both directions, copies out. Then it runs, in order. */
static rg_status run(example *e, double y[3], double dx[3])
{
    const double x[3] = { 0, log(2), 0 }, dy[3] = { 1, 0, 0 };
    rg_commands *c = e->commands;
    rg_status status = rg_commands_write(c, e->x, x, sizeof x, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_commands_write(c, e->dy, dy, sizeof dy, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_kernel_forward(e->kernel, c, &e->x, &e->y, NULL);
    if (status == RG_OK) /* the gradient of softmax reads y alone: x may be NULL */
        status = rg_kernel_gradient(e->kernel, c, &e->dy, NULL, &e->y, NULL, &e->dx, 0);
    if (status == RG_OK)
        status = rg_commands_read(c, e->y, y, sizeof x, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_commands_read(c, e->dx, dx, sizeof x, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_commands_commit(c);
    return status == RG_OK ? rg_commands_wait(c) : status;
}

static void destroy(example *e) /* NULL is fine: what was not made is not given back */
{
    rg_tensor_destroy(e->x);
    rg_tensor_destroy(e->y);
    rg_tensor_destroy(e->dy);
    rg_tensor_destroy(e->dx);
    rg_kernel_destroy(e->kernel);
    rg_commands_destroy(e->commands);
    rg_queue_destroy(e->queue);
    rg_device_destroy(e->device);
}

int main(void)
{
    example e = { 0 };
    double y[3] = { 0 }, dx[3] = { 0 };
    rg_status status = make(&e);
    if (status == RG_OK)
        status = run(&e, y, dx);
    destroy(&e);
    if (status != RG_OK) {
        fprintf(stderr, "%s: %s\n", rg_status_name(status), rg_error_text());
        return 1;
    }
    bool right = true;
    for (int i = 0; i < 3; i++) {
        printf("y %7.4f   dx %7.4f\n", y[i], dx[i]);
        right &= fabs(y[i] - wanted_y[i]) < 1e-12 && fabs(dx[i] - wanted_dx[i]) < 1e-12;
    }
    puts(right ? "right" : "wrong");
    return right ? 0 : 1;
}
