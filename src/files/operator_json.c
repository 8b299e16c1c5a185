/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Operators of ONNX and MPS as JSON: a name and attributes.
 *
 *      {"retrograde": 1, "operator": "MaxPool", "attributes": {"kernel_shape": [2, 2]}} */
#include "core/private_api.h"
#include "files/json.h"
#include "operators/operator.h"
#include "runtime/objects.h"

#include <retrograde/files.h>

#include <stdio.h>

enum { FILE_LIMIT = 1 << 20, VALUE_SIZE = 512 };

typedef struct values {
    rg_attribute attributes[RG_OPERATOR_ATTRIBUTES];
    char text[RG_OPERATOR_ATTRIBUTES][VALUE_SIZE];
    int32_t count;
} values;

/* ---- reading ---- */

/* A number, a string or a truth value as text. */
static rg_status add_value(const rg_json *json, const rg_json_value *value, char text[VALUE_SIZE])
{
    const bool is_bool = value->type == RG_JSON_TRUE || value->type == RG_JSON_FALSE;
    if (!is_bool && value->type != RG_JSON_NUMBER && value->type != RG_JSON_STRING)
        return rg_json_fail(json, value->at,
                            "an attribute must be a number, a string, or an array of numbers");
    const char *word = !is_bool ? value->text : value->type == RG_JSON_TRUE ? "1" : "0";
    const size_t used = strlen(text), length = strlen(word);
    if (used + length + 2 > VALUE_SIZE)
        return rg_json_fail(json, value->at, "the attribute is too long");
    snprintf(text + used, VALUE_SIZE - used, "%s%s", used > 0 ? "," : "", word);
    return RG_OK;
}

static rg_status read_attributes(const rg_json *json, const rg_json_value *object, values *v)
{
    v->count = 0;
    if (object == NULL)
        return RG_OK;
    if (object->type != RG_JSON_OBJECT || object->count > RG_OPERATOR_ATTRIBUTES)
        return rg_json_fail(json, object->at,
                            "attributes must be an object with at most %d members",
                            RG_OPERATOR_ATTRIBUTES);
    for (const rg_json_value *member = object->first; member != NULL; member = member->next) {
        char *text = v->text[v->count];
        text[0] = 0;
        if (member->type != RG_JSON_ARRAY)
            RG_TRY(add_value(json, member, text));
        for (const rg_json_value *e = member->type == RG_JSON_ARRAY ? member->first : NULL;
             e != NULL; e = e->next)
            RG_TRY(add_value(json, e, text));
        v->attributes[v->count++] = (rg_attribute){ .name = member->key, .text = text };
    }
    return RG_OK;
}

static rg_status make(rg_device *device, const rg_json *json, values *v, rg_operator **made)
{
    const rg_json_value *root = json->root;
    if (root->type != RG_JSON_OBJECT)
        return rg_json_fail(json, root->at, "an operator must be an object");
    const rg_json_value *version = rg_json_find(root, "retrograde");
    const rg_json_value *name = rg_json_find(root, "operator");
    const rg_json_value *attributes = rg_json_find(root, "attributes");
    const int32_t known = (version != NULL) + (name != NULL) + (attributes != NULL);
    if ((size_t)known < root->count)
        return rg_json_fail(json, root->at,
                            "an operator can have only the keys retrograde, operator and "
                            "attributes");
    if (version == NULL || version->type != RG_JSON_NUMBER || strcmp(version->text, "1") != 0)
        return rg_json_fail(json, version != NULL ? version->at : root->at,
                            "expected \"retrograde\": 1, the version of the format");
    if (name == NULL || name->type != RG_JSON_STRING)
        return rg_json_fail(json, name != NULL ? name->at : root->at,
                            "expected \"operator\" with a name of ONNX or MPS");
    RG_TRY(read_attributes(json, attributes, v));
    const rg_status status = rg_operator_create(device, name->text, v->attributes, v->count, made);
    if (status == RG_INVALID_ARGUMENT)
        return rg_json_fail(json, name->at, "%s", rg_error_text());
    return status;
}

rg_status rg_operator_from_json(rg_device *device, const char *text, size_t length,
                                rg_operator **made)
{
    RG_CHECK_NOT_NULL(made);
    *made = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(text);
    RG_CHECK(length <= FILE_LIMIT, RG_MALFORMED,
             "rg_operator_from_json: the text has %zu bytes; at most %d are supported", length,
             FILE_LIMIT);
    rg_json json;
    void *memory;
    RG_TRY(rg_allocate(&device->allocator, sizeof(values), &memory));
    rg_status status = rg_json_read(&json, &device->allocator, text, length);
    if (status == RG_OK) {
        status = make(device, &json, memory, made);
        rg_json_clear(&json);
    }
    rg_release(&device->allocator, memory, sizeof(values));
    if (status != RG_OK)
        rg_error_prefix("rg_operator_from_json: ");
    return status;
}

/* ---- writing ---- */

static void write_numbers(rg_text *to, const rg_attribute *a)
{
    rg_text_add(to, "[");
    for (int32_t i = 0; i < a->count; i++) {
        char number[40];
        if (a->ints != NULL)
            snprintf(number, sizeof number, "%s%lld", i > 0 ? ", " : "", (long long)a->ints[i]);
        else
            snprintf(number, sizeof number, "%s%.17g", i > 0 ? ", " : "", a->floats[i]);
        rg_text_add(to, number);
    }
    rg_text_add(to, "]");
}

size_t rg_operator_to_json(const rg_operator *op, char *text, size_t capacity)
{
    rg_text to;
    rg_text_begin(&to, text, capacity);
    if (op == NULL)
        return 0;
    rg_text_add(&to, "{\"retrograde\": 1, \"operator\": ");
    rg_text_add_string(&to, op->name);
    rg_text_add(&to, ", \"attributes\": {");
    for (int32_t i = 0; i < op->attribute_count; i++) {
        const rg_attribute *a = &op->attributes[i];
        rg_text_add(&to, i > 0 ? ", " : "");
        rg_text_add_string(&to, a->name);
        rg_text_add(&to, ": ");
        if (a->text != NULL)
            rg_text_add_string(&to, a->text);
        else
            write_numbers(&to, a);
    }
    rg_text_add(&to, "}}");
    return to.length;
}
