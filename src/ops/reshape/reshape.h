/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reshape kernels. Valid C and valid CUDA. */
#ifndef RG_OPS_RESHAPE_H
#define RG_OPS_RESHAPE_H

#include "ops/move/move.h"

enum {
    RG_RESHAPE_MOVE, /* y from x, dx from dy: rg_move_args */
    RG_RESHAPE_KERNELS
};

#endif
