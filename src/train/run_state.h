/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The state of a training run, as it is written to a checkpoint and read from it. A checkpoint is
 * one safetensors file with all parameters of a stepper (run_tensors.c), and as texts what is
 * needed to use the network and to continue its training (run_state.c, whose table lists them). */
#ifndef RG_TRAIN_RUN_STATE_H
#define RG_TRAIN_RUN_STATE_H

#include "train/stepper.h"

#include <retrograde/dataset.h>
#include <retrograde/safetensors.h>

/* What a checkpoint holds beside tensors. */
typedef struct rg_run_state {
    char *model_name, *model; /* its text */
    rg_network_desc network;
    char **class_names; /* as many as there are classes */
    double mean[RG_DATASET_CHANNELS], deviation[RG_DATASET_CHANNELS];
    int64_t columns; /* above 0: these are used in place of mean and deviation, for each column */
    double *column_mean, *column_deviation;
    int64_t pixels;               /* rg_pixel_range of the training images */
    int64_t resize;               /* 1: images of other sizes are made to fit */
    int64_t set_images, set_hash; /* of the training images, see rg_dataset_hash(); 0: not known */
    char *options;                /* of the caller: "name=value" lines */

    /* where training continues */
    int64_t epoch, position, steps, batches;
    /* of the epoch under way: images so far, those that were right, the sum of their losses */
    int64_t images, right;
    double loss, score, weight; /* weight: what means of both are divided by */
    /* the best epoch so far, by validation */
    double best_accuracy;
    int64_t best_epoch;
} rg_run_state;

/* How a loader normalizes: what it points to belongs to the state. */
void rg_run_state_normalize(const rg_run_state *state, rg_loader_desc *desc);

/* Writes it whole or not at all. No batch may be running. */
rg_status rg_run_state_write(const char *path, const rg_run_state *state, rg_stepper *stepper);

/* Writes a file of texts and of all parameters of a stepper. */
rg_status rg_run_state_write_file(const char *path, const rg_safetensors_text texts[],
                                  size_t text_count, rg_stepper *stepper);

/* Refuses a stepper with NaN or an infinity in a parameter, moment or average. An update can
 * produce them although the loss was finite; training cannot continue from there. */
rg_status rg_run_state_check(rg_stepper *stepper);

/* Opens a checkpoint and reads all but its tensors; `file` is to be closed. */
rg_status rg_run_state_open(const char *path, rg_run_state *state, rg_safetensors **file);
/* Creates the model and a stepper, and reads the tensors of the stepper. The caller owns both, also
 * after a failure. */
rg_status rg_run_state_read(const char *path, const rg_safetensors *file, const rg_run_state *state,
                            rg_device *device, const rg_stepper_options *options, rg_model **model,
                            rg_stepper **stepper);
/* The two halves of that. The first checks that the file has every parameter of the network before
 * any is allocated, since a short model can ask for any size; the second reads them into a plan. */
rg_status rg_run_state_check_file(const char *path, const rg_safetensors *file,
                                  const rg_model *model, rg_network_desc network);
rg_status rg_run_state_read_plan(const char *path, const rg_safetensors *file, rg_plan *plan);
/* The same for all parameters of a stepper. */
rg_status rg_run_state_read_stepper(const char *path, const rg_safetensors *file,
                                    rg_stepper *stepper);
void rg_run_state_release(rg_run_state *state);

#endif
