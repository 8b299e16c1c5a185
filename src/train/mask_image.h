/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Masks as PNG images: the samples of grey ones and the palette's indices of others are classes.
 * The largest sample, 255 with 8 bits and 65535 with 16, marks pixels that are ignored. */
#ifndef RG_TRAIN_MASK_IMAGE_H
#define RG_TRAIN_MASK_IMAGE_H

#include "train/image_file.h"

#include <retrograde/dataset.h>

/* A mask as its file has it. */
typedef struct rg_mask {
    rg_extent size;
    const unsigned char *samples; /* (h, w), one byte each, or two, the high one first */
    int sample_bytes;
    int32_t ignored; /* the sample that marks ignored pixels; -1: none does */
} rg_mask;

/* The classes that masks have. */
typedef struct rg_mask_classes {
    int32_t largest;  /* -1: none */
    bool has_ignored; /* pixels that are ignored */
} rg_mask_classes;

void rg_mask_classes_join(rg_mask_classes *classes, const rg_mask_classes *others);

/* What classes are wanted. */
typedef struct rg_mask_form {
    rg_extent size; /* where masks differ from it, the nearest pixel is taken, with the geometry
                       of rg_resize_cover() */
    bool marks_are_ones; /* what marks ignored pixels in others is class 1: masks of 0 and 255 */
} rg_mask_form;

/* Reads the header alone. */
rg_status rg_mask_read_size(const void *bytes, size_t size, rg_extent *extent);

/* Reads a mask, whose samples live in the decoder until it is used again. */
rg_status rg_mask_read(rg_decoder *decoder, const void *bytes, size_t size, rg_mask *mask);

/* Adds the classes of a mask to those of others. */
void rg_mask_add_classes(const rg_mask *mask, rg_mask_classes *classes);

/* Writes the classes (h, w), RG_DATASET_IGNORED for ignored pixels. */
void rg_mask_write(const rg_mask *mask, const rg_mask_form *form, int32_t *to);

#endif
