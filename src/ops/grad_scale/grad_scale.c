/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Factors of a step: description, validation, shape rule, forward. */
#include "ops/grad_scale/grad_scale.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/grad_scale.h>

#include <float.h>
#include <math.h>

/* ---- description ---- */

static const rg_grad_scale_desc defaults = {
    .size = sizeof(rg_grad_scale_desc),
    .max_norm = (double)INFINITY,
    .epsilon = 1e-6,
    .growth = 2,
    .backoff = 0.5,
    .interval = 2000,
};

rg_grad_scale_desc rg_grad_scale_desc_default(void)
{
    return defaults;
}

static const char *const scalings[] = { "none", "static", "dynamic", NULL };

static const rg_field fields[] = {
    RG_FIELD_IN(rg_grad_scale_desc, max_norm, 0, (double)INFINITY,
                "gradient clipping: largest norm of all gradients"),
    RG_FIELD_IN(rg_grad_scale_desc, epsilon, 0, DBL_MAX, "added to the norm"),
    RG_FIELD_NAMED(rg_grad_scale_desc, scaling, scalings,
                   "loss scaling: none, static (an input) or dynamic"),
    RG_FIELD_IN(rg_grad_scale_desc, growth, 1, DBL_MAX,
                "dynamic: factor of the scale after `interval` finite steps"),
    RG_FIELD_IN(rg_grad_scale_desc, backoff, 0, 1,
                "dynamic: factor of the scale after a gradient overflows"),
    RG_FIELD(rg_grad_scale_desc, interval,
             "dynamic: finite steps before the scale grows; at least 1"),
    RG_FIELD(rg_grad_scale_desc, stepped,
             "a last input and output count the steps that were taken"),
    { .name = NULL },
};

static const rg_op_name names[] = { { .name = NULL } };

static bool is_scaled(const rg_grad_scale_desc *d)
{
    return d->scaling != RG_LOSS_SCALING_NONE;
}

static bool is_dynamic(const rg_grad_scale_desc *d)
{
    return d->scaling == RG_LOSS_SCALING_DYNAMIC;
}

static int32_t count_inputs(const void *desc)
{
    const rg_grad_scale_desc *d = desc;
    return 1 + is_scaled(d) + is_dynamic(d) + d->stepped;
}

static int32_t count_outputs(const void *desc)
{
    const rg_grad_scale_desc *d = desc;
    return 2 + 2 * is_dynamic(d) + d->stepped;
}

static const char *const *input_names(const void *desc)
{
    static const char *const all[][5] = {
        [RG_LOSS_SCALING_NONE] = { "squares", "step", NULL },
        [RG_LOSS_SCALING_STATIC] = { "squares", "scale", "step", NULL },
        [RG_LOSS_SCALING_DYNAMIC] = { "squares", "scale", "good", "step", NULL },
    };
    return all[((const rg_grad_scale_desc *)desc)->scaling];
}

static const char *const *output_names(const void *desc)
{
    static const char *const plain[] = { "factor", "norm", "new_step", NULL };
    static const char *const all[] = {
        "factor", "norm", "new_scale", "new_good", "new_step", NULL
    };
    return is_dynamic(desc) ? all : plain;
}

static const rg_alias *aliases_of(const void *desc)
{
    const rg_grad_scale_desc *d = desc;
    static const rg_alias pairs[][4] = {
        { RG_X_AS_Y(1, 2) },
        { RG_X_AS_Y(2, 2) },
        { RG_X_AS_Y(1, 2), RG_X_AS_Y(2, 3), RG_X_AS_Y(3, 4) },
    };
    return pairs[d->scaling];
}

/* ---- validation, shape rule, forward ---- */

static rg_status check(const void *desc)
{
    const rg_grad_scale_desc *d = desc;
    RG_CHECK(d->interval >= 1, RG_INVALID_ARGUMENT,
             "grad_scale: interval must be at least 1, not %lld", (long long)d->interval);
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_grad_scale_desc *d = desc;
    char text[RG_SHAPE_TEXT];
    RG_CHECK(x->dtype == RG_F32 || x->dtype == RG_F64, RG_INVALID_ARGUMENT,
             "grad_scale: squares is %s; f32 and f64 are supported", rg_dtype_name(x->dtype));
    for (int32_t i = 1; i < count_inputs(d); i++) {
        const rg_dtype dtype = i == 1 && is_scaled(d) ? x->dtype : RG_I64;
        RG_CHECK(x[i].rank == 0 && x[i].dtype == dtype, RG_INVALID_ARGUMENT,
                 "grad_scale: %s is %s; it must be of rank 0 and %s", input_names(d)[i],
                 rg_shape_text(&x[i], text), rg_dtype_name(dtype));
    }
    for (int32_t i = 0; i < count_outputs(d); i++) {
        const bool real = i < 2 || (i == 2 && is_dynamic(d));
        y[i] = rg_tensor_desc_dense(real ? x->dtype : RG_I64, 0, NULL);
    }
    return RG_OK;
}

static rg_status forward(rg_call *call)
{
    const rg_grad_scale_desc *d = call->desc;
    const rg_tensor_desc *squares = &call->x[0]->desc;
    const bool scaled = is_scaled(d), dynamic = is_dynamic(d);
    const rg_grad_scale_args args = { .walk = rg_walk_make(&squares, 1, 0, squares->rank),
                                      .max_norm = d->max_norm,
                                      .epsilon = d->epsilon,
                                      .growth = d->growth,
                                      .backoff = d->backoff,
                                      .interval = d->interval };
    const rg_launch launch = {
        .kernel = RG_GRAD_SCALE_FORWARD,
        .dtype = squares->dtype,
        RG_ARGS(args),
        .tensors = { RG_BIND(args, squares, call->x[0]),
                     RG_BIND(args, scale, scaled ? call->x[1] : NULL),
                     RG_BIND(args, good, dynamic ? call->x[2] : NULL),
                     RG_BIND(args, step, d->stepped ? call->x[1 + scaled + dynamic] : NULL),
                     RG_BIND(args, factor, call->y[0]), RG_BIND(args, norm, call->y[1]),
                     RG_BIND(args, new_scale, dynamic ? call->y[2] : NULL),
                     RG_BIND(args, new_good, dynamic ? call->y[3] : NULL),
                     RG_BIND(args, new_step, d->stepped ? call->y[2 + 2 * dynamic] : NULL) },
        .units = 1,
        .bytes = 8 * args.walk.count
    };
    return rg_record(call, &launch);
}

RG_OP_DEFINE(grad_scale, .text = "gradient clipping by the global norm, and loss scaling",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "squares", "scale", "good", "step", NULL },
             .outputs = (const char *const[]){ "factor", "norm", "new_scale", "new_good",
                                               "new_step", NULL },
             .names = names, .aliases_of = aliases_of, .count_inputs = count_inputs,
             .count_outputs = count_outputs, .input_names = input_names,
             .output_names = output_names, .check = check, .shapes = shapes, .forward = forward);

rg_status rg_grad_scale_create(rg_device *device, const rg_grad_scale_desc *desc,
                               rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_grad_scale, desc, kernel);
}
