/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde predict`: images in, classes and probabilities out. */
#include "cli/cli.h"
#include "cli/print_json.h"
#include "cli/use_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct request {
    rg_use_request use;
    int64_t top;
} request;

typedef struct answer {
    double probability;
    int32_t number; /* of the class */
} answer;

static int by_probability(const void *a, const void *b)
{
    const answer *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability > y->probability ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static void print_answer(const rg_trainer *network, const char *path, answer answers[],
                         int32_t classes, const request *q)
{
    const int64_t top = q->top < classes ? q->top : classes;
    qsort(answers, (size_t)classes, sizeof *answers, by_probability);
    if (q->use.json) {
        printf("{\"image\":");
        rg_print_json_text(path);
        printf(",\"classes\":[");
    } else {
        printf("%s:", path);
    }
    for (int64_t k = 0; k < top; k++) {
        const int32_t best = answers[k].number;
        const char *name = rg_trainer_class_name(network, best);
        const double probability = answers[k].probability;
        if (q->use.json) {
            printf("%s{\"class\":", k > 0 ? "," : "");
            rg_print_json_text(name);
            printf(",\"number\":%d,\"probability\":%.6g}", best, probability);
        } else {
            printf("%s %s %.2f %%", k > 0 ? "," : "", name, 100 * probability);
        }
    }
    puts(q->use.json ? "]}" : "");
}

/* Labels that are more probable than not, the most probable first; or the classes that pixels of a
 * mask have, with their share. `answers` has one element for each class. */
static rg_status print_classes(const rg_trainer *network, const char *path, const float numbers[],
                               const rg_network_desc *desc, answer answers[])
{
    const bool masks = desc->target == RG_TARGET_MASK;
    const int64_t count = rg_trainer_answers(network);
    int32_t named = 0;
    for (int32_t i = 0; i < desc->classes; i++)
        answers[i] = (answer){ masks ? 0 : (double)numbers[i], i };
    for (int64_t i = 0; i < count; i++) {
        if (isnan(numbers[i]))
            return rg_fails(RG_MALFORMED, "%s: the network returns NaN", path);
        if (masks)
            answers[(int32_t)numbers[i]].probability += 1;
    }
    qsort(answers, (size_t)desc->classes, sizeof *answers, by_probability);
    printf("%s:", path);
    for (; named < desc->classes; named++) {
        const double share = answers[named].probability / (masks ? (double)count : 1);
        if (!(share > (masks ? 0 : 0.5)))
            break;
        printf("%s %s %.2f %%", named > 0 ? "," : "",
               rg_trainer_class_name(network, answers[named].number), 100 * share);
    }
    puts(named > 0 ? "" : " none");
    return RG_OK;
}

/* Values, the probabilities of labels, or the classes of pixels: all numbers in a row. */
static void print_numbers(const char *path, const float numbers[], int64_t count, bool json)
{
    if (json) {
        printf("{\"image\":");
        rg_print_json_text(path);
        printf(",\"values\":[");
    } else {
        printf("%s:", path);
    }
    for (int64_t i = 0; i < count; i++)
        printf("%s%.6g", !json ? " " : i > 0 ? "," : "", (double)numbers[i]);
    puts(json ? "]}" : "");
}

static rg_status predict_one(rg_trainer *network, const char *path, const request *q,
                             const rg_network_desc *desc, float *probabilities, answer *answers)
{
    const int32_t classes = desc->classes;
    RG_PASS(rg_trainer_predict_file(network, path, probabilities));
    const bool classes_named = desc->target == RG_TARGET_LABELS || desc->target == RG_TARGET_MASK;
    if (classes_named && !q->use.json)
        return print_classes(network, path, probabilities, desc, answers);
    if (desc->target != RG_TARGET_CLASS) {
        print_numbers(path, probabilities, rg_trainer_answers(network), q->use.json);
        return RG_OK;
    }
    for (int32_t i = 0; i < classes; i++) {
        if (isnan(probabilities[i]))
            return rg_fails(RG_MALFORMED, "%s: the network returns NaN", path);
        answers[i] = (answer){ (double)probabilities[i], i };
    }
    print_answer(network, path, answers, classes, q);
    return RG_OK;
}

static int predict(rg_trainer *network, int count, char **paths, const request *q)
{
    rg_network_desc desc;
    if (rg_trainer_get_network(network, &desc) != RG_OK)
        return rg_failed();
    const size_t classes = (size_t)desc.classes;
    float *probabilities = malloc((size_t)rg_trainer_answers(network) * sizeof *probabilities);
    answer *answers = malloc(classes * sizeof *answers);
    rg_status status = RG_OK;
    if (probabilities == NULL || answers == NULL)
        status = rg_fails(RG_OUT_OF_MEMORY, "out of memory for an image");
    int result = status == RG_OK ? 0 : rg_failed();
    for (int i = 0; i < count && status == RG_OK; i++) {
        if (predict_one(network, paths[i], q, &desc, probabilities, answers) != RG_OK)
            result = rg_failed(); /* the others may be good */
    }
    free(probabilities);
    free(answers);
    return result;
}

int rg_cmd_predict(int argc, char **argv)
{
    request q = { .top = 1 };
    const rg_option top = { "top", RG_OPTION_COUNT, &q.top, "N",
                            "print the N most probable classes (default 1)" };
    int result;
    const int left = rg_use_options(
        &top, &q.use,
        "usage: retrograde predict CHECKPOINT|RUN|MODEL.onnx IMAGE... [options]\n\n"
        "Classifies PNG, JPEG, WebP or NPY images and prints the probabilities of the classes. For\n"
        "networks with masks it prints the share of each class, and with --json the class of each\n"
        "pixel. An ONNX model from elsewhere gets pixels from 0 to 1, normalized as --normalize says,\n"
        "and its classes are numbered.\n",
        argc, argv, &result);
    if (left < 0)
        return result;
    if (left < 2 || q.top < 1)
        return rg_wrong(left < 2 ? "predict needs a checkpoint and at least one image; see --help"
                                 : "--top must be at least 1, not 0");
    rg_trainer *network;
    char *path = rg_used_path(argv[0]);
    const rg_status opened = path != NULL ? rg_used_network_open(path, &q.use, &network)
                                          : rg_fails(RG_OUT_OF_MEMORY, "out of memory for a path");
    free(path);
    if (opened != RG_OK)
        return rg_failed();
    result = predict(network, left - 1, argv + 1, &q);
    rg_trainer_destroy(network);
    return result;
}
