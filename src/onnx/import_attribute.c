/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Attributes of a node, by name and type. */
#include "onnx/import.h"

#include <string.h>

const rg_proto_attribute *rg_attribute_find(const rg_proto_node *node, const char *name)
{
    for (size_t i = 0; i < node->attribute_count; i++) {
        if (strcmp(node->attributes[i].name, name) == 0)
            return &node->attributes[i];
    }
    return NULL;
}

static rg_status expect(const rg_proto_attribute *attribute, rg_proto_attribute_type type,
                        const char *what)
{
    RG_CHECK(attribute->type == type, RG_MALFORMED, "attribute '%.80s' must be %s", attribute->name,
             what);
    return RG_OK;
}

rg_status rg_attribute_int(const rg_proto_node *node, const char *name, int64_t *value)
{
    const rg_proto_attribute *attribute = rg_attribute_find(node, name);
    if (attribute == NULL)
        return RG_OK;
    RG_TRY(expect(attribute, RG_PROTO_INT, "an integer"));
    *value = attribute->i;
    return RG_OK;
}

rg_status rg_attribute_bool(const rg_proto_node *node, const char *name, bool *value)
{
    int64_t number = *value;
    RG_TRY(rg_attribute_int(node, name, &number));
    RG_CHECK(number == 0 || number == 1, RG_MALFORMED, "attribute '%s' is %lld; it must be 0 or 1",
             name, (long long)number);
    *value = number == 1;
    return RG_OK;
}

rg_status rg_attribute_float(const rg_proto_node *node, const char *name, double *value)
{
    const rg_proto_attribute *attribute = rg_attribute_find(node, name);
    if (attribute == NULL)
        return RG_OK;
    RG_TRY(expect(attribute, RG_PROTO_FLOAT, "a number"));
    *value = (double)attribute->f;
    return RG_OK;
}

rg_status rg_attribute_text(const rg_proto_node *node, const char *name, const char **value)
{
    const rg_proto_attribute *attribute = rg_attribute_find(node, name);
    if (attribute == NULL)
        return RG_OK;
    RG_TRY(expect(attribute, RG_PROTO_STRING, "a text"));
    *value = attribute->s;
    return RG_OK;
}

rg_status rg_attribute_ints(const rg_proto_node *node, const char *name, int64_t values[],
                            int32_t most, int32_t *count)
{
    const rg_proto_attribute *attribute = rg_attribute_find(node, name);
    if (attribute == NULL)
        return RG_OK;
    RG_TRY(expect(attribute, RG_PROTO_INTS, "a list of integers"));
    RG_CHECK(attribute->count <= (size_t)most, RG_UNSUPPORTED,
             "attribute '%s' has %zu entries; at most %d are covered", name, attribute->count,
             most);
    *count = (int32_t)attribute->count;
    if (attribute->count > 0)
        memcpy(values, attribute->ints, attribute->count * sizeof values[0]);
    return RG_OK;
}

rg_status rg_axis(const char *name, int64_t axis, int32_t rank, int32_t *from_0)
{
    RG_CHECK(axis >= -rank && axis < rank, RG_MALFORMED,
             "%s is %lld, but the tensor has %d dimensions", name, (long long)axis, rank);
    *from_0 = (int32_t)(axis < 0 ? axis + rank : axis);
    return RG_OK;
}
