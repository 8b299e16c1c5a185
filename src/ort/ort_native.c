/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Nodes that native kernels compute, straight on the runtime's memory: checks of shapes, launches.
 * What a kernel does not cover is left to the ops. */
#include "core/shape.h"
#include "ort/ort_launch.h"
#include "runtime/objects.h"

#include <math.h>

static rg_status run_dropout(rg_ort_computation *c, bool *done)
{
    const rg_tensor_desc *dy = &c->shapes[0];
    char left[RG_SHAPE_TEXT], right[RG_SHAPE_TEXT];
    RG_CHECK(rg_shape_same_dims(dy, &c->shapes[1]), RG_INVALID_ARGUMENT,
             "DropoutGrad: dY is %s, but mask is %s", rg_shape_text(dy, left),
             rg_shape_text(&c->shapes[1], right));
    double ratio = 0.5;
    if (rg_ort_has(c, 2)) {
        RG_CHECK(rg_shape_count(&c->shapes[2]) == 1, RG_INVALID_ARGUMENT,
                 "DropoutGrad: ratio must be one number");
        ratio = rg_element_get(c->data[2], c->shapes[2].dtype, 0);
    }
    RG_CHECK(ratio >= 0 && ratio < 1, RG_INVALID_ARGUMENT,
             "DropoutGrad: ratio must be at least 0 and less than 1, not %g", ratio);
    rg_ort_dropout_args k = {
        .dy = c->data[0], .mask = c->data[1], .count = rg_shape_count(dy), .scale = 1 / (1 - ratio)
    };
    RG_TRY(rg_ort_output(c, 0, dy, &k.dx));
    *done = true;
    if (ratio == 0) { /* as ONNX Runtime does, whatever the mask says */
        memcpy(k.dx, k.dy, (size_t)k.count * rg_dtype_size(dy->dtype));
        return RG_OK;
    }
    const rg_ort_launch launch = { .kernel = RG_ORT_DROPOUT,
                                   .args = &k,
                                   .size = sizeof k,
                                   .units = rg_ort_blocks(k.count, RG_ORT_BLOCK),
                                   .bytes = rg_ort_bytes(dy, 2) };
    return rg_ort_run(c, &launch);
}

/* ---- normalizations ---- */

static rg_status check_count(const rg_ort_computation *c, int32_t input, int64_t count)
{
    RG_CHECK(rg_shape_count(&c->shapes[input]) == count, RG_INVALID_ARGUMENT,
             "%s: %s has %lld numbers, but must have %lld", c->k->registered->entry->name,
             c->k->registered->inputs[input].name, (long long)rg_shape_count(&c->shapes[input]),
             (long long)count);
    return RG_OK;
}

static rg_status check_same(const rg_ort_computation *c)
{
    char left[RG_SHAPE_TEXT], right[RG_SHAPE_TEXT];
    RG_CHECK(rg_shape_same_dims(&c->shapes[0], &c->shapes[1]), RG_INVALID_ARGUMENT,
             "%s: dY is %s, but X is %s", c->k->registered->entry->name,
             rg_shape_text(&c->shapes[0], left), rg_shape_text(&c->shapes[1], right));
    return RG_OK;
}

/* Statistics in f32 beside data of another dtype: kernels for 16 bits read them as they are. */
static rg_status widen_statistics(rg_ort_computation *c, bool *wide)
{
    const rg_dtype dtype = c->shapes[1].dtype;
    for (int32_t i = 3; i < 5 && dtype == RG_F64; i++)
        RG_TRY(rg_ort_widen(c, i, RG_F64));
    *wide = c->shapes[3].dtype != dtype;
    return RG_OK;
}

static rg_status run_batch_norm(rg_ort_computation *c, bool *done)
{
    const rg_tensor_desc *x = &c->shapes[1];
    if (!rg_ort_has(c, 3) || !rg_ort_has(c, 4) || x->rank < 2)
        return RG_OK;
    RG_TRY(check_same(c));
    rg_ort_batch_norm_args k = { .dy = c->data[0],
                                 .x = c->data[1],
                                 .scale = c->data[2],
                                 .mean = c->data[3],
                                 .inverse = c->data[4],
                                 .images = x->dims[0],
                                 .channels = x->dims[1],
                                 .pixels = rg_ort_product(x, 2, x->rank) };
    for (int32_t i = 2; i < 5; i++)
        RG_TRY(check_count(c, i, k.channels));
    RG_TRY(widen_statistics(c, &k.wide));
    k.mean = c->data[3];
    k.inverse = c->data[4];
    k.wide_scale = c->shapes[2].dtype != x->dtype;
    RG_TRY(rg_ort_output(c, 0, x, &k.dx));
    RG_TRY(rg_ort_output(c, 1, &c->shapes[2], &k.dscale));
    RG_TRY(rg_ort_output(c, 2, &c->shapes[2], &k.dbias));
    *done = true;
    const rg_ort_launch launch = { .kernel = RG_ORT_BATCH_NORM,
                                   .args = &k,
                                   .size = sizeof k,
                                   .units = k.channels,
                                   .grain = 1 + 4096 / (k.pixels + 1), /* neighbours share lines */
                                   .bytes = rg_ort_bytes(x, 5) };
    return rg_ort_run(c, &launch);
}

static rg_status run_layer_norm(rg_ort_computation *c, bool *done)
{
    const rg_tensor_desc *x = &c->shapes[1];
    if (!rg_ort_has(c, 3) || !rg_ort_has(c, 4) || c->k->axis >= x->rank || c->k->axis < -x->rank)
        return RG_OK;
    RG_TRY(check_same(c));
    const int32_t axis = (int32_t)(c->k->axis < 0 ? c->k->axis + x->rank : c->k->axis);
    rg_ort_layer_norm_args k = { .dy = c->data[0],
                                 .x = c->data[1],
                                 .scale = c->data[2],
                                 .mean = c->data[3],
                                 .inverse = c->data[4],
                                 .rows = rg_ort_product(x, 0, axis),
                                 .columns = rg_ort_product(x, axis, x->rank) };
    RG_TRY(check_count(c, 2, k.columns));
    for (int32_t i = 3; i < 5; i++)
        RG_TRY(check_count(c, i, k.rows));
    RG_TRY(widen_statistics(c, &k.wide));
    k.mean = c->data[3];
    k.inverse = c->data[4];
    RG_TRY(rg_ort_output(c, 0, x, &k.dx));
    RG_TRY(rg_ort_output(c, 1, &c->shapes[2], &k.dscale));
    RG_TRY(rg_ort_output(c, 2, &c->shapes[2], &k.dbias));
    *done = true;
    rg_ort_launch launch = { .kernel = RG_ORT_LAYER_NORM,
                             .args = &k,
                             .size = sizeof k,
                             .units = k.dx != NULL ? k.rows : 0,
                             .grain = 1 + 4096 / (k.columns + 1),
                             .bytes = rg_ort_bytes(x, 3) };
    RG_TRY(rg_ort_run(c, &launch));
    launch.kernel = RG_ORT_LAYER_NORM_COLUMNS;
    launch.units =
        k.dscale != NULL || k.dbias != NULL ? rg_ort_blocks(k.columns, RG_ORT_COLUMNS) : 0;
    launch.grain = 1;
    return rg_ort_run(c, &launch);
}

/* ---- loss ---- */

/* The sum of the weights of labels that are not ignored. */
static double total_weight(const rg_ort_loss_args *k, int64_t count, rg_dtype dtype)
{
    double total = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t label = k->label[i];
        if (k->has_ignored && label == k->ignored)
            continue;
        if (k->weight == NULL)
            total += 1;
        else if (label >= 0 && label < k->classes)
            total += rg_element_get(k->weight, dtype, label);
    }
    return total;
}

static rg_status run_loss(rg_ort_computation *c, bool *done)
{
    const rg_tensor_desc *scores = &c->shapes[1], *labels = &c->shapes[2];
    const bool each = c->k->reduction == 0;
    bool fits = scores->rank >= 2 && labels->rank == scores->rank - 1;
    for (int32_t d = 0; d < labels->rank && fits; d++)
        fits = labels->dims[d] == scores->dims[d + (d > 0)];
    if (!fits || (rg_ort_has(c, 3) && rg_shape_count(&c->shapes[3]) != scores->dims[1]) ||
        rg_shape_count(&c->shapes[0]) != (each ? rg_shape_count(labels) : 1))
        return RG_OK; /* the ops say what is wrong */
    rg_ort_loss_args k = c->k->loss;
    uint32_t fault = 0;
    const int64_t count = rg_shape_count(labels);
    RG_TRY(rg_ort_widen(c, 2, RG_I64));
    k.dy = c->data[0];
    k.log_prob = c->data[1];
    k.label = c->data[2];
    k.weight = rg_ort_has(c, 3) ? c->data[3] : NULL;
    k.fault = &fault;
    k.classes = scores->dims[1];
    k.positions = rg_ort_product(scores, 2, scores->rank);
    k.blocks = rg_ort_blocks(k.positions, RG_ORT_POSITIONS);
    k.each = each;
    k.scale = 1;
    if (c->k->reduction == 2) {
        const double total = k.weight == NULL && !k.has_ignored
                                 ? (double)count
                                 : total_weight(&k, count, scores->dtype);
        k.scale = total != 0 ? 1 / total : 1;
    }
    RG_TRY(rg_ort_output(c, 0, scores, &k.d));
    *done = true;
    const rg_ort_launch launch = { .kernel = RG_ORT_LOSS,
                                   .args = &k,
                                   .size = sizeof k,
                                   .units = count == 0 ? 0 : scores->dims[0] * k.blocks,
                                   .grain = k.positions == 1 ? 1 + 1024 / (k.classes + 1) : 1,
                                   .bytes = rg_ort_bytes(scores, 2) };
    RG_TRY(rg_ort_run(c, &launch));
    RG_CHECK(fault == 0, RG_INVALID_ARGUMENT,
             "SoftmaxCrossEntropyLossGrad: a label is not among the %lld classes",
             (long long)k.classes);
    return RG_OK;
}

static rg_status prepare_loss(rg_ort_node *node, const rg_onnx_node *attributes)
{
    static const char *const reductions[] = { "none", "sum", "mean", NULL };
    RG_TRY(rg_onnx_word(attributes, "reduction", reductions, &node->reduction));
    node->loss.has_ignored = rg_onnx_given(attributes, "ignore_index");
    node->loss.ignored = rg_onnx_int(attributes, "ignore_index");
    return RG_OK;
}

static rg_status prepare_axis(rg_ort_node *node, const rg_onnx_node *attributes)
{
    node->axis = rg_onnx_int(attributes, "axis");
    return RG_OK;
}

/* ---- the table ---- */

static const rg_ort_native natives[] = {
    { "DropoutGrad", NULL, run_dropout },
    { "BatchNormalizationGrad", NULL, run_batch_norm },
    { "LayerNormalizationGrad", prepare_axis, run_layer_norm },
    { "SoftmaxCrossEntropyLossGrad", prepare_loss, run_loss },
    { "MaxPoolGrad", rg_ort_prepare_pool, rg_ort_run_max_pool },
    { "AveragePoolGrad", rg_ort_prepare_pool, rg_ort_run_average_pool },
    { "SliceGrad", NULL, rg_ort_run_slice },
    { "ConvGrad", rg_ort_prepare_conv, rg_ort_run_conv },
    { "GatherGrad", prepare_axis, rg_ort_run_gather },
    { "SGDOptimizerV2", NULL, rg_ort_run_sgd },
    { "AdamWOptimizer", rg_ort_prepare_adamw, rg_ort_run_adamw },
    { "InPlaceAccumulatorV2", NULL, rg_ort_run_accumulate },
};

rg_status rg_ort_native_prepare(rg_ort_node *node)
{
    const rg_onnx_node attributes = { .type = node->registered->entry->name,
                                      .attributes = node->attributes,
                                      .attribute_count = node->attribute_count,
                                      .entry = node->registered->entry };
    for (size_t i = 0; i < sizeof natives / sizeof natives[0] && !node->registered->cuda; i++) {
        if (strcmp(natives[i].name, attributes.type) != 0)
            continue;
        node->native = &natives[i];
        return natives[i].prepare != NULL ? natives[i].prepare(node, &attributes) : RG_OK;
    }
    return RG_OK;
}

rg_status rg_ort_native_run(rg_ort_computation *c, bool *done)
{
    *done = false;
    if (c->k->native == NULL)
        return RG_OK;
    for (int32_t i = 0; i < c->k->registered->input_count; i++)
        RG_CHECK(rg_ort_has(c, i) || c->k->registered->inputs[i].optional, RG_INVALID_ARGUMENT,
                 "%s: the input %s is missing", c->k->registered->entry->name,
                 c->k->registered->inputs[i].name);
    return c->k->native->run(c, done);
}

rg_status rg_ort_run(rg_ort_computation *c, const rg_ort_launch *launch)
{
    const rg_device *device = c->k->device;
    _Alignas(16) char memory[sizeof(rg_entry) + sizeof(rg_ort_slice_args) + 16];
    if (launch->units == 0)
        return RG_OK;
    const rg_dtype dtype = launch->wide ? RG_F32 : rg_ort_dtype(c->k->registered->type);
    const rg_entry entry = { .size = sizeof memory,
                             .function = device->backend->find(device->context, &rg_kernels_ort,
                                                               launch->kernel, dtype),
                             .units = launch->units,
                             .grain = launch->grain > 0 ? launch->grain : 1,
                             .bytes = launch->bytes };
    RG_CHECK(entry.function != NULL && launch->size <= sizeof(rg_ort_slice_args), RG_UNSUPPORTED,
             "%s: there is no kernel for %s", c->k->registered->entry->name, rg_dtype_name(dtype));
    memcpy(memory, &entry, sizeof entry);
    memcpy(memory + sizeof entry, launch->args, launch->size);
    rg_backend_submission submission = { .entries = memory, .bytes = sizeof memory };
    device->backend->run(device->context, &submission);
    return RG_OK;
}

int64_t rg_ort_product(const rg_tensor_desc *shape, int32_t begin, int32_t end)
{
    int64_t product = 1;
    for (int32_t d = begin; d < end; d++)
        product *= shape->dims[d];
    return product;
}
