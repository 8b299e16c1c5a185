/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The orientation that cameras write into image files (EXIF). */
#ifndef RG_TRAIN_EXIF_H
#define RG_TRAIN_EXIF_H

#include "train/resize.h"

/* The orientation of a JPEG image, 1 to 8, of the start of its file up to the first scan; 1 where
 * there is none, or none that is valid. */
int rg_exif_orientation(const void *bytes, size_t size);

/* The same of a PNG image, whose EXIF data is in front of its pixels, and of a WebP image, where it
 * follows them. `size` bytes are there of a file with `file_size`: where these are too few to know,
 * *more is set. */
int rg_exif_orientation_png(const void *bytes, size_t size, uint64_t file_size, bool *more);
int rg_exif_orientation_webp(const void *bytes, size_t size, uint64_t file_size, bool *more);

/* The size of an image of `size` pixels in the file when it is turned upright. */
rg_extent rg_exif_upright_size(rg_extent size, int orientation);

/* What an orientation does. */
typedef struct rg_exif_axes {
    bool is_transposed;          /* rows of the file are columns */
    bool from_right, from_below; /* the last element of a row is the first; the last row is */
} rg_exif_axes;
rg_exif_axes rg_exif_axes_of(int orientation);

/* Writes the pixels (h, w, c) of the file upright. */
void rg_exif_orient(const unsigned char *from, rg_extent size, int64_t channels, int orientation,
                    unsigned char *to);

#endif
