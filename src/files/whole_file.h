/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Files: read with a limit, written whole or not at all. */
#ifndef RG_FILES_WHOLE_FILE_H
#define RG_FILES_WHOLE_FILE_H

#include "core/memory.h"

/* Bytes that were read. */
typedef struct rg_bytes {
    char *data;
    size_t size, capacity;
} rg_bytes;
void rg_bytes_release(const rg_allocator *allocator, rg_bytes *bytes);

/* A file or a pipe being read. Its sentences do not name the path; the caller does. */
typedef struct rg_input {
    int file;
    bool sized;  /* a regular file, whose size is known before it is read */
    size_t left; /* then: bytes from here to its end */
} rg_input;
rg_status rg_input_open(rg_input *input, const char *path);
void rg_input_close(rg_input *input);

/* Reads `size` bytes, fewer only at the end of the file. */
rg_status rg_input_read(rg_input *input, void *to, size_t size, size_t *got);

/* Reads to the end of the file, but `most` bytes at most. Memory grows with what is there. */
rg_status rg_input_rest(rg_input *input, const rg_allocator *allocator, size_t most,
                        rg_bytes *bytes);

/* Reads a whole file; RG_IO if it is longer than `limit`. */
rg_status rg_file_read(const rg_allocator *allocator, const char *path, size_t limit,
                       rg_bytes *bytes);

/* Writes a whole file: on failure what was there before is there still. Devices, pipes and open
 * descriptors, such as /dev/stdout, are written in place. */
rg_status rg_file_write(const char *path, const void *data, size_t size);

#endif
