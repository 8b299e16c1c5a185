/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reduction kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_REDUCE_H
#define RG_OPS_REDUCE_H

#include "core/sweep.h"

/* A group is what becomes one number. By shape alone a tensor is taken as rows, where the
 * innermost dimension is reduced, or as columns, where groups are adjacent. Long groups are cut
 * into parts, whose results are joined by a launch of its own. */
enum {
    RG_REDUCE_ROWS,
    RG_REDUCE_COLUMNS,
    RG_REDUCE_FINISH,     /* joins parts */
    RG_REDUCE_SPREAD,     /* gradient of a sum: dy to all elements of a group */
    RG_REDUCE_REPEAT,     /* the same where rows of dx become one row of dy; CPUs alone have it */
    RG_REDUCE_AWARD,      /* gradient of an extreme: dy to the winner */
    RG_REDUCE_AWARD_ROWS, /* finds the winners of rows, too; GPUs alone have it */
    RG_REDUCE_KERNELS
};

/* What is kept of a group: its sum, its extreme, the number of the extreme, or both of these; from
 * RG_REDUCE_NUMBER on there is a number. A least element is a largest one with the sign changed. */
typedef enum rg_reduce_what {
    RG_REDUCE_TOTAL,
    RG_REDUCE_EXTREME,
    RG_REDUCE_NUMBER,
    RG_REDUCE_WINNER
} rg_reduce_what;

/* Results of groups: elements of the dtype, or i64 for numbers. */
typedef struct rg_reduce_result {
    rg_reduce_what what;
    double sign;            /* of extremes: -1 for the least */
    double weight, divisor; /* of sums */
    /* Parts of a group, and elements of one. Where there are several, `partial` has the result
     * of part p of output o at p * outputs + o; for numbers these are the values, and the
     * numbers follow all of them. */
    int64_t parts, part, outputs;
    bool apart; /* `partial` has the result of a single part, too */
} rg_reduce_result;

typedef struct rg_reduce_args {
    const void *x;
    void *y;
    double *partial;  /* y where there is one part */
    int64_t *winners; /* RG_REDUCE_WINNER: the number of output o at o */
    rg_walk outer;    /* tensors x, y, and o; rows: over groups; columns: over rows of groups */
    rg_walk group;    /* over the elements of a group, tensor x */
    int64_t length;   /* elements of a group */
    int64_t width, block, blocks; /* columns: groups of a row, of a unit; units of a row; rows: 0 */
    int64_t across[3];            /* columns: from one group to the next */
    int64_t side;                 /* columns: adjacent groups, by shape alone */
    rg_reduce_result result;
    bool dense; /* rows: elements of a group are neighbours; columns: groups are, in x */
} rg_reduce_args;

typedef struct rg_reduce_finish_args {
    const double *partial;
    void *y;
    int64_t *winners; /* as those of rg_reduce_args */
    rg_walk outer;    /* over groups: tensor y */
    rg_reduce_result result;
} rg_reduce_finish_args;

/* Elements of a row that RG_REDUCE_REPEAT copies, at most. */
enum { RG_REPEAT_MAX = 1024 };

typedef struct rg_reduce_gradient_args {
    const void *dy;
    void *dx;
    const int64_t *winners; /* RG_REDUCE_AWARD; one that is no number of its group gets nothing */
    rg_sweep sweep;         /* tensors dx, dy, numbers of outputs, numbers within groups */
    double factor;          /* of dy */
    int64_t period;         /* RG_REDUCE_REPEAT: elements of a row of dy; those of dx are repeats.
                               RG_REDUCE_AWARD on CPUs: those of a row of adjacent groups, of which
                               the sweep joins some; 0: rows are not joined */
    bool add;               /* into dx */
    bool stream;            /* dx is written by streaming stores */
} rg_reduce_gradient_args;

/* RG_REDUCE_AWARD_ROWS: rows of one part. */
typedef struct rg_reduce_award_args {
    const void *x, *dy;
    void *dx;
    rg_walk outer;    /* over rows: tensors x, dx, dy */
    int64_t length;   /* elements of a row */
    int64_t step[2];  /* between them: in x, in dx */
    double sign;      /* -1 for the least */
    bool add, stream; /* into dx; dx is written by streaming stores */
} rg_reduce_award_args;

#endif
