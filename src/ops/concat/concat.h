/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat kernels. Valid C and valid CUDA. */
#ifndef RG_OPS_CONCAT_H
#define RG_OPS_CONCAT_H

#include "ops/move/move.h"

enum {
    RG_CONCAT_MOVE,    /* a slice of y from a source, or dx from a slice of dy: rg_move_args */
    RG_CONCAT_SCATTER, /* a slice of y from a source, zeros behind it: rg_scatter_args */
    RG_CONCAT_KERNELS
};

#endif
