/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A folder for the files of a test, which must be empty again at its end. */
#ifndef RG_TESTS_SCRATCH_FOLDER_H
#define RG_TESTS_SCRATCH_FOLDER_H

#include "tests/test.h"

#include <stdlib.h>
#include <unistd.h>

static char scratch_folder[256];

static inline void scratch_begin(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch_folder, sizeof scratch_folder, "%s/retrograde-XXXXXX",
             base != NULL && base[0] != 0 ? base : "/tmp");
    EXPECT(mkdtemp(scratch_folder) != NULL);
}

/* Fails where a test, or a temporary file, was left behind. */
static inline void scratch_end(void)
{
    EXPECT(rmdir(scratch_folder) == 0);
}

/* The path of a file there; valid until the next call. */
static inline const char *scratch(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", scratch_folder, name);
    return path;
}

static inline void scratch_write(const char *name, const void *data, size_t size)
{
    FILE *file = fopen(scratch(name), "wb");
    EXPECT(file != NULL && fwrite(data, 1, size, file) == size);
    if (file != NULL)
        fclose(file);
}

static inline size_t scratch_read(const char *name, void *data, size_t capacity)
{
    FILE *file = fopen(scratch(name), "rb");
    EXPECT(file != NULL);
    const size_t size = file != NULL ? fread(data, 1, capacity, file) : 0;
    if (file != NULL)
        fclose(file);
    return size;
}

static inline void scratch_remove(const char *name)
{
    EXPECT(unlink(scratch(name)) == 0);
}

/* xorshift64*: the same numbers everywhere. */
static inline uint64_t scratch_random(uint64_t *seed)
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * UINT64_C(0x2545f4914f6cdd1d);
}

#endif
