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

/* The longest path, with the 0 at its end. */
enum { RG_PATH_SIZE = 4096 };

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

/* The same from byte `offset` of a regular file on; where the next rg_input_read begins is not
 * changed, so that several threads may do this at once. */
rg_status rg_input_read_at(const rg_input *input, void *to, size_t size, uint64_t offset,
                           size_t *got);

/* Reads to the end of the file, but `most` bytes at most. Memory grows with what was read. */
rg_status rg_input_rest(rg_input *input, const rg_allocator *allocator, size_t most,
                        rg_bytes *bytes);

/* Reads a whole file; RG_IO if it is longer than `limit`. */
rg_status rg_file_read(const rg_allocator *allocator, const char *path, size_t limit,
                       rg_bytes *bytes);

/* A file being written. Until it is closed all goes to a temporary file beside it, so that at any
 * moment, also if the process is killed, the old file or the new one is there, whole. Through a
 * link its target is replaced, or made if the link leads nowhere yet. Devices, pipes and open
 * descriptors, such as /dev/stdout, are written in place. Sentences do not name the path; the
 * caller does. */
typedef struct rg_output {
    int file;
    char target[RG_PATH_SIZE];         /* what is replaced */
    char temporary[RG_PATH_SIZE + 64]; /* what replaces it; "" in place */
} rg_output;
rg_status rg_output_open(rg_output *output, const char *path);
rg_status rg_output_add(rg_output *output, const void *data, size_t size);

/* With RG_OK the file takes its place, on the disk too; otherwise nothing of it is left. Returns
 * `status`, or why that failed. */
rg_status rg_output_close(rg_output *output, rg_status status);

/* Writes a whole file in this way. */
rg_status rg_file_write(const char *path, const void *data, size_t size);

#endif
