/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Attributes of ONNX's operators: types and defaults from the table, values from text or numbers.
 */
#include "core/number.h"
#include "operators/onnx_node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* ---- the table's text ---- */

/* Copies up to `length` bytes of a word. */
static void copy_word(char *to, size_t capacity, const char *from, size_t length)
{
    snprintf(to, capacity, "%.*s", (int)length, from);
}

bool rg_onnx_next_spec(const char **at, rg_onnx_spec *spec)
{
    const char *word = *at + strspn(*at, " ");
    const size_t size = strcspn(word, " ");
    *at = word + size;
    if (size == 0)
        return false;
    *spec = (rg_onnx_spec){ 0 };
    const size_t name = strcspn(word, ":"), type = strcspn(word + name + 1, "=!| ");
    copy_word(spec->name, sizeof spec->name, word, name);
    copy_word(spec->type, sizeof spec->type, word + name + 1, type);
    const char *rest = word + name + 1 + type;
    spec->required = *rest == '!';
    spec->shown = *rest == '!' || *rest == '|';
    if (*rest == '=')
        copy_word(spec->value, sizeof spec->value, rest + 1, (size_t)(word + size - rest) - 1);
    return true;
}

static bool find_spec(const rg_onnx_operator *entry, const char *name, rg_onnx_spec *spec)
{
    const char *at = entry->attributes;
    while (rg_onnx_next_spec(&at, spec)) {
        if (strcmp(spec->name, name) == 0)
            return true;
    }
    return false;
}

/* ---- values ---- */

static bool parse_int(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0) { /* also as in Python */
        *value = text[0] == 't' || text[0] == 'T';
        return true;
    }
    return errno == 0 && end != text && *end == 0;
}

/* "2,2", "[2, 2]", "2 2" or "2"; returns how many, -1 if it is not that. */
static int32_t parse_list(const char *text, int64_t ints[], double floats[])
{
    int32_t count = 0;
    text += strspn(text, " [(");
    while (*text != 0 && *text != ']' && *text != ')') {
        char word[64];
        const size_t size = strcspn(text, " ,])");
        if (size >= sizeof word || count == RG_ONNX_VALUES)
            return -1;
        copy_word(word, sizeof word, text, size);
        if (ints != NULL ? !parse_int(word, &ints[count]) : !rg_number_parse(word, &floats[count]))
            return -1;
        count++;
        text += size;
        text += strspn(text, " ");
        text += *text == ',';
        text += strspn(text, " ");
    }
    return *text == 0 || text[1] == 0 ? count : -1;
}

static int32_t ints_of(const rg_attribute *a, int64_t values[])
{
    if (a->text != NULL)
        return parse_list(a->text, values, NULL);
    if (a->ints == NULL || a->count < 0 || a->count > RG_ONNX_VALUES)
        return -1;
    memcpy(values, a->ints, (size_t)a->count * sizeof values[0]);
    return a->count;
}

static int32_t floats_of(const rg_attribute *a, double values[])
{
    if (a->text != NULL)
        return parse_list(a->text, NULL, values);
    if ((a->ints == NULL && a->floats == NULL) || a->count < 0 || a->count > RG_ONNX_VALUES)
        return -1;
    for (int32_t i = 0; i < a->count; i++)
        values[i] = a->floats != NULL ? a->floats[i] : (double)a->ints[i];
    return a->count;
}

static rg_status check_value(const char *who, const rg_onnx_spec *spec, const rg_attribute *a)
{
    int64_t ints[RG_ONNX_VALUES];
    double floats[RG_ONNX_VALUES];
    const bool is_single = strcmp(spec->type, "int") == 0 || strcmp(spec->type, "float") == 0;
    const char *what = "text";
    int32_t count = a->text != NULL ? 1 : -1;
    if (strncmp(spec->type, "int", 3) == 0) {
        what = is_single ? "an integer" : "a list of integers, such as 2,2";
        count = ints_of(a, ints);
    } else if (strncmp(spec->type, "float", 5) == 0) {
        what = is_single ? "a number" : "a list of numbers, such as 1,1,2,2";
        count = floats_of(a, floats);
    }
    RG_CHECK(count >= 0 && (!is_single || count == 1), RG_INVALID_ARGUMENT,
             "%s: attribute %s must be %s%s%s%s", who, spec->name, what,
             a->text != NULL ? ", not '" : "", a->text != NULL ? a->text : "",
             a->text != NULL ? "'" : "");
    return RG_OK;
}

rg_status rg_onnx_check(const rg_onnx_operator *entry, const rg_attribute attributes[],
                        int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        rg_onnx_spec spec;
        const char *name = attributes[i].name != NULL ? attributes[i].name : "";
        if (find_spec(entry, name, &spec)) {
            RG_TRY(check_value(entry->name, &spec, &attributes[i]));
            continue;
        }
        rg_similar similar = rg_similar_begin(name);
        const char *at = entry->attributes;
        while (rg_onnx_next_spec(&at, &spec))
            rg_similar_try(&similar, spec.name);
        char text[RG_SIMILAR_TEXT];
        return rg_fail(RG_INVALID_ARGUMENT, "%s has no attribute '%s'%s", entry->name, name,
                       rg_similar_text(&similar, text));
    }
    return RG_OK;
}

/* ---- reading ---- */

static const rg_attribute *find(const rg_onnx_node *node, const char *name)
{
    for (int32_t i = 0; i < node->attribute_count; i++) {
        if (strcmp(node->attributes[i].name, name) == 0)
            return &node->attributes[i];
    }
    return NULL;
}

bool rg_onnx_given(const rg_onnx_node *node, const char *name)
{
    return find(node, name) != NULL;
}

int32_t rg_onnx_ints(const rg_onnx_node *node, const char *name, int64_t values[RG_ONNX_VALUES])
{
    const rg_attribute *given = find(node, name);
    rg_onnx_spec spec = { .value = "" };
    if (given == NULL)
        find_spec(node->entry, name, &spec);
    const rg_attribute by_default = { .text = spec.value };
    const int32_t count = ints_of(given != NULL ? given : &by_default, values);
    return count < 0 ? 0 : count;
}

int32_t rg_onnx_floats(const rg_onnx_node *node, const char *name, double values[RG_ONNX_VALUES])
{
    const rg_attribute *given = find(node, name);
    rg_onnx_spec spec = { .value = "" };
    if (given == NULL)
        find_spec(node->entry, name, &spec);
    const rg_attribute by_default = { .text = spec.value };
    const int32_t count = floats_of(given != NULL ? given : &by_default, values);
    return count < 0 ? 0 : count;
}

int64_t rg_onnx_int(const rg_onnx_node *node, const char *name)
{
    int64_t values[RG_ONNX_VALUES];
    return rg_onnx_ints(node, name, values) > 0 ? values[0] : 0;
}

double rg_onnx_float(const rg_onnx_node *node, const char *name)
{
    double values[RG_ONNX_VALUES];
    return rg_onnx_floats(node, name, values) > 0 ? values[0] : 0;
}

rg_status rg_onnx_word(const rg_onnx_node *node, const char *name, const char *const words[],
                       int32_t *index)
{
    const rg_attribute *given = find(node, name);
    rg_onnx_spec spec = { .value = "" };
    if (given == NULL)
        find_spec(node->entry, name, &spec);
    const char *value = given != NULL && given->text != NULL ? given->text : spec.value;
    char all[160] = "";
    size_t used = 0;
    rg_similar similar = rg_similar_begin(value);
    for (*index = 0; words[*index] != NULL; (*index)++) {
        if (strcmp(words[*index], value) == 0)
            return RG_OK;
        used += (size_t)snprintf(all + used, used < sizeof all ? sizeof all - used : 0, "%s%s",
                                 used > 0 ? ", " : "", words[*index]);
        rg_similar_try(&similar, words[*index]);
    }
    char text[RG_SIMILAR_TEXT];
    return rg_fail(RG_INVALID_ARGUMENT, "%s: attribute %s must be one of %s, not '%s'%s",
                   node->type, name, all, value, rg_similar_text(&similar, text));
}

/* ---- inputs ---- */

bool rg_onnx_has(const rg_onnx_node *node, int32_t index)
{
    return index < node->input_count && node->inputs != NULL && node->inputs[index].rank >= 0;
}

int32_t rg_onnx_rank(const rg_onnx_node *node, int32_t index)
{
    return rg_onnx_has(node, index) ? node->inputs[index].rank : -1;
}

rg_status rg_onnx_axis(const rg_onnx_node *node, const char *name, int64_t axis, int32_t rank,
                       int64_t *dimension)
{
    RG_CHECK(rank > 0, RG_INVALID_ARGUMENT, "%s: a tensor of rank 0 has no dimension for %s",
             node->type, name);
    RG_CHECK(axis >= -rank && axis < rank, RG_INVALID_ARGUMENT,
             "%s: %s is %lld, but a tensor of rank %d has dimensions %d to %d", node->type, name,
             (long long)axis, rank, -rank, rank - 1);
    *dimension = axis < 0 ? axis + rank : axis;
    return RG_OK;
}
