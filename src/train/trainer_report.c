/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The report of a training: what the trainer, its plan and a last evaluation know. */
#include "train/findings.h"

#include "core/memory.h"
#include "graph/name_index.h"
#include "train/graph_drawing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const rg_allocator *const allocator = &rg_default_allocator;

enum { WORST = 24, TEXT = 256, OPTIONS = 64 };

/* All that a report points to. */
typedef struct pieces {
    rg_trainer *trainer;
    const rg_dataset *test;
    const char *part;           /* "test" or "validation" */
    rg_dataset_info info;       /* of that set */
    rg_prediction *predictions; /* by image */
    rg_confusion_cell *cells;
    int64_t cell_count;
    rg_report_image worst[WORST];
    int64_t worst_count;
    rg_findings findings; /* of other targets than one class */
    uint8_t *pixels;      /* of the worst images */
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
    rg_report_pair options[OPTIONS];
    char *option_text; /* "name=value" lines, cut into words */
    int64_t option_count;
    char title[TEXT], date[64], device[TEXT], dataset[TEXT];
} pieces;

/* ---- the worst images ---- */

/* Keeps those with the least probability of the right answer, the worst first. */
static int64_t find_worst(const pieces *p, int64_t worst[])
{
    const rg_prediction *v = p->predictions;
    int64_t count = 0;
    for (int64_t i = 0; i < p->info.count; i++) {
        if (v[i].predicted == v[i].label)
            continue;
        if (count == WORST && v[i].of_label >= v[worst[WORST - 1]].of_label)
            continue;
        int64_t at = count < WORST ? count++ : WORST - 1;
        for (; at > 0 && v[worst[at - 1]].of_label > v[i].of_label; at--)
            worst[at] = worst[at - 1];
        worst[at] = i;
    }
    return count;
}

static rg_status show_worst(pieces *p)
{
    const rg_dataset_info *info = &p->info;
    const size_t bytes = (size_t)(info->height * info->width * info->channels);
    int64_t worst[WORST];
    if (p->test == NULL || p->predictions == NULL)
        return RG_OK;
    RG_TRY(rg_allocate_array(WORST, bytes, &p->pixels));
    if (info->channels != 1 && info->channels != 3)
        return RG_OK; /* these are no pictures */
    p->worst_count = find_worst(p, worst);
    for (int64_t i = 0; i < p->worst_count; i++) {
        uint8_t *pixels = p->pixels + (size_t)i * bytes;
        const rg_prediction *prediction = &p->predictions[worst[i]];
        RG_TRY(rg_findings_picture(p->test, worst[i], pixels));
        snprintf(p->names[i], sizeof p->names[i], "%.30s image %lld", p->part, (long long)worst[i]);
        p->worst[i] = (rg_report_image){ .pixels = pixels,
                                         .height = (int32_t)info->height,
                                         .width = (int32_t)info->width,
                                         .channels = (int32_t)info->channels,
                                         .label = prediction->label,
                                         .predicted = prediction->predicted,
                                         .probability = (double)prediction->probability,
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
static void fields_text(const rg_op *op, const void *desc, const int32_t window[], char text[TEXT])
{
    char all[1024];
    rg_fields_text(&op->desc, desc, all, sizeof all);
    char defaults[1024];
    rg_fields_text(&op->desc, op->desc.defaults, defaults, sizeof defaults);
    size_t at = 0;
    text[0] = 0;
    if (window[0] > 0)
        at = (size_t)snprintf(text, TEXT, "%d×%d", window[0], window[1]);
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

static rg_status show_layers(pieces *p)
{
    const rg_network *network = rg_stepper_network(p->trainer->stepper);
    p->layer_capacity = network->layers_count;
    RG_TRY(rg_allocate_array(p->layer_capacity, sizeof *p->layers, &p->layers));
    RG_TRY(rg_allocate_array(p->layer_capacity, sizeof *p->texts, &p->texts));
    for (size_t i = 0; i < p->layer_capacity; i++) {
        static const int32_t no_window[2] = { 0, 0 };
        const rg_model *model = p->trainer->model;
        const rg_layer *layer = model->onnx == NULL ? &model->layers[i] : NULL;
        const rg_node *node = network->layers[i].node;
        const rg_op *op = layer != NULL ? layer->op : node->op;
        shape_text(&network->layers[i].desc, p->texts[i][0]);
        fields_text(op, layer != NULL ? layer->desc : node->desc,
                    layer != NULL ? layer->window : no_window, p->texts[i][1]);
        p->layers[i] = (rg_report_layer){ .label = layer != NULL ? layer->label : node->label,
                                          .op = op->name,
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

static rg_status show_times(pieces *p)
{
    rg_plan *plan = rg_stepper_plan(p->trainer->stepper);
    int32_t steps;
    const rg_status status = rg_stepper_prepare_time(p->trainer->stepper, &steps);
    if (status == RG_INVALID_STATE)
        return RG_OK; /* this trainer has trained nothing */
    RG_TRY(status);
    p->timing_capacity = (size_t)steps;
    RG_TRY(rg_allocate_array(p->timing_capacity + 1, sizeof *p->timings, &p->timings));
    RG_TRY(rg_allocate_array(p->timing_capacity, sizeof *p->milliseconds, &p->milliseconds));
    RG_TRY(rg_stepper_time(p->trainer->stepper, p->milliseconds));
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

static rg_status show_memory(pieces *p)
{
    const rg_plan *plan = rg_stepper_plan(p->trainer->stepper);
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

static rg_status show_options(const char *options, pieces *p)
{
    RG_TRY(options != NULL ? rg_copy_text(options, &p->option_text)
                           : rg_trainer_desc_text(&p->trainer->desc, &p->option_text));
    char *rest = NULL;
    for (char *line = strtok_r(p->option_text, "\n", &rest);
         line != NULL && p->option_count < OPTIONS; line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, '=');
        if (value == NULL)
            continue;
        *value++ = 0;
        p->options[p->option_count++] = (rg_report_pair){ line, value };
    }
    return RG_OK;
}

static void show_texts(const char *data, pieces *p)
{
    const rg_trainer *t = p->trainer;
    const rg_network_desc *n = &t->state.network;
    const time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts) != NULL)
        strftime(p->date, sizeof p->date, "%Y-%m-%d %H:%M", &parts);
    snprintf(p->title, sizeof p->title, "%s%s%s", t->model->name, data != NULL ? " on " : "",
             data != NULL ? data : "");
    char evaluated[64] = "";
    if (p->test != NULL)
        snprintf(evaluated, sizeof evaluated, ", %lld for %s", (long long)p->info.count,
                 strcmp(p->part, "test") == 0 ? "testing" : p->part);
    snprintf(p->dataset, sizeof p->dataset,
             "%s%s%lld images for training%s, %lld×%lld×%lld, %d classes", data != NULL ? data : "",
             data != NULL ? ": " : "", (long long)t->images, evaluated, (long long)n->height,
             (long long)n->width, (long long)n->channels, n->classes);
    rg_device_describe(t->device, p->device, sizeof p->device);
}

static rg_status predict_test_set(pieces *p, rg_trainer_result *result)
{
    *result =
        (rg_trainer_result){ .loss = NAN, .accuracy = NAN, .score = NAN, .top5 = NAN, .iou = NAN };
    if (p->test == NULL)
        return RG_OK;
    const size_t count = (size_t)p->info.count;
    if (p->trainer->state.network.target != RG_TARGET_CLASS)
        return rg_findings_gather(p->trainer, p->test, p->part, &p->findings, result);
    RG_TRY(rg_allocate_array(count, sizeof *p->predictions, &p->predictions));
    RG_TRY(rg_allocate_array(count, sizeof *p->cells, &p->cells));
    RG_TRY(rg_trainer_predict_set(p->trainer, p->test, p->predictions, result));
    p->cell_count = rg_confusion_cells(p->predictions, p->info.count, p->cells);
    return RG_OK;
}

static rg_status gather(const rg_report_desc *desc, pieces *p, rg_trainer_result *result)
{
    RG_TRY(predict_test_set(p, result));
    show_texts(desc->data, p);
    RG_TRY(show_options(desc->options, p));
    RG_TRY(show_worst(p));
    RG_TRY(show_layers(p));
    RG_TRY(show_times(p));
    RG_TRY(show_memory(p));
    return rg_graph_drawing_create(rg_stepper_network(p->trainer->stepper)->graph, p->title,
                                   &p->drawing);
}

static void release(pieces *p)
{
    const rg_dataset_info *info = &p->info;
    const size_t bytes = (size_t)(info->height * info->width * info->channels);
    rg_release(allocator, p->predictions, (size_t)info->count * sizeof *p->predictions);
    rg_release(allocator, p->cells, (size_t)info->count * sizeof *p->cells);
    rg_release(allocator, p->pixels, WORST * bytes);
    rg_findings_release(&p->findings);
    rg_release(allocator, p->timings, (p->timing_capacity + 1) * sizeof *p->timings);
    rg_release(allocator, p->milliseconds, p->timing_capacity * sizeof *p->milliseconds);
    rg_release(allocator, p->memory, p->memory_capacity * sizeof *p->memory);
    rg_release(allocator, p->layers, p->layer_capacity * sizeof *p->layers);
    rg_release(allocator, p->texts, p->layer_capacity * sizeof *p->texts);
    rg_graph_drawing_release(&p->drawing);
    rg_names_clear(&p->rows);
    free(p->option_text);
}

static const char *metric_name(rg_target_kind target)
{
    static const char *const names[] = { "Accuracy", "Label accuracy", "Mean absolute error",
                                         "Pixel accuracy" };
    return names[target];
}

static rg_status write_page(const pieces *p, const char *command, const rg_trainer_result *result,
                            const char *path)
{
    const rg_trainer *t = p->trainer;
    const rg_plan *plan = rg_stepper_plan(t->stepper);
    const rg_target_kind target = t->state.network.target;
    const bool is_class = target == RG_TARGET_CLASS;
    const rg_report report = { .title = p->title,
                               .model = t->model->name,
                               .dataset = p->dataset,
                               .device = p->device,
                               .date = p->date,
                               .command = command,
                               .options = p->options,
                               .option_count = p->option_count,
                               .epochs = t->history.epochs,
                               .epoch_count = (int64_t)t->history.epoch_count,
                               .steps = t->history.losses,
                               .step_count = t->history.loss_count,
                               .test_loss = result->loss,
                               .test_accuracy = result->accuracy,
                               .metric = metric_name(target),
                               .test_score = result->score,
                               .test_iou = result->iou,
                               .test_part = p->part,
                               .test_epoch = t->restored ? t->state.best_epoch : 0,
                               .best_epoch = t->state.best_epoch,
                               .classes = t->state.network.classes,
                               .class_names = (const char *const *)t->state.class_names,
                               .confusion = p->cells,
                               .confusion_count = p->cell_count,
                               .worst = is_class ? p->worst : p->findings.worst,
                               .worst_count = is_class ? p->worst_count : p->findings.worst_count,
                               .target = target,
                               .target_images = p->findings.seen,
                               .values = p->findings.values,
                               .value_count = p->findings.info.targets,
                               .target_classes = p->findings.classes,
                               .layers = p->layers,
                               .layer_count = (int64_t)p->layer_capacity,
                               .drawing = p->drawing.drawing,
                               .timings = p->timings,
                               .timing_count = (int64_t)p->timing_count,
                               .memory = p->memory,
                               .memory_count = (int64_t)p->memory_capacity,
                               .memory_steps = rg_plan_steps(plan),
                               .peak_bytes = rg_plan_bytes(plan),
                               .separate_bytes = rg_plan_bytes_apart(plan) };
    return rg_report_write_html(&report, path);
}

rg_report_desc rg_report_desc_default(void)
{
    return (rg_report_desc){ .size = sizeof(rg_report_desc) };
}

rg_status rg_trainer_report(rg_trainer *trainer, const rg_dataset *test, const rg_report_desc *desc,
                            const char *path, rg_trainer_result *result)
{
    rg_report_desc checked = rg_report_desc_default();
    rg_trainer_result own;
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(path);
    RG_CHECK(trainer->loader != NULL, RG_INVALID_STATE,
             "rg_trainer_report: the trainer was loaded for use alone");
    if (desc != NULL) {
        RG_CHECK(desc->size > sizeof desc->size && desc->size <= sizeof *desc, RG_INVALID_ARGUMENT,
                 "rg_trainer_report: size is %u; start from rg_report_desc_default()", desc->size);
        memcpy(&checked, desc, desc->size);
    }
    pieces p = { .trainer = trainer, .test = test };
    p.part = checked.part != NULL ? checked.part : "test";
    if (test != NULL)
        RG_TRY(rg_dataset_get_info(test, &p.info));
    rg_status status = gather(&checked, &p, &own);
    if (status == RG_OK)
        status = write_page(&p, checked.command, &own, path);
    release(&p);
    if (status == RG_OK && result != NULL && test != NULL)
        *result = own;
    return status;
}
