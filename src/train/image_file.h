/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Images as files hold them, PNG, JPEG or WebP, and their pixels in the size that is wanted. */
#ifndef RG_TRAIN_IMAGE_FILE_H
#define RG_TRAIN_IMAGE_FILE_H

#include "train/decode_budget.h"
#include "train/resize.h"

/* The size of an image as it is seen, turned upright, and its colours: 1 channel or 3, transparency
 * not counted. */
typedef struct rg_image_header {
    rg_extent size;
    int channels;
} rg_image_header;

/* The most bytes of a file with an image. */
#define RG_IMAGE_BYTES (1 << 28)
/* The most pixels of an image: decoded it is in memory at once. */
#define RG_IMAGE_PIXELS INT64_C(200000000)

/* Whether a name ends like that of an image: .png, .jpg, .jpeg, .jpe, .jfif, .webp, in
 * any case. */
bool rg_image_is_name(const char *name);

/* Reads the header of an image of `file_size` bytes, of which `size` are there. Where they are too
 * few, *more is set and a failure returned. */
rg_status rg_image_read_header(const void *bytes, size_t size, uint64_t file_size,
                               rg_image_header *header, bool *more);

/* Whether the end of an image is there, as far as the start and the last RG_IMAGE_TAIL bytes of its
 * file tell: false where something follows the image, too. A file is longer than its start. */
enum { RG_IMAGE_TAIL = 12 };
bool rg_image_has_end(const void *start, size_t size, const void *tail, uint64_t file_size);
/* The same of all bytes of a file; refuses an image whose end is missing. */
rg_status rg_image_check_end(const void *bytes, size_t size);

/* What pixels are wanted. */
typedef struct rg_image_form {
    rg_extent size;
    int channels; /* 1 or 3 */
    bool resize;  /* to cover the size; false: images of another size are refused */
} rg_image_form;

/* Memory of one thread that decodes. */
typedef struct rg_decoder {
    rg_buffer bytes, pixels, converted, upright;
    rg_resizer resizer;
    rg_extent was; /* the size of the image that was decoded last, before it was resized */
    rg_decode_budget *budget; /* of all threads; NULL: no bound */
} rg_decoder;
void rg_decoder_release(rg_decoder *decoder);

/* Writes the pixels (h, w, c) of an image in memory. */
rg_status rg_image_decode(rg_decoder *decoder, const void *bytes, size_t size,
                          const rg_image_form *form, unsigned char *to);

/* Reads `size` bytes of an open file from `at` on into decoder->bytes. */
rg_status rg_decoder_read(rg_decoder *decoder, int file, uint64_t at, uint64_t size);
/* Gives the memory of a large file back. */
void rg_decoder_shrink(rg_decoder *decoder);

#endif
