/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The table of layers that need more than their op's description. */
#include "train/layer_rules.h"

#include "core/shape.h"
#include "ops/ops.h"
#include "train/patterns.h"

#include <retrograde/batch_norm.h>
#include <retrograde/conv.h>
#include <retrograde/conv_transpose.h>
#include <retrograde/dense.h>
#include <retrograde/dropout.h>

#include <stdio.h>

/* ---- weights ---- */

static rg_status dense_weights(const rg_layer *layer, const rg_tensor_desc *x, int64_t outputs,
                               rg_tensor_desc *w, int64_t *fan_in)
{
    const rg_dense_desc *d = (const rg_dense_desc *)(const void *)layer->desc;
    const bool first = d->layout == RG_DENSE_OUT_IN;
    int64_t dims[RG_MAX_RANK] = { 0 };
    RG_CHECK(x->rank >= 2, RG_MALFORMED, "dense needs images or rows of numbers as input");
    *fan_in = 1;
    for (int32_t i = 1; i < x->rank; i++) {
        dims[first ? i : i - 1] = x->dims[i];
        *fan_in *= x->dims[i];
    }
    dims[first ? 0 : x->rank - 1] = outputs;
    *w = rg_tensor_desc_dense(x->dtype, x->rank, dims);
    return RG_OK;
}

/* (outputs, rows, columns, channels of a group) */
static rg_status window_weights(const rg_layer *layer, int64_t groups, const rg_tensor_desc *x,
                                int64_t outputs, rg_tensor_desc *w, int64_t *fan_in)
{
    const int64_t channels = x->rank > 0 ? x->dims[x->rank - 1] : 0;
    groups = groups == 0 ? channels : groups;
    RG_CHECK(groups > 0 && channels % groups == 0, RG_MALFORMED,
             "%lld channels are not divisible into %lld groups", (long long)channels,
             (long long)groups);
    const int64_t rows = layer->window[0] > 0 ? layer->window[0] : 1;
    const int64_t columns = layer->window[1] > 0 ? layer->window[1] : 1;
    const int64_t dims[] = { outputs, rows, columns, channels / groups };
    *fan_in = rows * columns * dims[3];
    *w = rg_tensor_desc_dense(x->dtype, 4, dims);
    return RG_OK;
}

static rg_status conv_weights(const rg_layer *layer, const rg_tensor_desc *x, int64_t outputs,
                              rg_tensor_desc *w, int64_t *fan_in)
{
    const rg_conv_desc *d = (const rg_conv_desc *)(const void *)layer->desc;
    return window_weights(layer, d->groups, x, outputs, w, fan_in);
}

static rg_status transpose_weights(const rg_layer *layer, const rg_tensor_desc *x, int64_t outputs,
                                   rg_tensor_desc *w, int64_t *fan_in)
{
    const rg_conv_transpose_desc *d = (const rg_conv_transpose_desc *)(const void *)layer->desc;
    return window_weights(layer, d->groups, x, outputs, w, fan_in);
}

/* ---- training and use ---- */

static bool is_frozen(const rg_network_desc *options, const rg_layer *layer, const char *input)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", layer->label, input);
    return rg_patterns_match(options->freeze, name);
}

static void adjust_norm(void *desc, const rg_network_desc *options, const rg_layer *layer,
                        size_t index)
{
    rg_batch_norm_desc *d = desc;
    (void)index;
    const bool kept = is_frozen(options, layer, "mean") || is_frozen(options, layer, "variance");
    d->statistics = options->training && !kept ? RG_BATCH_NORM_RUNNING : RG_BATCH_NORM_GIVEN;
    d->unbiased = true;
}

static void adjust_dropout(void *desc, const rg_network_desc *options, const rg_layer *layer,
                           size_t index)
{
    rg_dropout_desc *d = desc;
    (void)layer;
    d->step_input = true;
    d->seed = (int64_t)((uint64_t)d->seed + (uint64_t)options->seed + index);
}

/* ---- PyTorch ---- */

void rg_layer_weight_order(const rg_layer *layer, const char *input, int32_t rank, int32_t order[])
{
    const bool weights = strcmp(input, "w") == 0;
    const bool dense = strcmp(layer->op->name, "dense") == 0;
    const bool last =
        dense && ((const rg_dense_desc *)(const void *)layer->desc)->layout != RG_DENSE_OUT_IN;
    for (int32_t d = 0; d < rank; d++) {
        order[d] = d;
        if (!weights)
            continue;
        if (last) /* (h, w, in, out) */
            order[d] = d == rank - 1 ? 0 : d == rank - 2 ? 1 : d + 2;
        else if (strcmp(layer->op->name, "conv_transpose") == 0) /* of (in, out, h, w) */
            order[d] = d == 0 ? 1 : d == rank - 1 ? 0 : d + 1;
        else if (d > 0) /* (out, h, w, in) */
            order[d] = d == rank - 1 ? 1 : d + 1;
    }
}

/* ---- the table ---- */

static const rg_layer_rule rules[] = {
    { "conv", .window = true, .weights = conv_weights },
    { "conv_transpose", .window = true, .weights = transpose_weights },
    { "dense", .weights = dense_weights },
    { "batch_norm", .adjust = adjust_norm },
    { "dropout", .left_out = true, .adjust = adjust_dropout },
    { "loss", .no_layer = true },
};

const rg_layer_rule *rg_layer_rule_of(const rg_op *op)
{
    static const rg_layer_rule none = { .op = "" };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(op->name, rules[i].op) == 0)
            return &rules[i];
    }
    return &none;
}
