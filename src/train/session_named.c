/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sessions: parameters by name, in the order of the file, and texts of the caller. */
#include "train/session.h"

#include "core/memory.h"
#include "core/shape.h"

#include <stdio.h>
#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- parameters ---- */

/* Dimension d of the file is dimension to_graph[d] of the graph. */
static void find_order(const rg_session *s, const rg_network_parameter *p, int32_t to_graph[])
{
    for (int32_t d = 0; d < p->value->desc.rank; d++)
        to_graph[s->model->onnx != NULL ? p->order[d] : d] = d;
}

static void describe(const rg_session *s, const rg_network_parameter *p, rg_tensor_desc *desc)
{
    int32_t order[RG_MAX_RANK];
    int64_t dims[RG_MAX_RANK];
    const rg_tensor_desc *own = &p->value->desc;
    find_order(s, p, order);
    for (int32_t d = 0; d < own->rank; d++)
        dims[d] = own->dims[order[d]];
    *desc = rg_tensor_desc_dense(own->dtype, own->rank, dims);
}

rg_status rg_session_list_parameters(rg_session *s)
{
    rg_tensor *tensor;
    RG_TRY(rg_allocate_array(s->network.parameters_count, sizeof *s->listed, &s->listed));
    for (size_t i = 0; i < s->network.parameters_count; i++) {
        rg_network_parameter *p = &s->network.parameters[i];
        if (rg_plan_parameter(s->starting, p->value->name, &tensor) != RG_OK)
            continue;
        s->listed[s->listed_count++] = p;
        RG_TRY(rg_names_add(&s->by_name, p->value->name, p));
    }
    return RG_OK;
}

int32_t rg_session_parameter_count(const rg_session *session)
{
    return session != NULL ? session->listed_count : 0;
}

rg_status rg_session_parameter_at(const rg_session *session, int32_t index, const char **name,
                                  rg_tensor_desc *desc, bool *trained)
{
    RG_CHECK_NOT_NULL(session);
    RG_CHECK(index >= 0 && index < session->listed_count, RG_INVALID_ARGUMENT,
             "rg_session_parameter_at: there is no parameter %d; there are %d", index,
             session->listed_count);
    const rg_network_parameter *p = session->listed[index];
    if (name != NULL)
        *name = p->value->name;
    if (desc != NULL)
        describe(session, p, desc);
    if (trained != NULL)
        *trained = p->trained;
    return RG_OK;
}

/* Copies between a parameter and a tensor of the caller, which has the order of the file. */
static rg_status copy(rg_session *s, const char *name, rg_tensor *tensor, bool write)
{
    const rg_network_parameter *p = rg_names_find(&s->by_name, name);
    rg_tensor_desc desc, given;
    rg_tensor *own, *view;
    int32_t order[RG_MAX_RANK];
    RG_CHECK(p != NULL && rg_plan_parameter(s->starting, name, &own) == RG_OK, RG_INVALID_ARGUMENT,
             "the network has no parameter '%.80s'", name);
    describe(s, p, &desc);
    RG_TRY(rg_tensor_get_desc(tensor, &given));
    RG_CHECK(given.dtype == desc.dtype && rg_shape_same_dims(&given, &desc), RG_INVALID_ARGUMENT,
             "the tensor for '%.80s' must be %s and have the dimensions of the file", name,
             rg_dtype_name(desc.dtype));
    find_order(s, p, order);
    RG_TRY(rg_tensor_permute(own, order, &view));
    const rg_status status = write ? rg_session_copy(tensor, view) : rg_session_copy(view, tensor);
    rg_tensor_destroy(view);
    return status;
}

rg_status rg_session_read_parameter(rg_session *session, const char *name, rg_tensor *tensor)
{
    RG_CHECK_NOT_NULL(session);
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(tensor);
    return copy(session, name, tensor, false);
}

rg_status rg_session_write_parameter(rg_session *session, const char *name, rg_tensor *tensor)
{
    RG_CHECK_NOT_NULL(session);
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(tensor);
    return copy(session, name, tensor, true);
}

/* ---- properties ---- */

static const char prefix[] = "property ";

static rg_session_property *find(const rg_session *s, const char *name)
{
    for (size_t i = 0; i < s->property_count; i++) {
        if (strcmp(s->properties[i].key + sizeof prefix - 1, name) == 0)
            return &s->properties[i];
    }
    return NULL;
}

void rg_session_clear_properties(rg_session *s)
{
    for (size_t i = 0; i < s->property_count; i++) {
        free(s->properties[i].key);
        free(s->properties[i].text);
    }
    rg_release(allocator, s->properties, s->property_capacity * sizeof *s->properties);
    s->properties = NULL;
    s->property_count = s->property_capacity = 0;
}

static rg_status add(rg_session *s, const char *name, rg_session_property **property)
{
    char *key;
    const size_t bytes = sizeof prefix + strlen(name);
    RG_TRY(rg_grow(allocator, (void **)&s->properties, &s->property_capacity, s->property_count,
                   sizeof *s->properties));
    key = malloc(bytes);
    RG_CHECK(key != NULL, RG_OUT_OF_MEMORY, "out of memory for the name of a property");
    snprintf(key, bytes, "%s%s", prefix, name);
    *property = &s->properties[s->property_count++];
    **property = (rg_session_property){ key, NULL };
    return RG_OK;
}

rg_status rg_session_set_property(rg_session *session, const char *name, const char *text)
{
    rg_session_property *property;
    char *copied;
    RG_CHECK_NOT_NULL(session);
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(text);
    RG_CHECK(name[0] != 0, RG_INVALID_ARGUMENT, "rg_session_set_property: the name is empty");
    RG_TRY(rg_copy_text(text, &copied));
    property = find(session, name);
    const rg_status status = property == NULL ? add(session, name, &property) : RG_OK;
    if (status != RG_OK) {
        free(copied);
        return status;
    }
    free(property->text);
    property->text = copied;
    return RG_OK;
}

const char *rg_session_property_text(const rg_session *session, const char *name)
{
    const rg_session_property *property =
        session != NULL && name != NULL ? find(session, name) : NULL;
    return property != NULL ? property->text : NULL;
}

rg_status rg_session_read_properties(rg_session *s, const rg_safetensors *file)
{
    rg_session_clear_properties(s);
    for (size_t i = 0; i < rg_safetensors_metadata_count(file); i++) {
        const char *key = rg_safetensors_metadata_key(file, i);
        const size_t length = sizeof prefix - 1;
        if (strncmp(key, prefix, length) == 0 && key[length] != 0)
            RG_TRY(rg_session_set_property(s, key + length, rg_safetensors_metadata(file, key)));
    }
    return RG_OK;
}
