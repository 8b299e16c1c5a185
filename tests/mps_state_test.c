/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Kernels and states as in MPS: names, properties fixed when work is recorded, copying, plain
 * gradient states. docs/mps.md names these tests. */
#include "any_device.h"
#include "mps.h"
#include "ops/ops.h"

/* ---- MPSKernel ---- */

/* Each class of the family is a name of the op: a direction and preset fields. */
static void test_class_names(void)
{
    static const struct {
        const char *name, *fields;
        bool gradient;
    } classes[] = {
        { "MPSMatrixSoftMax", "kind=plain axis=-1 flatten=false", false },
        { "MPSMatrixSoftMaxGradient", "kind=plain axis=-1 flatten=false", true },
        { "MPSMatrixLogSoftMax", "kind=log axis=-1 flatten=false", false },
        { "MPSMatrixLogSoftMaxGradient", "kind=log axis=-1 flatten=false", true },
        { "MPSCNNSoftMax", "kind=plain axis=-1 flatten=false", false },
        { "MPSCNNSoftMaxGradient", "kind=plain axis=-1 flatten=false", true },
        { "MPSCNNLogSoftMax", "kind=log axis=-1 flatten=false", false },
        { "MPSCNNLogSoftMaxGradient", "kind=log axis=-1 flatten=false", true },
    };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const rg_op *op = NULL;
        const rg_op_name *name = NULL;
        _Alignas(16) char desc[RG_MAX_DESC], text[256];
        EXPECT_OK(rg_op_find(classes[i].name, &op, &name));
        EXPECT(op != NULL && strcmp(op->name, "softmax") == 0 && name != NULL);
        if (op == NULL || name == NULL)
            continue;
        EXPECT(name->gradient == classes[i].gradient);
        memcpy(desc, op->desc.defaults, op->desc.size);
        EXPECT_OK(rg_fields_parse(&op->desc, name->name, desc, name->fields));
        rg_fields_text(&op->desc, desc, text, sizeof text);
        EXPECT(strcmp(text, classes[i].fields) == 0);
    }
}

/* What is recorded is fixed: the descriptor is copied at creation, the kernel may go before the
 * work runs, and so may the tensors. */
static void test_snapshot(rig *r)
{
    rg_softmax_desc desc = rg_softmax_desc_default();
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_softmax_create(r->device, &desc, &kernel));
    desc.kind = RG_SOFTMAX_LOG; /* too late to matter */
    desc.axis = 0;
    rg_tensor *x = filled(r->device, RG_F64, 2, DIMS(3, 4), 1), *y = NULL;
    double in[12], out[12], want[4];
    EXPECT_OK(rg_tensor_read(x, in, sizeof in, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, NULL));
    EXPECT_OK(rg_commands_read(r->commands, y, out, sizeof out, RG_LAYOUT_SAME));
    rg_kernel_destroy(kernel);
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    EXPECT_OK(rig_run(r));
    for (int row = 0; row < 3; row++) {
        forward_of(in + 4 * row, want, 4, false);
        for (int i = 0; i < 4; i++)
            EXPECT(is_near(out[4 * row + i], want[i], 1e-14));
    }
}

/* copyWithZone:device: all of the configuration and the label, on the device given; the copy and
 * the original compute the same. */
static void test_copy(rig *r)
{
    rig other = rig_open(1);
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_LOG, 1), *same = NULL, *far = NULL;
    EXPECT_OK(rg_kernel_set_label(kernel, "head"));
    EXPECT_OK(rg_kernel_copy(kernel, NULL, &same)); /* nil: its own device */
    EXPECT_OK(rg_kernel_copy(kernel, other.device, &far));
    EXPECT(rg_kernel_device(same) == r->device && rg_kernel_device(far) == other.device);
    EXPECT(rg_kernel_equal(kernel, same) && rg_kernel_equal(kernel, far));
    EXPECT(rg_kernel_hash(kernel) == rg_kernel_hash(far));
    EXPECT(strcmp(rg_kernel_label(same), "head") == 0 && strcmp(rg_kernel_label(far), "head") == 0);
    EXPECT_OK(rg_kernel_set_label(same, "tail")); /* of the copy alone */
    EXPECT(strcmp(rg_kernel_label(kernel), "head") == 0 && rg_kernel_equal(kernel, same));
    rg_tensor *x[2] = { filled(r->device, RG_F32, 2, DIMS(3, 40), 1),
                        filled(other.device, RG_F32, 2, DIMS(3, 40), 1) };
    rg_tensor *y[2] = { NULL, NULL };
    EXPECT_OK(rg_kernel_forward_alloc(same, r->commands, 1, &x[0], false, &y[0], NULL));
    EXPECT_OK(rg_kernel_forward_alloc(far, other.commands, 1, &x[1], false, &y[1], NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rig_run(&other));
    EXPECT(same_bits(y[0], y[1]));
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(y[i]);
    }
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(same);
    rg_kernel_destroy(far);
    rig_close(&other);
}

/* ---- MPSState, MPSNNGradientState ---- */

/* The state of softmax has no resource, and so is never temporary; it holds the shape of the source
 * and the descriptor in force at the forward pass. */
static void test_plain_state(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(2, 3, 4, 5), 1);
    rg_state *kept = NULL, *temporary = NULL;
    EXPECT_OK(rg_state_create(kernel, &x, &kept));
    EXPECT_OK(rg_state_create_temporary(kernel, r->commands, &x, &temporary));
    EXPECT(!rg_state_is_temporary(kept) && !rg_state_is_temporary(temporary));
    EXPECT(rg_state_read_count(kept) == 0 && rg_state_read_count(temporary) == 0);
    EXPECT(rg_state_count(kept) == 0 && rg_state_bytes(kept) == 0);
    EXPECT(rg_state_name(kept, 0) == NULL);
    EXPECT(rg_state_equal(kept, temporary));
    rg_tensor_desc source = { 0 };
    EXPECT_OK(rg_state_source(kept, 0, &source));
    EXPECT(source.dtype == RG_F32 && source.rank == 4 && source.dims[0] == 2 &&
           source.dims[3] == 5);
    char text[128];
    EXPECT(rg_state_describe(kept, text, sizeof text) == strlen(text));
    EXPECT(strcmp(text, "state of softmax kind=plain axis=-1 flatten=false, "
                        "x f32[2, 3, 4, 5]") == 0);
    EXPECT(strcmp(rg_state_label(kept), "") == 0);
    EXPECT_OK(rg_state_set_label(kept, "of layer 3"));
    EXPECT(strcmp(rg_state_label(kept), "of layer 3") == 0);
    rg_state_destroy(kept);
    rg_state_destroy(temporary);
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
}

/* A gradient kernel that is fed by a state makes its result in the size of the forward source, and
 * refuses a state of another geometry. One state per image in a batch. */
static void test_gradient_from_state(rig *r)
{
    enum { IMAGES = 3 };
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_kernel *log_kernel = softmax_of(r->device, RG_SOFTMAX_LOG, -1);
    rg_tensor *x[IMAGES], *dy[IMAGES], *y[IMAGES] = { NULL }, *dx[IMAGES] = { NULL };
    rg_state *states[IMAGES] = { NULL };
    for (uint64_t n = 0; n < IMAGES; n++) {
        x[n] = filled(r->device, RG_F32, 3, DIMS(4, 5, 6), n);
        dy[n] = filled(r->device, RG_F32, 3, DIMS(4, 5, 6), n + 9);
    }
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, IMAGES, x, false, y, states));
    EXPECT(states[0] != states[1] && rg_state_equal(states[0], states[1]));
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernel, r->commands, IMAGES, dy, NULL, y, states, 1, false, dx));
    rg_tensor *none[IMAGES] = { NULL };
    EXPECT_FAILS(
        rg_kernel_gradient_alloc(log_kernel, r->commands, IMAGES, dy, NULL, y, states, 1, false,
                                 none),
        RG_INVALID_ARGUMENT,
        "image 0: softmax: the state was created for a kernel with a different descriptor");
    EXPECT(none[0] == NULL);
    EXPECT_OK(rig_run(r));
    for (int n = 0; n < IMAGES; n++) {
        rg_tensor_desc made = { 0 };
        EXPECT_OK(rg_tensor_get_desc(dx[n], &made));
        EXPECT(made.rank == 3 && made.dims[0] == 4 && made.dims[1] == 5 && made.dims[2] == 6);
        rg_tensor_destroy(x[n]);
        rg_tensor_destroy(dy[n]);
        rg_tensor_destroy(y[n]);
        rg_tensor_destroy(dx[n]);
        rg_state_destroy(states[n]);
    }
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(log_kernel);
}

/* The destination of a gradient is overwritten; adding into it, for an image with several readers,
 * is asked for by a bit. */
static void test_overwritten(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *y = filled(r->device, RG_F64, 2, DIMS(2, 5), 1);
    rg_tensor *dy = filled(r->device, RG_F64, 2, DIMS(2, 5), 2);
    rg_tensor *dx = filled(r->device, RG_F64, 2, DIMS(2, 5), 3);
    double once[10], twice[10];
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, &y, NULL, &dx, 0));
    EXPECT_OK(rg_commands_read(r->commands, dx, once, sizeof once, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, &y, NULL, &dx, 1));
    EXPECT_OK(rg_commands_read(r->commands, dx, twice, sizeof twice, RG_LAYOUT_SAME));
    EXPECT_OK(rig_run(r));
    double from[10], result[10];
    EXPECT_OK(rg_tensor_read(dy, from, sizeof from, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(y, result, sizeof result, RG_LAYOUT_SAME));
    for (int row = 0; row < 2; row++) {
        double want[5];
        gradient_of(from + 5 * row, result + 5 * row, want, 5, false);
        for (int i = 0; i < 5; i++) {
            EXPECT(is_near(once[5 * row + i], want[i], 1e-12));
            EXPECT(is_near(twice[5 * row + i], 2 * want[i], 1e-12));
        }
    }
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(dx);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    test_class_names();
    RUN_ON_DEVICES(test_snapshot, test_copy, test_plain_state, test_gradient_from_state,
                   test_overwritten);
    return rg_test_report();
}
