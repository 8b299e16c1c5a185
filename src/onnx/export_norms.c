/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Normalizations: by batch, by group, across channels. */
#include "onnx/export.h"

#include "core/shape.h"

#include <retrograde/nodes.h>

#include <string.h>

/* A parameter of channels, or a constant in its place. */
static rg_status take_channels(rg_export *e, const rg_value *value, rg_dtype dtype, double number,
                               int64_t channels, const char **name)
{
    rg_form form;
    double *numbers = NULL;
    if (value != NULL) {
        RG_TRY(rg_export_plain(e, value, &form));
        *name = form.name;
        return RG_OK;
    }
    RG_TRY(rg_arena_take(&e->arena, (size_t)channels, sizeof *numbers, &numbers));
    for (int64_t i = 0; i < channels; i++)
        numbers[i] = number;
    return rg_export_numbers(e, dtype, numbers, channels, 1, &channels,
                             number == 1 ? ".gamma" : ".beta", name);
}

static rg_status finish(rg_export *e, const rg_node *node, const rg_neuron_desc *neuron,
                        rg_form *form)
{
    rg_exported *out = &e->values[node->out[0]->id];
    out->inner = *form;
    out->has_inner = true;
    RG_TRY(rg_form_neuron(e, neuron, NULL, form));
    return rg_export_define(e, node, 0, form);
}

rg_status rg_export_batch_norm(rg_export *e, const rg_node *node)
{
    const rg_batch_norm_desc *d = node->desc;
    const rg_value *gamma = d->gamma ? node->in[1] : NULL;
    const rg_value *beta = d->beta ? node->in[1 + d->gamma] : NULL;
    const rg_tensor_desc *x = e->values[node->in[0]->id].shape;
    const char *names[2];
    rg_form form, mean, variance;
    if (e->values[node->out[0]->id].has_form)
        return RG_OK; /* folded into the op before it */
    RG_CHECK(d->statistics == RG_BATCH_NORM_GIVEN, RG_UNSUPPORTED, "statistics of the batch");
    RG_CHECK(x[0].rank >= 2, RG_UNSUPPORTED, "one dimension");
    RG_TRY(rg_export_raw(e, node->in[0], &form));
    if (form.shape[0].rank == x[0].rank)
        RG_TRY(rg_export_image(e, node->in[0], &form));
    const int64_t channels = x[0].dims[x[0].rank - 1];
    RG_TRY(take_channels(e, gamma, x[0].dtype, 1, channels, &names[0]));
    RG_TRY(take_channels(e, beta, x[0].dtype, 0, channels, &names[1]));
    RG_TRY(rg_export_plain(e, node->in[1 + d->gamma + d->beta], &mean));
    RG_TRY(rg_export_plain(e, node->in[2 + d->gamma + d->beta], &variance));
    RG_TRY(rg_emit(e, "BatchNormalization"));
    rg_emit_input(e, form.name);
    rg_emit_input(e, names[0]);
    rg_emit_input(e, names[1]);
    rg_emit_input(e, mean.name);
    rg_emit_input(e, variance.name);
    rg_emit_float(e, "epsilon", d->epsilon);
    rg_emit_float(e, "momentum", d->momentum);
    RG_TRY(rg_form_made(e, &form));
    return finish(e, node, &d->neuron, &form);
}

/* ---- groups ---- */

/* gamma y + beta, channels being the last dimension of the graph. */
static rg_status scale_channels(rg_export *e, const rg_value *gamma, const rg_value *beta,
                                rg_form *form)
{
    const rg_value *const factors[] = { gamma, beta };
    const int32_t rank = form->shape[0].rank;
    for (int i = 0; i < 2; i++) {
        int64_t dims[RG_MAX_RANK];
        rg_tensor_desc widened[RG_PROBES];
        rg_form factor;
        if (factors[i] == NULL)
            continue;
        RG_TRY(rg_export_plain(e, factors[i], &factor));
        if (form->order[rank - 1] != rank - 1) {
            for (int32_t d = 0; d < rank; d++)
                dims[d] = d == rank - 1 ? factor.shape[0].dims[0] : 1;
            widened[0] = widened[1] = rg_tensor_desc_dense(factor.shape[0].dtype, rank, dims);
            RG_TRY(rg_form_reshape(e, &factor, widened, form->order));
        }
        RG_TRY(rg_form_binary(e, i == 0 ? "Mul" : "Add", form, factor.name));
    }
    return RG_OK;
}

static rg_status reduce_mean(rg_export *e, rg_form *form, const int64_t axes[], int32_t count)
{
    const char *numbers = NULL;
    if (e->desc.opset >= 18)
        RG_TRY(rg_export_ints(e, axes, count, ".axes", &numbers));
    RG_TRY(rg_emit(e, "ReduceMean"));
    rg_emit_input(e, form->name);
    if (numbers != NULL)
        rg_emit_input(e, numbers);
    else
        rg_emit_ints(e, "axes", axes, count);
    return rg_form_made(e, form);
}

/* (x - mean) / sqrt(variance + epsilon) from plain operators: all dimensions from `axis` on. */
static rg_status normalize_parts(rg_export *e, rg_form *form, int32_t axis, double epsilon)
{
    int64_t axes[RG_MAX_RANK];
    int32_t count = 0;
    const char *number;
    rg_form mean = *form, square;
    for (int32_t d = axis; d < form->shape[0].rank; d++)
        axes[count++] = form->order[d];
    RG_TRY(reduce_mean(e, &mean, axes, count));
    RG_TRY(rg_form_binary(e, "Sub", form, mean.name));
    square = *form;
    RG_TRY(rg_form_binary(e, "Mul", &square, form->name));
    RG_TRY(reduce_mean(e, &square, axes, count));
    RG_TRY(rg_export_number(e, form->shape[0].dtype, epsilon, &number));
    RG_TRY(rg_form_binary(e, "Add", &square, number));
    RG_TRY(rg_form_unary(e, "Sqrt", &square));
    return rg_form_binary(e, "Div", form, square.name);
}

static rg_status layer_norm(rg_export *e, const rg_node *node, const rg_value *gamma,
                            const rg_value *beta, int32_t axis, rg_form *form)
{
    const rg_group_norm_desc *d = node->desc;
    const int32_t rank = form->shape[0].rank;
    const int64_t channels = form->shape[0].dims[rank - 1];
    const char *name;
    if (e->desc.opset < 17 || axis != rank - 1 || form->order[rank - 1] != rank - 1) {
        RG_TRY(normalize_parts(e, form, axis, d->epsilon));
        return scale_channels(e, gamma, beta, form);
    }
    RG_TRY(take_channels(e, gamma, form->shape[0].dtype, 1, channels, &name));
    rg_form shift;
    if (beta != NULL)
        RG_TRY(rg_export_plain(e, beta, &shift));
    RG_TRY(rg_emit(e, "LayerNormalization"));
    rg_emit_input(e, form->name);
    rg_emit_input(e, name);
    if (beta != NULL)
        rg_emit_input(e, shift.name);
    rg_emit_int(e, "axis", -1);
    rg_emit_float(e, "epsilon", d->epsilon);
    RG_TRY(rg_form_made(e, form));
    if (!rg_export_has_gradient(e, node))
        return RG_OK;
    rg_exported *out = &e->values[node->out[0]->id];
    for (int i = 0; i < 2; i++) { /* the mean, and 1 / deviation */
        RG_TRY(rg_export_name(e, node->label, i == 0 ? ".mean" : ".scale", &out->extra[i]));
        rg_emit_output(e, out->extra[i]);
    }
    return RG_OK;
}

static rg_status instance_norm(rg_export *e, const rg_node *node, const rg_value *gamma,
                               const rg_value *beta, int64_t channels, rg_form *form)
{
    const rg_group_norm_desc *d = node->desc;
    const char *names[2];
    RG_TRY(take_channels(e, gamma, form->shape[0].dtype, 1, channels, &names[0]));
    RG_TRY(take_channels(e, beta, form->shape[0].dtype, 0, channels, &names[1]));
    RG_TRY(rg_emit(e, "InstanceNormalization"));
    rg_emit_input(e, form->name);
    rg_emit_input(e, names[0]);
    rg_emit_input(e, names[1]);
    rg_emit_float(e, "epsilon", d->epsilon);
    return rg_form_made(e, form);
}

/* Groups of channels of an image: (n, groups, rest) normalized as instances, then channels. */
static rg_status group_norm(rg_export *e, const rg_node *node, const rg_value *gamma,
                            const rg_value *beta, rg_form *form)
{
    const rg_group_norm_desc *d = node->desc;
    const rg_form x = *form;
    const int64_t groups[] = { 0, d->groups, -1 };
    const char *shape, *back;
    int64_t dims[RG_MAX_RANK];
    if (e->desc.opset >= 21) {
        const char *names[2];
        const int64_t channels = form->shape[0].dims[form->shape[0].rank - 1];
        RG_TRY(take_channels(e, gamma, form->shape[0].dtype, 1, channels, &names[0]));
        RG_TRY(take_channels(e, beta, form->shape[0].dtype, 0, channels, &names[1]));
        RG_TRY(rg_emit(e, "GroupNormalization"));
        rg_emit_input(e, form->name);
        rg_emit_input(e, names[0]);
        rg_emit_input(e, names[1]);
        rg_emit_float(e, "epsilon", d->epsilon);
        rg_emit_int(e, "num_groups", d->groups);
        return rg_form_made(e, form);
    }
    RG_TRY(rg_export_ints(e, groups, 3, ".shape", &shape));
    RG_TRY(rg_form_binary(e, "Reshape", form, shape));
    RG_TRY(instance_norm(e, node, NULL, NULL, d->groups, form));
    rg_form_file_dims(&x, dims);
    for (int32_t k = 0; k < x.shape[0].rank; k++)
        dims[k] = dims[k] == RG_ONNX_ANY_DIM ? 0 : dims[k];
    RG_TRY(rg_export_ints(e, dims, x.shape[0].rank, ".shape", &back));
    RG_TRY(rg_form_binary(e, "Reshape", form, back));
    return scale_channels(e, gamma, beta, form);
}

rg_status rg_export_group_norm(rg_export *e, const rg_node *node)
{
    const rg_group_norm_desc *d = node->desc;
    const rg_value *gamma = d->gamma ? node->in[1] : NULL;
    const rg_value *beta = d->beta ? node->in[1 + d->gamma] : NULL;
    const rg_tensor_desc *x = e->values[node->in[0]->id].shape;
    const int32_t rank = x[0].rank;
    const int32_t axis = (int32_t)(d->axis < 0 ? d->axis + rank : d->axis);
    const int64_t channels = x[0].dims[rank - 1];
    rg_form form;
    if (d->groups == 1 && (axis != 1 || rank < 3)) {
        RG_TRY(axis == rank - 1 ? rg_export_plain(e, node->in[0], &form)
                                : rg_export_any(e, node->in[0], &form));
        RG_TRY(layer_norm(e, node, gamma, beta, axis, &form));
        return finish(e, node, &d->neuron, &form);
    }
    RG_CHECK(axis == 1 && rank >= 3, RG_UNSUPPORTED, "groups of %lld with axis %lld",
             (long long)d->groups, (long long)d->axis);
    RG_TRY(rg_export_image(e, node->in[0], &form));
    RG_TRY(d->groups == 0 || d->groups == channels
               ? instance_norm(e, node, gamma, beta, channels, &form)
               : group_norm(e, node, gamma, beta, &form));
    return finish(e, node, &d->neuron, &form);
}

rg_status rg_export_lrn(rg_export *e, const rg_node *node)
{
    const rg_lrn_desc *d = node->desc;
    rg_form form;
    RG_CHECK(d->window % 2 == 1 || d->even_after, RG_UNSUPPORTED,
             "an even window with one channel more before the centre has no ONNX form");
    RG_TRY(rg_export_image(e, node->in[0], &form));
    RG_CHECK(form.shape[0].rank == 4, RG_UNSUPPORTED, "rank %d", form.shape[0].rank);
    RG_TRY(rg_emit(e, "LRN"));
    rg_emit_input(e, form.name);
    rg_emit_int(e, "size", d->window);
    rg_emit_float(e, "alpha", d->alpha);
    rg_emit_float(e, "beta", d->beta);
    rg_emit_float(e, "bias", d->delta);
    RG_TRY(rg_form_made(e, &form));
    return rg_export_define(e, node, 0, &form);
}
