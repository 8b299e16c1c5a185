/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Copies between strided tensors: what slice, concat, reshape and transpose come down to. Part of
 * kernel args, so valid C and valid CUDA. */
#ifndef RG_OPS_MOVE_MOVE_H
#define RG_OPS_MOVE_MOVE_H

#include "core/walk.h"

/* Elements of a unit: small enough to share evenly, large enough to take. */
enum { RG_MOVE_PIECE = 16384 };

/* Matrices that a move transposes: rows are neighbours in `from`, columns in `to`. A CPU copies
 * them tile by tile. */
typedef struct rg_move_tiles {
    rg_walk outer;              /* over matrices: tensors from, to */
    int64_t rows, columns;      /* of a matrix; 0 if there is none */
    int64_t from_step, to_step; /* from one column to the next, from one row to the next */
    int64_t tile_rows, tile_columns;
} rg_move_tiles;

/* Element i of `from` becomes, or is added to, element i of `to`. The walks are of tensor 0, of
 * one count, and of a rank of at least 1; their dims may differ. */
typedef struct rg_move {
    rg_walk from, to;
    int64_t from_offset, to_offset; /* elements before the first one */
    rg_move_tiles tiles;
    bool add;
    bool stream; /* `to` uses streaming stores */
} rg_move;

typedef struct rg_move_args {
    const void *from;
    void *to;
    rg_move move;
} rg_move_args;

/* A slice of `to` becomes `from`, all other elements of it become 0. */
typedef struct rg_scatter {
    int32_t rank;                       /* at least 1 */
    int64_t count;                      /* of elements of `to` */
    int64_t dims[RG_MAX_RANK];          /* of `to`, outermost first */
    int64_t start[RG_MAX_RANK];         /* of the slice, */
    int64_t length[RG_MAX_RANK];        /* its elements, */
    int64_t step[RG_MAX_RANK];          /* and from one of them to the next, at least 1 */
    int64_t from[RG_MAX_RANK];          /* strides */
    int64_t to[RG_MAX_RANK], to_offset; /* strides; elements before the first one */
    bool stream;                        /* `to` uses streaming stores */
} rg_scatter;

typedef struct rg_scatter_args {
    const void *from;
    void *to;
    rg_scatter scatter;
} rg_scatter_args;

/* Tensors of one count, each in row-major order. */
rg_move rg_move_make(const rg_tensor_desc *from, const rg_tensor_desc *to);

/* Tensors of one shape, in the order of `to` in memory. */
rg_move rg_move_make_same(const rg_tensor_desc *from, const rg_tensor_desc *to);

/* `from` is the slice of `to` that begins at start[] and takes every step[]-th element. */
rg_scatter rg_scatter_make(const rg_tensor_desc *from, const rg_tensor_desc *to,
                           const int64_t start[], const int64_t step[]);

#endif
