/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* For targets that read data sets: what is done with one, and files made whole again, so that an
 * input that was changed gets past lengths and checksums. */
#ifndef RG_TESTS_FUZZ_DATA_H
#define RG_TESTS_FUZZ_DATA_H

#include "fuzz.h"

/* Opens both parts of a data set; looks at images, labels and names; splits and measures it. */
void fuzz_use_dataset(const char *path);

/* gzip of `data` in stored blocks, with its checksum; to be freed. */
uint8_t *fuzz_gzip(const uint8_t *data, size_t size, size_t *made);

/* Writes the right checksum behind every chunk of a PNG file, as far as its lengths lead. */
void fuzz_repair_png(uint8_t *data, size_t size);

/* Writes the right checksum of every member into the directory of a ZIP file. */
void fuzz_repair_zip(uint8_t *data, size_t size);

#endif
