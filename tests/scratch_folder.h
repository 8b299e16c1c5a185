/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A folder for the files of a test, which must be empty again at its end. */
#ifndef RG_TESTS_SCRATCH_FOLDER_H
#define RG_TESTS_SCRATCH_FOLDER_H

#include "tests/test.h"

#include <stdlib.h>
#include <unistd.h>

extern char scratch_folder[256]; /* its path */

void scratch_begin(void);

/* Fails where a test, or a temporary file, was left behind. */
void scratch_end(void);

/* The path of a file there; valid until the next call. */
const char *scratch(const char *name);

void scratch_write(const char *name, const void *data, size_t size);
size_t scratch_read(const char *name, void *data, size_t capacity);
void scratch_remove(const char *name);

/* xorshift64*: the same numbers everywhere. */
uint64_t scratch_random(uint64_t *seed);

#endif
