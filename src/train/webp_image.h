/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One WebP image, read with libwebp. */
#ifndef RG_TRAIN_WEBP_IMAGE_H
#define RG_TRAIN_WEBP_IMAGE_H

#include "core/memory.h"

typedef struct rg_webp {
    int64_t height, width;
    int samples; /* 3, or 4 with opacity */
} rg_webp;

/* Reads the header. `size` bytes are there of a file with `file_size`: where they end within the
 * header, *more is set and RG_MALFORMED returned. */
rg_status rg_webp_header(const void *bytes, size_t size, uint64_t file_size, rg_webp *webp,
                         bool *more);

/* Writes the pixels (h, w, webp->samples), 8 bits each. Damaged data is RG_MALFORMED. */
rg_status rg_webp_pixels(const void *bytes, size_t size, const rg_webp *webp, unsigned char *to);

#endif
