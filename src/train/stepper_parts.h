/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a stepper is made of, for the files of this folder: stepper_graph.c makes its graphs and
 * plans, stepper.c runs batches, stepper_time.c measures a step. */
#ifndef RG_TRAIN_STEPPER_PARTS_H
#define RG_TRAIN_STEPPER_PARTS_H

#include "train/stepper.h"

/* Numbers that change from batch to batch. */
typedef struct rg_step_numbers {
    double rate64;
    float rate;
    int64_t step, dropout_step;
} rg_step_numbers;

/* A batch that is running, with the memory that the device reads and writes. */
typedef struct rg_step_slot {
    rg_commands *commands; /* NULL: none */
    rg_tensor *images, *labels;
    int64_t capacity; /* in images */
    int64_t count;
    rg_step_numbers numbers;
    char *answers; /* the labels */
    char *results; /* the loss, then the logits; reached without waiting */
} rg_step_slot;

enum { RG_STEP_LOSS_BYTES = 16 }; /* of the results */

/* With accumulation a step is made of several batches: the first one starts the sums, others add to
 * them, the last one changes the parameters. */
typedef enum rg_step_share {
    RG_STEP_SHARE_FIRST,
    RG_STEP_SHARE_MIDDLE,
    RG_STEP_SHARE_LAST,
    RG_STEP_SHARES
} rg_step_share;
enum { RG_STEP_SLOTS = 2 };

struct rg_stepper {
    rg_stepper_options options;
    rg_device *device;
    rg_queue *queue;
    rg_network network; /* of `last`, which is all there is without accumulation */
    rg_plan *plans[RG_STEP_SHARES];
    rg_network used; /* as it is used */
    rg_plan *use;
    rg_step_slot slots[RG_STEP_SLOTS];
    rg_step_slot evaluation;
    int64_t *overlaps; /* of masks, counted by evaluations: (3, classes) */
    int64_t batches;   /* begun */
    int64_t steps;     /* taken */
};

/* Makes the networks and plans of a stepper that has its options, device and queue. */
rg_status rg_stepper_make_plans(rg_stepper *stepper, const rg_model *model);

/* The slot of the batch that was started last. */
const rg_step_slot *rg_stepper_last_slot(const rg_stepper *stepper);

#endif
