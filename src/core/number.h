/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Numbers as text, the same in every locale of the calling program. */
#ifndef RG_CORE_NUMBER_H
#define RG_CORE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* The shortest text that reads back as the same value; "inf" and "-inf" for infinities, "nan" for
 * NaN of either sign. */
void rg_number_text(double value, char *text, size_t capacity);

/* Reads all of `text`; false where it is not a number, is NaN, or is too large for a double. */
bool rg_number_parse(const char *text, double *value);
/* The same, and takes "nan", too. */
bool rg_number_parse_any(const char *text, double *value);

#endif
