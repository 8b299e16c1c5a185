/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loss kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_LOSS_H
#define RG_OPS_LOSS_H

#include "core/sweep.h"
#include "ops/softmax/softmax.h"

/* Losses of a group (an image, or all of them) become one number: first sums of parts or of rows,
 * in double, then a launch that adds these up. */
enum {
    RG_LOSS_BY_ELEMENTS, /* dense labels, all kinds but softmax */
    RG_LOSS_BY_ROWS,     /* dense labels, softmax */
    RG_LOSS_BY_CLASSES,  /* class labels, softmax */
    RG_LOSS_PICK,        /* class labels, kinds that look at one element of a row */
    RG_LOSS_COUNT,       /* weights that are not 0 */
    RG_LOSS_FINISH,      /* adds up parts or rows */
    RG_LOSS_ONES,        /* the initial gradient */
    RG_LOSS_KERNELS
};

/* Elements of a part of a group; and of a row up to which a GPU adds rows up in the same launch. */
enum { RG_LOSS_PART = 4096, RG_LOSS_SHORT = 1024 };

/* What a launch computes: losses, one for each label or added up; or derivatives. */
enum { RG_LOSS_OF_LABELS, RG_LOSS_SUMS, RG_LOSS_NO_LOSS };

/* A tensor by the row-major number of its elements; dimensions are merged where strides allow it.
 */
typedef struct rg_loss_view {
    int32_t rank;
    int64_t dims[RG_MAX_RANK], strides[RG_MAX_RANK];
} rg_loss_view;

/* What the formulas need besides elements. */
typedef struct rg_loss_numbers {
    int32_t kind;                 /* rg_loss_kind */
    double weight;                /* of losses */
    double scale;                 /* of derivatives: the weight, and 1 / N of a mean */
    double keep, share;           /* labels become t keep + share */
    double epsilon, delta, total; /* total: of the labels of a row of classes */
} rg_loss_numbers;

enum { RG_LOSS_Y, RG_LOSS_T, RG_LOSS_W, RG_LOSS_DY, RG_LOSS_L, RG_LOSS_D, RG_LOSS_VIEWS };

typedef struct rg_loss_args {
    const void *y, *labels, *weights, *dy;
    void *loss, *gradient; /* gradient: of y or, for dense labels, of these */
    double *partial;
    const double *counts; /* divisors of derivatives, one of each group */
    uint32_t *fault;      /* class labels; 0 at first, so a GPU also counts blocks in it */

    rg_loss_view views[RG_LOSS_VIEWS]; /* dy: of labels, or of groups */
    rg_softmax_shape shape;            /* by classes: tensors y, gradient */
    rg_loss_numbers numbers;
    int64_t rows, length;         /* length: of a row, the last dimension */
    int64_t groups, group, parts; /* groups; elements (classes: rows) of one, and its parts */
    int64_t ignored;              /* a class label */
    double divisor;            /* of the sum of all rows, where a GPU ends it in the same launch */
    bool divides_by_counts;    /* and by these */
    int32_t losses;            /* RG_LOSS_OF_LABELS, ... */
    bool wide_labels;          /* class labels are i64 */
    bool has_ignored;          /* else `ignored` is a label like any other */
    bool has_weights;          /* else all are 1 */
    bool has_dy, dy_of_labels; /* else it is 1; else there is one for each group */
    bool has_gradient;         /* derivatives are wanted */
    bool is_label_gradient;    /* those of labels */
    bool has_counts;           /* else `scale` says it all */
    bool add, stream;          /* into the gradient; by streaming stores */
} rg_loss_args;

typedef struct rg_loss_finish_args {
    const double *partial, *counts;
    void *loss; /* elements, or doubles for counts */
    rg_loss_view view;
    int64_t groups, parts; /* partial sums of a group */
    double bias, divisor;
    bool has_counts, makes_counts;
    bool gpu_is_done; /* on a GPU the launch before has done it */
} rg_loss_finish_args;

typedef struct rg_loss_ones_args {
    void *y;
    rg_sweep sweep;
} rg_loss_ones_args;

#endif
