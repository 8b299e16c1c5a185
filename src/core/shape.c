/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Shapes: checked sizes and exact overlap tests. */
#include "core/shape.h"
#include "core/dtype.h"
#include "core/private_api.h"

#include <stdio.h>

rg_tensor_desc rg_tensor_desc_dense(rg_dtype dtype, int32_t rank, const int64_t dims[])
{
    rg_tensor_desc desc = { .dtype = dtype, .rank = rank };
    if (rank > 0 && dims == NULL)
        desc.rank = -1;
    if (desc.rank < 0 || rank > RG_MAX_RANK)
        return desc; /* refused where it is used */
    int64_t stride = 1;
    for (int32_t d = rank - 1; d >= 0; d--) {
        desc.dims[d] = dims[d];
        desc.strides[d] = stride;
        if (__builtin_mul_overflow(stride, dims[d] > 0 ? dims[d] : 1, &stride))
            stride = INT64_MAX;
    }
    return desc;
}

/* Far more than any memory, and so little that the bytes of all tensors of a call can be added up.
 */
static const int64_t MOST_BYTES = INT64_C(1) << 56;

RG_PRIVATE_API rg_status rg_shape_check(const rg_tensor_desc *desc, const char *who, size_t *bytes)
{
    const size_t element = rg_dtype_size(desc->dtype);
    RG_CHECK(element > 0, RG_INVALID_ARGUMENT, "%s: unknown dtype %d", who, (int)desc->dtype);
    RG_CHECK(desc->rank >= 0 && desc->rank <= RG_MAX_RANK, RG_INVALID_ARGUMENT,
             "%s: the rank is %d; it must be between 0 and %d", who, desc->rank, RG_MAX_RANK);
    bool empty = false, fits = true;
    int64_t last = 0, count = 1; /* index of the last element; elements */
    for (int32_t d = 0; d < desc->rank; d++) {
        const int64_t size = desc->dims[d], stride = desc->strides[d];
        RG_CHECK(size >= 0, RG_INVALID_ARGUMENT, "%s: dimension %d is %lld; it must be at least 0",
                 who, d, (long long)size);
        RG_CHECK(stride >= 0, RG_INVALID_ARGUMENT, "%s: stride %d is %lld; it must be at least 0",
                 who, d, (long long)stride);
        int64_t step;
        empty |= size == 0;
        fits &= !__builtin_mul_overflow(size > 0 ? size - 1 : 0, stride, &step);
        fits &= !__builtin_add_overflow(last, step, &last);
        fits &= !__builtin_mul_overflow(count, size > 0 ? size : 1, &count);
    }
    int64_t extent = 0, all = 0;
    fits &= !__builtin_add_overflow(last, 1, &last);
    fits &= !__builtin_mul_overflow(last, (int64_t)element, &extent);
    fits &= !__builtin_mul_overflow(count, (int64_t)element, &all);
    fits &= extent <= MOST_BYTES && all <= MOST_BYTES;
    char text[RG_SHAPE_TEXT];
    RG_CHECK(fits, RG_INVALID_ARGUMENT, "%s: the size of %s in bytes overflows", who,
             rg_shape_text(desc, text));
    if (bytes != NULL)
        *bytes = empty ? 0 : (size_t)extent;
    return RG_OK;
}

void rg_shape_normalize(rg_tensor_desc *desc)
{
    int64_t next = 1;
    for (int32_t d = desc->rank - 1; d >= 0; d--) {
        const int64_t size = desc->dims[d];
        if (size <= 1)
            desc->strides[d] = next;
        next = (size > 1 ? size : 1) * desc->strides[d]; /* no more than twice what is checked */
    }
}

RG_PRIVATE_API int64_t rg_shape_count(const rg_tensor_desc *desc)
{
    int64_t count = 1;
    for (int32_t d = 0; d < desc->rank; d++)
        count *= desc->dims[d];
    return count;
}

RG_PRIVATE_API bool rg_shape_same_dims(const rg_tensor_desc *a, const rg_tensor_desc *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

bool rg_shape_same(const rg_tensor_desc *a, const rg_tensor_desc *b)
{
    bool same = a->dtype == b->dtype && rg_shape_same_dims(a, b);
    for (int32_t d = 0; d < a->rank && same; d++)
        same = a->strides[d] == b->strides[d] || a->dims[d] <= 1; /* one index: no step is made */
    return same;
}

bool rg_shape_is_dense(const rg_tensor_desc *desc)
{
    int64_t stride = 1;
    for (int32_t d = desc->rank - 1; d >= 0; d--) {
        if (desc->dims[d] != 1 && desc->strides[d] != stride)
            return false;
        stride *= desc->dims[d];
    }
    return true;
}

/* The dimensions along which a step moves, largest stride first. Offsets between an element of
 * one tensor and an element of another are the sums of d_k * stride_k with -down_k <= d_k <=
 * up_k. */
typedef struct box {
    int rank;
    int64_t stride[RG_MAX_RANK], down[RG_MAX_RANK], up[RG_MAX_RANK];
    int64_t below[RG_MAX_RANK + 1], above[RG_MAX_RANK + 1]; /* how far k and later can get */
} box;

/* Both have one rank, and equal strides where both have more than one index. */
static box box_of(const rg_tensor_desc *a, const rg_tensor_desc *b)
{
    box x = { .rank = 0 };
    for (int32_t d = 0; d < a->rank; d++) {
        if (a->dims[d] <= 1 && b->dims[d] <= 1)
            continue;
        const int64_t stride = a->dims[d] > 1 ? a->strides[d] : b->strides[d];
        int k = x.rank++;
        for (; k > 0 && x.stride[k - 1] < stride; k--) {
            x.stride[k] = x.stride[k - 1];
            x.down[k] = x.down[k - 1];
            x.up[k] = x.up[k - 1];
        }
        x.stride[k] = stride;
        x.down[k] = b->dims[d] - 1;
        x.up[k] = a->dims[d] - 1;
    }
    for (int k = x.rank - 1; k >= 0; k--) {
        x.below[k] = x.below[k + 1] + x.down[k] * x.stride[k];
        x.above[k] = x.above[k + 1] + x.up[k] * x.stride[k];
    }
    return x;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Whether dimensions k and later can make `offset`. In layouts without self-overlap at most two
 * values of d_k are in question; `budget` bounds the work for others, which then count as
 * overlapping. `moved`: whether a d before k was other than 0; a way that never moves does not
 * count. */
static bool box_makes(const box *b, int k, int64_t offset, bool moved, int *budget)
{
    if (--*budget < 0)
        return true;
    if (k == b->rank)
        return offset == 0 && moved;
    const int64_t stride = b->stride[k];
    if (stride == 0) /* and so are all later ones: any movement will do */
        return offset == 0;
    int64_t low = -floor_divide(b->above[k + 1] - offset, stride);
    int64_t high = floor_divide(offset + b->below[k + 1], stride);
    low = low < -b->down[k] ? -b->down[k] : low;
    high = high > b->up[k] ? b->up[k] : high;
    for (int64_t d = low; d <= high; d++) {
        if (box_makes(b, k + 1, offset - d * stride, moved || d != 0, budget))
            return true;
    }
    return false;
}

bool rg_shape_overlaps_itself(const rg_tensor_desc *desc)
{
    if (rg_shape_count(desc) == 0)
        return false;
    const box b = box_of(desc, desc);
    int budget = 4096;
    return box_makes(&b, 0, 0, false, &budget);
}

static int64_t
extent(const rg_tensor_desc *desc) /* bytes from first to last element, both included */
{
    int64_t last = 0;
    for (int32_t d = 0; d < desc->rank; d++)
        last += (desc->dims[d] - 1) * desc->strides[d];
    return (last + 1) * (int64_t)rg_dtype_size(desc->dtype);
}

static bool same_steps(const rg_tensor_desc *a, const rg_tensor_desc *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int32_t d = 0; d < a->rank && same; d++)
        same = a->strides[d] == b->strides[d] || a->dims[d] == 1 || b->dims[d] == 1;
    return same;
}

bool rg_shape_overlaps(const rg_tensor_desc *a, const rg_tensor_desc *b, int64_t distance)
{
    if (rg_shape_count(a) == 0 || rg_shape_count(b) == 0)
        return false;
    if (distance >= extent(a) || -distance >= extent(b))
        return false;
    const int64_t element = (int64_t)rg_dtype_size(a->dtype);
    if (!same_steps(a, b) || distance % element != 0)
        return true;
    const box both = box_of(a, b);
    int budget = 4096;
    return box_makes(&both, 0, distance / element, true, &budget);
}

RG_PRIVATE_API const char *rg_shape_text(const rg_tensor_desc *desc, char *text)
{
    int used = snprintf(text, RG_SHAPE_TEXT, "%s[", rg_dtype_name(desc->dtype));
    for (int32_t d = 0; d < desc->rank && d < RG_MAX_RANK && used < RG_SHAPE_TEXT - 2; d++)
        used += snprintf(text + used, (size_t)(RG_SHAPE_TEXT - used), "%s%lld", d > 0 ? ", " : "",
                         (long long)desc->dims[d]);
    if (used < RG_SHAPE_TEXT - 1)
        snprintf(text + used, (size_t)(RG_SHAPE_TEXT - used), "]");
    return text;
}
