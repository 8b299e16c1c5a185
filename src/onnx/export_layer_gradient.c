/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient nodes of layers as operators: convolution, pooling, products, normalizations. */
#include "onnx/export.h"

#include "core/shape.h"

#include <retrograde/nodes.h>

#include <string.h>

rg_status rg_form_before_neuron(rg_export *e, const rg_node *node, const rg_neuron_desc *neuron,
                                rg_form *dy)
{
    if (neuron->kind == RG_NEURON_NONE)
        return RG_OK;
    RG_CHECK(node->forward != NULL, RG_UNSUPPORTED, "the neuron has no forward node");
    const rg_exported *y = &e->values[node->forward->out[0]->id];
    RG_CHECK(y->has_form && y->has_inner && y->form.shape[0].rank == dy->shape[0].rank,
             RG_UNSUPPORTED, "the neuron's input is not exported");
    RG_TRY(rg_form_reorder(e, dy, y->form.order));
    return rg_form_neuron_gradient(e, neuron, &y->inner, &y->form, dy);
}

/* ---- windows ---- */

rg_status rg_export_conv_gradient(rg_export *e, const rg_node *node)
{
    const rg_conv_desc *d = node->desc;
    rg_form x, w, dy, made;
    RG_TRY(rg_export_image(e, node->x[0], &x));
    RG_TRY(rg_export_image(e, node->x[1], &w));
    RG_TRY(rg_export_image(e, node->in[0], &dy));
    RG_TRY(rg_form_before_neuron(e, node, &d->neuron, &dy));
    RG_TRY(rg_emit_runtime(e, "ConvGrad"));
    rg_emit_input(e, dy.name);
    rg_emit_input(e, x.name);
    rg_emit_input(e, w.name);
    RG_TRY(rg_emit_conv_windows(e, d, &x.shape[0], &w.shape[0]));
    for (int32_t i = 0; i < (d->bias ? 3 : 2); i++) {
        if (node->out[i] == NULL) {
            rg_emit_output(e, "");
            continue;
        }
        made = i == 0 ? x : w;
        if (i == 2)
            memcpy(made.order, rg_plain_order, sizeof made.order);
        memcpy(made.shape, e->values[node->x[i]->id].shape, sizeof made.shape);
        RG_TRY(rg_form_made(e, &made));
        RG_TRY(rg_export_define(e, node, i, &made));
    }
    return RG_OK;
}

rg_status rg_export_pool_gradient(rg_export *e, const rg_node *node)
{
    const rg_pool_desc *d = node->desc;
    rg_form x, dy;
    const rg_node *forward = node->forward;
    const char *indices = forward != NULL ? e->values[forward->out[0]->id].extra[0] : NULL;
    RG_CHECK(d->kind != RG_POOL_L2 && (d->kind != RG_POOL_MAX || indices != NULL), RG_UNSUPPORTED,
             "a pooling without indices of maxima");
    RG_TRY(rg_export_image(e, node->x[0], &x));
    RG_TRY(rg_export_image(e, node->in[0], &dy));
    RG_TRY(rg_emit_runtime(e, d->kind == RG_POOL_MAX ? "MaxPoolGrad" : "AveragePoolGrad"));
    rg_emit_input(e, dy.name);
    if (d->kind == RG_POOL_MAX)
        rg_emit_input(e, indices);
    rg_emit_input(e, x.name);
    RG_TRY(rg_emit_pool_windows(e, d, &x.shape[0]));
    RG_TRY(rg_form_made(e, &x));
    return rg_export_define_gradient(e, node, 0, &x);
}

/* ---- products ---- */

static rg_status gemm(rg_export *e, rg_form *form, const char *other, bool transpose_a,
                      bool transpose_b, double alpha)
{
    RG_TRY(rg_emit(e, "Gemm"));
    rg_emit_input(e, form->name);
    rg_emit_input(e, other);
    rg_emit_int(e, "transA", transpose_a);
    rg_emit_int(e, "transB", transpose_b);
    if (alpha != 1)
        rg_emit_float(e, "alpha", alpha);
    return rg_form_made(e, form);
}

/* As a matrix of rows with `columns` columns. */
static rg_status as_rows(rg_export *e, int64_t columns, rg_form *form)
{
    const int64_t dims[] = { -1, columns };
    const char *numbers;
    if (form->shape[0].rank == 2)
        return RG_OK;
    RG_TRY(rg_export_ints(e, dims, 2, ".shape", &numbers));
    return rg_form_binary(e, "Reshape", form, numbers);
}

/* A matrix as a value of the graph, whose dimensions the file has in `order`. */
static rg_status from_rows(rg_export *e, const rg_value *like, const int32_t order[], rg_form *form)
{
    const rg_tensor_desc *shape = e->values[like->id].shape;
    int64_t dims[RG_MAX_RANK];
    const char *numbers;
    const int32_t rank = shape[0].rank;
    memcpy(form->shape, shape, sizeof form->shape);
    memcpy(form->order, order, sizeof form->order);
    if (rank == 2)
        return RG_OK;
    rg_form_file_dims(form, dims);
    int32_t open = 0;
    for (int32_t d = 0; d < rank; d++)
        open += dims[d] == RG_ONNX_ANY_DIM;
    RG_CHECK(open <= 1, RG_UNSUPPORTED, "two dimensions depend on the size of the batch");
    RG_TRY(rg_export_ints(e, dims, rank, ".shape", &numbers));
    return rg_form_binary(e, "Reshape", form, numbers);
}

static rg_status dense_parts(rg_export *e, const rg_node *node, const rg_form *x, const rg_form *g,
                             const int32_t order[])
{
    const rg_dense_desc *d = node->desc;
    const rg_exported *w = &e->values[node->x[1]->id];
    const bool wide = w->shape[0].rank > 2; /* the file has (out, inputs) whatever the layout is */
    const bool out_in = wide || d->layout == RG_DENSE_OUT_IN;
    rg_form form = *g, weights;
    if (wide) {
        RG_CHECK(w->changed != NULL, RG_UNSUPPORTED, "weights that the forward pass does not have");
        weights.name = w->changed;
    } else {
        RG_TRY(rg_export_plain(e, node->x[1], &weights));
    }
    if (node->out[0] != NULL) {
        RG_TRY(gemm(e, &form, weights.name, false, !out_in, d->alpha));
        RG_TRY(from_rows(e, node->x[0], order, &form));
        RG_TRY(rg_export_define(e, node, 0, &form));
    }
    if (node->out[1] != NULL) {
        static const int32_t last[] = { 2, 3, 1, 0, 4, 5, 6, 7 };
        form = out_in ? *g : *x;
        RG_TRY(gemm(e, &form, out_in ? x->name : g->name, true, false, d->alpha));
        RG_TRY(
            from_rows(e, node->x[1], wide && d->layout == RG_DENSE_IN_OUT ? last : order, &form));
        RG_TRY(rg_export_define(e, node, 1, &form));
    }
    if (!d->bias || node->out[2] == NULL)
        return RG_OK;
    form = *g;
    const bool rows[] = { true, false };
    for (int32_t p = 0; p < RG_PROBES; p++) {
        const int64_t dims[] = { 1, e->values[node->x[2]->id].shape[p].dims[0] };
        form.shape[p] = rg_tensor_desc_dense(g->shape[p].dtype, 2, dims);
    }
    memcpy(form.order, rg_plain_order, sizeof form.order);
    RG_TRY(rg_form_sum(e, &form, rows, false));
    return rg_export_define(e, node, 2, &form);
}

rg_status rg_export_dense_gradient(rg_export *e, const rg_node *node)
{
    const rg_dense_desc *d = node->desc;
    const rg_tensor_desc *w = e->values[node->x[1]->id].shape;
    const rg_tensor_desc *y = e->values[node->in[0]->id].shape;
    const int32_t inputs = w[0].rank - 1, rank = e->values[node->x[0]->id].shape[0].rank;
    int64_t inner = 1;
    int32_t order[RG_MAX_RANK];
    rg_form x, g;
    for (int32_t k = 0; k < inputs; k++)
        inner *= w[0].dims[d->layout == RG_DENSE_OUT_IN ? k + 1 : k];
    memcpy(order, rg_plain_order, sizeof order);
    if (inputs == 3 && rank == 4)
        rg_channels_last_order(rank, order);
    RG_CHECK(inputs == 1 || rank - inputs == 1, RG_UNSUPPORTED, "rows of more than one dimension");
    RG_TRY(rg_export_ordered(e, node->x[0], order, &x));
    RG_TRY(as_rows(e, inner, &x));
    RG_TRY(rg_export_raw(e, node->in[0], &g));
    const rg_exported *forward =
        node->forward != NULL ? &e->values[node->forward->out[0]->id] : NULL;
    if (forward == NULL || forward->form.shape[0].rank != g.shape[0].rank)
        RG_TRY(rg_export_plain(e, node->in[0], &g));
    if (d->neuron.kind != RG_NEURON_NONE && forward != NULL &&
        forward->form.shape[0].rank != g.shape[0].rank) { /* (n, 1, 1, c) as (n, c) */
        RG_TRY(rg_form_reshape(e, &g, forward->form.shape, rg_plain_order));
    }
    RG_TRY(rg_form_before_neuron(e, node, &d->neuron, &g));
    RG_TRY(rg_form_reorder(e, &g, rg_plain_order));
    RG_TRY(as_rows(e, y[0].dims[y[0].rank - 1], &g));
    return dense_parts(e, node, &x, &g, order);
}

/* y = A B with A = a or its transpose: dA = dy B^T, dB = A^T dy; stacks must not be broadcast. */
rg_status rg_export_matmul_gradient(rg_export *e, const rg_node *node)
{
    const rg_matmul_desc *d = node->desc;
    const bool transposed[] = { d->transpose_a, d->transpose_b };
    const int32_t rank = e->values[node->in[0]->id].shape[0].rank;
    int32_t plain[RG_MAX_RANK], swapped[RG_MAX_RANK];
    rg_form dy;
    memcpy(plain, rg_plain_order, sizeof plain);
    memcpy(swapped, rg_plain_order, sizeof swapped);
    swapped[rank - 1] = rank - 2;
    swapped[rank - 2] = rank - 1;
    RG_TRY(rg_export_plain(e, node->in[0], &dy));
    for (int i = 0; i < 2; i++) {
        const rg_tensor_desc *x = e->values[node->x[i]->id].shape;
        rg_form other, form;
        if (node->out[i] == NULL)
            continue;
        RG_CHECK(x[0].rank == rank && memcmp(x[0].dims, dy.shape[0].dims,
                                             sizeof x[0].dims[0] * (size_t)(rank - 2)) == 0,
                 RG_UNSUPPORTED, "stacks that are broadcast");
        /* of the other operand its transpose: swapped unless it is transposed already */
        RG_TRY(rg_export_ordered(e, node->x[1 - i], transposed[1 - i] ? plain : swapped, &other));
        form = i == 0 ? dy : other;
        RG_TRY(rg_form_binary(e, "MatMul", &form, i == 0 ? other.name : dy.name));
        RG_TRY(rg_form_times(e, &form, d->alpha));
        memcpy(form.shape, x, sizeof form.shape);
        memcpy(form.order, transposed[i] ? swapped : plain, sizeof form.order);
        RG_TRY(rg_export_define(e, node, i, &form));
    }
    return RG_OK;
}

/* ---- normalizations ---- */

/* A number for each channel, along the dimension of channels of `like`. */
static rg_status along_channels(rg_export *e, const rg_form *like, rg_form *form)
{
    const int32_t rank = like->shape[0].rank;
    int64_t dims[RG_MAX_RANK];
    rg_tensor_desc shape[RG_PROBES];
    for (int32_t d = 0; d < rank; d++)
        dims[d] = d == rank - 1 ? form->shape[0].dims[0] : 1;
    shape[0] = shape[1] = rg_tensor_desc_dense(form->shape[0].dtype, rank, dims);
    return rg_form_reshape(e, form, shape, like->order);
}

/* By statistics that are given: dx = gamma s g, dgamma = sum of g (x - mean) s, dbeta = sum of g.
 */
rg_status rg_export_batch_norm_gradient(rg_export *e, const rg_node *node)
{
    const rg_batch_norm_desc *d = node->desc;
    const int32_t statistics = 1 + d->gamma + d->beta;
    rg_form x, g, mean, scale, form;
    bool dims[RG_MAX_RANK] = { false };
    const char *epsilon;
    RG_CHECK(d->statistics == RG_BATCH_NORM_GIVEN && node->out[statistics] == NULL &&
                 node->out[statistics + 1] == NULL,
             RG_UNSUPPORTED, "statistics of the batch, or their gradients");
    RG_TRY(rg_export_image(e, node->x[0], &x));
    RG_TRY(rg_export_image(e, node->in[0], &g));
    RG_TRY(rg_form_before_neuron(e, node, &d->neuron, &g));
    RG_TRY(rg_export_plain(e, node->x[statistics], &mean));
    RG_TRY(rg_export_plain(e, node->x[statistics + 1], &scale));
    RG_TRY(rg_export_number(e, x.shape[0].dtype, d->epsilon, &epsilon));
    RG_TRY(rg_form_binary(e, "Add", &scale, epsilon));
    RG_TRY(rg_form_unary(e, "Sqrt", &scale));
    RG_TRY(rg_form_unary(e, "Reciprocal", &scale));
    RG_TRY(along_channels(e, &x, &scale));
    for (int32_t k = 0; k < x.shape[0].rank - 1; k++)
        dims[k] = true;
    if (d->gamma && node->out[1] != NULL) {
        RG_TRY(along_channels(e, &x, &mean));
        form = x;
        RG_TRY(rg_form_binary(e, "Sub", &form, mean.name));
        RG_TRY(rg_form_binary(e, "Mul", &form, scale.name));
        RG_TRY(rg_form_binary(e, "Mul", &form, g.name));
        RG_TRY(rg_form_sum(e, &form, dims, false));
        RG_TRY(rg_export_define(e, node, 1, &form));
    }
    if (d->beta && node->out[1 + d->gamma] != NULL) {
        form = g;
        RG_TRY(rg_form_sum(e, &form, dims, false));
        RG_TRY(rg_export_define(e, node, 1 + d->gamma, &form));
    }
    if (node->out[0] == NULL)
        return RG_OK;
    if (d->gamma) {
        rg_form gamma;
        RG_TRY(rg_export_plain(e, node->x[1], &gamma));
        RG_TRY(along_channels(e, &x, &gamma));
        RG_TRY(rg_form_binary(e, "Mul", &scale, gamma.name));
    }
    RG_TRY(rg_form_binary(e, "Mul", &g, scale.name));
    return rg_export_define(e, node, 0, &g);
}

/* Layer normalization, whose forward operator gives mean and 1 / deviation. */
rg_status rg_export_layer_norm_gradient(rg_export *e, const rg_node *node)
{
    const rg_group_norm_desc *d = node->desc;
    rg_form x, g, gamma, form;
    const rg_exported *forward =
        node->forward != NULL ? &e->values[node->forward->out[0]->id] : NULL;
    RG_CHECK(forward != NULL && forward->extra[0] != NULL && d->gamma, RG_UNSUPPORTED,
             "a normalization other than LayerNormalization with a scale");
    RG_TRY(rg_export_plain(e, node->x[0], &x));
    RG_TRY(rg_export_plain(e, node->in[0], &g));
    RG_TRY(rg_form_before_neuron(e, node, &d->neuron, &g));
    RG_TRY(rg_form_reorder(e, &g, rg_plain_order));
    RG_TRY(rg_export_plain(e, node->x[1], &gamma));
    RG_TRY(rg_emit_runtime(e, "LayerNormalizationGrad"));
    rg_emit_input(e, g.name);
    rg_emit_input(e, x.name);
    rg_emit_input(e, gamma.name);
    rg_emit_input(e, forward->extra[0]);
    rg_emit_input(e, forward->extra[1]);
    rg_emit_int(e, "axis", -1);
    for (int32_t i = 0; i < (d->beta ? 3 : 2); i++) {
        form = i == 0 ? x : gamma;
        RG_TRY(rg_form_made(e, &form));
        RG_TRY(rg_export_define_gradient(e, node, i, &form));
    }
    return RG_OK;
}
