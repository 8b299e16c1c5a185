/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Whole files, and kernels as JSON: round trips, hostile text, full disks, failing memory. */
#include "files/whole_file.h"
#include "ops/ops.h"
#include "tests/failing_allocator.h"
#include "tests/scratch_folder.h"

#include <retrograde/files.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static rg_device *cpu;

/* ---- whole files ---- */

static void test_reading(void)
{
    const rg_allocator *allocator = &rg_default_allocator;
    rg_bytes bytes;
    char data[10000];
    memset(data, 'x', sizeof data);
    scratch_write("file", data, sizeof data);
    EXPECT_OK(rg_file_read(allocator, scratch("file"), sizeof data, &bytes));
    EXPECT(bytes.size == sizeof data && memcmp(bytes.data, data, sizeof data) == 0);
    rg_bytes_release(allocator, &bytes);
    EXPECT_FAILS(rg_file_read(allocator, scratch("file"), sizeof data - 1, &bytes), RG_IO,
                 "file: is too large");
    EXPECT_FAILS(rg_file_read(allocator, "/dev/zero", 12345, &bytes), RG_IO, "12345 bytes");
    EXPECT_FAILS(rg_file_read(allocator, scratch_folder, 100, &bytes), RG_IO, "a directory");
    EXPECT_FAILS(rg_file_read(allocator, scratch("none"), 100, &bytes), RG_IO, "none: cannot");
    EXPECT(bytes.data == NULL);

    EXPECT(chmod(scratch("file"), 0) == 0);
    if (geteuid() != 0) /* root may read it all the same */
        EXPECT_FAILS(rg_file_read(allocator, scratch("file"), 99999, &bytes), RG_IO,
                     "file: cannot");
    scratch_remove("file");

    for (size_t size = 0; size <= sizeof data; size += 2500) { /* a pipe, whose size is unknown */
        int ends[2];
        char path[64];
        EXPECT(pipe(ends) == 0 && write(ends[1], data, size) == (ssize_t)size);
        close(ends[1]);
        snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
        EXPECT_OK(rg_file_read(allocator, path, sizeof data, &bytes));
        EXPECT(bytes.size == size && (size == 0 || memcmp(bytes.data, data, size) == 0));
        rg_bytes_release(allocator, &bytes);
        close(ends[0]);
    }
}

static bool file_holds(const char *name, const char *text)
{
    char got[64];
    const size_t size = scratch_read(name, got, sizeof got);
    return size == strlen(text) && memcmp(got, text, size) == 0;
}

static void test_writing(void)
{
    struct stat info;
    EXPECT_OK(rg_file_write(scratch("file"), "one", 3));
    EXPECT(file_holds("file", "one"));
    EXPECT(chmod(scratch("file"), 0640) == 0);
    EXPECT_OK(rg_file_write(scratch("file"), "", 0));
    EXPECT(file_holds("file", ""));
    EXPECT(stat(scratch("file"), &info) == 0 && (info.st_mode & 0777) == 0640);

    EXPECT(symlink("file", scratch("link")) == 0); /* the link stays */
    EXPECT_OK(rg_file_write(scratch("link"), "two", 3));
    EXPECT(lstat(scratch("link"), &info) == 0 && S_ISLNK(info.st_mode));
    EXPECT(file_holds("file", "two"));
    scratch_remove("link");

    EXPECT_FAILS(rg_file_write("/dev/full", "x", 1), RG_IO, "/dev/full: cannot be written");
    EXPECT_FAILS(rg_file_write(scratch_folder, "x", 1), RG_IO, "cannot be opened");
    EXPECT_FAILS(rg_file_write(scratch("none/file"), "x", 1), RG_IO, "none/file: cannot");
    EXPECT_FAILS(rg_file_write("", "x", 1), RG_IO, "cannot");
    char longer[5000];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = 0;
    EXPECT_FAILS(rg_file_write(longer, "x", 1), RG_IO, "cannot");

    char name[256]; /* the longest name there can be */
    memset(name, 'n', sizeof name);
    name[255] = 0;
    EXPECT_OK(rg_file_write(scratch(name), "x", 1));
    scratch_remove(name);

    if (geteuid() != 0) {
        EXPECT(chmod(scratch("file"), 0444) == 0);
        EXPECT_FAILS(rg_file_write(scratch("file"), "x", 1), RG_IO, "file: cannot");
    }
    EXPECT(file_holds("file", "two"));
    scratch_remove("file");
}

/* A disk that is full in the middle of a file, played by a limit on the size of files. */
static void test_old_file_survives(void)
{
    struct rlimit old;
    char data[10000] = "";
    EXPECT_OK(rg_file_write(scratch("file"), "old", 3));
    EXPECT(getrlimit(RLIMIT_FSIZE, &old) == 0);
    signal(SIGXFSZ, SIG_IGN);
    EXPECT(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 5000, old.rlim_max }) == 0);
    const rg_status status = rg_file_write(scratch("file"), data, sizeof data);
    EXPECT(setrlimit(RLIMIT_FSIZE, &old) == 0);
    signal(SIGXFSZ, SIG_DFL);
    EXPECT(status == RG_IO);
    EXPECT(file_holds("file", "old"));
    scratch_remove("file"); /* scratch_end sees whether a temporary file is left */
}

/* ---- kernels ---- */

#define SOFTMAX "{\"retrograde\": 1, \"op\": \"softmax\", "

static rg_status from_text(const char *text, rg_kernel **kernel)
{
    const rg_status status = rg_kernel_from_json(cpu, text, strlen(text), kernel);
    EXPECT((status == RG_OK) == (*kernel != NULL));
    return status;
}

static void test_kernel_round_trips(void)
{
    rg_softmax_desc desc = rg_softmax_desc_default();
    desc.kind = RG_SOFTMAX_LOG;
    desc.axis = 1;
    rg_kernel *kernel = NULL, *again = NULL;
    char text[512], cut[20];
    EXPECT_OK(rg_softmax_create(cpu, &desc, &kernel));
    const size_t length = rg_kernel_to_json(kernel, text, sizeof text);
    EXPECT(strcmp(text, SOFTMAX "\"label\": \"\", \"desc\": {\"kind\": \"log\", \"axis\": 1, "
                                "\"flatten\": false}}") == 0);
    EXPECT(length == strlen(text) && rg_kernel_to_json(kernel, NULL, 0) == length);
    EXPECT(rg_kernel_to_json(kernel, cut, sizeof cut) == length && strlen(cut) == sizeof cut - 1);
    EXPECT(rg_kernel_to_json(NULL, text, sizeof text) == 0 && text[0] == 0);

    static const char *const labels[] = { "", "h\xc3\xa9llo", "\"\\\n\t\x01 {}[]" };
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        EXPECT_OK(rg_kernel_set_label(kernel, labels[i]));
        EXPECT_OK(rg_kernel_save(kernel, scratch("kernel.json")));
        EXPECT_OK(rg_kernel_load(cpu, scratch("kernel.json"), &again));
        EXPECT(rg_kernel_equal(kernel, again) && rg_kernel_hash(kernel) == rg_kernel_hash(again));
        EXPECT(strcmp(rg_kernel_label(again), labels[i]) == 0);
        rg_kernel_destroy(again);
    }
    scratch_remove("kernel.json");

    rg_kernel *plain = NULL; /* what is left out has its default */
    desc = rg_softmax_desc_default();
    EXPECT_OK(rg_softmax_create(cpu, &desc, &plain));
    EXPECT_OK(from_text("{\"op\":\"softmax\",\"retrograde\":1}", &again));
    EXPECT(rg_kernel_equal(plain, again) && rg_kernel_label(again)[0] == 0);
    rg_kernel_destroy(again);
    rg_kernel_destroy(plain);
    rg_kernel_destroy(kernel);
}

static void test_kernel_refuses(void)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "", "line 1, column 1: expected a value" },
        { "[]", "a kernel must be an object" },
        { "{}", "expected \"retrograde\": 1" },
        { "{\"op\": \"softmax\"}", "expected \"retrograde\": 1" },
        { "{\"retrograde\": 2, \"op\": \"softmax\"}", "column 16: expected \"retrograde\": 1" },
        { "{\"retrograde\": 1.0, \"op\": \"softmax\"}", "expected \"retrograde\": 1" },
        { "{\"retrograde\": \"1\", \"op\": \"softmax\"}", "expected \"retrograde\": 1" },
        { "{\"retrograde\": 1}", "expected \"op\"" },
        { "{\"retrograde\": 1, \"op\": 3}", "expected \"op\"" },
        { "{\"retrograde\": 1, \"op\": \"soft\"}", "column 25: unknown op \"soft\"" },
        { "{\"retrograde\": 1, \"op\": \"\"}", "unknown op \"\"" },
        { "{\"retrograde\": 1, \"op\": \"SoftmaxGrad\"}", "unknown op \"SoftmaxGrad\"" },
        { SOFTMAX "\"more\": 1}",
          "a kernel can have only the keys retrograde, op, label and desc" },
        { SOFTMAX "\"label\": null}", "the label must be a string" },
        { SOFTMAX "\"desc\": null}", "softmax: expected an object" },
        { SOFTMAX "\"desc\": {\"axes\": 1}}", "softmax has no field \"axes\"" },
        { SOFTMAX "\"desc\": {\"axis\": \"1\"}}",
          "line 1, column 53: softmax: axis must be a whole number" },
        { SOFTMAX "\"desc\": {\"axis\": 1.5}}",
          "line 1, column 53: softmax: axis must be a whole number" },
        { SOFTMAX "\"desc\": {\"axis\": null}}",
          "line 1, column 53: softmax: axis must be a whole number" },
        { SOFTMAX "\"desc\": {\"axis\": [1]}}",
          "line 1, column 53: softmax: axis must be a whole number" },
        { SOFTMAX "\"desc\": {\"axis\": 1, \"axis\": 1}}", "twice" },
        { SOFTMAX "\"desc\": {\"axis\": 99999999999999999999}}", "too large" },
        { SOFTMAX "\"desc\": {\"kind\": true}}",
          "line 1, column 53: softmax: kind must be one of its names" },
        { SOFTMAX "\"desc\": {}} {}", "expected the end of the text" },
    };
    rg_kernel *kernel = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        EXPECT_FAILS(from_text(cases[i].text, &kernel), RG_MALFORMED, cases[i].words);
        EXPECT(strncmp(rg_error_text(), "rg_kernel_from_json: line ", 26) == 0);
    }
    const size_t size = 3 << 20;
    char *large = malloc(size);
    memset(large, ' ', size);
    EXPECT_FAILS(rg_kernel_from_json(cpu, large, size, &kernel), RG_MALFORMED,
                 "rg_kernel_from_json: the text has 3145728 bytes; at most 1048576 are supported");
    scratch_write("kernel.json", large, size);
    EXPECT_FAILS(rg_kernel_load(cpu, scratch("kernel.json"), &kernel), RG_IO, "too large");
    scratch_write("kernel.json", "{\"retrograde\": 1,\n\"op\": 7}", 26);
    EXPECT_FAILS(rg_kernel_load(cpu, scratch("kernel.json"), &kernel), RG_MALFORMED,
                 "kernel.json: line 2, column 7: expected \"op\"");
    scratch_remove("kernel.json");
    free(large);
}

static void test_kernel_paths_and_null(void)
{
    rg_kernel *kernel = NULL, *other = NULL;
    const size_t size = 1 << 20;
    char *label = calloc(1, size);
    EXPECT_OK(from_text("{\"retrograde\": 1, \"op\": \"softmax\"}", &kernel));
    EXPECT_FAILS(rg_kernel_load(cpu, scratch("none"), &other), RG_IO, "none");
    EXPECT_FAILS(rg_kernel_load(cpu, scratch_folder, &other), RG_IO, "directory");
    EXPECT_FAILS(rg_kernel_load(cpu, "/dev/zero", &other), RG_IO, "/dev/zero: is too large");
    EXPECT_FAILS(rg_kernel_save(kernel, scratch("none/kernel")), RG_IO, "none/kernel");
    EXPECT_FAILS(rg_kernel_save(kernel, "/dev/full"), RG_IO, "/dev/full");
    EXPECT_FAILS(rg_kernel_save(NULL, "x"), RG_INVALID_ARGUMENT, "kernel");
    EXPECT_FAILS(rg_kernel_save(kernel, NULL), RG_INVALID_ARGUMENT, "path");
    EXPECT_FAILS(rg_kernel_load(NULL, "x", &other), RG_INVALID_ARGUMENT, "device");
    EXPECT_FAILS(rg_kernel_load(cpu, NULL, &other), RG_INVALID_ARGUMENT, "path");
    EXPECT_FAILS(rg_kernel_load(cpu, "x", NULL), RG_INVALID_ARGUMENT, "kernel");
    EXPECT_FAILS(rg_kernel_from_json(NULL, "1", 1, &other), RG_INVALID_ARGUMENT, "device");
    EXPECT_FAILS(rg_kernel_from_json(cpu, NULL, 1, &other), RG_INVALID_ARGUMENT, "text");
    EXPECT_FAILS(rg_kernel_from_json(cpu, "1", 1, NULL), RG_INVALID_ARGUMENT, "kernel");
    memset(label, 'a', size - 1);
    EXPECT_OK(rg_kernel_set_label(kernel, label));
    EXPECT_FAILS(
        rg_kernel_save(kernel, scratch("x")), RG_INVALID_ARGUMENT,
        "rg_kernel_save: the kernel with its label has 1048679 bytes, more than can be loaded");
    free(label);
    rg_kernel_destroy(kernel);
}

static const char whole_kernel[] =
    SOFTMAX "\"label\": \"a \\ud83d\\ude00\", \"desc\": {\"kind\": \"log\", \"axis\": -2}}";

static void test_kernel_truncated_and_flipped(void)
{
    const size_t length = sizeof whole_kernel - 1;
    rg_kernel *kernel = NULL;
    for (size_t size = 0; size < length; size++) {
        char *text = malloc(size + 1); /* of this very size, so that a sanitizer sees each byte */
        char *exact = size > 0 ? realloc(text, size) : text;
        memcpy(exact, whole_kernel, size);
        EXPECT(rg_kernel_from_json(cpu, exact, size, &kernel) == RG_MALFORMED);
        free(exact);
    }
    const uint64_t first = 7;
    uint64_t seed = first;
    for (int i = 0; i < 5000; i++) {
        char text[sizeof whole_kernel];
        memcpy(text, whole_kernel, sizeof text);
        for (uint64_t k = scratch_random(&seed) % 3; k < 3; k++) {
            const uint64_t r = scratch_random(&seed);
            text[(r >> 8) % length] ^= (char)(r % 2 ? 1u << (r >> 1) % 8 : r >> 40);
        }
        const rg_status status = rg_kernel_from_json(cpu, text, length, &kernel);
        if (status != RG_OK && status != RG_MALFORMED)
            printf("flip %d of seed %llu: %s\n", i, (unsigned long long)first, rg_error_text());
        EXPECT(status == RG_OK || status == RG_MALFORMED);
        rg_kernel_destroy(kernel);
    }
}

/* Behind the value that begins here: the next comma or closing bracket that is not within it. */
static const char *value_end(const char *at)
{
    int depth = 0;
    for (bool quoted = false; *at != 0; at++) {
        quoted ^= *at == '"';
        if (!quoted && depth == 0 && (*at == ',' || *at == '}' || *at == ']'))
            break;
        depth += !quoted && (*at == '[' || *at == '{');
        depth -= !quoted && (*at == ']' || *at == '}');
    }
    return at;
}

/* In the descriptor of every op, one value after the other is changed. */
static void test_other_values(void)
{
    static const char *const values[] = { "null",
                                          "true",
                                          "\"x\"",
                                          "[]",
                                          "{}",
                                          "[[1]]",
                                          "{\"a\": 1}",
                                          "-1",
                                          "1.5",
                                          "1e999",
                                          "-1e999",
                                          "1e-999",
                                          "NaN",
                                          "-9223372036854775808",
                                          "9223372036854775807",
                                          "-99999999999999999999",
                                          "[1,2,3,4,5,6,7,8,9]" };
    for (int op = 0; rg_ops[op] != NULL; op++) {
        char start[128], text[4096], changed[8192];
        snprintf(start, sizeof start, "{\"retrograde\": 1, \"op\": \"%s\"}", rg_ops[op]->name);
        rg_kernel *kernel = NULL;
        EXPECT_OK(from_text(start, &kernel));
        EXPECT(rg_kernel_to_json(kernel, text, sizeof text) < sizeof text);
        rg_kernel_destroy(kernel);
        int tried = 0;
        for (const char *at = strstr(text, "\"desc\": {"); at != NULL; at = strstr(at + 1, ": ")) {
            const char *const value = strstr(at, ": ") + 2;
            for (size_t i = 0; i < sizeof values / sizeof values[0]; i++, tried++) {
                snprintf(changed, sizeof changed, "%.*s%s%s", (int)(value - text), text, values[i],
                         value_end(value));
                const rg_status status = from_text(changed, &kernel);
                EXPECT(status == RG_OK || status == RG_MALFORMED || status == RG_INVALID_ARGUMENT);
                EXPECT(status == RG_OK || strlen(rg_error_text()) > 20);
                rg_kernel_destroy(kernel);
            }
        }
        EXPECT(tried > 0);
    }
}

static rg_status load_and_save(rg_device *device)
{
    rg_kernel *kernel = NULL;
    rg_status status = rg_kernel_load(device, scratch("in.json"), &kernel);
    if (status == RG_OK)
        status = rg_kernel_save(kernel, scratch("out.json"));
    EXPECT((status == RG_OK) == (access(scratch("out.json"), F_OK) == 0));
    rg_kernel_destroy(kernel);
    return status;
}

static void test_out_of_memory(void)
{
    scratch_write("in.json", whole_kernel, sizeof whole_kernel - 1);
    fail_at_every_call(load_and_save);
    scratch_remove("in.json");
    scratch_remove("out.json");
}

int main(void)
{
    scratch_begin();
    EXPECT_OK(rg_device_create("cpu", NULL, &cpu));
    test_reading();
    test_writing();
    test_old_file_survives();
    test_kernel_round_trips();
    test_kernel_refuses();
    test_kernel_paths_and_null();
    test_kernel_truncated_and_flipped();
    test_other_values();
    test_out_of_memory();
    rg_device_destroy(cpu);
    scratch_end();
    return rg_test_report();
}
