/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Where the boxes and lines of a drawing go. */
#ifndef RG_TRAIN_DRAW_LAYOUT_H
#define RG_TRAIN_DRAW_LAYOUT_H

#include "train/draw.h"

/* How many characters of a label, an op or a text, and of a line, are shown. */
enum { RG_DRAW_LABEL = 28, RG_DRAW_TEXT = 26, RG_DRAW_SHAPE = 28 };

/* A box with its centre, in pixels. */
typedef struct rg_draw_box {
    double x, y, width, height;
    bool small; /* a parameter or an update, in one line beside the box that uses it */
} rg_draw_box;

typedef struct rg_draw_point {
    double x, y;
} rg_draw_point;

/* A curve through points; at both ends of each piece it is vertical, or horizontal if `level`. */
typedef struct rg_draw_route {
    rg_draw_point *points; /* at least 2; none: the line is not drawn */
    int32_t count;
    bool level;
} rg_draw_route;

typedef struct rg_draw_layout {
    rg_draw_box *boxes;    /* one per node */
    rg_draw_route *routes; /* one per edge */
    double width, height;
    struct layout_block *blocks; /* the memory of it all */
} rg_draw_layout;

rg_status rg_draw_layout_make(const rg_drawing *drawing, rg_draw_layout *layout);
void rg_draw_layout_clear(rg_draw_layout *layout);

#endif
