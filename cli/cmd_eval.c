/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde eval`: evaluates a trained network on a data set. */
#include "cli/cli.h"
#include "cli/print_json.h"
#include "cli/train_data.h"
#include "cli/train_show.h"
#include "cli/use_checkpoint.h"

#include <retrograde/checkpoint.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct request {
    rg_use_request use;
    const char *data; /* NULL: that of the checkpoint */
} request;

/* An evaluation: its network and data, and its results. */
typedef struct evaluation {
    rg_trainer *network;
    char *kept;               /* options of the checkpoint, which `trained` points into */
    rg_train_request trained; /* how it was trained */
    const char *data;
    rg_dataset *set;
    rg_dataset_info info;
    char size[RG_TRAIN_SIZE_TEXT];
    const char *part; /* "test", or "train" of other data without a test part */
    rg_trainer_result result;
    rg_prediction *predictions;
    rg_confusion_cell *cells;
    int64_t cell_count;
} evaluation;

/* ---- data ---- */

/* The options that a checkpoint was trained with. One that a program has saved has no data. */
static rg_status read_trained(const char *path, evaluation *e)
{
    rg_checkpoint *checkpoint;
    rg_checkpoint_info info;
    RG_PASS(rg_checkpoint_inspect(path, &checkpoint));
    e->trained = rg_train_defaults();
    e->trained.data = NULL;
    if (rg_checkpoint_get_info(checkpoint, &info) == RG_OK) {
        e->trained.splits_always = info.train_images == 0;
        if (info.network.channels == 1 || info.network.channels == 3)
            e->trained.channels = info.network.channels;
    }
    e->kept = strdup(rg_checkpoint_options(checkpoint));
    rg_checkpoint_close(checkpoint);
    if (e->kept == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for the options");
    const rg_status status = rg_train_options_read(&e->trained, e->kept);
    return status == RG_OK ? RG_OK : rg_fails(status, "%s: %s", path, rg_failure());
}

/* The test images that `train` has held back or found. */
static rg_status open_own(evaluation *e)
{
    rg_train_data data;
    rg_status status = rg_train_data_open(&e->trained, &data);
    if (status == RG_OK) {
        e->set = data.test;
        data.test = NULL;
        e->part = "test";
        if (rg_trainer_check_set(e->network, data.train) == RG_OK &&
            rg_trainer_check_images(e->network, data.train) != RG_OK)
            fprintf(stderr,
                    "retrograde: %s: %s; images that it has learned from may be among the test "
                    "images\n",
                    e->data, rg_error_text());
    } else if (status == RG_IO) {
        status = rg_fails(status,
                          "%s. The network was trained with this data; name other data with "
                          "--data",
                          rg_failure());
    }
    rg_train_data_close(&data);
    return status;
}

/* Of images of the training by another path those that were held back; whether it is these. */
static bool take_moved(evaluation *e)
{
    rg_train_data data = { .train = NULL };
    const bool known = e->kept != NULL && !e->trained.splits_always && e->trained.data != NULL;
    const bool same = known && rg_train_data_divide(&e->trained, e->set, &data) == RG_OK &&
                      rg_trainer_check_set(e->network, data.train) == RG_OK &&
                      rg_trainer_check_images(e->network, data.train) == RG_OK;
    if (same) {
        rg_dataset_destroy(e->set);
        e->set = data.test;
        data.test = NULL;
    }
    rg_train_data_close(&data);
    return same;
}

/* Other data: the test part; if there is none, all images. */
static rg_status open_other(const request *q, evaluation *e)
{
    rg_dataset_options options;
    RG_PASS(rg_train_data_options(&e->trained, &options));
    RG_PASS(rg_open_part(e->data, RG_DATASET_TEST, &options, &e->set));
    e->part = e->set != NULL ? "test" : "train";
    if (e->set != NULL)
        return RG_OK;
    RG_PASS(rg_dataset_open_with(e->data, RG_DATASET_TRAIN, &options, &e->set));
    const bool moved = take_moved(e);
    e->part = moved ? "test" : "train";
    fprintf(q->use.json ? stderr : stdout, "%s has %s\n", e->data,
            moved ? "the images of the training; those that were held back for testing are "
                    "evaluated"
                  : "no test part; the training part is evaluated");
    return RG_OK;
}

/* Whether two names are of one file or folder, or of one set without files. */
static bool is_same_data(const char *a, const char *b)
{
    struct stat x, y;
    const bool files = stat(a, &x) == 0 && stat(b, &y) == 0;
    return strcmp(a, b) == 0 || (files && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

static rg_status open_set(const char *path, const request *q, evaluation *e)
{
    RG_PASS(read_trained(path, e));
    e->data = q->data != NULL ? q->data : e->trained.data;
    if (e->data == NULL)
        return rg_fails(RG_INVALID_ARGUMENT,
                        "%s: the checkpoint does not name its data; name it with --data", path);
    const bool own = e->trained.data != NULL && is_same_data(e->data, e->trained.data);
    return own ? open_own(e) : open_other(q, e);
}

/* ---- ONNX models ---- */

/* The network with the normalization and the classes of the training part. */
static rg_status open_measured(const request *q, const rg_model *model,
                               const rg_dataset_options *options, evaluation *e)
{
    rg_device_options device_options = rg_device_options_default();
    rg_device *device;
    rg_dataset *train;
    rg_normalize_kind normalize;
    RG_PASS(rg_usage_status(rg_normalize_parse(q->use.normalize, &normalize)));
    device_options.threads = (int32_t)q->use.threads;
    RG_PASS(rg_dataset_open_with(e->data, RG_DATASET_TRAIN, options, &train));
    rg_status status = rg_usage_status(rg_device_create(q->use.device, &device_options, &device));
    if (status == RG_OK) {
        status = rg_trainer_open(device, model, train, normalize, &e->network);
        rg_device_destroy(device);
    }
    rg_dataset_destroy(train);
    return status;
}

static rg_status open_onnx(const char *path, const request *q, evaluation *e)
{
    rg_dataset_options options;
    rg_model *model;
    if (q->data == NULL)
        return rg_fails(RG_INVALID_ARGUMENT, "%s: name the data with --data", path);
    RG_PASS(rg_model_open(path, &model));
    e->trained = rg_train_defaults();
    e->data = q->data;
    rg_status status = rg_train_take_size(model, &e->trained, e->size);
    if (status == RG_OK)
        status = rg_train_data_options(&e->trained, &options);
    if (status == RG_OK)
        status = open_measured(q, model, &options, e);
    rg_model_destroy(model);
    return status == RG_OK ? open_other(q, e) : status;
}

static rg_status open_checkpoint(const char *path, const request *q, evaluation *e)
{
    RG_PASS(rg_used_network_open(path, &q->use, &e->network));
    return open_set(path, q, e);
}

/* ---- what is printed ---- */

enum {
    LISTED_CLASSES = 100, /* of more classes the weakest are listed, and the commonest mistakes */
    MATRIX_CLASSES = 256, /* of more classes JSON has cells in place of a matrix */
    MOST_LINES = 30
};

/* The whole matrix, with its zeros: row by row the cells come in order. */
static void print_matrix(const evaluation *e)
{
    const int32_t classes = e->info.classes;
    const rg_confusion_cell *cell = e->cells, *end = cell + e->cell_count;
    printf(",\"confusion\":[");
    for (int32_t i = 0; i < classes; i++) {
        for (int32_t k = 0; k < classes; k++) {
            const bool here = cell < end && cell->label == i && cell->predicted == k;
            printf("%s%lld", k > 0 ? "," : i > 0 ? ",[" : "[", here ? (long long)cell->count : 0);
            cell += here;
        }
        printf("]");
    }
    printf("]");
}

static void print_cells(const evaluation *e)
{
    printf(",\"confusion_cells\":[");
    for (int64_t i = 0; i < e->cell_count; i++) {
        const rg_confusion_cell *c = &e->cells[i];
        printf("%s[%d,%d,%lld]", i > 0 ? "," : "", c->label, c->predicted, (long long)c->count);
    }
    printf("]");
}

static void print_json(const evaluation *e)
{
    printf("{\"data\":");
    rg_print_json_text(e->data);
    printf(",\"part\":\"%s\",\"images\":%lld,\"loss\":", e->part, (long long)e->info.count);
    rg_print_json_number(e->result.loss);
    printf(",\"%s\":", e->info.target == RG_TARGET_VALUES ? "absolute_error" : "accuracy");
    rg_print_json_number(e->result.score);
    if (isfinite(e->result.top5)) {
        printf(",\"top5\":");
        rg_print_json_number(e->result.top5);
    }
    if (e->info.target == RG_TARGET_MASK) {
        printf(",\"iou\":");
        rg_print_json_number(e->result.iou);
    }
    if (e->info.target == RG_TARGET_CLASS && e->info.classes <= MATRIX_CLASSES)
        print_matrix(e);
    else if (e->info.target == RG_TARGET_CLASS)
        print_cells(e);
    puts("}");
}

static void print_classes(const rg_trainer *network, const rg_confusion_class of[], int32_t count)
{
    printf("%-20s %8s %8s\n", "class", "images", "accuracy");
    for (int32_t i = 0; i < count; i++)
        printf("%-20s %8lld %7.2f%%\n", rg_trainer_class_name(network, of[i].index),
               (long long)of[i].labels,
               of[i].labels > 0 ? 100.0 * (double)of[i].right / (double)of[i].labels : 0);
}

static void print_mistakes(const evaluation *e)
{
    rg_confusion_cell mistakes[MOST_LINES];
    const int32_t count = rg_confusion_mistakes(e->cells, e->cell_count, mistakes, MOST_LINES);
    if (count > 0)
        printf("\nmost frequent confusions\n%-20s %-20s %8s\n", "class", "predicted", "images");
    for (int32_t i = 0; i < count; i++)
        printf("%-20s %-20s %8lld\n", rg_trainer_class_name(e->network, mistakes[i].label),
               rg_trainer_class_name(e->network, mistakes[i].predicted),
               (long long)mistakes[i].count);
}

static void print_result(const evaluation *e)
{
    printf("%s: %lld %s images: ", e->data, (long long)e->info.count, e->part);
    rg_show_result(e->info.target, e->info.classes, &e->result);
    puts("");
}

static rg_status print_text(const evaluation *e)
{
    const int32_t classes = e->info.classes;
    rg_confusion_class *of = calloc((size_t)classes, sizeof *of);
    if (of == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for %d classes", classes);
    rg_confusion_count(e->cells, e->cell_count, classes, of);
    print_result(e);
    puts("");
    if (classes <= LISTED_CLASSES) {
        print_classes(e->network, of, classes);
    } else {
        int32_t seen = 0;
        rg_confusion_weakest(of, classes);
        while (seen < MOST_LINES && of[seen].labels > 0)
            seen++;
        printf("classes with the lowest accuracy, of %d\n", classes);
        print_classes(e->network, of, seen);
        print_mistakes(e);
    }
    free(of);
    return RG_OK;
}

/* One class for each image: all predictions are wanted. */
static rg_status evaluate_classes(evaluation *e)
{
    e->predictions = calloc((size_t)e->info.count, sizeof *e->predictions);
    e->cells = calloc((size_t)e->info.count, sizeof *e->cells);
    if (e->predictions == NULL || e->cells == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for %lld images",
                        (long long)e->info.count);
    RG_PASS(rg_trainer_predict_set(e->network, e->set, e->predictions, &e->result));
    e->cell_count = rg_confusion_cells(e->predictions, e->info.count, e->cells);
    return RG_OK;
}

static rg_status evaluate(const char *path, const request *q, evaluation *e)
{
    RG_PASS(rg_is_onnx(path) ? open_onnx(path, q, e) : open_checkpoint(path, q, e));
    RG_PASS(rg_dataset_get_info(e->set, &e->info));
    RG_PASS(rg_check_part(e->network, e->set, e->data));
    const bool classes = e->info.target == RG_TARGET_CLASS;
    RG_PASS(classes ? evaluate_classes(e) : rg_trainer_evaluate(e->network, e->set, &e->result));
    if (q->use.json)
        print_json(e);
    else if (classes)
        RG_PASS(print_text(e));
    else
        print_result(e);
    if (isnan(e->result.loss))
        return rg_fails(RG_MALFORMED, "%s: the network returns NaN; its parameters are not usable",
                        path);
    return RG_OK;
}

int rg_cmd_eval(int argc, char **argv)
{
    request q = { .data = NULL };
    const rg_option data = { "data", RG_OPTION_TEXT, &q.data, "PATH",
                             "data set, as for train (default: that of the checkpoint)" };
    int result;
    const int left = rg_use_options(
        &data, &q.use,
        "usage: retrograde eval CHECKPOINT|RUN|MODEL.onnx [options]\n\n"
        "Evaluates a trained network on a data set: loss, accuracy and accuracy per class. Without\n"
        "--data it repeats the test at the end of training: the same images, the same figures.\n"
        "With more than 100 classes it lists the classes with the lowest accuracy and the most\n"
        "frequent confusions. --json prints the confusion matrix, or with more than 256 classes its\n"
        "non-zero cells as label, prediction, images.\n",
        argc, argv, &result);
    if (left < 0)
        return result;
    if (left != 1)
        return rg_wrong("eval needs exactly one checkpoint; see --help");
    evaluation e = { .network = NULL };
    char *path = rg_used_path(argv[0]);
    rg_status status = RG_OK;
    if (path == NULL)
        status = rg_fails(RG_OUT_OF_MEMORY, "out of memory for a path");
    if (status == RG_OK)
        status = evaluate(path, &q, &e);
    result = status == RG_OK ? 0 : rg_failed();
    free(path);
    free(e.predictions);
    free(e.cells);
    free(e.kept);
    rg_dataset_destroy(e.set);
    rg_trainer_destroy(e.network);
    return result;
}
