/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arrays x and y of data sets in NPY files, and what y holds. */
#ifndef RG_TRAIN_NPY_SET_H
#define RG_TRAIN_NPY_SET_H

#include "files/npy.h"
#include "train/dataset.h"

typedef struct rg_npy_array {
    bool found;
    char name[24]; /* "x_train.npy" */
    rg_npy_header h;
    char *data;
    bool is_beyond; /* it had whole numbers above those of i64, which are less than 0 now */
} rg_npy_array;

/* What y holds for each image. */
typedef struct rg_npy_targets {
    rg_target_kind kind;
    int64_t count;
    int64_t dims[RG_MAX_RANK]; /* of one image, without those of 1 */
    int32_t rank;
    char name[24]; /* of the file; empty: there is none */
} rg_npy_targets;

/* The dimensions `from` to `end` - 1 of an array, without those of 1. */
void rg_npy_list_dims(const rg_npy_header *h, int32_t from, int32_t end, rg_npy_targets *to);

/* Takes the targets of an array; `set` is NULL for a part that is not read. *largest: the largest
 * class so far. */
rg_status rg_npy_use_labels(rg_npy_array *y, rg_dataset *set, rg_npy_targets *t, int32_t *largest);

/* Says what of the targets of a part is probably not meant. */
void rg_npy_warn(const rg_dataset *set, const char *path, const rg_dataset_options *options);

/* A mask has the size of its image. */
rg_status rg_npy_check_mask(const rg_dataset *set, const rg_npy_targets *targets,
                            const rg_npy_targets *pixels);
/* Targets of two parts have the same kind, number and shape. */
rg_status rg_npy_check_parts(const rg_npy_targets *own, const rg_npy_targets *other);

#endif
