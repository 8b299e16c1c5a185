/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions: description, validation, shape rule, forward, gradient. */
#include "ops/reduce/reduce.h"
#include "core/integer.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/reduce.h>

/* ---- description ---- */

static const rg_reduce_desc defaults = {
    .size = sizeof(rg_reduce_desc),
    .kind = RG_REDUCE_SUM,
    .keep_dims = true,
    .weight = 1,
};

rg_reduce_desc rg_reduce_desc_default(void)
{
    return defaults;
}

static const char *const kinds[] = { "sum", "mean", "min", "max", "arg_min", "arg_max", NULL };

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_reduce_desc, kind, kinds, "reduction of a group"),
    RG_FIELD(rg_reduce_desc, keep_dims, "keep reduced dimensions with length 1"),
    RG_FIELD_COUNTED(rg_reduce_desc, dims, 0, 0,
                     "dimensions to reduce, all if empty; negative: from the last"),
    RG_FIELD(rg_reduce_desc, weight, "sum and mean: factor of the result"),
    { .name = NULL },
};

#define IMAGE      "sourceImage=x destinationImage=y"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"
#define DATA       "data=x reduced=y"

static const rg_op_name names[] = {
    { "MPSNNReduceRowMin", false, "kind=min dims=-2", IMAGE, 3, 4 },
    { "MPSNNReduceRowMax", false, "kind=max dims=-2", IMAGE, 3, 4 },
    { "MPSNNReduceRowMean", false, "kind=mean dims=-2", IMAGE, 3, 4 },
    { "MPSNNReduceRowSum", false, "kind=sum dims=-2", IMAGE, 3, 4 },
    { "MPSNNReduceColumnMin", false, "kind=min dims=-3", IMAGE, 3, 4 },
    { "MPSNNReduceColumnMax", false, "kind=max dims=-3", IMAGE, 3, 4 },
    { "MPSNNReduceColumnMean", false, "kind=mean dims=-3", IMAGE, 3, 4 },
    { "MPSNNReduceColumnSum", false, "kind=sum dims=-3", IMAGE, 3, 4 },
    { "MPSNNReduceFeatureChannelsMin", false, "kind=min dims=-1", IMAGE, 3, 4 },
    { "MPSNNReduceFeatureChannelsMax", false, "kind=max dims=-1", IMAGE, 3, 4 },
    { "MPSNNReduceFeatureChannelsMean", false, "kind=mean dims=-1", IMAGE, 3, 4 },
    { "MPSNNReduceFeatureChannelsSum", false, "kind=sum dims=-1", IMAGE, 3, 4 },
    { "MPSNNReduceFeatureChannelsArgumentMin", false, "kind=arg_min dims=-1", IMAGE, 3, 4 },
    { "MPSNNReduceFeatureChannelsArgumentMax", false, "kind=arg_max dims=-1", IMAGE, 3, 4 },
    { "MPSNNReductionSpatialMeanNode", false, "kind=mean dims=-3,-2", IMAGE, 3, 4 },
    { "MPSNNReductionSpatialMeanGradientNode", true, "kind=mean dims=-3,-2", IMAGE_GRAD, 3, 4 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static bool is_sum(const rg_reduce_desc *d)
{
    return d->kind == RG_REDUCE_SUM || d->kind == RG_REDUCE_MEAN;
}

static bool is_number(const rg_reduce_desc *d)
{
    return d->kind == RG_REDUCE_ARG_MIN || d->kind == RG_REDUCE_ARG_MAX;
}

static rg_status check(const void *desc)
{
    const rg_reduce_desc *d = desc;
    RG_CHECK(is_sum(d) || d->weight == 1, RG_INVALID_ARGUMENT,
             "reduce: weight is %g; it must be 1 for %s", d->weight, kinds[d->kind]);
    return RG_OK;
}

/* Bit d: dimension d is reduced. */
static uint32_t reduced_dims(const rg_reduce_desc *d, int32_t rank)
{
    uint32_t reduced = d->dims_count == 0 ? (1u << rank) - 1 : 0;
    for (int32_t i = 0; i < d->dims_count; i++)
        reduced |= 1u << (d->dims[i] < 0 ? d->dims[i] + rank : d->dims[i]);
    return reduced;
}

static rg_status check_dims(const rg_reduce_desc *d, int32_t rank)
{
    uint32_t seen = 0;
    for (int32_t i = 0; i < d->dims_count; i++) {
        const int64_t axis = d->dims[i];
        RG_CHECK(axis >= -rank && axis < rank, RG_INVALID_ARGUMENT,
                 "reduce: dims has dimension %lld, but x has rank %d", (long long)axis, rank);
        const uint32_t bit = 1u << (axis < 0 ? axis + rank : axis);
        RG_CHECK((seen & bit) == 0, RG_INVALID_ARGUMENT, "reduce: dims has dimension %lld twice",
                 (long long)axis);
        seen |= bit;
    }
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_reduce_desc *d = desc;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "reduce: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_TRY(check_dims(d, x->rank));
    const uint32_t reduced = reduced_dims(d, x->rank);
    int64_t dims[RG_MAX_RANK], length = 1;
    int32_t rank = 0;
    for (int32_t i = 0; i < x->rank; i++) {
        const bool is_reduced = reduced >> i & 1;
        length *= is_reduced ? x->dims[i] : 1;
        if (!is_reduced || d->keep_dims)
            dims[rank++] = is_reduced ? 1 : x->dims[i];
    }
    char text[RG_SHAPE_TEXT];
    RG_CHECK(is_sum(d) || length > 0, RG_INVALID_ARGUMENT,
             "reduce: %s is not defined for no elements; x is %s", kinds[d->kind],
             rg_shape_text(x, text));
    y[0] = rg_tensor_desc_dense(is_number(d) ? RG_I64 : x->dtype, rank, dims);
    return rg_shape_check(&y[0], "reduce: y", NULL);
}

static bool is_extreme(const rg_reduce_desc *d)
{
    return !is_sum(d) && !is_number(d);
}

static uint32_t reads(const void *desc)
{
    return is_sum(desc) ? 0 : RG_READS_X | (is_extreme(desc) ? RG_READS_OR_STATE : 0);
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    return x->rank > 0 && check_dims(desc, x->rank) == RG_OK && !(reduced_dims(desc, x->rank) & 1);
}

/* ---- state ---- */

/* The winners of an extreme: one number for each element of y, in row-major order. */
static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    if (!is_extreme(desc) || shapes(desc, x, y) != RG_OK)
        return 0;
    slots[0] = (rg_state_slot){ "winners", rg_tensor_desc_dense(RG_I64, y->rank, y->dims) };
    return 1;
}

static bool writes_state(const void *desc, bool is_gradient)
{
    return !is_gradient && is_extreme(desc);
}

/* ---- views over the dims of x ---- */

/* Strides of y, or of numbers, over the dims of x: 0 along those that are reduced. */
static rg_tensor_desc spread_view(const rg_tensor_desc *x, const rg_tensor_desc *y,
                                  uint32_t reduced)
{
    rg_tensor_desc view = *x;
    const bool keeps = y->rank == x->rank;
    for (int32_t i = 0, k = 0; i < x->rank; i++) {
        const bool is_reduced = reduced >> i & 1;
        view.strides[i] = is_reduced ? 0 : y->strides[keeps ? i : k];
        k += !is_reduced;
    }
    return view;
}

/* Numbers in row-major order of the dims in `counted`; 0 along the others. */
static rg_tensor_desc number_view(const rg_tensor_desc *x, uint32_t counted)
{
    rg_tensor_desc view = *x;
    int64_t stride = 1;
    for (int32_t i = x->rank - 1; i >= 0; i--) {
        const bool counts = counted >> i & 1;
        view.strides[i] = counts ? stride : 0;
        stride *= counts ? x->dims[i] : 1;
    }
    return view;
}

/* The dims in `taken` alone. */
static rg_tensor_desc take_dims(const rg_tensor_desc *from, uint32_t taken)
{
    rg_tensor_desc desc = { .dtype = from->dtype };
    for (int32_t i = 0; i < from->rank; i++) {
        if (!(taken >> i & 1))
            continue;
        desc.dims[desc.rank] = from->dims[i];
        desc.strides[desc.rank++] = from->strides[i];
    }
    return desc;
}

/* ---- forward ---- */

static rg_reduce_result result_of(const rg_reduce_desc *d, rg_reduce_what what, int64_t length)
{
    const bool least = d->kind == RG_REDUCE_MIN || d->kind == RG_REDUCE_ARG_MIN;
    return (rg_reduce_result){ .what = what,
                               .sign = least ? -1 : 1,
                               .weight = d->weight,
                               .divisor = d->kind == RG_REDUCE_MEAN ? (double)length : 1 };
}

/* Adjacent groups: all dimensions after the last one that is reduced. 1: rows. */
static int64_t width_of(const rg_tensor_desc *x, uint32_t reduced)
{
    int64_t width = 1;
    for (int32_t i = x->rank - 1; i >= 0 && !(reduced >> i & 1 && x->dims[i] != 1); i--)
        width *= x->dims[i];
    return width;
}

/* How long a part is: it reads enough to be worth its result, and is made of whole pieces. From the
 * shape alone, since it decides the order of sums. */
static int64_t choose_part(int64_t width, int64_t elements)
{
    enum { PIECE = 128 };
    const int64_t rows = elements / rg_clamp(width, 1, RG_BLOCK_GROUPS);
    return rg_clamp(rows / PIECE * PIECE, PIECE, elements);
}

/* Elements of a part. A GPU has larger ones of columns where there are enough of them: a block then
 * reads for longer than it joins. */
static int64_t part_elements(const rg_call *call, const rg_tensor_desc *x, int64_t width)
{
    enum { ELEMENTS = 16384, BYTES = 131072, MIN_LARGE_ELEMENTS = 1 << 26 };
    const bool large = width > 1 && rg_shape_count(x) >= MIN_LARGE_ELEMENTS &&
                       rg_call_finds(call, RG_REDUCE_AWARD_ROWS, x->dtype);
    return large ? BYTES / (int64_t)rg_dtype_size(x->dtype) : ELEMENTS;
}

/* Walks over the groups and within a group; returns the units of the launch. */
static int64_t lay_out(const rg_call *call, const rg_tensor_desc *x, const rg_tensor_desc *y,
                       uint32_t reduced, rg_reduce_args *args)
{
    const uint32_t kept = ((1u << x->rank) - 1) & ~reduced;
    const rg_tensor_desc y_view = spread_view(x, y, reduced), o_view = number_view(x, kept);
    const rg_tensor_desc xs = take_dims(x, kept), ys = take_dims(&y_view, kept);
    const rg_tensor_desc os = take_dims(&o_view, kept), xg = take_dims(x, reduced);
    const rg_tensor_desc *const outer[] = { &xs, &ys, &os }, *const group[] = { &xg };
    rg_reduce_result *result = &args->result;
    const int64_t width = width_of(x, reduced);
    args->outer = rg_walk_make(outer, 3, 0, xs.rank);
    args->group = rg_walk_make(group, 1, 0, xg.rank);
    args->length = args->group.count;
    result->outputs = args->outer.count;
    result->part = choose_part(width, part_elements(call, x, width));
    result->parts = rg_clamp(rg_ceil_div(args->length, result->part), 1, INT64_MAX);
    if (width == 1) {
        args->dense =
            args->group.rank == 0 || (args->group.rank == 1 && args->group.strides[0][0] == 1);
        return result->outputs * result->parts;
    }
    args->side = width;
    args->width = rg_walk_take_inner(&args->outer, 3, args->across);
    args->block = rg_clamp(args->width, 1, RG_BLOCK_GROUPS);
    args->blocks = rg_ceil_div(args->width, args->block);
    args->dense = args->across[0] == 1 || args->width == 1;
    return args->outer.count * args->blocks * result->parts;
}

/* Where the numbers of extremes go beside these; NULL: nowhere. */
static const rg_tensor *winners_of(const rg_call *call, const rg_reduce_result *result)
{
    return result->what == RG_REDUCE_WINNER ? rg_state_slot_tensor(call->state, 0) : NULL;
}

/* Joins the parts of all groups. */
static rg_status record_finish(rg_call *call, const rg_reduce_result *result, rg_dtype dtype,
                               const rg_tensor *partial, const rg_tensor *y)
{
    const rg_tensor_desc *const descs[] = { &y->desc };
    rg_reduce_finish_args args = { .outer = rg_walk_make(descs, 1, 0, y->desc.rank),
                                   .result = *result };
    const rg_launch launch = { .tensors = { RG_BIND(args, partial, partial), RG_BIND(args, y, y),
                                            RG_BIND(args, winners, winners_of(call, result)) },
                               .kernel = RG_REDUCE_FINISH,
                               .dtype = dtype,
                               RG_ARGS(args),
                               .units = result->outputs,
                               .grain = 1024,
                               .bytes = result->outputs * (result->parts + 1) * 8 };
    return rg_record(call, &launch);
}

static rg_status record_groups(rg_call *call, rg_reduce_args *args, int64_t units,
                               const rg_tensor *x, const rg_tensor *y, const rg_tensor *partial)
{
    enum { TILE_ELEMENTS = 16384 };
    const int64_t part = args->length < args->result.part ? args->length : args->result.part;
    const int64_t each = part * rg_clamp(args->block, 1, RG_BLOCK_GROUPS);
    const rg_launch launch = {
        .tensors = { RG_BIND(*args, x, x), RG_BIND(*args, y, y),
                     RG_BIND(*args, partial, partial != NULL ? partial : y),
                     RG_BIND(*args, winners, winners_of(call, &args->result)) },
        .kernel = args->block == 0 ? RG_REDUCE_ROWS : RG_REDUCE_COLUMNS,
        .dtype = x->desc.dtype,
        RG_ARGS(*args),
        .units = units,
        .grain = rg_clamp(TILE_ELEMENTS / rg_clamp(each, 1, TILE_ELEMENTS), 1, TILE_ELEMENTS),
        .bytes = rg_shape_count(&x->desc) * (int64_t)rg_dtype_size(x->desc.dtype)
    };
    return rg_record(call, &launch);
}

/* y = the reduced groups of x. Results of parts go through a temporary; so does everything where y
 * has another dtype, as gradients of parameters may. */
static rg_status reduce(rg_call *call, rg_reduce_what what, const rg_tensor *x, const rg_tensor *y)
{
    const uint32_t reduced = reduced_dims(call->desc, x->desc.rank);
    rg_reduce_args args = { 0 };
    const rg_tensor_desc group = take_dims(&x->desc, reduced);
    args.result = result_of(call->desc, what, rg_shape_count(&group));
    const int64_t units = lay_out(call, &x->desc, &y->desc, reduced, &args);
    const bool wide = what != RG_REDUCE_NUMBER && y->desc.dtype != x->desc.dtype;
    args.result.apart = wide;
    if (args.result.parts == 1 && !wide)
        return record_groups(call, &args, units, x, y, NULL);
    const int64_t dims[] = { what >= RG_REDUCE_NUMBER ? 2 : 1, args.result.parts,
                             args.result.outputs };
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, 3, dims);
    rg_tensor *partial;
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &partial));
    rg_status status = record_groups(call, &args, units, x, y, partial);
    if (status == RG_OK)
        status =
            record_finish(call, &args.result, wide ? y->desc.dtype : x->desc.dtype, partial, y);
    rg_tensor_destroy(partial);
    return status;
}

static rg_status forward(rg_call *call)
{
    const rg_reduce_desc *d = call->desc;
    const rg_reduce_what what = is_sum(d)             ? RG_REDUCE_TOTAL
                                : is_number(d)        ? RG_REDUCE_NUMBER
                                : call->state != NULL ? RG_REDUCE_WINNER
                                                      : RG_REDUCE_EXTREME;
    return reduce(call, what, call->x[0], call->y[0]);
}

/* ---- gradient ---- */

/* Joins rows of a sweep for RG_REDUCE_AWARD whose elements belong to the same adjacent groups; with
 * streaming stores only if few lines of the cache have a winner, since these are written twice.
 * Returns the elements of such a row; 0: nothing is joined. */
static int64_t join_group_rows(rg_sweep *s, bool stream)
{
    enum { PIECE = 32768, PIECE_ROWS = 64, MAX_WIDTH = 4096, MIN_ROWS = 16, MIN_STREAM_ROWS = 256 };
    static const int64_t within[] = { 1, 1, 1, 0 };
    const int32_t last = s->outer.rank - 1;
    const int64_t width = s->length, next[] = { width, 0, 0, 1 };
    if (last < 0 || width == 0 || width > MAX_WIDTH ||
        s->outer.dims[last] < (stream ? MIN_STREAM_ROWS : MIN_ROWS))
        return 0;
    for (int t = 0; t < 4; t++)
        if (s->step[t] != within[t] || s->outer.strides[t][last] != next[t])
            return 0;
    int64_t step[RG_WALK_TENSORS];
    s->length *= rg_walk_take_inner(&s->outer, 4, step);
    s->piece = rg_clamp(PIECE / width, PIECE_ROWS, PIECE) * width;
    s->pieces = rg_ceil_div(s->length, s->piece);
    s->step[1] = s->step[2] = 0;
    return width;
}

/* dx from dy, and from the numbers of the winners unless these are NULL. */
static rg_status spread(rg_call *call, const rg_tensor *winners)
{
    const rg_reduce_desc *d = call->desc;
    const rg_tensor *dy = call->dy[0], *dx = call->dx[0];
    const int32_t rank = dx->desc.rank;
    const uint32_t all = (1u << rank) - 1, reduced = reduced_dims(d, rank);
    const rg_tensor_desc views[] = { dx->desc, spread_view(&dx->desc, &dy->desc, reduced),
                                     number_view(&dx->desc, all & ~reduced),
                                     number_view(&dx->desc, reduced) };
    const rg_tensor_desc *const descs[] = { &views[0], &views[1], &views[2], &views[3] };
    const rg_tensor_desc group = take_dims(&dx->desc, reduced);
    rg_reduce_gradient_args args = { .factor = 1, .add = call->add & 1 };
    args.sweep = rg_sweep_make(descs, winners != NULL ? 4 : 2);
    if (winners == NULL)
        args.factor =
            d->kind == RG_REDUCE_MEAN ? d->weight / (double)rg_shape_count(&group) : d->weight;
    const int64_t bytes = rg_shape_count(&dx->desc) * (int64_t)rg_dtype_size(dx->desc.dtype);
    /* The cache holds three times as much of dx where nothing large is read beside it, now or
     * just before, for the winners. */
    const bool reads_x = winners != NULL && call->state == NULL;
    args.stream = !args.add && rg_call_streams(call, reads_x ? bytes : bytes / 3);
    if (winners == NULL && !args.add && rg_call_finds(call, RG_REDUCE_REPEAT, dx->desc.dtype))
        args.period = rg_sweep_join_repeats(&args.sweep, 2, 1, RG_REPEAT_MAX);
    if (winners != NULL && !args.add && rg_call_finds(call, RG_REDUCE_REPEAT, dx->desc.dtype))
        args.period = join_group_rows(&args.sweep, args.stream);
    const int64_t length = args.sweep.length, piece = args.sweep.piece;
    const rg_launch launch = { .tensors = { RG_BIND(args, dy, dy), RG_BIND(args, dx, dx),
                                            RG_BIND(args, winners, winners) },
                               .kernel = winners != NULL   ? RG_REDUCE_AWARD
                                         : args.period > 0 ? RG_REDUCE_REPEAT
                                                           : RG_REDUCE_SPREAD,
                               .dtype = dx->desc.dtype,
                               RG_ARGS(args),
                               .units = rg_sweep_units(&args.sweep),
                               .grain = rg_clamp(piece / rg_clamp(length, 1, piece), 1, piece),
                               .bytes = bytes * (args.add ? 2 : 1) };
    return rg_record(call, &launch);
}

/* Whether the gradient of an extreme is one launch: groups are rows of one part, in which elements
 * are one distance apart. */
static bool awards_rows(const rg_call *call, rg_reduce_award_args *args)
{
    const rg_reduce_desc *d = call->desc;
    const rg_tensor_desc *x = &call->x[0]->desc, *dx = &call->dx[0]->desc;
    const uint32_t reduced = reduced_dims(d, x->rank), kept = ((1u << x->rank) - 1) & ~reduced;
    const rg_tensor_desc dy_view = spread_view(x, &call->dy[0]->desc, reduced);
    const rg_tensor_desc xs = take_dims(x, kept), dxs = take_dims(dx, kept);
    const rg_tensor_desc dys = take_dims(&dy_view, kept);
    const rg_tensor_desc xg = take_dims(x, reduced), dxg = take_dims(dx, reduced);
    const rg_tensor_desc *const outer[] = { &xs, &dxs, &dys }, *const group[] = { &xg, &dxg };
    const rg_walk within = rg_walk_make(group, 2, 0, xg.rank);
    args->outer = rg_walk_make(outer, 3, 0, xs.rank);
    args->length = within.count;
    for (int t = 0; t < 2; t++)
        args->step[t] = within.rank == 0 ? 1 : within.strides[t][0];
    return within.rank <= 1 && width_of(x, reduced) == 1 &&
           within.count <= choose_part(1, part_elements(call, x, 1)) &&
           rg_call_finds(call, RG_REDUCE_AWARD_ROWS, x->dtype);
}

static rg_status award_rows(rg_call *call, rg_reduce_award_args *args)
{
    const rg_tensor *x = call->x[0], *dy = call->dy[0], *dx = call->dx[0];
    const int64_t bytes = rg_shape_count(&x->desc) * (int64_t)rg_dtype_size(x->desc.dtype);
    args->sign = result_of(call->desc, RG_REDUCE_NUMBER, args->length).sign;
    args->add = call->add & 1;
    args->stream = !args->add && rg_call_streams(call, bytes);
    const rg_launch launch = { .tensors = { RG_BIND(*args, x, x), RG_BIND(*args, dy, dy),
                                            RG_BIND(*args, dx, dx) },
                               .kernel = RG_REDUCE_AWARD_ROWS,
                               .dtype = x->desc.dtype,
                               RG_ARGS(*args),
                               .units = args->outer.count,
                               .grain = 1,
                               .bytes = bytes * (args->add ? 3 : 2) };
    return rg_record(call, &launch);
}

static rg_status gradient(rg_call *call)
{
    const rg_reduce_desc *d = call->desc;
    rg_reduce_award_args args = { 0 };
    RG_CHECK(!is_number(d), RG_UNSUPPORTED, "reduce: %s has no gradient", kinds[d->kind]);
    if (is_sum(d))
        return spread(call, NULL);
    if (call->state != NULL)
        return spread(call, rg_state_slot_tensor(call->state, 0));
    if (awards_rows(call, &args))
        return award_rows(call, &args);
    const rg_tensor_desc *dy = &call->dy[0]->desc;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_I64, dy->rank, dy->dims);
    rg_tensor *winners;
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &winners));
    rg_status status = reduce(call, RG_REDUCE_NUMBER, call->x[0], winners);
    if (status == RG_OK)
        status = spread(call, winners);
    rg_tensor_destroy(winners);
    return status;
}

RG_OP_DEFINE(reduce, .text = "sum, mean, minimum, maximum or their indices along dimensions",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names, .check = check,
             .shapes = shapes, .state = make_slots, .writes_state = writes_state, .reads = reads,
             .joins = joins, .forward = forward, .gradient = gradient);

rg_status rg_reduce_create(rg_device *device, const rg_reduce_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_reduce, desc, kernel);
}
