/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Writing of safetensors files that fails: full disks, failing memory, a writer that is killed. */
#include "files/safetensors_format.h"
#include "runtime/objects.h"
#include "tests/failing_allocator.h"
#include "tests/scratch_folder.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static rg_device *cpu;

static rg_status write_one(const char *path, const char *name, const char *key, const char *value)
{
    const rg_safetensors_entry entries[] = {
        { name, NULL, "12345678", rg_tensor_desc_dense(RG_U8, 1, (const int64_t[]){ 8 }) },
        { "last", NULL, "1234", rg_tensor_desc_dense(RG_F32, 0, NULL) },
    };
    const rg_safetensors_text texts[] = { { key, value }, { "z", "" } };
    return rg_safetensors_write(path, entries, 2, texts, 2);
}

static void test_write_refuses(void)
{
    const char *path = scratch("x.safetensors");
    EXPECT_FAILS(write_one(path, "last", "a", ""), RG_INVALID_ARGUMENT, "\"last\" is given twice");
    EXPECT_FAILS(write_one(path, NULL, "a", ""), RG_INVALID_ARGUMENT, "name 0 is NULL");
    EXPECT_FAILS(write_one(path, "\xff", "a", ""), RG_INVALID_ARGUMENT, "is not UTF-8");
    EXPECT_FAILS(write_one(path, "__metadata__", "a", ""), RG_INVALID_ARGUMENT, "__metadata__");
    EXPECT_FAILS(write_one(path, "a", "z", ""), RG_INVALID_ARGUMENT, "key \"z\" is given twice");
    EXPECT_FAILS(write_one(path, "a", NULL, ""), RG_INVALID_ARGUMENT, "key 0 is NULL");
    EXPECT_FAILS(write_one(path, "a", "b", NULL), RG_INVALID_ARGUMENT, "text of \"b\" is NULL");
    EXPECT_FAILS(write_one(path, "a", "b", "\xc3"), RG_INVALID_ARGUMENT, "is not UTF-8");
    EXPECT_FAILS(write_one(NULL, "a", "b", ""), RG_INVALID_ARGUMENT, "path is NULL");
    EXPECT_FAILS(rg_safetensors_write(path, NULL, 1, NULL, 0), RG_INVALID_ARGUMENT, "entries");
    EXPECT_FAILS(rg_safetensors_write(path, NULL, 0, NULL, 1), RG_INVALID_ARGUMENT, "metadata");

    rg_safetensors_entry entry = { "x", NULL, NULL, rg_tensor_desc_dense(RG_F32, 0, NULL) };
    EXPECT_FAILS(rg_safetensors_write(path, &entry, 1, NULL, 0), RG_INVALID_ARGUMENT,
                 "\"x\": rg_safetensors_write: data is NULL");
    entry.desc.rank = 9;
    EXPECT_FAILS(rg_safetensors_write(path, &entry, 1, NULL, 0), RG_INVALID_ARGUMENT, "rank is 9");
    rg_queue *queue = NULL;
    rg_commands *commands = NULL;
    rg_tensor *temporary = NULL;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 0, NULL);
    EXPECT_OK(rg_queue_create(cpu, &queue));
    EXPECT_OK(rg_commands_create(queue, &commands));
    EXPECT_OK(rg_tensor_create_temporary(commands, &desc, &temporary));
    entry.tensor = temporary;
    EXPECT_FAILS(rg_safetensors_write(path, &entry, 1, NULL, 0), RG_INVALID_ARGUMENT, "temporary");
    rg_tensor_destroy(temporary);
    rg_commands_destroy(commands);
    rg_queue_destroy(queue);

    char *text = malloc((32 << 20) + 1);
    memset(text, 'x', 32 << 20);
    text[32 << 20] = 0;
    EXPECT_FAILS(write_one(path, "a", "b", text), RG_INVALID_ARGUMENT, "at most 33554432");
    free(text);
    EXPECT(access(path, F_OK) != 0);
}

static void test_old_file_survives(void)
{
    const char old[] = "what was there before";
    EXPECT_FAILS(write_one("/dev/full", "a", "b", ""), RG_IO, "/dev/full: cannot be written");
    EXPECT_FAILS(write_one(scratch("none/x"), "a", "b", ""), RG_IO, "none/x: cannot be created");
    EXPECT_OK(write_one("/dev/null", "a", "b", ""));

    /* a disk that is full, played by a limit on the size of files */
    struct stat whole;
    EXPECT_OK(write_one(scratch("x.safetensors"), "a", "b", ""));
    EXPECT(stat(scratch("x.safetensors"), &whole) == 0);
    scratch_write("x.safetensors", old, sizeof old);
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t most = 0; most < (rlim_t)whole.st_size; most++) {
        EXPECT(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ most, limit.rlim_max }) == 0);
        const rg_status status = write_one(scratch("x.safetensors"), "a", "b", "");
        EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        char got[64];
        EXPECT(status == RG_IO &&
               strstr(rg_error_text(), "x.safetensors: cannot be written: ") != NULL);
        EXPECT(scratch_read("x.safetensors", got, sizeof got) == sizeof old);
        EXPECT(memcmp(got, old, sizeof old) == 0);
    }
    signal(SIGXFSZ, SIG_DFL);

    if (geteuid() != 0) { /* root may write everywhere */
        EXPECT(chmod(scratch_folder, 0555) == 0);
        EXPECT_FAILS(write_one(scratch("x.safetensors"), "a", "b", ""), RG_IO, "cannot be created");
        EXPECT(chmod(scratch_folder, 0755) == 0);
    }
    EXPECT_OK(write_one(scratch("x.safetensors"), "a", "b", ""));
    scratch_remove("x.safetensors"); /* scratch_end sees whether a temporary file is left */
}

/* ---- a writer that is killed ---- */

enum { KILLED_ELEMENTS = 30000 };

/* Generation g has g in its metadata and in all elements of both tensors. */
static rg_status write_generation(const char *path, int32_t g)
{
    static int32_t data[KILLED_ELEMENTS];
    for (int i = 0; i < KILLED_ELEMENTS; i++)
        data[i] = g;
    char step[16];
    snprintf(step, sizeof step, "%d", (int)g);
    const int64_t dims[] = { KILLED_ELEMENTS };
    const rg_safetensors_entry entries[] = {
        { "a", NULL, data, rg_tensor_desc_dense(RG_I32, 1, dims) },
        { "b", NULL, data, rg_tensor_desc_dense(RG_I32, 1, dims) },
    };
    return rg_safetensors_write(path, entries, 2, &(rg_safetensors_text){ "step", step }, 1);
}

/* The generation of a whole file; -1 for any other. */
static int32_t read_generation(const char *path)
{
    static int32_t data[KILLED_ELEMENTS];
    rg_safetensors *file = NULL;
    EXPECT_OK(rg_safetensors_open(path, &file));
    const char *step = rg_safetensors_metadata(file, "step");
    const int32_t g = step != NULL ? (int32_t)atoi(step) : -1;
    bool same = g >= 0 && rg_safetensors_count(file) == 2;
    for (size_t t = 0; t < 2 && same; t++) {
        same = rg_safetensors_read(file, t, data, sizeof data) == RG_OK;
        for (int i = 0; i < KILLED_ELEMENTS && same; i++)
            same = data[i] == g;
    }
    rg_safetensors_close(file);
    return same ? g : -1;
}

static void test_killed_writer(void)
{
    const char *path = scratch("x.safetensors");
    uint64_t seed = 20250301;
    int32_t last = 0;
    int changed = 0;
    EXPECT_OK(write_generation(path, last));
    for (int round = 0; round < 50; round++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            for (int32_t g = last + 1;; g++) {
                if (write_generation(path, g) != RG_OK)
                    _exit(1);
            }
        }
        EXPECT(child > 0);
        usleep((useconds_t)(scratch_random(&seed) % 8000));
        int status = 0;
        EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        const int32_t now = read_generation(path);
        EXPECT(now >= last);
        changed += now > last;
        last = now;
        char left[512]; /* what a killed writer could not remove */
        snprintf(left, sizeof left, "%s/.retrograde-%ld-0", scratch_folder, (long)child);
        unlink(left);
    }
    EXPECT(changed > 0);
    scratch_remove("x.safetensors");
}

/* ---- failing memory ---- */

/* Writes and reads a view, with memory from the device's allocator. */
static rg_status write_and_read(rg_device *device)
{
    rg_tensor *tensor = NULL, *view = NULL;
    rg_safetensors *file = NULL;
    const rg_allocator *allocator = &device->allocator;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, (const int64_t[]){ 3, 2 });
    rg_status status = rg_tensor_create(device, &desc, &tensor);
    if (status == RG_OK)
        status = rg_tensor_permute(tensor, (const int32_t[]){ 1, 0 }, &view);
    const rg_safetensors_entry entries[] = { { "a", view, NULL, { 0 } },
                                             { "b", tensor, NULL, { 0 } } };
    const rg_safetensors_text text = { "key", "value" };
    if (status == RG_OK)
        status =
            rg_safetensors_write_with(allocator, scratch("x.safetensors"), entries, 2, &text, 1);
    EXPECT((status == RG_OK) == (access(scratch("x.safetensors"), F_OK) == 0));
    if (status == RG_OK) {
        status = rg_safetensors_open_with(allocator, scratch("x.safetensors"), &file);
        scratch_remove("x.safetensors");
    }
    if (status == RG_OK)
        status = rg_safetensors_read_tensor(file, 0, view);
    rg_safetensors_close(file);
    rg_tensor_destroy(view);
    rg_tensor_destroy(tensor);
    return status;
}

int main(void)
{
    EXPECT_OK(rg_device_create("cpu", NULL, &cpu));
    scratch_begin();
    test_write_refuses();
    test_old_file_survives();
    test_killed_writer();
    fail_at_every_call(write_and_read);
    rg_device_destroy(cpu);
    scratch_end();
    return rg_test_report();
}
