/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One JPEG image, read with libjpeg-turbo. */
#ifndef RG_TRAIN_JPEG_IMAGE_H
#define RG_TRAIN_JPEG_IMAGE_H

#include "core/memory.h"

typedef struct rg_jpeg {
    int64_t height, width; /* in the file */
    int channels;          /* 1 or 3 */
    int orientation;       /* 1 to 8, as EXIF counts; 1: upright */
    uint64_t kept_bytes;   /* of coefficients, where the whole image is kept while it is decoded */
} rg_jpeg;

/* Reads the header. `size` bytes are there of a file with `file_size`: where they end within the
 * header, *more is set and RG_MALFORMED returned. */
rg_status rg_jpeg_header(const void *bytes, size_t size, uint64_t file_size, rg_jpeg *jpeg,
                         bool *more);

/* Writes the pixels (h, w, jpeg->channels), 8 bits each; CMYK becomes RGB. Damaged data is
 * RG_MALFORMED. */
rg_status rg_jpeg_pixels(const void *bytes, size_t size, const rg_jpeg *jpeg, unsigned char *to);

/* The same row by row: `take` is called for each one, in their order. */
typedef void rg_jpeg_take(void *context, int64_t i, const unsigned char *row);
rg_status rg_jpeg_rows(const void *bytes, size_t size, const rg_jpeg *jpeg, rg_jpeg_take *take,
                       void *context);

#endif
