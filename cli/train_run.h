/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One run of training: data, model, device, trainer, and what has been seen so far. */
#ifndef RG_CLI_TRAIN_RUN_H
#define RG_CLI_TRAIN_RUN_H

#include "cli/train_options.h"
#include "cli/train_show.h"
#include "train/metrics.h"
#include "train/report.h"

/* A set of images with the loader that goes over it. */
typedef struct rg_train_part {
    rg_dataset *set;
    rg_loader *loader;
    rg_dataset_info info;
} rg_train_part;

/* What an evaluation found, image by image. */
typedef struct rg_train_verdicts {
    int64_t *confusion; /* (classes, classes): label, prediction */
    int32_t *predicted; /* by image */
    float *certainty;   /* of the prediction */
    float *of_label;    /* the probability of the right answer */
} rg_train_verdicts;

typedef struct rg_train_run {
    rg_train_request *request;
    rg_device *device;
    rg_model *model;
    rg_trainer *trainer;
    rg_train_part train, validation, test; /* validation may be the test part */
    bool own_validation;
    rg_checkpoint checkpoint; /* what the next one will say */
    rg_train_show show;
    int64_t steps; /* of the whole run */
    double began;
    char *checkpoint_path, *report_path;
    rg_metric_file csv, events;
    rg_report_epoch *epochs;
    int64_t epoch_count;
    rg_report_step *losses; /* of single steps, thinned */
    int64_t loss_count, loss_room, loss_every;
} rg_train_run;

rg_status rg_train_begin(rg_train_run *run, rg_train_request *request);
/* Trains to the end, to --stop, or until *interrupted; then *done is false. */
rg_status rg_train_all(rg_train_run *run, const volatile int *interrupted, bool *done);
/* Tests the network and writes the report. */
rg_status rg_train_finish(rg_train_run *run, const char *command);
void rg_train_end(rg_train_run *run);

/* Goes once over all images of a part; `verdicts` may be NULL. */
rg_status rg_train_evaluate(rg_trainer *trainer, rg_train_part *part, rg_train_result *result,
                            rg_train_verdicts *verdicts);
rg_status rg_train_verdicts_create(const rg_dataset_info *info, rg_train_verdicts *verdicts);
void rg_train_verdicts_release(const rg_dataset_info *info, rg_train_verdicts *verdicts);

/* Opens a part of a data set for evaluation, normalised as a checkpoint says. */
rg_status rg_train_open_part(rg_train_part *part, const rg_checkpoint *checkpoint);
void rg_train_close_part(rg_train_part *part);

/* ---- train_report.c ---- */

rg_status rg_train_write_report(rg_train_run *run, const rg_train_result *test,
                                const rg_train_verdicts *verdicts, const char *command);

#endif
