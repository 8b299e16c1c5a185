/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What people see of a training run: report.html, one file that needs no other and no script.
 *
 *  The structs below are filled by the caller. Nothing in them is kept or changed, all text may
 *  hold anything and may be NULL, and every list may be empty: its part is then left out. A loss
 * may be NaN or infinite, which the page shows; any other NaN means that the number was not
 * measured. */
#ifndef RG_TRAIN_REPORT_H
#define RG_TRAIN_REPORT_H

#include "core/status.h"
#include "train/draw.h"

#include <retrograde/trainer.h>

/* An option and its value. */
typedef struct rg_report_pair {
    const char *name, *value;
} rg_report_pair;

typedef struct rg_report_epoch {
    int64_t epoch; /* from 1 */
    double train_loss, train_accuracy;
    bool validated; /* whether the next two are meant */
    double validation_loss, validation_accuracy;
    double seconds, images_per_second, learning_rate;
} rg_report_epoch;

/* A point of the loss within epochs; as many as the caller likes. */
typedef struct rg_report_step {
    int64_t step;
    double loss;
} rg_report_step;

/* An image that was predicted badly. */
typedef struct rg_report_image {
    const uint8_t *pixels; /* (height, width, channels), channels fastest */
    int32_t height, width, channels;
    int32_t label, predicted;
    double probability; /* of the prediction */
    const char *name;   /* a file, or "test image 4711" */
    /* of targets other than one class: what was predicted, and what is true */
    const char *said, *wanted;
    const uint8_t *said_mask, *true_mask; /* (mask_height, mask_width, 3); NULL: none */
    int32_t mask_height, mask_width;
} rg_report_image;

/* A value that is learned, over the images that were evaluated. */
typedef struct rg_report_value {
    double absolute, squared; /* the means of these errors */
    double variance;          /* of the true values */
    const float (*points)[2]; /* some of them, true and predicted */
    int64_t point_count;
} rg_report_value;

typedef struct rg_report_layer {
    const char *label, *op;
    const char *output; /* the shape: "64×24×24×20" */
    const char *fields; /* "5×5, stride 1" */
    int64_t parameters;
} rg_report_layer;

/* Milliseconds of one step; 0 where an op has no such part. */
typedef struct rg_report_timing {
    const char *label, *op;
    double forward, gradient, update;
} rg_report_timing;

/* A tensor in the memory plan: where it lies, from the first to the last step that needs it. */
typedef struct rg_report_memory {
    const char *label;
    size_t offset, bytes;
    int32_t first, last;
} rg_report_memory;

typedef struct rg_report {
    const char *title, *model, *dataset, *device, *date, *command;
    const rg_report_pair *options;
    int64_t option_count;

    const rg_report_epoch *epochs;
    int64_t epoch_count;
    const rg_report_step *steps;
    int64_t step_count;
    const char *metric;              /* what accuracies are called; NULL: "Accuracy" */
    double test_score;               /* of "Mean absolute error" */
    double test_iou;                 /* of masks; NaN or 0 elsewhere */
    const char *test_part;           /* what was evaluated at the end: "test"; NULL: that */
    int64_t test_epoch;              /* whose parameters were evaluated; 0: the last ones */
    int64_t best_epoch;              /* by validation; 0: that of the lowest loss */
    double test_loss, test_accuracy; /* of the network that was kept; NaN where not measured */

    int32_t classes;
    const char *const *class_names;     /* NULL: numbers */
    const rg_confusion_cell *confusion; /* by label, then by prediction; NULL: none */
    int64_t confusion_count;
    const rg_report_image *worst; /* the worst first */
    int64_t worst_count;

    rg_target_kind target; /* of targets other than one class: */
    int64_t target_images; /* that were evaluated */
    const rg_report_value *values;
    int64_t value_count;
    const rg_confusion_class *target_classes; /* (classes): images of labels, pixels of masks */

    const rg_report_layer *layers;
    int64_t layer_count;
    rg_drawing drawing;

    const rg_report_timing *timings;
    int64_t timing_count;
    const rg_report_memory *memory;
    int64_t memory_count;
    int32_t memory_steps;   /* of the plan */
    size_t peak_bytes;      /* with storage used again */
    size_t separate_bytes;  /* if every tensor had its own */
    size_t parameter_bytes; /* parameters and moments, which are not in the plan */
} rg_report;

/* Writes the page, whole or not at all. It stays below 1 MB: long lists are cut, and say so. */
rg_status rg_report_write_html(const rg_report *report, const char *path);

#endif
