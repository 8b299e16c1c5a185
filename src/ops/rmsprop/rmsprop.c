/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* RMSProp: description, validation, shape rule, forward. */
#include "ops/optimizer/update_record.h"

#include <retrograde/rmsprop.h>

#include <float.h>

/* ---- description ---- */

static const rg_rmsprop_desc defaults = {
    .size = sizeof(rg_rmsprop_desc),
    .decay = 0.9,
    .epsilon = 1e-8,
    .gradient = RG_GRADIENT_RULES_DEFAULT,
};

rg_rmsprop_desc rg_rmsprop_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_rmsprop_desc, form, rg_update_forms,
                   "momentum accumulates steps times the learning rate (mps) or steps (torch)"),
    RG_FIELD_IN(rg_rmsprop_desc, decay, 0, 1, "decay rate of the mean square"),
    RG_FIELD_IN(rg_rmsprop_desc, epsilon, 0, DBL_MAX, "added to the root of the mean square"),
    RG_FIELD_IN(rg_rmsprop_desc, momentum, 0, 1, "momentum; 0: none"),
    RG_FIELD(rg_rmsprop_desc, centered, "centered: subtract the square of the mean gradient"),
    RG_UPDATE_FIELDS(rg_rmsprop_desc),
};

static const rg_op_name names[] = {
    { "MPSNNOptimizerRMSProp", false, "",
      "inputValuesVector=parameter inputGradientVector=gradient inputSumOfSquaresVector=velocity "
      "learningRate=rate resultValuesVector=new_parameter",
      0, 0 },
    { .name = NULL },
};

static rg_update_plan plan_of(const void *desc)
{
    const rg_rmsprop_desc *d = desc;
    return (rg_update_plan){ .op = "rmsprop",
                             .gradient = &d->gradient,
                             .scaled = d->scaled,
                             .copy = d->copy,
                             .numbers = { .momentum = d->momentum,
                                          .epsilon = d->epsilon,
                                          .beta2 = d->decay,
                                          .moments = 1 + d->centered + (d->momentum != 0),
                                          .mps = d->form == RG_UPDATE_MPS,
                                          .centered = d->centered } };
}

/* Which of the tables of names: bit 0, centered; bit 1, with momentum. */
static int names_of(const void *desc)
{
    const rg_rmsprop_desc *d = desc;
    return d->centered + 2 * (d->momentum != 0);
}

static const char *const *input_names(const void *desc)
{
    static const char *const all[][8] = {
        { "parameter", "gradient", "velocity", "rate", "scale", NULL },
        { "parameter", "gradient", "velocity", "mean", "rate", "scale", NULL },
        { "parameter", "gradient", "velocity", "momentum", "rate", "scale", NULL },
        { "parameter", "gradient", "velocity", "mean", "momentum", "rate", "scale", NULL },
    };
    return all[names_of(desc)];
}

static const char *const *output_names(const void *desc)
{
    static const char *const all[][6] = {
        { "new_parameter", "new_velocity", "copy", NULL },
        { "new_parameter", "new_velocity", "new_mean", "copy", NULL },
        { "new_parameter", "new_velocity", "new_momentum", "copy", NULL },
        { "new_parameter", "new_velocity", "new_mean", "new_momentum", "copy", NULL },
    };
    return all[names_of(desc)];
}

/* ---- validation; shape rule and forward are those of all optimizers ---- */

static rg_status check(const void *desc)
{
    const rg_update_plan plan = plan_of(desc);
    return rg_update_check(&plan);
}

RG_UPDATE_FUNCTIONS

/* ---- the op ---- */

RG_OP_DEFINE(rmsprop, .text = "one step of RMSProp", .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "parameter", "gradient", "velocity", "mean",
                                              "momentum", "rate", "scale", NULL },
             .outputs = (const char *const[]){ "new_parameter", "new_velocity", "new_mean",
                                               "new_momentum", "copy", NULL },
             .names = names, RG_UPDATE_ENTRIES);

rg_status rg_rmsprop_create(rg_device *device, const rg_rmsprop_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_rmsprop, desc, kernel);
}
