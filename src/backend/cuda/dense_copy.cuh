/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors as libraries want them: dense, and at aligned addresses. One that is not goes through a
 * copy in scratch, so that a library always sees the same shapes and gives the same bits.
 *
 * The same code runs twice: when work is recorded, to find out how much scratch it needs, and when
 * it is put into a stream. */
#ifndef RG_BACKEND_CUDA_DENSE_COPY_CUH
#define RG_BACKEND_CUDA_DENSE_COPY_CUH

#include "backend/cuda/strided_copy.h"

struct scratch_arena {
    const rg_cuda_target *target;
    char *scratch; /* of which `used` bytes are taken */
    size_t used;
    bool enqueue; /* false: nothing is launched, and addresses mean nothing */
};

static inline void *arena_alloc(scratch_arena *arena, size_t bytes)
{
    const size_t at = arena->used;
    arena->used += (bytes + RG_SCRATCH_ALIGNMENT - 1) / RG_SCRATCH_ALIGNMENT * RG_SCRATCH_ALIGNMENT;
    return arena->enqueue ? arena->scratch + at : NULL;
}

/* Whether the launch needs more scratch than was reserved. It happens if the library chooses
 * another plan at the launch than at recording. */
static inline bool arena_overflows(const scratch_arena *plan)
{
    return plan->used > plan->target->scratch;
}

struct dense_copy {
    void *data;        /* dense */
    rg_copy_args copy; /* between it and the tensor */
    bool copied;       /* it is not the tensor itself */
};

static inline void copy_dense(const scratch_arena *arena, dense_copy *tensor, bool back)
{
    tensor->copy.to_host = !back; /* "host" is the dense side */
    if (arena->enqueue && tensor->copied)
        rg_cuda_strided_copy(&tensor->copy, arena->target->stream);
}

/* A tensor of `rank` dimensions; `read`: its elements matter. */
static inline dense_copy dense_tensor(scratch_arena *arena, const void *data, bool aligned,
                                      int32_t rank, const int64_t dims[], const int64_t strides[],
                                      int32_t element, bool read)
{
    dense_copy tensor = {};
    tensor.data = (void *)data;
    tensor.copy.device = (void *)data;
    tensor.copy.rank = rank;
    tensor.copy.element = element;
    size_t bytes = (size_t)element;
    for (int32_t d = 0; d < rank; d++) {
        tensor.copy.dims[d] = dims[d];
        tensor.copy.strides[d] = strides[d];
        bytes *= (size_t)dims[d];
    }
    tensor.copied = !aligned || !rg_copy_is_dense(&tensor.copy);
    if (tensor.copied)
        tensor.data = tensor.copy.staging = arena_alloc(arena, bytes);
    if (read)
        copy_dense(arena, &tensor, false);
    return tensor;
}

/* Bit i: pointer i is not at a multiple of 16 bytes. */
static inline uint32_t unaligned_of(const void *const pointers[], int count)
{
    uint32_t mask = 0;
    for (int i = 0; i < count; i++)
        mask |= (uint32_t)((uintptr_t)pointers[i] % 16 != 0) << i;
    return mask;
}

#endif
