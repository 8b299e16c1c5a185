/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a session is made of. */
#ifndef RG_TRAIN_SESSION_H
#define RG_TRAIN_SESSION_H

#include "graph/name_index.h"
#include "train/stepper.h"

#include <retrograde/safetensors.h>
#include <retrograde/session.h>

#include <stdlib.h>

/* A text of the caller; its key in a file begins with "property ". */
typedef struct rg_session_property {
    char *key, *text;
} rg_session_property;

struct rg_session {
    rg_session_desc desc;
    char *freeze;
    rg_device *device;
    rg_queue *queue;
    rg_model *model;
    rg_network network, used;
    rg_plan *starting, *adding; /* make gradients, which start or are added */
    rg_plan *update, *use;
    bool fresh; /* the next gradients start */
    int64_t batches, steps;
    double rate;
    int64_t warmup, total, scheduled; /* of the linear schedule; total 0: none */
    rg_session_property *properties;
    size_t property_count, property_capacity;
    rg_network_parameter **listed; /* parameters of the network that the plans have */
    int32_t listed_count;
    rg_names by_name; /* of these */
};

/* Copies a tensor to another of the same dtype and as many elements. */
rg_status rg_session_copy(rg_tensor *from, rg_tensor *to);

/* When there are plans. */
rg_status rg_session_list_parameters(rg_session *s);

void rg_session_clear_properties(rg_session *s);
/* Those of a file take the place of all. */
rg_status rg_session_read_properties(rg_session *s, const rg_safetensors *file);

#endif
