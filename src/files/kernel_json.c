/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Kernels as JSON: all follows from the op's description. */
#include "files/kernel_json.h"
#include "files/whole_file.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/files.h>

#include <stdio.h>
#include <string.h>

/* Longer texts are no kernels. */
enum { FILE_LIMIT = 1 << 20 };

/* The full name of a field; the text of one value, and of an array. */
enum { NAME_SIZE = 128, ELEMENT_SIZE = 64, VALUE_SIZE = 1024 };

/* ---- writing a descriptor ---- */

typedef struct writer {
    rg_text *to;
    char open[NAME_SIZE]; /* the groups that are open, "a.b." */
    bool first;           /* the innermost object is still empty */
} writer;

static void begin_member(writer *w, const char *name, size_t length)
{
    char key[NAME_SIZE];
    snprintf(key, sizeof key, "%.*s", (int)length, name);
    rg_text_add(w->to, w->first ? "" : ", ");
    rg_text_add_string(w->to, key);
    rg_text_add(w->to, ": ");
    w->first = false;
}

/* Closes the innermost open group. */
static void close_group(writer *w)
{
    w->open[strlen(w->open) - 1] = 0;
    char *dot = strrchr(w->open, '.');
    *(dot != NULL ? dot + 1 : w->open) = 0;
    rg_text_add(w->to, "}");
    w->first = false;
}

/* Closes and opens groups until those of `name` are open; returns the last part of the name. */
static const char *enter_groups(writer *w, const char *name)
{
    while (strncmp(name, w->open, strlen(w->open)) != 0)
        close_group(w);
    name += strlen(w->open);
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(name, '.')) {
        begin_member(w, name, (size_t)(dot - name));
        rg_text_add(w->to, "{");
        w->first = true;
        strncat(w->open, name, (size_t)(dot - name) + 1);
        name = dot + 1;
    }
    return name;
}

static void write_element(rg_text *to, const rg_field *field, const char *value)
{
    if (field->type == RG_FIELD_ENUM || strstr(value, "inf") != NULL)
        rg_text_add_string(to, value);
    else
        rg_text_add(to, value);
}

static void write_field(void *context, const char *name, const rg_field *field, const char *value)
{
    writer *w = context;
    const char *key = enter_groups(w, name);
    begin_member(w, key, strlen(key));
    if (field->present != 0 && strcmp(value, "none") == 0) {
        rg_text_add(w->to, "null");
        return;
    }
    if (field->length == 0) {
        write_element(w->to, field, value);
        return;
    }
    rg_text_add(w->to, "[");
    while (*value != 0) {
        char element[ELEMENT_SIZE];
        const size_t length = strcspn(value, ",");
        snprintf(element, sizeof element, "%.*s", (int)length, value);
        write_element(w->to, field, element);
        value += length + (value[length] == ',');
        rg_text_add(w->to, *value != 0 ? ", " : "");
    }
    rg_text_add(w->to, "]");
}

void rg_fields_to_json(const rg_fields *fields, const void *desc, rg_text *to)
{
    writer w = { .to = to, .first = true };
    rg_text_add(to, "{");
    rg_fields_each(fields, desc, write_field, &w);
    while (w.open[0] != 0)
        close_group(&w);
    rg_text_add(to, "}");
}

/* ---- reading a descriptor ---- */

typedef struct reader {
    const rg_fields *fields;
    const char *who;
    const rg_json *json;
    void *desc;
} reader;

static const char *kind_of(const rg_field *field)
{
    switch (field->type) {
    case RG_FIELD_BOOL:
        return "true or false";
    case RG_FIELD_I32:
    case RG_FIELD_I64:
        return "a whole number";
    case RG_FIELD_F64:
        return "a number";
    case RG_FIELD_ENUM:
        return "one of its names";
    default:
        return "an object";
    }
}

/* Whether a value that is no array or object may stand for an element of the field. */
static bool element_fits(const rg_field *field, const rg_json_value *value)
{
    switch (field->type) {
    case RG_FIELD_BOOL:
        return value->type == RG_JSON_TRUE || value->type == RG_JSON_FALSE;
    case RG_FIELD_I32:
    case RG_FIELD_I64:
        return value->type == RG_JSON_NUMBER && strpbrk(value->text, ".eE") == NULL;
    case RG_FIELD_F64:
        return value->type == RG_JSON_NUMBER ||
               (value->type == RG_JSON_STRING &&
                (strcmp(value->text, "inf") == 0 || strcmp(value->text, "-inf") == 0));
    case RG_FIELD_ENUM:
        for (int i = 0; value->type == RG_JSON_STRING && field->names[i] != NULL; i++) {
            if (strcmp(value->text, field->names[i]) == 0)
                return true;
        }
        return false;
    default:
        return false;
    }
}

static rg_status add_element(const reader *r, const rg_field *field, const char *name,
                             const rg_json_value *value, rg_text *to)
{
    if (!element_fits(field, value))
        return rg_json_fail(r->json, value->at, "%s: %s must be %s%s", r->who, name, kind_of(field),
                            field->present != 0 ? ", or null" : "");
    if (value->text != NULL && strlen(value->text) >= ELEMENT_SIZE)
        return rg_json_fail(r->json, value->at, "%s: %s is longer than %d characters", r->who, name,
                            ELEMENT_SIZE - 1);
    rg_text_add(to, value->text != NULL ? value->text
                                        : (value->type == RG_JSON_TRUE ? "true" : "false"));
    return RG_OK;
}

static rg_status read_field(const reader *r, const rg_field *field, const char *name,
                            const rg_json_value *value)
{
    char buffer[VALUE_SIZE];
    rg_text text;
    rg_text_begin(&text, buffer, sizeof buffer);
    if (value->type == RG_JSON_NULL && field->present != 0) {
        rg_text_add(&text, "none");
    } else if (field->length == 0) {
        RG_TRY(add_element(r, field, name, value, &text));
    } else {
        if (value->type != RG_JSON_ARRAY)
            return rg_json_fail(r->json, value->at, "%s: %s must be an array%s", r->who, name,
                                field->present != 0 ? ", or null" : "");
        if (value->count > (size_t)field->length)
            return rg_json_fail(r->json, value->at, "%s: %s has at most %d values, not %zu", r->who,
                                name, field->length, value->count);
        for (const rg_json_value *v = value->first; v != NULL; v = v->next) {
            rg_text_add(&text, v != value->first ? "," : "");
            RG_TRY(add_element(r, field, name, v, &text));
        }
    }
    if (text.length >= sizeof buffer)
        return rg_json_fail(r->json, value->at, "%s: %s is too long", r->who, name);
    const rg_status status = rg_fields_set(r->fields, r->who, r->desc, name, buffer);
    return status == RG_OK ? RG_OK : rg_json_fail(r->json, value->at, "%s", rg_error_text());
}

/* `prefix` is "" or "group."; groups are nested no deeper than the tables of fields. */
static rg_status read_fields(const reader *r, const rg_field *table, const char *prefix,
                             const rg_json_value *object)
{
    if (object->type != RG_JSON_OBJECT)
        return rg_json_fail(r->json, object->at, "%s: expected an object of fields", r->who);
    for (const rg_json_value *v = object->first; v != NULL; v = v->next) {
        char name[NAME_SIZE];
        rg_text full;
        rg_text_begin(&full, name, sizeof name);
        const rg_field *field = table;
        while (field->name != NULL && strcmp(field->name, v->key) != 0)
            field++;
        if (field->name == NULL) {
            rg_text_add_string(&full, v->key);
            return rg_json_fail(r->json, v->at, "%s has no field %s", r->who, name);
        }
        rg_text_add(&full, prefix);
        rg_text_add(&full, field->name);
        if (field->type == RG_FIELD_GROUP) {
            rg_text_add(&full, ".");
            RG_TRY(read_fields(r, field->fields, name, v));
        } else {
            RG_TRY(read_field(r, field, name, v));
        }
    }
    return RG_OK;
}

rg_status rg_fields_from_json(const rg_fields *fields, const char *who, const rg_json *json,
                              const rg_json_value *object, void *desc)
{
    const reader r = { fields, who, json, desc };
    return read_fields(&r, fields->fields, "", object);
}

/* ---- kernels ---- */

size_t rg_kernel_to_json(const rg_kernel *kernel, char *text, size_t capacity)
{
    rg_text to;
    rg_text_begin(&to, text, capacity);
    if (kernel == NULL)
        return 0;
    rg_text_add(&to, "{\"retrograde\": 1, \"op\": ");
    rg_text_add_string(&to, kernel->op->name);
    rg_text_add(&to, ", \"label\": ");
    rg_text_add_string(&to, rg_kernel_label(kernel));
    rg_text_add(&to, ", \"desc\": ");
    rg_fields_to_json(&kernel->op->desc, kernel->desc, &to);
    rg_text_add(&to, "}");
    return to.length;
}

/* Checks all but the descriptor, and finds the op. */
static rg_status read_frame(const rg_json *json, const rg_op **op)
{
    static const char *const keys[] = { "retrograde", "op", "label", "desc" };
    const rg_json_value *root = json->root;
    if (root->type != RG_JSON_OBJECT)
        return rg_json_fail(json, root->at, "a kernel must be an object");
    size_t known = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        known += rg_json_find(root, keys[i]) != NULL;
    if (known < root->count)
        return rg_json_fail(json, root->at,
                            "a kernel can have only the keys retrograde, op, label and desc");
    const rg_json_value *version = rg_json_find(root, "retrograde");
    if (version == NULL || version->type != RG_JSON_NUMBER || strcmp(version->text, "1") != 0)
        return rg_json_fail(json, version != NULL ? version->at : root->at,
                            "expected \"retrograde\": 1, the version of the format");
    const rg_json_value *label = rg_json_find(root, "label");
    if (label != NULL && label->type != RG_JSON_STRING)
        return rg_json_fail(json, label->at, "the label must be a string");
    const rg_json_value *name = rg_json_find(root, "op");
    if (name == NULL || name->type != RG_JSON_STRING)
        return rg_json_fail(json, name != NULL ? name->at : root->at,
                            "expected \"op\" with the name of an op");
    const rg_op_name *other;
    if (rg_op_find(name->text, op, &other) != RG_OK || other != NULL) {
        char quoted[ELEMENT_SIZE];
        rg_text text;
        rg_text_begin(&text, quoted, sizeof quoted);
        rg_text_add_string(&text, name->text);
        return rg_json_fail(json, name->at, "unknown op %s", quoted);
    }
    return RG_OK;
}

static rg_status make_kernel(rg_device *device, const rg_json *json, rg_kernel **kernel)
{
    const rg_op *op;
    RG_TRY(read_frame(json, &op));
    const rg_json_value *fields = rg_json_find(json->root, "desc");
    const rg_json_value *label = rg_json_find(json->root, "label");
    _Alignas(16) char desc[RG_MAX_DESC];
    memcpy(desc, op->desc.defaults, op->desc.size);
    if (fields != NULL)
        RG_TRY(rg_fields_from_json(&op->desc, op->name, json, fields, desc));
    rg_kernel *made;
    rg_status status = rg_kernel_create(device, op, desc, &made);
    if (status == RG_INVALID_ARGUMENT)
        return rg_json_fail(json, (fields != NULL ? fields : json->root)->at, "%s",
                            rg_error_text());
    RG_TRY(status);
    status = label != NULL ? rg_kernel_set_label(made, label->text) : RG_OK;
    if (status != RG_OK) {
        rg_kernel_destroy(made);
        return status;
    }
    *kernel = made;
    return RG_OK;
}

/* `from` begins the sentence. */
static rg_status read_kernel(rg_device *device, const char *from, const char *text, size_t length,
                             rg_kernel **kernel)
{
    rg_json json;
    rg_status status = rg_json_read(&json, &device->allocator, text, length);
    if (status == RG_OK) {
        status = make_kernel(device, &json, kernel);
        rg_json_clear(&json);
    }
    if (status != RG_OK)
        rg_error_prefix("%s: ", from);
    return status;
}

rg_status rg_kernel_from_json(rg_device *device, const char *text, size_t length,
                              rg_kernel **kernel)
{
    RG_CHECK_NOT_NULL(kernel);
    *kernel = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(text);
    RG_CHECK(length <= FILE_LIMIT, RG_MALFORMED,
             "rg_kernel_from_json: the text has %zu bytes; at most %d are supported", length,
             FILE_LIMIT);
    return read_kernel(device, "rg_kernel_from_json", text, length, kernel);
}

rg_status rg_kernel_save(const rg_kernel *kernel, const char *path)
{
    RG_CHECK_NOT_NULL(kernel);
    RG_CHECK_NOT_NULL(path);
    const size_t length = rg_kernel_to_json(kernel, NULL, 0);
    RG_CHECK(length < FILE_LIMIT, RG_INVALID_ARGUMENT,
             "rg_kernel_save: the kernel with its label has %zu bytes, more than can be loaded",
             length);
    void *memory;
    RG_TRY(rg_allocate(&kernel->device->allocator, length + 1, &memory));
    char *text = memory;
    rg_kernel_to_json(kernel, text, length + 1);
    text[length] = '\n'; /* in place of the 0 byte */
    const rg_status status = rg_file_write(path, text, length + 1);
    rg_release(&kernel->device->allocator, memory, length + 1);
    return status;
}

rg_status rg_kernel_load(rg_device *device, const char *path, rg_kernel **kernel)
{
    RG_CHECK_NOT_NULL(kernel);
    *kernel = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(path);
    rg_bytes bytes;
    RG_TRY(rg_file_read(&device->allocator, path, FILE_LIMIT, &bytes));
    const rg_status status = read_kernel(device, path, bytes.data, bytes.size, kernel);
    rg_bytes_release(&device->allocator, &bytes);
    return status;
}
