/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_ARITHMETIC_H
#define RG_OPS_ARITHMETIC_H

#include "core/sweep.h"

/* Subtraction is addition with a negated second scale. A minimum is a maximum with both scales and
 * the result negated; a mask uses the same kernel. Gradients exist in three forms for each of the
 * five kinds: element-wise, and two that also sum over the dimensions an operand was broadcast
 * along. These write partial sums, which `sum_pieces` joins. */
enum {
    RG_ADD_FORWARD,
    RG_MULTIPLY_FORWARD,
    RG_DIVIDE_FORWARD,
    RG_COMPARE_FORWARD,
    RG_MAXIMUM_FORWARD,
    RG_ADD_GRADIENT, /* without bounds: reads dy alone */
    RG_ADD_BOUNDED_GRADIENT,
    RG_MULTIPLY_GRADIENT,
    RG_DIVIDE_GRADIENT,
    RG_MAXIMUM_GRADIENT,
    RG_ADD_COLUMNS,
    RG_ADD_BOUNDED_COLUMNS,
    RG_MULTIPLY_COLUMNS,
    RG_DIVIDE_COLUMNS,
    RG_MAXIMUM_COLUMNS,
    RG_ADD_ROWS,
    RG_ADD_BOUNDED_ROWS,
    RG_MULTIPLY_ROWS,
    RG_DIVIDE_ROWS,
    RG_MAXIMUM_ROWS,
    RG_SUM_PIECES,
    RG_ARITHMETIC_KERNELS
};

/* What the formulas read. */
typedef struct rg_arithmetic_numbers {
    double primary, secondary, bias, minimum, maximum, threshold;
    double sign; /* of a maximum: -1 for a minimum */
    int32_t comparison;
    bool bounded; /* minimum or maximum is a number */
    bool mask;    /* in place of a maximum */
} rg_arithmetic_numbers;

/* Elements of a row of b, at most, that a CPU repeats. */
enum { RG_ARITHMETIC_PERIOD = 1024 };

typedef struct rg_arithmetic_args {
    const void *a, *b;
    void *y;
    rg_sweep sweep; /* tensors a, b, y */
    int64_t period; /* on a CPU: elements of b that are repeated along a row; 0: none */
    rg_arithmetic_numbers numbers;
    bool stream; /* y is written by streaming stores */
} rg_arithmetic_args;

/* Element by element. What is not read or not wanted is another tensor of the call. */
typedef struct rg_arithmetic_gradient_args {
    const void *dy, *a, *b;
    void *dx[2];
    rg_sweep sweep; /* tensors dy, a, b, da, db */
    rg_arithmetic_numbers numbers;
    bool wants[2], add[2];
    bool stream; /* results are written by streaming stores */
} rg_arithmetic_gradient_args;

enum { RG_SUMS_TENSORS = 4 };

/* Sums over the dimensions that one operand was repeated along. Dimensions are `outer` (kept),
 * `around` (summed over) and `inner`, the last ones of y that are alike: kept, and the sums are
 * columns, or summed over, and they are rows. Everything that orders a sum follows from shapes:
 *
 *      columns  piece p of the sum (o, i) has `piece` indices of `around` from p piece on
 *      rows     piece p of the sum (o) has elements c piece … of rows r rows … of `around`, with
 *               c = p % cuts, r = p / cuts
 *
 * The sum of piece p is part[p sums + s]; s counts all sums, those of the result. */
typedef struct rg_arithmetic_sums_args {
    const void *dy, *a, *b;
    void *other;                  /* the gradient of the other operand, which has the shape of y */
    void *part;                   /* of f64 for f64, else of f32 */
    rg_walk outer, around, inner; /* tensors dy, a, b, other */
    int64_t piece, pieces, rows, cuts;
    int64_t sums;
    int64_t block, blocks; /* columns that a unit takes on the CPU, adjacent units */
    rg_arithmetic_numbers numbers;
    bool second;                   /* the sums are those of b */
    bool straight;                 /* inner has one stride in every tensor */
    bool wants_other, add, stream; /* of `other` */
} rg_arithmetic_sums_args;

enum { RG_SUMS_BLOCK = 256 }; /* sums of a unit of sum_pieces on the CPU */

typedef struct rg_sum_pieces_args {
    const void *part;
    void *dx;
    rg_walk kept; /* tensor dx */
    int64_t pieces;
    bool add; /* into dx */
} rg_sum_pieces_args;

#endif
