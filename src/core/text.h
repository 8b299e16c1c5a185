/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Text for people. */
#ifndef RG_CORE_TEXT_H
#define RG_CORE_TEXT_H

/* Makes control characters of a sentence question marks: names in it come from files, and must
 * neither end a line nor command a terminal. */
void rg_text_clean(char *text);

#endif
