/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A trained network from its checkpoint. */
#include "cli/use_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rg_use_options(const rg_option *own, rg_use_request *q, const char *usage, int argc,
                   char **argv, int *status)
{
    q->device = "cpu";
    q->normalize = "data";
    const rg_option options[] = {
        *own,
        { "device", RG_OPTION_TEXT, &q->device, "NAME", "cpu, cuda or cuda:N (default cpu)" },
        { "threads", RG_OPTION_COUNT, &q->threads, "N", "number of CPU threads; 0 (default): all" },
        { "json", RG_OPTION_FLAG, &q->json, NULL, "print one JSON object per line" },
        { "normalize", RG_OPTION_TEXT, &q->normalize, "NAME",
          "for an ONNX model: statistics for normalizing pixels: data (default), imagenet or none" },
        { "help", RG_OPTION_FLAG, &q->help, NULL, "print this help" },
        { NULL, RG_OPTION_FLAG, NULL, NULL, NULL },
    };
    const int left = rg_options_take(options, argc, argv, NULL, NULL);
    *status = 2;
    if (left >= 0 && rg_threads_check(q->threads) != 0)
        return -1;
    if (left >= 0 && q->help) {
        puts(usage);
        rg_options_help(options);
        *status = 0;
        return -1;
    }
    return left;
}

char *rg_used_path(const char *operand)
{
    static const char *const names[] = { "best", "checkpoint" };
    for (int i = 0; i < 2; i++) {
        char *path;
        if (asprintf(&path, "%s/%s.safetensors", operand, names[i]) < 0)
            return NULL;
        if (access(path, F_OK) == 0)
            return path;
        free(path);
    }
    return strdup(operand);
}

bool rg_is_onnx(const char *path)
{
    const size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".onnx") == 0;
}

/* An ONNX model as it is. */
static rg_status open_onnx(rg_device *device, const char *path, const rg_use_request *q,
                           rg_trainer **network)
{
    rg_normalize_kind normalize;
    rg_model *model;
    RG_PASS(rg_usage_status(rg_normalize_parse(q->normalize, &normalize)));
    RG_PASS(rg_model_open(path, &model));
    const rg_status status = rg_trainer_open(device, model, NULL, normalize, network);
    rg_model_destroy(model);
    return status;
}

rg_status rg_used_network_open(const char *path, const rg_use_request *q, rg_trainer **network)
{
    rg_device_options options = rg_device_options_default();
    rg_device *device;
    *network = NULL;
    options.threads = (int32_t)q->threads;
    RG_PASS(rg_usage_status(rg_device_create(q->device, &options, &device)));
    const rg_status status = rg_is_onnx(path) ? open_onnx(device, path, q, network)
                                              : rg_trainer_load(device, path, network);
    rg_device_destroy(device); /* which the network keeps */
    return status;
}

rg_status rg_open_part(const char *data, rg_dataset_part part, const rg_dataset_options *options,
                       rg_dataset **set)
{
    *set = NULL;
    const rg_status status = rg_dataset_open_with(data, part, options, set);
    return status == RG_INVALID_ARGUMENT ? RG_OK : status; /* that, and nothing else, is missing */
}

rg_status rg_check_part(const rg_trainer *trainer, const rg_dataset *set, const char *data)
{
    const rg_status status = rg_trainer_check_set(trainer, set);
    return status == RG_OK ? RG_OK : rg_fails(status, "%s: %s", data, rg_error_text());
}
