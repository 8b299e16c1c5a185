/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Bytes of a range of a file: as they are, or unpacked by zlib. Sentences do not name the file; the
 * caller does. */
#ifndef RG_TRAIN_DATA_SOURCE_H
#define RG_TRAIN_DATA_SOURCE_H

#include "core/memory.h"

typedef enum rg_packing {
    RG_PLAIN,
    RG_GZIP,   /* with its header and checksum; several in a row are one */
    RG_DEFLATE /* bare, as in ZIP files */
} rg_packing;

typedef struct rg_source {
    int file; /* the caller's */
    rg_packing packing;
    uint64_t at, end; /* of the range that was not read yet */
    uint64_t made;    /* bytes given so far */
    bool summed;      /* whether their CRC-32 is kept; the caller may set it */
    uint32_t crc;
    struct rg_unpacker *unpack; /* NULL for plain ones */
} rg_source;

/* Begins to read bytes `at` to `end` of an open file. After a failure there is nothing to end. */
rg_status rg_source_begin(rg_source *source, int file, uint64_t at, uint64_t end,
                          rg_packing packing);
void rg_source_end(rg_source *source);

/* Gives `size` bytes, fewer only at the end. */
rg_status rg_source_read(rg_source *source, void *to, size_t size, size_t *got);

/* Gives exactly `size` bytes, or fails: "ends within `what`". */
rg_status rg_source_take(rg_source *source, void *to, size_t size, const char *what);

/* Checks that nothing is left, which also checks the sum at the end of packed data. */
rg_status rg_source_finish(rg_source *source);

/* The most bytes that can come: deflate makes at most 1032 bytes of one. */
uint64_t rg_source_most(const rg_source *source);

/* ---- files ---- */

/* Opens a regular file; pipes and the like, which could block, are refused. -1 on failure. */
rg_status rg_regular_open(const char *path, int *file, uint64_t *size);
void rg_regular_close(int file);
rg_status rg_image_open(const char *path, int *file, uint64_t *size); /* in words for images */

/* Reads exactly these bytes, or fails. */
rg_status rg_regular_read(int file, uint64_t at, void *to, size_t size);

/* CRC-32 as in gzip, ZIP and PNG. Begin with 0. */
uint32_t rg_crc32(uint32_t crc, const void *data, size_t size);

#endif
