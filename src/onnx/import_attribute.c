/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Attributes of a node, by name and type. */
#include "onnx/import.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
    *value = rg_meant_number(attribute->f);
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

/* ---- numbers ---- */

/* A decimal fraction of at most this many digits. */
static bool is_short(float number, int most, double *meant)
{
    char text[32];
    for (int digits = 0; digits < most; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, (double)number);
        *meant = strtod(text, NULL);
        if ((float)*meant == number)
            return true;
    }
    return false;
}

static double meant_number(float number, int digits)
{
    enum { MOST_DIVISOR = 64, MOST_SQUARE = 4096, MOST_FOURTH = 512 };
    const double x = fabs((double)number);
    double meant = x;
    if (!isfinite(number) || number == 0 || is_short(number, digits, &meant))
        return isfinite(number) && number != 0 ? meant : (double)number;
    for (int q = 1; q <= MOST_DIVISOR; q++) {
        meant = round(x * q) / q;
        if (x < MOST_DIVISOR && meant > 0 && (float)meant == (float)x)
            return copysign(meant, (double)number);
    }
    for (int n = 2; n <= MOST_SQUARE; n++) {
        meant = x > 1 ? sqrt(n) : 1 / sqrt(n);
        if ((float)meant == (float)x)
            return copysign(meant, (double)number);
    }
    for (int n = 2; n <= MOST_FOURTH; n++) { /* of attention, which scales both of its factors */
        meant = x > 1 ? sqrt(sqrt(n)) : 1 / sqrt(sqrt(n));
        if ((float)meant == (float)x)
            return copysign(meant, (double)number);
    }
    static const double others[] = { 0.79788456080286535588, 0.044715, /* of Gelu: sqrt(2 / pi) */
                                     1.6732632423543772848, 1.0507009873554804934 }; /* of Selu */
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if ((float)others[i] == number)
            return others[i];
    }
    return (double)number;
}

double rg_meant_number(float number)
{
    return meant_number(number, 6);
}

double rg_meant_constant(float number)
{
    return meant_number(number, 4);
}
