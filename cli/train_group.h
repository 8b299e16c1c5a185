/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The ranks that `retrograde train` runs on, where a launcher has started several. */
#ifndef RG_CLI_TRAIN_GROUP_H
#define RG_CLI_TRAIN_GROUP_H

#include "cli/train_options.h"

/* Joins the other ranks, and fills in options that depend on them: micro-batches, threads. The
 * process ends with a sentence if one of them is lost. */
rg_status rg_train_group_open(rg_train_request *request, rg_group **group);

/* Whether any rank has been interrupted; all ranks ask together. */
rg_status rg_train_group_stops(rg_group *group, bool interrupted, bool *stops);

#endif
