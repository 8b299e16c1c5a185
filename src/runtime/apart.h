/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Whether the images of a batch keep out of each other's way. */
#ifndef RG_RUNTIME_APART_H
#define RG_RUNTIME_APART_H

#include "runtime/objects.h"

/* A tensor of one image of a batch. */
typedef struct rg_place {
    const rg_tensor *tensor;
    int64_t image;
    bool written;
} rg_place;

/* Refuses a batch in which an image writes what another one reads or writes. A tensor that
 * several images write as the same object is let through where `summed`. Sorts `places`. */
rg_status rg_places_apart(rg_place places[], size_t count, bool summed, const char *who);

#endif
