/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The export of a graph: what results need, inputs, nodes in their order, outputs. What has no
 * counterpart is gathered, so that one error names all of it. */
#include "onnx/export.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <stdio.h>
#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* Sizes of a batch that shapes are found for. */
static const int64_t probes[RG_PROBES] = { 2, 3 };

/* ---- what is needed ---- */

static const rg_onnx_write_name *find_name(const rg_export *e, const char *name)
{
    for (int32_t i = 0; i < e->desc.name_count; i++) {
        if (strcmp(e->desc.names[i].graph, name) == 0)
            return &e->desc.names[i];
    }
    return NULL;
}

/* The name that a source or result has in the file. */
static const char *file_name(const rg_export *e, const char *name)
{
    const rg_onnx_write_name *found = find_name(e, name);
    return found != NULL ? found->file : name;
}

/* Whether an image is (n, h, w, c) in the file. */
static bool has_channels_last(const rg_export *e, const char *name)
{
    const rg_onnx_write_name *found = find_name(e, name);
    return found != NULL && found->channels_last;
}

/* Of the results of an imported network, those that the file has, and gradients on request. */
static bool is_written(const rg_export *e, const rg_result *result)
{
    return e->source.network == NULL || e->desc.gradients ||
           rg_export_entry(e, result->name, RG_ONNX_OUTPUT) != NULL;
}

static void need(void *context, rg_value *value)
{
    rg_export *e = context;
    e->values[value->id].needed = true;
    e->values[value->id].readers++;
    if (value->kind == RG_VALUE_CONSTANT)
        e->values[value->like->id].needed = true;
}

static void find_needed(rg_export *e)
{
    const rg_graph *graph = e->graph;
    for (size_t i = 0; i < graph->results_count; i++) {
        if (is_written(e, &graph->results[i]))
            need(e, graph->results[i].value);
    }
    for (size_t n = graph->nodes_count; n-- > 0;) {
        const rg_node *node = graph->nodes[n];
        bool live = e->live[n];
        for (int32_t j = 0; j < node->outputs; j++)
            live |= node->out[j] != NULL && e->values[node->out[j]->id].needed;
        e->live[n] = live;
        if (live)
            rg_node_each_read(node, need, e);
        if (live && node->forward != NULL)
            e->live[node->forward->id] = true;
    }
}

/* ---- inputs ---- */

/* The output whose gradient an input is, "y_grad" of "y". */
static const rg_onnx_entry *gradient_of(const rg_export *e, const char *name)
{
    char text[512];
    const size_t length = strlen(name), suffix = strlen("_grad");
    if (length <= suffix || length >= sizeof text || strcmp(name + length - suffix, "_grad") != 0)
        return NULL;
    memcpy(text, name, length - suffix);
    text[length - suffix] = 0;
    return rg_export_entry(e, text, RG_ONNX_OUTPUT);
}

/* The shape of a source, in the order of the graph, and its order in the file. */
static rg_status find_source(const rg_export *e, const char *name, rg_tensor_desc *desc,
                             int32_t order[])
{
    const rg_onnx_entry *entry = rg_export_entry(e, name, RG_ONNX_INPUT);
    for (int32_t i = 0; i < e->desc.input_count; i++) {
        if (strcmp(e->desc.inputs[i].name, name) != 0)
            continue;
        *desc = e->desc.inputs[i].desc;
        RG_CHECK(desc->rank >= 0 && desc->rank <= RG_MAX_RANK, RG_INVALID_ARGUMENT,
                 "the input '%.80s' has rank %d", name, desc->rank);
        memcpy(order, rg_plain_order, sizeof rg_plain_order);
        if (desc->rank == 4 && !has_channels_last(e, name))
            rg_channels_last_order(4, order);
        return RG_OK;
    }
    if (entry == NULL)
        entry = gradient_of(e, name);
    RG_CHECK(entry != NULL, RG_INVALID_ARGUMENT, "the shape of the input '%.80s' is not given",
             name);
    *desc = entry->info.desc;
    memcpy(order, entry->info.order, sizeof entry->info.order);
    for (int32_t d = 0; d < desc->rank; d++)
        desc->dims[d] = entry->info.desc.dims[order[d]];
    return RG_OK;
}

/* (x - mean) / deviation */
static rg_status normalize(rg_export *e, rg_form *form)
{
    const int64_t channels = e->desc.channels;
    const bool columns = e->desc.by_columns;
    int64_t dims[] = { 1, 1, 1, 1 };
    const rg_dtype dtype = form->shape[0].dtype;
    const char *mean, *deviation;
    RG_CHECK(form->shape[0].rank == 4 && form->shape[0].dims[columns ? 2 : 3] == channels &&
                 rg_dtype_is_data(dtype),
             RG_INVALID_ARGUMENT,
             "the mean has %lld channels, but the input '%.80s' is not such an image",
             (long long)channels, form->name);
    dims[form->order[columns ? 2 : 3]] = channels;
    RG_TRY(rg_export_numbers(e, dtype, e->desc.mean, channels, 4, dims, ".mean", &mean));
    RG_TRY(rg_export_numbers(e, dtype, e->desc.deviation, channels, 4, dims, ".deviation",
                             &deviation));
    RG_TRY(rg_form_binary(e, "Sub", form, mean));
    return rg_form_binary(e, "Div", form, deviation);
}

/* Dimensions for the description of an input or output: one that depends on the batch, but is not
 * the batch, has no name. */
static void port_dims(const rg_form *form, int64_t dims[])
{
    rg_form_file_dims(form, dims);
    for (int32_t d = 0; d < form->shape[0].rank; d++) {
        int64_t *const dim = &dims[form->order[d]];
        if (*dim == RG_ONNX_ANY_DIM &&
            (form->shape[0].dims[d] != probes[0] || form->shape[1].dims[d] != probes[1]))
            *dim = RG_ONNX_OTHER_DIM;
    }
}

static rg_status add_source(rg_export *e, const rg_value *value, bool first)
{
    rg_exported *made = &e->values[value->id];
    const rg_onnx_entry *output = gradient_of(e, value->name);
    rg_tensor_desc desc = { 0 };
    int64_t dims[RG_MAX_RANK];
    int32_t order[RG_MAX_RANK];
    RG_TRY(find_source(e, value->name, &desc, made->form.order));
    if (rg_export_entry(e, value->name, RG_ONNX_INPUT) != NULL)
        output = NULL;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        for (int32_t d = 0; d < desc.rank; d++)
            dims[d] = desc.dims[d] >= 0 ? desc.dims[d]
                      : output != NULL  ? output->shape[p].dims[made->form.order[d]]
                      : d == 0          ? probes[p]
                                        : desc.dims[d];
        made->form.shape[p] = rg_tensor_desc_dense(desc.dtype, desc.rank, dims);
        RG_TRY(rg_shape_check(&made->form.shape[p], value->name, NULL));
    }
    memcpy(made->shape, made->form.shape, sizeof made->shape);
    made->known = made->has_form = true;
    made->form.name = file_name(e, value->name);
    if (e->desc.flat_results && desc.rank == 3 && desc.dims[1] == 1 && desc.dims[2] == 1) {
        for (int32_t p = 0; p < RG_PROBES; p++) /* labels of images with one pixel */
            made->form.shape[p] = rg_tensor_desc_dense(desc.dtype, 1, made->shape[p].dims);
    }
    if (first && !e->desc.has_dtype && rg_dtype_is_data(desc.dtype))
        e->dtype = desc.dtype == RG_BF16 ? RG_F32 : desc.dtype; /* which runtimes cannot run */
    port_dims(&made->form, dims);
    rg_proto_write_port(&e->inputs, 11, made->form.name, rg_export_type(e, desc.dtype),
                        made->form.shape[0].rank, dims);
    if (first && e->desc.channels > 0)
        RG_TRY(normalize(e, &made->form));
    if (!has_channels_last(e, value->name) || desc.rank != 4)
        return RG_OK;
    rg_channels_last_order(4, order);
    return rg_form_reorder(e, &made->form, order);
}

static rg_status add_inputs(rg_export *e)
{
    bool first = true;
    for (size_t i = 0; i < e->graph->values_count; i++) {
        const rg_value *value = e->graph->values[i];
        rg_exported *made = &e->values[i];
        if (value->kind == RG_VALUE_PARAMETER) {
            made->shape[0] = made->shape[1] = value->desc;
            made->known = true;
        } else if (value->kind == RG_VALUE_SOURCE && made->needed) {
            RG_TRY(add_source(e, value, first));
            first = false;
        }
    }
    return RG_OK;
}

/* Names that stay: those of inputs, parameters and results. */
static rg_status keep_name(rg_export *e, const char *name)
{
    char *copy;
    if (rg_names_find(&e->names, name) != NULL)
        return RG_OK;
    RG_TRY(rg_arena_text(&e->arena, name, strlen(name), &copy));
    return rg_names_add(&e->names, copy, copy);
}

static rg_status keep_names(rg_export *e)
{
    const rg_graph *graph = e->graph;
    for (size_t i = 0; i < graph->values_count; i++) {
        const rg_value *value = graph->values[i];
        if (value->name != NULL && e->values[i].needed)
            RG_TRY(keep_name(e, value->kind == RG_VALUE_SOURCE ? file_name(e, value->name)
                                                               : value->name));
    }
    for (size_t i = 0; i < graph->results_count; i++) {
        if (is_written(e, &graph->results[i]))
            RG_TRY(keep_name(e, file_name(e, graph->results[i].name)));
    }
    return RG_OK;
}

/* ---- nodes ---- */

static rg_status add_uncovered(rg_export *e, const rg_node *node, const char *why)
{
    char text[384];
    const int length =
        snprintf(text, sizeof text, "%s%.60s%s (node '%.60s'%s%.160s)",
                 e->uncovered_length > 0 ? "; " : "", node->op->name,
                 node->gradient ? " gradient" : "", node->label, why[0] != 0 ? ": " : "", why);
    while (e->uncovered_length + (size_t)length + 1 > e->uncovered_capacity) {
        const size_t old = e->uncovered_capacity;
        RG_TRY(rg_grow(allocator, (void **)&e->uncovered, &e->uncovered_capacity, old, 1));
    }
    memcpy(e->uncovered + e->uncovered_length, text, (size_t)length + 1);
    e->uncovered_length += (size_t)length;
    return RG_OK;
}

/* Values in place of those that cannot be computed, so that nodes after them are looked at. */
static void stand_in(rg_export *e, const rg_node *node)
{
    for (int32_t j = 0; j < node->outputs; j++) {
        if (node->out[j] == NULL)
            continue;
        rg_exported *made = &e->values[node->out[j]->id];
        made->form = (rg_form){ .name = node->label };
        memcpy(made->form.shape, made->shape, sizeof made->shape);
        memcpy(made->form.order, rg_plain_order, sizeof rg_plain_order);
        made->has_form = true;
    }
}

static rg_status gradient_shapes(rg_export *e, const rg_node *node)
{
    for (int32_t i = 0; i < node->outputs; i++) {
        if (node->out[i] == NULL)
            continue;
        rg_exported *made = &e->values[node->out[i]->id];
        memcpy(made->shape, e->values[node->x[i]->id].shape, sizeof made->shape);
        made->known = true;
    }
    return RG_OK;
}

static void find_constants(void *context, rg_value *value)
{
    rg_export *e = context;
    rg_exported *made = &e->values[value->id];
    if (value->kind != RG_VALUE_CONSTANT || made->known)
        return;
    memcpy(made->shape, e->values[value->like->id].shape, sizeof made->shape);
    made->known = true;
}

static rg_status add_node(rg_export *e, const rg_node *node)
{
    rg_node_each_read(node, find_constants, e);
    RG_TRY(node->gradient ? gradient_shapes(e, node) : rg_export_shapes(e, node));
    e->node = node;
    rg_exporter *exporter = rg_exporter_find(node->op->name, node->gradient);
    const rg_status status =
        exporter != NULL ? exporter(e, node) : rg_fail(RG_UNSUPPORTED, "no operator of ONNX");
    if (status == RG_UNSUPPORTED) {
        stand_in(e, node);
        return add_uncovered(e, node, rg_error_text());
    }
    if (status != RG_OK)
        rg_error_prefix("node '%.80s' (%s): ", node->label, node->op->name);
    return status;
}

/* ---- outputs ---- */

/* Whether a node of the file makes the value, and no output has its name yet. */
static bool can_be_renamed(const rg_export *e, const rg_value *value, const char *name)
{
    const char *now = rg_names_find(&e->renamed, name);
    return value->kind == RG_VALUE_OUTPUT &&
           (now == NULL || rg_names_find(&e->results, now) == NULL) &&
           rg_names_find(&e->made, name) != NULL;
}

/* Adds the outputs of nodes that were gathered since the last call. */
static rg_status note_made(rg_export *e)
{
    for (rg_emitted *node = e->noted != NULL ? e->noted->next : e->first; node != NULL;
         node = node->next) {
        for (int32_t j = 0; j < node->output_count; j++) {
            if (rg_names_find(&e->made, node->outputs[j]) == NULL)
                RG_TRY(rg_names_add(&e->made, node->outputs[j], node));
        }
        e->noted = node;
    }
    return RG_OK;
}

static rg_status note_results(rg_export *e)
{
    const rg_graph *graph = e->graph;
    for (size_t i = 0; i < graph->results_count; i++) {
        const char *name = file_name(e, graph->results[i].name);
        if (rg_names_find(&e->results, name) == NULL)
            RG_TRY(rg_names_add(&e->results, name, &graph->results[i]));
    }
    for (size_t i = graph->values_count; i-- > 0;) {
        const rg_value *gradient = graph->values[i]->gradient;
        if (gradient != NULL) {
            e->values[i].next_of_gradient = e->values[gradient->id].of_gradient;
            e->values[gradient->id].of_gradient = graph->values[i];
        }
    }
    return RG_OK;
}

/* The order of dimensions of a result in the file: that of the imported file, for a gradient that
 * of its parameter or source, for others that of images. */
static void find_order(const rg_export *e, const rg_result *result, int32_t rank, int32_t order[])
{
    const rg_onnx_entry *entry = rg_export_entry(e, result->name, RG_ONNX_OUTPUT);
    memcpy(order, rg_plain_order, sizeof rg_plain_order);
    if (entry != NULL)
        memcpy(order, entry->info.order, sizeof entry->info.order);
    else if (rank == 4 && !has_channels_last(e, result->name))
        rg_channels_last_order(rank, order);
    for (const rg_value *of = e->values[result->value->id].of_gradient; of != NULL;
         of = e->values[of->id].next_of_gradient) {
        if (of->name != NULL && e->values[of->id].has_form)
            memcpy(order, e->values[of->id].form.order, sizeof e->values[of->id].form.order);
    }
}

/* An image of one pixel as (n, c). */
static rg_status flat_result(rg_export *e, const rg_value *value, rg_form *form)
{
    const rg_tensor_desc *shape = e->values[value->id].shape;
    rg_tensor_desc flat[RG_PROBES];
    if (shape[0].rank != 4 || shape[0].dims[1] != 1 || shape[0].dims[2] != 1 ||
        shape[0].dims[0] == shape[1].dims[0])
        return rg_export_any(e, value, form);
    for (int32_t p = 0; p < RG_PROBES; p++) {
        const int64_t dims[] = { shape[p].dims[0], shape[p].dims[3] };
        flat[p] = rg_tensor_desc_dense(shape[p].dtype, 2, dims);
    }
    RG_TRY(rg_export_raw(e, value, form));
    return form->shape[0].rank == 2 ? RG_OK : rg_form_reshape(e, form, flat, rg_plain_order);
}

/* The gradient of a parameter has the dimensions that the file has for the parameter. */
static rg_status fit_parameter(rg_export *e, const rg_value *gradient, rg_form *form)
{
    for (const rg_value *of = e->values[gradient->id].of_gradient; of != NULL;
         of = e->values[of->id].next_of_gradient) {
        const rg_exported *made = &e->values[of->id];
        const rg_tensor_desc *desc = &made->changed_desc;
        const char *numbers;
        if (made->changed == NULL)
            continue;
        RG_TRY(rg_export_ints(e, desc->dims, desc->rank, ".shape", &numbers));
        RG_TRY(rg_form_binary(e, "Reshape", form, numbers));
        form->shape[0] = form->shape[1] = *desc;
        memcpy(form->order, rg_plain_order, sizeof rg_plain_order);
        return RG_OK;
    }
    return RG_OK;
}

static rg_status add_output(rg_export *e, const rg_result *result)
{
    rg_form form;
    int64_t dims[RG_MAX_RANK];
    int32_t order[RG_MAX_RANK];
    e->node = NULL;
    find_constants(e, result->value);
    RG_TRY(e->desc.flat_results ? flat_result(e, result->value, &form)
                                : rg_export_any(e, result->value, &form));
    int32_t rank = form.shape[0].rank;
    find_order(e, result, rank, order);
    const bool same = rg_order_same(order, form.order, rank);
    RG_TRY(rg_form_reorder(e, &form, order));
    RG_TRY(fit_parameter(e, result->value, &form));
    RG_TRY(note_made(e));
    if (same && !can_be_renamed(e, result->value, form.name))
        RG_TRY(rg_form_unary(e, "Identity", &form));
    rg_names_remove(&e->renamed, form.name);
    const char *name = file_name(e, result->name);
    char *copy;
    RG_TRY(rg_arena_text(&e->arena, name, strlen(name), &copy));
    RG_TRY(rg_names_add(&e->renamed, form.name, copy));
    rank = form.shape[0].rank;
    port_dims(&form, dims);
    rg_proto_write_port(&e->outputs, 12, name, rg_export_type(e, form.shape[0].dtype), rank, dims);
    return RG_OK;
}

/* Outputs of an imported network that are constant. */
static rg_status add_constant_outputs(rg_export *e)
{
    const rg_onnx_network *network = e->source.network;
    for (size_t i = 0; network != NULL && i < network->entry_count; i++) {
        const rg_onnx_tensor_info *info = &network->entries[i].info;
        const char *name;
        void *data;
        size_t bytes;
        if (info->role != RG_ONNX_OUTPUT || info->value != NULL)
            continue;
        const rg_dtype dtype = rg_dtype_is_data(info->desc.dtype) ? e->dtype : info->desc.dtype;
        const int32_t type = rg_onnx_type_of(dtype), rank = info->desc.rank;
        RG_TRY(rg_export_name(e, info->name, ".constant", &name));
        RG_TRY(rg_onnx_network_elements(network, &network->entries[i], dtype, &data, &bytes));
        rg_proto_write_tensor(&e->tensors, 5, name, type, rank, info->desc.dims, data, bytes);
        rg_proto_write_port(&e->outputs, 12, info->name, type, rank, info->desc.dims);
        rg_release(allocator, data, bytes);
        RG_TRY(rg_emit(e, "Identity"));
        rg_emit_input(e, name);
        rg_emit_output(e, info->name);
    }
    return RG_OK;
}

static rg_status export_all(rg_export *e, rg_writer *writer)
{
    const rg_graph *graph = e->graph;
    RG_TRY(rg_graph_status(graph));
    RG_CHECK(graph->results_count > 0 || e->source.network != NULL, RG_INVALID_ARGUMENT,
             "the graph has no results");
    RG_TRY(rg_arena_take(&e->arena, graph->values_count, sizeof *e->values, &e->values));
    RG_TRY(rg_arena_take(&e->arena, graph->nodes_count, sizeof *e->live, &e->live));
    find_needed(e);
    RG_TRY(keep_names(e));
    RG_TRY(add_inputs(e));
    for (size_t n = 0; n < graph->nodes_count; n++) {
        if (e->live[n])
            RG_TRY(add_node(e, graph->nodes[n]));
    }
    RG_CHECK(e->uncovered == NULL, RG_UNSUPPORTED, "not covered: %s", e->uncovered);
    RG_TRY(note_results(e));
    for (size_t i = 0; i < graph->results_count; i++) {
        if (is_written(e, &graph->results[i]))
            RG_TRY(add_output(e, &graph->results[i]));
    }
    RG_TRY(add_constant_outputs(e));
    return rg_emit_model(e, writer);
}

rg_status rg_graph_export(const rg_graph *graph, rg_export_source source,
                          const rg_onnx_write_desc *desc, rg_writer *writer)
{
    rg_export e = { .graph = graph, .source = source, .desc = *desc };
    e.dtype = desc->has_dtype ? desc->dtype : RG_F32;
    if (e.desc.opset == 0)
        e.desc.opset = RG_ONNX_DEFAULT_WRITTEN;
    const rg_status status = export_all(&e, writer);
    rg_writer_release(&e.attributes);
    rg_writer_release(&e.tensors);
    rg_writer_release(&e.inputs);
    rg_writer_release(&e.outputs);
    rg_names_clear(&e.names);
    rg_names_clear(&e.renamed);
    rg_names_clear(&e.results);
    rg_names_clear(&e.made);
    rg_arena_release(&e.arena);
    rg_release(allocator, e.uncovered, e.uncovered_capacity);
    return status;
}
