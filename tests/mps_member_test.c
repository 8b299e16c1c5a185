/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Members of MPS's base classes: descriptors, aliases, bytes of images, states and what counts as
 * reading them, command buffers, parameters in 16 bits. On any device. docs/mps.md names these
 * tests. */
#include "any_device.h"
#include "graph_f64.h"

#include <math.h>

/* ---- kernels ---- */

/* An initializer that gets nonsense, the description of a kernel, and sizes that do not fit. */
static void test_kernels(rig *r)
{
    rg_softmax_desc wrong = rg_softmax_desc_default();
    rg_kernel *kernel = NULL;
    char text[256];
    wrong.kind = (rg_softmax_kind)77;
    EXPECT_FAILS(rg_softmax_create(r->device, &wrong, &kernel), RG_INVALID_ARGUMENT, "kind");
    EXPECT(kernel == NULL);
    kernel = softmax_of(r->device, RG_SOFTMAX_LOG, -1);
    EXPECT(rg_kernel_describe(kernel, text, sizeof text) < sizeof text);
    EXPECT(strstr(text, "softmax") != NULL && strstr(text, "log") != NULL);
    rg_kernel_destroy(kernel);
    rg_dense_desc dense = rg_dense_desc_default(); /* kernelWidth is the width of the source */
    dense.bias = false;
    EXPECT_OK(rg_dense_create(r->device, &dense, &kernel));
    rg_tensor *in[] = { filled(r->device, RG_F32, 4, DIMS(1, 2, 3, 4), 1),
                        filled(r->device, RG_F32, 4, DIMS(5, 2, 2, 4), 2) };
    rg_tensor *y = tensor_of(r->device, RG_F32, 4, DIMS(1, 1, 1, 5));
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, in, &y, NULL), RG_INVALID_ARGUMENT, "w");
    rg_tensor_destroy(in[0]);
    rg_tensor_destroy(in[1]);
    rg_tensor_destroy(y);
    rg_kernel_destroy(kernel);
}

/* y may be x, dx may be dy; results that overlap otherwise are refused. */
static void test_in_place(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = filled(r->device, RG_F32, 2, DIMS(5, 9), 1), *y = NULL, *dx = NULL;
    rg_tensor *dy = filled(r->device, RG_F32, 2, DIMS(5, 9), 2), *part[2] = { NULL, NULL };
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, NULL));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, NULL, &y, NULL, 1, false, &dx));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &x, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, &y, NULL, &dy, 0));
    EXPECT_OK(rig_run(r));
    float a[45], b[45], c[45], d[45];
    EXPECT_OK(rg_tensor_read(x, a, sizeof a, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(y, b, sizeof b, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(dy, c, sizeof c, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(dx, d, sizeof d, RG_LAYOUT_SAME));
    for (int i = 0; i < 45; i++)
        EXPECT(fabsf(a[i] - b[i]) < 1e-6F && fabsf(c[i] - d[i]) < 1e-6F);
    EXPECT_OK(rg_tensor_slice(x, DIMS(0, 0), DIMS(3, 9), NULL, &part[0]));
    EXPECT_OK(rg_tensor_slice(x, DIMS(1, 0), DIMS(3, 9), NULL, &part[1]));
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &part[0], &part[1], NULL),
                 RG_INVALID_ARGUMENT, "overlaps");
    rg_tensor *const made[] = { x, y, dy, dx, part[0], part[1] };
    for (int i = 0; i < 6; i++)
        rg_tensor_destroy(made[i]);
    rg_kernel_destroy(kernel);
}

/* ---- matrices and images ---- */

/* Rows of a stack of matrices with strides; vectors; a row stride of 0 is read, and not written. */
static void test_matrices(rig *r)
{
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F32, 3, DIMS(2, 3, 8));
    rg_tensor *all = NULL, *stack = NULL, *vector = NULL, *wide = NULL, *y = NULL;
    rg_tensor_desc desc = { 0 };
    float values[48], row[5], result[15];
    for (int i = 0; i < 48; i++)
        values[i] = (float)(i % 7);
    EXPECT_OK(rg_tensor_create(r->device, &shape, &all));
    EXPECT_OK(rg_tensor_write(all, values, sizeof values, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_slice(all, DIMS(0, 0, 1), DIMS(2, 3, 5), NULL, &stack));
    EXPECT_OK(rg_tensor_get_desc(stack, &desc));
    EXPECT(desc.dtype == RG_F32 && desc.dims[0] == 2 && desc.dims[1] == 3 && desc.dims[2] == 5);
    EXPECT(desc.strides[0] == 24 && desc.strides[1] == 8 && desc.strides[2] == 1);
    EXPECT(rg_tensor_device(stack) == r->device);
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *first = NULL;
    EXPECT_OK(rg_tensor_slice(stack, DIMS(1, 2, 0), DIMS(1, 1, 5), NULL, &first));
    EXPECT_OK(rg_tensor_reshape(first, 1, DIMS(5), &vector)); /* an MPSVector */
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &vector, &vector, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(vector, row, sizeof row, RG_LAYOUT_SAME));
    float sum = 0;
    for (int i = 0; i < 5; i++)
        sum += row[i];
    EXPECT(fabsf(sum - 1) < 1e-5F);
    EXPECT_OK(rg_tensor_expand(vector, 2, DIMS(3, 5), &wide)); /* rowBytes 0 */
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &wide, false, &y, NULL));
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &wide, &wide, NULL), RG_INVALID_ARGUMENT,
                 "overlaps itself");
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(y, result, sizeof result, RG_LAYOUT_SAME));
    EXPECT(memcmp(result, result + 5, sizeof row) == 0);
    EXPECT(memcmp(result, result + 10, sizeof row) == 0);
    rg_tensor *const made[] = { all, stack, first, vector, wide, y };
    for (int i = 0; i < 6; i++)
        rg_tensor_destroy(made[i]);
    rg_kernel_destroy(kernel);
}

/* channelFormat, pixelSize, and bytesPerRow of rows that are padded in memory of the caller. */
static void test_image_bytes(rig *r)
{
    static const rg_dtype dtypes[] = { RG_U8, RG_F16, RG_F32 };
    for (int k = 0; k < 3; k++) {
        enum { H = 2, W = 3, C = 5, PADDED = 80 };
        const size_t size = rg_dtype_size(dtypes[k]), row = W * C * size;
        rg_tensor *image = tensor_of(r->device, dtypes[k], 3, DIMS(H, W, C));
        rg_tensor_desc desc = { 0 };
        char in[H * PADDED], out[H * PADDED] = { 0 };
        for (int i = 0; i < H * PADDED; i++)
            in[i] = (char)(i % 50);
        EXPECT_OK(rg_tensor_get_desc(image, &desc));
        EXPECT((size_t)desc.strides[1] * rg_dtype_size(desc.dtype) == C * size); /* pixelSize */
        for (int64_t y = 0; y < H; y++) {
            rg_tensor *line = NULL;
            EXPECT_OK(rg_tensor_slice(image, DIMS(y, 0, 0), DIMS(1, W, C), NULL, &line));
            EXPECT_OK(rg_tensor_write(line, in + y * PADDED, row, RG_LAYOUT_SAME));
            rg_tensor_destroy(line);
        }
        EXPECT_OK(rg_tensor_read(image, out, H * row, RG_LAYOUT_SAME));
        for (int y = 0; y < H; y++)
            EXPECT(memcmp(in + y * PADDED, out + (size_t)y * row, row) == 0);
        rg_tensor_destroy(image);
    }
}

/* ---- states ---- */

/* Of an addition: both sources. Of max pooling: what it holds, and which kernels it fits. */
static void test_states(rig *r)
{
    const rg_arithmetic_desc add = rg_arithmetic_desc_default();
    rg_pool_desc pool = rg_pool_desc_default();
    rg_kernel *kernels[4] = { NULL };
    rg_state *states[3] = { NULL };
    rg_tensor_desc desc = { 0 };
    rg_tensor *x[2] = { filled(r->device, RG_F32, 4, DIMS(1, 4, 4, 2), 1),
                        filled(r->device, RG_F32, 1, DIMS(2), 2) };
    EXPECT_OK(rg_arithmetic_create(r->device, &add, &kernels[0]));
    EXPECT_OK(rg_pool_create(r->device, &pool, &kernels[1]));
    EXPECT_OK(rg_kernel_copy(kernels[1], NULL, &kernels[2]));
    pool.window[0] = 1;
    EXPECT_OK(rg_pool_create(r->device, &pool, &kernels[3]));
    EXPECT_OK(rg_state_create(kernels[0], x, &states[0]));
    EXPECT_OK(rg_state_source(states[0], 1, &desc));
    EXPECT(desc.rank == 1 && desc.dims[0] == 2 && desc.dtype == RG_F32);
    EXPECT_OK(rg_state_create(kernels[1], x, &states[1]));
    EXPECT_OK(rg_state_create(kernels[3], x, &states[2]));
    EXPECT(!rg_state_equal(states[1], states[2]) && rg_state_count(states[1]) == 1);
    rg_tensor *winners = NULL, *y = tensor_of(r->device, RG_F32, 4, DIMS(1, 2, 2, 2));
    EXPECT_OK(rg_state_tensor(states[1], "winners", &winners));
    EXPECT_OK(rg_tensor_get_desc(winners, &desc));
    EXPECT(desc.dtype == RG_U8 && rg_state_bytes(states[1]) >= 8);
    EXPECT_OK(rg_kernel_forward(kernels[2], r->commands, x, &y, states[1])); /* a copy: equal */
    EXPECT_FAILS(rg_kernel_forward(kernels[2], r->commands, x, &y, states[2]), RG_INVALID_ARGUMENT,
                 "different descriptor");
    EXPECT_OK(rig_run(r));
    for (int i = 0; i < 4; i++)
        rg_kernel_destroy(kernels[i]);
    for (int i = 0; i < 3; i++)
        rg_state_destroy(states[i]);
    rg_tensor_destroy(x[0]);
    rg_tensor_destroy(x[1]);
    rg_tensor_destroy(y);
}

/* A state that is filled again, or read, is read once; the first filling is no read. */
static void test_state_reads(rig *r)
{
    const rg_pool_desc pool = rg_pool_desc_default();
    rg_kernel *kernel = NULL;
    rg_state *state = NULL;
    rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(1, 4, 4, 2), 1);
    rg_tensor *y = tensor_of(r->device, RG_F32, 4, DIMS(1, 2, 2, 2));
    rg_tensor *dx = tensor_of(r->device, RG_F32, 4, DIMS(1, 4, 4, 2));
    EXPECT_OK(rg_pool_create(r->device, &pool, &kernel));
    EXPECT_OK(rg_state_create_temporary(kernel, r->commands, &x, &state));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, state));
    EXPECT(rg_state_read_count(state) == 1);
    EXPECT_OK(rg_state_set_read_count(state, 2));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, state));
    EXPECT(rg_state_read_count(state) == 1);
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &y, NULL, NULL, state, &dx, 0));
    EXPECT(rg_state_read_count(state) == 0);
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &x, &y, state), RG_INVALID_STATE,
                 "already released");
    EXPECT_OK(rig_run(r));
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dx);
    rg_state_destroy(state);
    rg_kernel_destroy(kernel);
}

/* ---- command buffers, graphs, optimizers ---- */

static void test_wait_in_parts(rig *r)
{
    EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_INVALID_STATE, "commit");
    EXPECT_OK(rig_run(r));
}

/* Where the pass stops there is a gradient, and none before; a run computes it. A gradient has no
 * gradient. */
static void test_stopped_run(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *a = f64_neuron(graph, RG_NEURON_TANH, x);
    rg_value *y = f64_neuron(graph, RG_NEURON_ABSOLUTE, a);
    EXPECT_OK(rg_value_stop_gradient(a));
    EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
    rg_value *da = rg_value_gradient(a);
    EXPECT(da != NULL && rg_value_gradient(x) == NULL);
    EXPECT_OK(rg_graph_result(graph, da, "da"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *in = filled(r->device, RG_F64, 1, DIMS(3), 1);
    double slopes[3], values[3];
    f64_run(r, plan, &in);
    f64_read(plan, "da", slopes);
    EXPECT_OK(rg_tensor_read(in, values, sizeof values, RG_LAYOUT_SAME));
    for (int i = 0; i < 3; i++)
        EXPECT(slopes[i] == (values[i] < 0 ? -1 : 1));
    EXPECT(rg_graph_gradient(graph, rg_value_node(da), &da, 1) == NULL);
    EXPECT_FAILS(rg_graph_status(graph), RG_UNSUPPORTED, "no gradient");
    rg_tensor_destroy(in);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* An f16 gradient beside an f32 parameter, whose copy in f16 is written in the same pass. */
static void test_16_bits(rig *r)
{
    rg_sgd_desc desc = rg_sgd_desc_default();
    rg_kernel *kernel = NULL;
    const float rate = 0.5F, weights[2] = { 1, -3.0001F };
    const double slopes[2] = { 0.25, -2 };
    uint16_t half[2], copy[2], rounded[2];
    float now[2];
    desc.copy = RG_PARAMETER_COPY_F16;
    EXPECT_OK(rg_sgd_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_convert(half, RG_F16, slopes, RG_F64, 2));
    rg_tensor *in[] = { tensor_of(r->device, RG_F32, 1, DIMS(2)),
                        tensor_of(r->device, RG_F16, 1, DIMS(2)),
                        tensor_of(r->device, RG_F32, 0, NULL) };
    rg_tensor *out[] = { in[0], tensor_of(r->device, RG_F16, 1, DIMS(2)) };
    EXPECT_OK(rg_tensor_write(in[0], weights, sizeof weights, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(in[1], half, sizeof half, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(in[2], &rate, sizeof rate, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, in, out, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(in[0], now, sizeof now, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(out[1], copy, sizeof copy, RG_LAYOUT_SAME));
    EXPECT(now[0] == 0.875F && fabsf(now[1] + 2.0001F) < 1e-6F);
    EXPECT_OK(rg_convert(rounded, RG_F16, now, RG_F32, 2));
    EXPECT(memcmp(rounded, copy, sizeof copy) == 0);
    for (int i = 0; i < 3; i++)
        rg_tensor_destroy(in[i]);
    rg_tensor_destroy(out[1]);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    RUN_ON_DEVICES(test_kernels, test_in_place, test_matrices, test_image_bytes, test_states,
                   test_state_reads, test_wait_in_parts, test_stopped_run, test_16_bits);
    return rg_test_report();
}
