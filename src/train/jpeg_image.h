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
    bool is_progressive;
} rg_jpeg;

/* Reads the header. `size` bytes are there of a file with `file_size`: where they end within the
 * header, *more is set and RG_MALFORMED returned. */
rg_status rg_jpeg_header(const void *bytes, size_t size, uint64_t file_size, rg_jpeg *jpeg,
                         bool *more);

/* Writes the pixels (h, w, jpeg->channels), 8 bits each; CMYK becomes RGB. Damaged data is
 * RG_MALFORMED. */
rg_status rg_jpeg_pixels(const void *bytes, size_t size, const rg_jpeg *jpeg, unsigned char *to);

#endif
