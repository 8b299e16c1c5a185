/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One PNG image, read with libpng. */
#ifndef RG_TRAIN_PNG_IMAGE_H
#define RG_TRAIN_PNG_IMAGE_H

#include "core/memory.h"

typedef struct rg_png {
    int64_t height, width;
    int channels;        /* 1 or 3 of the colours, transparency not counted */
    int kind, depth;     /* the colour type of PNG, and bits of a sample */
    bool indexed;        /* pixels are numbers of colours in a palette */
    unsigned char *kept; /* the chunks that matter, in a row */
    size_t kept_bytes, capacity;
} rg_png;

/* Reads the header of an image in memory, and keeps the chunks that libpng shall see.
 * Sentences name the byte, not the file. After a failure there is nothing to end. */
rg_status rg_png_begin(rg_png *png, const void *bytes, size_t size);
void rg_png_end(rg_png *png);

/* Reads size and colours alone, of the first `size` bytes of a file with `file_size`. */
rg_status rg_png_header(const void *bytes, size_t size, uint64_t file_size, rg_png *png);

/* Pixels of `from` samples, of which the last one is opacity if their number is even, become grey
 * (`to` = 1) or RGB (3). Grey is the luma of ITU-R BT.601; what is transparent becomes black. */
void rg_pixels_convert(const unsigned char *x, int from, unsigned char *y, int to, int64_t count);

/* Writes the pixels (h, w, channels), 8 bits each, as grey (channels = 1) or RGB (3). */
rg_status rg_png_pixels(const rg_png *png, int channels, unsigned char *to);

#endif
