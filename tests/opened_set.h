/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A data set opened from the scratch folder, for the tests of its files. */
#ifndef RG_TESTS_OPENED_SET_H
#define RG_TESTS_OPENED_SET_H

#include "tests/data_files.h"

#include <retrograde/dataset.h>

extern rg_dataset *opened; /* by the last open_it */

/* Opens something in the scratch folder, "" for the folder itself. */
rg_status open_it(const char *name, rg_dataset_part part);
void close_it(void);

/* Whether it was refused because of the file, with a sentence that names the path. */
bool refused(rg_status status);

/* Whether the set has this size. */
bool holds(int64_t count, int64_t height, int64_t width, int64_t channels, int32_t classes,
           rg_dtype dtype);

/* Whether an image has these bytes. */
bool image_is(int64_t index, const void *pixels, size_t size);

/* Writes every beginning of a file, and opens it; then the file with each byte changed. */
void try_damage(const char *name, const bytes *file, const char *path, bool flips);

#endif
