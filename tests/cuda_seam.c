/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The op made up for GPUs: description, shape rule, state, forward, gradient. */
#include "cuda_seam.h"
#include "core/shape.h"
#include "runtime/objects.h"

/* ---- description ---- */

static const seam_desc defaults = { .size = sizeof(seam_desc), .scale = 1 };

seam_desc seam_desc_of(int32_t number)
{
    seam_desc desc = defaults;
    desc.number = number;
    return desc;
}

static const char *const modes[] = { "works", "crashes", "launches_badly", "stops_half_way", NULL };
static const rg_field fields[] = {
    { .name = "number",
      .type = RG_FIELD_I32,
      .offset = offsetof(seam_desc, number),
      .low = 0,
      .high = 3 },
    { .name = "mode", .type = RG_FIELD_ENUM, .offset = offsetof(seam_desc, mode), .names = modes },
    { .name = "scale", .type = RG_FIELD_F64, .offset = offsetof(seam_desc, scale) },
    { .name = NULL },
};

static const char *const sentences[] = {
    "seam 0: an element of a is 666",
    "seam 1: an element of a is 666",
    "seam 2: an element of a is 666",
    "seam 3: an element of a is 666",
};

static const char *const inputs[] = { "a", "b", NULL };
static const char *const outputs[] = { "y", NULL };

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    (void)desc;
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    RG_CHECK(rg_shape_same_dims(&x[0], &x[1]) && x[0].dtype == x[1].dtype, RG_INVALID_ARGUMENT,
             "seam: b is %s where %s is needed", rg_shape_text(&x[1], have),
             rg_shape_text(&x[0], want));
    y[0] = rg_tensor_desc_dense(x[0].dtype, x[0].rank, x[0].dims);
    return RG_OK;
}

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    (void)desc;
    slots[0] = (rg_state_slot){ "kept", rg_tensor_desc_dense(x[0].dtype, x[0].rank, x[0].dims) };
    return 1;
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return RG_READS_X << 1 | RG_READS_STATE;
}

static const rg_cuda_table table = { seam_rows, SEAM_NOTHING };
static const rg_cuda_table *const tables[] = { &table, NULL };
static const rg_kernel_table kernels = { .cuda = tables };

/* ---- forward and gradient ---- */

static rg_launch launch_of(const rg_tensor *like, int32_t kernel, const void *args, size_t size)
{
    return (rg_launch){ .kernel = kernel,
                        .dtype = like->desc.dtype,
                        .args = args,
                        .args_size = size,
                        .units = rg_shape_count(&like->desc),
                        .grain = 1 };
}

/* One of the kernels that read a and write y. */
static rg_status go_wrong(rg_call *call, int32_t kernel)
{
    const seam_keep_args args = { .count = rg_shape_count(&call->x[0]->desc) };
    rg_launch launch = launch_of(call->y[0], kernel, &args, sizeof args);
    launch.tensors[RG_POINTER(args, kept)] = call->y[0];
    launch.tensors[RG_POINTER(args, a)] = call->x[0];
    return rg_record(call, &launch);
}

static rg_status forward(rg_call *call)
{
    const seam_desc *desc = call->desc;
    if (desc->mode == SEAM_CRASHES)
        return go_wrong(call, SEAM_CRASH);
    if (desc->mode == SEAM_LAUNCHES_BADLY)
        return go_wrong(call, SEAM_BAD_LAUNCH);
    const int64_t count = rg_shape_count(&call->y[0]->desc);
    const seam_product_args product = { .count = count, .scale = (float)desc->scale };
    rg_launch first = launch_of(call->y[0], SEAM_PRODUCT, &product, sizeof product);
    first.tensors[RG_POINTER(product, y)] = call->y[0];
    first.tensors[RG_POINTER(product, a)] = call->x[0];
    first.tensors[RG_POINTER(product, b)] = call->x[1];
    first.scratch = (size_t)count * sizeof(float);
    first.scratch_at = RG_POINTER(product, scratch);
    first.fault_at = RG_POINTER(product, fault);
    first.fault_text = sentences[desc->number];
    RG_TRY(rg_record(call, &first));
    if (desc->mode == SEAM_STOPS_HALF_WAY)
        return go_wrong(call, SEAM_NOTHING);
    if (call->state == NULL)
        return RG_OK;
    const seam_keep_args keep = { .count = count };
    rg_launch second = launch_of(call->y[0], SEAM_KEEP, &keep, sizeof keep);
    second.tensors[RG_POINTER(keep, kept)] = rg_state_slot_tensor(call->state, 0);
    second.tensors[RG_POINTER(keep, a)] = call->x[0];
    return rg_record(call, &second);
}

static rg_status gradient(rg_call *call)
{
    const seam_desc *desc = call->desc;
    for (int32_t i = 0; i < 2; i++) {
        if (call->dx[i] == NULL)
            continue;
        const seam_gradient_args args = { .count = rg_shape_count(&call->dy[0]->desc),
                                          .scale = (float)desc->scale,
                                          .reverses = i == 0,
                                          .add = call->add >> i & 1 };
        rg_launch launch = launch_of(call->dy[0], SEAM_GRADIENT, &args, sizeof args);
        launch.tensors[RG_POINTER(args, out)] = call->dx[i];
        launch.tensors[RG_POINTER(args, dy)] = call->dy[0];
        launch.tensors[RG_POINTER(args, other)] =
            i == 0 ? call->x[1] : rg_state_slot_tensor(call->state, 0);
        RG_TRY(rg_record(call, &launch));
    }
    return RG_OK;
}

const rg_op seam_op = {
    .name = "seam",
    .text = "made up",
    .desc = { fields, &defaults, sizeof defaults },
    .inputs = inputs,
    .outputs = outputs,
    .shapes = shapes,
    .state = make_slots,
    .reads = reads,
    .forward = forward,
    .gradient = gradient,
    .kernels = &kernels,
};
