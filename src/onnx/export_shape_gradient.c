/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient nodes of shapes, reductions, softmax and losses as operators. */
#include "onnx/export.h"

#include "core/shape.h"

#include <retrograde/nodes.h>

#include <string.h>

/* ---- shapes ---- */

rg_status rg_export_reshape_gradient(rg_export *e, const rg_node *node)
{
    const rg_exported *x = &e->values[node->x[0]->id];
    rg_form dy;
    RG_TRY(rg_export_raw(e, node->in[0], &dy));
    const int32_t *order = x->form.shape[0].rank == x->shape[0].rank ? x->form.order : NULL;
    if (order == NULL || !rg_form_keeps_order(&dy, x->shape, order))
        order = rg_plain_order;
    RG_TRY(rg_form_reshape(e, &dy, x->shape, order));
    return rg_export_define_gradient(e, node, 0, &dy);
}

rg_status rg_export_transpose_gradient(rg_export *e, const rg_node *node)
{
    const rg_transpose_desc *d = node->desc;
    rg_form dy, dx;
    RG_TRY(rg_export_any(e, node->in[0], &dy));
    const int32_t rank = dy.shape[0].rank;
    dx = dy;
    for (int32_t k = 0; k < rank; k++)
        dx.order[rg_export_transposed(d, k, rank)] = dy.order[k];
    return rg_export_define_gradient(e, node, 0, &dx);
}

static rg_status emit_slice(rg_export *e, rg_form *form, int64_t start, int64_t end, int64_t axis)
{
    const int64_t numbers[] = { start, end, axis };
    static const char *const suffixes[] = { ".starts", ".ends", ".axes" };
    const char *names[3];
    for (int i = 0; i < 3; i++)
        RG_TRY(rg_export_ints(e, &numbers[i], 1, suffixes[i], &names[i]));
    RG_TRY(rg_emit(e, "Slice"));
    rg_emit_input(e, form->name);
    for (int i = 0; i < 3; i++)
        rg_emit_input(e, names[i]);
    return rg_form_made(e, form);
}

/* Behind a part of the size of the batch, of which there may be one, parts are found from the end.
 */
rg_status rg_export_concat_gradient(rg_export *e, const rg_node *node)
{
    const rg_concat_desc *d = node->desc;
    rg_form dy;
    int64_t at = 0, left = 0;
    int32_t open = d->sources;
    RG_CHECK(d->multiple == 1, RG_UNSUPPORTED, "multiple is %lld", (long long)d->multiple);
    RG_TRY(rg_export_any(e, node->in[0], &dy));
    const int32_t rank = dy.shape[0].rank;
    const int32_t axis = (int32_t)(d->axis < 0 ? d->axis + rank : d->axis);
    for (int32_t i = 0; i < d->sources; i++) {
        const rg_tensor_desc *x = e->values[node->x[i]->id].shape;
        const bool varies = x[0].dims[axis] != x[1].dims[axis];
        RG_CHECK(!varies || open == d->sources, RG_UNSUPPORTED,
                 "two parts of the size of the batch");
        open = varies ? i : open;
        left += x[0].dims[axis];
    }
    for (int32_t i = 0; i < d->sources; i++) {
        const int64_t length = e->values[node->x[i]->id].shape[0].dims[axis];
        rg_form dx = dy;
        left -= length;
        if (node->out[i] != NULL) {
            const int64_t end = i < open ? at + length : left > 0 ? -left : INT64_MAX;
            RG_TRY(emit_slice(e, &dx, i <= open ? at : -left - length, end, dy.order[axis]));
            RG_TRY(rg_export_define_gradient(e, node, i, &dx));
        }
        at += length;
    }
    return RG_OK;
}

/* Zeros around dy, where steps are 1. */
rg_status rg_export_slice_gradient(rg_export *e, const rg_node *node)
{
    const rg_slice_desc *d = node->desc;
    const rg_tensor_desc *x = e->values[node->x[0]->id].shape;
    int64_t pads[2 * RG_MAX_RANK];
    const char *numbers;
    rg_form dy;
    RG_TRY(rg_export_any(e, node->in[0], &dy));
    const int32_t rank = dy.shape[0].rank;
    for (int32_t k = 0; k < rank; k++) {
        const int64_t start = k < d->start_count ? d->start[k] : 0;
        const bool batch = x[0].dims[k] != x[1].dims[k];
        const int64_t from = start < 0 ? start + x[0].dims[k] : start;
        RG_CHECK((k >= d->step_count || d->step[k] == 1) &&
                     (!batch || (start >= 0 && dy.shape[0].dims[k] != dy.shape[1].dims[k])),
                 RG_UNSUPPORTED, "steps, or a part of the batch");
        pads[dy.order[k]] = from;
        pads[rank + dy.order[k]] = x[0].dims[k] - from - dy.shape[0].dims[k];
    }
    RG_TRY(rg_export_ints(e, pads, 2 * rank, ".pads", &numbers));
    RG_TRY(rg_form_binary(e, "Pad", &dy, numbers));
    return rg_export_define_gradient(e, node, 0, &dy);
}

/* dy for each element of its group. */
rg_status rg_export_reduce_gradient(rg_export *e, const rg_node *node)
{
    const rg_reduce_desc *d = node->desc;
    const rg_exported *from = &e->values[node->x[0]->id];
    const int32_t rank = from->shape[0].rank;
    rg_tensor_desc kept[RG_PROBES];
    int64_t count = 1;
    rg_form dy, x, shape;
    RG_CHECK(d->kind == RG_REDUCE_SUM || d->kind == RG_REDUCE_MEAN, RG_UNSUPPORTED,
             "minima and maxima");
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t dims[RG_MAX_RANK];
        for (int32_t k = 0; k < rank; k++)
            dims[k] = d->dims_count == 0 ? 1 : from->shape[p].dims[k];
        for (int32_t i = 0; i < d->dims_count; i++)
            dims[d->dims[i] < 0 ? d->dims[i] + rank : d->dims[i]] = 1;
        kept[p] = rg_tensor_desc_dense(from->shape[p].dtype, rank, dims);
    }
    for (int32_t k = 0; k < rank; k++) {
        RG_CHECK(kept[0].dims[k] != 1 || from->shape[0].dims[k] == from->shape[1].dims[k] ||
                     d->kind == RG_REDUCE_SUM,
                 RG_UNSUPPORTED, "a mean over the batch");
        count *= kept[0].dims[k] == 1 ? from->shape[0].dims[k] : 1;
    }
    RG_TRY(rg_export_any(e, node->x[0], &x));
    RG_TRY(rg_export_raw(e, node->in[0], &dy));
    RG_TRY(rg_form_reshape(e, &dy, kept, x.order));
    RG_TRY(rg_form_times(e, &dy, d->weight / (d->kind == RG_REDUCE_MEAN ? (double)count : 1)));
    shape = x;
    RG_TRY(rg_form_unary(e, "Shape", &shape));
    RG_TRY(rg_form_binary(e, "Expand", &dy, shape.name));
    memcpy(dy.shape, from->shape, sizeof dy.shape);
    return rg_export_define_gradient(e, node, 0, &dy);
}

/* ---- softmax, dropout, losses ---- */

rg_status rg_export_softmax_gradient(rg_export *e, const rg_node *node)
{
    const rg_softmax_desc *d = node->desc;
    static const char *const types[2][2] = { { "SoftmaxGrad_13", "LogSoftmaxGrad_13" },
                                             { "SoftmaxGrad", "LogSoftmaxGrad" } };
    rg_form dy, y;
    RG_TRY(d->flatten ? rg_export_plain(e, node->in[0], &dy) : rg_export_any(e, node->in[0], &dy));
    RG_TRY(rg_export_forward_result(e, node, dy.order, &y));
    const int32_t rank = dy.shape[0].rank;
    RG_TRY(rg_form_runtime(e, types[d->flatten][d->kind == RG_SOFTMAX_LOG], &dy, y.name));
    rg_emit_int(e, "axis", dy.order[d->axis < 0 ? d->axis + rank : d->axis]);
    return rg_export_define_gradient(e, node, 0, &dy);
}

rg_status rg_export_dropout_gradient(rg_export *e, const rg_node *node)
{
    rg_form dy;
    RG_TRY(rg_export_raw(e, node->in[0], &dy));
    return rg_export_define_gradient(e, node, 0, &dy);
}

/* Of softmax cross-entropy with class labels: the forward operator gives the logarithms. */
rg_status rg_export_loss_gradient(rg_export *e, const rg_node *node)
{
    static const char *const reductions[] = { "none", "sum", "mean", "mean" };
    const rg_loss_desc *d = node->desc;
    rg_form dy, labels, x;
    const rg_node *forward = node->forward;
    const char *logs = forward != NULL ? e->values[forward->out[0]->id].extra[0] : NULL;
    RG_CHECK(d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY && logs != NULL && node->out[1] == NULL,
             RG_UNSUPPORTED, "a loss other than that of classes");
    RG_TRY(rg_export_loss_inputs(e, node->x[0], node->x[1], &x, &labels));
    RG_TRY(rg_export_plain(e, node->in[0], &dy));
    if (labels.shape[0].dtype != RG_I64) {
        RG_TRY(rg_emit(e, "Cast"));
        rg_emit_input(e, labels.name);
        rg_emit_int(e, "to", RG_ONNX_INT64);
        RG_TRY(rg_form_made(e, &labels));
    }
    RG_TRY(rg_emit_runtime(e, "SoftmaxCrossEntropyLossGrad"));
    rg_emit_input(e, dy.name);
    rg_emit_input(e, logs);
    rg_emit_input(e, labels.name);
    rg_emit_text(e, "reduction", reductions[d->reduction]);
    if (d->has_ignored)
        rg_emit_int(e, "ignore_index", d->ignored);
    RG_TRY(rg_form_made(e, &x));
    return rg_export_define_gradient(e, node, 0, &x);
}
