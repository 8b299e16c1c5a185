/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Constants: as arrays that are folded, and as lists of numbers that take the place of attributes.
 */
#include "onnx/import.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <string.h>

/* Elements of a constant that is computed with, and of all of them. */
enum { MOST_FOLDED = 1 << 20, MOST_FOLDED_TOTAL = 1 << 24 };

bool rg_type_is_integer(int32_t type)
{
    return type != RG_ONNX_FLOAT && type != RG_ONNX_DOUBLE && type != RG_ONNX_FLOAT16 &&
           type != RG_ONNX_BFLOAT16;
}

bool rg_known_is_constant(const rg_known *known)
{
    return known->kind == RG_KNOWN_TENSOR || known->kind == RG_KNOWN_ARRAY;
}

rg_element rg_array_at(const rg_array *array, int64_t i)
{
    return array->data[array->uniform ? 0 : i];
}

rg_status rg_array_create(rg_import *m, int32_t type, int32_t rank, const int64_t dims[],
                          bool uniform, rg_array *array)
{
    *array = (rg_array){ .type = type, .rank = rank, .count = 1, .uniform = uniform };
    RG_CHECK(rg_onnx_type_size(type) > 0, RG_UNSUPPORTED, "constants of type %s are not folded",
             rg_onnx_type_name(type));
    int64_t most = 1; /* as if no dimension were 0: products of some of them do not overflow */
    for (int32_t d = 0; d < rank; d++) {
        array->dims[d] = dims[d];
        RG_CHECK(dims[d] >= 0, RG_MALFORMED, "a dimension is %lld", (long long)dims[d]);
        RG_CHECK(!__builtin_mul_overflow(most, dims[d] > 0 ? dims[d] : 1, &most) &&
                     most <= INT64_MAX / 16,
                 RG_MALFORMED, "a constant has more elements than memory can hold");
        array->count *= dims[d];
    }
    RG_CHECK(uniform || array->count <= MOST_FOLDED, RG_UNSUPPORTED,
             "a constant of %lld elements is not folded; %d is the most", (long long)array->count,
             MOST_FOLDED);
    m->folded += uniform ? 1 : array->count;
    RG_CHECK(m->folded <= MOST_FOLDED_TOTAL, RG_UNSUPPORTED,
             "more than %d elements of constants are not folded", MOST_FOLDED_TOTAL);
    return rg_arena_take(&m->network->arena, uniform ? 1 : (size_t)array->count,
                         sizeof array->data[0], &array->data);
}

/* An element as the file has it. */
static rg_element element_of(const void *data, int32_t type, int64_t i)
{
    rg_dtype dtype;
    rg_element e = { 0 };
    switch (type) {
    case RG_ONNX_INT8:
        e.i = ((const int8_t *)data)[i];
        break;
    case RG_ONNX_BOOL:
        e.i = ((const uint8_t *)data)[i] != 0;
        break;
    case RG_ONNX_INT16:
        e.i = ((const int16_t *)data)[i];
        break;
    case RG_ONNX_UINT16:
        e.i = ((const uint16_t *)data)[i];
        break;
    case RG_ONNX_UINT32:
        e.i = ((const uint32_t *)data)[i];
        break;
    case RG_ONNX_INT64:
    case RG_ONNX_UINT64:
        e.i = ((const int64_t *)data)[i];
        break;
    default:
        if (!rg_onnx_type_dtype(type, &dtype))
            break;
        e.f = rg_element_get(data, dtype, i);
        if (rg_type_is_integer(type))
            e.i = (int64_t)e.f;
        break;
    }
    return e;
}

static rg_status array_of_tensor(rg_import *m, const rg_proto_tensor *tensor, rg_array *array)
{
    void *data;
    size_t bytes;
    RG_TRY(rg_array_create(m, tensor->type, tensor->rank, tensor->dims, false, array));
    RG_TRY(rg_proto_elements(m->model, tensor, &data, &bytes));
    for (int64_t i = 0; i < array->count; i++)
        array->data[i] = element_of(data, tensor->type, i);
    rg_release(&rg_default_allocator, data, bytes);
    return RG_OK;
}

rg_status rg_known_array(rg_import *m, const rg_known *known, int32_t probe, const rg_array **array)
{
    if (known->array[probe] != NULL) {
        *array = known->array[probe];
        return RG_OK;
    }
    RG_CHECK(known->kind == RG_KNOWN_TENSOR, RG_UNSUPPORTED,
             "'%.80s' must be a constant, but it is computed from the inputs", known->name);
    rg_array *made = NULL;
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *made, &made));
    RG_TRY(array_of_tensor(m, known->tensor, made));
    *array = made;
    return RG_OK;
}

/* ---- lists ---- */

static rg_status check_list(const rg_known *known, const rg_array *array, int32_t most)
{
    RG_CHECK(array->rank <= 1, RG_MALFORMED, "'%.80s' has %d dimensions; it must have one",
             known->name, array->rank);
    RG_CHECK(array->count <= most, RG_UNSUPPORTED,
             "'%.80s' has %lld entries; at most %d are "
             "covered",
             known->name, (long long)array->count, most);
    return RG_OK;
}

rg_status rg_import_probe_ints(rg_import *m, const rg_proto_node *node, size_t input, int32_t probe,
                               int64_t values[], int32_t most, int32_t *count)
{
    rg_known *known = NULL;
    const rg_array *array = NULL;
    RG_TRY(rg_import_known(m, node, input, &known));
    RG_TRY(rg_known_array(m, known, probe, &array));
    RG_CHECK(rg_type_is_integer(array->type), RG_MALFORMED, "'%.80s' must hold integers",
             known->name);
    RG_TRY(check_list(known, array, most));
    *count = (int32_t)array->count;
    for (int32_t i = 0; i < *count; i++)
        values[i] = rg_array_at(array, i).i;
    return RG_OK;
}

rg_status rg_import_shape(rg_import *m, const rg_proto_node *node, size_t input,
                          int64_t dims[RG_PROBES][RG_MAX_RANK], int32_t *rank)
{
    int32_t other = 0;
    RG_TRY(rg_import_probe_ints(m, node, input, 0, dims[0], RG_MAX_RANK, rank));
    RG_TRY(rg_import_probe_ints(m, node, input, 1, dims[1], RG_MAX_RANK, &other));
    RG_CHECK(*rank == other, RG_UNSUPPORTED,
             "the number of dimensions depends on the size of the batch");
    return RG_OK;
}

rg_status rg_import_ints(rg_import *m, const rg_proto_node *node, size_t input, int64_t values[],
                         int32_t most, int32_t *count)
{
    int64_t other[64];
    int32_t other_count;
    most = most < 64 ? most : 64;
    RG_TRY(rg_import_probe_ints(m, node, input, 0, values, most, count));
    RG_TRY(rg_import_probe_ints(m, node, input, 1, other, most, &other_count));
    RG_CHECK(*count == other_count && memcmp(values, other, sizeof values[0] * (size_t)*count) == 0,
             RG_UNSUPPORTED, "input %zu depends on the size of the batch", input);
    return RG_OK;
}

rg_status rg_import_floats(rg_import *m, const rg_proto_node *node, size_t input, double values[],
                           int32_t most, int32_t *count)
{
    rg_known *known = NULL;
    const rg_array *arrays[RG_PROBES];
    RG_TRY(rg_import_known(m, node, input, &known));
    for (int32_t p = 0; p < RG_PROBES; p++) {
        RG_TRY(rg_known_array(m, known, p, &arrays[p]));
        RG_TRY(check_list(known, arrays[p], most));
        RG_CHECK(!rg_type_is_integer(arrays[p]->type), RG_MALFORMED,
                 "'%.80s' must hold floating-point numbers", known->name);
    }
    *count = (int32_t)arrays[0]->count;
    for (int32_t i = 0; i < *count; i++) {
        values[i] = rg_array_at(arrays[0], i).f;
        RG_CHECK(arrays[1]->count == *count && rg_array_at(arrays[1], i).f == values[i],
                 RG_UNSUPPORTED, "'%.80s' depends on the size of the batch", known->name);
    }
    return RG_OK;
}

rg_status rg_import_list(rg_import *m, const rg_proto_node *node, const char *attribute,
                         size_t input, int64_t values[], int32_t *count)
{
    *count = -1;
    if (rg_node_has(node, input))
        return rg_import_ints(m, node, input, values, RG_MAX_RANK, count);
    return rg_attribute_ints(node, attribute, values, RG_MAX_RANK, count);
}

bool rg_import_scalar(rg_import *m, const rg_proto_node *node, size_t input, double *number)
{
    rg_known *known = NULL;
    const rg_array *array = NULL;
    if (!rg_node_has(node, input) || rg_import_known(m, node, input, &known) != RG_OK)
        return false;
    if (!rg_known_is_constant(known) || known->trained || rg_type_is_integer(known->type) ||
        rg_shape_count(&known->shape[0]) != 1 || known->has_flow)
        return false;
    if (known->array[0] != known->array[1]) /* it depends on the batch, though it may be equal */
        return false;
    if (rg_known_array(m, known, 0, &array) != RG_OK)
        return false;
    *number = rg_array_at(array, 0).f;
    if (known->type == RG_ONNX_FLOAT && (double)(float)*number == *number)
        *number = rg_meant_constant((float)*number);
    return true;
}
