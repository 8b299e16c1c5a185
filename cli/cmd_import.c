/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde import`: an ONNX model as a checkpoint, or as a model file with one; weights of
 * PyTorch as a checkpoint. */
#include "cli/arguments.h"
#include "cli/cli.h"

#include <retrograde/checkpoint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    const char *out, *model;
    int64_t height, width, channels, classes;
    bool help;
} request;

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

static rg_status write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    const bool written = file != NULL && fputs(text, file) >= 0;
    const bool closed = file != NULL && fclose(file) == 0;
    return written && closed ? RG_OK : rg_fails(RG_IO, "%s: cannot be written", path);
}

/* The model of a checkpoint as a file. */
static rg_status write_model(const char *checkpoint_path, const char *path)
{
    rg_checkpoint *checkpoint;
    RG_PASS(rg_checkpoint_open(checkpoint_path, &checkpoint));
    const rg_status status = write_text(path, rg_model_text(rg_checkpoint_model(checkpoint)));
    rg_checkpoint_close(checkpoint);
    return status;
}

static rg_status import_model(const char *path, const char *out)
{
    static const char suffix[] = ".safetensors";
    const bool as_text = ends_with(out, ".txt");
    const size_t length = strlen(out) - (as_text ? strlen(".txt") : 0);
    char *checkpoint = malloc(length + sizeof suffix);
    rg_device *device = NULL;
    rg_model *model = NULL;
    if (checkpoint == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for a path");
    memcpy(checkpoint, out, length);
    memcpy(checkpoint + length, as_text ? suffix : "", as_text ? sizeof suffix : 1);
    rg_status status = rg_model_open(path, &model);
    if (status == RG_OK)
        status = rg_device_create("cpu", NULL, &device);
    if (status == RG_OK)
        status = rg_checkpoint_import(device, model, as_text, checkpoint);
    if (status == RG_OK && as_text)
        status = write_model(checkpoint, out);
    rg_device_destroy(device);
    rg_model_destroy(model);
    free(checkpoint);
    return status;
}

static void say(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "retrograde: %s\n", sentence);
}

static void set_sizes(const request *q, rg_network_desc *network)
{
    network->height = q->height >= 0 ? q->height : network->height;
    network->width = q->width >= 0 ? q->width : network->width;
    network->channels = q->channels >= 0 ? q->channels : network->channels;
    network->classes = q->classes >= 0 ? (int32_t)q->classes : network->classes;
}

static rg_status import_weights(const char *path, const request *q)
{
    rg_network_desc network = rg_network_desc_default();
    rg_device *device = NULL;
    rg_model *model;
    RG_PASS(rg_model_open(q->model, &model));
    set_sizes(q, &network);
    rg_status status = rg_model_describe(model, &network);
    set_sizes(q, &network); /* what does not fit to the model is refused below */
    if (status == RG_OK)
        status = rg_device_create("cpu", NULL, &device);
    if (status == RG_OK)
        status = rg_checkpoint_import_weights(device, model, &network, path, say, NULL, q->out);
    rg_device_destroy(device);
    rg_model_destroy(model);
    return status;
}

static int check_request(const char *path, const request *q)
{
    const bool weights = ends_with(path, ".safetensors");
    const int64_t sizes[] = { q->height, q->width, q->channels, q->classes };
    if (q->out == NULL || (!ends_with(q->out, ".safetensors") && !ends_with(q->out, ".txt")))
        return rg_wrong("import needs -o FILE.safetensors or -o FILE.txt");
    if (!weights && !ends_with(path, ".onnx"))
        return rg_wrong("%s: the file must end with .onnx or .safetensors", path);
    if (weights != (q->model != NULL))
        return rg_wrong(weights ? "weights need a model: add --model M"
                                : "an ONNX model is a model; omit --model");
    if (weights && ends_with(q->out, ".txt"))
        return rg_wrong("weights become a checkpoint: -o FILE.safetensors");
    for (int i = 0; i < 4; i++) {
        if (sizes[i] != -1 && (sizes[i] < 1 || sizes[i] > 1 << 20))
            return rg_wrong("--height, --width, --channels and --classes must be between 1 and %d",
                            1 << 20);
    }
    return 0;
}

static void print_help(const rg_option *options)
{
    puts("usage: retrograde import MODEL.onnx|WEIGHTS.safetensors -o FILE [options]\n\n"
         "Writes an ONNX model as a checkpoint, FILE.safetensors, which eval, predict, run and "
         "export take,\n"
         "or as a model file, FILE.txt, with a checkpoint of it beside it. Weights of PyTorch, "
         "WEIGHTS.safetensors,\n"
         "become a checkpoint of the model that --model names.\n");
    rg_options_help(options);
}

int rg_cmd_import(int argc, char **argv)
{
    request q = { .height = -1, .width = -1, .channels = -1, .classes = -1 };
    const rg_option options[] = {
        { "out", RG_OPTION_TEXT, &q.out, "FILE", "the file to write, as -o FILE" },
        { "model", RG_OPTION_TEXT, &q.model, "M",
          "for weights: a built-in model, a model file or an ONNX model" },
        { "height", RG_OPTION_COUNT, &q.height, "N",
          "for weights: height of images (default: that of an ONNX model, or 28)" },
        { "width", RG_OPTION_COUNT, &q.width, "N", "for weights: width of images (likewise)" },
        { "channels", RG_OPTION_COUNT, &q.channels, "N",
          "for weights: channels of images (likewise, or 1)" },
        { "classes", RG_OPTION_COUNT, &q.classes, "N",
          "for weights: number of classes (likewise, or 10)" },
        { "help", RG_OPTION_FLAG, &q.help, NULL, "print this help" },
        { NULL, RG_OPTION_FLAG, NULL, NULL, NULL },
    };
    int left = rg_options_take(options, argc, argv, NULL, NULL);
    if (left < 0)
        return 2;
    if (q.help) {
        print_help(options);
        return 0;
    }
    for (int i = 0; i + 1 < left; i++) {
        if (strcmp(argv[i], "-o") != 0)
            continue;
        q.out = argv[i + 1];
        memmove(&argv[i], &argv[i + 2], (size_t)(left - i - 2) * sizeof *argv);
        left -= 2;
        break;
    }
    if (left != 1)
        return rg_wrong("import needs exactly one file; see --help");
    const int wrong = check_request(argv[0], &q);
    if (wrong != 0)
        return wrong;
    const rg_status status =
        q.model != NULL ? import_weights(argv[0], &q) : import_model(argv[0], q.out);
    return rg_usage_status(status) == RG_OK ? 0 : rg_failed();
}
