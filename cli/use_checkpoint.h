/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A trained network, ready for use: what `eval` and `predict` share. */
#ifndef RG_CLI_USE_CHECKPOINT_H
#define RG_CLI_USE_CHECKPOINT_H

#include "cli/arguments.h"

#include <retrograde/trainer.h>

/* What both are asked alike. */
typedef struct rg_use_request {
    const char *device;
    int64_t threads;
    bool json, help;
    const char *normalize; /* of an ONNX model */
} rg_use_request;

/* Takes the option that a command has for itself and those of `request`; returns how many operands
 * are left, or -1 where the command ends with *status, its help being shown or something wrong. */
int rg_use_options(const rg_option *own, rg_use_request *request, const char *usage, int argc,
                   char **argv, int *status);

/* The checkpoint that an operand names: the file, or that of the best epoch in the folder of a run,
 * or its last one. To be freed; NULL if there is no memory. */
char *rg_used_path(const char *operand);

/* The network of a checkpoint on the device that is asked for, for use alone. */
rg_status rg_used_network_open(const char *path, const rg_use_request *request,
                               rg_trainer **network);

/* Whether a path is that of an ONNX model. */
bool rg_is_onnx(const char *path);

/* Opens a part of a data set; *set is NULL where it has none. */
rg_status rg_open_part(const char *data, rg_dataset_part part, const rg_dataset_options *options,
                       rg_dataset **set);

/* Whether the network takes a set; `data` begins the sentence. */
rg_status rg_check_part(const rg_trainer *trainer, const rg_dataset *set, const char *data);

#endif
