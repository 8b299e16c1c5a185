/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One run of training: data, model, device, trainer, and what has been seen so far. */
#ifndef RG_CLI_TRAIN_RUN_H
#define RG_CLI_TRAIN_RUN_H

#include "cli/train_options.h"
#include "cli/train_part.h"
#include "train/metrics.h"
#include "train/report.h"

typedef struct rg_train_run {
    rg_train_request *request;
    int lock; /* of the folder for results; -1: not yet */
    rg_device *device;
    rg_trainer *trainer;
    rg_train_part train, validation, test; /* validation may be the test part */
    bool own_validation;
    rg_train_show show;
    rg_trainer_progress progress; /* of the epoch under way */
    const volatile int *interrupted;
    double began;
    char *checkpoint_path, *report_path;
    const char *good; /* the last checkpoint of this training; NULL: there is none yet */
    rg_metric_file csv, events;
    rg_report_epoch *epochs; /* of this run and of those that it goes on from */
    int64_t epoch_count, epoch_capacity;
    rg_report_step *losses; /* of single steps, thinned */
    int64_t loss_count, loss_capacity, loss_every;
} rg_train_run;

rg_status rg_train_begin(rg_train_run *run, rg_train_request *request);
/* Trains to the end, to --stop, or until *interrupted; then *done is false. */
rg_status rg_train_all(rg_train_run *run, const volatile int *interrupted, bool *done);
/* Tests the network and writes the report. */
rg_status rg_train_finish(rg_train_run *run, const char *command);
void rg_train_end(rg_train_run *run);

/* "folder/name", to be freed. */
rg_status rg_train_path(const char *folder, const char *name, char **path);

/* ---- train_metrics.c ---- */

/* Opens the table and the events of a run in its folder; a run that goes on gets the epochs of
 * those before it. */
rg_status rg_train_open_metrics(rg_train_run *run);
rg_status rg_train_add_metrics(rg_train_run *run, const rg_report_epoch *epoch);

/* ---- train_report.c ---- */

rg_status rg_train_write_report(rg_train_run *run, const rg_trainer_result *test,
                                const rg_train_verdicts *verdicts, const char *command);

#endif
