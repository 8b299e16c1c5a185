/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* JSON on standard output. */
#ifndef RG_CLI_PRINT_JSON_H
#define RG_CLI_PRINT_JSON_H

/* A text of any bytes as a string in quotes. */
void rg_print_json_text(const char *text);

/* A number; null where it is not finite, as JSON knows no NaN and no infinity. */
void rg_print_json_number(double value);

#endif
