/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One run of training: data, model, device, trainer, and the folder for results. */
#ifndef RG_CLI_TRAIN_RUN_H
#define RG_CLI_TRAIN_RUN_H

#include "cli/train_options.h"
#include "cli/train_show.h"

#include <retrograde/run.h>

/* A set of images. */
typedef struct rg_train_part {
    rg_dataset *set;
    int64_t count;
} rg_train_part;

typedef struct rg_train_run {
    rg_train_request *request;
    rg_run *run; /* the folder */
    rg_device *device;
    rg_trainer *trainer;
    rg_train_part train, validation, test; /* validation may be the test part */
    bool own_validation;
    rg_train_show show;
    rg_trainer_progress progress; /* of the epoch under way */
    const volatile int *interrupted;
    double began;
    const char *good; /* the last checkpoint of this training; NULL: there is none yet */
} rg_train_run;

rg_status rg_train_begin(rg_train_run *run, rg_train_request *request);
/* Trains to the end, to --stop, or until *interrupted; then *done is false. */
rg_status rg_train_all(rg_train_run *run, const volatile int *interrupted, bool *done);
/* Tests the network and writes the report. */
rg_status rg_train_finish(rg_train_run *run, const char *command);
void rg_train_end(rg_train_run *run);

#endif
