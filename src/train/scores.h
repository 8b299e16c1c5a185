/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* How good the outputs of a network are: loss and score of single images, on the host. */
#ifndef RG_TRAIN_SCORES_H
#define RG_TRAIN_SCORES_H

#include "train/model.h"

/* Outputs and targets of a batch. */
typedef struct rg_scored {
    const rg_network_desc *network;
    const void *outputs; /* of the network's dtype */
    const void *targets; /* i32 for classes and masks, else f32, whatever the network's dtype */
    int64_t
        *overlaps; /* of masks: (classes) of both, of labels, of predictions; NULL: not counted */
} rg_scored;

/* Elements of the targets of one image, and of the network's output for it. */
int64_t rg_network_targets(const rg_network_desc *network);
int64_t rg_network_outputs(const rg_network_desc *network);

/* The loss that the network is trained with. */
rg_loss_kind rg_network_loss(const rg_network_desc *network);

/* The loss of one image, in double: the mean over its targets. Pixels of masks that are ignored add
 * 0 and count, here and on devices: so batches may be cut anywhere. */
double rg_scored_loss(const rg_scored *s, int64_t image);

/* What losses and scores of an image are to be divided by in means over images: 1, or for masks the
 * share of pixels that are not ignored. */
double rg_scored_weight(const rg_scored *s, int64_t image);

/* Classes: 1 if the answer is right, else 0. Labels and masks: the share of labels or pixels that
 * are right; ignored pixels are not. Values: the mean absolute error. */
double rg_scored_score(const rg_scored *s, int64_t image);

/* A mean of sums of losses or scores; 0 where nothing counts. */
double rg_weighted_mean(double sum, double weight);

/* Whether the class is among the five most probable. */
bool rg_scored_in_top5(const rg_scored *s, int64_t image);

/* What a prediction tells: probabilities of classes or labels, values, or for a mask the class of
 * each pixel. Returns how many numbers that are; `to` may be NULL. */
int64_t rg_scored_answers(const rg_scored *s, int64_t image, float *to);

#endif
