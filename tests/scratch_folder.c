/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The scratch folder of a test: see scratch_folder.h. */
#include "tests/scratch_folder.h"

char scratch_folder[256];

void scratch_begin(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch_folder, sizeof scratch_folder, "%s/retrograde-XXXXXX",
             base != NULL && base[0] != 0 ? base : "/tmp");
    EXPECT(mkdtemp(scratch_folder) != NULL);
}

void scratch_end(void)
{
    EXPECT(rmdir(scratch_folder) == 0);
}

const char *scratch(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", scratch_folder, name);
    return path;
}

void scratch_write(const char *name, const void *data, size_t size)
{
    FILE *file = fopen(scratch(name), "wb");
    EXPECT(file != NULL && fwrite(data, 1, size, file) == size);
    if (file != NULL)
        fclose(file);
}

size_t scratch_read(const char *name, void *data, size_t capacity)
{
    FILE *file = fopen(scratch(name), "rb");
    EXPECT(file != NULL);
    const size_t size = file != NULL ? fread(data, 1, capacity, file) : 0;
    if (file != NULL)
        fclose(file);
    return size;
}

void scratch_remove(const char *name)
{
    EXPECT(unlink(scratch(name)) == 0);
}

uint64_t scratch_random(uint64_t *seed)
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * UINT64_C(0x2545f4914f6cdd1d);
}
