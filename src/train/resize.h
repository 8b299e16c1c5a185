/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Resizing of images: bilinear with antialiasing, as Pillow's Image.resize does it, and the middle
 * of the result. */
#ifndef RG_TRAIN_RESIZE_H
#define RG_TRAIN_RESIZE_H

#include "core/memory.h"

/* Memory that grows as it is needed and is used again. */
typedef struct rg_buffer {
    void *data;
    size_t capacity;
} rg_buffer;
rg_status rg_buffer_fit(rg_buffer *buffer, size_t bytes);
void rg_buffer_release(rg_buffer *buffer);

/* Memory of one thread. */
typedef struct rg_resizer {
    rg_buffer weights, rows;
} rg_resizer;
void rg_resizer_release(rg_resizer *resizer);

typedef struct rg_extent {
    int64_t height, width;
} rg_extent;

/* The size that covers `size` with the proportions of `of`; the longer side is rounded. */
rg_extent rg_resize_covering(rg_extent of, rg_extent size);

/* Resizes (h, w, c) so that it just covers `size`, with its proportions kept, and writes the middle
 * of that, (size.height, size.width, c). */
rg_status rg_resize_cover(rg_resizer *resizer, const unsigned char *from, rg_extent of,
                          int64_t channels, unsigned char *to, rg_extent size);

#endif
