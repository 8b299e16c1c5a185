/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Resize, and Upsample of operator sets 7 to 9. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <string.h>

rg_status rg_convert_upsample(rg_import *m, const rg_proto_node *node)
{
    rg_upsample_desc desc = rg_upsample_desc_default();
    const rg_proto_attribute *list = rg_attribute_find(node, "scales");
    const char *mode = "nearest";
    double scales[RG_MAX_RANK];
    int32_t count = 0;
    rg_flow x;
    RG_TRY(rg_attribute_text(node, "mode", &mode));
    if (rg_node_has(node, 1)) {
        RG_TRY(rg_import_floats(m, node, 1, scales, RG_MAX_RANK, &count));
    } else if (list != NULL && list->type == RG_PROTO_FLOATS && list->count <= RG_MAX_RANK) {
        count = (int32_t)list->count;
        for (int32_t i = 0; i < count; i++)
            scales[i] = (double)list->floats[i];
    }
    RG_CHECK(count == 4 && scales[0] == 1 && scales[1] == 1, RG_UNSUPPORTED,
             "'scales' must have four entries, those of images and channels 1");
    RG_CHECK(strcmp(mode, "nearest") == 0 || strcmp(mode, "linear") == 0, RG_UNSUPPORTED,
             "mode '%.40s' is not covered", mode);
    desc.kind = mode[0] == 'n' ? RG_UPSAMPLE_NEAREST : RG_UPSAMPLE_BILINEAR;
    memcpy(desc.scale, scales + 2, sizeof desc.scale);
    RG_TRY(rg_import_channels_last(m, node, 0, &x));
    RG_TRY(rg_flow_apply(m, "upsample", &desc, &x));
    return rg_import_define(m, node, 0, &x);
}

/* The first pixel along each axis of the image that has one pixel in the result: what
 * pytorch_half_pixel takes there. */
static rg_status take_first(rg_import *m, rg_upsample_desc *desc, rg_flow *x)
{
    for (int32_t i = 0; i < 2; i++) {
        rg_flow first;
        const double length = (double)x->shape[0].dims[1 + i] * desc->scale[i];
        const double output = desc->output[i] > 0 ? (double)desc->output[i] : floor(length);
        if (output != 1 || x->shape[0].dims[1 + i] < 1)
            continue;
        RG_TRY(rg_flow_cut(m, x, 2 + i, 0, 1, 1, &first));
        *x = first;
        desc->output[i] = 1;
        desc->scale[i] = 1;
    }
    return RG_OK;
}

/* Operator set 10 has inputs X and scales, and one grid, which later sets call asymmetric. */
static rg_status read_old(rg_import *m, const rg_proto_node *old, rg_proto_node *node)
{
    static const rg_proto_attribute grid = { .name = "coordinate_transformation_mode",
                                             .type = RG_PROTO_STRING,
                                             .s = "asymmetric" };
    static const rg_proto_attribute rounding = { .name = "nearest_mode",
                                                 .type = RG_PROTO_STRING,
                                                 .s = "floor" };
    RG_CHECK(old->input_count == 2, RG_MALFORMED, "it has %zu inputs; it must have 2",
             old->input_count);
    *node = *old;
    node->input_count = 3;
    RG_TRY(rg_arena_take(&m->network->arena, 3, sizeof *node->inputs, &node->inputs));
    node->inputs[0] = old->inputs[0];
    node->inputs[1] = "";
    node->inputs[2] = old->inputs[1];
    node->attribute_count = 0;
    RG_TRY(rg_arena_take(&m->network->arena, old->attribute_count + 2, sizeof *node->attributes,
                         &node->attributes));
    for (size_t i = 0; i < old->attribute_count; i++) {
        RG_CHECK(strcmp(old->attributes[i].name, "mode") == 0, RG_UNSUPPORTED,
                 "attribute '%.80s' is not covered", old->attributes[i].name);
        node->attributes[node->attribute_count++] = old->attributes[i];
    }
    node->attributes[node->attribute_count++] = grid;
    node->attributes[node->attribute_count++] = rounding;
    return RG_OK;
}

rg_status rg_convert_resize(rg_import *m, const rg_proto_node *written)
{
    rg_onnx_call *call = NULL;
    rg_known *known = NULL;
    const char *grid = "half_pixel", *mode = "nearest";
    rg_proto_node old;
    const rg_proto_node *node = written;
    rg_flow x;
    if (m->model->opset < 11) {
        RG_TRY(read_old(m, written, &old));
        node = &old;
    }
    RG_TRY(rg_attribute_text(node, "mode", &mode));
    if (strcmp(mode, "cubic") == 0)
        return rg_convert_cubic(m, node);
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *call, &call));
    RG_TRY(rg_import_call(m, node, call));
    RG_TRY(rg_import_known(m, node, 0, &known));
    RG_TRY(rg_attribute_text(node, "coordinate_transformation_mode", &grid));
    if (known->shape[0].rank != 4 || strcmp(grid, "pytorch_half_pixel") != 0)
        return rg_import_run_call(m, node, call);
    rg_upsample_desc *desc = (rg_upsample_desc *)call->desc;
    RG_TRY(rg_import_channels_last(m, node, 0, &x));
    RG_TRY(take_first(m, desc, &x));
    RG_TRY(rg_flow_apply(m, "upsample", desc, &x));
    return rg_import_define(m, node, 0, &x);
}
