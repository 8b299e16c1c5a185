/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde eval`: how good a trained network is on a data set. */
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/train_run.h"
#include "cli/use_checkpoint.h"

#include <math.h>
#include <stdio.h>

typedef struct request {
    const char *device, *data;
    int64_t threads;
    bool json, help;
} request;

static rg_status check_data(const rg_checkpoint *c, const rg_dataset_info *info, const char *data)
{
    const rg_network_options *n = &c->network;
    RG_CHECK(n->height == info->height && n->width == info->width &&
                 n->channels == info->channels && info->classes == n->classes,
             RG_INVALID_ARGUMENT,
             "%s: it has %lldx%lldx%lld images of %d classes, the network takes %lldx%lldx%lld "
             "and %d",
             data, (long long)info->height, (long long)info->width, (long long)info->channels,
             info->classes, (long long)n->height, (long long)n->width, (long long)n->channels,
             n->classes);
    return RG_OK;
}

static void print_result(const rg_checkpoint *c, const rg_train_part *part,
                         const rg_train_result *result, const rg_train_verdicts *v, bool json)
{
    const int32_t classes = part->info.classes;
    char loss[32] = "null"; /* JSON knows no NaN */
    if (isfinite(result->loss))
        snprintf(loss, sizeof loss, "%.9g", result->loss);
    if (json)
        printf("{\"images\":%lld,\"loss\":%s,\"accuracy\":%.9g,\"confusion\":[",
               (long long)part->info.count, loss, result->accuracy);
    else
        printf("%lld images: accuracy %.2f %%, loss %.4f\n\n%-20s %8s %8s\n",
               (long long)part->info.count, 100 * result->accuracy, result->loss, "class", "images",
               "right");
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
    RG_TRY(rg_used_network_open(path, q->device, q->threads, network));
    rg_status status = rg_dataset_open(q->data, RG_DATASET_TEST, &part->set);
    if (status == RG_UNSUPPORTED) /* a set without parts */
        status = rg_dataset_open(q->data, RG_DATASET_TRAIN, &part->set);
    RG_TRY(status);
    RG_TRY(rg_dataset_get_info(part->set, &part->info));
    RG_TRY(check_data(&network->checkpoint, &part->info, q->data));
    RG_TRY(rg_train_open_part(part, &network->checkpoint));
    status = rg_train_verdicts_create(&part->info, &verdicts);
    if (status == RG_OK)
        status = rg_train_evaluate(network->trainer, part, &result, &verdicts);
    if (status == RG_OK)
        print_result(&network->checkpoint, part, &result, &verdicts, q->json);
    rg_train_verdicts_release(&part->info, &verdicts);
    return status;
}

int rg_cmd_eval(int argc, char **argv)
{
    request q = { .device = "cpu", .data = "fashion-mnist" };
    const rg_option options[] = {
        { "data", RG_OPTION_TEXT, &q.data, "PATH", "as for train; its test part is used" },
        { "device", RG_OPTION_TEXT, &q.device, "NAME", "cpu (default), cuda, cuda:1" },
        { "threads", RG_OPTION_COUNT, &q.threads, "N", "of the CPU; 0: all (default)" },
        { "json", RG_OPTION_FLAG, &q.json, NULL, "one JSON object" },
        { "help", RG_OPTION_FLAG, &q.help, NULL, "this text" },
        { NULL, RG_OPTION_FLAG, NULL, NULL, NULL },
    };
    const int left = rg_options_take(options, argc, argv, NULL, NULL);
    if (left < 0)
        return 2;
    if (q.help) {
        puts("usage: retrograde eval CHECKPOINT [options]\n\n"
             "Loss, accuracy and the share of each class that a trained network gets right.\n");
        rg_options_help(options);
        return 0;
    }
    if (left != 1)
        return rg_wrong("eval wants one checkpoint; see --help");
    rg_used_network network = { .device = NULL };
    rg_train_part part = { .set = NULL };
    const rg_status status = evaluate(argv[0], &q, &network, &part);
    const int result = status == RG_OK ? 0 : rg_failed();
    rg_train_close_part(&part);
    rg_used_network_close(&network);
    return result;
}
