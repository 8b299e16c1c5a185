/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checkpoints: one safetensors file with all parameters of a trainer, and as texts what it takes to
 * use the network and to go on with its training. */
#ifndef RG_TRAIN_CHECKPOINT_H
#define RG_TRAIN_CHECKPOINT_H

#include "train/trainer.h"

#include <retrograde/dataset.h>
#include <retrograde/safetensors.h>

/* What a checkpoint holds beside tensors. */
typedef struct rg_checkpoint {
    char *model_name, *model; /* its text */
    rg_network_options network;
    char **class_names; /* as many as there are classes */
    double mean[RG_DATASET_CHANNELS], deviation[RG_DATASET_CHANNELS];
    char *options; /* of whoever trains: "name=value" lines */

    /* where training goes on */
    int64_t epoch, position, steps, batches;
    /* of the epoch under way: images so far, those that were right, the sum of their losses */
    int64_t images, right;
    double loss;
    /* the best epoch so far, by validation */
    double best_accuracy;
    int64_t best_epoch;
} rg_checkpoint;

/* Writes it whole or not at all. No batch may be under way. */
rg_status rg_checkpoint_write(const char *path, const rg_checkpoint *checkpoint,
                              rg_trainer *trainer);

/* Refuses a trainer one of whose parameters, moments or averages holds NaN or an infinity, as an
 * update can leave it behind a loss that was finite: nothing good comes of going on from there. */
rg_status rg_checkpoint_check(rg_trainer *trainer);

/* Opens a checkpoint and reads all but its tensors; `file` is to be closed. */
rg_status rg_checkpoint_open(const char *path, rg_checkpoint *checkpoint, rg_safetensors **file);
/* Makes its model and a trainer, and reads the tensors that this has. What was made is the caller's
 * also after a failure. */
rg_status rg_checkpoint_read(const char *path, const rg_safetensors *file,
                             const rg_checkpoint *checkpoint, rg_device *device,
                             const rg_trainer_options *options, rg_model **model,
                             rg_trainer **trainer);
void rg_checkpoint_release(rg_checkpoint *checkpoint);

#endif
