/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat kernels. Valid C and valid CUDA. */
#ifndef RG_OPS_CONCAT_H
#define RG_OPS_CONCAT_H

#include "ops/move/move.h"

enum {
    RG_CONCAT_MOVE,    /* a slice of y from a source, or dx from a slice of dy: rg_move_args */
    RG_CONCAT_SCATTER, /* a slice of y from a source, zeros behind it: rg_scatter_args */
    RG_CONCAT_JOIN,    /* all of y from its sources; GPUs alone have it and the next one: */
    RG_CONCAT_PART,    /* every dx from dy: rg_concat_join_args */
    RG_CONCAT_KERNELS
};

/* Parts, and elements of a row, at most. */
enum { RG_CONCAT_PARTS = 8, RG_CONCAT_ROW = 1 << 30 };

/* Dense tensors: a row of `whole` is a run of each part, one behind the other. */
typedef struct rg_concat_join_args {
    void *whole, *parts[RG_CONCAT_PARTS]; /* parts that are NULL are left out */
    int64_t rows,
        start[RG_CONCAT_PARTS + 1]; /* of runs, in elements; behind the last one the end */
    int32_t count;                  /* of parts */
    bool stream;                    /* results go past the cache */
} rg_concat_join_args;

#endif
