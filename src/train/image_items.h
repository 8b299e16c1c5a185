/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A list of images in files: whole files, or ranges of archives. Readers of folders and archives
 * make it; a data set decodes it into memory, or keeps it and decodes images when they are needed.
 */
#ifndef RG_TRAIN_IMAGE_ITEMS_H
#define RG_TRAIN_IMAGE_ITEMS_H

#include "train/dataset.h"
#include "train/image_file.h"

typedef struct rg_item {
    int32_t file, label;
    uint64_t at, size; /* bytes of the file; size 0: all of them */
} rg_item;

typedef struct rg_items {
    char *root;   /* folder of all files */
    char **files; /* below it */
    size_t file_count, file_capacity;
    rg_item *list;
    size_t count, capacity;
    rg_image_form form;
} rg_items;

rg_status rg_items_create(const char *root, rg_items **items);
void rg_items_destroy(rg_items *items); /* NULL is allowed */

/* Adds a file; its number is file_count - 1 then. Adds an image. */
rg_status rg_items_add_file(rg_items *items, const char *name);
rg_status rg_items_add(rg_items *items, rg_item item);

/* Decodes an image, (h, w, c) of items->form. Sentences name its file. */
rg_status rg_items_decode(const rg_items *items, size_t index, rg_decoder *decoder,
                          unsigned char *to);

/* Fills a set with these images, which then owns them: in memory where they fit the options, else
 * as a list. All images that cannot be used are named by options->say, then one sentence fails. */
rg_status rg_items_use(rg_items *items, const rg_dataset_options *options, rg_dataset *set);

/* Calls options->say, if there is one. */
__attribute__((format(printf, 2, 3))) void rg_dataset_say(const rg_dataset_options *options,
                                                          const char *format, ...);

/* Threads that decode: those asked for, or one for each processor, 16 at most. */
int32_t rg_decoder_threads(int32_t asked);

#endif
