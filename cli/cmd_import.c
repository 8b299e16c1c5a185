/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde import`: an ONNX model as a checkpoint, or as a model file with one. */
#include "cli/arguments.h"
#include "cli/cli.h"

#include <retrograde/checkpoint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void print_help(const rg_option *options)
{
    puts("usage: retrograde import MODEL.onnx -o FILE [options]\n\n"
         "Writes an ONNX model as a checkpoint, FILE.safetensors, which eval, predict, run and "
         "export take,\n"
         "or as a model file, FILE.txt, with a checkpoint of it beside it.\n");
    rg_options_help(options);
}

int rg_cmd_import(int argc, char **argv)
{
    const char *out = NULL;
    bool help = false;
    const rg_option options[] = {
        { "out", RG_OPTION_TEXT, &out, "FILE", "the file to write, as -o FILE" },
        { "help", RG_OPTION_FLAG, &help, NULL, "print this help" },
        { NULL, RG_OPTION_FLAG, NULL, NULL, NULL },
    };
    int left = rg_options_take(options, argc, argv, NULL, NULL);
    if (left < 0)
        return 2;
    if (help) {
        print_help(options);
        return 0;
    }
    for (int i = 0; i + 1 < left; i++) {
        if (strcmp(argv[i], "-o") != 0)
            continue;
        out = argv[i + 1];
        memmove(&argv[i], &argv[i + 2], (size_t)(left - i - 2) * sizeof *argv);
        left -= 2;
        break;
    }
    if (left != 1)
        return rg_wrong("import needs exactly one model; see --help");
    if (out == NULL || (!ends_with(out, ".safetensors") && !ends_with(out, ".txt")))
        return rg_wrong("import needs -o FILE.safetensors or -o FILE.txt");
    if (!ends_with(argv[0], ".onnx"))
        return rg_wrong("%s: the model must end with .onnx", argv[0]);
    return rg_usage_status(import_model(argv[0], out)) == RG_OK ? 0 : rg_failed();
}
