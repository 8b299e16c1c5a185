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

typedef struct rg_extent {
    int64_t height, width;
} rg_extent;

/* One direction: element i of `count` results is the sum of weights[i * most + k] times element
 * first[i] + k of the source, for k below taken[i]. */
typedef struct rg_filter {
    int64_t count, most;
    int32_t *first, *taken, *weights;
} rg_filter;

/* Memory of one thread, and the image that is being resized: a ring of its last rows. */
typedef struct rg_resizer {
    rg_buffer weights, rows;
    rg_filter along, across; /* of the elements of a row of the source; of its rows */
    int64_t channels;
    rg_extent size;
    unsigned char *to;
    bool is_transposed; /* rows of the source are columns of the result */
    bool is_reversed;   /* the last of them is the first */
    int64_t done;       /* rows of the result, or columns, that are complete */
    int64_t held;       /* rows in the ring */
    size_t row_bytes;   /* of one of them */
    int32_t *sums;      /* (row_bytes) */
    unsigned char *ring, *line, *column;
} rg_resizer;
void rg_resizer_release(rg_resizer *resizer);

/* The size that covers `size` with the proportions of `of`; the longer side is rounded. */
rg_extent rg_resize_covering(rg_extent of, rg_extent size);

/* Resizes (h, w, c) so that it just covers `size`, with its proportions kept, and writes the middle
 * of that, (size.height, size.width, c). There are 1 or 3 channels. */
rg_status rg_resize_cover(rg_resizer *resizer, const unsigned char *from, rg_extent of,
                          int64_t channels, unsigned char *to, rg_extent size);

/* The same of an image whose rows come one by one, as a file of `of` pixels has them; the result is
 * upright. The bits are those of the upright image. */
typedef struct rg_resize_source {
    rg_extent of;
    int orientation; /* 1 to 8, see train/exif.h */
    int64_t channels;
} rg_resize_source;
rg_status rg_resize_begin(rg_resizer *resizer, const rg_resize_source *source, unsigned char *to,
                          rg_extent size);
/* Row `i`, in their order; the result is complete after the last. */
void rg_resize_row(rg_resizer *resizer, int64_t i, const unsigned char *row);
/* The bytes that this needs. */
uint64_t rg_resize_bytes(const rg_resize_source *source, rg_extent size);

#endif
