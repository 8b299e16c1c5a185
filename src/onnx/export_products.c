/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Weights, with a batch normalization folded into them, and products of matrices. */
#include "onnx/export.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <string.h>

/* ---- weights ---- */

static bool is_parameter(const rg_value *value)
{
    return value->kind == RG_VALUE_PARAMETER;
}

/* A normalization that can be folded: the only reader of the result, by statistics that are
 * parameters. */
static const rg_node *find_norm(const rg_export *e, const rg_node *node, bool bias)
{
    const rg_exported *out = &e->values[node->out[0]->id];
    if (!e->desc.fold_batch_norm || out->readers != 1 || !is_parameter(node->in[1]) ||
        (bias && !is_parameter(node->in[2])))
        return NULL;
    for (size_t n = (size_t)node->id + 1; n < e->graph->nodes_count; n++) {
        const rg_node *norm = e->graph->nodes[n];
        if (!e->live[n] || norm->gradient || norm->inputs == 0 || norm->in[0] != node->out[0])
            continue;
        const rg_batch_norm_desc *d = norm->desc;
        if (strcmp(norm->op->name, "batch_norm") != 0 || d->statistics != RG_BATCH_NORM_GIVEN)
            return NULL;
        for (int32_t i = 1; i < norm->inputs; i++) {
            if (!is_parameter(norm->in[i]))
                return NULL;
        }
        return norm;
    }
    return NULL;
}

typedef struct folding {
    double *gamma, *beta, *mean, *variance, *bias, *weights;
    int64_t channels, count; /* of the result; elements of the weights */
} folding;

static rg_status read_folding(rg_export *e, const rg_node *node, const rg_node *norm, bool bias,
                              folding *f)
{
    const rg_batch_norm_desc *d = norm->desc;
    int32_t i = 1;
    int64_t count = 0;
    *f = (folding){ 0 };
    if (d->gamma)
        RG_TRY(rg_export_doubles(e, norm->in[i++], &f->gamma, &count));
    if (d->beta)
        RG_TRY(rg_export_doubles(e, norm->in[i++], &f->beta, &count));
    RG_TRY(rg_export_doubles(e, norm->in[i++], &f->mean, &count));
    RG_TRY(rg_export_doubles(e, norm->in[i], &f->variance, &f->channels));
    if (bias)
        RG_TRY(rg_export_doubles(e, node->in[2], &f->bias, &count));
    return rg_export_doubles(e, node->in[1], &f->weights, &f->count);
}

/* w becomes s w and b becomes s (b - mean) + beta, s = gamma / sqrt(variance + epsilon). */
static rg_status fold_norm(rg_export *e, const rg_node *node, bool bias, int32_t channel,
                           const int32_t order[], rg_weighted *weighted)
{
    const rg_batch_norm_desc *d = weighted->norm->desc;
    const rg_tensor_desc *w = &node->in[1]->desc;
    folding f;
    int64_t inner = 1;
    double *scale = NULL, *shift = NULL;
    RG_TRY(read_folding(e, node, weighted->norm, bias, &f));
    RG_TRY(rg_arena_take(&e->arena, (size_t)f.channels, sizeof *scale, &scale));
    RG_TRY(rg_arena_take(&e->arena, (size_t)f.channels, sizeof *shift, &shift));
    for (int32_t k = channel + 1; k < w->rank; k++)
        inner *= w->dims[k];
    for (int64_t c = 0; c < f.channels; c++) {
        scale[c] = (f.gamma != NULL ? f.gamma[c] : 1) / sqrt(f.variance[c] + d->epsilon);
        shift[c] = scale[c] * ((f.bias != NULL ? f.bias[c] : 0) - f.mean[c]) +
                   (f.beta != NULL ? f.beta[c] : 0);
    }
    for (int64_t i = 0; i < f.count; i++)
        f.weights[i] *= scale[i / inner % f.channels];
    const rg_tensor_desc row = rg_tensor_desc_dense(RG_F64, 1, &f.channels);
    const rg_value *named = bias      ? node->in[2]
                            : d->beta ? weighted->norm->in[1 + d->gamma]
                                      : weighted->norm->in[1 + d->gamma + d->beta];
    RG_TRY(rg_export_changed(e, node->in[1], f.weights, w, order, &weighted->weights));
    return rg_export_changed(e, named, shift, &row, rg_plain_order, &weighted->bias);
}

rg_status rg_export_weights(rg_export *e, const rg_node *node, bool bias, int32_t channel,
                            const int32_t order[], rg_weighted *weighted)
{
    rg_form w, b;
    *weighted = (rg_weighted){ .node = node };
    weighted->norm = channel >= 0 ? find_norm(e, node, bias) : NULL;
    if (weighted->norm != NULL)
        return fold_norm(e, node, bias, channel, order, weighted);
    RG_TRY(rg_export_ordered(e, node->in[1], order, &w));
    weighted->weights = w.name;
    if (bias) {
        RG_TRY(rg_export_plain(e, node->in[2], &b));
        weighted->bias = b.name;
    }
    return RG_OK;
}

rg_status rg_export_weighted(rg_export *e, const rg_weighted *weighted, rg_form *form)
{
    const rg_node *norm = weighted->norm;
    rg_exported *out = &e->values[weighted->node->out[0]->id];
    out->inner = *form;
    out->has_inner = true;
    RG_TRY(rg_form_neuron(e, weighted->neuron, NULL, form));
    RG_TRY(rg_export_define(e, weighted->node, 0, form));
    if (norm == NULL)
        return RG_OK;
    const rg_batch_norm_desc *d = norm->desc;
    e->node = norm;
    RG_TRY(rg_export_shapes(e, norm));
    RG_TRY(rg_form_neuron(e, &d->neuron, NULL, form));
    return rg_export_define(e, norm, 0, form);
}

/* ---- fully connected ---- */

/* x as a matrix with all inputs in one row, dimensions in the order that the file has them in. */
static rg_status take_rows(rg_export *e, const rg_value *value, int32_t inputs, rg_form *form,
                           int32_t order[])
{
    const rg_tensor_desc *shape = e->values[value->id].shape;
    const int32_t rank = shape[0].rank;
    rg_tensor_desc flat[RG_PROBES];
    RG_TRY(rg_export_raw(e, value, form));
    memcpy(order, rg_plain_order, sizeof rg_plain_order);
    if (form->shape[0].rank == rank && rank == 4 && inputs == 3)
        rg_channels_last_order(rank, order);
    if (form->shape[0].rank == 2 && rank - inputs == 1)
        return rg_form_reorder(e, form, rg_plain_order);
    RG_TRY(rg_export_ordered(e, value, order, form));
    RG_CHECK(rank - inputs == 1, RG_UNSUPPORTED, "rows of more than one dimension with %d inputs",
             inputs);
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t dims[2] = { shape[p].dims[0], 1 };
        for (int32_t d = 1; d < rank; d++)
            dims[1] *= shape[p].dims[d];
        flat[p] = rg_tensor_desc_dense(shape[p].dtype, 2, dims);
    }
    RG_TRY(rg_emit(e, "Flatten"));
    rg_emit_input(e, form->name);
    rg_emit_int(e, "axis", 1);
    memcpy(form->shape, flat, sizeof flat);
    memcpy(form->order, rg_plain_order, sizeof rg_plain_order);
    return rg_form_made(e, form);
}

/* Weights of several inputs as the matrix (out, inputs), in the order that rows have them in. */
static rg_status take_weights(rg_export *e, const rg_node *node, const int32_t order[],
                              rg_weighted *weighted)
{
    const rg_dense_desc *d = node->desc;
    const bool first = d->layout == RG_DENSE_OUT_IN;
    const rg_tensor_desc *w = &node->in[1]->desc;
    const int32_t inputs = w->rank - 1;
    int64_t count, dims[RG_MAX_RANK], inner = 1;
    int32_t file[RG_MAX_RANK] = { 0 };
    double *elements, *moved = NULL;
    rg_form bias;
    RG_CHECK(is_parameter(node->in[1]), RG_UNSUPPORTED, "weights that are no parameter");
    RG_TRY(rg_export_doubles(e, node->in[1], &elements, &count));
    RG_TRY(rg_arena_take(&e->arena, (size_t)count, sizeof *moved, &moved));
    for (int32_t k = 0; k < inputs; k++) {
        dims[k] = w->dims[first ? k + 1 : k];
        inner *= dims[k];
    }
    const int64_t outputs = w->dims[first ? 0 : inputs];
    for (int64_t o = 0; o < outputs; o++) {
        for (int64_t i = 0; i < inner; i++) {
            int64_t at = i, to = 0, index[RG_MAX_RANK];
            for (int32_t k = inputs - 1; k >= 0; at /= dims[k--])
                index[order[k + 1] - 1] = at % dims[k];
            for (int32_t k = 0; k < inputs; k++)
                file[order[k + 1] - 1] = k;
            for (int32_t k = 0; k < inputs; k++)
                to = to * dims[file[k]] + index[k];
            moved[o * inner + to] = elements[first ? o * inner + i : i * outputs + o];
        }
    }
    const int64_t matrix[] = { outputs, inner };
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, 2, matrix);
    RG_TRY(rg_export_changed(e, node->in[1], moved, &desc, rg_plain_order, &weighted->weights));
    if (d->bias) {
        RG_TRY(rg_export_plain(e, node->in[2], &bias));
        weighted->bias = bias.name;
    }
    return RG_OK;
}

/* x of more than two dimensions, products with its last one: MatMul, then the bias. */
static rg_status export_stack(rg_export *e, const rg_node *node)
{
    static const int32_t swapped[] = { 1, 0 };
    const rg_dense_desc *d = node->desc;
    rg_weighted weighted = { .node = node, .neuron = &d->neuron };
    rg_form form, w, b;
    const char *alpha;
    RG_TRY(rg_export_plain(e, node->in[0], &form));
    RG_TRY(rg_export_ordered(e, node->in[1],
                             d->layout == RG_DENSE_IN_OUT ? rg_plain_order : swapped, &w));
    RG_TRY(rg_form_binary(e, "MatMul", &form, w.name));
    if (d->alpha != 1) {
        RG_TRY(rg_export_number(e, form.shape[0].dtype, d->alpha, &alpha));
        RG_TRY(rg_form_binary(e, "Mul", &form, alpha));
    }
    if (d->bias) {
        RG_TRY(rg_export_plain(e, node->in[2], &b));
        RG_TRY(rg_form_binary(e, "Add", &form, b.name));
    }
    return rg_export_weighted(e, &weighted, &form);
}

rg_status rg_export_dense(rg_export *e, const rg_node *node)
{
    const rg_dense_desc *d = node->desc;
    const int32_t inputs = e->values[node->in[1]->id].shape[0].rank - 1;
    const rg_tensor_desc *x = e->values[node->in[0]->id].shape;
    rg_weighted weighted = { .node = node };
    rg_form form;
    int32_t order[RG_MAX_RANK];
    if (x->rank - inputs != 1)
        return inputs == 1 ? export_stack(e, node)
                           : rg_fail(RG_UNSUPPORTED, "rows of more than one dimension");
    RG_TRY(take_rows(e, node->in[0], inputs, &form, order));
    bool transposed = true;
    if (inputs == 1) {
        transposed = d->layout == RG_DENSE_OUT_IN;
        const bool folds = d->alpha == 1 && d->neuron.kind == RG_NEURON_NONE;
        RG_TRY(rg_export_weights(e, node, d->bias, folds ? !transposed : -1, rg_plain_order,
                                 &weighted));
    } else {
        RG_TRY(take_weights(e, node, order, &weighted));
    }
    RG_TRY(rg_emit(e, "Gemm"));
    rg_emit_input(e, form.name);
    rg_emit_input(e, weighted.weights);
    if (weighted.bias != NULL)
        rg_emit_input(e, weighted.bias);
    if (d->alpha != 1)
        rg_emit_float(e, "alpha", d->alpha);
    rg_emit_int(e, "transB", transposed);
    RG_TRY(rg_form_made(e, &form));
    const rg_tensor_desc *y = e->values[node->out[0]->id].shape;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        const int64_t dims[] = { y[p].dims[0], y[p].dims[y[p].rank - 1] };
        form.shape[p] = rg_tensor_desc_dense(y[p].dtype, 2, dims);
    }
    weighted.neuron = &d->neuron;
    return rg_export_weighted(e, &weighted, &form);
}

/* ---- stacks of matrices ---- */

static rg_status take_stack(rg_export *e, const rg_value *value, bool transpose, rg_form *form)
{
    const int32_t rank = e->values[value->id].shape[0].rank;
    int32_t order[RG_MAX_RANK];
    memcpy(order, rg_plain_order, sizeof order);
    if (transpose) {
        order[rank - 1] = rank - 2;
        order[rank - 2] = rank - 1;
    }
    return rg_export_ordered(e, value, order, form);
}

rg_status rg_export_matmul(rg_export *e, const rg_node *node)
{
    const rg_matmul_desc *d = node->desc;
    rg_form a, b;
    const char *alpha;
    RG_TRY(take_stack(e, node->in[0], d->transpose_a, &a));
    RG_TRY(take_stack(e, node->in[1], d->transpose_b, &b));
    RG_TRY(rg_form_binary(e, "MatMul", &a, b.name));
    if (d->alpha != 1) {
        RG_TRY(rg_export_number(e, a.shape[0].dtype, d->alpha, &alpha));
        RG_TRY(rg_form_binary(e, "Mul", &a, alpha));
    }
    memcpy(a.order, rg_plain_order, sizeof a.order);
    memcpy(a.shape, e->values[node->out[0]->id].shape, sizeof a.shape);
    return rg_export_define(e, node, 0, &a);
}

/* Products of all pairs of channels: X^T X with a row for each pixel. */
rg_status rg_export_gram(rg_export *e, const rg_node *node)
{
    static const int32_t swapped[] = { 0, 2, 1 };
    const rg_gram_desc *d = node->desc;
    const rg_tensor_desc *x = e->values[node->in[0]->id].shape;
    rg_tensor_desc rows[RG_PROBES];
    rg_form form, columns;
    const char *alpha;
    RG_CHECK(x[0].rank == 4, RG_UNSUPPORTED, "images of rank %d", x[0].rank);
    for (int32_t p = 0; p < RG_PROBES; p++) {
        const int64_t dims[] = { x[p].dims[0], x[p].dims[1] * x[p].dims[2], x[p].dims[3] };
        rows[p] = rg_tensor_desc_dense(x[p].dtype, 3, dims);
    }
    RG_TRY(rg_export_plain(e, node->in[0], &form));
    RG_TRY(rg_form_reshape(e, &form, rows, rg_plain_order));
    columns = form;
    RG_TRY(rg_form_reorder(e, &columns, swapped));
    RG_TRY(rg_form_binary(e, "MatMul", &columns, form.name));
    if (d->alpha != 1) {
        RG_TRY(rg_export_number(e, form.shape[0].dtype, d->alpha, &alpha));
        RG_TRY(rg_form_binary(e, "Mul", &columns, alpha));
    }
    memcpy(columns.order, rg_plain_order, sizeof columns.order);
    return rg_export_define(e, node, 0, &columns);
}
