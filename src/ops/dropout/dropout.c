/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dropout: description, validation, shape rule, state, forward, gradient. */
#include "ops/dropout/dropout.h"
#include "core/integer.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/dropout.h>

/* ---- description ---- */

static const rg_dropout_desc defaults = {
    .size = sizeof(rg_dropout_desc),
    .keep = 0.5,
};

rg_dropout_desc rg_dropout_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_IN(rg_dropout_desc, keep, 0, 1,
                "probability that an element is kept; must be greater than 0"),
    RG_FIELD(rg_dropout_desc, seed, "seed of the random numbers"),
    RG_FIELD(rg_dropout_desc, step, "number of the forward pass; each step has its own mask"),
    RG_FIELD(rg_dropout_desc, step_input, "a second input, of rank 0 and i64, is added to step"),
    RG_FIELD_COUNTED(rg_dropout_desc, broadcast, 0, 0,
                     "dimensions along which the mask is broadcast; negative: from the last"),
    { .name = NULL },
};

static const rg_op_name names[] = {
    { "MPSCNNDropout", false, "", "sourceImage=x destinationImage=y", 3, 4 },
    { "MPSCNNDropoutGradient", true, "", "sourceGradient=dy sourceImage=x destinationGradient=dx",
      3, 4 },
    { .name = NULL },
};

static int32_t count_inputs(const void *desc)
{
    return ((const rg_dropout_desc *)desc)->step_input ? 2 : 1;
}

/* A step has none. */
static uint32_t no_gradient(const void *desc)
{
    return ((const rg_dropout_desc *)desc)->step_input ? 2 : 0;
}

static bool with_run_number(void *desc)
{
    rg_dropout_desc *d = desc;
    const bool can = !d->step_input;
    d->step_input = true;
    return can;
}

/* ---- validation, shape rule, state ---- */

static rg_status check(const void *desc)
{
    const rg_dropout_desc *d = desc;
    RG_CHECK(d->keep > 0, RG_INVALID_ARGUMENT, "dropout: keep must be greater than 0, not %g",
             d->keep);
    return RG_OK;
}

static rg_status check_broadcast(const rg_dropout_desc *d, int32_t rank)
{
    uint32_t seen = 0;
    for (int32_t i = 0; i < d->broadcast_count; i++) {
        const int64_t axis = d->broadcast[i];
        RG_CHECK(axis >= -rank && axis < rank, RG_INVALID_ARGUMENT,
                 "dropout: broadcast has dimension %lld, but x has rank %d", (long long)axis, rank);
        const uint32_t bit = 1u << (axis < 0 ? axis + rank : axis);
        RG_CHECK((seen & bit) == 0, RG_INVALID_ARGUMENT,
                 "dropout: broadcast has dimension %lld twice", (long long)axis);
        seen |= bit;
    }
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_dropout_desc *d = desc;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "dropout: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_TRY(check_broadcast(d, x->rank));
    char text[RG_SHAPE_TEXT];
    RG_CHECK(!d->step_input || (x[1].dtype == RG_I64 && x[1].rank == 0), RG_INVALID_ARGUMENT,
             "dropout: step is %s; it must be i64 of rank 0", rg_shape_text(&x[1], text));
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    return RG_OK;
}

/* The mask over the dims of x: strides are in bits, 0 where it is broadcast. Returns how many bits
 * it has. */
static int64_t lay_mask(const rg_dropout_desc *d, const rg_tensor_desc *x, rg_tensor_desc *mask)
{
    *mask = *x;
    for (int32_t i = 0; i < d->broadcast_count; i++) {
        const int64_t axis = d->broadcast[i];
        mask->dims[axis < 0 ? axis + x->rank : axis] = 1;
    }
    int64_t count = 1;
    for (int32_t i = x->rank - 1; i >= 0; i--) {
        mask->strides[i] = mask->dims[i] == 1 ? 0 : count;
        count *= mask->dims[i];
        mask->dims[i] = x->dims[i];
    }
    return count;
}

static int32_t state(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    rg_tensor_desc mask;
    const int64_t bytes = (lay_mask(desc, x, &mask) + 7) / 8;
    slots[0] = (rg_state_slot){ "mask", rg_tensor_desc_dense(RG_U8, 1, &bytes) };
    return 1;
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return RG_READS_STATE;
}

/* ---- forward and gradient ---- */

/* Not more than 2^32, so that words of 32 bits can be compared with one less. */
static uint32_t limit_of(double keep)
{
    const double threshold = keep * 0x1p32 + 0.5;
    return threshold < 1 ? 0 : (uint32_t)((uint64_t)threshold - 1);
}

/* From the key of one image to that of the next: 2^64 divided by the golden ratio. */
static void image_desc(void *desc, int64_t n)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    rg_dropout_desc *d = desc;
    d->seed = (int64_t)((uint64_t)d->seed + (uint64_t)n * step);
}

static rg_dropout_args make_args(const rg_call *call, const rg_tensor *x, const rg_tensor *y)
{
    const rg_dropout_desc *d = call->desc;
    rg_dropout_desc own = *d;
    image_desc(&own, call->image);
    rg_dropout_args args = { .scale = 1 / d->keep,
                             .seed = (uint64_t)own.seed,
                             .step = (uint64_t)d->step,
                             .limit = limit_of(d->keep),
                             .has_step = d->step_input && call->x[1] != NULL };
    rg_tensor_desc mask;
    args.count = lay_mask(d, &x->desc, &mask);
    const rg_tensor_desc *const descs[] = { &x->desc, &y->desc, &mask };
    rg_sweep *s = &args.sweep;
    *s = rg_sweep_make(descs, 3);
    s->piece = RG_DROPOUT_PIECE;
    s->pieces = rg_ceil_div(s->length, s->piece);
    args.dense = s->length == 1 || (s->step[0] == 1 && s->step[1] == 1);
    return args;
}

/* One launch of a kernel that reads x and writes y. */
static rg_status record(rg_call *call, int32_t kernel, rg_dropout_args *args, const rg_tensor *x,
                        const rg_tensor *y, const rg_tensor *mask)
{
    const int64_t count = rg_shape_count(&x->desc);
    const int64_t bytes = count * (int64_t)rg_dtype_size(x->desc.dtype);
    const int64_t length = args->sweep.length;
    rg_launch launch = { .tensors = { RG_BIND(*args, x, x), RG_BIND(*args, y, y),
                                      RG_BIND(*args, mask, mask != NULL ? mask : y) },
                         .kernel = kernel,
                         .dtype = x->desc.dtype,
                         RG_ARGS(*args),
                         .units = rg_sweep_units(&args->sweep),
                         .grain = length > 0 && length < RG_DROPOUT_PIECE
                                      ? RG_DROPOUT_PIECE / length
                                      : 1,
                         .bytes = 2 * bytes + args->count / 8 };
    if (args->has_step)
        launch.tensors[RG_POINTER(*args, step_input)] = call->x[1];
    args->stream = !args->add && rg_call_streams(call, bytes);
    return rg_record(call, &launch);
}

static rg_status record_mask(rg_call *call, const rg_dropout_args *args, rg_dtype dtype,
                             const rg_tensor *mask)
{
    rg_launch launch = { .tensors = { RG_BIND(*args, x, mask), RG_BIND(*args, y, mask),
                                      RG_BIND(*args, mask, mask) },
                         .kernel = RG_DROPOUT_MASK,
                         .dtype = dtype,
                         RG_ARGS(*args),
                         .units = rg_ceil_div(args->count, RG_DROPOUT_PIECE),
                         .bytes = args->count / 8 };
    if (args->has_step)
        launch.tensors[RG_POINTER(*args, step_input)] = call->x[1];
    return rg_record(call, &launch);
}

/* Where every element has a bit of its own, the forward kernel also writes the mask of the state;
 * otherwise the mask is made first, and the kernel reads it. */
static rg_status forward(rg_call *call)
{
    const rg_tensor *x = call->x[0], *y = call->y[0];
    const rg_tensor *mask = call->state != NULL ? rg_state_slot_tensor(call->state, 0) : NULL;
    rg_dropout_args args = make_args(call, x, y);
    const rg_sweep *s = &args.sweep;
    const bool flat = args.dense && s->outer.count == 1 && s->length == args.count;
    args.keeps_mask = mask != NULL && flat;
    if (mask == NULL || flat)
        return record(call, RG_DROPOUT_FORWARD, &args, x, y, mask);
    RG_TRY(record_mask(call, &args, x->desc.dtype, mask));
    args.has_step = false;
    return record(call, RG_DROPOUT_APPLY, &args, x, y, mask);
}

static rg_status gradient(rg_call *call)
{
    rg_dropout_args args = make_args(call, call->dy[0], call->dx[0]);
    args.has_step = false;
    args.add = call->add & 1;
    return record(call, RG_DROPOUT_APPLY, &args, call->dy[0], call->dx[0],
                  rg_state_slot_tensor(call->state, 0));
}

RG_OP_DEFINE(dropout, .text = "dropout: sets random elements to 0 and scales the rest",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", "step", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .fusion = { .with_run_number = with_run_number }, .image_desc = image_desc,
             .aliases = (const rg_alias[]){ RG_X_AS_Y(0, 0), RG_DY_AS_DX(0, 0), 0 },
             .count_inputs = count_inputs, .no_gradient = no_gradient, .check = check,
             .shapes = shapes, .state = state, .reads = reads, .forward = forward,
             .gradient = gradient);

rg_status rg_dropout_create(rg_device *device, const rg_dropout_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_dropout, desc, kernel);
}
