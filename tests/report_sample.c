/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The made-up run: its curves, mistakes, images, drawing, and memory: see report_sample.h. */
#include "tests/report_sample.h"

#include <math.h>

static const char *const sample_classes[SAMPLE_CLASSES] = { "T-shirt/top", "Trouser", "Pullover",
                                                            "Dress",       "Coat",    "Sandal",
                                                            "Shirt",       "Sneaker", "Bag",
                                                            "Ankle boot" };

static const rg_report_layer sample_layers[SAMPLE_LAYERS] = {
    { "conv1", "conv", "64×28×28×16", "5×5, padding 2", 416 },
    { "relu1", "neuron", "64×28×28×16", "relu", 0 },
    { "pool1", "pool", "64×14×14×16", "max 2×2, stride 2", 0 },
    { "conv2", "conv", "64×14×14×32", "5×5, padding 2", 12832 },
    { "relu2", "neuron", "64×14×14×32", "relu", 0 },
    { "pool2", "pool", "64×7×7×32", "max 2×2, stride 2", 0 },
    { "flatten", "reshape", "64×1568", "", 0 },
    { "dense1", "dense", "64×128", "relu", 200832 },
    { "dropout", "dropout", "64×128", "keep 0.75", 0 },
    { "dense2", "dense", "64×10", "", 1290 },
    { "loss", "loss", "1", "softmax cross entropy, mean", 0 },
};

static const rg_report_pair sample_options[] = {
    { "epochs", "10" },           { "batch", "64" },        { "optimizer", "adam" },
    { "learning rate", "0.001" }, { "schedule", "cosine" }, { "weight decay", "0.0001" },
    { "dtype", "f32" },           { "seed", "1" },          { "threads", "2" },
};

static double sample_noise(sample *s)
{
    return (double)(scratch_random(&s->seed) >> 11) / 9007199254740992.0 - 0.5;
}

static void sample_fill_curves(sample *s)
{
    for (int i = 0; i < SAMPLE_EPOCHS; i++) {
        const double t = i + 1;
        s->epochs[i] = (rg_report_epoch){
            .epoch = i + 1,
            .train_loss = 0.14 + 0.46 / pow(t, 0.72),
            .train_accuracy = 0.956 - 0.17 / pow(t, 0.8),
            .validated = true,
            .validation_loss = 0.235 + 0.23 / pow(t, 1.1) + (i > 6 ? 0.006 * (i - 6) : 0),
            .validation_accuracy = 0.924 - 0.09 / pow(t, 1.1) + 0.003 * sample_noise(s),
            .seconds = 11.4 + sample_noise(s),
            .images_per_second = 5180 + 240 * sample_noise(s),
            .learning_rate = 0.0005 * (1 + cos(3.14159265 * i / SAMPLE_EPOCHS)),
        };
    }
    for (int i = 0; i < SAMPLE_STEPS; i++) {
        const double t = i * 10.0 / SAMPLE_STEPS;
        s->steps[i].step = i * 10;
        s->steps[i].loss = (0.13 + 0.42 / pow(t + 0.9, 0.75) + 1.7 * exp(-6 * t)) *
                           (1 + 0.5 * sample_noise(s) * sample_noise(s) + 0.36 * sample_noise(s));
    }
}

static void sample_fill_confusion(sample *s)
{
    static const struct {
        int label, predicted, count;
    } mistakes[] = { { 6, 0, 104 }, { 0, 6, 78 }, { 6, 2, 66 }, { 2, 4, 58 }, { 4, 2, 49 },
                     { 6, 4, 55 },  { 4, 6, 44 }, { 2, 6, 47 }, { 6, 3, 27 }, { 3, 0, 18 },
                     { 0, 3, 16 },  { 9, 7, 31 }, { 7, 9, 22 }, { 5, 7, 13 }, { 7, 5, 12 },
                     { 0, 2, 15 },  { 2, 0, 13 }, { 3, 4, 19 }, { 4, 3, 21 }, { 1, 3, 9 },
                     { 8, 6, 6 },   { 3, 6, 16 }, { 8, 0, 3 },  { 5, 9, 6 } };
    for (int32_t i = 0; i < SAMPLE_CLASSES; i++)
        s->confusion[s->confusion_count++] = (rg_confusion_cell){ i, i, 1000 };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        s->confusion[s->confusion_count++] =
            (rg_confusion_cell){ mistakes[i].label, mistakes[i].predicted, mistakes[i].count };
        s->confusion[mistakes[i].label].count -= mistakes[i].count;
    }
}

/* Something like clothes: a body, and sleeves or not. */
static void sample_fill_images(sample *s)
{
    for (int n = 0; n < SAMPLE_IMAGES; n++) {
        const double wide = 5 + 4 * (n % 3), sleeve = n % 2 == 0 ? 4 : 0;
        for (int y = 0; y < SAMPLE_SIDE; y++) {
            for (int x = 0; x < SAMPLE_SIDE; x++) {
                const double across = fabs(x - 13.5), reach = wide + (y < 12 && y > 3 ? sleeve : 0);
                const bool inside = y > 2 && y < 26 && across < reach && !(y < 6 && across < 3);
                const double light =
                    150 + 60 * sin(x * 0.7 + n) * cos(y * 0.4 * (n % 4)) + 30 * sample_noise(s);
                s->pixels[n][y * SAMPLE_SIDE + x] = inside ? (uint8_t)light : 0;
            }
        }
        s->images[n] = (rg_report_image){
            .pixels = s->pixels[n],
            .height = SAMPLE_SIDE,
            .width = SAMPLE_SIDE,
            .channels = 1,
            .label = (int32_t[]){ 6, 0, 2, 4, 9, 3 }[n % 6],
            .predicted = (int32_t[]){ 0, 6, 4, 2, 7, 0 }[n % 6],
            .probability = 0.9996 - 0.004 * n,
            .name = "test image",
        };
    }
}

static const char *sample_name(sample *s, const char *before, const char *name)
{
    char *to = s->names[s->name_count++];
    snprintf(to, sizeof s->names[0], "%s%s", before, name);
    return to;
}

static int sample_node(sample *s, rg_draw_node node)
{
    s->nodes[s->report.drawing.node_count] = node;
    return s->report.drawing.node_count++;
}

static void sample_edge(sample *s, int from, int to, const char *text, rg_draw_edge_kind kind)
{
    s->edges[s->report.drawing.edge_count++] = (rg_draw_edge){ from, to, text, kind };
}

static void sample_fill_drawing(sample *s)
{
    int forward[SAMPLE_LAYERS], gradient = -1;
    const int images = sample_node(
        s, (rg_draw_node){ .label = "images", .text = "64×28×28×1", .source = true, .of = -1 });
    const int labels =
        sample_node(s, (rg_draw_node){ .label = "labels", .text = "64", .source = true, .of = -1 });
    for (int i = 0; i < SAMPLE_LAYERS; i++) {
        const rg_report_layer *layer = &sample_layers[i];
        forward[i] = sample_node(
            s, (rg_draw_node){
                   .label = layer->label, .op = layer->op, .text = layer->fields, .of = -1 });
        sample_edge(s, i == 0 ? images : forward[i - 1], forward[i],
                    i == 0 ? "64×28×28×1" : sample_layers[i - 1].output, RG_DRAW_DATA);
    }
    sample_edge(s, labels, forward[SAMPLE_LAYERS - 1], "64", RG_DRAW_DATA);
    for (int i = SAMPLE_LAYERS - 1; i >= 0; i--) {
        const rg_report_layer *layer = &sample_layers[i];
        const int node =
            sample_node(s, (rg_draw_node){ .label = sample_name(s, "d ", layer->label),
                                           .op = sample_name(s, layer->op, " gradient"),
                                           .kind = RG_DRAW_GRADIENT,
                                           .of = forward[i] });
        if (gradient >= 0)
            sample_edge(s, gradient, node, layer->output, RG_DRAW_DERIVATIVE);
        sample_edge(s, forward[i], node, "state", RG_DRAW_STATE);
        gradient = node;
        for (int k = 0; k < 2 && layer->parameters > 0; k++) {
            const char *letter = k == 0 ? " w" : " b";
            const int parameter =
                sample_node(s, (rg_draw_node){ .label = sample_name(s, layer->label, letter),
                                               .parameter = true,
                                               .of = -1 });
            const int update = sample_node(s, (rg_draw_node){ .label = k == 0 ? "adam w" : "adam b",
                                                              .op = "adam",
                                                              .kind = RG_DRAW_UPDATE,
                                                              .of = -1 });
            sample_edge(s, parameter, forward[i], "", RG_DRAW_DATA);
            sample_edge(s, node, update, "", RG_DRAW_DERIVATIVE);
            sample_edge(s, update, parameter, "", RG_DRAW_STATE);
        }
    }
}

/* Puts a tensor at the lowest offset that is free during all its steps. */
static void sample_tensor(sample *s, const char *label, size_t bytes, int first, int last)
{
    rg_report *r = &s->report;
    size_t offset = 0;
    for (int64_t i = 0; i < r->memory_count; i++) {
        const rg_report_memory *m = &s->memory[i];
        if (m->first <= last && m->last >= first && m->offset < offset + bytes &&
            offset < m->offset + m->bytes) {
            offset = m->offset + m->bytes;
            i = -1;
        }
    }
    s->memory[r->memory_count++] = (rg_report_memory){ label, offset, bytes, first, last };
    r->separate_bytes += bytes;
    r->peak_bytes = r->peak_bytes > offset + bytes ? r->peak_bytes : offset + bytes;
}

/* Outputs live until their gradient, gradients until the next one. */
static void sample_fill_ops(sample *s)
{
    static const size_t kib[SAMPLE_LAYERS] = { 3136, 3136, 784, 1568, 1568, 392, 8, 32, 32, 3, 1 };
    static const double times[SAMPLE_LAYERS][2] = {
        { 0.81, 1.34 }, { 0.11, 0.16 }, { 0.19, 0.22 }, { 1.92, 3.87 },
        { 0.06, 0.08 }, { 0.1, 0.11 },  { 0, 0 },       { 0.57, 1.08 },
        { 0.01, 0.01 }, { 0.03, 0.06 }, { 0.02, 0.01 },
    };
    for (int i = 0; i < SAMPLE_LAYERS; i++) {
        const rg_report_layer *layer = &sample_layers[i];
        const double update = layer->parameters > 0 ? 0.004 + 1e-6 * (double)layer->parameters : 0;
        sample_tensor(s, layer->label, kib[i] << 10, i, 2 * SAMPLE_LAYERS - 1 - i);
        s->timings[i] =
            (rg_report_timing){ layer->label, layer->op, times[i][0], times[i][1], update };
    }
    for (int i = SAMPLE_LAYERS - 2; i >= 0; i--)
        sample_tensor(s, sample_name(s, "d ", sample_layers[i].label), kib[i] << 10,
                      2 * SAMPLE_LAYERS - 2 - i, 2 * SAMPLE_LAYERS - 1 - i);
    s->report.memory_steps = 2 * SAMPLE_LAYERS;
    s->report.parameter_bytes = 3 * 215370 * 4;
}

sample *sample_make(void)
{
    sample *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->seed = 42;
    sample_fill_curves(s);
    sample_fill_confusion(s);
    sample_fill_images(s);
    sample_fill_drawing(s);
    sample_fill_ops(s);
    rg_report *r = &s->report;
    r->title = "LeNet on Fashion-MNIST";
    r->model = "small CNN";
    r->dataset = "Fashion-MNIST, 60 000 + 10 000 images";
    r->device = "cpu: 2 threads, AVX-512";
    r->date = "2026-11-15 22:47 UTC";
    r->command = "retrograde train --data fashion-mnist --epochs 10 --optimizer adam";
    r->options = sample_options;
    r->option_count = sizeof sample_options / sizeof sample_options[0];
    r->epochs = s->epochs;
    r->epoch_count = SAMPLE_EPOCHS;
    r->steps = s->steps;
    r->step_count = SAMPLE_STEPS;
    r->test_loss = 0.2431;
    r->test_accuracy = 0.9158;
    r->classes = SAMPLE_CLASSES;
    r->class_names = sample_classes;
    r->confusion = s->confusion;
    r->confusion_count = s->confusion_count;
    r->worst = s->images;
    r->worst_count = SAMPLE_IMAGES;
    r->layers = sample_layers;
    r->layer_count = SAMPLE_LAYERS;
    r->drawing.title = "LeNet, forward and backward";
    r->drawing.nodes = s->nodes;
    r->drawing.edges = s->edges;
    r->timings = s->timings;
    r->timing_count = SAMPLE_LAYERS;
    r->memory = s->memory;
    return s;
}

/* ---- other targets ---- */

static void sample_fill_values(sample *s)
{
    for (int k = 0; k < SAMPLE_VALUES; k++) {
        for (int i = 0; i < SAMPLE_POINTS; i++) {
            s->points[k][i][0] = (float)(40 * sample_noise(s));
            s->points[k][i][1] = s->points[k][i][0] * 0.9f + (float)(8 * sample_noise(s));
        }
        s->values[k] = (rg_report_value){ .absolute = 2.25,
                                          .squared = 9,
                                          .variance = 133,
                                          .points = (const float(*)[2])s->points[k],
                                          .point_count = SAMPLE_POINTS };
    }
}

static void sample_fill_target_images(sample *s, rg_target_kind target)
{
    static const char *const said[] = { NULL, "Dress, Coat", "12.5, -3.25", NULL,
                                        "14.5 % of the pixels are wrong" };
    static const char *const wanted[] = { NULL, "Dress", "12, -4", "" };
    const bool masks = target == RG_TARGET_MASK;
    for (size_t i = 0; i < sizeof s->masks[0]; i++) {
        s->masks[0][i] = (uint8_t)(i / 700 * 90);
        s->masks[1][i] = (uint8_t)(i / 800 * 100);
    }
    for (int i = 0; i < SAMPLE_IMAGES; i++) {
        s->images[i].said = said[masks ? 4 : target];
        s->images[i].wanted = wanted[target];
        s->images[i].said_mask = masks ? s->masks[0] : NULL;
        s->images[i].true_mask = masks ? s->masks[1] : NULL;
        s->images[i].mask_height = s->images[i].mask_width = SAMPLE_SIDE;
    }
}

rg_report sample_of(sample *s, rg_target_kind target)
{
    static const char *const metrics[] = { "Accuracy", "Label accuracy", "Mean absolute error",
                                           "Pixel accuracy" };
    rg_report r = s->report;
    r.confusion = NULL;
    r.target = target;
    r.metric = metrics[target];
    r.target_images = 10000;
    r.test_iou = target == RG_TARGET_MASK ? 0.7125 : (double)NAN;
    r.test_score = target == RG_TARGET_VALUES ? 2.25 : r.test_accuracy;
    if (target == RG_TARGET_VALUES)
        r.test_accuracy = NAN;
    sample_fill_values(s);
    sample_fill_target_images(s, target);
    for (int32_t i = 0; i < SAMPLE_CLASSES; i++)
        s->target_classes[i] = (rg_confusion_class){ i, 1000 + i, 1100 - i, 800 + 10 * i };
    if (target == RG_TARGET_VALUES) {
        r.values = s->values;
        r.value_count = SAMPLE_VALUES;
    } else {
        r.target_classes = s->target_classes;
    }
    return r;
}
