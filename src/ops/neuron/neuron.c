/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons: description, validation, shape rule, forward, gradient. */
#include "ops/neuron/neuron.h"
#include "ops/neuron/neuron_fields.h"
#include "ops/neuron/prelu.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <math.h>

/* ---- description ---- */

static const rg_neuron_desc defaults = {
    .size = sizeof(rg_neuron_desc),
    .kind = RG_NEURON_RELU,
};

rg_neuron_desc rg_neuron_desc_default(void)
{
    return defaults;
}

static const char *const kinds[] = { "none",         "relu",        "linear",    "sigmoid",
                                     "hard_sigmoid", "tanh",        "absolute",  "softplus",
                                     "softsign",     "elu",         "prelu",     "relun",
                                     "power",        "exponential", "logarithm", "gelu",
                                     "gelu_tanh",    "swish",       NULL };

const rg_field rg_neuron_fields[] = {
    RG_FIELD_NAMED(rg_neuron_desc, kind, kinds, "the function"),
    RG_FIELD_OPTIONAL(
        rg_neuron_desc, a,
        "relu, relun: slope below 0; elu, tanh, softplus: factor; others: factor of x"),
    RG_FIELD_OPTIONAL(rg_neuron_desc, b,
                      "tanh, softplus: factor of x; relun: maximum; others: added to a x"),
    RG_FIELD_OPTIONAL(rg_neuron_desc, c, "power: exponent; exponential, logarithm: base, -1 for e"),
    RG_FIELD(rg_neuron_desc, from_y, "the gradient reads y instead of x"),
    { .name = NULL },
};

#define IMAGE       "sourceImage=x destinationImage=y"
#define IMAGE_GRAD  "sourceGradient=dy sourceImage=x destinationGradient=dx"
#define MATRIX      "inputMatrix=x resultMatrix=y"
#define MATRIX_GRAD "gradientMatrix=dy inputMatrix=x resultGradientForDataMatrix=dx"

static const rg_op_name names[] = {
    { "MPSCNNNeuron", false, "kind=none", IMAGE, 3, 4 },
    { "MPSCNNNeuronLinear", false, "kind=linear", IMAGE, 3, 4 },
    { "MPSCNNNeuronReLU", false, "kind=relu", IMAGE, 3, 4 },
    { "MPSCNNNeuronPReLU", false, "kind=prelu", IMAGE " a=slope", 3, 4 },
    { "MPSCNNNeuronSigmoid", false, "kind=sigmoid", IMAGE, 3, 4 },
    { "MPSCNNNeuronHardSigmoid", false, "kind=hard_sigmoid", IMAGE, 3, 4 },
    { "MPSCNNNeuronTanH", false, "kind=tanh", IMAGE, 3, 4 },
    { "MPSCNNNeuronAbsolute", false, "kind=absolute", IMAGE, 3, 4 },
    { "MPSCNNNeuronSoftPlus", false, "kind=softplus", IMAGE, 3, 4 },
    { "MPSCNNNeuronSoftSign", false, "kind=softsign", IMAGE, 3, 4 },
    { "MPSCNNNeuronELU", false, "kind=elu", IMAGE, 3, 4 },
    { "MPSCNNNeuronReLUN", false, "kind=relun", IMAGE, 3, 4 },
    { "MPSCNNNeuronPower", false, "kind=power", IMAGE, 3, 4 },
    { "MPSCNNNeuronExponential", false, "kind=exponential", IMAGE, 3, 4 },
    { "MPSCNNNeuronLogarithm", false, "kind=logarithm", IMAGE, 3, 4 },
    { "MPSCNNNeuronGradient", true, "kind=none", IMAGE_GRAD, 3, 4 },
    { "MPSMatrixNeuron", false, "kind=none", MATRIX, 2, 3 },
    { "MPSMatrixNeuronGradient", true, "kind=none", MATRIX_GRAD, 2, 3 },
    { .name = NULL },
};

/* ---- a, b, c ---- */

typedef struct triple {
    double a, b, c;
} triple;

/* Those that MPS suggests. */
static const triple default_numbers[RG_NEURON_KINDS] = {
    [RG_NEURON_NONE] = { 1 },
    [RG_NEURON_LINEAR] = { 1 },
    [RG_NEURON_HARD_SIGMOID] = { 0.2, 0.5 },
    [RG_NEURON_TANH] = { 1, 1 },
    [RG_NEURON_SOFTPLUS] = { 1, 1 },
    [RG_NEURON_ELU] = { 1 },
    [RG_NEURON_RELUN] = { 1, 6 },
    [RG_NEURON_POWER] = { 1, 0, 1 },
    [RG_NEURON_EXPONENTIAL] = { 1, 0, -1 },
    [RG_NEURON_LOGARITHM] = { 1, 0, -1 },
    [RG_NEURON_SWISH] = { 1 },
};

static triple triple_of(const rg_neuron_desc *d)
{
    triple t = default_numbers[d->kind];
    if (d->kind == RG_NEURON_NONE)
        return t;
    t.a = d->has_a ? d->a : t.a;
    t.b = d->has_b ? d->b : t.b;
    t.c = d->has_c ? d->c : t.c;
    return t;
}

static int32_t power_of(double c)
{
    if (c != floor(c))
        return RG_POWER_BROKEN;
    if (fabs(c) <= RG_POWER_MOST)
        return (int32_t)c;
    return fmod(c, 2) == 0 ? RG_POWER_EVEN : RG_POWER_ODD;
}

static void numbers_of_hard_sigmoid(triple t, rg_neuron_numbers *n)
{
    const double zero = -t.b / t.a, one = (1 - t.b) / t.a;
    n->low = t.a == 0 ? HUGE_VAL : fmin(zero, one);
    n->high = t.a == 0 ? -HUGE_VAL : fmax(zero, one);
}

/* b as the results hold it, so that a clipped y is not below it. */
static double stored(double b, rg_dtype dtype)
{
    char element[8];
    rg_element_set(element, dtype, 0, b);
    return rg_element_get(element, dtype, 0);
}

rg_neuron_numbers rg_neuron_numbers_of(const rg_neuron_desc *d, rg_dtype dtype, bool gradient)
{
    const triple t = triple_of(d);
    const double ln_c = t.c > 0 ? log(t.c) : 1;
    rg_neuron_numbers n = { .a = t.a, .b = t.b, .c = t.c };
    switch (d->kind) {
    case RG_NEURON_HARD_SIGMOID:
        numbers_of_hard_sigmoid(t, &n);
        break;
    case RG_NEURON_TANH:
        n.factor = d->from_y ? t.b / t.a : t.a * t.b;
        break;
    case RG_NEURON_SOFTPLUS:
        n.c = -1 / t.a;
        n.factor = t.a * t.b;
        break;
    case RG_NEURON_RELUN:
        n.b = stored(t.b, dtype);
        break;
    case RG_NEURON_POWER:
        n.c = gradient ? t.c - 1 : t.c;
        n.power = power_of(n.c);
        n.factor = t.a * t.c;
        break;
    case RG_NEURON_EXPONENTIAL:
        n.a = n.factor = t.a * ln_c;
        n.b = t.b * ln_c;
        break;
    case RG_NEURON_LOGARITHM:
        n.c = 1 / ln_c;
        n.factor = t.a / ln_c;
        break;
    default:
        break;
    }
    return n;
}

/* ---- validation, shape rule ---- */

static rg_status check_number(const char *name, double value, bool given)
{
    RG_CHECK(given || value == 0, RG_INVALID_ARGUMENT, "neuron: %s is %g, but has_%s is false",
             name, value, name);
    RG_CHECK(isfinite(value), RG_INVALID_ARGUMENT, "neuron: %s is %g, but must be finite", name,
             value);
    return RG_OK;
}

/* Whether the slope of a kind can be told from y, for some numbers a and b. */
static const bool tells[RG_NEURON_KINDS] = {
    [RG_NEURON_NONE] = true,        [RG_NEURON_RELU] = true, [RG_NEURON_LINEAR] = true,
    [RG_NEURON_SIGMOID] = true,     [RG_NEURON_TANH] = true, [RG_NEURON_SOFTPLUS] = true,
    [RG_NEURON_SOFTSIGN] = true,    [RG_NEURON_ELU] = true,  [RG_NEURON_RELUN] = true,
    [RG_NEURON_EXPONENTIAL] = true,
};

static bool rises(rg_neuron_kind kind)
{
    return kind == RG_NEURON_RELU || kind == RG_NEURON_RELUN || kind == RG_NEURON_ELU;
}

static bool is_scaled(rg_neuron_kind kind)
{
    return kind == RG_NEURON_TANH || kind == RG_NEURON_SOFTPLUS;
}

bool rg_neuron_tells_slope(const rg_neuron_desc *d)
{
    const triple t = triple_of(d);
    return tells[d->kind] && (!rises(d->kind) || t.a >= 0) &&
           (d->kind != RG_NEURON_RELUN || t.b > 0) && (!is_scaled(d->kind) || t.a != 0);
}

/* Whether the slope follows from y, with the reason why not. */
static rg_status check_from_y(rg_neuron_kind kind, triple t)
{
    RG_CHECK(tells[kind], RG_INVALID_ARGUMENT,
             "neuron: the slope of %s does not follow from y; from_y must be false", kinds[kind]);
    RG_CHECK(!rises(kind) || t.a >= 0, RG_INVALID_ARGUMENT,
             "neuron: the slope of %s with a = %g does not follow from y; a must be at least 0",
             kinds[kind], t.a);
    RG_CHECK(
        kind != RG_NEURON_RELUN || t.b > 0, RG_INVALID_ARGUMENT,
        "neuron: the slope of relun with b = %g does not follow from y; b must be greater than 0",
        t.b);
    RG_CHECK(!is_scaled(kind) || t.a != 0, RG_INVALID_ARGUMENT,
             "neuron: %s with a = 0 is 0 everywhere, so its slope does not follow from y",
             kinds[kind]);
    return RG_OK;
}

static rg_status check(const void *desc)
{
    const rg_neuron_desc *d = desc;
    RG_TRY(check_number("a", d->a, d->has_a));
    RG_TRY(check_number("b", d->b, d->has_b));
    RG_TRY(check_number("c", d->c, d->has_c));
    const triple t = triple_of(d);
    const bool log = d->kind == RG_NEURON_LOGARITHM;
    if (log || d->kind == RG_NEURON_EXPONENTIAL)
        RG_CHECK((t.c > 0 && !(log && t.c == 1)) || t.c == -1, RG_INVALID_ARGUMENT,
                 "neuron: c = %g is not a base of %s; it must be greater than 0%s, or -1 for e",
                 t.c, kinds[d->kind], log ? " and not 1" : "");
    return d->from_y ? check_from_y(d->kind, t) : RG_OK;
}

static int32_t count_inputs(const void *desc)
{
    return ((const rg_neuron_desc *)desc)->kind == RG_NEURON_PRELU ? 2 : 1;
}

static rg_status check_slope(const rg_tensor_desc x[])
{
    char have[RG_SHAPE_TEXT], slope[RG_SHAPE_TEXT];
    RG_CHECK(x[0].rank > 0, RG_INVALID_ARGUMENT, "neuron: prelu's x is %s and has no channels",
             rg_shape_text(&x[0], have));
    RG_CHECK(x[1].rank == 1 && x[1].dims[0] == x[0].dims[x[0].rank - 1], RG_INVALID_ARGUMENT,
             "neuron: slope is %s but x is %s; it must have one element per channel, the last "
             "dimension of x",
             rg_shape_text(&x[1], slope), rg_shape_text(&x[0], have));
    RG_CHECK(x[1].dtype == x[0].dtype, RG_INVALID_ARGUMENT,
             "neuron: slope is %s but x is %s; both must have the same dtype",
             rg_shape_text(&x[1], slope), rg_shape_text(&x[0], have));
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "neuron: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    if (((const rg_neuron_desc *)desc)->kind == RG_NEURON_PRELU)
        RG_TRY(check_slope(x));
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    return RG_OK;
}

static uint32_t reads(const void *desc)
{
    const rg_neuron_desc *d = desc;
    if (d->kind == RG_NEURON_NONE || d->kind == RG_NEURON_LINEAR)
        return 0;
    if (d->kind == RG_NEURON_PRELU)
        return RG_READS_X | RG_READS_X << 1;
    return d->from_y ? RG_READS_Y : RG_READS_X;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    (void)x;
    return ((const rg_neuron_desc *)desc)->kind != RG_NEURON_PRELU;
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
    launch->bytes = rg_shape_count(descs[0]) * (int64_t)rg_dtype_size(launch->dtype) * count;
}

static rg_status forward(rg_call *call)
{
    const rg_neuron_desc *desc = call->desc;
    if (desc->kind == RG_NEURON_PRELU)
        return rg_prelu_forward(call);
    const rg_dtype dtype = call->x[0]->desc.dtype;
    rg_neuron_args args = { .numbers = rg_neuron_numbers_of(desc, dtype, false) };
    rg_launch launch = { .tensors = { RG_BIND(args, x, call->x[0]), RG_BIND(args, y, call->y[0]) },
                         .kernel = RG_NEURON_FORWARD + (int32_t)desc->kind,
                         RG_ARGS(args) };
    lay_out(launch.tensors, 2, &args.sweep, &launch);
    args.stream = rg_call_streams(call, launch.bytes / 2);
    return rg_record(call, &launch);
}

static rg_status gradient(rg_call *call)
{
    const rg_neuron_desc *desc = call->desc;
    if (desc->kind == RG_NEURON_PRELU)
        return rg_prelu_gradient(call);
    const uint32_t read = reads(desc);
    const rg_tensor *from = read == 0 ? call->dy[0] : read == RG_READS_Y ? call->y[0] : call->x[0];
    const rg_dtype dtype = from->desc.dtype;
    rg_neuron_gradient_args args = { .numbers = rg_neuron_numbers_of(desc, dtype, true),
                                     .add = call->add & 1 };
    rg_launch launch = { .tensors = { RG_BIND(args, dy, call->dy[0]), RG_BIND(args, from, from),
                                      RG_BIND(args, dx, call->dx[0]) },
                         .kernel = desc->from_y ? RG_NEURON_GRADIENT_Y : RG_NEURON_GRADIENT,
                         RG_ARGS(args) };
    launch.kernel += (int32_t)desc->kind;
    lay_out(launch.tensors, 3, &args.sweep, &launch);
    args.stream = !args.add && rg_call_streams(call, launch.bytes / 3);
    return rg_record(call, &launch);
}

/* ---- fusion ---- */

/* Any op whose descriptor has a group of these fields takes it up, if it has none yet. */
static bool join_before(const void *desc, const rg_op *before, void *before_desc)
{
    const rg_field *f = before->desc.fields;
    while (f->name != NULL && (f->type != RG_FIELD_GROUP || f->fields != rg_neuron_fields))
        f++;
    if (f->name == NULL || count_inputs(desc) != 1)
        return false;
    rg_neuron_desc neuron;
    char *const at = (char *)before_desc + f->offset;
    memcpy(&neuron, at, sizeof neuron);
    if (neuron.kind != RG_NEURON_NONE)
        return false;
    memcpy(&neuron, desc, sizeof neuron);
    neuron.from_y = false; /* the op itself knows */
    memcpy(at, &neuron, sizeof neuron);
    return true;
}

static bool gradient_of_y(void *desc)
{
    rg_neuron_desc *d = desc;
    if (d->from_y || !rg_neuron_tells_slope(d))
        return false;
    d->from_y = true;
    return true;
}

RG_OP_DEFINE(neuron, .text = "activation functions, element by element",
             .desc = { rg_neuron_fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", "slope", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .aliases = (const rg_alias[]){ RG_X_AS_Y(0, 0), RG_DY_AS_DX(0, 0), RG_X_AS_DX(0, 0),
                                            RG_Y_AS_DX(0, 0), 0 },
             .count_inputs = count_inputs, .check = check, .shapes = shapes, .reads = reads,
             .joins = joins, .forward = forward, .gradient = gradient,
             .fusion = {
                 .is_cheap = true, .join_before = join_before, .gradient_of_y = gradient_of_y });

rg_status rg_neuron_create(rg_device *device, const rg_neuron_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_neuron, desc, kernel);
}
