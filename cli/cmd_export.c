/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde export`: a network as an ONNX model, or its parameters as PyTorch has them. */
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/use_checkpoint.h"

#include <retrograde/checkpoint.h>
#include <retrograde/onnx.h>

#include <stdlib.h>
#include <string.h>

typedef struct request {
    const char *out, *dtype;
    int64_t opset, height, width, channels, classes, seed;
    bool fold_batch_norm, probabilities, raw_input, gradient, help;
    bool weights; /* the file is one of weights alone */
} request;

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

/* Sizes of images that the file leaves open are those that are given. */
static rg_status settle_inputs(const rg_onnx *model, const request *q, rg_tensor_desc *inputs)
{
    const int32_t count = rg_onnx_inputs(model);
    for (int32_t i = 0; i < count; i++) {
        rg_onnx_port_info info;
        RG_PASS(rg_onnx_input(model, i, &info));
        inputs[i].rank = -1;
        if (info.rank != 4 || !info.has_dtype)
            continue;
        const int64_t sizes[] = { -1, q->channels, q->height, q->width };
        for (int d = 0; d < 4; d++)
            inputs[i].dims[d] = info.dims[d] >= 0 ? info.dims[d] : sizes[d];
        if (inputs[i].dims[1] >= 0 && inputs[i].dims[2] >= 0 && inputs[i].dims[3] >= 0)
            inputs[i].rank = 4;
    }
    return RG_OK;
}

static rg_status create_network(const rg_onnx *model, const request *q, rg_onnx_network **network)
{
    rg_onnx_options options = rg_onnx_options_default();
    rg_tensor_desc *inputs = calloc((size_t)rg_onnx_inputs(model) + 1, sizeof *inputs);
    if (inputs == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for the inputs");
    options.inputs = inputs;
    rg_status status = settle_inputs(model, q, inputs);
    if (status == RG_OK)
        status = rg_onnx_network_create(model, &options, network);
    free(inputs);
    return status;
}

static rg_status export_onnx(const char *path, const request *q, const rg_onnx_write_desc *desc)
{
    const bool changes = q->opset != 0 || q->dtype != NULL || q->fold_batch_norm || q->gradient;
    rg_onnx *model = NULL;
    rg_onnx_network *network = NULL;
    rg_status status = rg_onnx_open(path, &model);
    if (status == RG_OK && !changes && !q->weights) {
        status = rg_onnx_copy(model, q->out);
    } else if (status == RG_OK) {
        status = create_network(model, q, &network);
        if (status == RG_OK)
            status = q->weights ? rg_onnx_network_write_weights(network, NULL, desc, q->out)
                                : rg_onnx_network_write(network, NULL, desc, q->out);
    }
    rg_onnx_network_destroy(network);
    rg_onnx_close(model);
    return status;
}

static rg_status export_checkpoint(const char *path, const request *q, rg_device *device,
                                   const rg_onnx_write_desc *desc)
{
    rg_checkpoint *checkpoint;
    RG_PASS(rg_checkpoint_open(path, &checkpoint));
    const rg_status status = q->weights
                                 ? rg_checkpoint_write_weights(checkpoint, device, desc, q->out)
                                 : rg_checkpoint_write_onnx(checkpoint, device, desc, q->out);
    rg_checkpoint_close(checkpoint);
    return status;
}

/* A model as text with new parameters. */
static rg_status export_text(const char *path, const request *q, rg_device *device,
                             const rg_onnx_write_desc *desc)
{
    rg_network_desc network = rg_network_desc_default();
    rg_model *model;
    rg_plan *plan = NULL;
    if (q->height >= 0)
        network.height = q->height;
    if (q->width >= 0)
        network.width = q->width;
    if (q->channels >= 0)
        network.channels = q->channels;
    network.classes = (int32_t)q->classes;
    network.logits_only = true;
    RG_PASS(rg_model_open(path, &model));
    rg_status status = rg_model_plan(model, &network, device, (uint64_t)q->seed, &plan);
    if (status == RG_OK)
        status = rg_model_write_onnx(model, &network, plan, desc, q->weights, q->out);
    rg_plan_destroy(plan);
    rg_model_destroy(model);
    return status;
}

static rg_status export_model(const char *operand, const request *q, const rg_onnx_write_desc *desc)
{
    rg_device *device;
    char *path = rg_used_path(operand);
    if (path == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for a path");
    rg_status status = RG_OK;
    if (ends_with(path, ".onnx")) {
        status = export_onnx(path, q, desc);
    } else {
        status = rg_device_create("cpu", NULL, &device);
        if (status == RG_OK) {
            status = ends_with(path, ".safetensors") ? export_checkpoint(path, q, device, desc)
                                                     : export_text(path, q, device, desc);
            rg_device_destroy(device);
        }
    }
    free(path);
    return status;
}

/* Takes -o FILE out of argv; returns how many arguments are left, or -1. */
static int take_output(request *q, int argc, char **argv)
{
    int left = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "-o") != 0) {
            argv[left++] = argv[i];
            continue;
        }
        if (i + 1 == argc || q->out != NULL) {
            rg_wrong(q->out != NULL ? "-o is given twice" : "-o needs a file");
            return -1;
        }
        q->out = argv[++i];
    }
    return left;
}

static int check_request(const request *q, rg_onnx_write_desc *desc)
{
    static const char *const names[] = { "f32", "f64", "f16", "bf16" };
    desc->has_dtype = q->dtype != NULL;
    desc->fold_batch_norm = q->fold_batch_norm;
    desc->probabilities = q->probabilities;
    desc->raw_input = q->raw_input;
    desc->gradients = q->gradient;
    for (int i = 0; i < 4 && q->dtype != NULL; i++) {
        if (strcmp(q->dtype, names[i]) == 0) {
            desc->dtype = (rg_dtype)i;
            break;
        }
        if (i == 3)
            return rg_wrong("--dtype must be f32, f64, f16 or bf16, not '%s'", q->dtype);
    }
    if (q->opset != 0 && (q->opset < RG_ONNX_OLDEST_WRITTEN || q->opset > RG_ONNX_NEWEST_WRITTEN))
        return rg_wrong("--opset must be between %d and %d, not %lld", RG_ONNX_OLDEST_WRITTEN,
                        RG_ONNX_NEWEST_WRITTEN, (long long)q->opset);
    desc->opset = (int32_t)q->opset;
    const int64_t sizes[] = { q->height, q->width, q->channels, q->classes };
    for (int i = 0; i < 4; i++) {
        if (sizes[i] == 0 || sizes[i] > 1 << 20)
            return rg_wrong("--height, --width, --channels and --classes must be between 1 and %d",
                            1 << 20);
    }
    if (q->out == NULL)
        return rg_wrong("no file is given to write to; add -o FILE.onnx");
    if (!ends_with(q->out, ".onnx") && !q->weights)
        return rg_wrong("-o %s: the file must end with .onnx or .safetensors", q->out);
    return 0;
}

static void print_help(const rg_option *options)
{
    puts(
        "usage: retrograde export MODEL -o FILE [options]\n\n"
        "Writes a network as an ONNX model, FILE.onnx, or its parameters as PyTorch has them,\n"
        "FILE.safetensors. MODEL is a checkpoint, the folder of a run, an ONNX model, a model file\n"
        "or the name of a built-in model. The input of the file is that of predict: images (batch,\n"
        "channels, height, width) with pixels from 0 to 1.\n");
    rg_options_help(options);
}

int rg_cmd_export(int argc, char **argv)
{
    request q = { .height = -1, .width = -1, .channels = -1, .classes = 10, .seed = 1 };
    rg_onnx_write_desc desc = rg_onnx_write_desc_default();
    const rg_option options[] = {
        { "opset", RG_OPTION_COUNT, &q.opset, "N",
          "operator set, 13 to 24 (default 17; of an ONNX model: its own)" },
        { "dtype", RG_OPTION_TEXT, &q.dtype, "T",
          "f32, f64, f16 or bf16 (default: as the network has it)" },
        { "fold-batch-norm", RG_OPTION_FLAG, &q.fold_batch_norm, NULL,
          "make batch normalization part of the layer before it" },
        { "probabilities", RG_OPTION_FLAG, &q.probabilities, NULL,
          "for a checkpoint: add an output with the probabilities that predict prints" },
        { "gradient", RG_OPTION_FLAG, &q.gradient, NULL,
          "add the gradient graph: outputs NAME_grad for all parameters, with operators of "
          "libretrograde_ort.so" },
        { "raw-input", RG_OPTION_FLAG, &q.raw_input, NULL,
          "for a checkpoint: leave the normalization of images out of the file" },
        { "height", RG_OPTION_COUNT, &q.height, "N",
          "image height for a model file, or for an ONNX model with a variable height (default 28)" },
        { "width", RG_OPTION_COUNT, &q.width, "N", "image width, as for --height (default 28)" },
        { "channels", RG_OPTION_COUNT, &q.channels, "N",
          "image channels, as for --height (default 1)" },
        { "classes", RG_OPTION_COUNT, &q.classes, "N",
          "number of classes of a model file (default 10)" },
        { "seed", RG_OPTION_COUNT, &q.seed, "N",
          "seed of the random parameters of a model file (default 1)" },
        { "help", RG_OPTION_FLAG, &q.help, NULL, "print this help" },
        { NULL, RG_OPTION_FLAG, NULL, NULL, NULL },
    };
    int left = take_output(&q, argc, argv);
    if (left >= 0)
        left = rg_options_take(options, left, argv, NULL, NULL);
    if (left < 0)
        return 2;
    if (q.help) {
        print_help(options);
        return 0;
    }
    if (left != 1)
        return rg_wrong("export needs exactly one model; see --help");
    q.weights = q.out != NULL && ends_with(q.out, ".safetensors");
    const int wrong = check_request(&q, &desc);
    if (wrong != 0)
        return wrong;
    return rg_usage_status(export_model(argv[0], &q, &desc)) == RG_OK ? 0 : rg_failed();
}
