/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Overlap between the images of a batch: sorted by address, only neighbours need a closer look. */
#include "runtime/batch_overlap.h"

#include <stdlib.h>

/* Temporaries that have no address yet are ordered by their offset in the heap, before all
 * others. */
static bool has_address(const rg_tensor *tensor)
{
    return tensor->storage->submission == NULL;
}

static uintptr_t begin_of(const rg_tensor *tensor)
{
    const rg_storage *storage = tensor->storage;
    const uintptr_t base = has_address(tensor) ? (uintptr_t)storage->data : storage->offset;
    return base + tensor->offset;
}

static uintptr_t end_of(const rg_tensor *tensor)
{
    int64_t last = 0;
    for (int32_t d = 0; d < tensor->desc.rank; d++)
        last += (tensor->desc.dims[d] - 1) * tensor->desc.strides[d];
    return begin_of(tensor) + (uintptr_t)(last + 1) * rg_dtype_size(tensor->desc.dtype);
}

static int compare(const void *a, const void *b)
{
    const rg_tensor *x = ((const rg_access *)a)->tensor, *y = ((const rg_access *)b)->tensor;
    if (has_address(x) != has_address(y))
        return has_address(x) ? 1 : -1;
    if (begin_of(x) != begin_of(y))
        return begin_of(x) < begin_of(y) ? -1 : 1;
    const rg_access *p = a, *q = b; /* the same tensors are adjacent */
    if (x != y)
        return (uintptr_t)x < (uintptr_t)y ? -1 : 1;
    if (p->written != q->written)
        return p->written ? 1 : -1;
    return p->image < q->image ? -1 : p->image > q->image;
}

static bool same_use(const rg_access *a, const rg_access *b)
{
    return a->tensor == b->tensor && a->written == b->written;
}

/* Of a tensor that many images use alike, such as a learning rate, keeps the accesses of the first
 * and the last image: if these do not collide with another access, the others do not either. */
static size_t drop_repeats(rg_access accesses[], size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const bool between = kept > 0 && same_use(&accesses[kept - 1], &accesses[i]) && kept > 1 &&
                             same_use(&accesses[kept - 2], &accesses[i]);
        kept -= between;
        accesses[kept++] = accesses[i];
    }
    return kept;
}

static bool collide(const rg_access *a, const rg_access *b, bool summed)
{
    if (a->image == b->image || !(a->written || b->written))
        return false;
    if (!has_address(a->tensor) && a->tensor->storage != b->tensor->storage)
        return false; /* ranges of the heap never overlap while both are in use */
    if (summed && a->tensor == b->tensor && a->written && b->written)
        return false;
    return rg_shape_overlaps(&a->tensor->desc, &b->tensor->desc,
                             (int64_t)(begin_of(b->tensor) - begin_of(a->tensor)));
}

rg_status rg_accesses_check_overlap(rg_access accesses[], size_t count, bool summed,
                                    const char *who)
{
    qsort(accesses, count, sizeof accesses[0], compare);
    count = drop_repeats(accesses, count);
    for (size_t i = 0; i < count; i++) {
        if (rg_shape_count(&accesses[i].tensor->desc) == 0)
            continue;
        const uintptr_t end = end_of(accesses[i].tensor);
        for (size_t k = i + 1; k < count && begin_of(accesses[k].tensor) < end &&
                               has_address(accesses[k].tensor) == has_address(accesses[i].tensor);
             k++) {
            const int64_t a = accesses[i].image, b = accesses[k].image;
            RG_CHECK(!collide(&accesses[i], &accesses[k], summed), RG_INVALID_ARGUMENT,
                     "%s: an output overlaps a tensor of another image (images %lld and %lld)", who,
                     (long long)(a < b ? a : b), (long long)(a < b ? b : a));
        }
    }
    return RG_OK;
}
