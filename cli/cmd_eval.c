/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde eval`: how good a trained network is on a data set. */
#include "cli/cli.h"
#include "cli/print_json.h"
#include "cli/train_options.h"
#include "cli/train_part.h"
#include "cli/use_checkpoint.h"

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
    fprintf(q->use.json ? stderr : stdout, "%s holds no test part: its training part is used\n",
            q->data);
    return rg_dataset_open(q->data, RG_DATASET_TRAIN, &part->set);
}

static void print_result(const rg_checkpoint *c, const rg_train_part *part, bool trained,
                         const rg_train_result *result, const rg_train_verdicts *v, bool json)
{
    const int32_t classes = part->info.classes;
    if (json) {
        printf("{\"part\":\"%s\",\"images\":%lld,\"loss\":", trained ? "train" : "test",
               (long long)part->info.count);
        rg_print_json_number(result->loss);
        printf(",\"accuracy\":%.9g,\"confusion\":[", result->accuracy);
    } else {
        printf("%lld images: accuracy %.2f %%, loss %.4f\n\n%-20s %8s %8s\n",
               (long long)part->info.count, 100 * result->accuracy, rg_shown(result->loss), "class",
               "images", "right");
    }
    for (int32_t i = 0; i < classes; i++) {
        int64_t all = 0;
        if (json)
            printf("%s[", i > 0 ? "," : "");
        for (int32_t k = 0; k < classes; k++) {
            all += v->confusion[(int64_t)i * classes + k];
            if (json)
                printf("%s%lld", k > 0 ? "," : "",
                       (long long)v->confusion[(int64_t)i * classes + k]);
        }
        if (json)
            printf("]");
        else
            printf("%-20s %8lld %7.2f%%\n", c->class_names[i], (long long)all,
                   all > 0 ? 100.0 * (double)v->confusion[(int64_t)i * classes + i] / (double)all
                           : 0);
    }
    if (json)
        puts("]}");
}

static rg_status evaluate(const char *path, const request *q, rg_used_network *network,
                          rg_train_part *part)
{
    rg_train_verdicts verdicts = { 0 };
    rg_train_result result;
    bool trained;
    RG_TRY(rg_used_network_open(path, &q->use, network));
    RG_TRY(open_set(q, part, &trained));
    RG_TRY(rg_train_open_part(part, &network->checkpoint, q->data));
    rg_status status = rg_train_verdicts_create(&part->info, &verdicts);
    if (status == RG_OK)
        status = rg_train_evaluate(network->trainer, part, &result, &verdicts);
    if (status == RG_OK)
        print_result(&network->checkpoint, part, trained, &result, &verdicts, q->use.json);
    rg_train_verdicts_release(&part->info, &verdicts);
    return status;
}

int rg_cmd_eval(int argc, char **argv)
{
    request q = { .data = rg_train_default_data };
    const rg_option data = { "data", RG_OPTION_TEXT, &q.data, "PATH",
                             "as for train; its test part is used, if it has one" };
    int result;
    const int left = rg_use_options(
        &data, &q.use,
        "usage: retrograde eval CHECKPOINT [options]\n\n"
        "Loss, accuracy and the share of each class that a trained network gets right.\n",
        argc, argv, &result);
    if (left < 0)
        return result;
    if (left != 1)
        return rg_wrong("eval wants one checkpoint; see --help");
    rg_used_network network = { .device = NULL };
    rg_train_part part = { .set = NULL };
    const rg_status status = evaluate(argv[0], &q, &network, &part);
    result = status == RG_OK ? 0 : rg_failed();
    rg_train_close_part(&part);
    rg_used_network_close(&network);
    return result;
}
