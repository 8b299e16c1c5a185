/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* JSON on standard output. */
#include "cli/print_json.h"

#include "files/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rg_print_json_text(const char *text)
{
    enum { LONGEST = 6 }; /* of one byte, "\u0007" */
    const size_t capacity = LONGEST * strlen(text) + sizeof "\"\"";
    char *quoted = malloc(capacity);
    rg_text to;
    rg_text_begin(&to, quoted, capacity);
    rg_text_add_string(&to, text);
    fputs(quoted != NULL ? quoted : "null", stdout);
    free(quoted);
}

void rg_print_json_number(double value)
{
    if (isfinite(value))
        printf("%.9g", value);
    else
        fputs("null", stdout);
}
