/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A kernel that writes where nothing is. CUDA then refuses everything until the process ends, so
 * all of it happens in a child: calls fail with a status, nothing crashes, all can be destroyed. */
#include "cuda_rig.h"
#include "cuda_seam.h"

#include <sys/wait.h>

static void take_outcome(void *context, rg_status outcome)
{
    *(rg_status *)context = outcome;
}

/* The call fails, and has something to say. */
static void expect_broken(rg_status status)
{
    EXPECT(status != RG_OK && rg_error_text()[0] != 0);
}

/* Whatever is tried afterwards. */
static void use_broken_device(rig *r, rg_kernel *works, rg_tensor *x[2], rg_tensor *y)
{
    float values[40] = { 0 };
    rg_tensor *transposed = NULL, *t = NULL;
    rg_queue *queue = NULL;
    rg_device *again = NULL;
    EXPECT_OK(rg_tensor_permute(x[0], (const int32_t[]){ 1, 0 }, &transposed));
    expect_broken(rg_tensor_read(y, values, sizeof values, RG_LAYOUT_SAME));
    expect_broken(rg_tensor_read(transposed, values, sizeof values, RG_LAYOUT_SAME));
    expect_broken(rg_tensor_write(x[0], values, sizeof values, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_write(r->commands, transposed, values, sizeof values, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward(works, r->commands, x, &y, NULL));
    EXPECT_OK(rg_commands_read(r->commands, y, values, sizeof values, RG_LAYOUT_SAME));
    expect_broken(rig_run(r)); /* the commit, for want of memory, or else the wait */
    EXPECT_OK(rg_commands_read(r->commands, y, values, sizeof values, RG_LAYOUT_SAME));
    expect_broken(rig_run(r));

    /* These may or may not find out. */
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(100));
    (void)rg_tensor_create(r->device, &desc, &t);
    (void)rg_queue_create(r->device, &queue);
    (void)rg_device_create("cuda", NULL, &again);
    rg_tensor_destroy(t);
    rg_tensor_destroy(transposed);
    rg_queue_destroy(queue);
    rg_device_destroy(again);
}

static int crash(void)
{
    if (!has_gpu())
        return skip(rg_error_text());
    rig r = rig_open_cuda();
    seam_desc desc = seam_desc_of(0);
    rg_kernel *works = NULL, *crashes = NULL;
    EXPECT_OK(rg_kernel_create(r.device, &seam_op, &desc, &works));
    desc.mode = SEAM_CRASHES;
    EXPECT_OK(rg_kernel_create(r.device, &seam_op, &desc, &crashes));
    rg_tensor *x[2] = { filled(r.device, RG_F32, 2, DIMS(5, 8), 1),
                        filled(r.device, RG_F32, 2, DIMS(5, 8), 2) };
    rg_tensor *y = tensor_of(r.device, RG_F32, 2, DIMS(5, 8));
    rg_status outcome = RG_OK;
    rg_commands *behind = NULL, *asked = NULL;
    EXPECT_OK(rg_commands_create(r.queue, &behind));
    EXPECT_OK(rg_commands_create(r.queue, &asked));
    EXPECT_OK(rg_kernel_forward(works, behind, x, &y, NULL));

    EXPECT_OK(rg_kernel_forward(crashes, r.commands, x, &y, NULL));
    EXPECT_OK(rg_commands_on_completion(r.commands, take_outcome, &outcome));
    EXPECT_OK(rg_commands_commit(r.commands));
    const rg_status committed = rg_commands_commit(behind); /* the GPU may have crashed by now */
    EXPECT_FAILS(rg_commands_wait(r.commands), RG_KERNEL_FAULT, "GPU");
    EXPECT(outcome == RG_KERNEL_FAULT);
    EXPECT(rg_commands_get_state(r.commands) == RG_COMMANDS_FAILED);
    EXPECT(strstr(rg_commands_error_text(r.commands), "illegal") != NULL);
    expect_broken(committed == RG_OK ? rg_commands_wait(behind) : committed);
    EXPECT_OK(rg_commands_commit(asked)); /* an empty list */
    for (int i = 0; i < 1000 && rg_commands_get_state(asked) == RG_COMMANDS_COMMITTED; i++)
        usleep(1000);
    EXPECT(rg_commands_get_state(asked) == RG_COMMANDS_FAILED);
    rig_renew(&r);
    use_broken_device(&r, works, x, y);

    rg_commands_destroy(behind);
    rg_commands_destroy(asked);
    rg_tensor_destroy(x[0]);
    rg_tensor_destroy(x[1]);
    rg_tensor_destroy(y);
    rg_kernel_destroy(works);
    rg_kernel_destroy(crashes);
    rig_close(&r);
    return rg_test_report();
}

int main(void)
{
    fflush(stdout);
    const pid_t child = fork(); /* before CUDA has begun: a GPU does not survive a fork */
    if (child < 0)
        return skip("the system gives no process");
    if (child == 0) {
        alarm(120);
        return crash();
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        return SKIPPED;
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return rg_test_report();
}
