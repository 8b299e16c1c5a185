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
    size_t bytes;   /* of all elements */
    int32_t narrow; /* bytes of an element in the file where that is another than dtype, which is
                       i64 then; less than 0: signed */
} rg_npy_header;

/* Checks magic and version; `length_bytes` of the dictionary's length follow, lowest first. */
rg_status rg_npy_start(const unsigned char start[RG_NPY_START], size_t *length_bytes);

/* Reads the dictionary. With `all_integers` those of any size are read, see `narrow`. */
rg_status rg_npy_header_parse(const char *text, size_t length, bool all_integers, rg_npy_header *h);

void rg_npy_swap_bytes(char *data, size_t bytes, size_t element);

#endif
