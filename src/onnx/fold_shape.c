/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Folding of operators that move elements: reshapes, slices, concatenation, gathering, ranges. */
#include "onnx/import.h"

#include <math.h>
#include <string.h>

/* The same elements in another shape. */
static rg_status with_dims(rg_import *m, const rg_array *x, int32_t rank, const int64_t dims[],
                           rg_array *y)
{
    RG_TRY(rg_array_create(m, x->type, rank, dims, true, y));
    RG_CHECK(y->count == x->count, RG_MALFORMED, "%lld elements do not become %lld",
             (long long)x->count, (long long)y->count);
    y->uniform = x->uniform;
    y->data = x->data;
    return RG_OK;
}

static rg_status list_of(const rg_proto_node *node, const char *attribute, const rg_array *x,
                         int64_t values[], int32_t *count)
{
    *count = -1;
    if (x == NULL)
        return rg_attribute_ints(node, attribute, values, RG_MAX_RANK, count);
    RG_CHECK(x->count <= RG_MAX_RANK && rg_type_is_integer(x->type), RG_MALFORMED,
             "'%s' is not a list of integers", attribute);
    *count = (int32_t)x->count;
    for (int32_t i = 0; i < *count; i++)
        values[i] = rg_array_at(x, i).i;
    return RG_OK;
}

static const rg_array *input_of(const rg_proto_node *node, const rg_array *const x[], size_t i)
{
    return i < node->input_count ? x[i] : NULL;
}

rg_status rg_fold_reshape(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                          rg_array *y)
{
    int64_t dims[RG_MAX_RANK], known = 1;
    int32_t rank, open = -1;
    bool keep_zero = false;
    RG_TRY(rg_attribute_bool(node, "allowzero", &keep_zero));
    RG_TRY(list_of(node, "shape", input_of(node, x, 1), dims, &rank));
    RG_CHECK(rank >= 0, RG_MALFORMED, "there is no shape");
    for (int32_t d = 0; d < rank; d++) {
        if (dims[d] == 0 && !keep_zero) {
            RG_CHECK(d < x[0]->rank, RG_MALFORMED, "entry %d of the shape is 0", d);
            dims[d] = x[0]->dims[d];
        }
        if (dims[d] == -1) {
            RG_CHECK(open < 0, RG_MALFORMED, "two entries of the shape are -1");
            open = d;
        } else {
            RG_CHECK(dims[d] >= 0 && !__builtin_mul_overflow(known, dims[d], &known), RG_MALFORMED,
                     "entry %d of the shape is %lld", d, (long long)dims[d]);
        }
    }
    if (open >= 0)
        dims[open] = known > 0 ? x[0]->count / known : 0;
    return with_dims(m, x[0], rank, dims, y);
}

rg_status rg_fold_flatten(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                          rg_array *y)
{
    int64_t axis = 1, dims[2] = { 1, 1 };
    RG_TRY(rg_attribute_int(node, "axis", &axis));
    RG_CHECK(axis >= -x[0]->rank && axis <= x[0]->rank, RG_MALFORMED, "attribute 'axis' is %lld",
             (long long)axis);
    axis += axis < 0 ? x[0]->rank : 0;
    for (int32_t d = 0; d < x[0]->rank; d++)
        dims[d >= axis] *= x[0]->dims[d];
    return with_dims(m, x[0], 2, dims, y);
}

rg_status rg_fold_squeeze(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                          rg_array *y)
{
    int64_t axes[RG_MAX_RANK], dims[RG_MAX_RANK];
    bool drop[RG_MAX_RANK] = { false };
    int32_t count, rank = 0;
    RG_TRY(list_of(node, "axes", input_of(node, x, 1), axes, &count));
    for (int32_t d = 0; d < x[0]->rank; d++)
        drop[d] = count < 0 && x[0]->dims[d] == 1;
    for (int32_t i = 0; i < count; i++) {
        int32_t axis = 0;
        RG_TRY(rg_axis("an entry of 'axes'", axes[i], x[0]->rank, &axis));
        drop[axis] = true;
    }
    for (int32_t d = 0; d < x[0]->rank; d++) {
        if (!drop[d])
            dims[rank++] = x[0]->dims[d];
    }
    return with_dims(m, x[0], rank, dims, y);
}

rg_status rg_fold_unsqueeze(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                            rg_array *y)
{
    int64_t axes[RG_MAX_RANK], dims[RG_MAX_RANK];
    bool added[RG_MAX_RANK] = { false };
    int32_t count, next = 0;
    RG_TRY(list_of(node, "axes", input_of(node, x, 1), axes, &count));
    const int32_t rank = x[0]->rank + count;
    RG_CHECK(count >= 0 && rank <= RG_MAX_RANK, RG_UNSUPPORTED, "it would have %d dimensions",
             rank);
    for (int32_t i = 0; i < count; i++) {
        int32_t axis = 0;
        RG_TRY(rg_axis("an entry of 'axes'", axes[i], rank, &axis));
        RG_CHECK(!added[axis], RG_MALFORMED, "'axes' has %d twice", axis);
        added[axis] = true;
    }
    for (int32_t d = 0; d < rank; d++)
        dims[d] = added[d] ? 1 : x[0]->dims[next++];
    return with_dims(m, x[0], rank, dims, y);
}

/* Element (i, j, …) of y is element start + (i, j, …) stride of x. */
static void copy_strided(const rg_array *x, int64_t start, const int64_t strides[], rg_array *y)
{
    for (int64_t i = 0; i < y->count; i++) {
        int64_t rest = i, at = start;
        for (int32_t d = y->rank - 1; d >= 0; d--) {
            at += rest % y->dims[d] * strides[d];
            rest /= y->dims[d];
        }
        y->data[i] = rg_array_at(x, at);
    }
}

static void dense_strides(const rg_array *x, int64_t strides[])
{
    int64_t stride = 1;
    for (int32_t d = x->rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= x->dims[d];
    }
}

rg_status rg_fold_transpose(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                            rg_array *y)
{
    int64_t order[RG_MAX_RANK], dims[RG_MAX_RANK], own[RG_MAX_RANK], strides[RG_MAX_RANK];
    const int32_t rank = x[0]->rank;
    int32_t count = rank;
    uint32_t seen = 0;
    for (int32_t d = 0; d < rank; d++)
        order[d] = rank - 1 - d;
    RG_TRY(rg_attribute_ints(node, "perm", order, RG_MAX_RANK, &count));
    dense_strides(x[0], own);
    for (int32_t d = 0; d < rank; d++) {
        RG_CHECK(count == rank && order[d] >= 0 && order[d] < rank && (seen >> order[d] & 1) == 0,
                 RG_MALFORMED, "attribute 'perm' is not an order of %d dimensions", rank);
        seen |= 1U << order[d];
        dims[d] = x[0]->dims[order[d]];
        strides[d] = own[order[d]];
    }
    RG_TRY(rg_array_create(m, x[0]->type, rank, dims, false, y));
    copy_strided(x[0], 0, strides, y);
    return RG_OK;
}

rg_status rg_fold_concat(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                         rg_array *y)
{
    int64_t axis = 0, dims[RG_MAX_RANK], before = 1, after = 1, at = 0;
    int32_t along;
    RG_TRY(rg_attribute_int(node, "axis", &axis));
    RG_CHECK(x[0] != NULL, RG_MALFORMED, "input 0 is not given");
    RG_TRY(rg_axis("attribute 'axis'", axis, x[0]->rank, &along));
    memcpy(dims, x[0]->dims, sizeof dims);
    dims[along] = 0;
    for (size_t i = 0; i < node->input_count; i++) {
        RG_CHECK(x[i] != NULL && x[i]->rank == x[0]->rank && x[i]->type == x[0]->type, RG_MALFORMED,
                 "input %zu does not match input 0", i);
        for (int32_t d = 0; d < x[0]->rank; d++)
            RG_CHECK(d == along || x[i]->dims[d] == x[0]->dims[d], RG_MALFORMED,
                     "input %zu does not match input 0", i);
        dims[along] += x[i]->dims[along];
    }
    RG_TRY(rg_array_create(m, x[0]->type, x[0]->rank, dims, false, y));
    for (int32_t d = 0; d < y->rank; d++)
        *(d < along ? &before : &after) *= d == along ? 1 : dims[d];
    for (int64_t b = 0; b < before; b++) {
        for (size_t i = 0; i < node->input_count; i++) {
            const int64_t length = x[i]->dims[along] * after;
            for (int64_t k = 0; k < length; k++)
                y->data[at++] = rg_array_at(x[i], b * length + k);
        }
    }
    return RG_OK;
}

void rg_slice_range(int64_t length, int64_t step, int64_t *start, int64_t end, int64_t *count)
{
    int64_t first = *start < -length ? -length - 1 : *start > length ? length : *start;
    int64_t last = end < -length ? -length - 1 : end > length ? length : end;
    first += first < 0 ? length : 0;
    last += last < 0 ? length : 0;
    if (step > 0) {
        first = first < 0 ? 0 : first;
        *count = last > first ? (last - first - 1) / step + 1 : 0;
    } else {
        first = first < 0 ? -1 : first > length - 1 ? length - 1 : first;
        last = last < -1 ? -1 : last;
        *count = first > last ? (first - last - 1) / -step + 1 : 0;
    }
    *start = *count > 0 ? first : 0;
}

rg_status rg_fold_slice(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                        rg_array *y)
{
    int64_t starts[RG_MAX_RANK], ends[RG_MAX_RANK], axes[RG_MAX_RANK], steps[RG_MAX_RANK];
    int64_t dims[RG_MAX_RANK], strides[RG_MAX_RANK], start = 0;
    int32_t count, end_count, axis_count, step_count;
    RG_TRY(list_of(node, "starts", input_of(node, x, 1), starts, &count));
    RG_TRY(list_of(node, "ends", input_of(node, x, 2), ends, &end_count));
    RG_TRY(list_of(node, "axes", input_of(node, x, 3), axes, &axis_count));
    RG_TRY(list_of(node, "steps", input_of(node, x, 4), steps, &step_count));
    RG_CHECK(count >= 0 && end_count == count && (axis_count < 0 || axis_count == count) &&
                 (step_count < 0 || step_count == count),
             RG_MALFORMED, "starts, ends, axes and steps are not of one length");
    memcpy(dims, x[0]->dims, sizeof dims);
    dense_strides(x[0], strides);
    uint32_t seen = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t axis = 0;
        const int64_t step = step_count < 0 ? 1 : steps[i];
        RG_TRY(rg_axis("an axis", axis_count < 0 ? i : axes[i], x[0]->rank, &axis));
        RG_CHECK((seen >> axis & 1) == 0, RG_MALFORMED, "'axes' has %d twice", axis);
        seen |= 1U << axis;
        RG_CHECK(step != 0 && step != INT64_MIN, RG_MALFORMED, "a step is 0");
        rg_slice_range(x[0]->dims[axis], step, &starts[i], ends[i], &dims[axis]);
        start += starts[i] * strides[axis];
        strides[axis] *= dims[axis] > 1 ? step : 1;
    }
    RG_TRY(rg_array_create(m, x[0]->type, x[0]->rank, dims, false, y));
    copy_strided(x[0], start, strides, y);
    return RG_OK;
}

rg_status rg_fold_gather(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                         rg_array *y)
{
    int64_t axis = 0, dims[RG_MAX_RANK], after = 1;
    int32_t along, rank = 0;
    RG_TRY(rg_attribute_int(node, "axis", &axis));
    RG_CHECK(x[0] != NULL && x[1] != NULL && rg_type_is_integer(x[1]->type), RG_MALFORMED,
             "input 1 does not hold integers");
    RG_TRY(rg_axis("attribute 'axis'", axis, x[0]->rank, &along));
    RG_CHECK(x[0]->rank + x[1]->rank - 1 <= RG_MAX_RANK, RG_UNSUPPORTED,
             "it would have more than %d dimensions", RG_MAX_RANK);
    for (int32_t d = 0; d < along; d++)
        dims[rank++] = x[0]->dims[d];
    for (int32_t d = 0; d < x[1]->rank; d++)
        dims[rank++] = x[1]->dims[d];
    for (int32_t d = along + 1; d < x[0]->rank; d++) {
        dims[rank++] = x[0]->dims[d];
        after *= x[0]->dims[d];
    }
    RG_TRY(rg_array_create(m, x[0]->type, rank, dims, false, y));
    const int64_t length = x[0]->dims[along];
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t block = i / after;
        int64_t index = rg_array_at(x[1], block % x[1]->count).i;
        RG_CHECK(index >= -length && index < length, RG_MALFORMED,
                 "index %lld is out of range for %lld elements", (long long)index,
                 (long long)length);
        index += index < 0 ? length : 0;
        y->data[i] = rg_array_at(x[0], (block / x[1]->count * length + index) * after + i % after);
    }
    return RG_OK;
}

rg_status rg_fold_range(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                        rg_array *y)
{
    (void)node;
    for (int i = 0; i < 3; i++)
        RG_CHECK(x[i] != NULL && x[i]->count == 1 && x[i]->type == x[0]->type, RG_MALFORMED,
                 "input %d is not a number of the same type", i);
    const bool integer = rg_type_is_integer(x[0]->type);
    double numbers[3];
    for (int i = 0; i < 3; i++)
        numbers[i] = integer ? (double)rg_array_at(x[i], 0).i : rg_array_at(x[i], 0).f;
    const double count = ceil((numbers[1] - numbers[0]) / numbers[2]);
    RG_CHECK(count <= 1 << 20, RG_UNSUPPORTED, "it has more than %d elements", 1 << 20);
    const int64_t length = count > 0 ? (int64_t)count : 0;
    RG_TRY(rg_array_create(m, x[0]->type, 1, &length, false, y));
    for (int64_t i = 0; i < length; i++) {
        if (integer)
            y->data[i].i = (int64_t)((uint64_t)rg_array_at(x[0], 0).i +
                                     (uint64_t)i * (uint64_t)rg_array_at(x[2], 0).i);
        else
            y->data[i].f = numbers[0] + (double)i * numbers[2];
    }
    return RG_OK;
}

rg_status rg_fold_constant_of_shape(rg_import *m, const rg_proto_node *node,
                                    const rg_array *const x[], rg_array *y)
{
    int64_t dims[RG_MAX_RANK];
    const rg_proto_attribute *value = rg_attribute_find(node, "value");
    RG_CHECK(x[0]->rank == 1 && x[0]->count <= RG_MAX_RANK && rg_type_is_integer(x[0]->type),
             RG_MALFORMED, "input 0 is not a shape of at most %d dimensions", RG_MAX_RANK);
    for (int32_t d = 0; d < x[0]->count; d++)
        dims[d] = rg_array_at(x[0], d).i;
    int32_t type = RG_ONNX_FLOAT;
    rg_element number = { .f = 0 };
    if (value != NULL) {
        const rg_array *array = NULL;
        RG_CHECK(value->type == RG_PROTO_TENSOR && value->tensor->count == 1, RG_MALFORMED,
                 "attribute 'value' must be a tensor of one element");
        const rg_known known = { .kind = RG_KNOWN_TENSOR, .tensor = value->tensor };
        RG_TRY(rg_known_array(m, &known, 0, &array));
        type = array->type;
        number = array->data[0];
    }
    RG_TRY(rg_array_create(m, type, (int32_t)x[0]->count, dims, true, y));
    y->data[0] = number;
    return RG_OK;
}

/* ReduceProd and ReduceSum of integers, over all elements. */
rg_status rg_fold_reduce(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                         rg_array *y)
{
    bool keep = true;
    const bool product = strcmp(node->type, "ReduceProd") == 0;
    int64_t ones[RG_MAX_RANK] = { 1, 1, 1, 1, 1, 1, 1, 1 }, result = product;
    RG_TRY(rg_attribute_bool(node, "keepdims", &keep));
    RG_CHECK(rg_type_is_integer(x[0]->type) && x[0]->rank <= 1 && x[0]->count <= 1 << 16,
             RG_UNSUPPORTED, "constants other than lists of integers are not folded");
    RG_TRY(rg_array_create(m, x[0]->type, keep ? x[0]->rank : 0, ones, false, y));
    for (int64_t i = 0; i < x[0]->count; i++) {
        const int64_t e = rg_array_at(x[0], i).i;
        RG_CHECK(product ? !__builtin_mul_overflow(result, e, &result)
                         : !__builtin_add_overflow(result, e, &result),
                 RG_MALFORMED, "an integer overflows");
    }
    y->data[0].i = result;
    return RG_OK;
}
