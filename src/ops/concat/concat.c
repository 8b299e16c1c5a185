/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat: description, shape rule, forward, gradient. */
#include "ops/concat/concat.h"
#include "core/integer.h"
#include "ops/move/move_record.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/concat.h>

/* ---- description ---- */

static const rg_concat_desc defaults = {
    .size = sizeof(rg_concat_desc),
    .sources = 2,
    .axis = -1,
    .multiple = 1,
};

rg_concat_desc rg_concat_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_IN(rg_concat_desc, sources, 1, RG_MAX_INPUTS, "number of inputs"),
    RG_FIELD(rg_concat_desc, axis, "dimension to concatenate along; negative: from the last"),
    RG_FIELD_IN(rg_concat_desc, multiple, 1, 1 << 20,
                "pad each input with zeros to a multiple of this along the axis"),
    { .name = NULL },
};

static const rg_op_name names[] = {
    { "MPSNNConcatenationNode", false, "axis=-1 multiple=4", "destinationImage=y", 3, 4 },
    { "MPSNNConcatenationGradientNode", true, "axis=-1 multiple=4", "sourceGradient=dy", 3, 4 },
    { .name = NULL },
};

/* ---- shape rule ---- */

static int32_t count_inputs(const void *desc)
{
    return ((const rg_concat_desc *)desc)->sources;
}

static int32_t axis_of(const rg_concat_desc *desc, int32_t rank)
{
    return (int32_t)(desc->axis < 0 ? desc->axis + rank : desc->axis);
}

/* What a source takes up of the axis. */
static bool take_up(const rg_concat_desc *desc, int64_t length, int64_t *taken)
{
    const int64_t over = length % desc->multiple;
    return !__builtin_add_overflow(length, over > 0 ? desc->multiple - over : 0, taken);
}

/* Whether two shapes are the same but for the axis. */
static bool fit(const rg_tensor_desc *a, const rg_tensor_desc *b, int32_t axis)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int32_t d = 0; d < a->rank && same; d++)
        same = d == axis || a->dims[d] == b->dims[d];
    return same;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_concat_desc *d = desc;
    const int32_t rank = x->rank;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "concat: x0 is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_CHECK(rank > 0, RG_INVALID_ARGUMENT, "concat: x0 has rank 0 and therefore no axis");
    RG_CHECK(d->axis >= -rank && d->axis < rank, RG_INVALID_ARGUMENT,
             "concat: axis is %lld; it must be between %d and %d", (long long)d->axis, -rank,
             rank - 1);
    const int32_t axis = axis_of(d, rank);
    int64_t dims[RG_MAX_RANK], length = 0, taken;
    for (int32_t i = 0; i < d->sources; i++) {
        char first[RG_SHAPE_TEXT], other[RG_SHAPE_TEXT];
        RG_CHECK(fit(&x[0], &x[i], axis), RG_INVALID_ARGUMENT,
                 "concat: x0 is %s and x%d is %s; they may differ only in dimension %d",
                 rg_shape_text(&x[0], first), i, rg_shape_text(&x[i], other), axis);
        RG_CHECK(take_up(d, x[i].dims[axis], &taken) &&
                     !__builtin_add_overflow(length, taken, &length),
                 RG_INVALID_ARGUMENT, "concat: the length of dimension %d overflows", axis);
    }
    for (int32_t k = 0; k < rank; k++)
        dims[k] = k == axis ? length : x->dims[k];
    y[0] = rg_tensor_desc_dense(x->dtype, rank, dims);
    return rg_shape_check(&y[0], "concat", NULL);
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return 0;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    return axis_of(desc, x->rank) != 0;
}

/* ---- one launch for all sources ---- */

/* The length of source i along the axis: from the gradient asked for, the source, or the state. */
static int64_t length_of(const rg_call *call, int32_t i, int32_t axis)
{
    if (call->dx[i] != NULL)
        return call->dx[i]->desc.dims[axis];
    return call->x[i] != NULL ? call->x[i]->desc.dims[axis] : call->state->sources[i].dims[axis];
}

/* Whether a device joins or parts whole rows, of which there are several, and every tensor is
 * dense. `parts`: x or dx, of which some may be NULL; `whole`: y or dy. */
static bool joins_rows(const rg_call *call, int32_t kernel, const rg_tensor *whole,
                       const rg_tensor *const parts[], rg_concat_join_args *args)
{
    const int32_t axis = axis_of(call->desc, whole->desc.rank);
    const bool on_cpu = whole->device->backend == &rg_backend_cpu;
    int64_t inner = 1, total = 0, taken = 0;
    bool dense = rg_shape_is_dense(&whole->desc);
    for (int32_t d = axis + 1; d < whole->desc.rank; d++)
        inner *= whole->desc.dims[d];
    args->count = call->inputs;
    for (int32_t i = 0; i < call->inputs; i++) {
        const int64_t length = length_of(call, i, axis);
        dense &= take_up(call->desc, length, &taken) && taken == length;
        dense &= parts[i] == NULL || rg_shape_is_dense(&parts[i]->desc);
        total += length * inner;
        args->start[i + 1] = total;
    }
    args->rows = total > 0 ? rg_shape_count(&whole->desc) / total : 0;
    return dense && args->rows > 1 && total <= (on_cpu ? RG_CONCAT_CPU_ROW : RG_CONCAT_ROW) &&
           rg_call_finds(call, kernel, whole->desc.dtype);
}

static rg_status record_rows(rg_call *call, int32_t kernel, const rg_tensor *whole,
                             const rg_tensor *const parts[], rg_concat_join_args *args)
{
    const int64_t bytes = rg_move_bytes(whole);
    const bool on_cpu = whole->device->backend == &rg_backend_cpu; /* rows are made first */
    args->stream = rg_call_streams(call, on_cpu ? bytes / 2 : bytes);
    rg_launch launch = { .kernel = kernel,
                         .dtype = whole->desc.dtype,
                         RG_ARGS(*args),
                         .tensors = { RG_BIND(*args, whole, whole) },
                         .units = args->rows,
                         .grain = rg_max(RG_MOVE_PIECE / rg_max(args->start[call->inputs], 1), 1),
                         .bytes = 2 * bytes };
    for (int32_t i = 0; i < call->inputs; i++)
        launch.tensors[RG_POINTER(*args, parts) + (size_t)i] = parts[i];
    return rg_record(call, &launch);
}

/* ---- forward and gradient ---- */

/* A slice of y along the axis, and how many elements come before it. */
static int64_t slab_of(const rg_tensor_desc *y, int32_t axis, int64_t start, int64_t length,
                       rg_tensor_desc *slab)
{
    *slab = *y;
    slab->dims[axis] = length;
    return start * y->strides[axis];
}

static rg_status put_source(rg_call *call, const rg_tensor *x, int64_t start, int64_t taken)
{
    static const int64_t origin[RG_MAX_RANK] = { 0 };
    static const int64_t steps[RG_MAX_RANK] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const rg_tensor *y = call->y[0];
    const int32_t axis = axis_of(call->desc, y->desc.rank);
    rg_tensor_desc slab;
    const int64_t first = slab_of(&y->desc, axis, start, taken, &slab);
    if (taken == x->desc.dims[axis]) {
        rg_move move = rg_move_make_same(&x->desc, &slab);
        move.to_offset = first;
        return rg_record_move(call, RG_CONCAT_MOVE, x, y, &move);
    }
    rg_scatter scatter = rg_scatter_make(&x->desc, &slab, origin, steps);
    scatter.to_offset = first;
    return rg_record_scatter(call, RG_CONCAT_SCATTER, x, y, &scatter);
}

static rg_status forward(rg_call *call)
{
    const rg_concat_desc *desc = call->desc;
    int64_t start = 0, taken = 0;
    rg_concat_join_args args = { 0 };
    if (joins_rows(call, RG_CONCAT_JOIN, call->y[0], call->x, &args))
        return record_rows(call, RG_CONCAT_JOIN, call->y[0], call->x, &args);
    for (int32_t i = 0; i < call->inputs; i++, start += taken) {
        const rg_tensor *x = call->x[i];
        take_up(desc, x->desc.dims[axis_of(desc, x->desc.rank)], &taken);
        RG_TRY(put_source(call, x, start, taken));
    }
    return RG_OK;
}

static rg_status gradient(rg_call *call)
{
    const rg_tensor *dy = call->dy[0];
    const int32_t axis = axis_of(call->desc, dy->desc.rank);
    int64_t start = 0, taken = 0;
    rg_concat_join_args args = { 0 };
    if (call->add == 0 && joins_rows(call, RG_CONCAT_PART, dy, call->dx, &args))
        return record_rows(call, RG_CONCAT_PART, dy, call->dx, &args);
    for (int32_t i = 0; i < call->inputs; i++, start += taken) {
        const rg_tensor *dx = call->dx[i];
        const int64_t length = length_of(call, i, axis);
        take_up(call->desc, length, &taken);
        if (dx == NULL)
            continue;
        rg_tensor_desc slab;
        const int64_t first = slab_of(&dy->desc, axis, start, length, &slab);
        rg_move move = rg_move_make_same(&slab, &dx->desc);
        move.from_offset = first;
        move.add = call->add >> i & 1;
        RG_TRY(rg_record_move(call, RG_CONCAT_MOVE, dy, dx, &move));
    }
    return RG_OK;
}

RG_OP_DEFINE(concat, .text = "concatenation of tensors along an axis",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7",
                                              NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .count_inputs = count_inputs, .shapes = shapes, .reads = reads, .joins = joins,
             .forward = forward, .gradient = gradient, .fusion = { .is_cheap = true });

rg_status rg_concat_create(rg_device *device, const rg_concat_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_concat, desc, kernel);
}
