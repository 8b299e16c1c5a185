/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Views: slice, permute, reshape, expand. */
#include "runtime/objects.h"

static rg_status check_source(const rg_tensor *tensor, const char *who)
{
    RG_CHECK(tensor != NULL, RG_INVALID_ARGUMENT, "%s: tensor is NULL", who);
    RG_CHECK(tensor->commands == 0 || tensor->read_count > 0, RG_INVALID_STATE,
             "%s: the tensor is a temporary that is already released: its read count is 0", who);
    return RG_OK;
}

static rg_status make_view(rg_tensor *tensor, const rg_tensor_desc *desc, int64_t first,
                           rg_tensor **view)
{
    rg_tensor *made;
    RG_TRY(rg_tensor_make(tensor->device, desc, &made));
    made->storage = rg_storage_retain(tensor->storage);
    made->offset = tensor->offset + (size_t)first * rg_dtype_size(desc->dtype);
    made->is_view = true;
    if (tensor->commands != 0) {
        made->commands = tensor->commands;
        made->read_count = 1;
        made->parent = tensor;
        tensor->refs++;
    }
    *view = made;
    return RG_OK;
}

rg_status rg_tensor_slice(rg_tensor *tensor, const int64_t start[], const int64_t length[],
                          const int64_t step[], rg_tensor **view)
{
    RG_CHECK_NOT_NULL(view);
    *view = NULL;
    RG_TRY(check_source(tensor, "rg_tensor_slice"));
    rg_tensor_desc desc = tensor->desc;
    RG_CHECK(desc.rank == 0 || (start != NULL && length != NULL), RG_INVALID_ARGUMENT,
             "rg_tensor_slice: start or length is NULL");
    int64_t first = 0;
    for (int32_t d = 0; d < desc.rank; d++) {
        const int64_t size = desc.dims[d], by = step != NULL ? step[d] : 1;
        RG_CHECK(by >= 1, RG_INVALID_ARGUMENT,
                 "rg_tensor_slice: step %d is %lld; it must be at least 1", d, (long long)by);
        const bool inside =
            start[d] >= 0 && length[d] >= 0 && start[d] <= size &&
            (length[d] == 0 || (start[d] < size && length[d] - 1 <= (size - 1 - start[d]) / by));
        RG_CHECK(inside, RG_INVALID_ARGUMENT,
                 "rg_tensor_slice: %lld elements from %lld with step %lld exceed dimension %d of "
                 "length %lld",
                 (long long)length[d], (long long)start[d], (long long)by, d, (long long)size);
        first += length[d] > 0 ? start[d] * desc.strides[d] : 0;
        desc.dims[d] = length[d];
        desc.strides[d] = length[d] > 1 ? desc.strides[d] * by : desc.strides[d];
    }
    return make_view(tensor, &desc, rg_shape_count(&desc) > 0 ? first : 0, view);
}

rg_status rg_tensor_permute(rg_tensor *tensor, const int32_t order[], rg_tensor **view)
{
    RG_CHECK_NOT_NULL(view);
    *view = NULL;
    RG_TRY(check_source(tensor, "rg_tensor_permute"));
    rg_tensor_desc desc = tensor->desc;
    RG_CHECK(desc.rank == 0 || order != NULL, RG_INVALID_ARGUMENT,
             "rg_tensor_permute: order is NULL");
    uint32_t taken = 0;
    for (int32_t d = 0; d < desc.rank; d++) {
        const int32_t from = order[d];
        RG_CHECK(
            from >= 0 && from < desc.rank && !(taken >> from & 1), RG_INVALID_ARGUMENT,
            "rg_tensor_permute: entry %d is %d; each number from 0 to %d must appear exactly once",
            d, from, desc.rank - 1);
        taken |= 1u << from;
        desc.dims[d] = tensor->desc.dims[from];
        desc.strides[d] = tensor->desc.strides[from];
    }
    return make_view(tensor, &desc, 0, view);
}

/* Gives the dimensions of `desc` strides under which they run through the elements of `from` in
 * its order. Walks both shapes from the last dimension: each contiguous group of old dimensions
 * must have as many elements as a group of new ones. */
static bool find_strides(const rg_tensor_desc *from, rg_tensor_desc *desc)
{
    int32_t old = from->rank - 1, new = desc->rank - 1;
    while (new >= 0) {
        while (old >= 0 && from->dims[old] == 1)
            old--;
        if (desc->dims[new] == 1 || old < 0) {
            desc->strides[new] = 1;
            new --;
            continue;
        }
        const int64_t stride = from->strides[old];
        int64_t run = from->dims[old--];
        while (old >= 0 && (from->dims[old] == 1 || from->strides[old] == stride * run)) {
            run *= from->dims[old];
            old--;
        }
        int64_t inner = 1;
        while (new >= 0 && run % (inner * desc->dims[new]) == 0) {
            desc->strides[new] = stride * inner;
            inner *= desc->dims[new --];
            if (inner == run)
                break;
        }
        if (inner != run)
            return false;
    }
    return true;
}

rg_status rg_tensor_reshape(rg_tensor *tensor, int32_t rank, const int64_t dims[], rg_tensor **view)
{
    RG_CHECK_NOT_NULL(view);
    *view = NULL;
    RG_TRY(check_source(tensor, "rg_tensor_reshape"));
    RG_CHECK(rank == 0 || dims != NULL, RG_INVALID_ARGUMENT, "rg_tensor_reshape: dims is NULL");
    rg_tensor_desc desc = rg_tensor_desc_dense(tensor->desc.dtype, rank, dims);
    RG_TRY(rg_shape_check(&desc, "rg_tensor_reshape", NULL));
    char from[RG_SHAPE_TEXT], to[RG_SHAPE_TEXT];
    const int64_t count = rg_shape_count(&desc);
    RG_CHECK(count == rg_shape_count(&tensor->desc), RG_INVALID_ARGUMENT,
             "rg_tensor_reshape: %s and %s have different numbers of elements",
             rg_shape_text(&tensor->desc, from), rg_shape_text(&desc, to));
    RG_CHECK(count == 0 || find_strides(&tensor->desc, &desc), RG_INVALID_ARGUMENT,
             "rg_tensor_reshape: the strides of %s cannot be viewed as %s without a copy",
             rg_shape_text(&tensor->desc, from), rg_shape_text(&desc, to));
    return make_view(tensor, &desc, 0, view);
}

rg_status rg_tensor_expand(rg_tensor *tensor, int32_t rank, const int64_t dims[], rg_tensor **view)
{
    RG_CHECK_NOT_NULL(view);
    *view = NULL;
    RG_TRY(check_source(tensor, "rg_tensor_expand"));
    RG_CHECK(rank == 0 || dims != NULL, RG_INVALID_ARGUMENT, "rg_tensor_expand: dims is NULL");
    rg_tensor_desc desc = rg_tensor_desc_dense(tensor->desc.dtype, rank, dims);
    RG_TRY(rg_shape_check(&desc, "rg_tensor_expand", NULL));
    char from[RG_SHAPE_TEXT], to[RG_SHAPE_TEXT];
    bool fits = rank >= tensor->desc.rank;
    for (int32_t d = 0; d < rank && fits; d++) {
        const int32_t old = d - (rank - tensor->desc.rank);
        const int64_t size = old >= 0 ? tensor->desc.dims[old] : 1;
        desc.strides[d] = old >= 0 && size == dims[d] ? tensor->desc.strides[old] : 0;
        fits = size == dims[d] || size == 1;
    }
    RG_CHECK(fits, RG_INVALID_ARGUMENT, "rg_tensor_expand: %s cannot be expanded to %s",
             rg_shape_text(&tensor->desc, from), rg_shape_text(&desc, to));
    return make_view(tensor, &desc, 0, view);
}
