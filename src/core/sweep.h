/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A sweep visits every element of several strided tensors of one shape, for kernels that treat
 * elements one by one. Part of kernel args, so valid C and valid CUDA. */
#ifndef RG_CORE_SWEEP_H
#define RG_CORE_SWEEP_H

#include "core/walk.h"

typedef struct rg_sweep {
    rg_walk outer;                 /* over rows */
    int64_t length;                /* elements of a row */
    int64_t step[RG_WALK_TENSORS]; /* between them */
    int64_t piece, pieces; /* a unit is a piece of a row: elements of one, pieces of a row */
    bool dense;            /* every step is 1 */
} rg_sweep;

rg_sweep rg_sweep_make(const rg_tensor_desc *const descs[], int tensors);

/* Joins rows of at most `most` elements in which tensor `repeated` is the same while the others
 * go on: a row and a piece then have whole periods, at whose starts `repeated` is at the same
 * offset again. Returns the elements of a period; 0: nothing is joined. */
int64_t rg_sweep_join_repeats(rg_sweep *sweep, int tensors, int repeated, int64_t most);

/* Units of the whole sweep. */
static inline int64_t rg_sweep_units(const rg_sweep *sweep)
{
    return sweep->outer.count * sweep->pieces;
}

/* Where a unit starts in each tensor; returns how many elements it has. */
static inline RG_HOST_DEVICE int64_t rg_sweep_piece(const rg_sweep *sweep, int tensors,
                                                    int64_t unit, int64_t offsets[])
{
    const int64_t first = unit % sweep->pieces * sweep->piece;
    rg_walk_offsets(&sweep->outer, tensors, unit / sweep->pieces, offsets);
    for (int t = 0; t < tensors; t++)
        offsets[t] += first * sweep->step[t];
    return sweep->length - first < sweep->piece ? sweep->length - first : sweep->piece;
}

#endif
