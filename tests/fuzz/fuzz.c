/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the fuzz targets share: input, scratch files, devices with little memory. */
#include "fuzz.h"

#include "core/memory.h"

#include <ftw.h>
#include <stdatomic.h>
#include <unistd.h>

/* ---- the input ---- */

uint8_t fuzz_byte(fuzz_input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

size_t fuzz_word(fuzz_input *input)
{
    const size_t low = fuzz_byte(input);
    return low | (size_t)fuzz_byte(input) << 8;
}

uint8_t *fuzz_take(fuzz_input *input, size_t size, size_t *taken)
{
    *taken = size < input->size ? size : input->size;
    uint8_t *copy = malloc(*taken > 0 ? *taken : 1);
    FUZZ_CHECK(copy != NULL);
    if (*taken > 0)
        memcpy(copy, input->data, *taken);
    input->data += *taken;
    input->size -= *taken;
    return copy;
}

static char *take_text(fuzz_input *input, size_t size)
{
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    if (size > 0)
        memcpy(text, input->data, size);
    text[size] = 0;
    input->data += size;
    input->size -= size;
    return text;
}

char *fuzz_text(fuzz_input *input)
{
    return take_text(input, input->size);
}

char *fuzz_line(fuzz_input *input)
{
    const uint8_t *end = input->size > 0 ? memchr(input->data, '\n', input->size) : NULL;
    char *line = take_text(input, end != NULL ? (size_t)(end - input->data) : input->size);
    (void)fuzz_byte(input); /* the end of the line */
    return line;
}

/* ---- files ---- */

static char folder[256];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    return walk->level > 0 ? remove(path) : 0;
}

static void clear(void)
{
    FUZZ_CHECK(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

static void remove_folder(void)
{
    clear();
    rmdir(folder);
}

static void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/retrograde-fuzz-XXXXXX",
             base != NULL && base[0] != 0 ? base : "/tmp");
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    atexit(remove_folder);
}

void fuzz_clear(void)
{
    if (folder[0] != 0)
        clear();
}

const char *fuzz_path(const char *name)
{
    static char paths[4][512];
    static int next;
    if (folder[0] == 0)
        make_folder();
    char *path = paths[next++ % 4];
    FUZZ_CHECK(snprintf(path, sizeof paths[0], "%s/%s", folder, name) < (int)sizeof paths[0]);
    return path;
}

const char *fuzz_file(const char *name, const void *data, size_t size)
{
    const char *path = fuzz_path(name);
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL && fwrite(data, 1, size, file) == size);
    FUZZ_CHECK(fclose(file) == 0);
    return path;
}

uint8_t *fuzz_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    const long length = ftell(file);
    uint8_t *data = malloc((size_t)length + 1);
    FUZZ_CHECK(length >= 0 && data != NULL && fseek(file, 0, SEEK_SET) == 0);
    *size = fread(data, 1, (size_t)length, file);
    FUZZ_CHECK(*size == (size_t)length);
    fclose(file);
    return data;
}

/* ---- devices ---- */

enum { MOST_BYTES = 64 << 20 };
static _Atomic size_t held;

static void *allocate(void *context, size_t size, size_t alignment)
{
    (void)context;
    if (size > MOST_BYTES || held > MOST_BYTES - size)
        return NULL;
    void *memory = rg_default_allocator.allocate(NULL, size, alignment);
    if (memory != NULL)
        held += size;
    return memory;
}

static void release(void *context, void *memory, size_t size)
{
    (void)context;
    held -= size;
    rg_default_allocator.release(NULL, memory, size);
}

size_t fuzz_held(void)
{
    return held;
}

typedef struct kept_device {
    rg_device *device;
    int32_t threads;
    char isa[16];
} kept_device;
static kept_device kept[16];
static int kept_count;

static void give_back(void)
{
    for (int i = 0; i < kept_count; i++)
        rg_device_destroy(kept[i].device);
}

rg_device *fuzz_device(int32_t threads, const char *isa)
{
    static const rg_allocator bounded = { allocate, release, NULL };
    for (int i = 0; i < kept_count; i++) {
        if (kept[i].threads == threads && strcmp(kept[i].isa, isa != NULL ? isa : "") == 0)
            return kept[i].device;
    }
    rg_device_options options = rg_device_options_default();
    options.allocator = &bounded;
    options.threads = threads;
    options.isa = isa;
    if (kept_count == 0)
        atexit(give_back);
    FUZZ_CHECK(kept_count < (int)(sizeof kept / sizeof kept[0]));
    kept_device *made = &kept[kept_count++];
    made->threads = threads;
    snprintf(made->isa, sizeof made->isa, "%s", isa != NULL ? isa : "");
    FUZZ_CHECK(rg_device_create("cpu", &options, &made->device) == RG_OK);
    return made->device;
}

rg_device *fuzz_reader_device(void)
{
    return fuzz_device(1, NULL);
}

void fuzz_zero(rg_tensor *tensor)
{
    const size_t bytes = rg_tensor_bytes(tensor);
    if (bytes > 0)
        memset(rg_tensor_data(tensor), 0, bytes);
}
