/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dropout: the step as an input, the mask in the state, and what is refused. */
#include "any_device.h"

enum { ROWS = 5, COLUMNS = 37, COUNT = ROWS * COLUMNS };

static rg_tensor *ones(rg_device *device)
{
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = 1;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(ROWS, COLUMNS));
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_tensor_create(device, &desc, &tensor));
    EXPECT_OK(rg_tensor_write(tensor, values, sizeof values, RG_LAYOUT_SAME));
    return tensor;
}

static rg_tensor *number(rg_device *device, rg_dtype dtype, int64_t value)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype, 0, NULL);
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_tensor_create(device, &desc, &tensor));
    EXPECT_OK(rg_tensor_write(tensor, &value, rg_dtype_size(dtype), RG_LAYOUT_SAME));
    return tensor;
}

/* One forward pass of ones: what is kept has the value 2. */
static void run(rig *r, const rg_dropout_desc *desc, rg_tensor *step, float y[COUNT],
                uint8_t mask[(COUNT + 7) / 8])
{
    rg_kernel *kernel = NULL;
    rg_state *state = NULL;
    rg_tensor *x[2] = { ones(r->device), step }, *result = ones(r->device), *bits = NULL;
    EXPECT_OK(rg_dropout_create(r->device, desc, &kernel));
    EXPECT(rg_kernel_inputs(kernel) == (step != NULL ? 2 : 1));
    EXPECT_OK(rg_state_create(kernel, x, &state));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &result, state));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(result, y, COUNT * sizeof y[0], RG_LAYOUT_SAME));
    EXPECT_OK(rg_state_tensor(state, "mask", &bits));
    rg_tensor_desc shape;
    EXPECT_OK(rg_tensor_get_desc(bits, &shape));
    EXPECT(shape.dtype == RG_U8 && shape.rank == 1 && shape.dims[0] <= (COUNT + 7) / 8);
    EXPECT_OK(rg_tensor_read(bits, mask, (size_t)shape.dims[0], RG_LAYOUT_SAME));
    rg_state_destroy(state);
    rg_tensor_destroy(x[0]);
    rg_tensor_destroy(result);
    rg_kernel_destroy(kernel);
}

/* The mask has a bit for each element, and zeros behind the last one. */
static void test_mask(rig *r)
{
    float y[COUNT];
    uint8_t mask[(COUNT + 7) / 8];
    rg_dropout_desc desc = rg_dropout_desc_default();
    desc.seed = 11;
    run(r, &desc, NULL, y, mask);
    int kept = 0;
    for (int i = 0; i < COUNT; i++) {
        const int bit = mask[i / 8] >> i % 8 & 1;
        EXPECT(y[i] == (bit ? 2.0F : 0.0F));
        kept += bit;
    }
    EXPECT(kept > COUNT / 4 && kept < COUNT * 3 / 4);
    EXPECT(mask[COUNT / 8] >> COUNT % 8 == 0);
}

/* One bit for each row where columns are broadcast. */
static void test_broadcast_mask(rig *r)
{
    float y[COUNT];
    uint8_t mask[(COUNT + 7) / 8];
    rg_dropout_desc desc = rg_dropout_desc_default();
    desc.broadcast[0] = -1;
    desc.broadcast_count = 1;
    run(r, &desc, NULL, y, mask);
    for (int i = 0; i < COUNT; i++)
        EXPECT(y[i] == (mask[0] >> i / COLUMNS & 1 ? 2.0F : 0.0F));
    EXPECT(mask[0] >> ROWS == 0);
}

/* The step may come from the descriptor, from a tensor, or from both. */
static void test_step(rig *r)
{
    float by_field[COUNT], by_input[COUNT], other[COUNT];
    uint8_t mask[(COUNT + 7) / 8], again[(COUNT + 7) / 8];
    rg_dropout_desc desc = rg_dropout_desc_default();
    desc.step = 1000000000007;
    run(r, &desc, NULL, by_field, mask);
    desc.step_input = true;
    desc.step = 7;
    rg_tensor *step = number(r->device, RG_I64, 1000000000000);
    run(r, &desc, step, by_input, again);
    EXPECT(memcmp(by_field, by_input, sizeof by_field) == 0);
    EXPECT(memcmp(mask, again, sizeof mask) == 0);
    desc.step = 8;
    run(r, &desc, step, other, again);
    EXPECT(memcmp(by_field, other, sizeof other) != 0);
    desc.broadcast[0] = 0; /* the mask has a launch of its own, which reads the step too */
    desc.broadcast_count = 1;
    run(r, &desc, step, by_input, mask);
    desc.step_input = false;
    desc.step = 1000000000008;
    run(r, &desc, NULL, by_field, again);
    EXPECT(memcmp(by_field, by_input, sizeof by_field) == 0);
    rg_tensor_destroy(step);
}

/* Work that is recorded once sees what the step is when it runs. */
static void test_step_changes(rig *r)
{
    float first[COUNT], second[COUNT];
    rg_kernel *kernel = NULL;
    rg_dropout_desc desc = rg_dropout_desc_default();
    desc.step_input = true;
    EXPECT_OK(rg_dropout_create(r->device, &desc, &kernel));
    rg_tensor *x[2] = { ones(r->device), number(r->device, RG_I64, 0) };
    rg_tensor *y[2] = { ones(r->device), ones(r->device) };
    int64_t next = 1;
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y[0], NULL));
    EXPECT_OK(rg_commands_write(r->commands, x[1], &next, sizeof next, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y[1], NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(y[0], first, sizeof first, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(y[1], second, sizeof second, RG_LAYOUT_SAME));
    EXPECT(memcmp(first, second, sizeof first) != 0);
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(y[i]);
    }
    rg_kernel_destroy(kernel);
}

static void test_refused(rig *r)
{
    rg_kernel *kernel = NULL;
    rg_state *state = NULL;
    rg_dropout_desc desc = rg_dropout_desc_default();
    desc.keep = 0;
    EXPECT_FAILS(rg_dropout_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "keep");
    desc.keep = 1.5;
    EXPECT_FAILS(rg_dropout_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "keep");
    desc = rg_dropout_desc_default();
    desc.broadcast_count = 9;
    EXPECT_FAILS(rg_dropout_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "broadcast");
    rg_tensor *x[2] = { ones(r->device), number(r->device, RG_I32, 1) }, *y = ones(r->device);
    const int64_t wrong[][2] = { { 2, 0 }, { -3, 0 }, { INT64_MAX, 0 }, { 1, -1 } };
    for (int i = 0; i < 4; i++) {
        desc.broadcast_count = 2;
        memcpy(desc.broadcast, wrong[i], sizeof wrong[i]);
        EXPECT_OK(rg_dropout_create(r->device, &desc, &kernel));
        EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, x, &y, NULL), RG_INVALID_ARGUMENT,
                     "broadcast");
        rg_kernel_destroy(kernel);
    }
    desc = rg_dropout_desc_default();
    desc.step_input = true;
    EXPECT_OK(rg_dropout_create(r->device, &desc, &kernel));
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, x, &y, NULL), RG_INVALID_ARGUMENT, "step");
    rg_tensor_destroy(x[1]);
    x[1] = number(r->device, RG_I64, 1);
    rg_tensor *dx[2] = { ones(r->device), NULL };
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &y, x, NULL, NULL, dx, 0),
                 RG_INVALID_ARGUMENT, "state");
    EXPECT_OK(rg_state_create(kernel, x, &state));
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &y, NULL, NULL, state, dx, 0),
                 RG_INVALID_STATE, "the state is empty: no forward pass has written it");
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y, state));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &y, NULL, NULL, state, dx, 0));
    dx[1] = number(r->device, RG_I64, 1);
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &y, NULL, NULL, state, dx, 0),
                 RG_UNSUPPORTED, "step has no gradient");
    EXPECT_OK(rig_run(r));
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(dx[i]);
    }
    rg_tensor_destroy(y);
    rg_state_destroy(state);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    RUN_ON_DEVICES(test_mask, test_broadcast_mask, test_step, test_step_changes, test_refused);
    return rg_test_report();
}
