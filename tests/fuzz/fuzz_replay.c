/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs a fuzz target over files, without libFuzzer: `replay_<name> [FILE | FOLDER]…`. A file that
 * ends with .hex holds bytes as hexadecimal numbers, and remarks behind '#'. */
#include "fuzz.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static int files;

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

static int digit_of(uint8_t c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c != 0 ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* Bytes of hexadecimal text, in its own memory; returns how many. */
static size_t decode(uint8_t *data, size_t size)
{
    size_t digits = 0;
    bool remark = false;
    for (size_t i = 0; i < size; i++) {
        remark = data[i] == '#' || (remark && data[i] != '\n');
        const int digit = remark ? -1 : digit_of(data[i]);
        if (digit < 0)
            continue;
        const uint8_t before = digits % 2 != 0 ? data[digits / 2] : 0;
        data[digits / 2] = (uint8_t)(before << 4 | digit);
        digits++;
    }
    FUZZ_CHECK(digits % 2 == 0);
    return digits / 2;
}

static void replay_file(const char *path)
{
    size_t size;
    uint8_t *data = fuzz_read(path, &size);
    if (ends_with(path, ".hex"))
        size = decode(data, size);
    uint8_t *exact = malloc(size > 0 ? size : 1); /* a read beyond it is seen */
    FUZZ_CHECK(exact != NULL);
    memcpy(exact, data, size);
    free(data);
    printf("%s: %zu bytes\n", path, size);
    fflush(stdout);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    files++;
}

static void replay(const char *path)
{
    struct stat info;
    struct dirent **entries;
    FUZZ_CHECK(stat(path, &info) == 0);
    if (!S_ISDIR(info.st_mode)) {
        replay_file(path);
        return;
    }
    const int count = scandir(path, &entries, NULL, alphasort);
    FUZZ_CHECK(count >= 0);
    for (int i = 0; i < count; i++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            replay(inner);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (access(argv[i], F_OK) == 0) /* a target need not have an input of its own yet */
            replay(argv[i]);
    }
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    printf("%d files\n", files);
    return 0;
}
