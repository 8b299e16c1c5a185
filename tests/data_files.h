/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Files of data sets, made by hand so that they can be made wrong: IDX, gzip, NPY, ZIP, PNG. */
#ifndef RG_TESTS_DATA_FILES_H
#define RG_TESTS_DATA_FILES_H

#include "tests/scratch_folder.h"

#include "train/data_source.h"

/* ---- bytes ---- */

typedef struct bytes {
    unsigned char data[1 << 16];
    size_t size;
} bytes;

void put(bytes *to, const void *data, size_t size);

/* ---- deflate ---- */

void put_gzip(bytes *to, const void *data, size_t size);

/* A gzip file of `start`, then `repeats` times 258 bytes 0, in 13 bits each. The checksum is
 * wrong; readers must stop before it. */
void put_bomb(bytes *to, const unsigned char *start, size_t size, int repeats);

/* ---- IDX ---- */

bytes idx_of(int rank, const uint32_t dims[], const void *data, size_t size);

/* ---- NPY ---- */

bytes npy_of(const char *descr, const char *order, const char *shape, const void *data,
             size_t size);

/* ---- ZIP ---- */

typedef struct archive {
    bytes file, directory;
    int entries;
} archive;

enum { ZIP_STORED = 0, ZIP_DEFLATED = 8, ZIP_LARGE = 256 }; /* large: sizes in words of 64 bits */

void zip_add(archive *zip, const char *name, int how, const bytes *data);

/* Adds directory and end; `large`: with records of 64 bits. */
void zip_end(archive *zip, bool large);

/* ---- PNG ---- */

void png_chunk(bytes *to, const char *name, const void *data, size_t size);
bytes png_start(uint32_t width, uint32_t height, int depth, int kind, int interlaced);

/* Rows with their filter bytes, as one chunk, and the end. */
void png_end(bytes *to, const void *rows, size_t size);

/* ---- files ---- */

void make_folder(const char *name);
void write_file(const char *name, const bytes *data);

/* Removes all there is in the scratch folder. */
void clear_files(void);

#endif
