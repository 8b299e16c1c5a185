/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Building sweeps. */
#include "core/sweep.h"

rg_sweep rg_sweep_make(const rg_tensor_desc *const descs[], int tensors)
{
    enum { PIECE = 16384 }; /* elements: small enough to share evenly, large enough to take */
    rg_sweep sweep = { .outer = rg_walk_make(descs, tensors, 0, descs[0]->rank), .piece = PIECE };
    sweep.length = rg_walk_take_inner(&sweep.outer, tensors, sweep.step);
    sweep.pieces = (sweep.length + PIECE - 1) / PIECE;
    sweep.dense = true;
    for (int t = 0; t < tensors; t++)
        sweep.dense &= sweep.step[t] == 1 || sweep.length == 1;
    return sweep;
}
