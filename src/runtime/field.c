/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fields: values to text, text to values, ranges. */
#include "runtime/field.h"
#include "core/number.h"
#include "core/private_api.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 64, VALUE_SIZE = 256 };

/* ---- one element ---- */

static size_t element_size(rg_field_type type)
{
    switch (type) {
    case RG_FIELD_BOOL:
        return sizeof(bool);
    case RG_FIELD_I32:
        return sizeof(int32_t);
    case RG_FIELD_ENUM:
        return sizeof(int);
    default:
        return 8;
    }
}

static void element_text(const rg_field *field, const char *at, char *text, size_t capacity)
{
    switch (field->type) {
    case RG_FIELD_BOOL:
        snprintf(text, capacity, "%s", *(const bool *)at ? "true" : "false");
        break;
    case RG_FIELD_I32:
        snprintf(text, capacity, "%" PRId32, *(const int32_t *)at);
        break;
    case RG_FIELD_I64:
        snprintf(text, capacity, "%" PRId64, *(const int64_t *)at);
        break;
    case RG_FIELD_F64:
        rg_number_text(*(const double *)at, text, capacity);
        break;
    case RG_FIELD_ENUM:
        snprintf(text, capacity, "%s", field->names[*(const int *)at]);
        break;
    case RG_FIELD_GROUP: /* opened by the caller */
        break;
    }
}

static int enum_count(const rg_field *field)
{
    int count = 0;
    while (field->names[count] != NULL)
        count++;
    return count;
}

/* The range of a field, in which whole numbers are spelled as such. */
static rg_status range_check(const rg_field *field, const char *who, const char *at, double value)
{
    char text[40];
    const bool real = field->type == RG_FIELD_F64;
    if ((field->low == 0 && field->high == 0) || (value >= field->low && value <= field->high))
        return RG_OK;
    element_text(field, at, text, sizeof text);
    return rg_fail(RG_INVALID_ARGUMENT,
                   real ? "%s: %s is %s; it must be between %.17g and %.17g"
                        : "%s: %s is %s; it must be between %.0f and %.0f",
                   who, field->name, text, field->low, field->high);
}

static rg_status element_check(const rg_field *field, const char *who, const char *at)
{
    double value = 0;
    switch (field->type) {
    case RG_FIELD_BOOL: {
        unsigned char byte; /* a bool from outside may hold any byte */
        memcpy(&byte, at, 1);
        RG_CHECK(byte <= 1, RG_INVALID_ARGUMENT, "%s: %s must be true or false", who, field->name);
        return RG_OK;
    }
    case RG_FIELD_ENUM: {
        const int number = *(const int *)at;
        RG_CHECK(number >= 0 && number < enum_count(field), RG_INVALID_ARGUMENT,
                 "%s: unknown %s %d", who, field->name, number);
        return RG_OK;
    }
    case RG_FIELD_I32:
        value = *(const int32_t *)at;
        break;
    case RG_FIELD_I64:
        value = (double)*(const int64_t *)at;
        break;
    case RG_FIELD_F64:
        value = *(const double *)at;
        RG_CHECK(!isnan(value), RG_INVALID_ARGUMENT, "%s: %s must not be NaN", who, field->name);
        break;
    case RG_FIELD_GROUP: /* opened by the caller */
        return RG_OK;
    }
    return range_check(field, who, at, value);
}

static rg_status element_set(const rg_field *field, const char *who, char *at, const char *text)
{
    char *end = NULL;
    errno = 0;
    switch (field->type) {
    case RG_FIELD_BOOL:
        RG_CHECK(strcmp(text, "true") == 0 || strcmp(text, "false") == 0, RG_INVALID_ARGUMENT,
                 "%s: %s must be true or false, not '%s'", who, field->name, text);
        *(bool *)at = text[0] == 't';
        return RG_OK;
    case RG_FIELD_ENUM:
        for (int i = 0; field->names[i] != NULL; i++) {
            if (strcmp(text, field->names[i]) == 0) {
                *(int *)at = i;
                return RG_OK;
            }
        }
        return rg_fail(RG_INVALID_ARGUMENT, "%s: unknown %s '%s'", who, field->name, text);
    case RG_FIELD_F64:
        RG_CHECK(rg_number_parse(text, (double *)(void *)at), RG_INVALID_ARGUMENT,
                 "%s: %s must be a number, not '%s'", who, field->name, text);
        return RG_OK;
    case RG_FIELD_I32:
    case RG_FIELD_I64: {
        const long long value = strtoll(text, &end, 10);
        RG_CHECK(end != text && *end == 0, RG_INVALID_ARGUMENT,
                 "%s: %s must be a whole number, not '%s'", who, field->name, text);
        RG_CHECK(errno == 0 && (field->type == RG_FIELD_I64 || value == (int32_t)value),
                 RG_INVALID_ARGUMENT, "%s: %s is too large: %s", who, field->name, text);
        if (field->type == RG_FIELD_I32)
            *(int32_t *)at = (int32_t)value;
        else
            *(int64_t *)at = value;
        return RG_OK;
    }
    case RG_FIELD_GROUP:
        break;
    }
    return rg_fail(RG_INVALID_ARGUMENT, "%s: %s is a group; set its fields instead", who,
                   field->name);
}

/* ---- one field ---- */

static int32_t used_length(const rg_field *field, const char *desc)
{
    if (field->length == 0)
        return 1;
    return field->count == 0 ? field->length : *(const int32_t *)(desc + field->count);
}

static bool is_absent(const rg_field *field, const char *desc)
{
    return field->present != 0 && !*(const bool *)(desc + field->present);
}

static void field_text(const rg_field *field, const char *desc, char *text, size_t capacity)
{
    if (is_absent(field, desc)) {
        snprintf(text, capacity, "none");
        return;
    }
    size_t used = 0;
    text[0] = 0;
    for (int32_t i = 0; i < used_length(field, desc) && used < capacity - 1; i++) {
        if (i > 0)
            text[used++] = ',';
        const char *at = desc + field->offset + (size_t)i * element_size(field->type);
        element_text(field, at, text + used, capacity - used);
        used += strlen(text + used);
    }
}

/* A group that is a descriptor, such as a neuron, begins with its size, which is no field. */
static rg_status group_size_check(const rg_field *group, const char *who, const char *at,
                                  const char *defaults)
{
    uint32_t size, known;
    memcpy(&size, at, sizeof size);
    memcpy(&known, defaults, sizeof known);
    RG_CHECK(group->fields->offset == 0 || size == known, RG_INVALID_ARGUMENT,
             "%s: %s.size is %u, not %u; initialize it with its _desc_default() function", who,
             group->name, size, known);
    return RG_OK;
}

static rg_status field_check(const rg_field *field, const char *who, const char *desc,
                             const char *defaults)
{
    if (field->type == RG_FIELD_GROUP) {
        desc += field->offset;
        defaults += field->offset;
        RG_TRY(group_size_check(field, who, desc, defaults));
        for (const rg_field *inner = field->fields; inner->name != NULL; inner++)
            RG_TRY(field_check(inner, who, desc, defaults));
        return RG_OK;
    }
    if (is_absent(field, desc))
        return RG_OK;
    const int32_t length = used_length(field, desc);
    RG_CHECK(field->length == 0 || (length >= 0 && length <= field->length), RG_INVALID_ARGUMENT,
             "%s: %s has %d values; at most %d are allowed", who, field->name, length,
             field->length);
    for (int32_t i = 0; i < length; i++)
        RG_TRY(element_check(field, who,
                             desc + field->offset + (size_t)i * element_size(field->type)));
    return RG_OK;
}

static rg_status field_set(const rg_field *field, const char *who, char *desc, const char *text)
{
    if (field->present != 0) {
        *(bool *)(desc + field->present) = strcmp(text, "none") != 0;
        if (strcmp(text, "none") == 0)
            return RG_OK;
    }
    if (field->length == 0)
        return element_set(field, who, desc + field->offset, text);
    int32_t filled = 0;
    while (*text != 0) {
        char value[NAME_SIZE];
        const size_t length = strcspn(text, ",");
        RG_CHECK(filled < field->length, RG_INVALID_ARGUMENT,
                 "%s: %s has too many values; at most %d are allowed", who, field->name,
                 field->length);
        RG_CHECK(length < sizeof value, RG_INVALID_ARGUMENT, "%s: value %d of %s is too long", who,
                 filled, field->name);
        memcpy(value, text, length);
        value[length] = 0;
        RG_TRY(element_set(
            field, who, desc + field->offset + (size_t)filled * element_size(field->type), value));
        filled++;
        text += length + (text[length] == ',');
    }
    RG_CHECK(field->count != 0 || filled == field->length, RG_INVALID_ARGUMENT,
             "%s: %s needs %d values, not %d", who, field->name, field->length, filled);
    if (field->count != 0)
        *(int32_t *)(desc + field->count) = filled;
    return RG_OK;
}

/* ---- the whole descriptor ---- */

rg_status rg_fields_copy(const rg_fields *fields, const char *who, const void *from, void *to)
{
    uint32_t size;
    memcpy(&size, from, sizeof size);
    RG_CHECK(
        size > sizeof size, RG_INVALID_ARGUMENT,
        "%s: the size of the descriptor is %u; initialize it with its _desc_default() function",
        who, size);
    RG_CHECK(
        size <= fields->size, RG_UNSUPPORTED,
        "%s: the descriptor has %u bytes and comes from a newer version; this version supports %zu",
        who, size, fields->size);
    memcpy(to, fields->defaults, fields->size);
    memcpy(to, from, size);
    memcpy(to, fields->defaults, sizeof size);
    for (const rg_field *field = fields->fields; field->name != NULL; field++)
        RG_TRY(field_check(field, who, to, fields->defaults));
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_fields_set(const rg_fields *fields, const char *who, void *desc,
                                       const char *name, const char *value)
{
    const rg_field *field = fields->fields;
    char *base = desc;
    for (;;) {
        const size_t length = strcspn(name, ".");
        while (field->name != NULL &&
               !(strlen(field->name) == length && memcmp(field->name, name, length) == 0))
            field++;
        RG_CHECK(field->name != NULL, RG_INVALID_ARGUMENT, "%s has no field '%s'", who, name);
        if (name[length] == 0 || field->type != RG_FIELD_GROUP)
            break;
        name += length + 1;
        base += field->offset;
        field = field->fields;
    }
    RG_CHECK(strchr(name, '.') == NULL, RG_INVALID_ARGUMENT, "%s has no field '%s'", who, name);
    return field_set(field, who, base, value);
}

rg_status rg_fields_parse(const rg_fields *fields, const char *who, void *desc, const char *text)
{
    while (*text != 0) {
        char pair[NAME_SIZE + VALUE_SIZE];
        const size_t length = strcspn(text, " ");
        RG_CHECK(length < sizeof pair, RG_INVALID_ARGUMENT, "%s: a field name or value is too long",
                 who);
        memcpy(pair, text, length);
        pair[length] = 0;
        char *value = strchr(pair, '=');
        RG_CHECK(value != NULL, RG_INVALID_ARGUMENT, "%s: '%s' is not of the form name=value", who,
                 pair);
        *value++ = 0;
        RG_TRY(rg_fields_set(fields, who, desc, pair, value));
        text += length + strspn(text + length, " ");
    }
    return RG_OK;
}

static void each(const rg_field *field, const char *prefix, const char *desc, rg_field_visit *visit,
                 void *context)
{
    for (; field->name != NULL; field++) {
        char name[NAME_SIZE], value[VALUE_SIZE];
        snprintf(name, sizeof name, "%s%s", prefix, field->name);
        if (field->type == RG_FIELD_GROUP) {
            strncat(name, ".", sizeof name - strlen(name) - 1);
            each(field->fields, name, desc + field->offset, visit, context);
        } else {
            field_text(field, desc, value, sizeof value);
            visit(context, name, field, value);
        }
    }
}

void rg_fields_each(const rg_fields *fields, const void *desc, rg_field_visit *visit, void *context)
{
    each(fields->fields, "", desc, visit, context);
}

typedef struct printer {
    char *text;
    size_t capacity, length;
} printer;

static void print_field(void *context, const char *name, const rg_field *field, const char *value)
{
    (void)field;
    printer *p = context;
    const bool fits = p->length < p->capacity;
    const int added =
        snprintf(fits ? p->text + p->length : NULL, fits ? p->capacity - p->length : 0, "%s%s=%s",
                 p->length > 0 ? " " : "", name, value);
    p->length += (size_t)added;
}

RG_PRIVATE_API size_t rg_fields_text(const rg_fields *fields, const void *desc, char *text,
                                     size_t capacity)
{
    printer p = { text, capacity, 0 };
    if (capacity > 0)
        text[0] = 0;
    rg_fields_each(fields, desc, print_field, &p);
    return p.length;
}

static bool field_equal(const rg_field *field, const char *a, const char *b)
{
    if (field->type == RG_FIELD_GROUP) {
        bool equal = true;
        for (const rg_field *inner = field->fields; equal && inner->name != NULL; inner++)
            equal = field_equal(inner, a + field->offset, b + field->offset);
        return equal;
    }
    if (is_absent(field, a) || is_absent(field, b))
        return is_absent(field, a) == is_absent(field, b);
    const int32_t length = used_length(field, a);
    const size_t bytes = (size_t)length * element_size(field->type);
    return length == used_length(field, b) &&
           memcmp(a + field->offset, b + field->offset, bytes) == 0;
}

bool rg_fields_equal(const rg_fields *fields, const void *a, const void *b)
{
    bool equal = true;
    for (const rg_field *field = fields->fields; equal && field->name != NULL; field++)
        equal = field_equal(field, a, b);
    return equal;
}
