/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a trainer is made of, for the files of this folder. */
#ifndef RG_TRAIN_TRAINER_H
#define RG_TRAIN_TRAINER_H

#include "train/report.h"
#include "train/run_state.h"

/* What has been trained so far, for the report. */
typedef struct rg_history {
    rg_report_epoch *epochs; /* of this trainer and of the runs that it continues */
    size_t epoch_count, epoch_capacity;
    rg_report_step *losses; /* of single batches: every loss_every-th */
    int64_t loss_count, loss_capacity, loss_every;
} rg_history;

struct rg_trainer {
    rg_trainer_desc desc;
    rg_device *device;
    rg_model *model;
    rg_stepper *stepper;
    rg_loader *loader;        /* of the training set; NULL: there is none, for use alone */
    int64_t images;           /* in an epoch */
    int64_t steps;            /* of the whole training */
    rg_run_state state;       /* what the next checkpoint will say */
    double rate;              /* of the last step */
    bool nonfinite;           /* a loss or a parameter is NaN or infinite */
    bool restored;            /* the parameters are those of another checkpoint; for use alone */
    const rg_dataset *agreed; /* the last set that all ranks have been found to have; else NULL */
    rg_history history;
};

/* ---- trainer_desc.c ---- */

/* Checks a descriptor of the caller, its size too, and copies it; `who` begins the sentence. */
rg_status rg_trainer_desc_copy(const char *who, const rg_trainer_desc *desc,
                               rg_trainer_desc *checked);

/* The rate of a step. */
double rg_trainer_desc_rate(const rg_trainer_desc *desc, int64_t step, int64_t steps);

/* As "name=value" lines, to be freed; and back, where other names are left out. */
rg_status rg_trainer_desc_text(const rg_trainer_desc *desc, char **text);
rg_status rg_trainer_desc_read(const char *text, rg_trainer_desc *desc);

/* ---- trainer_group.c ---- */

/* Has a loader make this rank's part of each batch alone. */
void rg_trainer_part(const rg_trainer *trainer, rg_loader_desc *desc);
/* Checks that all ranks train the same, and gives them the parameters of rank 0. */
rg_status rg_trainer_join(rg_trainer *trainer, const rg_dataset *set);

/* Checks that all ranks have the same parameters. */
rg_status rg_trainer_agree_on_weights(rg_trainer *trainer);

/* ---- trainer_set.c ---- */

/* Fills in the state: what it keeps of a data set, and what a model says without one. */
rg_status rg_trainer_describe_set(rg_trainer *trainer, const rg_dataset *set);
rg_status rg_trainer_describe_model(rg_trainer *trainer, const rg_model *model);
rg_status rg_trainer_describe_network(rg_trainer *trainer, const rg_network_desc *network);

/* A trainer for use alone, with the first parameters of a model that may have no weights. */
rg_status rg_trainer_use(rg_device *device, const rg_model *model, const rg_network_desc *network,
                         rg_trainer **trainer);

/* Reads weights, whenever that is; with `all`, parameters that the file lacks are an error. */
rg_status rg_trainer_read_weights(rg_trainer *trainer, const char *path, bool all,
                                  rg_weights_say *say, void *context);

/* ---- trainer_use.c ---- */

/* The batch that a loader has given out last, for the stepper. */
rg_step_data rg_trainer_step_data(const rg_loader *loader, const rg_batch *batch);

/* Evaluates a set, and calls `look` for each batch with what rg_scored_answers() says of its
 * images.
 */
typedef void rg_batch_look(void *context, const rg_batch *batch, const float answers[]);
rg_status rg_trainer_evaluate_with(rg_trainer *trainer, const rg_dataset *set, rg_batch_look *look,
                                   void *context, rg_trainer_result *result);

/* ---- trainer_history.c ---- */

/* Allocates the losses, as many as the whole training needs. */
rg_status rg_history_begin(rg_trainer *trainer);
void rg_history_add_loss(rg_history *history, int64_t batches, double loss);
/* Replaces a row of the same epoch, and removes rows of later ones. */
rg_status rg_history_add_epoch(rg_history *history, const rg_report_epoch *epoch);
/* The epoch that was added last; NULL: there is none. */
rg_report_epoch *rg_history_last(const rg_history *history);
void rg_history_release(rg_history *history);

#endif
