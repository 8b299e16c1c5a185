/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Line charts as inline SVG: axes, round tick values, legend, a tooltip for every x. */
#ifndef RG_TRAIN_CHART_H
#define RG_TRAIN_CHART_H

#include "train/page.h"

typedef enum rg_chart_unit { RG_CHART_PLAIN, RG_CHART_PERCENT } rg_chart_unit;

typedef struct rg_chart_line {
    const char *name;  /* our own word */
    const double *y;   /* one per x; what is not finite leaves a gap, and infinity a mark */
    int colour;        /* 1 to 4 */
    bool faint;        /* drawn pale, below the others, without a place in the legend */
    bool marks_losses; /* NaN too is a value that was computed, and is marked */
} rg_chart_line;

typedef struct rg_chart {
    const char *title, *x_name; /* our own words; x are whole numbers */
    rg_chart_unit unit;
    const double *x; /* rising */
    int64_t count;
    const rg_chart_line *lines;
    int line_count;
    double mark;    /* an x with a mark, such as the best epoch; NaN: none */
    bool from_zero; /* the y axis begins at 0, whatever the values */
    bool is_wide;   /* of the two sizes */
} rg_chart;

/* A figure element. */
void rg_chart_add(rg_page *page, const rg_chart *chart);

/* A step of 1, 2 or 5 times a power of ten, so that `span` has about `wanted` of them. */
double rg_chart_step(double span, int wanted);

#endif
