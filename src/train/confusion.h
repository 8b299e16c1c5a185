/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which classes were taken for which: only what has occurred, so that the size follows the images
 * and not the square of the classes. */
#ifndef RG_TRAIN_CONFUSION_H
#define RG_TRAIN_CONFUSION_H

#include "core/memory.h"

typedef struct rg_confusion_cell {
    int32_t label, predicted;
    int64_t count; /* of images; not 0 */
} rg_confusion_cell;

/* Cells by label, then by prediction. */
typedef struct rg_confusion {
    rg_confusion_cell *cells;
    int64_t count;
    size_t capacity;
} rg_confusion;

/* Images of one class. */
typedef struct rg_confusion_class {
    int32_t index;
    int64_t labels, predictions, right;
} rg_confusion_class;

/* Counts `count` images; to be released in any case. */
rg_status rg_confusion_create(const int32_t labels[], const int32_t predicted[], int64_t count,
                              rg_confusion *confusion);
void rg_confusion_release(rg_confusion *confusion);

/* Fills in `classes` entries, one for each class. */
void rg_confusion_count(const rg_confusion_cell cells[], int64_t count, int32_t classes,
                        rg_confusion_class of[]);
/* Sorts them, the one that is recognised least first; classes without images come last. */
void rg_confusion_weakest(rg_confusion_class of[], int32_t classes);

/* The largest cells with a wrong prediction, the largest first; returns how many, `most` at most.
 */
int rg_confusion_mistakes(const rg_confusion_cell cells[], int64_t count, rg_confusion_cell to[],
                          int most);

#endif
