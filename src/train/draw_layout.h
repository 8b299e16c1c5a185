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

/* A line through points; between two of them it runs upright, or level, at both ends. */
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

/* ---- between the two files that make it ---- */

/* What stands in a row: the box of a node, or the place where a long line passes through. */
typedef struct rg_draw_item {
    int32_t node;       /* -1: a line passes */
    int32_t row;        /* from the top */
    double left, right; /* from the centre to the borders, what stands beside the box included */
    double x;           /* of the centre */
    double weight;      /* how strongly it pulls at its neighbours: a source only a little */
    double key;         /* while sorting */
} rg_draw_item;

/* Items of one side, forward or gradient, and the lines between neighbouring rows. */
typedef struct rg_draw_side {
    rg_draw_item *items;
    int32_t item_count, rows;
    int32_t *order;      /* items row by row, from left to right */
    int32_t *row_start;  /* rows + 1: where each row begins in `order` */
    int32_t (*links)[2]; /* items of neighbouring rows, the upper and the lower, by row */
    int32_t *link_start; /* rows + 1: where the links down from each row begin */
    int32_t *place;      /* of each item within its row */
    int32_t *best;       /* room for the best order so far */
    double *weights;     /* room for a number per item */
} rg_draw_side;

/* Orders each row so that few lines cross, then gives every item its x, 0 at the left border. */
double rg_draw_side_arrange(rg_draw_side *side);

#endif
