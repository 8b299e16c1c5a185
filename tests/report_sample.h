/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A made-up run for the tests of the report: ten epochs of a LeNet on Fashion-MNIST. */
#ifndef RG_TESTS_REPORT_SAMPLE_H
#define RG_TESTS_REPORT_SAMPLE_H

#include "tests/scratch_folder.h"
#include "train/report.h"

enum {
    SAMPLE_EPOCHS = 10,
    SAMPLE_STEPS = 940,
    SAMPLE_CLASSES = 10,
    SAMPLE_IMAGES = 18,
    SAMPLE_SIDE = 28,
    SAMPLE_LAYERS = 11,
    SAMPLE_NODES = 60,
    SAMPLE_EDGES = 160,
    SAMPLE_TENSORS = 60,
    SAMPLE_VALUES = 2,
    SAMPLE_POINTS = 300
};

/* All that a report points to. */
typedef struct sample {
    rg_report report;
    rg_report_epoch epochs[SAMPLE_EPOCHS];
    rg_report_step steps[SAMPLE_STEPS];
    rg_confusion_cell confusion[2 * SAMPLE_CLASSES * SAMPLE_CLASSES];
    int64_t confusion_count;
    uint8_t pixels[SAMPLE_IMAGES][SAMPLE_SIDE * SAMPLE_SIDE];
    rg_report_image images[SAMPLE_IMAGES];
    rg_report_timing timings[SAMPLE_LAYERS];
    rg_report_memory memory[SAMPLE_TENSORS];
    rg_draw_node nodes[SAMPLE_NODES];
    rg_draw_edge edges[SAMPLE_EDGES];
    char names[SAMPLE_NODES + SAMPLE_TENSORS][40];
    int name_count;
    uint64_t seed;
    float points[SAMPLE_VALUES][SAMPLE_POINTS][2];
    rg_report_value values[SAMPLE_VALUES];
    rg_confusion_class target_classes[SAMPLE_CLASSES];
    uint8_t masks[2][3 * SAMPLE_SIDE * SAMPLE_SIDE];
} sample;

sample *sample_make(void);

/* The same run, as if it had learned other targets than one class. */
rg_report sample_of(sample *s, rg_target_kind target);

#endif
