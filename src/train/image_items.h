/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A list of images in files: whole files, or ranges of archives. Readers of folders and archives
 * make it; a data set decodes it into memory, or keeps it and decodes images when they are needed.
 */
#ifndef RG_TRAIN_IMAGE_ITEMS_H
#define RG_TRAIN_IMAGE_ITEMS_H

#include "train/dataset.h"
#include "train/mask_image.h"

typedef struct rg_item {
    int32_t file, label; /* where there are masks: the file of the mask in place of a label */
    uint64_t at, size;   /* bytes of the file; size 0: all of them */
} rg_item;

typedef struct rg_items {
    char *root;   /* folder of all files */
    char **files; /* below it */
    size_t file_count, file_capacity;
    rg_item *list;
    size_t count, capacity;
    rg_image_form form;
    bool has_masks;
    bool marks_are_ones;     /* see rg_mask_form */
    int32_t classes;         /* of masks; 0: as many as they have */
    rg_mask_classes present; /* in these masks and in those of the other part of the set */
} rg_items;

rg_status rg_items_create(const char *root, rg_items **items);
void rg_items_destroy(rg_items *items); /* NULL is allowed */

/* Adds a file; its number is file_count - 1 then. Adds an image. */
rg_status rg_items_add_file(rg_items *items, const char *name);
rg_status rg_items_add(rg_items *items, rg_item item);

/* The bytes of an image in its file; 0 where there is none. */
uint64_t rg_items_size(const rg_items *items, size_t index);

/* Reads the header of an image. Checks an image without decoding it: its header, its size, and that
 * its end is there; decoder->was is its size then. */
rg_status rg_items_read_header(const rg_items *items, size_t index, rg_decoder *decoder,
                               rg_image_header *header);
rg_status rg_items_check(const rg_items *items, size_t index, rg_decoder *decoder);

/* Decodes an image, (h, w, c) of items->form. Sentences name its file. */
rg_status rg_items_decode(const rg_items *items, size_t index, rg_decoder *decoder,
                          unsigned char *to);

/* The same for the classes of its mask, (h, w). */
rg_status rg_items_decode_mask(const rg_items *items, size_t index, rg_decoder *decoder,
                               int32_t *to);

/* Checks a mask: its size, that of its image unless that is 0 x 0, and its classes, which are added
 * to `present`. Writes them as above unless `to` is NULL. */
rg_status rg_items_check_mask(const rg_items *items, size_t index, rg_decoder *decoder,
                              rg_extent image, rg_mask_classes *present, int32_t *to);

/* Checks all masks, not the images, and adds their classes to items->present. */
rg_status rg_items_check_masks(rg_items *items, const rg_dataset_options *options);

/* When items->present is known: decides what marks mean, and how many classes there are. `mine`:
 * the classes in these masks alone; `to`: those of all pixels, (count), or NULL. */
rg_status rg_items_settle_classes(rg_items *items, const rg_mask_classes *mine, int32_t *to,
                                  int64_t count);

/* Fills a set with these images, which then owns them: in memory where they fit the options, else
 * as a list. All images that cannot be used are named by options->say, then one sentence fails. */
rg_status rg_items_use(rg_items *items, const rg_dataset_options *options, rg_dataset *set);

/* Says how many files of a folder are no images; nothing for 0. */
void rg_dataset_say_skipped(const rg_dataset_options *options, const char *path, int64_t files);

/* Calls options->say, if there is one. */
__attribute__((format(printf, 2, 3))) void rg_dataset_say(const rg_dataset_options *options,
                                                          const char *format, ...);

/* Threads that decode: those asked for, or one for each processor, 16 at most. */
int32_t rg_decoder_threads(int32_t asked);

#endif
