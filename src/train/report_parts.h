/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The parts of the report. Each adds a section, or nothing where there is nothing to show. */
#ifndef RG_TRAIN_REPORT_PARTS_H
#define RG_TRAIN_REPORT_PARTS_H

#include "train/page.h"
#include "train/report.h"

/* Pixels of a side of pictures of masks, at most. */
enum { RG_MASK_PIXELS = 64 };

/* Characters of a name in a table, of a tooltip, and of a text that may be longer. */
enum { RG_NAME = 40, RG_TIP = 200, RG_LONG = 2000 };

void rg_report_style(rg_page *page);
rg_status rg_report_curves(rg_page *page, const rg_report *report);
rg_status rg_report_confusion(rg_page *page, const rg_report *report);
rg_status rg_report_targets(rg_page *page, const rg_report *report);
rg_status rg_report_worst(rg_page *page, const rg_report *report);
rg_status rg_report_network(rg_page *page, const rg_report *report);
rg_status rg_report_time(rg_page *page, const rg_report *report);
rg_status rg_report_memory_plan(rg_page *page, const rg_report *report);

/* Whether rg_report_targets() has something to show. */
bool rg_report_has_targets(const rg_report *report);

/* The colour of a class in pictures of masks, 0xrrggbb. */
uint32_t rg_mask_colour(int32_t class);

/* <section> with a heading, and its end. `id` and `heading` are our own words. */
void rg_section_begin(rg_page *page, const char *id, const char *heading);
void rg_section_end(rg_page *page);

/* The name of a class, or its number. */
void rg_class_name(rg_page *page, const rg_report *report, int32_t index, size_t most);

/* The epoch with the least validation loss, or training loss where none was validated; -1. */
int64_t rg_best_epoch(const rg_report *report);

#endif
