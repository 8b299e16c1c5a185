/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a stepper is made of, for the files of this folder: stepper_graph.c makes its graphs and
 * plans, stepper.c runs batches in the memory of stepper_slot.c, stepper_micro.c sums gradients,
 * stepper_time.c measures a step. */
#ifndef RG_TRAIN_STEPPER_PARTS_H
#define RG_TRAIN_STEPPER_PARTS_H

#include "train/scores.h"
#include "train/patterns.h"
#include "train/stepper.h"

#include "graph/plan.h"
#include "group/nccl.h"

/* Numbers that change from batch to batch. */
typedef struct rg_step_numbers {
    double rates64[1 + RG_MOST_RATES]; /* that of all, then those of patterns */
    float rates[1 + RG_MOST_RATES];
    int64_t step, batch;
} rg_step_numbers;

/* A micro-batch: some images of a batch. */
typedef struct rg_step_part {
    rg_tensor *images, *labels;
    int64_t first, count; /* in the slot */
    int64_t dropout_step;
    double weight64; /* its share of the images of the whole batch */
    float weight;
} rg_step_part;

/* A batch that is running, with the memory that the device reads and writes. */
typedef struct rg_step_slot {
    rg_commands *commands; /* NULL: none */
    rg_step_part *parts;
    int32_t parts_count;
    int64_t count; /* of images */
    int64_t whole; /* with those of other ranks */
    rg_step_numbers numbers;
    char *answers;        /* the true ones: i32 or f32, as in rg_scored */
    char *results;        /* a loss for each part, then the logits; reached without waiting */
    rg_outcome *outcomes; /* of the micro-batches of all ranks, where there are several */
    bool gathered;        /* whether they are known */
} rg_step_slot;

enum { RG_STEP_SLOTS = 2, RG_STEP_LOSS_BYTES = 16 /* of the results */ };

/* What is summed over micro-batches: the gradient of a parameter, or a running statistic. */
typedef struct rg_micro_piece {
    const rg_network_parameter *parameter;
    char *name;          /* of the result of the plan for gradients */
    rg_tensor_desc desc; /* of the sum: f64 for f64, otherwise f32 */
    int64_t offset;      /* in elements */
} rg_micro_piece;

/* Consecutive pieces, which are summed over ranks together. */
typedef struct rg_micro_bucket {
    size_t first, end;     /* pieces */
    int64_t offset, count; /* elements */
} rg_micro_bucket;

enum { RG_MICRO_LEVELS = 21 }; /* of a tree over 2^20 micro-batches */

/* The gradients of micro-batches, summed in a fixed binary tree. Each buffer holds all pieces. */
typedef struct rg_micro {
    rg_plan *gradient; /* runs one micro-batch */
    rg_plan *made;     /* whose gradients are added; NULL: those of `gradient` */
    rg_micro_piece *pieces;
    size_t count, capacity;
    int64_t elements;
    rg_tensor *sums[RG_MICRO_LEVELS];   /* of subtrees, the largest first */
    rg_tensor **views[RG_MICRO_LEVELS]; /* of their pieces */
    rg_micro_bucket *buckets;           /* the last pieces first: backward passes make them first */
    size_t bucket_count;
    rg_tensor **bucket_views[RG_MICRO_LEVELS];
    int32_t levels;
    int32_t depth; /* buffers in use */
    rg_tensor *zero, *weight;
    rg_kernel *scale, *add;
} rg_micro;

/* Micro-batches in lockstep: see stepper_sync.c. */
typedef struct rg_sync rg_sync;

struct rg_stepper {
    rg_stepper_options options;
    rg_device *device;
    rg_queue *queue;
    rg_network network; /* of `last`, which is all there is without accumulation; with
                           micro-batches, of the plan that makes gradients */
    rg_plan *plans[RG_STEP_SHARES];
    rg_micro *micro; /* NULL: a batch is not cut */
    int32_t rank, ranks;
    rg_nccl *nccl;             /* NULL: sums go through MPI */
    rg_sync *sync;             /* NULL: each micro-batch has statistics of its own */
    bool is_asked, is_stopped; /* see rg_stepper_ask_stop() */
    rg_network used;           /* as it is used */
    rg_plan *use;
    rg_step_slot slots[RG_STEP_SLOTS];
    rg_step_slot evaluation;
    int64_t *overlaps; /* of masks, counted by evaluations: (3, classes) */
    int64_t batches;   /* begun */
    int64_t steps;     /* taken */
};

/* Which images of a batch of `count` micro-batch `index` has. */
typedef struct rg_step_range {
    int64_t first, end;
} rg_step_range;
rg_step_range rg_stepper_range(const rg_stepper *stepper, int64_t count, int64_t index);

/* Makes the networks and plans of a stepper that has its options, device and queue. */
rg_status rg_stepper_make_plans(rg_stepper *stepper, const rg_model *model);

/* The parameters with the rate of pattern `index`, 0: that of all, and with the number of the step.
 */
void rg_stepper_rate_name(const rg_stepper *stepper, int32_t index, char name[RG_OWN_NAME]);
void rg_stepper_step_name(const rg_stepper *stepper, char name[RG_OWN_NAME]);

/* The slot of the batch that was started last. */
const rg_step_slot *rg_stepper_last_slot(const rg_stepper *stepper);

/* ---- stepper_slot.c ---- */

/* Makes memory for a batch of `whole` images, cut into the micro-batches of this rank or not;
 * writes its images and labels; records the copies of the results of a part; releases it. */
rg_status rg_slot_fit(rg_stepper *stepper, rg_step_slot *slot, int64_t whole, bool is_cut);
rg_status rg_slot_write(rg_stepper *stepper, rg_step_slot *slot, const rg_step_data *data);
rg_status rg_slot_read(rg_stepper *stepper, rg_step_slot *slot, rg_plan *plan, int32_t index);
void rg_slot_release(rg_stepper *stepper, rg_step_slot *slot);

/* When a batch is complete: outputs and targets of its images, the outcome of each part, and that
 * of the whole batch. */
rg_scored rg_slot_scored(const rg_stepper *stepper, const rg_step_slot *slot);
void rg_slot_outcomes(const rg_stepper *stepper, const rg_step_slot *slot, rg_outcome *own);
rg_outcome rg_slot_outcome(const rg_stepper *stepper, rg_step_slot *slot);

/* ---- stepper_group.c ---- */

/* When this rank's part of a batch is complete: waits for the sums of gradients over all ranks,
 * which start bucket by bucket, and gathers the outcomes of all micro-batches. */
rg_status rg_stepper_reduce(rg_stepper *stepper, rg_step_slot *slot);
/* Records the last part of this rank. Each bucket is summed over all ranks as soon as it is
 * complete, while the backward pass goes on. */
rg_status rg_stepper_run_last(rg_stepper *stepper, rg_step_slot *slot);
/* Whether a step is cut into what this rank does and what all do together. */
bool rg_stepper_is_joint(const rg_stepper *stepper);
/* After a step that has failed: this rank is lost for the others, and sums that it has started have
 * ended when this returns, so that their memory can be freed. */
void rg_stepper_give_up(rg_stepper *stepper);
/* Records a run of the network for one part (stepper.c), with cuts or without (NULL). */
rg_status rg_stepper_record_part(rg_stepper *stepper, rg_plan *plan, rg_step_slot *slot,
                                 int32_t index, const rg_plan_cuts *cuts);

/* Sums the gradients of all parts of this rank over all ranks, when all are recorded. */
rg_status rg_stepper_sum_recorded(rg_stepper *stepper, rg_step_slot *slot);

/* ---- stepper_sync.c ---- */

/* When there are the plan for gradients and its network, which was split. */
rg_status rg_sync_create(rg_stepper *stepper);
void rg_sync_destroy(rg_stepper *stepper);
/* Records all parts of this rank and adds up their gradients; most of it runs before it returns. */
rg_status rg_sync_run(rg_stepper *stepper, rg_step_slot *slot);
/* Records a piece of a run for one part (stepper.c). */
rg_status rg_stepper_record_piece(rg_stepper *stepper, rg_plan *plan, rg_step_slot *slot,
                                  int32_t index, const rg_plan_piece *piece);

/* ---- stepper_micro.c ---- */

/* Makes what sums gradients, and results of the network's graph of what is summed; assignments of
 * that graph are removed. */
rg_status rg_micro_create(rg_stepper *stepper);
void rg_micro_destroy(rg_micro *micro);
/* Records what adds a part to the sum: the gradients of the run that was recorded last, or nothing.
 * Parts come in their order. Its weight, then each bucket once, then the end. */
rg_status rg_micro_begin(rg_stepper *stepper, rg_commands *commands, const rg_step_part *part,
                         int32_t index);
rg_status rg_micro_add(rg_stepper *stepper, rg_commands *commands, const rg_step_part *part,
                       int32_t index, size_t bucket);
void rg_micro_end(rg_stepper *stepper, int32_t index);
/* The sum of all parts, after the last one: one tensor for each piece; and all of it as one. */
rg_tensor *const *rg_micro_sums(const rg_micro *micro);
rg_tensor *rg_micro_sum(const rg_micro *micro);

#endif
