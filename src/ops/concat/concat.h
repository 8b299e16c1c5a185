/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat kernels. Valid C and valid CUDA. */
#ifndef RG_OPS_CONCAT_H
#define RG_OPS_CONCAT_H

#include "ops/move/move.h"

enum {
    RG_CONCAT_MOVE,    /* a slice of y from a source, or dx from a slice of dy: rg_move_args */
    RG_CONCAT_SCATTER, /* a slice of y from a source, zeros after it: rg_scatter_args */
    RG_CONCAT_JOIN,    /* all of y from its sources */
    RG_CONCAT_PART,    /* every dx from dy: rg_concat_join_args */
    RG_CONCAT_KERNELS
};

/* Parts, and elements of a row, at most; a CPU joins and parts short rows alone. */
enum { RG_CONCAT_PARTS = 8, RG_CONCAT_ROW = 1 << 30, RG_CONCAT_CPU_ROW = 1024 };

/* Dense tensors: a row of `whole` is one run of each part, in order. */
typedef struct rg_concat_join_args {
    void *whole, *parts[RG_CONCAT_PARTS]; /* parts that are NULL are left out */
    int64_t rows,
        start[RG_CONCAT_PARTS + 1]; /* of runs, in elements; then the end of the last one */
    int32_t count;                  /* of parts */
    bool stream;                    /* results are written by streaming stores */
} rg_concat_join_args;

#endif
