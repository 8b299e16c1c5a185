/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient descent: description, validation, shape rule, forward. */
#include "ops/optimizer/update_record.h"

#include <retrograde/sgd.h>

/* ---- description ---- */

static const rg_sgd_desc defaults = {
    .size = sizeof(rg_sgd_desc),
    .gradient = RG_GRADIENT_RULES_DEFAULT,
};

rg_sgd_desc rg_sgd_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_NAMED(
        rg_sgd_desc, form, rg_update_forms,
        "momentum accumulates gradients times the learning rate (mps) or gradients (torch)"),
    RG_FIELD_IN(rg_sgd_desc, momentum, 0, 1, "momentum; 0: none"),
    RG_FIELD(rg_sgd_desc, nesterov, "use Nesterov momentum"),
    RG_UPDATE_FIELDS(rg_sgd_desc),
};

static const rg_op_name names[] = {
    { "MPSNNOptimizerStochasticGradientDescent", false, "",
      "inputValuesVector=parameter inputGradientVector=gradient inputMomentumVector=momentum "
      "learningRate=rate resultValuesVector=new_parameter",
      0, 0 },
    { .name = NULL },
};

static rg_update_plan plan_of(const void *desc)
{
    const rg_sgd_desc *d = desc;
    return (rg_update_plan){ .op = "sgd",
                             .gradient = &d->gradient,
                             .scaled = d->scaled,
                             .copy = d->copy,
                             .numbers = { .momentum = d->momentum,
                                          .moments = d->momentum != 0,
                                          .mps = d->form == RG_UPDATE_MPS,
                                          .nesterov = d->nesterov } };
}

static const char *const *input_names(const void *desc)
{
    static const char *const plain[] = { "parameter", "gradient", "rate", "scale", NULL };
    static const char *const all[] = { "parameter", "gradient", "momentum", "rate", "scale", NULL };
    return ((const rg_sgd_desc *)desc)->momentum != 0 ? all : plain;
}

static const char *const *output_names(const void *desc)
{
    static const char *const plain[] = { "new_parameter", "copy", NULL };
    static const char *const all[] = { "new_parameter", "new_momentum", "copy", NULL };
    return ((const rg_sgd_desc *)desc)->momentum != 0 ? all : plain;
}

/* ---- validation; shape rule and forward are those of all optimizers ---- */

static rg_status check(const void *desc)
{
    const rg_sgd_desc *d = desc;
    const rg_update_plan plan = plan_of(desc);
    RG_CHECK(!d->nesterov || d->momentum != 0, RG_INVALID_ARGUMENT,
             "sgd: nesterov is true, but momentum is 0");
    return rg_update_check(&plan);
}

RG_UPDATE_FUNCTIONS

/* ---- the op ---- */

RG_OP_DEFINE(sgd, .text = "one step of stochastic gradient descent with momentum",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "parameter", "gradient", "momentum", "rate", "scale",
                                              NULL },
             .outputs = (const char *const[]){ "new_parameter", "new_momentum", "copy", NULL },
             .names = names, RG_UPDATE_ENTRIES);

rg_status rg_sgd_create(rg_device *device, const rg_sgd_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_sgd, desc, kernel);
}
