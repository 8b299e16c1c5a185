/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses: description, validation, shape rule, forward, gradient. */
#include "ops/loss/loss.h"
#include "core/integer.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/loss.h>
#include <retrograde/softmax.h>

/* ---- description ---- */

static const rg_loss_desc defaults = {
    .size = sizeof(rg_loss_desc),
    .kind = RG_LOSS_SOFTMAX_CROSS_ENTROPY,
    .reduction = RG_LOSS_MEAN,
    .across_batch = true,
    .weight = 1,
    .epsilon = 1e-7,
    .delta = 1,
};

rg_loss_desc rg_loss_desc_default(void)
{
    return defaults;
}

static const char *const kinds[] = { "mean_absolute",
                                     "mean_squared",
                                     "softmax_cross_entropy",
                                     "sigmoid_cross_entropy",
                                     "categorical_cross_entropy",
                                     "hinge",
                                     "huber",
                                     "cosine_distance",
                                     "log",
                                     "kullback_leibler",
                                     "initial_gradient",
                                     NULL };
static const char *const reductions[] = { "none", "sum", "mean", "sum_by_non_zero_weights", NULL };
static const char *const label_kinds[] = { "dense", "classes", NULL };

static const rg_field fields[] = {
    { .name = "kind",
      .type = RG_FIELD_ENUM,
      .offset = offsetof(rg_loss_desc, kind),
      .names = kinds,
      .text = "loss function" },
    { .name = "reduction",
      .type = RG_FIELD_ENUM,
      .offset = offsetof(rg_loss_desc, reduction),
      .names = reductions,
      .text = "reduction of the losses" },
    { .name = "across_batch",
      .type = RG_FIELD_BOOL,
      .offset = offsetof(rg_loss_desc, across_batch),
      .text = "one loss for the whole batch instead of one per image" },
    { .name = "labels",
      .type = RG_FIELD_ENUM,
      .offset = offsetof(rg_loss_desc, labels),
      .names = label_kinds,
      .text = "one label per prediction (dense), or one class index per row (classes)" },
    { .name = "weights",
      .type = RG_FIELD_BOOL,
      .offset = offsetof(rg_loss_desc, weights),
      .text = "a third input has a weight for every label" },
    { .name = "weight",
      .type = RG_FIELD_F64,
      .offset = offsetof(rg_loss_desc, weight),
      .text = "factor of all losses" },
    { .name = "label_smoothing",
      .type = RG_FIELD_F64,
      .offset = offsetof(rg_loss_desc, label_smoothing),
      .low = 0,
      .high = 1,
      .text = "softmax and sigmoid: label smoothing, the part of a label spread over all classes" },
    { .name = "classes",
      .type = RG_FIELD_I64,
      .offset = offsetof(rg_loss_desc, classes),
      .low = 0,
      .high = 0x1p62,
      .text = "number of classes for label smoothing; 0: length of the last dimension" },
    { .name = "epsilon",
      .type = RG_FIELD_F64,
      .offset = offsetof(rg_loss_desc, epsilon),
      .low = 0,
      .high = 1,
      .text = "log: added to the argument of the logarithm" },
    { .name = "delta",
      .type = RG_FIELD_F64,
      .offset = offsetof(rg_loss_desc, delta),
      .low = 0,
      .high = 1e30,
      .text = "huber: threshold between square and linear loss; must be greater than 0" },
    { .name = "ignored",
      .type = RG_FIELD_I64,
      .offset = offsetof(rg_loss_desc, ignored),
      .present = offsetof(rg_loss_desc, has_ignored),
      .text = "a class label that does not count" },
    { .name = "gradient_output",
      .type = RG_FIELD_BOOL,
      .offset = offsetof(rg_loss_desc, gradient_output),
      .text = "a second output is the gradient of y for dy = 1" },
    { .name = "undivided_gradient",
      .type = RG_FIELD_BOOL,
      .offset = offsetof(rg_loss_desc, undivided_gradient),
      .text = "gradients omit the divisor of mean and sum_by_non_zero_weights, as in MPS" },
    { .name = NULL },
};

#define MPS_FIELDS "reduction=none across_batch=false classes=1 undivided_gradient=true"
#define SOURCES    "sourceImage=y labels=labels weights=weights"

/* A mean of ONNX leaves out what is ignored. */
#define ONNX_FIELDS "labels=classes reduction=sum_by_non_zero_weights"

static const rg_op_name names[] = {
    { "MPSCNNLoss", false, MPS_FIELDS " gradient_output=true",
      SOURCES " lossImage=loss destinationImage=gradient", 1, 8 },
    { "MPSNNForwardLoss", false, MPS_FIELDS, SOURCES " destinationImage=loss", 1, 8 },
    { "MPSNNLossGradient", true, MPS_FIELDS,
      "sourceGradient=dloss sourceImage=y labels=labels weights=weights destinationImage=dy", 1,
      8 },
    { "MPSNNInitialGradient", false, "kind=initial_gradient", "sourceImage=y destinationImage=loss",
      1, 8 },
    { "SoftmaxCrossEntropyLoss", false, ONNX_FIELDS, "scores=y output=loss", 2, 2 },
    { "NegativeLogLikelihoodLoss", false, "kind=kullback_leibler " ONNX_FIELDS,
      "input=y target=labels", 2, 2 },
    { .name = NULL },
};

static bool is_initial(const rg_loss_desc *d)
{
    return d->kind == RG_LOSS_INITIAL_GRADIENT;
}

static bool has_classes(const rg_loss_desc *d)
{
    return d->labels == RG_LOSS_CLASS_LABELS;
}

/* Whether the last dimension belongs together, so that it holds no images. */
static bool has_rows(const rg_loss_desc *d)
{
    return has_classes(d) || d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY;
}

static int32_t count_inputs(const void *desc)
{
    const rg_loss_desc *d = desc;
    return is_initial(d) ? 1 : d->weights ? 3 : 2;
}

static int32_t count_outputs(const void *desc)
{
    return ((const rg_loss_desc *)desc)->gradient_output ? 2 : 1;
}

static int32_t count_gradients(const void *desc)
{
    (void)desc;
    return 1;
}

static uint32_t no_gradient(const void *desc)
{
    const rg_loss_desc *d = desc;
    return is_initial(d) ? 1 : has_classes(d) ? 6 : 4;
}

static const char *alias_of(const void *desc)
{
    return ((const rg_loss_desc *)desc)->gradient_output ? "x0=y1" : "";
}

static uint32_t reads(const void *desc)
{
    return ((uint32_t)RG_READS_X << count_inputs(desc)) - RG_READS_X;
}

/* ---- validation, shape rule ---- */

static rg_status check_labels(const rg_loss_desc *d)
{
    const rg_loss_kind kind = d->kind;
    const bool smooths =
        kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY || kind == RG_LOSS_SIGMOID_CROSS_ENTROPY;
    const bool picks = kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY ||
                       kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY ||
                       kind == RG_LOSS_KULLBACK_LEIBLER;
    RG_CHECK(d->label_smoothing == 0 || smooths, RG_INVALID_ARGUMENT,
             "loss: label_smoothing is %g; it must be 0 for %s", d->label_smoothing, kinds[kind]);
    RG_CHECK(!has_classes(d) || picks, RG_INVALID_ARGUMENT,
             "loss: %s does not support class labels", kinds[kind]);
    RG_CHECK(!d->has_ignored || has_classes(d), RG_INVALID_ARGUMENT,
             "loss: ignored is %lld, but labels are dense", (long long)d->ignored);
    return RG_OK;
}

static rg_status check(const void *desc)
{
    const rg_loss_desc *d = desc;
    RG_CHECK(d->weight - d->weight == 0, RG_INVALID_ARGUMENT, "loss: weight must be finite, not %g",
             d->weight);
    RG_CHECK(d->delta > 0, RG_INVALID_ARGUMENT, "loss: delta must be greater than 0, not %g",
             d->delta);
    RG_CHECK(d->kind != RG_LOSS_COSINE_DISTANCE || d->reduction == RG_LOSS_SUM, RG_INVALID_ARGUMENT,
             "loss: reduction is %s; it must be sum for cosine_distance", reductions[d->reduction]);
    RG_CHECK(!is_initial(d) || !d->gradient_output, RG_INVALID_ARGUMENT,
             "loss: no gradient exists if gradient_output is true: the initial gradient has no "
             "gradient");
    return check_labels(d);
}

static rg_status check_input(const rg_tensor_desc *x, const char *name, const rg_tensor_desc *like,
                             int32_t rank, bool integers)
{
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    rg_tensor_desc wanted = *like;
    wanted.rank = rank;
    if (integers)
        wanted.dtype = x->dtype == RG_I64 ? RG_I64 : RG_I32;
    RG_CHECK(x->dtype == wanted.dtype && rg_shape_same_dims(x, &wanted), RG_INVALID_ARGUMENT,
             "loss: %s is %s where %s%s is needed for y", name, rg_shape_text(x, have),
             rg_shape_text(&wanted, want), integers ? ", or i64," : "");
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_loss_desc *d = desc;
    const bool classes = has_classes(d);
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "loss: y is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    if (d->gradient_output)
        y[1] = y[0];
    if (is_initial(d))
        return RG_OK;
    RG_CHECK(x->rank >= has_rows(d), RG_INVALID_ARGUMENT,
             "loss: y has rank 0 and therefore no classes");
    const int32_t rank = x->rank - classes; /* of labels */
    RG_CHECK(!classes || x->dims[rank] > 0, RG_INVALID_ARGUMENT,
             "loss: the last dimension of y is 0, but labels are classes");
    RG_TRY(check_input(&x[1], "labels", x, rank, classes));
    if (d->weights)
        RG_TRY(check_input(&x[2], "weights", x, rank, false));
    if (d->reduction == RG_LOSS_NONE) {
        y[0] = rg_tensor_desc_dense(x->dtype, rank, x->dims);
        return RG_OK;
    }
    RG_CHECK(d->across_batch || x->rank > has_rows(d), RG_INVALID_ARGUMENT,
             "loss: y of rank %d has no images; across_batch must be true", x->rank);
    y[0] = rg_tensor_desc_dense(x->dtype, d->across_batch ? 0 : 1, x->dims);
    return RG_OK;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    const rg_loss_desc *d = desc;
    return x->rank > has_rows(d) && (d->reduction == RG_LOSS_NONE || !d->across_batch);
}

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
    if (y->rank > has_rows(d))
        e.images = y->dims[0];
    if (d->reduction == RG_LOSS_NONE || !d->across_batch)
        e.groups = e.images;
    e.labels = has_classes(d) ? e.rows : e.count;
    e.group = e.groups > 0 ? e.labels / e.groups : 0;
    e.mean = (double)(e.groups == 0 ? 0 : (has_rows(d) ? e.rows : e.count) / e.groups);
    return e;
}

/* Whether only the data tell how many weights are not 0. */
static bool counts_weights(const rg_loss_desc *d)
{
    return d->reduction == RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS && (d->weights || d->has_ignored);
}

/* What sums are divided by, as far as shapes tell. */
static double divisor_of(const rg_loss_desc *d, const extent *e)
{
    if (d->reduction == RG_LOSS_MEAN)
        return e->mean;
    if (d->reduction != RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS || counts_weights(d))
        return 1;
    return d->weight != 0 && e->group > 0 ? (double)e->group : 1; /* else the sum is 0 */
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

/* How rows of y and of the gradient, or of y alone, go through memory. */
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
    if (has_classes(d))
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
        .tensors = { partial, counts != NULL ? counts : partial, to },
        .kernel = RG_LOSS_FINISH,
        .dtype = call->x[0]->desc.dtype,
        .args = args,
        .args_size = sizeof *args,
        .units = args->groups,
        .grain = rg_clamp(RG_LOSS_PART / rg_clamp(args->parts, 1, RG_LOSS_PART), 1, RG_LOSS_PART),
        .bytes = args->groups * (args->parts + 1) * 8
    };
    return rg_record(call, &launch);
}

/* Tensors that are not there are stood for by y. */
static rg_status record(rg_call *call, int32_t kernel, rg_loss_args *args, const extent *e,
                        const rg_tensor *loss, const rg_tensor *gradient, const rg_tensor *partial,
                        const rg_tensor *counts)
{
    enum { TILE = 16384 }; /* elements */
    const rg_tensor *y = call->x[0], *none = y;
    const bool by_parts = kernel == RG_LOSS_BY_ELEMENTS || kernel == RG_LOSS_COUNT;
    const int64_t each =
        by_parts ? rg_clamp(e->group, 1, RG_LOSS_PART) : rg_clamp(e->length, 1, TILE);
    rg_launch launch = { .tensors = { y, call->x[1], call->inputs > 2 ? call->x[2] : none,
                                      args->has_dy ? call->dy[0] : none, loss != NULL ? loss : none,
                                      gradient != NULL ? gradient : none,
                                      partial != NULL ? partial : none,
                                      counts != NULL ? counts : none },
                         .kernel = kernel,
                         .dtype = y->desc.dtype,
                         .args = args,
                         .args_size = sizeof *args,
                         .units = by_parts ? e->groups * args->parts : e->rows,
                         .grain = rg_clamp(TILE / each, 1, TILE) };
    const int64_t element = (int64_t)rg_dtype_size(y->desc.dtype);
    launch.bytes = e->count * element * (args->has_gradient ? 2 : 1);
    if (has_classes(call->desc))
        launch.fault_text = "loss: a label is out of range: it is not the index of a class";
    if (e->count == 0)
        launch.units = 0;
    args->stream = args->has_gradient && !args->add && rg_call_streams(call, e->count * element);
    return rg_record(call, &launch);
}

/* Divisors that only the weights tell: *counts is NULL where there are none. */
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
    const rg_launch launch = { .tensors = { y },
                               .kernel = RG_LOSS_ONES,
                               .dtype = y->desc.dtype,
                               .args = &args,
                               .args_size = sizeof args,
                               .units = rg_sweep_units(&args.sweep),
                               .grain = args.sweep.piece / length,
                               .bytes = rg_shape_count(&y->desc) *
                                        (int64_t)rg_dtype_size(y->desc.dtype) };
    return rg_record(call, &launch);
}

/* ---- forward and gradient ---- */

static rg_status forward(rg_call *call)
{
    const rg_loss_desc *d = call->desc;
    if (is_initial(d))
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

/* That of labels first: the other one may take the place of y. */
static rg_status gradient(rg_call *call)
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

/* ---- fusion ---- */

/* Whether a loss of probabilities, or of their logarithms, is that of softmax. Means of dense
 * labels differ: they are over predictions, not over rows. */
static bool is_cross_entropy(const rg_loss_desc *d, rg_softmax_kind kind)
{
    const bool classes = d->labels == RG_LOSS_CLASS_LABELS;
    if (kind == RG_SOFTMAX_LOG)
        return d->kind == RG_LOSS_KULLBACK_LEIBLER && classes;
    return d->kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY &&
           (classes || d->reduction == RG_LOSS_NONE ||
            (d->reduction == RG_LOSS_SUM && d->across_batch));
}

static bool take_softmax(void *desc, const rg_op *before, const void *before_desc,
                         const rg_tensor_desc *x)
{
    rg_loss_desc *d = desc;
    const rg_softmax_desc *softmax = before_desc;
    if (before != &rg_op_softmax || (softmax->axis != -1 && softmax->axis != x->rank - 1) ||
        !is_cross_entropy(d, softmax->kind) || d->gradient_output)
        return false;
    d->kind = RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    return true;
}

static bool with_gradient(void *desc)
{
    rg_loss_desc *d = desc;
    const bool has = d->gradient_output;
    d->gradient_output = true;
    return !has;
}

RG_OP_DEFINE(loss, .text = "loss functions, with the initial gradient",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "y", "labels", "weights", NULL },
             .outputs = (const char *const[]){ "loss", "gradient", NULL }, .names = names,
             .alias = "x0=dx0", .alias_of = alias_of, .count_inputs = count_inputs,
             .count_outputs = count_outputs, .count_gradients = count_gradients,
             .no_gradient = no_gradient, .check = check, .shapes = shapes,
             .take_before = take_softmax, .with_gradient = with_gradient, .reads = reads,
             .optional_dy = 1, .joins = joins, .forward = forward, .gradient = gradient);

rg_status rg_loss_create(rg_device *device, const rg_loss_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_loss, desc, kernel);
}
