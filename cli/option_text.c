/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Options as "name=value" lines, as a checkpoint keeps them. Numbers are spelled as the library
 * does.
 */
#include "cli/option_text.h"

#include "core/number.h"
#include "files/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void value_text(const rg_option *option, char *text, size_t capacity)
{
    if (option->type == RG_OPTION_TEXT)
        snprintf(text, capacity, "%s", *(const char **)option->value);
    else if (option->type == RG_OPTION_COUNT)
        snprintf(text, capacity, "%" PRId64, *(const int64_t *)option->value);
    else if (option->type == RG_OPTION_REAL)
        rg_number_text(*(const double *)option->value, text, capacity);
    else
        snprintf(text, capacity, "%d", *(const bool *)option->value);
}

static bool not_given(const rg_option *option)
{
    return (option->type == RG_OPTION_REAL && *(const double *)option->value < 0) ||
           (option->type == RG_OPTION_COUNT && *(const int64_t *)option->value < 0);
}

char *rg_options_text(const rg_option *table)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL)
        return NULL;
    for (const rg_option *option = table; option->name != NULL; option++) {
        char value[4096];
        if (not_given(option))
            continue;
        value_text(option, value, sizeof value);
        fprintf(to, "%s=%s\n", option->name, value);
    }
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static bool set_value(const rg_option *option, char *value)
{
    char *end = value;
    if (option->type == RG_OPTION_TEXT) {
        *(const char **)option->value = value;
        return true;
    }
    if (option->type == RG_OPTION_REAL) {
        double *number = option->value;
        return rg_number_parse(value, number) && *number >= 0;
    }
    const long long number = strtoll(value, &end, 10);
    if (option->type == RG_OPTION_FLAG)
        *(bool *)option->value = number != 0;
    else
        *(int64_t *)option->value = number;
    return end != value && *end == 0 && number >= 0;
}

static rg_status read_option(const rg_option *table, char *line)
{
    char *value = strchr(line, '=');
    if (value == NULL)
        return rg_fails(RG_MALFORMED, "the checkpoint's option '%.40s' has no value", line);
    *value++ = 0;
    for (const rg_option *option = table; option->name != NULL; option++) {
        if (strcmp(option->name, line) != 0)
            continue;
        if (!set_value(option, value))
            return rg_fails(RG_MALFORMED, "the checkpoint's option %s is '%.40s'", line, value);
        return RG_OK;
    }
    return rg_fails(RG_MALFORMED, "the checkpoint has an unknown option '%.40s'", line);
}

rg_status rg_options_read(const rg_option *table, char *text)
{
    while (*text != 0) {
        char *end = text + strcspn(text, "\n");
        char *next = *end == 0 ? end : end + 1;
        *end = 0;
        if (*text != 0)
            RG_PASS(read_option(table, text));
        text = next;
    }
    return RG_OK;
}

bool rg_option_is_line(const char *text)
{
    return strlen(text) < 4000 && strpbrk(text, "\r\n") == NULL && rg_text_is_utf8(text);
}
