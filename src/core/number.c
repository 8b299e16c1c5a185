/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Numbers as text. */
#include "core/number.h"

#include "core/private_api.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The decimal point of the program's locale, which printf and strtod follow. */
static const char *decimal_point(void)
{
    const char *point = localeconv()->decimal_point;
    return point != NULL && point[0] != 0 ? point : ".";
}

RG_PRIVATE_API void rg_number_text(double value, char *text, size_t capacity)
{
    char digits[64] = "nan";
    for (int precision = 1; precision <= 17 && !isnan(value); precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    const char *point = decimal_point();
    char *at = strstr(digits, point);
    if (at != NULL) {
        *at = '.';
        memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
    }
    snprintf(text, capacity, "%s", digits);
}

RG_PRIVATE_API bool rg_number_parse(const char *text, double *value)
{
    char local[128], *end;
    const char *at = strchr(text, '.'), *point = decimal_point();
    const size_t before = at != NULL ? (size_t)(at - text) : strlen(text);
    const int length = snprintf(local, sizeof local, "%.*s%s%s", (int)(before < 64 ? before : 64),
                                text, at != NULL ? point : "", at != NULL ? at + 1 : "");
    if (before >= 64 || length < 0 || (size_t)length >= sizeof local)
        return false;
    *value = strtod(local, &end);
    const bool infinite = strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0;
    return end != local && *end == 0 && !isnan(*value) && (isfinite(*value) || infinite);
}

RG_PRIVATE_API bool rg_number_parse_any(const char *text, double *value)
{
    *value = (double)NAN;
    return strcmp(text, "nan") == 0 || rg_number_parse(text, value);
}
