/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization with the statistics of a batch that several plans share. */
#ifndef RG_TRAIN_NETWORK_NORM_H
#define RG_TRAIN_NETWORK_NORM_H

#include "train/model.h"

#include <retrograde/batch_norm.h>

/* Adds a layer with running statistics. `in` are its inputs; `elements` those of a channel of one
 * image; *made is the node with its result. */
rg_status rg_network_split_norm(rg_network *network, const rg_batch_norm_desc *desc,
                                rg_value *const in[], int64_t elements, const char *label,
                                rg_node **made);

/* When there are gradients: makes those of statistics results. */
rg_status rg_network_add_norm_gradients(rg_network *network);

/* What plans call a result of a norm: "mean_of_batch", "variance_of_batch" and
 * "unbiased_of_batch", "dmean_of_batch" and "dvariance_of_batch". */
enum { RG_NORM_NAME = 240 };
void rg_norm_result_name(const rg_split_norm *norm, const char *what, char name[RG_NORM_NAME]);

#endif
