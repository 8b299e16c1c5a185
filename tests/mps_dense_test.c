/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fully connected layers, matrix products and Gram matrices as in MPS, on numbers worked out by
 * hand. docs/mps.md names these tests. */
#include "any_device.h"
#include "mps.h"
#include "ops/ops.h"

#include <retrograde/dense.h>
#include <retrograde/gram.h>

static rg_tensor *with(rg_device *device, int32_t rank, const int64_t dims[], const double values[])
{
    rg_tensor *tensor = tensor_of(device, RG_F64, rank, dims);
    if (values != NULL)
        EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    return tensor;
}

/* All of these results are exact. */
static void expect(const rg_tensor *tensor, const double values[])
{
    double *got = (double *)(void *)elements_of(tensor);
    for (int64_t i = 0; i < count_of(tensor); i++)
        EXPECT(got[i] == values[i]);
    free(got);
}

static rg_kernel *dense_of(rg_device *device, rg_dense_layout layout, bool bias, double alpha,
                           rg_neuron_kind neuron)
{
    rg_dense_desc desc = rg_dense_desc_default();
    EXPECT(desc.layout == RG_DENSE_OUT_IN && desc.bias && desc.alpha == 1);
    EXPECT(desc.neuron.kind == RG_NEURON_NONE);
    desc.layout = layout;
    desc.bias = bias;
    desc.alpha = alpha;
    desc.neuron.kind = neuron;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_dense_create(device, &desc, &kernel));
    return kernel;
}

/* ---- images ---- */

/* Two images of 1 x 2 pixels with two channels each; two outputs. */
static const double image_x[] = { 1, 2, 3, 4, -1, 0, 2, -2 };
static const double image_w[] = { 1, 0, 0, 1, 2, -1, 1, -1 };
static const double image_b[] = { 10, -10 }, image_dy[] = { 1, 2, 3, -1 };

typedef struct layer {
    rg_tensor *x[3], *y, *dy, *dx[3];
} layer;

static layer image_layer(rg_device *device)
{
    layer l = { .y = with(device, 4, DIMS(2, 1, 1, 2), NULL),
                .dy = with(device, 4, DIMS(2, 1, 1, 2), image_dy) };
    l.x[0] = with(device, 4, DIMS(2, 1, 2, 2), image_x);
    l.x[1] = with(device, 4, DIMS(2, 1, 2, 2), image_w);
    l.x[2] = with(device, 1, DIMS(2), image_b);
    l.dx[0] = with(device, 4, DIMS(2, 1, 2, 2), NULL);
    l.dx[1] = with(device, 4, DIMS(2, 1, 2, 2), NULL);
    l.dx[2] = with(device, 1, DIMS(2), NULL);
    return l;
}

static void layer_close(layer *l)
{
    for (int i = 0; i < 3; i++) {
        rg_tensor_destroy(l->x[i]);
        rg_tensor_destroy(l->dx[i]);
    }
    rg_tensor_destroy(l->y);
    rg_tensor_destroy(l->dy);
}

static const double image_y[] = { 15, -11, 7, -8 };
static const double image_dx[] = { 5, -2, 2, -1, 1, 1, -1, 4 };
static const double image_dw[] = { -2, 2, 9, -2, 3, 4, 4, 10 }, image_db[] = { 4, 1 };

/* MPSCNNFullyConnected and its gradient; the weights are [out][height][width][in]. */
static void test_fully_connected(rig *r)
{
    rg_kernel *kernel = dense_of(r->device, RG_DENSE_OUT_IN, true, 1, RG_NEURON_NONE);
    layer l = image_layer(r->device);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, l.x, &l.y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &l.dy, l.x, NULL, NULL, l.dx, 0));
    EXPECT_OK(rig_run(r));
    expect(l.y, image_y);
    expect(l.dx[0], image_dx);
    expect(l.dx[1], image_dw);
    expect(l.dx[2], image_db);
    layer_close(&l);
    rg_kernel_destroy(kernel);
}

/* MPSNNConvolutionGradientOption: data alone, weights and biases alone; and `add` for sums over
 * several batches. */
static void test_gradient_options(rig *r)
{
    rg_kernel *kernel = dense_of(r->device, RG_DENSE_OUT_IN, true, 1, RG_NEURON_NONE);
    layer l = image_layer(r->device);
    rg_tensor *data[3] = { l.dx[0], NULL, NULL }, *weights[3] = { NULL, l.dx[1], l.dx[2] };
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &l.dy, l.x, NULL, NULL, data, 0));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &l.dy, l.x, NULL, NULL, weights, 0));
    EXPECT_OK(rig_run(r));
    expect(l.dx[0], image_dx);
    expect(l.dx[1], image_dw);
    expect(l.dx[2], image_db);
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &l.dy, l.x, NULL, NULL, weights, 6));
    EXPECT_OK(rig_run(r));
    expect(l.dx[1], (const double[]){ -4, 4, 18, -4, 6, 8, 8, 20 });
    expect(l.dx[2], (const double[]){ 8, 2 });
    layer_close(&l);
    rg_kernel_destroy(kernel);
}

/* A fused neuron is differentiated, which MPS does not do: by y for relu, by z of the state for
 * absolute, or by z once more where there is no state, or none that a forward pass has filled. */
static void test_fused_neuron(rig *r)
{
    static const double relu_y[] = { 15, 0, 7, 0 }, absolute_y[] = { 15, 11, 7, 8 };
    static const double relu_dx[] = { 1, 0, 0, 1, 3, 0, 0, 3 };
    static const double relu_dw[] = { -2, 2, 9, -2, 0, 0, 0, 0 };
    /* dz = 1, -2, 3, 1 */
    static const double absolute_dx[] = { -3, 2, -2, 3, 5, -1, 1, 2 };
    static const double absolute_dw[] = { -2, 2, 9, -2, -3, -4, -4, -10 };
    for (int kind = 0; kind < 4; kind++) {
        const bool relu = kind == 0, fills = kind == 1, has = fills || kind == 3;
        rg_kernel *kernel = dense_of(r->device, RG_DENSE_OUT_IN, true, 1,
                                     relu ? RG_NEURON_RELU : RG_NEURON_ABSOLUTE);
        layer l = image_layer(r->device);
        rg_state *state = NULL;
        rg_tensor *z = NULL;
        if (has) {
            EXPECT_OK(rg_state_create(kernel, l.x, &state));
            EXPECT_OK(rg_state_tensor(state, "z", &z));
            EXPECT_OK(rg_tensor_write(z, (const double[]){ -1, 1, -1, 1 }, bytes_of(z),
                                      RG_LAYOUT_SAME)); /* the other way round */
        }
        EXPECT_OK(rg_kernel_forward(kernel, r->commands, l.x, &l.y, fills ? state : NULL));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &l.dy, l.x, relu ? &l.y : NULL, state,
                                     l.dx, 0));
        EXPECT_OK(rig_run(r));
        expect(l.y, relu ? relu_y : absolute_y);
        expect(l.dx[0], relu ? relu_dx : absolute_dx);
        expect(l.dx[1], relu ? relu_dw : absolute_dw);
        expect(l.dx[2], relu ? (const double[]){ 4, 0 } : (const double[]){ 4, -1 });
        if (fills)
            expect(z, image_y);
        rg_state_destroy(state);
        layer_close(&l);
        rg_kernel_destroy(kernel);
    }
}

/* ---- matrices ---- */

static const double matrix_x[] = { 1, 2, 3, 4, 5, 6 }, matrix_w[] = { 1, 0, 0, 1, 1, -1 };
static const double matrix_b[] = { 0.5, -0.5 }, matrix_dy[] = { 1, 0, 2, 1 };

/* MPSMatrixFullyConnected and its gradient: alpha is no factor of the bias. */
static void test_matrix_fully_connected(rig *r)
{
    rg_kernel *kernel = dense_of(r->device, RG_DENSE_IN_OUT, true, 2, RG_NEURON_NONE);
    layer l = { .y = with(r->device, 2, DIMS(2, 2), NULL),
                .dy = with(r->device, 2, DIMS(2, 2), matrix_dy) };
    l.x[0] = with(r->device, 2, DIMS(2, 3), matrix_x);
    l.x[1] = with(r->device, 2, DIMS(3, 2), matrix_w);
    l.x[2] = with(r->device, 1, DIMS(2), matrix_b);
    l.dx[0] = with(r->device, 2, DIMS(2, 3), NULL);
    l.dx[1] = with(r->device, 2, DIMS(3, 2), NULL);
    l.dx[2] = with(r->device, 1, DIMS(2), NULL);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, l.x, &l.y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &l.dy, l.x, NULL, NULL, l.dx, 0));
    EXPECT_OK(rig_run(r));
    expect(l.y, (const double[]){ 8.5, -2.5, 20.5, -2.5 });
    expect(l.dx[0], (const double[]){ 2, 0, 2, 4, 2, 2 });
    expect(l.dx[1], (const double[]){ 18, 8, 24, 10, 30, 12 });
    expect(l.dx[2], (const double[]){ 3, 1 });
    layer_close(&l);
    rg_kernel_destroy(kernel);
}

/* MPSMatrixMultiplication: transposed operands are the other layout, or views. */
static void test_matrix_multiplication(rig *r)
{
    static const double w_transposed[] = { 1, 0, 1, 0, 1, -1 },
                        x_transposed[] = { 1, 4, 2, 5, 3, 6 };
    rg_kernel *plain = dense_of(r->device, RG_DENSE_IN_OUT, false, 1, RG_NEURON_NONE);
    rg_kernel *transposed = dense_of(r->device, RG_DENSE_OUT_IN, false, 1, RG_NEURON_NONE);
    rg_tensor *x = with(r->device, 2, DIMS(2, 3), matrix_x);
    rg_tensor *across = with(r->device, 2, DIMS(3, 2), x_transposed), *left = NULL;
    rg_tensor *w = with(r->device, 2, DIMS(3, 2), matrix_w);
    rg_tensor *right = with(r->device, 2, DIMS(2, 3), w_transposed);
    EXPECT_OK(rg_tensor_permute(across, (const int32_t[]){ 1, 0 }, &left));
    rg_tensor *operands[][2] = { { x, w }, { x, right }, { left, w }, { left, right } };
    for (int i = 0; i < 4; i++) {
        rg_tensor *y = with(r->device, 2, DIMS(2, 2), NULL);
        EXPECT_OK(
            rg_kernel_forward(i % 2 == 0 ? plain : transposed, r->commands, operands[i], &y, NULL));
        EXPECT_OK(rig_run(r));
        expect(y, (const double[]){ 4, -1, 10, -1 });
        rg_tensor_destroy(y);
    }
    rg_tensor_destroy(left);
    rg_tensor_destroy(across);
    rg_tensor_destroy(x);
    rg_tensor_destroy(w);
    rg_tensor_destroy(right);
    rg_kernel_destroy(plain);
    rg_kernel_destroy(transposed);
}

/* Matrices 1 and 2 of stacks of three (batchStart, batchSize), from a row and a column on
 * (origins), fewer of them than there are (resultRows, resultColumns, interiorColumns), both ways.
 */
static void test_matrix_stacks(rig *r)
{
    enum { STACK = 2, ROWS = 2, INNER = 3, COLUMNS = 2 };
    rg_matmul_desc desc = rg_matmul_desc_default();
    rg_kernel *kernel = NULL;
    desc.transpose_b = true;
    desc.alpha = 2;
    EXPECT_OK(rg_matmul_create(r->device, &desc, &kernel));
    rg_tensor *whole[] = { filled(r->device, RG_F64, 3, DIMS(3, 3, 4), 1),
                           filled(r->device, RG_F64, 3, DIMS(3, 3, 4), 2) };
    rg_tensor *x[2], *y = NULL, *dx[2], *dy = filled(r->device, RG_F64, 3, DIMS(2, 2, 2), 3);
    EXPECT_OK(rg_tensor_slice(whole[0], DIMS(1, 1, 1), DIMS(STACK, ROWS, INNER), NULL, &x[0]));
    EXPECT_OK(rg_tensor_slice(whole[1], DIMS(1, 0, 0), DIMS(STACK, COLUMNS, INNER), NULL, &x[1]));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, x, false, &y, NULL));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, x, NULL, NULL, 3, false, dx));
    EXPECT_OK(rig_run(r));
    for (int64_t n = 0; n < STACK; n++) {
        for (int64_t i = 0; i < ROWS; i++) {
            for (int64_t j = 0; j < COLUMNS; j++) {
                double sum = 0;
                for (int64_t k = 0; k < INNER; k++)
                    sum += element_at(x[0], DIMS(n, i, k)) * element_at(x[1], DIMS(n, j, k));
                EXPECT(is_near(element_at(y, DIMS(n, i, j)), 2 * sum, 1e-12));
            }
            for (int64_t k = 0; k < INNER; k++) {
                double da = 0, db = 0;
                for (int64_t j = 0; j < COLUMNS; j++) {
                    da += element_at(dy, DIMS(n, i, j)) * element_at(x[1], DIMS(n, j, k));
                    db += element_at(dy, DIMS(n, j, i)) * element_at(x[0], DIMS(n, j, k));
                }
                EXPECT(is_near(element_at(dx[0], DIMS(n, i, k)), 2 * da, 1e-12));
                EXPECT(is_near(element_at(dx[1], DIMS(n, i, k)), 2 * db, 1e-12));
            }
        }
    }
    rg_tensor *const all[] = { whole[0], whole[1], x[0], x[1], y, dy, dx[0], dx[1] };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(kernel);
}

/* MPSMatrixVectorMultiplication: y = alpha A x, a layer without rows whose weights are A. */
static void test_matrix_vector(rig *r)
{
    rg_kernel *kernel = dense_of(r->device, RG_DENSE_OUT_IN, false, 0.5, RG_NEURON_NONE);
    rg_tensor *x[] = { with(r->device, 1, DIMS(3), matrix_x),
                       with(r->device, 2, DIMS(2, 3), matrix_x) };
    rg_tensor *y = with(r->device, 1, DIMS(2), NULL);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y, NULL));
    EXPECT_OK(rig_run(r));
    expect(y, (const double[]){ 7, 16 });
    rg_tensor_destroy(x[0]);
    rg_tensor_destroy(x[1]);
    rg_tensor_destroy(y);
    rg_kernel_destroy(kernel);
}

/* ---- Gram matrices ---- */

/* Two pixels of three channels. Of dy(0, 2) = 1 both halves count, of dy(1, 1) = 1 twice one. */
static void test_gram(rig *r)
{
    static const double pixels[] = { 1, 2, 3, 0, 1, -1 };
    static const double slopes[] = { 0, 0, 1, 0, 1, 0, 0, 0, 0 };
    rg_gram_desc desc = rg_gram_desc_default();
    EXPECT(desc.alpha == 1);
    desc.alpha = 0.5;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_gram_create(r->device, &desc, &kernel));
    rg_tensor *x = with(r->device, 4, DIMS(1, 1, 2, 3), pixels);
    rg_tensor *dx = with(r->device, 4, DIMS(1, 1, 2, 3), NULL);
    rg_tensor *y = with(r->device, 3, DIMS(1, 3, 3), NULL);
    rg_tensor *dy = with(r->device, 3, DIMS(1, 3, 3), slopes);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &dx, 0));
    EXPECT_OK(rig_run(r));
    expect(y, (const double[]){ 0.5, 1, 1.5, 1, 2.5, 2.5, 1.5, 2.5, 5 });
    expect(dx, (const double[]){ 1.5, 2, 0.5, -0.5, 1, 0 });
    rg_tensor_destroy(x);
    rg_tensor_destroy(dx);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_kernel_destroy(kernel);
}

static void test_class_names(void)
{
    static const char *const classes[][2] = {
        { "MPSCNNFullyConnected", "dense" },      { "MPSCNNFullyConnectedGradient", "dense" },
        { "MPSMatrixFullyConnected", "dense" },   { "MPSMatrixFullyConnectedGradient", "dense" },
        { "MPSMatrixMultiplication", "dense" },   { "MPSMatrixVectorMultiplication", "dense" },
        { "MPSNNGramMatrixCalculation", "gram" }, { "MPSNNGramMatrixCalculationGradient", "gram" },
    };
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const rg_op *op = NULL;
        const rg_op_name *name = NULL;
        EXPECT_OK(rg_op_find(classes[i][0], &op, &name));
        EXPECT(op != NULL && strcmp(op->name, classes[i][1]) == 0);
        EXPECT(name != NULL && name->gradient == (strstr(name->name, "Gradient") != NULL));
    }
}

int main(void)
{
    test_class_names();
    RUN_ON_DEVICES(test_fully_connected, test_gradient_options, test_fused_neuron,
                   test_matrix_fully_connected, test_matrix_multiplication, test_matrix_stacks,
                   test_matrix_vector, test_gram);
    return rg_test_report();
}
