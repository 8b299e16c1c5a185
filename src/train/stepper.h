/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The stepper: a network with its optimizer on a device; steps, evaluation, checkpoints. It knows
 * nothing of files of data, terminals or reports. */
#ifndef RG_TRAIN_STEPPER_H
#define RG_TRAIN_STEPPER_H

#include "train/model.h"

#include <retrograde/files.h>
#include <retrograde/trainer.h>

typedef struct rg_stepper_options {
    rg_network_desc network; /* training is set by the stepper */
    const char *rates;       /* "pattern=rate,…" or NULL; lives as long as the stepper */
    double base_rate;        /* what `rate` of a step would be without a schedule */
    rg_optimizer_kind optimizer;
    double momentum;       /* of sgd */
    double decay;          /* of weights: decoupled for adam, l2 for others */
    int64_t batch;         /* the most images in a batch, those of all ranks */
    int32_t micro_batches; /* that a batch is cut into, a power of two; 0 or 1: none */
    rg_group *group;       /* of a number of ranks that divides micro_batches; NULL: this one */
    bool fast;             /* the order of sums over ranks is free */
    bool sync_norms;       /* statistics of batch normalization are those of the whole batch */
    int32_t accumulate;    /* batches that make one step; at least 1 */
    uint64_t seed;         /* of the first parameters */
    bool use_only;         /* no steps: there is the network as it is used, and no optimizer */
} rg_stepper_options;

/* The result of a batch. */
typedef struct rg_outcome {
    int64_t images, right; /* right: of classes */
    int64_t top5;          /* of evaluations: classes among the five most probable */
    double loss;           /* the mean over its images */
    double score;          /* the sum over its images; see scores.h */
    double weight;         /* the same: the images, or of masks the share that counts */
} rg_outcome;

typedef struct rg_stepper rg_stepper;

rg_status rg_stepper_create(rg_device *device, const rg_model *model,
                            const rg_stepper_options *options, rg_stepper **stepper);
void rg_stepper_destroy(rg_stepper *stepper);

/* What a batch holds; all may change when the call it is given to returns. */
typedef struct rg_step_data {
    const void *images; /* of the network's dtype */
    const void *labels; /* i32 for classes and masks, else of the network's dtype */
    const float *exact; /* labels and values that are not rounded, for losses and scores that are
                           told; not read for classes and masks */
} rg_step_data;

/* Trains with a batch of `count` images, of which `data` holds those of this rank's micro-batches.
 * The outcome is that of an earlier batch, as devices work asynchronously; its images are 0 while
 * there is none. */
rg_status rg_stepper_step(rg_stepper *stepper, const rg_step_data *data, int64_t count, double rate,
                          rg_outcome *outcome);
/* With fast sums on a GPU: joins the GPUs of all ranks by NCCL. Collective. */
rg_status rg_stepper_join(rg_stepper *stepper);
/* In a group: asks all ranks to stop, with the next batch; whether one has asked with the last. */
void rg_stepper_ask_stop(rg_stepper *stepper, bool stop);
bool rg_stepper_is_stopped(const rg_stepper *stepper);
/* Waits for a running batch; images is 0 when all are complete. */
rg_status rg_stepper_finish(rg_stepper *stepper, rg_outcome *outcome);

/* Runs the network in inference mode: without dropout, with running statistics. `answers`, unless
 * NULL, receives for each image what rg_scored_answers() says. */
rg_status rg_stepper_evaluate(rg_stepper *stepper, const rg_step_data *data, int64_t count,
                              float *answers, rg_outcome *outcome);

/* Images in a batch that is not trained with: a power of two, 256 at most, so that the largest
 * result of a layer stays below 64 MB. It follows from the network alone: losses are summed batch
 * by batch, and figures must be the same wherever they are computed. */
int64_t rg_stepper_use_batch(const rg_stepper *stepper);

/* The mean intersection over union of the classes of masks, over all evaluations since the last
 * call; NaN for other targets. */
double rg_stepper_take_iou(rg_stepper *stepper);

/* In a group: adds what evaluations of all ranks have counted for rg_stepper_take_iou(). */
rg_status rg_stepper_join_overlaps(rg_stepper *stepper);

/* Steps, and batches that were started, since the beginning. */
int64_t rg_stepper_steps(const rg_stepper *stepper);
int64_t rg_stepper_batches(const rg_stepper *stepper);
/* Continues from there. */
void rg_stepper_seek(rg_stepper *stepper, int64_t steps, int64_t batches);

/* Prepares the plan for the batch that was started last and returns how many steps it has then.
 * RG_INVALID_STATE: no batch has been started. */
rg_status rg_stepper_prepare_time(rg_stepper *stepper, int32_t *steps);
/* Measures every step of the plan with that batch; none may be running. Fills in as many numbers as
 * rg_stepper_prepare_time() has told. The parameters do not change. */
rg_status rg_stepper_time(rg_stepper *stepper, double milliseconds[]);

/* For checkpoints, drawings and figures; they belong to the stepper. */
const rg_network *rg_stepper_network(const rg_stepper *stepper);
rg_plan *rg_stepper_plan(rg_stepper *stepper);

/* All parameters, of the network and of the optimizer, one by one; *name is NULL past the last. */
rg_status rg_stepper_parameter(rg_stepper *stepper, int32_t index, const char **name,
                               rg_tensor **tensor);
/* One of them by its name; false: there is none. */
bool rg_stepper_find(rg_stepper *stepper, const char *name, rg_tensor **tensor);

/* ---- parts of its graphs, for sessions too ---- */

/* With accumulation a step is made of several batches: the first one starts the sums, others add to
 * them, the last one changes the parameters. */
typedef enum rg_step_share {
    RG_STEP_SHARE_FIRST,
    RG_STEP_SHARE_MIDDLE,
    RG_STEP_SHARE_LAST,
    RG_STEP_SHARES
} rg_step_share;

/* The parameter of a graph that holds the sum of a parameter's gradients. */
void rg_stepper_sum_name(const rg_network *network, const rg_network_parameter *parameter,
                         char name[RG_OWN_NAME]);
/* Adds a gradient to that sum, stored as `dtype`, and returns the result, which the last batch does
 * not store. */
rg_value *rg_stepper_add_sum(const rg_network *network, const rg_network_parameter *parameter,
                             rg_step_share which, rg_value *gradient, rg_dtype dtype);
/* Adds the optimizer of a parameter to a graph; `step` is that of adam. */
rg_node *rg_stepper_add_update(const rg_stepper_options *options, rg_graph *graph,
                               const rg_network_parameter *parameter, rg_value *gradient,
                               rg_value *rate, rg_value *step);

#endif
