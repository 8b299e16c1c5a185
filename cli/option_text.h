/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Options as text, for checkpoints. */
#ifndef RG_CLI_OPTION_TEXT_H
#define RG_CLI_OPTION_TEXT_H

#include "cli/arguments.h"

/* All options of a table as "name=value" lines, without numbers that are negative: these are not
 * given. To be freed; NULL: there is no memory. */
char *rg_options_text(const rg_option *table);

/* Sets options from such a text, which is changed and must outlive them. */
rg_status rg_options_read(const rg_option *table, char *text);

/* Whether a text fits on a line: in UTF-8, shorter than 4000 bytes, without line breaks. */
bool rg_option_is_line(const char *text);

#endif
