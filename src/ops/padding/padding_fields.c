/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The fields of an rg_padding. */
#include "ops/padding/padding_fields.h"

#include <retrograde/padding.h>

static const char *const policies[] = { "explicit",   "valid",      "same", "full",
                                        "same_upper", "same_lower", NULL };
static const char *const aligns[] = { "centered", "top_left", "bottom_right", NULL };
static const char *const remainders[] = { "top_left", "top_right", "bottom_left", "bottom_right",
                                          NULL };

const rg_field rg_padding_fields[] = {
    { .name = "policy",
      .type = RG_FIELD_ENUM,
      .offset = offsetof(rg_padding, policy),
      .names = policies,
      .text = "explicit numbers; valid, same and full of MPS; same_upper and same_lower of ONNX" },
    { .name = "align",
      .type = RG_FIELD_ENUM,
      .offset = offsetof(rg_padding, align),
      .names = aligns,
      .text = "valid, same, full: alignment of the added pixels" },
    { .name = "remainder",
      .type = RG_FIELD_ENUM,
      .offset = offsetof(rg_padding, remainder),
      .names = remainders,
      .text = "valid, same, full: corner that gets the odd pixel of padding" },
    { .name = "top",
      .type = RG_FIELD_I32,
      .offset = offsetof(rg_padding, top),
      .text = "explicit: rows before the image; negative: crop" },
    { .name = "left",
      .type = RG_FIELD_I32,
      .offset = offsetof(rg_padding, left),
      .text = "explicit: columns before the image" },
    { .name = "bottom",
      .type = RG_FIELD_I32,
      .offset = offsetof(rg_padding, bottom),
      .text = "explicit: rows after the image" },
    { .name = "right",
      .type = RG_FIELD_I32,
      .offset = offsetof(rg_padding, right),
      .text = "explicit: columns after the image" },
    { .name = NULL },
};
