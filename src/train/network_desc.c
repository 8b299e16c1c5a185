/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a network is made for: defaults and checks. */
#include "train/model.h"
#include "train/scores.h"

#include "core/dtype.h"
#include "core/status.h"

#include <string.h>

rg_network_desc rg_network_desc_default(void)
{
    return (rg_network_desc){ .size = sizeof(rg_network_desc),
                              .dtype = RG_F32,
                              .height = 28,
                              .width = 28,
                              .channels = 1,
                              .classes = 10 };
}

rg_status rg_network_desc_copy(const char *who, const rg_network_desc *desc,
                               rg_network_desc *checked)
{
    enum { LARGEST = 1 << 20 };
    RG_CHECK(desc != NULL, RG_INVALID_ARGUMENT, "%s: desc is NULL", who);
    RG_CHECK(desc->size > sizeof desc->size && desc->size <= sizeof *desc, RG_INVALID_ARGUMENT,
             "%s: size is %u; start from rg_network_desc_default()", who, desc->size);
    *checked = rg_network_desc_default();
    memcpy(checked, desc, desc->size);
    checked->size = sizeof *checked;
    RG_CHECK(rg_dtype_is_data(checked->dtype), RG_INVALID_ARGUMENT,
             "%s: dtype is %s; it must be f32, f64, f16 or bf16", who,
             rg_dtype_name(checked->dtype));
    const int64_t sizes[] = { checked->height, checked->width, checked->channels,
                              checked->classes };
    static const char *const names[] = { "height", "width", "channels", "classes" };
    for (int i = 0; i < 4; i++)
        RG_CHECK(sizes[i] >= 1 && sizes[i] <= LARGEST, RG_INVALID_ARGUMENT,
                 "%s: %s must be between 1 and %d, not %lld", who, names[i], LARGEST,
                 (long long)sizes[i]);
    RG_CHECK((unsigned)checked->target <= RG_TARGET_MASK, RG_INVALID_ARGUMENT, "%s: target is %d",
             who, (int)checked->target);
    RG_CHECK(checked->outputs >= 0 && checked->outputs <= INT32_MAX &&
                 (checked->target != RG_TARGET_LABELS ||
                  rg_network_targets(checked) == checked->classes),
             RG_INVALID_ARGUMENT, "%s: outputs is %lld; there are %d classes", who,
             (long long)checked->outputs, checked->classes);
    return RG_OK;
}
