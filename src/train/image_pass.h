/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A pass over all images of a list, by several threads. */
#ifndef RG_TRAIN_IMAGE_PASS_H
#define RG_TRAIN_IMAGE_PASS_H

#include "train/image_items.h"

typedef enum rg_pass_kind {
    RG_PASS_IMAGES,  /* images and their masks are decoded, or checked alone */
    RG_PASS_MASKS,   /* masks are checked; images are not looked at */
    RG_PASS_COLOURS, /* headers are read until one has colours */
} rg_pass_kind;

typedef struct rg_image_pass {
    const rg_items *items;
    rg_pass_kind kind;
    unsigned char *pixels; /* of all images; NULL: headers and ends of files are checked alone */
    size_t image_bytes;
    int32_t *classes; /* of all masks; NULL: they are checked alone */
    int64_t targets;  /* pixels of a mask */
    /* what is found */
    rg_mask_classes present;
    bool has_colours;
} rg_image_pass;

/* Passes over all. Images that cannot be used are named by options->say, and one sentence fails. */
rg_status rg_image_pass_over(rg_image_pass *pass, const rg_dataset_options *options);

#endif
