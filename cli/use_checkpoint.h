/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A trained network, ready for use: what `eval` and `predict` share. */
#ifndef RG_CLI_USE_CHECKPOINT_H
#define RG_CLI_USE_CHECKPOINT_H

#include "train/checkpoint.h"

typedef struct rg_used_network {
    rg_checkpoint checkpoint;
    rg_device *device;
    rg_model *model;
    rg_trainer *trainer;
} rg_used_network;

rg_status rg_used_network_open(const char *path, const char *device, int64_t threads,
                               rg_used_network *network);
void rg_used_network_close(rg_used_network *network);

#endif
