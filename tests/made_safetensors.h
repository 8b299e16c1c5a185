/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors files made by hand, for tests. */
#ifndef RG_TESTS_MADE_SAFETENSORS_H
#define RG_TESTS_MADE_SAFETENSORS_H

#include "tests/test.h"

/* A file of this header, filled up with spaces, and `size` bytes of data: 0, 1, 2, … */
typedef struct made_file {
    unsigned char bytes[4096];
    size_t size, header;
} made_file;

made_file make_file(const char *header, size_t size);

#endif
