/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The made-up op: description, shape rule, state, kernels, forward, gradient. */
#include "api_seam.h"
#include "core/shape.h"
#include "runtime/objects.h"

#include <stdatomic.h>

_Atomic int mix_products[MIX_MOST], mix_tiles, mix_odd_tiles, mix_first, mix_launches;

void mix_forget(void)
{
    mix_tiles = mix_odd_tiles = mix_first = mix_launches = 0;
    for (int i = 0; i < MIX_MOST; i++)
        mix_products[i] = 0;
}

/* ---- description ---- */

static const mix_desc defaults = { .size = sizeof(mix_desc), .bias = false, .scale = 1 };

mix_desc mix_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    { .name = "bias", .type = RG_FIELD_BOOL, .offset = offsetof(mix_desc, bias) },
    { .name = "scale",
      .type = RG_FIELD_F64,
      .offset = offsetof(mix_desc, scale),
      .low = -100,
      .high = 100 },
    { .name = NULL },
};

static const char *const inputs[] = { "a", "b", "c", NULL };
static const char *const outputs[] = { "y", NULL };

static int32_t count_inputs(const void *desc)
{
    return ((const mix_desc *)desc)->bias ? 3 : 2;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    for (int32_t i = 1; i < count_inputs(desc); i++) {
        char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
        RG_CHECK(rg_shape_same_dims(&x[0], &x[i]) && x[0].dtype == x[i].dtype, RG_INVALID_ARGUMENT,
                 "mix: %s is %s where %s is needed", inputs[i], rg_shape_text(&x[i], have),
                 rg_shape_text(&x[0], want));
    }
    y[0] = rg_tensor_desc_dense(x[0].dtype, x[0].rank, x[0].dims);
    return RG_OK;
}

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    (void)desc;
    slots[0] = (rg_state_slot){ "kept", rg_tensor_desc_dense(x[0].dtype, x[0].rank, x[0].dims) };
    slots[1] = (rg_state_slot){ "total", rg_tensor_desc_dense(RG_F32, 0, NULL) };
    return 2;
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return RG_READS_X << 1 | RG_READS_STATE;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    (void)desc;
    (void)x;
    return true;
}

/* ---- kernels ---- */

enum { PRODUCT, KEEP, GRADIENT, ADD, KERNELS };

typedef struct product_args {
    float *y;
    const float *a, *b;
    float *scratch;
    _Atomic uint32_t *fault;
    float scale;
} product_args;

static void product(const void *args, int64_t begin, int64_t end)
{
    const product_args *k = args;
    if (mix_tiles++ == 0)
        mix_first = (int)begin;
    mix_odd_tiles += begin % MIX_GRAIN != 0 || end - begin > MIX_GRAIN;
    mix_launches += begin == 0;
    for (int64_t i = begin; i < end; i++) {
        mix_products[i]++;
        if (k->a[i] == 666)
            atomic_store(k->fault, 1);
        k->scratch[i] = k->scale * k->a[i];
    }
    for (int64_t i = begin; i < end; i++)
        k->y[i] = k->scratch[i] * k->b[i];
}

typedef struct keep_args {
    float *kept, *total;
    const float *a;
    int64_t count;
} keep_args;

static void keep(const void *args, int64_t begin, int64_t end)
{
    const keep_args *k = args;
    mix_launches += begin == 0;
    (void)end; /* one unit */
    *k->total = 0;
    for (int64_t i = 0; i < k->count; i++) {
        k->kept[i] = k->a[i];
        *k->total += k->a[i];
    }
}

/* out (+)= scale dy other */
typedef struct gradient_args {
    float *out;
    const float *dy, *other;
    float scale;
    bool add;
} gradient_args;

static void multiply(const void *args, int64_t begin, int64_t end)
{
    const gradient_args *k = args;
    mix_launches += begin == 0;
    for (int64_t i = begin; i < end; i++)
        k->out[i] = (k->add ? k->out[i] : 0) + k->scale * k->dy[i] * k->other[i];
}

/* out (+)= dy */
static void add(const void *args, int64_t begin, int64_t end)
{
    const gradient_args *k = args; /* without `other` */
    mix_launches += begin == 0;
    for (int64_t i = begin; i < end; i++)
        k->out[i] = (k->add ? k->out[i] : 0) + k->dy[i];
}

/* Only f32, and only on the lowest instruction set. */
static const rg_cpu_row rows[KERNELS] = {
    [PRODUCT] = { { product } },
    [KEEP] = { { keep } },
    [GRADIENT] = { { multiply } },
    [ADD] = { { add } },
};
static const rg_cpu_table table = { rows, KERNELS };
static const rg_cpu_table *const tables[] = { &table, NULL };
static const rg_kernel_table kernels = { .cpu = { { tables } } };

/* ---- forward and gradient ---- */

static rg_launch launch_of(const rg_tensor *like, int32_t kernel, const void *args, size_t size)
{
    return (rg_launch){ .kernel = kernel,
                        .dtype = like->desc.dtype,
                        .args = args,
                        .args_size = size,
                        .units = rg_shape_count(&like->desc),
                        .grain = MIX_GRAIN,
                        .bytes = 1 << 20 /* so that threads share it */ };
}

static rg_status forward(rg_call *call)
{
    const mix_desc *desc = call->desc;
    const product_args product_of = { .scale = (float)desc->scale };
    rg_launch first = launch_of(call->y[0], PRODUCT, &product_of, sizeof product_of);
    first.tensors[RG_POINTER(product_of, y)] = call->y[0];
    first.tensors[RG_POINTER(product_of, a)] = call->x[0];
    first.tensors[RG_POINTER(product_of, b)] = call->x[1];
    first.scratch = (size_t)first.units * sizeof(float);
    first.backwards = desc->scale < 0;
    first.scratch_at = RG_POINTER(product_of, scratch);
    first.fault_at = RG_POINTER(product_of, fault);
    first.fault_text = "mix: an element of a is 666";
    RG_TRY(rg_record(call, &first));
    if (call->state != NULL) {
        const keep_args keep_of = { .count = rg_shape_count(&call->x[0]->desc) };
        rg_launch second = launch_of(call->y[0], KEEP, &keep_of, sizeof keep_of);
        second.tensors[RG_POINTER(keep_of, kept)] = rg_state_slot_tensor(call->state, 0);
        second.tensors[RG_POINTER(keep_of, total)] = rg_state_slot_tensor(call->state, 1);
        second.tensors[RG_POINTER(keep_of, a)] = call->x[0];
        second.units = 1;
        RG_TRY(rg_record(call, &second));
    }
    if (!desc->bias)
        return RG_OK;
    const gradient_args sum = { .add = true };
    rg_launch third = launch_of(call->y[0], ADD, &sum, sizeof sum);
    third.tensors[RG_POINTER(sum, out)] = call->y[0];
    third.tensors[RG_POINTER(sum, dy)] = call->x[2];
    return rg_record(call, &third);
}

static rg_status gradient(rg_call *call)
{
    const mix_desc *desc = call->desc;
    const rg_tensor *const other[] = { call->x[1], rg_state_slot_tensor(call->state, 0), NULL };
    for (int32_t i = 0; i < call->inputs; i++) {
        if (call->dx[i] == NULL)
            continue;
        const gradient_args args = { .scale = (float)desc->scale, .add = call->add >> i & 1 };
        rg_launch launch = launch_of(call->dy[0], i < 2 ? GRADIENT : ADD, &args, sizeof args);
        launch.tensors[RG_POINTER(args, out)] = call->dx[i];
        launch.tensors[RG_POINTER(args, dy)] = call->dy[0];
        launch.tensors[RG_POINTER(args, other)] = other[i];
        RG_TRY(rg_record(call, &launch));
    }
    return RG_OK;
}

#define MIX(name_, gradient_)                                                                 \
    {                                                                                         \
        .name = name_, .text = "made up", .desc = { fields, &defaults, sizeof defaults },     \
        .inputs = inputs, .outputs = outputs, .count_inputs = count_inputs, .shapes = shapes, \
        .state = make_slots, .reads = reads, .joins = joins, .forward = forward,              \
        .gradient = gradient_, .kernels = &kernels                                            \
    }

const rg_op mix_op = MIX("mix", gradient);
const rg_op one_way_op = MIX("one_way", NULL);
