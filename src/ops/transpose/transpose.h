/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transpose kernels. Valid C and valid CUDA. */
#ifndef RG_OPS_TRANSPOSE_H
#define RG_OPS_TRANSPOSE_H

#include "ops/move/move.h"

enum {
    RG_TRANSPOSE_MOVE, /* y from x, dx from dy: rg_move_args */
    RG_TRANSPOSE_KERNELS
};

#endif
