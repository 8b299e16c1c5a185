/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Spatial normalization: description. */
#include "ops/window_norm/box_record.h"

#include <retrograde/spatial_norm.h>

#include <float.h>

/* ---- description ---- */

static const rg_spatial_norm_desc defaults = {
    .size = sizeof(rg_spatial_norm_desc),
    .window = { 5, 5 },
    .alpha = 1,
    .beta = 5,
    .delta = 1,
};

rg_spatial_norm_desc rg_spatial_norm_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_IN(rg_spatial_norm_desc, window, 1, INT32_MAX, "rows and columns of a window"),
    RG_FIELD_IN(rg_spatial_norm_desc, alpha, 0, DBL_MAX, "factor of the mean square"),
    RG_FIELD_IN(rg_spatial_norm_desc, beta, -DBL_MAX, DBL_MAX, "exponent of the divisor"),
    RG_FIELD_IN(rg_spatial_norm_desc, delta, 0, DBL_MAX, "added to the mean square"),
    RG_BOX_FIELDS(rg_spatial_norm_desc),
};

static const rg_op_name names[] = {
    { "MPSCNNSpatialNormalization", false, "", RG_BOX_IMAGE, 3, 4 },
    { "MPSCNNSpatialNormalizationGradient", true, "", RG_BOX_IMAGE_GRADIENT, 3, 4 },
    { .name = NULL },
};

/* ---- shape rule, forward and gradient: those of both window norms ---- */

static rg_box_plan plan_of(const rg_spatial_norm_desc *d)
{
    const double count = rg_box_count(d->window);
    return (rg_box_plan){ .op = "spatial_norm",
                          .window = d->window,
                          .offset = d->offset,
                          .output = d->output,
                          .kinds = 1,
                          .numbers.norm =
                              rg_power_numbers_make(d->alpha, d->beta, d->delta, count) };
}

RG_BOX_FUNCTIONS

RG_OP_DEFINE(spatial_norm, .text = "spatial normalization over a window of pixels", RG_BOX_ENTRIES);

rg_status rg_spatial_norm_create(rg_device *device, const rg_spatial_norm_desc *desc,
                                 rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_spatial_norm, desc, kernel);
}
