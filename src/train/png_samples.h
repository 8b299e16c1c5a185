/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Samples of a PNG image, read with libpng. */
#ifndef RG_TRAIN_PNG_SAMPLES_H
#define RG_TRAIN_PNG_SAMPLES_H

#include "train/png_image.h"

typedef struct rg_png_palette {
    unsigned char rgba[256][4];
    int32_t count;
} rg_png_palette;

/* How samples are written. */
typedef enum rg_png_form {
    RG_PNG_RAW,  /* as in the file; those of fewer than 8 bits have a byte each */
    RG_PNG_BYTES /* indices of a palette as they are; others scaled to 8 bits, with opacity where
                    the file has it or names a transparent colour */
} rg_png_form;

typedef struct rg_png_samples {
    int pixel_bytes;        /* of each pixel that was written */
    rg_png_palette palette; /* of indices; without colours for other images */
} rg_png_samples;

/* The most bytes that a pixel takes. */
int rg_png_most_bytes(const rg_png *png, rg_png_form form);

/* Writes the pixels, one after the other, and what they are to `samples`. */
rg_status rg_png_read_samples(const rg_png *png, rg_png_form form, unsigned char *to,
                              rg_png_samples *samples);

/* Fails with a sentence about the pixel: indices beyond the palette name no colour. */
rg_status rg_png_bad_index(int64_t row, int64_t column, unsigned index, int32_t colours);

#endif
