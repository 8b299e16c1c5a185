/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors as libraries want them: dense, and at aligned addresses. One that is not goes through a
 * copy in scratch, so that a library always sees the same shapes and gives the same bits.
 *
 * The same code runs twice: when work is recorded, to find out how much scratch it needs, and when
 * it is put into a stream. */
#ifndef RG_BACKEND_CUDA_PACKING_CUH
#define RG_BACKEND_CUDA_PACKING_CUH

#include "backend/cuda/strided_copy.h"

struct packing {
    const rg_cuda_place *place;
    char *scratch; /* of which `used` bytes are taken */
    size_t used;
    bool run; /* false: nothing is launched, and addresses mean nothing */
};

static inline void *packing_take(packing *arena, size_t bytes)
{
    const size_t at = arena->used;
    arena->used += (bytes + RG_SCRATCH_ALIGNMENT - 1) / RG_SCRATCH_ALIGNMENT * RG_SCRATCH_ALIGNMENT;
    return arena->run ? arena->scratch + at : NULL;
}

/* Whether what was found out needs scratch that is not there: a library that had no plan when work
 * was recorded, or another one, may have this one when it runs. */
static inline bool packing_lacks(const packing *plan)
{
    return plan->used > plan->place->scratch;
}

struct packed {
    void *data;        /* dense */
    rg_copy_args copy; /* between it and the tensor */
    bool copied;       /* it is not the tensor itself */
};

static inline void packed_copy(const packing *arena, packed *tensor, bool back)
{
    tensor->copy.to_host = !back; /* "host" is the dense side */
    if (arena->run && tensor->copied)
        rg_cuda_strided_copy(&tensor->copy, arena->place->stream);
}

/* A tensor of `rank` dimensions; `read`: its elements matter. */
static inline packed pack_tensor(packing *arena, const void *data, bool aligned, int32_t rank,
                                 const int64_t dims[], const int64_t strides[], int32_t element,
                                 bool read)
{
    packed tensor = {};
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
        tensor.data = tensor.copy.staging = packing_take(arena, bytes);
    if (read)
        packed_copy(arena, &tensor, false);
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
