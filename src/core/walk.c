/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Building walks. */
#include "core/walk.h"

#include <assert.h>

rg_walk rg_walk_make(const rg_tensor_desc *const descs[], int tensors, int32_t begin, int32_t end)
{
    assert(tensors <= RG_WALK_TENSORS);
    rg_walk walk = { .rank = 0, .count = 1 };
    for (int32_t d = begin; d < end; d++) {
        const int64_t size = descs[0]->dims[d];
        walk.count *= size;
        if (size == 1)
            continue;
        bool merges = walk.rank > 0;
        for (int t = 0; t < tensors && merges; t++)
            merges = walk.strides[t][walk.rank - 1] == size * descs[t]->strides[d];
        if (merges)
            walk.dims[walk.rank - 1] *= size;
        else
            walk.dims[walk.rank++] = size;
        for (int t = 0; t < tensors; t++)
            walk.strides[t][walk.rank - 1] = descs[t]->strides[d];
    }
    return walk;
}

int64_t rg_walk_take_inner(rg_walk *walk, int tensors, int64_t step[])
{
    for (int t = 0; t < tensors; t++)
        step[t] = walk->rank > 0 ? walk->strides[t][walk->rank - 1] : 1;
    if (walk->rank == 0)
        return walk->count; /* 1, or 0 for an empty walk */
    const int64_t length = walk->dims[--walk->rank];
    walk->count = 1;
    for (int32_t d = 0; d < walk->rank; d++)
        walk->count *= walk->dims[d];
    return length;
}

rg_walk rg_walk_around(const rg_tensor_desc *const descs[], int tensors, int32_t end,
                       const rg_walk *inner)
{
    rg_walk walk = rg_walk_make(descs, tensors, 0, end);
    for (int32_t d = 0; d < inner->rank; d++, walk.rank++) {
        walk.dims[walk.rank] = inner->dims[d];
        for (int t = 0; t < tensors; t++)
            walk.strides[t][walk.rank] = inner->strides[t][d];
    }
    walk.count *= inner->count;
    return walk;
}
