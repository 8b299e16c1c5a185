/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Parts of data sets, and how good a network is on them: what `train` and `eval` share. */
#ifndef RG_CLI_TRAIN_PART_H
#define RG_CLI_TRAIN_PART_H

#include "cli/train_show.h"
#include "train/confusion.h"
#include "train/trainer.h"

/* A set of images. */
typedef struct rg_train_part {
    rg_dataset *set;
    rg_dataset_info info;
} rg_train_part;

/* Opens the test part of a data set; *set is NULL where it has none. */
rg_status rg_train_open_test(const char *data, rg_dataset **set);

/* Looks at the set of a part, and whether the network takes it; `data` begins the sentence. */
rg_status rg_train_open_part(rg_train_part *part, const rg_trainer *trainer, const char *data);
void rg_train_close_part(rg_train_part *part);

/* What an evaluation found, image by image. */
typedef struct rg_train_verdicts {
    rg_confusion confusion;
    int32_t *labels, *predicted; /* by image */
    float *certainty;            /* of the prediction */
    float *of_label;             /* the probability of the right answer */
} rg_train_verdicts;

rg_status rg_train_verdicts_create(const rg_dataset_info *info, rg_train_verdicts *verdicts);
void rg_train_verdicts_release(const rg_dataset_info *info, rg_train_verdicts *verdicts);

/* Goes once over all images of a part; `verdicts` may be NULL. */
rg_status rg_train_evaluate(rg_trainer *trainer, const rg_train_part *part,
                            rg_trainer_result *result, rg_train_verdicts *verdicts);

#endif
