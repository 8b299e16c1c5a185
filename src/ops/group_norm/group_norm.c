/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization: description, validation, shape rule, state; group_norm_record.c records. */
#include "ops/group_norm/group_norm_record.h"
#include "ops/neuron/neuron_fields.h"
#include "ops/norm/norm_record.h"

#include <float.h>

/* ---- description ---- */

static const rg_group_norm_desc defaults = {
    .size = sizeof(rg_group_norm_desc),
    .groups = 1,
    .axis = 1,
    .gamma = true,
    .beta = true,
    .epsilon = (double)FLT_MIN,
    .neuron = { .size = sizeof(rg_neuron_desc), .kind = RG_NEURON_NONE },
};

rg_group_norm_desc rg_group_norm_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_IN(rg_group_norm_desc, groups, 0, 0x1p53,
                "number of channel groups; 0: one per channel"),
    RG_FIELD(rg_group_norm_desc, axis, "first dimension of an image; negative: from the last"),
    RG_FIELD(rg_group_norm_desc, gamma, "whether gamma is an input; otherwise 1"),
    RG_FIELD(rg_group_norm_desc, beta, "whether beta is an input; otherwise 0"),
    RG_FIELD_IN(rg_group_norm_desc, epsilon, 0, DBL_MAX, "added to the variance"),
    RG_FIELD(rg_group_norm_desc, image_gradients,
             "store dgamma and dbeta of each image in the state"),
    RG_FIELD_STRUCT(rg_group_norm_desc, neuron, rg_neuron_fields,
                    "activation applied to the result"),
    { .name = NULL },
};

#define IMAGE "sourceImage=x destinationImage=y"
#define IMAGE_GRAD                                            \
    "sourceGradient=dy sourceImage=x destinationGradient=dx " \
    "gradientForGamma=dgamma gradientForBeta=dbeta"
#define IMAGES "image_gradients=true "

static const rg_op_name names[] = {
    { "MPSCNNGroupNormalization", false, IMAGES, IMAGE, 3, 4 },
    { "MPSCNNGroupNormalizationGradient", true, IMAGES, IMAGE_GRAD, 3, 4 },
    { "MPSCNNInstanceNormalization", false, IMAGES "groups=0", IMAGE, 3, 4 },
    { "MPSCNNInstanceNormalizationGradient", true, IMAGES "groups=0", IMAGE_GRAD, 3, 4 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    return rg_norm_check_neuron(&((const rg_group_norm_desc *)desc)->neuron, "group_norm");
}

static int32_t count_inputs(const void *desc)
{
    const rg_group_norm_desc *d = desc;
    return 1 + (d->gamma ? 1 : 0) + (d->beta ? 1 : 0);
}

static const char *const *input_names(const void *desc)
{
    static const char *const all[4][4] = {
        { "x", NULL }, { "x", "gamma", NULL }, { "x", "beta", NULL }, { "x", "gamma", "beta", NULL }
    };
    const rg_group_norm_desc *d = desc;
    return all[(d->gamma ? 1 : 0) + (d->beta ? 2 : 0)];
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_group_norm_desc *d = desc;
    RG_TRY(rg_norm_check_x(x, "group_norm"));
    const int64_t channels = x->dims[x->rank - 1];
    RG_CHECK(d->axis >= -x->rank && d->axis < x->rank, RG_INVALID_ARGUMENT,
             "group_norm: axis is %lld, but x has rank %d", (long long)d->axis, x->rank);
    RG_CHECK(channels % rg_group_norm_groups_of(d, x) == 0, RG_INVALID_ARGUMENT,
             "group_norm: %lld groups do not divide %lld channels", (long long)d->groups,
             (long long)channels);
    for (int32_t i = 1; i < count_inputs(d); i++)
        RG_TRY(rg_norm_check_parameter(x, i, input_names(d)[i], "group_norm"));
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    return RG_OK;
}

static uint32_t reads(const void *desc)
{
    const rg_group_norm_desc *d = desc;
    uint32_t bits = RG_READS_X | RG_READS_WITH_STATE;
    bits |= d->gamma ? (uint32_t)RG_READS_X << 1 : 0;
    if (d->beta && d->neuron.kind != RG_NEURON_NONE)
        bits |= (uint32_t)RG_READS_X << (d->gamma ? 2 : 1);
    return bits;
}

/* ---- state ---- */

static int64_t images_of(const rg_group_norm_desc *d, const rg_tensor_desc *x)
{
    int64_t images = 1;
    for (int32_t i = 0; i < rg_group_norm_axis_of(d, x->rank); i++)
        images *= x->dims[i];
    return images;
}

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    const rg_group_norm_desc *d = desc;
    const int64_t groups[] = { images_of(d, x), rg_group_norm_groups_of(d, x) };
    const int64_t channels[] = { groups[0], x->dims[x->rank - 1] };
    const rg_dtype real = rg_norm_real(x->dtype);
    const rg_tensor_desc each = rg_tensor_desc_dense(real, 2, groups);
    slots[RG_GROUP_NORM_MEAN] = (rg_state_slot){ "mean", each };
    slots[RG_GROUP_NORM_REST] = (rg_state_slot){ "mean_rest", each };
    slots[RG_GROUP_NORM_S] = (rg_state_slot){ "inverse_sigma", each };
    if (!d->image_gradients)
        return RG_GROUP_NORM_DGAMMA;
    slots[RG_GROUP_NORM_DGAMMA] =
        (rg_state_slot){ "dgamma", rg_tensor_desc_dense(real, 2, channels) };
    slots[RG_GROUP_NORM_DBETA] =
        (rg_state_slot){ "dbeta", rg_tensor_desc_dense(real, 2, channels) };
    return RG_GROUP_NORM_DBETA + 1;
}

static bool writes_state(const void *desc, bool is_gradient)
{
    return !is_gradient || ((const rg_group_norm_desc *)desc)->image_gradients;
}

/* ---- forward and gradient ---- */

static const rg_strategy *const strategies[] = { RG_GROUP_NORM_STRATEGIES(RG_STRATEGY_ENTRY) NULL };

static rg_status forward(rg_call *call)
{
    return rg_strategy_run(call, strategies, &(rg_group_norm_request){ .gradient = false });
}

static rg_status gradient(rg_call *call)
{
    return rg_strategy_run(call, strategies, &(rg_group_norm_request){ .gradient = true });
}

RG_OP_DEFINE(group_norm, .text = "group, instance and layer normalization",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", "gamma", "beta", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .aliases = (const rg_alias[]){ RG_X_AS_Y(0, 0), RG_DY_AS_DX(0, 0), RG_X_AS_DX(0, 0),
                                            0 },
             .count_inputs = count_inputs, .input_names = input_names, .check = check,
             .shapes = shapes, .state = make_slots, .writes_state = writes_state, .reads = reads,
             .forward = forward, .gradient = gradient, .fusion = { .is_cheap = true },
             .strategies = (const rg_strategy *const *const[]){ strategies, NULL });

rg_status rg_group_norm_create(rg_device *device, const rg_group_norm_desc *desc,
                               rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_group_norm, desc, kernel);
}

/* With other groups and another axis. */
static rg_status create(rg_device *device, const rg_group_norm_desc *desc, int64_t groups,
                        int64_t axis, rg_kernel **kernel)
{
    rg_group_norm_desc own = defaults;
    RG_CHECK(kernel != NULL, RG_INVALID_ARGUMENT, "group_norm: kernel is NULL");
    *kernel = NULL;
    if (desc != NULL)
        RG_TRY(rg_fields_copy(&rg_op_group_norm.desc, "group_norm", desc, &own));
    own.groups = groups;
    own.axis = axis;
    return rg_kernel_create(device, &rg_op_group_norm, &own, kernel);
}

rg_status rg_instance_norm_create(rg_device *device, const rg_group_norm_desc *desc,
                                  rg_kernel **kernel)
{
    return create(device, desc, 0, 1, kernel);
}

rg_status rg_layer_norm_create(rg_device *device, const rg_group_norm_desc *desc,
                               rg_kernel **kernel)
{
    return create(device, desc, 1, -1, kernel);
}
