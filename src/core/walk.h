/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A walk visits the same index of several strided tensors: dimensions merged where the strides
 * of all allow it. Part of kernel args, so valid C and valid CUDA. */
#ifndef RG_CORE_WALK_H
#define RG_CORE_WALK_H

#include <retrograde/tensor.h>

enum { RG_WALK_TENSORS = 5 };

/* Adjacent groups that a kernel of columns takes at once, at most. */
enum { RG_BLOCK_GROUPS = 1024 };

typedef struct rg_walk {
    int32_t rank;
    int64_t count;                                 /* of indices: the product of dims */
    int64_t dims[RG_MAX_RANK];                     /* outermost first; none is 1 */
    int64_t strides[RG_WALK_TENSORS][RG_MAX_RANK]; /* in elements, of each tensor */
} rg_walk;

/* Dimensions begin <= d < end of `tensors` descriptions that have the same dims. */
rg_walk rg_walk_make(const rg_tensor_desc *const descs[], int tensors, int32_t begin, int32_t end);

/* Takes the innermost dimension off and returns its length (1 where none is left), its strides
 * in step[]. */
int64_t rg_walk_take_inner(rg_walk *walk, int tensors, int64_t step[]);

/* Dimensions 0 <= d < end, then those of `inner`: what is outside of an axis and of the
 * innermost dimension. */
rg_walk rg_walk_around(const rg_tensor_desc *const descs[], int tensors, int32_t end,
                       const rg_walk *inner);

#ifdef __CUDACC__
#define RG_HOST_DEVICE __host__ __device__
#else
#define RG_HOST_DEVICE
#endif

/* The offset of index `i` of the walk in each tensor. */
static inline RG_HOST_DEVICE void rg_walk_offsets(const rg_walk *walk, int tensors, int64_t i,
                                                  int64_t offsets[])
{
    if (walk->rank <= 1) { /* what dense tensors come down to */
        for (int t = 0; t < tensors; t++)
            offsets[t] = i * walk->strides[t][0];
        return;
    }
    for (int t = 0; t < tensors; t++)
        offsets[t] = 0;
    for (int32_t d = walk->rank - 1; d >= 0; d--) {
        const int64_t index = d > 0 ? i % walk->dims[d] : i;
        i = d > 0 ? i / walk->dims[d] : 0;
        for (int t = 0; t < tensors; t++)
            offsets[t] += index * walk->strides[t][d];
    }
}

#endif
