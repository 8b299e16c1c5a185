/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses: description, validation, shape rule, fusion; loss_record.c records them. */
#include "ops/loss/loss_record.h"
#include "ops/ops.h"
#include "runtime/objects.h"

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
    RG_FIELD_NAMED(rg_loss_desc, kind, kinds, "loss function"),
    RG_FIELD_NAMED(rg_loss_desc, reduction, reductions, "reduction of the losses"),
    RG_FIELD(rg_loss_desc, across_batch, "one loss for the whole batch instead of one per image"),
    RG_FIELD_NAMED(rg_loss_desc, labels, label_kinds,
                   "one label per prediction (dense), or one class index per row (classes)"),
    RG_FIELD(rg_loss_desc, weights, "a third input has a weight for every label"),
    RG_FIELD(rg_loss_desc, weight, "factor of all losses"),
    RG_FIELD_IN(
        rg_loss_desc, label_smoothing, 0, 1,
        "softmax and sigmoid: label smoothing, the part of a label spread over all classes"),
    RG_FIELD_IN(rg_loss_desc, classes, 0, 0x1p62,
                "number of classes for label smoothing; 0: length of the last dimension"),
    RG_FIELD_IN(rg_loss_desc, epsilon, 0, 1, "log: added to the argument of the logarithm"),
    RG_FIELD_IN(rg_loss_desc, delta, 0, 1e30,
                "huber: threshold between square and linear loss; must be greater than 0"),
    RG_FIELD_OPTIONAL(rg_loss_desc, ignored, "a class label that does not count"),
    RG_FIELD(rg_loss_desc, gradient_output, "a second output is the gradient of y for dy = 1"),
    RG_FIELD(rg_loss_desc, undivided_gradient,
             "gradients omit the divisor of mean and sum_by_non_zero_weights, as in MPS"),
    { .name = NULL },
};

#define MPS_FIELDS "reduction=none across_batch=false classes=1 undivided_gradient=true"
#define SOURCES    "sourceImage=y labels=labels weights=weights"

static const rg_op_name names[] = {
    { "MPSCNNLoss", false, MPS_FIELDS " gradient_output=true",
      SOURCES " lossImage=loss destinationImage=gradient", 1, 8 },
    { "MPSNNForwardLoss", false, MPS_FIELDS, SOURCES " destinationImage=loss", 1, 8 },
    { "MPSNNLossGradient", true, MPS_FIELDS,
      "sourceGradient=dloss sourceImage=y labels=labels weights=weights destinationImage=dy", 1,
      8 },
    { "MPSNNInitialGradient", false, "kind=initial_gradient", "sourceImage=y destinationImage=loss",
      1, 8 },
    { .name = NULL },
};

static int32_t count_inputs(const void *desc)
{
    const rg_loss_desc *d = desc;
    return rg_loss_is_initial(d) ? 1 : d->weights ? 3 : 2;
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
    return rg_loss_is_initial(d) ? 1 : rg_loss_has_classes(d) ? 6 : 4;
}

static const rg_alias *aliases_of(const void *desc)
{
    static const rg_alias pairs[] = { RG_X_AS_Y(0, 1), 0 };
    return ((const rg_loss_desc *)desc)->gradient_output ? pairs : NULL;
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
    RG_CHECK(!rg_loss_has_classes(d) || picks, RG_INVALID_ARGUMENT,
             "loss: %s does not support class labels", kinds[kind]);
    RG_CHECK(!d->has_ignored || rg_loss_has_classes(d), RG_INVALID_ARGUMENT,
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
    RG_CHECK(!rg_loss_is_initial(d) || !d->gradient_output, RG_INVALID_ARGUMENT,
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
    const bool classes = rg_loss_has_classes(d);
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "loss: y is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    if (d->gradient_output)
        y[1] = y[0];
    if (rg_loss_is_initial(d))
        return RG_OK;
    RG_CHECK(x->rank >= rg_loss_has_rows(d), RG_INVALID_ARGUMENT,
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
    RG_CHECK(d->across_batch || x->rank > rg_loss_has_rows(d), RG_INVALID_ARGUMENT,
             "loss: y of rank %d has no images; across_batch must be true", x->rank);
    y[0] = rg_tensor_desc_dense(x->dtype, d->across_batch ? 0 : 1, x->dims);
    return RG_OK;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    const rg_loss_desc *d = desc;
    return x->rank > rg_loss_has_rows(d) && (d->reduction == RG_LOSS_NONE || !d->across_batch);
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
             .aliases = (const rg_alias[]){ RG_X_AS_DX(0, 0), 0 }, .aliases_of = aliases_of,
             .count_inputs = count_inputs, .count_outputs = count_outputs,
             .count_gradients = count_gradients, .no_gradient = no_gradient, .check = check,
             .shapes = shapes, .reads = reads, .optional_dy = 1, .joins = joins,
             .forward = rg_loss_forward, .gradient = rg_loss_gradient,
             .fusion = { .take_before = take_softmax, .with_gradient = with_gradient });

rg_status rg_loss_create(rg_device *device, const rg_loss_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_loss, desc, kernel);
}
