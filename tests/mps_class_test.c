/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Classes of MPS as kernels, with their gradients, and members of MPS that are a second kernel, a
 * view or a write here. On any device. docs/mps.md names these tests. */
#include "any_device.h"
#include "mps.h"

#include <math.h>

enum { ROWS = 3, COLUMNS = 4, MOST = 512 };

static rg_tensor *of_values(rig *r, int32_t rank, const int64_t dims[], const double values[])
{
    rg_tensor *tensor = tensor_of(r->device, RG_F64, rank, dims);
    EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    return tensor;
}

static rg_tensor *drawn(rig *r, int32_t rank, const int64_t dims[], uint64_t seed, double values[])
{
    rg_tensor *tensor = filled(r->device, RG_F64, rank, dims, seed);
    EXPECT_OK(rg_tensor_read(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    return tensor;
}

/* y of a kernel, whose inputs are x; reads it. */
static rg_tensor *run_forward(rig *r, rg_kernel *kernel, rg_tensor *x[], double values[])
{
    rg_tensor *y = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, x, false, &y, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(y, values, bytes_of(y), RG_LAYOUT_SAME));
    return y;
}

static void drop(rg_tensor *const tensors[], int count)
{
    for (int i = 0; i < count; i++)
        rg_tensor_destroy(tensors[i]);
}

/* ---- gradients of classes ---- */

/* MPSCNNNeuron and MPSCNNNeuronGradient, whose source image is that of the forward pass. */
static void test_neuron(rig *r)
{
    static const double in[4] = { -2, -1, 1, 3 }, slope[4] = { 5, 6, 7, 8 };
    rg_neuron_desc desc = rg_neuron_desc_default();
    rg_kernel *kernel = NULL;
    double y[4], dx[4];
    desc.kind = RG_NEURON_RELU;
    desc.a = 0.25;
    desc.has_a = true;
    EXPECT_OK(rg_neuron_create(r->device, &desc, &kernel));
    rg_tensor *x = of_values(r, 3, DIMS(1, 2, 2), in), *dy = of_values(r, 3, DIMS(1, 2, 2), slope);
    rg_tensor *out = tensor_of(r->device, RG_F64, 3, DIMS(1, 2, 2));
    rg_tensor *back = tensor_of(r->device, RG_F64, 3, DIMS(1, 2, 2));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &out, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &back, 0));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(out, y, sizeof y, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(back, dx, sizeof dx, RG_LAYOUT_SAME));
    for (int i = 0; i < 4; i++) {
        EXPECT(y[i] == (in[i] < 0 ? in[i] / 4 : in[i]));
        EXPECT(dx[i] == (in[i] < 0 ? slope[i] / 4 : slope[i]));
    }
    drop((rg_tensor *[]){ x, dy, out, back }, 4);
    rg_kernel_destroy(kernel);
}

/* The parameters a, b and c of a descriptor: y = (a x + b)^c. */
static void test_neuron_numbers(rig *r)
{
    static const double in[3] = { 1, 2, 4 }, ones[3] = { 1, 1, 1 };
    rg_neuron_desc desc = rg_neuron_desc_default();
    rg_kernel *kernel = NULL;
    double y[3], dx[3];
    desc.kind = RG_NEURON_POWER;
    desc.a = 0.5;
    desc.b = 1;
    desc.c = 3;
    desc.has_a = desc.has_b = desc.has_c = true;
    EXPECT_OK(rg_neuron_create(r->device, &desc, &kernel));
    rg_tensor *x = of_values(r, 1, DIMS(3), in), *dy = of_values(r, 1, DIMS(3), ones);
    rg_tensor *out = tensor_of(r->device, RG_F64, 1, DIMS(3));
    rg_tensor *back = tensor_of(r->device, RG_F64, 1, DIMS(3));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &out, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &back, 0));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(out, y, sizeof y, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(back, dx, sizeof dx, RG_LAYOUT_SAME));
    for (int i = 0; i < 3; i++) {
        const double z = 0.5 * in[i] + 1;
        EXPECT(fabs(y[i] - z * z * z) < 1e-12 && fabs(dx[i] - 1.5 * z * z) < 1e-12);
    }
    drop((rg_tensor *[]){ x, dy, out, back }, 4);
    rg_kernel_destroy(kernel);
}

/* MPSCNNAddGradient, …SubtractGradient, …MultiplyGradient: isSecondarySourceFilter is dx[1]. */
static void test_arithmetic_gradients(rig *r)
{
    static const double a[2] = { 3, 4 }, b[2] = { 5, 8 }, slope[2] = { 1, 2 };
    static const double want[3][2][2] = { { { 1, 2 }, { 1, 2 } },
                                          { { 1, 2 }, { -1, -2 } },
                                          { { 5, 16 }, { 3, 8 } } };
    rg_tensor *x[] = { of_values(r, 3, DIMS(1, 1, 2), a), of_values(r, 3, DIMS(1, 1, 2), b) };
    rg_tensor *dy = of_values(r, 3, DIMS(1, 1, 2), slope);
    rg_tensor *dx[] = { tensor_of(r->device, RG_F64, 3, DIMS(1, 1, 2)),
                        tensor_of(r->device, RG_F64, 3, DIMS(1, 1, 2)) };
    for (int kind = RG_ARITHMETIC_ADD; kind <= RG_ARITHMETIC_MULTIPLY; kind++) {
        rg_arithmetic_desc desc = rg_arithmetic_desc_default();
        rg_kernel *kernel = NULL;
        double got[2];
        desc.kind = (rg_arithmetic_kind)kind;
        EXPECT_OK(rg_arithmetic_create(r->device, &desc, &kernel));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, x, NULL, NULL, dx, 0));
        EXPECT_OK(rig_run(r));
        for (int i = 0; i < 2; i++) {
            EXPECT_OK(rg_tensor_read(dx[i], got, sizeof got, RG_LAYOUT_SAME));
            EXPECT(memcmp(got, want[kind][i], sizeof got) == 0);
        }
        rg_kernel_destroy(kernel);
    }
    rg_arithmetic_desc compare = rg_arithmetic_desc_default(); /* MPSNNCompare has none */
    rg_kernel *kernel = NULL;
    compare.kind = RG_ARITHMETIC_COMPARE;
    EXPECT_OK(rg_arithmetic_create(r->device, &compare, &kernel));
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, x, NULL, NULL, dx, 0), RG_UNSUPPORTED,
                 "no gradient");
    rg_kernel_destroy(kernel);
    drop((rg_tensor *[]){ x[0], x[1], dy, dx[0], dx[1] }, 5);
}

/* MPSNNReductionSpatialMeanGradientNode: each pixel has 1 / (w h) of the gradient. */
static void test_spatial_mean(rig *r)
{
    static const double slope[2] = { 12, 24 };
    rg_reduce_desc desc = rg_reduce_desc_default();
    rg_kernel *kernel = NULL;
    double got[12];
    desc.kind = RG_REDUCE_MEAN;
    desc.dims_count = 2;
    desc.dims[0] = -3;
    desc.dims[1] = -2;
    desc.keep_dims = true;
    EXPECT_OK(rg_reduce_create(r->device, &desc, &kernel));
    rg_tensor *dy = of_values(r, 4, DIMS(1, 1, 1, 2), slope);
    rg_tensor *dx = tensor_of(r->device, RG_F64, 4, DIMS(1, 2, 3, 2));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, NULL, &dx, 0));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(dx, got, sizeof got, RG_LAYOUT_SAME));
    for (int i = 0; i < 12; i++)
        EXPECT(is_near(got[i], slope[i % 2] / 6, 1e-15));
    rg_tensor_destroy(dy);
    rg_tensor_destroy(dx);
    rg_kernel_destroy(kernel);
}

/* destinationImageDescriptorForSourceImages:: the policy of a descriptor, resolved, is what the
 * kernel's results have. */
static void test_resolved_padding(rig *r)
{
    static const rg_padding_policy policies[] = { RG_PADDING_VALID, RG_PADDING_SAME,
                                                  RG_PADDING_FULL };
    for (int i = 0; i < 3; i++) {
        const rg_window window = {
            .source = { 7, 8 }, .window = { 3, 2 }, .stride = { 2, 3 }, .dilation = { 1, 2 }
        };
        rg_conv_desc conv = rg_conv_desc_default();
        rg_pool_desc pool = rg_pool_desc_default();
        rg_placement placement = { .output = { 0 } };
        rg_kernel *kernels[2] = { NULL };
        conv.padding.policy = pool.padding.policy = policies[i];
        conv.bias = false;
        for (int axis = 0; axis < 2; axis++) {
            pool.window[axis] = window.window[axis];
            conv.stride[axis] = pool.stride[axis] = window.stride[axis];
            conv.dilation[axis] = pool.dilation[axis] = window.dilation[axis];
        }
        EXPECT_OK(rg_padding_resolve(&pool.padding, &window, &placement));
        EXPECT_OK(rg_pool_create(r->device, &pool, &kernels[0]));
        EXPECT_OK(rg_conv_create(r->device, &conv, &kernels[1]));
        const rg_tensor_desc x[] = { rg_tensor_desc_dense(RG_F32, 4, DIMS(1, 7, 8, 2)),
                                     rg_tensor_desc_dense(RG_F32, 4, DIMS(5, 3, 2, 2)) };
        for (int k = 0; k < 2; k++) {
            rg_tensor_desc y = { 0 };
            EXPECT_OK(rg_kernel_shapes(kernels[k], x, &y));
            EXPECT(y.dims[1] == placement.output[0] && y.dims[2] == placement.output[1]);
            rg_kernel_destroy(kernels[k]);
        }
    }
}

/* ---- what is two kernels here ---- */

/* MPSMatrixNeuron with alpha and a bias vector, and resultGradientForBiasVector: a sum before it.
 */
static void test_matrix_neuron_bias(rig *r)
{
    rg_arithmetic_desc sum = rg_arithmetic_desc_default();
    rg_neuron_desc neuron = rg_neuron_desc_default();
    rg_kernel *kernels[2] = { NULL };
    double x[12], b[4], dy[12], y[12], z[12], dx[12], db[4];
    sum.primary_scale = 0.5;
    neuron.kind = RG_NEURON_TANH;
    EXPECT_OK(rg_arithmetic_create(r->device, &sum, &kernels[0]));
    EXPECT_OK(rg_neuron_create(r->device, &neuron, &kernels[1]));
    rg_tensor *in[] = { drawn(r, 2, DIMS(ROWS, COLUMNS), 1, x), drawn(r, 1, DIMS(COLUMNS), 2, b) };
    rg_tensor *up = drawn(r, 2, DIMS(ROWS, COLUMNS), 3, dy), *dz = NULL, *back[2] = { NULL };
    rg_tensor *middle = run_forward(r, kernels[0], in, z);
    rg_tensor *out = run_forward(r, kernels[1], &middle, y);
    EXPECT_OK(rg_kernel_gradient_alloc(kernels[1], r->commands, 1, &up, &middle, NULL, NULL, 1,
                                       false, &dz));
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernels[0], r->commands, 1, &dz, in, NULL, NULL, 3, false, back));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(back[0], dx, sizeof dx, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(back[1], db, sizeof db, RG_LAYOUT_SAME));
    for (int c = 0; c < COLUMNS; c++) {
        double total = 0;
        for (int i = c; i < ROWS * COLUMNS; i += COLUMNS) {
            const double want = tanh(0.5 * x[i] + b[c]), slope = dy[i] * (1 - want * want);
            EXPECT(is_near(y[i], want, 1e-12) && is_near(dx[i], 0.5 * slope, 1e-12));
            total += slope;
        }
        EXPECT(is_near(db[c], total, 1e-12));
    }
    drop((rg_tensor *[]){ in[0], in[1], up, dz, middle, out, back[0], back[1] }, 8);
    rg_kernel_destroy(kernels[0]);
    rg_kernel_destroy(kernels[1]);
}

/* Batch normalization in a convolution's descriptor, for inference: W I and b I + J, with
 * I = gamma / sqrt(variance + epsilon), J = beta - I mean; by a batch normalization behind it. */
static void test_norm_of_convolution(rig *r)
{
    enum { OUT = 2, IN = 3, PIXELS = 6 };
    rg_conv_desc conv = rg_conv_desc_default();
    rg_batch_norm_desc norm = rg_batch_norm_desc_default();
    rg_kernel *kernels[2] = { NULL };
    double x[PIXELS * IN], w[OUT * IN], rest[5][OUT], z[PIXELS * OUT], y[PIXELS * OUT];
    norm.statistics = RG_BATCH_NORM_GIVEN;
    norm.epsilon = 0.125;
    EXPECT_OK(rg_conv_create(r->device, &conv, &kernels[0]));
    EXPECT_OK(rg_batch_norm_create(r->device, &norm, &kernels[1]));
    rg_tensor *in[] = { drawn(r, 4, DIMS(1, 2, 3, IN), 1, x),
                        drawn(r, 4, DIMS(OUT, 1, 1, IN), 2, w),
                        drawn(r, 1, DIMS(OUT), 3, rest[0]) };
    rg_tensor *middle = run_forward(r, kernels[0], in, z), *given[5] = { middle };
    for (int i = 1; i < 5; i++) { /* gamma, beta, mean, variance */
        given[i] = drawn(r, 1, DIMS(OUT), 3 + (uint64_t)i, rest[i]);
        for (int o = 0; o < OUT && i == 4; o++)
            rest[i][o] = rest[i][o] * rest[i][o];
        EXPECT_OK(rg_tensor_write(given[i], rest[i], sizeof rest[i], RG_LAYOUT_SAME));
    }
    rg_tensor *out = run_forward(r, kernels[1], given, y);
    for (int p = 0; p < PIXELS; p++) {
        for (int o = 0; o < OUT; o++) {
            const double scale = rest[1][o] / sqrt(rest[4][o] + 0.125);
            double sum = rest[0][o] * scale + rest[2][o] - scale * rest[3][o];
            for (int i = 0; i < IN; i++)
                sum += x[p * IN + i] * w[o * IN + i] * scale;
            EXPECT(is_near(y[p * OUT + o], sum, 1e-12));
        }
    }
    drop(in, 3);
    drop(given, 5);
    rg_tensor_destroy(out);
    rg_kernel_destroy(kernels[0]);
    rg_kernel_destroy(kernels[1]);
}

/* MPSNNReduceFeatureChannelsAndWeightsSum, …Mean: a product, then a reduction. */
static void test_weighted_sums(rig *r)
{
    rg_arithmetic_desc product = rg_arithmetic_desc_default();
    rg_kernel *multiply = NULL;
    double x[24], w[24], z[24], y[6];
    product.kind = RG_ARITHMETIC_MULTIPLY;
    EXPECT_OK(rg_arithmetic_create(r->device, &product, &multiply));
    rg_tensor *in[] = { drawn(r, 3, DIMS(2, 3, 4), 1, x), drawn(r, 3, DIMS(2, 3, 4), 2, w) };
    rg_tensor *middle = run_forward(r, multiply, in, z);
    for (int mean = 0; mean < 2; mean++) {
        rg_reduce_desc desc = rg_reduce_desc_default();
        rg_kernel *reduce = NULL;
        desc.kind = mean ? RG_REDUCE_MEAN : RG_REDUCE_SUM;
        desc.dims_count = 1;
        desc.dims[0] = -1;
        desc.keep_dims = true;
        EXPECT_OK(rg_reduce_create(r->device, &desc, &reduce));
        rg_tensor *out = run_forward(r, reduce, &middle, y);
        for (int p = 0; p < 6; p++) {
            double sum = 0;
            for (int c = 0; c < 4; c++)
                sum += x[4 * p + c] * w[4 * p + c];
            EXPECT(is_near(y[p], mean ? sum / 4 : sum, 1e-12));
        }
        rg_tensor_destroy(out);
        rg_kernel_destroy(reduce);
    }
    drop((rg_tensor *[]){ in[0], in[1], middle }, 3);
    rg_kernel_destroy(multiply);
}

/* An edge mode of clamp in spatial normalization: the image padded by clamping, and the clip of it
 * that was there before. */
static void test_clamped_edges(rig *r)
{
    enum { HEIGHT = 4, WIDTH = 5, HALF = 1 };
    rg_pad_desc pad = rg_pad_desc_default();
    rg_spatial_norm_desc norm = rg_spatial_norm_desc_default();
    rg_kernel *kernels[2] = { NULL };
    double x[HEIGHT * WIDTH], z[MOST], y[HEIGHT * WIDTH];
    pad.mode = RG_PAD_CLAMP;
    for (int axis = 0; axis < 2; axis++) {
        pad.before[1 + axis] = pad.after[1 + axis] = norm.offset[axis] = HALF;
        norm.window[axis] = 2 * HALF + 1;
    }
    norm.beta = 0.5;
    norm.output[0] = HEIGHT;
    norm.output[1] = WIDTH;
    EXPECT_OK(rg_pad_create(r->device, &pad, &kernels[0]));
    EXPECT_OK(rg_spatial_norm_create(r->device, &norm, &kernels[1]));
    rg_tensor *image = drawn(r, 4, DIMS(1, HEIGHT, WIDTH, 1), 1, x);
    rg_tensor *wide = run_forward(r, kernels[0], &image, z);
    rg_tensor *out = run_forward(r, kernels[1], &wide, y);
    for (int i = 0; i < HEIGHT; i++) {
        for (int j = 0; j < WIDTH; j++) {
            double squares = 0;
            for (int p = i - HALF; p <= i + HALF; p++) {
                for (int q = j - HALF; q <= j + HALF; q++) {
                    const int row = p < 0 ? 0 : p < HEIGHT ? p : HEIGHT - 1;
                    const int column = q < 0 ? 0 : q < WIDTH ? q : WIDTH - 1;
                    squares += x[row * WIDTH + column] * x[row * WIDTH + column];
                }
            }
            EXPECT(is_near(y[i * WIDTH + j], x[i * WIDTH + j] / sqrt(1 + squares / 9), 1e-12));
        }
    }
    drop((rg_tensor *[]){ image, wide, out }, 3);
    rg_kernel_destroy(kernels[0]);
    rg_kernel_destroy(kernels[1]);
}

/* ---- what is a write here ---- */

/* reloadWeightsAndBiases, reloadGammaAndBeta and exports: parameters are tensors of the caller, and
 * what is written to them is what the next run reads. */
static void test_reload(rig *r)
{
    rg_batch_norm_desc norm = rg_batch_norm_desc_default();
    rg_conv_desc conv = rg_conv_desc_default();
    rg_kernel *kernels[2] = { NULL };
    double x[4], y[2][4], one[1] = { 1 }, two[1] = { 2 }, got[1] = { 0 };
    norm.statistics = RG_BATCH_NORM_GIVEN;
    norm.epsilon = 0;
    EXPECT_OK(rg_conv_create(r->device, &conv, &kernels[0]));
    EXPECT_OK(rg_batch_norm_create(r->device, &norm, &kernels[1]));
    rg_tensor *image = drawn(r, 4, DIMS(1, 2, 2, 1), 1, x);
    rg_tensor *w = of_values(r, 4, DIMS(1, 1, 1, 1), one), *b = of_values(r, 1, DIMS(1), one);
    rg_tensor *gamma = of_values(r, 1, DIMS(1), one), *variance = of_values(r, 1, DIMS(1), one);
    rg_tensor *mean = of_values(r, 1, DIMS(1), (double[]){ 0 });
    for (int run = 0; run < 2; run++) {
        rg_tensor *out[] = {
            run_forward(r, kernels[0], (rg_tensor *[]){ image, w, b }, y[0]),
            run_forward(r, kernels[1], (rg_tensor *[]){ image, gamma, b, mean, variance }, y[1])
        };
        for (int i = 0; i < 4; i++)
            EXPECT(is_near(y[0][i], (1 + run) * x[i] + 1, 1e-12) &&
                   is_near(y[1][i], y[0][i], 1e-12));
        EXPECT_OK(rg_tensor_write(w, two, sizeof two, RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_write(gamma, two, sizeof two, RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_read(w, got, sizeof got, RG_LAYOUT_SAME));
        EXPECT(got[0] == 2);
        drop(out, 2);
    }
    drop((rg_tensor *[]){ image, w, b, gamma, variance, mean }, 6);
    rg_kernel_destroy(kernels[0]);
    rg_kernel_destroy(kernels[1]);
}

/* secondaryOffset of a dropout's gradient: pixel p has the mask of pixel p + offset. The gradient
 * is a slice, at the offset, of tensors of the size of x. */
static void test_dropout_offset(rig *r)
{
    enum { HEIGHT = 4, WIDTH = 5, CLIP = 3 };
    const rg_dropout_desc desc = rg_dropout_desc_default();
    rg_kernel *kernel = NULL;
    rg_state *state = NULL;
    double y[HEIGHT * WIDTH], dy[CLIP * CLIP], dx[CLIP * CLIP], ones[HEIGHT * WIDTH];
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        ones[i] = 1;
    EXPECT_OK(rg_dropout_create(r->device, &desc, &kernel));
    rg_tensor *x = of_values(r, 3, DIMS(HEIGHT, WIDTH, 1), ones), *out = NULL, *back = NULL;
    rg_tensor *wide = of_values(r, 3, DIMS(HEIGHT, WIDTH, 1), ones), *parts[2] = { NULL };
    EXPECT_OK(rg_tensor_slice(wide, DIMS(1, 2, 0), DIMS(CLIP, CLIP, 1), NULL, &parts[0]));
    fill(parts[0], 3);
    EXPECT_OK(rg_tensor_read(parts[0], dy, sizeof dy, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &out, &state));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &wide, NULL, NULL, &state, 1, false,
                                       &back));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_slice(back, DIMS(1, 2, 0), DIMS(CLIP, CLIP, 1), NULL, &parts[1]));
    EXPECT_OK(rg_tensor_read(parts[1], dx, sizeof dx, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(out, y, sizeof y, RG_LAYOUT_SAME)); /* 0, or 1 / keep */
    for (int i = 0; i < CLIP * CLIP; i++)
        EXPECT(is_near(dx[i], dy[i] * y[(1 + i / CLIP) * WIDTH + 2 + i % CLIP], 1e-12));
    drop((rg_tensor *[]){ x, out, back, wide, parts[0], parts[1] }, 6);
    rg_state_destroy(state);
    rg_kernel_destroy(kernel);
}

/* ---- names for people ---- */

/* label of an image and of a command buffer, and its device. */
static void test_labels(rig *r)
{
    rg_tensor *image = tensor_of(r->device, RG_F32, 3, DIMS(2, 2, 1)), *part = NULL;
    char name[] = "input";
    EXPECT(strcmp(rg_tensor_label(image), "") == 0 &&
           strcmp(rg_commands_label(r->commands), "") == 0);
    EXPECT_OK(rg_tensor_set_label(image, name));
    EXPECT_OK(rg_commands_set_label(r->commands, "step 7"));
    name[0] = 0;
    EXPECT_OK(rg_tensor_slice(image, DIMS(0, 0, 0), DIMS(1, 2, 1), NULL, &part));
    EXPECT(strcmp(rg_tensor_label(image), "input") == 0 && strcmp(rg_tensor_label(part), "") == 0);
    EXPECT_OK(rg_tensor_set_label(image, "x"));
    EXPECT(strcmp(rg_tensor_label(image), "x") == 0);
    EXPECT(strcmp(rg_commands_label(r->commands), "step 7") == 0);
    EXPECT(rg_commands_device(r->commands) == r->device && rg_commands_device(NULL) == NULL);
    EXPECT(strcmp(rg_tensor_label(NULL), "") == 0 && strcmp(rg_commands_label(NULL), "") == 0);
    EXPECT_FAILS(rg_tensor_set_label(image, NULL), RG_INVALID_ARGUMENT, "label is NULL");
    EXPECT_FAILS(rg_commands_set_label(NULL, "x"), RG_INVALID_ARGUMENT, "commands is NULL");
    rg_tensor_destroy(part);
    rg_tensor_destroy(image);
}

/* Copying and coding of a state: what it holds is read, and written into one that another forward
 * pass has filled. The gradient is that of the first. */
static void test_state_copy(rig *r)
{
    const rg_pool_desc desc = rg_pool_desc_default();
    rg_kernel *kernel = NULL;
    rg_state *states[2] = { NULL };
    rg_tensor *x[2], *y[2], *dx[3], *from = NULL, *to = NULL;
    EXPECT_OK(rg_pool_create(r->device, &desc, &kernel));
    for (int n = 0; n < 2; n++) {
        x[n] = filled(r->device, RG_F64, 3, DIMS(4, 6, 2), 1 + (uint64_t)n);
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x[n], false, &y[n], &states[n]));
    }
    for (int n = 0; n < 2; n++)
        EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, y, NULL, NULL, &states[n], 1,
                                           false, &dx[n]));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_state_tensor(states[0], "winners", &from));
    EXPECT_OK(rg_state_tensor(states[1], "winners", &to));
    char *held = elements_of(from);
    EXPECT_OK(rg_tensor_write(to, held, bytes_of(to), RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, y, NULL, NULL, &states[1], 1, false,
                                       &dx[2]));
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(dx[0], dx[2]) && !same_bits(dx[0], dx[1]));
    free(held);
    drop(x, 2);
    drop(y, 2);
    drop(dx, 3);
    rg_state_destroy(states[0]);
    rg_state_destroy(states[1]);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    RUN_ON_DEVICES(test_neuron, test_neuron_numbers, test_arithmetic_gradients, test_spatial_mean,
                   test_resolved_padding, test_matrix_neuron_bias, test_norm_of_convolution,
                   test_weighted_sums, test_clamped_edges, test_reload, test_dropout_offset,
                   test_labels, test_state_copy);
    return rg_test_report();
}
