/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Between the files that make a layout: draw_layout.c, draw_rows.c, draw_order.c, draw_routes.c. */
#ifndef RG_TRAIN_DRAW_WORK_H
#define RG_TRAIN_DRAW_WORK_H

#include "train/draw_layout.h"

enum { RG_DRAW_MARGIN = 16 };

typedef enum rg_draw_side_name { RG_DRAW_LEFT, RG_DRAW_RIGHT, RG_DRAW_NO_SIDE } rg_draw_side_name;

/* Where a node goes. */
typedef struct rg_draw_position {
    rg_draw_side_name side; /* RG_DRAW_NO_SIDE: stands beside `host` */
    int32_t host;
    int32_t row, item;
    int32_t beside;      /* how many small boxes stand at its side */
    double beside_width; /* of the widest */
    int32_t index;       /* of a small box: from the top */
    int32_t waiting;     /* edges not yet followed */
    bool done;
} rg_draw_position;

/* What stands in a row: the box of a node, or the point where a long line passes through. */
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
    int32_t *position;   /* of each item within its row */
    int32_t *best;       /* the best order so far */
    double *weights;     /* a number per item */
} rg_draw_side;

/* A layout in the making. */
typedef struct rg_draw_work {
    const rg_drawing *drawing;
    rg_draw_layout *layout;
    rg_draw_position *positions;
    int32_t *queue;
    int32_t rows;
    rg_draw_side sides[2];
    int32_t *first_pass, *pass_count; /* of each edge: items of its side */
    double *row_y;
} rg_draw_work;

/* Memory that is all zero and lives as long as the layout; NULL, with a sentence, if there is none.
 */
void *rg_draw_take(rg_draw_layout *layout, int64_t count, size_t element);

#define RG_DRAW_TAKE(layout, count, pointer)                                        \
    ((*(pointer) = rg_draw_take(layout, count, sizeof **(pointer))) != NULL ? RG_OK \
                                                                            : RG_OUT_OF_MEMORY)

/* Whether an edge joins two different nodes of the drawing. */
bool rg_draw_edge_is_valid(const rg_drawing *drawing, const rg_draw_edge *edge);

/* Whether an edge runs between two boxes of this side. */
bool rg_draw_edge_is_on(const rg_draw_work *work, const rg_draw_edge *edge, rg_draw_side_name side);

/* Parameters and updates find the box they stand beside; without one they get a box of their own.
 */
void rg_draw_choose_hosts(rg_draw_work *work);

/* Gives every box its row. */
void rg_draw_set_rows(rg_draw_work *work);

/* Orders each row so that few lines cross, then gives every item its x, 0 at the left border.
 * Returns the width. */
double rg_draw_side_arrange(rg_draw_side *side);

/* The lines, once all boxes have their place. */
rg_status rg_draw_make_routes(rg_draw_work *work);

#endif
