/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice kernels. Valid C and valid CUDA. */
#ifndef RG_OPS_SLICE_H
#define RG_OPS_SLICE_H

#include "ops/move/move.h"

enum {
    RG_SLICE_MOVE,    /* y from x, or dy added into dx: rg_move_args */
    RG_SLICE_SCATTER, /* dx from dy, 0 elsewhere: rg_scatter_args */
    RG_SLICE_KERNELS
};

#endif
