/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Operators by name from C: all names can be looked up and created, and some are run. */
#include "any_device.h"

#include <retrograde/files.h>
#include <retrograde/operator.h>

static void test_names(void)
{
    rg_operator_info info;
    const int32_t count = rg_operator_count();
    EXPECT(count > 150);
    for (int32_t i = 0; i < count; i++) {
        rg_operator_info again;
        EXPECT_OK(rg_operator_get(i, &info));
        EXPECT(info.inputs > 0 && info.outputs > 0 && info.op != NULL && info.domain != NULL);
        EXPECT_OK(rg_operator_find(info.name, &again));
        EXPECT(strcmp(again.op, info.op) == 0 && again.gradient == info.gradient);
    }
    EXPECT_FAILS(rg_operator_get(count, &info), RG_INVALID_ARGUMENT, "out of range");
    EXPECT_FAILS(rg_operator_find("MPSCNNPoolingMaximum", &info), RG_INVALID_ARGUMENT,
                 "did you mean 'MPSCNNPoolingMax'?");
    EXPECT_OK(rg_operator_find("SoftmaxGrad_13", &info));
    EXPECT(info.gradient && strcmp(info.domain, "com.microsoft") == 0 && info.inputs == 2);
}

static rg_tensor *made_of(rg_device *device, int32_t rank, const int64_t dims[],
                          const float values[])
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, rank, dims);
    size_t bytes = sizeof(float);
    for (int32_t d = 0; d < rank; d++)
        bytes *= (size_t)dims[d];
    rg_tensor *tensor;
    EXPECT_OK(rg_tensor_create(device, &desc, &tensor));
    EXPECT_OK(rg_tensor_write(tensor, values, bytes, RG_LAYOUT_SAME));
    return tensor;
}

/* Images of two channels (n, c, h, w): the maxima of each channel, not of neighbouring channels. */
static void test_onnx(rig *r)
{
    rg_device *device = r->device;
    rg_queue *queue = r->queue;
    const float values[] = { 1, 2, 3, 4, 8, 7, 6, 5 };
    const int64_t dims[] = { 1, 2, 2, 2 };
    const rg_attribute window = { .name = "kernel_shape", .text = "2,2" };
    rg_tensor *x = made_of(device, 4, dims, values), *out[2];
    rg_operator *pool;
    rg_commands *commands;
    float y[2];
    int64_t indices[2];
    EXPECT_OK(rg_operator_create(device, "MaxPool", &window, 1, &pool));
    EXPECT(strcmp(rg_operator_input(pool, 0), "X") == 0 && rg_operator_input(pool, 1) == NULL);
    EXPECT(strcmp(rg_operator_output(pool, 1), "Indices") == 0);
    EXPECT_OK(rg_commands_create(queue, &commands));
    EXPECT_OK(rg_operator_run(pool, commands, &x, 1, 3, out));
    EXPECT_OK(rg_commands_commit(commands));
    EXPECT_OK(rg_commands_wait(commands));
    EXPECT_OK(rg_tensor_read(out[0], y, sizeof y, RG_LAYOUT_SAME));
    EXPECT(y[0] == 4 && y[1] == 8);
    EXPECT_OK(rg_tensor_read(out[1], indices, sizeof indices, RG_LAYOUT_SAME));
    EXPECT(indices[0] == 3 && indices[1] == 4);
    rg_tensor_destroy(out[0]);
    rg_tensor_destroy(out[1]);
    rg_commands_destroy(commands);
    EXPECT_OK(rg_commands_create(queue, &commands));
    EXPECT_FAILS(rg_operator_run(pool, commands, NULL, 0, 1, out), RG_INVALID_ARGUMENT,
                 "MaxPool: the input X is missing");
    EXPECT_FAILS(rg_operator_run(pool, commands, &x, 1, 4, out), RG_INVALID_ARGUMENT, "results");
    rg_commands_destroy(commands);
    rg_tensor_destroy(x);
    rg_operator_destroy(pool);
    rg_operator_destroy(NULL);
}

/* ONNX's data is (n, c, h, w), and so are weights, results and indices. */
static void test_channels(rig *r)
{
    const int64_t dims[] = { 1, 2, 1, 3 }, window[] = { 1, 2, 1, 2 };
    rg_tensor *in[] = { made_of(r->device, 4, dims, (float[]){ 1, 5, 2, 30, 10, 20 }),
                        made_of(r->device, 4, window, (float[]){ 1, 100, 2, 200 }) };
    const rg_attribute size = { .name = "kernel_shape", .text = "1,2" };
    rg_tensor *out[2] = { NULL };
    rg_operator *op;
    float y[4];
    int64_t indices[4];
    EXPECT_OK(rg_operator_create(r->device, "MaxPool", &size, 1, &op));
    EXPECT_OK(rg_operator_run(op, r->commands, in, 1, 3, out));
    rg_operator_destroy(op);
    EXPECT_OK(rig_run(r));
    for (int i = 0; i < 2; i++) {
        rg_tensor_desc desc = { 0 };
        EXPECT_OK(rg_tensor_get_desc(out[i], &desc));
        EXPECT(desc.rank == 4 && desc.dims[1] == 2 && desc.dims[2] == 1 && desc.dims[3] == 2);
    }
    EXPECT_OK(rg_tensor_read(out[0], y, sizeof y, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(out[1], indices, sizeof indices, RG_LAYOUT_SAME));
    EXPECT(y[0] == 5 && y[1] == 5 && y[2] == 30 && y[3] == 20);
    EXPECT(indices[0] == 1 && indices[1] == 1 && indices[2] == 3 && indices[3] == 5);
    rg_tensor_destroy(out[0]);
    rg_tensor_destroy(out[1]);
    EXPECT_OK(rg_operator_create(r->device, "Conv", NULL, 0, &op));
    EXPECT_OK(rg_operator_run(op, r->commands, in, 2, 1, out));
    rg_operator_destroy(op);
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(out[0], y, 2 * sizeof y[0], RG_LAYOUT_SAME));
    EXPECT(y[0] == 501 + 2060 && y[1] == 205 + 4020);
    rg_tensor_destroy(out[0]);
    rg_tensor_destroy(in[0]);
    rg_tensor_destroy(in[1]);
}

/* Windows of one pixel that are six apart: the pixel that ONNX Runtime 1.31.1 takes. */
static void test_same(rig *r)
{
    rg_device *device = r->device;
    rg_queue *queue = r->queue;
    static const char *const pads[] = { "SAME_UPPER", "SAME_LOWER" };
    const int64_t dims[] = { 1, 1, 1, 6 }, window[] = { 1, 1, 1, 1 };
    rg_tensor *in[] = { made_of(device, 4, dims, (float[]){ 0, 1, 2, 3, 4, 5 }),
                        made_of(device, 4, window, (float[]){ 1 }) };
    for (int i = 0; i < 2; i++) {
        const rg_attribute attributes[] = { { .name = "auto_pad", .text = pads[i] },
                                            { .name = "strides", .text = "1,6" } };
        rg_operator *op;
        rg_commands *commands;
        rg_tensor *y;
        float pixel = 0;
        EXPECT_OK(rg_operator_create(device, "Conv", attributes, 2, &op));
        EXPECT_OK(rg_commands_create(queue, &commands));
        EXPECT_OK(rg_operator_run(op, commands, in, 2, 1, &y));
        EXPECT_OK(rg_commands_commit(commands));
        EXPECT_OK(rg_commands_wait(commands));
        EXPECT_OK(rg_tensor_read(y, &pixel, sizeof pixel, RG_LAYOUT_SAME));
        EXPECT(pixel == (float)(2 - i));
        rg_tensor_destroy(y);
        rg_commands_destroy(commands);
        rg_operator_destroy(op);
    }
    rg_tensor_destroy(in[0]);
    rg_tensor_destroy(in[1]);
}

/* One run of an operator with one input and one result. */
static int64_t run_one(rig *r, const char *name, const rg_attribute attributes[], int32_t count,
                       rg_tensor *x, float values[], size_t capacity)
{
    rg_operator *op;
    rg_tensor *made[2] = { NULL }; /* MaxPool has two */
    int64_t elements = 0;
    EXPECT_OK(rg_operator_create(r->device, name, attributes, count, &op));
    EXPECT_OK(rg_operator_run(op, r->commands, &x, 1, 1, made));
    EXPECT_OK(rig_run(r));
    rg_tensor *y = made[0];
    if (y != NULL) {
        elements = count_of(y);
        EXPECT((size_t)elements <= capacity);
        EXPECT_OK(rg_tensor_read(y, values, bytes_of(y), RG_LAYOUT_SAME));
    }
    rg_tensor_destroy(y);
    rg_operator_destroy(op);
    return elements;
}

/* Where ONNX Runtime 1.31.1 has rules of its own: SAME with dilations, a window longer than the
 * image, as many pixels as before, and a scale whose f32 is below it. */
static void test_edges(rig *r)
{
    const int64_t dims[] = { 1, 1, 1, 5 };
    rg_tensor *x = made_of(r->device, 4, dims, (float[]){ 1, 2, 3, 4, 5 });
    const rg_attribute dilated[] = { { .name = "kernel_shape", .text = "1,2" },
                                     { .name = "dilations", .text = "1,3" },
                                     { .name = "auto_pad", .text = "SAME_UPPER" } };
    const rg_attribute longer[] = { { .name = "kernel_shape", .text = "1,6" },
                                    { .name = "strides", .text = "1,2" } };
    const rg_attribute nowhere = { .name = "kernel_shape", .text = "1,6" };
    const double scales[2][4] = { { 1, 1, 1, 1.15F }, { 1, 1, 1, 2.6F } };
    const rg_attribute linear = { .name = "mode", .text = "linear" };
    rg_tensor *y[2];
    rg_operator *op;
    float values[16];
    EXPECT(run_one(r, "MaxPool", dilated, 3, x, values, 16) == 3);
    EXPECT(values[0] == 4 && values[1] == 5 && values[2] == 3);
    EXPECT(run_one(r, "AveragePool", longer, 2, x, values, 16) == 1 && values[0] == 3);
    for (int i = 0; i < 2; i++) {
        const rg_attribute both[] = { linear,
                                      { .name = "scales", .floats = scales[i], .count = 4 } };
        EXPECT(run_one(r, "Resize", both, 2, x, values, 16) == (i == 0 ? 5 : 13));
        EXPECT(i == 1 || (values[1] == 2 && values[4] == 5));
    }
    const rg_attribute back[] = { { .name = "starts", .text = "-1" },
                                  { .name = "ends", .text = "-100" },
                                  { .name = "axes", .text = "3" },
                                  { .name = "steps", .text = "-2" } };
    EXPECT(run_one(r, "Slice", back, 4, x, values, 16) == 3);
    EXPECT(values[0] == 5 && values[1] == 3 && values[2] == 1);
    EXPECT_OK(rg_operator_create(r->device, "MaxPool", &nowhere, 1, &op));
    EXPECT_FAILS(rg_operator_run(op, r->commands, &x, 1, 1, y), RG_INVALID_ARGUMENT,
                 "does not fit");
    rg_operator_destroy(op);
    rg_tensor_destroy(x);
}

/* The gradient of a multiplication reads the other operand alone, as MPS's class does. */
/* Both axes of (3, 151, 100) down, by blocks: more elements than are copied one by one. */
static void test_reversed(rig *r)
{
    enum { IMAGES = 3, ROWS = 151, COLUMNS = 100, COUNT = IMAGES * ROWS * COLUMNS };
    static float values[COUNT], got[COUNT];
    const int64_t dims[] = { IMAGES, ROWS, COLUMNS };
    const rg_attribute down[] = { { .name = "starts", .text = "-1,-1" },
                                  { .name = "ends", .text = "-1000,-1000" },
                                  { .name = "axes", .text = "1,2" },
                                  { .name = "steps", .text = "-1,-3" } };
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    rg_tensor *x = made_of(r->device, 3, dims, values);
    enum { TAKEN = (COLUMNS + 2) / 3 };
    EXPECT(run_one(r, "Slice", down, 4, x, got, COUNT) == IMAGES * ROWS * TAKEN);
    int wrong = 0;
    for (int i = 0; i < IMAGES * ROWS * TAKEN; i++) {
        const int row = ROWS - 1 - i / TAKEN % ROWS, column = COLUMNS - 1 - 3 * (i % TAKEN);
        wrong += got[i] != values[(i / TAKEN / ROWS * ROWS + row) * COLUMNS + column];
    }
    EXPECT(wrong == 0);
    rg_tensor_destroy(x);
}

static void refuse(rig *r, const char *name, const rg_attribute attributes[], int32_t count,
                   rg_tensor *const in[], int32_t inputs, rg_status status, const char *words)
{
    rg_tensor *out[8];
    rg_operator *op;
    EXPECT_OK(rg_operator_create(r->device, name, attributes, count, &op));
    EXPECT_FAILS(rg_operator_run(op, r->commands, in, inputs, 1, out), status, words);
    EXPECT(out[0] == NULL);
    rg_operator_destroy(op);
}

/* Statistics that cannot be read yet, windows whose length overflows, sizes that wrap. */
static void test_wrong(rig *r)
{
    const float ones[] = { 1, 1, 1, 1, 1, 1 };
    const int64_t dims[] = { 1, 1, 2, 3 }, matrix[] = { 2, 3 }, three[] = { 3 };
    const rg_tensor_desc saved = rg_tensor_desc_dense(RG_F32, 2, (int64_t[]){ 2, 1 });
    rg_tensor *x = made_of(r->device, 4, dims, ones), *in[6] = { NULL };
    in[0] = made_of(r->device, 2, matrix, ones);
    in[1] = made_of(r->device, 2, matrix, ones);
    in[2] = made_of(r->device, 1, three, ones);
    EXPECT_OK(rg_tensor_create_temporary(r->commands, &saved, &in[3]));
    EXPECT_OK(rg_tensor_create_temporary(r->commands, &saved, &in[4]));
    refuse(r, "LayerNormalizationGrad", NULL, 0, in, 5, RG_INVALID_ARGUMENT, "is a temporary");
    const rg_attribute wide[] = { { .name = "kernel_shape", .text = "2147483647,1" },
                                  { .name = "dilations", .text = "2147483647,1" },
                                  { .name = "strides", .text = "1,9" },
                                  { .name = "auto_pad", .text = "SAME_UPPER" } };
    refuse(r, "MaxPool", wide, 4, &x, 1, RG_UNSUPPORTED, "is too large");
    const rg_attribute sized[] = { { .name = "axes", .text = "2,3" },
                                   { .name = "sizes", .text = "1000000000001,1500000000002" },
                                   { .name = "keep_aspect_ratio_policy", .text = "not_larger" } };
    refuse(r, "Resize", sized, 3, &x, 1, RG_UNSUPPORTED, "at most 2147483647 pixels");
    refuse(r, "Relu", NULL, 0, in, 3, RG_INVALID_ARGUMENT, "Relu has at most 1 inputs");
    rg_tensor_destroy(x);
    for (int i = 0; i < 5; i++)
        rg_tensor_destroy(in[i]);
}

static void test_mps(rig *r)
{
    rg_device *device = r->device;
    rg_queue *queue = r->queue;
    const int64_t dims[] = { 1, 1, 2 };
    rg_tensor *in[4] = { made_of(device, 3, dims, (float[]){ 1, 2 }), NULL,
                         made_of(device, 3, dims, (float[]){ 3, 4 }) };
    const rg_attribute scale = { .name = "primary_scale", .floats = (double[]){ 2 }, .count = 1 };
    const rg_attribute wrong = { .name = "scale", .text = "2" };
    rg_tensor *out[2];
    rg_operator *op;
    rg_commands *commands;
    float dx[2];
    EXPECT_FAILS(rg_operator_create(device, "MPSCNNMultiplyGradient", &wrong, 1, &op),
                 RG_INVALID_ARGUMENT, "scale");
    EXPECT(op == NULL);
    const rg_attribute kind = { .name = "kind", .text = "multiply" };
    EXPECT_OK(rg_operator_create(device, "MPSCNNArithmeticGradient", &kind, 1, &op));
    EXPECT(strcmp(rg_operator_input(op, 2), "sourceImage") == 0);
    EXPECT_OK(rg_commands_create(queue, &commands));
    EXPECT_FAILS(rg_operator_run(op, commands, in, 2, 1, out), RG_INVALID_ARGUMENT,
                 "the gradient reads sourceImage, which is missing");
    EXPECT_OK(rg_operator_run(op, commands, in, 3, 1, out));
    EXPECT_OK(rg_commands_commit(commands));
    EXPECT_OK(rg_commands_wait(commands));
    EXPECT_OK(rg_tensor_read(out[0], dx, sizeof dx, RG_LAYOUT_SAME));
    EXPECT(dx[0] == 3 && dx[1] == 8);
    rg_commands_destroy(commands);
    rg_tensor_destroy(out[0]);
    rg_operator_destroy(op);
    EXPECT_OK(rg_operator_create(device, "MPSCNNMultiplyGradient", &scale, 1, &op));
    EXPECT(strcmp(rg_operator_input(op, 0), "sourceGradient") == 0);
    EXPECT(strcmp(rg_operator_input(op, 2), "sourceImage") == 0);
    EXPECT_OK(rg_commands_create(queue, &commands));
    EXPECT_OK(rg_operator_run(op, commands, in, 3, 1, out));
    EXPECT_OK(rg_commands_commit(commands));
    EXPECT_OK(rg_commands_wait(commands));
    EXPECT_OK(rg_tensor_read(out[0], dx, sizeof dx, RG_LAYOUT_SAME));
    EXPECT(dx[0] == 6 && dx[1] == 16);
    rg_commands_destroy(commands);
    rg_tensor_destroy(out[0]);
    rg_tensor_destroy(in[0]);
    rg_tensor_destroy(in[2]);
    rg_operator_destroy(op);
}

/* The windows of a pooling node lie side by side where no stride is given. */
static void test_mps_pool(rig *r)
{
    const rg_attribute window = { .name = "window", .ints = (int64_t[]){ 3, 3 }, .count = 2 };
    const rg_attribute both[] = { { .name = "stride", .text = "1,1" }, window };
    const int64_t dims[] = { 1, 6, 6, 1 };
    float elements[36] = { 0 };
    rg_tensor *x = made_of(r->device, 4, dims, elements), *y[2];
    for (int given = 0; given < 2; given++) {
        rg_operator *op;
        rg_tensor_desc desc = { 0 };
        EXPECT_OK(rg_operator_create(r->device, "MPSCNNPoolingMaxNode", given ? both : &window,
                                     1 + given, &op));
        EXPECT_OK(rg_operator_run(op, r->commands, &x, 1, 1, y));
        EXPECT_OK(rig_run(r));
        EXPECT_OK(rg_tensor_get_desc(y[0], &desc));
        EXPECT(desc.dims[1] == (given ? 6 : 2) && desc.dims[2] == (given ? 6 : 2));
        rg_tensor_destroy(y[0]);
        rg_operator_destroy(op);
    }
    rg_tensor_destroy(x);
}

/* The gradient of a loss: the factor dy may be left out, and is 1 then. */
static void test_mps_loss(rig *r)
{
    const int64_t dims[] = { 1, 1, 2 };
    const rg_attribute kind[] = { { .name = "kind", .text = "mean_squared" },
                                  { .name = "reduction", .text = "none" } };
    rg_tensor *in[4] = { NULL, made_of(r->device, 3, dims, (float[]){ 1, 2 }),
                         made_of(r->device, 3, dims, (float[]){ 0, 4 }), NULL };
    rg_tensor *out[4] = { NULL };
    rg_operator *op;
    float dx[2] = { 0, 0 };
    EXPECT_OK(rg_operator_create(r->device, "MPSNNLossGradient", kind, 2, &op));
    EXPECT(strcmp(rg_operator_input(op, 0), "sourceGradient") == 0);
    EXPECT(strcmp(rg_operator_input(op, 1), "sourceImage") == 0);
    EXPECT_OK(rg_operator_run(op, r->commands, in, 3, 1, out));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(out[0], dx, sizeof dx, RG_LAYOUT_SAME));
    EXPECT(dx[0] == 2 && dx[1] == -4);
    rg_tensor_destroy(out[0]);
    rg_tensor_destroy(in[1]);
    rg_tensor_destroy(in[2]);
    rg_operator_destroy(op);
}

static void test_json(rig *r)
{
    rg_device *device = r->device;
    static const struct {
        const char *text, *words;
    } bad[] = {
        { "[]", "must be an object" },
        { "{\"operator\": \"Conv\"}", "expected \"retrograde\": 1" },
        { "{\"retrograde\": 1}", "expected \"operator\"" },
        { "{\"retrograde\": 1, \"operator\": \"Softmx\"}", "did you mean 'Softmax'?" },
        { "{\"retrograde\": 1, \"operator\": \"Conv\", \"desc\": {}}", "only the keys" },
        { "{\"retrograde\": 1, \"operator\": \"Conv\", \"attributes\": {\"pads\": {}}}",
          "array of numbers" },
        { "{\"retrograde\": 1, \"operator\": \"Conv\", \"attributes\": {\"pad\": 1}}",
          "did you mean 'pads'?" },
    };
    const char *good = "{\"retrograde\": 1, \"operator\": \"MaxPool\", \"attributes\": "
                       "{\"kernel_shape\": [2, 3], \"ceil_mode\": true}}";
    rg_operator *op, *again;
    char text[256], same[256];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT_FAILS(rg_operator_from_json(device, bad[i].text, strlen(bad[i].text), &op),
                     RG_MALFORMED, bad[i].words);
        EXPECT(op == NULL);
    }
    EXPECT_OK(rg_operator_from_json(device, good, strlen(good), &op));
    EXPECT(rg_operator_to_json(op, text, sizeof text) == strlen(text));
    EXPECT(strstr(text, "\"kernel_shape\": \"2,3\"") != NULL);
    EXPECT_OK(rg_operator_from_json(device, text, strlen(text), &again));
    rg_operator_to_json(again, same, sizeof same);
    EXPECT(strcmp(text, same) == 0);
    rg_operator_destroy(op);
    rg_operator_destroy(again);
}

int main(void)
{
    test_names();
    RUN_ON_DEVICES(test_onnx, test_channels, test_same, test_edges, test_reversed, test_wrong,
                   test_mps, test_mps_pool, test_mps_loss, test_json);
    return rg_test_report();
}
