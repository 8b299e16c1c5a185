/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The header of an NPY file, for readers that have it from elsewhere than a file of its own. */
#ifndef RG_FILES_NPY_H
#define RG_FILES_NPY_H

#include "core/shape.h"

/* Bytes of magic and version, and of the longest header that is read: the longest of version 1. */
enum { RG_NPY_START = 8, RG_NPY_HEADER = 65535 };

typedef struct rg_npy_header {
    rg_dtype dtype;
    bool swapped, fortran; /* the other byte order; the first dimension is contiguous */
    int32_t rank;
    int64_t dims[RG_MAX_RANK];
    size_t bytes; /* of all elements */
} rg_npy_header;

/* Checks magic and version; `length_bytes` of the dictionary's length follow, lowest first. */
rg_status rg_npy_start(const unsigned char start[RG_NPY_START], size_t *length_bytes);

/* Reads the dictionary. */
rg_status rg_npy_header_parse(const char *text, size_t length, rg_npy_header *h);

void rg_npy_swap_bytes(char *data, size_t bytes, size_t element);

#endif
