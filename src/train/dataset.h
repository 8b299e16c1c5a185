/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a data set is made of, and what its readers share. */
#ifndef RG_TRAIN_DATASET_H
#define RG_TRAIN_DATASET_H

#include "core/memory.h"

#include <retrograde/dataset.h>

#include <stdatomic.h>

/* What numbers pixels are. Bytes count from 0 to 1, so that floats beside them must do so, too. */
typedef enum rg_pixel_range {
    RG_RANGE_OPEN,    /* floats that are 0 or 1; or not known */
    RG_RANGE_U8,      /* bytes */
    RG_RANGE_UNIT,    /* floats from 0 to 1 */
    RG_RANGE_BYTES,   /* floats that are whole numbers from 0 to 255 */
    RG_RANGE_NUMBERS, /* others */
} rg_pixel_range;
rg_pixel_range rg_pixels_range(const void *pixels, rg_dtype dtype, size_t count);

struct rg_dataset {
    _Atomic int32_t users;
    rg_dataset_info info;
    rg_dataset *whole; /* whose images a part shows, and keeps; NULL: the images are here */
    int64_t *index;    /* of a part: where each of its images stands in `whole` */

    char *pixels; /* (count, h, w, c); NULL: they are decoded from `items` when needed */
    struct rg_items *items;
    bool resized;         /* images were made to fit the size */
    bool has_columns;     /* a table or series of floats, see rg_dataset_measure_columns() */
    rg_pixel_range range; /* of floats */
    bool decoded;         /* images come from image files, in memory or not */
    int32_t threads;      /* that decode; 0: one for each processor */
    size_t pixel_bytes, image_bytes;
    int32_t *labels; /* (count), or (count, targets) for masks in memory; else NULL */
    float *values;   /* (count, targets) of labels and values; else NULL */
    uint64_t *files; /* (count): numbers of the names of image files; NULL for arrays */
    char **names;    /* (classes), each with a 0 byte; one block for all of them */
    size_t name_bytes;
};

/* A new set: users 1, all else 0. It can be destroyed at any time. */
rg_status rg_dataset_begin(rg_dataset **set);

/* Counts one more user of a set. */
rg_dataset *rg_dataset_keep(const rg_dataset *set);

/* Checks height, width, channels and count of `info`, and allocates the pixels. `most`: bytes
 * that there can be at most. */
rg_status rg_dataset_allocate(rg_dataset *set, uint64_t most);

/* Checks height, width, channels and count of `info`, allocates nothing, and tells the bytes of all
 * pixels. */
rg_status rg_dataset_check(rg_dataset *set, size_t *bytes);

/* Names the classes: from the list, or by their numbers if `names` is NULL. */
rg_status rg_dataset_name(rg_dataset *set, int32_t classes, const char *const names[]);

/* The index in its `whole` of image i of a set. */
RG_INLINE int64_t rg_dataset_whole_index(const rg_dataset *set, int64_t i)
{
    return set->whole != NULL ? set->index[i] : i;
}

RG_INLINE const rg_dataset *rg_dataset_whole(const rg_dataset *set)
{
    return set->whole != NULL ? set->whole : set;
}

/* ---- readers: whether a folder is of their kind; fill a set that was begun ---- */

bool rg_idx_is_here(const char *folder);
rg_status rg_idx_read(const char *folder, rg_dataset_part part, rg_dataset *set);

bool rg_npy_is_here(const char *folder);
rg_status rg_npy_read_folder(const char *folder, rg_dataset_part part,
                             const rg_dataset_options *options, rg_dataset *set);
rg_status rg_npz_read(const char *path, rg_dataset_part part, const rg_dataset_options *options,
                      rg_dataset *set);

bool rg_image_folder_is_here(const char *folder); /* with folders that hold images */
rg_status rg_image_folder_read(const char *folder, rg_dataset_part part,
                               const rg_dataset_options *options, rg_dataset *set);

bool rg_masks_are_here(const char *folder);
rg_status rg_mask_folder_read(const char *folder, rg_dataset_part part,
                              const rg_dataset_options *options, rg_dataset *set);

bool rg_tar_is_here(const char *folder);
bool rg_tar_is_name(const char *path);
rg_status rg_tar_read(const char *path, rg_dataset_part part, const rg_dataset_options *options,
                      rg_dataset *set);

/* The pixels of an image: in the set, or decoded into `to`, which has image_bytes bytes. */
struct rg_decoder;
rg_status rg_dataset_fetch(const rg_dataset *set, int64_t index, struct rg_decoder *decoder,
                           void *to, const void **pixels);

/* The same for the classes of its mask, which are written to `to`, (targets). */
rg_status rg_dataset_fetch_mask(const rg_dataset *set, int64_t index, struct rg_decoder *decoder,
                                int32_t *to);

/* Whether a part is one of a folder's subfolders (or of names in it), and which: the test part is
 * the first that is there, the validation part one that follows a test part. `usable` tells whether
 * there is one of a name, such as "val", and may say why there is not. NULL: no such part. */
typedef bool rg_part_check(void *context, const char *name);
const char *rg_dataset_find_part(rg_dataset_part part, rg_part_check *usable, void *context);

/* A number that tells sets apart: of the names of image files without their endings, or of pixels
 * where there are none, and of labels and values, in their order; never 0. */
int64_t rg_dataset_hash(const rg_dataset *set);

/* The same of what image files hold: of pixels in memory, or of the sizes of files that are read
 * when they are needed. */
uint64_t rg_dataset_hash_contents(const rg_dataset *set);

/* Keeps what rg_dataset_hash() needs of a list of images. */
struct rg_items;
rg_status rg_dataset_keep_files(rg_dataset *set, const struct rg_items *items);

/* "holds no test part" */
rg_status rg_dataset_no_part(rg_dataset_part part);

/* ---- paths ---- */

enum { RG_DATASET_PATH = 4096 };

/* "folder/name" into `path`; RG_IO if it is too long. */
rg_status rg_path_join(char path[RG_DATASET_PATH], const char *folder, const char *name);

/* Puts the path before the error sentence of this thread; bytes that are no text become '?'. */
void rg_path_prefix(const char *path);

/* Whether a name is valid UTF-8 without control characters. */
bool rg_path_is_text(const char *name);

#endif
