/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde graph`: draws a network, forward and backward. */
#include "cli/arguments.h"
#include "cli/cli.h"
#include "train/run_state.h"
#include "train/graph_drawing.h"

#include <stdio.h>
#include <stdlib.h>

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
    rg_run_state checkpoint;
    rg_safetensors *file;
    if (!ends_with(path, ".safetensors"))
        return rg_model_open(path, model);
    RG_TRY(rg_run_state_open(path, &checkpoint, &file));
    rg_safetensors_close(file);
    q->height = checkpoint.network.height;
    q->width = checkpoint.network.width;
    q->channels = checkpoint.network.channels;
    q->classes = checkpoint.network.classes;
    const rg_status status = rg_model_parse(checkpoint.model_name, checkpoint.model, model);
    rg_run_state_release(&checkpoint);
    return status;
}

static rg_status draw(const request *q, const rg_model *model, const rg_network *network)
{
    rg_graph_drawing drawing;
    if (!q->forward)
        RG_TRY(rg_graph_gradients(network->graph, &network->loss, NULL, 1, NULL, NULL));
    RG_TRY(rg_graph_drawing_create(network->graph, model->name, &drawing));
    const rg_status status = ends_with(q->out, ".dot") ? rg_draw_dot(&drawing.drawing, q->out)
                                                       : rg_draw_svg(&drawing.drawing, q->out);
    rg_graph_drawing_release(&drawing);
    return status;
}

static rg_status draw_model(request *q, const char *path)
{
    rg_model *model;
    rg_network network;
    RG_TRY(open_model(path, q, &model));
    const rg_network_desc options = { .height = q->height,
                                      .width = q->width,
                                      .channels = q->channels,
                                      .classes = (int32_t)q->classes,
                                      .dtype = RG_F32,
                                      .training = true };
    rg_status status = rg_network_create(model, &options, &network);
    if (status == RG_OK) {
        status = rg_value_stop_gradient(network.images);
        if (status == RG_OK)
            status = draw(q, model, &network);
        rg_network_destroy(&network);
    }
    rg_model_destroy(model);
    return status;
}

int rg_cmd_graph(int argc, char **argv)
{
    request q = { .out = "network.svg", .height = 28, .width = 28, .channels = 1, .classes = 10 };
    const rg_option options[] = {
        { "out", RG_OPTION_TEXT, &q.out, "FILE",
          "output file, .svg or .dot (default network.svg)" },
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
             "name of a built-in model, a model file or a checkpoint.\n");
        rg_options_help(options);
        return 0;
    }
    if (left != 1)
        return rg_wrong("graph needs exactly one model; see --help");
    if (q.height < 1 || q.width < 1 || q.channels < 1 || q.classes < 1 || q.height > 1 << 20 ||
        q.width > 1 << 20 || q.channels > 1 << 20 || q.classes > 1 << 20)
        return rg_wrong("--height, --width, --channels and --classes must be between 1 and %d",
                        1 << 20);
    return draw_model(&q, argv[0]) == RG_OK ? 0 : rg_failed();
}
