/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a loader consists of: a ring of batches, and threads with their memory. */
#ifndef RG_TRAIN_LOADER_H
#define RG_TRAIN_LOADER_H

#include "train/image_items.h"
#include "core/thread.h"

enum { RG_LOADER_TEXT = 512, RG_LOADER_THREADS = 64 };

/* A batch and its memory. */
typedef struct rg_loader_slot {
    rg_batch batch;
    char *images;
    int32_t *labels;
    char *values; /* of labels and values; NULL for others */
    float *exact; /* the same as in the set; `values` where the batch is f32 */
    int64_t *indices;
    int64_t given, done; /* images that threads have taken; that are complete */
    int64_t bad;         /* the first image that could not be decoded; -1: none */
    rg_status status;    /* of that */
    char text[RG_LOADER_TEXT];
} rg_loader_slot;

/* A thread with its memory. */
typedef struct rg_loader_worker {
    rg_loader *loader;
    pthread_t thread;
    int64_t *columns; /* (width): where each comes from; -1: padding */
    char *changed;    /* one image, as in the set */
    char *decoded;    /* one image; NULL for sets in memory */
    rg_decoder decoder;
} rg_loader_worker;

struct rg_loader {
    rg_dataset *set;
    rg_loader_desc desc;
    int64_t pixels;     /* of an image, channels not counted */
    size_t image_bytes; /* of one in a batch */
    int64_t grain;      /* images that a thread takes at once */
    char *table;        /* what each byte becomes: (channels, 256) of the batch's dtype; u8 alone */
    rg_loader_slot *ring; /* (buffers) */
    rg_loader_worker workers[RG_LOADER_THREADS];
    int32_t threads; /* that were started */
    bool has_lock;
    rg_decode_budget budget; /* of all threads */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int64_t *order; /* of the images in epoch `ordered`; NULL without shuffling */
    int64_t ordered;
    uint64_t begun, released;
    int64_t epoch, position; /* of the next batch to begin */
    int32_t busy;            /* threads that work on images */
    bool held, stop;         /* the caller has a batch; all ends */
    _Atomic bool hurry;      /* what is being made is not wanted any more */
};

/* Labels and values, (count, targets), of the batch that was given out last, as they are in the
 * set: not rounded to the dtype of the batch, in which `values` of rg_batch is. NULL for other
 * targets. */
const float *rg_loader_exact(const rg_loader *loader);

rg_status rg_loader_check_desc(const rg_dataset *set, const rg_loader_desc *desc);

/* Writes image `index` as it is in `epoch`: fetched, shifted, mirrored, scaled. */
rg_status rg_loader_write_image(rg_loader_worker *w, int64_t epoch, int64_t index, char *to);

#endif
