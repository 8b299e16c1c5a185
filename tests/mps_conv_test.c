/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution and transposed convolution as in MPS, on numbers worked out by hand. docs/mps.md
 * names these tests. */
#include "any_device.h"
#include "mps.h"
#include "ops/ops.h"

/* ---- tensors of f64 ---- */

static rg_tensor *tensor_with(rg_device *device, int32_t rank, const int64_t dims[],
                              const double values[])
{
    rg_tensor *tensor = tensor_of(device, RG_F64, rank, dims);
    EXPECT_OK(rg_tensor_write(tensor, values, (size_t)count_of(tensor) * 8, RG_LAYOUT_SAME));
    return tensor;
}

#define VALUES(...) ((const double[]){ __VA_ARGS__ })

static bool holds(const rg_tensor *tensor, const double want[], int64_t count)
{
    if (tensor == NULL || count_of(tensor) != count)
        return false;
    char *elements = elements_of(tensor);
    const double *data = (const double *)(const void *)elements;
    bool same = true;
    for (int64_t i = 0; i < count && same; i++)
        same = is_near(data[i], want[i], 1e-12);
    free(elements);
    return same;
}

#define HOLDS(tensor, ...) holds(tensor, VALUES(__VA_ARGS__), sizeof VALUES(__VA_ARGS__) / 8)

/* A call of one kernel: x, w, b and all that follows. */
typedef struct call {
    rg_kernel *kernel;
    rg_tensor *x[3], *y, *dy, *dx[3];
} call;

static void call_close(call *c)
{
    for (int i = 0; i < 3; i++) {
        rg_tensor_destroy(c->x[i]);
        rg_tensor_destroy(c->dx[i]);
    }
    rg_tensor_destroy(c->y);
    rg_tensor_destroy(c->dy);
    rg_kernel_destroy(c->kernel);
    *c = (call){ 0 };
}

static void run_forward(call *c, rig *r)
{
    EXPECT_OK(rg_kernel_forward_alloc(c->kernel, r->commands, 1, c->x, false, &c->y, NULL));
    EXPECT_OK(rig_run(r));
}

static void run_gradient(call *c, rig *r, uint64_t wanted)
{
    for (int i = 0; i < 3; i++) {
        rg_tensor_destroy(c->dx[i]);
        c->dx[i] = NULL;
    }
    EXPECT_OK(rg_kernel_gradient_alloc(c->kernel, r->commands, 1, &c->dy, c->x, &c->y, NULL, wanted,
                                       false, c->dx));
    EXPECT_OK(rig_run(r));
}

/* A row of pixels of one channel, a window of 3 by weights 1, 10, 100, and a bias. */
static call row_call(rg_device *device, rg_conv_desc desc, double bias)
{
    call c = { 0 };
    EXPECT_OK(rg_conv_create(device, &desc, &c.kernel));
    c.x[0] = tensor_with(device, 4, DIMS(1, 1, 4, 1), VALUES(1, 2, 3, 4));
    c.x[1] = tensor_with(device, 4, DIMS(1, 1, 3, 1), VALUES(1, 10, 100));
    c.x[2] = tensor_with(device, 1, DIMS(1), &bias);
    return c;
}

static rg_conv_desc around(void)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.padding.left = desc.padding.right = 1;
    return desc;
}

/* ---- convolution ---- */

static void test_class_names(void)
{
    static const struct {
        const char *name, *op;
        bool gradient;
    } classes[] = {
        { "MPSCNNConvolution", "conv", false },
        { "MPSCNNConvolutionGradient", "conv", true },
        { "MPSCNNConvolutionTranspose", "conv_transpose", false },
        { "MPSCNNConvolutionTransposeGradient", "conv_transpose", true },
    };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const rg_op *op = NULL;
        const rg_op_name *name = NULL;
        EXPECT_OK(rg_op_find(classes[i].name, &op, &name));
        EXPECT(op != NULL && strcmp(op->name, classes[i].op) == 0);
        EXPECT(name != NULL && name->gradient == classes[i].gradient);
    }
}

/* Weights are not rotated, the bias is added. */
static void test_forward(rig *r)
{
    call c = row_call(r->device, around(), 1);
    run_forward(&c, r);
    EXPECT(HOLDS(c.y, 211, 322, 433, 44));
    call_close(&c);
}

/* offset.x = 1: the first window stands around pixel 1. */
static void test_offset(rig *r)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.padding.left = 3 / 2 - 1;
    desc.output[0] = 1;
    desc.output[1] = 4;
    call c = row_call(r->device, desc, 0);
    run_forward(&c, r);
    EXPECT(HOLDS(c.y, 321, 432, 43, 4));
    call_close(&c);
}

/* GradientWithData, GradientWithWeightsAndBias, All: the same numbers. */
static void test_gradient_options(rig *r)
{
    call c = row_call(r->device, around(), 1);
    c.dy = tensor_with(r->device, 4, DIMS(1, 1, 4, 1), VALUES(1, 2, 3, 4));
    for (uint64_t wanted = 1; wanted < 8; wanted++) {
        run_gradient(&c, r, wanted);
        EXPECT((c.dx[0] != NULL) == (wanted & 1) && (c.dx[1] != NULL) == (wanted >> 1 & 1));
        EXPECT(c.dx[0] == NULL || HOLDS(c.dx[0], 12, 123, 234, 340));
        EXPECT(c.dx[1] == NULL || HOLDS(c.dx[1], 20, 30, 20));
        EXPECT(c.dx[2] == NULL || HOLDS(c.dx[2], 10));
    }
    call_close(&c);
}

/* Every second window: pixel 3 is dropped, and gets no gradient. */
static void test_stride(rig *r)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.stride[1] = 2;
    call c = row_call(r->device, desc, 0);
    c.dy = tensor_with(r->device, 4, DIMS(1, 1, 1, 1), VALUES(2));
    run_forward(&c, r);
    run_gradient(&c, r, 7);
    EXPECT(HOLDS(c.y, 321));
    EXPECT(HOLDS(c.dx[0], 2, 20, 200, 0));
    EXPECT(HOLDS(c.dx[1], 2, 4, 6));
    call_close(&c);
}

/* The neuron is differentiated, which MPS does not do: z is -90, 21, 132, -257. */
static void test_fused_neuron(rig *r)
{
    rg_conv_desc desc = around();
    desc.neuron.kind = RG_NEURON_RELU;
    call c = row_call(r->device, desc, -300);
    c.dy = tensor_with(r->device, 4, DIMS(1, 1, 4, 1), VALUES(1, 2, 3, 4));
    run_forward(&c, r);
    EXPECT(HOLDS(c.y, 0, 21, 132, 0));
    run_gradient(&c, r, 7);
    EXPECT(HOLDS(c.dx[0], 2, 23, 230, 300));
    EXPECT(HOLDS(c.dx[1], 8, 13, 18));
    EXPECT(HOLDS(c.dx[2], 5));
    call_close(&c);
}

/* Only neurons whose slope does not follow from y leave a tensor in the state. */
static void test_state(rig *r)
{
    for (int i = 0; i < 2; i++) {
        rg_conv_desc desc = around();
        desc.neuron.kind = i == 0 ? RG_NEURON_RELU : RG_NEURON_ABSOLUTE;
        call c = row_call(r->device, desc, -300);
        rg_state *state = NULL;
        rg_tensor *z = NULL;
        EXPECT_OK(rg_state_create(c.kernel, c.x, &state));
        EXPECT(rg_state_count(state) == i);
        EXPECT_OK(rg_kernel_forward_alloc(c.kernel, r->commands, 1, c.x, false, &c.y, NULL));
        EXPECT_OK(rg_kernel_forward(c.kernel, r->commands, c.x, &c.y, state));
        EXPECT_OK(rig_run(r));
        if (i == 1) {
            EXPECT_OK(rg_state_tensor(state, "z", &z));
            EXPECT(HOLDS(z, -90, 21, 132, -257));
            EXPECT(HOLDS(c.y, 90, 21, 132, 257));
        }
        rg_state_destroy(state);
        call_close(&c);
    }
}

/* One state for a batch, sums over its images: here dw and db are shared tensors. */
static void test_batch_sums(rig *r)
{
    call a = row_call(r->device, around(), 1), b = row_call(r->device, around(), 1);
    a.dy = tensor_with(r->device, 4, DIMS(1, 1, 4, 1), VALUES(1, 2, 3, 4));
    b.dy = tensor_with(r->device, 4, DIMS(1, 1, 4, 1), VALUES(10, 20, 30, 40));
    rg_tensor *dw = tensor_with(r->device, 4, DIMS(1, 1, 3, 1), VALUES(7, 7, 7));
    rg_tensor *db = tensor_with(r->device, 1, DIMS(1), VALUES(7));
    rg_tensor *x[] = { a.x[0], b.x[0], a.x[1], a.x[1], a.x[2], a.x[2] };
    rg_tensor *dy[] = { a.dy, b.dy }, *dx[] = { NULL, NULL, dw, dw, db, db };
    EXPECT_OK(rg_kernel_gradient_batch(a.kernel, r->commands, 2, dy, x, NULL, NULL, dx, 0));
    EXPECT_OK(rig_run(r));
    EXPECT(HOLDS(dw, 220, 330, 220));
    EXPECT(HOLDS(db, 110));
    rg_tensor_destroy(dw);
    rg_tensor_destroy(db);
    call_close(&a);
    call_close(&b);
}

/* w is (out, kh, kw, in / groups), the last fastest. */
static void test_weight_layout(rig *r)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.bias = false;
    call c = { 0 };
    EXPECT_OK(rg_conv_create(r->device, &desc, &c.kernel));
    c.x[0] = tensor_with(r->device, 4, DIMS(1, 1, 2, 2), VALUES(1, 2, 3, 4));
    c.x[1] =
        tensor_with(r->device, 4, DIMS(2, 1, 2, 2), VALUES(1, 10, 100, 1000, 2, 20, 200, 2000));
    run_forward(&c, r);
    EXPECT(HOLDS(c.y, 4321, 8642));
    call_close(&c);
}

static void test_groups(rig *r)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.bias = false;
    desc.groups = 2;
    call c = { 0 };
    EXPECT_OK(rg_conv_create(r->device, &desc, &c.kernel));
    c.x[0] = tensor_with(r->device, 4, DIMS(1, 1, 1, 4), VALUES(1, 2, 3, 4));
    c.x[1] = tensor_with(r->device, 4, DIMS(2, 1, 1, 2), VALUES(10, 100, 1000, 10000));
    run_forward(&c, r);
    EXPECT(HOLDS(c.y, 210, 43000));
    call_close(&c);
}

/* Channel k of x makes channels k m + q of y; MPS has m = 1 alone. */
static void test_multiplier(rig *r)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.bias = false;
    desc.groups = 0;
    call c = { 0 };
    EXPECT_OK(rg_conv_create(r->device, &desc, &c.kernel));
    c.x[0] = tensor_with(r->device, 4, DIMS(1, 1, 1, 2), VALUES(1, 2));
    c.x[1] = tensor_with(r->device, 4, DIMS(4, 1, 1, 1), VALUES(1, 2, 3, 4));
    run_forward(&c, r);
    EXPECT(HOLDS(c.y, 1, 2, 6, 8));
    call_close(&c);
}

/* ---- transposed convolution ---- */

static call spread_call(rg_device *device, rg_conv_transpose_desc desc)
{
    call c = { 0 };
    desc.bias = false;
    desc.stride[1] = 2;
    EXPECT_OK(rg_conv_transpose_create(device, &desc, &c.kernel));
    c.x[0] = tensor_with(device, 4, DIMS(1, 1, 3, 1), VALUES(1, 2, 3));
    c.x[1] = tensor_with(device, 4, DIMS(1, 1, 3, 1), VALUES(1, 10, 100));
    return c;
}

/* 1 0 2 0 3 under weights that are not rotated. */
static void test_transpose(rig *r)
{
    rg_conv_transpose_desc desc = rg_conv_transpose_desc_default();
    EXPECT(desc.layout == RG_CONV_TRANSPOSE_OUT_IN);
    desc.by_offset = true;
    desc.output[0] = 1;
    desc.output[1] = 5;
    call c = spread_call(r->device, desc);
    c.dy = tensor_with(r->device, 4, DIMS(1, 1, 5, 1), VALUES(1, 2, 3, 4, 5));
    run_forward(&c, r);
    EXPECT(HOLDS(c.y, 10, 201, 20, 302, 30));
    run_gradient(&c, r, 3);
    EXPECT(HOLDS(c.dx[0], 12, 234, 450));
    EXPECT(HOLDS(c.dx[1], 10, 22, 16));
    call_close(&c);
}

static void test_kernel_offset(rig *r)
{
    rg_conv_transpose_desc desc = rg_conv_transpose_desc_default();
    desc.by_offset = true;
    desc.kernel_offset[1] = 1;
    desc.output[0] = 1;
    desc.output[1] = 5;
    call c = spread_call(r->device, desc);
    run_forward(&c, r);
    EXPECT(HOLDS(c.y, 201, 20, 302, 30, 3));
    call_close(&c);
}

/* ONNX and PyTorch: each pixel spreads the weights as they are. */
static void test_transpose_onnx(rig *r)
{
    rg_conv_transpose_desc desc = rg_conv_transpose_desc_default();
    desc.layout = RG_CONV_TRANSPOSE_IN_OUT;
    desc.padding.left = desc.padding.right = 1;
    call c = spread_call(r->device, desc);
    run_forward(&c, r);
    EXPECT(HOLDS(c.y, 10, 102, 20, 203, 30));
    call_close(&c);
}

int main(void)
{
    test_class_names();
    RUN_ON_DEVICES(test_forward, test_offset, test_gradient_options, test_stride, test_fused_neuron,
                   test_state, test_batch_sums, test_weight_layout, test_groups, test_multiplier,
                   test_transpose, test_kernel_offset, test_transpose_onnx);
    return rg_test_report();
}
