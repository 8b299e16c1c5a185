/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses: the args of their kernels, and the launches of forward and gradient. */
#include "ops/loss/loss_record.h"
#include "core/integer.h"
#include "ops/loss/loss.h"
#include "runtime/objects.h"

/* ---- args ---- */

static rg_loss_view view_of(const rg_tensor_desc *desc)
{
    const rg_walk walk = rg_walk_make(&desc, 1, 0, desc->rank);
    rg_loss_view view = { .rank = walk.rank };
    memcpy(view.dims, walk.dims, sizeof view.dims);
    memcpy(view.strides, walk.strides[0], sizeof view.strides);
    return view;
}

/* The sizes of a call, by shape alone. */
typedef struct extent {
    int64_t count, length, rows; /* predictions, of a row, rows */
    int64_t labels, images;
    int64_t groups, group; /* groups, and labels of one */
    double mean;           /* what a mean divides by */
} extent;

static extent extent_of(const rg_loss_desc *d, const rg_tensor_desc *y)
{
    extent e = { .count = rg_shape_count(y), .images = 1, .groups = 1 };
    e.length = y->rank > 0 ? y->dims[y->rank - 1] : 1;
    e.rows = 1;
    for (int32_t i = 0; i < y->rank - 1; i++)
        e.rows *= y->dims[i];
    if (y->rank > rg_loss_has_rows(d))
        e.images = y->dims[0];
    if (d->reduction == RG_LOSS_NONE || !d->across_batch)
        e.groups = e.images;
    e.labels = rg_loss_has_classes(d) ? e.rows : e.count;
    e.group = e.groups > 0 ? e.labels / e.groups : 0;
    e.mean = (double)(e.groups == 0 ? 0 : (rg_loss_has_rows(d) ? e.rows : e.count) / e.groups);
    return e;
}

/* Whether only the data determine how many weights are not 0. */
static bool counts_weights(const rg_loss_desc *d)
{
    return d->reduction == RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS &&
           (d->weights || d->has_ignored || d->weight == 0);
}

/* What sums are divided by, as far as it follows from shapes. */
static double divisor_of(const rg_loss_desc *d, const extent *e)
{
    if (d->reduction == RG_LOSS_MEAN)
        return e->mean;
    if (d->reduction != RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS || counts_weights(d))
        return 1;
    return e->group > 0 ? (double)e->group : 1; /* else the sum is 0 */
}

static rg_loss_numbers numbers_of(const rg_loss_desc *d, const extent *e)
{
    rg_loss_numbers n = { .kind = (int32_t)d->kind,
                          .weight = d->weight,
                          .scale = d->weight,
                          .keep = 1 - d->label_smoothing,
                          .epsilon = d->epsilon,
                          .delta = d->delta };
    const double classes = d->classes > 0 ? (double)d->classes : (double)e->length;
    if (!d->undivided_gradient)
        n.scale /= divisor_of(d, e);
    if (d->label_smoothing > 0)
        n.share = d->kind == RG_LOSS_SIGMOID_CROSS_ENTROPY ? d->label_smoothing / 2
                                                           : d->label_smoothing / classes;
    n.total = n.keep + n.share * (double)e->length;
    return n;
}

/* The strides of rows of y and of the gradient, or of y alone. */
static rg_softmax_shape rows_of(const rg_tensor *y, const rg_tensor *gradient)
{
    const rg_tensor_desc *const descs[] = { &y->desc,
                                            gradient != NULL ? &gradient->desc : &y->desc };
    const int32_t axis = y->desc.rank - 1;
    rg_softmax_shape shape = { .outer = rg_walk_make(descs, 2, 0, axis),
                               .group = rg_walk_make(descs, 2, axis, axis + 1) };
    shape.length = shape.group.count;
    shape.dense = true;
    for (int t = 0; t < 2 && shape.group.rank == 1; t++)
        shape.dense &= shape.group.strides[t][0] == 1;
    return shape;
}

static int32_t kernel_of(const rg_loss_desc *d)
{
    const bool softmax = d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    if (rg_loss_has_classes(d))
        return softmax ? RG_LOSS_BY_CLASSES : RG_LOSS_PICK;
    return softmax ? RG_LOSS_BY_ROWS : RG_LOSS_BY_ELEMENTS;
}

static rg_loss_args make_args(const rg_call *call, const extent *e)
{
    const rg_loss_desc *d = call->desc;
    rg_loss_args args = { .numbers = numbers_of(d, e),
                          .rows = e->rows,
                          .length = e->length,
                          .groups = e->groups,
                          .group = e->group,
                          .ignored = d->ignored,
                          .has_ignored = d->has_ignored,
                          .has_weights = d->weights,
                          .wide_labels = call->x[1]->desc.dtype == RG_I64 };
    args.parts = rg_ceil_div(e->group, RG_LOSS_PART);
    for (int32_t i = 0; i < call->inputs; i++)
        args.views[RG_LOSS_Y + i] = view_of(&call->x[i]->desc);
    return args;
}

/* ---- launches ---- */

static rg_status make_doubles(rg_call *call, int64_t count, rg_tensor **tensor)
{
    const int64_t dims[] = { rg_clamp(count, 1, INT64_MAX) };
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, 1, dims);
    return rg_tensor_create_temporary(call->commands, &desc, tensor);
}

/* Adds up `parts` sums of each group: into a loss, or counts. */
static rg_status record_finish(rg_call *call, rg_loss_finish_args *args, const rg_tensor *partial,
                               const rg_tensor *counts, const rg_tensor *to)
{
    args->view = view_of(&to->desc);
    const rg_launch launch = {
        .tensors = { RG_BIND(*args, partial, partial),
                     RG_BIND(*args, counts, counts != NULL ? counts : partial),
                     RG_BIND(*args, loss, to) },
        .kernel = RG_LOSS_FINISH,
        .dtype = call->x[0]->desc.dtype,
        RG_ARGS(*args),
        .units = args->groups,
        .grain = rg_clamp(RG_LOSS_PART / rg_clamp(args->parts, 1, RG_LOSS_PART), 1, RG_LOSS_PART),
        .bytes = args->groups * (args->parts + 1) * 8
    };
    return rg_record(call, &launch);
}

/* Tensors that do not exist are replaced by y. */
static rg_status record(rg_call *call, int32_t kernel, rg_loss_args *args, const extent *e,
                        const rg_tensor *loss, const rg_tensor *gradient, const rg_tensor *partial,
                        const rg_tensor *counts)
{
    enum { TILE_ELEMENTS = 16384 };
    const rg_tensor *y = call->x[0], *none = y;
    const bool by_parts = kernel == RG_LOSS_BY_ELEMENTS || kernel == RG_LOSS_COUNT;
    const int64_t each =
        by_parts ? rg_clamp(e->group, 1, RG_LOSS_PART) : rg_clamp(e->length, 1, TILE_ELEMENTS);
    rg_launch launch = { .tensors = { RG_BIND(*args, y, y), RG_BIND(*args, labels, call->x[1]),
                                      RG_BIND(*args, weights, call->inputs > 2 ? call->x[2] : none),
                                      RG_BIND(*args, dy, args->has_dy ? call->dy[0] : none),
                                      RG_BIND(*args, loss, loss != NULL ? loss : none),
                                      RG_BIND(*args, gradient, gradient != NULL ? gradient : none),
                                      RG_BIND(*args, partial, partial != NULL ? partial : none),
                                      RG_BIND(*args, counts, counts != NULL ? counts : none) },
                         .kernel = kernel,
                         .dtype = y->desc.dtype,
                         RG_ARGS(*args),
                         .units = by_parts ? e->groups * args->parts : e->rows,
                         .grain = rg_clamp(TILE_ELEMENTS / each, 1, TILE_ELEMENTS),
                         .fault_at = RG_POINTER(*args, fault) };
    const int64_t element = (int64_t)rg_dtype_size(y->desc.dtype);
    launch.bytes = e->count * element * (args->has_gradient ? 2 : 1);
    if (rg_loss_has_classes(call->desc))
        launch.fault_text = "loss: a label is out of range: it is not the index of a class";
    if (e->count == 0)
        launch.units = 0;
    args->stream = args->has_gradient && !args->add && rg_call_streams(call, e->count * element);
    return rg_record(call, &launch);
}

/* Divisors that depend on the weights: *counts is NULL where there are none. */
static rg_status record_counts(rg_call *call, const rg_loss_args *like, const extent *e,
                               rg_tensor **counts)
{
    const rg_loss_desc *d = call->desc;
    *counts = NULL;
    const bool divides = like->losses == RG_LOSS_SUMS || !d->undivided_gradient;
    if (!counts_weights(d) || !divides || e->groups == 0)
        return RG_OK;
    rg_loss_args args = *like;
    rg_tensor *partial;
    args.has_gradient = args.has_dy = false;
    RG_TRY(make_doubles(call, e->groups * args.parts, &partial));
    rg_status status = make_doubles(call, e->groups, counts);
    if (status == RG_OK)
        status = record(call, RG_LOSS_COUNT, &args, e, NULL, NULL, partial, NULL);
    rg_loss_finish_args finish = { .groups = e->groups,
                                   .parts = e->count > 0 ? args.parts : 0,
                                   .divisor = 1,
                                   .makes_counts = true };
    if (status == RG_OK)
        status = record_finish(call, &finish, partial, NULL, *counts);
    rg_tensor_destroy(partial);
    return status;
}

/* One launch with losses for each label, or with sums that a second one adds up. */
static rg_status record_losses(rg_call *call, rg_loss_args *args, const extent *e,
                               const rg_tensor *gradient, const rg_tensor *counts)
{
    const rg_loss_desc *d = call->desc;
    const rg_tensor *loss = call->y[0];
    const int32_t kernel = kernel_of(d);
    if (args->losses == RG_LOSS_OF_LABELS)
        return record(call, kernel, args, e, loss, gradient, NULL, counts);
    const bool by_parts = kernel == RG_LOSS_BY_ELEMENTS;
    rg_loss_finish_args finish = { .groups = e->groups,
                                   .divisor = divisor_of(d, e),
                                   .has_counts = counts != NULL };
    if (kernel == RG_LOSS_BY_CLASSES && e->groups == 1 && e->count > 0 &&
        e->length <= RG_LOSS_SHORT) {
        args->divisor = finish.divisor;
        args->divides_by_counts = finish.has_counts;
        finish.gpu_is_done = true;
    }
    if (e->groups > 0 && e->count > 0)
        finish.parts = by_parts ? args->parts : e->rows / e->groups;
    if (d->kind == RG_LOSS_COSINE_DISTANCE && e->groups > 0)
        finish.bias = d->weight * (double)(e->images / e->groups);
    rg_tensor *partial;
    RG_TRY(make_doubles(call, e->groups * finish.parts, &partial));
    rg_status status = record(call, kernel, args, e, loss, gradient, partial, counts);
    if (status == RG_OK)
        status = record_finish(call, &finish, partial, counts, loss);
    rg_tensor_destroy(partial);
    return status;
}

static rg_status record_ones(rg_call *call)
{
    const rg_tensor *y = call->y[0];
    const rg_tensor_desc *const descs[] = { &y->desc };
    rg_loss_ones_args args = { .sweep = rg_sweep_make(descs, 1) };
    const int64_t length = rg_clamp(args.sweep.length, 1, args.sweep.piece);
    const rg_launch launch = { .tensors = { RG_BIND(args, y, y) },
                               .kernel = RG_LOSS_ONES,
                               .dtype = y->desc.dtype,
                               RG_ARGS(args),
                               .units = rg_sweep_units(&args.sweep),
                               .grain = args.sweep.piece / length,
                               .bytes = rg_shape_count(&y->desc) *
                                        (int64_t)rg_dtype_size(y->desc.dtype) };
    return rg_record(call, &launch);
}

/* ---- forward and gradient ---- */

rg_status rg_loss_forward(rg_call *call)
{
    const rg_loss_desc *d = call->desc;
    if (rg_loss_is_initial(d))
        return record_ones(call);
    const rg_tensor *gradient = d->gradient_output ? call->y[1] : NULL;
    const extent e = extent_of(d, &call->x[0]->desc);
    rg_loss_args args = make_args(call, &e);
    rg_tensor *counts;
    args.losses = d->reduction == RG_LOSS_NONE ? RG_LOSS_OF_LABELS : RG_LOSS_SUMS;
    args.views[RG_LOSS_L] = view_of(&call->y[0]->desc);
    args.has_gradient = gradient != NULL;
    if (gradient != NULL)
        args.views[RG_LOSS_D] = view_of(&gradient->desc);
    if (kernel_of(d) == RG_LOSS_BY_CLASSES)
        args.shape = rows_of(call->x[0], gradient);
    rg_status status = record_counts(call, &args, &e, &counts);
    args.has_counts = counts != NULL && !d->undivided_gradient;
    if (status == RG_OK)
        status = record_losses(call, &args, &e, gradient, counts);
    rg_tensor_destroy(counts);
    return status;
}

/* The gradient of y (input 0) or of labels (input 1). */
static rg_status record_gradient(rg_call *call, int32_t input, const extent *e,
                                 const rg_tensor *counts)
{
    const rg_loss_desc *d = call->desc;
    const rg_tensor *dx = call->dx[input];
    rg_loss_args args = make_args(call, e);
    if (dx == NULL)
        return RG_OK;
    args.losses = RG_LOSS_NO_LOSS;
    args.has_gradient = true;
    args.is_label_gradient = input == 1;
    args.has_counts = counts != NULL && !d->undivided_gradient;
    args.has_dy = call->dy[0] != NULL;
    args.dy_of_labels = args.has_dy && d->reduction == RG_LOSS_NONE;
    args.add = call->add >> input & 1;
    args.views[RG_LOSS_D] = view_of(&dx->desc);
    if (args.has_dy)
        args.views[RG_LOSS_DY] = view_of(&call->dy[0]->desc);
    if (kernel_of(d) == RG_LOSS_BY_CLASSES)
        args.shape = rows_of(call->x[0], dx);
    return record(call, kernel_of(d), &args, e, NULL, dx, NULL, counts);
}

/* The gradient of labels comes first: that of y may overwrite y. */
rg_status rg_loss_gradient(rg_call *call)
{
    const extent e = extent_of(call->desc, &call->x[0]->desc);
    rg_loss_args args = make_args(call, &e);
    rg_tensor *counts;
    args.losses = RG_LOSS_NO_LOSS;
    rg_status status = record_counts(call, &args, &e, &counts);
    for (int32_t input = 1; input >= 0 && status == RG_OK; input--)
        status = record_gradient(call, input, &e, counts);
    rg_tensor_destroy(counts);
    return status;
}
