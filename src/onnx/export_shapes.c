/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Shapes, parts and reductions; losses; and the table of exporters. */
#include "onnx/export.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <retrograde/nodes.h>

#include <string.h>

static rg_status export_reshape(rg_export *e, const rg_node *node)
{
    const rg_tensor_desc *y = e->values[node->out[0]->id].shape;
    int32_t order[RG_MAX_RANK];
    rg_form form;
    RG_TRY(rg_export_raw(e, node->in[0], &form));
    rg_channels_last_order(y[0].rank, order);
    if (!rg_form_keeps_order(&form, y, order))
        memcpy(order, rg_plain_order, sizeof order);
    RG_TRY(rg_form_reshape(e, &form, y, order));
    return rg_export_define(e, node, 0, &form);
}

int32_t rg_export_transposed(const rg_transpose_desc *d, int32_t k, int32_t rank)
{
    if (d->order_count == 0)
        return rank - 1 - k;
    return (int32_t)(d->order[k] < 0 ? d->order[k] + rank : d->order[k]);
}

/* Moves nothing: the file has the dimensions in another order. */
static rg_status export_transpose(rg_export *e, const rg_node *node)
{
    const rg_transpose_desc *d = node->desc;
    rg_form form, y;
    RG_TRY(rg_export_any(e, node->in[0], &form));
    const int32_t rank = form.shape[0].rank;
    y = form;
    for (int32_t k = 0; k < rank; k++)
        y.order[k] = form.order[rg_export_transposed(d, k, rank)];
    return rg_export_define(e, node, 0, &y);
}

static rg_status export_concat(rg_export *e, const rg_node *node)
{
    const rg_concat_desc *d = node->desc;
    const char *names[RG_MAX_INPUTS];
    rg_form first, form;
    RG_CHECK(d->multiple == 1, RG_UNSUPPORTED, "multiple is %lld", (long long)d->multiple);
    RG_TRY(rg_export_any(e, node->in[0], &first));
    const int32_t rank = first.shape[0].rank;
    for (int32_t i = 0; i < node->inputs; i++) {
        RG_TRY(rg_export_ordered(e, node->in[i], first.order, &form));
        names[i] = form.name;
    }
    RG_TRY(rg_emit(e, "Concat"));
    for (int32_t i = 0; i < node->inputs; i++)
        rg_emit_input(e, names[i]);
    rg_emit_int(e, "axis", first.order[d->axis < 0 ? d->axis + rank : d->axis]);
    RG_TRY(rg_form_made(e, &first));
    return rg_export_define(e, node, 0, &first);
}

/* A dimension of a slice: where it begins and ends; false if all of it is taken. */
static bool slice_dim(const rg_slice_desc *d, const rg_tensor_desc x[], const rg_tensor_desc y[],
                      int32_t k, int64_t range[3])
{
    const int64_t start = k < d->start_count ? d->start[k] : 0;
    const int64_t step = k < d->step_count ? d->step[k] : 1;
    const bool batch = x[0].dims[k] != x[1].dims[k];
    range[0] = start < 0 && !batch ? start + x[0].dims[k] : start;
    range[1] = y[0].dims[k] != y[1].dims[k]
                   ? INT64_MAX
                   : range[0] + (y[0].dims[k] > 0 ? (y[0].dims[k] - 1) * step + 1 : 0);
    range[2] = step;
    return start != 0 || step != 1 || !rg_shape_same_dims(&x[0], &y[0]);
}

static rg_status export_slice(rg_export *e, const rg_node *node)
{
    const rg_slice_desc *d = node->desc;
    const rg_tensor_desc *x = e->values[node->in[0]->id].shape;
    const rg_tensor_desc *y = e->values[node->out[0]->id].shape;
    static const char *const suffixes[] = { ".starts", ".ends", ".axes", ".steps" };
    int64_t lists[4][RG_MAX_RANK];
    const char *names[4];
    int32_t count = 0;
    rg_form form;
    RG_TRY(rg_export_any(e, node->in[0], &form));
    for (int32_t k = 0; k < x[0].rank; k++) {
        int64_t range[3];
        if (!slice_dim(d, x, y, k, range) ||
            (x[0].dims[k] == y[0].dims[k] && x[1].dims[k] == y[1].dims[k]))
            continue;
        lists[0][count] = range[0];
        lists[1][count] = range[1];
        lists[2][count] = form.order[k];
        lists[3][count++] = range[2];
    }
    if (count == 0)
        return rg_export_define(e, node, 0, &form);
    for (int i = 0; i < 4; i++)
        RG_TRY(rg_export_ints(e, lists[i], count, suffixes[i], &names[i]));
    RG_TRY(rg_emit(e, "Slice"));
    rg_emit_input(e, form.name);
    for (int i = 0; i < 4; i++)
        rg_emit_input(e, names[i]);
    RG_TRY(rg_form_made(e, &form));
    return rg_export_define(e, node, 0, &form);
}

/* ---- reductions ---- */

/* Dimensions that are left out move the others together. */
static void drop_dims(rg_form *form, const bool dropped[])
{
    int32_t order[RG_MAX_RANK], count = 0;
    for (int32_t k = 0; k < form->shape[0].rank; k++) {
        if (dropped[k])
            continue;
        order[count] = form->order[k];
        for (int32_t j = 0; j < form->shape[0].rank; j++)
            order[count] -= dropped[j] && form->order[j] < form->order[k];
        count++;
    }
    memcpy(form->order, order, sizeof order[0] * (size_t)count);
}

static rg_status emit_reduce(rg_export *e, const rg_reduce_desc *d, rg_form *form,
                             const int64_t axes[], int32_t count)
{
    static const char *const types[] = { "ReduceSum", "ReduceMean", "ReduceMin",
                                         "ReduceMax", "ArgMin",     "ArgMax" };
    const bool position = d->kind >= RG_REDUCE_ARG_MIN;
    const char *numbers = NULL;
    RG_CHECK(!position || count == 1, RG_UNSUPPORTED, "the position in several dimensions");
    if (!position && (d->kind == RG_REDUCE_SUM || e->desc.opset >= 18))
        RG_TRY(rg_export_ints(e, axes, count, ".axes", &numbers));
    RG_TRY(rg_emit(e, types[d->kind]));
    rg_emit_input(e, form->name);
    if (numbers != NULL)
        rg_emit_input(e, numbers);
    if (position)
        rg_emit_int(e, "axis", axes[0]);
    else if (numbers == NULL)
        rg_emit_ints(e, "axes", axes, count);
    rg_emit_int(e, "keepdims", d->keep_dims);
    return rg_form_made(e, form);
}

/* The mean or the maximum of all pixels of an image is a pooling, which runtimes prefer. */
static rg_status reduce_image(rg_export *e, const rg_node *node)
{
    const rg_reduce_desc *d = node->desc;
    const char *weight;
    rg_form form;
    RG_TRY(rg_export_image(e, node->in[0], &form));
    RG_TRY(
        rg_form_unary(e, d->kind == RG_REDUCE_MEAN ? "GlobalAveragePool" : "GlobalMaxPool", &form));
    if (d->weight != 1) {
        RG_TRY(rg_export_number(e, form.shape[0].dtype, d->weight, &weight));
        RG_TRY(rg_form_binary(e, "Mul", &form, weight));
    }
    for (int32_t p = 0; p < RG_PROBES; p++) {
        const int64_t dims[] = { form.shape[p].dims[0], 1, 1, form.shape[p].dims[3] };
        form.shape[p] = rg_tensor_desc_dense(form.shape[p].dtype, 4, dims);
    }
    if (!d->keep_dims)
        RG_TRY(rg_form_reshape(e, &form, e->values[node->out[0]->id].shape, rg_plain_order));
    return rg_export_define(e, node, 0, &form);
}

static rg_status export_reduce(rg_export *e, const rg_node *node)
{
    const rg_reduce_desc *d = node->desc;
    bool reduced[RG_MAX_RANK] = { false };
    int64_t axes[RG_MAX_RANK];
    int32_t count = 0;
    const char *weight;
    rg_form form;
    RG_TRY(rg_export_any(e, node->in[0], &form));
    const int32_t rank = form.shape[0].rank;
    for (int32_t k = 0; k < rank; k++)
        reduced[k] = d->dims_count == 0;
    for (int32_t i = 0; i < d->dims_count; i++)
        reduced[d->dims[i] < 0 ? d->dims[i] + rank : d->dims[i]] = true;
    for (int32_t k = 0; k < rank; k++) {
        if (reduced[k])
            axes[count++] = form.order[k];
    }
    const bool pooled = d->kind == RG_REDUCE_MEAN || d->kind == RG_REDUCE_MAX;
    if (pooled && rank == 4 && count == 2 && reduced[1] && reduced[2])
        return reduce_image(e, node);
    RG_TRY(emit_reduce(e, d, &form, axes, count));
    if (!d->keep_dims)
        drop_dims(&form, reduced);
    if (d->weight != 1) {
        RG_TRY(rg_export_number(e, form.shape[0].dtype, d->weight, &weight));
        RG_TRY(rg_form_binary(e, "Mul", &form, weight));
    }
    memcpy(form.shape, e->values[node->out[0]->id].shape, sizeof form.shape);
    return rg_export_define(e, node, 0, &form);
}

/* ---- losses ---- */

rg_status rg_export_loss_inputs(rg_export *e, const rg_value *x, const rg_value *labels,
                                rg_form *x_form, rg_form *label_form)
{
    RG_TRY(rg_export_raw(e, x, x_form));
    RG_TRY(rg_export_raw(e, labels, label_form));
    if (x_form->shape[0].rank == 2 && label_form->shape[0].rank == 1)
        return RG_OK;
    RG_TRY(rg_export_image(e, x, x_form));
    return rg_export_plain(e, labels, label_form);
}

static rg_status export_loss(rg_export *e, const rg_node *node)
{
    static const char *const reductions[] = { "none", "sum", "mean", NULL };
    const rg_loss_desc *d = node->desc;
    const bool counted = d->reduction == RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS && d->has_ignored;
    const char *reduction = counted ? "mean" : reductions[d->reduction];
    const bool logs = d->kind == RG_LOSS_KULLBACK_LEIBLER;
    rg_form x, labels;
    RG_CHECK((d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY || logs) &&
                 d->labels == RG_LOSS_CLASS_LABELS,
             RG_UNSUPPORTED, "a loss other than that of classes");
    RG_CHECK(!d->has_ignored || d->reduction != RG_LOSS_MEAN, RG_UNSUPPORTED,
             "a mean that is divided by all labels, ignored ones included, as that of masks is");
    RG_CHECK(!d->weights && d->weight == 1 && d->label_smoothing == 0 && reduction != NULL &&
                 !d->gradient_output && (d->across_batch || d->reduction == RG_LOSS_NONE),
             RG_UNSUPPORTED, "its weights, smoothing or reduction");
    RG_TRY(rg_export_loss_inputs(e, node->in[0], node->in[1], &x, &labels));
    RG_TRY(rg_emit(e, logs ? "NegativeLogLikelihoodLoss" : "SoftmaxCrossEntropyLoss"));
    rg_emit_input(e, x.name);
    rg_emit_input(e, labels.name);
    rg_emit_text(e, "reduction", reduction);
    if (d->has_ignored)
        rg_emit_int(e, "ignore_index", d->ignored);
    RG_TRY(rg_form_made(e, &x));
    if (!logs && rg_export_has_gradient(e, node)) {
        const char **name = &e->values[node->out[0]->id].extra[0];
        RG_TRY(rg_export_name(e, node->label, ".log_prob", name));
        rg_emit_output(e, *name);
    }
    memcpy(x.order, rg_plain_order, sizeof x.order);
    memcpy(x.shape, e->values[node->out[0]->id].shape, sizeof x.shape);
    return rg_export_define(e, node, 0, &x);
}

/* ---- the table ---- */

static const struct entry {
    const char *op;
    rg_exporter *forward;
} entries[] = {
    { "conv", rg_export_conv },
    { "conv_transpose", rg_export_conv_transpose },
    { "pool", rg_export_pool },
    { "upsample", rg_export_upsample },
    { "pad", rg_export_pad },
    { "dense", rg_export_dense },
    { "matmul", rg_export_matmul },
    { "gram", rg_export_gram },
    { "batch_norm", rg_export_batch_norm },
    { "group_norm", rg_export_group_norm },
    { "lrn", rg_export_lrn },
    { "neuron", rg_export_neuron },
    { "arithmetic", rg_export_arithmetic },
    { "softmax", rg_export_softmax },
    { "dropout", rg_export_dropout },
    { "reshape", export_reshape },
    { "transpose", export_transpose },
    { "concat", export_concat },
    { "slice", export_slice },
    { "reduce", export_reduce },
    { "loss", export_loss },
};

rg_exporter *rg_exporter_find(const char *op, bool gradient)
{
    if (gradient)
        return rg_gradient_exporter_find(op);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].op, op) == 0)
            return entries[i].forward;
    }
    return NULL;
}
