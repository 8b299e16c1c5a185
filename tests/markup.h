/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A small checker of HTML and SVG that is XML as well: tags balance, attributes are quoted. */
#ifndef RG_TESTS_MARKUP_H
#define RG_TESTS_MARKUP_H

#include "tests/scratch_folder.h"

/* Whether all of `text` is well-formed; *tags becomes the number of tags, where it is not NULL. */
bool markup_check(const char *text, int *tags);

/* How often `word` occurs in `text`. */
int markup_count(const char *text, const char *word);

/* The whole file as text, which the caller frees; the file is removed. */
char *markup_take(const char *name, size_t *size);

#endif
