/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic: description, validation, shape rule, forward, gradient. */
#include "ops/arithmetic/arithmetic.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/arithmetic.h>

#include <math.h>

/* ---- description ---- */

static const rg_arithmetic_desc defaults = {
    .size = sizeof(rg_arithmetic_desc),
    .kind = RG_ARITHMETIC_ADD,
    .primary_scale = 1,
    .secondary_scale = 1,
    .bias = 0,
    .minimum = -(double)INFINITY,
    .maximum = (double)INFINITY,
    .comparison = RG_COMPARE_EQUAL,
    .threshold = 0,
};

rg_arithmetic_desc rg_arithmetic_desc_default(void)
{
    return defaults;
}

static const char *const kinds[] = { "add",     "subtract", "multiply", "divide", "compare",
                                     "maximum", "minimum",  "mask",     NULL };
static const char *const comparisons[] = { "equal",   "not_equal",        "less", "less_or_equal",
                                           "greater", "greater_or_equal", NULL };

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_arithmetic_desc, kind, kinds, "the operation"),
    RG_FIELD(rg_arithmetic_desc, primary_scale, "factor of a"),
    RG_FIELD(rg_arithmetic_desc, secondary_scale, "factor of b"),
    RG_FIELD(rg_arithmetic_desc, bias, "added to the result"),
    RG_FIELD(rg_arithmetic_desc, minimum, "lower bound of the result"),
    RG_FIELD(rg_arithmetic_desc, maximum, "upper bound of the result"),
    RG_FIELD_NAMED(rg_arithmetic_desc, comparison, comparisons, "compare: the comparison"),
    RG_FIELD_IN(rg_arithmetic_desc, threshold, 0, (double)INFINITY,
                "compare: tolerance of equality"),
    { .name = NULL },
};

#define IMAGES "primaryImage=a secondaryImage=b destinationImage=y"
#define GRADS  "sourceGradient=dy sourceImage=a destinationGradient=da"

static const rg_op_name names[] = {
    { "MPSCNNAdd", false, "kind=add", IMAGES, 3, 4 },
    { "MPSCNNSubtract", false, "kind=subtract", IMAGES, 3, 4 },
    { "MPSCNNMultiply", false, "kind=multiply", IMAGES, 3, 4 },
    { "MPSCNNDivide", false, "kind=divide", IMAGES, 3, 4 },
    { "MPSNNCompare", false, "kind=compare", IMAGES, 3, 4 },
    { "MPSCNNArithmeticGradient", true, "kind=add", GRADS, 3, 4 },
    { "MPSCNNAddGradient", true, "kind=add", GRADS, 3, 4 },
    { "MPSCNNSubtractGradient", true, "kind=subtract", GRADS, 3, 4 },
    /* the primary filter multiplies by the secondary image */
    { "MPSCNNMultiplyGradient", true, "kind=multiply",
      "sourceGradient=dy sourceImage=b destinationGradient=da", 3, 4 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    const rg_arithmetic_desc *d = desc;
    RG_CHECK(d->minimum <= d->maximum, RG_INVALID_ARGUMENT,
             "arithmetic: minimum is %g, greater than maximum, %g", d->minimum, d->maximum);
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    (void)desc;
    char a[RG_SHAPE_TEXT], b[RG_SHAPE_TEXT];
    RG_CHECK(rg_dtype_is_data(x[0].dtype), RG_INVALID_ARGUMENT,
             "arithmetic: a is %s; f32, f64, f16 and bf16 are supported",
             rg_dtype_name(x[0].dtype));
    RG_CHECK(x[0].dtype == x[1].dtype, RG_INVALID_ARGUMENT,
             "arithmetic: a is %s and b is %s; they must have the same dtype",
             rg_dtype_name(x[0].dtype), rg_dtype_name(x[1].dtype));
    const int32_t rank = x[0].rank > x[1].rank ? x[0].rank : x[1].rank;
    int64_t dims[RG_MAX_RANK];
    for (int32_t d = 0; d < rank; d++) {
        const int32_t i = d - (rank - x[0].rank), k = d - (rank - x[1].rank);
        const int64_t m = i >= 0 ? x[0].dims[i] : 1, n = k >= 0 ? x[1].dims[k] : 1;
        RG_CHECK(
            m == n || m == 1 || n == 1, RG_INVALID_ARGUMENT,
            "arithmetic: a %s and b %s cannot be broadcast: %lld and %lld differ and neither is 1",
            rg_shape_text(&x[0], a), rg_shape_text(&x[1], b), (long long)m, (long long)n);
        dims[d] = m == 1 ? n : m;
    }
    y[0] = rg_tensor_desc_dense(x[0].dtype, rank, dims);
    return rg_shape_check(&y[0], "arithmetic: y", NULL);
}

static bool is_bounded(const rg_arithmetic_desc *d)
{
    return d->minimum > defaults.minimum || d->maximum < defaults.maximum;
}

static uint32_t reads(const void *desc)
{
    const rg_arithmetic_desc *d = desc;
    const bool sum = d->kind == RG_ARITHMETIC_ADD || d->kind == RG_ARITHMETIC_SUBTRACT;
    if (d->kind == RG_ARITHMETIC_COMPARE || (sum && !is_bounded(d)))
        return 0;
    return RG_READS_X | RG_READS_X << 1;
}

/* dy is the gradient of what is added as it is. */
static uint32_t views(const void *desc, bool is_gradient)
{
    const rg_arithmetic_desc *d = desc;
    const bool sum = d->kind == RG_ARITHMETIC_ADD || d->kind == RG_ARITHMETIC_SUBTRACT;
    if (!is_gradient || !sum || is_bounded(d))
        return 0;
    const double b = d->kind == RG_ARITHMETIC_ADD ? d->secondary_scale : -d->secondary_scale;
    return (uint32_t)(d->primary_scale == 1) | (uint32_t)(b == 1) << 1;
}

static bool is_sum(const void *desc)
{
    const rg_arithmetic_desc *d = desc;
    return d->kind == RG_ARITHMETIC_ADD && d->primary_scale == 1 && d->secondary_scale == 1 &&
           d->bias == 0 && !is_bounded(d);
}

/* Where nothing is broadcast; otherwise joined images would have other sums. */
static bool joins(const void *desc, const rg_tensor_desc x[])
{
    (void)desc;
    return x[0].rank > 0 && rg_shape_same_dims(&x[0], &x[1]);
}

/* ---- shapes of one call ---- */

/* An operand broadcast to the shape of y: its strides are 0 along dimensions where it is repeated.
 */
static rg_tensor_desc expand(const rg_tensor_desc *x, const rg_tensor_desc *y)
{
    rg_tensor_desc wide = *y;
    for (int32_t d = 0; d < y->rank; d++) {
        const int32_t i = d - (y->rank - x->rank);
        wide.strides[d] = i >= 0 && x->dims[i] == y->dims[d] ? x->strides[i] : 0;
    }
    return wide;
}

static bool is_repeated(const rg_tensor_desc *x, const rg_tensor_desc *y, int32_t d)
{
    const int32_t i = d - (y->rank - x->rank);
    return y->dims[d] != (i >= 0 ? x->dims[i] : 1);
}

static bool is_whole(const rg_tensor_desc *x, const rg_tensor_desc *y)
{
    bool whole = true;
    for (int32_t d = 0; d < y->rank; d++)
        whole &= !is_repeated(x, y, d);
    return whole;
}

static rg_arithmetic_numbers numbers_of(const rg_arithmetic_desc *d)
{
    const double sign = d->kind == RG_ARITHMETIC_MINIMUM ? -1 : 1;
    return (rg_arithmetic_numbers){
        .primary = sign * d->primary_scale,
        .secondary =
            d->kind == RG_ARITHMETIC_SUBTRACT ? -d->secondary_scale : sign * d->secondary_scale,
        .sign = sign,
        .bias = d->bias == 0 ? -0.0 : d->bias, /* x + -0 is x, also for x = -0 */
        .minimum = d->minimum,
        .maximum = d->maximum,
        .threshold = d->threshold,
        .comparison = (int32_t)d->comparison,
        .bounded = is_bounded(d),
        .mask = d->kind == RG_ARITHMETIC_MASK,
    };
}

static int64_t bytes_of(const rg_tensor *tensor)
{
    return rg_shape_count(&tensor->desc) * (int64_t)rg_dtype_size(tensor->desc.dtype);
}

/* Units that make a tile, where a unit has `elements`. */
static int64_t grain_for(int64_t elements)
{
    enum { TILE_ELEMENTS = 16384 };
    return elements >= TILE_ELEMENTS || elements == 0 ? 1 : TILE_ELEMENTS / elements;
}

static rg_sweep sweep_of(const rg_tensor_desc wide[], int count, rg_launch *launch)
{
    const rg_tensor_desc *descs[RG_WALK_TENSORS];
    for (int t = 0; t < count; t++)
        descs[t] = &wide[t];
    const rg_sweep sweep = rg_sweep_make(descs, count);
    launch->dtype = wide[0].dtype;
    launch->units = rg_sweep_units(&sweep);
    launch->grain = grain_for(sweep.length < sweep.piece ? sweep.length : sweep.piece);
    return sweep;
}

/* ---- forward ---- */

static rg_status forward(rg_call *call)
{
    static const int32_t kernels[] = { RG_ADD_FORWARD,     RG_ADD_FORWARD,     RG_MULTIPLY_FORWARD,
                                       RG_DIVIDE_FORWARD,  RG_COMPARE_FORWARD, RG_MAXIMUM_FORWARD,
                                       RG_MAXIMUM_FORWARD, RG_MAXIMUM_FORWARD };
    const rg_arithmetic_desc *desc = call->desc;
    const rg_tensor_desc *y = &call->y[0]->desc;
    const rg_tensor_desc wide[] = { expand(&call->x[0]->desc, y), expand(&call->x[1]->desc, y),
                                    *y };
    rg_arithmetic_args args = { .numbers = numbers_of(desc) };
    rg_launch launch = { .tensors = { RG_BIND(args, a, call->x[0]), RG_BIND(args, b, call->x[1]),
                                      RG_BIND(args, y, call->y[0]) },
                         .kernel = kernels[desc->kind],
                         RG_ARGS(args) };
    args.sweep = sweep_of(wide, 3, &launch);
    if (call->commands->queue->device->backend == &rg_backend_cpu)
        args.period = rg_sweep_join_repeats(&args.sweep, 3, 1, RG_ARITHMETIC_PERIOD);
    if (args.period > 0) {
        launch.units = rg_sweep_units(&args.sweep);
        launch.grain = 1;
    }
    launch.bytes = bytes_of(call->x[0]) + bytes_of(call->x[1]) + bytes_of(call->y[0]);
    args.stream = rg_call_copy_streams(call, bytes_of(call->y[0]), launch.bytes);
    return rg_record(call, &launch);
}

/* ---- gradient ---- */

/* dy, a and b of a call, broadcast to the shape of y; dy stands in for what the gradient does not
 * read. */
typedef struct sources {
    const rg_tensor *tensors[3];
    rg_tensor_desc wide[3];
    int32_t kind; /* from the kernel of add to that of this kind */
    int64_t bytes;
} sources;

static sources sources_of(const rg_call *call)
{
    static const int32_t steps[] = {
        [RG_ARITHMETIC_MULTIPLY] = RG_MULTIPLY_GRADIENT - RG_ADD_GRADIENT,
        [RG_ARITHMETIC_DIVIDE] = RG_DIVIDE_GRADIENT - RG_ADD_GRADIENT,
        [RG_ARITHMETIC_MAXIMUM] = RG_MAXIMUM_GRADIENT - RG_ADD_GRADIENT,
        [RG_ARITHMETIC_MINIMUM] = RG_MAXIMUM_GRADIENT - RG_ADD_GRADIENT,
        [RG_ARITHMETIC_MASK] = RG_MAXIMUM_GRADIENT - RG_ADD_GRADIENT,
    };
    const rg_arithmetic_desc *desc = call->desc;
    const rg_tensor *dy = call->dy[0];
    sources s = { .tensors = { dy, dy, dy }, .kind = steps[desc->kind], .bytes = bytes_of(dy) };
    const bool reads_x = reads(desc) != 0;
    if (s.kind == 0 && reads_x)
        s.kind = RG_ADD_BOUNDED_GRADIENT - RG_ADD_GRADIENT;
    for (int i = 0; i < 2 && reads_x; i++) {
        s.tensors[1 + i] = call->x[i];
        s.bytes += bytes_of(call->x[i]);
    }
    for (int t = 0; t < 3; t++)
        s.wide[t] = expand(&s.tensors[t]->desc, &dy->desc);
    return s;
}

/* Element by element, for operands of the shape of y. */
static rg_status record_whole(rg_call *call, const sources *s, const bool wants[2])
{
    const rg_tensor *da = call->dx[wants[0] ? 0 : 1], *db = call->dx[wants[1] ? 1 : 0];
    const rg_tensor_desc wide[] = { s->wide[0], s->wide[1], s->wide[2],
                                    expand(&da->desc, &s->wide[0]),
                                    expand(&db->desc, &s->wide[0]) };
    rg_arithmetic_gradient_args args = { .numbers = numbers_of(call->desc) };
    rg_launch launch = { .tensors = { RG_BIND(args, dy, s->tensors[0]),
                                      RG_BIND(args, a, s->tensors[1]),
                                      RG_BIND(args, b, s->tensors[2]), RG_BIND(args, dx[0], da),
                                      RG_BIND(args, dx[1], db) },
                         .kernel = RG_ADD_GRADIENT + s->kind,
                         RG_ARGS(args),
                         .bytes = s->bytes };
    args.sweep = sweep_of(wide, 5, &launch);
    for (int i = 0; i < 2; i++) {
        args.wants[i] = wants[i];
        args.add[i] = call->add >> i & 1;
        launch.bytes += wants[i] ? bytes_of(call->dy[0]) : 0;
    }
    args.stream = rg_call_streams(call, bytes_of(call->dy[0]));
    return rg_record(call, &launch);
}

/* A walk over the dimensions of y before `end` along which x is repeated, or is not. */
static rg_walk walk_over(const rg_tensor_desc wide[], const rg_tensor_desc *x, bool repeated,
                         int32_t end)
{
    rg_tensor_desc some[RG_SUMS_TENSORS] = { 0 };
    const rg_tensor_desc *descs[RG_SUMS_TENSORS];
    int32_t rank = 0;
    for (int32_t d = 0; d < end; d++) {
        if (is_repeated(x, &wide[0], d) != repeated)
            continue;
        for (int t = 0; t < RG_SUMS_TENSORS; t++) {
            some[t].dims[rank] = wide[t].dims[d];
            some[t].strides[rank] = wide[t].strides[d];
        }
        rank++;
    }
    for (int t = 0; t < RG_SUMS_TENSORS; t++)
        descs[t] = &some[t];
    return rg_walk_make(descs, RG_SUMS_TENSORS, 0, rank);
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Cuts sums into pieces, by shapes alone, and work into units. Long sums have longer pieces, so
 * that their number does not matter. */
static void cut(rg_arithmetic_sums_args *args, bool columns, rg_launch *launch)
{
    enum { SHORT_COLUMN = 128, LONG_COLUMN = 1024, SHORT_ROW = 4096, LONG_ROW = 16384 };
    const int64_t around = args->around.count, inner = args->inner.count;
    int64_t elements;
    if (columns) {
        args->piece = around <= 256 * SHORT_COLUMN ? SHORT_COLUMN : LONG_COLUMN;
        args->pieces = divide_up(around, args->piece);
        args->sums = args->outer.count * inner;
        args->block = inner < RG_BLOCK_GROUPS ? inner : RG_BLOCK_GROUPS;
        args->blocks = args->block > 0 ? divide_up(inner, args->block) : 0;
        launch->units = args->outer.count * args->pieces * args->blocks;
        elements = args->block * (around < args->piece ? around : args->piece);
    } else {
        args->piece = inner <= 256 * SHORT_ROW ? SHORT_ROW : LONG_ROW;
        args->cuts = divide_up(inner, args->piece);
        args->rows = inner > 0 && inner < args->piece ? args->piece / inner : 1;
        args->pieces = args->cuts * divide_up(around, args->rows);
        args->sums = args->outer.count;
        launch->units = args->sums * args->pieces;
        elements = (inner < args->piece ? inner : args->piece) *
                   (around < args->rows ? around : args->rows);
    }
    launch->grain = grain_for(elements);
}

/* Where the last dimensions of y begin along all of which x is repeated, or is not (*repeated). */
static int32_t inner_from(const rg_tensor_desc *x, const rg_tensor_desc *y, bool *repeated)
{
    int32_t from = y->rank;
    *repeated = false;
    bool known = false;
    for (; from > 0; from--) {
        const bool is = is_repeated(x, y, from - 1);
        if (y->dims[from - 1] == 1)
            continue; /* belongs to both */
        if (known && is != *repeated)
            break;
        *repeated = is;
        known = true;
    }
    return from;
}

/* Args for sums of pieces for operand i, with the gradient of the other operand where `fused`; the
 * caller sets the results. */
static void plan_sums(const rg_call *call, const sources *s, int i, bool fused,
                      rg_arithmetic_sums_args *args, rg_launch *launch)
{
    const rg_tensor_desc *x = &call->dx[i]->desc, *y = &s->wide[0];
    const rg_tensor *other = fused ? call->dx[1 - i] : call->dy[0];
    const rg_tensor_desc wide[] = { s->wide[0], s->wide[1], s->wide[2], expand(&other->desc, y) };
    const rg_tensor_desc *const descs[] = { &wide[0], &wide[1], &wide[2], &wide[3] };
    bool repeated;
    const int32_t from = inner_from(x, y, &repeated);
    *args = (rg_arithmetic_sums_args){ .numbers = numbers_of(call->desc),
                                       .second = i == 1,
                                       .wants_other = fused,
                                       .add = fused && call->add >> (1 - i) & 1 };
    args->outer = walk_over(wide, x, false, from);
    args->around = walk_over(wide, x, true, from);
    args->inner = rg_walk_make(descs, RG_SUMS_TENSORS, from, y->rank);
    args->straight = args->inner.rank <= 1;
    args->stream = fused && !args->add && rg_call_streams(call, bytes_of(other));
    *launch =
        (rg_launch){ .tensors = { RG_BIND(*args, dy, s->tensors[0]),
                                  RG_BIND(*args, a, s->tensors[1]),
                                  RG_BIND(*args, b, s->tensors[2]), RG_BIND(*args, other, other) },
                     .kernel = (repeated ? RG_ADD_ROWS : RG_ADD_COLUMNS) + s->kind,
                     .dtype = y->dtype,
                     RG_ARGS(*args),
                     .bytes = s->bytes + (fused ? bytes_of(other) : 0) };
    cut(args, !repeated, launch);
}

static rg_status record_pieces(rg_call *call, int i, const rg_tensor *part,
                               const rg_arithmetic_sums_args *sums)
{
    const rg_tensor_desc *const dx[] = { &call->dx[i]->desc };
    rg_sum_pieces_args args = { .pieces = sums->pieces, .add = call->add >> i & 1 };
    args.kept = rg_walk_make(dx, 1, 0, dx[0]->rank);
    const rg_launch launch = { .tensors = { RG_BIND(args, part, part),
                                            RG_BIND(args, dx, call->dx[i]) },
                               .kernel = RG_SUM_PIECES,
                               .dtype = dx[0]->dtype,
                               RG_ARGS(args),
                               .units = divide_up(args.kept.count, RG_SUMS_BLOCK),
                               .bytes = bytes_of(part) + bytes_of(call->dx[i]) };
    return rg_record(call, &launch);
}

/* The gradient of an operand that was repeated: sums of pieces in a temporary, then their sum. */
static rg_status record_repeated(rg_call *call, const sources *s, int i, bool fused)
{
    rg_arithmetic_sums_args args;
    rg_launch launch;
    rg_tensor *part;
    plan_sums(call, s, i, fused, &args, &launch);
    const int64_t count = args.sums * args.pieces;
    const rg_tensor_desc desc =
        rg_tensor_desc_dense(launch.dtype == RG_F64 ? RG_F64 : RG_F32, 1, &count);
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &part));
    launch.tensors[RG_POINTER(args, part)] = part;
    rg_status status = rg_record(call, &launch);
    if (status == RG_OK)
        status = record_pieces(call, i, part, &args);
    rg_tensor_destroy(part);
    return status;
}

static rg_status gradient(rg_call *call)
{
    const rg_arithmetic_desc *desc = call->desc;
    RG_CHECK(desc->kind != RG_ARITHMETIC_COMPARE, RG_UNSUPPORTED,
             "arithmetic: compare has no gradient");
    const sources s = sources_of(call);
    bool whole[2], left[2];
    for (int i = 0; i < 2; i++) {
        left[i] = call->dx[i] != NULL;
        whole[i] = left[i] && is_whole(&call->dx[i]->desc, &call->dy[0]->desc);
    }
    for (int i = 0; i < 2; i++) {
        if (!left[i] || whole[i])
            continue;
        const bool fused = left[1 - i] && whole[1 - i];
        RG_TRY(record_repeated(call, &s, i, fused));
        left[i] = false;
        if (fused)
            left[1 - i] = false;
    }
    return left[0] || left[1] ? record_whole(call, &s, left) : RG_OK;
}

RG_OP_DEFINE(
    arithmetic,
    .text = "add, subtract, multiply, divide, compare, maximum, minimum, mask; broadcasting",
    .desc = { fields, &defaults, sizeof defaults },
    .inputs = (const char *const[]){ "a", "b", NULL },
    .outputs = (const char *const[]){ "y", NULL }, .names = names,
    .aliases = (const rg_alias[]){ RG_X_AS_Y(0, 0), RG_X_AS_Y(1, 0), RG_DY_AS_DX(0, 0),
                                   RG_DY_AS_DX(0, 1), 0 },
    .check = check, .shapes = shapes, .reads = reads, .joins = joins, .forward = forward,
    .gradient = gradient, .fusion = { .views = views, .is_cheap = true, .is_sum = is_sum });

rg_status rg_arithmetic_create(rg_device *device, const rg_arithmetic_desc *desc,
                               rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_arithmetic, desc, kernel);
}
