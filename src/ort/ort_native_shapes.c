/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Native nodes that put elements in their places: gradients of pooling, slices, gathered rows. */
#include "core/shape.h"
#include "operators/onnx_converters.h"
#include "ort/ort_launch.h"

#include <retrograde/slice.h>

#include <string.h>

/* ---- pooling ---- */

/* Reads a list of `count` numbers; false: it has others. */
static bool read_list(const rg_onnx_node *node, const char *name, int32_t count, int64_t to[])
{
    int64_t values[RG_ONNX_VALUES];
    const int32_t given = rg_onnx_ints(node, name, values);
    for (int32_t i = 0; i < count && given == count; i++)
        to[i] = values[i];
    return given == count || given == 0;
}

/* One to three dimensions, windows without dilation, explicit padding; anything else is the ops':
 * window[2] stays 0. */
rg_status rg_ort_prepare_pool(rg_ort_node *node, const rg_onnx_node *attributes)
{
    static const char *const policies[] = { "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", NULL };
    rg_ort_pool_args k = { .stride = { 1, 1, 1 } };
    int64_t dilation[3] = { 1, 1, 1 }, pads[6] = { 0 }, window[3] = { 0 }, all[RG_ONNX_VALUES];
    int32_t policy;
    RG_TRY(rg_onnx_word(attributes, "auto_pad", policies, &policy));
    const int32_t axes = rg_onnx_ints(attributes, "kernel_shape", all), first = 3 - axes;
    node->shape_rank = rg_onnx_ints(attributes, "shape", node->shape);
    bool fits = axes >= 1 && axes <= 3 && policy == 0 &&
                read_list(attributes, "kernel_shape", axes, window) &&
                read_list(attributes, "strides", axes, k.stride + first) &&
                read_list(attributes, "dilations", axes, dilation) &&
                read_list(attributes, "pads", 2 * axes, pads) &&
                rg_onnx_int(attributes, "ceil_mode") == 0;
    for (int32_t i = 0; i < axes && fits; i++)
        fits = window[i] >= 1 && window[i] < 1 << 20 && k.stride[first + i] >= 1 && pads[i] >= 0 &&
               pads[axes + i] >= 0 && pads[i] < window[i] && pads[axes + i] < window[i] &&
               dilation[i] == 1;
    if (strcmp(attributes->type, "MaxPoolGrad") == 0)
        fits = fits && rg_onnx_int(attributes, "storage_order") == 0;
    else
        k.count_include_pad = rg_onnx_int(attributes, "count_include_pad") != 0;
    for (int32_t i = 0; i < 3 && fits; i++) {
        k.window[i] = i < first ? 1 : window[i - first];
        k.before[i] = i < first ? 0 : pads[i - first];
        node->after[i] = i < first ? 0 : pads[axes + i - first];
    }
    node->pool = k;
    node->pool_rank = axes + 2;
    return RG_OK;
}

/* The shape of dX, from X or the attribute; false: the ops say what is missing or wrong. */
static bool pool_shape(const rg_ort_computation *c, int32_t x, rg_tensor_desc *dx)
{
    const rg_ort_node *node = c->k;
    const rg_tensor_desc *dy = &c->shapes[0];
    int64_t dims[RG_MAX_RANK];
    if (node->pool.window[2] == 0 || dy->rank != node->pool_rank)
        return false;
    if (!rg_ort_has(c, x) && node->shape_rank != dy->rank)
        return false;
    memcpy(dims, rg_ort_has(c, x) ? c->shapes[x].dims : node->shape, sizeof dims);
    if (!rg_ort_has(c, x) && dims[0] < 0)
        dims[0] = dy->dims[0];
    *dx = rg_tensor_desc_dense(dy->dtype, dy->rank, dims);
    return !rg_ort_has(c, x) || c->shapes[x].rank == dy->rank;
}

/* Whether windows over dX give dY; the sizes of both, of three dimensions. */
static bool pool_fits(const rg_ort_node *node, const rg_tensor_desc *dy, const rg_tensor_desc *dx,
                      rg_ort_pool_args *k)
{
    const int32_t first = 5 - dy->rank;
    if (dx->dims[0] != dy->dims[0] || dx->dims[1] != dy->dims[1])
        return false;
    for (int32_t i = 0; i < 3; i++) {
        k->in[i] = i < first ? 1 : dx->dims[2 + i - first];
        k->out[i] = i < first ? 1 : dy->dims[2 + i - first];
        const int64_t span = k->in[i] + k->before[i] + node->after[i];
        if (k->in[i] < 0 || k->in[i] > INT64_MAX / 2 || span < k->window[i] ||
            (span - k->window[i]) / k->stride[i] + 1 != k->out[i])
            return false;
    }
    return true;
}

/* Sums of 16-bit numbers in 32 bits. */
static rg_status run_wide(rg_ort_computation *c, rg_ort_launch *launch, rg_ort_pool_args *k,
                          size_t count)
{
    const rg_dtype dtype = rg_ort_dtype(c->k->registered->type);
    void *const result = k->dx;
    launch->wide = dtype != RG_F64;
    if (rg_dtype_size(dtype) > 2)
        return rg_ort_run(c, launch);
    RG_TRY(rg_ort_widen(c, 0, RG_F32));
    RG_TRY(rg_ort_scratch(c, count * sizeof(float), &k->dx));
    k->dy = c->data[0];
    RG_TRY(rg_ort_run(c, launch));
    return rg_convert(result, dtype, k->dx, RG_F32, count);
}

static rg_status run_pool(rg_ort_computation *c, int32_t x, int32_t kernel, bool *done)
{
    rg_tensor_desc dx;
    rg_ort_pool_args k = c->k->pool;
    char left[RG_SHAPE_TEXT], right[RG_SHAPE_TEXT];
    const rg_tensor_desc *dy = &c->shapes[0];
    const bool ours = dy->rank == 5 || dy->dtype == RG_F32 || dy->dtype == RG_F64;
    if (!ours)
        return RG_OK;
    if (!pool_shape(c, x, &dx)) {
        RG_CHECK(dy->rank != 5, RG_UNSUPPORTED,
                 "%s: of volumes, the shape of dX must be given, kernel_shape has three numbers, "
                 "and auto_pad, ceil_mode, dilations and storage_order are not supported",
                 c->k->registered->entry->name);
        return RG_OK;
    }
    bool fits = pool_fits(c->k, dy, &dx, &k);
    RG_CHECK(fits || dy->rank < 5, RG_INVALID_ARGUMENT,
             "%s: dY is %s, which the windows over a dX of %s do not give",
             c->k->registered->entry->name, rg_shape_text(dy, left), rg_shape_text(&dx, right));
    if (kernel == RG_ORT_MAX_POOL) {
        fits = fits && rg_shape_same_dims(dy, &c->shapes[1]);
        RG_CHECK(fits || dy->rank < 5, RG_INVALID_ARGUMENT,
                 "MaxPoolGrad: dY is %s, but Indices are %s", rg_shape_text(dy, left),
                 rg_shape_text(&c->shapes[1], right));
    }
    if (!fits || (kernel == RG_ORT_AVERAGE_POOL && dy->rank < 5 && k.in[2] > RG_ORT_POOL_ROW))
        return RG_OK;
    RG_CHECK(kernel == RG_ORT_MAX_POOL || k.in[2] <= RG_ORT_POOL_ROW, RG_UNSUPPORTED,
             "AveragePoolGrad: rows of a volume have %d pixels at most", RG_ORT_POOL_ROW);
    uint32_t fault = 0;
    k.dy = c->data[0];
    k.indices = c->data[1];
    k.fault = &fault;
    RG_TRY(rg_ort_output(c, 0, &dx, &k.dx));
    *done = true;
    rg_ort_launch launch = { .kernel = kernel,
                             .args = &k,
                             .size = sizeof k,
                             .units = rg_shape_count(&dx) > 0 ? dx.dims[0] * dx.dims[1] : 0,
                             .bytes = rg_ort_bytes(&dx, 2) };
    RG_TRY(run_wide(c, &launch, &k, (size_t)rg_shape_count(&dx)));
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
    if (rg_shape_count(dy) == 0) { /* no element is copied */
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
