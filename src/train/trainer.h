/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The trainer: a network with its optimizer on a device; steps, evaluation, checkpoints. It knows
 * nothing of files of data, terminals or reports. */
#ifndef RG_TRAIN_TRAINER_H
#define RG_TRAIN_TRAINER_H

#include "train/model.h"

#include <retrograde/files.h>

typedef enum rg_optimizer_kind {
    RG_OPTIMIZER_SGD,
    RG_OPTIMIZER_RMSPROP,
    RG_OPTIMIZER_ADAM
} rg_optimizer_kind;

typedef struct rg_trainer_options {
    rg_network_options network; /* training is set by the trainer */
    rg_optimizer_kind optimizer;
    double momentum;    /* of sgd */
    double decay;       /* of weights: decoupled for adam, l2 for others */
    int64_t batch;      /* the most images in a step */
    int32_t accumulate; /* batches that make one step; at least 1 */
    uint64_t seed;      /* of the first parameters */
    bool use_only;      /* no steps: there is the network as it is used, and no optimizer */
} rg_trainer_options;

/* What became of a batch. */
typedef struct rg_outcome {
    int64_t images, right;
    double loss; /* the mean over its images */
} rg_outcome;

typedef struct rg_trainer rg_trainer;

rg_status rg_trainer_create(rg_device *device, const rg_model *model,
                            const rg_trainer_options *options, rg_trainer **trainer);
void rg_trainer_destroy(rg_trainer *trainer);

/* Trains with a batch: `images` of the network's dtype, which may change when this returns. The
 * outcome is that of an earlier batch, as devices run behind: images is 0 while there is none. */
rg_status rg_trainer_step(rg_trainer *trainer, const void *images, const int32_t labels[],
                          int64_t count, double rate, rg_outcome *outcome);
/* Waits for a batch that is under way; images is 0 when all are done. */
rg_status rg_trainer_finish(rg_trainer *trainer, rg_outcome *outcome);

/* Runs the network as it is used: without dropout, with running statistics. `probabilities`, unless
 * NULL, receives count * classes numbers. */
rg_status rg_trainer_evaluate(rg_trainer *trainer, const void *images, const int32_t labels[],
                              int64_t count, float probabilities[], rg_outcome *outcome);

/* Steps taken, and batches begun, since the beginning. */
int64_t rg_trainer_steps(const rg_trainer *trainer);
int64_t rg_trainer_batches(const rg_trainer *trainer);
/* Goes on from there. */
void rg_trainer_seek(rg_trainer *trainer, int64_t steps, int64_t batches);

/* Measures every step of the plan with the batch that was begun last; none may be under way. There
 * are rg_plan_steps() numbers of milliseconds. The parameters change. */
rg_status rg_trainer_time(rg_trainer *trainer, double milliseconds[]);

/* For checkpoints, drawings and figures; they belong to the trainer. */
const rg_network *rg_trainer_network(const rg_trainer *trainer);
rg_plan *rg_trainer_plan(rg_trainer *trainer);

#endif
