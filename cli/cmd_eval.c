/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde eval`: how good a trained network is on a data set. */
#include "cli/cli.h"
#include "cli/print_json.h"
#include "cli/train_options.h"
#include "cli/train_part.h"
#include "cli/use_checkpoint.h"
#include "core/memory.h"

#include <math.h>
#include <stdio.h>

typedef struct request {
    rg_use_request use;
    const char *data;
} request;

/* The test part, or where there is none the part that networks are trained with. */
static rg_status open_set(const request *q, rg_train_part *part, bool *trained)
{
    RG_TRY(rg_train_open_test(q->data, &part->set));
    *trained = part->set == NULL;
    if (!*trained)
        return RG_OK;
    fprintf(q->use.json ? stderr : stdout, "%s has no test part; the training part is evaluated\n",
            q->data);
    return rg_dataset_open(q->data, RG_DATASET_TRAIN, &part->set);
}

/* ---- what is printed ---- */

enum {
    LISTED_CLASSES = 100, /* of more classes the weakest are listed, and the commonest mistakes */
    MATRIX_CLASSES = 256, /* of more classes JSON has cells in place of a matrix */
    MOST_LINES = 30
};

/* The whole matrix, with its zeros: row by row the cells come in order. */
static void print_matrix(const rg_confusion *confusion, int32_t classes)
{
    const rg_confusion_cell *cell = confusion->cells, *end = cell + confusion->count;
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

static void print_cells(const rg_confusion *confusion)
{
    printf(",\"confusion_cells\":[");
    for (int64_t i = 0; i < confusion->count; i++) {
        const rg_confusion_cell *c = &confusion->cells[i];
        printf("%s[%d,%d,%lld]", i > 0 ? "," : "", c->label, c->predicted, (long long)c->count);
    }
    printf("]");
}

static void print_json(const rg_train_part *part, bool trained, const rg_trainer_result *result,
                       const rg_confusion *confusion)
{
    printf("{\"part\":\"%s\",\"images\":%lld,\"loss\":", trained ? "train" : "test",
           (long long)part->info.count);
    rg_print_json_number(result->loss);
    printf(",\"accuracy\":%.9g", result->accuracy);
    if (part->info.classes <= MATRIX_CLASSES)
        print_matrix(confusion, part->info.classes);
    else
        print_cells(confusion);
    puts("}");
}

static void print_classes(const rg_run_state *c, const rg_confusion_class of[], int32_t count)
{
    printf("%-20s %8s %8s\n", "class", "images", "accuracy");
    for (int32_t i = 0; i < count; i++)
        printf("%-20s %8lld %7.2f%%\n", c->class_names[of[i].index], (long long)of[i].labels,
               of[i].labels > 0 ? 100.0 * (double)of[i].right / (double)of[i].labels : 0);
}

static void print_mistakes(const rg_run_state *c, const rg_confusion *confusion)
{
    rg_confusion_cell mistakes[MOST_LINES];
    const int count =
        rg_confusion_mistakes(confusion->cells, confusion->count, mistakes, MOST_LINES);
    if (count > 0)
        printf("\nmost frequent confusions\n%-20s %-20s %8s\n", "class", "predicted", "images");
    for (int i = 0; i < count; i++)
        printf("%-20s %-20s %8lld\n", c->class_names[mistakes[i].label],
               c->class_names[mistakes[i].predicted], (long long)mistakes[i].count);
}

static rg_status print_text(const rg_run_state *c, const rg_train_part *part,
                            const rg_trainer_result *result, const rg_confusion *confusion)
{
    const int32_t classes = part->info.classes;
    rg_confusion_class *of = NULL;
    RG_TRY(rg_allocate_array((size_t)classes, sizeof *of, &of));
    rg_confusion_count(confusion->cells, confusion->count, classes, of);
    printf("%lld images: accuracy %.2f %%, loss %.4f\n\n", (long long)part->info.count,
           100 * result->accuracy, rg_shown(result->loss));
    if (classes <= LISTED_CLASSES) {
        print_classes(c, of, classes);
    } else {
        int32_t seen = 0;
        rg_confusion_weakest(of, classes);
        while (seen < MOST_LINES && of[seen].labels > 0)
            seen++;
        printf("classes with the lowest accuracy, of %d\n", classes);
        print_classes(c, of, seen);
        print_mistakes(c, confusion);
    }
    rg_release(&rg_default_allocator, of, (size_t)classes * sizeof *of);
    return RG_OK;
}

static rg_status evaluate(const char *path, const request *q, rg_trainer **network,
                          rg_train_part *part)
{
    rg_train_verdicts verdicts = { 0 };
    rg_trainer_result result;
    bool trained;
    RG_TRY(rg_used_network_open(path, &q->use, network));
    RG_TRY(open_set(q, part, &trained));
    RG_TRY(rg_train_open_part(part, *network, q->data));
    rg_status status = rg_train_verdicts_create(&part->info, &verdicts);
    if (status == RG_OK)
        status = rg_train_evaluate(*network, part, &result, &verdicts);
    if (status == RG_OK && q->use.json)
        print_json(part, trained, &result, &verdicts.confusion);
    else if (status == RG_OK)
        status = print_text(&(*network)->state, part, &result, &verdicts.confusion);
    rg_train_verdicts_release(&part->info, &verdicts);
    if (status == RG_OK && isnan(result.loss))
        status = rg_fail(RG_MALFORMED, "%s: the network returns NaN; its parameters are not usable",
                         path);
    return status;
}

int rg_cmd_eval(int argc, char **argv)
{
    request q = { .data = rg_train_default_data };
    const rg_option data = { "data", RG_OPTION_TEXT, &q.data, "PATH",
                             "data set, as for train; the test part is used if there is one" };
    int result;
    const int left = rg_use_options(
        &data, &q.use,
        "usage: retrograde eval CHECKPOINT [options]\n\n"
        "Evaluates a trained network on a data set: loss, accuracy and accuracy per class. With "
        "more\n"
        "than 100 classes it lists the classes with the lowest accuracy and the most frequent\n"
        "confusions. --json prints the confusion matrix, or with more than 256 classes its "
        "non-zero\n"
        "cells as label, prediction, images.\n",
        argc, argv, &result);
    if (left < 0)
        return result;
    if (left != 1)
        return rg_wrong("eval needs exactly one checkpoint; see --help");
    rg_trainer *network = NULL;
    rg_train_part part = { .set = NULL };
    const rg_status status = evaluate(argv[0], &q, &network, &part);
    result = status == RG_OK ? 0 : rg_failed();
    rg_train_close_part(&part);
    rg_trainer_destroy(network);
    return result;
}
