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

int64_t rg_sweep_join_repeats(rg_sweep *sweep, int tensors, int repeated, int64_t most)
{
    enum { PIECE = 32768 };
    const int32_t last = sweep->outer.rank - 1;
    const int64_t period = sweep->length;
    if (last < 0 || period > most || !sweep->dense)
        return 0;
    for (int t = 0; t < tensors; t++)
        if (sweep->outer.strides[t][last] != (t == repeated ? 0 : period))
            return 0;
    int64_t step[RG_WALK_TENSORS];
    sweep->length *= rg_walk_take_inner(&sweep->outer, tensors, step);
    sweep->piece = PIECE / period * period;
    sweep->pieces = (sweep->length + sweep->piece - 1) / sweep->piece;
    sweep->step[repeated] = 0;
    return period;
}
