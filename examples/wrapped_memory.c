/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Memory of the caller as a tensor: rows with gaps between them, and a function that takes the
 * memory back after its last use. */
#include <retrograde/retrograde.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 4, COLUMNS = 5, PITCH = 8 }; /* floats from one row to the next */

static const float gap = -1; /* what stands between the rows, and must still stand there later */

typedef struct memory {
    float *data;
    int released;
    bool right; /* as seen when the library let go of it */
} memory;

/* Every row adds up to 1, every gap is as it was. */
static bool is_right(const float *data)
{
    bool right = true;
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int i = 0; i < PITCH; i++) {
            if (i < COLUMNS)
                sum += (double)data[row * PITCH + i];
            else
                right &= data[row * PITCH + i] == gap;
        }
        printf("row %d adds up to %.6f\n", row, sum);
        right &= fabs(sum - 1) < 1e-6;
    }
    return right;
}

/* Called once, on any thread, when neither a tensor nor recorded work needs the memory any more. */
static void release(void *context)
{
    memory *m = context;
    m->right = is_right(m->data);
    m->released++;
    free(m->data);
}

static rg_status wrap(rg_device *device, memory *m, rg_tensor **tensor)
{
    m->data = malloc(ROWS * PITCH * sizeof *m->data);
    if (m->data == NULL)
        return RG_OUT_OF_MEMORY;
    for (int i = 0; i < ROWS * PITCH; i++)
        m->data[i] = i % PITCH < COLUMNS ? (float)(i % 7) : gap;
    rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, (const int64_t[]){ ROWS, COLUMNS });
    desc.strides[0] = PITCH; /* in elements */
    const rg_status status = rg_tensor_wrap(device, &desc, m->data, release, m, tensor);
    if (status != RG_OK) /* then it is still ours */
        free(m->data);
    return status;
}

/* Softmax of each row, in place: y may be x. */
static rg_status run(rg_device *device, memory *m)
{
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    rg_queue *queue = NULL;
    rg_commands *commands = NULL;
    rg_kernel *kernel = NULL;
    rg_tensor *x = NULL;
    rg_status status = rg_queue_create(device, &queue);
    if (status == RG_OK)
        status = rg_commands_create(queue, &commands);
    if (status == RG_OK)
        status = rg_softmax_create(device, &softmax, &kernel);
    if (status == RG_OK)
        status = wrap(device, m, &x);
    if (status == RG_OK)
        status = rg_kernel_forward(kernel, commands, &x, &x, NULL);
    rg_tensor_destroy(x); /* the commands keep the memory: release is not called yet */
    rg_kernel_destroy(kernel);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK)
        status = rg_commands_wait(commands);
    rg_commands_destroy(commands);
    rg_queue_destroy(queue);
    return status;
}

int main(void)
{
    memory m = { 0 };
    rg_device *device = NULL;
    rg_status status = rg_device_create("cpu", NULL, &device);
    if (status == RG_OK)
        status = run(device, &m);
    rg_device_destroy(device);
    if (status != RG_OK) {
        fprintf(stderr, "%s: %s\n", rg_status_name(status), rg_error_text());
        return 1;
    }
    printf("released %d time(s)\n", m.released);
    return m.released == 1 && m.right ? 0 : 1;
}
