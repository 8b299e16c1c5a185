/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the report shows of targets other than one class, gathered while a set is evaluated: how
 * good each value, label or class of pixels is, and the images with the largest errors. */
#ifndef RG_TRAIN_FINDINGS_H
#define RG_TRAIN_FINDINGS_H

#include "train/report.h"
#include "train/trainer.h"

enum { RG_FINDINGS_WORST = 8, RG_FINDINGS_TEXT = 200 };

typedef struct rg_findings {
    const rg_dataset *set;
    rg_dataset_info info;        /* of the set */
    rg_confusion_class *classes; /* (classes) of labels and masks */
    rg_report_value *values;     /* (targets) of regression */
    double *means;               /* (targets) of the true values so far */
    float (*points)[2];          /* (targets shown, points) */
    int64_t seen;                /* images */
    int64_t worst_images[RG_FINDINGS_WORST];
    double worst_errors[RG_FINDINGS_WORST]; /* the largest first */
    int64_t worst_count;

    /* of the worst images, when all are known */
    rg_report_image worst[RG_FINDINGS_WORST];
    uint8_t *pictures; /* the image and two masks of each */
    size_t picture_bytes;
    char texts[RG_FINDINGS_WORST][3][RG_FINDINGS_TEXT]; /* name, prediction, truth */
} rg_findings;

/* Evaluates a set of the trainer's targets, which are not one class, and looks at all of it. The
 * findings are to be released whether that succeeds or not. `part`: "test", for names of images. */
rg_status rg_findings_gather(rg_trainer *trainer, const rg_dataset *set, const char *part,
                             rg_findings *findings, rg_trainer_result *result);
void rg_findings_release(rg_findings *findings);

/* The pixels of an image as bytes; those of floats are scaled. */
rg_status rg_findings_picture(const rg_dataset *set, int64_t image, uint8_t *to);

#endif
