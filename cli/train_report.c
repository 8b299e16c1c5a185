/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The report of a run: what the trainer, its plan and the last evaluation know. */
#include "cli/train_run.h"

#include "core/memory.h"
#include "core/shape.h"
#include "graph/names.h"
#include "train/graph_drawing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const rg_allocator *const allocator = &rg_default_allocator;

enum { WORST = 24, TEXT = 256 };

/* All that a report points to. */
typedef struct pieces {
    rg_report_image worst[WORST];
    int64_t worst_count;
    uint8_t *pixels; /* of the worst images */
    char names[WORST][48];
    rg_report_layer *layers;
    char (*texts)[2][TEXT]; /* by layer: shape, fields */
    size_t layer_capacity;
    rg_report_timing *timings;
    double *milliseconds;
    size_t timing_capacity, timing_count;
    rg_names rows; /* timings by their labels */
    rg_report_memory *memory;
    size_t memory_capacity;
    rg_graph_drawing drawing;
    rg_report_pair options[RG_TRAIN_OPTIONS];
    char *option_text; /* "name=value" lines, cut into words */
    int64_t option_count;
    char title[TEXT], date[64], device[TEXT], dataset[TEXT];
} pieces;

/* ---- the worst images ---- */

/* Keeps those with the least probability of the right answer, the worst first. */
static int64_t find_worst(const rg_train_run *run, const rg_train_verdicts *v, int64_t worst[])
{
    int64_t count = 0;
    for (int64_t i = 0; i < run->test.info.count; i++) {
        if (v->predicted[i] == rg_dataset_label(run->test.set, i))
            continue;
        if (count == WORST && v->of_label[i] >= v->of_label[worst[WORST - 1]])
            continue;
        int64_t at = count < WORST ? count++ : WORST - 1;
        for (; at > 0 && v->of_label[worst[at - 1]] > v->of_label[i]; at--)
            worst[at] = worst[at - 1];
        worst[at] = i;
    }
    return count;
}

static void copy_pixels(const rg_train_part *part, int64_t image, uint8_t *to)
{
    const rg_dataset_info *info = &part->info;
    const int64_t count = info->height * info->width * info->channels;
    const void *from = rg_dataset_image(part->set, image);
    if (info->dtype == RG_U8) {
        memcpy(to, from, (size_t)count);
        return;
    }
    const float *pixels = from;
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        low = isfinite(pixels[i]) ? fminf(low, pixels[i]) : low;
        high = isfinite(pixels[i]) ? fmaxf(high, pixels[i]) : high;
    }
    const float scale = high > low ? 255 / (high - low) : 0;
    for (int64_t i = 0; i < count; i++)
        to[i] = isfinite(pixels[i]) ? (uint8_t)((pixels[i] - low) * scale + 0.5f) : 0;
}

static rg_status show_worst(const rg_train_run *run, const rg_train_verdicts *v, pieces *p)
{
    const rg_dataset_info *info = &run->test.info;
    const size_t bytes = (size_t)(info->height * info->width * info->channels);
    int64_t worst[WORST];
    RG_TRY(rg_allocate_array(WORST, bytes, &p->pixels));
    if (info->channels != 1 && info->channels != 3)
        return RG_OK; /* these are no pictures */
    p->worst_count = find_worst(run, v, worst);
    for (int64_t i = 0; i < p->worst_count; i++) {
        uint8_t *pixels = p->pixels + (size_t)i * bytes;
        copy_pixels(&run->test, worst[i], pixels);
        snprintf(p->names[i], sizeof p->names[i], "test image %lld", (long long)worst[i]);
        p->worst[i] = (rg_report_image){ .pixels = pixels,
                                         .height = (int32_t)info->height,
                                         .width = (int32_t)info->width,
                                         .channels = (int32_t)info->channels,
                                         .label = rg_dataset_label(run->test.set, worst[i]),
                                         .predicted = v->predicted[worst[i]],
                                         .probability = v->certainty[worst[i]],
                                         .name = p->names[i] };
    }
    return RG_OK;
}

/* ---- layers ---- */

/* "28×28×16", without the number of images. */
static void shape_text(const rg_tensor_desc *desc, char text[TEXT])
{
    size_t at = 0;
    text[0] = 0;
    for (int32_t d = 1; d < desc->rank && at < TEXT; d++)
        at += (size_t)snprintf(text + at, TEXT - at, "%s%lld", d > 1 ? "×" : "",
                               (long long)desc->dims[d]);
}

/* Fields that do not have their default. */
static void fields_text(const rg_layer *layer, char text[TEXT])
{
    char all[1024];
    rg_fields_text(&layer->op->desc, layer->desc, all, sizeof all);
    char defaults[1024];
    rg_fields_text(&layer->op->desc, layer->op->desc.defaults, defaults, sizeof defaults);
    size_t at = 0;
    text[0] = 0;
    if (layer->window[0] > 0)
        at = (size_t)snprintf(text, TEXT, "%d×%d", layer->window[0], layer->window[1]);
    char *rest = NULL;
    for (char *word = strtok_r(all, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        const char *same = strstr(defaults, word);
        const size_t length = strlen(word);
        if (same != NULL && (same == defaults || same[-1] == ' ') &&
            (same[length] == ' ' || same[length] == 0))
            continue;
        if (at < TEXT)
            at += (size_t)snprintf(text + at, TEXT - at, "%s%s", at > 0 ? ", " : "", word);
    }
}

static rg_status show_layers(const rg_train_run *run, pieces *p)
{
    const rg_network *network = rg_stepper_network(run->trainer->stepper);
    p->layer_capacity = network->layers_count;
    RG_TRY(rg_allocate_array(p->layer_capacity, sizeof *p->layers, &p->layers));
    RG_TRY(rg_allocate_array(p->layer_capacity, sizeof *p->texts, &p->texts));
    for (size_t i = 0; i < p->layer_capacity; i++) {
        const rg_layer *layer = &run->trainer->model->layers[i];
        shape_text(&network->layers[i].desc, p->texts[i][0]);
        fields_text(layer, p->texts[i][1]);
        p->layers[i] = (rg_report_layer){ .label = layer->label,
                                          .op = layer->op->name,
                                          .output = p->texts[i][0],
                                          .fields = p->texts[i][1],
                                          .parameters = network->layers[i].parameters };
    }
    return RG_OK;
}

/* ---- time and memory ---- */

/* The row of a label: one for each forward step, one for all updates. */
static rg_status find_row(pieces *p, const char *label, const char *op, rg_report_timing **row)
{
    *row = rg_names_find(&p->rows, label);
    if (*row != NULL)
        return RG_OK;
    *row = &p->timings[p->timing_count++];
    **row = (rg_report_timing){ .label = label, .op = op };
    return rg_names_add(&p->rows, label, *row);
}

static rg_status show_times(rg_train_run *run, pieces *p)
{
    rg_plan *plan = rg_stepper_plan(run->trainer->stepper);
    p->timing_capacity = (size_t)rg_plan_steps(plan);
    RG_TRY(rg_allocate_array(p->timing_capacity + 1, sizeof *p->timings, &p->timings));
    RG_TRY(rg_allocate_array(p->timing_capacity, sizeof *p->milliseconds, &p->milliseconds));
    if (rg_stepper_time(run->trainer->stepper, p->milliseconds) != RG_OK)
        return RG_OK; /* nothing was trained in this run */
    for (int32_t i = 0; i < (int32_t)p->timing_capacity; i++) {
        rg_step_info info, forward;
        RG_TRY(rg_plan_step_info(plan, i, &info));
        forward = info;
        if (info.gradient && info.forward >= 0)
            RG_TRY(rg_plan_step_info(plan, info.forward, &forward));
        rg_report_timing *row;
        RG_TRY(find_row(p, info.update ? "updates" : forward.label, forward.op, &row));
        if (info.update)
            row->update += p->milliseconds[i];
        else if (info.gradient)
            row->gradient += p->milliseconds[i];
        else
            row->forward += p->milliseconds[i];
    }
    return RG_OK;
}

static rg_status show_memory(const rg_train_run *run, pieces *p)
{
    const rg_plan *plan = rg_stepper_plan(run->trainer->stepper);
    p->memory_capacity = (size_t)rg_plan_memory_count(plan);
    RG_TRY(rg_allocate_array(p->memory_capacity, sizeof *p->memory, &p->memory));
    for (size_t i = 0; i < p->memory_capacity; i++) {
        rg_memory_info info;
        RG_TRY(rg_plan_memory(plan, (int32_t)i, &info));
        p->memory[i] = (rg_report_memory){ .label = info.label,
                                           .offset = info.offset,
                                           .bytes = info.bytes,
                                           .first = info.first > 0 ? info.first : 0,
                                           .last = info.last };
    }
    return RG_OK;
}

/* ---- the rest ---- */

static rg_status show_options(const rg_train_run *run, pieces *p)
{
    p->option_text = rg_train_options_text(run->request);
    RG_CHECK(p->option_text != NULL, RG_OUT_OF_MEMORY, "out of memory for a report");
    char *rest = NULL;
    for (char *line = strtok_r(p->option_text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, '=');
        *value++ = 0;
        p->options[p->option_count++] = (rg_report_pair){ line, value };
    }
    return RG_OK;
}

static void show_texts(const rg_train_run *run, pieces *p)
{
    const time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts) != NULL)
        strftime(p->date, sizeof p->date, "%Y-%m-%d %H:%M", &parts);
    snprintf(p->title, sizeof p->title, "%s on %s", run->trainer->model->name, run->request->data);
    snprintf(p->dataset, sizeof p->dataset,
             "%s: %lld images for training, %lld for testing, %lld×%lld×%lld, %d classes",
             run->request->data, (long long)run->train.info.count, (long long)run->test.info.count,
             (long long)run->train.info.height, (long long)run->train.info.width,
             (long long)run->train.info.channels, run->train.info.classes);
    rg_device_describe(run->device, p->device, sizeof p->device);
}

static rg_status gather(rg_train_run *run, const rg_train_verdicts *verdicts, pieces *p)
{
    show_texts(run, p);
    RG_TRY(show_options(run, p));
    RG_TRY(show_worst(run, verdicts, p));
    RG_TRY(show_layers(run, p));
    RG_TRY(show_times(run, p));
    RG_TRY(show_memory(run, p));
    return rg_graph_drawing_create(rg_stepper_network(run->trainer->stepper)->graph, p->title,
                                   &p->drawing);
}

static void release(const rg_train_run *run, pieces *p)
{
    const rg_dataset_info *info = &run->test.info;
    const size_t bytes = (size_t)(info->height * info->width * info->channels);
    rg_release(allocator, p->pixels, WORST * bytes);
    rg_release(allocator, p->timings, (p->timing_capacity + 1) * sizeof *p->timings);
    rg_release(allocator, p->milliseconds, p->timing_capacity * sizeof *p->milliseconds);
    rg_release(allocator, p->memory, p->memory_capacity * sizeof *p->memory);
    rg_release(allocator, p->layers, p->layer_capacity * sizeof *p->layers);
    rg_release(allocator, p->texts, p->layer_capacity * sizeof *p->texts);
    rg_graph_drawing_release(&p->drawing);
    rg_names_clear(&p->rows);
    free(p->option_text);
}

rg_status rg_train_write_report(rg_train_run *run, const rg_trainer_result *test,
                                const rg_train_verdicts *verdicts, const char *command)
{
    pieces p = { .worst_count = 0 };
    rg_status status = gather(run, verdicts, &p);
    rg_plan *plan = rg_stepper_plan(run->trainer->stepper);
    const rg_report report = { .title = p.title,
                               .model = run->trainer->model->name,
                               .dataset = p.dataset,
                               .device = p.device,
                               .date = p.date,
                               .command = command,
                               .options = p.options,
                               .option_count = p.option_count,
                               .epochs = run->epochs,
                               .epoch_count = run->epoch_count,
                               .steps = run->losses,
                               .step_count = run->loss_count,
                               .test_loss = test->loss,
                               .test_accuracy = test->accuracy,
                               .classes = run->test.info.classes,
                               .class_names = (const char *const *)run->trainer->state.class_names,
                               .confusion = verdicts->confusion.cells,
                               .confusion_count = verdicts->confusion.count,
                               .worst = p.worst,
                               .worst_count = p.worst_count,
                               .layers = p.layers,
                               .layer_count = (int64_t)p.layer_capacity,
                               .drawing = p.drawing.drawing,
                               .timings = p.timings,
                               .timing_count = (int64_t)p.timing_count,
                               .memory = p.memory,
                               .memory_count = (int64_t)p.memory_capacity,
                               .memory_steps = rg_plan_steps(plan),
                               .peak_bytes = rg_plan_bytes(plan),
                               .separate_bytes = rg_plan_bytes_apart(plan) };
    if (status == RG_OK)
        status = rg_report_write_html(&report, run->report_path);
    release(run, &p);
    return status;
}
