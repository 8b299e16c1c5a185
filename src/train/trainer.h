/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a trainer is made of, for the program, whose reports and drawings look into it. */
#ifndef RG_TRAIN_TRAINER_H
#define RG_TRAIN_TRAINER_H

#include "train/run_state.h"

struct rg_trainer {
    rg_trainer_desc desc;
    rg_device *device;
    rg_model *model;
    rg_stepper *stepper;
    rg_loader *loader;  /* of the training set; NULL: there is none, for use alone */
    int64_t images;     /* in an epoch */
    int64_t steps;      /* of the whole training */
    rg_run_state state; /* what the next checkpoint will say */
    double rate;        /* of the last step */
    bool spoilt;        /* a loss or a parameter is not finite */
};

/* ---- trainer_desc.c ---- */

/* Sentences begin with the name of a field, or tell that there is no such name. */
rg_status rg_trainer_desc_check(const rg_trainer_desc *desc);
rg_status rg_optimizer_parse(const char *name, rg_optimizer_kind *optimizer);
rg_status rg_schedule_parse(const char *name, rg_schedule_kind *schedule);

/* Checks a descriptor of the caller, its size too, and copies it; `who` begins the sentence. */
rg_status rg_trainer_desc_copy(const char *who, const rg_trainer_desc *desc,
                               rg_trainer_desc *checked);

/* The rate that is given, or the one that fits the optimizer; and that of a step. */
double rg_trainer_desc_base_rate(const rg_trainer_desc *desc);
double rg_trainer_desc_rate(const rg_trainer_desc *desc, int64_t step, int64_t steps);

/* As "name=value" lines, to be freed; and back, where other names are left out. */
rg_status rg_trainer_desc_text(const rg_trainer_desc *desc, char **text);
rg_status rg_trainer_desc_read(const char *text, rg_trainer_desc *desc);

/* ---- trainer.c ---- */

/* Writes a checkpoint as it is, with an own text of options, which becomes the trainer's. */
rg_status rg_trainer_write(rg_trainer *trainer, const char *path, char *options);

/* ---- trainer_use.c ---- */

/* Refuses images and classes other than those of the network. */
rg_status rg_trainer_check_set(const rg_trainer *trainer, const rg_dataset *set);

/* Called for every batch of an evaluation, with (count, classes) probabilities. */
typedef void rg_trainer_judge(void *context, const rg_batch *batch, const float probabilities[]);

/* As rg_trainer_evaluate(); `judge` may be NULL. */
rg_status rg_trainer_evaluate_with(rg_trainer *trainer, const rg_dataset *set,
                                   rg_trainer_judge *judge, void *context,
                                   rg_trainer_result *result);

/* Pixels of any range, already as the training set counts them: 1 image. */
rg_status rg_trainer_predict_one(rg_trainer *trainer, const double pixels[], float probabilities[]);

#endif
