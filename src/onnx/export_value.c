/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Values of a graph in a file: names, orders of dimensions, parameters, constants. */
#include "onnx/export.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <stdio.h>
#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

const int32_t rg_plain_order[RG_MAX_RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };

bool rg_order_same(const int32_t a[], const int32_t b[], int32_t rank)
{
    return memcmp(a, b, sizeof a[0] * (size_t)rank) == 0;
}

int32_t rg_export_type(const rg_export *e, rg_dtype dtype)
{
    return rg_onnx_type_of(rg_dtype_is_data(dtype) ? e->dtype : dtype);
}

rg_status rg_export_name(rg_export *e, const char *wanted, const char *suffix, const char **name)
{
    char text[600];
    int length = snprintf(text, sizeof text, "%.500s%.40s", wanted, suffix);
    for (int32_t i = 1; rg_names_find(&e->names, text) != NULL; i++)
        length = snprintf(text, sizeof text, "%.500s%.40s_%d", wanted, suffix, i);
    char *copy;
    RG_TRY(rg_arena_text(&e->arena, text, (size_t)length, &copy));
    *name = copy;
    return rg_names_add(&e->names, copy, copy);
}

void rg_form_file_dims(const rg_form *form, int64_t dims[])
{
    for (int32_t d = 0; d < form->shape[0].rank; d++)
        dims[form->order[d]] = form->shape[0].dims[d] == form->shape[1].dims[d]
                                   ? form->shape[0].dims[d]
                                   : RG_ONNX_ANY_DIM;
}

/* ---- nodes in front of others ---- */

rg_status rg_form_made(rg_export *e, rg_form *form)
{
    const char *label = e->node != NULL ? e->node->label : "value";
    RG_TRY(rg_export_name(e, label, ".part", &form->name));
    rg_emit_output(e, form->name);
    return RG_OK;
}

rg_status rg_form_unary(rg_export *e, const char *type, rg_form *form)
{
    RG_TRY(rg_emit(e, type));
    rg_emit_input(e, form->name);
    return rg_form_made(e, form);
}

rg_status rg_form_binary(rg_export *e, const char *type, rg_form *form, const char *other)
{
    RG_TRY(rg_emit(e, type));
    rg_emit_input(e, form->name);
    rg_emit_input(e, other);
    return rg_form_made(e, form);
}

rg_status rg_form_reorder(rg_export *e, rg_form *form, const int32_t order[])
{
    const int32_t rank = form->shape[0].rank;
    int64_t permutation[RG_MAX_RANK];
    if (rg_order_same(form->order, order, rank))
        return RG_OK;
    for (int32_t d = 0; d < rank; d++)
        permutation[order[d]] = form->order[d];
    RG_TRY(rg_emit(e, "Transpose"));
    rg_emit_input(e, form->name);
    rg_emit_ints(e, "perm", permutation, rank);
    memcpy(form->order, order, sizeof order[0] * (size_t)rank);
    return rg_form_made(e, form);
}

/* Dimensions of the file other than 1, for one probe. */
static int32_t long_dims(const rg_tensor_desc *shape, const int32_t order[], int64_t dims[])
{
    int64_t file[RG_MAX_RANK];
    int32_t count = 0;
    for (int32_t d = 0; d < shape->rank; d++)
        file[order[d]] = shape->dims[d];
    for (int32_t d = 0; d < shape->rank; d++) {
        if (file[d] != 1)
            dims[count++] = file[d];
    }
    return count;
}

/* The graph's dimensions that are longer than 1, in the order of the file. */
static int32_t long_order(const rg_tensor_desc *shape, const int32_t order[], int32_t which[])
{
    int32_t at[RG_MAX_RANK], rank[RG_MAX_RANK], count = 0, next = 0;
    for (int32_t d = 0; d < shape->rank; d++) {
        rank[d] = shape->dims[d] != 1 ? next++ : -1;
        at[order[d]] = d;
    }
    for (int32_t d = 0; d < shape->rank; d++) {
        if (rank[at[d]] >= 0)
            which[count++] = rank[at[d]];
    }
    return count;
}

/* Whether only dimensions of 1 come and go, and all others stand in the same order in the file. */
bool rg_form_keeps_order(const rg_form *form, const rg_tensor_desc shape[RG_PROBES],
                         const int32_t order[])
{
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t a[RG_MAX_RANK], b[RG_MAX_RANK];
        int32_t x[RG_MAX_RANK], y[RG_MAX_RANK];
        const int32_t count = long_dims(&form->shape[p], form->order, a);
        if (count != long_dims(&shape[p], order, b) ||
            memcmp(a, b, sizeof a[0] * (size_t)count) != 0)
            return false;
        long_order(&form->shape[p], form->order, x);
        long_order(&shape[p], order, y);
        if (memcmp(x, y, sizeof x[0] * (size_t)count) != 0)
            return false;
    }
    return true;
}

/* Numbers for Reshape: 0 for a dimension of the batch that stays, -1 for another one. */
static rg_status reshape_dims(const rg_form *from, const rg_form *to, int64_t dims[])
{
    int64_t before[RG_MAX_RANK];
    bool open = false;
    rg_form_file_dims(from, before);
    rg_form_file_dims(to, dims);
    for (int32_t d = 0; d < to->shape[0].rank; d++) {
        if (dims[d] != RG_ONNX_ANY_DIM) {
            RG_CHECK(dims[d] != 0, RG_UNSUPPORTED, "a value has no elements");
            continue;
        }
        bool stays = d < from->shape[0].rank && before[d] == RG_ONNX_ANY_DIM;
        for (int32_t k = 0; stays && k < from->shape[0].rank; k++) {
            if (from->order[k] != d)
                continue;
            for (int32_t j = 0; j < to->shape[0].rank; j++)
                stays &= to->order[j] != d || (to->shape[0].dims[j] == from->shape[0].dims[k] &&
                                               to->shape[1].dims[j] == from->shape[1].dims[k]);
        }
        if (stays) {
            dims[d] = 0;
            continue;
        }
        RG_CHECK(!open, RG_UNSUPPORTED, "two dimensions depend on the size of the batch");
        dims[d] = -1;
        open = true;
    }
    return RG_OK;
}

rg_status rg_form_reshape(rg_export *e, rg_form *form, const rg_tensor_desc shape[RG_PROBES],
                          const int32_t order[])
{
    rg_form to = { .name = form->name };
    int64_t dims[RG_MAX_RANK];
    const int32_t rank = shape[0].rank;
    memcpy(to.shape, shape, sizeof to.shape);
    memcpy(to.order, order, sizeof order[0] * (size_t)rank);
    if (rank == form->shape[0].rank && rg_shape_same_dims(&shape[0], &form->shape[0]))
        return rg_form_reorder(e, form, order);
    const bool direct = rg_form_keeps_order(form, shape, order);
    if (!direct) {
        RG_TRY(rg_form_reorder(e, form, rg_plain_order));
        memcpy(to.order, rg_plain_order, sizeof to.order);
    }
    RG_TRY(reshape_dims(form, &to, dims));
    const char *numbers;
    RG_TRY(rg_export_ints(e, dims, rank, ".shape", &numbers));
    RG_TRY(rg_emit(e, "Reshape"));
    rg_emit_input(e, form->name);
    rg_emit_input(e, numbers);
    RG_TRY(rg_form_made(e, &to));
    *form = to;
    return rg_form_reorder(e, form, order);
}

/* ---- parameters ---- */

const rg_onnx_entry *rg_export_entry(const rg_export *e, const char *name, rg_onnx_role role)
{
    const rg_onnx_network *network = e->source.network;
    return network != NULL ? rg_onnx_network_entry(network, role, name) : NULL;
}

/* From one order of dimensions to another. */
static void move_elements(const rg_tensor_desc *desc, size_t size, const int32_t from_order[],
                          const char *from, const int32_t to_order[], char *to)
{
    int64_t a[RG_MAX_RANK], b[RG_MAX_RANK], index[RG_MAX_RANK] = { 0 };
    const int32_t rank = desc->rank;
    for (int32_t d = 0; d < rank; d++) { /* strides of dimension d of the graph */
        a[d] = b[d] = 1;
        for (int32_t k = 0; k < rank; k++) {
            a[d] *= from_order[k] > from_order[d] ? desc->dims[k] : 1;
            b[d] *= to_order[k] > to_order[d] ? desc->dims[k] : 1;
        }
    }
    for (int64_t n = rg_shape_count(desc); n > 0; n--) {
        int64_t x = 0, y = 0;
        for (int32_t d = 0; d < rank; d++) {
            x += index[d] * a[d];
            y += index[d] * b[d];
        }
        memcpy(to + (size_t)y * size, from + (size_t)x * size, size);
        for (int32_t d = rank - 1; d >= 0 && ++index[d] == desc->dims[d]; d--)
            index[d] = 0;
    }
}

/* Elements of a parameter, dimensions in `order`. Those of an imported network come from its file,
 * which has them in an order of its own. */
static rg_status parameter_elements(rg_export *e, const rg_value *value, const int32_t order[],
                                    rg_dtype dtype, void **data, size_t *bytes)
{
    if (e->source.plan != NULL)
        return rg_plan_elements(e->source.plan, value->name, order, dtype, data, bytes);
    const rg_onnx_entry *entry = rg_export_entry(e, value->name, RG_ONNX_PARAMETER);
    RG_CHECK(entry != NULL, RG_INVALID_ARGUMENT, "there are no elements of the parameter '%.80s'",
             value->name);
    RG_TRY(rg_onnx_network_elements(e->source.network, entry, dtype, data, bytes));
    if (rg_order_same(entry->info.order, order, value->desc.rank) || *bytes == 0)
        return RG_OK;
    void *moved;
    const rg_status status = rg_allocate(allocator, *bytes, &moved);
    if (status == RG_OK)
        move_elements(&value->desc, rg_dtype_size(dtype), entry->info.order, *data, order, moved);
    rg_release(allocator, *data, *bytes);
    *data = status == RG_OK ? moved : NULL;
    return status;
}

rg_status rg_export_doubles(rg_export *e, const rg_value *parameter, double **elements,
                            int64_t *count)
{
    void *data;
    size_t bytes;
    RG_TRY(parameter_elements(e, parameter, rg_plain_order, RG_F64, &data, &bytes));
    *count = (int64_t)(bytes / sizeof **elements);
    rg_status status = rg_arena_take(&e->arena, (size_t)*count, sizeof **elements, elements);
    if (status == RG_OK && bytes > 0)
        memcpy(*elements, data, bytes);
    rg_release(allocator, data, bytes);
    return status;
}

rg_status rg_export_changed(rg_export *e, const rg_value *parameter, const double elements[],
                            const rg_tensor_desc *desc, const int32_t order[], const char **name)
{
    rg_exported *made = &e->values[parameter->id];
    const size_t count = (size_t)rg_shape_count(desc), size = rg_dtype_size(e->dtype);
    int64_t dims[RG_MAX_RANK];
    void *data, *moved = NULL;
    *name = parameter->name;
    if (made->has_form || made->changed != NULL)
        RG_TRY(rg_export_name(e, parameter->name, ".changed", name));
    RG_TRY(rg_allocate(allocator, count * size, &data));
    const rg_status status = rg_allocate(allocator, count * size, &moved);
    if (status == RG_OK) {
        for (size_t i = 0; i < count; i++)
            rg_element_set(data, e->dtype, (int64_t)i, elements[i]);
        move_elements(desc, size, rg_plain_order, data, order, moved);
        for (int32_t d = 0; d < desc->rank; d++)
            dims[order[d]] = desc->dims[d];
        rg_proto_write_tensor(&e->tensors, 5, *name, rg_onnx_type_of(e->dtype), desc->rank, dims,
                              moved, count * size);
        made->changed = *name;
        made->changed_desc = rg_tensor_desc_dense(e->dtype, desc->rank, dims);
    }
    rg_release(allocator, data, count * size);
    rg_release(allocator, moved, count * size);
    return status;
}

static rg_status make_parameter(rg_export *e, const rg_value *value, const int32_t order[])
{
    rg_exported *made = &e->values[value->id];
    const rg_dtype dtype = rg_dtype_is_data(value->desc.dtype) ? e->dtype : value->desc.dtype;
    int64_t dims[RG_MAX_RANK];
    void *data;
    size_t bytes;
    made->form.name = value->name;
    if (made->changed != NULL)
        RG_TRY(rg_export_name(e, value->name, ".original", &made->form.name));
    memcpy(made->form.shape, made->shape, sizeof made->shape);
    memcpy(made->form.order, order, sizeof order[0] * (size_t)value->desc.rank);
    RG_TRY(parameter_elements(e, value, order, dtype, &data, &bytes));
    rg_form_file_dims(&made->form, dims);
    rg_proto_write_tensor(&e->tensors, 5, made->form.name, rg_onnx_type_of(dtype), value->desc.rank,
                          dims, data, bytes);
    rg_release(allocator, data, bytes);
    made->has_form = true;
    return RG_OK;
}

/* A constant has one number in all elements. */
static rg_status make_constant(rg_export *e, const rg_value *value)
{
    rg_exported *made = &e->values[value->id];
    const rg_tensor_desc *shape = made->shape;
    const int64_t count = rg_shape_count(&shape[0]);
    memcpy(made->form.shape, made->shape, sizeof made->shape);
    memcpy(made->form.order, rg_plain_order, sizeof made->form.order);
    made->has_form = true;
    RG_TRY(rg_export_number(e, shape[0].dtype, value->number, &made->form.name));
    if (shape[0].rank == 0)
        return RG_OK;
    RG_CHECK(rg_shape_same_dims(&shape[0], &shape[1]) && count < 1 << 16, RG_UNSUPPORTED,
             "a constant of the size of the batch");
    const char *dims;
    RG_TRY(rg_export_ints(e, shape[0].dims, shape[0].rank, ".shape", &dims));
    return rg_form_binary(e, "Expand", &made->form, dims);
}

static rg_status make_form(rg_export *e, const rg_value *value, const int32_t order[])
{
    const rg_exported *made = &e->values[value->id];
    if (made->has_form)
        return RG_OK;
    if (value->kind == RG_VALUE_PARAMETER)
        return make_parameter(e, value, order);
    RG_CHECK(value->kind == RG_VALUE_CONSTANT && made->known, RG_UNSUPPORTED,
             "its input is not covered");
    return make_constant(e, value);
}

/* The order of dimensions that any will do for: that of the imported file. */
static const int32_t *free_order(const rg_export *e, const rg_value *value)
{
    const rg_onnx_entry *entry = value->kind == RG_VALUE_PARAMETER
                                     ? rg_export_entry(e, value->name, RG_ONNX_PARAMETER)
                                     : NULL;
    return entry != NULL ? entry->info.order : rg_plain_order;
}

rg_status rg_export_raw(rg_export *e, const rg_value *value, rg_form *form)
{
    RG_TRY(make_form(e, value, free_order(e, value)));
    *form = e->values[value->id].form;
    return RG_OK;
}

rg_status rg_export_ordered(rg_export *e, const rg_value *value, const int32_t order[],
                            rg_form *form)
{
    RG_TRY(make_form(e, value, order));
    *form = e->values[value->id].form;
    return rg_form_reshape(e, form, e->values[value->id].shape, order);
}

rg_status rg_export_any(rg_export *e, const rg_value *value, rg_form *form)
{
    const rg_exported *made = &e->values[value->id];
    int32_t order[RG_MAX_RANK];
    RG_TRY(rg_export_raw(e, value, form));
    if (form->shape[0].rank == made->shape[0].rank)
        return RG_OK;
    rg_channels_last_order(made->shape[0].rank, order);
    return rg_form_reshape(e, form, made->shape, order);
}

rg_status rg_export_plain(rg_export *e, const rg_value *value, rg_form *form)
{
    return rg_export_ordered(e, value, rg_plain_order, form);
}

rg_status rg_export_image(rg_export *e, const rg_value *value, rg_form *form)
{
    int32_t order[RG_MAX_RANK];
    rg_channels_last_order(e->values[value->id].shape[0].rank, order);
    return rg_export_ordered(e, value, order, form);
}

/* ---- constants of the file ---- */

rg_status rg_export_ints(rg_export *e, const int64_t values[], int32_t count, const char *suffix,
                         const char **name)
{
    const int64_t dims[] = { count };
    RG_TRY(rg_export_name(e, e->node != NULL ? e->node->label : "value", suffix, name));
    rg_proto_write_tensor(&e->tensors, 5, *name, RG_ONNX_INT64, 1, dims, values,
                          (size_t)count * sizeof values[0]);
    return e->tensors.failed;
}

rg_status rg_export_numbers(rg_export *e, rg_dtype dtype, const double numbers[], int64_t count,
                            int32_t rank, const int64_t dims[], const char *suffix,
                            const char **name)
{
    void *data;
    const rg_dtype own = rg_dtype_is_data(dtype) ? e->dtype : dtype;
    const size_t bytes = (size_t)count * rg_dtype_size(own);
    RG_TRY(rg_export_name(e, e->node != NULL ? e->node->label : "value", suffix, name));
    RG_TRY(rg_allocate(allocator, bytes, &data));
    for (int64_t i = 0; i < count; i++)
        rg_element_set(data, own, i, numbers[i]);
    rg_proto_write_tensor(&e->tensors, 5, *name, rg_onnx_type_of(own), rank, dims, data, bytes);
    rg_release(allocator, data, bytes);
    return e->tensors.failed;
}

rg_status rg_export_number(rg_export *e, rg_dtype dtype, double number, const char **name)
{
    return rg_export_numbers(e, dtype, &number, 1, 0, NULL, ".number", name);
}

/* ---- outputs of nodes ---- */

rg_status rg_export_shapes(rg_export *e, const rg_node *node)
{
    rg_tensor_desc x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
    for (int32_t p = 0; p < RG_PROBES; p++) {
        for (int32_t i = 0; i < node->inputs; i++) {
            const rg_exported *in = &e->values[node->in[i]->id];
            RG_CHECK(in->known, RG_UNSUPPORTED, "its input is not covered");
            x[i] = in->shape[p];
        }
        RG_TRY(node->op->shapes(node->desc, x, y));
        for (int32_t j = 0; j < node->outputs; j++) {
            if (node->out[j] != NULL)
                e->values[node->out[j]->id].shape[p] = y[j];
        }
    }
    for (int32_t j = 0; j < node->outputs; j++) {
        if (node->out[j] != NULL)
            e->values[node->out[j]->id].known = true;
    }
    return RG_OK;
}

rg_status rg_export_define(rg_export *e, const rg_node *node, int32_t index, const rg_form *form)
{
    rg_exported *made = &e->values[node->out[index]->id];
    const char *label = node->label;
    char *copy;
    made->form = *form;
    if (form->shape[0].rank == made->shape[0].rank)
        memcpy(made->form.shape, made->shape, sizeof made->shape);
    made->has_form = true;
    /* a value that this node makes is called by its label, if nothing else is */
    const size_t length = strlen(label);
    const bool own = strncmp(form->name, label, length) == 0 && form->name[length] == '.' &&
                     e->last != NULL && e->last->output_count > 0 &&
                     strcmp(e->last->outputs[0], form->name) == 0;
    if (!own || index > 0 || rg_names_find(&e->names, label) != NULL)
        return RG_OK;
    RG_TRY(rg_arena_text(&e->arena, label, length, &copy));
    RG_TRY(rg_names_add(&e->names, copy, copy));
    return rg_names_add(&e->renamed, form->name, copy);
}
