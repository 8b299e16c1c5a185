/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde graph`: draws a network, forward and backward. */
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/train_options.h"

#include <retrograde/checkpoint.h>

#include <stdio.h>
#include <string.h>

enum { NOT_GIVEN = -1 };

typedef struct request {
    const char *out;
    int64_t height, width, channels, classes;
    bool forward, help;
} request;

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

/* A model by name or from a file, or that of a checkpoint, which knows its images. */
static rg_status open_model(const char *path, request *q, rg_model **model)
{
    rg_checkpoint *checkpoint;
    rg_checkpoint_info info;
    if (!ends_with(path, ".safetensors"))
        return rg_open_model(path, model);
    RG_PASS(rg_checkpoint_open(path, &checkpoint));
    rg_status status = rg_checkpoint_get_info(checkpoint, &info);
    if (status == RG_OK) {
        const rg_model *kept = rg_checkpoint_model(checkpoint);
        q->height = info.network.height;
        q->width = info.network.width;
        q->channels = info.network.channels;
        q->classes = info.network.classes;
        status = rg_model_parse(rg_model_name(kept), rg_model_text(kept), model);
    }
    rg_checkpoint_close(checkpoint);
    return status;
}

/* The gradients of the loss, but not of the images. */
static rg_status add_gradients(rg_graph *graph)
{
    const char *name = NULL;
    int32_t images = 0;
    while (rg_value_get_kind(rg_graph_value_at(graph, images)) != RG_VALUE_SOURCE)
        images++;
    RG_PASS(rg_value_stop_gradient(rg_graph_value_at(graph, images)));
    for (int32_t i = 0; i < rg_graph_results(graph); i++) {
        rg_value *result = rg_graph_result_at(graph, i, &name);
        if (strcmp(name, "loss") == 0)
            return rg_graph_gradients(graph, &result, NULL, 1, NULL, NULL);
    }
    return RG_OK;
}

static rg_status draw_model(request *q, const char *path)
{
    rg_model *model;
    rg_graph *graph;
    RG_PASS(open_model(path, q, &model));
    rg_network_desc desc = rg_network_desc_default();
    desc.height = q->height;
    desc.width = q->width;
    desc.channels = q->channels;
    desc.classes = (int32_t)q->classes;
    rg_status status = rg_model_describe(model, &desc); /* an ONNX model has its own */
    desc.training = true;
    if (status == RG_OK)
        status = rg_model_graph(model, &desc, &graph);
    if (status == RG_OK) {
        if (!q->forward)
            status = add_gradients(graph);
        if (status == RG_OK)
            status = rg_graph_draw(graph, rg_model_name(model),
                                   strcmp(q->out, "-") == 0 ? "/dev/stdout" : q->out);
        rg_graph_destroy(graph);
    }
    rg_model_destroy(model);
    return status;
}

/* Sizes that are not given take their defaults; a checkpoint has its own. */
static int settle_sizes(request *q, const char *path)
{
    int64_t *const sizes[] = { &q->height, &q->width, &q->channels, &q->classes };
    static const int64_t defaults[] = { 28, 28, 1, 10 };
    for (int i = 0; i < 4; i++) {
        if (*sizes[i] != NOT_GIVEN && ends_with(path, ".safetensors"))
            return rg_wrong("a checkpoint has its own images and classes; omit --height, --width, "
                            "--channels and --classes");
        if (*sizes[i] == NOT_GIVEN)
            *sizes[i] = defaults[i];
        if (*sizes[i] < 1 || *sizes[i] > 1 << 20)
            return rg_wrong("--height, --width, --channels and --classes must be between 1 and %d",
                            1 << 20);
    }
    return 0;
}

int rg_cmd_graph(int argc, char **argv)
{
    request q = { "network.svg", NOT_GIVEN, NOT_GIVEN, NOT_GIVEN, NOT_GIVEN, false, false };
    const rg_option options[] = {
        { "out", RG_OPTION_TEXT, &q.out, "FILE",
          "output file, .svg or .dot; - for SVG on standard output (default network.svg)" },
        { "forward", RG_OPTION_FLAG, &q.forward, NULL, "draw the forward pass only" },
        { "height", RG_OPTION_COUNT, &q.height, "N",
          "height of the images in pixels (default 28)" },
        { "width", RG_OPTION_COUNT, &q.width, "N", "width of the images in pixels (default 28)" },
        { "channels", RG_OPTION_COUNT, &q.channels, "N", "channels of the images (default 1)" },
        { "classes", RG_OPTION_COUNT, &q.classes, "N", "number of classes (default 10)" },
        { "help", RG_OPTION_FLAG, &q.help, NULL, "print this help" },
        { NULL, RG_OPTION_FLAG, NULL, NULL, NULL },
    };
    const int left = rg_options_take(options, argc, argv, NULL, NULL);
    if (left < 0)
        return 2;
    if (q.help) {
        puts("usage: retrograde graph MODEL [options]\n\n"
             "Draws a network with its forward and backward pass, as SVG or DOT (Graphviz). MODEL "
             "is the\n"
             "name of a built-in model, a model file, an ONNX model or a checkpoint.\n");
        rg_options_help(options);
        return 0;
    }
    if (left != 1)
        return rg_wrong("graph needs exactly one model; see --help");
    const int wrong = settle_sizes(&q, argv[0]);
    if (wrong != 0)
        return wrong;
    return draw_model(&q, argv[0]) == RG_OK ? 0 : rg_failed();
}
