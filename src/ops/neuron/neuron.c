/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons: description, validation, shape rule, forward, gradient. */
#include "ops/neuron/neuron.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/neuron.h>

/* ---- description ---- */

static const rg_neuron_desc defaults = {
    .size = sizeof(rg_neuron_desc),
    .kind = RG_NEURON_RELU,
    .a = 0,
    .b = 1,
    .from_y = false,
};

rg_neuron_desc rg_neuron_desc_default(void)
{
    return defaults;
}

static const char *const kinds[] = { "relu", "sigmoid", "tanh", NULL };

static const rg_field fields[] = {
    { .name = "kind",
      .type = RG_FIELD_ENUM,
      .offset = offsetof(rg_neuron_desc, kind),
      .names = kinds,
      .text = "the function" },
    { .name = "a",
      .type = RG_FIELD_F64,
      .offset = offsetof(rg_neuron_desc, a),
      .text = "relu: slope below 0; tanh: factor" },
    { .name = "b",
      .type = RG_FIELD_F64,
      .offset = offsetof(rg_neuron_desc, b),
      .text = "tanh: factor of x" },
    { .name = "from_y",
      .type = RG_FIELD_BOOL,
      .offset = offsetof(rg_neuron_desc, from_y),
      .text = "the gradient reads y instead of x" },
    { .name = NULL },
};

#define IMAGE      "sourceImage=x destinationImage=y"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"

static const rg_op_name names[] = {
    { "MPSCNNNeuronReLU", false, "kind=relu", IMAGE, 3, 4 },
    { "MPSCNNNeuronSigmoid", false, "kind=sigmoid", IMAGE, 3, 4 },
    { "MPSCNNNeuronTanH", false, "kind=tanh a=1", IMAGE, 3, 4 },
    { "MPSCNNNeuronGradient", true, "", IMAGE_GRAD, 3, 4 },
    { "ReluGrad", true, "kind=relu", "dY=dy X=x dX=dx", 0, 0 },
    { "SigmoidGrad", true, "kind=sigmoid from_y=true", "dY=dy Y=y dX=dx", 0, 0 },
    { "TanhGrad", true, "kind=tanh a=1 from_y=true", "dY=dy Y=y dX=dx", 0, 0 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    const rg_neuron_desc *d = desc;
    RG_CHECK(!d->from_y || d->kind != RG_NEURON_RELU || d->a >= 0, RG_INVALID_ARGUMENT,
             "neuron: relu with a = %g does not tell its slope from y; a must be 0 or more", d->a);
    RG_CHECK(d->kind != RG_NEURON_TANH || d->a != 0, RG_INVALID_ARGUMENT,
             "neuron: tanh with a = 0 is 0 everywhere; its usual a is 1");
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    (void)desc;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "neuron: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    return RG_OK;
}

static uint32_t reads(const void *desc)
{
    return ((const rg_neuron_desc *)desc)->from_y ? RG_READS_Y : RG_READS_X;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    (void)desc;
    (void)x;
    return true;
}

/* ---- forward and gradient ---- */

static void lay_out(const rg_tensor *const tensors[], int count, rg_sweep *sweep, rg_launch *launch)
{
    const rg_tensor_desc *descs[RG_WALK_TENSORS];
    for (int t = 0; t < count; t++)
        descs[t] = &tensors[t]->desc;
    *sweep = rg_sweep_make(descs, count);
    launch->dtype = descs[0]->dtype;
    launch->units = rg_sweep_units(sweep);
    launch->grain = 1;
    launch->bytes = rg_shape_count(descs[0]) * (int64_t)rg_dtype_size(launch->dtype) * count;
}

static rg_status forward(rg_call *call)
{
    const rg_neuron_desc *desc = call->desc;
    rg_neuron_args args = { .a = desc->a, .b = desc->b };
    rg_launch launch = { .tensors = { call->x[0], call->y[0] },
                         .kernel = RG_RELU_FORWARD + (int32_t)desc->kind,
                         .args = &args,
                         .args_size = sizeof args };
    lay_out(launch.tensors, 2, &args.sweep, &launch);
    args.stream = rg_call_streams(call, launch.bytes / 2);
    return rg_record(call, &launch);
}

static rg_status gradient(rg_call *call)
{
    const rg_neuron_desc *desc = call->desc;
    rg_neuron_gradient_args args = { .a = desc->a, .b = desc->b, .add = call->add & 1 };
    rg_launch launch = { .tensors = { call->dy[0], desc->from_y ? call->y[0] : call->x[0],
                                      call->dx[0] },
                         .kernel = RG_RELU_GRADIENT + (int32_t)desc->kind,
                         .args = &args,
                         .args_size = sizeof args };
    if (desc->from_y && desc->kind != RG_NEURON_RELU)
        launch.kernel += RG_SIGMOID_GRADIENT_Y - RG_SIGMOID_GRADIENT;
    lay_out(launch.tensors, 3, &args.sweep, &launch);
    args.stream = !args.add && rg_call_streams(call, launch.bytes / 3);
    return rg_record(call, &launch);
}

RG_OP_DEFINE(neuron, .text = "activation functions, element by element",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .alias = "x0=y0 dy0=dx0 x0=dx0 y0=dx0", .check = check, .shapes = shapes,
             .reads = reads, .joins = joins, .forward = forward, .gradient = gradient);

rg_status rg_neuron_create(rg_device *device, const rg_neuron_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_neuron, desc, kernel);
}
