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
    RG_FIELD_NAMED(
        rg_padding, policy, policies,
        "explicit numbers; valid, same and full of MPS; same_upper and same_lower of ONNX"),
    RG_FIELD_NAMED(rg_padding, align, aligns, "valid, same, full: alignment of the added pixels"),
    RG_FIELD_NAMED(rg_padding, remainder, remainders,
                   "valid, same, full: corner that gets the odd pixel of padding"),
    RG_FIELD(rg_padding, top, "explicit: rows before the image; negative: crop"),
    RG_FIELD(rg_padding, left, "explicit: columns before the image"),
    RG_FIELD(rg_padding, bottom, "explicit: rows after the image"),
    RG_FIELD(rg_padding, right, "explicit: columns after the image"),
    { .name = NULL },
};
