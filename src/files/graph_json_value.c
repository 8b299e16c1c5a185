/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What graphs from JSON are read with: strings, numbers, lists, and values of the graph. */
#include "files/graph_json.h"

#include "core/number.h"
#include "files/kernel_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

rg_quoted rg_graph_quote(const char *text)
{
    rg_quoted q;
    rg_text to;
    rg_text_begin(&to, q.text, sizeof q.text);
    rg_text_add_string(&to, text);
    return q;
}

rg_status rg_graph_refuse(const rg_graph_reader *r, const rg_json_value *at, rg_status status)
{
    if (status == RG_OK || status == RG_OUT_OF_MEMORY)
        return status;
    return rg_json_fail(r->json, at->at, "%s", rg_error_text());
}

rg_status rg_graph_check_keys(const rg_graph_reader *r, const rg_json_value *object,
                              const char *what, const char *const keys[])
{
    if (object->type != RG_JSON_OBJECT)
        return rg_json_fail(r->json, object->at, "%s must be an object", what);
    for (const rg_json_value *v = object->first; v != NULL; v = v->next) {
        int i = 0;
        while (keys[i] != NULL && strcmp(keys[i], v->key) != 0)
            i++;
        if (keys[i] == NULL)
            return rg_json_fail(r->json, v->at, "%s has no %s", what, rg_graph_quote(v->key).text);
    }
    return RG_OK;
}

rg_status rg_graph_read_string(const rg_graph_reader *r, const rg_json_value *object,
                               const char *key, const char **text)
{
    const rg_json_value *v = rg_json_find(object, key);
    if (v == NULL || v->type != RG_JSON_STRING)
        return rg_json_fail(r->json, v != NULL ? v->at : object->at, "expected \"%s\", a string",
                            key);
    *text = v->text;
    return RG_OK;
}

rg_status rg_graph_read_int(const rg_graph_reader *r, const rg_json_value *v, int64_t *number)
{
    char *end = NULL;
    errno = 0;
    if (v->type == RG_JSON_NUMBER && strpbrk(v->text, ".eE") == NULL)
        *number = strtoll(v->text, &end, 10);
    if (end == NULL || *end != 0 || errno != 0)
        return rg_json_fail(r->json, v->at, "expected a whole number");
    return RG_OK;
}

rg_status rg_graph_read_list(const rg_graph_reader *r, const rg_json_value *object, const char *key,
                             const rg_json_value **first)
{
    const rg_json_value *v = rg_json_find(object, key);
    *first = NULL;
    if (v == NULL)
        return RG_OK;
    if (v->type != RG_JSON_ARRAY)
        return rg_json_fail(r->json, v->at, "\"%s\" must be an array", key);
    *first = v->first;
    return RG_OK;
}

/* ---- values ---- */

rg_status rg_graph_read_node_name(const rg_graph_reader *r, const rg_json_value *v, rg_node **node)
{
    *node = v->type == RG_JSON_STRING ? rg_graph_find_node(r->graph, v->text) : NULL;
    if (v->type != RG_JSON_STRING)
        return rg_json_fail(r->json, v->at, "expected the label of a node");
    if (*node == NULL)
        return rg_json_fail(r->json, v->at, "no earlier node is called %s",
                            rg_graph_quote(v->text).text);
    return RG_OK;
}

static rg_status read_output(const rg_graph_reader *r, const rg_json_value *v, rg_value **value)
{
    rg_node *node = NULL;
    int64_t index = 0;
    if (v->count != 2)
        return rg_json_fail(r->json, v->at, "an output must be [\"label\", number]");
    RG_TRY(rg_graph_read_node_name(r, v->first, &node));
    RG_TRY(rg_graph_read_int(r, v->first->next, &index));
    *value = index >= 0 && index < node->outputs ? node->out[index] : NULL;
    if (*value == NULL)
        return rg_json_fail(r->json, v->at, "%s has no output %lld",
                            rg_graph_quote(node->label).text, (long long)index);
    return RG_OK;
}

static rg_status read_number(const rg_graph_reader *r, const rg_json_value *v, double *number)
{
    const bool nan = v != NULL && v->type == RG_JSON_STRING && strcmp(v->text, "nan") == 0;
    const bool infinite = v != NULL && v->type == RG_JSON_STRING &&
                          (strcmp(v->text, "inf") == 0 || strcmp(v->text, "-inf") == 0);
    if (nan)
        *number = NAN;
    else if (infinite)
        *number = v->text[0] == '-' ? -INFINITY : INFINITY;
    else if (v == NULL || v->type != RG_JSON_NUMBER || !rg_number_parse(v->text, number))
        return rg_json_fail(r->json, v != NULL ? v->at : 0, "a constant must be a number");
    return RG_OK;
}

static rg_status read_constant(const rg_graph_reader *r, const rg_json_value *v, rg_value **value)
{
    static const char *const keys[] = { "constant", "like", NULL };
    const rg_json_value *like = rg_json_find(v, "like");
    double number = 0;
    rg_value *of = NULL;
    RG_TRY(rg_graph_check_keys(r, v, "a constant", keys));
    RG_TRY(read_number(r, rg_json_find(v, "constant"), &number));
    if (like == NULL)
        return rg_json_fail(r->json, v->at, "a constant needs \"like\" with a value");
    RG_TRY(rg_graph_read_value(r, like, &of)); /* no deeper than the text */
    *value = rg_graph_constant(r->graph, of, number);
    return rg_graph_refuse(r, v, rg_graph_status(r->graph));
}

rg_status rg_graph_read_value(const rg_graph_reader *r, const rg_json_value *v, rg_value **value)
{
    if (v->type == RG_JSON_ARRAY)
        return read_output(r, v, value);
    if (v->type == RG_JSON_OBJECT)
        return read_constant(r, v, value);
    if (v->type != RG_JSON_STRING)
        return rg_json_fail(r->json, v->at,
                            "expected a value: \"name\", [\"label\", number] or "
                            "{\"constant\": number, \"like\": value}");
    *value = rg_graph_find_value(r->graph, v->text);
    if (*value == NULL)
        return rg_json_fail(r->json, v->at, "unknown source or parameter %s",
                            rg_graph_quote(v->text).text);
    return RG_OK;
}

rg_status rg_graph_read_values(const rg_graph_reader *r, const rg_json_value *list, const char *key,
                               rg_value *values[], int32_t *count)
{
    if (list->type != RG_JSON_ARRAY || list->count > RG_MAX_INPUTS)
        return rg_json_fail(r->json, list->at, "\"%s\" must be an array of at most %d values", key,
                            RG_MAX_INPUTS);
    *count = 0;
    for (const rg_json_value *v = list->first; v != NULL; v = v->next, (*count)++) {
        values[*count] = NULL;
        if (v->type != RG_JSON_NULL)
            RG_TRY(rg_graph_read_value(r, v, &values[*count]));
    }
    return RG_OK;
}
