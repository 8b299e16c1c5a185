/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One run of training: data, model, device, trainer, and the folder for results. */
#ifndef RG_CLI_TRAIN_RUN_H
#define RG_CLI_TRAIN_RUN_H

#include "cli/train_data.h"
#include "cli/train_group.h"
#include "cli/train_show.h"

#include <retrograde/run.h>

typedef struct rg_train_run {
    rg_train_request *request;
    rg_group *group; /* of which rank 0 alone writes */
    rg_run *run;     /* the folder */
    rg_device *device;
    rg_model *model; /* of a new training, until there is a trainer */
    rg_trainer *trainer;
    rg_train_data data;
    char *out; /* the folder's path */
    char size[RG_TRAIN_SIZE_TEXT];
    rg_train_show show;
    rg_trainer_progress progress; /* of the epoch under way */
    const volatile int *interrupted;
    bool is_stopped; /* this rank or another was interrupted */
    double began;
    double trained, waited; /* seconds of training; of these, waiting for other ranks */
    const char *good;       /* the last checkpoint of this training; NULL: there is none yet */
} rg_train_run;

/* Begins, unless *interrupted while images are read: then run->is_stopped, and it fails. */
rg_status rg_train_begin(rg_train_run *run, rg_train_request *request, rg_group *group,
                         const volatile int *interrupted);
/* Trains to the end, to --stop, or until *interrupted; then *done is false. */
rg_status rg_train_all(rg_train_run *run, bool *done);
/* Writes a report: with the best network and the test images if training is `done`, otherwise with
 * the network as it is and the validation images. */
rg_status rg_train_finish(rg_train_run *run, const char *command, bool done);
void rg_train_end(rg_train_run *run);

#endif
