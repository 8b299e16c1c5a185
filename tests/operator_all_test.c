/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Every operator by its name from C: each runs on small tensors, and the same operator from its
 * JSON gives the same bits. On any device. */
#include "any_device.h"

#include <retrograde/files.h>
#include <retrograde/operator.h>

enum { MOST = 16, MOST_ATTRIBUTES = 4, TEXT = 512 };

/* Dimensions of an input: what comes first fits. A name of an op or operator in `of`; NULL: any. */
static const struct {
    const char *of, *input;
    int32_t rank;
    int64_t dims[4];
} shapes[] = {
    { "conv", "weights", 4, { 4, 3, 3, 4 } },
    { "conv", "biasTerms", 1, { 4 } },
    { "conv_transpose", "weights", 4, { 4, 3, 3, 4 } },
    { "conv_transpose", "biasTerms", 1, { 4 } },
    { "dense", "weights", 4, { 5, 6, 6, 4 } },
    { "dense", "biasTerms", 1, { 5 } },
    { "dense", "biasVector", 1, { 4 } },
    { "dense", "b", 1, { 4 } },
    { "dense", "weightMatrix", 2, { 4, 4 } },
    { "dense", "rightMatrix", 2, { 4, 4 } },
    { "dense", "inputVector", 1, { 4 } },
    { "neuron", "a", 1, { 4 } },
    { "Conv", "W", 4, { 2, 2, 2, 2 } },
    { "ConvGrad", "W", 4, { 2, 2, 2, 2 } },
    { "ConvTranspose", "W", 4, { 2, 2, 2, 2 } },
    { "ConvTransposeGrad", "W", 4, { 2, 2, 2, 2 } },
    { "ConvTransposeGrad", "dY", 4, { 1, 2, 7, 7 } },
    { "ResizeGrad", "dY", 4, { 1, 2, 12, 12 } },
    { "AveragePoolGrad", "dY", 4, { 1, 2, 5, 5 } },
    { "MaxPoolGrad", "dY", 4, { 1, 2, 5, 5 } },
    { "MaxPoolGrad", "Indices", 4, { 1, 2, 5, 5 } },
    { "ConvGrad", "dY", 4, { 1, 2, 5, 5 } },
    { "SliceGrad", "dY", 4, { 1, 2, 6, 6 } },
    { "LayerNormalization", "Scale", 1, { 6 } },
    { "LayerNormalization", "B", 1, { 6 } },
    { "LayerNormalizationGrad", "scale", 1, { 6 } },
    { "LayerNormalizationGrad", "mean", 4, { 1, 2, 6, 1 } },
    { "LayerNormalizationGrad", "inv_std_dev", 4, { 1, 2, 6, 1 } },
    { "Gemm", "A", 2, { 3, 3 } },
    { "Gemm", "B", 2, { 3, 3 } },
    { "Gemm", "C", 1, { 3 } },
    { "FastGelu", "bias", 1, { 6 } },
    { "SoftmaxCrossEntropyLoss", "labels", 3, { 1, 6, 6 } },
    { "SoftmaxCrossEntropyLossGrad", "label", 3, { 1, 6, 6 } },
    { "SoftmaxCrossEntropyLossGrad", "dY", 0, { 0 } },
    { "NegativeLogLikelihoodLoss", "target", 3, { 1, 6, 6 } },
    { "Adam", NULL, 1, { 4 } },
    { "Momentum", NULL, 1, { 4 } },
    { "ai.onnx", "scale", 1, { 2 } },
    { "com.microsoft", "scale", 1, { 2 } },
    { "batch_norm", "B", 1, { 2 } },
    { "group_norm", "B", 1, { 2 } },
    { "conv", "B", 1, { 2 } },
    { "conv_transpose", "B", 1, { 2 } },
    { "ai.onnx", "bias", 1, { 2 } },
    { "ai.onnx", "weights", 1, { 2 } },
    { "ai.onnx", "weight", 1, { 2 } },
    { "com.microsoft", "weight", 1, { 2 } },
    { NULL, "gamma", 1, { 4 } },
    { NULL, "beta", 1, { 4 } },
    { "MPS", "mean", 1, { 4 } },
    { "MPS", "variance", 1, { 4 } },
    { NULL, "mean", 1, { 2 } },
    { NULL, "variance", 1, { 2 } },
    { NULL, "input_mean", 1, { 2 } },
    { NULL, "input_var", 1, { 2 } },
    { NULL, "gammaVector", 1, { 4 } },
    { NULL, "betaVector", 1, { 4 } },
    { NULL, "meanVector", 1, { 4 } },
    { NULL, "varianceVector", 1, { 4 } },
    { NULL, "inputValuesVector", 1, { 4 } },
    { NULL, "inputGradientVector", 1, { 4 } },
    { NULL, "inputMomentumVector", 1, { 4 } },
    { NULL, "inputVelocityVector", 1, { 4 } },
    { NULL, "inputSumOfSquaresVector", 1, { 4 } },
    { NULL, "inputMatrix", 2, { 3, 4 } },
    { NULL, "leftMatrix", 2, { 3, 4 } },
    { NULL, "learningRate", 0, { 0 } },
    { NULL, "timeStep", 0, { 0 } },
    { "MPS", NULL, 4, { 1, 6, 6, 4 } },
    { NULL, NULL, 4, { 1, 2, 6, 6 } },
};

/* Attributes that an operator does not run without. */
static const struct {
    const char *of;
    rg_attribute attributes[MOST_ATTRIBUTES];
} required[] = {
    { "MaxPool", { { .name = "kernel_shape", .text = "2,2" } } },
    { "AveragePool", { { .name = "kernel_shape", .text = "2,2" } } },
    { "LpPool", { { .name = "kernel_shape", .text = "2,2" } } },
    { "MaxPoolGrad", { { .name = "kernel_shape", .text = "2,2" } } },
    { "AveragePoolGrad", { { .name = "kernel_shape", .text = "2,2" } } },
    { "LRN", { { .name = "size", .text = "3" } } },
    { "GroupNormalization", { { .name = "num_groups", .text = "2" } } },
    { "Reshape", { { .name = "shape", .text = "-1" } } },
    { "Slice", { { .name = "starts", .text = "1" }, { .name = "ends", .text = "2" } } },
    { "SliceGrad",
      { { .name = "shape", .text = "2,2,6,6" },
        { .name = "starts", .text = "1" },
        { .name = "ends", .text = "2" } } },
    { "Split", { { .name = "axis", .text = "-1" }, { .name = "num_outputs", .text = "3" } } },
    { "Concat", { { .name = "axis", .text = "0" } } },
    { "ConcatTraining", { { .name = "axis", .text = "0" } } },
    { "Pad", { { .name = "pads", .text = "0,0,0,1,0,0,1,0" } } },
    { "PadGrad", { { .name = "pads", .text = "0,0,0,1,0,0,1,0" } } },
    { "Resize", { { .name = "scales", .text = "1,1,2,2" } } },
    { "ResizeGrad", { { .name = "scales", .text = "1,1,2,2" } } },
    { "BatchNormalization", { { .name = "training_mode", .text = "1" } } },
    { "Momentum",
      { { .name = "alpha", .text = "0.9" },
        { .name = "beta", .text = "1" },
        { .name = "norm_coefficient", .text = "0" },
        { .name = "mode", .text = "standard" } } },
};

static bool has_name(const rg_operator_info *info, const char *of)
{
    return of == NULL || strcmp(of, info->name) == 0 || strcmp(of, info->op) == 0 ||
           strcmp(of, info->domain) == 0;
}

static const rg_attribute *attributes_of(const rg_operator_info *info, int32_t *count)
{
    *count = 0;
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        if (strcmp(required[i].of, info->name) != 0)
            continue;
        while (*count < MOST_ATTRIBUTES && required[i].attributes[*count].name != NULL)
            (*count)++;
        return required[i].attributes;
    }
    return NULL;
}

static bool is_one_of(const char *name, const char *names)
{
    const char *at = strstr(names, name);
    const size_t length = strlen(name);
    return at != NULL && (at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0);
}

/* Numbers from 0.3 to 1.3; labels, indices and steps are integers. */
static rg_tensor *input_of(rg_device *device, const rg_operator_info *info, const char *name)
{
    const bool optimizes = is_one_of(info->name, "Adam Momentum");
    const bool is_scalar = optimizes && is_one_of(name, "R T");
    const bool is_integer = is_one_of(name, "label target Indices timeStep") ||
                            (optimizes && strcmp(name, "T") == 0) ||
                            (strcmp(name, "labels") == 0 && strcmp(info->domain, "MPS") != 0);
    size_t i = 0;
    while (!has_name(info, shapes[i].of) ||
           (shapes[i].input != NULL && strcmp(shapes[i].input, name) != 0))
        i++;
    rg_tensor *tensor = tensor_of(device, is_integer ? RG_I64 : RG_F32,
                                  is_scalar ? 0 : shapes[i].rank, shapes[i].dims);
    const int64_t count = count_of(tensor);
    char *values = calloc((size_t)count, sizeof(int64_t));
    for (int64_t k = 0; k < count; k++) {
        if (is_integer) /* the first pixel of each window, or class 1 */
            ((int64_t *)(void *)values)[k] =
                strcmp(name, "Indices") == 0 ? k / 25 * 36 + k % 25 / 5 * 6 + k % 5 : 1;
        else
            ((float *)(void *)values)[k] = 0.3f + (float)(k * 37 % 101) / 100;
    }
    EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    free(values);
    return tensor;
}

/* The forward class of a gradient class of MPS, whose result has the shape of the gradient. */
static bool forward_of(const rg_operator_info *gradient, rg_operator_info *forward)
{
    static const char *const others[][2] = {
        { "MPSCNNPoolingGradient", "MPSCNNPoolingMax" },
        { "MPSCNNPoolingGradientNode", "MPSCNNPoolingMaxNode" },
        { "MPSCNNUpsamplingGradient", "MPSCNNUpsamplingNearest" },
        { "MPSCNNArithmeticGradient", "MPSCNNAdd" },
        { "MPSCNNBatchNormalizationStatisticsGradient", "MPSCNNBatchNormalization" },
        { "MPSNNLossGradient", "MPSNNForwardLoss" },
    };
    char name[128];
    snprintf(name, sizeof name, "%s", gradient->name);
    char *at = strstr(name, "Gradient");
    if (at != NULL)
        memmove(at, at + 8, strlen(at + 8) + 1);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(gradient->name, others[i][0]) == 0)
            snprintf(name, sizeof name, "%s", others[i][1]);
    }
    return rg_operator_find(name, forward) == RG_OK;
}

typedef struct run {
    rg_operator_info info;
    rg_operator *op;
    rg_tensor *in[MOST], *out[MOST];
} run;

static void close_run(run *one)
{
    for (int32_t i = 0; i < MOST; i++) {
        rg_tensor_destroy(one->in[i]);
        rg_tensor_destroy(one->out[i]);
    }
    rg_operator_destroy(one->op);
}

/* All results, in `out`. */
static bool run_all(rig *r, run *one, rg_tensor *out[])
{
    const uint64_t wanted = ((uint64_t)1 << one->info.outputs) - 1;
    const bool parts = strcmp(one->info.name, "Split") == 0;
    const rg_status recorded =
        rg_operator_run(one->op, r->commands, one->in, one->info.inputs, parts ? 7 : wanted, out);
    const rg_status status = recorded == RG_OK ? rig_run(r) : recorded;
    EXPECT_OK(status);
    if (status != RG_OK)
        printf("%s: %s\n", one->info.name, rg_error_text());
    for (int32_t i = 0; i < one->info.outputs && status == RG_OK; i++)
        EXPECT(out[i] != NULL || (parts && i >= 3));
    return status == RG_OK;
}

/* Concat has up to eight inputs, of which the first two are given; the gradients of softmax read
 * its result alone. */
static bool is_left_out(const rg_operator_info *info, const char *name, int32_t index)
{
    return (strncmp(info->name, "Concat", 6) == 0 && index > 1) ||
           is_one_of(name,
                     "shape starts ends axes steps split pads constant_value roi scales sizes "
                     "ratio training_mode") ||
           (strcmp(info->name, "Momentum") == 0 && strcmp(name, "T") == 0) ||
           (strcmp(info->op, "softmax") == 0 && strcmp(name, "x") == 0);
}

static bool open_run(rig *r, const rg_operator_info *info, run *one)
{
    int32_t count;
    const rg_attribute *attributes = attributes_of(info, &count);
    *one = (run){ .info = *info };
    const rg_status status = rg_operator_create(r->device, info->name, attributes, count, &one->op);
    EXPECT_OK(status);
    for (int32_t i = 0; i < info->inputs && status == RG_OK; i++) {
        const char *name = rg_operator_input(one->op, i);
        if (!is_left_out(info, name, i))
            one->in[i] = input_of(r->device, info, name);
    }
    return status == RG_OK;
}

/* Inputs that have the shape of the forward result: the gradient, and the result itself. */
static bool take_forward(rig *r, run *one)
{
    rg_operator_info forward;
    run before;
    if (!one->info.gradient || strcmp(one->info.domain, "MPS") != 0)
        return true;
    EXPECT(forward_of(&one->info, &forward));
    bool ran = open_run(r, &forward, &before) && run_all(r, &before, before.out);
    for (int32_t i = 0; i < one->info.inputs && ran; i++) {
        const char *name = rg_operator_input(one->op, i);
        if (!is_one_of(name, "sourceGradient gradientMatrix y forwardOutputMatrix"))
            continue;
        rg_tensor *view = NULL;
        rg_tensor_desc desc = { 0 };
        EXPECT_OK(rg_tensor_get_desc(before.out[0], &desc));
        EXPECT_OK(rg_tensor_reshape(before.out[0], desc.rank, desc.dims, &view));
        rg_tensor_destroy(one->in[i]);
        one->in[i] = view;
    }
    close_run(&before);
    return ran;
}

static bool is_finite(const rg_tensor *tensor)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    char *elements = elements_of(tensor);
    bool finite = true;
    for (int64_t i = 0; i < count_of(tensor) && desc.dtype == RG_F32; i++) {
        const float value = ((float *)(void *)elements)[i];
        finite = finite && value - value == 0;
    }
    free(elements);
    return finite;
}

/* The operator that is read from its own text. */
static void compare_json(rig *r, run *one)
{
    char text[TEXT];
    rg_operator *own = one->op;
    rg_tensor *again[MOST] = { NULL };
    EXPECT(rg_operator_to_json(own, text, sizeof text) < sizeof text);
    EXPECT_OK(rg_operator_from_json(r->device, text, strlen(text), &one->op));
    if (one->op != NULL && run_all(r, one, again)) {
        for (int32_t i = 0; i < one->info.outputs; i++) {
            EXPECT((again[i] == NULL) == (one->out[i] == NULL));
            if (again[i] != NULL && one->out[i] != NULL) {
                EXPECT(same_bits(again[i], one->out[i]));
                EXPECT(is_finite(again[i]));
            }
            rg_tensor_destroy(again[i]);
        }
    }
    rg_operator_destroy(one->op);
    one->op = own;
}

static void test_all(rig *r)
{
    for (int32_t i = 0; i < rg_operator_count(); i++) {
        rg_operator_info info;
        run one;
        EXPECT_OK(rg_operator_get(i, &info));
        const int failed = rg_failed;
        if (open_run(r, &info, &one) && take_forward(r, &one) && run_all(r, &one, one.out))
            compare_json(r, &one);
        close_run(&one);
        if (rg_failed > failed)
            printf("in %s\n", info.name);
    }
}

int main(void)
{
    RUN_ON_DEVICES(test_all);
    return rg_test_report();
}
