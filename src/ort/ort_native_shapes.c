/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Native nodes that put elements in their places: gradients of pooling, slices, gathered rows. */
#include "core/shape.h"
#include "operators/onnx_converters.h"
#include "ort/ort_launch.h"

#include <retrograde/slice.h>

#include <string.h>

/* ---- pooling ---- */

/* Reads a list of numbers for rows and columns; false: there are none for both. */
static bool read_two(const rg_onnx_node *node, const char *name, int32_t count, int64_t to[])
{
    int64_t values[RG_ONNX_VALUES];
    const int32_t given = rg_onnx_ints(node, name, values);
    for (int32_t i = 0; i < count && given == count; i++)
        to[i] = values[i];
    return given == count || given == 0;
}

/* Images with two dimensions, windows without dilation, explicit padding; anything else is the
 * ops': window[0] stays 0. */
rg_status rg_ort_prepare_pool(rg_ort_node *node, const rg_onnx_node *attributes)
{
    static const char *const policies[] = { "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", NULL };
    rg_ort_pool_args k = { .stride = { 1, 1 } };
    int64_t dilation[2] = { 1, 1 }, pads[4] = { 0 }, window[2] = { 0 };
    int32_t policy;
    RG_TRY(rg_onnx_word(attributes, "auto_pad", policies, &policy));
    const bool max = strcmp(attributes->type, "MaxPoolGrad") == 0;
    const bool plain = policy == 0 && read_two(attributes, "kernel_shape", 2, window) &&
                       read_two(attributes, "strides", 2, k.stride) &&
                       read_two(attributes, "dilations", 2, dilation) &&
                       read_two(attributes, "pads", 4, pads) && dilation[0] == 1 &&
                       dilation[1] == 1 && rg_onnx_int(attributes, "ceil_mode") == 0;
    node->shape_rank = rg_onnx_ints(attributes, "shape", node->shape);
    bool fits = plain;
    for (int32_t i = 0; i < 2; i++)
        fits = fits && window[i] >= 1 && k.stride[i] >= 1 && pads[i] >= 0 && pads[i + 2] >= 0 &&
               pads[i] < window[i] && pads[i + 2] < window[i];
    if (max)
        fits = fits && rg_onnx_int(attributes, "storage_order") == 0;
    else
        k.count_include_pad = rg_onnx_int(attributes, "count_include_pad") != 0;
    for (int32_t i = 0; i < 2 && fits; i++) {
        k.window[i] = window[i];
        k.before[i] = pads[i];
        node->after[i] = pads[i + 2];
    }
    node->pool = k;
    return RG_OK;
}

/* The shape of dX, from X or the attribute; false: the ops say what is missing or wrong. */
static bool pool_shape(const rg_ort_computation *c, int32_t x, rg_tensor_desc *dx)
{
    const rg_ort_node *node = c->k;
    const rg_tensor_desc *dy = &c->shapes[0];
    if (node->pool.window[0] == 0 || dy->rank != 4)
        return false;
    if (rg_ort_has(c, x))
        *dx = c->shapes[x];
    else if (node->shape_rank == 4)
        *dx = rg_tensor_desc_dense(dy->dtype, 4,
                                   (int64_t[]){ node->shape[0] < 0 ? dy->dims[0] : node->shape[0],
                                                node->shape[1], node->shape[2], node->shape[3] });
    else
        return false;
    if (dx->rank != 4 || dx->dims[0] != dy->dims[0] || dx->dims[1] != dy->dims[1] ||
        dx->dims[3] > RG_ORT_POOL_ROW)
        return false;
    for (int32_t i = 0; i < 2; i++) {
        const int64_t span = dx->dims[2 + i] + node->pool.before[i] + node->after[i];
        if (dx->dims[2 + i] < 0 || span < node->pool.window[i] ||
            (span - node->pool.window[i]) / node->pool.stride[i] + 1 != dy->dims[2 + i])
            return false;
    }
    return true;
}

static rg_status run_pool(rg_ort_computation *c, int32_t x, int32_t kernel, bool *done)
{
    rg_tensor_desc dx;
    const rg_dtype dtype = c->shapes[0].dtype;
    if ((dtype != RG_F32 && dtype != RG_F64) || !pool_shape(c, x, &dx))
        return RG_OK;
    if (kernel == RG_ORT_MAX_POOL && !rg_shape_same_dims(&c->shapes[0], &c->shapes[1]))
        return RG_OK;
    rg_ort_pool_args k = c->k->pool;
    uint32_t fault = 0;
    k.dy = c->data[0];
    k.indices = c->data[1];
    k.fault = &fault;
    for (int32_t i = 0; i < 2; i++) {
        k.in[i] = dx.dims[2 + i];
        k.out[i] = c->shapes[0].dims[2 + i];
    }
    RG_TRY(rg_ort_output(c, 0, &dx, &k.dx));
    *done = true;
    const rg_ort_launch launch = { .kernel = kernel,
                                   .args = &k,
                                   .size = sizeof k,
                                   .units = dx.dims[0] * dx.dims[1],
                                   .bytes = rg_ort_bytes(&dx, 2) };
    RG_TRY(rg_ort_run(c, &launch));
    RG_CHECK(fault == 0, RG_INVALID_ARGUMENT,
             "MaxPoolGrad: a number of Indices is outside of the image of its channel");
    return RG_OK;
}

rg_status rg_ort_run_max_pool(rg_ort_computation *c, bool *done)
{
    return run_pool(c, 2, RG_ORT_MAX_POOL, done);
}

rg_status rg_ort_run_average_pool(rg_ort_computation *c, bool *done)
{
    return run_pool(c, 1, RG_ORT_AVERAGE_POOL, done);
}

/* ---- slices ---- */

/* The numbers of an input; `count` of them, or `value` where it is absent. */
static bool numbers(const rg_ort_computation *c, int32_t input, int64_t count, int64_t to[])
{
    if (!rg_ort_has(c, input))
        return false;
    if (c->shapes[input].rank != 1 || c->shapes[input].dims[0] != count)
        return false;
    memcpy(to, c->data[input], (size_t)count * sizeof to[0]);
    return true;
}

/* The lists of numbers, as attributes of a node. */
static rg_status read_lists(rg_ort_computation *c, rg_attribute lists[5], int32_t *count)
{
    for (int32_t i = 1; i < 6; i++) {
        if (!rg_ort_has(c, i))
            continue;
        RG_CHECK(c->shapes[i].rank == 1 && c->shapes[i].dims[0] <= RG_ONNX_VALUES,
                 RG_INVALID_ARGUMENT, "SliceGrad: %s must be a list of at most %d numbers",
                 c->k->registered->inputs[i].name, RG_ONNX_VALUES);
        RG_TRY(rg_ort_widen(c, i, RG_I64));
        lists[(*count)++] = (rg_attribute){ .name = c->k->registered->inputs[i].name,
                                            .ints = c->data[i],
                                            .count = (int32_t)c->shapes[i].dims[0] };
    }
    return RG_OK;
}

/* Where the elements of dY come from: starts, steps and lengths as ONNX's Slice has them. */
static rg_status find_slice(rg_ort_computation *c, rg_ort_slice_args *k)
{
    rg_attribute lists[5];
    rg_onnx_node node = { .type = c->k->registered->entry->name,
                          .attributes = lists,
                          .inputs = c->shapes,
                          .input_count = 1,
                          .outputs = 1,
                          .entry = c->k->registered->entry };
    rg_onnx_call call;
    char text[RG_SHAPE_TEXT], wanted[RG_SHAPE_TEXT];
    call.gradient = true;
    RG_TRY(read_lists(c, lists, &node.attribute_count));
    RG_TRY(rg_onnx_slice_any(&node, &call, &k->down));
    const rg_slice_desc *d = (const rg_slice_desc *)(const void *)call.desc;
    memcpy(k->dims, c->data[1], (size_t)k->rank * sizeof k->dims[0]);
    memcpy(k->start, d->start, sizeof d->start);
    memcpy(k->step, d->step, sizeof d->step);
    memcpy(k->length, d->length, sizeof d->length);
    const rg_tensor_desc slice =
        rg_tensor_desc_dense(c->shapes[0].dtype, k->rank, (const int64_t *)d->length);
    RG_CHECK(rg_shape_same_dims(&slice, &c->shapes[0]), RG_INVALID_ARGUMENT,
             "SliceGrad: dY is %s, but the slice is %s", rg_shape_text(&c->shapes[0], text),
             rg_shape_text(&slice, wanted));
    return RG_OK;
}

rg_status rg_ort_run_slice(rg_ort_computation *c, bool *done)
{
    const rg_tensor_desc *dy = &c->shapes[0];
    rg_ort_slice_args k = { .dy = c->data[0], .rank = dy->rank };
    size_t bytes;
    RG_CHECK(dy->rank >= 1, RG_INVALID_ARGUMENT, "SliceGrad: dY must have a dimension at least");
    RG_TRY(find_slice(c, &k));
    const rg_tensor_desc dx = rg_tensor_desc_dense(dy->dtype, k.rank, k.dims);
    RG_TRY(rg_shape_check(&dx, "SliceGrad: dX", &bytes));
    RG_TRY(rg_ort_output(c, 0, &dx, &k.dx));
    *done = true;
    if (rg_shape_count(dy) == 0) { /* nothing has a place */
        memset(k.dx, 0, bytes);
        return RG_OK;
    }
    const rg_ort_launch launch = { .kernel = RG_ORT_SLICE,
                                   .args = &k,
                                   .size = sizeof k,
                                   .units = rg_ort_product(&dx, 0, k.rank - 1),
                                   .grain = 1 + 4096 / (k.dims[k.rank - 1] + 1),
                                   .bytes = rg_ort_bytes(&dx, 1) };
    return rg_ort_run(c, &launch);
}

/* ---- gathered rows ---- */

/* shape, indices, dY: dX has `shape`, and dY has the dimensions of the indices in the place of the
 * axis. */
rg_status rg_ort_run_gather(rg_ort_computation *c, bool *done)
{
    const rg_tensor_desc *indices = &c->shapes[1], *dy = &c->shapes[2];
    const int32_t rank = c->shapes[0].rank == 1 ? (int32_t)c->shapes[0].dims[0] : -1;
    int64_t dims[RG_MAX_RANK];
    char text[RG_SHAPE_TEXT];
    RG_CHECK(rank >= 1 && rank <= RG_MAX_RANK && numbers(c, 0, rank, dims), RG_INVALID_ARGUMENT,
             "GatherGrad: shape must be a list of 1 to %d dimensions", RG_MAX_RANK);
    RG_CHECK(c->k->axis >= -rank && c->k->axis < rank, RG_INVALID_ARGUMENT,
             "GatherGrad: axis is %lld, but dX has rank %d", (long long)c->k->axis, rank);
    const int32_t axis = (int32_t)(c->k->axis < 0 ? c->k->axis + rank : c->k->axis);
    bool fits = dy->rank == rank - 1 + indices->rank;
    for (int32_t d = 0; d < rank; d++)
        fits = fits && dims[d] >= 0 &&
               (d == axis || dims[d] == dy->dims[d < axis ? d : d - 1 + indices->rank]);
    for (int32_t d = 0; d < indices->rank; d++)
        fits = fits && indices->dims[d] == dy->dims[axis + d];
    RG_CHECK(fits, RG_INVALID_ARGUMENT, "GatherGrad: dY is %s, which shape and indices do not give",
             rg_shape_text(dy, text));
    const rg_tensor_desc dx = rg_tensor_desc_dense(dy->dtype, rank, dims);
    uint32_t fault = 0;
    RG_TRY(rg_ort_widen(c, 1, RG_I64));
    rg_ort_gather_args k = { .dy = c->data[2],
                             .indices = c->data[1],
                             .fault = &fault,
                             .rows = dims[axis],
                             .inner = rg_ort_product(&dx, axis + 1, rank),
                             .count = rg_shape_count(indices) };
    k.blocks = rg_ort_blocks(k.inner, RG_ORT_COLUMNS);
    RG_TRY(rg_ort_output(c, 0, &dx, &k.dx));
    *done = true;
    const rg_ort_launch launch = { .kernel = RG_ORT_GATHER,
                                   .args = &k,
                                   .size = sizeof k,
                                   .units = rg_ort_product(&dx, 0, axis) * k.blocks,
                                   .bytes = rg_ort_bytes(&dx, 2) + rg_ort_bytes(dy, 1) };
    RG_TRY(rg_ort_run(c, &launch));
    RG_CHECK(fault == 0, RG_INVALID_ARGUMENT,
             "GatherGrad: an index is outside of the %lld rows of dX", (long long)k.rows);
    return RG_OK;
}
