/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample of operator sets 7 to 9; Resize, which replaced it, is in the table of operators. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

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
