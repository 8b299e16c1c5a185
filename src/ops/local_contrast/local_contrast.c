/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalization: description. */
#include "ops/window_norm/box_record.h"

#include <retrograde/local_contrast.h>

#include <float.h>

/* ---- description ---- */

static const rg_local_contrast_desc defaults = {
    .size = sizeof(rg_local_contrast_desc),
    .window = { 5, 5 },
    .alpha = 0,
    .beta = 0.5,
    .delta = 0x1p-10,
    .p0 = 1,
    .pm = 0,
    .ps = 1,
};

rg_local_contrast_desc rg_local_contrast_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_IN(rg_local_contrast_desc, window, 1, INT32_MAX, "rows and columns of a window"),
    RG_FIELD_IN(rg_local_contrast_desc, alpha, 0, DBL_MAX, "factor of the variance"),
    RG_FIELD_IN(rg_local_contrast_desc, beta, -DBL_MAX, DBL_MAX, "exponent of the divisor"),
    RG_FIELD_IN(rg_local_contrast_desc, delta, 0, DBL_MAX, "added to the variance"),
    RG_FIELD_IN(rg_local_contrast_desc, p0, -DBL_MAX, DBL_MAX,
                "fraction of the mean that is subtracted"),
    RG_FIELD_IN(rg_local_contrast_desc, pm, -DBL_MAX, DBL_MAX, "added to the result"),
    RG_FIELD_IN(rg_local_contrast_desc, ps, -DBL_MAX, DBL_MAX, "factor of the result"),
    RG_BOX_FIELDS(rg_local_contrast_desc),
};

static const rg_op_name names[] = {
    { "MPSCNNLocalContrastNormalization", false, "", RG_BOX_IMAGE, 3, 4 },
    { "MPSCNNLocalContrastNormalizationGradient", true, "", RG_BOX_IMAGE_GRADIENT, 3, 4 },
    { .name = NULL },
};

/* ---- shape rule, forward and gradient: those of both window norms ---- */

static rg_box_plan plan_of(const rg_local_contrast_desc *d)
{
    const double count = rg_box_count(d->window);
    rg_box_plan plan = { .op = "local_contrast",
                         .window = d->window,
                         .offset = d->offset,
                         .output = d->output,
                         .kinds = MOMENT_KINDS,
                         .numbers = { .norm =
                                          rg_power_numbers_make(d->alpha, d->beta, d->delta, count),
                                      .p0 = d->p0,
                                      .pm = d->pm,
                                      .ps = d->ps } };
    plan.numbers.norm.scale = d->alpha;
    return plan;
}

RG_BOX_FUNCTIONS

RG_OP_DEFINE(local_contrast, .text = "local contrast normalization over a window of pixels",
             RG_BOX_ENTRIES);

rg_status rg_local_contrast_create(rg_device *device, const rg_local_contrast_desc *desc,
                                   rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_local_contrast, desc, kernel);
}
