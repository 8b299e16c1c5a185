/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalization and dropout, which training changes. */
#include "onnx/import.h"

#include "onnx/onnx_train.h"

#include <retrograde/nodes.h>

#include <string.h>

/* ---- batch normalization ---- */

static rg_status freeze(rg_import *m, const rg_proto_node *node, size_t input)
{
    rg_known *known = NULL;
    RG_TRY(rg_import_known(m, node, input, &known));
    RG_CHECK(!known->has_flow || !known->trained, RG_UNSUPPORTED,
             "the statistics '%.80s' are also used as weights", known->name);
    known->trained = false;
    return RG_OK;
}

/* Statistics of many batches need more than 16 bits. */
static rg_status widen_parameters(rg_import *m, const rg_proto_node *node)
{
    for (size_t i = 1; i < 5; i++) {
        rg_known *known = NULL;
        RG_TRY(rg_import_known(m, node, i, &known));
        known->wide = known->wide || !known->has_flow;
    }
    return RG_OK;
}

/* A node as networks for images have it, whatever training_mode says: batch statistics while they
 * train, running statistics, which training changes, when they are used. The `spatial` of operator
 * sets 7 and 8 is covered where it is 1: statistics of channels. */
static rg_status plain_batch_norm(rg_import *m, const rg_proto_node *node, rg_proto_node *plain)
{
    int64_t spatial = 1;
    bool mode = false;
    RG_TRY(rg_attribute_int(node, "spatial", &spatial));
    RG_CHECK(spatial == 1 && (m->model->opset < 9 || rg_attribute_find(node, "spatial") == NULL),
             RG_UNSUPPORTED, "attribute 'spatial' is not covered");
    *plain = *node;
    RG_TRY(rg_arena_take(&m->network->arena, node->attribute_count, sizeof *plain->attributes,
                         &plain->attributes));
    plain->attribute_count = 0;
    for (size_t i = 0; i < node->attribute_count; i++) {
        const char *name = node->attributes[i].name;
        const bool dropped = strcmp(name, "training_mode") == 0 && m->for_images != NULL;
        if (!dropped && strcmp(name, "spatial") != 0)
            plain->attributes[plain->attribute_count++] = node->attributes[i];
        mode |= dropped;
    }
    for (size_t i = 1; i < node->output_count && mode; i++)
        RG_TRY(rg_import_define_uncovered(m, node, i));
    plain->output_count = mode ? 1 : node->output_count;
    return RG_OK;
}

rg_status rg_convert_batch_norm(rg_import *m, const rg_proto_node *written)
{
    rg_proto_node plain;
    const rg_proto_node *const node = &plain;
    RG_TRY(plain_batch_norm(m, written, &plain));
    rg_onnx_call *call = NULL;
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *call, &call));
    for (size_t i = 3; i < 5; i++)
        RG_TRY(freeze(m, node, i));
    const bool kept =
        rg_import_is_frozen(m, node->inputs[3]) || rg_import_is_frozen(m, node->inputs[4]);
    if (m->for_images != NULL)
        RG_TRY(widen_parameters(m, node));
    RG_TRY(rg_import_call(m, node, call));
    rg_batch_norm_desc *desc = (rg_batch_norm_desc *)call->desc;
    if (!m->options.training || kept || desc->statistics != RG_BATCH_NORM_GIVEN)
        return rg_import_run_call(m, node, call);
    rg_flow x[5], y[3];
    const rg_flow *inputs[] = { &x[0], &x[1], &x[2], &x[3], &x[4] };
    desc->statistics = RG_BATCH_NORM_RUNNING;
    desc->unbiased = true;
    RG_TRY(rg_import_channels_last(m, node, 0, &x[0]));
    for (size_t i = 1; i < 5; i++)
        RG_TRY(rg_import_plain(m, node, i, &x[i]));
    RG_TRY(rg_import_apply(m, "batch_norm", desc, inputs, 5, y, 3));
    for (int i = 0; i < 2; i++) {
        RG_CHECK(rg_value_get_kind(x[3 + i].value) == RG_VALUE_PARAMETER, RG_UNSUPPORTED,
                 "its statistics are computed, which training cannot change");
        RG_TRY(rg_graph_assign(m->graph, x[3 + i].value, y[1 + i].value));
    }
    return rg_import_define(m, node, 0, &y[0]);
}

/* ---- group normalization ---- */

/* One number for each channel from one for each group, in the order of the channels. */
static rg_status repeat_groups(rg_import *m, int64_t channels, rg_flow *x)
{
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    const int64_t groups = x->shape[0].dims[0];
    for (int32_t p = 0; p < RG_PROBES; p++) {
        dims[p][0] = groups;
        dims[p][1] = 1;
    }
    RG_TRY(rg_flow_reshape(m, x, 2, dims));
    for (int32_t p = 0; p < RG_PROBES; p++)
        dims[p][1] = channels / groups;
    RG_TRY(rg_flow_expand(m, x, 2, dims));
    for (int32_t p = 0; p < RG_PROBES; p++)
        dims[p][0] = channels;
    return rg_flow_reshape(m, x, 1, dims);
}

/* Operator set 18 has a scale and a bias for each group. */
rg_status rg_convert_group_norm(rg_import *m, const rg_proto_node *node)
{
    static const char known_attributes[] = "num_groups epsilon stash_type";
    rg_group_norm_desc desc = rg_group_norm_desc_default();
    rg_known *known[3] = { NULL };
    int64_t groups = 0;
    double epsilon = 1e-5;
    rg_flow x[3], y;
    const rg_flow *inputs[] = { &x[0], &x[1], &x[2] };
    for (size_t i = 0; i < 3; i++)
        RG_TRY(rg_import_known(m, node, i, &known[i]));
    RG_TRY(rg_attribute_int(node, "num_groups", &groups));
    RG_TRY(rg_attribute_float(node, "epsilon", &epsilon));
    const int64_t channels = known[0]->shape[0].rank >= 2 ? known[0]->shape[0].dims[1] : 0;
    if (known[1]->shape[0].rank != 1 || known[1]->shape[0].dims[0] == channels)
        return rg_convert_table(m, node);
    RG_TRY(rg_import_attributes(node, known_attributes));
    RG_CHECK(groups > 0 && channels % groups == 0 && known[2]->shape[0].rank == 1 &&
                 known[1]->shape[0].dims[0] == groups && known[2]->shape[0].dims[0] == groups,
             RG_MALFORMED, "num_groups is %lld for %lld channels, and scale has %lld elements",
             (long long)groups, (long long)channels, (long long)known[1]->shape[0].dims[0]);
    RG_TRY(rg_import_channels_last(m, node, 0, &x[0]));
    for (size_t i = 1; i < 3; i++) {
        RG_TRY(rg_import_plain(m, node, i, &x[i]));
        RG_TRY(repeat_groups(m, channels, &x[i]));
    }
    desc.groups = groups;
    desc.epsilon = epsilon;
    RG_TRY(rg_import_apply(m, "group_norm", &desc, inputs, 3, &y, 1));
    return rg_import_define(m, node, 0, &y);
}

/* ---- dropout ---- */

static rg_status dropout_step(rg_import *m, rg_flow *flow)
{
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_I64, 0, NULL);
    char name[RG_OWN_NAME];
    rg_onnx_own_name(m->model, "dropout_step", name);
    if (m->step == NULL)
        m->step = rg_graph_parameter(m->graph, name, &number);
    *flow = (rg_flow){ .value = m->step, .shape = { number, number } };
    return rg_graph_status(m->graph);
}

rg_status rg_convert_dropout(rg_import *m, const rg_proto_node *node)
{
    double ratio = 0.5;
    int32_t count = 1;
    const int32_t index = m->made++; /* also where it is left out: names after it stay the same */
    rg_known *known = NULL;
    RG_TRY(rg_attribute_float(node, "ratio", &ratio));
    if (rg_node_has(node, 1))
        RG_TRY(rg_import_floats(m, node, 1, &ratio, 1, &count));
    RG_TRY(rg_import_define_uncovered(m, node, 1)); /* the mask */
    if (!m->options.training || ratio == 0) {
        RG_CHECK(!rg_node_has(node, 2) || m->options.training || ratio == 0 ||
                     (rg_import_known(m, node, 2, &known) == RG_OK && rg_known_is_constant(known)),
                 RG_UNSUPPORTED, "input 'training_mode' is computed");
        int64_t training = 0;
        if (rg_node_has(node, 2) && ratio != 0 && m->for_images == NULL)
            RG_TRY(rg_import_ints(m, node, 2, &training, 1, &count));
        RG_CHECK(training == 0, RG_UNSUPPORTED, "training_mode is true: its mask is random");
        RG_TRY(rg_import_known(m, node, 0, &known));
        return rg_import_define_same(m, node, 0, known);
    }
    RG_CHECK(ratio > 0 && ratio < 1, RG_MALFORMED, "ratio is %g; it must be 0 to less than 1",
             ratio);
    rg_dropout_desc desc = rg_dropout_desc_default();
    rg_flow x, step, y;
    const rg_flow *inputs[] = { &x, &step };
    desc.keep = 1 - ratio;
    desc.seed = m->options.seed + index;
    desc.step_input = true;
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(dropout_step(m, &step));
    RG_TRY(rg_import_apply(m, "dropout", &desc, inputs, 2, &y, 1));
    return rg_import_define(m, node, 0, &y);
}
