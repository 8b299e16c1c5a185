/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Adam: description, validation, shape rule, forward. */
#include "ops/optimizer/update_record.h"

#include <retrograde/adam.h>

#include <float.h>

/* ---- description ---- */

static const rg_adam_desc defaults = {
    .size = sizeof(rg_adam_desc),
    .beta1 = 0.9,
    .beta2 = 0.999,
    .epsilon = 1e-8,
    .gradient = RG_GRADIENT_RULES_DEFAULT,
};

rg_adam_desc rg_adam_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_adam_desc, form, rg_update_forms,
                   "epsilon is added to the root of the uncorrected (mps) or of the bias-corrected "
                   "(torch) mean square"),
    RG_FIELD_IN(rg_adam_desc, beta1, 0, 1, "decay rate of the mean gradient; must be less than 1"),
    RG_FIELD_IN(rg_adam_desc, beta2, 0, 1, "decay rate of the mean square; must be less than 1"),
    RG_FIELD_IN(rg_adam_desc, epsilon, 0, DBL_MAX, "added to the root of the mean square"),
    RG_FIELD(rg_adam_desc, decay, "decoupled weight decay, times the learning rate"),
    RG_FIELD(rg_adam_desc, amsgrad, "AMSGrad: use the largest mean square so far"),
    RG_UPDATE_FIELDS(rg_adam_desc),
};

static const rg_op_name names[] = {
    { "MPSNNOptimizerAdam", false, "",
      "inputValuesVector=parameter inputGradientVector=gradient inputMomentumVector=momentum "
      "inputVelocityVector=velocity maximumVelocityVector=maximum learningRate=rate timeStep=step "
      "resultValuesVector=new_parameter",
      0, 0 },
    { .name = NULL },
};

static rg_update_plan plan_of(const void *desc)
{
    const rg_adam_desc *d = desc;
    return (rg_update_plan){ .op = "adam",
                             .gradient = &d->gradient,
                             .scaled = d->scaled,
                             .stepped = true,
                             .copy = d->copy,
                             .numbers = { .epsilon = d->epsilon,
                                          .beta1 = d->beta1,
                                          .beta2 = d->beta2,
                                          .decay = d->decay,
                                          .moments = 2 + d->amsgrad,
                                          .mps = d->form == RG_UPDATE_MPS,
                                          .amsgrad = d->amsgrad } };
}

static const char *const *input_names(const void *desc)
{
    static const char *const plain[] = { "parameter", "gradient", "momentum", "velocity",
                                         "rate",      "step",     "scale",    NULL };
    static const char *const all[] = { "parameter", "gradient", "momentum", "velocity", "maximum",
                                       "rate",      "step",     "scale",    NULL };
    return ((const rg_adam_desc *)desc)->amsgrad ? all : plain;
}

static const char *const *output_names(const void *desc)
{
    static const char *const plain[] = { "new_parameter", "new_momentum", "new_velocity", "copy",
                                         NULL };
    static const char *const all[] = { "new_parameter", "new_momentum", "new_velocity",
                                       "new_maximum",   "copy",         NULL };
    return ((const rg_adam_desc *)desc)->amsgrad ? all : plain;
}

/* ---- validation; shape rule and forward are those of all optimizers ---- */

static rg_status check(const void *desc)
{
    const rg_adam_desc *d = desc;
    const rg_update_plan plan = plan_of(desc);
    RG_CHECK(d->beta1 < 1, RG_INVALID_ARGUMENT, "adam: beta1 must be less than 1, not %g",
             d->beta1);
    RG_CHECK(d->beta2 < 1, RG_INVALID_ARGUMENT, "adam: beta2 must be less than 1, not %g",
             d->beta2);
    return rg_update_check(&plan);
}

RG_UPDATE_FUNCTIONS

/* ---- the op ---- */

RG_OP_DEFINE(adam, .text = "one step of Adam, with AMSGrad and decoupled weight decay",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "parameter", "gradient", "momentum", "velocity",
                                              "maximum", "rate", "step", "scale", NULL },
             .outputs = (const char *const[]){ "new_parameter", "new_momentum", "new_velocity",
                                               "new_maximum", "copy", NULL },
             .names = names, RG_UPDATE_ENTRIES);

rg_status rg_adam_create(rg_device *device, const rg_adam_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_adam, desc, kernel);
}
